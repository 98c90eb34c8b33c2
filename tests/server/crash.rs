//! Kill -9 under load: every acknowledged event is stored exactly once, whenever the process ended.
//!
//! Several connections send batches without a pause, and retry unacknowledged ones, as SDKs do;
//! after a random time the server is killed and started again. Small memtables and frequent
//! compactions make flushes, commits, merges and log truncations happen all the time, so that kills
//! hit them too. Lost unsynced writes are not tested here, because the kernel survives; the storage
//! tests cut power at every write on a simulated disk.
//!
//! `WEIR_KILL_ROUNDS` sets the number of rounds, `WEIR_KILL_SEED` repeats a run's moments and data.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Client, TOKEN, TestServer};

/// Rounds of an ordinary run; the full run has 20.
const ROUNDS: u64 = 4;

/// Connections that send at once.
const WRITERS: u64 = 4;

/// Events of one batch, at most.
const BATCH_MAX: usize = 60;

/// Flushes every few hundred milliseconds, merges as few as two files, and removes merged files long
/// before the test ends.
const SETTINGS: [(&str, &str); 6] = [
    ("WEIR_MEMTABLE_MAX_AGE", "150ms"),
    ("WEIR_MEMTABLE_MAX_BYTES", "256KiB"),
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB"),
    ("WEIR_COMPACTION_INTERVAL", "200ms"),
    ("WEIR_COMPACTION_FILES_MIN", "2"),
    ("WEIR_VACUUM_GRACE", "1s"),
];

/// Knowledge of one writer at the end of a round.
#[derive(Debug, Default)]
struct Told {
    /// Answered 200, with the distinct id they were sent for.
    acknowledged: HashMap<String, String>,
    /// Sent without a response: may be stored or not, but complete and once.
    unknown: Vec<Value>,
}

/// Sends batches until `stop` is set, or until the server no longer listens.
fn write(client: Client, mut random: StdRng, retries: Vec<Value>, stop: &AtomicBool) -> Told {
    let mut told = Told::default();
    let mut retries = retries;
    while !stop.load(Ordering::Relaxed) {
        // First what the last round left open, then new events.
        let batch = retries.pop().unwrap_or_else(|| batch(&mut random));
        let body = json!({"api_key": TOKEN, "batch": batch}).to_string();
        let headers = [("content-type", "application/json")];
        match client.send("POST", "/batch/", &headers, body.as_bytes()) {
            Ok(answer) if answer.status == 200 => {
                for event in batch.as_array().into_iter().flatten() {
                    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
                    told.acknowledged.insert(text("uuid"), text("distinct_id"));
                }
            }
            // Busy with flushing: nothing is stored, so the batch is as good as never sent.
            Ok(answer) => {
                assert_eq!(answer.status, 503, "{answer}");
                told.unknown.push(batch);
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                told.unknown.push(batch);
                if error.kind() == ErrorKind::ConnectionRefused {
                    break;
                }
            }
        }
    }
    told.unknown.extend(retries);
    told
}

fn batch(random: &mut StdRng) -> Value {
    let events = (0..random.random_range(1..=BATCH_MAX)).map(|_| {
        let uuid = Uuid::from_u128(random.random());
        let person = random.random_range(0..50);
        // Several months, so that one flush writes several files.
        let month = random.random_range(1..=3);
        json!({
            "uuid": uuid,
            "event": "load",
            "distinct_id": format!("person {person}"),
            "timestamp": format!("2026-0{month}-15T12:00:00Z"),
            "properties": {"$set": {"last": uuid}, "pad": "x".repeat(200)},
        })
    });
    Value::Array(events.collect())
}

fn setting(name: &str) -> Option<u64> {
    std::env::var_os(name)
        .map(|value| value.to_str().and_then(|text| text.parse().ok()).expect(name))
}

/// Number of rounds of this run.
pub(crate) fn rounds() -> u64 {
    setting("WEIR_KILL_ROUNDS").unwrap_or(ROUNDS)
}

#[test]
fn what_was_acknowledged_survives_kills() {
    survives_kills(TestServer::start_with(&SETTINGS), rounds(), Disk::Kept);
}

/// What becomes of the disk of a killed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// It is there.
    Kept,
    /// It is lost.
    Lost,
}

/// Kills the server under load, round for round, and checks what is stored.
#[expect(clippy::print_stdout, reason = "a failure is repeated with the seed")]
pub(crate) fn survives_kills(mut server: TestServer, rounds: u64, disk: Disk) {
    let seed = setting("WEIR_KILL_SEED").unwrap_or_else(|| rand::rng().random());
    println!("WEIR_KILL_ROUNDS={rounds} WEIR_KILL_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut acknowledged = HashMap::new();
    let mut open: Vec<Value> = Vec::new();
    for round in 0..rounds {
        let moment = Duration::from_millis(random.random_range(20..1500));
        // Every third round ends in order: the flush of a SIGTERM is part of the history.
        let in_order = round % 3 == 2;
        let stop = AtomicBool::new(false);
        let client = server.client();
        let told: Vec<Told> = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let random = StdRng::seed_from_u64(random.random());
                    let retries = open.iter().skip(usize::try_from(writer).unwrap());
                    let retries = retries.step_by(usize::try_from(WRITERS).unwrap());
                    let (retries, stop) = (retries.cloned().collect(), &stop);
                    scope.spawn(move || write(client, random, retries, stop))
                })
                .collect();
            thread::sleep(moment);
            if in_order {
                server.stop();
            } else {
                server.kill();
            }
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        open.clear();
        for told in told {
            acknowledged.extend(told.acknowledged);
            open.extend(told.unknown);
        }
        match disk {
            // As another process reads the directory, without the server.
            Disk::Kept => check(&server, &acknowledged, &open, round),
            Disk::Lost => server.lose_disk(),
        }
        if round % 2 == 1 {
            // The server's start is a moment to die in, too.
            server.start_and_kill(Duration::from_millis(random.random_range(0..150)));
        }
        server.restart();
        check(&server, &acknowledged, &open, round);
    }
    assert!(acknowledged.len() > 100, "the load was no load: {}", acknowledged.len());
    server.stop();
    if disk == Disk::Kept {
        check(&server, &acknowledged, &open, rounds);
    }
}

/// Limits apply when a request arrives, not when it is replayed.
#[test]
fn what_was_acknowledged_survives_smaller_limits() {
    let mut server = TestServer::start_with(&[("WEIR_EVENT_MAX_BYTES", "300KiB")]);
    let event = |pad: usize| {
        json!({
            "event": "large", "distinct_id": "d", "uuid": Uuid::new_v4(),
            "properties": {"pad": "x".repeat(pad)},
        })
    };
    // The last one is too large when it is sent, and does not come back.
    let batch = json!([event(10), event(200_000), event(400_000)]);
    let body = json!({"api_key": TOKEN, "batch": batch}).to_string();
    assert_eq!(server.send("POST", "/batch", &[], body).status, 200);
    let uuids = |server: &TestServer| server.query("SELECT uuid FROM events ORDER BY uuid");
    let before = uuids(&server);
    assert_eq!(before.len(), 2);
    server.kill();
    server.set("WEIR_EVENT_MAX_BYTES", "1KiB");
    server.set("WEIR_BODY_MAX_BYTES", "64KiB");
    server.set("WEIR_BODY_PLAIN_MAX_BYTES", "64KiB");
    server.restart();
    assert_eq!(uuids(&server), before);
    server.kill();
    server.set("WEIR_EVENT_MAX_BYTES", "1MiB");
    server.set("WEIR_BODY_PLAIN_MAX_BYTES", "64MiB");
    server.restart();
    assert_eq!(uuids(&server), before);
}

/// Checks that every acknowledged event is stored, that none is stored twice, and none that was not
/// sent.
fn check(server: &TestServer, acknowledged: &HashMap<String, String>, open: &[Value], round: u64) {
    server.has_no_twins();
    let mut stored = HashMap::new();
    // Few rows, because answers have a largest number of them.
    let sql = "SELECT distinct_id, array_agg(uuid) AS uuids FROM events GROUP BY distinct_id";
    for row in server.query(sql) {
        for uuid in row["uuids"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            stored.insert(uuid.to_owned(), row["distinct_id"].as_str().unwrap().to_owned());
        }
    }
    let lost: Vec<_> = acknowledged.keys().filter(|uuid| !stored.contains_key(*uuid)).collect();
    assert!(
        lost.is_empty(),
        "round {round}: {} of {} lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    let sent: HashSet<&str> = open
        .iter()
        .flat_map(|batch| batch.as_array().into_iter().flatten())
        .filter_map(|event| event["uuid"].as_str())
        .collect();
    for (uuid, distinct_id) in &stored {
        match acknowledged.get(uuid) {
            Some(expected) => assert_eq!(distinct_id, expected, "round {round}: {uuid}"),
            None => assert!(sent.contains(uuid.as_str()), "round {round}: nobody sent {uuid}"),
        }
    }
    // Batches are whole or absent.
    for batch in open {
        let uuids: Vec<&str> = batch
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|event| event["uuid"].as_str())
            .collect();
        let there = uuids.iter().filter(|uuid| stored.contains_key(**uuid)).count();
        assert!(there == 0 || there == uuids.len(), "round {round}: {there} of {}", uuids.len());
    }
    // Every event made its person, and the persons are read from another store.
    let persons: HashSet<&String> = stored.values().collect();
    let sql = "SELECT count(DISTINCT distinct_id) FROM person_distinct_ids";
    assert_eq!(server.count(sql), u64::try_from(persons.len()).unwrap(), "round {round}");
}
