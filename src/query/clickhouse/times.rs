//! Templates of ClickHouse's functions of times and intervals.

use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Interval;
use datafusion::sql::sqlparser::ast::Value;

/// Units of time: `dateDiff` counts their borders between two times, and `addDays`, `subtractDays` and
/// `toIntervalDay` are there for each.
pub(super) const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

/// The text of an interval of so many units.
fn interval(argument: &str, unit: &str) -> String {
    format!("CAST(concat(CAST({argument} AS VARCHAR), ' {unit}') AS INTERVAL)")
}

/// The unit that an argument is: a name, or a text.
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

/// The template of a time with an interval added or taken away: `dateAdd(time, interval)`, or `dateAdd(unit, count, time)`.
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

/// The template of the start of the interval that a time lies in. Longer ones than an hour begin as the calendar of the
/// project says, which knows no groups of them.
pub(super) fn start_of_interval(arguments: &[Expr]) -> Result<String> {
    let sent = match arguments {
        [_, Expr::Interval(interval)] => count_and_unit(interval),
        _ => None,
    };
    let of = |unit: &str| format!("date_trunc('{unit}', $1 AT TIME ZONE $zone)");
    match sent.as_ref().map(|(count, unit)| (*count, unit.as_str())) {
        Some((count, unit @ ("second" | "minute"))) if count > 0 => {
            Ok(format!("date_bin(INTERVAL '{count} {unit}', $1)"))
        }
        Some((1, unit @ ("hour" | "day" | "week" | "month" | "quarter" | "year"))) => Ok(of(unit)),
        _ => {
            let why = "toStartOfInterval takes a time and INTERVAL with a number of seconds or minutes, or with 1 \
                       hour, day, week, month, quarter or year";
            Err(DataFusionError::Plan(why.to_owned()))
        }
    }
}

/// What an interval counts: `INTERVAL 5 minute`, `INTERVAL '5 minutes'`.
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

/// The template of a function that there is for each unit: `addDays`, `subtractDays`, `toIntervalDay`.
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

/// How many borders of a unit lie between two times.
pub(super) fn date_diff(unit: &str) -> String {
    let place = |argument: &str| {
        let at = format!("{argument} AT TIME ZONE $zone");
        match unit {
            "year" => format!("date_part('year', {at})"),
            "month" => format!("date_part('epoch', date_trunc('month', {at})) / 2629746"),
            "week" => format!("floor((date_part('epoch', CAST({at} AS DATE)) / 86400 + 3) / 7)"),
            "day" => format!("date_part('epoch', CAST({at} AS DATE)) / 86400"),
            "hour" => format!("floor(date_part('epoch', {argument}) / 3600)"),
            "minute" => format!("floor(date_part('epoch', {argument}) / 60)"),
            _ => format!("floor(date_part('epoch', {argument}))"),
        }
    };
    format!("CAST(round({} - {}) AS BIGINT)", place("$3"), place("$2"))
}
