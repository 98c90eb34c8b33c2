//! Computes the rows of a retention that an actor is in, and its cells: [`Rule`], a pure function of its events.

use serde::{Deserialize, Serialize};

use crate::interval::Buckets;
use crate::retention::rolling::Rolling;
use crate::retention::spans::Spans;
use weir_api::nodes::insights::RetentionType;
use weir_base::clock::UnixMicros;

/// Bit of a row of histories: the event matches the target entity.
pub(super) const TARGET: u32 = 1;
/// Bit: the event matches the returning entity.
pub(super) const RETURNING: u32 = 2;
/// Bit: the event has the name of the target entity, whatever its filters are.
pub(super) const NAMED: u32 = 4;

/// The position of events before all intervals.
pub(super) const BEFORE: i64 = -1;

/// The position of an event, and its bits.
pub(super) type Mark = (i64, u32);

/// The rules that determine rows and cells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rule {
    pub(super) kind: RetentionType,
    /// The cells of a row.
    pub(super) spans: Spans,
    pub(super) is_cumulative: bool,
    /// The number of events that an interval needs to count as a return.
    pub(super) occurrences: usize,
    /// The intervals, if the positions of events are times; `None` if they are intervals.
    pub(super) times: Option<Buckets>,
    /// The windows in which an actor can return, if these begin with its first event; positions are then times.
    pub(super) rolling: Option<Rolling>,
}

/// The intervals in which an actor was active, in order and without duplicates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Activity {
    /// The rows that the actor is in.
    pub(super) starts: Vec<usize>,
    /// The intervals in which it returned.
    returns: Vec<usize>,
}

impl Rule {
    /// Reads the events of an actor, which are ordered by position.
    pub(super) fn read(&self, rows: impl Iterator<Item = Mark> + Clone, into: &mut Activity) {
        into.starts.clear();
        into.returns.clear();
        let with = |bit: u32| rows.clone().filter(move |(_, mask)| mask & bit != 0);
        match self.kind {
            RetentionType::Recurring => {
                into.starts.extend(with(TARGET).filter_map(|row| self.interval(row)));
                into.starts.dedup();
            }
            RetentionType::FirstTime => {
                into.starts.extend(with(TARGET).next().and_then(|row| self.interval(row)));
            }
            RetentionType::FirstEver => {
                let first = with(NAMED).next();
                // Of several simultaneous events, one that matches the target suffices.
                let is_first = |row: &Mark| first.is_some_and(|first| first.0 == row.0);
                into.starts.extend(with(TARGET).find(is_first).and_then(|row| self.interval(row)));
            }
        }
        let mut first = None;
        if let Some(windows) = self.rolling {
            // As in PostHog, an actor is only in the row of its first event.
            into.starts.truncate(1);
            let Some(&start) = into.starts.first() else { return };
            let is_first = |row: &Mark| self.interval(*row) == Some(start);
            first = with(TARGET).find(is_first).map(|(at, _)| (windows, start, at));
        }
        let back = |row: Mark| match first {
            None => self.interval(row),
            Some((windows, start, first)) => Some(start + windows.between(first, row.0)?),
        };
        let mut same = (usize::MAX, 0);
        for interval in with(RETURNING).filter_map(back) {
            same = (interval, if same.0 == interval { same.1 + 1 } else { 1 });
            if same.1 == self.occurrences {
                into.returns.push(interval);
            }
        }
    }

    /// The interval of an event; `None` if it is outside of all intervals.
    pub(super) fn interval(&self, (at, _): Mark) -> Option<usize> {
        match &self.times {
            Some(intervals) => intervals.bucket_of(UnixMicros(at)),
            None => usize::try_from(at).ok(),
        }
    }

    /// The cells of the row `start` in which the actor was active, in order and without duplicates: the first one,
    /// and those in which it returned.
    pub(super) fn seen<'a>(
        &'a self,
        activity: &'a Activity,
        start: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let from = activity.returns.partition_point(|interval| *interval <= start);
        let later = activity.returns.get(from..).unwrap_or_default().iter();
        let later = later.map_while(move |interval| self.spans.cell_of(interval - start));
        let mut last = 0;
        // Several intervals may belong to the same cell.
        let is_another = move |cell: &usize| std::mem::replace(&mut last, *cell) != *cell;
        std::iter::once(0).chain(later.filter(is_another))
    }

    /// Calls `count` with the cells of the row `start` in which the actor is counted.
    pub(super) fn counted(&self, activity: &Activity, start: usize, count: impl FnMut(usize)) {
        match self.is_cumulative {
            true => (0..=self.seen(activity, start).last().unwrap_or(0)).for_each(count),
            false => self.seen(activity, start).for_each(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Activity, BEFORE, Mark, NAMED, RETURNING, RetentionType, Rule, Spans, TARGET};

    const BOTH: u32 = TARGET | RETURNING;

    /// The cells of each row.
    fn cells(rule: &Rule, rows: &[Mark]) -> BTreeMap<usize, Vec<usize>> {
        let mut activity = Activity::default();
        rule.read(rows.iter().copied(), &mut activity);
        let mut found = BTreeMap::new();
        for start in activity.starts.clone() {
            let mut own = Vec::new();
            rule.counted(&activity, start, |cell| own.push(cell));
            assert_eq!(found.insert(start, own), None, "each row once");
        }
        found
    }

    fn rule(kind: RetentionType) -> Rule {
        let spans = Spans::Single(7);
        Rule { kind, spans, is_cumulative: false, occurrences: 1, times: None, rolling: None }
    }

    #[test]
    fn rows_and_cells_are_those_of_the_kind() {
        let recurring = rule(RetentionType::Recurring);
        let rows = [(0, BOTH), (1, RETURNING), (3, BOTH), (3, BOTH), (9, BOTH)];
        let expected = [(0, vec![0, 1, 3]), (3, vec![0, 6]), (9, vec![0])];
        assert_eq!(cells(&recurring, &rows), BTreeMap::from(expected));
        let cumulative = Rule { is_cumulative: true, ..recurring.clone() };
        let expected = [(0, vec![0, 1, 2, 3]), (3, (0..7).collect()), (9, vec![0])];
        assert_eq!(cells(&cumulative, &rows), BTreeMap::from(expected));
        let brackets = Rule { spans: Spans::Brackets(vec![2, 6]), ..recurring.clone() };
        let expected = [(0, vec![0, 1, 2]), (3, vec![0, 2]), (9, vec![0])];
        assert_eq!(cells(&brackets, &rows), BTreeMap::from(expected));
        let twice = Rule { occurrences: 2, ..recurring };
        let expected = [(0, vec![0, 3]), (3, vec![0]), (9, vec![0])];
        assert_eq!(cells(&twice, &rows), BTreeMap::from(expected));
        let first = rule(RetentionType::FirstTime);
        assert_eq!(cells(&first, &rows), BTreeMap::from([(0, vec![0, 1, 3])]));
        assert_eq!(cells(&first, &[(BEFORE, TARGET), (3, BOTH)]), BTreeMap::new());
        assert_eq!(cells(&first, &[(2, RETURNING)]), BTreeMap::new());
        let ever = rule(RetentionType::FirstEver);
        let expected = BTreeMap::from([(2, vec![0])]);
        assert_eq!(cells(&ever, &[(1, RETURNING), (2, NAMED | TARGET)]), expected);
        assert_eq!(cells(&ever, &[(2, NAMED), (2, NAMED | BOTH)]), expected);
        assert_eq!(cells(&ever, &[(1, NAMED), (2, NAMED | BOTH)]), BTreeMap::new());
    }

    /// Reference implementation, which compares each pair of intervals.
    fn plain(rule: &Rule, rows: &[Mark]) -> BTreeMap<usize, Vec<usize>> {
        let of =
            |bit: u32, at: i64| rows.iter().filter(|row| row.1 & bit > 0 && row.0 == at).count();
        let least = |bit: u32| rows.iter().filter(|row| row.1 & bit > 0).map(|row| row.0).min();
        let is_start = |at: i64| match rule.kind {
            _ if of(TARGET, at) == 0 => false,
            RetentionType::Recurring => true,
            RetentionType::FirstTime => least(TARGET) == Some(at),
            RetentionType::FirstEver => least(NAMED) == Some(at),
        };
        let mut found = BTreeMap::new();
        for start in (0..30_i64).filter(|at| is_start(*at)) {
            let back = |interval: &i64| of(RETURNING, start + interval) >= rule.occurrences;
            // The first interval of each cell.
            let firsts: Vec<i64> = match &rule.spans {
                Spans::Single(cells) => (1..).take(*cells).collect(),
                Spans::Brackets(ends) => std::iter::once(1)
                    .chain(ends.iter().map(|end| i64::try_from(*end).unwrap() + 1))
                    .collect(),
            };
            let is_seen = |cell: &i64| {
                let at = usize::try_from(*cell).unwrap();
                (firsts[at - 1]..firsts[at]).any(|interval| back(&interval))
            };
            let mut own: BTreeSet<i64> =
                (1..i64::try_from(firsts.len()).unwrap()).filter(is_seen).collect();
            own.insert(0);
            if rule.is_cumulative {
                own = (0..=*own.last().unwrap()).collect();
            }
            let own = own.into_iter().map(|cell| usize::try_from(cell).unwrap()).collect();
            found.insert(usize::try_from(start).unwrap(), own);
        }
        found
    }

    #[test]
    fn rows_and_cells_equal_a_plain_computation() {
        let mut rng = StdRng::seed_from_u64(31);
        for _ in 0..3000 {
            let kind =
                [RetentionType::Recurring, RetentionType::FirstTime, RetentionType::FirstEver]
                    [rng.random_range(0..3)];
            let spans = match rng.random_range(0..3) {
                0 => Spans::Brackets(vec![1, 3, 4, 9]),
                1 => Spans::Brackets(vec![rng.random_range(1..9)]),
                _ => Spans::Single(7),
            };
            let rule = Rule {
                spans,
                is_cumulative: rng.random_bool(0.3),
                occurrences: rng.random_range(1..4),
                ..rule(kind)
            };
            let mut rows: Vec<Mark> = (0..rng.random_range(0..25))
                .map(|_| (rng.random_range(BEFORE..15), rng.random_range(0..4)))
                .map(|(at, mask)| (at, if mask & TARGET > 0 { mask | NAMED } else { mask }))
                .collect();
            rows.extend(rng.random_bool(0.3).then(|| (rng.random_range(BEFORE..15), NAMED)));
            rows.sort_unstable();
            assert_eq!(cells(&rule, &rows), plain(&rule, &rows), "{rule:?} {rows:?}");
        }
    }
}
