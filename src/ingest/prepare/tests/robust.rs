//! Malformed bodies: nothing panics, stored rows are complete, and a bad event does not affect its
//! neighbours.

use proptest::prelude::*;

use super::oracle::{Dice, Written, event};
use super::*;

/// Every cell of every row.
fn rows(prepared: &Prepared) -> Vec<Vec<Json>> {
    let schema = events_schema();
    let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    (0..prepared.rows)
        .map(|row| names.iter().map(|name| cell(prepared, row, name)).collect())
        .collect()
}

/// Prepares a body of any kind; stored rows must be readable, and complete where required.
fn check(body: &[u8]) {
    let Ok(prepared) = prepare_with(body, &received()) else { return };
    assert_eq!(prepared.keys.len(), prepared.rows);
    let schema = events_schema();
    for row in rows(&prepared) {
        for (field, value) in schema.fields().iter().zip(&row) {
            assert!(field.is_nullable() || !value.is_null(), "{} is NULL", field.name());
        }
        let properties = row[column::PROPERTIES].as_str().unwrap();
        let properties: Json = serde_json::from_str(properties).expect("properties are JSON");
        assert!(properties.is_object());
    }
}

/// Events that are dropped, each for another reason, and that do not affect others.
const BAD: [&str; 12] = [
    "7",
    "null",
    "{}",
    "[{\"event\":\"x\",\"distinct_id\":\"u1\"}]",
    r#"{"event":"x","properties":{"price":9,"$os":"bad","$is_server":true,"$groups":{"company":"bad"}}}"#,
    r#"{"event":"","distinct_id":"u1","$set":{"bad":1}}"#,
    r#"{"event":"$identify","distinct_id":"u1","properties":{"$process_person_profile":false}}"#,
    r#"{"event":"x","distinct_id":"u1","properties":{"bad":01}}"#,
    "{'event':'x'}",
    "{\"event\":\"x\",\"distinct_id\":\"u1\",\"properties\":{\"a\":None}}",
    "DEEP",
    "LONG",
];

fn bad(index: usize) -> String {
    match BAD[index] {
        "DEEP" => format!(
            r#"{{"event":"x","distinct_id":"u1","properties":{}}}"#,
            "[".repeat(500) + &"]".repeat(500)
        ),
        "LONG" => {
            format!(
                r#"{{"event":"x","distinct_id":"u1","x":"{}"}}"#,
                "x".repeat(EVENT_MAX_BYTES as usize)
            )
        }
        other => other.to_owned(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        ..ProptestConfig::with_failure_persistence(proptest::test_runner::FileFailurePersistence::WithSource("regressions"))
    })]

    #[test]
    fn a_bad_event_changes_nothing_of_the_others(
        good in prop::collection::vec(event(), 1..8),
        seed in any::<u64>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), 0..BAD.len()), 1..5),
    ) {
        let mut dice = Dice(seed);
        let mut texts: Vec<String> = good
            .iter()
            .map(|event| {
                let mut written = Written::default();
                written.event(event, &mut dice);
                written.text
            })
            .collect();
        let body = |texts: &[String]| format!(r#"{{"api_key":"phc_a","batch":[{}]}}"#, texts.join(","));
        let alone = prepare(body(&texts));
        for (place, which) in places {
            texts.insert(place.index(texts.len() + 1), bad(which));
        }
        let among = prepare(body(&texts));
        prop_assert_eq!(rows(&among), rows(&alone));
        prop_assert_eq!(format!("{:?}", among.ops), format!("{:?}", alone.ops));
        prop_assert_eq!(&among.unknown_group_types, &alone.unknown_group_types);
        let dropped = |prepared: &Prepared| prepared.drops.iter().map(|(_, count)| count).sum::<u64>();
        prop_assert_eq!(dropped(&among) - dropped(&alone), (texts.len() - good.len()) as u64);
    }

    #[test]
    fn any_bytes_are_taken_or_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&body);
        check(&[b"{\"api_key\":\"phc_a\",\"batch\":[", &body[..], b"]}"].concat());
    }

    #[test]
    fn any_mix_of_json_is_taken_or_refused(parts in prop::collection::vec(
        prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"event\":", "\"e\"", "\"distinct_id\":", "\"u\"", "\"properties\":",
            "{\"$os\":\"x\"}", "\"batch\":[", "\"api_key\":\"phc_a\"", "null", "1", "-", "1e999", "NaN", "\\ud800",
            "\\", " ", "\u{e9}", "\"$set\":", "\"$elements_chain\":\"x\"", "\"$groups\":{\"company\":\"c\"}",
        ]),
        0..40,
    )) {
        check(parts.concat().as_bytes());
        check(format!("{{\"api_key\":\"phc_a\",\"batch\":[{}]}}", parts.concat()).as_bytes());
    }

    #[test]
    fn mutated_bodies_are_taken_or_refused(
        events in prop::collection::vec(event(), 1..4),
        seed in any::<u64>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4, any::<u8>()), 1..6),
    ) {
        let mut dice = Dice(seed);
        let mut written = Written::default();
        written.text.push_str("{\"api_key\":\"phc_a\",\"batch\":[");
        for (at, event) in events.iter().enumerate() {
            written.text.push_str(if at > 0 { "," } else { "" });
            written.event(event, &mut dice);
        }
        written.text.push_str("]}");
        let mut body = written.text.into_bytes();
        for (place, kind, byte) in edits {
            let at = place.index(body.len());
            match kind {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                2 => _ = body.remove(at),
                _ => {
                    let again = body[at..body.len().min(at + usize::from(byte))].to_vec();
                    body.splice(at..at, again);
                }
            }
            if body.is_empty() {
                break;
            }
        }
        check(&body);
    }
}
