//! Plans that need little memory: [`sparing`]. They take longer than others.
//!
//! - What does not fit is spilled.
//! - A hash join holds one of its sides in memory and cannot spill, so joins become such of sorted inputs.
//! - Each operator of each partition gets a share of the memory, and one whose share is too small for a
//!   batch fails: so there is one partition, and batches are small.
//! - Joins keep the columns of their inputs. To leave some out, DataFusion reads wrong columns in the condition
//!   of a merge join (issue 24414, mended after 55.2): other rows, or a panic.
//! - Nothing divides rows among partitions, which waits for ever if it spills
//!   ([`spill`](crate::kernel::spill)).

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::repartition::RepartitionExec;

/// Rows of a batch.
const BATCH_ROWS: usize = 512;

/// The rule that leaves columns out of the inputs of joins.
const NARROWING: &str = "ProjectionPushdown";

/// Memory that each sort keeps to merge what it has spilled.
const MERGE_BYTES: usize = 256 << 10;

/// `state`, for plans that need little memory and spill to the files of `environment`.
pub(crate) fn sparing(state: SessionState, environment: &Arc<RuntimeEnv>) -> SessionState {
    // Joins come first, since other rules bring their inputs into order; and others divide rows again.
    let first = Replace { name: "merge_joins", instead: merge_join };
    let last = Replace { name: "coalesce", instead: coalesce };
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![Arc::new(first)];
    let others = state.physical_optimizers().iter();
    rules.extend(others.filter(|rule| rule.name() != NARROWING).cloned());
    rules.push(Arc::new(last));
    let rows = state.config().batch_size().min(BATCH_ROWS);
    let mut config = state.config().clone().with_batch_size(rows).with_target_partitions(1);
    let execution = &mut config.options_mut().execution;
    execution.sort_spill_reservation_bytes = MERGE_BYTES;
    // Less than this is sorted as one batch, a copy for which there may be no room.
    execution.sort_in_place_threshold_bytes = 0;
    SessionStateBuilder::new_from_existing(state)
        .with_config(config)
        .with_runtime_env(Arc::clone(environment))
        .with_physical_optimizer_rules(rules)
        .build()
}

type Operator = Arc<dyn ExecutionPlan>;

/// What comes in the place of an operator; None where it stays.
type Instead = Result<Option<Operator>>;

/// A rule that replaces operators one by one.
#[derive(Debug)]
struct Replace {
    name: &'static str,
    instead: fn(&Operator) -> Instead,
}

impl PhysicalOptimizerRule for Replace {
    fn optimize(&self, plan: Operator, _: &ConfigOptions) -> Result<Operator> {
        let plan = plan.transform_up(|node| {
            let instead = (self.instead)(&node)?;
            Ok(instead.map_or_else(|| Transformed::no(node), Transformed::yes))
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A join of sorted inputs, if there is one like this: `NOT IN` minds nulls, and lists have no order. Nor
/// are outer and anti joins with a condition replaced, of which DataFusion has had many errors.
fn merge_join(node: &Operator) -> Instead {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
    let schema = left.schema();
    let mut types = join.on().iter().map(|(key, _)| key.data_type(&schema));
    let is_ordered = types.all(|data_type| data_type.is_ok_and(|it| !it.is_nested()));
    let is_safe = matches!(join.join_type(), JoinType::Inner | JoinType::LeftSemi);
    let is_plain = join.filter().is_none() || is_safe;
    if join.null_aware || join.contains_projection() || !is_ordered || !is_plain {
        return Ok(None);
    }
    let order = vec![SortOptions::default(); join.on().len()];
    let (on, filter) = (join.on().to_vec(), join.filter().cloned());
    let (join_type, nulls) = (*join.join_type(), join.null_equality());
    let join = SortMergeJoinExec::try_new(left, right, on, filter, join_type, order, nulls)?;
    Ok(Some(Arc::new(join)))
}

/// All partitions together, where their rows are divided among one.
fn coalesce(node: &Operator) -> Instead {
    let divided = node.downcast_ref::<RepartitionExec>();
    let divided = divided.filter(|it| it.partitioning().partition_count() == 1);
    let divided = divided.filter(|it| !it.preserve_order());
    Ok(divided.map(|it| Arc::new(CoalescePartitionsExec::new(Arc::clone(it.input()))) as _))
}
