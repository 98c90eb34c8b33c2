//! Nothing that is sent is ignored in silence: unknown fields of nodes, filters and bodies are refused with the nearest known
//! one, what was read can be sent back whole, and answers warn of events that nobody sent.

use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer};

const QUERY: &str = "/api/projects/1/query/";

/// The field and the text of a refusal.
fn refusal(answer: &crate::harness::Answer) -> (String, String) {
    assert_eq!(answer.status, 400, "{answer}");
    let body = answer.json();
    assert_eq!(
        (&body["type"], &body["code"]),
        (&json!("validation_error"), &json!("invalid_input"))
    );
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (text("attr"), text("detail"))
}

#[test]
fn nodes_with_unknown_fields_are_not_answered() {
    let server = TestServer::start();
    let views = json!([
        {"event": "$pageview", "distinct_id": "a", "properties": {"$current_url": "https://x.example/x?id=0"}},
        {"event": "$pageview", "distinct_id": "b", "properties": {"$current_url": "https://x.example/x?id=1"}},
    ]);
    assert_eq!(server.capture(&views).status, 200);
    let series = json!([{"kind": "EventsNode", "event": "$pageview"}]);
    let trend = |more: Value| {
        let mut node = json!({"kind": "TrendsQuery", "series": series});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    for (node, field, hint) in [
        (
            json!({"kind": "PathsQuery", "pathsFilter": {"stripQueryString": true}}),
            "query__pathsFilter__stripQueryString",
            "stripQueryString",
        ),
        (
            json!({"kind": "PathsQuery", "pathsFilter": {"nonsense": 1}}),
            "query__pathsFilter__nonsense",
            "Known are",
        ),
        (
            trend(json!({"propertys": [{"key": "a", "value": 1}]})),
            "query__propertys",
            "\"properties\"",
        ),
        (
            trend(json!({"breakdown": "$browser"})),
            "query__breakdown",
            "\"breakdownFilter.breakdown\"",
        ),
        (trend(json!({"date_from": "-3d"})), "query__date_from", "\"dateRange.date_from\""),
        (trend(json!({"intervalCount": 3})), "query__intervalCount", "\"interval\""),
        (
            trend(
                json!({"modifiers": {"personsOnEventsMode": "person_id_no_override_properties_on_events"}}),
            ),
            "query__modifiers__personsOnEventsMode",
            "available",
        ),
        (
            trend(json!({"properties": [{"key": "a", "value": 1, "opperator": "is_not"}]})),
            "query__properties__0__opperator",
            "\"operator\"",
        ),
        (
            json!({"kind": "HogQLQuery", "query": "SELECT 1", "filter": {}}),
            "query__filter",
            "\"filters\"",
        ),
        (
            json!({"kind": "EventsQuery", "select": ["event"], "order_by": ["event"]}),
            "query__order_by",
            "\"orderBy\"",
        ),
        (
            json!({"kind": "ActorsQuery", "select": ["id"], "serach": "a"}),
            "query__serach",
            "\"search\"",
        ),
        (
            json!({"kind": "InsightVizNode", "showTabel": true, "source": trend(json!({}))}),
            "query__showTabel",
            "Known are",
        ),
        (
            json!({"kind": "InsightVizNode", "source": trend(json!({"intervall": "day"}))}),
            "query__source__intervall",
            "\"interval\"",
        ),
    ] {
        let (attr, detail) = refusal(&server.post(QUERY, &json!({"query": node})));
        assert_eq!(attr, field, "{node}: {detail}");
        assert!(detail.contains(hint), "{detail}");
    }
    // What clients send besides changes nothing.
    let plain = server.post(QUERY, &json!({"query": trend(json!({}))}));
    assert_eq!(plain.status, 200, "{plain}");
    let dressed = trend(json!({
        "version": 2, "tags": {"scene": "x"}, "response": {"results": []}, "dataColorTheme": 1, "conversionGoal": null,
        "modifiers": {"materializationMode": "auto"}, "filterTestAccounts": false,
        "aggregation_group_type_index": null, "trendsFilter": {"showLegend": true, "goalLines": []},
    }));
    let dressed = json!({"kind": "InsightVizNode", "full": true, "source": dressed});
    let answer =
        server.post(QUERY, &json!({"query": dressed, "name": "a query", "refresh": "blocking"}));
    assert_eq!(answer.json()["results"], plain.json()["results"], "{answer}");
    let body = json!({"query": trend(json!({})), "refrehs": "force_blocking"});
    let (attr, detail) = refusal(&server.post(QUERY, &body));
    assert_eq!((attr.as_str(), detail.contains("\"refresh\"")), ("refrehs", true), "{detail}");
    let body = json!({"query": trend(json!({})), "filters_override": {"date_form": "-1d"}});
    assert_eq!(refusal(&server.post(QUERY, &body)).0, "filters_override__date_form");
}

#[test]
fn older_filters_and_lists_are_looked_at() {
    let server = TestServer::start();
    for (path, body, field) in [
        ("insights/trend/", json!({"events": [{"id": "a"}], "breakdwon": "x"}), "breakdwon"),
        (
            "insights/funnel/",
            json!({"events": [{"id": "a"}, {"id": "b", "math_propery": "x"}]}),
            "events__1__math_propery",
        ),
        ("insights/path/", json!({"step_limits": 3}), "step_limits"),
        ("insights/retention/", json!({"total_interval": 3}), "total_interval"),
    ] {
        let answer = server.post(&format!("/api/projects/1/{path}"), &body);
        assert_eq!(refusal(&answer).0, field, "{path}");
    }
    for (path, field) in [
        ("insights/trend/?events=%5B%7B%22id%22%3A%22a%22%7D%5D&date_form=-3d", "date_form"),
        (
            "events/?properties=%5B%7B%22key%22%3A%22a%22%2C%22val%22%3A1%2C%22value%22%3A2%7D%5D",
            "properties",
        ),
        (
            "persons/?properties=%5B%7B%22key%22%3A%22a%22%2C%22val%22%3A1%2C%22value%22%3A2%7D%5D",
            "properties",
        ),
    ] {
        assert_eq!(refusal(&server.get(&format!("/api/projects/1/{path}"))).0, field, "{path}");
    }
}

#[test]
fn bodies_with_unknown_fields_change_nothing_and_what_was_read_can_be_sent_back() {
    let server = TestServer::start();
    let api = |path: &str| format!("/api/projects/1/{path}");
    for (path, body, field, hint) in [
        (
            "feature_flags/",
            json!({"key": "a", "rolout_percentage": 5}),
            "rolout_percentage",
            "Known are",
        ),
        ("feature_flags/", json!({"key": "a", "fitlers": {}}), "fitlers", "\"filters\""),
        ("cohorts/", json!({"name": "a", "filter": {}}), "filter", "\"filters\""),
        ("insights/", json!({"name": "a", "querry": {}}), "querry", "\"query\""),
        (
            "insights/",
            json!({"query": {"kind": "TrendsQuery", "series": [], "breakdown": "a"}}),
            "query__breakdown",
            "\"breakdownFilter.breakdown\"",
        ),
        (
            "dashboards/",
            json!({"name": "a", "filters": {"date_to_": "x"}}),
            "filters__date_to_",
            "\"date_to\"",
        ),
        (
            "actions/",
            json!({"name": "a", "steps": [{"event": "a", "selektor": "b"}]}),
            "steps__0__selektor",
            "\"selector\"",
        ),
        ("annotations/", json!({"contents": "a"}), "contents", "\"content\""),
        (
            "event_definitions/",
            json!({"name": "a", "desciption": "b"}),
            "desciption",
            "\"description\"",
        ),
        (
            "early_access_feature/",
            json!({"name": "a", "stage": "beta", "documentation": "b"}),
            "documentation",
            "\"documentation_url\"",
        ),
        (
            "persons/bulk_delete/",
            json!({"ids": [], "delete_event": true}),
            "delete_event",
            "\"delete_events\"",
        ),
        ("feature_flags/bulk_delete/", json!({"id": [1]}), "id", "\"ids\""),
    ] {
        let (attr, detail) = refusal(&server.post(&api(path), &body));
        assert_eq!(attr, field, "{path}: {detail}");
        assert!(detail.contains(hint), "{path}: {detail}");
    }
    let (attr, _) = refusal(&server.patch("/api/projects/1/", &json!({"time_zone": "UTC"})));
    assert_eq!(attr, "time_zone");
    for list in ["feature_flags", "cohorts", "insights", "dashboards", "actions", "annotations"] {
        assert_eq!(server.get(&api(&format!("{list}/"))).json()["count"], 0, "{list}");
    }
    // Everything that is answered may be sent back, with what other clients add.
    let node = json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "version": 2,
                      "series": [{"kind": "EventsNode", "event": "a"}]}});
    for (list, body) in [
        (
            "feature_flags",
            json!({"key": "a", "creation_context": "feature_flags", "_should_create_usage_dashboard": true}),
        ),
        ("cohorts", json!({"name": "a", "_create_in_folder": "x"})),
        ("insights", json!({"name": "a", "query": node, "_create_in_folder": "x"})),
        ("dashboards", json!({"name": "a", "use_template": ""})),
        ("actions", json!({"name": "a", "steps": [{"event": "a"}]})),
        ("annotations", json!({"content": "a"})),
        // Of an event that nobody sent yet.
        ("event_definitions", json!({"name": "a"})),
        ("early_access_feature", json!({"name": "early", "stage": "beta"})),
    ] {
        let made = server.post(&api(&format!("{list}/")), &body).created();
        let path = api(&format!("{list}/{}/", made["id"].to_string().trim_matches('"')));
        let read = server.get(&path).json();
        let again = server.patch(&path, &read);
        assert_eq!(again.status, 200, "{list}: {again}");
    }
    let project = server.get("/api/projects/1/").json();
    assert_eq!(server.patch("/api/projects/1/", &project).status, 200);
}

#[test]
fn answers_warn_of_events_that_nobody_sent() {
    let server = TestServer::start();
    let event = json!([{"event": "signed_up", "distinct_id": "a"}]);
    assert_eq!(server.capture(&event).status, 200);
    let trend = |event: &str| json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": event}]});
    let ask = |node: Value| {
        let answer = server.post(QUERY, &json!({"query": node}));
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    };
    assert_eq!(ask(trend("signed_up"))["warnings"], Value::Null);
    for node in [
        trend("singed_up"),
        json!({"kind": "EventsQuery", "select": ["event"], "event": "singed_up"}),
        json!({"kind": "HogQLQuery", "query": "SELECT count(*) FROM events WHERE event = 'singed_up'"}),
    ] {
        for _ in 0..2 {
            let answer = ask(node.clone());
            let warnings = &answer["warnings"];
            assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{node}: {answer}");
            assert_eq!(warnings[0]["code"], "unknown_event");
            assert_eq!(warnings[0]["name"], "singed_up");
            let detail = warnings[0]["detail"].as_str().expect("a text");
            assert!(detail.contains("Did you mean \"signed_up\"?"), "{detail}");
        }
    }
    let late = json!([{"event": "singed_up", "distinct_id": "a"}]);
    assert_eq!(server.capture(&late).status, 200);
    assert_eq!(ask(trend("singed_up"))["warnings"], Value::Null, "now there is one");
}

#[test]
fn capture_tells_why_events_were_dropped() {
    let server = TestServer::start();
    let send = |path: &str, body: &Value| server.send("POST", path, &[], body.to_string());
    let good = json!({"api_key": TOKEN, "event": "a", "distinct_id": "d"});
    assert_eq!(send("/e/", &good).json(), json!({"status": 1}));
    let nameless = json!({"api_key": TOKEN, "distinct_id": "d", "properties": {}});
    for path in ["/e/", "/capture/", "/i/v0/e/"] {
        let answer = send(path, &nameless);
        assert_eq!(answer.status, 200, "{answer}");
        let body = answer.json();
        assert_eq!(body["status"], 1);
        assert_eq!(body["warnings"].as_array().map(Vec::len), Some(1), "{body}");
        assert_eq!(
            (&body["warnings"][0]["reason"], &body["warnings"][0]["events"]),
            (&json!("missing_event"), &json!(1))
        );
        assert!(
            body["warnings"][0]["detail"].as_str().is_some_and(|text| text.contains("name")),
            "{body}"
        );
    }
    let batch = json!({"api_key": TOKEN, "batch": [
        {"event": "a", "distinct_id": "d"}, {"event": "a"}, {"event": "b", "properties": {}}, {"distinct_id": "d"},
    ]});
    let body = send("/batch/", &batch).json();
    let told: Vec<(&str, u64)> = body["warnings"]
        .as_array()
        .expect("warnings")
        .iter()
        .map(|own| (own["reason"].as_str().unwrap(), own["events"].as_u64().unwrap()))
        .collect();
    assert_eq!(told, [("missing_event", 1), ("missing_distinct_id", 2)], "{body}");
}
