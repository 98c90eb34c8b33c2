//! Names that a SELECT gives its columns, where it uses them itself: `SELECT toDate(timestamp) AS day FROM events WHERE day >
//! today() - 7`. A column of a table has its name first; so they are looked at once planning has found no column
//! ([`Aliases::put`]), and only where no table around the place has one.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, Query, Select, SelectItem, VisitorMut};

use crate::dialect::asked;
use crate::dialect::relations::{Relations, Tables, is_same};
use crate::dialect::substitution::Substitution;

/// Names of one statement that are looked at.
const NAMES_MAX: usize = 32;

/// What was put into a statement so far.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    names: Vec<Ident>,
    copied: usize,
}

impl Aliases {
    /// Puts what a SELECT names so in the place of the column that planning did not find. Says whether it did.
    ///
    /// # Errors
    ///
    /// It is too long for that.
    pub(crate) fn put(
        &mut self,
        statement: &mut Statement,
        error: &DataFusionError,
        tables: &dyn Tables,
    ) -> Result<bool> {
        let DataFusionError::SchemaError(error, _) = error.find_root() else { return Ok(false) };
        let SchemaError::FieldNotFound { field, .. } = &**error else { return Ok(false) };
        let name = Ident::with_quote('"', field.name.clone());
        if self.names.contains(&name) || self.names.len() == NAMES_MAX {
            return Ok(false);
        }
        self.names.push(name.clone());
        if field.relation.is_some() {
            return Ok(false);
        }
        let relations = Relations::new(tables);
        let mut selects = Selects { name, relations, copied: self.copied, is_changed: false };
        asked::rewrite(statement, &mut selects)?;
        self.copied = selects.copied;
        Ok(selects.is_changed)
    }
}

/// Puts one name of a SELECT into it.
struct Selects<'t> {
    name: Ident,
    relations: Relations<'t>,
    copied: usize,
    is_changed: bool,
}

impl VisitorMut for Selects<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.leave();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let named = select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if is_lower_same(alias, &self.name) => {
                Some(expr.clone())
            }
            _ => None,
        });
        let Some(expression) = named else { return ControlFlow::Continue(()) };
        if self.relations.of(select).iter().any(|own| own.has(&self.name)) {
            return ControlFlow::Continue(());
        }
        let before = self.copied;
        let mut substitution = Substitution::within(self.relations.clone(), before);
        // As DataFusion has it, in lower case unless it is in quotes.
        substitution.add(Ident::new(self.name.value.clone()), expression);
        let mut put = || -> Result<()> {
            for item in &mut select.projection {
                match item {
                    SelectItem::ExprWithAlias { alias, .. } if is_lower_same(alias, &self.name) => {
                    }
                    item => substitution.put(item)?,
                }
            }
            substitution.put(&mut select.selection)?;
            substitution.put(&mut select.having)?;
            substitution.put(&mut select.qualify)?;
            substitution.put(&mut select.group_by)
        };
        if let Err(error) = put() {
            return ControlFlow::Break(error);
        }
        self.copied = substitution.copied();
        self.is_changed |= self.copied > before;
        ControlFlow::Continue(())
    }
}

/// Whether an alias is the column that DataFusion looked for.
fn is_lower_same(alias: &Ident, name: &Ident) -> bool {
    match alias.quote_style {
        Some(_) => alias.value == name.value,
        None => is_same(alias, &Ident::new(name.value.clone())),
    }
}
