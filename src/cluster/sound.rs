//! Which plans may be cut into stages ([`check`]): those of which every operator gives the same rows when each task has some
//! of the input, and is sent as it is.
//!
//! The engine cuts whatever DataFusion plans. Some of it means something else then: an operator that DataFusion has put on
//! one partition, because that was all of the input, would run once in each task; windows are sent without their FILTER;
//! rows that a LIMIT passes on to a join differ from task to task. So a stage of several tasks has only operators of this
//! list, which are those of scans, filters, aggregates, orders and of joins that have both sides partitioned by their
//! keys; windows and other joins are executed by the server, above these. What runs in one task runs on the server, as it
//! is, and is not restricted.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    Distribution, ExecutionPlan, ExecutionPlanProperties, Partitioning,
};
use datafusion_distributed::{
    BroadcastExec, DistributedLeafExec, NetworkBoundaryExt, NetworkBroadcastExec,
    NetworkCoalesceExec, NetworkShuffleExec, Stage,
};

use weir_query::fragments;

/// Checks a plan that the engine has cut into stages.
///
/// # Errors
///
/// It is none that may be cut: which operator is to blame.
pub(crate) fn check(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    plan.apply(|node| {
        let is_broadcast = node.is::<NetworkBroadcastExec>() || node.is::<BroadcastExec>();
        if node.is::<RecursiveQueryExec>() || is_broadcast {
            return Err(refused(node, "is executed more than once"));
        }
        if let Some(Stage::Local(stage)) = node.as_network_boundary().map(|own| own.input_stage()) {
            partitioned_by_columns(node, node.output_partitioning())?;
            if stage.tasks > 1 {
                if node.is::<NetworkShuffleExec>() && node.output_ordering().is_some() {
                    return Err(refused(node, "keeps an order that is not sent"));
                }
                check_part(&stage.plan, false)?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Checks the operators of a stage of several tasks, up to those of the stages below.
fn check_part(node: &Arc<dyn ExecutionPlan>, is_scoped: bool) -> Result<()> {
    let is_scan = node.is::<DistributedLeafExec>();
    if !(is_listed(node) || is_scan && is_scoped) {
        return Err(refused(node, "is not executed in parts"));
    }
    if node.is_network_boundary() || is_scan {
        return Ok(());
    }
    partitioned_by_columns(node, node.output_partitioning())?;
    let is_ordered = node.downcast_ref::<RepartitionExec>().is_some_and(|own| own.preserve_order());
    if is_ordered {
        return Err(refused(node, "keeps an order that is not sent"));
    }
    let is_one = node.output_partitioning().partition_count() == 1;
    if node.fetch().is_some_and(|fetch| is_one || u32::try_from(fetch).is_err()) {
        return Err(refused(node, "limits all rows"));
    }
    for (input, wanted) in
        node.children().into_iter().zip(node.input_distribution_requirements().into_per_child())
    {
        let own = input.output_partitioning();
        let is_of_all = match wanted {
            Distribution::UnspecifiedDistribution => false,
            Distribution::SinglePartition => true,
            // One partition has all rows only in one task.
            _ => !matches!(own, Partitioning::Hash(..)),
        };
        if is_of_all && !is_merging(node) {
            return Err(refused(node, "needs all rows"));
        }
    }
    let is_scoped = is_scoped || fragments::is_scope(node);
    node.children().into_iter().try_for_each(|input| check_part(input, is_scoped))
}

/// Whether an operator merges the partitions of its task, for the exchange above it.
fn is_merging(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<CoalescePartitionsExec>() || node.is::<SortPreservingMergeExec>()
}

fn is_listed(node: &Arc<dyn ExecutionPlan>) -> bool {
    let join = node.downcast_ref::<HashJoinExec>();
    fragments::is_scope(node)
        || fragments::is_fold(node)
        || join.is_some_and(|join| join.mode == PartitionMode::Partitioned && !join.null_aware)
        || node.is::<AggregateExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<FilterExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<NetworkCoalesceExec>()
        || node.is::<NetworkShuffleExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
        || node.is::<UnnestExec>()
}

/// Other expressions than columns are written by the engine's codec, which has only the names of functions.
fn partitioned_by_columns(node: &Arc<dyn ExecutionPlan>, own: &Partitioning) -> Result<()> {
    // Others only tell how their input is partitioned.
    let is_evaluated = node.is::<RepartitionExec>() || node.is::<NetworkShuffleExec>();
    match own {
        Partitioning::Hash(by, _) if is_evaluated && !by.iter().all(|own| own.is::<Column>()) => {
            Err(refused(node, "is partitioned by an expression"))
        }
        _ => Ok(()),
    }
}

fn refused(node: &Arc<dyn ExecutionPlan>, why: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!("{} {why}", node.name()))
}
