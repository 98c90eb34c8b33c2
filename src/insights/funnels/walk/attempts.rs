//! Ordered and strict funnels, `Course::led`: [`Attempts`] holds for each step the attempt that reached it last.
//!
//! Attempts reach a step in the order in which they begin. So a step takes over the attempt of the step before only
//! if that began at another time; otherwise the first event of the step is kept until a later attempt reaches it.

use std::ops::RangeInclusive;

use crate::funnels::walk::matching::Matching;
use crate::funnels::walk::{Counted, Course, Moment, Outcome, Way};
use weir_api::nodes::insights::FunnelOrderType;

impl Course {
    /// How far the attempts of an ordered or strict funnel get with these events, if their first steps are within
    /// `starts`.
    pub(super) fn led(&self, events: &[Moment], starts: &RangeInclusive<i64>) -> Outcome {
        Attempts::new(self, starts.clone()).outcome(events)
    }
}

/// The state of an attempt at a step.
#[derive(Clone, Debug, Default)]
struct Attempt {
    /// The times of its steps up to this one; empty if no attempt has reached the step.
    way: Way,
    /// Whether an event of an exclusion came after the step.
    is_spoiled: bool,
}

impl Attempt {
    fn first(&self) -> Option<i64> {
        self.way.first().copied().flatten()
    }

    fn last(&self) -> Option<i64> {
        self.way.last().copied().flatten()
    }

    /// Replaces it by attempt `from`, continued with a step.
    fn go_on(&mut self, from: Option<&Self>, step: usize, at: i64) {
        self.way.clear();
        self.way.extend(from.into_iter().flat_map(|from| &from.way));
        self.way.resize(step, None);
        self.way.push(Some(at));
        self.is_spoiled = from.is_some_and(|from| from.is_spoiled);
    }
}

/// The attempts of one actor.
#[derive(Debug)]
struct Attempts<'c> {
    course: &'c Course,
    starts: RangeInclusive<i64>,
    /// By step: the attempt that reached it last.
    reached: Vec<Attempt>,
    /// The attempt that got furthest: of several the first that is not spoiled.
    best: Attempt,
    /// Whether `best` was spoiled before its last step.
    is_passed: bool,
}

impl<'c> Attempts<'c> {
    /// No attempts yet; first steps must be within `starts`.
    fn new(course: &'c Course, starts: RangeInclusive<i64>) -> Self {
        let reached = vec![Attempt::default(); course.steps];
        Self { course, starts, reached, best: Attempt::default(), is_passed: false }
    }

    /// How far they get with these events.
    fn outcome(mut self, events: &[Moment]) -> Outcome {
        for group in events.chunk_by(|a, b| a.at == b.at) {
            if group.windows(2).all(|pair| matches!(pair, [a, b] if a.mask == b.mask)) {
                group.iter().for_each(|event| self.take(event));
            } else {
                self.take_together(group);
            }
            if self.reached.last().is_some_and(|last| !last.way.is_empty()) {
                break;
            }
        }
        match (self.best.way.len(), self.best.is_spoiled) {
            (0, _) => Outcome::Nothing,
            (_, true) => Outcome::Excluded { is_passed: self.is_passed },
            (_, false) => Outcome::Reached(self.best.way),
        }
    }

    /// Processes one event. It completes at most one step of an attempt, so later steps are processed first.
    fn take(&mut self, event: &Moment) {
        if event.mask & !self.course.of_steps() != 0 {
            let spoiled = (1..self.course.steps).rev();
            let spoiled = spoiled.filter(|step| self.course.is_spoiler(event, *step));
            spoiled.for_each(|step| self.spoil(step, event.at));
        }
        for step in (0..self.course.steps).rev().filter(|step| event.mask >> step & 1 == 1) {
            self.advance(step, event.at, std::slice::from_ref(event));
        }
        if self.course.order == FunnelOrderType::Strict {
            let left = self.reached.iter_mut().zip(0_u32..);
            let left = left.filter(|(_, step)| event.mask >> step & 1 == 0);
            left.for_each(|(attempt, _)| attempt.way.clear());
        }
    }

    /// Processes different events of the same time, which may complete steps in any order. Among them exclusions, and
    /// events that break a strict attempt, are ignored.
    fn take_together(&mut self, group: &[Moment]) {
        let Some(Moment { at, .. }) = group.first() else { return };
        for step in 0..self.course.steps {
            self.advance(step, *at, group);
        }
    }

    /// The step from which an attempt can continue to `step` at a time: the previous one, or an earlier one if the
    /// steps between are optional and no attempt in the window is there. `None` if there is no such attempt, or if it
    /// has already reached `step`.
    fn before(&self, step: usize, at: i64) -> Option<usize> {
        let mut before = step.checked_sub(1)?;
        let first = loop {
            let first = self.reached.get(before).and_then(Attempt::first);
            if first.is_some_and(|first| at.saturating_sub(first) <= self.course.window) {
                break first;
            }
            if !self.course.is_optional(before) {
                return None;
            }
            before = before.checked_sub(1)?;
        };
        (self.reached.get(step).and_then(Attempt::first) != first).then_some(before)
    }

    /// Marks the attempt that would continue to `step` as spoiled.
    fn spoil(&mut self, step: usize, at: i64) {
        let Some(before) = self.before(step, at) else { return };
        let Some(attempt) = self.reached.get_mut(before).filter(|own| !own.is_spoiled) else {
            return;
        };
        attempt.is_spoiled = true;
        if self.best.way.len() != before + 1 {
            return;
        }
        let since = match self.course.counted {
            Counted::Once => self.best.first(),
            Counted::ByInterval => self.best.last(),
        };
        if since.is_some_and(|since| at.saturating_sub(since) <= self.course.window) {
            self.best.is_spoiled = true;
            self.is_passed = false;
        }
    }

    /// Continues to a step by one of the events of `group`; if these are several, by one that the attempt has not
    /// used.
    fn advance(&mut self, step: usize, at: i64, group: &[Moment]) {
        let before = self.before(step, at);
        let may_begin = step == 0
            && self.starts.contains(&at)
            && self.reached.first().and_then(Attempt::first) != Some(at);
        if before.is_none() && !may_begin {
            return;
        }
        let (earlier, later) = self.reached.split_at_mut(step);
        let from = before.and_then(|before| earlier.get(before));
        if !group.iter().any(|event| self.course.brings(event, before, step))
            || from.is_some_and(|from| !has_room(self.course, from, (step, at), group))
        {
            return;
        }
        let is_spoiled = from.is_some_and(|from| from.is_spoiled);
        if let Some(own) = later.first_mut().filter(|_| !is_spoiled) {
            own.go_on(from, step, at);
        }
        let is_replaced = self.best.is_spoiled
            && match self.course.counted {
                Counted::Once => true,
                // A spoiled attempt that went on nevertheless is kept, unless another one converts.
                Counted::ByInterval => {
                    !self.is_passed || !is_spoiled && step + 1 == self.course.steps
                }
            };
        let furthest = self.best.way.len();
        if step + 1 > furthest || step + 1 == furthest && is_replaced {
            self.best.go_on(from, step, at);
            self.is_passed = is_spoiled;
        }
    }
}

/// Whether simultaneous events include one for a step in addition to those for the steps that the attempt completes
/// at this time.
fn has_room(
    course: &Course,
    attempt: &Attempt,
    (step, at): (usize, i64),
    group: &[Moment],
) -> bool {
    if group.len() == 1 {
        return true;
    }
    // Each with the step from which the attempt continued to it.
    let mut steps: Vec<(usize, Option<usize>)> = Vec::new();
    let mut before = None;
    for (own, done) in (0_usize..).zip(&attempt.way).filter(|(_, done)| done.is_some()) {
        if *done == Some(at) {
            steps.push((own, before));
        }
        before = Some(own);
    }
    if steps.is_empty() {
        return true;
    }
    steps.push((step, before));
    // At most as many equal events are needed as there are steps.
    let equal = group.chunk_by(|a, b| (a.mask, a.is_own) == (b.mask, b.is_own));
    let own: Vec<&Moment> = equal.flat_map(|equal| equal.iter().take(steps.len())).collect();
    let fits = |place_of_step: usize, place: usize| {
        let step = steps.get(place_of_step).zip(own.get(place));
        step.is_some_and(|((step, before), event)| course.brings(event, *before, *step))
    };
    let mut matching = Matching::new(own.len());
    (0..steps.len()).all(|step| matching.add(step, &fits))
}
