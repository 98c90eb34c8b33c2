//! Restricts a scan over all projects to the rows of one: [`ScopedExec`], directly above the scan, drops rows of other
//! projects, deleted ones, and those that are too old.
//!
//! It is an operator of its own instead of a condition in the plan, because the optimizer merges and reorders
//! conditions: a user's cast that fails would fail on a row of another project, with an error that shows the row. Below
//! this operator no user's expression is evaluated except comparisons and conditions that cannot fail
//! ([`row_filter`](crate::events::row_filter)). The scan gets these when it is planned, and uses them to prune files,
//! row groups and pages, and, after the project filter, also rows, where that saves work ([`source`]). No filter is
//! pushed through this operator later.

use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::compute::kernels::cmp::eq;
use arrow::datatypes::{Int64Type, Schema};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::datasource::physical_plan::ParquetSource;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, conjunction, expressions};
use datafusion::physical_plan::coalesce::{LimitedBatchCoalescer, PushBatchStatus};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::projection::{
    ProjectionExec, ProjectionExpr, all_alias_free_columns,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};

use crate::events::deleted;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::deletions::Deletions;

/// Memory for values of filtered columns that a reader caches and otherwise reads again. No pool accounts for it.
const PREDICATE_CACHE_BYTES: usize = 1 << 20;

/// The column with the project of a row.
pub(crate) const PROJECT: &str = "project_id";

/// Which rows may pass.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) project: ProjectId,
    /// Deleted events of the project; `None` if there are none.
    pub(crate) deletions: Option<Arc<Deletions>>,
    /// The time before which no event is kept, if there is one.
    pub(crate) kept_from: Option<UnixMicros>,
}

impl Scope {
    /// The columns that are needed to decide whether a row is of the project, is kept and is not deleted.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &'static str> + use<> {
        let of_deletions = if self.deletions.is_some() { &deleted::COLUMNS[..] } else { &[] };
        let of_age = self.kept_from.map(|_| deleted::TIMESTAMP);
        std::iter::once(PROJECT).chain(of_age).chain(of_deletions.iter().copied())
    }

    /// The rows of `batch` that are in the scope.
    fn keep(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let column = |name: &str| {
            let missing = || DataFusionError::Internal(format!("a scan is without {name}"));
            batch.column_by_name(name).ok_or_else(missing)
        };
        let own = Int64Array::new_scalar(self.project.0);
        let is_own = eq(column(PROJECT)?.as_primitive::<Int64Type>(), &own)?;
        let mut batch = kept(batch, &is_own)?;
        if let Some(from) = self.kept_from {
            let is_kept = deleted::is_kept(&batch, from)?;
            batch = kept(batch, &is_kept)?;
        }
        match &self.deletions {
            Some(deletions) if batch.num_rows() > 0 => {
                let is_there = deleted::is_there(&batch, self.project, deletions)?;
                kept(batch, &is_there)
            }
            _ => Ok(batch),
        }
    }
}

/// The rows for which the mask is true. Does not copy if these are all or none.
fn kept(batch: RecordBatch, mask: &BooleanArray) -> Result<RecordBatch> {
    match mask.true_count() {
        0 => Ok(batch.slice(0, 0)),
        count if count == batch.num_rows() => Ok(batch),
        _ => Ok(filter_record_batch(&batch, mask)?),
    }
}

/// A file source that prunes files of other projects and old ones by their statistics, and likewise by `filters`, which
/// are [`row_filter`](crate::events::row_filter)s. With `filters_rows` it also filters rows during the read: first by
/// project and age, then by these. Each filter is evaluated only on rows that passed the previous ones.
///
/// # Errors
///
/// The table has no project column: a bug.
pub(crate) fn source(
    schema: &TableSchema,
    scope: &Scope,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    filters_rows: bool,
) -> Result<ParquetSource> {
    let table = schema.table_schema();
    let column = expressions::col(PROJECT, table)?;
    let own = expressions::binary(column, Operator::Eq, expressions::lit(scope.project.0), table)?;
    let kept = scope.kept_from.map(|from| {
        let column = expressions::col(deleted::TIMESTAMP, table)?;
        let from =
            expressions::lit(ScalarValue::TimestampMicrosecond(Some(from.0), Some("UTC".into())));
        expressions::binary(column, Operator::GtEq, from, table)
    });
    let kept = kept.transpose()?;
    let filters_rows = filters_rows && !filters.is_empty();
    let predicate = conjunction(std::iter::once(own).chain(kept).chain(filters));
    let mut options = TableParquetOptions::default();
    options.global.pushdown_filters = filters_rows;
    options.global.reorder_filters = false;
    options.global.max_predicate_cache_size = Some(PREDICATE_CACHE_BYTES);
    let source = ParquetSource::new(schema.clone()).with_table_parquet_options(options);
    Ok(source.with_predicate(predicate))
}

/// Passes on the rows of a scope, with the first `width` columns of its input: further columns only serve to evaluate
/// the scope.
#[derive(Clone, Debug)]
pub(crate) struct ScopedExec {
    input: Arc<dyn ExecutionPlan>,
    scope: Scope,
    width: usize,
    /// Number of rows per partition after which it stops.
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl ScopedExec {
    /// # Errors
    ///
    /// The input has fewer columns: a bug.
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        scope: Scope,
        width: usize,
        fetch: Option<usize>,
    ) -> Result<Self> {
        let columns: Vec<usize> = (0..width).collect();
        let schema: Schema = input.schema().project(&columns)?;
        let given = input.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(given.output_partitioning().partition_count()),
            given.emission_type,
            given.boundedness,
        );
        Ok(Self { input, scope, width, fetch, properties: Arc::new(properties) })
    }
}

impl ScopedExec {
    /// Which rows pass.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The number of columns that it passes on.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}

impl DisplayAs for ScopedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopedExec: project={}", self.scope.project.0)?;
        self.fetch.map_or(Ok(()), |fetch| write!(f, ", fetch={fetch}"))
    }
}

impl ExecutionPlan for ScopedExec {
    fn name(&self) -> &str {
        "ScopedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// It does maintain the order, but `false` keeps sorts above it: a sort below would be evaluated on rows of other
    /// projects.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        let input = input.ok_or_else(|| DataFusionError::Internal("no input".to_owned()))?;
        Ok(Arc::new(Self::new(input, self.scope.clone(), self.width, self.fetch)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let batch_rows = context.session_config().batch_size();
        let rows = ScopedRows {
            input: Some(self.input.execute(partition, context)?),
            scope: self.scope.clone(),
            columns: (0..self.width).collect(),
            joined: LimitedBatchCoalescer::new(Arc::clone(&schema), batch_rows, self.fetch),
        };
        let batches = stream::try_unfold(rows, |mut rows| async {
            Ok(rows.next().await?.map(|batch| (batch, rows)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    /// Never exact: the input's statistics include rows of all projects.
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let columns: Vec<usize> = (0..self.width).collect();
        Ok(Arc::new(match inputs.first() {
            Some(all) => all.as_ref().clone().to_inexact().project(Some(&columns)),
            None => Statistics::new_unknown(&self.schema()),
        }))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self { fetch, ..self.clone() }))
    }

    /// Pushes down a projection of plain columns to read fewer of them. Projections that compute anything stay above.
    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let wanted = projection.expr();
        if wanted.len() >= self.width || !all_alias_free_columns(wanted) {
            return Ok(None);
        }
        let mut columns = wanted.to_vec();
        let schema = self.input.schema();
        for name in self.scope.columns() {
            if !columns.iter().any(|column| column.alias == name) {
                let expr = expressions::col(name, &schema)?;
                columns.push(ProjectionExpr { expr, alias: name.to_owned() });
            }
        }
        let input = Arc::new(ProjectionExec::try_new(columns, Arc::clone(&self.input))?);
        let narrower = Self::new(input, self.scope.clone(), wanted.len(), self.fetch)?;
        Ok(Some(Arc::new(narrower)))
    }
}

/// The row stream of one partition.
struct ScopedRows {
    /// None once enough rows were read.
    input: Option<SendableRecordBatchStream>,
    scope: Scope,
    columns: Vec<usize>,
    /// Coalesces small batches into larger ones.
    joined: LimitedBatchCoalescer,
}

impl ScopedRows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.joined.next_completed_batch() {
                return Ok(Some(batch));
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            let is_enough = match input.next().await.transpose()? {
                Some(batch) => {
                    let batch = self.scope.keep(batch)?.project(&self.columns)?;
                    self.joined.push_batch(batch)? == PushBatchStatus::LimitReached
                }
                None => true,
            };
            if is_enough {
                self.input = None;
                self.joined.finish()?;
            }
        }
    }
}
