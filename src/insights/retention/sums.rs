//! Sums of an aggregated property that the events of an actor add to the cells of a row: [`Sums`]. The texts of rows
//! then begin with the number of their event: [`with_number`] encodes it, [`number_of`] and [`value_of`] decode it.

use arrow::datatypes::DataType;
use datafusion::functions::expr_fn::{coalesce, concat};
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::lit;

use crate::retention::rows::{RETURNING, Rule, TARGET};

/// Separates the number from the breakdown value.
const SEPARATOR: char = '\u{1e}';

/// Expression that encodes a number and a value to one text; null becomes 0, as in PostHog.
pub(super) fn with_number(number: Expr, value: Expr) -> Expr {
    let number = cast(coalesce(vec![number, lit(0.0)]), DataType::Utf8);
    concat(vec![number, lit(SEPARATOR.to_string()), value])
}

/// Decodes the number of such a text.
fn number_of(text: &str) -> f64 {
    let number = text.split_once(SEPARATOR).and_then(|(number, _)| number.parse::<f64>().ok());
    number.filter(|number| number.is_finite()).unwrap_or(0.0)
}

/// Decodes the value of such a text.
pub(super) fn value_of(text: &str) -> &str {
    text.split_once(SEPARATOR).map_or("", |(_, value)| value)
}

/// An event: its position, its bits and its text.
pub(super) type Noted<'t> = (i64, u32, &'t str);

/// The sums of the intervals of an actor, in order and without duplicates.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    intervals: Vec<Interval>,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    number: usize,
    /// The position of its first target event.
    first: Option<i64>,
    /// The sum of its target events.
    target: f64,
    /// The sum of its returning events.
    returning: f64,
    /// The sum of its returning events after the first target event.
    after: f64,
}

impl Sums {
    /// Reads the events of an actor, which are ordered by position.
    pub(super) fn read<'t>(&mut self, rule: &Rule, events: impl Iterator<Item = Noted<'t>>) {
        self.intervals.clear();
        for (at, mask, text) in events {
            let Some(number) = rule.interval((at, mask)) else { continue };
            if self.intervals.last().is_none_or(|last| last.number != number) {
                let (first, target, returning, after) = (None, 0.0, 0.0, 0.0);
                self.intervals.push(Interval { number, first, target, returning, after });
            }
            let Some(own) = self.intervals.last_mut() else { continue };
            let value = number_of(text);
            if mask & RETURNING != 0 {
                own.returning += value;
                own.after += if own.first.is_some_and(|first| at > first) { value } else { 0.0 };
            }
            if mask & TARGET != 0 {
                own.first = own.first.or(Some(at));
                own.target += value;
            }
        }
    }

    /// Calls `show` with the sum for each cell of the row `start`. If the target and the returning events are the
    /// same, the first cell has the sum of the target events of its interval, else that of the returning events after
    /// the first of them.
    pub(super) fn each(
        &self,
        rule: &Rule,
        (start, is_same): (usize, bool),
        mut show: impl FnMut(usize, f64),
    ) {
        let from = self.intervals.partition_point(|interval| interval.number < start);
        for interval in self.intervals.get(from..).unwrap_or_default() {
            let Some(cell) = rule.spans.cell_of(interval.number - start) else { return };
            let sum = match (interval.number == start, is_same) {
                (true, true) => interval.target,
                (true, false) => interval.after,
                (false, _) => interval.returning,
            };
            show(cell, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Noted, Sums, number_of, value_of};
    use crate::date_range::Parameters;
    use crate::interval::{Buckets, Interval};
    use crate::retention::rows::{RETURNING, Rule, TARGET};
    use crate::retention::spans::Spans;
    use weir_api::nodes::insights::RetentionType;
    use weir_base::clock::UnixMicros;

    fn rule(spans: Spans, times: Option<Buckets>) -> Rule {
        let kind = RetentionType::Recurring;
        Rule { kind, spans, is_cumulative: false, occurrences: 1, times, rolling: None }
    }

    #[test]
    fn texts_have_a_number_and_a_value() {
        for (text, number, value) in [
            ("1.5\u{1e}Chrome", 1.5, "Chrome"),
            ("-3e21\u{1e}", -3e21, ""),
            ("0.0\u{1e}a\u{1f}b\u{1e}c", 0.0, "a\u{1f}b\u{1e}c"),
            ("NaN\u{1e}x", 0.0, "x"),
            ("inf\u{1e}x", 0.0, "x"),
            ("", 0.0, ""),
        ] {
            assert_eq!((number_of(text), value_of(text)), (number, value), "{text}");
        }
    }

    #[test]
    fn sums_equal_those_of_a_plain_computation() {
        const HOUR: i64 = 3_600_000_000;
        let mut rng = StdRng::seed_from_u64(12);
        let range = Parameters {
            from: Some("1970-01-01T00:00:00Z"),
            to: Some("1970-01-01T09:59:59Z"),
            interval: Some("hour"),
            is_explicit: true,
            is_one_interval: false,
            is_monday_first: false,
        };
        let range = range.range(chrono_tz::UTC, UnixMicros(0)).unwrap();
        let hours = Buckets::of(&range, Interval::Hour, false).unwrap();
        for _ in 0..3000 {
            let spans = match rng.random_bool(0.5) {
                true => Spans::Single(rng.random_range(1..8)),
                false => Spans::Brackets(vec![2, 3, 6]),
            };
            let rule = rule(spans, Some(hours.clone()));
            let mut events: Vec<(i64, u32, f64)> = (0..rng.random_range(0..20))
                .map(|_| {
                    let at = rng.random_range(-10..120_i64) * HOUR / 10;
                    (at, rng.random_range(1..4), f64::from(rng.random_range(-5..50)))
                })
                .collect();
            events.sort_by_key(|event| event.0);
            let texts: Vec<String> =
                events.iter().map(|event| format!("{}\u{1e}", event.2)).collect();
            let noted: Vec<Noted<'_>> = events
                .iter()
                .zip(&texts)
                .map(|(event, text)| (event.0, event.1, text.as_str()))
                .collect();
            let mut sums = Sums::default();
            sums.read(&rule, noted.into_iter());
            let hour =
                |at: i64| usize::try_from(at.div_euclid(HOUR)).ok().filter(|hour| *hour < 10);
            for (start, is_same) in (0..10).flat_map(|start| [(start, true), (start, false)]) {
                let is_target = |event: &&(i64, u32, f64)| {
                    event.1 & TARGET != 0 && hour(event.0) == Some(start)
                };
                let Some(first) = events.iter().find(is_target) else { continue };
                let mut expected: BTreeMap<usize, f64> = BTreeMap::new();
                for event in &events {
                    let Some(own) = hour(event.0).filter(|own| *own >= start) else { continue };
                    let Some(cell) = rule.spans.cell_of(own - start) else { continue };
                    let counts = match (own == start, is_same) {
                        (true, true) => event.1 & TARGET != 0,
                        (true, false) => event.1 & RETURNING != 0 && event.0 > first.0,
                        (false, _) => event.1 & RETURNING != 0,
                    };
                    *expected.entry(cell).or_default() += if counts { event.2 } else { 0.0 };
                }
                let mut found: BTreeMap<usize, f64> = BTreeMap::new();
                sums.each(&rule, (start, is_same), |cell, sum| {
                    *found.entry(cell).or_default() += sum
                });
                assert_eq!(found, expected, "{rule:?} {start} {is_same} {events:?}");
            }
        }
    }
}
