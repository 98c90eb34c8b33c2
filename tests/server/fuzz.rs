//! Fuzz test of the documented API against a real server, by Schemathesis: thousands of requests
//! generated from `schemas/openapi.json`, some of them invalid. No response is a 5xx, has an
//! undocumented status, media type or format, or grants access without a key.
//!
//! `WEIR_FUZZ_SECONDS` sets the duration, `WEIR_FUZZ_SEED` repeats a run. `tests/fuzz/` defines the
//! requests.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use weir_query::guard::complexity::WORDS_MAX;

use crate::harness::{KEY, TOKEN, TestServer};
use crate::sdk::tools;

/// Duration of an ordinary run.
const SECONDS: &str = "75";

/// Aliases of `/capture` and `/batch`, and an endless response.
const LEFT_OUT: &str = "^/(e|track|i/v0/e|i/v0/ai/batch|flags/events)$";

/// Smallest number of requests of an ordinary run; fewer mean that something blocks it.
const REQUESTS_MIN: u64 = 1000;

fn setting(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok())
}

#[test]
fn answers_are_as_described_whatever_is_asked() {
    let scripts = tempfile::tempdir().expect("a directory of scripts");
    for name in ["array.js", "array.js.map"] {
        std::fs::write(scripts.path().join(name), "{}").expect("a script");
    }
    let directory = scripts.path().to_str().expect("UTF-8");
    let server = TestServer::start_with(&[("WEIR_LOG", "warn"), ("WEIR_STATIC_DIR", directory)]);
    let seed = setting("WEIR_FUZZ_SEED").unwrap_or_else(|| rand::random::<u32>().to_string());
    let seconds = setting("WEIR_FUZZ_SECONDS").unwrap_or_else(|| SECONDS.to_owned());
    println!("WEIR_FUZZ_SEED={seed}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(tools().join("schemathesis/bin/schemathesis"))
        .arg("--config-file")
        .arg(root.join("tests/fuzz/schemathesis.toml"))
        .arg("run")
        .arg(root.join("schemas/openapi.json"))
        .args(["--url", &server.url(), "--seed", &seed, "--max-time", &seconds])
        .args(["--phases", "coverage,fuzzing", "--no-color"])
        .args(["--exclude-path-regex", LEFT_OUT])
        .env("WEIR_FUZZ_HOOKS", root.join("tests/fuzz/hooks.py"))
        .envs([("WEIR_FUZZ_URL", server.url().as_str()), ("WEIR_FUZZ_SEED", &seed)])
        .envs([("WEIR_FUZZ_TOKEN", TOKEN), ("WEIR_FUZZ_KEY", KEY)])
        // It leaves notes of its runs where it is started.
        .current_dir(server.data_dir().parent().expect("a directory around the data"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the fuzzer starts");
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "WEIR_FUZZ_SEED={seed}\n{report}\n{errors}");
    let requests = generated(&report);
    println!("{requests} requests");
    assert!(requests >= REQUESTS_MIN, "only {requests} requests\n{report}");
}

/// The number before `generated` in the fuzzer's report.
fn generated(report: &str) -> u64 {
    let line = report.lines().find(|line| line.contains(" generated, "));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no number of test cases:\n{report}"))
}

/// The width of a table is that of its widest values, in every row.
#[test]
fn answers_that_are_too_large_are_refused() {
    let server = TestServer::start();
    let event = |name: &str| json!({"event": name, "distinct_id": "ada", "properties": {"text": "x".repeat(100_000)}});
    let mut batch: Vec<Value> = (0..5).map(|_| event("long")).collect();
    let short = json!({"event": "short", "distinct_id": "ada"});
    batch.extend(std::iter::repeat_n(short, 5000));
    let answer = server.post("/batch/", &json!({"api_key": TOKEN, "batch": batch}));
    assert_eq!(answer.status, 200, "{answer}");
    for (format, status) in [("table", 400), ("json", 200), ("csv", 200)] {
        let body = json!({"query": "SELECT event, properties FROM events", "format": format});
        let answer = server.post("/api/projects/1/query/", &body);
        assert_eq!(answer.status, status, "{format}: {} bytes", answer.body.len());
    }
}

/// Texts in a request that are longer than the keys of the database.
#[test]
fn endless_names_are_nobodys() {
    let server = TestServer::start();
    let long = "x".repeat(70_000);
    let flag = json!({"key": "f", "filters": {"aggregation_group_type_index": 0, "groups": [{}]}});
    let group = json!({"$group_type": "company", "$group_key": "acme", "$group_set": {}});
    let event = json!({"event": "$groupidentify", "distinct_id": "ada", "properties": group});
    for (path, body, status) in [
        ("/batch/", json!({"api_key": TOKEN, "batch": [event]}), 200),
        ("/api/projects/1/feature_flags/", flag, 201),
        (
            "/flags/?v=2",
            json!({"api_key": TOKEN, "distinct_id": long, "groups": {"company": long}}),
            200,
        ),
        (
            "/api/projects/1/feature_flags/1/test_evaluation/",
            json!({"distinct_id": long, "groups": {"company": long}}),
            200,
        ),
        (
            "/api/projects/1/cohorts/",
            json!({"name": "list", "is_static": true, "distinct_ids": [long]}),
            201,
        ),
        ("/api/projects/1/persons/bulk_delete/", json!({"distinct_ids": [long]}), 202),
    ] {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, status, "{path}: {answer}");
    }
    let context = json!({"context": {"targetingKey": long, "groups": {"company": long}}});
    let headers = [("x-api-key", TOKEN), ("content-type", "application/json")];
    let path = "/ofrep/v1/evaluate/flags";
    let answer = server.send("POST", path, &headers, context.to_string());
    assert_eq!(answer.status, 200, "{answer}");
}

/// Input of recursive planning is bounded in advance, and accepted input fits into the stack.
#[test]
fn deep_questions_are_answered_or_refused() {
    let server = TestServer::start();
    let sql = |text: String| {
        server.post("/api/projects/1/query/", &json!({"query": text, "format": "json"}))
    };
    let chain = |link: &str, n: usize| sql(format!("SELECT 1 AS n{}", link.repeat(n)));
    let sum = |n: usize| sql(format!("SELECT {}1 AS n", "1+".repeat(n)));
    let deepest = sum(WORDS_MAX - 3);
    assert_eq!(deepest.status, 200, "{deepest}");
    assert_eq!(deepest.json()["n"], json!(WORDS_MAX - 2), "{deepest}");
    for answer in [
        sum(WORDS_MAX),
        sum(200_000),
        chain(" UNION ALL SELECT 1", 10_000),
        sql(format!("SELECT {}1", "- ".repeat(10_000))),
        sql(format!("SELECT {}1{}", "(".repeat(50_000), ")".repeat(50_000))),
        sql("COPY events TO 'nowhere'".to_owned()),
        sql("SELECT regexp_like('a', '(')".to_owned()),
    ] {
        assert_eq!(answer.status, 400, "{answer}");
        assert_eq!(answer.json()["type"], "validation_error", "{answer}");
    }
    let plan = sql("EXPLAIN SELECT 1".to_owned());
    assert_eq!(plan.status, 200, "{plan}");
    let csv = json!({"query": "SELECT [1]", "format": "csv"});
    let answer = server.post("/api/projects/1/query/", &csv);
    assert_eq!((answer.status, &answer.json()["attr"]), (400, &Value::Null), "{answer}");

    let words = "a+".repeat(5000);
    let answer = server.get(&format!("/api/projects/1/property_definitions/?search={words}"));
    assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!("search")), "{answer}");
}
