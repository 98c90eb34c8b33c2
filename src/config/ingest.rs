//! Settings of the road from request body to log.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::config::bounds::bytes;
use crate::config::bounds::number;
use crate::config::bounds::time;

/// Threads, queues and windows of ingest.
#[derive(Clone, Debug, clap::Args)]
pub struct IngestConfig {
    /// Threads that decode and parse request bodies [range: 1 to 1024] [default: one per core]
    #[arg(long, env = "WEIR_DECODE_THREADS", value_parser = number(1_usize, 1024))]
    pub decode_threads: Option<usize>,
    /// Bytes of request bodies, as decoded, that may be between arrival and acknowledgement;
    /// beyond it capture answers 503. One that takes more than four times its bytes of memory counts
    /// for a quarter of that; one that needs more than all of it, or has events of more than
    /// 250,000 distinct ids, is answered 413. As much again for requests and answers on the connections: bodies as
    /// sent, heads, answers of more than 16 KiB; beyond it every request but those for `/_liveness`,
    /// `/_readiness` and `/metrics` is answered 503. A connection with many requests under way may
    /// fill half of it [range: 1MiB to 1TiB]
    #[arg(long, env = "WEIR_INFLIGHT_MAX_BYTES", default_value = "256MiB", value_parser = bytes("1MiB", "1TiB"))]
    pub inflight_max_bytes: ByteSize,
    /// Largest single event as JSON; larger ones are dropped and counted [range: 1KiB to 960MiB]
    #[arg(long, env = "WEIR_EVENT_MAX_BYTES", default_value = "1MiB", value_parser = bytes("1KiB", "960MiB"))]
    pub event_max_bytes: ByteSize,
    /// Error of a sender's clock that is taken for the time its request was on the way: timestamps stay
    /// as they were sent then. Larger errors are corrected in full [range: 0s to 1d]
    #[arg(long, env = "WEIR_CLOCK_SKEW_IGNORED", default_value = "0s", value_parser = time("0s", "1d"))]
    pub clock_skew_ignored: Duration,
    /// Recent events remembered to drop retries (32 bytes each) [range: 1 to 1000000000]
    #[arg(long, env = "WEIR_DEDUP_WINDOW_EVENTS", default_value_t = 1_000_000, value_parser = number(1_usize, 1_000_000_000))]
    pub dedup_window_events: usize,
    /// Memory for recently used persons and distinct ids; as much again is for persons that were merged,
    /// 6,500 per MiB [range: 1MiB to 1TiB]
    #[arg(long, env = "WEIR_IDENTITY_CACHE_MAX_BYTES", default_value = "64MiB", value_parser = bytes("1MiB", "1TiB"))]
    pub identity_cache_max_bytes: ByteSize,
    /// Age at which ingestion warnings are removed, by the day [range: 1d to 3650d]
    #[arg(long, env = "WEIR_INGESTION_WARNINGS_MAX_AGE", default_value = "30d", value_parser = time("1d", "3650d"))]
    pub ingestion_warnings_max_age: Duration,
    /// Database of cities or countries in MaxMind's format (`.mmdb`), kept in memory, by which events
    /// get the place of their address; a changed file is read again within a minute [default: none]
    #[arg(long, env = "WEIR_GEOIP_FILE")]
    pub geoip_file: Option<PathBuf>,
}
