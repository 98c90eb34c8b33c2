//! HTTP front end: accepts connections and passes requests to a [`Handler`]. Endpoints are rows of [`table`]; each runs
//! an [`operation`] in [`routes`], which pages call, too.
//!
//! # Request path
//!
//! 1. [`serve`] accepts the connection.
//! 2. `connection.rs` speaks HTTP/1.1 or HTTP/2 (prior knowledge; a proxy does TLS) and closes
//!    stalled connections.
//! 3. `exchange.rs` does what every request needs: id, CORS, log line, metrics, panics.
//! 4. The handler finds the endpoint and answers.
//!
//! hyper's types do not go beyond `request.rs` and `response.rs`.

pub mod auth;
pub mod body;
pub mod body_fields;
pub mod cluster;
pub mod conditional;
pub mod cookies;
pub mod cors;
pub mod csv;
pub mod fields;
pub mod follower;
pub mod forward;
pub mod gzip;
pub mod handler;
pub mod limits;
pub mod lookup;
pub mod multipart;
pub mod objects;
pub mod openapi;
pub mod operation;
pub mod page;
pub mod public;
pub mod rendering;
pub mod request;
pub mod response;
pub mod revocation;
pub mod router;
pub mod routes;
pub mod standby;
pub mod table;

mod activity;
mod beside;
mod budget;
mod client_address;
mod connection;
mod counters;
mod exchange;
mod front;
mod logged_path;
mod members;
mod protocol;
mod refusals;
mod rows;
#[cfg(test)]
mod tests;
mod unsent;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::budget::Budget;
use crate::front::Front;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::refusals::Refusals;
use weir_base::clock::Clock;
use weir_base::tasks::{Pause, Tasks};
use weir_base::telemetry::metrics::Metrics;

/// First and longest pause after a failed accept. The typical cause is a lack of file descriptors,
/// where an immediate retry would only burn a core.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Interval of log lines about requests that were refused for the same reason.
const REFUSALS_PAUSE: Duration = Duration::from_secs(10);

/// Serves connections from `listener` until the shutdown of `tasks` begins. Then stops listening,
/// lets requests under way finish for at most `drain_timeout`, and returns when no connection is
/// left. Connections are tasks of `tasks`.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    limits: Limits,
    handler: Arc<H>,
    tasks: Tasks,
    clock: Clock,
    metrics: Arc<Metrics>,
) {
    let permits = usize::try_from(limits.connections_max).unwrap_or(usize::MAX);
    let connections = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
    let budget = Budget::new(limits.requests_max_bytes, &metrics);
    let refusals = Arc::new(Refusals::new(REFUSALS_PAUSE));
    let protocol = protocol::protocol(&limits, &tasks);
    let shutdown = tasks.shutdown().clone();
    let front = Front {
        handler,
        limits,
        clock,
        metrics,
        budget,
        refusals,
        connections,
        protocol,
        shutdown,
    };
    let front = Arc::new(front);
    let (counting, tick) = (Arc::clone(&front), tasks.shutdown().clone());
    tasks.spawn("log-refusals", async move {
        while tick.pause(REFUSALS_PAUSE).await == Pause::Elapsed {
            refusals::log_refusals(&counting.refusals, counting.clock.monotonic());
        }
    });
    accept(&listener, &front, &tasks).await;
    drop(listener);
    // Connections end themselves at the drain deadline; the extra second lets them do so.
    let deadline = front.limits.drain_timeout + Duration::from_secs(1);
    let all_closed = front.connections.acquire_many(front.limits.connections_max);
    if tokio::time::timeout(deadline, all_closed).await.is_err() {
        tracing::warn!("connections were still open at the end of the drain time-out");
    }
    refusals::log_refusals(&front.refusals, front.clock.monotonic());
}

async fn accept<H: Handler>(listener: &TcpListener, front: &Arc<Front<H>>, tasks: &Tasks) {
    let mut pause = ACCEPT_PAUSE.0;
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&front.connections).acquire_owned() => permit,
            () = front.shutdown.cancelled() => return,
        };
        // The semaphore is never closed.
        let Ok(permit) = permit else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = front.shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                pause = ACCEPT_PAUSE.0;
                prepare(&stream, peer);
                let open = connection::Open::new(permit, &front.metrics);
                let connection = connection::serve(Arc::clone(front), stream, peer.ip(), open);
                tasks.spawn("http-connection", connection);
            }
            // The client gave up while it waited; not an error.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                front.metrics.http_accept_errors.inc();
                tracing::warn!(%error, ?pause, "cannot accept a connection");
                if front.shutdown.pause(pause).await == Pause::Cancelled {
                    return;
                }
                pause = (pause * 2).min(ACCEPT_PAUSE.1);
            }
        }
    }
}

/// Responses are written whole, so Nagle's algorithm would only delay them.
fn prepare(stream: &TcpStream, peer: SocketAddr) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %peer, "cannot set TCP_NODELAY");
    }
}
