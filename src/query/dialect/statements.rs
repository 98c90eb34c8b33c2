//! AST helpers: the statement that a text is ([`only`]), the query inside a statement or EXPLAIN ([`query_in`]), a run of
//! a visitor that may refuse parts of it ([`rewrite`]), an expression taken out of its tree ([`take`]) or cast
//! ([`cast`]), and a tree parsed from SQL that we generate ([`query_of`]).

use std::collections::VecDeque;
use std::mem;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Query, Statement as SqlStatement, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::dialect::walk::walk_mut;

/// The statement of a text that has been parsed.
///
/// # Errors
///
/// There is none, or more than one.
pub(crate) fn only(mut statements: VecDeque<Statement>) -> Result<Statement> {
    if statements.len() > 1 {
        let why = "a query is one statement; there are more";
        return Err(DataFusionError::Plan(why.to_owned()));
    }
    let none = || DataFusionError::Plan("there is no statement in the query".to_owned());
    statements.pop_front().ok_or_else(none)
}

/// The query inside a statement or EXPLAIN; `None` if the statement is of another kind.
pub(crate) fn query_in(statement: &mut Statement) -> Option<&mut SqlStatement> {
    match statement {
        Statement::Statement(query) => Some(query),
        Statement::Explain(explain) => query_in(&mut explain.statement),
        _ => None,
    }
}

/// Runs a rewriting visitor on the query of a statement.
///
/// # Errors
///
/// The error with which the visitor breaks.
pub(crate) fn rewrite(
    statement: &mut Statement,
    visitor: &mut impl VisitorMut<Break = DataFusionError>,
) -> Result<()> {
    query_in(statement).map_or(Ok(()), |query| rewrite_part(query, visitor))
}

/// The same for a part of a tree.
///
/// # Errors
///
/// The error with which the visitor breaks.
pub(crate) fn rewrite_part(
    part: &mut impl VisitMut,
    visitor: &mut impl VisitorMut<Break = DataFusionError>,
) -> Result<()> {
    walk_mut(part, visitor).break_value().map_or(Ok(()), Err)
}

/// Takes the expression out of its tree and leaves NULL in its place.
pub(crate) fn take(expression: &mut Expr) -> Expr {
    mem::replace(expression, Expr::Value(Value::Null.into()))
}

/// A cast of an expression.
pub(crate) fn cast(expression: Expr, data_type: DataType) -> Expr {
    let (kind, expr) = (CastKind::Cast, Box::new(expression));
    Expr::Cast { kind, expr, data_type, array: false, format: None }
}

/// The tree of a query that we generate.
///
/// # Errors
///
/// It is not a query: a bug.
pub(crate) fn query_of(sql: &str) -> Result<Box<Query>> {
    let parsed = Parser::parse_sql(&GenericDialect {}, sql);
    let statement = parsed.map_err(|error| DataFusionError::Internal(error.to_string()))?.pop();
    match statement {
        Some(SqlStatement::Query(query)) => Ok(query),
        _ => Err(DataFusionError::Internal("a query of ours is none".to_owned())),
    }
}
