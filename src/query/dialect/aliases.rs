//! Use of a SELECT's column aliases within the same SELECT:
//! `SELECT toDate(timestamp) AS day FROM events WHERE day > today() - 7`. A table's column takes precedence over an
//! alias; so aliases are substituted only after planning has failed to find a column ([`Aliases::put`]), and only where
//! no table in scope has one of that name.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, Query, Select, SelectItem, VisitorMut};

use crate::dialect::relations::{Relations, Tables, is_same};
use crate::dialect::statements;
use crate::dialect::substitution::Substitution;

/// Maximum aliases that are substituted per statement.
const NAMES_MAX: usize = 32;

/// Substitutions made in a statement so far.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    names: Vec<Ident>,
    copied: usize,
}

impl Aliases {
    /// Replaces the column that planning did not find by the expression of which it is an alias. Returns whether it
    /// did.
    ///
    /// # Errors
    ///
    /// The statement becomes too long.
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
        statements::rewrite(statement, &mut selects)?;
        self.copied = selects.copied;
        Ok(selects.is_changed)
    }
}

/// Visitor that substitutes one alias in its SELECT.
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
        // Spelled as DataFusion resolved it: in lower case, unless it was quoted.
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

/// Whether an alias is the column that DataFusion did not find.
fn is_lower_same(alias: &Ident, name: &Ident) -> bool {
    match alias.quote_style {
        Some(_) => alias.value == name.value,
        None => is_same(alias, &Ident::new(name.value.clone())),
    }
}
