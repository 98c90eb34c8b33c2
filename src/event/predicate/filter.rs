//! One filter of a condition: the object that it applies to, and its predicate.
//!
//! Parses `{"key", "operator", "value", "type", "group_type_index"}`. Evaluates nothing: only the caller
//! knows cohorts and other flags.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::predicate::operator::Operator;
use crate::predicate::{Predicate, PredicateError, Reading};

/// A filter of a flag, a cohort or an insight.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Filter {
    /// A predicate on a property.
    Property {
        /// The object with the property.
        scope: Scope,
        /// The predicate.
        predicate: Predicate,
    },
    /// Membership of a cohort.
    Cohort {
        /// The cohort.
        id: i64,
        /// Which membership matches.
        membership: Membership,
    },
    /// The value of another flag.
    Flag {
        /// The other flag.
        id: i64,
        /// Which values match.
        expected: Expected,
    },
}

/// The object whose property a predicate tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// A property of the person.
    Person,
    /// A column of the person's row, such as `created_at`.
    PersonMetadata,
    /// A property of the group of this type; with `None` of the type that the condition aggregates by.
    Group(Option<u8>),
    /// A property of the event.
    Event,
    /// A column of the event's row, such as `distinct_id`.
    EventMetadata,
    /// A property of the session of the event.
    Session,
    /// None: the key is an SQL expression on the event, which must be true.
    Expression,
}

/// Which membership of a cohort matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// Members match.
    In,
    /// Persons who are not members match.
    NotIn,
    /// Never matches: the operator of the filter is not for cohorts.
    Nobody,
}

impl Membership {
    /// Whether a person matches, by whether it is inside the cohort.
    pub fn accepts(self, inside: bool) -> bool {
        match self {
            Self::In => inside,
            Self::NotIn => !inside,
            Self::Nobody => false,
        }
    }
}

/// Which values of another flag match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    /// Anything but false.
    On,
    /// False.
    Off,
    /// This variant; letters compare with case.
    Variant(Box<str>),
    /// Never matches: the operator or the value of the filter is not for flags.
    Nothing,
}

impl Filter {
    /// Parses one filter.
    ///
    /// # Errors
    ///
    /// [`PredicateError`]: the filter is malformed, or its type or operator is unknown.
    pub fn parse(json: &Value, reading: impl Into<Reading>) -> Result<Self, PredicateError> {
        let filter = json.as_object().ok_or(PredicateError::NotAnObject)?;
        let text = |name| filter.get(name).and_then(Value::as_str);
        let operator = text("operator");
        let value = filter.get("value");
        let scope = match text("type").unwrap_or("person") {
            "cohort" => return cohort(value, operator),
            "flag" => return flag(filter.get("key"), value, operator),
            "person" => Scope::Person,
            "person_metadata" => Scope::PersonMetadata,
            // The flags of an event are in its properties, as `$feature/<key>`.
            "event" | "feature" => Scope::Event,
            "group" => Scope::Group(group_type(filter.get("group_type_index"))?),
            other => return Err(PredicateError::UnknownType(other.to_owned())),
        };
        Self::property(filter, scope, reading)
    }

    /// Parses a filter on a property of `scope`, regardless of its `type`.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub(super) fn property(
        filter: &Map<String, Value>,
        scope: Scope,
        reading: impl Into<Reading>,
    ) -> Result<Self, PredicateError> {
        let text = |name| filter.get(name).and_then(Value::as_str);
        let key = text("key").ok_or(PredicateError::MissingKey)?;
        let predicate = Predicate::parse(key, text("operator"), filter.get("value"), reading)?;
        Ok(Self::Property { scope, predicate })
    }
}

/// Parses a group type index; `None` if it is absent.
///
/// # Errors
///
/// [`PredicateError::InvalidGroupType`].
pub fn group_type(json: Option<&Value>) -> Result<Option<u8>, PredicateError> {
    let Some(json) = json.filter(|json| !json.is_null()) else { return Ok(None) };
    let index = json.as_u64().and_then(|index| u8::try_from(index).ok());
    index.map(Some).ok_or_else(|| PredicateError::InvalidGroupType(json.to_string()))
}

/// Parses a cohort filter. Older user interfaces wrote `exact` or no operator for a membership.
fn cohort(value: Option<&Value>, operator: Option<&str>) -> Result<Filter, PredicateError> {
    let membership = match operator.map(Operator::parse).transpose()? {
        None | Some(Operator::In | Operator::Exact) => Membership::In,
        Some(Operator::NotIn) => Membership::NotIn,
        Some(_) => Membership::Nobody,
    };
    Ok(Filter::Cohort { id: id(value)?, membership })
}

fn flag(
    key: Option<&Value>,
    value: Option<&Value>,
    operator: Option<&str>,
) -> Result<Filter, PredicateError> {
    let operator = operator.map(Operator::parse).transpose()?;
    let expected = match value {
        _ if operator != Some(Operator::FlagEvaluatesTo) => Expected::Nothing,
        Some(Value::Bool(true)) => Expected::On,
        Some(Value::Bool(false)) => Expected::Off,
        Some(Value::String(variant)) => Expected::Variant(variant.as_str().into()),
        _ => Expected::Nothing,
    };
    Ok(Filter::Flag { id: id(key)?, expected })
}

/// Parses an id: a number, or a string with a number.
fn id(json: Option<&Value>) -> Result<i64, PredicateError> {
    let json = json.unwrap_or(&Value::Null);
    let id = match json {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    id.ok_or_else(|| PredicateError::InvalidId(json.to_string()))
}
