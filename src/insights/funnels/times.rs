//! Collects times to convert: [`Times`].

use serde::{Deserialize, Serialize};

use weir_query::kernel::error::QueryError;

/// Most memory for the times of one result.
pub(super) const TIMES_MAX_BYTES: usize = 64 << 20;

/// How many times fit in that memory.
const TIMES_MAX: usize = TIMES_MAX_BYTES / size_of::<i64>();

/// How many of them a process may have that computes one part of a result.
const PART_TIMES_MAX: usize = TIMES_MAX / 8;

const MICROS_PER_SECOND: f64 = 1e6;

/// Durations in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Times(Vec<i64>);

/// How many times there are, and how many may be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Room {
    taken: usize,
    most: usize,
}

impl Default for Room {
    /// As many as fit in [`TIMES_MAX_BYTES`].
    fn default() -> Self {
        Self { taken: 0, most: TIMES_MAX }
    }
}

impl Room {
    /// Adds a duration to `times`.
    ///
    /// # Errors
    ///
    /// The memory limit is reached.
    pub(super) fn add(&mut self, times: &mut Times, micros: i64) -> Result<(), QueryError> {
        self.take(1)?;
        times.0.push(micros);
        Ok(())
    }

    /// Takes what was taken of another one.
    ///
    /// # Errors
    ///
    /// The memory limit is reached.
    pub(super) fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        self.take(other.taken)
    }

    /// Restricts it to what one process may have, of several that compute parts of a result.
    pub(super) fn restrict(&mut self) {
        self.most = self.most.min(PART_TIMES_MAX);
    }

    fn take(&mut self, times: usize) -> Result<(), QueryError> {
        self.taken = self.taken.saturating_add(times);
        if self.taken > self.most {
            let bytes = self.most.saturating_mul(size_of::<i64>());
            let detail = format!("times of conversions take more than {} MiB", bytes >> 20);
            return Err(QueryError::Memory(detail));
        }
        Ok(())
    }
}

impl Times {
    /// Appends those of `other`.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Their mean in seconds; `None` if there are none.
    pub(super) fn average(&self) -> Option<f64> {
        let count = i128::try_from(self.0.len()).ok().filter(|count| *count > 0)?;
        let sum: i128 = self.0.iter().map(|micros| i128::from(*micros)).sum();
        // Divides with remainder, so that a mean of whole seconds stays exact.
        let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
        Some((number(whole) + number(rest) / number(count)) / MICROS_PER_SECOND)
    }

    /// Their median in seconds, which is the mean of the middle two for an even number; `None` if there are none.
    pub(super) fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let high = i128::from(*sorted.get(sorted.len() / 2)?);
        let low = i128::from(*sorted.get(sorted.len().saturating_sub(1) / 2)?);
        Some(number(low + high) / 2.0 / MICROS_PER_SECOND)
    }

    /// The number of durations.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The durations in seconds.
    pub(super) fn seconds(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|micros| number(i128::from(*micros)) / MICROS_PER_SECOND)
    }
}

/// Converts microseconds, exactly for those of any date range.
#[expect(
    clippy::cast_precision_loss,
    reason = "the sums of differences below 2^53 need not be exact"
)]
fn number(micros: i128) -> f64 {
    micros as f64
}

#[cfg(test)]
mod tests {
    use super::{Room, Times};
    use weir_query::kernel::error::QueryError;

    #[test]
    fn averages_and_medians_are_seconds() {
        for (micros, average, median) in [
            (&[][..], None, None),
            (&[1_500_000], Some(1.5), Some(1.5)),
            (&[3_000_000, 1_000_000], Some(2.0), Some(2.0)),
            (&[9_000_000, 1_000_000, 2_000_000], Some(4.0), Some(2.0)),
        ] {
            let (mut times, mut room) = (Times::default(), Room::default());
            micros.iter().for_each(|time| room.add(&mut times, *time).unwrap());
            assert_eq!((times.average(), times.median()), (average, median), "{micros:?}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let (mut times, mut room) = (Times::default(), Room { taken: 0, most: 1 });
        room.add(&mut times, 1).unwrap();
        assert!(matches!(room.add(&mut times, 1), Err(QueryError::Memory(_))));
        assert_eq!(times.len(), 1);
    }
}
