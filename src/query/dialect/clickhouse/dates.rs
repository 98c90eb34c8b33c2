//! Templates of ClickHouse's date functions: numbers and texts derived from dates, and elapsed time.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Expr, Value};

use crate::dialect::clickhouse::text;

/// See [`super::TEMPLATES`].
pub(super) const TEMPLATES: &[(&str, usize, &str)] = &[
    (
        "toYYYYMM",
        1,
        "CAST(date_part('year', $1 AT TIME ZONE $zone) * 100 + date_part('month', $1 AT TIME ZONE $zone) AS BIGINT)",
    ),
    (
        "toYYYYMMDD",
        1,
        "CAST(date_part('year', $1 AT TIME ZONE $zone) * 10000 + date_part('month', $1 AT TIME ZONE $zone) * 100 \
         + date_part('day', $1 AT TIME ZONE $zone) AS BIGINT)",
    ),
    ("toYYYYMMDDhhmmss", 1, "CAST(format_time($1 AT TIME ZONE $zone, '%Y%m%d%H%i%S') AS BIGINT)"),
    // Weeks begin on Sundays, and week 1 contains the first Sunday.
    (
        "toWeek",
        1,
        "CAST((date_part('doy', $1 AT TIME ZONE $zone) + 6 - date_part('dow', $1 AT TIME ZONE $zone)) / 7 AS BIGINT)",
    ),
    (
        "toISOYear",
        1,
        "date_part('year', date_trunc('week', $1 AT TIME ZONE $zone) + INTERVAL '3 days')",
    ),
    // The first ISO week contains the fourth of January.
    (
        "toStartOfISOYear",
        1,
        "date_trunc('week', date_trunc('year', date_trunc('week', $1 AT TIME ZONE $zone) + INTERVAL '3 days') + INTERVAL \
         '3 days')",
    ),
    ("monthName", 1, "format_time($1 AT TIME ZONE $zone, '%M')"),
    (
        "toStartOfTenMinutes",
        1,
        "CAST(date_bin(INTERVAL '10 minutes', $1) AS TIMESTAMP(6) WITH TIME ZONE)",
    ),
    ("timeSlot", 1, "CAST(date_bin(INTERVAL '30 minutes', $1) AS TIMESTAMP(6) WITH TIME ZONE)"),
    (
        "toUnixTimestamp64Micro",
        1,
        "CAST(round(date_part('epoch', $1 AT TIME ZONE $zone) * 1000000) AS BIGINT)",
    ),
    (
        "toUnixTimestamp64Nano",
        1,
        "(CAST(round(date_part('epoch', $1 AT TIME ZONE $zone) * 1000000) AS BIGINT) * 1000)",
    ),
    ("fromUnixTimestamp64Micro", 1, "CAST(to_timestamp_micros($1) AS TIMESTAMP(6) WITH TIME ZONE)"),
    ("toISOWeek", 1, "date_part('week', $1 AT TIME ZONE $zone)"),
    ("formatDateTime", 2, "format_time($1 AT TIME ZONE $zone, $2)"),
    ("toTimeZone", 1, "($1 AT TIME ZONE $zone)"),
    (
        "toUnixTimestamp64Milli",
        1,
        "CAST(round(date_part('epoch', $1 AT TIME ZONE $zone) * 1000) AS BIGINT)",
    ),
    ("fromUnixTimestamp64Milli", 1, "CAST(to_timestamp_millis($1) AS TIMESTAMP(6) WITH TIME ZONE)"),
    (
        "toLastDayOfMonth",
        1,
        "CAST(date_trunc('month', $1 AT TIME ZONE $zone) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
    ),
    (
        "parseDateTimeBestEffortOrNull",
        1,
        "try_cast(try_cast($1 AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP(6) WITH TIME ZONE)",
    ),
    (
        "parseDateTime64BestEffortOrNull",
        1,
        "try_cast(try_cast($1 AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP(6) WITH TIME ZONE)",
    ),
    (
        "toDateTimeOrNull",
        1,
        "try_cast(try_cast($1 AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP(6) WITH TIME ZONE)",
    ),
];

/// The template of a time in a zone, `toDateTime('...', 'UTC')`, or with a number of digits,
/// `toDateTime64('...', 3, 'UTC')`; the digits are removed from the arguments.
///
/// # Errors
///
/// The zone is not a text, or the digits are missing.
pub(super) fn in_zone(name: &str, arguments: &mut Vec<Expr>) -> Result<Option<String>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let digits = match arguments.get(1) {
        Some(Expr::Value(value)) if is("toDateTime64") => match &value.value {
            Value::Number(digits, _) => Some(digits.clone()),
            _ => None,
        },
        _ => None,
    };
    let truncated = match digits.as_deref() {
        None => "$1",
        Some("0") => "date_trunc('second', $1)",
        Some("3") => "date_trunc('millisecond', $1)",
        Some("6" | "7" | "8" | "9") => "$1",
        Some(_) => {
            let why = format!("{name} has 0, 3, 6 or more digits of seconds");
            return Err(DataFusionError::Plan(why));
        }
    };
    if digits.is_some() {
        arguments.remove(1);
    }
    let at = match arguments.as_slice() {
        [_] if digits.is_none() => return Ok(None),
        [_] => "CAST($1 AS TIMESTAMP WITH TIME ZONE)",
        [_, zone] if text(zone).is_some() => "$1 AT TIME ZONE $zone",
        _ => {
            let why = format!("{name} takes a time and the name of a time zone");
            return Err(DataFusionError::Plan(why));
        }
    };
    let time = format!("CAST({at} AS TIMESTAMP(6) WITH TIME ZONE)");
    Ok(Some(truncated.replace("$1", &time)))
}

/// Units of constant duration, in seconds.
const SECONDS: [(&str, u32); 5] =
    [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400), ("week", 604_800)];

/// Units that are a whole number of months.
const MONTHS: [(&str, u32); 3] = [("month", 1), ("quarter", 3), ("year", 12)];

/// The template of `age`: the number of complete units that have elapsed.
pub(super) fn age(arguments: &[Expr]) -> Result<String> {
    let unit = arguments.first().and_then(text).unwrap_or_default().to_lowercase();
    let of =
        |units: &[(&str, u32)]| units.iter().find(|(own, _)| *own == unit).map(|(_, count)| *count);
    if let Some(seconds) = of(&SECONDS) {
        return Ok(format!(
            "CAST(trunc((date_part('epoch', $3) - date_part('epoch', $2)) / {seconds}) AS BIGINT)"
        ));
    }
    let months = of(&MONTHS).ok_or_else(|| {
        let units = SECONDS.iter().chain(&MONTHS).map(|(unit, _)| *unit).collect::<Vec<_>>();
        DataFusionError::Plan(format!("age counts one of {}, as a text", units.join(", ")))
    })?;
    Ok(format!("(whole_months($2 AT TIME ZONE $zone, $3 AT TIME ZONE $zone) / {months})"))
}
