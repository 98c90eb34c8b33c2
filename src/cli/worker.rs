//! `weir worker`, a process that executes parts of the queries of servers. It has no events and no persons, only a cache of
//! files, so that it may be started and stopped at any time.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};

use crate::cli::process;
use weir_app::{tables, workers};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::Tasks;
use weir_base::telemetry::logs;
use weir_base::telemetry::metrics::Metrics;
use weir_cluster::node::{Node, Process};
use weir_http::limits::Limits;
use weir_http::standby::{Refusing, Standby};
use weir_query::fragments::FragmentRuntime;

/// Settings of a worker: those of `weir serve`, of which it uses the sections Cluster, Query, Storage (bucket and cache),
/// Metadata (to register in the database), HTTP (for probes and metrics) and Telemetry.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// TOML file of settings; its keys are the flags below without the leading dashes
    #[arg(long, env = "WEIR_CONFIG")]
    pub config: Option<PathBuf>,
    /// All settings.
    #[command(flatten)]
    pub settings: Config,
}

/// Runs the worker until SIGTERM or SIGINT.
///
/// # Errors
///
/// A setting, the directory or the bucket fails; the message is for the operator.
pub fn run(args: WorkerArgs, version: &'static str, clock: Clock) -> anyhow::Result<()> {
    let config = args.settings;
    logs::start(&config.telemetry)?;
    let main = Builder::new_multi_thread().thread_name("async").enable_all().build()?;
    let query = process::query_runtime(&config)?;
    let node = main.block_on(Node::listen(&config.cluster, version))?;
    let node =
        node.context("a worker executes parts of queries behind a port: set cluster-listen")?;
    let listener = main.block_on(process::listen(&config))?;
    let lock = process::lock(&config.storage.data_dir)?;
    let worker = Worker { config, node, listener, query: query.handle().clone(), clock };
    let served = main.block_on(worker.serve());
    if served.is_err() {
        // What is cut off must not look like its end to other nodes: the connections end with the process.
        std::mem::forget((query, main));
        return served;
    }
    query.shutdown_background();
    main.shutdown_timeout(process::THREADS_END);
    drop(lock);
    served
}

struct Worker {
    config: Config,
    node: Node,
    listener: TcpListener,
    query: Handle,
    clock: Clock,
}

impl Worker {
    async fn serve(self) -> anyhow::Result<()> {
        let Self { config, node, listener, query, clock } = self;
        let (metrics, tasks) = (Arc::new(Metrics::new()), Tasks::new(Handle::current()));
        let stop_signal = process::stop_signal()?;
        let url = config.storage.bucket.storage_url.clone();
        let url = url.context("a worker reads the files of a bucket: set storage-url")?;
        let files = tables::of_worker(&config, &url, &tasks, &clock, &metrics).await?;
        let threads = query.metrics().num_workers();
        let runtime = FragmentRuntime::new(&config.query, files, threads, clock.clone())?
            .knowing(weir_insights::distributed::ABOVE);
        let mut out = std::io::stdout().lock();
        let greeting = writeln!(
            out,
            "weir executes parts of queries on {}, and tells its health on http://{}",
            node.url(),
            listener.local_addr()?
        );
        if let Err(error) = greeting.and_then(|()| out.flush()) {
            tracing::warn!(%error, "cannot write to standard output");
        }
        drop(out);
        let shutdown = tasks.shutdown().clone();
        let port = Tasks::new(query);
        let process = Process { tasks: port.clone(), shutdown, metrics: Arc::clone(&metrics) };
        let url = node.url().to_owned();
        node.work(runtime, &process);
        let limits = Limits::new(&config.http, config.ingest.inflight_max_bytes.as_u64());
        let handler =
            Arc::new(Standby { metrics: Arc::clone(&metrics), refusing: Refusing::Worker });
        let serving =
            weir_http::serve(listener, limits, handler, tasks.clone(), clock.clone(), metrics);
        tasks.spawn("health", serving);
        let shutdown = tasks.shutdown().clone();
        workers::registered(&config, &clock, (&url, &shutdown), stop_signal).await;
        tracing::info!("stopping");
        tasks.shutdown().begin();
        let ended = port.wait(process::THREADS_END).await;
        ended.context("parts of queries were cut off; their servers run them again")?;
        let _ = tasks.wait(process::THREADS_END).await;
        Ok(())
    }
}
