//! Early access features as SDKs get them: [`EarlyAccessSummary`].

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Features that people may enrol in.
#[derive(Debug, JsonSchema, Serialize)]
pub struct EarlyAccessFeatures {
    /// The features.
    #[serde(rename = "earlyAccessFeatures")]
    pub features: Vec<EarlyAccessSummary<'static>>,
}

/// The stage of a feature. People enrol in the flag from alpha to general-availability.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the words of the API")]
pub enum Stage {
    Draft,
    Concept,
    Alpha,
    Beta,
    GeneralAvailability,
    Archived,
}

/// A feature as SDKs get it.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlyAccessSummary<'f> {
    /// The id.
    #[schemars(extend("format" = "uuid"))]
    pub id: String,
    /// The name.
    pub name: &'f str,
    /// What it does.
    pub description: &'f str,
    /// Whether people may enrol in the flag.
    #[schemars(with = "Stage")]
    pub stage: &'f str,
    /// Where it is described.
    pub documentation_url: &'f str,
    /// What SDKs get with it.
    pub payload: Value,
    /// The key of the flag.
    pub flag_key: &'f str,
}
