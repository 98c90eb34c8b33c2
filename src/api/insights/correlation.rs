//! Answers of correlations: [`Correlations`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What correlates with success or failure.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Correlations {
    /// What goes with success, the strongest first; then what goes with failure, the strongest first.
    pub events: Vec<Correlated>,
    /// Whether there are more than ten times as many successes as failures, or the other way round.
    pub skewed: bool,
}

/// Something that correlates.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub struct Correlated {
    /// What it goes with.
    pub correlation_type: Outcome,
    /// What it is.
    pub event: Subject,
    /// How many of those with it do not come through the funnel.
    pub failure_count: u64,
    /// Those, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub failure_people_url: Option<String>,
    /// How many times larger the odds of success are with it than without.
    pub odds_ratio: f64,
    /// How many of those with it come through the funnel.
    pub success_count: u64,
    /// Those, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub success_people_url: Option<String>,
}

/// How actors may leave a funnel.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Outcome {
    /// They come through it.
    Success,
    /// They do not.
    Failure,
}

/// What correlates.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub struct Subject {
    /// Always empty.
    pub elements: [Value; 0],
    /// The name of an event; with `::` between them a property and its value; all three.
    pub event: String,
    /// Always empty.
    pub properties: Map<String, Value>,
}
