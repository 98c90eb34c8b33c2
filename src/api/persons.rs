//! Persons, and the requests to delete their events.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::cohorts::Cohort;

/// A person.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Person {
    /// The number of the person.
    pub id: i64,
    /// The name: a property, else a distinct id, else the number.
    pub name: String,
    /// The distinct ids.
    pub distinct_ids: Vec<String>,
    /// The properties.
    pub properties: Map<String, Value>,
    /// When the person was first seen.
    pub created_at: String,
    /// The id in paths.
    pub uuid: String,
    /// Whether the person was identified.
    pub is_identified: bool,
    /// Only in responses of operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
}

/// The cohorts of a person.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "CohortsOfPerson")]
pub struct Cohorts {
    /// The cohorts.
    pub results: Vec<Cohort>,
}

/// Result of a deletion of several persons.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "PersonsDeleted")]
pub struct Deleted {
    /// Persons that were named.
    pub persons_found: usize,
    /// Persons that were deleted.
    pub persons_deleted: usize,
    /// Whether their events are deleted, too.
    pub events_queued_for_deletion: bool,
    /// Always false: there are no recordings.
    pub recordings_queued_for_deletion: bool,
    /// Persons that were named and are gone.
    pub deletion_errors: Vec<Gone>,
}

/// A person that was merged away, or deleted by another request, before this one was applied.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "PersonGone")]
pub struct Gone {
    /// The id of the person in paths.
    #[schemars(extend("format" = "uuid"))]
    pub person_uuid: String,
}

/// One request to delete the events of a person.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EventDeletion {
    /// The id of the person in paths.
    #[schemars(extend("format" = "uuid"))]
    pub person_uuid: String,
    /// When it was asked for.
    pub created_at: String,
    /// `completed` when no file has the events any more.
    #[schemars(extend("enum" = ["pending", "completed"]))]
    pub status: String,
    /// When it was completed.
    pub delete_verified_at: Option<String>,
}

/// When properties changed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Timeline {
    /// The times at which one of the properties changed, and the first event.
    pub points: Vec<Point>,
    /// The properties whose changes count.
    pub crucial_property_keys: Vec<String>,
    /// The begin of the time that was looked at.
    #[schemars(extend("format" = "date-time"))]
    pub effective_date_from: String,
    /// Its end.
    #[schemars(extend("format" = "date-time"))]
    pub effective_date_to: String,
}

/// The properties have these values from here on.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Point {
    /// The time of the first event with them, in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub timestamp: String,
    /// All properties, those whose changes do not count, too.
    #[schemars(with = "Map<String, Value>")]
    pub properties: Box<RawValue>,
    /// Events until the next point.
    pub relevant_event_count: usize,
}
