//! Retention of events by age: from one midnight on, events of before are in no response and leave the files; events of
//! other projects stay, and nothing comes back. Expectations come from the times that were sent; DuckDB reads the files.

use std::collections::BTreeSet;

use chrono::{DateTime, Duration, NaiveTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::deletion::{STILL, in_files};
use crate::harness::{TOKEN, TestServer, patiently, run};

/// Days that are kept.
const DAYS: i64 = 5;

/// The clock of the server: it made its first project just now.
fn now(server: &TestServer) -> DateTime<Utc> {
    let made = server.get("/api/projects/1/").json();
    made["created_at"].as_str().expect("a time").parse().expect("a time")
}

/// The last midnight in UTC, less some days.
fn midnight(server: &TestServer, days_before: i64) -> DateTime<Utc> {
    let today = now(server).date_naive().and_time(NaiveTime::MIN).and_utc();
    today - Duration::days(days_before)
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Events at times around the midnight from which they are kept, whether each is kept then.
fn times(server: &TestServer) -> Vec<(DateTime<Utc>, bool)> {
    let from = midnight(server, DAYS);
    vec![
        (now(server), true),
        (from + Duration::days(1), true),
        (from + Duration::microseconds(1), true),
        (from, true),
        (from - Duration::microseconds(1), false),
        (from - Duration::milliseconds(1), false),
        (from - Duration::days(1), false),
        (from - Duration::days(40), false),
        (from - Duration::days(4000), false),
    ]
}

/// Sends an event for each time, with uuids from `first` on.
fn send(server: &TestServer, token: &str, first: u128, times: &[DateTime<Utc>]) {
    let event = |(number, at): (u128, &DateTime<Utc>)| {
        json!({"event": "visit", "uuid": Uuid::from_u128(first + number), "timestamp": text(*at),
               "distinct_id": format!("p{number}"), "properties": {"secret": format!("s{number}"),
               "$session_id": format!("session-{number}"), "$current_url": format!("https://x.org/{number}")}})
    };
    let batch: Vec<Value> = (0..).zip(times).map(event).collect();
    let body = json!({"api_key": token, "historical_migration": true, "batch": batch});
    let answer = server.post("/batch/", &body);
    assert_eq!(answer.status, 200, "{answer}");
}

fn keep(server: &TestServer, project: i64, days: &Value) -> Value {
    let answer =
        server.patch(&format!("/api/projects/{project}/"), &json!({"event_retention_days": days}));
    assert_eq!(answer.status, 200, "{answer}");
    let told = answer.json();
    assert_eq!(&told["event_retention_days"], days);
    told["events_kept_from"].clone()
}

fn query(server: &TestServer, project: i64, query: &Value) -> Value {
    let answer = server.post(&format!("/api/projects/{project}/query/"), &json!({"query": query}));
    assert_eq!(answer.status, 200, "{query}: {answer}");
    answer.json()
}

fn trend(server: &TestServer, project: i64) -> f64 {
    let node = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "visit"}],
                      "dateRange": {"date_from": "all"}, "interval": "month"});
    let answer = query(server, project, &node);
    answer["results"][0]["count"].as_f64().expect("a count")
}

/// Checks that every response of a project has the events with these numbers and no others of those from `first` on.
fn check(
    server: &TestServer,
    project: i64,
    first: u128,
    kept: &BTreeSet<u128>,
    all: u128,
    state: &str,
) {
    let uuid = |number: u128| Uuid::from_u128(first + number).to_string();
    let expected: BTreeSet<String> = kept.iter().map(|number| uuid(*number)).collect();
    let texts = |rows: &Value, name: &str| -> BTreeSet<String> {
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| row[name].as_str().expect("text").to_owned()).collect()
    };
    let firsts = |answer: &Value| -> BTreeSet<String> {
        let rows = answer["results"].as_array().expect("rows").iter();
        rows.map(|row| row[0].as_str().expect("text").to_owned()).collect()
    };
    let sql = |text: &str| query(server, project, &json!({"kind": "HogQLQuery", "query": text}));
    let count = kept.len();
    assert_eq!(firsts(&sql("SELECT uuid FROM events")), expected, "{state}: SQL");
    assert_eq!(sql("SELECT count(*) FROM events")["results"], json!([[count]]), "{state}");
    let old = "SELECT count(*), min(timestamp) FROM events WHERE timestamp < '2020-01-01' OR properties.secret = 's7'";
    let found = sql(old)["results"][0][0].clone();
    assert_eq!(found, if kept.contains(&7) { 2 } else { 0 }, "{state}: filtered");
    let secrets: BTreeSet<String> = kept.iter().map(|number| format!("s{number}")).collect();
    assert_eq!(firsts(&sql("SELECT properties.secret FROM events")), secrets, "{state}");
    let sessions: BTreeSet<String> =
        kept.iter().map(|number| format!("session-{number}")).collect();
    assert_eq!(firsts(&sql("SELECT session_id FROM sessions")), sessions, "{state}: sessions");
    let path = format!("/api/projects/{project}/events/");
    let list = |query: &str| texts(&server.get(&format!("{path}?{query}")).json()["results"], "id");
    assert_eq!(list("limit=100"), expected, "{state}: list");
    assert_eq!(list("limit=100&after=2000-01-01"), expected, "{state}: list since");
    for number in 0..all {
        let own = list(&format!("distinct_id=p{number}"));
        assert_eq!(own.len(), usize::from(kept.contains(&number)), "{state}: list of {number}");
        let status = server.get(&format!("{path}{}/", uuid(number))).status;
        assert_eq!(status, if kept.contains(&number) { 200 } else { 404 }, "{state}: {number}");
    }
    let node = json!({"kind": "EventsQuery", "select": ["uuid"], "after": "all"});
    assert_eq!(firsts(&query(server, project, &node)), expected, "{state}: EventsQuery");
    // Twice: the second time from the cache.
    for _ in 0..2 {
        assert!(
            (trend(server, project) - f64::from(u32::try_from(count).unwrap())).abs() < 0.5,
            "{state}: trend"
        );
    }
    let values = server.get(&format!("{path}values/?key=secret")).json();
    assert!(texts(&values, "name").is_subset(&secrets), "{state}: values");
}

#[test]
fn old_events_are_in_no_answer_and_leave_the_files() {
    let mut server = TestServer::start_with(&STILL);
    let (_, other) = server.project("Other");
    let (at, is_kept): (Vec<_>, Vec<bool>) = times(&server).into_iter().unzip();
    let count = u128::try_from(at.len()).expect("few");
    let all: BTreeSet<u128> = (0..count).collect();
    let kept: BTreeSet<u128> =
        (0..).zip(&is_kept).filter(|(_, is_kept)| **is_kept).map(|(number, _)| number).collect();
    // Of the first project in files and, with other ids, in memory.
    send(&server, TOKEN, 100, &at);
    send(&server, &other, 300, &at);
    server.flush();
    check(&server, 1, 100, &all, count, "before");
    assert_eq!(server.get("/api/projects/1/").json()["events_kept_from"], Value::Null);
    let from = keep(&server, 1, &json!(DAYS));
    let from: DateTime<Utc> = from.as_str().expect("a time").parse().expect("a time");
    assert_eq!(from, midnight(&server, DAYS), "unless the test runs at midnight");
    for state in ["in files", "after a crash", "after an end"] {
        check(&server, 1, 100, &kept, count, state);
        check(&server, 2, 300, &all, count, state);
        match state {
            "in files" => server.kill(),
            _ => server.stop(),
        }
        // The command reads the directory alone.
        let output = run(server.weir(&["query", "--format", "csv", "SELECT count(*) FROM events"]));
        assert!(output.trim().ends_with(&kept.len().to_string()), "{state}: {output}");
        server.restart();
    }
    assert!(in_files(&server).contains(&Uuid::from_u128(107)), "no pass has been");
    // What comes late is in no answer either, and not in the files that it is flushed into.
    let events = server.count("SELECT count(*) FROM events");
    send(&server, TOKEN, 500, &at[4..]);
    assert_eq!(server.count("SELECT count(*) FROM events"), events, "in memory");
    server.flush();
    assert_eq!(server.count("SELECT count(*) FROM events"), events, "flushed");
    let late: BTreeSet<Uuid> = (500..505).map(Uuid::from_u128).collect();
    assert!(in_files(&server).is_disjoint(&late));
    server.stop();
    for (name, value) in
        [("COMPACTION_INTERVAL", "100ms"), ("DELETION_INTERVAL", "100ms"), ("VACUUM_GRACE", "1s")]
    {
        server.set(&format!("WEIR_{name}"), value);
    }
    server.restart();
    let uuids = |first: u128, numbers: &BTreeSet<u128>| -> BTreeSet<Uuid> {
        numbers.iter().map(|number| Uuid::from_u128(first + number)).collect()
    };
    let expected: BTreeSet<Uuid> = &uuids(100, &kept) | &uuids(300, &all);
    let done = patiently(|| (in_files(&server) == expected).then_some(()));
    done.expect("old events are in no file, and all others are");
    check(&server, 1, 100, &kept, count, "after the pass");
    check(&server, 2, 300, &all, count, "after the pass");
    // A longer time brings nothing back, whether it has left the files or not.
    let told = keep(&server, 1, &json!(30));
    assert_eq!(told.as_str().map(str::parse), Some(Ok(from)));
    send(&server, TOKEN, 700, &at[4..5]);
    check(&server, 1, 100, &kept, count, "kept for longer");
    assert_eq!(keep(&server, 1, &Value::Null).as_str().map(str::parse), Some(Ok(from)));
    check(&server, 1, 100, &kept, count, "kept for ever from now on");
    // A shorter one takes more.
    keep(&server, 1, &json!(1));
    let shorter: BTreeSet<u128> = [0].into();
    check(&server, 1, 100, &shorter, count, "kept for a day");
    server.is_undamaged();
}

/// Goal: no kept answer of before is given after a change, and the other way round.
#[test]
fn caches_follow_the_time_from_which_events_are_kept() {
    let server = TestServer::start();
    let at: Vec<_> = [0, 10, 20].map(|days| midnight(&server, days) - Duration::hours(1)).into();
    send(&server, TOKEN, 100, &at);
    for (days, expected) in [(30, 3.0), (15, 2.0), (5, 1.0), (30, 1.0)] {
        let before = trend(&server, 1);
        keep(&server, 1, &json!(days));
        let after = trend(&server, 1);
        assert!((after - expected).abs() < 0.5, "{days}: {before} {after}");
    }
}

#[test]
fn wrong_times_are_refused() {
    let server = TestServer::start();
    for wrong in
        [json!(0), json!(-1), json!(36_501), json!(1.5), json!("x"), json!([]), json!(true)]
    {
        let answer = server.patch("/api/projects/1/", &json!({"event_retention_days": wrong}));
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["attr"]),
            (400, &json!("event_retention_days")),
            "{wrong}: {answer}"
        );
    }
    let made = server.post("/api/projects/", &json!({"name": "x", "event_retention_days": 7}));
    assert_eq!(made.created()["event_retention_days"], 7);
}
