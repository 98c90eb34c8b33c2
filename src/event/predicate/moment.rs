//! Times in filters: a date, or a relative span such as `-7d`.
//!
//! A date without an offset is in the project's time zone ([`Now`]), in filters and in values. SDKs that evaluate flags
//! themselves read it in UTC; with a project in UTC both have the same result. Spans go back on the clock of UTC.

use std::time::Duration;

use chrono::{Days, Months, NaiveDateTime, TimeDelta};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::as_text;
use crate::time::{Written, at_wall};
use weir_base::clock::UnixMicros;

/// Limit of the count of a span; larger ones are not valid. The figure is PostHog's; it keeps years in range.
const SPAN_LIMIT: u32 = 10_000;

/// The current time of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// The instant.
    pub at: UnixMicros,
    /// The time zone of the project.
    #[serde(with = "as_text")]
    pub zone: Tz,
}

impl Now {
    /// An instant, with UTC as the time zone.
    pub fn utc(at: UnixMicros) -> Self {
        Self { at, zone: Tz::UTC }
    }
}

/// A point in time in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// A date, or a date and time.
    Written(Written),
    /// A span before now.
    Ago {
        /// Number of units.
        count: u32,
        /// The unit.
        unit: Unit,
    },
}

/// The unit of a span. Filters use hours and longer units, without quarters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// `h`
    Hours,
    /// `d`: 24 hours.
    Days,
    /// `w`
    Weeks,
    /// `m`: calendar months; the day is cut to the length of the month.
    Months,
    /// Thirteen weeks.
    Quarters,
    /// `y`: twelve months.
    Years,
}

impl Unit {
    /// The time `count` of the unit before `now`, on the same clock; `None` outside the calendar.
    pub fn before(self, count: u32, now: NaiveDateTime) -> Option<NaiveDateTime> {
        let days = |each: u64| now.checked_sub_days(Days::new(u64::from(count) * each));
        let months = |each: u32| now.checked_sub_months(Months::new(count.checked_mul(each)?));
        match self {
            Self::Seconds => now.checked_sub_signed(TimeDelta::seconds(i64::from(count))),
            Self::Minutes => now.checked_sub_signed(TimeDelta::minutes(i64::from(count))),
            Self::Hours => now.checked_sub_signed(TimeDelta::hours(i64::from(count))),
            Self::Days => days(1),
            Self::Weeks => days(7),
            Self::Quarters => days(7 * 13),
            Self::Months => months(1),
            Self::Years => months(12),
        }
    }
}

impl Moment {
    /// Parses a date, a date and time, or a span. The sign of a span is ignored: `7d` and `-7d` are
    /// both in the past.
    pub fn parse(text: &str) -> Option<Self> {
        span(text).or_else(|| Written::parse(text).map(Self::Written))
    }

    /// The instant, as of `now`; `None` outside of the calendar.
    pub fn resolve(self, now: Now) -> Option<UnixMicros> {
        let (count, unit) = match self {
            Self::Written(Written::Instant(instant)) => return Some(instant),
            Self::Written(Written::Wall(wall)) => return at_wall(wall, now.zone),
            Self::Ago { count, unit } => (count, unit),
        };
        let then = unit.before(count, now.at.to_datetime().naive_utc())?;
        Some(UnixMicros::from(then.and_utc()))
    }
}

/// The time of a property value, as of `now`: any form of [`Moment`], or seconds since 1970 as a number
/// or as a string.
pub fn time_of(value: &Value, now: Now) -> Option<UnixMicros> {
    match value {
        Value::Number(number) => from_seconds(number.as_f64()?),
        Value::String(text) => match text.parse() {
            Ok(seconds) => from_seconds(seconds),
            Err(_) => Moment::parse(text)?.resolve(now),
        },
        _ => None,
    }
}

fn span(text: &str) -> Option<Moment> {
    let text = text.strip_prefix('-').unwrap_or(text);
    let unit = match text.as_bytes().last()? {
        b'h' => Unit::Hours,
        b'd' => Unit::Days,
        b'w' => Unit::Weeks,
        b'm' => Unit::Months,
        b'y' => Unit::Years,
        _ => return None,
    };
    let digits = text.get(..text.len() - 1)?;
    Some(Moment::Ago { count: count(digits)?, unit })
}

/// Parses the count of a span, digits only.
pub fn count(digits: &str) -> Option<u32> {
    let is_count = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|count| is_count && *count < SPAN_LIMIT)
}

/// `None` for NaN and for values out of range.
fn from_seconds(seconds: f64) -> Option<UnixMicros> {
    let distance = Duration::try_from_secs_f64(seconds.abs()).ok()?;
    // Rounded, because 1700000000.123456 has no exact double.
    let micros = i64::try_from((distance.as_nanos() + 500) / 1_000).ok()?;
    Some(UnixMicros(if seconds < 0.0 { -micros } else { micros }))
}
