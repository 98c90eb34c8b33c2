//! SQL whose filters go into the scan of files: the rows are those of a plain computation. That a scan leaves
//! files, pages or rows out is not to be seen in any answer.

use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer};

const PERSONS: u64 = 4_000;
const FILES: u64 = 4;

/// Second 0 of the events, in 2026-03.
const START: i64 = 1_772_323_200;

/// Person n has an `early` event at second n and a `late` one at second 8,000 - n. Files have a thousand
/// persons each, those with high numbers first.
fn server() -> TestServer {
    let settings = [("WEIR_COMPACTION_INTERVAL", "1h"), ("WEIR_MEMTABLE_MAX_AGE", "1h")];
    let server = TestServer::start_with(&settings);
    let event = |name: &str, n: u64, second: u64| {
        let time = START + i64::try_from(second).expect("small");
        let properties = json!({"n": n, "revenue": n, "text": format!("{name} {n}")});
        json!({"event": name, "distinct_id": format!("p{n}"), "timestamp": time_text(time), "properties": properties})
    };
    for file in (0..FILES).rev() {
        let persons = file * PERSONS / FILES..(file + 1) * PERSONS / FILES;
        let events = persons.flat_map(|n| [event("early", n, n), event("late", n, 8_000 - n)]);
        let answer = server.capture(&Value::Array(events.collect()));
        assert_eq!(answer.status, 200, "{answer}");
        let flushed = server.weir(&["flush"]).output().expect("a command");
        assert!(flushed.status.success(), "{flushed:?}");
    }
    server
}

fn time_text(second: i64) -> String {
    chrono::DateTime::from_timestamp(second, 0).expect("a time").to_rfc3339()
}

#[test]
fn filters_in_scans_change_no_answer() {
    let server = server();
    let at = |second: i64| format!("TIMESTAMP '{}'", time_text(START + second));
    for (condition, expected) in [
        ("true".to_owned(), 8_000),
        ("event = 'early'".to_owned(), 4_000),
        ("event <> 'early'".to_owned(), 4_000),
        ("event IN ('early', 'other')".to_owned(), 4_000),
        ("event LIKE 'l%'".to_owned(), 4_000),
        ("NOT (event = 'late' AND distinct_id = 'p7')".to_owned(), 7_999),
        ("distinct_id IN ('p7', 'p3999', 'nobody')".to_owned(), 4),
        (format!("timestamp < {}", at(10)), 10),
        (format!("timestamp >= {} AND event = 'late'", at(7_990)), 11),
        (format!("timestamp < {} OR timestamp > {}", at(10), at(7_990)), 20),
        ("p_revenue < 5".to_owned(), 10),
        ("p_revenue BETWEEN 998.5 AND 1001".to_owned(), 6),
        ("p_revenue IS NULL".to_owned(), 0),
        ("\"p_$browser\" IS NULL".to_owned(), 8_000),
        ("json_get_int(properties, 'n') < 3".to_owned(), 6),
        ("(properties ->> 'text') = 'early 12'".to_owned(), 1),
        ("properties LIKE '%late 12\"%'".to_owned(), 1),
        ("event = 'early' AND length(distinct_id) = 2".to_owned(), 10),
        ("CAST(substr(distinct_id, 2) AS BIGINT) = 42".to_owned(), 2),
    ] {
        let sql = format!("SELECT count(*) FROM events WHERE {condition}");
        assert_eq!(server.count(&sql), expected, "{condition}");
    }
}

/// Goal: the bounds that joins and `ORDER BY ... LIMIT` find as they read one alias of a table filter no
/// other alias. Method: the rows, and the plan, in which no scan has such a filter: whether a wrong one costs
/// rows depends on how far scans have read ahead.
#[test]
fn aliases_of_a_table_are_filtered_apart() {
    let server = server();
    for order in ["a.timestamp", "b.timestamp DESC"] {
        let sql = format!(
            "SELECT a.distinct_id AS id, a.timestamp, b.timestamp, b.timestamp - a.timestamp AS gap \
             FROM events a JOIN events b ON a.distinct_id = b.distinct_id \
             WHERE a.event = 'early' AND b.event = 'late' ORDER BY {order} LIMIT 5"
        );
        let rows = server.query(&sql);
        let found: Vec<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
        assert_eq!(found, ["p0", "p1", "p2", "p3", "p4"], "{order}");
        let plan = server.query(&format!("EXPLAIN {sql}"));
        let plan: String = plan.iter().filter_map(|row| row["plan"].as_str()).collect();
        assert!(plan.contains("HashJoinExec") && plan.contains("DataSourceExec"), "{plan}");
        assert!(!plan.contains("DynamicFilter"), "{plan}");
    }
}

/// Goal: a property is found however the sender has written its key.
#[test]
fn keys_with_escapes_are_found() {
    let server = TestServer::start();
    let event = r#"{"event":"e","distinct_id":"u","properties":{"pl\u0061n":"pro"}}"#;
    let body = format!(r#"{{"api_key":"{TOKEN}","batch":[{event}]}}"#);
    let headers = [("content-type", "application/json")];
    assert_eq!(server.send("POST", "/batch/", &headers, body).status, 200);
    let filter = r#"[{"key":"plan","value":"pro","operator":"exact","type":"event"}]"#;
    let query =
        form_urlencoded::Serializer::new(String::new()).append_pair("properties", filter).finish();
    let page = server.get(&format!("/api/projects/1/events/?{query}")).json();
    assert_eq!(page["results"].as_array().map(Vec::len), Some(1), "{page}");
    let sql = "SELECT count(*) FROM events WHERE json_get_str(properties, 'plan') = 'pro'";
    assert_eq!(server.count(sql), 1);
}
