//! Tests of an import against a server in this process, which is away, busy, or refuses.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::cli::import::{self, ImportArgs, files};
use weir_base::clock::Clock;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    import: ImportArgs,
}

/// How the server answers.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    /// Requests that are answered 503 first.
    busy: usize,
    /// Requests whose connection is closed first.
    closed: usize,
    /// Most events of a request; others are answered 413.
    events_max: usize,
    /// Whether events of the name `bad` are dropped, with a warning.
    drops: bool,
    /// Status of every answer, if it is not 0.
    status: u16,
}

#[derive(Default)]
struct Seen {
    requests: usize,
    /// Events that were taken, as often as they were sent.
    events: Vec<Value>,
}

struct Server {
    manner: Manner,
    seen: Mutex<Seen>,
}

impl Server {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let is_look = request.method() == Method::HEAD;
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let answer = |status: u16, text: &str| {
            let answer = Response::builder().status(status).header("retry-after", "0");
            Ok(answer.body(Full::from(text.to_owned())).unwrap())
        };
        if is_look {
            return answer(405, "");
        }
        let sent: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(sent["historical_migration"], true);
        assert_eq!(sent["import"], json!({"person_properties": "fill"}));
        let events = sent["batch"].as_array().unwrap().clone();
        let mut seen = self.seen.lock();
        seen.requests += 1;
        let manner = self.manner;
        match seen.requests {
            _ if manner.status > 0 => return answer(manner.status, r#"{"detail":"the reason"}"#),
            number if number <= manner.busy => return answer(503, ""),
            number if number <= manner.busy + manner.closed => {
                return Err(std::io::Error::other("closed"));
            }
            _ if events.len() > manner.events_max => return answer(413, ""),
            _ => {}
        }
        let is_bad = |event: &Value| manner.drops && event["event"] == "bad";
        let bad = events.iter().filter(|event| is_bad(event)).count();
        seen.events.extend(events.into_iter().filter(|event| !is_bad(event)));
        match bad {
            0 => answer(200, r#"{"status":1}"#),
            _ => answer(
                200,
                r#"{"status":1,"warnings":[{"reason":"x","events":1,"detail":"Dropped: bad."}]}"#,
            ),
        }
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) -> Result<(), Infallible> {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let server = Arc::clone(&self);
            connections.spawn(async move {
                let service = service_fn(|request| Arc::clone(&server).answer(request));
                http1::Builder::new().serve_connection(TokioIo::new(socket), service).await
            });
        }
        Ok(())
    }
}

/// Imports `content` with a server of this manner; returns the report, or the error, and what the server has seen.
async fn run(directory: &Path, manner: Manner, content: &str) -> (Result<Value, String>, Seen) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Arc::new(Server { manner, seen: Mutex::default() });
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&server).serve(listener));
    let file = directory.join("events.jsonl");
    std::fs::write(&file, content).unwrap();
    let report = import_file(directory, &url, &file).await;
    let seen = std::mem::take(&mut *server.seen.lock());
    (report, seen)
}

async fn import_file(directory: &Path, url: &str, file: &Path) -> Result<Value, String> {
    let work = directory.join("work");
    let words =
        ["import", "--from", "jsonl", "--token", "phc_x", "--url", url, "--connections", "3"];
    let words = words.into_iter().map(std::ffi::OsString::from);
    let words = words.chain(["--work-dir".into(), work.into(), file.into()]);
    let args = Cli::try_parse_from(words).unwrap().import;
    let inputs = files::inputs(&args.files).unwrap();
    let report = import::import(args, inputs, Clock::system()).await;
    let report = report.map_err(|error| format!("{error:#}"))?;
    let mut json = Vec::new();
    report.write_json(&mut json).unwrap();
    report.write_text(&mut Vec::new()).unwrap();
    Ok(serde_json::from_slice(&json).unwrap())
}

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |mut lines, number| {
        let (id, name) = (number % 13, if number % 100 == 7 { "bad" } else { "good" });
        writeln!(
            lines,
            r#"{{"event":"{name}","distinct_id":"{id}","timestamp":"2024-01-02T03:04:05Z","n":{number}}}"#
        )
        .unwrap();
        lines
    })
}

fn numbers(seen: &Seen) -> Vec<u64> {
    seen.events.iter().map(|event| event["properties"]["n"].as_u64().unwrap()).collect()
}

const FINE: Manner = Manner { busy: 0, closed: 0, events_max: 10_000, drops: false, status: 0 };

/// Goal: every event arrives, those of a distinct id in their order, whatever the server does meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn every_event_arrives() {
    for manner in [
        FINE,
        Manner { busy: 5, ..FINE },
        Manner { closed: 4, ..FINE },
        Manner { events_max: 10, ..FINE },
        Manner { busy: 2, closed: 2, events_max: 100, ..FINE },
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (report, seen) = run(directory.path(), manner, &lines(5_000)).await;
        let report = report.unwrap();
        let sent = numbers(&seen);
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), 5_000, "{manner:?}");
        assert_eq!((&report["events"], &report["accepted"]), (&json!(5_000), &json!(5_000)));
        for id in 0..13 {
            let of_id: Vec<u64> = sent.iter().copied().filter(|number| number % 13 == id).collect();
            assert!(of_id.is_sorted(), "{manner:?}: {id}");
        }
        let marks: HashSet<String> =
            seen.events.iter().map(|event| event["properties"]["$import_id"].to_string()).collect();
        assert_eq!(marks.len(), 1);
    }
}

/// Goal: events that the server does not take are in the rejects with the reason, each once, and all others arrive.
#[tokio::test(flavor = "multi_thread")]
async fn refused_events_are_told_one_by_one() {
    let directory = tempfile::tempdir().unwrap();
    let manner = Manner { drops: true, ..FINE };
    let content = format!("{}no JSON\n", lines(1_000));
    let (report, seen) = run(directory.path(), manner, &content).await;
    let report = report.unwrap();
    assert_eq!((&report["refused"], &report["accepted"]), (&json!(10), &json!(990)));
    assert_eq!(report["rejected"], 1);
    assert_eq!(numbers(&seen).into_iter().collect::<HashSet<_>>().len(), 990);
    let rejects = std::fs::read_to_string(report["rejects"].as_str().unwrap()).unwrap();
    let mut rejects: Vec<Value> =
        rejects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rejects.sort_by_key(|reject| reject["row"].as_u64());
    assert_eq!(rejects.len(), 11);
    let file = directory.path().join("events.jsonl").display().to_string();
    assert_eq!(rejects[0]["event"]["properties"]["n"], 7);
    assert_eq!(
        (&rejects[0]["file"], &rejects[0]["line"], &rejects[0]["reason"]),
        (&json!(file), &json!(8), &json!("Dropped: bad."))
    );
    assert_eq!((&rejects[10]["row"], &rejects[10]["text"]), (&json!(1_001), &json!("no JSON")));
}

/// Goal: an import that is complete sends nothing again; one whose file has grown does, and one that was stopped continues.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_is_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Arc::new(Server { manner: FINE, seen: Mutex::default() });
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&server).serve(listener));
    let file = directory.path().join("events.jsonl");
    let content = format!("{}no JSON\n", lines(3_000));
    std::fs::write(&file, &content).unwrap();
    let first = import_file(directory.path(), &url, &file).await.unwrap();
    assert_eq!((&first["events"], &first["rejected"]), (&json!(3_000), &json!(1)));
    let again = import_file(directory.path(), &url, &file).await.unwrap();
    assert_eq!((&again["events"], &again["rows_before"]), (&json!(0), &json!(3_001)));
    // As after an interruption: half of the rows are done.
    let work = directory.path().join("work");
    let job = std::fs::read_dir(&work).unwrap().next().unwrap().unwrap().path();
    let path = job.join("checkpoint.json");
    let mut checkpoint: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for state in checkpoint["files"].as_object_mut().unwrap().values_mut() {
        assert_eq!(state["complete"], true);
        state["complete"] = json!(false);
        state["rows"] = json!(1_500);
    }
    std::fs::write(&path, checkpoint.to_string()).unwrap();
    server.seen.lock().events.clear();
    let continued = import_file(directory.path(), &url, &file).await.unwrap();
    assert_eq!((&continued["events"], &continued["rejected"]), (&json!(1_500), &json!(1)));
    let sent = numbers(&server.seen.lock());
    assert_eq!(sent.iter().min(), Some(&1_500));
    // Rejects of rows that were read again are there once.
    let rejects = std::fs::read_to_string(job.join("rejects.jsonl")).unwrap();
    assert_eq!(rejects.lines().count(), 1, "{rejects}");
    std::fs::write(&file, format!("{content}{}", lines(10))).unwrap();
    let grown = import_file(directory.path(), &url, &file).await.unwrap();
    assert_eq!(grown["events"], 3_010);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_end_the_import_with_their_reason() {
    let directory = tempfile::tempdir().unwrap();
    for (status, expected) in [(401, "the reason"), (400, "refused the first 1000 events")] {
        let manner = Manner { status, ..FINE };
        let (report, _) = run(directory.path(), manner, &lines(5_000)).await;
        let error = report.unwrap_err();
        assert!(error.contains(expected) && error.contains("continues"), "{error}");
    }
    let file = directory.path().join("events.jsonl");
    let error = import_file(directory.path(), "http://127.0.0.1:9", &file).await.unwrap_err();
    assert!(error.contains("cannot reach"), "{error}");
    // A file that is something else is not read to its end, row by row.
    let (report, seen) = run(directory.path(), FINE, &"no JSON\n".repeat(100_000)).await;
    let report = report.unwrap();
    assert_eq!((&report["rows"], seen.requests), (&json!(1_000), 0));
    assert!(report["errors"][0].as_str().unwrap().contains("first 1000 rows were all refused"));
}
