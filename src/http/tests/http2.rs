//! HTTP/2 with prior knowledge.

use http_body_util::BodyExt;
use http_body_util::Full;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;

use super::*;

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
