//! Whether what raises a number while it runs still does so: [`Beats`]. Measured by the reader's clock alone, so that no two
//! clocks are compared.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which the row of a process that is gone is removed from the database. It comes back with its next beat.
pub const FORGET_AFTER: Duration = Duration::from_secs(10 * 60);

/// The last beat of each process, and when it was first read.
#[derive(Debug)]
pub struct Beats<Key> {
    seen: BTreeMap<Key, (i64, Duration)>,
}

impl<Key> Default for Beats<Key> {
    fn default() -> Self {
        Self { seen: BTreeMap::new() }
    }
}

impl<Key: Ord + Clone> Beats<Key> {
    /// The time for which a beat, which was read `now`, has stood still.
    pub fn still(&mut self, key: &Key, beat: i64, now: Duration) -> Duration {
        let seen = self.seen.entry(key.clone()).or_insert((beat, now));
        if seen.0 != beat {
            *seen = (beat, now);
        }
        now.saturating_sub(seen.1)
    }

    /// Forgets those that are not to be kept.
    pub fn retain(&mut self, is_kept: impl Fn(&Key) -> bool) {
        self.seen.retain(|key, _| is_kept(key));
    }

    /// Begins anew: without a read, it is unknown whether beats have changed.
    pub fn clear(&mut self) {
        self.seen.clear();
    }
}
