//! The PostgreSQL port: clients of PostgreSQL, such as psql and BI tools, read the tables of a project with the SQL that
//! the API takes. Begin with [`Port::serve`].
//!
//! 1. `wire` speaks the protocol. Nothing is believed: lengths are checked before anything is awaited.
//! 2. `login` begins a session: TLS, and a personal API key with the scope `query:read` as password. The database is the
//!    project. [`places`] tells who reads its tables; to another process the connection is passed on (`relay`), which goes on
//!    with it ([`Port::take`]).
//! 3. `session` runs statements. What it does not know is a query, which goes the way of those over HTTP: one snapshot
//!    ([`weir_insights::sql::view_of`]), the tables of one project, a slot, limits of memory and time
//!    ([`weir_query::kernel::engine::Engine::rows`]). Rows are sent as they come, in bounded memory.
//! 4. `types`, `values` and `parameters` convert between Arrow and PostgreSQL; `copy` writes files.
//! 5. `catalog` has the tables by which clients learn which tables and columns there are.
//!
//! No state is changed here: what would write is refused with the code 25006. HTTP is not needed, nor known.

mod catalog;
mod copy;
mod error;
mod lexer;
mod login;
mod numeric;
mod parameters;
pub mod places;
mod relay;
mod rows;
mod session;
mod sessions;
mod statement;
mod times;
mod tls;
mod types;
mod values;
mod variables;
mod wire;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use std::net::{IpAddr, SocketAddr};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

pub use crate::error::PortError;
use crate::login::Arrived;
use crate::places::{CancelKey, Here, Places, Socket};
use crate::relay::Relay;
use crate::sessions::Sessions;
pub use crate::tls::Certificate;
use weir_app::node::Node;
use weir_base::attempts::Attempts;
use weir_base::config::postgres_port::PostgresPortConfig;
use weir_base::tasks::{Pause, Tasks};
use weir_base::telemetry::metrics::Metrics;

/// First and longest pause after a failed accept. The typical cause is a lack of file descriptors, where an immediate
/// retry would only burn a core.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Least connections that may be about to sign in.
const NEWCOMERS_MIN: u32 = 4;

/// Wrong passwords of one client address per minute.
const WRONG_PER_MINUTE: NonZeroU32 = match NonZeroU32::new(20) {
    Some(twenty) => twenty,
    None => NonZeroU32::MIN,
};

/// The port, which all connections share.
#[derive(Clone)]
pub struct Port(Arc<Shared>);

struct Shared {
    node: Arc<Node>,
    places: Arc<dyn Places>,
    tasks: Tasks,
    tls: Option<TlsAcceptor>,
    idle_timeout: Duration,
    /// Longest time to sign in.
    login_timeout: Duration,
    /// Longest time for a client to take any byte.
    send_timeout: Duration,
    /// Longest time of statements after the shutdown has begun.
    drain_timeout: Duration,
    /// One permit for each connection that has signed in.
    signed_in: Arc<Semaphore>,
    /// One permit for each that has not.
    newcomers: Arc<Semaphore>,
    sessions: Sessions,
    /// Wrong passwords, and wrong secrets of requests to cancel.
    wrong: Attempts<IpAddr>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("idle_timeout", &self.0.idle_timeout).finish_non_exhaustive()
    }
}

/// Counts an open connection.
struct Open(Arc<Metrics>);

impl Open {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.postgres.connections.inc();
        Self(Arc::clone(metrics))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.postgres.connections.dec();
    }
}

impl Port {
    /// The port of a process, with its settings. Connections are tasks of `tasks`.
    pub fn new(
        node: Arc<Node>,
        places: Arc<dyn Places>,
        tasks: Tasks,
        Certificate(tls): Certificate,
    ) -> Self {
        let config: &PostgresPortConfig = &node.config.postgres_port;
        let http = &node.config.http;
        let permits = |count: u32| Arc::new(Semaphore::new(usize::try_from(count).unwrap_or(1)));
        let most = config.postgres_connections_max;
        let shared = Shared {
            tasks,
            tls,
            idle_timeout: config.postgres_idle_timeout,
            login_timeout: http.header_timeout,
            send_timeout: http.body_timeout,
            drain_timeout: http.drain_timeout,
            signed_in: permits(most),
            newcomers: permits((most / 4).max(NEWCOMERS_MIN)),
            sessions: Sessions::default(),
            wrong: Attempts::new(&node.clock, WRONG_PER_MINUTE),
            node,
            places,
        };
        Self(Arc::new(shared))
    }

    /// Serves connections from `listener` until the shutdown of the tasks begins; statements that run then have the
    /// drain time-out to end.
    pub async fn serve(self, listener: TcpListener) {
        let shutdown = self.0.tasks.shutdown().clone();
        let mut pause = ACCEPT_PAUSE.0;
        loop {
            // Further clients wait in the kernel's accept queue.
            let permit = tokio::select! {
                permit = Arc::clone(&self.0.newcomers).acquire_owned() => permit,
                () = shutdown.cancelled() => return,
            };
            // The semaphore is never closed.
            let Ok(permit) = permit else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    pause = ACCEPT_PAUSE.0;
                    let connection = self.clone().connection(stream, peer, permit);
                    self.0.tasks.spawn("postgres-connection", connection);
                }
                // The client gave up while it waited; not an error.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, ?pause, "cannot accept a connection of the PostgreSQL port");
                    if shutdown.pause(pause).await == Pause::Cancelled {
                        return;
                    }
                    pause = (pause * 2).min(ACCEPT_PAUSE.1);
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, newcomer: OwnedSemaphorePermit) {
        let _open = Open::new(&self.0.node.metrics);
        // Answers are written whole, so Nagle's algorithm would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %peer, "cannot set TCP_NODELAY");
        }
        // Boxed: each is large, and one of them at a time.
        let arrived = Box::pin(login::login(&self, stream, peer.ip().to_canonical())).await;
        let Some(arrived) = arrived else { return };
        drop(newcomer);
        match arrived {
            Arrived::Here(begun) => Box::pin(session::run(self, *begun)).await,
            Arrived::Elsewhere(passed_on) => {
                let Shared { tasks, drain_timeout, send_timeout, .. } = &*self.0;
                let (shutdown, patience) = (tasks.shutdown().clone(), *send_timeout);
                let relay = Relay { shutdown, drain_timeout: *drain_timeout, patience };
                Box::pin(relay.run(*passed_on)).await;
            }
        }
    }

    /// Serves a connection of `client` that another process has passed on here, because `here` are the tables of its project.
    /// `stream` gives its bytes, or nothing if they do not come. Whoever calls it knows that the process is one of its own.
    pub fn take(
        &self,
        here: Here,
        client: IpAddr,
        stream: impl Future<Output = Option<Box<dyn Socket>>> + Send + 'static,
    ) {
        let port = self.clone();
        self.0.tasks.spawn("postgres-connection", async move {
            let _open = Open::new(&port.0.node.metrics);
            let begun = Box::pin(login::login_passed_on(&port, here, stream, client)).await;
            if let Some(begun) = begun {
                Box::pin(session::run(port, begun)).await;
            }
        });
    }

    /// Cancels the statement that a session of this process runs, for another process of which it is asked. Returns whether
    /// there is such a session.
    pub fn cancel(&self, key: CancelKey) -> bool {
        self.0.sessions.cancel(key)
    }
}
