//! JSON as SDKs write it, which is not always JSON.
//!
//! Python writes `NaN` and `Infinity`; JavaScript and Python escape half of a surrogate pair when a
//! text was cut in the middle of an emoji; some bodies are not quite UTF-8. One such value must not
//! cost the request: a number that is none becomes null, a broken character U+FFFD. Bodies that are
//! JSON do not pay for that.

use serde_json::Value;

/// Reads a body.
///
/// # Errors
///
/// What is wrong with the body as it was sent, if repairs do not help.
pub fn parse(body: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(body).or_else(|error| {
        let repaired = repaired(&String::from_utf8_lossy(body));
        serde_json::from_str(&repaired).map_err(|_| error)
    })
}

/// Repairs what SDKs are known to send; at most as long as the text, plus a character each.
fn repaired(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        rest = match next {
            '"' => string(rest, &mut out),
            '-' | 'N' | 'I' => number(rest, &mut out),
            other => {
                out.push(other);
                skip(rest, other.len_utf8())
            }
        };
    }
    out
}

/// Replaces a number that is none, and copies one character of anything else.
fn number<'t>(rest: &'t str, out: &mut String) -> &'t str {
    for name in ["NaN", "-Infinity", "Infinity"] {
        if let Some(after) = rest.strip_prefix(name) {
            out.push_str("null");
            return after;
        }
    }
    out.extend(rest.chars().next());
    skip(rest, 1)
}

/// Copies a string literal, whose quote `rest` starts with, and returns what follows it.
fn string<'t>(rest: &'t str, out: &mut String) -> &'t str {
    out.push('"');
    let mut rest = skip(rest, 1);
    while let Some(next) = rest.chars().next() {
        match (next, escaped_unit(rest)) {
            ('"', _) => {
                out.push('"');
                return skip(rest, 1);
            }
            ('\\', Some(0xD800..0xDC00))
                if matches!(escaped_unit(skip(rest, 6)), Some(0xDC00..0xE000)) =>
            {
                out.push_str(rest.get(..12).unwrap_or_default());
                rest = skip(rest, 12);
            }
            ('\\', Some(0xD800..0xE000)) => {
                out.push(char::REPLACEMENT_CHARACTER);
                rest = skip(rest, 6);
            }
            ('\\', _) => {
                let escaped = rest.chars().take(2);
                let length = escaped.clone().map(char::len_utf8).sum();
                out.extend(escaped);
                rest = skip(rest, length);
            }
            (other, _) => {
                out.push(other);
                rest = skip(rest, other.len_utf8());
            }
        }
    }
    rest
}

/// The UTF-16 unit of the `\uXXXX` that the text starts with.
fn escaped_unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::parse;

    #[test]
    fn what_sdks_send_is_read() {
        for (body, expected) in [
            (
                &br#"{"a": NaN, "b": [-Infinity, Infinity, -1]}"#[..],
                json!({"a": null, "b": [null, null, -1]}),
            ),
            (br#"{"a": "NaN \" NaN", "b": NaN}"#, json!({"a": "NaN \" NaN", "b": null})),
            (br#"["\ud83d", "x\ude00y", "\ud83d\ude00"]"#, json!(["\u{FFFD}", "x\u{FFFD}y", "😀"])),
            (br#"["\ud83d\u0041", "\\ud83d"]"#, json!(["\u{FFFD}A", "\\ud83d"])),
            (b"[\"a\xffb\"]", json!(["a\u{FFFD}b"])),
            (b"[18446744073709551616]", json!([1.8446744073709552e19])),
            ("[\"ü\", NaN]".as_bytes(), json!(["ü", null])),
        ] {
            assert_eq!(parse(body).expect("repaired"), expected);
        }
    }

    #[test]
    fn what_cannot_be_repaired_is_refused() {
        let deep = "[".repeat(200);
        for body in ["", "{", "nope", "{\"a\": \"", "[\"\\", "[\"\\u12", "[Nan]", "NaN,", &deep] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
