//! Properties used as conditions: `WHERE properties.flag`, and items of lists in properties: `properties.list[1]`.
//! [`rewrite`] must run before the other rewrites of properties.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, Ident, Select, Subscript, UnaryOperator, Value,
    VisitorMut,
};

use crate::dialect::clickhouse::{call, step};
use crate::dialect::property_access::access;
use crate::dialect::statements;
use crate::dialect::statements::take;
use crate::functions::json::AS_TEXT;

/// Gives properties the type that their context requires.
///
/// # Errors
///
/// An index of a list is invalid.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<()> {
    statements::rewrite(statement, &mut Wanted)
}

struct Wanted;

impl VisitorMut for Wanted {
    type Break = DataFusionError;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        match item(expression) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(own)) => {
                *expression = own;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
        conditions.into_iter().flatten().for_each(truth);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        match expression {
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                truth(left);
                truth(right);
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => truth(expr),
            Expr::Case { operand: None, conditions, .. } => {
                conditions.iter_mut().for_each(|case| truth(&mut case.condition));
            }
            Expr::Function(Function { filter: Some(filter), .. }) => truth(filter),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Whether an expression is a property.
fn is_property(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) => is_property(inner),
        Expr::Function(function) => function.name.to_string() == AS_TEXT,
        expression => access(expression).is_some(),
    }
}

/// Rewrites a property used as a condition to a comparison with true.
fn truth(condition: &mut Expr) {
    if is_property(condition) {
        let left = Box::new(take(condition));
        let right = Box::new(Expr::Value(Value::Boolean(true).into()));
        *condition = Expr::BinaryOp { left, op: BinaryOperator::Eq, right };
    }
}

/// Rewrites an access with a list index to the function that reads it.
fn item(expression: &Expr) -> Result<Option<Expr>> {
    let Expr::CompoundFieldAccess { root, access_chain } = expression else { return Ok(None) };
    let is_place = |access: &AccessExpr| match access {
        AccessExpr::Subscript(Subscript::Index { index }) => is_number(index),
        _ => false,
    };
    let Some(at) = access_chain.iter().position(is_place) else { return Ok(None) };
    let (before, behind) = access_chain.split_at(at);
    let (mut names, keys) = match before.is_empty() {
        true => match access(root) {
            Some(found) => found,
            None => return Ok(None),
        },
        false => {
            let own =
                Expr::CompoundFieldAccess { root: root.clone(), access_chain: before.to_vec() };
            match access(&own) {
                Some(found) => found,
                None => return Ok(None),
            }
        }
    };
    let column = match names.len() {
        1 => names.pop().map(Expr::Identifier),
        _ => Some(Expr::CompoundIdentifier(names)),
    };
    let text = |key: String| Expr::Value(Value::SingleQuotedString(key).into());
    let mut arguments: Vec<Expr> = column.into_iter().collect();
    arguments.extend(keys.into_iter().map(text));
    for access in behind {
        let own = match access {
            AccessExpr::Subscript(Subscript::Index { index }) => step(index),
            AccessExpr::Dot(Expr::Identifier(Ident { value, .. })) => Some(text(value.clone())),
            _ => None,
        };
        arguments.push(own.ok_or_else(|| {
            DataFusionError::Plan(
                "places in a list of a property count from 1, or from its end with -1".to_owned(),
            )
        })?);
    }
    Ok(Some(call(AS_TEXT, arguments)))
}

fn is_number(index: &Expr) -> bool {
    match index {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => is_number(expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;
    use crate::dialect::hogql;

    #[test]
    fn properties_have_the_type_that_is_wanted() {
        for (sql, expected) in [
            (
                "SELECT 1 FROM t WHERE properties.a AND NOT (person.properties['b'])",
                "SELECT 1 FROM t WHERE properties.a = true AND NOT (person.properties['b']) = true",
            ),
            ("SELECT 1 FROM t WHERE properties.a", "SELECT 1 FROM t WHERE properties.a = true"),
            (
                "SELECT 1 FROM t WHERE properties.a = 'x'",
                "SELECT 1 FROM t WHERE properties.a = 'x'",
            ),
            (
                "SELECT CASE WHEN properties.a THEN 1 END, count(*) FILTER (WHERE properties.b)",
                "SELECT CASE WHEN properties.a = true THEN 1 END, count(*) FILTER (WHERE properties.b = true)",
            ),
            (
                "SELECT properties.list[1], e.properties['a'][-1].b, a[1]",
                "SELECT json_as_text(properties, 'list', 0), json_as_text(e.properties, 'a', -1, 'b'), a[1]",
            ),
        ] {
            let mut statement = hogql::statement(sql, 50).unwrap();
            rewrite(&mut statement).unwrap();
            assert_eq!(statement.to_string(), expected, "{sql}");
        }
        let mut statement = hogql::statement("SELECT properties.list[0]", 50).unwrap();
        rewrite(&mut statement).unwrap_err();
    }
}
