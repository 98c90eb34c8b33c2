//! Timestamp parsing, and the instant that an event is stored under.
//!
//! Senders' clocks are wrong and their formats are many; this file is lenient with both. It reads no
//! clock: the time of arrival is an argument, so that a replay of the log yields the same columns.

use std::fmt;

use chrono::format::{Parsed, StrftimeItems};
use chrono::{DateTime, Datelike, Duration, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, format};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use weir_base::clock::UnixMicros;

mod spelling;
#[cfg(test)]
mod tests;

const SECOND: i64 = 1_000_000;

/// How far ahead of the server an event may be. Source: `FUTURE_EVENT_HOURS_CUTOFF_MILLIS` in
/// `PostHog`'s `timestamp.rs`; compared in whole milliseconds there, hence here.
const FUTURE_MAX_MILLIS: i64 = 23 * 3600 * 1000;

/// 0000-01-01T00:00:00Z.
const YEAR_0: UnixMicros = UnixMicros(-62_167_219_200 * SECOND);
/// 10000-01-01T00:00:00Z.
const YEAR_10000: UnixMicros = UnixMicros(253_402_300_800 * SECOND);

/// Longest text that is parsed as a timestamp; nanoseconds with the longest name of a zone are the longest form.
const TEXT_MAX_BYTES: usize = 80;

/// Formats of a time of day, in chrono's notation; longer ones first.
const TIMES: [&str; 4] = ["%I:%M:%S%.f %p", "%I:%M %p", "%H:%M:%S%.f", "%H:%M"];

/// What the sender claims about the time of an event. Source of the rule: `PostHog`'s `timestamp.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The event's `timestamp`.
    pub timestamp: Claimed,
    /// When the sender sent the request, by its clock: shows the clock skew. `None` if it was not sent, or
    /// if `properties.$ignore_sent_at` is true.
    pub sent_at: Option<UnixMicros>,
    /// The event's `offset`: its age in milliseconds when the request was received.
    pub offset_millis: Option<i64>,
}

/// A timestamp that may be absent, in any form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claimed {
    /// Not given, or null.
    #[default]
    Absent,
    /// Given, but not parseable.
    Unreadable,
    /// Parsed.
    At(UnixMicros),
}

impl From<Option<UnixMicros>> for Claimed {
    /// From the result of parsing a given value: see [`parse_timestamp`].
    fn from(parsed: Option<UnixMicros>) -> Self {
        parsed.map_or(Self::Unreadable, Self::At)
    }
}

/// The instant at which the clocks of `zone` show `local`. A time that they skip is an hour later, one that
/// they show twice is the first of both; `None` at the ends of the calendar.
pub fn at_wall(local: NaiveDateTime, zone: Tz) -> Option<UnixMicros> {
    let at = |local| zone.from_local_datetime(&local).earliest();
    let later = || at(local.checked_add_signed(Duration::hours(1))?);
    Some(UnixMicros(at(local).or_else(later)?.timestamp_micros()))
}

/// The instant to store an event under, and a warning for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTime {
    /// Year 0 to 9999; at most 23 hours after arrival.
    pub at: UnixMicros,
    /// Set if `at` is not what the sender meant.
    pub warning: Option<TimeWarning>,
}

/// Why an event is not stored under the time that its sender meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWarning {
    /// The timestamp could not be read; time of arrival instead.
    Unreadable,
    /// More than 23 hours ahead; time of arrival instead.
    InFuture,
    /// Before year 0; 1970 instead.
    OutOfBounds,
}

/// Determines the time of an event that arrived at `now`.
///
/// 1. The timestamp, minus the clock skew of the sender (`sent_at - now`) if known; else `now`.
/// 2. An offset takes precedence: `now` minus the offset.
/// 3. More than 23 hours after `now`: `now`.
/// 4. Outside of the years 0 to 9999: 1970-01-01T00:00:00Z.
pub fn event_time(claim: &Claim, now: UnixMicros) -> EventTime {
    let skew = claim.sent_at.map_or(0, |sent_at| sent_at.0.saturating_sub(now.0));
    let (at, mut warning) = match (claim.offset_millis, claim.timestamp) {
        (Some(offset), _) => (now.0.saturating_sub(offset.saturating_mul(1000)), None),
        (None, Claimed::At(timestamp)) => (timestamp.0.saturating_sub(skew), None),
        (None, Claimed::Absent) => (now.0, None),
        (None, Claimed::Unreadable) => (now.0, Some(TimeWarning::Unreadable)),
    };
    let mut at = UnixMicros(at);
    if at.0.saturating_sub(now.0) / 1000 > FUTURE_MAX_MILLIS {
        (at, warning) = (now, Some(TimeWarning::InFuture));
    }
    if within_bounds(at).is_none() {
        (at, warning) = (UnixMicros(0), Some(TimeWarning::OutOfBounds));
    }
    EventTime { at, warning }
}

/// `at`, if it is in the years 0 to 9999, which every reader of the tables can display.
pub fn within_bounds(at: UnixMicros) -> Option<UnixMicros> {
    (YEAR_0..YEAR_10000).contains(&at).then_some(at)
}

/// Parses RFC 3339 and nothing else.
pub fn parse_rfc3339(text: &str) -> Option<UnixMicros> {
    parse_common(text.as_bytes()).or_else(|| {
        let time = DateTime::parse_from_rfc3339(text).ok()?;
        Some(UnixMicros(time.timestamp_micros()))
    })
}

/// Parses a timestamp: what [`Written`] reads, in UTC if it has no zone, digits as [`from_integer`]
/// does (at least nine of them, so that a year or an id is not taken for a time), and the spellings of exports of other
/// systems (`time/spelling.rs`).
pub fn parse_timestamp(text: &str) -> Option<UnixMicros> {
    if let Some(time) = parse_common(text.as_bytes()) {
        return Some(time);
    }
    let text = text.trim();
    if text.len() > TEXT_MAX_BYTES {
        return None;
    }
    parse_digits(text)
        .or_else(|| Written::parse(text).map(Written::in_utc))
        .or_else(|| spelling::parse(text))
}

/// A date, or a date and time, as somebody wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Written {
    /// With an offset.
    Instant(UnixMicros),
    /// Without an offset: the time of the local clock.
    Wall(NaiveDateTime),
}

impl Written {
    /// Parses a date with or without a time. A date alone is its midnight; digits past the microsecond
    /// are cut off.
    ///
    /// - RFC 3339, with `T`, `t` or a space, seconds and zone optional: `2026-11-21T08:00:00.123Z`,
    ///   `2026-11-21 08:00`, `2026-11-21T08:00:00+03`, `... +0300`, `... UTC`, `... 5:30:00 PM`
    /// - dates: `2026-11-21`, `2026/11/21`, `11/21/2026` (month first), `11/21/26` (1970 to 2069),
    ///   each with a time or not
    /// - RFC 2822: `Sat, 21 Nov 2026 08:00:00 +0000`
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > TEXT_MAX_BYTES {
            return None;
        }
        parse_rfc3339(text).map(Self::Instant).or_else(|| Self::parse_civil(text)).or_else(|| {
            let time = DateTime::parse_from_rfc2822(text).ok()?;
            Some(Self::Instant(UnixMicros(time.timestamp_micros())))
        })
    }

    /// Dates with dashes or slashes, with or without a time, with or without a zone.
    fn parse_civil(text: &str) -> Option<Self> {
        let text = text.to_ascii_uppercase().replace(',', ".");
        let end = text.find(|c: char| c == 'T' || c.is_whitespace()).unwrap_or(text.len());
        let (date, rest) = text.split_at_checked(end)?;
        let date = parse_date(date)?;
        if rest.is_empty() {
            return Some(Self::Wall(date.and_time(NaiveTime::MIN)));
        }
        let rest = rest.strip_prefix('T').unwrap_or(rest);
        let parse = |form| NaiveTime::parse_and_remainder(rest, form).ok();
        let (time, zone) = TIMES.into_iter().find_map(parse)?;
        let wall = date.and_time(time);
        let zone = match zone.trim() {
            "" => return Some(Self::Wall(wall)),
            "UTC" | "GMT" => "Z",
            zone => zone,
        };
        let mut parsed = Parsed::new();
        format::parse(&mut parsed, zone, StrftimeItems::new("%#z")).ok()?;
        let time = wall.and_local_timezone(parsed.to_fixed_offset().ok()?).single()?;
        Some(Self::Instant(UnixMicros(time.timestamp_micros())))
    }

    /// The instant, where the local clock shows UTC.
    pub fn in_utc(self) -> UnixMicros {
        match self {
            Self::Instant(instant) => instant,
            Self::Wall(wall) => UnixMicros::from(wall.and_utc()),
        }
    }
}

/// Parses a date. A year has four digits, because chrono would take any count; two only at the end.
fn parse_date(text: &str) -> Option<NaiveDate> {
    let is_separator = |c: char| !c.is_ascii_digit();
    let (first, last) = (text.find(is_separator)?, text.rfind(is_separator)?);
    let forms: &[&str] = match (first, text.len() - last - 1) {
        (4, _) => &["%Y-%m-%d", "%Y/%m/%d"],
        (_, 4) => &["%m/%d/%Y"],
        (_, 2) => &["%m/%d/%y"],
        _ => &[],
    };
    forms.iter().find_map(|form| NaiveDate::parse_from_str(text, form).ok())
}

/// Converts a JSON number to a time since 1970: seconds below 10^11 (year 5138), milliseconds below
/// 10^14 (they begin in 1973), microseconds below 10^17, nanoseconds above.
pub fn from_integer(number: i64) -> UnixMicros {
    UnixMicros(match number.unsigned_abs() {
        ..100_000_000_000 => number.saturating_mul(SECOND),
        100_000_000_000..100_000_000_000_000 => number.saturating_mul(1000),
        100_000_000_000_000..100_000_000_000_000_000 => number,
        _ => number.div_euclid(1000),
    })
}

/// Converts a JSON number with a fraction; units as in [`from_integer`]. `None` if it is not finite or
/// more than 64-bit nanoseconds can hold.
pub fn from_float(number: f64) -> Option<UnixMicros> {
    let micros = match number.abs() {
        size if size < 1e11 => number * 1e6,
        size if size < 1e14 => number * 1e3,
        size if size < 1e17 => number,
        // 2^63 nanoseconds.
        size if size < 9.223_372_036_854_776e18 => number / 1e3,
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, reason = "below 10^17 in size, see above")]
    Some(UnixMicros(micros.round() as i64))
}

/// Fast path: `2026-11-21T08:00:00[.f]` with `Z` or `+00:00`, as all current SDKs send it; about 20 ns.
fn parse_common(text: &[u8]) -> Option<UnixMicros> {
    let (head, tail) = text.split_first_chunk::<19>()?;
    let [y1, y2, y3, y4, b'-', o1, o2, b'-', d1, d2, b'T', h1, h2, b':', i1, i2, b':', s1, s2] =
        head
    else {
        return None;
    };
    let year = two_digits(*y1, *y2)? * 100 + two_digits(*y3, *y4)?;
    let (month, day) = (two_digits(*o1, *o2)?, two_digits(*d1, *d2)?);
    let (hour, minute) = (two_digits(*h1, *h2)?, two_digits(*i1, *i2)?);
    let second = two_digits(*s1, *s2)?;
    let (micros, zone) = match tail {
        [b'.', digits @ ..] => fraction_micros(digits)?,
        _ => (0, tail),
    };
    if !matches!(zone, b"Z" | b"+00:00") {
        return None;
    }
    let date = NaiveDate::from_ymd_opt(year.cast_signed(), month, day)?;
    // `None` for a leap second, which is left to the slow path.
    let time = date.and_hms_micro_opt(hour, minute, second, micros)?;
    Some(UnixMicros(time.and_utc().timestamp_micros()))
}

fn two_digits(tens: u8, ones: u8) -> Option<u32> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| u32::from(tens) * 10 + u32::from(ones))
}

/// Parses one to nine digits after a decimal point as microseconds; returns the rest too.
fn fraction_micros(text: &[u8]) -> Option<(u32, &[u8])> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(count)?;
    if !(1..=9).contains(&count) {
        return None;
    }
    let padded = digits.iter().chain(std::iter::repeat(&b'0')).take(6);
    Some((padded.fold(0, |micros, digit| micros * 10 + u32::from(digit - b'0')), rest))
}

/// Digits with an optional fraction.
fn parse_digits(text: &str) -> Option<UnixMicros> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !(9..=19).contains(&whole.len()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    if fraction.is_empty() {
        return whole.parse().ok().map(from_integer);
    }
    text.parse().ok().and_then(from_float)
}

/// A month of the Gregorian calendar in UTC, as the count of months since January of year 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(pub i32);

impl fmt::Display for Month {
    /// As partitions are named: `2026-11`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04}-{:02}", self.0.div_euclid(12), self.0.rem_euclid(12) + 1)
    }
}

/// The first month with a partition of its own; nearly all events are newer. Earlier events share the
/// partition of the month before it.
const FIRST_MONTH: Month = Month(2010 * 12);

/// The last month with a partition of its own. Later events share the partition of the month after it. It
/// can be raised at any time: queries find events by the statistics of files, whatever their partition.
const LAST_MONTH: Month = Month(2035 * 12 + 11);

/// The partition of the table for events of this time: their month, within bounds, because a flush writes
/// a file per partition and senders choose the times. Monotonic in the time.
pub fn partition_of(time: UnixMicros) -> Month {
    month_of(time).clamp(Month(FIRST_MONTH.0 - 1), Month(LAST_MONTH.0 + 1))
}

/// The month in UTC that `time` is in.
fn month_of(time: UnixMicros) -> Month {
    let date = time.to_datetime();
    Month(date.year() * 12 + date.month0().cast_signed())
}
