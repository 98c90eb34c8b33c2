//! Members of flags and groups, which users stored as JSON, by their names: as texts for assistants.

use serde_json::Value;

use weir_web::parts::plain;

/// The string value of a member; empty if it is none.
pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The items of an array member; empty if it is none.
pub(super) fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The rollout percentage of a condition.
pub(super) fn percent(condition: &Value) -> String {
    match condition.get("rollout_percentage") {
        None | Some(Value::Null) => "100 %".to_owned(),
        Some(part) => format!("{} %", plain(part)),
    }
}
