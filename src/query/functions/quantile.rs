//! Exact quantiles of lists of numbers: [`quantile`] in plans, and [`function`] in SQL. DataFusion's `percentile_cont`
//! rounds when it interpolates.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Builder, ListBuilder};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::lit;

/// The name of [`function`] in SQL.
pub(crate) const NAME: &str = "quantiles_of_list";

/// The quantile at a level from 0 to 1 of each list of numbers, with linear interpolation; null for a list without
/// numbers.
pub fn quantile(level: f64, lists: Expr) -> Expr {
    let levels = ScalarValue::new_list_nullable(&[ScalarValue::from(level)], &DataType::Float64);
    let values = function().call(vec![lists, lit(ScalarValue::List(levels))]);
    array_element(values, lit(1_i64))
}

/// From a list of numbers and a list of levels, the list of the quantiles at these levels.
pub(crate) fn function() -> ScalarUDF {
    let signature = Signature::exact(vec![list(), list()], Volatility::Immutable);
    ScalarUDF::new_from_impl(Quantiles { signature })
}

fn list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantiles {
    signature: Signature,
}

impl ScalarUDFImpl for Quantiles {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(list())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        values(&arguments.args)
    }
}

fn values(arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(arguments)?;
    let lists: Vec<_> = arrays.iter().filter_map(|array| array.as_list_opt::<i32>()).collect();
    let [numbers, levels] = lists.as_slice() else {
        return Err(DataFusionError::Internal(format!("{NAME} takes two lists")));
    };
    let mut values = ListBuilder::new(Float64Builder::new());
    for (numbers, levels) in numbers.iter().zip(levels.iter()) {
        let mut sorted = floats(numbers.as_ref());
        sorted.sort_unstable_by(f64::total_cmp);
        let levels = floats(levels.as_ref());
        values.append_value(levels.iter().map(|level| at(*level, &sorted)));
    }
    Ok(ColumnarValue::Array(Arc::new(values.finish())))
}

fn floats(list: Option<&ArrayRef>) -> Vec<f64> {
    let floats = list.and_then(|list| list.as_primitive_opt::<Float64Type>());
    floats.into_iter().flat_map(|floats| floats.iter().flatten()).collect()
}

/// The quantile at a level of sorted numbers.
fn at(level: f64, sorted: &[f64]) -> Option<f64> {
    let last = u32::try_from(sorted.len().checked_sub(1)?).ok()?;
    let place = level.clamp(0.0, 1.0) * f64::from(last);
    let low = floor(place);
    let value = *sorted.get(low)?;
    let next = sorted.get(low + 1).copied().unwrap_or(value);
    Some(value + (next - value) * place.fract())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
fn floor(place: f64) -> usize {
    place as usize
}

#[cfg(test)]
mod tests {
    use super::at;

    /// Expected: definition 7 of Hyndman and Fan, the same as ClickHouse's `quantileExactInclusive`.
    #[test]
    fn values_are_linear_between_two_numbers() {
        for (level, sorted, expected) in [
            (0.5, &[][..], None),
            (0.5, &[3.0], Some(3.0)),
            (0.0, &[1.0, 2.0, 4.0], Some(1.0)),
            (1.0, &[1.0, 2.0, 4.0], Some(4.0)),
            (0.5, &[1.0, 2.0, 4.0], Some(2.0)),
            (0.75, &[1.0, 2.0, 4.0], Some(3.0)),
            (0.5, &[10.0, 14.0], Some(12.0)),
            (2.0, &[1.0, 2.0], Some(2.0)),
        ] {
            assert_eq!(at(level, sorted), expected, "{level} of {sorted:?}");
        }
    }
}
