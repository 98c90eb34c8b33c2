//! Health: figures of the server beside their limits, slow queries, refused requests, and warnings about events.

use std::time::Duration;

use maud::html;
use prometheus_client::metrics::gauge::Gauge;

use crate::response::Problem;
use crate::routes::ingestion_warnings;
use crate::routes::pages::visit::{Page, Sent, Visit};
use weir_app::App;
use weir_app::vitals::Vitals;
use weir_base::clock::UnixMicros;
use weir_base::telemetry::metrics::{ReasonLabels, TableLabels};
use weir_base::telemetry::refused::Count;
use weir_event::id::ProjectId;
use weir_ingest::drops::Drop;
use weir_insights::slow_questions::SlowQuestion;
use weir_web::pages::health as shown;
use weir_web::pages::health::{Figures, Refusal, Use};

/// Most rows of refused requests.
const REFUSED_MAX: usize = 50;

/// The label of the stream of the live view.
const STREAM: &str = "activity/live/rows";

/// Most endpoints whose times are shown.
const TIMES_MAX: usize = 12;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// Labels in metrics of the endpoints that accept events.
const CAPTURE: [&str; 3] = ["capture", "capture_v1", "otel"];

/// `GET health`.
pub async fn health(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let app = &asking.app;
    let now = html! {
        (shown::figures(&figures(app)))
        // Slow queries of this project only, and only for keys that may query.
        @if asking.may("query:read") {
            (shown::slow(asking.zone, &slow(app, asking.asker.project.id)))
        }
        (shown::refusals(asking.zone, &refused(app, |_| true)))
    };
    let page = Page::new("Health", now);
    if !asking.may("ingestion_warning:read") {
        return Ok(Sent::Page(page));
    }
    Ok(Sent::Page(page.then(async move {
        let found = asking.perform(ingestion_warnings::List {}).await?;
        Ok(html! { (shown::warnings(asking.zone, &found.results)) })
    })))
}

pub(in crate::routes) fn figures(app: &App) -> Figures {
    let (metrics, vitals) = (&app.shard.metrics, Vitals::of(app));
    let (table, text) = (TableLabels { table: "events" }, app.node.metrics.render());
    let (now, accepted) = (app.node.clock.monotonic(), metrics.events_accepted.get());
    let rate = |span: Duration| metrics.accepted_lately.per_second(now, accepted, span);
    let cluster = app.node.config.cluster.cluster_listen.map(|_| &app.node.metrics.cluster);
    let of_cluster = cluster.map(|cluster| {
        [
            ("workers that execute parts of large queries", gauge(&cluster.workers)),
            ("queries over workers since the start", cluster.queries.get()),
            ("of them failed there, and were run again", cluster.queries_failed.get()),
            ("large queries that only this server could execute", cluster.queries_local.get()),
        ]
    });
    let counts = [
        ("log records whose persons are not applied yet", gauge(&metrics.identity_lag)),
        ("deletions whose events may still be in files", gauge(&metrics.deletions_pending)),
        ("events accepted since the start", metrics.events_accepted.get()),
        ("events seen before, and dropped", metrics.events_duplicate.get()),
        ("Parquet files of events", gauge(&metrics.table_files.get_or_create(&table))),
        ("flushes to files since the start", metrics.flushes.get()),
        ("open connections", gauge(&app.node.metrics.http_connections)),
    ];
    Figures {
        unready: app.shard.pipeline.readiness().err().map(|error| error.to_string()),
        rates: vec![
            ("events a second, in the last minute", rate(MINUTE)),
            ("events a second, in the last hour", rate(HOUR)),
        ],
        unflushed: (vitals.unflushed_age, vitals.unflushed_records),
        counts: counts.into_iter().chain(of_cluster.into_iter().flatten()).collect(),
        uses: uses(app, &vitals),
        disk_free: vitals.disk_free.map(|free| Use {
            name: "Free on the disk of the data directory",
            bytes: free,
            limit_bytes: app.node.config.storage.disk_free_min_bytes.as_u64(),
        }),
        times: times(&text),
    }
}

fn gauge(gauge: &Gauge) -> u64 {
    u64::try_from(gauge.get()).unwrap_or_default()
}

/// Uses of memory and disk, each with its limit.
fn uses(app: &App, vitals: &Vitals) -> Vec<Use> {
    let (metrics, config) = (&app.shard.metrics, &app.shard.config);
    let (query, storage) = (&config.query, &config.storage);
    // One memtable is filled while the others wait for their flush.
    let memtables = u64::try_from(storage.frozen_memtables_max).unwrap_or(u64::MAX);
    let memtables_max =
        storage.memtable_max_bytes.as_u64().saturating_mul(memtables.saturating_add(1));
    let own = |name, bytes, limit_bytes| Use { name, bytes, limit_bytes };
    let process = vitals.memory.map(|all| {
        own("The process, of the memory it may have", all.resident_bytes, all.limit_bytes)
    });
    let parts = [
        own("Memtables", gauge(&metrics.memtable_bytes), memtables_max),
        own("Queries", vitals.queries, query.query_memory_max_bytes.as_u64()),
        own(
            "Columns of persons",
            vitals.person_columns,
            query.person_columns_memory_max_bytes.as_u64(),
        ),
        own("Cached results", vitals.answers, query.insight_cache_max_bytes.as_u64()),
        own(
            "Requests between arrival and acknowledgement",
            gauge(&metrics.ingest_inflight_bytes),
            config.ingest.inflight_max_bytes.as_u64(),
        ),
        own("Log on disk", gauge(&metrics.wal_bytes), storage.wal_max_bytes.as_u64()),
    ];
    process.into_iter().chain(parts).collect()
}

/// The endpoints with the most total time since the start, from the text of the metrics: the endpoint, its number of
/// requests, and their total seconds.
fn times(text: &str) -> Vec<(String, u64, f64)> {
    let of = |line: &str, name: &str| {
        let rest = line.strip_prefix("weir_http_request_duration_seconds_")?.strip_prefix(name)?;
        let (route, value) = rest.strip_prefix("{route=\"")?.split_once("\"} ")?;
        Some((route.to_owned(), value.trim().parse::<f64>().ok()?))
    };
    let mut found: Vec<(String, u64, f64)> = Vec::new();
    let counts: Vec<(String, f64)> = text.lines().filter_map(|line| of(line, "count")).collect();
    let sums = text.lines().filter_map(|line| of(line, "sum"));
    // Streams last as long as a page is open.
    for (route, seconds) in sums.filter(|(route, _)| route != STREAM) {
        let count = counts.iter().find(|(own, _)| *own == route).map_or(0.0, |(_, count)| *count);
        // Counts of requests are integers, and small enough to be exact.
        let count = format!("{count:.0}").parse().unwrap_or(0);
        found.push((route, count, seconds));
    }
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    found.truncate(TIMES_MAX);
    found
}

/// Reasons for which events were not stored since the start of the server: dropped events by reason, and refused
/// requests with events by endpoint and reason.
pub(super) fn not_stored(app: &App) -> shown::NotStored {
    let dropped = Drop::ALL.map(|reason| {
        let labels = ReasonLabels { reason: reason.name() };
        (
            reason.name(),
            app.shard.metrics.events_dropped.get(&labels).map_or(0, |count| count.get()),
        )
    });
    let dropped = dropped.into_iter().filter(|(_, count)| *count > 0).collect();
    shown::NotStored { dropped, refused: refused(app, |route| CAPTURE.contains(&route)) }
}

/// Refused requests of some endpoints by reason, most frequent first.
pub(in crate::routes) fn refused(app: &App, is_wanted: impl Fn(&str) -> bool) -> Vec<Refusal> {
    let counts = app.node.metrics.refused.counts().into_iter();
    let refusal = |((route, status, code), Count { requests, last_at })| Refusal {
        route,
        status,
        code,
        requests,
        last_at: UnixMicros(last_at),
    };
    counts.filter(|((route, ..), _)| is_wanted(route)).map(refusal).take(REFUSED_MAX).collect()
}

pub(in crate::routes) fn slow(app: &App, project: ProjectId) -> Vec<shown::SlowQuery> {
    let slow = app.node.slow.of(project, app.node.clock.now()).into_iter();
    let row = |SlowQuestion { at, took, is_answered, text }| shown::SlowQuery {
        at,
        took,
        is_answered,
        text,
    };
    slow.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::times;
    use weir_base::telemetry::metrics::{Metrics, RouteLabels};

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
