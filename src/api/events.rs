//! Events, as in lists and on pages.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An event.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Event {
    /// The uuid.
    pub id: String,
    /// The sender's id of the person.
    pub distinct_id: String,
    /// The properties, unchanged JSON of the sender.
    #[schemars(with = "Map<String, Value>")]
    pub properties: Box<RawValue>,
    /// The name.
    pub event: String,
    /// When it happened.
    pub timestamp: String,
    /// The person of today; null for a visitor who is none.
    pub person: Option<Person>,
    /// The HTML elements of an automatically captured event, in the format of the SDK in browsers.
    pub elements_chain: String,
}

/// The person of an event.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "EventPerson")]
pub struct Person {
    /// The id in paths.
    pub uuid: String,
    /// Whether the person was identified.
    pub is_identified: bool,
    /// The distinct id of the event.
    pub distinct_ids: [String; 1],
    /// The properties that are shown as a name.
    pub properties: Map<String, Value>,
}

/// A list of events. It has no count, which would take longer than everything else.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(rename = "Events")]
pub struct Events {
    /// Link to the next page.
    pub next: Option<String>,
    /// The events.
    pub results: Vec<Event>,
}

/// Selected columns of events.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "EventTable")]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Link to the next page.
    pub next: Option<String>,
    /// A row for each event.
    pub results: Vec<Vec<Value>>,
}

/// One value of a property.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "Name")]
pub struct Name {
    /// The value.
    pub name: String,
}
