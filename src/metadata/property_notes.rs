//! What people note about the properties of one key: their type, labels, and [`Notes`] as of events.

use std::collections::HashMap;
use std::collections::HashSet;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use sqlx::QueryBuilder;
use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::accounts::UserId;
use crate::metadata::activity;
use crate::metadata::activity::Change;
use crate::metadata::activity::Scope;
use crate::metadata::activity::Verb;
use crate::metadata::activity::diff;
use crate::metadata::definition_notes::Edit;
use crate::metadata::definition_notes::Notes;
use crate::metadata::definition_notes::NotesPatch;
use crate::metadata::definitions::normal_tags;
use crate::metadata::disk;
use crate::metadata::properties;
use crate::metadata::properties::PropertyDefinition;
use crate::metadata::properties::PropertyRow;
use crate::metadata::properties::ValueType;

/// What people noted about one property.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyNotes {
    /// Labels: trimmed, lower case, each once.
    pub tags: Vec<String>,
    /// The rest. There is no owner, and there are no columns.
    pub notes: Notes,
}

/// Changes to a property definition; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct PropertyPatch {
    /// Another type, which no value changes any more; without one the next value tells it.
    pub value_type: Option<Option<ValueType>>,
    /// Replaces the labels.
    pub tags: Option<Vec<String>>,
    /// Changes to the notes.
    pub notes: NotesPatch,
}

impl Metadata {
    /// The notes of a project's property definitions, by the definitions' ids. Definitions without
    /// are absent.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn property_notes(
        &self,
        project: ProjectId,
    ) -> Result<HashMap<Uuid, PropertyNotes>, MetadataError> {
        let rows: Vec<NotesRow> = sqlx::query_as(
            "SELECT n.* FROM property_definition_notes n
             JOIN property_definitions d ON d.id = n.definition
             WHERE d.project_id = $1",
        )
        .bind(project.0)
        .fetch_all(self.shared.db.readers())
        .await?;
        rows.into_iter().map(NotesRow::read).collect()
    }

    /// One property definition of a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id.
    pub async fn property_definition(
        &self,
        project: ProjectId,
        id: Uuid,
    ) -> Result<(PropertyDefinition, PropertyNotes), MetadataError> {
        let mut connection = self.shared.db.readers().acquire().await?;
        by_id(&mut connection, project, id).await
    }

    /// Changes a property definition in the name of the user `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id,
    /// [`MetadataError::Rejected`] for notes that are against the rules.
    pub async fn update_property_definition(
        &self,
        project: ProjectId,
        id: Uuid,
        patch: PropertyPatch,
        by: UserId,
    ) -> Result<(PropertyDefinition, PropertyNotes), MetadataError> {
        let mut write = self.begin().await?;
        let (stored, noted) = by_id(write.connection(), project, id).await?;
        let before = logged(&stored, &noted);
        let value_type = patch.value_type.unwrap_or(stored.value_type);
        let definition = PropertyDefinition { value_type, ..stored };
        let notes = PropertyNotes {
            tags: patch.tags.map_or(noted.tags, normal_tags),
            notes: noted.notes.edited("property", patch.notes, Edit { by, at: self.now() })?,
        };
        sqlx::query("UPDATE property_definitions SET property_type = $1 WHERE id = $2")
            .bind(value_type.map(ValueType::name))
            .bind(id.to_string())
            .execute(write.connection())
            .await?;
        put(write.connection(), id, &notes).await?;
        let fields = diff(Scope::PropertyDefinition, &before, &logged(&definition, &notes));
        if !fields.is_empty() {
            let change = change(&definition, Verb::Changed, fields);
            write.log(project, Some(by), change).await?;
        }
        write.commit_unseen().await?;
        // Who remembers that the type is known would not tell it again.
        if value_type.is_none() {
            self.note_forgotten();
        }
        Ok((definition, notes))
    }

    /// Forgets a property definition in the name of the user `by`. It comes back when such a
    /// property arrives. On which events it was seen stays known.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id.
    pub async fn delete_property_definition(
        &self,
        project: ProjectId,
        id: Uuid,
        by: UserId,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let (definition, _) = by_id(write.connection(), project, id).await?;
        sqlx::query("DELETE FROM property_definitions WHERE id = $1")
            .bind(id.to_string())
            .execute(write.connection())
            .await?;
        write.log(project, Some(by), change(&definition, Verb::Deleted, Vec::new())).await?;
        write.commit_unseen().await?;
        self.note_forgotten();
        Ok(())
    }

    /// Those of the events `names` on which the property `key` was seen.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn seen_together(
        &self,
        project: ProjectId,
        names: &[String],
        key: &str,
    ) -> Result<HashSet<String>, MetadataError> {
        let mut select =
            QueryBuilder::new("SELECT event FROM event_properties WHERE project_id = ");
        select.push_bind(project.0).push(" AND property = ").push_bind(key);
        let mut listed = select.push(" AND event IN (").separated(", ");
        for name in names {
            listed.push_bind(name);
        }
        select.push(")");
        let seen = select.build_query_scalar().persistent(false);
        let seen: Vec<String> = seen.fetch_all(self.shared.db.readers()).await?;
        Ok(seen.into_iter().collect())
    }
}

/// The fields that the activity log compares.
fn logged(definition: &PropertyDefinition, noted: &PropertyNotes) -> Map<String, Value> {
    activity::fields(json!({
        "property_type": definition.value_type.map(ValueType::name),
        "tags": noted.tags,
        "description": noted.notes.description,
        "verified": noted.notes.verified,
        "hidden": noted.notes.hidden,
    }))
}

fn change(definition: &PropertyDefinition, verb: Verb, fields: Vec<Value>) -> Change {
    let (item, name) = (definition.id.to_string(), definition.name.clone());
    Change { scope: Scope::PropertyDefinition, item, verb, name, fields }
}

async fn by_id(
    connection: &mut SqliteConnection,
    project: ProjectId,
    id: Uuid,
) -> Result<(PropertyDefinition, PropertyNotes), MetadataError> {
    let row: Option<PropertyRow> = sqlx::query_as(
        "SELECT id, kind, group_type_index, name, property_type FROM property_definitions
         WHERE id = $1 AND project_id = $2",
    )
    .bind(id.to_string())
    .bind(project.0)
    .fetch_optional(&mut *connection)
    .await?;
    let definition = properties::read(row.ok_or(MetadataError::NotFound("property definition"))?)?;
    let row: Option<NotesRow> =
        sqlx::query_as("SELECT * FROM property_definition_notes WHERE definition = $1")
            .bind(id.to_string())
            .fetch_optional(connection)
            .await?;
    let notes = row.map(NotesRow::read).transpose()?;
    Ok((definition, notes.map(|(_, notes)| notes).unwrap_or_default()))
}

async fn put(
    connection: &mut SqliteConnection,
    definition: Uuid,
    noted: &PropertyNotes,
) -> Result<(), MetadataError> {
    let PropertyNotes { tags, notes } = noted;
    sqlx::query(
        "INSERT INTO property_definition_notes
         (definition, tags, description, verified, verified_at, verified_by, hidden,
          updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (definition) DO UPDATE SET
             tags = $2, description = $3, verified = $4, verified_at = $5, verified_by = $6,
             hidden = $7, updated_at = $8, updated_by = $9",
    )
    .bind(definition.to_string())
    .bind(disk::to_json(tags))
    .bind(&notes.description)
    .bind(notes.verified)
    .bind(notes.verified_at.map(|at| at.0))
    .bind(notes.verified_by.map(|user| user.0))
    .bind(notes.hidden)
    .bind(notes.updated_at.map_or(0, |at| at.0))
    .bind(notes.updated_by.map(|user| user.0))
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct NotesRow {
    definition: String,
    tags: String,
    description: Option<String>,
    verified: bool,
    verified_at: Option<i64>,
    verified_by: Option<i64>,
    hidden: bool,
    updated_at: i64,
    updated_by: Option<i64>,
}

impl NotesRow {
    fn read(self) -> Result<(Uuid, PropertyNotes), MetadataError> {
        const TABLE: &str = "property_definition_notes";
        let notes = Notes {
            description: self.description,
            owner: None,
            verified: self.verified,
            verified_at: self.verified_at.map(UnixMicros),
            verified_by: self.verified_by.map(UserId),
            hidden: self.hidden,
            updated_at: Some(UnixMicros(self.updated_at)),
            updated_by: self.updated_by.map(UserId),
            default_columns: Vec::new(),
        };
        let tags = disk::from_json(TABLE, &self.tags)?;
        Ok((disk::from_uuid(TABLE, &self.definition)?, PropertyNotes { tags, notes }))
    }
}
