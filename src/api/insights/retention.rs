//! Answers of retention: [`Row`]s.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Those who did something in an interval.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "RetentionRow")]
pub struct Row {
    /// The value of the breakdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub breakdown_value: Option<String>,
    /// When the interval begins.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub date: Option<String>,
    /// What the interval is called.
    pub label: String,
    /// They themselves, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub people_url: Option<Option<String>>,
    /// Those of them who came back in each interval after it.
    pub values: Vec<Cell>,
}

/// Those who came back in an interval.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "RetentionCell")]
pub struct Cell {
    /// The sum or the mean of the numbers of their events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub aggregation_value: Option<f64>,
    /// How many they are.
    pub count: u64,
    /// What the interval is called.
    pub label: String,
    /// Always empty, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "[Value; 0]")]
    pub people: Option<[Value; 0]>,
    /// They themselves, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub people_url: Option<Option<String>>,
}
