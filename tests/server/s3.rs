//! Servers whose tables are in a bucket: the same answers, the same guarantees, whatever the object store does.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::crash;
pub(crate) use crate::harness::run;
use crate::harness::{TestServer, binary, outage, patiently, within};
use crate::support::bucket::{Fate, Moto, settings};

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
rows = table.to_pyarrow_dataset().to_table()
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
        server.flush();
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
    server.flush();
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
    crash::survives_kills(server, crash::rounds(), crash::Disk::Kept);
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
    server.flush();
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
    server.flush();
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
    server.flush();
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
    std::thread::sleep(outage("BUCKET", 0));
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
    server.flush();
    exact(&server);
    server.stop();
    exact(&server);
    let keys: BTreeSet<String> = moto.keys().into_iter().collect();
    assert!(keys.iter().all(|key| !key.contains("_probe")), "{keys:?}");
}

pub(crate) const MOVED_TO: &str = "s3://weir-tests/events";

/// `weir move`, with the credentials of the bucket behind `url`.
pub(crate) fn moving(url: &str, from: &str, to: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(["move", from, to]).envs(settings(url, &[])).env_remove("WEIR_STORAGE_URL");
    command
}

/// The message of a command that has to fail.
pub(crate) fn refused(mut command: Command) -> String {
    let output = command.output().expect("the command starts");
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// Goal: a server goes on with the same data after its tables were moved into a bucket, and after they were moved
/// back, whatever interrupts a move. Method: it is killed before, so that its log has events that are in no file.
#[test]
fn tables_move_into_a_bucket_and_back() {
    const SUMS: &str = "SELECT event, count(*) AS n, count(DISTINCT uuid) AS u, \
                        count(DISTINCT person_id) AS p FROM events GROUP BY event ORDER BY event";
    const PERSONS: &str = "SELECT count(*) AS n FROM persons";
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let bucket = MOVED_TO;
    let mut server = TestServer::start_with(&[]);
    let data_dir = server.data_dir();
    let directory = data_dir.to_str().expect("UTF-8").to_owned();
    for start in [0, 100, 200] {
        send(&server, start, start + 100);
        server.flush();
    }
    send(&server, 300, 350);
    let before = server.query(SUMS);
    let said = refused(moving(&url, &directory, bucket));
    assert!(said.contains("stop it first"), "{said}");
    server.kill();

    // Interrupted after some files, and in the middle of the log.
    for _ in 0..2 {
        let mut left = 4;
        gate.judge(move |request| {
            let is_file = request.starts_with("PUT ") && request.contains("/tables/");
            left -= i32::from(is_file);
            if is_file && left < 0 { Fate::Lost } else { Fate::Passed }
        });
        let said = refused(moving(&url, &directory, bucket));
        assert!(said.contains("a second attempt goes on"), "{said}");
        assert!(!data_dir.join("storage-url").exists());
        assert_eq!(server.query(SUMS), before, "nothing has changed");
    }
    gate.judge(|_| Fate::Passed);
    let said = run(moving(&url, &directory, bucket));
    assert!(said.contains("of them were there already"), "{said}");
    assert!(said.contains(&format!("Start the server with --storage-url {bucket}")), "{said}");
    assert!(!data_dir.join("tables").exists());
    let said = server.try_start().expect_err("without the bucket");
    assert!(said.contains(&format!("start with --storage-url {bucket}")), "{said}");
    for (name, value) in settings(&url, &[]) {
        server.set(name, value);
    }
    server.restart();
    assert_eq!(server.query(SUMS), before);
    assert_eq!(server.count(PERSONS), 7);
    assert!(server.files().iter().all(|file| file.starts_with(bucket)), "{:?}", server.files());
    send(&server, 350, 400);
    server.flush();
    let after = server.query(SUMS);
    assert_eq!(server.count(COUNT), 400);
    server.stop();

    let said = run(moving(&url, bucket, &directory));
    assert!(said.contains("Start the server without --storage-url"), "{said}");
    for gone in ["storage-url", "bucket-cache"] {
        assert!(!data_dir.join(gone).exists(), "{gone}");
    }
    assert!(run(server.weir(&["inspect", "--verify"])).contains("no damage found"));
    server.unset("WEIR_STORAGE_URL");
    server.restart();
    assert_eq!(server.query(SUMS), after);
    assert_eq!(server.count(PERSONS), 7);
    assert!(server.files().iter().all(|file| !file.starts_with(bucket)), "{:?}", server.files());
    send(&server, 400, 450);
    server.flush();
    assert_eq!(server.count(COUNT), 450);
}

/// Goal: no move touches the tables of another data directory, or takes tables from where they are not.
#[test]
fn only_the_own_tables_are_moved() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let mut servers = [TestServer::start_with(&[]), TestServer::start_with(&[])];
    for server in &mut servers {
        send(server, 0, 10);
        server.stop();
    }
    let [own, other] = &servers;
    let directory = |server: &TestServer| server.data_dir().to_str().expect("UTF-8").to_owned();
    let (own, other) = (directory(own), directory(other));
    run(moving(&url, &own, MOVED_TO));
    let keys = moto.keys();
    for (from, to, expected) in [
        (other.as_str(), MOVED_TO, "which is no file of the table"),
        (MOVED_TO, other.as_str(), "are in it, not in s3://weir-tests/events"),
        (
            own.as_str(),
            "s3://weir-tests/elsewhere",
            "are in s3://weir-tests/events; move them from",
        ),
        ("s3://weir-tests/elsewhere", own.as_str(), "not in s3://weir-tests/elsewhere"),
        (own.as_str(), other.as_str(), "one of the two must be a data directory"),
        (MOVED_TO, "s3://weir-tests/elsewhere", "one of the two must be a data directory"),
        ("/nowhere", MOVED_TO, "there is no directory /nowhere"),
    ] {
        let said = refused(moving(&url, from, to));
        assert!(said.contains(expected), "{from} to {to}: {said}");
    }
    assert_eq!(moto.keys(), keys, "nothing has changed");
    // An attempt that ended after it was done is done.
    assert!(run(moving(&url, &own, MOVED_TO)).contains("moved 0 files"));
    for (name, value) in settings(&url, &[]) {
        servers[0].set(name, value);
    }
    for server in &servers {
        assert_eq!(server.count(COUNT), 10);
    }
}
