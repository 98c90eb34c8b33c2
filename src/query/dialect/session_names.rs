//! Columns of `sessions` as HogQL names them, without quotes: [`rewrite`]. The parser takes a word that begins with `$`
//! for a placeholder.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Value, VisitorMut};

use crate::dialect::statements::query_in;
use crate::dialect::walk::walk_mut;
use crate::events::event_sessions;

/// Turns each placeholder with the name of a session property into a column.
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Some(query) = query_in(statement) {
        let _ = walk_mut(query, &mut Names);
    }
}

struct Names;

impl VisitorMut for Names {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Value(value) = &*expression
            && let Value::Placeholder(name) = &value.value
            && event_sessions::kind(name).is_some()
        {
            *expression = Expr::Identifier(Ident::with_quote('"', name));
        }
        ControlFlow::Continue(())
    }
}
