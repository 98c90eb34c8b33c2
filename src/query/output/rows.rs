//! Writing of record batches that are all in memory, as text or files, and the memory that this takes. Independent of
//! what the rows mean.

use std::collections::HashSet;
use std::io;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches_with_schema;
use bytes::Bytes;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::output::encoder;
use crate::output::encoder::Encoder;
use crate::output::format::Format;
use weir_event::json::restore;

/// Approximate bytes of a value other than text or a list.
const PLAIN_BYTES: usize = 24;

/// Approximate number of copies of a table in memory while it is aligned.
const TABLE_COPIES: usize = 4;

/// Estimated size of a result as text: the sum of its values; for a table, in which columns are as wide as their widest
/// value, the whole area.
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

    /// Bytes of the result in `format`.
    pub fn bytes(&self, format: Format) -> usize {
        match format {
            Format::Table => {
                let width = self.widest.iter().fold(0, |sum: usize, own| sum.saturating_add(*own));
                self.rows.saturating_mul(width).saturating_mul(TABLE_COPIES)
            }
            _ => self.bytes,
        }
    }
}

/// Memory reservation of buffered batches, in the pool of all queries.
#[derive(Debug)]
pub(crate) struct Gathered {
    reservation: MemoryReservation,
    /// Addresses of the buffers already counted: batches share buffers.
    counted: HashSet<usize>,
}

impl Gathered {
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new("rows of an answer").register(pool);
        Self { reservation, counted: HashSet::new() }
    }

    /// Counts a batch that is buffered.
    ///
    /// # Errors
    ///
    /// The pool does not have so much memory left.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let mut bytes = 0;
        for column in batch.columns() {
            self.count(&column.to_data(), &mut bytes);
        }
        self.reservation.try_grow(bytes)
    }

    fn count(&mut self, data: &ArrayData, bytes: &mut usize) {
        for buffer in data.buffers() {
            if self.counted.insert(buffer.data_ptr().addr().get()) {
                *bytes = bytes.saturating_add(buffer.capacity());
            }
        }
        for child in data.child_data() {
            self.count(child, bytes);
        }
    }
}

/// A result being written, of which the memory is reserved in the pool of all queries.
#[derive(Debug)]
pub(crate) struct Text {
    bytes: Vec<u8>,
    reservation: MemoryReservation,
    is_exhausted: bool,
}

impl Text {
    /// An empty text, with memory reserved for about so many bytes.
    ///
    /// # Errors
    ///
    /// The pool does not have so much memory left.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, bytes: usize) -> Result<Self, DataFusionError> {
        let reservation = MemoryConsumer::new("the text of an answer").register(pool);
        reservation.try_grow(bytes)?;
        Ok(Self { bytes: Vec::new(), reservation, is_exhausted: false })
    }

    /// Whether writing failed for lack of memory.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// The text; its memory stays reserved until its last clone is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.reservation.resize(self.bytes.capacity());
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Write for Text {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let (length, capacity) = (self.bytes.len(), self.bytes.capacity());
        let wanted = length.saturating_add(more.len());
        if wanted > capacity {
            let wanted = wanted.max(capacity.saturating_add(capacity / 2));
            let missing = wanted.saturating_sub(self.reservation.size());
            if missing > 0 && self.reservation.try_grow(missing).is_err() {
                self.is_exhausted = true;
                return Err(io::Error::from(io::ErrorKind::OutOfMemory));
            }
            self.bytes.reserve_exact(wanted.saturating_sub(length));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Total bytes of the values of a column, and bytes of the widest.
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
    mut out: impl Write,
) -> Result<(), ArrowError> {
    let failed = |error: io::Error| ArrowError::IoError(error.to_string(), error);
    if format == Format::Table {
        let table = pretty_format_batches_with_schema(SchemaRef::clone(schema), batches)?;
        return writeln!(out, "{table}").map_err(failed);
    }
    let mut encoder = Encoder::new(format, schema)?;
    for batch in batches {
        for piece in encoder::pieces(batch) {
            encoder.write(&piece)?;
            out.write_all(&encoder.take()).map_err(failed)?;
        }
    }
    out.write_all(&encoder.finish()?).map_err(failed)
}

/// The rows of `batches` as JSON objects. For results of a bounded number of rows.
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

    use arrow::array::{
        ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StringViewArray,
    };
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::{Gathered, PLAIN_BYTES, Size, TABLE_COPIES, Text, write};
    use crate::output::format::Format;

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

    /// JSON's escapes exceed the estimated size.
    #[test]
    fn a_text_stays_within_its_memory() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["\u{1}".repeat(10_000)]));
        let batch = RecordBatch::try_from_iter([("text", text)]).unwrap();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(200_000));
        let written = |rows: usize| {
            let mut out = Text::new(&pool, 10_000 * rows).unwrap();
            let batches = vec![batch.clone(); rows];
            let result = write(Format::Json, &batch.schema(), &batches, &mut out);
            (result.is_ok(), out.is_exhausted(), out.into_bytes())
        };
        let (is_written, is_exhausted, bytes) = written(1);
        assert_eq!((is_written, is_exhausted), (true, false));
        assert!(
            bytes.starts_with(br#"{"text":"\u0001"#) && bytes.len() > 60_000,
            "{}",
            bytes.len()
        );
        assert!(pool.reserved() >= bytes.len(), "{}", pool.reserved());
        drop(bytes);
        assert_eq!(pool.reserved(), 0);
        let (is_written, is_exhausted, _) = written(10);
        assert_eq!((is_written, is_exhausted), (false, true));
        assert!(Text::new(&pool, 200_001).is_err());
    }

    #[test]
    fn batches_that_share_memory_count_once() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(10_000); 10]));
        let whole = RecordBatch::try_from_iter([("text", text)]).unwrap();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(250_000));
        let mut gathered = Gathered::new(&pool);
        for row in 0..10 {
            gathered.add(&whole.slice(row, 1)).unwrap();
        }
        assert!((100_000..200_000).contains(&pool.reserved()), "{}", pool.reserved());
        let other: ArrayRef = Arc::new(StringArray::from(vec!["y".repeat(10_000); 10]));
        let other = RecordBatch::try_from_iter([("text", other)]).unwrap();
        assert!(gathered.add(&other).is_err());
        drop(gathered);
        assert_eq!(pool.reserved(), 0);
    }
}
