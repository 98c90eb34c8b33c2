//! Requests of an export to the API of a project.

use std::io::Write;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Longest answer that is in memory as a whole: a page of a list.
const PAGE_MAX_BYTES: usize = 64 << 20;
/// Longest text of an error.
const PROBLEM_MAX_BYTES: usize = 64 << 10;

/// The API of a project.
#[derive(Clone, Debug)]
pub(super) struct Api {
    base: String,
    key: String,
    connections: Client<HttpConnector, Full<Bytes>>,
}

/// What was written of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// Ends of lines.
    pub(super) lines: u64,
}

impl Api {
    pub(super) fn new(url: &str, key: &str, project: i64) -> anyhow::Result<Self> {
        let base = format!("{}/api/projects/{project}/", url.trim_end_matches('/'));
        let uri: Uri = base.parse().with_context(|| format!("{url} is not a valid URL"))?;
        ensure!(uri.scheme_str() == Some("http"), "{url} is not an http:// URL");
        let connections = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { base, key: key.to_owned(), connections })
    }

    /// Writes the answer to a query as it comes.
    ///
    /// # Errors
    ///
    /// The server refuses the query, the answer breaks off, or it cannot be written.
    pub(super) async fn query(
        &self,
        sql: &str,
        format: &str,
        out: &mut impl Write,
    ) -> anyhow::Result<Written> {
        let ask = |format: &str| serde_json::json!({"query": sql, "format": format});
        let mut response = self.send(Method::POST, "query/", Some(&ask(format))).await?;
        if response.status() == StatusCode::BAD_REQUEST && format == "jsonl" {
            // Of a server that has JSON lines under one name only.
            response = self.send(Method::POST, "query/", Some(&ask("json"))).await?;
        }
        let mut body = accepted(response).await?.into_body();
        let mut written = Written::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the answer broke off")?;
            // Frames besides data are trailers, which no response has.
            let Ok(data) = frame.into_data() else { continue };
            let lines = data.iter().filter(|byte| **byte == b'\n').count();
            written.lines = written.lines.saturating_add(u64::try_from(lines).unwrap_or(0));
            out.write_all(&data)?;
        }
        out.flush()?;
        Ok(written)
    }

    /// The answer of an endpoint.
    ///
    /// # Errors
    ///
    /// The server refuses, or the answer is too long.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        let response = accepted(self.send(Method::GET, path, None).await?).await?;
        let body = Limited::new(response.into_body(), PAGE_MAX_BYTES).collect().await;
        Ok(body.map_err(anyhow::Error::from_boxed)?.to_bytes())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let uri = format!("{}{path}", self.base);
        let request = Request::builder()
            .method(method)
            .uri(&uri)
            .header(header::USER_AGENT, concat!("weir-export/", env!("CARGO_PKG_VERSION")))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .header(header::CONTENT_TYPE, "application/json");
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(Full::new(body)).context("the key cannot be sent")?;
        self.connections.request(request).await.with_context(|| format!("cannot reach {uri}"))
    }
}

/// The response, if it is no error.
async fn accepted(response: Response<Incoming>) -> anyhow::Result<Response<Incoming>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = Limited::new(response.into_body(), PROBLEM_MAX_BYTES).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    match problem.get("detail").and_then(Value::as_str) {
        Some(detail) => bail!("{detail}"),
        None => bail!("the server answers {status}"),
    }
}
