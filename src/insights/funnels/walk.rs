//! How far an actor gets in a funnel: [`Course::walk`] and [`Course::walk_by`], pure functions of the actor's events
//! in the order of time. The rules are those of PostHog's present engine.
//!
//! Ordered and strict funnels (`attempts`): each event of the first step begins an attempt, and an event of a later
//! step continues the attempt that reached the step before it last. An attempt that is spoiled by an exclusion does
//! not continue.
//!
//! Unordered funnels (`unordered`): steps within the window count in any order, and an exclusion resets everything.

mod attempts;
mod matching;
mod unordered;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use weir_api::nodes::insights::FunnelOrderType;
use weir_query::events::histories::Row;

/// An event of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Its time in microseconds.
    pub(super) at: i64,
    /// Bit `k` for step `k`, counted from 0, and the bits of exclusions.
    pub(super) mask: u32,
    /// Whether it has the breakdown value that [`Course::attributed`] requires.
    pub(super) is_own: bool,
}

impl Moment {
    /// An event that counts whatever its breakdown value is.
    pub(super) fn own(row: &Row) -> Self {
        Self { at: row.at, mask: row.mask, is_own: true }
    }
}

/// An exclusion: events that spoil an attempt between two of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Exclusion {
    /// The bit of its events.
    pub(super) mask: u32,
    /// The step after which they apply, from 0 on.
    pub(super) from: usize,
    /// The step up to which they apply.
    pub(super) to: usize,
}

/// Which attempts are counted as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Counted {
    /// All.
    Once,
    /// Those that begin in the same interval.
    ByInterval,
}

/// The rules of a funnel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Course {
    pub(super) order: FunnelOrderType,
    /// How many steps it has.
    pub(super) steps: usize,
    /// The bit mask of optional steps.
    pub(super) optional: u32,
    /// The conversion window: longest time from the first step to the last, in microseconds.
    pub(super) window: i64,
    pub(super) exclusions: Vec<Exclusion>,
    /// The step of which only events with the breakdown value count, see [`Course::brings`]; in unordered funnels the
    /// step that is done first.
    pub(super) attributed: Option<usize>,
    pub(super) counted: Counted,
}

/// How far an actor gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It does not reach the first step.
    Nothing,
    /// The counted attempt is spoiled by an exclusion.
    Excluded {
        /// Whether the step after the exclusion was reached nevertheless.
        is_passed: bool,
    },
    /// The times of the counted attempt.
    Reached(Way),
}

/// The times of the steps of an attempt up to the furthest; `None` for skipped steps.
pub(super) type Way = Vec<Option<i64>>;

impl Course {
    /// The rules for attempts that are counted by the interval in which they begin, and as converted at step `last`.
    pub(super) fn by_interval(&self, last: usize) -> Self {
        let steps = match self.order {
            FunnelOrderType::Unordered => self.steps,
            FunnelOrderType::Ordered | FunnelOrderType::Strict => {
                self.steps.min(last.saturating_add(1))
            }
        };
        Self { steps, counted: Counted::ByInterval, ..self.clone() }
    }

    /// How far those attempts get whose first step is within `starts`, which unordered funnels ignore. Events are
    /// ordered by time, simultaneous ones by mask.
    pub(super) fn walk(&self, events: &[Moment], starts: &RangeInclusive<i64>) -> Outcome {
        if self.order == FunnelOrderType::Unordered {
            let way = self.walk_by(events, |_| Some(())).remove(&());
            return way.map_or(Outcome::Nothing, Outcome::Reached);
        }
        // Events before the first step, or after the window of the last first step, do not matter.
        let from = events.partition_point(|event| event.at < *starts.start());
        let last = starts.end().saturating_add(self.window);
        let to = events.partition_point(|event| event.at <= last);
        self.led(events.get(from..to).unwrap_or_default(), starts)
    }

    fn is_optional(&self, step: usize) -> bool {
        self.optional >> step & 1 == 1
    }

    /// Whether an event continues an attempt from the step `before` to `step`. As in PostHog, the breakdown value is
    /// required of the event that continues from the step before the attributed one, even if it is of a later step
    /// because the attributed one was skipped.
    fn brings(&self, event: &Moment, before: Option<usize>, step: usize) -> bool {
        let next = before.map_or(0, |before| before + 1);
        event.mask >> step & 1 == 1 && (event.is_own || self.attributed != Some(next))
    }

    /// Whether an event belongs to an exclusion that spoils attempts between the previous steps and `step`.
    fn is_spoiler(&self, event: &Moment, step: usize) -> bool {
        let mut own = self.exclusions.iter().filter(|own| own.mask & event.mask != 0);
        own.any(|own| own.from < step && step <= own.to)
    }

    /// The bits of all steps.
    pub(super) fn of_steps(&self) -> u32 {
        (1 << self.steps) - 1
    }

    /// Drops each event of exactly one step that is between two events of the same step and value, as PostHog does
    /// before evaluation. Nothing is dropped if attempts are counted by interval.
    pub(super) fn thinned<'r>(&self, rows: &'r [Row]) -> impl Iterator<Item = &'r Row> {
        let steps = self.of_steps();
        let is_counted_once = self.counted == Counted::Once;
        let is_between = move |place: usize, own: &Row| {
            let before = place.checked_sub(1).and_then(|place| rows.get(place));
            let same = |other: &&Row| (other.mask, other.text) == (own.mask, own.text);
            let (before, after) = (before.filter(same), rows.get(place + 1).filter(same));
            let is_plain = own.mask.count_ones() == 1 && own.mask & steps != 0;
            is_plain
                && before.is_some_and(|before| before.at < own.at)
                && after.is_some_and(|after| own.at < after.at)
        };
        let all = rows.iter().enumerate();
        all.filter(move |(place, own)| !(is_counted_once && is_between(*place, own)))
            .map(|(_, own)| own)
    }
}

#[cfg(test)]
mod tests;
