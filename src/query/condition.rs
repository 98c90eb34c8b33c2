//! A rule of ours as a condition of a plan: [`condition`].

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::BooleanArray;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::Volatility;
use datafusion::logical_expr::create_udf;
use datafusion::prelude::ident;

/// The condition that `test` gives true for the values of `columns`, which have these types; each
/// call is for some rows. Its `name` is what a plan shows of it.
pub fn condition(
    name: &str,
    columns: &[(&str, DataType)],
    test: impl Fn(&[ArrayRef]) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    let invoke = move |arguments: &[ColumnarValue]| {
        let is_constant = arguments.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let answers = test(&ColumnarValue::values_to_arrays(arguments)?)?;
        // What a file's bounds show to be the same for all its rows may come as one value.
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?),
            false => ColumnarValue::Array(Arc::new(answers)),
        })
    };
    let types = columns.iter().map(|(_, data_type)| data_type.clone()).collect();
    let function =
        create_udf(name, types, DataType::Boolean, Volatility::Immutable, Arc::new(invoke));
    function.call(columns.iter().map(|(name, _)| ident(*name)).collect())
}
