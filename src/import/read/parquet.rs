//! Parquet, batch by batch: as columns for a source that reads them, and as JSON for others.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use crate::read::columns::{Columns, broken, json};
use crate::read::rows::{ROW_MAX_BYTES, Row, Rows};
use crate::refusal::{Cause, ReadError};

/// Uncompressed bytes that a batch is meant to have, by the average of its row group.
const BATCH_BYTES: u64 = 8 << 20;
/// Rows of a batch.
const BATCH_MAX_ROWS: u64 = 8_192;
/// Uncompressed bytes of a row group, as the file declares them.
const ROW_GROUP_MAX_BYTES: i64 = 16 << 30;

/// Reads the rows of a Parquet file.
pub(super) fn read(
    file: File,
    read_bytes: &Arc<AtomicU64>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), ReadError> {
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let (mut reader, total) = guarded(|| open(file)).map_err(|error| rows.error(error))?;
    let begun = read_bytes.load(Ordering::Relaxed);
    let mut done = 0_u64;
    loop {
        let next = guarded(|| reader.next().transpose().map_err(|error| broken(&error)));
        let Some(batch) = next.map_err(|error| rows.error(error))? else { return Ok(()) };
        done = done.saturating_add(u64::try_from(batch.num_rows()).unwrap_or(0));
        let share = u128::from(size) * u128::from(done) / u128::from(total.max(1));
        let share = u64::try_from(share).unwrap_or(size);
        read_bytes.store(begun.saturating_add(share), Ordering::Relaxed);
        let goes_on = match rows.wanted.columns {
            true => pass_columns(&batch, rows)?,
            false => pass_json(&batch, rows)?,
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// The reader, and the number of rows.
fn open(file: File) -> Result<(ParquetRecordBatchReader, u64), Cause> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| broken(&error))?;
    let metadata = builder.metadata();
    let mut batch_rows = BATCH_MAX_ROWS;
    let mut total = 0_u64;
    for group in metadata.row_groups() {
        let (bytes, rows) = (group.total_byte_size(), group.num_rows());
        if bytes > ROW_GROUP_MAX_BYTES {
            return Err(Cause::Parquet("a row group is larger than 16 GiB".to_owned()));
        }
        let (bytes, rows) = (u64::try_from(bytes).unwrap_or(0), u64::try_from(rows).unwrap_or(0));
        total = total.saturating_add(rows);
        let row = (bytes / rows.max(1)).max(1);
        batch_rows = batch_rows.min(BATCH_BYTES / row);
    }
    let batch_rows = usize::try_from(batch_rows.max(1)).unwrap_or(1);
    let reader = builder.with_batch_size(batch_rows).build().map_err(|error| broken(&error))?;
    Ok((reader, total))
}

/// Runs the decoder, which may panic on a damaged file.
fn guarded<T>(work: impl FnOnce() -> Result<T, Cause>) -> Result<T, Cause> {
    let result = catch_unwind(AssertUnwindSafe(work));
    result.unwrap_or_else(|_| Err(Cause::Parquet("it is damaged".to_owned())))
}

fn pass_columns(batch: &RecordBatch, rows: &mut Rows<'_, '_>) -> Result<bool, ReadError> {
    let columns = Columns::new(batch).map_err(|error| rows.error(error))?;
    Ok((0..batch.num_rows()).all(|row| rows.row(None, Row::Columns(&columns, row))))
}

fn pass_json(batch: &RecordBatch, rows: &mut Rows<'_, '_>) -> Result<bool, ReadError> {
    let text = json(batch).map_err(|error| rows.error(error))?;
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let goes_on = match line.len() > ROW_MAX_BYTES {
            true => rows.too_long(None, line, u64::try_from(line.len()).unwrap_or(0)),
            false => rows.text(None, line),
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}
