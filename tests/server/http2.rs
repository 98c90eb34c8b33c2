//! Attacks by HTTP/2: frames written by hand, heads that refer to the dynamic table of HPACK.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{TOKEN, TestServer, patiently};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Longest frame that a server accepts by default.
const FRAME_MAX_BYTES: usize = 16 * 1024;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// `POST /batch/` in HPACK, with `fields` times the same field `a:`. The first adds it to the dynamic
/// table of the connection (RFC 7541, 6.2.1), and the others refer to it with one byte each.
fn head(fields: usize) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, 7];
    block.extend_from_slice(b"/batch/");
    block.extend_from_slice(&[0x41, 4]);
    block.extend_from_slice(b"weir");
    if fields > 0 {
        block.extend_from_slice(&[0x40, 1, b'a', 0]);
        block.extend(std::iter::repeat_n(0xbe, fields - 1));
    }
    block
}

/// A head, split into frames.
fn head_frames(stream: u32, block: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut parts = block.chunks(FRAME_MAX_BYTES).peekable();
    let mut kind = HEADERS;
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_none() { END_HEADERS } else { 0 };
        frames.extend(frame(kind, flags, stream, part));
        kind = CONTINUATION;
    }
    frames
}

/// Responses on a connection so far.
#[derive(Debug, Default)]
struct Heard {
    /// Streams that were answered.
    answered: BTreeSet<u32>,
    /// The reason in GOAWAY.
    gone_away: Option<u32>,
    is_closed: bool,
}

struct Connection {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    fn open(server: &TestServer) -> Self {
        let mut socket = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        socket.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        Self { socket, unread: Vec::new() }
    }

    /// The server may close before it has read everything.
    fn send(&mut self, frames: &[u8]) {
        let _ = self.socket.write_all(frames);
    }

    /// Reads the available frames into `heard`.
    fn hear(&mut self, heard: &mut Heard) {
        let mut buffer = [0; 64 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => heard.is_closed = true,
                Ok(read) => {
                    self.unread.extend_from_slice(&buffer[..read]);
                    continue;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => heard.is_closed = true,
            }
            break;
        }
        while let Some(head) = self.unread.get(..9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, stream) = (head[3], u32::from_be_bytes(head[5..9].try_into().unwrap()));
            if self.unread.len() < 9 + length {
                break;
            }
            let payload: Vec<u8> = self.unread.drain(..9 + length).skip(9).collect();
            match kind {
                HEADERS => drop(heard.answered.insert(stream)),
                GO_AWAY => {
                    heard.gone_away = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()))
                }
                _ => {}
            }
        }
    }
}

/// Resident memory of the process in MiB.
fn resident_mib(server: &TestServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id())).unwrap();
    let row = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    row.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

/// Opens `streams` streams on each of `connections` connections; their heads have `fields` fields, and
/// their bodies never arrive. The body time-out is long, so that the server keeps what it stores for
/// them.
fn attack(fields: usize, connections: usize, streams: u32) -> (TestServer, u64, Vec<Heard>) {
    let server = TestServer::start_with(&[("WEIR_BODY_TIMEOUT", "10m")]);
    let before = resident_mib(&server);
    let mut open: Vec<Connection> = (0..connections).map(|_| Connection::open(&server)).collect();
    for connection in &mut open {
        for number in 0..streams {
            connection.send(&head_frames(2 * number + 1, &head(fields)));
        }
    }
    let mut heard: Vec<Heard> = open.iter().map(|_| Heard::default()).collect();
    patiently(|| {
        open.iter_mut().zip(&mut heard).for_each(|(connection, heard)| connection.hear(heard));
        let is_over = |heard: &Heard| heard.is_closed || heard.answered.len() >= streams as usize;
        heard.iter().all(is_over).then_some(())
    });
    let answer = server.capture(&serde_json::json!([{"event": "e", "distinct_id": "d"}]));
    assert_eq!(answer.status, 200, "{answer}");
    let grown = resident_mib(&server) - before;
    (server, grown, heard)
}

/// Goal: fields that cost a sender one byte each do not fill the server's memory. Method: as many as
/// fit into 128 KiB by the count of RFC 9113, on many streams, without a token.
#[test]
fn heads_of_references_end_their_connection() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let (_server, grown, heard) = attack(3_960, 6, 60);
    for heard in heard {
        assert_eq!((heard.answered.len(), heard.gone_away), (0, Some(ENHANCE_YOUR_CALM)));
    }
    assert!(grown < 32, "{grown} MiB");
}

/// The same with heads that are too short to be refused as an attack.
#[test]
fn heads_of_many_fields_are_refused() {
    let (_server, grown, heard) = attack(400, 6, 60);
    for heard in heard {
        assert_eq!((heard.answered.len(), heard.gone_away), (60, None), "each is answered 431");
    }
    assert!(grown < 32, "{grown} MiB");
}

/// Goal: requests whose bodies do not arrive are bounded by the memory budget. Method: more of them
/// than fit, with as many fields as are allowed.
#[test]
fn heads_count_among_bodies() {
    let server = TestServer::start_with(&[
        ("WEIR_BODY_TIMEOUT", "10m"),
        ("WEIR_INFLIGHT_MAX_BYTES", "4MiB"),
    ]);
    let mut open: Vec<Connection> = (0..8).map(|_| Connection::open(&server)).collect();
    for connection in &mut open {
        for number in 0..60 {
            connection.send(&head_frames(2 * number + 1, &head(99)));
        }
    }
    let mut heard: Vec<Heard> = open.iter().map(|_| Heard::default()).collect();
    // Each takes about 30 KiB, and so many connections get half of the budget.
    let refused = patiently(|| {
        open.iter_mut().zip(&mut heard).for_each(|(connection, heard)| connection.hear(heard));
        let heads: usize = heard.iter().map(|heard| heard.answered.len()).sum();
        (heads > 380).then_some(heads)
    });
    assert!(refused.is_some_and(|refused| refused < 470), "{heard:?}");
    let answer = server.capture(&serde_json::json!([{"event": "e", "distinct_id": "d"}]));
    assert_eq!(answer.status, 200, "others are served: {answer}");
    // With their bodies the requests end, and their memory is free.
    let body = format!(r#"{{"api_key":"{TOKEN}","batch":[]}}"#);
    for (connection, heard) in open.iter_mut().zip(&heard) {
        let streams = (0..60).map(|number| 2 * number + 1);
        for stream in streams.filter(|stream| !heard.answered.contains(stream)) {
            connection.send(&frame(DATA, END_STREAM, stream, body.as_bytes()));
        }
    }
    // The request for the metrics is one itself.
    let heads = || server.metric("weir_http_head_bytes");
    let is_free = || (1..32 * 1024).contains(&heads()).then_some(());
    assert!(patiently(is_free).is_some(), "the memory is given back");
}

/// Floods of frames end their connection and do not affect others.
#[test]
fn floods_end_their_connection() {
    let server = TestServer::start();
    let mut floods = Vec::new();
    // A head without an end (CVE-2024-27316).
    let mut frames = frame(HEADERS, 0, 1, &head(1));
    for _ in 0..1000 {
        frames.extend(frame(CONTINUATION, 0, 1, &[0xbe]));
    }
    floods.push(("continuation", frames));
    // More streams than the settings allow, again and again.
    let mut frames = Vec::new();
    for number in 0..2000 {
        frames.extend(head_frames(2 * number + 1, &head(1)));
    }
    floods.push(("streams", frames));
    for (name, frames) in floods {
        let mut connection = Connection::open(&server);
        connection.send(&frames);
        let mut heard = Heard::default();
        let ended = patiently(|| {
            connection.hear(&mut heard);
            (heard.gone_away.is_some() || heard.is_closed).then_some(())
        });
        assert!(ended.is_some(), "{name}: {heard:?}");
        assert_eq!(server.get("/_readiness").status, 200, "{name}");
    }
}
