//! Erasure of deleted events: rewrites files that contain deleted rows without them.
//!
//! [`Deletions`] contains the requests, and explains why the log sequence of a file decides whether it may
//! contain deleted rows. Answers leave deleted rows out from the request on. Flushes and merges drop them;
//! this pass rewrites the files that no merge has reached. A request is done when no live file contains its
//! rows, and the log up to the request is in files, so that no replay restores a row. If a pass is
//! interrupted, the request stays, and the next pass checks all files again.
//!
//! Deleted projects and events that are older than their project keeps them leave the files in the same way.
//!
//! The pass runs on the merge thread, so no file is merged and rewritten at the same time. Concurrent flushes
//! only add files whose sequence is beyond the requests of the pass.

mod held;

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

use crate::maintenance::deletions::held::Held;
use crate::maintenance::files::{Files, FilesError, Merged};
use weir_base::clock::UnixMicros;
use weir_base::tasks::Shutdown;
use weir_event::id::ProjectId;
use weir_event::schema::column;
use weir_identity::deletions::{Deletions, Origin};
use weir_query::kernel::error::QueryError;
use weir_storage::delta::{DataFile, Edit, EditKind};
use weir_storage::rows::Rows;

/// Mask of the rows of a memtable batch that are not deleted; `None` if none is deleted.
pub(super) fn kept(deletions: &Deletions, rows: &Rows) -> Option<BooleanArray> {
    if deletions.is_empty() {
        return None;
    }
    let column = |position: usize| rows.columns.get(position).and_then(Option::as_ref);
    let projects = column(column::PROJECT_ID)?.as_primitive_opt::<Int64Type>()?;
    let ids = column(column::DISTINCT_ID)?.as_string_view_opt()?;
    let times = column(column::TIMESTAMP)?.as_primitive_opt::<TimestampMicrosecondType>()?;
    let positions = rows.positions();
    let is_there = |row: usize| {
        let (project, position) = (ProjectId(projects.value(row)), positions.value(row));
        let origin = Origin::Log(u64::try_from(position).unwrap_or(0));
        !deletions.is_too_old(project, UnixMicros(times.value(row)))
            && !deletions.is_deleted(project, ids.value(row), origin)
    };
    let kept: Vec<bool> = (0..rows.len).map(is_there).collect();
    (!kept.iter().all(|kept| *kept)).then(|| BooleanArray::from(kept))
}

/// Result of a pass over the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Number of requests that are done.
    pub requests: usize,
    /// Number of files that were rewritten, or removed because all their rows were deleted.
    pub files: usize,
    /// Number of deleted rows in these files.
    pub rows: u64,
    /// Whether all requests that were known at the start of the pass are done.
    pub is_all: bool,
}

impl Files {
    /// Removes the persons of deleted projects, rewrites all files that contain deleted rows, drops those that
    /// contain no others, and marks requests as done at `now`: those up to which the log is in files. `None` if
    /// the shutdown began, or the identity store has not applied the log as far as it is in files.
    ///
    /// # Errors
    ///
    /// Query results still leave the deleted rows out, and no request is done; try again later. A file that cannot be
    /// read does not stop the rewriting of others.
    pub async fn erase(
        &self,
        now: UnixMicros,
        shutdown: &Shutdown,
    ) -> Result<Option<Erased>, FilesError> {
        if !self.identities.purge_projects(|| !shutdown.is_cancelled()).map_err(QueryError::from)? {
            return Ok(None);
        }
        let deletions = self.identities.deletions().with_kept_from(&self.kept_from);
        let version = self.store.table().current();
        // For requests after `through`, older rows may still be in memory only.
        let through = self.store.flushed_through_of(&version).0.min(deletions.newest());
        let mut erased = Erased { is_all: through >= deletions.newest(), ..Erased::default() };
        let mut unreadable = None;
        for file in &version.files {
            if shutdown.is_cancelled() {
                return Ok(None);
            }
            let rewritten = match self.held_of(file, &deletions).await {
                Ok(Held::Nothing) => continue,
                Ok(Held::Some) => self.merge(std::slice::from_ref(file), shutdown).await,
                Ok(Held::All) => self.drop_file(file).await.map(Some),
                Err(error) => Err(error.into()),
            };
            match rewritten {
                Ok(None) => return Ok(None),
                Ok(Some(merged)) => {
                    erased.files += 1;
                    erased.rows += merged.deleted;
                }
                Err(error) if error.unreadable().is_some() => {
                    unreadable.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = unreadable {
            return Err(error);
        }
        let done = self.identities.finish_deletions(through, now);
        erased.requests = done.map_err(QueryError::from)?;
        Ok(Some(erased))
    }

    /// Takes a file that has only deleted rows out of the table, unread.
    async fn drop_file(&self, file: &Arc<DataFile>) -> Result<Merged, FilesError> {
        let remove = vec![Arc::clone(file)];
        let edit = Edit { add: Vec::new(), remove, transaction: None, kind: EditKind::Replace };
        self.store.replace(edit).await?;
        Ok(Merged { files: 1, rows: 0, deleted: file.rows })
    }
}

#[cfg(test)]
mod tests;
