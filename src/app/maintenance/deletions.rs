//! Erasure of deleted events: rewrites files that contain deleted rows without them.
//!
//! [`Deletions`] contains the requests, and explains why the log sequence of a file decides whether it may
//! contain deleted rows. Answers leave deleted rows out from the request on. Flushes and merges drop them;
//! this pass rewrites the files that no merge has reached. A request is done when no live file contains its
//! rows, and the log up to the request is in files, so that no replay restores a row. If a pass is
//! interrupted, the request stays, and the next pass checks all files again.
//!
//! The pass runs on the merge thread, so no file is merged and rewritten at the same time. Concurrent flushes
//! only add files whose sequence is beyond the requests of the pass.

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use futures::TryStreamExt;

use crate::maintenance::files::{Files, FilesError};
use weir_base::clock::UnixMicros;
use weir_base::tasks::Shutdown;
use weir_event::id::ProjectId;
use weir_event::schema::column;
use weir_identity::deletions::{Deletions, Origin};
use weir_query::events::merge::Unreadable;
use weir_query::kernel::error::QueryError;
use weir_storage::delta::DataFile;
use weir_storage::delta::stats::Value;
use weir_storage::rows::Rows;
use weir_storage::{naming, parquet};

/// Mask of the rows of a memtable batch that are not deleted; `None` if none is deleted.
pub(super) fn kept(deletions: &Deletions, rows: &Rows) -> Option<BooleanArray> {
    if deletions.is_empty() {
        return None;
    }
    let column = |position: usize| rows.columns.get(position).and_then(Option::as_ref);
    let projects = column(column::PROJECT_ID)?.as_primitive_opt::<Int64Type>()?;
    let ids = column(column::DISTINCT_ID)?.as_string_view_opt()?;
    let positions = rows.positions();
    let is_there = |row: usize| {
        let position = u64::try_from(positions.value(row)).unwrap_or(0);
        !deletions.is_deleted(ProjectId(projects.value(row)), ids.value(row), Origin::Log(position))
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
    /// Rewrites all files that contain deleted rows, and marks requests as done at `now`: those up to which
    /// the log is in files. `None` if the shutdown began, or the identity store has not applied the log as
    /// far as it is in files.
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
        let deletions = self.identities.deletions();
        let version = self.store.table().current();
        // For requests after `through`, older rows may still be in memory only.
        let through = self.store.flushed_through_of(&version).0.min(deletions.newest());
        let mut erased = Erased { is_all: through >= deletions.newest(), ..Erased::default() };
        let mut unreadable = None;
        for file in &version.files {
            if shutdown.is_cancelled() {
                return Ok(None);
            }
            let rewritten = match self.holds_deleted(file, &deletions).await {
                Ok(false) => continue,
                Ok(true) => self.merge(std::slice::from_ref(file), shutdown).await,
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

    /// Whether a file contains deleted rows.
    async fn holds_deleted(
        &self,
        file: &DataFile,
        deletions: &Deletions,
    ) -> Result<bool, Unreadable> {
        let position = naming::position(file).0;
        if position >= deletions.newest() || !may_concern(file, deletions) {
            return Ok(false);
        }
        let schema = &self.store.table().spec().schema;
        let project = schema.field(column::PROJECT_ID).name().as_str();
        let distinct_id = schema.field(column::DISTINCT_ID).name().as_str();
        let received_at = schema.field(column::RECEIVED_AT).name().as_str();
        let ids: Vec<&str> = deletions.distinct_ids(position).collect();
        let (objects, names) = (self.store.table().store(), [project, distinct_id, received_at]);
        let unreadable = Unreadable::because(file);
        let read = parquet::read_columns_if(objects, file, &names, distinct_id, &ids).await;
        let mut batches = read.map_err(&unreadable)?;
        while let Some(batch) = batches.try_next().await.map_err(&unreadable)? {
            let column = |name: &str| batch.column_by_name(name);
            let projects =
                column(project).and_then(|column| column.as_primitive_opt::<Int64Type>());
            let ids = column(distinct_id).and_then(|column| column.as_string_opt::<i32>());
            let times = column(received_at)
                .and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
            // Unexpected column types: the file is rewritten to be safe.
            let (Some(projects), Some(ids), Some(times)) = (projects, ids, times) else {
                return Ok(true);
            };
            let mut rows = projects.values().iter().zip(ids.iter()).zip(times.values());
            let is_deleted = |((project, id), time): ((&i64, Option<&str>), &i64)| {
                let origin = Origin::of(position, UnixMicros(*time));
                id.is_some_and(|id| deletions.is_deleted(ProjectId(*project), id, origin))
            };
            if rows.any(is_deleted) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a file may contain rows of a project with deletions, by its statistics.
fn may_concern(file: &DataFile, deletions: &Deletions) -> bool {
    let bounds = file.stats.columns.get("project_id");
    let bounds = bounds.and_then(|stats| match (&stats.min, &stats.max) {
        (Some(Value::Int(min)), Some(Value::Int(max))) => Some(*min..=*max),
        _ => None,
    });
    bounds.is_none_or(|bounds| deletions.projects().any(|project| bounds.contains(&project.0)))
}

#[cfg(test)]
mod tests;
