//! Bodies of imports: what they do to persons, and what the server does not add to them.

use super::people::ops;
use super::*;
use weir_identity::auto_set::AutoSet;

fn import_of(how: &str, events: &str) -> Result<Prepared, PrepareError> {
    let client = Received { client_ip: "1.2.3.4".parse().ok(), ..received() };
    let body = format!(
        r#"{{"api_key":"phc_a","historical_migration":true,"import":{how},"batch":[{events}]}}"#
    );
    prepare_with(body, &client)
}

fn import(how: &str, events: &str) -> Prepared {
    import_of(&format!(r#"{{"person_properties":"{how}"}}"#), events).unwrap()
}

#[test]
fn persons_are_filled_overwritten_or_left_alone() {
    let event = r#"{"event":"e","distinct_id":"u","person_properties":{"a":1,"b":1},
        "properties":{"$set":{"b":2},"$set_once":{"c":3},"$unset":["d"]}}"#;
    for (how, expected) in [
        ("fill", r#"u: update {} {"a":1,"b":2,"c":3} []"#),
        ("overwrite", r#"u: update {"a":1,"b":2} {"c":3} ["d"]"#),
        ("ignore", "u: touch"),
    ] {
        let prepared = import(how, event);
        assert_eq!(ops(&prepared), [expected], "{how}");
        let stored: Json = serde_json::from_str(&text(&prepared, 0, "properties")).unwrap();
        let sent = json!({"$set": {"b": 2}, "$set_once": {"c": 3}, "$unset": ["d"]});
        assert_eq!(stored, sent, "the person is not stored with the event: {how}");
    }
}

/// Properties of the event that are auto-set on its person are filled too, and not those that the import tells.
#[test]
fn auto_set_properties_are_filled() {
    let event = r#"{"event":"e","distinct_id":"u","person_properties":{"$browser":"Old","$initial_os":"x"},
        "properties":{"$browser":"New","$os":"Linux"}}"#;
    for (how, fills) in [("fill", true), ("overwrite", false)] {
        let prepared = import(how, event);
        let OpKind::Update(update) = &prepared.ops[0].kind else { panic!("an update") };
        let given = if how == "fill" { &update.set_once } else { &update.set };
        assert_eq!(Json::Object(given.clone()), json!({"$browser": "Old", "$initial_os": "x"}));
        let found: Vec<_> = update
            .auto_set
            .iter()
            .flatten()
            .flat_map(AutoSet::iter)
            .map(|property| (property.names.0, property.sets, property.sets_once, property.fills))
            .collect();
        assert_eq!(found, [("$browser", false, true, fills), ("$os", true, false, fills)], "{how}");
    }
}

#[test]
fn persons_come_without_events() {
    let items = r#"{"event":"$import_person","distinct_id":"a","timestamp":"2020-01-02T03:04:05Z",
            "properties":{},"person_properties":{"p":1}},
        {"event":"$import_person","distinct_id":"a","timestamp":"2020-01-02T03:04:05Z","properties":{"alias":"b"}},
        {"event":"e","distinct_id":"a","timestamp":"2020-01-02T03:04:05Z"}"#;
    let prepared = import("fill", items);
    assert_eq!(texts(&prepared, "event"), ["e"]);
    assert_eq!(drops(&prepared), []);
    assert_eq!(ops(&prepared), [r#"a: update {} {"p":1} []"#, "a: merge b by force", "a: touch"]);
    assert_eq!(prepared.ops[0].timestamp.0, 1_577_934_245_000_000);
    assert_eq!(prepared.keys.len(), 1);
    // Outside of an import it is an event like any other.
    let event = r#""event":"$import_person","distinct_id":"a","properties":{"alias":"b"}"#;
    let prepared = one(event);
    assert_eq!((prepared.rows, ops(&prepared)), (1, vec!["a: touch".to_owned()]));
    // One that cannot be read is told.
    let prepared = import("fill", r#"{"event":"$import_person","distinct_id":""}"#);
    assert_eq!(drops(&prepared), [(Drop::MissingDistinctId, 1)]);
}

/// The address is that of the importer, the future and the past are told as they were stored, and numbers of groups are
/// those of another server.
#[test]
fn nothing_is_concluded_from_the_request() {
    let event = r#"{"event":"e","distinct_id":"u","timestamp":"2036-01-02T03:04:05.000006Z",
        "properties":{"$groups":{"project":"p"},"$group_0":"p","$group_3":"x"}}"#;
    let prepared = import("fill", event);
    assert_eq!(cell(&prepared, 0, "ip"), Json::Null);
    assert_eq!(cell(&prepared, 0, "timestamp"), 2_082_855_845_000_006_i64);
    let stored: Json = serde_json::from_str(&text(&prepared, 0, "properties")).unwrap();
    assert_eq!(stored, json!({"$groups": {"project": "p"}, "$group_1": "p"}));
    assert_eq!(cell(&prepared, 0, "historical_migration"), true);
}

#[test]
fn an_import_says_what_it_does_to_persons() {
    let event = r#"{"event":"e","distinct_id":"u"}"#;
    for wrong in [
        "{}",
        "1",
        "null",
        r#"{"person_properties":"merge"}"#,
        r#"{"person_properties":"fill","x":1}"#,
    ] {
        assert_eq!(import_of(wrong, event).err(), Some(PrepareError::Import), "{wrong}");
    }
    // Without the mark of a migration the member has no meaning.
    let body = format!(r#"{{"api_key":"phc_a","import":1,"batch":[{event}]}}"#);
    assert_eq!(prepare(body).rows, 1);
}
