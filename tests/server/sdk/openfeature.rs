//! Released OFREP providers of OpenFeature against a real server: each kind of flag, on and off, and
//! unknown flags.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer};
use crate::sdk::{drivers, source, tools};

fn create(server: &TestServer, key: &str, more: &[(&str, Value)]) {
    let mut flag = json!({"key": key, "active": true});
    for (name, value) in more {
        flag[*name] = value.clone();
    }
    server.post("/api/projects/1/feature_flags/", &flag).created();
}

/// Runs a program on all requests; returns its results.
fn answers(mut command: Command, questions: &[Value]) -> Vec<Value> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().expect("the provider starts");
    let mut stdin = running.stdin.take().expect("its standard input");
    for question in questions {
        writeln!(stdin, "{question}").expect("the provider listens");
    }
    drop(stdin);
    let output = running.wait_with_output().expect("the provider ends");
    assert!(output.status.success(), "the provider: {}", output.status);
    drivers::lines(&output.stdout)
}

#[test]
fn released_providers_of_openfeature_understand_every_flag() {
    let tools = tools();
    let server = TestServer::start();
    let groups = |properties: Value| json!([{"properties": properties, "rollout_percentage": 100}]);
    let plan = groups(json!([{"key": "plan", "type": "person", "value": ["pro"]}]));
    let variants = json!({"variants": [{"key": "blue", "rollout_percentage": 100}]});
    create(&server, "everyone", &[("filters", json!({"groups": groups(json!([]))}))]);
    create(&server, "pro", &[("filters", json!({"groups": plan}))]);
    create(&server, "off", &[("active", json!(false))]);
    let colour = json!({"groups": plan, "multivariate": variants});
    create(&server, "colour", &[("filters", colour.clone())]);
    create(&server, "grey", &[("active", json!(false)), ("filters", colour)]);
    let (pro, free) = (json!({"plan": "pro"}), json!({"plan": "free"}));
    // A flag with variants that is off has no value, so that the program's own counts.
    let cases = [
        ("everyone", json!(false), &free, json!([true, "true", "STATIC", null])),
        ("pro", json!(false), &pro, json!([true, "true", "TARGETING_MATCH", null])),
        ("pro", json!(true), &free, json!([false, "false", "DEFAULT", null])),
        ("off", json!(true), &pro, json!([false, "false", "DISABLED", null])),
        ("colour", json!("red"), &pro, json!(["blue", "blue", "SPLIT", null])),
        ("colour", json!("red"), &free, json!(["red", "false", "DEFAULT", null])),
        ("grey", json!("red"), &pro, json!(["red", "false", "DISABLED", null])),
        ("none", json!(true), &pro, json!([true, null, "ERROR", "FLAG_NOT_FOUND"])),
        ("colour", json!(true), &pro, json!([true, null, "ERROR", "TYPE_MISMATCH"])),
    ];
    let questions: Vec<Value> = cases
        .iter()
        .map(|(flag, default, context, _)| {
            json!({"flag": flag, "default": default, "key": "ada", "context": context})
        })
        .collect();
    let mut python = Command::new(tools.join("openfeature-python/bin/python"));
    python.arg(source("ofrep.py"));
    let mut node = Command::new(tools.join("nodejs/bin/node"));
    node.arg(source("ofrep.mjs")).arg(tools.join("openfeature-node/node_modules"));
    for (name, mut command) in [("Python", python), ("Node", node)] {
        command.args([&server.url(), TOKEN]);
        let found = answers(command, &questions);
        assert_eq!(found.len(), cases.len(), "{name}");
        for ((flag, default, context, expected), found) in cases.iter().zip(&found) {
            let told = ["value", "variant", "reason", "error"].map(|what| found[what].clone());
            // The provider for Node takes an answer without a value for a failure; the program gets its
            // own value all the same.
            let has_no_value = expected[1] == "false" && expected[0] == *default && name == "Node";
            let failure = json!([default, null, "ERROR", "GENERAL"]);
            let expected = if has_no_value { &failure } else { expected };
            assert_eq!(json!(told), *expected, "{name}: {flag}, else {default}, {context}");
        }
    }
}
