//! HTTP client of the commands, over http or https: [`Server`] for the API of a server, [`ask`] for a request to the
//! server of a data directory, [`connections`] for those that send many, [`post`] for those who read the status.
//! Certificates are checked against the authorities of the system and those of `--ca-file`.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

/// A pool of connections to servers, which are kept open; requests have bodies of type `B`.
pub(super) type Connections<B> = Client<HttpsConnector<HttpConnector>, B>;

/// Longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which the system asks a silent peer whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Longest answer that is in memory as a whole, in bytes.
const ANSWER_MAX_BYTES: usize = 256 << 20;

/// Longest text of an error, in bytes.
const PROBLEM_MAX_BYTES: usize = 64 << 10;

const USER_AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// Options of commands that connect to a server by its URL.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsArgs {
    /// File with certificates (PEM) of authorities that are trusted besides those of the system, for https
    #[arg(long, env = "WEIR_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// Options of commands that ask a server of this machine, or another one by its URL.
#[derive(Clone, Default, clap::Args)]
pub struct RemoteArgs {
    /// Use the server at this URL instead, with --key
    #[arg(long)]
    pub url: Option<String>,
    /// Personal API key, for --url
    #[arg(long, env = "WEIR_PERSONAL_API_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// For https.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Without the key.
impl fmt::Debug for RemoteArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteArgs").field("url", &self.url).finish_non_exhaustive()
    }
}

impl RemoteArgs {
    /// The URL and the key of another server; `None` if it is one of this machine.
    ///
    /// # Errors
    ///
    /// There is no key.
    pub(super) fn place(&self) -> anyhow::Result<Option<(&str, &str)>> {
        let Some(url) = self.url.as_deref() else { return Ok(None) };
        let key = self.key.as_deref().context("--url needs --key")?;
        Ok(Some((url, key)))
    }
}

/// A pool of connections without a limit of its own, for URLs of http and https.
///
/// # Errors
///
/// A file of certificates cannot be read, or has none.
pub(super) fn connections<B>(tls: &TlsArgs) -> anyhow::Result<Connections<B>>
where
    B: Body<Data: Send> + Send + 'static,
{
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots(tls)?).with_no_client_auth();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.enforce_http(false);
    let tls = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    Ok(Client::builder(TokioExecutor::new()).build(tls.wrap_connector(connector)))
}

/// The trusted authorities. A system without any is no error: http needs none.
fn roots(tls: &TlsArgs) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let Some(path) = &tls.ca_file else { return Ok(roots) };
    let unreadable = || format!("cannot read certificates in {}", path.display());
    let certificates = CertificateDer::pem_file_iter(path).with_context(unreadable)?;
    let before = roots.len();
    for certificate in certificates {
        roots.add(certificate.with_context(unreadable)?).with_context(unreadable)?;
    }
    ensure!(roots.len() > before, "there is no certificate in {}", path.display());
    Ok(roots)
}

/// The address `path` of the server at `url`, which is `http://` or `https://`, with or without a path of its own.
///
/// # Errors
///
/// It is no such URL.
pub(super) fn address(url: &str, path: &str) -> anyhow::Result<Uri> {
    let address = format!("{}/{}", url.trim_end_matches('/'), path.trim_start_matches('/'));
    let uri: Uri = address.parse().with_context(|| format!("{address} is not a valid URL"))?;
    let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
    ensure!(is_known, "{address} is neither an http:// nor an https:// URL");
    Ok(uri)
}

/// The header with a key. What shows it for debugging shows no key.
///
/// # Errors
///
/// The key cannot be in a header.
pub(super) fn bearer(key: &str) -> anyhow::Result<HeaderValue> {
    let bearer = HeaderValue::from_str(&format!("Bearer {}", key.trim()));
    // The error is left out, since it tells nothing more.
    let mut bearer = bearer.ok().context("a key has characters that no key has")?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// The pause that a server asks for by `Retry-After`, in seconds; its other form, a date, is not supported.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The whole body of a response, of at most this many bytes.
///
/// # Errors
///
/// It is longer, which is a [`http_body_util::LengthLimitError`], or breaks off.
pub(super) async fn bounded(
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
    Ok(Limited::new(response.into_body(), bytes_max).collect().await?.to_bytes())
}

/// A server, and the key with which it is asked.
#[derive(Clone, Debug)]
pub(super) struct Server {
    url: String,
    /// As [`bearer`] makes it.
    key: HeaderValue,
    connections: Connections<Full<Bytes>>,
}

impl Server {
    /// The server at `url`.
    ///
    /// # Errors
    ///
    /// The URL or the key cannot be sent, or those of [`connections`].
    pub(super) fn new(url: &str, key: &str, tls: &TlsArgs) -> anyhow::Result<Self> {
        address(url, "")?;
        let (url, key) = (url.to_owned(), bearer(key)?);
        Ok(Self { url, key, connections: connections(tls)? })
    }

    /// Sends a request with a body of JSON, or without one. The response has a status of success; its body is not
    /// read yet.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or answers with an error status; the message is the server's.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let uri = address(&self.url, path)?;
        let mut request = Request::builder()
            .method(method)
            .uri(&uri)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::AUTHORIZATION, self.key.clone());
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(Full::new(body))?;
        let response = self.connections.request(request).await;
        let response = response.with_context(|| format!("cannot reach {uri}"))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = bounded(response, PROBLEM_MAX_BYTES).await.unwrap_or_default();
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        match problem.get("detail").and_then(Value::as_str) {
            Some(detail) => bail!("{detail}"),
            None => bail!("{uri} answers {status}"),
        }
    }
}

/// The whole body of a response, of at most 256 MiB.
///
/// # Errors
///
/// It is longer, or breaks off.
pub(super) async fn whole(response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let body = bounded(response, ANSWER_MAX_BYTES).await.map_err(anyhow::Error::from_boxed);
    body.context("the answer broke off")
}

/// The next part of a body; `None` at its end.
///
/// # Errors
///
/// It breaks off: what came before is incomplete.
pub(super) async fn next(body: &mut Incoming) -> anyhow::Result<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the answer broke off: what is written of it is incomplete")?;
        // Frames besides data are trailers, which no response has.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Posts `body` as JSON to `path` of the server at `url`, with `key`, and returns the body of the response.
///
/// # Errors
///
/// Those of [`Server::send`] and [`whole`].
pub(super) async fn ask(url: &str, path: &str, key: &str, body: &Value) -> anyhow::Result<Bytes> {
    let server = Server::new(url, key, &TlsArgs::default())?;
    whole(server.send(Method::POST, path, Some(body)).await?).await
}

/// Posts JSON to `url` with a key ([`bearer`]) and further headers, and returns the status and the body of the response,
/// whatever they are.
///
/// # Errors
///
/// The server cannot be reached, or its answer is longer than `bytes_max` or breaks off.
pub(super) async fn post(
    connections: &Connections<Full<Bytes>>,
    (url, key): (&str, &HeaderValue),
    headers: &[(&'static str, String)],
    (body, bytes_max): (Bytes, usize),
) -> anyhow::Result<(StatusCode, Bytes)> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::AUTHORIZATION, key.clone())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(body));
    let request = request.with_context(|| format!("{url} is not a valid URL of a server"))?;
    let response = connections.request(request).await;
    let response = response.with_context(|| format!("cannot reach {url}"))?;
    let status = response.status();
    let body = bounded(response, bytes_max).await.map_err(anyhow::Error::from_boxed);
    Ok((status, body.context("the answer broke off")?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;
    use http_body_util::Full;

    use super::{Connections, RemoteArgs, Server, TlsArgs, address, bearer, connections};

    #[test]
    fn keys_are_not_shown() {
        let tls = TlsArgs::default();
        let server = Server::new("http://a", " phx_secret\n", &tls).unwrap();
        let key = Some("phx_secret".to_owned());
        let args = RemoteArgs { url: Some("http://a".to_owned()), key, tls };
        for shown in [format!("{server:?}"), format!("{args:?}")] {
            assert!(shown.contains("http://a") && !shown.contains("secret"), "{shown}");
        }
        assert_eq!(bearer("x").unwrap(), "Bearer x");
        assert!(bearer("a\nb").is_err());
    }

    #[test]
    fn addresses_are_http_or_https() {
        for (url, path, expected) in [
            ("http://a", "/b/", Some("http://a/b/")),
            ("https://a:1/sub/", "b/", Some("https://a:1/sub/b/")),
            ("ftp://a", "b", None),
            ("a", "b", None),
            ("", "b", None),
            ("http://a b", "c", None),
        ] {
            let found = address(url, path).ok().map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn files_without_certificates_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let with = |ca_file| {
            let made: anyhow::Result<Connections<Full<Bytes>>> =
                connections(&TlsArgs { ca_file: Some(ca_file) });
            made.err().map(|error| format!("{error:#}")).unwrap_or_default()
        };
        assert!(with(directory.path().join("absent")).contains("absent"));
        fs::write(&path, "no certificate").unwrap();
        assert!(with(path.clone()).contains("there is no certificate"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(&path, broken).unwrap();
        assert!(with(path).contains("cannot read certificates"));
    }
}
