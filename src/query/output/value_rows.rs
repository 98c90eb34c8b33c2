//! Writing of rows of JSON values, such as those of a list, as Parquet or Arrow: [`written`].

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use serde_json::Value;

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
    let mut taken = HashSet::new();
    let fields: Vec<Field> = names
        .iter()
        .zip(&columns)
        .map(|(name, column)| {
            Field::new(unlike(name, &mut taken), column.data_type().clone(), true)
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    let mut file = Vec::new();
    rows::write(format, &schema, &[batch], &mut file)?;
    Ok(file)
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
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Arc::new(values().map(|own| own.map(text)).collect::<StringArray>())
}

/// A name that no earlier column has: readers find columns by name.
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

    use super::written;
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
    fn nothing_is_a_file_too() {
        for format in [Format::Arrow, Format::Parquet, Format::Csv] {
            written(format, &["a".to_owned()], &[]).unwrap();
        }
    }
}
