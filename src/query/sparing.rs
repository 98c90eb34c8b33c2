//! Plans that need little memory: [`sparing`]. They take longer than others.
//!
//! - What does not fit is spilled.
//! - A hash join holds one of its sides in memory and cannot spill, so joins become such of sorted inputs.
//! - Each operator of each partition gets a share of the memory, and one whose share is too small for a
//!   batch fails: so there is one partition, and batches are small.
//! - Nothing divides rows among partitions, which waits for ever if it spills
//!   ([`spill`](super::spill)).

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::repartition::RepartitionExec;

/// Rows of a batch.
const BATCH_ROWS: usize = 512;

/// Memory that each sort keeps to merge what it has spilled.
const MERGE_BYTES: usize = 256 << 10;

/// `state`, for plans that need little memory and spill to the files of `environment`.
pub(super) fn sparing(state: SessionState, environment: &Arc<RuntimeEnv>) -> SessionState {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![Arc::new(MergeJoins)];
    rules.extend(state.physical_optimizers().iter().cloned());
    rules.push(Arc::new(Coalesce));
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

/// Replaces hash joins. The first rule, since others bring the inputs into the order that a join needs.
#[derive(Debug)]
struct MergeJoins;

impl PhysicalOptimizerRule for MergeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>().map(merge_join) {
            Some(Some(join)) => Ok(Transformed::yes(join?)),
            _ => Ok(Transformed::no(node)),
        })
        .map(|plan| plan.data)
    }

    fn name(&self) -> &str {
        "merge_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The same join of sorted inputs, if there is one: `NOT IN` minds nulls, and lists have no order.
fn merge_join(join: &HashJoinExec) -> Option<Result<Arc<dyn ExecutionPlan>>> {
    let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
    let schema = left.schema();
    let mut types = join.on().iter().map(|(key, _)| key.data_type(&schema));
    let is_ordered = types.all(|data_type| data_type.is_ok_and(|it| !it.is_nested()));
    if join.null_aware || join.contains_projection() || !is_ordered {
        return None;
    }
    let order = vec![SortOptions::default(); join.on().len()];
    let (on, filter) = (join.on().to_vec(), join.filter().cloned());
    let join_type = *join.join_type();
    let nulls = join.null_equality();
    let join = SortMergeJoinExec::try_new(left, right, on, filter, join_type, order, nulls);
    Some(join.map(|join| Arc::new(join) as Arc<dyn ExecutionPlan>))
}

/// Puts partitions together where all of their rows go to one. The last rule, since others divide again.
#[derive(Debug)]
struct Coalesce;

impl PhysicalOptimizerRule for Coalesce {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<RepartitionExec>() {
            Some(all) if all.partitioning().partition_count() == 1 && !all.preserve_order() => {
                let input = Arc::clone(all.input());
                Ok(Transformed::yes(Arc::new(CoalescePartitionsExec::new(input))))
            }
            _ => Ok(Transformed::no(node)),
        })
        .map(|plan| plan.data)
    }

    fn name(&self) -> &str {
        "coalesce"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
