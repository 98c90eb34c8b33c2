//! Settings of the write path: threads, memory budget, deduplication window, caches.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::config::bounds::{bytes, number, time};

/// Threads, queues and windows of ingest.
#[derive(Clone, Debug, clap::Args)]
pub struct IngestConfig {
    /// Threads that decode and parse request bodies [range: 1 to 1024] [default: one per core]
    #[arg(long, env = "WEIR_DECODE_THREADS", value_parser = number(1_usize, 1024))]
    pub decode_threads: Option<usize>,
    /// Budget in bytes for decoded request bodies between arrival and acknowledgement; capture answers 503
    /// when it is used up. A body that takes more than four times its size in memory counts as a quarter of
    /// that memory. A body that needs more than the whole budget, or has events of more than 250,000
    /// distinct ids, is answered 413. A second budget of the same size is for requests and responses on
    /// connections: bodies as sent and parsed bodies of the management API, heads, responses of more than
    /// 16 KiB with the data they are made from, and, in up to a quarter of it, cached responses of public
    /// links; when it is used up, every request except `/_liveness`, `/_readiness` and `/metrics` is
    /// answered 503, and lists, dashboards and public links when half of it is. A connection with many
    /// running requests may use half of the second budget [range: 1MiB to 1TiB]
    #[arg(long, env = "WEIR_INFLIGHT_MAX_BYTES", default_value = "256MiB", value_parser = bytes("1MiB", "1TiB"))]
    pub inflight_max_bytes: ByteSize,
    /// Largest single event as JSON; larger events are dropped and counted [range: 1KiB to 960MiB]
    #[arg(long, env = "WEIR_EVENT_MAX_BYTES", default_value = "1MiB", value_parser = bytes("1KiB", "960MiB"))]
    pub event_max_bytes: ByteSize,
    /// Largest difference between `sent_at` and arrival that is treated as network delay: timestamps stay
    /// as sent. Larger differences are treated as an error of the sender's clock and corrected in full
    /// [range: 0s to 1d]
    #[arg(long, env = "WEIR_CLOCK_SKEW_IGNORED", default_value = "0s", value_parser = time("0s", "1d"))]
    pub clock_skew_ignored: Duration,
    /// Number of recent events that are remembered to drop retries (32 bytes each); a retry of an older
    /// event is stored twice [range: 1 to 1000000000]
    #[arg(long, env = "WEIR_DEDUP_WINDOW_EVENTS", default_value_t = 1_000_000, value_parser = number(1_usize, 1_000_000_000))]
    pub dedup_window_events: usize,
    /// Memory of the cache of recently used persons and distinct ids; as much again is used for merged
    /// persons, 6,500 per MiB. Too small makes events wait for reads from disk [range: 1MiB to 1TiB]
    #[arg(long, env = "WEIR_IDENTITY_CACHE_MAX_BYTES", default_value = "64MiB", value_parser = bytes("1MiB", "1TiB"))]
    pub identity_cache_max_bytes: ByteSize,
    /// Age at which ingestion warnings are removed, in whole days [range: 1d to 3650d]
    #[arg(long, env = "WEIR_INGESTION_WARNINGS_MAX_AGE", default_value = "30d", value_parser = time("1d", "3650d"))]
    pub ingestion_warnings_max_age: Duration,
    /// Database of cities or countries in MaxMind's format (`.mmdb`), from which events get the location of
    /// their IP address; kept in memory; a changed file is loaded within a minute [default: none]
    #[arg(long, env = "WEIR_GEOIP_FILE")]
    pub geoip_file: Option<PathBuf>,
}
