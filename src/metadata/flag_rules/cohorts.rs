//! Cohorts inside release conditions: they exist, and a flag can know their members. Pure.

use std::sync::Arc;

use serde_json::Map;
use serde_json::Value;

use crate::event::predicate::Matching;
use crate::flags::cohorts::Rule;
use crate::flags::cohorts::RuleError;
use crate::metadata::cohorts::StoredCohort;
use crate::metadata::flag_rules::Violation;

/// Checks the cohort that a property filter asks for; filters of other kinds are fine.
pub(super) fn check(
    property: &Map<String, Value>,
    live: &[Arc<StoredCohort>],
) -> Result<(), Violation> {
    if property.get("type").and_then(Value::as_str) != Some("cohort") {
        return Ok(());
    }
    let value = property.get("value").unwrap_or(&Value::Null);
    let found = id(value).and_then(|id| find(live, id));
    let Some(cohort) = found else {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let detail = format!("Cohort with id {text} does not exist");
        return Err(Violation::coded("cohort_does_not_exist", detail));
    };
    // Cohorts refer to cohorts without circles, so this visits each at most once.
    let (mut seen, mut waiting) = (vec![cohort.id], vec![cohort]);
    while let Some(cohort) = waiting.pop() {
        let rule = match Rule::parse(cohort.rule(), Matching::Legacy) {
            _ if cohort.is_static => continue,
            Ok(rule) => rule,
            Err(RuleError::Behavioral) => {
                let detail = format!(
                    "Cohort '{}' with filters on events cannot be used in feature flags.",
                    cohort.name
                );
                return Err(Violation::coded("behavioral_cohort_found", detail));
            }
            Err(RuleError::Malformed) => continue,
        };
        for needed in rule.cohorts().into_iter().filter_map(|id| find(live, id)) {
            if !seen.contains(&needed.id) {
                seen.push(needed.id);
                waiting.push(needed);
            }
        }
    }
    Ok(())
}

/// The cohorts that release conditions ask for; with repetitions.
pub fn cohort_ids(filters: &Value) -> impl Iterator<Item = i64> {
    let groups = filters.get("groups").and_then(Value::as_array).into_iter().flatten();
    groups
        .filter_map(|group| group.get("properties").and_then(Value::as_array))
        .flatten()
        .filter(|property| property.get("type").and_then(Value::as_str) == Some("cohort"))
        .filter_map(|property| id(property.get("value")?))
}

fn find(live: &[Arc<StoredCohort>], id: i64) -> Option<&Arc<StoredCohort>> {
    live.iter().find(|cohort| cohort.id.0 == id)
}

fn id(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}
