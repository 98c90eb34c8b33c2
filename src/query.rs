//! The engine that answers questions: DataFusion over one snapshot.
//!
//! [`Engine::view`] gives what one reader sees: the tables of one project as of every event that
//! was acknowledged before the call. A [`View`] plans ([`View::sql`], [`View::table`]);
//! [`Engine::collect`] and [`Engine::stream`] run, on the query threads, with limits of memory,
//! time and number (`admission`, `guard`, `run`). What may not live here: JSON shapes, HTTP, product
//! rules.

pub mod admission;
pub mod audience;
pub mod cohorts;
pub mod column_files;
mod columns;
pub mod complexity;
mod condition;
mod damage;
pub mod definitions;
mod deleted;
pub mod events;
mod explain;
mod explained;
pub mod groups;
mod guard;
mod json;
pub mod latest;
mod matches;
pub mod merge;
pub mod paging;
mod parts;
pub mod people;
pub mod persons;
mod pruning;
mod row_filter;
pub mod rows;
pub mod run;
mod scoped;
mod sparing;
mod spill;
pub mod usage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
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
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::config::query::QueryConfig;
use crate::error::Kind;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::store::Identities;
use crate::metadata::Metadata;
use crate::metadata::error::MetadataError;
use crate::query::admission::Admission;
use crate::query::admission::Caller;
use crate::query::admission::Permit;
use crate::query::admission::Work;
use crate::query::column_files::ColumnFiles;
use crate::query::columns::AskedBefore;
use crate::query::columns::Columns;
use crate::query::guard::Pools;
use crate::query::guard::Running;
use crate::query::rows::Format;
use crate::query::rows::Gathered;
use crate::query::rows::Size;
use crate::query::rows::Text;
use crate::query::run::Planners;
use crate::query::usage::Usage;
use crate::storage::progress::Progress;
use crate::storage::store::Store;
use crate::telemetry::metrics::Metrics;

/// Memory for footers and page indexes of Parquet files.
const FILE_METADATA_CACHE_BYTES: usize = 64 << 20;

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
    /// Too many queries are running or waiting; a later one may find a slot.
    #[error("{0}")]
    Overloaded(&'static str),
    /// The identity store failed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The metadata store failed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A data file that it needs is missing or damaged.
    #[error("a data file cannot be read: {0}")]
    Damaged(String),
    /// A bug.
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
            Self::Overloaded(_) => Kind::Overloaded,
            Self::Identity(error) => error.kind(),
            Self::Metadata(error) => error.kind(),
            Self::Damaged(_) | Self::Internal(_) => Kind::Internal,
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
            | DataFusionError::ExecutionJoin(_)
            | DataFusionError::External(_) => Self::Internal(error),
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
            Self::Damaged(_) => "damaged",
            _ => "failed",
        }
    }
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        if let Some(damage) = damage::in_files(&error) {
            return Self::Damaged(damage);
        }
        match error.find_root() {
            DataFusionError::SQL(..)
            | DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::Configuration(_)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Execution(_)
            | DataFusionError::ArrowError(..) => {
                // What stands around it names the step of planning that failed.
                Self::Invalid(error.find_root().strip_backtrace())
            }
            DataFusionError::ResourcesExhausted(text) => {
                // What follows tells how much memory the queries of others have left.
                Self::Memory(text.split(" - ").next().unwrap_or_default().to_owned())
            }
            DataFusionError::External(inner)
                if inner.downcast_ref().is_some_and(IdentityError::may_pass) =>
            {
                Self::Identity(IdentityError::Reopening)
            }
            _ => Self::Internal(error),
        }
    }
}

/// A cheap handle on the engine, for the queries of one caller; clones share the engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    caller: Caller,
}

struct Shared {
    settings: QueryConfig,
    sources: Sources,
    runtime: Handle,
    base: SessionState,
    /// With files for what exceeds memory, which plans of one partition alone may use.
    spilling: Arc<RuntimeEnv>,
    admission: Admission,
    planners: Planners,
    pools: Pools,
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
    /// The directory of what queries write when they exceed their memory; without it that of the system.
    pub spill: Option<PathBuf>,
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
        let bytes = usize::try_from(settings.query_memory_max_bytes.as_u64()).unwrap_or(usize::MAX);
        let pools = Pools::beside(bytes);
        let spilling = environment(&settings, &sources, bytes)?;
        let base = session(spill::without(&spilling)?, &pools, runtime.metrics().num_workers())?;
        let admission = Admission::new(settings.queries_max);
        let planners = Planners::new(settings.queries_max);
        let (columns, asked) = column_files::open(&sources, &settings);
        let (columns, asked) = (Arc::new(columns), Mutex::new(asked));
        let shared = Shared {
            settings,
            sources,
            runtime,
            base,
            spilling,
            admission,
            planners,
            pools,
            columns,
            asked,
            usage: Usage::default(),
            clock,
            metrics,
        };
        Ok(Self { shared: Arc::new(shared), caller: Caller::Operator })
    }

    /// The same engine for the queries of `caller`.
    pub fn on_behalf_of(&self, caller: Caller) -> Self {
        Self { shared: Arc::clone(&self.shared), caller }
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
        let overrides = Arc::new(sources.identities.overrides());
        let known = (overrides, sources.identities.deletions());
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
    ) -> Result<Bytes, QueryError> {
        complexity::check(sql)?;
        let (view, sql, caller) = (self.view(project).await?, sql.to_owned(), self.caller);
        let limit = self.shared.settings.query_timeout;
        let permit = self.shared.admission.permit(caller, Work::Sql, limit).await?;
        let running = Running::default();
        let stop = running.stopped_on_drop();
        let planning = async move {
            let question = view.sql(&sql).await?;
            let events = usage::events_named(question.logical_plan());
            Ok::<_, QueryError>((explain::permitted(question, caller, running)?, events))
        };
        let planned = self.shared.planners.plan(&self.shared.runtime, limit, planning).await;
        drop(stop);
        let (mut question, events) = planned.map_err(QueryError::of_question)?;
        self.note_events_named(project, events.iter().map(String::as_str));
        let rows_max = self.shared.settings.query_rows_max;
        // EXPLAIN has to stay the root of its plan, and is a few rows.
        if !explain::is_explained(question.logical_plan()) {
            // One more than may be told, so that an answer is never cut short in silence.
            question = question.limit(0, Some(rows_max.saturating_add(1)))?;
        }
        self.written(question, permit, format).await.map_err(QueryError::of_question)
    }

    /// The answer to `question` as text. Its memory is part of that of all queries until it is sent.
    async fn written(
        &self,
        question: DataFrame,
        permit: Permit,
        format: Format,
    ) -> Result<Bytes, QueryError> {
        let mut answer = self.begin(question, permit);
        let rows_max = self.shared.settings.query_rows_max;
        let pool = &self.shared.pools.rows;
        let mut gathered = Gathered::new(pool);
        let (mut batches, mut size) = (Vec::new(), Size::default());
        while let Some(batch) = answer.next().await {
            let batch = batch?;
            size.add(&batch);
            if size.rows() > rows_max {
                return Err(QueryError::TooManyRows(rows_max));
            }
            gathered.add(&batch)?;
            batches.push(batch);
        }
        let mut text = Text::new(pool, size.bytes(format))?;
        match rows::write(format, &answer.schema, &batches, &mut text) {
            Ok(()) => Ok(text.into_bytes()),
            Err(_) if text.is_exhausted() => {
                Err(QueryError::Memory("its answer is too long".to_owned()))
            }
            // Writing to memory fails for values alone, such as a list in CSV.
            Err(error) => {
                let error = format!("the answer has no form in this format: {error}");
                Err(QueryError::Invalid(error))
            }
        }
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
}

/// A session without tables.
fn session(
    environment: Arc<RuntimeEnv>,
    pools: &Pools,
    threads: usize,
) -> Result<SessionState, QueryError> {
    let mut config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_default_catalog_and_schema("weir", "public")
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true);
    config.options_mut().execution.time_zone = Some("UTC".to_owned());
    config.options_mut().execution.enforce_batch_size_in_joins = true;
    config.options_mut().sql_parser.enable_ident_normalization = true;
    // It takes memory for as many groups as its LIMIT says, whether there are so many or not.
    config.options_mut().optimizer.enable_topk_aggregation = false;
    // Filters that joins and ORDER BY with LIMIT make as they run: in this version they reach a scan by the names
    // of columns, so that one alias of a table may get the bound of another (DataFusion 25244).
    config.options_mut().optimizer.enable_topk_dynamic_filter_pushdown = false;
    config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
    config.options_mut().optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_default_features();
    let mut base = guard::with_limits(builder, pools).build();
    datafusion_functions_json::register_all(&mut base)?;
    Ok(guard::without_absent(base)?)
}

/// One process-wide environment: its memory pool is shared by all queries.
fn environment(
    settings: &QueryConfig,
    sources: &Sources,
    bytes: usize,
) -> Result<Arc<RuntimeEnv>, QueryError> {
    let disk_max = settings.query_spill_max_bytes.as_u64();
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(bytes)))
        .with_disk_manager_builder(spill::files(sources.spill.as_deref(), disk_max))
        .with_metadata_cache_limit(FILE_METADATA_CACHE_BYTES)
        .build_arc()?;
    let url = events::store_url()?;
    environment.register_object_store(url.as_ref(), sources.store.table().store());
    Ok(environment)
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
        let planned = self.planned(sql, read_only).await;
        planned.map_err(|error| explained::explained(error, &self.context))
    }

    async fn planned(
        &self,
        sql: &str,
        options: SQLOptions,
    ) -> datafusion::error::Result<DataFrame> {
        let state = self.context.state();
        let statement = state.sql_to_statement(sql, &state.config_options().sql_parser.dialect)?;
        guard::check(&statement)?;
        let plan = state.statement_to_plan(statement).await?;
        options.verify_plan(&plan)?;
        self.context.execute_logical_plan(plan).await
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
