//! Other values that are stored differently than they were sent, and the warnings for senders.

use super::people::{batch, ops};
use super::*;
use crate::warnings::Kind;

fn stored(prepared: &Prepared) -> Json {
    serde_json::from_str(&text(prepared, 0, "properties")).unwrap()
}

#[test]
fn some_properties_are_made_or_removed() {
    for (name, given, expected) in [
        (
            "e",
            r#"{"$groups":{"project":"p","company":5,"other":"o"},"$group_1":"forged","$group_4":"x"}"#,
            json!({"$groups": {"project": "p", "company": 5, "other": "o"}, "$group_0": 5,
                   "$group_1": "p", "$group_4": "x"}),
        ),
        (
            "e",
            r#"{"$process_person_profile":false,"$groups":{"company":"c"},"$group_0":"x","$group_4":"y",
                "$set":{"a":1},"$set_once":{"b":1},"$unset":["c"]}"#,
            json!({"$process_person_profile": false, "$groups": {"company": "c"}}),
        ),
        ("e", r#"{"$process_person_profile":true,"x":1}"#, json!({"x": 1})),
        ("e", r#"{"$process_person_profile":"odd"}"#, json!({})),
        (
            "e",
            r#"{"a":1,"ph_product_tours":1,"$product_tours_activated":[],"b":2,
                "$override_feature_flag_payloads":{},"c":3}"#,
            json!({"a": 1, "b": 2, "c": 3}),
        ),
        (
            "$groupidentify",
            r#"{"$group_type":"company","$group_key":"k","$group_set":{"a":1},"$set":{"b":1},
                "$set_once":{"b":1},"$unset":["b"]}"#,
            json!({"$group_type": "company", "$group_key": "k", "$group_set": {"a": 1}}),
        ),
    ] {
        let top = if name == "e" { "" } else { r#","$set":{"top":1},"$unset":["top"]"# };
        let prepared =
            one(&format!(r#""event":"{name}","distinct_id":"u"{top},"properties":{given}"#));
        assert_eq!(stored(&prepared), expected, "{given}");
    }
}

#[test]
fn only_events_of_the_past_say_so() {
    let event = |own: &str| format!(r#"{{"event":"e","distinct_id":"u"{own}}}"#);
    let says = r#","historical_migration":true"#;
    for (own, given, expected) in [
        ("", says, json!(true)),
        (says, "", json!(true)),
        (says, r#","historical_migration":false"#, json!(true)),
        ("", r#","historical_migration":false"#, Json::Null),
        ("", r#","historical_migration":"true""#, Json::Null),
        (r#","historical_migration":1"#, "", Json::Null),
        ("", "", Json::Null),
    ] {
        let event = event(own);
        let prepared = prepare(format!(r#"{{"api_key":"phc_a","batch":[{event}]{given}}}"#));
        assert_eq!(cell(&prepared, 0, "historical_migration"), expected, "{given}");
    }
}

/// Within the ignored skew the difference counts as network delay; above it all of it is corrected.
#[test]
fn small_errors_of_the_senders_clock_may_be_ignored() {
    let body = |sent_at: &str| {
        let event = r#"{"event":"e","distinct_id":"u","timestamp":"2026-11-21T07:00:00Z"}"#;
        format!(r#"{{"api_key":"phc_a","sent_at":"{sent_at}","batch":[{event}]}}"#)
    };
    let second = 1_000_000;
    for (ignored, sent_at, shift) in [
        (0, "2026-11-21T07:59:59Z", second),
        (0, "2026-11-21T08:00:00Z", 0),
        (60_000, "2026-11-21T07:59:59Z", 0),
        (60_000, "2026-11-21T08:01:00Z", 0),
        (60_000, "2026-11-21T07:59:00Z", 0),
        (60_000, "2026-11-21T07:58:59.999999Z", 60 * second + 1),
        (60_000, "2026-11-21T08:10:00Z", -600 * second),
    ] {
        let received = Received { skew_ignored_millis: ignored, ..received() };
        let prepared = prepare_with(body(sent_at), &received).unwrap();
        assert_eq!(cell(&prepared, 0, "timestamp"), NOW - HOUR + shift, "{ignored} {sent_at}");
    }
}

/// A server's flag call creates no person, unless the event asks for a person profile.
#[test]
fn flag_checks_change_only_persons_that_are_known() {
    let check = |properties: &str| {
        let name = "$feature_flag_called";
        format!(r#"{{"event":"{name}","distinct_id":"u","properties":{{{properties}}}}}"#)
    };
    let (plain, touch) = (check(r#""$feature_flag":"f""#), r#"{"event":"e","distinct_id":"u"}"#);
    let silent = "u: update if known {} {} []";
    for (events, expected) in [
        (vec![plain.as_str(), &plain], vec![silent]),
        (vec![&*plain, touch, &*plain], vec![silent, "u: touch"]),
        (vec![touch, &*plain], vec!["u: touch"]),
        (
            vec![&*check(r#""$browser":"b""#)],
            vec![r#"u: update if known {"$browser":"b"} {"$initial_browser":"b"} []"#],
        ),
        (vec![&*check(r#""$process_person_profile":true"#)], vec!["u: touch"]),
        (vec![&*check(r#""$groups":{"company":"c"}"#)], vec!["u: touch"]),
        (vec![&*check(r#""$process_person_profile":false"#)], vec!["u: personless"]),
    ] {
        assert_eq!(ops(&batch(&events)), expected);
    }
}

#[test]
fn senders_hear_what_was_done_to_their_events() {
    let long = "x".repeat(201);
    let longer = "g".repeat(401);
    let properties =
        |members: &str| format!(r#""event":"e","distinct_id":"u","properties":{{{members}}}"#);
    let group = |members: &str| {
        format!(
            r#""event":"$groupidentify","distinct_id":"u","properties":{{"$group_type":"company",{members}}}"#
        )
    };
    for (event, expected) in [
        (r#""event":"e","distinct_id":"u""#.to_owned(), vec![]),
        (
            r#""event":"e","distinct_id":"u","uuid":"","timestamp":null,"$set":null,"properties":{"$process_person_profile":null,"$os":null,"price":1}"#.to_owned(),
            vec![],
        ),
        (format!(r#""event":"{long}","distinct_id":"u""#), vec![Kind::EventNameCut]),
        (format!(r#""event":"e","distinct_id":"{long}""#), vec![Kind::DistinctIdCut]),
        (r#""event":"e","distinct_id":"u","uuid":"x""#.to_owned(), vec![Kind::InvalidUuid]),
        (r#""event":"e","distinct_id":"u","uuid":7"#.to_owned(), vec![Kind::InvalidUuid]),
        (
            r#""event":"e","distinct_id":"u","timestamp":"x""#.to_owned(),
            vec![Kind::InvalidTimestamp],
        ),
        (
            r#""event":"e","distinct_id":"u","timestamp":"2026-11-23T00:00:00Z""#.to_owned(),
            vec![Kind::TimestampInFuture],
        ),
        (
            r#""event":"e","distinct_id":"u","offset":9223372036854775807"#.to_owned(),
            vec![Kind::TimestampOutOfRange],
        ),
        (properties(r#""$process_person_profile":"no""#), vec![Kind::InvalidProcessPersonProfile, Kind::PropertyTypeMismatch]),
        (properties(r#""price":"1.5""#), vec![Kind::PropertyTypeMismatch]),
        (properties(r#""$set":"x""#), vec![Kind::InvalidSet]),
        (properties(r#""$unset":"x""#), vec![Kind::InvalidSet]),
        (r#""event":"e","distinct_id":"u","$set":[1]"#.to_owned(), vec![Kind::InvalidSet]),
        (properties(&format!(r#""$groups":{{"company":"{longer}"}}"#)), vec![Kind::GroupKeyTooLong]),
        (
            properties(r#""$groups":{"1":"k","2":"k","3":"k","4":"k"}"#),
            vec![Kind::TooManyGroupTypes],
        ),
        (group(r#""$group_key":"k","$group_set":[1]"#), vec![Kind::InvalidGroupSet]),
        (group(&format!(r#""$group_key":"{longer}""#)), vec![Kind::GroupKeyTooLong]),
        (
            r#""event":"$identify","distinct_id":"u","properties":{"$anon_distinct_id":[]}"#.to_owned(),
            vec![Kind::InvalidMergeId],
        ),
        (
            r#""event":"$identify","distinct_id":"u","properties":{"$process_person_profile":false}"#.to_owned(),
            vec![Kind::Dropped(Drop::PersonlessMerge)],
        ),
    ] {
        let warnings = one(&event).warnings;
        let found: Vec<Kind> = warnings.counts().map(|(kind, _)| kind).collect();
        assert_eq!(found, expected, "{event}");
        assert_eq!(warnings.samples().len(), expected.len());
    }
    let prepared = one(r#""event":"bought","distinct_id":"u","timestamp":"x""#);
    let sample = &prepared.warnings.samples()[0];
    assert_eq!((sample.event.as_str(), sample.distinct_id.as_str()), ("bought", "u"));
    assert_eq!(sample.event_id, ids(&prepared)[0]);
}
