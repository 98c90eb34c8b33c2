//! Encoding of record batches, one after the other, as CSV, JSON lines, Parquet or Arrow: [`Encoder`]. It holds what it
//! has written until it is taken, and of a Parquet file at most one row group.

use std::io;
use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::LineDelimited;
use arrow::{csv, json};
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::output::format::{Format, SEVERAL_TYPES, has_several_types};
use crate::output::formulas::without_formulas;
use crate::output::plain;

/// Rows that are encoded in one step, which bounds what is written before it is taken: a batch has up to 8 times as
/// many.
const PIECE_ROWS: usize = 1024;

/// Size of a row group of a Parquet file, which is in memory until it is complete.
const GROUP_BYTES: usize = 16 << 20;

/// Most rows of a row group, for narrow rows.
const GROUP_ROWS: usize = 1 << 20;

/// Encodes batches of one schema.
pub(crate) struct Encoder {
    sink: Sink,
    writer: Writer,
    /// The schema of what is written.
    schema: SchemaRef,
}

enum Writer {
    JsonLines(json::Writer<Sink, LineDelimited>),
    Csv(Box<csv::Writer<Sink>>),
    Parquet(Box<ArrowWriter<Sink>>),
    Arrow(Box<StreamWriter<Sink>>),
}

/// The bytes that were written and not taken; clones share them.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The batch in parts of which each is encoded in one step.
pub(crate) fn pieces(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(PIECE_ROWS);
    starts.map(|start| batch.slice(start, PIECE_ROWS.min(batch.num_rows().saturating_sub(start))))
}

impl Encoder {
    /// An encoder for batches of `schema`. It writes the head of the file.
    ///
    /// # Errors
    ///
    /// The format has no form for a type of the schema, or has none for parts of a result.
    pub(crate) fn new(format: Format, schema: &SchemaRef) -> Result<Self, ArrowError> {
        let sink = Sink::default();
        let plain = plain::schema(schema);
        let (writer, schema) = match format {
            Format::Json | Format::JsonLines => {
                let builder = json::WriterBuilder::new().with_explicit_nulls(true);
                (Writer::JsonLines(builder.build(sink.clone())), Arc::clone(schema))
            }
            Format::Csv => {
                let mut writer = csv::Writer::new(sink.clone());
                // The head line is there without any rows, too.
                let none = RecordBatch::new_empty(Arc::clone(schema));
                writer.write(&without_formulas(&none)?)?;
                (Writer::Csv(Box::new(writer)), Arc::clone(schema))
            }
            Format::Parquet => {
                // The Parquet writer would panic.
                if has_several_types(&plain) {
                    return Err(ArrowError::NotYetImplemented(SEVERAL_TYPES.to_owned()));
                }
                let properties = Some(properties());
                let writer = ArrowWriter::try_new(sink.clone(), Arc::clone(&plain), properties)?;
                (Writer::Parquet(Box::new(writer)), plain)
            }
            Format::Arrow => {
                let writer = StreamWriter::try_new(sink.clone(), &plain)?;
                (Writer::Arrow(Box::new(writer)), plain)
            }
            Format::Table => {
                let what = "a table that is written part by part";
                return Err(ArrowError::NotYetImplemented(what.to_owned()));
            }
        };
        Ok(Self { sink, writer, schema })
    }

    /// Encodes a batch; a long one is passed in [`pieces`].
    ///
    /// # Errors
    ///
    /// A value has no form in the format.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        match &mut self.writer {
            Writer::JsonLines(writer) => writer.write(batch),
            Writer::Csv(writer) => writer.write(&without_formulas(batch)?),
            Writer::Parquet(writer) => Ok(writer.write(&plain::batch(batch, &self.schema)?)?),
            Writer::Arrow(writer) => writer.write(&plain::batch(batch, &self.schema)?),
        }
    }

    /// Bytes that can be taken.
    pub(crate) fn len(&self) -> usize {
        self.sink.0.lock().len()
    }

    /// Takes what was written since the last call.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut *self.sink.0.lock())
    }

    /// Writes the end of the file, and takes the rest of it.
    ///
    /// # Errors
    ///
    /// A bug.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, ArrowError> {
        match &mut self.writer {
            Writer::JsonLines(writer) => writer.finish()?,
            Writer::Csv(_) => {}
            Writer::Parquet(writer) => {
                writer.finish()?;
            }
            Writer::Arrow(writer) => writer.finish()?,
        }
        Ok(self.take())
    }
}

/// A compression that every reader knows, and nothing in the footer that grows with the pages.
fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .build()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringViewArray};
    use arrow::datatypes::Int64Type;
    use arrow::ipc::reader::StreamReader;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::{Encoder, GROUP_BYTES, pieces};
    use crate::output::format::Format;

    /// Rows of about a kilobyte that do not compress.
    fn rows(from: usize, count: usize) -> RecordBatch {
        let text = |row: usize| {
            let words = (0..64_u64).map(|word| {
                let seed = u64::try_from(row).unwrap().wrapping_mul(31).wrapping_add(word);
                format!("{:016x}", seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
            });
            words.collect::<String>()
        };
        let numbers = (from..from + count).map(|row| i64::try_from(row).unwrap());
        let number: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let texts = (from..from + count).map(text);
        let text: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        RecordBatch::try_from_iter([("number", number), ("text", text)]).unwrap()
    }

    /// Goal: what an encoder holds does not grow with the result. Method: 67 MB of rows, taken after each step.
    #[test]
    fn what_is_not_taken_is_bounded_and_nothing_is_lost() {
        for format in [Format::Csv, Format::JsonLines, Format::Arrow, Format::Parquet] {
            let schema = rows(0, 1).schema();
            let mut encoder = Encoder::new(format, &schema).unwrap();
            let (mut file, mut longest) = (Vec::new(), 0);
            for part in 0..8 {
                for piece in pieces(&rows(part * 8192, 8192)) {
                    encoder.write(&piece).unwrap();
                    let taken = encoder.take();
                    longest = longest.max(taken.len());
                    file.extend_from_slice(&taken);
                }
            }
            let last = encoder.finish().unwrap();
            longest = longest.max(last.len());
            file.extend_from_slice(&last);
            assert!(file.len() > 2 * GROUP_BYTES, "{format:?} {}", file.len());
            let bound = if format == Format::Parquet { GROUP_BYTES * 3 / 2 } else { 2 << 20 };
            assert!(longest <= bound, "{format:?}: {longest}");
            let rows: usize = match format {
                Format::Parquet => {
                    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file));
                    let reader = reader.unwrap();
                    assert!(reader.metadata().num_row_groups() >= 2);
                    reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum()
                }
                Format::Arrow => {
                    let reader = StreamReader::try_new(&*file, None).unwrap();
                    reader.map(|batch| batch.unwrap().num_rows()).sum()
                }
                Format::Csv => file.iter().filter(|byte| **byte == b'\n').count() - 1,
                _ => file.iter().filter(|byte| **byte == b'\n').count(),
            };
            assert_eq!(rows, 8 * 8192, "{format:?}");
        }
    }

    #[test]
    fn a_type_without_a_form_is_refused_before_the_first_byte() {
        let lists = [Some(vec![Some(1), Some(2)]), None];
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let batch = RecordBatch::try_from_iter([("list", list)]).unwrap();
        assert!(Encoder::new(Format::Csv, &batch.schema()).is_err());
        assert!(Encoder::new(Format::Table, &batch.schema()).is_err());
        for format in [Format::JsonLines, Format::Arrow, Format::Parquet] {
            let mut encoder = Encoder::new(format, &batch.schema()).unwrap();
            encoder.write(&batch).unwrap();
            assert!(!encoder.finish().unwrap().is_empty(), "{format:?}");
        }
    }

    #[test]
    fn a_result_without_rows_is_a_file() {
        let schema = rows(0, 1).schema();
        let file = |format| Encoder::new(format, &schema).unwrap().finish().unwrap();
        assert_eq!(file(Format::Csv), b"number,text\n");
        assert!(file(Format::JsonLines).is_empty());
        let arrow = file(Format::Arrow);
        assert_eq!(StreamReader::try_new(&*arrow, None).unwrap().count(), 0);
        let parquet = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file(Format::Parquet)));
        assert_eq!(parquet.unwrap().metadata().file_metadata().num_rows(), 0);
    }
}
