//! Unordered funnels, [`Course::walk_by`]: [`Open`] holds the events of each step within the window.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::funnels::walk::{Course, Moment, Way};

impl Course {
    /// The attempt that gets furthest in an unordered funnel, for each key of the time of the first event; of equally
    /// long ones the first. Attempts without a key are ignored.
    pub(in crate::funnels) fn walk_by<K: Ord>(
        &self,
        events: &[Moment],
        key: impl Fn(i64) -> Option<K>,
    ) -> BTreeMap<K, Way> {
        let mut best: BTreeMap<K, Way> = BTreeMap::new();
        Open::new(self).each(events, |first, open| {
            let Some(key) = key(first) else { return };
            let way = best.entry(key).or_default();
            if open.done() > way.len() {
                *way = open.way();
            }
        });
        best
    }
}

/// The times of the events of each step that are still within the window.
#[derive(Debug)]
struct Open<'c> {
    course: &'c Course,
    times: Vec<VecDeque<i64>>,
}

impl<'c> Open<'c> {
    /// Without events.
    fn new(course: &'c Course) -> Self {
        Self { course, times: vec![VecDeque::new(); course.steps] }
    }

    /// How many steps are done.
    fn done(&self) -> usize {
        self.times.iter().filter(|times| !times.is_empty()).count()
    }

    /// The first time of each done step, in ascending order.
    fn way(&self) -> Way {
        let mut way: Way =
            self.times.iter().filter_map(VecDeque::front).copied().map(Some).collect();
        way.sort_unstable();
        way
    }

    /// Calls `shown` with the state and the time of its oldest event whenever that event is about to leave: when all
    /// steps are done, when it is outside of the window of the next event, and after the last event.
    fn each(mut self, events: &[Moment], mut shown: impl FnMut(i64, &Self)) {
        for event in events {
            self.leave(Some(event.at), &mut shown);
            self.take(event);
        }
        self.leave(None, &mut shown);
    }

    /// Removes the oldest events until the rest is neither complete nor outside of the window of an event at `now`.
    fn leave(&mut self, now: Option<i64>, shown: &mut impl FnMut(i64, &Self)) {
        loop {
            let places = self.times.iter().enumerate();
            let fronts = places.filter_map(|(step, times)| Some((*times.front()?, step)));
            let Some((oldest, step)) = fronts.min() else { return };
            let is_within = now.is_some_and(|now| now.saturating_sub(oldest) <= self.course.window);
            if is_within && self.done() < self.course.steps {
                return;
            }
            shown(oldest, self);
            self.times.get_mut(step).and_then(VecDeque::pop_front);
        }
    }

    /// Assigns an event to the one of its steps that was done the longest ago. An event of an exclusion resets
    /// everything.
    fn take(&mut self, event: &Moment) {
        let steps = event.mask & self.course.of_steps();
        if steps == 0 {
            if event.mask != 0 {
                self.times.iter_mut().for_each(VecDeque::clear);
            }
            return;
        }
        if self.course.attributed.is_some() && !event.is_own && self.done() == 0 {
            return;
        }
        let own = self.times.iter_mut().zip(0_u32..).filter(|(_, step)| steps >> step & 1 == 1);
        // Of steps that were done equally long ago the first one.
        let own = own.max_by_key(|(times, step)| Reverse((times.back().copied(), *step)));
        if let Some((times, _)) = own {
            times.push_back(event.at);
        }
    }
}
