//! Definitions of events and properties, and ingestion warnings: visible soon after the 200, and
//! after a restart.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{TestServer, within};

/// Longest time from a response to its visible effect. The requirement is one second; the rest is
/// for machines that are busy with other tests.
const SOON: Duration = Duration::from_secs(5);

/// Polls until `look` returns something.
fn soon<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(SOON, look).unwrap_or_else(|| panic!("{what}: not after {SOON:?}"))
}

fn results(server: &TestServer, path: &str) -> Vec<Value> {
    let answer = server.get(&format!("/api/projects/1/{path}"));
    assert_eq!(answer.status, 200, "{path}: {answer}");
    answer.json()["results"].as_array().expect("results").clone()
}

/// Names and types of the property definitions for a query string.
fn properties(server: &TestServer, query: &str) -> Vec<(String, Option<String>)> {
    let found = results(server, &format!("property_definitions/?{query}"));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one = |one: &Value| (text(&one["name"]).expect("a name"), text(&one["property_type"]));
    found.iter().map(one).collect()
}

fn typed<const N: usize>(expected: [(&str, Option<&str>); N]) -> Vec<(String, Option<String>)> {
    expected.map(|(name, kind)| (name.to_owned(), kind.map(str::to_owned))).to_vec()
}

fn events() -> Value {
    json!([
        {"event": "order paid", "distinct_id": "ada", "properties": {
            "price": 5, "plan": "pro", "paid_at": 4_102_444_800_u64, "note": null,
            "$feature/new": true, "$groups": {"company": "c1"},
            "$set": {"email": "ada@example.com", "age": 36}, "$set_once": {"since": "2026-11-21"}}},
        {"event": "order paid", "distinct_id": "ada", "properties": {"plan": 7, "trial": false}},
        {"event": "left", "distinct_id": "ada", "properties": {"plan": "pro", "why": ["price"]}},
        {"event": "$groupidentify", "distinct_id": "ada", "properties": {
            "$group_type": "company", "$group_key": "c1", "$group_set": {"seats": 3}}},
    ])
}

/// Checks all definitions that follow from [`events`].
fn check(server: &TestServer) {
    let names = server.query("SELECT name FROM event_definitions ORDER BY name");
    let expected = ["$groupidentify", "left", "order paid"].map(|name| json!({"name": name}));
    assert_eq!(names, expected);
    let of_events = typed([
        ("$feature/new", Some("String")),
        ("note", None),
        ("paid_at", Some("DateTime")),
        ("plan", Some("String")),
        ("price", Some("Numeric")),
        ("trial", Some("Boolean")),
        ("why", None),
    ]);
    assert_eq!(properties(server, ""), of_events);
    assert_eq!(properties(server, "limit=2&offset=3"), of_events[3..5]);
    assert_eq!(properties(server, "search=pri"), typed([("price", Some("Numeric"))]));
    assert_eq!(properties(server, "search=A%20PL"), typed([("plan", Some("String"))]));
    assert_eq!(properties(server, "is_numerical=true"), typed([("price", Some("Numeric"))]));
    assert_eq!(properties(server, "is_feature_flag=true"), of_events[..1]);
    assert_eq!(properties(server, "is_feature_flag=false"), of_events[1..]);
    let picked = typed([("note", None), ("trial", Some("Boolean"))]);
    assert_eq!(properties(server, "properties=trial,note,email"), picked);
    let others = "excluded_properties=%5B%22plan%22%2C%22price%22%5D&exclude_core_properties=true";
    assert_eq!(properties(server, others).len(), 4);
    let of_persons =
        [("age", Some("Numeric")), ("email", Some("String")), ("since", Some("DateTime"))];
    assert_eq!(properties(server, "type=person"), typed(of_persons));
    let seats = typed([("seats", Some("Numeric"))]);
    assert_eq!(properties(server, "type=group&group_type_index=0"), seats);
    assert_eq!(properties(server, "type=group&group_type_index=1"), []);
    assert_eq!(properties(server, "type=session"), []);

    // Which events have them.
    let left = "event_names=%5B%22left%22%5D";
    let seen: Vec<(Value, Value)> = results(server, &format!("property_definitions/?{left}"))
        .iter()
        .map(|one| (one["name"].clone(), one["is_seen_on_filtered_events"].clone()))
        .collect();
    let order = ["plan", "why", "$feature/new", "note", "paid_at", "price", "trial"];
    let expected = order.map(|name| (json!(name), json!(matches!(name, "plan" | "why"))));
    assert_eq!(seen, expected);
    let only = typed([("plan", Some("String")), ("why", None)]);
    assert_eq!(properties(server, &format!("{left}&filter_by_event_names=true")), only);
    let pairs = server.query("SELECT * FROM event_properties ORDER BY event, property");
    let expected = [
        ("left", "plan"),
        ("left", "why"),
        ("order paid", "note"),
        ("order paid", "paid_at"),
        ("order paid", "plan"),
        ("order paid", "price"),
        ("order paid", "trial"),
    ];
    assert_eq!(pairs, expected.map(|(event, key)| json!({"event": event, "property": key})));
    let sql = "SELECT type, group_type_index, is_numerical, property_type FROM \
               property_definitions WHERE name = 'seats'";
    let row = json!({"type": "group", "group_type_index": 0, "is_numerical": true, "property_type": "Numeric"});
    assert_eq!(server.query(sql), [row]);
}

#[test]
fn definitions_follow_the_200_soon_and_stay() {
    let mut server = TestServer::start();
    assert_eq!(server.capture(&events()).status, 200);
    soon("a property definition after its 200", || {
        let found = results(&server, "property_definitions/?search=trial");
        (!found.is_empty()).then_some(())
    });
    check(&server);
    for round in 0..20 {
        let event = json!([{"event": format!("event {round}"), "distinct_id": "ada",
            "properties": {format!("key {round}"): round}}]);
        assert_eq!(server.capture(&event).status, 200);
        soon("a new event and its property after the 200", || {
            let sql = format!(
                "SELECT count(*) FROM event_properties p JOIN event_definitions e ON \
                 e.name = p.event WHERE p.property = 'key {round}' AND p.event = 'event {round}'"
            );
            (server.count(&sql) == 1).then_some(())
        });
    }
    let ids = |server: &TestServer| {
        server.query("SELECT id, name FROM property_definitions ORDER BY type, name")
    };
    let before = ids(&server);
    let one = before[0]["id"].as_str().expect("an id").to_owned();
    let body = server.get(&format!("/api/projects/1/property_definitions/{one}/")).json();
    assert_eq!(body["name"], before[0]["name"]);
    assert_eq!(body["tags"], json!([]));
    assert_eq!(server.get("/api/projects/1/property_definitions/none/").status, 404);
    // A crash, so that the events are taken from the log once more; and an orderly end.
    server.kill();
    server.restart();
    assert_eq!(ids(&server), before);
    server.stop();
    assert_eq!(ids(&server), before, "without the server");
    server.restart();
    assert_eq!(ids(&server), before);
    // The first type stays, and what is known is not defined again.
    assert_eq!(server.capture(&events()).status, 200);
    assert_eq!(ids(&server), before);
}

#[test]
fn wrong_questions_about_properties_are_refused() {
    let server = TestServer::start();
    for (query, attr, detail) in [
        ("type=group", None, "`group_type_index` must be set for `group` type"),
        ("group_type_index=0", None, "`group_type_index` can only set for `group` type"),
        ("type=group&group_type_index=5", None, "Invalid value for `group_type_index`"),
        (
            "type=person&event_names=%5B%22a%22%5D",
            None,
            "`event_names` can only be set for `event` type",
        ),
        ("type=cohort", Some("type"), "\"cohort\" is not a valid choice."),
        ("is_numerical=perhaps", Some("is_numerical"), "Must be a valid boolean."),
        ("event_names=left", Some("event_names"), "Must be a JSON list of names."),
    ] {
        let answer = server.get(&format!("/api/projects/1/property_definitions/?{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer}");
        let body = answer.json();
        assert_eq!(body["detail"], detail, "{query}");
        assert_eq!(body["attr"].as_str(), attr, "{query}");
    }
}

/// Kinds and counts of the ingestion warnings, by kind.
fn warnings(server: &TestServer) -> Vec<(String, u64)> {
    let found = results(server, "ingestion_warnings/");
    let one = |one: &Value| {
        let kind = one["type"].as_str().expect("a type").to_owned();
        (kind, one["count"].as_u64().expect("a count"))
    };
    let mut kinds: Vec<_> = found.iter().map(one).collect();
    kinds.sort();
    kinds
}

#[test]
fn what_is_odd_about_events_is_counted_and_told() {
    let mut server = TestServer::start();
    let identify = |id: &str, other: &str| {
        let properties = json!({"$anon_distinct_id": other});
        json!({"event": "$identify", "distinct_id": id, "properties": properties})
    };
    let wide = |width: Value| {
        let properties = json!({"$screen_width": width});
        json!({"event": "seen", "distinct_id": "ada", "properties": properties})
    };
    let nobody = json!({"event": "nobody", "properties": {"price": 5}});
    for batch in [
        json!([identify("ada", "device-1"), identify("bob", "device-2")]),
        json!([nobody, 5, wide(json!("wide")), wide(json!("wider")), wide(json!(null))]),
        json!([nobody, wide(json!(800)), identify("ada", "bob"), identify("ada", "undefined")]),
        json!([nobody, nobody, nobody]),
    ] {
        assert_eq!(server.capture(&batch).status, 200, "{batch}");
    }
    let expected = [
        ("cannot_merge_already_identified", 1),
        ("cannot_merge_with_illegal_distinct_id", 1),
        ("dropped_event_missing_distinct_id", 5),
        ("dropped_event_not_an_object", 1),
        ("property_type_mismatch", 1),
    ];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    soon("the warnings", || (warnings(&server) == expected).then_some(()));

    let found = results(&server, "ingestion_warnings/");
    let find = |kind: &str| {
        let found = found.iter().find(|one| one["type"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}")).clone()
    };
    let mismatch = find("property_type_mismatch");
    let details = &mismatch["warnings"][0]["details"];
    assert_eq!(details["detail"], "$screen_width is not a number");
    assert_eq!((&details["event"], &details["distinctId"]), (&json!("seen"), &json!("ada")));
    assert_eq!(mismatch["warnings"][0]["timestamp"], mismatch["lastSeen"]);
    assert_eq!(mismatch["sparkline"][0][0], 1);
    let dropped = find("dropped_event_missing_distinct_id");
    assert_eq!(dropped["warnings"][0]["details"], json!({"event": "nobody"}));
    assert!(dropped["warnings"].as_array().is_some_and(|all| (1..=5).contains(&all.len())));
    let refused = find("cannot_merge_already_identified");
    assert_eq!(refused["warnings"][0]["details"]["distinctId"], "ada");

    let sql =
        "SELECT type, sum(count) AS count FROM ingestion_warnings GROUP BY type ORDER BY type";
    let rows = expected.clone().map(|(kind, count)| json!({"type": kind, "count": count}));
    assert_eq!(server.query(sql), rows);
    let counter = "weir_ingestion_warnings_total{kind=\"dropped_event_missing_distinct_id\"}";
    assert_eq!(server.metric(counter), 5);

    // An orderly end writes what was not written yet.
    assert_eq!(server.capture(&json!([nobody])).status, 200);
    server.stop();
    server.restart();
    let mut expected = expected;
    expected[2].1 += 1;
    assert_eq!(warnings(&server), expected);
}

/// Goal: a project that exceeds its quota of names gets one warning, and no event is lost.
#[test]
fn names_that_get_no_definition_are_told() {
    let server = TestServer::start();
    let batch = |names: std::ops::Range<usize>| {
        let event = |n| json!({"event": format!("name {n:05}"), "distinct_id": "someone"});
        Value::Array(names.map(event).collect())
    };
    assert_eq!(server.capture(&batch(0..10_000)).status, 200);
    let defined = |query: &str| {
        let page = server.get(&format!("/api/projects/@current/event_definitions/?{query}")).json();
        page["count"].as_u64().expect("a count")
    };
    assert_eq!((defined(""), warnings(&server)), (10_000, Vec::new()));
    for names in [9_990..10_010, 10_010..10_020] {
        assert_eq!(server.capture(&batch(names)).status, 200);
    }
    assert_eq!((defined(""), defined("search=name%2010015")), (10_000, 0));
    let expected = vec![("too_many_event_definitions".to_owned(), 1)];
    soon("the warning", || (warnings(&server) == expected).then_some(()));
    let found = results(&server, "ingestion_warnings/");
    assert_eq!(found[0]["warnings"][0]["details"], json!({"event": "name 10000"}));
    assert_eq!(server.count("SELECT count(*) FROM events"), 10_030);
}
