//! OpenTelemetry traces (OTLP over HTTP): [`to_batch`] converts the spans about AI to a batch of events, as
//! `/i/v0/ai/batch` accepts it. A pure function, because the log stores the body as it was received and a
//! replay converts it again.
//!
//! `protobuf` and `json` parse the encodings into the structures of `spans`; `mapping` has the rules for a span.
//!
//! # Bounds
//!
//! Every event repeats the attributes of its resource, so the batch can be larger than the body: its limit is
//! [`BATCH_MAX_BYTES`]. Other spans are skipped while parsing. Of one attribute list at most
//! [`ATTRIBUTES_MAX`](spans::ATTRIBUTES_MAX) are kept; JSON is parsed up to the end of a list before. A protobuf span can have
//! 9 bytes and takes about a hundred in memory, so parsing stops at the number of spans that fit into a
//! batch; a JSON span has at least 50 bytes.

mod json;
mod mapping;
mod protobuf;
mod spans;
#[cfg(test)]
mod tests;

use crate::encoding::error::DecodeError;
use crate::otlp::spans::Room;

/// Largest body once decompressed (PostHog's limit).
pub const BODY_PLAIN_MAX_BYTES: u64 = 4 << 20;

/// Size limit of the batch that the spans of one body become.
const BATCH_MAX_BYTES: u64 = 16 << 20;

/// Smallest event of a batch: its names, and the properties that all events get.
const EVENT_MIN_BYTES: u64 = 128;

/// The encoding of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json`.
    Json,
}

impl Form {
    /// The encoding by `Content-Type`; its parameters are ignored.
    pub fn of_content_type(value: &str) -> Option<Self> {
        let media_type = value.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| media_type.eq_ignore_ascii_case(name);
        if is("application/x-protobuf") {
            Some(Self::Protobuf)
        } else {
            is("application/json").then_some(Self::Json)
        }
    }

    /// The media type of a response.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// The response to an export of which `rejected` spans were dropped.
    pub fn answer(self, rejected: u64) -> Vec<u8> {
        const MESSAGE: &str = "spans were dropped: see the ingestion warnings of the project";
        match (self, rejected) {
            (Self::Protobuf, 0) => Vec::new(),
            (Self::Protobuf, _) => protobuf::partial_success(rejected, MESSAGE),
            (Self::Json, 0) => b"{}".to_vec(),
            (Self::Json, _) => {
                // The JSON mapping of protobuf writes a 64-bit number as a string.
                let partial = serde_json::json!({
                    "partialSuccess": {"rejectedSpans": rejected.to_string(), "errorMessage": MESSAGE},
                });
                partial.to_string().into_bytes()
            }
        }
    }
}

/// Converts the spans of a body to a JSON batch of events. The token is empty: it is in a header.
///
/// # Errors
///
/// The body is not valid in this encoding, or the batch would exceed `limit_bytes` or [`BATCH_MAX_BYTES`].
pub fn to_batch(form: Form, body: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    let limit_bytes = limit_bytes.min(BATCH_MAX_BYTES);
    let mut room = Room { spans: limit_bytes / EVENT_MIN_BYTES, is_over: false };
    let read = match form {
        Form::Protobuf => protobuf::read(body, &mut room),
        Form::Json => json::read(body),
    };
    let resources = read.ok_or(match room.is_over {
        true => DecodeError::TooLarge { limit_bytes },
        false => DecodeError::Malformed("the body is no export of traces"),
    })?;
    let mut batch = br#"{"token":"","batch":["#.to_vec();
    let mut is_first = true;
    for resource in &resources {
        for scope in &resource.scopes {
            for span in &scope.spans {
                if !is_first {
                    batch.push(b',');
                }
                is_first = false;
                mapping::write_event(&mut batch, resource, scope, span);
                if u64::try_from(batch.len()).is_ok_and(|bytes| bytes > limit_bytes) {
                    return Err(DecodeError::TooLarge { limit_bytes });
                }
            }
        }
    }
    batch.extend(b"]}");
    Ok(batch)
}
