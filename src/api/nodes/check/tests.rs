//! Nodes, filters, steps and bodies with fields that nobody reads, at every depth.

use serde_json::{Map, Value, json};

use super::{check, check_filters, check_frame, check_steps};
use crate::nodes::older;

/// The refused field, and the message about it.
fn refused(node: &Value) -> Option<(String, String)> {
    check(node).err().map(|error| (error.field, error.detail))
}

/// A node with more fields at a place.
fn with(mut node: Value, place: &str, more: &Value) -> Value {
    let Some(Value::Object(fields)) = node.pointer_mut(place) else { panic!("{node} {place}") };
    fields.extend(more.as_object().unwrap().clone());
    node
}

/// Asserts that a node is taken, and refused with `more` at a place: with the field, and a hint.
fn assert_refused(node: &Value, place: &str, more: &Value, field: &str, hint: &str) {
    assert_eq!(refused(node), None, "{node}");
    let sent = with(node.clone(), place, more);
    let (found, detail) = refused(&sent).unwrap_or_else(|| panic!("{more}"));
    assert_eq!(found, field, "{more}");
    assert!(detail.starts_with("Unknown field \"") && detail.contains(hint), "{detail}");
}

fn trends() -> Value {
    json!({
        "kind": "TrendsQuery", "interval": "day", "dateRange": {"date_from": "-7d"},
        "series": [{"kind": "EventsNode", "event": "a", "math": "sum", "math_property": "price",
                    "properties": [{"key": "k", "value": 1, "type": "event", "operator": "exact"}]}],
        "breakdownFilter": {"breakdowns": [{"property": "b", "type": "event"}]},
        "compareFilter": {"compare": true}, "trendsFilter": {"formulaNodes": [{"formula": "A"}]},
        "properties": {"type": "AND", "values": [{"type": "OR", "values": [{"key": "k", "value": 1}]}]},
    })
}

fn paths() -> Value {
    json!({"kind": "PathsQuery", "pathsFilter": {"localPathCleaningFilters": [{"alias": "a", "regex": "b"}]},
           "funnelPathsFilter": {"funnelPathType": "funnel_path_after_step",
                                 "funnelSource": {"series": [{"event": "a"}, {"event": "b"}]}}})
}

#[test]
fn fields_found_to_be_dropped_are_refused_with_the_nearest_known_one() {
    for (node, place, more, field, hint) in [
        (
            paths(),
            "/pathsFilter",
            json!({"stripQueryString": true}),
            "pathsFilter.stripQueryString",
            "Known are",
        ),
        (paths(), "/pathsFilter", json!({"nonsense": 1}), "pathsFilter.nonsense", "Known are"),
        (trends(), "", json!({"property": []}), "property", "\"properties\""),
        (trends(), "", json!({"propertys": []}), "propertys", "\"properties\""),
        (trends(), "", json!({"breakdown": "x"}), "breakdown", "\"breakdownFilter.breakdown\""),
        (trends(), "", json!({"date_from": "-3d"}), "date_from", "\"dateRange.date_from\""),
        (trends(), "", json!({"intervalCount": 2}), "intervalCount", "\"interval\""),
        (
            trends(),
            "",
            json!({"filter_test_accounts": true}),
            "filter_test_accounts",
            "\"filterTestAccounts\"",
        ),
    ] {
        assert_refused(&node, place, &more, field, hint);
    }
}

#[test]
fn unknown_fields_are_refused_wherever_there_are_objects() {
    for (node, place, more, field, hint) in [
        (trends(), "/series/0", json!({"evnet": "b"}), "series.0.evnet", "\"event\""),
        (
            trends(),
            "/series/0/properties/0",
            json!({"opreator": "is_not"}),
            "series.0.properties.0.opreator",
            "\"operator\"",
        ),
        (
            trends(),
            "/properties/values/0/values/0",
            json!({"vale": 1}),
            "properties.values.0.values.0.vale",
            "\"value\"",
        ),
        (
            trends(),
            "/properties/values/0",
            json!({"negate": true}),
            "properties.values.0.negate",
            "Known are",
        ),
        (trends(), "/dateRange", json!({"dateFrom": "-3d"}), "dateRange.dateFrom", "\"date_from\""),
        (
            trends(),
            "/breakdownFilter",
            json!({"breakdownType": "person"}),
            "breakdownFilter.breakdownType",
            "\"breakdown_type\"",
        ),
        (
            trends(),
            "/breakdownFilter/breakdowns/0",
            json!({"typ": "person"}),
            "breakdownFilter.breakdowns.0.typ",
            "\"type\"",
        ),
    ] {
        assert_refused(&node, place, &more, field, hint);
    }
}

#[test]
fn unknown_fields_are_refused_in_what_belongs_to_a_kind() {
    for (node, place, more, field, hint) in [
        (
            trends(),
            "/compareFilter",
            json!({"compareTo": "-1y"}),
            "compareFilter.compareTo",
            "\"compare_to\"",
        ),
        (
            trends(),
            "/trendsFilter",
            json!({"smoothing_intervals": 3}),
            "trendsFilter.smoothing_intervals",
            "\"smoothingIntervals\"",
        ),
        (
            trends(),
            "/trendsFilter/formulaNodes/0",
            json!({"name": "x"}),
            "trendsFilter.formulaNodes.0.name",
            "Known are",
        ),
        (
            paths(),
            "/pathsFilter/localPathCleaningFilters/0",
            json!({"regexp": "x"}),
            "pathsFilter.localPathCleaningFilters.0.regexp",
            "\"regex\"",
        ),
        // A node without a kind, where only one kind is possible.
        (
            paths(),
            "/funnelPathsFilter/funnelSource",
            json!({"funnelFilter": {}}),
            "funnelPathsFilter.funnelSource.funnelFilter",
            "\"funnelsFilter\"",
        ),
        (
            paths(),
            "/funnelPathsFilter/funnelSource/series/1",
            json!({"evt": 1}),
            "funnelPathsFilter.funnelSource.series.1.evt",
            "Known are",
        ),
    ] {
        assert_refused(&node, place, &more, field, hint);
    }
}

#[test]
fn all_kinds_of_nodes_are_looked_at() {
    for kind in [
        "TrendsQuery",
        "FunnelsQuery",
        "RetentionQuery",
        "PathsQuery",
        "StickinessQuery",
        "LifecycleQuery",
        "FunnelCorrelationQuery",
        "InsightActorsQuery",
        "StickinessActorsQuery",
        "FunnelsActorsQuery",
        "FunnelCorrelationActorsQuery",
        "EventsQuery",
        "ActorsQuery",
        "PersonsQuery",
        "PersonsNode",
        "GroupsQuery",
        "HogQLQuery",
        "InsightVizNode",
        "DataTableNode",
        "DataVisualizationNode",
    ] {
        let known = json!({"kind": kind, "version": 2, "response": {"results": []}, "tags": {"scene": "x"}});
        assert_eq!(refused(&known), None, "{kind}");
        let (field, _) = refused(&with(known.clone(), "", &json!({"zz": null}))).unwrap();
        assert_eq!(field, "zz", "{kind}");
        let around =
            json!({"kind": "InsightVizNode", "source": with(known, "", &json!({"zz": 1}))});
        assert_eq!(refused(&around).unwrap().0, "source.zz", "{kind}");
    }
}

#[test]
fn nodes_within_nodes_and_what_belongs_to_a_kind_are_looked_at() {
    let funnel = json!({"kind": "FunnelsQuery", "series": [{"event": "a"}]});
    for (node, field) in [
        (
            json!({"kind": "FunnelCorrelationQuery", "source": {"source": with(funnel.clone(), "", &json!({"x": 1}))}}),
            "source.source.x",
        ),
        (
            json!({"kind": "ActorsQuery", "source": {"kind": "FunnelsActorsQuery", "funnelStp": 1, "source": funnel}}),
            "source.funnelStp",
        ),
        (
            json!({"kind": "ActorsQuery", "source": {"kind": "HogQLQuery", "query": "SELECT 1", "filter": {}}}),
            "source.filter",
        ),
        (
            json!({"kind": "HogQLQuery", "query": "SELECT 1", "filters": {"date_from": "-7d"}}),
            "filters.date_from",
        ),
        (
            json!({"kind": "HogQLQuery", "query": "SELECT 1", "variables": {"1": {"code": "x"}}}),
            "variables.1.code",
        ),
        (
            json!({"kind": "EventsQuery", "select": ["*"], "actionSteps": [{"event": "a", "urll": "x"}]}),
            "actionSteps.0.urll",
        ),
        (
            json!({"kind": "RetentionQuery", "retentionFilter": {"targetEntity": {"id": "a", "ident": 1}}}),
            "retentionFilter.targetEntity.ident",
        ),
        (
            json!({"kind": "StickinessQuery", "stickinessFilter": {"stickinessCriteria": {"operator": "gte", "count": 1}}}),
            "stickinessFilter.stickinessCriteria.count",
        ),
        (
            json!({"kind": "FunnelsQuery", "funnelsFilter": {"exclusions": [{"event": "a", "funnelFrom": 0}]}}),
            "funnelsFilter.exclusions.0.funnelFrom",
        ),
    ] {
        assert_eq!(refused(&node).map(|(field, _)| field).as_deref(), Some(field), "{node}");
    }
    // These are refused by their readers.
    for node in [
        json!(null),
        json!([]),
        json!({"kind": "LogsQuery", "zz": 1}),
        json!({"zz": 1}),
        json!({"kind": "TrendsQuery", "series": [{"kind": "DataWarehouseNode", "table_name": "x"}]}),
        json!({"kind": "TrendsQuery", "series": "x", "dateRange": 1, "properties": 2, "breakdownFilter": []}),
    ] {
        assert_eq!(refused(&node), None, "{node}");
    }
}

#[test]
fn what_clients_send_without_a_meaning_is_taken() {
    for (place, more) in [
        (
            "",
            json!({"version": 2, "tags": {"productKey": "x"}, "response": {}, "dataColorTheme": 3}),
        ),
        (
            "",
            json!({"filterTestAccounts": false, "aggregation_group_type_index": null, "samplingFactor": null}),
        ),
        ("", json!({"conversionGoal": null, "calendarHeatmapFilter": {}, "modifiers": null})),
        (
            "",
            json!({"modifiers": {"materializationMode": "auto", "personsOnEventsMode": "person_id_override_properties_joined"}}),
        ),
        (
            "/trendsFilter",
            json!({"showLegend": true, "yAxisScaleType": "log10", "resultCustomizations": {"a": {"color": "x"}}}),
        ),
        (
            "/series/0",
            json!({"name": "a", "custom_name": null, "version": 2, "fixedProperties": [], "order": 0}),
        ),
        ("/series/0/properties/0", json!({"label": "K", "cohort_name": "c"})),
    ] {
        let node = with(trends(), place, &more);
        assert_eq!(refused(&node), None, "{more}");
    }
    for (place, more, field) in [
        (
            "",
            json!({"modifiers": {"personsOnEventsMode": "person_id_no_override_properties_on_events"}}),
            "modifiers.personsOnEventsMode",
        ),
        (
            "",
            json!({"modifiers": {"bounceRateDurationSeconds": 3}}),
            "modifiers.bounceRateDurationSeconds",
        ),
        ("", json!({"modifiers": {"zz": 3}}), "modifiers.zz"),
        (
            "",
            json!({"calendarHeatmapFilter": {"bucketBySessionStart": true}}),
            "calendarHeatmapFilter",
        ),
        (
            "/trendsFilter",
            json!({"breakdown_histogram_bin_count": 3}),
            "trendsFilter.breakdown_histogram_bin_count",
        ),
    ] {
        let node = with(trends(), place, &more);
        assert_eq!(refused(&node).map(|(field, _)| field).as_deref(), Some(field), "{more}");
    }
}

#[test]
fn filters_steps_and_frames_are_looked_at() {
    for (filters, field) in [
        (json!([{"key": "a", "value": 1}]), None),
        (json!([{"key": "a", "value": 1, "valeu": 2}]), Some("properties.0.valeu")),
        (
            json!({"type": "OR", "values": [[{"key": "a", "negated": true}]]}),
            Some("properties.values.0.0.negated"),
        ),
        (json!({"type": "cohort", "value": 1, "cohort": 2}), Some("properties.cohort")),
        // The oldest form has names of properties.
        (json!({"email": "a@b.c", "age__gt": 3}), None),
    ] {
        let found = check_filters(&filters, "properties").err().map(|error| error.field);
        assert_eq!(found.as_deref(), field, "{filters}");
    }
    let steps = json!([{"event": "a", "id": "1", "isNew": true}, {"event": "b", "tagname": "a"}]);
    assert_eq!(check_steps(&steps, "steps").unwrap_err().field, "steps.1.tagname");
    check_frame(&json!({"date_from": "-7d", "properties": []}), "filters").unwrap();
    let wrong = json!({"properties": [{"key": "a", "valu": 1}]});
    assert_eq!(check_frame(&wrong, "filters").unwrap_err().field, "filters.properties.0.valu");
    assert_eq!(
        check_frame(&json!({"datefrom": ""}), "filters").unwrap_err().field,
        "filters.datefrom"
    );
}

#[test]
fn filters_of_older_clients_are_looked_at() {
    let filter = |value: Value| match value {
        Value::Object(filter) => filter,
        _ => Map::new(),
    };
    for (sent, field) in [
        (
            json!({"insight": "TRENDS", "events": [{"id": "a", "type": "events", "order": 0, "math": "dau"}]}),
            None,
        ),
        (
            json!({"events": "[{\"id\": \"a\"}]", "properties": "[]", "layout": "horizontal", "data_warehouse": "[]"}),
            None,
        ),
        (json!({"date_form": "-7d"}), Some("date_form")),
        (json!({"breakdwon": "$browser"}), Some("breakdwon")),
        (json!({"events": [{"id": "a", "maths": "dau"}]}), Some("events.0.maths")),
        (json!({"events": "[{\"id\": \"a\", \"maths\": \"dau\"}]"}), Some("events.0.maths")),
        (json!({"properties": "[{\"key\": \"a\", \"oper\": \"gt\"}]"}), Some("properties.0.oper")),
        (
            json!({"exclusions": [{"id": "a", "funnel_from_step": 0, "funnel_till_step": 1}]}),
            Some("exclusions.0.funnel_till_step"),
        ),
        (json!({"data_warehouse": [{"id": "a"}]}), Some("data_warehouse")),
    ] {
        let found = older::check(&filter(sent.clone()), |text| serde_json::from_str(text).ok())
            .err()
            .map(|error| error.field);
        assert_eq!(found.as_deref(), field, "{sent}");
    }
}
