//! Other engines over the tables, most of which run on several machines too: each counts the events and the persons that
//! SQL on the server counts, after merges, on a disk and in a bucket.

use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer, run};
use crate::s3::MOVED_TO;
use crate::sdk::{source, tools};
use crate::support::bucket::{Moto, settings};

/// People who come with three ids each.
const PEOPLE: u32 = 400;

/// Merges of files would put the persons of today into them.
const UNMERGED: (&str, &str) = ("WEIR_COMPACTION_INTERVAL", "1h");

/// Events of people before and after half of them are merged, and of another project with the same ids.
fn fill(server: &TestServer) {
    let mut random = StdRng::seed_from_u64(11);
    let (_, other) = server.project("Other");
    let send = |token: &str, events: &[Value]| {
        let body = json!({"api_key": token, "batch": events}).to_string();
        let answer = server.send("POST", "/batch/", &[("content-type", "application/json")], body);
        assert_eq!(answer.status, 200, "{answer}");
    };
    let mut visits = |count: u32| -> Vec<Value> {
        let visit = |_| {
            let (person, month) = (random.random_range(0..PEOPLE), random.random_range(1..4));
            let kind = ["anonymous", "user", "device"][random.random_range(0..3)];
            let event = ["visit", "buy"][random.random_range(0..2)];
            json!({
                "event": event,
                "distinct_id": format!("{kind} {person}"),
                "timestamp": format!("2026-0{month}-15T10:00:00Z"),
                "properties": {"$process_person_profile": person % 7 != 0},
            })
        };
        (0..count).map(visit).collect()
    };
    for _ in 0..3 {
        send(TOKEN, &visits(1_000));
        send(&other, &visits(100));
        server.flush();
    }
    let merge = |event: &str, person: u32, key: &str, other: &str| {
        json!({"event": event, "distinct_id": format!("user {person}"), "timestamp": "2026-03-20T10:00:00Z",
               "properties": {key: format!("{other} {person}")}})
    };
    let identified = (0..PEOPLE / 2).flat_map(|person| {
        [
            merge("$identify", person, "$anon_distinct_id", "anonymous"),
            merge("$create_alias", person, "alias", "device"),
        ]
    });
    send(TOKEN, &identified.collect::<Vec<_>>());
    send(TOKEN, &visits(1_000));
    run(server.weir(&["flush", "--persons"]));
}

/// The answer of the server: event, events, persons.
fn counted(server: &TestServer) -> Value {
    let sql = "SELECT event, count(*), count(DISTINCT person_id) FROM events GROUP BY 1 ORDER BY 1";
    let answer = server
        .post("/api/projects/1/query/", &json!({"query": {"kind": "HogQLQuery", "query": sql}}));
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()["results"].clone()
}

/// What `tests/sdk/engines.py` is asked: the tables under `place`.
fn asked(server: &TestServer, place: &str) -> String {
    let table = |name: &str| {
        let files = run(server.weir(&["inspect", &format!("--files={name}")]));
        json!({"at": format!("{place}/{name}"), "files": files.lines().collect::<Vec<_>>()})
    };
    let ids = "person_distinct_ids";
    json!({"events": table("events"), ids: table(ids)}).to_string()
}

/// Runs engines, and compares each with the server.
fn compare(mut command: Command, engines: &[&str], server: &TestServer, place: &str) {
    command.arg(source("engines.py")).arg(asked(server, place)).arg("1").args(engines);
    let said = run(command);
    let said: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let expected = counted(server);
    assert_eq!(said.iter().map(|said| said["engine"].clone()).collect::<Vec<_>>(), engines);
    for said in &said {
        let column = |number: usize| {
            let rows = said["rows"].as_array().expect("rows").iter();
            rows.map(|row| json!([row[0], row[1], row[number]])).collect::<Value>()
        };
        assert_eq!(column(3), expected, "persons of today by {}", said["engine"]);
        assert_ne!(column(2), expected, "the join is needed");
    }
}

/// Engines of the readers, and two that are large: scripts/long.sh installs them, and sets `WEIR_TEST_ENGINES` to the
/// Python that has them.
#[test]
fn tables_on_a_disk_are_counted_by_all() {
    let server = TestServer::start_with(&[UNMERGED]);
    fill(&server);
    let place = server.data_dir().join("tables");
    let place = place.to_str().expect("UTF-8");
    let readers = Command::new(tools().join("readers/bin/python"));
    compare(readers, &["duckdb", "deltalake", "polars", "daft", "sail"], &server, place);
    if let Some(python) = std::env::var_os("WEIR_TEST_ENGINES") {
        compare(Command::new(python), &["chdb", "spark"], &server, place);
    }
}

#[test]
fn tables_in_a_bucket_are_counted_by_all() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let server = TestServer::start_with(&settings(&url, &[UNMERGED]));
    fill(&server);
    let place = format!("{MOVED_TO}/shards/0000/tables");
    let in_bucket = |mut command: Command| {
        command
            .env("AWS_ENDPOINT_URL", &url)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        command
    };
    compare(in_bucket(Command::new(moto.python())), &["polars", "daft", "sail"], &server, &place);
    if let Some(python) = std::env::var_os("WEIR_TEST_ENGINES") {
        compare(in_bucket(Command::new(python)), &["chdb"], &server, &place);
    }
}
