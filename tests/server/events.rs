//! Events and groups over HTTP: the newest, one, values; groups by type.

use serde_json::{Value, json};

use crate::harness::TestServer;

const EVENTS: &str = "/api/projects/@current/events/";
const GROUPS: &str = "/api/projects/@current/groups/";

fn with(path: &str, query: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("{path}?{query}")
}

/// Event `number`, older the smaller its number.
fn event(number: u32) -> Value {
    let day = 1 + number / 24;
    json!({
        "event": if number.is_multiple_of(2) { "even" } else { "odd" },
        "uuid": format!("0192f0c1-7f3a-7b9e-8a53-{number:012}"),
        "distinct_id": format!("person {}", number % 3),
        "timestamp": format!("2026-03-{day:02}T{:02}:00:00Z", number % 24),
        "properties": {"n": number, "kind": format!("k{}", number % 5), "deep": {"a": [number]}},
    })
}

fn numbers(page: &Value) -> Vec<u64> {
    let results = page["results"].as_array().unwrap_or_else(|| panic!("no results: {page}"));
    results.iter().map(|event| event["properties"]["n"].as_u64().expect("n")).collect()
}

fn list(server: &TestServer, query: &[(&str, &str)]) -> Value {
    let answer = server.get(&with(EVENTS, query));
    assert_eq!(answer.status, 200, "{query:?}: {answer}");
    answer.json()
}

/// Half of the events in files, half in memory; then all of them read again from files.
#[test]
fn the_newest_come_first_wherever_they_are_stored() {
    let mut server = TestServer::start();
    // The oldest come last, so that the order of arrival is not the order of time.
    let later: Vec<Value> = (100..200).map(event).collect();
    assert_eq!(server.capture(&Value::Array(later)).status, 200);
    server.stop();
    server.restart();
    let earlier: Vec<Value> = (0..100).map(event).collect();
    assert_eq!(server.capture(&Value::Array(earlier)).status, 200);
    for round in ["half in files", "all in files"] {
        let page = list(&server, &[("limit", "3")]);
        assert_eq!(numbers(&page), [199, 198, 197], "{round}");
        assert!(page["next"].as_str().is_some_and(|next| next.contains("offset=3")), "{page}");
        for (query, expected) in [
            (vec![("limit", "2"), ("offset", "99")], vec![100, 99]),
            (vec![("limit", "2"), ("event", "odd")], vec![199, 197]),
            (vec![("limit", "2"), ("distinct_id", "person 0")], vec![198, 195]),
            (vec![("limit", "2"), ("before", "2026-03-02T00:00:00Z")], vec![23, 22]),
            (vec![("limit", "3"), ("after", "2026-03-09T05:00:00Z"), ("event", "even")], vec![198]),
            (vec![("after", "2026-04-01T00:00:00Z")], vec![]),
            (
                vec![("limit", "2"), ("properties", r#"[{"key": "kind", "value": "k4"}]"#)],
                vec![199, 194],
            ),
            (vec![("properties", r#"[{"key": "n", "operator": "lt", "value": 2}]"#)], vec![1, 0]),
            (
                vec![
                    ("limit", "1"),
                    ("properties", r#"[{"key": "plan", "value": "pro", "type": "person"}]"#),
                ],
                vec![],
            ),
        ] {
            assert_eq!(numbers(&list(&server, &query)), expected, "{round}: {query:?}");
        }
        assert_eq!(numbers(&list(&server, &[("limit", "1000")])).len(), 200, "{round}");
        server.stop();
        server.restart();
    }
}

#[test]
fn an_event_is_told_with_its_person_and_exactly_as_it_was_sent() {
    let server = TestServer::start();
    let sent = json!([
        {"event": "$identify", "distinct_id": "ann", "timestamp": "2026-03-01T00:00:00Z", "properties": {"$set": {"email": "ann@corp.com", "age": 7}}},
        event(30),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let id = "0192f0c1-7f3a-7b9e-8a53-000000000030";
    let found = server.get(&format!("{EVENTS}{id}/"));
    assert_eq!(found.status, 200, "{found}");
    let found = found.json();
    assert_eq!((&found["id"], &found["event"]), (&json!(id), &json!("even")));
    assert_eq!(found["timestamp"], "2026-03-02T06:00:00.000000Z");
    assert_eq!(found["properties"]["deep"], json!({"a": [30]}));
    assert_eq!(found["person"]["distinct_ids"], json!(["person 0"]));
    let page = list(&server, &[("distinct_id", "ann")]);
    assert_eq!(page["results"][0]["person"]["properties"], json!({"email": "ann@corp.com"}));
    assert_eq!(page["results"][0]["person"]["is_identified"], json!(false), "nobody was merged");
    let person = page["results"][0]["person"]["uuid"].as_str().expect("a person");
    assert_eq!(
        list(&server, &[("person_id", person)])["results"].as_array().map(Vec::len),
        Some(1)
    );
    let mine = r#"[{"key": "email", "value": "corp", "operator": "icontains", "type": "person"}]"#;
    assert_eq!(list(&server, &[("properties", mine)])["results"].as_array().map(Vec::len), Some(1));

    let table = list(
        &server,
        &[("select", r#"["event", "properties.n", "timestamp"]"#), ("event", "even")],
    );
    assert_eq!(table["columns"], json!(["event", "properties.n", "timestamp"]));
    assert_eq!(table["results"], json!([["even", 30, "2026-03-02T06:00:00.000000Z"]]));

    let missing = server.get(&format!("{EVENTS}0192f0c1-7f3a-7b9e-8a53-00000000abcd/"));
    assert_eq!((missing.status, &missing.json()["code"]), (404, &json!("not_found")));
    let wrong = server.get(&format!("{EVENTS}purchase/"));
    assert_eq!((wrong.status, &wrong.json()["detail"]), (400, &json!("Invalid UUID")));
    for query in [
        ("before", "soon"),
        ("select", "event"),
        ("select", r#"["nothing"]"#),
        ("person_id", "ann"),
        ("properties", "{"),
        ("orderBy", "[\"uuid\"]"),
    ] {
        let answer = server.get(&with(EVENTS, &[query]));
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(query.0)), "{query:?}");
    }
}

/// PostHog's filters of events other than properties of events and persons: cohorts, the person's row,
/// flags.
#[test]
fn events_are_found_by_cohorts_persons_and_flags() {
    let server = TestServer::start();
    let event = |number: u32, id: &str, more: Value| {
        let mut event = json!({
            "event": "seen", "distinct_id": id, "timestamp": format!("2026-03-01T00:00:{number:02}Z"),
            "properties": {"n": number},
        });
        let all = event["properties"].as_object_mut().expect("properties");
        all.extend(more.as_object().expect("properties").clone());
        event
    };
    let pro = json!({"$set": {"plan": "pro"}, "$feature/beta": "test"});
    let batch = json!([
        event(1, "ann", pro),
        event(2, "bob", json!({"$set": {"plan": "free"}, "$feature/beta": "control"})),
        event(3, "ann", json!({"$feature/beta": "control"})),
        event(4, "nobody", json!({"$process_person_profile": false})),
    ]);
    assert_eq!(server.capture(&batch).status, 200);
    let identify = json!({
        "event": "$identify", "distinct_id": "bob", "timestamp": "2026-02-01T00:00:00Z",
        "properties": {"n": 0, "$anon_distinct_id": "device"},
    });
    assert_eq!(server.capture(&json!([identify])).status, 200);
    let cohort = |body: &Value| {
        let made = server.post("/api/projects/@current/cohorts/", body);
        assert_eq!(made.status, 201, "{made}");
        made.json()["id"].clone()
    };
    let rule = json!({"key": "plan", "value": "pro", "type": "person"});
    let rule = json!({"properties": {"type": "AND", "values": [rule]}});
    let pros = cohort(&json!({"name": "pros", "filters": rule}));
    for (filters, expected) in [
        (json!([{"key": "id", "type": "cohort", "value": pros}]), vec![3, 1]),
        (
            json!([{"key": "id", "type": "cohort", "value": pros, "operator": "not_in"}]),
            vec![4, 2, 0],
        ),
        (json!([{"key": "id", "type": "cohort", "value": 99}]), vec![]),
        (
            json!([{"key": "id", "type": "cohort", "value": pros},
                   {"key": "n", "operator": "gt", "value": 1}]),
            vec![3],
        ),
        (json!([{"key": "is_identified", "type": "person_metadata", "value": "true"}]), vec![2, 0]),
        (json!([{"key": "$feature/beta", "type": "feature", "value": "control"}]), vec![3, 2]),
    ] {
        let page = list(&server, &[("properties", &filters.to_string())]);
        assert_eq!(numbers(&page), expected, "{filters}");
    }
    for (filters, detail) in [
        (
            json!([{"key": "a", "type": "group", "value": 1}]),
            "A filter of the type group needs a group_type_index.",
        ),
        (
            json!([{"key": "1 = 1", "type": "hogql"}]),
            "Lists of events have no filters of the types session and hogql; an EventsQuery has.",
        ),
    ] {
        let refused = server.get(&with(EVENTS, &[("properties", &filters.to_string())]));
        let answer = refused.json();
        assert_eq!((refused.status, &answer["attr"]), (400, &json!("properties")), "{filters}");
        assert_eq!(answer["detail"], detail, "{filters}");
    }
}

/// djangorestframework-csv: columns by name, nested ones with dots, lines that end with CRLF.
#[test]
fn events_are_also_csv() {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!([event(1), event(2)])).status, 200);
    let file = server.get("/api/projects/@current/events.csv");
    assert_eq!(file.header("content-type"), Some("text/csv; charset=utf-8"), "{file}");
    let text = String::from_utf8(file.body).expect("UTF-8");
    let lines: Vec<Vec<&str>> =
        text.split_terminator("\r\n").map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    let mut sorted = lines[0].clone();
    sorted.sort_unstable();
    assert_eq!(sorted, lines[0]);
    let cell = |line: usize, column: &str| {
        let at = lines[0].iter().position(|name| *name == column);
        lines[line][at.unwrap_or_else(|| panic!("{column} is not in {text}"))]
    };
    for (line, number) in [(1, "2"), (2, "1")] {
        assert_eq!(cell(line, "properties.n"), number, "the newest first");
        assert_eq!(cell(line, "properties.deep.a.0"), number);
        assert_eq!(cell(line, "person.distinct_ids.0"), format!("person {number}"));
    }
    assert_eq!(cell(1, "timestamp"), "2026-03-01T02:00:00.000000Z");
    let one = server.get(&with(
        &format!("{EVENTS}0192f0c1-7f3a-7b9e-8a53-000000000001/"),
        &[("format", "json")],
    ));
    assert_eq!(one.json()["event"], "odd");
}

#[test]
fn values_of_properties_are_those_of_the_last_days() {
    let server = TestServer::start();
    let event = |kind: &str, browser: &str| json!({"event": "click", "distinct_id": "a", "properties": {"kind": kind, "$browser": browser}});
    let mut old = event("ancient", "Mosaic");
    old["timestamp"] = json!("2020-01-01T00:00:00Z");
    let sent =
        json!([event("one", "Chrome"), event("two", "Firefox"), event("two", "Chrome"), old]);
    assert_eq!(server.capture(&sent).status, 200);
    let values =
        |query: &[(&str, &str)]| server.get(&with(&format!("{EVENTS}values/"), query)).json();
    assert_eq!(values(&[("key", "kind")]), json!([{"name": "two"}, {"name": "one"}]));
    assert_eq!(values(&[("key", "$browser"), ("value", "FIRE")]), json!([{"name": "Firefox"}]));
    assert_eq!(values(&[("key", "kind"), ("event_name", "view")]), json!([]));
    assert_eq!(values(&[("key", "custom_event")]), json!([{"name": "click"}]));
    assert_eq!(values(&[]), json!([]));
}

/// Current properties of the groups, and the row of the event itself.
#[test]
fn events_are_filtered_by_their_groups_and_by_their_rows() {
    let server = TestServer::start();
    let group = |key: &str, set: Value| json!({"event": "$groupidentify", "distinct_id": "a", "properties": {"$group_type": "company", "$group_key": key, "$group_set": set}});
    let event = |n: u32, properties: Value| {
        let mut event = event(n);
        let own = event["properties"].as_object_mut().expect("an object");
        own.extend(properties.as_object().expect("an object").clone());
        event
    };
    let sent = json!([
        group("acme", json!({"plan": "free", "seats": 3})),
        event(0, json!({"$groups": {"company": "acme"}})),
        event(1, json!({"$groups": {"company": "umbrella"}, "$session_id": "s1"})),
        event(2, json!({"$groups": {"team": "acme"}})),
        event(3, json!({})),
        group("acme", json!({"plan": "pro"})),
        group("umbrella", json!({"plan": "free"})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let of_group = |operator: &str, key: &str, value: Value| json!({"key": key, "operator": operator, "value": value, "type": "group", "group_type_index": 0});
    let row = |operator: &str, key: &str, value: Value| json!({"key": key, "operator": operator, "value": value, "type": "event_metadata"});
    let own = json!([{"key": "n", "operator": "is_set"}]);
    for (filters, expected) in [
        (json!([of_group("exact", "plan", json!("pro"))]), vec![0]),
        (json!([of_group("in", "plan", json!(["pro", "free"]))]), vec![1, 0]),
        (json!([of_group("gt", "seats", json!(2))]), vec![0]),
        // Who has no such group, or one without the property, has another.
        (json!([own[0], of_group("is_not", "plan", json!("free"))]), vec![3, 2, 0]),
        (json!([own[0], of_group("not_in", "plan", json!(["pro", "free"]))]), vec![3, 2]),
        (json!([{"key": "plan", "value": "pro", "type": "group", "group_type_index": 1}]), vec![]),
        (
            json!({"type": "OR", "values": [of_group("exact", "plan", json!("pro")), {"key": "n", "value": 3}]}),
            vec![3, 0],
        ),
        (json!([row("exact", "event", json!("odd"))]), vec![3, 1]),
        (json!([row("in", "distinct_id", json!(["person 0", "person 2"]))]), vec![3, 2, 0]),
        (json!([row("exact", "$group_0", json!("umbrella"))]), vec![1]),
        (json!([own[0], row("is_set", "$group_1", json!(null))]), vec![2]),
        (json!([row("is_set", "$session_id", json!(null))]), vec![1]),
        (
            json!([own[0], row("is_date_before", "timestamp", json!("2026-03-01T01:30:00Z"))]),
            vec![1, 0],
        ),
    ] {
        let filters = filters.to_string();
        assert_eq!(numbers(&list(&server, &[("properties", &filters)])), expected, "{filters}");
    }
    for filters in [
        json!([{"key": "plan", "value": "pro", "type": "group"}]),
        json!([{"key": "nothing", "value": 1, "type": "event_metadata"}]),
        json!([{"key": "plan", "operator": "exact"}]),
        json!([{"key": "text", "value": "Buy", "type": "element"}]),
    ] {
        let answer = server.get(&with(EVENTS, &[("properties", &filters.to_string())]));
        assert_eq!(
            (answer.status, &answer.json()["attr"]),
            (400, &json!("properties")),
            "{filters}"
        );
    }
}

#[test]
fn groups_are_listed_found_and_described() {
    let server = TestServer::start();
    let group = |kind: &str, key: &str, set: Value| json!({"event": "$groupidentify", "distinct_id": "a", "properties": {"$group_type": kind, "$group_key": key, "$group_set": set}});
    let sent = json!([
        group("company", "acme", json!({"name": "Acme Inc", "size": 10})),
        group("company", "umbrella", json!({"name": "Umbrella", "size": 10, "evil": true})),
        group("channel", "general", json!({"name": "General"})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let types = server.get("/api/projects/@current/groups_types/").json();
    let types: Vec<_> = types
        .as_array()
        .expect("types")
        .iter()
        .map(|one| (one["group_type_index"].clone(), one["group_type"].clone()))
        .collect();
    assert_eq!(types, [(json!(0), json!("company")), (json!(1), json!("channel"))]);
    let page = server.get(&with(GROUPS, &[("group_type_index", "0")])).json();
    assert_eq!(page["count"], 2);
    let mut keys: Vec<_> = page["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["group_key"].as_str().unwrap())
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, ["acme", "umbrella"]);
    let found = server.get(&with(GROUPS, &[("group_type_index", "0"), ("search", "inc")])).json();
    assert_eq!(found["results"][0]["group_properties"], json!({"name": "Acme Inc", "size": 10}));
    let one = server
        .get(&with(
            &format!("{GROUPS}find/"),
            &[("group_type_index", "1"), ("group_key", "general")],
        ))
        .json();
    assert_eq!((&one["group_type_index"], &one["group_key"]), (&json!(1), &json!("general")));
    let other = server.get(&with(
        &format!("{GROUPS}find/"),
        &[("group_type_index", "0"), ("group_key", "general")],
    ));
    assert_eq!(other.status, 404);
    let properties = server.get(&format!("{GROUPS}property_definitions/")).json();
    assert_eq!(
        properties,
        json!({
            "0": [{"name": "name", "count": 2}, {"name": "size", "count": 2}, {"name": "evil", "count": 1}],
            "1": [{"name": "name", "count": 1}],
        })
    );
    let values = server.get(&with(
        &format!("{GROUPS}property_values/"),
        &[("group_type_index", "0"), ("key", "size")],
    ));
    assert_eq!(values.json(), json!([{"name": "10", "count": 2}]));
    let must = |name: &str| format!("You must pass ?{name}= in this API query");
    for (query, attr, code, detail) in [
        ("", "group_type_index", "required", must("group_type_index")),
        ("find/?group_key=acme", "group_type_index", "required", must("group_type_index")),
        ("find/?group_type_index=0", "group_key", "required", must("group_key")),
        ("property_values/?group_type_index=0", "key", "required", must("key")),
        ("property_values/?key=a", "group_type_index", "required", must("group_type_index")),
        (
            "?group_type_index=x",
            "group_type_index",
            "invalid_input",
            "A valid integer is required.".to_owned(),
        ),
    ] {
        let answer = server.get(&format!("{GROUPS}{query}"));
        let expected =
            json!({"type": "validation_error", "code": code, "detail": detail, "attr": attr});
        assert_eq!((answer.status, answer.json()), (400, expected), "{query}");
    }
}
