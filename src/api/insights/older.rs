//! What the filters of older clients are answered with: the answer of the kind, and how it was computed.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::insights::correlation::Correlations;
use crate::insights::funnel::Funnel;
use crate::insights::paths::Edge;
use crate::insights::retention::Row;
use crate::insights::series::Series;

/// How an answer was computed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Computed {
    /// Whether it is a kept one.
    pub is_cached: bool,
    /// When it was computed.
    #[schemars(extend("format" = "date-time"))]
    pub last_refresh: String,
    /// How long each phase took.
    pub timings: Vec<Value>,
    /// The time zone of the project.
    pub timezone: String,
}

/// Of trends, a lifecycle or stickiness.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TrendAnswer {
    /// The series.
    pub result: Vec<Series>,
    /// How it was computed.
    #[serde(flatten)]
    pub computed: Computed,
    /// Further values of the breakdown.
    pub next: Option<String>,
}

/// Of a funnel.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FunnelAnswer {
    /// Steps; with a breakdown lists of them; series of a trend; bins of times.
    pub result: Funnel,
    /// How it was computed.
    #[serde(flatten)]
    pub computed: Computed,
}

/// Of a retention.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RetentionAnswer {
    /// The rows.
    pub result: Vec<Row>,
    /// How it was computed.
    #[serde(flatten)]
    pub computed: Computed,
}

/// Of paths.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PathsAnswer {
    /// The edges.
    pub result: Vec<Edge>,
    /// How it was computed.
    #[serde(flatten)]
    pub computed: Computed,
    /// Always null.
    pub next: (),
}

/// Of a correlation.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CorrelationAnswer {
    /// What correlates.
    pub result: Correlations,
    /// How it was computed.
    #[serde(flatten)]
    pub computed: Computed,
}
