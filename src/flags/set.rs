//! The set of all flags of a project, evaluated in one pass.
//!
//! A set is built when flags change and is read-only afterwards. The flags are in topological
//! order: each comes after its dependencies.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::definition::{Definition, DefinitionError, Runtime, Stored};
use crate::effort::Effort;
use crate::evaluate::{Cohorts, Dependencies, Dependency, Surroundings, evaluate};
use crate::subject::Subject;
use crate::trace::{ConditionTrace, trace};
use crate::verdict::{Failure, Reason, Verdict};
use weir_event::predicate::patterns;

/// Prefix of the keys of flags that target a survey.
const SURVEY_TARGETING: &str = "survey-targeting-";

/// A stored flag, valid or not.
#[derive(Debug)]
pub struct Entry {
    /// Unique in the project.
    pub id: i64,
    /// Unique in the project.
    pub key: Box<str>,
    /// The version of the stored flag.
    pub version: i64,
    /// False for inactive flags.
    pub active: bool,
    /// The parsed flag, or its error.
    pub definition: Result<Definition, DefinitionError>,
    /// States of the patterns in its conditions.
    pub pattern_states: usize,
}

/// The flags of a project.
///
/// Inactive flags are included: for a flag that depends on one, it is false. A deleted flag is not
/// included; it is a missing dependency, and flags that depend on it are off. A flag with active
/// dependents cannot be deleted.
#[derive(Debug, Default)]
pub struct FlagSet {
    entries: Box<[Arc<Entry>]>,
    /// Indexes in `entries` of the dependencies of each flag.
    dependencies: Box<[Box<[usize]>]>,
    /// Indexes in `entries`, dependencies first. Flags in a dependency cycle, and flags that depend
    /// on one, are left out.
    order: Box<[usize]>,
    /// By index: whether the flag is left out of the order.
    is_circular: Box<[bool]>,
    by_id: HashMap<i64, usize>,
    by_key: HashMap<Box<str>, usize>,
    effort: Effort,
}

/// Selects flags for a request. The default is all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// Only these. An empty list selects none.
    pub keys: Option<&'a [String]>,
    /// Only flags for this runtime; [`Runtime::All`] selects those that are for every runtime.
    pub runtime: Option<Runtime>,
    /// Only flags that name one of these contexts, or none. Empty: all flags.
    pub contexts: &'a [String],
    /// Only flags that target a survey.
    pub surveys_only: bool,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answers<'s> {
    /// In the order of the set.
    pub flags: Vec<Answer<'s>>,
    /// Whether a flag failed, or is in a dependency cycle: `errorsWhileComputingFlags`.
    pub has_errors: bool,
    /// By index, results of flags that were not selected, but that others depend on.
    others: Vec<Option<Result<Verdict<'s>, Failure>>>,
}

/// The answer for one flag.
#[derive(Debug)]
pub struct Answer<'s> {
    /// Unique in the project.
    pub id: i64,
    /// Unique in the project.
    pub key: &'s str,
    /// The version of the stored flag.
    pub version: i64,
    /// The verdict, or the failure.
    pub result: Result<Verdict<'s>, Failure>,
    /// Its index in the set.
    place: usize,
}

impl<'s> Answers<'s> {
    /// The result of the flag at an index of the set; `None` if it was not evaluated.
    fn at(&self, place: usize) -> Option<&Result<Verdict<'s>, Failure>> {
        let selected = self.flags.binary_search_by_key(&place, |answer| answer.place).ok();
        let selected =
            selected.and_then(|index| self.flags.get(index)).map(|answer| &answer.result);
        selected.or_else(|| self.others.get(place)?.as_ref())
    }
}

impl Entry {
    /// Reads a stored flag, whose patterns may have so many states.
    pub fn read(stored: &Stored<'_>, pattern_states_max: usize) -> Self {
        let pattern_states = patterns::states_in(stored.filters);
        let definition = match pattern_states {
            states if states > pattern_states_max => Err(DefinitionError::PatternsOfProject),
            _ => Definition::parse(stored),
        };
        // What is refused is not compiled.
        let pattern_states = if definition.is_ok() { pattern_states } else { 0 };
        Self {
            id: stored.id,
            key: stored.key.into(),
            version: stored.version,
            active: stored.active,
            definition,
            pattern_states,
        }
    }

    /// The parsed flag, if it is active and valid.
    fn evaluable(&self) -> Option<&Definition> {
        self.definition.as_ref().ok().filter(|_| self.active)
    }

    fn is_selected(&self, selection: &Selection<'_>) -> bool {
        if !self.active || (selection.surveys_only && !self.key.starts_with(SURVEY_TARGETING)) {
            return false;
        }
        let Ok(flag) = &self.definition else { return true };
        let runs = selection
            .runtime
            .is_none_or(|runtime| flag.runtime == Runtime::All || flag.runtime == runtime);
        let applies = selection.contexts.is_empty()
            || flag.contexts.is_empty()
            || flag.contexts.iter().any(|own| selection.contexts.iter().any(|c| **c == **own));
        runs && applies
    }
}

impl FlagSet {
    /// Builds the set; answers come in the order of `entries`.
    pub fn new(entries: impl IntoIterator<Item = Arc<Entry>>) -> Self {
        let entries: Box<[_]> = entries.into_iter().collect();
        let by_id: HashMap<_, _> =
            entries.iter().enumerate().map(|(place, entry)| (entry.id, place)).collect();
        let by_key =
            entries.iter().enumerate().map(|(place, entry)| (entry.key.clone(), place)).collect();
        let places = |entry: &Arc<Entry>| -> Box<[usize]> {
            let ids = entry.evaluable().into_iter().flat_map(Definition::dependencies);
            ids.filter_map(|id| by_id.get(&id).copied()).collect()
        };
        let dependencies: Box<[_]> = entries.iter().map(places).collect();
        let order = sorted(&dependencies);
        let mut is_circular = vec![true; entries.len()].into_boxed_slice();
        for place in &order {
            if let Some(is_circular) = is_circular.get_mut(*place) {
                *is_circular = false;
            }
        }
        let effort = entries.iter().filter_map(|entry| entry.evaluable()).map(Effort::of);
        let effort = effort.fold(Effort::default(), Effort::and);
        Self { entries, dependencies, order, is_circular, by_id, by_key, effort }
    }

    /// The stored flags, in their order.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The cost estimate of evaluating all of them.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// The flag with this key, whether active or not.
    pub fn by_key(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(*self.by_key.get(key)?)
    }

    /// The keys of the flags that keep a hash key per person.
    pub fn continuity_keys(&self) -> impl Iterator<Item = &str> {
        let flags = self.entries.iter().filter_map(|entry| entry.evaluable());
        flags.filter(|flag| flag.continuity).map(|flag| &*flag.key)
    }

    /// Evaluates the selected flags and their dependencies.
    pub fn evaluate<'s>(
        &'s self,
        subject: &Subject<'_>,
        selection: &Selection<'_>,
        cohorts: &dyn Cohorts,
    ) -> Answers<'s> {
        let selected = self.selected(selection);
        let needed = self.needed(&selected, selection);
        let mut pass = Pass { set: self, results: vec![None; self.entries.len()] };
        for (place, entry) in self.entries.iter().enumerate() {
            let result = match &entry.definition {
                _ if !at(&needed, place) => continue,
                Err(_) => Err(Failure::Definition),
                Ok(_) if at(&self.is_circular, place) => {
                    Ok(Verdict::off(Reason::MissingDependency, None))
                }
                Ok(_) => continue,
            };
            pass.record(place, result);
        }
        for place in self.order.iter().copied().filter(|place| at(&needed, *place)) {
            if let Some(flag) = self.entries.get(place).and_then(|entry| entry.evaluable()) {
                let surroundings = Surroundings { flags: &pass, cohorts };
                let result = evaluate(flag, subject, surroundings);
                pass.record(place, result);
            }
        }
        pass.answers(&selected)
    }

    /// Traces the flag with this key on the results in `answers`; empty if the flag is invalid.
    /// `filters` are those of the stored flag.
    pub fn trace(
        &self,
        answers: &Answers<'_>,
        key: &str,
        filters: &Value,
        subject: &Subject<'_>,
        cohorts: &dyn Cohorts,
    ) -> Vec<ConditionTrace> {
        let flag = self.by_key(key).and_then(|entry| entry.evaluable());
        let flags = Traced { set: self, answers };
        flag.map(|flag| trace(flag, filters, subject, Surroundings { flags: &flags, cohorts }))
            .unwrap_or_default()
    }

    /// By index, whether the answer contains the flag.
    fn selected(&self, selection: &Selection<'_>) -> Vec<bool> {
        let Some(keys) = selection.keys else {
            return self.entries.iter().map(|entry| entry.is_selected(selection)).collect();
        };
        let mut selected = vec![false; self.entries.len()];
        for place in keys.iter().filter_map(|key| self.by_key.get(key.as_str())) {
            if let (Some(selected), Some(entry)) =
                (selected.get_mut(*place), self.entries.get(*place))
            {
                *selected = entry.is_selected(selection);
            }
        }
        selected
    }

    /// By index, whether the flag is evaluated. A flag that the selection excludes is false for
    /// flags that depend on it, as an inactive one is.
    fn needed(&self, selected: &[bool], selection: &Selection<'_>) -> Vec<bool> {
        let mut needed = selected.to_vec();
        let backwards = self.order.iter().rev().filter(|_| selection.keys.is_some());
        for place in backwards {
            if !at(&needed, *place) {
                continue;
            }
            for dependency in self.dependencies.get(*place).into_iter().flatten() {
                let entry = self.entries.get(*dependency);
                if let (Some(needed), Some(entry)) = (needed.get_mut(*dependency), entry) {
                    *needed |= entry.is_selected(selection);
                }
            }
        }
        needed
    }
}

/// The results that a trace uses. A flag that was not evaluated counts as off.
struct Traced<'t> {
    set: &'t FlagSet,
    answers: &'t Answers<'t>,
}

impl Dependencies for Traced<'_> {
    fn dependency(&self, flag_id: i64) -> Dependency<'_> {
        let place = self.set.by_id.get(&flag_id);
        place.map_or(Dependency::Missing, |place| dependency(self.answers.at(*place)))
    }
}

/// One evaluation of a set: the results so far, by index.
struct Pass<'s> {
    set: &'s FlagSet,
    results: Vec<Option<Result<Verdict<'s>, Failure>>>,
}

impl<'s> Pass<'s> {
    fn record(&mut self, place: usize, result: Result<Verdict<'s>, Failure>) {
        if let Some(slot) = self.results.get_mut(place) {
            *slot = Some(result);
        }
    }

    fn answers(self, selected: &[bool]) -> Answers<'s> {
        let Self { set, mut results } = self;
        let count = selected.iter().filter(|selected| **selected).count();
        let (mut flags, mut has_errors) = (Vec::with_capacity(count), false);
        for (place, (entry, slot)) in set.entries.iter().zip(&mut results).enumerate() {
            let result = if at(selected, place) { slot.take() } else { None };
            if let Some(result) = result {
                let Entry { id, key, version, .. } = &**entry;
                has_errors |= result.is_err() || at(&set.is_circular, place);
                flags.push(Answer { id: *id, key, version: *version, result, place });
            }
        }
        Answers { flags, has_errors, others: results }
    }
}

impl Dependencies for Pass<'_> {
    fn dependency(&self, flag_id: i64) -> Dependency<'_> {
        let Some(place) = self.set.by_id.get(&flag_id) else { return Dependency::Missing };
        dependency(self.results.get(*place).and_then(Option::as_ref))
    }
}

/// The result of a flag for flags that depend on it.
fn dependency<'r>(result: Option<&'r Result<Verdict<'_>, Failure>>) -> Dependency<'r> {
    match result {
        Some(Ok(verdict)) if verdict.reason == Reason::MissingDependency => Dependency::Missing,
        Some(Ok(verdict)) if verdict.enabled => Dependency::On(verdict.variant),
        Some(Err(_)) => Dependency::Failed,
        _ => Dependency::Off,
    }
}

fn at(flags: &[bool], place: usize) -> bool {
    flags.get(place).copied().unwrap_or(false)
}

/// Topological order of the indexes, dependencies first (Kahn). Cycles, and flags that depend on
/// them, are left out.
fn sorted(dependencies: &[Box<[usize]>]) -> Box<[usize]> {
    let mut waiting: Vec<usize> = dependencies.iter().map(|of_one| of_one.len()).collect();
    let mut dependents = vec![Vec::new(); dependencies.len()];
    for (place, of_one) in dependencies.iter().enumerate() {
        for dependency in of_one {
            if let Some(dependents) = dependents.get_mut(*dependency) {
                dependents.push(place);
            }
        }
    }
    let free = waiting.iter().enumerate().filter(|(_, count)| **count == 0);
    let mut order: Vec<usize> = free.map(|(place, _)| place).collect();
    let mut next = 0;
    while let Some(place) = order.get(next).copied() {
        next += 1;
        for dependent in dependents.get(place).into_iter().flatten() {
            let Some(count) = waiting.get_mut(*dependent) else { continue };
            *count -= 1;
            if *count == 0 {
                order.push(*dependent);
            }
        }
    }
    order.into_boxed_slice()
}

#[cfg(test)]
mod tests;
