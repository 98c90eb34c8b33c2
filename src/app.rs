//! Composition root: opens the engines of a data directory, wires the roads, hands out handles,
//! closes in reverse. No request logic.

pub mod lock;

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use url::Url;
use uuid::Uuid;

use crate::clock::Clock;
use crate::config::Config;
use crate::event::schema::BLOOM_COLUMNS;
use crate::event::schema::PARTITION_COLUMN;
use crate::event::schema::SORT_COLUMNS;
use crate::event::schema::STATISTICS_COLUMNS;
use crate::event::schema::UNIQUE_COLUMNS;
use crate::event::schema::WIDE_COLUMNS;
use crate::event::schema::column;
use crate::event::schema::events_schema;
use crate::event::time::Month;
use crate::event::time::partition_of;
use crate::geoip::GeoIp;
use crate::geoip::GeoIpError;
use crate::geoip::Places;
use crate::identity::IdentityError;
use crate::identity::store::Identities;
use crate::identity::store::Limits;
use crate::ingest::Engines;
use crate::ingest::Pipeline;
use crate::ingest::recent::recent_keys;
use crate::maintenance::Maintenance;
use crate::maintenance::cohorts;
use crate::maintenance::columns;
use crate::maintenance::persons::PersonsTable;
use crate::maintenance::schedules;
use crate::maintenance::usage;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::query::Engine;
use crate::query::QueryError;
use crate::query::Sources;
use crate::query::shelves::ColumnFiles;
use crate::storage::delta::DeltaTable;
use crate::storage::delta::TableSpec;
use crate::storage::delta::error::TableError;
use crate::storage::disk::Disk;
use crate::storage::disk::OsDisk;
use crate::storage::durable::DurableStore;
use crate::storage::parquet::Layout;
use crate::storage::store::Partitioning;
use crate::storage::store::Store;
use crate::storage::store::StoreError;
use crate::storage::wal::Sequence;
use crate::storage::wal::WalError;
use crate::storage::wal::WalSettings;
use crate::storage::wal::writer::Wal;
use crate::tasks::CpuPool;
use crate::tasks::Pause;
use crate::tasks::TaskError;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;

/// Time between looks at the file of the database of places.
const PLACES_REFRESH: Duration = Duration::from_secs(60);

/// Why the engines of a data directory do not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or directory.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The metadata store.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The events table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The identity store.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The database of places.
    #[error(transparent)]
    GeoIp(#[from] GeoIpError),
    /// The query engine.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A thread.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Flushing at the end.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }
}

/// Where things run.
#[derive(Clone, Debug)]
pub struct Runtimes {
    /// Sockets and waiting.
    pub main: Handle,
    /// Queries: they compute.
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
    /// The road of writes.
    pub pipeline: Pipeline,
    /// The road of reads.
    pub engine: Engine,
    /// Where addresses are, if the operator has a database of that.
    pub places: Option<GeoIp>,
    /// What is spawned.
    pub tasks: TasksHandle,
    /// Threads for what computes.
    pub cpu: CpuPool,
    /// Time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    maintenance: Maintenance,
}

/// [`Tasks`] with a `Debug` that shows nothing.
#[derive(Clone)]
pub struct TasksHandle(pub Tasks);

impl std::fmt::Debug for TasksHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl App {
    /// Opens everything under the data directory, which the caller has locked, and starts the
    /// threads. Requests may come as soon as this returns; the log of before is replayed meanwhile.
    ///
    /// # Errors
    ///
    /// What the operator has to mend.
    pub async fn open(
        config: Config,
        tasks: Tasks,
        runtimes: Runtimes,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let data_dir = config.storage.data_dir.clone();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let metadata = Metadata::open(&data_dir.join("metadata.db"), clock.clone()).await?;
        let store = events_store(&config, &disk, &clock).await?;
        let limits = Limits::within(config.ingest.identity_cache_max_bytes.as_u64());
        let identities = Identities::open(&data_dir.join("identity"), limits)?;
        // Both have seen these sequences, whatever became of the log: they are not given again.
        let seen = store.flushed_through().max(Sequence(identities.applied_sequence()));
        let wal = open_log(&config, &disk, seen)?;
        note_lost_persons(&identities, &wal, &metrics)?;
        let threads = config.ingest.decode_threads.unwrap_or_else(cores);
        let cpu = CpuPool::new("decode", threads)?;
        let places = config.ingest.geoip_file.as_deref().map(GeoIp::open).transpose()?;
        if let Some(places) = &places {
            refresh_places(&tasks, &cpu, places.clone());
        }
        let engines = Engines {
            places: places.clone().map_or(Places::Unknown, Places::Database),
            metadata: metadata.clone(),
            store: store.clone(),
            identities: identities.clone(),
        };
        let window = config.ingest.dedup_window_events;
        let (files, runtime) = (store.clone(), runtimes.main.clone());
        let recent = move || runtime.block_on(recent_keys(&files, window));
        let pipeline = Pipeline::start(
            engines,
            wal,
            &config,
            (&tasks, cpu.clone(), runtimes.main.clone()),
            (clock.clone(), Arc::clone(&metrics)),
            recent,
        )?;
        let sources = Sources {
            store: store.clone(),
            identities: identities.clone(),
            metadata: metadata.clone(),
            progress: pipeline.progress(),
            columns: Some(ColumnFiles {
                directory: data_dir.join("person-columns"),
                stale_max: config.storage.deletion_interval,
            }),
        };
        let (settings, counted) = (config.query.clone(), Arc::clone(&metrics));
        let engine = Engine::new(settings, sources, runtimes.query, clock.clone(), counted)?;
        let persons = PersonsTable::new(
            (Arc::clone(&disk), tables_dir(&config)?.join("persons")),
            (identities.clone(), metadata.clone()),
            node_id(&data_dir)?,
            runtimes.main.clone(),
            clock.clone(),
        );
        let maintenance = Maintenance {
            settings: config.storage.clone(),
            store,
            identities: identities.clone(),
            persons: Arc::new(persons),
            pipeline: pipeline.clone(),
            disk,
            runtime: runtimes.main,
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        };
        start_background(&tasks, &maintenance, (&engine, &metadata), &config)?;
        let (config, tasks) = (Arc::new(config), TasksHandle(tasks));
        Ok(Self {
            config,
            metadata,
            identities,
            pipeline,
            engine,
            places,
            tasks,
            cpu,
            clock,
            metrics,
            maintenance,
        })
    }

    /// Writes everything that is only in the log and in memory into files, and copies the persons
    /// into their table. The last step of a clean end, after the front end has drained and the
    /// tasks were asked to end. Blocks.
    ///
    /// # Errors
    ///
    /// Nothing is lost: the next start replays the log.
    pub fn close(self) -> Result<(), OpenError> {
        let feedback = self.pipeline.write_feedback();
        if let Err(error) = self.maintenance.runtime.block_on(feedback) {
            tracing::warn!(%error, "cannot store the last ingestion warnings");
        }
        if let Err(error) = self.maintenance.runtime.block_on(self.engine.write_usage()) {
            tracing::warn!(%error, "cannot note the last questions");
        }
        self.maintenance.flush_all()?;
        self.maintenance.copy_persons(None);
        self.engine.close_columns();
        Ok(())
    }
}

/// Starts what runs beside requests.
fn start_background(
    tasks: &Tasks,
    maintenance: &Maintenance,
    (engine, metadata): (&Engine, &Metadata),
    config: &Config,
) -> Result<(), TaskError> {
    maintenance.clone().start(tasks)?;
    schedules::start(tasks, metadata.clone(), Arc::clone(&maintenance.metrics));
    let interval = config.query.cohort_count_interval;
    cohorts::start(tasks, engine.clone(), metadata.clone(), interval);
    usage::start(tasks, engine.clone());
    let (clock, stale_max) = (maintenance.clock.clone(), config.storage.deletion_interval);
    columns::start(tasks, engine.clone(), metadata.clone(), (clock, stale_max))
}

/// Reads the database of places again when its file has changed.
fn refresh_places(tasks: &Tasks, cpu: &CpuPool, places: GeoIp) {
    let (shutdown, cpu) = (tasks.shutdown().clone(), cpu.clone());
    tasks.spawn("refresh-places", async move {
        while shutdown.pause(PLACES_REFRESH).await == Pause::Elapsed {
            let places = places.clone();
            match cpu.run(move || places.refresh()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("the GeoIP database was read again"),
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the GeoIP database of before stays in use");
                }
                Err(error) => tracing::error!(%error, "cannot look at the GeoIP database"),
            }
        }
    });
}

/// Absolute path of the directory of the tables.
fn tables_dir(config: &Config) -> Result<PathBuf, OpenError> {
    let data_dir = std::path::absolute(&config.storage.data_dir)
        .map_err(OpenError::io(&config.storage.data_dir))?;
    Ok(data_dir.join("tables"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What the events table must be.
pub fn events_spec() -> TableSpec {
    TableSpec { name: "events", schema: events_schema(), partition_column: Some(PARTITION_COLUMN) }
}

/// How the files of the events table are laid out.
pub fn events_layout() -> Layout {
    Layout {
        sort: SORT_COLUMNS.to_vec(),
        bloom: BLOOM_COLUMNS.to_vec(),
        statistics: STATISTICS_COLUMNS.to_vec(),
        unique: UNIQUE_COLUMNS.to_vec(),
        wide: WIDE_COLUMNS.to_vec(),
    }
}

/// The events table of a data directory.
///
/// # Errors
///
/// What the operator has to mend.
pub async fn events_store(
    config: &Config,
    disk: &Arc<dyn Disk>,
    clock: &Clock,
) -> Result<Store, OpenError> {
    let directory = tables_dir(config)?.join("events");
    let objects = DurableStore::new(Arc::clone(disk), &directory);
    // Creates it too; a directory made before would not have its name synced.
    objects.recover().map_err(OpenError::io(&directory))?;
    let location = Url::from_directory_path(&directory).map_err(|()| OpenError::Io {
        path: directory.clone(),
        source: std::io::Error::other("the path has no URL"),
    })?;
    let table =
        DeltaTable::open_or_create(Arc::new(objects), location, events_spec(), clock.clone())
            .await?;
    let partitioning = Partitioning {
        time_column: column::TIMESTAMP,
        key: |time| partition_of(time).0,
        name: |month| Month(month).to_string(),
    };
    let app_id = node_id(&config.storage.data_dir)?;
    Ok(Store::new(
        table,
        (events_layout(), partitioning),
        app_id,
        config.storage.clone(),
        clock.clone(),
    ))
}

/// The name of this node in the transactions of the tables, made once per data directory: a copy
/// of the log must not be flushed under the name of another.
fn node_id(data_dir: &Path) -> Result<String, OpenError> {
    let path = data_dir.join("node-id");
    match std::fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(OpenError::io(&path)(error)),
    }
    let id = format!("node/{}", Uuid::new_v4());
    let write = || {
        let draft = data_dir.join("node-id.tmp");
        std::fs::write(&draft, &id)?;
        std::fs::File::open(&draft)?.sync_all()?;
        std::fs::rename(&draft, &path)?;
        std::fs::File::open(data_dir)?.sync_all()
    };
    write().map_err(OpenError::io(&path))?;
    Ok(id)
}

/// Notices that the identity store cannot be brought up to date from the log, which is so after its
/// directory was lost: what it then lacks must not be taken for what there is.
fn note_lost_persons(
    identities: &Identities,
    wal: &Wal,
    metrics: &Metrics,
) -> Result<(), OpenError> {
    let applied = Sequence(identities.applied_sequence());
    let before_log = wal.files().oldest().map_or(applied, Sequence::previous);
    if applied < before_log {
        identities.mark_incomplete()?;
    }
    if identities.is_incomplete()? {
        metrics.identity_incomplete.set(1);
    }
    Ok(())
}

/// The log, ready to continue after `seen`. Damage is counted by the replay, which meets it again.
fn open_log(config: &Config, disk: &Arc<dyn Disk>, seen: Sequence) -> Result<Wal, OpenError> {
    let settings = WalSettings {
        dir: config.storage.data_dir.join("wal"),
        segment_max_bytes: config.storage.wal_segment_max_bytes.as_u64(),
    };
    let salt = Uuid::new_v4().as_u64_pair().1;
    let (wal, recovered) = Wal::open(Arc::clone(disk), settings, seen, salt)?;
    for corruption in &recovered.corruptions {
        tracing::error!(?corruption, "damaged place in the log");
    }
    if recovered.torn_bytes > 0 {
        let bytes = recovered.torn_bytes;
        tracing::info!(bytes, "cut an unfinished, unacknowledged write off the log");
    }
    tracing::info!(last = recovered.last.0, seen = seen.0, "the log is open");
    Ok(wal)
}
