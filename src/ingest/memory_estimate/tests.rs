//! Estimates compared with what the standard library and the parser allocate, for bodies that an attacker
//! would send to exhaust the memory.

use std::fmt::Write;

use serde_json::{Value, json};

use super::*;
use crate::budget::Budget;
use crate::prepare::Preparer;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::request::{Protocol, Received, Rules};
use crate::tape::Scratch;
use weir_base::clock::UnixMicros;
use weir_event::geoip::Places;
use weir_event::id::ProjectId;

const MIB: u64 = 1 << 20;

/// What an SDK sends: a page view.
fn page_view(number: usize) -> String {
    json!({
        "event": "$pageview", "distinct_id": format!("0190f5f4-{number:04}"),
        "timestamp": "2026-11-21T08:00:00.000Z",
        "properties": {
            "$os": "Windows", "$browser": "Chrome", "$browser_version": 126, "$lib": "web",
            "$current_url": "https://shop.example.com/products/17?utm_source=news&page=2",
            "$pathname": "/products/17", "$screen_height": 1080, "$screen_width": 1920,
            "$session_id": "0190f5f4-aaaa-7000-8000-000000000000", "$lib_version": "1.150.0",
            "$set": {"plan": "pro", "seats": 12},
        },
    })
    .to_string()
}

fn batch(events: impl Iterator<Item = String>) -> String {
    let events: Vec<String> = events.collect();
    format!(r#"{{"api_key":"k","batch":[{}]}}"#, events.join(","))
}

/// An event with this JSON in its `$set`.
fn set(object: &str) -> String {
    format!(r#"{{"event":"e","distinct_id":"u","properties":{{"$set":{object}}}}}"#)
}

/// An object of `count` members of 7 or 8 bytes each, with different keys.
fn members(count: usize) -> String {
    let mut object = String::from("{");
    for number in 0..count {
        let comma = if number > 0 { "," } else { "" };
        write!(object, "{comma}\"{number:x}\":0").unwrap();
    }
    object + "}"
}

/// An array of `count` objects of one member.
fn objects(count: usize) -> String {
    format!(r#"{{"a":[{}]}}"#, vec![r#"{"a":0}"#; count].join(","))
}

fn prepared(body: &str, permit: Option<&mut MemoryPermit>) -> Result<Prepared, PrepareError> {
    let received = Received {
        at: UnixMicros(1_795_248_000_000_000),
        client_ip: None,
        protocol: Protocol::default(),
        seed: 1,
        skew_ignored_millis: 0,
        event_max_bytes: 1 << 20,
        rules: Rules::default(),
    };
    let project = |_: &str| {
        Some(ProjectFacts {
            id: ProjectId(1),
            group_types: Vec::new(),
            anonymize_ips: false,
            places: Places::Unknown,
        })
    };
    let body = body.as_bytes().to_vec();
    match permit {
        Some(permit) => Preparer::default().prepare_within(body, &received, &project, permit),
        None => Preparer::default().prepare(body, &received, &project),
    }
}

#[test]
fn no_text_has_more_nodes_than_it_seems_to() {
    let long = format!("[{}]", vec!["0"; 1000].join(","));
    let texts = [
        "0",
        "[]",
        "{}",
        "[[],[]]",
        r#"{"a":{"b":[1,2,{"c":null}]},"d":"x,:{["}"#,
        "[0]",
        &long,
        &page_view(1),
        &batch((0..20).map(page_view)),
        &set(&members(300)),
        &set(&objects(300)),
    ];
    for text in texts {
        let parsed = |root: crate::tape::Cursor<'_>| root.census(is_said).nodes;
        let nodes = Scratch::default().parse(text.as_bytes(), parsed).expect("JSON");
        let most = nodes_at_most(text.as_bytes());
        assert!((nodes..2 * nodes + 5).contains(&most), "{nodes} of {most}: {text}");
    }
}

/// The map of `serde_json` is a B-tree with nodes of eleven members.
#[test]
fn maps_are_weighed_as_they_are() {
    assert!(MAP_NODE_BYTES >= 11 * (size_of::<String>() + size_of::<Value>()));
    assert!(OBJECT_BYTES >= to_u64(MAP_NODE_BYTES));
    let weigh = |text: &str| of_value(&serde_json::from_str(text).expect("JSON"));
    assert_eq!([weigh("null"), weigh("1.5"), weigh("{}"), weigh("[]")], [0; 4]);
    assert!((100..200).contains(&weigh(&format!("\"{}\"", "x".repeat(100)))));
    // A member has a key and a value in a node that is half full, and its key's text.
    let thousand = weigh(&members(1000));
    assert!((1000 * (56 + 8)..1000 * 150).contains(&thousand), "{thousand}");
    // Each of these has a node of its own, and an element of the array.
    let thousand = weigh(&objects(1000));
    assert!((1000 * (616 + 32)..1000 * 750).contains(&thousand), "{thousand}");
}

#[test]
fn a_usual_batch_takes_what_its_bytes_stand_for() {
    for events in [1, 50, 500, 5000] {
        let body = batch((0..events).map(page_view));
        let budget = Budget::new(1 << 30);
        let mut permit = budget.admit(expected_bytes(body.as_bytes())).unwrap();
        let free = budget.free_units();
        let usual = prepared(&body, Some(&mut permit)).unwrap();
        assert_eq!(usual.rows, events);
        let is_small = body.len() <= SMALL_BYTES;
        assert_eq!(
            budget.free_units() == free,
            is_small,
            "{events}: only large ones are looked at"
        );
        let taken = usual.held_bytes();
        let length = to_u64(body.len());
        // A few events have columns with spare capacity.
        assert!(taken < 8 * length + (64 << 10), "{events}: {taken} for {length}");
    }
}

/// Goal: the memory that a small text becomes is counted, wherever it is kept. Method: bodies of a few
/// hundred kB, which are read without an estimate before.
#[test]
fn what_is_said_of_persons_counts_for_what_it_takes() {
    for (name, object, least) in
        [("members", members(40_000), 40_000 * 100), ("objects", objects(20_000), 20_000 * 640)]
    {
        let body = batch(std::iter::once(set(&object)));
        assert!(body.len() < SMALL_BYTES);
        let said = prepared(&body, None).unwrap();
        assert!(said.said_bytes >= least + body.len(), "{name}: {}", said.said_bytes);
        // Of a body without effects on persons only the text may be referred to.
        let silent = prepared(&body.replace("$set", "other"), None).unwrap();
        assert!(silent.said_bytes < body.len() + 10_000, "{name}: {}", silent.said_bytes);
    }
}

#[test]
fn large_bodies_make_room_before_they_are_read() {
    let large = batch((0..30).map(|_| set(&objects(5000))));
    assert!(large.len() > SMALL_BYTES);
    // 150,000 nodes of a map are some 96 MB.
    let budget = Budget::new(100 * MIB);
    let mut permit = budget.admit(expected_bytes(large.as_bytes())).unwrap();
    let taken = prepared(&large, Some(&mut permit)).unwrap();
    assert!(taken.held_bytes() > 90 * MIB);
    assert!(permit.bytes() > 24 * MIB, "{}", permit.bytes());
    // Other requests hold what it needs; alone it would have fitted.
    drop(permit);
    let _others = budget.admit(90 * MIB).unwrap();
    let mut permit = budget.admit(expected_bytes(large.as_bytes())).unwrap();
    let crowded = prepared(&large, Some(&mut permit)).map(|prepared| prepared.rows);
    assert_eq!(crowded, Err(PrepareError::Crowded));
}

#[test]
fn no_body_takes_more_than_one_may() {
    let budget = Budget::new(256 * MIB);
    let numbers = format!("[{}0]", "0,".repeat(NODES_MAX));
    let persons = batch((0..80).map(|_| set(&members(80_000))));
    let nested = batch((0..32).map(|_| set(&objects(60_000))));
    for (name, body) in [("numbers", &numbers), ("members", &persons), ("objects", &nested)] {
        let mut permit = budget.admit(expected_bytes(body.as_bytes())).unwrap();
        let refused = prepared(body, Some(&mut permit)).map(|prepared| prepared.rows);
        assert_eq!(refused, Err(PrepareError::TooLarge), "{name}, {} bytes", body.len());
    }
    // A logged body was acknowledged: it is read whatever memory it takes.
    let old = batch((0..5).map(|_| set(&objects(60_000))));
    assert_eq!(prepared(&old, None).unwrap().rows, 5);
}
