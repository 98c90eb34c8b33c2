//! Parsing of texts as numbers, as functions of plans: [`number`] and [`wide_number`], null for a text that is not a
//! number, and [`checked_number`], which fails instead. [`Number`] defines which texts are numbers.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serde::{Deserialize, Serialize};

use weir_event::number::Number;

/// Digits of [`WIDE`], and how many of them are after the decimal point.
const WIDE_DIGITS: u8 = 38;
const WIDE_SCALE: i8 = 9;

/// 1 in the decimal's scaled representation.
const WIDE_ONE: i128 = 1_000_000_000;

/// The largest scaled value. Numbers out of range are clamped to it.
const WIDE_MAX: i128 = 10_i128.pow(38) - 1;

/// Integers that doubles cannot distinguish, with the fractional digits that properties may have.
const WIDE: DataType = DataType::Decimal128(WIDE_DIGITS, WIDE_SCALE);

/// The name of the function of [`number`] in plans.
pub(crate) const DOUBLE: &str = "number_of_text";

/// The number of a text, as a double; null if it is not a number.
pub fn number(text: Expr) -> Expr {
    of(Kind::Double, text)
}

/// The same, which fails if the text is not a number.
pub(crate) fn checked_number(text: Expr) -> Expr {
    of(Kind::Checked, text)
}

/// The number of a text, for comparisons with integers that doubles cannot distinguish from their neighbours.
pub(crate) fn wide_number(text: Expr) -> Expr {
    of(Kind::Wide, text)
}

/// Whether values of this type are texts.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8)
}

/// Which of the functions it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    Double,
    Checked,
    Wide,
}

fn of(kind: Kind, text: Expr) -> Expr {
    function(kind).call(vec![text])
}

/// Which of the functions `function` is; `None` if none.
pub(crate) fn kind_of(function: &ScalarUDF) -> Option<Kind> {
    function.inner().downcast_ref::<NumberOfText>().map(|own| own.kind)
}

/// One of the functions.
pub(crate) fn function(kind: Kind) -> ScalarUDF {
    let texts = vec![DataType::Utf8View, DataType::Utf8, DataType::LargeUtf8];
    let signature = Signature::uniform(1, texts, Volatility::Immutable);
    ScalarUDF::new_from_impl(NumberOfText { kind, signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberOfText {
    kind: Kind,
    signature: Signature,
}

impl ScalarUDFImpl for NumberOfText {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Double => DOUBLE,
            Kind::Checked => "checked_number_of_text",
            Kind::Wide => "wide_number_of_text",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Double | Kind::Checked => DataType::Float64,
            Kind::Wide => WIDE,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = arguments.args.as_slice() else {
            return Err(DataFusionError::Internal(format!("{} takes one text", self.name())));
        };
        let is_constant = matches!(texts, ColumnarValue::Scalar(_));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let texts = texts.to_array(rows)?;
        let numbers = if let Some(texts) = texts.as_string_view_opt() {
            self.numbers(texts.iter())
        } else if let Some(texts) = texts.as_string_opt::<i32>() {
            self.numbers(texts.iter())
        } else {
            self.numbers(texts.as_string_opt::<i64>().into_iter().flatten())
        }?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
            false => ColumnarValue::Array(numbers),
        })
    }
}

impl NumberOfText {
    fn numbers<'t>(&self, texts: impl Iterator<Item = Option<&'t str>>) -> Result<ArrayRef> {
        let double = |text: &str| Number::of_text(text).map(Number::double);
        Ok(match self.kind {
            Kind::Double => Arc::new(texts.map(|text| double(text?)).collect::<Float64Array>()),
            Kind::Checked => {
                let checked = |text: Option<&str>| {
                    text.map(|text| double(text).ok_or_else(|| none(text))).transpose()
                };
                Arc::new(texts.map(checked).collect::<Result<Float64Array, _>>()?)
            }
            Kind::Wide => {
                let wide = |text: Option<&str>| Number::of_text(text?).map(scaled);
                let numbers = texts.map(wide).collect::<Decimal128Array>();
                Arc::new(numbers.with_precision_and_scale(WIDE_DIGITS, WIDE_SCALE)?)
            }
        })
    }
}

/// The same message as that of a cast.
fn none(text: &str) -> ArrowError {
    ArrowError::CastError(format!("Cannot cast string '{text}' to value of Float64 type"))
}

/// A number in the decimal's scaled representation.
fn scaled(number: Number) -> i128 {
    let own = match number.wide() {
        Some(integer) => integer.saturating_mul(WIDE_ONE),
        None => {
            // Scaled separately, as their product with the scale is not exact as a double.
            let (whole, part) = (number.double().trunc(), number.double().fract());
            #[expect(clippy::cast_possible_truncation, reason = "what is beyond becomes the last")]
            let (whole, part) = (whole as i128, (part * 1e9).round() as i128);
            whole.saturating_mul(WIDE_ONE).saturating_add(part)
        }
    };
    own.clamp(-WIDE_MAX, WIDE_MAX)
}

#[cfg(test)]
mod tests {
    use super::scaled;
    use weir_event::number::Number;

    #[test]
    fn decimals_are_in_the_order_of_their_numbers() {
        for (text, expected) in [
            ("0.5", 500_000_000),
            ("-2", -2_000_000_000),
            (" 9007199254740993 ", 9_007_199_254_740_993_000_000_000),
            ("1e15", 1_000_000_000_000_000_000_000_000),
            ("1e300", super::WIDE_MAX),
            ("-1e300", -super::WIDE_MAX),
            ("170141183460469231731687303715884105727", super::WIDE_MAX),
        ] {
            assert_eq!(Number::of_text(text).map(scaled), Some(expected), "{text}");
        }
    }
}
