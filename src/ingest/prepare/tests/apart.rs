//! Copies of other projects: events without effects on persons, and effects on persons without events.

use super::people::ops;
use super::*;

fn only(only: &str, events: &str) -> Prepared {
    let body = format!(
        r#"{{"api_key":"phc_a","historical_migration":true,"import":{{"person_properties":"overwrite"{only}}},"batch":[{events}]}}"#
    );
    let received = Received { client_ip: Some("203.0.113.9".parse().unwrap()), ..received() };
    prepare_with(body, &received).unwrap()
}

const EVENTS: &str = r#"
    {"event":"$identify","distinct_id":"u","timestamp":"2026-01-02T03:04:05.000006Z",
     "properties":{"$anon_distinct_id":"a","$browser":"Firefox","$os_name":"Linux","$set":{"plan":"pro"}}},
    {"event":"$groupidentify","distinct_id":"g","properties":{"$group_type":"company","$group_key":"acme","$group_set":{"size":3}}},
    {"event":"bought","distinct_id":"u","properties":{"$ip":"198.51.100.7","$groups":{"company":"acme"}}}"#;

#[test]
fn events_alone_are_stored_as_they_are_and_touch_nobody() {
    let prepared = only(",\"only\":\"events\"", EVENTS);
    assert_eq!(prepared.rows, 3);
    assert_eq!(ops(&prepared), ["u: personless", "g: personless"]);
    let stored: Json =
        serde_json::from_str(cell(&prepared, 0, "properties").as_str().unwrap()).unwrap();
    assert_eq!(
        stored,
        json!({"$anon_distinct_id": "a", "$browser": "Firefox", "$os_name": "Linux", "$set": {"plan": "pro"}})
    );
    assert_eq!(cell(&prepared, 0, "ip"), Json::Null);
    assert_eq!(cell(&prepared, 2, "ip"), "198.51.100.7");
    assert_eq!(cell(&prepared, 2, "group_0"), "acme");
}

/// The types of groups have other numbers in the project that the events come from.
#[test]
fn groups_get_the_numbers_of_this_project() {
    let event = r#"{"event":"e","distinct_id":"u","properties":{"$group_0":"x","$groups":{"project":"x"},"$group_4":"y"}}"#;
    let prepared = only(",\"only\":\"events\"", event);
    let stored: Json =
        serde_json::from_str(cell(&prepared, 0, "properties").as_str().unwrap()).unwrap();
    assert_eq!(stored, json!({"$groups": {"project": "x"}, "$group_1": "x"}));
    assert_eq!(
        (cell(&prepared, 0, "group_0"), cell(&prepared, 0, "group_1")),
        (Json::Null, json!("x"))
    );
}

#[test]
fn persons_alone_change_and_leave_no_event() {
    let prepared = only(",\"only\":\"persons\"", EVENTS);
    assert_eq!((prepared.rows, prepared.keys.len()), (0, 0));
    assert_eq!(prepared.observed.event_names().count(), 0);
    let ops = ops(&prepared);
    // The last event tells nothing of a person that is known by then.
    assert_eq!(ops.len(), 3, "{ops:?}");
    assert_eq!(ops[0], ": types [\"company\", \"project\"]");
    assert_eq!(ops[1], "u: merge a");
    assert_eq!(ops[2], "g: group company acme {\"size\":3}");
    assert_eq!(prepared.ops[1].timestamp, UnixMicros(1_767_323_045_000_006));
}

#[test]
fn other_values_are_refused() {
    for value in ["\"event\"", "true", "7", "{}", "null"] {
        let body = format!(
            r#"{{"api_key":"phc_a","historical_migration":true,"import":{{"only":{value},"person_properties":"fill"}},
                "batch":[{{"event":"e","distinct_id":"u"}}]}}"#
        );
        let error = prepare_with(body, &received()).unwrap_err();
        assert_eq!(error, PrepareError::Import, "{value}");
    }
    assert_eq!(only("", EVENTS).rows, 3);
    let all = ops(&only("", EVENTS));
    let merge = "u: merge a";
    assert_eq!((all.len(), all[1].as_str(), all[2].as_str()), (4, merge, "g: touch"), "{all:?}");
}
