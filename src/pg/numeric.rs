//! Numbers as PostgreSQL writes them: doubles as the shortest text that is read as the same number, and the binary form of
//! `numeric`.

use std::io::Write;

/// Exponents from which on, and below which, a double is written with one: those of PostgreSQL.
const EXPONENT_FROM: i32 = 15;
const EXPONENT_BELOW: i32 = -4;
const REAL_EXPONENT_FROM: i32 = 6;

/// Appends a double.
pub(crate) fn double(value: f64, out: &mut Vec<u8>) {
    shortest(value, &format!("{value:e}"), EXPONENT_FROM, out);
}

/// Appends a double of single precision.
pub(crate) fn real(value: f32, out: &mut Vec<u8>) {
    shortest(f64::from(value), &format!("{value:e}"), REAL_EXPONENT_FROM, out);
}

/// Appends a number of which `text` has the shortest digits, as in `-1.5e-7`.
fn shortest(value: f64, text: &str, exponent_from: i32, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend(b"NaN");
    }
    if value.is_infinite() {
        return out.extend(if value > 0.0 { &b"Infinity"[..] } else { b"-Infinity" });
    }
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent = exponent.parse::<i32>().unwrap_or_default();
    if (EXPONENT_BELOW..exponent_from).contains(&exponent) {
        return plain(digits, exponent, out);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    // Writing to memory does not fail.
    let _ = write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs());
}

/// Appends digits such as `-1.25` times a power of ten, without an exponent.
fn plain(digits: &str, exponent: i32, out: &mut Vec<u8>) {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let all: Vec<u8> = digits.bytes().filter(|byte| *byte != b'.').collect();
    out.extend(sign.bytes());
    match usize::try_from(exponent) {
        Ok(exponent) => {
            let whole = exponent.saturating_add(1);
            let padding = whole.saturating_sub(all.len());
            let (before, after) = all.split_at_checked(whole).unwrap_or((&all, &[]));
            out.extend(before);
            out.extend(std::iter::repeat_n(b'0', padding));
            if !after.is_empty() {
                out.push(b'.');
                out.extend(after);
            }
        }
        Err(_) => {
            let zeros = usize::try_from(exponent.unsigned_abs()).unwrap_or(1).saturating_sub(1);
            out.extend(b"0.");
            out.extend(std::iter::repeat_n(b'0', zeros));
            out.extend(&all);
        }
    }
}

/// Appends the binary form of a decimal number, of which `text` has the digits: digits of base 10,000 with the weight of
/// the first, the sign, and the number of decimal digits behind the point.
pub(crate) fn binary(text: &str, out: &mut Vec<u8>) {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let lead = (4 - whole.len() % 4) % 4;
    let trail = (4 - fraction.len() % 4) % 4;
    let zeros = |count: usize| std::iter::repeat_n(b'0', count);
    let digits = zeros(lead).chain(whole.bytes()).chain(fraction.bytes()).chain(zeros(trail));
    let digits: Vec<u8> = digits.collect();
    let groups = digits.chunks(4).map(|group| {
        group.iter().fold(0_i16, |sum, digit| {
            sum.saturating_mul(10).saturating_add(i16::from(digit.wrapping_sub(b'0')))
        })
    });
    let mut groups: Vec<i16> = groups.collect();
    let weight = (lead.saturating_add(whole.len()) / 4).saturating_sub(1);
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let is_zero = leading == groups.len();
    groups.drain(..leading);
    while groups.last() == Some(&0) {
        groups.pop();
    }
    // The weight may become negative: 0.0001 is one digit of weight -1.
    let weight = match is_zero {
        true => 0,
        false => short(weight).saturating_sub(short(leading)),
    };
    out.extend(short(groups.len()).to_be_bytes());
    out.extend(weight.to_be_bytes());
    let sign: u16 = if is_negative && !is_zero { 0x4000 } else { 0 };
    out.extend(sign.to_be_bytes());
    out.extend(short(fraction.len()).to_be_bytes());
    groups.iter().for_each(|group| out.extend(group.to_be_bytes()));
}

fn short(number: usize) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

/// The decimal text of the binary form; `None` if it is malformed, infinite or too long.
pub(crate) fn from_binary(bytes: &[u8]) -> Option<String> {
    /// Most digits of base 10,000, far more than any number here can have.
    const GROUPS_MAX: usize = 40;
    let mut words = bytes.chunks(2).map(|pair| Some(u16::from_be_bytes(pair.try_into().ok()?)));
    let mut word = || words.next().flatten();
    let (count, weight, sign, scale) = (word()?, word()?, word()?, word()?);
    let weight = i32::from(i16::from_be_bytes(weight.to_be_bytes()));
    let groups: Vec<u16> = words.collect::<Option<_>>()?;
    let is_long = groups.len() > GROUPS_MAX || weight.unsigned_abs() > 40 || scale > 160;
    if groups.len() != usize::from(count) || is_long || groups.iter().any(|group| *group > 9999) {
        return None;
    }
    let group = |place: i32| {
        let at = usize::try_from(weight.checked_sub(place)?).ok()?;
        groups.get(at).copied()
    };
    let mut text = String::new();
    for place in (0..=weight.max(0)).rev() {
        text.push_str(&format!("{:04}", group(place).unwrap_or(0)));
    }
    let whole = text.trim_start_matches('0').to_owned();
    let mut fraction = String::new();
    let last = i32::from(scale.div_ceil(4));
    for place in 1..=last {
        fraction.push_str(&format!("{:04}", group(-place).unwrap_or(0)));
    }
    fraction.truncate(usize::from(scale));
    let sign = match sign {
        0 => "",
        0x4000 => "-",
        _ => return None,
    };
    let whole = if whole.is_empty() { "0" } else { &whole };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::{binary, double, from_binary, real};

    /// Expectations: `SELECT x::float8` of PostgreSQL 15.
    #[test]
    fn doubles_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1.0, "1"),
            (-12.5, "-12.5"),
            (100.0, "100"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e+15"),
            (1.234_567_890_123_456_8e17, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (1e-300, "1e-300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            let mut out = Vec::new();
            double(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        for (value, expected) in [(0.1_f32, "0.1"), (1e6, "1e+06"), (123_456.0, "123456")] {
            let mut out = Vec::new();
            real(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    /// Expectations: `numeric_send` of PostgreSQL 15.
    #[test]
    fn decimals_have_their_binary_form() {
        for (text, words) in [
            ("0", &[0_u16, 0, 0, 0][..]),
            ("0.00", &[0, 0, 0, 2]),
            ("1", &[1, 0, 0, 0, 1]),
            ("-1.5", &[2, 0, 0x4000, 1, 1, 5000]),
            ("10000", &[1, 1, 0, 0, 1]),
            ("12345.6789", &[3, 1, 0, 4, 1, 2345, 6789]),
            ("0.0001", &[1, 0xffff, 0, 4, 1]),
            ("0.00001", &[1, 0xfffe, 0, 5, 1000]),
            ("100000000.5", &[4, 2, 0, 1, 1, 0, 0, 5000]),
        ] {
            let mut out = Vec::new();
            binary(text, &mut out);
            let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(out, expected, "{text}");
            assert_eq!(from_binary(&out).as_deref(), Some(text));
        }
        for odd in [
            &[][..],
            &[0; 7],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0x7f, 0xff, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0xc0, 0, 0, 0],
        ] {
            assert_eq!(from_binary(odd), None, "{odd:?}");
        }
    }
}
