//! Parser for `ExportTraceServiceRequest` in protobuf, for the fields that are needed. Field numbers are those
//! of `opentelemetry/proto` 1.x; unknown fields are skipped.

use crate::otlp::mapping::is_of_ai;
use crate::otlp::spans::{Attributes, DEPTH_MAX, Resource, Room, Scope, Span, Value, hex};

/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// One field of a message.
enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// A field of 32 bits; none of the parsed fields is one.
    Other,
}

/// Calls `see` with each field of a message and its number. `None` if the message is malformed.
fn each<'a>(mut rest: &'a [u8], mut see: impl FnMut(u64, Field<'a>) -> Option<()>) -> Option<()> {
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let field = match tag & 7 {
            0 => Field::Varint(varint(&mut rest)?),
            1 => {
                let (bytes, tail) = rest.split_first_chunk()?;
                rest = tail;
                Field::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (bytes, tail) = rest.split_at_checked(length)?;
                rest = tail;
                Field::Bytes(bytes)
            }
            5 => {
                rest = rest.get(4..)?;
                Field::Other
            }
            _ => return None,
        };
        see(tag >> 3, field)?;
    }
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Applies `one` to each message in field 1 and collects the results; an inner `None` is left out.
fn repeated<'a, T>(
    bytes: &'a [u8],
    mut one: impl FnMut(&'a [u8]) -> Option<Option<T>>,
) -> Option<Vec<T>> {
    let mut items = Vec::new();
    each(bytes, |number, field| {
        if let (1, Field::Bytes(bytes)) = (number, field) {
            items.extend(one(bytes)?);
        }
        Some(())
    })?;
    // A vector starts with capacity 4, and a message may have one in each of its lists.
    items.shrink_to_fit();
    Some(items)
}

/// Parses a request; `None` if it is malformed, or has more spans than the limit.
pub(super) fn read(body: &[u8], room: &mut Room) -> Option<Vec<Resource>> {
    repeated(body, |bytes| {
        let resource = resource_spans(bytes, room)?;
        Some(Some(resource).filter(|resource| !resource.scopes.is_empty()))
    })
}

fn resource_spans(bytes: &[u8], room: &mut Room) -> Option<Resource> {
    let mut resource = Resource::default();
    each(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => each(bytes, |number, field| match (number, field) {
                (1, Field::Bytes(bytes)) => attribute(&mut resource.attributes, bytes),
                _ => Some(()),
            })?,
            (2, Field::Bytes(bytes)) => {
                let scope = scope_spans(bytes, room)?;
                if !scope.spans.is_empty() {
                    resource.scopes.push(scope);
                }
            }
            _ => {}
        }
        Some(())
    })?;
    resource.attributes.0.shrink_to_fit();
    resource.scopes.shrink_to_fit();
    Some(resource)
}

fn scope_spans(bytes: &[u8], room: &mut Room) -> Option<Scope> {
    let mut scope = Scope::default();
    each(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => each(bytes, |number, field| {
                if let (2, Field::Bytes(bytes)) = (number, field) {
                    scope.version = text(bytes);
                }
                Some(())
            })?,
            (2, Field::Bytes(bytes)) => {
                let span = span(bytes)?;
                if is_of_ai(&span.attributes) {
                    room.take()?;
                    scope.spans.push(span);
                }
            }
            _ => {}
        }
        Some(())
    })?;
    scope.spans.shrink_to_fit();
    Some(scope)
}

fn span(bytes: &[u8]) -> Option<Span> {
    let mut span = Span::default();
    each(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => span.trace_id = hex(bytes),
            (2, Field::Bytes(bytes)) => span.span_id = hex(bytes),
            (4, Field::Bytes(bytes)) => span.parent_span_id = hex(bytes),
            (5, Field::Bytes(bytes)) => span.name = text(bytes),
            (7, Field::Fixed64(nanos)) => span.start_nanos = nanos,
            (8, Field::Fixed64(nanos)) => span.end_nanos = nanos,
            (9, Field::Bytes(bytes)) => attribute(&mut span.attributes, bytes)?,
            (11, Field::Bytes(bytes)) => {
                let (name, attributes) = event(bytes)?;
                span.note_event(&name, attributes);
            }
            (15, Field::Bytes(bytes)) => each(bytes, |number, field| {
                match (number, field) {
                    (2, Field::Bytes(bytes)) => span.status_message = text(bytes),
                    (3, Field::Varint(code)) => span.is_error = code == ERROR,
                    _ => {}
                }
                Some(())
            })?,
            _ => {}
        }
        Some(())
    })?;
    span.attributes.0.shrink_to_fit();
    Some(span)
}

fn event(bytes: &[u8]) -> Option<(String, Attributes)> {
    let (mut name, mut attributes) = (String::new(), Attributes::default());
    each(bytes, |number, field| {
        match (number, field) {
            (2, Field::Bytes(bytes)) => name = text(bytes),
            (3, Field::Bytes(bytes)) => attribute(&mut attributes, bytes)?,
            _ => {}
        }
        Some(())
    })?;
    attributes.0.shrink_to_fit();
    Some((name, attributes))
}

fn attribute(attributes: &mut Attributes, bytes: &[u8]) -> Option<()> {
    let (key, value) = key_value(bytes, DEPTH_MAX)?;
    attributes.add(key, value);
    Some(())
}

fn key_value(bytes: &[u8], levels: usize) -> Option<(String, Option<Value>)> {
    let (mut key, mut found) = (String::new(), None);
    each(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(bytes)) => key = text(bytes),
            (2, Field::Bytes(bytes)) => found = value(bytes, levels)?,
            _ => {}
        }
        Some(())
    })?;
    Some((key, found))
}

/// The outer `None` is a malformed message, the inner one an absent value.
fn value(bytes: &[u8], levels: usize) -> Option<Option<Value>> {
    let mut found = None;
    each(bytes, |number, field| {
        found = match (number, field) {
            (1, Field::Bytes(bytes)) => Some(Value::Text(text(bytes))),
            (2, Field::Varint(truth)) => Some(Value::Boolean(truth != 0)),
            (3, Field::Varint(number)) => Some(Value::Integer(number.cast_signed())),
            (4, Field::Fixed64(bits)) => Some(Value::Double(f64::from_bits(bits))),
            (5 | 6, Field::Bytes(_)) if levels == 0 => None,
            (5, Field::Bytes(bytes)) => {
                Some(Value::List(repeated(bytes, |bytes| value(bytes, levels - 1))?))
            }
            (6, Field::Bytes(bytes)) => Some(Value::Map(repeated(bytes, |bytes| {
                let (key, value) = key_value(bytes, levels - 1)?;
                Some(value.map(|value| (key, value)))
            })?)),
            (7, Field::Bytes(bytes)) => Some(Value::Text(hex(bytes))),
            _ => return Some(()),
        };
        Some(())
    })?;
    Some(found)
}

/// An `ExportTraceServiceResponse` with a `partial_success`.
pub(super) fn partial_success(rejected: u64, message: &str) -> Vec<u8> {
    let mut inner = vec![0x08];
    put_varint(&mut inner, rejected);
    put_bytes(&mut inner, 0x12, message.as_bytes());
    let mut outer = Vec::new();
    put_bytes(&mut outer, 0x0a, &inner);
    outer
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(0));
    out.extend(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = (value & 0x7f).to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}
