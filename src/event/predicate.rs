//! Property filters: a predicate of key, operator and value.
//!
//! A [`Predicate`] is parsed once from JSON into a checked form (regular expressions within limits,
//! numbers, dates and versions parsed) and then evaluated many times. Flags, cohorts and insights use
//! the same form, so its parts are public: a query can express over columns what
//! [`Predicate::matches`] decides here. The object that a filter applies to is in [`filter`]. No I/O,
//! no clock: `now` is an argument.
//!
//! # Undecidable values and absent properties
//!
//! [`Number`] defines which values are numbers: the same ones as in insights and SQL, except in filters of flags
//! ([`Reading::of_flags`]), which SDKs evaluate, too.
//!
//! A value that the operator cannot read (text for `gt`, a pattern that is not valid or too large) matches
//! neither the operator nor its negation. An absent property is different: it matches the
//! negated operators (`is_not`, `not_icontains`, ...) and no other.

pub mod filter;
pub mod moment;
pub mod operator;
pub mod patterns;
pub mod tree;
pub mod version;

use std::borrow::Cow;
use std::sync::Arc;

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::number::Number;
use crate::pattern::{Pattern, PatternError};
use crate::predicate::moment::{Moment, Now};
use crate::predicate::operator::Operator;
use crate::{as_text, pattern};

/// A predicate on one property of an event, a person or a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Predicate {
    /// The name of the property.
    pub key: Box<str>,
    /// The test of its value.
    pub test: Test,
}

/// The test of a property, which may be absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Test {
    /// The property is present; null counts.
    Set,
    /// The property is absent.
    NotSet,
    /// Never matches: the filter has no value, or its operator is not for properties.
    Never,
    /// The property is present and the condition holds.
    Is(Condition),
    /// The property is absent, or the condition can be decided and does not hold.
    IsNot(Condition),
}

/// A condition on the value of a present property.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Condition {
    /// Equality of strings, or of truth values.
    Equal(Equality),
    /// The text contains this one, ASCII case-insensitive. Stored in lower case.
    Contains(Box<str>),
    /// As [`Condition::Contains`], for at least one of several.
    ContainsAny(Box<[Box<str>]>),
    /// The text starts with this one, ASCII case-insensitive. Stored in lower case.
    StartsWith(Box<str>),
    /// The text ends with this one, ASCII case-insensitive. Stored in lower case.
    EndsWith(Box<str>),
    /// The pattern matches somewhere in the text, case-sensitive.
    Regex(#[serde(with = "pattern::as_text")] Arc<Pattern>),
    /// The value, read as a number, has this relation to the bound.
    Number {
        /// The relation.
        relation: Relation,
        /// The bound.
        bound: Number,
        /// How the value is read.
        numbers: Numbers,
    },
    /// The value, read as a number, lies between the bounds, both included.
    Between {
        /// The smallest number that matches.
        low: Number,
        /// The largest number that matches.
        high: Number,
        /// How the value is read.
        numbers: Numbers,
    },
    /// The value, read as a semantic version, has this relation to the bound.
    Version(Relation, #[serde(with = "as_text")] Version),
    /// The value, read as a semantic version, lies in the range.
    VersionRange(#[serde(with = "as_text")] VersionReq),
    /// The value, read as a time, has this relation to the moment.
    Date(Relation, Moment),
    /// The filter's own value is invalid: undecided for every property value.
    Invalid(Invalid),
}

/// How `exact` and `is_not` compare.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Equality {
    /// The truth of the value equals this. See [`Matching`] for when it applies.
    Truth(bool),
    /// The text of the value equals this one, case-insensitive. Stored in lower case.
    Text(Box<str>),
    /// As [`Equality::Text`], for at least one of several.
    AnyOf(Box<[Box<str>]>),
}

/// The relation of a value (left) to a bound of the filter (right).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// Left is below right.
    Less,
    /// Left is at most right.
    LessOrEqual,
    /// Left is right.
    Equal,
    /// Left is not right.
    NotEqual,
    /// Left is at least right.
    GreaterOrEqual,
    /// Left is above right.
    Greater,
}

/// Why the value of a filter is invalid. Evaluation treats such a filter as undecided; an API that stores
/// filters can reject it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Invalid {
    /// The regular expression is not valid, or beyond a limit.
    Regex(PatternError),
    /// The bound is not a number.
    Number,
    /// The range is not a pair of numbers in order.
    Bounds,
    /// The bound is not a semantic version, or not a range of them.
    Version,
    /// The bound is neither a date nor a span such as `-7d`.
    Date,
}

/// How `exact` and `is_not` treat truth values: the project's `property_matching_version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// Version 1, the default: a filter value that is a boolean, the text of one, or a list of only
    /// those compares truth values, so `false` matches everything that is not true.
    #[default]
    Legacy,
    /// Version 2: texts are compared; only the empty list still compares truth values.
    Explicit,
}

/// Which values are numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Numbers {
    /// Those that are numbers to insights and SQL: [`Number::of_value`].
    #[default]
    OfQueries,
    /// Those that are numbers to SDKs: [`Number::of_flag`].
    OfFlags,
}

/// How a filter reads values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Which values are true.
    pub matching: Matching,
    /// Which values are numbers.
    pub numbers: Numbers,
}

/// Why a filter is malformed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PredicateError {
    /// The filter is not a JSON object.
    #[error("a property filter must be an object")]
    NotAnObject,
    /// The filter has no key.
    #[error("a property filter needs a key")]
    MissingKey,
    /// The operator is unknown.
    #[error("unknown operator '{0}'")]
    UnknownOperator(String),
    /// The type of the filter is unknown.
    #[error("unknown filter type '{0}'")]
    UnknownType(String),
    /// The id of a cohort or a flag is not an id.
    #[error("'{0}' is not an id")]
    InvalidId(String),
    /// The group type index is not a number from 0 to 255.
    #[error("'{0}' is not a group type index")]
    InvalidGroupType(String),
}

/// Look-up of property values. `None` means that the property is absent, which is not the same as null.
pub trait Properties {
    /// The value of the property `key`.
    fn property(&self, key: &str) -> Option<&Value>;
}

impl Properties for Map<String, Value> {
    fn property(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}

impl Predicate {
    /// Parses a predicate from the `operator` and `value` of a JSON filter, both of which may be
    /// absent.
    ///
    /// # Errors
    ///
    /// [`PredicateError::UnknownOperator`]. A value that the operator cannot read is not an error but a
    /// [`Condition::Invalid`].
    pub fn parse(
        key: &str,
        operator: Option<&str>,
        value: Option<&Value>,
        reading: impl Into<Reading>,
    ) -> Result<Self, PredicateError> {
        let operator = match operator {
            Some(name) => Operator::parse(name)?,
            None => Operator::Exact,
        };
        Ok(Self { key: key.into(), test: Test::new(operator, value, reading.into()) })
    }

    /// Whether the properties match the predicate at the time `now`.
    pub fn matches(&self, properties: &impl Properties, now: Now) -> bool {
        self.matches_value(properties.property(&self.key), now)
    }

    /// As [`Predicate::matches`], for a value that was already looked up.
    pub fn matches_value(&self, actual: Option<&Value>, now: Now) -> bool {
        match (&self.test, actual) {
            (Test::Set, actual) => actual.is_some(),
            (Test::NotSet, actual) => actual.is_none(),
            (Test::Never, _) | (Test::Is(_), None) => false,
            (Test::IsNot(_), None) => true,
            (Test::Is(condition), Some(actual)) => condition.decide(actual, now) == Some(true),
            (Test::IsNot(condition), Some(actual)) => condition.decide(actual, now) == Some(false),
        }
    }

    /// Whether its result may depend on the current time: it compares dates, and one of them, or a value, may be a span
    /// before now.
    pub fn is_of_now(&self) -> bool {
        match &self.test {
            Test::Is(condition) | Test::IsNot(condition) => {
                matches!(condition, Condition::Date(..))
            }
            Test::Set | Test::NotSet | Test::Never => false,
        }
    }

    /// Its pattern, if it has one.
    pub fn pattern(&self) -> Option<&Arc<Pattern>> {
        match &self.test {
            Test::Is(Condition::Regex(pattern)) | Test::IsNot(Condition::Regex(pattern)) => {
                Some(pattern)
            }
            _ => None,
        }
    }

    /// The property and why its pattern is refused, if that is one beyond a limit.
    pub fn large_pattern(&self) -> Option<(&str, PatternError)> {
        match self.invalid() {
            Some(Invalid::Regex(error)) if error != PatternError::Invalid => {
                Some((&self.key, error))
            }
            _ => None,
        }
    }

    /// Why the filter's value is invalid, if it is.
    pub fn invalid(&self) -> Option<Invalid> {
        match &self.test {
            Test::Is(Condition::Invalid(why)) | Test::IsNot(Condition::Invalid(why)) => Some(*why),
            _ => None,
        }
    }
}

impl Condition {
    /// Whether the condition holds for the value; `None` if undecided.
    fn decide(&self, actual: &Value, now: Now) -> Option<bool> {
        match self {
            Self::Equal(equality) => Some(equality.holds(actual)),
            Self::Contains(part) => Some(ascii_lower(actual).contains(&**part)),
            Self::ContainsAny(parts) => {
                let text = ascii_lower(actual);
                Some(parts.iter().any(|part| text.contains(&**part)))
            }
            Self::StartsWith(start) => Some(ascii_lower(actual).starts_with(&**start)),
            Self::EndsWith(end) => Some(ascii_lower(actual).ends_with(&**end)),
            Self::Regex(pattern) => pattern.is_match(&text_of(actual)),
            Self::Number { relation, bound, numbers } => {
                relation.holds(&numbers.number_of(actual)?, bound)
            }
            Self::Between { low, high, numbers } => {
                Some((*low..=*high).contains(&numbers.number_of(actual)?))
            }
            Self::Version(relation, bound) => {
                relation.holds(&version::parse(&text_of(actual))?, bound)
            }
            Self::VersionRange(range) => Some(range.matches(&version::parse(&text_of(actual))?)),
            Self::Date(relation, moment) => {
                relation.holds(&moment::time_of(actual, now)?, &moment.resolve(now)?)
            }
            Self::Invalid(_) => None,
        }
    }
}

impl Equality {
    fn holds(&self, actual: &Value) -> bool {
        match self {
            Self::Truth(truth) => is_true(actual) == *truth,
            Self::Text(text) => eq_lower(&text_of(actual), text),
            Self::AnyOf(texts) => {
                let actual = text_of(actual);
                texts.iter().any(|text| eq_lower(&actual, text))
            }
        }
    }
}

impl Relation {
    /// `None` if the two have no order.
    fn holds<T: PartialOrd>(self, left: &T, right: &T) -> Option<bool> {
        let order = left.partial_cmp(right)?;
        Some(match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
        })
    }
}

/// The text that string operators compare: a string as it is, any other value as compact JSON.
fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(true) => Cow::Borrowed("true"),
        Value::Bool(false) => Cow::Borrowed("false"),
        Value::Null => Cow::Borrowed("null"),
        other => Cow::Owned(other.to_string()),
    }
}

/// The text of the value with its ASCII letters in lower case.
fn ascii_lower(value: &Value) -> Cow<'_, str> {
    let text = text_of(value);
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(text.to_ascii_lowercase());
    }
    text
}

/// Whether `text` in lower case is `lower`. By Unicode lower-casing, not case folding: values have been
/// compared like this for years.
fn eq_lower(text: &str, lower: &str) -> bool {
    if text.is_ascii() {
        return text.eq_ignore_ascii_case(lower);
    }
    text.to_lowercase() == lower
}

impl Numbers {
    /// The number that numeric operators compare.
    fn number_of(self, value: &Value) -> Option<Number> {
        match self {
            Self::OfQueries => Number::of_value(value),
            Self::OfFlags => Number::of_flag(value),
        }
    }
}

impl Reading {
    /// The reading of filters of flags.
    pub fn of_flags(matching: Matching) -> Self {
        Self { matching, numbers: Numbers::OfFlags }
    }
}

/// The reading of lists, insights and cohorts.
impl From<Matching> for Reading {
    fn from(matching: Matching) -> Self {
        Self { matching, numbers: Numbers::OfQueries }
    }
}

/// Whether the value is a truth value: a boolean, the text of one, or a list of only those.
fn is_boolean(value: &Value) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::String(text) => eq_lower(text, "true") || eq_lower(text, "false"),
        Value::Array(items) => items.iter().all(is_boolean),
        _ => false,
    }
}

/// Whether the value is true: `true`, the text of it, or a list of only those.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(truth) => *truth,
        Value::String(text) => eq_lower(text, "true"),
        Value::Array(items) => items.iter().all(is_true),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
