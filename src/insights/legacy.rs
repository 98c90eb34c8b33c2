//! Converts the filters of older clients, such as `?insight=TRENDS&events=[...]`, to query nodes. [`trends_query`]
//! and what the kinds of insights have in common are here; the other kinds have files of their own. Values may be
//! JSON, or JSON as text in query strings.

use serde_json::{Map, Value, json};

use weir_api::node::NodeError;
use weir_api::nodes::check::is_nothing;
use weir_api::nodes::older;
use weir_event::json;

/// Kinds of nodes that have no interval of their own.
const WITHOUT_INTERVAL: [&str; 2] = ["PathsQuery", "RetentionQuery"];

/// Filters as they were sent.
pub type Filter = Map<String, Value>;

/// Converts filters to a `TrendsQuery`.
///
/// # Errors
///
/// They are of another insight, or malformed.
pub fn trends_query(filter: &Filter) -> Result<Value, NodeError> {
    check_insight(filter, "TRENDS")?;
    let mut query = query(filter, "TrendsQuery")?;
    query.insert("series".to_owned(), Value::Array(series(filter)?));
    query.insert("breakdownFilter".to_owned(), breakdown_filter(filter)?);
    let options = json!({
        "display": text(filter, "display"), "formula": text(filter, "formula"),
        "smoothingIntervals": parsed(filter, "smoothing_intervals")?,
    });
    query.insert("trendsFilter".to_owned(), options);
    let compare = json!({
        "compare": truth(filter, "compare"), "compare_to": text(filter, "compare_to"),
    });
    query.insert("compareFilter".to_owned(), compare);
    Ok(Value::Object(query))
}

/// Refuses filters with an unknown field.
///
/// # Errors
///
/// Names the first such field.
pub fn check(filter: &Filter) -> Result<(), NodeError> {
    older::check(filter, |text| json::read(text.as_bytes()).ok())
}

/// Refuses filters of another insight than `insight`.
///
/// # Errors
///
/// Their field `insight` names another one.
pub fn check_insight(filter: &Filter, insight: &str) -> Result<(), NodeError> {
    match text(filter, "insight") {
        Some(sent) if sent != insight => {
            let sent: String = sent.chars().take(100).collect();
            Err(refused("insight", format!("{sent} is not available here.")))
        }
        _ => Ok(()),
    }
}

/// Converts the fields that the filters of all insights have in common to a query node of a kind.
pub fn query(filter: &Filter, kind: &str) -> Result<Filter, NodeError> {
    let query = json!({
        "kind": kind,
        "dateRange": dates(filter),
        "properties": parsed(filter, "properties")?,
        "filterTestAccounts": truth(filter, "filter_test_accounts"),
        "samplingFactor": parsed(filter, "sampling_factor")?,
        "aggregation_group_type_index": parsed(filter, "aggregation_group_type_index")?,
    });
    let Value::Object(mut query) = query else { return Ok(Filter::new()) };
    // Older clients send it with the filters of all insights.
    if !WITHOUT_INTERVAL.contains(&kind) {
        query.insert("interval".to_owned(), json!(text(filter, "interval")));
    }
    Ok(query)
}

/// Converts the breakdown of the filters to a `breakdownFilter`.
pub fn breakdown_filter(filter: &Filter) -> Result<Value, NodeError> {
    Ok(json!({
        "breakdown": breakdown(filter), "breakdown_type": text(filter, "breakdown_type"),
        "breakdowns": parsed(filter, "breakdowns")?,
        "breakdown_limit": parsed(filter, "breakdown_limit")?,
        "breakdown_offset": parsed(filter, "breakdown_offset")?,
        "breakdown_group_type_index": parsed(filter, "breakdown_group_type_index")?,
        "breakdown_normalize_url": truth(filter, "breakdown_normalize_url"),
        "breakdown_histogram_bin_count": parsed(filter, "breakdown_histogram_bin_count")?,
        "breakdown_hide_other_aggregation": truth(filter, "breakdown_hide_other_aggregation"),
    }))
}

/// Refuses filters with a breakdown, which the insight would otherwise ignore.
///
/// # Errors
///
/// They have one.
pub fn check_unsplit(filter: &Filter) -> Result<(), NodeError> {
    for (name, sent) in
        [("breakdown", breakdown(filter)), ("breakdowns", parsed(filter, "breakdowns")?)]
    {
        if !is_nothing(&sent) {
            return Err(refused(name, format!("{name} is not available.")));
        }
    }
    Ok(())
}

/// Converts the dates of the filters to a `dateRange`.
fn dates(filter: &Filter) -> Value {
    json!({
        "date_from": text(filter, "date_from"), "date_to": text(filter, "date_to"),
        "explicitDate": truth(filter, "explicit_date"),
    })
}

/// The events and actions of the filters as series, in their order; page views if there are none.
pub fn series(filter: &Filter) -> Result<Vec<Value>, NodeError> {
    let series = entities(filter)?;
    if series.is_empty() {
        let views = json!({"id": "$pageview", "name": "$pageview"});
        return Ok(vec![entity("events", &views)?]);
    }
    Ok(series)
}

/// The events and actions of the filters as series, in their order.
pub fn entities(filter: &Filter) -> Result<Vec<Value>, NodeError> {
    let list = |name: &str| match parsed(filter, name)? {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => Ok(list),
        _ => Err(refused(name, "Expected a JSON list of series.")),
    };
    let events = list("events")?.into_iter().map(|entity| ("events", entity));
    let actions = list("actions")?.into_iter().map(|entity| ("actions", entity));
    let mut all: Vec<(&str, Value)> = events.chain(actions).collect();
    all.sort_by_key(|(_, entity)| entity.get("order").and_then(Value::as_u64).unwrap_or(0));
    all.iter().map(|(kind, value)| entity(kind, value)).collect()
}

/// Converts one entity of the list `kind` to a series. Its own type takes precedence over that of the list.
pub fn entity(kind: &str, entity: &Value) -> Result<Value, NodeError> {
    let Value::Object(fields) = entity else {
        return Err(refused(kind, "Expected a JSON list of series."));
    };
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or(kind);
    let (kind, id) = match kind {
        "actions" => ("ActionsNode", "id"),
        _ => ("EventsNode", "event"),
    };
    let mut series = Filter::new();
    series.insert("kind".to_owned(), json!(kind));
    series.insert(id.to_owned(), fields.get("id").cloned().unwrap_or_default());
    for name in [
        "name",
        "custom_name",
        "math",
        "math_property",
        "math_property_type",
        "math_group_type_index",
        "math_hogql",
        "optionalInFunnel",
        "properties",
    ] {
        if let Some(value) = fields.get(name) {
            series.insert(name.to_owned(), value.clone());
        }
    }
    Ok(Value::Object(series))
}

/// A breakdown may be one property, a list of properties, or the JSON text of such a list.
fn breakdown(filter: &Filter) -> Value {
    match filter.get("breakdown") {
        Some(Value::String(text)) if text.starts_with('[') => {
            json::read(text.as_bytes()).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(Value::String(text)) if text.is_empty() => Value::Null,
        other => other.cloned().unwrap_or_default(),
    }
}

/// The value of a field; a text is parsed as JSON. Null if it is absent or empty.
///
/// # Errors
///
/// It is a text that is not JSON.
pub fn parsed(filter: &Filter, name: &str) -> Result<Value, NodeError> {
    match filter.get(name) {
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Value::Null),
        Some(Value::String(text)) => {
            json::read(text.as_bytes()).map_err(|_| refused(name, "Expected JSON."))
        }
        other => Ok(other.cloned().unwrap_or_default()),
    }
}

/// The value of a field that is a list, or the JSON text of one; any other text becomes a list of one. Null if it is
/// absent or empty.
///
/// # Errors
///
/// It is a text that begins like a list, but is not JSON.
pub fn list(filter: &Filter, name: &str) -> Result<Value, NodeError> {
    match text(filter, name) {
        Some(text) if !text.trim_start().starts_with('[') => Ok(Value::from(vec![text])),
        _ => parsed(filter, name),
    }
}

/// The value of a field, if it is a non-empty text.
pub fn text(filter: &Filter, name: &str) -> Option<String> {
    let text = filter.get(name)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether the value of a field is true, in one of the forms that clients send.
pub fn truth(filter: &Filter, name: &str) -> bool {
    match filter.get(name) {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::String(text)) => matches!(text.to_lowercase().as_str(), "true" | "1" | "yes"),
        Some(Value::Number(number)) => number.as_u64() == Some(1),
        _ => false,
    }
}

/// The error for a field.
pub fn refused(field: &str, detail: impl Into<String>) -> NodeError {
    NodeError { field: field.to_owned(), detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::trends_query;
    use crate::trends::Trends;

    fn filter(value: Value) -> Map<String, Value> {
        let Value::Object(filter) = value else { panic!("an object") };
        filter
    }

    #[test]
    fn texts_of_query_strings_and_values_of_bodies_mean_the_same() {
        let texts = filter(json!({
            "events": "[{\"id\": \"b\", \"order\": 1}, {\"id\": \"a\", \"order\": 0, \"math\": \"dau\"}]",
            "compare": "true", "breakdown": "[\"$browser\"]", "breakdown_limit": "5",
            "properties": "[{\"key\": \"a\", \"value\": 1}]", "date_from": "-7d", "interval": "",
        }));
        let values = filter(json!({
            "events": [{"id": "b", "order": 1}, {"id": "a", "order": 0, "math": "dau"}],
            "compare": true, "breakdown": ["$browser"], "breakdown_limit": 5,
            "properties": [{"key": "a", "value": 1}], "date_from": "-7d",
        }));
        let query = trends_query(&texts).unwrap();
        assert_eq!(query, trends_query(&values).unwrap());
        assert_eq!(query["series"][0]["event"], "a");
        Trends::parse(&query).unwrap();
    }

    #[test]
    fn what_is_not_available_is_refused_by_its_name() {
        for (filters, field) in [
            (json!({"insight": "FUNNELS"}), "insight"),
            (json!({"actions": [4]}), "actions"),
            (json!({"actions": "x"}), "actions"),
            (json!({"events": "{"}), "events"),
            (json!({"events": [4]}), "events"),
            (json!({"properties": "x"}), "properties"),
        ] {
            let error = trends_query(&filter(filters.clone())).unwrap_err();
            assert_eq!(error.field, field, "{filters}");
        }
        let mixed = filter(json!({
            "events": [{"id": "a", "order": 1}, {"id": 2, "type": "actions", "order": 2}],
            "actions": "[{\"id\": 1, \"order\": 0, \"math\": \"dau\"}]",
        }));
        let series = &trends_query(&mixed).unwrap()["series"];
        let expected = json!([
            {"kind": "ActionsNode", "id": 1, "math": "dau"},
            {"kind": "EventsNode", "event": "a"},
            {"kind": "ActionsNode", "id": 2},
        ]);
        assert_eq!(series, &expected);
        let query = trends_query(&Map::new()).unwrap();
        assert_eq!(query["series"][0]["event"], "$pageview", "the default");
        Trends::parse(&query).unwrap();
    }
}
