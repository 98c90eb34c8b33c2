//! Rate limit of log lines: [`Repeats`] counts repeated events by kind and decides when the next line is due.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

/// Most kinds that are counted at once. When they are used up, kinds without a line during the last pause are
/// evicted; if there are none, further kinds get no line.
const KINDS_MAX: usize = 64;

/// Counts of events by kind.
#[derive(Debug)]
pub struct Repeats<K> {
    pause: Duration,
    kinds: Mutex<BTreeMap<K, Kind>>,
}

#[derive(Debug)]
struct Kind {
    logged_at: Duration,
    /// Events since `logged_at`.
    count: u64,
}

impl<K: Ord + Clone> Repeats<K> {
    /// Without counts. Each kind gets at most one line per `pause`.
    pub fn new(pause: Duration) -> Self {
        Self { pause, kinds: Mutex::default() }
    }

    /// Counts `count` events of a kind at `now`. If a line is due, returns the number of events that it represents.
    pub fn count(&self, kind: K, count: u64, now: Duration) -> Option<u64> {
        let mut kinds = self.kinds.lock();
        if let Some(known) = kinds.get_mut(&kind) {
            known.count = known.count.saturating_add(count);
            if now.saturating_sub(known.logged_at) < self.pause {
                return None;
            }
            known.logged_at = now;
            return Some(std::mem::take(&mut known.count));
        }
        if kinds.len() >= KINDS_MAX {
            kinds.retain(|_, known| now.saturating_sub(known.logged_at) < self.pause);
        }
        if kinds.len() >= KINDS_MAX {
            return None;
        }
        kinds.insert(kind, Kind { logged_at: now, count: 0 });
        Some(count)
    }

    /// Returns and resets the kinds with events that are in no line yet, with their counts. For lines between
    /// events, which may stop coming.
    pub fn take(&self, now: Duration) -> Vec<(K, u64)> {
        let mut kinds = self.kinds.lock();
        let mut due = Vec::new();
        kinds.retain(|kind, known| {
            if known.count == 0 {
                return now.saturating_sub(known.logged_at) < self.pause;
            }
            known.logged_at = now;
            due.push((kind.clone(), std::mem::take(&mut known.count)));
            true
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{KINDS_MAX, Repeats};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_kind_gets_one_line_per_pause_and_every_event_is_in_one() {
        let repeats = Repeats::new(10 * SECOND);
        let at = |kind: &'static str, second: u32| repeats.count(kind, 1, second * SECOND);
        assert_eq!([at("full", 0), at("full", 1), at("busy", 1)], [Some(1), None, Some(1)]);
        assert_eq!([at("full", 9), at("full", 10), at("full", 11)], [None, Some(3), None]);
        assert_eq!(repeats.take(12 * SECOND), [("full", 1)]);
        assert_eq!(repeats.take(13 * SECOND), []);
        assert_eq!(at("busy", 30), Some(1), "evicted, as its pause was over");
    }

    #[test]
    fn kinds_are_bounded() {
        let repeats = Repeats::new(SECOND);
        let due = (0..10_000).filter(|kind| repeats.count(*kind, 1, SECOND).is_some());
        assert_eq!(due.count(), KINDS_MAX);
        assert_eq!(repeats.count(0, 1, 3 * SECOND), Some(1), "one that is known");
        assert_eq!(repeats.count(10_000, 1, 3 * SECOND), Some(1), "another one, as most are over");
    }
}
