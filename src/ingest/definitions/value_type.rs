//! Type detection for property definitions: from a key and one value. Pure.
//!
//! The types are for people who build filters, so the likely type counts: a string that looks like a
//! date is a date. Strings of digits stay strings.

use chrono::DateTime;

use crate::tape;
use weir_base::clock::UnixMicros;
use weir_metadata::properties::ValueType;

/// Age up to which a whole number counts as a time, if the key indicates one: half a year, in seconds.
const RECENT_SECONDS: i64 = 15_768_000;

/// Parts of a key that indicate a time.
const TIME_WORDS: [&str; 6] = ["time", "date", "_at", "-at", "createdat", "updatedat"];

/// The part of a value that its type depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape<'v> {
    /// Text.
    Text(&'v str),
    /// A whole number, not negative.
    Whole(u64),
    /// Any other number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`, an object or an array: no type.
    Other,
}

impl<'v> From<tape::Value<'v>> for Shape<'v> {
    fn from(value: tape::Value<'v>) -> Self {
        match value {
            tape::Value::String(text) => Self::Text(text),
            tape::Value::Integer(number) => u64::try_from(number).map_or(Self::Number, Self::Whole),
            tape::Value::Number(_) => Self::Number,
            tape::Value::Boolean(_) => Self::Boolean,
            tape::Value::Null | tape::Value::Container { .. } => Self::Other,
        }
    }
}

impl<'v> From<&'v serde_json::Value> for Shape<'v> {
    fn from(value: &'v serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::String(text) => Self::Text(text),
            Value::Number(number) => number.as_u64().map_or(Self::Number, Self::Whole),
            Value::Bool(_) => Self::Boolean,
            Value::Null | Value::Array(_) | Value::Object(_) => Self::Other,
        }
    }
}

/// The type of a value under `key`, as of `now`; `None` if the value has none.
pub fn detect(key: &str, value: Shape<'_>, now: UnixMicros) -> Option<ValueType> {
    if is_always_text(key) {
        return Some(ValueType::String);
    }
    Some(match value {
        Shape::Text(text) => match text.trim() {
            "true" | "false" | "TRUE" | "FALSE" => ValueType::Boolean,
            text if is_likely_date(text) => ValueType::DateTime,
            _ => ValueType::String,
        },
        Shape::Whole(number) if is_recent(number, now) && names_time(key) => ValueType::DateTime,
        Shape::Whole(_) | Shape::Number => ValueType::Numeric,
        Shape::Boolean => ValueType::Boolean,
        Shape::Other => return None,
    })
}

/// Keys whose first value is often misleading: campaigns with a number as name, flags that are off at
/// first.
fn is_always_text(key: &str) -> bool {
    let starts = |prefix: &str| {
        key.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    starts("utm_")
        || key.starts_with('$')
            && (starts("$initial_utm_")
                || starts("$feature/")
                || key.eq_ignore_ascii_case("$feature_flag_response")
                || starts("$survey_response"))
}

/// Whether `number`, as seconds since 1970, is at most half a year ago. Milliseconds are far in the
/// future as seconds, and so count as times as well.
fn is_recent(number: u64, now: UnixMicros) -> bool {
    let since = now.0 / 1_000_000 - RECENT_SECONDS;
    i64::try_from(number).map_or(true, |number| number >= since)
}

fn names_time(key: &str) -> bool {
    let key = key.as_bytes();
    TIME_WORDS
        .iter()
        .any(|word| key.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes())))
}

/// RFC 3339, RFC 2822, or text that begins with a numeric date, alone or followed by a time.
fn is_likely_date(text: &str) -> bool {
    match text.as_bytes() {
        [b'0'..=b'9', ..] => {
            begins_with_date(text.as_bytes())
                || DateTime::parse_from_rfc3339(text).is_ok()
                || DateTime::parse_from_rfc2822(text).is_ok()
        }
        // RFC 2822 with a day of the week.
        [_, _, _, b',', ..] => DateTime::parse_from_rfc2822(text).is_ok(),
        _ => false,
    }
}

/// `2026-11-21` or `21/11/2026`, alone or followed by a time of day and anything on the same line.
/// The digits are not checked any further.
fn begins_with_date(text: &[u8]) -> bool {
    let rest = after(text, b"9999/29/39").or_else(|| after(text, b"29/39/9999"));
    let Some(rest) = rest else { return false };
    rest.is_empty() || after(rest, b" 29:69:69").is_some_and(|rest| !rest.contains(&b'\n'))
}

/// The rest of `text` after a prefix of this form. In `form` a digit matches all digits up to it, `/`
/// matches `-` too, and a space matches `T` too.
fn after<'t>(text: &'t [u8], form: &[u8]) -> Option<&'t [u8]> {
    let (start, rest) = text.split_at_checked(form.len())?;
    let fits = |(byte, place): (&u8, &u8)| match place {
        b'/' => matches!(byte, b'/' | b'-'),
        b' ' => matches!(byte, b' ' | b'T'),
        b':' => *byte == b':',
        largest => (b'0'..=*largest).contains(byte),
    };
    start.iter().zip(form).all(fits).then_some(rest)
}
