//! Values that clients bind to the parameters of a statement, in text and in binary form, as values of the plan
//! ([`Parameter`]).

use arrow::datatypes::DataType;
use chrono::{DateTime, NaiveDate};

use crate::error::Failure;
use crate::types::declared;
use crate::wire::frontend::Format;
use crate::{numeric, times};
use weir_query::dialect::list_text;
use weir_query::dialect::list_text::NoList;
use weir_query::dialect::parameters::{PARAMETERS_MAX, Parameter};

/// Type ids of which the binary form is not that of a text.
const UUID: u32 = 2950;
const JSONB: u32 = 3802;

/// What is known of the type of a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The type id that the client declared; 0 if it did not.
    pub(crate) oid: u32,
    /// The type that follows from where the parameter stands.
    pub(crate) inferred: Option<DataType>,
}

impl Known {
    fn data_type(&self) -> Option<DataType> {
        if self.oid == 0 { self.inferred.clone() } else { declared(self.oid) }
    }
}

/// Reads a value; `None` is NULL.
///
/// # Errors
///
/// It does not have the form of its type.
pub(crate) fn read(
    value: Option<&[u8]>,
    format: Format,
    known: &Known,
) -> Result<Parameter, Failure> {
    let data_type = known.data_type();
    let Some(value) = value else { return Ok(Parameter::Null(data_type)) };
    match format {
        Format::Text => text(utf8(value)?, data_type.as_ref(), known.oid != 0),
        Format::Binary => binary(value, known.oid, data_type.as_ref()),
    }
}

fn utf8(value: &[u8]) -> Result<&str, Failure> {
    let invalid = |_| Failure::new("22021", "a text is not UTF-8");
    std::str::from_utf8(value).map_err(invalid)
}

fn invalid(value: &str, what: &str) -> Failure {
    let value: String = value.chars().take(60).collect();
    Failure::invalid_value(format!("invalid input syntax for type {what}: \"{value}\""))
}

/// A value in text form. Without a declared type, a text that is compared with a time is one that a query may contain.
fn text(
    value: &str,
    data_type: Option<&DataType>,
    is_declared: bool,
) -> Result<Parameter, Failure> {
    let Some(data_type) = data_type else { return Ok(Parameter::Text(value.to_owned())) };
    match data_type {
        DataType::Boolean => match value.trim().to_lowercase().as_str() {
            "t" | "true" | "y" | "yes" | "on" | "1" => Ok(Parameter::Boolean(true)),
            "f" | "false" | "n" | "no" | "off" | "0" => Ok(Parameter::Boolean(false)),
            _ => Err(invalid(value, "boolean")),
        },
        DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let number = value.trim().parse::<i64>();
            // A fraction that is compared with a whole number is one, if it was not declared.
            match number {
                Ok(number) => Ok(Parameter::Number(number.to_string())),
                Err(_) if !is_declared => double(value),
                Err(_) => Err(invalid(value, "integer")),
            }
        }
        own if own.is_integer() || own.is_floating() => double(value),
        DataType::Decimal128(..) => decimal(value.trim()),
        DataType::Timestamp(..)
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Interval(_)
            if is_declared =>
        {
            Ok(Parameter::Typed(value.to_owned(), data_type.clone()))
        }
        DataType::List(item) => {
            let items = items(value)?.into_iter().map(|item_text| match item_text {
                None => Ok(Parameter::Null(None)),
                Some(own) => text(&own, Some(item.data_type()), is_declared),
            });
            list(items.collect::<Result<_, _>>()?, item.data_type())
        }
        DataType::Binary => {
            Err(Failure::unsupported("parameters of the type bytea are not possible"))
        }
        _ => Ok(Parameter::Text(value.to_owned())),
    }
}

fn double(value: &str) -> Result<Parameter, Failure> {
    let number = value.trim().parse::<f64>().map_err(|_| invalid(value, "double precision"))?;
    Ok(of_double(number))
}

/// With an exponent, so that it is not taken for a whole number.
fn of_double(number: f64) -> Parameter {
    match number.is_finite() {
        true => Parameter::Number(format!("{number:e}")),
        false => Parameter::Typed(number.to_string(), DataType::Float64),
    }
}

fn decimal(value: &str) -> Result<Parameter, Failure> {
    let digits = value.trim_start_matches(['+', '-']);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number =
        [whole, fraction].iter().all(|own| own.bytes().all(|byte| byte.is_ascii_digit()));
    let length = whole.len().saturating_add(fraction.len());
    let scale = i8::try_from(fraction.len()).ok();
    match scale {
        Some(scale) if is_number && (1..=38).contains(&length) => {
            Ok(Parameter::Typed(value.to_owned(), DataType::Decimal128(38, scale)))
        }
        _ => double(value),
    }
}

fn list(items: Vec<Parameter>, item: &DataType) -> Result<Parameter, Failure> {
    if items.len() > PARAMETERS_MAX {
        let why = format!("a list has more than {PARAMETERS_MAX} items");
        return Err(Failure::too_much(why));
    }
    Ok(Parameter::List(items, Some(item.clone())))
}

/// The items of a list such as `{1,"a b",NULL}`.
fn items(value: &str) -> Result<Vec<Option<String>>, Failure> {
    list_text::items(value).map_err(|why| match why {
        NoList::Malformed => invalid(value, "array"),
        NoList::Nested => nested(),
    })
}

fn nested() -> Failure {
    Failure::unsupported("lists of lists are not possible as parameters")
}

fn binary(value: &[u8], oid: u32, data_type: Option<&DataType>) -> Result<Parameter, Failure> {
    let text = |value: &[u8]| Ok(Parameter::Text(utf8(value)?.to_owned()));
    match (oid, value) {
        (UUID, value) => return uuid(value),
        (JSONB, [1, rest @ ..]) => return text(rest),
        _ => {}
    }
    let Some(data_type) = data_type else { return text(value) };
    let typed = |text: Option<String>| {
        text.map(|text| Parameter::Typed(text, data_type.clone())).ok_or_else(wrong)
    };
    match data_type {
        DataType::Boolean => match value {
            [0] => Ok(Parameter::Boolean(false)),
            [_] => Ok(Parameter::Boolean(true)),
            _ => Err(wrong()),
        },
        own if own.is_integer() => {
            Ok(Parameter::Number(whole(value).ok_or_else(wrong)?.to_string()))
        }
        own if own.is_floating() => match value.len() {
            4 => Ok(of_double(array(value).map(f32::from_be_bytes).map(f64::from)?)),
            _ => Ok(of_double(array(value).map(f64::from_be_bytes)?)),
        },
        DataType::Decimal128(..) => decimal(&numeric::from_binary(value).ok_or_else(wrong)?),
        DataType::Date32 => typed(date(whole(value).ok_or_else(wrong)?)),
        DataType::Timestamp(_, zone) => {
            typed(timestamp(array(value).map(i64::from_be_bytes)?, zone.is_some()))
        }
        DataType::Time64(_) => {
            let mut text = Vec::new();
            times::time(array(value).map(i64::from_be_bytes)?, &mut text);
            typed(String::from_utf8(text).ok())
        }
        DataType::Interval(_) => typed(interval(value)),
        DataType::List(item) => binary_list(value, item.data_type()),
        DataType::Binary => {
            Err(Failure::unsupported("parameters of the type bytea are not possible"))
        }
        _ => text(value),
    }
}

fn wrong() -> Failure {
    Failure::new("22P03", "a parameter is not in the binary form of its type")
}

fn array<const N: usize>(value: &[u8]) -> Result<[u8; N], Failure> {
    value.try_into().map_err(|_| wrong())
}

/// A whole number of two, four or eight bytes.
fn whole(value: &[u8]) -> Option<i64> {
    match value.len() {
        2 => Some(i16::from_be_bytes(value.try_into().ok()?).into()),
        4 => Some(i32::from_be_bytes(value.try_into().ok()?).into()),
        8 => Some(i64::from_be_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

fn uuid(value: &[u8]) -> Result<Parameter, Failure> {
    let bytes: [u8; 16] = array(value)?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or_default());
    Ok(Parameter::Text(parts.join("-")))
}

fn date(days: i64) -> Option<String> {
    let days = i32::try_from(days.checked_add(times::EPOCH_DAYS)?).ok()?;
    NaiveDate::from_epoch_days(days).map(|date| date.format("%Y-%m-%d").to_string())
}

fn timestamp(micros: i64, has_zone: bool) -> Option<String> {
    let time = DateTime::from_timestamp_micros(micros.checked_add(times::EPOCH_MICROS)?)?;
    let zone = if has_zone { "Z" } else { "" };
    Some(format!("{}{zone}", time.format("%Y-%m-%dT%H:%M:%S%.6f")))
}

fn interval(value: &[u8]) -> Option<String> {
    let (micros, rest) = value.split_at_checked(8)?;
    let (days, months) = rest.split_at_checked(4)?;
    let (micros, days, months) = (whole(micros)?, whole(days)?, whole(months)?);
    Some(format!("{months} months {days} days {micros} microseconds"))
}

fn binary_list(value: &[u8], item: &DataType) -> Result<Parameter, Failure> {
    let mut rest = value;
    let mut number = || {
        let (own, behind) = rest.split_at_checked(4).ok_or_else(wrong)?;
        rest = behind;
        array(own).map(i32::from_be_bytes)
    };
    let (dimensions, _, oid) = (number()?, number()?, number()?);
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = number()?;
            // The index of the first item.
            number()?;
            usize::try_from(count).map_err(|_| wrong())?
        }
        _ => return Err(nested()),
    };
    let known = Known { oid: u32::try_from(oid).unwrap_or(0), inferred: None };
    // An item that says it is a list would be read by this function again, as deep as the client likes.
    if known.data_type().is_some_and(|own| own.is_list()) {
        return Err(nested());
    }
    let mut items = Vec::new();
    for _ in 0..count.min(PARAMETERS_MAX.saturating_add(1)) {
        let (length, behind) = rest.split_at_checked(4).ok_or_else(wrong)?;
        let length = array(length).map(i32::from_be_bytes)?;
        let Ok(length) = usize::try_from(length) else {
            items.push(Parameter::Null(None));
            rest = behind;
            continue;
        };
        let (own, behind) = behind.split_at_checked(length).ok_or_else(wrong)?;
        items.push(read(Some(own), Format::Binary, &known)?);
        rest = behind;
    }
    list(items, item)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::{Known, read};
    use crate::wire::frontend::Format;
    use weir_query::dialect::parameters::Parameter;

    fn of(oid: u32, format: Format, value: &[u8]) -> Result<Parameter, &'static str> {
        let known = Known { oid, inferred: None };
        read(Some(value), format, &known).map_err(|error| error.code)
    }

    #[test]
    fn texts_are_read_by_their_types() {
        let number = |text: &str| Ok(Parameter::Number(text.to_owned()));
        let text = |text: &str| Ok(Parameter::Text(text.to_owned()));
        let strings = |items: &[Option<&str>]| {
            let item = |own: &Option<&str>| {
                own.map_or(Parameter::Null(None), |own| Parameter::Text(own.to_owned()))
            };
            Ok(Parameter::List(items.iter().map(item).collect(), Some(DataType::Utf8View)))
        };
        for (oid, value, expected) in [
            (16, "t", Ok(Parameter::Boolean(true))),
            (16, "maybe", Err("22P02")),
            (23, " -5 ", number("-5")),
            (20, "9223372036854775807", number("9223372036854775807")),
            (20, "1.5", Err("22P02")),
            (701, "1.5", number("1.5e0")),
            (701, "3", number("3e0")),
            (701, "NaN", Ok(Parameter::Typed("NaN".to_owned(), DataType::Float64))),
            (1700, "-1.25", Ok(Parameter::Typed("-1.25".to_owned(), DataType::Decimal128(38, 2)))),
            (1700, "x", Err("22P02")),
            (25, "it's $1", text("it's $1")),
            (0, "5", text("5")),
            (1082, "2026-01-01", Ok(Parameter::Typed("2026-01-01".to_owned(), DataType::Date32))),
            (1009, "{}", strings(&[])),
            (
                1009,
                "{a, \"b \\\"c\",NULL,\"NULL\",\"\"}",
                strings(&[Some("a"), Some("b \"c"), None, Some("NULL"), Some("")]),
            ),
            (1009, "{{a}}", Err("0A000")),
            (1009, "{a", Err("22P02")),
            (1009, "{a,}", Err("22P02")),
            (1009, "{\"a}", Err("22P02")),
            (17, "\\x00", Err("0A000")),
        ] {
            assert_eq!(of(oid, Format::Text, value.as_bytes()), expected, "{oid} {value}");
        }
        assert_eq!(of(25, Format::Text, b"\xff"), Err("22021"));
        // A type that was inferred is no promise of the client.
        let known = Known { oid: 0, inferred: Some(DataType::Int64) };
        let read = |value: &str| {
            read(Some(value.as_bytes()), Format::Text, &known).map_err(|error| error.code)
        };
        assert_eq!(
            (read("7"), read("7.5"), read("x")),
            (number("7"), number("7.5e0"), Err("22P02"))
        );
    }

    /// Expectations: what psycopg 3 and asyncpg send.
    #[test]
    fn binary_forms_are_read() {
        let number = |text: &str| Ok(Parameter::Number(text.to_owned()));
        let typed = |text: &str, data_type| Ok(Parameter::Typed(text.to_owned(), data_type));
        let utc = || super::declared(1184).unwrap();
        for (oid, value, expected) in [
            (21, &[0xff, 0xfe][..], number("-2")),
            (20, &[0, 0, 0, 0, 0, 0, 0, 7], number("7")),
            (20, &[0, 7, 0], Err("22P03")),
            (16, &[1], Ok(Parameter::Boolean(true))),
            (701, &[0x3f, 0xe0, 0, 0, 0, 0, 0, 0], number("5e-1")),
            (25, "é".as_bytes(), Ok(Parameter::Text("é".to_owned()))),
            (1082, &[0, 0, 0, 1], typed("2000-01-02", DataType::Date32)),
            (1184, &[0, 0, 0, 0, 0, 0x16, 0xe3, 0x60], typed("2000-01-01T00:00:01.500000Z", utc())),
            (1184, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Err("22P03")),
            (1700, &[0, 1, 0, 0, 0x40, 0, 0, 0, 0, 5], typed("-5", DataType::Decimal128(38, 0))),
            (
                2950,
                &[0x12; 16],
                Ok(Parameter::Text("12121212-1212-1212-1212-121212121212".to_owned())),
            ),
            (3802, b"\x01{}", Ok(Parameter::Text("{}".to_owned()))),
            (
                1016,
                &[
                    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0,
                    0, 0, 0, 0, 0, 9, 255, 255, 255, 255,
                ],
                Ok(Parameter::List(
                    vec![Parameter::Number("9".to_owned()), Parameter::Null(None)],
                    Some(DataType::Int64),
                )),
            ),
            (
                1016,
                &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1],
                Err("22P03"),
            ),
            (1016, &[0, 0, 0, 2], Err("22P03")),
        ] {
            assert_eq!(of(oid, Format::Binary, value), expected, "{oid} {value:?}");
        }
    }
}
