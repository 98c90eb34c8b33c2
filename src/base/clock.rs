//! Injected clock: [`Clock`], and the time stamp [`UnixMicros`]. The only reader of the system's clocks;
//! tests use a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01T00:00:00Z, leap seconds ignored. The only representation of
/// time in Weir: Parquet and Delta store microseconds, and SDKs send no finer times.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct UnixMicros(pub i64);

impl UnixMicros {
    /// The same instant as a calendar date and time. Saturates at the ends of chrono's range.
    pub fn to_datetime(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or(if self.0 < 0 {
            DateTime::<Utc>::MIN_UTC
        } else {
            DateTime::<Utc>::MAX_UTC
        })
    }

    /// RFC 3339 with microseconds and `Z`, as in `2026-11-21T08:00:00.000000Z`.
    pub fn to_rfc3339(self) -> String {
        self.to_datetime().to_rfc3339_opts(SecondsFormat::Micros, true)
    }

    /// This instant plus `duration`, saturating.
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<DateTime<Utc>> for UnixMicros {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.timestamp_micros())
    }
}

/// A cheap handle on a time source; clones read the same source.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    System { started: Instant },
    Test { now: Arc<AtomicI64> },
}

impl Clock {
    /// The clock of the machine.
    #[expect(clippy::disallowed_methods, reason = "the one reader of the system's clocks")]
    pub fn system() -> Self {
        Self { source: Source::System { started: Instant::now() } }
    }

    /// A manual clock at `now`, which only [`Clock::advance`] moves.
    pub fn test(now: UnixMicros) -> Self {
        Self { source: Source::Test { now: Arc::new(AtomicI64::new(now.0)) } }
    }

    /// The wall clock. May step backwards when the machine's clock is set.
    #[expect(clippy::disallowed_methods, reason = "the one reader of the system's clocks")]
    pub fn now(&self) -> UnixMicros {
        match &self.source {
            Source::System { .. } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                UnixMicros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
            }
            Source::Test { now } => UnixMicros(now.load(Ordering::Relaxed)),
        }
    }

    /// Time since a fixed point of this clock. Never steps backwards; for measuring durations.
    pub fn monotonic(&self) -> Duration {
        match &self.source {
            Source::System { started } => started.elapsed(),
            Source::Test { now } => {
                Duration::from_micros(u64::try_from(now.load(Ordering::Relaxed)).unwrap_or(0))
            }
        }
    }

    /// Moves a test clock forward. The system clock moves by itself and ignores this.
    pub fn advance(&self, by: Duration) {
        if let Source::Test { now } = &self.source {
            now.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::Relaxed);
        }
    }
}
