//! Traces as exporters of OpenTelemetry send them (OTLP over HTTP): [`to_batch`] makes of the spans that
//! are about AI a batch as `/i/v0/ai/batch` takes it. A pure function, since the log keeps the body as it
//! was received and a replay comes through here again.
//!
//! `protobuf` and `json` read either form into the same few structures; `mapping` has the rules for one span.
//!
//! # Bounds
//!
//! Every span repeats what its resource says, so the batch can be larger than the body: it ends at
//! [`BATCH_MAX_BYTES`]. Spans that are not about AI are not kept while reading, and of attributes in one
//! place [`ATTRIBUTES_MAX`] in the end; JSON is read up to the end of a list of attributes before. A span of
//! protobuf can have 9 bytes and takes some hundred in memory, so reading ends at as many as fit into a
//! batch; one of JSON has 50 bytes at least.

mod json;
mod mapping;
mod protobuf;
#[cfg(test)]
mod tests;

use crate::wire::encoding::DecodeError;

/// Largest body once decompressed (PostHog's limit).
pub const BODY_PLAIN_MAX_BYTES: u64 = 4 << 20;

/// Largest batch that the spans of one body may become.
const BATCH_MAX_BYTES: u64 = 16 << 20;

/// What every event of a batch has at least: its names, and the properties that all of them get.
const EVENT_MIN_BYTES: u64 = 128;

/// Attributes of one span, event or resource that are kept; the SDKs of OpenTelemetry send 128.
const ATTRIBUTES_MAX: usize = 256;

/// Lists inside of lists in the value of an attribute; what is deeper is left out.
const DEPTH_MAX: usize = 32;

/// How the body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json`.
    Json,
}

impl Form {
    /// The form that a `Content-Type` names; parameters do not matter.
    pub fn of_content_type(value: &str) -> Option<Self> {
        let media_type = value.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| media_type.eq_ignore_ascii_case(name);
        if is("application/x-protobuf") {
            Some(Self::Protobuf)
        } else {
            is("application/json").then_some(Self::Json)
        }
    }

    /// The media type of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// The answer to an export of which `rejected` spans were not taken.
    pub fn answer(self, rejected: u64) -> Vec<u8> {
        const MESSAGE: &str = "spans were dropped: see the ingestion warnings of the project";
        match (self, rejected) {
            (Self::Protobuf, 0) => Vec::new(),
            (Self::Protobuf, _) => protobuf::partial_success(rejected, MESSAGE),
            (Self::Json, 0) => b"{}".to_vec(),
            (Self::Json, _) => {
                // A 64-bit number is a text in the JSON of protobuf.
                let partial = serde_json::json!({
                    "partialSuccess": {"rejectedSpans": rejected.to_string(), "errorMessage": MESSAGE},
                });
                partial.to_string().into_bytes()
            }
        }
    }
}

/// The spans of a body as a JSON batch of events, without a token: that is in a header.
///
/// # Errors
///
/// The body is not of this form, or the batch would have more than `limit_bytes` or [`BATCH_MAX_BYTES`].
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

/// How much more may be kept while reading.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Spans whose events may still fit into the batch.
    spans: u64,
    /// Whether there was one more.
    is_over: bool,
}

impl Room {
    /// Takes the room of one span; `None` if there is none.
    fn take(&mut self) -> Option<()> {
        self.is_over = self.spans == 0;
        self.spans = self.spans.checked_sub(1)?;
        Some(())
    }
}

/// A process, and what it traced.
#[derive(Debug, Default)]
struct Resource {
    attributes: Attributes,
    scopes: Vec<Scope>,
}

/// A library, and what it traced.
#[derive(Debug, Default)]
struct Scope {
    version: String,
    /// Those that are about AI.
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
    /// What was thrown, of the last exception.
    exception: Option<Attributes>,
    is_error: bool,
    status_message: String,
}

impl Span {
    /// Takes note of an event of the span: only exceptions matter.
    fn note_event(&mut self, name: &str, attributes: Attributes) {
        // One that says nothing leaves what was said before.
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

/// Keys and values in their order.
#[derive(Clone, Debug, Default)]
struct Attributes(Vec<(String, Value)>);

impl Attributes {
    /// Adds an attribute, unless it has no name or there are too many.
    fn add(&mut self, key: String, value: Option<Value>) {
        if let Some(value) = value.filter(|_| !key.is_empty() && self.0.len() < ATTRIBUTES_MAX) {
            self.0.push((key, value));
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        // Of two of the same name the last counts, as in a map.
        self.0.iter().rfind(|(own, _)| own == key).map(|(_, value)| value)
    }

    /// A text that is not empty.
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
    /// JSON as it is to be written.
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
