//! Early access features: features that people may try before they are released to all.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::accounts::User;
use crate::enrolment::Stage;
use crate::flags::MinimalFlag;

/// An early access feature.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "EarlyAccessFeature")]
pub struct Feature {
    /// The id in paths.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// The flag that people enrol in.
    pub feature_flag: Option<MinimalFlag>,
    /// The name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Whether people may enrol in the flag.
    #[schemars(with = "Stage")]
    pub stage: String,
    /// Where it is described.
    pub documentation_url: String,
    /// What SDKs get with it.
    pub payload: Value,
    /// The time of its creation.
    pub created_at: String,
    /// Who made it.
    pub created_by: Option<User>,
    /// What the caller may do with it.
    #[schemars(extend("enum" = ["editor", "viewer"]))]
    pub user_access_level: String,
}
