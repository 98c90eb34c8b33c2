//! The page of health: figures beside the limits that are set, and slow questions of the own project alone.

use serde_json::json;

use crate::harness::{Answer, KEY, TestServer, patiently};

fn health(server: &TestServer, key: &str, project: &str) -> String {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let answer: Answer = server.send("GET", &format!("/project/{project}/health"), &headers, "");
    assert_eq!(answer.status, 200, "{answer}");
    String::from_utf8(answer.body).expect("UTF-8")
}

/// What a card says under its title.
fn card(page: &str, title: &str) -> String {
    let rest = page.split(title).nth(1).unwrap_or_else(|| panic!("no {title}: {page}"));
    let text = rest.split("</p>").next().unwrap_or_default();
    text.split('>').filter_map(|part| part.split('<').next()).collect()
}

#[test]
fn limits_are_those_that_are_set() {
    let settings = [
        ("WEIR_MEMTABLE_MAX_BYTES", "3MiB"),
        ("WEIR_FROZEN_MEMTABLES_MAX", "4"),
        ("WEIR_WAL_MAX_BYTES", "512MiB"),
        ("WEIR_DISK_FREE_MIN_BYTES", "17MiB"),
        ("WEIR_QUERY_MEMORY_MAX_BYTES", "321MiB"),
    ];
    let server = TestServer::start_with(&settings);
    server.capture(&json!([{"event": "a", "distinct_id": "b"}]));
    let page = health(&server, KEY, "1");
    for (title, expected) in [
        ("Memtables", "of 15.0 MiB"),
        ("Log on disk", "of 512.0 MiB"),
        ("Queries", "of 321.0 MiB"),
        ("Free on the disk", "below 17.0 MiB no events are taken"),
        ("The process, of the memory it may have", "MiB of "),
    ] {
        let said = card(&page, title);
        assert!(said.contains(expected), "{title}: {said}");
    }
    for part in ["from the log to files", "log records wait", "deletions whose events may still be"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn the_rate_of_events_is_told() {
    let server = TestServer::start();
    let rate = |page: &str, of: &str| -> Option<f64> {
        let before = page.split(of).next()?;
        before.rsplit("class=\"figure\">").next()?.split('<').next()?.replace(',', "").parse().ok()
    };
    let mut sent = 0.0;
    let told = patiently(|| {
        let events = (0..50).map(|at| json!({"event": "a", "distinct_id": format!("p{at}")}));
        server.capture(&events.collect());
        sent += 50.0;
        let page = health(&server, KEY, "1");
        let told = ["in the last minute", "in the last hour"].map(|of| rate(&page, of));
        told.iter().all(|rate| rate.is_some_and(|rate| rate > 0.0)).then_some(told)
    });
    // Of a server that has just been started both are since its start; a second has not more than was sent.
    let told = told.expect("rates");
    assert!(told[0] == told[1] && told[0].is_some_and(|rate| rate <= sent), "{told:?}");
}

#[test]
fn slow_questions_are_those_of_the_own_project() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "other"})).created()["id"].clone();
    let ask = |project: &str, query: serde_json::Value| {
        let path = format!("/api/projects/{project}/query/");
        server.post(&path, &json!({"query": query})).status
    };
    assert_eq!(ask("1", json!("SELECT 1 AS \"<b>mine\" FROM events")), 200);
    let trends =
        json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "signup"}]});
    assert_eq!(ask("1", trends), 200);
    assert_eq!(ask("1", json!("SELECT nothing FROM nowhere")), 400);
    let file = json!({"kind": "HogQLQuery", "query": "SELECT 'of a file'"});
    let file = json!({"query": file, "format": "csv"});
    assert_eq!(server.post("/api/projects/1/query/", &file).status, 200);
    let older = "/api/projects/1/insights/trend/?events=%5B%7B%22id%22%3A%22older%22%7D%5D";
    assert_eq!(server.get(older).status, 200);
    assert_eq!(ask(&other.to_string(), json!("SELECT 'of the others'")), 200);
    let page = health(&server, KEY, "1");
    for part in [
        "&lt;b&gt;mine",
        "TrendsQuery: signup",
        "nowhere</code> <span class=\"badge warn\">failed",
        "of a file",
        "TrendsQuery: older",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("of the others"), "{page}");
    let page = health(&server, KEY, &other.to_string());
    assert!(page.contains("of the others") && !page.contains("mine"), "{page}");
    // Questions are told to those who may ask.
    let body = json!({"label": "x", "scopes": ["project:read"]});
    let narrow = server.post("/api/personal_api_keys/", &body).created()["value"].clone();
    let page = health(&server, narrow.as_str().expect("a key"), "1");
    assert!(!page.contains("slowest queries") && !page.contains("mine"), "{page}");
}
