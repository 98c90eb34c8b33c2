//! Makes deletions of events real: files that hold deleted rows are written anew without them.
//!
//! What is deleted is known to [`Deletions`], which says why a file's place in the log is enough to
//! know whether it may hold such rows. No answer has them from the moment of the request; a flush
//! and a merge leave them out anyway; here the files are sought out that neither comes to. A request
//! is done when no live file has such rows, and the log up to the request is in files, so that no
//! replay brings any back. Whatever ends this in between, the request is still there and the next
//! pass goes over all files again.
//!
//! This runs on the thread that merges, so no file is merged and rewritten at once, and flushes only
//! add files that reach beyond the requests known here.

use std::sync::Arc;

use arrow::array::Array;
use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;

use crate::event::id::ProjectId;
use crate::event::schema::column;
use crate::identity::deletions::Deletions;
use crate::maintenance::CompactionError;
use crate::maintenance::DELETED;
use crate::maintenance::Maintenance;
use crate::query::QueryError;
use crate::storage::delta::DataFile;
use crate::storage::delta::stats::Value;
use crate::storage::naming;
use crate::storage::parquet;
use crate::storage::rows::Rows;
use crate::storage::store::StoreError;
use crate::tasks::Shutdown;

/// Which rows of a batch in memory are not deleted; `None` for all of them.
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
        !deletions.is_deleted(ProjectId(projects.value(row)), ids.value(row), position)
    };
    let kept: Vec<bool> = (0..rows.len).map(is_there).collect();
    (!kept.iter().all(|kept| *kept)).then(|| BooleanArray::from(kept))
}

impl Maintenance {
    /// Rewrites all files that hold deleted rows, and notes which requests are done. `false` if
    /// some are left over: the shutdown began, or not all of the log is in files.
    ///
    /// # Errors
    ///
    /// What is not rewritten stays hidden from answers; try again later.
    pub fn delete_events(&self, shutdown: &Shutdown) -> Result<bool, CompactionError> {
        if self.identities.deletions().is_empty() {
            return Ok(true);
        }
        // Rows in memory go to files without those that are deleted, and with them the log's end.
        self.flush_all()?;
        let deletions = self.identities.deletions();
        let version = self.store.table().current();
        // Requests beyond this wait for the next pass: rows of before them may be in no file yet.
        let through = self.store.flushed_through_of(&version).0.min(deletions.newest());
        let mut rewritten = 0;
        for file in &version.files {
            if shutdown.is_cancelled() {
                return Ok(false);
            }
            if !self.runtime.block_on(self.holds_deleted(file, &deletions))? {
                continue;
            }
            let file = std::slice::from_ref(file);
            if !self.runtime.block_on(self.rewrite(file, &deletions, shutdown))? {
                return Ok(false);
            }
            rewritten += 1;
        }
        let done = self.identities.finish_deletions(through, self.clock.now());
        let done = done.map_err(QueryError::from)?;
        tracing::info!(done, rewritten, through, "deleted events");
        Ok(through >= deletions.newest())
    }

    /// Whether a file has deleted rows.
    async fn holds_deleted(
        &self,
        file: &DataFile,
        deletions: &Deletions,
    ) -> Result<bool, CompactionError> {
        let position = naming::position(file).0;
        if position >= deletions.newest() || !may_concern(file, deletions) {
            return Ok(false);
        }
        let schema = &self.store.table().spec().schema;
        let names = [column::PROJECT_ID, column::DISTINCT_ID];
        let names = names.map(|position| schema.field(position).name().as_str());
        let ids: Vec<&str> = deletions.distinct_ids(position).collect();
        let objects = self.store.table().store();
        let read = parquet::read_columns_if(objects, file, &names, (names[1], &ids)).await;
        let mut batches = read.map_err(StoreError::from)?;
        while let Some(batch) = batches.try_next().await.map_err(StoreError::from)? {
            let column = |name: &str| batch.column_by_name(name);
            let projects = column(names[0]).and_then(|c| c.as_primitive_opt::<Int64Type>());
            let ids = column(names[1]).and_then(|column| column.as_string_opt::<i32>());
            let (Some(projects), Some(ids)) = (projects, ids) else { return Ok(true) };
            let mut rows = projects.values().iter().zip(ids.iter());
            let is_deleted = |(project, id): (&i64, Option<&str>)| {
                id.is_some_and(|id| deletions.is_deleted(ProjectId(*project), id, position))
            };
            if rows.any(is_deleted) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces files by one without their deleted rows, or by none if nothing is left. `false` if
    /// the shutdown began.
    pub(super) async fn rewrite(
        &self,
        files: &[Arc<DataFile>],
        deletions: &Arc<Deletions>,
        shutdown: &Shutdown,
    ) -> Result<bool, CompactionError> {
        let Some(edit) = self.merged(files, deletions, shutdown).await? else { return Ok(false) };
        let before: u64 = files.iter().map(|file| file.rows).sum();
        let after: u64 = edit.add.iter().map(|file| file.rows).sum();
        self.store.replace(edit).await?;
        self.metrics.compactions.get_or_create(&DELETED).inc();
        self.metrics.events_deleted.inc_by(before.saturating_sub(after));
        Ok(true)
    }
}

/// Whether a file may have rows of a project that has deletions.
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
