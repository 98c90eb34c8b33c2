//! For all that rewrites or checks a statement: its query, whether it is asked or explained ([`asked`]), a visitor that may
//! refuse parts of it ([`rewrite`]), an expression taken out of its tree ([`take`]), and the tree of SQL of ours
//! ([`query_of`]).

use std::mem;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Statement as SqlStatement, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::dialect::walk::walk_mut;

/// The query; `None` of a statement that is none.
pub(crate) fn asked(statement: &mut Statement) -> Option<&mut SqlStatement> {
    match statement {
        Statement::Statement(query) => Some(query),
        Statement::Explain(explain) => asked(&mut explain.statement),
        _ => None,
    }
}

/// Lets a visitor rewrite the query of a statement.
///
/// # Errors
///
/// What the visitor ends with.
pub(crate) fn rewrite(
    statement: &mut Statement,
    visitor: &mut impl VisitorMut<Break = DataFusionError>,
) -> Result<()> {
    asked(statement).map_or(Ok(()), |query| rewrite_part(query, visitor))
}

/// The same of a part of a tree.
///
/// # Errors
///
/// What the visitor ends with.
pub(crate) fn rewrite_part(
    part: &mut impl VisitMut,
    visitor: &mut impl VisitorMut<Break = DataFusionError>,
) -> Result<()> {
    walk_mut(part, visitor).break_value().map_or(Ok(()), Err)
}

/// The expression, in whose place NULL is left.
pub(crate) fn take(expression: &mut Expr) -> Expr {
    mem::replace(expression, Expr::Value(Value::Null.into()))
}

/// The tree of a query of ours.
///
/// # Errors
///
/// It is none: a bug.
pub(crate) fn query_of(sql: &str) -> Result<Box<Query>> {
    let parsed = Parser::parse_sql(&GenericDialect {}, sql);
    let statement = parsed.map_err(|error| DataFusionError::Internal(error.to_string()))?.pop();
    match statement {
        Some(SqlStatement::Query(query)) => Ok(query),
        _ => Err(DataFusionError::Internal("a query of ours is none".to_owned())),
    }
}
