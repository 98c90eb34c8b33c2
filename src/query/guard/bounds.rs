//! Upper bounds of the bytes and steps of a function call, from its arguments: [`Bounds`]. They are cheap to compute
//! compared with the call, and are known before anything is allocated.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, TimeUnit,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;

use crate::guard::functions::{Cost, Output, Rule};
use crate::guard::sizes;
use crate::guard::sizes::Views;
use weir_event::pattern::{PatternError, Size, UNKNOWN_STATES};

/// Bytes per row besides its values: offsets, views, validity.
const ROW_BYTES: usize = 24;

/// Minimum steps per byte of a text that is matched with a pattern.
const STEPS_PER_BYTE: usize = 500;

/// Steps to compile a state of a pattern that differs from row to row. It takes some memory as well, for the duration
/// of the call.
const STEPS_PER_STATE: usize = 5000;

/// Maximum characters to which one character of a format can expand.
const FORMATTED_CHARACTERS: usize = 40;

/// Bytes of a number or a time as text, or of a null of a type that has no text.
const PLAIN_TEXT_BYTES: usize = 32;

/// Bytes of views and offsets per character that a group matches, of which each match has at least one, or per empty
/// match.
const BYTES_PER_MATCH: usize = 40;

/// Bytes of SHA-512.
const DIGEST_BYTES: usize = 64;

const NANOS_PER_HOUR: i128 = 3_600_000_000_000;

/// A number per row.
#[derive(Debug)]
enum Figures<T> {
    Same(T),
    Each(Vec<T>),
}

impl<T: Copy + Default> Figures<T> {
    fn of(
        value: &ColumnarValue,
        figures: impl FnOnce(&ArrayRef) -> Result<Vec<T>>,
    ) -> Result<Self> {
        match value {
            ColumnarValue::Scalar(value) => {
                let figures = figures(&value.to_array()?)?;
                Ok(Self::Same(figures.first().copied().unwrap_or_default()))
            }
            ColumnarValue::Array(array) => Ok(Self::Each(figures(array)?)),
        }
    }

    fn at(&self, row: usize) -> T {
        match self {
            Self::Same(figure) => *figure,
            Self::Each(figures) => figures.get(row).copied().unwrap_or_default(),
        }
    }
}

/// Bounds of each row of one call.
#[derive(Debug)]
pub(super) struct Bounds {
    rule: Rule,
    /// Bytes of the values of each argument.
    bytes: Vec<Figures<usize>>,
    /// A count of each output row, such as of elements, where an argument defines it.
    count: Figures<usize>,
    /// Bytes of one of the nulls with which lists are padded.
    null: usize,
    /// Bytes of constants, which functions repeat for each row.
    constants: usize,
    /// Steps of matching the pattern, if there is one.
    pattern: Figures<Work>,
}

/// Steps of a pattern for a row.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Steps to compile it.
    compiled: usize,
    /// Steps per byte of the text in which it is searched.
    per_byte: usize,
}

impl Bounds {
    /// The bounds of a call with these arguments.
    ///
    /// # Errors
    ///
    /// An argument is invalid.
    pub(super) fn new(rule: Rule, arguments: &[ColumnarValue]) -> Result<Self> {
        let bytes = arguments.iter().map(|argument| Figures::of(argument, lengths));
        let bytes = bytes.collect::<Result<Vec<_>>>()?;
        let count = match (rule.output, arguments) {
            (Output::Repeated | Output::Padded | Output::Resized, [_, count, ..]) => {
                Figures::of(count, counts)?
            }
            (Output::Series, arguments) => series(arguments)?,
            (Output::Zipped, arguments) => longest(arguments)?,
            _ => Figures::Same(0),
        };
        let null = match (rule.output, arguments) {
            (Output::Resized, [list, ..]) => null_element(list),
            (Output::Zipped, lists) => {
                lists.iter().map(null_element).fold(0, usize::saturating_add)
            }
            _ => 0,
        };
        let constants = bytes.iter().fold(0, |sum: usize, bytes| match bytes {
            Figures::Same(bytes) => sum.saturating_add(*bytes),
            Figures::Each(_) => sum,
        });
        let pattern = match (rule.cost, arguments) {
            (Cost::Pattern, [_, pattern, ..]) => Figures::of(pattern, works)?,
            _ => Figures::Same(Work::default()),
        };
        // A pattern that is the same for all rows is compiled only once for many of them.
        let pattern = match pattern {
            Figures::Same(work) => Figures::Same(Work { compiled: 0, ..work }),
            each @ Figures::Each(_) => each,
        };
        Ok(Self { rule, bytes, count, null, constants, pattern })
    }

    fn argument(&self, index: usize, row: usize) -> usize {
        self.bytes.get(index).map_or(0, |bytes| bytes.at(row))
    }

    fn arguments(&self, row: usize) -> usize {
        self.bytes.iter().fold(0, |sum: usize, bytes| sum.saturating_add(bytes.at(row)))
    }

    /// Maximum bytes that the call allocates for a row.
    pub(super) fn bytes(&self, row: usize) -> usize {
        let of = |index| self.argument(index, row);
        let count = self.count.at(row);
        let output = match self.rule.output {
            Output::Narrow => PLAIN_TEXT_BYTES,
            Output::Times(times) => self.arguments(row).saturating_mul(times),
            Output::Joined => {
                let between = of(0).saturating_mul(self.bytes.len());
                self.arguments(row).saturating_add(between)
            }
            Output::Repeated => count.saturating_mul(of(0).saturating_add(size_of::<u64>())),
            // Builders reserve four bytes per character.
            Output::Padded => count.saturating_mul(4).saturating_add(self.arguments(row)),
            Output::Replaced => {
                let occurrences = match of(1) {
                    0 => of(0).saturating_add(1),
                    length => of(0) / length,
                };
                occurrences.saturating_mul(of(2)).saturating_add(of(0))
            }
            Output::PatternReplaced => {
                // Empty matches are possible between all characters. A reference to a group takes two characters, and
                // all matches together are no longer than the text.
                let texts = of(0).saturating_add(1).saturating_mul(of(2));
                let groups = of(0).saturating_mul(of(2) / 2);
                texts.saturating_add(groups).saturating_add(of(0))
            }
            // A group takes two parentheses.
            Output::Groups => {
                let groups = (of(1) / 2).saturating_add(1);
                of(0).saturating_add(ROW_BYTES).saturating_mul(groups)
            }
            Output::AllGroups => {
                let groups = (of(1) / 2).saturating_add(1);
                let each = of(0).saturating_add(ROW_BYTES).saturating_mul(groups);
                each.saturating_mul(BYTES_PER_MATCH)
            }
            Output::ElementsJoined => {
                let between = of(1).saturating_add(of(2)).saturating_add(PLAIN_TEXT_BYTES);
                of(0).saturating_mul(between)
            }
            Output::ElementsReplaced => of(0).saturating_mul(of(2).saturating_add(1)),
            Output::Resized => {
                let element = of(2).max(self.null).saturating_add(size_of::<u64>());
                count.saturating_mul(element).saturating_add(of(0).saturating_mul(2))
            }
            // A growing vector has capacity for up to twice its elements.
            Output::Series => count.saturating_mul(2 * size_of::<u64>()),
            Output::Zipped => {
                let offsets = self.bytes.len().saturating_mul(size_of::<u64>());
                let filled = count.saturating_mul(self.null.saturating_add(offsets));
                self.arguments(row).saturating_mul(2).saturating_add(filled)
            }
            Output::Digest => DIGEST_BYTES,
            Output::Formatted => of(1).saturating_mul(FORMATTED_CHARACTERS),
        };
        output.saturating_add(self.constants).saturating_add(ROW_BYTES)
    }

    /// Maximum steps of the call for a row.
    pub(super) fn steps(&self, row: usize) -> usize {
        match self.rule.cost {
            Cost::Linear => 0,
            Cost::Wildcards => {
                self.argument(0, row).saturating_mul(self.argument(1, row).max(STEPS_PER_BYTE))
            }
            Cost::Product => self.argument(0, row).saturating_mul(self.argument(1, row)),
            Cost::Pattern => {
                let Work { compiled, per_byte } = self.pattern.at(row);
                let states = self.argument(1, row).max(per_byte);
                self.argument(0, row).saturating_mul(states).saturating_add(compiled)
            }
        }
    }
}

/// The steps of each of these patterns.
///
/// # Errors
///
/// A pattern exceeds the limits of users' patterns.
fn works(patterns: &ArrayRef) -> Result<Vec<Work>> {
    let patterns = cast(patterns, &DataType::Utf8View)?;
    let patterns = patterns.as_string_view().iter();
    patterns.map(|pattern| work(pattern.unwrap_or_default())).collect()
}

fn work(pattern: &str) -> Result<Work> {
    let (states, per_byte) = match Size::of(pattern) {
        Ok(size) => (size.states, size.steps_per_byte()),
        Err(PatternError::Invalid) if pattern.contains('{') => (UNKNOWN_STATES, UNKNOWN_STATES),
        Err(PatternError::Invalid) => (pattern.len(), STEPS_PER_BYTE),
        Err(error) => return Err(DataFusionError::Plan(error.to_string())),
    };
    let compiled = states.saturating_mul(STEPS_PER_STATE);
    Ok(Work { compiled, per_byte: per_byte.max(STEPS_PER_BYTE) })
}

/// Bytes of the values only, without offsets and views.
fn lengths(array: &ArrayRef) -> Result<Vec<usize>> {
    let overhead = match array.data_type() {
        DataType::Utf8 | DataType::Binary => size_of::<i32>(),
        DataType::LargeUtf8 | DataType::LargeBinary => size_of::<i64>(),
        DataType::Utf8View | DataType::BinaryView => size_of::<u128>(),
        _ => 0,
    };
    let rows = sizes::rows(array, Views::Expanded).into_iter();
    Ok(rows.map(|bytes| bytes.saturating_sub(overhead)).collect())
}

/// Length of the longest list of each row.
fn longest(lists: &[ColumnarValue]) -> Result<Figures<usize>> {
    let elements = |array: &ArrayRef| Ok(sizes::elements(array, 1));
    let lists = lists.iter().map(|list| Figures::of(list, elements));
    let lists = lists.collect::<Result<Vec<_>>>()?;
    let most = |row: usize| lists.iter().map(|list| list.at(row)).max().unwrap_or(0);
    let rows = lists.iter().map(|list| match list {
        Figures::Each(each) => each.len(),
        Figures::Same(_) => 0,
    });
    Ok(match rows.max() {
        None | Some(0) => Figures::Same(most(0)),
        Some(rows) => Figures::Each((0..rows).map(most).collect()),
    })
}

/// Bytes of a null element of a list.
fn null_element(list: &ColumnarValue) -> usize {
    match list.data_type() {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            sizes::null_bytes(field.data_type())
        }
        other => sizes::null_bytes(&other),
    }
}

/// The values of an array of numbers; negative ones count as 0.
fn counts(array: &ArrayRef) -> Result<Vec<usize>> {
    let numbers = cast(array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>().iter();
    Ok(numbers.map(|number| number.map_or(0, |n| usize::try_from(n).unwrap_or(0))).collect())
}

/// Number of elements of `range(start, stop, step)`, and of its shorter forms.
fn series(arguments: &[ColumnarValue]) -> Result<Figures<usize>> {
    let (start, stop, step) = match arguments {
        [stop] => (None, stop, None),
        [start, stop] => (Some(start), stop, None),
        [start, stop, step, ..] => (Some(start), stop, Some(step)),
        [] => return Ok(Figures::Same(0)),
    };
    let places = |value: Option<&ColumnarValue>, otherwise: i128| match value {
        Some(value) => Figures::of(value, places),
        None => Ok(Figures::Same(Some(otherwise))),
    };
    let (start, stop) = (places(start, 0)?, places(Some(stop), 0)?);
    let step = places(step, 1)?;
    let count = |row: usize| match (start.at(row), stop.at(row), step.at(row)) {
        (Some(start), Some(stop), Some(step)) => {
            let steps = start.abs_diff(stop).checked_div(step.unsigned_abs());
            let steps = steps.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
            steps.saturating_add(2)
        }
        _ => 0,
    };
    let rows = [&start, &stop, &step].into_iter().map(|figures| match figures {
        Figures::Each(each) => each.len(),
        Figures::Same(_) => 0,
    });
    Ok(match rows.max() {
        None | Some(0) => Figures::Same(count(0)),
        Some(rows) => Figures::Each((0..rows).map(count).collect()),
    })
}

/// Numbers as they are; times and intervals in nanoseconds.
fn places(array: &ArrayRef) -> Result<Vec<Option<i128>>> {
    let unit = match array.data_type() {
        DataType::Interval(unit) => return Ok(intervals(array, *unit)),
        DataType::Date32 => 24 * NANOS_PER_HOUR,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1000,
        _ => 1,
    };
    let numbers = match array.data_type() {
        DataType::Date32 => cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(array, &DataType::Int64)?,
    };
    let numbers = numbers.as_primitive::<Int64Type>().iter();
    Ok(numbers.map(|number| number.map(|n| i128::from(n).saturating_mul(unit))).collect())
}

/// Lower bound of the duration of each interval. If its parts have different signs, they may cancel out to nothing.
fn intervals(array: &ArrayRef, unit: IntervalUnit) -> Vec<Option<i128>> {
    let shortest = |months: i32, days: i32, nanos: i64| {
        let (months, days, nanos) = (i128::from(months), i128::from(days), i128::from(nanos));
        let is_mixed = [months, days, nanos].iter().any(|part| *part < 0)
            && [months, days, nanos].iter().any(|part| *part > 0);
        // A month has at least 28 days, and a day at least 23 hours.
        let hours = months.saturating_mul(28 * 24).saturating_add(days.saturating_mul(23));
        if is_mixed { 0 } else { hours.saturating_mul(NANOS_PER_HOUR).saturating_add(nanos) }
    };
    match unit {
        IntervalUnit::MonthDayNano => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().iter();
            values.map(|v| v.map(|v| shortest(v.months, v.days, v.nanoseconds))).collect()
        }
        IntervalUnit::YearMonth => {
            let values = array.as_primitive::<IntervalYearMonthType>().iter();
            values.map(|months| months.map(|months| shortest(months, 0, 0))).collect()
        }
        IntervalUnit::DayTime => {
            let values = array.as_primitive::<IntervalDayTimeType>().iter();
            let nanos = |millis: i32| i64::from(millis).saturating_mul(1_000_000);
            values.map(|v| v.map(|v| shortest(0, v.days, nanos(v.milliseconds)))).collect()
        }
    }
}
