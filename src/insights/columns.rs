//! Conversions between Rust values and plans: literals, and texts from result columns.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, lit};

use weir_base::clock::UnixMicros;

/// A timestamp literal.
pub fn time(at: UnixMicros) -> Expr {
    lit(ScalarValue::TimestampMicrosecond(Some(at.0), Some("UTC".into())))
}

/// The texts of a column, with null as the empty text; empty if there is no such column.
pub fn texts(batch: &RecordBatch, name: &str) -> Vec<String> {
    let texts = |column: &ArrayRef| {
        let column = arrow::compute::cast(column, &DataType::Utf8View).ok()?;
        let texts = column.as_string_view();
        Some(texts.iter().map(|text| text.unwrap_or_default().to_owned()).collect())
    };
    batch.column_by_name(name).and_then(texts).unwrap_or_default()
}

/// The text in a row of the column at index `place`.
pub(crate) fn text((batch, row): (&RecordBatch, usize), place: Option<usize>) -> Option<&str> {
    let column = batch.columns().get(place?).filter(|column| column.is_valid(row))?;
    let plain = || Some(column.as_string_opt::<i32>()?.value(row));
    column.as_string_view_opt().map(|texts| texts.value(row)).or_else(plain)
}
