//! The engine that answers questions: DataFusion over one snapshot.
//!
//! [`Engine::view`] gives what one reader sees: the tables of one project as of every event that
//! was acknowledged before the call. A [`View`] plans ([`View::sql`], [`View::table`]);
//! [`Engine::collect`] and [`Engine::stream`] run, on the query threads, with limits of memory,
//! time and number. What may not live here: JSON shapes, HTTP, product rules.

pub mod audience;
pub mod cohorts;
mod columns;
pub mod complexity;
mod condition;
pub mod definitions;
mod deleted;
pub mod events;
pub mod groups;
pub mod latest;
mod matches;
pub mod merge;
mod parts;
pub mod people;
pub mod persons;
pub mod rows;
pub mod shelves;
pub mod usage;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::CatalogProvider;
use datafusion::catalog::CatalogProviderList;
use datafusion::catalog::MemoryCatalogProvider;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::catalog::MemorySchemaProvider;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::memory_pool::TrackConsumersPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionConfig;
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::config::query::QueryConfig;
use crate::error::Kind;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::store::Identities;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::query::columns::AskedBefore;
use crate::query::columns::Columns;
use crate::query::rows::Format;
use crate::query::rows::Size;
use crate::query::shelves::ColumnFiles;
use crate::query::usage::Usage;
use crate::storage::progress::Progress;
use crate::storage::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::OutcomeLabels;

/// Memory for footers and page indexes of Parquet files.
const FILE_METADATA_CACHE_BYTES: usize = 64 << 20;

/// Largest consumers named in the error of a query that exceeds its memory.
const TOP_CONSUMERS: usize = 3;

/// Batches of an answer that may wait for a slow reader.
const ANSWER_QUEUE: usize = 4;

/// Why a question is not answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The question itself: syntax, names, types, values.
    #[error("{0}")]
    Invalid(String),
    /// It needs more memory than queries may have.
    #[error("the query needs more memory than it may have: {0}")]
    Memory(String),
    /// It took too long.
    #[error("the query took longer than {0:?}")]
    Timeout(Duration),
    /// Its answer has more rows than the settings allow.
    #[error("the answer has more than {0} rows: aggregate, or add a LIMIT")]
    TooManyRows(usize),
    /// The state it asks about is not there yet.
    #[error("{0}")]
    Unavailable(&'static str),
    /// The identity store failed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The metadata store failed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A bug or damaged data.
    #[error("the query failed")]
    Internal(#[source] DataFusionError),
}

impl QueryError {
    /// What the asker can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid(_) | Self::Memory(_) | Self::TooManyRows(_) => Kind::Invalid,
            Self::Timeout(_) => Kind::Timeout,
            Self::Unavailable(_) => Kind::Unavailable,
            Self::Identity(error) => error.kind(),
            Self::Metadata(error) => error.kind(),
            Self::Internal(_) => Kind::Internal,
        }
    }

    /// The same where the asker wrote the question: what is not about files is the question's fault,
    /// such as a wrong regular expression, or a bug of the planner that another question avoids.
    fn of_question(self) -> Self {
        let Self::Internal(error) = self else { return self };
        match error.find_root() {
            DataFusionError::IoError(_)
            | DataFusionError::ObjectStore(_)
            | DataFusionError::ParquetError(_)
            | DataFusionError::ExecutionJoin(_) => Self::Internal(error),
            _ => {
                let text = error.strip_backtrace();
                // What follows is for the authors of DataFusion.
                let text = text.split("\nThis issue was likely").next().unwrap_or_default();
                Self::Invalid(text.to_owned())
            }
        }
    }

    fn outcome(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Memory(_) => "memory",
            Self::Timeout(_) => "timeout",
            _ => "failed",
        }
    }
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        match error.find_root() {
            DataFusionError::SQL(..)
            | DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::Configuration(_)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Execution(_)
            | DataFusionError::ArrowError(..) => Self::Invalid(error.strip_backtrace()),
            DataFusionError::ResourcesExhausted(_) => Self::Memory(error.strip_backtrace()),
            _ => Self::Internal(error),
        }
    }
}

/// A cheap handle on the engine; clones share it.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    settings: QueryConfig,
    sources: Sources,
    runtime: Handle,
    base: SessionState,
    slots: Arc<Semaphore>,
    columns: Arc<Columns>,
    /// Properties that were in columns at the end before.
    asked: Mutex<AskedBefore>,
    usage: Usage,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What is being read holds up the end of the process.
        self.columns.stop();
    }
}

/// What questions are asked of.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The events table.
    pub store: Store,
    /// Persons, their distinct ids, groups.
    pub identities: Identities,
    /// Definitions and warnings.
    pub metadata: Metadata,
    /// How far the log is published; readers of persons wait for the identity store to get there.
    pub progress: Progress,
    /// Where columns of persons are on disk; without it they are in memory only.
    pub columns: Option<ColumnFiles>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine that runs on `runtime`, which should be its own: queries compute.
    ///
    /// # Errors
    ///
    /// DataFusion refuses the settings.
    pub fn new(
        settings: QueryConfig,
        sources: Sources,
        runtime: Handle,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, QueryError> {
        let environment = environment(&settings, &sources)?;
        let mut config = SessionConfig::new()
            .with_target_partitions(runtime.metrics().num_workers())
            .with_default_catalog_and_schema("weir", "public")
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true);
        config.options_mut().execution.time_zone = Some("UTC".to_owned());
        config.options_mut().sql_parser.enable_ident_normalization = true;
        let mut base = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(environment)
            .with_default_features()
            .build();
        datafusion_functions_json::register_all(&mut base)?;
        let slots = Arc::new(Semaphore::new(settings.queries_max));
        let (columns, asked) = shelves::open(&sources, &settings);
        let (columns, asked) = (Arc::new(columns), Mutex::new(asked));
        let shared = Shared {
            settings,
            sources,
            runtime,
            base,
            slots,
            columns,
            asked,
            usage: Usage::default(),
            clock,
            metrics,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The tables of `project` as of every event acknowledged before this call.
    ///
    /// # Errors
    ///
    /// The replay at start is not over, or the identity store does not follow, within the time-out
    /// of queries.
    pub async fn view(&self, project: ProjectId) -> Result<View, QueryError> {
        let Shared { sources, base, .. } = &*self.shared;
        self.wait().await?;
        let view = sources.identities.view();
        let known = (sources.identities.overrides(), sources.identities.deletions());
        let events = events::view(&sources.store, sources.store.snapshot(), project, known)?;
        let schema = Arc::new(MemorySchemaProvider::new());
        let tables = persons::tables(Arc::new(view), project);
        let definitions = definitions::tables(&sources.metadata, project)?;
        let named = std::iter::once(("events", events)).chain(definitions).chain(tables);
        for (name, table) in named {
            datafusion::catalog::SchemaProvider::register_table(&*schema, name.to_owned(), table)?;
        }
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema("public", schema)?;
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog("weir".to_owned(), Arc::new(catalog));
        let state = SessionStateBuilder::new_from_existing(base.clone())
            .with_catalog_list(Arc::new(catalogs))
            .build();
        Ok(View { context: SessionContext::new_with_state(state) })
    }

    /// Answers one SQL question about `project`, written as `format`.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn sql(
        &self,
        project: ProjectId,
        sql: &str,
        format: Format,
    ) -> Result<Vec<u8>, QueryError> {
        complexity::check(sql)?;
        let (view, sql) = (self.view(project).await?, sql.to_owned());
        let permit = Arc::new(self.permit().await?);
        let planning = async move {
            let question = view.sql(&sql).await?;
            let events = usage::events_named(question.logical_plan());
            Ok::<_, QueryError>((question, events))
        };
        let limit = self.shared.settings.query_timeout;
        let planned = planned(&self.shared.runtime, limit, permit, planning).await;
        let (mut question, events) = planned.map_err(QueryError::of_question)?;
        self.note_events_named(project, events.iter().map(String::as_str));
        let rows_max = self.shared.settings.query_rows_max;
        // EXPLAIN has to stay the root of its plan, and is a few rows.
        let is_explained =
            matches!(question.logical_plan(), LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        if !is_explained {
            // One more than may be told, so that an answer is never cut short in silence.
            question = question.limit(0, Some(rows_max.saturating_add(1)))?;
        }
        let mut answer = self.stream(question).await.map_err(QueryError::of_question)?;
        let bytes_max = self.shared.settings.query_memory_max_bytes.as_u64();
        let (mut batches, mut size) = (Vec::new(), Size::default());
        while let Some(batch) = answer.next().await {
            let batch = batch.map_err(QueryError::of_question)?;
            size.add(&batch);
            if size.rows() > rows_max {
                return Err(QueryError::TooManyRows(rows_max));
            }
            if u64::try_from(size.bytes(format)).is_ok_and(|bytes| bytes > bytes_max) {
                return Err(QueryError::Memory(format!(
                    "its answer has {} bytes",
                    size.bytes(format)
                )));
            }
            batches.push(batch);
        }
        let schema = Arc::clone(&answer.schema);
        let mut out = Vec::new();
        // Writing to memory fails for values alone, such as a list in CSV.
        rows::write(format, &schema, &batches, &mut out).map_err(|error| {
            QueryError::Invalid(format!("the answer has no form in this format: {error}"))
        })?;
        Ok(out)
    }

    /// Waits until what was acknowledged before the call can be read.
    ///
    /// # Errors
    ///
    /// It did not come within the time-out of queries.
    pub async fn wait(&self) -> Result<(), QueryError> {
        let Shared { settings, sources, .. } = &*self.shared;
        let limit = settings.query_timeout;
        let Progress::Live { published, ready } = &sources.progress else { return Ok(()) };
        let is_ready = *ready.borrow();
        if !is_ready {
            let mut ready = ready.clone();
            match tokio::time::timeout(limit, ready.wait_for(|ready| *ready)).await {
                Ok(Ok(_)) => {}
                _ => return Err(QueryError::Unavailable("the log is still being replayed")),
            }
        }
        let target = *published.borrow();
        sources.identities.wait_applied(target.0, limit).await?;
        Ok(())
    }

    /// The identity store, for look-ups that need no plan. Call [`Engine::wait`] first.
    pub fn identities(&self) -> &Identities {
        &self.shared.sources.identities
    }

    /// Runs `question` to its end, with as many rows as it says: the caller bounds them.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn collect(
        &self,
        question: DataFrame,
    ) -> Result<(SchemaRef, Vec<RecordBatch>), QueryError> {
        let mut answer = self.stream(question).await?;
        let mut batches = Vec::new();
        while let Some(batch) = answer.next().await {
            batches.push(batch?);
        }
        Ok((answer.schema, batches))
    }

    /// Begins to run `question`. Dropping the answer ends the query.
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; more may come with the batches.
    pub async fn stream(&self, question: DataFrame) -> Result<Answer, QueryError> {
        let shared = &self.shared;
        let permit = self.permit().await?;
        let schema = Arc::clone(question.schema().inner());
        let (sender, batches) = mpsc::channel(ANSWER_QUEUE);
        let task = run(question, sender, Arc::clone(shared), permit);
        let task = Some(shared.runtime.spawn(task));
        Ok(Answer { schema, batches, task: AbortOnDrop(task) })
    }
}

/// One process-wide environment: its memory pool is shared by all queries.
fn environment(settings: &QueryConfig, sources: &Sources) -> Result<Arc<RuntimeEnv>, QueryError> {
    let bytes = usize::try_from(settings.query_memory_max_bytes.as_u64()).unwrap_or(usize::MAX);
    let consumers =
        std::num::NonZeroUsize::new(TOP_CONSUMERS).unwrap_or(std::num::NonZeroUsize::MIN);
    let pool = TrackConsumersPool::new(FairSpillPool::new(bytes), consumers);
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_metadata_cache_limit(FILE_METADATA_CACHE_BYTES)
        .build_arc()?;
    let url = events::store_url()?;
    environment.register_object_store(url.as_ref(), sources.store.table().store());
    Ok(environment)
}

/// Plans, which computes for long and does not yield: on a thread where it holds up nobody, with the
/// stack of the threads of queries, for which [`complexity::check`] is made. If it takes too long
/// nobody waits for it any more, but it goes on to its end, and until then keeps its `permit`.
async fn planned<T, E>(
    runtime: &Handle,
    limit: Duration,
    permit: Arc<OwnedSemaphorePermit>,
    planning: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, QueryError>
where
    T: Send + 'static,
    E: Send + 'static,
    QueryError: From<E>,
{
    let own = runtime.clone();
    let planning = runtime.spawn_blocking(move || {
        let _permit = permit;
        own.block_on(planning)
    });
    match tokio::time::timeout(limit, planning).await {
        Ok(planned) => Ok(planned.map_err(broken_down)??),
        Err(_) => Err(QueryError::Timeout(limit)),
    }
}

async fn run(
    question: DataFrame,
    sender: mpsc::Sender<Result<RecordBatch, QueryError>>,
    shared: Arc<Shared>,
    permit: OwnedSemaphorePermit,
) {
    let began = shared.clock.monotonic();
    let limit = shared.settings.query_timeout;
    let permit = Arc::new(permit);
    let answering = async {
        let context = Arc::new(question.task_ctx());
        let planning = async move { question.create_physical_plan().await };
        let plan = planned(&shared.runtime, limit, Arc::clone(&permit), planning).await?;
        let mut batches = execute_stream(plan, context)?;
        while let Some(batch) = batches.next().await {
            // A reader that hung up drops the answer, and this task with it.
            if sender.send(Ok(batch?)).await.is_err() {
                break;
            }
        }
        Ok::<(), QueryError>(())
    };
    let outcome = match tokio::time::timeout(limit, answering).await {
        Ok(outcome) => outcome,
        Err(_) => Err(QueryError::Timeout(limit)),
    };
    let label = outcome.as_ref().map_or_else(QueryError::outcome, |()| "ok");
    shared.metrics.queries.get_or_create(&OutcomeLabels { outcome: label }).inc();
    let took = shared.clock.monotonic().saturating_sub(began);
    shared.metrics.query_seconds.observe(took.as_secs_f64());
    if let Err(error) = outcome {
        let _ = sender.send(Err(error)).await;
    }
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

/// What one reader sees, and the planner over it.
pub struct View {
    context: SessionContext,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    /// Plans one SQL query. Only questions: nothing that changes tables, files or settings.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with DataFusion's explanation.
    pub async fn sql(&self, sql: &str) -> Result<DataFrame, QueryError> {
        let read_only = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        Ok(self.context.sql_with_options(sql, read_only).await?)
    }

    /// All of one table, to be narrowed down.
    ///
    /// # Errors
    ///
    /// There is no such table.
    pub async fn table(&self, name: &str) -> Result<DataFrame, QueryError> {
        Ok(self.context.table(name).await?)
    }
}

#[cfg(test)]
mod tests;
