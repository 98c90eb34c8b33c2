//! The log of changes: who changed what, and when.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// One change.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "ActivityEntry")]
pub struct Entry {
    /// What was done, such as `updated`.
    pub activity: String,
    /// When.
    pub created_at: String,
    /// What was changed.
    pub detail: Detail,
    /// The id of the entry.
    pub id: String,
    /// The object's id in its paths.
    pub item_id: Option<String>,
    /// The kind of the object, such as `FeatureFlag`.
    pub scope: String,
    /// Who did it.
    pub user: Author,
}

/// The object of a change, and its fields that were changed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Detail {
    /// The fields that were changed, before and after.
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub changes: Option<Box<RawValue>>,
    /// The object's id in its paths.
    pub id: Option<String>,
    /// Always null.
    pub merge: (),
    /// The name of the object.
    #[schemars(with = "Option<String>")]
    pub name: Option<Box<RawValue>>,
    /// Always null.
    pub short_id: (),
    /// What made the change, if not a person at once.
    #[schemars(with = "Option<Trigger>")]
    pub trigger: Option<Box<RawValue>>,
    /// Always null.
    pub r#type: (),
}

/// What makes a change at a time that was set before.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct Trigger {
    /// `scheduled_change`.
    pub job_type: String,
    /// The id of the scheduled change.
    pub job_id: String,
    /// What it changes.
    pub payload: Map<String, Value>,
}

/// Who made a change.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Author {
    /// The email address; null for the server itself.
    pub email: Option<String>,
    /// The name.
    pub first_name: String,
    /// The number of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// True for the server itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_system: Option<bool>,
    /// The id of the user in paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// A page of the log.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "ActivityPage")]
pub struct Page {
    /// Link to the next page.
    pub next: Option<String>,
    /// Link to the previous page.
    pub previous: Option<String>,
    /// Changes of the whole log.
    pub total_count: usize,
    /// The changes.
    pub results: Vec<Entry>,
}
