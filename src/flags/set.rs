//! All flags of a project, and the evaluation of many at once.
//!
//! A set is built when flags change and then only read. It holds the flags in an order in which
//! each comes after those it depends on, so that one pass evaluates all of them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::flags::definition::Definition;
use crate::flags::definition::DefinitionError;
use crate::flags::definition::Runtime;
use crate::flags::definition::Stored;
use crate::flags::effort::Effort;
use crate::flags::evaluate::Cohorts;
use crate::flags::evaluate::Dependencies;
use crate::flags::evaluate::Dependency;
use crate::flags::evaluate::Surroundings;
use crate::flags::evaluate::evaluate;
use crate::flags::subject::Subject;
use crate::flags::trace::ConditionTrace;
use crate::flags::trace::trace;
use crate::flags::verdict::Failure;
use crate::flags::verdict::Reason;
use crate::flags::verdict::Verdict;

/// Keys of the flags that decide who sees a survey start so.
const SURVEY_TARGETING: &str = "survey-targeting-";

/// A stored flag, readable or not.
#[derive(Debug)]
pub struct Entry {
    /// Unique in the project.
    pub id: i64,
    /// Unique in the project.
    pub key: Box<str>,
    /// The version of the stored flag.
    pub version: i64,
    /// False for flags that are switched off.
    pub active: bool,
    /// The flag, or what is wrong with it.
    pub definition: Result<Definition, DefinitionError>,
}

/// The flags of a project.
///
/// Flags that are switched off belong here too: for a flag that depends on one, it is false. One that is
/// not here, as it was deleted, is missing, and so is the answer of those that depend on it: they are
/// off. No flag that others depend on can be deleted while these are on.
#[derive(Debug, Default)]
pub struct FlagSet {
    entries: Box<[Arc<Entry>]>,
    /// Places in `entries` that each flag depends on.
    dependencies: Box<[Box<[usize]>]>,
    /// Places in `entries`, dependencies first. Flags in a circle, and those that depend on one in
    /// a circle, are not here.
    order: Box<[usize]>,
    /// Whether the flag at that place is left out of the order.
    is_circular: Box<[bool]>,
    by_id: HashMap<i64, usize>,
    by_key: HashMap<Box<str>, usize>,
    effort: Effort,
}

/// Which flags a request asks for. The default is all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// Only these. An empty list is none.
    pub keys: Option<&'a [String]>,
    /// Only flags for this runtime; [`Runtime::All`] selects those that are for every runtime.
    pub runtime: Option<Runtime>,
    /// Only flags that name one of these contexts, or none. Empty: all flags.
    pub contexts: &'a [String],
    /// Only flags that decide who sees a survey.
    pub surveys_only: bool,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answers<'s> {
    /// In the order of the set.
    pub flags: Vec<Answer<'s>>,
    /// Whether a flag failed, or waits for itself: `errorsWhileComputingFlags`.
    pub has_errors: bool,
    /// By place, what came of flags that were not asked for, but that others depend on.
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
    /// The verdict, or why there is none.
    pub result: Result<Verdict<'s>, Failure>,
    /// Its place in the set.
    place: usize,
}

impl<'s> Answers<'s> {
    /// What came of the flag at a place of the set; `None` if it was not evaluated.
    fn at(&self, place: usize) -> Option<&Result<Verdict<'s>, Failure>> {
        let asked = self.flags.binary_search_by_key(&place, |answer| answer.place).ok();
        let asked = asked.and_then(|index| self.flags.get(index)).map(|answer| &answer.result);
        asked.or_else(|| self.others.get(place)?.as_ref())
    }
}

impl Entry {
    /// Reads a stored flag.
    pub fn read(stored: &Stored<'_>) -> Self {
        Self {
            id: stored.id,
            key: stored.key.into(),
            version: stored.version,
            active: stored.active,
            definition: Definition::parse(stored),
        }
    }

    /// The flag, if it is to be evaluated at all.
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

    /// What the evaluation of all of them takes.
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

    /// Evaluates the selected flags, and those they depend on.
    pub fn evaluate<'s>(
        &'s self,
        subject: &Subject<'_>,
        selection: &Selection<'_>,
        cohorts: &dyn Cohorts,
    ) -> Answers<'s> {
        let asked = self.asked(selection);
        let needed = self.needed(&asked, selection);
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
        pass.answers(&asked)
    }

    /// Why the flag with this key is what it is in `answers`; empty if it cannot be read. `filters`
    /// are those of the stored flag.
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

    /// Which flags the answer contains, by place.
    fn asked(&self, selection: &Selection<'_>) -> Vec<bool> {
        let Some(keys) = selection.keys else {
            return self.entries.iter().map(|entry| entry.is_selected(selection)).collect();
        };
        let mut asked = vec![false; self.entries.len()];
        for place in keys.iter().filter_map(|key| self.by_key.get(key.as_str())) {
            if let (Some(asked), Some(entry)) = (asked.get_mut(*place), self.entries.get(*place)) {
                *asked = entry.is_selected(selection);
            }
        }
        asked
    }

    /// Which flags are evaluated, by place. A flag that the selection excludes is false for those
    /// that depend on it, as an inactive one is.
    fn needed(&self, asked: &[bool], selection: &Selection<'_>) -> Vec<bool> {
        let mut needed = asked.to_vec();
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

/// The answers that a trace rests on. A flag that was not evaluated counts as off.
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

/// One evaluation of a set: what is known so far, by place.
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

    fn answers(self, asked: &[bool]) -> Answers<'s> {
        let Self { set, mut results } = self;
        let count = asked.iter().filter(|asked| **asked).count();
        let (mut flags, mut has_errors) = (Vec::with_capacity(count), false);
        for (place, (entry, slot)) in set.entries.iter().zip(&mut results).enumerate() {
            let result = if at(asked, place) { slot.take() } else { None };
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

/// What a flag that came to this is for one that depends on it.
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

/// The places in an order in which each comes after its dependencies (Kahn). Circles, and what
/// waits for them, are left out.
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
