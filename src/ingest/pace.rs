//! How fast new records may come while the log of before is replayed. To log a record takes less than
//! to replay it, so senders at full speed would outrun the replay, and questions would wait until the
//! log is full. Here a byte is logged for every two that are replayed: when the replay began with B
//! bytes, it ends at the latest after twice as many, and twice [`LEAD_MAX_BYTES`] and what was on its way
//! into the log.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// Bytes of records that may be logged whatever is replayed: a second or two of usual events.
const LEAD_MAX_BYTES: u64 = 16 << 20;

/// Bytes that are replayed for each that is logged.
const REPLAYED_PER_LOGGED: u64 = 2;

/// Counts both, from the start to the end of the replay.
#[derive(Debug, Default)]
pub(super) struct Pace {
    logged_bytes: AtomicU64,
    replayed_bytes: AtomicU64,
}

impl Pace {
    /// Notes a new record that the replay has still to come to.
    pub(super) fn note_logged(&self, bytes: usize) {
        self.logged_bytes.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
    }

    /// Notes that a record is replayed.
    pub(super) fn note_replayed(&self, bytes: usize) {
        self.replayed_bytes.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether the next record has to wait until more is replayed.
    pub(super) fn is_held(&self) -> bool {
        let replayed = self.replayed_bytes.load(Ordering::Relaxed);
        let lead = self.logged_bytes.load(Ordering::Relaxed);
        lead > LEAD_MAX_BYTES.saturating_add(replayed / REPLAYED_PER_LOGGED)
    }

    /// Bytes that were logged, and bytes that were replayed.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.logged_bytes.load(Ordering::Relaxed), self.replayed_bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::LEAD_MAX_BYTES;
    use super::Pace;

    const RECORD: usize = 100_000;

    /// Goal: whatever senders do, the replay ends.
    #[test]
    fn senders_at_full_speed_do_not_outrun_the_replay() {
        let (pace, before) = (Pace::default(), 1000);
        let mut waiting = before;
        let mut replayed = 0;
        while waiting > 0 {
            while !pace.is_held() {
                pace.note_logged(RECORD);
                waiting += 1;
            }
            pace.note_replayed(RECORD);
            waiting -= 1;
            replayed += 1;
        }
        let lead = usize::try_from(LEAD_MAX_BYTES).unwrap() / RECORD;
        assert!((2 * before..=2 * (before + lead + 2)).contains(&replayed), "{replayed}");
    }

    #[test]
    fn few_records_never_wait() {
        let pace = Pace::default();
        pace.note_logged(usize::try_from(LEAD_MAX_BYTES).unwrap());
        assert!(!pace.is_held());
        pace.note_logged(1);
        assert!(pace.is_held());
        pace.note_replayed(1);
        assert!(pace.is_held());
        pace.note_replayed(1);
        assert!(!pace.is_held());
    }
}
