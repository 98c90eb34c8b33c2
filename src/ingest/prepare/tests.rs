//! Expectations from the capture contract of PostHog (shapes, tokens, normalisation) and from the
//! public API's list of dropped events; person uuids from Python's `uuid.uuid5`.

use arrow::array::Array;
use arrow::array::AsArray;
use arrow::datatypes::DataType;
use arrow::datatypes::Float64Type;
use arrow::datatypes::Int64Type;
use arrow::datatypes::TimestampMicrosecondType;
use serde_json::Value as Json;
use serde_json::json;
use uuid::Uuid;

use super::Drop;
use super::PrepareError;
use super::Prepared;
use super::Preparer;
use super::ProjectFacts;
use super::Received;
use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::event::schema::column;
use crate::event::schema::events_schema;
use crate::identity::change::OpKind;

mod lifts;
mod oracle;
mod people;
mod robust;
mod stored;

/// 2026-11-21T08:00:00Z.
const NOW: i64 = 1_795_248_000_000_000;
const HOUR: i64 = 3_600_000_000;
const EVENT_MAX_BYTES: usize = 10_000;

fn received() -> Received {
    Received {
        at: UnixMicros(NOW),
        client_ip: Some("203.0.113.7".parse().unwrap()),
        sent_at_query_millis: None,
        engage: false,
        seed: 42,
        skew_ignored_millis: 0,
    }
}

fn project(token: &str) -> Option<ProjectFacts> {
    let types = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    match token {
        "phc_a" => {
            Some(ProjectFacts { id: ProjectId(7), group_types: types(&["company", "project"]) })
        }
        "phc_b" => Some(ProjectFacts { id: ProjectId(8), group_types: types(&[]) }),
        _ => None,
    }
}

fn prepare_with(body: impl AsRef<[u8]>, received: &Received) -> Result<Prepared, PrepareError> {
    Preparer::new(EVENT_MAX_BYTES).prepare(body.as_ref().to_vec(), received, &project)
}

fn prepare(body: impl AsRef<[u8]>) -> Prepared {
    let text = String::from_utf8_lossy(body.as_ref()).into_owned();
    prepare_with(body, &received()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// One event with the token of project 7.
fn one(members: &str) -> Prepared {
    prepare(format!(r#"{{"api_key":"phc_a","batch":[{{{members}}}]}}"#))
}

/// One event that is taken, with these properties.
fn with_properties(members: &str) -> Prepared {
    let prepared = one(&format!(r#""event":"e","distinct_id":"u1","properties":{{{members}}}"#));
    assert_eq!(prepared.rows, 1, "{members}: {:?}", prepared.drops);
    prepared
}

/// The value of one column as JSON.
fn cell(prepared: &Prepared, row: usize, name: &str) -> Json {
    let schema = events_schema();
    let position = schema.index_of(name).unwrap();
    let Some(array) = &prepared.columns[position] else { return Json::Null };
    assert_eq!(array.len(), prepared.rows, "{name}");
    assert_eq!(array.data_type(), schema.field(position).data_type(), "{name}");
    if array.is_null(row) {
        return Json::Null;
    }
    match array.data_type() {
        DataType::Utf8View => {
            let bytes = array.as_string_view().value(row).as_bytes();
            Json::from(std::str::from_utf8(bytes).expect("text columns are UTF-8"))
        }
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::Timestamp(..) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).into()
        }
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        DataType::Boolean => array.as_boolean().value(row).into(),
        other => panic!("no column is {other}"),
    }
}

fn text(prepared: &Prepared, row: usize, name: &str) -> String {
    cell(prepared, row, name).as_str().unwrap_or_else(|| panic!("{name} is not text")).to_owned()
}

fn texts(prepared: &Prepared, name: &str) -> Vec<String> {
    (0..prepared.rows).map(|row| text(prepared, row, name)).collect()
}

fn drops(prepared: &Prepared) -> Vec<(Drop, u64)> {
    prepared.drops.iter().collect()
}

#[test]
fn every_shape_is_read() {
    let a = r#"{"event":"a","distinct_id":"u1"}"#;
    let b = r#"{"distinct_id":"u2","event":"b"}"#;
    let token = r#""api_key":"phc_a""#;
    for (body, expected) in [
        (format!(r#"[{{"event":"a","distinct_id":"u1",{token}}},{b}]"#), vec!["a", "b"]),
        (format!(r#"{{{token},"batch":[{a},{b}]}}"#), vec!["a", "b"]),
        (format!(r#"{{"batch":[{a},{b}],{token}}}"#), vec!["a", "b"]),
        (format!(r#"{{"batch":[{a},{b}],"historical_migration":false,{token}}}"#), vec!["a", "b"]),
        (format!(" \n{{ \"batch\" :\t[ {a} , {b} ] , {token} }}\r\n "), vec!["a", "b"]),
        (format!(r#"{{"event":"a","distinct_id":"u1",{token}}}"#), vec!["a"]),
        (format!(r#"{{{token},"properties":{{}},"distinct_id":"u1","event":"a"}}"#), vec!["a"]),
    ] {
        let prepared = prepare(&body);
        assert_eq!(texts(&prepared, "event"), expected, "{body}");
        assert_eq!(prepared.event_ids.len(), expected.len());
        assert!(prepared.observed.event_names().eq(expected.iter().copied()), "{body}");
        assert_eq!(drops(&prepared), []);
        for row in 0..prepared.rows {
            assert_eq!(cell(&prepared, row, "project_id"), 7);
            assert_eq!(cell(&prepared, row, "received_at"), NOW);
            assert_eq!(cell(&prepared, row, "timestamp"), NOW);
            assert_eq!(cell(&prepared, row, "properties"), "{}");
            assert_eq!(cell(&prepared, row, "ip"), "203.0.113.7");
        }
    }
}

#[test]
fn an_event_without_a_name_is_an_identify_on_engage_only() {
    let body = r#"{"token":"phc_a","distinct_id":"u1","$set":{"a":1}}"#;
    let engage = Received { engage: true, ..received() };
    for body in [body, r#"{"token":"phc_a","event":null,"distinct_id":"u1","$set":{"a":1}}"#] {
        let prepared = prepare_with(body, &engage).unwrap();
        assert_eq!(texts(&prepared, "event"), ["$identify"]);
    }
    let prepared = prepare(body);
    assert_eq!((prepared.rows, drops(&prepared)), (0, vec![(Drop::MissingEvent, 1)]));
    let named = r#"{"token":"phc_a","event":"x","distinct_id":"u1"}"#;
    assert_eq!(texts(&prepare_with(named, &engage).unwrap(), "event"), ["x"]);
}

#[test]
fn the_token_decides_the_project() {
    let event = |token: &str| format!(r#"{{"event":"a","distinct_id":"u",{token}"x":0}}"#);
    let plain = event("");
    let a = event(r#""token":"phc_a","#);
    let b = event(r#""$token":"phc_b","#);
    let inner = event(r#""properties":{"token":"phc_b"},"#);
    let both = event(r#""api_key":"phc_a","properties":{"token":"phc_b"},"#);
    let inner_key = event(r#""properties":{"api_key":"phc_a"},"#);
    let number = event(r#""token":7,"#);
    for (body, expected) in [
        (format!(r#"{{"api_key":"phc_a","batch":[{plain}]}}"#), Ok(7)),
        (format!(r#"{{"token":"phc_b","batch":[{plain}]}}"#), Ok(8)),
        (format!(r#"{{"token":" phc_b\n","batch":[{plain}]}}"#), Ok(8)),
        // The envelope's wins.
        (format!(r#"{{"batch":[{a},{a}],"token":"phc_b"}}"#), Ok(8)),
        (format!(r#"{{"batch":[{plain},{a}]}}"#), Ok(7)),
        (a.clone(), Ok(7)),
        (b.clone(), Ok(8)),
        (inner.clone(), Ok(8)),
        (both, Ok(7)),
        (format!("[{plain},{b},{inner}]"), Ok(8)),
        (format!("[{a},{b}]"), Err(PrepareError::InconsistentTokens)),
        (format!("[{a},{inner}]"), Err(PrepareError::InconsistentTokens)),
        (format!("[{plain},{plain}]"), Err(PrepareError::NoToken)),
        (plain.clone(), Err(PrepareError::NoToken)),
        (inner_key, Err(PrepareError::NoToken)),
        (number, Err(PrepareError::NoToken)),
        (format!(r#"{{"batch":[{plain}]}}"#), Err(PrepareError::NoToken)),
        (format!(r#"{{"token":"phc_c","batch":[{plain}]}}"#), Err(PrepareError::UnknownToken)),
        (format!(r#"{{"token":"","batch":[{plain}]}}"#), Err(PrepareError::UnknownToken)),
    ] {
        let found = prepare_with(&body, &received()).map(|prepared| prepared.project.0);
        assert_eq!(found, expected, "{body}");
    }
}

#[test]
fn bodies_that_are_no_events_are_refused() {
    for (body, expected) in [
        ("", PrepareError::Malformed),
        (" ", PrepareError::Malformed),
        ("nonsense", PrepareError::Malformed),
        ("{\"event\":\"a\"", PrepareError::Malformed),
        ("[{}]x", PrepareError::Malformed),
        ("7", PrepareError::NoObject),
        ("null", PrepareError::NoObject),
        ("true", PrepareError::NoObject),
        ("\"text\"", PrepareError::NoObject),
        ("[]", PrepareError::NoEvents),
        (r#"{"api_key":"phc_a","batch":[]}"#, PrepareError::NoEvents),
        ("{}", PrepareError::NoToken),
        ("[1,2]", PrepareError::NoToken),
    ] {
        assert_eq!(prepare_with(body, &received()).unwrap_err(), expected, "{body}");
    }
}

#[test]
fn dropped_events_are_counted_and_the_others_stay() {
    let good = r#"{"event":"good","distinct_id":"u1","properties":{"price":1}}"#;
    let long =
        format!(r#"{{"event":"e","distinct_id":"u","x":"{}"}}"#, "x".repeat(EVENT_MAX_BYTES));
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
        assert_eq!(prepared.event_ids.len(), 3);
        for row in 0..3 {
            assert_eq!(cell(&prepared, row, "p_price"), 1.0);
            assert_eq!(cell(&prepared, row, "p_$os"), Json::Null);
        }
        // The first of the person says it all.
        assert_eq!(prepared.ops.len(), 1);
    }
}

/// A dropped row must not take with it what stands far above it in a column that few rows have.
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
    for (filler, rows) in
        [(EVENT_MAX_BYTES - empty.len(), 1), (EVENT_MAX_BYTES - empty.len() + 1, 0)]
    {
        let event = format!(r#"{{"event":"e","distinct_id":"u","x":"{}"}}"#, "x".repeat(filler));
        let prepared = prepare(format!(r#"{{"api_key":"phc_a","batch":[ {event} ]}}"#));
        assert_eq!(prepared.rows, rows);
    }
}

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
        ("-0", "0"),
        ("true", "true"),
        ("false", "false"),
        (r#"[ "a" , "b" ]"#, r#"["a","b"]"#),
        (r#"{ "a" : { "b" : null } }"#, r#"{"a":{"b":null}}"#),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        if given == "-0" {
            continue;
        }
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
        assert_eq!(prepared.event_ids, [Uuid::parse_str(id).unwrap()]);
    }
    let bodies = |uuid: &str| {
        let event = format!(r#"{{"event":"e","distinct_id":"u"{uuid}}}"#);
        format!(r#"{{"api_key":"phc_a","batch":[{event},{event},{event}]}}"#)
    };
    for uuid in ["", r#","uuid":"""#, r#","uuid":"nonsense""#, r#","uuid":7"#, r#","uuid":null"#] {
        let prepared = prepare(bodies(uuid));
        let ids = prepared.event_ids.clone();
        for (row, id) in ids.iter().enumerate() {
            assert_eq!(text(&prepared, row, "uuid"), id.to_string());
            // RFC 9562: version 7 begins with milliseconds since 1970.
            assert_eq!(id.get_version_num(), 7);
            let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
            assert_eq!((seconds, nanos), (1_795_248_000, 0));
        }
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert_eq!(prepare(bodies(uuid)).event_ids, ids, "same seed, same ids");
        let other = Received { seed: 43, ..received() };
        let others = prepare_with(bodies(uuid), &other).unwrap().event_ids;
        assert!(others.iter().all(|id| !ids.contains(id)), "other seed, other ids");
    }
}

#[test]
fn timestamps_follow_the_senders_clock_error() {
    let query = |millis| Received { sent_at_query_millis: Some(millis), ..received() };
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
        // The envelope's counts; the query's if that one cannot be read.
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

#[test]
fn promoted_properties_have_columns_of_one_type() {
    let prepared = with_properties(
        r#""$current_url":"https://example.com/a/long/path","$os":"x","price":1.5,"revenue":-7,
           "$screen_width":18446744073709551615,"$is_server":true,"$is_identified":false,
           "$session_id":"a session id of more than twelve bytes","$window_id":"w",
           "utm_source":"caf\u00e9 with an escape, and long""#,
    );
    for (name, expected) in [
        ("p_$current_url", json!("https://example.com/a/long/path")),
        ("p_$os", json!("x")),
        ("p_price", json!(1.5)),
        ("p_revenue", json!(-7.0)),
        ("p_$screen_width", json!(18_446_744_073_709_551_615_f64)),
        ("p_$is_server", json!(true)),
        ("p_$is_identified", json!(false)),
        ("session_id", json!("a session id of more than twelve bytes")),
        ("window_id", json!("w")),
        ("p_utm_source", json!("caf\u{e9} with an escape, and long")),
        ("p_utm_medium", Json::Null),
        ("p_currency", Json::Null),
    ] {
        assert_eq!(cell(&prepared, 0, name), expected, "{name}");
    }
    let wrong = with_properties(
        r#""$current_url":7,"$os":null,"price":"1.5","revenue":true,"$is_server":"true",
           "$is_identified":1,"$session_id":5,"$window_id":{},"utm_source":["x"]"#,
    );
    let schema = events_schema();
    for field in schema.fields().iter().skip(column::SESSION_ID).filter(|field| field.is_nullable())
    {
        let expected = if field.name() == "ip" { json!("203.0.113.7") } else { Json::Null };
        assert_eq!(cell(&wrong, 0, field.name()), expected, "{}", field.name());
    }
}

/// Of two members of the same name the last counts, as in every JSON parser.
#[test]
fn the_last_of_two_members_counts() {
    let prepared = with_properties(
        r#""$os":"first","$os":5,"price":"x","price":2,"$session_id":"s","$session_id":null"#,
    );
    assert_eq!(cell(&prepared, 0, "p_$os"), Json::Null);
    assert_eq!(cell(&prepared, 0, "p_price"), 2.0);
    assert_eq!(cell(&prepared, 0, "session_id"), Json::Null);
    let prepared = one(
        r#""event":"a","event":"b","distinct_id":"u","properties":{"$os":"first","$set":{"a":1}},"properties":{"price":1}"#,
    );
    assert_eq!(text(&prepared, 0, "event"), "b");
    assert_eq!(cell(&prepared, 0, "p_$os"), Json::Null);
    assert_eq!(cell(&prepared, 0, "p_price"), 1.0);
    assert_eq!(cell(&prepared, 0, "properties"), r#"{"price":1}"#);
    assert!(matches!(prepared.ops[0].kind, OpKind::Touch), "{:?}", prepared.ops);
}

#[test]
fn properties_are_stored_as_they_were_written() {
    for given in [
        "{}",
        "{ }",
        r#"{"a":1}"#,
        "{ \"b\" :\t[ 1 , 2.50 , 1E2 ] ,\n\"a\" : \"caf\\u00e9 \\/ \\\"\" }",
        "{\"\u{1f600}\":{\"deep\":[[[{}]]]},\"z\":null,\"a\":true,\"n\":123456789012345678901234567890}",
        r#"{"$set":{"a":1},"$ip":"127.0.0.1","$groups":{"unknown":"c"}}"#,
        r#"{"a":1,"a":2}"#,
    ] {
        for body in [
            format!(
                r#"{{"api_key":"phc_a","batch":[{{"event":"e","distinct_id":"u","properties":{given}}}]}}"#
            ),
            format!(
                r#"{{"batch" : [ {{"properties" : {given} , "event":"e","distinct_id":"u"}} ],"api_key":"phc_a"}}"#
            ),
        ] {
            assert_eq!(cell(&prepare(&body), 0, "properties"), given, "{body}");
        }
    }
    for absent in ["null", "\"text\"", "[1]", "7"] {
        let prepared = one(&format!(r#""event":"e","distinct_id":"u","properties":{absent}"#));
        assert_eq!(texts(&prepared, "properties"), ["{}"], "{absent}");
    }
}

#[test]
fn the_elements_chain_has_a_column_instead() {
    for (given, properties, chain) in [
        (r#""$elements_chain":"a:href=\"/x\"""#, "{}", json!("a:href=\"/x\"")),
        (
            r#""x":1,"$elements_chain":"button.one.two","y":[2]"#,
            r#"{"x":1,"y":[2]}"#,
            json!("button.one.two"),
        ),
        (
            r#""$elements":[{"tag_name":"a"}],"$elements_chain":"a long chain of elements","y" : 2"#,
            r#"{"y" : 2}"#,
            json!("a long chain of elements"),
        ),
        // Old SDKs send the elements themselves.
        (
            r#""$elements":[{"tag_name":"a","$el_text":"x"}],"$elements_chain":null,"y":2"#,
            r#"{"y":2}"#,
            json!(r#"a:nth-child="0"nth-of-type="0"text="x""#),
        ),
        (r#""$elements":[],"y":2"#, r#"{"y":2}"#, Json::Null),
        // What is neither is kept.
        (r#""$elements":"a""#, r#"{"$elements":"a"}"#, Json::Null),
        (r#""$elements_chain":null"#, r#"{"$elements_chain":null}"#, Json::Null),
    ] {
        let prepared = with_properties(given);
        assert_eq!(cell(&prepared, 0, "properties"), properties);
        assert_eq!(cell(&prepared, 0, "elements_chain"), chain);
    }
    let prepared =
        one(r#""event":"e","distinct_id":"u","$set":{"a":1},"properties":{"$elements":{}}"#);
    assert_eq!(cell(&prepared, 0, "properties"), r#"{"$elements":{},"$set":{"a":1}}"#);
}

#[test]
fn the_address_is_the_events_own_or_the_clients() {
    assert_eq!(text(&with_properties(r#""$ip":"198.51.100.20""#), 0, "ip"), "198.51.100.20");
    for falsy in [r#""$ip":"""#, r#""$ip":null"#, r#""x":1"#] {
        assert_eq!(text(&with_properties(falsy), 0, "ip"), "203.0.113.7", "{falsy}");
    }
    let own = with_properties(r#""capture_internal":true"#);
    assert_eq!(text(&own, 0, "ip"), "127.0.0.1");
    let unknown = Received { client_ip: None, ..received() };
    let body = r#"{"api_key":"phc_a","event":"e","distinct_id":"u"}"#;
    assert_eq!(cell(&prepare_with(body, &unknown).unwrap(), 0, "ip"), Json::Null);
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
    assert_eq!(prepare_with(alone, &received()).unwrap_err(), PrepareError::Malformed);
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
