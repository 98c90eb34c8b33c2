//! Writing of record batches as text or files: JSON rows, CSV, tables, Parquet, Arrow. Independent of what the rows
//! mean.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, LargeStringArray, RecordBatch, RecordBatchOptions,
    StringArray, StringViewArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches_with_schema;
use arrow::{csv, json};
use bytes::Bytes;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parquet::arrow::ArrowWriter;

use weir_event::json::restore;

/// Output format of a result.
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
    /// A stream of Arrow IPC, which preserves the column types.
    Arrow,
}

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
                let none = RecordBatch::new_empty(SchemaRef::clone(schema));
                return writer.write(&without_formulas(&none)?);
            }
            batches.iter().try_for_each(|batch| writer.write(&without_formulas(batch)?))
        }
        // The Parquet writer would panic.
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
        Format::Arrow => {
            let mut writer = StreamWriter::try_new(out, schema)?;
            batches.iter().try_for_each(|batch| writer.write(batch))?;
            writer.finish()
        }
    }
}

/// A CSV cell with this text. Spreadsheets run a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return
/// as a formula, and anybody can send events and persons with such text. An apostrophe in front makes it text
/// (CWE-1236). Not for numbers: they are no formulas.
pub fn text_cell(text: &str) -> Cow<'_, str> {
    match text.starts_with(FORMULA_BEGINNINGS) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

const FORMULA_BEGINNINGS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// The same rows with such cells, and with such column names: names are chosen by the author of a query, who may send
/// the file to others.
fn without_formulas(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    fn has_formula<'v>(values: impl Iterator<Item = Option<&'v str>>) -> bool {
        values.flatten().any(|text| text.starts_with(FORMULA_BEGINNINGS))
    }
    let column = |column: &ArrayRef| -> ArrayRef {
        if let Some(values) =
            column.as_string_view_opt().filter(|values| has_formula(values.iter()))
        {
            let texts = values.iter().map(|text| text.map(text_cell));
            Arc::new(texts.collect::<StringViewArray>())
        } else if let Some(values) =
            column.as_string_opt::<i32>().filter(|values| has_formula(values.iter()))
        {
            Arc::new(values.iter().map(|text| text.map(text_cell)).collect::<StringArray>())
        } else if let Some(values) =
            column.as_string_opt::<i64>().filter(|values| has_formula(values.iter()))
        {
            Arc::new(values.iter().map(|text| text.map(text_cell)).collect::<LargeStringArray>())
        } else {
            Arc::clone(column)
        }
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(without_formulas_in_names(batch.schema()), columns, &options)
}

fn without_formulas_in_names(schema: SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.name().starts_with(FORMULA_BEGINNINGS)) {
        return schema;
    }
    let field = |field: &FieldRef| field.as_ref().clone().with_name(text_cell(field.name()));
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<Field>>()))
}

fn is_union(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Union(..))
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
        ArrayRef, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray,
        StringViewArray,
    };
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::{Format, Gathered, PLAIN_BYTES, Size, TABLE_COPIES, Text, write};

    #[test]
    fn csv_has_texts_and_no_formulas() {
        let texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "a=b", "'=x", "", "="];
        let numbers = Int64Array::from_iter_values((0..9).map(|number| number - 5));
        let view: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let large: ArrayRef = Arc::new(LargeStringArray::from_iter_values(texts));
        let text: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let columns =
            [("n", Arc::new(numbers) as ArrayRef), ("v", view), ("l", large), ("t", text)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = Vec::new();
        write(Format::Csv, &batch.schema(), std::slice::from_ref(&batch), &mut out).unwrap();
        let cells = ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\tx", "a=b", "'=x", "", "'="];
        let rows =
            (-5..).zip(cells).map(|(number, cell)| format!("{number},{cell},{cell},{cell}\n"));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("n,v,l,t\n{}", rows.collect::<String>())
        );
        // Column names are escaped too, also in a file without rows.
        let named =
            |name: &str| (name.to_owned(), Arc::new(Int64Array::from(vec![-1])) as ArrayRef);
        let names = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "a=b", "'=x"];
        let batch = RecordBatch::try_from_iter(names.map(named)).unwrap();
        let head = "'=1+1,'+1,'-1,'@SUM(A1),'\tx,\"'\rx\",a=b,'=x\n";
        for (rows, expected) in [
            (&[][..], head.to_owned()),
            (std::slice::from_ref(&batch), format!("{head}-1,-1,-1,-1,-1,-1,-1,-1\n")),
        ] {
            let mut out = Vec::new();
            write(Format::Csv, &batch.schema(), rows, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

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
