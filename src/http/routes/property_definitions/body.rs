//! JSON form of a property definition: [`DefinitionBody`].

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::routes::user_body::user;
use weir_event::json;
use weir_insights::property_definitions::{AllNotes, IS_SEEN};
use weir_metadata::accounts::UserId;
use weir_metadata::annotations::Notes;
use weir_metadata::properties::{PropertyDefinition, ValueType};
use weir_metadata::snapshot::Snapshot;

/// The fields of PostHog's free edition in its order, then additional ones of its enterprise
/// edition.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "PropertyDefinition")]
pub(super) struct DefinitionBody {
    #[schemars(with = "Uuid")]
    id: Value,
    #[schemars(with = "String")]
    name: Value,
    #[schemars(with = "bool")]
    is_numerical: Value,
    #[schemars(with = "Option<String>")]
    property_type: Value,
    #[schemars(with = "Vec<String>")]
    tags: Value,
    /// Null, except in a list whose request names events.
    #[schemars(with = "Option<bool>")]
    is_seen_on_filtered_events: Value,
    description: Option<String>,
    updated_at: Option<String>,
    updated_by: Option<weir_api::accounts::User>,
    verified: bool,
    verified_at: Option<String>,
    verified_by: Option<weir_api::accounts::User>,
    hidden: bool,
}

impl DefinitionBody {
    /// One definition; `snapshot` contains the users of its annotations.
    pub(super) fn new(own: PropertyDefinition, notes: Notes, snapshot: &Snapshot) -> Self {
        let row = Map::from_iter([
            ("id".to_owned(), Value::from(own.id.to_string())),
            ("is_numerical".to_owned(), own.is_numerical().into()),
            ("property_type".to_owned(), own.value_type.map(ValueType::name).into()),
            ("name".to_owned(), own.name.into()),
            ("tags".to_owned(), own.tags.into()),
        ]);
        Self::build(row, notes, snapshot)
    }

    /// From a row of the table `property_definitions`, or of the query with named events.
    pub(super) fn of_row(mut row: Map<String, Value>, all: &AllNotes, snapshot: &Snapshot) -> Self {
        let id = row.get("id").and_then(Value::as_str).and_then(|id| Uuid::try_parse(id).ok());
        // The table contains tags as JSON text.
        let tags = row.get("tags").and_then(Value::as_str);
        let tags = tags.and_then(|tags| json::restore(tags.as_bytes()).ok());
        row.insert("tags".to_owned(), tags.unwrap_or_default());
        let notes = id.and_then(|id| all.get(&id)).cloned().unwrap_or_default();
        Self::build(row, notes, snapshot)
    }

    fn build(mut row: Map<String, Value>, notes: Notes, snapshot: &Snapshot) -> Self {
        let mut field = |name: &str| row.remove(name).unwrap_or_default();
        let user = |id: Option<UserId>| snapshot.user(id?).map(|found| user(found));
        Self {
            id: field("id"),
            name: field("name"),
            is_numerical: field("is_numerical"),
            property_type: field("property_type"),
            tags: field("tags"),
            is_seen_on_filtered_events: field(IS_SEEN),
            description: notes.description,
            updated_at: notes.updated_at.map(|at| at.to_rfc3339()),
            updated_by: user(notes.updated_by),
            verified: notes.verified,
            verified_at: notes.verified_at.map(|at| at.to_rfc3339()),
            verified_by: user(notes.verified_by),
            hidden: notes.hidden,
        }
    }
}
