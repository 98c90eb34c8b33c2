//! Applies splits of persons; the rule is in `decide/split`.

use serde_json::Map;
use uuid::Uuid;

use crate::IdentityError;
use crate::cache::IdState;
use crate::change::{Keep, Op, PersonDone, WarningKind};
use crate::decide::split;
use crate::person::{DistinctId, Person};
use crate::write_set::operator::to_person;
use crate::write_set::{WriteSet, memory_estimate};
use weir_event::id::{PersonId, ProjectId};

impl WriteSet<'_> {
    /// Creates a person for every distinct id that the split person does not keep.
    pub(super) fn split(
        &mut self,
        project: ProjectId,
        op: &Op,
        uuid: Uuid,
        keep: &Keep,
    ) -> Result<(), IdentityError> {
        let Some(before) = self.person_to_rewrite(project, op, uuid)? else { return Ok(()) };
        let number = before.number;
        let ids = self.ids_of(project, number)?;
        let parts = match split::parts(project, uuid, &ids, keep) {
            Ok(Some(parts)) => parts,
            Ok(None) => return Ok(()),
            Err(split::Impossible) => {
                self.warn(project, op, WarningKind::PersonGone);
                return Ok(());
            }
        };
        let names = |ids: &mut dyn Iterator<Item = &DistinctId>| -> Vec<String> {
            ids.map(|id| id.text.to_string()).collect()
        };
        let kept = &mut parts.kept.iter().filter_map(|position| ids.get(position));
        let done = PersonDone::Split { before: names(&mut ids.values()), after: names(kept) };
        let version = before.version.saturating_add(1);
        let sequence = self.sequence();
        for (position, id) in self.detach_all(project, number)? {
            let own = PersonId::of(project, &id.text).0;
            self.grow(memory_estimate::entry(0) * 2);
            self.splits.insert((project, own));
            let is_kept = parts.kept.contains(&position);
            // The uuid of an id maps to itself from now on, or to the person that keeps the id.
            let now = if is_kept { parts.uuid } else { own };
            self.overrides.insert((project, own), now);
            let owner = if is_kept {
                number
            } else {
                let person = Person {
                    number: 0,
                    uuid: own,
                    created_at: op.timestamp,
                    properties: Map::new(),
                    is_identified: false,
                    version,
                    changed_sequence: sequence,
                };
                self.insert_person(project, person)
            };
            self.set_id(project, &id.text, IdState::Person(owner));
            let since = if now == uuid { id.since } else { Some(op.timestamp) };
            let id = DistinctId { since, ..id };
            self.attach(project, owner, position, id);
        }
        self.uuids.insert((project, parts.uuid), Some(number));
        let row = self.row_to_change(number)?;
        if let Some(person) = row.person.as_mut().map(std::sync::Arc::make_mut) {
            person.uuid = parts.uuid;
            person.version = version;
            person.changed_sequence = sequence;
        }
        self.has_effect(project, op, to_person(&before, done));
        Ok(())
    }

    /// The person with this uuid as of now.
    pub(super) fn number_of(
        &self,
        project: ProjectId,
        uuid: Uuid,
    ) -> Result<Option<i64>, IdentityError> {
        match self.uuids.get(&(project, uuid)) {
            Some(number) => Ok(*number),
            None => self.view.number_of(project, uuid),
        }
    }
}
