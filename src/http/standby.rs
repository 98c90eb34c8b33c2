//! Responses of a standby server while another one is active: [`Standby`].

use std::sync::Arc;

use hyper::Method;

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
}

/// The endpoint of a request to a standby.
#[derive(Clone, Copy, Debug)]
pub enum Endpoint {
    /// `/_liveness`, which succeeds.
    Liveness,
    /// `/metrics`.
    Metrics,
    /// Any other path.
    Other,
}

impl Handler for Standby {
    type Route = Endpoint;

    fn route(&self, _: &Method, path: &str) -> Matched<Endpoint> {
        let (route, label) = match path.trim_end_matches('/') {
            "/_liveness" => (Endpoint::Liveness, "liveness"),
            "/metrics" => (Endpoint::Metrics, "metrics"),
            _ => (Endpoint::Other, "standby"),
        };
        let is_probe = matches!(route, Endpoint::Liveness) || path.starts_with("/_readiness");
        Matched { route, label, is_routine: true, is_probe }
    }

    async fn handle(&self, route: Endpoint, _: Request) -> Response {
        match route {
            Endpoint::Liveness => health::liveness(),
            Endpoint::Metrics => health::metrics(&self.metrics),
            Endpoint::Other => {
                let detail = "This server stands by. Another one serves.";
                Problem::new(Kind::Unavailable, "standing_by", detail).into()
            }
        }
    }
}
