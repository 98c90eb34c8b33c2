//! Recent growth rate of a counter: [`Rates`]. The counter is sampled from time to time, so counting itself costs
//! nothing more.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// Least time between two samples.
const STEP: Duration = Duration::from_secs(5);

/// Shortest time for which a rate is computed: within some milliseconds, one request more or less is thousands a
/// second.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// Most samples: those of an hour, and one before.
const SAMPLES_MAX: usize = 721;

/// Values of one counter at moments of the last hour.
#[derive(Debug, Default)]
pub struct Rates(Mutex<VecDeque<(Duration, u64)>>);

impl Rates {
    /// Records the value at `now`, a monotonic time. Most calls do nothing.
    pub fn note(&self, now: Duration, value: u64) {
        let mut samples = self.0.lock();
        if samples.back().is_some_and(|(last, _)| now.saturating_sub(*last) < STEP) {
            return;
        }
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((now, value));
    }

    /// The growth per second within about the last `span`, or since the first sample if that is shorter; `value` is
    /// that at `now`. `None` before there is a sample to compare with.
    pub fn per_second(&self, now: Duration, value: u64, span: Duration) -> Option<f64> {
        let samples = self.0.lock();
        let before = samples.iter().rev().find(|(at, _)| now.saturating_sub(*at) >= span);
        let (at, first) = *before.or_else(|| samples.front())?;
        let past = now.saturating_sub(at);
        (past >= SPAN_MIN).then(|| value.saturating_sub(first) as f64 / past.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Rates, SAMPLES_MAX};

    #[test]
    fn rates_are_those_of_the_last_minute_and_hour() {
        let rates = Rates::default();
        let of = |at: u64, value: u64, span: u64| {
            rates.per_second(Duration::from_secs(at), value, Duration::from_secs(span))
        };
        assert_eq!(of(0, 0, 60), None);
        rates.note(Duration::ZERO, 0);
        assert_eq!(of(0, 0, 60), None, "no time has passed");
        let soon = Duration::from_millis(999);
        assert_eq!(rates.per_second(soon, 100, Duration::from_secs(60)), None);
        assert_eq!(of(10, 50, 60), Some(5.0), "since the start");
        // 10 a second for an hour, then 100 a second for a minute.
        for second in 1..=3600 {
            rates.note(Duration::from_secs(second), second * 10);
        }
        for second in 1..=60 {
            rates.note(Duration::from_secs(3600 + second), 36_000 + second * 100);
        }
        assert_eq!(of(3660, 42_000, 60), Some(100.0));
        assert_eq!(of(3660, 42_000, 3600), Some((42_000.0 - 600.0) / 3600.0));
        assert_eq!(rates.0.lock().len(), SAMPLES_MAX);
        assert_eq!(of(3720, 42_000, 60), Some(0.0));
    }
}
