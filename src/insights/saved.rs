//! Saved insights: [`query_of`] resolves the query of one, whether it was saved as a node or as the filters of older
//! clients, and [`with_frame`] applies overrides of a dashboard or a request.

use serde_json::{Map, Value, json};

use crate::filters::Filters;
use crate::funnels::legacy::funnels_query;
use crate::insight::KINDS;
use crate::legacy::Filter;
use crate::lifecycle::legacy::lifecycle_query;
use crate::paths::legacy::paths_query;
use crate::retention::legacy::retention_query;
use crate::stickiness::legacy::stickiness_query;
use crate::{event_list, legacy};
use weir_api::node::{Content, NodeError};
use weir_api::nodes::filter::Properties;
use weir_api::nodes::frame::Frame;
use weir_wire::query_node::SQL;

/// Kinds of insights that support a breakdown.
const WITH_BREAKDOWN: [&str; 3] = ["FunnelsQuery", "RetentionQuery", "TrendsQuery"];

/// The query node of a saved insight with these fields; `None` if it has none.
///
/// # Errors
///
/// Its filters are malformed.
pub fn query_of(fields: &Map<String, Value>) -> Result<Option<Value>, NodeError> {
    if let Some(query) = fields.get("query").filter(|query| !query.is_null()) {
        return Ok(Some(query.clone()));
    }
    match fields.get("filters") {
        Some(Value::Object(filter)) if !filter.is_empty() => query_of_filters(filter).map(Some),
        _ => Ok(None),
    }
}

/// Converts the filters of older clients to a query node.
pub fn query_of_filters(filter: &Filter) -> Result<Value, NodeError> {
    match legacy::text(filter, "insight").as_deref() {
        Some("FUNNELS") => funnels_query(filter),
        Some("LIFECYCLE") => lifecycle_query(filter),
        Some("PATHS") => paths_query(filter),
        Some("RETENTION") => retention_query(filter),
        Some("STICKINESS") => stickiness_query(filter),
        _ => legacy::trends_query(filter),
    }
}

/// Applies the filters of a dashboard to the node of an insight: the date range replaces that of the node, the
/// properties are combined with those of the node by AND, the breakdown replaces that of kinds that support one.
fn with_filters(query: &mut Value, filters: &Value) -> Result<(), NodeError> {
    let Frame { date_from: from, date_to: to, explicit_date, properties, breakdown_filter } =
        Option::<Frame>::read(filters, "filters")?.unwrap_or_default();
    let Value::Object(query) = query else { return Ok(()) };
    let is_of_events = query.get("kind").is_some_and(|kind| kind == event_list::KIND);
    if is_of_events && (from.is_some() || to.is_some()) {
        query.insert("after".to_owned(), json!(from));
        query.insert("before".to_owned(), json!(to));
    } else if from.is_some() || to.is_some() {
        let range = json!({"date_from": from, "date_to": to, "explicitDate": explicit_date});
        query.insert("dateRange".to_owned(), range);
    }
    let properties = properties.map(|Properties(own)| own);
    if let Some(properties) = properties.filter(|own| !is_empty(own)) {
        let own = query.remove("properties").filter(|own| !own.is_null() && !is_empty(own));
        let both = match own {
            Some(own) => {
                json!({"type": "AND", "values": [group(own), group(properties)]})
            }
            None => properties,
        };
        query.insert("properties".to_owned(), both);
    }
    let kind = query.get("kind").and_then(Value::as_str).unwrap_or_default();
    if let Some(breakdown) = breakdown_filter.write()
        && WITH_BREAKDOWN.contains(&kind)
    {
        query.insert("breakdownFilter".to_owned(), breakdown);
    }
    Ok(())
}

/// Applies the overrides of a dashboard or a request to a node of any kind: filters, and values for SQL variables. In
/// SQL the filters apply to the placeholder `{filters}`.
///
/// # Errors
///
/// The filters or the variables are malformed.
pub fn with_frame(
    node: &mut Value,
    (filters, variables): (&Value, &Value),
) -> Result<(), NodeError> {
    let kind = node.get("kind").and_then(Value::as_str).unwrap_or_default();
    match kind {
        SQL => {
            with_variables(node, variables)?;
            if let Value::Object(node) = node {
                let own = node.remove("filters").filter(|own| !own.is_null());
                let mut own = own.unwrap_or_else(|| json!({}));
                with_filters(&mut own, filters)?;
                node.insert("filters".to_owned(), own);
            }
            Ok(())
        }
        _ if kind == event_list::KIND || KINDS.contains(&kind) => with_filters(node, filters),
        _ => Ok(()),
    }
}

/// Validates the filters of a dashboard; see [`with_filters`].
pub fn check_filters(filters: &Value) -> Result<(), NodeError> {
    with_filters(&mut Value::Object(Map::new()), filters)?;
    match filters.get("properties").filter(|properties| !properties.is_null()) {
        Some(properties) => Filters::default().add(properties, "filters.properties"),
        None => Ok(()),
    }
}

/// Sets the variables of an SQL node to the values that a dashboard has for them, by their ids.
///
/// # Errors
///
/// The variables are malformed.
fn with_variables(query: &mut Value, variables: &Value) -> Result<(), NodeError> {
    if !variables.is_null() && !variables.is_object() {
        return Err(NodeError::new("variables", "Expected an object."));
    }
    let own = query.get_mut("variables").and_then(Value::as_object_mut);
    for (id, variable) in own.into_iter().flatten() {
        let Some(value) = variables.get(id) else { continue };
        if let Value::Object(variable) = variable {
            let is_null = value.get("isNull") == Some(&Value::Bool(true));
            let value = value.get("value").filter(|_| !is_null).cloned().unwrap_or_default();
            variable.insert("value".to_owned(), value);
        }
    }
    Ok(())
}

/// Converts a list of filters to an AND group.
fn group(properties: Value) -> Value {
    match properties {
        list @ Value::Array(_) => json!({"type": "AND", "values": list}),
        group => group,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{query_of, with_filters, with_variables};
    use crate::insight::Insight;
    use crate::sql::values_of_variables;
    use weir_api::nodes::check::parse;
    use weir_api::nodes::lists::HogQLQuery;

    #[test]
    fn insights_have_the_query_that_they_were_saved_with() {
        let kind = |fields: Value| {
            let query = query_of(fields.as_object().unwrap()).unwrap()?;
            Insight::parse(&query).unwrap();
            Some(query["kind"].as_str().unwrap().to_owned())
        };
        let event = json!([{"id": "a", "type": "events", "order": 0}]);
        let of = |insight: &str| json!({"filters": {"insight": insight, "events": event}});
        for (insight, expected) in [
            ("TRENDS", "TrendsQuery"),
            ("FUNNELS", "FunnelsQuery"),
            ("LIFECYCLE", "LifecycleQuery"),
            ("PATHS", "PathsQuery"),
            ("RETENTION", "RetentionQuery"),
            ("STICKINESS", "StickinessQuery"),
        ] {
            assert_eq!(kind(of(insight)).as_deref(), Some(expected));
        }
        assert_eq!(kind(json!({"filters": {"events": event}})).as_deref(), Some("TrendsQuery"));
        assert_eq!(kind(json!({"query": null, "filters": {}})), None);
        let unknown = json!({"filters": {"insight": "SESSIONS"}});
        assert_eq!(query_of(unknown.as_object().unwrap()).unwrap_err().field, "insight");
        let query = json!({"kind": "TrendsQuery", "series": [{"event": "a"}]});
        let both = json!({"query": query, "filters": {"insight": "FUNNELS"}});
        assert_eq!(kind(both).as_deref(), Some("TrendsQuery"));
    }

    #[test]
    fn filters_of_a_dashboard_replace_dates_and_add_properties() {
        let own = json!([{"key": "a", "value": 1}]);
        let more = json!([{"key": "b", "value": 2}]);
        let changed = |query: Value, filters: Value| {
            let mut query = query;
            with_filters(&mut query, &filters).map(|()| query)
        };
        let base = json!({"kind": "TrendsQuery", "properties": own});
        assert_eq!(changed(base.clone(), json!({})), Ok(base.clone()));
        assert_eq!(changed(base.clone(), json!({"properties": [], "date_from": null})), Ok(base));
        let told = changed(
            json!({"kind": "TrendsQuery", "properties": own}),
            json!({"properties": more, "date_from": "-3d"}),
        );
        let told = told.unwrap();
        let both = json!({"type": "AND", "values": [
            {"type": "AND", "values": own}, {"type": "AND", "values": more}]});
        assert_eq!(told["properties"], both);
        let range = json!({"date_from": "-3d", "date_to": null, "explicitDate": false});
        assert_eq!(told["dateRange"], range);
        let alone = changed(
            json!({"kind": "PathsQuery"}),
            json!({"properties": more, "breakdown_filter": {"breakdown": "x"}}),
        );
        let alone = alone.unwrap();
        assert_eq!((&alone["properties"], alone.get("breakdownFilter")), (&more, None));
        let broken = changed(
            json!({"kind": "TrendsQuery"}),
            json!({"breakdown_filter": {"breakdown": "x"}}),
        );
        assert_eq!(broken.unwrap()["breakdownFilter"], json!({"breakdown": "x"}));
        for (filters, field) in
            [(json!([]), "filters"), (json!({"date_from": 1}), "filters.date_from")]
        {
            assert_eq!(changed(json!({}), filters).unwrap_err().field, field);
        }
    }

    #[test]
    fn variables_of_a_dashboard_have_their_values() {
        let mut query = json!({"variables": {
            "u1": {"code_name": "plan", "value": "free"}, "u2": {"code_name": "city", "value": "Rome"},
            "u3": {"code_name": "age", "value": 3}}});
        let of_board = json!({"u1": {"value": "pro"}, "u3": {"isNull": true, "value": 4}, "other": {"value": 1}});
        with_variables(&mut query, &of_board).unwrap();
        let values =
            Value::from(values_of_variables(parse::<HogQLQuery>(&query).unwrap().variables));
        assert_eq!(values, json!({"plan": "pro", "city": "Rome", "age": null}));
        assert_eq!(with_variables(&mut query, &json!([])).unwrap_err().field, "variables");
    }
}
