//! Feature flags, and responses about them: their state, their values and why, results of bulk changes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::accounts::{Role, User};
use crate::enrolment::EarlyAccessSummary;

/// A flag.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Flag {
    /// The id in paths.
    pub id: i64,
    /// Description of the flag.
    pub name: String,
    /// By which SDKs ask for it.
    pub key: String,
    /// Conditions: groups, multivariate, payloads and more, as PostHog writes them.
    #[schemars(with = "Map<String, Value>")]
    pub filters: Value,
    /// True deletes, false restores.
    pub deleted: bool,
    /// Whether it is on.
    pub active: bool,
    /// Who made it.
    pub created_by: Option<User>,
    /// The time of its creation.
    pub created_at: String,
    /// Whether its only condition is a part of all persons.
    pub is_simple_flag: bool,
    /// The part of a simple flag, a number as received; null for all, and for a flag that is not simple.
    #[schemars(with = "Option<f64>")]
    pub rollout_percentage: Value,
    /// Whether a person keeps its value across signing in.
    pub ensure_experience_continuity: bool,
    /// Always empty: there are no experiments.
    pub experiment_set: Vec<i64>,
    /// Always empty: there are no surveys.
    pub surveys: Map<String, Value>,
    /// The early access feature that has the flag, by its id.
    #[schemars(with = "BTreeMap<String, EarlyAccessSummary<'static>>")]
    pub features: Map<String, Value>,
    /// Kept for the client, without effect.
    pub rollback_conditions: Value,
    /// Whether it was rolled back.
    pub performed_rollback: Option<bool>,
    /// Whether the caller may change it.
    pub can_edit: bool,
    /// Labels.
    pub tags: Vec<String>,
    /// The dashboard about its use.
    pub usage_dashboard: Option<i64>,
    /// Other dashboards about it.
    pub analytics_dashboards: Vec<i64>,
    /// Whether SDKs send more events about it.
    pub has_enriched_analytics: Option<bool>,
    /// Every change makes another.
    pub version: i64,
    /// The time of the last change.
    pub updated_at: String,
    /// Who made the last change.
    pub last_modified_by: Option<User>,
    /// Whether lists leave it out.
    pub archived: bool,
    /// What is hashed: `distinct_id` or `device_id`; null for the first.
    pub bucketing_identifier: Option<String>,
    /// Where it is evaluated.
    #[schemars(extend("enum" = ["server", "client", "all"]))]
    pub evaluation_runtime: String,
    /// The contexts in which it is evaluated; empty for all.
    pub evaluation_contexts: Vec<String>,
    /// Whether it is read only for its payload.
    pub is_remote_configuration: bool,
    /// Always false: payloads are never encrypted.
    pub has_encrypted_payloads: bool,
    /// Always empty.
    pub experiment_set_metadata: Vec<Value>,
    /// What the caller may do with it.
    #[schemars(extend("enum" = ["editor", "viewer"]))]
    pub user_access_level: String,
    /// Always false: sessions are not recorded.
    pub is_used_in_replay_settings: bool,
    /// Whether an experiment could use it: it has two variants or more, `control` first.
    pub is_eligible_for_experiment: bool,
    /// Whether it is still of use.
    #[schemars(extend("enum" = ["active", "stale", "archived", "deleted"]))]
    pub status: String,
    /// When an SDK last reported a call of it, up to half a minute late.
    pub last_called_at: Option<String>,
}

/// A flag within another object.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MinimalFlag {
    /// Whether it is on.
    pub active: bool,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Whether a person keeps its value across signing in.
    pub ensure_experience_continuity: bool,
    /// Conditions, variants and payloads.
    #[schemars(with = "Map<String, Value>")]
    pub filters: Value,
    /// The id in paths.
    pub id: i64,
    /// By which SDKs ask for it.
    pub key: String,
    /// Description of the flag.
    pub name: String,
    /// The project.
    pub team_id: i64,
    /// Every change makes another.
    pub version: i64,
}

/// A flag among others.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FlagKey {
    /// The id in paths.
    pub id: i64,
    /// By which SDKs ask for it.
    pub key: String,
    /// Description of the flag; its key without one.
    pub name: String,
}

/// The flag of a key in one project.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FlagOfProject {
    /// The id in paths.
    pub flag_id: i64,
    /// The project.
    pub team_id: i64,
    /// Who made it.
    pub created_by: Option<User>,
    /// Conditions, variants and payloads.
    #[schemars(with = "Map<String, Value>")]
    pub filters: Value,
    /// The time of its creation.
    pub created_at: String,
    /// Whether it is on.
    pub active: bool,
    /// How often SDKs said that they called it; null if that cannot be counted.
    pub evaluations_7d: Option<i64>,
}

/// The flag by which a key is shown.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FlagOfKey {
    /// The key.
    pub key: String,
    /// Description of the flag.
    pub name: String,
    /// The id of the flag in paths.
    pub flag_id: i64,
    /// The project of the flag.
    pub team_id: i64,
    /// Conditions, variants and payloads.
    #[schemars(with = "Map<String, Value>")]
    pub filters: Value,
    /// Whether it is on.
    pub active: bool,
}

/// A flag as it was at a version: its fields, in the order of their names.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct FlagVersion {
    /// The fields.
    pub fields: Map<String, Value>,
}

impl JsonSchema for FlagVersion {
    fn schema_name() -> Cow<'static, str> {
        "FlagVersion".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        FieldsOfVersion::json_schema(generator)
    }
}

/// The fields that a version always has; has no values.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is in the description alone")]
struct FieldsOfVersion {
    /// The id in paths.
    id: i64,
    /// This version.
    version: i64,
    /// The version of now.
    current_version: i64,
    /// By which SDKs asked for it.
    key: String,
    /// Conditions, variants and payloads.
    filters: Map<String, Value>,
}

/// Whether a flag is still of use.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FlagStatus {
    /// When an SDK last reported a call of it.
    pub last_called_at: Option<String>,
    /// Why it has this status, for people.
    pub reason: String,
    /// Whether the reason says what everybody gets.
    pub reason_states_rollout: bool,
    /// Who gets it.
    pub rollout: FlagRollout,
    /// Whether it is still of use.
    #[schemars(extend("enum" = ["active", "stale", "archived", "deleted"]))]
    pub status: String,
}

/// Who gets a flag.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct FlagRollout {
    /// Whether everybody gets it, and the same of it.
    pub effectively_full_rollout: bool,
    /// Whether some condition has filters.
    pub has_targeting_conditions: bool,
    /// Whether it has variants.
    pub is_multivariate: bool,
    /// The largest percentage of its conditions.
    #[schemars(with = "Option<f64>")]
    pub max_rollout_percentage: Option<Value>,
}

/// What a flag is for somebody: on, off or a variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FlagValue {
    /// It is on or off.
    Is(bool),
    /// The variant of a flag that is on.
    Variant(String),
}

impl From<FlagValue> for Value {
    fn from(value: FlagValue) -> Self {
        match value {
            FlagValue::Is(is_on) => Self::Bool(is_on),
            FlagValue::Variant(key) => Self::String(key),
        }
    }
}

impl JsonSchema for FlagValue {
    fn schema_name() -> Cow<'static, str> {
        "FlagValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["boolean", "string"]})
    }
}

/// What flags are for somebody, and why, by their keys.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[serde(transparent)]
pub struct EvaluationReasons(pub BTreeMap<String, ExplainedValue>);

/// What a flag is for somebody, and why.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct ExplainedValue {
    /// Why.
    pub evaluation: Evaluation,
    /// What it is.
    pub value: FlagValue,
}

/// Why a flag is what it is for somebody.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Evaluation {
    /// The condition that decided, from 0.
    pub condition_index: Option<usize>,
    /// The reason for people; absent for a flag that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The reason for programs.
    pub reason: String,
}

/// A flag as it is for the caller.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MyFlag {
    /// The flag.
    pub feature_flag: MinimalFlag,
    /// What it is.
    pub value: FlagValue,
}

/// What a flag is for one person, and every step that leads to it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TestedEvaluation {
    /// The condition that decided, from 0.
    pub condition_index: Option<usize>,
    /// The conditions.
    pub conditions: Vec<ConditionTrace>,
    /// For whom.
    pub evaluation_distinct_id: String,
    /// The flag.
    pub flag_key: String,
    /// What clients get with it.
    pub payload: Value,
    /// The properties of the person; null if there is none.
    pub person_properties: Option<Map<String, Value>>,
    /// The reason for programs.
    pub reason: String,
    /// The reason for people.
    pub reason_description: String,
    /// What it is.
    pub result: FlagValue,
}

/// What a condition says of one person.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ConditionTrace {
    /// From 0; -1 is early access, -2 the holdout.
    pub index: i64,
    /// Its filters.
    pub properties: Vec<PropertyTrace>,
    /// The part in percent.
    pub rollout_percentage: f64,
    /// The variant of a match.
    pub variant: Option<String>,
    /// Whether it decided; of one flag at most one did.
    pub matched: bool,
    /// Whether all its filters match.
    pub properties_matched: bool,
    /// Whether only the rollout left the person out.
    pub rollout_excluded: bool,
    /// For people.
    pub explanation: String,
}

/// What a filter says of one person.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct PropertyTrace {
    /// As stored.
    pub key: Value,
    /// As stored.
    pub operator: Value,
    /// As stored.
    pub value: Value,
    /// Whose property it is.
    pub r#type: String,
    /// The value of the person; null also without one.
    pub actual_value: Value,
    /// Whether it matches.
    pub matched: bool,
    /// For people.
    pub explanation: String,
}

/// What a change would make of a flag.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FlagPreview {
    /// The version of the flag that would be changed.
    pub version: i64,
    /// The fields that would differ.
    pub changes: Vec<FlagDifference>,
}

/// A field that a change would make another.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct FlagDifference {
    /// Its name, of a part of the filters `filters.groups` and the like.
    pub field: String,
    /// As it is.
    pub before: Value,
    /// As it would be.
    pub after: Value,
}

/// How many persons or groups a condition matches.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Audience {
    /// Those who match.
    pub affected: u64,
    /// All.
    pub total: u64,
    /// All; the older name.
    pub total_users: u64,
    /// Those who match; the older name.
    pub users_affected: u64,
}

/// Whether something was done.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Success {
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it was.
    pub success: bool,
}

/// The keys of some flags.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "FeatureFlagsBulkKeysCreateAnswer")]
pub struct FlagKeys {
    /// By their ids.
    pub keys: BTreeMap<String, String>,
    /// Which ids are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The ids of some flags.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "FeatureFlagsMatchingIdsRetrieveAnswer")]
pub struct FlagIds {
    /// The ids.
    pub ids: Vec<i64>,
    /// How many.
    pub total: usize,
}

/// Which flags were deleted at once.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BulkDeleted {
    /// Those that were.
    pub deleted: Vec<DeletedFlag>,
    /// Those that were not.
    pub errors: Vec<KeptFlag>,
}

/// A flag that was deleted.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct DeletedFlag {
    /// The variant that everybody had.
    pub active_variant: Option<String>,
    /// The id.
    pub id: i64,
    /// The key.
    pub key: String,
    /// Who had it.
    #[schemars(extend("enum" = ["fully_rolled_out", "not_rolled_out", "partial"]))]
    pub rollout_state: String,
}

/// A flag that was not deleted.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct KeptFlag {
    /// The id.
    pub id: i64,
    /// The key; absent if there is no such flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why, for people.
    pub reason: String,
}

/// Which flags got other tags at once.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BulkTagged {
    /// Those that did not.
    pub skipped: Vec<SkippedFlag>,
    /// Those that did, or had them.
    pub updated: Vec<TaggedFlag>,
}

/// A flag that was left alone.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct SkippedFlag {
    /// The id.
    pub id: i64,
    /// Why, for people.
    pub reason: String,
}

/// A flag with its tags.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct TaggedFlag {
    /// The id.
    pub id: i64,
    /// The tags.
    pub tags: Vec<String>,
}

/// Where a flag was copied to.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FlagsCopied {
    /// Where it was not.
    pub failed: Vec<CopyFailure>,
    /// The copies.
    pub success: Vec<ByName<CopiedFlag>>,
}

/// A project to which a flag was not copied.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct CopyFailure {
    /// Why, for people.
    pub error_message: String,
    /// The project as it was sent.
    pub project_id: Value,
}

/// A copy of a flag.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct CopiedFlag {
    /// The copy.
    #[serde(flatten)]
    pub flag: Flag,
    /// The project.
    pub team_id: i64,
    /// Why changes were not scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_copy_warning: Option<String>,
}

/// That those with a role may change a flag.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RoleAccess {
    /// Since when.
    pub added_at: String,
    /// The flag.
    pub feature_flag: ByName<Flag>,
    /// The id in paths.
    pub id: i64,
    /// The role.
    pub role: ByName<Role>,
    /// The time of the last change.
    pub updated_at: String,
}

/// An object whose fields are sent in the order of their names.
#[derive(Clone, Debug)]
pub struct ByName<T>(pub T);

impl<T: JsonSchema> JsonSchema for ByName<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: Serialize> Serialize for ByName<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::to_value(&self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}
