//! Validation of flags: keys, release conditions, variants, payloads. Pure.
//!
//! The rules and their wording are those of PostHog's flag API, because its clients match on codes.
//! There are no rules about experiments: the store has none.
//!
//! Shape of `filters`:
//!
//! ```json
//! {"groups": [{"properties": [{"key": "email", "type": "person", "operator": "exact",
//!                              "value": "a@b.c"}],
//!              "rollout_percentage": 50, "variant": null}],
//!  "multivariate": {"variants": [{"key": "control", "rollout_percentage": 100}]},
//!  "payloads": {"control": "{\"a\": 1}"},
//!  "aggregation_group_type_index": null}
//! ```

use serde_json::{Map, Value, json};

pub(super) use crate::flag_rules::canonical::canonical;
pub use crate::flag_rules::cohorts::{cohort_id, cohort_ids};
use crate::flag_rules::dependencies::Graph;
use crate::violation::Violation;
use weir_event::predicate::patterns;
use weir_flags::definition::has_enrollment;

mod canonical;
pub mod cohorts;
pub mod dependencies;
mod properties;
#[cfg(test)]
mod tests;

/// Longest key of a flag or variant, in characters; the column width of PostHog.
pub const KEY_MAX_CHARS: usize = 400;

/// Longest `filters`, as JSON text; PostHog's default.
pub const FILTERS_MAX_BYTES: usize = 512 * 1024;

/// Group types that a project can have: indices 0 to 4.
const GROUP_TYPES: i64 = 5;

/// Largest difference of the sum of percentages from 100: thirds do not add up in binary.
const SUM_TOLERANCE: f64 = 1e-6;

/// Checks the key of a flag; the caller checks that no other flag has it.
///
/// # Errors
///
/// Codes `blank`, `max_length`, `invalid_key`.
pub fn check_key(key: &str) -> Result<(), Violation> {
    if key.is_empty() {
        return Err(Violation::blank("key"));
    }
    if key.chars().count() > KEY_MAX_CHARS {
        return Err(Violation::too_long("key", KEY_MAX_CHARS));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.bytes().all(is_allowed) {
        let detail = "Only letters, numbers, hyphens (-) & underscores (_) are allowed.";
        return Err(Violation { code: "invalid_key", detail: detail.into(), attr: Some("key") });
    }
    Ok(())
}

/// The error for a key that another flag of the project has.
pub fn key_is_taken() -> Violation {
    Violation::unique("key", "There is already a feature flag with this key.")
}

/// Checks the size of the filters of a flag or a cohort.
///
/// # Errors
///
/// Their JSON is longer than [`FILTERS_MAX_BYTES`].
pub fn check_size(filters: &Value) -> Result<(), Violation> {
    if filters.to_string().len() <= FILTERS_MAX_BYTES {
        return Ok(());
    }
    Err(Violation::filters(format!("Filters are larger than {FILTERS_MAX_BYTES} bytes.")))
}

/// The filters of a new flag: one that matches everyone if none are given, otherwise as given.
///
/// `{}` counts as not given; PostHog reads a stored `{}` as one condition that matches everyone.
///
/// # Errors
///
/// If filters are given without a condition.
pub fn initial(given: Option<Value>) -> Result<Value, Violation> {
    match given {
        None => Ok(open()),
        Some(Value::Object(map)) if map.is_empty() => Ok(open()),
        Some(Value::Object(map)) if has_no_condition(&map) => {
            Err(Violation::filters("Feature flag must have at least one condition set (group)."))
        }
        Some(given) => Ok(canonical(given)),
    }
}

/// The filters after an update: the given ones merged over the stored ones, key by key.
pub fn updated(stored: &Value, given: Value) -> Value {
    let merged = match (stored, canonical(given)) {
        (Value::Object(stored), Value::Object(given)) => {
            let mut merged = stored.clone();
            merged.extend(given);
            Value::Object(merged)
        }
        (_, given) => given,
    };
    canonical(merged)
}

/// Checks that a flag with enrolment, or of an early access feature, stays one for persons:
/// enrolment is a property of persons, which groups do not have.
///
/// # Errors
///
/// If the new filters aggregate by group.
pub fn check_enrollment(stored: &Value, new: &Value, is_linked: bool) -> Result<(), Violation> {
    let enrols = |filters: &Value| filters.as_object().is_some_and(has_enrollment);
    let is_for_groups = |filters: &Value| {
        filters.get("aggregation_group_type_index").is_some_and(|index| !index.is_null())
    };
    let is_early = is_linked || (enrols(stored) && enrols(new));
    if is_early && is_for_groups(new) && !is_for_groups(stored) {
        let detail = "Cannot change this flag to a group-based when linked to an Early Access \
                      Feature.";
        return Err(Violation::filters(detail));
    }
    Ok(())
}

fn open() -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": null}]})
}

fn has_no_condition(filters: &Map<String, Value>) -> bool {
    match filters.get("groups") {
        None | Some(Value::Null) => true,
        Some(Value::Array(groups)) => groups.is_empty(),
        // Not an array: the shape check reports it.
        Some(_) => false,
    }
}

/// Checks the `filters` of a flag against all rules that need no database.
///
/// # Errors
///
/// The first violation, in the order of PostHog's checks: shape, kinds of properties, dependencies,
/// variants, conditions, payloads.
pub fn check_filters(filters: &Value, graph: &Graph<'_>) -> Result<(), Violation> {
    let Value::Object(filters) = filters else {
        let kind = python_type(filters);
        let detail = format!("Expected a dictionary of items but got type \"{kind}\".");
        return Err(Violation::coded("not_a_dict", detail));
    };
    if filters.contains_key("version") {
        let detail = "filters.version is reserved";
        return Err(Violation::coded("reserved_config_version", detail));
    }
    let conditions = conditions(filters)?;
    let patterns = filters.get("groups").map_or(Ok(()), patterns::check);
    patterns.map_err(|error| Violation::coded("invalid_value", error.to_string()))?;
    for condition in &conditions {
        properties::check_kinds(condition)?;
    }
    graph.check(filters)?;
    let variants = variants(filters)?;
    for condition in &conditions {
        let overridden = condition.variant.filter(|variant| !variant.is_empty());
        if overridden.is_some_and(|variant| !variants.contains(&variant)) {
            let detail = "Filters are not valid (variant override does not exist)";
            return Err(Violation::filters(detail));
        }
        for property in &condition.properties {
            properties::check_value(property)?;
            cohorts::check(property, graph.cohorts)?;
        }
    }
    check_payloads(filters, &variants)?;
    check_switches(filters)
}

/// Checks the fields beside the conditions: the holdout, and the switches.
fn check_switches(filters: &Map<String, Value>) -> Result<(), Violation> {
    for name in ["feature_enrollment", "early_exit"] {
        if !matches!(filters.get(name), None | Some(Value::Null | Value::Bool(_))) {
            return Err(shape(name, "must be true, false or null"));
        }
    }
    let holdout = match filters.get("holdout") {
        None | Some(Value::Null) => return Ok(()),
        Some(holdout) => holdout,
    };
    let share = holdout.get("exclusion_percentage").and_then(Value::as_f64);
    let is_share = share.is_some_and(|share| (0.0..=100.0).contains(&share));
    match holdout.get("id").is_some_and(Value::is_i64) && is_share {
        true => Ok(()),
        false => Err(shape("holdout", "must have an id and an exclusion_percentage from 0 to 100")),
    }
}

/// What a condition aggregates by: persons, or the groups of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregation {
    Person,
    Group(i64),
}

/// One release condition whose shape was checked.
struct Condition<'a> {
    aggregation: Aggregation,
    properties: Vec<&'a Map<String, Value>>,
    variant: Option<&'a str>,
}

/// Reads the conditions and checks their shape.
fn conditions(filters: &Map<String, Value>) -> Result<Vec<Condition<'_>>, Violation> {
    let inherited = aggregation(filters, "filters", Aggregation::Person)?;
    let groups = match filters.get("groups") {
        None => return Ok(Vec::new()),
        Some(Value::Array(groups)) => groups,
        Some(_) => return Err(shape("groups", "must be a list")),
    };
    let numbered = groups.iter().enumerate();
    numbered
        .map(|(index, group)| condition(&format!("groups[{index}]"), group, inherited))
        .collect()
}

fn condition<'a>(
    path: &str,
    group: &'a Value,
    inherited: Aggregation,
) -> Result<Condition<'a>, Violation> {
    let Value::Object(group) = group else {
        return Err(shape(path, "must be an object"));
    };
    check_percentage(path, group)?;
    let properties = match group.get("properties") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(properties)) => {
            let objects = properties.iter().map(Value::as_object).collect::<Option<Vec<_>>>();
            objects.ok_or_else(|| shape(path, "properties must be a list of objects"))?
        }
        Some(_) => return Err(shape(path, "properties must be a list")),
    };
    let variant = match group.get("variant") {
        None | Some(Value::Null) => None,
        Some(Value::String(variant)) => Some(variant.as_str()),
        Some(_) => return Err(shape(path, "variant must be a string or null")),
    };
    Ok(Condition { aggregation: aggregation(group, path, inherited)?, properties, variant })
}

/// What the flag or the condition `holder` aggregates by: absent means as `inherited`, null persons.
fn aggregation(
    holder: &Map<String, Value>,
    path: &str,
    inherited: Aggregation,
) -> Result<Aggregation, Violation> {
    match holder.get("aggregation_group_type_index") {
        None => Ok(inherited),
        Some(Value::Null) => Ok(Aggregation::Person),
        Some(value) => match value.as_i64().filter(|index| (0..GROUP_TYPES).contains(index)) {
            Some(index) => Ok(Aggregation::Group(index)),
            None => Err(shape(
                path,
                "aggregation_group_type_index must be null or a number from 0 to 4",
            )),
        },
    }
}

/// Checks the variants and returns their keys; empty for a boolean flag.
fn variants(filters: &Map<String, Value>) -> Result<Vec<&str>, Violation> {
    let multivariate = match filters.get("multivariate") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(multivariate)) => multivariate,
        Some(_) => return Err(shape("multivariate", "must be an object or null")),
    };
    let variants = match multivariate.get("variants") {
        None => return Ok(Vec::new()),
        Some(Value::Array(variants)) => variants,
        Some(_) => return Err(shape("multivariate.variants", "must be a list")),
    };
    let mut keys = Vec::with_capacity(variants.len());
    let mut sum = 0.0;
    for (index, variant) in variants.iter().enumerate() {
        let path = format!("multivariate.variants[{index}]");
        let Value::Object(variant) = variant else {
            return Err(shape(&path, "must be an object"));
        };
        check_percentage(&path, variant)?;
        sum += variant.get("rollout_percentage").and_then(Value::as_f64).unwrap_or(0.0);
        match variant.get("key").and_then(Value::as_str) {
            Some(key) if is_variant_key(key) => keys.push(key),
            _ => {
                let problem = "key must be 1 to 400 letters, digits, hyphens (-), underscores (_), \
                               dots (.) and slashes (/)";
                return Err(shape(&path, problem));
            }
        }
    }
    if !keys.is_empty() && (sum - 100.0).abs() > SUM_TOLERANCE {
        let detail = "Invalid variant definitions: Variant rollout percentages must sum to 100.";
        return Err(Violation::filters(detail));
    }
    Ok(keys)
}

fn is_variant_key(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte);
    (1..=KEY_MAX_CHARS).contains(&key.len()) && key.bytes().all(is_allowed)
}

fn check_payloads(filters: &Map<String, Value>, variants: &[&str]) -> Result<(), Violation> {
    let payloads = match filters.get("payloads") {
        None => return Ok(()),
        Some(Value::Object(payloads)) => payloads,
        Some(_) => return Err(Violation::filters("Payloads must be passed as a dictionary")),
    };
    for payload in payloads.values().filter_map(Value::as_str) {
        if serde_json::from_str::<&serde_json::value::RawValue>(payload).is_err() {
            return Err(Violation::filters("Payload value is not valid JSON"));
        }
    }
    let is_multivariate = filters
        .get("multivariate")
        .and_then(Value::as_object)
        .is_some_and(|multivariate| !multivariate.is_empty());
    if !is_multivariate && payloads.keys().any(|key| key != "true") {
        return Err(Violation::filters("Payload keys must be 'true' for boolean flags"));
    }
    if is_multivariate && !payloads.keys().all(|key| variants.contains(&key.as_str())) {
        let detail = "Payload keys must match a variant key for multivariate flags";
        return Err(Violation::filters(detail));
    }
    Ok(())
}

/// Checks `rollout_percentage`: absent, null, or a number from 0 to 100.
fn check_percentage(path: &str, holder: &Map<String, Value>) -> Result<(), Violation> {
    match holder.get("rollout_percentage") {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_f64().is_some_and(|share| (0.0..=100.0).contains(&share)) => Ok(()),
        Some(_) => Err(shape(path, "rollout_percentage must be a number from 0 to 100")),
    }
}

fn shape(path: &str, problem: &str) -> Violation {
    Violation::filters(format!("{path}: {problem}"))
}

/// Python's name for the type of a JSON value; part of documented error texts.
pub fn python_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}
