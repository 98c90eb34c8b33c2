//! Times as PostgreSQL writes them, in the style ISO and in UTC.

use std::io::Write;

use arrow::datatypes::IntervalMonthDayNano;
use chrono::{DateTime, Datelike, NaiveDate, Timelike};

/// Days from 1970 to 2000, from which PostgreSQL counts.
pub(crate) const EPOCH_DAYS: i64 = 10_957;

/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = EPOCH_DAYS * DAY_MICROS;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// Appends a date, by its days since 1970.
pub(crate) fn date(days: i32, out: &mut Vec<u8>) {
    let date = NaiveDate::from_epoch_days(days);
    date_of(date, out);
    era(date, out);
}

fn date_of(date: Option<NaiveDate>, out: &mut Vec<u8>) {
    // Only times that no calendar of the library has are without a date.
    let Some(date) = date else { return out.extend(b"infinity") };
    let (is_common, year) = date.year_ce();
    let year = if is_common { year } else { year.max(1) };
    let _ = write!(out, "{year:04}-{:02}-{:02}", date.month(), date.day());
}

fn era(date: Option<NaiveDate>, out: &mut Vec<u8>) {
    if date.is_some_and(|date| !date.year_ce().0) {
        out.extend(b" BC");
    }
}

/// Appends a time of day, by its microseconds.
pub(crate) fn time(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros.div_euclid(1_000_000);
    clock((seconds / 3600, seconds / 60 % 60, seconds % 60), micros.rem_euclid(1_000_000), out);
}

fn clock((hours, minutes, seconds): (i64, i64, i64), micros: i64, out: &mut Vec<u8>) {
    let _ = write!(out, "{hours:02}:{minutes:02}:{seconds:02}");
    if micros != 0 {
        let digits = format!("{micros:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

/// Appends a time, by its microseconds since 1970; with the offset of UTC, if it is an instant.
pub(crate) fn timestamp(micros: i64, is_instant: bool, out: &mut Vec<u8>) {
    let Some(time) = DateTime::from_timestamp_micros(micros) else {
        return out.extend(if micros > 0 { &b"infinity"[..] } else { b"-infinity" });
    };
    let date = Some(time.date_naive());
    date_of(date, out);
    out.push(b' ');
    let parts = (time.hour().into(), time.minute().into(), time.second().into());
    clock(parts, micros.rem_euclid(1_000_000), out);
    if is_instant {
        out.extend(b"+00");
    }
    era(date, out);
}

/// Appends an interval, in PostgreSQL's own style.
pub(crate) fn interval(value: IntervalMonthDayNano, out: &mut Vec<u8>) {
    let begin = out.len();
    let (years, months) = (value.months / 12, value.months % 12);
    for (count, unit) in [(years, "year"), (months, "mon"), (value.days, "day")] {
        if count != 0 {
            let (space, plural) =
                (if out.len() > begin { " " } else { "" }, if count == 1 { "" } else { "s" });
            let _ = write!(out, "{space}{count} {unit}{plural}");
        }
    }
    let micros = value.nanoseconds / 1000;
    if micros == 0 && out.len() > begin {
        return;
    }
    if out.len() > begin {
        out.push(b' ');
    }
    if micros < 0 {
        out.push(b'-');
    }
    let micros = micros.saturating_abs();
    let seconds = micros / 1_000_000;
    clock((seconds / 3600, seconds / 60 % 60, seconds % 60), micros % 1_000_000, out);
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::IntervalMonthDayNano;

    use super::{DAY_MICROS, EPOCH_MICROS, date, interval, time, timestamp};

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Expectations: PostgreSQL 15 with the time zone UTC.
    #[test]
    fn times_are_those_of_the_style_iso() {
        assert_eq!(shown(|out| date(20_454, out)), "2026-01-01");
        assert_eq!(shown(|out| date(-719_162 - 366, out)), "0001-01-01 BC");
        assert_eq!(shown(|out| date(3_000_000, out)), "10183-09-21");
        assert_eq!(shown(|out| time(0, out)), "00:00:00");
        assert_eq!(shown(|out| time(DAY_MICROS - 1, out)), "23:59:59.999999");
        for (micros, is_instant, expected) in [
            (EPOCH_MICROS, true, "2000-01-01 00:00:00+00"),
            (EPOCH_MICROS + 1_500_000, false, "2000-01-01 00:00:01.5"),
            (-1, true, "1969-12-31 23:59:59.999999+00"),
            (i64::MAX, true, "infinity"),
        ] {
            assert_eq!(shown(|out| timestamp(micros, is_instant, out)), expected);
        }
        let of = |months, days, nanoseconds| {
            shown(|out| interval(IntervalMonthDayNano { months, days, nanoseconds }, out))
        };
        assert_eq!(of(14, 1, 3_723_000_000_000), "1 year 2 mons 1 day 01:02:03");
        assert_eq!(of(0, 0, 0), "00:00:00");
        assert_eq!(of(0, -2, 0), "-2 days");
        assert_eq!(of(0, 0, -500_000_000), "-00:00:00.5");
        assert_eq!(of(0, 5, 100 * 3_600_000_000_000), "5 days 100:00:00");
    }
}
