//! Persons over HTTP: list, filters, pages, CSV, retrieve, values. Expectations are those of the API
//! specification and of PostHog's API.

use std::io::Read;

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TOKEN, TestServer};

const PERSONS: &str = "/api/projects/@current/persons/";

/// The fields of a person in the order of the table in the API specification, then one additional field.
const FIELDS: [&str; 7] =
    ["id", "name", "distinct_ids", "properties", "created_at", "uuid", "is_identified"];

/// A path with a query.
fn with(path: &str, query: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("{path}?{query}")
}

/// Creates persons in this order of time, one second apart.
fn identify(server: &TestServer, persons: &[(&str, Value)]) {
    let event = |(second, (id, set)): (usize, &(&str, Value))| {
        json!({
            "event": "$identify", "distinct_id": id,
            "timestamp": format!("2026-01-01T00:00:{second:02}Z"),
            "properties": {"$set": set},
        })
    };
    let events: Vec<Value> = persons.iter().enumerate().map(event).collect();
    assert_eq!(server.capture(&Value::Array(events)).status, 200);
}

fn first_ids(page: &Value) -> Vec<&str> {
    let persons = page["results"].as_array().expect("results").iter();
    persons.map(|person| person["distinct_ids"][0].as_str().expect("an id")).collect()
}

fn list(server: &TestServer, query: &[(&str, &str)]) -> Value {
    let answer = server.get(&with(PERSONS, query));
    assert_eq!(answer.status, 200, "{query:?}: {answer}");
    answer.json()
}

fn people() -> Vec<(&'static str, Value)> {
    vec![
        ("ann", json!({"email": "ann@corp.com", "age": 41, "plan": "pro", "since": "2024-05-01"})),
        ("bob", json!({"email": "Bob@corp.com", "age": 29, "plan": "free", "beta": true})),
        ("eve", json!({"email": "eve@home.org", "age": "33", "plan": "free"})),
        ("dan", json!({"name": "Dan", "plan": "none"})),
    ]
}

fn check(answer: &Answer, status: u16, body: Value) {
    assert_eq!(answer.status, status, "{answer}");
    assert_eq!(answer.json(), body);
}

#[test]
fn a_list_has_the_newest_first_and_the_fields_in_their_order() {
    let server = TestServer::start();
    identify(&server, &people());
    let answer = server.get(PERSONS);
    let page = answer.json();
    assert_eq!(page["count"], 4);
    assert_eq!((&page["next"], &page["previous"]), (&Value::Null, &Value::Null));
    assert_eq!(first_ids(&page), ["dan", "eve", "bob", "ann"]);
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let mut at = 0;
    for field in FIELDS {
        let found = text[at..].find(&format!("\"{field}\":"));
        at += found.unwrap_or_else(|| panic!("{field} is missing or out of order in {text}"));
    }
    let dan = &page["results"][0];
    assert!(dan["id"].is_i64(), "{dan}");
    assert_eq!(dan["name"], "Dan");
    assert_eq!(dan["created_at"], "2026-01-01T00:00:03.000000Z");
    assert_eq!(page["results"][3]["name"], "ann@corp.com");
}

#[test]
fn pages_are_linked_by_absolute_addresses() {
    let server = TestServer::start();
    identify(&server, &people());
    let page = list(&server, &[("limit", "2"), ("search", "")]);
    assert_eq!((first_ids(&page), &page["count"]), (vec!["dan", "eve"], &json!(4)));
    assert_eq!(page["previous"], Value::Null);
    let next = page["next"].as_str().expect("a next page").to_owned();
    let url = server.url();
    assert!(next.starts_with(&format!("{url}{PERSONS}?")), "{next}");
    let path = next.strip_prefix(&url).unwrap();
    let page = server.get(path).json();
    assert_eq!((first_ids(&page), &page["next"]), (vec!["bob", "ann"], &Value::Null));
    let previous = page["previous"].as_str().expect("a previous page");
    let page = server.get(previous.strip_prefix(&url).unwrap()).json();
    assert_eq!(first_ids(&page), ["dan", "eve"]);
    for (query, expected) in [
        (vec![("offset", "3")], vec!["ann"]),
        (vec![("offset", "9")], vec![]),
        (vec![("limit", "1"), ("offset", "1"), ("properties", "[]")], vec!["eve"]),
        (vec![("limit", "1"), ("offset", "1"), ("email", "ann@corp.com")], vec![]),
    ] {
        assert_eq!(first_ids(&list(&server, &query)), expected, "{query:?}");
    }
}

#[test]
fn filters_find_whom_they_should() {
    let server = TestServer::start();
    identify(&server, &people());
    let uuid = list(&server, &[("distinct_id", "bob")])["results"][0]["uuid"].clone();
    let uuid = uuid.as_str().unwrap();
    for (name, value, expected) in [
        ("distinct_id", "eve", vec!["eve"]),
        ("distinct_id", "nobody", vec![]),
        ("email", "ann@corp.com", vec!["ann"]),
        ("email", "ANN@corp.com", vec![]),
        ("search", "CORP", vec!["bob", "ann"]),
        ("search", "dan", vec!["dan"]),
        ("search", uuid, vec!["bob"]),
        ("search", "da", vec![]),
    ] {
        let page = list(&server, &[(name, value)]);
        assert_eq!(first_ids(&page), expected, "{name}={value}");
        assert_eq!(page["count"], expected.len(), "{name}={value}");
    }
    let filter = |key: &str, operator: &str, value: Value| json!({"key": key, "operator": operator, "value": value, "type": "person"});
    let corp = filter("email", "icontains", json!("@CORP"));
    let free = json!({"key": "plan", "value": ["free"]});
    for (filters, expected) in [
        (json!([filter("email", "exact", json!("eve@home.org"))]), vec!["eve"]),
        (json!([free]), vec!["eve", "bob"]),
        (json!([filter("plan", "is_not", json!(["free", "none"]))]), vec!["ann"]),
        (json!([corp]), vec!["bob", "ann"]),
        (json!([filter("email", "not_icontains", json!("corp"))]), vec!["dan", "eve"]),
        (json!([filter("email", "regex", json!("^[ae].*[gm]$"))]), vec!["eve", "ann"]),
        (json!([filter("email", "not_regex", json!("^[ae]"))]), vec!["dan", "bob"]),
        (json!([filter("age", "gt", json!(30))]), vec!["eve", "ann"]),
        (json!([filter("age", "gte", json!(29))]), vec!["eve", "bob", "ann"]),
        (json!([filter("age", "lt", json!("30"))]), vec!["bob"]),
        (json!([filter("age", "lte", json!(33))]), vec!["eve", "bob"]),
        (json!([{"key": "beta", "operator": "is_set"}]), vec!["bob"]),
        (json!([{"key": "email", "operator": "is_not_set"}]), vec!["dan"]),
        (json!([filter("since", "is_date_exact", json!("2024-05-01"))]), vec!["ann"]),
        (json!([filter("since", "is_date_after", json!("2024-04-30"))]), vec!["ann"]),
        (json!([filter("since", "is_date_before", json!("2024-04-30"))]), vec![]),
        (json!([filter("beta", "exact", json!("true"))]), vec!["bob"]),
        (json!([corp, free]), vec!["bob"]),
        (json!({"type": "OR", "values": [corp, free]}), vec!["eve", "bob", "ann"]),
        (
            json!({"type": "AND", "values": [
                free,
                {"type": "OR", "values": [corp, filter("age", "exact", json!(33))]},
            ]}),
            vec!["eve", "bob"],
        ),
    ] {
        let page = list(&server, &[("properties", &filters.to_string())]);
        assert_eq!(first_ids(&page), expected, "{filters}");
        assert_eq!(page["count"], expected.len(), "{filters}");
    }
    // An array in a query may be written as one parameter for each item: all of them count.
    let (corp_list, free_list) = (json!([corp]).to_string(), json!([free]).to_string());
    let (corp, free) = (corp.to_string(), free.to_string());
    for values in [[&corp_list, &free_list], [&free_list, &corp_list], [&corp, &free]] {
        let query = values.map(|value| ("properties", value.as_str()));
        assert_eq!(first_ids(&list(&server, &query)), ["bob"], "{values:?}");
        let wrong = [query[0], ("properties", "{")];
        let answer = server.get(&with(PERSONS, &wrong));
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!("properties")));
    }
    // Links repeat all.
    let (all, page) = (json!([{"key": "plan", "operator": "is_set"}]).to_string(), ("limit", "1"));
    let found = list(&server, &[("properties", &all), ("properties", &free_list), page]);
    let next = found["next"].as_str().expect("a next page");
    let found = server.get(next.strip_prefix(&server.url()).unwrap()).json();
    assert_eq!((first_ids(&found), &found["count"]), (vec!["bob"], &json!(2)));
}

/// The filters of older versions of PostHog: lists of ids, email or distinct id, whether identified, time
/// of change.
#[test]
fn old_filters_find_whom_they_should() {
    let mut server = TestServer::start();
    identify(&server, &people());
    let anonymous =
        json!({"event": "seen", "distinct_id": "zoe", "timestamp": "2026-01-02T00:00:00Z"});
    let merged = json!({
        "event": "$identify", "distinct_id": "dan", "timestamp": "2026-01-01T00:00:03Z",
        "properties": {"$anon_distinct_id": "device"},
    });
    assert_eq!(server.capture(&json!([anonymous, merged])).status, 200);
    let field = |id: &str, name: &str| {
        let found = list(&server, &[("distinct_id", id)])["results"][0][name].clone();
        found.as_str().map_or_else(|| found.to_string(), str::to_owned)
    };
    let join = |name: &str, ids: &[&str]| {
        ids.iter().map(|id| field(id, name)).collect::<Vec<_>>().join(",")
    };
    let nobody = uuid::Uuid::from_u128(5).to_string();
    let (numbers, uuids) = (join("id", &["ann", "eve"]), join("uuid", &["ann", "bob"]));
    let more = format!(" {uuids} , {nobody},{uuids}");
    let all = vec!["zoe", "dan", "eve", "bob", "ann"];
    for (query, expected) in [
        (vec![("id", &*numbers)], vec!["eve", "ann"]),
        (vec![("id", "999999")], vec![]),
        (vec![("uuid", &*uuids)], vec!["bob", "ann"]),
        (vec![("uuid", &*more)], vec!["bob", "ann"]),
        (vec![("uuid", &*nobody)], vec![]),
        (vec![("id", &*numbers), ("uuid", &*uuids)], vec!["ann"]),
        (vec![("uuid", &*uuids), ("search", "bob")], vec!["bob"]),
        (vec![("uuid", &*uuids), ("limit", "1"), ("offset", "1")], vec!["ann"]),
        (vec![("key_identifier", "eve@home.org")], vec!["eve"]),
        (vec![("key_identifier", "eve")], vec!["eve"]),
        (vec![("key_identifier", "EVE@home.org")], vec![]),
        (vec![("is_identified", "true")], vec!["dan"]),
        (vec![("is_identified", "False")], vec!["zoe", "eve", "bob", "ann"]),
        (vec![("is_identified", "")], all.clone()),
        (vec![("is_identified", "0"), ("email", "ann@corp.com")], vec!["ann"]),
        (
            vec![("is_identified", "0"), ("properties", r#"[{"key": "plan", "value": "free"}]"#)],
            vec!["eve", "bob"],
        ),
        (vec![("is_identified", "false"), ("distinct_id", "dan")], vec![]),
        (vec![("updated_after", "2020-01-01")], all.clone()),
        (vec![("updated_after", "-1h")], all.clone()),
        (vec![("updated_after", "-1h"), ("search", "corp")], vec!["bob", "ann"]),
        (vec![("updated_after", "2100-01-01T00:00:00Z")], vec![]),
        (vec![("updated_after", "2100-01-01"), ("distinct_id", "ann")], vec![]),
    ] {
        let page = list(&server, &query);
        assert_eq!(first_ids(&page), expected, "{query:?}");
        if !query.iter().any(|(name, _)| *name == "limit") {
            assert_eq!(page["count"], expected.len(), "{query:?}");
        }
    }
    for (name, value, detail) in [
        ("id", "1,one", "A valid integer is required."),
        ("uuid", "1", "Must be a valid UUID."),
        ("is_identified", "perhaps", "Must be a valid boolean."),
        ("updated_after", "soon", "Expected a date and time, or a span such as -7d."),
    ] {
        let expected = json!({
            "type": "validation_error", "code": "invalid_input", "detail": detail, "attr": name,
        });
        check(&server.get(&with(PERSONS, &[(name, value)])), 400, expected);
    }
    server.kill();
    server.restart();
    assert_eq!(first_ids(&list(&server, &[("updated_after", "-1h")])), all);
    assert_eq!(list(&server, &[("updated_after", "2100-01-01")])["count"], 0);
}

#[test]
fn filters_that_cannot_be_read_are_told() {
    let server = TestServer::start();
    for (name, value) in [
        ("properties", "{"),
        ("properties", "7"),
        ("properties", r#"[{"key": "a", "operator": "sounds_like", "value": 1}]"#),
        ("properties", r#"[{"key": "a", "operator": "regex", "value": "("}]"#),
        ("properties", r#"[{"key": "a", "value": 1, "type": "event"}]"#),
        ("properties", r#"{"type": "NAND", "values": []}"#),
        ("cohort", "mine"),
    ] {
        let answer = server.get(&with(PERSONS, &[(name, value)]));
        assert_eq!(answer.status, 400, "{name}={value}: {answer}");
        let body = answer.json();
        assert_eq!((&body["type"], &body["attr"]), (&json!("validation_error"), &json!(name)));
    }
}

#[test]
fn a_person_is_retrieved_by_number_and_uuid() {
    let server = TestServer::start();
    identify(&server, &people());
    let anonymous = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
    let merge = json!([{
        "event": "$identify", "distinct_id": "zoe", "timestamp": "2026-01-02T00:00:00Z",
        "properties": {"$anon_distinct_id": anonymous},
    }]);
    assert_eq!(server.capture(&json!([{"event": "x", "distinct_id": anonymous}])).status, 200);
    assert_eq!(server.capture(&merge).status, 200);
    let listed = &list(&server, &[("distinct_id", "zoe")])["results"][0];
    assert_eq!(listed["distinct_ids"], json!([anonymous, "zoe"]), "in the order of attachment");
    for id in [listed["id"].to_string(), listed["uuid"].as_str().unwrap().to_owned()] {
        let answer = server.get(&format!("{PERSONS}{id}/"));
        assert_eq!(answer.status, 200, "{answer}");
        let person = answer.json();
        assert_eq!((&person["id"], &person["uuid"]), (&listed["id"], &listed["uuid"]));
        assert_eq!(person["distinct_ids"], json!(["zoe", anonymous]), "made-up ids last");
        assert_eq!(person["name"], "zoe");
        assert_eq!(server.get(&format!("/api/person/{id}")).json(), person, "the old path");
    }
    let missing = json!({"type": "invalid_request", "code": "not_found", "detail": "Not found.", "attr": null});
    check(&server.get(&format!("{PERSONS}999999/")), 404, missing.clone());
    check(&server.get(&format!("{PERSONS}{anonymous}/")), 404, missing);
    let wrong = json!({
        "type": "validation_error", "code": "invalid_input", "attr": null,
        "detail": "The ID provided does not look like a personID. If you are using a distinctId, please use /persons?distinct_id=<id> instead.",
    });
    check(&server.get(&format!("{PERSONS}zoe/")), 400, wrong);
}

#[test]
fn lists_and_persons_are_also_csv() {
    let server = TestServer::start();
    identify(
        &server,
        &[
            ("a,b", json!({"say": "\"hi\"", "nested": {"x": [1, {"y": null}]}, "none": {}})),
            ("c", json!({})),
        ],
    );
    let as_csv = |path: &str, headers: &[(&str, &str)]| {
        let bearer = format!("Bearer {KEY}");
        let headers = [&[("authorization", bearer.as_str())], headers].concat();
        let answer = server.send("GET", path, &headers, "");
        assert_eq!(answer.status, 200, "{path}: {answer}");
        assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8"), "{path}");
        String::from_utf8(answer.body).unwrap()
    };
    let file = as_csv(&with(PERSONS, &[("format", "csv"), ("limit", "1")]), &[]);
    let lines: Vec<&str> = file.split_terminator("\r\n").collect();
    assert_eq!(
        lines[0],
        "created_at,distinct_ids.0,id,is_identified,name,properties.$creator_event_uuid,properties.nested.x.0,properties.nested.x.1.y,properties.say,uuid"
    );
    assert_eq!(lines.len(), 3, "a head and every person, whatever the limit: {file}");
    assert!(lines[1].contains(",c,"), "the newest first: {file}");
    assert!(lines[2].contains(",\"a,b\",") && lines[2].contains(",1,,\"\"\"hi\"\"\","), "{file}");
    assert_eq!(as_csv("/api/projects/@current/persons.csv", &[]), file);
    assert_eq!(as_csv(PERSONS, &[("accept", "text/csv")]), file);
    let id = list(&server, &[("distinct_id", "c")])["results"][0]["id"].to_string();
    let one = as_csv(&format!("{PERSONS}{id}/?format=csv"), &[]);
    assert_eq!(one.split_terminator("\r\n").count(), 2, "{one}");
    let nobody = as_csv(&with(PERSONS, &[("format", "csv"), ("email", "x")]), &[]);
    assert_eq!(nobody, "");
    assert_eq!(server.get(&with(PERSONS, &[("format", "xml")])).status, 404);
}

/// PostHog compresses responses about persons, definitions and queries.
#[test]
fn long_answers_are_compressed_for_who_takes_it() {
    let server = TestServer::start();
    let text = "x".repeat(2000);
    identify(&server, &[("ann", json!({"text": text})), ("bob", json!({}))]);
    let bearer = format!("Bearer {KEY}");
    let ask = |method: &str, path: &str, encoding: &str, body: &str| {
        let headers = [
            ("authorization", bearer.as_str()),
            ("accept-encoding", encoding),
            ("content-type", "application/json"),
        ];
        let answer = server.send(method, path, &headers, body);
        assert_eq!(answer.status, 200, "{path}: {answer}");
        answer
    };
    let query = json!({"query": "SELECT properties FROM persons", "format": "csv"}).to_string();
    for (method, path, body) in [
        ("GET", PERSONS, ""),
        ("GET", "/api/projects/@current/persons.csv", ""),
        ("GET", "/api/projects/@current/events/", ""),
        ("POST", "/api/projects/@current/query/", query.as_str()),
    ] {
        let plain = ask(method, path, "identity", body);
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        let packed = ask(method, path, "gzip, br", body);
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(packed.header("vary"), Some("accept-encoding"), "{path}");
        assert!(packed.body.len() < plain.body.len() / 2, "{path}: {}", packed.body.len());
        let mut unpacked = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(packed.body.as_slice());
        decoder.read_to_end(&mut unpacked).expect("gzip");
        assert_eq!(unpacked, plain.body, "{path}");
    }
    let short = ask("GET", &with(PERSONS, &[("distinct_id", "nobody")]), "gzip", "");
    assert_eq!((short.header("content-encoding"), &short.json()["count"]), (None, &json!(0)));
}

#[test]
fn values_are_the_most_frequent_ones() {
    let server = TestServer::start();
    identify(&server, &people());
    let values =
        |query: &[(&str, &str)]| server.get(&with(&format!("{PERSONS}values/"), query)).json();
    assert_eq!(
        values(&[("key", "plan")]),
        json!([{"name": "free", "count": 2}, {"name": "none", "count": 1}, {"name": "pro", "count": 1}])
    );
    assert_eq!(values(&[("key", "plan"), ("value", "RO")]), json!([{"name": "pro", "count": 1}]));
    assert_eq!(values(&[("key", "beta")]), json!([{"name": "true", "count": 1}]));
    assert_eq!(values(&[]), json!([]));
    assert_eq!(values(&[("key", "nothing")]), json!([]));
}

/// PostHog's order of the properties that name a person.
#[test]
fn a_person_has_the_first_name_that_is_given() {
    let server = TestServer::start();
    let names = ["email", "Email", "$email", "name", "Name", "username", "Username", "UserName"];
    for first in 0..names.len() {
        // The ones before are there and say nothing.
        let value = |at: usize| if at < first { json!("") } else { json!(names[at]) };
        let set = (0..names.len()).map(|at| (names[at].to_owned(), value(at))).collect();
        identify(&server, &[("ann", Value::Object(set))]);
        let page = list(&server, &[("distinct_id", "ann")]);
        assert_eq!(page["results"][0]["name"], names[first]);
    }
    let ids = ["0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d", "bob"];
    let merge = json!([{"event": "$identify", "distinct_id": ids[1], "properties": {"$anon_distinct_id": ids[0]}}]);
    assert_eq!(server.capture(&merge).status, 200);
    assert_eq!(list(&server, &[("distinct_id", ids[0])])["results"][0]["name"], "bob");
}

#[test]
fn wrong_methods_and_wants_are_told() {
    let server = TestServer::start();
    let answer = server.post(PERSONS, &json!({}));
    let detail = "Creating persons via this API is not allowed. Please create persons by sending an $identify event.";
    check(
        &answer,
        405,
        json!({"type": "invalid_request", "code": "method_not_allowed", "detail": detail, "attr": null}),
    );
    assert_eq!(answer.header("allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(server.delete(PERSONS).header("allow"), Some("GET, HEAD, OPTIONS"));
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("accept", "text/html")];
    let answer = server.send("GET", PERSONS, &headers, "");
    assert_eq!((answer.status, answer.json()["code"].clone()), (406, json!("not_acceptable")));
}

#[test]
fn persons_are_listed_by_cohort_and_cohorts_by_person() {
    let server = TestServer::start();
    identify(&server, &people());
    let cohorts = "/api/projects/@current/cohorts/";
    let create = |body: Value| {
        let answer = server.post(cohorts, &body);
        assert_eq!(answer.status, 201, "{answer}");
        answer.json()["id"].as_i64().expect("an id")
    };
    let rule = |key: &str, value: Value| json!({"properties": {"type": "AND", "values": [{"key": key, "type": "person", "value": value}]}});
    let free = create(json!({"name": "free", "filters": rule("plan", json!("free"))}));
    let uuid = |id: &str| list(&server, &[("distinct_id", id)])["results"][0]["uuid"].clone();
    let listed = create(
        json!({"name": "listed", "is_static": true, "_create_static_person_ids": [uuid("ann"), uuid("bob")]}),
    );
    let nested = create(
        json!({"name": "both", "filters": {"properties": {"type": "AND", "values": [
            {"key": "id", "type": "cohort", "value": free}, {"key": "id", "type": "cohort", "value": listed},
        ]}}}),
    );
    let gone = create(json!({"name": "gone", "filters": rule("plan", json!("free"))}));
    assert_eq!(server.patch(&format!("{cohorts}{gone}/"), &json!({"deleted": true})).status, 200);
    for (cohort, expected) in [
        (free, vec!["eve", "bob"]),
        (listed, vec!["bob", "ann"]),
        (nested, vec!["bob"]),
        (gone, vec![]),
        (999_999, vec![]),
    ] {
        let cohort = cohort.to_string();
        let page = list(&server, &[("cohort", &cohort)]);
        assert_eq!((first_ids(&page), &page["count"]), (expected.clone(), &json!(expected.len())));
        let file = server.get(&with(PERSONS, &[("cohort", &cohort), ("format", "csv")]));
        let lines = String::from_utf8(file.body).unwrap().split_terminator("\r\n").count();
        assert_eq!(lines.saturating_sub(1), expected.len(), "{cohort}");
    }
    let both = [("cohort", &*free.to_string()), ("email", "eve@home.org")];
    assert_eq!(first_ids(&list(&server, &both)), ["eve"]);
    for (operator, expected) in [("in", vec!["eve", "bob"]), ("not_in", vec!["dan", "ann"])] {
        let filters = json!([{"key": "id", "type": "cohort", "value": free, "operator": operator}]);
        let page = list(&server, &[("properties", &filters.to_string())]);
        assert_eq!(first_ids(&page), expected, "{operator}");
    }
    let of = |id: &str| {
        let answer = server.get(&with(&format!("{PERSONS}cohorts/"), &[("person_id", id)]));
        assert_eq!(answer.status, 200, "{answer}");
        let mut ids: Vec<i64> = answer.json()["results"]
            .as_array()
            .expect("results")
            .iter()
            .map(|cohort| cohort["id"].as_i64().expect("an id"))
            .collect();
        ids.sort_unstable();
        ids
    };
    let number = list(&server, &[("distinct_id", "ann")])["results"][0]["id"].to_string();
    assert_eq!(
        (of(uuid("bob").as_str().unwrap()), of(&number)),
        (vec![free, listed, nested], vec![listed])
    );
    assert_eq!(of(uuid("dan").as_str().unwrap()), Vec::<i64>::new());
    for (query, status, code) in [
        (vec![], 400, "required"),
        (vec![("person_id", "")], 400, "required"),
        (vec![("person_id", "ann")], 400, "invalid_input"),
        (vec![("person_id", "999999")], 404, "not_found"),
    ] {
        let answer = server.get(&with(&format!("{PERSONS}cohorts/"), &query));
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{query:?}");
    }
}

#[test]
fn filters_and_values_see_what_was_acknowledged_just_before() {
    // In columns, without room for any, and with room for persons but not for the property.
    for bytes in ["512MiB", "0B", "40KiB"] {
        let server = TestServer::start_with(&[("WEIR_PERSON_COLUMNS_MEMORY_MAX_BYTES", bytes)]);
        identify(&server, &people());
        let having = |plan: &str| {
            let filter = json!([{"key": "plan", "value": plan, "operator": "exact"}]).to_string();
            let page = list(&server, &[("properties", &filter)]);
            assert_eq!(page["count"], first_ids(&page).len());
            first_ids(&page).iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()
        };
        let without = json!([{"key": "plan", "operator": "is_not_set"}]).to_string();
        let without = || list(&server, &[("properties", without.as_str())])["count"].clone();
        let capture = |event: Value| assert_eq!(server.capture(&json!([event])).status, 200);
        assert_eq!(having("free"), ["eve", "bob"]);
        for round in 0..20 {
            let plan = format!("plan {round} {}", "long ".repeat(1000));
            capture(
                json!({"event": "$set", "distinct_id": "bob", "properties": {"$set": {"plan": plan}}}),
            );
            assert_eq!(having(&plan), ["bob"], "{bytes} {round}");
            assert_eq!(having("free"), ["eve"]);
            let new = format!("new {round}");
            capture(
                json!({"event": "$set", "distinct_id": new, "properties": {"$set": {"plan": plan}}}),
            );
            assert_eq!(having(&plan), [new.as_str(), "bob"], "{bytes} {round}");
            let told = server
                .get(&with(&format!("{PERSONS}values/"), &[("key", "plan"), ("value", &plan)]));
            assert_eq!(told.json(), json!([{"name": plan, "count": 2}]));
            capture(
                json!({"event": "$merge_dangerously", "distinct_id": "bob", "properties": {"alias": new}}),
            );
            assert_eq!(having(&plan).len(), 1, "{bytes} {round}");
            assert_eq!(without(), 0);
            capture(
                json!({"event": "$set", "distinct_id": "bob", "properties": {"$unset": ["plan"]}}),
            );
            assert_eq!(having(&plan), [] as [&str; 0]);
            assert_eq!(without(), 1);
        }
        let eve = list(&server, &[("distinct_id", "eve")])["results"][0]["id"].to_string();
        let answer = server.send(
            "DELETE",
            &format!("{PERSONS}{eve}/"),
            &[("authorization", &format!("Bearer {KEY}"))],
            "",
        );
        assert_eq!(answer.status, 202, "{answer}");
        assert_eq!(having("free"), [] as [&str; 0]);
        let found = list(&server, &[("search", "CORP")]);
        assert_eq!(found["count"], 2, "{found}");
    }
}

/// Goal: a person created more than a day in the future is in no list, whatever the filter, with or
/// without a column for it; all others are, and the person is found by its distinct id.
#[test]
fn persons_from_the_future_are_in_no_list() {
    for bytes in ["512MiB", "0B"] {
        let server = TestServer::start_with(&[("WEIR_PERSON_COLUMNS_MEMORY_MAX_BYTES", bytes)]);
        let date = server.get(PERSONS).header("date").expect("a date").to_owned();
        let now = chrono::DateTime::parse_from_rfc2822(&date).expect("a date");
        for (id, ahead) in [("past", -48), ("soon", 20), ("future", 48)] {
            let event = json!({
                "event": "$identify", "uuid": uuid::Uuid::new_v4().to_string(), "distinct_id": id,
                "timestamp": (now + chrono::Duration::hours(ahead)).to_rfc3339(),
                "options": {"disable_skew_correction": true},
                "properties": {"$set": {"plan": "pro", "email": format!("{id}@corp.com")}},
            });
            let body = json!({"created_at": now.to_rfc3339(), "batch": [event]}).to_string();
            let (token, request) = (format!("Bearer {TOKEN}"), uuid::Uuid::new_v4().to_string());
            let (sent_at, attempt) = (now.to_rfc3339(), "1");
            let headers = [
                ("authorization", token.as_str()),
                ("content-type", "application/json"),
                ("user-agent", "posthog-python/7.91.1"),
                ("posthog-sdk-info", "posthog-python/7.91.1"),
                ("posthog-attempt", attempt),
                ("posthog-request-id", &request),
                ("posthog-request-timestamp", &sent_at),
            ];
            let answer = server.send("POST", "/i/v1/analytics/events", &headers, body);
            assert_eq!(answer.status, 200, "{answer}");
        }
        let pro = json!([{"key": "plan", "value": "pro", "operator": "exact"}]).to_string();
        let after = json!([{"key": "created_at", "type": "person_metadata", "value": "2020-01-01",
            "operator": "is_date_after"}]);
        let after = after.to_string();
        for query in
            [&[][..], &[("properties", &*pro)], &[("properties", &*after)], &[("search", "corp")]]
        {
            let page = list(&server, query);
            assert_eq!(page["count"], 2, "{bytes} {query:?}: {page}");
            assert_eq!(first_ids(&page), ["soon", "past"], "{bytes} {query:?}");
        }
        assert_eq!(list(&server, &[("email", "future@corp.com")])["count"], 0);
        let known = list(&server, &[("distinct_id", "future")]);
        assert_eq!(first_ids(&known), ["future"]);
    }
}
