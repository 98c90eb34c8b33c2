//! Expectations follow from the documented order and from hashes that the Python SDK computed:
//! `beta-feature.user-1` is at 0.7265 in the rollout and at 0.1458 among the variants, and `user-1`
//! at 0.1781 in the holdouts.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{
    Cohorts, Dependencies, Dependency, Failure, Reason, Surroundings, UnknownCohort, Verdict,
    evaluate,
};
use crate::cohorts::{CohortSet, Memberships};
use crate::definition::{Definition, Stored};
use crate::subject::{GroupTypes, HashKeys, Subject};
use weir_base::clock::UnixMicros;
use weir_event::predicate::moment::Now;

fn stored(filters: &Value) -> Stored<'_> {
    Stored::new(1, "beta-feature", filters)
}

fn flag(filters: &Value) -> Definition {
    Definition::parse(&stored(filters)).expect("readable")
}

fn object(json: Value) -> Map<String, Value> {
    let Value::Object(object) = json else { panic!("not an object") };
    object
}

/// Flags by id.
struct Others(HashMap<i64, Dependency<'static>>);

impl Dependencies for Others {
    fn dependency(&self, flag_id: i64) -> Dependency<'_> {
        self.0.get(&flag_id).copied().unwrap_or(Dependency::Missing)
    }
}

/// The person is in cohort 1 and not in cohort 2; other cohorts are unknown.
struct TwoCohorts;

impl Cohorts for TwoCohorts {
    fn contains(&self, cohort_id: i64, _: &Subject<'_>) -> Result<bool, UnknownCohort> {
        match cohort_id {
            1 => Ok(true),
            2 => Ok(false),
            _ => Err(UnknownCohort),
        }
    }
}

fn others() -> Others {
    Others(HashMap::from([
        (10, Dependency::Off),
        (11, Dependency::On(None)),
        (12, Dependency::On(Some("blue"))),
        (13, Dependency::Failed),
    ]))
}

fn run<'d>(flag: &'d Definition, subject: &Subject<'_>) -> Result<Verdict<'d>, Failure> {
    evaluate(flag, subject, Surroundings { flags: &others(), cohorts: &TwoCohorts })
}

/// (enabled, variant, reason, condition)
type Short = (bool, Option<&'static str>, Reason, Option<usize>);

fn check(filters: &Value, subject: &Subject<'_>, expected: Short) {
    let flag = flag(filters);
    let verdict = run(&flag, subject).expect("a verdict");
    let actual = (verdict.enabled, verdict.variant, verdict.reason, verdict.condition_index);
    assert_eq!(actual, expected, "{filters}");
}

fn is(key: &str, value: &Value) -> Value {
    json!({"key": key, "value": value, "type": "person"})
}

fn depends(id: i64, value: &Value) -> Value {
    json!({"key": id.to_string(), "value": value, "type": "flag", "operator": "flag_evaluates_to"})
}

#[test]
fn the_first_condition_that_matches_wins() {
    let person = object(json!({"plan": "pro"}));
    let mut subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    subject.stored = Some(&person);
    let (pro, free) = (is("plan", &json!("pro")), is("plan", &json!("free")));
    let matched = |index| (true, None, Reason::ConditionMatch, Some(index));
    for (groups, expected) in [
        (json!([{}]), matched(0)),
        (json!([{"properties": []}]), matched(0)),
        (json!([{"properties": [pro]}]), matched(0)),
        (json!([{"properties": [free]}, {"properties": [pro]}, {}]), matched(1)),
        (json!([{"properties": [pro, free]}]), (false, None, Reason::NoConditionMatch, Some(0))),
        (json!([]), (false, None, Reason::NoConditionMatch, None)),
        // 0.7265 in the rollout.
        (json!([{"rollout_percentage": 72}]), (false, None, Reason::OutOfRolloutBound, Some(0))),
        (json!([{"rollout_percentage": 73}]), matched(0)),
        (json!([{"rollout_percentage": 72.65}]), matched(0)),
        (json!([{"rollout_percentage": 0}]), (false, None, Reason::OutOfRolloutBound, Some(0))),
        (json!([{"rollout_percentage": 100}]), matched(0)),
        (json!([{"rollout_percentage": null}]), matched(0)),
        // The strongest reason, and the last of equal ones.
        (
            json!([{"rollout_percentage": 0}, {"properties": [free]}]),
            (false, None, Reason::OutOfRolloutBound, Some(0)),
        ),
        (
            json!([{"properties": [free]}, {"rollout_percentage": 0}, {"rollout_percentage": 1}]),
            (false, None, Reason::OutOfRolloutBound, Some(2)),
        ),
        (
            json!([{"properties": [free]}, {"properties": [free]}]),
            (false, None, Reason::NoConditionMatch, Some(1)),
        ),
        (
            json!([{"aggregation_group_type_index": 0}, {"properties": [free]}]),
            (false, None, Reason::NoConditionMatch, Some(1)),
        ),
        (
            json!([{"properties": [free]}, {"aggregation_group_type_index": 0}]),
            (false, None, Reason::NoConditionMatch, Some(0)),
        ),
        (json!([{"aggregation_group_type_index": 0}]), (false, None, Reason::NoGroupType, Some(0))),
        // An undecided filter is a mismatch.
        (
            json!([{"properties": [{"key": "plan", "operator": "gt", "value": 1}]}]),
            (false, None, Reason::NoConditionMatch, Some(0)),
        ),
        (
            json!([{"properties": [{"key": "plan", "type": "event", "value": "pro"}]}]),
            (false, None, Reason::NoConditionMatch, Some(0)),
        ),
    ] {
        check(&json!({"groups": groups}), &subject, expected);
    }
}

#[test]
fn early_exit_stops_at_a_rollout() {
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    let groups = json!([{"rollout_percentage": 1}, {}]);
    check(&json!({"groups": groups}), &subject, (true, None, Reason::ConditionMatch, Some(1)));
    check(
        &json!({"groups": groups, "early_exit": true}),
        &subject,
        (false, None, Reason::OutOfRolloutBound, Some(0)),
    );
}

#[test]
fn variants_are_pinned_or_hashed() {
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    let multivariate = json!({"variants": [
        {"key": "a", "rollout_percentage": 14.5},
        {"key": "b", "rollout_percentage": 0.1},
        {"key": "c", "rollout_percentage": 85.4},
    ]});
    let matched = |variant| (true, variant, Reason::ConditionMatch, Some(0));
    for (condition, expected) in [
        // 0.1458 is beyond the 0.145 of the first and within the 0.146 of the second.
        (json!({}), matched(Some("b"))),
        (json!({"variant": "c"}), matched(Some("c"))),
        (json!({"variant": "unknown"}), matched(Some("b"))),
        (json!({"variant": null}), matched(Some("b"))),
    ] {
        check(&json!({"groups": [condition], "multivariate": multivariate}), &subject, expected);
    }
    // Declared order counts, also for overrides: the first match wins.
    check(
        &json!({"groups": [{}, {"variant": "c"}], "multivariate": multivariate}),
        &subject,
        matched(Some("b")),
    );
    // The shares end before the hash: on, without a variant.
    check(
        &json!({
            "groups": [{}],
            "multivariate": {"variants": [{"key": "a", "rollout_percentage": 10}]},
        }),
        &subject,
        matched(None),
    );
}

#[test]
fn early_access_comes_first() {
    let base = json!({
        "feature_enrollment": true,
        "holdout": {"id": 3, "exclusion_percentage": 100},
        "groups": [{}],
    });
    for (value, enabled) in [
        (json!(true), true),
        (json!("true"), true),
        (json!(false), false),
        (json!("false"), false),
        (json!(null), false),
        (json!(1), false),
    ] {
        let person = object(json!({"$feature_enrollment/beta-feature": value}));
        let mut subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
        subject.supplied = Some(&person);
        check(&base, &subject, (enabled, None, Reason::SuperConditionValue, Some(0)));
        let mut legacy = base.clone();
        legacy["feature_enrollment"] = json!(null);
        legacy["super_groups"] = json!([{"properties": [], "rollout_percentage": 100}]);
        check(&legacy, &subject, (enabled, None, Reason::SuperConditionValue, Some(0)));
    }
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    let held_out = (true, Some("holdout-3"), Reason::HoldoutConditionValue, None);
    check(&base, &subject, held_out);
}

#[test]
fn holdouts_keep_a_share_of_people_out() {
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    let held_out = (true, Some("holdout-3"), Reason::HoldoutConditionValue, None);
    let matched = (true, None, Reason::ConditionMatch, Some(0));
    // user-1 is at 0.1781.
    for (percentage, expected) in
        [(0.0, matched), (17.8, matched), (17.9, held_out), (100.0, held_out)]
    {
        let holdout = json!({"id": 3, "exclusion_percentage": percentage});
        check(&json!({"groups": [{}], "holdout": holdout}), &subject, expected);
        let legacy = json!([{"rollout_percentage": percentage, "variant": "holdout-3"}]);
        check(&json!({"groups": [{}], "holdout_groups": legacy}), &subject, expected);
    }
}

#[test]
fn payloads_belong_to_the_value() {
    let filters = json!({
        "groups": [
            {"properties": [is("plan", &json!("a"))], "variant": "a"},
            {"properties": [is("plan", &json!("b"))], "variant": "b"},
            {"properties": [is("plan", &json!("open"))], "rollout_percentage": 0},
        ],
        "feature_enrollment": true,
        "holdout": {"id": 3, "exclusion_percentage": 0},
        "multivariate": {"variants": [
            {"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50},
        ]},
        "payloads": {"a": "{\"for\": \"a\"}", "true": "\"on\""},
    });
    let flag = flag(&filters);
    for (person, expected) in [
        (json!({"plan": "a"}), Some(json!("{\"for\": \"a\"}"))),
        (json!({"plan": "b"}), None),
        (json!({"plan": "open"}), None),
        (json!({"plan": "none"}), None),
        (json!({"$feature_enrollment/beta-feature": true}), Some(json!("\"on\""))),
        (json!({"$feature_enrollment/beta-feature": false}), Some(json!("\"on\""))),
    ] {
        let person = object(person);
        let mut subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
        subject.stored = Some(&person);
        let verdict = run(&flag, &subject).expect("a verdict");
        assert_eq!(verdict.payload, expected.as_ref(), "{person:?}");
    }
}

#[test]
fn groups_are_hashed_and_matched_by_themselves() {
    let types = GroupTypes::new([(0, "organization"), (1, "project")]);
    let keys = object(json!({"organization": "user-1", "project": "p"}));
    let supplied = object(json!({"project": {"size": 5}}));
    let stored = object(json!({"tier": "gold"}));
    let person = object(json!({"tier": "none"}));
    let mut subject = Subject::new("someone", Now::utc(UnixMicros(0)));
    subject.stored = Some(&person);
    subject.add_groups(&types, Some(&keys), Some(&supplied));
    subject.store_group(0, &stored);
    let gold = json!({"key": "tier", "value": "gold", "type": "group", "group_type_index": 0});
    let inherited = json!({"key": "tier", "value": "gold", "type": "group"});
    let size = json!({"key": "size", "value": 5, "type": "group", "group_type_index": 1});
    let key =
        json!({"key": "$group_key", "value": "user-1", "type": "group", "group_type_index": 0});
    let unknown = json!({
        "key": "x", "operator": "is_not_set", "type": "group", "group_type_index": 4,
    });
    let matched = (true, None, Reason::ConditionMatch, Some(0));
    let not = (false, None, Reason::NoConditionMatch, Some(0));
    for (filters, expected) in [
        // The key of the organization is hashed, not the person: 0.7265.
        (json!({"groups": [{"rollout_percentage": 73}]}), matched),
        (
            json!({"groups": [{"rollout_percentage": 72}]}),
            (false, None, Reason::OutOfRolloutBound, Some(0)),
        ),
        (json!({"groups": [{"properties": [gold]}]}), matched),
        (json!({"groups": [{"properties": [inherited]}]}), matched),
        (json!({"groups": [{"properties": [size, key]}]}), matched),
        (json!({"groups": [{"properties": [unknown]}]}), matched),
        (json!({"groups": [{"properties": [is("tier", &json!("gold"))]}]}), not),
        (json!({"groups": [{"properties": [is("tier", &json!("none"))]}]}), matched),
    ] {
        let mut filters = filters;
        filters["aggregation_group_type_index"] = json!(0);
        check(&filters, &subject, expected);
    }
    // A condition for persons may filter on a group, and must name it.
    check(&json!({"groups": [{"properties": [gold]}]}), &subject, matched);
    check(&json!({"groups": [{"properties": [inherited]}]}), &subject, not);
    // Without a usable key there is nothing to hash; a rollout of 100 percent does not help.
    let keys = object(json!({"organization": ""}));
    let mut subject = Subject::new("someone", Now::utc(UnixMicros(0)));
    subject.add_groups(&types, Some(&keys), None);
    check(
        &json!({"groups": [{}], "aggregation_group_type_index": 0}),
        &subject,
        (false, None, Reason::NoGroupType, Some(0)),
    );
    check(
        &json!({"groups": [{}, {"aggregation_group_type_index": null}],
                "aggregation_group_type_index": 0}),
        &subject,
        (true, None, Reason::ConditionMatch, Some(1)),
    );
}

#[test]
fn continuity_keeps_the_identifier_from_before_the_login() {
    let filters = json!({"groups": [{"rollout_percentage": 73}]});
    let kept = HashMap::from([("beta-feature".to_owned(), "user-1".to_owned())]);
    // user-16 is outside, user-1 inside.
    let inside = |flag: &Definition, anon, hash_keys| {
        let mut subject = Subject::new("user-16", Now::utc(UnixMicros(0)));
        subject.anon_distinct_id = anon;
        subject.hash_keys = hash_keys;
        run(flag, &subject).map(|verdict| verdict.enabled)
    };
    let without = flag(&filters);
    let with = Definition::parse(&Stored { continuity: true, ..stored(&filters) });
    let with = with.expect("readable");
    assert!(crate::bucket::rollout("beta-feature", "user-16") > 0.73);
    for (flag, anon, hash_keys, expected) in [
        (&with, None, HashKeys::None, Ok(false)),
        (&with, Some("user-1"), HashKeys::None, Ok(true)),
        (&with, Some("user-16"), HashKeys::Kept(&kept), Ok(true)),
        (&with, None, HashKeys::Kept(&kept), Ok(true)),
        (&with, None, HashKeys::Failed, Err(Failure::HashKeys)),
        (&without, Some("user-1"), HashKeys::Kept(&kept), Ok(false)),
        (&without, None, HashKeys::Failed, Ok(false)),
    ] {
        assert_eq!(inside(flag, anon, hash_keys), expected, "{anon:?} {hash_keys:?}");
    }
    // Groups never use it.
    let filters =
        json!({"groups": [{"rollout_percentage": 73}], "aggregation_group_type_index": 0});
    let of_group = Definition::parse(&Stored { continuity: true, ..stored(&filters) });
    let keys = object(json!({"organization": "user-16"}));
    let mut subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    subject.hash_keys = HashKeys::Kept(&kept);
    subject.add_groups(&GroupTypes::new([(0, "organization")]), Some(&keys), None);
    let of_group = of_group.expect("readable");
    assert_eq!(run(&of_group, &subject).map(|verdict| verdict.enabled), Ok(false));
}

#[test]
fn device_bucketing_needs_a_device_only_for_a_hash() {
    let multivariate = json!({"variants": [{"key": "a", "rollout_percentage": 100}]});
    let out = (false, None, Reason::OutOfRolloutBound, Some(0));
    let matched = (true, None, Reason::ConditionMatch, Some(0));
    for (filters, device_id, expected) in [
        (json!({"groups": [{"rollout_percentage": 73}]}), Some("user-1"), matched),
        (json!({"groups": [{"rollout_percentage": 72}]}), Some("user-1"), out),
        (json!({"groups": [{"rollout_percentage": 99}]}), None, out),
        (json!({"groups": [{"rollout_percentage": 99}]}), Some(""), out),
        (json!({"groups": [{"rollout_percentage": 100}]}), None, matched),
        (json!({"groups": [{}], "multivariate": multivariate}), None, out),
        (
            json!({"groups": [{"variant": "a"}], "multivariate": multivariate}),
            None,
            (true, Some("a"), Reason::ConditionMatch, Some(0)),
        ),
    ] {
        let flag = Definition::parse(&Stored { bucketing: Some("device_id"), ..stored(&filters) });
        let flag = flag.expect("readable");
        let mut subject = Subject::new("someone", Now::utc(UnixMicros(0)));
        subject.device_id = device_id;
        let verdict = run(&flag, &subject).expect("a verdict");
        let actual = (verdict.enabled, verdict.variant, verdict.reason, verdict.condition_index);
        assert_eq!(actual, expected, "{filters} {device_id:?}");
    }
}

#[test]
fn an_empty_identifier_is_inside_every_rollout() {
    let subject = Subject::new("", Now::utc(UnixMicros(0)));
    check(
        &json!({
            "groups": [{"rollout_percentage": 0}],
            "multivariate": {"variants": [
                {"key": "a", "rollout_percentage": 1}, {"key": "b", "rollout_percentage": 99},
            ]},
        }),
        &subject,
        (true, Some("a"), Reason::ConditionMatch, Some(0)),
    );
}

#[test]
fn an_inactive_flag_is_off() {
    let filters = json!({"groups": [{}]});
    let flag = Definition::parse(&Stored { active: false, ..stored(&filters) }).expect("readable");
    let verdict = run(&flag, &Subject::new("user-1", Now::utc(UnixMicros(0)))).expect("a verdict");
    assert_eq!(verdict, Verdict::off(Reason::FlagDisabled, None));
}

#[test]
fn other_flags_are_compared_by_value() {
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    for (id, value, expected) in [
        (10, json!(false), true),
        (10, json!(true), false),
        (11, json!(true), true),
        (11, json!(false), false),
        (11, json!("blue"), false),
        (12, json!(true), true),
        (12, json!("blue"), true),
        (12, json!("Blue"), false),
        (12, json!("red"), false),
        (12, json!(1), false),
        (13, json!(1), false),
    ] {
        let flag_filters = json!({"groups": [{"properties": [depends(id, &value)]}]});
        let flag = flag(&flag_filters);
        let enabled = run(&flag, &subject).expect("a verdict").enabled;
        assert_eq!(enabled, expected, "{flag_filters}");
    }
    let missing = json!({"groups": [{}, {"properties": [depends(99, &json!(true))]}]});
    check(&missing, &subject, (false, None, Reason::MissingDependency, None));
}

#[test]
fn a_failed_flag_fails_those_whose_answer_it_could_change() {
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    let failed = depends(13, &json!(true));
    let never = is("plan", &json!("x"));
    for (filters, expected) in [
        (json!({"groups": [{"properties": [failed]}]}), Err(Failure::Dependency(13))),
        (json!({"groups": [{"properties": [failed]}, {}]}), Ok(true)),
        (json!({"groups": [{}, {"properties": [failed]}]}), Ok(true)),
        (json!({"groups": [{"properties": [failed, never]}]}), Ok(false)),
        (json!({"groups": [{"properties": [failed], "rollout_percentage": 1}]}), Ok(false)),
        (
            json!({
                "groups": [{"properties": [failed], "variant": "a"}, {"variant": "b"}],
                "multivariate": {"variants": [
                    {"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50},
                ]},
            }),
            Err(Failure::Dependency(13)),
        ),
        (
            json!({
                "early_exit": true,
                "groups": [{"properties": [failed], "rollout_percentage": 1}, {}],
            }),
            Err(Failure::Dependency(13)),
        ),
    ] {
        let flag = flag(&filters);
        assert_eq!(run(&flag, &subject).map(|verdict| verdict.enabled), expected, "{filters}");
    }
}

#[test]
fn cohorts_are_read_when_all_else_matches() {
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    let cohort =
        |id, operator| json!({"key": "id", "type": "cohort", "value": id, "operator": operator});
    let never = is("plan", &json!("x"));
    for (groups, expected, without) in [
        (json!([{"properties": [cohort(1, "in")]}]), Ok(true), Err(Failure::Cohort(1))),
        (json!([{"properties": [cohort(2, "in")]}]), Ok(false), Err(Failure::Cohort(2))),
        (json!([{"properties": [cohort(2, "not_in")]}]), Ok(true), Err(Failure::Cohort(2))),
        (json!([{"properties": [cohort(1, "exact")]}]), Ok(true), Err(Failure::Cohort(1))),
        // "Any other operator defaults to false".
        (json!([{"properties": [cohort(1, "is_not")]}]), Ok(false), Err(Failure::Cohort(1))),
        (json!([{"properties": [cohort(2, "is_not")]}]), Ok(false), Err(Failure::Cohort(2))),
        (
            json!([{"properties": [cohort(3, "in")]}]),
            Err(Failure::Cohort(3)),
            Err(Failure::Cohort(3)),
        ),
        // Decided before the cohort is read.
        (json!([{"properties": [cohort(3, "in"), never]}]), Ok(false), Ok(false)),
        (json!([{}, {"properties": [cohort(3, "in")]}]), Ok(true), Ok(true)),
    ] {
        let filters = json!({"groups": groups});
        let flag = flag(&filters);
        assert_eq!(run(&flag, &subject).map(|verdict| verdict.enabled), expected, "{filters}");
        let nothing = CohortSet::default();
        let cohorts = Memberships::new(&nothing, &|| None);
        let surroundings = Surroundings { flags: &others(), cohorts: &cohorts };
        let verdict = evaluate(&flag, &subject, surroundings);
        assert_eq!(verdict.map(|verdict| verdict.enabled), without, "{filters}");
    }
}

#[test]
fn person_metadata_is_the_row_of_the_person() {
    let person = object(json!({"created_at": "1999-01-01"}));
    let mut subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    subject.stored = Some(&person);
    // 2026-01-01T00:00:00Z.
    subject.created_at = Some(UnixMicros(1_767_225_600_000_000));
    let filter = json!({
        "key": "created_at", "operator": "is_date_after", "value": "2025-01-01",
        "type": "person_metadata",
    });
    check(
        &json!({"groups": [{"properties": [filter]}]}),
        &subject,
        (true, None, Reason::ConditionMatch, Some(0)),
    );
}

#[test]
fn reasons_have_the_documented_rank_codes_and_texts() {
    let ranked = [
        (Reason::SuperConditionValue, "super_condition_value", "Super condition value"),
        (Reason::HoldoutConditionValue, "holdout_condition_value", "Holdout condition value"),
        (Reason::ConditionMatch, "condition_match", "Matched condition set 3"),
        (Reason::OutOfRolloutBound, "out_of_rollout_bound", "Out of rollout bound"),
        (Reason::NoConditionMatch, "no_condition_match", "No matching condition set"),
        (Reason::NoGroupType, "no_group_type", "No group type"),
        (Reason::FlagDisabled, "flag_disabled", "Feature flag is disabled"),
        (
            Reason::MissingDependency,
            "missing_dependency",
            "Flag cannot be evaluated due to missing dependency",
        ),
    ];
    assert!(ranked.is_sorted_by(|left, right| left.0 > right.0));
    for (reason, code, description) in ranked {
        assert_eq!(reason.code(), code);
        assert_eq!(Verdict::off(reason, Some(2)).description(), description);
    }
}
