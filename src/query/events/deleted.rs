//! Row filter for events that an operator has deleted, or that are older than the project keeps events, applied wherever
//! rows are read while files and memory still contain them. [`Deletions`] defines which events are deleted; to evaluate
//! it, each row gets one additional column: its position in the log. The age needs the timestamp alone.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, SchemaRef, TimestampMicrosecondType};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::DataFusionError;

use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::schema::column;
use weir_identity::deletions::{Deletions, Origin};
use weir_storage::delta::DataFile;
use weir_storage::naming;
use weir_storage::wal::Sequence;

/// Name of the column with the log position; no property's column begins with `_`.
const POSITION: &str = "_position";

fn position_field() -> FieldRef {
    Arc::new(Field::new(POSITION, DataType::Int64, false))
}

/// The file columns in `schema`, followed by a partition column with the log position, which is the same for all rows
/// of a file; see [`positioned`].
pub(crate) fn with_position(schema: SchemaRef) -> TableSchema {
    TableSchema::builder(schema).with_table_partition_cols(vec![position_field()]).build()
}

/// A file to be read, with its log position as partition value.
pub(crate) fn positioned(file: &DataFile) -> PartitionedFile {
    let position = i64::try_from(naming::position(file).0).unwrap_or(i64::MAX);
    PartitionedFile::new(file.path.clone(), file.size_bytes)
        .with_partition_values(vec![ScalarValue::Int64(Some(position))])
}

/// The columns from which it is determined whether an event is deleted.
pub(crate) const COLUMNS: [&str; 3] = ["distinct_id", POSITION, "received_at"];

/// For each row of a batch with [`COLUMNS`], all of the project, whether it is not deleted.
///
/// # Errors
///
/// A column is missing: a bug.
pub(crate) fn is_there(
    batch: &RecordBatch,
    project: ProjectId,
    deletions: &Deletions,
) -> Result<BooleanArray, DataFusionError> {
    let [ids, positions, times] = COLUMNS.map(|name| batch.column_by_name(name));
    let (Some(ids), Some(positions), Some(times)) = (ids, positions, times) else {
        let error = "a scan is without places in the log";
        return Err(DataFusionError::Internal(error.to_owned()));
    };
    let positions = positions.as_primitive::<Int64Type>().values().iter();
    let times = times.as_primitive::<TimestampMicrosecondType>().values().iter();
    let is_there = |((id, position), time): ((Option<&str>, &i64), &i64)| {
        let position = u64::try_from(*position).unwrap_or(0);
        let origin = Origin::of(position, UnixMicros(*time));
        !deletions.is_deleted(project, id.unwrap_or_default(), origin)
    };
    let rows = ids.as_string_view().iter().zip(positions).zip(times);
    Ok(rows.map(is_there).collect::<Vec<bool>>().into())
}

/// The column from which it is determined whether an event is too old.
pub(crate) const TIMESTAMP: &str = "timestamp";

/// For each row of a batch with [`TIMESTAMP`], whether it is from `from` or later.
///
/// # Errors
///
/// The column is missing: a bug.
pub(crate) fn is_kept(
    batch: &RecordBatch,
    from: UnixMicros,
) -> Result<BooleanArray, DataFusionError> {
    let times = batch.column_by_name(TIMESTAMP);
    let times = times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
    let missing = || DataFusionError::Internal("a scan is without timestamps".to_owned());
    let times = times.ok_or_else(missing)?.values().iter();
    Ok(times.map(|time| *time >= from.0).collect::<Vec<bool>>().into())
}

/// The rows of a batch of the events table that are not deleted; `position` is the log position of the file that they
/// are in.
///
/// # Errors
///
/// The batch does not have the columns of the events table: a programmer error.
pub(crate) fn leave_out(
    batch: RecordBatch,
    deletions: &Deletions,
    position: Sequence,
) -> Result<RecordBatch, ArrowError> {
    let projects = batch.column(column::PROJECT_ID).as_primitive::<Int64Type>();
    let ids = batch.column(column::DISTINCT_ID).as_string_view();
    let times = |at| batch.column(at).as_primitive::<TimestampMicrosecondType>();
    let (received, timestamps) = (times(column::RECEIVED_AT), times(column::TIMESTAMP));
    let is_there = |row: usize| {
        let project = ProjectId(projects.value(row));
        let origin = Origin::of(position.0, UnixMicros(received.value(row)));
        !deletions.is_too_old(project, UnixMicros(timestamps.value(row)))
            && !deletions.is_deleted(project, ids.value(row), origin)
    };
    let kept: Vec<bool> = (0..batch.num_rows()).map(is_there).collect();
    if kept.iter().all(|kept| *kept) {
        return Ok(batch);
    }
    filter_record_batch(&batch, &BooleanArray::from(kept))
}
