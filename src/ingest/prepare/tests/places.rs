//! The address and the place of events: stored properties and effects on persons.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Preparer;
use super::{cell, received};
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::request::Received;
use weir_event::geoip::{GeoIp, Places};
use weir_event::id::ProjectId;
use weir_identity::auto_set::AutoSet;
use weir_identity::change::OpKind;
use weir_sim::mmdb::{example, file};

/// An address in Oxford, by the example database, and one in Japan.
const OXFORD: &str = "81.2.69.142";
const JAPAN: &str = "133.0.0.1";

#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    client: Option<&'static str>,
    anonymize_ips: bool,
    has_places: bool,
}

const FROM_OXFORD: Setting =
    Setting { client: Some(OXFORD), anonymize_ips: false, has_places: true };

fn prepare(setting: Setting, events: &Value) -> Prepared {
    let (_directory, path) = file(&example());
    let database = setting.has_places.then(|| GeoIp::open(&path).unwrap());
    prepare_with(setting, events, database.map_or(Places::Unknown, Places::Database))
}

fn prepare_with(setting: Setting, events: &Value, places: Places) -> Prepared {
    let client_ip = setting.client.map(|client| client.parse::<IpAddr>().unwrap());
    let received = Received { client_ip, ..received() };
    let facts = |_: &str| {
        Some(ProjectFacts {
            id: ProjectId(7),
            group_types: Vec::new(),
            anonymize_ips: setting.anonymize_ips,
            places: places.clone(),
        })
    };
    let body = json!({"api_key": "phc_a", "batch": events}).to_string().into_bytes();
    Preparer::default().prepare(body, &received, &facts).unwrap()
}

/// One column of text, row by row.
fn column_text(prepared: &Prepared, name: &str) -> Vec<Option<String>> {
    (0..prepared.rows).map(|row| cell(prepared, row, name).as_str().map(str::to_owned)).collect()
}

/// The stored properties and the address of the one event with these properties.
fn stored(setting: Setting, properties: &Value) -> (Value, Option<String>) {
    let event = json!([{"event": "e", "distinct_id": "d", "properties": properties}]);
    let prepared = prepare(setting, &event);
    let text = column_text(&prepared, "properties").remove(0).expect("properties");
    (serde_json::from_str(&text).expect("JSON"), column_text(&prepared, "ip").remove(0))
}

#[test]
fn an_event_without_an_address_gets_that_of_its_sender() {
    let known = Setting { client: Some("203.0.113.7"), ..Setting::default() };
    let unknown = Setting::default();
    let hidden = Setting { anonymize_ips: true, ..known };
    for (setting, sent, expected, ip) in [
        (known, json!({}), json!({"$ip": "203.0.113.7"}), Some("203.0.113.7")),
        (known, json!({"a": 1}), json!({"a": 1, "$ip": "203.0.113.7"}), Some("203.0.113.7")),
        (known, json!({"$ip": ""}), json!({"$ip": "203.0.113.7"}), Some("203.0.113.7")),
        (known, json!({"$ip": null}), json!({"$ip": "203.0.113.7"}), Some("203.0.113.7")),
        (known, json!({"$ip": false}), json!({"$ip": "203.0.113.7"}), Some("203.0.113.7")),
        (known, json!({"$ip": 0}), json!({"$ip": "203.0.113.7"}), Some("203.0.113.7")),
        (
            known,
            json!({"capture_internal": 1}),
            json!({"capture_internal": 1, "$ip": "127.0.0.1"}),
            Some("127.0.0.1"),
        ),
        (known, json!({"$ip": "1.2.3.4"}), json!({"$ip": "1.2.3.4"}), Some("1.2.3.4")),
        (known, json!({"$ip": "mine"}), json!({"$ip": "mine"}), Some("mine")),
        (known, json!({"$ip": [1]}), json!({"$ip": [1]}), Some("203.0.113.7")),
        (unknown, json!({"a": 1}), json!({"a": 1}), None),
        (unknown, json!({"$ip": "1.2.3.4"}), json!({"$ip": "1.2.3.4"}), Some("1.2.3.4")),
        (hidden, json!({"a": 1}), json!({"a": 1}), None),
        (hidden, json!({"$ip": "1.2.3.4", "a": 1}), json!({"a": 1}), None),
        (hidden, json!({"a": 1, "$ip": 5}), json!({"a": 1}), None),
        (Setting { client: None, ..hidden }, json!({"$ip": "1.2.3.4"}), json!({}), None),
    ] {
        let (properties, address) = stored(setting, &sent);
        assert_eq!((&properties, address.as_deref()), (&expected, ip), "{setting:?} {sent}");
    }
}

#[test]
fn the_place_of_the_address_is_stored_unless_the_sender_objects() {
    let city = |properties: &Value| properties["$geoip_city_name"].as_str().map(str::to_owned);
    let off = Setting { has_places: false, ..FROM_OXFORD };
    let hidden = Setting { anonymize_ips: true, ..FROM_OXFORD };
    let elsewhere = Setting { client: Some("1.1.1.1"), ..FROM_OXFORD };
    for (setting, sent, expected) in [
        (FROM_OXFORD, json!({}), Some("Oxford")),
        (FROM_OXFORD, json!({"a": {"$geoip_city_name": "in an object"}}), Some("Oxford")),
        (FROM_OXFORD, json!({"$geoip_disable": false}), Some("Oxford")),
        (FROM_OXFORD, json!({"$geoip_disable": true}), None),
        (FROM_OXFORD, json!({"$ip": JAPAN}), None),
        (FROM_OXFORD, json!({"$ip": "not an address"}), None),
        (FROM_OXFORD, json!({"$geoip_country_code": "XX"}), None),
        (FROM_OXFORD, json!({"$set": {"$geoip_country_code": "XX"}}), None),
        (FROM_OXFORD, json!({"$set_once": {"$initial_geoip_country_code": "XX"}}), None),
        (hidden, json!({}), Some("Oxford")),
        (elsewhere, json!({"$ip": OXFORD}), Some("Oxford")),
        (elsewhere, json!({}), None),
        (off, json!({}), None),
    ] {
        let (properties, _) = stored(setting, &sent);
        assert_eq!(city(&properties).as_deref(), expected, "{setting:?} {sent}");
        assert_eq!(properties.get("$set"), sent.get("$set"), "{setting:?} {sent}");
    }
}

#[test]
fn a_person_is_told_the_whole_place_beside_what_the_sender_sets() {
    let sent = json!({"$set": {"a": 1}, "$set_once": {}, "z": "last"});
    let setting = Setting { client: Some(JAPAN), ..FROM_OXFORD };
    let (properties, _) = stored(setting, &sent);
    assert_eq!(
        properties,
        json!({
            "z": "last", "$ip": JAPAN, "$set": {"a": 1}, "$set_once": {},
            "$geoip_country_name": "Japan", "$geoip_country_code": "JP",
        })
    );
    let event = json!([{"event": "e", "distinct_id": "d", "properties": sent}]);
    let prepared = prepare(setting, &event);
    let OpKind::Update(update) = &prepared.ops[0].kind else { panic!("{:?}", prepared.ops) };
    let (mut set, mut once) = (json!({}), json!({}));
    for (key, initial, value) in update.auto_set.iter().flatten().flat_map(AutoSet::read) {
        key.into_iter().for_each(|key| set[key] = value.clone());
        initial.into_iter().for_each(|initial| once[initial] = value.clone());
    }
    // Null for unknown values, so that nothing of a previous place remains.
    let mut expected = json!({});
    for (name, _) in weir_event::geoip::NAMES {
        expected[*name] = Value::Null;
    }
    expected["$geoip_country_name"] = json!("Japan");
    expected["$geoip_country_code"] = json!("JP");
    assert_eq!(set, expected);
    assert_eq!(
        once,
        json!({
            "$initial_geoip_country_name": "Japan", "$initial_geoip_country_code": "JP",
        })
    );
    assert_eq!(update.set, json!({"a": 1}).as_object().cloned().unwrap());
}

#[test]
fn columns_of_properties_have_the_place_too() {
    let events = json!([
        {"event": "e", "distinct_id": "d"},
        {"event": "e", "distinct_id": "d", "properties": {"$geoip_disable": true}},
        {"event": "e", "distinct_id": "d", "properties": {"$geoip_city_name": "Mine"}},
    ]);
    let prepared = prepare(FROM_OXFORD, &events);
    for (name, expected) in [
        ("p_$geoip_city_name", [Some("Oxford"), None, Some("Mine")]),
        ("p_$geoip_country_code", [Some("GB"), None, None]),
        ("p_$geoip_time_zone", [Some("Europe/London"), None, None]),
    ] {
        let found = column_text(&prepared, name);
        assert_eq!(found, expected.map(|text| text.map(str::to_owned)), "{name}");
    }
}

/// Cities that each op sets, in order; `-` for an update without, `touch` and so on for others.
fn cities_set(prepared: &Prepared) -> Vec<String> {
    let cities = prepared.ops.iter().map(|op| match &op.kind {
        OpKind::Update(update) | OpKind::Merge { update, .. } => {
            let name = "$geoip_city_name";
            let mut auto_set = update.auto_set.iter().flatten().flat_map(AutoSet::read);
            let auto_set = auto_set.find(|(key, ..)| *key == Some(name)).map(|(.., value)| value);
            let city = auto_set.or_else(|| update.set.get(name).cloned());
            let city = city.map(|city| city.to_string());
            format!("{} {}", op.distinct_id, city.as_deref().unwrap_or("-"))
        }
        OpKind::Touch => format!("{} touch", op.distinct_id),
        OpKind::Personless => format!("{} personless", op.distinct_id),
        other => format!("{other:?}"),
    });
    cities.collect()
}

#[test]
fn a_person_is_told_a_place_once_until_something_happens() {
    let event = |who: &str, name: &str, properties: Value| json!({"event": name, "distinct_id": who, "properties": properties});
    let plain = |who: &str| event(who, "e", json!({}));
    for (events, expected) in [
        (
            vec![plain("a"), plain("a"), plain("b"), plain("a")],
            &["a \"Oxford\"", "b \"Oxford\""][..],
        ),
        (
            vec![plain("a"), event("a", "e", json!({"$ip": JAPAN})), plain("a")],
            &["a \"Oxford\"", "a null", "a \"Oxford\""],
        ),
        (
            vec![plain("a"), event("b", "e", json!({"$ip": JAPAN})), plain("a")],
            &["a \"Oxford\"", "b null", "a \"Oxford\""],
        ),
        (
            vec![
                plain("a"),
                event("b", "$identify", json!({"$anon_distinct_id": "a"})),
                plain("b"),
                plain("b"),
            ],
            &["a \"Oxford\"", "b \"Oxford\"", "b \"Oxford\""],
        ),
        (
            vec![
                plain("a"),
                event("a", "e", json!({"$set": {"$geoip_city_name": "Mine"}})),
                plain("a"),
            ],
            &["a \"Oxford\"", "a \"Mine\"", "a \"Oxford\""],
        ),
        (vec![event("a", "$exception", json!({})), plain("a")], &["a \"Oxford\"", "a \"Oxford\""]),
        (
            vec![event("a", "e", json!({"$process_person_profile": false})), plain("a")],
            &["a personless", "a \"Oxford\""],
        ),
        (vec![plain("a"), event("a", "e", json!({"$set": {"x": 1}}))], &["a \"Oxford\"", "a -"]),
    ] {
        let events = Value::Array(events);
        assert_eq!(cities_set(&prepare(FROM_OXFORD, &events)), expected, "{events}");
    }
}

#[test]
fn who_is_no_person_gets_nothing_set() {
    let events = json!([
        {"event": "e", "distinct_id": "d", "properties": {"$process_person_profile": false}},
        {"event": "$groupidentify", "distinct_id": "d", "properties": {
            "$group_type": "company", "$group_key": "acme"}},
    ]);
    let prepared = prepare(FROM_OXFORD, &events);
    assert_eq!(prepared.rows, 2);
    for text in column_text(&prepared, "properties") {
        let properties: Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(properties["$geoip_city_name"], "Oxford");
        assert_eq!(properties.get("$set"), None);
        assert_eq!(properties.get("$set_once"), None);
    }
}

#[test]
fn a_replay_comes_to_the_same_without_the_database() {
    let events = json!([
        {"event": "e", "distinct_id": "a"},
        {"event": "e", "distinct_id": "b", "properties": {"$ip": JAPAN}},
        {"event": "e", "distinct_id": "c", "properties": {"$ip": "1.1.1.1"}},
    ]);
    let first = prepare(FROM_OXFORD, &events);
    assert_eq!(first.places.len(), 2);
    let found = Places::Found(Arc::new(first.places.iter().cloned().collect()));
    let again = prepare_with(FROM_OXFORD, &events, found);
    assert_eq!(column_text(&again, "properties"), column_text(&first, "properties"));
    assert_eq!(format!("{:?}", again.ops), format!("{:?}", first.ops));
    let nothing = prepare_with(FROM_OXFORD, &events, Places::Unknown);
    assert_ne!(column_text(&nothing, "properties"), column_text(&first, "properties"));
}
