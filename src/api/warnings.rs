//! Ingestion warnings: problems of received events.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The warnings of a project, by kind; the most recent kind first.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Warnings {
    /// The kinds.
    pub results: Vec<Kind>,
}

/// The warnings of one kind.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Kind {
    /// The number of all that are stored.
    pub count: u64,
    /// When the last one was.
    #[serde(rename = "lastSeen")]
    #[schemars(extend("format" = "date-time"))]
    pub last_seen: String,
    /// The number and the day.
    #[schemars(with = "Vec<[NumberOrDay; 2]>")]
    pub sparkline: Vec<(u64, String)>,
    /// The kind.
    pub r#type: String,
    /// A few of each day.
    pub warnings: Vec<Warning>,
}

/// A warning.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Warning {
    /// The event, and what was odd.
    pub details: Map<String, Value>,
    /// When it was.
    pub timestamp: String,
    /// The kind.
    pub r#type: String,
}

/// Half of a pair of a number and a day.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, inline)]
pub enum NumberOrDay {
    /// A number.
    Number(u64),
    /// A day.
    Day(String),
}
