//! Rewrites `BETWEEN` and `IN` of a property with numbers or truth values to comparisons: [`rewrite`]. A comparison is
//! planned with the type of the other side ([`property_access`](crate::dialect::property_access)); the property itself
//! is a text, and compared as text, 10 is between 1 and 5.

use std::mem;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, VisitorMut};

use crate::dialect::property_access::access;
use crate::dialect::statements::{query_in, take};
use crate::dialect::walk::walk_mut;

/// Rewrites ranges and lists of properties to comparisons. May run before or after
/// [`property_access::rewrite`](crate::dialect::property_access::rewrite).
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Some(query) = query_in(statement) {
        let _ = walk_mut(query, &mut Comparisons);
    }
}

struct Comparisons;

impl VisitorMut for Comparisons {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let compared = match expression {
            Expr::Between { expr, negated, low, high }
                if access(expr).is_some() && (is_typed(low) || is_typed(high)) =>
            {
                let from = binary((**expr).clone(), BinaryOperator::GtEq, take(low));
                let to = binary(take(expr), BinaryOperator::LtEq, take(high));
                Some((*negated, binary(from, BinaryOperator::And, to)))
            }
            Expr::InList { expr, list, negated }
                if access(expr).is_some() && list.iter().any(is_typed) =>
            {
                let equal = |value| binary((**expr).clone(), BinaryOperator::Eq, value);
                let equals = mem::take(list).into_iter().map(equal).collect();
                any(equals).map(|any| (*negated, any))
            }
            _ => None,
        };
        if let Some((negated, compared)) = compared {
            let nested = Expr::Nested(Box::new(compared));
            *expression = match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested) },
                false => nested,
            };
        }
        ControlFlow::Continue(())
    }
}

/// Whether it is a number or boolean literal.
fn is_typed(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => matches!(value.value, Value::Number(..) | Value::Boolean(_)),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_typed(expr),
        Expr::Nested(expr) => is_typed(expr),
        _ => false,
    }
}

/// The disjunction of conditions, as a balanced tree: otherwise long lists would become deep trees.
fn any(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let rest = conditions.split_off(conditions.len() / 2);
    Some(binary(any(conditions)?, BinaryOperator::Or, any(rest)?))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::rewrite;

    #[test]
    fn ranges_and_lists_with_numbers_are_comparisons() {
        for (condition, expected) in [
            ("properties.a BETWEEN 1 AND 5", "(properties.a >= 1 AND properties.a <= 5)"),
            ("properties.a NOT BETWEEN -1 AND 5", "NOT (properties.a >= -1 AND properties.a <= 5)"),
            ("e.properties['a'] IN (1, 2.5)", "(e.properties['a'] = 1 OR e.properties['a'] = 2.5)"),
            (
                "person.properties.a NOT IN (1, 2, 3)",
                "NOT (person.properties.a = 1 OR person.properties.a = 2 OR person.properties.a = 3)",
            ),
            ("properties.a IN (true)", "(properties.a = true)"),
            ("properties.a IN ('1', '2')", "properties.a IN ('1', '2')"),
            ("properties.a BETWEEN 'a' AND 'b'", "properties.a BETWEEN 'a' AND 'b'"),
            ("size IN (1, 2)", "size IN (1, 2)"),
        ] {
            let sql = format!("SELECT 1 FROM t WHERE {condition}");
            let mut statements = Parser::parse_sql(&GenericDialect {}, &sql).expect("it parses");
            let statement = statements.pop().expect("one statement");
            let mut statement = Statement::Statement(Box::new(statement));
            rewrite(&mut statement);
            assert_eq!(statement.to_string(), format!("SELECT 1 FROM t WHERE {expected}"));
        }
    }
}
