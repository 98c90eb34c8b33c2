//! Flags as the server answers them, against the evaluators inside the released SDKs: hundreds of
//! thousands of random questions, and a table of what the two see differently by design.

use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use serde_json::Value;
use serde_json::json;

use crate::harness::KEY;
use crate::harness::TOKEN;
use crate::harness::TestServer;
use crate::sdk::source;
use crate::sdk::tools;

/// Comparisons with the Python SDK, at least.
const COMPARISONS: u64 = 200_000;

/// Comparisons with posthog-node, at least: of the last round of the others.
const NODE_COMPARISONS: u64 = 40_000;

/// Of a hundred results, those that the SDK must have computed itself, at least: below that the
/// generator asks for what SDKs cannot know.
const RESOLVED_MIN_PERCENT: u64 = 95;

/// The last line that a driver wrote.
fn report(mut command: Command) -> Value {
    let output = command.output().expect("the driver starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {text} {stderr}"))
}

fn python() -> Command {
    Command::new(tools().join("sdk-new/bin/python"))
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = match std::env::var("WEIR_TEST_SEED") {
        Ok(seed) => seed,
        Err(_) => (now.as_nanos() % 1_000_000_000).to_string(),
    };
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
    let mut driver = Command::new("node");
    driver.arg(source("differential.mjs")).arg(tools().join("node/node_modules"));
    driver.args([&server.url(), TOKEN, KEY]).arg(&cases);
    let found = report(driver);
    println!("posthog-node: {} compared, {} open", found["compared"], found["unresolved"]);
    check(&found, NODE_COMPARISONS, &format!("posthog-node, seed {seed}"));
}
