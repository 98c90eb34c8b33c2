//! Funnels: how many actors go from step to step. [`Funnels`] is a parsed request; `plan` finds the events of its
//! steps, `walk` says how far an actor comes with them, `split` for which values of the breakdown; `answer`,
//! `time_to_convert` and `trends` shape the answers, `actors` finds the persons behind a step, and `passage` says for
//! correlations when an actor is in the funnel. The rules are those of PostHog's funnels.

pub mod actors;
mod answer;
mod first_times;
pub mod legacy;
mod parse;
pub mod passage;
mod plan;
mod split;
mod time_to_convert;
mod times;
mod trends;
mod walk;

use crate::breakdown::Breakdown;
use crate::dependence::Dependence;
use crate::entity::Entity;
use crate::funnels::split::Attribution;
use crate::funnels::walk::Course;
use crate::interval::Interval;
use crate::selection::{Selection, Unit};
use crate::series::First;
use weir_api::node::NodeError;
use weir_event::id::ProjectId;
use weir_query::dialect::expression::Expression;
use weir_query::kernel::engine::Engine;

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Funnels {
    selection: Selection,
    steps: Vec<Entity>,
    /// Of which first time each step is, if it counts this alone.
    firsts: Vec<Option<First>>,
    /// The events of the exclusions of the course, in their order.
    exclusions: Vec<Entity>,
    course: Course,
    /// What says who goes through it, where these are no persons or groups.
    actor: Option<Expression>,
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
    /// Looks up how the actions of its series are called now.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.steps.iter_mut().try_for_each(|step| step.look_up(engine, project))
    }

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

    /// That it is of persons or groups, not of what an expression of SQL says: what is asked has to be of them.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn check_unit(&self) -> Result<(), NodeError> {
        if self.actor.is_none() {
            return Ok(());
        }
        let detail = "This needs a funnel of persons or groups, without funnelAggregateByHogQL.";
        let field = "source.funnelsFilter.funnelAggregateByHogQL".to_owned();
        Err(NodeError { field, detail: detail.to_owned() })
    }

    /// The events that it is about.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.steps.iter().chain(&self.exclusions)
    }
}

impl Funnels {
    /// Adds what its answer depends on.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self {
            selection,
            steps,
            firsts: _,
            exclusions,
            course: _,
            actor,
            interval,
            breakdown,
            attribution: _,
            shown: _,
            between: _,
        } = self;
        on.selection(selection, *interval);
        steps.iter().chain(exclusions).for_each(|entity| on.entity(entity));
        actor.iter().for_each(|actor| on.expression(actor));
        on.breakdown(breakdown);
    }
}
