//! A replay of stored events gives the properties that their person got when they arrived.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Map;

use super::*;
use weir_identity::change::Record;
use weir_identity::limits::Limits;
use weir_identity::property_replay;
use weir_identity::property_replay::PropertyReplay;
use weir_identity::store::Identities;

const NAMES: [&str; 6] = ["e", "$pageview", "$set", "$identify", "$exception", "$$heatmap"];
// No `$geoip_*`: an event does not show whether its sender or the server set the place.
const KEYS: [&str; 9] = [
    "$os",
    "$os_name",
    "$os_version",
    "$is_server",
    "$browser",
    "$pathname",
    "utm_source",
    "$process_person_profile",
    "plan",
];
const OWN_KEYS: [&str; 6] =
    ["plan", "$os", "$initial_os", "$browser", "$initial_pathname", "$pathname"];

fn object(random: &mut StdRng, keys: &[&str]) -> Json {
    let values = [json!("a"), json!("b"), json!(1), json!(null), json!(true), json!(false)];
    let mut object = Map::new();
    for _ in 0..random.random_range(0..4) {
        let key = (*keys.choose(random).unwrap()).to_owned();
        object.insert(key, values.choose(random).unwrap().clone());
    }
    Json::Object(object)
}

fn event(random: &mut StdRng, distinct_id: &str) -> Json {
    let mut properties = object(random, &KEYS);
    for part in ["$set", "$set_once", "$unset"] {
        if random.random_bool(0.3) {
            properties[part] = object(random, &OWN_KEYS);
        }
    }
    let name = NAMES.choose(random).unwrap();
    json!({"event": name, "distinct_id": distinct_id, "properties": properties})
}

#[test]
fn events_tell_what_they_made_of_their_person() {
    let limits = Limits {
        ids_bytes: 1 << 16,
        rows_bytes: 1 << 16,
        blocks_bytes: 1 << 20,
        overrides_bytes: 1 << 16,
        part_bytes: 1 << 20,
    };
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::open(directory.path(), limits).unwrap();
    let (mut sequence, mut changed) = (0, 0);
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let id = format!("u{seed}");
        let (mut told, mut sent, mut records) = (PropertyReplay::default(), Vec::new(), Vec::new());
        for _ in 0..5 {
            sent.push(event(&mut random, &id));
            let prepared = prepare(json!({"api_key": "phc_a", "batch": [sent.last()]}).to_string());
            if prepared.rows == 0 {
                // A personless `$identify` is dropped.
                assert!(prepared.ops.is_empty());
                continue;
            }
            let stored = match cell(&prepared, 0, "properties") {
                Json::String(text) => serde_json::from_str(&text).unwrap(),
                _ => Map::new(),
            };
            if let Some(update) = property_replay::update(&text(&prepared, 0, "event"), &stored) {
                told.step(update);
            }
            sequence += 1;
            records.push(Record { sequence, project: ProjectId(7), ops: prepared.ops });
        }
        identities.apply(&records).unwrap();
        let person = identities.view().person_of(ProjectId(7), &id).unwrap();
        let mut became = person.map(|person| person.properties).unwrap_or_default();
        became.remove("$creator_event_uuid");
        changed += usize::from(!became.is_empty());
        assert_eq!(told.into_properties(), became, "{seed}: {sent:#?}");
    }
    assert!(changed > 200, "{changed}");
}
