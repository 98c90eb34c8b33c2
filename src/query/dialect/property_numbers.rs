//! Conversion of properties to numbers by their context in SQL: [`rewrite`]. A property is a text by default, so that
//! no value of another type is lost; where a number is required, its text is parsed, or becomes null, also inside
//! expressions that only choose among values: `sum(CASE WHEN a THEN properties.b ELSE 0 END)`,
//! `max(properties.b) BETWEEN 1 AND 5`. Properties with numeric values are ordered as numbers: as texts, 10 would come
//! before 9.
//!
//! Operators between two values are planned by `property_access`, which has the types of operands.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, OrderByExpr, OrderByKind, Query, SetExpr,
    UnaryOperator, Value, VisitorMut, WindowType,
};

use crate::dialect::property_access::{OF_ANY, OF_FIRST, access};
use crate::dialect::statements::{query_in, take};
use crate::dialect::walk::walk_mut;
use weir_event::schema::{PROMOTED, PropertyType};

/// Functions that accept only numbers.
const OF_NUMBERS: [&str; 40] = [
    // Aggregates.
    "sum",
    "avg",
    "mean",
    "median",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "var",
    "var_pop",
    "var_population",
    "var_samp",
    "var_sample",
    "corr",
    "covar",
    "covar_pop",
    "covar_samp",
    "regr_slope",
    "regr_intercept",
    "approx_median",
    "approx_percentile_cont",
    "percentile_cont",
    // Scalar functions.
    "abs",
    "cbrt",
    "ceil",
    "exp",
    "floor",
    "isnan",
    "iszero",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "pow",
    "power",
    "round",
    "sign",
    "signum",
    "sqrt",
    "trunc",
];

/// Aggregates that order their values.
const OF_ORDERS: [&str; 2] = ["min", "max"];

/// Converts a property to a number wherever a number is required. Accesses may be in any form.
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Some(query) = query_in(statement) {
        let _ = walk_mut(query, &mut Numbers);
    }
}

struct Numbers;

impl VisitorMut for Numbers {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // With DISTINCT, ORDER BY expressions must be written as in the select list.
        let is_distinct =
            matches!(&*query.body, SetExpr::Select(select) if select.distinct.is_some());
        if let Some(OrderByKind::Expressions(orders)) =
            query.order_by.as_mut().map(|order| &mut order.kind)
            && !is_distinct
        {
            order_numbers(orders);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => {
                take_number(expr);
            }
            Expr::Function(function) => of_function(function),
            Expr::Case { .. } => of_case(expression),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                if is_number(right) {
                    take_number(left);
                }
                if is_number(left) {
                    take_number(right);
                }
            }
            Expr::Between { expr, low, high, .. } if is_number(low) || is_number(high) => {
                take_chosen(expr);
            }
            Expr::InList { expr, list, .. } if list.iter().any(is_number) => take_chosen(expr),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The results of a CASE are numbers if one of them is a number literal; so is its operand, if it is compared only with
/// such literals.
fn of_case(case: &mut Expr) {
    let Expr::Case { operand, conditions, else_result, .. } = case else { return };
    if let Some(operand) = operand
        && conditions.iter().all(|own| is_number(&own.condition))
    {
        take_number(operand);
    }
    let has_number = conditions.iter().any(|own| is_number(&own.result))
        || else_result.as_deref().is_some_and(is_number);
    if has_number {
        take_number(case);
    }
}

fn of_function(function: &mut Function) {
    if let Some(WindowType::WindowSpec(window)) = &mut function.over {
        order_numbers(&mut window.order_by);
    }
    order_numbers(&mut function.within_group);
    let [name] = function.name.0.as_slice() else { return };
    let Some(name) = name.as_ident().map(|name| name.value.to_lowercase()) else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    for clause in &mut list.clauses {
        if let FunctionArgumentClause::OrderBy(orders) = clause {
            order_numbers(orders);
        }
    }
    let arguments = || {
        list.args.iter().filter_map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument),
            _ => None,
        })
    };
    let is_of_numbers = OF_NUMBERS.contains(&name.as_str())
        || OF_ANY.contains(&name.as_str()) && arguments().any(is_number);
    let is_of_orders = OF_ORDERS.contains(&name.as_str());
    for argument in &mut list.args {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument
            && (is_of_numbers || is_of_orders && has_numbers(argument))
        {
            take_number(argument);
        }
    }
}

fn order_numbers(orders: &mut [OrderByExpr]) {
    for order in orders {
        if has_numbers(&order.expr) {
            take_number(&mut order.expr);
        }
    }
}

/// An expression without surrounding parentheses.
fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

/// Whether it is a property of events with a numeric promoted column.
fn has_numbers(expression: &Expr) -> bool {
    let Some((columns, keys)) = access(bare(expression)) else { return false };
    let is_of_events = columns.iter().all(|column| !column.value.eq_ignore_ascii_case("person"));
    let [key] = keys.as_slice() else { return false };
    let is_own = |(own, kind): &(&str, PropertyType)| own == key && *kind == PropertyType::Double;
    is_of_events && PROMOTED.iter().any(is_own)
}

/// Whether it is a number literal.
fn is_number(expression: &Expr) -> bool {
    match bare(expression) {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_number(expr),
        _ => false,
    }
}

/// Converts a property to a number, or each property among which the expression chooses.
fn take_number(expression: &mut Expr) {
    if access(bare(expression)).is_some() {
        *expression = Expr::Cast {
            kind: CastKind::TryCast,
            expr: Box::new(take(expression)),
            data_type: DataType::Double(ExactNumberInfo::None),
            array: false,
            format: None,
        };
    } else {
        take_chosen(expression);
    }
}

/// The same for an expression that is not itself a property.
fn take_chosen(expression: &mut Expr) {
    match expression {
        Expr::Nested(inner) => take_chosen(inner),
        Expr::Case { conditions, else_result, .. } => {
            let results = conditions.iter_mut().map(|own| &mut own.result);
            results.chain(else_result.as_deref_mut()).for_each(take_number);
        }
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) => {
            let [name] = name.0.as_slice() else { return };
            let Some(name) = name.as_ident().map(|name| name.value.to_lowercase()) else { return };
            let taken = match name.as_str() {
                name if OF_ANY.contains(&name) => list.args.len(),
                name if OF_FIRST.contains(&name) => 1,
                _ => 0,
            };
            for argument in list.args.iter_mut().take(taken) {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument {
                    take_number(argument);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::rewrite;

    #[test]
    fn properties_are_numbers_where_numbers_are_taken() {
        for (sql, expected) in [
            ("SELECT sum(properties.a)", "SELECT sum(TRY_CAST(properties.a AS DOUBLE))"),
            (
                "SELECT avg((e.properties['a'])) FILTER (WHERE b) OVER ()",
                "SELECT avg(TRY_CAST((e.properties['a']) AS DOUBLE)) FILTER (WHERE b) OVER ()",
            ),
            ("SELECT sum(size)", "SELECT sum(size)"),
            ("SELECT -properties.a", "SELECT -TRY_CAST(properties.a AS DOUBLE)"),
            (
                "SELECT coalesce(properties.a, 0), coalesce(properties.a, 'x')",
                "SELECT coalesce(TRY_CAST(properties.a AS DOUBLE), 0), coalesce(properties.a, 'x')",
            ),
            (
                "SELECT max(properties.price), max(properties.plan), max(person.properties.price)",
                "SELECT max(TRY_CAST(properties.price AS DOUBLE)), max(properties.plan), max(person.properties.price)",
            ),
            (
                "SELECT a FROM t ORDER BY properties.price DESC, properties.plan",
                "SELECT a FROM t ORDER BY TRY_CAST(properties.price AS DOUBLE) DESC, properties.plan",
            ),
            (
                "SELECT DISTINCT properties.price FROM t ORDER BY properties.price",
                "SELECT DISTINCT properties.price FROM t ORDER BY properties.price",
            ),
            (
                "SELECT first_value(a ORDER BY properties.price), rank() OVER (ORDER BY properties.price)",
                "SELECT first_value(a ORDER BY TRY_CAST(properties.price AS DOUBLE)), rank() OVER (ORDER BY TRY_CAST(properties.price AS DOUBLE))",
            ),
            ("SELECT count(properties.a)", "SELECT count(properties.a)"),
            (
                "SELECT sum(CASE WHEN properties.a = 'x' THEN properties.b ELSE 0 END)",
                "SELECT sum(CASE WHEN properties.a = 'x' THEN TRY_CAST(properties.b AS DOUBLE) ELSE 0 END)",
            ),
            (
                "SELECT CASE WHEN c THEN properties.a ELSE -1 END, CASE WHEN c THEN properties.a ELSE 'x' END",
                "SELECT CASE WHEN c THEN TRY_CAST(properties.a AS DOUBLE) ELSE -1 END, CASE WHEN c THEN properties.a ELSE 'x' END",
            ),
            (
                "SELECT CASE properties.a WHEN 1.5 THEN 'x' END, CASE properties.a WHEN 'y' THEN 'x' END",
                "SELECT CASE TRY_CAST(properties.a AS DOUBLE) WHEN 1.5 THEN 'x' END, CASE properties.a WHEN 'y' THEN 'x' END",
            ),
            (
                "SELECT properties.a IS DISTINCT FROM 1.5, 'x' IS NOT DISTINCT FROM properties.a",
                "SELECT TRY_CAST(properties.a AS DOUBLE) IS DISTINCT FROM 1.5, 'x' IS NOT DISTINCT FROM properties.a",
            ),
            (
                "SELECT 1 HAVING (min(properties.a)) BETWEEN 1 AND 2 AND max(properties.a) BETWEEN 'x' AND 'y'",
                "SELECT 1 HAVING (min(TRY_CAST(properties.a AS DOUBLE))) BETWEEN 1 AND 2 AND max(properties.a) BETWEEN 'x' AND 'y'",
            ),
            (
                "SELECT lag(properties.a, 1) OVER () IN (1, 2), round(coalesce(max(properties.a), properties.b), 2)",
                "SELECT lag(TRY_CAST(properties.a AS DOUBLE), 1) OVER () IN (1, 2), round(coalesce(max(TRY_CAST(properties.a AS DOUBLE)), TRY_CAST(properties.b AS DOUBLE)), 2)",
            ),
            (
                "SELECT max(properties.a) > 5, max(properties.a) - min(properties.a), properties.a * 2",
                "SELECT max(properties.a) > 5, max(properties.a) - min(properties.a), properties.a * 2",
            ),
        ] {
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            rewrite(&mut statement);
            assert_eq!(statement.to_string(), expected, "{sql}");
        }
    }
}
