//! Forms of flags and cohorts send what is stored, if the user changes nothing.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::insight::tests::sent;
use crate::pages::flag_form::Known;
use crate::pages::{cohort_form, flag_form, flags};
use crate::state::cohort;
use crate::state::flag::Draft;
use crate::state::parameters::Parameters;
use weir_api::activity::{Author, Detail, Entry};
use weir_api::cohorts::Cohort;
use weir_api::flags::{ConditionTrace, Flag, FlagValue, PropertyTrace, TestedEvaluation};
use weir_api::groups::Type;

const HOSTILE: &str = "\"></textarea><script>alert(1)</script>&amp;";

fn known() -> Known {
    Known {
        groups: vec![Type {
            group_type: HOSTILE.to_owned(),
            group_type_index: 2,
            name_singular: None,
            name_plural: None,
        }],
        cohorts: vec![Cohort { id: 7, name: HOSTILE.to_owned(), ..Cohort::default() }],
        properties: vec![HOSTILE.to_owned()],
        events: vec![HOSTILE.to_owned()],
        problem: Some(HOSTILE.to_owned()),
        reach: vec![Ok((1, 2)), Err(HOSTILE.to_owned())],
        tried: HOSTILE.to_owned(),
        trial: Some(Ok(trial())),
    }
}

fn trial() -> TestedEvaluation {
    let property = PropertyTrace {
        key: HOSTILE.into(),
        value: HOSTILE.into(),
        r#type: HOSTILE.to_owned(),
        actual_value: HOSTILE.into(),
        ..PropertyTrace::default()
    };
    let condition = ConditionTrace {
        index: 0,
        properties: vec![property],
        rollout_percentage: 100.0,
        variant: Some(HOSTILE.to_owned()),
        matched: true,
        properties_matched: true,
        rollout_excluded: false,
        explanation: HOSTILE.to_owned(),
    };
    TestedEvaluation {
        condition_index: Some(0),
        conditions: vec![condition],
        evaluation_distinct_id: HOSTILE.to_owned(),
        flag_key: HOSTILE.to_owned(),
        payload: Value::Null,
        person_properties: None,
        reason: "condition_match".to_owned(),
        reason_description: HOSTILE.to_owned(),
        result: FlagValue::Variant(HOSTILE.to_owned()),
    }
}

#[test]
fn forms_of_flags_send_what_is_stored() {
    let person = |operator: &str, value: Value| json!({"key": HOSTILE, "type": "person", "operator": operator, "value": value});
    let groups = json!([
        {"properties": [person("exact", json!([HOSTILE, "b"])), person("gt", json!(5)), person("is_set", json!("is_set"))],
            "rollout_percentage": 12.5, "variant": null, "sort_key": HOSTILE},
        {"properties": [{"key": "id", "type": "cohort", "value": 7, "operator": "in"}], "rollout_percentage": 100,
            "variant": HOSTILE},
        {"properties": [{"key": "a", "type": "group", "group_type_index": 2, "operator": "exact", "value": [HOSTILE]}],
            "rollout_percentage": null, "variant": null},
        {"properties": [{"key": "9", "type": "flag", "operator": "flag_evaluates_to", "value": false}],
            "rollout_percentage": 1, "variant": null},
        {"properties": [person("semver_gt", json!("1.2"))], "rollout_percentage": 3},
    ]);
    let variants = json!([{"key": "blue", "name": HOSTILE, "rollout_percentage": 40},
        {"key": "red", "name": "", "rollout_percentage": 60}]);
    let filters = json!({"groups": groups, "multivariate": {"variants": variants},
        "payloads": {"blue": "{\"a\": 1}"}, "aggregation_group_type_index": null});
    let flag = Flag {
        key: "k".to_owned(),
        name: HOSTILE.to_owned(),
        active: true,
        filters: filters.clone(),
        ..Flag::default()
    };
    let shown = flag_form::form("/x", "/y", &Draft::of(&flag), &known());
    assert!(!shown.0.contains("<script"), "{}", shown.0);
    let draft = Draft::take(&mut Parameters::of_form(sent(&shown).as_bytes())).unwrap();
    assert_eq!(draft.filters(&filters).unwrap(), filters);
    assert_eq!((draft.name.as_str(), draft.is_active), (HOSTILE, true));
}

#[test]
fn forms_of_cohorts_send_what_is_stored() {
    let leaf =
        |key: &str| json!({"key": key, "type": "person", "operator": "exact", "value": [HOSTILE]});
    let rule = json!({"type": "OR", "values": [{"type": "AND", "values": [leaf("a"), leaf(HOSTILE)]},
        {"type": "AND", "values": [leaf("c")]}]});
    let deed = json!({"type": "OR", "values": [{"type": "behavioral", "key": HOSTILE, "value": "performed_event"}]});
    let did = |value: &str, more: Value| {
        let mut own = json!({"type": "behavioral", "key": HOSTILE, "event_type": "events", "value": value,
            "time_value": 7, "time_interval": "day", "negation": true});
        own.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        own
    };
    let often = json!({"operator": "lte", "operator_value": 3});
    let fields = json!({"type": "OR", "values": [{"type": "AND", "values": [leaf("a"), did("performed_event", json!({})),
        did("performed_event_multiple", often)]}]});
    for rule in [rule, deed, fields] {
        let stored = Cohort {
            name: HOSTILE.to_owned(),
            description: HOSTILE.to_owned(),
            filters: json!({"properties": rule}),
            ..Cohort::default()
        };
        let draft = cohort::Draft::of(&stored);
        let shown = cohort_form::cohort(("/x", "/y"), &draft, &known(), false);
        assert!(!shown.0.contains("<script"), "{}", shown.0);
        let again = cohort::Draft::take(&mut Parameters::of_form(sent(&shown).as_bytes())).unwrap();
        assert_eq!((again.name.as_str(), again.rule().unwrap()), (HOSTILE, rule));
    }
}

#[test]
fn histories_lead_back_to_versions() {
    let entry = |activity: &str, field: &str, before: Value, after: Value| {
        let changes = json!([{"field": field, "before": before, "after": after}]).to_string();
        Entry {
            activity: activity.to_owned(),
            created_at: String::new(),
            detail: Detail {
                changes: Some(RawValue::from_string(changes).unwrap()),
                id: None,
                merge: (),
                name: None,
                short_id: (),
                trigger: None,
                r#type: (),
            },
            id: String::new(),
            item_id: None,
            scope: "FeatureFlag".to_owned(),
            user: Author {
                email: Some(HOSTILE.to_owned()),
                first_name: HOSTILE.to_owned(),
                id: None,
                is_system: None,
                uuid: None,
            },
        }
    };
    let groups = |part: i64| json!({"groups": [{"properties": [], "rollout_percentage": part}]});
    let entries = [
        entry("updated", "filters", groups(5), groups(10)),
        entry("updated", "role_access", json!(null), json!(HOSTILE)),
        entry("updated", "name", json!(HOSTILE), json!("b")),
        entry("created", "", json!(null), json!(null)),
    ];
    let flag = Flag { id: 3, version: 3, ..Flag::default() };
    let shown = flags::activity(1, chrono_tz::Tz::UTC, (&flag, true), &entries).0;
    let versions: Vec<&str> = shown
        .split("name=\"version\" value=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert_eq!(versions, ["2", "1"], "{shown}");
    assert!(
        shown.contains("<b>5 %</b>") && shown.contains("<b>10 %</b>") && !shown.contains("<script"),
        "{shown}"
    );
    let read_only = flags::activity(1, chrono_tz::Tz::UTC, (&flag, false), &entries).0;
    assert!(!read_only.contains("<form"), "{read_only}");
}
