//! When an event happened: the bounds that imported times have to keep.

use crate::refusal::Refusal;
use weir_base::clock::UnixMicros;
use weir_event::time;

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// 2000-01-01T00:00:00Z. Earlier times are those of clocks that were never set.
const YEAR_2000: UnixMicros = UnixMicros(946_684_800_000_000);

/// How times of an import are read.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The present, from which times of the future are told.
    pub now: UnixMicros,
    /// Whether times before 2000 and after tomorrow are imported, too.
    pub any: bool,
    /// What is added to each time, in microseconds: for exports in the time of a project's zone.
    pub offset_micros: i64,
}

impl Times {
    /// The time to store.
    ///
    /// # Errors
    ///
    /// It is out of bounds.
    pub fn check(&self, at: UnixMicros) -> Result<UnixMicros, Refusal> {
        let at = UnixMicros(at.0.saturating_add(self.offset_micros));
        if time::within_bounds(at).is_none() {
            return Err(Refusal::new("its time is outside of the years 0 to 9999"));
        }
        if self.any || (YEAR_2000.0..=self.now.0.saturating_add(DAY)).contains(&at.0) {
            return Ok(at);
        }
        Err(Refusal::new(match at < YEAR_2000 {
            true => "its time is before 2000; --any-time imports it",
            false => "its time is more than a day ahead; --any-time imports it",
        }))
    }

    /// Reads text, or digits, as a time and checks it.
    ///
    /// # Errors
    ///
    /// There is none, it cannot be read, or it is out of bounds.
    pub fn read(&self, text: Option<&str>) -> Result<UnixMicros, Refusal> {
        let text = text.ok_or_else(|| Refusal::new("it has no time"))?;
        let at = time::parse_timestamp(text);
        self.check(at.ok_or_else(|| Refusal::new(format!("{text:.40} is no time")))?)
    }
}

#[cfg(test)]
mod tests {
    use super::Times;
    use weir_base::clock::UnixMicros;

    #[test]
    fn bounds_are_kept_unless_told_otherwise() {
        let now = UnixMicros(1_795_248_000_000_000);
        let times = Times { now, any: false, offset_micros: 0 };
        let any = Times { any: true, ..times };
        for (text, is_kept, is_any) in [
            ("2026-11-21T08:00:00.000001Z", true, true),
            ("1999-12-31T23:59:59Z", false, true),
            ("2000-01-01", true, true),
            ("2027-11-21T08:00:00Z", false, true),
            ("soon", false, false),
            ("1795248000", true, true),
        ] {
            assert_eq!(times.read(Some(text)).is_ok(), is_kept, "{text}");
            assert_eq!(any.read(Some(text)).is_ok(), is_any, "{text}");
        }
        assert!(times.read(None).is_err());
        let shifted = Times { offset_micros: 3_600_000_000, ..times };
        assert_eq!(shifted.check(UnixMicros(now.0)).unwrap().0, now.0 + 3_600_000_000);
    }
}
