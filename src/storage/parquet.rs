//! Parquet writer and reader for data files: [`FileWriter`] and the settings of the format. It knows no table
//! version.
//!
//! # Why these settings
//!
//! Text is UTF-8 and times are UTC microseconds, which all engines read the same way. If the schema of a table has
//! metadata, such as descriptions of columns, files have them in an Arrow schema of the types that every reader sees
//! without it; our own readers skip it. A flush compresses with Snappy, because its files are
//! merged soon. A merge uses zstd level 1 and adds bloom filters; level 3 took 20 % more time for files
//! that were 1 % smaller. Pages have Parquet's CRC-32 for other engines, and a section before the footer
//! has checksums of all bytes (`checksums`).

mod bounds;
mod page_crc;
pub mod pages;

use std::io;
use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use futures::future::BoxFuture;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, PutPayloadMut};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions,
    PageStoreFactory, compute_leaves,
};
#[expect(
    deprecated,
    reason = "its successor is an example to copy; this is kept until that is a crate"
)]
use parquet::arrow::async_reader::{
    ParquetObjectReader, ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder,
};
use parquet::arrow::{ArrowWriter, ProjectionMask, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{RowGroupMetaData, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use tokio::io::AsyncWriteExt;

use crate::checksums;
use crate::checksums::BlockSums;
use crate::delta::{DataFile, TableSpec};
use crate::derived::Derived;
use crate::exact::ExactColumns;
use crate::parquet::page_crc::PageStores;

/// Maximum rows of a row group: large enough to compress and skip well, small enough to be read in parallel
/// (DuckDB recommends 100,000 to 1,000,000).
pub const GROUP_MAX_ROWS: usize = 512 * 1024;

/// Size of a page before compression. A merge has some pages of every column of every file in memory, so this
/// determines how many files it can merge at once.
const PAGE_BYTES: usize = 64 << 10;

/// Size of a page of wide values before compression. Small enough to be built and compressed in the CPU
/// cache: 1 MiB, the usual size, took 10 % more time.
const WIDE_PAGE_BYTES: usize = 256 << 10;

/// Memory at which a row group ends, unless [`FileWriter::with_group_bytes`] sets less.
const GROUP_BYTES: u64 = 64 << 20;

/// Texts of a row group that are written once each, in bytes, of a column whose arrays are dictionaries; the
/// usual limit is 1 MiB.
const DICTIONARY_BYTES: usize = 16 << 20;

/// Bytes per allocation of the output buffer.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes per part of the upload, and number of parts that may be in flight.
const PART_BYTES: usize = 4 << 20;
const PARTS_MAX: usize = 2;

/// Physical layout of the files of a table. Columns are positions in the table's schema.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Sort key of the rows.
    pub sort: Vec<usize>,
    /// Columns with bloom filters in merged files.
    pub bloom: Vec<usize>,
    /// Columns with statistics in the table's log.
    pub statistics: Vec<usize>,
    /// Columns whose values hardly repeat, and that get no dictionary.
    pub unique: Vec<usize>,
    /// Columns of wide values, which need larger pages to compress well. They get no dictionary either.
    pub wide: Vec<usize>,
}

impl Layout {
    /// Size of a page of the column `name` of `schema` before compression.
    fn page_bytes(&self, schema: &SchemaRef, name: &str) -> usize {
        match schema.index_of(name).is_ok_and(|position| self.wide.contains(&position)) {
            true => WIDE_PAGE_BYTES,
            false => PAGE_BYTES,
        }
    }
}

/// Compression effort for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For a file that will be merged soon.
    Flush,
    /// For a merged file.
    Merge,
}

/// Writer of one file. Nothing is visible before [`FileWriter::finish`].
pub struct FileWriter {
    /// Contains the bytes that are not sent to the object yet.
    file: SerializedFileWriter<Pieces>,
    columns: ArrowRowGroupWriterFactory,
    /// Column writers of the open row group; empty if none is open.
    group: Vec<ArrowColumnWriter>,
    /// Contains the pages of the column writers.
    page_stores: Arc<PageStores>,
    /// Checksums of the bytes that were sent to the object.
    sums: BlockSums,
    group_rows: usize,
    object: BufWriter,
    store: Arc<dyn ObjectStore>,
    schema: SchemaRef,
    statistics: Vec<usize>,
    path: String,
    partition: Option<String>,
    rows: u64,
    group_bytes: u64,
    exact: ExactColumns,
    derived: Derived,
}

/// Chunked output buffer: a row group has tens of megabytes, and a contiguous buffer would be copied each
/// time it grows.
#[derive(Debug)]
struct Pieces(PutPayloadMut);

impl Pieces {
    fn new() -> Self {
        Self(PutPayloadMut::new().with_block_size(PIECE_BYTES))
    }

    fn take(&mut self) -> PutPayload {
        std::mem::replace(self, Self::new()).0.freeze()
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileWriter").field("path", &self.path).field("rows", &self.rows).finish()
    }
}

impl FileWriter {
    /// Starts the file `name` in `partition` of the table with this `spec`.
    ///
    /// # Errors
    ///
    /// The schema cannot be written as Parquet: a programmer error.
    pub fn new(
        store: &Arc<dyn ObjectStore>,
        spec: &TableSpec,
        layout: &Layout,
        effort: Effort,
        partition: Option<String>,
        name: &str,
    ) -> Result<Self, ParquetError> {
        let columns = (spec, Derived::default());
        Self::deriving(store, columns, layout, effort, partition, name)
    }

    /// The same, with columns that are computed after those of the spec.
    ///
    /// # Errors
    ///
    /// As of [`FileWriter::new`].
    pub fn deriving(
        store: &Arc<dyn ObjectStore>,
        (spec, derived): (&TableSpec, Derived),
        layout: &Layout,
        effort: Effort,
        partition: Option<String>,
        name: &str,
    ) -> Result<Self, ParquetError> {
        let schema = derived.after(&spec.schema);
        let path = spec.file_path(partition.as_deref(), name);
        let object =
            BufWriter::with_capacity(Arc::clone(store), Path::from(path.as_str()), PART_BYTES)
                .with_max_concurrency(PARTS_MAX);
        let page_stores = Arc::new(PageStores::default());
        let factory: Arc<dyn PageStoreFactory> = Arc::<PageStores>::clone(&page_stores);
        let mut properties = properties(&schema, layout, effort)?;
        if schema.fields().iter().any(|field| !field.metadata().is_empty()) {
            add_encoded_arrow_schema_to_metadata(&read_as(&schema), &mut properties);
        }
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_page_store_factory(factory)
            .with_skip_arrow_metadata(true);
        let file = ArrowWriter::try_new_with_options(Pieces::new(), Arc::clone(&schema), options)?;
        let (file, columns) = file.into_serialized_writer()?;
        Ok(Self {
            file,
            columns,
            group: Vec::new(),
            page_stores,
            sums: BlockSums::default(),
            group_rows: 0,
            object,
            store: Arc::clone(store),
            schema,
            statistics: layout.statistics.clone(),
            path,
            partition,
            rows: 0,
            group_bytes: GROUP_BYTES,
            exact: ExactColumns::default(),
            derived,
        })
    }

    /// Says what a NULL in the file means.
    #[must_use]
    pub fn with_exact(self, exact: ExactColumns) -> Self {
        Self { exact, ..self }
    }

    /// Ends row groups when they take `group_bytes` of memory, however few rows they have. Until a row
    /// group is written to the disk, it takes 2.5 times that (see `compaction`).
    #[must_use]
    pub fn with_group_bytes(self, group_bytes: u64) -> Self {
        Self { group_bytes, ..self }
    }

    /// Adds rows, which must continue the sort order. A row group may exceed its memory and its rows by one
    /// batch.
    ///
    /// # Errors
    ///
    /// The store fails, or the rows do not match the schema.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        if self.group.is_empty() {
            self.group = self.new_group()?;
        }
        let columns = batch.columns().iter().cloned().map(Ok).chain(self.derived.of(batch));
        let mut writers = self.group.iter_mut();
        for (field, array) in self.schema.fields().iter().zip(columns) {
            let array = array?;
            for leaf in compute_leaves(field, &array)? {
                writers.next().ok_or_else(misfit)?.write(&leaf)?;
            }
        }
        self.group_rows += batch.num_rows();
        let memory = self.group.iter().map(ArrowColumnWriter::memory_size).sum::<usize>();
        let memory = u64::try_from(memory).unwrap_or(u64::MAX);
        if memory >= self.group_bytes || self.group_rows >= GROUP_MAX_ROWS {
            self.end_group().await?;
        }
        Ok(())
    }

    /// Adds a row group of `rows` rows, which must continue the sort order, one column after the other:
    /// `column` returns the arrays of the column at a position of the table's schema, which must have no nested
    /// columns. So only the texts and the dictionary of one column must fit into the CPU cache.
    ///
    /// # Errors
    ///
    /// The store fails, or the arrays do not match the schema.
    pub async fn write_group<A>(
        &mut self,
        rows: usize,
        column: impl Fn(usize) -> A,
    ) -> Result<(), ParquetError>
    where
        A: Iterator<Item = Result<ArrayRef, ArrowError>>,
    {
        self.end_group().await?;
        let mut chunks = Vec::with_capacity(self.schema.fields().len());
        let own = self.schema.fields().len().saturating_sub(self.derived.columns.len());
        let writers = self.new_group()?.into_iter().zip(self.schema.fields());
        for (position, (mut writer, field)) in writers.enumerate() {
            let derived =
                position.checked_sub(own).and_then(|position| self.derived.columns.get(position));
            for array in column(derived.map_or(position, |_| self.derived.source)) {
                let array = match derived {
                    Some(derived) => (derived.values)(&array?)?,
                    None => array?,
                };
                for leaf in compute_leaves(field, &array)? {
                    writer.write(&leaf)?;
                }
            }
            chunks.push(writer.close()?);
        }
        self.append(rows, chunks).await
    }

    fn new_group(&self) -> Result<Vec<ArrowColumnWriter>, ParquetError> {
        self.columns.create_column_writers(self.file.flushed_row_groups().len())
    }

    /// Ends the open row group, if there is one.
    async fn end_group(&mut self) -> Result<(), ParquetError> {
        let writers = std::mem::take(&mut self.group);
        if writers.is_empty() {
            return Ok(());
        }
        let chunks = writers.into_iter().map(ArrowColumnWriter::close).collect::<Result<_, _>>()?;
        let rows = std::mem::take(&mut self.group_rows);
        self.append(rows, chunks).await
    }

    fn append(
        &mut self,
        rows: usize,
        chunks: Vec<ArrowColumnChunk>,
    ) -> BoxFuture<'_, Result<(), ParquetError>> {
        Box::pin(async move {
            self.rows += u64::try_from(rows).unwrap_or(u64::MAX);
            let stores = self.page_stores.take();
            let mut group = self.file.next_row_group()?;
            for (chunk, pages) in chunks.into_iter().zip(&stores) {
                let (chunk, close) = page_crc::spliced(chunk, pages)?;
                group.append_column(&chunk, close)?;
            }
            group.close()?;
            self.send().await
        })
    }

    /// Sends the complete bytes to the object.
    async fn send(&mut self) -> Result<(), ParquetError> {
        for piece in self.file.inner_mut().take() {
            self.sums.add(&piece);
            self.object.put(piece).await?;
        }
        Ok(())
    }

    /// Sends the last bytes, with the section of checksums before the footer.
    async fn send_end(&mut self) -> Result<(), ParquetError> {
        let mut end = Vec::new();
        for piece in self.file.inner_mut().take() {
            end.extend_from_slice(&piece);
        }
        let no_footer = || ParquetError::General("the file has no footer".to_owned());
        let footer_bytes = checksums::footer(&end).ok_or_else(no_footer)?.len();
        let footer = end.split_off(end.len() - footer_bytes);
        self.sums.add(&end);
        let section = std::mem::take(&mut self.sums).section(&footer);
        for piece in [end, section, footer] {
            self.object.put(piece.into()).await?;
        }
        Ok(())
    }

    /// Bytes written so far, without the open row group.
    pub fn written_bytes(&self) -> u64 {
        u64::try_from(self.file.bytes_written()).unwrap_or(u64::MAX)
    }

    /// Completes the file. When this returns the file is durable, and in no table yet.
    pub async fn finish(mut self) -> Result<DataFile, ParquetError> {
        self.end_group().await?;
        let metadata = self.file.finish()?;
        self.send_end().await?;
        self.object.shutdown().await?;
        let object = self.store.head(&Path::from(self.path.as_str())).await;
        let object = object.map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(DataFile {
            size_bytes: object.size,
            rows: self.rows,
            partition: self.partition,
            stats: bounds::stats(&metadata, &self.schema, &self.statistics),
            exact: self.exact,
            derived: self.derived.tag(),
            path: self.path,
        })
    }
}

fn misfit() -> ParquetError {
    ParquetError::General("the rows have more columns than the file".to_owned())
}

/// The named columns of a file, batch by batch, in the file's types (text as Utf8).
///
/// # Errors
///
/// The file cannot be opened; errors of reading come with the batches.
#[expect(deprecated, reason = "see the import")]
pub async fn read_columns(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    names: &[&str],
) -> Result<ParquetRecordBatchStream<ParquetObjectReader>, ParquetError> {
    let builder = open(store, file).await?;
    let columns = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
    builder.with_projection(columns).build()
}

/// As [`read_columns`], but only the row groups whose bloom filters show that a column may contain one of
/// some texts.
///
/// # Errors
///
/// The file cannot be opened or has no such column; errors of reading come with the batches.
#[expect(deprecated, reason = "see the import")]
pub async fn read_columns_if(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    names: &[&str],
    column: &str,
    texts: &[&str],
) -> Result<ParquetRecordBatchStream<ParquetObjectReader>, ParquetError> {
    let (mut builder, position) = open_at(store, file, column).await?;
    let mut chosen = Vec::new();
    for group in 0..builder.metadata().num_row_groups() {
        let bloom = builder.get_row_group_column_bloom_filter(group, position).await?;
        if bloom.is_none_or(|bloom| texts.iter().any(|text| bloom.check(*text))) {
            chosen.push(group);
        }
    }
    let columns = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
    builder.with_projection(columns).with_row_groups(chosen).build()
}

/// As [`read_columns`], but only the row groups that may have what is sought in a column of whole numbers, by their bounds.
/// Row groups without bounds are read.
///
/// # Errors
///
/// The file cannot be opened or has no such column; errors of reading come with the batches.
#[expect(deprecated, reason = "see the import")]
pub async fn read_columns_within(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    names: &[&str],
    column: &str,
    is_sought: impl Fn(RangeInclusive<i64>) -> bool,
) -> Result<ParquetRecordBatchStream<ParquetObjectReader>, ParquetError> {
    let (builder, position) = open_at(store, file, column).await?;
    let may_have = |group: &RowGroupMetaData| {
        let statistics = group.columns().get(position).and_then(|column| column.statistics());
        let bounds = match statistics {
            Some(Statistics::Int64(own)) => own.min_opt().zip(own.max_opt()),
            _ => None,
        };
        bounds.is_none_or(|(min, max)| is_sought(*min..=*max))
    };
    let groups = builder.metadata().row_groups().iter().enumerate();
    let chosen = groups.filter(|(_, group)| may_have(group)).map(|(index, _)| index).collect();
    let columns = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
    builder.with_projection(columns).with_row_groups(chosen).build()
}

/// Opens a file, and finds a column.
#[expect(deprecated, reason = "see the import")]
async fn open_at(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    column: &str,
) -> Result<(ParquetRecordBatchStreamBuilder<ParquetObjectReader>, usize), ParquetError> {
    let builder = open(store, file).await?;
    let mut found = builder.parquet_schema().columns().iter();
    let missing = || ParquetError::General(format!("{} has no column {column}", file.path));
    let position = found.position(|found| found.name() == column).ok_or_else(missing)?;
    Ok((builder, position))
}

/// Opens a file, some of whose columns are to be read with other types than usual, such as texts as dictionaries. The
/// caller chooses the columns.
///
/// # Errors
///
/// The file cannot be opened, or one of these columns cannot be read with its type.
#[expect(deprecated, reason = "see the import")]
pub async fn open_as(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    type_of: impl Fn(&str) -> Option<DataType>,
) -> Result<ParquetRecordBatchStreamBuilder<ParquetObjectReader>, ParquetError> {
    let path = Path::from(file.path.as_str());
    let mut reader = ParquetObjectReader::new(store, path).with_file_size(file.size_bytes);
    let options = plain();
    let metadata = ArrowReaderMetadata::load_async(&mut reader, options.clone()).await?;
    let field = |field: &Arc<Field>| match type_of(field.name()) {
        Some(data_type) => Field::new(field.name(), data_type, field.is_nullable()),
        None => field.as_ref().clone(),
    };
    let fields: Vec<Field> = metadata.schema().fields().iter().map(field).collect();
    let options = options.with_schema(Arc::new(Schema::new(fields)));
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options)?;
    Ok(ParquetRecordBatchStreamBuilder::new_with_metadata(reader, metadata))
}

#[expect(deprecated, reason = "see the import")]
async fn open(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
) -> Result<ParquetRecordBatchStreamBuilder<ParquetObjectReader>, ParquetError> {
    let path = Path::from(file.path.as_str());
    let reader = ParquetObjectReader::new(store, path).with_file_size(file.size_bytes);
    ParquetRecordBatchStreamBuilder::new_with_options(reader, plain()).await
}

/// Reads a file without its Arrow schema: the types are those of Parquet, whatever program wrote it.
fn plain() -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_skip_arrow_metadata(true)
}

/// The schema with the types that a reader sees in a file without an Arrow schema.
fn read_as(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| {
        let data_type = match field.data_type() {
            DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            other => other.clone(),
        };
        field.as_ref().clone().with_data_type(data_type)
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

fn properties(
    schema: &SchemaRef,
    layout: &Layout,
    effort: Effort,
) -> Result<WriterProperties, ParquetError> {
    let compression = match effort {
        Effort::Flush => Compression::SNAPPY,
        Effort::Merge => Compression::ZSTD(ZstdLevel::try_new(1)?),
    };
    let name = |position: &usize| {
        schema.fields().get(*position).map(|field| ColumnPath::from(field.name().as_str()))
    };
    let sorting = layout.sort.iter().filter_map(|position| i32::try_from(*position).ok());
    let sorting = sorting
        .map(|column| SortingColumn { column_idx: column, descending: false, nulls_first: false })
        .collect();
    let mut builder = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_statistics_enabled(match effort {
            // Comparing every value of every column costs more than it saves in a file that is merged soon.
            Effort::Flush => EnabledStatistics::None,
            Effort::Merge => EnabledStatistics::Chunk,
        })
        .set_sorting_columns(Some(sorting));
    for column in layout.unique.iter().chain(&layout.wide).filter_map(name) {
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column.clone(), Encoding::PLAIN)
            .set_column_statistics_enabled(column, EnabledStatistics::None);
    }
    for column in layout.wide.iter().filter_map(name) {
        builder = builder.set_column_data_page_size_limit(column, WIDE_PAGE_BYTES);
    }
    let is_dictionary = |field: &&Arc<Field>| matches!(field.data_type(), DataType::Dictionary(..));
    for field in schema.fields().iter().filter(is_dictionary) {
        let column = ColumnPath::from(field.name().as_str());
        builder = builder
            .set_column_dictionary_page_size_limit(column.clone(), DICTIONARY_BYTES)
            .set_column_statistics_enabled(column, EnabledStatistics::None);
    }
    for column in layout.sort.iter().chain(&layout.statistics).filter_map(name) {
        builder = builder.set_column_statistics_enabled(column, EnabledStatistics::Page);
    }
    if effort == Effort::Merge {
        for column in layout.bloom.iter().filter_map(name) {
            builder = builder.set_column_bloom_filter_enabled(column, true);
        }
    }
    Ok(builder.build())
}
