//! Histogram of the time that actors take from one step of a funnel to another, with bins of equal width.

use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};

use crate::funnels::Funnels;
use crate::funnels::split::Splitter;
use crate::funnels::times::{Room, Times};
use crate::{Context, InsightError};
use weir_api::insights::funnel;
use weir_query::events::histories::{Fold, PartialFold, Row};
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Most bins if the request sets no number (PostHog's figure).
const BINS_MAX: usize = 60;

/// The width of bins if all times are equal, in seconds (PostHog's figure).
const WIDTH_DEFAULT: f64 = 60.0;

/// Collects the times.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Timing {
    splitter: Splitter,
    between: (usize, usize),
    times: Times,
    room: Room,
}

impl PartialFold for Timing {
    const NAME: &'static str = "times to convert of a funnel";

    fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        self.room.merge(other.room)?;
        self.times.extend(other.times);
        Ok(())
    }

    fn account(&mut self, _: MemoryReservation) {
        self.room.restrict();
    }
}

impl Fold for Timing {
    fn actor(&mut self, _: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Self { splitter, between: (from, to), times, room } = self;
        splitter.each(rows, texts, |found| {
            let time = |step: usize| found.times.get(step).copied().flatten();
            match (time(*from), time(*to)) {
                (Some(before), Some(at)) => room.add(times, at.saturating_sub(before)),
                _ => Ok(()),
            }
        })
    }
}

impl Funnels {
    pub(super) async fn time_to_convert(
        &self,
        context: Context<'_>,
        bins: Option<usize>,
    ) -> Result<funnel::Times, InsightError> {
        let bounds = self.bounds(context).await?;
        let (times, room) = (Times::default(), Room::default());
        let timing = Timing { splitter: self.splitter(None), between: self.between, times, room };
        let times = self.fold(context, (bounds, None), timing).await?.times;
        let average = times.average().map(|seconds| (seconds * 100.0).round() / 100.0);
        let bins = bins_of(&times, bins.unwrap_or_else(|| bins_for(times.len())));
        Ok(funnel::Times { average_conversion_time: average, bins })
    }
}

/// The default number of bins for this number of times: the cube root.
fn bins_for(times: usize) -> usize {
    (1..BINS_MAX).find(|bins| bins * bins * bins >= times).unwrap_or(BINS_MAX)
}

/// The start of each bin in seconds, and the number of times in it. The last bin contains only the longest time, if
/// that is exactly its start.
fn bins_of(times: &Times, bins: usize) -> Vec<(f64, u64)> {
    let Some(longest) = times.seconds().reduce(f64::max) else { return Vec::new() };
    let start = times.seconds().fold(longest, f64::min).floor();
    let count = u32::try_from(bins.max(1)).unwrap_or(u32::MAX);
    let width = ((longest.ceil() - start) / f64::from(count)).ceil();
    let width = if width > 0.0 { width } else { WIDTH_DEFAULT };
    let mut rows: Vec<(f64, u64)> =
        (0..=count).map(|bin| (start + f64::from(bin) * width, 0)).collect();
    for time in times.seconds() {
        let next = rows.partition_point(|(from, _)| *from <= time);
        let own = next.checked_sub(1).and_then(|bin| rows.get_mut(bin));
        own.into_iter().for_each(|(_, count)| *count = count.saturating_add(1));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{bins_for, bins_of};
    use crate::funnels::times::{Room, Times};

    #[test]
    fn bins_are_of_equal_width() {
        for (seconds, bins, expected) in [
            (&[][..], 3, &[][..]),
            (&[10], 1, &[(10.0, 1), (70.0, 0)]),
            (&[2220, 2220, 2220, 3600], 2, &[(2220.0, 3), (2910.0, 0), (3600.0, 1)]),
            (&[0, 1, 2, 3, 9], 3, &[(0.0, 3), (3.0, 1), (6.0, 0), (9.0, 1)]),
        ] {
            let (mut times, mut room) = (Times::default(), Room::default());
            seconds.iter().for_each(|at| room.add(&mut times, at * 1_000_000).unwrap());
            assert_eq!(bins_of(&times, bins), expected, "{seconds:?}");
        }
        let counts = [0, 1, 2, 3, 8, 9, 27, 28, 10_000_000].map(bins_for);
        assert_eq!(counts, [1, 1, 2, 2, 2, 3, 3, 4, 60]);
    }
}
