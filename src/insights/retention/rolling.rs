//! Windows that begin with an actor's first event, instead of calendar intervals: [`Rolling`].

use chrono::Datelike;
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use weir_base::clock::UnixMicros;
use weir_event::as_text;

const MICROS_PER_HOUR: i64 = 3_600_000_000;

/// Windows of equal length that begin at any time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Rolling {
    unit: Unit,
    /// The length of a window in units.
    length: i64,
}

/// The unit of time: as in PostHog, the distance of two times is the number of unit boundaries between them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Unit {
    /// Whole hours of UTC.
    Hours,
    /// Days of the project's time zone.
    Days(#[serde(with = "as_text")] Tz),
}

impl Rolling {
    /// The windows for a period: an hour, 24 hours, 7 days or 30 days (PostHog's lengths).
    pub(super) fn of(period: Interval, zone: Tz) -> Self {
        let (unit, length) = match period {
            Interval::Minute | Interval::Hour => (Unit::Hours, 1),
            Interval::Day => (Unit::Hours, 24),
            Interval::Week => (Unit::Days(zone), 7),
            Interval::Month => (Unit::Days(zone), 30),
        };
        Self { unit, length }
    }

    /// How many windows a time is after the one that begins with `first`; `None` if it is before `first`.
    pub(super) fn between(self, first: i64, at: i64) -> Option<usize> {
        if at < first {
            return None;
        }
        usize::try_from((self.unit.number(at) - self.unit.number(first)) / self.length).ok()
    }
}

impl Unit {
    /// The number of the unit that contains a time.
    fn number(self, at: i64) -> i64 {
        match self {
            Self::Hours => at.div_euclid(MICROS_PER_HOUR),
            Self::Days(zone) => {
                let day = UnixMicros(at).to_datetime().with_timezone(&zone).date_naive();
                day.num_days_from_ce().into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rolling;
    use crate::interval::Interval;
    use weir_base::clock::UnixMicros;

    #[test]
    fn windows_begin_with_the_hour_or_the_day_of_the_first_time() {
        let micros = |text: &str| {
            UnixMicros(chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros()).0
        };
        let first = micros("2026-03-28T22:40:00Z");
        for (period, at, expected) in [
            (Interval::Hour, "2026-03-28T22:39:59Z", None),
            (Interval::Hour, "2026-03-28T22:59:59Z", Some(0)),
            (Interval::Hour, "2026-03-28T23:00:00Z", Some(1)),
            (Interval::Day, "2026-03-29T21:59:59Z", Some(0)),
            (Interval::Day, "2026-03-29T22:00:00Z", Some(1)),
            (Interval::Day, "2026-03-31T21:59:59Z", Some(2)),
            // In Berlin the first time is on the 28th; on the 29th daylight saving time begins.
            (Interval::Week, "2026-04-03T21:59:59Z", Some(0)),
            (Interval::Week, "2026-04-03T22:00:00Z", Some(1)),
            (Interval::Month, "2026-04-26T21:59:59Z", Some(0)),
            (Interval::Month, "2026-04-26T22:00:00Z", Some(1)),
        ] {
            let windows = Rolling::of(period, chrono_tz::Europe::Berlin);
            assert_eq!(windows.between(first, micros(at)), expected, "{period:?} {at}");
        }
    }
}
