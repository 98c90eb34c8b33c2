//! Identity resolution over HTTP: the same events give the same persons, however they are split
//! into requests and connections, and whenever the process is killed in between. The unit tests
//! compare persons with a model; these tests compare the variants with each other, and some cases
//! with PostHog's rules.
//!
//! `WEIR_IDENTITY_SEED` repeats the events of a run.

use std::collections::BTreeMap;
use std::thread;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::harness::{TOKEN, TestServer};

/// Sequences of events, each over distinct ids of its own.
const SEQUENCES: usize = 40;

/// Distinct ids of a sequence; the last one may not be merged.
const IDS: [&str; 5] = ["a", "b", "c", "d", "null"];

/// Flushes and merges files all the time, so that merged persons are resolved in files between
/// events.
const BUSY: [(&str, &str); 5] = [
    ("WEIR_MEMTABLE_MAX_AGE", "100ms"),
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB"),
    ("WEIR_COMPACTION_INTERVAL", "100ms"),
    ("WEIR_COMPACTION_FILES_MIN", "2"),
    ("WEIR_VACUUM_GRACE", "1s"),
];

#[derive(Clone, Debug)]
enum Step {
    Event(Value),
    /// Splits the person of a distinct id; it keeps the other id, if it has that.
    Split {
        of: String,
        main: Option<String>,
    },
}

/// How steps are sent.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In as few requests as possible.
    OneBatch,
    /// A few events per request.
    ManyBatches,
    /// One event per request, each from a new thread that starts when the last one has ended.
    Connections,
    /// A few events per request, with kills and restarts in between.
    Kills,
}

fn id(sequence: usize, random: &mut StdRng) -> String {
    match *IDS.choose(random).expect("some") {
        "null" => "null".to_owned(),
        name => format!("{sequence}-{name}"),
    }
}

fn properties(random: &mut StdRng) -> Map<String, Value> {
    let mut properties = Map::new();
    let pairs = [
        ("$set", json!({"plan": random.random_range(0..3), "$os": random.random_range(0..3)})),
        ("$set_once", json!({"first": random.random_range(0..3), "plan": "once"})),
        ("$unset", json!(["plan"])),
        ("$browser", json!(random.random_range(0..3))),
        ("utm_source", json!(random.random_range(0..3))),
        ("$process_person_profile", json!(false)),
    ];
    for (key, value) in pairs {
        if random.random_bool(0.3) {
            properties.insert(key.to_owned(), value);
        }
    }
    properties
}

fn steps(random: &mut StdRng) -> Vec<Step> {
    let mut steps = Vec::new();
    for sequence in 0..SEQUENCES {
        for number in 0..random.random_range(3..12) {
            // The splits of all sequences but the last are left out: they would part the batches.
            if sequence + 5 > SEQUENCES && random.random_bool(0.25) {
                let main = random.random_bool(0.5).then(|| id(sequence, random));
                steps.push(Step::Split { of: id(sequence, random), main });
                continue;
            }
            let names =
                ["$identify", "$create_alias", "$merge_dangerously", "page", "$set", "$exception"];
            let name = *names.choose(random).expect("some");
            let mut properties = properties(random);
            let other = match name {
                "$identify" => Some("$anon_distinct_id"),
                "$create_alias" | "$merge_dangerously" => Some("alias"),
                _ => None,
            };
            if let Some(key) = other {
                properties.insert(key.to_owned(), id(sequence, random).into());
                properties.remove("$process_person_profile");
            }
            steps.push(Step::Event(json!({
                "event": name,
                "uuid": Uuid::from_u128(random.random()),
                "distinct_id": id(sequence, random),
                "timestamp": format!("2026-01-{:02}T00:00:{number:02}Z", random.random_range(1..28)),
                "properties": properties,
            })));
        }
    }
    steps
}

fn send(server: &TestServer, batch: &[Value]) {
    let answer = server.capture(&Value::Array(batch.to_vec()));
    assert_eq!(answer.status, 200, "{answer}");
}

fn person(server: &TestServer, distinct_id: &str) -> Option<Value> {
    let answer = server.get(&format!("/api/projects/@current/persons/?distinct_id={distinct_id}"));
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()["results"].as_array().expect("a list").first().cloned()
}

fn split(server: &TestServer, of: &str, main: Option<&str>) {
    let Some(person) = person(server, of) else { return };
    let owns = |main: &&str| person["distinct_ids"].as_array().expect("ids").contains(&json!(main));
    let body = match main.filter(owns) {
        Some(main) => json!({"main_distinct_id": main}),
        None => json!({}),
    };
    let path = format!("/api/projects/@current/persons/{}/split/", person["id"]);
    let answer = server.post(&path, &body);
    assert_eq!(answer.status, 201, "{answer}");
}

fn play(server: &mut TestServer, steps: &[Step], way: Way, random: &mut StdRng) {
    let mut batch: Vec<Value> = Vec::new();
    for step in steps {
        let limit = match way {
            Way::OneBatch => usize::MAX,
            Way::ManyBatches | Way::Kills => random.random_range(1..8),
            Way::Connections => 1,
        };
        match step {
            Step::Event(event) => batch.push(event.clone()),
            Step::Split { of, main } => {
                send_all(server, &mut batch, way);
                split(server, of, main.as_deref());
            }
        }
        if batch.len() >= limit {
            send_all(server, &mut batch, way);
        }
        if matches!(way, Way::Kills) && random.random_bool(0.03) {
            server.kill();
            server.restart();
        }
    }
    send_all(server, &mut batch, way);
}

fn send_all(server: &TestServer, batch: &mut Vec<Value>, way: Way) {
    if batch.is_empty() {
        return;
    }
    match way {
        Way::Connections => {
            thread::scope(|scope| scope.spawn(|| send(server, batch)).join().expect("sends"));
        }
        _ => send(server, batch),
    }
    batch.clear();
}

/// All persons by distinct id, without values that depend on the server's clock.
fn persons(server: &TestServer, steps: &[Step]) -> BTreeMap<String, Value> {
    let ids = steps.iter().filter_map(|step| match step {
        Step::Event(event) => Some(event["distinct_id"].as_str().expect("text").to_owned()),
        Step::Split { .. } => None,
    });
    let mut found = BTreeMap::new();
    for id in ids {
        let mut person = person(server, &id).unwrap_or(Value::Null);
        if let Some(person) = person.as_object_mut() {
            // Those made by a split are as old as the split.
            if person["properties"].get("$creator_event_uuid").is_none() {
                person.remove("created_at");
            }
        }
        found.insert(id, person);
    }
    found
}

/// Every stored event belongs to the person of its distinct id, whatever compaction has resolved in
/// files.
fn assert_events_follow(server: &TestServer, persons: &BTreeMap<String, Value>) {
    let rows = server.query("SELECT DISTINCT distinct_id, person_id FROM events");
    let mut seen = BTreeMap::new();
    for row in rows {
        let id = row["distinct_id"].as_str().expect("text").to_owned();
        let other = seen.insert(id.clone(), row["person_id"].clone());
        assert_eq!(other, None, "the events of {id} belong to two persons");
        let person = &persons[&id];
        if !person.is_null() {
            assert_eq!(row["person_id"], person["uuid"], "{id}");
        }
    }
    assert_eq!(seen.len(), persons.len());
}

#[test]
fn the_same_events_give_the_same_persons_on_every_way() {
    let seed = std::env::var_os("WEIR_IDENTITY_SEED")
        .map_or_else(rand::random, |seed| seed.to_str().expect("text").parse().expect("a number"));
    println!("WEIR_IDENTITY_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let steps = steps(&mut random);
    let mut first: Option<BTreeMap<String, Value>> = None;
    for way in [Way::OneBatch, Way::ManyBatches, Way::Connections, Way::Kills] {
        let settings = if matches!(way, Way::Kills) { &BUSY[..] } else { &[] };
        let mut server = TestServer::start_with(settings);
        play(&mut server, &steps, way, &mut random);
        let found = persons(&server, &steps);
        assert_events_follow(&server, &found);
        let Some(expected) = &first else {
            let people = found.values().filter(|person| !person.is_null()).count();
            assert!(people > SEQUENCES, "more than a person for each sequence, not {people}");
            first = Some(found);
            continue;
        };
        assert_eq!(found.len(), expected.len(), "by {way:?}");
        for (id, person) in expected {
            assert_eq!(&found[id], person, "{id} by {way:?}");
        }
    }
}

fn event(name: &str, id: &str, properties: &Value) -> Value {
    json!({"event": name, "distinct_id": id, "properties": properties, "uuid": Uuid::now_v7()})
}

/// A merge that is undone by a split: the API, past and later events, and a kill right after the
/// response.
#[test]
fn a_person_can_be_split() {
    let mut server = TestServer::start_with(&BUSY);
    send(
        &server,
        &[
            event("page", "anon", &json!({"$set": {"from": "anon"}})),
            event("page", "user", &json!({"$set": {"name": "User"}})),
            event("$identify", "user", &json!({"$anon_distinct_id": "anon"})),
            event("page", "anon", &json!({})),
        ],
    );
    let merged = person(&server, "anon").expect("a person");
    assert_eq!(merged["distinct_ids"].as_array().expect("ids").len(), 2);
    let path = format!("/api/projects/@current/persons/{}/split/", merged["id"]);
    let unknown = server.post("/api/projects/@current/persons/987654/split/", &json!({}));
    assert_eq!(unknown.status, 404, "{unknown}");
    for main in [json!("stranger"), json!(7), json!(["user"])] {
        let refused = server.post(&path, &json!({"main_distinct_id": main}));
        assert_eq!(refused.status, 400, "{refused}");
        assert_eq!(refused.json()["attr"], "main_distinct_id", "{refused}");
    }
    assert_eq!(server.get(&path).status, 405);
    assert_eq!(server.send("POST", &path, &[], "{}").status, 401);

    let answer = server.post(&path, &json!({"main_distinct_id": "user"}));
    assert_eq!(answer.status, 201, "{answer}");
    let body = answer.json();
    assert_eq!(body["success"], true);
    assert_eq!((&body["id"], &body["uuid"]), (&merged["id"], &merged["uuid"]));
    assert_eq!(body["distinct_ids"], json!(["user"]));
    assert_eq!(body["properties"]["name"], "User");
    server.kill();
    server.restart();

    let anon = person(&server, "anon").expect("a person of its own");
    assert_eq!(anon["distinct_ids"], json!(["anon"]));
    assert_eq!(anon["properties"], json!({}));
    assert_ne!(anon["id"], merged["id"]);
    send(
        &server,
        &[event("page", "anon", &json!({"$set": {"later": 1}})), event("page", "user", &json!({}))],
    );
    let persons: BTreeMap<String, Value> =
        ["anon", "user"].map(|id| (id.to_owned(), person(&server, id).expect("a person"))).into();
    assert_eq!(persons["anon"]["properties"], json!({"later": 1}));
    assert_events_follow(&server, &persons);
    // Once more is no change, and the merge can be done again.
    let again = server.post(&path, &json!({}));
    assert_eq!((again.status, again.json()["distinct_ids"].clone()), (201, json!(["user"])));
    send(&server, &[event("$create_alias", "user", &json!({"alias": "anon"}))]);
    assert_eq!(person(&server, "anon").expect("a person")["id"], merged["id"]);
}

/// A browser's page views set the initial and current properties of their person.
#[test]
fn page_views_describe_their_persons() {
    let server = TestServer::start();
    let page = |browser: &str, source: Option<&str>| {
        let properties = json!({"$browser": browser, "utm_source": source, "$current_url": "u"});
        event("$pageview", "visitor", &properties)
    };
    send(&server, &[page("A", None)]);
    send(&server, &[page("B", Some("ad")), event("$exception", "new", &json!({"$os": "L"}))]);
    send(&server, &[event("$exception", "visitor", &json!({"$set": {"x": 1}}))]);
    let properties = person(&server, "visitor").expect("a person")["properties"].clone();
    for (key, expected) in [
        ("$initial_browser", json!("A")),
        ("$initial_utm_source", json!("ad")),
        ("utm_source", json!("ad")),
        ("$initial_current_url", json!("u")),
        ("x", Value::Null),
    ] {
        assert_eq!(properties[key], expected, "{key} of {properties}");
    }
    // It tells what a new person is like, and changes none.
    let new = person(&server, "new").expect("a person")["properties"].clone();
    assert_eq!((&new["$os"], &new["$initial_os"]), (&json!("L"), &json!("L")));
    // The events say it once.
    let sql = "SELECT json_get_str(properties, '$browser') AS browser, \
                      json_get_str(properties, '$set', '$browser') AS again FROM events \
               WHERE event = '$pageview' ORDER BY browser";
    let said = ["A", "B"].map(|browser| json!({"browser": browser, "again": null}));
    assert_eq!(server.query(sql), said);
}

/// A server that evaluates a flag creates no person.
#[test]
fn flag_checks_make_no_persons() {
    let server = TestServer::start();
    let body = json!({"api_key": TOKEN, "batch": [
        event("$feature_flag_called", "stranger", &json!({"$feature_flag": "f"})),
        event("$feature_flag_called", "member", &json!({"$process_person_profile": true})),
    ]});
    let headers = [("content-type", "application/json")];
    assert_eq!(server.send("POST", "/batch/", &headers, body.to_string()).status, 200);
    assert_eq!(person(&server, "stranger"), None);
    assert!(person(&server, "member").is_some());
    send(&server, &[event("$identify", "user", &json!({"$anon_distinct_id": "stranger"}))]);
    let merged = person(&server, "stranger").expect("a person");
    let rows = server.query("SELECT DISTINCT person_id FROM events WHERE distinct_id = 'stranger'");
    assert_eq!(rows, [json!({"person_id": merged["uuid"]})]);
}
