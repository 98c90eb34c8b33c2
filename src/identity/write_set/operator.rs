//! Applies operators' operations on one person or group: property changes and deletions.

use std::sync::Arc;

use serde_json::Map;
use uuid::Uuid;

use crate::auto_set::Settled;
use crate::cache::IdState;
use crate::change::{
    Difference, Done, Effect, Extent, GroupChange, Op, PersonDone, Update, WarningKind,
};
use crate::decide::{Change, group};
use crate::deletions::{Mark, RequestKey};
use crate::gone::{Gone, GoneProjects};
use crate::person::{Group, Person};
use crate::write_set::{WriteSet, memory_estimate};
use crate::{IdentityError, decide};
use weir_event::id::{PersonId, ProjectId};

impl WriteSet<'_> {
    /// Changes properties of a person.
    pub(super) fn change(
        &mut self,
        project: ProjectId,
        op: &Op,
        uuid: Uuid,
        update: &Update,
    ) -> Result<(), IdentityError> {
        let Some(number) = self.number_of(project, uuid)? else {
            self.warn(project, op, WarningKind::PersonGone);
            return Ok(());
        };
        let person = self.find_person(project, number)?;
        let decision = decide::change(&person, update);
        decision.warnings.into_iter().for_each(|kind| self.warn(project, op, kind));
        let Change::Update(revision) = decision.change else { return Ok(()) };
        self.revise(project, op, revision)?;
        let after = self.find_person(project, number)?;
        let properties = Difference::between(&person.properties, &after.properties);
        if !properties.is_none() {
            self.has_effect(project, op, to_person(&person, PersonDone::Changed(properties)));
        }
        Ok(())
    }

    /// Creates a group, or changes its properties. The whole row of the group is rewritten.
    pub(super) fn change_group(
        &mut self,
        project: ProjectId,
        op: &Op,
        GroupChange { group_type, key, is_new, set, unset }: &GroupChange,
    ) -> Result<(), IdentityError> {
        let known = self.types.get(&project).and_then(|types| {
            types.iter().position(|name| name == group_type).and_then(|at| u8::try_from(at).ok())
        });
        let Some(type_index) = known.filter(|_| group::is_group_name(key)) else {
            return Ok(());
        };
        let place = (project, type_index, key.clone());
        let before = match self.groups.get(&place) {
            Some(group) => Some(group.clone()),
            None => self.view.group(project, type_index, key)?,
        };
        if before.is_some() == *is_new {
            return Ok(());
        }
        let new = || Group { created_at: op.timestamp, properties: Map::new() };
        let before = before.unwrap_or_else(new);
        let mut group = before.clone();
        if !group::merge_group(&mut group.properties, set, unset) {
            self.warn(project, op, WarningKind::PropertiesTooLarge);
            return Ok(());
        }
        let properties = Difference::between(&before.properties, &group.properties);
        if *is_new || !properties.is_none() {
            self.grow(memory_estimate::group(key, &group));
            self.groups.insert(place, group);
            let done = Done::Group { type_index, key: key.clone(), is_new: *is_new, properties };
            self.has_effect(project, op, done);
        }
        Ok(())
    }

    /// The person of an operation that changes all its distinct ids, unless it is gone or has too many: the
    /// operation then does nothing but warn.
    pub(super) fn person_to_rewrite(
        &mut self,
        project: ProjectId,
        op: &Op,
        uuid: Uuid,
    ) -> Result<Option<Arc<Person>>, IdentityError> {
        let Some(number) = self.number_of(project, uuid)? else {
            self.warn(project, op, WarningKind::PersonGone);
            return Ok(None);
        };
        let person = self.find_person(project, number)?;
        if self.has_too_many_ids(project, number)? {
            self.warn(project, op, WarningKind::TooManyIds);
            return Ok(None);
        }
        Ok(Some(person))
    }

    /// Deletes a person, its events, or both.
    pub(super) fn delete(
        &mut self,
        project: ProjectId,
        op: &Op,
        uuid: Uuid,
        extent: Extent,
    ) -> Result<(), IdentityError> {
        let Some(before) = self.person_to_rewrite(project, op, uuid)? else { return Ok(()) };
        let number = before.number;
        let ids = self.ids_of(project, number)?;
        let deleted_ids =
            ids.values().filter(|_| extent.has_person()).map(|id| id.text.to_string());
        let done = PersonDone::Deleted { extent, distinct_ids: deleted_ids.collect() };
        self.has_effect(project, op, to_person(&before, done));
        drop(before);
        if extent.has_events() {
            let ids = ids.into_values().map(|id| id.text).collect();
            self.mark(project, op, uuid, ids);
        }
        if !extent.has_person() {
            return Ok(());
        }
        let state = if extent.has_events() { IdState::Unknown } else { IdState::Personless };
        let detached = self.detach_all(project, number)?;
        let is_one = detached.len() == 1;
        for (_, id) in detached {
            let own = PersonId::of(project, &id.text).0;
            // As after a split: earlier events belong to the owner of their distinct id. A person
            // with one id and the uuid made from it needs no entry, because it has no other uuids:
            // an id that left it did so by a split or a deletion, which recorded this uuid, too.
            if !(is_one && own == uuid) {
                self.grow(memory_estimate::entry(0) * 2);
                self.splits.insert((project, own));
                self.overrides.insert((project, own), own);
            }
            self.set_id(project, &id.text, state);
        }
        self.uuids.insert((project, uuid), None);
        let row = self.row_to_change(number)?;
        row.settled = Some(Settled::default());
        row.person = None;
        *self.counts.entry(project).or_insert(0) -= 1;
        Ok(())
    }

    /// Ops of these projects have no effect from here on.
    pub(crate) fn ignore(&mut self, gone: Arc<GoneProjects>) {
        self.gone = gone;
    }

    /// Deletes a project: its rows are removed later.
    pub(super) fn delete_project(&mut self, project: ProjectId, op: &Op) {
        let gone = Gone { sequence: self.sequence(), asked_at: op.timestamp, done_at: None };
        self.grow(memory_estimate::entry(0));
        self.new_gone.insert(project, gone);
    }

    /// Records that the events of these distinct ids are deleted that come before the current
    /// record.
    fn mark(&mut self, project: ProjectId, op: &Op, person: Uuid, ids: Vec<Box<str>>) {
        let place = RequestKey { project, sequence: self.sequence(), ordinal: self.marks_made() };
        self.grow(
            ids.iter().map(|id| memory_estimate::entry(id.len())).fold(0, u64::saturating_add),
        );
        self.marks.push(Mark { place, person, asked_at: op.timestamp, ids });
    }

    /// Records the effect of an operation.
    pub(super) fn has_effect(&mut self, project: ProjectId, op: &Op, done: Done) {
        let (sequence, at) = (self.sequence(), op.timestamp);
        let progress = &mut self.counters.progress;
        let place = progress.effects;
        progress.effects = place.saturating_add(1);
        self.grow(memory_estimate::effect(&done));
        self.effects.push(Effect { project, sequence, place, at, done });
    }

    /// The number of requests to delete events that the record made before this one.
    fn marks_made(&mut self) -> u32 {
        let marks = &mut self.counters.progress.marks;
        let before = *marks;
        *marks = before.saturating_add(1);
        before
    }
}

/// The effect on a person, whose row before it is `before`.
pub(super) fn to_person(before: &Person, done: PersonDone) -> Done {
    Done::Person { number: before.number, uuid: before.uuid, done }
}
