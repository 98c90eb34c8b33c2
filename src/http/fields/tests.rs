//! Tests of fields: which values Django REST Framework accepts, and how it refuses the rest.

use serde_json::json;

use super::Fields;
use crate::response::{Problem, Response};

fn fields(value: &serde_json::Value) -> Fields {
    Fields::parse("application/json", value.to_string().as_bytes()).unwrap()
}

/// Status, code and field of an error, as in its `Debug` text.
fn parts<T: std::fmt::Debug>(result: Result<T, Problem>) -> (u16, String) {
    let problem = result.unwrap_err();
    let text = format!("{problem:?}");
    (Response::from(problem).status.as_u16(), text)
}

#[test]
fn bodies_are_json_objects() {
    for (content_type, body) in [
        ("application/json", "{}"),
        ("Application/JSON ; charset=utf-8", "{\"a\": 1}"),
        ("", " {} "),
        ("", ""),
        ("text/plain", ""),
    ] {
        assert!(Fields::parse(content_type, body.as_bytes()).is_ok(), "{content_type} {body}");
    }
    for (content_type, body, status, code) in [
        ("text/plain", "{}", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", "key=a", 415, "unsupported_media_type"),
        ("application/jsonp", "{}", 415, "unsupported_media_type"),
        ("application/json", "{", 400, "parse_error"),
        ("application/json", "{} {}", 400, "parse_error"),
        ("application/json", " ", 400, "parse_error"),
        ("application/json", "[]", 400, "but got list."),
        ("application/json", "\"key\"", 400, "but got str."),
    ] {
        let (found, text) = parts(Fields::parse(content_type, body.as_bytes()));
        assert_eq!(found, status, "{content_type} {body}");
        assert!(text.contains(code), "{text}");
    }
    assert_eq!(parts(Fields::parse("", b"{\"key\": \"\xff\"}")).0, 400);
}

#[test]
fn values_are_those_of_the_body_and_not_too_deep() {
    let raw = "$serde_json::private::RawValue";
    for value in [json!({raw: "[[1]]"}), json!({raw: "not JSON"}), json!({raw: 1})] {
        let body = json!({"a": value});
        assert_eq!(fields(&body).value("a").unwrap(), Some(value));
    }
    let nested = |depth| format!("{{\"a\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(Fields::parse("", nested(Fields::DEPTH_MAX - 1).as_bytes()).is_ok());
    for depth in [Fields::DEPTH_MAX, 127, 5000] {
        let (status, text) = parts(Fields::parse("", nested(depth).as_bytes()));
        assert_eq!(status, 400);
        assert!(text.contains("parse_error"), "{text}");
    }
}

#[test]
fn booleans_are_what_django_takes_for_them() {
    for (value, expected) in [
        (json!(true), true),
        (json!("true"), true),
        (json!("Yes"), true),
        (json!(1), true),
        (json!("1"), true),
        (json!(1.0), true),
        (json!(false), false),
        (json!("False"), false),
        (json!("off"), false),
        (json!(0), false),
        (json!("0"), false),
    ] {
        let read = fields(&json!({"active": value})).boolean("active").unwrap();
        assert_eq!(read, Some(expected), "{value}");
    }
    for value in [json!("tRue"), json!(2), json!(""), json!("null"), json!([]), json!({})] {
        let (_, text) = parts(fields(&json!({"active": value})).boolean("active"));
        assert!(text.contains("Must be a valid boolean."), "{text}");
    }
    let (_, text) = parts(fields(&json!({"active": null})).boolean("active"));
    assert!(text.contains("This field may not be null."), "{text}");
    for value in [json!(null), json!("null"), json!("")] {
        let read = fields(&json!({"a": value})).nullable_boolean("a").unwrap();
        assert_eq!(read, Some(None), "{value}");
    }
    assert_eq!(fields(&json!({})).nullable_boolean("a").unwrap(), None);
}

#[test]
fn texts_are_trimmed_and_numbers_are_texts() {
    for (value, expected) in [
        (json!(" beta \n"), "beta"),
        (json!(""), ""),
        (json!("  "), ""),
        (json!(7), "7"),
        (json!(1.5), "1.5"),
    ] {
        let read = fields(&json!({"name": value})).text("name").unwrap();
        assert_eq!(read.as_deref(), Some(expected), "{value}");
    }
    for value in [json!(true), json!([]), json!({"a": 1})] {
        let (_, text) = parts(fields(&json!({"name": value})).text("name"));
        assert!(text.contains("Not a valid string."), "{text}");
    }
}

#[test]
fn lists_name_the_item_at_fault() {
    let mut ids = fields(&json!({"ids": [1, "2", " 3"]}));
    assert_eq!(ids.ids("ids").unwrap(), Some(vec![1, 2, 3]));
    for (value, detail) in [
        (json!({"ids": "1"}), "Expected a list of items but got type \\\"str\\\"."),
        (json!({"ids": [true]}), "Incorrect type. Expected pk value, received bool."),
        (json!({"ids": [1, 1.5]}), "Incorrect type. Expected pk value, received float."),
        (json!({"ids": null}), "This field may not be null."),
    ] {
        let (_, text) = parts(fields(&value).ids("ids"));
        assert!(text.contains(detail), "{text}");
    }
    // A list may have as many items as its field permits; 10,000 by default.
    let long = json!({"ids": vec![1; 10_001], "tags": vec!["a"; 10_001], "few": [1, 2, 3]});
    let mut long = fields(&long);
    let (status, text) = parts(long.ids("ids"));
    assert_eq!(status, 400);
    assert!(text.contains("no more than 10000 elements"), "{text}");
    assert!(parts(long.texts("tags")).1.contains("max_length"));
    assert!(parts(long.ids_within("few", 2)).1.contains("no more than 2 elements"));
    let (_, text) = parts(fields(&json!({"tags": ["a", "b", {}]})).texts("tags"));
    assert!(text.contains("tags__2"), "{text}");
}

#[test]
fn times_are_texts() {
    let at = |text: &str| {
        let time = fields(&json!({"at": text})).time("at").unwrap().unwrap();
        time.to_rfc3339()
    };
    assert_eq!(at("2026-11-21T08:00:00Z"), "2026-11-21T08:00:00.000000Z");
    assert_eq!(at("2026-11-21T08:00:00.5+01:00"), "2026-11-21T07:00:00.500000Z");
    for value in [json!("yesterday"), json!(""), json!(1_700_000_000), json!(true)] {
        let (_, text) = parts(fields(&json!({"at": value})).time("at"));
        assert!(text.contains("Datetime has wrong format."), "{text}");
    }
}
