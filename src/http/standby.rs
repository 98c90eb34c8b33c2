//! Responses of a process that serves no requests but probes: a server that stands by until it follows (`follower`), and a
//! worker ([`Standby`]).

use std::sync::Arc;

use hyper::Method;

use crate::forward::standing_by;
use crate::handler::{Handler, Matched};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::health;
use weir_base::error::Kind;
use weir_base::telemetry::metrics::Metrics;

/// Answers probes and refuses everything else.
#[derive(Debug)]
pub struct Standby {
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Why it refuses everything else.
    pub refusing: Refusing,
}

/// Why a process refuses requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusing {
    /// Another server is active.
    Standby,
    /// It executes parts of queries behind another port.
    Worker,
}

/// The endpoint of a request to a standby.
#[derive(Clone, Copy, Debug)]
pub enum Endpoint {
    /// `/_liveness`, which succeeds.
    Liveness,
    /// `/metrics`.
    Metrics,
    /// `/_readiness`, which succeeds in a worker.
    Readiness,
    /// Any other path.
    Other,
}

impl Handler for Standby {
    type Route = Endpoint;

    fn route(&self, _: &Method, path: &str) -> Matched<Endpoint> {
        let (route, label) = match path.trim_end_matches('/') {
            "/_liveness" => (Endpoint::Liveness, "liveness"),
            "/metrics" => (Endpoint::Metrics, "metrics"),
            "/_readiness" => (Endpoint::Readiness, "readiness"),
            _ => (Endpoint::Other, "standby"),
        };
        let is_probe = matches!(route, Endpoint::Liveness | Endpoint::Readiness);
        Matched { route, label, is_routine: true, is_probe }
    }

    async fn handle(&self, route: Endpoint, _: Request) -> Response {
        match route {
            Endpoint::Liveness => health::liveness(),
            Endpoint::Metrics => health::metrics(&self.metrics),
            Endpoint::Readiness if self.refusing == Refusing::Worker => health::liveness(),
            Endpoint::Readiness | Endpoint::Other => {
                let problem = match self.refusing {
                    Refusing::Standby => standing_by(),
                    Refusing::Worker => {
                        let detail =
                            "This is a worker, which executes parts of queries of servers.";
                        Problem::new(Kind::Unavailable, "worker", detail)
                    }
                };
                problem.into()
            }
        }
    }
}
