//! Servers whose tables are in a bucket: the same answers, the same guarantees, whatever the object store does.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use serde_json::json;

use crate::crash;
use crate::harness::TestServer;
use crate::harness::patiently;
use crate::harness::within;
use crate::support::bucket::Fate;
use crate::support::bucket::Moto;
use crate::support::bucket::settings;

/// Flushes and merges all the time.
const BUSY: [(&str, &str); 5] = [
    ("WEIR_MEMTABLE_MAX_AGE", "150ms"),
    ("WEIR_MEMTABLE_MAX_BYTES", "256KiB"),
    ("WEIR_COMPACTION_INTERVAL", "200ms"),
    ("WEIR_COMPACTION_FILES_MIN", "2"),
    ("WEIR_VACUUM_GRACE", "5s"),
];

const COUNT: &str = "SELECT count(*) AS n FROM events";

fn events(from: u32, to: u32) -> Value {
    let event = |number: u32| {
        json!({
            "event": format!("event {}", number % 3), "distinct_id": format!("person {}", number % 7),
            "uuid": uuid::Uuid::from_u128(u128::from(number) + 1),
            "timestamp": format!("2026-0{}-15T12:00:00Z", 1 + number % 2),
            "properties": {"number": number},
        })
    };
    Value::Array((from..to).map(event).collect())
}

fn send(server: &TestServer, from: u32, to: u32) {
    let answer = server.capture(&events(from, to));
    assert_eq!(answer.status, 200, "{answer}");
}

fn flush(server: &TestServer) {
    let output = server.weir(&["flush"]).output().expect("weir flush");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Output of a command, which must succeed.
fn run(mut command: Command) -> String {
    let output = command.output().expect("the command starts");
    let (said, failed) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {failed}");
    String::from_utf8(said.clone()).expect("UTF-8")
}

/// What other engines read, as a program: one line for each with the sum of numbers and the rows.
const READERS: &str = r#"
import json, os, sys
import deltalake, duckdb, polars
url, endpoint = sys.argv[1:]
options = {
    "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
}
table = deltalake.DeltaTable(url, storage_options=options)
rows = table.to_pyarrow_table()
print(json.dumps(["deltalake", rows.num_rows, len(set(rows["uuid"].to_pylist()))]))
dataset = table.to_pyarrow_dataset()
print(json.dumps(["duckdb", *duckdb.sql("SELECT count(*), count(DISTINCT uuid) FROM dataset").fetchall()[0]]))
frame = polars.scan_delta(url, storage_options=options).select("uuid").collect()
print(json.dumps(["polars", frame.height, frame["uuid"].n_unique()]))
"#;

#[test]
fn tables_in_a_bucket_are_read_and_written_by_all() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let mut server = TestServer::start_with(&settings(&url, &[]));
    for start in [0, 100, 200] {
        send(&server, start, start + 100);
        flush(&server);
    }
    assert_eq!(server.count(COUNT), 300);
    let files = server.files();
    let prefix = "s3://weir-tests/events/shards/0000/tables/events/month=2026-0";
    assert_eq!(files.len(), 6);
    assert!(files.iter().all(|file| file.to_string_lossy().starts_with(prefix)), "{files:?}");
    assert!(!server.data_dir().join("tables").exists(), "nothing of them is in the data directory");

    let table = "s3://weir-tests/events/shards/0000/tables/events";
    let mut readers = Command::new(moto.python());
    readers.args(["-c", READERS, table, &url]).env("AWS_EC2_METADATA_DISABLED", "true");
    for line in run(readers).lines() {
        let said: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&said[1], &said[2]), (&json!(300), &json!(300)), "{said}");
    }
    let inspected = run(server.weir(&["inspect"]));
    assert!(inspected.contains("table events"), "{inspected}");
    server.stop();
    assert!(run(server.weir(&["inspect", "--verify"])).contains("no damage found"));
    assert_eq!(server.count(COUNT), 300, "without a server");
    let persons = moto.keys().into_iter().filter(|key| key.contains("tables/persons/"));
    assert!(persons.count() > 1, "the copy of the persons is there too");
    server.restart();

    // Acknowledged and in no file: the command replays the log, and changes nothing in the bucket.
    send(&server, 300, 350);
    server.kill();
    let before = moto.keys();
    assert_eq!(server.count(COUNT), 350);
    assert_eq!(moto.keys(), before);
    server.restart();
    assert_eq!(server.count(COUNT), 350);
    assert!(server.metric("weir_bucket_cache_hit_bytes_total") > 0, "files are in the cache");
    assert!(server.metric("weir_bucket_cache_bytes") > 0);
    let commits = "weir_bucket_request_duration_seconds_count{operation=\"put_new\"}";
    assert!(server.metric(commits) > 0);
}

#[test]
fn a_data_directory_keeps_to_its_bucket() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let mut server = TestServer::start_with(&settings(&url, &[]));
    send(&server, 0, 10);
    server.stop();
    server.set("WEIR_STORAGE_URL", "s3://weir-tests/other");
    let said = server.try_start().expect_err("another bucket");
    assert!(said.contains("says that the tables are in s3://weir-tests/events"), "{said}");
    server.set("WEIR_STORAGE_URL", "s3://weir-tests/events");
    server.restart();
    assert_eq!(server.count(COUNT), 10);

    // Two data directories on one prefix would each lose what the other has flushed.
    let mut second = TestServer::stopped(&settings(&url, &[]));
    let said = second.try_start().expect_err("the table of another data directory");
    assert!(said.contains("choose another prefix in storage-url"), "{said}");
    flush(&server);
    assert_eq!(server.count(COUNT), 10, "and the first goes on");
}

#[test]
fn stores_without_conditional_writes_are_refused() {
    let moto = Moto::start();
    let gate = moto.gate();
    gate.judge(|request| match request.starts_with("PUT ") {
        true => Fate::Unconditional,
        false => Fate::Passed,
    });
    let url = gate.url();
    let mut server = TestServer::stopped(&settings(&url, &[]));
    let said = server.try_start().expect_err("a store that ignores If-None-Match");
    assert!(
        said.contains(&format!("cannot use the object store of s3://weir-tests/events at {url}")),
        "{said}"
    );
    assert!(said.contains("does not support conditional writes"), "{said}");
    assert_eq!(moto.keys(), [""; 0], "nothing is left");
    assert!(!server.data_dir().join("storage-url").exists());
    gate.judge(|_| Fate::Lost);
    let said = server.try_start().expect_err("a store that is away");
    assert!(said.contains("cannot be used"), "{said}");
    gate.judge(|_| Fate::Passed);
    server.try_start().expect("nothing of that is kept");
}

/// Goal: as on a local disk. The kills hit flushes, merges, commits and the claim at the start.
#[test]
fn what_was_acknowledged_survives_kills() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let server = TestServer::start_with(&settings(&url, &BUSY));
    crash::survives_kills(server, crash::rounds());
}

/// Goal: exact counts, whatever happens to requests: lost on their way, answers lost, 503, slow.
#[test]
fn faults_at_random_lose_and_double_nothing() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let mut server = TestServer::start_with(&settings(&url, &BUSY));
    let mut random = StdRng::seed_from_u64(20);
    gate.judge(move |_| match random.random_range(0..12) {
        0 => Fate::Lost,
        1 => Fate::AnswerLost,
        2 => Fate::Refused,
        3 => Fate::Slow(Duration::from_millis(random.random_range(0..300))),
        _ => Fate::Passed,
    });
    let mut sent = 0;
    let enough = within(Duration::from_secs(120), || {
        let answer = server.capture(&events(sent, sent + 20));
        match answer.status {
            200 => sent += 20,
            status => assert_eq!(status, 503, "{answer}"),
        }
        std::thread::sleep(Duration::from_millis(20));
        (gate.disturbed() > 200 && sent > 1_000).then_some(())
    });
    enough.expect("many faults");
    server.kill();
    gate.judge(|_| Fate::Passed);
    server.restart();
    let numbers = "SELECT count(*) AS n, count(DISTINCT uuid) AS u FROM events";
    assert_eq!(server.query(numbers), [json!({"n": sent, "u": sent})]);
    flush(&server);
    assert_eq!(server.query(numbers), [json!({"n": sent, "u": sent})]);
    server.stop();
    assert_eq!(server.query(numbers), [json!({"n": sent, "u": sent})]);
}

/// Goal: a commit whose answer or request is lost is there once.
#[test]
fn lost_answers_are_settled() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let server = TestServer::start_with(&settings(&url, &[]));
    for (fate, from) in [(Fate::AnswerLost, 0), (Fate::Lost, 10)] {
        let mut left = 1;
        gate.judge(move |request| {
            let is_commit =
                request.starts_with("PUT ") && request.contains("tables/events/_delta_log");
            if is_commit && left > 0 {
                left -= 1;
                return fate;
            }
            Fate::Passed
        });
        send(&server, from, from + 10);
        // The first attempt may say that it failed; the flush thread tries again.
        let flushed = patiently(|| {
            let output = server.weir(&["flush"]).output().expect("weir flush");
            output.status.success().then_some(())
        });
        flushed.expect("a flush");
        assert_eq!(server.count(COUNT), u64::from(from) + 10, "{fate:?}");
    }
    flush(&server);
    assert_eq!(server.count(COUNT), 20);
}

/// Goal: while the store is away, events are accepted as long as there is room; queries of files say what is
/// wrong; and afterwards everything is there once.
#[test]
fn a_store_that_is_away_costs_nothing_that_was_acknowledged() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let small = [("WEIR_MEMTABLE_MAX_BYTES", "64KiB"), ("WEIR_STORAGE_CACHE_MAX_BYTES", "0B")];
    let mut server = TestServer::start_with(&settings(&url, &small));
    send(&server, 0, 100);
    flush(&server);
    gate.judge(|_| Fate::Lost);
    let mut sent = 100;
    let refused = patiently(|| {
        let answer = server.capture(&events(sent, sent + 50));
        if answer.status == 200 {
            sent += 50;
            return None;
        }
        Some(answer)
    });
    let refused = refused.expect("the memtables are full");
    assert_eq!(refused.status, 503, "{refused}");
    assert!(refused.header("retry-after").is_some(), "{refused}");
    assert!(sent > 100, "they had room at first");
    let query = json!({"query": {"kind": "HogQLQuery", "query": "SELECT count(DISTINCT uuid) FROM events"}});
    let answer = server.post("/api/projects/1/query/", &query);
    assert_eq!(answer.status, 503, "{answer}");
    assert!(answer.to_string().contains("the object store"), "{answer}");
    assert!(answer.header("retry-after").is_some(), "{answer}");
    let corruptions = "weir_corruptions_total{place=\"table\"}";
    assert_eq!(server.metric(corruptions), 0, "no file is taken for damaged");

    gate.judge(|_| Fate::Passed);
    let accepted = patiently(|| {
        let answer = server.capture(&events(sent, sent + 50));
        (answer.status == 200).then_some(())
    });
    accepted.expect("capture is back by itself");
    sent += 50;
    let exact = |server: &TestServer| {
        let found = server.query("SELECT count(*) AS n, count(DISTINCT uuid) AS u FROM events");
        assert_eq!(found, [json!({"n": sent, "u": sent})]);
    };
    exact(&server);
    flush(&server);
    exact(&server);
    server.stop();
    exact(&server);
    let keys: BTreeSet<String> = moto.keys().into_iter().collect();
    assert!(keys.iter().all(|key| !key.contains("_probe")), "{keys:?}");
}
