//! Counts the intervals in which an actor was active: [`Rule::active`], a pure function of its events.

use serde::{Deserialize, Serialize};

use weir_api::nodes::insights::CriteriaOperator;

/// Evaluates `number operator value`.
pub(super) fn holds(operator: CriteriaOperator, number: usize, value: usize) -> bool {
    match operator {
        CriteriaOperator::AtLeast => number >= value,
        CriteriaOperator::AtMost => number <= value,
        CriteriaOperator::Exactly => number == value,
    }
}

/// The number of events that makes an interval active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Criteria {
    pub(super) operator: CriteriaOperator,
    pub(super) value: usize,
}

impl Criteria {
    /// At least one event.
    pub(super) const ANY: Self = Self { operator: CriteriaOperator::AtLeast, value: 1 };
}

/// Defines when an interval of the range is active.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Rule {
    /// How many intervals of the range are grouped into one, from its end backwards.
    pub(super) interval_count: usize,
    /// The number of intervals of the range.
    pub(super) intervals: usize,
    pub(super) criteria: Criteria,
}

impl Rule {
    /// The largest possible number of active intervals.
    pub(super) fn largest(self) -> usize {
        self.intervals.div_ceil(self.interval_count)
    }

    /// The number of active intervals of an actor; `events` are the intervals of its events in the range, in order.
    pub(super) fn active(self, events: impl Iterator<Item = usize>) -> usize {
        let Self { interval_count, intervals, criteria } = self;
        let place = |interval: usize| intervals.saturating_sub(1 + interval) / interval_count;
        let (mut active, mut same, mut count) = (0, usize::MAX, 0);
        let holds =
            |count| usize::from(count > 0 && holds(criteria.operator, count, criteria.value));
        for own in events.map(place) {
            if own != same {
                active += holds(count);
                (same, count) = (own, 0);
            }
            count += 1;
        }
        active + holds(count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Criteria, CriteriaOperator, Rule, holds};

    #[test]
    fn intervals_are_counted_from_the_end() {
        let rule = |interval_count: usize, operator: CriteriaOperator, value: usize| Rule {
            interval_count,
            intervals: 10,
            criteria: Criteria { operator, value },
        };
        let events = [0, 3, 3, 4, 9];
        for (rule, largest, active) in [
            (rule(1, CriteriaOperator::AtLeast, 1), 10, 4),
            (rule(1, CriteriaOperator::AtLeast, 2), 10, 1),
            (rule(1, CriteriaOperator::AtMost, 1), 10, 3),
            (rule(1, CriteriaOperator::Exactly, 2), 10, 1),
            // Grouped by three from the end, the intervals are 0, 1 to 3, 4 to 6 and 7 to 9.
            (rule(3, CriteriaOperator::AtLeast, 1), 4, 4),
            (rule(4, CriteriaOperator::AtLeast, 1), 3, 3),
            (rule(4, CriteriaOperator::Exactly, 3), 3, 1),
            (rule(1000, CriteriaOperator::AtLeast, 1), 1, 1),
        ] {
            assert_eq!(
                (rule.largest(), rule.active(events.into_iter())),
                (largest, active),
                "{rule:?}"
            );
        }
        assert_eq!(rule(1, CriteriaOperator::AtMost, 3).active(std::iter::empty()), 0);
    }

    #[test]
    fn numbers_equal_those_of_a_table() {
        let mut rng = StdRng::seed_from_u64(5);
        for _ in 0..2000 {
            let operator =
                [CriteriaOperator::AtLeast, CriteriaOperator::AtMost, CriteriaOperator::Exactly]
                    [rng.random_range(0..3)];
            let criteria = Criteria { operator, value: rng.random_range(1..4) };
            let (intervals, interval_count) = (rng.random_range(1..20), rng.random_range(1..5));
            let rule = Rule { interval_count, intervals, criteria };
            let mut events: Vec<usize> =
                (0..rng.random_range(0..30)).map(|_| rng.random_range(0..intervals)).collect();
            events.sort_unstable();
            let mut table: BTreeMap<usize, usize> = BTreeMap::new();
            for event in &events {
                let mut place = 0;
                let mut end = intervals;
                while end > interval_count && event + interval_count < end {
                    (place, end) = (place + 1, end - interval_count);
                }
                *table.entry(place).or_default() += 1;
            }
            let expected = table.values().filter(|count| holds(operator, **count, criteria.value));
            let expected = expected.count();
            assert_eq!(rule.active(events.iter().copied()), expected, "{rule:?} {events:?}");
        }
    }
}
