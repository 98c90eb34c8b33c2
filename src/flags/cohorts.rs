//! Cohorts: sets of persons, by a rule on their properties or by a list.
//!
//! A [`CohortSet`] is built when cohorts change and is read-only afterwards: definitions are
//! parsed, and cohorts in dependency cycles are marked. [`Memberships`] caches the results for one
//! person. The storage of lists is elsewhere.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::evaluate::{Cohorts, UnknownCohort};
use crate::subject::Subject;
use weir_event::pattern::{PatternError, check_together};
use weir_event::predicate::filter::{Filter, Membership, Scope};
use weir_event::predicate::{Matching, Predicate, patterns};

/// Most levels of cohorts inside cohorts; bounds the stack depth of a membership test.
pub const DEPTH_MAX: usize = 100;

/// A cohort that is not deleted. Clones share their patterns.
#[derive(Clone, Debug)]
pub struct Cohort {
    /// Unique in the project.
    pub id: i64,
    /// Its members.
    pub members: Members,
    /// States of the patterns of its rule; 0 if it is a list, which keeps none.
    pub pattern_states: usize,
    /// Why filters of its rule match nobody, if their patterns are beyond a limit.
    pub refused: Option<PatternError>,
}

/// The members of a cohort.
#[derive(Clone, Debug)]
pub enum Members {
    /// These persons, in ascending order, by the uuid that they had when they were added.
    Listed(Arc<[Uuid]>),
    /// The persons who match the rule.
    Rule(Rule),
    /// Nobody: the rule needs data that a person does not have, such as events, or is invalid.
    Nobody,
}

/// A rule on persons: a tree of AND and OR over filters.
#[derive(Clone, Debug)]
pub struct Rule {
    all: bool,
    terms: Box<[Term]>,
}

#[derive(Clone, Debug)]
enum Term {
    Nested(Rule),
    Filter { filter: Filter, negated: bool },
}

/// A rule that cannot be evaluated for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It has not the documented shape.
    Malformed,
    /// It needs events, which are not part of a person.
    Behavioral,
    /// Its patterns are too large together.
    Patterns(PatternError),
}

/// The cohorts of a project.
#[derive(Debug, Default)]
pub struct CohortSet {
    cohorts: Box<[Cohort]>,
    by_id: HashMap<i64, usize>,
    /// By index: the cohort is in a dependency cycle or depends on one, or is nested deeper than
    /// [`DEPTH_MAX`].
    is_circular: Box<[bool]>,
}

impl Rule {
    /// Parses the `properties` of a cohort's `filters`: `{"type": "AND" | "OR", "values": [...]}`.
    ///
    /// # Errors
    ///
    /// [`RuleError`]; a behavioral filter is reported only if the rest is valid.
    pub fn parse(json: &Value, matching: Matching) -> Result<Self, RuleError> {
        match Self::read(json, matching) {
            Ok(rule) => match check_together([rule.pattern_states()]) {
                Ok(()) => Ok(rule),
                Err(error) => Err(RuleError::Patterns(error)),
            },
            // The filters of its events have patterns as well.
            Err(RuleError::Behavioral) => {
                patterns::check(json).map_err(RuleError::Patterns)?;
                Err(RuleError::Behavioral)
            }
            Err(error) => Err(error),
        }
    }

    /// States of all its patterns.
    pub fn pattern_states(&self) -> usize {
        let states = self.predicates().into_iter().filter_map(Predicate::pattern);
        states.fold(0, |all, pattern| all.saturating_add(pattern.size().states))
    }

    /// Why the first of its patterns that is beyond a limit is, if any.
    pub fn large_pattern(&self) -> Option<PatternError> {
        let large = |predicate: &Predicate| predicate.large_pattern().map(|(_, error)| error);
        self.predicates().into_iter().find_map(large)
    }

    /// Whether its result may depend on the current time: see [`Predicate::is_of_now`].
    pub fn is_of_now(&self) -> bool {
        self.predicates().into_iter().any(Predicate::is_of_now)
    }

    fn predicates(&self) -> Vec<&Predicate> {
        let (mut found, mut waiting) = (Vec::new(), vec![self]);
        while let Some(rule) = waiting.pop() {
            for term in &rule.terms {
                match term {
                    Term::Nested(rule) => waiting.push(rule),
                    Term::Filter { filter: Filter::Property { predicate, .. }, .. } => {
                        found.push(predicate);
                    }
                    Term::Filter { .. } => {}
                }
            }
        }
        found
    }

    fn read(json: &Value, matching: Matching) -> Result<Self, RuleError> {
        let group = json.as_object().ok_or(RuleError::Malformed)?;
        let all = match group.get("type").and_then(Value::as_str) {
            Some("AND") => true,
            Some("OR") => false,
            // An empty object is an empty rule.
            None if !group.contains_key("values") => true,
            _ => return Err(RuleError::Malformed),
        };
        let values = match group.get("values") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(values)) => values.as_slice(),
            Some(_) => return Err(RuleError::Malformed),
        };
        let mut terms = Vec::with_capacity(values.len());
        let mut is_behavioral = false;
        for value in values {
            match Term::parse(value, matching) {
                Ok(term) => terms.push(term),
                Err(RuleError::Behavioral) => is_behavioral = true,
                Err(error) => return Err(error),
            }
        }
        if is_behavioral {
            return Err(RuleError::Behavioral);
        }
        Ok(Self { all, terms: terms.into() })
    }

    /// The cohorts that the rule uses; with repetitions.
    pub fn cohorts(&self) -> Vec<i64> {
        let mut ids = Vec::new();
        self.collect_cohorts(&mut ids);
        ids
    }

    /// Whether it has a cohort filter with an operator that is not one for cohorts, which matches nobody.
    pub fn asks_nobody(&self) -> bool {
        self.terms.iter().any(|term| match term {
            Term::Nested(rule) => rule.asks_nobody(),
            Term::Filter { filter: Filter::Cohort { membership, .. }, .. } => {
                *membership == Membership::Nobody
            }
            Term::Filter { .. } => false,
        })
    }

    fn collect_cohorts(&self, ids: &mut Vec<i64>) {
        for term in &self.terms {
            match term {
                Term::Nested(rule) => rule.collect_cohorts(ids),
                Term::Filter { filter: Filter::Cohort { id, .. }, .. } => ids.push(*id),
                Term::Filter { .. } => {}
            }
        }
    }

    /// Whether the rule matches. A rule without terms matches everyone, as in the SDKs.
    ///
    /// # Errors
    ///
    /// [`UnknownCohort`]: the result depends on an unknown cohort.
    pub fn holds(
        &self,
        person: &Subject<'_>,
        cohorts: &dyn Cohorts,
    ) -> Result<bool, UnknownCohort> {
        for term in &self.terms {
            if term.holds(person, cohorts)? != self.all {
                return Ok(!self.all);
            }
        }
        Ok(self.all || self.terms.is_empty())
    }
}

impl Term {
    fn parse(json: &Value, matching: Matching) -> Result<Self, RuleError> {
        let object = json.as_object().ok_or(RuleError::Malformed)?;
        if object.contains_key("values") {
            return Rule::read(json, matching).map(Self::Nested);
        }
        if matches!(object.get("type").and_then(Value::as_str), Some("behavioral" | "event")) {
            return Err(RuleError::Behavioral);
        }
        let filter = Filter::parse(json, matching).map_err(|_| RuleError::Malformed)?;
        if matches!(filter, Filter::Flag { .. } | Filter::Property { scope: Scope::Group(_), .. }) {
            return Err(RuleError::Malformed);
        }
        let negated = object.get("negation") == Some(&Value::Bool(true));
        Ok(Self::Filter { filter, negated })
    }

    fn holds(&self, person: &Subject<'_>, cohorts: &dyn Cohorts) -> Result<bool, UnknownCohort> {
        let (filter, negated) = match self {
            Self::Nested(rule) => return rule.holds(person, cohorts),
            Self::Filter { filter, negated } => (filter, *negated),
        };
        let matches = match filter {
            Filter::Cohort { id, membership } => membership.accepts(cohorts.contains(*id, person)?),
            Filter::Property { scope: Scope::Person, predicate } => {
                predicate.matches(person, person.now)
            }
            Filter::Property { scope: Scope::PersonMetadata, predicate } => {
                predicate.matches_value(person.column(&predicate.key).as_ref(), person.now)
            }
            Filter::Property { .. } | Filter::Flag { .. } => false,
        };
        Ok(matches != negated)
    }
}

impl Cohort {
    /// A cohort by its rule, or, if the rule asks what persons did, by the members that were `found`. One with an invalid
    /// rule has no members.
    pub fn by_rule(id: i64, rule: &Value, matching: Matching, found: &Arc<[Uuid]>) -> Self {
        match Rule::parse(rule, matching) {
            Ok(rule) => Self {
                id,
                pattern_states: rule.pattern_states(),
                refused: rule.large_pattern(),
                members: Members::Rule(rule),
            },
            Err(RuleError::Behavioral) => {
                Self { refused: patterns::large_in(rule), ..Self::listed(id, Arc::clone(found)) }
            }
            Err(RuleError::Patterns(error)) => Self::nobody(id, Some(error)),
            Err(RuleError::Malformed) => Self::nobody(id, None),
        }
    }

    /// A cohort of these persons, in ascending order.
    pub fn listed(id: i64, members: Arc<[Uuid]>) -> Self {
        Self { id, members: Members::Listed(members), pattern_states: 0, refused: None }
    }

    /// A cohort that has nobody, because its patterns are beyond a limit or because it is invalid.
    pub fn nobody(id: i64, refused: Option<PatternError>) -> Self {
        Self { id, members: Members::Nobody, pattern_states: 0, refused }
    }

    fn needs(&self) -> Vec<i64> {
        match &self.members {
            Members::Rule(rule) => rule.cohorts(),
            Members::Listed(_) | Members::Nobody => Vec::new(),
        }
    }
}

impl CohortSet {
    /// Whether who is in any of them may depend on the current time, by its rule: see [`Predicate::is_of_now`].
    pub fn is_of_now(&self) -> bool {
        let is_of_now = |cohort: &Cohort| match &cohort.members {
            Members::Rule(rule) => rule.is_of_now(),
            Members::Listed(_) | Members::Nobody => false,
        };
        self.cohorts.iter().any(is_of_now)
    }

    /// Builds the set.
    pub fn new(cohorts: impl IntoIterator<Item = Cohort>) -> Self {
        let cohorts: Box<[_]> = cohorts.into_iter().collect();
        let by_id: HashMap<_, _> =
            cohorts.iter().enumerate().map(|(place, cohort)| (cohort.id, place)).collect();
        let needs: Vec<Vec<usize>> = cohorts
            .iter()
            .map(|cohort| cohort.needs().iter().filter_map(|id| by_id.get(id).copied()).collect())
            .collect();
        let is_circular = circular(&needs);
        Self { cohorts, by_id, is_circular }
    }

    /// Whether the project has no cohorts.
    pub fn is_empty(&self) -> bool {
        self.cohorts.is_empty()
    }

    /// The cohort with this id.
    pub fn get(&self, id: i64) -> Option<&Cohort> {
        self.cohorts.get(*self.by_id.get(&id)?)
    }

    /// States of the patterns of all cohorts but one.
    pub fn pattern_states_without(&self, id: Option<i64>) -> usize {
        let others = self.cohorts.iter().filter(|cohort| Some(cohort.id) != id);
        others.fold(0, |all, cohort| all.saturating_add(cohort.pattern_states))
    }

    /// The ids, in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        self.cohorts.iter().map(|cohort| cohort.id)
    }

    /// Whether the cohort is in a dependency cycle, depends on one, or is nested too deep.
    pub fn is_circular(&self, id: i64) -> bool {
        let place = self.by_id.get(&id);
        place.and_then(|place| self.is_circular.get(*place)).copied().unwrap_or(false)
    }
}

/// Marks cohorts that are in a dependency cycle, depend on one, or are nested deeper than
/// [`DEPTH_MAX`]. Each round resolves those whose dependencies are resolved; the rest after
/// [`DEPTH_MAX`] rounds is marked.
fn circular(needs: &[Vec<usize>]) -> Box<[bool]> {
    let mut is_done = vec![false; needs.len()];
    for _ in 0..DEPTH_MAX {
        let ready: Vec<usize> = needs
            .iter()
            .enumerate()
            .filter(|(place, _)| !at(&is_done, *place))
            .filter(|(_, needed)| needed.iter().all(|needed| at(&is_done, *needed)))
            .map(|(place, _)| place)
            .collect();
        if ready.is_empty() {
            break;
        }
        for place in ready {
            if let Some(done) = is_done.get_mut(place) {
                *done = true;
            }
        }
    }
    is_done.into_iter().map(|done| !done).collect()
}

fn at(flags: &[bool], place: usize) -> bool {
    flags.get(place).copied().unwrap_or(false)
}

/// The memberships of one person.
///
/// Lists contain persons by the uuid that they had when they were added. A person may have been
/// merged with others since, so all uuids made from its distinct ids are looked up.
pub struct Memberships<'a> {
    set: &'a CohortSet,
    /// All uuids of the person; `None` if they cannot be read. Called once at most.
    uuids: &'a dyn Fn() -> Option<Vec<Uuid>>,
    known: OnceCell<Option<Vec<Uuid>>>,
    results: RefCell<HashMap<i64, bool>>,
}

impl std::fmt::Debug for Memberships<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memberships").field("results", &self.results).finish_non_exhaustive()
    }
}

impl<'a> Memberships<'a> {
    /// The memberships of the person with these uuids, which are read only for a static cohort.
    pub fn new(set: &'a CohortSet, uuids: &'a dyn Fn() -> Option<Vec<Uuid>>) -> Self {
        Self { set, uuids, known: OnceCell::new(), results: RefCell::default() }
    }

    fn compute(&self, cohort: &Cohort, person: &Subject<'_>) -> Result<bool, UnknownCohort> {
        match &cohort.members {
            Members::Nobody => Ok(false),
            Members::Rule(rule) => rule.holds(person, self),
            Members::Listed(members) if members.is_empty() => Ok(false),
            Members::Listed(members) => {
                let uuids = self.known.get_or_init(|| (self.uuids)());
                let uuids = uuids.as_ref().ok_or(UnknownCohort)?;
                Ok(uuids.iter().any(|uuid| members.binary_search(uuid).is_ok()))
            }
        }
    }
}

impl Cohorts for Memberships<'_> {
    fn contains(&self, cohort_id: i64, person: &Subject<'_>) -> Result<bool, UnknownCohort> {
        if let Some(known) = self.results.borrow().get(&cohort_id) {
            return Ok(*known);
        }
        let cohort = self.set.get(cohort_id).ok_or(UnknownCohort)?;
        if self.set.is_circular(cohort_id) {
            return Err(UnknownCohort);
        }
        let inside = self.compute(cohort, person)?;
        self.results.borrow_mut().insert(cohort_id, inside);
        Ok(inside)
    }
}

#[cfg(test)]
mod tests;
