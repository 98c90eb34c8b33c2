//! Page-by-page Parquet reader for merges: [`PagedFile`] has one page of every column in memory instead of
//! the row group, and estimates its memory before it reads rows.
//!
//! All functions block; they run on a dedicated thread.

use std::io;
use std::io::Read;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use bytes::{Buf, Bytes};
use futures::executor::block_on;
use object_store::ObjectStore;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Encoding, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use tokio::task::unconstrained;

use crate::compaction::ReadCost;
use crate::delta::DataFile;
use crate::parquet::Layout;

/// Bytes per read if the needed length is unknown, as for the header of a page.
const STEP_BYTES: u64 = 16 << 10;

/// Assumed size of a page before compression in a file without a page index: the usual size.
const FOREIGN_PAGE_BYTES: u64 = 1 << 20;

/// Memory of a value in a batch without its text.
const VALUE_BYTES: u64 = 16;

/// Memory of a dictionary as a multiple of its page: the page, and one view per text, which may be short.
const DICTIONARY_FACTOR: u64 = 3;

/// Bytes of the length prefix of a text in a page.
const LENGTH_BYTES: u64 = 4;

/// Smaller pages do not count for the widest row: they cannot contain a wide row, and their headers would
/// count as rows.
const PAGE_MIN_BYTES: u64 = 16 << 10;

/// A data file that is read completely.
#[derive(Debug)]
pub struct PagedFile {
    file: Arc<DataFile>,
    chunks: Chunks,
    metadata: ArrowReaderMetadata,
    schema: SchemaRef,
    cost: ReadCost,
}

impl PagedFile {
    /// Reads the metadata of the file. Its rows will have the columns of `schema`, whose files have this
    /// layout.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        file: Arc<DataFile>,
        schema: &SchemaRef,
        layout: &Layout,
    ) -> Result<Self, ParquetError> {
        let path = Path::from(file.path.as_str());
        let chunks = Chunks { store, path, len: file.size_bytes };
        let options = ArrowReaderOptions::new()
            .with_offset_index_policy(PageIndexPolicy::Optional)
            .with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&chunks, options.clone())?;
        // Text as views into the pages, without copying.
        let viewed = viewed(metadata.schema(), schema);
        let metadata = Arc::clone(metadata.metadata());
        let page_bytes = |name: &str| layout.page_bytes(schema, name);
        let cost = cost(&metadata, page_bytes);
        let metadata = ArrowReaderMetadata::try_new(metadata, options.with_schema(viewed))?;
        Ok(Self { file, chunks, metadata, schema: Arc::clone(schema), cost })
    }

    /// The data file.
    pub fn file(&self) -> &Arc<DataFile> {
        &self.file
    }

    /// The memory for reading the file.
    pub fn cost(&self) -> ReadCost {
        self.cost
    }

    /// All rows in batches of `batch_rows`, with the columns and types of the schema; columns that the file
    /// lacks are NULL.
    ///
    /// # Errors
    ///
    /// The file is no readable Parquet file; errors of reading come with the batches.
    pub fn rows(
        self,
        batch_rows: usize,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static, ParquetError>
    {
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.chunks, self.metadata);
        let fields = builder.schema().fields().iter().enumerate();
        let known = fields.filter(|(_, field)| self.schema.index_of(field.name()).is_ok());
        let known: Vec<usize> = known.map(|(position, _)| position).collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), known);
        let reader = builder.with_projection(mask).with_batch_size(batch_rows).build()?;
        let schema = self.schema;
        Ok(reader.map(move |batch| adapted(&batch?, &schema)))
    }
}

/// The Arrow types in which the columns of a file are read.
fn viewed(of_file: &SchemaRef, of_table: &SchemaRef) -> SchemaRef {
    let field = |field: &FieldRef| match of_table.field_with_name(field.name()) {
        Ok(known)
            if (known.data_type(), field.data_type()) == (&DataType::Utf8View, &DataType::Utf8) =>
        {
            Arc::new(Field::new(field.name(), DataType::Utf8View, field.is_nullable()))
        }
        _ => Arc::clone(field),
    };
    Arc::new(Schema::new(of_file.fields().iter().map(field).collect::<Vec<_>>()))
}

/// Converts a batch of a file to the schema of the table.
fn adapted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let column = |field: &FieldRef| match batch.column_by_name(field.name()) {
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
        Some(column) => cast_with_options(column, field.data_type(), &options),
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_, _>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns)
}

/// The memory for reading: for each column that of its largest row group. `page_bytes` is the page size of
/// a column in files of this program.
fn cost(metadata: &ParquetMetaData, page_bytes: impl Fn(&str) -> usize) -> ReadCost {
    let mut columns: Vec<ReadCost> = Vec::new();
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = size(group.num_rows());
        let offsets = metadata.offset_index().and_then(|index| index.get(number));
        columns.resize(columns.len().max(group.columns().len()), ReadCost::default());
        for (position, (chunk, worst)) in group.columns().iter().zip(&mut columns).enumerate() {
            let pages = offsets.and_then(|offsets| offsets.get(position));
            let page_bytes = usize_size(page_bytes(chunk.column_descr().name()));
            let cost = column_cost(chunk, rows, pages, page_bytes);
            worst.pages_bytes = worst.pages_bytes.max(cost.pages_bytes);
            worst.row_bytes = worst.row_bytes.max(cost.row_bytes);
        }
    }
    ReadCost {
        pages_bytes: columns.iter().map(|cost| cost.pages_bytes).sum(),
        row_bytes: columns.iter().map(|cost| cost.row_bytes).sum(),
    }
}

fn column_cost(
    chunk: &ColumnChunkMetaData,
    rows: u64,
    pages: Option<&OffsetIndexMetaData>,
    page_bytes: u64,
) -> ReadCost {
    let whole = size(chunk.uncompressed_size());
    let packed = size(chunk.compressed_size()).max(1);
    let unpacked = |bytes: u64| {
        let bytes = u128::from(bytes) * u128::from(whole) / u128::from(packed);
        u64::try_from(bytes).unwrap_or(u64::MAX).min(whole)
    };
    let dictionary = chunk.dictionary_page_offset();
    let dictionary = dictionary.map(|at| unpacked(size(chunk.data_page_offset() - at)));
    let (page, row) = match pages {
        None => (FOREIGN_PAGE_BYTES.min(whole), whole / rows.max(1)),
        Some(pages) => {
            let locations = pages.page_locations();
            // For texts without a dictionary the page index contains their length.
            let texts = pages.unencoded_byte_array_data_bytes();
            let texts = texts.filter(|_| is_only(chunk, Encoding::PLAIN));
            let ends = locations.iter().skip(1).map(|page| size(page.first_row_index));
            let (mut largest, mut widest) = (0, whole / rows.max(1));
            for (number, (page, end)) in locations.iter().zip(ends.chain([rows])).enumerate() {
                let rows = end.saturating_sub(size(page.first_row_index));
                let (bytes, most) = match texts.and_then(|texts| texts.get(number)) {
                    Some(bytes) => {
                        let bytes = size(*bytes).saturating_add(rows.saturating_mul(LENGTH_BYTES));
                        (bytes, bytes)
                    }
                    // The estimate uses the average compression, and a page may be compressed better: an
                    // estimate below the usual page size is doubled, up to that size.
                    None => {
                        let bytes = unpacked(size(i64::from(page.compressed_page_size)));
                        (bytes, bytes.max((bytes * 2).min(page_bytes).min(whole)))
                    }
                };
                largest = largest.max(most);
                if bytes >= PAGE_MIN_BYTES {
                    widest = widest.max(bytes / rows.max(1));
                }
            }
            (largest, widest)
        }
    };
    // The current page, compressed and uncompressed, and the previous page if a batch may still refer to
    // its text: not if its text is in the dictionary, and other values are copied.
    let is_copied =
        chunk.column_type() != Type::BYTE_ARRAY || is_only(chunk, Encoding::RLE_DICTIONARY);
    let unpacked = page.saturating_mul(if is_copied { 1 } else { 2 });
    let pages_bytes = unpacked.saturating_add(page.min(packed));
    ReadCost {
        pages_bytes: pages_bytes + dictionary.unwrap_or(0) * DICTIONARY_FACTOR,
        row_bytes: row + VALUE_BYTES,
    }
}

/// Whether the values of all data pages are known to have this encoding.
fn is_only(chunk: &ColumnChunkMetaData, encoding: Encoding) -> bool {
    chunk.page_encoding_stats_mask().is_some_and(|of_pages| of_pages.is_only(encoding))
}

fn size(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

fn usize_size(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Synchronous access to the bytes of a file, for the Parquet reader.
#[derive(Clone, Debug)]
struct Chunks {
    store: Arc<dyn ObjectStore>,
    path: Path,
    len: u64,
}

impl Chunks {
    fn bytes(&self, range: std::ops::Range<u64>) -> Result<Bytes, object_store::Error> {
        // `unconstrained`, because tokio's cooperative budget is never refilled in `block_on`: it would
        // wait for ever.
        let read = block_on(unconstrained(self.store.get_ranges(&self.path, &[range])))?;
        Ok(read.into_iter().next().unwrap_or_default())
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Chunks {
    type T = Steps;

    fn get_read(&self, start: u64) -> Result<Steps, ParquetError> {
        Ok(Steps { chunks: self.clone(), at: start, ahead: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(usize_size(length));
        self.bytes(start..end).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// Buffered sequential reader of a file from an offset.
#[derive(Debug)]
struct Steps {
    chunks: Chunks,
    /// Offset of the next read.
    at: u64,
    /// Bytes that were read ahead.
    ahead: Bytes,
}

impl Read for Steps {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            let end = self.chunks.len.min(self.at.saturating_add(STEP_BYTES));
            if end <= self.at {
                return Ok(0);
            }
            self.ahead = self.chunks.bytes(self.at..end).map_err(io::Error::other)?;
            self.at = end;
        }
        (&mut self.ahead).reader().read(buffer)
    }
}

#[cfg(test)]
mod tests;
