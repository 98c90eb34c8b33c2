//! HTTP client of the commands, for requests to a running server: [`ask`], and [`post`] for those who read the status.

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Longest answer of [`post`], in bytes.
const ANSWER_MAX_BYTES: usize = 16 << 20;

/// Posts `body` as JSON to `url`, with `key` as the bearer token, and returns the body of the response.
///
/// # Errors
///
/// The server cannot be reached, or answers with an error status; the message is the server's.
pub(super) async fn ask(url: &str, key: &str, body: &Value) -> anyhow::Result<Bytes> {
    let request = hyper::Request::builder()
        .method(Method::POST)
        .uri(url)
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())));
    let request = request.with_context(|| format!("{url} is not a valid URL of a server"))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.with_context(|| format!("cannot reach {url}"))?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        match problem.get("detail").and_then(Value::as_str) {
            Some(detail) => bail!("{detail}"),
            None => bail!("{url} answers {status}"),
        }
    }
    Ok(body)
}

/// Posts JSON to `url` with further headers, and returns the status and the body of the response.
///
/// # Errors
///
/// The server cannot be reached, or its answer is longer than 16 MiB.
pub(super) async fn post(
    url: &str,
    key: &str,
    headers: &[(&'static str, String)],
    body: Bytes,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let mut request = hyper::Request::builder()
        .method(Method::POST)
        .uri(url)
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(body));
    let request = request.with_context(|| format!("{url} is not a valid URL of a server"))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.with_context(|| format!("cannot reach {url}"))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
    let body = body.map_err(|error| anyhow!("the answer of {url} is broken: {error}"))?;
    Ok((status, body.to_bytes()))
}
