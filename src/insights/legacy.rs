//! The filters of older clients, such as `?insight=TRENDS&events=[...]`, as the nodes of newer ones:
//! [`trends_query`], [`funnels_query`]. Values may be JSON or the text of it, as query strings have them.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::event::json;
use crate::insights::node::NodeError;

/// Filters as they were sent.
pub type Filter = Map<String, Value>;

/// The `TrendsQuery` of such filters.
///
/// # Errors
///
/// They are of another insight, or malformed.
pub fn trends_query(filter: &Filter) -> Result<Value, NodeError> {
    let mut query = query(filter, ("TRENDS", "TrendsQuery"))?;
    query.insert("series".to_owned(), Value::Array(series(filter)?));
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

/// The `FunnelsQuery` of such filters.
///
/// # Errors
///
/// They are of another insight, or malformed.
pub fn funnels_query(filter: &Filter) -> Result<Value, NodeError> {
    let mut query = query(filter, ("FUNNELS", "FunnelsQuery"))?;
    query.insert("series".to_owned(), Value::Array(entities(filter)?));
    let days = parsed(filter, "funnel_window_days")?;
    let (window, unit) = match parsed(filter, "funnel_window_interval")? {
        Value::Null if !days.is_null() => (days, Some("day".to_owned())),
        window => (window, text(filter, "funnel_window_interval_unit")),
    };
    let bins = match text(filter, "bin_count").as_deref() {
        Some("auto") => Value::Null,
        _ => parsed(filter, "bin_count")?,
    };
    let options = json!({
        "funnelWindowInterval": window, "funnelWindowIntervalUnit": unit, "binCount": bins,
        "funnelOrderType": text(filter, "funnel_order_type"),
        "funnelVizType": text(filter, "funnel_viz_type"),
        "exclusions": exclusions(filter)?,
        "breakdownAttributionType": text(filter, "breakdown_attribution_type"),
        "breakdownAttributionValue": parsed(filter, "breakdown_attribution_value")?,
        "funnelFromStep": parsed(filter, "funnel_from_step")?,
        "funnelToStep": parsed(filter, "funnel_to_step")?,
        "funnelAggregateByHogQL": text(filter, "funnel_aggregate_by_hogql"),
    });
    query.insert("funnelsFilter".to_owned(), options);
    Ok(Value::Object(query))
}

/// The fields of a `FunnelsActorsQuery` beside its source.
///
/// # Errors
///
/// They are malformed.
pub fn funnel_actors(filter: &Filter) -> Result<Value, NodeError> {
    let breakdown = match filter.get("funnel_step_breakdown") {
        Some(Value::String(text)) if text.starts_with('[') => {
            json::read(text.as_bytes()).unwrap_or_else(|_| Value::String(text.clone()))
        }
        other => other.cloned().unwrap_or_default(),
    };
    let is_drop_off = filter.get("drop_off").map(|_| truth(filter, "drop_off"));
    Ok(json!({
        "funnelStep": parsed(filter, "funnel_step")?,
        "funnelCustomSteps": parsed(filter, "funnel_custom_steps")?,
        "funnelStepBreakdown": breakdown,
        "funnelTrendsDropOff": is_drop_off,
        "funnelTrendsEntrancePeriodStart": text(filter, "entrance_period_start"),
    }))
}

/// The exclusions of a funnel.
fn exclusions(filter: &Filter) -> Result<Vec<Value>, NodeError> {
    let list = match parsed(filter, "exclusions")? {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        _ => return Err(refused("exclusions", "Expected a JSON list of exclusions.")),
    };
    let exclusion = |value: &Value| {
        let mut exclusion = entity("events", value)?;
        if let Value::Object(fields) = &mut exclusion {
            for (name, of) in
                [("funnelFromStep", "funnel_from_step"), ("funnelToStep", "funnel_to_step")]
            {
                fields.insert(name.to_owned(), value.get(of).cloned().unwrap_or_default());
            }
        }
        Ok(exclusion)
    };
    list.iter().map(exclusion).collect()
}

/// What the filters of all insights have in common, as a query of a kind.
fn query(filter: &Filter, (insight, kind): (&str, &str)) -> Result<Filter, NodeError> {
    let sent = text(filter, "insight").unwrap_or_else(|| insight.to_owned());
    if sent != insight {
        let sent: String = sent.chars().take(100).collect();
        return Err(refused("insight", format!("{sent} is not available here.")));
    }
    let query = json!({
        "kind": kind,
        "interval": text(filter, "interval"),
        "dateRange": dates(filter),
        "properties": parsed(filter, "properties")?,
        "filterTestAccounts": truth(filter, "filter_test_accounts"),
        "samplingFactor": parsed(filter, "sampling_factor")?,
        "aggregation_group_type_index": parsed(filter, "aggregation_group_type_index")?,
        "breakdownFilter": {
            "breakdown": breakdown(filter), "breakdown_type": text(filter, "breakdown_type"),
            "breakdowns": parsed(filter, "breakdowns")?,
            "breakdown_limit": parsed(filter, "breakdown_limit")?,
            "breakdown_group_type_index": parsed(filter, "breakdown_group_type_index")?,
            "breakdown_normalize_url": truth(filter, "breakdown_normalize_url"),
            "breakdown_histogram_bin_count": parsed(filter, "breakdown_histogram_bin_count")?,
        },
    });
    match query {
        Value::Object(query) => Ok(query),
        _ => Ok(Filter::new()),
    }
}

/// The dates of the filters as a `dateRange`.
pub fn dates(filter: &Filter) -> Value {
    json!({
        "date_from": text(filter, "date_from"), "date_to": text(filter, "date_to"),
        "explicitDate": truth(filter, "explicit_date"),
    })
}

/// The events and actions of the filters as series, in their order; views of pages where there is none.
///
/// # Errors
///
/// They are malformed.
pub fn series(filter: &Filter) -> Result<Vec<Value>, NodeError> {
    let series = entities(filter)?;
    if series.is_empty() {
        let views = json!({"id": "$pageview", "name": "$pageview"});
        return Ok(vec![entity("events", &views)?]);
    }
    Ok(series)
}

/// The events and actions of the filters as series, in their order.
fn entities(filter: &Filter) -> Result<Vec<Value>, NodeError> {
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

/// One entity of the list `kind` as a series. A type of its own comes before that of the list.
fn entity(kind: &str, entity: &Value) -> Result<Value, NodeError> {
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
        "properties",
    ] {
        if let Some(value) = fields.get(name) {
            series.insert(name.to_owned(), value.clone());
        }
    }
    Ok(Value::Object(series))
}

/// A property may be a list of one, or the text of such a list.
fn breakdown(filter: &Filter) -> Value {
    match filter.get("breakdown") {
        Some(Value::String(text)) if text.starts_with('[') => {
            json::read(text.as_bytes()).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(Value::String(text)) if text.is_empty() => Value::Null,
        other => other.cloned().unwrap_or_default(),
    }
}

/// A value, or the value that a text is as JSON; null if it is absent or empty.
///
/// # Errors
///
/// It is a text, but not of JSON.
pub fn parsed(filter: &Filter, name: &str) -> Result<Value, NodeError> {
    match filter.get(name) {
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Value::Null),
        Some(Value::String(text)) => {
            json::read(text.as_bytes()).map_err(|_| refused(name, "Expected JSON."))
        }
        other => Ok(other.cloned().unwrap_or_default()),
    }
}

/// A text, if it is there and not empty.
pub fn text(filter: &Filter, name: &str) -> Option<String> {
    let text = filter.get(name)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether a value is true, in one of the ways that clients write it.
pub fn truth(filter: &Filter, name: &str) -> bool {
    match filter.get(name) {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::String(text)) => matches!(text.to_lowercase().as_str(), "true" | "1" | "yes"),
        Some(Value::Number(number)) => number.as_u64() == Some(1),
        _ => false,
    }
}

/// The refusal of a filter.
pub fn refused(field: &str, detail: impl Into<String>) -> NodeError {
    NodeError { field: field.to_owned(), detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use serde_json::Value;
    use serde_json::json;

    use super::funnel_actors;
    use super::funnels_query;
    use super::trends_query;
    use crate::insights::funnels::Funnels;
    use crate::insights::trends::Trends;

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
    #[test]
    fn funnels_and_their_actors_are_read_from_texts_and_values() {
        let events = json!([{"id": "b", "order": 1}, {"id": "a", "order": 0}]);
        let exclusions =
            json!([{"id": "x", "type": "events", "funnel_from_step": 0, "funnel_to_step": 1}]);
        let texts = filter(json!({
            "insight": "FUNNELS", "events": events.to_string(), "exclusions": exclusions.to_string(),
            "funnel_window_days": "7", "bin_count": "auto", "funnel_to_step": "1", "drop_off": "false",
            "funnel_step": "-2", "funnel_step_breakdown": "[\"Chrome\"]", "funnel_custom_steps": "[1, 2]",
        }));
        let values = filter(json!({
            "events": events, "exclusions": exclusions, "funnel_window_interval": 7,
            "funnel_window_interval_unit": "day", "funnel_to_step": 1, "drop_off": false,
            "funnel_step": -2, "funnel_step_breakdown": ["Chrome"], "funnel_custom_steps": [1, 2],
        }));
        let query = funnels_query(&texts).unwrap();
        assert_eq!(query, funnels_query(&values).unwrap());
        assert_eq!(query["funnelsFilter"]["exclusions"][0]["funnelToStep"], 1);
        Funnels::parse(&query).unwrap();
        let actors = funnel_actors(&texts).unwrap();
        assert_eq!(actors, funnel_actors(&values).unwrap());
        assert_eq!(
            (&actors["funnelStep"], &actors["funnelTrendsDropOff"]),
            (&json!(-2), &json!(false))
        );
        assert_eq!(funnels_query(&Map::new()).unwrap()["series"], json!([]), "no default");
        for (filters, field) in [
            (json!({"insight": "TRENDS"}), "insight"),
            (json!({"exclusions": {}}), "exclusions"),
            (json!({"funnel_to_step": "x"}), "funnel_to_step"),
        ] {
            assert_eq!(funnels_query(&filter(filters)).unwrap_err().field, field);
        }
    }
}
