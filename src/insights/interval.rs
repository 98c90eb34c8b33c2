//! The time buckets of a date range: [`Buckets`]. They follow the time zone of the project, so that days of 23 and 25
//! hours are one bucket each. The rules are those of PostHog's insights.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray};
use arrow::datatypes::{DataType, Field, Int32Type, TimeUnit, TimestampMicrosecondType};
use chrono::{Datelike, Days, Months, NaiveDateTime, NaiveTime, TimeDelta, Timelike};
use chrono_tz::Tz;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::prelude::ident;
use serde::{Deserialize, Serialize};

use crate::date_range::DateRange;
use weir_api::node::NodeError;
use weir_base::clock::UnixMicros;
use weir_event::as_text;
use weir_event::time::at_wall;
use weir_query::functions::serializable;
use weir_query::functions::serializable::SerializableFunction;

/// Most buckets of one insight: a week of minutes.
const BUCKETS_MAX: usize = 10_080;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// The length of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interval {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day of the project's time zone.
    #[default]
    Day,
    /// A week, from the project's first day of the week.
    Week,
    /// A month.
    Month,
}

impl Interval {
    /// Its name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// The interval of this name.
    pub fn of(name: &str) -> Option<Self> {
        let all = [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month];
        all.into_iter().find(|interval| interval.name() == name)
    }

    /// Parses the field `interval`; the default is days.
    ///
    /// # Errors
    ///
    /// There is no such interval.
    pub fn parse(name: Option<&str>) -> Result<Self, NodeError> {
        let Some(name) = name else { return Ok(Self::Day) };
        Self::of(name).ok_or_else(|| NodeError::new("interval", "This interval is unknown."))
    }

    fn is_within_a_day(self) -> bool {
        matches!(self, Self::Minute | Self::Hour)
    }

    /// The beginning of the interval that contains a local time.
    fn start(self, wall: NaiveDateTime, is_monday_first: bool) -> Option<NaiveDateTime> {
        let day = wall.date();
        let midnight = |day: chrono::NaiveDate| Some(day.and_time(NaiveTime::MIN));
        match self {
            Self::Minute => wall.with_second(0)?.with_nanosecond(0),
            Self::Hour => wall.with_minute(0)?.with_second(0)?.with_nanosecond(0),
            Self::Day => midnight(day),
            Self::Week => {
                let weekday = day.weekday();
                let since = match is_monday_first {
                    true => weekday.num_days_from_monday(),
                    false => weekday.num_days_from_sunday(),
                };
                midnight(day.checked_sub_days(Days::new(since.into()))?)
            }
            Self::Month => midnight(day.with_day(1)?),
        }
    }

    /// The local time at which the next interval begins; `None` for intervals within a day.
    fn next(self, start: NaiveDateTime) -> Option<NaiveDateTime> {
        match self {
            Self::Minute | Self::Hour => None,
            Self::Day => start.checked_add_days(Days::new(1)),
            Self::Week => start.checked_add_days(Days::new(7)),
            Self::Month => start.checked_add_months(Months::new(1)),
        }
    }
}

/// The range has too many buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The range of dates has more than {BUCKETS_MAX} intervals. Use longer ones.")]
pub struct TooManyBuckets;

/// The buckets of a range, without gaps, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Buckets {
    #[serde(with = "numbers")]
    starts: Arc<[i64]>,
    /// Mean length of a bucket, in microseconds.
    length: i64,
    /// The first and the last time that are counted.
    bounds: (i64, i64),
    interval: Interval,
    #[serde(with = "as_text")]
    zone: Tz,
}

/// Time windows that end with a bucket, one for each bucket, made of steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The steps: the days or hours of all windows.
    pub steps: Buckets,
    /// The last step of the window of each bucket.
    #[serde(with = "numbers")]
    points: Arc<[usize]>,
    /// The number of steps of a window.
    length: usize,
}

impl Window {
    /// Expression for the list of the buckets whose windows contain a step.
    pub fn buckets_of(self, step: Expr) -> Expr {
        serializable::call(self, step)
    }

    /// The number of buckets.
    pub fn buckets(&self) -> usize {
        self.points.len()
    }

    /// The buckets whose windows contain this step.
    pub fn buckets_with(&self, step: usize) -> Range<usize> {
        let first = self.points.partition_point(|point| *point < step);
        let end = self.points.partition_point(|point| *point < step.saturating_add(self.length));
        first..end.max(first)
    }

    /// The first and the last time of the window of a bucket; `None` if there is no such bucket.
    pub fn bounds_of(&self, bucket: usize) -> Option<(UnixMicros, UnixMicros)> {
        let point = *self.points.get(bucket)?;
        let first = (point + 1).saturating_sub(self.length);
        Some((self.steps.bounds_of(first)?.0, self.steps.bounds_of(point)?.1))
    }
}

impl Buckets {
    /// Divides `range` into buckets. The first week is cut at the start of the range; other intervals count from the
    /// beginning of their first bucket.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn of(
        range: &DateRange,
        interval: Interval,
        is_monday_first: bool,
    ) -> Result<Self, TooManyBuckets> {
        let zone = range.zone();
        let wall = range.from.to_datetime().with_timezone(&zone).naive_local();
        let mut starts = Vec::new();
        let mut local = interval.start(wall, is_monday_first).unwrap_or(wall);
        let mut start = match interval.is_within_a_day() {
            // When clocks show a time twice, this keeps the occurrence that the range begins with.
            true => {
                let since = wall.signed_duration_since(local).num_microseconds().unwrap_or(0);
                range.from.0.saturating_sub(since)
            }
            false => at_wall(local, zone).unwrap_or(range.from).0,
        };
        while start <= range.to.0 {
            if starts.len() >= BUCKETS_MAX {
                return Err(TooManyBuckets);
            }
            starts.push(start);
            start = match (interval.next(local), interval) {
                (Some(next), _) => {
                    local = next;
                    // A local midnight that daylight saving time skips: the bucket begins when the clocks resume.
                    at_wall(next, zone).map_or(i64::MAX, |next| next.0.max(start + 1))
                }
                (None, Interval::Minute) => start + 60 * MICROS_PER_SECOND,
                (None, _) => start + 3600 * MICROS_PER_SECOND,
            };
        }
        let first = starts.first().copied().unwrap_or(range.from.0);
        let first = if interval == Interval::Week { range.from.0 } else { first };
        let (length, bounds) = (mean_length(&starts), (first, range.to.0));
        Ok(Self { starts: starts.into(), length, bounds, interval, zone })
    }

    /// The same buckets, preceded by `count` more.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn with_earlier(self, count: usize, is_monday_first: bool) -> Result<Self, TooManyBuckets> {
        if self.len().saturating_add(count) > BUCKETS_MAX {
            return Err(TooManyBuckets);
        }
        let mut starts = Vec::with_capacity(self.len().saturating_add(count));
        let mut start = self.starts.first().copied().unwrap_or(self.bounds.0);
        for _ in 0..count {
            start = match self.interval {
                Interval::Minute => start.saturating_sub(60 * MICROS_PER_SECOND),
                Interval::Hour => start.saturating_sub(3600 * MICROS_PER_SECOND),
                interval => {
                    let last = UnixMicros(start.saturating_sub(1)).to_datetime();
                    let wall = last.with_timezone(&self.zone).naive_local();
                    let local = interval.start(wall, is_monday_first).unwrap_or(wall);
                    at_wall(local, self.zone).map_or(start, |earlier| earlier.0.min(start - 1))
                }
            };
            starts.push(start);
        }
        starts.reverse();
        starts.extend(self.starts.iter());
        let bounds = (start.min(self.bounds.0), self.bounds.1);
        Ok(Self { length: mean_length(&starts), starts: starts.into(), bounds, ..self })
    }

    /// Extends the counted times to the whole first and the whole last bucket.
    pub fn whole(mut self) -> Self {
        let (Some(first), Some(last)) = (self.starts.first(), self.starts.last()) else {
            return self;
        };
        let local = self.local(self.len() - 1);
        // A day whose midnight the clocks skip begins later, but the next day does not.
        let midnight = local.date().and_time(NaiveTime::MIN);
        let next = match (self.interval.next(midnight), self.interval) {
            (Some(next), _) => at_wall(next, self.zone).map(|next| next.0),
            (None, Interval::Minute) => last.checked_add(60 * MICROS_PER_SECOND),
            (None, _) => last.checked_add(3600 * MICROS_PER_SECOND),
        };
        let end = next.map_or(self.bounds.1, |next| next.saturating_sub(1));
        self.bounds = (*first, end.max(self.bounds.1));
        self
    }

    /// The number of buckets.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are no buckets.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The first and the last time that are counted.
    pub fn bounds(&self) -> (UnixMicros, UnixMicros) {
        (UnixMicros(self.bounds.0), UnixMicros(self.bounds.1))
    }

    /// The first and the last counted time in one bucket; `None` if there is no such bucket.
    pub fn bounds_of(&self, bucket: usize) -> Option<(UnixMicros, UnixMicros)> {
        let start = *self.starts.get(bucket)?;
        let next = self.starts.get(bucket + 1);
        let end = next.map_or(self.bounds.1, |next| next.saturating_sub(1));
        Some((UnixMicros(start.max(self.bounds.0)), UnixMicros(end)))
    }

    /// The bucket that contains a time; `None` if the time is not counted.
    pub fn bucket_of(&self, time: UnixMicros) -> Option<usize> {
        if time.0 < self.bounds.0 || time.0 > self.bounds.1 {
            return None;
        }
        // Buckets are nearly equally long, so the bucket is at the interpolated index or one or two beside it. A
        // binary search for each event would take more steps.
        let since = time.0.checked_sub(*self.starts.first()?).filter(|since| *since >= 0)?;
        let last = self.starts.len() - 1;
        let at = since.checked_div(self.length)?;
        let mut at = usize::try_from(at).map_or(last, |at| at.min(last));
        let start = |at: usize| self.starts.get(at).copied();
        while at > 0 && start(at).is_some_and(|start| start > time.0) {
            at -= 1;
        }
        while start(at + 1).is_some_and(|start| start <= time.0) {
            at += 1;
        }
        Some(at)
    }

    /// The bucket that a client names by its beginning, such as `2024-03-13` or `2024-03-13 14:00:00`.
    pub fn bucket_of_day(&self, day: &str) -> Option<usize> {
        let day = day.trim_end_matches('Z').replacen('T', " ", 1);
        let day = day.split(['+', '.']).next().unwrap_or_default();
        (0..self.len()).find(|bucket| {
            let own = self.local(*bucket);
            let long = own.format("%Y-%m-%d %H:%M:%S").to_string();
            long == day || (long.starts_with(day) && day.len() == "2024-03-13".len())
        })
    }

    /// The windows of the last `days` up to the beginning of each bucket; `None` if a bucket is at least as long as
    /// that. They slide by days, or by hours if buckets are hours.
    ///
    /// # Errors
    ///
    /// They have too many steps.
    pub fn window(&self, days: u32) -> Result<Option<Window>, TooManyBuckets> {
        let (step, per_day) = match (self.interval, days) {
            (Interval::Month, _) | (Interval::Week, 0..=7) => return Ok(None),
            (Interval::Hour, _) => (Interval::Hour, 24),
            _ => (Interval::Day, 1),
        };
        let [Some(first), Some(last)] = [self.starts.first(), self.starts.last()] else {
            return Ok(None);
        };
        let length = usize::try_from(days).unwrap_or(usize::MAX).saturating_mul(per_day);
        let back = i64::from(days) * 24 * 3600 * MICROS_PER_SECOND;
        // One day of 25 hours may lie between, so this is somewhat earlier than needed.
        let from = UnixMicros(first.saturating_sub(back));
        let range = DateRange::new(from, UnixMicros(*last), self.zone);
        let mut steps = Self::of(&range, step, false)?;
        let end = match step {
            Interval::Hour => last.saturating_add(3600 * MICROS_PER_SECOND),
            _ => {
                let wall = UnixMicros(*last).to_datetime().with_timezone(&self.zone).naive_local();
                let next = step.start(wall, false).and_then(|start| step.next(start));
                next.and_then(|next| at_wall(next, self.zone)).map_or(i64::MAX, |next| next.0)
            }
        };
        steps.bounds.1 = self.bounds.1.min(end.saturating_sub(1));
        let points = self
            .starts
            .iter()
            .map(|start| steps.starts.partition_point(|step| step <= start).saturating_sub(1));
        let points = points.collect();
        Ok(Some(Window { steps, points, length }))
    }

    /// The first time of the last `days` days up to the last counted time, in local time.
    pub fn last_days(&self, days: u32) -> UnixMicros {
        let wall = UnixMicros(self.bounds.1).to_datetime().with_timezone(&self.zone).naive_local();
        let before = wall.checked_sub_days(Days::new(days.into()));
        let first = before.and_then(|before| before.checked_add_signed(TimeDelta::microseconds(1)));
        first.and_then(|first| at_wall(first, self.zone)).unwrap_or(UnixMicros(i64::MIN))
    }

    fn local(&self, bucket: usize) -> NaiveDateTime {
        let start = UnixMicros(self.starts.get(bucket).copied().unwrap_or_default());
        start.to_datetime().with_timezone(&self.zone).naive_local()
    }

    /// The beginning of a bucket, as in `days` of the response: a date, or within a day a local date and time.
    pub fn day(&self, bucket: usize) -> String {
        let format = if self.interval.is_within_a_day() { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d" };
        self.local(bucket).format(format).to_string()
    }

    /// The beginning of a bucket, as in `labels` of the response.
    pub fn label(&self, bucket: usize) -> String {
        let format = if self.interval.is_within_a_day() { "%-d-%b-%Y %H:%M" } else { "%-d-%b-%Y" };
        self.local(bucket).format(format).to_string()
    }

    /// Expression for the bucket of the column `timestamp`: its number from 0 on, null for a time that is not
    /// counted.
    pub fn expression(&self) -> Expr {
        self.expression_of(ident("timestamp"))
    }

    /// Expression for the bucket of a time.
    pub fn expression_of(&self, time: Expr) -> Expr {
        serializable::call(self.clone(), time)
    }
}

impl SerializableFunction for Buckets {
    const NAME: &'static str = "bucket";

    fn takes() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }

    fn gives() -> DataType {
        DataType::Int32
    }

    fn invoke(&self, times: &ArrayRef) -> Result<ArrayRef> {
        // Bounds and number of the bucket of the previous row, since rows are mostly in the order of time.
        let (mut from, mut to, mut at) = (i64::MAX, i64::MIN, None);
        let mut bucket = |time: i64| {
            if time < from || time > to {
                let found = self.bucket_of(UnixMicros(time));
                at = found.and_then(|found| i32::try_from(found).ok());
                (from, to) = match found.and_then(|found| self.bounds_of(found)) {
                    Some((first, last)) => (first.0, last.0.min(self.bounds.1)),
                    None => (i64::MAX, i64::MIN),
                };
            }
            at
        };
        let numbers: Int32Array = match times.as_primitive_opt::<TimestampMicrosecondType>() {
            Some(times) => times.iter().map(|time| time.and_then(&mut bucket)).collect(),
            None => Int32Array::new_null(times.len()),
        };
        Ok(Arc::new(numbers))
    }
}

impl SerializableFunction for Window {
    const NAME: &'static str = "buckets_with";

    fn takes() -> DataType {
        DataType::Int32
    }

    fn gives() -> DataType {
        DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)))
    }

    fn invoke(&self, steps: &ArrayRef) -> Result<ArrayRef> {
        let buckets = |step: i32| {
            let buckets = self.buckets_with(usize::try_from(step).unwrap_or(usize::MAX));
            buckets.map(|bucket| i32::try_from(bucket).ok())
        };
        let steps = steps.as_primitive_opt::<Int32Type>().into_iter().flatten();
        let lists = steps.map(|step| step.map(&buckets));
        Ok(Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)))
    }
}

/// Lists of numbers that are shared.
mod numbers {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        numbers: &Arc<[T]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        numbers.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Arc<[T]>, D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Vec::deserialize(deserializer).map(Arc::from)
    }
}

/// The mean distance of consecutive starts, at least 1.
fn mean_length(starts: &[i64]) -> i64 {
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else { return 1 };
    let between = i64::try_from(starts.len() - 1).unwrap_or(i64::MAX).max(1);
    (last.saturating_sub(*first) / between).max(1)
}

#[cfg(test)]
mod tests;
