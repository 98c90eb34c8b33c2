//! Time functions other than parts of dates: formatting, and the number of complete units between two times.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, PrimitiveArray, StringViewBuilder};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use chrono::{DateTime, Datelike, Timelike};
use datafusion::error::{DataFusionError, Result};

use crate::functions::own::{Own, Takes, argument, internal, text, texts, whole};

/// All functions of this file.
pub(super) const ALL: &[Own] = &[
    Own::new("format_time", &[Takes::Time, Takes::Text], text, formatted),
    Own::new("whole_months", &[Takes::Time, Takes::Time], whole, months),
];

/// Times, and their time zone.
fn times(sent: &[ArrayRef], at: usize) -> Result<(&PrimitiveArray<TimestampMicrosecondType>, Tz)> {
    let times = argument(sent, at)?;
    let DataType::Timestamp(_, zone) = times.data_type() else { return Err(internal("a time")) };
    let zone: Tz = zone.as_deref().unwrap_or("UTC").parse()?;
    let times = times.as_primitive_opt::<TimestampMicrosecondType>();
    Ok((times.ok_or_else(|| internal("a time"))?, zone))
}

fn local(micros: i64, zone: Tz) -> Option<DateTime<Tz>> {
    Some(DateTime::from_timestamp_micros(micros)?.with_timezone(&zone))
}

/// Formats times as `formatDateTime`.
fn formatted(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let ((times, zone), formats) = (times(sent, 0)?, texts(sent, 1)?);
    let mut given = StringViewBuilder::with_capacity(times.len());
    for (row, format) in formats.iter().enumerate() {
        let time = times.is_valid(row).then(|| local(times.value(row), zone)).flatten();
        match time.zip(format) {
            Some((time, format)) => given.append_value(written(&time, format)?),
            None => given.append_null(),
        }
    }
    Ok(Arc::new(given.finish()))
}

/// Formats a time; the format specifiers are ClickHouse's, which has most of MySQL's.
fn written(time: &DateTime<Tz>, format: &str) -> Result<String> {
    let mut given = String::with_capacity(format.len().saturating_mul(2));
    let mut signs = format.chars();
    while let Some(sign) = signs.next() {
        if sign != '%' {
            given.push(sign);
            continue;
        }
        let sign = signs.next().unwrap_or('%');
        let of_chrono = match sign {
            'a' | 'b' | 'd' | 'e' | 'j' | 'm' | 'p' | 'u' | 'w' | 'y' | 'C' | 'D' | 'F' | 'G'
            | 'H' | 'I' | 'S' | 'T' | 'V' | 'Y' | 'g' | '%' | 'z' => Some(format!("%{sign}")),
            // The same specifiers in chrono.
            'i' => Some("%M".to_owned()),
            'M' => Some("%B".to_owned()),
            'W' => Some("%A".to_owned()),
            'h' => Some("%I".to_owned()),
            's' => Some("%S".to_owned()),
            'R' => Some("%H:%M".to_owned()),
            'r' => Some("%I:%M %p".to_owned()),
            'k' => Some("%H".to_owned()),
            'l' => Some("%I".to_owned()),
            'c' => Some("%m".to_owned()),
            _ => None,
        };
        match (sign, of_chrono) {
            (_, Some(own)) => given.push_str(&time.format(&own).to_string()),
            ('Q', _) => given.push_str(&((time.month() - 1) / 3 + 1).to_string()),
            ('f', _) => given.push_str(&format!("{:06}", time.nanosecond() / 1000)),
            ('n', _) => given.push('\n'),
            ('t', _) => given.push('\t'),
            _ => {
                let why = format!("formatDateTime knows no %{sign}");
                return Err(DataFusionError::Execution(why));
            }
        }
    }
    Ok(given)
}

/// The number of complete months from one time to another, negative if that is earlier.
fn months(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let ((from, zone), (to, _)) = (times(sent, 0)?, times(sent, 1)?);
    let between = |row: usize| {
        if from.is_null(row) || to.is_null(row) {
            return None;
        }
        let (from, to) = (local(from.value(row), zone)?, local(to.value(row), zone)?);
        Some(if to < from { -whole_months(&to, &from) } else { whole_months(&from, &to) })
    };
    Ok(Arc::new((0..from.len()).map(between).collect::<Int64Array>()))
}

fn whole_months(from: &DateTime<Tz>, to: &DateTime<Tz>) -> i64 {
    let month = |time: &DateTime<Tz>| i64::from(time.year()) * 12 + i64::from(time.month());
    let rest = |time: &DateTime<Tz>| (time.day(), time.time());
    month(to) - month(from) - i64::from(rest(to) < rest(from))
}
