//! Where SQL takes a property as a number: [`rewrite`]. A property is a text, whatever its values are, so that none is
//! lost; what computes with numbers gets the number that the text is, or null. Properties whose values are numbers are
//! ordered as such: by texts, 10 comes before 9.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::CastKind;
use datafusion::sql::sqlparser::ast::DataType;
use datafusion::sql::sqlparser::ast::ExactNumberInfo;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Function;
use datafusion::sql::sqlparser::ast::FunctionArg;
use datafusion::sql::sqlparser::ast::FunctionArgExpr;
use datafusion::sql::sqlparser::ast::FunctionArgumentClause;
use datafusion::sql::sqlparser::ast::FunctionArguments;
use datafusion::sql::sqlparser::ast::OrderByExpr;
use datafusion::sql::sqlparser::ast::OrderByKind;
use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::ast::SetExpr;
use datafusion::sql::sqlparser::ast::UnaryOperator;
use datafusion::sql::sqlparser::ast::Value;
use datafusion::sql::sqlparser::ast::VisitMut;
use datafusion::sql::sqlparser::ast::VisitorMut;
use datafusion::sql::sqlparser::ast::WindowType;

use crate::asked::asked;
use crate::asked::take;
use crate::property_access::access;
use weir_event::schema::PROMOTED;
use weir_event::schema::PropertyType;

/// Functions that take numbers alone.
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
    // Of one row.
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

/// Functions that take values of any type, and compare or mix them: properties are numbers where another argument is one.
const OF_ANY: [&str; 5] = ["coalesce", "nullif", "nvl", "greatest", "least"];

/// Aggregates that are an order of values.
const OF_ORDERS: [&str; 2] = ["min", "max"];

/// Writes a property as the number that it is wherever a number is taken. Accesses to properties are written in any form.
pub(super) fn rewrite(statement: &mut Statement) {
    if let Some(query) = asked(statement) {
        let _ = VisitMut::visit(query, &mut Numbers);
    }
}

struct Numbers;

impl VisitorMut for Numbers {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // With DISTINCT, what rows are ordered by has to be written as in the list of columns.
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
            _ => {}
        }
        ControlFlow::Continue(())
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

/// An expression without parentheses around it.
fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

/// Whether it is a property of events that has numbers, by its name.
fn has_numbers(expression: &Expr) -> bool {
    let Some((columns, keys)) = access(bare(expression)) else { return false };
    let is_of_events = columns.iter().all(|column| !column.value.eq_ignore_ascii_case("person"));
    let [key] = keys.as_slice() else { return false };
    let is_own = |(own, kind): &(&str, PropertyType)| own == key && *kind == PropertyType::Double;
    is_of_events && PROMOTED.iter().any(is_own)
}

/// Whether it is a number as it is written.
fn is_number(expression: &Expr) -> bool {
    match bare(expression) {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_number(expr),
        _ => false,
    }
}

/// Puts the number that a property is into its place.
fn take_number(expression: &mut Expr) {
    if access(bare(expression)).is_some() {
        *expression = Expr::Cast {
            kind: CastKind::TryCast,
            expr: Box::new(take(expression)),
            data_type: DataType::Double(ExactNumberInfo::None),
            array: false,
            format: None,
        };
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
        ] {
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            rewrite(&mut statement);
            assert_eq!(statement.to_string(), expected, "{sql}");
        }
    }
}
