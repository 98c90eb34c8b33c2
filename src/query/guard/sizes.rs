//! Bytes of the values of an array, per row. An array of views stores a long value once however many rows refer to it,
//! so its size in memory does not indicate the size of a copy of its rows.

use arrow::array::{Array, AsArray, OffsetSizeTrait};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowDictionaryKeyType, DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};

/// Bytes of a view: length, prefix, and location of the value.
const VIEW_BYTES: usize = 16;

/// How values behind views are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Views {
    /// In full, for operations that copy the values.
    Expanded,
    /// As references, for operations that copy the views.
    Shared,
}

/// Bytes of each row.
pub(super) fn rows(array: &dyn Array, views: Views) -> Vec<usize> {
    let count = array.len();
    match array.data_type() {
        DataType::Utf8 => by_offsets(array.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => by_offsets(array.as_string::<i64>().offsets()),
        DataType::Binary => by_offsets(array.as_binary::<i32>().offsets()),
        DataType::LargeBinary => by_offsets(array.as_binary::<i64>().offsets()),
        DataType::Utf8View => by_views(array.as_string_view().views(), views),
        DataType::BinaryView => by_views(array.as_binary_view().views(), views),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            by_ranges(list.offsets(), &rows(list.values(), views))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            by_ranges(list.offsets(), &rows(list.values(), views))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            by_ranges(map.offsets(), &rows(map.entries(), views))
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0).max(1);
            let values = rows(array.as_fixed_size_list().values(), views);
            let mut sums: Vec<usize> = values.chunks(length).map(sum).collect();
            sums.resize(count, 0);
            sums
        }
        DataType::Struct(_) => {
            let mut sums = vec![0; count];
            for column in array.as_struct().columns() {
                add(&mut sums, &rows(column, views));
            }
            sums
        }
        DataType::Dictionary(..) => by_keys(array, views),
        other => vec![width(other).unwrap_or_else(|| average(array)); count],
    }
}

/// Total bytes of all rows.
pub(super) fn total(array: &dyn Array, views: Views) -> usize {
    if let Some(width) = width(array.data_type()) {
        return width.saturating_mul(array.len());
    }
    match array.data_type() {
        DataType::Utf8View => sum_of_views(array.as_string_view().views(), views),
        DataType::BinaryView => sum_of_views(array.as_binary_view().views(), views),
        _ => sum(&rows(array, views)),
    }
}

/// Bytes of a row of a fixed-width type; `None` for other types.
pub(super) fn width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok(),
        DataType::FixedSizeList(field, length) => {
            let length = usize::try_from(*length).ok()?;
            width(field.data_type()).map(|width| width.saturating_mul(length))
        }
        DataType::Struct(fields) => {
            let mut widths = fields.iter().map(|field| width(field.data_type()));
            widths.try_fold(0_usize, |sum, width| Some(sum.saturating_add(width?)))
        }
        other => other.primitive_width(),
    }
}

/// Minimum bytes of a null of this type: as much as a value, if the width is fixed.
pub(super) fn null_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeList(field, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            null_bytes(field.data_type()).saturating_mul(length)
        }
        DataType::Struct(fields) => {
            let bytes = fields.iter().map(|field| null_bytes(field.data_type()));
            bytes.fold(0, usize::saturating_add)
        }
        other => width(other).unwrap_or(VIEW_BYTES),
    }
}

/// Number of list elements of each row at this depth of nested lists, where an inner list without elements counts as
/// one; one for an array that is not a list.
pub(super) fn elements(array: &dyn Array, depth: usize) -> Vec<usize> {
    fn counts<O: OffsetSizeTrait>(
        offsets: &OffsetBuffer<O>,
        values: &dyn Array,
        depth: usize,
    ) -> Vec<usize> {
        if depth <= 1 {
            return offsets.lengths().collect();
        }
        let inner = elements(values, depth - 1).into_iter().map(|count| count.max(1));
        sums_of_ranges(offsets, &inner.collect::<Vec<_>>()).collect()
    }
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            counts(list.offsets(), list.values(), depth)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            counts(list.offsets(), list.values(), depth)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            counts(map.offsets(), map.entries(), depth)
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            if depth <= 1 {
                return vec![length; array.len()];
            }
            let inner = elements(array.as_fixed_size_list().values(), depth - 1);
            let inner: Vec<usize> = inner.into_iter().map(|count| count.max(1)).collect();
            let mut sums: Vec<usize> = inner.chunks(length.max(1)).map(sum).collect();
            sums.resize(array.len(), 0);
            sums
        }
        _ => vec![1; array.len()],
    }
}

/// Adds `more` to `sums`, row by row.
pub(super) fn add(sums: &mut [usize], more: &[usize]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

fn sum(values: &[usize]) -> usize {
    values.iter().fold(0, |sum: usize, value| sum.saturating_add(*value))
}

/// The value and its offset.
fn by_offsets<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<usize> {
    offsets.lengths().map(|length| length.saturating_add(size_of::<O>())).collect()
}

/// The length is in the lowest 32 bits of a view.
#[expect(clippy::cast_possible_truncation, reason = "the other bits are something else")]
fn length(view: u128) -> u32 {
    view as u32
}

fn by_views(values: &ScalarBuffer<u128>, views: Views) -> Vec<usize> {
    let bytes = |view: &u128| match views {
        Views::Expanded => VIEW_BYTES.saturating_add(usize::try_from(length(*view)).unwrap_or(0)),
        Views::Shared => VIEW_BYTES,
    };
    values.iter().map(bytes).collect()
}

/// Without collecting the sizes in a vector: this is called for every batch.
fn sum_of_views(values: &ScalarBuffer<u128>, views: Views) -> usize {
    let shown: u64 = match views {
        // A batch has far fewer than four billion rows.
        Views::Expanded => values.iter().map(|view| u64::from(length(*view))).sum(),
        Views::Shared => 0,
    };
    let shown = usize::try_from(shown).unwrap_or(usize::MAX);
    shown.saturating_add(values.len().saturating_mul(VIEW_BYTES))
}

/// Each row is a range of the elements.
fn by_ranges<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &[usize]) -> Vec<usize> {
    sums_of_ranges(offsets, values).map(|sum| sum.saturating_add(size_of::<O>())).collect()
}

fn sums_of_ranges<'v, O: OffsetSizeTrait>(
    offsets: &'v OffsetBuffer<O>,
    values: &'v [usize],
) -> impl Iterator<Item = usize> + 'v {
    let mut rest = values.get(offsets.first().map_or(0, |first| first.as_usize())..);
    offsets.lengths().map(move |length| {
        let (own, others) = rest.unwrap_or_default().split_at_checked(length).unwrap_or_default();
        rest = Some(others);
        sum(own)
    })
}

fn by_keys(array: &dyn Array, views: Views) -> Vec<usize> {
    fn keyed<K: ArrowDictionaryKeyType>(array: &dyn Array, views: Views) -> Vec<usize> {
        let dictionary = array.as_dictionary::<K>();
        let values = rows(dictionary.values(), views);
        let bytes = |key: Option<usize>| key.and_then(|key| values.get(key).copied()).unwrap_or(0);
        dictionary.keys_iter().map(bytes).collect()
    }
    let DataType::Dictionary(key, _) = array.data_type() else { return vec![0; array.len()] };
    match **key {
        DataType::Int8 => keyed::<Int8Type>(array, views),
        DataType::Int16 => keyed::<Int16Type>(array, views),
        DataType::Int32 => keyed::<Int32Type>(array, views),
        DataType::UInt8 => keyed::<UInt8Type>(array, views),
        DataType::UInt16 => keyed::<UInt16Type>(array, views),
        DataType::UInt32 => keyed::<UInt32Type>(array, views),
        DataType::UInt64 => keyed::<UInt64Type>(array, views),
        _ => keyed::<Int64Type>(array, views),
    }
}

/// For unions, runs and views of lists: the total size, divided evenly among the rows.
fn average(array: &dyn Array) -> usize {
    array.get_array_memory_size().div_ceil(array.len().max(1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray,
        StructArray, UInt64Array,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::compute::take;
    use arrow::datatypes::{DataType, Field, Int32Type, Int64Type};

    use super::{Views, elements, rows, total, width};

    #[test]
    fn rows_are_measured_by_their_values() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["", "four", "seven77"]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let lists = [Some(vec![Some(1), Some(2)]), None, Some(vec![Some(3)])];
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let keyed: DictionaryArray<Int32Type> = vec!["aaaa", "b", "aaaa"].into_iter().collect();
        let field =
            |name, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
        let both = StructArray::from(vec![
            (field("text", &text), Arc::clone(&text)),
            (field("numbers", &numbers), Arc::clone(&numbers)),
        ]);
        for (array, expected) in [
            (Arc::clone(&text), vec![4, 8, 11]),
            (text.slice(1, 2), vec![8, 11]),
            (Arc::clone(&numbers), vec![8, 8, 8]),
            (Arc::clone(&list), vec![20, 4, 12]),
            (list.slice(2, 1), vec![12]),
            (Arc::new(keyed), vec![8, 5, 8]),
            (Arc::new(both), vec![12, 16, 19]),
        ] {
            assert_eq!(rows(&array, Views::Shared), expected, "{array:?}");
            let sum: usize = expected.iter().sum();
            assert_eq!(total(&array, Views::Expanded), sum, "{array:?}");
        }
        assert_eq!(elements(&list, 1), [2, 0, 1]);
        let offsets = OffsetBuffer::from_lengths([2, 1]);
        let inner = field("item", &list);
        let outer: ArrayRef = Arc::new(ListArray::new(inner, offsets, Arc::clone(&list), None));
        assert_eq!(elements(&outer, 1), [2, 1]);
        assert_eq!(elements(&outer, 2), [3, 1]);
        assert_eq!(elements(&outer.slice(1, 1), 2), [1]);
    }

    /// A value to which many rows refer counts for each of them if the rows are copied.
    #[test]
    fn views_count_as_what_they_show() {
        let long = "x".repeat(1000);
        let one: ArrayRef = Arc::new(StringViewArray::from(vec![long.as_str()]));
        let many = take(&one, &UInt64Array::from(vec![0; 50]), None).unwrap();
        assert_eq!(total(&many, Views::Expanded), 50 * 1016);
        assert_eq!(total(&many, Views::Shared), 50 * 16);
    }

    #[test]
    fn fixed_types_have_a_width() {
        let list = |length| {
            let item = Arc::new(Field::new("item", DataType::Int64, true));
            DataType::FixedSizeList(item, length)
        };
        for (data_type, expected) in [
            (DataType::Int64, Some(8)),
            (DataType::FixedSizeBinary(2_000_000_000), Some(2_000_000_000)),
            (list(1_000_000_000), Some(8_000_000_000)),
            (DataType::Utf8, None),
        ] {
            assert_eq!(width(&data_type), expected, "{data_type}");
        }
    }
}
