//! HTTP front end: accepts connections and passes requests to a [`Handler`]. Endpoints are in
//! `http/routes`; there is no product logic here.
//!
//! # Request path
//!
//! 1. `http.rs` accepts the connection.
//! 2. `http/connection.rs` speaks HTTP/1.1 or HTTP/2 (prior knowledge; a proxy does TLS) and closes
//!    stalled connections.
//! 3. `http/exchange.rs` does what every request needs: id, CORS, log line, metrics, panics.
//! 4. The handler finds the endpoint and answers.
//!
//! hyper's types end in `http/request.rs` and `http/response.rs`.

pub mod auth;
pub mod call;
pub mod conditional;
pub mod cors;
pub mod csv;
pub mod fields;
pub mod gzip;
pub mod page;
pub mod public;
pub mod request;
pub mod response;
pub mod router;
pub mod routes;
pub mod table;
pub mod throttle;

mod budget;
mod client_address;
mod connection;
mod exchange;
#[cfg(test)]
mod tests;
mod unsent;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::config::http::HttpConfig;
use crate::config::networks::Networks;
use crate::http::budget::Budget;
use crate::http::exchange::Refusals;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;

/// Keep-alive time-out of a connection without a request. Longer than the 60 s of load balancers
/// (default of AWS ALB and of nginx upstreams): if the server closed first, the balancer would
/// answer a request in flight with 502.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(75);

/// First and longest pause after a failed accept. The typical cause is a lack of file descriptors,
/// where an immediate retry would only burn a core.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Interval of log lines about requests that were refused for the same reason.
const REFUSALS_PAUSE: Duration = Duration::from_secs(10);

/// Limits of connections, and the trusted proxies. Made from the settings; a test makes its own.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; further ones wait in the kernel's queue.
    pub connections_max: u32,
    /// Longest time from the first byte of a request's head to its last.
    pub header_timeout: Duration,
    /// Longest time for a request's body to arrive, and for a client to take any byte of its answer.
    pub body_timeout: Duration,
    /// Longest time for requests under way to finish after the shutdown has begun.
    pub drain_timeout: Duration,
    /// Longest idle time of a connection between two requests; 1 s if connections are scarce.
    pub keep_alive_idle: Duration,
    /// Memory of requests and answers of all connections together; beyond it the answer is 503.
    pub requests_max_bytes: u64,
    /// Peers whose headers about the client address are trusted.
    pub trusted_proxies: Networks,
}

impl Limits {
    /// The limits of `config`, and `requests_max_bytes` for all requests together.
    pub fn new(config: &HttpConfig, requests_max_bytes: u64) -> Self {
        Self {
            connections_max: config.connections_max.max(1),
            header_timeout: config.header_timeout,
            body_timeout: config.body_timeout,
            drain_timeout: config.drain_timeout,
            keep_alive_idle: KEEP_ALIVE_IDLE,
            requests_max_bytes,
            trusted_proxies: config.trusted_proxies.clone(),
        }
    }
}

/// The endpoints. One value serves all connections.
pub trait Handler: Send + Sync + 'static {
    /// The result of [`Handler::route`], passed on to [`Handler::handle`], so that the look-up
    /// happens once.
    type Route: Send;

    /// Finds the endpoint. `method` is GET for a HEAD request. `http/cors.rs` answers OPTIONS; the
    /// route of such a request only names it in the log. Must not block and must not panic.
    fn route(&self, method: &Method, path: &str) -> Matched<Self::Route>;

    /// Answers a request. The future runs on the connection and is dropped when the client hangs up;
    /// an operation that must complete is detached by [`Tasks::detach`]. A panic becomes a 500.
    fn handle(&self, route: Self::Route, request: Request)
    -> impl Future<Output = Response> + Send;
}

/// An endpoint and its name in metrics and logs.
#[derive(Clone, Copy, Debug)]
pub struct Matched<Route> {
    /// For [`Handler::handle`].
    pub route: Route,
    /// One of few fixed names, never text of the request.
    pub label: &'static str,
    /// Whether programs poll this endpoint. Its successful requests are logged only at level DEBUG;
    /// the metrics count them.
    pub is_routine: bool,
    /// Whether this is a health probe. Probes are answered under overload too, if they come on a
    /// connection of their own (HTTP/1).
    pub is_probe: bool,
}

/// State shared by all connections.
struct Front<H> {
    handler: Arc<H>,
    limits: Limits,
    clock: Clock,
    metrics: Arc<Metrics>,
    budget: Arc<Budget>,
    refusals: Arc<Refusals>,
    /// One permit per connection that may be open.
    connections: Arc<Semaphore>,
    protocol: connection::Protocol,
    shutdown: Shutdown,
}

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
    let protocol = connection::protocol(&limits, &tasks);
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
            exchange::log_refusals(&counting.refusals, counting.clock.monotonic());
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
    exchange::log_refusals(&front.refusals, front.clock.monotonic());
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
