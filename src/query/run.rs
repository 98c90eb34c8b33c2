//! How a planned question runs: [`Engine::stream`]. On the query threads, within limits of memory, time and
//! number, and to its end only while somebody waits for it.
//!
//! A plan that exceeds the memory of queries before its first batch is sent is made again for little
//! memory ([`sparing`]), and only that one spills.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::query::admission::Permit;
use crate::query::admission::Work;
use crate::query::distinct_persons;
use crate::query::engine::Engine;
use crate::query::engine::Shared;
use crate::query::error::QueryError;
use crate::query::guard;
use crate::query::guard::Running;
use crate::query::sparing::sparing;
use crate::telemetry::metrics::OutcomeLabels;
use crate::telemetry::metrics::PlaceLabels;

/// Batches of an answer that may wait for a slow reader.
const ANSWER_QUEUE: usize = 4;

/// What a plan is optimized for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    Fast,
    Sparing,
}

impl Engine {
    /// Runs `question` to its end, with as many rows as it says: the caller bounds them.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn collect(
        &self,
        question: DataFrame,
    ) -> Result<(SchemaRef, Vec<RecordBatch>), QueryError> {
        self.stream(question).await?.gathered().await
    }

    /// The same in a slot of the kind that SQL takes: for what reads very many events, so that one slot is left
    /// for lists.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn compute(&self, question: DataFrame) -> Result<Vec<RecordBatch>, QueryError> {
        let permit = self.permit_for(Work::Sql).await?;
        let (_, batches) = self.begin(question, Some(permit)).gathered().await?;
        Ok(batches)
    }

    /// All batches of `question` if they are small; `None` if they have more rows or bytes than that.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn compute_small(
        &self,
        question: DataFrame,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Option<Vec<RecordBatch>>, QueryError> {
        let permit = self.permit_for(Work::Sql).await?;
        let mut answer = self.begin(question, Some(permit));
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

    /// Begins to run `question`. Dropping the answer ends the query.
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; more may come with the batches.
    pub async fn stream(&self, question: DataFrame) -> Result<Answer, QueryError> {
        let permit = self.permit().await?;
        Ok(self.begin(question, Some(permit)))
    }

    /// Begins to run `question` in its slot; without a permit, in one that the caller has.
    pub(super) fn begin(&self, question: DataFrame, permit: Option<Permit>) -> Answer {
        let schema = Arc::clone(question.schema().inner());
        let (sender, batches) = mpsc::channel(ANSWER_QUEUE);
        let task = run(question, sender, Arc::clone(&self.shared), permit);
        let task = Some(self.shared.runtime.spawn(task));
        Answer { schema, batches, task: AbortOnDrop(task) }
    }
}

/// Threads that plan. Planning computes for long and does not yield, so it has threads on which it holds
/// up nobody, with the stack of the threads of queries, for which
/// [`check`](crate::query::complexity::check) is made. One that takes too long goes on to its end with
/// nobody waiting for it; so there may be more of them than there are slots, up to a limit.
#[derive(Debug)]
pub(super) struct Planners {
    free: Arc<Semaphore>,
}

impl Planners {
    /// As many as there are queries at once, and as many again that nobody waits for.
    pub(super) fn new(queries_max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(queries_max.max(1).saturating_mul(2))) }
    }

    /// Does `planning` on a thread of its own.
    ///
    /// # Errors
    ///
    /// It fails, takes too long, or too many that take too long are under way.
    pub(super) async fn plan<T, E>(
        &self,
        runtime: &Handle,
        limit: Duration,
        planning: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, QueryError>
    where
        T: Send + 'static,
        E: Send + 'static,
        QueryError: From<E>,
    {
        let planner = Arc::clone(&self.free).try_acquire_owned();
        let planner: OwnedSemaphorePermit = planner
            .map_err(|_| QueryError::Overloaded("too many queries are still being planned"))?;
        let own = runtime.clone();
        let planning = runtime.spawn_blocking(move || {
            let _planner = planner;
            own.block_on(planning)
        });
        match timeout(limit, planning).await {
            Ok(planned) => Ok(planned.map_err(broken_down)??),
            Err(_) => Err(QueryError::Timeout(limit)),
        }
    }
}

async fn run(
    question: DataFrame,
    sender: mpsc::Sender<Result<RecordBatch, QueryError>>,
    shared: Arc<Shared>,
    permit: Option<Permit>,
) {
    let began = shared.clock.monotonic();
    let limit = shared.settings.query_timeout;
    let outcome = match timeout(limit, answer(question, &sender, &shared)).await {
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

/// Plans and runs, once more for little memory if that runs out before there is an answer.
async fn answer(
    question: DataFrame,
    sender: &mpsc::Sender<Result<RecordBatch, QueryError>>,
    shared: &Shared,
) -> Result<(), QueryError> {
    let (state, plan) = question.into_parts();
    let mut is_sent = false;
    let fast = attempt((state.clone(), plan.clone()), Effort::Fast, shared, (sender, &mut is_sent));
    match fast.await {
        Err(QueryError::Memory(error)) if !is_sent => {
            tracing::debug!(error, "a query is planned again for little memory");
            shared.metrics.queries_replanned.inc();
            attempt((state, plan), Effort::Sparing, shared, (sender, &mut is_sent)).await
        }
        outcome => outcome,
    }
}

async fn attempt(
    (mut state, plan): (SessionState, LogicalPlan),
    effort: Effort,
    shared: &Shared,
    (sender, is_sent): (&mpsc::Sender<Result<RecordBatch, QueryError>>, &mut bool),
) -> Result<(), QueryError> {
    let running = Running::default();
    let _stop = running.stopped_on_drop();
    let options = state.config_mut().options_mut();
    options.extensions.insert(running.clone());
    let limit = shared.settings.query_timeout;
    if effort == Effort::Sparing {
        state = sparing(state, &shared.spilling);
    }
    let planning = physical((state, plan), effort, running);
    let (plan, context) = shared.planners.plan(&shared.runtime, limit, planning).await?;
    let mut batches = execute_stream(plan, context)?;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        *is_sent = true;
        // A reader that hung up drops the answer, and this task with it.
        if sender.send(Ok(batch)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The plan that runs, and what it runs with.
async fn physical(
    (mut state, mut plan): (SessionState, LogicalPlan),
    effort: Effort,
    running: Running,
) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>), DataFusionError> {
    let rows_max = state.config().batch_size();
    running.set_planning(true);
    // Texts can be spilled, the table of numbers cannot.
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

/// The batches of an answer as they come.
#[derive(Debug)]
pub struct Answer {
    /// Columns of the batches.
    pub schema: SchemaRef,
    batches: mpsc::Receiver<Result<RecordBatch, QueryError>>,
    task: AbortOnDrop,
}

impl Answer {
    /// All batches, and their columns.
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
        // A task that broke down sends no error, and its answer is not whole.
        self.task.0.take()?.await.err().map(|error| Err(broken_down(error)))
    }
}

fn broken_down(error: JoinError) -> QueryError {
    QueryError::Internal(DataFusionError::ExecutionJoin(Box::new(error)))
}

#[derive(Debug)]
struct AbortOnDrop(Option<JoinHandle<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::Planners;
    use crate::query::error::QueryError;

    /// Longer than any of this takes.
    const LONG: Duration = Duration::from_secs(60);

    /// Goal: planning holds up no thread of queries, and ends for the caller with the time-out; what goes on
    /// without a caller is bounded. Method: it blocks until it is told to go on, and there is one thread.
    #[test]
    fn planning_holds_up_nobody() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (handle, planners) = (runtime.handle().clone(), Planners::new(1));
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (go_on, told) = mpsc::channel();
            let planning = async move { told.recv().map_err(|_| QueryError::Unavailable("gone")) };
            let outcome = planners.plan(&handle, Duration::from_millis(1), planning);
            let outcome = runtime.block_on(outcome);
            assert!(matches!(outcome, Err(QueryError::Timeout(_))), "{outcome:?}");
            ends.push(go_on);
        }
        let other = runtime.spawn(async { 7 });
        let other = runtime.block_on(async { tokio::time::timeout(LONG, other).await });
        assert!(matches!(other, Ok(Ok(7))), "the thread of queries is free: {other:?}");
        let plan = || planners.plan(&handle, LONG, async { Ok::<_, QueryError>(7) });
        let refused = runtime.block_on(plan());
        assert!(matches!(refused, Err(QueryError::Overloaded(_))), "{refused:?}");
        for go_on in ends {
            go_on.send(()).expect("it waits");
        }
        let freed = async { tokio::time::timeout(LONG, planners.free.acquire_many(2)).await };
        assert!(runtime.block_on(freed).is_ok(), "the threads end");
        assert!(matches!(runtime.block_on(plan()), Ok(7)));
    }

    #[test]
    fn what_planning_gives_is_the_answer() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        for (given, expected) in [(Ok(7), Some(7)), (Err(QueryError::TooManyRows(1)), None)] {
            let planners = Planners::new(1);
            let outcome = planners.plan(runtime.handle(), LONG, async move { given });
            let outcome = runtime.block_on(outcome);
            assert_eq!(outcome.as_ref().ok(), expected.as_ref(), "{outcome:?}");
        }
    }
}
