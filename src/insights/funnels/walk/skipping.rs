//! Steps that may be skipped. For each choice of those that an attempt does not skip there is a funnel of these and the
//! required steps, in which nothing is skipped; what counts is the best of all. Of attempts that come as far at one
//! time the one counts that skips the fewest of the steps nearest to its end.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use crate::insights::funnels::walk::Course;
use crate::insights::funnels::walk::Exclusion;
use crate::insights::funnels::walk::Moment;
use crate::insights::funnels::walk::Outcome;
use crate::insights::funnels::walk::Way;

/// What the best attempt has most of.
type Rank = (Reverse<i64>, u32, Way);

impl Course {
    /// As [`Course::walk`] of a course that has steps that may be skipped; `events` are those that matter.
    pub(super) fn skipping(&self, events: &[Moment], starts: &RangeInclusive<i64>) -> Outcome {
        let (mut furthest, mut best): (usize, Option<Rank>) = (0, None);
        let mut kept = self.optional;
        loop {
            let places: Vec<usize> = self.places(kept);
            let own = self.of(&places);
            let found = own.whole(&own.moments(&places, events), starts);
            let reached = found.furthest.checked_sub(1).and_then(|last| places.get(last));
            let reached = reached.map_or(0, |place| place + 1);
            if reached > furthest {
                (furthest, best) = (reached, None);
            }
            if let Some(times) = found.times.filter(|_| reached == furthest) {
                best = best.max(rank(&places, &times, reached));
            }
            // The next subset.
            if kept == 0 {
                break;
            }
            kept = (kept - 1) & self.optional;
        }
        match (furthest, best) {
            (0, _) => Outcome::Nothing,
            (_, Some((_, _, way))) => Outcome::Reached(way),
            (_, None) => Outcome::Excluded,
        }
    }

    /// The places of the required steps and those of `kept`.
    fn places(&self, kept: u32) -> Vec<usize> {
        let is_in = |step: &usize| (self.optional & !kept) >> step & 1 == 0;
        (0..self.steps).filter(is_in).collect()
    }

    /// The course of the steps at these places alone. An exclusion counts from the last of them up to its earlier
    /// step on, until the first of them from its later step on.
    fn of(&self, places: &[usize]) -> Self {
        let exclusion = |own: &Exclusion| Exclusion {
            from: places.partition_point(|place| *place <= own.from).saturating_sub(1),
            to: places.partition_point(|place| *place < own.to),
            ..*own
        };
        Self {
            order: self.order,
            steps: places.len(),
            optional: 0,
            window: self.window,
            exclusions: self.exclusions.iter().map(exclusion).collect(),
        }
    }

    /// Events of the steps at `places` of another course as events of this one, in their order.
    fn moments(&self, places: &[usize], events: &[Moment]) -> Vec<Moment> {
        let exclusions = self.exclusions.iter().fold(0, |mask, own| mask | own.mask);
        let moment = |event: &Moment| {
            let steps = places.iter().zip(0_u32..);
            let steps = steps.map(|(place, step)| (event.mask >> place & 1) << step);
            Moment { at: event.at, mask: steps.fold(event.mask & exclusions, |all, bit| all | bit) }
        };
        events.iter().map(moment).collect()
    }
}

/// An attempt with these times at the first of `places`, which comes to so many steps.
fn rank(places: &[usize], times: &[i64], reached: usize) -> Option<Rank> {
    let mut way: Way = vec![None; reached];
    let mut mask = 0;
    for (place, at) in places.iter().zip(times) {
        *way.get_mut(*place)? = Some(*at);
        mask |= 1 << place;
    }
    Some((Reverse(*times.last()?), mask, way))
}
