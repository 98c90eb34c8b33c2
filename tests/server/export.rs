//! `weir export` with a real server: what leaves one project comes into another and leaves again equal, as DuckDB and PyArrow
//! read the files.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer, binary, run};
use crate::sdk::tools;

fn weir(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(directory);
    command.env("WEIR_PROJECT_API_KEY", TOKEN).env("WEIR_PERSONAL_API_KEY", KEY);
    command.output().expect("weir")
}

fn done(arguments: &[&str], directory: &Path) -> String {
    let output = weir(arguments, directory);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Events with everything that may change on the way: groups, elements, texts, numbers, persons who merge, and those without
/// a person.
fn events(count: usize) -> Value {
    let event = |n: usize| {
        json!({
            "uuid": format!("0190e5a2-7a5c-7000-8000-{n:012}"),
            "event": if n % 50 == 3 { "$identify" } else { "seen" },
            "distinct_id": format!("user {}", n % 20),
            "timestamp": format!("2024-06-15T14:{:02}:{:02}.{:06}Z", n / 60 % 60, n % 60, n * 7 % 1_000_000),
            "properties": {
                "n": n, "exact": 0.1, "text": "é\"\\\n\u{1F600}\u{0}", "deep": [[{"a": null}]],
                "$groups": {["company", "team"][n % 2]: format!("g{}", n % 3)},
                "$elements_chain": if n.is_multiple_of(4) { "a:href=\"/x\"text=\"Go\"" } else { "" },
                "$anon_distinct_id": format!("anonymous {}", n % 20),
                "$process_person_profile": !n.is_multiple_of(11) || n % 50 == 3,
                "$set": {"plan": n % 5}, "$ip": "1.2.3.4",
            },
        })
    };
    Value::Array((0..count).map(event).collect())
}

/// Compares two directories of exports cell by cell: properties as the values that they are, persons by their distinct ids,
/// because an id of a person is made of the first of them. Also that a second engine reads the same.
const COMPARE: &str = r#"
import json, sys
import duckdb, pyarrow.parquet as pq
def table(path):
    rows = pq.read_table(path).to_pylist()
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet('{path}')").fetchall()[0][0] == len(rows)
    return rows
def read(directory):
    people, events = table(f"{directory}/persons.parquet"), table(f"{directory}/events.parquet")
    names = {}
    for row in people:
        names.setdefault(row["person_id"], []).append(row["distinct_id"])
    names = {id: sorted(all) for id, all in names.items()}
    for row in people + events:
        row["person_id"] = names.get(row["person_id"], "nobody")
        for key in ("properties", "person_properties"):
            if row.get(key) is not None:
                row[key] = json.loads(row[key])
                # Numbers of groups are those of the project.
                for own in ["$creator_event_uuid", "$group_0", "$group_1"]:
                    row[key].pop(own, None)
    return sorted(people, key=lambda row: row["distinct_id"]), sorted(events, key=lambda row: row["uuid"])
first, second = map(read, sys.argv[1:])
for one, other in zip(first, second):
    assert len(one) == len(other) and one, (len(one), len(other))
    for left, right in zip(one, other):
        assert left.keys() == right.keys()
        for key in left:
            assert left[key] == right[key], (key, left, right)
print(len(first[0]), len(first[1]))
"#;

/// Removes the person that was there before.
const WITHOUT_X: &str = "
import pyarrow.parquet as pq, pyarrow.compute as pc
people = pq.read_table('second/persons.parquet')
pq.write_table(people.filter(pc.not_equal(people['distinct_id'], 'x')), 'second/persons.parquet')";

/// Goal: out of one project, into another, and out again: every cell is the same, and there is nothing more.
#[test]
fn what_leaves_comes_back_equal() {
    let (one, other) = (TestServer::start(), TestServer::start());
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (from, to) = (one.url(), other.url());
    assert_eq!(one.capture(&events(1_000)).status, 200);
    // The other project numbers its group types in another order.
    let group =
        json!([{"event": "x", "distinct_id": "x", "properties": {"$groups": {"team": "t"}}}]);
    assert_eq!(other.capture(&group).status, 200);
    done(&["export", "project", "--out", "first", "--url", &from], at);
    let files = ["first/events.parquet", "first/persons.parquet"];
    for _ in 0..2 {
        let options = ["--from", "posthog", "--restart", "--url", &to];
        done(&[&["import"], &files[..], &options[..]].concat(), at);
    }
    fs::create_dir(at.join("second")).unwrap();
    done(&["export", "persons", "--out", "second/persons.parquet", "--url", &to], at);
    let until = ["--to", "2025-01-01T00:00:00Z", "--out", "second/events.parquet"];
    done(&[&["export", "events", "--url", &to], &until[..]].concat(), at);
    let python = tools().join("readers/bin/python");
    for (script, arguments) in [(WITHOUT_X, &[][..]), (COMPARE, &["first", "second"])] {
        let mut command = Command::new(&python);
        command.arg("-c").arg(script).args(arguments).current_dir(at);
        run(command);
    }
    // The same as JSON lines.
    let lines = ["--format", "posthog-jsonl", "--out", "lines.jsonl"];
    done(&[&["export", "events", "--url", &from], &lines[..]].concat(), at);
    let lines = fs::read_to_string(at.join("lines.jsonl")).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(lines.lines().count(), 1_000);
    assert!(first["properties"].is_object(), "{first}");
    done(&["import", "lines.jsonl", "--from", "posthog", "--url", &to], at);
    assert_eq!(other.count("SELECT count(*) FROM events"), 1_001);
}

#[test]
fn everything_of_a_project_is_written() {
    let server = TestServer::start();
    let directory = tempfile::tempdir().unwrap();
    let (at, url) = (directory.path(), server.url());
    assert_eq!(server.capture(&events(100)).status, 200);
    let conditions = json!({"groups": [{"properties": [], "rollout_percentage": 100}]});
    let flag = json!({"key": "f", "filters": conditions});
    assert_eq!(server.post("/api/projects/1/feature_flags/", &flag).status, 201);
    done(&["export", "project", "--out", "all", "--format", "csv", "--url", &url], at);
    let read = |name: &str| fs::read_to_string(at.join("all").join(name)).unwrap();
    assert!(read("events.csv").lines().count() > 100);
    assert!(read("event_definitions.csv").contains("seen"));
    assert!(read("property_definitions.csv").contains("exact"));
    let flag: Value = serde_json::from_str(read("feature_flags.jsonl").trim()).unwrap();
    assert_eq!(flag["key"], "f");
    let project: Value = serde_json::from_str(&read("project.json")).unwrap();
    assert_eq!(project["id"], 1);
    // To the standard output, and within a range of time.
    let range = ["--format", "jsonl", "--from", "2024-06-15T14:01:00Z"];
    let lines = done(&[&["export", "events", "--url", &url], &range[..]].concat(), at);
    assert_eq!(lines.lines().count(), 40);
    assert_eq!(done(&["export", "flags", "--url", &url], at).lines().count(), 1);
    // What cannot be is told, and leaves no file.
    for (arguments, expected) in [
        (&["export", "events", "--key", "phx_wrong", "--out", "x", "--url", &url][..], "key"),
        (&["export", "definitions", "--url", &url], "--out DIR"),
        (&["export", "events", "--out", "none/x", "--url", &url], "cannot write"),
        (&["export", "events", "--project", "99", "--out", "x", "--url", &url], ""),
        (&["export", "events", "--url", "http://127.0.0.1:9"], "cannot reach"),
    ] {
        let output = weir(arguments, at);
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        let is_told = said.contains(&expected.to_lowercase());
        assert!(!output.status.success() && is_told, "{arguments:?}: {said}");
        assert!(!at.join("x").exists());
    }
}
