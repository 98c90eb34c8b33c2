//! Projects, and what all flags of a project share.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// A project; the names are PostHog's.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Project {
    /// The id in paths.
    pub id: i64,
    /// The organization, a UUID.
    pub organization: String,
    /// The name.
    pub name: String,
    /// The token with which SDKs send.
    pub api_token: String,
    /// The name of its time zone.
    pub timezone: String,
    /// Whether events are stored without the addresses of their clients.
    pub anonymize_ips: bool,
    /// The day on which weeks begin: 0 for Sunday, 1 for Monday.
    pub week_start_day: i64,
    /// Filters by which queries leave out the operator's own traffic.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub test_account_filters: Value,
    /// Properties whose first present value is a person's name; null for the defaults.
    pub person_display_name_properties: Option<Vec<String>>,
    /// Days for which events are kept, by their timestamp; null for all.
    pub event_retention_days: Option<i64>,
    /// The time before which no event is kept today; null if all are.
    pub events_kept_from: Option<String>,
    /// The time of its creation.
    pub created_at: String,
}

/// What all flags of a project share.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FlagSettings {
    /// How filters of flags compare texts such as `true`: 1 as truth values, 2 as texts.
    #[schemars(extend("enum" = [1, 2]))]
    pub property_matching_version: u8,
    /// SDKs may leave out of `$feature_flag_called` what says nothing of the flag.
    pub minimal_flag_called_events: bool,
    /// The end of the secret key, if there is one.
    pub secret_api_token_mask: Option<String>,
}

/// A new secret key of a project.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ProjectSecret {
    /// The key; returned only here.
    pub secret_api_token: String,
}
