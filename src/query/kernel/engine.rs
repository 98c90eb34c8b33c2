//! The query engine of the read path: [`Engine`]. It waits until a query can read its own writes, acquires a slot for
//! it, and runs it on the query threads: SQL, plans, or a function that reads the identity store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use tokio::runtime::Handle;

use crate::fragments::FragmentRuntime;
use crate::guard::{Pools, Running};
use crate::kernel::admission::{Admission, Caller, Permit, Work};
use crate::kernel::distribution::{Distribute, Distribution};
use crate::kernel::error::{QueryError, given_up};
use crate::kernel::planners::Planning;
use crate::kernel::resources::Resources;
use crate::kernel::run::Answer;
use crate::kernel::sources::Sources;
use crate::kernel::stop::StopOnDrop;
use crate::kernel::usage::Usage;
use crate::kernel::view::{State, View};
use crate::kernel::{cacheable, explain, run, session, usage};
use crate::output::format::Format;
use crate::output::lists;
use crate::output::lists::{Layout, Lists, Took};
use crate::output::rows::{Gathered, Size, Text};
use weir_base::clock::{Clock, UnixMicros};
use weir_base::config::query::QueryConfig;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::store::Identities;
use weir_identity::view::View as IdentityView;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_progress::Progress;
use weir_progress::barrier::ReadBarrier;

/// A cheap handle on the engine, for the queries of one caller; clones share the engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    caller: Caller,
    held: Option<Arc<Held>>,
}

/// Snapshot of a project that several related queries share. It pins files and rows that have been replaced since, so
/// it expires after the time limit of one query.
struct Held {
    project: ProjectId,
    state: State,
    /// The project's newest change before the snapshot was taken.
    latest: u64,
    at: UnixMicros,
    /// Expiry, by the monotonic clock.
    ends: Duration,
}

pub(crate) struct Shared {
    pub(crate) settings: QueryConfig,
    pub(crate) barrier: ReadBarrier,
    pub(crate) sources: Sources,
    pub(crate) runtime: Handle,
    pub(crate) base: SessionState,
    /// An environment with spill files, which only plans of one partition may use.
    pub(crate) spilling: Arc<RuntimeEnv>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) planning: Planning,
    pub(crate) pools: Pools,
    pub(crate) usage: Usage,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    /// Other nodes that execute parts of large queries, if there are any.
    pub(crate) distribution: Option<Arc<dyn Distribution>>,
}

/// What an engine runs on.
#[derive(Debug)]
pub struct Foundations {
    /// Runs queries; should be dedicated to them, since they are CPU-bound.
    pub runtime: Handle,
    /// Bounds the queries of all engines together.
    pub resources: Resources,
    /// Time.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine over `sources`. `distribute` gives it the nodes that execute parts of large queries.
    ///
    /// # Errors
    ///
    /// DataFusion refuses the settings.
    pub fn new(
        settings: QueryConfig,
        sources: Sources,
        Foundations { runtime, resources, clock, metrics }: Foundations,
        distribute: Option<Distribute>,
    ) -> Result<Self, QueryError> {
        let (files, threads) = (sources.store.table().store(), runtime.metrics().num_workers());
        let (base, spilling) =
            session::base(&settings, &resources, files.clone(), sources.spill.as_deref(), threads)?;
        let Resources { pools, admission, planners, .. } = resources;
        let distribution = distribute.map(|distribute| {
            let runtime = FragmentRuntime::over(base.clone(), files, pools.clone(), clock.clone());
            distribute.make(runtime)
        });
        let planning = Planning::new(planners, runtime.clone(), settings.query_timeout);
        let barrier = ReadBarrier::new(
            sources.identities.clone(),
            sources.progress.clone(),
            settings.query_timeout,
        );
        let shared = Shared {
            settings,
            barrier,
            sources,
            runtime,
            base,
            spilling,
            admission,
            planning,
            pools,
            usage: Usage::default(),
            clock,
            metrics,
            distribution,
        };
        Ok(Self { shared: Arc::new(shared), caller: Caller::Operator, held: None })
    }

    /// The same engine for the queries of `caller`.
    pub fn on_behalf_of(&self, caller: Caller) -> Self {
        Self { shared: Arc::clone(&self.shared), caller, held: self.held.clone() }
    }

    /// The same engine, with a snapshot of `project` as of now for all of its views, for at most the time limit of one
    /// query: several queries see the same state, whatever is written between them. List reads ([`Engine::read`]) do
    /// not use the snapshot.
    pub async fn holding(&self, project: ProjectId) -> Result<Self, QueryError> {
        let Shared { settings, sources, clock, .. } = &*self.shared;
        // Both are read before the snapshot: a change between makes it look older than it is.
        let (latest, at) = (self.latest_of(project), clock.now());
        self.wait().await?;
        let state = State::of(sources, at);
        let ends = clock.monotonic().saturating_add(settings.query_timeout);
        let held = Some(Arc::new(Held { project, state, latest, at, ends }));
        Ok(Self { shared: Arc::clone(&self.shared), caller: self.caller, held })
    }

    /// The snapshot of a project, if one is held and not expired.
    fn held(&self, project: ProjectId) -> Option<&Held> {
        let held = self.held.as_deref().filter(|held| held.project == project);
        held.filter(|held| self.shared.clock.monotonic() < held.ends)
    }

    /// The tables of `project` as of every event acknowledged before this call.
    ///
    /// # Errors
    ///
    /// Within the query time limit, the records that were in the log at start were not published, or the identity store
    /// did not catch up.
    pub async fn view(&self, project: ProjectId) -> Result<View, QueryError> {
        let Shared { sources, base, planning, .. } = &*self.shared;
        if let Some(held) = self.held(project) {
            return View::of(base, planning, sources, project, held.state.clone());
        }
        self.wait().await?;
        View::of(base, planning, sources, project, State::of(sources, self.shared.clock.now()))
    }

    /// Runs the query that `planning` plans for `project`, and returns its rows as JSON lists.
    pub async fn lists(
        &self,
        project: ProjectId,
        planning: impl Future<Output = Result<DataFrame, QueryError>> + Send + 'static,
        layout: Layout,
    ) -> Result<Lists, QueryError> {
        let clock = &self.shared.clock;
        let began = clock.monotonic();
        let planned = self.prepared(project, planning).await?;
        let planned_at = clock.monotonic();
        let (is_cacheable, events) =
            (planned.is_cacheable, planned.events.iter().cloned().collect());
        let answer = self.gathered(planned).await.map_err(QueryError::of_query)?;
        let ended = clock.monotonic();
        let took = Took {
            planning: planned_at.saturating_sub(began),
            execution: ended.saturating_sub(planned_at),
        };
        let pool = Arc::clone(&self.shared.pools.rows);
        let (columns, types) = layout.head(&answer.schema);
        let has_more = answer.size.rows() >= layout.more_from;
        // Cells may require reads from disk.
        let writing = self.on_a_thread(move |stop| {
            let GatheredRows { schema, batches, size, held } = answer;
            let written = || -> Result<Bytes, QueryError> {
                let mut text = Text::new(&pool, size.bytes(Format::Json))?;
                let is_stopped = || stop.load(Ordering::Relaxed);
                match lists::write(&schema, &batches, &layout, is_stopped, &mut text) {
                    Err(_) if text.is_exhausted() => Err(too_long()),
                    written => written.map(|()| text.into_bytes()),
                }
            };
            let written = written();
            drop(held);
            Ok(written)
        });
        let rows = writing.await??;
        Ok(Lists { columns, types, rows, has_more, is_cacheable, events, took })
    }

    /// Plans on a planner thread, once one is free and within the time limit of a query.
    pub async fn planned<T: Send + 'static>(
        &self,
        planning: impl Future<Output = Result<T, QueryError>> + Send + 'static,
    ) -> Result<T, QueryError> {
        self.shared.planning.plan_in_turn(planning).await.map_err(QueryError::of_query)
    }

    /// Acquires a slot, and plans the query as its caller is permitted to run it.
    pub(crate) async fn prepared(
        &self,
        project: ProjectId,
        planning: impl Future<Output = Result<DataFrame, QueryError>> + Send + 'static,
    ) -> Result<Planned, QueryError> {
        let caller = self.caller;
        let limit = self.shared.settings.query_timeout;
        let permit = self.shared.admission.permit(caller, Work::Sql, limit).await?;
        let running = Running::default();
        let stop = running.stopped_on_drop();
        let planning = async move {
            let query = planning.await?;
            let events = usage::events_named(query.logical_plan());
            let is_cacheable = cacheable::is_cacheable(query.logical_plan())?;
            Ok::<_, QueryError>((explain::permitted(query, caller, running)?, events, is_cacheable))
        };
        let planned = self.shared.planning.plan(planning).await;
        drop(stop);
        let (query, events, is_cacheable) = planned.map_err(QueryError::of_query)?;
        self.note_events_named(project, events.iter().map(String::as_str));
        Ok(Planned { query, permit, events, is_cacheable })
    }

    /// All rows of a result, which may have `query-rows-max`. Their memory is accounted in the pool of all queries.
    pub(crate) async fn gathered(&self, planned: Planned) -> Result<GatheredRows, QueryError> {
        let Planned { mut query, permit, .. } = planned;
        let rows_max = self.shared.settings.query_rows_max;
        // EXPLAIN must remain the root of its plan, and returns only a few rows.
        if !explain::is_explained(query.logical_plan()) {
            // One row more than the limit, so that a result that exceeds it is detected instead of silently truncated.
            query = query.limit(0, Some(rows_max.saturating_add(1)))?;
        }
        let mut answer = self.begin(query.clone(), None);
        let mut gathered = self.gather(&mut answer, rows_max).await;
        // Nothing of it has been used.
        if let Err(error) = &gathered
            && answer.may_run_alone(error)
        {
            let why = error.to_string();
            drop(answer);
            answer = self.begin_alone(query);
            gathered = self.gather(&mut answer, rows_max).await;
            if gathered.is_ok() {
                run::note_failure(&self.shared, &why);
            }
        }
        let (batches, size, reserved) = gathered?;
        let (schema, held) = (Arc::clone(&answer.schema), (permit, reserved));
        Ok(GatheredRows { schema, batches, size, held })
    }

    async fn gather(
        &self,
        answer: &mut Answer,
        rows_max: usize,
    ) -> Result<(Vec<RecordBatch>, Size, Gathered), QueryError> {
        let mut reserved = Gathered::new(&self.shared.pools.rows);
        let (mut batches, mut size) = (Vec::new(), Size::default());
        while let Some(batch) = answer.next().await {
            let batch = batch?;
            size.add(&batch);
            if size.rows() > rows_max {
                return Err(QueryError::TooManyRowsOfSql(rows_max));
            }
            reserved.add(&batch)?;
            batches.push(batch);
        }
        Ok((batches, size, reserved))
    }

    /// Waits until every event acknowledged before the call can be read.
    ///
    /// # Errors
    ///
    /// It did not happen within the query time limit.
    pub async fn wait(&self) -> Result<(), QueryError> {
        Ok(self.shared.barrier.wait().await?)
    }

    /// The barrier of [`Engine::wait`], for callers that read persons without a query.
    pub fn barrier(&self) -> &ReadBarrier {
        &self.shared.barrier
    }

    /// Reads a fresh snapshot of the persons, with every event acknowledged before the call, on a thread that may block
    /// on disk reads. `work` must end early once the flag is set: the client is gone, or the query time limit is over.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(IdentityView, &AtomicBool) -> Result<T, IdentityError> + Send + 'static,
    ) -> Result<T, QueryError> {
        self.wait().await?;
        let permit = self.permit().await?;
        let identities = self.identities().clone();
        let work = move |stop: &AtomicBool| {
            let _permit = permit;
            work(identities.view(), stop)
        };
        self.on_a_thread(work).await
    }

    /// Runs work that may block on disk reads. The flag is set once the caller is gone, or the query time limit is
    /// over.
    pub(crate) async fn on_a_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, IdentityError> + Send + 'static,
    ) -> Result<T, QueryError> {
        let stop = StopOnDrop::default();
        let flag = Arc::clone(&stop.0);
        let work = self.shared.runtime.spawn_blocking(move || work(&flag));
        let limit = self.shared.settings.query_timeout;
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(done)) => Ok(done?),
            Ok(Err(error)) => Err(given_up(error)),
            Err(_) => Err(QueryError::Timeout(limit)),
        }
    }

    /// Acquires the right to run one list or look-up; waits for at most the query time limit.
    pub(crate) async fn permit(&self) -> Result<Permit, QueryError> {
        self.permit_for(Work::List).await
    }

    /// Acquires the right to run one query of a kind; waits for at most the query time limit.
    pub(crate) async fn permit_for(&self, work: Work) -> Result<Permit, QueryError> {
        let limit = self.shared.settings.query_timeout;
        self.shared.admission.permit(self.caller, work, limit).await
    }

    /// The right to an answer that takes as long as its reader.
    ///
    /// # Errors
    ///
    /// There are as many of them as there may be.
    pub(crate) fn long_permit(&self) -> Result<Permit, QueryError> {
        self.shared.admission.long(self.caller)
    }

    /// Runs `work`, which may include several queries, within the time limit of one.
    ///
    /// # Errors
    ///
    /// It takes longer; dropping it cancels its queries.
    pub async fn within_time<T>(&self, work: impl Future<Output = T>) -> Result<T, QueryError> {
        let limit = self.shared.settings.query_timeout;
        let done = tokio::time::timeout(limit, work).await;
        done.map_err(|_| QueryError::Timeout(limit))
    }

    /// Records that a query names these events; each counts once.
    pub fn note_events_named<'n>(
        &self,
        project: ProjectId,
        names: impl IntoIterator<Item = &'n str>,
    ) {
        self.shared.usage.note(project, names, self.now());
    }

    /// Writes the counts of events named in queries since the last write.
    ///
    /// # Errors
    ///
    /// The store failed; the counts are kept for the next write.
    pub async fn write_usage(&self) -> Result<(), MetadataError> {
        self.shared.usage.write(self.metadata()).await
    }

    /// Maximum rows of a result.
    pub fn rows_max(&self) -> usize {
        self.shared.settings.query_rows_max
    }

    /// Sequence number of the newest change of a project's events, persons and groups: while it stays the same, so do
    /// these. 0 if there was none since the start. [`Engine::wait`] waits until every change up to a number returned
    /// here can be read.
    pub fn latest_of(&self, project: ProjectId) -> u64 {
        if let Some(held) = self.held(project) {
            return held.latest;
        }
        match &self.shared.sources.progress {
            Progress::Live { latest, .. } => latest.of(project.0).0,
            Progress::Still => 0,
        }
    }

    /// The time before which no event of the project is kept, if there is one.
    pub fn kept_from(&self, project: ProjectId) -> Option<UnixMicros> {
        self.metadata().snapshot().project(project)?.kept_from(self.now())
    }

    /// The time of the server's clock; while a snapshot is held, the time at which it was taken.
    pub fn now(&self) -> UnixMicros {
        let held = self.held.as_ref().and_then(|held| self.held(held.project));
        held.map_or_else(|| self.shared.clock.now(), |held| held.at)
    }

    /// The time of a monotonic clock.
    pub fn monotonic(&self) -> Duration {
        self.shared.clock.monotonic()
    }

    /// Persons and groups of a project, as its views see them.
    pub fn persons(&self, project: ProjectId) -> Arc<IdentityView> {
        match self.held(project) {
            Some(held) => Arc::clone(&held.state.persons),
            None => Arc::new(self.identities().view()),
        }
    }

    /// The memory pool of queries.
    pub fn memory(&self) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.shared.base.runtime_env().memory_pool)
    }

    /// The metadata store. Call [`Engine::wait`] before a look-up of definitions.
    pub fn metadata(&self) -> &Metadata {
        &self.shared.sources.metadata
    }

    /// The identity store, for look-ups that need no plan. Call [`Engine::wait`] first.
    pub fn identities(&self) -> &Identities {
        &self.shared.sources.identities
    }
}

/// A planned query that is ready to run, and facts derived from its plan.
pub(crate) struct Planned {
    pub(crate) query: DataFrame,
    pub(crate) permit: Permit,
    events: BTreeSet<String>,
    is_cacheable: bool,
}

/// All rows of a result, and what is held until they are written: the slot, as writing cells may take long, and the
/// memory reservation.
pub(crate) struct GatheredRows {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) size: Size,
    pub(crate) held: (Permit, Gathered),
}

pub(crate) fn too_long() -> QueryError {
    QueryError::Memory("its answer is too long".to_owned())
}
