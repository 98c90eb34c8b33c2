//! Columns of a batch as values of PostgreSQL: [`Cells`], in text and in binary form, for rows and for COPY.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal256Array, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, LargeBinaryArray,
    LargeListArray, StringViewArray, StringViewBuilder, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal256Type, Field, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, make_encoder};

use crate::error::Failure;
use crate::types::{Item, Kind};
use crate::wire::backend::sized;
use crate::wire::frontend::Format;
use crate::{numeric, times};

/// The values of a column, ready to be written.
#[derive(Debug)]
pub(crate) struct Cells {
    kind: Kind,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Bool(BooleanArray),
    Int2(Int16Array),
    Int4(Int32Array),
    Int8(Int64Array),
    Float4(Float32Array),
    Float8(Float64Array),
    Numeric(Decimal256Array),
    Text(StringViewArray),
    Bytea(LargeBinaryArray),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    Interval(IntervalMonthDayNanoArray),
    List(LargeListArray, Box<Cells>),
}

impl Cells {
    /// The values of a column, as `kind`.
    ///
    /// # Errors
    ///
    /// A value has no form in it, such as a number that is too large.
    pub(crate) fn new(kind: Kind, column: &ArrayRef) -> Result<Self, Failure> {
        let values = values(kind, column).map_err(|error| match error {
            ArrowError::CastError(why) => Failure::new("22003", why),
            error => Failure::unsupported(format!("a column has no form here: {error}")),
        })?;
        Ok(Self { kind, values })
    }

    fn array(&self) -> &dyn Array {
        match &self.values {
            Values::Bool(own) => own,
            Values::Int2(own) => own,
            Values::Int4(own) => own,
            Values::Int8(own) => own,
            Values::Float4(own) => own,
            Values::Float8(own) => own,
            Values::Numeric(own) => own,
            Values::Text(own) => own,
            Values::Bytea(own) => own,
            Values::Date(own) => own,
            Values::Time(own) => own,
            Values::Timestamp(own) => own,
            Values::Interval(own) => own,
            Values::List(own, _) => own,
        }
    }

    /// Whether the value of a row is NULL.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        row >= self.array().len() || self.array().is_null(row)
    }

    /// Appends the value of a row with its length, as rows and binary COPY have it.
    pub(crate) fn put(&self, row: usize, format: Format, out: &mut Vec<u8>) {
        if self.is_null(row) {
            return out.extend((-1_i32).to_be_bytes());
        }
        sized(out, 0, |out| match format {
            Format::Text => self.text(row, out),
            Format::Binary => self.binary(row, out),
        });
    }

    /// Appends the text of a value that is not NULL.
    pub(crate) fn text(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Bool(own) => out.push(if own.value(row) { b't' } else { b'f' }),
            Values::Int2(own) => show(out, own.value(row)),
            Values::Int4(own) => show(out, own.value(row)),
            Values::Int8(own) => show(out, own.value(row)),
            Values::Float4(own) => numeric::real(own.value(row), out),
            Values::Float8(own) => numeric::double(own.value(row), out),
            Values::Numeric(own) => out.extend(own.value_as_string(row).bytes()),
            Values::Text(own) => out.extend(own.value(row).bytes()),
            Values::Bytea(own) => {
                out.extend(b"\\x");
                own.value(row).iter().for_each(|byte| {
                    let _ = write!(out, "{byte:02x}");
                });
            }
            Values::Date(own) => times::date(own.value(row), out),
            Values::Time(own) => times::time(own.value(row), out),
            Values::Timestamp(own) => {
                times::timestamp(own.value(row), self.kind == Kind::Timestamptz, out);
            }
            Values::Interval(own) => times::interval(own.value(row), out),
            Values::List(lists, items) => list_text(span(lists, row), items, out),
        }
    }

    /// Appends the binary form of a value that is not NULL.
    fn binary(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Bool(own) => out.push(u8::from(own.value(row))),
            Values::Int2(own) => out.extend(own.value(row).to_be_bytes()),
            Values::Int4(own) => out.extend(own.value(row).to_be_bytes()),
            Values::Int8(own) if self.kind == Kind::Oid => {
                out.extend(u32::try_from(own.value(row)).unwrap_or(0).to_be_bytes());
            }
            Values::Int8(own) => out.extend(own.value(row).to_be_bytes()),
            Values::Float4(own) => out.extend(own.value(row).to_be_bytes()),
            Values::Float8(own) => out.extend(own.value(row).to_be_bytes()),
            Values::Numeric(own) => numeric::binary(&own.value_as_string(row), out),
            Values::Text(own) => out.extend(own.value(row).bytes()),
            Values::Bytea(own) => out.extend(own.value(row)),
            Values::Date(own) => {
                let days = i64::from(own.value(row)).saturating_sub(times::EPOCH_DAYS);
                let days = i32::try_from(days).unwrap_or(i32::MIN);
                out.extend(days.to_be_bytes());
            }
            Values::Time(own) => out.extend(own.value(row).to_be_bytes()),
            Values::Timestamp(own) => {
                out.extend(own.value(row).saturating_sub(times::EPOCH_MICROS).to_be_bytes());
            }
            Values::Interval(own) => {
                let value = own.value(row);
                out.extend((value.nanoseconds / 1000).to_be_bytes());
                out.extend(value.days.to_be_bytes());
                out.extend(value.months.to_be_bytes());
            }
            Values::List(lists, items) => list_binary(span(lists, row), items, out),
        }
    }
}

fn show(out: &mut Vec<u8>, number: impl std::fmt::Display) {
    // Writing to memory does not fail.
    let _ = write!(out, "{number}");
}

/// Indexes of the items of a list.
fn span(lists: &LargeListArray, row: usize) -> std::ops::Range<usize> {
    let at = |row: usize| lists.value_offsets().get(row).copied().unwrap_or_default();
    let index = |at: i64| usize::try_from(at).unwrap_or_default();
    index(at(row))..index(at(row.saturating_add(1)))
}

fn list_text(span: std::ops::Range<usize>, items: &Cells, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut item = Vec::new();
    for (at, row) in span.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if items.is_null(row) {
            out.extend(b"NULL");
            continue;
        }
        item.clear();
        items.text(row, &mut item);
        if !must_quote(&item) {
            out.extend(&item);
            continue;
        }
        out.push(b'"');
        for byte in &item {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(*byte);
        }
        out.push(b'"');
    }
    out.push(b'}');
}

/// Whether an item of a list could be misread.
fn must_quote(item: &[u8]) -> bool {
    let is_special = |byte: &u8| {
        matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\')
            || byte.is_ascii_whitespace()
            || *byte == 11
    };
    item.is_empty() || item.eq_ignore_ascii_case(b"null") || item.iter().any(is_special)
}

fn list_binary(span: std::ops::Range<usize>, items: &Cells, out: &mut Vec<u8>) {
    let length = i32::try_from(span.len()).unwrap_or(i32::MAX);
    let has_null = span.clone().any(|row| items.is_null(row));
    // Number of dimensions: an empty list has none.
    out.extend(i32::from(length > 0).to_be_bytes());
    out.extend(i32::from(has_null).to_be_bytes());
    out.extend(items.kind.oid().to_be_bytes());
    if length > 0 {
        out.extend(length.to_be_bytes());
        // Index of the first.
        out.extend(1_i32.to_be_bytes());
    }
    span.for_each(|row| items.put(row, Format::Binary, out));
}

fn values(kind: Kind, column: &ArrayRef) -> Result<Values, ArrowError> {
    let is_text = column.data_type().is_string() || matches!(column.data_type(), DataType::Null);
    if kind == Kind::Json && !is_text {
        return json(column).map(Values::Text);
    }
    // Casts are strict: a value that does not fit is an error, not NULL.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let column = cast_with_options(column, &kind.stored(), &options)?;
    Ok(match kind {
        Kind::Bool => Values::Bool(column.as_boolean().clone()),
        Kind::Int2 => Values::Int2(column.as_primitive::<Int16Type>().clone()),
        Kind::Int4 => Values::Int4(column.as_primitive::<Int32Type>().clone()),
        Kind::Int8 | Kind::Oid => Values::Int8(column.as_primitive::<Int64Type>().clone()),
        Kind::Float4 => Values::Float4(column.as_primitive::<Float32Type>().clone()),
        Kind::Float8 => Values::Float8(column.as_primitive::<Float64Type>().clone()),
        Kind::Numeric(..) => Values::Numeric(column.as_primitive::<Decimal256Type>().clone()),
        Kind::Text | Kind::Json | Kind::Name | Kind::Char => {
            Values::Text(column.as_string_view().clone())
        }
        Kind::Bytea => Values::Bytea(column.as_binary::<i64>().clone()),
        Kind::Date => Values::Date(column.as_primitive::<Date32Type>().clone()),
        Kind::Time => Values::Time(column.as_primitive::<Time64MicrosecondType>().clone()),
        Kind::Timestamp | Kind::Timestamptz => {
            Values::Timestamp(column.as_primitive::<TimestampMicrosecondType>().clone())
        }
        Kind::Interval => {
            Values::Interval(column.as_primitive::<IntervalMonthDayNanoType>().clone())
        }
        Kind::List(item) => list(item, column.as_list::<i64>())?,
    })
}

fn list(item: Item, lists: &LargeListArray) -> Result<Values, ArrowError> {
    let items = Cells { kind: item.kind(), values: values(item.kind(), lists.values())? };
    Ok(Values::List(lists.clone(), Box::new(items)))
}

/// The values of a column as JSON.
fn json(column: &ArrayRef) -> Result<StringViewArray, ArrowError> {
    let field = Arc::new(Field::new("value", column.data_type().clone(), true));
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(&field, column.as_ref(), &options)?;
    let mut texts = StringViewBuilder::with_capacity(column.len());
    let mut text = Vec::new();
    for row in 0..column.len() {
        if encoder.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        encoder.encode(row, &mut text);
        texts.append_value(String::from_utf8_lossy(&text));
    }
    Ok(texts.finish())
}

#[cfg(test)]
mod tests;
