//! Refuses calls of aggregate and window functions that take more memory than their operators account for, or of which
//! DataFusion's result is wrong: [`check`].

use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Cast, NullTreatment};
use datafusion::logical_expr::{Expr, WindowFunctionDefinition};

/// Maximum centroids of an approximate percentile: they are allocated before the first value comes.
const CENTROIDS_MAX: i128 = 10_000;

/// Functions that collect all values of a group in a list or text: over a window, one for each row.
const GATHERING: [&str; 2] = ["array_agg", "string_agg"];

/// Refuses an expression that is such a call.
///
/// # Errors
///
/// The expression is such a call.
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
            let is_skipping = call.params.null_treatment == Some(NullTreatment::IgnoreNulls);
            if is_skipping && !is_next_or_earlier(name, call.params.args.get(1)) {
                let error = format!(
                    "{name}() with IGNORE NULLS is available for the next value and for earlier ones, not for \
                     others that follow"
                );
                return Err(DataFusionError::Plan(error));
            }
            check_centroids(name, &call.params.args)
        }
        _ => Ok(()),
    }
}

/// Whether a window function that skips nulls looks ahead no further than to the next value. For values after that,
/// DataFusion returns null.
fn is_next_or_earlier(function: &str, offset: Option<&Expr>) -> bool {
    let least_and_most = match function {
        "lead" => 0..=1,
        "lag" => 0..=i128::MAX,
        _ => return true,
    };
    offset.is_none_or(|offset| number(offset).is_some_and(|own| least_and_most.contains(&own)))
}

/// The number of a literal.
fn number(expression: &Expr) -> Option<i128> {
    match expression {
        Expr::Literal(value, _) => value.to_string().parse().ok(),
        Expr::Negative(inner) => number(inner)?.checked_neg(),
        Expr::Cast(Cast { expr, .. }) => number(expr),
        _ => None,
    }
}

/// # Errors
///
/// The number of centroids is not a constant, or too large.
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
            // A value that is not a number is refused by the function itself.
            let number = value.to_string().parse::<i128>();
            number.map_or(true, |number| number <= CENTROIDS_MAX)
        }
        Expr::Cast(Cast { expr, .. }) => is_small(expr),
        _ => false,
    }
}
