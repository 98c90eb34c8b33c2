//! The interface between the front end and the endpoints: [`Handler`].

use std::future::Future;

use hyper::Method;

use crate::request::Request;
use crate::response::Response;

/// The endpoints. One value serves all connections.
pub trait Handler: Send + Sync + 'static {
    /// The result of [`Handler::route`], passed on to [`Handler::handle`], so that the look-up happens once.
    type Route: Send;

    /// Finds the endpoint. `method` is GET for a HEAD request. `http/cors.rs` answers OPTIONS; the
    /// route of such a request only names it in the log. Must not block and must not panic.
    fn route(&self, method: &Method, path: &str) -> Matched<Self::Route>;

    /// Answers a request. The future runs on the connection and is dropped when the client hangs up;
    /// an operation that must complete is detached by [`Tasks::detach`](weir_base::tasks::Tasks::detach). A panic
    /// becomes a 500.
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
    /// Whether programs poll this endpoint, or browsers load it with each page. Its successful requests are logged only
    /// at level DEBUG; the metrics count them.
    pub is_routine: bool,
    /// Whether this is a health probe. Probes are answered under overload too, if they come on a
    /// connection of their own (HTTP/1).
    pub is_probe: bool,
}
