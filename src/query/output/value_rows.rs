//! Writing of rows of JSON values, such as those of a list, as Parquet or Arrow: all at once ([`written`]), or part by
//! part ([`ValueFile`]).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use serde_json::Value;

use crate::output::encoder::Encoder;
use crate::output::format::Format;
use crate::output::rows;

/// Rows with the columns `names`, written as `format`. A column is of type number or boolean if all of its values are,
/// else text; lists and objects are written as JSON. Values missing at the end of a row are null.
///
/// # Errors
///
/// The format has no form for the rows.
pub fn written(
    format: Format,
    names: &[String],
    rows: &[Vec<Value>],
) -> Result<Vec<u8>, ArrowError> {
    let columns: Vec<ArrayRef> = (0..names.len()).map(|at| column(rows, at)).collect();
    let fields = distinct(names).into_iter().zip(&columns);
    let fields = fields.map(|(name, column)| Field::new(name, column.data_type().clone(), true));
    let fields: Vec<Field> = fields.collect();
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    let mut file = Vec::new();
    rows::write(format, &schema, &[batch], &mut file)?;
    Ok(file)
}

/// The type of a column that is known before its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers of 64 bits.
    Whole,
    /// True or false.
    Flag,
    /// Texts; other values are written as JSON.
    Text,
}

/// A file with known columns that is written part by part. Values of another type than their column are null.
pub struct ValueFile {
    encoder: Encoder,
    schema: SchemaRef,
    kinds: Vec<Kind>,
}

impl ValueFile {
    /// A file without rows.
    ///
    /// # Errors
    ///
    /// The format is not written part by part.
    pub fn new(format: Format, columns: &[(&str, Kind)]) -> Result<Self, ArrowError> {
        let data_type = |kind: &Kind| match kind {
            Kind::Whole => DataType::Int64,
            Kind::Flag => DataType::Boolean,
            Kind::Text => DataType::Utf8,
        };
        let fields = columns.iter().map(|(name, kind)| Field::new(*name, data_type(kind), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let kinds = columns.iter().map(|(_, kind)| *kind).collect();
        Ok(Self { encoder: Encoder::new(format, &schema)?, schema, kinds })
    }

    /// Adds rows with a value for each column, and returns what is written of the file since the last call.
    ///
    /// # Errors
    ///
    /// The texts of a column take more than 2 GiB.
    pub fn add(&mut self, rows: &[Vec<Value>]) -> Result<Vec<u8>, ArrowError> {
        let columns = self.kinds.iter().enumerate();
        let columns = columns.map(|(at, kind)| typed(rows, at, *kind)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        self.encoder.write(&batch)?;
        Ok(self.encoder.take())
    }

    /// The end of the file.
    ///
    /// # Errors
    ///
    /// A bug.
    pub fn finish(self) -> Result<Vec<u8>, ArrowError> {
        self.encoder.finish()
    }
}

fn typed(rows: &[Vec<Value>], at: usize, kind: Kind) -> ArrayRef {
    let values = rows.iter().map(|row| row.get(at).filter(|value| !value.is_null()));
    match kind {
        Kind::Whole => Arc::new(values.map(|own| own?.as_i64()).collect::<Int64Array>()),
        Kind::Flag => Arc::new(values.map(|own| own?.as_bool()).collect::<BooleanArray>()),
        Kind::Text => Arc::new(values.map(|own| own.map(text)).collect::<StringArray>()),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn column(rows: &[Vec<Value>], at: usize) -> ArrayRef {
    let values = || rows.iter().map(|row| row.get(at).filter(|value| !value.is_null()));
    let are = |is: fn(&Value) -> bool| values().flatten().all(is);
    if values().flatten().next().is_some() {
        if are(Value::is_i64) {
            return Arc::new(values().map(|own| own?.as_i64()).collect::<Int64Array>());
        }
        if are(Value::is_number) {
            return Arc::new(values().map(|own| own?.as_f64()).collect::<Float64Array>());
        }
        if are(Value::is_boolean) {
            return Arc::new(values().map(|own| own?.as_bool()).collect::<BooleanArray>());
        }
    }
    Arc::new(values().map(|own| own.map(text)).collect::<StringArray>())
}

/// The names of columns, each once: readers find columns by name.
pub fn distinct(names: &[String]) -> Vec<String> {
    let mut taken = HashSet::new();
    names.iter().map(|name| unlike(name, &mut taken)).collect()
}

/// A name that no earlier column has.
fn unlike(name: &str, taken: &mut HashSet<String>) -> String {
    let numbers = (2_usize..).map(|number| format!("{name} ({number})"));
    let mut names = std::iter::once(name.to_owned()).chain(numbers);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Float64Type, Int64Type};
    use arrow::ipc::reader::StreamReader;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
    use serde_json::{Value, json};

    use super::{Kind, ValueFile, written};
    use crate::output::format::Format;

    fn rows() -> (Vec<String>, Vec<Vec<Value>>) {
        let names = ["a", "b", "a", "c", "d", "e"].map(str::to_owned).to_vec();
        let rows = vec![
            vec![json!(1), json!(1), json!(true), json!("x"), json!({"k": [1]}), Value::Null],
            vec![json!(-2), json!(0.5), Value::Null, json!(7), json!(null)],
        ];
        (names, rows)
    }

    #[test]
    fn columns_have_the_types_of_their_values() {
        let (names, rows) = rows();
        let arrow = written(Format::Arrow, &names, &rows).unwrap();
        let arrow: Vec<_> =
            StreamReader::try_new(&*arrow, None).unwrap().map(Result::unwrap).collect();
        let parquet = Bytes::from(written(Format::Parquet, &names, &rows).unwrap());
        let parquet = ParquetRecordBatchReader::try_new(parquet, 1024).unwrap();
        let parquet: Vec<_> = parquet.map(Result::unwrap).collect();
        assert_eq!(arrow, parquet);
        let [batch] = &arrow[..] else { panic!("one batch") };
        let schema = batch.schema();
        let shown: Vec<_> =
            schema.fields().iter().map(|own| (own.name().as_str(), own.data_type())).collect();
        let text = &DataType::Utf8;
        let expected = [
            ("a", &DataType::Int64),
            ("b", &DataType::Float64),
            ("a (2)", &DataType::Boolean),
            ("c", text),
            ("d", text),
            ("e", text),
        ];
        assert_eq!(shown, expected);
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[1, -2]);
        assert_eq!(batch.column(1).as_primitive::<Float64Type>().values(), &[1.0, 0.5]);
        assert_eq!(batch.column(3).as_string::<i32>().value(1), "7");
        assert_eq!(batch.column(4).as_string::<i32>().value(0), "{\"k\":[1]}");
        assert_eq!(batch.column(5).null_count(), 2);
    }

    #[test]
    fn columns_can_be_known_before_their_values() {
        let columns = [("n", Kind::Whole), ("is", Kind::Flag), ("t", Kind::Text)];
        let mut file = ValueFile::new(Format::Arrow, &columns).unwrap();
        let mut bytes = file.add(&[vec![Value::Null, Value::Null, json!([1, "a"])]]).unwrap();
        bytes.extend(
            file.add(&[vec![json!(7), json!(true), json!("x")], vec![json!("7")]]).unwrap(),
        );
        bytes.extend(file.finish().unwrap());
        let batches: Vec<_> =
            StreamReader::try_new(&*bytes, None).unwrap().map(Result::unwrap).collect();
        let [first, second] = &batches[..] else { panic!("two batches") };
        assert_eq!(first.column(2).as_string::<i32>().value(0), "[1,\"a\"]");
        assert_eq!((first.column(0).null_count(), first.column(1).null_count()), (1, 1));
        assert_eq!(second.column(0).as_primitive::<Int64Type>().value(0), 7);
        assert!(second.column(1).as_boolean().value(0));
        assert_eq!(second.column(0).null_count(), 1, "a text is no number");
    }

    #[test]
    fn nothing_is_a_file_too() {
        for format in [Format::Arrow, Format::Parquet, Format::Csv] {
            written(format, &["a".to_owned()], &[]).unwrap();
        }
    }
}
