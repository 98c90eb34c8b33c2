//! What SDKs send to capture endpoints and get back. Bodies are parsed without these types, which describe them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// An event.
#[derive(Debug, JsonSchema)]
pub struct CapturedEvent {
    /// The name.
    pub event: Option<String>,
    /// Who did it.
    pub distinct_id: Option<String>,
    /// Anything else about it.
    pub properties: Option<Map<String, Value>>,
    /// ISO 8601.
    pub timestamp: Option<String>,
    /// By which a retry is known.
    pub uuid: Option<String>,
    /// Properties of the person.
    #[schemars(rename = "$set")]
    pub set: Option<Map<String, Value>>,
    /// Properties of the person, unless it has them.
    #[schemars(rename = "$set_once")]
    pub set_once: Option<Map<String, Value>>,
    /// Of analytics.js.
    pub context: Option<Map<String, Value>>,
}

/// The key of the project.
#[derive(Debug, JsonSchema)]
pub struct Token {
    /// The project API key; also token, or token among the properties.
    pub api_key: String,
}

/// An event with the key of its project.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct EventOf {
    /// The key.
    #[schemars(flatten)]
    pub token: Token,
    /// The event.
    #[schemars(flatten)]
    pub event: CapturedEvent,
}

/// Events of one project.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct Batch {
    /// The key.
    #[schemars(flatten)]
    pub token: Token,
    /// The events.
    pub batch: Vec<CapturedEvent>,
    /// Whether they are of the past.
    pub historical_migration: Option<bool>,
    /// When they were sent, by the clock of the sender.
    pub sent_at: Option<String>,
    /// With historical_migration: the events were stored elsewhere.
    pub import: Option<Import>,
}

/// How an import changes persons.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct Import {
    /// What happens to properties of persons, which an event may have beside it under the same name: fill sets those that a
    /// person lacks.
    #[schemars(extend("enum" = ["fill", "overwrite", "ignore"]))]
    pub person_properties: String,
    /// With events they are stored and change no person and no group; with persons they change these and are not stored.
    #[schemars(extend("enum" = ["events", "persons", null]))]
    pub only: Option<String>,
}

/// Events: one, a batch, or a list as old SDKs send it.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Capture {
    /// One.
    One(EventOf),
    /// A batch.
    Batch(Batch),
    /// What old SDKs send.
    List(Vec<EventOf>),
}

/// Events in a form, as browsers send them.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct CaptureForm {
    /// The same JSON, plain or in base64.
    pub data: String,
    /// How it is compressed.
    #[schemars(extend("enum" = ["gzip-js", "lz64", "base64"]))]
    pub compression: String,
}

/// What became of events.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Captured {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    pub status: i64,
    /// Of recordings, which are thrown away.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub quota_limited: Option<Vec<String>>,
    /// Why events were dropped; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Dropped>")]
    pub warnings: Option<Vec<Dropped>>,
}

/// Why events were dropped.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Dropped {
    /// For programs.
    pub reason: String,
    /// How many.
    pub events: u64,
    /// For people.
    pub detail: String,
}

/// Events by the newer protocol.
#[derive(Debug, JsonSchema)]
pub struct CaptureV1 {
    /// The events.
    pub batch: Vec<EventV1>,
    /// When the batch was made.
    pub created_at: Option<String>,
    /// Whether they are of the past.
    pub historical_migration: Option<bool>,
}

/// An event by the newer protocol.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct EventV1 {
    /// By which a retry is known.
    pub uuid: String,
    /// The name.
    pub event: String,
    /// Who did it.
    pub distinct_id: String,
    /// When.
    pub timestamp: String,
    /// Anything else about it.
    pub properties: Option<Map<String, Value>>,
    /// How it is treated.
    pub options: Option<Map<String, Value>>,
}

/// The fate of each event.
#[derive(Debug, JsonSchema, Serialize)]
pub struct CapturedV1 {
    /// By the uuids of the events.
    pub results: BTreeMap<String, Fate>,
}

/// The fate of an event.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Fate {
    /// Whether it is stored.
    #[schemars(extend("enum" = ["ok", "drop"]))]
    pub result: String,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub details: Option<String>,
}

/// Why a whole request of the newer protocol is refused.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RefusalV1 {
    /// For programs.
    pub error: String,
    /// For people.
    pub error_description: String,
    /// Always empty.
    pub error_uri: String,
}

/// A request of OpenTelemetry's exporters.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct ExportTraces {
    /// The spans, by resource.
    #[schemars(rename = "resourceSpans")]
    pub resource_spans: Option<Vec<Map<String, Value>>>,
}

/// The answer to OpenTelemetry's exporters.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct TracesExported {
    /// What was not taken.
    #[serde(rename = "partialSuccess", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PartialSuccess")]
    pub partial_success: Option<PartialSuccess>,
}

/// What was not taken.
#[derive(Debug, Default, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct PartialSuccess {
    /// How many spans.
    #[serde(rename = "rejectedSpans")]
    pub rejected_spans: String,
    /// Why.
    #[serde(rename = "errorMessage")]
    pub error_message: String,
}
