//! One request and its answer: what every exchange needs whatever the endpoint. Id, CORS, HEAD,
//! panics, the rest of an unread body, metrics, and exactly one line in the log. No endpoints.
//!
//! What goes wrong is logged for everybody to see, and so is all that operators do. That an SDK got
//! its flags or sent its events is a line at level DEBUG: there are thousands a second, and to write
//! one costs as much as to evaluate a few dozen flags.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::ready;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use hyper::Method;
use hyper::StatusCode;
use hyper::Uri;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::body::SizeHint;
use hyper::header::CONTENT_LENGTH;
use hyper::header::HeaderValue;
use hyper::header::ORIGIN;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use crate::clock::Clock;
use crate::error::Kind;
use crate::http::Front;
use crate::http::Handler;
use crate::http::Matched;
use crate::http::client_address::client_address;
use crate::http::connection::Activity;
use crate::http::cors;
use crate::http::request::BodyTally;
use crate::http::request::Request;
use crate::http::request::RequestBody;
use crate::http::request::RequestId;
use crate::http::request::X_REQUEST_ID;
use crate::http::response::Body;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::response::StreamError;
use crate::http::response::chain;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::RequestLabels;
use crate::telemetry::metrics::RouteLabels;

/// Logged for a client that hung up before its answer had a status; the number that nginx uses.
const HUNG_UP: u16 = 499;

/// Longest part of a path that is logged; the longest endpoint of ours has about 100 characters.
const PATH_LOGGED_BYTES: usize = 256;

/// Answers one request of a connection from `peer`.
pub(super) async fn answer<H: Handler>(
    front: Arc<Front<H>>,
    activity: Arc<Activity>,
    peer: IpAddr,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<SentBody>, Infallible> {
    let (head, incoming) = request.into_parts();
    let is_head = head.method == Method::HEAD;
    let method = if is_head { Method::GET } else { head.method.clone() };
    let Matched { route, label, is_routine } = front.handler.route(&method, head.uri.path());
    let limits = &front.limits;
    let body = RequestBody::new(incoming, &head.headers, &front.bodies, limits.body_timeout);
    let request_id = RequestId::of(&head.headers);
    activity.request_begins(head.version);
    let mut record = Record {
        started: front.clock.monotonic(),
        clock: front.clock.clone(),
        metrics: Arc::clone(&front.metrics),
        activity,
        method: head.method,
        uri: head.uri.clone(),
        route: label,
        is_routine,
        status: HUNG_UP,
        received: body.tally(),
        sent_bytes: 0,
        request_id: request_id.clone(),
        client_ip: client_address(&head.headers, peer, &limits.trusted_proxies),
        cause: None,
        ending: Ending::HungUp,
    };
    let origin = head.headers.get(ORIGIN).cloned();

    let mut response = if method == Method::OPTIONS {
        drop(body);
        cors::options(&head.headers)
    } else {
        let headers = head.headers;
        let client_ip = record.client_ip;
        let request = Request { method, headers, client_ip, request_id, body, uri: head.uri };
        respond(&*front.handler, route, request).await
    };
    record.received.drain(limits.body_timeout).await;
    cors::allow(origin, &mut response.headers);
    response.headers.insert(X_REQUEST_ID, record.request_id.to_header());
    if is_head {
        cut_body(&mut response);
    }
    record.status = response.status.as_u16();
    record.cause = response.cause;
    let mut answer = hyper::Response::new(SentBody { body: response.body, record });
    *answer.status_mut() = response.status;
    *answer.headers_mut() = response.headers;
    Ok(answer)
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

/// Leaves of an answer what HEAD gets: the headers of GET with the length of its body.
fn cut_body(response: &mut Response) {
    if let Some(length) = response.body.left()
        && response.status != StatusCode::NO_CONTENT
        && response.status != StatusCode::NOT_MODIFIED
    {
        response.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response.body = Body::Full(Bytes::new());
}

/// What is known of an exchange. Written to metrics and log when dropped, however it ends.
#[derive(Debug)]
struct Record {
    started: Duration,
    clock: Clock,
    metrics: Arc<Metrics>,
    activity: Arc<Activity>,
    method: Method,
    uri: Uri,
    route: &'static str,
    is_routine: bool,
    status: u16,
    received: Arc<BodyTally>,
    sent_bytes: u64,
    request_id: RequestId,
    client_ip: IpAddr,
    cause: Option<Box<str>>,
    ending: Ending,
}

/// The metrics of the last exchange of a connection. Most connections ask one endpoint again and again;
/// to find its metrics in their maps costs more than to count.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Option<Counted>>);

#[derive(Debug)]
struct Counted {
    route: &'static str,
    status: u16,
    requests: Counter,
    seconds: Histogram,
}

impl Counters {
    fn count(&self, metrics: &Metrics, (route, status): (&'static str, u16), duration: Duration) {
        let mut last = self.0.lock();
        let same = last.take().filter(|last| last.status == status && last.route == route);
        let counted = same.unwrap_or_else(|| Counted {
            route,
            status,
            requests: metrics.http_requests.get_or_create(&RequestLabels { route, status }).clone(),
            seconds: metrics.http_request_seconds.get_or_create(&RouteLabels { route }).clone(),
        });
        counted.requests.inc();
        counted.seconds.observe(duration.as_secs_f64());
        *last = Some(counted);
    }
}

/// How far an exchange came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The whole answer is in the hands of the operating system, or will be.
    Answered,
    /// The client left, the answer broke off, or a shutdown cut it.
    HungUp,
}

impl Drop for Record {
    fn drop(&mut self) {
        let now = self.clock.monotonic();
        self.activity.request_ends(now);
        let duration = now.saturating_sub(self.started);
        let metrics = &self.metrics;
        self.activity.counters.count(metrics, (self.route, self.status), duration);
        let received_bytes = self.received.received_bytes();
        metrics.http_received_bytes.inc_by(received_bytes);
        metrics.http_sent_bytes.inc_by(self.sent_bytes);
        self.log(duration, received_bytes);
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
                    path = self.logged_path(),
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
            // Something inside went wrong: an operator must look at it.
            _ if self.cause.is_some() => line!(error),
            // Overload and time-outs: expected under load, and many at once.
            500.. => line!(warn),
            _ if self.is_routine && self.ending == Ending::Answered => line!(debug),
            _ => line!(info),
        }
    }

    fn logged_path(&self) -> &str {
        let path = self.uri.path();
        path.get(..path.floor_char_boundary(PATH_LOGGED_BYTES)).unwrap_or(path)
    }
}

/// An answer's body on its way out, with the record of its exchange.
#[derive(Debug)]
pub(super) struct SentBody {
    body: Body,
    record: Record,
}

impl hyper::body::Body for SentBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let piece = match &mut self.body {
            Body::Full(body) if body.is_empty() => None,
            Body::Full(body) => Some(Ok(std::mem::take(body))),
            Body::Stream { pieces, .. } => ready!(pieces.as_mut().poll_next(context)),
        };
        match piece {
            None => {
                // A stream that ends before its length is none that was sent whole.
                if self.body.left().is_none_or(|left| left == 0) {
                    self.record.ending = Ending::Answered;
                }
                Poll::Ready(None)
            }
            Some(Ok(piece)) => {
                let sent = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                if let Body::Stream { left: Some(left), .. } = &mut self.body {
                    *left = left.saturating_sub(sent);
                }
                self.record.sent_bytes += sent;
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Err(error)) => {
                self.record.cause = Some(chain(&*error).into_boxed_str());
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.left() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.left().map(SizeHint::with_exact).unwrap_or_default()
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        // hyper does not ask for the end of a body whose length it knows.
        if self.body.left() == Some(0) {
            self.record.ending = Ending::Answered;
        }
    }
}
