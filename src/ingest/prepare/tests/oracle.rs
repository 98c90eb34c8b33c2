//! Comparison with a model: the rules of the capture contract over `serde_json` values, without
//! tapes, offsets or columns. Bodies are made as values, then written with white space, escapes and
//! orders of keys that no SDK would use and every JSON parser must take.

#![expect(clippy::cast_possible_truncation, reason = "choices are small")]

use std::collections::BTreeMap;

use chrono::DateTime;
use proptest::prelude::*;
use serde_json::Map;

use super::*;
use weir_event::schema::{PROMOTED, PropertyType, TEXT_OF_SCALARS};

/// The address of the sender, if known.
const CLIENT: &str = "203.0.113.7";

/// A cheap source of choices for the writer; proptest gives the seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // Knuth's MMIX generator; the high bits are the good ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn space(&mut self) -> &'static str {
        ["", "", "", " ", "\n\t", "  \r\n"][self.below(6) as usize]
    }
}

/// A body and the text of the `properties` of each event in it.
#[derive(Default)]
pub(super) struct Written {
    pub(super) text: String,
    properties: Vec<Option<String>>,
}

impl Written {
    fn value(&mut self, value: &Json, dice: &mut Dice) {
        self.text.push_str(dice.space());
        match value {
            Json::Object(map) => {
                let mut members: Vec<_> = map.iter().collect();
                for at in (1..members.len()).rev() {
                    members.swap(at, dice.below(at as u64 + 1) as usize);
                }
                self.text.push('{');
                for (at, (key, value)) in members.into_iter().enumerate() {
                    self.text.push_str(if at > 0 { "," } else { "" });
                    self.text.push_str(dice.space());
                    self.string(key, dice);
                    self.text.push_str(dice.space());
                    self.text.push(':');
                    self.value(value, dice);
                }
                self.text.push_str(dice.space());
                self.text.push('}');
            }
            Json::Array(items) => {
                self.text.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.text.push_str(if at > 0 { "," } else { "" });
                    self.value(item, dice);
                }
                self.text.push_str(dice.space());
                self.text.push(']');
            }
            Json::String(text) => self.string(text, dice),
            other => self.text.push_str(&other.to_string()),
        }
        self.text.push_str(dice.space());
    }

    fn string(&mut self, text: &str, dice: &mut Dice) {
        // Most SDKs escape little, Python everything outside ASCII; few strings are escaped at all.
        let escapes = dice.below(4) == 0;
        self.text.push('"');
        for character in text.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '/' if escapes => self.text.push_str("\\/"),
                _ if u32::from(character) < 0x20 || (escapes && dice.below(3) == 0) => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        self.text.push_str(&format!("\\u{unit:04X}"));
                    }
                }
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }

    /// Writes one event; records its properties as they are written.
    pub(super) fn event(&mut self, event: &Json, dice: &mut Dice) {
        let Some(properties) = event.get("properties") else {
            self.properties.push(None);
            return self.value(event, dice);
        };
        let mut inner = Self::default();
        inner.value(properties, dice);
        let mut rest = event.as_object().unwrap().clone();
        rest.remove("properties");
        let mut outer = Self::default();
        outer.value(&Json::Object(rest), dice);
        let outer = outer.text.trim();
        let is_only = outer.trim_start_matches('{').trim() == "}";
        let comma = if is_only { "" } else { "," };
        if dice.below(2) == 0 {
            let rest = outer.strip_prefix('{').unwrap();
            self.text.push_str(&format!("{{\"properties\":{}{comma}{rest}", inner.text));
        } else {
            let rest = outer.strip_suffix('}').unwrap();
            self.text.push_str(&format!("{rest}{comma}\"properties\" :{}}}", inner.text));
        }
        self.properties.push(Some(inner.text.trim().to_owned()));
    }
}

fn id() -> impl Strategy<Value = Json> {
    prop_oneof![
        6 => prop::sample::select(vec!["u1", "u2", "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b"]).prop_map(Json::from),
        2 => "[ -~\u{e9}\u{1f600}\u{0}]{0,30}".prop_map(Json::from),
        1 => "[a\u{e9}\u{1f600}]{190,210}".prop_map(Json::from),
        1 => any::<i32>().prop_map(Json::from),
        1 => Just(Json::Null),
        1 => Just(json!(["a", {"b": 1}])),
    ]
}

fn name() -> impl Strategy<Value = Json> {
    let names =
        vec!["$pageview", "$identify", "$set", "$groupidentify", "$create_alias", "bought a thing"];
    prop_oneof![
        6 => prop::sample::select(names).prop_map(Json::from),
        1 => id(),
        1 => Just(json!("$performance_event")),
    ]
}

fn scalar() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i32>().prop_map(Json::from),
        any::<i32>().prop_map(|quarters| json!(f64::from(quarters) / 4.0)),
        "[ -~\u{e9}\u{1f600}/\\\\\"\n]{0,24}".prop_map(Json::from),
    ]
}

fn map() -> impl Strategy<Value = Json> {
    let key = prop::sample::select(vec![
        "a",
        "b",
        "email",
        "\u{e9}",
        "x\"y",
        "$os",
        "$initial_os",
        "utm_source",
    ]);
    prop::collection::btree_map(key, scalar(), 0..4).prop_map(|map| {
        Json::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    })
}

fn unset() -> impl Strategy<Value = Json> {
    prop_oneof![map(), Just(json!(["a", "b"])), Just(json!(["email", 5])), scalar()]
}

fn properties() -> impl Strategy<Value = Json> {
    let promoted = prop::sample::select(PROMOTED.map(|(key, _)| key).to_vec());
    let special = prop::sample::select(vec![
        "$session_id",
        "$window_id",
        "$elements_chain",
        "$elements",
        "$ip",
        "$ignore_sent_at",
        "alias",
        "$anon_distinct_id",
        "$group_type",
        "$group_key",
        "$group_0",
        "$group_4",
        "ph_product_tours",
        "gclsrc",
        "$os_name",
        "$is_server",
        "free",
        "",
        "\u{1f600} key",
    ]);
    let members = prop::collection::btree_map(prop_oneof![promoted, special], scalar(), 0..10);
    let fixed = (
        prop::option::weighted(0.2, id()),
        prop::option::weighted(0.2, prop_oneof![map(), scalar()]),
        prop::option::weighted(0.2, prop_oneof![map(), scalar()]),
        prop::option::weighted(0.2, unset()),
        prop::option::weighted(0.2, groups()),
        prop::option::weighted(0.2, any::<bool>().prop_map(Json::from)),
    );
    (members, fixed).prop_map(|(members, (id, set, set_once, unset, groups, processed))| {
        let mut map: Map<String, Json> =
            members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        for (key, value) in [
            ("distinct_id", id),
            ("$set", set),
            ("$set_once", set_once),
            ("$unset", unset),
            ("$groups", groups),
            ("$process_person_profile", processed),
        ] {
            map.extend(value.map(|value| (key.to_owned(), value)));
        }
        Json::Object(map)
    })
}

fn groups() -> impl Strategy<Value = Json> {
    let key = prop::sample::select(vec!["company", "project", "other"]);
    let groups = prop::collection::btree_map(key, id(), 0..3).prop_map(|map| json!(map));
    prop_oneof![4 => groups, 1 => scalar()]
}

fn time() -> impl Strategy<Value = Json> {
    let near = (NOW / 1000 - 200_000_000)..(NOW / 1000 + 200_000_000);
    prop_oneof![
        near.clone().prop_map(|millis| json!(iso(millis, "%Y-%m-%dT%H:%M:%S%.3fZ"))),
        near.clone().prop_map(|millis| json!(iso(millis, "%Y-%m-%dT%H:%M:%S%.6f+00:00"))),
        near.clone().prop_map(|millis| json!(iso(millis, "%Y-%m-%d %H:%M:%S+00:00"))),
        near.prop_map(Json::from),
        Just(json!("yesterday")),
        Just(Json::Null),
    ]
}

fn iso(millis: i64, format: &str) -> String {
    DateTime::from_timestamp_millis(millis).unwrap().format(format).to_string()
}

/// Any event that an SDK, or a client without an SDK, may send.
pub(super) fn event() -> impl Strategy<Value = Json> {
    let uuid = prop_oneof![
        3 => any::<u128>().prop_map(|bits| json!(Uuid::from_u128(bits).to_string())),
        1 => any::<u128>().prop_map(|bits| json!(Uuid::from_u128(bits).to_string().to_uppercase())),
        1 => scalar(),
    ];
    let fields = (
        prop::option::weighted(0.95, name()),
        prop::option::weighted(0.9, id()),
        prop::option::weighted(0.7, uuid),
        prop::option::weighted(0.7, time()),
        prop::option::weighted(0.1, (-90_000_000_i64..9_000_000_000).prop_map(Json::from)),
        prop::option::weighted(0.15, prop_oneof![3 => map(), 1 => scalar()]),
        prop::option::weighted(0.15, prop_oneof![3 => map(), 1 => scalar()]),
        prop::option::weighted(0.15, unset()),
        prop::option::weighted(0.9, prop_oneof![9 => properties(), 1 => scalar()]),
        prop::option::weighted(0.2, scalar()),
    );
    fields.prop_map(|(event, id, uuid, time, offset, set, once, unset, properties, library)| {
        let members = [
            ("event", event),
            ("distinct_id", id),
            ("uuid", uuid),
            ("timestamp", time),
            ("offset", offset),
            ("$set", set),
            ("$set_once", once),
            ("$unset", unset),
            ("properties", properties),
            ("library", library),
        ];
        let given = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Json::Object(given.collect())
    })
}

/// The stored form of one event: its row without generated ids, and how to compare its properties.
struct Stored {
    row: BTreeMap<String, Json>,
    properties: Json,
    is_verbatim: bool,
}

/// A naive implementation of the rules. `None` if the event is dropped.
fn model(event: &Json, sent_at: Option<i64>, client: Option<&str>) -> Option<Stored> {
    let none = Json::Null;
    let get = |key: &str| event.get(key).unwrap_or(&none);
    let properties = match get("properties") {
        Json::Object(map) => map.clone(),
        _ => Map::new(),
    };
    let property = |key: &str| properties.get(key).unwrap_or(&none);
    let name =
        get("event").as_str().filter(|name| !name.is_empty() && *name != "$performance_event")?;
    let is_personless = property("$process_person_profile") == &json!(false);
    if is_personless && ["$identify", "$create_alias", "$merge_dangerously"].contains(&name) {
        return None;
    }
    let id =
        if get("distinct_id").is_null() { property("distinct_id") } else { get("distinct_id") };
    let id: String = as_text(id)?.chars().take(200).collect();

    let mut row = BTreeMap::new();
    let mut put = |key: &str, value: Json| row.insert(key.to_owned(), value);
    for (key, kind) in PROMOTED {
        let value = property(key);
        put(
            &format!("p_{key}"),
            match kind {
                PropertyType::Text if value.is_string() => value.clone(),
                PropertyType::Text
                    if TEXT_OF_SCALARS.contains(&key)
                        && (value.is_boolean() || value.is_number()) =>
                {
                    json!(value.to_string())
                }
                PropertyType::Boolean if value.is_boolean() => value.clone(),
                PropertyType::Double if value.is_number() => json!(value.as_f64()),
                _ => Json::Null,
            },
        );
    }
    // Only a value that disables person processing is stored.
    put("p_$process_person_profile", if is_personless { json!(false) } else { Json::Null });
    let os_name = property("$os_name");
    let is_server = property("$is_server") == &json!(true);
    if !is_server && !properties.contains_key("$os") && os_name.is_string() {
        put("p_$os", os_name.clone());
    }
    put("historical_migration", Json::Null);
    put("project_id", json!(7));
    put("event", json!(name.replace('\0', "\u{fffd}").chars().take(200).collect::<String>()));
    // Source of the namespace: PostHog's person-utils.
    let namespace = Uuid::parse_str("932979b4-65c3-4424-8467-0b66ec27bc22").unwrap();
    put("person_id", json!(Uuid::new_v5(&namespace, format!("7:{id}").as_bytes()).to_string()));
    put("distinct_id", json!(id));
    let ignores = property("$ignore_sent_at") == &json!(true);
    put("timestamp", json!(moment(event, sent_at.filter(|_| !ignores))));
    put("received_at", json!(NOW));
    for (key, column) in [
        ("$session_id", "session_id"),
        ("$window_id", "window_id"),
        ("$elements_chain", "elements_chain"),
    ] {
        put(
            column,
            Some(property(key)).filter(|value| value.is_string()).cloned().unwrap_or_default(),
        );
    }
    put(
        "ip",
        match property("$ip") {
            Json::String(ip) if !ip.is_empty() => json!(ip),
            _ => json!(client),
        },
    );
    for index in 0..5 {
        let group_type = ["company", "project"].get(index).filter(|_| !is_personless);
        let key = group_type.and_then(|name| as_text(property("$groups").get(name)?));
        put(&format!("group_{index}"), json!(key.filter(|key| key.chars().count() <= 400)));
    }
    let given = get("uuid").as_str().and_then(|text| Uuid::parse_str(text).ok());
    put("uuid", json!(given.map(|id| id.to_string())));

    let (properties, is_verbatim) =
        model_properties(event, &properties, name, is_personless, client);
    Some(Stored { row, properties, is_verbatim })
}

/// The properties as they are stored, and whether they are stored as they were written.
fn model_properties(
    event: &Json,
    properties: &Map<String, Json>,
    name: &str,
    is_personless: bool,
    client: Option<&str>,
) -> (Json, bool) {
    let none = Json::Null;
    let get = |key: &str| event.get(key).unwrap_or(&none);
    let property = |key: &str| properties.get(key).unwrap_or(&none);
    let mut stored = properties.clone();
    // As in JavaScript: a falsy value counts as absent.
    let ip = property("$ip");
    let falsy = [json!(null), json!(false), json!(0), json!(0.0), json!("")];
    if let Some(client) = client.filter(|_| falsy.contains(ip)) {
        stored.insert("$ip".to_owned(), json!(client));
    }
    if property("$elements_chain").is_string() {
        stored.remove("$elements_chain");
        stored.remove("$elements");
    }
    stored.remove("ph_product_tours");
    let is_server = property("$is_server") == &json!(true);
    if !is_server && !stored.contains_key("$os") && stored.contains_key("$os_name") {
        stored.insert("$os".to_owned(), property("$os_name").clone());
    }
    if is_personless {
        (0..5).for_each(|index| drop(stored.remove(&format!("$group_{index}"))));
    } else {
        stored.remove("$process_person_profile");
        for (index, group_type) in ["company", "project"].into_iter().enumerate() {
            let Some(key) = property("$groups").get(group_type) else { continue };
            if as_text(key).is_some_and(|text| text.chars().count() <= 400) {
                stored.insert(format!("$group_{index}"), key.clone());
            }
        }
    }
    let mut is_rewritten = false;
    if is_personless || name == "$groupidentify" {
        ["$set", "$set_once", "$unset"].iter().for_each(|key| drop(stored.remove(*key)));
    } else {
        is_rewritten = model_changes(event, properties, &mut stored);
    }
    let is_verbatim = get("properties").is_object() && !is_rewritten && stored == *properties;
    (Json::Object(stored), is_verbatim)
}

/// `$set`, `$set_once` and `$unset` of the stored properties, and whether any of them was rewritten.
fn model_changes(
    event: &Json,
    properties: &Map<String, Json>,
    stored: &mut Map<String, Json>,
) -> bool {
    let none = Json::Null;
    let get = |key: &str| event.get(key).unwrap_or(&none);
    let property = |key: &str| properties.get(key).unwrap_or(&none);
    let both = |key: &str| {
        let mut both = property(key).as_object().cloned().unwrap_or_default();
        both.extend(get(key).as_object().cloned().unwrap_or_default());
        both
    };
    let mut is_rewritten = false;
    for key in ["$set", "$set_once"] {
        if get(key).is_object() {
            is_rewritten = true;
            stored.insert(key.to_owned(), Json::Object(both(key)));
        }
    }
    let (top, below) = (get("$unset"), property("$unset"));
    if top.is_object() || top.is_array() {
        let both = match (below, top) {
            (Json::Object(below), Json::Object(top)) => {
                let mut both = below.clone();
                both.extend(top.clone());
                Json::Object(both)
            }
            (Json::Object(_) | Json::Array(_), _) => json!([names(below), names(top)].concat()),
            _ => top.clone(),
        };
        stored.insert("$unset".to_owned(), both);
        is_rewritten = true;
    }
    is_rewritten
}

/// Section 3.6 of the contract.
pub(super) const KNOWN: &str = "$app_build $app_name $app_namespace $app_version $browser \
    $browser_version $device_type $current_url $pathname $os $os_name $os_version \
    $referring_domain $referrer $screen_height $screen_width $viewport_height $viewport_width \
    $raw_user_agent utm_source utm_medium utm_campaign utm_content utm_name utm_term gclid \
    gad_source gclsrc dclid gbraid wbraid fbclid msclkid twclid li_fat_id mc_cid igshid ttclid \
    rdt_cid irclid _kx epik qclid sccid";

fn as_text(id: &Json) -> Option<String> {
    let text = match id {
        Json::Null => return None,
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    (!text.trim().is_empty()).then(|| text.replace('\0', "\u{fffd}"))
}

fn names(unset: &Json) -> Vec<String> {
    match unset {
        Json::Array(items) => items.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        Json::Object(map) => map.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// Section 3.4 of the contract, in microseconds. Times in these tests have milliseconds at most.
fn moment(event: &Json, sent_at: Option<i64>) -> i64 {
    let mut at = NOW;
    let given = match event.get("timestamp") {
        Some(Json::String(text)) => {
            DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_micros())
        }
        Some(Json::Number(number)) => number.as_i64().map(|millis| millis * 1000),
        _ => None,
    };
    if let Some(given) = given {
        at = given - sent_at.map_or(0, |sent_at| sent_at - NOW);
    }
    if let Some(offset) = event.get("offset").and_then(Json::as_i64) {
        at = NOW - offset * 1000;
    }
    if at - NOW > 23 * HOUR { NOW } else { at }
}

fn check(events: &[Json], sent_at: Option<i64>, seed: u64) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let mut written = Written::default();
    let sent = sent_at
        .map(|micros| format!("\"sent_at\":\"{}\"", iso(micros / 1000, "%Y-%m-%dT%H:%M:%S%.3fZ")));
    let sent = sent.unwrap_or_else(|| "\"sent_at\":null".to_owned());
    let sent_first = dice.below(2) == 0;
    written.text = format!(
        "{{{}\"api_key\":\"phc_a\",\"batch\":[",
        if sent_first { format!("{sent},") } else { String::new() }
    );
    for (at, event) in events.iter().enumerate() {
        written.text.push_str(if at > 0 { "," } else { "" });
        written.event(event, &mut dice);
    }
    written.text.push_str(&if sent_first { "]}".to_owned() } else { format!("],{sent}}}") });
    let parsed: Json = serde_json::from_str(&written.text).expect("the writer writes JSON");
    prop_assert_eq!(parsed["batch"].as_array().unwrap(), events);

    let client = seed.is_multiple_of(2).then_some(CLIENT);
    let client_ip = client.map(|client| client.parse().unwrap());
    let prepared = prepare_with(&written.text, &Received { client_ip, ..received() }).unwrap();
    let expected: Vec<_> = events
        .iter()
        .zip(&written.properties)
        .filter_map(|(event, text)| Some((model(event, sent_at, client)?, text)))
        .collect();
    prop_assert_eq!(prepared.rows, expected.len());
    let dropped: u64 = prepared.drops.iter().map(|(_, count)| count).sum();
    prop_assert_eq!(dropped as usize, events.len() - expected.len());
    for (row, (stored, text_written)) in expected.into_iter().enumerate() {
        let properties = text(&prepared, row, "properties");
        let value: Json = serde_json::from_str(&properties).expect("properties are JSON");
        prop_assert_eq!(value, stored.properties, "{}", written.text);
        if stored.is_verbatim {
            prop_assert_eq!(Some(&properties), text_written.as_ref());
        }
        for field in events_schema().fields() {
            let found = cell(&prepared, row, field.name());
            match field.name().as_str() {
                "properties" => {}
                "uuid" => {
                    if stored.row["uuid"].is_null() {
                        let id: Uuid = found.as_str().expect("text").parse().expect("a uuid");
                        prop_assert_eq!(id.get_version_num(), 7);
                    } else {
                        prop_assert_eq!(&found, &stored.row["uuid"]);
                    }
                }
                name => prop_assert_eq!(&found, &stored.row[name], "{} of {}", name, written.text),
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 192,
        ..ProptestConfig::with_failure_persistence(proptest::test_runner::FileFailurePersistence::WithSource("regressions"))
    })]

    #[test]
    fn every_column_is_what_a_naive_reading_gives(
        events in prop::collection::vec(event(), 1..12),
        sent_at in prop::option::of(-4_000_i64..4_000),
        seed in any::<u64>(),
    ) {
        check(&events, sent_at.map(|seconds| NOW + seconds * 1_000_000), seed)?;
    }
}
