//! Values as JSON text: what is read of one, and how one is made. Text that is only moved is never parsed into values, so
//! that numbers of any size and all texts stay as they were written.

use std::borrow::Cow;

use weir_event::json;

/// The text of a JSON string. `None` for values of other kinds.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    json::read::<String>(text.as_bytes()).ok().map(Cow::Owned)
}

/// A string, a number or a boolean as text; `None` for null, for blank text, for objects and arrays.
pub(crate) fn scalar(text: &str) -> Option<Cow<'_, str>> {
    let found = match text.as_bytes().first()? {
        b'"' => string(text)?,
        b'{' | b'[' | b'n' => return None,
        _ => Cow::Borrowed(text),
    };
    if found.trim().is_empty() { None } else { Some(found) }
}

/// A whole number, also one in quotes.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let text = scalar(text)?;
    text.trim().parse().ok()
}

/// Text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_quoted(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends text as a JSON string.
pub(crate) fn write_quoted(out: &mut Vec<u8>, text: &str) {
    let is_plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if is_plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(out, text);
    }
}

/// Text of a column without types as a JSON value: a number or a boolean where it is written exactly as JSON writes it,
/// so that `007` and `1e3` stay text.
pub(crate) fn typed(text: &str) -> String {
    let is_same = |value: &str| value == text;
    let is_number = text.parse::<i64>().is_ok_and(|number| is_same(&number.to_string()))
        || (text.contains('.')
            && text.parse::<f64>().is_ok_and(|number| {
                number.is_finite() && number.abs() < 1e15 && is_same(&number.to_string())
            }));
    if is_number || matches!(text, "true" | "false") { text.to_owned() } else { quoted(text) }
}

#[cfg(test)]
mod tests {
    use super::{integer, quoted, scalar, string, typed};

    #[test]
    fn values_are_read_as_written() {
        assert_eq!(string(r#""a\u00e9\"b""#).unwrap(), "aé\"b");
        assert_eq!(string("1"), None);
        assert_eq!(scalar("12345678901234567890123").unwrap(), "12345678901234567890123");
        assert_eq!(scalar("\" \""), None);
        assert_eq!(scalar("null"), None);
        assert_eq!(integer("\"1602611311\""), Some(1_602_611_311));
        assert_eq!(integer("1.5"), None);
        assert_eq!(quoted("a\"\n"), r#""a\"\n""#);
    }

    #[test]
    fn text_is_a_number_only_if_it_is_written_like_one() {
        for (text, expected) in [
            ("1", "1"),
            ("-5", "-5"),
            ("1.5", "1.5"),
            ("007", "\"007\""),
            ("1e3", "\"1e3\""),
            ("+1", "\"+1\""),
            ("1.50", "\"1.50\""),
            ("12345678901234567890", "\"12345678901234567890\""),
            ("true", "true"),
            ("True", "\"True\""),
            ("inf", "\"inf\""),
            ("", "\"\""),
        ] {
            assert_eq!(typed(text), expected, "{text}");
        }
    }
}
