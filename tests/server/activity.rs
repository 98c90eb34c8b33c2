//! Activity log of persons and definitions. The format is that of PostHog's API; that every
//! change has an entry, whatever happens, is a guarantee of Weir.

use serde_json::{Value, json};

use crate::harness::TestServer;

const PERSONS: &str = "/api/projects/@current/persons/";
const EVENT_DEFINITIONS: &str = "/api/projects/@current/event_definitions/";
const PROPERTY_DEFINITIONS: &str = "/api/projects/@current/property_definitions/";

fn results(server: &TestServer, path: &str) -> Vec<Value> {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {answer}");
    answer.json()["results"].as_array().expect("results").clone()
}

/// Entries, newest first: activity, name of the object, changes.
fn log(server: &TestServer, path: &str) -> Vec<(Value, Value, Value)> {
    let entries = results(server, path);
    for entry in &entries {
        assert_eq!(entry["user"]["id"], 1, "{entry}");
        assert_eq!(entry["detail"]["id"], entry["item_id"], "{entry}");
        assert!(entry["created_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{entry}");
    }
    let parts = |entry: &Value| {
        let detail = &entry["detail"];
        (entry["activity"].clone(), detail["name"].clone(), detail["changes"].clone())
    };
    entries.iter().map(parts).collect()
}

fn person(server: &TestServer, distinct_id: &str) -> Value {
    results(server, &format!("{PERSONS}?distinct_id={distinct_id}")).remove(0)
}

fn of_person(action: &str, field: Value, before: Value, after: Value) -> Value {
    json!([{"type": "Person", "action": action, "field": field, "before": before, "after": after}])
}

#[test]
fn every_change_of_a_person_is_logged_once_whatever_happens() {
    let mut server = TestServer::start();
    let identify = |id: &str, properties: Value| json!({"event": "$identify", "distinct_id": id, "properties": properties});
    let events = json!([
        {"event": "x", "distinct_id": "anon"},
        identify("ann", json!({"$anon_distinct_id": "anon", "$set": {"plan": "free", "age": 41}})),
        identify("bob", json!({"$set": {"email": "bob@corp.com"}})),
    ]);
    assert_eq!(server.capture(&events).status, 200);
    let (ann, bob) = (person(&server, "ann"), person(&server, "bob"));
    let path = format!("{PERSONS}{}/", ann["id"]);
    for (answer, status) in [
        (
            server.patch(&path, &json!({"properties": {"plan": "pro", "city": "Rome", "age": 41}})),
            202,
        ),
        // Nothing is another after this.
        (server.patch(&path, &json!({"properties": {"plan": "pro"}})), 202),
        (server.post(&format!("{path}update_property/"), &json!({"key": "age", "value": 42})), 202),
        (server.post(&format!("{path}delete_property/"), &json!({"$unset": "city"})), 201),
        (server.post(&format!("{path}delete_property/"), &json!({"$unset": "nothing"})), 201),
        (server.post(&format!("{path}split/"), &json!({"main_distinct_id": "ann"})), 201),
        (server.delete(&format!("{PERSONS}{}/", bob["id"])), 202),
    ] {
        assert_eq!(answer.status, status, "{answer}");
    }
    let uuid = &ann["uuid"];
    let ids = json!(["anon", "ann"]);
    let expected = [
        (
            json!("split_person"),
            uuid.clone(),
            of_person(
                "split",
                json!(null),
                json!({"distinct_ids": ids}),
                json!({"distinct_ids": ids, "distinct_ids_to_split": ["anon"]}),
            ),
        ),
        (
            json!("delete_property"),
            uuid.clone(),
            of_person("changed", json!("properties"), json!({"city": "Rome"}), json!({})),
        ),
        (
            json!("updated"),
            json!(null),
            of_person("changed", json!("properties"), json!({"age": 41}), json!({"age": 42})),
        ),
        (
            json!("updated"),
            json!(null),
            of_person(
                "changed",
                json!("properties"),
                json!({"plan": "free"}),
                json!({"plan": "pro", "city": "Rome"}),
            ),
        ),
    ];
    let deleted = (json!("deleted"), bob["uuid"].clone(), json!(null));
    for state in ["at once", "after a crash", "after another", "after an end"] {
        let split = person(&server, "ann");
        assert_eq!(split["id"], ann["id"], "{state}");
        for id in [split["id"].to_string(), split["uuid"].as_str().unwrap().to_owned()] {
            assert_eq!(log(&server, &format!("{PERSONS}{id}/activity/")), expected, "{state}");
        }
        let all = [&[deleted.clone()][..], &expected].concat();
        assert_eq!(log(&server, &format!("{PERSONS}activity/")), all, "{state}");
        let path = "/api/projects/@current/activity_log/?scope=Person";
        assert_eq!(log(&server, path), all, "{state}");
        match state {
            "after another" => server.stop(),
            _ => server.kill(),
        }
        server.restart();
    }
    let unknown = results(&server, "/api/projects/@current/activity_log/?scope=Survey");
    assert!(unknown.is_empty(), "no entry is of an unknown kind: {unknown:?}");
    let page = server.get(&format!("{PERSONS}activity/?limit=2&page=2")).json();
    assert_eq!(
        (&page["total_count"], page["results"].as_array().map(Vec::len)),
        (&json!(5), Some(2))
    );
    assert!(page["next"].as_str().is_some_and(|next| next.contains("page=3")), "{page}");
    assert!(page["previous"].as_str().is_some_and(|link| link.contains("page=1")), "{page}");
    let file = server.get(&format!("{PERSONS}activity/?format=csv"));
    let text = String::from_utf8(file.body).unwrap();
    assert_eq!((file.status, text.split_terminator("\r\n").count()), (200, 6), "{text}");
    let gone = server.get(&format!("{PERSONS}{}/activity/", bob["id"]));
    assert_eq!(gone.status, 404, "{gone}");
    assert_eq!(server.get(&format!("{PERSONS}ann/activity/")).status, 400);
}

#[test]
fn a_bulk_deletion_is_one_entry_for_each_person() {
    let server = TestServer::start();
    let touch = |id: &str| json!({"event": "x", "distinct_id": id});
    assert_eq!(server.capture(&json!([touch("a"), touch("b"), touch("c")])).status, 200);
    let uuids = ["a", "b"].map(|id| person(&server, id)["uuid"].clone());
    let answer = server.post(&format!("{PERSONS}bulk_delete/"), &json!({"ids": uuids}));
    assert_eq!(answer.status, 202, "{answer}");
    let mut names: Vec<Value> =
        log(&server, &format!("{PERSONS}activity/")).into_iter().map(|(_, name, _)| name).collect();
    names.sort_by_key(Value::to_string);
    let mut expected = uuids.to_vec();
    expected.sort_by_key(Value::to_string);
    assert_eq!(names, expected);
}

#[test]
fn changes_of_definitions_are_logged() {
    let server = TestServer::start();
    let event = json!([{"event": "paid", "distinct_id": "a", "properties": {"price": 5}}]);
    assert_eq!(server.capture(&event).status, 200);
    let find = |path: &str| results(&server, &format!("{path}?search=p")).remove(0);
    let change = |scope: &str, action: &str, field: &str, before: Value, after: Value| json!({"type": scope, "action": action, "field": field, "before": before, "after": after});

    let definition = find(EVENT_DEFINITIONS);
    let path = format!("{EVENT_DEFINITIONS}{}/", definition["id"].as_str().unwrap());
    let patch = json!({"tags": ["Money"], "description": "Paid", "post_to_slack": false});
    assert_eq!(server.patch(&path, &patch).status, 200);
    assert_eq!(server.patch(&path, &json!({"tags": ["money"]})).status, 200, "the same again");
    assert_eq!(server.delete(&path).status, 204);
    let of_event =
        |action, field, before, after| change("EventDefinition", action, field, before, after);
    let changes = json!([
        of_event("changed", "tags", json!([]), json!(["money"])),
        of_event("created", "description", json!(null), json!("Paid")),
    ]);
    let expected = [
        (json!("deleted"), json!("paid"), json!([])),
        (json!("changed"), json!("paid"), sorted(&changes)),
    ];
    let found = |path: &str| -> Vec<_> {
        let entries = log(&server, path).into_iter();
        entries.map(|(activity, name, changes)| (activity, name, sorted(&changes))).collect()
    };
    assert_eq!(found(&format!("{path}activity/")), expected);
    assert_eq!(found(&format!("{EVENT_DEFINITIONS}activity/")), expected);
    let other = format!("{EVENT_DEFINITIONS}0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d/activity/");
    assert_eq!(found(&other), []);
    assert_eq!(server.get(&format!("{EVENT_DEFINITIONS}paid/activity/")).status, 404);

    let definition = find(PROPERTY_DEFINITIONS);
    let path = format!("{PROPERTY_DEFINITIONS}{}/", definition["id"].as_str().unwrap());
    assert_eq!(server.patch(&path, &json!({"property_type": "String"})).status, 200);
    assert_eq!(server.delete(&path).status, 204);
    let retyped =
        change("PropertyDefinition", "changed", "property_type", json!("Numeric"), json!("String"));
    let expected = [
        (json!("deleted"), json!("price"), json!([])),
        (json!("changed"), json!("price"), json!([retyped])),
    ];
    let path = "/api/projects/@current/activity_log/?scope=PropertyDefinition";
    assert_eq!(found(path), expected);
    let all = results(&server, "/api/projects/@current/activity_log/");
    let scopes: Vec<_> = all.iter().map(|entry| entry["scope"].as_str().unwrap()).collect();
    let (property, event) = ("PropertyDefinition", "EventDefinition");
    assert_eq!(scopes, [property, property, event, event]);
}

/// Changes by the names of their fields.
fn sorted(changes: &Value) -> Value {
    let mut changes = changes.as_array().cloned().unwrap_or_default();
    changes.sort_by_key(|change| change["field"].to_string());
    Value::Array(changes)
}

#[test]
fn the_log_is_for_keys_that_may_read_it() {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!([{"event": "x", "distinct_id": "a"}])).status, 200);
    let key = |scopes: Value| {
        let body = json!({"label": "reader", "scopes": scopes});
        server.post("/api/personal_api_keys/", &body).json()["value"].as_str().unwrap().to_owned()
    };
    let (narrow, wide) = (
        key(json!(["person:read", "feature_flag:read"])),
        key(json!(["person:read", "activity_log:read", "cohort:read"])),
    );
    let id = person(&server, "a")["id"].to_string();
    let flags = "/api/projects/1/feature_flags/";
    let flag = server.post(flags, &json!({"key": "a"})).json()["id"].clone();
    for (path, missing) in [
        // Of flags it needs no other scope, as for PostHog.
        (format!("{flags}activity/"), "activity_log:read"),
        (format!("{flags}{flag}/activity/"), "activity_log:read"),
        (format!("{PERSONS}activity/"), "activity_log:read"),
        (format!("{PERSONS}{id}/activity/"), "activity_log:read"),
        (format!("{PERSONS}cohorts/?person_id={id}"), "cohort:read"),
    ] {
        let ask = |key: &str| {
            server.send("GET", &path, &[("authorization", &format!("Bearer {key}"))], "")
        };
        let refused = ask(&narrow);
        let detail = format!("API key missing required scope '{missing}'");
        assert_eq!((refused.status, &refused.json()["detail"]), (403, &json!(detail)), "{path}");
        assert_eq!(ask(&wide).status, 200, "{path}");
    }
}
