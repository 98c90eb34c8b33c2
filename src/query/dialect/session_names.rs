//! Names of columns of `sessions` in SQL as HogQL has them, without quotes: [`rewrite`]. To the parser a word that begins
//! with `$` is a placeholder.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Value, VisitorMut};

use crate::dialect::asked::asked;
use crate::dialect::walk::walk_mut;
use crate::events::event_sessions;

/// Makes a column of each placeholder that has the name of a property of sessions.
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Some(query) = asked(statement) {
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
