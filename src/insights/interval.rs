//! The buckets of a range of dates: [`Buckets`], in the time zone of the project, so that days of 23 and 25
//! hours are one bucket each. The rules are those of PostHog's insights.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::AsArray;
use arrow::array::Int32Array;
use arrow::datatypes::DataType;
use arrow::datatypes::TimeUnit;
use arrow::datatypes::TimestampMicrosecondType;
use chrono::Datelike;
use chrono::Days;
use chrono::Months;
use chrono::NaiveDateTime;
use chrono::NaiveTime;
use chrono::TimeDelta;
use chrono::Timelike;
use chrono_tz::Tz;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::Volatility;
use datafusion::logical_expr::create_udf;
use datafusion::prelude::ident;

use crate::clock::UnixMicros;
use crate::event::time::at_wall;
use crate::insights::date_range::DateRange;
use crate::insights::node::Node;
use crate::insights::node::NodeError;

/// Most buckets of one insight: a week of minutes.
const BUCKETS_MAX: usize = 10_080;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// The length of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Reads the field `interval`; days without it.
    ///
    /// # Errors
    ///
    /// There is no such interval.
    pub fn parse(node: &Node<'_>) -> Result<Self, NodeError> {
        let Some(name) = node.text("interval")? else { return Ok(Self::Day) };
        Self::of(name).ok_or_else(|| node.refuse("interval", "This interval is unknown."))
    }

    fn is_within_a_day(self) -> bool {
        matches!(self, Self::Minute | Self::Hour)
    }

    /// The beginning of the interval with a local time.
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

    /// The local time at which the next interval begins; of intervals within a day `None`.
    fn next(self, start: NaiveDateTime) -> Option<NaiveDateTime> {
        match self {
            Self::Minute | Self::Hour => None,
            Self::Day => start.checked_add_days(Days::new(1)),
            Self::Week => start.checked_add_days(Days::new(7)),
            Self::Month => start.checked_add_months(Months::new(1)),
        }
    }
}

/// The range has more buckets than an insight may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The range of dates has more than {BUCKETS_MAX} intervals. Use longer ones.")]
pub struct TooManyBuckets;

/// The buckets of a range, without gaps, oldest first.
#[derive(Clone, Debug)]
pub struct Buckets {
    starts: Arc<[i64]>,
    /// The mean length of a bucket.
    length: i64,
    /// The first time that counts, and the last.
    bounds: (i64, i64),
    interval: Interval,
    zone: Tz,
}

/// Windows of time, one for each bucket.
#[derive(Clone, Debug)]
pub struct Window {
    /// The days or hours of all windows.
    pub steps: Buckets,
    /// The last step of each window, by bucket.
    points: Arc<[usize]>,
    /// How many steps a window has.
    length: usize,
}

impl Window {
    /// The buckets whose windows have this step.
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
    /// The buckets of `range`. Of the first week only what lies in the range counts; other first buckets count
    /// from their beginning.
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
            // Clocks may show the same time twice: it is the one that is meant.
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
                    // Local midnights that daylight saving leaves out begin when the clock goes on.
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

    /// The same buckets, and so many right before them.
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

    /// The same buckets, of which the whole first and the whole last one count.
    pub fn whole(mut self) -> Self {
        let (Some(first), Some(last)) = (self.starts.first(), self.starts.last()) else {
            return self;
        };
        let local = self.local(self.len() - 1);
        // A day whose midnight the clocks leave out begins later, but the next one does not.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The first time that counts, and the last.
    pub fn bounds(&self) -> (UnixMicros, UnixMicros) {
        (UnixMicros(self.bounds.0), UnixMicros(self.bounds.1))
    }

    /// The first and the last time that count in one bucket; `None` if there is no such bucket.
    pub fn bounds_of(&self, bucket: usize) -> Option<(UnixMicros, UnixMicros)> {
        let start = *self.starts.get(bucket)?;
        let end = self.starts.get(bucket + 1).map_or(self.bounds.1, |next| next - 1);
        Some((UnixMicros(start.max(self.bounds.0)), UnixMicros(end)))
    }

    /// The bucket of a time, if it counts.
    pub fn bucket_of(&self, time: UnixMicros) -> Option<usize> {
        if time.0 < self.bounds.0 || time.0 > self.bounds.1 {
            return None;
        }
        // Buckets are of nearly the same length: where it would be, or one or two beside. A search would halve them
        // all, for each event.
        let since = time.0.checked_sub(*self.starts.first()?).filter(|since| *since >= 0)?;
        let last = self.starts.len() - 1;
        let mut at = usize::try_from(since / self.length).map_or(last, |at| at.min(last));
        let start = |at: usize| self.starts.get(at).copied();
        while at > 0 && start(at).is_some_and(|start| start > time.0) {
            at -= 1;
        }
        while start(at + 1).is_some_and(|start| start <= time.0) {
            at += 1;
        }
        Some(at)
    }

    /// The bucket that a client names by its day, such as `2024-03-13` or `2024-03-13 14:00:00`.
    pub fn bucket_of_day(&self, day: &str) -> Option<usize> {
        let day = day.trim_end_matches('Z').replacen('T', " ", 1);
        let day = day.split(['+', '.']).next().unwrap_or_default();
        (0..self.len()).find(|bucket| {
            let own = self.local(*bucket);
            let long = own.format("%Y-%m-%d %H:%M:%S").to_string();
            long == day || (long.starts_with(day) && day.len() == "2024-03-13".len())
        })
    }

    /// The windows of the last `days` up to the beginning of each bucket; `None` where a bucket is no shorter
    /// than that. They move by days, or by hours where buckets are hours.
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
        // Somewhat earlier than needed, where a day of 25 hours lies between.
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

    /// The first time of the last so many days up to the last time that counts, by the clocks.
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

    /// The beginning of a bucket, as in `days`: a date, or within a day a local date and time.
    pub fn day(&self, bucket: usize) -> String {
        let format = if self.interval.is_within_a_day() { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d" };
        self.local(bucket).format(format).to_string()
    }

    /// The beginning of a bucket, as in `labels`.
    pub fn label(&self, bucket: usize) -> String {
        let format = if self.interval.is_within_a_day() { "%-d-%b-%Y %H:%M" } else { "%-d-%b-%Y" };
        self.local(bucket).format(format).to_string()
    }

    /// The bucket of the column `timestamp`: a number from 0 on, null for a time that does not count.
    pub fn expression(&self) -> Expr {
        self.expression_of(ident("timestamp"))
    }

    /// The bucket of a time.
    pub fn expression_of(&self, time: Expr) -> Expr {
        let buckets = self.clone();
        let invoke = move |arguments: &[ColumnarValue]| {
            let arrays = ColumnarValue::values_to_arrays(arguments)?;
            let times = arrays
                .first()
                .and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
            let bucket =
                |time| buckets.bucket_of(UnixMicros(time)).and_then(|at| i32::try_from(at).ok());
            let numbers: Int32Array = match times {
                Some(times) => times.iter().map(|time| time.and_then(bucket)).collect(),
                None => Int32Array::new_null(arrays.first().map_or(0, |column| column.len())),
            };
            Ok(ColumnarValue::Array(Arc::new(numbers) as ArrayRef))
        };
        let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let function = create_udf(
            "bucket",
            vec![kind],
            DataType::Int32,
            Volatility::Immutable,
            Arc::new(invoke),
        );
        function.call(vec![time])
    }
}

/// The mean distance of starts in their order, at least 1.
fn mean_length(starts: &[i64]) -> i64 {
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else { return 1 };
    let between = i64::try_from(starts.len() - 1).unwrap_or(i64::MAX).max(1);
    (last.saturating_sub(*first) / between).max(1)
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;
    use rand::Rng;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::BUCKETS_MAX;
    use super::Buckets;
    use super::Interval;
    use super::TooManyBuckets;
    use crate::clock::UnixMicros;
    use crate::event::time::parse_rfc3339;
    use crate::insights::date_range::DateRange;
    use crate::insights::date_range::Parameters;

    fn range(from: &str, to: &str, zone: &str) -> DateRange {
        let zone: Tz = zone.parse().unwrap();
        let parameters = Parameters { from: Some(from), to: Some(to), ..Parameters::default() };
        parameters.range(zone, UnixMicros(0)).unwrap()
    }

    fn time(text: &str) -> UnixMicros {
        parse_rfc3339(text).unwrap()
    }

    #[test]
    fn days_are_those_of_the_time_zone() {
        // The clocks of Berlin went forward on the 31st and back on 27 October 2024.
        let buckets =
            Buckets::of(&range("2024-03-30", "2024-04-01", "Europe/Berlin"), Interval::Day, false);
        let buckets = buckets.unwrap();
        let days: Vec<_> = (0..buckets.len()).map(|bucket| buckets.day(bucket)).collect();
        assert_eq!(days, ["2024-03-30", "2024-03-31", "2024-04-01"]);
        for (at, bucket) in [
            ("2024-03-29T22:59:59Z", None),
            ("2024-03-29T23:00:00Z", Some(0)),
            ("2024-03-30T23:00:00Z", Some(1)),
            ("2024-03-31T21:59:59Z", Some(1)),
            ("2024-03-31T22:00:00Z", Some(2)),
            ("2024-04-01T21:59:59.999999Z", Some(2)),
            ("2024-04-01T22:00:00Z", None),
        ] {
            assert_eq!(buckets.bucket_of(time(at)), bucket, "{at}");
        }
        assert_eq!(buckets.label(0), "30-Mar-2024");
        assert_eq!(buckets.bucket_of_day("2024-03-31"), Some(1));
        assert_eq!(buckets.bucket_of_day("2024-03-31T00:00:00Z"), Some(1));
        assert_eq!(buckets.bucket_of_day("2024-03-29"), None);
        assert_eq!(buckets.bucket_of_day(""), None);
    }

    /// Goal: times are of the bucket that a search in all starts finds. Method: random times, and those around each
    /// start, across changes of clocks and months of all lengths.
    #[test]
    fn buckets_of_times_are_those_of_a_search() {
        use Interval::{Day, Hour, Minute, Month, Week};
        let mut rng = StdRng::seed_from_u64(8);
        for (from, to, interval) in [
            ("2024-02-01", "2024-11-30", Day),
            ("2024-03-30", "2024-04-02", Hour),
            ("2024-10-26", "2024-10-28", Hour),
            ("2024-10-27", "2024-10-27", Minute),
            ("2023-01-10", "2024-12-31", Week),
            ("2019-01-31", "2024-12-31", Month),
            ("2024-01-31", "2024-01-31", Month),
        ] {
            let days = range(from, to, "Europe/Berlin");
            let buckets = Buckets::of(&days, interval, true).unwrap();
            for buckets in [buckets.clone().whole(), buckets.with_earlier(9, true).unwrap()] {
                let (first, last) = (buckets.bounds.0 - 1000, buckets.bounds.1 + 1000);
                let random = (0..2000).map(|_| rng.random_range(first..last));
                let edges = buckets.starts.iter().flat_map(|start| [start - 1, *start, start + 1]);
                for time in random.chain(edges) {
                    let is_in = (buckets.bounds.0..=buckets.bounds.1).contains(&time);
                    let found = buckets.starts.partition_point(|start| *start <= time).checked_sub(1);
                    let expected = found.filter(|_| is_in);
                    assert_eq!(buckets.bucket_of(UnixMicros(time)), expected, "{from} {time}");
                }
            }
        }
    }

    #[test]
    fn weeks_begin_where_the_project_says_and_months_count_whole() {
        // 2024-03-13 is a Wednesday.
        let range = range("2024-03-13", "2024-03-25", "UTC");
        let weeks = |is_monday_first| {
            let buckets = Buckets::of(&range, Interval::Week, is_monday_first).unwrap();
            let days: Vec<_> = (0..buckets.len()).map(|bucket| buckets.day(bucket)).collect();
            (days, buckets.bucket_of(time("2024-03-12T12:00:00Z")))
        };
        assert_eq!(
            weeks(false),
            (["2024-03-10", "2024-03-17", "2024-03-24"].map(str::to_owned).to_vec(), None)
        );
        assert_eq!(
            weeks(true),
            (["2024-03-11", "2024-03-18", "2024-03-25"].map(str::to_owned).to_vec(), None)
        );
        let months = Buckets::of(&range, Interval::Month, false).unwrap();
        assert_eq!((months.len(), months.day(0)), (1, "2024-03-01".to_owned()));
        assert_eq!(months.bucket_of(time("2024-03-01T00:00:00Z")), Some(0));
        assert_eq!(months.bounds_of(1), None);
    }

    /// A window of 7 days up to the day d has the days d - 6 to d, whatever the clock does between.
    #[test]
    fn windows_have_so_many_days() {
        let day = |buckets: &Buckets, text: &str| buckets.bucket_of(time(text)).unwrap();
        let range = range("2024-03-28", "2024-04-10", "Europe/Berlin");
        let days = Buckets::of(&range, Interval::Day, false).unwrap();
        let window = days.window(7).unwrap().unwrap();
        let of = |at: &str| window.buckets_with(day(&window.steps, at));
        assert_eq!(of("2024-03-22T12:00:00Z"), 0..1);
        assert_eq!(of("2024-03-28T12:00:00Z"), 0..7);
        assert_eq!(of("2024-03-31T12:00:00Z"), 3..10);
        assert_eq!(of("2024-04-10T12:00:00Z"), 13..14);
        assert!(of("2024-03-21T12:00:00Z").is_empty());
        let weeks = Buckets::of(&range, Interval::Week, false).unwrap();
        assert!(weeks.window(7).unwrap().is_none());
        let window = weeks.window(30).unwrap().unwrap();
        // The weeks begin on 24 and 31 March and 7 April; what comes later in them is in no window.
        let of = |at: &str| window.buckets_with(day(&window.steps, at));
        assert_eq!(of("2024-02-24T12:00:00Z"), 0..1);
        assert_eq!(of("2024-03-24T12:00:00Z"), 0..3);
        assert_eq!(of("2024-03-25T12:00:00Z"), 1..3);
        assert_eq!(window.steps.bucket_of(time("2024-04-08T12:00:00Z")), None);
    }

    #[test]
    fn earlier_buckets_go_on_backwards_and_whole_ones_count_whole() {
        // The clocks of Berlin went forward on 31 March 2024, a Sunday.
        let days = |buckets: &Buckets| {
            (0..buckets.len()).map(|bucket| buckets.day(bucket)).collect::<Vec<_>>()
        };
        let one = range("2024-04-01 12:00", "2024-04-01", "Europe/Berlin");
        for (interval, expected, first, end) in [
            (
                Interval::Day,
                ["2024-03-30", "2024-03-31", "2024-04-01"],
                "2024-03-29T23:00:00Z",
                "2024-04-01T22:00:00Z",
            ),
            (
                Interval::Week,
                ["2024-03-18", "2024-03-25", "2024-04-01"],
                "2024-03-17T23:00:00Z",
                "2024-04-07T22:00:00Z",
            ),
            (
                Interval::Month,
                ["2024-02-01", "2024-03-01", "2024-04-01"],
                "2024-01-31T23:00:00Z",
                "2024-04-30T22:00:00Z",
            ),
        ] {
            let buckets = Buckets::of(&one, interval, true).unwrap();
            let buckets = buckets.with_earlier(2, true).unwrap().whole();
            assert_eq!(days(&buckets), expected);
            assert_eq!(buckets.bounds(), (time(first), UnixMicros(time(end).0 - 1)));
            assert_eq!(buckets.bucket_of(time(first)), Some(0));
            let all =
                Buckets::of(&range(expected[0], "2024-04-01", "Europe/Berlin"), interval, true);
            assert_eq!(all.unwrap().whole().starts, buckets.starts, "as from the first on");
        }
        let [from, to] = ["2024-03-31T01:30:00Z", "2024-03-31T01:40:00Z"].map(time);
        let hours = DateRange::new(from, to, "Europe/Berlin".parse().unwrap());
        let hours = Buckets::of(&hours, Interval::Hour, false).unwrap();
        let hours = hours.with_earlier(1, false).unwrap().whole();
        assert_eq!(days(&hours), ["2024-03-31 01:00:00", "2024-03-31 03:00:00"]);
        assert_eq!(hours.bounds().1, UnixMicros(time("2024-03-31T02:00:00Z").0 - 1));
        assert_eq!(hours.with_earlier(BUCKETS_MAX, false).err(), Some(TooManyBuckets));
        // A day that begins at one o'clock ends at midnight.
        let one = range("2025-03-30", "2025-03-30", "Asia/Beirut");
        let whole = Buckets::of(&one, Interval::Day, false).unwrap().whole();
        assert_eq!(
            whole.bounds(),
            (time("2025-03-29T22:00:00Z"), UnixMicros(time("2025-03-30T21:00:00Z").0 - 1))
        );
    }

    #[test]
    fn the_last_days_are_those_of_the_clocks() {
        for (zone, to, first) in [
            ("Europe/Berlin", "2024-04-02", "2024-03-26T23:00:00Z"),
            ("Europe/Berlin", "2024-10-30", "2024-10-23T22:00:00Z"),
            ("UTC", "2024-03-07", "2024-03-01T00:00:00Z"),
        ] {
            let buckets =
                Buckets::of(&range("2024-01-01", to, zone), Interval::Day, false).unwrap();
            assert_eq!(buckets.last_days(7), time(first), "{zone} {to}");
        }
    }

    #[test]
    fn hours_are_labelled_by_the_local_clock_and_bounded() {
        let hours =
            Buckets::of(&range("2024-10-27", "2024-10-27", "Europe/Berlin"), Interval::Hour, false);
        let hours = hours.unwrap();
        assert_eq!(hours.len(), 25, "the clock went back");
        assert_eq!(hours.day(2), "2024-10-27 02:00:00");
        assert_eq!(hours.day(3), "2024-10-27 02:00:00");
        assert_eq!(hours.label(4), "27-Oct-2024 03:00");
        // From the second of both on.
        let [from, to] = ["2024-10-27T01:30:00Z", "2024-10-27T02:30:00Z"].map(time);
        let hours = DateRange::new(from, to, "Europe/Berlin".parse().unwrap());
        let hours = Buckets::of(&hours, Interval::Hour, false).unwrap();
        assert_eq!((hours.len(), hours.bounds().0), (2, time("2024-10-27T01:00:00Z")));
        let long = range("2020-01-01", "2024-01-01", "UTC");
        let refused = Buckets::of(&long, Interval::Minute, false).err();
        assert_eq!(refused, Some(TooManyBuckets));
        assert!(Buckets::of(&long, Interval::Day, false).unwrap().len() < BUCKETS_MAX);
    }
}
