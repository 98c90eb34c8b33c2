//! Capture v1: the outcome of each event, in columns and in effects on persons. The complete wire table is
//! in the tests of the server; here is what is only visible inside.

use super::*;
use crate::budget::Budget;
use crate::prepare::error::BatchError;
use crate::prepared::EventOutcome;
use weir_event::json::Fault;
use weir_event::key_kind::KeyKind;
use weir_wire::capture_v1::Sdk;

const ID: [&str; 3] = [
    "0192f0c1-7f3a-7b9e-8a53-000000000001",
    "0192f0c1-7f3a-7b9e-8a53-000000000002",
    "0192f0c1-7f3a-7b9e-8a53-000000000003",
];

/// The client's clock is ten minutes ahead.
fn v1(sdk: Option<(&str, &str)>) -> Received {
    let sdk = sdk.map(|(name, version)| Sdk { name: name.into(), version: version.into() });
    let protocol = Protocol::V1 { sent_at: UnixMicros(NOW + HOUR / 6), sdk };
    Received { protocol, ..received() }
}

fn read(body: &str, received: &Received) -> Result<Prepared, PrepareError> {
    let only = |token: &str| project(if token.is_empty() { "phc_a" } else { "phc_b" });
    Preparer::default().prepare(body.as_bytes().to_vec(), received, &only)
}

/// One event per text of members, with an id, a distinct id and a time that they may replace.
fn body(events: &[&str]) -> String {
    let events = events.iter().zip(ID).map(|(members, id)| {
        let fixed = format!(
            r#""event":"e","uuid":"{id}","distinct_id":"u1","timestamp":"2026-11-21T07:00:00Z""#
        );
        // If a name occurs twice, the last value counts.
        if members.is_empty() { format!("{{{fixed}}}") } else { format!("{{{fixed},{members}}}") }
    });
    let events = events.collect::<Vec<_>>().join(",");
    format!(r#"{{"created_at":"2026-11-21T08:00:00Z","batch":[{events}]}}"#)
}

fn prepared(events: &[&str]) -> Prepared {
    read(&body(events), &v1(None)).unwrap()
}

fn properties(prepared: &Prepared, row: usize) -> Json {
    serde_json::from_str(&text(prepared, row, "properties")).unwrap()
}

#[test]
fn every_event_has_a_fate_in_order_and_drops_leave_no_trace() {
    let long = format!(
        r#""properties":{{"$browser":"x","a":"{}"}}"#,
        "x".repeat(EVENT_MAX_BYTES as usize)
    );
    let prepared = prepared(&[&long, r#""distinct_id":"Guest","session_id":"s""#, ""]);
    let expected =
        [EventOutcome::Dropped(Drop::TooLarge), EventOutcome::TakenPersonless, EventOutcome::Taken];
    let ids = ID.map(|id| Uuid::parse_str(id).unwrap());
    assert_eq!(prepared.outcomes, ids.into_iter().zip(expected).collect::<Vec<_>>());
    assert_eq!(prepared.rows, 2);
    assert_eq!(super::ids(&prepared), &ids[1..]);
    assert_eq!(drops(&prepared), [(Drop::TooLarge, 1)]);
    assert_eq!(cell(&prepared, 0, "p_$browser"), Json::Null);
    assert_eq!(cell(&prepared, 0, "session_id"), "s");
    assert_eq!(cell(&prepared, 1, "session_id"), Json::Null);
    for row in 0..2 {
        assert_eq!(cell(&prepared, row, "timestamp"), NOW - HOUR - HOUR / 6);
    }
}

#[test]
fn nobody_is_no_person_and_everybody_else_is_one() {
    let prepared = prepared(&[
        r#""distinct_id":" NULL ","event":"$identify","properties":{"$anon_distinct_id":"a","$set":{"b":1}}"#,
        r#""distinct_id":"u2","options":{"process_person_profile":0}"#,
        r#""distinct_id":"u3","options":{"process_person_profile":1},"properties":{"$process_person_profile":false}"#,
    ]);
    assert_eq!(texts(&prepared, "distinct_id"), ["NULL", "u2", "u3"]);
    let said: Vec<_> = prepared.ops.iter().map(|op| (op.distinct_id.as_str(), &op.kind)).collect();
    let [("NULL", OpKind::Personless), ("u2", OpKind::Personless), ("u3", OpKind::Touch)] =
        said[..]
    else {
        panic!("{said:?}")
    };
}

/// A replay knows the project from the record and has no token; everything else must be the same.
#[test]
fn a_replay_gives_the_same_rows() {
    let received = v1(Some(("a library with a long name", "1")));
    let body = body(&[r#""properties":{"$lib":"own","$current_url":"https://a"}"#, "", ""]);
    let first = read(&body, &received).unwrap();
    let replay = Preparer::default()
        .prepare(body.as_bytes().to_vec(), &received, &|_| project("phc_a"))
        .unwrap();
    assert_eq!(first.columns, replay.columns);
    assert_eq!(first.outcomes, replay.outcomes);
    assert_eq!(texts(&first, "p_$lib"), vec!["a library with a long name"; 3]);
    assert_eq!(text(&first, 0, "p_$current_url"), "https://a");
    let expected = json!({
        "$current_url": "https://a", "$lib": "a library with a long name", "$lib_version": "1",
    });
    assert_eq!(properties(&first, 0), expected);
    // Written once: readers that take the first of two keys see the same.
    assert_eq!(text(&first, 0, "properties").matches("$lib\"").count(), 1);
}

#[test]
fn elements_and_the_envelope_go_together() {
    let prepared = prepared(&[
        r#""session_id":"s\n","properties":{"$elements_chain":"a:nth-child=\"1\"","$session_id":5,"k":1}"#,
        r#""options":{"product_tour_id":"t"},"properties":{ }"#,
    ]);
    assert_eq!(text(&prepared, 0, "elements_chain"), "a:nth-child=\"1\"");
    assert_eq!(text(&prepared, 0, "session_id"), "s\n");
    assert_eq!(properties(&prepared, 0), json!({"k": 1, "$session_id": "s\n"}));
    assert_eq!(properties(&prepared, 1), json!({"$product_tour_id": "t"}));
}

#[test]
fn bodies_are_repaired_and_not_salvaged() {
    let lone = body(&[r#""properties":{"v":"a\ud800","n":NaN}"#]);
    let prepared = read(&lone, &v1(None)).unwrap();
    assert_eq!(properties(&prepared, 0), json!({"v": "a\u{fffd}", "n": null}));
    let deep = format!(r#""properties":{{"v":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for events in [&[&*deep, ""][..], &["\"a\":01", ""]] {
        let refused = read(&body(events), &v1(None)).unwrap_err();
        assert!(matches!(refused, PrepareError::Malformed(_)), "{refused:?}");
    }
}

#[test]
fn shapes_are_told_before_ids_and_ids_after_the_envelope() {
    let shape = |what| PrepareError::Batch(BatchError::Shape(what));
    let event = |members: &str| body(&[members]);
    let named = |name: &str| format!(r#""uuid":"","{name}":null"#);
    for (body, expected) in [
        (event(r#""uuid":"x","timestamp":null"#), shape("a timestamp is missing or not a string")),
        (event(&named("event")), shape("the event of an event is missing or not a string")),
        (event(r#""uuid":"""#), BatchError::MissingUuid.into()),
        (event(r#""uuid":"x""#), BatchError::InvalidUuid.into()),
        (event(r#""uuid":"x""#).replace("08:00:00Z", ""), BatchError::CreatedAt.into()),
        (r#"{"created_at":"x","batch":[]}"#.to_owned(), PrepareError::NoEvents),
        (r#"{"batch":[]}"#.to_owned(), shape("created_at is missing or not a string")),
        ("[]".to_owned(), shape("the body is not an object")),
    ] {
        assert_eq!(read(&body, &v1(None)).unwrap_err(), expected, "{body}");
    }
}

#[test]
fn a_project_that_is_gone_is_no_project() {
    let body = body(&[""]);
    let outcome = Preparer::default().prepare(body.into_bytes(), &v1(None), &|_| None);
    assert_eq!(outcome.unwrap_err(), PrepareError::UnknownToken(KeyKind::Other));
}

/// Goal: the project is found by the token wherever v0 puts it, and nothing else is examined.
#[test]
fn the_owner_of_a_body_is_told_by_its_token() {
    let owner = |body: &str| {
        let known = |token: &str| project(token).map(|facts| facts.id);
        let mut permit = Budget::new(1 << 20).admit(1)?;
        Preparer::default().project_of(body.as_bytes(), &known, &mut permit).map(|id| id.0)
    };
    for (body, expected) in [
        (r#"{"api_key":" phc_a ","batch":[1]}"#, Ok(7)),
        (r#"[{"event":"$snapshot","properties":{"token":"phc_b","v":"\ud800"}}]"#, Ok(8)),
        (r#"{"token":"phc_c"}"#, Err(PrepareError::UnknownToken(KeyKind::Project))),
        (r#"{"event":"x"}"#, Err(PrepareError::NoToken)),
        ("17", Err(PrepareError::NoObject)),
        ("{", Err(PrepareError::Malformed(Fault::of(b"{")))),
        (r#"[{"token":"phc_a"},{"token":"phc_b"}]"#, Err(PrepareError::InconsistentTokens)),
    ] {
        assert_eq!(owner(body), expected, "{body}");
    }
}
