//! Process-wide state, whatever the process stores: settings, metadata, thread pools, clock, metrics ([`Node`]). No
//! events and no persons: they belong to a [`super::shard`].

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::directory::MetadataStart;
use crate::error::OpenError;
use crate::maintenance::schedules;
use crate::throttle::Throttle;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::slow::SlowJobs;
use weir_base::tasks::{CpuPool, Pause, Tasks};
use weir_base::telemetry::metrics::Metrics;
use weir_event::geoip::GeoIp;
use weir_event::id::{ProjectId, ShardId};
use weir_ingest::budget::Budget;
use weir_ingest::following::Writer;
use weir_ingest::locate::Locator;
use weir_insights::cache::Answers;
use weir_insights::jobs::Jobs;
use weir_insights::slow_questions::SlowQuestions;
use weir_metadata::Metadata;
use weir_metadata::accounts::PersonalKey;
use weir_query::kernel::distribution::Distribute;
use weir_query::kernel::resources::Resources;
use weir_storage::cached::blocks::BlockCache;

/// Time between checks whether the file of the GeoIP database has changed.
const PLACES_REFRESH: Duration = Duration::from_secs(60);

/// Requests whose passwords are hashed at the same time. Each takes some tenths of a second, or seconds for a link with
/// many passwords.
const HASHES_RUNNING_MAX: usize = 1;

/// Requests whose passwords may wait to be hashed; further ones are refused, with a hint to retry.
const HASHES_WAITING_MAX: usize = 8;

/// Most projects that an error message lists.
const PROJECTS_NAMED: usize = 20;

/// There is no project with this id.
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

/// What a process passes to the engines of a shard.
#[derive(Debug)]
pub struct Process {
    /// The shard.
    pub shard: ShardId,
    /// The settings, with the directory of the shard.
    pub config: Config,
    /// Spawns tasks and threads, which end with the shard.
    pub tasks: Tasks,
    /// Where asynchronous work runs.
    pub runtimes: Runtimes,
    /// Time.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Gives the read path the nodes that execute parts of large queries, if there are any.
    pub distribute: Option<Distribute>,
    /// The cache of data files in a bucket, if this process has one open already.
    pub cache: Option<BlockCache>,
    /// The server that writes, for one that follows it.
    pub writer: Option<Writer>,
}

/// Process-wide handles.
#[derive(Debug)]
pub struct Node {
    /// The settings.
    pub config: Config,
    /// Projects, users, keys, flags, definitions.
    pub metadata: Metadata,
    /// Cached results of insights.
    pub answers: Answers,
    /// Running and asynchronous queries, which clients can poll or cancel.
    pub jobs: Jobs,
    /// The slowest queries of each project.
    pub slow: SlowQuestions,
    /// The GeoIP database, if the operator has set one.
    pub places: Option<GeoIp>,
    /// Spawns tasks and threads.
    pub tasks: TasksHandle,
    /// Threads that decode events and evaluate flags.
    pub decoding: CpuPool,
    /// Threads that parse requests and write responses of the API and of pages. Separate from the others, so that no
    /// long response delays the acknowledgement of an event.
    pub cpu: CpuPool,
    /// Computes hashes of passwords.
    pub hashing: SlowJobs,
    /// What the queries of all shards have in common.
    pub(super) queries: Resources,
    /// The memory of the requests of all shards.
    pub(super) requests: Budget,
    /// Finds the projects of requests.
    pub locator: Locator,
    /// The rate limits of personal keys.
    pub throttle: Arc<Throttle>,
    /// Time.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    pub(super) runtimes: Runtimes,
}

/// [`Tasks`] with an empty `Debug` output.
#[derive(Clone)]
pub struct TasksHandle(pub Tasks);

impl std::fmt::Debug for TasksHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl Node {
    /// Opens the metadata store and starts the pools.
    pub(super) async fn open(process: &Process, start: MetadataStart) -> Result<Self, OpenError> {
        let Process { config, tasks, runtimes, clock, metrics, .. } = process;
        let metadata = start.open(config, clock, metrics).await?;
        let decoding = CpuPool::new("decode", config.ingest.decode_threads.unwrap_or_else(cores))?;
        let cpu = CpuPool::new("answer", cores())?;
        let places = config.ingest.geoip_file.as_deref().map(GeoIp::open).transpose()?;
        let answers = Answers::new(config.query.insight_cache_max_bytes.as_u64());
        let hashing = SlowJobs::new(tasks, HASHES_RUNNING_MAX, HASHES_WAITING_MAX);
        let throttle = Arc::new(Throttle::new(&config.http, clock));
        let requests = Budget::new(config.ingest.inflight_max_bytes.as_u64());
        let locator = Locator::new(config, decoding.clone(), requests.of_log(), metadata.clone());
        Ok(Self {
            queries: Resources::within(&config.query),
            requests,
            locator,
            config: config.clone(),
            metadata,
            answers,
            jobs: Jobs::default(),
            slow: SlowQuestions::default(),
            places,
            tasks: TasksHandle(tasks.clone()),
            decoding,
            cpu,
            hashing,
            throttle,
            clock: clock.clone(),
            metrics: Arc::clone(metrics),
            runtimes: runtimes.clone(),
        })
    }

    /// Records the use of a key in the background.
    pub fn note_use(&self, key: &Arc<PersonalKey>) {
        if key.is_use_noted(self.clock.now()) {
            return;
        }
        let (metadata, key) = (self.metadata.clone(), Arc::clone(key));
        self.tasks.0.spawn("note-key-use", async move {
            if let Err(error) = metadata.record_key_use(&key).await {
                tracing::warn!(%error, "cannot note that a key was used");
            }
        });
    }

    /// Starts the background work beside requests: scheduled changes of flags, and reloads of the GeoIP database.
    pub(super) fn start_jobs(&self) {
        if let Some(places) = &self.places {
            refresh_places(&self.tasks.0, &self.cpu, places.clone());
        }
        schedules::start(&self.tasks.0, self.metadata.clone(), Arc::clone(&self.metrics));
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
