//! Annotations of definitions, which people write: [`Notes`] of an event or property definition,
//! stored beside what ingest has seen. Includes the rules of hiding and verifying.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::definitions::EventDefinition;
use crate::error::MetadataError;
use crate::violation::Violation;
use crate::{Metadata, disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// The annotations of one definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// What the events or the values mean.
    pub description: Option<String>,
    /// The owner of the events; always `None` for properties.
    pub owner: Option<UserId>,
    /// Whether a user verified the definition. Never together with `hidden`.
    pub verified: bool,
    /// Time of the verification.
    pub verified_at: Option<UnixMicros>,
    /// The user who verified it.
    pub verified_by: Option<UserId>,
    /// Whether lists for choosing an event omit it.
    pub hidden: bool,
    /// Time of the last edit of the definition.
    pub updated_at: Option<UnixMicros>,
    /// The user of the last edit.
    pub updated_by: Option<UserId>,
    /// Columns of lists of such events, kept for the client; empty for properties.
    pub default_columns: Vec<String>,
    /// The property whose value is shown beside such events; always `None` for properties.
    pub primary_property: Option<String>,
}

/// Changes to annotations; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct NotesPatch {
    /// Another description, or none.
    pub description: Option<Option<String>>,
    /// Another owner, or none; must be a user.
    pub owner: Option<Option<UserId>>,
    /// Whether it becomes verified.
    pub verified: Option<bool>,
    /// Whether it becomes hidden.
    pub hidden: Option<bool>,
    /// Replaces the columns.
    pub default_columns: Option<Vec<String>>,
    /// Another property to show, or none.
    pub primary_property: Option<Option<String>>,
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
        let hidden = patch.hidden.unwrap_or(self.hidden && patch.verified != Some(true));
        let verified = patch.verified.unwrap_or(self.verified) && !hidden;
        let (verified_at, verified_by) = match (self.verified, verified) {
            (true, true) => (self.verified_at, self.verified_by),
            (false, true) => (Some(edit.at), Some(edit.by)),
            (_, false) => (None, None),
        };
        Ok(Self {
            description: patch.description.unwrap_or(self.description),
            owner: patch.owner.unwrap_or(self.owner),
            verified,
            verified_at,
            verified_by,
            hidden,
            updated_at: Some(edit.at),
            updated_by: Some(edit.by),
            default_columns: patch.default_columns.unwrap_or(self.default_columns),
            primary_property: patch.primary_property.unwrap_or(self.primary_property),
        })
    }
}

/// Definitions in one read.
const READ_AT_ONCE: u32 = 10_000;

impl Metadata {
    /// All definitions of a project, [`EVENT_DEFINITIONS_MAX`] at most.
    ///
    /// [`EVENT_DEFINITIONS_MAX`]: crate::definitions::EVENT_DEFINITIONS_MAX
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn all_definitions(
        &self,
        project: ProjectId,
    ) -> Result<Vec<EventDefinition>, MetadataError> {
        let mut all: Vec<EventDefinition> = Vec::new();
        loop {
            let after = all.last().map_or("", |last| last.name.as_str());
            let more = self.definitions(project, after, READ_AT_ONCE).await?;
            let is_last = more.len() < usize::try_from(READ_AT_ONCE).unwrap_or(usize::MAX);
            all.extend(more);
            if is_last {
                return Ok(all);
            }
        }
    }

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
        let rows: Vec<NotesRow> =
            sql::query_as("SELECT * FROM definition_notes WHERE project_id = $1")
                .bind(project.0)
                .fetch_all(&mut self.shared.db.reader().await?)
                .await?;
        rows.into_iter().map(NotesRow::read).collect()
    }
}

impl Metadata {
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

/// The annotations of one definition.
pub(super) async fn of(connection: &mut Conn, definition: Uuid) -> Result<Notes, MetadataError> {
    let row: Option<NotesRow> =
        sql::query_as("SELECT * FROM definition_notes WHERE definition = $1")
            .bind(definition.to_string())
            .fetch_optional(connection)
            .await?;
    Ok(row.map(NotesRow::read).transpose()?.map_or_else(Notes::default, |(_, notes)| notes))
}

/// Writes the annotations of one definition.
pub(super) async fn put(
    connection: &mut Conn,
    project: ProjectId,
    definition: Uuid,
    notes: &Notes,
) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO definition_notes
         (definition, project_id, description, owner, verified, verified_at, verified_by, hidden,
          updated_at, updated_by, default_columns, primary_property)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (definition) DO UPDATE SET
             description = $3, owner = $4, verified = $5, verified_at = $6, verified_by = $7,
             hidden = $8, updated_at = $9, updated_by = $10, default_columns = $11,
             primary_property = $12",
    )
    .bind(definition.to_string())
    .bind(project.0)
    .bind(&notes.description)
    .bind(notes.owner.map(|user| user.0))
    .bind(notes.verified)
    .bind(notes.verified_at.map(|at| at.0))
    .bind(notes.verified_by.map(|user| user.0))
    .bind(notes.hidden)
    .bind(notes.updated_at.map_or(0, |at| at.0))
    .bind(notes.updated_by.map(|user| user.0))
    .bind(disk::to_json(&notes.default_columns))
    .bind(&notes.primary_property)
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes the annotations of a deleted definition.
pub(super) async fn forget(connection: &mut Conn, definition: Uuid) -> Result<(), MetadataError> {
    sql::query("DELETE FROM definition_notes WHERE definition = $1")
        .bind(definition.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

#[derive(sqlx_macros::FromRow)]
struct NotesRow {
    definition: String,
    description: Option<String>,
    owner: Option<i64>,
    verified: bool,
    verified_at: Option<i64>,
    verified_by: Option<i64>,
    hidden: bool,
    updated_at: i64,
    updated_by: Option<i64>,
    default_columns: String,
    primary_property: Option<String>,
}

impl NotesRow {
    fn read(self) -> Result<(Uuid, Notes), MetadataError> {
        const TABLE: &str = "definition_notes";
        let definition = disk::from_uuid(TABLE, &self.definition)?;
        let notes = Notes {
            description: self.description,
            owner: self.owner.map(UserId),
            verified: self.verified,
            verified_at: self.verified_at.map(UnixMicros),
            verified_by: self.verified_by.map(UserId),
            hidden: self.hidden,
            updated_at: Some(UnixMicros(self.updated_at)),
            updated_by: self.updated_by.map(UserId),
            default_columns: disk::from_json(TABLE, &self.default_columns)?,
            primary_property: self.primary_property,
        };
        Ok((definition, notes))
    }
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
