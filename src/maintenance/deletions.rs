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

use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::datatypes::Int64Type;
use arrow::datatypes::TimestampMicrosecondType;
use futures::TryStreamExt;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::event::schema::column;
use crate::identity::deletions::Deletions;
use crate::identity::deletions::Origin;
use crate::maintenance::files::Files;
use crate::maintenance::files::FilesError;
use crate::query::QueryError;
use crate::query::merge::Unreadable;
use crate::storage::delta::DataFile;
use crate::storage::delta::stats::Value;
use crate::storage::naming;
use crate::storage::parquet;
use crate::storage::rows::Rows;
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
        !deletions.is_deleted(ProjectId(projects.value(row)), ids.value(row), Origin::Log(position))
    };
    let kept: Vec<bool> = (0..rows.len).map(is_there).collect();
    (!kept.iter().all(|kept| *kept)).then(|| BooleanArray::from(kept))
}

/// What a pass over the files has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Requests that are done.
    pub requests: usize,
    /// Files that were written anew, or had nothing else in them.
    pub files: usize,
    /// Rows that were in them.
    pub rows: u64,
    /// Whether no request is left that was known when the pass began.
    pub is_all: bool,
}

impl Files {
    /// Rewrites all files that hold deleted rows, and notes as of `now` which requests are done:
    /// those up to which the log is in files. `None` if the shutdown began, or the persons have not
    /// followed the log to where it is in files.
    ///
    /// # Errors
    ///
    /// What is not rewritten stays hidden from answers, and no request is done; try again later. A
    /// file that cannot be read keeps no other from being rewritten.
    pub async fn erase(
        &self,
        now: UnixMicros,
        shutdown: &Shutdown,
    ) -> Result<Option<Erased>, FilesError> {
        let deletions = self.identities.deletions();
        let version = self.store.table().current();
        // Rows of before the requests beyond this may be in no file yet.
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

    /// Whether a file has deleted rows.
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
        let read = parquet::read_columns_if(objects, file, &names, (distinct_id, &ids)).await;
        let mut batches = read.map_err(&unreadable)?;
        while let Some(batch) = batches.try_next().await.map_err(&unreadable)? {
            let column = |name: &str| batch.column_by_name(name);
            let projects =
                column(project).and_then(|column| column.as_primitive_opt::<Int64Type>());
            let ids = column(distinct_id).and_then(|column| column.as_string_opt::<i32>());
            let times = column(received_at)
                .and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
            // Not to be read this way: then it is rewritten to be sure.
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
