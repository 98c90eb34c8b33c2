//! How insights and lists are asked and answered besides their numbers: what overrides them, how they are cancelled, as
//! files, in pages, and by their other names.

use std::thread;

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, patiently};

const QUERY: &str = "/api/projects/@current/query/";
const INSIGHTS: &str = "/api/projects/@current/insights/";

/// The label of all other values of a breakdown.
const OTHER: &str = "Other (i.e. all remaining values)";

fn event(id: &str, name: &str, at: &str, properties: Value) -> Value {
    json!({"event": name, "distinct_id": id, "timestamp": at, "properties": properties})
}

fn start() -> TestServer {
    let server = TestServer::start();
    let mut events =
        vec![event("a", "buy", "2026-01-05T09:00:00Z", json!({"plan": "=pro", "city": "Rome"}))];
    // Browser c0 has 1 event, c1 2, and so on.
    for browser in 0..5 {
        for number in 0..=browser {
            let properties = json!({"$browser": format!("c{browser}"), "city": "Oslo"});
            events.push(event(&format!("p{number}"), "view", "2026-01-06T10:00:00Z", properties));
        }
    }
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

#[test]
fn requests_override_filters_and_variables() {
    let server = start();
    let trend = json!({"kind": "TrendsQuery", "series": [{"event": null}], "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"}});
    let ask = |node: &Value, more: Value| {
        let mut body = json!({"query": node});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post(QUERY, &body)
    };
    let rome = json!({"properties": [{"key": "city", "value": "Rome", "type": "event"}]});
    for node in [trend.clone(), json!({"kind": "InsightVizNode", "source": trend})] {
        for (overrides, expected) in [
            (json!({}), json!([1, 15])),
            (json!({"filters_override": null, "variables_override": {}}), json!([1, 15])),
            (json!({"filters_override": rome}), json!([1, 0])),
            (
                json!({"filters_override": {"date_from": "2026-01-06", "date_to": "2026-01-06"}}),
                json!([15]),
            ),
        ] {
            let told = ask(&node, overrides.clone()).json();
            assert_eq!(told["results"][0]["data"], expected, "{overrides}");
        }
    }
    let sql = json!({"kind": "HogQLQuery", "query": "SELECT count() FROM events WHERE {filters} AND properties.city = {variables.city}",
                     "variables": {"v1": {"code_name": "city", "value": "Oslo"}}});
    for (overrides, expected) in [
        (json!({}), 15),
        (json!({"variables_override": {"v1": {"value": "Rome"}}}), 1),
        (json!({"filters_override": {"date_to": "2026-01-05"}}), 0),
    ] {
        assert_eq!(
            ask(&sql, overrides.clone()).json()["results"],
            json!([[expected]]),
            "{overrides}"
        );
    }
    for (query, overrides, attr) in [
        (trend.clone(), json!({"filters_override": []}), "filters_override"),
        (trend.clone(), json!({"variables_override": 1}), "variables_override"),
        (trend, json!({"filters_override": {"date_from": 1}}), "filters__date_from"),
        (json!("SELECT 1"), json!({"filters_override": rome}), "query"),
    ] {
        let told = ask(&query, overrides.clone());
        assert_eq!((told.status, &told.json()["attr"]), (400, &json!(attr)), "{overrides}: {told}");
    }
}

/// Goal: a query that somebody waits for ends when it is cancelled, by either endpoint.
#[test]
fn what_is_waited_for_can_be_cancelled() {
    let server = start();
    let long =
        "SELECT sum(a.value * b.value) FROM range(1, 10000000) a CROSS JOIN range(1, 10000000) b";
    for (id, is_by_insights) in [("one", false), ("two", true)] {
        let body = json!({"query": {"kind": "HogQLQuery", "query": long}, "client_query_id": id});
        let path = format!("{QUERY}{id}/");
        let answer = thread::scope(|scope| {
            let asking = scope.spawn(|| server.post(QUERY, &body));
            let status =
                patiently(|| Some(server.get(&path)).filter(|status| status.status == 202));
            let status = status.expect("it runs");
            assert_eq!(status.json()["query_status"]["query_async"], json!(false), "{status}");
            match is_by_insights {
                true => {
                    let cancel = format!("{INSIGHTS}cancel/");
                    let cancelled = server.post(&cancel, &json!({"client_query_id": id}));
                    assert_eq!(cancelled.status, 201, "{cancelled}");
                }
                false => assert_eq!(server.delete(&path).status, 200),
            }
            asking.join().expect("it was answered")
        });
        let told = answer.json();
        assert_eq!((answer.status, &told["code"]), (400, &json!("query_cancelled")), "{told}");
        // It is forgotten with its request.
        let forgotten = patiently(|| (server.get(&path).status == 404).then_some(()));
        assert!(forgotten.is_some());
    }
    let missing = server.post(&format!("{INSIGHTS}cancel/"), &json!({}));
    assert_eq!(
        (missing.status, &missing.json()["attr"]),
        (400, &json!("client_query_id")),
        "{missing}"
    );
    let quick =
        json!({"query": {"kind": "HogQLQuery", "query": "SELECT 1"}, "client_query_id": "one"});
    assert_eq!(server.post(QUERY, &quick).json()["results"], json!([[1]]));
    assert_eq!(server.get(&format!("{QUERY}one/")).status, 404);
}

#[test]
fn files_have_a_line_for_each_series_and_each_person() {
    let server = start();
    let dates = "date_from=2026-01-05&date_to=2026-01-06";
    let two = "events=%5B%7B%22id%22%3A%22buy%22%7D%2C%7B%22id%22%3A%22view%22%7D%5D";
    let csv = server.get(&format!("{INSIGHTS}trend.csv?{two}&{dates}"));
    assert_eq!(text(&csv), "series,5-Jan-2026,6-Jan-2026\r\nbuy,1,0\r\nview,0,15\r\n");
    let csv = server.get(&format!("{INSIGHTS}trend/?{two}&{dates}&display=BoldNumber&format=csv"));
    assert_eq!(text(&csv), "series,value\r\nbuy,1\r\nview,15\r\n");
    let split = "events=%5B%7B%22id%22%3A%22buy%22%7D%5D&breakdown=plan&breakdown_type=event";
    let csv = server.get(&format!("{INSIGHTS}trend/?{split}&{dates}&format=csv"));
    assert_eq!(text(&csv), "series,5-Jan-2026,6-Jan-2026\r\n'=pro,1,0\r\n");
    let csv = server
        .get(&format!("{INSIGHTS}lifecycle.csv?{dates}&events=%5B%7B%22id%22%3A%22view%22%7D%5D"));
    assert_eq!(text(&csv).lines().count(), 5, "{csv}");
    for (list, persons) in [
        (format!("trends/?entity_id=view&entity_type=events&{dates}"), 5),
        (
            format!(
                "lifecycle/?entity_id=view&entity_type=events&{dates}&target_date=2026-01-06&lifecycle_type=new"
            ),
            5,
        ),
        (format!("stickiness/?entity_id=view&entity_type=events&{dates}&stickiness_days=1"), 5),
        (format!("funnel/?{two}&{dates}&funnel_step=1"), 1),
    ] {
        let csv = server.get(&format!("/api/projects/@current/persons/{list}&format=csv"));
        let lines = text(&csv);
        assert_eq!(lines.lines().count(), persons + 1, "{list}: {lines}");
        assert!(
            lines.lines().next().is_some_and(|head| head.split(',').any(|name| name == "uuid")),
            "{lines}"
        );
    }
    // What is no whole number is refused, wherever it stands.
    for (list, body) in [
        (format!("stickiness/?entity_id=view&entity_type=events&{dates}&limit=x"), None),
        (format!("funnel/?{two}&{dates}&funnel_step=1&offset=-1"), None),
        (format!("funnel/?{two}&{dates}&funnel_step=1"), Some(json!({"limit": 1.5}))),
    ] {
        let path = format!("/api/projects/@current/persons/{list}");
        let refused = match &body {
            None => server.get(&path),
            Some(body) => server.post(&path, body),
        };
        let attr = if list.contains("offset") { "offset" } else { "limit" };
        assert_eq!((refused.status, &refused.json()["attr"]), (400, &json!(attr)), "{path}");
    }
    let node = json!({"kind": "HogQLQuery", "query": "SELECT event, count() AS n FROM events WHERE {filters} GROUP BY event ORDER BY n",
                      "filters": {"properties": [{"key": "city", "value": ["Rome", "Oslo"], "type": "event"}]}});
    let csv = server.post(QUERY, &json!({"query": node, "format": "csv"}));
    assert_eq!(
        (csv.header("content-type"), text(&csv).as_str()),
        (Some("text/csv; charset=utf-8"), "event,n\nbuy,1\nview,15\n")
    );
    let trend = json!({"kind": "TrendsQuery", "series": [{"event": null}]});
    let refused = server.post(QUERY, &json!({"query": trend, "format": "csv"}));
    assert_eq!((refused.status, &refused.json()["attr"]), (400, &json!("format")), "{refused}");
}

/// Two hours of the day have one label.
#[test]
fn files_have_a_column_for_each_hour_when_clocks_go_back() {
    let server = TestServer::start();
    let set = server.patch("/api/projects/@current/", &json!({"timezone": "Europe/Berlin"}));
    assert_eq!(set.status, 200, "{set}");
    let at = |time: &str| event("x", "view", time, json!({}));
    let sent = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T01:40:00Z"].map(at);
    assert_eq!(server.capture(&json!(sent)).status, 200);
    let filter = "events=%5B%7B%22id%22%3A%22view%22%7D%5D&interval=hour&date_from=2026-10-25&date_to=2026-10-25";
    let csv = text(&server.get(&format!("{INSIGHTS}trend.csv?{filter}")));
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 2, "{csv}");
    let repeated: Vec<&str> = lines[0]
        .iter()
        .zip(&lines[1])
        .filter(|(_, cell)| **cell != "0")
        .map(|(_, cell)| *cell)
        .collect();
    assert_eq!((lines[0].len(), repeated.as_slice()), (26, ["view", "1", "2"].as_slice()), "{csv}");
    assert_eq!(lines[0][3], lines[0][4], "{csv}");
}

#[test]
fn values_of_a_breakdown_come_in_pages() {
    let server = start();
    let filter = "events=%5B%7B%22id%22%3A%22view%22%7D%5D&date_from=2026-01-06&date_to=2026-01-06&breakdown=$browser&breakdown_type=event&breakdown_limit=2";
    let mut next = format!("{INSIGHTS}trend/?{filter}");
    let mut pages = Vec::new();
    while !next.is_empty() {
        let page = server.get(&next);
        assert_eq!(page.status, 200, "{page}");
        let page = page.json();
        let series = page["result"].as_array().unwrap().iter();
        pages.push(series.map(|own| json!([own["label"], own["count"]])).collect::<Vec<_>>());
        let others = page["result"].as_array().unwrap().iter().find(|own| own["label"] == OTHER);
        if let Some(others) = others {
            let url = others["persons_urls"][0]["url"].as_str().unwrap();
            let people = server.get(&format!("/{url}")).json()["results"][0]["people"].clone();
            let sum: f64 = people
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["value_at_data_point"].as_f64().unwrap())
                .sum();
            assert_eq!(json!(sum), json!(others["count"].as_f64()), "{url}");
        }
        next = page["next"].as_str().map(|url| url.replace(&server.url(), "")).unwrap_or_default();
        assert!(pages.len() < 9, "it ends");
    }
    let expected = json!([
        [["c4", 5], ["c3", 4], [OTHER, 6]],
        [["c2", 3], ["c1", 2], [OTHER, 1]],
        [["c0", 1]]
    ]);
    assert_eq!(json!(pages), expected);
    // The same with a body.
    let body = json!({"events": [{"id": "view"}], "date_from": "2026-01-06", "date_to": "2026-01-06", "breakdown": "$browser",
                      "breakdown_type": "event", "breakdown_limit": 2, "offset": 4});
    let page = server.post(&format!("{INSIGHTS}trend/"), &body).json();
    assert_eq!(
        (&page["result"][0]["label"], &page["next"]),
        (&json!("c0"), &Value::Null),
        "{page}"
    );
}

#[test]
fn kinds_of_series_have_other_names() {
    let server = start();
    let filter = "events=%5B%7B%22id%22%3A%22view%22%7D%5D&date_from=2026-01-05&date_to=2026-01-06";
    for (name, insight) in [("lifecycle", "LIFECYCLE"), ("stickiness", "STICKINESS")] {
        let own = server.get(&format!("{INSIGHTS}{name}/?{filter}")).json();
        let usual = server.get(&format!("{INSIGHTS}trend/?{filter}&insight={insight}")).json();
        assert_eq!(
            (&own["result"], own["result"].as_array().map(Vec::is_empty)),
            (&usual["result"], Some(false)),
            "{name}"
        );
        let body =
            json!({"events": [{"id": "view"}], "date_from": "2026-01-05", "date_to": "2026-01-06"});
        let sent = server.post(&format!("{INSIGHTS}{name}/"), &body).json();
        let data = |told: &Value| {
            told["result"]
                .as_array()
                .unwrap()
                .iter()
                .map(|own| own["data"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(data(&sent), data(&own), "{name}");
    }
}

#[test]
fn series_of_actions_are_called_as_these_are_now() {
    let server = start();
    let actions = "/api/projects/@current/actions/";
    let action =
        server.post(actions, &json!({"name": "Looked", "steps": [{"event": "view"}]})).created();
    let series = json!([{"kind": "ActionsNode", "id": action["id"]}]);
    let dates = json!({"date_from": "2026-01-05", "date_to": "2026-01-06"});
    let told = |kind: &str| {
        let node = json!({"kind": kind, "series": series, "dateRange": dates});
        server.post(QUERY, &json!({"query": node})).json()["results"].clone()
    };
    for (kind, place, expected) in [
        ("TrendsQuery", "label", "Looked"),
        ("StickinessQuery", "label", "Looked"),
        ("LifecycleQuery", "label", "Looked - new"),
        ("FunnelsQuery", "name", "Looked"),
    ] {
        assert_eq!(told(kind)[0][place], json!(expected), "{kind}");
    }
    assert_eq!(told("TrendsQuery")[0]["action"]["name"], "Looked");
    let path = format!("{actions}{}/", action["id"]);
    assert_eq!(server.patch(&path, &json!({"name": "Seen"})).status, 200);
    assert_eq!(told("TrendsQuery")[0]["label"], "Seen");
}

#[test]
fn groups_and_elements_are_listed() {
    let server = TestServer::start();
    let chain = "a.btn:attr_id=\"go\"nth-child=\"2\"nth-of-type=\"1\"text=\"Go\";div";
    let group = |key: &str, set: Value| {
        event(
            "x",
            "$groupidentify",
            "2026-01-05T00:00:00Z",
            json!({"$group_type": "company", "$group_key": key, "$group_set": set}),
        )
    };
    let sent = json!([
        group("c1", json!({"name": "Acme", "size": 3})),
        group("c2", json!({"size": 9})),
        group("c3", json!({"name": "Zeta", "size": 1})),
        event("x", "$autocapture", "2026-01-05T00:00:01Z", json!({"$elements_chain": chain})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let ask = |node: &Value| server.post(QUERY, &json!({"query": node}));
    let with = |more: Value| {
        let mut node = json!({"kind": "GroupsQuery", "group_type_index": 0});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    for (more, expected) in [
        (json!({"select": ["key"], "orderBy": ["key"]}), json!([["c1"], ["c2"], ["c3"]])),
        (
            json!({"select": ["group_name", "properties.size"], "orderBy": ["group_name DESC"]}),
            json!([[{"display_name": "c2", "key": "c2"}, "9"], [{"display_name": "Zeta", "key": "c3"}, "1"], [{"display_name": "Acme", "key": "c1"}, "3"]]),
        ),
        (json!({"search": "ACM"}), json!([[{"display_name": "Acme", "key": "c1"}]])),
        (
            json!({"select": ["key"], "properties": [{"key": "size", "value": 2, "operator": "gt", "type": "group", "group_type_index": 0}], "orderBy": ["key DESC"]}),
            json!([["c2"], ["c1"]]),
        ),
        (json!({"select": ["count()"]}), json!([[3]])),
        (json!({"select": ["key"], "orderBy": ["key"], "limit": 1, "offset": 1}), json!([["c2"]])),
    ] {
        let told = ask(&with(more.clone()));
        assert_eq!(told.json()["results"], expected, "{more}: {told}");
    }
    assert_eq!(ask(&with(json!({"select": ["key"], "limit": 2}))).json()["hasMore"], json!(true));
    for (node, attr) in [
        (json!({"kind": "GroupsQuery"}), "query__group_type_index"),
        (json!({"kind": "GroupsQuery", "group_type_index": 9}), "query__group_type_index"),
        (
            with(json!({"properties": [{"key": "a", "value": 1, "type": "person"}]})),
            "query__properties",
        ),
    ] {
        let told = ask(&node);
        assert_eq!((told.status, &told.json()["attr"]), (400, &json!(attr)), "{told}");
    }
    let events = json!({"kind": "EventsQuery", "select": ["*", "elements"], "after": "2026-01-01", "event": "$autocapture"});
    let row = ask(&events).json()["results"][0].clone();
    assert_eq!(row[0]["elements"], row[1]);
    assert_eq!((&row[1][0]["tag_name"], &row[1][0]["attr_class"]), (&json!("a"), &json!(["btn"])));
    assert_eq!(
        (&row[1][0]["text"], &row[1][0]["nth_child"], &row[1][1]["order"]),
        (&json!("Go"), &json!(2), &json!(1))
    );
}

#[test]
fn answers_say_their_columns_and_how_long_they_took() {
    let server = start();
    let ask =
        |sql: &str| server.post(QUERY, &json!({"query": {"kind": "HogQLQuery", "query": sql}}));
    for (sql, expected) in [
        ("select 1", json!(["1"])),
        (
            "SELECT 1 + 1, 'a', count(), max(distinct_id) FROM events",
            json!(["1 + 1", "'a'", "count()", "max(distinct_id)"]),
        ),
        (
            "SELECT event, upper(event) FROM events GROUP BY event, upper(event) ORDER BY upper(event) LIMIT 1",
            json!(["event", "upper(event)"]),
        ),
        ("SELECT a.n + 1 FROM (SELECT 1 AS n) a ORDER BY a.n + 1", json!(["a.n + 1"])),
    ] {
        let told = ask(sql);
        assert_eq!(told.json()["columns"], expected, "{sql}: {told}");
    }
    let timings = ask("SELECT count() FROM events").json()["timings"].clone();
    let names: Vec<&Value> = timings.as_array().unwrap().iter().map(|phase| &phase["k"]).collect();
    assert_eq!(json!(names), json!(["./plan", "./execute"]));
    assert!(
        timings
            .as_array()
            .unwrap()
            .iter()
            .all(|phase| phase["t"].as_f64().is_some_and(|t| t > 0.0)),
        "{timings}"
    );
    let trend = json!({"kind": "TrendsQuery", "series": [{"event": null}]});
    let timings = server.post(QUERY, &json!({"query": trend})).json()["timings"].clone();
    assert!(timings[0]["t"].as_f64().is_some_and(|t| t > 0.0), "{timings}");
    // Documents are deleted by a field, and the refusal says so.
    for kind in ["insights", "dashboards", "actions", "annotations"] {
        let refused = server.delete(&format!("/api/projects/@current/{kind}/1/"));
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (405, &json!("method_not_allowed")),
            "{kind}: {refused}"
        );
        let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains("Change the field deleted to true"), "{kind}: {detail}");
    }
}
