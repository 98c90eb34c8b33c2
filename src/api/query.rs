//! Answers to queries.

use serde_json::Value;

/// The rows of SQL, or of a list of selected columns.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The names of their types.
    pub types: Vec<String>,
    /// The rows, in the order of the columns.
    pub results: Vec<Vec<Value>>,
}

impl Rows {
    /// Those of an answer as clients get it. The types of SQL have the names of the columns before them.
    pub fn of(columns: Value, types: Value, results: Value) -> Self {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let type_of = |of: Value| match of {
            Value::Array(mut pair) => pair.pop().map(text).unwrap_or_default(),
            name => text(name),
        };
        Self {
            columns: list(columns).into_iter().map(text).collect(),
            types: list(types).into_iter().map(type_of).collect(),
            results: list(results).into_iter().map(list).collect(),
        }
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}
