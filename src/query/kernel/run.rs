//! Execution of a planned query: [`Engine::stream`]. It runs on the query threads, within limits of memory, time and
//! concurrency, and is cancelled once its reader is gone.
//!
//! A plan that exceeds the query memory before its first batch is sent is planned again for little memory
//! ([`sparing`]), and only that second plan spills.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::events::distinct_persons;
use crate::guard;
use crate::guard::{Running, StopFunctions};
use crate::kernel::admission::{Permit, Work};
use crate::kernel::apart::spawned;
use crate::kernel::engine::{Engine, Shared};
use crate::kernel::error::QueryError;
use crate::kernel::planners::broken_down;
use crate::kernel::sparing::sparing;
use weir_base::telemetry::metrics::{OutcomeLabels, PlaceLabels};

/// Batches of a result that may be buffered for a slow reader.
const ANSWER_QUEUE: usize = 4;

/// What a plan is optimized for: speed or little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    Fast,
    Sparing,
}

impl Engine {
    /// Runs `query` to its end, and returns all of its rows: the caller must bound their number.
    pub async fn collect(
        &self,
        query: DataFrame,
    ) -> Result<(SchemaRef, Vec<RecordBatch>), QueryError> {
        self.stream(query).await?.gathered().await
    }

    /// The same in a slot of the kind that SQL takes, for queries that read very many events, so that one slot is left
    /// for lists.
    pub async fn compute(&self, query: DataFrame) -> Result<Vec<RecordBatch>, QueryError> {
        let permit = self.permit_for(Work::Sql).await?;
        let (_, batches) = self.begin(query, Some(permit)).gathered().await?;
        Ok(batches)
    }

    /// All batches of `query` if the result is small; `None` if it has more rows or bytes than given.
    pub async fn compute_small(
        &self,
        query: DataFrame,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Option<Vec<RecordBatch>>, QueryError> {
        let permit = self.permit_for(Work::Sql).await?;
        let mut answer = self.begin(query, Some(permit));
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0_usize, 0_usize);
        while let Some(batch) = answer.next().await {
            let batch = batch?;
            rows = rows.saturating_add(batch.num_rows());
            bytes = bytes.saturating_add(batch.get_array_memory_size());
            if rows > rows_max || bytes > bytes_max {
                return Ok(None);
            }
            batches.push(batch);
        }
        Ok(Some(batches))
    }

    /// Starts to run `query`. Dropping the [`Answer`] cancels the query.
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; further errors may come with the batches.
    pub async fn stream(&self, query: DataFrame) -> Result<Answer, QueryError> {
        let permit = self.permit().await?;
        Ok(self.begin(query, Some(permit)))
    }

    /// Starts to run `query` in the slot of `permit`; without a permit, in a slot that the caller holds.
    pub(crate) fn begin(&self, query: DataFrame, permit: Option<Permit>) -> Answer {
        let schema = Arc::clone(query.schema().inner());
        let (sender, batches) = mpsc::channel(ANSWER_QUEUE);
        let shared = Arc::clone(&self.shared);
        let running = Running::within(&shared.clock, shared.settings.query_timeout);
        // A task inside a function call is not dropped before the call ends, so a flag stops the function.
        let stop = running.stopped_on_drop();
        let runtime = shared.runtime.clone();
        let task = spawned(&runtime, run(query, sender, shared, permit, running));
        Answer { schema, batches, task: Some(task), _stop: stop }
    }
}

async fn run(
    query: DataFrame,
    sender: mpsc::Sender<Result<RecordBatch, QueryError>>,
    shared: Arc<Shared>,
    permit: Option<Permit>,
    running: Running,
) {
    let began = shared.clock.monotonic();
    let limit = shared.settings.query_timeout;
    let _stop = running.stopped_on_drop();
    let outcome = match timeout(limit, answer(query, &sender, &shared, &running)).await {
        Ok(Err(_)) if shared.clock.monotonic().saturating_sub(began) >= limit => {
            Err(QueryError::Timeout(limit))
        }
        Ok(outcome) => outcome,
        Err(_) => Err(QueryError::Timeout(limit)),
    };
    drop(permit);
    let label = outcome.as_ref().map_or_else(QueryError::outcome, |()| "ok");
    shared.metrics.queries.get_or_create(&OutcomeLabels { outcome: label }).inc();
    let took = shared.clock.monotonic().saturating_sub(began);
    shared.metrics.query_seconds.observe(took.as_secs_f64());
    if let Err(error) = outcome {
        if let QueryError::Damaged(damage) = &error {
            shared.metrics.corruptions.get_or_create(&PlaceLabels { place: "table" }).inc();
            tracing::error!(damage, "a query needs a data file that is missing or damaged");
        }
        let _ = sender.send(Err(error)).await;
    }
}

/// Plans and runs; if memory runs out before the first batch is sent, does so once more for little memory.
async fn answer(
    query: DataFrame,
    sender: &mpsc::Sender<Result<RecordBatch, QueryError>>,
    shared: &Shared,
    running: &Running,
) -> Result<(), QueryError> {
    let (state, plan) = query.into_parts();
    let mut is_sent = false;
    let fast = Attempt {
        state: state.clone(),
        plan: plan.clone(),
        effort: Effort::Fast,
        running: running.attempt(),
    };
    match fast.run(shared, sender, &mut is_sent).await {
        Err(QueryError::Memory(error)) if !is_sent => {
            tracing::debug!(error, "a query is planned again for little memory");
            shared.metrics.queries_replanned.inc();
            let running = running.attempt();
            let sparing = Attempt { state, plan, effort: Effort::Sparing, running };
            sparing.run(shared, sender, &mut is_sent).await
        }
        outcome => outcome,
    }
}

/// One attempt to plan and run the query.
struct Attempt {
    state: SessionState,
    plan: LogicalPlan,
    effort: Effort,
    running: Running,
}

impl Attempt {
    /// Plans and runs. Sets `is_sent` once a batch has been sent.
    async fn run(
        mut self,
        shared: &Shared,
        sender: &mpsc::Sender<Result<RecordBatch, QueryError>>,
        is_sent: &mut bool,
    ) -> Result<(), QueryError> {
        let _stop = self.running.stopped_on_drop();
        let options = self.state.config_mut().options_mut();
        options.extensions.insert(self.running.clone());
        if self.effort == Effort::Sparing {
            self.state = sparing(self.state, &shared.spilling);
        }
        let (plan, context) = shared.planning.plan(self.physical()).await?;
        let mut batches = execute_stream(plan, context)?;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            *is_sent = true;
            // A reader that hung up drops the [`Answer`], and this task with it.
            if sender.send(Ok(batch)).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// The physical plan and its task context.
    async fn physical(self) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>), DataFusionError> {
        let Self { mut state, mut plan, effort, running } = self;
        let rows_max = state.config().batch_size();
        running.set_planning(true);
        // Sets of texts can be spilled, the hash table of numbers cannot.
        if effort == Effort::Fast {
            plan = distinct_persons::of_numbers(plan, &state)?;
        }
        let plan = state.optimize(&plan)?;
        let rows = guard::batch_rows(&plan, rows_max)?;
        *state.config_mut() = state.config().clone().with_batch_size(rows);
        let plan = state.query_planner().create_physical_plan(&plan, &state).await?;
        running.set_planning(false);
        Ok((plan, state.task_ctx()))
    }
}

/// The batches of a result as a stream.
#[derive(Debug)]
pub struct Answer {
    /// Columns of the batches.
    pub schema: SchemaRef,
    batches: mpsc::Receiver<Result<RecordBatch, QueryError>>,
    task: Option<SpawnedTask<()>>,
    _stop: StopFunctions,
}

impl Answer {
    /// All batches, and their schema.
    async fn gathered(mut self) -> Result<(SchemaRef, Vec<RecordBatch>), QueryError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok((self.schema, batches))
    }

    /// The next batch; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<RecordBatch, QueryError>> {
        if let Some(batch) = self.batches.recv().await {
            return Some(batch);
        }
        // A task that panicked sends no error, and its result is incomplete.
        self.task.take()?.await.err().map(|error| Err(broken_down(error)))
    }
}
