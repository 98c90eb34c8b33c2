//! Released SDKs against a real server, and other engines on its tables.
//!
//! The drivers under `tests/sdk` print what they did. The tests compare that with every read path of
//! the server: SQL, persons, event definitions, flags, and after shutdown the Parquet files as read
//! by DuckDB, Polars, PyArrow and deltalake. `scripts/test-tools.sh` has the versions and installs
//! them at the first run. If it cannot install them, the test fails: a green run means that the SDKs
//! work.

mod browser;
mod differences;
mod drivers;
mod journey;
mod openfeature;
mod opentelemetry;
mod pages;
mod snippet;
mod stored;

pub(crate) use drivers::{source, tools};

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer};
use crate::sdk::drivers::{Sdk, of_kind};
use crate::sdk::stored::str_of;

/// Every server SDK, with every protocol and compression that it supports.
const DRIVERS: [(&str, Sdk); 23] = [
    ("python-2-plain", Sdk::Python("posthog-2", "plain")),
    ("python-2-gzip", Sdk::Python("posthog-2", "gzip")),
    ("python-3-plain", Sdk::Python("posthog-3", "plain")),
    ("python-3-gzip", Sdk::Python("posthog-3", "gzip")),
    ("python-5-plain", Sdk::Python("posthog-5", "plain")),
    ("python-5-gzip", Sdk::Python("posthog-5", "gzip")),
    ("python-7-plain", Sdk::Python("posthog-7", "plain")),
    ("python-7-gzip", Sdk::Python("posthog-7", "gzip")),
    ("python-7-v1-none", Sdk::Python("posthog-7", "v1-none")),
    ("python-7-v1-gzip", Sdk::Python("posthog-7", "v1-gzip")),
    ("python-7-v1-deflate", Sdk::Python("posthog-7", "v1-deflate")),
    ("python-7-v1-zstd", Sdk::Python("posthog-7", "v1-zstd")),
    ("node-4-plain", Sdk::Node("posthog-node-4", "plain")),
    ("node-4-form", Sdk::Node("posthog-node-4", "form")),
    ("node-5-plain", Sdk::Node("posthog-node-5", "plain")),
    ("node-5-gzip", Sdk::Node("posthog-node-5", "gzip")),
    ("node-5-v1-plain", Sdk::Node("posthog-node-5", "v1-plain")),
    ("node-5-v1-gzip", Sdk::Node("posthog-node-5", "v1-gzip")),
    ("rust-v0-none", Sdk::Rust("v0", "none")),
    ("rust-v0-gzip", Sdk::Rust("v0", "gzip")),
    ("rust-v1-deflate", Sdk::Rust("v1", "deflate")),
    ("rust-v1-br", Sdk::Rust("v1", "br")),
    ("rust-v1-zstd", Sdk::Rust("v1", "zstd")),
];

#[test]
fn real_sdks_are_understood_and_other_engines_read_the_tables() {
    let tools = tools();
    let mut server = TestServer::start();
    create_flags(&server);
    let said = drivers::run(&tools, &DRIVERS, &server.url(), (TOKEN, KEY));
    let rows = stored::sql(&server, stored::ALL_EVENTS);
    assert_eq!(said.len(), DRIVERS.len());
    for (who, said) in &said {
        assert_eq!(of_kind(said, "nobody").count(), 1, "{who}");
        stored::check_events(who, said, &rows);
        stored::check_persons(&server, said, &rows);
        stored::check_groups(&server, said);
        check_flags(who, said);
    }
    let events = said.iter().flat_map(|(_, said)| of_kind(said, "event"));
    // One is the flags' group.
    assert_eq!(rows.len(), events.count() + 1, "nothing is stored that nobody sent");
    stored::check_definitions(&server, &rows);
    server.stop();
    assert_eq!(server.query(stored::ALL_EVENTS), rows, "the end of the server changes no answer");
    check_engines(&tools, &server, &rows);
}

/// Flags for every kind of response, and the group type that one of them uses.
fn create_flags(server: &TestServer) {
    let group = json!({"$group_type": "company", "$group_key": "first", "$group_set": {}});
    let event = json!({"event": "$groupidentify", "distinct_id": "seed", "properties": group});
    let answer = server.capture(&json!([event]));
    assert_eq!(answer.status, 200, "{answer}");
    let rollout = |percentage: u8| json!([{"properties": [], "rollout_percentage": percentage}]);
    let email = json!({
        "key": "email", "type": "person", "operator": "icontains", "value": "@shop.example",
    });
    let size = json!({
        "key": "size", "type": "group", "group_type_index": 0, "operator": "gt", "value": "5",
    });
    for (key, filters) in [
        ("everyone", json!({"groups": rollout(100)})),
        ("nobody", json!({"groups": rollout(0)})),
        (
            "colour",
            json!({
                "groups": rollout(100),
                "multivariate": {"variants": [
                    {"key": "blue", "rollout_percentage": 100},
                    {"key": "red", "rollout_percentage": 0},
                ]},
                "payloads": {"blue": r##"{"hex": "#00f"}"##},
            }),
        ),
        ("by-email", json!({"groups": [{"properties": [email], "rollout_percentage": 100}]})),
        (
            "by-group",
            json!({
                "groups": [{"properties": [size], "rollout_percentage": 100}],
                "aggregation_group_type_index": 0,
            }),
        ),
    ] {
        let flag = json!({"key": key, "name": key, "active": true, "filters": filters});
        let answer = server.post("/api/projects/1/feature_flags/", &flag);
        assert_eq!(answer.status, 201, "{answer}");
    }
}

/// The values of the flags of [`create_flags`] for the persons of the drivers.
fn check_flags(who: &str, said: &[Value]) {
    let answers: Vec<(&str, &str, &Value)> = of_kind(said, "flag")
        .map(|flag| (str_of(flag, "key"), str_of(flag, "distinct_id"), &flag["value"]))
        .collect();
    let (member, user) = (format!("{who}-member"), format!("{who}-user-0"));
    let expected = [
        ("everyone", &*member, &json!(true)),
        ("nobody", &*member, &json!(false)),
        ("colour", &*member, &json!("blue")),
        ("by-email", &*member, &json!(true)),
        ("by-email", &*user, &json!(false)),
        ("by-group", &*member, &json!(true)),
    ];
    assert_eq!(answers, expected, "{who}");
    let payloads: Vec<&Value> = of_kind(said, "payload").map(|what| &what["value"]).collect();
    assert_eq!(payloads, [&json!({"hex": "#00f"})], "{who}");
    let all = json!({
        "everyone": true, "nobody": false, "colour": "blue", "by-email": true, "by-group": true,
    });
    // posthog-rs has no call for all of them.
    let expected = if who.starts_with("rust-") { vec![] } else { vec![&all] };
    let answers: Vec<&Value> = of_kind(said, "flags").map(|flags| &flags["values"]).collect();
    assert_eq!(answers, expected, "{who}");
}

/// Every engine finds the same rows as Weir's SQL.
fn check_engines(tools: &Path, server: &TestServer, rows: &[Value]) {
    let files = server.files();
    assert!(!files.is_empty(), "SIGTERM flushes");
    let mut command = Command::new(tools.join("readers/bin/python"));
    command.arg(drivers::source("read.py")).arg(server.data_dir()).stdin(Stdio::piped());
    let mut reading = command.stdout(Stdio::piped()).spawn().expect("read.py starts");
    let mut stdin = reading.stdin.take().expect("its standard input");
    for file in files {
        writeln!(stdin, "{}", file.display()).expect("read.py listens");
    }
    drop(stdin);
    let output = reading.wait_with_output().expect("read.py ends");
    assert!(output.status.success(), "read.py: {}", output.status);
    // In the order of `read.py`.
    let columns =
        ["uuid", "event", "distinct_id", "group_0", "properties", "p_$screen_width", "micros"];
    let expected: Vec<Value> = rows
        .iter()
        .map(|row| Value::Array(columns.iter().map(|name| row[*name].clone()).collect()))
        .collect();
    let engines = drivers::lines(&output.stdout);
    assert_eq!(engines.len(), 5);
    for engine in engines {
        let name = str_of(&engine, "engine");
        let found = engine["rows"].as_array().expect("rows");
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name}");
        }
    }
}
