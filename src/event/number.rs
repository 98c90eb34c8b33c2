//! The number that a property value represents: [`Number`]. Filters, insights and SQL all use it, so that a value is
//! the same number in all of them, or none.
//!
//! A text is a number if it is written in decimal digits, with or without blanks around it. Values without a finite
//! double, such as `NaN`, `Infinity` or `1e400`, are not numbers: one such event would determine the sum of all.
//!
//! Doubles cannot distinguish integers from 2^53 on from their neighbours, and ids are such integers, so these are
//! compared as they are written.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first integer that has the same double as a neighbour.
pub const WIDE_FROM: u64 = 1 << 53;

/// A finite number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Number {
    double: f64,
    /// The exact integer, if its double is also that of other integers.
    wide: Option<i128>,
}

impl Number {
    /// The number that a text represents.
    pub fn of_text(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        let number = Self::of_double(text.parse().ok()?)?;
        Some(Self { wide: number.is_wide().then(|| text.parse().ok()).flatten(), ..number })
    }

    /// The number that a JSON value represents: a number, or a text.
    pub fn of_value(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => {
                let integer = || {
                    let unsigned = || number.as_u64().map(i128::from);
                    number.as_i64().map(i128::from).or_else(unsigned)
                };
                let number = Self::of_double(number.as_f64()?)?;
                Some(Self { wide: number.is_wide().then(integer).flatten(), ..number })
            }
            Value::String(text) => Self::of_text(text),
            _ => None,
        }
    }

    /// The number as in flags, for which SDKs compute the same values: a double, and for a text only one without
    /// blanks.
    pub fn of_flag(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Self::of_double(number.as_f64()?),
            Value::String(text) => Self::of_double(text.parse().ok()?),
            _ => None,
        }
    }

    fn of_double(double: f64) -> Option<Self> {
        double.is_finite().then_some(Self { double, wide: None })
    }

    /// The nearest double.
    pub fn double(self) -> f64 {
        self.double
    }

    /// The exact integer, if its double is also that of other integers.
    pub fn wide(self) -> Option<i128> {
        self.wide
    }

    /// Whether its double is also that of neighbouring integers.
    pub fn is_wide(self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a power of two")]
        let from = WIDE_FROM as f64;
        self.double.abs() >= from
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.wide, other.wide) {
            (Some(own), Some(other)) => Some(own.cmp(&other)),
            (Some(own), None) => Some(compared(own, other.double)),
            (None, Some(other)) => Some(compared(other, self.double).reverse()),
            (None, None) => self.double.partial_cmp(&other.double),
        }
    }
}

/// Compares an integer with a double that is not such an integer, or is beyond them, too.
fn compared(integer: i128, double: f64) -> Ordering {
    let floor = double.floor();
    #[expect(clippy::cast_possible_truncation, reason = "what is beyond becomes the last one")]
    let whole = floor as i128;
    integer.cmp(&whole).then(if floor < double { Ordering::Less } else { Ordering::Equal })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Number;

    #[test]
    fn values_are_numbers_by_one_rule() {
        for (value, of_query, of_flag) in [
            (json!(5), Some(5.0), Some(5.0)),
            (json!(-0.5), Some(-0.5), Some(-0.5)),
            (json!("5"), Some(5.0), Some(5.0)),
            (json!("+7"), Some(7.0), Some(7.0)),
            (json!(".5"), Some(0.5), Some(0.5)),
            (json!("5."), Some(5.0), Some(5.0)),
            (json!("1e3"), Some(1000.0), Some(1000.0)),
            (json!(" 5 "), Some(5.0), None),
            (json!("\t5\n"), Some(5.0), None),
            (json!("\u{a0}5"), None, None),
            (json!("NaN"), None, None),
            (json!("nan"), None, None),
            (json!("Infinity"), None, None),
            (json!("-inf"), None, None),
            (json!("1e400"), None, None),
            (json!("0x1f"), None, None),
            (json!("1_000"), None, None),
            (json!("1,5"), None, None),
            (json!(""), None, None),
            (json!(" "), None, None),
            (json!("5 5"), None, None),
            (json!(true), None, None),
            (json!(null), None, None),
            (json!([5]), None, None),
        ] {
            let double = |number: Option<Number>| number.map(Number::double);
            assert_eq!(double(Number::of_value(&value)), of_query, "{value}");
            assert_eq!(double(Number::of_flag(&value)), of_flag, "{value}");
        }
    }

    #[test]
    fn integers_are_compared_as_they_are_written() {
        // Each is greater than those before it.
        let ascending = [
            json!(i64::MIN),
            json!("-9007199254740993"),
            json!(-9_007_199_254_740_992_i64),
            json!(0.5),
            json!(9_007_199_254_740_991_u64),
            json!(9_007_199_254_740_992_u64),
            json!(" 9007199254740993 "),
            json!(9_007_199_254_740_994_u64),
            json!(u64::MAX),
            json!("18446744073709551616"),
            json!("123456789012345678901"),
            json!(1e30),
        ];
        let numbers: Vec<Number> = ascending.iter().filter_map(Number::of_value).collect();
        assert_eq!(numbers.len(), ascending.len());
        for (at, left) in numbers.iter().enumerate() {
            for (other, right) in numbers.iter().enumerate() {
                assert_eq!(left.partial_cmp(right), at.partial_cmp(&other), "{left:?} {right:?}");
            }
        }
        // As a double it equals the integer before it.
        let wide = json!(9_007_199_254_740_993_u64);
        assert_eq!(Number::of_flag(&wide), Number::of_value(&json!(9_007_199_254_740_992_u64)));
    }
}
