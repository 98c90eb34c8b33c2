//! A request that carries events, and what is known of it besides its body.
//!
//! The log record keeps [`Received`], so that a replay builds the same columns from the body again.

use std::net::IpAddr;

use bytes::Bytes;

use weir_base::clock::UnixMicros;
use weir_wire::capture_v1::Sdk;
use weir_wire::encoding::hints::Hints;

/// A request that carries events.
#[derive(Clone, Debug)]
pub struct CaptureRequest {
    /// The body as it was received.
    pub body: Bytes,
    /// How it is encoded.
    pub hints: Hints,
    /// The client's address.
    pub client_ip: Option<IpAddr>,
    /// How the body is to be read.
    pub protocol: Protocol,
    /// The project's token, if a header contains it instead of the body.
    pub token: Option<String>,
}

/// What is known of a request besides its body.
#[derive(Clone, Debug)]
pub struct Received {
    /// When the body had arrived.
    pub at: UnixMicros,
    /// The client's address.
    pub client_ip: Option<IpAddr>,
    /// The protocol of the body.
    pub protocol: Protocol,
    /// Seed of the ids that the server generates.
    pub seed: u64,
    /// Largest clock skew of the sender that counts as network delay, milliseconds.
    pub skew_ignored_millis: u32,
    /// Size limit of an event, bytes of JSON.
    pub event_max_bytes: u32,
    /// The rules by which the body is read.
    pub rules: Rules,
}

/// Version of the rules by which events are read. The log record keeps it, so that a replay gives the rows that were
/// given when the record was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rules {
    /// An import is shifted by `offset`, is never far in the future and gets the address of its sender. Beside the
    /// properties, `id`, `elements_chain` and the `historical_migration` of one event mean nothing.
    First,
    /// An import is stored as it was: what a list of events returns is the same event when it is sent.
    #[default]
    ExactImports,
}

/// The capture protocol, and the parameters that it takes from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `/batch`, `/e` and other capture v0 paths.
    V0 {
        /// `sent_at` of the query string, milliseconds since 1970.
        sent_at_query_millis: Option<i64>,
        /// Whether the path was `/engage`, where an event without a name is an `$identify`.
        engage: bool,
    },
    /// `/i/v1/...`: stricter, with an outcome for each event.
    V1 {
        /// When the client sent the request, by its clock.
        sent_at: UnixMicros,
        /// The SDK, for `$lib` and `$lib_version`.
        sdk: Option<Sdk>,
    },
}

impl Default for Protocol {
    fn default() -> Self {
        Self::V0 { sent_at_query_millis: None, engage: false }
    }
}

impl Received {
    /// When the client sent the request, by the query or a header.
    pub(super) fn sent_at(&self) -> Option<UnixMicros> {
        match self.protocol {
            Protocol::V0 { sent_at_query_millis, .. } => {
                sent_at_query_millis.map(|millis| UnixMicros(millis.saturating_mul(1000)))
            }
            Protocol::V1 { sent_at, .. } => Some(sent_at),
        }
    }

    /// Whether an event without a name counts as `$identify`.
    pub(super) fn is_engage(&self) -> bool {
        matches!(self.protocol, Protocol::V0 { engage: true, .. })
    }
}
