//! Full disk: the disk fills up and is freed repeatedly. Acknowledged events stay, and capture recovers
//! by itself.
//!
//! The server has a small disk of its own, and no free space is reserved: writes of every kind fail
//! halfway, also those of the identity store, which accepts no further write after that.
//!
//! `WEIR_FULL_ROUNDS` sets the number of rounds.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{Client, TOKEN, TestServer, patiently};

/// Rounds of an ordinary run; the full run has 100.
const ROUNDS: u64 = 12;

/// Small files, so that all kinds of writes happen all the time; the disk may be filled to the last byte.
const SETTINGS: [(&str, &str); 6] = [
    ("WEIR_DISK_FREE_MIN_BYTES", "0B"),
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "1MiB"),
    ("WEIR_MEMTABLE_MAX_AGE", "200ms"),
    ("WEIR_COMPACTION_INTERVAL", "1s"),
    ("WEIR_VACUUM_GRACE", "1s"),
    ("WEIR_PERSONS_TABLE_INTERVAL", "1h"),
];

/// Sends batches of new persons until stopped. Collects the distinct ids that were acknowledged, and
/// those whose result is unknown.
fn send(
    client: &Client,
    next: &AtomicU64,
    stop: &AtomicBool,
    told: &Mutex<(BTreeSet<String>, BTreeSet<String>)>,
) {
    while !stop.load(Ordering::Relaxed) {
        let batch = next.fetch_add(1, Ordering::Relaxed);
        let ids: Vec<String> = (0..50).map(|event| format!("p-{batch}-{event}")).collect();
        let event = |id: &String| {
            let set = json!({"id": id});
            json!({"event": "e", "distinct_id": id, "properties": {"$set": set}})
        };
        let events: Vec<Value> = ids.iter().map(event).collect();
        let body = json!({"api_key": TOKEN, "batch": events}).to_string();
        let headers = [("content-type", "application/json")];
        match client.send("POST", "/batch/", &headers, body.as_bytes()) {
            Ok(answer) if answer.status == 200 => {
                told.lock().0.extend(ids);
                thread::sleep(Duration::from_millis(5));
            }
            Ok(answer) => {
                assert_eq!(answer.status, 503, "{answer}");
                thread::sleep(Duration::from_millis(20));
            }
            Err(_) => told.lock().1.extend(ids),
        }
    }
}

/// Fills the disk to the last byte, at once or in steps.
fn fill(path: &Path, step_pause: Duration) {
    let mut file = File::create(path).expect("a file");
    let mut step = 1 << 20;
    while step >= 1 << 12 {
        match file.write(&vec![7; step]) {
            Ok(0) | Err(_) => step /= 2,
            Ok(_) => thread::sleep(step_pause),
        }
    }
}

/// The single number of an SQL query, sent over HTTP: no other process can access the disk.
fn count(server: &TestServer, sql: &str) -> Option<u64> {
    let body = json!({"query": sql, "format": "json"});
    let answer = server.post("/api/projects/1/query/", &body);
    let row = (answer.status == 200).then(|| answer.json())?;
    let row = row.as_array().and_then(|rows| rows.first().cloned()).unwrap_or(row);
    row.as_object()?.values().next()?.as_u64()
}

#[test]
fn what_was_acknowledged_survives_a_full_disk_and_capture_comes_back() {
    let rounds = std::env::var_os("WEIR_FULL_ROUNDS")
        .map_or(ROUNDS, |rounds| rounds.to_str().expect("text").parse().expect("a number"));
    let Some(server) = TestServer::start_on_disk(192, &SETTINGS) else {
        eprintln!("left out: nobody may mount a file system here");
        return;
    };
    let filler = server.disk().join("filler");
    let (next, stop, told) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
    let clock = weir_base::clock::Clock::system();
    let mut longest = Duration::ZERO;
    thread::scope(|scope| {
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (client, next, stop, told) = (server.client(), &next, &stop, &told);
                scope.spawn(move || send(&client, next, stop, told))
            })
            .collect();
        for round in 0..rounds {
            let acknowledged = || told.lock().0.len();
            let pause = Duration::from_millis(if round % 2 == 0 { 0 } else { 5 });
            fill(&filler, pause);
            thread::sleep(Duration::from_millis(50 * (round % 10)));
            std::fs::remove_file(&filler).expect("removes");
            let (before, began) = (acknowledged(), clock.monotonic());
            if patiently(|| (acknowledged() > before).then_some(())).is_none() {
                // The senders would be waited for.
                stop.store(true, Ordering::Relaxed);
                panic!("capture is not back in round {round}");
            }
            longest = longest.max(clock.monotonic() - began);
        }
        stop.store(true, Ordering::Relaxed);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
    eprintln!("capture was back after {longest:?} at most");
    let (acknowledged, unknown) = told.into_inner();
    let said = server.stderr();
    let failures = said.matches("persons cannot follow the log").count();
    eprintln!("the identity store failed {failures} times of {rounds}");
    assert!(failures > 0, "the test does not reach the identity store");
    for sql in [
        "SELECT count(DISTINCT distinct_id) FROM events",
        "SELECT count(*) FROM events",
        "SELECT count(*) FROM persons",
    ] {
        let found = patiently(|| count(&server, sql)).expect("an answer");
        let (least, most) =
            (acknowledged.len() as u64, (acknowledged.len() + unknown.len()) as u64);
        assert!((least..=most).contains(&found), "{sql}: {found} of {least} to {most}");
    }
}

/// Goal: events are refused before the disk is full, and accepted as soon as there is free space.
#[test]
fn too_little_room_is_a_503_until_there_is_more() {
    let low = [("WEIR_DISK_FREE_MIN_BYTES", "16MiB"), ("WEIR_WAL_SEGMENT_MAX_BYTES", "1MiB")];
    let Some(server) = TestServer::start_on_disk(64, &low) else {
        eprintln!("left out: nobody may mount a file system here");
        return;
    };
    let filler = server.disk().join("filler");
    let event = |number: usize| json!([{"event": "e", "distinct_id": format!("p{number}")}]);
    for round in 0..5 {
        assert_eq!(server.capture(&event(round)).status, 200, "round {round}");
        fill(&filler, Duration::ZERO);
        // Looked at with each group of requests, so the next one is refused already.
        let refused = server.capture(&event(round));
        assert_eq!(refused.status, 503, "{refused}");
        std::fs::remove_file(&filler).expect("removes");
        assert_eq!(server.capture(&event(round)).status, 200, "round {round}");
    }
    assert_eq!(count(&server, "SELECT count(*) FROM events"), Some(10));
}
