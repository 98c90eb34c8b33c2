//! How far an actor comes for each value of the breakdown and each interval: [`Splitter::each`].

use crate::clock::UnixMicros;
use crate::insights::funnels::walk::Course;
use crate::insights::funnels::walk::Moment;
use crate::insights::funnels::walk::Order;
use crate::insights::funnels::walk::Outcome;
use crate::insights::interval::Buckets;
use crate::query::error::QueryError;
use crate::query::histories::NO_TEXT;
use crate::query::histories::Row;
use crate::query::interner::Interner;

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
    /// Each that events of this step have, of which only those with this value count.
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
        let moment = |row: &Row| Moment { at: row.at, mask: row.mask };
        let has_text = |row: &&Row| row.text != NO_TEXT;
        match self.attribution {
            None | Some(Attribution::First | Attribution::Last) => {
                let of = match self.attribution {
                    None => None,
                    Some(Attribution::First) => rows.iter().find(has_text),
                    _ => rows.iter().rev().find(has_text),
                };
                let events: Vec<Moment> = rows.iter().map(moment).collect();
                let value = of.map_or("", |row| value(row.text));
                self.walk(&events, value, &mut found)
            }
            Some(Attribution::All) => {
                let mut rows = rows.to_vec();
                // Stable: the rows of each value stay in their order.
                rows.sort_by_key(|row| row.text);
                for own in rows.chunk_by(|a, b| a.text == b.text) {
                    let Some(first) = own.first() else { continue };
                    let events: Vec<Moment> = own.iter().map(moment).collect();
                    self.walk(&events, value(first.text), &mut found)?;
                }
                Ok(())
            }
            Some(Attribution::Step(step)) => {
                let bit = 1_u32 << step;
                let own = rows.iter().filter(|row| row.mask & bit != 0);
                let mut numbers: Vec<u32> = own.map(|row| row.text).collect();
                numbers.sort_unstable();
                numbers.dedup();
                if numbers.len() > VALUES_OF_ACTOR_MAX {
                    let detail = format!(
                        "The events of step {step} of one actor have more than {VALUES_OF_ACTOR_MAX} values of the breakdown."
                    );
                    return Err(QueryError::Invalid(detail));
                }
                for number in numbers {
                    let moment = |row: &Row| match row.text == number {
                        true => moment(row),
                        false => Moment { at: row.at, mask: row.mask & !bit },
                    };
                    let mut events: Vec<Moment> = rows.iter().map(moment).collect();
                    for tied in events.chunk_by_mut(|a, b| a.at == b.at) {
                        tied.sort_unstable_by_key(|event| event.mask);
                    }
                    self.walk(&events, value(number), &mut found)?;
                }
                Ok(())
            }
        }
    }

    fn walk(
        &self,
        events: &[Moment],
        value: &str,
        found: &mut impl FnMut(Found<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let mut show = |bucket: usize, outcome: Outcome| match outcome {
            Outcome::Reached(times) => found(Found { value, bucket, times: &times }),
            Outcome::Nothing | Outcome::Excluded => Ok(()),
        };
        let Some(buckets) = &self.buckets else {
            return show(0, self.course.walk(events, &(i64::MIN..=i64::MAX)));
        };
        let begins = match self.course.order {
            Order::Unordered => (1 << self.course.steps) - 1,
            Order::Ordered | Order::Strict => 1,
        };
        let mut last = None;
        for event in events.iter().filter(|event| event.mask & begins != 0) {
            let bucket = buckets.bucket_of(UnixMicros(event.at));
            let Some(bucket) = bucket.filter(|bucket| last != Some(*bucket)) else { continue };
            last = Some(bucket);
            let Some((from, to)) = buckets.bounds_of(bucket) else { continue };
            show(bucket, self.course.walk(events, &(from.0..=to.0)))?;
        }
        Ok(())
    }
}
