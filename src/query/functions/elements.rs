//! List functions that depend on the positions of elements, and those that implement ARRAY JOIN.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StructArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use arrow::row::Row;
use datafusion::error::{DataFusionError, Result};

use crate::functions::arrays::{compared, picked, ranges, whole_of};
use crate::functions::own::{Own, Takes, argument, element, internal, list_of, lists, same, truth};

/// All functions of this file.
pub(super) const ALL: &[Own] = &[
    Own::new("arrays_aligned", &[Takes::List], same, aligned).and_more(Takes::List),
    Own::new("array_or_null", &[Takes::List], same, or_null),
    Own::new("arrayEnumerateUniq", &[Takes::List], places, |sent| numbered(sent, true)),
    Own::new("arrayEnumerateDense", &[Takes::List], places, |sent| numbered(sent, false)),
    Own::new("arrayFlatten", &[Takes::List], flat, flattened),
    Own::new("arrayZip", &[Takes::List], pairs, zipped).and_more(Takes::List),
    Own::new("hasSubstr", &[Takes::Texts, Takes::Texts], truth, has_part),
];

fn places(_: &[DataType]) -> Result<DataType> {
    Ok(list_of(DataType::Int64))
}

/// The length of each list.
fn lengths(lists: &ListArray) -> impl Iterator<Item = usize> + '_ {
    ranges(lists).map(|range| range.len())
}

/// The first list, after checking that the others have the same length; null counts as an empty list.
fn aligned(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let first = lists(sent, 0)?;
    for other in 1..sent.len() {
        let other = lists(sent, other)?;
        if !lengths(first).eq(lengths(other)) {
            let why = "the arrays of ARRAY JOIN and arrayZip are as long as each other in each row";
            return Err(DataFusionError::Execution(why.to_owned()));
        }
    }
    Ok(Arc::clone(argument(sent, 0)?))
}

/// The list; a list of one null in place of null and of an empty list.
fn or_null(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let place = |at: usize| u32::try_from(at).map(Some);
    let (mut from, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
    for range in ranges(lists) {
        lengths.push(range.len().max(1));
        match range.is_empty() {
            true => from.push(Ok(None)),
            false => from.extend(range.map(place)),
        }
    }
    let from = from.into_iter().collect::<std::result::Result<Vec<_>, _>>();
    let from = from.map_err(|error| DataFusionError::External(Box::new(error)))?;
    let values = take(lists.values(), &UInt32Array::from(from), None)?;
    let DataType::List(field) = lists.data_type() else { return Err(internal("a list")) };
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, None)?))
}

/// A number for each element: the count of its value so far, or the index of its value among the distinct ones.
fn numbered(sent: &[ArrayRef], is_of_times: bool) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let rows = compared(lists, SortOptions::default())?;
    let of = |(row, range): (usize, Range<usize>)| {
        let mut known: HashMap<Row<'_>, i64> = HashMap::new();
        let number = |at: usize| {
            let next = whole_of(known.len().saturating_add(1));
            let number = known.entry(rows.row(at)).or_insert(if is_of_times { 0 } else { next });
            if is_of_times {
                *number = number.saturating_add(1);
            }
            Some(*number)
        };
        lists.is_valid(row).then(|| range.map(number).collect::<Vec<_>>())
    };
    let numbers = ranges(lists).enumerate().map(of);
    Ok(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(numbers)))
}

/// The type of the flattened list: a list of the innermost element type.
fn flat(arguments: &[DataType]) -> Result<DataType> {
    let mut own = arguments.first().and_then(element).ok_or_else(|| internal("a list"))?;
    while let Some(inner) = element(own) {
        own = inner;
    }
    Ok(list_of(own.clone()))
}

/// The elements of nested lists, at any depth, as one list.
fn flattened(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let mut own = lists(sent, 0)?.clone();
    while let DataType::List(inner) = own.value_type() {
        let values = own.values().as_list_opt::<i32>().ok_or_else(|| internal("a list"))?.clone();
        // Elements in the value buffer behind a null list do not belong to any list.
        let values = match values.null_count() {
            0 => values,
            _ => without_hidden(&values)?,
        };
        let offset = |at: &i32| {
            let at = usize::try_from(*at).unwrap_or(0);
            values.value_offsets().get(at).copied().unwrap_or(0)
        };
        let offsets: Vec<i32> = own.value_offsets().iter().map(offset).collect();
        let offsets = OffsetBuffer::new(offsets.into());
        own =
            ListArray::try_new(inner, offsets, Arc::clone(values.values()), own.nulls().cloned())?;
    }
    // The inner field may have another name.
    let DataType::List(field) = list_of(own.value_type()) else { return Err(internal("a list")) };
    let (_, offsets, values, nulls) = own.into_parts();
    Ok(Arc::new(ListArray::try_new(field, offsets, values, nulls)?))
}

/// The same lists, with null lists having no elements in the value buffer.
fn without_hidden(lists: &ListArray) -> Result<ListArray> {
    let rows = ranges(lists).map(Iterator::collect).collect();
    let own = picked(lists, rows)?;
    Ok(own.as_list_opt::<i32>().ok_or_else(|| internal("a list"))?.clone())
}

/// The fields of a tuple, named as by `tuple`.
fn fields<'t>(types: impl Iterator<Item = &'t DataType>) -> Fields {
    let field = |(at, own): (usize, &DataType)| Field::new(format!("c{at}"), own.clone(), true);
    types.enumerate().map(field).collect()
}

/// The type of a list of tuples of the elements of these lists.
fn pairs(arguments: &[DataType]) -> Result<DataType> {
    let types = arguments.iter().map(|own| element(own).ok_or_else(|| internal("a list")));
    let types = types.collect::<Result<Vec<_>>>()?;
    Ok(list_of(DataType::Struct(fields(types.into_iter()))))
}

/// Tuples of the elements at the same index of all lists.
fn zipped(sent: &[ArrayRef]) -> Result<ArrayRef> {
    aligned(sent)?;
    let mut columns = Vec::with_capacity(sent.len());
    let (mut nulls, mut counts) = (None, Vec::new());
    for at in 0..sent.len() {
        let own = lists(sent, at)?;
        nulls = NullBuffer::union(nulls.as_ref(), own.nulls());
        counts = lengths(own).collect();
        let own = without_hidden(own)?;
        columns.push(Arc::clone(own.values()));
    }
    let fields = fields(columns.iter().map(|column| column.data_type()));
    let values = Arc::new(StructArray::try_new(fields.clone(), columns, None)?);
    let field = Field::new_list_field(DataType::Struct(fields), true);
    let offsets = OffsetBuffer::from_lengths(counts);
    Ok(Arc::new(ListArray::try_new(Arc::new(field), offsets, values, nulls)?))
}

/// Whether the second list is a contiguous part of the first one. Nulls compare as equal values.
fn has_part(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (all, parts) = (lists(sent, 0)?, lists(sent, 1)?);
    let values = |lists: &ListArray, range: Range<usize>| {
        let texts = lists.values().as_string_view_opt();
        let value = |at| texts.and_then(|own| own.is_valid(at).then(|| own.value(at).to_owned()));
        range.map(value).collect::<Vec<Option<String>>>()
    };
    let of = |(row, (all_of, part_of)): (usize, (Range<usize>, Range<usize>))| {
        let is_known = all.is_valid(row) && parts.is_valid(row);
        is_known.then(|| {
            let (all, part) = (values(all, all_of), values(parts, part_of));
            part.is_empty() || all.windows(part.len()).any(|own| own == part)
        })
    };
    Ok(Arc::new(ranges(all).zip(ranges(parts)).enumerate().map(of).collect::<BooleanArray>()))
}
