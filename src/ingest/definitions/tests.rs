//! Expectations from the rules of PostHog's service for property definitions; a model of them,
//! event by event, for what comes out of batches.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::known::{Known, Said};
use super::value_type::{Shape, detect};
use crate::normalize::keys::KeyTable;
use crate::prepare::Preparer;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::request::{Protocol, Received, Rules};
use weir_base::clock::UnixMicros;
use weir_event::geoip::Places;
use weir_event::id::ProjectId;
use weir_metadata::definitions::Sightings;
use weir_metadata::properties::ValueType::{Boolean, DateTime, Numeric, String as Text};
use weir_metadata::properties::{PropertyKind, ValueType};

/// 2026-11-21T08:00:00Z.
const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);
/// 15,768,000 seconds before that.
const RECENT: u64 = 1_779_480_000;

#[test]
fn types_are_told_from_key_and_value() {
    for (key, value, expected) in [
        // 1. Keys that are text whatever the value.
        ("utm_campaign", json!(2026), Some(Text)),
        ("UTM_source", json!(null), Some(Text)),
        ("$initial_utm_term", json!(true), Some(Text)),
        ("$feature/new-checkout", json!(true), Some(Text)),
        ("$feature_flag_response", json!(false), Some(Text)),
        ("$survey_response", json!(["a"]), Some(Text)),
        ("$survey_response_2", json!(5), Some(Text)),
        ("$survey_responses", json!(5), Some(Text)),
        ("$survey_responded", json!(5), Some(Numeric)),
        ("my_utm_source", json!(5), Some(Numeric)),
        ("utm", json!(5), Some(Numeric)),
        ("$feature", json!(true), Some(Boolean)),
        // 2. Times by key and value.
        ("created_at", json!(RECENT), Some(DateTime)),
        ("created_at", json!(RECENT - 1), Some(Numeric)),
        ("createdAt", json!(1_795_248_000_000_u64), Some(DateTime)),
        ("Last-Update", json!(RECENT), Some(DateTime)),
        ("timestamp", json!(u64::MAX), Some(DateTime)),
        ("some_atlas", json!(RECENT), Some(DateTime)),
        ("time", json!(-1), Some(Numeric)),
        ("time", json!(1_795_248_000.5), Some(Numeric)),
        ("created", json!(RECENT), Some(Numeric)),
        ("time", json!("1795248000"), Some(Text)),
        ("date", json!("2026-11-21"), Some(DateTime)),
        ("time", json!(true), Some(Boolean)),
        ("time", json!(null), None),
        // 3. Text.
        ("k", json!("true"), Some(Boolean)),
        ("k", json!(" FALSE "), Some(Boolean)),
        ("k", json!("True"), Some(Text)),
        ("k", json!("2026-11-21"), Some(DateTime)),
        ("k", json!("2026/11-21"), Some(DateTime)),
        ("k", json!("21/11/2026"), Some(DateTime)),
        ("k", json!("11-21-2026 10:00:00"), Some(DateTime)),
        ("k", json!("2026-11-21 08:00:00"), Some(DateTime)),
        ("k", json!("2026-11-21 08:00:00.5 or so"), Some(DateTime)),
        ("k", json!("2026-11-21T08:00:00Z"), Some(DateTime)),
        ("k", json!("2026-11-21T08:00:00.123+02:00"), Some(DateTime)),
        ("k", json!("  2026-11-21 "), Some(DateTime)),
        ("k", json!("Sat, 21 Nov 2026 08:00:00 +0000"), Some(DateTime)),
        ("k", json!("21 Nov 2026 08:00:00 +0000"), Some(DateTime)),
        ("k", json!("2026-39-21"), Some(Text)),
        ("k", json!("2026-11-21T08:00"), Some(Text)),
        ("k", json!("2026-11-21 and more"), Some(Text)),
        ("k", json!("2026-11-21T08:00:00\nmore"), Some(Text)),
        ("k", json!("2026-11"), Some(Text)),
        ("k", json!("21.11.2026"), Some(Text)),
        ("k", json!("Saturday"), Some(Text)),
        ("k", json!("Sat, then"), Some(Text)),
        ("k", json!("42"), Some(Text)),
        ("k", json!(""), Some(Text)),
        ("k", json!("2\u{20ac}26-11-21"), Some(Text)),
        // 4. Everything else.
        ("k", json!(42), Some(Numeric)),
        ("k", json!(-4.5e300), Some(Numeric)),
        ("k", json!(false), Some(Boolean)),
        ("k", json!(null), None),
        ("k", json!({"a": 1}), None),
        ("k", json!([1]), None),
    ] {
        assert_eq!(detect(key, Shape::from(&value), NOW), expected, "{key}: {value}");
    }
}

fn prepare(events: &[Json]) -> Prepared {
    let received = Received {
        at: NOW,
        client_ip: None,
        protocol: Protocol::default(),
        seed: 1,
        skew_ignored_millis: 0,
        event_max_bytes: 1 << 20,
        rules: Rules::default(),
    };
    let body = json!({"api_key": "phc_a", "batch": events}).to_string();
    let facts = || ProjectFacts {
        id: ProjectId(7),
        group_types: group_types(),
        anonymize_ips: false,
        places: Places::Unknown,
    };
    let prepared = Preparer::default().prepare(body.into_bytes(), &received, &|_| Some(facts()));
    prepared.expect("a batch")
}

fn group_types() -> Vec<String> {
    vec!["company".to_owned(), "project".to_owned()]
}

/// The final contents of a metadata store.
#[derive(Debug, Default, PartialEq)]
struct Stored {
    events: BTreeSet<String>,
    properties: BTreeMap<(PropertyKind, String), Option<ValueType>>,
    pairs: BTreeSet<(String, String)>,
}

impl Stored {
    /// The store's rules: each definition once, and its first type stays.
    fn upsert(&mut self, due: Sightings) {
        self.events.extend(due.events.into_iter().map(|seen| seen.name));
        for seen in due.properties {
            self.property(seen.kind, &seen.name, seen.value_type);
        }
        self.pairs.extend(due.pairs.into_iter().map(|seen| (seen.event, seen.property)));
    }

    fn property(&mut self, kind: PropertyKind, name: &str, value_type: Option<ValueType>) {
        let known = self.properties.entry((kind, name.to_owned())).or_default();
        *known = known.or(value_type);
    }

    /// The rules of definitions, for one event as it was sent.
    fn event(&mut self, event: &Json) {
        let name = event["event"].as_str().unwrap();
        let empty = serde_json::Map::new();
        let object = |value: &Json| value.as_object().unwrap_or(&empty).clone();
        let properties = object(&event["properties"]);
        // Properties that are set on a person get a definition, whatever the event.
        for set in ["$set", "$set_once"] {
            for (key, value) in object(properties.get(set).unwrap_or(&Json::Null)) {
                self.sent(PropertyKind::Person, &key, &value);
            }
        }
        if name == "$$plugin_metrics" || name.len() > 200 {
            return;
        }
        self.events.insert(name.replace('\0', "\u{fffd}"));
        if name == "$groupidentify" {
            let kind = match properties.get("$group_type").and_then(Json::as_str) {
                Some("company") => PropertyKind::Group(0),
                Some("project") => PropertyKind::Group(1),
                _ => return,
            };
            for (key, value) in object(properties.get("$group_set").unwrap_or(&Json::Null)) {
                self.sent(kind, &key, &value);
            }
            return;
        }
        for (key, value) in &properties {
            let skipped = ["$set", "$set_once", "$unset", "$groups", "$group_0", "$group_4"];
            if skipped.contains(&key.as_str()) || key.len() > 200 {
                continue;
            }
            self.sent(PropertyKind::Event, key, value);
            if !key.starts_with("$feature/") && !key.starts_with("$feature_enrollment/") {
                self.pairs.insert((name.replace('\0', "\u{fffd}"), key.replace('\0', "\u{fffd}")));
            }
        }
    }

    fn sent(&mut self, kind: PropertyKind, key: &str, value: &Json) {
        if key.len() <= 200 {
            let key = key.replace('\0', "\u{fffd}");
            self.property(kind, &key, detect(&key, value.into(), NOW));
        }
    }
}

/// The definitions after events arrive in batches that end at `cuts`.
fn store(events: &[Json], cuts: &[usize]) -> Stored {
    let mut known = Known::new(KeyTable::slot_names());
    let mut stored = Stored::default();
    let mut rest = events;
    for cut in cuts.iter().copied().chain([usize::MAX]) {
        let (batch, after) = rest.split_at(cut.min(rest.len()));
        rest = after;
        if batch.is_empty() {
            continue;
        }
        let prepared = prepare(batch);
        assert_eq!(prepared.rows, batch.len(), "{:?}", prepared.drops);
        stored.upsert(fold(&mut known, &prepared, NOW));
        // The same batch again has nothing new.
        assert_eq!(fold(&mut known, &prepared, NOW), Sightings::default());
    }
    stored
}

fn fold(known: &mut Known, prepared: &Prepared, at: UnixMicros) -> Sightings {
    let mut due = Sightings::default();
    let said = Said {
        project: prepared.project,
        at,
        observed: &prepared.observed,
        ops: &prepared.ops,
        group_types: &group_types(),
    };
    known.fold(&said, &mut due);
    due
}

fn event(name: &str, properties: Json) -> Json {
    json!({"event": name, "distinct_id": "u", "properties": properties})
}

#[test]
fn definitions_of_a_batch() {
    let long = "k".repeat(201);
    let longest = "k".repeat(200);
    let stored = store(
        &[
            event(
                "a",
                json!({"price": 1, "$lib": null, "x": {"y": 1}, "$groups": {"company": "c"}}),
            ),
            event("b", json!({"$lib": "web", "x": 5, "$feature/f": true, "a\u{0}": 1})),
            event("b", json!({"x": "text", "price": "5", "$set": {"$set": 1, "name": "n"}})),
            event(
                "$groupidentify",
                json!({"$group_type": "project", "$group_key": "p",
                "$group_set": {"size": 3, long.as_str(): 1}, "other": 1, "$lib": "web"}),
            ),
            event("$$plugin_metrics", json!({"secret": 1})),
            event(&"\u{20ac}".repeat(100), json!({"secret": 1})),
            event("c", json!({long.as_str(): 1, longest.as_str(): 1, "$group_4": "g"})),
        ],
        &[],
    );
    let event = |name: &str| (PropertyKind::Event, name.to_owned());
    assert_eq!(stored.events, ["$groupidentify", "a", "b", "c"].map(str::to_owned).into());
    let properties = [
        (event("price"), Some(Numeric)),
        (event("$lib"), Some(Text)),
        (event("x"), Some(Numeric)),
        (event("$feature/f"), Some(Text)),
        (event("a\u{fffd}"), Some(Numeric)),
        (event(&longest), Some(Numeric)),
        ((PropertyKind::Person, "$set".to_owned()), Some(Numeric)),
        ((PropertyKind::Person, "name".to_owned()), Some(Text)),
        ((PropertyKind::Group(1), "size".to_owned()), Some(Numeric)),
    ];
    assert_eq!(stored.properties, properties.into());
    let pairs = [
        ("a", "price"),
        ("a", "$lib"),
        ("a", "x"),
        ("b", "$lib"),
        ("b", "x"),
        ("b", "a\u{fffd}"),
        ("b", "price"),
        ("c", &*longest),
    ];
    let pairs = pairs.map(|(event, property)| (event.to_owned(), property.to_owned()));
    assert_eq!(stored.pairs, pairs.into());
}

/// Auto-set properties and properties in `$set` both get definitions as properties of persons.
#[test]
fn auto_set_properties_are_properties_of_persons() {
    let events = [
        event("$pageview", json!({"$browser": null, "$os_name": "Linux", "utm_name": 5})),
        event("$pageview", json!({"$browser": "Firefox", "$os_name": "Linux"})),
        event("$set", json!({"$set": {"$browser": 5, "$screen_width": 800}})),
        event("$pageview", json!({"$screen_width": "wide"})),
        event("quiet", json!({"$pathname": "/", "$process_person_profile": false})),
    ];
    for cuts in [vec![], vec![1, 1, 1, 1]] {
        let stored = store(&events, &cuts);
        let person = |(kind, _): &(PropertyKind, String)| *kind == PropertyKind::Person;
        let found = stored.properties.iter().filter(|(key, _)| person(key));
        let found: Vec<_> = found.map(|((_, name), kind)| (name.as_str(), *kind)).collect();
        let expected = [
            ("$browser", Some(Text)),
            ("$initial_browser", Some(Text)),
            ("$initial_os", Some(Text)),
            ("$initial_screen_width", Some(Text)),
            ("$initial_utm_name", Some(Text)),
            ("$os", Some(Text)),
            ("$screen_width", Some(Numeric)),
            ("utm_name", Some(Text)),
        ];
        assert_eq!(found, expected);
        let quiet = (PropertyKind::Event, "$process_person_profile".to_owned());
        assert_eq!(stored.properties.get(&quiet), Some(&Some(Boolean)));
        assert!(stored.pairs.contains(&("$pageview".to_owned(), "$os".to_owned())));
    }
}

/// More names than there are bits, and events that are dropped in between.
#[test]
fn pairs_of_many_names() {
    let mut events: Vec<Json> = (0..200)
        .map(|n| event(&format!("e{n}"), json!({format!("k{n}"): n, "$lib": "web", "all": 1})))
        .collect();
    let mut expected = Stored::default();
    events.iter().for_each(|event| expected.event(event));
    assert_eq!(store(&events, &[]), expected);
    let dropped =
        json!({"event": "dropped", "properties": {"dropped": 1, "all": "text", "price": 1}});
    for place in [0, 50, 100] {
        events.insert(place, dropped.clone());
    }
    let prepared = prepare(&events);
    assert_eq!(prepared.rows, 200);
    let mut stored = Stored::default();
    stored.upsert(fold(&mut Known::new(KeyTable::slot_names()), &prepared, NOW));
    assert_eq!(stored, expected);
}

/// One event with too many properties is left out; the others of its batch are not.
#[test]
fn an_event_of_ten_thousand_properties_is_left_out() {
    let many: serde_json::Map<String, Json> =
        (0..5_000).map(|n| (format!("k{n}"), json!(n))).collect();
    let stored = store(&[event("many", Json::Object(many)), event("few", json!({"x": 1}))], &[]);
    assert_eq!(stored.events, ["few".to_owned()].into());
    assert_eq!(stored.properties.len(), 1);
}

/// Keys over the limit of one record are left to another record, which reports them.
#[test]
fn a_record_tells_of_ten_thousand_at_most() {
    let keys = |prefix: &str| -> Json {
        (0..12_000).map(|n| (format!("{prefix}{n}"), json!(n))).collect()
    };
    let group = json!({"$group_type": "company", "$group_key": "k", "$group_set": keys("g")});
    let mut events: Vec<Json> =
        (0..12_000).map(|n| event(&format!("e{n}"), json!({"x": 1}))).collect();
    events.insert(0, event("$groupidentify", group));
    events.insert(0, event("$set", json!({"$set": keys("p"), "$set_once": keys("o")})));
    let prepared = prepare(&events);
    assert_eq!(prepared.rows, 12_002);
    let mut known = Known::new(KeyTable::slot_names());
    let mut stored = Stored::default();
    let count = |stored: &Stored, kind| {
        stored.properties.keys().filter(|(found, _)| *found == kind).count()
    };
    for (persons, groups) in [(10_000, 10_000), (20_000, 12_000), (24_000, 12_000)] {
        stored.upsert(fold(&mut known, &prepared, NOW));
        assert_eq!(count(&stored, PropertyKind::Person), persons);
        assert_eq!(count(&stored, PropertyKind::Group(0)), groups);
        assert_eq!(stored.events.len(), 10_000);
        assert!(stored.events.contains("$set") && stored.events.contains("e9997"));
    }
    assert!(fold(&mut known, &prepared, NOW).is_empty());
    // A name over the limit is reported with its own batch.
    stored.upsert(fold(&mut known, &prepare(&events[11_000..]), NOW));
    assert!(stored.events.contains("e11999"));
}

#[test]
fn the_last_time_is_written_now_and_then() {
    let second = |n: i64| UnixMicros(NOW.0 + n * 1_000_000);
    let mut known = Known::new(KeyTable::slot_names());
    let prepared = prepare(&[event("a", json!({}))]);
    let first = fold(&mut known, &prepared, second(0));
    assert_eq!(first.events[0].seen_at, second(0));
    let mut due = Sightings::default();
    // Monotonic time, which is independent of the wall clock.
    let elapsed = Duration::from_secs;
    known.put_last_seen_if_due(elapsed(0), &mut due);
    assert!(due.is_empty() && !known.lags());
    // Half a minute of events causes one write.
    for n in 1..30_u32 {
        assert!(fold(&mut known, &prepared, second(n.into())).is_empty());
        known.put_last_seen_if_due(elapsed(n.into()), &mut due);
        assert!(due.is_empty() && known.lags(), "{n}");
    }
    known.put_last_seen_if_due(elapsed(30), &mut due);
    assert_eq!(due.events.iter().map(|seen| seen.seen_at).collect::<Vec<_>>(), [second(29)]);
    assert!(!known.lags());
    // Older events, as in a replay, change nothing.
    assert!(fold(&mut known, &prepared, second(5)).is_empty() && !known.lags());
}

#[test]
fn calls_of_flags_are_told_at_once_and_then_now_and_then() {
    let second = |n: i64| UnixMicros(NOW.0 + n * 1_000_000);
    let call = |name: &str, flag: Json, timestamp: &str| {
        json!({"event": name, "distinct_id": "u", "timestamp": timestamp,
            "properties": {"$feature_flag": flag, "$feature_flag_response": true}})
    };
    let called = "$feature_flag_called";
    // 2026-11-21T07:59:50Z is ten seconds before NOW.
    let prepared = prepare(&[
        call(called, json!("a"), "2026-11-21T07:59:40Z"),
        call(called, json!("a"), "2026-11-21T07:59:50Z"),
        call(called, json!("a"), "2026-11-21T07:59:45Z"),
        call(called, json!("b"), "2026-11-21T09:00:00Z"),
        call(called, json!(7), "2026-11-21T07:59:50Z"),
        call(called, json!("x".repeat(401)), "2026-11-21T07:59:50Z"),
        call("other", json!("c"), "2026-11-21T07:59:50Z"),
    ]);
    let mut known = Known::new(KeyTable::slot_names());
    let told = |due: &Sightings| {
        let mut told: Vec<(String, UnixMicros)> =
            due.flags.iter().map(|call| (call.key.clone(), call.at)).collect();
        told.sort();
        told
    };
    let due = fold(&mut known, &prepared, second(0));
    let first = vec![("a".to_owned(), second(-10)), ("b".to_owned(), second(0))];
    assert_eq!(told(&due), first, "none is called later than it is said");
    // The same again is not new; a later time is written together with all that lag.
    assert!(fold(&mut known, &prepared, second(0)).is_empty() && !known.lags());
    let later = prepare(&[call(called, json!("a"), "2026-11-21T07:59:55Z")]);
    assert!(fold(&mut known, &later, second(0)).is_empty() && known.lags());
    let mut due = Sightings::default();
    known.put_last_seen(&mut due);
    assert_eq!(told(&due), [("a".to_owned(), second(-5))]);
    assert!(!known.lags());
}

fn sent_event() -> impl Strategy<Value = Json> {
    let names = ["a", "b", "c", "$groupidentify", "$$plugin_metrics", "n\u{0}l"];
    let keys = [
        "price",
        "$lib",
        "title",
        "revenue",
        "x",
        "y",
        "created_at",
        "$feature/f",
        "utm_other",
        "$feature_enrollment/f",
        "$group_0",
        "",
        "n\u{0}l",
        "$unset",
    ];
    let value = prop::sample::select(vec![
        json!(null),
        json!({"a": 1}),
        json!([]),
        json!("text"),
        json!("true"),
        json!("2026-11-21"),
        json!(5),
        json!(1_795_248_000),
        json!(-0.5),
        json!(true),
    ]);
    let properties = prop::collection::btree_map(prop::sample::select(keys.to_vec()), value, 0..8);
    let set = properties.clone();
    let group = prop::sample::select(vec![json!("company"), json!("project"), json!(null)]);
    let name = prop::sample::select(names.to_vec());
    (name, properties, set, group).prop_map(|(name, mut properties, set, group)| {
        let is_group = name == "$groupidentify";
        properties.insert(if is_group { "$group_set" } else { "$set" }, json!(set));
        if is_group {
            properties.insert("$group_type", group);
            properties.insert("$group_key", json!("k"));
        }
        event(name, json!(properties))
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        ..ProptestConfig::with_failure_persistence(proptest::test_runner::FileFailurePersistence::WithSource("regressions"))
    })]

    /// For any batches, the outcome is that of the rules applied event by event; above all, the first
    /// type stays.
    #[test]
    fn batches_make_no_difference(
        events in prop::collection::vec(sent_event(), 1..30),
        cuts in prop::collection::vec(0_usize..7, 0..12),
    ) {
        let mut expected = Stored::default();
        events.iter().for_each(|event| expected.event(event));
        prop_assert_eq!(store(&events, &cuts), expected);
    }
}
