//! Plans queries over the nodes of a cluster: [`Coordinator`].

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DistributedExec, DistributedExt, DistributedLeafExec, NetworkBoundaryExt,
    SessionStateBuilderExt, Stage, display_plan_ascii,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::channels::{Channels, QueryChannels};
use crate::codec::{Codec, Writer};
use crate::members::Members;
use crate::service::Service;
use crate::split::{Known, Nodes};
use crate::{secret, sound};
use weir_base::config::cluster::ClusterConfig;
use weir_query::fragments::{FragmentSettings, read_sets};
use weir_query::kernel::distribution::{Candidate, Distribution, Planned};

/// With fewer workers, a query is no faster than on the server alone.
const WORKERS_MIN: usize = 2;

/// Rows that are buffered for each partition that is read from another node, in bytes.
const CONNECTION_BYTES: usize = 1 << 20;

/// Plans the large queries of a server over its workers.
#[derive(Debug)]
pub(crate) struct Coordinator {
    service: Service,
    members: Members,
    channels: Channels,
    bytes_min: u64,
}

impl Coordinator {
    /// Over the workers `members`. `service` executes tasks of this server.
    pub(crate) fn new(
        config: &ClusterConfig,
        service: Service,
        members: Members,
        channels: Channels,
    ) -> Self {
        let bytes_min = config.cluster_query_min_bytes.as_u64();
        Self { service, members, channels, bytes_min }
    }

    async fn over_nodes(&self, candidate: Candidate) -> Result<Planned> {
        let workers = self.members.live().urls.clone();
        // With one thread, DataFusion leaves out the operators between partitions, at which plans are cut.
        let threads = candidate.state.config().target_partitions();
        if workers.len() < WORKERS_MIN || threads < 2 {
            let why = format!("there are {} workers, and {threads} threads", workers.len());
            return Err(DataFusionError::NotImplemented(why));
        }
        let fragments = self.service.runtime().writer(&candidate).await?;
        let writer = Arc::new(Writer::new(fragments.clone()));
        let headers = secret::headers(&FragmentSettings::of(&candidate, &fragments))?;
        let Candidate { state, query, plan, .. } = candidate;
        let nodes = Nodes(Arc::new(Known { own: self.service.url().clone(), workers }));
        let channels = QueryChannels::new(self.channels.clone(), Arc::clone(&writer));
        let state = SessionStateBuilder::new_from_existing(state)
            .with_query_planner(Arc::new(Given(plan)))
            .with_distributed_planner()
            .with_distributed_worker_resolver(nodes.clone())
            .with_distributed_channel_resolver(channels)
            .with_distributed_user_codec(Codec(fragments.clone()))
            .with_distributed_passthrough_headers(headers)?
            .with_distributed_desired_task_count_handler(nodes.clone())
            .with_distributed_scale_up_leaf_node_handler(nodes.clone())
            .with_distributed_max_tasks_per_stage(nodes.tasks_max())?
            .with_distributed_route_tasks_handler(nodes)
            // Files and rows in memory are split by us.
            .with_distributed_children_isolator_unions(false)?
            // What is broadcast is read without a limit, and an end of it that is a panic is not noticed.
            .with_distributed_broadcast_joins(false)?
            .with_distributed_worker_connection_buffer_budget_bytes(CONNECTION_BYTES)?
            .with_distributed_metrics_collection(false)?
            .with_distributed_local_worker_context(self.service.local())
            .build();
        let plan = state.query_planner().create_physical_plan(&query, &state).await?;
        let context = state.task_ctx();
        if !plan.is::<DistributedExec>() {
            let why = "it has no part that reads files";
            return Err(DataFusionError::NotImplemented(why.to_owned()));
        }
        sound::check(&plan)?;
        read_sets(&query, state.config_options()).await?;
        check(&plan, &writer, &context)?;
        let plan = fragments.bounded(plan, |node| node.is_network_boundary())?;
        Ok((plan, context))
    }
}

/// Checks that all stages below the first can be executed by other processes.
///
/// # Errors
///
/// One cannot.
fn check(plan: &Arc<dyn ExecutionPlan>, writer: &Writer, context: &TaskContext) -> Result<()> {
    plan.apply(|node| {
        // What is one task is executed here.
        if let Some(Stage::Local(stage)) = node.as_network_boundary().map(|own| own.input_stage())
            && stage.tasks > 1
        {
            writer.check(part(&stage.plan)?, context)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// A stage as one of its workers gets it: with the last part of each scan, and nothing of the stages below.
fn part(stage: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let part = Arc::clone(stage).transform_down(|node| {
        if node.is_network_boundary() {
            let partitions = node.output_partitioning().partition_count();
            let rows = EmptyExec::new(node.schema()).with_partitions(partitions);
            return Ok(Transformed::new(Arc::new(rows), true, TreeNodeRecursion::Jump));
        }
        let leaf = node.downcast_ref::<DistributedLeafExec>();
        Ok(match leaf.and_then(|leaf| leaf.variants().last()) {
            Some(part) => Transformed::yes(Arc::clone(part)),
            None => Transformed::no(node),
        })
    })?;
    Ok(part.data)
}

impl Distribution for Coordinator {
    fn bytes_min(&self) -> u64 {
        self.bytes_min
    }

    fn is_ready(&self) -> bool {
        self.members.live().urls.len() >= WORKERS_MIN
    }

    fn plan(&self, candidate: Candidate) -> BoxFuture<'_, Result<Planned>> {
        self.over_nodes(candidate).boxed()
    }

    fn display(&self, plan: &dyn ExecutionPlan) -> String {
        display_plan_ascii(plan, false)
    }

    fn generation(&self) -> u64 {
        self.members.live().generation
    }

    fn look_again(&self, since: u64) -> BoxFuture<'_, bool> {
        async move {
            self.members.look().await;
            self.generation() != since && self.is_ready()
        }
        .boxed()
    }
}

/// A planner for a plan that is there already.
#[derive(Debug)]
struct Given(Arc<dyn ExecutionPlan>);

#[async_trait]
impl QueryPlanner for Given {
    async fn create_physical_plan(
        &self,
        _: &LogicalPlan,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::clone(&self.0))
    }
}
