//! Files in the schema of PostHog's batch exports, written from the rows of a query: what reads PostHog's files reads these,
//! and [`crate::source`] reads them back. What an import has added to events is taken out again.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, StringBuilder,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::event::unmarked;
use crate::json_text::write_quoted;
use crate::refusal::Cause;
use weir_base::clock::UnixMicros;

/// Rows that are rewritten at once.
const BATCH_ROWS: usize = 1_024;
/// Rows of a row group.
const GROUP_ROWS: usize = 100_000;

/// What the rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Events: `uuid`, `event`, `distinct_id`, `person_id`, `properties`, `person_properties`, `elements_chain`, `timestamp`
    /// and `received_at`.
    Events,
    /// Distinct ids with their persons: `distinct_id`, `person_id`, `properties` and `created_at`.
    Persons,
}

/// Writes the rows of a Parquet file as a Parquet file, and returns how many they are.
///
/// # Errors
///
/// The file cannot be read, lacks a column, or the output cannot be written.
pub fn write_parquet(rows: Rows, answer: File, out: impl Write + Send) -> Result<u64, Cause> {
    let schema = rows.schema();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties));
    let mut writer = writer.map_err(|error| broken(&error))?;
    let mut count = 0;
    for batch in batches(answer)? {
        let batch = rows.rewritten(&batch.map_err(|error| broken(&error))?, &schema)?;
        count += batch.num_rows();
        writer.write(&batch).map_err(|error| broken(&error))?;
    }
    writer.close().map_err(|error| broken(&error))?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Writes them as JSON lines.
///
/// # Errors
///
/// As of [`write_parquet`].
pub fn write_lines(rows: Rows, answer: File, mut out: impl Write) -> Result<u64, Cause> {
    let schema = rows.schema();
    let (mut count, mut lines) = (0, Vec::new());
    for batch in batches(answer)? {
        let batch = rows.rewritten(&batch.map_err(|error| broken(&error))?, &schema)?;
        count += batch.num_rows();
        lines.clear();
        (0..batch.num_rows()).for_each(|row| line(&batch, row, &mut lines));
        out.write_all(&lines)?;
    }
    out.flush()?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

fn batches(answer: File) -> Result<ParquetRecordBatchReader, Cause> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(answer);
    let builder = builder.map_err(|error| broken(&error))?;
    builder.with_batch_size(BATCH_ROWS).build().map_err(|error| broken(&error))
}

fn broken(error: &impl ToString) -> Cause {
    Cause::Parquet(error.to_string())
}

fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

impl Rows {
    fn schema(self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let at = |name: &str| Field::new(name, time(), true);
        let number = |name: &str| Field::new(name, DataType::Int64, true);
        Arc::new(Schema::new(match self {
            Self::Events => vec![
                text("uuid"),
                text("event"),
                text("distinct_id"),
                text("person_id"),
                text("properties"),
                text("person_properties"),
                text("elements_chain"),
                at("timestamp"),
                at("created_at"),
                at("_inserted_at"),
            ],
            Self::Persons => vec![
                number("team_id"),
                text("distinct_id"),
                text("person_id"),
                text("properties"),
                number("person_distinct_id_version"),
                number("person_version"),
                at("created_at"),
                at("_inserted_at"),
                Field::new("is_deleted", DataType::Boolean, true),
            ],
        }))
    }

    fn rewritten(self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Cause> {
        let text = |name: &str| texts(batch, name);
        let columns: Vec<ArrayRef> = match self {
            Self::Events => {
                let received = times(batch, "received_at")?;
                let (properties, created) = amended(&text("properties")?, &received);
                let created: ArrayRef = Arc::new(created.with_timezone("UTC"));
                vec![
                    Arc::new(text("uuid")?),
                    Arc::new(text("event")?),
                    Arc::new(text("distinct_id")?),
                    Arc::new(text("person_id")?),
                    Arc::new(properties),
                    Arc::new(text("person_properties")?),
                    // Of events without elements PostHog has an empty one.
                    Arc::new(filled(&text("elements_chain")?)),
                    Arc::new(times(batch, "timestamp")?.with_timezone("UTC")),
                    Arc::clone(&created),
                    created,
                ]
            }
            Self::Persons => {
                let all = batch.num_rows();
                let created: ArrayRef = Arc::new(times(batch, "created_at")?.with_timezone("UTC"));
                vec![
                    Arc::new(Int64Array::from(vec![1; all])),
                    Arc::new(text("distinct_id")?),
                    Arc::new(text("person_id")?),
                    Arc::new(text("properties")?),
                    Arc::new(Int64Array::from(vec![0; all])),
                    Arc::new(Int64Array::from(vec![0; all])),
                    Arc::clone(&created),
                    created,
                    Arc::new(BooleanArray::from(vec![false; all])),
                ]
            }
        };
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(|error| broken(&error))
    }
}

/// Texts, empty where there are none.
fn filled(texts: &StringArray) -> StringArray {
    texts.iter().map(|text| Some(text.unwrap_or_default())).collect()
}

/// Properties without the marks of an import, and the times at which the source of the import had received the events.
fn amended(
    properties: &StringArray,
    received: &TimestampMicrosecondArray,
) -> (StringArray, TimestampMicrosecondArray) {
    let mut texts = StringBuilder::with_capacity(properties.len(), properties.value_data().len());
    let rows = properties.iter().zip(received.iter());
    let times = rows.map(|(text, received)| {
        let (text, created) = text.map_or((None, None), |text| {
            let (text, created) = unmarked(text);
            (Some(text), created)
        });
        texts.append_option(text);
        created.map(|at| at.0).or(received)
    });
    let times = times.collect();
    (texts.finish(), times)
}

fn column(batch: &RecordBatch, name: &str, kind: &DataType) -> Result<ArrayRef, Cause> {
    let values = batch.column_by_name(name);
    let values = values.ok_or_else(|| Cause::Parquet(format!("there is no column {name}")))?;
    cast(values, kind).map_err(|error| broken(&error))
}

fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray, Cause> {
    let values = column(batch, name, &DataType::Utf8)?;
    let found = values.as_string_opt::<i32>().cloned();
    found.ok_or_else(|| Cause::Parquet(format!("the column {name} is no text")))
}

fn times(batch: &RecordBatch, name: &str) -> Result<TimestampMicrosecondArray, Cause> {
    let values = column(batch, name, &time())?;
    let found = values.as_primitive_opt::<TimestampMicrosecondType>().cloned();
    found.ok_or_else(|| Cause::Parquet(format!("the column {name} has no times")))
}

/// Appends a row as a JSON line: objects as they are, times in ISO 8601.
fn line(batch: &RecordBatch, row: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, (field, values)) in
        batch.schema_ref().fields().iter().zip(batch.columns()).enumerate()
    {
        if place > 0 {
            out.push(b',');
        }
        write_quoted(out, field.name());
        out.push(b':');
        out.extend_from_slice(value(field.name(), values, row).as_bytes());
    }
    out.extend_from_slice(b"}\n");
}

fn value(name: &str, values: &ArrayRef, row: usize) -> Cow<'static, str> {
    if values.is_null(row) {
        return Cow::Borrowed("null");
    }
    let is_object = matches!(name, "properties" | "person_properties");
    match values.data_type() {
        DataType::Utf8 => {
            let text =
                values.as_string_opt::<i32>().map(|texts| texts.value(row)).unwrap_or_default();
            Cow::Owned(if is_object { text.to_owned() } else { crate::json_text::quoted(text) })
        }
        DataType::Timestamp(..) => {
            let times = values.as_primitive_opt::<TimestampMicrosecondType>();
            let at = UnixMicros(times.map_or(0, |times| times.value(row)));
            Cow::Owned(crate::json_text::quoted(&at.to_rfc3339()))
        }
        DataType::Int64 => {
            let numbers = values.as_primitive_opt::<arrow::datatypes::Int64Type>();
            Cow::Owned(numbers.map_or(0, |numbers| numbers.value(row)).to_string())
        }
        _ => Cow::Borrowed(match values.as_boolean_opt().is_some_and(|truths| truths.value(row)) {
            true => "true",
            false => "false",
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringViewArray, TimestampMicrosecondArray};
    use parquet::arrow::ArrowWriter;
    use serde_json::{Value, json};

    use super::{Rows, batches, write_lines, write_parquet};

    fn answer(columns: Vec<(&str, ArrayRef)>) -> File {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        file
    }

    fn text(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringViewArray::from(values.to_vec()))
    }

    fn events() -> File {
        let marked = r#"{"a":1,"$import_source":"x","$import_id":"y","$import_created_at":"2024-01-02T03:04:05.000006Z","$group_0":"g"}"#;
        let some = |value| text(&[Some(value), Some(value)]);
        let times = |at| -> ArrayRef {
            Arc::new(TimestampMicrosecondArray::from(vec![at, at]).with_timezone("UTC"))
        };
        answer(vec![
            ("uuid", some("u")),
            ("event", some("e\"")),
            ("distinct_id", some("d")),
            ("person_id", some("p")),
            ("properties", text(&[Some(marked), Some(r#"{ "b" : 1.0 }"#)])),
            ("person_properties", text(&[Some(r#"{"p":1}"#), None])),
            ("elements_chain", text(&[None, Some("a:x=\"1\"")])),
            ("timestamp", times(1)),
            ("received_at", times(2)),
        ])
    }

    #[test]
    fn events_have_the_schema_of_a_batch_export() {
        let mut lines = Vec::new();
        assert_eq!(write_lines(Rows::Events, events(), &mut lines).unwrap(), 2);
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.contains(r#""properties":{ "b" : 1.0 },"#), "as it was written: {lines}");
        let rows: Vec<Value> =
            lines.lines().map(|line| weir_event::json::read(line.as_bytes()).unwrap()).collect();
        let common = json!({"uuid": "u", "event": "e\"", "distinct_id": "d", "person_id": "p",
            "timestamp": "1970-01-01T00:00:00.000001Z"});
        let with = |more: Value| {
            let mut row = common.clone();
            row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            row
        };
        let (imported, received) = ("2024-01-02T03:04:05.000006Z", "1970-01-01T00:00:00.000002Z");
        assert_eq!(
            rows,
            [
                with(
                    json!({"properties": {"a": 1, "$group_0": "g"}, "person_properties": {"p": 1}, "elements_chain": "",
                    "created_at": imported, "_inserted_at": imported})
                ),
                with(
                    json!({"properties": {"b": 1.0}, "person_properties": null, "elements_chain": "a:x=\"1\"",
                    "created_at": received, "_inserted_at": received})
                ),
            ]
        );
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(write_parquet(Rows::Events, events(), &mut file).unwrap(), 2);
        let written: Vec<RecordBatch> = batches(file).unwrap().map(Result::unwrap).collect();
        assert_eq!(written[0].schema_ref().fields().len(), 10);
        assert_eq!(written[0].num_rows(), 2);
    }

    #[test]
    fn a_column_that_is_missing_is_named() {
        let file = answer(vec![("uuid", text(&[Some("u")]))]);
        let error = write_lines(Rows::Events, file, Vec::new()).unwrap_err();
        assert!(error.to_string().contains("there is no column"), "{error}");
    }
}
