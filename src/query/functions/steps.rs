//! `windowFunnel(seconds)(time, condition, ...)`: the number of steps that were taken in order. `funnel_steps` returns
//! the time and the matching steps of each row; `window_funnel` evaluates the rows of a group.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, TimestampMicrosecondType};
use datafusion::error::{DataFusionError, Result};

use crate::functions::arrays::{ranges, whole_of};
use crate::functions::own::{Own, Takes, argument, internal, lists, whole};

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Both functions.
pub(super) const ALL: &[Own] = &[
    Own::new(
        "funnel_steps",
        &[Takes::Time, Takes::Truth],
        |_| Ok(DataType::Struct(fields())),
        steps,
    )
    .and_more(Takes::Truth),
    Own::new("window_funnel", &[Takes::List, Takes::Whole], whole, funnel),
];

fn fields() -> Fields {
    let field = |name| Field::new(name, DataType::Int64, false);
    Fields::from(vec![field("at"), field("steps")])
}

/// The time of each row, and a bit for each condition that is true.
fn steps(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let times = argument(sent, 0)?.as_primitive_opt::<TimestampMicrosecondType>();
    let times = times.ok_or_else(|| internal("a time"))?;
    let mut masks = vec![0_i64; times.len()];
    for (step, holds) in sent.iter().skip(1).enumerate() {
        let holds = holds.as_boolean_opt().ok_or_else(|| internal("a condition"))?;
        let bit = u32::try_from(step).ok().and_then(|step| 1_i64.checked_shl(step)).unwrap_or(0);
        for (row, mask) in masks.iter_mut().enumerate() {
            if holds.is_valid(row) && holds.value(row) {
                *mask |= bit;
            }
        }
    }
    let times: Int64Array = times.values().iter().copied().collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(Int64Array::from(masks))];
    Ok(Arc::new(StructArray::try_new(fields(), columns, None)?))
}

/// The length of the longest chain of steps in order within a time window from its first one; 0 if there is none.
fn funnel(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = lists(sent, 0)?;
    let seconds = argument(sent, 1)?.as_primitive::<Int64Type>();
    let rows = lists.values().as_struct_opt().ok_or_else(of_steps)?;
    let column =
        |at: usize| rows.columns().get(at).and_then(|own| own.as_primitive_opt::<Int64Type>());
    let (Some(times), Some(masks)) = (column(0), column(1)) else {
        return Err(of_steps());
    };
    let level = |(row, range): (usize, std::ops::Range<usize>)| {
        let window = seconds.value(row).saturating_mul(MICROS_PER_SECOND);
        let mut events: Vec<(i64, i64)> =
            range.map(|at| (times.value(at), masks.value(at))).collect();
        events.sort_by_key(|(at, _)| *at);
        whole_of(reached(&events, window))
    };
    Ok(Arc::new(ranges(lists).enumerate().map(level).map(Some).collect::<Int64Array>()))
}

/// SQL called it directly, instead of through the template.
fn of_steps() -> DataFusionError {
    DataFusionError::Plan("window_funnel takes what funnel_steps gives".to_owned())
}

/// The number of steps reached. For each step, the latest start of a chain that has reached it is stored.
fn reached(events: &[(i64, i64)], window: i64) -> usize {
    let mut begun: [Option<i64>; 64] = [None; 64];
    for (at, mask) in events {
        // Later steps are updated first, so that an event counts as only one step of a chain.
        for step in (0..begun.len()).rev().filter(|step| (mask >> step) & 1 == 1) {
            let start = match step.checked_sub(1) {
                None => Some(*at),
                Some(before) => {
                    let start = begun.get(before).copied().flatten();
                    start.filter(|start| *at <= start.saturating_add(window))
                }
            };
            if let (Some(start), Some(place)) = (start, begun.get_mut(step)) {
                *place = Some(start);
            }
        }
    }
    begun.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::reached;

    /// Expected: by hand, from ClickHouse's description of `windowFunnel`.
    #[test]
    fn steps_follow_each_other_within_the_window() {
        for (events, window, expected) in [
            (&[][..], 10, 0),
            (&[(5, 0b10)], 10, 0),
            (&[(5, 0b01)], 10, 1),
            (&[(1, 0b001), (2, 0b010), (3, 0b100)], 10, 3),
            // The third one is too late.
            (&[(1, 0b001), (2, 0b010), (12, 0b100)], 10, 2),
            (&[(1, 0b001), (2, 0b010), (11, 0b100)], 10, 3),
            // A later first step starts a new chain.
            (&[(1, 0b001), (9, 0b001), (12, 0b010), (15, 0b100)], 10, 3),
            (&[(1, 0b010), (2, 0b001)], 10, 1),
            // An event is only one step of a chain.
            (&[(1, 0b011)], 10, 1),
            (&[(1, 0b011), (2, 0b011)], 10, 2),
        ] {
            assert_eq!(reached(events, window), expected, "{events:?}");
        }
    }
}
