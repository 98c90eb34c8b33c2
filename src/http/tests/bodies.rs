//! Bodies of requests: their framing, and how much of them is taken.

use super::*;

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
