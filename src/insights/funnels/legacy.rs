//! Converts the filters of older clients to a `FunnelsQuery`, and to a query for the persons behind a step.

use serde_json::{Value, json};

use crate::legacy::{
    Filter, breakdown_filter, check_insight, entities, entity, parsed, query, refused, text, truth,
};
use weir_api::node::NodeError;
use weir_event::json;

/// Converts filters to a `FunnelsQuery`.
///
/// # Errors
///
/// They are of another insight, or malformed.
pub fn funnels_query(filter: &Filter) -> Result<Value, NodeError> {
    check_insight(filter, "FUNNELS")?;
    let mut query = query(filter, "FunnelsQuery")?;
    query.insert("series".to_owned(), Value::Array(entities(filter)?));
    query.insert("breakdownFilter".to_owned(), breakdown_filter(filter)?);
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

/// Converts filters to the fields of a `FunnelsActorsQuery` besides its source.
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

/// Converts the exclusions of a funnel.
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{funnel_actors, funnels_query};
    use crate::funnels::Funnels;

    fn filter(value: Value) -> Map<String, Value> {
        let Value::Object(filter) = value else { panic!("an object") };
        filter
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
