//! The rules of flags, row by row. Expectations are the codes and texts that PostHog's flag API
//! documents and its own tests assert.

mod dependencies;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::cohorts::StoredCohort;
use crate::flags::is_simple;

const NO_FLAGS: Graph<'static> = Graph { flag: None, key: "new", live: &[], cohorts: &[] };

/// Checks `filters` without other flags; `expected` is code and detail of the violation.
fn check(filters: Value, expected: Result<(), (&str, &str)>) {
    check_in(NO_FLAGS, filters, expected);
}

fn check_in(graph: Graph<'_>, filters: Value, expected: Result<(), (&str, &str)>) {
    let found = check_filters(&filters, &graph);
    if let Err(violation) = &found {
        assert_eq!(violation.attr, Some("filters"), "{filters}");
    }
    let found = found.as_ref().map_err(|violation| (violation.code, violation.detail.as_str()));
    assert_eq!(found.copied(), expected, "{filters}");
}

/// "Legacy holdout_groups and super_groups keys are stripped on save"; their content is kept.
#[test]
fn legacy_keys_are_removed_and_their_content_is_kept() {
    let groups = json!([{"properties": [], "rollout_percentage": 5}]);
    let holdout = |share: Value| json!([{"properties": [], "rollout_percentage": share, "variant": "holdout-7"}]);
    for (legacy, expected) in [
        (json!({"super_groups": [{"properties": []}]}), json!({"feature_enrollment": true})),
        (json!({"super_groups": []}), json!({})),
        (json!({"super_groups": null, "holdout_groups": null}), json!({})),
        (
            json!({"super_groups": [{}], "feature_enrollment": false}),
            json!({"feature_enrollment": false}),
        ),
        (
            json!({"holdout_groups": holdout(json!(12.5))}),
            json!({"holdout": {"id": 7, "exclusion_percentage": 12.5}}),
        ),
        (
            json!({"holdout_groups": holdout(Value::Null)}),
            json!({"holdout": {"id": 7, "exclusion_percentage": 100}}),
        ),
        (json!({"holdout_groups": holdout(json!(10)), "holdout": null}), json!({"holdout": null})),
        (json!({"holdout_groups": [{"variant": "other", "rollout_percentage": 1}]}), json!({})),
        (json!({"holdout_groups": []}), json!({})),
    ] {
        let with_groups = |mut filters: Value| {
            filters["groups"] = groups.clone();
            filters
        };
        let (given, expected) = (with_groups(legacy), with_groups(expected));
        assert_eq!(initial(Some(given.clone())), Ok(expected.clone()), "{given}");
        assert_eq!(updated(&given, json!({})), expected, "{given}");
        check(expected, Ok(()));
    }
}

#[test]
fn a_holdout_has_an_id_and_a_share_and_switches_are_on_or_off() {
    let wrong_holdout = "holdout: must have an id and an exclusion_percentage from 0 to 100";
    for (key, value, problem) in [
        ("holdout", json!({"id": 1, "exclusion_percentage": 0}), None),
        ("holdout", json!(null), None),
        ("holdout", json!({"id": "1", "exclusion_percentage": 5}), Some(wrong_holdout)),
        ("holdout", json!({"id": 1}), Some(wrong_holdout)),
        ("holdout", json!({"id": 1, "exclusion_percentage": 101}), Some(wrong_holdout)),
        ("holdout", json!([]), Some(wrong_holdout)),
        ("early_exit", json!(true), None),
        ("early_exit", json!("true"), Some("early_exit: must be true, false or null")),
        ("feature_enrollment", json!(false), None),
        ("feature_enrollment", json!(1), Some("feature_enrollment: must be true, false or null")),
    ] {
        let filters = json!({"groups": [{}], key: value});
        check(filters, problem.map_or(Ok(()), |problem| Err(("invalid_input", problem))));
    }
}

/// Filters of one condition with one property.
fn with_property(property: Value) -> Value {
    json!({"groups": [{"properties": [property], "rollout_percentage": 50}]})
}

fn with_operator(operator: &str, value: Value) -> Value {
    with_property(json!({"key": "k", "type": "person", "operator": operator, "value": value}))
}

#[test]
fn keys() {
    let longest = "k".repeat(400);
    let longer = "k".repeat(401);
    for (key, expected) in [
        ("beta-feature", Ok(())),
        ("A_1", Ok(())),
        (&longest, Ok(())),
        ("", Err(("blank", "This field may not be blank."))),
        (&longer, Err(("max_length", "Ensure this field has no more than 400 characters."))),
        ("a b", Err(("invalid_key", KEY_TEXT))),
        ("a.b", Err(("invalid_key", KEY_TEXT))),
        ("ä", Err(("invalid_key", KEY_TEXT))),
        ("a\n", Err(("invalid_key", KEY_TEXT))),
    ] {
        let found = check_key(key);
        if let Err(violation) = &found {
            assert_eq!(violation.attr, Some("key"));
        }
        let found = found.as_ref().map_err(|violation| (violation.code, violation.detail.as_str()));
        assert_eq!(found.copied(), expected, "{key}");
    }
}

const KEY_TEXT: &str = "Only letters, numbers, hyphens (-) & underscores (_) are allowed.";

#[test]
fn a_new_flag_has_a_condition() {
    let open = json!({"groups": [{"properties": [], "rollout_percentage": null}]});
    assert_eq!(initial(None), Ok(open.clone()));
    assert_eq!(initial(Some(json!({}))), Ok(open.clone()));
    assert_eq!(initial(Some(open.clone())), Ok(open));
    let none = Violation {
        code: "invalid_input",
        detail: "Feature flag must have at least one condition set (group).".to_owned(),
        attr: Some("filters"),
    };
    for given in [json!({"groups": []}), json!({"groups": null}), json!({"payloads": {}})] {
        assert_eq!(initial(Some(given)), Err(none.clone()));
    }
    // `check_filters` reports a value that is not an object.
    assert_eq!(initial(Some(json!("x"))), Ok(json!("x")));
}

#[test]
fn an_update_is_laid_over_the_stored_filters() {
    let stored = json!({"groups": [{"properties": []}], "payloads": {"true": "1"}, "x": 1});
    for (given, expected) in [
        (json!({}), stored.clone()),
        (
            json!({"payloads": {"true": "2"}}),
            json!({"groups": [{"properties": []}], "payloads": {"true": "2"}, "x": 1}),
        ),
        (json!({"groups": []}), json!({"groups": [], "payloads": {"true": "1"}, "x": 1})),
        (
            json!({"groups": [{}], "y": 2}),
            json!({"groups": [{}], "payloads": {"true": "1"}, "x": 1, "y": 2}),
        ),
        (
            json!({"super_groups": [{}], "payloads": {}}),
            json!({"groups": [{"properties": []}], "payloads": {}, "x": 1, "feature_enrollment": true}),
        ),
        (json!([1]), json!([1])),
    ] {
        assert_eq!(updated(&stored, given.clone()), expected, "{given}");
    }
}

/// Names of cohorts are added when a flag is read; what a client sends back is not stored.
#[test]
fn names_of_cohorts_are_not_kept() {
    let of = |kind: &str, name: Value| {
        let mut filter = json!({"key": "id", "type": kind, "value": 1});
        if !name.is_null() {
            filter["cohort_name"] = name;
        }
        with_property(filter)
    };
    assert_eq!(initial(Some(of("cohort", json!("Pro")))), Ok(of("cohort", Value::Null)));
    assert_eq!(updated(&json!({}), of("cohort", json!("Pro"))), of("cohort", Value::Null));
    let other = of("person", json!("kept"));
    assert_eq!(updated(&json!({}), other.clone()), other);
}

#[test]
fn payloads_become_texts() {
    let given =
        json!({"groups": [{}], "payloads": {"a": {"x": 1}, "b": "\"s\"", "c": 3, "d": null}});
    let stored = initial(Some(given)).unwrap_or_default();
    let expected = json!({"a": "{\"x\":1}", "b": "\"s\"", "c": "3", "d": "null"});
    assert_eq!(stored.get("payloads"), Some(&expected));
}

#[test]
fn filters_are_objects() {
    let text = |kind: &str| format!("Expected a dictionary of items but got type \"{kind}\".");
    for (filters, kind) in [
        (json!(null), "NoneType"),
        (json!(true), "bool"),
        (json!(1), "int"),
        (json!(1.5), "float"),
        (json!("x"), "str"),
        (json!([]), "list"),
    ] {
        check(filters, Err(("not_a_dict", &text(kind))));
    }
    check(json!({}), Ok(()));
    check(json!({"groups": [{}]}), Ok(()));
    check(json!({"groups": [{"properties": null, "variant": null}]}), Ok(()));
    let reserved = Err(("reserved_config_version", "filters.version is reserved"));
    check(json!({"version": 2, "groups": [{}]}), reserved);
}

#[test]
fn shapes() {
    for (filters, detail) in [
        (json!({"groups": {}}), "groups: must be a list"),
        (json!({"groups": null}), "groups: must be a list"),
        (json!({"groups": [{}, 1]}), "groups[1]: must be an object"),
        (json!({"groups": [{"properties": {}}]}), "groups[0]: properties must be a list"),
        (
            json!({"groups": [{"properties": [1]}]}),
            "groups[0]: properties must be a list of objects",
        ),
        (json!({"groups": [{"variant": 1}]}), "groups[0]: variant must be a string or null"),
        (json!({"multivariate": []}), "multivariate: must be an object or null"),
        (json!({"multivariate": {"variants": {}}}), "multivariate.variants: must be a list"),
        (json!({"multivariate": {"variants": [1]}}), "multivariate.variants[0]: must be an object"),
        (
            json!({"multivariate": {"variants": [{"rollout_percentage": 100}]}}),
            "multivariate.variants[0]: key must be 1 to 400 letters, digits, hyphens (-), \
             underscores (_), dots (.) and slashes (/)",
        ),
        (
            json!({"groups": [{"properties": [{"type": "person", "value": 1}]}]}),
            "properties: key must be a string",
        ),
        (
            json!({"aggregation_group_type_index": 5}),
            "filters: aggregation_group_type_index must be null or a number from 0 to 4",
        ),
        (
            json!({"groups": [{"aggregation_group_type_index": "0"}]}),
            "groups[0]: aggregation_group_type_index must be null or a number from 0 to 4",
        ),
    ] {
        check(filters, Err(("invalid_input", detail)));
    }
}

#[test]
fn percentages() {
    for good in [json!(null), json!(0), json!(12.5), json!(100), json!(100.0)] {
        check(json!({"groups": [{"rollout_percentage": good}]}), Ok(()));
    }
    let detail = "groups[0]: rollout_percentage must be a number from 0 to 100";
    for bad in [json!(-1), json!(100.5), json!(101), json!("50"), json!(true), json!([])] {
        check(json!({"groups": [{"rollout_percentage": bad}]}), Err(("invalid_input", detail)));
    }
    let detail = "multivariate.variants[0]: rollout_percentage must be a number from 0 to 100";
    let variants = json!([{"key": "a", "rollout_percentage": 200}]);
    check(json!({"multivariate": {"variants": variants}}), Err(("invalid_input", detail)));
}

#[test]
fn kinds_of_properties_match_the_aggregation() {
    let persons = "Filters are not valid (can only use person and cohort properties)";
    let groups = "Filters are not valid (can only use group properties)";
    let of_person = json!({"key": "k", "type": "person", "value": "x"});
    let of_group = |index: i64| {
        json!({"key": "k", "type": "group", "group_type_index": index,
                                       "value": "x"})
    };
    let filters = |aggregation: Value, property: &Value| {
        json!({"aggregation_group_type_index": aggregation,
               "groups": [{"properties": [property]}]})
    };
    for (filters, expected) in [
        (filters(json!(null), &of_person), Ok(())),
        (filters(json!(null), &json!({"key": "k", "value": "x"})), Ok(())),
        (filters(json!(null), &json!({"key": "k", "type": "person_metadata", "value": 1})), Ok(())),
        (filters(json!(null), &of_group(0)), Err(persons)),
        (filters(json!(null), &json!({"key": "k", "type": "event", "value": "x"})), Err(persons)),
        (filters(json!(null), &json!({"key": "k", "type": 1, "value": "x"})), Err(persons)),
        (filters(json!(0), &of_group(0)), Ok(())),
        (filters(json!(0), &of_group(1)), Err(groups)),
        (filters(json!(0), &of_person), Err(groups)),
        (filters(json!(0), &json!({"key": "id", "type": "cohort", "value": 1})), Err(groups)),
        // A condition may aggregate differently from the flag.
        (
            json!({"aggregation_group_type_index": 0, "groups": [
                {"properties": [of_group(0)]},
                {"properties": [of_person], "aggregation_group_type_index": null},
                {"properties": [of_group(2)], "aggregation_group_type_index": 2}]}),
            Ok(()),
        ),
        (
            json!({"groups": [{"properties": [of_person], "aggregation_group_type_index": 1}]}),
            Err(groups),
        ),
    ] {
        check(filters, expected.map_err(|detail| ("invalid_input", detail)));
    }
}

#[test]
fn variants_sum_to_100() {
    let filters = |shares: &[f64]| {
        let variants = shares.iter().zip(0..);
        let variants: Vec<Value> = variants
            .map(|(share, index)| json!({"key": format!("v{index}"), "rollout_percentage": share}))
            .collect();
        json!({"groups": [{}], "multivariate": {"variants": variants}})
    };
    for good in [&[][..], &[100.0], &[50.0, 50.0], &[33.3, 33.3, 33.4], &[0.1; 0], &[0.0, 100.0]] {
        check(filters(good), Ok(()));
    }
    check(filters(&[14.3, 14.3, 14.3, 14.3, 14.3, 14.3, 14.2]), Ok(()));
    let detail = "Invalid variant definitions: Variant rollout percentages must sum to 100.";
    for bad in [&[99.0][..], &[50.0, 49.9], &[50.0, 60.0], &[0.0]] {
        check(filters(bad), Err(("invalid_input", detail)));
    }
    check(json!({"multivariate": {"variants": [{"key": "a"}]}}), Err(("invalid_input", detail)));
    check(json!({"multivariate": null, "groups": [{}]}), Ok(()));
}

#[test]
fn variants_have_keys() {
    let filters = |key: &Value| {
        let variants = json!([{"key": key, "rollout_percentage": 100}]);
        json!({"groups": [{}], "multivariate": {"variants": variants}})
    };
    for good in ["a", "Test_1", "v1.2/b-c", &"x".repeat(400)] {
        check(filters(&json!(good)), Ok(()));
    }
    let detail = "multivariate.variants[0]: key must be 1 to 400 letters, digits, hyphens (-), \
                  underscores (_), dots (.) and slashes (/)";
    let long = "x".repeat(401);
    for bad in [json!(""), json!("a b"), json!("ä"), json!(long), json!(1), json!(null)] {
        check(filters(&bad), Err(("invalid_input", detail)));
    }
}

/// PostHog stores `min` and `max` under the names that evaluators know.
#[test]
fn operators_are_kept_by_one_name() {
    let with = |operator: &str| with_operator(operator, json!("5"));
    assert_eq!(initial(Some(with("min"))), Ok(with("gte")));
    assert_eq!(updated(&json!({}), with("max")), with("lte"));
    assert_eq!(updated(&json!({}), with("exact")), with("exact"));
    let odd = json!({"groups": [1, {"properties": 2}, {"properties": [3, {"operator": 4}]}]});
    assert_eq!(updated(&json!({}), odd.clone()), odd);
}

#[test]
fn variant_overrides_exist() {
    let filters = |variant: &str| {
        json!({"groups": [{"variant": variant}],
               "multivariate": {"variants": [{"key": "a", "rollout_percentage": 100}]}})
    };
    check(filters("a"), Ok(()));
    check(filters(""), Ok(()));
    let detail = "Filters are not valid (variant override does not exist)";
    check(filters("b"), Err(("invalid_input", detail)));
    check(json!({"groups": [{"variant": "a"}]}), Err(("invalid_input", detail)));
}

#[test]
fn payload_rules() {
    let boolean = |payloads: Value| json!({"groups": [{}], "payloads": payloads});
    let multivariate = |payloads: Value| {
        json!({"groups": [{}], "payloads": payloads,
               "multivariate": {"variants": [{"key": "a", "rollout_percentage": 100}]}})
    };
    let invalid = |detail| Err(("invalid_input", detail));
    let not_an_object = invalid("Payloads must be passed as a dictionary");
    let not_json = invalid("Payload value is not valid JSON");
    let not_true = invalid("Payload keys must be 'true' for boolean flags");
    let not_a_variant = invalid("Payload keys must match a variant key for multivariate flags");
    for (filters, expected) in [
        (boolean(json!({})), Ok(())),
        (boolean(json!({"true": "{\"a\": [1, null]}"})), Ok(())),
        (boolean(json!({"true": "300"})), Ok(())),
        (boolean(json!([])), not_an_object),
        (boolean(json!("x")), not_an_object),
        (boolean(json!(null)), not_an_object),
        (boolean(json!({"true": "hello"})), not_json),
        (boolean(json!({"true": ""})), not_json),
        (boolean(json!({"true": "{} x"})), not_json),
        (boolean(json!({"false": "1"})), not_true),
        (boolean(json!({"true": "1", "b": "2"})), not_true),
        (multivariate(json!({"a": "1"})), Ok(())),
        (multivariate(json!({"true": "1"})), not_a_variant),
        (multivariate(json!({"a": "1", "b": "1"})), not_a_variant),
    ] {
        check(filters, expected);
    }
}

#[test]
fn values_fit_their_operators() {
    for operator in
        ["regex", "not_regex", "icontains", "not_icontains", "gt", "gte", "lt", "lte", "semver_gt"]
    {
        check(with_operator(operator, json!("1.0")), Ok(()));
        for (bad, text) in [(json!(1), "1"), (json!(["a"]), "[\"a\"]"), (json!(null), "null")] {
            let detail = format!("Invalid value for operator {operator}: {text}");
            check(with_operator(operator, bad), Err(("invalid_value", &detail)));
        }
    }
    let detail = "Invalid value for operator regex: (";
    check(with_operator("regex", json!("(")), Err(("invalid_value", detail)));
    for (operator, value) in [
        ("exact", json!(["a", 1, true])),
        ("exact", json!(null)),
        ("is_not", json!(false)),
        ("is_set", json!("is_set")),
        ("is_not_set", json!(null)),
        ("regex", json!("^(?=a).*$")),
        ("icontains_multi", json!(["a", "b"])),
        ("between", json!([1, "2.5"])),
        ("not_between", json!([-1, 1])),
    ] {
        check(with_operator(operator, value), Ok(()));
    }
    for (operator, value) in [
        ("icontains_multi", json!("a")),
        ("between", json!([1])),
        ("between", json!([1, "x"])),
        ("between", json!([1, "NaN"])),
        ("between", json!(1)),
    ] {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let detail = format!("Invalid value for operator {operator}: {text}");
        check(with_operator(operator, value), Err(("invalid_value", &detail)));
    }
    let unknown = Err(("invalid_operator", "Invalid operator: like"));
    check(with_operator("like", json!("x")), unknown);
    let detail = "The 'in' operator is only valid for cohort properties, not 'person' properties.";
    check(with_operator("in", json!("x")), Err(("invalid_operator", detail)));
    // "Currently supported operators are IN and NOT IN"; `exact` is what older user interfaces wrote.
    let live = [Arc::new(StoredCohort::sample(4, json!({"properties": {}})))];
    let graph = Graph { cohorts: &live, ..NO_FLAGS };
    let of_cohort = |operator: Value| {
        with_property(json!({"key": "id", "type": "cohort", "value": 4, "operator": operator}))
    };
    for good in [json!(null), json!("in"), json!("not_in"), json!("exact")] {
        check_in(graph, of_cohort(good), Ok(()));
    }
    let detail = "Cohort properties must use the 'in' or 'not_in' operator";
    for bad in ["is_not", "icontains", "gt", "is_set", "flag_evaluates_to"] {
        check_in(graph, of_cohort(json!(bad)), Err(("invalid_operator", detail)));
    }
    let no_operator = with_property(json!({"key": "k", "value": 1, "operator": null}));
    check(no_operator, Ok(()));
}

#[test]
fn lists_are_bounded() {
    let list = |length: usize| with_operator("exact", json!(vec!["x"; length]));
    check(list(1000), Ok(()));
    let detail = "Property group expressions of type k cannot contain more than 1000 values.";
    check(list(1001), Err(("invalid_input", detail)));
}

#[test]
fn dates_are_dates() {
    for operator in ["is_date_exact", "is_date_before", "is_date_after"] {
        for good in [
            "-7d",
            "7d",
            "9999h",
            "1y",
            "2022-05-01",
            "2022-05-01T10:00:00Z",
            "2022-05-01T10:00:00.123+02:00",
            "2022-05-01 10:00:00",
            "2022-05-01T10:00",
            "2022-05-01 10:00:00+0200",
            "5/1/2022 10:00 AM",
        ] {
            check(with_operator(operator, json!(good)), Ok(()));
        }
        for bad in ["", "d", "-d", "10000h", "--1d", "+1d", "7x", "6hed", "2022-13-01", "soon"] {
            let detail = format!("Invalid date value: {bad}");
            check(with_operator(operator, json!(bad)), Err(("invalid_date", &detail)));
        }
        let number = Err(("invalid_date", "Invalid date value: 7"));
        check(with_operator(operator, json!(7)), number);
    }
}

#[test]
fn filters_are_bounded() {
    let filters = |length: usize| json!({"groups": [{"description": "x".repeat(length)}]});
    assert_eq!(check_size(&filters(1000)), Ok(()));
    let detail = "Filters are larger than 524288 bytes.";
    assert_eq!(check_size(&filters(524_288)), Err(Violation::filters(detail)));
}

#[test]
fn enrolment_is_for_persons() {
    let filters = |enrols: bool, index: Value| json!({"groups": [{}], "feature_enrollment": enrols, "aggregation_group_type_index": index});
    let detail = "Cannot change this flag to a group-based when linked to an Early Access Feature.";
    for (stored, new, expected) in [
        (filters(true, json!(null)), filters(true, json!(0)), Err(Violation::filters(detail))),
        (filters(true, json!(null)), filters(true, json!(null)), Ok(())),
        (filters(true, json!(null)), filters(false, json!(0)), Ok(())),
        (filters(false, json!(null)), filters(false, json!(0)), Ok(())),
    ] {
        assert_eq!(check_enrollment(&stored, &new, false), expected, "{stored} {new}");
    }
}

#[test]
fn simple_flags() {
    for (filters, expected) in [
        (json!({"groups": [{"properties": []}]}), true),
        (json!({"groups": [{}]}), true),
        (
            json!({"groups": [{"properties": [], "rollout_percentage": 5}], "multivariate": {}}),
            true,
        ),
        (json!({"groups": []}), false),
        (json!({"groups": [{}, {}]}), false),
        (json!({"groups": [{"properties": [{"key": "k"}]}]}), false),
        (json!({"groups": [{}], "aggregation_group_type_index": 0}), false),
    ] {
        assert_eq!(is_simple(&filters), expected, "{filters}");
    }
}
