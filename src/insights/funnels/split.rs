//! How far an actor comes for each value of the breakdown and each interval: [`Splitter::each`].

use crate::funnels::walk::{Course, Moment, Outcome, Way};
use crate::interval::Buckets;
use weir_api::nodes::insights::FunnelOrderType;
use weir_base::clock::UnixMicros;
use weir_query::events::histories::{NO_TEXT, Row};
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Most values of the breakdown that the events of one step of one actor have. Each takes a walk of its own.
const VALUES_OF_ACTOR_MAX: usize = 1000;

/// Which value of the breakdown an actor counts under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribution {
    /// The first that its events have.
    First,
    /// The last that its events have.
    Last,
    /// Each, by the events with this value alone.
    All,
    /// Each that events of this step have, of which only those with this value count. Of unordered funnels each that any
    /// events have, of which the first that is done must have it.
    Step(usize),
}

/// One way in which an actor counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'f> {
    /// The value of the breakdown; empty without one.
    pub(super) value: &'f str,
    /// The interval in which the attempt begins; 0 if there are none.
    pub(super) bucket: usize,
    /// The times of the steps, in microseconds; `None` for those that were skipped.
    pub(super) times: &'f [Option<i64>],
}

/// What is needed to take the rows of an actor apart.
#[derive(Debug)]
pub(super) struct Splitter {
    /// Its `attributed` is set where [`Splitter::attribution`] is that to a step.
    pub(super) course: Course,
    /// `None` without a breakdown.
    pub(super) attribution: Option<Attribution>,
    /// The intervals by which attempts count; `None` where all count as one.
    pub(super) buckets: Option<Buckets>,
}

impl Splitter {
    /// Shows each way in which the actor of `rows` counts.
    pub(super) fn each(
        &self,
        rows: &[Row],
        texts: &Interner,
        mut found: impl FnMut(Found<'_>) -> Result<(), QueryError>,
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
                // Stable: the rows of each value stay in their order.
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

    /// The values under which an actor counts: those of the events of a step; of unordered funnels, whose steps are counted
    /// as they are done, those of the events of any.
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
        found: &mut impl FnMut(Found<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let mut show = |bucket: usize, times: &Way| found(Found { value, bucket, times });
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
        // PostHog's: who went on after an exclusion in one interval counts in none that does not convert.
        if is_passed {
            return Ok(());
        }
        open.iter().try_for_each(|(bucket, times)| show(*bucket, times))
    }
}
