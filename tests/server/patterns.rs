//! Regular expressions of users: a few bytes of them neither fill the memory nor keep threads from others, wherever
//! they are sent or stored.

use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::harness::TestServer;
use crate::harness::beside;
use crate::limits::FREED_AT_ONCE;
use crate::limits::peak_mib;

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
