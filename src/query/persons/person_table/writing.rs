//! Writes the persons of a range to files that are in no table yet: [`Writing`].

use std::ops::Range;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::persons::person_table::draft::Draft;
use crate::persons::person_table::error::PersonsError;
use crate::persons::person_table::schema::TableOf;
use crate::persons::person_table::span::{FileName, Span, Trust};
use weir_event::id::ProjectId;
use weir_identity::person_set::PersonKey;
use weir_identity::view::{Flow, Moment, View};
use weir_storage::delta::DeltaTable;
use weir_storage::derived::Derived;
use weir_storage::store::StoreError;

/// A file ends at so many bytes of JSON texts, or when it has the persons that it may. To write one takes less than
/// 150 MiB of memory.
const FILE_BYTES: usize = 32 << 20;

/// See the head of this file.
pub(super) struct Writing<'a> {
    kind: TableOf,
    table: &'a DeltaTable,
    /// The columns of files beside those of the table.
    derived: Derived,
    runtime: &'a Handle,
    range: Range<PersonKey>,
    /// The sequence of the view that persons are read from.
    as_of: u64,
    /// The state of the view.
    moment: Moment,
    rows_max: usize,
    made: Vec<Span>,
    /// Where the next file begins.
    start: PersonKey,
}

impl<'a> Writing<'a> {
    /// Nothing yet.
    pub(super) fn new(
        kind: TableOf,
        (table, derived): (&'a DeltaTable, Derived),
        runtime: &'a Handle,
        range: &Range<PersonKey>,
        (as_of, moment): (u64, Moment),
        rows_max: usize,
    ) -> Self {
        let (range, start, made) = (range.clone(), range.start, Vec::new());
        Self { kind, table, derived, runtime, range, as_of, moment, rows_max, made, start }
    }

    /// Writes the persons of these projects and numbers, or the first of them, `files_max` files at most. `false` if it
    /// was stopped.
    pub(super) fn write(
        &mut self,
        view: &View,
        projects: Vec<(ProjectId, Range<i64>)>,
        files_max: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, PersonsError> {
        let schema = Arc::clone(&self.table.spec().schema);
        let (mut draft, mut failed, mut is_cut) = (Draft::new(self.kind, &schema), None, false);
        for (project, numbers) in projects {
            view.scan_rows_with_ids(project, numbers, |row, ids| {
                if stop() {
                    return Ok(Flow::Break(()));
                }
                if draft.len() >= self.rows_max || draft.bytes() >= FILE_BYTES {
                    let full = std::mem::replace(&mut draft, Draft::new(self.kind, &schema));
                    failed = self.end(full, (project, row.number)).err();
                    is_cut = self.made.len() >= files_max;
                }
                if failed.is_none() && !is_cut {
                    failed = draft.push(project, row, ids).map_err(StoreError::from).err();
                }
                Ok(if failed.is_some() || is_cut { Flow::Break(()) } else { Flow::Continue(()) })
            })?;
            if failed.is_some() || is_cut || stop() {
                break;
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        if stop() {
            return Ok(false);
        }
        if !is_cut {
            self.end(draft, self.range.end)?;
        }
        Ok(true)
    }

    /// Ends a file, which has all persons up to `end`.
    fn end(&mut self, draft: Draft, end: PersonKey) -> Result<(), StoreError> {
        let (range, as_of, moment) = (self.start..end, self.as_of, self.moment);
        self.start = end;
        let mut files = Vec::new();
        if draft.len() > 0 {
            let name = FileName { range: range.clone(), as_of }.unique(self.kind);
            let layout = self.kind.layout();
            let columns = (self.table, self.derived.clone());
            files.push(Arc::new(draft.write(columns, &layout, &name, self.runtime)?));
        }
        let (trust, stale_since) = (Trust::Known, None);
        self.made.push(Span { range, files, as_of, trust, moment, stale_since });
        Ok(())
    }

    /// What was written, in the order of the range, from its beginning.
    pub(super) fn made(self) -> Vec<Span> {
        self.made
    }
}
