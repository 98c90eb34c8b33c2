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
    let found = cohort_id(value).and_then(|id| find(live, id));
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
        .filter_map(|property| cohort_id(property.get("value")?))
}

fn find(live: &[Arc<StoredCohort>], id: i64) -> Option<&Arc<StoredCohort>> {
    live.iter().find(|cohort| cohort.id.0 == id)
}

/// The id of a cohort, as a filter has it: a number or text of one.
pub fn cohort_id(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use serde_json::json;

    use super::check;
    use crate::metadata::cohorts::StoredCohort;

    fn cohort(id: i64, is_static: bool, value: Value) -> Arc<StoredCohort> {
        let filters = json!({"properties": {"type": "OR", "values": [value]}});
        Arc::new(StoredCohort { is_static, ..StoredCohort::sample(id, filters) })
    }

    /// Behavioral ones are refused directly and inside others; of a list no rule counts.
    #[test]
    fn cohorts_exist_and_ask_for_no_events() {
        let behavioral = json!({"key": "paid", "type": "behavioral", "value": "performed_event"});
        let asking = |id: Value| json!({"key": "id", "type": "cohort", "value": id});
        let live = [
            cohort(1, false, behavioral.clone()),
            cohort(2, false, asking(json!(1))),
            cohort(3, true, behavioral),
            cohort(4, false, json!({"key": "plan", "value": "pro"})),
        ];
        let refused = Some((
            "behavioral_cohort_found",
            "Cohort 'c1' with filters on events cannot be used in feature flags.",
        ));
        let missing = Some(("cohort_does_not_exist", "Cohort with id 9 does not exist"));
        for (id, expected) in [
            (json!(1), refused),
            (json!("1"), refused),
            (json!(2), refused),
            (json!(3), None),
            (json!(4), None),
            (json!("4"), None),
            (json!(9), missing),
            (json!("9"), missing),
        ] {
            let property = asking(id);
            let found = check(property.as_object().expect("an object"), &live).err();
            let found = found.as_ref().map(|found| (found.code, found.detail.as_str()));
            assert_eq!(found, expected, "{property}");
        }
        let other = json!({"key": "id", "type": "person", "value": 9});
        assert_eq!(check(other.as_object().expect("an object"), &live), Ok(()));
    }
}
