//! Text functions. They count characters, where some of ClickHouse's count bytes.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, ListBuilder, StringViewBuilder,
};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;

use crate::functions::arrays::{ranges, whole_of};
use crate::functions::own::{Own, Takes, internal, list_of, lists, text, texts, truth, whole};

const SEARCH: &[Takes] = &[Takes::Text, Takes::Texts];

/// All functions of this file.
pub(super) const ALL: &[Own] = &[
    Own::new("countSubstrings", &[Takes::Text, Takes::Text], whole, occurrences),
    Own::new("replaceOne", &[Takes::Text, Takes::Text, Takes::Text], text, replaced),
    Own::new(
        "splitByNonAlpha",
        &[Takes::Text],
        |_| Ok(list_of(DataType::Utf8View)),
        letters_and_digits,
    ),
    Own::new("splitByAlpha", &[Takes::Text], |_| Ok(list_of(DataType::Utf8View)), letters),
    Own::new("alphaTokens", &[Takes::Text], |_| Ok(list_of(DataType::Utf8View)), letters),
    Own::new("multiSearchAny", SEARCH, truth, |sent| any(sent, false)),
    Own::new("multiSearchAnyCaseInsensitive", SEARCH, truth, |sent| any(sent, true)),
    Own::new("multiSearchFirstIndex", SEARCH, whole, |sent| first(sent, true)),
    Own::new("multiSearchFirstPosition", SEARCH, whole, |sent| first(sent, false)),
    Own::new(
        "multiSearchAllPositions",
        SEARCH,
        |_| Ok(list_of(DataType::Int64)),
        |sent| positions(sent, false),
    ),
    Own::new(
        "multiSearchAllPositionsCaseInsensitive",
        SEARCH,
        |_| Ok(list_of(DataType::Int64)),
        |sent| positions(sent, true),
    ),
    Own::new("splitByWhitespace", &[Takes::Text], |_| Ok(list_of(DataType::Utf8View)), words),
];

/// The number of non-overlapping occurrences of a text in another one.
fn occurrences(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (all, wanted) = (texts(sent, 0)?, texts(sent, 1)?);
    let count = |(text, wanted): (Option<&str>, Option<&str>)| {
        let (text, wanted) = text.zip(wanted)?;
        Some(if wanted.is_empty() { 0 } else { whole_of(text.matches(wanted).count()) })
    };
    Ok(Arc::new(all.iter().zip(wanted.iter()).map(count).collect::<Int64Array>()))
}

/// Replaces the first occurrence of a text by another one.
fn replaced(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (all, from, to) = (texts(sent, 0)?, texts(sent, 1)?, texts(sent, 2)?);
    let mut given = StringViewBuilder::with_capacity(all.len());
    for ((text, from), to) in all.iter().zip(from.iter()).zip(to.iter()) {
        let own = text.zip(from).zip(to);
        given.append_option(own.map(|((text, from), to)| match from.is_empty() {
            true => text.to_owned(),
            false => text.replacen(from, to, 1),
        }));
    }
    Ok(Arc::new(given.finish()))
}

/// The parts of each text.
fn parts<'t, I: Iterator<Item = &'t str>>(
    sent: &'t [ArrayRef],
    of: impl Fn(&'t str) -> I,
) -> Result<ArrayRef> {
    let mut given = ListBuilder::new(StringViewBuilder::new());
    for text in texts(sent, 0)? {
        for part in text.into_iter().flat_map(&of) {
            given.values().append_value(part);
        }
        given.append(text.is_some());
    }
    Ok(Arc::new(given.finish()))
}

fn words(sent: &[ArrayRef]) -> Result<ArrayRef> {
    parts(sent, str::split_whitespace)
}

/// The parts of a text between ASCII whitespace and punctuation.
fn letters_and_digits(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let is_between = |sign: char| sign.is_ascii_whitespace() || sign.is_ascii_punctuation();
    parts(sent, |text| text.split(is_between).filter(|part| !part.is_empty()))
}

/// The runs of ASCII letters.
fn letters(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let is_between = |sign: char| !sign.is_ascii_alphabetic();
    parts(sent, |text| text.split(is_between).filter(|part| !part.is_empty()))
}

/// Applies a function to the positions at which the searched texts occur in each text: the number of characters before
/// each occurrence.
fn searched<T>(
    sent: &[ArrayRef],
    is_caseless: bool,
    of: impl Fn(Vec<Option<usize>>) -> T,
) -> Result<Vec<Option<T>>> {
    let (all, wanted) = (texts(sent, 0)?, lists(sent, 1)?);
    let values = wanted.values().as_string_view_opt().ok_or_else(|| internal("texts"))?;
    let cased = |text: &str| if is_caseless { text.to_lowercase() } else { text.to_owned() };
    let answer = |(row, range): (usize, Range<usize>)| {
        let is_known = all.is_valid(row) && wanted.is_valid(row);
        is_known.then(|| {
            let text = cased(all.value(row));
            let place = |at: usize| {
                let found = values.is_valid(at).then(|| text.find(&cased(values.value(at))))??;
                Some(text.get(..found)?.chars().count())
            };
            of(range.map(place).collect())
        })
    };
    Ok(ranges(wanted).enumerate().map(answer).collect())
}

/// Whether any of several texts occurs in another.
fn any(sent: &[ArrayRef], is_caseless: bool) -> Result<ArrayRef> {
    let found = searched(sent, is_caseless, |places| places.iter().any(Option::is_some))?;
    Ok(Arc::new(BooleanArray::from(found)))
}

/// The 1-based position of the first occurrence of any text, or the number of that text; 0 if none occurs.
fn first(sent: &[ArrayRef], is_number: bool) -> Result<ArrayRef> {
    let found = searched(sent, false, |places| {
        let known = (1..).zip(places).filter_map(|(number, place)| Some((place?, number)));
        let first: Option<(usize, i64)> = known.min();
        first.map_or(0, |(place, number)| match is_number {
            true => number,
            false => whole_of(place.saturating_add(1)),
        })
    })?;
    Ok(Arc::new(Int64Array::from(found)))
}

/// The 1-based position of each text, or 0.
fn positions(sent: &[ArrayRef], is_caseless: bool) -> Result<ArrayRef> {
    let place = |place: Option<usize>| Some(place.map_or(0, |at| whole_of(at.saturating_add(1))));
    let found = searched(sent, is_caseless, |places| {
        places.into_iter().map(place).collect::<Vec<Option<i64>>>()
    })?;
    Ok(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(found)))
}
