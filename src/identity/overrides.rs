//! Overrides: maps the person that an event was stored with to the person that it belongs to today.
//!
//! One entry per distinct id that is not its person's first. No chains: every entry contains the final
//! survivor, because a merge moves all distinct ids of the source and writes an entry for each.
//!
//! A split removes entries. But compaction folds survivors into files, so earlier events may be stored
//! under the person that they were merged into, whichever of its ids they have. Therefore all uuids that
//! the parts of a split person have or ever had are remembered, and an event stored under one of them is
//! resolved by its distinct id. That is exact, whatever was folded when: a person's uuid is made from one
//! of its ids, ids part only by a split, and then all of them are remembered.
//!
//! # Why
//!
//! Every login of a person with earlier anonymous events adds an entry, and no entry ever becomes useless:
//! files are folded when they are merged, but the next event of an old distinct id is stored under its own
//! uuid again. So entries stay in the database and are read one by one, through a filter and a cache of
//! fixed size ([`survivors`](super::survivors)). Uuids of splits are kept in memory: one for each distinct
//! id of a person that was split, or deleted while it had several. A person deleted with a single id,
//! before any merge, leaves none; most deleted persons are of this kind.

use std::convert::Infallible;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use uuid::Uuid;

use crate::IdentityError;
use crate::survivors::{Key, Opening, Seen, Survivors};
use crate::view::{Flow, View};
use weir_event::id::{PersonId, ProjectId};

/// Uuids of persons that were split, or deleted while they had several distinct ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Splits(HashMap<ProjectId, Arc<HashSet<Uuid>>>);

impl Splits {
    fn contains(&self, project: ProjectId, person: Uuid) -> bool {
        self.0.get(&project).is_some_and(|persons| persons.contains(&person))
    }
}

impl Extend<Key> for Splits {
    fn extend<T: IntoIterator<Item = Key>>(&mut self, keys: T) {
        for (project, person) in keys {
            Arc::make_mut(self.0.entry(project).or_default()).insert(person);
        }
    }
}

/// All overrides as of one state. Reads may touch the disk.
#[derive(Debug)]
pub struct Overrides {
    view: View,
    /// The state of the view; `None` if it cannot be read, and then no entry can be read either.
    seen: Option<Seen>,
    survivors: Arc<Survivors>,
    /// At least those of the view. Resolving a person that was not split yet by distinct id is also right.
    splits: Arc<Splits>,
    has_any: bool,
}

/// A state of the overrides.
#[derive(Clone, Copy, Debug)]
pub struct OverridesAt(Seen);

/// The person that replaces each person that was merged.
pub type SurvivorMap = HashMap<Uuid, Uuid>;

/// The overrides of one project as of one state, for processes that do not have the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverrideMap {
    /// The person that replaced each person that was merged, as of another state.
    pub base: Arc<SurvivorMap>,
    /// The same of those for whom it may be another one now; itself for one that is not replaced any more.
    pub survivors: SurvivorMap,
    /// Persons whose events may belong to several persons, by their distinct ids.
    pub splits: HashSet<Uuid>,
}

impl OverrideMap {
    /// The person that replaces `person`, if one does. See [`Overrides::get`].
    pub fn get(&self, person: Uuid) -> Option<Uuid> {
        match self.survivors.get(&person) {
            Some(survivor) => Some(*survivor).filter(|survivor| *survivor != person),
            None => self.base.get(&person).copied(),
        }
    }

    /// The person that an event stored with `person` belongs to, if it is another one. See [`Overrides::of_event`].
    pub fn of_event(&self, project: ProjectId, person: Uuid, distinct_id: &str) -> Option<Uuid> {
        let is_split = self.splits.contains(&person);
        let Ok(owner) = owner(is_split, (project, person), distinct_id, |person| {
            Ok::<_, Infallible>(self.get(person))
        });
        owner
    }
}

/// The person that an event stored with `person` belongs to, if it is another one. `get` is the person that replaces one.
fn owner<E>(
    is_split: bool,
    (project, person): Key,
    distinct_id: &str,
    get: impl Fn(Uuid) -> Result<Option<Uuid>, E>,
) -> Result<Option<Uuid>, E> {
    if !is_split {
        return get(person);
    }
    let own = PersonId::of(project, distinct_id).0;
    Ok(Some(get(own)?.unwrap_or(own)).filter(|owner| *owner != person))
}

impl Overrides {
    /// As of `view`. `opening` was read before the view was taken, and `splits` must be no older.
    pub(super) fn new(
        opening: Opening,
        view: View,
        survivors: Arc<Survivors>,
        splits: Arc<Splits>,
    ) -> Self {
        let counters = view.counters().ok();
        let seen = counters.map(|counters| Seen { point: counters.point(), opening });
        // After the view was taken: every entry of the view was added before.
        let has_any = survivors.has_any();
        Self { view, seen, survivors, splits, has_any }
    }

    /// The person that events stored with `person` belong to; `person` itself if it was not merged.
    /// Right only for persons that were never split; see [`Overrides::of_event`].
    pub fn resolve(&self, project: ProjectId, person: Uuid) -> Result<Uuid, IdentityError> {
        Ok(self.get(project, person)?.unwrap_or(person))
    }

    /// The person that replaces `person`, if one does.
    pub fn get(&self, project: ProjectId, person: Uuid) -> Result<Option<Uuid>, IdentityError> {
        if !self.has_any {
            return Ok(None);
        }
        let seen = self.seen.ok_or(IdentityError::Reopening)?;
        let read = || self.view.survivor_of(project, person);
        self.survivors.get((project, person), seen, read)
    }

    /// The person that an event stored with `person` belongs to, if it is another one.
    pub fn of_event(
        &self,
        project: ProjectId,
        person: Uuid,
        distinct_id: &str,
    ) -> Result<Option<Uuid>, IdentityError> {
        let is_split = self.splits.contains(project, person);
        owner(is_split, (project, person), distinct_id, |person| self.get(project, person))
    }

    /// Whether events stored with `person` may belong to several persons, by their distinct ids.
    pub fn is_split(&self, project: ProjectId, person: Uuid) -> bool {
        self.splits.contains(project, person)
    }

    /// Whether any person of the project was ever split, so that the distinct ids of events are needed.
    pub fn has_splits(&self, project: ProjectId) -> bool {
        self.splits.0.contains_key(&project)
    }

    /// Whether any person of the project was merged or split. True if that cannot be read.
    pub fn concerns(&self, project: ProjectId) -> bool {
        self.has_splits(project)
            || (self.has_any && self.view.has_overrides(project).unwrap_or(true))
    }

    /// Whether every event belongs to the person that it was stored with.
    pub fn is_empty(&self) -> bool {
        !self.has_any && self.splits.0.is_empty()
    }

    /// The state that these are of; `None` if it cannot be read.
    pub fn at(&self) -> Option<OverridesAt> {
        self.seen.map(OverridesAt)
    }

    /// The persons of a project of whom the entries may differ between another state and this one, each with the person
    /// that replaces it in this one, itself if none does. `None` if too many have changed between them.
    pub fn changes_since(
        &self,
        project: ProjectId,
        OverridesAt(other): OverridesAt,
    ) -> Result<Option<SurvivorMap>, IdentityError> {
        let Some(seen) = self.seen else { return Ok(None) };
        let Some(changed) = self.survivors.changed_between(project, other, seen) else {
            return Ok(None);
        };
        let survivor = |person| Ok((person, self.resolve(project, person)?));
        changed.into_iter().map(survivor).collect::<Result<_, _>>().map(Some)
    }

    /// Visits all entries of a project, each person with the one that replaces it, in an order that is always the same.
    pub fn each_of(
        &self,
        project: ProjectId,
        mut visit: impl FnMut(Uuid, Uuid) -> Flow,
    ) -> Result<(), IdentityError> {
        match self.has_any {
            true => self
                .view
                .scan_overrides_of(project, |(_, person), survivor| Ok(visit(person, survivor))),
            false => Ok(()),
        }
    }

    /// The persons of a project whose events may belong to several persons, by their distinct ids.
    pub fn splits_of(&self, project: ProjectId) -> HashSet<Uuid> {
        self.splits.0.get(&project).map(|own| HashSet::clone(own)).unwrap_or_default()
    }

    /// The overrides of a project as a value; `None` if it has more than `entries_max` of a kind.
    pub fn map_of(
        &self,
        project: ProjectId,
        entries_max: usize,
    ) -> Result<Option<OverrideMap>, IdentityError> {
        let (splits, mut survivors) = (self.splits_of(project), SurvivorMap::new());
        self.each_of(project, |person, survivor| {
            survivors.insert(person, survivor);
            match survivors.len() > entries_max {
                true => Flow::Break(()),
                false => Flow::Continue(()),
            }
        })?;
        let fits = survivors.len() <= entries_max && splits.len() <= entries_max;
        Ok(fits.then(|| OverrideMap { survivors, splits, ..OverrideMap::default() }))
    }

    /// All entries `((project, person), survivor)` in the order of their keys.
    #[cfg(test)]
    pub(super) fn entries(&self) -> Result<Vec<(Key, Uuid)>, IdentityError> {
        let mut entries = Vec::new();
        self.view.scan_overrides(|key, survivor| {
            entries.push((key, survivor));
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(entries)
    }
}
