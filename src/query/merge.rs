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
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::physical_plan::ParquetSource;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use futures::TryStreamExt;
use futures::future;
use futures::stream::BoxStream;
use hashbrown::HashSet;
use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::event::schema::column;
use crate::identity::deletions::Deletions;
use crate::identity::overrides::Overrides;
use crate::query::QueryError;
use crate::query::deleted;
use crate::query::events::store_url;
use crate::storage::delta::DataFile;
use crate::storage::store::Store;

/// Rows that are read of each file at once; every file of a merge holds one such batch.
const BATCH_ROWS: usize = 2048;

/// The rows of `files` in the order of the table, without those that are deleted.
///
/// # Errors
///
/// A bug in the plan; errors of reading come with the batches.
pub fn sorted_rows(
    store: &Store,
    files: &[Arc<DataFile>],
    deletions: Arc<Deletions>,
) -> Result<BoxStream<'static, Result<RecordBatch, QueryError>>, QueryError> {
    let schema = Arc::clone(&store.table().spec().schema);
    if deletions.is_empty() {
        let file = |file: &DataFile| PartitionedFile::new(file.path.clone(), file.size_bytes);
        let rows = read_sorted(store, files.iter().map(|found| file(found)), schema.into())?;
        return Ok(rows.map_err(QueryError::from).boxed());
    }
    let schema = deleted::with_position(schema);
    let files = files.iter().map(|file| deleted::positioned(file));
    let rows = read_sorted(store, files, schema)?.map_err(QueryError::from);
    let left = move |batch: RecordBatch| future::ready(deleted::leave_out(&batch, &deletions));
    Ok(rows.and_then(left).boxed())
}

fn read_sorted(
    store: &Store,
    files: impl Iterator<Item = PartitionedFile>,
    schema: TableSchema,
) -> Result<SendableRecordBatchStream, QueryError> {
    let sort = store.layout().sort.iter().filter_map(|position| {
        let name = schema.file_schema().fields().get(*position)?.name();
        Some(PhysicalSortExpr::new_default(Arc::new(Column::new(name, *position))))
    });
    let missing = || QueryError::Unavailable("the table has no order to merge by");
    let ordering = LexOrdering::new(sort).ok_or_else(missing)?;
    let config = FileScanConfigBuilder::new(store_url()?, Arc::new(ParquetSource::new(schema)))
        .with_file_groups(files.map(|file| FileGroup::new(vec![file])).collect())
        .with_output_ordering(vec![ordering.clone()])
        .build();
    let scan = DataSourceExec::from_data_source(config);
    let merge = SortPreservingMergeExec::new(ordering, scan);
    // Its memory is bounded by the choice of files, not by the pool of the queries.
    let environment = RuntimeEnvBuilder::new().build_arc()?;
    environment.register_object_store(store_url()?.as_ref(), store.table().store());
    let config = SessionConfig::new().with_batch_size(BATCH_ROWS);
    let context = TaskContext::default().with_session_config(config).with_runtime(environment);
    Ok(merge.execute(0, Arc::new(context))?)
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
