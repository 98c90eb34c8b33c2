//! Imports over HTTP: events keep their times to the microsecond, whenever they are sent, also after a crash, and what a
//! list of events returns is the same event in another project.

use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer};

const EVENTS: &str = "/events/?limit=100&after=2000-01-01";

fn listed(server: &TestServer, project: u8) -> Vec<Value> {
    let page = server.get(&format!("/api/projects/{project}{EVENTS}")).json();
    let mut events = page["results"].as_array().expect("results").clone();
    events.sort_by_key(|event| event["id"].to_string());
    events
}

fn batch(server: &TestServer, body: &Value) {
    let answer = server.post("/batch/", body);
    assert_eq!(answer.status, 200, "{answer}");
}

#[test]
fn imported_events_keep_their_times() {
    let mut server = TestServer::start();
    let times = [
        "2020-01-02T12:00:00Z",
        "2020-01-02T12:00:00.000001Z",
        "2020-01-02T12:00:00.999999+05:30",
        "2040-01-02T12:00:00.123456Z",
        "1999-12-31T23:59:59.999999Z",
    ];
    let expected = [
        "2020-01-02T12:00:00.000000Z",
        "2020-01-02T12:00:00.000001Z",
        "2020-01-02T06:30:00.999999Z",
        "2040-01-02T12:00:00.123456Z",
        "1999-12-31T23:59:59.999999Z",
    ];
    let event = |(number, time): (usize, &&str)| {
        json!({"event": format!("e{number}"), "distinct_id": "ada", "timestamp": time,
               "sent_at": "2021-01-01T00:00:00Z", "offset": 5000})
    };
    let events: Vec<Value> = times.iter().enumerate().map(event).collect();
    // As a batch with a clock that is wrong, as an array of events that say it themselves, and by the newer protocol.
    batch(
        &server,
        &json!({"api_key": TOKEN, "historical_migration": true,
                           "sent_at": "2021-01-01T00:00:00Z", "batch": events}),
    );
    let own = events.iter().map(|event| {
        let mut event = event.clone();
        event["historical_migration"] = json!(true);
        event["api_key"] = json!(TOKEN);
        event
    });
    batch(&server, &Value::Array(own.collect()));
    let newer = |(number, time): (usize, &&str)| {
        json!({"event": format!("e{number}"), "distinct_id": "ada", "timestamp": time, "properties": {},
               "uuid": uuid::Uuid::from_u128(100 + u128::try_from(number).unwrap())})
    };
    let newer: Vec<Value> = times.iter().enumerate().map(newer).collect();
    let body =
        json!({"created_at": "2021-01-01T00:00:00Z", "historical_migration": true, "batch": newer});
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("user-agent", "posthog-test/1.0.0"),
        ("posthog-sdk-info", "posthog-test/1.0.0"),
        ("posthog-attempt", "1"),
        ("posthog-request-id", "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d"),
        ("posthog-request-timestamp", "2021-01-01T00:00:00Z"),
    ];
    let answer = server.send("POST", "/i/v1/analytics/events", &headers, body.to_string());
    assert_eq!(answer.status, 200, "{answer}");
    for state in ["at once", "after a crash"] {
        for (number, time) in expected.iter().enumerate() {
            let path = format!(
                "/api/projects/1/events/?event=e{number}&after=1990-01-01&before=2050-01-01"
            );
            let page = server.get(&path).json();
            let found: Vec<&str> = page["results"]
                .as_array()
                .expect("results")
                .iter()
                .map(|event| event["timestamp"].as_str().expect("a time"))
                .collect();
            assert_eq!(found, [*time; 3], "{state}: {number}");
        }
        if state == "at once" {
            server.kill();
            server.restart();
        }
    }
}

#[test]
fn what_a_list_returns_is_the_same_event_elsewhere() {
    let mut server = TestServer::start();
    let (_, other) = server.project("Other");
    batch(
        &server,
        &json!({"api_key": TOKEN, "sent_at": "2026-01-01T00:00:00Z", "batch": [
            {"event": "$autocapture", "distinct_id": "ada", "timestamp": "2026-01-01T00:00:00.123456Z",
             "properties": {"$elements": [{"tag_name": "a", "$el_text": "Go \"now\"", "attr__class": "b a"}],
                            "$ip": "198.51.100.7", "token": TOKEN}},
            {"event": "$identify", "distinct_id": "ada", "$set": {"email": "ada@x.org"},
             "properties": {"$anon_distinct_id": "anon", "$set_once": {"first": 1}, "$os": "iOS"}},
            {"event": "personless", "distinct_id": "bob", "properties": {"$process_person_profile": false}},
            {"event": "grouped", "distinct_id": "carl", "properties": {"$groups": {"company": "acme"},
             "deep": [[{"a": null}]], "big": 12_345_678_901_234_567_890_u64, "text": "\u{1F600}\u{0}\"\\"}},
            {"event": "sent by whoever", "distinct_id": 17, "properties": {"$elements_chain": "a:href=\"/\""}},
        ]}),
    );
    let first = listed(&server, 1);
    assert_eq!(first.len(), 5);
    for body in [
        json!({"api_key": other, "historical_migration": true, "sent_at": "2020-01-01T00:00:00Z", "batch": first}),
        json!({"api_key": other, "historical_migration": true, "batch": first}),
    ] {
        batch(&server, &body);
        let second = listed(&server, 2);
        assert_eq!(second.len(), first.len(), "twice is once");
        for (own, other) in first.iter().zip(&second) {
            for field in ["id", "distinct_id", "event", "timestamp", "elements_chain", "properties"]
            {
                assert_eq!(own[field], other[field], "{field} of {own}");
            }
            let person = |event: &Value| {
                (event["person"]["properties"].clone(), event["person"]["is_identified"].clone())
            };
            assert_eq!(person(own), person(other), "{own}");
        }
        server.kill();
        server.restart();
        assert_eq!(listed(&server, 2), second, "the same after a replay");
    }
    let columns = "SELECT uuid, event, distinct_id, timestamp, elements_chain, properties.\"$os\" AS os, ip FROM events ORDER BY uuid";
    let rows = |project: u8| {
        let query = json!({"query": {"kind": "HogQLQuery", "query": columns}});
        let answer = server.post(&format!("/api/projects/{project}/query/"), &query);
        answer.json()["results"].clone()
    };
    assert_eq!(rows(1), rows(2));
}
