//! The real SDKs against a real server, and the tables against the engines of others.
//!
//! The drivers under `tests/sdk` say what they did; here that is compared with what every door of
//! the server answers: SQL, persons, event definitions, flags, and after the end of the server the
//! Parquet files as DuckDB, Polars, PyArrow and deltalake read them. The versions stand in
//! `scripts/test-tools.sh`, which installs them at the first run. A machine that cannot install them
//! fails the test: a green run means that the SDKs work.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;

use chrono::DateTime;
use serde_json::Value;
use serde_json::json;

use crate::harness::TOKEN;
use crate::harness::TestServer;

/// Difference between a timestamp as given and as stored: the time from the SDK's `sent_at` to the
/// arrival counts as an error of the sender's clock.
const TRANSIT_MAX_MICROS: i64 = 10_000_000;

/// One way to run an SDK: its tag in ids, program, and coding of bodies.
const DRIVERS: [(&str, Sdk, &str); 6] = [
    ("python-new-gzip", Sdk::Python("sdk-new"), "gzip"),
    ("python-new-plain", Sdk::Python("sdk-new"), "plain"),
    ("python-old-gzip", Sdk::Python("sdk-old"), "gzip"),
    ("python-old-plain", Sdk::Python("sdk-old"), "plain"),
    ("node-gzip", Sdk::Node, "gzip"),
    ("node-plain", Sdk::Node, "plain"),
];

#[derive(Clone, Copy, Debug)]
enum Sdk {
    /// The Python environment.
    Python(&'static str),
    Node,
}

/// Events that each driver sends, at least.
const EVENTS_MIN: usize = 150;

#[test]
fn real_sdks_are_understood_and_other_engines_read_the_tables() {
    let tools = tools();
    let mut server = TestServer::start();
    create_flags(&server);
    let said: Vec<(&str, Vec<Value>)> = thread::scope(|scope| {
        let url = server.url();
        let runs = DRIVERS.map(|(who, sdk, coding)| {
            let (tools, url) = (&tools, url.clone());
            scope.spawn(move || (who, drive(tools, sdk, &[&url, TOKEN, who, coding])))
        });
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let sql = "SELECT *, CAST(timestamp AS BIGINT) AS micros FROM events ORDER BY uuid";
    let rows = server.query(sql);
    for (who, said) in &said {
        check_events(who, said, &rows);
        check_persons(&server, said, &rows);
        check_groups(&server, said);
        check_flags(who, said);
    }
    let events = said.iter().flat_map(|(_, said)| said).filter(|what| what["kind"] == "event");
    assert_eq!(rows.len(), events.count(), "nothing is stored that nobody sent");
    check_definitions(&server, &rows);
    server.stop();
    assert_eq!(server.query(sql), rows, "the end of the server changes no answer");
    check_engines(&tools, &server, &rows);
}

/// Installs what is missing.
pub(crate) fn tools() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test-tools.sh");
    let output = Command::new(script).stderr(Stdio::inherit()).output().expect("test-tools.sh");
    assert!(output.status.success(), "the SDKs cannot be installed: {}", output.status);
    PathBuf::from(String::from_utf8(output.stdout).expect("UTF-8").trim_end())
}

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(name)
}

/// Runs a driver to its end; what it said.
fn drive(tools: &Path, sdk: Sdk, arguments: &[&str]) -> Vec<Value> {
    let mut command = match sdk {
        Sdk::Python(environment) => {
            let mut command = Command::new(tools.join(environment).join("bin/python"));
            command.arg(source("python.py"));
            command
        }
        Sdk::Node => {
            let mut command = Command::new("node");
            command.arg(source("node.mjs")).arg(tools.join("node/node_modules"));
            command
        }
    };
    let output = command.args(arguments).output().expect("the driver starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    lines(&output.stdout)
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn create_flags(server: &TestServer) {
    let rollout = |percentage: u8| json!([{"properties": [], "rollout_percentage": percentage}]);
    let email = json!({
        "key": "email", "type": "person", "operator": "icontains", "value": "@shop.example",
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
    ] {
        let flag = json!({"key": key, "name": key, "active": true, "filters": filters});
        let answer = server.post("/api/projects/1/feature_flags/", &flag);
        assert_eq!(answer.status, 201, "{answer}");
    }
}

fn of_kind<'a>(said: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    said.iter().filter(move |what| what["kind"] == kind)
}

fn str_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn properties(row: &Value) -> Value {
    serde_json::from_str(str_of(row, "properties")).expect("properties are JSON")
}

/// Every event that was sent is a row: found by uuid where the SDK takes one, else by name, distinct
/// id and properties. Properties that the SDK adds of its own are not looked at.
fn check_events(who: &str, said: &[Value], rows: &[Value]) {
    let mut by_uuid: BTreeMap<&str, &Value> =
        rows.iter().map(|row| (str_of(row, "uuid"), row)).collect();
    let (named, unnamed): (Vec<_>, Vec<_>) =
        of_kind(said, "event").partition(|event| event["uuid"].is_string());
    assert!(named.len() >= EVENTS_MIN, "{who} sent little");
    for event in named {
        let row = by_uuid.remove(str_of(event, "uuid"));
        let row = row.unwrap_or_else(|| panic!("not stored: {event}"));
        check_event(event, row).unwrap_or_else(|problem| panic!("{problem}\n{event}\n{row}"));
    }
    for event in unnamed {
        let row = by_uuid.values().find(|row| check_event(event, row).is_ok());
        let row = row.unwrap_or_else(|| panic!("not stored: {event}"));
        let uuid = str_of(row, "uuid");
        by_uuid.remove(uuid);
    }
}

fn check_event(event: &Value, row: &Value) -> Result<(), String> {
    for name in ["event", "distinct_id"] {
        if event[name] != row[name] {
            return Err(format!("{name} differs"));
        }
    }
    let stored = properties(row);
    for (name, given) in event["properties"].as_object().into_iter().flatten() {
        if !is_same(given, &stored[name]) {
            return Err(format!("{name} is {} instead of {given}", stored[name]));
        }
    }
    if event["group_0"] != row["group_0"] {
        return Err("the group differs".to_owned());
    }
    if let Some(given) = event["timestamp"].as_str() {
        let given = DateTime::parse_from_rfc3339(given).expect("a time").timestamp_micros();
        let stored = row["micros"].as_i64().expect("a time");
        if (stored - given).abs() > TRANSIT_MAX_MICROS {
            return Err(format!("the time is {stored} instead of {given}"));
        }
    }
    Ok(())
}

/// Equal as JSON, where `1e21` and `1000000000000000000000` are one number.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

/// One person has all the distinct ids, no other, and the properties; all events of the distinct
/// ids are that person's.
fn check_persons(server: &TestServer, said: &[Value], rows: &[Value]) {
    for person in of_kind(said, "person") {
        let ids: BTreeSet<&str> = person["distinct_ids"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut uuids = BTreeSet::new();
        for id in &ids {
            let list = server.get(&format!("/api/projects/1/persons/?distinct_id={id}")).json();
            assert_eq!(list["count"], 1, "{id}: {list}");
            let found = &list["results"][0];
            let found_ids = found["distinct_ids"].as_array().expect("distinct ids").iter();
            let found_ids: BTreeSet<&str> = found_ids.filter_map(Value::as_str).collect();
            assert_eq!(found_ids, ids, "{found}");
            for (name, given) in person["properties"].as_object().into_iter().flatten() {
                assert!(is_same(given, &found["properties"][name]), "{name} of {found}");
            }
            for name in person["absent"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("a name");
                assert!(found["properties"].get(name).is_none(), "{name} of {found}");
            }
            uuids.insert(str_of(found, "uuid").to_owned());
        }
        assert_eq!(uuids.len(), 1, "{ids:?}");
        let theirs = rows.iter().filter(|row| ids.contains(str_of(row, "distinct_id")));
        for row in theirs {
            assert!(uuids.contains(str_of(row, "person_id")), "another person's: {row}");
        }
    }
}

fn check_groups(server: &TestServer, said: &[Value]) {
    for group in of_kind(said, "group") {
        let sql = format!("SELECT * FROM groups WHERE key = '{}'", str_of(group, "key"));
        let rows = server.query(&sql);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(is_same(&properties(&rows[0]), &group["properties"]), "{}", rows[0]);
    }
}

/// What the flags of [`create_flags`] answer for the persons of the drivers.
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
    ];
    assert_eq!(answers, expected, "{who}");
    let payloads: Vec<&Value> = of_kind(said, "payload").map(|what| &what["value"]).collect();
    assert_eq!(payloads, [&json!({"hex": "#00f"})], "{who}");
}

/// The names of the events, and nothing else, page by page.
fn check_definitions(server: &TestServer, rows: &[Value]) {
    let names: BTreeSet<String> = rows.iter().map(|row| str_of(row, "event").to_owned()).collect();
    let mut listed = Vec::new();
    let mut next = Some("/api/projects/1/event_definitions/?limit=3".to_owned());
    while let Some(path) = next {
        let page = server.get(&path).json();
        assert_eq!(page["count"], names.len(), "{page}");
        let results = page["results"].as_array().expect("results");
        listed.extend(results.iter().map(|definition| str_of(definition, "name").to_owned()));
        let link = page["next"].as_str();
        next = link.map(|link| link.strip_prefix(&server.url()).expect("our address").to_owned());
    }
    assert_eq!(listed.len(), names.len(), "each once: {listed:?}");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
}

/// Every engine finds the same rows as SQL of ours.
fn check_engines(tools: &Path, server: &TestServer, rows: &[Value]) {
    let files = server.files();
    assert!(!files.is_empty(), "SIGTERM flushes");
    let mut command = Command::new(tools.join("readers/bin/python"));
    command.arg(source("read.py")).arg(server.data_dir()).stdin(Stdio::piped());
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
    let engines = lines(&output.stdout);
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
