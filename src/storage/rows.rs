//! Sparse row batch of a table in memory: in [`Rows`], a column without values does not exist.
//!
//! Events have many columns, and most batches use few. A missing column costs nothing until a reader needs
//! it and gets NULLs.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
    new_null_array,
};
use arrow::compute::{concat, filter};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;

use crate::exact::ExactColumns;
use crate::wal::Sequence;

/// Some rows of a table: columns by position in the table's schema.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Number of rows.
    pub len: usize,
    /// Columns; `None` where every row is NULL.
    pub columns: Vec<Option<ArrayRef>>,
    /// Memory of the columns in bytes, shared buffers counted once.
    pub memory_bytes: usize,
    /// The log records that the rows come from, in the order of the rows.
    pub runs: Vec<Run>,
    /// What a NULL means.
    pub exact: ExactColumns,
}

/// Consecutive rows that come from one log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of rows.
    pub len: usize,
    /// The record.
    pub sequence: Sequence,
}

impl Rows {
    /// The columns at `positions` as a record batch with the schema `projected`; missing columns become
    /// NULLs.
    ///
    /// # Errors
    ///
    /// The columns do not match `projected`: a programmer error.
    pub fn to_batch(
        &self,
        projected: &SchemaRef,
        positions: &[usize],
    ) -> Result<RecordBatch, ArrowError> {
        let column = |(position, field): (&usize, &Arc<arrow::datatypes::Field>)| match self
            .columns
            .get(*position)
            .and_then(Option::as_ref)
        {
            Some(column) => Arc::clone(column),
            None => new_null_array(field.data_type(), self.len),
        };
        let columns = positions.iter().zip(projected.fields()).map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.len));
        RecordBatch::try_new_with_options(Arc::clone(projected), columns, &options)
    }

    /// The log record that each row comes from, as numbers.
    pub fn positions(&self) -> Int64Array {
        let position = |run: &Run| i64::try_from(run.sequence.0).unwrap_or(i64::MAX);
        let positions = self.runs.iter().flat_map(|run| repeat_n(position(run), run.len));
        Int64Array::from_iter_values(positions)
    }

    /// The rows for which `keep` is true.
    ///
    /// # Errors
    ///
    /// `keep` has another length: a programmer error.
    pub fn filtered(self, keep: &BooleanArray) -> Result<Self, ArrowError> {
        let mut from = 0;
        let mut runs = self.runs;
        for run in &mut runs {
            let end = from + run.len;
            run.len = (from..end).filter(|row| keep.is_valid(*row) && keep.value(*row)).count();
            from = end;
        }
        let columns = self.columns.into_iter().map(|column| match column {
            Some(column) => filter(&column, keep).map(Some),
            None => Ok(None),
        });
        Ok(Self {
            len: keep.true_count(),
            columns: columns.collect::<Result<_, _>>()?,
            memory_bytes: self.memory_bytes,
            runs,
            exact: self.exact,
        })
    }

    /// One batch with all rows of `parts`, in order, with text copied into common buffers: otherwise every
    /// small request would keep a buffer of its own in each column.
    ///
    /// # Errors
    ///
    /// The parts have different types: a programmer error.
    pub fn concatenated(parts: &[Arc<Self>]) -> Result<Self, ArrowError> {
        let width = parts.iter().map(|part| part.columns.len()).max().unwrap_or(0);
        let mut columns = Vec::with_capacity(width);
        for position in 0..width {
            columns.push(concatenated_column(parts, position)?);
        }
        let own = |column: &ArrayRef| column.get_array_memory_size();
        Ok(Self {
            len: parts.iter().map(|part| part.len).sum(),
            memory_bytes: columns.iter().flatten().map(own).sum(),
            runs: parts.iter().flat_map(|part| part.runs.iter().copied()).collect(),
            exact: parts.iter().map(|part| part.exact).collect(),
            columns,
        })
    }
}

fn concatenated_column(
    parts: &[Arc<Rows>],
    position: usize,
) -> Result<Option<ArrayRef>, ArrowError> {
    let column = |part: &Arc<Rows>| part.columns.get(position).cloned().flatten();
    let Some(data_type) = parts.iter().find_map(column).map(|array| array.data_type().clone())
    else {
        return Ok(None);
    };
    let arrays: Vec<ArrayRef> = parts
        .iter()
        .map(|part| column(part).unwrap_or_else(|| new_null_array(&data_type, part.len)))
        .collect();
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    let whole = concat(&arrays)?;
    Ok(Some(match data_type {
        DataType::Utf8View => Arc::new(whole.as_string_view().gc()),
        _ => whole,
    }))
}
