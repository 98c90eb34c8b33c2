//! Passes requests and connections on to another server: [`Sending`], and to the one that writes: [`Forwarding`]. A request is
//! passed on at most once, and with the secret of that server, which takes the client's address from it alone.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, DATE, EXPECT, FORWARDED, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

use crate::client_address::{X_FORWARDED_FOR, X_REAL_IP};
use crate::request::{Request, Stream, X_REQUEST_ID};
use crate::response::{Problem, Response, StreamError};
use weir_base::error::Kind;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;
use weir_metadata::secrets::KeyHash;

/// Header of a request that another server passes on, with the secret of the server that writes.
pub(super) const NODE: HeaderName = HeaderName::from_static("x-weir-node");

/// Header of a request that a node of a cluster passes on: what it knows of the project.
pub(super) const LOCATED: HeaderName = HeaderName::from_static("x-weir-located");

/// The name of what a connection for a session speaks after the answer.
pub(super) const SESSION_PROTOCOL: &str = "weir-session";

/// Longest time to ask for the position.
const POSITION_MAX: Duration = Duration::from_millis(500);

/// Failures in a row after which the server that writes counts as away. One is asked for several times a second.
const FAILURES_MAX: u32 = 3;

/// Largest answer with a position.
const POSITION_MAX_BYTES: usize = 64;

/// Headers of one connection, and those that the front end sets itself.
const OF_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
    EXPECT,
];

/// Where the server that writes is.
#[derive(Clone, PartialEq, Eq)]
pub struct Writer {
    /// Names it in its lease.
    pub holder: String,
    /// Its URL, without a path.
    pub url: String,
    /// The secret with which it takes requests of other servers.
    pub secret: String,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Sends a request to another server.
pub type SendRequest = Arc<
    dyn Fn(
            hyper::Request<Full<Bytes>>,
        )
            -> BoxFuture<'static, Result<hyper::Response<Incoming>, Box<dyn Error + Send + Sync>>>
        + Send
        + Sync,
>;

/// Sends requests to other servers; clones share connections.
#[derive(Clone)]
pub struct Sending {
    /// Sends requests.
    pub send: SendRequest,
    /// Largest body.
    pub body_max_bytes: u64,
    /// Counts requests.
    pub metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { send: _, body_max_bytes, metrics: _ } = self;
        f.debug_struct("Sending").field("body_max_bytes", body_max_bytes).finish_non_exhaustive()
    }
}

/// Passes requests on to the server that writes; clones share connections.
#[derive(Clone)]
pub struct Forwarding {
    /// The server that writes, as far as it is known.
    writer: watch::Receiver<Option<Writer>>,
    /// Sends requests.
    sending: Sending,
    /// Whether the server that writes is reached, as far as [`Forwarding::position`] tells.
    reached: Arc<Reached>,
}

/// Whether a server answers.
#[derive(Debug)]
struct Reached {
    is_reached: watch::Sender<bool>,
    /// How often in a row it has not answered.
    failures: AtomicU32,
}

impl Reached {
    fn note(&self, has_answered: bool) {
        let failures = match has_answered {
            true => 0,
            false => self.failures.load(Ordering::Relaxed).saturating_add(1),
        };
        self.failures.store(failures, Ordering::Relaxed);
        if has_answered || failures >= FAILURES_MAX {
            self.is_reached
                .send_if_modified(|is| std::mem::replace(is, has_answered) != has_answered);
        }
    }
}

impl std::fmt::Debug for Forwarding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarding").field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// The answer of a server that does not write, and cannot reach the one that does.
pub(super) fn standing_by() -> Problem {
    let detail = "This server stands by. Another one serves.";
    Problem::new(Kind::Unavailable, "standing_by", detail)
}

/// Whether another server sent a request, which knows this secret.
pub(super) fn is_of_server(headers: &HeaderMap, secret: &str) -> bool {
    let Some(sent) = headers.get(NODE) else { return false };
    let Ok(sent) = sent.to_str() else { return false };
    // What is before is the name of the lease's holder.
    let sent = sent.split_once('.').map_or(sent, |(_, own)| own);
    // Hashes, so that the time it takes tells nothing of the secret.
    KeyHash::of(sent) == KeyHash::of(secret)
}

/// Whether another server has passed a request on already.
fn is_passed_on(request: &Request) -> bool {
    request.headers.contains_key(NODE)
}

impl Forwarding {
    /// Nobody is reached yet.
    pub fn new(writer: watch::Receiver<Option<Writer>>, sending: Sending) -> Self {
        let (is_reached, failures) = (watch::Sender::new(false), AtomicU32::new(0));
        let reached = Arc::new(Reached { is_reached, failures });
        Self { writer, sending, reached }
    }

    /// Whether the server that writes is reached.
    pub(super) fn reaches(&self) -> bool {
        *self.reached.is_reached.borrow()
    }

    /// Passes a request on. If nobody is reached who writes, or another server has passed it on already, it is refused as by
    /// a server that stands by: the client sends it again.
    pub(super) async fn forward(&self, request: Request) -> Response {
        let writer = self.writer.borrow().clone();
        let writer = writer.filter(|_| self.reaches() && !is_passed_on(&request));
        let Some(writer) = writer else { return standing_by().into() };
        let (mut changes, mut reached) = (self.writer.clone(), self.reached.is_reached.subscribe());
        let sent = self.sending.pass(&writer, request);
        let sent = tokio::select! {
            sent = sent => sent,
            // Its answer may never come: it has ended, or sleeps.
            _ = changes.wait_for(|now| now.as_ref() != Some(&writer)) => Err(standing_by()),
            _ = reached.wait_for(|is_reached| !is_reached) => Err(standing_by()),
        };
        sent.unwrap_or_else(Response::from)
    }

    /// Asks the server that writes how far its log is. Returns that, and who it is; `None` if it does not answer soon.
    pub async fn position(&self) -> Option<(String, u64)> {
        let told = tokio::time::timeout(POSITION_MAX, self.asked()).await.ok().flatten();
        self.reached.note(told.is_some());
        told
    }

    async fn asked(&self) -> Option<(String, u64)> {
        let writer = self.writer.borrow().clone()?;
        let answer = (self.sending.send)(own(&writer, "position")?).await.ok()?;
        if answer.status() != StatusCode::OK {
            return None;
        }
        let text = Limited::new(answer.into_body(), POSITION_MAX_BYTES).collect().await.ok()?;
        let text = text.to_bytes();
        Some((writer.holder, std::str::from_utf8(&text).ok()?.trim().parse().ok()?))
    }
}

/// A request that is passed on, which can be sent again.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    method: Method,
    /// The path and the query.
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// What became of a request that was passed on.
#[derive(Debug)]
pub(super) enum Sent {
    /// The server has answered.
    Answered(Response),
    /// It has not looked at the request: it does not write, or nobody is there.
    Untouched,
}

impl Passed {
    /// A request with its whole body, which nobody has passed on yet.
    ///
    /// # Errors
    ///
    /// The body cannot be read.
    pub(super) async fn read(request: Request, body_max_bytes: u64) -> Result<Self, Problem> {
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let mut headers = request.headers;
        for name in OF_CONNECTION.into_iter().chain([FORWARDED, X_REAL_IP, LOCATED]) {
            headers.remove(name);
        }
        headers.insert(X_REQUEST_ID, request.request_id.to_header());
        let client = HeaderValue::from_str(&request.client_ip.to_string());
        headers.insert(X_FORWARDED_FOR, client.map_err(|error| standing_by().because(&error))?);
        let body = request.body.read(body_max_bytes).await?;
        Ok(Self { method: request.method, path, headers, body })
    }

    /// The same with what this node knows of its project.
    pub(super) fn located(mut self, located: HeaderValue) -> Self {
        self.headers.insert(LOCATED, located);
        self
    }
}

impl Sending {
    /// Passes a request on, which nobody has passed on yet.
    ///
    /// # Errors
    ///
    /// The server does not answer, and may have taken the request; or the body cannot be read.
    pub(super) async fn pass(
        &self,
        writer: &Writer,
        request: Request,
    ) -> Result<Response, Problem> {
        let passed = Passed::read(request, self.body_max_bytes).await?;
        match self.send(writer, passed).await? {
            Sent::Answered(response) => Ok(response),
            Sent::Untouched => Err(standing_by()),
        }
    }

    /// Sends a request that is passed on.
    ///
    /// # Errors
    ///
    /// The server does not answer, and may have taken the request.
    pub(super) async fn send(&self, writer: &Writer, passed: Passed) -> Result<Sent, Problem> {
        self.metrics.requests_forwarded.inc();
        let Passed { method, path, mut headers, body } = passed;
        let uri: Uri = format!("{}{path}", writer.url.trim_end_matches('/'))
            .parse()
            .map_err(|error| standing_by().because(&error))?;
        let secret = HeaderValue::from_str(&writer.secret);
        let mut secret = secret.map_err(|error| standing_by().because(&error))?;
        secret.set_sensitive(true);
        headers.insert(NODE, secret);
        let mut sent = hyper::Request::new(Full::new(body));
        *sent.method_mut() = method;
        *sent.uri_mut() = uri;
        *sent.headers_mut() = headers;
        match (self.send)(sent).await {
            Ok(answer) if answer.status() == StatusCode::MISDIRECTED_REQUEST => Ok(Sent::Untouched),
            Ok(answer) => Ok(Sent::Answered(passed_back(answer))),
            Err(error) if is_connect(&*error) => Ok(Sent::Untouched),
            Err(error) => Err(standing_by().because(&*error)),
        }
    }
}

/// A request to another server that is not one of a client, with its secret; `None` if it cannot be written.
fn own(server: &Writer, path: &str) -> Option<hyper::Request<Full<Bytes>>> {
    let mut request = hyper::Request::new(Full::new(Bytes::new()));
    *request.method_mut() = Method::POST;
    let address = format!("{}/_internal/{path}", server.url.trim_end_matches('/'));
    *request.uri_mut() = address.parse().ok()?;
    let mut secret = HeaderValue::from_str(&server.secret).ok()?;
    secret.set_sensitive(true);
    request.headers_mut().insert(NODE, secret);
    Some(request)
}

impl Sending {
    /// A connection for the session of a client to the node that has a shard; `None` if it is not reached, or has the shard no
    /// more.
    pub(super) async fn connect(
        &self,
        node: &Writer,
        shard: ShardId,
        client: IpAddr,
    ) -> Option<Stream> {
        let mut request = own(node, &format!("session?shard={}", shard.0))?;
        let client = HeaderValue::from_str(&client.to_string()).ok()?;
        let upgrade = HeaderValue::from_static("upgrade");
        let protocol = HeaderValue::from_static(SESSION_PROTOCOL);
        request.headers_mut().extend([
            (X_FORWARDED_FOR, client),
            (CONNECTION, upgrade),
            (UPGRADE, protocol),
        ]);
        let answer = (self.send)(request).await.inspect_err(|error| {
            tracing::debug!(error = &**error, url = node.url, "cannot pass a session on");
        });
        let answer = answer.ok()?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            tracing::debug!(status = %answer.status(), url = node.url, "a session is not taken");
            return None;
        }
        hyper::upgrade::on(answer).await.ok().map(TokioIo::new)
    }

    /// Cancels what a session runs, if it is one of that node. Returns whether it is.
    pub(super) async fn cancel_session(
        &self,
        node: &Writer,
        (session, secret): (i32, i32),
    ) -> bool {
        let path = format!("cancel-session?session={session}&secret={secret}");
        let Some(request) = own(node, &path) else { return false };
        let answer = (self.send)(request).await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::NO_CONTENT)
    }
}

/// Whether there was no connection over which a request could have been sent.
fn is_connect(error: &(dyn Error + 'static)) -> bool {
    error
        .downcast_ref::<hyper_util::client::legacy::Error>()
        .is_some_and(|error| error.is_connect())
}

/// The answer of a server to a request that was passed on to it, and is for another one now.
pub(super) fn misdirected() -> Response {
    Response::empty(StatusCode::MISDIRECTED_REQUEST)
}

/// The answer of another server as one of this one, whose front end adds headers of its own.
fn passed_back(answer: hyper::Response<Incoming>) -> Response {
    let (head, body) = answer.into_parts();
    let length = body.size_hint().exact();
    let pieces = BodyExt::into_data_stream(body);
    let pieces = pieces.map(|piece| piece.map_err(|error| Box::new(error) as StreamError));
    // Its own type is among its headers.
    let none = HeaderValue::from_static("");
    let mut response = match length {
        Some(length) => Response::sized_stream(head.status, none, length, pieces),
        None => Response::stream(head.status, none, pieces),
    };
    response.headers = head.headers;
    for name in OF_CONNECTION.into_iter().chain([DATE, X_REQUEST_ID]) {
        response.headers.remove(name);
    }
    let of_origins: Vec<HeaderName> = response
        .headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in of_origins {
        response.headers.remove(name);
    }
    response
}
