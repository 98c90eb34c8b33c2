//! Imports: events keep their times, addresses and ids, and what a list of events returns is the same event when it is
//! sent. Records of the rules before that are replayed as they were read.

use super::*;
use crate::request::Rules;

const ID: &str = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";

fn at(text: &str) -> i64 {
    weir_event::time::parse_rfc3339(text).unwrap().0
}

/// A sender at an address, whose clock is ten minutes ahead.
fn sender(rules: Rules) -> Received {
    let protocol = Protocol::V0 { sent_at_query_millis: Some(NOW / 1000 + 600_000), engage: false };
    let client_ip = Some("203.0.113.9".parse().unwrap());
    Received { client_ip, protocol, rules, ..received() }
}

/// Goal: an import never shifts a time, whatever else says when it was sent. The expected times are what the events
/// say; the third column is what the rules before gave.
#[test]
fn an_import_keeps_every_time() {
    for (members, expected, before) in [
        (r#""timestamp":"2020-01-02T03:04:05.678901Z""#, "2020-01-02T03:04:05.678901Z", None),
        (r#""timestamp":"2020-01-02T03:04:05.678901+05:30""#, "2020-01-01T21:34:05.678901Z", None),
        (
            r#""timestamp":"2020-01-02T03:04:05Z","sent_at":"2026-11-21T08:10:00Z""#,
            "2020-01-02T03:04:05Z",
            None,
        ),
        (r#""timestamp":"1969-12-31T23:59:59.999999Z""#, "1969-12-31T23:59:59.999999Z", None),
        // Relative to the arrival, which says nothing of the past.
        (
            r#""timestamp":"2020-01-02T03:04:05.000001Z","offset":60000"#,
            "2020-01-02T03:04:05.000001Z",
            Some("2026-11-21T07:59:00Z"),
        ),
        (
            r#""timestamp":"2031-01-02T03:04:05.000001Z""#,
            "2031-01-02T03:04:05.000001Z",
            Some("2026-11-21T08:00:00Z"),
        ),
        (r#""offset":60000"#, "2026-11-21T07:59:00Z", None),
        (r#""timestamp":"nonsense""#, "2026-11-21T08:00:00Z", None),
    ] {
        let event = format!(r#"{{"event":"e","distinct_id":"u",{members}}}"#);
        let sent = r#""sent_at":"2026-11-21T08:10:00Z""#;
        let whole = format!(
            r#"{{"api_key":"phc_a","batch":[{event}],{sent},"historical_migration":true}}"#
        );
        let one = event.replacen('{', r#"{"historical_migration":true,"api_key":"phc_a","#, 1);
        for (body, rules) in [
            (&whole, Rules::ExactImports),
            (&one, Rules::ExactImports),
            (&format!("[{one}]"), Rules::ExactImports),
            (&whole, Rules::First),
        ] {
            let prepared = prepare_with(body, &sender(rules)).unwrap();
            let expected =
                if rules == Rules::First { before.unwrap_or(expected) } else { expected };
            assert_eq!(cell(&prepared, 0, "timestamp"), at(expected), "{rules:?} {body}");
        }
    }
}

#[test]
fn an_import_by_the_newer_protocol_keeps_every_time() {
    let sent_at = UnixMicros(NOW + 600_000_000);
    let received = Received { protocol: Protocol::V1 { sent_at, sdk: None }, ..received() };
    let preparer = Preparer::default();
    for (time, historical, expected) in [
        ("2020-01-02T03:04:05.678901Z", true, "2020-01-02T03:04:05.678901Z"),
        ("2031-01-02T03:04:05.678901Z", true, "2031-01-02T03:04:05.678901Z"),
        ("2026-11-21T07:00:00Z", false, "2026-11-21T06:50:00Z"),
    ] {
        let body = format!(
            r#"{{"created_at":"2026-11-21T08:00:00Z","historical_migration":{historical},"batch":[
                {{"event":"e","distinct_id":"u","uuid":"{ID}","timestamp":"{time}"}}]}}"#
        );
        let one = |_: &str| project("phc_a");
        let prepared = preparer.prepare(body.into_bytes(), &received, &one).unwrap();
        assert_eq!(cell(&prepared, 0, "timestamp"), at(expected), "{time}");
    }
}

#[test]
fn an_import_has_no_address_of_its_sender() {
    for (historical, rules, ip, expected) in [
        (true, Rules::ExactImports, "", Json::Null),
        (true, Rules::ExactImports, r#""$ip":"198.51.100.7""#, json!("198.51.100.7")),
        (true, Rules::First, "", json!("203.0.113.9")),
        (false, Rules::ExactImports, "", json!("203.0.113.9")),
    ] {
        let body = format!(
            r#"{{"api_key":"phc_a","historical_migration":{historical},
                "batch":[{{"event":"e","distinct_id":"u","properties":{{{ip}}}}}]}}"#
        );
        let prepared = prepare_with(&body, &sender(rules)).unwrap();
        assert_eq!(cell(&prepared, 0, "ip"), expected, "{body}");
        let stored: Json = serde_json::from_str(&text(&prepared, 0, "properties")).unwrap();
        assert_eq!(stored.get("$ip").cloned().unwrap_or_default(), expected, "{body}");
    }
}

#[test]
fn ids_and_chains_of_lists_are_those_of_the_event() {
    let other = "11111111-2222-4333-8444-555555555555";
    for (members, id, chain) in [
        (format!(r#""id":"{ID}","elements_chain":"a:href=\"/\"""#), Some(ID), "a:href=\"/\""),
        (format!(r#""id":"{}""#, ID.to_uppercase()), Some(ID), ""),
        (format!(r#""id":"{ID}","uuid":null"#), Some(ID), ""),
        (format!(r#""id":"{other}","uuid":"{ID}""#), Some(ID), ""),
        (r#""id":"17","elements_chain":7"#.to_owned(), None, ""),
        (r#""id":17,"elements_chain":"","elements":[{"tag_name":"a"}]"#.to_owned(), None, ""),
        (format!(r#""id":"{ID}","uuid":"wrong""#), None, ""),
        (
            r#""elements_chain":"top","properties":{"$elements_chain":"own"}"#.to_owned(),
            None,
            "own",
        ),
        (
            r#""elements_chain":"top","properties":{"$elements":[{"tag_name":"a"}]}"#.to_owned(),
            None,
            "top",
        ),
    ] {
        let imported =
            one(&format!(r#""event":"e","distinct_id":"u","historical_migration":true,{members}"#));
        match id {
            Some(id) => assert_eq!(text(&imported, 0, "uuid"), id, "{members}"),
            None => assert_ne!(text(&imported, 0, "uuid"), ID, "{members}"),
        }
        // What is no import may have an id of its sender's own, the same for different events.
        let prepared = one(&format!(r#""event":"e","distinct_id":"u",{members}"#));
        let has_uuid = members.contains("\"uuid\":\"0");
        assert_eq!(text(&prepared, 0, "uuid") == ID, has_uuid, "{members}");
        let expected = if chain.is_empty() { Json::Null } else { json!(chain) };
        assert_eq!(cell(&prepared, 0, "elements_chain"), expected, "{members}");
        let body = format!(
            r#"{{"api_key":"phc_a","batch":[{{"event":"e","distinct_id":"u",{members}}}]}}"#
        );
        let before = prepare_with(body, &Received { rules: Rules::First, ..received() }).unwrap();
        if !has_uuid {
            assert_ne!(text(&before, 0, "uuid"), ID, "a record of then: {members}");
        }
        assert_ne!(cell(&before, 0, "elements_chain"), "top", "{members}");
    }
}

/// Goal: what a list of events returns is the same event when it is sent. Method: events of SDKs with everything that is
/// rewritten when it is stored; the stored columns, written as lists write them, are prepared again.
#[test]
fn what_a_list_returns_is_the_same_event() {
    let names = ["uuid", "event", "distinct_id", "timestamp", "elements_chain", "ip"];
    for event in [
        r#""event":"e","distinct_id":"u","properties":{"token":"phc_old","a":[1,{"b":"\ud83d\ude00"}],"$set":{"x":1}}"#,
        r#""event":"$autocapture","distinct_id":"u","timestamp":"2026-11-21T07:00:00.123456Z",
            "properties":{"$elements":[{"tag_name":"a","$el_text":"Go \"now\""}],"$os":"iOS","$ip":"198.51.100.7"}"#,
        r#""event":"$identify","distinct_id":" u ","$set":{"top":1},"$unset":["z"],
            "properties":{"$anon_distinct_id":"v","$set":{"below":2},"$set_once":{"c":3}}"#,
        r#""event":"e","distinct_id":"u","properties":{"$process_person_profile":false,"$groups":{"company":5}}"#,
        r#""event":"e","distinct_id":7,"properties":{"$groups":{"company":5,"other":"o"},"$ip":null,"$session_id":"s"}"#,
        r#""event":"e","distinct_id":"u","properties":{"big":123456789012345678901234567890,"f":1.50}"#,
    ] {
        let body = format!(r#"{{"api_key":"phc_a","batch":[{{{event}}}]}}"#);
        let first = prepare_with(body, &sender(Rules::default())).unwrap();
        let properties = text(&first, 0, "properties");
        let chain = cell(&first, 0, "elements_chain");
        let Json::Number(time) = cell(&first, 0, "timestamp") else { panic!("a time") };
        let time = UnixMicros(time.as_i64().unwrap()).to_rfc3339();
        let listed = format!(
            r#"{{"id":"{}","distinct_id":{},"properties":{properties},"event":{},"timestamp":"{time}",
                "person":{{"uuid":"{ID}","is_identified":true,"distinct_ids":["u"],"properties":{{"id":1}}}},
                "elements":[],"elements_chain":{}}}"#,
            text(&first, 0, "uuid"),
            json!(text(&first, 0, "distinct_id")),
            json!(text(&first, 0, "event")),
            json!(chain.as_str().unwrap_or_default()),
        );
        for around in
            ["\"historical_migration\":true", "\"sent_at\":null,\"historical_migration\":true"]
        {
            let body = format!(r#"{{"api_key":"phc_a",{around},"batch":[{listed}]}}"#);
            let elsewhere =
                Received { seed: 5, at: UnixMicros(NOW + HOUR), ..sender(Rules::default()) };
            let again = prepare_with(body, &elsewhere).unwrap();
            for name in names {
                assert_eq!(cell(&again, 0, name), cell(&first, 0, name), "{name} of {event}");
            }
            // The order of keys may be another.
            let object = |text: &str| serde_json::from_str::<Json>(text).unwrap();
            let stored = text(&again, 0, "properties");
            assert_eq!(object(&stored), object(&properties), "{event}");
        }
    }
}
