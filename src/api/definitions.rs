//! Definitions: the names of events and of properties received so far, with descriptions by users.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::accounts::User;

/// What users say of an event or a property.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Notes {
    /// What it means.
    pub description: Option<String>,
    /// The time of the last change by a user.
    pub updated_at: Option<String>,
    /// Who made it.
    pub updated_by: Option<User>,
    /// Whether it means what it says.
    pub verified: bool,
    /// Since when it is verified.
    pub verified_at: Option<String>,
    /// Who verified it.
    pub verified_by: Option<User>,
    /// Whether lists of choices leave it out.
    pub hidden: bool,
}

/// The fields of the API specification in its order, then additional ones of PostHog's enterprise
/// edition. Events never include actions, so the fields about actions stay empty.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct EventDefinition {
    /// The id in paths, a UUID.
    pub id: String,
    /// The name of the events.
    pub name: String,
    /// When the first event came, or the definition was made.
    pub created_at: String,
    /// When the last event came; null if none has come yet.
    pub last_seen_at: Option<String>,
    /// The time of the last change by a user.
    pub last_updated_at: Option<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// Always false.
    pub is_action: bool,
    /// Always null.
    pub action_id: Option<i64>,
    /// Always false.
    pub is_calculating: bool,
    /// Always null.
    pub last_calculated_at: Option<String>,
    /// Always null.
    pub created_by: Option<User>,
    /// Kept for clients; nothing is posted.
    pub post_to_slack: bool,
    /// Who is responsible for it.
    pub owner: Option<User>,
    /// What users say of it.
    #[serde(flatten)]
    pub notes: Notes,
    /// The columns of lists of these events.
    pub default_columns: Vec<String>,
    /// The property that is shown beside these events.
    pub primary_property: Option<String>,
}

/// The fields of PostHog's free edition in its order, then additional ones of its enterprise
/// edition.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct PropertyDefinition {
    /// The id in paths.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// The name of the property.
    pub name: String,
    /// Whether its values are numbers.
    pub is_numerical: bool,
    /// The type of its values, if it is known.
    pub property_type: Option<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// Null, except in a list whose request names events.
    pub is_seen_on_filtered_events: Option<bool>,
    /// What users say of it.
    #[serde(flatten)]
    pub notes: Notes,
}

/// A property with a column of its own in the table of events or of persons.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct PromotedProperty {
    /// The key of the property.
    pub key: String,
    /// The type of the column, for good.
    #[schemars(extend("enum" = ["text", "number", "boolean"]))]
    pub r#type: String,
    /// The name of the column.
    pub column: String,
    /// The table that has it: the property is one of its rows.
    #[schemars(extend("enum" = ["events", "persons"]))]
    pub table: String,
    /// When the project promoted it.
    pub created_at: String,
}

/// How often an event was asked for.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EventMetrics {
    /// Queries that named the event in the last 30 days.
    pub query_usage_30_day: u64,
}

/// The properties that are shown beside events.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PrimaryProperties {
    /// The properties by the names of the events.
    pub primary_properties: BTreeMap<String, String>,
}

/// What was changed by other tags for many definitions.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BulkDefinitionsTagged {
    /// Those that were not changed.
    pub skipped: Vec<Skipped>,
    /// Those with the tags of now.
    pub updated: Vec<Tagged>,
}

/// A definition with other tags.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Tagged {
    /// The id in paths.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// All its tags.
    pub tags: Vec<String>,
}

/// Which definitions were verified, or are no more.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BulkDefinitionsVerified {
    /// Those that were not changed.
    pub skipped: Vec<Skipped>,
    /// Without those that were so already.
    pub updated: Vec<Verified>,
}

/// A definition that was verified, or is no more.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Verified {
    /// The id in paths.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// Whether it is verified now.
    pub verified: bool,
}

/// A definition that was not changed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Skipped {
    /// The id of the request.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// Why.
    pub reason: String,
}
