//! Time zone arithmetic, as functions that planning substitutes for casts and sums ([`Work`]). A local time that is
//! skipped is taken as an hour later, and a repeated one as its first occurrence, unless it was computed from the
//! second.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::datatypes::{
    ArrowTimestampType, DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow::temporal_conversions::as_datetime;
use chrono::{
    Days, FixedOffset, MappedLocalTime, Months, NaiveDate, NaiveDateTime, NaiveTime, Offset,
    TimeDelta, TimeZone,
};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use serde::{Deserialize, Serialize};

use crate::kernel::type_text::TypeText;

/// Seconds by which a skipped local time is moved.
const SKIPPED_SECONDS: i32 = 3600;

/// An operation on times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// Parses texts to instants: as local times, unless they have an offset.
    Read {
        /// Whether a text that is not a time gives null.
        is_lenient: bool,
    },
    /// Converts dates, and times without a zone, to the instants of these local times.
    Set {
        /// Whether a time out of range gives null.
        is_lenient: bool,
    },
    /// Converts instants to local times.
    Shown,
    /// Adds intervals to instants, one after another: days and months in local time, shorter units in elapsed time.
    /// Each flag is true if the interval is subtracted.
    Moved(Vec<bool>),
    /// Rounds the second argument's instants down to the start of intervals, by this function applied to local times.
    Binned(Arc<ScalarUDF>),
}

impl Work {
    /// The same, with null for values that cannot be converted.
    pub(super) fn lenient(self) -> Self {
        match self {
            Self::Read { .. } => Self::Read { is_lenient: true },
            Self::Set { .. } => Self::Set { is_lenient: true },
            other => other,
        }
    }

    /// A call of the operation that returns times of this type.
    pub(super) fn call(self, gives: &DataType, arguments: Vec<Expr>) -> Expr {
        let signature = Signature::any(arguments.len(), Volatility::Immutable);
        let function = LocalTime { work: self, gives: gives.clone(), signature };
        ScalarUDF::new_from_impl(function).call(arguments)
    }
}

/// Adds an interval to a time of this type. If the time is itself such a sum, both become one call.
pub(super) fn moved(time: Expr, by: Expr, is_back: bool, gives: &DataType) -> Expr {
    let before = function(&time).and_then(|own| match &own.work {
        Work::Moved(steps) if own.gives == *gives => Some(steps.clone()),
        _ => None,
    });
    match (before, time) {
        (Some(mut steps), Expr::ScalarFunction(mut call)) => {
            steps.push(is_back);
            call.args.push(by);
            Work::Moved(steps).call(gives, call.args)
        }
        (_, time) => Work::Moved(vec![is_back]).call(gives, vec![time, by]),
    }
}

/// The return type of an expression, if it calls one of these functions.
pub(super) fn gives(expression: &Expr) -> Option<&DataType> {
    function(expression).map(|own| &own.gives)
}

fn function(expression: &Expr) -> Option<&LocalTime> {
    match expression {
        Expr::ScalarFunction(call) => call.func.inner().downcast_ref::<LocalTime>(),
        _ => None,
    }
}

/// What one of these functions consists of, for plans that another process executes; `F` is that of a function that it
/// applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalTimeContent<F> {
    work: WorkContent<F>,
    gives: TypeText,
    arguments: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum WorkContent<F> {
    Read { is_lenient: bool },
    Set { is_lenient: bool },
    Shown,
    Moved(Vec<bool>),
    Binned(F),
}

impl<F> LocalTimeContent<F> {
    /// That of a function; `None` if it is none of these, or a part of it cannot be written.
    pub(crate) fn of(
        function: &ScalarUDF,
        write: impl FnOnce(&ScalarUDF) -> Option<F>,
    ) -> Option<Self> {
        let own = function.inner().downcast_ref::<LocalTime>()?;
        let TypeSignature::Any(arguments) = own.signature.type_signature else { return None };
        let work = match &own.work {
            Work::Read { is_lenient } => WorkContent::Read { is_lenient: *is_lenient },
            Work::Set { is_lenient } => WorkContent::Set { is_lenient: *is_lenient },
            Work::Shown => WorkContent::Shown,
            Work::Moved(steps) => WorkContent::Moved(steps.clone()),
            Work::Binned(bin) => WorkContent::Binned(write(bin)?),
        };
        Some(Self { work, gives: TypeText::of(&own.gives)?, arguments })
    }

    /// The function.
    ///
    /// # Errors
    ///
    /// Its type is none, or the function that it applies cannot be read.
    pub(crate) fn function(self, read: impl FnOnce(F) -> Result<ScalarUDF>) -> Result<ScalarUDF> {
        let work = match self.work {
            WorkContent::Read { is_lenient } => Work::Read { is_lenient },
            WorkContent::Set { is_lenient } => Work::Set { is_lenient },
            WorkContent::Shown => Work::Shown,
            WorkContent::Moved(steps) => Work::Moved(steps),
            WorkContent::Binned(bin) => Work::Binned(Arc::new(read(bin)?)),
        };
        let signature = Signature::any(self.arguments, Volatility::Immutable);
        let gives = self.gives.data_type()?;
        Ok(ScalarUDF::new_from_impl(LocalTime { work, gives, signature }))
    }
}

/// A function that depends on the time zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LocalTime {
    work: Work,
    gives: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for LocalTime {
    fn name(&self) -> &'static str {
        match self.work {
            Work::Read { .. } => "local_time_read",
            Work::Set { .. } => "local_time_set",
            Work::Shown => "local_time_shown",
            Work::Moved(_) => "local_time_moved",
            Work::Binned(_) => "local_time_binned",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.gives.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_lenient =
            matches!(self.work, Work::Read { is_lenient: true } | Work::Set { is_lenient: true });
        let is_nullable = is_lenient || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.gives.clone(), is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = |argument: &ColumnarValue| matches!(argument, ColumnarValue::Scalar(_));
        let is_constant = args.args.iter().all(is_scalar);
        if let (Work::Moved(steps), [times, by @ ..]) = (&self.work, args.args.as_slice()) {
            let rows = if is_constant { 1 } else { args.number_rows };
            return scalar_if(is_constant, self.moved(times, by, steps, rows)?);
        }
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let given = match (&self.work, arrays.as_slice()) {
            (Work::Read { is_lenient }, [texts]) => self.read(texts, *is_lenient)?,
            (Work::Set { is_lenient }, [times]) => self.set(times, *is_lenient)?,
            (Work::Shown, [times]) => shown(times, &self.gives)?,
            (Work::Binned(bin), [_, times]) => self.binned(bin, times, &args)?,
            _ => return Err(DataFusionError::Internal(format!("arguments of {}", self.name()))),
        };
        scalar_if(is_constant && given.len() == 1, given)
    }
}

/// An array, or its only value as a scalar.
fn scalar_if(is_constant: bool, given: ArrayRef) -> Result<ColumnarValue> {
    Ok(match is_constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&given, 0)?),
        false => ColumnarValue::Array(given),
    })
}

impl LocalTime {
    fn read(&self, texts: &ArrayRef, is_lenient: bool) -> Result<ArrayRef> {
        let (unit, zone) = zone_of(&self.gives)?;
        let clocks = Clocks::Zone(zone);
        let texts = cast(texts, &DataType::Utf8View)?;
        let texts = texts.as_string_view();
        let instant = |text: &str| match string_to_datetime(&clocks, text) {
            Ok(time) => Ok(Some(time.naive_utc())),
            Err(_) if is_lenient => Ok(None),
            Err(error) => Err(DataFusionError::from(error)),
        };
        let instants = texts.iter().map(|text| text.map_or(Ok(None), instant));
        let times = written(unit, instants, is_lenient)?;
        self.typed(times)
    }

    fn set(&self, times: &ArrayRef, is_lenient: bool) -> Result<ArrayRef> {
        let (unit, zone) = zone_of(&self.gives)?;
        let shown = cast(times, &DataType::Timestamp(unit, None))?;
        let instants = naive(unit, &shown).into_iter().map(|shown| {
            let Some(shown) = shown else { return Ok(None) };
            match shown.checked_sub_offset(offset(&zone, shown, None)) {
                None if !is_lenient => Err(beyond()),
                instant => Ok(instant),
            }
        });
        let times = written(unit, instants, is_lenient)?;
        self.typed(times)
    }

    /// Adds one interval after another, so that the constants of a chain are not all copied for each row at once.
    fn moved(
        &self,
        times: &ColumnarValue,
        by: &[ColumnarValue],
        steps: &[bool],
        rows: usize,
    ) -> Result<ArrayRef> {
        let (unit, zone) = zone_of(&self.gives)?;
        let mut times = naive(unit, &times.to_array(rows)?);
        for (by, is_back) in by.iter().zip(steps) {
            let by = cast(&by.to_array(rows)?, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let by = by.as_primitive::<IntervalMonthDayNanoType>();
            for (time, by) in times.iter_mut().zip(by.iter()) {
                *time = match (*time, by) {
                    (Some(own), Some(by)) => {
                        Some(step(&zone, own, by, *is_back).ok_or_else(beyond)?)
                    }
                    _ => None,
                };
            }
        }
        let times = written(unit, times.into_iter().map(Ok), false)?;
        self.typed(times)
    }

    fn binned(
        &self,
        bin: &Arc<ScalarUDF>,
        times: &ArrayRef,
        args: &ScalarFunctionArgs,
    ) -> Result<ArrayRef> {
        let (unit, zone) = zone_of(&self.gives)?;
        let local = DataType::Timestamp(unit, None);
        let clocks = shown(times, &local)?;
        let field = |name: &str, own: &DataType| Arc::new(Field::new(name, own.clone(), true));
        let (Some(step), Some(step_field)) = (args.args.first(), args.arg_fields.first()) else {
            return Err(DataFusionError::Internal("an interval is missing".to_owned()));
        };
        let rows = times.len();
        let starts = bin.invoke_with_args(ScalarFunctionArgs {
            args: vec![step.clone(), ColumnarValue::Array(clocks)],
            arg_fields: vec![Arc::clone(step_field), field("time", &local)],
            number_rows: rows,
            return_field: field("start", &local),
            config_options: Arc::clone(&args.config_options),
        })?;
        let starts = naive(unit, &starts.into_array(rows)?);
        let instants = starts.into_iter().zip(naive(unit, times)).map(|(start, time)| {
            let Some((start, time)) = start.zip(time) else { return Ok(None) };
            let own = zone.offset_from_utc_datetime(&time).fix();
            let instant = start.checked_sub_offset(offset(&zone, start, Some(own)));
            instant.map(Some).ok_or_else(beyond)
        });
        let times = written(unit, instants, false)?;
        self.typed(times)
    }

    /// Times in UTC, with the zone of the function's return type.
    fn typed(&self, times: ArrayRef) -> Result<ArrayRef> {
        // A cast between zones only changes the type.
        Ok(cast(&times, &self.gives)?)
    }
}

/// The local times at instants.
fn shown(times: &ArrayRef, gives: &DataType) -> Result<ArrayRef> {
    let (unit, zone) = zone_of(times.data_type())?;
    let clocks = naive(unit, times).into_iter().map(|time| {
        let Some(time) = time else { return Ok(None) };
        let offset = zone.offset_from_utc_datetime(&time).fix();
        time.checked_add_offset(offset).map(Some).ok_or_else(beyond)
    });
    let clocks = written(unit, clocks, false)?;
    Ok(cast(&cast(&clocks, &DataType::Timestamp(unit, None))?, gives)?)
}

/// Adds months and days in local time to an instant, and then the elapsed time.
fn step(
    zone: &Tz,
    time: NaiveDateTime,
    by: IntervalMonthDayNano,
    is_back: bool,
) -> Option<NaiveDateTime> {
    let is_negative = |count: i32| (count < 0) != is_back;
    let mut time = time;
    if by.months != 0 || by.days != 0 {
        let own = zone.offset_from_utc_datetime(&time).fix();
        let clocks = time.checked_add_offset(own)?;
        let months = Months::new(by.months.unsigned_abs());
        let clocks = match is_negative(by.months) {
            true => clocks.checked_sub_months(months)?,
            false => clocks.checked_add_months(months)?,
        };
        let days = Days::new(u64::from(by.days.unsigned_abs()));
        let clocks = match is_negative(by.days) {
            true => clocks.checked_sub_days(days)?,
            false => clocks.checked_add_days(days)?,
        };
        time = clocks.checked_sub_offset(offset(zone, clocks, Some(own)))?;
    }
    let passing = TimeDelta::nanoseconds(by.nanoseconds);
    if is_back { time.checked_sub_signed(passing) } else { time.checked_add_signed(passing) }
}

/// The offset of a local time. If the time is repeated, it is `own` if that is one of its two offsets, otherwise the
/// first one.
fn offset(zone: &Tz, shown: NaiveDateTime, own: Option<FixedOffset>) -> FixedOffset {
    match zone.offset_from_local_datetime(&shown) {
        MappedLocalTime::Single(offset) => offset.fix(),
        MappedLocalTime::Ambiguous(_, second) if own == Some(second.fix()) => second.fix(),
        MappedLocalTime::Ambiguous(first, _) => first.fix(),
        MappedLocalTime::None => {
            let skipped = TimeDelta::seconds(i64::from(SKIPPED_SECONDS));
            let later = shown.checked_add_signed(skipped).unwrap_or(shown);
            let after = zone.offset_from_local_datetime(&later).earliest();
            let seconds = after.map(|after| after.fix().local_minus_utc() - SKIPPED_SECONDS);
            // If more than an hour is skipped, the offset before the change.
            let before = || zone.offset_from_utc_datetime(&shown).fix();
            seconds.and_then(FixedOffset::east_opt).unwrap_or_else(before)
        }
    }
}

/// The unit and the zone of a timestamp type.
fn zone_of(data_type: &DataType) -> Result<(TimeUnit, Tz)> {
    match data_type {
        DataType::Timestamp(unit, Some(zone)) => Ok((*unit, zone.parse()?)),
        other => Err(DataFusionError::Internal(format!("{other} has no zone"))),
    }
}

fn beyond() -> DataFusionError {
    DataFusionError::Execution("a time is beyond the calendar".to_owned())
}

/// The times of an array, as calendar times.
fn naive(unit: TimeUnit, times: &ArrayRef) -> Vec<Option<NaiveDateTime>> {
    fn of<T: ArrowTimestampType>(times: &ArrayRef) -> Vec<Option<NaiveDateTime>> {
        times.as_primitive::<T>().iter().map(|time| as_datetime::<T>(time?)).collect()
    }
    match unit {
        TimeUnit::Second => of::<TimestampSecondType>(times),
        TimeUnit::Millisecond => of::<TimestampMillisecondType>(times),
        TimeUnit::Microsecond => of::<TimestampMicrosecondType>(times),
        TimeUnit::Nanosecond => of::<TimestampNanosecondType>(times),
    }
}

/// An array of such times, in UTC.
///
/// # Errors
///
/// A time is out of the unit's range, unless that gives null.
fn written(
    unit: TimeUnit,
    times: impl Iterator<Item = Result<Option<NaiveDateTime>>>,
    is_lenient: bool,
) -> Result<ArrayRef> {
    fn of<T: ArrowTimestampType>(
        times: impl Iterator<Item = Result<Option<NaiveDateTime>>>,
        is_lenient: bool,
    ) -> Result<ArrayRef> {
        let value = |time: Result<Option<NaiveDateTime>>| {
            let Some(time) = time? else { return Ok(None) };
            match T::from_naive_datetime(time, None) {
                None if !is_lenient => Err(beyond()),
                value => Ok(value),
            }
        };
        let values = times.map(value).collect::<Result<Vec<Option<i64>>>>()?;
        Ok(Arc::new(values.into_iter().collect::<PrimitiveArray<T>>().with_timezone("UTC")))
    }
    match unit {
        TimeUnit::Second => of::<TimestampSecondType>(times, is_lenient),
        TimeUnit::Millisecond => of::<TimestampMillisecondType>(times, is_lenient),
        TimeUnit::Microsecond => of::<TimestampMicrosecondType>(times, is_lenient),
        TimeUnit::Nanosecond => of::<TimestampNanosecondType>(times, is_lenient),
    }
}

/// A zone with one instant for each local time, for a parser that accepts only that.
#[derive(Clone, Debug)]
enum Clocks {
    Zone(Tz),
    Fixed(FixedOffset),
}

impl TimeZone for Clocks {
    type Offset = FixedOffset;

    fn from_offset(offset: &FixedOffset) -> Self {
        Self::Fixed(*offset)
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> MappedLocalTime<FixedOffset> {
        self.offset_from_local_datetime(&local.and_time(NaiveTime::MIN))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> MappedLocalTime<FixedOffset> {
        MappedLocalTime::Single(match self {
            Self::Zone(zone) => offset(zone, *local, None),
            Self::Fixed(own) => *own,
        })
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> FixedOffset {
        self.offset_from_utc_datetime(&utc.and_time(NaiveTime::MIN))
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> FixedOffset {
        match self {
            Self::Zone(zone) => zone.offset_from_utc_datetime(utc).fix(),
            Self::Fixed(own) => *own,
        }
    }
}
