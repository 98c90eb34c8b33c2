//! Properties that projects promote to columns: they are added to the tables of events and of persons, and files have them
//! from then on.

use std::error::Error;

use arrow::datatypes::Schema;

use crate::maintenance::Maintenance;
use weir_event::promotion::{PromotedTable, Promotion};
use weir_query::events::promoted;
use weir_query::persons::person_table::TableOf;
use weir_storage::derived::Derived;

/// Why columns were not added.
type Failure<'e> = &'e (dyn Error + 'static);

impl Maintenance {
    /// Adds the columns of promoted properties to the table of events, if they are others than those that files have. If
    /// that fails, files are written without, and read as before.
    pub(super) fn promote(&self) {
        let (of, store) = (PromotedTable::Events, &self.store);
        let schema = &store.table().current().schema;
        if let Some(columns) = self.columns_of(of, schema, &store.derived()) {
            let count = columns.columns.len();
            let added = self.runtime.block_on(store.derive(columns));
            note(of, count, added.as_ref().map_err(|error| error as Failure<'_>).copied());
        }
    }

    /// The same of persons. Blocks; do not call it on a thread of a runtime.
    pub(super) fn promote_of_persons(&self) {
        let of = PromotedTable::Persons;
        let Some(table) = self.person_tables.iter().find(|own| own.kind() == TableOf::Persons)
        else {
            return;
        };
        // Without promotions nobody waits for a table that cannot be opened.
        let (wanted, derived) = (self.metadata.snapshot().promoted_columns(of), table.derived());
        if wanted.is_empty() && derived.columns.is_empty() {
            return;
        }
        let schema = match table.columns_of_table() {
            Ok(schema) => schema,
            Err(error) => return note(of, wanted.len(), Err(&error)),
        };
        if let Some(columns) = self.columns_of(of, &schema, &derived) {
            let count = columns.columns.len();
            let added = table.derive(columns);
            note(of, count, added.as_ref().map_err(|error| error as Failure<'_>).copied());
        }
    }

    /// The columns that files of a table are to have; `None` if they are those that they have.
    fn columns_of(&self, of: PromotedTable, table: &Schema, there: &Derived) -> Option<Derived> {
        let wanted = self.metadata.snapshot().promoted_columns(of);
        let fitting = promoted::fitting(&wanted, table);
        let names = there.columns.iter().map(|own| own.field.name().clone());
        if names.eq(fitting.iter().map(Promotion::column)) {
            return None;
        }
        for own in wanted.iter().filter(|own| !fitting.contains(own)) {
            let (table, column, kind) = (of.name(), own.column(), own.kind.name());
            tracing::warn!(
                table,
                column,
                kind,
                "another program has added such a column of another kind to the table; it is not written"
            );
        }
        let columns = promoted::derived(of, &fitting);
        columns
            .inspect_err(|error| tracing::error!(%error, "promoted columns cannot be computed"))
            .ok()
    }
}

fn note(of: PromotedTable, columns: usize, added: Result<(), Failure<'_>>) {
    let table = of.name();
    match added {
        Ok(()) => tracing::info!(table, columns, "files have these promoted columns now"),
        Err(error) => {
            tracing::warn!(error, table, "cannot add promoted columns to the table; tried again");
        }
    }
}
