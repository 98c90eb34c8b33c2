//! Execution of plans over several nodes, as the engine sees it: [`Distribution`]. Which nodes there are and how they are
//! reached is known above.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;

use crate::fragments::{Above, FragmentRuntime};
use crate::guard::BOUND_BATCHES;

/// A plan that may be executed over several nodes. Its operators do not bound what they pass on; see
/// [`Fragments::bounded`](crate::fragments::Fragments::bounded).
#[derive(Debug)]
pub struct Candidate {
    /// The session that it was made in.
    pub state: SessionState,
    /// What it is a plan of.
    pub query: LogicalPlan,
    /// The operators.
    pub plan: Arc<dyn ExecutionPlan>,
    /// How long it may run.
    pub limit: Duration,
}

/// A plan with the context that it is executed in.
pub type Planned = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

/// Executes plans over several nodes.
pub trait Distribution: Debug + Send + Sync {
    /// Plans that read fewer bytes of files than this are executed by this process alone.
    fn bytes_min(&self) -> u64;

    /// Whether there are enough nodes.
    fn is_ready(&self) -> bool;

    /// The plan over several nodes.
    ///
    /// # Errors
    ///
    /// There are not enough nodes, or it has a part that only this process can execute.
    fn plan(&self, candidate: Candidate) -> BoxFuture<'_, Result<Planned>>;

    /// The stages of a plan over several nodes, as a text for operators.
    fn display(&self, plan: &dyn ExecutionPlan) -> String;

    /// Changes whenever nodes come or go.
    fn generation(&self) -> u64;

    /// Looks which nodes there are, after a plan has failed that was begun in a generation. `true` if they have changed
    /// and are enough, so that it is worth to try again.
    fn look_again(&self, since: u64) -> BoxFuture<'_, bool>;
}

/// Makes the [`Distribution`] of an engine from what the engine executes plans with.
pub struct Distribute(Box<dyn FnOnce(FragmentRuntime) -> Arc<dyn Distribution> + Send>);

impl std::fmt::Debug for Distribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Distribute").finish_non_exhaustive()
    }
}

impl Distribute {
    /// By a function that is called once, when the engine is made.
    pub fn by(
        make: impl FnOnce(FragmentRuntime) -> Arc<dyn Distribution> + Send + 'static,
    ) -> Self {
        Self(Box::new(make))
    }

    /// The same for an engine that knows what is above, too.
    pub fn knowing(self, above: Above) -> Self {
        Self::by(move |runtime| self.make(runtime.knowing(above)))
    }

    pub(crate) fn make(self, runtime: FragmentRuntime) -> Arc<dyn Distribution> {
        (self.0)(runtime)
    }
}

/// Bytes of the files that a plan reads, whatever it reads of them.
pub(crate) fn file_bytes(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let own = plan.downcast_ref::<DataSourceExec>().and_then(|scan| {
        let files = scan.data_source().downcast_ref::<FileScanConfig>()?;
        let files = files.file_groups.iter().flat_map(|group| group.iter());
        Some(files.map(|file| file.object_meta.size).fold(0, u64::saturating_add))
    });
    let inputs = plan.children().into_iter().map(file_bytes);
    inputs.fold(own.unwrap_or(0), u64::saturating_add)
}

/// Whether a query has a subquery as a value. DataFusion executes it in the memory of one process, or as a join, which
/// does not notice that it has several rows.
pub(crate) fn has_scalar_subquery(query: &LogicalPlan) -> bool {
    let mut is_there = false;
    let looked = query.apply_with_subqueries(|node| {
        node.apply_expressions(|own| {
            is_there |= own.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })
    });
    is_there || looked.is_err()
}

/// The session for a [`Candidate`].
pub(crate) fn for_candidates(state: SessionState) -> SessionState {
    let rules = state.physical_optimizers().iter();
    let rules = rules.filter(|rule| rule.name() != BOUND_BATCHES).cloned().collect();
    let mut config = state.config().clone();
    // The values of such subqueries are in the memory of one process; see [`has_scalar_subquery`].
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    // A join is cut into tasks only if both sides are partitioned by its keys, whatever their size.
    optimizer.hash_join_single_partition_threshold = 0;
    optimizer.hash_join_single_partition_threshold_rows = 0;
    // What one side tells the scan of the other stays in one process.
    optimizer.enable_join_dynamic_filter_pushdown = false;
    SessionStateBuilder::new_from_existing(state)
        .with_config(config)
        .with_physical_optimizer_rules(rules)
        .build()
}
