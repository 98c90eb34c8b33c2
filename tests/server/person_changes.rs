//! Changes of persons by operators over HTTP: properties set and deleted, persons deleted. All are
//! ordered among the events and survive a crash. Expectations are those of the API specification and of
//! PostHog's API.

use std::thread;

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TOKEN, TestServer};

const PERSONS: &str = "/api/projects/@current/persons/";

fn identify(server: &TestServer, id: &str, set: Value) {
    let event = json!([{"event": "$identify", "distinct_id": id, "properties": {"$set": set}}]);
    assert_eq!(server.capture(&event).status, 200);
}

fn find(server: &TestServer, distinct_id: &str) -> Option<Value> {
    let page = server.get(&format!("{PERSONS}?distinct_id={distinct_id}")).json();
    page["results"].as_array().expect("results").first().cloned()
}

fn path_of(server: &TestServer, distinct_id: &str) -> String {
    let person = find(server, distinct_id).expect("a person");
    format!("{PERSONS}{}/", person["id"])
}

/// The properties that were set by the test.
fn properties(person: &Value) -> Value {
    let mut properties = person["properties"].clone();
    properties.as_object_mut().expect("properties").remove("$creator_event_uuid");
    properties
}

fn put(server: &TestServer, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send("PUT", path, &headers, body.to_string())
}

#[test]
fn properties_are_changed_and_survive_a_crash() {
    let mut server = TestServer::start();
    identify(&server, "ann", json!({"plan": "free", "age": 41}));
    let path = path_of(&server, "ann");
    let answer = server.patch(&path, &json!({"properties": {"plan": "pro", "nested": {"a": [1]}}}));
    assert_eq!(answer.status, 202, "{answer}");
    let expected = json!({"plan": "pro", "age": 41, "nested": {"a": [1]}});
    assert_eq!(properties(&answer.json()), expected, "listed keys change, others stay");
    assert_eq!(put(&server, &path, &json!({"properties": {"put": true}})).status, 202);
    // An event after a change wins over it, and a change after the event over that.
    identify(&server, "ann", json!({"plan": "team"}));
    let updated =
        server.post(&format!("{path}update_property/"), &json!({"key": "age", "value": 42}));
    assert_eq!(updated.status, 202, "{updated}");
    assert_eq!(
        server.post(&format!("{path}update_property/?key=city&value=Rome"), &json!({})).status,
        202
    );
    let deleted = server.post(&format!("{path}delete_property/"), &json!({"$unset": "nested"}));
    assert_eq!((deleted.status, &deleted.json()["success"]), (201, &json!(true)), "{deleted}");
    assert_eq!(server.post(&format!("{path}delete_property/?$unset=put"), &json!({})).status, 201);
    let as_csv = server.patch(&format!("{path}?format=csv"), &json!({"properties": {"age": 42}}));
    let lines = String::from_utf8(as_csv.body).unwrap();
    assert_eq!((as_csv.status, lines.split_terminator("\r\n").count()), (202, 2), "{lines}");
    let expected = json!({"plan": "team", "age": 42, "city": "Rome"});
    assert_eq!(properties(&server.get(&path).json()), expected);
    for state in ["after a crash", "after an end"] {
        match state {
            "after a crash" => server.kill(),
            _ => server.stop(),
        }
        server.restart();
        assert_eq!(properties(&server.get(&path).json()), expected, "{state}");
    }
}

#[test]
fn changes_that_cannot_be_made_are_told() {
    let server = TestServer::start();
    identify(&server, "ann", json!({}));
    let path = path_of(&server, "ann");
    let swapped = |name: &str| json!({"type": "validation_error", "code": "This field is required.", "detail": "required", "attr": name});
    for (method_path, body, attr) in [
        (path.clone(), json!({}), "properties"),
        (path.clone(), json!({"properties": null}), "properties"),
    ] {
        let answer = server.patch(&method_path, &body);
        assert_eq!((answer.status, answer.json()), (400, swapped(attr)), "{body}");
    }
    for (body, attr) in [(json!({"key": "a"}), "value"), (json!({"value": 1}), "key")] {
        let answer = server.post(&format!("{path}update_property/"), &body);
        assert_eq!((answer.status, answer.json()), (400, swapped(attr)), "{body}");
    }
    let wrong = server.patch(&path, &json!({"properties": [1]}));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("properties")));
    let unset = server.post(&format!("{path}delete_property/"), &json!({}));
    assert_eq!((unset.status, &unset.json()["attr"]), (400, &json!("$unset")));
    for path in ["999/", "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d/"] {
        let path = format!("{PERSONS}{path}");
        assert_eq!(server.patch(&path, &json!({"properties": {}})).status, 404);
        assert_eq!(server.delete(&path).status, 404);
        assert_eq!(
            server.post(&format!("{path}delete_property/"), &json!({"$unset": "a"})).status,
            404
        );
        for operation in ["delete_events", "delete_recordings", "split"] {
            assert_eq!(server.post(&format!("{path}{operation}/"), &json!({})).status, 404);
        }
    }
    assert_eq!(server.delete(&format!("{PERSONS}ann/")).status, 400);
    // There are no recordings of anybody.
    let recordings = server.post(&format!("{path}delete_recordings/"), &json!({}));
    assert_eq!((recordings.status, recordings.body.len()), (202, 0), "{recordings}");
    // To keep the person and its events is to change nothing.
    assert_eq!(server.delete(&format!("{path}?keep_person=true")).status, 202);
    assert!(find(&server, "ann").is_some(), "nothing was deleted");
}

#[test]
fn a_deleted_person_is_gone_and_does_not_come_back_by_itself() {
    let mut server = TestServer::start();
    identify(&server, "ann", json!({"plan": "pro"}));
    identify(&server, "bob", json!({}));
    let merge = json!([{"event": "$identify", "distinct_id": "ann", "properties": {"$anon_distinct_id": "anon"}}]);
    assert_eq!(server.capture(&merge).status, 200);
    let (path, uuid) = (path_of(&server, "anon"), find(&server, "ann").unwrap()["uuid"].clone());
    let answer = server.delete(&format!("{path}?delete_events=false"));
    assert_eq!((answer.status, answer.body.len()), (202, 0), "{answer}");
    for state in ["at once", "after a crash", "after an end"] {
        assert_eq!(server.get(&path).status, 404, "{state}");
        assert_eq!(
            server.get(&format!("{PERSONS}{}/", uuid.as_str().unwrap())).status,
            404,
            "{state}"
        );
        assert_eq!((find(&server, "ann"), find(&server, "anon")), (None, None), "{state}");
        assert_eq!(server.get(PERSONS).json()["count"], 1, "{state}");
        assert_eq!(server.delete(&path).status, 404, "{state}");
        assert_eq!(
            server.count("SELECT count(*) FROM events WHERE distinct_id = 'ann'"),
            2,
            "{state}"
        );
        match state {
            "at once" => server.kill(),
            _ => server.stop(),
        }
        server.restart();
    }
    // A new event is a new beginning, with none of what was there.
    assert_eq!(server.capture(&json!([{"event": "x", "distinct_id": "ann"}])).status, 200);
    let again = find(&server, "ann").expect("a new person");
    assert_eq!((properties(&again), &again["distinct_ids"]), (json!({}), &json!(["ann"])));
    assert_eq!(find(&server, "anon"), None);
    assert_eq!(server.get(PERSONS).json()["count"], 2);
}

#[test]
fn many_persons_are_deleted_at_once() {
    let server = TestServer::start();
    for id in ["a", "b", "c", "d"] {
        identify(&server, id, json!({}));
    }
    let bulk = |body: &Value| server.post(&format!("{PERSONS}bulk_delete/"), body);
    let uuid = find(&server, "a").unwrap()["uuid"].clone();
    let answer = bulk(&json!({"ids": [uuid, "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d"]}));
    assert_eq!(answer.status, 202, "{answer}");
    assert_eq!(
        (&answer.json()["persons_found"], &answer.json()["persons_deleted"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(bulk(&json!({"distinct_ids": ["b", "c", "nobody"]})).json()["persons_found"], 2);
    assert_eq!(server.get(PERSONS).json()["count"], 1);
    let many = vec!["x"; 1001];
    for (body, detail) in [
        (json!({"distinct_ids": many}), "You can only pass 1000 distinct_ids in one call"),
        (json!({"ids": many}), "You can only pass 1000 ids in one call"),
        (json!({}), "You need to specify either distinct_ids or ids"),
        (
            json!({"ids": [], "distinct_ids": []}),
            "You must provide either distinct_ids or ids, not both",
        ),
    ] {
        let answer = bulk(&body);
        assert_eq!((answer.status, &answer.json()["detail"]), (400, &json!(detail)));
    }
    assert_eq!(bulk(&json!({"ids": ["d"]})).json()["attr"], "ids");
    let reset = |body: &Value| server.post(&format!("{PERSONS}reset_person_distinct_id/"), body);
    assert_eq!(reset(&json!({"distinct_id": "b"})).status, 202);
    for body in [json!({}), json!({"distinct_id": ""}), json!({"distinct_id": 1})] {
        let answer = reset(&body);
        assert_eq!(
            (answer.status, &answer.json()["detail"]),
            (400, &json!("distinct_id is required"))
        );
    }
}

/// Goal: every way to delete or split a person with too many distinct ids is refused, and no other part
/// of that request is done.
#[test]
fn a_person_with_too_many_distinct_ids_is_refused_whole() {
    let server = TestServer::start();
    identify(&server, "ann", json!({}));
    let device = |number: u32| {
        let properties = json!({"$anon_distinct_id": format!("device-{number}")});
        json!({"event": "$identify", "distinct_id": "crowd", "properties": properties})
    };
    let devices: Vec<Value> = (0..50_000).map(device).collect();
    for devices in devices.chunks(10_000) {
        assert_eq!(server.capture(&json!(devices)).status, 200);
    }
    let (path, bulk) = (path_of(&server, "crowd"), format!("{PERSONS}bulk_delete/"));
    for answer in [
        server.delete(&path),
        server.delete(&format!("{path}?delete_events=true&keep_person=true")),
        server.post(&format!("{path}delete_events/"), &json!({})),
        server.post(&format!("{path}split/"), &json!({"main_distinct_id": "crowd"})),
        server.post(&bulk, &json!({"distinct_ids": ["ann", "crowd"]})),
    ] {
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("too_many_distinct_ids")));
    }
    assert!(find(&server, "ann").is_some());
    for id in ["crowd", "device-0", "device-49999"] {
        assert_eq!(path_of(&server, id), path, "{id}");
    }
}

/// Deletes a person, alone or in bulk; returns whether the response reports the deletion.
fn says_deleted(server: &TestServer, person: &Value, alone: bool) -> bool {
    if alone {
        let answer = server.delete(&format!("{PERSONS}{}/", person["id"]));
        assert!(matches!(answer.status, 202 | 404), "{answer}");
        return answer.status == 202;
    }
    let ids = json!({"ids": [person["uuid"]]});
    let told = server.post(&format!("{PERSONS}bulk_delete/"), &ids).json();
    let (found, deleted) = (&told["persons_found"], &told["persons_deleted"]);
    let is_told = match told["deletion_errors"].as_array().map(Vec::as_slice) {
        Some([]) => found == deleted,
        Some([gone]) => gone["person_uuid"] == person["uuid"] && *found == 1 && *deleted == 0,
        _ => false,
    };
    assert!(is_told, "{told}");
    *deleted == 1
}

/// A person may be merged into another while a request to delete it is under way. In either order the
/// response is true: a person reported as deleted is deleted, and a merged one is not reported as
/// deleted.
#[test]
fn who_is_merged_away_meanwhile_is_not_said_to_be_deleted() {
    let server = TestServer::start();
    let client = server.client();
    for round in 0..80 {
        let (device, user) = (format!("device {round}"), format!("user {round}"));
        identify(&server, &device, json!({"mark": round}));
        identify(&server, &user, json!({}));
        let device_encoded = device.replace(' ', "%20");
        let person = find(&server, &device_encoded).expect("a person");
        let merge = json!({"event": "$identify", "distinct_id": user, "properties": {"$anon_distinct_id": device}});
        let body = json!({"api_key": TOKEN, "batch": [merge]}).to_string();
        let (is_deleted, merged) = thread::scope(|scope| {
            let json_type = [("content-type", "application/json")];
            let merge = scope.spawn(move || {
                client.send("POST", "/batch/", &json_type, body.as_bytes()).expect("an answer")
            });
            (says_deleted(&server, &person, round % 2 == 0), merge.join().expect("a thread"))
        });
        assert_eq!(merged.status, 200, "{merged}");
        let survivor = find(&server, &user.replace(' ', "%20")).expect("the user");
        let was_merged = survivor["properties"].get("mark").is_some();
        assert_eq!(is_deleted, !was_merged, "{round}: {survivor}");
        if is_deleted {
            assert_eq!(server.get(&format!("{PERSONS}{}/", person["id"])).status, 404);
        }
    }
}

/// The timeline has the changes of the plan, computed from the events.
#[test]
fn the_timeline_begins_a_point_with_every_change() {
    let server = TestServer::start();
    let event = |hour: u32, name: &str, set: Value| json!({"event": name, "distinct_id": "ann", "timestamp": format!("2026-01-01T{hour:02}:00:00Z"), "properties": {"$set": set}});
    let sent = json!([
        event(1, "view", json!({"plan": "free"})),
        event(2, "view", json!({})),
        event(3, "buy", json!({"plan": "pro"})),
        event(4, "view", json!({"age": 3})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let path = path_of(&server, "ann");
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("date_from", "2026-01-01")
        .append_pair("date_to", "2026-01-02")
        .append_pair("properties", r#"[{"key": "plan", "value": "pro", "type": "person"}]"#)
        .finish();
    let timeline = server.get(&format!("{path}properties_timeline/?{query}"));
    assert_eq!(timeline.status, 200, "{timeline}");
    assert_eq!(
        timeline.json(),
        json!({
            "points": [
                {"timestamp": "2026-01-01T01:00:00.000000Z", "properties": {"plan": "free"}, "relevant_event_count": 2},
                {"timestamp": "2026-01-01T03:00:00.000000Z", "properties": {"plan": "pro"}, "relevant_event_count": 2},
            ],
            "crucial_property_keys": ["plan"],
            "effective_date_from": "2026-01-01T00:00:00+00:00",
            "effective_date_to": "2026-01-02T23:59:59.999999+00:00",
        })
    );
    for (interval, to) in [
        ("", "2026-01-31T23:59:59.999999+00:00"),
        ("&interval=hour", "2026-01-31T00:59:59.999999+00:00"),
        ("&interval=week", "2026-02-06T23:59:59.999999+00:00"),
        ("&interval=month", "2026-02-27T23:59:59.999999+00:00"),
    ] {
        let query = format!("date_from=2026-01-31&date_to=2026-01-31{interval}");
        let timeline = server.get(&format!("{path}properties_timeline/?{query}")).json();
        assert_eq!(timeline["effective_date_to"], to, "one interval from one point in time");
    }
    for (query, attr) in [
        ("date_from=soon", "date_from"),
        ("properties=x", "properties"),
        ("events=[1", "events"),
        ("events=[{%22id%22:4,%22type%22:%22actions%22}]", "events"),
        ("actions=[{%22id%22:4}]", "actions"),
        ("aggregation_group_type_index=5", "aggregation_group_type_index"),
    ] {
        let refused = server.get(&format!("{path}properties_timeline/?{query}"));
        assert_eq!((refused.status, &refused.json()["attr"]), (400, &json!(attr)), "{query}");
    }
}

fn timeline(server: &TestServer, path: &str, query: &[(&str, &str)]) -> Value {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    let answer = server.get(&format!("{path}properties_timeline/?{query}"));
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

/// Time of the day, a property and the number of events of each point.
fn points(timeline: &Value, key: &str) -> Vec<(String, Value, u64)> {
    let points = timeline["points"].as_array().expect("points").iter();
    points
        .map(|point| {
            let time = &point["timestamp"].as_str().expect("a time")[11..16];
            let count = point["relevant_event_count"].as_u64().expect("a number");
            (time.to_owned(), point["properties"][key].clone(), count)
        })
        .collect()
}

/// All events that set properties of a person do so in its timeline, and days are in the time zone of
/// the project.
#[test]
fn the_timeline_knows_what_events_say_and_the_time_zone_of_the_project() {
    let server = TestServer::start();
    let berlin = json!({"timezone": "Europe/Berlin"});
    assert_eq!(server.patch("/api/projects/@current/", &berlin).status, 200);
    let view = |time: &str, properties: Value| json!({"event": "$pageview", "distinct_id": "ann", "timestamp": time, "properties": properties});
    let sent = json!([
        // The first of May in Berlin, the last of April in London.
        view("2026-04-30T22:30:00Z", json!({"$browser": "Firefox", "utm_source": "mail"})),
        view("2026-05-01T10:00:00Z", json!({"$browser": "Firefox"})),
        view("2026-05-01T11:00:00Z", json!({"$browser": "Safari", "utm_source": "ad"})),
        // The second.
        view("2026-05-01T22:30:00Z", json!({"utm_source": "friend"})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let path = path_of(&server, "ann");
    let day = [("date_from", "2026-05-01"), ("date_to", "2026-05-01")];
    let by_source =
        [&day[..], &[("breakdown_type", "person"), ("breakdown", "utm_source")]].concat();
    let told = timeline(&server, &path, &by_source);
    let expected = [("22:30".into(), json!("mail"), 2), ("11:00".into(), json!("ad"), 1)];
    assert_eq!(points(&told, "utm_source"), expected);
    assert_eq!(told["effective_date_from"], "2026-05-01T00:00:00+02:00");
    assert_eq!(told["effective_date_to"], "2026-05-01T23:59:59.999999+02:00");
    // All that the person had, not the crucial alone.
    let first = &told["points"][0]["properties"];
    assert_eq!(
        (&first["$initial_browser"], &first["$initial_utm_source"]),
        (&json!("Firefox"), &json!("mail"))
    );
    let listed =
        [&day[..], &[("breakdown_type", "person"), ("breakdown", r#"["utm_source", "plan"]"#)]]
            .concat();
    assert_eq!(
        timeline(&server, &path, &listed)["crucial_property_keys"],
        json!(["plan", "utm_source"])
    );
}

#[test]
fn the_timeline_of_groups_is_of_those_that_the_events_belong_to() {
    let server = TestServer::start();
    let at = |hour: u32| format!("2026-01-01T{hour:02}:00:00Z");
    let group = |hour: u32, kind: &str, key: Value, set: Value| json!({"event": "$groupidentify", "distinct_id": "backend", "timestamp": at(hour), "properties": {"$group_type": kind, "$group_key": key, "$group_set": set}});
    let event = |hour: u32, groups: Value| json!({"event": "view", "distinct_id": "ann", "timestamp": at(hour), "properties": {"$groups": groups}});
    let sent = json!([
        group(1, "company", json!("acme"), json!({"plan": "free", "seats": 3})),
        group(1, "company", json!(7), json!({"plan": "team"})),
        event(2, json!({"company": "acme", "channel": "general"})),
        group(3, "channel", json!("acme"), json!({"plan": "of another type"})),
        event(4, json!({"company": "acme"})),
        group(5, "company", json!("acme"), json!({"plan": "pro"})),
        group(5, "company", json!("umbrella"), json!({"plan": "evil"})),
        event(5, json!({"company": "acme"})),
        event(6, json!({"company": 7})),
        event(7, json!({})),
        event(8, json!({"company": "acme"})),
        group(9, "company", json!("acme"), json!({"plan": "later"})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let path = path_of(&server, "ann");
    let plan = r#"[{"key": "plan", "value": "pro", "type": "group", "group_type_index": 0}, {"key": "own", "value": 1, "type": "person"}]"#;
    let query = [
        ("date_from", "2026-01-01"),
        ("date_to", "2026-01-02"),
        ("properties", plan),
        ("aggregation_group_type_index", "0"),
    ];
    let told = timeline(&server, &path, &query);
    assert_eq!(told["crucial_property_keys"], json!(["plan"]));
    let expected = [
        ("02:00", json!("free"), 2),
        ("05:00", json!("pro"), 1),
        ("06:00", json!("team"), 1),
        ("07:00", json!(null), 1),
        ("08:00", json!("pro"), 1),
    ];
    assert_eq!(
        points(&told, "plan"),
        expected.map(|(time, plan, count)| (time.into(), plan, count))
    );
    assert_eq!(told["points"][1]["properties"], json!({"plan": "pro", "seats": 3}));
    // A type that there is not: no event belongs to one.
    let other = [&query[..3], &[("aggregation_group_type_index", "4")]].concat();
    let told = timeline(&server, &path, &other);
    assert_eq!(points(&told, "plan"), [("02:00".into(), json!(null), 6)]);
}

/// Undoes merges that joined too many: some ids leave, the others stay together.
#[test]
fn some_distinct_ids_are_split_off() {
    let mut server = TestServer::start();
    let merge = |other: &str| json!([{"event": "$identify", "distinct_id": "ann", "properties": {"$anon_distinct_id": other}}]);
    identify(&server, "ann", json!({"plan": "pro"}));
    for other in ["tablet", "phone", "kiosk"] {
        assert_eq!(server.capture(&json!([{"event": "x", "distinct_id": other}])).status, 200);
        assert_eq!(server.capture(&merge(other)).status, 200);
    }
    let path = path_of(&server, "ann");
    let split = |body: Value| server.post(&format!("{path}split/"), &body);
    for (body, attr, detail) in [
        (json!("kiosk"), json!("distinct_ids_to_split"), "must be a list of strings"),
        (json!([1]), json!("distinct_ids_to_split"), "must be a list of strings"),
        (json!([]), json!("distinct_ids_to_split"), "must not be empty"),
        (
            json!(["zoe", "kiosk", "bob"]),
            json!("distinct_ids_to_split"),
            "not on this person: ['bob', 'zoe']",
        ),
        (
            json!(["ann", "tablet", "phone", "kiosk"]),
            json!("distinct_ids_to_split"),
            "must leave the person at least one distinct id",
        ),
    ] {
        let answer = split(json!({"distinct_ids_to_split": body}));
        let expected = json!({"type": "validation_error", "code": "invalid_input", "detail": detail, "attr": attr});
        assert_eq!((answer.status, answer.json()), (400, expected), "{body}");
    }
    let both = split(json!({"main_distinct_id": "ann", "distinct_ids_to_split": ["kiosk"]}));
    let detail = "main_distinct_id cannot be combined with distinct_ids_to_split";
    assert_eq!((both.status, &both.json()["detail"]), (400, &json!(detail)));
    for (body, detail) in [
        (json!("zoe"), "The person has no distinct id \"zoe\"."),
        (json!(1), "Not a valid string."),
    ] {
        let answer = split(json!({"main_distinct_id": body}));
        assert_eq!((answer.status, &answer.json()["detail"]), (400, &json!(detail)));
        assert_eq!(answer.json()["attr"], "main_distinct_id");
    }
    assert_eq!(
        find(&server, "kiosk").unwrap()["distinct_ids"],
        json!(["ann", "tablet", "phone", "kiosk"])
    );

    let answer = split(json!({"distinct_ids_to_split": ["kiosk", "tablet"]}));
    assert_eq!((answer.status, &answer.json()["success"]), (201, &json!(true)), "{answer}");
    assert_eq!(answer.json()["distinct_ids"], json!(["ann", "phone"]));
    for state in ["at once", "after a crash", "after an end"] {
        let ann = find(&server, "ann").expect("ann");
        assert_eq!(ann["distinct_ids"], json!(["ann", "phone"]), "{state}");
        assert_eq!(
            (path_of(&server, "phone"), &properties(&ann)),
            (path.clone(), &json!({"plan": "pro"}))
        );
        for id in ["kiosk", "tablet"] {
            let alone = find(&server, id).expect("a person");
            assert_eq!(
                (&alone["distinct_ids"], properties(&alone)),
                (&json!([id]), json!({})),
                "{state}"
            );
            let own = format!(
                "SELECT count(*) FROM events WHERE distinct_id = '{id}' AND person_id = '{}'",
                alone["uuid"].as_str().unwrap()
            );
            assert_eq!(server.count(&own), 1, "{state}: {id}");
        }
        let kept = format!(
            "SELECT count(*) FROM events WHERE distinct_id = 'phone' AND person_id = '{}'",
            ann["uuid"].as_str().unwrap()
        );
        assert_eq!(server.count(&kept), 1, "{state}");
        match state {
            "at once" => server.kill(),
            _ => server.stop(),
        }
        server.restart();
    }
    // The id that the person's uuid was made from may leave as well.
    let uuid = find(&server, "ann").unwrap()["uuid"].clone();
    assert_eq!(
        server.post(&format!("{path}split/"), &json!({"distinct_ids_to_split": ["ann"]})).status,
        201
    );
    assert_eq!(
        (find(&server, "ann").unwrap()["uuid"].clone(), path_of(&server, "phone")),
        (uuid, path)
    );
}
