//! Parser for `ExportTraceServiceRequest` in JSON, for the fields that are needed. Names are those of the JSON
//! mapping of protobuf; 64-bit numbers are strings or numbers, ids are hexadecimal digits.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::otlp::mapping::is_of_ai;
use crate::otlp::spans::{
    ATTRIBUTES_MAX, Attributes, DEPTH_MAX, Resource, Scope, Span, Value, hex,
};
use crate::repair::repair;

/// Parses a request; `None` if it is malformed.
pub(super) fn read(body: &[u8]) -> Option<Vec<Resource>> {
    // Repairable damage, such as a surrogate pair cut by JavaScript, does not cost the whole export.
    parsed(body).or_else(|| parsed(&repair(body)?))
}

fn parsed(body: &[u8]) -> Option<Vec<Resource>> {
    // Serde would read structures from arrays too, which no exporter sends.
    let body = Some(body.trim_ascii_start()).filter(|body| body.starts_with(b"{"))?;
    let request: Request = serde_json::from_slice(body).ok()?;
    Some(request.resource_spans.0)
}

/// Whether a text is a JSON object or array. Values are skipped, not kept.
pub(super) fn is_json(text: &str) -> bool {
    let is_container = text.trim_start().starts_with(['{', '[']);
    is_container && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(default)]
    resource_spans: Kept<Resource>,
}

/// A list that keeps only items with content while it is parsed: an empty object has 2 bytes, and its
/// structure about 100.
struct Kept<T>(Vec<T>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// How an item of a list is parsed, and whether it is kept.
trait Item: Sized {
    type Wire: for<'de> Deserialize<'de>;

    fn of(wire: Self::Wire) -> Option<Self>;
}

impl<'de, T: Item> Deserialize<'de> for Kept<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(std::marker::PhantomData<T>);
        impl<'de, T: Item> Visitor<'de> for Items<T> {
            type Value = Kept<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Kept<T>, A::Error> {
                let mut kept = Vec::new();
                while let Some(wire) = list.next_element()? {
                    kept.extend(T::of(wire));
                }
                // A vector starts with capacity 4, and there may be one in every object.
                kept.shrink_to_fit();
                Ok(Kept(kept))
            }

            fn visit_unit<E>(self) -> Result<Kept<T>, E> {
                Ok(Kept::default())
            }
        }
        deserializer.deserialize_any(Items(std::marker::PhantomData))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceWire {
    resource: Option<Attributed>,
    scope_spans: Kept<Scope>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attributed {
    attributes: Kept<Pair>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScopeWire {
    scope: Option<Library>,
    spans: Kept<Span>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Library {
    version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpanWire {
    trace_id: Option<String>,
    span_id: Option<String>,
    parent_span_id: Option<String>,
    name: Option<String>,
    start_time_unix_nano: Number,
    end_time_unix_nano: Number,
    attributes: Kept<Pair>,
    events: Kept<Happened>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: Number,
    message: Option<String>,
}

impl Item for Resource {
    type Wire = ResourceWire;

    fn of(wire: ResourceWire) -> Option<Self> {
        let attributes = wire.resource.map(|resource| attributes(resource.attributes));
        let resource =
            Self { attributes: attributes.unwrap_or_default(), scopes: wire.scope_spans.0 };
        Some(resource).filter(|resource| !resource.scopes.is_empty())
    }
}

impl Item for Scope {
    type Wire = ScopeWire;

    fn of(wire: ScopeWire) -> Option<Self> {
        let version = wire.scope.and_then(|scope| scope.version).unwrap_or_default();
        Some(Self { version, spans: wire.spans.0 }).filter(|scope| !scope.spans.is_empty())
    }
}

impl Item for Span {
    type Wire = SpanWire;

    fn of(wire: SpanWire) -> Option<Self> {
        let attributes = attributes(wire.attributes);
        if !is_of_ai(&attributes) {
            return None;
        }
        let id = |id: Option<String>| id.unwrap_or_default().to_ascii_lowercase();
        let status = wire.status.unwrap_or_default();
        let mut span = Self {
            trace_id: id(wire.trace_id),
            span_id: id(wire.span_id),
            parent_span_id: id(wire.parent_span_id),
            name: wire.name.unwrap_or_default(),
            start_nanos: wire.start_time_unix_nano.nanos(),
            end_nanos: wire.end_time_unix_nano.nanos(),
            attributes,
            exception: None,
            is_error: status.code.is_error(),
            status_message: status.message.unwrap_or_default(),
        };
        for Happened(name, attributes) in wire.events.0 {
            span.note_event(&name, attributes);
        }
        Some(span)
    }
}

/// An event of a span.
struct Happened(String, Attributes);

#[derive(Default, Deserialize)]
#[serde(default)]
struct HappenedWire {
    name: Option<String>,
    attributes: Kept<Pair>,
}

impl Item for Happened {
    type Wire = HappenedWire;

    fn of(wire: HappenedWire) -> Option<Self> {
        Some(Self(wire.name.unwrap_or_default(), attributes(wire.attributes)))
            .filter(|Self(_, attributes)| !attributes.0.is_empty())
    }
}

/// One attribute.
struct Pair(String, Value);

#[derive(Deserialize)]
struct PairWire {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    value: Option<AnyValue>,
}

impl Item for Pair {
    type Wire = PairWire;

    fn of(wire: PairWire) -> Option<Self> {
        Some(Self(wire.key?, wire.value?.0?))
    }
}

impl Item for Value {
    type Wire = Option<AnyValue>;

    fn of(wire: Option<AnyValue>) -> Option<Self> {
        wire?.0
    }
}

fn attributes(pairs: Kept<Pair>) -> Attributes {
    let mut attributes = Attributes(Vec::with_capacity(pairs.0.len().min(ATTRIBUTES_MAX)));
    for Pair(key, value) in pairs.0 {
        attributes.add(key, Some(value).filter(|value| depth(value) <= DEPTH_MAX));
    }
    attributes
}

/// Nesting depth of lists. The JSON parser limits it, so the recursion ends.
fn depth(value: &Value) -> usize {
    match value {
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(members) => 1 + members.iter().map(|(_, own)| depth(own)).max().unwrap_or(0),
        _ => 0,
    }
}

/// `{"stringValue": "a"}` and the like; `None` if there is no value.
struct AnyValue(Option<Value>);

/// `{"values": [...]}`.
#[derive(Deserialize)]
#[serde(bound = "T: Item")]
struct Values<T> {
    #[serde(default)]
    values: Kept<T>,
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = AnyValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of an attribute")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<AnyValue, A::Error> {
                let mut found = None;
                while let Some(key) = members.next_key::<String>()? {
                    let value = match key.as_str() {
                        "stringValue" => members.next_value::<Option<String>>()?.map(Value::Text),
                        "boolValue" => members.next_value::<Option<bool>>()?.map(Value::Boolean),
                        "intValue" => members.next_value::<Number>()?.integer(),
                        "doubleValue" => members.next_value::<Number>()?.double(),
                        "bytesValue" => members.next_value::<Option<String>>()?.map(|text| {
                            let bytes = BASE64_STANDARD.decode(&text);
                            Value::Text(bytes.map_or(text, |bytes| hex(&bytes)))
                        }),
                        "arrayValue" => {
                            let list: Option<Values<Value>> = members.next_value()?;
                            list.map(|list| Value::List(list.values.0))
                        }
                        "kvlistValue" => members.next_value::<Option<Values<Pair>>>()?.map(map_of),
                        _ => {
                            members.next_value::<IgnoredAny>()?;
                            None
                        }
                    };
                    found = value.or(found);
                }
                Ok(AnyValue(found))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

fn map_of(pairs: Values<Pair>) -> Value {
    Value::Map(pairs.values.0.into_iter().map(|Pair(key, value)| (key, value)).collect())
}

/// A number, a string with a number, or the name of an enum value.
#[derive(Default)]
enum Number {
    Unsigned(u64),
    Signed(i64),
    Double(f64),
    Text(String),
    #[default]
    None,
}

/// Not derived as an untagged enum: that would buffer any value, in many times its bytes, before it
/// examines the type.
impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Kinds;
        impl Visitor<'_> for Kinds {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a text that says one")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(Number::Unsigned(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(Number::Signed(number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
                Ok(Number::Double(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Number, E> {
                Ok(Number::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number::None)
            }
        }
        deserializer.deserialize_any(Kinds)
    }
}

impl Number {
    fn nanos(&self) -> u64 {
        match self {
            Self::Unsigned(nanos) => *nanos,
            Self::Text(text) => text.trim().parse().unwrap_or(0),
            _ => 0,
        }
    }

    fn is_error(&self) -> bool {
        match self {
            Self::Unsigned(code) => *code == 2,
            Self::Text(text) => text == "STATUS_CODE_ERROR" || text == "2",
            _ => false,
        }
    }

    fn integer(self) -> Option<Value> {
        match self {
            Self::Unsigned(number) => i64::try_from(number).ok().map(Value::Integer),
            Self::Signed(number) => Some(Value::Integer(number)),
            Self::Double(number) => Some(Value::Double(number)),
            Self::Text(text) => text.trim().parse().ok().map(Value::Integer),
            Self::None => None,
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "JSON numbers are doubles to every reader of them"
    )]
    fn double(self) -> Option<Value> {
        match self {
            Self::Unsigned(number) => Some(Value::Double(number as f64)),
            Self::Signed(number) => Some(Value::Double(number as f64)),
            Self::Double(number) => Some(Value::Double(number)),
            Self::Text(text) => text.trim().parse().ok().map(Value::Double),
            Self::None => None,
        }
    }
}
