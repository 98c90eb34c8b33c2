//! Settings of the road from request body to log.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

/// Threads, queues and windows of ingest.
#[derive(Clone, Debug, clap::Args)]
pub struct IngestConfig {
    /// Threads that decode and parse request bodies [default: one per core]
    #[arg(long, env = "WEIR_DECODE_THREADS")]
    pub decode_threads: Option<usize>,
    /// Bytes of request bodies, as decoded, that may be between arrival and acknowledgement;
    /// beyond it capture answers 503. One that takes more than four times its bytes of memory counts
    /// for a quarter of that
    #[arg(long, env = "WEIR_INFLIGHT_MAX_BYTES", default_value = "256MiB")]
    pub inflight_max_bytes: ByteSize,
    /// Largest single event as JSON; larger ones are dropped and counted
    #[arg(long, env = "WEIR_EVENT_MAX_BYTES", default_value = "1MiB")]
    pub event_max_bytes: ByteSize,
    /// Error of a sender's clock that is taken for the time its request was on the way: timestamps
    /// stay as they were sent then. Larger errors are corrected in full
    #[arg(long, env = "WEIR_CLOCK_SKEW_IGNORED", default_value = "0s", value_parser = humantime::parse_duration)]
    pub clock_skew_ignored: Duration,
    /// Recent events remembered to drop retries (32 bytes each)
    #[arg(long, env = "WEIR_DEDUP_WINDOW_EVENTS", default_value_t = 1_000_000)]
    pub dedup_window_events: usize,
    /// Memory for recently used persons and distinct ids
    #[arg(long, env = "WEIR_IDENTITY_CACHE_MAX_BYTES", default_value = "64MiB")]
    pub identity_cache_max_bytes: ByteSize,
    /// Age at which ingestion warnings are removed, by the day
    #[arg(long, env = "WEIR_INGESTION_WARNINGS_MAX_AGE", default_value = "30d", value_parser = humantime::parse_duration)]
    pub ingestion_warnings_max_age: Duration,
    /// Database of cities or countries in MaxMind's format (`.mmdb`), kept in memory, by which events
    /// get the place of their address; a changed file is read again within a minute [default: none]
    #[arg(long, env = "WEIR_GEOIP_FILE")]
    pub geoip_file: Option<PathBuf>,
}
