//! What answers of several kinds have: a [`Number`], a [`BreakdownValue`], and which events something is about.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// All whole numbers below this one are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A number that has a fraction in JSON only where it is not whole; null if it is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Number(pub f64);

impl Number {
    /// The number, if it is finite.
    pub fn finite(self) -> Option<f64> {
        Some(self.0).filter(|number| number.is_finite())
    }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self(count as f64)
    }
}

impl From<i64> for Number {
    fn from(count: i64) -> Self {
        Self(count as f64)
    }
}

impl Serialize for Number {
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within the range")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.fract() == 0.0 && self.0.abs() < EXACT {
            true => serializer.serialize_i64(self.0 as i64),
            false => serializer.serialize_f64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|number| Self(number.unwrap_or(f64::NAN)))
    }
}

impl JsonSchema for Number {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number"})
    }
}

/// JSON as it was sent. Read as text: `serde_json` gives a meaning to a key of values, which is an ordinary one here.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub struct AsSent(Box<RawValue>);

impl AsSent {
    /// The text of a value.
    pub fn of(value: &impl Serialize) -> Self {
        to_raw_value(value).map(Self).unwrap_or_default()
    }
}

impl Default for AsSent {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl PartialEq for AsSent {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl JsonSchema for AsSent {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AsSent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}

/// Where the persons behind a number are, for the filters of older clients.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub struct PersonsUrl {
    /// The filters of the address.
    #[schemars(with = "Map<String, Value>")]
    pub filter: AsSent,
    /// The address.
    pub url: String,
}

/// A value of a breakdown.
#[derive(Clone, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum BreakdownValue {
    /// The id of a cohort.
    Cohort(i64),
    /// The value of a property; `all` beside cohorts.
    One(String),
    /// The values of several properties.
    Several(Vec<String>),
}

/// Which events or which action something is about.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum EntityId {
    /// The id of an action.
    Action(i64),
    /// The name of events.
    Event(String),
}

/// What something is about.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum EntityKind {
    /// Events of an action.
    Actions,
    /// Events of a name, or all.
    #[default]
    Events,
}

#[cfg(test)]
mod tests {
    use super::Number;

    #[test]
    fn numbers_are_whole_where_they_are() {
        for (number, expected) in [
            (3.0, "3"),
            (-2.0, "-2"),
            (0.0, "0"),
            (-0.0, "0"),
            (2.5, "2.5"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (1e20, "1e+20"),
            (f64::NAN, "null"),
        ] {
            let text = serde_json::to_string(&Number(number)).unwrap();
            assert_eq!(text, expected);
            let Number(read) = serde_json::from_str(&text).unwrap();
            assert!(read == number || read.is_nan() && number.is_nan(), "{text}");
        }
    }
}
