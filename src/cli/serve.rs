//! `weir serve`: settings, lock, engines, front end, signal, drain.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use anyhow::bail;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use uuid::Uuid;

use crate::app::App;
use crate::app::Runtimes;
use crate::app::lock::DirectoryLock;
use crate::app::lock::Holder;
use crate::app::lock::ServerAddress;
use crate::cli::descriptors;
use crate::clock::Clock;
use crate::config::Config;
use crate::http;
use crate::http::router::Router;
use crate::metadata::Metadata;
use crate::metadata::first_start::FirstStart;
use crate::metadata::first_start::Started;
use crate::metadata::secrets::Seed;
use crate::query::complexity;
use crate::tasks::Tasks;
use crate::telemetry::logs;
use crate::telemetry::metrics::Metrics;

/// Time between looks for what `weir keys` has changed.
const METADATA_REFRESH: Duration = Duration::from_secs(1);

/// Time for the last requests to get from arrival into the log.
const PIPELINE_DRAIN: Duration = Duration::from_secs(10);

/// Time for the threads to end.
const THREADS_END: Duration = Duration::from_secs(10);

/// Turns of tasks after which a thread that is never idle looks at sockets and timers again. A turn may
/// evaluate flags for 200 us (`http::knowledge`); with tokio's own 61 they could wait for 12 ms.
const EVENT_INTERVAL: u32 = 16;

/// Settings of the server. Each is a flag, an environment variable and a key of the settings file.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// TOML file of settings: the flags below without the dashes in front, as in `listen = "..."`
    #[arg(long, env = "WEIR_CONFIG")]
    pub config: Option<PathBuf>,
    /// Project API key of the first project, by which SDKs send [default: made at first start]
    #[arg(long, env = "WEIR_PROJECT_API_KEY", hide_env_values = true)]
    pub project_api_key: Option<String>,
    /// Personal API key of the first user, by which the API is read [default: made at first start]
    #[arg(long, env = "WEIR_PERSONAL_API_KEY", hide_env_values = true)]
    pub personal_api_key: Option<String>,
    /// Everything else.
    #[command(flatten)]
    pub settings: Config,
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
///
/// What the operator has to mend.
pub fn run(args: ServeArgs, clock: Clock) -> anyhow::Result<()> {
    let mut config = args.settings.clone();
    config.check().map_err(anyhow::Error::msg)?;
    logs::start(&config.telemetry)?;
    config.http.connections_max =
        descriptors::for_connections(config.http.connections_max, descriptors::raise());
    let data_dir = &config.storage.data_dir;
    std::fs::create_dir_all(data_dir)
        .with_context(|| format!("cannot create {}", data_dir.display()))?;
    let lock = match DirectoryLock::take(data_dir)? {
        Holder::Nobody(lock) => lock,
        Holder::Server(address) => {
            bail!("{} is served by process {} already", data_dir.display(), address.pid)
        }
        Holder::Unknown => bail!("{} is in use by another process", data_dir.display()),
    };
    let main = Builder::new_multi_thread()
        .thread_name("async")
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()?;
    let query = query_runtime(&config)?;
    let runtimes = Runtimes { main: main.handle().clone(), query: query.handle().clone() };
    let (app, back, lock) = main.block_on(serve(args, config, runtimes, lock, clock))?;
    // Flushing blocks on the runtime, so it happens outside of it.
    app.close()?;
    // The deriver writes the last of what it knows when nobody can send it anything any more.
    if let Err(error) = main.block_on(back.wait(THREADS_END)) {
        tracing::warn!(%error, "not everything came to its end");
    }
    tracing::info!("stopped");
    query.shutdown_background();
    main.shutdown_timeout(THREADS_END);
    // Only now: until here this process writes to the directory.
    drop(lock);
    Ok(())
}

fn query_runtime(config: &Config) -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .thread_name("query")
        .thread_stack_size(complexity::STACK_BYTES)
        .worker_threads(config.query.query_threads.unwrap_or(cores).max(1))
        .enable_all()
        .build()
}

/// Opens, serves, drains. Returns the app for its last step, the tasks that end with it, and the lock to
/// hold until after that.
async fn serve(
    args: ServeArgs,
    config: Config,
    runtimes: Runtimes,
    mut lock: DirectoryLock,
    clock: Clock,
) -> anyhow::Result<(App, Tasks, DirectoryLock)> {
    let metrics = Arc::new(Metrics::new());
    // The front end ends first, then the threads behind it.
    let (front, back) = (Tasks::new(runtimes.main.clone()), Tasks::new(runtimes.main.clone()));
    let limits = http::Limits::new(&config.http, config.ingest.inflight_max_bytes.as_u64());
    let listen = config.http.listen;
    let app =
        App::open(config, back.clone(), runtimes, clock.clone(), Arc::clone(&metrics)).await?;
    let started = app
        .metadata
        .first_start(
            FirstStart { project_token: args.project_api_key, personal_key: args.personal_api_key },
            &Seed::new(&mut rand::rng()),
        )
        .await?;
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    let secret: Arc<str> = Uuid::new_v4().simple().to_string().into();
    let address =
        ServerAddress { pid: std::process::id(), url: url.clone(), secret: secret.to_string() };
    lock.announce(&address)?;
    // Whoever started the server may have closed its end after the first line.
    if let Err(error) = greet(&url, &started) {
        tracing::warn!(%error, "cannot write to standard output");
    }
    refresh_metadata(&back, app.metadata.clone());
    let router = Arc::new(Router::new(app.clone(), secret, front.shutdown().clone()));
    let serving = http::serve(listener, limits, router, front.clone(), clock, metrics);
    let stop = async {
        stop_signal().await?;
        tracing::info!("stopping: finishing requests, then flushing");
        front.shutdown().begin();
        anyhow::Ok(())
    };
    let ((), stopped) = tokio::join!(serving, stop);
    stopped?;
    app.pipeline.drain(PIPELINE_DRAIN).await;
    let _ = app.engine.wait().await;
    back.shutdown().begin();
    Ok((app, back, lock))
}

async fn stop_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Picks up keys that another process created or revoked.
fn refresh_metadata(tasks: &Tasks, metadata: Metadata) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("refresh-metadata", async move {
        while shutdown.pause(METADATA_REFRESH).await == crate::tasks::Pause::Elapsed {
            if let Err(error) = metadata.refresh().await {
                tracing::warn!(%error, "cannot look for changes of the metadata");
            }
        }
    });
}

/// Tells the operator where the server is and, at the first start, its keys and a line to try.
fn greet(url: &str, started: &Started) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "weir listens on {url}")?;
    if let Some(key) = &started.personal_key {
        let token = &started.project.token;
        let project = started.project.id;
        writeln!(out, "\nproject API key (SDKs send with it):    {token}")?;
        writeln!(out, "personal API key (shown only this time): {key}")?;
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
    out.flush()
}
