//! How far an actor gets, for each breakdown value and each interval: [`Splitter::each`].

use serde::{Deserialize, Serialize};

use crate::funnels::walk::{Course, Moment, Outcome, Way};
use crate::interval::Buckets;
use weir_api::nodes::insights::FunnelOrderType;
use weir_base::clock::UnixMicros;
use weir_query::events::histories::{NO_TEXT, Row};
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Most breakdown values of the events of one step of one actor. Each needs a walk of its own.
const VALUES_OF_ACTOR_MAX: usize = 1000;

/// The breakdown value under which an actor is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Attribution {
    /// The first value of its events.
    First,
    /// The last value of its events.
    Last,
    /// Each value, evaluated on the events with this value only.
    All,
    /// Each value of the events of this step, of which only those with the value count. In unordered funnels each
    /// value of any event, where the event that is done first must have the value.
    Step(usize),
}

/// One result for which an actor is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'f> {
    /// The breakdown value; empty without a breakdown.
    pub(super) value: &'f str,
    /// The interval in which the attempt begins; 0 without intervals.
    pub(super) bucket: usize,
    /// The times of the steps, in microseconds; `None` for skipped steps.
    pub(super) times: &'f [Option<i64>],
}

/// Splits the rows of an actor by breakdown value and interval.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Splitter {
    /// The rules; `attributed` is set if [`Splitter::attribution`] is [`Attribution::Step`].
    pub(super) course: Course,
    /// `None` without a breakdown.
    pub(super) attribution: Option<Attribution>,
    /// The intervals by which attempts are counted; `None` if all attempts count as one.
    pub(super) buckets: Option<Buckets>,
}

impl Splitter {
    /// Calls `found` with each result for which the actor of `rows` is counted.
    pub(super) fn each(
        &self,
        rows: &[Row],
        texts: &Interner,
        mut found: impl FnMut(Attempt<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let value = |number: u32| texts.get(number).unwrap_or_default();
        let has_text = |row: &&Row| row.text != NO_TEXT;
        let kept = || self.course.thinned(rows);
        match self.attribution {
            None | Some(Attribution::First | Attribution::Last) => {
                let of = match self.attribution {
                    None => None,
                    Some(Attribution::First) => rows.iter().find(has_text),
                    _ => rows.iter().rev().find(has_text),
                };
                let events: Vec<Moment> = kept().map(Moment::own).collect();
                let value = of.map_or("", |row| value(row.text));
                self.walk(&events, value, &mut found)
            }
            Some(Attribution::All) => {
                let mut rows: Vec<Row> = kept().copied().collect();
                // The sort is stable: the rows of each value keep their order.
                rows.sort_by_key(|row| row.text);
                for own in rows.chunk_by(|a, b| a.text == b.text) {
                    let Some(first) = own.first() else { continue };
                    let events: Vec<Moment> = own.iter().map(Moment::own).collect();
                    self.walk(&events, value(first.text), &mut found)?;
                }
                Ok(())
            }
            Some(Attribution::Step(step)) => {
                let kept: Vec<&Row> = kept().collect();
                for number in self.values_of(rows, step)? {
                    let moment =
                        |row: &&Row| Moment { is_own: row.text == number, ..Moment::own(row) };
                    let events: Vec<Moment> = kept.iter().map(moment).collect();
                    self.walk(&events, value(number), &mut found)?;
                }
                Ok(())
            }
        }
    }

    /// The values under which an actor is counted: those of the events of a step. In unordered funnels, whose steps
    /// are numbered in the order in which they are done, those of the events of all steps.
    fn values_of(&self, rows: &[Row], step: usize) -> Result<Vec<u32>, QueryError> {
        let bits = match self.course.order {
            FunnelOrderType::Unordered => self.course.of_steps(),
            FunnelOrderType::Ordered | FunnelOrderType::Strict => 1 << step,
        };
        let own = rows.iter().filter(|row| row.mask & bits != 0);
        let mut numbers: Vec<u32> = own.map(|row| row.text).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() > VALUES_OF_ACTOR_MAX {
            let detail = format!(
                "The events of step {step} of one actor have more than {VALUES_OF_ACTOR_MAX} values of the breakdown."
            );
            return Err(QueryError::Invalid(detail));
        }
        Ok(numbers)
    }

    fn walk(
        &self,
        events: &[Moment],
        value: &str,
        found: &mut impl FnMut(Attempt<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let mut show = |bucket: usize, times: &Way| found(Attempt { value, bucket, times });
        let Some(buckets) = &self.buckets else {
            return match self.course.walk(events, &(i64::MIN..=i64::MAX)) {
                Outcome::Reached(times) => show(0, &times),
                Outcome::Nothing | Outcome::Excluded { .. } => Ok(()),
            };
        };
        if self.course.order == FunnelOrderType::Unordered {
            let ways = self.course.walk_by(events, |first| buckets.bucket_of(UnixMicros(first)));
            return ways.iter().try_for_each(|(bucket, way)| show(*bucket, way));
        }
        let mut last = None;
        let (mut is_passed, mut open) = (false, Vec::new());
        for event in events.iter().filter(|event| event.mask & 1 != 0) {
            let bucket = buckets.bucket_of(UnixMicros(event.at));
            let Some(bucket) = bucket.filter(|bucket| last != Some(*bucket)) else { continue };
            last = Some(bucket);
            let Some((from, to)) = buckets.bounds_of(bucket) else { continue };
            match self.course.walk(events, &(from.0..=to.0)) {
                Outcome::Reached(times) if times.len() == self.course.steps => {
                    show(bucket, &times)?;
                }
                Outcome::Reached(times) => open.push((bucket, times)),
                Outcome::Excluded { is_passed: own } => is_passed |= own,
                Outcome::Nothing => {}
            }
        }
        // As in PostHog, an actor that went on after an exclusion in one interval is only counted in intervals in
        // which it converts.
        if is_passed {
            return Ok(());
        }
        open.iter().try_for_each(|(bucket, times)| show(*bucket, times))
    }
}
