//! Splits person numbers into ranges that are processed one by one: [`ranges`].

use std::ops::Range;

/// About `count` ranges that together cover `numbers`.
pub(crate) fn ranges(numbers: Range<i64>, count: usize) -> Vec<Range<i64>> {
    let length = numbers.end.saturating_sub(numbers.start).max(0);
    let count = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    let step = (length / count).saturating_add(1);
    let starts = (0..count).map(|at| numbers.start.saturating_add(step.saturating_mul(at)));
    let ranges = starts.map(|start| start..start.saturating_add(step).min(numbers.end));
    ranges.filter(|range| !range.is_empty()).collect()
}
