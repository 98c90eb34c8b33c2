//! Tests of requests and responses: methods, heads, origins, panics, streams.

use super::*;

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
        // The server may close before it has read everything.
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
