//! The front end over real sockets: a server on a free port, clients that write raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::BodyExt;
use http_body_util::Full;
use hyper::Method;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::http::Handler;
use crate::http::Limits;
use crate::http::Matched;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::serve;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;

/// Longer than anything here takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A limit that is hit on purpose; not so short that a busy machine hits it by itself.
const SHORT: Duration = Duration::from_millis(500);

fn limits() -> Limits {
    Limits {
        connections_max: 100,
        header_timeout: PATIENCE,
        body_timeout: PATIENCE,
        drain_timeout: PATIENCE,
        keep_alive_idle: PATIENCE,
        bodies_max_bytes: 100 << 20,
        trusted_proxies: "127.0.0.0/8,10.0.0.0/8".parse().unwrap(),
    }
}

/// Endpoints that do one thing each. `gate` lets `/slow` finish; `dropped` tells that it ended.
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
        Matched { route: (), label: if path == "/hello" { "hello" } else { "other" } }
    }

    async fn handle(&self, (): (), request: Request) -> Response {
        match (request.method.as_str(), request.path()) {
            ("GET", "/hello") => Response::text(StatusCode::OK, "hello"),
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
            // Of 13 bytes both; the second announces more than it has.
            ("GET", path @ ("/sized-stream" | "/short-stream")) => {
                let pieces = ["one ", "two ", "three"].map(|piece| Ok(Bytes::from(piece)));
                let pieces = futures::stream::iter(pieces);
                let len = if path == "/sized-stream" { 13 } else { 20 };
                let csv = HeaderValue::from_static("text/csv");
                Response::sized_stream(StatusCode::OK, csv, len, pieces)
            }
            ("GET", "/broken-stream") => {
                let pieces = [Ok(Bytes::from("one ")), Err("spilled".into())];
                // A pause before each, or the first would not be sent before the second breaks.
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

    /// Sends `request` on a connection of its own and returns the answer.
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

    /// Reads more; false at the end of the connection, orderly or not.
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

    /// One answer: by its length, or to the end of the connection (chunks as they come).
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

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: weir\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: weir\r\ncontent-length: {length}\r\n\r\n{body}")
}

#[tokio::test]
async fn a_connection_serves_many_requests_also_pipelined() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(get("/hello").as_bytes()).await;
        assert_eq!(client.answer().await.body, "hello");
    }
    let pipelined = [get("/hello"), post("/echo", "two"), get("/nowhere")].concat();
    client.send(pipelined.as_bytes()).await;
    for (status, body) in [(200, "hello"), (200, "two")] {
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body));
    }
    assert_eq!(client.answer().await.status, 404);
    assert!(server.metric("weir_http_requests_total{route=\"hello\",status=\"200\"} 4"));
    assert!(server.metric("weir_http_connections 1"));
    assert!(server.metric("weir_http_received_bytes_total 3"));
    client.send(b"GET /hello HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 200);
    assert!(client.is_closed().await, "HTTP/1.0 without keep-alive");
}

#[tokio::test]
async fn bodies_arrive_whole_in_any_framing() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    let chunked = "POST /echo HTTP/1.1\r\nhost: weir\r\ntransfer-encoding: chunked\r\n\r\n";
    for (chunks, body) in [
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\ntrailer: x\r\n\r\n", "hello"),
        ("0\r\n\r\n", ""),
    ] {
        client.send(format!("{chunked}{chunks}").as_bytes()).await;
        assert_eq!(client.answer().await.body, body);
    }
    for length in [0, 1, 8_000, 300_000, 3_000_000] {
        let body: String = ('a'..='z').cycle().take(length).collect();
        client.send(post("/echo", &body).as_bytes()).await;
        assert!(client.answer().await.body == body, "{length} bytes");
    }
    assert!(server.metric("weir_http_body_bytes 0"), "the budget is given back");
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_is_told() {
    let server = Server::start(limits()).await;
    let head = |path, length| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: weir\r\nexpect: 100-continue\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let mut client = server.connect().await;
    client.send(head("/echo", 5).as_bytes()).await;
    assert_eq!(client.head().await.unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"hello").await;
    assert_eq!(client.answer().await.body, "hello");

    let mut client = server.connect().await;
    client.send(head("/small", 5000).as_bytes()).await;
    assert_eq!(client.answer().await.status, 413, "without asking for the body");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn too_large_a_body_gets_its_413_although_it_was_sent() {
    let server = Server::start(limits()).await;
    let body = "x".repeat(5_000_000);
    let mut client = server.connect().await;
    client.send(post("/small", &body).as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains(r#""code":"payload_too_large""#), "{answer:?}");

    // The connection is still good, and chunks announce no length.
    let head = "POST /small HTTP/1.1\r\nhost: weir\r\ntransfer-encoding: chunked\r\n\r\n";
    client.send(format!("{head}4c4b40\r\n{body}\r\n0\r\n\r\n").as_bytes()).await;
    assert_eq!(client.answer().await.status, 413);
    client.send(post("/ignore", &body).as_bytes()).await;
    assert_eq!(client.answer().await.body, "ignored", "nobody read the body");
    client.send(post("/small", "0123456789").as_bytes()).await;
    assert_eq!(client.answer().await.body, "0123456789", "exactly full");
}

#[tokio::test]
async fn all_bodies_together_are_bounded() {
    let server = Server::start(Limits { bodies_max_bytes: 1000, ..limits() }).await;
    let mut client = server.connect().await;
    client.send(post("/echo", &"x".repeat(5000)).as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    client.send(post("/echo", "small").as_bytes()).await;
    assert_eq!(client.answer().await.status, 200, "the memory is free again");
}

#[tokio::test]
async fn slow_clients_are_let_go() {
    let quick = Limits { header_timeout: SHORT, body_timeout: SHORT, ..limits() };
    let server = Server::start(quick).await;
    let mut silent = server.connect().await;
    assert!(silent.is_closed().await, "not a byte");
    let mut halting = server.connect().await;
    halting.send(b"GET /hello HT").await;
    assert!(halting.is_closed().await, "half a head");
    let mut second = server.connect().await;
    second.send(get("/hello").as_bytes()).await;
    assert_eq!(second.answer().await.status, 200);
    second.send(b"GET /he").await;
    assert!(second.is_closed().await, "half a second head");
    let mut starving = server.connect().await;
    starving.send(b"POST /echo HTTP/1.1\r\nhost: weir\r\ncontent-length: 5\r\n\r\nhel").await;
    let answer = starving.answer().await;
    assert_eq!(answer.status, 408);
    assert!(answer.body.contains("client stopped sending data"));
    assert!(starving.is_closed().await);
    let mut working = server.connect().await;
    working.send(get("/slow").as_bytes()).await;
    tokio::time::sleep(3 * SHORT).await;
    server.endpoints.gate.add_permits(1);
    assert_eq!(working.answer().await.body, "slow", "an answer may take longer");
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let server = Server::start(Limits {
        header_timeout: SHORT,
        keep_alive_idle: Duration::from_secs(3),
        ..limits()
    })
    .await;
    let mut client = server.connect().await;
    client.send(get("/hello").as_bytes()).await;
    client.answer().await;
    tokio::time::sleep(2 * SHORT).await;
    client.send(get("/hello").as_bytes()).await;
    assert_eq!(client.answer().await.status, 200, "idle longer than a head may take");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_client_that_takes_no_bytes_is_let_go() {
    let quick = Limits { header_timeout: SHORT, body_timeout: SHORT, ..limits() };
    let server = Server::start(quick).await;
    let mut client = server.connect().await;
    // More than both sides' socket buffers take (4 MiB of sending and 6 MiB of receiving, the
    // kernel's defaults), so that the server cannot get rid of it.
    let request = post("/echo", &"x".repeat(10 << 20));
    for _ in 0..3 {
        let send = client.stream.write_all(request.as_bytes());
        if tokio::time::timeout(Duration::from_secs(1), send).await.is_err() {
            break;
        }
    }
    let closed = async {
        while !server.metric("weir_http_connections 0") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("the server closes the connection");
}

type Http2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(server: &Server) -> Http2 {
    let io = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (client, connection) = handshake.await.unwrap();
    // Not among the server's tasks: the wait for those must not wait for the client.
    drop(Handle::current().spawn(connection));
    client
}

/// Status, announced length and body of the answer on a stream of its own.
async fn ask_http2(
    client: &Http2,
    method: &str,
    path: &str,
    body: Bytes,
) -> Result<(u16, Option<usize>, Bytes), hyper::Error> {
    let request = hyper::Request::builder().method(method).uri(format!("http://weir{path}"));
    let response = client.clone().send_request(request.body(Full::new(body)).unwrap()).await?;
    let (head, body) = response.into_parts();
    let length = head.headers.get("content-length").map(|value| value.to_str().unwrap());
    let length = length.map(|length| length.parse::<usize>().unwrap());
    Ok((head.status.as_u16(), length, body.collect().await?.to_bytes()))
}

#[tokio::test]
async fn http2_works_with_prior_knowledge() {
    let server = Server::start(limits()).await;
    let client = http2(&server).await;
    let large = Bytes::from("x".repeat(3_000_000));
    let (hello, echo, head, missing, large_one) = tokio::join!(
        ask_http2(&client, "GET", "/hello", Bytes::new()),
        ask_http2(&client, "POST", "/echo", large.clone()),
        ask_http2(&client, "HEAD", "/hello", Bytes::new()),
        ask_http2(&client, "GET", "/nowhere", Bytes::new()),
        ask_http2(&client, "POST", "/small", large.clone()),
    );
    assert_eq!(hello.unwrap(), (200, Some(5), Bytes::from("hello")));
    assert!(echo.unwrap() == (200, Some(3_000_000), large));
    assert_eq!(head.unwrap(), (200, Some(5), Bytes::new()));
    let sized = ask_http2(&client, "GET", "/sized-stream", Bytes::new()).await;
    assert_eq!(sized.unwrap(), (200, Some(13), Bytes::from("one two three")));
    assert_eq!((missing.unwrap().0, large_one.unwrap().0), (404, 413));
    assert!(server.metric("weir_http_body_bytes 0"));
}

#[tokio::test]
async fn http2_streams_are_dropped_alone_and_drained_together() {
    let server = Server::start(limits()).await;
    let client = http2(&server).await;
    let slow = async || ask_http2(&client, "GET", "/slow", Bytes::new()).await;
    let given_up = tokio::time::timeout(SHORT, slow()).await;
    assert!(given_up.is_err());
    let dropped = server.endpoints.dropped.acquire();
    tokio::time::timeout(PATIENCE, dropped).await.unwrap().unwrap().forget();
    let shutdown = async {
        server.endpoints.entered.acquire_many(2).await.unwrap().forget();
        server.tasks.shutdown().begin();
        assert!(server.tasks.wait(SHORT).await.is_err(), "a request is under way");
        server.endpoints.gate.add_permits(1);
        server.tasks.wait(PATIENCE).await.unwrap();
    };
    let (answer, ()) = tokio::join!(slow(), shutdown);
    assert_eq!(answer.unwrap().2, "slow");
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.send(b"HEAD /hello HTTP/1.1\r\nhost: weir\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-length: 5\r\n"), "{head}");
    client.send(b"HEAD /sized-stream HTTP/1.1\r\nhost: weir\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert!(head.contains("content-length: 13\r\n"), "{head}");
    client.send(get("/hello").as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"), "no body lay between");
}

#[tokio::test]
async fn pages_of_any_origin_may_read_every_answer() {
    let server = Server::start(limits()).await;
    let origin = "host: weir\r\nOrigin: https://shop.example\r\n";
    let preflight = format!(
        "OPTIONS /nowhere HTTP/1.1\r\n{origin}Access-Control-Request-Method: PATCH\r\n\
         Access-Control-Request-Headers: content-type, x-mine\r\n\r\n"
    );
    let answer = server.ask(&preflight).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(answer.header("access-control-allow-methods"), Some("PATCH"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("content-type, x-mine"));
    let plain = format!("OPTIONS /batch/ HTTP/1.1\r\n{origin}\r\n");
    assert_eq!(server.ask(&plain).await.body, r#"{"status":"Ok"}"#);
    for (line, status) in [
        ("GET /hello", 200),
        ("GET /nowhere", 404),
        ("GET /panic", 500),
        ("POST /small", 413),
        ("OPTIONS /hello", 200),
    ] {
        let body =
            if status == 413 { "content-length: 20\r\n\r\n01234567890123456789" } else { "\r\n" };
        let answer = server.ask(&format!("{line} HTTP/1.1\r\n{origin}{body}")).await;
        assert_eq!(answer.status, status, "{line}");
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, Some("https://shop.example"), "{line}");
        assert_eq!(answer.header("access-control-allow-credentials"), Some("true"), "{line}");
        assert_eq!(answer.header("vary"), Some("origin"), "{line}");
    }
    let answer = server.ask(&get("/hello")).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_server_lives() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.send(get("/panic").as_bytes()).await;
    let answer = client.answer().await;
    let body =
        r#"{"type":"server_error","code":"error","detail":"A server error occurred.","attr":null}"#;
    assert_eq!((answer.status, answer.body.as_str()), (500, body));
    client.send(get("/hello").as_bytes()).await;
    assert_eq!(client.answer().await.body, "hello", "on the same connection");
}

#[tokio::test]
async fn malformed_heads_are_refused() {
    let server = Server::start(limits()).await;
    let long_header = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let long_path = get(&format!("/{}", "y".repeat(70_000)));
    for (request, status) in [
        ("GARBAGE\r\n\r\n", 400),
        ("GET  /hello HTTP/1.1\r\n\r\n", 400),
        ("GET /hello HTTP/9.9\r\n\r\n", 400),
        ("GET /hello HTTP/1.1\r\nbad header\r\n\r\n", 400),
        ("POST /echo HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400),
        ("POST /echo HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (&long_path, 414),
        (&long_header, 431),
    ] {
        let mut client = server.connect().await;
        // The server may close before it has everything.
        let _ = client.stream.write_all(request.as_bytes()).await;
        let shown = &request[..request.len().min(60)];
        assert_eq!(client.answer().await.status, status, "{shown}");
        assert!(client.is_closed().await, "{shown}");
    }
    assert_eq!(server.ask(&get("/hello")).await.status, 200);
}

#[tokio::test]
async fn streams_arrive_in_pieces_and_break_visibly() {
    let server = Server::start(limits()).await;
    let chunks = |text: &str| text.replace("\r\n", "|");
    let mut client = server.connect().await;
    client.send(b"GET /stream HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!(answer.header("content-type"), Some("text/csv"));
    assert_eq!(chunks(&answer.body), "4|one |4|two |5|three|0||");
    client = server.connect().await;
    client.send(get("/sized-stream").as_bytes()).await;
    assert_eq!(client.answer().await.body, "one two three", "no chunks, as its length is known");
    client.send(get("/broken-stream").as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 200, "sent before it broke");
    assert!(!answer.body.contains("0\r\n\r\n"), "{answer:?}");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_shutdown_lets_requests_finish_and_takes_no_new_ones() {
    let server = Server::start(limits()).await;
    let mut idle = server.connect().await;
    idle.send(get("/hello").as_bytes()).await;
    idle.answer().await;
    let mut slow = server.connect().await;
    slow.send(get("/slow").as_bytes()).await;
    server.endpoints.entered.acquire().await.unwrap().forget();
    server.tasks.shutdown().begin();
    assert!(idle.is_closed().await);
    let refused = async { while TcpStream::connect(server.address).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert!(server.tasks.wait(SHORT).await.is_err(), "a request is under way");
    server.endpoints.gate.add_permits(1);
    let answer = slow.answer().await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("slow", Some("close")));
    server.tasks.wait(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_shutdown_cuts_what_outlasts_the_drain_time_out() {
    let quick = Limits { drain_timeout: SHORT, header_timeout: SHORT, ..limits() };
    let server = Server::start(quick).await;
    let mut slow = server.connect().await;
    slow.send(get("/slow").as_bytes()).await;
    server.endpoints.entered.acquire().await.unwrap().forget();
    server.tasks.shutdown().begin();
    server.tasks.wait(PATIENCE).await.unwrap();
    assert!(slow.is_closed().await);
    assert!(server.metric("weir_http_requests_total{route=\"other\",status=\"499\"} 1"));
}

#[tokio::test]
async fn a_hang_up_drops_the_handler() {
    let server = Server::start(limits()).await;
    let mut slow = server.connect().await;
    slow.send(get("/slow").as_bytes()).await;
    server.endpoints.entered.acquire().await.unwrap().forget();
    drop(slow);
    let dropped = server.endpoints.dropped.acquire();
    tokio::time::timeout(PATIENCE, dropped).await.unwrap().unwrap().forget();
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_and_idle_ones_make_room() {
    let quick = Limits { connections_max: 1, header_timeout: SHORT, ..limits() };
    let server = Server::start(quick).await;
    let mut first = server.connect().await;
    first.send(get("/slow").as_bytes()).await;
    server.endpoints.entered.acquire().await.unwrap().forget();
    let mut second = server.connect().await;
    second.send(get("/hello").as_bytes()).await;
    let early = tokio::time::timeout(SHORT, second.more()).await;
    assert!(early.is_err(), "the one permit is taken by a request");
    server.endpoints.gate.add_permits(1);
    assert_eq!(first.answer().await.body, "slow");
    // The first stays open, idle, and is closed for the second after a second.
    assert_eq!(second.answer().await.body, "hello");
    assert!(first.is_closed().await);
}

#[tokio::test]
async fn requests_know_who_asks_and_what() {
    let server = Server::start(limits()).await;
    let request = "GET /info/../info?p=1&q=a%20b+c&q=2 HTTP/1.1\r\nhost: weir\r\n\r\n";
    assert_eq!(server.ask(request).await.status, 404, "paths are taken as sent");
    let request = "GET /info?p=1&q=a%20b+c&q=2 HTTP/1.1\r\nhost: weir\r\n\
                   x-forwarded-for: 192.0.2.1, 203.0.113.7, 10.0.0.1\r\nx-request-id: mine-1\r\n\r\n";
    let answer = server.ask(request).await;
    assert_eq!(answer.body, "/info a b c 203.0.113.7 mine-1");
    assert_eq!(answer.header("x-request-id"), Some("mine-1"));
    let answer = server.ask(&get("/info")).await;
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(answer.body, format!("/info  127.0.0.1 {id}"));
}

/// What a subscriber wrote.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The test's runtime has one thread, the test's own, so that a subscriber of this thread sees the
/// server's tasks and no other test's.
#[tokio::test]
async fn every_request_has_one_line_in_the_log() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start(limits()).await;
    server.ask(&get("/hello?secret=1")).await;
    server.ask(&post("/echo", "twelve bytes")).await;
    server.ask(&get("/panic")).await;
    server.ask(&get("/stream").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).await;
    server.ask(&get("/sized-stream")).await;
    let mut short = server.connect().await;
    short.send(get("/short-stream").as_bytes()).await;
    while short.more().await {}
    server.ask(&get("/broken-stream")).await;
    let mut slow = server.connect().await;
    slow.send(get("/slow").as_bytes()).await;
    server.endpoints.entered.acquire().await.unwrap().forget();
    drop(slow);
    server.endpoints.dropped.acquire().await.unwrap().forget();
    server.tasks.shutdown().begin();
    server.tasks.wait(PATIENCE).await.unwrap();

    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests = lines.iter().filter(|line| line["message"] == "request");
    let found: Vec<_> = requests
        .map(|line| {
            assert_eq!(line["client_ip"], "127.0.0.1");
            assert_eq!(line["request_id"].as_str().unwrap().len(), 36);
            assert!(line["duration_ms"].as_f64().unwrap() >= 0.0);
            let number = |name: &str| line[name].as_u64().unwrap();
            let path = line["path"].as_str().unwrap().to_owned();
            let cause = line["cause"].as_str().unwrap_or_default().to_owned();
            let complete = line["complete"].as_bool().unwrap();
            (path, number("status"), number("received_bytes"), complete, cause)
        })
        .collect();
    let row = |path: &str, status, received, complete, cause: &str| {
        (path.to_owned(), status, received, complete, cause.to_owned())
    };
    let expected = [
        row("/hello", 200, 0, true, ""),
        row("/echo", 200, 12, true, ""),
        row("/panic", 500, 0, true, "the handler panicked: planted"),
        row("/stream", 200, 0, true, ""),
        row("/sized-stream", 200, 0, true, ""),
        row("/short-stream", 200, 0, false, ""),
        row("/broken-stream", 200, 0, false, "spilled"),
        row("/slow", 499, 0, false, ""),
    ];
    assert_eq!(found, expected, "{text}");
}
