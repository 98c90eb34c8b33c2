//! Registry of all metrics: name, unit, labels, help text. No counting logic.
//!
//! # Shape
//!
//! [`Metrics::render`] returns `OpenMetrics` text. Names are `weir_<what>_<unit>`, counters end in `_total`.
//! Label values are bounded: routes, statuses and reasons are `'static` names from the code, never text of a
//! request, so that no request can grow the registry.

mod labelled;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::telemetry::cluster::ClusterMetrics;
use crate::telemetry::postgres_port::PortMetrics;
use crate::telemetry::rates::Rates;
use crate::telemetry::refused::Refused;

/// Bucket bounds of histograms in seconds: from a flag evaluation in memory to a query at its default
/// time-out of 60 s, two or three per factor of ten.
const SECONDS: [f64; 17] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
];

/// Labels of [`Metrics::http_requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// Name of the endpoint, such as `capture`; `none` if no endpoint has the path.
    pub route: &'static str,
    /// HTTP status; 499 if the client disconnected before the response.
    pub status: u16,
}

/// Labels of [`Metrics::http_request_seconds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RouteLabels {
    /// Name of the endpoint.
    pub route: &'static str,
}

/// Labels of [`Metrics::events_dropped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    /// Reason for the drop, such as `no_name`.
    pub reason: &'static str,
}

/// Labels of [`Metrics::ingestion_warnings`] and [`Metrics::requests_discarded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// Kind of warning or request, such as `cannot_merge_already_identified`.
    pub kind: &'static str,
}

/// Labels of [`Metrics::queries`] and [`Metrics::scheduled_changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// Outcome, such as `ok`, `invalid`, `timeout`, `cancelled`.
    pub outcome: &'static str,
}

/// Labels of [`Metrics::table_files`] and [`Metrics::compactions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TableLabels {
    /// Name of the Delta table, such as `events`.
    pub table: &'static str,
}

/// Labels of [`Metrics::bucket_seconds`] and [`Metrics::bucket_failures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OperationLabels {
    /// Kind of request to the object store: `get`, `put_new`, which is a conditional put, and others.
    pub operation: &'static str,
}

/// Labels of [`Metrics::corruptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PlaceLabels {
    /// Place of the damage, such as `wal`, or the table `events`.
    pub place: &'static str,
}

/// The metrics of one server. Share it in an `Arc`; a clone of a field counts for the same metric.
/// Durations are in seconds, sizes in bytes.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// `weir_http_requests_total{route,status}`.
    pub http_requests: Family<RequestLabels, Counter>,
    /// `weir_http_request_duration_seconds{route}`: from the head to the last byte of the answer.
    pub http_request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    /// `weir_http_received_bytes_total`: request bodies as sent.
    pub http_received_bytes: Counter,
    /// `weir_http_sent_bytes_total`: response bodies.
    pub http_sent_bytes: Counter,
    /// `weir_http_connections`: open now.
    pub http_connections: Gauge,
    /// `weir_http_body_bytes`: memory of request bodies that are being read or processed.
    pub http_body_bytes: Gauge,
    /// `weir_http_head_bytes`: memory of requests without their bodies: heads, tasks, responses of more than
    /// 16 KiB with what they are made of, and what shared links keep between requests.
    pub http_head_bytes: Gauge,
    /// `weir_http_accept_errors_total`.
    pub http_accept_errors: Counter,
    /// `weir_events_accepted_total`: acknowledged, on disk.
    pub events_accepted: Counter,
    /// `weir_events_dropped_total{reason}`: answered 200 and deliberately not stored.
    pub events_dropped: Family<ReasonLabels, Counter>,
    /// `weir_events_duplicate_total`: dropped because their uuid was seen before.
    pub events_duplicate: Counter,
    /// `weir_ingestion_warnings_total{kind}`: events that were stored with less effect than their sender may
    /// have intended; the API lists them.
    pub ingestion_warnings: Family<KindLabels, Counter>,
    /// `weir_requests_discarded_total{kind}`: requests with unsupported data, such as recordings and logs,
    /// answered 200 and not stored.
    pub requests_discarded: Family<KindLabels, Counter>,
    /// `weir_ingest_inflight_bytes`: decoded bodies between arrival and acknowledgement.
    pub ingest_inflight_bytes: Gauge,
    /// `weir_wal_bytes`: size of all segments of the write-ahead log on disk.
    pub wal_bytes: Gauge,
    /// `weir_wal_sync_duration_seconds`: one `fdatasync` of the log.
    pub wal_sync_seconds: Histogram,
    /// `weir_wal_poisoned`: 1 after a failed sync, until a restart.
    pub wal_poisoned: Gauge,
    /// `weir_log_in_doubt`: 1 while the outcome of a put to a log in a bucket is unknown, and requests wait.
    pub log_in_doubt: Gauge,
    /// `weir_log_claimed_sequence`: the record with which this server took over a log in a bucket; 0 for a log on disk.
    pub log_claimed: Gauge,
    /// `weir_requests_forwarded_total`: requests that this process passed on to the server that writes.
    pub requests_forwarded: Counter,
    /// `weir_standing_by`: 1 while this process waits to take a log in a bucket over from another one.
    pub standing_by: Gauge,
    /// `weir_standby_lag_seconds`: time since this standby last had the newest image of persons on its disk; 0 while it
    /// has it, and in a server that serves.
    pub standby_lag: Gauge,
    /// `weir_standby_image_age_seconds`: age of the image of persons that this standby has on its disk; 0 if it has
    /// none, and in a server that serves.
    pub standby_image_age: Gauge,
    /// `weir_identity_incomplete`: 1 if persons are incomplete, because log records or the identity store
    /// were lost.
    pub identity_incomplete: Gauge,
    /// `weir_memtable_bytes`: memory of active and frozen memtables.
    pub memtable_bytes: Gauge,
    /// `weir_flushes_total`: memtables written to Parquet and committed.
    pub flushes: Counter,
    /// `weir_flush_duration_seconds`: from the frozen memtable to the commit.
    pub flush_seconds: Histogram,
    /// `weir_flush_rows_total`.
    pub flush_rows: Counter,
    /// `weir_deletions_pending`: deletions whose events may still be in files.
    pub deletions_pending: Gauge,
    /// `weir_events_deleted_total`: rows left out of files because they were deleted.
    pub events_deleted: Counter,
    /// `weir_compactions_total{table}`: merges committed.
    pub compactions: Family<TableLabels, Counter>,
    /// `weir_table_files{table}`: live Parquet files in the newest version of the table.
    pub table_files: Family<TableLabels, Gauge>,
    /// `weir_bucket_request_duration_seconds{operation}`: requests to the object store, repetitions included.
    pub bucket_seconds: Family<OperationLabels, Histogram, fn() -> Histogram>,
    /// `weir_bucket_failures_total{operation}`: requests to the object store that failed after their repetitions.
    pub bucket_failures: Family<OperationLabels, Counter>,
    /// `weir_bucket_puts_in_doubt_total`: conditional puts of which it is unknown whether they took effect.
    pub bucket_puts_in_doubt: Counter,
    /// `weir_bucket_probe_failed`: 1 if the object store of the tables has failed its last check of conditional writes.
    pub bucket_probe_failed: Gauge,
    /// `weir_commits_settled_total`: commits in doubt whose outcome became known.
    pub commits_settled: Counter,
    /// `weir_bucket_cache_bytes`: size of the cache of data files on disk.
    pub bucket_cache_bytes: Gauge,
    /// `weir_bucket_cache_hit_bytes_total`: bytes of data files that were read from the cache.
    pub bucket_cache_hit_bytes: Counter,
    /// `weir_bucket_cache_miss_bytes_total`: bytes of data files that were read from the bucket.
    pub bucket_cache_miss_bytes: Counter,
    /// `weir_bucket_cache_damaged_total`: blocks of the cache that were damaged and read again from the bucket.
    pub bucket_cache_damaged: Counter,
    /// `weir_identity_image_age_seconds`: age of the newest image of persons; 0 if nothing was applied since.
    pub identity_image_age: Gauge,
    /// `weir_identity_image_uploaded_bytes_total`: bytes of images that the object store lacked.
    pub identity_image_uploaded: Counter,
    /// `weir_identity_image_failures_total`: images that could not be made or put.
    pub identity_image_failures: Counter,
    /// `weir_identity_lag_records`: acknowledged log records whose identity changes are not applied.
    pub identity_lag: Gauge,
    /// `weir_queries_total{outcome}`.
    pub queries: Family<OutcomeLabels, Counter>,
    /// `weir_queries_replanned_total`: queries whose first plan needed more memory than was available.
    pub queries_replanned: Counter,
    /// `weir_query_duration_seconds`: from planning to the last row.
    pub query_seconds: Histogram,
    /// `weir_scheduled_changes_total{outcome}`: scheduled flag changes that were due: `made`, `retried` or
    /// `failed`.
    pub scheduled_changes: Family<OutcomeLabels, Counter>,
    /// `weir_corruptions_total{place}`: damage found, by place:
    ///
    /// | place | damage |
    /// |---|---|
    /// | `wal` | missing or damaged records of the write-ahead log |
    /// | `events` | damaged commits of the events table, and records that are neither in it nor in the log |
    /// | `table` | missing or damaged files of the events table: once at start or by a merge, and by each query |
    /// | `persons` | damaged commits of the persons table |
    /// | `metadata` | a metadata store that lost its last changes |
    pub corruptions: Family<PlaceLabels, Counter>,
    /// Those of the PostgreSQL port.
    pub postgres: PortMetrics,
    /// Those of queries over several nodes.
    pub cluster: ClusterMetrics,
    /// Refused requests by reason, for the page; not in the text.
    pub refused: Refused,
    /// How fast [`Metrics::events_accepted`] has grown, for the page; not in the text.
    pub accepted_lately: Rates,
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("weir"),
            http_requests: Family::default(),
            http_request_seconds: Family::new_with_constructor(seconds),
            http_received_bytes: Counter::default(),
            http_sent_bytes: Counter::default(),
            http_connections: Gauge::default(),
            http_body_bytes: Gauge::default(),
            http_head_bytes: Gauge::default(),
            http_accept_errors: Counter::default(),
            events_accepted: Counter::default(),
            events_dropped: Family::default(),
            events_duplicate: Counter::default(),
            ingestion_warnings: Family::default(),
            requests_discarded: Family::default(),
            ingest_inflight_bytes: Gauge::default(),
            wal_bytes: Gauge::default(),
            wal_sync_seconds: seconds(),
            wal_poisoned: Gauge::default(),
            log_in_doubt: Gauge::default(),
            log_claimed: Gauge::default(),
            requests_forwarded: Counter::default(),
            standing_by: Gauge::default(),
            standby_lag: Gauge::default(),
            standby_image_age: Gauge::default(),
            identity_incomplete: Gauge::default(),
            memtable_bytes: Gauge::default(),
            flushes: Counter::default(),
            flush_seconds: seconds(),
            flush_rows: Counter::default(),
            deletions_pending: Gauge::default(),
            events_deleted: Counter::default(),
            compactions: Family::default(),
            table_files: Family::default(),
            bucket_seconds: Family::new_with_constructor(seconds),
            bucket_failures: Family::default(),
            bucket_puts_in_doubt: Counter::default(),
            bucket_probe_failed: Gauge::default(),
            commits_settled: Counter::default(),
            bucket_cache_bytes: Gauge::default(),
            bucket_cache_hit_bytes: Counter::default(),
            bucket_cache_miss_bytes: Counter::default(),
            bucket_cache_damaged: Counter::default(),
            identity_image_age: Gauge::default(),
            identity_image_uploaded: Counter::default(),
            identity_image_failures: Counter::default(),
            identity_lag: Gauge::default(),
            queries: Family::default(),
            queries_replanned: Counter::default(),
            query_seconds: seconds(),
            scheduled_changes: Family::default(),
            corruptions: Family::default(),
            postgres: PortMetrics::default(),
            cluster: ClusterMetrics::default(),
            refused: Refused::default(),
            accepted_lately: Rates::default(),
        };
        metrics.register_http();
        metrics.register_ingest();
        metrics.register_storage();
        metrics.register_bucket();
        metrics.register_standby();
        metrics.register_query();
        metrics.postgres.register(&mut metrics.registry);
        metrics.cluster.register(&mut metrics.registry);
        metrics
    }

    fn register_http(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "http_requests",
            "Requests answered, by endpoint and status",
            self.http_requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time from the head of a request to the last byte of its answer",
            Unit::Seconds,
            self.http_request_seconds.clone(),
        );
        registry.register_with_unit(
            "http_received",
            "Bytes of request bodies as sent",
            Unit::Bytes,
            self.http_received_bytes.clone(),
        );
        registry.register_with_unit(
            "http_sent",
            "Bytes of response bodies",
            Unit::Bytes,
            self.http_sent_bytes.clone(),
        );
        registry.register("http_connections", "Open connections", self.http_connections.clone());
        registry.register_with_unit(
            "http_body",
            "Memory of request bodies that are being read or processed",
            Unit::Bytes,
            self.http_body_bytes.clone(),
        );
        registry.register_with_unit(
            "http_head",
            "Memory of requests without their bodies: heads, tasks, responses over 16 KiB and what links keep",
            Unit::Bytes,
            self.http_head_bytes.clone(),
        );
        registry.register(
            "http_accept_errors",
            "Failed accept calls for new connections",
            self.http_accept_errors.clone(),
        );
    }

    fn register_ingest(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "events_accepted",
            "Events acknowledged and durable on disk",
            self.events_accepted.clone(),
        );
        registry.register(
            "events_dropped",
            "Events answered 200 and deliberately not stored, by reason",
            self.events_dropped.clone(),
        );
        registry.register(
            "events_duplicate",
            "Events dropped because their uuid was seen before",
            self.events_duplicate.clone(),
        );
        registry.register(
            "ingestion_warnings",
            "Events stored with less effect than their sender may have intended, by kind of warning",
            self.ingestion_warnings.clone(),
        );
        registry.register(
            "requests_discarded",
            "Requests with unsupported data (recordings, logs), answered 200 and not stored, by kind",
            self.requests_discarded.clone(),
        );
        registry.register_with_unit(
            "ingest_inflight",
            "Bytes of decoded request bodies between arrival and acknowledgement",
            Unit::Bytes,
            self.ingest_inflight_bytes.clone(),
        );
        registry.register_with_unit(
            "identity_lag",
            "Acknowledged log records whose identity changes are not applied",
            Unit::Other("records".to_owned()),
            self.identity_lag.clone(),
        );
    }

    fn register_storage(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "wal",
            "Size of the write-ahead log, on disk or in a bucket",
            Unit::Bytes,
            self.wal_bytes.clone(),
        );
        registry.register_with_unit(
            "wal_sync_duration",
            "Time of one fdatasync of the write-ahead log, or of one put to it",
            Unit::Seconds,
            self.wal_sync_seconds.clone(),
        );
        registry.register(
            "wal_poisoned",
            "1 after a failed sync of the write-ahead log: capture is refused until a restart",
            self.wal_poisoned.clone(),
        );
        registry.register(
            "log_in_doubt",
            "1 while the outcome of a put to a log in a bucket is unknown, and requests wait",
            self.log_in_doubt.clone(),
        );
        registry.register(
            "log_claimed_sequence",
            "Record with which this server took over a log in a bucket; 0 for a log on disk",
            self.log_claimed.clone(),
        );
        registry.register(
            "identity_incomplete",
            "1 if persons are incomplete because log records or the identity store were lost",
            self.identity_incomplete.clone(),
        );
        registry.register_with_unit(
            "memtable",
            "Memory of active and frozen memtables",
            Unit::Bytes,
            self.memtable_bytes.clone(),
        );
        registry.register(
            "flushes",
            "Memtables written to Parquet and committed",
            self.flushes.clone(),
        );
        registry.register_with_unit(
            "flush_duration",
            "Time to write a frozen memtable to Parquet and commit it",
            Unit::Seconds,
            self.flush_seconds.clone(),
        );
        registry.register("flush_rows", "Rows flushed to Parquet", self.flush_rows.clone());
        registry.register(
            "deletions_pending",
            "Persons whose deleted events may still be in files",
            self.deletions_pending.clone(),
        );
        registry.register(
            "events_deleted",
            "Deleted rows removed from files by flushes, merges and rewrites",
            self.events_deleted.clone(),
        );
        registry.register("compactions", "Merges committed, by table", self.compactions.clone());
        registry.register("table_files", "Live Parquet files, by table", self.table_files.clone());
        registry.register(
            "corruptions",
            "Missing or corrupt records and files found, by place",
            self.corruptions.clone(),
        );
    }

    fn register_bucket(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "bucket_request_duration",
            "Time of a request to the object store, repetitions included, by operation",
            Unit::Seconds,
            self.bucket_seconds.clone(),
        );
        registry.register(
            "bucket_failures",
            "Requests to the object store that failed after their repetitions, by operation",
            self.bucket_failures.clone(),
        );
        registry.register(
            "bucket_puts_in_doubt",
            "Conditional puts of which it is unknown whether they took effect",
            self.bucket_puts_in_doubt.clone(),
        );
        registry.register(
            "bucket_probe_failed",
            "1 if the object store of the tables has failed its last check of conditional writes",
            self.bucket_probe_failed.clone(),
        );
        registry.register(
            "commits_settled",
            "Commits in doubt whose outcome became known",
            self.commits_settled.clone(),
        );
        registry.register_with_unit(
            "bucket_cache",
            "Size of the cache of data files on disk",
            Unit::Bytes,
            self.bucket_cache_bytes.clone(),
        );
        registry.register_with_unit(
            "bucket_cache_hit",
            "Bytes of data files read from the cache",
            Unit::Bytes,
            self.bucket_cache_hit_bytes.clone(),
        );
        registry.register_with_unit(
            "bucket_cache_miss",
            "Bytes of data files read from the bucket",
            Unit::Bytes,
            self.bucket_cache_miss_bytes.clone(),
        );
        registry.register(
            "bucket_cache_damaged",
            "Damaged blocks of the cache, which were read again from the bucket",
            self.bucket_cache_damaged.clone(),
        );
        registry.register_with_unit(
            "identity_image_age",
            "Age of the newest image of persons in the object store; 0 if nothing was applied since",
            Unit::Seconds,
            self.identity_image_age.clone(),
        );
        registry.register_with_unit(
            "identity_image_uploaded",
            "Bytes of images of persons that the object store lacked",
            Unit::Bytes,
            self.identity_image_uploaded.clone(),
        );
        registry.register(
            "identity_image_failures",
            "Images of persons that could not be made or put",
            self.identity_image_failures.clone(),
        );
    }

    fn register_standby(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "requests_forwarded",
            "Requests that this process passed on to the server that writes",
            self.requests_forwarded.clone(),
        );
        registry.register(
            "standing_by",
            "1 while this process waits to take a log in a bucket over from another one",
            self.standing_by.clone(),
        );
        registry.register_with_unit(
            "standby_lag",
            "Time since this standby last had the newest image of persons on its disk; 0 while it has it",
            Unit::Seconds,
            self.standby_lag.clone(),
        );
        registry.register_with_unit(
            "standby_image_age",
            "Age of the image of persons that this standby has on its disk; 0 without one",
            Unit::Seconds,
            self.standby_image_age.clone(),
        );
    }

    fn register_query(&mut self) {
        let registry = &mut self.registry;
        registry.register("queries", "Finished queries, by outcome", self.queries.clone());
        registry.register(
            "queries_replanned",
            "Queries planned a second time because the first plan needed too much memory",
            self.queries_replanned.clone(),
        );
        registry.register_with_unit(
            "query_duration",
            "Time of a query from planning to the last row",
            Unit::Seconds,
            self.query_seconds.clone(),
        );
        registry.register(
            "scheduled_changes",
            "Scheduled flag changes that were due, by outcome",
            self.scheduled_changes.clone(),
        );
    }

    /// Media type of [`Metrics::render`].
    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// All metrics as `OpenMetrics` text.
    pub fn render(&self) -> String {
        let mut page = String::new();
        if let Err(error) = text::encode(&mut page, &self.registry) {
            // Writing to a `String` does not fail; a metric that fails to encode is a bug.
            tracing::error!(%error, "cannot encode the metrics");
        }
        page
    }

    /// All metrics of a process, and of its shards by their numbers, with the label `shard`.
    pub fn render_all<'a>(&self, shards: impl Iterator<Item = (String, &'a Self)>) -> String {
        let shards: Vec<_> = shards.map(|(shard, metrics)| (shard, metrics.render())).collect();
        let others = shards.iter().map(|(shard, page)| (&**shard, &**page));
        labelled::joined(&self.render(), "shard", others)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

#[cfg(test)]
mod tests;
