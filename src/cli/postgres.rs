//! The PostgreSQL port of `weir serve`, which a build may leave out (feature `postgres-port`).

use std::time::Duration;

use tokio::net::TcpListener;

use weir_app::App;
use weir_base::config::Config;
use weir_base::config::bucket::LogPlace;
use weir_base::tasks::Tasks;

/// Time for sessions to end after the drain time-out.
const SESSIONS_END: Duration = Duration::from_secs(1);

/// The socket of the port, bound, and its certificate.
pub(crate) struct Door {
    /// The socket.
    pub(crate) listener: TcpListener,
    #[cfg(feature = "postgres-port")]
    certificate: weir_pg::Certificate,
}

/// Opens the door of the port, if the settings have one. Clients that connect before it serves wait in the kernel's accept
/// queue; so a server that may have to stand by does it later.
///
/// # Errors
///
/// The address or the certificate cannot be used, or this build has no port.
pub(crate) async fn listen(config: &Config) -> anyhow::Result<Option<Door>> {
    match config.storage.bucket.storage_log {
        LogPlace::Bucket => Ok(None),
        LogPlace::Disk => open(config).await,
    }
}

/// The door that [`listen`] has opened, or opens it now.
///
/// # Errors
///
/// Those of [`listen`].
pub(crate) async fn listen_once_serving(
    config: &Config,
    door: Option<Door>,
) -> anyhow::Result<Option<Door>> {
    match door {
        Some(door) => Ok(Some(door)),
        None => open(config).await,
    }
}

#[cfg(feature = "postgres-port")]
async fn open(config: &Config) -> anyhow::Result<Option<Door>> {
    let Some(address) = config.postgres_port.postgres_listen else { return Ok(None) };
    let certificate = weir_pg::Certificate::load(&config.postgres_port)?;
    let listener = TcpListener::bind(address).await.map_err(|error| {
        anyhow::anyhow!(
            "cannot listen on {address}: {error}; --postgres-listen chooses another address"
        )
    })?;
    Ok(Some(Door { listener, certificate }))
}

/// Refuses a setting that has no effect.
#[cfg(not(feature = "postgres-port"))]
async fn open(config: &Config) -> anyhow::Result<Option<Door>> {
    match config.postgres_port.postgres_listen {
        Some(_) => anyhow::bail!("postgres-listen: this build lacks the feature postgres-port"),
        None => Ok(None),
    }
}

/// Serves the port, if its door is open, as a task of `tasks`.
#[cfg(feature = "postgres-port")]
pub(crate) fn serve(app: &App, door: Option<Door>, tasks: &Tasks) {
    if let Some(Door { listener, certificate }) = door {
        let port = weir_pg::Port::new(app.clone(), tasks.clone(), certificate);
        tasks.spawn("postgres-port", port.serve(listener));
    }
}

/// There is no port in this build.
#[cfg(not(feature = "postgres-port"))]
pub(crate) fn serve(_: &App, _: Option<Door>, _: &Tasks) {}

/// Waits until all sessions have ended after the shutdown of `tasks` has begun: statements have the drain time-out.
pub(crate) async fn end(tasks: &Tasks, drain_timeout: Duration) {
    if let Err(error) = tasks.wait(drain_timeout.saturating_add(SESSIONS_END)).await {
        tracing::warn!(%error, "sessions of the PostgreSQL port were cut off");
    }
}
