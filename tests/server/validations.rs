//! What PostHog's validation refuses, one rule after another, and what the server answers: the table of
//! `src/guide/compatibility.md`. Beside each refused request stands one that keeps to the rule.

use serde_json::{Value, json};

use crate::harness::TestServer;

const QUERY: &str = "/api/projects/@current/query/";

fn event(name: &str) -> Value {
    json!({"kind": "EventsNode", "event": name})
}

fn optional(name: &str) -> Value {
    json!({"kind": "EventsNode", "event": name, "optionalInFunnel": true})
}

fn query(kind: &str, fields: &Value) -> Value {
    let mut query = json!({
        "kind": kind, "series": [event("a")], "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-05"},
    });
    let (all, own) = (query.as_object_mut().expect("an object"), fields.as_object());
    all.extend(own.expect("an object").clone());
    query
}

fn funnel(steps: &[Value], options: &Value) -> Value {
    query("FunnelsQuery", &json!({"series": steps, "funnelsFilter": options}))
}

/// A funnel of three steps with an exclusion.
fn excluding(name: &str, from: usize, to: usize, order: &str) -> Value {
    let exclusion =
        json!({"kind": "EventsNode", "event": name, "funnelFromStep": from, "funnelToStep": to});
    let options = json!({"funnelOrderType": order, "exclusions": [exclusion]});
    funnel(&["a", "b", "c"].map(event), &options)
}

fn retention(options: &Value) -> Value {
    json!({"kind": "RetentionQuery", "retentionFilter": options,
           "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-05"}})
}

fn criteria(operator: &str, value: i64) -> Value {
    let criteria = json!({"operator": operator, "value": value});
    query("StickinessQuery", &json!({"stickinessFilter": {"stickinessCriteria": criteria}}))
}

fn correlation(fields: &Value) -> Value {
    let source =
        json!({"kind": "FunnelsActorsQuery", "source": funnel(&["a", "b"].map(event), &json!({}))});
    let mut query = fields.clone();
    query["kind"] = json!("FunnelCorrelationQuery");
    query["source"] = source;
    query
}

/// Each rule by PostHog's code, or in words where it has none; a request that it refuses, the field that the answer
/// names, and a request that it does not. Without a field the server answers both.
fn rules() -> Vec<(&'static str, Value, Option<&'static str>, Value)> {
    let warehouse =
        json!({"kind": "DataWarehouseNode", "id": "t", "table_name": "t", "timestamp_field": "at"});
    let three = ["a", "b", "c"].map(event);
    let steps = |options: Value| funnel(&three, &options);
    let plain = steps(json!({}));
    let trend = |fields: Value| query("TrendsQuery", &fields);
    let split = |keys: &[&str]| {
        let breakdowns: Value = keys.iter().map(|key| json!({"property": key})).collect();
        trend(json!({"breakdownFilter": {"breakdowns": breakdowns}}))
    };
    let of_kind = |kind: &str| query(kind, &json!({}));
    let skipped = |options: Value| funnel(&[event("a"), optional("b"), event("c")], &options);
    let unordered = json!({"funnelOrderType": "unordered", "breakdownAttributionType": "step",
                           "breakdownAttributionValue": 1});
    let mut rules = vec![
        (
            "trends: at most three breakdowns",
            split(&["a", "b", "c", "d"]),
            Some("breakdownFilter__breakdowns"),
            split(&["a", "b", "c"]),
        ),
        (
            "trends: formulas are of the series",
            trend(json!({"trendsFilter": {"formula": "A+B"}})),
            Some("trendsFilter__formula"),
            trend(json!({"trendsFilter": {"formula": "A+1"}})),
        ),
        (
            "trends: sums need a property",
            trend(json!({"series": [{"kind": "EventsNode", "event": "a", "math": "sum"}]})),
            Some("series__0__math_property"),
            trend(
                json!({"series": [{"kind": "EventsNode", "event": "a", "math": "sum", "math_property": "x"}]}),
            ),
        ),
        (
            "stickiness_criteria_negative",
            criteria("gte", -1),
            Some("stickinessFilter__stickinessCriteria__value"),
            criteria("gte", 0),
        ),
        (
            "stickiness_criteria_zero_incompatible",
            criteria("exact", 0),
            Some("stickinessFilter__stickinessCriteria__value"),
            criteria("exact", 1),
        ),
        (
            "stickiness_criteria_zero_incompatible",
            criteria("lte", 0),
            Some("stickinessFilter__stickinessCriteria__value"),
            criteria("lte", 1),
        ),
        (
            "stickiness_interval_count_non_positive",
            query("StickinessQuery", &json!({"intervalCount": 0})),
            Some("intervalCount"),
            query("StickinessQuery", &json!({"intervalCount": 1})),
        ),
        (
            "stickiness_interval_count_too_large",
            query("StickinessQuery", &json!({"intervalCount": 1001})),
            Some("intervalCount"),
            query("StickinessQuery", &json!({"intervalCount": 366})),
        ),
        (
            "lifecycle: one series",
            query("LifecycleQuery", &json!({"series": [event("a"), event("b")]})),
            Some("series"),
            of_kind("LifecycleQuery"),
        ),
        (
            "lifecycle_custom_aggregation_target_requires_data_warehouse_series",
            query("LifecycleQuery", &json!({"customAggregationTarget": true})),
            Some("customAggregationTarget"),
            query("LifecycleQuery", &json!({"customAggregationTarget": false})),
        ),
        (
            "funnels_require_at_least_two_steps",
            funnel(&[event("a")], &json!({})),
            None,
            plain.clone(),
        ),
        (
            "funnels_require_at_least_two_steps: trends and times",
            funnel(&[event("a")], &json!({"funnelVizType": "trends"})),
            Some("series"),
            steps(json!({"funnelVizType": "trends"})),
        ),
        (
            "funnel_step_range_invalid",
            steps(json!({"funnelFromStep": 2})),
            Some("funnelsFilter__funnelFromStep"),
            steps(json!({"funnelFromStep": 1})),
        ),
        (
            "funnel_step_range_invalid",
            steps(json!({"funnelToStep": 3})),
            Some("funnelsFilter__funnelToStep"),
            steps(json!({"funnelToStep": 1})),
        ),
        (
            "funnel_step_range_invalid",
            steps(json!({"funnelFromStep": 1, "funnelToStep": 1})),
            Some("funnelsFilter__funnelFromStep"),
            steps(json!({"funnelFromStep": 1, "funnelToStep": 2})),
        ),
        (
            "breakdown attribution of unordered funnels is of the first step",
            steps(unordered),
            Some("funnelsFilter__breakdownAttributionValue"),
            steps(json!({"funnelOrderType": "unordered", "breakdownAttributionType": "step"})),
        ),
        (
            "funnel_optional_steps_invalid: the first step",
            funnel(&[optional("a"), event("b")], &json!({})),
            Some("series__0__optionalInFunnel"),
            skipped(json!({})),
        ),
        (
            "funnel_optional_steps_invalid: unordered",
            skipped(json!({"funnelOrderType": "unordered"})),
            Some("series__1__optionalInFunnel"),
            skipped(json!({"funnelOrderType": "strict"})),
        ),
        (
            "funnel_optional_steps_invalid: the same as the next",
            funnel(&[event("a"), optional("b"), event("b")], &json!({})),
            Some("series__1__optionalInFunnel"),
            funnel(&[event("b"), optional("b"), optional("b")], &json!({})),
        ),
        (
            "retention_cumulative_24_hour_windows_unsupported",
            retention(&json!({"timeWindowMode": "24_hour_windows", "cumulative": true})),
            Some("retentionFilter__cumulative"),
            retention(&json!({"timeWindowMode": "24_hour_windows"})),
        ),
        (
            "data warehouse entities of a retention",
            retention(&json!({"targetEntity": {"id": "t", "type": "data_warehouse"}})),
            Some("retentionFilter__targetEntity__type"),
            retention(&json!({"targetEntity": {"id": "a", "type": "events"}})),
        ),
        (
            "correlation: names of events",
            correlation(&json!({"funnelCorrelationType": "event_with_properties"})),
            Some("funnelCorrelationEventNames"),
            correlation(&json!({"funnelCorrelationType": "events"})),
        ),
        (
            "correlation: names of properties",
            correlation(&json!({"funnelCorrelationType": "properties"})),
            Some("funnelCorrelationNames"),
            correlation(
                &json!({"funnelCorrelationType": "properties", "funnelCorrelationNames": ["$all"]}),
            ),
        ),
        (
            "actors of a funnel: a step",
            json!({"kind": "ActorsQuery", "source": {"kind": "FunnelsActorsQuery", "source": plain}}),
            Some("source__funnelStep"),
            json!({"kind": "ActorsQuery", "source": {"kind": "FunnelsActorsQuery", "source": plain, "funnelStep": 1}}),
        ),
    ];
    for kind in ["trends", "time_to_convert"] {
        rules.push((
            "funnel_optional_steps_invalid: shown as steps",
            skipped(json!({"funnelVizType": kind})),
            Some("series__1__optionalInFunnel"),
            steps(json!({"funnelVizType": kind})),
        ));
    }
    for kind in ["TrendsQuery", "StickinessQuery", "LifecycleQuery"] {
        let none = query(kind, &json!({"series": []}));
        rules.push(("insight_requires_at_least_one_series", none, Some("series"), of_kind(kind)));
    }
    for kind in ["TrendsQuery", "StickinessQuery", "LifecycleQuery", "FunnelsQuery"] {
        let of = query(kind, &json!({"series": [warehouse]}));
        rules.push((
            "data_warehouse_series_unsupported_settings",
            of,
            Some("series__0__kind"),
            of_kind(kind),
        ));
        let sampled = query(kind, &json!({"samplingFactor": 0.5}));
        rules.push(("sampling", sampled, Some("samplingFactor"), of_kind(kind)));
    }
    for (from, to, order, field, good) in [
        (0, 1, "unordered", "funnelFromStep", excluding("x", 0, 2, "unordered")),
        (1, 1, "ordered", "funnelFromStep", excluding("x", 1, 2, "ordered")),
        (2, 3, "ordered", "funnelToStep", excluding("x", 1, 2, "ordered")),
        (0, 3, "strict", "funnelToStep", excluding("x", 0, 2, "strict")),
    ] {
        let field = match field {
            "funnelFromStep" => "funnelsFilter__exclusions__0__funnelFromStep",
            _ => "funnelsFilter__exclusions__0__funnelToStep",
        };
        let bad = excluding("x", from, to, order);
        rules.push(("funnel_exclusions_invalid", bad, Some(field), good));
    }
    rules.push((
        "funnel_exclusions_invalid: an event of a step",
        excluding("b", 0, 1, "ordered"),
        Some("funnelsFilter__exclusions__0__event"),
        excluding("c", 0, 1, "ordered"),
    ));
    rules
}

#[test]
fn what_posthog_refuses_is_refused_by_its_field() {
    let server = TestServer::start();
    let ask = |query: &Value| server.post(QUERY, &json!({"query": query}));
    for (rule, bad, field, good) in rules() {
        let answer = ask(&good);
        assert_eq!(answer.status, 200, "{rule}: {answer} {good}");
        let answer = ask(&bad);
        let Some(field) = field else {
            assert_eq!(answer.status, 200, "{rule}: {answer} {bad}");
            continue;
        };
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["type"]),
            (400, &json!("validation_error")),
            "{rule}: {told}"
        );
        assert_eq!(told["attr"], format!("query__{field}"), "{rule}: {told}");
        assert!(told["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{rule}: {told}");
    }
}
