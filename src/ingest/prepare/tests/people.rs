//! Effects of events on persons and groups.

use super::*;
use crate::warnings::Kind;
use weir_event::json::restore;
use weir_identity::auto_set::AutoSet;
use weir_identity::change::{Force, GroupChange, Occasion, Update};

/// The ops, each with its distinct id, in short.
pub(super) fn ops(prepared: &Prepared) -> Vec<String> {
    let said = |update: &Update| {
        let (mut set, mut set_once) = (update.set.clone(), update.set_once.clone());
        for (key, initial, value) in update.auto_set.iter().flatten().flat_map(AutoSet::read) {
            set.extend(key.map(|key| (key.to_owned(), value.clone())));
            set_once.extend(initial.map(|key| (key.to_owned(), value)));
        }
        format!("{} {} {:?}", Json::Object(set), Json::Object(set_once), update.unset)
    };
    let short = |kind: &OpKind| match kind {
        OpKind::Touch => "touch".to_owned(),
        OpKind::Personless => "personless".to_owned(),
        OpKind::Update(update) => format!("update {}", said(update)),
        OpKind::UpdateExisting(update) => format!("update if known {}", said(update)),
        OpKind::Split { person, keep } => format!("split {person} {keep:?}"),
        OpKind::Change { person, update } => format!("change {person} {}", said(update)),
        OpKind::Delete { person, .. } => format!("delete {person}"),
        OpKind::ChangeGroup(GroupChange { group_type, key, set, .. }) => {
            format!("change group {group_type} {key} {}", Json::Object(set.clone()))
        }
        OpKind::Merge { other, force: Force::No, .. } => format!("merge {other}"),
        OpKind::Merge { other, force: Force::Yes, .. } => format!("merge {other} by force"),
        OpKind::GroupUpdate { group_type, key, set } => {
            format!("group {group_type} {key} {}", Json::Object(set.clone()))
        }
        OpKind::GroupTypes(types) => format!("types {types:?}"),
        OpKind::DeleteProject => "delete project".to_owned(),
    };
    prepared.ops.iter().map(|op| format!("{}: {}", op.distinct_id, short(&op.kind))).collect()
}

pub(super) fn batch(events: &[&str]) -> Prepared {
    prepare(format!(r#"{{"api_key":"phc_a","batch":[{}]}}"#, events.join(",")))
}

#[test]
fn changes_at_the_top_win_over_those_in_the_properties() {
    for (members, properties, expected) in [
        (
            r#""$set":{"a":1},"$set_once":{"b":2},"$unset":["c"],"properties":{}"#,
            r#"{"$set":{"a":1},"$set_once":{"b":2},"$unset":["c"]}"#,
            r#"u: update {"a":1} {"b":2} ["c"]"#,
        ),
        (
            r#""$set":{"a":1,"b":1},"properties":{"x":0,"$set":{"b":2,"c":2},"y":0}"#,
            r#"{"x":0,"y":0,"$set":{"a":1,"b":1,"c":2}}"#,
            r#"u: update {"a":1,"b":1,"c":2} {} []"#,
        ),
        (
            r#""properties":{"$set":{"b":2},"$set_once":{"c":3},"$unset":{"d":0}}"#,
            r#"{"$set":{"b":2},"$set_once":{"c":3},"$unset":{"d":0}}"#,
            r#"u: update {"b":2} {"c":3} ["d"]"#,
        ),
        (
            r#""$unset":["a"],"properties":{"$unset":["b"]}"#,
            r#"{"$unset":["b","a"]}"#,
            r#"u: update {} {} ["b", "a"]"#,
        ),
        // A value at the top level that is not an object does not hide the one in the properties.
        (
            r#""$set":null,"$set_once":7,"$unset":"x","properties":{"$set":{"b":2}}"#,
            r#"{"$set":{"b":2}}"#,
            r#"u: update {"b":2} {} []"#,
        ),
        (
            r#""$set":{"a":1},"properties":{"$set":["b"]}"#,
            r#"{"$set":{"a":1}}"#,
            r#"u: update {"a":1} {} []"#,
        ),
        (r#""$set":null"#, "{}", "u: touch"),
    ] {
        let prepared = one(&format!(r#""event":"e","distinct_id":"u",{members}"#));
        let stored: Json = serde_json::from_str(&text(&prepared, 0, "properties")).unwrap();
        assert_eq!(stored, serde_json::from_str::<Json>(properties).unwrap(), "{members}");
        assert_eq!(ops(&prepared), [expected], "{members}");
    }
}

#[test]
fn the_occasion_is_that_of_the_event() {
    for (name, expected) in [
        ("$set", Occasion::PersonEvent),
        ("$identify", Occasion::PersonEvent),
        ("$create_alias", Occasion::PersonEvent),
        ("$merge_dangerously", Occasion::PersonEvent),
        ("$pageview", Occasion::OtherEvent),
        ("$exception", Occasion::Creation),
        ("$$heatmap", Occasion::Creation),
    ] {
        let prepared = one(&format!(r#""event":"{name}","distinct_id":"u","$set":{{"a":1}}"#));
        let OpKind::Update(update) = &prepared.ops[0].kind else { panic!("{:?}", prepared.ops) };
        assert_eq!(update.occasion, expected, "{name}");
    }
}

#[test]
fn merges_name_both_ids() {
    for (event, properties, expected) in [
        ("$identify", r#"{"$anon_distinct_id":"a"}"#, "u: merge a"),
        ("$identify", r#"{"$anon_distinct_id":"a","$set":{"x":1}}"#, "u: merge a"),
        ("$identify", r#"{"alias":"a"}"#, "u: touch"),
        ("$identify", "{}", "u: touch"),
        ("$identify", r#"{"$anon_distinct_id":null}"#, "u: touch"),
        // A number is an id without its quotes; PostHog drops the event.
        ("$identify", r#"{"$anon_distinct_id":23}"#, "u: merge 23"),
        // A value that was never an id merges nothing; PostHog drops the event.
        ("$identify", r#"{"$anon_distinct_id":["a"]}"#, "u: touch"),
        ("$create_alias", r#"{"alias":{"a":1}}"#, "u: touch"),
        ("$create_alias", r#"{"alias":true}"#, "u: touch"),
        ("$create_alias", r#"{"alias":"a"}"#, "u: merge a"),
        ("$create_alias", r#"{"alias":""}"#, "u: touch"),
        ("$create_alias", r#"{"$anon_distinct_id":"a"}"#, "u: touch"),
        ("$merge_dangerously", r#"{"alias":"a"}"#, "u: merge a by force"),
        ("other", r#"{"alias":"a","$anon_distinct_id":"a"}"#, "u: touch"),
    ] {
        let prepared =
            one(&format!(r#""event":"{event}","distinct_id":"u","properties":{properties}"#));
        assert_eq!(ops(&prepared), [expected], "{event} {properties}");
        assert_eq!(prepared.ops[0].event_id, ids(&prepared)[0]);
        assert_eq!(prepared.ops[0].timestamp, UnixMicros(NOW));
    }
}

#[test]
fn a_person_is_touched_once_and_changed_every_time() {
    let touch = |id: &str| format!(r#"{{"event":"e","distinct_id":"{id}"}}"#);
    let (a, b) = (touch("a"), touch("b"));
    let set_a = r#"{"event":"e","distinct_id":"a","$set":{"a":1}}"#;
    let update = "a: update {\"a\":1} {} []";
    for (events, expected) in [
        (vec![&*a, &*a, &*b, &*a, &*b], vec!["a: touch", "b: touch"]),
        (vec![&*a, set_a, &*a, set_a], vec!["a: touch", update, update]),
        (vec![set_a, &*a], vec![update]),
    ] {
        assert_eq!(ops(&batch(&events)), expected);
    }
}

#[test]
fn personless_events_have_no_person_and_no_groups() {
    let personless = |name: &str, more: &str| {
        let properties = r#""$process_person_profile":false,"$groups":{"company":"c","new":"n"}"#;
        format!(r#"{{"event":"{name}","distinct_id":"u","properties":{{{properties}{more}}}}}"#)
    };
    let plain = personless("e", "");
    let set = personless("e", r#","$set":{"a":1}"#);
    let group = personless("$groupidentify", r#","$group_type":"company","$group_key":"k""#);
    let touch = r#"{"event":"e","distinct_id":"u"}"#;
    let prepared = batch(&[&plain, &set, touch, &group, touch]);
    assert_eq!(ops(&prepared), ["u: personless", "u: touch"]);
    assert_eq!(prepared.rows, 5);
    assert!(prepared.unknown_group_types.is_empty());
    for row in 0..5 {
        assert_eq!(cell(&prepared, row, "group_0"), Json::Null);
    }
    assert_eq!(cell(&prepared, 0, "p_$process_person_profile"), false);
    // The person id is a function of the distinct id in any case.
    assert_eq!(text(&prepared, 0, "person_id"), text(&prepared, 2, "person_id"));
    // Only `false` disables person processing.
    for on in ["true", "\"false\"", "0", "null"] {
        let prepared = with_properties(&format!(r#""$process_person_profile":{on}"#));
        assert_eq!(ops(&prepared), ["u1: touch"], "{on}");
    }
}

#[test]
fn groups_go_to_the_columns_of_their_types() {
    let prepared = with_properties(
        r#""$groups":{"project":"a key of a project","company":5,"new":"x","newer":"y","new":"z"}"#,
    );
    assert_eq!(cell(&prepared, 0, "group_0"), "5");
    assert_eq!(cell(&prepared, 0, "group_1"), "a key of a project");
    assert_eq!(cell(&prepared, 0, "group_2"), Json::Null);
    assert_eq!(prepared.unknown_group_types, ["new", "newer"]);
    let long = "g".repeat(400);
    for (given, expected) in [
        (format!("\"{long}\""), json!(long)),
        (format!("\"{long}g\""), Json::Null),
        ("\"\"".to_owned(), Json::Null),
        ("null".to_owned(), Json::Null),
    ] {
        let prepared = with_properties(&format!(r#""$groups":{{"company":{given}}}"#));
        assert_eq!(cell(&prepared, 0, "group_0"), expected, "{given}");
    }
    for other in ["[\"company\"]", "\"company\"", "null", "7"] {
        let prepared = with_properties(&format!(r#""$groups":{other}"#));
        assert_eq!(cell(&prepared, 0, "group_0"), Json::Null, "{other}");
        assert!(prepared.unknown_group_types.is_empty());
    }
    // A project has five types at most: two are known.
    let types: Vec<String> = (0..9).map(|number| format!(r#""t{number}":"k""#)).collect();
    let prepared = with_properties(&format!(r#""$groups":{{{}}}"#, types.join(",")));
    assert_eq!(prepared.unknown_group_types, ["t0", "t1", "t2"]);
}

/// The identity store gives such a name no number, so it must not get one elsewhere.
#[test]
fn what_cannot_name_a_group_type_gets_no_column() {
    let (long, longer) = ("\u{e9}".repeat(400), "\u{e9}".repeat(401));
    for (name, unknown) in [("", None), (longer.as_str(), None), (long.as_str(), Some(&long))] {
        let groups = format!(r#""$groups":{{"{name}":"k","company":"c"}}"#);
        let in_groups = with_properties(&groups);
        assert_eq!(text(&in_groups, 0, "group_0"), "c");
        let identified = one(&format!(
            r#""event":"$groupidentify","distinct_id":"u","properties":{{"$group_type":"{name}","$group_key":"k"}}"#
        ));
        for prepared in [in_groups, identified] {
            assert_eq!(prepared.unknown_group_types.first(), unknown, "{name}");
            let is_told = ops(&prepared).iter().any(|op| op.contains("group "));
            assert!(!is_told || unknown.is_some(), "{name}");
            let warned = prepared.warnings.counts().any(|(kind, _)| kind == Kind::InvalidGroupType);
            assert_eq!(warned, unknown.is_none(), "{name}");
        }
    }
}

#[test]
fn a_groupidentify_changes_the_group_and_touches_its_person() {
    let identify = |properties: &str| {
        format!(r#"{{"event":"$groupidentify","distinct_id":"u","properties":{{{properties}}}}}"#)
    };
    let types = ": types [\"company\", \"project\"]";
    for (properties, expected) in [
        (
            r#""$group_type":"company","$group_key":"k","$group_set":{"a":1}"#,
            vec![types, "u: touch", "u: group company k {\"a\":1}"],
        ),
        (
            r#""$group_type":"company","$group_key":7,"$group_set":"x""#,
            vec![types, "u: touch", "u: group company 7 {}"],
        ),
        (r#""$group_type":"company""#, vec!["u: touch"]),
        (r#""$group_type":"","$group_key":"k""#, vec!["u: touch"]),
        (r#""$group_type":7,"$group_key":"k""#, vec!["u: touch"]),
        // Keys that change persons have no effect in this event.
        (r#""$group_type":"company","$group_key":"","$set":{"a":1}"#, vec!["u: touch"]),
    ] {
        assert_eq!(ops(&batch(&[&identify(properties)])), expected, "{properties}");
    }
    let new = batch(&[&identify(r#""$group_type":"new","$group_key":"k""#)]);
    assert_eq!(new.unknown_group_types, ["new"]);
    // An ordinary event after it needs no second touch, nor one before it.
    let group = identify(r#""$group_type":"company","$group_key":"k""#);
    let touch = r#"{"event":"e","distinct_id":"u"}"#;
    let expected = [types, "u: touch", "u: group company k {}"];
    assert_eq!(ops(&batch(&[&group, touch])), expected);
    assert_eq!(ops(&batch(&[touch, &group])), expected);
}

/// `serde_json` interprets this key; PostHog does not, and the text under it is not an object.
#[test]
fn text_is_no_object_whatever_its_key() {
    for text in ["[1]", "not JSON", "{\"b\":2}"] {
        let value = json!({"$serde_json::private::RawValue": text});
        let stored = json!({"a": value, "b": 1});
        for (members, expected) in [
            (
                format!(r#""$set":{stored},"properties":{{}}"#),
                format!("u: update {stored} {{}} []"),
            ),
            (
                format!(r#""$set":{{"a":{value}}},"properties":{{"$set":{{"b":1}}}}"#),
                format!("u: update {stored} {{}} []"),
            ),
            (
                format!(r#""properties":{{"$set_once":{stored}}}"#),
                format!("u: update {{}} {stored} []"),
            ),
            (
                format!(r#""properties":{{"$browser":{value}}}"#),
                format!(r#"u: update {{"$browser":{value}}} {{"$initial_browser":{value}}} []"#),
            ),
            (
                format!(r#""properties":{{"$unset":{value}}}"#),
                r#"u: update {} {} ["$serde_json::private::RawValue"]"#.to_owned(),
            ),
        ] {
            let prepared = one(&format!(r#""event":"e","distinct_id":"u",{members}"#));
            assert_eq!(ops(&prepared), [expected], "{members}");
            let properties = self::text(&prepared, 0, "properties");
            let properties = restore::<Json>(properties.as_bytes()).unwrap();
            if members.contains(r#""$set":"#) {
                assert_eq!(properties["$set"], stored, "{members}");
            }
        }
        let members = format!(
            r#""event":"$groupidentify","distinct_id":"u","properties":{{"$group_type":"company","$group_key":{value},"$group_set":{stored}}}"#
        );
        let group = format!("u: group company {value} {stored}");
        assert!(ops(&one(&members)).contains(&group), "{:?}", ops(&one(&members)));
    }
}
