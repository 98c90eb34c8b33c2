//! Further formats of an instant beyond those of [`Written`](super::Written): dates with names of months, with dots,
//! without separators, and with the name of a zone, as other systems export them.
//!
//! A table of formats, read by a small interpreter without backtracking: each format is tried once on a short text, so
//! the cost is at most the length of the text times the number of formats. Only texts that no other parser reads get
//! here.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use chrono_tz::Tz;

use super::{SECOND, at_wall};
use weir_base::clock::UnixMicros;

#[cfg(test)]
mod tests;

/// A part of a form.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A year of four digits.
    Year,
    /// A year of four digits, or of two: 1970 to 2069.
    AnyYear,
    /// The last two digits of a year: 1970 to 2069.
    ShortYear,
    /// The name of a month, whole or its first three letters, with or without a dot.
    MonthName,
    /// A month as one or two digits.
    Month,
    /// A day as one or two digits.
    Day,
    /// A month as two digits.
    TwoMonth,
    /// A day as two digits.
    TwoDay,
    /// White space, or a comma and white space.
    Gap,
    /// Just this character.
    Mark(char),
    /// `T` or `t`.
    T,
    /// Perhaps `at` and white space.
    At,
    /// `5:57`, `05:57:51.5`, `5:57:51 PM`.
    Clock,
    /// `10`, `1000`, `100000.5`.
    Compact,
    /// `11时25分18秒`.
    ChineseClock,
    /// Perhaps a zone.
    Zone,
}

use Part::{
    AnyYear, At, ChineseClock, Clock, Compact, Day, Gap, Mark, Month, MonthName, ShortYear, T,
    TwoDay, TwoMonth, Year, Zone,
};

/// The forms. Sources: the families of the crate `dateparser`, and ISO 8601 with the annotation of RFC 9557, as the
/// crate `jiff` reads it. What needs the present day, as `4:00pm` and `May 27 02:45:27` do, is not among them.
const FORMS: &[&[Part]] = &[
    // Nov 20, 2025 5:57:51 PM PST
    &[MonthName, Gap, Day, Gap, AnyYear, Gap, At, Clock, Zone],
    &[MonthName, Gap, Day, Gap, AnyYear],
    // 20 Nov 2025, 19:17:40.164
    &[Day, Gap, MonthName, Gap, AnyYear, Gap, Clock, Zone],
    &[Day, Gap, MonthName, Gap, AnyYear],
    // 2025-Nov-20
    &[Year, Mark('-'), MonthName, Mark('-'), Day],
    // 2025-11-20 PST, 2025-11-20 13:31:15 PST, 2025-11-20T10:00:00+01:00[Europe/Berlin]
    &[Year, Mark('-'), TwoMonth, Mark('-'), TwoDay, Zone],
    &[Year, Mark('-'), TwoMonth, Mark('-'), TwoDay, Gap, Clock, Zone],
    &[Year, Mark('-'), TwoMonth, Mark('-'), TwoDay, T, Clock, Zone],
    &[Year, Mark('-'), TwoMonth, Mark('-'), TwoDay, T, Compact, Zone],
    // 20251120, 20251120T100000Z
    &[Year, TwoMonth, TwoDay],
    &[Year, TwoMonth, TwoDay, T, Compact, Zone],
    &[Year, TwoMonth, TwoDay, T, Clock, Zone],
    &[Year, TwoMonth, TwoDay, Gap, Compact, Zone],
    &[Year, TwoMonth, TwoDay, Gap, Clock, Zone],
    // 251120 14:14:20
    &[ShortYear, TwoMonth, TwoDay, Gap, Clock],
    // 2025.11.20, 11.20.2025
    &[Year, Mark('.'), Month, Mark('.'), Day],
    &[Month, Mark('.'), Day, Mark('.'), AnyYear],
    // 11-20-2025 10:05 PM
    &[Month, Mark('-'), Day, Mark('-'), AnyYear, Gap, Clock, Zone],
    &[Month, Mark('-'), Day, Mark('-'), AnyYear],
    // 2025年11月20日11时25分18秒
    &[Year, Mark('年'), Month, Mark('月'), Day, Mark('日'), ChineseClock],
    &[Year, Mark('年'), Month, Mark('月'), Day, Mark('日')],
];

/// Names of months, in their order.
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Zones of RFC 2822 that are not UTC, in hours from it. Other names count as UTC, as that standard recommends.
const ZONES: [(&str, i32); 8] = [
    ("EST", -5),
    ("EDT", -4),
    ("CST", -6),
    ("CDT", -5),
    ("MST", -7),
    ("MDT", -6),
    ("PST", -8),
    ("PDT", -7),
];

/// Letters of the name of a zone.
const ZONE_NAME_LETTERS: std::ops::RangeInclusive<usize> = 3..=6;

/// The instant that `text` gives in one of the formats; in UTC if it has no zone. A date alone is its midnight; digits
/// past the microsecond are cut off. `text` is trimmed and short.
pub(super) fn parse(text: &str) -> Option<UnixMicros> {
    FORMS.iter().find_map(|form| {
        let mut reader = Reader { rest: text, ..Reader::default() };
        form.iter().try_for_each(|part| reader.read(*part))?;
        reader.rest.is_empty().then_some(())?;
        reader.instant()
    })
}

/// The zone of a text.
#[derive(Clone, Copy, Debug, Default)]
enum ZoneOfText {
    /// None given; it counts as UTC.
    #[default]
    Unsaid,
    /// So many seconds ahead of UTC.
    Offset(i32),
    /// A zone of the IANA database.
    Zone(Tz),
}

/// A text that is read from its beginning, and the parts that were found.
#[derive(Debug, Default)]
struct Reader<'a> {
    rest: &'a str,
    year: i32,
    month: u32,
    day: u32,
    time: NaiveTime,
    place: ZoneOfText,
}

impl<'a> Reader<'a> {
    fn read(&mut self, part: Part) -> Option<()> {
        match part {
            Part::Year => self.year = self.digits(4)?.cast_signed(),
            Part::AnyYear => {
                let (year, count) = self.number(4)?;
                self.year = match count {
                    2 => full_year(year),
                    4 => year.cast_signed(),
                    _ => return None,
                };
            }
            Part::ShortYear => self.year = full_year(self.digits(2)?),
            Part::MonthName => self.month = self.month_name()?,
            Part::Month => self.month = self.number(2)?.0,
            Part::Day => self.day = self.number(2)?.0,
            Part::TwoMonth => self.month = self.digits(2)?,
            Part::TwoDay => self.day = self.digits(2)?,
            Part::Gap => {
                let after = self.rest.strip_prefix(',').unwrap_or(self.rest);
                self.rest = after;
                self.blank()?;
            }
            Part::Mark(mark) => self.mark(mark)?,
            Part::T => self.mark('T').or_else(|| self.mark('t'))?,
            Part::At => {
                if self.keyword("at") {
                    self.blank()?;
                }
            }
            Part::Clock => self.time = self.clock()?,
            Part::Compact => self.time = self.compact_clock()?,
            Part::ChineseClock => self.time = self.chinese_clock()?,
            Part::Zone => self.place = self.zone()?,
        }
        Some(())
    }

    fn instant(&self) -> Option<UnixMicros> {
        let wall = NaiveDate::from_ymd_opt(self.year, self.month, self.day)?.and_time(self.time);
        let in_utc = |wall: NaiveDateTime| UnixMicros::from(wall.and_utc());
        match self.place {
            ZoneOfText::Unsaid => Some(in_utc(wall)),
            ZoneOfText::Offset(seconds) => {
                Some(UnixMicros(in_utc(wall).0.saturating_sub(i64::from(seconds) * SECOND)))
            }
            ZoneOfText::Zone(zone) => at_wall(wall, zone),
        }
    }

    /// Reads just `count` digits.
    fn digits(&mut self, count: usize) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok());
        self.rest = rest;
        number?
    }

    /// Reads all digits that follow, one to `max`; returns their number and how many they are.
    fn number(&mut self, max: usize) -> Option<(u32, usize)> {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=max).contains(&count) {
            return None;
        }
        Some((self.digits(count)?, count))
    }

    /// Reads letters of the Latin alphabet.
    fn word(&mut self) -> &'a str {
        let count = self.rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (word, rest) = self.rest.split_at_checked(count).unwrap_or_default();
        self.rest = rest;
        word
    }

    /// Reads `word`, in any case, if it follows.
    fn keyword(&mut self, word: &str) -> bool {
        let before = self.rest;
        if self.word().eq_ignore_ascii_case(word) {
            return true;
        }
        self.rest = before;
        false
    }

    fn mark(&mut self, mark: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(mark)?;
        Some(())
    }

    /// Reads white space, at least one character.
    fn blank(&mut self) -> Option<()> {
        let rest = self.rest.trim_start();
        let is_any = rest.len() < self.rest.len();
        self.rest = rest;
        is_any.then_some(())
    }

    fn month_name(&mut self) -> Option<u32> {
        let word = self.word().to_ascii_lowercase();
        let is_name = |name: &&str| **name == word || name.get(..3) == Some(word.as_str());
        let month = MONTHS.iter().position(is_name)?;
        self.rest = self.rest.strip_prefix('.').unwrap_or(self.rest);
        u32::try_from(month + 1).ok()
    }

    /// Reads a time of day with colons.
    fn clock(&mut self) -> Option<NaiveTime> {
        let (mut hour, _) = self.number(2)?;
        self.mark(':')?;
        let minute = self.digits(2)?;
        let (second, micros) = match self.mark(':') {
            Some(()) => (self.digits(2)?, self.fraction()?),
            None => (0, 0),
        };
        let before = self.rest;
        let _ = self.blank();
        let is_afternoon = if self.keyword("pm") {
            true
        } else if self.keyword("am") {
            false
        } else {
            self.rest = before;
            return time_of_day(hour, minute, second, micros);
        };
        if !(1..=12).contains(&hour) {
            return None;
        }
        hour = hour % 12 + if is_afternoon { 12 } else { 0 };
        time_of_day(hour, minute, second, micros)
    }

    /// Reads a time of day of two, four or six digits.
    fn compact_clock(&mut self) -> Option<NaiveTime> {
        let mut parts = [0; 3];
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if !matches!(count, 2 | 4 | 6) {
            return None;
        }
        for part in parts.iter_mut().take(count / 2) {
            *part = self.digits(2)?;
        }
        let micros = if count == 6 { self.fraction()? } else { 0 };
        let [hour, minute, second] = parts;
        time_of_day(hour, minute, second, micros)
    }

    fn chinese_clock(&mut self) -> Option<NaiveTime> {
        let (hour, _) = self.number(2)?;
        self.mark('时')?;
        let (minute, _) = self.number(2)?;
        self.mark('分')?;
        let (second, _) = self.number(2)?;
        self.mark('秒')?;
        time_of_day(hour, minute, second, 0)
    }

    /// Reads a fraction of a second, if one follows, as microseconds.
    fn fraction(&mut self) -> Option<u32> {
        let is_mark = |c: char| matches!(c, '.' | ',');
        let Some(digits) = self.rest.strip_prefix(is_mark) else { return Some(0) };
        let (micros, rest) = super::fraction_micros(digits.as_bytes())?;
        self.rest = digits.get(digits.len() - rest.len()..)?;
        Some(micros)
    }

    /// Reads a zone, if one follows: an offset, a name, or a name of the IANA database in brackets, which counts
    /// where there is no offset.
    fn zone(&mut self) -> Option<ZoneOfText> {
        let _ = self.blank();
        let place = match self.rest.chars().next() {
            Some('+' | '-' | '\u{2212}') => ZoneOfText::Offset(self.offset()?),
            Some(first) if first.is_ascii_alphabetic() => ZoneOfText::Offset(self.zone_name()?),
            _ => ZoneOfText::Unsaid,
        };
        let Some(annotated) = self.rest.strip_prefix('[') else { return Some(place) };
        let (name, rest) = annotated.split_once(']')?;
        self.rest = rest;
        match place {
            ZoneOfText::Unsaid => Some(ZoneOfText::Zone(name.parse().ok()?)),
            place => Some(place),
        }
    }

    /// Reads `+01`, `+0100`, `+01:00` or `+01:00:00`, in seconds.
    fn offset(&mut self) -> Option<i32> {
        let is_west = self.mark('+').is_none();
        if is_west {
            self.mark('-').or_else(|| self.mark('\u{2212}'))?;
        }
        let mut seconds = self.digits(2)?.checked_mul(3600)?;
        for unit in [60, 1] {
            let has_colon = self.mark(':').is_some();
            if !has_colon && !self.rest.starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
            let part = self.digits(2).filter(|part| *part < 60)?;
            seconds += part * unit;
        }
        let seconds = i32::try_from(seconds).ok().filter(|seconds| *seconds < 24 * 3600)?;
        Some(if is_west { -seconds } else { seconds })
    }

    /// Reads the name of a zone, in seconds from UTC.
    fn zone_name(&mut self) -> Option<i32> {
        let name = self.word();
        if ["Z", "UT"].iter().any(|utc| name.eq_ignore_ascii_case(utc)) {
            return Some(0);
        }
        if !ZONE_NAME_LETTERS.contains(&name.len()) {
            return None;
        }
        let known = ZONES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        Some(known.map_or(0, |(_, hours)| hours * 3600))
    }
}

/// The year of its last two digits, in the years 1970 to 2069.
fn full_year(short: u32) -> i32 {
    let century = if short < 70 { 2000 } else { 1900 };
    century + short.cast_signed()
}

/// A time of day. The second 60 of a leap second is the last one of its minute.
fn time_of_day(hour: u32, minute: u32, second: u32, micros: u32) -> Option<NaiveTime> {
    NaiveTime::from_hms_micro_opt(hour, minute, second.min(59), micros).filter(|_| second <= 60)
}
