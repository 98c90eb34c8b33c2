//! Tests of the properties that a stream promises. JSON is parsed with `serde_json`, which did not
//! write it.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use uuid::Uuid;

use crate::synth::{Batch, Choice, Settings, Stream};
use weir_base::clock::UnixMicros;

/// 2026-11-21T08:00:00.123456Z: with microseconds, which a stream must truncate to milliseconds.
const NOW: UnixMicros = UnixMicros(1_795_248_000_123_456);

fn stream(seed: u64) -> Stream {
    Stream::new(seed, Settings::new("phc_test", NOW))
}

fn events(batch: &Batch) -> Vec<Value> {
    let text = std::str::from_utf8(&batch.body).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_seed_determines_every_byte() {
    assert_eq!(stream(7).batch(2_000).body, stream(7).batch(2_000).body);
    assert_ne!(stream(7).batch(10).body, stream(8).batch(10).body);
}

#[test]
fn lines_hold_the_events_of_batches_however_they_are_cut() {
    let lines = stream(3).lines(1_000);
    let mut batches = stream(3);
    let mut found = Vec::new();
    let mut known = Vec::new();
    for count in [1, 0, 499, 500] {
        let batch = batches.batch(count);
        let envelope: Value = serde_json::from_slice(&batch.body).unwrap();
        assert_eq!(envelope["api_key"], "phc_test");
        assert_eq!(envelope["sent_at"], "2026-11-21T08:00:00.123Z");
        found.extend(envelope["batch"].as_array().unwrap().clone());
        known.extend(batch.events);
    }
    assert_eq!(found, events(&lines));
    assert_eq!(known, lines.events);
}

#[test]
fn what_is_known_is_what_was_written() {
    let batch = stream(11).lines(5_000);
    let oldest = UnixMicros(NOW.0 - 24 * 3_600 * 1_000_000 - 1_000);
    let mut uuids = HashSet::new();
    for (value, known) in events(&batch).iter().zip(&batch.events) {
        let uuid: Uuid = value["uuid"].as_str().unwrap().parse().unwrap();
        let time = chrono::DateTime::parse_from_rfc3339(value["timestamp"].as_str().unwrap());
        let time = UnixMicros(time.unwrap().timestamp_micros());
        assert_eq!(value["event"], known.event);
        assert_eq!(value["distinct_id"], known.distinct_id.to_string());
        assert_eq!((uuid, time), (known.uuid, known.timestamp));
        assert!((oldest..=NOW).contains(&time), "{value}");
        assert_eq!(uuid.get_version_num(), 7);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        let (seconds, nanos) = uuid.get_timestamp().unwrap().to_unix();
        assert_eq!(
            i64::try_from(seconds * 1_000).unwrap() + i64::from(nanos / 1_000_000),
            time.0 / 1_000
        );
        assert!(uuids.insert(uuid));
    }
    assert_eq!(uuids.len(), 5_000);
}

#[test]
fn ids_stay_unique_in_a_long_stream() {
    let mut stream = stream(5);
    let uuids: HashSet<Uuid> =
        (0..60).flat_map(|_| stream.lines(1_000).events).map(|known| known.uuid).collect();
    assert_eq!(uuids.len(), 60_000);
}

#[test]
fn the_mix_and_the_size_are_as_announced() {
    let batch = stream(1).lines(20_000);
    let mut shares = BTreeMap::<&str, usize>::new();
    for known in &batch.events {
        let name = if known.event.starts_with('$') { known.event } else { "product" };
        *shares.entry(name).or_default() += 1;
    }
    for (name, expected) in [
        ("$pageview", 10_000),
        ("$autocapture", 5_000),
        ("product", 4_000),
        ("$identify", 600),
        ("$set", 200),
        ("$groupidentify", 200),
    ] {
        let difference = shares[name].abs_diff(expected);
        assert!(difference <= expected / 40 + 60, "{name}: {}", shares[name]);
    }
    let products: HashSet<&str> = batch.events.iter().map(|known| known.event).collect();
    assert_eq!(products.len(), 5 + 12);
    let average = batch.body.len() / 20_000;
    assert!((900..=1_100).contains(&average), "{average} bytes an event");
}

/// With many persons, each has a profile with an email after two events per person or slightly more.
#[test]
fn an_even_choice_makes_each_person_in_turn() {
    let settings = Settings { persons: 5_000, choice: Choice::Even, ..Settings::new("phc", NOW) };
    let mut stream = Stream::new(9, settings);
    let mut emails = HashSet::new();
    for event in events(&stream.lines(11_000)) {
        emails.extend(event["$set"]["email"].as_str().map(str::to_owned));
    }
    assert_eq!(emails.len(), 5_000);
    let mut users = HashSet::new();
    for known in stream.lines(60_000).events {
        users.insert(known.distinct_id.to_string());
    }
    // Then all are equally likely: with about 30,000 sessions nearly every person has one.
    let seen = (0..5_000).filter(|number| users.contains(&format!("user_{number}"))).count();
    assert!(seen > 4_800, "{seen}");
}

/// The keys of a JSON object as written, with duplicates.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Keys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[derive(Deserialize)]
struct Written {
    event: String,
    properties: Keys,
}

#[test]
fn properties_are_20_to_40_and_no_key_comes_twice() {
    let batch = stream(2).lines(5_000);
    for line in std::str::from_utf8(&batch.body).unwrap().lines() {
        let Written { event, properties: Keys(keys) } = serde_json::from_str(line).unwrap();
        assert!((20..=40).contains(&keys.len()), "{event}: {} properties", keys.len());
        let distinct: HashSet<&String> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "{line}");
    }
}

#[test]
fn identify_names_the_device_and_later_events_the_user() {
    let batch = stream(4).lines(20_000);
    let mut devices_of_users = BTreeMap::<String, String>::new();
    for value in events(&batch).iter().filter(|value| value["event"] == "$identify") {
        let properties = &value["properties"];
        let device = properties["$anon_distinct_id"].as_str().unwrap();
        let user = value["distinct_id"].as_str().unwrap();
        assert!(user.starts_with("user_"), "{value}");
        assert_eq!(properties["$device_id"], device);
        assert_eq!(properties["$is_identified"], true);
        assert!(value["$set"]["email"].is_string() && value["$set_once"].is_object());
        let first = devices_of_users.entry(user.to_owned()).or_insert_with(|| device.to_owned());
        assert_eq!(first, device, "one person, one device");
    }
    assert!(devices_of_users.len() > 100);
}

#[test]
fn sessions_have_several_events_of_one_person_in_order() {
    let batch = stream(6).lines(20_000);
    let mut sessions = BTreeMap::<String, Vec<(String, String)>>::new();
    for value in events(&batch) {
        let properties = &value["properties"];
        if let (Some(session), Some(device)) =
            (properties["$session_id"].as_str(), properties["$device_id"].as_str())
        {
            let time = value["timestamp"].as_str().unwrap().to_owned();
            sessions.entry(session.to_owned()).or_default().push((device.to_owned(), time));
        }
    }
    for events in sessions.values() {
        assert!(events.windows(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 <= pair[1].1));
    }
    let average = 20_000 / sessions.len();
    assert!((5..30).contains(&average), "{average} events a session");
}

#[test]
fn the_population_is_bounded_and_uneven() {
    for persons in [0, 1, 50] {
        let settings = Settings { persons, ..Settings::new("phc_test", NOW) };
        let batch = Stream::new(9, settings).lines(2_000);
        let ids: HashSet<_> = batch.events.iter().map(|known| known.distinct_id).collect();
        let most = usize::try_from(persons.max(1)).unwrap() * 2;
        assert!(ids.len() <= most && ids.len() * 2 >= most, "{} ids", ids.len());
    }
    let mut events_of = BTreeMap::new();
    for known in stream(10).lines(20_000).events {
        *events_of.entry(known.distinct_id).or_insert(0_usize) += 1;
    }
    let mut counts: Vec<usize> = events_of.into_values().collect();
    counts.sort_unstable();
    let busiest: usize = counts.iter().rev().take(100).sum();
    assert!(busiest > 6_000, "the busiest 100 of 10,000 persons have {busiest} of 20,000 events");
}
