//! Execution of a planned query: [`Engine::stream`], and [`Engine::rows`] for SQL. It runs on the query threads, within
//! limits of memory, time and concurrency, and is cancelled once its reader is gone.
//!
//! A plan that exceeds the query memory before its first batch is sent is planned again for little memory
//! ([`sparing`]), and only that second plan spills.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::explain::ExplainExec;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::events::distinct_persons;
use crate::fragments::contained;
use crate::guard::{Running, StopFunctions};
use crate::kernel::admission::Permit;
use crate::kernel::apart::spawned;
use crate::kernel::distribution::{Distribution, Planned};
use crate::kernel::engine::{Engine, Shared};
use crate::kernel::error::QueryError;
use crate::kernel::physical::{OverNodes, Sharing, physical};
use crate::kernel::planners::broken_down;
use crate::kernel::sparing::sparing;
use crate::kernel::{admission, lineage};
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
        let permit = self.permit().await?;
        let schema = Arc::clone(query.schema().inner());
        let gathered = self.gathered_within(query, usize::MAX, usize::MAX).await;
        drop(permit);
        Ok((schema, gathered?.unwrap_or_default()))
    }

    /// All batches of `query` in a slot that the caller holds; `None` if they have more rows or bytes than given. What fails
    /// when other nodes execute parts of it is run again by this node alone.
    async fn gathered_within(
        &self,
        query: DataFrame,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Option<Vec<RecordBatch>>, QueryError> {
        let mut answer = self.begin(query.clone(), None);
        match answer.gathered_within(rows_max, bytes_max).await {
            Err(error) if answer.may_run_alone(&error) => {
                drop(answer);
                let alone = self.begin_alone(query).gathered_within(rows_max, bytes_max).await?;
                note_failure(&self.shared, &error.to_string());
                Ok(alone)
            }
            gathered => gathered,
        }
    }

    /// The same in a slot of the kind that SQL takes, for queries that read very many events, so that one slot is left
    /// for lists.
    pub async fn compute(&self, query: DataFrame) -> Result<Vec<RecordBatch>, QueryError> {
        let permit = self.permit_for(admission::Work::Sql).await?;
        let gathered = self.gathered_within(query, usize::MAX, usize::MAX).await;
        drop(permit);
        Ok(gathered?.unwrap_or_default())
    }

    /// All batches of `query` if the result is small; `None` if it has more rows or bytes than given.
    pub async fn compute_small(
        &self,
        query: DataFrame,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Option<Vec<RecordBatch>>, QueryError> {
        let permit = self.permit_for(admission::Work::Sql).await?;
        let gathered = self.gathered_within(query, rows_max, bytes_max).await;
        drop(permit);
        gathered
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
        let (query, permit) = (planned.query, Some(planned.permit));
        let answer = self.begin_with(query, permit, ROWS_QUEUE, Sharing::Nodes);
        Ok(Answer { schema, is_of_query: true, ..answer })
    }

    /// Starts to run `query` in the slot of `permit`; without a permit, in a slot that the caller holds.
    pub(crate) fn begin(&self, query: DataFrame, permit: Option<Permit>) -> Answer {
        self.begin_with(query, permit, ANSWER_QUEUE, Sharing::Nodes)
    }

    /// The same in a slot that the caller holds.
    pub(crate) fn begin_shared(&self, query: DataFrame, sharing: Sharing) -> Answer {
        self.begin_with(query, None, ANSWER_QUEUE, sharing)
    }

    /// The same on this node alone.
    pub(crate) fn begin_alone(&self, query: DataFrame) -> Answer {
        self.begin_shared(query, Sharing::Alone)
    }

    fn begin_with(
        &self,
        query: DataFrame,
        permit: Option<Permit>,
        queue: usize,
        sharing: Sharing,
    ) -> Answer {
        let schema = Arc::clone(query.schema().inner());
        let (sender, batches) = mpsc::channel(queue);
        let shared = Arc::clone(&self.shared);
        let running = Running::within(&shared.clock, shared.settings.query_timeout);
        // A task inside a function call is not dropped before the call ends, so a flag stops the function.
        let stop = running.stopped_on_drop();
        let runtime = shared.runtime.clone();
        let nodes = Nodes { sharing, are_others: Arc::default() };
        let work = Work { query, nodes: nodes.clone(), running: running.clone() };
        let task = spawned(&runtime, run(work, sender, shared, permit));
        let (engine, long, is_of_query) = (self.clone(), None, false);
        Answer {
            schema,
            batches,
            task: Some(task),
            engine,
            running,
            long,
            is_of_query,
            nodes,
            _stop: stop,
        }
    }
}

/// A query to be run.
struct Work {
    query: DataFrame,
    nodes: Nodes,
    running: Running,
}

async fn run(
    work: Work,
    sender: mpsc::Sender<Result<RecordBatch, QueryError>>,
    shared: Arc<Shared>,
    permit: Option<Permit>,
) {
    let Work { query, nodes, running } = work;
    let began = shared.clock.monotonic();
    let _stop = running.stopped_on_drop();
    let outcome = tokio::select! {
        outcome = answer(query, &sender, &shared, &running, &nodes) => outcome,
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

/// Plans and runs, over several nodes if the query is large. What fails there before the first batch is sent is tried
/// once more if a node was lost, and then run by this process. If memory runs out before the first batch is sent, the
/// query is planned once more for little memory.
async fn answer(
    query: DataFrame,
    sender: &mpsc::Sender<Result<RecordBatch, QueryError>>,
    shared: &Shared,
    running: &Running,
    nodes: &Nodes,
) -> Result<(), QueryError> {
    let (state, plan) = query.into_parts();
    let attempt = |effort, distribution: Option<&Arc<dyn Distribution>>| Attempt {
        state: state.clone(),
        plan: plan.clone(),
        effort,
        running: running.attempt(),
        distribution: distribution.cloned(),
        sharing: nodes.sharing.clone(),
    };
    let may_be_others = !matches!(nodes.sharing, Sharing::Alone);
    let others = shared.distribution.as_ref().filter(|others| may_be_others && others.is_ready());
    let generation = others.map(|others| others.generation());
    let mut reached = Reached::default();
    let mut outcome = attempt(Effort::Fast, others).run(shared, sender, &mut reached).await;
    nodes.note(reached);
    for is_last in [false, true] {
        let Err(error) = &outcome else { return Ok(()) };
        if !reached.is_distributed || reached.is_sent || error.is_final() {
            break;
        }
        let why = error.to_string();
        let again = match others.zip(generation) {
            Some((others, since)) if !is_last && others.look_again(since).await => Some(others),
            _ => None,
        };
        reached = Reached::default();
        outcome = attempt(Effort::Fast, again).run(shared, sender, &mut reached).await;
        nodes.note(reached);
        if outcome.is_ok() {
            note_failure(shared, &why);
        }
    }
    match outcome {
        Err(QueryError::Memory(error)) if !reached.is_sent => {
            tracing::debug!(error, "a query is planned again for little memory");
            shared.metrics.queries_replanned.inc();
            attempt(Effort::Sparing, None).run(shared, sender, &mut reached).await
        }
        outcome => outcome,
    }
}

/// Notes a query that failed over several nodes, and succeeded when it was run again.
pub(crate) fn note_failure(shared: &Shared, why: &str) {
    tracing::warn!(why, "a query over several nodes failed, and was run again");
    shared.metrics.cluster.queries_failed.inc();
}

/// Where a query may run, and where it does.
#[derive(Clone, Debug)]
struct Nodes {
    sharing: Sharing,
    /// Whether others execute parts of it.
    are_others: Arc<AtomicBool>,
}

impl Nodes {
    fn note(&self, reached: Reached) {
        self.are_others.store(reached.is_distributed, Ordering::Relaxed);
    }
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    /// Whether it runs over several nodes.
    is_distributed: bool,
    /// Whether a batch has been sent.
    is_sent: bool,
}

/// One attempt to plan and run the query.
struct Attempt {
    state: SessionState,
    plan: LogicalPlan,
    effort: Effort,
    running: Running,
    /// Other nodes, if they may execute parts of it.
    distribution: Option<Arc<dyn Distribution>>,
    /// What the plan over other nodes may give.
    sharing: Sharing,
}

impl Attempt {
    /// Plans and runs, and notes how far it comes.
    async fn run(
        mut self,
        shared: &Shared,
        sender: &mpsc::Sender<Result<RecordBatch, QueryError>>,
        reached: &mut Reached,
    ) -> Result<(), QueryError> {
        let _stop = self.running.stopped_on_drop();
        let options = self.state.config_mut().options_mut();
        options.extensions.insert(self.running.clone());
        if self.effort == Effort::Sparing {
            self.state = sparing(self.state, &shared.spilling);
        }
        let limit = shared.settings.query_timeout;
        // Its reader may take longer; parts of it end with it.
        let longest = limit.max(shared.settings.query_stream_timeout);
        let physical = shared.planning.plan(self.physical(longest)).await?;
        reached.is_distributed = physical.is_distributed;
        if physical.is_refused {
            shared.metrics.cluster.queries_local.inc();
        }
        let (plan, context) = physical.planned;
        let mut batches = match physical.is_distributed {
            true => {
                shared.metrics.cluster.queries.inc();
                contained(execute_stream(plan, context)?)
            }
            false => execute_stream(plan, context)?,
        };
        // The reader may take longer than that for all of them.
        let next = |_| QueryError::Timeout(limit);
        // An error may follow the last rows of several nodes: one batch is held back, so that a short answer is whole.
        let mut held = None;
        while let Some(batch) = timeout(limit, batches.next()).await.map_err(next)? {
            let batch = batch?;
            let ready = match physical.is_distributed {
                true => held.replace(batch),
                false => Some(batch),
            };
            let Some(batch) = ready else { continue };
            reached.is_sent = true;
            // A reader that hung up drops the [`Answer`], and this task with it.
            if sender.send(Ok(batch)).await.is_err() {
                return Ok(());
            }
        }
        if let Some(batch) = held {
            reached.is_sent = true;
            let _ = sender.send(Ok(batch)).await;
        }
        Ok(())
    }

    /// The physical plan and its task context. Over several nodes if there are others that may execute parts of it and it
    /// reads enough; `limit` is the time that each of these parts may run.
    async fn physical(self, limit: Duration) -> Result<Physical, DataFusionError> {
        let Self { state, plan, effort, running, distribution, sharing } = self;
        running.set_planning(true);
        let over_nodes = distribution.map(|distribution| OverNodes {
            distribution,
            state: state.clone(),
            plan: plan.clone(),
            limit,
        });
        // Sets of texts can be spilled, the hash table of numbers cannot.
        let numbered = match effort {
            Effort::Fast => distinct_persons::of_numbers(plan, &state)?,
            Effort::Sparing => plan,
        };
        let (own, mut own_plan, _) = physical(state, numbered).await?;
        let (mut planned, mut is_refused) = (None, false);
        if let Some(over_nodes) = over_nodes {
            if let Some(explained) = own_plan.downcast_ref::<ExplainExec>() {
                own_plan = over_nodes.explained(explained).await?;
            } else if over_nodes.is_large(&own_plan) {
                let made = over_nodes.planned(&sharing).await;
                is_refused = made.is_err();
                let why = |error: &DataFusionError| {
                    tracing::debug!(%error, "a large query has no plan over several nodes");
                };
                planned = made.inspect_err(why).ok();
            }
        }
        running.set_planning(false);
        Ok(match planned {
            Some(planned) => Physical { planned, is_distributed: true, is_refused },
            None => {
                let planned = (own_plan, own.task_ctx());
                Physical { planned, is_distributed: false, is_refused }
            }
        })
    }
}

/// A physical plan, with its context.
struct Physical {
    planned: Planned,
    is_distributed: bool,
    /// Whether it is large, but only this process can execute it.
    is_refused: bool,
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
    nodes: Nodes,
    _stop: StopFunctions,
}

impl Answer {
    /// All batches; `None` if they have more rows or bytes than given.
    async fn gathered_within(
        &mut self,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Option<Vec<RecordBatch>>, QueryError> {
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0_usize, 0_usize);
        while let Some(batch) = self.next().await {
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

    /// Whether what has failed with this error may succeed on this node alone: others execute parts of it.
    pub(crate) fn may_run_alone(&self, error: &QueryError) -> bool {
        self.nodes.are_others.load(Ordering::Relaxed) && !error.is_final()
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
