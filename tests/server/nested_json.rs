//! Deeply nested JSON, and the same hidden in a text under the key to which `serde_json` gives a
//! special meaning. PostHog treats it as an ordinary key. The tests send it wherever values are
//! accepted, and read the stored values after a crash and after a shutdown.

use serde_json::{Map, Value, json};
use weir_event::json::restore;

use crate::harness::{Answer, TOKEN, TestServer};

const KEY: &str = "$serde_json::private::RawValue";
const PERSONS: &str = "/api/projects/@current/persons/";
const FLAGS: &str = "/api/projects/1/feature_flags/";

/// Some kilobytes of JSON in a text in JSON, a thousand levels in all.
fn thousand_levels() -> Value {
    let arrays = |inside: &str| format!("{}{inside}{}", "[".repeat(120), "]".repeat(120));
    let mut value = json!({KEY: arrays("")});
    for _ in 0..8 {
        value = json!({KEY: arrays(&value.to_string())});
    }
    value
}

/// Nested arrays of this depth.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(0), |inside, _| json!([inside]))
}

/// A response as written, because the tests' own JSON reader interprets the key too.
fn told(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{answer}");
    restore(&answer.body).expect("JSON")
}

fn get(server: &TestServer, path: &str) -> Value {
    told(&server.get(path), 200)
}

fn person(server: &TestServer, distinct_id: &str) -> Map<String, Value> {
    let page = get(server, &format!("{PERSONS}?distinct_id={distinct_id}"));
    page["results"][0].as_object().unwrap_or_else(|| panic!("no {distinct_id}: {page}")).clone()
}

fn path_of(server: &TestServer, distinct_id: &str) -> String {
    format!("{PERSONS}{}/", person(server, distinct_id)["id"])
}

fn page_views(server: &TestServer, distinct_ids: &[&str]) {
    let view = |id: &&str| json!({"event": "view", "distinct_id": id});
    let events: Vec<Value> = distinct_ids.iter().map(view).collect();
    let answer = server.capture(&Value::from(events));
    assert_eq!(answer.status, 200, "{answer}");
}

#[test]
fn text_stays_text_wherever_it_is_sent() {
    let mut server = TestServer::start();
    let deep = thousand_levels();
    let bad = json!({KEY: "not JSON"});
    let group = |key: &str, value: &Value| json!({"event": "$groupidentify", "distinct_id": "set", "properties": {"$group_type": "company", "$group_key": key, "$group_set": {"a": value, "b": 1}}});
    let events = json!([
        {"event": "$set", "distinct_id": "set", "properties": {"$set": {"a": deep, "b": 1}}},
        {"event": "$set", "distinct_id": "once", "properties": {"$set_once": {"a": deep, "b": 1}}},
        {"event": "$set", "distinct_id": "bad", "properties": {"$set": {"a": bad, "b": 1}}},
        {"event": "$set", "distinct_id": "two", "$set": {"a": deep}, "properties": {"$set": {"b": 1}}},
        {"event": "view", "distinct_id": "lifted", "properties": {"$browser": deep, "$set": {"b": 1}}},
        {"event": "view", "distinct_id": "patched", "properties": {"$set": {"b": 1}}},
        group("deep", &deep),
        group("bad", &bad),
    ]);
    let answer = server.capture(&events);
    assert_eq!(answer.status, 200, "{answer}");
    let patched = server.patch(&path_of(&server, "patched"), &json!({"properties": {"a": deep}}));
    assert_eq!(patched.status, 202, "{patched}");
    let filter = json!({"key": "asked", "type": "person", "operator": "is_set", "value": "is_set"});
    let flag = json!({
        "key": "f", "rollback_conditions": bad,
        "filters": {"groups": [{"properties": [filter], "rollout_percentage": 100}], "note": deep},
    });
    let created = server.post(FLAGS, &flag);
    let flag_path = format!("{FLAGS}{}/", told(&created, 201)["id"]);

    let everybody = ["set", "once", "bad", "two", "lifted", "patched"];
    for state in ["at once", "after a crash", "after an end", "after another"] {
        for id in everybody {
            let properties = person(&server, id)["properties"].clone();
            let key = if id == "lifted" { "$browser" } else { "a" };
            let expected = if id == "bad" { &bad } else { &deep };
            assert_eq!(
                (&properties[key], &properties["b"]),
                (expected, &json!(1)),
                "{state}: {id}"
            );
        }
        for (key, expected) in [("deep", &deep), ("bad", &bad)] {
            let path = format!("/api/projects/1/groups/find/?group_type_index=0&group_key={key}");
            let group = get(&server, &path);
            assert_eq!(&group["group_properties"]["a"], expected, "{state}: {key}");
        }
        let flag = get(&server, &flag_path);
        assert_eq!(
            (&flag["filters"]["note"], &flag["rollback_conditions"]),
            (&deep, &bad),
            "{state}"
        );
        for value in [&deep, &bad] {
            let asked = json!({"api_key": TOKEN, "distinct_id": "set", "person_properties": {"asked": value}});
            let answer = server.send("POST", "/flags/?v=2", &[], asked.to_string());
            assert_eq!(answer.json()["flags"]["f"]["enabled"], true, "{state}: {answer}");
        }
        let file = server.get("/api/projects/1/events/?format=csv");
        assert_eq!(file.status, 200, "{state}: {file}");
        // Each of their rows is read, and written again.
        page_views(&server, &everybody);
        let again = json!([{"event": "$set", "distinct_id": "set", "properties": {"$set": {"state": state}}}, group("deep", &deep)]);
        assert_eq!(server.capture(&again).status, 200, "{state}");
        match state {
            "at once" => server.kill(),
            _ => server.stop(),
        }
        server.restart();
    }
}

#[test]
fn what_is_taken_deep_is_read_again_and_what_is_deeper_is_told() {
    let mut server = TestServer::start();
    // The deepest event that PostHog's capture takes: 127 levels.
    let event = json!({"api_key": TOKEN, "event": "$set", "distinct_id": "ann", "$set": {"deep": nested(125), "plan": "free"}});
    let answer = server.send("POST", "/e/", &[], event.to_string());
    assert_eq!(answer.status, 200, "{answer}");
    let path = path_of(&server, "ann");
    for (value, status) in
        [(nested(99), 202), (nested(100), 400), (nested(126), 400), (nested(400), 400)]
    {
        let set = json!({"key": "by hand", "value": value});
        let answer = server.post(&format!("{path}update_property/"), &set);
        assert_eq!(answer.status, status, "{answer}");
        if status == 400 {
            assert_eq!(answer.json()["code"], "parse_error", "{answer}");
        }
    }
    // Nothing was flushed: each start replays all of it.
    for _ in 0..2 {
        server.kill();
        server.restart();
        page_views(&server, &["ann"]);
        let properties = person(&server, "ann")["properties"].clone();
        let found = (&properties["deep"], &properties["by hand"], &properties["plan"]);
        assert_eq!(found, (&nested(125), &nested(99), &json!("free")));
    }
    // The entry in the log of changes has what was there before, two levels deeper.
    let answer = server.patch(&path, &json!({"properties": {"deep": 1}}));
    assert_eq!(answer.status, 202, "{answer}");
    let entries = get(&server, &format!("{path}activity/"));
    let before = &entries["results"][0]["detail"]["changes"][0]["before"];
    assert_eq!(before["deep"], nested(125), "{entries}");
    server.stop();
    server.restart();
    assert_eq!(person(&server, "ann")["properties"]["deep"], 1);
}

/// What a series was sent with is told with its answer, kept, and read again by pages and for older clients.
#[test]
fn series_are_told_as_they_were_sent() {
    let server = TestServer::start();
    page_views(&server, &["a"]);
    // Filters in the oldest form, with names of properties.
    for sent in [thousand_levels(), json!({KEY: "not JSON"}), json!({KEY: 1, "b": KEY})] {
        let series = json!([{"kind": "EventsNode", "event": "view", "properties": sent}]);
        let query = json!({"kind": "TrendsQuery", "series": series});
        let answer = server.post("/api/projects/1/query/", &json!({"query": query}));
        assert_eq!(told(&answer, 200)["results"][0]["action"]["properties"], sent);
        let events = json!([{"id": "view", "properties": sent}]).to_string();
        for _ in ["computed", "kept"] {
            let older = server.post("/api/projects/1/insights/trend/", &json!({"events": events}));
            let action = &told(&older, 200)["result"][0]["action"];
            assert_eq!(action["properties"], sent);
        }
    }
}
