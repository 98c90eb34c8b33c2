//! Planning for little memory: [`sparing`]. Such plans are slower.
//!
//! - What does not fit into memory is spilled.
//! - A hash join holds one side in memory and cannot spill, so joins become merge joins of sorted inputs.
//! - The memory is divided among all operators of all partitions, and an operator whose share is too small for a batch
//!   fails: so there is one partition, and batches are small.
//! - Joins keep all columns of their inputs. When some are left out, DataFusion reads wrong columns in the condition of
//!   a merge join (issue 24414, mended after 55.2): other rows, or a panic.
//! - No operator repartitions rows, as that blocks forever if it spills ([`spill`](crate::kernel::spill)).

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

/// Maximum rows per batch.
const BATCH_ROWS: usize = 512;

/// The rule that drops columns from the inputs of joins.
const NARROWING: &str = "ProjectionPushdown";

/// Memory that each sort reserves to merge what it has spilled.
const MERGE_BYTES: usize = 256 << 10;

/// `state` for plans that need little memory and spill to the files of `environment`.
pub(crate) fn sparing(state: SessionState, environment: &Arc<RuntimeEnv>) -> SessionState {
    // Joins are replaced first, since other rules sort their inputs; repartitions last, since other rules add them.
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
    // Anything below this threshold is sorted as one batch: a copy for which there may be no memory.
    execution.sort_in_place_threshold_bytes = 0;
    SessionStateBuilder::new_from_existing(state)
        .with_config(config)
        .with_runtime_env(Arc::clone(environment))
        .with_physical_optimizer_rules(rules)
        .build()
}

type Operator = Arc<dyn ExecutionPlan>;

/// The replacement of an operator; None to leave it as it is.
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

/// A merge join in place of a hash join, where one can replace it. Not replaced are null-aware joins (`NOT IN`), joins
/// on nested types, which have no order, and outer and anti joins with a condition, in which DataFusion has had many
/// errors.
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

/// Merges all partitions in place of a repartition into a single one.
fn coalesce(node: &Operator) -> Instead {
    let divided = node.downcast_ref::<RepartitionExec>();
    let divided = divided.filter(|it| it.partitioning().partition_count() == 1);
    let divided = divided.filter(|it| !it.preserve_order());
    Ok(divided.map(|it| Arc::new(CoalescePartitionsExec::new(Arc::clone(it.input()))) as _))
}
