//! Damaged commits of the events table on a real server: it starts, serves the rest, accepts events, and
//! names what is lost in its log and its metrics.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::json;

use crate::harness::{TestServer, patiently};

/// Every batch is flushed separately, nothing is merged, and the log has a segment for every one or two
/// batches.
const SETTINGS: [(&str, &str); 4] = [
    ("WEIR_MEMTABLE_MAX_AGE", "50ms"),
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "64KiB"),
    ("WEIR_COMPACTION_INTERVAL", "1h"),
    ("WEIR_COMPACTION_FILES_MIN", "1000"),
];

const COUNT: &str = "SELECT count(*) AS n FROM events";

/// Events of one batch.
const BATCH: u64 = 10;

/// A server with as many files as batches, stopped.
fn with_batches(batches: u64) -> TestServer {
    let mut server = TestServer::start_with(&SETTINGS);
    for batch in 1..=batches {
        send(&server, batch);
        let flushed = patiently(|| {
            (u64::try_from(server.files().len()).expect("a count") == batch).then_some(())
        });
        flushed.unwrap_or_else(|| panic!("no flush of batch {batch}"));
    }
    server.stop();
    server
}

/// Sends a batch that fills a segment of the log, even when compressed.
fn send(server: &TestServer, batch: u64) {
    let mut random = StdRng::seed_from_u64(batch);
    let event = |_| {
        let mut bytes = vec![0; 6_000];
        random.fill_bytes(&mut bytes);
        let properties = json!({"distinct_id": format!("b{batch}"), "x": STANDARD.encode(&bytes)});
        json!({"event": format!("batch {batch}"), "properties": properties})
    };
    let events: Vec<_> = (0..BATCH).map(event).collect();
    let answer = server.capture(&json!(events));
    assert_eq!(answer.status, 200, "{answer}");
}

/// The commits of the events table that add files, oldest first.
fn flushes(server: &TestServer) -> Vec<PathBuf> {
    let log = server.data_dir().join("tables/events/_delta_log");
    let paths = std::fs::read_dir(log).expect("the log").map(|entry| entry.expect("a file").path());
    let is_commit = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let adds = |path: &PathBuf| std::fs::read_to_string(path).expect("text").contains("{\"add\":");
    let mut flushes: Vec<_> = paths.filter(is_commit).filter(adds).collect();
    flushes.sort();
    flushes
}

fn corruptions(server: &TestServer) -> u64 {
    let metrics = server.get("/metrics").to_string();
    let label = "weir_corruptions_total{place=\"events\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(label));
    line.map_or(0, |number| number.trim().parse().expect("a number"))
}

fn count_of(server: &TestServer, batch: u64) -> u64 {
    server.count(&format!("SELECT count(*) AS n FROM events WHERE event = 'batch {batch}'"))
}

/// The server accepts and returns events, and the table has no errors after its next start.
fn assert_goes_on(server: &mut TestServer, total: u64) {
    send(server, 99);
    assert_eq!(count_of(server, 99), BATCH);
    server.stop();
    server.restart();
    assert_eq!(corruptions(server), 0, "it is told once: {}", server.stderr());
    assert_eq!(server.count(COUNT), total + BATCH);
    assert_eq!(count_of(server, 99), BATCH);
}

#[test]
fn a_destroyed_commit_costs_its_events() {
    let mut server = with_batches(4);
    let flushes = flushes(&server);
    assert_eq!(flushes.len(), 4);
    std::fs::write(&flushes[1], "").expect("a file");

    let inspected = server.weir(&["inspect"]).output().expect("weir inspect");
    let inspected = String::from_utf8_lossy(&inspected.stdout).into_owned();
    assert!(inspected.contains("damaged             versions 2 to 2: it is empty"), "{inspected}");

    server.restart();
    assert_eq!(corruptions(&server), 1);
    let said = server.stderr();
    assert!(said.contains("damage in the log of the table"), "{said}");
    assert_eq!(count_of(&server, 2), 0);
    assert_eq!(server.count(COUNT), 3 * BATCH);
    assert_goes_on(&mut server, 3 * BATCH);
}

/// Lost events are still in the log if it was not truncated since: then nothing is lost.
#[test]
fn a_destroyed_last_commit_is_replayed_as_far_as_the_log_goes() {
    let mut server = with_batches(3);
    let flushes = flushes(&server);
    let last = flushes.last().expect("a flush");
    let text = std::fs::read(last).expect("the commit");
    std::fs::write(last, &text[..text.len() / 2]).expect("a file");
    server.restart();
    assert!(corruptions(&server) >= 1);
    let total = server.count(COUNT);
    assert!(total == 3 * BATCH || total == 2 * BATCH, "whole batches, each once: {total}");
    let is_told = server.stderr().contains("the events of these log records are lost");
    assert_eq!(is_told, total == 2 * BATCH, "{}", server.stderr());
    assert_goes_on(&mut server, total);
}

/// Goal: missing commits at the end leave no gap, and are detected by where the log begins.
#[test]
fn missing_last_commits_are_noticed() {
    let mut server = with_batches(5);
    for commit in &flushes(&server)[2..] {
        std::fs::remove_file(commit).expect("a commit");
    }
    server.restart();
    let said = server.stderr();
    assert!(said.contains("the events of these log records are lost"), "{said}");
    assert!(corruptions(&server) >= 1);
    let total = server.count(COUNT);
    assert!((2 * BATCH..5 * BATCH).contains(&total) && total.is_multiple_of(BATCH), "{total}");
    assert_eq!((count_of(&server, 1), count_of(&server, 2)), (BATCH, BATCH));
    assert_eq!(count_of(&server, 3), 0);
    assert_goes_on(&mut server, total);
}
