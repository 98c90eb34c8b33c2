//! Whether the server can take events: facts set by whoever finds them, read at admission and by
//! those who ask whether the server is ready.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use crate::ingest::pace::Pace;

/// What keeps capture from accepting.
#[derive(Debug, Default)]
pub struct Health {
    identity_failed: AtomicBool,
    log_failed: AtomicBool,
    publication_failed: AtomicBool,
    disk_low: AtomicBool,
    /// The log could not begin a segment when it was to take the last record.
    segment_refused: AtomicBool,
    /// A request waited for room as long as requests do, and there was none.
    waited_in_vain: AtomicBool,
    /// How far new records are ahead of the replay.
    pace: Pace,
    /// Whether the log of before the start is published.
    live: watch::Sender<bool>,
}

impl Health {
    /// The identity store failed: persons do not follow the log until it is open again.
    pub fn fail_identity(&self) {
        self.identity_failed.store(true, Ordering::Relaxed);
    }

    /// The identity store is open again and has followed the log.
    pub fn heal_identity(&self) {
        self.identity_failed.store(false, Ordering::Relaxed);
    }

    /// Whether the identity store has failed and is not open again.
    pub fn is_identity_failed(&self) -> bool {
        self.identity_failed.load(Ordering::Relaxed)
    }

    /// A write or a sync of the log failed; only a restart helps.
    pub fn fail_log(&self) {
        self.log_failed.store(true, Ordering::Relaxed);
    }

    /// Whether the log failed.
    pub fn is_log_failed(&self) -> bool {
        self.log_failed.load(Ordering::Relaxed)
    }

    /// A record of the log cannot be published; only a restart helps, and a program that can.
    pub fn fail_publication(&self) {
        self.publication_failed.store(true, Ordering::Relaxed);
    }

    /// Whether a record of the log could not be published.
    pub fn is_publication_failed(&self) -> bool {
        self.publication_failed.load(Ordering::Relaxed)
    }

    /// Notes whether the disk is nearly full.
    pub fn set_disk_low(&self, low: bool) {
        if self.disk_low.swap(low, Ordering::Relaxed) != low {
            match low {
                true => tracing::warn!("disk space is low: capture answers 503"),
                false => tracing::info!("disk space is enough again"),
            }
        }
    }

    /// Whether the disk is nearly full.
    pub fn is_disk_low(&self) -> bool {
        self.disk_low.load(Ordering::Relaxed)
    }

    /// Notes whether the log could not begin a segment.
    pub fn set_segment_refused(&self, refused: bool) {
        self.segment_refused.store(refused, Ordering::Relaxed);
    }

    /// Whether the log could not begin a segment when it was to take the last record.
    pub fn is_segment_refused(&self) -> bool {
        self.segment_refused.load(Ordering::Relaxed)
    }

    /// Notes that a request waited for room in vain, or that there is room.
    pub(super) fn set_waited_in_vain(&self, in_vain: bool) {
        self.waited_in_vain.store(in_vain, Ordering::Relaxed);
    }

    /// Whether a request waited for room in vain, and none was seen since.
    pub(super) fn has_waited_in_vain(&self) -> bool {
        self.waited_in_vain.load(Ordering::Relaxed)
    }

    /// Notes that all records of before the start are published.
    pub fn set_live(&self) {
        self.live.send_replace(true);
    }

    /// Whether records of before the start are still being published.
    pub fn is_replaying(&self) -> bool {
        !*self.live.borrow()
    }

    /// How far new records are ahead of the replay, while there is one.
    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Tells when the replay is over.
    pub fn live(&self) -> watch::Receiver<bool> {
        self.live.subscribe()
    }
}
