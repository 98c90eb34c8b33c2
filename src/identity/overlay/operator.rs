//! What operators do to one person, carried out: changes of properties, and the end.

use uuid::Uuid;

use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::cache::IdState;
use crate::identity::change::Extent;
use crate::identity::change::Op;
use crate::identity::change::Update;
use crate::identity::change::WarningKind;
use crate::identity::decide;
use crate::identity::decide::Change;
use crate::identity::deletions::Mark;
use crate::identity::deletions::Place;
use crate::identity::lifted::Settled;
use crate::identity::overlay::Overlay;

impl Overlay<'_> {
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
        drop(person);
        decision.warnings.into_iter().for_each(|kind| self.warn(project, op, kind));
        match decision.change {
            Change::Update(revision) => self.revise(project, revision),
            _ => Ok(()),
        }
    }

    /// Deletes a person, its events, or both.
    pub(super) fn delete(
        &mut self,
        project: ProjectId,
        op: &Op,
        uuid: Uuid,
        extent: Extent,
    ) -> Result<(), IdentityError> {
        let Some(number) = self.number_of(project, uuid)? else {
            self.warn(project, op, WarningKind::PersonGone);
            return Ok(());
        };
        self.find_person(project, number)?;
        if extent.has_events() {
            let ids = self.ids_of(project, number)?.into_values().collect();
            self.mark(project, op, (uuid, ids));
        }
        if !extent.has_person() {
            return Ok(());
        }
        let state = if extent.has_events() { IdState::Unknown } else { IdState::Personless };
        for (_, id) in self.detach_all(project, number)? {
            let own = PersonId::of(project, &id).0;
            // As after a split: an event of before belongs to whom its distinct id says.
            self.splits.insert((project, own));
            self.overrides.insert((project, own), own);
            self.set_id(project, &id, state);
        }
        self.uuids.insert((project, uuid), None);
        let row = self.row_to_change(number)?;
        row.settled = Some(Settled::default());
        row.person = None;
        *self.counts.entry(project).or_insert(0) -= 1;
        self.has_deleted = true;
        Ok(())
    }

    /// Remembers that the events of these distinct ids are deleted, as far as they come before the
    /// record that is being carried out.
    fn mark(&mut self, project: ProjectId, op: &Op, (person, ids): (Uuid, Vec<Box<str>>)) {
        let sequence = self.counters.applied;
        let before = self.marks.iter().rev().take_while(|mark| mark.place.sequence == sequence);
        let ordinal = u32::try_from(before.count()).unwrap_or(u32::MAX);
        let place = Place { project, sequence, ordinal };
        self.marks.push(Mark { place, person, asked_at: op.timestamp, ids });
    }
}
