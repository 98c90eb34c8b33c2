//! A batch of a Parquet file with its columns as texts and times.

use std::borrow::Cow;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::json::LineDelimitedWriter;
use uuid::Uuid;

use crate::refusal::Cause;
use weir_base::clock::UnixMicros;

/// A batch as lines of JSON.
pub(super) fn json(batch: &RecordBatch) -> Result<Vec<u8>, Cause> {
    let mut writer = LineDelimitedWriter::new(Vec::new());
    writer.write(batch).and_then(|()| writer.finish()).map_err(|error| broken(&error))?;
    Ok(writer.into_inner())
}

pub(super) fn broken(error: &impl ToString) -> Cause {
    Cause::Parquet(error.to_string())
}

/// A batch with its columns as texts and times.
#[derive(Debug)]
pub struct Columns {
    batch: RecordBatch,
    columns: Vec<Column>,
}

#[derive(Debug)]
enum Column {
    Text(StringArray),
    Uuid(FixedSizeBinaryArray),
    Time(TimestampMicrosecondArray),
    /// Of a type that is neither.
    Other,
}

impl Columns {
    pub(super) fn new(batch: &RecordBatch) -> Result<Self, Cause> {
        let columns = batch.columns().iter().map(Column::of).collect::<Result<_, _>>()?;
        Ok(Self { batch: batch.clone(), columns })
    }

    /// Names of the columns, in their order. While it is held, columns in another order have another one.
    pub fn schema(&self) -> &SchemaRef {
        self.batch.schema_ref()
    }

    /// The position of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.schema().index_of(name).ok()
    }

    /// The text of a value. `None` for NULL, and for columns of types that are not written as text.
    pub fn text(&self, position: Option<usize>, row: usize) -> Option<Cow<'_, str>> {
        match self.columns.get(position?)? {
            Column::Text(values) if row < values.len() && values.is_valid(row) => {
                Some(Cow::Borrowed(values.value(row)))
            }
            Column::Uuid(values) if row < values.len() && values.is_valid(row) => {
                Some(Cow::Owned(Uuid::from_slice(values.value(row)).ok()?.to_string()))
            }
            Column::Time(_) => self.time(position, row).map(|at| Cow::Owned(at.to_rfc3339())),
            Column::Text(_) | Column::Uuid(_) | Column::Other => None,
        }
    }

    /// A time, if the column has times.
    pub fn time(&self, position: Option<usize>, row: usize) -> Option<UnixMicros> {
        match self.columns.get(position?)? {
            Column::Time(values) if row < values.len() && values.is_valid(row) => {
                Some(UnixMicros(values.value(row)))
            }
            _ => None,
        }
    }

    /// A row as JSON.
    pub fn json(&self, row: usize) -> String {
        let text = json(&self.batch.slice(row.min(self.batch.num_rows().saturating_sub(1)), 1));
        text.map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).trim().to_owned())
    }
}

impl Column {
    fn of(values: &ArrayRef) -> Result<Self, Cause> {
        let to = |kind: &DataType| cast(values, kind).map_err(|error| broken(&error));
        Ok(match values.data_type() {
            DataType::FixedSizeBinary(16) => match values.as_fixed_size_binary_opt() {
                Some(values) => Self::Uuid(values.clone()),
                None => Self::Other,
            },
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => {
                let zone = Some("+00:00".into());
                let micros = to(&DataType::Timestamp(TimeUnit::Microsecond, zone))?;
                micros
                    .as_primitive_opt::<TimestampMicrosecondType>()
                    .map_or(Self::Other, |values| Self::Time(values.clone()))
            }
            kind if kind.is_nested() || kind.is_null() => Self::Other,
            _ => match to(&DataType::Utf8)?.as_string_opt::<i32>() {
                Some(values) => Self::Text(values.clone()),
                None => Self::Other,
            },
        })
    }
}
