//! Personal API keys.

use schemars::JsonSchema;
use serde::Serialize;

/// A key; the names are PostHog's.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Key {
    /// The id in paths.
    pub id: i64,
    /// What its owner calls it.
    pub label: String,
    /// Returned only on creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The part of the value by which its owner knows it again.
    pub mask_value: String,
    /// What it grants, such as `person:read`; `*` is everything.
    pub scopes: Vec<String>,
    /// The projects that the key is limited to; empty for all of them. Clients require a list.
    pub scoped_teams: Vec<i64>,
    /// Always empty: a key belongs to the one organization of its user.
    pub scoped_organizations: [String; 0],
    /// The time of its creation.
    pub created_at: String,
    /// The time of its last use.
    pub last_used_at: Option<String>,
    /// The number of its owner.
    pub user_id: i64,
}
