//! For all that rewrites or checks a statement: its query, whether it is asked or explained ([`asked`]), and an expression
//! taken out of its tree ([`take`]).

use std::mem;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use datafusion::sql::sqlparser::ast::Value;

/// The query; `None` of a statement that is none.
pub(super) fn asked(statement: &mut Statement) -> Option<&mut SqlStatement> {
    match statement {
        Statement::Statement(query) => Some(query),
        Statement::Explain(explain) => asked(&mut explain.statement),
        _ => None,
    }
}

/// The expression, in whose place NULL is left.
pub(super) fn take(expression: &mut Expr) -> Expr {
    mem::replace(expression, Expr::Value(Value::Null.into()))
}
