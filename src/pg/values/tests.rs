//! Values in both forms. Expectations: PostgreSQL 15, by `SELECT x` and by the functions `..._send`.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float64Array, Int64Array, ListArray, StringArray, StringViewArray, StructArray,
    TimestampNanosecondArray, UInt8Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type};

use super::Cells;
use crate::types::Kind;
use crate::wire::frontend::Format;

fn written(column: &ArrayRef, row: usize, format: Format) -> Option<Vec<u8>> {
    let kind = Kind::of_type(column.data_type());
    let cells = Cells::new(kind, column).unwrap();
    let mut out = Vec::new();
    cells.put(row, format, &mut out);
    let (length, value) = out.split_at(4);
    let length = i32::from_be_bytes(length.try_into().unwrap());
    (length >= 0).then(|| {
        assert_eq!(usize::try_from(length).unwrap(), value.len());
        value.to_vec()
    })
}

#[test]
fn values_have_both_forms() {
    let lists = [Some(vec![Some(1), None]), Some(vec![]), None];
    let numbers: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    let mut texts = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
    texts.append_value([Some("a"), Some("b c"), Some(""), Some("NULL"), Some("q\"\\"), None]);
    let texts: ArrayRef = Arc::new(texts.finish());
    let whole = Arc::new(Field::new("x", DataType::Int64, true));
    let pair: ArrayRef =
        Arc::new(StructArray::from(vec![(whole, Arc::new(Int64Array::from(vec![7])) as ArrayRef)]));
    let words = DictionaryArray::<Int32Type>::from_iter([Some("w"), None]);
    let decimals = Decimal128Array::from(vec![Some(-150), None]).with_precision_and_scale(10, 2);
    let times = TimestampNanosecondArray::from(vec![Some(946_684_801_500_000_000), None]);
    let two = |value: &str| [value.to_owned().into_bytes(), Vec::new()];
    for (column, text, binary) in [
        (Arc::new(BooleanArray::from(vec![Some(true), None])) as ArrayRef, "t", vec![1]),
        (Arc::new(UInt8Array::from(vec![Some(200), None])), "200", vec![0, 200]),
        (Arc::new(UInt64Array::from(vec![Some(5), None])), "5", vec![0, 0, 0, 0, 0, 0, 0, 5]),
        (
            Arc::new(Float64Array::from(vec![Some(-0.5), None])),
            "-0.5",
            vec![0xbf, 0xe0, 0, 0, 0, 0, 0, 0],
        ),
        (Arc::new(StringViewArray::from(vec![Some("é"), None])), "é", "é".into()),
        (Arc::new(StringArray::from(vec![Some(""), None])), "", vec![]),
        (Arc::new(words), "w", b"w".to_vec()),
        (Arc::new(BinaryArray::from(vec![Some(&b"\0\xff"[..]), None])), "\\x00ff", vec![0, 255]),
        (Arc::new(Date32Array::from(vec![Some(10_958), None])), "2000-01-02", vec![0, 0, 0, 1]),
        (
            Arc::new(times.with_timezone("Asia/Tokyo")),
            "2000-01-01 00:00:01.5+00",
            1_500_000_i64.to_be_bytes().to_vec(),
        ),
        (Arc::new(decimals.unwrap()), "-1.50", vec![0, 2, 0, 0, 0x40, 0, 0, 2, 0, 1, 0x13, 0x88]),
        (
            Arc::clone(&numbers),
            "{1,NULL}",
            [
                &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 1][..],
                &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255],
            ]
            .concat(),
        ),
        (Arc::clone(&pair), "{\"x\":7}", b"{\"x\":7}".to_vec()),
    ] {
        let expected = two(text)[0].clone();
        assert_eq!(written(&column, 0, Format::Text), Some(expected), "{}", column.data_type());
        assert_eq!(written(&column, 0, Format::Binary), Some(binary), "{}", column.data_type());
        if column.len() == 2 {
            assert_eq!(written(&column, 1, Format::Text), None);
            assert_eq!(written(&column, 1, Format::Binary), None);
        }
    }
    assert_eq!(written(&numbers, 1, Format::Text), Some(b"{}".to_vec()));
    let empty = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20].to_vec();
    assert_eq!(written(&numbers, 1, Format::Binary), Some(empty));
    assert_eq!(written(&numbers, 2, Format::Text), None);
    let quoted = r#"{a,"b c","","NULL","q\"\\",NULL}"#;
    assert_eq!(written(&texts, 0, Format::Text), Some(quoted.as_bytes().to_vec()));
}

#[test]
fn a_value_that_does_not_fit_is_an_error() {
    let column: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    let error = Cells::new(Kind::of_type(column.data_type()), &column).unwrap_err();
    assert_eq!(error.code, "22003");
}
