//! Answers of paths: [`Edge`]s.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A step and the next one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "PathEdge")]
pub struct Edge {
    /// In milliseconds.
    pub average_conversion_time: f64,
    /// Place and item of a step, such as `1_/pricing`.
    pub source: String,
    /// Those of the next one.
    pub target: String,
    /// How often paths take it.
    pub value: u64,
}
