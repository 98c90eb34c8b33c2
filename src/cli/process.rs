//! What processes that serve have in common: the socket, the data directory with its lock, the threads of queries, the end.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::guide::PAGES;
use weir_app::lock::{DirectoryLock, Holder};
use weir_base::config::Config;
use weir_http::routes::llms::Guide;
use weir_identity::store::Identities;
use weir_query::guard::complexity;

/// Longest time at shutdown for the threads to end.
pub(super) const THREADS_END: Duration = Duration::from_secs(10);

/// Longest time at the end of a shard for accepted requests to get into the log.
pub(super) const PIPELINE_DRAIN: Duration = Duration::from_secs(10);

/// Pause between attempts to close stores that are still read.
const CLOSE_PAUSE: Duration = Duration::from_millis(50);

/// Closes the persons of a shard, whose tasks have ended, so that they can be opened again, and returns once nobody reads them
/// any more. Requests that still read them fail.
pub(super) async fn end_persons(identities: Identities) {
    loop {
        let own = identities.clone();
        if matches!(tokio::task::spawn_blocking(move || own.end()).await, Ok(Ok(()))) {
            return;
        }
        tokio::time::sleep(CLOSE_PAUSE).await;
    }
}

/// Creates the data directory, readable by this user alone. An existing directory keeps its permissions.
pub(super) fn create_private(data_dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
    let mode = std::fs::metadata(data_dir)?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        let mode = format!("{mode:04o}");
        tracing::warn!(
            directory = %data_dir.display(),
            mode,
            "the data directory is accessible to all users of this machine; restrict it with chmod 700"
        );
    }
    Ok(())
}

/// Binds the server's socket. Clients that connect before it serves wait in the kernel's accept queue.
pub(super) async fn listen(config: &Config) -> anyhow::Result<TcpListener> {
    let address = config.http.listen;
    let data_dir = &config.storage.data_dir;
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| match served_by(data_dir) {
        Some(process) => anyhow!("{} is served by process {process} already", data_dir.display()),
        None => anyhow!("cannot listen on {address}: {error}; --listen chooses another address"),
    })
}

/// The server that runs on `data_dir`, if one does.
fn served_by(data_dir: &Path) -> Option<u32> {
    match DirectoryLock::share(data_dir) {
        Ok(Holder::Server(address)) => Some(address.pid),
        _ => None,
    }
}

/// Creates the data directory if it is missing, and locks it.
pub(super) fn lock(data_dir: &Path) -> anyhow::Result<DirectoryLock> {
    let name = data_dir.display();
    create_private(data_dir).with_context(|| format!("cannot create {name}"))?;
    match DirectoryLock::take(data_dir).with_context(|| format!("cannot lock {name}"))? {
        Holder::Nobody(lock) => Ok(lock),
        Holder::Server(address) => bail!("{name} is served by process {} already", address.pid),
        Holder::Unknown => {
            bail!("{name} is in use by another process, which may be a `weir query`; try again")
        }
    }
}

pub(super) fn query_runtime(config: &Config) -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .thread_name("query")
        .thread_stack_size(complexity::STACK_BYTES)
        .worker_threads(config.query.query_threads.unwrap_or(cores).max(1))
        .enable_all()
        .build()
}

/// The pages of the guide that are about using a server.
pub(super) fn guide() -> Guide {
    let pages = PAGES.iter().filter(|page| page.topic != "contributing");
    Guide::new(pages.map(|page| (page.topic, page.summary, page.text)).collect())
}

/// Installs handlers for SIGTERM and SIGINT at the call. The future resolves at the first signal.
pub(super) fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
