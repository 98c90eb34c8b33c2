//! Answers as text: JSON rows, CSV, tables. Knows record batches, not what they mean.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::DataType;
use arrow::datatypes::Field;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json;
use arrow::util::pretty::pretty_format_batches_with_schema;
use parquet::arrow::ArrowWriter;

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
    serde_json::from_slice(&text).map_err(|error| ArrowError::JsonError(error.to_string()))
}
