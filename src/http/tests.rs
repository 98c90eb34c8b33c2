//! Tests of the HTTP front end over real sockets: a server on a free port, clients that write raw
//! bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::gzip::compressed;
use crate::handler::{Handler, Matched};
use crate::limits::Limits;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::serve;
use weir_base::clock::Clock;
use weir_base::tasks::Tasks;
use weir_base::telemetry::metrics::Metrics;

mod bodies;
mod connections;
mod described;
mod http2;
mod log;
mod requests;

/// Longer than any test takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A time-out that a test reaches on purpose; long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(500);

fn limits() -> Limits {
    Limits {
        connections_max: 100,
        header_timeout: PATIENCE,
        body_timeout: PATIENCE,
        drain_timeout: PATIENCE,
        keep_alive_idle: PATIENCE,
        requests_max_bytes: 100 << 20,
        trusted_proxies: "127.0.0.0/8,10.0.0.0/8".parse().unwrap(),
        node_secret: None,
    }
}

/// Endpoints that do one thing each. `gate` lets `/slow` finish; `dropped` signals that it ended.
struct Endpoints {
    gate: Semaphore,
    entered: Semaphore,
    dropped: Arc<Semaphore>,
}

struct TellDrop(Arc<Semaphore>);

impl Drop for TellDrop {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

impl Handler for Endpoints {
    type Route = ();

    fn route(&self, _method: &Method, path: &str) -> Matched<()> {
        let label = if path == "/hello" { "hello" } else { "other" };
        let is_routine = path.starts_with("/routine");
        Matched { route: (), label, is_routine, is_probe: path == "/probe" }
    }

    async fn handle(&self, (): (), request: Request) -> Response {
        match (request.method.as_str(), request.path()) {
            ("GET", "/hello" | "/routine" | "/probe") => Response::text(StatusCode::OK, "hello"),
            ("GET", "/info") => {
                let query = request.query("q").unwrap_or_default();
                let (ip, id) = (request.client_ip, request.request_id.as_str());
                Response::text(StatusCode::OK, format!("{} {query} {ip} {id}", request.path()))
            }
            ("POST", "/echo") => match request.body.read(10 << 20).await {
                Ok(body) => Response::text(StatusCode::OK, body),
                Err(error) => error.into(),
            },
            ("POST", "/small") => match request.body.read(10).await {
                Ok(body) => Response::text(StatusCode::OK, body),
                Err(error) => error.into(),
            },
            ("POST", "/parse") => match request.body.read_to_parse(10 << 20).await {
                Ok(body) => {
                    drop(body);
                    self.entered.add_permits(1);
                    self.gate.acquire().await.unwrap().forget();
                    Response::text(StatusCode::OK, "parsed")
                }
                Err(error) => error.into(),
            },
            ("GET", "/gzip") => {
                let text = noise(request.query("bytes").unwrap().parse().unwrap());
                compressed(request.header("accept-encoding"), Response::text(StatusCode::OK, text))
            }
            ("GET", "/large") => Response::text(StatusCode::OK, "x".repeat(100_000)),
            ("POST", "/ignore") => Response::text(StatusCode::OK, "ignored"),
            ("GET", "/slow") => {
                let _tell = TellDrop(Arc::clone(&self.dropped));
                self.entered.add_permits(1);
                self.gate.acquire().await.unwrap().forget();
                Response::text(StatusCode::OK, "slow")
            }
            ("GET", "/panic") => panic!("planted"),
            ("GET", "/stream") => {
                let pieces = ["one ", "two ", "three"].map(|piece| Ok(Bytes::from(piece)));
                let pieces = futures::stream::iter(pieces);
                Response::stream(StatusCode::OK, HeaderValue::from_static("text/csv"), pieces)
            }
            // Both have 13 bytes; the second announces more.
            ("GET", path @ ("/sized-stream" | "/short-stream")) => {
                let pieces = ["one ", "two ", "three"].map(|piece| Ok(Bytes::from(piece)));
                let pieces = futures::stream::iter(pieces);
                let len = if path == "/sized-stream" { 13 } else { 20 };
                let csv = HeaderValue::from_static("text/csv");
                Response::sized_stream(StatusCode::OK, csv, len, pieces)
            }
            ("GET", "/broken-stream") => {
                let pieces = [Ok(Bytes::from("one ")), Err("spilled".into())];
                // A pause before each; otherwise the first would not be sent before the second
                // fails.
                let pieces = futures::stream::iter(pieces).then(async |piece| {
                    tokio::task::yield_now().await;
                    piece
                });
                Response::stream(StatusCode::OK, HeaderValue::from_static("text/csv"), pieces)
            }
            _ => Problem::not_found("Not found.").into(),
        }
    }
}

struct Server {
    address: SocketAddr,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    endpoints: Arc<Endpoints>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new(Handle::current());
        let metrics = Arc::new(Metrics::new());
        let endpoints = Arc::new(Endpoints {
            gate: Semaphore::new(0),
            entered: Semaphore::new(0),
            dropped: Arc::new(Semaphore::new(0)),
        });
        let server = serve(
            listener,
            limits,
            Arc::clone(&endpoints),
            tasks.clone(),
            Clock::system(),
            Arc::clone(&metrics),
        );
        tasks.spawn("http", server);
        Self { address, tasks, metrics, endpoints }
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), unread: Vec::new() }
    }

    /// Sends `request` on a new connection and returns the response.
    async fn ask(&self, request: &str) -> Answer {
        let mut client = self.connect().await;
        client.send(request.as_bytes()).await;
        client.answer().await
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.render().lines().any(|found| found == line)
    }
}

struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        tokio::time::timeout(PATIENCE, self.stream.write_all(bytes)).await.unwrap().unwrap();
    }

    /// Reads more bytes; false at the end of the connection, orderly or not.
    async fn more(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.unread);
        tokio::time::timeout(PATIENCE, read).await.unwrap().is_ok_and(|read| read > 0)
    }

    async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Reads one response: by its length, or to the end of the connection (chunks not decoded).
    async fn answer(&mut self) -> Answer {
        let head = self.head().await.expect("an answer before the connection ends");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: String::new() };
        let length = answer.header("content-length").map(|length| length.parse().unwrap());
        while length.is_none_or(|length: usize| self.unread.len() < length) {
            if !self.more().await {
                break;
            }
        }
        let length = length.unwrap_or(self.unread.len());
        answer.body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        answer
    }

    async fn is_closed(&mut self) -> bool {
        !self.more().await
    }
}

/// A text of this many bytes, which compression reduces to half of its length.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&format!("{:08x}", state >> 32));
    }
    text.truncate(bytes);
    text
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: weir\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: weir\r\ncontent-length: {length}\r\n\r\n{body}")
}
