//! Output column names of a SELECT: [`ItemNames`] preserves the names that expressions had before they were rewritten.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem};

/// For each SELECT being visited, its expressions without aliases as they were before rewriting.
#[derive(Debug, Default)]
pub(crate) struct ItemNames(Vec<Vec<Option<String>>>);

impl ItemNames {
    /// Records the expressions of a SELECT, before any is rewritten.
    pub(crate) fn enter(&mut self, select: &Select) {
        self.0.push(select.projection.iter().map(unnamed).collect());
    }

    /// Gives expressions the names that they have in ClickHouse: the texts as sent, where DataFusion's names would
    /// include the types of constants and the tables of columns. A repeated text gets a number, as DataFusion requires
    /// unique names.
    pub(crate) fn leave(&mut self, select: &mut Select) {
        let is_distinct = select.distinct.is_some();
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for (item, written) in select.projection.iter_mut().zip(self.0.pop().unwrap_or_default()) {
            let (SelectItem::UnnamedExpr(expression), Some(text)) = (&*item, written) else {
                continue;
            };
            let time = times.entry(text.clone()).or_default();
            *time += 1;
            // Columns have names of their own; and ORDER BY with DISTINCT looks up its items by their expressions.
            let is_name = is_distinct
                || matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            if *time == 1 && is_name && expression.to_string() == text {
                continue;
            }
            let name = if *time == 1 { text } else { format!("{text} ({time})") };
            let (expr, alias) = (expression.clone(), Ident::with_quote('"', name));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// The text of an expression without an alias.
fn unnamed(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => Some(expression.to_string()),
        _ => None,
    }
}
