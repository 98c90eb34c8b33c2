//! Physical plans of a query: that of this node ([`physical`]), and that over several nodes ([`OverNodes`]).

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::display::{PlanType, StringifiedPlan};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::explain::ExplainExec;

use crate::events::histories::parts::{FoldExec, PartsOf};
use crate::events::{distinct_persons, keyed_persons};
use crate::guard;
use crate::kernel::distribution;
use crate::kernel::distribution::{Candidate, Distribution, Planned};

/// Which nodes may execute a query.
#[derive(Clone, Debug)]
pub(crate) enum Sharing {
    /// This one.
    Alone,
    /// Others may execute parts of it.
    Nodes,
    /// The same, and columns of the numbers of persons have their keys then.
    NodesWithKeys,
    /// The same, and they fold the rows: the batches are results of parts then.
    Folded(PartsOf),
}

/// The physical plan of a query, with the session that it is executed in and the optimized query.
pub(crate) async fn physical(
    mut state: SessionState,
    query: LogicalPlan,
) -> Result<(SessionState, Arc<dyn ExecutionPlan>, LogicalPlan)> {
    let rows_max = state.config().batch_size();
    let query = state.optimize(&query)?;
    let rows = guard::batch_rows(&query, rows_max)?;
    *state.config_mut() = state.config().clone().with_batch_size(rows);
    let plan = state.query_planner().create_physical_plan(&query, &state).await?;
    Ok((state, plan, query))
}

/// A query that may be executed over several nodes.
pub(crate) struct OverNodes {
    /// The nodes.
    pub(crate) distribution: Arc<dyn Distribution>,
    /// The session of the query.
    pub(crate) state: SessionState,
    /// The query.
    pub(crate) plan: LogicalPlan,
    /// How long each part may run.
    pub(crate) limit: Duration,
}

impl OverNodes {
    /// Whether the query, which this node would execute by a plan, reads enough for several nodes.
    pub(crate) fn is_large(&self, own: &Arc<dyn ExecutionPlan>) -> bool {
        distribution::file_bytes(own) >= self.distribution.bytes_min()
    }

    /// The plan over several nodes.
    ///
    /// # Errors
    ///
    /// There are not enough nodes, or it has a part that only this process can execute.
    pub(crate) async fn planned(self, sharing: &Sharing) -> Result<Planned> {
        let Self { distribution, state, plan, limit } = self;
        if distribution::has_scalar_subquery(&plan) {
            return Err(alone("it has a subquery as a value"));
        }
        let state = distribution::for_candidates(state);
        // Numbers of persons are those of one process.
        let keyed = keyed_persons::keyed(distinct_persons::of_keys(plan)?)?;
        let gives_keys = keyed.transformed && keyed_persons::gives_keys(&keyed.data);
        if gives_keys && matches!(sharing, Sharing::Nodes) {
            return Err(alone("its rows have numbers of persons"));
        }
        let (state, mut plan, query) = physical(state, keyed.data).await?;
        if let Sharing::Folded(fold) = sharing {
            let partitions = state.config().target_partitions();
            plan = FoldExec::over(plan, fold.clone(), partitions)?;
        }
        distribution.plan(Candidate { state, query, plan, limit }).await
    }

    /// An `EXPLAIN` that also tells the stages over several nodes, or why this node executes the query alone.
    ///
    /// # Errors
    ///
    /// The query cannot be planned.
    pub(crate) async fn explained(self, explained: &ExplainExec) -> Result<Arc<dyn ExecutionPlan>> {
        let mut texts = explained.stringified_plans().to_vec();
        if let LogicalPlan::Explain(explain) = &self.plan {
            let inner = LogicalPlan::clone(&explain.plan);
            let distribution = Arc::clone(&self.distribution);
            let (_, own, _) = physical(self.state.clone(), inner.clone()).await?;
            let text = match self.is_large(&own) {
                true => match (Self { plan: inner, ..self }).planned(&Sharing::Nodes).await {
                    Ok((plan, _)) => format!("over workers:\n{}", distribution.display(&*plan)),
                    Err(error) => format!("on this server alone: {}", error.strip_backtrace()),
                },
                false => "on this server alone: it reads too few bytes for workers".to_owned(),
            };
            texts.push(StringifiedPlan::new(PlanType::FinalPhysicalPlan, text));
        }
        let (schema, verbose) = (explained.schema(), explained.verbose());
        Ok(Arc::new(ExplainExec::new(schema, texts, verbose)))
    }
}

fn alone(why: &str) -> DataFusionError {
    DataFusionError::NotImplemented(why.to_owned())
}
