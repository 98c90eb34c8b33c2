//! Query nodes in JSON, as clients save and send them: the kinds that wrap a query to say how it is shown, and the query
//! inside. What a query means is not here.

use serde_json::Value;

/// The kind of SQL.
pub const SQL: &str = "HogQLQuery";

/// Kinds of nodes around a question that say how it is shown. The last one is around SQL.
const WRAPPERS: [&str; 3] = ["InsightVizNode", "DataTableNode", VISUALIZATION];

/// The kind of the node that says as which chart rows are shown.
pub const VISUALIZATION: &str = "DataVisualizationNode";

/// Most nodes around a question.
const WRAPPERS_MAX: usize = 5;

/// A query without the nodes around it that only say how it is shown.
pub fn unwrapped(mut query: &Value) -> &Value {
    for _ in 0..WRAPPERS_MAX {
        match (query.get("kind").and_then(Value::as_str), query.get("source")) {
            (Some(kind), Some(source)) if WRAPPERS.contains(&kind) => query = source,
            _ => break,
        }
    }
    query
}

/// The kind of a query without the nodes around it, and that query.
pub fn kind_of(query: &Value) -> (Option<&str>, &Value) {
    let query = unwrapped(query);
    (query.get("kind").and_then(Value::as_str), query)
}

/// A saved query that asks something else, shown as it was.
pub fn with_question(query: &Value, node: Value) -> Value {
    let mut whole = query.clone();
    ask(&mut whole, node, WRAPPERS_MAX);
    whole
}

fn ask(place: &mut Value, node: Value, wrappers_max: usize) {
    let kind = place.get("kind").and_then(Value::as_str);
    if kind.is_some_and(|kind| WRAPPERS.contains(&kind))
        && let Some(left) = wrappers_max.checked_sub(1)
        && let Some(source) = place.get_mut("source")
    {
        return ask(source, node, left);
    }
    *place = node;
}
