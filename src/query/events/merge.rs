//! K-way merge of sorted files of the events table, in the order of the table: the reading half of a compaction.
//! Duplicate and deleted rows are dropped, and persons are replaced by those they were merged into since.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringViewBuilder};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef, TimestampMicrosecondType};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use hashbrown::HashSet;
use uuid::Uuid;

use crate::events::deleted;
use crate::kernel::error::QueryError;
use weir_event::id::{EventKey, ProjectId};
use weir_event::schema::column;
use weir_identity::IdentityError;
use weir_identity::deletions::Deletions;
use weir_identity::overrides::Overrides;
use weir_storage::delta::DataFile;
use weir_storage::naming;
use weir_storage::parquet::pages::PagedFile;
use weir_storage::store::Store;

/// Error of a file to be merged that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}")]
pub struct Unreadable {
    /// Its path in the table.
    pub path: String,
    /// The cause.
    #[source]
    pub source: ArrowError,
}

impl Unreadable {
    /// The error of an operation that failed while `file` was read.
    pub fn because<E: Into<ArrowError>>(file: &DataFile) -> impl Fn(E) -> Self + use<E> {
        let path = file.path.clone();
        move |error| Self { path: path.clone(), source: error.into() }
    }
}

/// The rows of `files` in the order of the table, without deleted ones, in batches of `batch_rows`. Reads are blocking
/// and happen where the stream is polled: poll it on a dedicated thread.
///
/// # Errors
///
/// A bug in the plan; read errors, all of them [`Unreadable`], come with the batches.
pub fn sorted_rows(
    store: &Store,
    files: Vec<PagedFile>,
    batch_rows: usize,
    deletions: &Arc<Deletions>,
) -> Result<BoxStream<'static, Result<RecordBatch, QueryError>>, QueryError> {
    let schema = &store.table().spec().schema;
    let sort = store.layout().sort.iter().filter_map(|position| {
        let name = schema.fields().get(*position)?.name();
        Some(PhysicalSortExpr::new_default(Arc::new(Column::new(name, *position))))
    });
    let missing = || QueryError::Unavailable("the table has no order to merge by");
    let ordering = LexOrdering::new(sort).ok_or_else(missing)?;
    let rows = |file: PagedFile| rows(file, schema, batch_rows, Arc::clone(deletions));
    let streams = files.into_iter().map(rows).collect::<Result<_, _>>()?;
    // Its memory is bounded by the choice of files, not by the memory pool of queries.
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let merged = StreamingMergeBuilder::new()
        .with_streams(streams)
        .with_schema(Arc::clone(schema))
        .with_expressions(&ordering)
        .with_metrics(BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0))
        .with_batch_size(batch_rows)
        .with_reservation(MemoryConsumer::new("merge").register(&pool))
        .build()?;
    // No error here is a query's fault, and one that names a file must remain accessible inside.
    Ok(merged.map_err(QueryError::Internal).boxed())
}

/// The rows of one file that are not deleted. Nothing is read ahead, so that only what is being merged of each file is
/// in memory.
fn rows(
    file: PagedFile,
    schema: &SchemaRef,
    batch_rows: usize,
    deletions: Arc<Deletions>,
) -> Result<SendableRecordBatchStream, QueryError> {
    let position = naming::position(file.file());
    let unreadable = Unreadable::because(file.file());
    let external = move |error: ArrowError| DataFusionError::External(Box::new(unreadable(error)));
    let rows = file.rows(batch_rows).map_err(|error| external(error.into()))?;
    let rows = rows.map(move |batch| {
        let kept = |batch| deleted::leave_out(batch, &deletions, position);
        let batch = if deletions.is_empty() { batch } else { batch.and_then(kept) };
        batch.map_err(&external)
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), stream::iter(rows))))
}

/// Maximum difference between the times of an event that was sent twice. They follow the sender's clock at each
/// request, so they differ by as long as the SDK waited.
const RETRY_SPAN_MICROS: i64 = 600 * 1_000_000;

/// Maximum events with which the next one of the same name is compared: about 25 MB.
const RETRY_SPAN_MAX_EVENTS: usize = 1 << 19;

/// Drops duplicate rows of events. Rows must come in the order of the table: an event sent twice has the same name both
/// times, and nearly the same time.
#[derive(Debug, Default)]
pub struct Unique {
    name: Option<(i64, String)>,
    /// The events of that name within the retry span, ordered by time.
    recent: VecDeque<(i64, EventKey)>,
    keys: HashSet<EventKey, foldhash::fast::RandomState>,
}

impl Unique {
    /// The rows of `batch` that duplicate no earlier row of this or any previous batch.
    ///
    /// # Errors
    ///
    /// The batch does not have the columns of the events table: a programmer error.
    pub fn keep(&mut self, batch: &RecordBatch) -> Result<RecordBatch, QueryError> {
        let projects = batch.column(column::PROJECT_ID).as_primitive::<Int64Type>();
        let events = batch.column(column::EVENT).as_string_view();
        let times = batch.column(column::TIMESTAMP).as_primitive::<TimestampMicrosecondType>();
        let ids = batch.column(column::UUID).as_string_view();
        let distinct_ids = batch.column(column::DISTINCT_ID).as_string_view();
        let mut keep = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let (project, event) = (projects.value(row), events.value(row));
            self.move_to(project, event, times.value(row));
            let id = Uuid::try_parse(ids.value(row));
            let key = id.map(|id| EventKey::new(id, event, distinct_ids.value(row)));
            keep.push(key.map_or(true, |key| self.is_new(times.value(row), key)));
        }
        if keep.iter().all(|keep| *keep) {
            return Ok(batch.clone());
        }
        let kept = filter_record_batch(batch, &BooleanArray::from(keep));
        kept.map_err(|error| QueryError::Internal(error.into()))
    }

    /// Removes events that cannot be duplicates of one with this name and time.
    fn move_to(&mut self, project: i64, event: &str, time: i64) {
        if !self.name.as_ref().is_some_and(|(p, e)| *p == project && e == event) {
            self.name = Some((project, event.to_owned()));
            self.recent.clear();
            self.keys.clear();
        }
        let since = time.saturating_sub(RETRY_SPAN_MICROS);
        while let Some((time, key)) = self.recent.front().copied()
            && (time < since || self.recent.len() >= RETRY_SPAN_MAX_EVENTS)
        {
            self.recent.pop_front();
            self.keys.remove(&key);
        }
    }

    fn is_new(&mut self, time: i64, key: EventKey) -> bool {
        let is_new = self.keys.insert(key);
        if is_new {
            self.recent.push_back((time, key));
        }
        is_new
    }
}

/// `batch` with the persons in `overrides` replaced by those that they were merged into.
///
/// # Errors
///
/// The identity store cannot be read, or the batch does not have the columns of the events table: a programmer error.
pub fn fold_persons(batch: RecordBatch, overrides: &Overrides) -> Result<RecordBatch, QueryError> {
    if overrides.is_empty() {
        return Ok(batch);
    }
    let projects = batch.column(column::PROJECT_ID).as_primitive::<Int64Type>();
    let persons = batch.column(column::PERSON_ID).as_string_view();
    let ids = batch.column(column::DISTINCT_ID).as_string_view();
    let survivor = |row: usize| {
        let Ok(person) = Uuid::try_parse(persons.value(row)) else { return Ok(None) };
        overrides.of_event(ProjectId(projects.value(row)), person, ids.value(row))
    };
    let survivors: Result<Vec<Option<Uuid>>, IdentityError> =
        (0..batch.num_rows()).map(survivor).collect();
    let survivors = survivors?;
    if survivors.iter().all(Option::is_none) {
        return Ok(batch);
    }
    let mut folded = StringViewBuilder::with_capacity(persons.len());
    for (row, survivor) in survivors.into_iter().enumerate() {
        match survivor {
            Some(person) => {
                folded.append_value(person.hyphenated().encode_lower(&mut [0; 36]));
            }
            None => folded.append_value(persons.value(row)),
        }
    }
    let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
    if let Some(column) = columns.get_mut(column::PERSON_ID) {
        *column = Arc::new(folded.finish());
    }
    RecordBatch::try_new(batch.schema(), columns)
        .map_err(|error| QueryError::Internal(error.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
    };
    use uuid::Uuid;

    use super::{RETRY_SPAN_MICROS, Unique};

    /// Project, uuid, name, distinct id, time.
    type Row = (i64, u128, &'static str, &'static str, i64);

    fn batch(rows: &[Row]) -> RecordBatch {
        let ids = rows.iter().map(|row| Uuid::from_u128(row.1).to_string());
        let texts = |text: fn(&Row) -> &'static str| -> ArrayRef {
            Arc::new(StringViewArray::from_iter_values(rows.iter().map(text)))
        };
        let columns: [ArrayRef; 6] = [
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
            Arc::new(StringViewArray::from_iter_values(ids)),
            texts(|row| row.2),
            texts(|row| row.3),
            texts(|_| "person"),
            Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.4))),
        ];
        let names = ["project_id", "uuid", "event", "distinct_id", "person_id", "timestamp"];
        RecordBatch::try_from_iter(names.into_iter().zip(columns)).expect("a batch")
    }

    /// Rows in the order of the table, and whether each is kept.
    #[test]
    fn a_row_goes_if_the_same_event_came_before() {
        const SPAN: i64 = RETRY_SPAN_MICROS;
        let rows: [(Row, bool); 10] = [
            ((1, 1, "a", "u", 0), true),
            ((1, 1, "a", "u", 0), false),
            ((1, 1, "a", "v", 0), true),
            ((1, 2, "a", "u", 7), true),
            ((1, 1, "a", "u", SPAN), false),
            ((1, 2, "a", "u", SPAN + 8), true),
            ((1, 1, "b", "u", 0), true),
            ((1, 2, "b", "u", 0), true),
            ((1, 1, "b", "u", 1), false),
            ((2, 1, "b", "u", 0), true),
        ];
        let expected: Vec<Row> = rows.iter().filter(|row| row.1).map(|row| row.0).collect();
        for batch_rows in 1..=rows.len() {
            let mut unique = Unique::default();
            let kept = rows.chunks(batch_rows).map(|rows| {
                let rows: Vec<Row> = rows.iter().map(|row| row.0).collect();
                unique.keep(&batch(&rows)).expect("a batch of events")
            });
            let kept: Vec<RecordBatch> = kept.collect();
            let kept = arrow::compute::concat_batches(&kept[0].schema(), &kept).expect("one");
            assert_eq!(kept, batch(&expected), "batches of {batch_rows}");
        }
    }
}
