//! Results of funnels: [`Funnel`], and [`FunnelTo`], which reads one for its query node.

use schemars::JsonSchema;
use serde::de::DeserializeSeed;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::insights::value::{BreakdownValue, EntityId, EntityKind, PersonsUrl};

/// What is shown of a funnel.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Funnel {
    /// How many actors come to each step.
    Steps(Steps),
    /// The part that converts, by the interval of the first step: a series for each value of the breakdown.
    Trends(Vec<Conversion>),
    /// How long they take.
    Times(Times),
}

/// Reads the answer to this node of a funnel, which nothing is around any more.
#[derive(Clone, Copy, Debug)]
pub struct FunnelTo<'q>(pub &'q Value);

impl<'de> DeserializeSeed<'de> for FunnelTo<'_> {
    type Value = Funnel;

    fn deserialize<D: Deserializer<'de>>(self, results: D) -> Result<Funnel, D::Error> {
        match self.0.pointer("/funnelsFilter/funnelVizType").and_then(Value::as_str) {
            Some("trends") => Vec::deserialize(results).map(Funnel::Trends),
            Some("time_to_convert") => Times::deserialize(results).map(Funnel::Times),
            _ => Steps::deserialize(results).map(Funnel::Steps),
        }
    }
}

/// The steps of a funnel.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Steps {
    /// Without a breakdown.
    All(Vec<Step>),
    /// Of each value of the breakdown.
    ByValue(Vec<Vec<Step>>),
}

/// A step of a funnel.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "FunnelStep")]
pub struct Step {
    /// The name of the events or the id of the action; null for all events, and for steps in any order.
    pub action_id: Option<EntityId>,
    /// From the step before, in seconds.
    pub average_conversion_time: Option<f64>,
    /// What the value of the breakdown is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BreakdownValue")]
    pub breakdown: Option<BreakdownValue>,
    /// The value of the breakdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BreakdownValue")]
    pub breakdown_value: Option<BreakdownValue>,
    /// Those who came to it, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converted_people_url: Option<String>,
    /// How many actors came to it.
    pub count: u64,
    /// The name that a user gave it.
    pub custom_name: Option<String>,
    /// Those who did not, for the filters of older clients; null of the first step, which all came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_people_url: Option<Option<String>>,
    /// From the step before, in seconds.
    pub median_conversion_time: Option<f64>,
    /// The name of the events or the action.
    pub name: String,
    /// The number of the step, from 0.
    pub order: usize,
    /// Always empty.
    pub people: [Value; 0],
    /// Whether it is an action.
    #[serde(rename = "type")]
    pub kind: EntityKind,
}

/// A series of conversion by interval.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "FunnelSeries")]
pub struct Conversion {
    /// The value of the breakdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BreakdownValue")]
    pub breakdown_value: Option<BreakdownValue>,
    /// The number of intervals.
    pub count: usize,
    /// The part of those who begin in each interval that converts, in percent.
    pub data: Vec<f64>,
    /// Beginnings of intervals.
    pub days: Vec<String>,
    /// What the intervals are called.
    pub labels: Vec<String>,
    /// The persons behind each number, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<PersonsUrl>")]
    pub persons_urls: Option<Vec<PersonsUrl>>,
}

/// How long actors take from one step to another.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "FunnelTimes")]
pub struct Times {
    /// Their mean, in seconds.
    pub average_conversion_time: Option<f64>,
    /// Where each bin begins, in seconds, and how many actors are in it.
    pub bins: Vec<(f64, u64)>,
}
