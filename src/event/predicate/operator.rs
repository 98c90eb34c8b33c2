//! Filter operators by their wire names, and how each parses the value of a filter.

use semver::VersionReq;
use serde_json::Value;

use crate::pattern::Pattern;
use crate::predicate::moment::Moment;
use crate::predicate::{
    Condition, Equality, Invalid, Matching, Numbers, PredicateError, Reading, Relation, Test,
    is_boolean, is_true, text_of, version,
};

/// The operators of the filter language, under their wire names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the wire name in `Operator::parse`")]
pub enum Operator {
    Exact,
    IsNot,
    Icontains,
    NotIcontains,
    IcontainsMulti,
    NotIcontainsMulti,
    StartsWith,
    NotStartsWith,
    EndsWith,
    NotEndsWith,
    Regex,
    NotRegex,
    Gt,
    Gte,
    Lt,
    Lte,
    Between,
    NotBetween,
    IsSet,
    IsNotSet,
    IsDateExact,
    IsDateBefore,
    IsDateAfter,
    SemverEq,
    SemverNeq,
    SemverGt,
    SemverGte,
    SemverLt,
    SemverLte,
    SemverTilde,
    SemverCaret,
    SemverWildcard,
    In,
    NotIn,
    FlagEvaluatesTo,
}

impl Operator {
    /// The operator with this wire name.
    ///
    /// # Errors
    ///
    /// [`PredicateError::UnknownOperator`].
    pub fn parse(name: &str) -> Result<Self, PredicateError> {
        Ok(match name {
            "exact" => Self::Exact,
            "is_not" => Self::IsNot,
            "icontains" => Self::Icontains,
            "not_icontains" => Self::NotIcontains,
            "icontains_multi" => Self::IcontainsMulti,
            "not_icontains_multi" => Self::NotIcontainsMulti,
            "starts_with" => Self::StartsWith,
            "not_starts_with" => Self::NotStartsWith,
            "ends_with" => Self::EndsWith,
            "not_ends_with" => Self::NotEndsWith,
            "regex" => Self::Regex,
            "not_regex" => Self::NotRegex,
            "gt" => Self::Gt,
            "gte" | "min" => Self::Gte,
            "lt" => Self::Lt,
            "lte" | "max" => Self::Lte,
            "between" => Self::Between,
            "not_between" => Self::NotBetween,
            "is_set" => Self::IsSet,
            "is_not_set" => Self::IsNotSet,
            "is_date_exact" => Self::IsDateExact,
            "is_date_before" => Self::IsDateBefore,
            "is_date_after" => Self::IsDateAfter,
            "semver_eq" => Self::SemverEq,
            "semver_neq" => Self::SemverNeq,
            "semver_gt" => Self::SemverGt,
            "semver_gte" => Self::SemverGte,
            "semver_lt" => Self::SemverLt,
            "semver_lte" => Self::SemverLte,
            "semver_tilde" => Self::SemverTilde,
            "semver_caret" => Self::SemverCaret,
            "semver_wildcard" => Self::SemverWildcard,
            "in" => Self::In,
            "not_in" => Self::NotIn,
            "flag_evaluates_to" => Self::FlagEvaluatesTo,
            _ => return Err(PredicateError::UnknownOperator(name.to_owned())),
        })
    }
}

impl Test {
    /// The test of an operator with the value of a filter. A value that the operator cannot read becomes a
    /// [`Condition::Invalid`].
    pub fn new(operator: Operator, value: Option<&Value>, reading: Reading) -> Self {
        let Reading { matching, numbers } = reading;
        match operator {
            Operator::IsSet => return Self::Set,
            Operator::IsNotSet => return Self::NotSet,
            // Operators for cohorts and flags; they match no property.
            Operator::In | Operator::NotIn | Operator::FlagEvaluatesTo => return Self::Never,
            _ => {}
        }
        let Some(value) = value.filter(|value| !value.is_null()) else { return Self::Never };
        let lower = || text_of(value).to_ascii_lowercase().into_boxed_str();
        match operator {
            Operator::Exact => Self::Is(equal(value, matching)),
            Operator::IsNot => Self::IsNot(equal(value, matching)),
            Operator::Icontains => Self::Is(Condition::Contains(lower())),
            Operator::NotIcontains => Self::IsNot(Condition::Contains(lower())),
            Operator::IcontainsMulti => Self::Is(contains_any(value)),
            Operator::NotIcontainsMulti => Self::IsNot(contains_any(value)),
            Operator::StartsWith => Self::Is(Condition::StartsWith(lower())),
            Operator::NotStartsWith => Self::IsNot(Condition::StartsWith(lower())),
            Operator::EndsWith => Self::Is(Condition::EndsWith(lower())),
            Operator::NotEndsWith => Self::IsNot(Condition::EndsWith(lower())),
            Operator::Regex => Self::Is(regex(value)),
            Operator::NotRegex => Self::IsNot(regex(value)),
            Operator::Gt => Self::Is(number(Relation::Greater, value, numbers)),
            Operator::Gte => Self::Is(number(Relation::GreaterOrEqual, value, numbers)),
            Operator::Lt => Self::Is(number(Relation::Less, value, numbers)),
            Operator::Lte => Self::Is(number(Relation::LessOrEqual, value, numbers)),
            Operator::Between => Self::Is(between(value, numbers)),
            Operator::NotBetween => Self::IsNot(between(value, numbers)),
            Operator::IsDateExact => Self::Is(date(Relation::Equal, value)),
            Operator::IsDateBefore => Self::Is(date(Relation::Less, value)),
            Operator::IsDateAfter => Self::Is(date(Relation::Greater, value)),
            // Unlike `is_not`, `semver_neq` requires the property to be present.
            Operator::SemverEq => Self::Is(version(Relation::Equal, value)),
            Operator::SemverNeq => Self::Is(version(Relation::NotEqual, value)),
            Operator::SemverGt => Self::Is(version(Relation::Greater, value)),
            Operator::SemverGte => Self::Is(version(Relation::GreaterOrEqual, value)),
            Operator::SemverLt => Self::Is(version(Relation::Less, value)),
            Operator::SemverLte => Self::Is(version(Relation::LessOrEqual, value)),
            Operator::SemverTilde => Self::Is(range(version::tilde(&text_of(value)))),
            Operator::SemverCaret => Self::Is(range(version::caret(&text_of(value)))),
            Operator::SemverWildcard => Self::Is(range(version::wildcard(&text_of(value)))),
            Operator::IsSet
            | Operator::IsNotSet
            | Operator::In
            | Operator::NotIn
            | Operator::FlagEvaluatesTo => Self::Never,
        }
    }
}

fn equal(value: &Value, matching: Matching) -> Condition {
    let asks_for_truth = match matching {
        Matching::Legacy => is_boolean(value),
        Matching::Explicit => matches!(value, Value::Array(items) if items.is_empty()),
    };
    Condition::Equal(match value {
        _ if asks_for_truth => Equality::Truth(is_true(value)),
        Value::Array(items) => Equality::AnyOf(items.iter().map(lower_text).collect()),
        value => Equality::Text(lower_text(value)),
    })
}

fn contains_any(value: &Value) -> Condition {
    let parts = match value {
        Value::Array(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    let lower = |part| text_of(part).to_ascii_lowercase().into_boxed_str();
    Condition::ContainsAny(parts.iter().map(lower).collect())
}

fn regex(value: &Value) -> Condition {
    match Pattern::new(&text_of(value)) {
        Ok(pattern) => Condition::Regex(pattern),
        Err(error) => Condition::Invalid(Invalid::Regex(error)),
    }
}

fn number(relation: Relation, value: &Value, numbers: Numbers) -> Condition {
    match numbers.number_of(value) {
        Some(bound) => Condition::Number { relation, bound, numbers },
        None => Condition::Invalid(Invalid::Number),
    }
}

fn between(value: &Value, numbers: Numbers) -> Condition {
    let bounds = match value.as_array().map(Vec::as_slice) {
        Some([low, high]) => numbers.number_of(low).zip(numbers.number_of(high)),
        _ => None,
    };
    match bounds {
        Some((low, high)) if low <= high => Condition::Between { low, high, numbers },
        _ => Condition::Invalid(Invalid::Bounds),
    }
}

fn version(relation: Relation, value: &Value) -> Condition {
    match version::parse(&text_of(value)) {
        Some(bound) => Condition::Version(relation, bound),
        None => Condition::Invalid(Invalid::Version),
    }
}

fn range(range: Option<VersionReq>) -> Condition {
    range.map_or(Condition::Invalid(Invalid::Version), Condition::VersionRange)
}

fn date(relation: Relation, value: &Value) -> Condition {
    match value.as_str().and_then(Moment::parse) {
        Some(moment) => Condition::Date(relation, moment),
        None => Condition::Invalid(Invalid::Date),
    }
}

fn lower_text(value: &Value) -> Box<str> {
    text_of(value).to_lowercase().into_boxed_str()
}
