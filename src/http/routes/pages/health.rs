//! Health: figures of the server that `/metrics` has too, beside their limits, and warnings about events.

use maud::html;

use crate::app::App;
use crate::http::response::Problem;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::telemetry::metrics::TableLabels;
use crate::web::pages::health as shown;
use crate::web::pages::health::Figures;
use crate::web::pages::health::Use;

/// Most rows of refused requests.
const REFUSED_MAX: usize = 50;

/// The stream of the live view.
const STREAM: &str = "activity/live/rows";

/// Most endpoints whose times are told.
const TIMES_MAX: usize = 12;

/// Names in metrics of the routes that take events.
const CAPTURE: [&str; 3] = ["capture", "capture_v1", "otel"];

/// `GET health`.
pub async fn health(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let page = Page::new("Health", shown::figures(&figures(&asking.app)));
    if !asking.may("ingestion_warning:read") {
        return Ok(Sent::Page(page));
    }
    Ok(Sent::Page(page.then(async move {
        let found = asking.get("ingestion_warnings/", &[]).await?;
        Ok(html! { (shown::warnings(asking.zone, &found)) })
    })))
}

fn figures(app: &App) -> Figures {
    let (metrics, config) = (&app.metrics, &app.config);
    let gauge = |value: i64| u64::try_from(value).unwrap_or_default();
    let (table, text) = (TableLabels { table: "events" }, metrics.render());
    Figures {
        unready: app.pipeline.readiness().err().map(|error| error.to_string()),
        counts: vec![
            ("events accepted since the start", metrics.events_accepted.get()),
            ("events seen before, and dropped", metrics.events_duplicate.get()),
            ("log records whose persons are not applied yet", gauge(metrics.identity_lag.get())),
            ("Parquet files of events", gauge(metrics.table_files.get_or_create(&table).get())),
            ("flushes to files since the start", metrics.flushes.get()),
            (
                "persons whose deleted events may still be in files",
                gauge(metrics.deletions_pending.get()),
            ),
            ("open connections", gauge(metrics.http_connections.get())),
        ],
        uses: vec![
            Use {
                name: "Log on disk",
                bytes: gauge(metrics.wal_bytes.get()),
                limit_bytes: config.storage.wal_max_bytes.as_u64(),
            },
            Use { name: "Memtables", bytes: gauge(metrics.memtable_bytes.get()), limit_bytes: 0 },
            Use {
                name: "Requests between arrival and acknowledgement",
                bytes: gauge(metrics.ingest_inflight_bytes.get()),
                limit_bytes: config.ingest.inflight_max_bytes.as_u64(),
            },
        ],
        refused: refused(&text),
        times: times(&text),
    }
}

/// The endpoints that took most time since the start, from the text of the metrics: the endpoint, its requests, and the
/// seconds of all of them together.
fn times(text: &str) -> Vec<(String, u64, f64)> {
    let of = |line: &str, name: &str| {
        let rest = line.strip_prefix("weir_http_request_duration_seconds_")?.strip_prefix(name)?;
        let (route, value) = rest.strip_prefix("{route=\"")?.split_once("\"} ")?;
        Some((route.to_owned(), value.trim().parse::<f64>().ok()?))
    };
    let mut found: Vec<(String, u64, f64)> = Vec::new();
    let counts: Vec<(String, f64)> = text.lines().filter_map(|line| of(line, "count")).collect();
    let sums = text.lines().filter_map(|line| of(line, "sum"));
    // Streams last as long as somebody looks.
    for (route, seconds) in sums.filter(|(route, _)| route != STREAM) {
        let count = counts.iter().find(|(own, _)| *own == route).map_or(0.0, |(_, count)| *count);
        // Counts of requests are whole and small.
        let count = format!("{count:.0}").parse().unwrap_or(0);
        found.push((route, count, seconds));
    }
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    found.truncate(TIMES_MAX);
    found
}

/// Why events were not stored since the start of the server: those that were dropped, by reason, and refused requests
/// that send events, by endpoint and status.
pub(super) fn not_stored(app: &App) -> shown::NotStored {
    let text = app.metrics.render();
    let of_line = |line: &str| {
        let rest = line.strip_prefix("weir_events_dropped_total{reason=\"")?;
        let (reason, count) = rest.split_once("\"} ")?;
        Some((reason.to_owned(), count.trim().parse::<u64>().ok()?)).filter(|(_, count)| *count > 0)
    };
    let mut refused = refused(&text);
    refused.retain(|(route, ..)| CAPTURE.contains(&route.as_str()));
    shown::NotStored { dropped: text.lines().filter_map(of_line).collect(), refused }
}

/// Refused requests by endpoint and status, most frequent first, from the text of the metrics.
fn refused(text: &str) -> Vec<(String, u16, u64)> {
    let of_line = |line: &str| {
        let rest = line.strip_prefix("weir_http_requests_total{route=\"")?;
        let (route, rest) = rest.split_once("\",status=\"")?;
        let (status, count) = rest.split_once("\"} ")?;
        Some((route.to_owned(), status.parse::<u16>().ok()?, count.trim().parse::<u64>().ok()?))
    };
    let mut found: Vec<_> =
        text.lines().filter_map(of_line).filter(|(_, status, _)| *status >= 400).collect();
    found.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.cmp(b)));
    found.truncate(REFUSED_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::refused;
    use super::times;
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::metrics::RequestLabels;
    use crate::telemetry::metrics::RouteLabels;

    #[test]
    fn refused_requests_are_read_from_the_metrics() {
        let metrics = Metrics::new();
        for (route, status, count) in
            [("capture", 200, 9), ("capture", 401, 2), ("P/query/", 503, 5)]
        {
            metrics.http_requests.get_or_create(&RequestLabels { route, status }).inc_by(count);
        }
        let expected = [("P/query/".to_owned(), 503, 5), ("capture".to_owned(), 401, 2)];
        assert_eq!(refused(&metrics.render()), expected);
    }

    #[test]
    fn times_are_read_from_the_metrics() {
        let metrics = Metrics::new();
        for (route, seconds) in [("capture", 0.25), ("P/query/", 2.0), ("capture", 0.25)] {
            metrics.http_request_seconds.get_or_create(&RouteLabels { route }).observe(seconds);
        }
        let expected = [("P/query/".to_owned(), 1, 2.0), ("capture".to_owned(), 2, 0.5)];
        assert_eq!(times(&metrics.render()), expected);
    }
}
