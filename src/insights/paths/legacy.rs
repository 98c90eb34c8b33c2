//! Converts the filters of older clients for paths, such as `?path_type=$pageview&start_point=/`, to a query node:
//! [`paths_query`].

use serde_json::{Value, json};

use crate::funnels::legacy::funnels_query;
use crate::legacy::{Filter, check_insight, list, parsed, query, refused, text, truth};
use weir_api::node::NodeError;

/// Converts filters to a `PathsQuery`.
///
/// # Errors
///
/// They are of another insight, or malformed.
pub fn paths_query(filter: &Filter) -> Result<Value, NodeError> {
    check_insight(filter, "PATHS")?;
    let kinds = match list(filter, "include_event_types")? {
        Value::Array(kinds) if !kinds.is_empty() => Value::Array(kinds),
        _ => text(filter, "path_type").map_or(Value::Null, |kind| json!([kind])),
    };
    let mut query = query(filter, "PathsQuery")?;
    let options = json!({
        "includeEventTypes": kinds,
        "startPoint": text(filter, "start_point"),
        "endPoint": text(filter, "end_point"),
        "excludeEvents": list(filter, "exclude_events")?,
        "stepLimit": parsed(filter, "step_limit")?,
        "edgeLimit": parsed(filter, "edge_limit")?,
        "minEdgeWeight": parsed(filter, "min_edge_weight")?,
        "maxEdgeWeight": parsed(filter, "max_edge_weight")?,
        "pathGroupings": list(filter, "path_groupings")?,
        "pathReplacements": truth(filter, "path_replacements"),
        "localPathCleaningFilters": parsed(filter, "local_path_cleaning_filters")?,
        "pathsHogQLExpression": text(filter, "paths_hogql_expression"),
        "pathStartKey": text(filter, "path_start_key"),
        "pathEndKey": text(filter, "path_end_key"),
        "pathDropoffKey": text(filter, "path_dropoff_key"),
    });
    query.insert("pathsFilter".to_owned(), options);
    query.insert("funnelPathsFilter".to_owned(), around(filter)?);
    Ok(Value::Object(query))
}

/// The funnel and the step around which paths are shown, as a `funnelPathsFilter`; null without one.
fn around(filter: &Filter) -> Result<Value, NodeError> {
    const FUNNEL: &str = "funnel_filter";
    let funnel = match parsed(filter, FUNNEL)? {
        Value::Null => Filter::new(),
        Value::Object(funnel) => funnel,
        _ => return Err(refused(FUNNEL, "Expected an object.")),
    };
    match (text(filter, "funnel_paths"), funnel.is_empty()) {
        (None, true) => Ok(Value::Null),
        (None, false) => Err(refused("funnel_paths", "It says where paths of the funnel are.")),
        (Some(_), true) => Err(refused(FUNNEL, "This field is required with funnel_paths.")),
        (Some(kind), false) => {
            let within =
                |error: NodeError| refused(&format!("{FUNNEL}.{}", error.field), error.detail);
            Ok(json!({
                "funnelPathType": kind,
                "funnelStep": parsed(&funnel, "funnel_step").map_err(within)?,
                "funnelSource": funnels_query(&funnel).map_err(within)?,
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::paths_query;
    use crate::legacy::Filter;
    use crate::paths::Paths;

    fn filter(value: Value) -> Filter {
        let Value::Object(filter) = value else { panic!("an object") };
        filter
    }

    #[test]
    fn texts_of_query_strings_and_values_of_bodies_mean_the_same() {
        let texts = filter(json!({
            "insight": "PATHS", "path_type": "$screen", "include_event_types": "", "exclude_events": "[\"a\"]",
            "step_limit": "4", "edge_limit": "", "path_groupings": "/a*", "start_point": "/b", "funnel_filter": "{}",
            "local_path_cleaning_filters": "[{\"regex\": \"a\", \"alias\": \"b\"}]", "date_from": "-3d",
            "path_replacements": "true",
        }));
        let values = filter(json!({
            "include_event_types": ["$screen"], "exclude_events": ["a"], "step_limit": 4, "path_groupings": ["/a*"],
            "start_point": "/b", "local_path_cleaning_filters": [{"regex": "a", "alias": "b"}], "date_from": "-3d",
            "path_replacements": true, "funnel_paths": null,
        }));
        let query = paths_query(&texts).unwrap();
        assert_eq!(query, paths_query(&values).unwrap());
        let paths = Paths::parse(&query).unwrap();
        assert_eq!((paths.steps_max, paths.start.as_deref()), (4, Some("/b")));
        Paths::parse(&paths_query(&Filter::new()).unwrap()).unwrap();
    }

    #[test]
    fn a_funnel_around_a_step_is_read() {
        let funnel = json!({"insight": "FUNNELS", "funnel_step": 2, "events": [{"id": "a"}, {"id": "b", "order": 1}]});
        let kind = "funnel_path_between_steps";
        let sent = [
            json!({"funnel_paths": kind, "funnel_filter": funnel}),
            json!({"funnel_paths": kind, "funnel_filter": funnel.to_string()}),
        ];
        for filters in sent {
            let query = paths_query(&filter(filters)).unwrap();
            let around = &query["funnelPathsFilter"];
            assert_eq!(
                (&around["funnelPathType"], &around["funnelStep"]),
                (&json!(kind), &json!(2))
            );
            assert_eq!(around["funnelSource"]["series"].as_array().map(Vec::len), Some(2));
            Paths::parse(&query).unwrap();
        }
    }

    #[test]
    fn what_is_not_available_is_refused_by_its_name() {
        for (filters, field) in [
            (json!({"insight": "FUNNELS"}), "insight"),
            (json!({"funnel_paths": "funnel_path_between_steps"}), "funnel_filter"),
            (json!({"funnel_filter": {"insight": "FUNNELS"}}), "funnel_paths"),
            (json!({"funnel_filter": "[]"}), "funnel_filter"),
            (
                json!({"funnel_paths": "funnel_path_after_step", "funnel_filter": {"insight": "PATHS"}}),
                "funnel_filter.insight",
            ),
            (json!({"step_limit": "x"}), "step_limit"),
            (json!({"exclude_events": "[1"}), "exclude_events"),
        ] {
            let error = paths_query(&filter(filters.clone())).unwrap_err();
            assert_eq!(error.field, field, "{filters}");
        }
    }
}
