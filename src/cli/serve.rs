//! `weir serve`, the server process: reads the settings, locks the data directory, opens the engines, serves
//! HTTP, and drains on a signal.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use uuid::Uuid;

use crate::cli::process::{
    PIPELINE_DRAIN, THREADS_END, guide, listen, lock, query_runtime, stop_signal,
};
use crate::cli::standby::{Standing, Stood};
use crate::cli::{cluster as shards, descriptors, login, postgres, standby};
use weir_app::directory::MetadataPolicy;
use weir_app::error::OpenError;
use weir_app::lease::{self, Held, Identity};
use weir_app::lock::{DirectoryLock, ServerAddress};
use weir_app::node::{Node, Process, Runtimes};
use weir_app::workers::Registry;
use weir_app::{App, tables};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::{BucketConfig, LogPlace};
use weir_base::tasks::Tasks;
use weir_base::telemetry::logs;
use weir_base::telemetry::metrics::Metrics;
use weir_cluster::members::Directory;
use weir_cluster::node as cluster;
use weir_event::id::ShardId;
use weir_http::limits::Limits;
use weir_http::router::Router;
use weir_metadata::Metadata;
use weir_metadata::bootstrap::{FirstStart, Started};
use weir_metadata::postgres::MetadataAccess;
use weir_metadata::secrets::Seed;
use weir_query::kernel::distribution::Distribute;
use weir_storage::cached::blocks::BlockCache;

/// Time between checks whether another process, such as `weir keys` or another server, has changed the metadata.
const METADATA_REFRESH: Duration = Duration::from_secs(1);

/// Time for the answers to requests that are refused because another server has taken over.
const REFUSALS_SENT: Duration = Duration::from_secs(2);

/// Task polls after which a busy thread of the runtime polls sockets and timers again. One poll may evaluate
/// flags for 200 us (`evaluation`); with tokio's default of 61 a socket could wait for 12 ms.
const EVENT_INTERVAL: u32 = 16;

/// Settings of the server. Each is a flag, an environment variable and a key of the settings file.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// TOML file of settings; its keys are the flags below without the leading dashes, as in `listen = "..."`
    #[arg(long, env = "WEIR_CONFIG")]
    pub config: Option<PathBuf>,
    /// Project API key of the first project, with which SDKs send events; 12 to 64 characters. Later starts
    /// fail if the project has another key [default: generated at the first start]
    #[arg(long, env = "WEIR_PROJECT_API_KEY", hide_env_values = true)]
    pub project_api_key: Option<String>,
    /// Personal API key of the first user, for the management API and queries; 32 to 256 characters. Another
    /// value at a later start replaces the previous one [default: generated at the first start]
    #[arg(long, env = "WEIR_PERSONAL_API_KEY", hide_env_values = true)]
    pub personal_api_key: Option<String>,
    /// Start with an empty metadata store if that of a directory with events is missing or damaged: new
    /// keys and a project with id 1; flags, cohorts and users are lost. The files of the old store are kept
    /// beside it
    #[arg(long)]
    pub recreate_metadata: bool,
    /// All other settings.
    #[command(flatten)]
    pub settings: Config,
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
///
/// A setting, the directory or an engine fails, or a thread panicked; the message is for the operator.
pub fn run(args: ServeArgs, version: &'static str, clock: Clock) -> anyhow::Result<()> {
    let mut config = args.settings.clone();
    let keys =
        FirstStart { project_token: args.project_api_key, personal_key: args.personal_api_key };
    keys.check()?;
    logs::start(&config.telemetry)?;
    config.http.connections_max =
        descriptors::for_connections(config.http.connections_max, descriptors::raise());
    let main = Builder::new_multi_thread()
        .thread_name("async")
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()?;
    let query = query_runtime(&config)?;
    // The socket first: a start that cannot bind it leaves the directory unchanged, so the next start still
    // counts as the first.
    let listener = main.block_on(listen(&config))?;
    let postgres = main.block_on(postgres::listen(&config))?;
    let cluster = main.block_on(cluster::Node::listen(&config.cluster, version))?;
    let lock = lock(&config.storage.data_dir)?;
    let runtimes = Runtimes { main: main.handle().clone(), query: query.handle().clone() };
    let policy = match args.recreate_metadata {
        true => MetadataPolicy::Recreate,
        false => MetadataPolicy::Require,
    };
    let start = Start { keys, config, policy, lock, listener, postgres, cluster };
    let served = main.block_on(async {
        match of_cluster(&start.config, &clock).await? {
            Some(metadata) => serve_shards(start, metadata, runtimes, clock).await.map(|()| None),
            None => Box::pin(serve(start, runtimes, clock)).await,
        }
    });
    let Served { app, back, parts, lock, lease } = match served {
        Ok(Some(served)) => served,
        Ok(None) => {
            tracing::info!("stopped");
            return Ok(());
        }
        Err(error) => {
            // No wait for tasks: unfinished work is in the log, and is replayed as after a crash. Threads continue
            // until the process ends, and would panic without a runtime.
            std::mem::forget((query, main));
            return Err(error);
        }
    };
    // Flushing blocks on the runtime, so it happens outside of it.
    app.close()?;
    // The projector writes its remaining state once all its senders are dropped.
    if let Err(error) = main.block_on(back.wait(THREADS_END)) {
        tracing::warn!(%error, "shutdown incomplete: threads did not end in time; what they did not write is replayed at the next start");
    }
    // After the last change: the next server may take over.
    if let Some(lease) = lease {
        main.block_on(async {
            lease.give_back().await;
            lease.close().await;
        });
    }
    let parts = main.block_on(parts.wait(THREADS_END));
    tracing::info!("stopped");
    match parts {
        Ok(()) => {
            query.shutdown_background();
            main.shutdown_timeout(THREADS_END);
        }
        Err(error) => {
            tracing::warn!(%error, "parts of the queries of other nodes are cut off, which run them again");
            // The connections end with the process.
            std::mem::forget((query, main));
        }
    }
    // Last, because until here this process writes to the directory.
    drop(lock);
    Ok(())
}

/// State with which a server starts.
struct Start {
    keys: FirstStart,
    config: Config,
    policy: MetadataPolicy,
    /// The data directory's lock, which this process holds now.
    lock: DirectoryLock,
    /// The socket, bound.
    listener: TcpListener,
    /// The socket of the PostgreSQL port, bound, if there is one.
    postgres: Option<postgres::Door>,
    /// The port for parts of queries, if there is one.
    cluster: Option<cluster::Node>,
}

/// Serves the port for parts of queries once the engine is made, until the front end shuts down, and gives the engine its
/// workers.
async fn distribute(
    node: Option<cluster::Node>,
    (parts, front): (&Tasks, &Tasks),
    (config, clock, metrics): (&Config, &Clock, &Arc<Metrics>),
) -> anyhow::Result<Option<Distribute>> {
    let Some(node) = node else { return Ok(None) };
    tracing::info!(url = node.url(), "executes parts of queries for other nodes");
    let registry = Registry::open(config, clock).await?;
    let directory =
        registry.map(|registry| -> Arc<dyn Directory> { Arc::new(Registered(registry)) });
    let (tasks, shutdown) = (parts.clone(), front.shutdown().clone());
    let process = cluster::Process { tasks, shutdown, metrics: Arc::clone(metrics) };
    Ok(Some(node.distribute(process, directory).knowing(weir_insights::distributed::ABOVE)))
}

/// Waits for the lease if the log is in a bucket; `None` if the server was stopped before that.
async fn stand_by(
    standing: Standing<'_>,
    listener: TcpListener,
    limits: Limits,
) -> anyhow::Result<Option<(TcpListener, Option<Held>, Option<BlockCache>)>> {
    if standing.config.storage.bucket.storage_log == LogPlace::Disk {
        return Ok(Some((listener, None, None)));
    }
    let url = standby::own_url(standing.config, &listener)?;
    let (listener, other) = twice(listener)?;
    let (config, clock) = (standing.config, standing.clock);
    let stood = standing.wait(other, limits, &url).await?;
    if let Some(Stood { held, .. }) = &stood
        && of_cluster(config, clock).await?.is_some()
    {
        // It would take all projects for those of its shard.
        held.give_back().await;
        bail!("shards were added meanwhile; started again, this server is a node of the cluster");
    }
    Ok(stood.map(|stood| (listener, Some(stood.held), stood.cache)))
}

/// The workers that are in the database.
struct Registered(Registry);

impl Directory for Registered {
    fn workers(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        self.0.workers().map_err(|error| error.to_string()).boxed()
    }
}

/// State after the last request was answered.
struct Served {
    /// To be closed.
    app: App,
    /// To be waited for.
    back: Tasks,
    /// To be waited for before the threads of queries end.
    parts: Tasks,
    /// To be held until both are done.
    lock: DirectoryLock,
    /// To be released then.
    lease: Option<Held>,
}

/// Opens the engines, serves and drains. If the log is in a bucket, the server first waits on standby until it holds
/// the lease; `None` if it was stopped before that.
async fn serve(start: Start, runtimes: Runtimes, clock: Clock) -> anyhow::Result<Option<Served>> {
    let Start { keys, config, policy, mut lock, listener, postgres, cluster } = start;
    let metrics = Arc::new(Metrics::new());
    // The front end shuts down first, then the background threads.
    let (front, back) = (Tasks::new(runtimes.main.clone()), Tasks::new(runtimes.main.clone()));
    let limits = Limits::new(&config.http, config.ingest.inflight_max_bytes.as_u64());
    let data_dir = config.storage.data_dir.clone();
    let standing =
        Standing { config: &config, runtimes: &runtimes, metrics: &metrics, clock: &clock };
    let Some((listener, lease, cache)) = stand_by(standing, listener, limits.clone()).await? else {
        return Ok(None);
    };
    if let Some(lease) = &lease {
        lease.keep(&back);
    }
    let limits = limits.with_node_secret(lease.as_ref().map(Held::secret));
    let (parts, settings) = (Tasks::new(runtimes.query.clone()), (&config, &clock, &metrics));
    let distribute = distribute(cluster, (&parts, &front), settings).await?;
    let process = Process {
        shard: ShardId::FIRST,
        config,
        tasks: back.clone(),
        runtimes,
        clock: clock.clone(),
        metrics: Arc::clone(&metrics),
        distribute,
        cache,
        writer: None,
    };
    let app = open(process, policy, lease.as_ref()).await?;
    // Signals are caught before the address is announced: a process that reads it may send one at once.
    let stop_signal = stop_signal()?;
    let (url, secret) = announce(&mut lock, &listener)?;
    // Keys are generated last and printed at once, so that a failed start leaves no key that was not shown.
    let started = app.node.metadata.bootstrap(keys, &Seed::new(&mut rand::rng())).await?;
    let link = first_link(&app.node, &started, &url).await?;
    // The parent process may have closed the pipe after the first line.
    let postgres = postgres::listen_once_serving(&app.node.config, postgres, &clock).await?;
    if let Err(error) = greet(
        &url,
        postgres.as_ref().map(|door| &door.listener),
        link.as_deref(),
        (&started, &data_dir),
    ) {
        tracing::warn!(%error, "cannot write to standard output");
    }
    if let (Some(lease), Some(rivals)) = (&lease, app.shard.rivals()) {
        lease.watch_log(rivals);
    }
    refresh_metadata(&back, app.node.metadata.clone());
    let router = Router::new(app.clone(), secret, front.shutdown().clone()).with_guide(guide());
    let router = Arc::new(router);
    postgres::serve(&app, postgres, &front);
    let serving = weir_http::serve(listener, limits, router, front.clone(), clock, metrics);
    let stop = async {
        stop_signal.await;
        tracing::info!("stopping: finishing requests, then flushing");
        front.shutdown().begin();
    };
    let mut served = std::pin::pin!(async { tokio::join!(serving, stop) });
    tokio::select! {
        _ = &mut served => {}
        () = taken_over(&app, lease.as_ref()) => {
            front.shutdown().begin();
            // Nothing more is acknowledged; waiting clients get an error.
            tokio::select! {
                _ = &mut served => {}
                _ = front.wait(REFUSALS_SENT) => {}
            }
            bail!("another server has taken over; started again, this one stands by")
        }
        thread = back.failed() => bail!(
            "the thread {thread:?} panicked, and the server cannot go on without it; see its log. \
             Acknowledged events are in the data directory: start it again"
        ),
    }
    postgres::end(&front, app.node.config.http.drain_timeout).await;
    app.shard.drain(PIPELINE_DRAIN).await;
    back.shutdown().begin();
    Ok(Some(Served { app, back, parts, lock, lease }))
}

/// The database of a cluster, if an operator has added shards to the bucket: connections of its own.
async fn of_cluster(config: &Config, clock: &Clock) -> anyhow::Result<Option<Metadata>> {
    let Some(url) = &config.metadata.metadata_url else { return Ok(None) };
    let access = MetadataAccess::Write;
    let metadata = Metadata::connect(&config.metadata, url, clock.clone(), access).await?;
    let Some(bucket) = metadata.bucket_of_shards().await? else {
        metadata.close().await;
        return Ok(None);
    };
    let BucketConfig { storage_url, storage_log, .. } = &config.storage.bucket;
    let is_own = storage_url.as_ref().is_some_and(|own| own.to_string() == bucket);
    if !is_own || *storage_log != LogPlace::Bucket {
        bail!(
            "{url} has the projects of the cluster in {bucket}, and of no other server: take another database, or start with \
             --storage-url {bucket} --storage-log bucket"
        );
    }
    Ok(Some(metadata))
}

/// Serves as a node of a cluster until a signal to stop.
async fn serve_shards(
    start: Start,
    metadata: Metadata,
    runtimes: Runtimes,
    clock: Clock,
) -> anyhow::Result<()> {
    let Start { keys, config, mut lock, listener, postgres, cluster: parts, .. } = start;
    if parts.is_some() {
        bail!("a node of a cluster with several shards has no cluster-listen");
    }
    let Some(bucket) = config.storage.bucket.storage_url.clone() else {
        bail!("a node of a cluster needs storage-url");
    };
    let own_url = standby::own_url(&config, &listener)?;
    if own_url.is_empty() {
        bail!("a node of a cluster needs node-url, under which the other nodes reach it");
    }
    let postgres = postgres::listen_once_serving(&config, postgres, &clock).await?;
    let metrics = Arc::new(Metrics::new());
    let back = Tasks::new(runtimes.main.clone());
    let cache = tables::cache(&config.storage, &metrics).context("cannot use the cache")?;
    let process = Process {
        shard: ShardId::FIRST,
        config: config.clone(),
        tasks: back.clone(),
        runtimes: runtimes.clone(),
        clock: clock.clone(),
        metrics: Arc::clone(&metrics),
        distribute: None,
        cache: None,
        writer: None,
    };
    let node = App::open_node(&process).await?;
    let stop = stop_signal()?;
    let (url, secret) = announce(&mut lock, &listener)?;
    let started = node.metadata.bootstrap(keys, &Seed::new(&mut rand::rng())).await?;
    let link = first_link(&node, &started, &url).await?;
    let data_dir = &config.storage.data_dir;
    let door = postgres.as_ref().map(|door| &door.listener);
    if let Err(error) = greet(&url, door, link.as_deref(), (&started, data_dir)) {
        tracing::warn!(%error, "cannot write to standard output");
    }
    refresh_metadata(&back, node.metadata.clone());
    let of_nodes = lease::secret_of_nodes(&metadata, &bucket).await?;
    let identity = Identity { url: own_url, secret: of_nodes };
    let build = env!("CARGO_PKG_VERSION").to_owned();
    let base = shards::Foundations {
        config,
        runtimes,
        clock,
        metrics,
        node,
        bucket,
        identity,
        secret,
        metadata,
        cache,
        build,
    };
    shards::run(base, (listener, postgres), stop).await?;
    back.shutdown().begin();
    if let Err(error) = back.wait(THREADS_END).await {
        tracing::warn!(%error, "tasks did not end in time");
    }
    drop(lock);
    Ok(())
}

/// At the first start, the address that signs in to the page once.
async fn first_link(node: &Node, started: &Started, url: &str) -> anyhow::Result<Option<String>> {
    if started.personal_key.is_none() {
        return Ok(None);
    }
    let seed = Seed::new(&mut rand::rng());
    let link = node.metadata.create_sign_in_link(started.user.id, &seed).await?;
    let page = node.config.http.public_url.as_deref().unwrap_or(url).trim_end_matches('/');
    let (project, address) = (started.project.id.0, login::address(page, &link));
    Ok(Some(format!("{address}&next=/project/{project}/onboarding")))
}

/// Opens the engines. A server that finds that everything was moved away releases the lease, so that a move that did
/// not end can be run again: the server has written nothing, and the mark was put after the last server had ended
/// cleanly.
async fn open(
    process: Process,
    policy: MetadataPolicy,
    lease: Option<&Held>,
) -> anyhow::Result<App> {
    let (tasks, data_dir) = (process.tasks.clone(), process.config.storage.data_dir.clone());
    let opened = App::open(process, policy).await;
    if let (Err(OpenError::Moved { .. }), Some(lease)) = (&opened, lease) {
        // A renewal afterwards would find it gone.
        tasks.shutdown().begin();
        let _ = tasks.wait(THREADS_END).await;
        lease.give_back().await;
        lease.close().await;
    }
    opened.with_context(|| format!("cannot open {}", data_dir.display()))
}

/// Announces the server's address to commands on this machine. Returns its URL, and the secret of the commands.
fn announce(
    lock: &mut DirectoryLock,
    listener: &TcpListener,
) -> anyhow::Result<(String, Arc<str>)> {
    let url = format!("http://{}", listener.local_addr()?);
    let secret: Arc<str> = Uuid::new_v4().simple().to_string().into();
    let (pid, own) = (std::process::id(), secret.to_string());
    lock.announce(&ServerAddress { pid, url: url.clone(), secret: own })?;
    Ok((url, secret))
}

/// Two handles on one socket.
fn twice(listener: TcpListener) -> std::io::Result<(TcpListener, TcpListener)> {
    let own = listener.into_std()?;
    let other = own.try_clone()?;
    Ok((TcpListener::from_std(own)?, TcpListener::from_std(other)?))
}

/// Returns once another server has taken over; never without a lease.
async fn taken_over(app: &App, lease: Option<&Held>) {
    let Some(lease) = lease else { return std::future::pending().await };
    let mut fenced = app.shard.pipeline.health().fenced();
    tokio::select! {
        () = lease.lost() => {}
        // The sender lives as long as the app.
        _ = fenced.wait_for(|fenced| *fenced) => {}
    }
}

/// Reloads the metadata periodically, for what another process changed. Logs the beginning and the end of
/// failures, not each of them.
fn refresh_metadata(tasks: &Tasks, metadata: Metadata) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("refresh-metadata", async move {
        let mut has_failed = false;
        while shutdown.pause(METADATA_REFRESH).await == weir_base::tasks::Pause::Elapsed {
            match metadata.refresh().await {
                Err(error) if !has_failed => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "cannot read changes of the metadata: events are taken and flags are evaluated with the \
                         last ones, and changes are refused until this succeeds"
                    );
                    has_failed = true;
                }
                Err(_) => {}
                Ok(()) => {
                    if std::mem::take(&mut has_failed) {
                        tracing::info!("the metadata can be read again");
                    }
                }
            }
        }
    });
}

/// Prints the URL and the API keys for the operator: at the first start both keys and commands to try, later
/// only the project key, which is no secret.
fn greet(
    url: &str,
    postgres: Option<&TcpListener>,
    link: Option<&str>,
    (started, data_dir): (&Started, &Path),
) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let (project, token) = (started.project.id, &started.project.token);
    writeln!(out, "weir listens on {url}")?;
    if let Some(address) = postgres.map(TcpListener::local_addr).transpose()? {
        let (host, port) = (address.ip(), address.port());
        writeln!(
            out,
            "clients of PostgreSQL connect to host {host}, port {port}, database {}",
            started.project.id
        )?;
    }
    writeln!(out)?;
    writeln!(out, "project API key (SDKs send with it):    {token}")?;
    match &started.personal_key {
        Some(key) => {
            writeln!(out, "personal API key (shown only this time): {key}")?;
            if let Some(link) = link {
                writeln!(out, "page (works once, within 15 minutes):   {link}")?;
            }
            writeln!(out, "\ntry:\n  curl {url}/capture/ -H 'Content-Type: application/json' \\")?;
            writeln!(
                out,
                "    -d '{{\"api_key\":\"{token}\",\"event\":\"hello\",\"distinct_id\":\"me\"}}'"
            )?;
            writeln!(
                out,
                "  curl {url}/api/projects/{project}/persons/ -H 'Authorization: Bearer {key}'\n"
            )?;
        }
        None => {
            let directory = data_dir.display();
            writeln!(
                out,
                "a new personal API key:                 weir keys create LABEL --data-dir {directory}\n\
                 a link to sign in to the page:          weir login --data-dir {directory}\n"
            )?;
        }
    }
    out.flush()
}
