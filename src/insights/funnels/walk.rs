//! How far an actor comes in a funnel: [`Course::walk`], a pure function of the actor's events.
//!
//! An attempt fills the steps from the first on, each by another event, all within the window that begins with
//! its first event. What counts is the attempt that comes furthest; of several the one that is first there, and of
//! those the one with the latest steps. Events of one time may fill steps in any order.
//!
//! Steps that may be skipped are walked with and without: each choice of them is a funnel of the others (`skipping`).

mod matching;
mod skipping;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::insights::funnels::walk::matching::Matching;

/// An event of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Its time in microseconds.
    pub(super) at: i64,
    /// Bit `k` for step `k`, counted from 0, and the bits of exclusions.
    pub(super) mask: u32,
}

/// In which order steps are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// One after another, whatever lies between.
    Ordered,
    /// One right after another.
    Strict,
    /// In any order.
    Unordered,
}

/// Events that spoil an attempt between two of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exclusion {
    /// The bit of its events.
    pub(super) mask: u32,
    /// The step after which they count, from 0 on.
    pub(super) from: usize,
    /// The step up to which they count. An attempt that does not reach it is spoiled within its whole window.
    pub(super) to: usize,
}

/// The rules of a funnel.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) order: Order,
    /// How many steps it has.
    pub(super) steps: usize,
    /// The bits of those that may be skipped.
    pub(super) optional: u32,
    /// The longest time from the first step to the last, in microseconds.
    pub(super) window: i64,
    pub(super) exclusions: Vec<Exclusion>,
}

/// How far an actor comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not even to the first step.
    Nothing,
    /// Every attempt that comes furthest is spoiled by an exclusion.
    Excluded,
    /// The attempt that counts.
    Reached(Way),
}

/// The times of the steps of an attempt up to the furthest; `None` for those that it skips.
pub(super) type Way = Vec<Option<i64>>;

/// The attempts so far that come furthest.
#[derive(Debug, Default)]
struct Best {
    furthest: usize,
    /// The one that counts, unless all are spoiled.
    times: Option<Vec<i64>>,
}

impl Best {
    fn outcome(self) -> Outcome {
        match (self.furthest, self.times) {
            (0, _) => Outcome::Nothing,
            (_, Some(times)) => Outcome::Reached(times.into_iter().map(Some).collect()),
            (_, None) => Outcome::Excluded,
        }
    }
}

/// The times of the events of each exclusion, in their order.
type Spoilers = Vec<Vec<i64>>;

impl Course {
    /// How far the attempts come whose first step lies within `starts`. Events are ordered by their times, those
    /// of one time by their masks.
    pub(super) fn walk(&self, events: &[Moment], starts: &RangeInclusive<i64>) -> Outcome {
        // What lies before the first step or after the window of the last does not matter.
        let from = events.partition_point(|event| event.at < *starts.start());
        let last = starts.end().saturating_add(self.window);
        let to = events.partition_point(|event| event.at <= last);
        let events = events.get(from..to).unwrap_or_default();
        if self.optional != 0 {
            return self.skipping(events, starts);
        }
        self.whole(events, starts).outcome()
    }

    /// The best attempts that skip nothing.
    fn whole(&self, events: &[Moment], starts: &RangeInclusive<i64>) -> Best {
        let times = |exclusion: &Exclusion| {
            let own = events.iter().filter(|event| event.mask & exclusion.mask != 0);
            own.map(|event| event.at).collect()
        };
        let spoilers: Spoilers = self.exclusions.iter().map(times).collect();
        match self.order {
            Order::Ordered => self.ordered(events, starts, &spoilers),
            Order::Strict => self.strict(events, starts, &spoilers),
            Order::Unordered => self.unordered(events, starts, &spoilers),
        }
    }

    /// Whether an event of an exclusion lies in an attempt with these times.
    fn is_spoiled(&self, times: &[i64], spoilers: &Spoilers) -> bool {
        let Some(first) = times.first() else { return false };
        self.exclusions.iter().zip(spoilers).any(|(exclusion, spoilers)| {
            let Some(after) = times.get(exclusion.from) else { return false };
            let next = spoilers.get(spoilers.partition_point(|at| at <= after));
            next.is_some_and(|at| match times.get(exclusion.to) {
                Some(before) => at < before,
                None => *at <= first.saturating_add(self.window),
            })
        })
    }

    /// Takes an attempt if it is better than those before.
    fn offer(&self, best: &mut Best, times: &[i64], spoilers: &Spoilers) {
        if times.len() < best.furthest {
            return;
        }
        if times.len() > best.furthest {
            *best = Best { furthest: times.len(), times: None };
        }
        fn key(times: &[i64]) -> (Option<&i64>, Reverse<&[i64]>) {
            (times.last(), Reverse(times))
        }
        let is_better = best.times.as_deref().is_none_or(|other| key(times) < key(other));
        if is_better && !self.is_spoiled(times, spoilers) {
            best.times = Some(times.to_vec());
        }
    }

    /// Keeps for each step the attempt up to it whose steps are latest: no other one goes further, since the
    /// steps of any two attempts can be exchanged for the later ones of both.
    fn ordered(
        &self,
        events: &[Moment],
        starts: &RangeInclusive<i64>,
        spoilers: &Spoilers,
    ) -> Best {
        let none: Spoilers = vec![Vec::new(); self.exclusions.len()];
        let mut plain = Best::default();
        self.each_attempt(events, starts, &none, |times| {
            self.offer(&mut plain, times, &none);
            plain.furthest < self.steps
        });
        if spoilers.iter().all(Vec::is_empty) {
            return plain;
        }
        // How far it comes does not depend on exclusions; which attempt counts does.
        let mut best = Best { furthest: plain.furthest, times: None };
        self.each_attempt(events, starts, spoilers, |times| {
            self.offer(&mut best, times, spoilers);
            best.times.is_none()
        });
        best
    }

    /// Shows the attempts that are not spoiled yet, by the time at which they reach their last step, until the
    /// answer is that no more are wanted.
    fn each_attempt(
        &self,
        events: &[Moment],
        starts: &RangeInclusive<i64>,
        spoilers: &Spoilers,
        mut is_more_wanted: impl FnMut(&[i64]) -> bool,
    ) {
        // The attempt that reaches each number of steps; empty if there is none.
        let mut reached: Vec<Vec<i64>> = vec![Vec::new(); self.steps + 1];
        for group in events.chunk_by(|a, b| a.at == b.at) {
            let Some(Moment { at, .. }) = group.first() else { continue };
            let floor = usize::from(!starts.contains(at));
            for count in (floor + 1..=self.steps).rev() {
                let (earlier, later) = reached.split_at_mut(count);
                // The more of its steps are of this time, the later they are; an exclusion may forbid that.
                let prefix = (self.least_before(group, count, floor)..count).find_map(|before| {
                    let prefix = earlier.get(before)?;
                    self.goes_on(prefix, (before, count), *at, spoilers).then_some(prefix)
                });
                let Some(prefix) = prefix else { continue };
                let Some(own) = later.first_mut() else { continue };
                own.clear();
                own.extend_from_slice(prefix);
                own.resize(count, *at);
                if !is_more_wanted(own) {
                    return;
                }
            }
        }
    }

    /// The least number of steps, `floor` at least, from which the events of one time go on to `count` steps;
    /// `count` itself if they have no event of its last step.
    fn least_before(&self, group: &[Moment], count: usize, floor: usize) -> usize {
        let has = |event: &Moment, step: usize| event.mask >> step & 1 == 1;
        if let [event] = group {
            return if has(event, count - 1) { count - 1 } else { count };
        }
        // Of equal events no more matter than there are steps.
        let equal = group.chunk_by(|a, b| a.mask == b.mask);
        let own: Vec<&Moment> = equal.flat_map(|equal| equal.iter().take(self.steps)).collect();
        let mut matching = Matching::new(own.len());
        let fits = |step: usize, at: usize| own.get(at).is_some_and(|event| has(event, step));
        let steps = (floor..count).rev().take_while(|step| matching.add(*step, &fits));
        count - steps.count()
    }

    /// Whether an attempt with steps at the times `prefix` goes on with the steps from `before` to `count` at
    /// the time `at`.
    fn goes_on(
        &self,
        prefix: &[i64],
        (before, count): (usize, usize),
        at: i64,
        spoilers: &Spoilers,
    ) -> bool {
        if before == 0 {
            return true;
        }
        let is_in_window =
            prefix.first().is_some_and(|first| at.saturating_sub(*first) <= self.window);
        let is_spoiled = || {
            self.exclusions.iter().zip(spoilers).any(|(exclusion, spoilers)| {
                let is_decided = exclusion.to >= before && exclusion.to < count;
                let after = prefix.get(exclusion.from).filter(|_| is_decided);
                after.is_some_and(|after| {
                    let next = spoilers.get(spoilers.partition_point(|spoiler| spoiler <= after));
                    next.is_some_and(|spoiler| *spoiler < at)
                })
            })
        };
        is_in_window && !is_spoiled()
    }

    /// Each event of the first step begins one attempt, which goes on as long as each next event is of the next step.
    fn strict(&self, events: &[Moment], starts: &RangeInclusive<i64>, spoilers: &Spoilers) -> Best {
        let mut best = Best::default();
        let mut times = Vec::with_capacity(self.steps);
        for (place, first) in events.iter().enumerate() {
            if !starts.contains(&first.at) {
                break;
            }
            let own = events.get(place..).unwrap_or_default().iter().zip(0..self.steps);
            let own = own.take_while(|(event, step)| {
                event.mask >> step & 1 == 1 && event.at.saturating_sub(first.at) <= self.window
            });
            times.clear();
            times.extend(own.map(|(event, _)| event.at));
            self.offer(&mut best, &times, spoilers);
        }
        best
    }

    /// Each event of any step begins one attempt, which takes each event that makes it longer as soon as it
    /// comes. It is a matching of events and steps, so that it gets as long as any.
    fn unordered(
        &self,
        events: &[Moment],
        starts: &RangeInclusive<i64>,
        spoilers: &Spoilers,
    ) -> Best {
        let of_steps = |event: &Moment| event.mask & ((1 << self.steps) - 1);
        let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, event) in events.iter().enumerate().filter(|(_, event)| of_steps(event) != 0) {
            places.entry(of_steps(event)).or_default().push(place);
        }
        let at = |place: &usize| events.get(*place).map_or(i64::MAX, |event| event.at);
        let mut best = Best::default();
        let mut next: Vec<usize> = Vec::new();
        for (place, first) in events.iter().enumerate().filter(|(_, event)| of_steps(event) != 0) {
            if !starts.contains(&first.at) {
                break;
            }
            next.clear();
            for (mask, places) in &places {
                // An event of so many steps fills one; further equal events fill the others.
                let most = usize::try_from(mask.count_ones()).unwrap_or(self.steps);
                let since = places.partition_point(|place| at(place) < first.at);
                let others = places.iter().skip(since).filter(|other| **other != place);
                next.extend(others.take(most));
            }
            next.retain(|place| at(place).saturating_sub(first.at) <= self.window);
            next.sort_unstable_by_key(at);
            let mut matching = Matching::new(self.steps);
            let fits = |place: usize, step: usize| {
                events.get(place).is_some_and(|event| event.mask >> step & 1 == 1)
            };
            matching.add(place, &fits);
            let added = next.iter().filter(|place| matching.add(**place, &fits)).map(at);
            let times: Vec<i64> = std::iter::once(first.at).chain(added).collect();
            self.offer(&mut best, &times, spoilers);
        }
        best
    }
}

#[cfg(test)]
mod tests;
