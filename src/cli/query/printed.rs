//! Output of `weir query`: parts of a result go to the standard output as they come; a table is aligned at its end, and
//! has the first rows only.

use std::io;
use std::io::{ErrorKind, Stdout, Write};

use anyhow::Context;
use bytes::Bytes;

use weir_query::output::format::Format;
use weir_query::output::table::TableText;

/// Most rows of a table.
const TABLE_ROWS_MAX: usize = 50_000;

/// Most memory of the rows of a table, besides the table itself.
const TABLE_BYTES_MAX: usize = 64 << 20;

/// Where a result goes.
pub(super) struct Printed {
    out: Stdout,
    /// `None` for formats that need no alignment.
    table: Option<TableText>,
}

/// Whether the rest of the result is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    /// There is room for more.
    Needed,
    /// The table is full, or nobody reads the output any more.
    Enough,
}

impl Printed {
    /// An empty output in this format.
    pub(super) fn new(format: Format) -> Self {
        let is_table = format == Format::Table;
        let table = is_table.then(|| TableText::new(TABLE_ROWS_MAX, TABLE_BYTES_MAX));
        Self { out: io::stdout(), table }
    }

    /// Takes the next part of the result, which is in the format of [`asked`].
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub(super) fn add(&mut self, part: Bytes) -> anyhow::Result<More> {
        match &mut self.table {
            Some(table) => match table.add(part).context("the answer is no table")? {
                true => Ok(More::Needed),
                false => Ok(More::Enough),
            },
            None => written(self.out.lock().write_all(&part)),
        }
    }

    /// Writes what is left at the end of the result.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        if let Some(table) = &self.table {
            written(self.out.lock().write_all(table.text()?.as_bytes()))?;
            if table.is_cut() {
                let rows = table.rows();
                let other = "--format csv, jsonl, parquet or arrow writes all of them";
                writeln!(io::stderr(), "weir query: these are the first {rows} rows; {other}")?;
            }
        }
        written(self.out.flush())?;
        Ok(())
    }
}

/// The name of the format in which a result is requested: a table is made here, of rows with types.
pub(super) fn asked(format: Format) -> Format {
    match format {
        Format::Table => Format::Arrow,
        Format::Json => Format::JsonLines,
        other => other,
    }
}

/// A reader such as `head` that has seen enough is no error.
fn written(outcome: io::Result<()>) -> anyhow::Result<More> {
    match outcome {
        Ok(()) => Ok(More::Needed),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(More::Enough),
        Err(error) => Err(error).context("cannot write the answer"),
    }
}
