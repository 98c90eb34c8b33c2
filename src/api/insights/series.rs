//! Answers of trends, lifecycles and stickiness: [`Series`].

use std::fmt;
use std::ops::Not;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::insights::value::{AsSent, BreakdownValue, EntityId, EntityKind, Number, PersonsUrl};
use crate::words;

/// A series.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "TrendSeries")]
pub struct Series {
    /// The entity of the series; null for a formula.
    pub action: Option<SeriesEntity>,
    /// Where the whole range has one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Number")]
    pub aggregated_value: Option<Number>,
    /// The value of the breakdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BreakdownValue")]
    pub breakdown_value: Option<BreakdownValue>,
    /// Whether there is another period to compare with.
    #[serde(default, skip_serializing_if = "Not::not")]
    #[schemars(extend("const" = true))]
    pub compare: bool,
    /// The period, where there is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Period")]
    pub compare_label: Option<Period>,
    /// The sum of the numbers; the last one of those that are summed up.
    pub count: Number,
    /// A number for each interval.
    pub data: Vec<Number>,
    /// Beginnings of intervals; of stickiness numbers of intervals.
    pub days: Vec<Day>,
    /// What it is called.
    pub label: String,
    /// What the intervals are called.
    pub labels: Vec<String>,
    /// The number of the series in the query, of trends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    pub order: Option<usize>,
    /// The persons behind each number, for the filters of older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<PersonsUrl>")]
    pub persons_urls: Option<Vec<PersonsUrl>>,
    /// Of a lifecycle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Status")]
    pub status: Option<Status>,
}

/// The events of a series, and what is computed of them, in the form of older clients.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SeriesEntity {
    /// The name that a user gave it.
    pub custom_name: Option<String>,
    /// The name of the events or the id of the action; null for all events.
    pub id: Option<EntityId>,
    /// What is computed.
    pub math: String,
    /// As it was sent.
    pub math_group_type_index: Option<usize>,
    /// As it was sent.
    pub math_hogql: Option<String>,
    /// As it was sent.
    pub math_property: Option<String>,
    /// The name of the events or the action.
    pub name: String,
    /// The number of the series in the query.
    pub order: usize,
    /// The filters, as they were sent.
    pub properties: AsSent,
    /// Whether it is an action.
    #[serde(rename = "type")]
    pub kind: EntityKind,
}

/// A period of a comparison.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Period {
    /// The one that was asked for.
    Current,
    /// The one that it is compared with.
    Previous,
}

words! {
    /// What persons are in an interval.
    Status {
        /// Active for the first time, in the interval in which they were created.
        New = "new",
        /// Active as in the interval before.
        Returning = "returning",
        /// Active, but not in the interval before.
        Resurrecting = "resurrecting",
        /// Not active, but in the interval before.
        Dormant = "dormant",
    }
}

/// What a number of a series is of.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Day {
    /// The beginning of an interval.
    Beginning(String),
    /// So many intervals, of stickiness.
    Intervals(usize),
}

impl fmt::Display for Day {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beginning(text) => formatter.write_str(text),
            Self::Intervals(number) => number.fmt(formatter),
        }
    }
}
