//! Correlation: what the actors who come through a funnel do or have more often than those who do not, or less
//! often. [`Correlation`] is a parsed request. `plan` finds the events of the funnel and beside them what may
//! correlate, `values` says what properties are called, `counts` counts actors, `answer` compares the counts, and
//! `actors` finds the persons behind one. The rules are those of PostHog's correlation analysis.

pub mod actors;
pub mod answer;
mod counts;
pub mod legacy;
mod parse;
mod plan;
mod values;

use crate::correlation::values::Wanted;
use crate::dependence::Dependence;
use crate::entity::Entity;
use crate::funnels::Funnels;
use crate::funnels::passage::Passages;
use crate::selection::{Selection, Unit};

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Correlation {
    funnels: Funnels,
    passages: Passages,
    of: Of,
}

/// What may correlate.
#[derive(Clone, Debug)]
enum Of {
    /// Events between the first step and the end, by name, without these.
    Events(Vec<String>),
    /// Values of properties that such events with one of these names have.
    EventValues(Vec<String>, Wanted),
    /// Values of properties that the actors have.
    Values(Wanted),
}

impl Of {
    /// Whether the time matters.
    fn is_timed(&self) -> bool {
        !matches!(self, Self::Values(_))
    }
}

impl Correlation {
    /// What its funnel looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        self.funnels.selection_mut()
    }

    /// Who goes through its funnel.
    pub fn unit(&self) -> Unit {
        self.funnels.unit()
    }

    /// The events that it is about.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.funnels.entities()
    }
}

impl Correlation {
    /// Adds what its answer depends on.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self { funnels, passages: _, of: _ } = self;
        funnels.depend(on);
    }
}
