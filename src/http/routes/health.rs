//! Health probes and metrics, for proxies, orchestrators and Prometheus.

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::response::{Problem, Response};
use weir_base::error::Kind;
use weir_base::telemetry::metrics::Metrics;
use weir_ingest::error::IngestError;

/// `/_liveness`: the process responds. Does not check disks: a restart would not repair them.
pub fn liveness() -> Response {
    Response::text(StatusCode::OK, "alive")
}

/// `/_readiness`: 200 if events are accepted; else 503 with the reason, and the load balancer
/// uses another server. A replay of the log is not a reason, because events are accepted
/// meanwhile.
pub fn readiness(taking: Result<(), IngestError>) -> Response {
    match taking {
        Ok(()) => Response::text(StatusCode::OK, "ready"),
        Err(error) => {
            Problem::new(Kind::Unavailable, "not_ready", error.to_string()).because(&error).into()
        }
    }
}

/// `/metrics`: all metrics as `OpenMetrics` text.
pub fn metrics(metrics: &Metrics) -> Response {
    metrics_page(metrics.render())
}

/// A page of metrics.
pub fn metrics_page(page: String) -> Response {
    let content_type = HeaderValue::from_static(Metrics::CONTENT_TYPE);
    Response::bytes(StatusCode::OK, content_type, page)
}

#[cfg(test)]
mod tests {
    use super::{liveness, metrics, readiness};
    use weir_base::telemetry::metrics::Metrics;
    use weir_ingest::error::IngestError;

    #[test]
    fn probes_get_their_status() {
        for (response, status) in [
            (liveness(), 200),
            (readiness(Ok(())), 200),
            (readiness(Err(IngestError::Overloaded("the disk is nearly full"))), 503),
            (readiness(Err(IngestError::Unavailable("the log failed"))), 503),
            (metrics(&Metrics::new()), 200),
        ] {
            assert_eq!(response.status.as_u16(), status);
        }
    }
}
