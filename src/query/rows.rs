//! Answers as text: JSON rows, CSV, tables. Knows record batches, not what they mean.

use std::io::Write;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::AsArray;
use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::DataType;
use arrow::datatypes::Field;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json;
use arrow::util::display::ArrayFormatter;
use arrow::util::display::FormatOptions;
use arrow::util::pretty::pretty_format_batches_with_schema;
use parquet::arrow::ArrowWriter;

use crate::event::json::restore;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for a terminal.
    Table,
    /// One JSON object a line.
    Json,
    /// Comma-separated values with a head line.
    Csv,
    /// A Parquet file.
    Parquet,
}

/// Bytes that a value other than text or a list takes, about.
const PLAIN_BYTES: usize = 24;

/// Times that a table is in memory while it is aligned, about.
const TABLE_COPIES: usize = 4;

/// How much an answer takes as text, about: the sum of its values; of a table, whose columns are as
/// wide as their widest value, the whole area.
#[derive(Debug, Default)]
pub struct Size {
    rows: usize,
    bytes: usize,
    widest: Vec<usize>,
}

impl Size {
    /// Adds a batch; all have the same columns.
    pub fn add(&mut self, batch: &RecordBatch) {
        self.rows = self.rows.saturating_add(batch.num_rows());
        self.widest.resize(batch.num_columns(), 0);
        for (column, widest) in batch.columns().iter().zip(&mut self.widest) {
            let (sum, max) = measure(column);
            self.bytes = self.bytes.saturating_add(sum);
            *widest = max.max(*widest);
        }
    }

    /// Rows of all batches.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the answer in `format`.
    pub fn bytes(&self, format: Format) -> usize {
        match format {
            Format::Table => {
                let width = self.widest.iter().fold(0, |sum: usize, own| sum.saturating_add(*own));
                self.rows.saturating_mul(width).saturating_mul(TABLE_COPIES)
            }
            Format::Json | Format::Csv | Format::Parquet => self.bytes,
        }
    }
}

/// Bytes of all values of a column together, and of the widest.
fn measure(column: &ArrayRef) -> (usize, usize) {
    fn texts<'v>(values: impl Iterator<Item = Option<&'v str>>) -> (usize, usize) {
        values.flatten().fold((0, 0), |(sum, max): (usize, usize), text| {
            (sum.saturating_add(text.len()), max.max(text.len()))
        })
    }
    if let Some(values) = column.as_string_view_opt() {
        texts(values.iter())
    } else if let Some(values) = column.as_string_opt::<i32>() {
        texts(values.iter())
    } else if let Some(values) = column.as_string_opt::<i64>() {
        texts(values.iter())
    } else if column.data_type().is_nested() {
        let options = FormatOptions::default();
        let Ok(shown) = ArrayFormatter::try_new(column, &options) else {
            let bytes = column.get_array_memory_size();
            return (bytes, bytes);
        };
        (0..column.len()).fold((0, 0), |(sum, max): (usize, usize), row| {
            let length = shown.value(row).try_to_string().map_or(0, |text| text.len());
            (sum.saturating_add(length), max.max(length))
        })
    } else {
        (column.len().saturating_mul(PLAIN_BYTES), PLAIN_BYTES)
    }
}

/// Writes `batches` of `schema` to `out`.
///
/// # Errors
///
/// Writing fails, or a type has no form in `format`.
pub fn write(
    format: Format,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    mut out: impl Write + Send,
) -> Result<(), ArrowError> {
    match format {
        Format::Table => {
            let table = pretty_format_batches_with_schema(SchemaRef::clone(schema), batches)?;
            writeln!(out, "{table}").map_err(|error| ArrowError::IoError(error.to_string(), error))
        }
        Format::Json => {
            let batches: Vec<&RecordBatch> = batches.iter().collect();
            let mut writer = json::WriterBuilder::new()
                .with_explicit_nulls(true)
                .build::<_, json::writer::LineDelimited>(out);
            writer.write_batches(&batches)?;
            writer.finish()
        }
        Format::Csv => {
            let mut writer = csv::Writer::new(out);
            if batches.is_empty() {
                return writer.write(&RecordBatch::new_empty(SchemaRef::clone(schema)));
            }
            batches.iter().try_for_each(|batch| writer.write(batch))
        }
        // The writer would panic.
        Format::Parquet if schema.flattened_fields().iter().any(|field| is_union(field)) => {
            let what = "a value that may have several types: use json_get_str and the like";
            Err(ArrowError::NotYetImplemented(what.to_owned()))
        }
        Format::Parquet => {
            let mut writer = ArrowWriter::try_new(out, SchemaRef::clone(schema), None)?;
            for batch in batches {
                writer.write(batch)?;
            }
            writer.close()?;
            Ok(())
        }
    }
}

fn is_union(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Union(..))
}

/// The rows of `batches` as JSON objects. For answers of a bounded number of rows.
///
/// # Errors
///
/// A type has no form in JSON.
pub fn json_rows(
    batches: &[RecordBatch],
) -> Result<Vec<serde_json::Map<String, serde_json::Value>>, ArrowError> {
    let mut writer = json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, json::writer::JsonArray>(Vec::new());
    writer.write_batches(&batches.iter().collect::<Vec<_>>())?;
    writer.finish()?;
    let text = writer.into_inner();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    restore(&text).map_err(|error| ArrowError::JsonError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use arrow::array::Int64Array;
    use arrow::array::ListArray;
    use arrow::array::RecordBatch;
    use arrow::array::StringArray;
    use arrow::array::StringViewArray;
    use arrow::datatypes::Int64Type;

    use super::Format;
    use super::PLAIN_BYTES;
    use super::Size;
    use super::TABLE_COPIES;

    #[test]
    fn a_table_is_as_wide_as_its_widest_values() {
        let batch = |texts: [Option<&str>; 2]| {
            let text: ArrayRef = Arc::new(StringArray::from_iter(texts));
            let view: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
            let number: ArrayRef = Arc::new(Int64Array::from_iter([1, 2]));
            let lists = [Some(vec![Some(1), Some(2)]), None];
            let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
            let columns = [("text", text), ("view", view), ("number", number), ("list", list)];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let mut size = Size::default();
        size.add(&batch([Some("four"), None]));
        size.add(&batch([Some("a"), Some("seventeen letters")]));
        assert_eq!(size.rows(), 4);
        let list = "[1, 2]".len();
        let values = 2 * (4 + 1 + 17) + 4 * PLAIN_BYTES + 2 * list;
        for format in [Format::Json, Format::Csv, Format::Parquet] {
            assert_eq!(size.bytes(format), values, "{format:?}");
        }
        assert_eq!(size.bytes(Format::Table), TABLE_COPIES * 4 * (17 + 17 + PLAIN_BYTES + list));
    }
}
