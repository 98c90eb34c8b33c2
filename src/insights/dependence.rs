//! Dependencies of a query result besides the text of the query, the settings of the project and the stored events,
//! persons and groups: [`Dependence`]. Each part of a query adds its own. It destructures itself without `..`, so
//! that code with a new field does not compile until the field's dependencies are considered.

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

/// The dependencies of a result, collected by a traversal of the query.
#[derive(Clone, Debug)]
pub struct Dependence<'q> {
    owner: &'q ProjectSettings,
    now: UnixMicros,
    /// On the current time, otherwise than through `times`.
    pub(crate) is_on_now: bool,
    /// On the steps of actions, which may change.
    pub(crate) is_on_actions: bool,
    /// On cohorts, whose rules may depend on the current time.
    pub(crate) is_on_cohorts: bool,
    /// The absolute times to which relative dates resolve now.
    pub(crate) times: Vec<UnixMicros>,
}

impl<'q> Dependence<'q> {
    /// No dependencies yet, for a query of this project at the time `now`.
    pub fn new(owner: &'q ProjectSettings, now: UnixMicros) -> Self {
        let (is_on_now, is_on_actions, is_on_cohorts) = (false, false, false);
        Self { owner, now, is_on_now, is_on_actions, is_on_cohorts, times: Vec::new() }
    }

    /// Adds a date range, the bounds of which may depend on the interval. A malformed one adds no times: its query is
    /// refused.
    pub fn dates(&mut self, dates: &Dates, interval: Interval) {
        for interval in [interval, Interval::Day] {
            if let Ok(range) = dates.range_at(self.now, self.owner, interval) {
                self.times.extend([range.from, range.to]);
            }
        }
    }

    /// Adds times that result from the settings of the project and the current time. Malformed ones add nothing,
    /// since the query is refused then.
    pub fn relative_times(
        &mut self,
        of: impl FnOnce(&ProjectSettings, UnixMicros) -> Option<[UnixMicros; 2]>,
    ) {
        self.times.extend(of(self.owner, self.now).into_iter().flatten());
    }

    /// Adds the selection of an insight with intervals of this length.
    pub fn selection(&mut self, selection: &Selection, interval: Interval) {
        let Selection { dates, unit: _, filters, is_without_tests } = selection;
        self.dates(dates, interval);
        self.filters(filters);
        self.tests(*is_without_tests);
    }

    /// Adds the filters of the project's test accounts, if these are excluded.
    pub fn tests(&mut self, are_left_out: bool) {
        if !are_left_out {
            return;
        }
        let mut filters = Filters::default();
        match filters.add(&self.owner.test_account_filters, "") {
            Ok(()) => self.filters(&filters),
            // A query with malformed filters is refused.
            Err(_) => self.is_on_now = true,
        }
    }

    /// Adds filters of events or persons.
    pub fn filters(&mut self, filters: &Filters) {
        for filter in filters.each() {
            match filter {
                // An expression may call any function, such as `now()`.
                Filter::Property { scope: Scope::Expression, predicate: _ } => {
                    self.is_on_now = true;
                }
                Filter::Property { scope: _, predicate } => {
                    self.is_on_now |= predicate.is_of_now();
                }
                Filter::Cohort { id: _, membership: _ } => self.is_on_cohorts = true,
                // Such a filter is refused, since events have no flag values.
                Filter::Flag { id: _, expected: _ } => {}
            }
        }
    }

    /// Adds an SQL expression, which may call any function, such as `now()`.
    pub fn expression(&mut self, _: &Expression) {
        self.is_on_now = true;
    }

    /// Adds an entity: events of a name or of an action.
    pub fn entity(&mut self, entity: &Entity) {
        self.is_on_actions |= entity.action.is_some();
        self.filters(&entity.filters);
    }

    /// Adds the steps of an action that is part of the query itself.
    pub fn steps(&mut self, action: &Action) {
        action.filters().for_each(|filters| self.filters(filters));
    }

    /// Adds a series.
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

    /// Adds the breakdown of an insight.
    pub fn breakdown(&mut self, breakdown: &Breakdown) {
        match breakdown {
            Breakdown::Nothing => {}
            Breakdown::Properties { properties, limit: _, offset: _, is_other_hidden: _ } => {
                properties.iter().for_each(|property| self.property(property));
            }
            Breakdown::Cohorts(ids) => self.is_on_cohorts |= ids.iter().any(Option::is_some),
        }
    }

    /// Adds a property, or the expression in its place.
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
