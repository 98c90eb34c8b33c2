//! Memory budget of all requests and responses under way: [`Budget`]. It counts
//!
//! - the bodies that endpoints read, until the last `Bytes` of a body is dropped, wherever it is;
//! - what is parsed of a body, until its request ends ([`Budget::parsed_bytes`]);
//! - what an endpoint reads and writes for a long response ([`Memory`]), and that response, until the last client that
//!   receives it has read all of it ([`Counted`]);
//! - each admitted request ([`MemoryPermit`]): its head, its tasks, and any other response of more than
//!   [`ANSWER_FREE_BYTES`], until the client has read all of it;
//! - the bytes of a head that is still arriving ([`Reservation::resize`]).
//!
//! What endpoints read and write for responses may take only half of the budget. The other half is for requests: events
//! are accepted however long the responses to other requests are.
//!
//! A declared length reserves nothing; otherwise a few idle clients could lock out all others by
//! announcing large bodies.
//!
//! # Limit of one connection
//!
//! HTTP/2 compresses a repeated header field to one byte, and allows 64 requests at once. A few
//! connections could therefore fill the budget with heads. A connection with more than
//! [`CONNECTION_FREE_BYTES`] of requests under way gets new permits only while half of the budget
//! is free. The other half is for connections with few requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hyper::http::request::Parts;
use prometheus_client::metrics::gauge::Gauge;

use weir_base::error::Kind;
use weir_base::telemetry::metrics::Metrics;

/// Memory of a request besides its head: its task, the state of its stream, its log record.
const REQUEST_BYTES: u64 = 8 * 1024;

/// Memory of a header field besides its text: an entry of a `HeaderMap`, half of whose slots may be
/// empty.
const FIELD_BYTES: u64 = 224;

/// Memory of requests that a connection may have under way as long as the budget is not full.
const CONNECTION_FREE_BYTES: u64 = 64 * 1024;

/// Longest response that is included in the permit of its request.
pub(super) const ANSWER_FREE_BYTES: usize = 16 * 1024;

/// Memory of a parsed object besides its members: the node of a map, which has capacity for eleven.
const OBJECT_BYTES: u64 = 640;

/// Memory of a parsed list besides its items: a first buffer of four items.
const LIST_BYTES: u64 = 128;

/// Memory of a member or an item besides its text, in a buffer or node of which half may be empty.
const MEMBER_BYTES: u64 = 64;

/// Memory budget for the requests and responses of all connections.
#[derive(Debug)]
pub(super) struct Budget {
    used_bytes: AtomicU64,
    max_bytes: u64,
    bodies: Gauge,
    heads: Gauge,
}

/// The budget is used up, or the connection has exceeded its limit.
#[derive(Debug, thiserror::Error)]
#[error("too many bytes of requests are under way")]
pub struct Busy;

impl Busy {
    /// The kind of this error.
    pub fn kind(&self) -> Kind {
        Kind::Overloaded
    }
}

impl Budget {
    pub(super) fn new(max_bytes: u64, metrics: &Metrics) -> Arc<Self> {
        let (bodies, heads) = (metrics.http_body_bytes.clone(), metrics.http_head_bytes.clone());
        Arc::new(Self { used_bytes: AtomicU64::new(0), max_bytes, bodies, heads })
    }

    /// An empty reservation for a body.
    pub(super) fn body(self: &Arc<Self>) -> Reservation {
        let gauge = self.bodies.clone();
        Reservation { gauge, budget: Arc::clone(self), bytes: 0, is_sure: false }
    }

    /// An empty reservation for a head, or for a response.
    pub(super) fn head(self: &Arc<Self>) -> Reservation {
        let gauge = self.heads.clone();
        Reservation { gauge, budget: Arc::clone(self), bytes: 0, is_sure: false }
    }

    /// Memory that counts for a JSON text once it is parsed: at most a quarter of the budget, so that the longest
    /// permitted text can be read as long as nothing else is.
    pub(super) fn parsed_bytes(&self, text: &[u8]) -> u64 {
        parsed_bytes(text).min(self.max_bytes / 4)
    }

    /// A permit for a request with this head, and whether it fits into the budget. `connection` counts
    /// the memory of the requests under way on its connection.
    pub(super) fn admit(
        self: &Arc<Self>,
        head: &Parts,
        connection: &Arc<AtomicU64>,
    ) -> (MemoryPermit, bool) {
        let bytes = head_bytes(head).saturating_add(REQUEST_BYTES);
        let own = connection.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut permit =
            MemoryPermit { reservation: self.head(), connection: Arc::clone(connection), bytes };
        let fits = permit.reservation.add(bytes);
        let is_crowding = own > CONNECTION_FREE_BYTES
            && self.used_bytes.load(Ordering::Relaxed) > self.max_bytes / 2;
        (permit, fits && !is_crowding)
    }
}

/// Memory of a head: its fields, and a target that is not part of them.
fn head_bytes(head: &Parts) -> u64 {
    let text = |total: u64, bytes: usize| total.saturating_add(length(bytes));
    let fields = head.headers.iter().fold(0, |total, (name, value)| {
        text(text(total, name.as_str().len()), value.len()).saturating_add(FIELD_BYTES)
    });
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    text(text(fields, authority), path)
}

/// A reserved part of the budget; released when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    gauge: Gauge,
    bytes: u64,
    /// Whether memory beyond the budget is counted and not refused.
    is_sure: bool,
}

struct Tied<Body> {
    body: Body,
    _reservation: Reservation,
}

impl<Body: AsRef<[u8]>> AsRef<[u8]> for Tied<Body> {
    fn as_ref(&self) -> &[u8] {
        self.body.as_ref()
    }
}

/// A long response that counts in the budget as long as a clone of it lives.
#[derive(Clone, Debug)]
pub struct Counted(Bytes);

impl Counted {
    /// Its bytes; they hold the reservation.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The bytes after the first `bytes`.
    pub(super) fn after(&self, bytes: usize) -> Self {
        Self(self.0.slice(bytes.min(self.0.len())..))
    }
}

/// The budget for what an endpoint reads and writes for one request.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    budget: Arc<Budget>,
    is_sure: bool,
}

impl Memory {
    /// The budget of a request. If it `changes` something, its response is counted and never refused, because the
    /// change is already done.
    pub(super) fn new(budget: &Arc<Budget>, changes: bool) -> Self {
        Self { budget: Arc::clone(budget), is_sure: changes }
    }

    /// An empty reservation.
    pub(super) fn reservation(&self) -> Reservation {
        let mut own = self.budget.head();
        own.is_sure = self.is_sure;
        own
    }
}

/// Upper bound of the memory of a JSON text once it is parsed: nodes of maps, buffers of lists, and values.
fn parsed_bytes(text: &[u8]) -> u64 {
    let one = |byte: &u8| match byte {
        b'{' => OBJECT_BYTES,
        b'[' => LIST_BYTES,
        b',' | b':' => MEMBER_BYTES,
        _ => 0,
    };
    text.iter().map(one).fold(length(text.len()), u64::saturating_add)
}

impl Reservation {
    /// Adds `more` bytes, which are in memory already. Returns whether they fit into the budget.
    pub(super) fn add(&mut self, more: u64) -> bool {
        self.bytes += more;
        self.gauge.inc_by(i64::try_from(more).unwrap_or(i64::MAX));
        let used_bytes = self.budget.used_bytes.fetch_add(more, Ordering::Relaxed) + more;
        used_bytes <= self.budget.max_bytes
    }

    /// Counts `bytes` instead of the previous number. Returns false if it is more than before and
    /// does not fit into the budget.
    pub(super) fn resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes {
            return self.add(bytes - self.bytes);
        }
        self.give_back(self.bytes - bytes);
        true
    }

    /// Counts `bytes` instead of the previous number.
    ///
    /// # Errors
    ///
    /// It is more than before, does not fit into the budget, and may be refused.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), Busy> {
        let is_more = length(bytes) > self.bytes;
        self.resize(length(bytes));
        if self.is_sure || !is_more || self.leaves_half() { Ok(()) } else { Err(Busy) }
    }

    /// Counts `more` bytes.
    pub(super) fn hold_more(&mut self, more: usize) -> Result<(), Busy> {
        self.counts(length(more))
    }

    fn counts(&mut self, more: u64) -> Result<(), Busy> {
        self.add(more);
        if self.is_sure || self.leaves_half() { Ok(()) } else { Err(Busy) }
    }

    /// Whether half of the budget is free, which responses leave to requests.
    fn leaves_half(&self) -> bool {
        self.budget.used_bytes.load(Ordering::Relaxed) <= self.budget.max_bytes / 2
    }

    /// Counts `bytes` less.
    pub(super) fn let_go(&mut self, bytes: usize) {
        self.give_back(length(bytes).min(self.bytes));
    }

    /// Counts the memory of a JSON text once it is parsed.
    pub(super) fn hold_parsed(&mut self, text: &[u8]) -> Result<(), Busy> {
        let bytes = self.budget.parsed_bytes(text);
        self.counts(bytes)
    }

    /// A response that counts as long as it lives, instead of the previous number of this reservation.
    pub(super) fn counted(mut self, mut answer: Vec<u8>) -> Result<Counted, Busy> {
        answer.shrink_to_fit();
        self.hold(answer.len())?;
        Ok(Counted(self.tied_to(answer)))
    }

    /// `body`, which holds the reservation until it is dropped.
    pub(super) fn tied_to(self, body: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Tied { body, _reservation: self })
    }

    /// All bytes of this reservation.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.budget.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// Permit for the memory of one request, from its head to the last byte of its response.
#[derive(Debug)]
pub(super) struct MemoryPermit {
    reservation: Reservation,
    connection: Arc<AtomicU64>,
    /// Bytes without the response.
    bytes: u64,
}

impl MemoryPermit {
    /// Adds a response of `bytes`. Returns whether it fits into the budget.
    pub(super) fn add_answer(&mut self, bytes: usize) -> bool {
        bytes <= ANSWER_FREE_BYTES || self.reservation.add(length(bytes))
    }

    /// The response is abandoned.
    pub(super) fn remove_answer(&mut self) {
        self.reservation.resize(self.bytes);
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.connection.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use hyper::http::request::Parts;

    use super::{Budget, CONNECTION_FREE_BYTES, FIELD_BYTES, MemoryPermit, REQUEST_BYTES};
    use weir_base::telemetry::metrics::Metrics;

    fn head(fields: usize) -> Parts {
        let mut request = hyper::Request::builder().uri("http://weir/four?six");
        for _ in 0..fields {
            request = request.header("name", "value");
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_counts_for_its_head_and_its_answer() {
        let metrics = Metrics::new();
        let budget = Budget::new(1 << 20, &metrics);
        let connection = Arc::new(AtomicU64::new(0));
        let (mut permit, has_room) = budget.admit(&head(100), &connection);
        assert!(has_room);
        let target = u64::try_from("weir/four?six".len()).unwrap();
        let bytes = REQUEST_BYTES + target + 100 * (FIELD_BYTES + 9);
        assert_eq!(connection.load(Ordering::Relaxed), bytes);
        assert_eq!(metrics.http_head_bytes.get(), i64::try_from(bytes).unwrap());
        assert!(permit.add_answer(1000));
        assert!(!permit.add_answer(1 << 20), "more than there is");
        permit.remove_answer();
        assert_eq!(metrics.http_head_bytes.get(), i64::try_from(bytes).unwrap());
        drop(permit);
        assert_eq!(connection.load(Ordering::Relaxed), 0);
        assert_eq!(metrics.http_head_bytes.get(), 0);
    }

    #[test]
    fn one_connection_leaves_half_to_others() {
        let metrics = Metrics::new();
        let budget = Budget::new(20 * CONNECTION_FREE_BYTES, &metrics);
        let crowded = Arc::new(AtomicU64::new(0));
        let mut shares = Vec::new();
        let fill = |shares: &mut Vec<MemoryPermit>,
                    connection: fn(&Arc<AtomicU64>) -> Arc<AtomicU64>| {
            let before = shares.len();
            while let (permit, true) = budget.admit(&head(1), &connection(&crowded)) {
                shares.push(permit);
            }
            shares.len() - before
        };
        fill(&mut shares, Arc::clone);
        let own = crowded.load(Ordering::Relaxed);
        assert!(own <= 10 * CONNECTION_FREE_BYTES && own > 9 * CONNECTION_FREE_BYTES, "{own}");
        let others = fill(&mut shares, |_| Arc::default());
        assert!(others > 50, "{others}");
        shares.clear();
        assert!(budget.admit(&head(1), &crowded).1, "all of it is given back");
        assert_eq!(metrics.http_head_bytes.get(), 0);
    }

    #[test]
    fn a_head_that_arrives_is_counted_once() {
        let metrics = Metrics::new();
        let budget = Budget::new(100, &metrics);
        let mut arriving = budget.head();
        assert!(arriving.resize(60) && arriving.resize(90));
        assert!(!arriving.resize(101));
        assert!(arriving.resize(0));
        assert_eq!(metrics.http_head_bytes.get(), 0);
    }
}
