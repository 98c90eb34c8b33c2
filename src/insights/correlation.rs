//! Correlation analysis: what actors that complete a funnel do or have more or less often than those that drop out.
//! [`Correlation`] is a parsed request. `plan` selects the events of the funnel and those that may correlate,
//! `values` names property values, `counts` counts actors, `answer` compares the counts, and `actors` lists the
//! persons behind a correlation. The rules are those of PostHog's correlation analysis.

pub mod actors;
pub mod answer;
mod counts;
pub mod legacy;
mod parse;
mod plan;
pub(crate) mod values;

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

/// What is correlated with conversion.
#[derive(Clone, Debug)]
enum Of {
    /// Events between the first step and the conversion, by name, except these.
    Events(Vec<String>),
    /// Property values of such events, for events with one of these names.
    EventValues(Vec<String>, Wanted),
    /// Property values of the actors.
    Values(Wanted),
}

impl Of {
    /// Whether it depends on when events happened.
    fn is_timed(&self) -> bool {
        !matches!(self, Self::Values(_))
    }
}

impl Correlation {
    /// The selection of its funnel: dates, filters and unit.
    pub fn selection_mut(&mut self) -> &mut Selection {
        self.funnels.selection_mut()
    }

    /// The unit of its funnel: persons or groups.
    pub fn unit(&self) -> Unit {
        self.funnels.unit()
    }

    /// The entities of its funnel.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.funnels.entities()
    }
}

impl Correlation {
    /// Adds the dependencies of its result.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self { funnels, passages: _, of: _ } = self;
        funnels.depend(on);
    }
}
