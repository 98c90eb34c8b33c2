//! Execution of a planned query: [`Engine::stream`], and [`Engine::rows`] for SQL. It runs on the query threads, within
//! limits of memory, time and concurrency, and is cancelled once its reader is gone.
//!
//! A plan that exceeds the query memory before its first batch is sent is planned again for little memory
//! ([`sparing`]), and only that second plan spills.

use std::sync::Arc;
use std::time::Duration;

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
use crate::kernel::lineage;
use crate::kernel::planners::broken_down;
use crate::kernel::sparing::sparing;
use weir_base::telemetry::metrics::{OutcomeLabels, PlaceLabels};
use weir_event::id::ProjectId;

/// Batches of a result that may be buffered for a slow reader.
const ANSWER_QUEUE: usize = 4;

/// The same of SQL, whose batches may have many megabytes.
const ROWS_QUEUE: usize = 2;

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

    /// Plans the SQL query of `project` in a slot of its caller, and starts to run it. The result may have any number of
    /// rows: batches are computed as fast as the reader takes them. Dropping the [`Answer`] cancels the query and frees
    /// its slot.
    ///
    /// The time limit is that of a query, until the reader extends it by [`Answer::extend`].
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; further errors may come with the batches.
    pub async fn rows(
        &self,
        project: ProjectId,
        planning: impl Future<Output = Result<DataFrame, QueryError>> + Send + 'static,
    ) -> Result<Answer, QueryError> {
        let planned = self.prepared(project, planning).await?;
        let schema =
            lineage::described(planned.query.logical_plan(), planned.query.schema().inner());
        let answer = self.begin_with(planned.query, Some(planned.permit), ROWS_QUEUE);
        Ok(Answer { schema, is_of_query: true, ..answer })
    }

    /// Starts to run `query` in the slot of `permit`; without a permit, in a slot that the caller holds.
    pub(crate) fn begin(&self, query: DataFrame, permit: Option<Permit>) -> Answer {
        self.begin_with(query, permit, ANSWER_QUEUE)
    }

    fn begin_with(&self, query: DataFrame, permit: Option<Permit>, queue: usize) -> Answer {
        let schema = Arc::clone(query.schema().inner());
        let (sender, batches) = mpsc::channel(queue);
        let shared = Arc::clone(&self.shared);
        let running = Running::within(&shared.clock, shared.settings.query_timeout);
        // A task inside a function call is not dropped before the call ends, so a flag stops the function.
        let stop = running.stopped_on_drop();
        let runtime = shared.runtime.clone();
        let task = spawned(&runtime, run(query, sender, shared, permit, running.clone()));
        let (engine, long, is_of_query) = (self.clone(), None, false);
        Answer {
            schema,
            batches,
            task: Some(task),
            engine,
            running,
            long,
            is_of_query,
            _stop: stop,
        }
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
    let _stop = running.stopped_on_drop();
    let outcome = tokio::select! {
        outcome = answer(query, &sender, &shared, &running) => outcome,
        limit = running.over() => Err(QueryError::Timeout(limit)),
    };
    let late = |limit: &Duration| shared.clock.monotonic().saturating_sub(began) >= *limit;
    let outcome = match (outcome, running.limit().filter(late)) {
        (Err(_), Some(limit)) => Err(QueryError::Timeout(limit)),
        (outcome, _) => outcome,
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
        // The reader may take longer than that for all of them.
        let limit = shared.settings.query_timeout;
        let next = |_| QueryError::Timeout(limit);
        while let Some(batch) = timeout(limit, batches.next()).await.map_err(next)? {
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
    engine: Engine,
    running: Running,
    /// The right to take as long as its reader.
    long: Option<Permit>,
    /// Whether the query was written by a client, whose fault errors are then.
    is_of_query: bool,
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
        let batch = match self.batches.recv().await {
            Some(batch) => Some(batch),
            // A task that panicked sends no error, and its result is incomplete.
            None => self.task.take()?.await.err().map(|error| Err(broken_down(error))),
        };
        match self.is_of_query {
            true => batch.map(|batch| batch.map_err(QueryError::of_query)),
            false => batch,
        }
    }

    /// Lets the query take as long as its reader takes to read the result, within `query-stream-timeout`, and
    /// `query-timeout` for each batch. For results that are too long to be in memory as a whole, before any of it is
    /// passed on: there may be only a few of them. Without an effect if it is called again.
    ///
    /// # Errors
    ///
    /// [`QueryError::Overloaded`]: there are as many of them as there may be.
    pub fn extend(&mut self) -> Result<(), QueryError> {
        if self.long.is_none() {
            self.long = Some(self.engine.long_permit()?);
            self.running.extend(self.engine.shared.settings.query_stream_timeout);
        }
        Ok(())
    }

    /// Waits until the time of the query is over, and returns its limit.
    pub(crate) fn over(&self) -> impl Future<Output = Duration> + Send + use<> {
        let running = self.running.clone();
        async move { running.over().await }
    }
}
