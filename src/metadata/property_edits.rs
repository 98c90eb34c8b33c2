//! Edits of property definitions by users: type, labels, and [`Notes`] as for events.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::accounts::UserId;
use crate::activity::{Change, Scope, Verb, diff};
use crate::annotations::{Edit, Notes, NotesPatch};
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::properties::{PropertyDefinition, PropertyRow, ValueType};
use crate::sql::Builder;
use crate::tags::normal_tags;
use crate::{Metadata, activity, annotations, disk, properties, sql};
use weir_event::id::ProjectId;

/// Changes to a property definition; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct PropertyPatch {
    /// Another type, which values do not change any more; with `Some(None)` the next value determines it.
    pub value_type: Option<Option<ValueType>>,
    /// Replaces the labels.
    pub tags: Option<Vec<String>>,
    /// Changes to the annotations.
    pub notes: NotesPatch,
}

impl Metadata {
    /// One property definition of a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id.
    pub async fn property_definition(
        &self,
        project: ProjectId,
        id: Uuid,
    ) -> Result<(PropertyDefinition, Notes), MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        by_id(&mut connection, project, id).await
    }

    /// Changes a property definition in the name of the user `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id,
    /// [`MetadataError::Rejected`] for annotations that break a rule.
    pub async fn update_property_definition(
        &self,
        project: ProjectId,
        id: Uuid,
        patch: PropertyPatch,
        by: UserId,
    ) -> Result<(PropertyDefinition, Notes), MetadataError> {
        let mut write = self.begin().await?;
        let (stored, noted) = by_id(write.connection(), project, id).await?;
        let before = logged(&stored, &noted);
        let notes = noted.edited("property", patch.notes, Edit { by, at: self.now() })?;
        let value_type = patch.value_type.unwrap_or(stored.value_type);
        let tags = patch.tags.map_or(stored.tags, normal_tags);
        let definition = PropertyDefinition { value_type, tags, ..stored };
        sql::query("UPDATE property_definitions SET property_type = $1, tags = $2 WHERE id = $3")
            .bind(value_type.map(ValueType::name))
            .bind(disk::to_json(&definition.tags))
            .bind(id.to_string())
            .execute(write.connection())
            .await?;
        annotations::put(write.connection(), project, id, &notes).await?;
        let fields = diff(Scope::PropertyDefinition, &before, &logged(&definition, &notes));
        if !fields.is_empty() {
            let change = change(&definition, Verb::Changed, fields);
            write.log(project, Some(by), change).await?;
        }
        write.commit_unseen().await?;
        // Invalidates caches of known types, which would not report the type again.
        if value_type.is_none() {
            self.note_forgotten();
        }
        Ok((definition, notes))
    }

    /// Deletes a property definition in the name of the user `by`. The next such property creates
    /// it again. Its pairs with events stay.
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
        sql::query("DELETE FROM property_definitions WHERE id = $1")
            .bind(id.to_string())
            .execute(write.connection())
            .await?;
        annotations::forget(write.connection(), id).await?;
        write.log(project, Some(by), change(&definition, Verb::Deleted, Vec::new())).await?;
        write.commit_unseen().await?;
        self.note_forgotten();
        Ok(())
    }

    /// The events among `names` on which the property `key` was seen.
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
        let mut select = Builder::new("SELECT event FROM event_properties WHERE project_id = ");
        select.push_bind(project.0).push(" AND property = ").push_bind(key);
        select.push(" AND event IN ").push_list(names);
        let seen: Vec<String> =
            select.build_scalar().fetch_all(&mut self.shared.db.reader().await?).await?;
        Ok(seen.into_iter().collect())
    }
}

/// The fields that the activity log compares.
fn logged(definition: &PropertyDefinition, notes: &Notes) -> Map<String, Value> {
    activity::fields(json!({
        "property_type": definition.value_type.map(ValueType::name),
        "tags": definition.tags,
        "description": notes.description,
        "verified": notes.verified,
        "hidden": notes.hidden,
    }))
}

fn change(definition: &PropertyDefinition, verb: Verb, fields: Vec<Value>) -> Change {
    let (item, name) = (definition.id.to_string(), definition.name.clone());
    Change { scope: Scope::PropertyDefinition, item, verb, name, fields }
}

async fn by_id(
    connection: &mut Conn,
    project: ProjectId,
    id: Uuid,
) -> Result<(PropertyDefinition, Notes), MetadataError> {
    let row: Option<PropertyRow> = sql::query_as(
        "SELECT id, kind, group_type_index, name, property_type, tags FROM property_definitions
         WHERE id = $1 AND project_id = $2",
    )
    .bind(id.to_string())
    .bind(project.0)
    .fetch_optional(&mut *connection)
    .await?;
    let definition = properties::read(row.ok_or(MetadataError::NotFound("property definition"))?)?;
    let notes = annotations::of(connection, id).await?;
    Ok((definition, notes))
}
