//! Tests of HTTP/2 with prior knowledge.

use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

type Http2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(server: &Server) -> Http2 {
    let io = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (client, connection) = handshake.await.unwrap();
    // Not among the server's tasks, whose end must not wait for the client.
    drop(Handle::current().spawn(connection));
    client
}

/// Status, announced length and body of the response on a new stream.
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

/// Status of a request with `fields` additional header fields.
async fn ask_with_fields(client: &Http2, path: &str, fields: usize) -> u16 {
    let mut request = hyper::Request::builder().uri(format!("http://weir{path}"));
    for number in 0..fields {
        request = request.header(format!("x-{number}"), "value");
    }
    let request = request.body(Full::new(Bytes::new())).unwrap();
    client.clone().send_request(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn heads_are_bounded_in_fields_and_in_all() {
    let server = Server::start(Limits { requests_max_bytes: 400_000, ..limits() }).await;
    let client = http2(&server).await;
    for (fields, status) in [(100, 200), (101, 431), (400, 431)] {
        assert_eq!(ask_with_fields(&client, "/hello", fields).await, status, "{fields}");
    }
    // One connection may use half of the memory; 90 fields take more than 20,000 bytes.
    let all = (0..30).map(|_| ask_with_fields(&client, "/slow", 90));
    let ended = async {
        while !server.metric("weir_http_requests_total{route=\"other\",status=\"503\"} 24") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let other = http2(&server).await;
        assert_eq!(ask_with_fields(&other, "/hello", 10).await, 200, "another connection");
        server.endpoints.gate.add_permits(30);
    };
    let (mut statuses, ()) = tokio::join!(futures::future::join_all(all), ended);
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 6], vec![503; 24]].concat());
    assert_eq!(ask_with_fields(&client, "/hello", 90).await, 200, "the memory is free again");
}

/// The client sets the window of a stream and may open none for the response.
#[tokio::test]
async fn a_client_that_opens_no_window_is_let_go() {
    for path in ["/large", "/hello", "/stream"] {
        let server =
            Server::start(Limits { body_timeout: SHORT, header_timeout: SHORT, ..limits() });
        let server = server.await;
        let io = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (client, connection) =
            builder.initial_stream_window_size(1).handshake::<_, Full<Bytes>>(io).await.unwrap();
        drop(Handle::current().spawn(connection));
        let request = hyper::Request::builder().uri(format!("http://weir{path}"));
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let unread = client.clone().send_request(request).await.unwrap();
        assert_eq!(unread.status(), 200);
        let closed = async {
            while !server.metric("weir_http_connections 0") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, closed).await.expect("the server closes the connection");
        assert!(server.metric("weir_http_head_bytes 0"), "{path}");
        drop(unread);
    }
}
