//! Whether an object of the target says what was sent: [`is_like`]. Pure.
//!
//! A server adds to what it is sent: defaults, names of cohorts beside their ids, its own form of a time. So an object is
//! the same if it has everything that was sent; what was sent as null, false or empty may be absent.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use weir_event::time;

/// Whether `stored` has everything that is in `sent`.
pub fn is_like(sent: &Value, stored: &Value) -> bool {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => has_all(sent, stored),
        (Value::Array(sent), Value::Array(stored)) => {
            sent.len() == stored.len()
                && sent.iter().zip(stored).all(|(sent, stored)| is_like(sent, stored))
        }
        (Value::Number(sent), Value::Number(stored)) => {
            sent == stored || sent.as_f64() == stored.as_f64()
        }
        (Value::String(sent), Value::String(stored)) => sent == stored || is_instant(sent, stored),
        (sent, Value::Null) => is_nothing(sent),
        (sent, stored) => sent == stored,
    }
}

/// Whether an object of the target has all these fields.
pub fn has_all(sent: &Map<String, Value>, stored: &Map<String, Value>) -> bool {
    sent.iter().all(|(name, value)| match stored.get(name) {
        Some(stored) if SETS.contains(&name.as_str()) => is_same_set(value, stored),
        Some(stored) => is_like(value, stored) || (is_nothing(value) && is_nothing(stored)),
        None => is_nothing(value),
    })
}

/// Fields whose values have no order.
const SETS: [&str; 2] = ["tags", "evaluation_contexts"];

/// Whether two lists of texts have the same ones.
fn is_same_set(sent: &Value, stored: &Value) -> bool {
    let texts = |list: &Value| -> BTreeSet<String> {
        let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    texts(sent) == texts(stored)
}

/// Whether two texts are the same time.
fn is_instant(left: &str, right: &str) -> bool {
    match (time::parse_rfc3339(left), time::parse_rfc3339(right)) {
        (Some(left), Some(right)) => left == right,
        _ => false,
    }
}

/// Whether a value says as much as its absence.
pub fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_like;

    #[test]
    fn what_a_server_adds_is_no_difference() {
        for (sent, stored, is_same) in [
            (json!({"a": 1}), json!({"a": 1.0, "b": 2}), true),
            (json!({"a": null, "b": [], "c": ""}), json!({}), true),
            (json!({"a": true}), json!({}), false),
            (json!({"tags": ["b", "a"]}), json!({"tags": ["a", "b"]}), true),
            (json!({"tags": ["b"]}), json!({"tags": ["a", "b"]}), false),
            (json!({"a": 0}), json!({}), false),
            (json!([{"id": 7}]), json!([{"id": 7, "cohort_name": "x"}]), true),
            (json!([1, 2]), json!([1]), false),
            (json!({"a": "x"}), json!({"a": "y"}), false),
            (
                json!({"at": "2026-01-02T03:04:05+01:00"}),
                json!({"at": "2026-01-02T02:04:05.000000Z"}),
                true,
            ),
            (json!({"at": "2026-01-02T03:04:05Z"}), json!({"at": "2026-01-02T03:04:06Z"}), false),
        ] {
            assert_eq!(is_like(&sent, &stored), is_same, "{sent} {stored}");
        }
    }
}
