//! Regular expressions of users: a few bytes of them neither fill the memory nor keep threads from others, wherever
//! they are sent or stored.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use sqlx::Connection;

use crate::harness::{TOKEN, TestServer, beside};
use crate::limits::{FREED_AT_ONCE, peak_mib};

const QUERY: &str = "/api/projects/1/query/";

/// Each of them would have compiled to hundreds of MiB, or gigabytes.
fn large() -> Vec<String> {
    let ahead: String = (1..300).map(|n| format!(r"(?=\w{{{n}}})")).collect();
    vec![r"(?:\w{30}){30}".into(), r"(?=\w{300})a".into(), r"(?<=\w{1,300})a".into(), ahead]
}

fn trends(properties: &Value) -> Value {
    let series = json!([{"kind": "EventsNode", "event": "e"}]);
    json!({"query": {"kind": "TrendsQuery", "series": series, "properties": properties}})
}

fn filter(kind: &str, pattern: &str) -> Value {
    json!([{"key": "email", "type": kind, "operator": "regex", "value": pattern}])
}

/// Goal: a large pattern is refused where it is sent, with the limit and its field, and takes no memory. Method: all
/// places that take patterns. What fails: it is compiled.
#[test]
fn large_patterns_are_refused_everywhere() {
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
    assert_eq!(server.capture(&json!([{"event": "e", "distinct_id": "u"}])).status, 200);
    assert_eq!(server.count("SELECT count(*) FROM events"), 1);
    let before = peak_mib(&server);
    for pattern in large() {
        let condition = json!({"groups": [{"properties": filter("person", &pattern)}]});
        let rule = json!({"properties": {"type": "AND", "values": filter("person", &pattern)}});
        let step = json!([{"text": &pattern[..pattern.len().min(900)], "text_matching": "regex"}]);
        let cleaning = json!([{"regex": &pattern[..pattern.len().min(390)]}]);
        let paths = json!({"query": {"kind": "PathsQuery", "pathsFilter": {
            "includeEventTypes": ["custom_event"], "localPathCleaningFilters": cleaning}}});
        for (path, body, field) in [
            (QUERY, trends(&filter("event", &pattern)), "properties"),
            (
                "/api/projects/1/feature_flags/",
                json!({"key": "f", "filters": condition}),
                "filters",
            ),
            ("/api/projects/1/cohorts/", json!({"name": "c", "filters": rule}), "filters"),
            ("/api/projects/1/actions/", json!({"name": "a", "steps": step}), "steps"),
            (QUERY, paths, "pathsFilter"),
        ] {
            // What is cut in the middle of a look-around is no pattern.
            if pattern.len() > 390 && (field == "steps" || field == "pathsFilter") {
                continue;
            }
            let answer = server.post(path, &body);
            assert_eq!(answer.status, 400, "{path}: {answer}");
            let text = answer.to_string();
            assert!(text.contains(field), "{path}: {answer}");
            let is_told = text.contains("states of at most") || text.contains("regex");
            assert!(is_told, "{path}: {answer}");
        }
        let quoted = pattern.replace('\'', "''");
        let sql = format!("SELECT count(*) FROM events WHERE regexp_like(event, '{quoted}')");
        let answer = server.post(QUERY, &json!({"query": sql}));
        assert_eq!(answer.status, 400, "{answer}");
    }
    // Many that are small by themselves.
    let one = &filter("event", r"\w{50}")[0];
    let answer = server.post(QUERY, &trends(&json!(vec![one; 20])));
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.to_string().contains("too large together"), "{answer}");
    let more = peak_mib(&server).saturating_sub(before);
    assert!(more < 150, "{more} MiB");
}

/// Goal: patterns that take very long on each text keep nobody else's queries from answers, and their query ends. Method:
/// more such queries than there are threads, on texts that make them go back and forth. What fails: a count waits until
/// they are done, or they go on beyond their time.
#[test]
fn seven_characters_keep_nobody_waiting() {
    let settings = [("WEIR_QUERY_THREADS", "2"), ("WEIR_QUERY_TIMEOUT", "10s")];
    let server = TestServer::start_with(&settings);
    for batch in 0..5 {
        let event = |n: usize| {
            let text = format!("{}{}", "a".repeat(3000), batch * 2000 + n);
            json!({"event": "e", "distinct_id": format!("u{}", n % 100), "properties": {"text": text}})
        };
        let events: Vec<Value> = (0..2000).map(event).collect();
        assert_eq!(server.capture(&json!(events)).status, 200);
    }
    assert_eq!(server.count("SELECT count(*) FROM events"), 10_000);
    let client = server.client();
    let (ended, ends) = mpsc::channel();
    let hostile: Vec<Value> = [r"(a*)*\1$", r"^(?=(a|a)*\1b)", r"(?:a?){900}b"]
        .into_iter()
        .map(|pattern| {
            let filter = json!([{"key": "text", "operator": "regex", "value": pattern}]);
            trends(&filter)
        })
        .chain([json!({"query": "SELECT count(*) FROM events WHERE \
            regexp_like(properties, '(a?){200}(a?){200}(a?){200}b')"})])
        .collect();
    for body in hostile {
        let ended = ended.clone();
        beside(move || {
            let bearer = format!("Bearer {}", crate::harness::KEY);
            let headers = [("authorization", &*bearer), ("content-type", "application/json")];
            let answer = client.send("POST", QUERY, &headers, body.to_string().as_bytes());
            let _ = ended.send(answer.map(|answer| answer.status).ok());
        });
    }
    #[expect(clippy::disallowed_methods, reason = "how long others wait")]
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(5) {
        let asked = began.elapsed();
        let list = server.get("/api/projects/1/persons/?limit=1");
        assert_eq!(list.status, 200, "{list}");
        assert_eq!(server.capture(&json!([{"event": "other", "distinct_id": "u"}])).status, 200);
        longest = longest.max(began.elapsed().saturating_sub(asked));
    }
    // Beside what computes on all cores.
    assert!(longest < Duration::from_secs(3), "others waited {longest:?}");
    for _ in 0..4 {
        let status = ends.recv_timeout(Duration::from_secs(20));
        assert!(matches!(status, Ok(Some(200 | 400 | 504))), "{status:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Goal: what a project keeps of patterns is bounded, nothing that is stored breaks what was stored before, and what is
/// stored beyond the limit all the same matches nobody and says so. Method: flags and cohorts up to the limit, one more of
/// each, then rows that an older version might have written.
#[test]
fn a_project_keeps_patterns_up_to_a_limit() {
    const FLAGS: &str = "/api/projects/1/feature_flags/";
    const COHORTS: &str = "/api/projects/1/cohorts/";
    // 98,030 states each, as `src/guide/compatibility.md` counts them.
    let pattern = r"^\w{1,140}$";
    let twice = |pattern: &str| {
        let one = &filter("person", pattern)[0];
        json!([one, one])
    };
    let flag = |key: &str, filters: &Value| {
        let groups = json!([{"properties": filters, "rollout_percentage": 100}]);
        json!({"key": key, "active": true, "filters": {"groups": groups}})
    };
    let cohort = |name: &str, filters: &Value| json!({"name": name, "filters": {"properties": {"type": "AND", "values": filters}}});
    let mut server = TestServer::start();
    let event = json!({"event": "e", "distinct_id": "u", "properties": {"$set": {"email": "ann"}}});
    assert_eq!(server.capture(&json!([event])).status, 200);
    let mut made: Vec<[Value; 2]> = Vec::new();
    for number in 0..5 {
        let name = format!("number{number}");
        made.push([
            server.post(FLAGS, &flag(&name, &twice(pattern))).created(),
            server.post(COHORTS, &cohort(&name, &twice(pattern))).created(),
        ]);
    }
    let others = filter("person", r"^\w{1,40}$");
    for (path, body) in [(FLAGS, flag("more", &others)), (COHORTS, cohort("more", &others))] {
        let refused = server.post(path, &body);
        assert_eq!(refused.status, 400, "{refused}");
        assert_eq!(refused.json()["code"], "invalid_value", "{refused}");
        let told = refused.json()["detail"].as_str().expect("a text").to_owned();
        assert!(told.contains("of the project") && told.contains("at most 1000000"), "{told}");
    }
    // There is room for small ones, what has none is not concerned, nor is what stays as it is.
    let small = filter("person", "^ann$");
    let plain = json!([{"key": "email", "type": "person", "operator": "exact", "value": "ann"}]);
    let last = [
        server.post(FLAGS, &flag("last", &small)).created(),
        server.post(COHORTS, &cohort("last", &small)).created(),
    ];
    server.post(FLAGS, &flag("plain", &plain)).created();
    server.post(COHORTS, &cohort("plain", &plain)).created();
    let again =
        server.patch(&format!("{FLAGS}{}/", made[0][0]["id"]), &flag("number0", &twice(pattern)));
    assert_eq!(again.status, 200, "{again}");
    // One that is deleted makes room, which it needs again to be restored.
    let first = format!("{FLAGS}{}/", made[0][0]["id"]);
    assert_eq!(server.patch(&first, &json!({"deleted": true})).status, 200);
    let more = server.post(FLAGS, &flag("more", &others)).created();
    assert_eq!(server.patch(&first, &json!({"deleted": false})).status, 400);
    let delete = json!({"deleted": true});
    assert_eq!(server.patch(&format!("{FLAGS}{}/", more["id"]), &delete).status, 200);
    assert_eq!(server.patch(&first, &json!({"deleted": false})).status, 200);

    let enabled = |server: &TestServer| {
        let body = json!({"token": TOKEN, "distinct_id": "u"}).to_string();
        let answer = server.send("POST", "/flags/?v=2", &[], body);
        assert_eq!(answer.status, 200, "{answer}");
        let flags = answer.json()["flags"].as_object().expect("flags").clone();
        flags.into_iter().filter(|(_, flag)| flag["enabled"] == true).map(|(key, _)| key).collect()
    };
    let members = |server: &TestServer, cohort: &Value| {
        let answer = server.get(&format!("{COHORTS}{}/persons/", cohort["id"]));
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["results"].as_array().expect("persons").len()
    };
    let all: Vec<String> = enabled(&server);
    assert_eq!(all.len(), 7, "{all:?}");
    assert!(made.iter().all(|[_, cohort]| members(&server, cohort) == 1));

    server.stop();
    let url = format!("sqlite://{}", server.data_dir().join("metadata.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&url).await.expect("the database");
        for (table, id) in [("feature_flags", &last[0]["id"]), ("cohorts", &last[1]["id"])] {
            let update = format!(
                r"UPDATE {table} SET filters = replace(filters, '^ann$', '^\\w{{1,100}}$') WHERE id = {id}"
            );
            let done = sqlx::query(sqlx::AssertSqlSafe(update)).execute(&mut database).await.expect("an update");
            assert_eq!(done.rows_affected(), 1);
        }
        database.close().await.expect("the end");
    });
    server.restart();
    // The newest come first.
    let left: Vec<String> = enabled(&server);
    let lost: Vec<&String> = all.iter().filter(|key| !left.contains(key)).collect();
    assert_eq!(lost, ["number0"], "{left:?}");
    let counts: Vec<usize> = made.iter().map(|[_, cohort]| members(&server, cohort)).collect();
    assert_eq!(counts, [0, 1, 1, 1, 1]);
    assert_eq!(members(&server, &last[1]), 1);
    let told = server.stderr();
    for part in ["a flag cannot be evaluated", "patterns of cohorts are too large together"] {
        assert!(told.contains(part), "{told}");
    }
}
