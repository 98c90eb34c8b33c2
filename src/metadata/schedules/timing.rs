//! The times of a scheduled change: once or recurring. Pure.

use chrono::{Datelike, Months};
use chrono_tz::Tz;

use crate::entity::{Patch, entity, named};
use crate::schedules::cron::Cron;
use crate::schedules::operation::Operation;
use crate::violation::Violation;
use weir_base::clock::UnixMicros;

const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;

named! {
    /// The interval of a recurring change.
    pub enum Interval: NAMES, parse, Stored {
        /// 24 hours.
        Daily = "daily",
        /// 7 days of 24 hours.
        Weekly = "weekly",
        /// The same day of the next month, or the last one if it has no such day.
        Monthly = "monthly",
        /// The same day of the next year; the 28th of February for the 29th.
        Yearly = "yearly",
    }
}

impl Interval {
    /// The first of the times after `from`, one interval apart, that is later than `now`. `None` if
    /// it is beyond the calendar.
    fn next(self, from: UnixMicros, now: UnixMicros) -> Option<UnixMicros> {
        let months = match self {
            Self::Daily => return Some(after_days(1, from, now)),
            Self::Weekly => return Some(after_days(7, from, now)),
            Self::Monthly => 1,
            Self::Yearly => 12,
        };
        let (start, today) = (from.to_datetime(), now.to_datetime());
        let years = i64::from(today.year()) - i64::from(start.year());
        let passed = years * 12 + i64::from(today.month()) - i64::from(start.month());
        let first = u32::try_from((passed / months).max(1)).ok()?;
        // The last passed count may give a time later than `now` within its month.
        let months = u32::try_from(months).ok()?;
        (first..first.saturating_add(2)).find_map(|count| {
            let time = start.checked_add_months(Months::new(count.checked_mul(months)?))?;
            Some(UnixMicros::from(time)).filter(|time| *time > now)
        })
    }
}

/// As [`Interval::next`], for days of 24 hours.
fn after_days(days: i64, from: UnixMicros, now: UnixMicros) -> UnixMicros {
    let step = days * DAY_MICROS;
    let passed = now.0.saturating_sub(from.0).div_euclid(step);
    let count = passed.saturating_add(1).max(1);
    UnixMicros(from.0.saturating_add(step.saturating_mul(count)))
}

entity! {
    /// The times of a change.
    #[derive(Default)]
    pub struct Timing of "scheduled_changes" {}
    /// Changes to the times; `None` leaves a field unchanged, `Some(None)` empties it.
    pub struct TimingPatch {
        /// The first or only time.
        scheduled_at: UnixMicros,
        /// Whether it recurs. With an interval or an expression and without this, it is paused.
        is_recurring: bool,
        /// The interval of a recurring change.
        interval: Option<Interval> as "recurrence_interval",
        /// The times of a recurring change: a cron expression of five fields.
        cron: Option<String> as "cron_expression",
        /// From this time on it is not applied any more.
        end_date: Option<UnixMicros>,
    }
}

impl From<TimingPatch> for Timing {
    fn from(new: TimingPatch) -> Self {
        new.applied(Self::default())
    }
}

impl Timing {
    /// Checks the fields against each other and against the operation, in PostHog's order.
    ///
    /// # Errors
    ///
    /// The first violation, in PostHog's words.
    pub(super) fn check(&self, operation: &Operation, is_new: bool) -> Result<(), Violation> {
        if self.cron.is_some() && self.interval.is_some() {
            let detail = "Cannot set both cron_expression and recurrence_interval. Use one or the \
                          other.";
            return Err(wrong("cron_expression", detail));
        }
        if let Some(cron) = &self.cron {
            check_cron(cron, self.scheduled_at)?;
        }
        if self.is_recurring && self.cron.is_none() && self.interval.is_none() {
            let detail = "Either recurrence_interval or cron_expression is required when \
                          is_recurring is true.";
            return Err(wrong("recurrence_interval", detail));
        }
        if self.is_recurring && operation.accumulates() {
            let detail = "Recurring schedules are not supported for add_release_condition because \
                          it appends conditions on each run, creating duplicates.";
            return Err(wrong("payload", detail));
        }
        if is_new && !self.is_recurring && self.interval.is_some() {
            let detail = "Cannot set recurrence_interval when is_recurring is false for new \
                          schedules.";
            return Err(wrong("recurrence_interval", detail));
        }
        if is_new && !self.is_recurring && self.cron.is_some() {
            let detail = "Cannot set cron_expression when is_recurring is false for new schedules.";
            return Err(wrong("cron_expression", detail));
        }
        if self.end_date.is_some_and(|end| end <= self.scheduled_at) {
            return Err(wrong("end_date", "End date must be after the scheduled start date."));
        }
        Ok(())
    }

    /// Whether it has, or had, a recurrence.
    pub fn has_recurrence(&self) -> bool {
        self.interval.is_some() || self.cron.is_some()
    }

    /// The next time of a change that is applied at `now`: the first one after `now`, so missed
    /// times are skipped. `None` if it is finished.
    pub(super) fn next(&self, now: UnixMicros, zone: &str) -> Option<UnixMicros> {
        if !self.is_recurring {
            return None;
        }
        let next = match (&self.cron, self.interval) {
            (Some(cron), _) => {
                let zone = zone.parse().unwrap_or(Tz::UTC);
                Cron::parse(cron)?.next(now.max(self.scheduled_at), zone)
            }
            (None, Some(interval)) => interval.next(self.scheduled_at, now),
            (None, None) => None,
        };
        next.filter(|next| self.end_date.is_none_or(|end| *next <= end))
    }
}

fn check_cron(text: &str, start: UnixMicros) -> Result<(), Violation> {
    if text.split_whitespace().count() != 5 {
        let detail = "Only standard 5-field cron expressions are supported (minute hour day month \
                      weekday). Example: '0 9 * * 1-5'.";
        return Err(wrong("cron_expression", detail));
    }
    let utc = || "UTC".parse().ok();
    // An expression without any matching day is invalid.
    if Cron::parse(text).and_then(|cron| cron.next(start, utc()?)).is_none() {
        let detail =
            "Invalid cron expression. Use standard 5-field cron syntax (e.g., '0 9 * * 1-5').";
        return Err(wrong("cron_expression", detail));
    }
    Ok(())
}

fn wrong(attr: &'static str, detail: &str) -> Violation {
    Violation { code: "invalid_input", detail: detail.to_owned(), attr: Some(attr) }
}

#[cfg(test)]
mod tests {
    use super::{Interval, Timing};
    use weir_base::clock::UnixMicros;

    fn micros(text: &str) -> UnixMicros {
        UnixMicros(chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros())
    }

    #[test]
    fn recurring_changes_skip_what_was_missed() {
        for (interval, from, now, expected) in [
            (
                Interval::Daily,
                "2026-01-31T10:00:00Z",
                "2026-01-31T10:00:00Z",
                "2026-02-01T10:00:00Z",
            ),
            (
                Interval::Daily,
                "2026-01-31T10:00:00Z",
                "2026-02-03T09:00:00Z",
                "2026-02-03T10:00:00Z",
            ),
            (
                Interval::Daily,
                "2026-01-31T10:00:00Z",
                "2026-02-03T10:00:00Z",
                "2026-02-04T10:00:00Z",
            ),
            (
                Interval::Weekly,
                "2026-01-31T10:00:00Z",
                "2026-01-31T10:00:01Z",
                "2026-02-07T10:00:00Z",
            ),
            (
                Interval::Weekly,
                "2026-01-31T10:00:00Z",
                "2026-02-07T10:00:00Z",
                "2026-02-14T10:00:00Z",
            ),
            (
                Interval::Monthly,
                "2026-01-31T10:00:00Z",
                "2026-01-31T10:00:01Z",
                "2026-02-28T10:00:00Z",
            ),
            (
                Interval::Monthly,
                "2026-01-31T10:00:00Z",
                "2026-02-28T10:00:00Z",
                "2026-03-31T10:00:00Z",
            ),
            (
                Interval::Monthly,
                "2026-01-15T10:00:00Z",
                "2027-03-01T00:00:00Z",
                "2027-03-15T10:00:00Z",
            ),
            (
                Interval::Yearly,
                "2024-02-29T10:00:00Z",
                "2024-03-01T00:00:00Z",
                "2025-02-28T10:00:00Z",
            ),
            (
                Interval::Yearly,
                "2024-02-29T10:00:00Z",
                "2027-12-01T00:00:00Z",
                "2028-02-29T10:00:00Z",
            ),
            (
                Interval::Yearly,
                "2024-12-29T10:00:00Z",
                "2027-01-01T00:00:00Z",
                "2027-12-29T10:00:00Z",
            ),
        ] {
            let timing = Timing {
                scheduled_at: micros(from),
                is_recurring: true,
                interval: Some(interval),
                cron: None,
                end_date: None,
            };
            let next = timing.next(micros(now), "UTC");
            assert_eq!(next, Some(micros(expected)), "{interval:?} from {from}, now {now}");
            let over = Timing { end_date: Some(UnixMicros(micros(expected).0 - 1)), ..timing };
            assert_eq!(over.next(micros(now), "UTC"), None);
        }
    }

    #[test]
    fn expressions_are_read_in_the_zone_of_the_project() {
        let timing = Timing {
            scheduled_at: micros("2026-11-21T00:00:00Z"),
            is_recurring: true,
            interval: None,
            cron: Some("0 9 * * *".to_owned()),
            end_date: None,
        };
        let next = |zone: &str| timing.next(micros("2026-11-21T08:30:00Z"), zone);
        assert_eq!(next("UTC"), Some(micros("2026-11-21T09:00:00Z")));
        assert_eq!(next("Europe/Berlin"), Some(micros("2026-11-22T08:00:00Z")));
        assert_eq!(next("Nowhere/Land"), next("UTC"));
        assert_eq!(Timing { is_recurring: false, ..timing }.next(UnixMicros(0), "UTC"), None);
    }
}
