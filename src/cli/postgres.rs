//! The PostgreSQL port of `weir serve`, which a build may leave out (feature `postgres-port`).

#[cfg(feature = "postgres-port")]
mod places;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use weir_app::App;
use weir_app::node::Node;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::LogPlace;
use weir_base::tasks::Tasks;
use weir_http::cluster::Cluster;
use weir_http::cluster::sessions::Sessions;

/// Time for sessions to end after the drain time-out.
const SESSIONS_END: Duration = Duration::from_secs(1);

/// Longest time for a former socket of the port to be closed, and the pause between two looks.
const CLOSED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(20));

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

/// The door that [`listen`] has opened, or opens it now. A server that has just stood by closes the socket of that time first.
///
/// # Errors
///
/// Those of [`listen`].
pub(crate) async fn listen_once_serving(
    config: &Config,
    door: Option<Door>,
    clock: &Clock,
) -> anyhow::Result<Option<Door>> {
    if door.is_some() {
        return Ok(door);
    }
    let ends = clock.monotonic().saturating_add(CLOSED.0);
    loop {
        match open(config).await {
            Err(_) if clock.monotonic() < ends => tokio::time::sleep(CLOSED.1).await,
            opened => return opened,
        }
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
        let places = Arc::new(weir_pg::places::Alone(app.clone()));
        let port = weir_pg::Port::new(Arc::clone(&app.node), places, tasks.clone(), certificate);
        tasks.spawn("postgres-port", port.serve(listener));
    }
}

/// There is no port in this build.
#[cfg(not(feature = "postgres-port"))]
pub(crate) fn serve(_: &App, _: Option<Door>, _: &Tasks) {}

/// Serves the port of a node of a cluster, if its door is open. Without one, the node still has the sessions that others pass on
/// to it.
#[cfg(feature = "postgres-port")]
pub(crate) fn serve_node(
    node: &Arc<Node>,
    cluster: &Arc<Cluster>,
    door: Option<Door>,
    tasks: &Tasks,
) -> Option<Arc<dyn Sessions>> {
    let (listener, certificate) = match door {
        Some(Door { listener, certificate }) => (Some(listener), certificate),
        None => (None, weir_pg::Certificate::default()),
    };
    let places = Arc::new(places::OfNodes(Arc::clone(cluster)));
    let port = weir_pg::Port::new(Arc::clone(node), places, tasks.clone(), certificate);
    if let Some(listener) = listener {
        tasks.spawn("postgres-port", port.clone().serve(listener));
    }
    Some(Arc::new(places::Taking(port)))
}

/// There is no port in this build.
#[cfg(not(feature = "postgres-port"))]
pub(crate) fn serve_node(
    _: &Arc<Node>,
    _: &Arc<Cluster>,
    _: Option<Door>,
    _: &Tasks,
) -> Option<Arc<dyn Sessions>> {
    None
}

/// Serves the port of a server that follows another one with `app`, as a task of `front`, until the shutdown of `back` begins,
/// with which `app` ends. Its address is free again then.
#[cfg(feature = "postgres-port")]
pub(crate) async fn serve_follower(app: &App, front: &Tasks, back: &Tasks) {
    let Door { listener, certificate } = match open(&app.node.config).await {
        Ok(Some(door)) => door,
        Ok(None) => return,
        Err(error) => {
            let error = &*error as &dyn std::error::Error;
            tracing::warn!(error, "cannot open the PostgreSQL port while this server stands by");
            return;
        }
    };
    let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let ending = back.shutdown().clone();
    let places = places::OfFollower { app: app.clone(), ending: ending.clone() };
    let node = Arc::clone(&app.node);
    let port = weir_pg::Port::new(node, Arc::new(places), front.clone(), certificate);
    front.spawn("postgres-port", async move {
        tokio::select! {
            () = port.serve(listener) => {}
            () = ending.cancelled() => {}
        }
    });
    tracing::info!(address, "clients of PostgreSQL may connect");
}

/// There is no port in this build.
#[cfg(not(feature = "postgres-port"))]
pub(crate) async fn serve_follower(_: &App, _: &Tasks, _: &Tasks) {}

/// Waits until all requests and sessions have ended after the shutdown of `tasks` has begun: statements have the drain time-out.
pub(crate) async fn end(tasks: &Tasks, drain_timeout: Duration) {
    if let Err(error) = tasks.wait(drain_timeout.saturating_add(SESSIONS_END)).await {
        tracing::warn!(%error, "requests or sessions of the PostgreSQL port were cut off");
    }
}
