//! Which rows a file has that are deleted or too old: none, some, or no others.

use std::ops::RangeInclusive;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use futures::TryStreamExt;

use crate::live_files::PROJECT;
use crate::maintenance::files::Files;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::schema::column;
use weir_identity::deletions::{Deletions, Origin};
use weir_query::events::merge::Unreadable;
use weir_storage::delta::DataFile;
use weir_storage::delta::stats::Value;
use weir_storage::{naming, parquet};

/// What a file has to lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// No deleted row.
    Nothing,
    /// Some: it has to be rewritten.
    Some,
    /// Nothing but deleted rows: it goes unread.
    All,
}

impl Files {
    /// What a file has of deleted rows. Reads as little of it as its statistics allow.
    pub(super) async fn held_of(
        &self,
        file: &DataFile,
        deletions: &Deletions,
    ) -> Result<Held, Unreadable> {
        if is_all_deleted(file, deletions) {
            return Ok(Held::All);
        }
        let is_some = self.holds_of_projects(file, deletions).await?
            || self.holds_of_persons(file, deletions).await?;
        Ok(if is_some { Held::Some } else { Held::Nothing })
    }

    /// Whether a file contains rows of deleted projects, or rows that are too old.
    async fn holds_of_projects(
        &self,
        file: &DataFile,
        deletions: &Deletions,
    ) -> Result<bool, Unreadable> {
        let (first, _) = times_of(file);
        let aged = deletions.kept_from().iter().filter(|(_, from)| first < **from);
        let aged = aged.map(|(project, _)| project.0);
        let sought: Vec<i64> =
            deletions.deleted_projects().map(|project| project.0).chain(aged).collect();
        if !sought.iter().any(|id| file.stats.may_have(PROJECT, *id)) {
            return Ok(false);
        }
        let schema = &self.store.table().spec().schema;
        let names = [column::PROJECT_ID, column::TIMESTAMP];
        let [project, timestamp] = names.map(|at| schema.field(at).name().as_str());
        let (objects, unreadable) = (self.store.table().store(), Unreadable::because(file));
        let within = |bounds: RangeInclusive<i64>| sought.iter().any(|id| bounds.contains(id));
        let columns = [project, timestamp];
        let read = parquet::read_columns_within(objects, file, &columns, project, within);
        let mut batches = read.await.map_err(&unreadable)?;
        while let Some(batch) = batches.try_next().await.map_err(&unreadable)? {
            let projects = ints(&batch, project);
            let times = times(&batch, timestamp);
            // Unexpected column types: the file is rewritten to be safe.
            let (Some(projects), Some(times)) = (projects, times) else { return Ok(true) };
            let mut rows = projects.iter().zip(times);
            let is_gone = |(project, time): (&i64, &i64)| {
                let project = ProjectId(*project);
                deletions.is_project_deleted(project)
                    || deletions.is_too_old(project, UnixMicros(*time))
            };
            if rows.any(is_gone) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file contains deleted rows of persons.
    async fn holds_of_persons(
        &self,
        file: &DataFile,
        deletions: &Deletions,
    ) -> Result<bool, Unreadable> {
        let position = naming::position(file).0;
        if position >= deletions.newest() || !may_concern(file, deletions) {
            return Ok(false);
        }
        let schema = &self.store.table().spec().schema;
        let names = [column::PROJECT_ID, column::DISTINCT_ID, column::RECEIVED_AT];
        let names = names.map(|at| schema.field(at).name().as_str());
        let [project, distinct_id, received_at] = names;
        let ids: Vec<&str> = deletions.distinct_ids(position).collect();
        let (objects, unreadable) = (self.store.table().store(), Unreadable::because(file));
        let read = parquet::read_columns_if(objects, file, &names, distinct_id, &ids).await;
        let mut batches = read.map_err(&unreadable)?;
        while let Some(batch) = batches.try_next().await.map_err(&unreadable)? {
            let ids = batch.column_by_name(distinct_id);
            let ids = ids.and_then(|column| column.as_string_opt::<i32>());
            let (projects, times) = (ints(&batch, project), times(&batch, received_at));
            // Unexpected column types: the file is rewritten to be safe.
            let (Some(projects), Some(ids), Some(times)) = (projects, ids, times) else {
                return Ok(true);
            };
            let mut rows = projects.iter().zip(ids.iter()).zip(times);
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

fn ints<'b>(batch: &'b RecordBatch, name: &str) -> Option<&'b [i64]> {
    let column = batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
    (column.null_count() == 0).then(|| &**column.values())
}

fn times<'b>(batch: &'b RecordBatch, name: &str) -> Option<&'b [i64]> {
    let column = batch.column_by_name(name)?.as_primitive_opt::<TimestampMicrosecondType>()?;
    (column.null_count() == 0).then(|| &**column.values())
}

/// Whether a file has rows of one project only, which is deleted or keeps none of them for their age.
fn is_all_deleted(file: &DataFile, deletions: &Deletions) -> bool {
    let Some((id, _)) = projects_of(file).filter(|(min, max)| min == max) else { return false };
    let project = ProjectId(id);
    deletions.is_project_deleted(project) || deletions.is_too_old(project, times_of(file).1)
}

/// Whether a file may contain rows of a project with deletions of persons' events, by its statistics.
fn may_concern(file: &DataFile, deletions: &Deletions) -> bool {
    deletions.projects().any(|project| file.stats.may_have(PROJECT, project.0))
}

/// The bounds of the projects of a file.
fn projects_of(file: &DataFile) -> Option<(i64, i64)> {
    let stats = file.stats.columns.get(PROJECT)?;
    match (&stats.min, &stats.max) {
        (Some(Value::Int(min)), Some(Value::Int(max))) => Some((*min, *max)),
        _ => None,
    }
}

/// The bounds of the times of a file; without statistics, the whole range.
fn times_of(file: &DataFile) -> (UnixMicros, UnixMicros) {
    let stats = file.stats.columns.get("timestamp");
    let time = |value: Option<&Value>| match value {
        Some(Value::Timestamp(time)) => Some(*time),
        _ => None,
    };
    let min = time(stats.and_then(|stats| stats.min.as_ref()));
    let max = time(stats.and_then(|stats| stats.max.as_ref()));
    (min.unwrap_or(UnixMicros(i64::MIN)), max.unwrap_or(UnixMicros(i64::MAX)))
}
