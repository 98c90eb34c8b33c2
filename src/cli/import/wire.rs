//! Connections of an import to its server.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, Uri, header};

use crate::cli::client::{Connections, TlsArgs, address, bounded, connections, retry_after};

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest answer that is read; those of capture are short.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// The server, and how bodies are sent to it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    uri: Uri,
    connections: Connections<Full<Bytes>>,
    /// Whether bodies are compressed: not on the same machine, where it takes more time than it saves.
    compresses: bool,
}

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// `Retry-After`, in seconds.
    pub(super) retry_after: Option<Duration>,
    pub(super) text: Bytes,
}

impl Target {
    /// The server at `url`.
    ///
    /// # Errors
    ///
    /// It is no URL of a server, or those of [`connections`].
    pub(super) fn new(url: &str, tls: &TlsArgs) -> anyhow::Result<Self> {
        let uri = address(url, "/batch/")?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_near = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        Ok(Self { uri, connections: connections(tls)?, compresses: !is_near })
    }

    /// Sends a body.
    ///
    /// # Errors
    ///
    /// There is no response: the connection failed, or it took too long.
    pub(super) async fn post(&self, body: Bytes) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(header::USER_AGENT, concat!("weir-import/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/json");
        if self.compresses {
            request = request.header(header::CONTENT_ENCODING, "zstd");
        }
        let sent = self.connections.request(request.body(Full::new(body))?);
        let read = async {
            let response = sent.await.with_context(|| format!("cannot reach {}", self.uri))?;
            let status = response.status();
            let retry_after = retry_after(response.headers());
            let text = bounded(response, ANSWER_MAX_BYTES).await;
            let text = text.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok(Answer { status, retry_after, text })
        };
        tokio::time::timeout(ANSWER_TIMEOUT, read).await.context("the server does not answer")?
    }

    /// Whether there is a server at all, so that a wrong URL is not tried for long.
    ///
    /// # Errors
    ///
    /// Nothing listens there.
    pub(super) async fn reach(&self) -> anyhow::Result<()> {
        let request = Request::builder().method(Method::HEAD).uri(self.uri.clone());
        let sent = self.connections.request(request.body(Full::default())?);
        let response = tokio::time::timeout(ANSWER_TIMEOUT, sent).await;
        let response = response.context("the server does not answer")?;
        response.with_context(|| format!("cannot reach {}", self.uri)).map(drop)
    }

    /// A body as it is sent.
    ///
    /// # Errors
    ///
    /// It cannot be compressed.
    pub(super) fn pack(&self, body: Vec<u8>) -> std::io::Result<Bytes> {
        let packed = if self.compresses { zstd::bulk::compress(&body, 1)? } else { body };
        Ok(Bytes::from(packed))
    }
}
