//! Events that are dropped or unreadable, without an effect on the other events.

use super::*;
use weir_event::json::Fault;

#[test]
fn dropped_events_are_counted_and_the_others_stay() {
    let good = r#"{"event":"good","distinct_id":"u1","properties":{"price":1}}"#;
    let long = format!(
        r#"{{"event":"e","distinct_id":"u","x":"{}"}}"#,
        "x".repeat(EVENT_MAX_BYTES as usize)
    );
    for (bad, reason) in [
        ("7", Drop::NotAnObject),
        ("[]", Drop::NotAnObject),
        ("null", Drop::NotAnObject),
        ("{}", Drop::MissingEvent),
        (r#"{"distinct_id":"u1"}"#, Drop::MissingEvent),
        (r#"{"event":"","distinct_id":"u1"}"#, Drop::MissingEvent),
        (r#"{"event":null,"distinct_id":"u1"}"#, Drop::MissingEvent),
        (r#"{"event":5,"distinct_id":"u1"}"#, Drop::MissingEvent),
        (r#"{"event":"e"}"#, Drop::MissingDistinctId),
        (
            r#"{"event":"e","distinct_id":null,"properties":{"distinct_id":null}}"#,
            Drop::MissingDistinctId,
        ),
        (r#"{"event":"e","distinct_id":""}"#, Drop::MissingDistinctId),
        (r#"{"event":"e","distinct_id":" \t\n"}"#, Drop::MissingDistinctId),
        (
            r#"{"event":"e","properties":{"distinct_id":"","price":9,"$os":"dropped"}}"#,
            Drop::MissingDistinctId,
        ),
        (r#"{"event":"$performance_event","distinct_id":"u1"}"#, Drop::NeverStored),
        (
            r#"{"event":"$identify","distinct_id":"u1","properties":{"$process_person_profile":false}}"#,
            Drop::PersonlessMerge,
        ),
        (
            r#"{"event":"$create_alias","distinct_id":"u1","properties":{"alias":"b","$process_person_profile":false}}"#,
            Drop::PersonlessMerge,
        ),
        (
            r#"{"event":"$merge_dangerously","distinct_id":"u1","properties":{"$process_person_profile":false}}"#,
            Drop::PersonlessMerge,
        ),
        (long.as_str(), Drop::TooLarge),
    ] {
        let events = [good, bad, good, bad, bad, good].join(",");
        let prepared = prepare(format!(r#"{{"api_key":"phc_a","batch":[{events}]}}"#));
        assert_eq!(drops(&prepared), [(reason, 3)], "{bad}");
        assert_eq!(texts(&prepared, "event"), ["good"; 3], "{bad}");
        assert!(prepared.observed.event_names().eq(["good"]));
        assert_eq!(prepared.keys.len(), 3);
        for row in 0..3 {
            assert_eq!(cell(&prepared, row, "p_price"), 1.0);
            assert_eq!(cell(&prepared, row, "p_$os"), Json::Null);
        }
        // The first event of the person has all effects.
        assert_eq!(prepared.ops.len(), 1);
    }
}

/// A dropped row must not remove earlier values of a sparse column.
#[test]
fn sparse_columns_survive_dropped_events() {
    let mut events = vec![
        r#"{"event":"e","distinct_id":"u","properties":{"price":2,"$is_server":true,"$os":"x"}}"#;
        5
    ];
    events.extend([r#"{"event":"e","distinct_id":"u"}"#; 7]);
    events.push("{}");
    let prepared = prepare(format!(r#"{{"api_key":"phc_a","batch":[{}]}}"#, events.join(",")));
    for row in 0..12 {
        let (price, server, os) = match row {
            0..5 => (json!(2.0), json!(true), json!("x")),
            _ => (Json::Null, Json::Null, Json::Null),
        };
        assert_eq!(cell(&prepared, row, "p_price"), price, "row {row}");
        assert_eq!(cell(&prepared, row, "p_$is_server"), server, "row {row}");
        assert_eq!(cell(&prepared, row, "p_$os"), os, "row {row}");
    }
}

#[test]
fn an_event_as_large_as_allowed_is_taken() {
    let empty = r#"{"event":"e","distinct_id":"u","x":""}"#;
    for (filler, rows) in [
        (EVENT_MAX_BYTES as usize - empty.len(), 1),
        (EVENT_MAX_BYTES as usize - empty.len() + 1, 0),
    ] {
        let event = format!(r#"{{"event":"e","distinct_id":"u","x":"{}"}}"#, "x".repeat(filler));
        let prepared = prepare(format!(r#"{{"api_key":"phc_a","batch":[ {event} ]}}"#));
        assert_eq!(prepared.rows, rows);
    }
}

#[test]
fn damage_with_one_reading_is_repaired() {
    for (given, expected) in [
        (r#"{"a":"x\ud83d"}"#, r#"{"a":"x\ufffd"}"#),
        (r#"{"a":NaN,"b":[-Infinity]}"#, r#"{"a":null,"b":[null]}"#),
        (r#"{"a":1e400}"#, r#"{"a":null}"#),
        ("{\"a\":\"x\ny\"}", r#"{"a":"x\ny"}"#),
    ] {
        let body = format!(
            r#"{{"api_key":"phc_a","batch":[{{"event":"e","distinct_id":"u","properties":{given}}},{{"event":"f","distinct_id":"u"}}]}}"#
        );
        let prepared = prepare(&body);
        assert_eq!(texts(&prepared, "event"), ["e", "f"]);
        assert_eq!(text(&prepared, 0, "properties"), expected);
        assert_eq!(drops(&prepared), []);
    }
    let huge = format!(r#"{{"a":{}}}"#, "9".repeat(60));
    let prepared = with_properties(&huge[1..huge.len() - 1]);
    assert_eq!(text(&prepared, 0, "properties"), huge, "huge integers are stored as written");
    let mut body = br#"{"api_key":"phc_a","event":"caf?","distinct_id":"u"}"#.to_vec();
    let at = body.iter().position(|byte| *byte == b'?').unwrap();
    body[at] = 0xE9;
    assert_eq!(text(&prepare(body), 0, "event"), "caf\u{fffd}");
}

#[test]
fn an_event_nested_too_deeply_costs_only_itself() {
    // The envelope, the batch, the event and the properties are four of the 127 levels.
    let event = |inner: usize| {
        let deep = format!("{}{}", "[".repeat(inner), "]".repeat(inner));
        format!(r#"{{"event":"deep","distinct_id":"u","properties":{{"a":{deep}}}}}"#)
    };
    let good = r#"{"event":"good","distinct_id":"u","properties":{"price":1}}"#;
    for (inner, events) in [(123, vec!["good", "deep", "good"]), (124, vec!["good", "good"])] {
        let body = format!(
            r#"{{"batch":[{good},{},{good}],"sent_at":"2026-11-21T08:00:00Z","api_key":"phc_a"}}"#,
            event(inner)
        );
        let prepared = prepare(&body);
        assert_eq!(texts(&prepared, "event"), events);
        let unreadable = 3 - u64::try_from(events.len()).unwrap();
        assert_eq!(prepared.drops.iter().map(|(_, count)| count).sum::<u64>(), unreadable);
        if unreadable > 0 {
            assert_eq!(drops(&prepared), [(Drop::Unreadable, 1)]);
        }
    }
    // Far deeper than any parser's stack.
    let body = format!(r#"{{"api_key":"phc_a","batch":[{},{good}]}}"#, event(200_000));
    assert_eq!(texts(&prepare(body), "event"), ["good"]);
    let alone = format!(r#"{{"api_key":"phc_a","batch":[{}]}}"#, event(124));
    assert_eq!(
        prepare_with(alone, &received()).unwrap_err(),
        PrepareError::Malformed(Fault::default())
    );
}

#[test]
fn an_event_that_is_no_json_costs_only_itself() {
    let good = r#"{"event":"good","distinct_id":"u"}"#;
    for bad in [
        "{'event':'x'}",
        "{event:1}",
        "None",
        "{\"a\":01}",
        "{\"a\":\"\\x\"}",
        "{\"a\":[}}",
        "{\"a\":\"\\ud8\"}",
    ] {
        let prepared = prepare(format!(r#"{{"api_key":"phc_a","batch":[{good},{bad},{good}]}}"#));
        assert_eq!(texts(&prepared, "event"), ["good"; 2], "{bad}");
        assert_eq!(drops(&prepared), [(Drop::Unreadable, 1)], "{bad}");
    }
}
