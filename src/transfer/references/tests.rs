//! References in the forms that PostHog's clients write.

use serde_json::{Value, json};

use super::{Reference, found, rewrite};
use crate::state::{Ids, Kind};

/// Cohort n is n + 100, action n is n + 200, flag n is n + 300, of those from 1 to 9; the types of groups are swapped.
fn ids() -> Ids {
    let mut ids = Ids::default();
    for (kind, base) in [(Kind::Cohort, 100), (Kind::Action, 200), (Kind::Flag, 300)] {
        (1..10).for_each(|id: i64| ids.insert(kind, id.to_string(), (id + base).to_string()));
    }
    ids.insert(Kind::GroupType, "0", "1");
    ids.insert(Kind::GroupType, "1", "0");
    ids.insert(Kind::ShortInsight, "abc", "xyz");
    ids
}

#[test]
fn references_are_rewritten_wherever_they_are() {
    for (before, after) in [
        (
            json!({"groups": [{"properties": [{"key": "id", "type": "cohort", "value": 7, "operator": "in"}]}]}),
            json!({"groups": [{"properties": [{"key": "id", "type": "cohort", "value": 107, "operator": "in"}]}]}),
        ),
        (
            json!({"key": "id", "type": "cohort", "value": [1, "2"]}),
            json!({"key": "id", "type": "cohort", "value": [101, "102"]}),
        ),
        (
            json!({"type": "flag", "key": "3", "operator": "flag_evaluates_to", "value": true}),
            json!({"type": "flag", "key": "303", "operator": "flag_evaluates_to", "value": true}),
        ),
        (
            json!({"type": "flag", "key": "$feature/beta", "value": "3"}),
            json!({"type": "flag", "key": "$feature/beta", "value": "3"}),
        ),
        (
            json!({"kind": "TrendsQuery", "series": [{"kind": "ActionsNode", "id": 4}, {"kind": "EventsNode", "event": "4"}],
                "breakdownFilter": {"breakdown_type": "cohort", "breakdown": ["all", 5, 0]}}),
            json!({"kind": "TrendsQuery", "series": [{"kind": "ActionsNode", "id": 204}, {"kind": "EventsNode", "event": "4"}],
                "breakdownFilter": {"breakdown_type": "cohort", "breakdown": ["all", 105, 0]}}),
        ),
        (
            json!({"breakdowns": [{"type": "cohort", "property": 1}, {"type": "person", "property": "1"}]}),
            json!({"breakdowns": [{"type": "cohort", "property": 101}, {"type": "person", "property": "1"}]}),
        ),
        (
            json!({"retentionFilter": {"targetEntity": {"type": "actions", "id": "6"}, "returningEntity": {"type": "events", "id": "6"}}}),
            json!({"retentionFilter": {"targetEntity": {"type": "actions", "id": "206"}, "returningEntity": {"type": "events", "id": "6"}}}),
        ),
        (
            json!({"type": "actions", "kind": "ActionsNode", "id": 2}),
            json!({"type": "actions", "kind": "ActionsNode", "id": 202}),
        ),
        (
            json!({"type": "behavioral", "event_type": "actions", "key": 8, "seq_event_type": "actions", "seq_event": 9}),
            json!({"type": "behavioral", "event_type": "actions", "key": 208, "seq_event_type": "actions", "seq_event": 209}),
        ),
        (
            json!({"type": "behavioral", "event_type": "events", "key": "8"}),
            json!({"type": "behavioral", "event_type": "events", "key": "8"}),
        ),
        (
            json!({"kind": "EventsQuery", "actionId": 3, "select": ["person_id IN COHORT 3"], "where": ["x in cohort 4"]}),
            json!({"kind": "EventsQuery", "actionId": 203, "select": ["person_id IN COHORT 103"], "where": ["x in cohort 104"]}),
        ),
        (
            json!({"aggregation_group_type_index": 0, "math_group_type_index": 1, "group_type_index": null}),
            json!({"aggregation_group_type_index": 1, "math_group_type_index": 0, "group_type_index": null}),
        ),
        (
            json!({"kind": "SavedInsightNode", "shortId": "abc"}),
            json!({"kind": "SavedInsightNode", "shortId": "xyz"}),
        ),
    ] {
        let mut value = before.clone();
        assert_eq!(rewrite(&mut value, &ids()), [], "{before}");
        assert_eq!(value, after);
    }
}

#[test]
fn cohorts_in_sql_are_numbers_after_the_word() {
    for (before, after) in [
        ("select 1 where person_id in cohort 7", "select 1 where person_id in cohort 107"),
        ("... IN COHORT\n  7 AND x = 7", "... IN COHORT\n  107 AND x = 7"),
        ("IN COHORT 'cohort 7'", "IN COHORT 'cohort 7'"),
        ("'it\\'s cohort 7' IN COHORT 7", "'it\\'s cohort 7' IN COHORT 107"),
        ("'it''s cohort 7' or \"cohort\" 7", "'it''s cohort 7' or \"cohort\" 7"),
        ("-- in cohort 7\nin cohort 7", "-- in cohort 7\nin cohort 107"),
        (
            "/* cohort 7 */ cohort7 my_cohort 7 cohort 7a",
            "/* cohort 7 */ cohort7 my_cohort 7 cohort 7a",
        ),
        ("é in cohort 7 'ü", "é in cohort 107 'ü"),
    ] {
        let mut value = json!({"kind": "HogQLQuery", "query": before});
        assert_eq!(rewrite(&mut value, &ids()), [], "{before}");
        assert_eq!(value["query"], after);
    }
}

#[test]
fn what_the_target_lacks_is_named() {
    let value = json!([
        {"type": "cohort", "key": "id", "value": [77, 1, 77]},
        {"kind": "ActionsNode", "id": 88},
        {"kind": "HogQLQuery", "query": "x in cohort 99"},
        {"type": "event", "key": "x in cohort 99"},
        {"group_type_index": 4},
        {"group_type_index": null},
    ]);
    let named = |kind, id: &str| Reference { kind, id: id.to_owned() };
    let missing = rewrite(&mut value.clone(), &ids());
    assert_eq!(
        missing,
        [
            named(Kind::Cohort, "77"),
            named(Kind::Cohort, "99"),
            named(Kind::Action, "88"),
            named(Kind::GroupType, "4"),
        ]
    );
    assert_eq!(found(&value).len(), 5);
    let mut deep = Value::Null;
    (0..100_000).for_each(|_| deep = Value::Array(vec![std::mem::take(&mut deep)]));
    assert_eq!(rewrite(&mut deep, &ids()), []);
    // Dropping such a value by itself recurses as deep as it is.
    while let Value::Array(mut items) = deep {
        deep = items.pop().unwrap_or_default();
    }
}
