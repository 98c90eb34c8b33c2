//! Funnels: how many actors advance from step to step. [`Funnels`] is a parsed request; `plan` selects the events of
//! its steps, `walk` computes how far an actor gets, `split` does so for each breakdown value; `answer`,
//! `time_to_convert` and `trends` shape the responses, `actors` lists the persons behind a step, and `passage`
//! computes for correlations and paths when an actor is in the funnel. The rules are those of PostHog's funnels.

pub mod actors;
pub(crate) mod answer;
mod first_times;
pub mod legacy;
mod parse;
pub mod passage;
mod plan;
mod split;
pub(crate) mod time_to_convert;
mod times;
pub(crate) mod trends;
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
    /// For each step the kind of first occurrence that counts, if only first occurrences do.
    firsts: Vec<Option<First>>,
    /// The events of the exclusions, in the order of those in `course`.
    exclusions: Vec<Entity>,
    course: Course,
    /// The expression that identifies actors, if these are not persons or groups.
    actor: Option<Expression>,
    interval: Interval,
    breakdown: Breakdown,
    attribution: Attribution,
    shown: Shown,
    /// The steps between which the conversion rate over time, or the time to convert, is measured; by default the
    /// first and the last one.
    between: (usize, usize),
}

/// The visualization of a funnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// The number of actors that reach each step.
    Steps,
    /// A histogram of the time to convert, with the number of bins if the request sets it.
    TimeToConvert(Option<usize>),
    /// The conversion rate, by the interval of the first step.
    Trends,
}

impl Funnels {
    /// Looks up the current names of the actions of its steps.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.steps.iter_mut().try_for_each(|step| step.look_up(engine, project))
    }

    /// Its selection: dates, filters and unit.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// The unit of its actors: persons, or groups of a type.
    pub fn unit(&self) -> Unit {
        self.selection.unit
    }

    /// The entities of its steps.
    pub fn steps(&self) -> &[Entity] {
        &self.steps
    }

    /// Checks that its actors are persons or groups, not values of an SQL expression, as queries that build on the
    /// funnel require.
    ///
    /// # Errors
    ///
    /// They are values of an expression.
    pub fn check_unit(&self) -> Result<(), NodeError> {
        if self.actor.is_none() {
            return Ok(());
        }
        let detail = "This needs a funnel of persons or groups, without funnelAggregateByHogQL.";
        let field = "source.funnelsFilter.funnelAggregateByHogQL".to_owned();
        Err(NodeError { field, detail: detail.to_owned() })
    }

    /// The entities of its steps and exclusions.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.steps.iter().chain(&self.exclusions)
    }
}

impl Funnels {
    /// Adds the dependencies of its result.
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
