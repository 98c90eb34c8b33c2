//! ClickHouse's array functions, over lists.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Float64Array, Int64Array,
    ListArray, StringViewBuilder, UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::row::{Row, RowConverter, Rows, SortField};
use datafusion::error::{DataFusionError, Result};

use crate::functions::own::{
    Own, Takes, argument, element, internal, list_of, lists, same, text, texts, truth, whole,
};

/// All functions of this file.
pub(super) const ALL: &[Own] = &[
    Own::new("length_of", &[Takes::ListOrText], whole, length),
    Own::new("is_empty", &[Takes::ListOrText], truth, |sent| is_empty(sent, true)),
    Own::new("notEmpty", &[Takes::ListOrText], truth, |sent| is_empty(sent, false)),
    Own::new("list_or_empty", &[Takes::List], same, or_empty),
    Own::new("most_frequent", &[Takes::List, Takes::Whole], same, most_frequent),
    Own::new("arrayDistinct", &[Takes::List], same, distinct),
    Own::new("arrayUniq", &[Takes::List], whole, uniq),
    Own::new("arrayCompact", &[Takes::List], same, compact),
    Own::new("arrayEnumerate", &[Takes::List], |_| Ok(list_of(DataType::Int64)), enumerate),
    Own::new("arraySlice", &[Takes::List, Takes::Whole], same, slice).or(&[Takes::Whole]),
    Own::new("arraySort", &[Takes::List], same, |sent| sorted(sent, false)),
    Own::new("arrayReverseSort", &[Takes::List], same, |sent| sorted(sent, true)),
    Own::new("arraySum", &[Takes::Numbers], item, |sent| numbers(sent, &SUM)),
    Own::new("arrayProduct", &[Takes::Numbers], item, |sent| numbers(sent, &PRODUCT)),
    Own::new("arrayAvg", &[Takes::Numbers], |_| Ok(DataType::Float64), average),
    Own::new("arrayMin", &[Takes::List], item, |sent| extreme(sent, false)),
    Own::new("arrayMax", &[Takes::List], item, |sent| extreme(sent, true)),
    Own::new("arrayCount", &[Takes::Truths], whole, count),
    Own::new("arrayExists", &[Takes::Truths], truth, |sent| any(sent, true)),
    Own::new("arrayAll", &[Takes::Truths], truth, |sent| any(sent, false)),
    Own::new("arrayFirstIndex", &[Takes::Truths], whole, first_index),
    Own::new("arrayStringConcat", &[Takes::Texts], text, joined).or(&[Takes::Text]),
    Own::new("arrayCumSum", &[Takes::Numbers], same, cumulated),
    Own::new("arrayCumSumNonNegative", &[Takes::Numbers], same, cumulated_from_zero),
    Own::new("arrayDifference", &[Takes::Numbers], same, differences),
    Own::new("arrayLastIndex", &[Takes::Truths], whole, last_index),
    Own::new("countEqual", &[Takes::Texts, Takes::Text], whole, count_equal),
];

/// The element type of the first argument.
fn item(arguments: &[DataType]) -> Result<DataType> {
    arguments.first().and_then(element).cloned().ok_or_else(|| internal("a list"))
}

/// The elements of each list, as a range of indexes into the values of all lists; empty for null.
pub(super) fn ranges(lists: &ListArray) -> impl Iterator<Item = Range<usize>> + '_ {
    let offset = |at: usize| {
        let offset = lists.value_offsets().get(at).copied().unwrap_or(0);
        usize::try_from(offset).unwrap_or(0)
    };
    (0..lists.len()).map(move |row| match lists.is_null(row) {
        true => 0..0,
        false => offset(row)..offset(row + 1),
    })
}

/// Lists of the values at these indexes into the elements of other lists.
pub(super) fn picked(lists: &ListArray, rows: Vec<Vec<usize>>) -> Result<ArrayRef> {
    let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
    let places = rows.into_iter().flatten().map(u32::try_from);
    let places: UInt32Array = places
        .collect::<std::result::Result<Vec<u32>, _>>()
        .map_err(|error| DataFusionError::External(Box::new(error)))?
        .into();
    let values = take(lists.values(), &places, None)?;
    let DataType::List(field) = lists.data_type() else { return Err(internal("a list")) };
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, lists.nulls().cloned())?))
}

/// Computes a value for each list; null for a null list.
fn each<T>(lists: &ListArray, value: impl Fn(Range<usize>) -> T) -> Vec<Option<T>> {
    let rows = ranges(lists).enumerate();
    rows.map(|(row, range)| lists.is_valid(row).then(|| value(range))).collect()
}

/// The elements of all lists, encoded for comparison.
pub(super) fn compared(lists: &ListArray, options: SortOptions) -> Result<Rows> {
    let field = SortField::new_with_options(lists.value_type(), options);
    let converter = RowConverter::new(vec![field])?;
    Ok(converter.convert_columns(&[Arc::clone(lists.values())])?)
}

fn length(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lengths: Int64Array = match argument(sent, 0)?.as_list_opt::<i32>() {
        Some(lists) => each(lists, |range| whole_of(range.len())).into(),
        None => {
            let texts = texts(sent, 0)?;
            texts.iter().map(|text| text.map(|text| whole_of(text.chars().count()))).collect()
        }
    };
    Ok(Arc::new(lengths))
}

pub(super) fn whole_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn is_empty(sent: &[ArrayRef], wanted: bool) -> Result<ArrayRef> {
    let answers: BooleanArray = match argument(sent, 0)?.as_list_opt::<i32>() {
        Some(lists) => each(lists, |range| range.is_empty() == wanted).into(),
        None => {
            let texts = texts(sent, 0)?;
            texts.iter().map(|text| text.map(|text| text.is_empty() == wanted)).collect()
        }
    };
    Ok(Arc::new(answers))
}

/// The list; an empty one instead of null.
fn or_empty(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    if lists.null_count() == 0 {
        return Ok(Arc::clone(argument(sent, 0)?));
    }
    let given = picked(lists, ranges(lists).map(Iterator::collect).collect())?;
    let given = given.as_list_opt::<i32>().ok_or_else(|| internal("a list"))?.clone();
    let (field, offsets, values, _) = given.into_parts();
    Ok(Arc::new(ListArray::try_new(field, offsets, values, None::<NullBuffer>)?))
}

/// The most frequent values; among equally frequent ones, those that came first.
fn most_frequent(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let most = argument(sent, 1)?.as_primitive::<Int64Type>();
    let rows = compared(lists, SortOptions::default())?;
    let of = |(row, range): (usize, Range<usize>)| {
        let mut counts: HashMap<Row<'_>, (usize, usize)> = HashMap::new();
        for at in range.filter(|at| lists.values().is_valid(*at)) {
            counts.entry(rows.row(at)).or_insert((0, at)).0 += 1;
        }
        let mut found: Vec<(usize, usize)> = counts.into_values().collect();
        found.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        found.truncate(usize::try_from(most.value(row)).unwrap_or(0));
        found.into_iter().map(|(_, at)| at).collect()
    };
    let given = picked(lists, ranges(lists).enumerate().map(of).collect())?;
    or_empty(&[given])
}

/// Each value once, in the order of first occurrence; without nulls.
fn distinct(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let rows = compared(lists, SortOptions::default())?;
    let of = |range: Range<usize>| {
        let mut seen = HashSet::new();
        let is_new = |at: &usize| lists.values().is_valid(*at) && seen.insert(rows.row(*at));
        range.filter(is_new).collect()
    };
    picked(lists, ranges(lists).map(of).collect())
}

fn uniq(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let rows = compared(lists, SortOptions::default())?;
    let of = |range: Range<usize>| {
        let values = range.filter(|at| lists.values().is_valid(*at));
        whole_of(values.map(|at| rows.row(at)).collect::<HashSet<_>>().len())
    };
    Ok(Arc::new(Int64Array::from(each(lists, of))))
}

/// The list without values that equal the one before them.
fn compact(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let rows = compared(lists, SortOptions::default())?;
    let of = |range: Range<usize>| {
        let first = range.start;
        range.filter(|at| *at == first || rows.row(*at) != rows.row(at - 1)).collect()
    };
    picked(lists, ranges(lists).map(of).collect())
}

fn enumerate(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let places = each(lists, |range| (1..=whole_of(range.len())).map(Some).collect::<Vec<_>>());
    Ok(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(places)))
}

/// The elements from an index on, which is 1-based, or counts from the end if it is negative. The third argument is the
/// number of elements or, if it is negative, how many are cut off at the end.
fn slice(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let from = argument(sent, 1)?.as_primitive::<Int64Type>();
    let count = sent.get(2).map(|count| count.as_primitive::<Int64Type>());
    let of = |(row, range): (usize, Range<usize>)| {
        let length = whole_of(range.len());
        let place = from.value(row);
        let start = if place < 0 { length.saturating_add(place) } else { place - 1 };
        let end = match count {
            Some(count) if count.is_valid(row) => match count.value(row) {
                count if count < 0 => length.saturating_add(count),
                count => start.saturating_add(count),
            },
            _ => length,
        };
        let is_none = place == 0 || from.is_null(row);
        let (start, end) = (start.clamp(0, length), if is_none { 0 } else { end.clamp(0, length) });
        let at = |place: i64| range.start + usize::try_from(place).unwrap_or(0);
        (at(start)..at(end)).collect()
    };
    picked(lists, ranges(lists).enumerate().map(of).collect())
}

/// Indexes of the elements of each list, sorted by keys; nulls last.
pub(super) fn order(
    lists: &ListArray,
    keys: &ListArray,
    is_descending: bool,
) -> Result<Vec<Vec<usize>>> {
    let options = SortOptions { descending: is_descending, nulls_first: false };
    let rows = compared(keys, options)?;
    let order = ranges(lists).zip(ranges(keys)).map(|(range, of_keys)| {
        let mut places: Vec<(usize, usize)> = range.zip(of_keys).collect();
        places.sort_by(|(_, a), (_, b)| rows.row(*a).cmp(&rows.row(*b)));
        places.into_iter().map(|(at, _)| at).collect()
    });
    Ok(order.collect())
}

fn sorted(sent: &[ArrayRef], is_descending: bool) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    picked(lists, order(lists, lists, is_descending)?)
}

/// How the numbers of a list are folded into one.
struct Folding {
    first: i64,
    whole: fn(i64, i64) -> i64,
    float: fn(f64, f64) -> f64,
}

const SUM: Folding = Folding { first: 0, whole: i64::saturating_add, float: |a, b| a + b };
const PRODUCT: Folding = Folding { first: 1, whole: i64::saturating_mul, float: |a, b| a * b };

/// The numbers of a range that are not null.
fn valid<T: ArrowPrimitiveType>(
    lists: &ListArray,
    range: Range<usize>,
) -> impl Iterator<Item = T::Native> + '_ {
    let values = lists.values().as_primitive_opt::<T>();
    values.into_iter().flat_map(move |values| {
        range
            .clone()
            .filter(|at| values.is_valid(*at))
            .map(|at| values.value(at))
            .collect::<Vec<_>>()
    })
}

fn numbers(sent: &[ArrayRef], folding: &Folding) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    if lists.value_type() == DataType::Int64 {
        let of = |range| valid::<Int64Type>(lists, range).fold(folding.first, folding.whole);
        return Ok(Arc::new(Int64Array::from(each(lists, of))));
    }
    let first = if folding.first == 0 { 0.0 } else { 1.0 };
    let of = |range| valid::<Float64Type>(lists, range).fold(first, folding.float);
    Ok(Arc::new(Float64Array::from(each(lists, of))))
}

/// The numbers of a range as doubles, exact up to 53 bits.
#[expect(clippy::cast_precision_loss, reason = "an average has a fraction anyway")]
fn floats(lists: &ListArray, range: Range<usize>) -> Vec<f64> {
    match lists.value_type() {
        DataType::Int64 => valid::<Int64Type>(lists, range).map(|number| number as f64).collect(),
        _ => valid::<Float64Type>(lists, range).collect(),
    }
}

/// The average; null if there are no numbers.
fn average(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let of = |range: Range<usize>| {
        let numbers = floats(lists, range);
        let count = u32::try_from(numbers.len()).ok().filter(|count| *count > 0)?;
        Some(numbers.iter().sum::<f64>() / f64::from(count))
    };
    let averages: Float64Array = each(lists, of).into_iter().map(Option::flatten).collect();
    Ok(Arc::new(averages))
}

/// The smallest or the largest element; null if there is none.
fn extreme(sent: &[ArrayRef], is_largest: bool) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let rows = compared(lists, SortOptions::default())?;
    let wanted = if is_largest { Ordering::Greater } else { Ordering::Less };
    let of = |range: Range<usize>| {
        let mut values = range.filter(|at| lists.values().is_valid(*at));
        let first = values.next()?;
        let found = values.fold(first, |best, at| match rows.row(at).cmp(&rows.row(best)) {
            order if order == wanted => at,
            _ => best,
        });
        u32::try_from(found).ok()
    };
    let places: UInt32Array = each(lists, of).into_iter().map(Option::flatten).collect();
    Ok(take(lists.values(), &places, None)?)
}

/// Whether each element of a range is true; null is not.
fn truths(lists: &ListArray, range: Range<usize>) -> impl Iterator<Item = bool> + '_ {
    let values = lists.values().as_boolean_opt();
    range.map(move |at| values.is_some_and(|own| own.is_valid(at) && own.value(at)))
}

fn count(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let of = |range| whole_of(truths(lists, range).filter(|holds| *holds).count());
    Ok(Arc::new(Int64Array::from(each(lists, of))))
}

/// Whether any element is true, or all are.
fn any(sent: &[ArrayRef], is_any: bool) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let of = |range| match is_any {
        true => truths(lists, range).any(|holds| holds),
        false => truths(lists, range).all(|holds| holds),
    };
    Ok(Arc::new(BooleanArray::from(each(lists, of))))
}

/// The 1-based index of the first element that is true; 0 if none is.
fn first_index(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let of = |range| {
        truths(lists, range).position(|holds| holds).map_or(0, |at| whole_of(at.saturating_add(1)))
    };
    Ok(Arc::new(Int64Array::from(each(lists, of))))
}

/// The 1-based index of the last element that is true; 0 if none is.
fn last_index(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let of = |range| {
        let places = (1..).zip(truths(lists, range)).filter(|(_, holds)| *holds);
        places.last().map_or(0, |(at, _)| at)
    };
    Ok(Arc::new(Int64Array::from(each(lists, of))))
}

/// The elements as texts, joined by a separator.
fn joined(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let values = lists.values().as_string_view_opt().ok_or_else(|| internal("texts"))?;
    let between = sent.get(1).and_then(|between| between.as_string_view_opt());
    let mut given = StringViewBuilder::with_capacity(lists.len());
    for (row, range) in ranges(lists).enumerate() {
        if lists.is_null(row) || between.is_some_and(|between| between.is_null(row)) {
            given.append_null();
            continue;
        }
        let between = between.map_or("", |between| between.value(row));
        let parts = range.filter(|at| values.is_valid(*at)).map(|at| values.value(at));
        given.append_value(parts.collect::<Vec<_>>().join(between));
    }
    Ok(Arc::new(given.finish()))
}

/// Lists of numbers computed from others with a running value.
fn running(
    sent: &[ArrayRef],
    whole: fn(&mut Option<i64>, i64) -> i64,
    float: fn(&mut Option<f64>, f64) -> f64,
) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    if lists.value_type() == DataType::Int64 {
        let of = |range| {
            let mut last = None;
            let numbers = valid::<Int64Type>(lists, range);
            numbers.map(|number| Some(whole(&mut last, number))).collect::<Vec<_>>()
        };
        return Ok(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(each(lists, of))));
    }
    let of = |range| {
        let mut last = None;
        let numbers = valid::<Float64Type>(lists, range);
        numbers.map(|number| Some(float(&mut last, number))).collect::<Vec<_>>()
    };
    Ok(Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(each(lists, of))))
}

fn cumulated(sent: &[ArrayRef]) -> Result<ArrayRef> {
    running(
        sent,
        |last, number| *last.insert(last.unwrap_or(0).saturating_add(number)),
        |last, number| *last.insert(last.unwrap_or(0.0) + number),
    )
}

/// Running sums that are floored at 0 before the next number is added.
fn cumulated_from_zero(sent: &[ArrayRef]) -> Result<ArrayRef> {
    running(
        sent,
        |last, number| *last.insert(last.unwrap_or(0).saturating_add(number).max(0)),
        |last, number| *last.insert((last.unwrap_or(0.0) + number).max(0.0)),
    )
}

fn differences(sent: &[ArrayRef]) -> Result<ArrayRef> {
    running(
        sent,
        |last, number| number.saturating_sub(last.replace(number).unwrap_or(number)),
        |last, number| number - last.replace(number).unwrap_or(number),
    )
}

fn count_equal(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (lists, wanted) = (lists(sent, 0)?, texts(sent, 1)?);
    let values = lists.values().as_string_view_opt().ok_or_else(|| internal("texts"))?;
    let of = |(row, range): (usize, Range<usize>)| {
        let is_equal = |at: &usize| values.is_valid(*at) && values.value(*at) == wanted.value(row);
        let is_known = lists.is_valid(row) && wanted.is_valid(row);
        is_known.then(|| whole_of(range.filter(is_equal).count()))
    };
    Ok(Arc::new(ranges(lists).enumerate().map(of).collect::<Int64Array>()))
}
