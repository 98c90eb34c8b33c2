//! Funnels: how many actors go from step to step. [`Funnels`] is a parsed request; `plan` finds the events of its
//! steps, `walk` says how far an actor comes with them, `split` for which values of the breakdown; `answer`,
//! `time_to_convert` and `trends` shape the answers, `actors` finds the persons behind a step, and `passage` says for
//! correlations when an actor is in the funnel. The rules are those of PostHog's funnels.

pub mod actors;
mod answer;
pub mod legacy;
mod parse;
pub mod passage;
mod plan;
mod split;
mod time_to_convert;
mod times;
mod trends;
mod walk;

use crate::insights::breakdown::Breakdown;
use crate::insights::entity::Entity;
use crate::insights::funnels::split::Attribution;
use crate::insights::funnels::walk::Course;
use crate::insights::interval::Interval;
use crate::insights::selection::Selection;
use crate::insights::selection::Unit;

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Funnels {
    selection: Selection,
    steps: Vec<Entity>,
    /// The events of the exclusions of the course, in their order.
    exclusions: Vec<Entity>,
    course: Course,
    interval: Interval,
    breakdown: Breakdown,
    attribution: Attribution,
    shown: Shown,
    /// The steps between which conversion is shown over time, or its time: the first and the last one otherwise.
    between: (usize, usize),
}

/// What is shown of a funnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// How many actors come to each step.
    Steps,
    /// How long they take, in so many bins.
    TimeToConvert(Option<usize>),
    /// The part that converts, by the interval of the first step.
    Trends,
}

impl Funnels {
    /// What it looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// Who goes through it.
    pub fn unit(&self) -> Unit {
        self.selection.unit
    }

    /// The events of its steps.
    pub fn steps(&self) -> &[Entity] {
        &self.steps
    }

    /// The events that it is about.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.steps.iter().chain(&self.exclusions)
    }
}
