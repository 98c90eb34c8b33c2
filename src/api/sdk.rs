//! What SDKs get besides captured events: flags, their definitions, settings; OpenFeature's protocol.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::flags::{ConditionTrace, FlagValue};

/// Whose flags are wanted.
#[derive(Debug, JsonSchema)]
pub struct FlagsQuestion {
    /// The project API key; also token.
    pub api_key: String,
    /// Whose.
    pub distinct_id: String,
    /// From group type to group key.
    pub groups: Option<BTreeMap<String, String>>,
    /// Used instead of the stored ones.
    pub person_properties: Option<Map<String, Value>>,
    /// By group type; used instead of the stored ones.
    pub group_properties: Option<BTreeMap<String, Map<String, Value>>>,
    /// The distinct id before the login.
    #[schemars(rename = "$anon_distinct_id")]
    pub anon_distinct_id: Option<String>,
    /// The device, for flags that stay the same on it.
    pub device_id: Option<String>,
    /// Only these flags.
    pub flag_keys: Option<Vec<String>>,
    /// Only flags of these contexts.
    pub evaluation_contexts: Option<Vec<String>>,
    /// Whether no flags are wanted.
    pub disable_flags: Option<bool>,
    /// Whether the address says nothing of the place.
    pub geoip_disable: Option<bool>,
}

/// The flags of somebody. The settings are there for /decide and with config=true.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FlagsAnswer {
    /// Whether some flags could not be evaluated.
    #[serde(rename = "errorsWhileComputingFlags")]
    pub has_errors: bool,
    /// The same, of /decide.
    #[serde(rename = "errorComputingFlags", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub has_error: Option<bool>,
    /// /flags?v=2, /decide?v=4.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, FlagRecord>")]
    pub flags: Option<BTreeMap<String, FlagRecord>>,
    /// Older versions: values by key; keys of those that are on in /decide?v=1.
    #[serde(rename = "featureFlags", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OlderFlags")]
    pub feature_flags: Option<OlderFlags>,
    /// Older versions: payloads by key.
    #[serde(rename = "featureFlagPayloads", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub payloads: Option<Map<String, Value>>,
    /// SDKs may say less of calls; /flags?v=2, /decide?v=4.
    #[serde(rename = "minimalFlagCalledEvents", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool", extend("const" = true))]
    pub minimal_called_events: Option<bool>,
    /// By which calls of flags name the request.
    #[serde(rename = "requestId")]
    #[schemars(extend("format" = "uuid"))]
    pub request_id: String,
    /// Milliseconds since 1970.
    #[serde(rename = "evaluatedAt")]
    pub evaluated_at: i64,
    /// How bodies may be compressed.
    #[serde(rename = "supportedCompression", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub supported_compression: Option<Vec<String>>,
    /// Whether the project has any flags.
    #[serde(rename = "hasFeatureFlags", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub has_feature_flags: Option<bool>,
    /// Of SDKs from before 2025.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub config: Option<Map<String, Value>>,
    /// Always empty.
    #[serde(rename = "editorParams", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub editor_params: Option<Map<String, Value>>,
    /// Always false.
    #[serde(rename = "isAuthenticated", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub is_authenticated: Option<bool>,
}

/// Flags as older versions of SDKs read them.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OlderFlags {
    /// Values by key.
    Values(BTreeMap<String, FlagValue>),
    /// Keys of those that are on.
    Keys(Vec<String>),
}

/// A flag, and why it is what it is.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FlagRecord {
    /// Its key.
    pub key: String,
    /// Whether it is on.
    pub enabled: bool,
    /// The variant of a flag that is on.
    pub variant: Option<String>,
    /// Whether it could not be evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub failed: Option<bool>,
    /// Why.
    pub reason: FlagReason,
    /// The rest.
    pub metadata: FlagMetadata,
    /// Every step, for a detailed analysis.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<ConditionTrace>")]
    pub conditions: Option<Vec<ConditionTrace>>,
}

/// Why a flag is what it is.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct FlagReason {
    /// For programs.
    pub code: String,
    /// The condition that decided, from 0.
    pub condition_index: Option<usize>,
    /// For people.
    pub description: String,
}

/// What SDKs know of a flag besides its value.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct FlagMetadata {
    /// The id.
    pub id: i64,
    /// Counts its changes.
    pub version: i64,
    /// Always null.
    pub description: (),
    /// What clients get with it.
    pub payload: Value,
    /// Always false.
    pub has_experiment: bool,
}

/// The definitions of flags, for servers that evaluate them themselves.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Definitions {
    /// The flags.
    pub flags: Vec<FlagDefinition>,
    /// From the index of a group type to its name.
    pub group_type_mapping: BTreeMap<String, String>,
    /// The rules of cohorts, by their ids.
    pub cohorts: Map<String, Value>,
    /// Whether SDKs may say less of calls.
    pub minimal_flag_called_events: bool,
    /// The version of the rules by which filters match.
    #[schemars(extend("enum" = [1, 2]))]
    pub property_matching_version: i64,
}

/// The definition of a flag.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the API")]
pub struct FlagDefinition {
    /// The id.
    pub id: i64,
    /// The project.
    pub team_id: i64,
    /// What it is for.
    pub name: String,
    /// The key.
    pub key: String,
    /// Conditions, variants, payloads.
    pub filters: Map<String, Value>,
    /// Always false.
    pub deleted: bool,
    /// Whether it is on.
    pub active: bool,
    /// Whether the value persists across a login.
    pub ensure_experience_continuity: bool,
    /// Counts its changes.
    pub version: i64,
    /// Where it is evaluated.
    pub evaluation_runtime: String,
    /// What decides who is in a percentage.
    pub bucketing_identifier: Option<String>,
    /// Where it is used.
    pub evaluation_contexts: Vec<String>,
    /// Always false.
    pub has_experiment: bool,
}

/// Settings of browser and mobile SDKs.
#[derive(Debug, JsonSchema, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the API")]
pub struct RemoteConfig {
    /// The project API key.
    pub token: String,
    /// How bodies may be compressed.
    #[serde(rename = "supportedCompression")]
    pub supported_compression: Vec<String>,
    /// Whether the project has any flags.
    #[serde(rename = "hasFeatureFlags")]
    pub has_feature_flags: bool,
    /// Always false.
    #[serde(rename = "sessionRecording")]
    pub session_recording: bool,
    /// Always false.
    pub heatmaps: bool,
    /// Always false.
    pub autocapture_opt_out: bool,
    /// Where events go.
    pub analytics: AnalyticsEndpoint,
    /// Always empty.
    #[serde(rename = "siteApps")]
    pub site_apps: Vec<Value>,
}

/// Where events go.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct AnalyticsEndpoint {
    /// The path.
    pub endpoint: String,
}

/// An empty list of what this server does not have.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct NoSurveys {
    /// Always empty.
    pub surveys: [Value; 0],
}

/// An empty list of what this server does not have.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct NoExperiments {
    /// Always empty.
    pub experiments: [Value; 0],
}

/// An empty list of what this server does not have.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct NoTours {
    /// Always empty.
    pub product_tours: [Value; 0],
}

/// Whose flags are wanted, by OpenFeature's protocol.
#[derive(Debug, JsonSchema)]
pub struct OfrepQuestion {
    /// Everything else is a property of the person.
    pub context: OfrepContext,
}

/// Whose flags are wanted.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub struct OfrepContext {
    /// The distinct id.
    #[schemars(rename = "targetingKey", length(min = 1))]
    pub targeting_key: String,
    /// From group type to group key.
    pub groups: Option<BTreeMap<String, String>>,
}

/// A flag by OpenFeature's protocol.
#[derive(Debug, JsonSchema, Serialize)]
pub struct OfrepFlag {
    /// The key.
    pub key: String,
    /// The value; absent for a flag that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FlagValue")]
    pub value: Option<FlagValue>,
    /// Why.
    #[schemars(extend("enum" = ["STATIC", "TARGETING_MATCH", "SPLIT", "DISABLED", "DEFAULT"]))]
    pub reason: String,
    /// true or false for a flag without variants, and one that is off.
    pub variant: String,
    /// The rest.
    pub metadata: Map<String, Value>,
}

/// Why there is no value, by OpenFeature's protocol.
#[derive(Debug, JsonSchema, Serialize)]
pub struct OfrepFailure {
    /// The key of the flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
    /// For programs.
    #[serde(rename = "errorCode")]
    #[schemars(extend("enum" = ["PARSE_ERROR", "INVALID_CONTEXT", "TARGETING_KEY_MISSING", "FLAG_NOT_FOUND", "GENERAL"]))]
    pub error_code: String,
    /// For people.
    #[serde(rename = "errorDetails")]
    pub error_details: String,
}

/// A flag, or why it has no value.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OfrepResult {
    /// The flag.
    Flag(OfrepFlag),
    /// Why there is none.
    Failure(OfrepFailure),
}

/// All flags by OpenFeature's protocol.
#[derive(Debug, JsonSchema, Serialize)]
pub struct OfrepFlags {
    /// The flags.
    pub flags: Vec<OfrepResult>,
    /// The rest.
    pub metadata: Map<String, Value>,
    /// Streams that tell when flags change.
    #[serde(rename = "eventStreams")]
    pub event_streams: Vec<OfrepStream>,
}

/// A stream that tells when flags change.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct OfrepStream {
    /// Server-sent events.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "sse"))]
    pub kind: String,
    /// Its address.
    pub url: String,
    /// After how long without readers it may be closed.
    #[serde(rename = "inactivityDelaySec")]
    pub inactivity_delay_sec: u64,
}

/// What this server is.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Server<'s> {
    /// Always weir.
    #[schemars(extend("const" = "weir"))]
    pub name: &'s str,
    /// The version.
    pub version: &'s str,
    /// Whether events are taken.
    pub ready: bool,
    /// Why they are not.
    pub reason: Option<&'s str>,
    /// Path of the description of all endpoints.
    pub schema: &'s str,
}

/// An error of every endpoint.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Error {
    /// Class of the error.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["validation_error", "authentication_error", "invalid_request", "server_error", "throttled_error"]))]
    pub kind: String,
    /// For programs.
    pub code: String,
    /// For people.
    pub detail: String,
    /// The field at fault, nested names joined by __; null or absent if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub attr: Option<Option<String>>,
}

/// An error in one word, where the original answers so.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct BareError {
    /// Why.
    pub error: String,
}
