//! Appends numbers, uuids and times to JSON text. Nothing here escapes; texts that need it are
//! escaped once, when the vocabulary is built.
//!
//! # Why
//!
//! Events are written as text and not built as a tree of values, because the load generator
//! shares the machine with the server that it measures.

use chrono::{Datelike, Timelike};
use uuid::Uuid;

use crate::synth::random::Random;
use weir_base::clock::UnixMicros;

/// Digits of the largest `u64`.
const DIGITS_MAX: usize = 20;

pub(super) fn raw(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn number(out: &mut Vec<u8>, value: u64) {
    padded(out, value, 1);
}

/// `value` padded with leading zeros to `width` digits.
pub(super) fn padded(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let mut digits = [b'0'; DIGITS_MAX];
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        if value == 0 && used >= width {
            break;
        }
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        used += 1;
    }
    out.extend_from_slice(digits.get(DIGITS_MAX - used..).unwrap_or_default());
}

pub(super) fn uuid(out: &mut Vec<u8>, value: Uuid) {
    let mut buffer = Uuid::encode_buffer();
    raw(out, value.hyphenated().encode_lower(&mut buffer));
}

/// `2026-11-21T08:00:00.123Z`, the form of JavaScript's `toISOString`.
pub(super) fn iso_time(out: &mut Vec<u8>, time: UnixMicros) {
    let time = time.to_datetime();
    padded(out, u64::try_from(time.year()).unwrap_or(0), 4);
    for (separator, value) in [
        ("-", time.month()),
        ("-", time.day()),
        ("T", time.hour()),
        (":", time.minute()),
        (":", time.second()),
    ] {
        raw(out, separator);
        padded(out, u64::from(value), 2);
    }
    raw(out, ".");
    padded(out, u64::from(time.timestamp_subsec_millis()), 3);
    raw(out, "Z");
}

/// Seconds with three decimals, as posthog-js writes `$time`.
pub(super) fn seconds(out: &mut Vec<u8>, time: UnixMicros) {
    let millis = u64::try_from(time.0 / 1_000).unwrap_or(0);
    number(out, millis / 1_000);
    raw(out, ".");
    padded(out, millis % 1_000, 3);
}

/// Sixteen letters and digits, as posthog-js writes `$insert_id`.
pub(super) fn letters(out: &mut Vec<u8>, random: &mut Random) {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    for _ in 0..2 {
        let mut bits = random.next();
        for _ in 0..8 {
            let place = usize::try_from(bits % 32).unwrap_or(0);
            out.push(ALPHABET.get(place).copied().unwrap_or(b'0'));
            bits >>= 5;
        }
    }
}

/// `text` as a JSON string, quotes included.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::{iso_time, number, padded, seconds};
    use weir_base::clock::UnixMicros;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        for value in [0, 1, 9, 10, 12_345, u64::MAX] {
            assert_eq!(text(|out| number(out, value)), value.to_string());
            assert_eq!(text(|out| padded(out, value, 3)), format!("{value:03}"));
        }
    }

    /// Expected texts: `new Date(ms).toISOString()` of Node.
    #[test]
    fn times_are_those_of_javascript() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_795_248_000_123, "2026-11-21T08:00:00.123Z"),
        ] {
            assert_eq!(text(|out| iso_time(out, UnixMicros(millis * 1_000))), expected);
        }
        assert_eq!(text(|out| seconds(out, UnixMicros(1_795_248_000_023_000))), "1795248000.023");
    }
}
