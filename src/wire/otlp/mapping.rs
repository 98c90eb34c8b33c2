//! Converts one span to an event: the event name, the distinct id, and the names of the properties.
//!
//! Source of the rules: `rust/capture/src/otel` and `nodejs/src/ingestion/ai/otel` of PostHog, except for the
//! attribute names of single libraries (Vercel's, Traceloop, Pydantic AI). These stay as they are, like every
//! attribute that the rules do not rename: see `src/guide/compatibility.md`.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, json};
use uuid::Uuid;

use crate::otlp::spans::{Attributes, Resource, Scope, Span, Value};

/// Prefixes of attributes that mark a span as about AI.
const PREFIXES: [&str; 6] =
    ["gen_ai.", "ai.", "eve.", "pydantic_ai.", "traceloop.", "llm.request.type"];

/// Prefixes of resource attributes that SDKs add automatically.
const NOISE: [&str; 4] = ["host.", "process.", "os.", "telemetry."];

/// Renamed attributes; they override an existing property of the new name.
const RENAMED: [(&str, &str); 9] = [
    ("gen_ai.input.messages", "$ai_input"),
    ("gen_ai.output.messages", "$ai_output_choices"),
    ("gen_ai.usage.input_tokens", "$ai_input_tokens"),
    ("gen_ai.usage.output_tokens", "$ai_output_tokens"),
    ("gen_ai.response.model", "$ai_model"),
    ("gen_ai.provider.name", "$ai_provider"),
    ("server.address", "$ai_base_url"),
    ("telemetry.sdk.name", "$ai_lib"),
    ("telemetry.sdk.version", "$ai_lib_version"),
];

/// Older attribute names; used where the property is absent.
const FALLBACKS: [(&str, &str); 4] = [
    ("gen_ai.system", "$ai_provider"),
    ("gen_ai.request.model", "$ai_model"),
    ("gen_ai.usage.prompt_tokens", "$ai_input_tokens"),
    ("gen_ai.usage.completion_tokens", "$ai_output_tokens"),
];

/// Attributes whose value is elsewhere in the event.
const STRIPPED: [&str; 7] = [
    "telemetry.sdk.language",
    "gen_ai.operation.name",
    "posthog.ai.debug",
    "posthog.geoip_disable",
    "user.id",
    "posthog.distinct_id",
    "llm.request.type",
];

/// Attributes with the distinct id, in order of precedence; those of the span before those of its resource.
const DISTINCT_IDS: [&str; 4] = [
    "ai.telemetry.metadata.posthog_distinct_id",
    "ai.settings.context.posthog_distinct_id",
    "posthog.distinct_id",
    "user.id",
];

/// Attributes with the session: a conversation, which may have several traces.
const SESSION_IDS: [&str; 4] = [
    "$ai_session_id",
    "ai.telemetry.metadata.$ai_session_id",
    "ai.settings.context.$ai_session_id",
    "gen_ai.conversation.id",
];

/// Longest session id that a distinct id is derived from. Session ids are short, and each span is hashed.
const SESSION_MAX_BYTES: usize = 1024;

/// Attributes with the HTTP status of a failed call to a model.
const HTTP_STATUSES: [&str; 4] =
    ["$ai_http_status", "http.response.status_code", "http.status_code", "error.status_code"];

/// PostHog's namespace of distinct ids made from sessions and traces.
const DISTINCT_ID_NAMESPACE: Uuid = Uuid::from_u128(0x392e_81d5_3d13_4a6f_b541_bdbf_6c86_5e56);

/// Namespace of the ids of events made from spans: a repeated export gets the same ids and is deduplicated.
const EVENT_NAMESPACE: Uuid = Uuid::from_u128(0x6e0c_1d0b_7e7b_4d0f_9a54_2f1c_9d0a_83e1);

/// Whether a span with these attributes is about AI.
pub(super) fn is_of_ai(attributes: &Attributes) -> bool {
    PREFIXES.iter().any(|prefix| attributes.has_prefix(prefix))
}

/// The properties of an event under construction. Resource attributes are borrowed: with a copy for each
/// span, a body of a few kB would keep a core busy for minutes.
#[derive(Default)]
struct Properties<'a>(Vec<(&'a str, Cow<'a, Value>)>);

impl<'a> Properties<'a> {
    fn place(&self, key: &str) -> Option<usize> {
        self.0.iter().position(|(own, _)| *own == key)
    }

    fn has(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    fn set(&mut self, key: &'a str, value: Value) {
        self.put(key, Cow::Owned(value));
    }

    fn put(&mut self, key: &'a str, value: Cow<'a, Value>) {
        match self.place(key).and_then(|place| self.0.get_mut(place)) {
            Some((_, own)) => *own = value,
            None => self.0.push((key, value)),
        }
    }

    fn remove(&mut self, key: &str) -> Option<Cow<'a, Value>> {
        Some(self.0.remove(self.place(key)?).1)
    }
}

/// Writes the event of a span as JSON.
pub(super) fn write_event<'a>(
    out: &mut Vec<u8>,
    resource: &'a Resource,
    scope: &Scope,
    span: &'a Span,
) {
    let mut properties = Properties::default();
    let is_noise = |key: &str| NOISE.iter().any(|prefix| key.starts_with(prefix));
    for (key, value) in resource.attributes.0.iter().filter(|(key, _)| !is_noise(key)) {
        properties.put(key, Cow::Borrowed(value));
    }
    for (key, value) in &span.attributes.0 {
        properties.put(key, Cow::Borrowed(value));
    }
    let of_both = |keys: &[&str]| {
        let of = |attributes: &'a Attributes| keys.iter().find_map(|key| attributes.text(key));
        of(&span.attributes).or_else(|| of(&resource.attributes))
    };
    let session = of_both(&SESSION_IDS);
    let text = |text: &str| Value::Text(text.to_owned());
    if let Some(session) = session.filter(|_| !properties.has("$ai_session_id")) {
        properties.set("$ai_session_id", text(session));
    }
    let named = of_both(&DISTINCT_IDS);
    if named.is_none() {
        // A trace is not a person.
        properties.set("$process_person_profile", Value::Boolean(false));
    }
    let distinct_id = named.map_or_else(|| Cow::Owned(derived_id(session, span)), Cow::Borrowed);
    let disabled = properties.remove("posthog.geoip_disable");
    if !properties.has("$geoip_disable") {
        let disabled = disabled.unwrap_or(Cow::Owned(Value::Boolean(true)));
        properties.put("$geoip_disable", disabled);
    }
    properties.set("$ai_trace_id", text(&span.trace_id));
    properties.set("$ai_span_id", text(&span.span_id));
    if !span.parent_span_id.is_empty() {
        properties.set("$ai_parent_id", text(&span.parent_span_id));
    }
    properties.set("$ai_ingestion_source", text("otel"));
    if !properties.has("$lib") {
        properties.set("$lib", text("posthog-otel"));
    }
    if !scope.version.is_empty() && !properties.has("$lib_version") {
        properties.set("$lib_version", text(&scope.version));
    }
    if !span.name.is_empty() {
        properties.set("$ai_span_name", text(&span.name));
    }
    if let Some(seconds) = seconds(span) {
        properties.set("$ai_latency", Value::Double(seconds));
    }
    note_error(&mut properties, span);
    let mut name = event_name(&span.attributes);
    if name == "$ai_span" && !properties.has("$ai_parent_id") {
        name = "$ai_trace";
    }
    rename(&mut properties);
    write(out, name, &distinct_id, span, &properties);
}

/// The event name, by the operation that the library reports.
fn event_name(attributes: &Attributes) -> &'static str {
    let of_operation = |operation: &str| match operation {
        "chat" | "text_completion" | "generate_content" => Some("$ai_generation"),
        "embeddings" => Some("$ai_embedding"),
        _ => None,
    };
    let of_request = |request: &str| match request {
        "chat" | "completion" => Some("$ai_generation"),
        "embedding" | "embeddings" => Some("$ai_embedding"),
        _ => None,
    };
    let of_call = |call: &str| match call {
        "ai.embed.doEmbed" | "ai.embedMany.doEmbed" => Some("$ai_embedding"),
        call if call.ends_with(".doGenerate") || call.ends_with(".doStream") => {
            Some("$ai_generation")
        }
        _ => None,
    };
    // A step of the Vercel AI SDK around a model call has attributes of that call too.
    let found = match attributes.text("ai.operationId") {
        Some(call) => of_call(call),
        None => attributes
            .text("gen_ai.operation.name")
            .and_then(of_operation)
            .or_else(|| attributes.text("llm.request.type").and_then(of_request)),
    };
    found.unwrap_or("$ai_span")
}

/// The distinct id of a span without one: derived from the session, else from the trace.
fn derived_id(session: Option<&str>, span: &Span) -> String {
    let name = match session.filter(|session| session.len() <= SESSION_MAX_BYTES) {
        Some(session) => format!("session:{session}"),
        None if is_id(&span.trace_id) => format!("trace:{}", span.trace_id),
        None => format!("span:{}", span.span_id),
    };
    Uuid::new_v5(&DISTINCT_ID_NAMESPACE, name.as_bytes()).to_string()
}

/// Whether an id is valid: all zeros mean that there is none.
fn is_id(id: &str) -> bool {
    id.bytes().any(|digit| digit != b'0')
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a call to a model")]
fn seconds(span: &Span) -> Option<f64> {
    let nanos = span.end_nanos.checked_sub(span.start_nanos).filter(|nanos| *nanos > 0)?;
    (span.start_nanos > 0).then_some(nanos as f64 / 1e9)
}

/// Sets the error properties, if the span is an error: from the last exception, else from the status.
fn note_error(properties: &mut Properties<'_>, span: &Span) {
    if !span.is_error {
        return;
    }
    properties.set("$ai_is_error", Value::Boolean(true));
    let none = Attributes::default();
    let exception = span.exception.as_ref().unwrap_or(&none);
    if !properties.has("$ai_error") {
        let status = Some(span.status_message.as_str()).filter(|message| !message.is_empty());
        let error = match (exception.text("exception.type"), exception.text("exception.message")) {
            (Some(kind), Some(message)) => format!("{kind}: {message}"),
            (kind, message) => {
                let either = message.or(kind).or(status);
                either.unwrap_or("OpenTelemetry span status error").to_owned()
            }
        };
        properties.set("$ai_error", Value::Text(error));
    }
    // A value that is not a status does not hide a valid one.
    let status = |attributes: &Attributes, key: &str| {
        let status = match attributes.get(key)? {
            Value::Integer(status) => *status,
            Value::Text(status) => status.parse().ok()?,
            _ => return None,
        };
        Some(status).filter(|status| (100..=599).contains(status))
    };
    let of_either = |key| status(exception, key).or_else(|| status(&span.attributes, key));
    if let Some(status) = HTTP_STATUSES.into_iter().find_map(of_either) {
        properties.set("$ai_http_status", Value::Integer(status));
    }
}

/// Renames attributes to properties.
fn rename(properties: &mut Properties<'_>) {
    for (from, to) in RENAMED {
        if let Some(value) = properties.remove(from) {
            let is_messages = matches!(to, "$ai_input" | "$ai_output_choices");
            properties.put(to, if is_messages { messages(value) } else { value });
        }
    }
    for (from, to) in FALLBACKS {
        if let Some(value) = properties.remove(from)
            && !properties.has(to)
        {
            properties.put(to, value);
        }
    }
    for key in STRIPPED {
        properties.remove(key);
    }
}

/// Messages, which arrive as JSON in a string.
fn messages(value: Cow<'_, Value>) -> Cow<'_, Value> {
    match &*value {
        Value::Text(text) if super::json::is_json(text) => match value.into_owned() {
            Value::Text(text) => Cow::Owned(Value::Json(text)),
            other => Cow::Owned(other),
        },
        _ => value,
    }
}

fn write(
    out: &mut Vec<u8>,
    name: &str,
    distinct_id: &str,
    span: &Span,
    properties: &Properties<'_>,
) {
    let mut head = Map::from_iter([
        ("event".to_owned(), name.into()),
        ("distinct_id".to_owned(), distinct_id.into()),
    ]);
    if is_id(&span.trace_id) && is_id(&span.span_id) {
        let id = format!("{}:{}", span.trace_id, span.span_id);
        let id = Uuid::new_v5(&EVENT_NAMESPACE, id.as_bytes());
        head.insert("uuid".to_owned(), id.to_string().into());
    }
    if let Some(time) = i64::try_from(span.start_nanos).ok().filter(|nanos| *nanos > 0) {
        let time = DateTime::from_timestamp_nanos(time);
        let time = time.to_rfc3339_opts(SecondsFormat::Micros, true);
        head.insert("timestamp".to_owned(), time.into());
    }
    out.extend(serde_json::Value::Object(head).to_string().trim_end_matches('}').as_bytes());
    out.extend(b",\"properties\":");
    write_map(out, properties.0.iter().map(|(key, value)| (*key, &**value)));
    out.push(b'}');
}

fn write_map<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a str, &'a Value)>) {
    out.push(b'{');
    for (place, (key, value)) in members.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend(json!(key).to_string().as_bytes());
        out.push(b':');
        write_value(out, value);
    }
    out.push(b'}');
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Json(text) => out.extend(text.as_bytes()),
        Value::Map(members) => {
            write_map(out, members.iter().map(|(key, value)| (key.as_str(), value)));
        }
        Value::List(items) => {
            out.push(b'[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Text(text) => out.extend(json!(text).to_string().as_bytes()),
        Value::Boolean(truth) => out.extend(json!(truth).to_string().as_bytes()),
        Value::Integer(number) => out.extend(json!(number).to_string().as_bytes()),
        // NaN and infinities become null.
        Value::Double(number) => out.extend(json!(number).to_string().as_bytes()),
    }
}
