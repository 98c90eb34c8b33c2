//! Templates of ClickHouse's functions of times and intervals, and conversion of standard SQL times to instants in a
//! zone: [`as_instant`].

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{DataType, Expr, Interval, TimezoneInfo, Value};

use crate::dialect::statements::{cast, take};

/// Units of time: `dateDiff` counts their boundaries between two times; `addDays`, `subtractDays` and `toIntervalDay`
/// exist for each unit.
pub(super) const UNITS: [&str; 8] =
    ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];

/// SQL functions that return instants in nanoseconds, or in units of their own.
const INSTANTS: [&str; 8] = [
    "now",
    "current_timestamp",
    "date_bin",
    "to_timestamp",
    "to_timestamp_seconds",
    "to_timestamp_millis",
    "to_timestamp_micros",
    "to_timestamp_nanos",
];

/// Microseconds, the precision of columns.
const MICROSECONDS: Option<u64> = Some(6);

/// Converts a standard SQL time to an instant of the type of columns, in microseconds and with the project's time zone:
/// `now()`, `TIMESTAMP '...'`, and casts to a timestamp. Timestamps without a zone do not exist here.
pub(super) fn as_instant(expression: &mut Expr) {
    let is_instant = match expression {
        Expr::Function(call) => match call.name.0.as_slice() {
            [name] => name.as_ident().is_some_and(|name| {
                INSTANTS.iter().any(|own| own.eq_ignore_ascii_case(&name.value))
            }),
            _ => false,
        },
        Expr::Cast { data_type, .. } => in_zone(data_type),
        Expr::TypedString(text) => in_zone(&mut text.data_type),
        _ => false,
    };
    if is_instant {
        let data_type = DataType::Timestamp(MICROSECONDS, TimezoneInfo::WithTimeZone);
        *expression = cast(take(expression), data_type);
    }
}

/// Turns a timestamp type without a zone into one with a zone; returns whether its precision was left unspecified.
fn in_zone(data_type: &mut DataType) -> bool {
    let digits = match data_type {
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => *digits,
        DataType::Datetime(digits) => *digits,
        DataType::Timestamp(digits, _) => return digits.is_none(),
        _ => return false,
    };
    *data_type = DataType::Timestamp(digits, TimezoneInfo::WithTimeZone);
    digits.is_none()
}

/// The template of the start of a week; the mode defines the first day of the week, as in ClickHouse.
pub(super) fn start_of_week(arguments: &[Expr], is_monday_first: bool) -> Result<&'static str> {
    let is_monday_first = match arguments {
        [_] => is_monday_first,
        [_, mode] => match digit(mode) {
            Some(mode) => mode % 2 == 1,
            None => {
                let why = "toStartOfWeek takes a time and a mode from 0 to 9: of an odd one weeks begin on Monday";
                return Err(DataFusionError::Plan(why.to_owned()));
            }
        },
        _ => {
            let why = format!("toStartOfWeek takes 1 or 2 arguments, and has {}", arguments.len());
            return Err(DataFusionError::Plan(why));
        }
    };
    Ok(match is_monday_first {
        true => "date_trunc('week', $1 AT TIME ZONE $zone)",
        false => {
            "(date_trunc('week', ($1 AT TIME ZONE $zone) + INTERVAL '1 day') - INTERVAL '1 day')"
        }
    })
}

/// A number of one digit.
fn digit(expression: &Expr) -> Option<u32> {
    let Expr::Value(value) = expression else { return None };
    let Value::Number(number, _) = &value.value else { return None };
    let mut digits = number.chars();
    digits.next()?.to_digit(10).filter(|_| digits.next().is_none())
}

/// The SQL text of an interval of so many units.
fn interval(argument: &str, unit: &str) -> String {
    if unit == "quarter" {
        return interval(&format!("(CAST({argument} AS BIGINT) * 3)"), "month");
    }
    format!("CAST(concat(CAST({argument} AS VARCHAR), ' {unit}') AS INTERVAL)")
}

/// The time unit of an argument: an identifier, or a text.
fn unit(argument: Option<&Expr>) -> Option<&'static str> {
    let name = match argument? {
        Expr::Identifier(name) => name.value.to_lowercase(),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(name) => name.to_lowercase(),
            _ => return None,
        },
        _ => return None,
    };
    UNITS.into_iter().find(|unit| *unit == name)
}

/// The template of a time plus or minus an interval: `dateAdd(time, interval)`, or `dateAdd(unit, count, time)`.
pub(super) fn added(name: &str, sign: char, arguments: &[Expr]) -> Result<String> {
    match (arguments.len(), unit(arguments.first())) {
        (2, _) => Ok(format!("($1 {sign} $2)")),
        (3, Some(unit)) => Ok(format!("($3 {sign} {})", interval("$2", unit))),
        _ => {
            let units = UNITS.join(", ");
            let why = format!(
                "{name} takes a time and an interval, or one of {units}, a number and a time"
            );
            Err(DataFusionError::Plan(why))
        }
    }
}

/// The template of the start of the interval that contains a time. Intervals longer than an hour begin as defined by
/// the project's calendar, which has no multiples of a unit.
pub(super) fn start_of_interval(arguments: &[Expr]) -> Result<String> {
    let sent = match arguments {
        [_, Expr::Interval(interval)] => count_and_unit(interval),
        _ => None,
    };
    let of = |unit: &str| format!("date_trunc('{unit}', $1 AT TIME ZONE $zone)");
    match sent.as_ref().map(|(count, unit)| (*count, unit.as_str())) {
        Some((count, unit @ ("second" | "minute"))) if count > 0 => {
            let start = format!("date_bin(INTERVAL '{count} {unit}', $1)");
            Ok(format!("CAST({start} AS TIMESTAMP(6) WITH TIME ZONE)"))
        }
        Some((1, unit @ ("hour" | "day" | "week" | "month" | "quarter" | "year"))) => Ok(of(unit)),
        _ => {
            let why = "toStartOfInterval takes a time and INTERVAL with a number of seconds or minutes, or with 1 \
                       hour, day, week, month, quarter or year";
            Err(DataFusionError::Plan(why.to_owned()))
        }
    }
}

/// The count and unit of an interval: `INTERVAL 5 minute`, `INTERVAL '5 minutes'`.
fn count_and_unit(interval: &Interval) -> Option<(u32, String)> {
    let Expr::Value(value) = &*interval.value else { return None };
    let (Value::Number(text, _) | Value::SingleQuotedString(text)) = &value.value else {
        return None;
    };
    let whole = match &interval.leading_field {
        Some(unit) => format!("{text} {unit}"),
        None => text.clone(),
    };
    let (count, unit) = whole.trim().split_once(' ')?;
    let unit = unit.trim().to_lowercase();
    let unit = unit.strip_suffix('s').map_or_else(|| unit.clone(), str::to_owned);
    Some((count.parse().ok()?, unit))
}

/// The template of a function that exists for each unit: `addDays`, `subtractDays`, `toIntervalDay`.
pub(super) fn of_unit(name: &str, arguments: usize) -> Option<String> {
    let is = |own: String| own.eq_ignore_ascii_case(name);
    UNITS.into_iter().find_map(|unit| match arguments {
        2 if is(format!("add{unit}s")) => Some(format!("($1 + {})", interval("$2", unit))),
        2 if is(format!("subtract{unit}s")) => Some(format!("($1 - {})", interval("$2", unit))),
        1 if is(format!("toInterval{unit}")) => Some(interval("$1", unit)),
        _ => None,
    })
}

/// The template of `dateDiff`.
pub(super) fn diff(arguments: &[Expr]) -> Result<String> {
    unit(arguments.first()).map(date_diff).ok_or_else(|| {
        let units = UNITS.join(", ");
        DataFusionError::Plan(format!("dateDiff counts one of {units}, as a text"))
    })
}

/// The number of boundaries of a unit between two times.
pub(super) fn date_diff(unit: &str) -> String {
    let place = |argument: &str| {
        let at = format!("{argument} AT TIME ZONE $zone");
        match unit {
            "year" => format!("date_part('year', {at})"),
            "quarter" => format!("(date_part('year', {at}) * 4 + date_part('quarter', {at}))"),
            "month" => format!("date_part('epoch', date_trunc('month', {at})) / 2629746"),
            "week" => format!("floor((date_part('epoch', CAST({at} AS DATE)) / 86400 + 3) / 7)"),
            "day" => format!("date_part('epoch', CAST({at} AS DATE)) / 86400"),
            // Where the zone's offset is a half hour, hours begin accordingly.
            "hour" => format!("date_part('epoch', date_trunc('hour', {at})) / 3600"),
            "minute" => format!("floor(date_part('epoch', {at}) / 60)"),
            _ => format!("floor(date_part('epoch', {at}))"),
        }
    };
    format!("CAST(round({} - {}) AS BIGINT)", place("$3"), place("$2"))
}
