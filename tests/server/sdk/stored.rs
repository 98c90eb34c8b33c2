//! Compares the output of the drivers with every read path of the server: SQL over HTTP, persons,
//! groups, event definitions. Allowed differences are in `differences`.

use std::collections::{BTreeMap, BTreeSet};

use chrono::DateTime;
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::sdk::differences::{check_given, check_new, check_rules, is_of_persons, lifted};
use crate::sdk::drivers::of_kind;

/// Largest difference between the timestamp of a call and the stored one: the time from the SDK's
/// `sent_at` to the arrival counts as an error of the sender's clock.
const TRANSIT_MAX_MICROS: i64 = 10_000_000;

/// Every event, ordered by its id.
pub(super) const ALL_EVENTS: &str =
    "SELECT *, CAST(timestamp AS BIGINT) AS micros FROM events ORDER BY uuid";

pub(super) fn str_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn properties(row: &Value) -> Value {
    serde_json::from_str(str_of(row, "properties")).expect("properties are JSON")
}

/// The rows of an SQL query, sent as clients of the API do.
pub(super) fn sql(server: &TestServer, sql: &str) -> Vec<Value> {
    let answer = server.post("/api/projects/1/query/", &json!({"query": sql}));
    assert_eq!(answer.status, 200, "{sql}: {answer}");
    super::drivers::lines(&answer.body)
}

/// Equal as JSON, where `1e21` and `1000000000000000000000` are one number.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

/// Every sent event is a row: found by uuid where the SDK accepts one, else by name, distinct id and
/// properties.
pub(super) fn check_events(who: &str, said: &[Value], rows: &[Value]) {
    let mut by_uuid: BTreeMap<&str, &Value> =
        rows.iter().map(|row| (str_of(row, "uuid"), row)).collect();
    // What it calls itself, in every event.
    let lib = of_kind(said, "lib").next().unwrap_or_else(|| panic!("{who} has no name"));
    let check = |event: &Value, row: &Value| {
        let stored = properties(row);
        check_event(who, event, (row, &stored))?;
        for (name, given) in [("$lib", &lib["name"]), ("$lib_version", &lib["version"])] {
            check_given(name, given, row, &stored)?;
        }
        Ok::<(), String>(())
    };
    let (named, unnamed): (Vec<_>, Vec<_>) =
        of_kind(said, "event").partition(|event| event["uuid"].is_string());
    assert!(!named.is_empty(), "{who} sent nothing");
    for event in named {
        let row = by_uuid.remove(str_of(event, "uuid"));
        let row = row.unwrap_or_else(|| panic!("{who}: not stored: {event}"));
        check(event, row).unwrap_or_else(|problem| panic!("{who}: {problem}\n{event}\n{row}"));
    }
    for event in unnamed {
        let row = by_uuid.values().find(|row| check(event, row).is_ok());
        let row = row.unwrap_or_else(|| {
            let near = by_uuid.values().filter(|row| {
                row["event"] == event["event"] && row["distinct_id"] == event["distinct_id"]
            });
            let near: Vec<String> =
                near.map(|row| format!("{:?}\n{row}", check(event, row))).collect();
            panic!("{who}: not stored: {event}\nbut\n{}", near.join("\n"));
        });
        let uuid = str_of(row, "uuid");
        by_uuid.remove(uuid);
    }
}

/// Compares the event of a call with its row, in both directions.
pub(super) fn check_event(
    who: &str,
    event: &Value,
    (row, stored): (&Value, &Value),
) -> Result<(), String> {
    for name in ["event", "distinct_id"] {
        // Where no distinct id was given the SDK makes one.
        if event.get(name).is_some_and(|given| *given != row[name]) {
            return Err(format!("{name} differs"));
        }
    }
    let nothing = json!({});
    let given = |part: &str| event.get(part).unwrap_or(&nothing).as_object().into_iter().flatten();
    for (name, value) in given("properties") {
        check_given(name, value, row, stored)?;
    }
    // Lists in any order.
    for (name, value) in given("unordered") {
        let mut found: Vec<&str> =
            stored[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        found.sort_unstable();
        if json!(found) != *value {
            return Err(format!("{name} is {} instead of {value}", stored[name]));
        }
    }
    for name in stored.as_object().into_iter().flatten().map(|(name, _)| name) {
        let is_given = |part: &str| event[part].get(name).is_some();
        if !is_given("properties") && !is_given("unordered") {
            check_new(who, name, row, stored)?;
        }
    }
    check_rules(row, stored)?;
    if event["group_0"] != row["group_0"] {
        return Err("the group differs".to_owned());
    }
    for name in ["session_id", "window_id"] {
        if row[name] != stored[format!("${name}")] {
            return Err(format!("{name} is {}", row[name]));
        }
    }
    if let Some(given) = event["timestamp"].as_str() {
        let given = DateTime::parse_from_rfc3339(given).expect("a time").timestamp_micros();
        let stored = row["micros"].as_i64().expect("a time");
        if (stored - given).abs() > TRANSIT_MAX_MICROS {
            return Err(format!("the time is {stored} instead of {given}"));
        }
    }
    Ok(())
}

fn find_persons(server: &TestServer, distinct_id: &str) -> Value {
    let list = server.get(&format!("/api/projects/1/persons/?distinct_id={distinct_id}"));
    assert_eq!(list.status, 200, "{list}");
    list.json()
}

/// One person has exactly these distinct ids, and the properties; all events of the distinct ids
/// belong to that person.
pub(super) fn check_persons(server: &TestServer, said: &[Value], rows: &[Value]) {
    // A browser says more of its visitor than it was told.
    let by_sdk: BTreeSet<&str> = of_kind(said, "sent")
        .flat_map(|sent| [&sent["top"], &sent["properties"]])
        .flat_map(|part| [&part["$set"], &part["$set_once"]])
        .flat_map(|set| set.as_object().into_iter().flatten())
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(of_kind(said, "person").next().is_some(), "every driver makes a person");
    for person in of_kind(said, "person") {
        let ids: BTreeSet<&str> = person["distinct_ids"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut uuids = BTreeSet::new();
        let mut person_now = Value::Null;
        for id in &ids {
            let list = find_persons(server, id);
            assert_eq!(list["count"], 1, "{id}: {list}");
            let found = &list["results"][0];
            let found_ids = found["distinct_ids"].as_array().expect("distinct ids").iter();
            let found_ids: BTreeSet<&str> = found_ids.filter_map(Value::as_str).collect();
            assert_eq!(found_ids, ids, "{found}");
            check_person(person, found, &by_sdk);
            uuids.insert(str_of(found, "uuid").to_owned());
            person_now = found["properties"].clone();
        }
        assert_eq!(uuids.len(), 1, "{ids:?}");
        let theirs = rows.iter().filter(|row| ids.contains(str_of(row, "distinct_id")));
        let theirs: Vec<&Value> = theirs.collect();
        assert!(!theirs.is_empty(), "no events of {ids:?}");
        for row in theirs {
            assert!(uuids.contains(str_of(row, "person_id")), "another person's: {row}");
            let absent = |name: &str| {
                person["absent"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
            };
            for name in lifted(row, &properties(row)) {
                assert!(absent(&name) || person_now.get(&name).is_some(), "{name} of {row}");
            }
        }
    }
    for nobody in of_kind(said, "nobody") {
        let list = find_persons(server, str_of(nobody, "distinct_id"));
        assert_eq!(list["count"], 0, "{list}");
    }
}

fn check_person(person: &Value, found: &Value, by_sdk: &BTreeSet<&str>) {
    let given = person["properties"].as_object().expect("properties");
    for (name, value) in given {
        assert!(is_same(value, &found["properties"][name]), "{name} of {found} is not {value}");
    }
    for name in person["absent"].as_array().into_iter().flatten() {
        let name = name.as_str().expect("a name");
        assert!(found["properties"].get(name).is_none(), "{name} of {found}");
    }
    for (name, _) in found["properties"].as_object().into_iter().flatten() {
        let is_said = given.contains_key(name) || by_sdk.contains(name.as_str());
        assert!(is_said || is_of_persons(name), "{name} of {found}");
    }
}

pub(super) fn check_groups(server: &TestServer, said: &[Value]) {
    assert!(of_kind(said, "group").next().is_some(), "every driver makes a group");
    for group in of_kind(said, "group") {
        let query = format!("SELECT * FROM groups WHERE key = '{}'", str_of(group, "key"));
        let rows = sql(server, &query);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(is_same(&properties(&rows[0]), &group["properties"]), "{}", rows[0]);
    }
}

/// Exactly the names of the events, page by page.
pub(super) fn check_definitions(server: &TestServer, rows: &[Value]) {
    let names: BTreeSet<String> = rows.iter().map(|row| str_of(row, "event").to_owned()).collect();
    let mut listed = Vec::new();
    let mut next = Some("/api/projects/1/event_definitions/?limit=3".to_owned());
    while let Some(path) = next {
        let page = server.get(&path).json();
        assert_eq!(page["count"], names.len(), "{page}");
        let results = page["results"].as_array().expect("results");
        listed.extend(results.iter().map(|definition| str_of(definition, "name").to_owned()));
        let link = page["next"].as_str();
        next = link.map(|link| link.strip_prefix(&server.url()).expect("our address").to_owned());
    }
    assert_eq!(listed.len(), names.len(), "each once: {listed:?}");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
}
