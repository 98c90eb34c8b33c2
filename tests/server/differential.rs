//! Differential test of flag evaluation: the server against the evaluators inside the released SDKs,
//! with hundreds of thousands of random requests, and a table of the differences by design.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer};
use crate::sdk::{source, tools};

/// Smallest number of comparisons with the Python SDK.
const COMPARISONS: u64 = 200_000;

/// Smallest number of comparisons with posthog-node: those of the last round.
const NODE_COMPARISONS: u64 = 35_000;

/// Smallest percentage of results that the SDK must have computed itself; below it the generator
/// makes too many conditions that SDKs cannot evaluate.
const RESOLVED_MIN_PERCENT: u64 = 95;

/// The last line of a driver's output.
fn report(mut command: Command) -> Value {
    let output = command.output().expect("the driver starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {text} {stderr}"))
}

fn python() -> Command {
    Command::new(tools().join("posthog-7/bin/python"))
}

fn check(report: &Value, comparisons: u64, who: &str) {
    let differences = report["differences"].as_array().expect("a list");
    let first = differences.first().map(|first| serde_json::to_string_pretty(first).expect("JSON"));
    assert!(
        differences.is_empty(),
        "{who}: {} differ; {}",
        differences.len(),
        first.unwrap_or_default()
    );
    assert_eq!(report["complaints"], json!([]), "{who}");
    let number = |name: &str| report[name].as_u64().expect("a number");
    let (compared, unresolved) = (number("compared"), number("unresolved"));
    assert!(compared >= comparisons, "{who}: {compared}");
    let share = compared * 100 / (compared + unresolved);
    assert!(share >= RESOLVED_MIN_PERCENT, "{who}: {share} % resolved");
}

#[test]
fn the_server_and_the_evaluators_of_the_sdks_agree() {
    let server = TestServer::start_with(&[("WEIR_LOG", "warn")]);
    let seed = std::env::var_os("WEIR_TEST_SEED").and_then(|seed| seed.into_string().ok());
    let seed = seed.unwrap_or_else(|| rand::random::<u32>().to_string());
    println!("WEIR_TEST_SEED={seed}");
    let cases: PathBuf = server.data_dir().with_file_name("cases.jsonl");
    let mut driver = python();
    driver.arg(source("differential.py")).args([&server.url(), TOKEN, KEY, &seed]);
    driver.arg(COMPARISONS.to_string()).arg(&cases);
    let found = report(driver);
    println!("Python: {} compared, {} open", found["compared"], found["unresolved"]);
    check(&found, COMPARISONS, &format!("the Python SDK, seed {seed}"));
    for value in ["True", "False", "a", "b"] {
        assert!(found["values"][value].as_u64() > Some(COMPARISONS / 100), "few {value}: {found}");
    }
    let mut driver = Command::new(tools().join("nodejs/bin/node"));
    driver.arg(source("differential.mjs")).arg(tools().join("posthog-node-5/node_modules"));
    driver.args([&server.url(), TOKEN, KEY]).arg(&cases);
    let found = report(driver);
    println!("posthog-node: {} compared, {} open", found["compared"], found["unresolved"]);
    check(&found, NODE_COMPARISONS, &format!("posthog-node, seed {seed}"));
}

/// Differences by design between the server and the Python SDK; the server follows PostHog's server.
/// `None` stands for a result that the SDK cannot compute and requests from the server.
#[test]
fn known_differences_are_these() {
    let server = TestServer::start();
    let person = |key: &str, operator: &str, value: Value| json!({"properties": [{"key": key, "type": "person", "operator": operator, "value": value}]});
    let list = server.post("/api/projects/1/cohorts/", &json!({"name": "list", "is_static": true}));
    let listed =
        json!({"key": "id", "type": "cohort", "value": list.json()["id"], "operator": "not_in"});
    let (on, open) = (json!(true), None);
    let table: Vec<(&str, Value, Value, Option<Value>)> = vec![
        ("absent-is-not", person("none", "is_not", json!("x")), on.clone(), open.clone()),
        ("absent-is-not-set", person("none", "is_not_set", json!("x")), on.clone(), open.clone()),
        ("absent-exact", person("none", "exact", json!("x")), json!(false), open.clone()),
        ("between", person("number", "between", json!([1, 9])), on.clone(), open.clone()),
        ("multi", person("text", "icontains_multi", json!(["a", "p"])), on.clone(), open.clone()),
        (
            "date-exact",
            person("date", "is_date_exact", json!("2020-01-01T00:00:00Z")),
            on.clone(),
            open.clone(),
        ),
        (
            "date-of-number",
            person("epoch", "is_date_after", json!("2020-01-01T00:00:00Z")),
            on.clone(),
            open.clone(),
        ),
        ("word-boundary", person("text", "regex", json!("\\bpro\\b")), on.clone(), open.clone()),
        (
            "pre-release",
            person("beta", "semver_lt", json!("1.2.3")),
            on.clone(),
            Some(json!(false)),
        ),
        ("leading-zero", person("zero", "semver_eq", json!("1.2.3")), on.clone(), open.clone()),
        ("static-cohort", json!({"properties": [listed]}), on.clone(), open.clone()),
        ("look-ahead", person("text", "regex", json!("a(?= pro)")), on.clone(), open.clone()),
    ];
    let mut flags: Vec<Value> = table
        .iter()
        .map(|(key, condition, ..)| json!({"key": key, "filters": {"groups": [condition]}}))
        .collect();
    let everyone = json!({"groups": [{"properties": []}]});
    flags.push(
        json!({"key": "continuity", "filters": everyone, "ensure_experience_continuity": true}),
    );
    let mut joined = json!({"groups": [{"properties": []}], "feature_enrollment": true});
    flags.push(json!({"key": "not-asked", "filters": joined}));
    joined["payloads"] = json!({"true": "1"});
    flags.push(json!({"key": "left", "filters": joined}));
    flags.push(json!({"key": "inactive", "filters": everyone, "active": false}));
    let unmapped = json!({"groups": [{"properties": []}], "aggregation_group_type_index": 3});
    flags.push(json!({"key": "unmapped-group", "filters": unmapped}));
    for flag in &flags {
        let answer = server.post("/api/projects/1/feature_flags/", flag);
        assert_eq!(answer.status, 201, "{answer}");
    }
    let person = json!({
        "text": "a pro", "number": 5, "date": "2020-01-01T01:00:00+01:00", "epoch": 1_700_000_000,
        "beta": "1.2.3-beta", "zero": "1.02.03", "$feature_enrollment/left": false,
    });
    let body = json!({"api_key": TOKEN, "distinct_id": "ada", "person_properties": person, "geoip_disable": true});
    let answer = server.send("POST", "/flags/?v=2", &[], body.to_string()).json();
    let mut driver = python();
    driver.arg(source("local.py")).args([&server.url(), TOKEN, KEY]);
    let input = json!({"distinct_id": "ada", "person": person}).to_string();
    let file = server.data_dir().with_file_name("asked.jsonl");
    std::fs::write(&file, input).expect("a file");
    driver.stdin(std::fs::File::open(&file).expect("the file"));
    let sdk = report(driver);
    let more = [
        ("continuity", Value::Null, on.clone(), open.clone()),
        ("not-asked", Value::Null, on.clone(), open.clone()),
        ("left", Value::Null, json!(false), Some(json!(false))),
        // The server leaves out what is switched off.
        ("inactive", Value::Null, Value::Null, Some(json!(false))),
        ("unmapped-group", Value::Null, json!(false), open),
    ];
    for (key, _, expected, of_sdk) in table.into_iter().chain(more) {
        assert_eq!(answer["flags"][key]["enabled"], expected, "{key}: {answer}");
        assert_eq!(sdk["flags"].get(key), of_sdk.as_ref(), "{key}: {sdk}");
    }
    assert_eq!(answer["flags"]["left"]["metadata"]["payload"], "1");
    assert_eq!(sdk["payloads"].get("left"), None);
}
