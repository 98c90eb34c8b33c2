//! Flag dependencies.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{check_in, with_operator, with_property};
use crate::flag_rules::check_filters;
use crate::flag_rules::dependencies::Graph;
use crate::flags::{FlagId, StoredFlag};
use crate::violation::Violation;

fn with_dependency(key: Value) -> Value {
    let value = json!(true);
    let operator = "flag_evaluates_to";
    with_property(json!({"key": key, "type": "flag", "operator": operator, "value": value}))
}

fn flag(id: i64, key: &str, active: bool, needs: &[i64]) -> Arc<StoredFlag> {
    let properties: Vec<Value> = needs
        .iter()
        .map(|id| {
            json!({"key": id.to_string(), "type": "flag", "value": true,
                         "operator": "flag_evaluates_to"})
        })
        .collect();
    let filters = json!({"groups": [{"properties": properties}]});
    Arc::new(StoredFlag { filters, active, ..StoredFlag::sample(id, key) })
}

#[test]
fn dependencies() {
    let live = [flag(1, "on", true, &[]), flag(2, "off", false, &[]), flag(3, "me", true, &[])];
    let me = Graph { flag: Some(FlagId(3)), key: "me", live: &live, cohorts: &[] };
    let invalid = |detail| Err(("invalid_input", detail));
    for (key, expected) in [
        (json!("1"), Ok(())),
        (json!(1), Ok(())),
        (
            json!("on"),
            invalid(
                "Flag dependencies must reference flag IDs (integers), not flag keys. \
                 Invalid reference: 'on'",
            ),
        ),
        (json!("9"), invalid("Flag dependency references non-existent flag with ID 9")),
        (
            json!("2"),
            invalid(
                "Cannot create dependency on disabled flag 'off' (ID: 2). \
                 Flag dependencies must reference active flags only.",
            ),
        ),
        (json!("3"), invalid("Feature flag 'me' cannot depend on itself")),
    ] {
        check_in(me, with_dependency(key), expected);
    }
    let wrong_operator = json!({"key": "1", "type": "flag", "operator": "exact", "value": true});
    let detail = "Flag properties must use the 'flag_evaluates_to' operator";
    check_in(me, with_property(wrong_operator), invalid(detail));
    let of_person = with_operator("flag_evaluates_to", json!(true));
    let detail = "The 'flag_evaluates_to' operator is only valid for flag properties, not 'person' properties.";
    check_in(me, of_person, Err(("invalid_operator", detail)));
}

#[test]
fn dependencies_form_no_cycle() {
    // c depends on b, b on a; e and f form a diamond above a.
    let live = [
        flag(1, "a", true, &[]),
        flag(2, "b", true, &[1]),
        flag(3, "c", true, &[2]),
        flag(4, "d", true, &[]),
        flag(5, "e", true, &[2, 3]),
    ];
    let a = Graph { flag: Some(FlagId(1)), key: "a", live: &live, cohorts: &[] };
    let d = Graph { flag: Some(FlagId(4)), key: "d", live: &live, cohorts: &[] };
    check_in(a, with_dependency(json!("4")), Ok(()));
    check_in(d, with_dependency(json!("5")), Ok(()));
    let direct = "Circular dependency detected: a → b → a";
    check_in(a, with_dependency(json!("2")), Err(("invalid_input", direct)));
    let indirect = "Circular dependency detected: a → c → b → a";
    check_in(a, with_dependency(json!("3")), Err(("invalid_input", indirect)));
}

/// A chain as long as this would overflow the stack of a recursive search.
#[test]
fn long_chains_are_followed() {
    let length = 50_000;
    let live: Vec<_> = (1..=length).map(|id| flag(id, "f", true, &[id + 1])).collect();
    let last = Graph { flag: Some(FlagId(length + 1)), key: "last", live: &live, cohorts: &[] };
    let violation = check_filters(&with_dependency(json!(1)), &last);
    let detail = violation.map_err(|violation| violation.detail);
    assert!(detail.is_err_and(|detail| detail.starts_with("Circular dependency detected: last")));
}

#[test]
fn flags_that_others_need_stay() {
    let mut live = vec![flag(1, "a", true, &[]), flag(8, "off", false, &[1])];
    let free = Graph { flag: Some(FlagId(1)), key: "a", live: &live, cohorts: &[] };
    assert_eq!(free.check_deletable(), Ok(()));
    assert_eq!(free.check_disableable(), Ok(()));
    live.extend([flag(3, "z", true, &[1]), flag(2, "b", true, &[7, 1])]);
    let needed = Graph { flag: Some(FlagId(1)), key: "a", live: &live, cohorts: &[] };
    for (found, action) in
        [(needed.check_deletable(), "delete"), (needed.check_disableable(), "disable")]
    {
        let detail = format!(
            "Cannot {action} this feature flag because other flags depend on it: \
             b (ID: 2), z (ID: 3). Please update or {action} the dependent flags first."
        );
        assert_eq!(found, Err(Violation::general(detail)));
    }
    live.extend((10..15).map(|id| flag(id, "n", true, &[1])));
    let many = Graph { flag: Some(FlagId(1)), key: "a", live: &live, cohorts: &[] };
    let detail = many.check_deletable().map_err(|violation| violation.detail);
    assert!(detail.is_err_and(|detail| detail.contains("n (ID: 13), and 2 more. Please")));
}

#[test]
fn a_flag_is_switched_on_after_what_it_needs() {
    let live = [flag(1, "on", true, &[]), flag(2, "off", false, &[])];
    let graph = Graph { flag: Some(FlagId(3)), key: "me", live: &live, cohorts: &[] };
    assert_eq!(graph.check_enableable(&with_dependency(json!("1"))), Ok(()));
    let detail = "Cannot enable this feature flag because it depends on disabled flags: \
                  off (ID: 2). Please enable the dependency flags first.";
    let found = graph.check_enableable(&with_dependency(json!("2")));
    assert_eq!(found, Err(Violation::general(detail)));
}
