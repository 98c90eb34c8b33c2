//! Reads a file of the persons table: columns of a project's persons, rows of them, or who is in it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int64Array, PrimitiveArray, RecordBatch,
    StringBuilder, StringDictionaryBuilder, StringViewBuilder, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{
    ArrowDictionaryKeyType, DataType, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStore;
use parquet::arrow::ProjectionMask;
use parquet::errors::ParquetError;

use crate::persons::person_rows::{PROPERTY, Selecting};
use crate::persons::person_table::draft::PROPERTIES_MAX;
use crate::persons::person_table::schema::TableOf;
use weir_event::id::ProjectId;
use weir_identity::person_set::PersonKey;
use weir_identity::row;
use weir_identity::row::Key;
use weir_storage::delta::DataFile;
use weir_storage::parquet::open_as;

/// Columns that tell who a person is.
const PLACE: [&str; 2] = ["project_id", "id"];
const PROPERTIES: &str = "properties";

/// Columns of the persons of a project, whole.
///
/// # Errors
///
/// The file cannot be read, or is none of the table.
pub(crate) async fn columns(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    project: ProjectId,
    wanted: &[Selecting],
) -> Result<Vec<ArrayRef>, ParquetError> {
    let names: Vec<String> = wanted.iter().map(Selecting::name).collect();
    let builder = open_as(store, file, dictionary).await?;
    let fields = builder.schema().fields();
    let own = fields.iter().filter(|field| field.name().starts_with(PROPERTY)).count();
    let is_there = |name: &String| fields.iter().any(|field| field.name() == name);
    // What has no column is in the text, if not all had room.
    let needs_text = own >= PROPERTIES_MAX && !names.iter().all(is_there);
    let is_wanted = |name: &str| {
        PLACE.contains(&name)
            || names.iter().any(|own| own == name)
            || (needs_text && name == PROPERTIES)
    };
    let fields = fields.iter().enumerate().filter(|(_, field)| is_wanted(field.name()));
    let read: Vec<usize> = fields.map(|(at, _)| at).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), read);
    let rows = usize::try_from(file.rows).unwrap_or(usize::MAX).max(1);
    let batches = builder.with_projection(mask).with_batch_size(rows).build()?;
    let batches: Vec<RecordBatch> = batches.try_collect().await?;
    let schema = batches.first().ok_or_else(foreign)?.schema();
    let batch = concat_batches(&schema, &batches)?;
    if u64::try_from(batch.num_rows()) != Ok(file.rows) {
        return Err(foreign());
    }
    let range = place_range(&batch, project, &(i64::MIN..i64::MAX)).ok_or_else(foreign)?;
    let own_rows = (0..range.len()).filter_map(|row| u32::try_from(row).ok());
    let own_rows = UInt32Array::from_iter_values(own_rows);
    let column = |(column, name): (&Selecting, &String)| {
        let found = batch.column_by_name(name).map(|own| own.slice(range.start, range.len()));
        match (column, found) {
            (Selecting::Own(_), Some(own)) if range.len() == batch.num_rows() => Some(own),
            // A slice would keep all rows.
            (Selecting::Own(_), Some(own)) => take(&own, &own_rows, None).ok(),
            (Selecting::Own(_), None) => None,
            (Selecting::Property(_), Some(own)) => dictionary_of(&*own),
            (Selecting::Property(key), None) => {
                let texts = batch.column_by_name(PROPERTIES);
                let texts = texts.map(|texts| texts.slice(range.start, range.len()));
                dictionary_of_texts(texts.as_ref(), key, range.len())
            }
        }
    };
    let columns: Option<_> = wanted.iter().zip(&names).map(column).collect();
    columns.ok_or_else(foreign)
}

/// Columns of properties are read as dictionaries.
fn dictionary(name: &str) -> Option<DataType> {
    let dictionary = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    name.starts_with(PROPERTY).then(dictionary)
}

fn column_name(key: &Key) -> String {
    format!("{PROPERTY}{}", key.json())
}

/// Rows of a file, batch by batch.
pub(crate) struct FileRows {
    batches: BoxStream<'static, Result<RecordBatch, ParquetError>>,
    project: ProjectId,
    numbers: Range<i64>,
    names: Vec<String>,
    /// The properties that `properties` is to have; without them it has all.
    keys: Option<Vec<Key>>,
}

/// Some of the rows.
pub(crate) struct FileBatch {
    /// Numbers of the persons.
    pub(crate) ids: Int64Array,
    /// The columns that were asked for.
    pub(crate) columns: Vec<ArrayRef>,
}

/// What a scan reads of persons.
#[derive(Clone, Debug)]
pub(crate) struct ScanColumns<'k> {
    /// The names of the columns.
    pub(crate) names: Vec<String>,
    /// If they are given `properties` has only these, where they have columns.
    pub(crate) keys: Option<&'k [Key]>,
}

/// These columns of a project's persons with these numbers, texts as views, in batches of at most `rows`.
///
/// # Errors
///
/// The file cannot be read.
pub(crate) async fn scan(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    project: ProjectId,
    numbers: Range<i64>,
    columns: ScanColumns<'_>,
    rows: usize,
) -> Result<FileRows, ParquetError> {
    let ScanColumns { names, keys } = columns;
    let is_asked = |name: &str| names.iter().any(|own| own == name);
    let view = |name: &str| match name {
        "uuid" | PROPERTIES => Some(DataType::Utf8View),
        name => dictionary(name),
    };
    let builder = open_as(store, file, view).await?;
    let fields = builder.schema().fields();
    let own = fields.iter().filter(|field| field.name().starts_with(PROPERTY)).count();
    // If some properties have no column, they are in the text.
    let keys = keys.filter(|_| own < PROPERTIES_MAX && is_asked(PROPERTIES)).map(<[Key]>::to_vec);
    let columns: Vec<String> = keys.iter().flatten().map(column_name).collect();
    let is_wanted = |name: &str| {
        let is_text = name == PROPERTIES && keys.is_some();
        PLACE.contains(&name)
            || (is_asked(name) && !is_text)
            || columns.iter().any(|column| column == name)
    };
    let fields = fields.iter().enumerate().filter(|(_, field)| is_wanted(field.name()));
    let wanted: Vec<usize> = fields.map(|(at, _)| at).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
    let batches = builder.with_projection(mask).with_batch_size(rows).build()?.boxed();
    Ok(FileRows { batches, project, numbers, names, keys })
}

impl FileRows {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is none of the table.
    pub(crate) async fn next(&mut self) -> Result<Option<FileBatch>, ParquetError> {
        while let Some(batch) = self.batches.try_next().await? {
            let range = place_range(&batch, self.project, &self.numbers).ok_or_else(foreign)?;
            if !range.is_empty() {
                let batch = batch.slice(range.start, range.len());
                return self.columns(&batch).ok_or_else(foreign).map(Some);
            }
        }
        Ok(None)
    }

    fn columns(&self, batch: &RecordBatch) -> Option<FileBatch> {
        let column = |name: &String| match (&self.keys, name.as_str()) {
            (Some(keys), PROPERTIES) => some_properties(batch, keys),
            _ => batch.column_by_name(name).cloned(),
        };
        let columns = self.names.iter().map(column).collect::<Option<_>>()?;
        let ids = batch.column_by_name("id")?.as_primitive_opt::<Int64Type>()?.clone();
        Some(FileBatch { ids, columns })
    }
}

/// JSON objects with these properties of persons.
fn some_properties(batch: &RecordBatch, keys: &[Key]) -> Option<ArrayRef> {
    let mut columns = Vec::new();
    for key in keys {
        // Without a column nobody has it.
        let Some(column) = batch.column_by_name(&column_name(key)) else { continue };
        let column = column.as_dictionary_opt::<Int32Type>()?;
        columns.push((key, column.keys(), column.values().as_string_opt::<i32>()?));
    }
    let (mut texts, mut text) = (StringViewBuilder::with_capacity(batch.num_rows()), String::new());
    for row in 0..batch.num_rows() {
        text.clear();
        text.push('{');
        for (key, own, values) in columns.iter().filter(|(_, own, _)| own.is_valid(row)) {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(key.json());
            text.push(':');
            text.push_str(values.value(usize::try_from(own.value(row)).ok()?));
        }
        text.push('}');
        texts.append_value(&text);
    }
    Some(Arc::new(texts.finish()))
}

/// Who is in a file, in the order of the table, each person once.
///
/// # Errors
///
/// The file cannot be read, or is none of the table.
pub(super) async fn places(
    kind: TableOf,
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
) -> Result<Vec<PersonKey>, ParquetError> {
    let [project, number] = kind.place();
    let builder = open_as(store, file, |_| None).await?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), kind.place());
    let mut batches = builder.with_projection(mask).build()?;
    let mut places = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let project = numbers_of(&batch, project).ok_or_else(foreign)?;
        let number = numbers_of(&batch, number).ok_or_else(foreign)?;
        let own =
            project.iter().zip(number).map(|(project, number)| (ProjectId(*project), *number));
        places.extend(own);
    }
    if u64::try_from(places.len()) != Ok(file.rows) || !places.is_sorted() {
        return Err(foreign());
    }
    // A person has as many rows as distinct ids in the table of these.
    places.dedup();
    Ok(places)
}

/// A dictionary with only such values as persons have, and places as small as these allow.
fn dictionary_of(column: &dyn Array) -> Option<ArrayRef> {
    let column = column.as_dictionary_opt::<Int32Type>()?;
    let dictionary = column.values().as_string_opt::<i32>()?;
    let mut known: Vec<Option<u32>> = vec![None; dictionary.len()];
    let (mut values, mut count) = (StringBuilder::new(), 0);
    let mut places = Vec::with_capacity(column.len());
    for key in column.keys_iter() {
        let place = key.and_then(|key| Some((key, known.get_mut(key)?)));
        places.push(place.map_or(0, |(key, known)| {
            *known.get_or_insert_with(|| {
                values.append_value(dictionary.value(key));
                count += 1;
                count - 1
            })
        }));
    }
    narrow(&places, column.nulls().cloned(), Arc::new(values.finish()))
}

/// The same of a property in texts of all properties; without them nobody has it.
fn dictionary_of_texts(texts: Option<&ArrayRef>, key: &Key, rows: usize) -> Option<ArrayRef> {
    let mut values = StringDictionaryBuilder::<UInt32Type>::new();
    match texts {
        None => values.append_nulls(rows),
        Some(texts) => texts.as_string_opt::<i32>()?.iter().for_each(|text| {
            values.append_option(text.and_then(|text| row::property(text, key)));
        }),
    }
    let column = values.finish();
    narrow(column.keys().values(), column.nulls().cloned(), Arc::clone(column.values()))
}

fn narrow(places: &[u32], nulls: Option<NullBuffer>, values: ArrayRef) -> Option<ArrayRef> {
    fn of<T: ArrowDictionaryKeyType>(
        places: &[u32],
        nulls: Option<NullBuffer>,
        values: ArrayRef,
    ) -> Option<ArrayRef>
    where
        T::Native: TryFrom<u32>,
    {
        let place = |place: &u32| T::Native::try_from(*place).unwrap_or_default();
        let places = PrimitiveArray::<T>::new(places.iter().map(place).collect(), nulls);
        Some(Arc::new(DictionaryArray::try_new(places, values).ok()?))
    }
    match values.len() {
        0..=0x100 => of::<UInt8Type>(places, nulls, values),
        0x101..=0x1_0000 => of::<UInt16Type>(places, nulls, values),
        _ => of::<UInt32Type>(places, nulls, values),
    }
}

/// Which rows of a batch, which is in the order of the table, are of a project's persons with these numbers.
fn place_range(
    batch: &RecordBatch,
    project: ProjectId,
    numbers: &Range<i64>,
) -> Option<Range<usize>> {
    let (projects, own) = (numbers_of(batch, "project_id")?, numbers_of(batch, "id")?);
    let first = projects.partition_point(|other| *other < project.0);
    let end = projects.partition_point(|other| *other <= project.0);
    let own = own.get(first..end)?;
    let start = own.partition_point(|number| *number < numbers.start);
    let length = own.partition_point(|number| *number < numbers.end);
    Some(first + start..first + length.max(start))
}

fn numbers_of<'b>(batch: &'b RecordBatch, name: &str) -> Option<&'b [i64]> {
    Some(batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?.values())
}

fn foreign() -> ParquetError {
    ParquetError::General("the file has other columns or rows than one of the table".to_owned())
}
