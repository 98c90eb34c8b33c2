//! Rows on their way from a file to whoever takes them.

use std::ops::ControlFlow;

use csv::StringRecord;

use crate::read::columns::Columns;
use crate::refusal::{Cause, ReadError, Refusal};

/// Longest row; longer ones are refused, and skipped where the format has a way to find the next one.
pub const ROW_MAX_BYTES: usize = 16 << 20;
/// What is kept of a row that is too long.
const TOO_LONG_KEPT_BYTES: usize = 64 << 10;

/// A row of a file.
#[derive(Debug)]
pub enum Row<'a> {
    /// The text of a JSON value.
    Json(&'a str),
    /// A record of a CSV file with the names of its columns.
    Record(&'a [String], &'a StringRecord),
    /// A row of a Parquet file, for sources that read columns.
    Columns(&'a Columns, usize),
    /// One that cannot be read, as far as it is kept.
    Unreadable(&'a [u8], Refusal),
}

/// Where a row is.
#[derive(Clone, Copy, Debug)]
pub struct RowLocation<'a> {
    /// The member of an archive; empty outside of one.
    pub member: &'a str,
    /// Its number in the file, from 1, members of an archive taken together.
    pub row: u64,
    /// Its line, from 1, in formats that have lines.
    pub line: Option<u64>,
}

/// The formats that a source is exported in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formats {
    /// JSON: lines, arrays, answers of an API; or Parquet.
    Json,
    /// CSV, or Parquet.
    Csv,
    /// JSON, CSV or Parquet: the first character tells which.
    Any,
}

/// What a source wants to read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its formats.
    pub formats: Formats,
    /// Whether it reads rows of Parquet files as columns; otherwise they are JSON.
    pub columns: bool,
}

/// Takes rows, in the order of the file, until it breaks.
pub type Sink<'s> = dyn FnMut(RowLocation<'_>, Row<'_>) -> ControlFlow<()> + 's;

/// The rows of one file on their way to the sink.
pub(super) struct Rows<'s, 'b> {
    pub(super) wanted: Wanted,
    pub(super) member: String,
    row: u64,
    pub(super) is_over: bool,
    sink: &'b mut Sink<'s>,
}

impl<'s, 'b> Rows<'s, 'b> {
    pub(super) fn new(wanted: Wanted, sink: &'b mut Sink<'s>) -> Self {
        Self { wanted, member: String::new(), row: 0, is_over: false, sink }
    }

    /// Passes a row on. Whether there is to be another one.
    pub(super) fn row(&mut self, line: Option<u64>, row: Row<'_>) -> bool {
        self.row += 1;
        let place = RowLocation { member: &self.member, row: self.row, line };
        self.is_over = (self.sink)(place, row).is_break();
        !self.is_over
    }

    /// Passes on the text of a row, which may not be UTF-8.
    pub(super) fn text(&mut self, line: Option<u64>, text: &[u8]) -> bool {
        match std::str::from_utf8(text) {
            Ok(text) => self.row(line, Row::Json(text)),
            Err(error) => {
                let reason = format!("it is not UTF-8 from byte {} on", error.valid_up_to());
                self.row(line, Row::Unreadable(text, Refusal::new(reason)))
            }
        }
    }

    /// Passes on the beginning of a row that is too long.
    pub(super) fn too_long(&mut self, line: Option<u64>, text: &[u8], bytes: u64) -> bool {
        let reason = format!("it has {bytes} bytes, more than {ROW_MAX_BYTES}");
        let kept = text.get(..TOO_LONG_KEPT_BYTES).unwrap_or(text);
        self.row(line, Row::Unreadable(kept, Refusal::new(reason)))
    }

    /// An error after the last row.
    pub(super) fn error(&self, cause: impl Into<Cause>) -> ReadError {
        ReadError::new(&self.member, format!("after row {}", self.row), cause)
    }
}
