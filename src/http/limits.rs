//! Limits of connections, and the trusted proxies: [`Limits`].

use std::sync::Arc;
use std::time::Duration;

use weir_base::config::http::HttpConfig;
use weir_base::config::networks::Networks;

/// Keep-alive time-out of a connection without a request. Longer than the 60 s of load balancers
/// (default of AWS ALB and of nginx upstreams): if the server closed first, the balancer would
/// answer a request in flight with 502.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(75);

/// Limits of connections, and the trusted proxies. Made from the settings; a test makes its own.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; further ones wait in the kernel's queue.
    pub connections_max: u32,
    /// Longest time from the first byte of a request's head to its last.
    pub header_timeout: Duration,
    /// Longest time for a request's body to arrive, and for a client to take any byte of its response.
    pub body_timeout: Duration,
    /// Longest time for requests under way to finish after the shutdown has begun.
    pub drain_timeout: Duration,
    /// Longest idle time of a connection between two requests; 1 s if connections are scarce.
    pub keep_alive_idle: Duration,
    /// Memory of requests and responses of all connections together; beyond it the response is 503.
    pub requests_max_bytes: u64,
    /// Peers whose headers about the client address are trusted.
    pub trusted_proxies: Networks,
    /// The secret with which servers pass requests on to this one; none do without.
    pub node_secret: Option<Arc<str>>,
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
            node_secret: None,
        }
    }

    /// The same for a server to which others pass requests on, with this secret.
    #[must_use]
    pub fn with_node_secret(self, secret: Option<&str>) -> Self {
        Self { node_secret: secret.map(Arc::from), ..self }
    }
}
