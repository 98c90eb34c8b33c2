//! Merges sorted files of the events table into one, in the order of the table: the reading half
//! of a compaction. Rows stored twice or deleted are dropped, and persons merged since folded in.

use std::sync::Arc;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::array::RecordBatch;
use arrow::array::StringViewBuilder;
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use arrow::datatypes::SchemaRef;
use arrow::datatypes::TimestampMicrosecondType;
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use futures::TryStreamExt;
use futures::stream;
use futures::stream::BoxStream;
use hashbrown::HashSet;
use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::event::schema::column;
use crate::identity::deletions::Deletions;
use crate::identity::overrides::Overrides;
use crate::query::QueryError;
use crate::query::deleted;
use crate::storage::delta::DataFile;
use crate::storage::naming;
use crate::storage::parquet::pages::PagedFile;
use crate::storage::store::Store;

/// A file of a merge that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}")]
pub struct Unreadable {
    /// Its path in the table.
    pub path: String,
    /// Why.
    #[source]
    pub source: ArrowError,
}

impl Unreadable {
    /// Of what went wrong while `file` was read.
    pub fn because<E: Into<ArrowError>>(file: &DataFile) -> impl Fn(E) -> Self + use<E> {
        let path = file.path.clone();
        move |error| Self { path: path.clone(), source: error.into() }
    }
}

/// The rows of `files` in the order of the table, without those that are deleted, in batches of
/// `batch_rows`. Reading blocks and happens where the stream is polled: on a thread of its own.
///
/// # Errors
///
/// A bug in the plan; errors of reading, [`Unreadable`] all of them, come with the batches.
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
    // Its memory is bounded by the choice of files, not by the pool of the queries.
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let merged = StreamingMergeBuilder::new()
        .with_streams(streams)
        .with_schema(Arc::clone(schema))
        .with_expressions(&ordering)
        .with_metrics(BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0))
        .with_batch_size(batch_rows)
        .with_reservation(MemoryConsumer::new("merge").register(&pool))
        .build()?;
    Ok(merged.map_err(QueryError::from).boxed())
}

/// The rows of one file that are not deleted. Nothing is read ahead: of every file of a merge there
/// is no more in memory than is being merged.
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

/// Drops rows whose id came before in the same run of equal sort keys. An event sent twice has the
/// same name and time both times, so its copies are in one run.
#[derive(Debug, Default)]
pub struct Unique {
    key: Option<(i64, String, i64)>,
    ids: HashSet<Uuid, foldhash::fast::RandomState>,
}

impl Unique {
    /// The rows of `batch` that are new, given all batches before.
    ///
    /// # Errors
    ///
    /// The batch is not one of the events table: a programmer error.
    pub fn keep(&mut self, batch: &RecordBatch) -> Result<RecordBatch, QueryError> {
        let projects = batch.column(column::PROJECT_ID).as_primitive::<Int64Type>();
        let events = batch.column(column::EVENT).as_string_view();
        let times = batch.column(column::TIMESTAMP).as_primitive::<TimestampMicrosecondType>();
        let ids = batch.column(column::UUID).as_string_view();
        let mut keep = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let (project, event, time) = (projects.value(row), events.value(row), times.value(row));
            let same = |(p, e, t): &(i64, String, i64)| *p == project && e == event && *t == time;
            if !self.key.as_ref().is_some_and(same) {
                self.key = Some((project, event.to_owned(), time));
                self.ids.clear();
            }
            keep.push(Uuid::try_parse(ids.value(row)).map_or(true, |id| self.ids.insert(id)));
        }
        if keep.iter().all(|keep| *keep) {
            return Ok(batch.clone());
        }
        let kept = filter_record_batch(batch, &BooleanArray::from(keep));
        kept.map_err(|error| QueryError::Internal(error.into()))
    }
}

/// `batch` with the persons that `overrides` names replaced by those that they were merged into.
///
/// # Errors
///
/// The batch is not one of the events table: a programmer error.
pub fn fold_persons(batch: RecordBatch, overrides: &Overrides) -> Result<RecordBatch, QueryError> {
    if overrides.is_empty() {
        return Ok(batch);
    }
    let projects = batch.column(column::PROJECT_ID).as_primitive::<Int64Type>();
    let persons = batch.column(column::PERSON_ID).as_string_view();
    let ids = batch.column(column::DISTINCT_ID).as_string_view();
    let survivor = |row: usize| {
        let person = Uuid::try_parse(persons.value(row)).ok()?;
        overrides.of_event(ProjectId(projects.value(row)), person, ids.value(row))
    };
    let survivors: Vec<Option<Uuid>> = (0..batch.num_rows()).map(survivor).collect();
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
