//! Aligned columns of the first rows of a stream of Arrow: [`TableText`], for terminals.

use arrow::array::{Array, RecordBatch};
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::util::pretty::pretty_format_batches_with_schema;
use bytes::Bytes;

/// The rows of a table that is aligned at its end, for which all of them are in memory.
#[derive(Debug)]
pub struct TableText {
    decoder: StreamDecoder,
    batches: Vec<RecordBatch>,
    rows_left: usize,
    bytes_left: usize,
    is_cut: bool,
}

impl TableText {
    /// No rows yet, of at most `rows_max` that take about `bytes_max`.
    pub fn new(rows_max: usize, bytes_max: usize) -> Self {
        let (decoder, batches) = (StreamDecoder::new(), Vec::new());
        Self { decoder, batches, rows_left: rows_max, bytes_left: bytes_max, is_cut: false }
    }

    /// Adds the next part of the stream. False if the table is full, and there are more rows.
    ///
    /// # Errors
    ///
    /// It is no stream of Arrow.
    pub fn add(&mut self, part: Bytes) -> Result<bool, ArrowError> {
        let mut buffer = Buffer::from(part);
        while let Some(batch) = self.decoder.decode(&mut buffer)? {
            // Of its own rows: batches of one part share the memory of that.
            let sizes = batch.columns().iter().map(|own| own.to_data().get_slice_memory_size());
            let bytes = sizes.sum::<Result<usize, _>>()?;
            let is_wide = bytes > self.bytes_left && !self.batches.is_empty();
            if is_wide || batch.num_rows() > self.rows_left {
                let rows = if is_wide { 0 } else { self.rows_left };
                self.batches.push(batch.slice(0, rows));
                self.is_cut = true;
                return Ok(false);
            }
            self.rows_left = self.rows_left.saturating_sub(batch.num_rows());
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            self.batches.push(batch);
        }
        Ok(true)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether there are more rows than the table has.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The table, with a line break at its end.
    ///
    /// # Errors
    ///
    /// There was no stream, or a value has no text.
    pub fn text(&self) -> Result<String, ArrowError> {
        let absent = || ArrowError::IpcError("the answer is no stream of Arrow".to_owned());
        let schema = self.decoder.schema().ok_or_else(absent)?;
        Ok(format!("{}\n", pretty_format_batches_with_schema(schema, &self.batches)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use bytes::Bytes;

    use super::TableText;
    use crate::output::encoder::Encoder;
    use crate::output::format::Format;

    /// The numbers 0 to 29 in three batches.
    fn stream() -> Vec<u8> {
        let batch = |from: i64| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 10));
            RecordBatch::try_from_iter([("n", numbers)]).unwrap()
        };
        let mut encoder = Encoder::new(Format::Arrow, &batch(0).schema()).unwrap();
        for from in [0, 10, 20] {
            encoder.write(&batch(from)).unwrap();
        }
        encoder.finish().unwrap()
    }

    #[test]
    fn a_table_has_the_first_rows_however_the_stream_comes() {
        for (rows_max, bytes_max, expected, is_cut) in [
            (100, 1 << 20, 30, false),
            (30, 1 << 20, 30, false),
            (29, 1 << 20, 29, true),
            (0, 9, 0, true),
            (9, 1, 9, true),
            (100, 1, 10, true),
        ] {
            for step in [1, 7, 100_000] {
                let mut table = TableText::new(rows_max, bytes_max);
                let mut parts = stream();
                while !parts.is_empty() {
                    let rest = parts.split_off(step.min(parts.len()));
                    let more = table.add(Bytes::from(std::mem::replace(&mut parts, rest))).unwrap();
                    if !more {
                        break;
                    }
                }
                let case = format!("{rows_max} {bytes_max} {step}");
                assert_eq!((table.rows(), table.is_cut()), (expected, is_cut), "{case}");
                let text = table.text().unwrap();
                // Above the rows are a line, the name and a line, below them one.
                assert_eq!(
                    text.lines().count(),
                    if expected == 0 { 4 } else { expected + 4 },
                    "{case}: {text}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_stream_is_an_error() {
        let mut table = TableText::new(1, 1);
        assert!(table.text().is_err());
        let added = table.add(Bytes::from_static(b"{\"detail\": \"this is not Arrow\"}"));
        assert!(added.is_err() || table.text().is_err());
    }
}
