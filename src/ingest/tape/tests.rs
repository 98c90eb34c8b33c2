//! Bodies as SDKs and careless clients send them, against a second JSON parser.

use std::convert::Infallible;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::{Census, Cursor, Scratch, Value};

/// Rebuilds a value from the ranges the cursor reports: every leaf is parsed by `serde_json` from
/// the original bytes, so a range that is off by one is a wrong value or not JSON.
fn rebuild(cursor: &mut Cursor<'_>) -> Json {
    match cursor.value() {
        Value::Container { is_object: true, .. } => {
            let mut map = serde_json::Map::new();
            let whole = cursor.clone().skip();
            let _: Result<(), Infallible> = cursor.object(|key, value| {
                assert_eq!(value.body()[key.offset as usize], b'"');
                map.insert(key.text.to_owned(), rebuild(value));
                Ok(())
            });
            let text = serde_json::from_slice::<Json>(&cursor.body()[whole]);
            assert!(text.is_ok_and(|text| text.is_object()));
            Json::Object(map)
        }
        Value::Container { is_object: false, .. } => {
            let mut items = Vec::new();
            let _: Result<(), Infallible> = cursor.array(|item| {
                items.push(rebuild(item));
                Ok(())
            });
            Json::Array(items)
        }
        _ => {
            let range = cursor.skip();
            serde_json::from_slice(&cursor.body()[range]).expect("a leaf")
        }
    }
}

fn check(text: &str) {
    let expected: Json = serde_json::from_str(text).expect("valid JSON");
    let actual = Scratch::default().parse(text.as_bytes(), |mut cursor| rebuild(&mut cursor));
    assert_eq!(actual.expect("simd-json reads it"), expected, "{text}");
}

#[test]
fn ranges_are_those_of_the_values() {
    for text in [
        "{}",
        "[]",
        r#"{"a":1}"#,
        r#" { "a" : [ ] , "b" : { } , "c" : [ 1 , -2.5e3 , true , null , "x" ] } "#,
        r#"[[[[]]],{"k":{"k":{"k":[{"k":0}]}}},"\"quoted\" [not] {structure}"]"#,
        r#"{"escaped \" key":"caf\u00e9 \\ \n","after":1}"#,
        r#"{"batch":[{"a":1},{"b":[1,2]}],"sent_at":"x","api_key":"y"}"#,
        "7",
        r#""text""#,
    ] {
        check(text);
    }
}

#[test]
fn skipping_the_large_array_lands_on_the_next_key() {
    let text = r#"{"batch":[{"a":[1,{"b":2}]},{"c":"d,e"}],"sent\u005fat":"s","z":[3]}"#;
    let mut seen = Vec::new();
    Scratch::default()
        .parse(text.as_bytes(), |mut cursor| {
            let _: Result<(), Infallible> = cursor.object(|key, value| {
                let range = if key.text == "batch" {
                    let mut slow = *value;
                    slow.skip();
                    value.skip_large();
                    assert_eq!((value.node, value.structural), (slow.node, slow.structural));
                    0..0
                } else {
                    value.skip()
                };
                seen.push((key.text.to_owned(), text[range].to_owned()));
                Ok(())
            });
        })
        .expect("valid JSON");
    let expected = [("batch", ""), ("sent_at", "\"s\""), ("z", "[3]")];
    assert_eq!(seen, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[test]
fn one_scratch_serves_many_documents_and_survives_errors() {
    let mut scratch = Scratch::default();
    for text in ["{\"a\":1}", "{\"a\":", "[1,2,3]", "", "nonsense", "{\"b\":[]}"] {
        let ours = scratch.parse(text.as_bytes(), |mut cursor| rebuild(&mut cursor)).ok();
        assert_eq!(ours, serde_json::from_str(text).ok(), "{text}");
    }
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::from),
        "[ -~\u{e9}\u{1f600}\"\\\\\n,:{}\\[\\]]{0,24}".prop_map(Json::String),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Json::Array),
            prop::collection::hash_map("[a-z\"\\\\,]{0,6}", inner, 0..8)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    #[test]
    fn any_document_is_rebuilt_from_its_ranges(value in json(), pretty in any::<bool>()) {
        let text = if pretty {
            serde_json::to_string_pretty(&value)
        } else {
            serde_json::to_string(&value)
        };
        check(&text.expect("encodes"));
    }
}

#[test]
fn a_census_counts_what_stands_under_keys() {
    for (text, nodes, objects, below) in [
        ("7", 1, 0, 0),
        ("{}", 1, 1, 0),
        (r#"{"$set":1,"a":[1,2]}"#, 7, 1, 0),
        (r#"{"$set":{},"a":{"b":1}}"#, 7, 3, 0),
        (r#"{"$set":{"a":1,"b":[1,{"c":2}]}}"#, 11, 3, 8),
        // A nested occurrence counts once, each of several counts.
        (r#"[{"\u0024set":{"$set":{"$set":{"a":1}}}},{"$set":[1,2,3]}]"#, 16, 5, 9),
    ] {
        let count = |root: Cursor<'_>| root.census(|key| key == "$set");
        let census = Scratch::default().parse(text.as_bytes(), count).expect("JSON");
        assert_eq!(census, Census { nodes, objects, below }, "{text}");
    }
}
