//! Columns in types that every reader of Arrow and Parquet knows: texts and bytes with offsets instead of views, values
//! instead of dictionaries and runs, decimals of 128 bits.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;

/// The schema in plain types; the same one if it has no other.
pub(super) fn schema(given: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = given.fields().iter().map(field).collect();
    if fields.iter().zip(given.fields()).all(|(new, old)| Arc::ptr_eq(new, old)) {
        return Arc::clone(given);
    }
    Arc::new(Schema::new_with_metadata(fields, given.metadata().clone()))
}

/// The batch with the columns of a schema made by [`schema`].
///
/// # Errors
///
/// The texts of a column take more than 2 GiB.
pub(super) fn batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    });
    let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn field(given: &FieldRef) -> FieldRef {
    let plain = plain(given.data_type());
    match plain == *given.data_type() {
        true => Arc::clone(given),
        false => Arc::new(Field::clone(given).with_data_type(plain)),
    }
}

fn plain(given: &DataType) -> DataType {
    match given {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) => {
            DataType::Decimal128(*digits, *scale)
        }
        DataType::List(item) | DataType::ListView(item) => DataType::List(field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(field(item))
        }
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(field(entries), *is_sorted),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Array, ArrayRef, AsArray, BinaryViewArray, DictionaryArray, Int64Array, ListArray,
        RecordBatch, StringViewArray, StructArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{DataType, Field, Int32Type};

    use super::{batch, schema};

    #[test]
    fn no_view_and_no_dictionary_is_left_at_any_depth() {
        let text: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("a text that is longer than a view"), None]));
        let bytes: ArrayRef = Arc::new(BinaryViewArray::from(vec![Some(&b"\xff"[..]), None]));
        let words: DictionaryArray<Int32Type> = [Some("x"), None].into_iter().collect();
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let offsets = OffsetBuffer::new(vec![0, 1, 2].into());
        let list: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::clone(&text), None));
        let inner = Arc::new(Field::new("inner", list.data_type().clone(), true));
        let nested: ArrayRef = Arc::new(StructArray::from(vec![(inner, Arc::clone(&list))]));
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let columns: [(&str, ArrayRef); 6] = [
            ("text", text),
            ("bytes", bytes),
            ("words", Arc::new(words)),
            ("list", list),
            ("nested", nested),
            ("number", number),
        ];
        let given = RecordBatch::try_from_iter(columns).unwrap();
        let plain = schema(&given.schema());
        let made = batch(&given, &plain).unwrap();
        let types: Vec<String> =
            plain.fields().iter().map(|field| field.data_type().to_string()).collect();
        let (views, dictionaries) = (types.join(" ").contains("View"), types.join(" "));
        assert!(!views && !dictionaries.contains("Dictionary"), "{types:?}");
        assert_eq!(made.column(0).as_string::<i32>().value(0), "a text that is longer than a view");
        assert!(
            made.column(0).is_null(1) && made.column(1).is_null(1) && made.column(2).is_null(1)
        );
        assert_eq!(made.column(1).as_binary::<i32>().value(0), b"\xff");
        assert_eq!(made.column(2).as_string::<i32>().value(0), "x");
        let inner = made.column(4).as_struct().column(0).as_list::<i32>().value(0);
        assert_eq!(inner.as_string::<i32>().value(0), "a text that is longer than a view");
        // What is plain already stays what it is.
        assert!(Arc::ptr_eq(&schema(&plain), &plain));
    }
}
