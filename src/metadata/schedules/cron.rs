//! Cron expressions of five fields (minute, hour, day of the month, month, day of the week), and
//! the next matching time. Pure.
//!
//! A field is a list of numbers, ranges and `*`, each with an optional step. Months and days of the
//! week have English names, and Sunday is 0 and 7. If both kinds of days are restricted, either one
//! is enough, as in every cron.

use std::ops::RangeInclusive;

use chrono::{Datelike, NaiveDate};
use chrono_tz::Tz;

use weir_base::clock::UnixMicros;
use weir_event::time::at_wall;

/// Days to search: more than the longest time between two 29ths of February.
const DAYS_MAX: usize = 366 * 9;

/// First and last value of each field.
const RANGES: [RangeInclusive<u32>; 5] = [0..=59, 0..=23, 1..=31, 1..=12, 0..=7];

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Days of the month, from 1 to 31.
const ALL_DAYS: u64 = 0xFFFF_FFFE;

/// Days of the week without the second Sunday.
const ALL_WEEKDAYS: u64 = 0b111_1111;

/// A cron expression. A bit stands for a matching value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

impl Cron {
    /// Parses an expression; `None` if it is invalid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        let [of_minutes, of_hours, of_days, of_months, of_weekdays] = RANGES;
        let weekdays = bits(weekdays, &of_weekdays, &WEEKDAYS, 0)?;
        Some(Self {
            minutes: bits(minutes, &of_minutes, &[], 0)?,
            hours: bits(hours, &of_hours, &[], 0)?,
            days: bits(days, &of_days, &[], 0)?,
            months: bits(months, &of_months, &MONTHS, 1)?,
            // Maps Sunday as 7 to Sunday as 0.
            weekdays: (weekdays | (weekdays >> 7)) & ALL_WEEKDAYS,
        })
    }

    /// The first time after `after` whose wall clock in `zone` matches; `None` if there is none, as
    /// for the 30th of February. A time that the clock skips matches an hour later; one that it
    /// shows twice matches the first time.
    pub(super) fn next(&self, after: UnixMicros, zone: Tz) -> Option<UnixMicros> {
        let mut date = after.to_datetime().with_timezone(&zone).date_naive();
        for _ in 0..DAYS_MAX {
            if self.has_date(date)
                && let Some(found) = self.next_of_day(date, after, zone)
            {
                return Some(found);
            }
            date = date.succ_opt()?;
        }
        None
    }

    fn next_of_day(&self, date: NaiveDate, after: UnixMicros, zone: Tz) -> Option<UnixMicros> {
        let hours = (0..24).filter(|hour| has(self.hours, *hour));
        let times = hours.flat_map(|hour| (0..60).map(move |minute| (hour, minute)));
        times
            .filter(|(_, minute)| has(self.minutes, *minute))
            .filter_map(|(hour, minute)| at_wall(date.and_hms_opt(hour, minute, 0)?, zone))
            .find(|time| *time > after)
    }

    fn has_date(&self, date: NaiveDate) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().num_days_from_sunday());
        let is_any_day = self.days == ALL_DAYS;
        let is_any_weekday = self.weekdays == ALL_WEEKDAYS;
        let fits = if is_any_day || is_any_weekday { day && weekday } else { day || weekday };
        fits && has(self.months, date.month())
    }
}

fn has(bits: u64, value: u32) -> bool {
    (bits >> value) & 1 == 1
}

/// Parses the values of one field. `names` are the names of values from `first` on.
fn bits(field: &str, range: &RangeInclusive<u32>, names: &[&str], first: u32) -> Option<u64> {
    let mut bits = 0;
    for item in field.split(',') {
        let (base, step) = match item.split_once('/') {
            Some((base, step)) => (base, Some(number(step)?)),
            None => (item, None),
        };
        let value = |text: &str| value(text, names, first).filter(|value| range.contains(value));
        let (from, to) = match base.split_once('-') {
            _ if base == "*" || base == "?" => (*range.start(), *range.end()),
            Some((from, to)) => (value(from)?, value(to)?),
            // A number with a step extends to the last value.
            None => (value(base)?, if step.is_some() { *range.end() } else { value(base)? }),
        };
        let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
        if from > to {
            return None;
        }
        bits |= (from..=to).step_by(step).fold(0, |bits, value| bits | (1 << value));
    }
    Some(bits)
}

fn value(text: &str, names: &[&str], first: u32) -> Option<u32> {
    let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match named {
        Some(place) => Some(u32::try_from(place).ok()? + first),
        None => number(text),
    }
}

/// A number without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::Cron;
    use weir_base::clock::UnixMicros;

    fn micros(text: &str) -> UnixMicros {
        UnixMicros(chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros())
    }

    /// Expectations from the manual of cron (crontab(5)) and a calendar; 2026-11-21 is a Saturday.
    #[test]
    fn the_next_time_fits() {
        for (text, zone, after, expected) in [
            ("0 9 * * 1-5", "UTC", "2026-11-21T08:00:00Z", "2026-11-23T09:00:00Z"),
            ("0 9 * * 1-5", "UTC", "2026-11-23T09:00:00Z", "2026-11-24T09:00:00Z"),
            ("0 9 * * 1-5", "Europe/Berlin", "2026-11-21T08:00:00Z", "2026-11-23T08:00:00Z"),
            ("0 9 * * 1-5", "America/New_York", "2026-07-03T14:00:00Z", "2026-07-06T13:00:00Z"),
            ("*/15 * * * *", "UTC", "2026-11-21T08:01:59Z", "2026-11-21T08:15:00Z"),
            ("5/20 8 * * *", "UTC", "2026-11-21T08:25:00Z", "2026-11-21T08:45:00Z"),
            ("59 23 31 DEC *", "UTC", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"),
            ("0 0 29 2 *", "UTC", "2024-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 0 * * 7", "UTC", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
            ("0 0 * * Fri-7", "UTC", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
            ("0 0 ? * sun,TUE", "UTC", "2026-11-22T00:00:00Z", "2026-11-24T00:00:00Z"),
            // Either kind of day is enough.
            ("0 0 13 * 5", "UTC", "2026-11-21T00:00:00Z", "2026-11-27T00:00:00Z"),
            ("0 0 13 * 5", "UTC", "2026-12-12T00:00:00Z", "2026-12-13T00:00:00Z"),
            // Clocks go from 2 to 3 on 2026-03-29, and from 3 to 2 on 2026-10-25.
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ] {
            let cron = Cron::parse(text).unwrap_or_else(|| panic!("{text}"));
            let next = cron.next(micros(after), zone.parse().unwrap());
            assert_eq!(next, Some(micros(expected)), "{text} {zone} after {after}");
        }
        let never = Cron::parse("0 0 30 2 *").unwrap();
        assert_eq!(never.next(micros("2026-11-21T00:00:00Z"), "UTC".parse().unwrap()), None);
    }

    #[test]
    fn invalid_expressions_are_rejected() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-1 * * * *",
            "a * * * *",
            "1, * * * *",
            "-1 * * * *",
            "+1 * * * *",
            "1-2-3 * * * *",
            "@daily",
            "mon * * * *",
        ] {
            assert_eq!(Cron::parse(text), None, "{text}");
        }
    }
}
