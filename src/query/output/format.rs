//! Formats of results: [`Format`].

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
