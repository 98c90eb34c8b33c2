//! Formats of results: [`Format`].

use arrow::datatypes::{DataType, Schema};

/// What a column is told to be that has several types, for which most formats have no form.
pub const SEVERAL_TYPES: &str =
    "a value that may have several types: use json_get_str and the like";

/// Whether a value of a schema, or a part of one, may have several types.
pub(crate) fn has_several_types(schema: &Schema) -> bool {
    let is_union = |data_type: &DataType| matches!(data_type, DataType::Union(..));
    schema.flattened_fields().iter().any(|field| is_union(field.data_type()))
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for a terminal.
    Table,
    /// One JSON object a line.
    Json,
    /// One JSON object a line, of any number of rows.
    #[value(name = "jsonl")]
    JsonLines,
    /// Comma-separated values with a head line.
    Csv,
    /// A Parquet file.
    Parquet,
    /// A stream of Arrow IPC, which preserves the column types.
    Arrow,
}

impl Format {
    /// Whether a result in this format is sent while it is computed, and may have any number of rows.
    pub fn is_streamed(self) -> bool {
        !matches!(self, Self::Table | Self::Json)
    }
}
