//! A request as endpoints see it: [`Request`], [`RequestBody`]. hyper's body type ends here. No
//! routing; bodies are decoded in `wire/encoding.rs`.
//!
//! # Memory
//!
//! A body is read only when its endpoint calls [`RequestBody::read`], up to the endpoint's limit,
//! and within the memory budget of all requests (`http/budget.rs`).

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, EXPECT, HOST, HeaderName, HeaderValue};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{HeaderMap, Method, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::body_fields::BodyFields;
use crate::budget::{Budget, Busy, Memory, Reservation};
use crate::client_address::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use weir_base::error::Kind;

/// Bytes of an unwanted body that are read and discarded. Most clients read the response only after
/// they have sent everything. Three times the default limit of a body.
const DRAIN_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// First buffer for a body of more than one frame. It grows as bytes arrive, because a client may
/// announce 20 MiB and send nothing.
const FIRST_ROOM_BYTES: usize = 256 * 1024;

/// Longest request id accepted from a client: a traceparent has 55 characters, a pair of uuids 73.
const REQUEST_ID_MAX_BYTES: usize = 128;

/// Header with the id of a request, in both directions.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// One request. A HEAD request appears as GET; the body of its response is removed later.
#[derive(Debug)]
pub struct Request {
    /// GET, POST, ...; never HEAD or OPTIONS.
    pub method: Method,
    /// All headers.
    pub headers: HeaderMap,
    /// Client address: the peer, or the client that a trusted proxy names
    /// (`http/client_address.rs`).
    pub client_ip: IpAddr,
    /// The id in the log and in `x-request-id` of the response.
    pub request_id: RequestId,
    /// The body, not yet read.
    pub body: RequestBody,
    /// Who sent it.
    pub(super) sender: Sender,
    pub(super) uri: Uri,
    /// The fields that the body may have; without it, any.
    pub(super) body_fields: Option<Arc<BodyFields>>,
}

/// Who sent a request.
#[derive(Debug)]
pub(super) enum Sender {
    /// A client.
    Client,
    /// Another server, with the secret of this one. Its connection may go on with another protocol.
    Server(Option<Upgrade>),
}

/// A connection that speaks another protocol once its request is answered 101.
#[derive(Debug)]
pub(super) struct Upgrade(pub(super) OnUpgrade);

/// The bytes of a connection that speaks another protocol.
pub type Stream = TokioIo<Upgraded>;

impl Upgrade {
    /// The connection, after the answer; `None` if it broke off.
    pub(super) async fn stream(self) -> Option<Stream> {
        self.0.await.ok().map(TokioIo::new)
    }
}

impl Request {
    /// Whether another server sent it, with the secret of this one.
    pub(super) fn is_of_server(&self) -> bool {
        matches!(self.sender, Sender::Server(_))
    }

    /// A request of this client with a JSON body, for a route function that another one calls. It has neither
    /// credentials nor conditional headers; `None` if the path is not a URI.
    pub(super) fn derived(&self, method: Method, path: &str, body: Bytes) -> Option<Self> {
        let uri = path.parse().ok()?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for name in [HOST, X_FORWARDED_PROTO, X_FORWARDED_HOST] {
            if let Some(value) = self.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let body = RequestBody {
            incoming: None,
            peeked: Some(Ok(body)),
            budget: Arc::clone(&self.body.budget),
            timeout: self.body.timeout,
            sending: Sending::No,
            tally: Arc::default(),
        };
        let (client_ip, request_id) = (self.client_ip, self.request_id.clone());
        let (sender, body_fields) = (Sender::Client, None);
        Some(Self { method, headers, client_ip, request_id, body, sender, uri, body_fields })
    }

    /// A request without a body, with the same credentials.
    pub(super) fn derived_with_credentials(&self) -> Option<Self> {
        let mut own = self.derived(self.method.clone(), &self.uri.to_string(), Bytes::new())?;
        if let Some(value) = self.headers.get(AUTHORIZATION) {
            own.headers.insert(AUTHORIZATION, value.clone());
        }
        Some(own)
    }

    /// The memory budget for what is read and written for this request.
    pub(super) fn memory(&self) -> Memory {
        Memory::new(&self.body.budget, self.method != Method::GET)
    }

    /// The path as sent, still percent-encoded, without the query.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// The part after the `?`, as sent; may be empty.
    pub fn query_string(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    /// All parameters of the query, decoded, in the order sent. A name without `=` has the empty
    /// value.
    pub fn query_all(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        form_urlencoded::parse(self.query_string().as_bytes())
    }

    /// The first value of the parameter `name`, decoded.
    pub fn query(&self, name: &str) -> Option<Cow<'_, str>> {
        self.query_all().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// The first value of the header `name` (lower case), if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Id of one request in the log and in the response. At most 128 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

/// A part of a path, percent-decoded.
pub fn decode(part: &str) -> Cow<'_, str> {
    percent_decode_str(part).decode_utf8_lossy()
}

impl RequestId {
    /// The client's `x-request-id` if it is short and plain, else a new uuid.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let sane = |value: &&HeaderValue| {
            let bytes = value.as_bytes();
            !bytes.is_empty()
                && bytes.len() <= REQUEST_ID_MAX_BYTES
                && bytes.iter().all(u8::is_ascii_graphic)
        };
        headers.get(X_REQUEST_ID).filter(sane).map_or_else(Self::fresh, |id| Self(id.clone()))
    }

    fn fresh() -> Self {
        // Not `Uuid::new_v4`, which reads randomness from the kernel each time: an id for the log need not be secret.
        let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let mut text = Uuid::encode_buffer();
        let text = id.hyphenated().encode_lower(&mut text);
        Self(HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("none")))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// The id as a header.
    pub fn to_header(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is longer than the limit of its endpoint.
    #[error("the request body exceeds {limit_bytes} bytes")]
    TooLarge {
        /// The endpoint's limit.
        limit_bytes: u64,
    },
    /// The body did not arrive in time.
    #[error("the client stopped sending data")]
    Slow,
    /// The connection or the chunks broke.
    #[error("the request body is broken")]
    Broken(#[source] hyper::Error),
    /// The memory budget of all requests is used up.
    #[error(transparent)]
    Busy(#[from] Busy),
}

impl BodyError {
    /// The kind of this error.
    pub fn kind(&self) -> Kind {
        match self {
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Slow => Kind::Timeout,
            Self::Broken(_) => Kind::Invalid,
            Self::Busy(busy) => busy.kind(),
        }
    }
}

/// A body that is still arriving.
#[derive(Debug)]
pub struct RequestBody {
    /// `None` once there is nothing more to read.
    incoming: Option<Incoming>,
    /// The result of [`RequestBody::peek`]: the whole body, or the error.
    peeked: Option<Result<Bytes, BodyError>>,
    budget: Arc<Budget>,
    timeout: Duration,
    /// Whether the client keeps sending even if the endpoint does not read the body.
    sending: Sending,
    tally: Arc<BodyTally>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Yes,
    /// The client waits for a `100 Continue`, which hyper sends at the first read.
    OnDemand,
    /// The body stalled or broke off.
    No,
}

/// The rest of a body, for the exchange: the number of bytes received, and the part the endpoint did not read.
#[derive(Debug, Default)]
pub(super) struct BodyTally {
    received_bytes: AtomicU64,
    rest: Mutex<Option<Incoming>>,
    /// Memory reservation of the parsed body.
    parsed: Mutex<Option<Reservation>>,
}

impl RequestBody {
    pub(super) fn new(
        incoming: Incoming,
        headers: &HeaderMap,
        budget: &Arc<Budget>,
        timeout: Duration,
    ) -> Self {
        let sending = if headers.contains_key(EXPECT) { Sending::OnDemand } else { Sending::Yes };
        let incoming = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        let budget = Arc::clone(budget);
        Self { incoming, peeked: None, budget, timeout, sending, tally: Arc::default() }
    }

    /// Takes the body out of its request, and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        let (budget, timeout) = (Arc::clone(&self.budget), self.timeout);
        let (sending, tally) = (Sending::No, Arc::default());
        let empty = Self { incoming: None, peeked: None, budget, timeout, sending, tally };
        std::mem::replace(self, empty)
    }

    pub(super) fn tally(&self) -> Arc<BodyTally> {
        Arc::clone(&self.tally)
    }

    /// Reads the whole body, at most `limit_bytes`, within `body-timeout`. A body that arrived in
    /// one piece is not copied.
    ///
    /// # Errors
    ///
    /// Return the error's problem as the response. The exchange reads and discards the rest of the
    /// body, up to a limit, before it sends the response, so that the client sees it.
    pub async fn read(mut self, limit_bytes: u64) -> Result<Bytes, BodyError> {
        match self.peeked.take() {
            Some(Ok(body)) if length(&body) > limit_bytes => {
                Err(BodyError::TooLarge { limit_bytes })
            }
            Some(peeked) => peeked,
            None => self.read_now(limit_bytes).await,
        }
    }

    /// As [`Self::read`], for a JSON text that is parsed: the memory of the parsed values counts in the budget, too,
    /// until the response is ready.
    pub async fn read_to_parse(self, limit_bytes: u64) -> Result<Bytes, BodyError> {
        let (tally, budget) = (Arc::clone(&self.tally), Arc::clone(&self.budget));
        let body = self.read(limit_bytes).await?;
        let mut parsed = budget.body();
        if !parsed.add(budget.parsed_bytes(&body)) {
            return Err(BodyError::Busy(Busy));
        }
        *tally.parsed.lock() = Some(parsed);
        Ok(body)
    }

    /// Reads and buffers the body: a later [`RequestBody::read`] returns the same. `None` if that will fail.
    pub async fn peek(&mut self, limit_bytes: u64) -> Option<&Bytes> {
        if self.peeked.is_none() {
            self.peeked = Some(self.read_now(limit_bytes).await);
        }
        self.peeked.as_ref().and_then(|peeked| peeked.as_ref().ok())
    }

    async fn read_now(&mut self, limit_bytes: u64) -> Result<Bytes, BodyError> {
        let Some(incoming) = &self.incoming else { return Ok(Bytes::new()) };
        if incoming.size_hint().lower() > limit_bytes {
            return Err(BodyError::TooLarge { limit_bytes });
        }
        self.sending = Sending::Yes;
        let timeout = self.timeout;
        match tokio::time::timeout(timeout, self.collect(limit_bytes)).await {
            Ok(body) => body,
            Err(_) => {
                self.sending = Sending::No;
                Err(BodyError::Slow)
            }
        }
    }

    async fn collect(&mut self, limit_bytes: u64) -> Result<Bytes, BodyError> {
        let mut reservation = self.budget.body();
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        grow(&mut reservation, &first, limit_bytes)?;
        let Some(second) = self.next().await? else { return Ok(reservation.tied_to(first)) };
        grow(&mut reservation, &second, limit_bytes)?;

        let room = first.len() + second.len() + self.announced_bytes().min(FIRST_ROOM_BYTES);
        let mut body = Vec::with_capacity(room);
        body.extend_from_slice(&first);
        body.extend_from_slice(&second);
        drop((first, second));
        while let Some(piece) = self.next().await? {
            grow(&mut reservation, &piece, limit_bytes)?;
            if body.capacity() - body.len() < piece.len() {
                // Doubling, but never beyond the announced length.
                let rest = piece.len() + self.announced_bytes();
                body.reserve_exact(rest.min(body.len()).max(piece.len()));
            }
            body.extend_from_slice(&piece);
        }
        Ok(reservation.tied_to(body))
    }

    /// The next piece of the body that is not empty; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        while let Some(incoming) = &mut self.incoming {
            if incoming.is_end_stream() {
                self.incoming = None;
                break;
            }
            match incoming.frame().await {
                // Trailers are ignored.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) if !piece.is_empty() => {
                        self.tally.count(&piece);
                        return Ok(Some(piece));
                    }
                    Ok(_) | Err(_) => {}
                },
                Some(Err(error)) => {
                    self.sending = Sending::No;
                    return Err(BodyError::Broken(error));
                }
                None => self.incoming = None,
            }
        }
        Ok(None)
    }

    /// Bytes still to come by the announced length; 0 without one.
    fn announced_bytes(&self) -> usize {
        let hint = self.incoming.as_ref().map_or(0, |incoming| incoming.size_hint().lower());
        usize::try_from(hint).unwrap_or(usize::MAX)
    }
}

impl Drop for RequestBody {
    /// Leaves the unread rest to the exchange, which discards it before it sends the response.
    fn drop(&mut self) {
        if self.sending == Sending::Yes {
            *self.tally.rest.lock() = self.incoming.take();
        }
    }
}

impl BodyTally {
    fn count(&self, piece: &Bytes) {
        self.received_bytes.fetch_add(length(piece), Ordering::Relaxed);
    }

    /// Releases the reservation of the parsed body: the response is ready.
    pub(super) fn forget_parsed(&self) {
        *self.parsed.lock() = None;
    }

    /// Bytes received so far, including discarded ones.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Reads and discards the part of the body that the endpoint did not read, so that the client
    /// reads the response and the connection can be used again. Gives up at 64 MiB or at `timeout`;
    /// then the client may see a broken connection instead.
    pub(super) async fn drain(&self, timeout: Duration) {
        let Some(mut rest) = self.rest.lock().take() else { return };
        if rest.size_hint().lower() > DRAIN_MAX_BYTES {
            return;
        }
        let drained = async {
            let mut drained_bytes = 0;
            while let Some(Ok(frame)) = rest.frame().await {
                let Ok(piece) = frame.into_data() else { continue };
                self.count(&piece);
                drained_bytes += length(&piece);
                if drained_bytes > DRAIN_MAX_BYTES {
                    return;
                }
            }
        };
        // Drained or not, the response is the same.
        let _ = tokio::time::timeout(timeout, drained).await;
    }
}

/// Reserves memory for `piece`, which is in memory already.
fn grow(reservation: &mut Reservation, piece: &Bytes, limit_bytes: u64) -> Result<(), BodyError> {
    let has_room = reservation.add(length(piece));
    if reservation.bytes() > limit_bytes {
        Err(BodyError::TooLarge { limit_bytes })
    } else if !has_room {
        Err(BodyError::Busy(Busy))
    } else {
        Ok(())
    }
}

fn length(piece: &Bytes) -> u64 {
    u64::try_from(piece.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::HeaderMap;
    use hyper::header::HeaderValue;

    use super::{BodyError, RequestId, grow};
    use crate::budget::Budget;
    use weir_base::telemetry::metrics::Metrics;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn parts_of_paths_are_decoded() {
        for (part, decoded) in [
            ("7", "7"),
            ("%40current", "@current"),
            ("a+b%26c=d", "a+b&c=d"),
            ("%e2%82%ac", "€"),
            ("%ff%4", "\u{fffd}%4"),
        ] {
            assert_eq!(super::decode(part), decoded);
        }
    }

    #[test]
    fn sane_request_ids_are_kept_and_others_replaced() {
        let long = "x".repeat(129);
        for (sent, kept) in [
            ("4bf92f3577b34da6", true),
            ("a/b:c=d.e_f", true),
            (&long[..128], true),
            (&long, false),
            ("two words", false),
            ("", false),
        ] {
            let id = RequestId::of(&with("x-request-id", sent));
            assert_eq!(id.as_str() == sent, kept, "{sent}");
            if !kept {
                assert_eq!(uuid::Uuid::parse_str(id.as_str()).unwrap().get_version_num(), 4);
            }
        }
        let none = HeaderMap::new();
        assert_ne!(RequestId::of(&none), RequestId::of(&none));
    }

    #[test]
    fn the_budget_is_held_as_long_as_the_body() {
        let metrics = Metrics::new();
        let budget = Budget::new(10, &metrics);
        let piece = Bytes::from_static(b"123456");
        let mut one = budget.body();
        grow(&mut one, &piece, 100).unwrap();
        let body = one.tied_to(piece.clone());
        let tail = body.slice(4..);
        drop(body);
        assert_eq!((&tail[..], metrics.http_body_bytes.get()), (&b"56"[..], 6));
        assert!(matches!(grow(&mut budget.body(), &piece, 100), Err(BodyError::Busy(_))));
        drop(tail);
        let too_large = grow(&mut budget.body(), &piece, 5);
        assert!(matches!(too_large, Err(BodyError::TooLarge { limit_bytes: 5 })));
        assert_eq!(metrics.http_body_bytes.get(), 0);
    }
}
