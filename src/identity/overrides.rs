//! Which person an event belongs to today, given the person it was stored with.
//!
//! One entry per distinct id that is not its person's first. No chains: every entry names the final
//! survivor, because a merge moves all distinct ids of the source and writes an entry for each.
//!
//! A split takes entries away. But events of before may be stored under the person they were merged
//! into, whoever of its ids they have: compaction folds survivors into files. So the uuids that the
//! parts of a split person have or ever had are remembered, and an event stored under one of them
//! belongs to whom its distinct id says. That is exact, whatever was folded when: a person's uuid
//! is made from one of its ids, ids part only by a split, and then all of them are remembered.
//!
//! # Why
//!
//! There is an entry for every login of somebody who was there before, and no entry ever becomes
//! useless: files are folded when they are merged, but the next event of an old distinct id is
//! stored under its own person again. So entries stay in the database and are read one by one,
//! through a filter and a cache of fixed size ([`survivors`](super::survivors)). Uuids of splits are kept
//! in memory: there is one for each distinct id of a person that was split, or deleted while it had
//! several. Who is deleted with the one id of before any merge, as most are, leaves none.

use std::sync::Arc;

use hashbrown::HashSet;
use uuid::Uuid;

use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::survivors::Key;
use crate::identity::survivors::Opening;
use crate::identity::survivors::Seen;
use crate::identity::survivors::Survivors;
use crate::identity::view::View;

/// Uuids that persons had before they were split.
pub(super) type Splits = HashSet<Key>;

/// All overrides, as of one state. Reads may touch the disk.
#[derive(Debug)]
pub struct Overrides {
    view: View,
    /// The state of the view; `None` if it cannot be read, and then no entry can.
    seen: Option<Seen>,
    survivors: Arc<Survivors>,
    /// At least those of the view. Who was not split yet is found by the distinct id as well.
    splits: Arc<Splits>,
    has_any: bool,
}

impl Overrides {
    /// As of `view`, before which was asked for `opening`. `splits` must be no older.
    pub(super) fn new(
        (opening, view): (Opening, View),
        survivors: Arc<Survivors>,
        splits: Arc<Splits>,
    ) -> Self {
        let counters = view.counters().ok();
        let seen = counters.map(|counters| Seen { point: counters.point(), opening });
        // After the view was taken: what is in the view was noted before.
        let has_any = survivors.has_any();
        Self { view, seen, survivors, splits, has_any }
    }

    /// The person that events stored with `person` belong to; `person` itself if it was not merged.
    /// Only right for persons that were never split; see [`Overrides::of_event`].
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged.
    pub fn resolve(&self, project: ProjectId, person: Uuid) -> Result<Uuid, IdentityError> {
        Ok(self.get(project, person)?.unwrap_or(person))
    }

    /// The person that replaces `person`, if one does.
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged.
    pub fn get(&self, project: ProjectId, person: Uuid) -> Result<Option<Uuid>, IdentityError> {
        if !self.has_any {
            return Ok(None);
        }
        let seen = self.seen.ok_or(IdentityError::Reopening)?;
        let read = || self.view.survivor_of(project, person);
        self.survivors.get((project, person), seen, read)
    }

    /// The person that an event belongs to that was stored with `person`, if it is another.
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged.
    pub fn of_event(
        &self,
        project: ProjectId,
        person: Uuid,
        distinct_id: &str,
    ) -> Result<Option<Uuid>, IdentityError> {
        if !self.splits.contains(&(project, person)) {
            return self.get(project, person);
        }
        let own = PersonId::of(project, distinct_id).0;
        Ok(Some(self.resolve(project, own)?).filter(|owner| *owner != person))
    }

    /// Whether any person of the project was ever split, so that the distinct ids of events count.
    pub fn has_splits(&self, project: ProjectId) -> bool {
        self.splits.iter().any(|(of, _)| *of == project)
    }

    /// Whether any person of the project was merged or split. True as well where that cannot be read.
    pub fn concerns(&self, project: ProjectId) -> bool {
        self.has_splits(project)
            || (self.has_any && self.view.has_overrides(project).unwrap_or(true))
    }

    /// Whether every event belongs to the person that it was stored with.
    pub fn is_empty(&self) -> bool {
        !self.has_any && self.splits.is_empty()
    }

    /// All entries `((project, person), survivor)`, each once, by their keys.
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
