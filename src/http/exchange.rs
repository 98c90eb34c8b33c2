//! One exchange (request and response): what every endpoint needs. Request id, CORS, HEAD, panics,
//! draining an unread body, metrics, and exactly one log line. No endpoints.
//!
//! Failures and management requests are logged at level INFO or higher. Successful requests of SDKs are
//! logged at level DEBUG: there are thousands a second, and a log line costs as much as the evaluation of
//! a few dozen flags. Requests refused for overload are also logged at DEBUG; a summary line reports their
//! number and reason at intervals ([`Refusals`]).

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, Ready, ready};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use crate::activity::{Activity, stamp};
use crate::budget::{ANSWER_FREE_BYTES, Budget, Busy, MemoryPermit};
use crate::client_address::{client_address, named_address, remove_claims};
use crate::cors;
use crate::forward::is_of_server;
use crate::front::Front;
use crate::handler::{Handler, Matched};
use crate::logged_path::logged_path;
use crate::refusals::{REFUSED, Refusals, log_refused};
use crate::request::{BodyTally, Request, RequestBody, RequestId, Sender, Upgrade, X_REQUEST_ID};
use crate::response::{Body, Problem, Response, StreamError, chain};
use crate::unsent::{PIECE_MAX_BYTES, Unsent, with_permit};
use weir_base::clock::Clock;
use weir_base::error::Kind;
use weir_base::telemetry::metrics::Metrics;
use weir_query::kernel::error::QueryError;

/// Status logged for a client that hung up before its response had one; the number that nginx uses.
const HUNG_UP: u16 = 499;

/// Lowest status of an error response.
const FAILED_FROM: u16 = 400;

/// Most header fields of a request. hyper refuses more in HTTP/1 and has no limit on their number in
/// HTTP/2.
const FIELDS_MAX: usize = 100;

/// A response that is ready, or the future of one. The ready case is small, because hundreds of thousands
/// of refused requests may wait for their response to be sent.
pub(super) type Answering = Either<Ready<Sent>, BoxFuture<'static, Sent>>;

/// What hyper sends.
type Sent = Result<hyper::Response<SentBody>, Infallible>;

/// Answers one request of a connection from `peer`. The head of a request that is not admitted is dropped
/// before this returns.
pub(super) fn answer<H: Handler>(
    front: Arc<Front<H>>,
    activity: Arc<Activity>,
    peer: IpAddr,
    request: hyper::Request<Incoming>,
) -> Answering {
    let (mut head, incoming) = request.into_parts();
    // A server that passes a request on has looked at these headers itself.
    let secret = front.limits.node_secret.as_deref();
    let is_of_server = secret.is_some_and(|secret| is_of_server(&head.headers, secret));
    if !is_of_server {
        remove_claims(&mut head.headers, peer, &front.limits.trusted_proxies);
    }
    let is_head = head.method == Method::HEAD;
    let method = if is_head { Method::GET } else { head.method.clone() };
    let matched = front.handler.route(&method, head.uri.path());
    let Matched { route, label, is_routine, is_probe } = matched;
    let limits = &front.limits;
    let is_http2 = head.version == hyper::Version::HTTP_2;
    let body = RequestBody::new(incoming, &head.headers, &front.budget, limits.body_timeout);
    let request_id = RequestId::of(&head.headers);
    activity.request_begins(head.version);
    let admitted = admit(&front.budget, &activity, &head, is_probe && !is_http2);
    let record = Record {
        started: front.clock.monotonic(),
        clock: front.clock.clone(),
        metrics: Arc::clone(&front.metrics),
        activity,
        method: head.method,
        path: logged_path(head.uri.path()),
        route: label,
        is_routine,
        refusals: Arc::clone(&front.refusals),
        status: HUNG_UP,
        received: body.tally(),
        sent_bytes: 0,
        request_id: request_id.clone(),
        client_ip: match is_of_server {
            true => named_address(&head.headers, peer),
            false => client_address(&head.headers, peer, &limits.trusted_proxies),
        },
        cause: None,
        is_of_client: false,
        code: "",
        ending: Ending::HungUp,
    };
    let origin = head.headers.get(ORIGIN).and_then(copied);
    let reply = Reply { record, origin, is_head, is_http2 };
    let (permit, headers) = match admitted {
        Ok(permit) => (permit, head.headers),
        Err(problem) if is_http2 => {
            // This ends the stream: the server waits neither for the rest of the request nor for the
            // client to take a body. One connection may have many such streams.
            let mut response = Response::from(problem);
            response.body = Body::Full(Bytes::new());
            response.headers.remove(CONTENT_TYPE);
            return Either::Left(ready(Ok(reply.with(response, None))));
        }
        Err(problem) => {
            drop(body);
            return Either::Right(Box::pin(async move {
                reply.record.received.drain(front.limits.body_timeout).await;
                Ok(reply.with(problem.into(), None))
            }));
        }
    };
    let client_ip = reply.record.client_ip;
    let (uri, body_fields) = (head.uri, None);
    let sender = match is_of_server {
        true => Sender::Server(head.extensions.remove().map(Upgrade)),
        false => Sender::Client,
    };
    let request =
        Request { method, headers, client_ip, request_id, body, sender, uri, body_fields };
    Either::Right(Box::pin(async move {
        let is_safe = request.method == Method::GET;
        let response = match request.method {
            Method::OPTIONS => options(request),
            _ => respond(&*front.handler, route, request).await,
        };
        reply.record.received.forget_parsed();
        let (response, permit) = cover(permit, response, is_safe);
        reply.record.received.drain(front.limits.body_timeout).await;
        Ok(reply.with(response, Some(permit)))
    }))
}

/// What is added to every response: request id, CORS headers, and the record of its exchange.
struct Reply {
    record: Record,
    origin: Option<HeaderValue>,
    is_head: bool,
    is_http2: bool,
}

impl Reply {
    /// Converts the response to hyper's type.
    fn with(
        self,
        mut response: Response,
        permit: Option<Arc<MemoryPermit>>,
    ) -> hyper::Response<SentBody> {
        let mut record = self.record;
        cors::allow(self.origin, &mut response.headers);
        response.headers.insert(X_REQUEST_ID, record.request_id.to_header());
        if self.is_head {
            cut_body(&mut response);
        }
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            record.activity.is_upgraded();
        }
        record.status = response.status.as_u16();
        record.cause = response.cause;
        record.code = response.code;
        let unsent = self.is_http2.then(|| Arc::clone(&record.activity.unsent));
        let body = SentBody { body: response.body, rest: Bytes::new(), record, permit, unsent };
        let mut answer = hyper::Response::new(body);
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers;
        answer
    }
}

/// The memory permit for a request with this head, or the reason why there is none.
fn admit(
    budget: &Arc<Budget>,
    activity: &Activity,
    head: &Parts,
    always: bool,
) -> Result<MemoryPermit, Problem> {
    if head.headers.len() > FIELDS_MAX {
        return Err(Problem::too_many_fields(FIELDS_MAX));
    }
    match budget.admit(head, &activity.requests_bytes) {
        (permit, true) => Ok(permit),
        (permit, false) if always => Ok(permit),
        (_, false) => Err(Problem::from(Busy)),
    }
}

/// Adds a long response to the memory permit: its body, which is in memory already, or what its stream holds in memory.
/// If the budget is used up, a request that changes nothing is refused instead; the result of any other request has to
/// be sent.
fn cover(
    mut permit: MemoryPermit,
    response: Response,
    is_safe: bool,
) -> (Response, Arc<MemoryPermit>) {
    let bytes = match &response.body {
        Body::Full(body) => body.len(),
        Body::Stream { held_bytes, .. } => *held_bytes,
        Body::Counted(_) => 0,
    };
    let response = match !permit.add_answer(bytes) && is_safe {
        true => {
            permit.remove_answer();
            Problem::from(Busy).into()
        }
        false => response,
    };
    (response, Arc::new(permit))
}

/// A copy of the value that does not keep the rest of the head in memory.
fn copied(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).ok()
}

/// Does not read the body of the request.
fn options(request: Request) -> Response {
    cors::options(&request.headers)
}

async fn respond<H: Handler>(handler: &H, route: H::Route, request: Request) -> Response {
    // The future is made inside, so that a panic before its first await is caught as well.
    let response = async { handler.handle(route, request).await };
    AssertUnwindSafe(response).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let mut response = Response::from(Problem::of(Kind::Internal, &Panicked));
        response.cause = Some(format!("{Panicked}: {text}").into_boxed_str());
        response
    })
}

#[derive(Debug, thiserror::Error)]
#[error("the handler panicked")]
struct Panicked;

/// Removes the body for HEAD and keeps the headers of GET with the length of the body.
fn cut_body(response: &mut Response) {
    if let Some(length) = response.body.left()
        && response.status != StatusCode::NO_CONTENT
        && response.status != StatusCode::NOT_MODIFIED
    {
        response.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response.body = Body::Full(Bytes::new());
}

/// Record of one exchange. Written to metrics and log when dropped, however the exchange ends.
#[derive(Debug)]
struct Record {
    started: Duration,
    clock: Clock,
    metrics: Arc<Metrics>,
    activity: Arc<Activity>,
    method: Method,
    path: Box<str>,
    route: &'static str,
    is_routine: bool,
    refusals: Arc<Refusals>,
    status: u16,
    received: Arc<BodyTally>,
    sent_bytes: u64,
    request_id: RequestId,
    client_ip: IpAddr,
    cause: Option<Box<str>>,
    /// Whether the cause is a mistake of the client, whose response had begun.
    is_of_client: bool,
    code: &'static str,
    ending: Ending,
}

/// The end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The operating system has the whole response, or will get it.
    Answered,
    /// The client left, the response broke off, or a shutdown cut it.
    HungUp,
}

impl Drop for Record {
    fn drop(&mut self) {
        let now = self.clock.monotonic();
        self.activity.request_ends(now);
        let duration = now.saturating_sub(self.started);
        let metrics = &self.metrics;
        self.activity.counters.count(metrics, self.route, self.status, duration);
        let received_bytes = self.received.received_bytes();
        metrics.http_received_bytes.inc_by(received_bytes);
        metrics.http_sent_bytes.inc_by(self.sent_bytes);
        self.log(duration, received_bytes);
        if self.status >= FAILED_FROM {
            metrics.refused.note(self.clock.now().0, (self.route, self.status, self.code));
        }
        if self.status == REFUSED {
            let why = (self.route, self.cause.take().unwrap_or_default());
            if let Some(refused) = self.refusals.count(why.clone(), 1, now) {
                log_refused(&why, refused);
            }
        }
    }
}

impl Record {
    fn log(&self, duration: Duration, received_bytes: u64) {
        // The level of a tracing event is part of its call site, so each level has its own.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "weir::http",
                    method = self.method.as_str(),
                    path = &*self.path,
                    route = self.route,
                    status = self.status,
                    duration_ms = duration.as_secs_f64() * 1e3,
                    received_bytes,
                    sent_bytes = self.sent_bytes,
                    request_id = self.request_id.as_str(),
                    client_ip = %self.client_ip,
                    complete = self.ending == Ending::Answered,
                    cause = self.cause.as_deref(),
                    "request"
                )
            };
        }
        match self.status {
            400..500 => line!(info),
            REFUSED => line!(debug),
            // An internal failure, which needs the operator's attention.
            _ if self.cause.is_some() && !self.is_of_client => line!(error),
            // Time-outs.
            500.. => line!(warn),
            _ if self.is_routine && self.ending == Ending::Answered => line!(debug),
            _ => line!(info),
        }
    }
}

/// Body of a response that is being sent, with the record of its exchange.
#[derive(Debug)]
pub(super) struct SentBody {
    body: Body,
    /// Rest of the last piece taken from the body.
    rest: Bytes,
    record: Record,
    /// Memory permit of the exchange; none if it was refused.
    permit: Option<Arc<MemoryPermit>>,
    /// Registers pieces until they are sent; only for HTTP/2.
    unsent: Option<Arc<Unsent>>,
}

impl SentBody {
    /// Bytes not sent yet; `None` if the length is known only at the end of the stream.
    fn left(&self) -> Option<u64> {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        self.body.left().map(|left| left.saturating_add(rest))
    }

    /// The next piece of the body, as the endpoint made it.
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.rest))));
        }
        let piece = match &mut self.body {
            Body::Full(body) | Body::Counted(body) if body.is_empty() => None,
            Body::Full(body) | Body::Counted(body) => Some(Ok(std::mem::take(body))),
            Body::Stream { pieces, .. } => ready!(pieces.as_mut().poll_next(context)),
        };
        match (&piece, &mut self.body) {
            (Some(Ok(piece)), Body::Stream { left: Some(left), .. }) => {
                *left = left.saturating_sub(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            }
            // The stream ended before its announced length, such as a file that was cut meanwhile.
            (None, Body::Stream { left: Some(1..), .. }) => {
                let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Poll::Ready(Some(Err(error.into())));
            }
            _ => {}
        }
        Poll::Ready(piece)
    }

    /// The part of `piece` that the connection gets. It holds the memory permit of the exchange until it
    /// is sent. On HTTP/2 it is at most [`PIECE_MAX_BYTES`] long, so its age shows whether the client
    /// reads.
    fn hand_over(&mut self, mut piece: Bytes) -> Bytes {
        let Some(unsent) = &self.unsent else {
            return match &self.permit {
                Some(permit) if piece.len() > ANSWER_FREE_BYTES => {
                    with_permit(piece, Arc::clone(permit))
                }
                _ => piece,
            };
        };
        if piece.len() > PIECE_MAX_BYTES {
            self.rest = piece.split_off(PIECE_MAX_BYTES);
        }
        if piece.is_empty() {
            return piece;
        }
        let now = stamp(self.record.clock.monotonic());
        unsent.hold(now, piece, self.permit.clone())
    }
}

impl hyper::body::Body for SentBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        match ready!(self.poll_piece(context)) {
            None => {
                self.record.ending = Ending::Answered;
                Poll::Ready(None)
            }
            Some(Ok(piece)) => {
                let piece = self.hand_over(piece);
                self.record.sent_bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Err(error)) => {
                let kind = error.downcast_ref::<QueryError>().map(QueryError::kind);
                self.record.is_of_client = kind.is_some_and(|kind| {
                    matches!(kind, Kind::Invalid | Kind::Timeout | Kind::Overloaded)
                });
                self.record.cause = Some(chain(&*error).into_boxed_str());
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left().map(SizeHint::with_exact).unwrap_or_default()
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        // hyper does not poll for the end of a body whose length it knows.
        if self.left() == Some(0) {
            self.record.ending = Ending::Answered;
        }
    }
}
