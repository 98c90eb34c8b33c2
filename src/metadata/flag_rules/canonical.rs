//! Canonical form of stored filters: payloads as JSON strings, operators by the names that SDKs
//! know, holdouts and early access by their current names. Names of cohorts are removed; each
//! answer adds the current ones.

use serde_json::{Map, Value, json};

use crate::flag_rules::cohorts::filters_mut;
use weir_flags::definition::has_enrollment;

/// The filters in canonical form.
pub(crate) fn canonical(mut filters: Value) -> Value {
    for filter in filters_mut(&mut filters) {
        filter.remove("cohort_name");
    }
    let Value::Object(map) = &mut filters else { return filters };
    let groups = map.get_mut("groups").and_then(Value::as_array_mut).into_iter().flatten();
    let properties = groups.filter_map(|group| group.get_mut("properties")?.as_array_mut());
    for operator in properties.flatten().filter_map(|property| property.get_mut("operator")) {
        match operator.as_str() {
            Some("min") => *operator = "gte".into(),
            Some("max") => *operator = "lte".into(),
            _ => {}
        }
    }
    if let Some(Value::Object(payloads)) = map.get_mut("payloads") {
        for payload in payloads.values_mut().filter(|payload| !payload.is_string()) {
            *payload = Value::String(payload.to_string());
        }
    }
    without_legacy(map);
    filters
}

/// Removes `super_groups` and `holdout_groups`, as PostHog does when a flag is saved. Their content
/// continues under the current names, unless the filters have these: a rename must not change the
/// meaning of a flag.
fn without_legacy(filters: &mut Map<String, Value>) {
    let enrols = has_enrollment(filters);
    if filters.remove("super_groups").is_some() && enrols {
        filters.entry("feature_enrollment").or_insert(Value::Bool(true));
    }
    let holdout = filters.remove("holdout_groups").as_ref().and_then(holdout);
    if let Some(holdout) = holdout {
        filters.entry("holdout").or_insert(holdout);
    }
}

/// The holdout for `[{"rollout_percentage": 10, "variant": "holdout-7"}]`.
fn holdout(groups: &Value) -> Option<Value> {
    let group = groups.as_array()?.first()?;
    let id: i64 = group.get("variant")?.as_str()?.strip_prefix("holdout-")?.parse().ok()?;
    let share = group.get("rollout_percentage").filter(|share| !share.is_null()).cloned();
    Some(json!({"id": id, "exclusion_percentage": share.unwrap_or(json!(100))}))
}
