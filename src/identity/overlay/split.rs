//! A split carried out: the rule is in `decide/split`.

use serde_json::Map;
use uuid::Uuid;

use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::cache::IdState;
use crate::identity::change::Op;
use crate::identity::change::WarningKind;
use crate::identity::decide::split;
use crate::identity::overlay::Overlay;
use crate::identity::person::Person;

impl Overlay<'_> {
    /// Gives every distinct id of a person but one a person of its own.
    pub(super) fn split(
        &mut self,
        project: ProjectId,
        op: &Op,
        uuid: Uuid,
        main: Option<&str>,
    ) -> Result<(), IdentityError> {
        let Some(number) = self.number_of(project, uuid)? else {
            self.warn(project, op, WarningKind::PersonGone);
            return Ok(());
        };
        let before = self.find_person(project, number)?;
        let ids = self.ids_of(project, number)?;
        let Some(parts) = split::parts(project, uuid, &ids, main) else {
            let is_its_own = |main: &str| ids.values().any(|id| id.as_ref() == main);
            if !main.is_none_or(is_its_own) {
                self.warn(project, op, WarningKind::PersonGone);
            }
            return Ok(());
        };
        let version = before.version.saturating_add(1);
        let sequence = self.counters.applied;
        for (position, id) in self.detach_all(project, number)? {
            let own = PersonId::of(project, &id).0;
            self.splits.insert((project, own));
            // The way from the uuid of each id leads to itself from now on.
            self.overrides.insert((project, own), own);
            let owner = if position == parts.kept {
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
            self.set_id(project, &id, IdState::Person(owner));
            self.attach(project, owner, (position, id));
        }
        self.uuids.insert((project, parts.uuid), Some(number));
        let row = self.row_to_change(number)?;
        if let Some(person) = row.person.as_mut().map(std::sync::Arc::make_mut) {
            person.uuid = parts.uuid;
            person.version = version;
            person.changed_sequence = sequence;
        }
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
