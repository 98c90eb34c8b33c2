//! One filter of a condition: which object it looks at, and what it asks.
//!
//! Parses `{"key", "operator", "value", "type", "group_type_index"}`. Decides nothing: a cohort and
//! another flag are known to the caller only.

use serde_json::Map;
use serde_json::Value;

use crate::event::predicate::Matching;
use crate::event::predicate::Predicate;
use crate::event::predicate::PredicateError;
use crate::event::predicate::operator::Operator;

/// A filter of a flag, a cohort or an insight.
#[derive(Debug)]
pub enum Filter {
    /// A question about a property.
    Property {
        /// Whose property.
        scope: Scope,
        /// The question.
        predicate: Predicate,
    },
    /// A question about the membership of a cohort.
    Cohort {
        /// The cohort.
        id: i64,
        /// Which answer matches.
        membership: Membership,
    },
    /// A question about the value of another flag.
    Flag {
        /// The other flag.
        id: i64,
        /// Which values match.
        expected: Expected,
    },
}

/// Whose property a predicate asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The person's.
    Person,
    /// The person's row itself, as `created_at`.
    PersonMetadata,
    /// The group's of this type; `None` stands for the type that the condition aggregates by.
    Group(Option<u8>),
    /// The event's.
    Event,
    /// The event's row itself, as `distinct_id`.
    EventMetadata,
}

/// Which members of a cohort match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Those inside.
    In,
    /// Those outside.
    NotIn,
    /// Nobody: the operator of the filter is not one for cohorts.
    Nobody,
}

impl Membership {
    /// Whether somebody matches who is inside, or is not.
    pub fn accepts(self, inside: bool) -> bool {
        match self {
            Self::In => inside,
            Self::NotIn => !inside,
            Self::Nobody => false,
        }
    }
}

/// Which values of another flag match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Anything but false.
    On,
    /// False.
    Off,
    /// This variant; letters compare with case.
    Variant(Box<str>),
    /// No value: the operator or the value of the filter is not one for flags.
    Nothing,
}

impl Filter {
    /// Reads one filter.
    ///
    /// # Errors
    ///
    /// [`PredicateError`]: the filter is malformed, or of a type or with an operator that is not
    /// known.
    pub fn parse(json: &Value, matching: Matching) -> Result<Self, PredicateError> {
        let filter = json.as_object().ok_or(PredicateError::NotAnObject)?;
        let text = |name| filter.get(name).and_then(Value::as_str);
        let operator = text("operator");
        let value = filter.get("value");
        let scope = match text("type").unwrap_or("person") {
            "cohort" => return cohort(value, operator),
            "flag" => return flag(filter.get("key"), value, operator),
            "person" => Scope::Person,
            "person_metadata" => Scope::PersonMetadata,
            // Which flags an event was sent with stands in its properties, as `$feature/<key>`.
            "event" | "feature" => Scope::Event,
            "group" => Scope::Group(group_type(filter.get("group_type_index"))?),
            other => return Err(PredicateError::UnknownType(other.to_owned())),
        };
        Self::property(filter, scope, matching)
    }

    /// Reads a filter on a property of `scope`, whatever type it says.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub(super) fn property(
        filter: &Map<String, Value>,
        scope: Scope,
        matching: Matching,
    ) -> Result<Self, PredicateError> {
        let text = |name| filter.get(name).and_then(Value::as_str);
        let key = text("key").ok_or(PredicateError::MissingKey)?;
        let predicate = Predicate::parse(key, text("operator"), filter.get("value"), matching)?;
        Ok(Self::Property { scope, predicate })
    }
}

/// Reads a group type index; `None` if there is none.
///
/// # Errors
///
/// [`PredicateError::InvalidGroupType`].
pub fn group_type(json: Option<&Value>) -> Result<Option<u8>, PredicateError> {
    let Some(json) = json.filter(|json| !json.is_null()) else { return Ok(None) };
    let index = json.as_u64().and_then(|index| u8::try_from(index).ok());
    index.map(Some).ok_or_else(|| PredicateError::InvalidGroupType(json.to_string()))
}

/// Older user interfaces wrote `exact` or no operator at all for a membership.
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

/// An id is written as a number or as the text of one.
fn id(json: Option<&Value>) -> Result<i64, PredicateError> {
    let json = json.unwrap_or(&Value::Null);
    let id = match json {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    id.ok_or_else(|| PredicateError::InvalidId(json.to_string()))
}
