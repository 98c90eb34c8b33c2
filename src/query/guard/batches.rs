//! Byte limits of batches between operators: [`BoundBatches`] inserts a [`BoundedExec`] between the operators of a
//! plan. Operators copy batches row by row (groups, sort keys, spilled rows) before they account for them, and limit
//! their batches by rows; so here batches are split to a size in bytes.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::{CooperativeExec, make_cooperative};
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowExpr};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use futures::{StreamExt, TryStreamExt, stream};

use crate::guard::compact::compact;
use crate::guard::passing::{Pass, Through};
use crate::guard::sizes;
use crate::guard::sizes::Views;

/// Maximum bytes of the values of a batch, unless a single row has more.
pub(super) const BATCH_BYTES: usize = 16 << 20;

/// Maximum bytes of a fixed-width row with which no batch is too large.
const NARROW_BYTES: usize = BATCH_BYTES / 8192;

/// Maximum distance in rows up to which a window reads batches that are not accounted for.
const NEAR_ROWS: i128 = 1000;

/// Maximum bytes of a batch of rows that each have a copy of the widest row of another input.
const REPEATED_BYTES: usize = 64 << 20;

/// Maximum bytes into which one row may be unnested.
const UNNESTED_BYTES_MAX: usize = 128 << 20;

/// Number of copies that a window holds of its input: as batches, and as one batch.
const WINDOW_COPIES: usize = 2;

/// The name of the rule [`BoundBatches`].
pub(crate) const BOUND_BATCHES: &str = "bound_batches";

/// Physical optimizer rule that inserts [`BoundedExec`] below each operator. It runs last, since other rules depend on
/// which operators follow each other.
#[derive(Debug)]
pub(super) struct BoundBatches {
    /// For rows that operators buffer without accounting for them.
    pub(super) pool: Arc<dyn MemoryPool>,
}

impl PhysicalOptimizerRule for BoundBatches {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| self.below(node))?;
        Ok(self.bounded(&plan.data, Use::Copied))
    }

    fn name(&self) -> &str {
        BOUND_BATCHES
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A plan that was made without [`BoundBatches`], with its operators, up to those at which `is_end`: what is below them
/// is executed elsewhere.
///
/// # Errors
///
/// An operator refuses its inputs: a bug.
pub(crate) fn bounded_batches(
    plan: Arc<dyn ExecutionPlan>,
    rows: &Arc<dyn MemoryPool>,
    is_end: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let rule = BoundBatches { pool: Arc::clone(rows) };
    let down = |node: Arc<dyn ExecutionPlan>| {
        let next =
            if is_end(&node) { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue };
        Ok(Transformed::new(node, false, next))
    };
    let up = |node: Arc<dyn ExecutionPlan>| match is_end(&node) {
        true => Ok(Transformed::no(node)),
        false => rule.below(node),
    };
    let plan = plan.transform_down_up(down, up)?.data;
    // A repartition at the head of a fragment stays there.
    Ok(match plan.is::<RepartitionExec>() {
        true => plan,
        false => rule.bounded(&plan, Use::Copied),
    })
}

impl BoundBatches {
    /// The operator with bounds on what its inputs pass on.
    fn below(&self, node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        if node.is::<BoundedExec>() || node.children().is_empty() {
            return Ok(Transformed::no(node));
        }
        let children = node.children().into_iter().enumerate();
        let children = children.map(|(at, child)| self.bounded(child, Use::of(&node, at)));
        let children: Vec<_> = children.collect();
        let changed = children.iter().zip(node.children()).any(|(new, old)| !Arc::ptr_eq(new, old));
        if !changed {
            return Ok(Transformed::no(node));
        }
        let keep = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        Ok(Transformed::yes(node.replace_children(children, keep)?))
    }

    fn bounded(&self, input: &Arc<dyn ExecutionPlan>, used: Use) -> Arc<dyn ExecutionPlan> {
        let schema = input.schema();
        let mut types = schema.fields().iter().map(|field| field.data_type());
        let row_bytes = types.try_fold(0, |sum: usize, data_type| {
            Some(sum.saturating_add(sizes::width(data_type)?))
        });
        let is_narrow = row_bytes.is_some_and(|bytes| bytes <= NARROW_BYTES);
        let is_kept = matches!(used, Use::Carried(_) | Use::Gathered(_) | Use::Sorted);
        if input.is::<BoundedExec>() {
            return Arc::clone(input);
        }
        if is_narrow && !is_kept {
            // A join may produce many rows from few without polling its inputs, and polls of inputs are where other
            // tasks get to run, and a query can be cancelled.
            return match is_join(input) {
                true => Arc::new(CooperativeExec::new(Arc::clone(input))),
                false => Arc::clone(input),
            };
        }
        let pass = Bounds { used, pool: Arc::clone(&self.pool) };
        Arc::new(BoundedExec { input: Arc::clone(input), pass })
    }
}

/// What an operator does with the rows of an input.
#[derive(Clone, Debug)]
enum Use {
    /// It copies them, batch by batch.
    Copied,
    /// It copies one of them into each row of a batch: the views, or the values behind them.
    Repeated(Views),
    /// It produces a row for each element of the lists in these columns, at these depths.
    Unnested(Vec<(usize, usize)>),
    /// It copies the arguments of these windows in one of the rows, possibly of an earlier batch, into each row of a
    /// batch.
    Carried(Vec<Arc<dyn WindowExpr>>),
    /// It buffers all of them until the end, without accounting for them; and it copies the arguments of these windows
    /// in one of them into each.
    Gathered(Vec<Arc<dyn WindowExpr>>),
    /// It buffers values until the end, and accounts only for the views.
    Collected,
    /// It buffers batches until it spills them, and accounts for all of their buffers.
    Sorted,
}

impl Use {
    fn of(operator: &Arc<dyn ExecutionPlan>, input: usize) -> Self {
        if let Some(unnest) = operator.downcast_ref::<UnnestExec>() {
            let columns = unnest.list_column_indices().iter();
            let columns = columns.map(|column| (column.index_in_input_schema, column.depth));
            return Self::Unnested(columns.collect());
        }
        if let Some(window) = operator.downcast_ref::<WindowAggExec>() {
            return Self::Gathered(wide(window.window_expr()));
        }
        if let Some(window) = operator.downcast_ref::<BoundedWindowAggExec>() {
            let windows = window.window_expr();
            let wide = wide(windows);
            return match windows.iter().all(is_near) {
                true if wide.is_empty() => Self::Copied,
                true => Self::Carried(wide),
                false => Self::Gathered(wide),
            };
        }
        if let Some(aggregate) = operator.downcast_ref::<AggregateExec>() {
            let collects = aggregate.aggr_expr().iter().any(|one| one.fun().name() == "array_agg");
            return if collects { Self::Collected } else { Self::Copied };
        }
        // A sort with a limit buffers few rows, and compacts them itself.
        if let Some(sort) = operator.downcast_ref::<SortExec>() {
            return if sort.fetch().is_none() { Self::Sorted } else { Self::Copied };
        }
        if operator.is::<ScalarSubqueryExec>() && input > 0 {
            return Self::Repeated(Views::Expanded);
        }
        if is_join(operator) { Self::Repeated(Views::Shared) } else { Self::Copied }
    }
}

fn is_join(operator: &Arc<dyn ExecutionPlan>) -> bool {
    operator.is::<HashJoinExec>()
        || operator.is::<CrossJoinExec>()
        || operator.is::<NestedLoopJoinExec>()
        || operator.is::<SortMergeJoinExec>()
}

/// Passes batches on, split to a bounded number of bytes.
type BoundedExec = Through<Bounds>;

/// How large the batches may be that an operator gets.
#[derive(Clone, Debug)]
struct Bounds {
    used: Use,
    pool: Arc<dyn MemoryPool>,
}

impl Pass for Bounds {
    const NAME: &'static str = "BoundedExec";

    fn execute(
        &self,
        input: &dyn ExecutionPlan,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = input.schema();
        let rows_max = context.session_config().batch_size();
        let kept = MemoryConsumer::new(Self::NAME).register(&self.pool);
        let batches = input.execute(partition, context)?;
        let used = self.used.clone();
        // Over all batches so far: bytes of the widest arguments of windows, rows, and bytes of the windows' output.
        let (mut widest, mut rows, mut outputs) = (0_usize, 0_usize, 0_usize);
        let pieces = batches.map(move |batch| {
            let batch = batch?;
            match &used {
                Use::Copied => {}
                Use::Sorted => {
                    let pieces = pieces(&batch, rows_max);
                    return pieces.iter().map(|piece| Ok(compact(piece)?)).collect();
                }
                Use::Repeated(views) => check_widest(&batch, *views, rows_max)?,
                Use::Unnested(columns) => return unnestable(&batch, columns),
                Use::Carried(windows) => {
                    widest = widest.max(widest_argument(&batch, windows)?);
                    return Ok(cut(&batch, &vec![widest; batch.num_rows()], rows_max));
                }
                Use::Gathered(windows) => {
                    let kept_bytes = batch.get_array_memory_size().saturating_mul(WINDOW_COPIES);
                    // An upper bound: as if each row so far got the widest arguments so far.
                    widest = widest.max(widest_argument(&batch, windows)?);
                    rows = rows.saturating_add(batch.num_rows());
                    let made = widest.saturating_mul(rows);
                    let more = kept_bytes.saturating_add(made.saturating_sub(outputs));
                    outputs = made;
                    kept.try_grow(more).map_err(|_| exhausted("windows", &kept))?;
                }
                Use::Collected => {
                    kept.try_grow(viewed(&batch))
                        .map_err(|_| exhausted("lists of values", &kept))?;
                }
            }
            Ok(pieces(&batch, rows_max))
        });
        let pieces = pieces.map_ok(|pieces| stream::iter(pieces.into_iter().map(Ok))).try_flatten();
        // One batch may be split into many, each of which takes as long as a batch.
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, pieces))))
    }
}

/// The windows that return a value of variable width for each row.
fn wide(windows: &[Arc<dyn WindowExpr>]) -> Vec<Arc<dyn WindowExpr>> {
    let is_wide = |window: &&Arc<dyn WindowExpr>| {
        let field = window.field();
        field.map_or(true, |field| sizes::width(field.data_type()).is_none())
    };
    windows.iter().filter(is_wide).cloned().collect()
}

/// Total bytes of the widest value of each argument of windows in a batch.
fn widest_argument(batch: &RecordBatch, windows: &[Arc<dyn WindowExpr>]) -> Result<usize> {
    let mut sum: usize = 0;
    for window in windows {
        for argument in window.evaluate_args(batch)? {
            let widest = sizes::rows(&argument, Views::Expanded).into_iter().max();
            sum = sum.saturating_add(widest.unwrap_or(0));
        }
    }
    Ok(sum)
}

/// Whether a window only reads a limited number of rows before or after, or running aggregates: determined by its frame
/// and by arguments such as the offset of `lead`.
fn is_near(window: &Arc<dyn WindowExpr>) -> bool {
    let frame = window.get_window_frame();
    let near = |value: &ScalarValue| {
        let number = value.cast_to(&DataType::Decimal128(38, 0));
        match number {
            Ok(ScalarValue::Decimal128(Some(number), ..)) => number.saturating_abs() <= NEAR_ROWS,
            _ => false,
        }
    };
    let is_near = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => {
            value.is_null() || (frame.units == WindowFrameUnits::Rows && near(value))
        }
    };
    let arguments = window.expressions();
    let mut literals = arguments.iter().filter_map(|one| one.downcast_ref::<Literal>());
    is_near(&frame.start_bound)
        && is_near(&frame.end_bound)
        && literals
            .all(|literal| !literal.value().data_type().is_integer() || near(literal.value()))
}

fn exhausted(what: &str, kept: &MemoryReservation) -> DataFusionError {
    let error = format!("{what} keep more than {} bytes of rows", kept.size());
    DataFusionError::ResourcesExhausted(error)
}

/// Bytes of the values behind views.
fn viewed(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter().map(|column| {
        let in_full = sizes::total(column, Views::Expanded);
        in_full.saturating_sub(sizes::total(column, Views::Shared))
    });
    columns.fold(0, usize::saturating_add)
}

/// Splits the batch into slices of at most [`BATCH_BYTES`] and `rows_max` rows, without copying.
fn pieces(batch: &RecordBatch, rows_max: usize) -> Vec<RecordBatch> {
    let total = batch.columns().iter().map(|column| sizes::total(column, Views::Expanded));
    let total = total.fold(0, usize::saturating_add);
    if total <= BATCH_BYTES && batch.num_rows() <= rows_max {
        return vec![batch.clone()];
    }
    let bytes = bytes_of_rows(batch.num_rows(), batch.columns(), Views::Expanded);
    cut(batch, &bytes, rows_max)
}

fn bytes_of_rows<'a>(
    rows: usize,
    columns: impl IntoIterator<Item = &'a Arc<dyn Array>>,
    views: Views,
) -> Vec<usize> {
    let mut bytes = vec![0; rows];
    for column in columns {
        sizes::add(&mut bytes, &sizes::rows(column, views));
    }
    bytes
}

/// Slices of the batch with at most [`BATCH_BYTES`] according to `bytes`, or with a single row.
fn cut(batch: &RecordBatch, bytes: &[usize], rows_max: usize) -> Vec<RecordBatch> {
    let (mut slices, mut start, mut sum) = (Vec::new(), 0, 0_usize);
    for (row, own) in bytes.iter().enumerate() {
        let more = sum.saturating_add(*own);
        if row > start && (more > BATCH_BYTES || row - start >= rows_max) {
            slices.push(batch.slice(start, row - start));
            (start, sum) = (row, *own);
        } else {
            sum = more;
        }
    }
    slices.push(batch.slice(start, batch.num_rows() - start));
    slices
}

/// # Errors
///
/// A batch of `rows_max` copies of the widest row would be too large.
fn check_widest(batch: &RecordBatch, views: Views, rows_max: usize) -> Result<()> {
    let bytes = bytes_of_rows(batch.num_rows(), batch.columns(), views);
    let widest = bytes.into_iter().max().unwrap_or(0);
    if widest.saturating_mul(rows_max) > REPEATED_BYTES {
        let error = format!("a row of {widest} bytes is joined with others");
        return Err(DataFusionError::ResourcesExhausted(error));
    }
    Ok(())
}

/// Slices of the batch that become at most [`BATCH_BYTES`] when the lists in `lists` are unnested.
fn unnestable(batch: &RecordBatch, lists: &[(usize, usize)]) -> Result<Vec<RecordBatch>> {
    let is_list = |at: usize| lists.iter().any(|(list, _)| *list == at);
    let others = batch.columns().iter().enumerate().filter(|(at, _)| !is_list(*at));
    let others = others.map(|(_, column)| column);
    let mut bytes = bytes_of_rows(batch.num_rows(), others, Views::Shared);
    let mut made = vec![0; batch.num_rows()];
    let mut elements = vec![1_usize; batch.num_rows()];
    // Nested lists are unnested one level after another, and at each level everything else is copied, including other
    // lists.
    let is_deep = lists.len() > 1 && lists.iter().any(|(_, depth)| *depth > 1);
    for (at, depth) in lists {
        let Some(column) = batch.columns().get(*at) else { continue };
        let own = sizes::rows(column, Views::Shared);
        sizes::add(if is_deep { &mut bytes } else { &mut made }, &own);
        for (most, own) in elements.iter_mut().zip(sizes::elements(column, *depth)) {
            *most = if is_deep { most.saturating_mul(own.max(1)) } else { own.max(*most) };
        }
    }
    for ((bytes, made), elements) in bytes.iter_mut().zip(made).zip(elements) {
        // Unnesting also makes an index for each output row, of the input row from which it comes.
        let each = bytes.saturating_add(size_of::<u64>());
        *bytes = each.saturating_mul(elements).saturating_add(made);
        if *bytes > UNNESTED_BYTES_MAX {
            let error = format!("unnesting a list of {elements} elements makes {bytes} bytes");
            return Err(DataFusionError::ResourcesExhausted(error));
        }
    }
    Ok(cut(batch, &bytes, batch.num_rows().max(1)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, ListArray, RecordBatch, StringArray, StringViewArray, UInt64Array,
    };
    use arrow::compute::take;
    use arrow::datatypes::Int64Type;

    use super::{BATCH_BYTES, Views, check_widest, pieces, unnestable};

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("column", column)]).unwrap()
    }

    #[test]
    fn batches_are_cut_by_bytes_and_by_rows() {
        let long = "x".repeat(1 << 20);
        let one: ArrayRef = Arc::new(StringViewArray::from(vec![long.as_str()]));
        let many = batch(take(&one, &UInt64Array::from(vec![0; 100]), None).unwrap());
        let cut = pieces(&many, 8192);
        let rows: Vec<usize> = cut.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows.iter().sum::<usize>(), 100);
        assert!(rows.iter().all(|rows| rows * (1 << 20) <= BATCH_BYTES), "{rows:?}");
        let short = batch(Arc::new(StringArray::from(vec!["a"; 100])));
        assert_eq!(pieces(&short, 8192), std::slice::from_ref(&short));
        assert_eq!(pieces(&short, 30).len(), 4);
        assert_eq!(pieces(&short.slice(0, 0), 30).len(), 1);
    }

    #[test]
    fn wide_rows_are_joined_in_small_batches_only() {
        let long = "x".repeat(20_000);
        let copied = batch(Arc::new(StringArray::from(vec![long.as_str()])));
        assert!(check_widest(&copied, Views::Shared, 8192).is_err());
        assert!(check_widest(&copied, Views::Shared, 1024).is_ok());
        let shared = batch(Arc::new(StringViewArray::from(vec![long.as_str()])));
        assert!(check_widest(&shared, Views::Shared, 8192).is_ok());
        assert!(check_widest(&shared, Views::Expanded, 8192).is_err());
    }

    #[test]
    fn lists_are_unnested_some_rows_at_a_time() {
        let lists = |length: i64, rows: usize| -> ArrayRef {
            let list = Some((0..length).map(Some).collect::<Vec<_>>());
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(vec![list; rows]))
        };
        let texts = |length: usize, rows: usize| -> ArrayRef {
            Arc::new(StringArray::from(vec!["x".repeat(length); rows]))
        };
        let both = |length, width, rows| {
            let columns = [("list", lists(length, rows)), ("text", texts(width, rows))];
            unnestable(&RecordBatch::try_from_iter(columns).unwrap(), &[(0, 1)])
        };
        assert_eq!(both(10, 10, 100).unwrap().len(), 1);
        assert_eq!(both(1000, 1000, 100).unwrap().len(), 7);
        assert!(both(10_000, 100_000, 1).is_err());
    }
}
