//! Cohort filters in release conditions: the cohort must exist, and its members must be computable
//! during flag evaluation. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::cohorts::StoredCohort;
use crate::flags::StoredFlag;
use crate::violation::Violation;
use weir_event::predicate::Matching;
use weir_flags::cohorts::{Rule, RuleError};

/// The error code of a flag whose cohorts need events.
const BEHAVIORAL: &str = "behavioral_cohort_found";

/// Checks the cohort of a property filter; filters of other kinds pass.
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
    match behavioral(vec![cohort], live) {
        None => Ok(()),
        Some(cohort) => {
            let name = &cohort.name;
            let detail =
                format!("Cohort '{name}' with filters on events cannot be used in feature flags.");
            Err(Violation::coded(BEHAVIORAL, detail))
        }
    }
}

/// Checks a changed cohort that a flag uses, directly or through other cohorts: it must not need events,
/// directly or through others. `live` are the previous cohorts; the new rule forms no cycle with them.
///
/// # Errors
///
/// Code `behavioral_cohort_found`.
pub(crate) fn check_users(
    changed: &StoredCohort,
    flags: &[Arc<StoredFlag>],
    live: &[Arc<StoredCohort>],
) -> Result<(), Violation> {
    let rule = rule(changed);
    let needed: Vec<&StoredCohort> = match &rule {
        Some(Ok(rule)) => rule.cohorts().into_iter().filter_map(|id| find(live, id)).collect(),
        Some(Err(RuleError::Behavioral)) => Vec::new(),
        Some(Err(RuleError::Malformed | RuleError::Patterns(_))) | None => return Ok(()),
    };
    let is_behavioral = rule.is_some_and(|rule| rule.is_err());
    if needed.is_empty() && !is_behavioral {
        return Ok(());
    }
    let users = users(changed, live);
    let is_used = |flag: &Arc<StoredFlag>| cohort_ids(&flag.filters).any(|id| users.contains(&id));
    if !flags.iter().any(is_used) {
        return Ok(());
    }
    if is_behavioral {
        let detail = "Behavioral filters cannot be added to cohorts used in feature flags.";
        return Err(Violation::coded(BEHAVIORAL, detail));
    }
    match behavioral(needed, live) {
        None => Ok(()),
        Some(cohort) => Err(Violation::coded(
            BEHAVIORAL,
            format!(
                "A dependent cohort ({}) has filters based on events. These cohorts can't be used \
                 in feature flags.",
                cohort.name
            ),
        )),
    }
}

/// The cohort and those that use it, directly or through others.
fn users(cohort: &StoredCohort, live: &[Arc<StoredCohort>]) -> HashSet<i64> {
    let asks = |other: &Arc<StoredCohort>| match rule(other) {
        Some(Ok(rule)) => (other.id.0, rule.cohorts()),
        _ => (other.id.0, Vec::new()),
    };
    let asks: Vec<(i64, Vec<i64>)> = live.iter().map(asks).collect();
    let (mut users, mut waiting) = (HashSet::from([cohort.id.0]), vec![cohort.id.0]);
    while let Some(needed) = waiting.pop() {
        for (id, _) in asks.iter().filter(|(_, ids)| ids.contains(&needed)) {
            if users.insert(*id) {
                waiting.push(*id);
            }
        }
    }
    users
}

/// The first one that needs events, of these cohorts and those that their rules use. Rules form no
/// cycles, so each cohort is visited at most once.
fn behavioral<'c>(
    mut waiting: Vec<&'c StoredCohort>,
    live: &'c [Arc<StoredCohort>],
) -> Option<&'c StoredCohort> {
    let mut seen: HashSet<i64> = waiting.iter().map(|cohort| cohort.id.0).collect();
    while let Some(cohort) = waiting.pop() {
        match rule(cohort) {
            Some(Err(RuleError::Behavioral)) => return Some(cohort),
            Some(Ok(rule)) => {
                let needed = rule.cohorts().into_iter().filter_map(|id| find(live, id));
                waiting.extend(needed.filter(|cohort| seen.insert(cohort.id.0)));
            }
            Some(Err(RuleError::Malformed | RuleError::Patterns(_))) | None => {}
        }
    }
    None
}

/// The rule of a cohort that is not static.
fn rule(cohort: &StoredCohort) -> Option<Result<Rule, RuleError>> {
    (!cohort.is_static).then(|| Rule::parse(cohort.rule(), Matching::Legacy))
}

/// The cohorts that release conditions use; with repetitions.
pub fn cohort_ids(filters: &Value) -> impl Iterator<Item = i64> {
    let groups = filters.get("groups").and_then(Value::as_array).into_iter().flatten();
    groups
        .filter_map(|group| group.get("properties").and_then(Value::as_array))
        .flatten()
        .filter(|property| property.get("type").and_then(Value::as_str) == Some("cohort"))
        .filter_map(|property| cohort_id(property.get("value")?))
}

fn find(live: &[Arc<StoredCohort>], id: i64) -> Option<&StoredCohort> {
    live.iter().find(|cohort| cohort.id.0 == id).map(Arc::as_ref)
}

/// The filters on cohorts in release conditions.
pub fn filters_mut(filters: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let groups = filters.get_mut("groups").and_then(Value::as_array_mut).into_iter().flatten();
    let properties = groups.filter_map(|group| group.get_mut("properties")?.as_array_mut());
    let objects = properties.flatten().filter_map(Value::as_object_mut);
    objects.filter(|property| property.get("type").and_then(Value::as_str) == Some("cohort"))
}

/// The id of a cohort in a filter: a number or a text of one.
pub fn cohort_id(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{check, check_users};
    use crate::cohorts::StoredCohort;
    use crate::flags::StoredFlag;

    fn cohort(id: i64, is_static: bool, value: Value) -> Arc<StoredCohort> {
        let filters = json!({"properties": {"type": "OR", "values": [value]}});
        Arc::new(StoredCohort { is_static, ..StoredCohort::sample(id, filters) })
    }

    /// Behavioral cohorts are rejected directly and inside others; the rule of a static cohort is ignored.
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

    /// Whichever way a flag gets a cohort that needs events; each time there is a cohort in between.
    #[test]
    fn cohorts_of_flags_do_not_come_to_ask_for_events() {
        let events = json!({"key": "paid", "type": "behavioral", "value": "performed_event"});
        let asking = |id: i64| json!({"key": "id", "type": "cohort", "value": id});
        let plain = json!({"key": "plan", "value": "pro"});
        // 3 uses 2, and 2 uses 1. 6 uses 5, which needs events, and 7 is static and once used 1.
        let live = [
            cohort(1, false, plain.clone()),
            cohort(2, false, asking(1)),
            cohort(3, false, asking(2)),
            cohort(5, false, events.clone()),
            cohort(6, false, asking(5)),
            cohort(7, true, asking(1)),
            cohort(8, false, plain.clone()),
        ];
        let own = Some("Behavioral filters cannot be added to cohorts used in feature flags.");
        let others = Some(
            "A dependent cohort (c5) has filters based on events. These cohorts can't be used in \
             feature flags.",
        );
        for (asked, changed, value, expected) in [
            (1, 1, events.clone(), own),
            (2, 1, events.clone(), own),
            (3, 1, events.clone(), own),
            (3, 3, events.clone(), own),
            (1, 2, events.clone(), None),
            (7, 1, events.clone(), None),
            (8, 1, events.clone(), None),
            (1, 1, asking(5), others),
            (3, 1, asking(5), others),
            (3, 1, asking(6), others),
            (8, 1, asking(6), None),
            (3, 1, asking(8), None),
            (3, 1, asking(7), None),
            (3, 1, asking(99), None),
        ] {
            let filters = json!({"groups": [{"properties": [asking(asked)]}]});
            let flag = Arc::new(StoredFlag { filters, ..StoredFlag::sample(1, "f") });
            let found = check_users(&cohort(changed, false, value.clone()), &[flag], &live).err();
            let found = found.as_ref().map(|found| (found.code, found.detail.as_str()));
            let expected = expected.map(|detail| ("behavioral_cohort_found", detail));
            assert_eq!(found, expected, "{asked} {changed} {value}");
        }
    }
}
