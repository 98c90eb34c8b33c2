//! Normalized text of JSON values other than texts, so that a value that two senders format differently is the same:
//! `["a", "b"]` of Python is `["a","b"]`, and `1.50` is `1.5`, as in filters and in properties of persons.
//!
//! Few values are formatted differently, and only for these the text is inspected a second time.

use arrow::array::AsArray;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;
use serde_json::Value;

use crate::functions::json_last;
use crate::functions::json_last::Step;
use weir_event::json;

/// Number of digits with which any decimal survives conversion to a double and back.
const DIGITS_KEPT: usize = 15;

/// Number of digits with which any integer fits into 64 bits.
const DIGITS_OF_INTEGER: usize = 18;

/// The normalized text of a value that was found in row `row` of `texts` along `path` with the text `found`; `None` if
/// it is the same.
pub(crate) fn otherwise(
    texts: &ColumnarValue,
    path: &[Step<'_>],
    row: usize,
    found: &str,
) -> Option<String> {
    if !may_be_otherwise(found) || json_last::first_byte(text_of(texts, row)?, path)? == b'"' {
        return None;
    }
    let value: Value = json::read(found.as_bytes()).ok()?;
    let written = value.to_string();
    (written != found).then_some(written)
}

fn text_of(texts: &ColumnarValue, row: usize) -> Option<&str> {
    let array = match texts {
        ColumnarValue::Scalar(scalar) => return ScalarValue::try_as_str(scalar).flatten(),
        ColumnarValue::Array(array) => array,
    };
    if row >= array.len() {
        return None;
    }
    if let Some(texts) = array.as_string_view_opt() {
        return Some(texts.value(row));
    }
    match array.as_string_opt::<i32>() {
        Some(texts) => Some(texts.value(row)),
        None => Some(array.as_string_opt::<i64>()?.value(row)),
    }
}

/// Whether a text may be a value other than a text that is not normalized.
fn may_be_otherwise(text: &str) -> bool {
    match text.as_bytes().first() {
        Some(b'{' | b'[') => true,
        Some(b'-' | b'0'..=b'9') => is_unusual(text),
        _ => false,
    }
}

/// Whether it looks like a number that is not normalized, or may be one.
fn is_unusual(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (mut has_point, mut has_exponent) = (false, false);
    let mut before = 0;
    for byte in digits.bytes() {
        match byte {
            b'0'..=b'9' => {}
            b'.' if !has_point && !has_exponent => has_point = true,
            b'e' | b'E' if !has_exponent => has_exponent = true,
            b'+' | b'-' if matches!(before, b'e' | b'E') => {}
            _ => return false,
        }
        before = byte;
    }
    match (has_exponent, has_point) {
        (true, _) => true,
        (false, true) => {
            let ends_in_zero = digits.ends_with('0') && !digits.ends_with(".0");
            ends_in_zero || digits.len() > DIGITS_KEPT || digits.starts_with("0.0000")
        }
        (false, false) => digits.len() > DIGITS_OF_INTEGER || text == "-0",
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::ColumnarValue;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{may_be_otherwise, otherwise};
    use crate::functions::json_last::Step;

    fn written(value: &str) -> Option<String> {
        let text = format!(r#"{{"other": 1, "a": {value}}}"#);
        let texts = ColumnarValue::Scalar(ScalarValue::Utf8(Some(text)));
        // The text with which the function finds the value.
        let found: Value = serde_json::from_str(value).unwrap();
        let found = found.as_str().unwrap_or(value);
        otherwise(&texts, &[Step::Key("a")], 0, found)
    }

    #[test]
    fn values_are_written_in_one_way() {
        for (value, expected) in [
            (r#"["a", "b"]"#, Some(r#"["a","b"]"#)),
            (r#"["a","b"]"#, None),
            (r#"{"b": 1, "a": [1.50]}"#, Some(r#"{"a":[1.5],"b":1}"#)),
            (r#"{"b": 1, "b": 2}"#, Some(r#"{"b":2}"#)),
            (r#"["caf\u00e9"]"#, Some(r#"["café"]"#)),
            ("[ ]", Some("[]")),
            ("1.50", Some("1.5")),
            ("1.2345678E7", Some("12345678.0")),
            ("1E2", Some("100.0")),
            ("-0", Some("-0.0")),
            ("5.0", None),
            ("17", None),
            ("true", None),
            // Texts are left as they were sent.
            (r#""1.50""#, None),
            (r#""[1, 2]""#, None),
            (r#""{ }""#, None),
        ] {
            assert_eq!(written(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn usual_texts_are_not_looked_at() {
        for text in ["", "a", "2026-01-02T10:00:00Z", "1.2.3", "9.99", "1234567890123", "+1", "-x"]
        {
            assert!(!may_be_otherwise(text), "{text}");
        }
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        /// Numbers that are not considered unusual print as they are.
        #[test]
        fn usual_numbers_are_written_as_they_are(text in "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,12})?") {
            let value: Value = serde_json::from_str(&text).unwrap();
            let written = value.to_string();
            prop_assert!(may_be_otherwise(&text) || written == text, "{} {}", text, written);
        }
    }
}
