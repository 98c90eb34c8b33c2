//! The query in a statement, whether it is asked or explained: [`asked`], for all that rewrites or checks one.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;

/// The query; `None` of a statement that is none.
pub(super) fn asked(statement: &mut Statement) -> Option<&mut SqlStatement> {
    match statement {
        Statement::Statement(query) => Some(query),
        Statement::Explain(explain) => asked(&mut explain.statement),
        _ => None,
    }
}
