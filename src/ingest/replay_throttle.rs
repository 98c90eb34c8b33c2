//! Admission during the replay. To log a record is cheaper than to replay it, so senders at full speed
//! would outrun the replay, and queries would wait until the log is full. So one byte may be logged per
//! two bytes replayed: if the replay begins with B bytes, it ends after at most twice the sum of B,
//! [`LEAD_MAX_BYTES`] and the bytes that were in the log queue.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may be logged ahead of the replay's progress: one to two seconds of typical events.
const LEAD_MAX_BYTES: u64 = 16 << 20;

/// Bytes replayed per byte that may be logged.
const REPLAYED_PER_LOGGED: u64 = 2;

/// Counts logged and replayed bytes, from the start to the end of the replay.
#[derive(Debug, Default)]
pub(super) struct ReplayThrottle {
    logged_bytes: AtomicU64,
    replayed_bytes: AtomicU64,
}

impl ReplayThrottle {
    /// Counts a new record, which the replay has still to reach.
    pub(super) fn note_logged(&self, bytes: usize) {
        self.logged_bytes.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
    }

    /// Counts a replayed record.
    pub(super) fn note_replayed(&self, bytes: usize) {
        self.replayed_bytes.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether the next record has to wait for the replay.
    pub(super) fn is_held(&self) -> bool {
        let replayed = self.replayed_bytes.load(Ordering::Relaxed);
        let lead = self.logged_bytes.load(Ordering::Relaxed);
        lead > LEAD_MAX_BYTES.saturating_add(replayed / REPLAYED_PER_LOGGED)
    }

    /// Logged bytes and replayed bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.logged_bytes.load(Ordering::Relaxed), self.replayed_bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAD_MAX_BYTES, ReplayThrottle};

    const RECORD: usize = 100_000;

    /// Goal: whatever senders do, the replay ends.
    #[test]
    fn senders_at_full_speed_do_not_outrun_the_replay() {
        let (replay_throttle, before) = (ReplayThrottle::default(), 1000);
        let mut waiting = before;
        let mut replayed = 0;
        while waiting > 0 {
            while !replay_throttle.is_held() {
                replay_throttle.note_logged(RECORD);
                waiting += 1;
            }
            replay_throttle.note_replayed(RECORD);
            waiting -= 1;
            replayed += 1;
        }
        let lead = usize::try_from(LEAD_MAX_BYTES).unwrap() / RECORD;
        assert!((2 * before..=2 * (before + lead + 2)).contains(&replayed), "{replayed}");
    }

    #[test]
    fn few_records_never_wait() {
        let replay_throttle = ReplayThrottle::default();
        replay_throttle.note_logged(usize::try_from(LEAD_MAX_BYTES).unwrap());
        assert!(!replay_throttle.is_held());
        replay_throttle.note_logged(1);
        assert!(replay_throttle.is_held());
        replay_throttle.note_replayed(1);
        assert!(replay_throttle.is_held());
        replay_throttle.note_replayed(1);
        assert!(!replay_throttle.is_held());
    }
}
