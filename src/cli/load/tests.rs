//! Tests of the load generator against an in-process server that decodes and counts requests. The server
//! advances a test clock, so that latencies are exact.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::cli::load::{LoadArgs, measure, write_ndjson};
use crate::synth::{Settings, Stream};
use weir_base::clock::{Clock, UnixMicros};

const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);
/// Duration of a request on the server, on the test clock.
const WORK: Duration = Duration::from_millis(10);

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    load: LoadArgs,
}

/// How the server answers: 503 to the first `refusals` requests, then always `status`.
#[derive(Clone, Copy)]
struct Manner {
    refusals: usize,
    status: u16,
}

const FINE: Manner = Manner { refusals: 0, status: 200 };

#[derive(Default)]
struct Seen {
    requests: usize,
    uuids: Vec<Uuid>,
}

struct Server {
    clock: Clock,
    manner: Manner,
    seen: Mutex<Seen>,
}

fn unpack(encoding: Option<&str>, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = match encoding {
        None => Read::read_to_end(&mut &*body, &mut plain),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
        Some("lz4") => lz4_flex::frame::FrameDecoder::new(body).read_to_end(&mut plain),
        Some("zstd") => zstd::Decoder::new(body).unwrap().read_to_end(&mut plain),
        Some(other) => panic!("unknown encoding {other}"),
    };
    read.unwrap();
    plain
}

impl Server {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/batch/"));
        let encoding = request.headers().get("content-encoding").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let envelope: Value =
            serde_json::from_slice(&unpack(encoding.as_ref().map(|v| v.to_str().unwrap()), &body))
                .unwrap();
        assert_eq!(envelope["api_key"], "phc_test");
        self.clock.advance(WORK);
        let mut seen = self.seen.lock();
        seen.requests += 1;
        if seen.requests <= self.manner.refusals {
            let answer = Response::builder().status(503).header("retry-after", "0");
            return Ok(answer.body(Full::default()).unwrap());
        }
        let batch = envelope["batch"].as_array().unwrap();
        seen.uuids
            .extend(batch.iter().map(|e| e["uuid"].as_str().unwrap().parse::<Uuid>().unwrap()));
        let answer = Response::builder().status(self.manner.status);
        Ok(answer.body(Full::from("the reason")).unwrap())
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let server = Arc::clone(&self);
            connections.spawn(async move {
                let service = service_fn(|request| Arc::clone(&server).answer(request));
                http1::Builder::new().serve_connection(TokioIo::new(socket), service).await
            });
        }
    }
}

/// Runs `weir load` with `options` against a server of this manner; returns the report and the received
/// requests.
async fn run(manner: Manner, options: &str) -> (Value, Seen) {
    let clock = Clock::test(NOW);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Arc::new(Server { clock: clock.clone(), manner, seen: Mutex::default() });
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&server).serve(listener));
    let report = load(&url, options, &clock).await;
    let seen = std::mem::take(&mut *server.seen.lock());
    (report, seen)
}

async fn load(url: &str, options: &str, clock: &Clock) -> Value {
    let words = ["load", "--url", url, "--token", "phc_test"];
    let cli = Cli::try_parse_from(words.into_iter().chain(options.split_whitespace())).unwrap();
    let stream = Stream::new(cli.load.seed, Settings::new("phc_test", NOW));
    let report = measure(&cli.load, stream, clock).await.unwrap();
    report.write_text(&mut Vec::new()).unwrap();
    let mut json = Vec::new();
    report.write_json(&mut json).unwrap();
    let value: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(report.is_clean(), value["events_sent"] == value["events_accepted"]);
    value
}

/// Goal: every event of the stream arrives once, with prebuilt and with streamed bodies.
#[tokio::test]
async fn sends_every_event_once() {
    let expected: HashSet<Uuid> = Stream::new(7, Settings::new("phc_test", NOW))
        .lines(1_050)
        .events
        .iter()
        .map(|known| known.uuid)
        .collect();
    for compression in ["none", "gzip", "lz4", "zstd"] {
        for prebuild in ["--prebuild", "--prebuild=never", ""] {
            let options = format!(
                "--seed 7 --events 1050 --batch 100 --compression {compression} {prebuild}"
            );
            let (report, seen) = run(FINE, &options).await;
            assert_eq!(seen.uuids.len(), 1_050, "{options}");
            assert_eq!(seen.uuids.into_iter().collect::<HashSet<_>>(), expected, "{options}");
            assert_eq!(report["events_accepted"], 1_050);
            assert_eq!(report["answers"]["200"], 11);
            assert_eq!(report["requests"], 11);
        }
    }
}

#[tokio::test]
async fn sends_again_after_503_and_counts_it() {
    let manner = Manner { refusals: 3, ..FINE };
    let (report, seen) = run(manner, "--events 300 --batch 100 --connections 1").await;
    assert_eq!((seen.requests, seen.uuids.len()), (6, 300));
    assert_eq!(report["retries"], 3);
    assert_eq!(report["answers"]["200"], 3);
    assert_eq!(report["latency_ms"]["max"].as_f64().unwrap().round(), 40.0, "three retries count");
    // The first body fails after five retries; the rest is accepted.
    let manner = Manner { refusals: 6, ..FINE };
    let (report, seen) = run(manner, "--events 300 --batch 100 --connections 1").await;
    assert_eq!((seen.requests, seen.uuids.len()), (8, 200));
    assert_eq!(report["retries"], 5);
    assert_eq!(report["answers"]["503"], 1);
    assert_eq!(report["events_accepted"], 200);
}

#[tokio::test]
async fn counts_refusals_and_gives_up_on_a_server_that_only_refuses() {
    let manner = Manner { status: 400, ..FINE };
    let (report, seen) = run(manner, "--events 1000 --batch 10 --connections 1").await;
    assert_eq!(seen.requests, 20);
    assert_eq!(report["answers"]["400"], 20);
    assert_eq!(report["events_accepted"], 0);
    assert!(report["first_error"].as_str().unwrap().contains("the reason"), "{report}");
}

#[tokio::test]
async fn counts_connections_that_fail() {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let report = load(&url, "--events 1000 --batch 10 --connections 2", &Clock::test(NOW)).await;
    assert_eq!(report["failures"], 40);
    assert!(report["first_error"].is_string());
}

/// Goal: no coordinated omission. The server takes 10 ms for each of 20 requests. Closed loop:
/// each takes 10 ms. Open loop, one due each millisecond: request `k` is answered at `10 (k + 1)`
/// and was due at `k`.
#[tokio::test]
async fn the_open_loop_counts_from_when_a_request_was_due() {
    let common = "--events 200 --batch 10 --connections 1";
    let (closed, _) = run(FINE, common).await;
    let (open, _) = run(FINE, &format!("{common} --rate 10000")).await;
    let latency = |report: &Value, name: &str| report["latency_ms"][name].as_f64().unwrap().round();
    assert_eq!((latency(&closed, "p50"), latency(&closed, "max")), (10.0, 10.0));
    assert_eq!((latency(&open, "p50"), latency(&open, "max")), (91.0, 181.0));
    assert_eq!(open["events_per_second"], 1_000.0);
}

#[tokio::test]
async fn stops_when_the_time_is_up() {
    let (report, seen) = run(FINE, "--duration 55ms --batch 10 --connections 1").await;
    // Requests start at 0, 10, ... 50 ms.
    assert_eq!(seen.requests, 6);
    assert_eq!(report["events_accepted"], 60);
    let (report, _) = run(FINE, "--duration 55ms --events 30 --batch 10 --connections 1").await;
    assert_eq!(report["events_accepted"], 30);
}

#[tokio::test]
async fn refuses_options_that_make_no_sense() {
    for (url, options) in [
        ("127.0.0.1:1", ""),
        ("http://127.0.0.1:1", "--prebuild --duration 1s"),
        ("http://127.0.0.1:1", "--server-pid 4294967295"),
    ] {
        let words = ["load", "--url", url, "--token", "phc_test", "--events", "1"];
        let words = if options.contains("duration") { &words[..5] } else { &words[..] };
        let words = words.iter().copied().chain(options.split_whitespace());
        let cli = Cli::try_parse_from(words).unwrap();
        let stream = Stream::new(1, Settings::new("phc_test", NOW));
        assert!(measure(&cli.load, stream, &Clock::test(NOW)).await.is_err(), "{url} {options}");
    }
}

#[test]
fn the_file_holds_the_events_of_the_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.ndjson");
    let stream = || Stream::new(3, Settings::new("phc_test", NOW));
    for count in [0, 1, 2_500] {
        write_ndjson(stream(), u64::try_from(count).unwrap(), &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), stream().lines(count).body);
    }
}
