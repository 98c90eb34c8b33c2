//! Property filters in release conditions: which kinds may be combined, and which values an
//! operator accepts. Pure.

use serde_json::{Map, Value};

use crate::flag_rules::{Aggregation, Condition};
use crate::violation::Violation;
use weir_event::pattern::{Pattern, PatternError};
use weir_event::predicate::moment::Moment;

/// Most values that one filter may list; PostHog's `MAX_PROPERTY_VALUES`.
const VALUES_MAX: usize = 1000;

/// The value that an operator requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Anything,
    Text,
    Pattern,
    List,
    Bounds,
    Date,
    Cohort,
    Flag,
}

/// The value that the operator `name` requires, or `None` if there is no such operator.
fn wants(name: &str) -> Option<Wants> {
    Some(match name {
        "exact" | "is_not" | "is_set" | "is_not_set" => Wants::Anything,
        "icontains" | "not_icontains" | "gt" | "gte" | "lt" | "lte" => Wants::Text,
        "starts_with" | "not_starts_with" | "ends_with" | "not_ends_with" => Wants::Text,
        "semver_eq" | "semver_neq" | "semver_gt" | "semver_gte" | "semver_lt" | "semver_lte" => {
            Wants::Text
        }
        "semver_tilde" | "semver_caret" | "semver_wildcard" => Wants::Text,
        "regex" | "not_regex" => Wants::Pattern,
        "icontains_multi" | "not_icontains_multi" => Wants::List,
        "between" | "not_between" => Wants::Bounds,
        "is_date_exact" | "is_date_before" | "is_date_after" => Wants::Date,
        "in" | "not_in" => Wants::Cohort,
        "flag_evaluates_to" => Wants::Flag,
        _ => return None,
    })
}

/// Checks that a condition for persons uses person properties, and one for groups those of its group.
pub(super) fn check_kinds(condition: &Condition<'_>) -> Result<(), Violation> {
    let properties = || condition.properties.iter();
    match condition.aggregation {
        Aggregation::Person => {
            let is_fit =
                |kind: &str| matches!(kind, "person" | "person_metadata" | "cohort" | "flag");
            if !properties().all(|property| is_fit(kind(property))) {
                let detail = "Filters are not valid (can only use person and cohort properties)";
                return Err(Violation::filters(detail));
            }
        }
        Aggregation::Group(index) => {
            let is_fit = |property: &Map<String, Value>| {
                let of = property.get("group_type_index").and_then(Value::as_i64);
                kind(property) == "group" && of == Some(index)
            };
            if !properties().all(|property| is_fit(property)) {
                let detail = "Filters are not valid (can only use group properties)";
                return Err(Violation::filters(detail));
            }
        }
    }
    let is_dependency = |property: &Map<String, Value>| kind(property) == "flag";
    if properties()
        .any(|property| is_dependency(property) && operator(property) != Ok("flag_evaluates_to"))
    {
        let detail = "Flag properties must use the 'flag_evaluates_to' operator";
        return Err(Violation::filters(detail));
    }
    Ok(())
}

/// Checks the key, operator and value of one property filter.
pub(super) fn check_value(property: &Map<String, Value>) -> Result<(), Violation> {
    let kind = kind(property);
    let key = match property.get("key") {
        Some(Value::String(key)) if !key.is_empty() => key.clone(),
        // The id of a flag may come as a number.
        Some(Value::Number(id)) if kind == "flag" => id.to_string(),
        _ => return Err(Violation::filters("properties: key must be a string")),
    };
    let value = property.get("value").unwrap_or(&Value::Null);
    if value.as_array().is_some_and(|values| values.len() > VALUES_MAX) {
        let detail = format!(
            "Property group expressions of type {key} cannot contain more than {VALUES_MAX} values."
        );
        return Err(Violation::filters(detail));
    }
    let operator = operator(property)?;
    let unfit = |wanted: &str| {
        let detail = format!(
            "The '{operator}' operator is only valid for {wanted} properties, not '{kind}' properties."
        );
        Err(Violation::coded("invalid_operator", detail))
    };
    let is_good = match wants(operator) {
        None => {
            let detail = format!("Invalid operator: {operator}");
            return Err(Violation::coded("invalid_operator", detail));
        }
        // Older user interfaces wrote `exact`. Other operators match no cohort.
        Some(wants) if kind == "cohort" && wants != Wants::Cohort && operator != "exact" => {
            let detail = "Cohort properties must use the 'in' or 'not_in' operator";
            return Err(Violation::coded("invalid_operator", detail));
        }
        Some(Wants::Cohort) if kind != "cohort" => return unfit("cohort"),
        Some(Wants::Flag) if kind != "flag" => return unfit("flag"),
        Some(Wants::Date) if value.as_str().and_then(Moment::parse).is_none() => {
            let detail = format!("Invalid date value: {}", text(value));
            return Err(Violation::coded("invalid_date", detail));
        }
        Some(Wants::Anything | Wants::Cohort | Wants::Date) => true,
        Some(Wants::Text) => value.is_string(),
        Some(Wants::Pattern) => match value.as_str().map(Pattern::new) {
            Some(Ok(_)) => true,
            None | Some(Err(PatternError::Invalid)) => false,
            Some(Err(error)) => {
                return Err(Violation::coded(
                    "invalid_value",
                    format!("properties: {key}: {error}"),
                ));
            }
        },
        Some(Wants::List) => value.is_array(),
        Some(Wants::Bounds) => {
            value.as_array().is_some_and(|bounds| bounds.len() == 2 && bounds.iter().all(is_number))
        }
        Some(Wants::Flag) => value.is_boolean() || value.is_string(),
    };
    if !is_good {
        let detail = format!("Invalid value for operator {operator}: {}", text(value));
        return Err(Violation::coded("invalid_value", detail));
    }
    Ok(())
}

/// The kind of a property filter; absent means person.
fn kind(property: &Map<String, Value>) -> &str {
    match property.get("type") {
        None | Some(Value::Null) => "person",
        Some(kind) => kind.as_str().unwrap_or(""),
    }
}

/// The operator of a property filter; absent means `exact`, and `in` for a cohort.
fn operator(property: &Map<String, Value>) -> Result<&str, Violation> {
    match property.get("operator") {
        None | Some(Value::Null) if kind(property) == "cohort" => Ok("in"),
        None | Some(Value::Null) => Ok("exact"),
        Some(Value::String(operator)) => Ok(operator),
        Some(other) => {
            let detail = format!("Invalid operator: {other}");
            Err(Violation::coded("invalid_operator", detail))
        }
    }
}

fn is_number(value: &Value) -> bool {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    number.is_some_and(f64::is_finite)
}

/// A value inside a message: strings without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
