//! Writes a write set: its changed rows to one batch, and after the commit to the caches.
//!
//! [`WriteSet::write`] puts every changed row into the batch once, because the entries of a batch
//! are unordered.

use std::collections::BTreeMap;
use std::sync::Arc;

use fjall::OwnedWriteBatch;
use serde_json::Value;

use crate::cache::IdState;
use crate::change::Warning;
use crate::change_feed::registry::Watched;
use crate::codec::Counters;
use crate::deletions::{Deletion, Mark};
use crate::gone::Gone;
use crate::loaded::GroupTypes;
use crate::person_set::PersonKey;
use crate::tables::Tables;
use crate::write_set::{PersonRow, WriteSet};
use crate::{IdentityError, codec};
use weir_event::id::ProjectId;

impl WriteSet<'_> {
    /// Puts every changed row into the batch.
    ///
    /// # Errors
    ///
    /// If a row cannot be encoded, or a counter cannot be read.
    pub(crate) fn write(
        &self,
        batch: &mut OwnedWriteBatch,
        tables: &Tables,
    ) -> Result<(), IdentityError> {
        for row in self.ids.values() {
            let Some((project, id)) = &row.changed else { continue };
            let key = codec::key(*project, &[id.as_bytes()]);
            match row.state {
                IdState::Person(number) => batch.insert(&tables.ids, key, number.to_be_bytes()),
                IdState::Personless => batch.insert(&tables.ids, key, 0_i64.to_be_bytes()),
                IdState::Unknown => batch.remove(&tables.ids, key),
            }
        }
        for (number, row) in &self.persons {
            row.write(batch, tables, *number)?;
        }
        self.write_places(batch, tables);
        self.write_emails(batch, tables);
        for (project, number, position) in &self.detached {
            let parts = [&number.to_be_bytes()[..], &position.to_be_bytes()[..]];
            batch.remove(&tables.person_ids, codec::key(*project, &parts));
        }
        for ((project, uuid), number) in &self.uuids {
            let key = codec::key(*project, &[uuid.as_bytes()]);
            match number {
                Some(number) => batch.insert(&tables.uuids, key, number.to_be_bytes()),
                None => batch.remove(&tables.uuids, key),
            }
        }
        for ((project, from), to) in &self.overrides {
            let key = codec::key(*project, &[from.as_bytes()]);
            match from == to {
                true => batch.remove(&tables.overrides, key),
                false => batch.insert(&tables.overrides, key, &to.as_bytes()[..]),
            }
        }
        for (project, uuid) in &self.splits {
            batch.insert(&tables.meta, codec::split_key(*project, *uuid), b"");
        }
        for mark in &self.marks {
            let Mark { place, person, asked_at, ids } = mark;
            let deletion = Deletion { person: *person, asked_at: *asked_at, done_at: None };
            let row = codec::encode_deletion(&deletion);
            batch.insert(&tables.deletions, codec::deletion_key(*place), row);
            let ids = codec::encode_deleting(ids)?;
            batch.insert(&tables.meta, codec::deleting_key(*place), ids);
        }
        for (project, gone) in &self.new_gone {
            let key = codec::meta_key(codec::GONE_PREFIX, *project);
            batch.insert(&tables.meta, key, codec::encode_gone(gone));
        }
        self.write_projects(batch, tables)?;
        batch.insert(&tables.meta, codec::COUNTERS_KEY, self.counters.encode());
        Ok(())
    }

    /// Updates the keys of persons in `listed`.
    fn write_places(&self, batch: &mut OwnedWriteBatch, tables: &Tables) {
        // A person may take the key that another one leaves, and a batch is unordered.
        let mut places: BTreeMap<Vec<u8>, Option<i64>> = BTreeMap::new();
        for (number, row) in &self.persons {
            let left = row.before.as_ref().map(|before| (before.created_at, before.uuid));
            let taken = row.person.as_ref().map(|person| (person.created_at, person.uuid));
            if left == taken {
                continue;
            }
            let key = |(at, uuid)| codec::listed_key(row.project, at, uuid);
            if let Some(left) = left {
                places.entry(key(left)).or_insert(None);
            }
            if let Some(taken) = taken {
                places.insert(key(taken), Some(*number));
            }
        }
        for (key, number) in places {
            match number {
                Some(number) => batch.insert(&tables.listed, key, number.to_be_bytes()),
                None => batch.remove(&tables.listed, key),
            }
        }
    }

    /// Updates the keys of persons in `emails`.
    fn write_emails(&self, batch: &mut OwnedWriteBatch, tables: &Tables) {
        for (number, row) in self.persons.iter().filter(|(_, row)| row.is_changed) {
            let old = row.before.as_ref().and_then(|before| before.email.as_ref());
            let new = row.person.as_ref().and_then(|person| person.properties.get(codec::EMAIL));
            if old == new {
                continue;
            }
            let key = |email: &Value| codec::email_key(row.project, email, *number);
            let (old, new) = (old.map(key), new.map(key));
            // Two spellings may have one key, and a batch is unordered.
            if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
                batch.remove(&tables.emails, old);
            }
            if let Some(new) = new {
                batch.insert(&tables.emails, new, b"");
            }
        }
    }

    /// Writes groups, group types and person counts.
    fn write_projects(
        &self,
        batch: &mut OwnedWriteBatch,
        tables: &Tables,
    ) -> Result<(), IdentityError> {
        for ((project, index, key), group) in &self.groups {
            let key = codec::key(*project, &[&[*index], key.as_bytes()]);
            batch.insert(&tables.groups, key, codec::encode_group(group)?);
        }
        let mut changed = self.types_changed.clone();
        changed.sort_unstable();
        changed.dedup();
        for project in changed {
            let types = self.types.get(&project).map_or(&[][..], |types| types);
            let key = codec::meta_key(codec::TYPES_PREFIX, project);
            batch.insert(&tables.meta, key, codec::encode_types(types)?);
        }
        for (project, more) in &self.counts {
            let before = i64::try_from(self.view.person_count(*project)?).unwrap_or(i64::MAX);
            let count = before.saturating_add(*more);
            let key = codec::meta_key(codec::COUNT_PREFIX, *project);
            batch.insert(&tables.meta, key, count.to_be_bytes());
        }
        Ok(())
    }

    /// The persons whose rows are written or removed, or those of them who have other distinct ids or another uuid
    /// afterwards.
    pub(crate) fn changed(&self, watched: Watched) -> Vec<PersonKey> {
        let is_watched = |row: &PersonRow| match watched {
            Watched::Persons => row.is_changed,
            Watched::DistinctIds => row.is_changed && row.has_other_ids(),
        };
        let rows = self.persons.iter().filter(|(_, row)| is_watched(row));
        let mut changed: Vec<PersonKey> =
            rows.map(|(number, row)| (row.project, *number)).collect();
        if watched == Watched::DistinctIds {
            changed.extend(self.detached.iter().map(|(project, number, _)| (*project, *number)));
        }
        changed
    }

    /// Updates the caches to the committed rows, and returns the other changes. Call it only after
    /// the commit.
    pub(crate) fn publish(self) -> Published {
        for (fingerprint, row) in self.ids {
            // Known ids are read often. Unknown ones are not cached: they soon become known.
            if row.state != IdState::Unknown && !row.is_cached {
                self.caches.remember_id(fingerprint, row.state);
            } else if row.changed.is_some() {
                self.caches.forget_id(fingerprint);
            }
        }
        for (number, row) in self.persons {
            if let Some(settled) = row.settled {
                self.caches.remember_settled(number, settled);
            }
            match row.person {
                Some(person) if row.is_changed || !row.is_cached => {
                    self.caches.remember_row(person);
                }
                Some(_) => {}
                None => self.caches.forget_row(number),
            }
        }
        Published {
            counters: self.counters,
            marks: self.marks,
            gone: self.new_gone,
            types: (!self.types_changed.is_empty()).then_some(self.types),
            warnings: self.warnings,
        }
    }
}

/// The changes of a commit outside the database.
pub(crate) struct Published {
    pub(crate) counters: Counters,
    pub(crate) marks: Vec<Mark>,
    pub(crate) gone: BTreeMap<ProjectId, Gone>,
    pub(crate) types: Option<Arc<GroupTypes>>,
    pub(crate) warnings: Vec<Warning>,
}

impl PersonRow {
    /// Whether it is new or gone, has another uuid, or gained distinct ids.
    fn has_other_ids(&self) -> bool {
        let before = self.before.as_ref().map(|before| before.uuid);
        before != self.person.as_ref().map(|person| person.uuid) || !self.attached.is_empty()
    }

    fn write(
        &self,
        batch: &mut OwnedWriteBatch,
        tables: &Tables,
        number: i64,
    ) -> Result<(), IdentityError> {
        if !self.is_changed {
            return Ok(());
        }
        let key = codec::key(self.project, &[&number.to_be_bytes()]);
        match &self.person {
            Some(person) => batch.insert(&tables.persons, key, codec::encode_person(person)?),
            None if self.is_stored => batch.remove(&tables.persons, key),
            None => {}
        }
        for (position, id) in &self.attached {
            let parts = [&number.to_be_bytes()[..], &position.to_be_bytes()[..]];
            let id = codec::encode_distinct_id(id);
            batch.insert(&tables.person_ids, codec::key(self.project, &parts), id);
        }
        Ok(())
    }
}
