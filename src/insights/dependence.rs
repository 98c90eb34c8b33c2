//! What the answer to a question depends on besides its text, the settings of its project and the events, persons and groups
//! that are stored: [`Dependence`]. Each part of a question adds its own, and takes itself apart without `..`, so that a new
//! field does not compile before it is said what the answer depends on because of it.

use crate::ProjectSettings;
use crate::action::Action;
use crate::breakdown::Breakdown;
use crate::entity::Entity;
use crate::filters::Filters;
use crate::interval::Interval;
use crate::property::{Owner, Property};
use crate::selection::{Dates, Selection};
use crate::series::{Math, Series};
use weir_base::clock::UnixMicros;
use weir_event::predicate::filter::{Filter, Scope};
use weir_query::dialect::expression::Expression;

/// What an answer depends on, found by a walk over its question.
#[derive(Clone, Debug)]
pub struct Dependence<'q> {
    owner: &'q ProjectSettings,
    now: UnixMicros,
    /// On the current time, otherwise than by `times`.
    pub(crate) is_on_now: bool,
    /// On the steps of actions, which may change.
    pub(crate) is_on_actions: bool,
    /// On cohorts, whose rules may depend on the current time.
    pub(crate) is_on_cohorts: bool,
    /// The times that its relative dates stand for as of now.
    pub(crate) times: Vec<UnixMicros>,
}

impl<'q> Dependence<'q> {
    /// Nothing yet, of a question to this project that is asked now.
    pub fn new(owner: &'q ProjectSettings, now: UnixMicros) -> Self {
        let (is_on_now, is_on_actions, is_on_cohorts) = (false, false, false);
        Self { owner, now, is_on_now, is_on_actions, is_on_cohorts, times: Vec::new() }
    }

    /// A range of dates, whose bounds may be those of intervals. One that is malformed has no times: its question is
    /// refused.
    pub fn dates(&mut self, dates: &Dates, interval: Interval) {
        for interval in [interval, Interval::Day] {
            if let Ok(range) = dates.range_at(self.now, self.owner, interval) {
                self.times.extend([range.from, range.to]);
            }
        }
    }

    /// Times that the settings of the project and the current time make of relative ones; none where these are malformed,
    /// since the question is refused then.
    pub fn relative_times(
        &mut self,
        of: impl FnOnce(&ProjectSettings, UnixMicros) -> Option<[UnixMicros; 2]>,
    ) {
        self.times.extend(of(self.owner, self.now).into_iter().flatten());
    }

    /// What an insight looks at, whose dates are divided into such intervals.
    pub fn selection(&mut self, selection: &Selection, interval: Interval) {
        let Selection { dates, unit: _, filters, is_without_tests } = selection;
        self.dates(dates, interval);
        self.filters(filters);
        self.tests(*is_without_tests);
    }

    /// The filters of the project's test accounts, if they are left out.
    pub fn tests(&mut self, are_left_out: bool) {
        if !are_left_out {
            return;
        }
        let mut filters = Filters::default();
        match filters.add(&self.owner.test_account_filters, "") {
            Ok(()) => self.filters(&filters),
            // A question with them is refused.
            Err(_) => self.is_on_now = true,
        }
    }

    /// Filters of events or persons.
    pub fn filters(&mut self, filters: &Filters) {
        for filter in filters.each() {
            match filter {
                // An expression may have any function.
                Filter::Property { scope: Scope::Expression, predicate: _ } => {
                    self.is_on_now = true;
                }
                Filter::Property { scope: _, predicate } => {
                    self.is_on_now |= predicate.is_of_now();
                }
                Filter::Cohort { id: _, membership: _ } => self.is_on_cohorts = true,
                // Refused, since events have no values of flags.
                Filter::Flag { id: _, expected: _ } => {}
            }
        }
    }

    /// An expression of SQL, which may have any function.
    pub fn expression(&mut self, _: &Expression) {
        self.is_on_now = true;
    }

    /// Events of a name or of an action.
    pub fn entity(&mut self, entity: &Entity) {
        self.is_on_actions |= entity.action.is_some();
        self.filters(&entity.filters);
    }

    /// The steps of an action that the question has itself.
    pub fn steps(&mut self, action: &Action) {
        action.filters().for_each(|filters| self.filters(filters));
    }

    /// A series.
    pub fn series(&mut self, series: &Series) {
        let Series { entity, math, action: _ } = series;
        self.entity(entity);
        match math {
            Math::Sql(expression) => self.expression(expression),
            Math::Total
            | Math::Actors
            | Math::ActiveIn(_)
            | Math::Sessions
            | Math::Groups(_)
            | Math::Property(..)
            | Math::OfPersons(..)
            | Math::OfSessions(..)
            | Math::PerActor(_)
            | Math::First(_) => {}
        }
    }

    /// What an insight is split by.
    pub fn breakdown(&mut self, breakdown: &Breakdown) {
        match breakdown {
            Breakdown::Nothing => {}
            Breakdown::Properties { properties, limit: _, offset: _, is_other_hidden: _ } => {
                properties.iter().for_each(|property| self.property(property));
            }
            Breakdown::Cohorts(ids) => self.is_on_cohorts |= ids.iter().any(Option::is_some),
        }
    }

    /// A property, or an expression in its place.
    pub fn property(&mut self, property: &Property) {
        let Property { owner, key: _, is_url: _, bins: _ } = property;
        self.is_on_now |= match owner {
            Owner::Expression => true,
            Owner::Event
            | Owner::Person
            | Owner::Group(_)
            | Owner::Session
            | Owner::EventMetadata => false,
        };
    }
}
