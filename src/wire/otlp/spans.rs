//! Spans as both encodings are parsed into, and the limits of what is kept of them.

/// Limit of attributes that are kept of one span, event or resource; SDKs of OpenTelemetry send up to 128.
pub(super) const ATTRIBUTES_MAX: usize = 256;

/// Limit of nested lists in the value of an attribute; deeper ones are left out.
pub(super) const DEPTH_MAX: usize = 32;

/// Limit of what is kept while parsing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Spans whose events still fit into the batch.
    pub(super) spans: u64,
    /// Whether there was one span too many.
    pub(super) is_over: bool,
}

impl Room {
    /// Counts one span; `None` if the limit is reached.
    pub(super) fn take(&mut self) -> Option<()> {
        self.is_over = self.spans == 0;
        self.spans = self.spans.checked_sub(1)?;
        Some(())
    }
}

/// A traced process, with its spans.
#[derive(Debug, Default)]
pub(super) struct Resource {
    pub(super) attributes: Attributes,
    pub(super) scopes: Vec<Scope>,
}

/// An instrumentation library, with its spans.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) version: String,
    /// The spans about AI.
    pub(super) spans: Vec<Span>,
}

/// One step of a trace.
#[derive(Debug, Default)]
pub(super) struct Span {
    /// Ids in hexadecimal digits; empty if absent.
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_span_id: String,
    pub(super) name: String,
    pub(super) start_nanos: u64,
    pub(super) end_nanos: u64,
    pub(super) attributes: Attributes,
    /// Attributes of the last exception.
    pub(super) exception: Option<Attributes>,
    pub(super) is_error: bool,
    pub(super) status_message: String,
}

impl Span {
    /// Records an event of the span; only exceptions matter.
    pub(super) fn note_event(&mut self, name: &str, attributes: Attributes) {
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
pub(super) struct Attributes(pub(super) Vec<(String, Value)>);

impl Attributes {
    /// Adds an attribute, unless its key is empty or the limit is reached.
    pub(super) fn add(&mut self, key: String, value: Option<Value>) {
        if let Some(value) = value.filter(|_| !key.is_empty() && self.0.len() < ATTRIBUTES_MAX) {
            self.0.push((key, value));
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        // If a key occurs twice, the last value counts, as in a map.
        self.0.iter().rfind(|(own, _)| own == key).map(|(_, value)| value)
    }

    /// A string value that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.0.iter().any(|(key, _)| key.starts_with(prefix))
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Boolean(bool),
    Integer(i64),
    Double(f64),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    /// JSON text, written as it is.
    Json(String),
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len());
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]));
    text
}
