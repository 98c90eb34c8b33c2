//! Names of the columns that a SELECT gives: [`ItemNames`] keeps those that expressions had before they became others.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem};

/// Of each SELECT that is being visited, its expressions without names as they were before.
#[derive(Debug, Default)]
pub(crate) struct ItemNames(Vec<Vec<Option<String>>>);

impl ItemNames {
    /// Notes the expressions of a SELECT, before any is changed.
    pub(crate) fn enter(&mut self, select: &Select) {
        self.0.push(select.projection.iter().map(unnamed).collect());
    }

    /// Gives expressions the names that they have in ClickHouse: the texts that were sent, where DataFusion would tell the
    /// types of constants and the tables of columns. One that was sent before gets its number as well, as DataFusion wants
    /// names to differ.
    pub(crate) fn leave(&mut self, select: &mut Select) {
        let is_distinct = select.distinct.is_some();
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for (item, written) in select.projection.iter_mut().zip(self.0.pop().unwrap_or_default()) {
            let (SelectItem::UnnamedExpr(expression), Some(text)) = (&*item, written) else {
                continue;
            };
            let time = times.entry(text.clone()).or_default();
            *time += 1;
            // Columns have their own names; and what is ordered by behind DISTINCT is looked for by its expression.
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

/// The text of an expression without a name.
fn unnamed(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => Some(expression.to_string()),
        _ => None,
    }
}
