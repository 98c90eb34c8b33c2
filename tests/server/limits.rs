//! Limits of the operating system, and resources that clients could use up.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::harness::{TOKEN, TestServer, patiently, within};

/// Segments of the log and memtables that are full after a few requests, so that files are created all
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

/// Goal: open connections cannot take the descriptors of the log and the tables. Method: hold more
/// connections than the server may have files, and make it start segments and flush.
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

/// The soft limit of open files is raised to the hard limit.
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

/// The setting of a server whose memory is measured: freed memory goes back to the system at once. Otherwise the
/// allocator keeps it for seconds, and the peak depends on how soon requests follow each other.
pub(crate) const FREED_AT_ONCE: (&str, &str) =
    ("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0");

/// Peak resident memory of the process in MiB; see [`FREED_AT_ONCE`].
pub(crate) fn peak_mib(server: &TestServer) -> u64 {
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

/// Goal: no body makes the server allocate gigabytes, with a token or without. Method: the two bodies
/// with the highest ratio of memory to bytes, within the default limits.
#[test]
fn bodies_do_not_blow_up() {
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
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

/// Goal: the number of files of a flush does not depend on the times that senders choose. Method: an
/// event in each of a thousand months, flushed at once; then both ends by time, from the files only.
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

/// Goal: operations on persons take memory by chunk and not by request, and no request has so many
/// events that queries wait long. Method: a batch in which each event creates a person, and one with
/// more than a batch may have.
#[test]
fn events_of_very_many_new_persons_do_not_blow_up() {
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
    let send = |events: usize, ids: usize| {
        let event =
            |number: usize| format!(r#"{{"event":"e","distinct_id":"{:x}"}}"#, number % ids);
        let events: Vec<String> = (0..events).map(event).collect();
        let body = gzip(&format!(r#"{{"api_key":"{TOKEN}","batch":[{}]}}"#, events.join(",")));
        server.send("POST", "/batch/", &[("content-encoding", "gzip")], body)
    };
    let refused = send(250_001, 250_001);
    assert_eq!(refused.status, 413, "{refused}");
    assert!(refused.to_string().contains("more than 250000 distinct ids"), "{refused}");
    let answer = send(300_000, 10);
    assert_eq!(answer.status, 200, "any number of events of few persons: {answer}");
    const EVENTS: usize = 200_000;
    let answer = send(EVENTS, EVENTS);
    assert_eq!(answer.status, 200, "{answer}");
    let last = format!("/api/projects/1/persons/?distinct_id={:x}", EVENTS - 1);
    let found = within(Duration::from_secs(300), || {
        let answer = server.get(&last);
        (answer.status == 200).then(|| answer.json())
    });
    let found = found.expect("an answer");
    assert_eq!(found["results"].as_array().map(Vec::len), Some(1), "{found}");
    let peak = peak_mib(&server);
    assert!(peak < 400, "{peak} MiB");
}

/// Opens a change stream of flags for the client `address`, through a trusted proxy, and returns it
/// with the status of its response.
fn stream_of_flags(server: &TestServer, address: &str) -> (TcpStream, String) {
    let host = server.url().trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(&host).expect("a connection");
    let head = format!(
        "GET /flags/events?token={TOKEN} HTTP/1.1\r\nhost: {host}\r\nx-forwarded-for: {address}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("a request");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let mut first = [0; 12];
    socket.read_exact(&mut first).expect("an answer");
    (socket, String::from_utf8_lossy(&first[9..]).into_owned())
}

/// Goal: streams that last for an hour leave connections to events. Method: as many as are granted, to
/// one address and to many, on a server with few connections.
#[test]
fn streams_of_flags_leave_connections_to_capture() {
    let server = TestServer::start_with(&[("WEIR_CONNECTIONS_MAX", "32")]);
    let (mut open, mut refused) = (Vec::new(), Vec::new());
    for number in 0..40 {
        // Of the first address one, and another one that is too many.
        let address = format!("198.51.100.{}", number.max(1));
        let (stream, status) = stream_of_flags(&server, &address);
        if status == "200" { open.push(stream) } else { refused.push(status) }
    }
    assert_eq!(open.len(), 8, "a quarter");
    assert_eq!((refused.first().map(String::as_str), refused.len()), (Some("429"), 32));
    assert!(refused[1..].iter().all(|status| status == "503"), "{refused:?}");
    for number in 0..20 {
        let answer = server.send("POST", "/capture/", &[], body(number));
        assert_eq!(answer.status, 200, "{number}: {answer}");
    }
    drop(open);
    let again = patiently(|| {
        let (_stream, status) = stream_of_flags(&server, "198.51.100.1");
        (status == "200").then_some(())
    });
    assert!(again.is_some(), "places are free again");
}

/// A request of 100 KB that does not compress, with events in a month of its own.
fn noise(number: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
    let text: String = (0..100_000 / 16)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            format!("{state:016x}")
        })
        .collect();
    json!({
        "api_key": TOKEN, "event": "noise", "distinct_id": "u", "timestamp": "2025-01-05T00:00:00Z",
        "properties": {"text": text},
    })
    .to_string()
}

/// Sends events until one is refused; the server then reports that it is not ready.
fn send_until_refused(server: &TestServer, what: &str) -> usize {
    for number in 0..200 {
        let answer = server.send("POST", "/capture/", &[], noise(number));
        if answer.status == 200 {
            continue;
        }
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer}");
        let probe = server.get("/_readiness");
        assert_eq!(probe.status, 503, "{what}: {probe}");
        assert!(probe.to_string().contains(what), "{probe}");
        assert_eq!(server.get("/_liveness").status, 200);
        return number;
    }
    panic!("nothing was refused: {what}");
}

/// Waits until the server reports that it is ready, without sending anything; then it accepts events.
fn ready_and_taking(server: &TestServer, accepted: usize) {
    let ready = patiently(|| (server.get("/_readiness").status == 200).then_some(()));
    assert!(ready.is_some(), "it is not ready again");
    let answer = server.send("POST", "/capture/", &[], noise(1000));
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(server.count("SELECT count(*) FROM events"), accepted as u64 + 1);
}

/// Goal: a server whose flushes keep failing is not ready, and gets no more traffic. Method: a file in
/// place of the directory of a partition.
#[test]
fn failing_flushes_end_readiness_until_they_succeed() {
    let server = TestServer::start_with(&SMALL_FILES);
    let month = server.data_dir().join("tables/events/month=2025-01");
    std::fs::write(&month, "in the way").expect("a file");
    let accepted = send_until_refused(&server, "the memtables are full");
    std::fs::remove_file(&month).expect("the file");
    ready_and_taking(&server, accepted);
}

/// Goal: the same for a log that cannot create a segment, which recovers by itself. Method: its
/// directory has another name for a while.
#[test]
fn a_log_without_segments_ends_readiness_until_it_has_one() {
    let server = TestServer::start_with(&[
        ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB"),
        ("WEIR_MEMTABLE_MAX_AGE", "1h"),
    ]);
    let (wal, away) = (server.data_dir().join("wal"), server.data_dir().join("away"));
    std::fs::rename(&wal, &away).expect("another name");
    let accepted = send_until_refused(&server, "cannot begin another segment");
    std::fs::rename(&away, &wal).expect("its name");
    ready_and_taking(&server, accepted);
}

/// Goal: overload does not flood the log of the server. Method: refuse everything.
#[test]
fn refused_requests_are_counted_and_not_logged_one_by_one() {
    let mut server = TestServer::start_unready_with(&[("WEIR_DISK_FREE_MIN_BYTES", "1000TiB")]);
    const REFUSED: usize = 200;
    let what = "the disk is nearly full";
    let low = patiently(|| (server.get("/_readiness").status == 503).then_some(()));
    assert!(low.is_some());
    for number in 0..REFUSED {
        assert_eq!(server.send("POST", "/capture/", &[], body(number)).status, 503);
    }
    let counter = "weir_http_requests_total{route=\"capture\",status=\"503\"}";
    assert_eq!(server.metric(counter), REFUSED as u64);
    server.stop();
    let said = server.stderr();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(what)).collect();
    let of_capture = |line: &&&str| line.contains("route=\"capture\"");
    assert!(lines.iter().filter(of_capture).count() <= 5, "{said}");
    assert!(!lines.iter().any(|line| line.contains("ERROR")), "{said}");
    let told = lines.iter().filter(of_capture).filter_map(|line| {
        let (_, count) = line.split_once("refused=")?;
        count.split_whitespace().next()?.parse::<usize>().ok()
    });
    assert_eq!(told.sum::<usize>(), REFUSED, "{said}");
}
