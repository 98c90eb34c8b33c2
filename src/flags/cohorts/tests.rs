//! Rules are those of `match_property_group` of the Python SDK; lists are checked by hand.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Cohort, CohortSet, DEPTH_MAX, Memberships, Rule, RuleError};
use crate::evaluate::{Cohorts, UnknownCohort};
use crate::subject::Subject;
use weir_base::clock::UnixMicros;
use weir_event::predicate::Matching;
use weir_event::predicate::moment::Now;

fn person() -> Map<String, Value> {
    let Value::Object(person) = json!({"plan": "pro", "seats": 7}) else { panic!("an object") };
    person
}

fn plan(value: &str) -> Value {
    json!({"key": "plan", "type": "person", "value": value, "operator": "exact"})
}

fn in_cohort(id: i64) -> Value {
    json!({"key": "id", "type": "cohort", "value": id})
}

fn negated(mut filter: Value) -> Value {
    filter["negation"] = json!(true);
    filter
}

fn set(rules: &[(i64, Value)]) -> CohortSet {
    let nobody = Arc::from([]);
    let dynamic =
        rules.iter().map(|(id, rule)| Cohort::by_rule(*id, rule, Matching::Legacy, &nobody));
    let listed = Arc::from([Uuid::from_u128(3), Uuid::from_u128(8)]);
    CohortSet::new(dynamic.chain([Cohort::listed(100, listed)]))
}

fn contains(set: &CohortSet, id: i64, uuids: &[u128]) -> Result<bool, UnknownCohort> {
    let person = person();
    let mut subject = Subject::new("ada", Now::utc(UnixMicros(0)));
    subject.stored = Some(&person);
    let uuids = || Some(uuids.iter().map(|uuid| Uuid::from_u128(*uuid)).collect());
    Memberships::new(set, &uuids).contains(id, &subject)
}

#[test]
fn rules_are_trees_of_and_and_or_with_negation() {
    let (pro, free) = (|| plan("pro"), || plan("free"));
    let seats = |value: &str| json!({"key": "seats", "value": value, "operator": "gt"});
    for (rule, expected) in [
        (json!({"type": "AND", "values": []}), true),
        (json!({"type": "OR", "values": []}), true),
        (json!({}), true),
        (json!({"type": "AND", "values": [pro(), free()]}), false),
        (json!({"type": "OR", "values": [free(), pro()]}), true),
        (json!({"type": "AND", "values": [pro(), seats("6")]}), true),
        (json!({"type": "AND", "values": [pro(), seats("7")]}), false),
        (json!({"type": "AND", "values": [negated(free())]}), true),
        (json!({"type": "OR", "values": [negated(pro()), free()]}), false),
        (
            json!({"type": "OR", "values": [
                {"type": "AND", "values": [pro(), free()]},
                {"type": "AND", "values": [pro(), negated(free())]},
            ]}),
            true,
        ),
        (
            json!({"type": "AND", "values": [
                {"type": "OR", "values": [free(), pro()]},
                {"type": "OR", "values": [free()]},
            ]}),
            false,
        ),
    ] {
        assert_eq!(contains(&set(&[(1, rule.clone())]), 1, &[]), Ok(expected), "{rule}");
    }
}

#[test]
fn cohorts_are_nested_and_cycles_are_not_followed() {
    let all = |values: Value| json!({"type": "AND", "values": values});
    let cohorts = set(&[
        (1, all(json!([plan("pro")]))),
        (2, all(json!([in_cohort(1), negated(in_cohort(3))]))),
        (3, all(json!([plan("free")]))),
        (4, all(json!([in_cohort(5)]))),
        (5, all(json!([in_cohort(4)]))),
        (6, all(json!([in_cohort(4)]))),
        (7, all(json!([in_cohort(99)]))),
        (8, json!({"type": "OR", "values": [in_cohort(1), in_cohort(99)]})),
        (9, all(json!([in_cohort(100), in_cohort(2)]))),
        (10, all(json!([{"key": "id", "type": "cohort", "value": 2, "operator": "not_in"}]))),
        (12, all(json!([{"key": "id", "type": "cohort", "value": 2, "operator": "is_not"}]))),
        (13, all(json!([{"key": "id", "type": "cohort", "value": 3, "operator": "is_not"}]))),
        (14, all(json!([{"key": "id", "type": "cohort", "value": 2, "operator": "exact"}]))),
    ]);
    for (id, expected) in [
        (1, Ok(true)),
        (2, Ok(true)),
        (3, Ok(false)),
        (4, Err(UnknownCohort)),
        (6, Err(UnknownCohort)),
        (7, Err(UnknownCohort)),
        (8, Ok(true)),
        (9, Ok(true)),
        (10, Ok(false)),
        (11, Err(UnknownCohort)),
        (12, Ok(false)),
        (13, Ok(false)),
        (14, Ok(true)),
    ] {
        assert_eq!(contains(&cohorts, id, &[8]), expected, "{id}");
    }
    let circular: Vec<i64> = (1..11).filter(|id| cohorts.is_circular(*id)).collect();
    assert_eq!(circular, [4, 5, 6]);
}

#[test]
fn other_operators_for_cohorts_are_reported() {
    let asks =
        |operator: Value| json!({"key": "id", "type": "cohort", "value": 2, "operator": operator});
    for (operator, expected) in [
        (json!(null), false),
        (json!("exact"), false),
        (json!("not_in"), false),
        (json!("gt"), true),
    ] {
        let rule = json!({"type": "OR", "values": [{"type": "AND", "values": [asks(operator)]}]});
        let parsed = Rule::parse(&rule, Matching::Legacy).expect("readable");
        assert_eq!(parsed.asks_nobody(), expected, "{rule}");
    }
}

#[test]
fn lists_have_members_under_any_of_their_uuids() {
    let cohorts = set(&[]);
    for (uuids, expected) in
        [(&[][..], false), (&[3], true), (&[4], false), (&[4, 8], true), (&[2, 9], false)]
    {
        assert_eq!(contains(&cohorts, 100, uuids), Ok(expected), "{uuids:?}");
    }
    let asked = Cell::new(0);
    let uuids = || {
        asked.set(asked.get() + 1);
        None
    };
    let memberships = Memberships::new(&cohorts, &uuids);
    let subject = Subject::new("ada", Now::utc(UnixMicros(0)));
    assert_eq!(memberships.contains(100, &subject), Err(UnknownCohort));
    assert_eq!(memberships.contains(100, &subject), Err(UnknownCohort));
    assert_eq!(asked.get(), 1, "uuids are looked up once");
}

#[test]
fn depth_is_bounded() {
    let depth = i64::try_from(DEPTH_MAX).expect("small");
    let chain: Vec<_> = (0..depth + 2)
        .map(|id| {
            let values = if id == 0 { json!([plan("pro")]) } else { json!([in_cohort(id - 1)]) };
            (id + 1000, json!({"type": "AND", "values": values}))
        })
        .map(|(id, mut rule)| {
            if let Some(value) = rule.pointer_mut("/values/0/value").filter(|v| v.is_i64()) {
                *value = json!(value.as_i64().expect("a number") + 1000);
            }
            (id, rule)
        })
        .collect();
    let cohorts = set(&chain);
    assert_eq!(contains(&cohorts, 1000 + depth - 1, &[]), Ok(true));
    assert_eq!(contains(&cohorts, 1000 + depth, &[]), Err(UnknownCohort));
}

#[test]
fn unevaluable_rules_have_distinct_errors() {
    let event = json!({"type": "behavioral", "key": "$pageview", "value": "performed_event"});
    for (rule, expected) in [
        (json!([]), RuleError::Malformed),
        (json!({"type": "XOR", "values": []}), RuleError::Malformed),
        (json!({"type": "AND", "values": {}}), RuleError::Malformed),
        (json!({"type": "AND", "values": [1]}), RuleError::Malformed),
        (json!({"type": "AND", "values": [{"key": "a", "operator": "x"}]}), RuleError::Malformed),
        (json!({"type": "AND", "values": [event]}), RuleError::Behavioral),
        (
            json!({"type": "OR", "values": [{"type": "OR", "values": [event, plan("pro")]}]}),
            RuleError::Behavioral,
        ),
        (
            json!({"type": "AND", "values": [
                {"key": "1", "type": "flag", "operator": "flag_evaluates_to", "value": true},
            ]}),
            RuleError::Malformed,
        ),
    ] {
        assert_eq!(Rule::parse(&rule, Matching::Legacy).err(), Some(expected), "{rule}");
        assert_eq!(contains(&set(&[(1, rule)]), 1, &[]), Ok(false));
    }
}
