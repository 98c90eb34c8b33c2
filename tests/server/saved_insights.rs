//! Results of saved insights, alone, in lists and on dashboards: the modes of `refresh`, what a dashboard changes about
//! its insights, and why a tile has no result. The expected numbers follow from the events by hand.

use serde_json::{Value, json};

use crate::harness::{TestServer, patiently};
use crate::owner::with;

const BASE: &str = "/api/projects/@current";

/// Three persons buy: on 5 January one of the free plan, on the 6th all of them.
fn shop(server: &TestServer) {
    let buy = |id: &str, day: u8, plan: &str| {
        json!({"event": "buy", "distinct_id": id, "timestamp": format!("2026-01-0{day}T10:00:00Z"),
               "properties": {"plan": plan}})
    };
    let batch =
        json!([buy("a", 5, "free"), buy("a", 6, "free"), buy("b", 6, "pro"), buy("c", 6, "pro")]);
    assert_eq!(server.capture(&batch).status, 200);
}

fn trend() -> Value {
    let range = json!({"date_from": "2026-01-05", "date_to": "2026-01-06"});
    let series = json!([{"kind": "EventsNode", "event": "buy", "math": "total"}]);
    json!({"kind": "InsightVizNode",
           "source": {"kind": "TrendsQuery", "series": series, "dateRange": range}})
}

fn made(server: &TestServer, path: &str, body: &Value) -> Value {
    server.post(&format!("{BASE}/{path}/"), body).created()
}

fn asked(server: &TestServer, path: &str) -> Value {
    let (path, question) = path.split_once('?').unwrap_or((path, ""));
    let answer = server.get(&with(&format!("{BASE}/{path}"), question));
    assert_eq!(answer.status, 200, "{path} {question}: {answer}");
    answer.json()
}

fn data(insight: &Value) -> Value {
    insight["result"][0]["data"].clone()
}

#[test]
fn results_are_kept_ones_or_new_ones_as_asked() {
    let server = TestServer::start();
    shop(&server);
    let insight = made(&server, "insights", &json!({"query": trend()}));
    assert_eq!((&insight["result"], &insight["is_cached"]), (&Value::Null, &json!(false)));
    let path = format!("insights/{}/", insight["id"]);
    let of = |refresh: &str| asked(&server, &format!("{path}?refresh={refresh}"));
    assert_eq!(asked(&server, &path)["result"], Value::Null, "nothing is computed unasked");
    let first = of("blocking");
    assert_eq!((data(&first), &first["is_cached"]), (json!([1, 3]), &json!(false)));
    assert_eq!(first["last_refresh"], first["next_allowed_client_refresh"]);
    for refresh in ["", "false", "force_cache", "blocking", "async"] {
        let again = of(refresh);
        assert_eq!((data(&again), &again["is_cached"]), (json!([1, 3]), &json!(true)));
        assert_eq!(again["last_refresh"], first["last_refresh"], "{refresh}");
    }
    for refresh in ["true", "force_blocking"] {
        assert_eq!(of(refresh)["is_cached"], false, "{refresh}");
    }
    // The list has the kept result, too, and basic facts have none.
    let list = asked(&server, "insights/");
    assert_eq!(data(&list["results"][0]), json!([1, 3]));
    let basic = asked(&server, "insights/?basic=true");
    assert_eq!(basic["results"][0].get("result"), None);
    // No result is out of date.
    shop(&server);
    assert_eq!(of("force_cache")["result"], Value::Null);
    let later = of("async");
    let status = &later["query_status"];
    assert_eq!((&later["result"], &status["query_async"]), (&Value::Null, &json!(true)), "{later}");
    let id = status["id"].as_str().expect("an id");
    let done = patiently(|| {
        let status = server.get(&format!("{BASE}/query/{id}/"));
        (status.status == 200).then(|| status.json())
    });
    let done = done.expect("an answer");
    assert_eq!(done["query_status"]["results"]["results"][0]["data"], json!([2, 6]));
    let kept = of("async");
    assert_eq!((data(&kept), &kept["query_status"]), (json!([2, 6]), &Value::Null));
    let wrong = server.get(&format!("{BASE}/{path}?refresh=soon"));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("refresh")));
}

#[test]
fn every_form_of_saved_insight_has_a_result() {
    let server = TestServer::start();
    shop(&server);
    let dates = json!({"date_from": "2026-01-05", "date_to": "2026-01-06"});
    let buy = json!([{"id": "buy", "type": "events", "order": 0}]);
    let with = |insight: &str| {
        let mut filters = dates.clone();
        let fields = filters.as_object_mut().expect("an object");
        fields.extend([("insight".into(), json!(insight)), ("events".into(), buy.clone())]);
        filters
    };
    let result = |body: Value| {
        let insight = made(&server, "insights", &body);
        asked(&server, &format!("insights/{}/?refresh=blocking", insight["id"]))
    };
    let trend = result(json!({"filters": with("TRENDS")}));
    assert_eq!(data(&trend), json!([1, 3]));
    let funnel = result(json!({"filters": with("FUNNELS")}));
    assert_eq!(funnel["result"][0]["count"], 3);
    let stickiness = result(json!({"filters": with("STICKINESS")}));
    assert_eq!(data(&stickiness), json!([2, 1]));
    for kind in ["LIFECYCLE", "RETENTION", "PATHS"] {
        let told = result(json!({"filters": with(kind)}));
        assert!(told["result"].is_array(), "{kind}: {told}");
    }
    let sql = json!({"kind": "DataVisualizationNode", "source": {"kind": "HogQLQuery",
        "query": "SELECT event, count(*) AS n FROM events WHERE properties.plan = {variables.plan} GROUP BY event",
        "variables": {"v1": {"code_name": "plan", "variableId": "v1", "value": "pro"}}}});
    let told = result(json!({"query": sql}));
    assert_eq!(told["result"], json!([["buy", 2]]), "{told}");
    assert_eq!((&told["columns"], &told["hasMore"]), (&json!(["event", "n"]), &json!(false)));
    assert_eq!(told["types"][0][0], "event");
    let id = &told["id"];
    let free = r#"{"v1": {"value": "free"}}"#;
    let told =
        asked(&server, &format!("insights/{id}/?refresh=blocking&variables_override={free}"));
    assert_eq!(told["result"], json!([["buy", 2]]), "a is free twice");
    let kept = asked(&server, &format!("insights/{id}/"));
    assert_eq!((&kept["result"], &kept["is_cached"]), (&json!([["buy", 2]]), &json!(true)));
    // What has no query has no result, and what cannot be computed says so when it is asked.
    assert_eq!(result(json!({"name": "empty"}))["result"], Value::Null);
    for (body, attr) in [
        (json!({"query": {"kind": "WebOverviewQuery"}}), "query"),
        (json!({"query": {"kind": "TrendsQuery", "series": 1}}), "query__series"),
        (json!({"filters": {"events": 1}}), "filters__events"),
    ] {
        let insight = made(&server, "insights", &body);
        let path = format!("insights/{}/", insight["id"]);
        assert_eq!(asked(&server, &path)["result"], Value::Null, "{body}");
        let answer = server.get(&format!("{BASE}/{path}?refresh=blocking"));
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)), "{body}");
    }
}

#[test]
fn filters_of_a_dashboard_hold_for_sql_that_asks_for_them() {
    let server = TestServer::start();
    shop(&server);
    let pro = json!([{"key": "plan", "value": "pro", "type": "event"}]);
    let board = made(&server, "dashboards", &json!({"name": "b", "filters": {"properties": pro}}));
    let sql = json!({"kind": "HogQLQuery", "query": "SELECT count() FROM events WHERE {filters}"});
    let query = json!({"kind": "DataVisualizationNode", "source": sql});
    let insight = made(&server, "insights", &json!({"query": query, "dashboards": [board["id"]]}));
    let alone = asked(&server, &format!("insights/{}/?refresh=blocking", insight["id"]));
    let all = alone["result"][0][0].as_i64().expect("a count");
    let shown = asked(&server, &format!("dashboards/{}/?refresh=blocking", board["id"]));
    let of_pro = shown["tiles"][0]["insight"]["result"][0][0].as_i64().expect("a count");
    assert!(0 < of_pro && of_pro < all, "{of_pro} of {all}");
}

#[test]
fn dashboards_show_results_by_their_own_filters() {
    let server = TestServer::start();
    shop(&server);
    let pro = json!([{"key": "plan", "value": "pro", "type": "event"}]);
    let board = made(&server, "dashboards", &json!({"name": "b", "filters": {"properties": pro}}));
    let id = &board["id"];
    let trend = made(&server, "insights", &json!({"query": trend(), "dashboards": [id]}));
    let bad = json!({"kind": "TrendsQuery", "series": 1});
    let bad = made(&server, "insights", &json!({"query": bad, "dashboards": [id]}));
    let shown = |question: &str| asked(&server, &format!("dashboards/{id}/{question}"));
    let tile = |board: &Value, insight: &Value| {
        let tiles = board["tiles"].as_array().expect("tiles");
        let found = tiles.iter().find(|tile| tile["insight"]["id"] == insight["id"]);
        found.expect("a tile").clone()
    };
    let before = shown("");
    let told = tile(&before, &trend);
    assert_eq!((&told["insight"]["result"], &told["error"]), (&Value::Null, &Value::Null));
    assert_eq!(before["last_refresh"], Value::Null);
    let after = shown("?refresh=blocking");
    let told = tile(&after, &trend);
    assert_eq!(data(&told["insight"]), json!([0, 2]));
    assert_eq!(
        (&told["last_refresh"], &told["is_cached"]),
        (&after["last_refresh"], &json!(false))
    );
    assert_eq!(told["insight"]["query"], trend["query"], "it is saved as it was");
    assert_eq!(tile(&after, &bad)["error"]["type"], "invalid_input");
    let over = shown(
        r#"?refresh=blocking&filters_override={"date_from":"2026-01-06","date_to":"2026-01-06"}"#,
    );
    assert_eq!(data(&tile(&over, &trend)["insight"]), json!([2]));
    assert_eq!(over["filters"]["date_from"], "2026-01-06");
    assert_eq!(over["persisted_filters"], json!({"properties": pro}));
    let ran = shown("run_insights/?refresh=blocking");
    let results = ran["results"].as_array().expect("results");
    let told: Vec<_> = results.iter().map(|one| data(&one["insight"])).collect();
    assert_eq!(told, [Value::Null, json!([0, 2])]);
    let path = format!("{BASE}/dashboards/{id}/run_insights/");
    for (question, attr) in [("refresh=async", "refresh"), ("output_format=text", "output_format")]
    {
        let answer = server.get(&format!("{path}?{question}"));
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)), "{question}");
    }
    // The insight by itself, and as the dashboard shows it.
    let path = format!("insights/{}/?refresh=blocking", trend["id"]);
    assert_eq!(data(&asked(&server, &path)), json!([1, 3]));
    assert_eq!(data(&asked(&server, &format!("{path}&from_dashboard={id}"))), json!([0, 2]));
    let wrong = server.get(&format!("{BASE}/{path}&from_dashboard=99"));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("from_dashboard")));
}

#[test]
fn one_request_computes_so_many_insights_and_no_more() {
    let server = TestServer::start();
    shop(&server);
    let board = made(&server, "dashboards", &json!({"name": "b"}))["id"].clone();
    for at in 0..102 {
        let series = json!([{"kind": "EventsNode", "event": format!("e{at}")}]);
        let query = json!({"kind": "TrendsQuery", "series": series});
        made(&server, "insights", &json!({"query": query, "dashboards": [board]}));
    }
    let results = || {
        let told = asked(&server, &format!("dashboards/{board}/?refresh=blocking"));
        let tiles = told["tiles"].as_array().expect("tiles").clone();
        let is_there = |tile: &&Value| tile["insight"]["result"].is_array();
        let errors = tiles.iter().filter(|tile| tile["error"]["type"] == "too_many");
        (tiles.iter().filter(is_there).count(), errors.count())
    };
    assert_eq!(results(), (100, 2));
}
