//! An event's own members: names, ids, uuids, times.

use super::*;

#[test]
fn names_and_ids_are_text_of_at_most_200_characters() {
    let ascii = "x".repeat(200);
    let wide = "\u{1f600}".repeat(200);
    for (given, expected) in [
        (r#""u1""#.to_owned(), "u1".to_owned()),
        (r#"" u1 ""#.to_owned(), " u1 ".to_owned()),
        (
            r#""caf\u00e9 \ud83d\ude00 and some more""#.to_owned(),
            "caf\u{e9} \u{1f600} and some more".to_owned(),
        ),
        (r#""a\u0000b""#.to_owned(), "a\u{fffd}b".to_owned()),
        (r#""\u0000 and thirteen bytes""#.to_owned(), "\u{fffd} and thirteen bytes".to_owned()),
        (format!(r#""{ascii}""#), ascii.clone()),
        (format!(r#""{ascii}y""#), ascii.clone()),
        (format!(r#""{wide}""#), wide.clone()),
        (format!(r#""{wide}\ud83d\ude00""#), wide.clone()),
    ] {
        let prepared = one(&format!(r#""event":{given},"distinct_id":{given}"#));
        assert_eq!(text(&prepared, 0, "event"), expected, "{given}");
        assert_eq!(text(&prepared, 0, "distinct_id"), expected, "{given}");
        // Names beyond 200 bytes have no definition.
        let defined = Some(&*expected).filter(|name| name.len() <= 200);
        assert!(prepared.observed.event_names().eq(defined), "{given}");
    }
    for (given, expected) in [
        ("23", "23"),
        ("23.4", "23.4"),
        ("true", "true"),
        ("false", "false"),
        (r#"[ "a" , "b" ]"#, r#"["a","b"]"#),
        (r#"{ "a" : { "b" : null } }"#, r#"{"a":{"b":null}}"#),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        let prepared = one(&format!(r#""event":"e","distinct_id":{given}"#));
        assert_eq!(text(&prepared, 0, "distinct_id"), expected);
    }
}

#[test]
fn distinct_ids_are_looked_for_in_the_properties_last() {
    for (members, expected) in [
        (r#""distinct_id":"a","properties":{"distinct_id":"b"}"#, "a"),
        (r#""$distinct_id":"a","properties":{"distinct_id":"b"}"#, "a"),
        (r#""distinct_id":null,"properties":{"distinct_id":"b"}"#, "b"),
        (r#""properties":{"distinct_id":"b"}"#, "b"),
        (r#""properties":{"distinct_id":23}"#, "23"),
    ] {
        let prepared = one(&format!(r#""event":"e",{members}"#));
        assert_eq!(texts(&prepared, "distinct_id"), [expected], "{members}");
    }
    let prepared = one(r#""event":"e","distinct_id":"u1""#);
    assert_eq!(text(&prepared, 0, "person_id"), "1849e1c7-0485-59dc-9a2e-2746a4fbbcff");
    let prepared = one(r#""event":"e","distinct_id":23"#);
    assert_eq!(text(&prepared, 0, "person_id"), "0d45143c-f5c9-57e1-bb46-758d3c9cb566");
}

#[test]
fn uuids_are_kept_and_malformed_ones_replaced() {
    let id = "0190a1b2-c3d4-4e5f-8a6b-7c8d9e0f1a2b";
    for given in [
        id.to_owned(),
        id.to_uppercase(),
        id.replace('-', ""),
        format!("{{{id}}}"),
        format!(" {id} "),
        format!("urn:uuid:{id}"),
    ] {
        let prepared = one(&format!(r#""event":"e","distinct_id":"u","uuid":"{given}""#));
        assert_eq!(text(&prepared, 0, "uuid"), id, "{given}");
        assert_eq!(ids(&prepared), [Uuid::parse_str(id).unwrap()]);
    }
    let bodies = |uuid: &str| {
        let event = format!(r#"{{"event":"e","distinct_id":"u"{uuid}}}"#);
        format!(r#"{{"api_key":"phc_a","batch":[{event},{event},{event}]}}"#)
    };
    for uuid in ["", r#","uuid":"""#, r#","uuid":"nonsense""#, r#","uuid":7"#, r#","uuid":null"#] {
        let prepared = prepare(bodies(uuid));
        let made = ids(&prepared);
        for (row, id) in made.iter().enumerate() {
            assert_eq!(text(&prepared, row, "uuid"), id.to_string());
            // RFC 9562: version 7 begins with milliseconds since 1970.
            assert_eq!(id.get_version_num(), 7);
            let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
            assert_eq!((seconds, nanos), (1_795_248_000, 0));
        }
        assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2]);
        assert_eq!(ids(&prepare(bodies(uuid))), made, "same seed, same ids");
        let other = Received { seed: 43, ..received() };
        let others = ids(&prepare_with(bodies(uuid), &other).unwrap());
        assert!(others.iter().all(|id| !made.contains(id)), "other seed, other ids");
    }
}

#[test]
fn timestamps_follow_the_senders_clock_error() {
    let query = |millis| {
        let protocol = Protocol::V0 { sent_at_query_millis: Some(millis), engage: false };
        Received { protocol, ..received() }
    };
    let now_millis = NOW / 1000;
    let t = r#""timestamp":"2026-11-21T07:00:00Z""#;
    let ahead = r#""sent_at":"2026-11-21T08:10:00Z""#;
    let minute = 60_000_000;
    for (event, around, received, expected) in [
        (t, "", received(), NOW - HOUR),
        ("", ahead, received(), NOW),
        (t, ahead, received(), NOW - HOUR - 10 * minute),
        (t, r#""sentAt":"2026-11-21T07:55:00+00:00""#, received(), NOW - HOUR + 5 * minute),
        (t, r#""sent_at":1795248600000"#, received(), NOW - HOUR - 10 * minute),
        (t, "", query(now_millis + 600_000), NOW - HOUR - 10 * minute),
        // The envelope's counts; the query's if the envelope's is unreadable.
        (t, ahead, query(now_millis + 999), NOW - HOUR - 10 * minute),
        (t, r#""sent_at":"nonsense""#, query(now_millis + 1), NOW - HOUR - 1000),
        (t, r#""sent_at":null"#, query(now_millis + 1), NOW - HOUR - 1000),
        (
            r#""timestamp":"2026-11-21T07:00:00Z","properties":{"$ignore_sent_at":true}"#,
            ahead,
            received(),
            NOW - HOUR,
        ),
        (
            r#""timestamp":"2026-11-21T07:00:00Z","properties":{"$ignore_sent_at":"true"}"#,
            ahead,
            received(),
            NOW - HOUR - 10 * minute,
        ),
        // What is imported keeps its times, whatever the clock of the importer shows.
        (
            r#""timestamp":"2020-01-02T03:04:05.678901Z""#,
            r#""sent_at":"2026-11-21T08:10:00Z","historical_migration":true"#,
            query(now_millis + 600_000),
            1_577_934_245_678_901,
        ),
        (
            t,
            r#""historical_migration":false,"sent_at":"2026-11-21T08:10:00Z""#,
            received(),
            NOW - HOUR - 10 * minute,
        ),
        (r#""offset":60000"#, "", received(), NOW - minute),
        (r#""timestamp":"2020-01-01T00:00:00Z","offset":60000"#, ahead, received(), NOW - minute),
        (r#""timestamp":"2026-11-21T07:00:00Z","offset":"60000""#, "", received(), NOW - HOUR),
        (r#""timestamp":"2026-11-21T07:00:00Z","offset":1.5"#, "", received(), NOW - HOUR),
        (r#""timestamp":"nonsense""#, "", received(), NOW),
        (r#""timestamp":null"#, "", received(), NOW),
        (r#""timestamp":true"#, "", received(), NOW),
        (r#""timestamp":1795244400"#, "", received(), NOW - HOUR),
        (r#""timestamp":1795244400000"#, "", received(), NOW - HOUR),
        (r#""timestamp":1795244400.25"#, "", received(), NOW - HOUR + 250_000),
        (r#""timestamp":"2026-11-22T07:00:00Z""#, "", received(), NOW + 23 * HOUR),
        (r#""timestamp":"2026-11-22T07:00:00.001Z""#, "", received(), NOW),
        (r#""timestamp":"1999-12-31T23:59:59Z""#, "", received(), 946_684_799_000_000),
        (r#""offset":9223372036854775807"#, "", received(), 0),
    ] {
        for body in [
            format!(
                r#"{{"api_key":"phc_a","batch":[{{"event":"e","distinct_id":"u","x":0,{event}}}],{around}}}"#
            ),
            format!(
                r#"{{{around},"batch":[{{{event},"distinct_id":"u","event":"e"}}],"api_key":"phc_a"}}"#
            ),
        ] {
            let body = body.replace(",}", "}").replace("{,", "{");
            let prepared = prepare_with(&body, &received).unwrap();
            assert_eq!(cell(&prepared, 0, "timestamp"), expected, "{body} {received:?}");
        }
    }
    for extreme in [i64::MAX, i64::MIN] {
        let prepared = prepare_with(
            r#"{"api_key":"phc_a","event":"e","distinct_id":"u","timestamp":"2026-11-21T07:00:00Z"}"#,
            &query(extreme),
        );
        assert_eq!(prepared.unwrap().rows, 1);
    }
}
