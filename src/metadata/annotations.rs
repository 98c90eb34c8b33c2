//! Annotations of definitions, which people write: [`Notes`] of an event or property definition,
//! stored beside what ingest has seen. Includes the rules of hiding and verifying.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::entity::{Columns, Patch, entity};
use crate::error::MetadataError;
use crate::violation::Violation;
use crate::{Metadata, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

entity! {
    /// The annotations of one definition.
    #[derive(Default)]
    pub struct Notes in "definition_notes" {
        /// The definition, of either kind.
        definition: Uuid [key],
        /// Its project.
        project: ProjectId as "project_id" [once],
        /// Time of the verification.
        verified_at: Option<UnixMicros>,
        /// The user who verified it.
        verified_by: Option<UserId>,
        /// Time of the last edit of the definition.
        updated_at: Option<UnixMicros>,
        /// The user of the last edit.
        updated_by: Option<UserId>,
    }
    /// Changes to annotations; `None` leaves a field unchanged.
    pub struct NotesPatch {
        /// What the events or the values mean.
        description: Option<String> [logged],
        /// The owner of the events, who must be a user; always `None` for properties.
        owner: Option<UserId> [logged],
        /// Whether a user verified the definition. Never together with `hidden`.
        verified: bool [logged],
        /// Whether lists for choosing an event omit it.
        hidden: bool [logged],
        /// Columns of lists of such events, kept for the client; empty for properties.
        default_columns: Vec<String> [logged],
        /// The property whose value is shown beside such events; always `None` for properties.
        primary_property: Option<String> [logged],
    }
}

/// User and time of an edit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit {
    pub(super) by: UserId,
    pub(super) at: UnixMicros,
}

impl Notes {
    /// The annotations of a `thing` (`event`, `property`) after a change. Hiding removes the
    /// verification, and verifying ends hiding; the first verification stays.
    ///
    /// # Errors
    ///
    /// Both in one change.
    pub(super) fn edited(
        self,
        thing: &str,
        patch: NotesPatch,
        edit: Edit,
    ) -> Result<Self, Violation> {
        if patch.hidden == Some(true) && patch.verified == Some(true) {
            let article = if thing.starts_with('e') { "An" } else { "A" };
            let detail = format!("{article} {thing} cannot be both hidden and verified");
            return Err(Violation::general(detail));
        }
        let (was_verified, is_verifying) = (self.verified, patch.verified == Some(true));
        let mut notes = patch.applied(self);
        notes.hidden &= !is_verifying;
        notes.verified &= !notes.hidden;
        match (was_verified, notes.verified) {
            (true, true) => {}
            (false, true) => {
                (notes.verified_at, notes.verified_by) = (Some(edit.at), Some(edit.by))
            }
            (_, false) => (notes.verified_at, notes.verified_by) = (None, None),
        }
        (notes.updated_at, notes.updated_by) = (Some(edit.at), Some(edit.by));
        Ok(notes)
    }
}

impl Metadata {
    /// The annotations of a project's definitions of either kind, by the definitions' ids.
    /// Definitions without annotations are absent.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn annotations(
        &self,
        project: ProjectId,
    ) -> Result<HashMap<Uuid, Notes>, MetadataError> {
        let select = Notes::select("WHERE project_id = $1");
        let select = select.bind(project.0);
        let all: Vec<Notes> = select.fetch_all(&mut self.shared.db.reader().await?).await?;
        Ok(all.into_iter().map(|notes| (notes.definition, notes)).collect())
    }

    /// The property to show beside the events of each name, for all names that have one.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn primary_properties(
        &self,
        project: ProjectId,
    ) -> Result<BTreeMap<String, String>, MetadataError> {
        let rows: Vec<(String, String)> = sql::query_as(
            "SELECT d.name, n.primary_property FROM definition_notes n
             JOIN event_definitions d ON d.id = n.definition
             WHERE n.project_id = $1 AND n.primary_property IS NOT NULL",
        )
        .bind(project.0)
        .fetch_all(&mut self.shared.db.reader().await?)
        .await?;
        Ok(rows.into_iter().collect())
    }
}

/// The annotations of one definition of a project; empty if there are none.
pub(super) async fn of(
    connection: &mut Conn,
    project: ProjectId,
    definition: Uuid,
) -> Result<Notes, MetadataError> {
    let select = Notes::select("WHERE definition = $1").bind(definition.to_string());
    let found = select.fetch_optional(connection).await?;
    Ok(found.unwrap_or_else(|| Notes { definition, project, ..Notes::default() }))
}

/// Removes the annotations of a deleted definition.
pub(super) async fn forget(connection: &mut Conn, definition: Uuid) -> Result<(), MetadataError> {
    sql::query("DELETE FROM definition_notes WHERE definition = $1")
        .bind(definition.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Edit, Notes, NotesPatch};
    use crate::accounts::UserId;
    use weir_base::clock::UnixMicros;

    /// The rules of PostHog's enterprise serializer of event definitions.
    #[test]
    fn hiding_and_verifying_exclude_each_other() {
        let ann = Edit { by: UserId(1), at: UnixMicros(10) };
        let bob = Edit { by: UserId(2), at: UnixMicros(20) };
        let verify = NotesPatch { verified: Some(true), ..NotesPatch::default() };
        let hide = NotesPatch { hidden: Some(true), ..NotesPatch::default() };
        let verified = Notes::default().edited("event", verify.clone(), ann).unwrap();
        assert_eq!((verified.verified_by, verified.verified_at), (Some(ann.by), Some(ann.at)));
        let again = verified.clone().edited("event", verify.clone(), bob).unwrap();
        assert_eq!((again.verified_by, again.verified_at), (Some(ann.by), Some(ann.at)));
        assert_eq!(again.updated_by, Some(bob.by));
        let hidden = again.edited("event", hide.clone(), bob).unwrap();
        assert!(hidden.hidden && !hidden.verified && hidden.verified_by.is_none());
        let back = hidden.clone().edited("event", verify, bob).unwrap();
        assert!(!back.hidden && back.verified && back.verified_by == Some(bob.by));
        let note = NotesPatch { description: Some(Some("x".into())), ..NotesPatch::default() };
        assert!(hidden.edited("event", note, ann).unwrap().hidden);
        let both = NotesPatch { hidden: Some(true), verified: Some(true), ..NotesPatch::default() };
        for (thing, detail) in [
            ("event", "An event cannot be both hidden and verified"),
            ("property", "A property cannot be both hidden and verified"),
        ] {
            let refused = Notes::default().edited(thing, both.clone(), ann).unwrap_err();
            assert_eq!(refused.detail, detail);
        }
    }
}
