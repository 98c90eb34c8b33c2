//! OpenTelemetry traces (OTLP over HTTP): [`to_batch`] converts the spans about AI to a batch of events, as
//! `/i/v0/ai/batch` accepts it. A pure function, because the log stores the body as it was received and a
//! replay converts it again.
//!
//! `protobuf` and `json` parse the encodings into the same structures; `mapping` has the rules for a span.
//!
//! # Bounds
//!
//! Every event repeats the attributes of its resource, so the batch can be larger than the body: its limit is
//! [`BATCH_MAX_BYTES`]. Other spans are skipped while parsing. Of one attribute list at most
//! [`ATTRIBUTES_MAX`] are kept; JSON is parsed up to the end of a list before. A protobuf span can have
//! 9 bytes and takes about a hundred in memory, so parsing stops at the number of spans that fit into a
//! batch; a JSON span has at least 50 bytes.

mod json;
mod mapping;
mod protobuf;
#[cfg(test)]
mod tests;

use crate::wire::encoding::DecodeError;

/// Largest body once decompressed (PostHog's limit).
pub const BODY_PLAIN_MAX_BYTES: u64 = 4 << 20;

/// Size limit of the batch that the spans of one body become.
const BATCH_MAX_BYTES: u64 = 16 << 20;

/// Smallest event of a batch: its names, and the properties that all events get.
const EVENT_MIN_BYTES: u64 = 128;

/// Limit of attributes that are kept of one span, event or resource; SDKs of OpenTelemetry send up to 128.
const ATTRIBUTES_MAX: usize = 256;

/// Limit of nested lists in the value of an attribute; deeper ones are left out.
const DEPTH_MAX: usize = 32;

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

/// Limit of what is kept while parsing.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Spans whose events still fit into the batch.
    spans: u64,
    /// Whether there was one span too many.
    is_over: bool,
}

impl Room {
    /// Counts one span; `None` if the limit is reached.
    fn take(&mut self) -> Option<()> {
        self.is_over = self.spans == 0;
        self.spans = self.spans.checked_sub(1)?;
        Some(())
    }
}

/// A traced process, with its spans.
#[derive(Debug, Default)]
struct Resource {
    attributes: Attributes,
    scopes: Vec<Scope>,
}

/// An instrumentation library, with its spans.
#[derive(Debug, Default)]
struct Scope {
    version: String,
    /// The spans about AI.
    spans: Vec<Span>,
}

/// One step of a trace.
#[derive(Debug, Default)]
struct Span {
    /// Ids in hexadecimal digits; empty if absent.
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    name: String,
    start_nanos: u64,
    end_nanos: u64,
    attributes: Attributes,
    /// Attributes of the last exception.
    exception: Option<Attributes>,
    is_error: bool,
    status_message: String,
}

impl Span {
    /// Records an event of the span; only exceptions matter.
    fn note_event(&mut self, name: &str, attributes: Attributes) {
        // An event without attributes does not replace a previous exception.
        if attributes.0.is_empty() {
            return;
        }
        let is_exception = name == "exception"
            || attributes.text("exception.type").or(attributes.text("exception.message")).is_some();
        if is_exception {
            self.exception = Some(attributes);
        }
    }
}

/// Attributes, in the order of the span.
#[derive(Clone, Debug, Default)]
struct Attributes(Vec<(String, Value)>);

impl Attributes {
    /// Adds an attribute, unless its key is empty or the limit is reached.
    fn add(&mut self, key: String, value: Option<Value>) {
        if let Some(value) = value.filter(|_| !key.is_empty() && self.0.len() < ATTRIBUTES_MAX) {
            self.0.push((key, value));
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        // If a key occurs twice, the last value counts, as in a map.
        self.0.iter().rfind(|(own, _)| own == key).map(|(_, value)| value)
    }

    /// A string value that is not empty.
    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    fn has_prefix(&self, prefix: &str) -> bool {
        self.0.iter().any(|(key, _)| key.starts_with(prefix))
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    Boolean(bool),
    Integer(i64),
    Double(f64),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    /// JSON text, written as it is.
    Json(String),
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len());
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]));
    text
}
