//! Persons with neighbouring numbers as a Parquet file with a column for each of their properties, so
//! that one property of everybody is read without all else. Values and names are compact JSON. The file
//! is a copy that may be lost; what has changed since is not its business.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use arrow::array::Array;
use arrow::array::ArrayBuilder;
use arrow::array::ArrayRef;
use arrow::array::BooleanArray;
use arrow::array::DictionaryArray;
use arrow::array::Int64Array;
use arrow::array::RecordBatch;
use arrow::array::StringArray;
use arrow::array::StringDictionaryBuilder;
use arrow::datatypes::DataType;
use arrow::datatypes::Field;
use arrow::datatypes::Int32Type;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::basic::Encoding;
use parquet::basic::ZstdLevel;
use parquet::errors::ParquetError;
use parquet::file::properties::EnabledStatistics;
use parquet::file::properties::WriterProperties;

use crate::identity::row::Row;
use crate::query::columns::record::ChunkRecord;
use crate::query::columns::table::Rows;

/// Properties of a file. If persons have more of them, those that come later are not in it.
const KEYS_MAX: usize = 512;

/// Different values of a property in a file that are written once each, in bytes; beyond, each as often
/// as it is there.
const DICTIONARY_BYTES: usize = 16 << 20;

/// Columns of what is no property. Names of properties begin with a quote.
const NUMBER: &str = "number";
const CREATED_AT: &str = "created_at";
const IDENTIFIED: &str = "identified";

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChunkError {
    /// The file system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The format.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// Columns.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// The file is not one of these.
    #[error("the file has other columns")]
    Columns,
}

/// A file that is to be.
#[derive(Default)]
pub(super) struct Draft {
    numbers: Vec<i64>,
    created: Vec<i64>,
    identified: Vec<bool>,
    places: BTreeMap<Box<str>, usize>,
    columns: Vec<(Box<str>, StringDictionaryBuilder<Int32Type>)>,
    has_others: bool,
    bytes: usize,
}

impl Draft {
    /// Adds a person with a larger number.
    pub(super) fn push(&mut self, row: &Row<'_>) -> Result<(), ArrowError> {
        let before = self.numbers.len();
        self.numbers.push(row.number);
        self.created.push(row.created_at.0);
        self.identified.push(row.is_identified);
        self.bytes = self.bytes.saturating_add(row.properties_len());
        // Rows mostly have the same properties in the same order.
        let mut guess = 0;
        for (name, value) in row.properties() {
            let is_guessed = self.columns.get(guess).is_some_and(|(own, _)| **own == *name);
            let place = if is_guessed { Some(guess) } else { self.place(name) };
            let Some((_, column)) = place.and_then(|place| self.columns.get_mut(place)) else {
                self.has_others = true;
                continue;
            };
            guess = place.map_or(guess, |place| place + 1);
            // Of a name that is there twice the last would count; rows have each once.
            if let Some(missing) = before.checked_sub(column.len()) {
                column.append_nulls(missing);
                column.append(value)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, name: &str) -> Option<usize> {
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        let place = self.columns.len();
        if place >= KEYS_MAX {
            return None;
        }
        self.places.insert(name.into(), place);
        self.columns.push((name.into(), StringDictionaryBuilder::new()));
        Some(place)
    }

    /// Persons.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of the last person.
    pub(super) fn last(&self) -> Option<i64> {
        self.numbers.last().copied()
    }

    /// Bytes of the properties that it was made of.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the file, durably but for its name; `is_full` says that it ends where it does because it is
    /// large enough.
    pub(super) fn write(
        self,
        path: PathBuf,
        numbers: Range<i64>,
        is_full: bool,
    ) -> Result<Chunk, ChunkError> {
        let persons = self.numbers.len();
        let mut fields = vec![
            Field::new(NUMBER, DataType::Int64, false),
            Field::new(CREATED_AT, DataType::Int64, false),
            Field::new(IDENTIFIED, DataType::Boolean, false),
        ];
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(self.numbers)),
            Arc::new(Int64Array::from(self.created)),
            Arc::new(BooleanArray::from(self.identified)),
        ];
        for (name, mut column) in self.columns {
            column.append_nulls(persons.saturating_sub(column.len()));
            let array = column.finish();
            fields.push(Field::new(&*name, array.data_type().clone(), true));
            arrays.push(Arc::new(array));
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
        let settings = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_statistics_enabled(EnabledStatistics::None)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES);
        // They rise, or nearly so: their differences are short, and quicker to read.
        let settings = [NUMBER, CREATED_AT].into_iter().fold(settings, |settings, name| {
            settings
                .set_column_dictionary_enabled(name.into(), false)
                .set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED)
        });
        let settings = settings.build();
        let file = File::create(&path)?;
        // It goes again unless it is whole.
        let (has_others, is_replaced) = (self.has_others, AtomicBool::new(true));
        let mut chunk =
            Chunk { path, numbers, persons, has_others, is_full, bytes: 0, is_replaced };
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(settings))?;
        writer.write(&batch)?;
        let file = writer.into_inner()?;
        file.sync_all()?;
        chunk.bytes = file.metadata()?.len();
        *chunk.is_replaced.get_mut() = false;
        Ok(chunk)
    }
}

/// A file of some persons.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) path: PathBuf,
    /// All persons of the project with these numbers were put in.
    pub(super) numbers: Range<i64>,
    /// How many they were.
    pub(super) persons: usize,
    /// Whether they had properties that are not in the file.
    pub(super) has_others: bool,
    /// Whether it is so large that no further persons should be put in.
    pub(super) is_full: bool,
    /// Size of the file.
    pub(super) bytes: u64,
    is_replaced: AtomicBool,
}

impl Chunk {
    /// A file of before, if it is there.
    pub(super) fn find(directory: &Path, record: &ChunkRecord) -> Option<Self> {
        // A name, not a way to somewhere else.
        let path = directory.join(Path::new(&record.file).file_name()?);
        let file = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        Some(Self {
            path,
            numbers: record.start..record.end,
            persons: record.persons,
            has_others: record.has_others,
            is_full: record.is_full,
            bytes: file.len(),
            is_replaced: AtomicBool::new(false),
        })
    }

    /// By what it is found again.
    pub(super) fn record(&self) -> ChunkRecord {
        let file = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        ChunkRecord {
            file: file.unwrap_or_default(),
            start: self.numbers.start,
            end: self.numbers.end,
            persons: self.persons,
            has_others: self.has_others,
            is_full: self.is_full,
            stale_since: None,
        }
    }

    /// The file goes once nobody reads it any more.
    pub(super) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// The persons with these properties as they were. `None` if the file cannot tell.
    pub(super) fn read(&self, keys: &[Box<str>]) -> Result<Option<Rows>, ChunkError> {
        let file = ParquetRecordBatchReaderBuilder::try_new(File::open(&self.path)?)?;
        let mut rows = Rows::new(keys, 0);
        let names = rows.names();
        let is_wanted =
            |name: &str| names.contains(&name) || [NUMBER, CREATED_AT, IDENTIFIED].contains(&name);
        let fields = file.schema().fields().iter().enumerate();
        let wanted: Vec<usize> =
            fields.filter(|(_, field)| is_wanted(field.name())).map(|(at, _)| at).collect();
        if self.has_others && wanted.len() < names.len() + 3 {
            return Ok(None);
        }
        let mask = ProjectionMask::roots(file.parquet_schema(), wanted);
        for batch in file.with_projection(mask).with_batch_size(self.persons.max(1)).build()? {
            load(&mut rows, &batch?).ok_or(ChunkError::Columns)?;
        }
        if rows.len() != self.persons {
            return Err(ChunkError::Columns);
        }
        Ok(Some(rows))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if *self.is_replaced.get_mut()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            let path = self.path.display().to_string();
            tracing::warn!(%error, path, "columns of persons are removed at the next start");
        }
    }
}

/// Adds the persons of a batch. `None` if it is not what was written, or does not fit.
fn load(rows: &mut Rows, batch: &RecordBatch) -> Option<()> {
    let numbers = batch.column_by_name(NUMBER)?.as_any().downcast_ref::<Int64Array>()?;
    let created = batch.column_by_name(CREATED_AT)?.as_any().downcast_ref::<Int64Array>()?;
    let identified = batch.column_by_name(IDENTIFIED)?.as_any().downcast_ref::<BooleanArray>()?;
    let persons = numbers.values().iter().zip(created.values()).zip(identified.values());
    let persons = persons.map(|((number, created), is)| (*number, *created, is));
    rows.extend(persons, |name| {
        let values = batch.column_by_name(name)?.as_any();
        let values = values.downcast_ref::<DictionaryArray<Int32Type>>()?;
        let texts = values.values().as_any().downcast_ref::<StringArray>()?;
        let texts = (0..texts.len()).map(|at| texts.value(at)).collect();
        Some((texts, values.keys_iter().collect()))
    })
    .ok()
}
