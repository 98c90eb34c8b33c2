//! Metrics of the exchanges of one connection: [`Counters`].

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use weir_base::telemetry::metrics::{Metrics, RequestLabels, RouteLabels};

/// Metrics of the last exchange of a connection. Most connections request one endpoint repeatedly, and
/// finding the metrics in their maps costs more than counting.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Option<Counted>>);

#[derive(Debug)]
struct Counted {
    route: &'static str,
    status: u16,
    requests: Counter,
    seconds: Histogram,
}

impl Counters {
    pub(super) fn count(
        &self,
        metrics: &Metrics,
        route: &'static str,
        status: u16,
        duration: Duration,
    ) {
        let mut last = self.0.lock();
        let same = last.take().filter(|last| last.status == status && last.route == route);
        let counted = same.unwrap_or_else(|| Counted {
            route,
            status,
            requests: metrics.http_requests.get_or_create(&RequestLabels { route, status }).clone(),
            seconds: metrics.http_request_seconds.get_or_create(&RouteLabels { route }).clone(),
        });
        counted.requests.inc();
        counted.seconds.observe(duration.as_secs_f64());
        *last = Some(counted);
    }
}
