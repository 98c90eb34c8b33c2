//! What the operating system allows the server, and what clients can use up of it.

use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::harness::TOKEN;
use crate::harness::TestServer;
use crate::harness::patiently;

/// Segments of the log and memtables that are full after a few requests, so that files are made all
/// the time.
const SMALL_FILES: [(&str, &str); 3] = [
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB"),
    ("WEIR_MEMTABLE_MAX_BYTES", "512KiB"),
    ("WEIR_MEMTABLE_MAX_AGE", "100ms"),
];

fn body(number: usize) -> String {
    json!({
        "api_key": TOKEN, "event": "filler", "distinct_id": format!("person {number}"),
        "properties": {"text": "x".repeat(100_000)},
    })
    .to_string()
}

/// Goal: nobody can take the log or the tables their descriptors by opening connections. Method:
/// hold more connections than the server may have files, and make it begin segments and flush.
#[test]
fn idle_connections_leave_descriptors_to_files() {
    let mut server = TestServer::start_limited("-n 256", &SMALL_FILES);
    let address = server.url().trim_start_matches("http://").to_owned();
    let idle: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut socket = TcpStream::connect(&address).expect("a connection");
            let head = format!("GET /_liveness HTTP/1.1\r\nhost: {address}\r\n\r\n");
            socket.write_all(head.as_bytes()).expect("a request");
            socket
        })
        .collect();
    // The first ones are served and stay.
    for mut socket in idle.iter().take(20) {
        let mut first = [0; 12];
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        socket.read_exact(&mut first).expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    const EVENTS: usize = 30;
    for number in 0..EVENTS {
        let answer = server.send("POST", "/capture/", &[], body(number));
        assert_eq!(answer.status, 200, "{number}: {answer}");
    }
    let has_files = patiently(|| (!server.files().is_empty()).then_some(()));
    assert!(has_files.is_some(), "flushes go on");
    assert_eq!(server.get("/_readiness").status, 200);
    drop(idle);
    let said = server.stderr();
    assert!(said.contains("allows fewer connections than connections-max"), "{said}");
    server.stop();
    assert_eq!(server.count("SELECT count(*) FROM events"), EVENTS as u64);
}

/// The limit that a process begins with is for others; the server takes what it may have.
#[test]
fn the_limit_of_open_files_is_raised() {
    let server = TestServer::start_limited("-S -n 200", &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.process_id()));
    let limits = limits.expect("limits of the process");
    let row = limits.lines().find(|line| line.starts_with("Max open files")).expect("a row");
    let columns: Vec<&str> = row.split_whitespace().collect();
    let [_, _, _, soft, hard, _] = columns[..] else { panic!("{row}") };
    assert_eq!(soft, hard);
    assert_ne!(hard, "200", "the test's own limit is too low to see anything");
}

/// The most memory that the process ever had, in MiB.
fn peak_mib(server: &TestServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id()));
    let status = status.expect("the status of the process");
    let row = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a row");
    let kib = row.split_whitespace().next().expect("a number");
    kib.parse::<u64>().expect("a number") / 1024
}

fn gzip(text: &str) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(text.as_bytes()).expect("memory");
    out.finish().expect("memory")
}

/// Goal: no body makes the server take gigabytes, with a token or without. Method: the two that take
/// most for their bytes, within the default limits of bodies.
#[test]
fn bodies_do_not_blow_up() {
    let server = TestServer::start();
    let numbers = format!("[{}0]", "0,".repeat(50 << 20));
    let members: Vec<String> = (0..60_000).map(|number| format!(r#""{number:x}":0"#)).collect();
    let event = format!(
        r#"{{"event":"e","distinct_id":"u","properties":{{"$set":{{{}}}}}}}"#,
        members.join(",")
    );
    let persons = format!(r#"{{"api_key":"{TOKEN}","batch":[{}]}}"#, vec![event; 150].join(","));
    for body in [numbers, persons] {
        let packed = gzip(&body);
        let headers = [("content-encoding", "gzip"), ("content-type", "application/json")];
        // More than once at a time, as many as there are threads and more.
        let client = server.client();
        let send = || client.send("POST", "/batch/", &headers, &packed).expect("an answer");
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let sent: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
            sent.into_iter().map(|sent| sent.join().expect("an answer").status).collect()
        });
        assert!(statuses.contains(&413), "{statuses:?}");
        assert!(statuses.iter().all(|status| [413, 503].contains(status)), "{statuses:?}");
    }
    let peak = peak_mib(&server);
    assert!(peak < 1024, "{peak} MiB");
    // It goes on for others.
    let answer = server.send("POST", "/capture/", &[], body(1));
    assert_eq!(answer.status, 200, "{answer}");
}

/// Goal: senders choose the times of their events, and not how many files a flush writes. Method: an
/// event in each of a thousand months, flushed at once; then both ends by time, from the files alone.
#[test]
fn a_flush_writes_few_files_whatever_the_months() {
    let mut server = TestServer::start_with(&[("WEIR_MEMTABLE_MAX_AGE", "1h")]);
    let event = |year: usize, month: usize| {
        let timestamp = format!("{year:04}-{month:02}-15T12:00:00Z");
        json!({"event": "old", "distinct_id": "u", "timestamp": timestamp, "properties": {}})
    };
    let old = (0..1000).map(|month| event(1900 + month / 12, month % 12 + 1));
    let recent = (1..=5).map(|month| event(2025, month));
    let answer = server.capture(&old.chain(recent).collect());
    assert_eq!(answer.status, 200, "{answer}");
    server.stop();
    std::fs::remove_dir_all(server.data_dir().join("wal")).expect("the log");
    assert_eq!(server.files().len(), 6, "one of before, and five of months");
    for (condition, expected) in [
        ("true", 1005),
        ("timestamp < '1901-01-01T00:00:00Z'", 12),
        ("timestamp >= '1983-01-01T00:00:00Z'", 4 + 5),
        ("timestamp >= '2025-01-01T00:00:00Z'", 5),
        ("timestamp BETWEEN '1950-01-01T00:00:00Z' AND '1950-12-31T00:00:00Z'", 12),
        ("timestamp BETWEEN '2025-02-01T00:00:00Z' AND '2025-02-28T00:00:00Z'", 1),
    ] {
        let sql = format!("SELECT count(*) FROM events WHERE {condition}");
        assert_eq!(server.count(&sql), expected, "{condition}");
    }
}
