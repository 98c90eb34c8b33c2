//! Metrics as Prometheus reads them, and the alert rules that name them.

use super::{
    KindLabels, Metrics, OperationLabels, OutcomeLabels, PlaceLabels, ReasonLabels, RequestLabels,
    RouteLabels, TableLabels,
};
use crate::telemetry::cluster::FragmentLabels;
use crate::telemetry::postgres_port::PortLabels;

/// The expected lines follow the `OpenMetrics` 1.0 specification.
#[test]
fn the_page_has_every_kind_of_metric() {
    let metrics = Metrics::new();
    metrics.http_requests.get_or_create(&RequestLabels { route: "capture", status: 200 }).inc();
    metrics.http_request_seconds.get_or_create(&RouteLabels { route: "flags" }).observe(0.002);
    metrics.events_dropped.get_or_create(&ReasonLabels { reason: "no_name" }).inc_by(3);
    metrics.wal_bytes.set(42);
    metrics.http_received_bytes.inc_by(7);
    let page = metrics.render();
    for line in [
        "# HELP weir_http_requests Requests answered, by endpoint and status.",
        "# TYPE weir_http_requests counter",
        "weir_http_requests_total{route=\"capture\",status=\"200\"} 1",
        "# UNIT weir_http_request_duration_seconds seconds",
        "weir_http_request_duration_seconds_bucket{le=\"0.001\",route=\"flags\"} 0",
        "weir_http_request_duration_seconds_bucket{le=\"0.0025\",route=\"flags\"} 1",
        "weir_http_request_duration_seconds_count{route=\"flags\"} 1",
        "weir_events_dropped_total{reason=\"no_name\"} 3",
        "weir_wal_bytes 42",
        "weir_http_received_bytes_total 7",
        "# UNIT weir_identity_lag_records records",
        "weir_wal_poisoned 0",
        "weir_identity_incomplete 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    assert!(page.ends_with("# EOF\n"));
}

/// Metrics of which each family has an entry.
fn filled() -> Metrics {
    let metrics = Metrics::new();
    // A family is rendered only if it has a member.
    metrics.http_requests.get_or_create(&RequestLabels { route: "none", status: 404 }).inc();
    metrics.http_request_seconds.get_or_create(&RouteLabels { route: "none" }).observe(0.1);
    metrics.events_dropped.get_or_create(&ReasonLabels { reason: "no_name" }).inc();
    metrics.ingestion_warnings.get_or_create(&KindLabels { kind: "truncated" }).inc();
    metrics.requests_discarded.get_or_create(&KindLabels { kind: "logs" }).inc();
    metrics.compactions.get_or_create(&TableLabels { table: "events" }).inc();
    metrics.table_files.get_or_create(&TableLabels { table: "events" }).set(1);
    metrics.queries.get_or_create(&OutcomeLabels { outcome: "ok" }).inc();
    metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).inc();
    let get = OperationLabels { operation: "get" };
    metrics.bucket_seconds.get_or_create(&get).observe(0.1);
    metrics.bucket_failures.get_or_create(&get).inc();
    let ok = PortLabels { outcome: "ok" };
    metrics.postgres.sign_ins.get_or_create(&ok).inc();
    metrics.postgres.statements.get_or_create(&ok).inc();
    metrics.cluster.fragments.get_or_create(&FragmentLabels { outcome: "begun" }).inc();
    metrics
}

#[test]
fn every_metric_says_what_it_is() {
    let page = filled().render();
    let helps = page.lines().filter(|line| line.starts_with("# HELP weir_")).count();
    let types = page.lines().filter(|line| line.starts_with("# TYPE weir_")).count();
    assert_eq!(helps, 60, "one for each field of Metrics that is in the text\n{page}");
    assert_eq!(types, helps);
}

/// Goal: no panel of the dashboard is empty because of a metric that does not exist.
#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let page = filled().render();
    let dashboard = include_str!("../../../../scripts/deploy/grafana-operation.json");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = dashboard.split(|c| !is_name(c)).filter(|word| word.starts_with("weir_"));
    let mut count = 0;
    for word in words {
        let name = word.trim_end_matches("_total").trim_end_matches("_bucket");
        assert!(page.lines().any(|line| line.starts_with(&format!("# TYPE {name} "))), "{word}");
        count += 1;
    }
    assert!(count > 15, "{count} metrics");
}

/// Goal: no alert waits for a metric that does not exist.
#[test]
fn alerts_are_about_metrics_that_exist() {
    let metrics = Metrics::new();
    metrics.http_requests.get_or_create(&RequestLabels { route: "capture", status: 503 }).inc();
    metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).inc();
    metrics.bucket_failures.get_or_create(&OperationLabels { operation: "get" }).inc();
    let page = metrics.render();
    let rules = include_str!("../../../../scripts/deploy/alerts.yml");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = rules.split(|c| !is_name(c)).filter(|word| word.starts_with("weir_"));
    let mut count = 0;
    for word in words {
        assert!(page.lines().any(|line| line.starts_with(word)), "{word}");
        count += 1;
    }
    assert!(count > 8, "{count} metrics");
    for told in [
        "weir_standing_by 0",
        "weir_standby_lag_seconds 0",
        "weir_standby_image_age_seconds 0",
        "weir_bucket_probe_failed 0",
    ] {
        assert!(
            page.lines().any(|line| line == told),
            "{told}: an alert compares it before it changes"
        );
    }
}
