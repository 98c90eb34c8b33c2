//! Calls of aggregate and window functions that take more than the operators that make them account for:
//! [`check`].

use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::WindowFunctionDefinition;
use datafusion::logical_expr::expr::Cast;

/// Centroids of an approximate percentile: they are allocated before the first value comes.
const CENTROIDS_MAX: i128 = 10_000;

/// Functions that make lists or texts of all values of a group: over a window, one for each row.
const GATHERING: [&str; 2] = ["array_agg", "string_agg"];

/// Refuses an expression that is such a call.
///
/// # Errors
///
/// It is.
pub(super) fn check(expression: &Expr) -> Result<()> {
    match expression {
        Expr::AggregateFunction(call) => check_centroids(call.func.name(), &call.params.args),
        Expr::WindowFunction(call) => {
            let name = call.fun.name();
            let is_aggregate = matches!(call.fun, WindowFunctionDefinition::AggregateUDF(_));
            if is_aggregate && GATHERING.contains(&name) {
                let error = format!("{name}() takes no OVER; gather values with GROUP BY");
                return Err(DataFusionError::Plan(error));
            }
            check_centroids(name, &call.params.args)
        }
        _ => Ok(()),
    }
}

/// # Errors
///
/// The number of centroids is none that is known and small.
fn check_centroids(function: &str, arguments: &[Expr]) -> Result<()> {
    let others = match function {
        "approx_percentile_cont" => 2,
        "approx_percentile_cont_with_weight" => 3,
        _ => return Ok(()),
    };
    match arguments.get(others..).unwrap_or_default().iter().all(is_small) {
        true => Ok(()),
        false => Err(DataFusionError::Plan(format!(
            "the number of centroids of {function}() is a literal of at most {CENTROIDS_MAX}"
        ))),
    }
}

fn is_small(number: &Expr) -> bool {
    match number {
        Expr::Literal(value, _) => {
            // What is no number is refused by the function.
            let number = value.to_string().parse::<i128>();
            number.map_or(true, |number| number <= CENTROIDS_MAX)
        }
        Expr::Cast(Cast { expr, .. }) => is_small(expr),
        _ => false,
    }
}
