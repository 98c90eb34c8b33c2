//! The date range of an insight: [`DateRange`], computed from `date_from`, `date_to` and `interval` in the time zone
//! of the project. The rules are those of PostHog's insights.
//!
//! A date is absolute, or relative to now: `-7d`, `-1mStart`. A relative `date_from` is truncated to the day, the
//! hour or the minute, by its unit. With the suffix `Start` or `End` it is the boundary of the unit; weeks begin on
//! the project's first day of the week. Unless `explicit_date` is set, the range ends at the end of its last day, or
//! of its last hour or minute if that is the interval.

use chrono::{Datelike, Days, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};
use chrono_tz::Tz;

use weir_base::clock::UnixMicros;
use weir_event::predicate::moment;
use weir_event::predicate::moment::Unit;
use weir_event::time::{Written, at_wall};

/// Default start (PostHog's figure).
const FROM_DEFAULT: &str = "-7d";

/// First and last time, both inclusive.
#[derive(Clone, Copy, Debug)]
pub struct DateRange {
    /// The first.
    pub from: UnixMicros,
    /// The last.
    pub to: UnixMicros,
    zone: Tz,
}

impl DateRange {
    /// Formats a time as PostHog does: with the UTC offset of the project, and a fraction only if it is not zero.
    pub fn written(&self, time: UnixMicros) -> String {
        let time = time.to_datetime().with_timezone(&self.zone);
        match time.nanosecond() {
            0 => time.format("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            _ => time.format("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string(),
        }
    }
}

impl DateRange {
    /// Explains why a range that ends before it begins is empty; `None` for other ranges.
    pub fn reversed(&self) -> Option<String> {
        (self.from > self.to).then(|| {
            let (from, to) = (self.written(self.from), self.written(self.to));
            format!("The range begins at {from}, after its end at {to}.")
        })
    }

    /// The range between two times, in a time zone.
    pub fn new(from: UnixMicros, to: UnixMicros, zone: Tz) -> Self {
        Self { from, to, zone }
    }

    /// The time zone of the project.
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// The same range with another start.
    pub fn since(&self, from: UnixMicros) -> Self {
        Self { from, ..*self }
    }

    /// The range of the same length immediately before. If `is_by_day`, it covers whole days and is shifted forward
    /// by `extra_days`.
    pub fn previous(&self, is_by_day: bool, extra_days: u64) -> Self {
        let length = self.to.0.saturating_sub(self.from.0);
        let before = UnixMicros(self.from.0.saturating_sub(length));
        if !is_by_day {
            let before =
                |time: UnixMicros| UnixMicros(time.0.saturating_sub(length).saturating_sub(1));
            return Self { from: before(self.from), to: before(self.to), zone: self.zone };
        }
        // In local time, so that the previous period has the same number of days if daylight saving time changes
        // between.
        let days = || {
            let wall =
                |time: UnixMicros| time.to_datetime().with_timezone(&self.zone).naive_local();
            let length = wall(self.to).signed_duration_since(wall(self.from));
            let start = whole(wall(self.from).checked_sub_signed(length)?, Unit::Days)?;
            let start = start.checked_add_days(Days::new(extra_days))?;
            let last = start.checked_add_signed(length)?;
            Some((at_wall(start, self.zone)?, end_of_day(last, self.zone)?))
        };
        let (from, to) = days().unwrap_or((before, self.from));
        Self { from, to, zone: self.zone }
    }

    /// The range shifted back by a duration such as `-1w`; `None` if it is not a duration.
    pub fn before(&self, duration: &str) -> Option<Self> {
        let shifted = |time: UnixMicros| {
            let wall = time.to_datetime().with_timezone(&self.zone).naive_local();
            at_wall(Self::shift(wall, duration)?, self.zone)
        };
        Some(Self { from: shifted(self.from)?, to: shifted(self.to)?, zone: self.zone })
    }

    /// The local time that a duration such as `-1w` before `wall` is; `None` if it is not a duration.
    pub fn shift(wall: NaiveDateTime, duration: &str) -> Option<NaiveDateTime> {
        let span = Span::parse(duration).filter(|span| span.edge.is_none())?;
        span.unit.before(span.count, wall)
    }

    /// Whether a relative date is a whole number of weeks before now.
    pub fn is_whole_weeks(text: &str) -> bool {
        Span::parse(text).is_some_and(|span| match span.unit {
            Unit::Days => span.edge.is_none() && span.count > 0 && span.count % 7 == 0,
            Unit::Weeks => span.edge.is_none() && span.count > 0,
            _ => false,
        })
    }
}

/// The date range parameters of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters<'r> {
    /// `date_from`.
    pub from: Option<&'r str>,
    /// `date_to`.
    pub to: Option<&'r str>,
    /// `interval`.
    pub interval: Option<&'r str>,
    /// `explicit_date`.
    pub is_explicit: bool,
    /// Whether two equal dates denote the interval that begins with them, as in timelines.
    pub is_one_interval: bool,
    /// Whether weeks begin on Monday, and not on Sunday.
    pub is_monday_first: bool,
}

impl Parameters<'_> {
    /// The range as of `now`.
    ///
    /// # Errors
    ///
    /// The name of the invalid parameter.
    pub fn range(&self, zone: Tz, now: UnixMicros) -> Result<DateRange, &'static str> {
        let wall = now.to_datetime().with_timezone(&zone).naive_local();
        let from = self.start(zone, wall).ok_or("date_from")?;
        let to = match (self.from, self.to) {
            (Some(from_text), Some(to)) if self.is_one_interval && from_text == to => {
                self.after(from, zone)
            }
            _ => self.end(zone, now),
        };
        Ok(DateRange { from, to: to.ok_or("date_to")?, zone })
    }

    fn start(&self, zone: Tz, now: NaiveDateTime) -> Option<UnixMicros> {
        let text = self.from.unwrap_or(FROM_DEFAULT);
        if text == "all" {
            return Some(UnixMicros(0));
        }
        let Some(span) = Span::parse(text) else { return written(text, zone) };
        let time = span.before(now, self.is_monday_first)?;
        let time = match span.unit {
            _ if self.is_explicit => time,
            Unit::Seconds => time,
            Unit::Minutes => whole(time, Unit::Minutes)?,
            Unit::Hours => whole(time, Unit::Hours)?,
            _ => whole(time, Unit::Days)?,
        };
        at_wall(time, zone)
    }

    fn end(&self, zone: Tz, now: UnixMicros) -> Option<UnixMicros> {
        let interval = match self.interval {
            Some("minute") => Unit::Minutes,
            Some("hour") => Unit::Hours,
            _ => Unit::Days,
        };
        let wall = |time: UnixMicros| time.to_datetime().with_timezone(&zone).naive_local();
        let Some(text) = self.to else {
            return if self.is_explicit { Some(now) } else { end_at(now, interval, zone) };
        };
        if let Some(span) = Span::parse(text) {
            let time = at_wall(span.before(wall(now), self.is_monday_first)?, zone)?;
            return if self.is_explicit { Some(time) } else { end_at(time, interval, zone) };
        }
        let time = written(text, zone)?;
        // With an interval of hours or minutes, only a date without a time is extended to its whole day.
        let is_date = NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok();
        if self.is_explicit || (interval != Unit::Days && !is_date) {
            return Some(time);
        }
        end_of_day(wall(time), zone)
    }

    /// The end of the interval that begins at a time; an unknown interval counts as a day.
    fn after(&self, from: UnixMicros, zone: Tz) -> Option<UnixMicros> {
        let wall = from.to_datetime().with_timezone(&zone).naive_local();
        let next = match self.interval {
            Some("month") => wall.checked_add_months(Months::new(1)),
            Some("week") => wall.checked_add_days(Days::new(7)),
            Some("hour") => wall.checked_add_signed(TimeDelta::hours(1)),
            Some("minute") => wall.checked_add_signed(TimeDelta::minutes(1)),
            _ => wall.checked_add_days(Days::new(1)),
        };
        at_wall(next?, zone).map(|next| UnixMicros(next.0.saturating_sub(1)))
    }
}

/// Parses an absolute date. Without an offset it is local time of the project.
fn written(text: &str, zone: Tz) -> Option<UnixMicros> {
    match Written::parse(text)? {
        Written::Instant(instant) => Some(instant),
        Written::Wall(wall) => at_wall(wall, zone),
    }
}

/// The boundary of the unit that a relative date denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}

/// A relative date: a duration before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    count: u32,
    unit: Unit,
    edge: Option<Edge>,
}

impl Span {
    /// Parses `-7d`, `1mStart` and others; the sign is ignored, and a missing count is 0.
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('-').unwrap_or(text);
        let (text, edge) = match (text.strip_suffix("Start"), text.strip_suffix("End")) {
            (Some(text), _) => (text, Some(Edge::Start)),
            (_, Some(text)) => (text, Some(Edge::End)),
            _ => (text, None),
        };
        let mut letters = text.chars();
        let unit = match letters.next_back()? {
            's' | 'S' => Unit::Seconds,
            'M' => Unit::Minutes,
            'h' | 'H' => Unit::Hours,
            'd' | 'D' => Unit::Days,
            'w' | 'W' => Unit::Weeks,
            'm' => Unit::Months,
            'q' | 'Q' => Unit::Quarters,
            'y' | 'Y' => Unit::Years,
            _ => return None,
        };
        let digits = letters.as_str();
        let count = if digits.is_empty() { 0 } else { moment::count(digits)? };
        Some(Self { count, unit, edge })
    }

    /// The local time at this duration before `now`, or the boundary of the unit that contains that time.
    fn before(self, now: NaiveDateTime, is_monday_first: bool) -> Option<NaiveDateTime> {
        let Some(edge) = self.edge else { return self.unit.before(self.count, now) };
        // Boundaries are those of calendar quarters, not of periods of thirteen weeks.
        let time = match self.unit {
            Unit::Quarters => now.checked_sub_months(Months::new(self.count.checked_mul(3)?))?,
            unit => unit.before(self.count, now)?,
        };
        match (edge, self.unit) {
            (Edge::Start, Unit::Months) => time.with_day(1),
            (Edge::Start, Unit::Years) => time.with_day(1)?.with_month(1),
            (Edge::Start, Unit::Quarters) => quarter(time),
            (Edge::Start, Unit::Weeks) => week(time, is_monday_first),
            (Edge::Start, unit) => whole(time, unit),
            (Edge::End, Unit::Months) => last_day(time),
            (Edge::End, Unit::Years) => last_day(time.with_day(1)?.with_month(12)?),
            (Edge::End, Unit::Quarters) => {
                last_instant(quarter(time)?.checked_add_months(Months::new(3))?)
            }
            (Edge::End, Unit::Weeks) => {
                last_instant(week(time, is_monday_first)?.checked_add_days(Days::new(7))?)
            }
            (Edge::End, unit) => end_of(time, unit),
        }
    }
}

/// The start of the quarter of a time.
fn quarter(time: NaiveDateTime) -> Option<NaiveDateTime> {
    let months = time.month0() / 3 * 3;
    whole(time, Unit::Days)?.with_day(1)?.with_month0(months)
}

/// The start of the week of a time.
fn week(time: NaiveDateTime, is_monday_first: bool) -> Option<NaiveDateTime> {
    let weekday = time.weekday();
    let passed = match is_monday_first {
        true => weekday.num_days_from_monday(),
        false => weekday.num_days_from_sunday(),
    };
    whole(time, Unit::Days)?.checked_sub_days(Days::new(passed.into()))
}

/// The last instant before the next unit begins.
fn last_instant(next: NaiveDateTime) -> Option<NaiveDateTime> {
    next.checked_sub_signed(TimeDelta::microseconds(1))
}

/// The last day of the month of a time.
fn last_day(time: NaiveDateTime) -> Option<NaiveDateTime> {
    time.with_day(time.num_days_in_month().into())
}

/// The start of the second, minute, hour or day of a time; the time itself for other units.
fn whole(time: NaiveDateTime, unit: Unit) -> Option<NaiveDateTime> {
    match unit {
        Unit::Seconds => time.with_nanosecond(0),
        Unit::Minutes => time.with_second(0)?.with_nanosecond(0),
        Unit::Hours => time.with_minute(0)?.with_second(0)?.with_nanosecond(0),
        Unit::Days => Some(time.date().and_time(NaiveTime::MIN)),
        _ => Some(time),
    }
}

/// The end of the minute, hour or day that an instant lies in.
fn end_at(time: UnixMicros, unit: Unit, zone: Tz) -> Option<UnixMicros> {
    let wall = time.to_datetime().with_timezone(&zone).naive_local();
    if unit == Unit::Days {
        return end_of_day(wall, zone);
    }
    let left = end_of(wall, unit)?.signed_duration_since(wall).num_microseconds()?;
    Some(UnixMicros(time.0.saturating_add(left)))
}

/// The last instant of the day of a local time. In some zones daylight saving time ends at midnight, so that clocks
/// show the last hour of the day twice: the instant is right before the next day, not the first at which clocks show
/// the last microsecond.
fn end_of_day(wall: NaiveDateTime, zone: Tz) -> Option<UnixMicros> {
    let next = whole(wall, Unit::Days)?.checked_add_days(Days::new(1))?;
    Some(UnixMicros(at_wall(next, zone)?.0.saturating_sub(1)))
}

/// The end of the second, minute, hour or day of a time.
fn end_of(time: NaiveDateTime, unit: Unit) -> Option<NaiveDateTime> {
    let length = match unit {
        Unit::Seconds => TimeDelta::seconds(1),
        Unit::Minutes => TimeDelta::minutes(1),
        Unit::Hours => TimeDelta::hours(1),
        Unit::Days => TimeDelta::days(1),
        _ => return Some(time),
    };
    whole(time, unit)?.checked_add_signed(length - TimeDelta::microseconds(1))
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;

    use super::{DateRange, Parameters, Span};
    use weir_base::clock::UnixMicros;
    use weir_event::time::parse_rfc3339;

    /// 13:45 in Berlin on a Tuesday, two days after the clocks went forward.
    const NOW: &str = "2026-03-31T11:45:30.5Z";

    const BERLIN: &str = "Europe/Berlin";

    fn range(zone: &str, from: &str, to: &str, interval: &str) -> Option<[String; 2]> {
        let [from, to, interval] =
            [from, to, interval].map(|text| Some(text).filter(|text| !text.is_empty()));
        let parameters =
            Parameters { from, to, interval, is_one_interval: true, ..Parameters::default() };
        let range =
            parameters.range(zone.parse::<Tz>().unwrap(), parse_rfc3339(NOW).unwrap()).ok()?;
        Some([range.from, range.to].map(|time| range.written(time)))
    }

    #[test]
    fn spans_go_back_by_the_clocks_of_the_project() {
        const TODAY: &str = "2026-03-31T23:59:59.999999+02:00";
        for (parameters, from, to) in [
            // Seven days and today, from midnight to midnight; the first of them without daylight saving
            // time.
            (["", "", ""], "2026-03-24T00:00:00+01:00", TODAY),
            (["-1d", "-1d", ""], "2026-03-30T00:00:00+02:00", "2026-03-30T23:59:59.999999+02:00"),
            (["-2w", "dEnd", ""], "2026-03-17T00:00:00+01:00", TODAY),
            (["-1q", "", ""], "2025-12-30T00:00:00+01:00", TODAY),
            (["-24h", "", "hour"], "2026-03-30T13:00:00+02:00", "2026-03-31T13:59:59.999999+02:00"),
            (
                ["-5M", "", "minute"],
                "2026-03-31T13:40:00+02:00",
                "2026-03-31T13:45:59.999999+02:00",
            ),
            (["mStart", "mEnd", ""], "2026-03-01T00:00:00+01:00", TODAY),
            (
                ["-1mStart", "-1mEnd", ""],
                "2026-02-01T00:00:00+01:00",
                "2026-02-28T23:59:59.999999+01:00",
            ),
            (
                ["yStart", "yEnd", ""],
                "2026-01-01T00:00:00+01:00",
                "2026-12-31T23:59:59.999999+01:00",
            ),
        ] {
            let [of, until, interval] = parameters;
            let expected = Some([from, to].map(str::to_owned));
            assert_eq!(range(BERLIN, of, until, interval), expected, "{parameters:?}");
        }
        let utc = ["2026-03-24T00:00:00+00:00", "2026-03-31T23:59:59.999999+00:00"];
        assert_eq!(range("UTC", "", "", ""), Some(utc.map(str::to_owned)));
    }

    /// The case of a public report, and similar ones.
    #[test]
    fn starts_and_ends_are_borders_of_units() {
        /// A Thursday, 18:10 in Berlin.
        const THURSDAY: &str = "2026-11-26T17:10:00Z";
        for (is_monday_first, from, to, expected) in [
            (false, "wStart", "", ["2026-11-22", "2026-11-26"]),
            (true, "wStart", "", ["2026-11-23", "2026-11-26"]),
            (false, "-1wStart", "-1wEnd", ["2026-11-15", "2026-11-21"]),
            (true, "-1wStart", "-1wEnd", ["2026-11-16", "2026-11-22"]),
            (true, "wStart", "wEnd", ["2026-11-23", "2026-11-29"]),
            // Over the end of daylight saving time.
            (true, "-5wStart", "-5wEnd", ["2026-10-19", "2026-10-25"]),
            (false, "-5wStart", "-5wEnd", ["2026-10-18", "2026-10-24"]),
            (false, "qStart", "", ["2026-10-01", "2026-11-26"]),
            (false, "-1qStart", "-1qEnd", ["2026-07-01", "2026-09-30"]),
            (false, "-4qStart", "-4qEnd", ["2025-10-01", "2025-12-31"]),
            (false, "-1mStart", "-1mEnd", ["2026-10-01", "2026-10-31"]),
            (false, "-1yStart", "-1yEnd", ["2025-01-01", "2025-12-31"]),
            (false, "-1dStart", "-1dEnd", ["2026-11-25", "2026-11-25"]),
        ] {
            let parameters = Parameters {
                from: Some(from),
                to: Some(to).filter(|to| !to.is_empty()),
                is_monday_first,
                ..Parameters::default()
            };
            let now = parse_rfc3339(THURSDAY).unwrap();
            let range = parameters.range(BERLIN.parse().unwrap(), now).unwrap();
            let days = [range.from, range.to].map(|time| range.written(time)[..10].to_owned());
            assert_eq!(days, expected, "{from} to {to}");
            let [from_time, to_time] = [range.from, range.to].map(|time| range.written(time));
            assert!(from_time.contains("T00:00:00+"), "{from}: {from_time}");
            assert!(to_time.contains("T23:59:59.999999+"), "{to}: {to_time}");
        }
        // Explicit boundaries are in local time, too.
        for (from, to, expected) in [
            ("wStart", "wEnd", ["2026-11-22T00:00:00+01:00", "2026-11-28T23:59:59.999999+01:00"]),
            (
                "-5wStart",
                "-5wEnd",
                ["2026-10-18T00:00:00+02:00", "2026-10-24T23:59:59.999999+02:00"],
            ),
            ("qStart", "qEnd", ["2026-10-01T00:00:00+02:00", "2026-12-31T23:59:59.999999+01:00"]),
            (
                "-2hStart",
                "-1hEnd",
                ["2026-11-26T16:00:00+01:00", "2026-11-26T17:59:59.999999+01:00"],
            ),
        ] {
            let parameters = Parameters {
                from: Some(from),
                to: Some(to),
                is_explicit: true,
                ..Parameters::default()
            };
            let now = parse_rfc3339(THURSDAY).unwrap();
            let range = parameters.range(BERLIN.parse().unwrap(), now).unwrap();
            assert_eq!([range.from, range.to].map(|time| range.written(time)), expected, "{from}");
        }
        // A duration has no boundaries.
        let epoch = chrono::DateTime::UNIX_EPOCH.naive_utc();
        assert_eq!(DateRange::shift(epoch, "-1wStart"), None);
    }

    #[test]
    fn dates_are_those_of_the_clocks_of_the_project() {
        for (parameters, from, to) in [
            (
                ["2026-1-1", "2026-01-02", ""],
                "2026-01-01T00:00:00+01:00",
                "2026-01-02T23:59:59.999999+01:00",
            ),
            (
                ["2026-01-01 10:00", "2026-01-01T12:30:00Z", "hour"],
                "2026-01-01T10:00:00+01:00",
                "2026-01-01T13:30:00+01:00",
            ),
            (
                ["2026-01-01", "2026-01-02", "hour"],
                "2026-01-01T00:00:00+01:00",
                "2026-01-02T23:59:59.999999+01:00",
            ),
            // Two equal dates denote the interval that begins with them; this day has 23 hours.
            (
                ["2026-03-29", "2026-03-29", ""],
                "2026-03-29T00:00:00+01:00",
                "2026-03-29T23:59:59.999999+02:00",
            ),
            (
                ["2026-03-29 10:00", "2026-03-29 10:00", "hour"],
                "2026-03-29T10:00:00+02:00",
                "2026-03-29T10:59:59.999999+02:00",
            ),
            (
                ["2026-01-31", "2026-01-31", "week"],
                "2026-01-31T00:00:00+01:00",
                "2026-02-06T23:59:59.999999+01:00",
            ),
            (
                ["2026-02-01", "2026-02-01", "month"],
                "2026-02-01T00:00:00+01:00",
                "2026-02-28T23:59:59.999999+01:00",
            ),
        ] {
            let [of, until, interval] = parameters;
            let expected = Some([from, to].map(str::to_owned));
            assert_eq!(range(BERLIN, of, until, interval), expected, "{parameters:?}");
        }
        for (from, to) in
            [("soon", ""), ("", "soon"), ("-10000d", ""), ("-d7", ""), ("2026-13-01", "")]
        {
            assert_eq!(range("UTC", from, to, ""), None, "{from} {to}");
        }
    }

    #[test]
    fn days_end_where_the_next_ones_begin() {
        // The clocks of Santiago go back at the end of the 5th, those of Beirut go forward at its beginning, and
        // those of Havana go back at one o'clock, to midnight.
        for (zone, from, to, ends) in [
            ("America/Santiago", "2025-04-05", "2025-04-05", "2025-04-05T23:59:59.999999-04:00"),
            ("America/Santiago", "2025-04-05", "2025-04-06", "2025-04-06T23:59:59.999999-04:00"),
            ("Asia/Beirut", "2025-03-29", "2025-03-29", "2025-03-29T23:59:59.999999+02:00"),
            ("America/Havana", "2025-11-01", "2025-11-01", "2025-11-01T23:59:59.999999-04:00"),
        ] {
            let parameters = Parameters { from: Some(from), to: Some(to), ..Parameters::default() };
            let range = parameters.range(zone.parse().unwrap(), UnixMicros(0)).unwrap();
            assert_eq!(range.written(range.to), ends, "{zone}");
        }
        let zone: Tz = BERLIN.parse().unwrap();
        let parameters = Parameters { interval: Some("hour"), ..Parameters::default() };
        // The clock shows this time twice.
        for (now, ends) in [
            ("2025-10-26T00:30:00Z", "2025-10-26T02:59:59.999999+02:00"),
            ("2025-10-26T01:30:00Z", "2025-10-26T02:59:59.999999+01:00"),
        ] {
            let range = parameters.range(zone, parse_rfc3339(now).unwrap()).unwrap();
            assert_eq!(range.written(range.to), ends);
        }
    }

    #[test]
    fn the_period_before_has_as_many_days_whatever_the_clocks_do() {
        let zone: Tz = BERLIN.parse().unwrap();
        for (from, to, expected) in [
            ("2026-03-30", "2026-04-18", ["2026-03-10", "2026-03-29"]),
            ("2026-03-29", "2026-03-29", ["2026-03-28", "2026-03-28"]),
            ("2026-10-26", "2026-11-01", ["2026-10-19", "2026-10-25"]),
            ("2026-02-01", "2026-02-03", ["2026-01-29", "2026-01-31"]),
        ] {
            let parameters = Parameters { from: Some(from), to: Some(to), ..Parameters::default() };
            let range = parameters.range(zone, UnixMicros(0)).unwrap().previous(true, 0);
            let days = [range.from, range.to].map(|time| range.written(time)[..10].to_owned());
            assert_eq!(days, expected, "{from} to {to}");
        }
    }

    #[test]
    fn explicit_dates_are_taken_as_they_are() {
        let parameters =
            Parameters { from: Some("-1d"), is_explicit: true, ..Parameters::default() };
        let now = parse_rfc3339(NOW).unwrap();
        let range = parameters.range("UTC".parse().unwrap(), now).unwrap();
        assert_eq!((range.to, range.from), (now, UnixMicros(now.0 - 86_400_000_000)));
        let parameters = Parameters { to: Some("2026-01-02 10:00"), ..parameters };
        let range = parameters.range("Europe/Berlin".parse().unwrap(), now).unwrap();
        assert_eq!(range.written(range.to), "2026-01-02T10:00:00+01:00");
    }

    #[test]
    fn spans_have_a_unit() {
        for text in ["", "-", "7", "d7", "7x", "--7d", "7d ", "Start", "é"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }
}
