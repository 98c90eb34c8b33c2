//! HTTP client for one server, over http or https, with its key: [`Client`].

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{Full, LengthLimitError};
use hyper::{Request, header};
use url::Url;

use crate::cli::client::{Connections, TlsArgs, bearer, bounded, connections, retry_after};
use crate::cli::failure::explain;
use weir_transfer::server::{ANSWER_MAX_BYTES, Call, Http, NoReply, Reply};

/// A client whose connections are kept open. It follows no redirect.
#[derive(Debug)]
pub(super) struct Client {
    base: Url,
    key: header::HeaderValue,
    http: Connections<Full<Bytes>>,
    timeout: Duration,
}

impl Client {
    /// A client for the server at `url`.
    pub(super) fn new(
        url: &Url,
        key: &str,
        (timeout, tls): (Duration, &TlsArgs),
    ) -> anyhow::Result<Self> {
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        ensure!(is_http, "{url} is not an address of http or https");
        let is_plain = url.username().is_empty() && url.password().is_none();
        ensure!(is_plain, "an address with a name or a password is not supported");
        let base = url.join("/").with_context(|| format!("{url} is not an address"))?;
        ensure!(
            url.path().trim_end_matches('/').is_empty(),
            "{url} has a path; give the address of the server alone, {base}"
        );
        Ok(Self { base, key: bearer(key)?, http: connections(tls)?, timeout })
    }

    async fn once(&self, call: Call) -> Result<Reply, NoReply> {
        let unreachable = |error: anyhow::Error| NoReply::Unreachable(explain(&error));
        let address = self.base.join(&call.path).map_err(|error| unreachable(error.into()))?;
        // A path such as `//host/` would lead elsewhere.
        if address.origin() != self.base.origin() {
            return Err(NoReply::Unreachable("the path leads to another host".to_owned()));
        }
        let request = Request::builder()
            .method(call.method)
            .uri(address.as_str())
            .header(header::AUTHORIZATION, self.key.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(call.body.unwrap_or_default()));
        let request = request.map_err(|error| unreachable(error.into()))?;
        let response = self.http.request(request).await;
        let response = response.map_err(|error| unreachable(error.into()))?;
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let body = bounded(response, ANSWER_MAX_BYTES).await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => NoReply::TooLarge,
            false => unreachable(anyhow::Error::from_boxed(error)),
        })?;
        Ok(Reply { status, retry_after, body })
    }
}

impl Http for Client {
    fn base(&self) -> &Url {
        &self.base
    }

    fn send(&self, call: Call) -> BoxFuture<'_, Result<Reply, NoReply>> {
        let answer = tokio::time::timeout(self.timeout, self.once(call));
        async move { answer.await.unwrap_or(Err(NoReply::Late(self.timeout))) }.boxed()
    }

    fn pause(&self, duration: Duration) -> BoxFuture<'_, ()> {
        tokio::time::sleep(duration).boxed()
    }
}
