//! Composition root: opens the engines of a data directory, connects the write path and the read path,
//! hands out handles, and closes in reverse order. No request logic.

pub mod copy;
pub mod directory;
pub mod error;
pub mod flush;
pub mod lock;
mod log;
pub mod overview;
pub mod tables;
pub mod verify;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::app::copy::WorkingCopy;
use crate::app::directory::MetadataPolicy;
use crate::app::directory::check_files;
use crate::app::directory::open_metadata;
use crate::app::error::OpenError;
use crate::app::log::has_events;
use crate::app::log::note_lost_persons;
use crate::app::log::note_lost_rows;
use crate::app::log::open_log;
use crate::app::tables::Access;
use crate::clock::Clock;
use crate::config::Config;
use crate::config::storage::StorageConfig;
use crate::evaluation::Evaluator;
use crate::event::id::ProjectId;
use crate::geoip::GeoIp;
use crate::geoip::Places;
use crate::identity::IdentityError;
use crate::identity::limits::Limits;
use crate::identity::store::Identities;
use crate::ingest::Engines;
use crate::ingest::Foundations;
use crate::ingest::Pipeline;
use crate::ingest::recent::recent_keys;
use crate::insights::cache::Answers;
use crate::insights::jobs::Jobs;
use crate::maintenance::Maintenance;
use crate::maintenance::cohorts;
use crate::maintenance::schedules;
use crate::maintenance::usage;
use crate::metadata::Metadata;
use crate::metadata::accounts::KeyId;
use crate::metadata::postgres::Access as MetadataAccess;
use crate::query::admission::Caller;
use crate::query::engine::Engine;
use crate::query::error::QueryError;
use crate::query::person_table::PersonTable;
use crate::query::sources::Sources;
use crate::storage::disk::Disk;
use crate::storage::disk::OsDisk;
use crate::storage::store::Store;
use crate::storage::tables::Tables;
use crate::tasks::CpuPool;
use crate::tasks::Pause;
use crate::tasks::TaskError;
use crate::tasks::Tasks;
use crate::tasks::slow::SlowJobs;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::PlaceLabels;

/// Pause before a second attempt to load the overrides of merged persons.
const OVERRIDES_PAUSE: Duration = Duration::from_secs(10);
/// Label under which damage of the events table is counted.
const EVENTS_TABLE: PlaceLabels = PlaceLabels { place: "events" };

/// Time between checks whether the file of the GeoIP database has changed.
const PLACES_REFRESH: Duration = Duration::from_secs(60);

/// Maximum age of ingestion warnings for which none is ever removed.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Requests whose passwords are hashed at a time. Each takes some tenths of a second, or seconds for a link with many
/// passwords.
const HASHES_RUNNING_MAX: usize = 1;

/// Requests whose passwords wait to be hashed; others are told to come again.
const HASHES_WAITING_MAX: usize = 8;

/// Most projects that an error message lists.
const PROJECTS_NAMED: usize = 20;

/// The data directory has no project with this id.
#[derive(Debug, thiserror::Error)]
#[error("there is no project {id}; there are: {known}")]
pub struct NoProject {
    id: i64,
    /// Ids of existing projects, as a text.
    known: String,
}

/// The asynchronous runtimes of a process.
#[derive(Clone, Debug)]
pub struct Runtimes {
    /// For sockets, timers and waiting.
    pub main: Handle,
    /// For queries, which use the CPU.
    pub query: Handle,
}

/// All handles of a running server.
#[derive(Clone, Debug)]
pub struct App {
    /// The settings.
    pub config: Arc<Config>,
    /// Projects, users, keys, flags, definitions.
    pub metadata: Metadata,
    /// Persons.
    pub identities: Identities,
    /// The write path.
    pub pipeline: Pipeline,
    /// The read path.
    pub engine: Engine,
    /// The last answers to insights.
    pub answers: Answers,
    /// Insights that nobody waits for.
    pub jobs: Jobs,
    /// Evaluates flags.
    pub evaluator: Evaluator,
    /// The GeoIP database, if the operator has set one.
    pub places: Option<GeoIp>,
    /// Spawns tasks and threads.
    pub tasks: TasksHandle,
    /// Thread pool for CPU work.
    pub cpu: CpuPool,
    /// Computes hashes of passwords.
    pub hashing: SlowJobs,
    /// Time.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Where the tables are.
    pub tables: Tables,
    maintenance: Maintenance,
    /// Serializes flushes on demand.
    flushing: Arc<Mutex<()>>,
}

/// [`Tasks`] with an empty `Debug` output.
#[derive(Clone)]
pub struct TasksHandle(pub Tasks);

impl std::fmt::Debug for TasksHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

/// What a server and a copy of its data directory open in different ways.
struct Opened {
    /// Whether queries read the files of persons, which background jobs keep up to date.
    is_live: bool,
    tables: Tables,
    policy: MetadataPolicy,
    access: MetadataAccess,
}

impl App {
    /// Opens all engines of the data directory, which the caller has locked, and starts the threads.
    /// Requests may arrive as soon as this returns; the replay of the log runs in the background.
    ///
    /// # Errors
    ///
    /// An engine cannot be opened; the message is for the operator.
    pub async fn open(
        config: Config,
        tasks: Tasks,
        runtimes: Runtimes,
        (clock, metrics): (Clock, Arc<Metrics>),
        policy: MetadataPolicy,
    ) -> Result<Self, OpenError> {
        let tables = tables::open(&config, Access::Write, (&clock, &metrics)).await?;
        let opened =
            Opened { is_live: true, tables: tables.clone(), policy, access: MetadataAccess::Write };
        let clock = (clock, metrics);
        let app = Self::compose(config, tasks.clone(), runtimes, clock, opened).await?;
        tables::keep(&tasks, &tables)?;
        if let Some(places) = &app.places {
            refresh_places(&tasks, &app.cpu, places.clone());
        }
        start_background(&tasks, &app.maintenance, (&app.engine, &app.metadata), &app.config)?;
        Ok(app)
    }

    /// Opens a working copy of a data directory for queries. Replays the log, and flushes to the copy if the
    /// memtables are full. No other background job runs: no merges, no scheduled changes, no removal of old
    /// warnings.
    ///
    /// # Errors
    ///
    /// An engine cannot be opened; the message is for the operator.
    pub async fn open_copy(
        copy: &WorkingCopy,
        mut config: Config,
        tasks: Tasks,
        runtimes: Runtimes,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        config.storage.data_dir = copy.path().to_path_buf();
        config.ingest.ingestion_warnings_max_age = NEVER;
        let metrics = Arc::new(Metrics::new());
        let tables = tables::open(&config, Access::Copy, (&clock, &metrics)).await?;
        let opened = Opened {
            is_live: false,
            tables,
            policy: MetadataPolicy::Require,
            access: MetadataAccess::Read,
        };
        let clock = (clock, metrics);
        let app = Self::compose(config, tasks.clone(), runtimes, clock, opened).await?;
        app.maintenance.start_flushes(&tasks)?;
        Ok(app)
    }

    /// Opens the engines, and starts the threads of the write path.
    async fn compose(
        config: Config,
        tasks: Tasks,
        runtimes: Runtimes,
        (clock, metrics): (Clock, Arc<Metrics>),
        Opened { is_live, tables, policy, access }: Opened,
    ) -> Result<Self, OpenError> {
        let data_dir = config.storage.data_dir.clone();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let store = tables::events_store(&config, &tables, &clock).await?;
        note_damage(&store, &metrics);
        let identities = open_identities(&config)?;
        let wal = open_log(&config, &disk, (&store, &identities), &metrics)?;
        note_lost_persons(&identities, &wal, &metrics)?;
        read_overrides(&tasks, identities.clone())?;
        let (clock_and_metrics, has_events) = ((&clock, &*metrics), has_events(&store, &wal));
        let place = (&*data_dir, &config.metadata, access);
        let metadata = open_metadata(place, clock_and_metrics, has_events, policy).await?;
        metadata.name_log(store.app_id()).await?;
        note_lost_rows(&store, &wal, &metrics).await?;
        let cpu = CpuPool::new("decode", config.ingest.decode_threads.unwrap_or_else(cores))?;
        let places = config.ingest.geoip_file.as_deref().map(GeoIp::open).transpose()?;
        let engines = Engines {
            places: places.clone().map_or(Places::Unknown, Places::Database),
            metadata: metadata.clone(),
            store: store.clone(),
            identities: identities.clone(),
            disk: Arc::clone(&disk),
        };
        let window = config.ingest.dedup_window_events;
        let (files, runtime) = (store.clone(), runtimes.main.clone());
        let recent = move || runtime.block_on(recent_keys(&files, window));
        let foundations = Foundations {
            tasks: &tasks,
            cpu: cpu.clone(),
            runtime: runtimes.main.clone(),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        };
        // Before the first change of persons.
        let stores = (identities.clone(), metadata.clone());
        let place = (tables.clone(), store.app_id().to_owned());
        let running = (runtimes.main.clone(), clock.clone());
        let persons = || person_table(&config.storage, place, stores, running);
        let persons = is_live.then(persons).transpose()?.map(Arc::new);
        let pipeline = Pipeline::start(engines, wal, &config, foundations, recent)?;
        let sources = Sources {
            store: store.clone(),
            identities: identities.clone(),
            metadata: metadata.clone(),
            progress: pipeline.progress(),
            persons: persons.clone(),
            asked: is_live.then(|| data_dir.join("person-columns.json")),
            spill: Some(data_dir.join("query-spill")),
        };
        let (settings, counted) = (config.query.clone(), Arc::clone(&metrics));
        let engine = Engine::new(settings, sources, runtimes.query, clock.clone(), counted)?;
        let maintenance = Maintenance {
            settings: config.storage.clone(),
            store,
            identities: identities.clone(),
            persons,
            pipeline: pipeline.clone(),
            runtime: runtimes.main,
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        };
        let (config, tasks) = (Arc::new(config), TasksHandle(tasks));
        Ok(Self {
            answers: Answers::new(config.query.insight_cache_max_bytes.as_u64()),
            jobs: Jobs::default(),
            evaluator: Evaluator::new(&engine, &metadata, &tasks.0, &cpu),
            config,
            metadata,
            identities,
            pipeline,
            engine,
            places,
            hashing: SlowJobs::new(&tasks.0, HASHES_RUNNING_MAX, HASHES_WAITING_MAX),
            tasks,
            cpu,
            clock,
            metrics,
            tables,
            maintenance,
            flushing: Arc::default(),
        })
    }

    /// The same engines, with the query limits of this key.
    pub fn on_behalf_of(&self, key: KeyId) -> Self {
        Self { engine: self.engine.on_behalf_of(Caller::Key(key)), ..self.clone() }
    }

    /// The same engines, with the query limits that all links to a project share.
    pub fn for_links(&self, project: ProjectId) -> Self {
        Self { engine: self.engine.on_behalf_of(Caller::Links(project)), ..self.clone() }
    }

    /// The same engines, whose answers about a project are of one state; see [`Engine::holding`].
    ///
    /// # Errors
    ///
    /// See [`Engine::view`].
    pub async fn holding(&self, project: ProjectId) -> Result<Self, QueryError> {
        Ok(Self { engine: self.engine.holding(project).await?, ..self.clone() })
    }

    /// The project with this id, for commands of the operator.
    ///
    /// # Errors
    ///
    /// There is no such project.
    pub fn project(&self, id: i64) -> Result<ProjectId, NoProject> {
        let snapshot = self.metadata.snapshot();
        if snapshot.project(ProjectId(id)).is_some() {
            return Ok(ProjectId(id));
        }
        let named = snapshot.projects().take(PROJECTS_NAMED).map(|project| project.id.to_string());
        let mut known = named.collect::<Vec<_>>().join(", ");
        if snapshot.projects().len() > PROJECTS_NAMED {
            known.push_str(", ...");
        }
        Err(NoProject { id, known })
    }

    /// Flushes the memtables to files, and writes the persons who have changed into their table. The last step of a clean end,
    /// after the front end has drained and the tasks were signalled to end. Blocks.
    ///
    /// # Errors
    ///
    /// The flush failed. No data is lost: the next start replays the log.
    pub fn close(self) -> Result<(), OpenError> {
        let feedback = self.pipeline.write_feedback();
        if let Err(error) = self.maintenance.runtime.block_on(feedback) {
            tracing::warn!(%error, "cannot store the last ingestion warnings; they are lost");
        }
        if let Err(error) = self.maintenance.runtime.block_on(self.engine.write_usage()) {
            tracing::warn!(%error, "cannot store how often the last queries named events; these counts are lost");
        }
        self.maintenance.flush_all()?;
        self.maintenance.close_persons();
        self.engine.close_columns();
        Ok(())
    }
}

/// Starts the background jobs.
fn start_background(
    tasks: &Tasks,
    maintenance: &Maintenance,
    (engine, metadata): (&Engine, &Metadata),
    config: &Config,
) -> Result<(), TaskError> {
    maintenance.clone().start(tasks)?;
    let (store, metrics) = (maintenance.store.clone(), Arc::clone(&maintenance.metrics));
    tasks.spawn("check-files", check_files(store, metrics));
    schedules::start(tasks, metadata.clone(), Arc::clone(&maintenance.metrics));
    let interval = config.query.cohort_count_interval;
    cohorts::start(tasks, engine.clone(), metadata.clone(), interval);
    usage::start(tasks, engine.clone());
    let recalling = engine.clone();
    tasks.spawn("recall-columns", async move {
        if let Err(error) = recalling.recall_columns().await {
            tracing::warn!(%error, "cannot load person columns in advance; queries load them on first use");
        }
    });
    Ok(())
}

fn open_identities(config: &Config) -> Result<Identities, IdentityError> {
    let limits = Limits::within(config.ingest.identity_cache_max_bytes.as_u64());
    Identities::open(&config.storage.data_dir.join("identity"), limits)
}

/// Counts the damaged places of the log of the events table.
fn note_damage(store: &Store, metrics: &Metrics) {
    let damaged = u64::try_from(store.table().damage().len()).unwrap_or(u64::MAX);
    metrics.corruptions.get_or_create(&EVENTS_TABLE).inc_by(damaged);
}

/// The table of the persons of all projects that there are.
fn person_table(
    settings: &StorageConfig,
    (tables, app_id): (Tables, String),
    (identities, metadata): (Identities, Metadata),
    running: (Handle, Clock),
) -> Result<PersonTable, IdentityError> {
    let projects = move || metadata.snapshot().projects().map(|project| project.id).collect();
    let times = (settings.persons_table_interval, settings.deletion_interval);
    PersonTable::new(tables, (identities, Arc::new(projects)), app_id, running, times)
}

/// Loads the overrides of merged persons in the background. Until that is done, queries look up each person.
fn read_overrides(tasks: &Tasks, identities: Identities) -> Result<(), TaskError> {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_background_thread("overrides", move || {
        while let Err(error) = identities.read_overrides(|| !shutdown.is_cancelled()) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "cannot load the merged persons; queries look up each person until the next attempt"
            );
            if shutdown.pause_thread(OVERRIDES_PAUSE) == Pause::Cancelled {
                return;
            }
        }
    })
}

/// Reloads the GeoIP database when its file has changed.
fn refresh_places(tasks: &Tasks, cpu: &CpuPool, places: GeoIp) {
    let (shutdown, cpu) = (tasks.shutdown().clone(), cpu.clone());
    tasks.spawn("refresh-places", async move {
        while shutdown.pause(PLACES_REFRESH).await == Pause::Elapsed {
            let places = places.clone();
            match cpu.run(move || places.refresh()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("reloaded the GeoIP database"),
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "cannot reload the GeoIP database; the previous version stays in use");
                }
                Err(error) => tracing::error!(%error, "cannot check whether the GeoIP database has changed; it stays in use"),
            }
        }
    });
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
