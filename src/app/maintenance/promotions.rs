//! Properties that projects promote to columns: they are added to the tables of events and of persons, and files have them
//! from then on.

use std::error::Error;

use arrow::datatypes::Schema;

use crate::maintenance::Maintenance;
use weir_base::clock::UnixMicros;
use weir_event::promotion::{PromotedTable, Promotion};
use weir_query::events::promoted;
use weir_query::persons::person_table::{PersonTable, PersonsError, TableOf};
use weir_storage::derived::Derived;

/// Why columns were not added.
type Failure<'e> = &'e (dyn Error + 'static);

/// What the table of persons was last asked for.
#[derive(Debug, Default)]
pub struct AskedColumns {
    /// The promotions, once their columns were added.
    columns: Option<Vec<Promotion>>,
    /// When that failed.
    failed_at: Option<UnixMicros>,
}

impl Maintenance {
    /// Adds the columns of promoted properties to the table of events, if they are others than those that files have. If
    /// that fails, files are written without, and read as before.
    pub(super) fn promote(&self) {
        let (of, store) = (PromotedTable::Events, &self.store);
        let (wanted, schema) =
            (self.metadata.snapshot().promoted_columns(of), &store.table().current().schema);
        if let Some(columns) = columns_of(of, &wanted, schema, &store.derived()) {
            let count = columns.columns.len();
            let added = self.runtime.block_on(store.derive(columns));
            note(of, count, added.as_ref().map_err(|error| error as Failure<'_>).copied());
        }
    }

    /// The same of persons, if others are wanted than were asked for last. After a failure there is a pause, unless somebody
    /// waits (`is_awaited`). Blocks; do not call it on a thread of a runtime.
    pub(super) fn promote_of_persons(&self, is_awaited: bool) {
        let of = PromotedTable::Persons;
        let Some(table) = self.person_tables.iter().find(|own| own.kind() == TableOf::Persons)
        else {
            return;
        };
        let wanted = self.metadata.snapshot().promoted_columns(of);
        let mut asked = self.asked_of_persons.lock();
        let is_asked = asked.columns.as_ref() == Some(&wanted);
        if is_asked || !is_awaited && table.is_paused(asked.failed_at) {
            return;
        }
        match add(of, &wanted, table) {
            Ok(added) => {
                *asked = AskedColumns { columns: Some(wanted), failed_at: None };
                added.into_iter().for_each(|count| note(of, count, Ok(())));
            }
            Err(error) => {
                asked.failed_at = Some(self.clock.now());
                note(of, wanted.len(), Err(&error));
            }
        }
    }
}

/// Adds the wanted columns to the table of persons. Returns how many files have from now on; `None` if they have them already.
fn add(
    of: PromotedTable,
    wanted: &[Promotion],
    table: &PersonTable,
) -> Result<Option<usize>, PersonsError> {
    let there = table.derived();
    if wanted.is_empty() {
        table.derive(Derived::default())?;
        return Ok((!there.columns.is_empty()).then_some(0));
    }
    let schema = table.columns_of_table()?;
    let Some(columns) = columns_of(of, wanted, &schema, &there) else { return Ok(None) };
    let count = columns.columns.len();
    table.derive(columns)?;
    Ok(Some(count))
}

/// The columns that files of a table are to have; `None` if they are those that they have.
fn columns_of(
    of: PromotedTable,
    wanted: &[Promotion],
    table: &Schema,
    there: &Derived,
) -> Option<Derived> {
    let fitting = promoted::fitting(wanted, table);
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
    columns.inspect_err(|error| tracing::error!(%error, "promoted columns cannot be computed")).ok()
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
