//! Tests of connections: time-outs, hang-ups, their limit, shutdown.

use super::*;

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
    // More than the socket buffers of both sides hold (4 MiB to send and 6 MiB to receive, the
    // kernel's defaults), so that the server cannot write all of it.
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
    // The first connection is idle; it is closed after a second, so that the second one is served.
    assert_eq!(second.answer().await.body, "hello");
    assert!(first.is_closed().await);
}
