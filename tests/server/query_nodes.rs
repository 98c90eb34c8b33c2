//! Queries as objects, as PostHog's clients send them: responses, pages, and the kinds that are refused.
//! Names and formats are those of PostHog's API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};

const QUERY: &str = "/api/projects/@current/query/";

fn start(events: usize, settings: &[(&str, &str)]) -> TestServer {
    let server = TestServer::start_with(settings);
    let event = |number| json!({"event": "x", "distinct_id": format!("u{number:02}"), "timestamp": "2026-01-01T00:00:00Z", "properties": {"revenue": number}});
    assert_eq!(server.capture(&(0..events).map(event).collect()).status, 200);
    server
}

fn ask(server: &TestServer, sql: &str) -> Answer {
    server.post(QUERY, &json!({"query": {"kind": "HogQLQuery", "query": sql}, "name": "x"}))
}

#[test]
fn a_node_is_answered_with_columns_types_and_rows() {
    let server = start(3, &[]);
    let sql = "SELECT event, p_revenue AS revenue, timestamp, count(*) OVER () AS n FROM events \
               ORDER BY revenue DESC NULLS LAST LIMIT 2";
    let expected = json!({
        "columns": ["event", "revenue", "timestamp", "n"],
        "types": [
            ["event", "String"],
            ["revenue", "Nullable(Float64)"],
            ["timestamp", "DateTime64(6, 'UTC')"],
            ["n", "Int64"],
        ],
        "results": [
            ["x", 2.0, "2026-01-01T00:00:00Z", 3],
            ["x", 1.0, "2026-01-01T00:00:00Z", 3],
        ],
        "hasMore": true,
        "query": sql,
        "limit": 2,
        "offset": 0,
        "error": null,
    });
    let node = json!({"kind": "HogQLQuery", "query": sql});
    for query in [
        node.clone(),
        json!({"kind": "DataVisualizationNode", "source": node, "display": "ActionsTable"}),
    ] {
        let answer = server.post(QUERY, &json!({"query": query, "refresh": "blocking"}));
        assert_eq!(answer.status, 200, "{answer}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let told = answer.json();
        for (name, expected) in expected.as_object().expect("an object") {
            assert_eq!(&told[name], expected, "{name}");
        }
        for name in ["last_refresh", "next_allowed_client_refresh", "cache_key"] {
            assert!(told[name].is_string(), "{name}: {told}");
        }
        assert_eq!((&told["timezone"], &told["query_status"]), (&json!("UTC"), &Value::Null));
    }
    // SQL as a text is answered as before.
    let plain = server.post(QUERY, &json!({"query": "SELECT count(*) AS n FROM events"}));
    assert_eq!(plain.header("content-type"), Some("application/x-ndjson"), "{plain}");
    assert_eq!(plain.json(), json!({"n": 3}));
    for (sql, results) in [
        ("SELECT event FROM events WHERE event = 'none'", json!([])),
        ("SELECT [1, 2] AS a, NULL AS b, 'é \" \\' AS c", json!([[[1, 2], null, "é \" \\"]])),
    ] {
        let answer = ask(&server, sql).json();
        assert_eq!((&answer["results"], &answer["hasMore"]), (&results, &json!(false)), "{answer}");
    }
}

/// A client that reads page by page until there is no more has read every row once.
#[test]
fn pages_end_when_there_is_no_more() {
    let server = start(25, &[("WEIR_QUERY_ROWS_MAX", "10")]);
    for (limit, expected) in [(1, 25), (4, 7), (5, 5), (9, 3), (10, 3)] {
        let (mut seen, mut pages) = (BTreeSet::new(), 0);
        loop {
            let offset = pages * limit;
            let sql = format!(
                "SELECT distinct_id FROM events ORDER BY distinct_id LIMIT {limit} OFFSET {offset}"
            );
            let answer = ask(&server, &sql).json();
            let rows = answer["results"].as_array().expect("rows");
            assert!(rows.len() <= limit, "{answer}");
            assert_eq!((&answer["limit"], &answer["offset"]), (&json!(limit), &json!(offset)));
            for row in rows {
                assert!(seen.insert(row[0].to_string()), "{row} twice");
            }
            pages += 1;
            if answer["hasMore"] == json!(false) {
                break;
            }
        }
        assert_eq!((seen.len(), pages), (25, expected), "pages of {limit}");
    }
    // Of the largest page it is not known whether it is the last: an empty one follows.
    let last = "SELECT distinct_id FROM events ORDER BY distinct_id LIMIT 10 OFFSET 15";
    assert_eq!(ask(&server, last).json()["hasMore"], true);
    let behind = ask(&server, &last.replace("15", "25")).json();
    assert_eq!((&behind["results"], &behind["hasMore"]), (&json!([]), &json!(false)));
    // What is too much is refused, and never cut in silence.
    for sql in ["SELECT event FROM events", "SELECT event FROM events LIMIT 11"] {
        let answer = ask(&server, sql);
        let told = answer.json();
        assert_eq!((answer.status, &told["type"]), (400, &json!("validation_error")), "{told}");
    }
}

#[test]
fn other_kinds_are_refused_by_their_names() {
    let server = start(1, &[]);
    let refused = |query: Value, attr: &str, words: &str| {
        let answer = server.post(QUERY, &json!({"query": query}));
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["type"], &told["attr"]),
            (400, &json!("validation_error"), &json!(attr)),
            "{told}"
        );
        assert!(told["detail"].as_str().is_some_and(|told| told.contains(words)), "{told}");
    };
    let series = json!([{"kind": "EventsNode", "event": "x"}]);
    let experiment = json!({"kind": "ExperimentQuery", "series": series, "query": "SELECT 1"});
    for (query, name) in [
        (experiment.clone(), "ExperimentQuery"),
        (json!({"kind": "WebOverviewQuery", "select": ["*"]}), "WebOverviewQuery"),
        (json!({"kind": "SessionsQuery", "select": ["*"]}), "SessionsQuery"),
        (json!({"kind": "InsightVizNode", "source": experiment}), "ExperimentQuery"),
        (json!({"kind": "DataVisualizationNode", "source": experiment}), "ExperimentQuery"),
        (json!({"kind": "DataVisualizationNode"}), "DataVisualizationNode"),
        (json!({"kind": "hogqlquery", "query": "SELECT 1"}), "hogqlquery"),
        (json!({"kind": "x".repeat(10_000)}), &"x".repeat(100)),
    ] {
        refused(query, "query", &format!("Queries of the kind {name} are not available."));
    }
    for query in [json!({}), json!({"kind": 7}), json!({"kind": null, "query": "SELECT 1"})] {
        refused(query, "query", "an object with a kind");
    }
    let visual = |source: Value| json!({"kind": "DataVisualizationNode", "source": source});
    refused(visual(json!({"query": "SELECT 1"})), "query", "an object with a kind");
    for (query, words) in [
        (json!(null), "required"),
        (json!(""), "required"),
        (json!(7), "a text"),
        (json!([]), "a text"),
    ] {
        let node = json!({"kind": "HogQLQuery", "query": query});
        refused(node.clone(), "query__query", words);
        refused(visual(node), "query__query", words);
    }
    // What is wrong with the SQL is told as for a text.
    let (text, node) = (json!("SELECT nothing FROM events"), "SELECT nothing FROM events");
    let (text, node) = (server.post(QUERY, &json!({"query": text})), ask(&server, node));
    assert_eq!((text.status, text.json()), (400, node.json()));
}
