//! Tests of the log line of each request.

use parking_lot::Mutex;

use super::*;

/// Output of a subscriber.
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

/// The runtime of the test has one thread, so a subscriber of this thread sees the tasks of this
/// server and of no other test.
#[tokio::test]
async fn every_request_has_one_line_in_the_log() {
    // `tracing` caches per call site whether a subscriber is interested. With a single subscriber, the
    // first thread to get there decides for all threads, and it may be that of another test, which has
    // none.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true);
    let subscriber = subscriber.with_max_level(tracing::Level::DEBUG);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start(limits()).await;
    server.ask(&get("/hello?secret=1")).await;
    server.ask(&post("/echo", "twelve bytes")).await;
    server.ask(&get("/routine")).await;
    server.ask(&get("/routine/missing")).await;
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
            assert_eq!(line["level"] == "DEBUG", path == "/routine", "{line}");
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
        row("/routine", 200, 0, true, ""),
        row("/routine/missing", 404, 0, true, ""),
        row("/panic", 500, 0, true, "the handler panicked: planted"),
        row("/stream", 200, 0, true, ""),
        row("/sized-stream", 200, 0, true, ""),
        row("/short-stream", 200, 0, false, "unexpected end of file"),
        row("/broken-stream", 200, 0, false, "spilled"),
        row("/slow", 499, 0, false, ""),
    ];
    assert_eq!(found, expected, "{text}");
}
