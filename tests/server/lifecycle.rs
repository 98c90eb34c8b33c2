//! Start and shutdown: locking of the directory, and access independent of whether the server runs.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::{TestServer, patiently};

fn events(count: usize) -> Value {
    let event = |number: usize| {
        json!({
            "event": format!("event {}", number % 7),
            "distinct_id": format!("person {}", number % 10),
            "properties": {"number": number, "$set": {"last": number}},
        })
    };
    Value::Array((0..count).map(event).collect())
}

#[test]
fn answers_are_the_same_with_the_server_without_it_and_after_a_restart() {
    let mut server = TestServer::start();
    assert_eq!(server.capture(&events(500)).status, 200);
    let questions = [
        "SELECT * FROM events ORDER BY uuid",
        "SELECT * FROM persons ORDER BY uuid",
        "SELECT * FROM person_distinct_ids ORDER BY distinct_id",
        "SELECT name FROM event_definitions ORDER BY name",
        "SELECT event, count(*) AS n, count(DISTINCT person_id) AS p FROM events GROUP BY event ORDER BY event",
    ];
    let ask = |server: &TestServer| questions.map(|sql| server.query(sql));
    let expected = ask(&server);
    assert_eq!(expected.each_ref().map(Vec::len), [500, 10, 10, 7, 7]);
    let check = |server: &TestServer, state: &str| {
        for ((found, expected), sql) in ask(server).iter().zip(&expected).zip(questions) {
            assert_eq!(found, expected, "{state}: {sql}");
        }
    };
    server.kill();
    check(&server, "after a crash, from the log");
    server.restart();
    check(&server, "after a replay");
    server.stop();
    check(&server, "after the end, from files");
    server.restart();
    check(&server, "after a restart");
}

#[test]
fn a_directory_has_one_server_and_none_after_a_crash() {
    let mut server = TestServer::start();
    let second = server.weir(&["serve", "--listen", "127.0.0.1:0"]).output().expect("weir");
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && stderr.contains("is served by process"), "{stderr}");
    assert_eq!(server.get("/_readiness").status, 200, "the first one does not care");
    server.kill();
    server.restart();
}

/// Goal: nobody can write to a directory while a server flushes at its shutdown. Method: after
/// SIGTERM, take the lock as soon as it is free, and check whether the server had finished.
#[test]
fn the_directory_is_locked_until_the_flush_at_the_end_is_done() {
    let mut server = TestServer::start();
    for _ in 0..5 {
        assert_eq!(server.capture(&events(2000)).status, 200);
    }
    let lock = File::open(server.data_dir().join("lock")).expect("the lock file");
    server.begin_to_stop();
    let free = || lock.try_lock().ok();
    patiently(free).expect("the lock becomes free");
    assert!(server.stderr().contains("stopped"), "the lock was free before the end");
    server.wait_for_end();
    drop(lock);
    assert_eq!(server.count("SELECT count(*) FROM events"), 10_000);
}

/// Only the server's user can read the data directory, whichever part of the server creates a file.
#[test]
fn the_directory_is_for_its_user_alone() {
    let mut server = TestServer::start();
    assert_eq!(server.capture(&events(100)).status, 200);
    server.stop();
    server.restart();
    assert_eq!(server.capture(&events(10)).status, 200);
    let (mut open, mut seen) = (vec![server.data_dir().to_path_buf()], 0);
    while let Some(path) = open.pop() {
        let metadata = path.metadata().expect("metadata");
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        seen += 1;
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a directory");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    assert!(seen > 20, "{seen} files and directories");
}

/// Events acknowledged before SIGTERM are in files afterwards, and the log is no longer needed.
#[test]
fn the_end_leaves_everything_in_files() {
    let mut server = TestServer::start_with(&[("WEIR_MEMTABLE_MAX_AGE", "1h")]);
    assert_eq!(server.capture(&events(100)).status, 200);
    server.stop();
    let expected = server.query("SELECT uuid FROM events ORDER BY uuid");
    assert_eq!(expected.len(), 100);
    assert!(!server.files().is_empty());
    std::fs::remove_dir_all(server.data_dir().join("wal")).expect("the log");
    assert_eq!(server.query("SELECT uuid FROM events ORDER BY uuid"), expected);
}
