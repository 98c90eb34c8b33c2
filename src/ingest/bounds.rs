//! Limits of the write path, from the settings: [`Bounds`], and how long the log may take ([`log_times`]).

use std::time::Duration;

use weir_base::config::Config;
use weir_base::config::bucket::LogPlace;

/// How long a request waits until its record is durable, before it is answered with 503. An object store may be away, and
/// senders wait for 10 to 30 seconds; a disk that does not answer for so long is broken.
const LOG_WAIT_BUCKET: Duration = Duration::from_secs(10);
const LOG_WAIT_DISK: Duration = Duration::from_secs(5 * 60);

/// Settings of the write path.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) wal_max_bytes: u64,
    /// How long a request waits for the log.
    pub(super) log_wait: Duration,
    pub(super) skew_ignored_millis: u32,
    pub(super) event_max_bytes: u32,
}

impl Bounds {
    pub(super) fn of(config: &Config) -> Self {
        let skew = config.ingest.clock_skew_ignored.as_millis();
        let event_max_bytes = config.ingest.event_max_bytes.as_u64();
        Self {
            wal_max_bytes: config.storage.wal_max_bytes.as_u64(),
            log_wait: log_times(config).1,
            skew_ignored_millis: u32::try_from(skew).unwrap_or(u32::MAX),
            event_max_bytes: u32::try_from(event_max_bytes).unwrap_or(u32::MAX),
        }
    }
}

/// The shortest time between two syncs of the log, and how long a request waits for one.
pub(super) fn log_times(config: &Config) -> (Duration, Duration) {
    match config.storage.bucket.storage_log {
        LogPlace::Disk => (Duration::ZERO, LOG_WAIT_DISK),
        LogPlace::Bucket => (config.storage.bucket.storage_log_linger, LOG_WAIT_BUCKET),
    }
}
