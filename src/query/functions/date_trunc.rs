//! Faster `date_trunc` of many instants, also in a time zone: computed only once for each quarter of an hour that
//! contains any, and in UTC once for each hour or day. A query groups millions of events by day, and a time zone
//! look-up for each costs several times as much as the rest of the query.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, UInt32Array};
use arrow::compute::{max, min, take};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

/// Microseconds of a quarter of an hour. From [`SINCE`] on, the offsets of all zones are multiples of it, and change at
/// multiples of it (tz database), so all instants in one have the same start of any of [`UNITS`].
const QUARTER: i64 = 900_000_000;

/// Likewise an hour and a day: in UTC all instants in one have the same start of that unit and of all longer ones.
const HOUR: i64 = 4 * QUARTER;
const DAY: i64 = 24 * HOUR;

/// Names of UTC in timestamp types.
const UTC: [&str; 3] = ["UTC", "Etc/UTC", "+00:00"];

/// The beginning of 1973, in microseconds. The last zone with an offset that was not a whole number of minutes,
/// Liberia's, had it until January 1972.
const SINCE: i64 = 94_694_400_000_000;

/// Units that are longer than a quarter of an hour. Shorter ones need no time zone look-up.
const UNITS: [&str; 6] = ["hour", "day", "week", "month", "quarter", "year"];

/// Marks a span in which no instant was found yet.
const NONE: u32 = u32::MAX;

/// Whether [`call`] applies to this function.
pub(crate) fn is_it(function: &ScalarUDF) -> bool {
    function.name() == "date_trunc"
}

/// Calls the function, for one instant of each span with a common start where that is less work.
pub(crate) fn call(
    function: &ScalarUDF,
    mut arguments: ScalarFunctionArgs,
) -> Result<ColumnarValue> {
    let Some(Spans { instants, places }) = spans(&arguments) else {
        return function.invoke_with_args(arguments);
    };
    let rows = instants.len();
    if let Some(own) = arguments.args.get_mut(1) {
        *own = ColumnarValue::Array(instants);
    }
    arguments.number_rows = rows;
    let starts = function.invoke_with_args(arguments)?.into_array(rows)?;
    Ok(ColumnarValue::Array(take(&starts, &places, None)?))
}

/// One instant of each span that contains any, and for each row the index of that instant.
struct Spans {
    instants: ArrayRef,
    places: UInt32Array,
}

/// `None` where calling the function for all rows is better.
fn spans(arguments: &ScalarFunctionArgs) -> Option<Spans> {
    let [ColumnarValue::Scalar(unit), ColumnarValue::Array(times)] = arguments.args.as_slice()
    else {
        return None;
    };
    let (ScalarValue::Utf8(unit) | ScalarValue::Utf8View(unit) | ScalarValue::LargeUtf8(unit)) =
        unit
    else {
        return None;
    };
    let unit = unit.as_deref()?;
    let DataType::Timestamp(TimeUnit::Microsecond, zone) = times.data_type() else { return None };
    let times = times.as_primitive::<TimestampMicrosecondType>();
    let (first, last) = (min(times)?, max(times)?);
    if first < SINCE || !UNITS.iter().any(|own| own.eq_ignore_ascii_case(unit)) {
        return None;
    }
    let is_utc = zone.as_deref().is_none_or(|zone| UTC.contains(&zone));
    let span = match is_utc {
        true if unit.eq_ignore_ascii_case("hour") => HOUR,
        true => DAY,
        false => QUARTER,
    };
    let first = first / span;
    let count = usize::try_from(last / span - first + 1).ok()?;
    if count > times.len() / 2 {
        return None;
    }
    let mut of_span = vec![NONE; count];
    let mut instants = Vec::new();
    let mut place = |time: i64| {
        let own = of_span.get_mut(usize::try_from(time / span - first).ok()?)?;
        if *own == NONE {
            *own = u32::try_from(instants.len()).ok()?;
            instants.push(time);
        }
        Some(*own)
    };
    let places = times.iter().map(|time| place(time?)).collect();
    let instants = PrimitiveArray::<TimestampMicrosecondType>::from(instants);
    let instants = instants.with_timezone_opt(zone.clone());
    Some(Spans { instants: Arc::new(instants), places })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, TimestampMicrosecondArray};
    use arrow::datatypes::Field;
    use chrono_tz::TZ_VARIANTS;
    use datafusion::common::ScalarValue;
    use datafusion::config::ConfigOptions;
    use datafusion::functions::datetime::date_trunc;
    use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{DAY, QUARTER, SINCE, UNITS, call, is_it, spans};

    fn arguments(unit: &str, times: &ArrayRef) -> ScalarFunctionArgs {
        let unit = ScalarValue::from(unit);
        let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
        ScalarFunctionArgs {
            arg_fields: vec![field("u", unit.data_type()), field("t", times.data_type().clone())],
            args: vec![ColumnarValue::Scalar(unit), ColumnarValue::Array(Arc::clone(times))],
            number_rows: times.len(),
            return_field: field("r", times.data_type().clone()),
            config_options: Arc::new(ConfigOptions::default()),
        }
    }

    fn times(micros: Vec<Option<i64>>, zone: Option<&str>) -> ArrayRef {
        let times = TimestampMicrosecondArray::from(micros);
        Arc::new(times.with_timezone_opt(zone.map(Arc::<str>::from)))
    }

    /// Goal: the same results as the function itself, in every zone of the world and without one. Method: instants of
    /// some days anywhere from 1973 to 2100, including the first and last of quarters, and nulls.
    #[test]
    fn starts_are_those_of_the_function() {
        let function = date_trunc();
        assert!(is_it(&function));
        let mut rng = StdRng::seed_from_u64(7);
        let zones = TZ_VARIANTS.iter().map(|zone| Some(zone.name()));
        let zones = zones.chain([None, Some("+05:45"), Some("+00:00")]);
        let (mut short, mut all) = (0, 0);
        for zone in zones {
            for unit in UNITS {
                let from = rng.random_range(SINCE / QUARTER..4_102_444_800_000_000 / QUARTER);
                let reach = rng.random_range(1..150);
                let micros = (0..400).map(|_| {
                    let quarter = (from + rng.random_range(0..reach)) * QUARTER;
                    match rng.random_range(0..8) {
                        0 => None,
                        1 => Some(quarter),
                        2 => Some(quarter + QUARTER - 1),
                        _ => Some(quarter + rng.random_range(0..QUARTER)),
                    }
                });
                let times = times(micros.collect(), zone);
                short += usize::from(spans(&arguments(unit, &times)).is_some());
                all += 1;
                let expected = function.invoke_with_args(arguments(unit, &times));
                match (expected, call(&function, arguments(unit, &times))) {
                    (Ok(expected), Ok(found)) => {
                        let (expected, found) =
                            (expected.into_array(400).unwrap(), found.into_array(400).unwrap());
                        assert_eq!(&expected, &found, "{unit} in {zone:?}");
                    }
                    (expected, found) => {
                        assert_eq!(expected.is_err(), found.is_err(), "{unit} in {zone:?}");
                    }
                }
            }
        }
        assert_eq!(short, all, "all were short");
    }

    #[test]
    fn others_are_left_to_the_function() {
        let now = 1_700_000_000_000_000;
        let many = |first: i64, step: i64| {
            times((0..100).map(|row| Some(first + row * step)).collect(), Some("UTC"))
        };
        let in_zone = |first: i64| {
            let quarters = (0..100).map(|row| Some(first + row * QUARTER));
            times(quarters.collect(), Some("Asia/Kathmandu"))
        };
        for (unit, times, is_short) in [
            ("day", many(now, 1), true),
            ("DAY", many(now, 1), true),
            ("minute", many(now, 1), false),
            ("fortnight", many(now, 1), false),
            ("day", many(now, QUARTER), true),
            ("hour", many(now, QUARTER), true),
            ("hour", many(now, 3 * QUARTER), false),
            ("week", many(now, DAY), false),
            ("day", in_zone(now), false),
            ("day", many(SINCE - 50, 1), false),
            ("day", times(vec![None; 100], None), false),
            ("day", times(Vec::new(), None), false),
        ] {
            assert_eq!(spans(&arguments(unit, &times)).is_some(), is_short, "{unit} {times:?}");
        }
    }
}
