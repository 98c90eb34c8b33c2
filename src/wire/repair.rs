//! Repair of damaged JSON: the slow path for bodies of browsers and Python that the JSON parser rejects.
//!
//! One bad value must not cost a batch of a thousand events. Damage with only one interpretation is
//! repaired in the text. All other damage stays, and the parser rejects the text again.
//!
//! | found | becomes | comes from |
//! |---|---|---|
//! | byte order mark at the start | nothing | Windows tools |
//! | bytes that are not UTF-8 | U+FFFD | names cut in the middle of a character |
//! | `\ud800` to `\udfff` without its partner | `\ufffd` | JavaScript strings cut in the middle of a pair |
//! | a number beyond the range of f64 | `null` | `1e400` from calculators |
//! | `NaN`, `Infinity`, `-Infinity` | `null` | Python's `json.dumps` |
//! | a raw control character inside a string | its escape | hand-written JSON |
//!
//! Numbers out of range become `null`, not the largest number: JavaScript's `JSON.stringify` writes `null`
//! for them, and one such value does not ruin a sum over a property.

use std::borrow::Cow;

/// Bytes that a repair may add to a body of any size, besides twice its size: an invalid byte becomes
/// three, which always fits; a control character becomes up to six. A body full of those is not JSON.
const GROWTH_BYTES: usize = 64 * 1024;

/// Integers shorter than this are within the range of f64, whose largest value has 309 digits.
const DIGITS_IN_RANGE: usize = 300;

/// Returns `body` with all damage repaired. `None` if there is nothing to repair, or the result would be
/// too large. Valid JSON without numbers beyond f64 is never changed.
pub fn repair(body: &[u8]) -> Option<Vec<u8>> {
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let has_mark = text.len() < body.len();
    match String::from_utf8_lossy(text) {
        Cow::Borrowed(text) => match Patcher::new(text, body.len()).run() {
            Outcome::Untouched => has_mark.then(|| text.as_bytes().to_vec()),
            Outcome::Patched(patched) => Some(patched),
            Outcome::Hopeless => None,
        },
        Cow::Owned(text) => match Patcher::new(&text, body.len()).run() {
            Outcome::Untouched => Some(text.into_bytes()),
            Outcome::Patched(patched) => Some(patched),
            Outcome::Hopeless => None,
        },
    }
}

enum Outcome {
    Untouched,
    Patched(Vec<u8>),
    Hopeless,
}

/// Copies the text up to each patch, lazily: a text without damage is only read.
struct Patcher<'text> {
    text: &'text [u8],
    copied: usize,
    patched: Vec<u8>,
    limit_bytes: usize,
}

impl<'text> Patcher<'text> {
    fn new(text: &'text str, body_bytes: usize) -> Self {
        let limit_bytes = body_bytes.saturating_mul(3).saturating_add(GROWTH_BYTES);
        Self { text: text.as_bytes(), copied: 0, patched: Vec::new(), limit_bytes }
    }

    fn run(mut self) -> Outcome {
        let mut at = 0;
        while let Some(byte) = self.text.get(at) {
            at = match byte {
                b'"' => self.string(at + 1),
                b'N' => self.word(at, b"NaN"),
                b'I' => self.word(at, b"Infinity"),
                b'-' if self.rest(at).starts_with(b"-I") => self.word(at, b"-Infinity"),
                b'-' | b'0'..=b'9' => self.number(at),
                _ => at + 1,
            };
            if self.patched.len() > self.limit_bytes {
                return Outcome::Hopeless;
            }
        }
        if self.copied == 0 && self.patched.is_empty() {
            return Outcome::Untouched;
        }
        self.replace(self.text.len(), self.text.len(), b"");
        Outcome::Patched(self.patched)
    }

    fn rest(&self, at: usize) -> &'text [u8] {
        self.text.get(at..).unwrap_or_default()
    }

    fn replace(&mut self, start: usize, end: usize, with: &[u8]) {
        let kept = self.text.get(self.copied..start).unwrap_or_default();
        self.patched.extend_from_slice(kept);
        self.patched.extend_from_slice(with);
        self.copied = end;
    }

    /// Replaces `word` by `null` if it is at `at`; returns the position to continue at.
    fn word(&mut self, at: usize, word: &[u8]) -> usize {
        if !self.rest(at).starts_with(word) {
            return at + 1;
        }
        let end = at + word.len();
        self.replace(at, end, b"null");
        end
    }

    /// Replaces the number at `at` by `null` if it is beyond f64; returns the position after it.
    fn number(&mut self, at: usize) -> usize {
        let rest = self.rest(at);
        let in_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| in_number(byte)).count();
        let end = at + length;
        let number = rest.get(..length).unwrap_or_default();
        let suspect = length >= DIGITS_IN_RANGE || number.iter().any(|b| matches!(b, b'e' | b'E'));
        let value = std::str::from_utf8(number).ok().filter(|_| suspect);
        if value.and_then(|value| value.parse().ok()).is_some_and(f64::is_infinite) {
            self.replace(at, end, b"null");
        }
        end
    }

    /// Repairs the string whose content starts at `at`; returns the position after it.
    fn string(&mut self, mut at: usize) -> usize {
        while let Some(byte) = self.text.get(at) {
            at = match byte {
                b'"' => return at + 1,
                b'\\' => self.escape(at),
                0..0x20 => {
                    self.replace(at, at + 1, escape_of(*byte).as_bytes());
                    at + 1
                }
                _ => at + 1,
            };
            if self.patched.len() > self.limit_bytes {
                return self.text.len();
            }
        }
        at
    }

    /// Repairs the escape that starts at `at`; returns the position after it.
    fn escape(&mut self, at: usize) -> usize {
        match unicode_escape(self.rest(at)) {
            Some(0xD800..=0xDBFF) => {
                let partner = unicode_escape(self.rest(at + 6));
                if partner.is_some_and(|unit| (0xDC00..=0xDFFF).contains(&unit)) {
                    return at + 12;
                }
                self.replace(at, at + 6, br"\ufffd");
                at + 6
            }
            Some(0xDC00..=0xDFFF) => {
                self.replace(at, at + 6, br"\ufffd");
                at + 6
            }
            Some(_) => at + 6,
            None => at + 2,
        }
    }
}

/// The code unit of the `\uXXXX` that `text` begins with.
fn unicode_escape(text: &[u8]) -> Option<u16> {
    let ([b'\\', b'u', digits @ ..], _) = text.split_first_chunk::<6>()? else {
        return None;
    };
    let mut unit = [0; 2];
    hex::decode_to_slice(digits, &mut unit).ok()?;
    Some(u16::from_be_bytes(unit))
}

fn escape_of(control: u8) -> Cow<'static, str> {
    match control {
        b'\n' => Cow::Borrowed(r"\n"),
        b'\r' => Cow::Borrowed(r"\r"),
        b'\t' => Cow::Borrowed(r"\t"),
        _ => Cow::Owned(format!(r"\u{control:04x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn repaired(body: &[u8]) -> String {
        String::from_utf8(repair(body).expect("nothing repaired")).expect("not UTF-8")
    }

    fn check(damaged: impl AsRef<[u8]>, expected: &str) {
        let damaged = damaged.as_ref();
        let text = String::from_utf8_lossy(damaged).into_owned();
        assert_eq!(repaired(damaged), expected, "{text}");
        let mut copy = damaged.to_vec();
        assert!(simd_json::to_tape(&mut copy).is_err(), "the parser takes it as it is: {text}");
        let mut copy = expected.as_bytes().to_vec();
        assert!(simd_json::to_tape(&mut copy).is_ok(), "the parser refuses it still: {expected}");
    }

    #[test]
    fn repairs_what_has_one_reading() {
        check("\u{FEFF}{\"a\":1}", r#"{"a":1}"#);
        check(b"[\"caf\xE9\"]", "[\"caf\u{FFFD}\"]");
        check(
            b"[\"\xF0\x9F\x98\",\"\xED\xA0\x80\"]",
            "[\"\u{FFFD}\",\"\u{FFFD}\u{FFFD}\u{FFFD}\"]",
        );
        check(r#"["\ud83d"]"#, r#"["\ufffd"]"#);
        check(r#"["\uDE00 a"]"#, r#"["\ufffd a"]"#);
        check(r#"["\uD83D\uD83D\ude00"]"#, r#"["\ufffd\uD83D\ude00"]"#);
        check(r#"["\uD83Dx\ude00"]"#, r#"["\ufffdx\ufffd"]"#);
        check(r#"{"\ud800":"\\\udfff"}"#, r#"{"\ufffd":"\\\ufffd"}"#);
        check("[1e400,-1E+999,2]", "[null,null,2]");
        check("[1.7976931348623159e308]", "[null]");
        check("{\"a\":NaN,\"b\":[Infinity,-Infinity,-1]}", "{\"a\":null,\"b\":[null,null,-1]}");
        check("{\"a\":\"x\ny\tz\r\u{1}\"}", r#"{"a":"x\ny\tz\r\u0001"}"#);
        check(format!("[{}]", "9".repeat(400)), "[null]");
    }

    /// Goal: text that only looks like damage is not changed. Expectations: the JSON grammar.
    #[test]
    fn leaves_the_rest_alone() {
        for text in [
            "",
            "{}",
            r#"["NaN","Infinity 1e400","\\ud800","\u0000","\ud83d\ude00","\/"]"#,
            r#"{"NaN":-0.5e10,"a":1e-400,"b":123456789012345678901234567890}"#,
            "[\"\u{1F600}\u{FFFD}\u{7F}\"]",
            "[\n\t1 ,\r 2]",
            // Broken, but not with only one interpretation.
            "{\"a\":01}",
            r#"["\ud8"#,
            r#"["\u+123"]"#,
            "[None]",
            "Name",
            "[Inf]",
            "\"",
            "\"\\",
        ] {
            assert_eq!(repair(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn never_grows_without_bound() {
        let mut body = vec![b'"'];
        body.resize(1_000_000, 1);
        assert_eq!(repair(&body), None);
        // Invalid UTF-8 may triple in size.
        let body = vec![0xFF; 1_000_000];
        assert_eq!(repair(&body).map(|text| text.len()), Some(3_000_000));
    }

    /// JSON as a browser might have written it: any text in keys and strings.
    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The same text with everything outside ASCII escaped, as Python does by default.
    fn escaped(json: &str) -> String {
        let escape = |unit: &u16| match u8::try_from(*unit) {
            Ok(byte) if byte.is_ascii() => String::from(char::from(byte)),
            _ => format!("\\u{unit:04x}"),
        };
        json.encode_utf16().collect::<Vec<_>>().iter().map(escape).collect()
    }

    fn damage() -> impl Strategy<Value = &'static [u8]> {
        prop::sample::select(vec![
            &b"\"\\ud800\""[..],
            b"\"\\uDFFF\\ud900\"",
            b"\"\\uDbFf\\u0041\"",
            b"\"a\xFFb\xC3\"",
            b"\"\xED\xA0\x80\xF4\x90\x80\x80\"",
            b"NaN",
            b"-Infinity",
            b"Infinity",
            b"1e309",
            b"-17E+4000",
            b"\"\x00\x01\x1F\n\"",
            b"{\"\\udc00\x0B\": NaN}",
        ])
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        #[test]
        fn valid_json_is_never_changed(json in json()) {
            let compact = json.to_string();
            prop_assert_eq!(repair(compact.as_bytes()), None);
            prop_assert_eq!(repair(escaped(&compact).as_bytes()), None);
            let pretty = serde_json::to_string_pretty(&json).expect("values serialize");
            prop_assert_eq!(repair(pretty.as_bytes()), None);
        }

        #[test]
        fn damaged_json_parses_after_repair(
            items in prop::collection::vec((json(), damage()), 1..6),
        ) {
            let mut body = Vec::from(b"[");
            for (sound, damaged) in &items {
                body.extend_from_slice(sound.to_string().as_bytes());
                body.push(b',');
                body.extend_from_slice(damaged);
                body.push(b',');
            }
            body.extend_from_slice(b"0]");
            let mut text = repair(&body).expect("there is damage");
            prop_assert_eq!(repair(&text), None, "once is enough");
            // The oracle for what is not damaged: another parser.
            let parsed: Vec<Value> = serde_json::from_slice(&text).expect("serde_json refuses it");
            let expected: Vec<Value> = items
                .iter()
                .map(|(sound, _)| serde_json::from_str(&sound.to_string()).expect("valid"))
                .collect();
            prop_assert_eq!(parsed.iter().step_by(2).take(items.len()).cloned().collect::<Vec<_>>(), expected);
            prop_assert!(simd_json::to_tape(&mut text).is_ok(), "simd-json refuses it");
        }

        #[test]
        fn takes_any_bytes(body in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(text) = repair(&body) {
                prop_assert!(std::str::from_utf8(&text).is_ok());
                prop_assert_eq!(repair(&text), None);
            }
        }

        #[test]
        fn takes_any_mix_of_the_signs_that_matter(
            body in prop::collection::vec(
                prop::sample::select(vec![
                    "\"", "\\", "\\ud800", "\\udc00", "NaN", "Infinity", "-", "1e999", "\n", "{", ",", "u", "I", "N",
                ]),
                0..40,
            ),
        ) {
            if let Some(text) = repair(body.concat().as_bytes()) {
                prop_assert_eq!(repair(&text), None);
            }
        }
    }
}
