//! Responses: [`Response`], and [`Problem`], the error envelope. Only this file maps a [`Kind`] to
//! a status, and only this file names error statuses.
//!
//! # Format of an error
//!
//! `{"type":"validation_error","code":"invalid_payload","detail":"malformed request data",
//! "attr":null}`, in this order; `attr` is the name of the field at fault, or null, or absent.
//! The cause of a failure is written to the log line of its request, never into the answer.
//! Capture v1 has an envelope of its own: `response/refusal.rs`.

mod refusal;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::fmt::Write;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::budget::{Busy, Counted};
use crate::request::BodyError;
use weir_base::attempts::Throttled;
use weir_base::error::Kind;
use weir_evaluation::EvaluationError;
use weir_event::key_kind::KeyKind;

/// Why a streamed response broke off. The client sees a broken connection; the log gets the text.
pub type StreamError = Box<dyn Error + Send + Sync>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// `Retry-After` in seconds for overload. The SDKs wait for the larger of this and their own
/// back-off.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// One response.
#[derive(Debug)]
pub struct Response {
    /// Status.
    pub status: StatusCode,
    /// Headers; length, date, request id and CORS are added when it is sent.
    pub headers: HeaderMap,
    /// Body.
    pub(super) body: Body,
    /// Cause of an internal failure, for the log.
    pub(super) cause: Option<Box<str>>,
    /// The code of the error in the response; empty if it is no error.
    pub(super) code: &'static str,
}

/// The body of a response.
pub(super) enum Body {
    Full(Bytes),
    /// A body that counts in the memory budget already.
    Counted(Bytes),
    Stream {
        pieces: Pin<Box<dyn Stream<Item = Result<Bytes, StreamError>> + Send>>,
        /// Bytes not sent yet, if the length is known in advance.
        left: Option<u64>,
        /// Memory that the stream has before its first piece and that is in no budget yet.
        held_bytes: usize,
    },
}

impl Body {
    /// Bytes not sent yet; `None` if the length is known only at the end of the stream.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::Full(bytes) | Self::Counted(bytes) => {
                Some(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            Self::Stream { left, .. } => *left,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(bytes) | Self::Counted(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Stream { left, .. } => write!(f, "stream, {left:?} bytes left"),
        }
    }
}

impl Response {
    /// No body.
    pub fn empty(status: StatusCode) -> Self {
        let body = Body::Full(Bytes::new());
        Self { status, headers: HeaderMap::new(), body, cause: None, code: "" }
    }

    /// A body of the given media type.
    pub fn bytes(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        let mut response = Self::empty(status);
        response.headers.insert(CONTENT_TYPE, content_type);
        response.body = Body::Full(body.into());
        response
    }

    /// `value` as JSON. A value that has no JSON form (a map with keys that are not texts) is a bug
    /// and becomes a 500.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::json_bytes(status, body),
            Err(error) => Problem::of(Kind::Internal, &error).into(),
        }
    }

    /// A body that is JSON already.
    pub fn json_bytes(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self::bytes(status, JSON, body)
    }

    /// A body of the given media type that counts in the memory budget.
    pub fn counted(status: StatusCode, content_type: HeaderValue, body: &Counted) -> Self {
        let mut response = Self::empty(status);
        response.headers.insert(CONTENT_TYPE, content_type);
        response.body = Body::Counted(body.bytes().clone());
        response
    }

    /// A JSON text that counts in the memory budget.
    pub fn counted_json(status: StatusCode, body: &Counted) -> Self {
        Self::counted(status, JSON, body)
    }

    /// JSON that begins with `head`, followed by a body that counts in the memory budget.
    pub fn counted_json_after(head: String, body: &Counted) -> Self {
        let pieces = [Bytes::from(head), body.bytes().clone()];
        let bytes = pieces.iter().map(Bytes::len).fold(0, usize::saturating_add);
        let len = u64::try_from(bytes).unwrap_or(u64::MAX);
        Self::sized_stream(StatusCode::OK, JSON, len, stream::iter(pieces.map(Ok)))
    }

    /// Plain text.
    pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self::bytes(status, TEXT, body)
    }

    /// A streamed body: pieces are produced as fast as the client takes them. The stream is dropped
    /// when the client hangs up. After an error the connection is broken off, so that no client
    /// takes a part for the whole.
    pub fn stream(
        status: StatusCode,
        content_type: HeaderValue,
        pieces: impl Stream<Item = Result<Bytes, StreamError>> + Send + 'static,
    ) -> Self {
        let mut response = Self::empty(status);
        response.headers.insert(CONTENT_TYPE, content_type);
        response.body = Body::Stream { pieces: Box::pin(pieces), left: None, held_bytes: 0 };
        response
    }

    /// The same with a `Content-Length` of `len` bytes; `pieces` has to have that length, or to
    /// fail.
    pub fn sized_stream(
        status: StatusCode,
        content_type: HeaderValue,
        len: u64,
        pieces: impl Stream<Item = Result<Bytes, StreamError>> + Send + 'static,
    ) -> Self {
        let mut response = Self::empty(status);
        response.headers.insert(CONTENT_TYPE, content_type);
        response.body = Body::Stream { pieces: Box::pin(pieces), left: Some(len), held_bytes: 0 };
        response
    }

    /// The same response, whose stream has these bytes in memory before its first piece.
    #[must_use]
    pub fn holding(mut self, bytes: usize) -> Self {
        if let Body::Stream { held_bytes, .. } = &mut self.body {
            *held_bytes = bytes;
        }
        self
    }

    /// The same with a cause for the log.
    #[must_use]
    pub fn because(mut self, error: &(dyn Error + 'static)) -> Self {
        self.cause = Some(chain(error).into_boxed_str());
        self
    }

    /// The same with a header added, or replaced if it was there.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// The status of each kind of error. Total: a new kind does not compile until it has a status.
pub fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::Conflict => StatusCode::CONFLICT,
        // Not 429: browser SDKs drop events on any 4xx and keep them on 503.
        Kind::Overloaded | Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Default `type` and `code` of each kind of error.
fn names(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Invalid => ("validation_error", "invalid_input"),
        Kind::Unauthorized => ("authentication_error", "authentication_failed"),
        Kind::Forbidden => ("authentication_error", "permission_denied"),
        Kind::NotFound => ("invalid_request", "not_found"),
        Kind::TooLarge => ("invalid_request", "payload_too_large"),
        Kind::Conflict => ("server_error", "conflict"),
        Kind::Overloaded => ("server_error", "overloaded"),
        Kind::Unavailable => ("server_error", "unavailable"),
        Kind::Timeout => ("server_error", "timeout"),
        Kind::Internal => ("server_error", "error"),
    }
}

/// Text for the client about an internal failure; `None` if the error's own text is for the client.
fn public_detail(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Invalid
        | Kind::Unauthorized
        | Kind::Forbidden
        | Kind::NotFound
        | Kind::TooLarge
        | Kind::Conflict => None,
        Kind::Overloaded => Some("The server is busy. Try again."),
        Kind::Unavailable => Some("The server cannot do this at the moment."),
        Kind::Timeout => Some("The request took too long."),
        Kind::Internal => Some("A server error occurred."),
    }
}

/// An error as sent to the client.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    error_type: &'static str,
    code: &'static str,
    detail: Cow<'static, str>,
    attr: Attr,
    header: Option<(HeaderName, HeaderValue)>,
    cause: Option<Box<str>>,
    form: Form,
}

/// Format of the body of a [`Problem`]'s response.
#[derive(Debug)]
enum Form {
    /// As an [`Envelope`].
    Envelope,
    /// As this JSON value.
    Own(Value),
    /// No body.
    Empty,
}

/// The field `attr` of a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Attr {
    /// Not in the body.
    Absent,
    /// `null`: no field is at fault.
    Null,
    /// The field at fault; nested names joined by `__`.
    Name(Cow<'static, str>),
}

#[derive(Serialize)]
struct Envelope<'a> {
    r#type: &'a str,
    code: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "is_absent")]
    attr: &'a Attr,
}

fn is_absent(attr: &&Attr) -> bool {
    **attr == Attr::Absent
}

impl Problem {
    /// An error with a code and a text for the client; `type` follows from the kind and `attr` is
    /// null.
    pub fn new(kind: Kind, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry = matches!(kind, Kind::Overloaded | Kind::Unavailable);
        Self {
            status: status(kind),
            error_type: names(kind).0,
            code,
            detail: detail.into(),
            attr: Attr::Null,
            header: retry.then_some((RETRY_AFTER, RETRY_AFTER_SECONDS)),
            cause: None,
            form: Form::Envelope,
        }
    }

    /// The response to any error with a kind. An error of the client is described by the error's
    /// own text. An internal failure gets a general text; the log gets the error with its causes.
    pub fn of(kind: Kind, error: &(dyn Error + 'static)) -> Self {
        let code = names(kind).1;
        match public_detail(kind) {
            None => Self::new(kind, code, error.to_string()),
            Some(detail) => Self::new(kind, code, detail).because(error),
        }
    }

    /// The error as a member of a response that has other content: `{"type", "message"}`.
    pub fn told_inside(&self) -> Value {
        json!({"type": self.code, "message": self.detail})
    }

    /// Its cause, for the log.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The text for the client.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The name of the field at fault.
    pub fn field(&self) -> Option<&str> {
        match &self.attr {
            Attr::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The same with `attr`: the field at fault, null, or absent.
    #[must_use]
    pub fn with_attr(mut self, attr: Attr) -> Self {
        self.attr = attr;
        self
    }

    /// The same with another `type`.
    #[must_use]
    pub fn with_type(mut self, error_type: &'static str) -> Self {
        self.error_type = error_type;
        self
    }

    /// The same with a cause for the log.
    #[must_use]
    pub fn because(mut self, error: &(dyn Error + 'static)) -> Self {
        self.cause = Some(chain(error).into_boxed_str());
        self
    }

    /// The same with this body, or with none: some endpoints have errors of their own form.
    #[must_use]
    pub fn with_body(self, body: Option<Value>) -> Self {
        Self { form: body.map_or(Form::Empty, Form::Own), ..self }
    }

    /// The project of the events cannot be determined (the API specification, Errors).
    pub fn invalid_project() -> Self {
        let attr = Attr::Name(Cow::Borrowed("project_id"));
        Self::new(Kind::Invalid, "invalid_project", "Invalid project id.").with_attr(attr)
    }

    /// The body of a public endpoint cannot be read (the API specification, Errors).
    pub fn invalid_payload(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, "invalid_payload", detail)
    }

    /// No project has the token that was sent (the API specification, Errors).
    pub fn invalid_api_key(sent: KeyKind) -> Self {
        let detail = sent.is_no_project_token();
        Self::new(Kind::Unauthorized, "invalid_api_key", detail).with_attr(Attr::Absent)
    }

    /// No user has the personal key that was sent (the API specification, Errors).
    pub fn invalid_personal_api_key(sent: KeyKind) -> Self {
        let detail = sent.is_no_personal_key();
        let problem = Self::new(Kind::Unauthorized, "invalid_personal_api_key", detail);
        problem.with_attr(Attr::Absent).challenged()
    }

    /// A management request without a credential.
    pub fn not_authenticated() -> Self {
        let detail = "Authentication credentials were not provided.";
        Self::new(Kind::Unauthorized, "not_authenticated", detail).challenged()
    }

    /// A management request with an invalid credential.
    pub fn authentication_failed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unauthorized, "authentication_failed", detail).challenged()
    }

    fn challenged(mut self) -> Self {
        self.header = Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        self
    }

    /// The credential does not grant this.
    pub fn permission_denied(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Forbidden, "permission_denied", detail)
    }

    /// The object does not exist. `Not found.`, except for a missing project or organization.
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::NotFound, "not_found", detail)
    }

    /// The path takes the methods of `allow` (such as `GET, POST`), not this one.
    pub fn method_not_allowed(method: &Method, allow: &str) -> Self {
        let detail = format!("Method \"{method}\" not allowed.");
        let mut problem =
            Self::request(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
        problem.header = HeaderValue::from_str(allow).ok().map(|allow| (ALLOW, allow));
        problem
    }

    /// The same with another text.
    pub fn with_detail(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// The body of a management request is not JSON; `reason` is the parser's text.
    pub fn parse_error(reason: &dyn fmt::Display) -> Self {
        let detail = format!("JSON parse error - {reason}");
        Self::request(StatusCode::BAD_REQUEST, "parse_error", detail)
    }

    /// The endpoint does not read the media type of the body.
    pub fn unsupported_media_type(media_type: &str) -> Self {
        let detail = format!("Unsupported media type \"{media_type}\" in request.");
        Self::request(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
    }

    /// The endpoint has none of the media types of `Accept`.
    pub fn not_acceptable() -> Self {
        let detail = "Could not satisfy the request Accept header.";
        Self::request(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail)
    }

    /// The head has more fields than `max`.
    pub(super) fn too_many_fields(max: usize) -> Self {
        let detail = format!("The request has more than {max} header fields.");
        Self::request(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_many_fields", detail)
    }

    /// The key has exceeded its rate limit and may retry after `wait`; the text is that of Django
    /// REST Framework.
    pub fn throttled(wait: Duration) -> Self {
        let seconds = u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        let unit = if seconds == 1 { "second" } else { "seconds" };
        let detail = format!("Request was throttled. Expected available in {seconds} {unit}.");
        Self::too_many_requests("throttled", detail).retry_after(seconds)
    }

    /// The client has exceeded its quota.
    pub fn too_many_requests(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::request(StatusCode::TOO_MANY_REQUESTS, code, detail).with_type("throttled_error")
    }

    /// The same with the time after which the client may try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.header = Some((RETRY_AFTER, HeaderValue::from(seconds)));
        self
    }

    /// An error that only HTTP has, hence without a kind.
    fn request(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let problem = Self::new(Kind::Invalid, code, detail).with_type("invalid_request");
        Self { status, ..problem }
    }
}

/// 429 with the time after which the next one is possible.
impl From<Throttled> for Problem {
    fn from(Throttled(wait): Throttled) -> Self {
        Self::throttled(wait)
    }
}

impl From<EvaluationError> for Problem {
    fn from(error: EvaluationError) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<Busy> for Problem {
    fn from(error: Busy) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match &error {
            // The client was slow, not the server: 408 and not the 504 of this kind.
            BodyError::Slow => {
                Self::request(StatusCode::REQUEST_TIMEOUT, "request_timeout", error.to_string())
            }
            BodyError::Broken(_) => Self::of(error.kind(), &error).because(&error),
            BodyError::TooLarge { .. } | BodyError::Busy(_) => Self::of(error.kind(), &error),
        }
    }
}

impl From<BodyError> for Response {
    fn from(error: BodyError) -> Self {
        Problem::from(error).into()
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        let envelope = Envelope {
            r#type: problem.error_type,
            code: problem.code,
            detail: &problem.detail,
            attr: &problem.attr,
        };
        // The envelope contains only text, so this cannot fail; if it did, an empty body would
        // still have the status.
        let body = serde_json::to_vec(&envelope).unwrap_or_default();
        let mut response = match &problem.form {
            Form::Envelope => Self::json_bytes(problem.status, body),
            Form::Own(body) => Self::json(problem.status, body),
            Form::Empty => Self::empty(problem.status),
        };
        response.headers.extend(problem.header);
        response.cause = problem.cause;
        response.code = problem.code;
        response
    }
}

/// An error and its causes on one line: `cannot append: disk full`.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        // Writing to a `String` does not fail.
        let _ = write!(text, ": {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
