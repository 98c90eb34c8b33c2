//! Tests of request bodies: framing and limits.

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

    // The connection still works, and chunks announce no length.
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
    let server = Server::start(Limits { requests_max_bytes: 40_000, ..limits() }).await;
    let mut client = server.connect().await;
    client.send(post("/echo", &"x".repeat(50_000)).as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    client.send(post("/echo", "small").as_bytes()).await;
    assert_eq!(client.answer().await.status, 200, "the memory is free again");
}

/// A head counts against the budget from its first byte until its request ends; probes are
/// answered under overload.
#[tokio::test]
async fn heads_and_answers_are_bounded_with_bodies() {
    let server = Server::start(Limits { requests_max_bytes: 40_000, ..limits() }).await;
    let mut long = server.connect().await;
    long.send(format!("GET /slow HTTP/1.1\r\nhost: weir\r\nx: {}", "y".repeat(60_000)).as_bytes())
        .await;
    assert!(long.is_closed().await, "half of a head that there is no memory for");
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect().await;
        client.send(get("/slow").as_bytes()).await;
        server.endpoints.entered.acquire().await.unwrap().forget();
        slow.push(client);
    }
    let refused = server.ask(&post("/echo", "small")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("\"code\":\"overloaded\""), "{refused:?}");
    assert_eq!(server.ask(&get("/probe")).await.status, 200);
    server.endpoints.gate.add_permits(4);
    for client in &mut slow {
        assert_eq!(client.answer().await.status, 200);
    }
    assert_eq!(server.ask(&get("/large")).await.status, 503, "an answer of more than there is");
    assert_eq!(server.ask(&post("/echo", "small")).await.status, 200, "the memory is free again");
}

/// The parsed values of a body take several times its length, and count in the budget until the response is ready.
#[tokio::test]
async fn what_is_parsed_is_bounded_until_there_is_an_answer() {
    let server = Server::start(Limits { requests_max_bytes: 3_000_000, ..limits() }).await;
    let objects = format!("[{}0]", r#"{"a":0},"#.repeat(1000));
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect().await;
        client.send(post("/parse", &objects).as_bytes()).await;
        server.endpoints.entered.acquire().await.unwrap().forget();
        waiting.push(client);
    }
    // A node of a map has 640 bytes at least, eleven keys of 24 and values of 32.
    let held = server.metrics.http_body_bytes.get();
    assert!(held >= 3 * 1000 * 11 * (24 + 32), "{held}");
    let refused = server.ask(&post("/parse", &objects)).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    server.endpoints.gate.add_permits(3);
    for client in &mut waiting {
        assert_eq!(client.answer().await.body, "parsed");
    }
    assert_eq!(server.metrics.http_body_bytes.get(), 0);
    // As long as nothing else is read, one body is accepted whatever memory it takes.
    server.endpoints.gate.add_permits(1);
    let long = format!("[{}0]", r#"{"a":0},"#.repeat(100_000));
    assert_eq!(server.ask(&post("/parse", &long)).await.body, "parsed");
}

/// A compressed answer holds its text in the budget until the client has read it.
#[tokio::test]
async fn compressed_answers_are_bounded_until_they_are_read() {
    let server = Server::start(Limits { requests_max_bytes: 50 << 20, ..limits() }).await;
    let request = |bytes: usize| {
        format!("GET /gzip?bytes={bytes} HTTP/1.1\r\nhost: weir\r\naccept-encoding: gzip\r\n\r\n")
    };
    let long = request(24 << 20);
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.send(long.as_bytes()).await;
        assert!(client.head().await.unwrap().contains("content-encoding: gzip"));
        readers.push(client);
    }
    let refused = server.ask(&long).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    drop(readers);
    let freed = async {
        while server.metrics.http_head_bytes.get() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.unwrap();
    let mut client = server.connect().await;
    client.send(long.as_bytes()).await;
    assert!(client.head().await.unwrap().starts_with("HTTP/1.1 200"));
}
