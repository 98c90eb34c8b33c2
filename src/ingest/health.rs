//! Health of ingestion: conditions under which the server rejects events, read at admission and by
//! readiness checks.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::replay_throttle::ReplayThrottle;

/// Conditions under which capture rejects events.
#[derive(Debug, Default)]
pub struct Health {
    identity_failed: AtomicBool,
    log_failed: AtomicBool,
    publication_failed: AtomicBool,
    /// Whether another server has taken over what this one wrote.
    fenced: watch::Sender<bool>,
    disk_low: AtomicBool,
    /// The last append failed because the log could not begin a segment.
    segment_refused: AtomicBool,
    /// A request waited for the full time without being admitted.
    waited_in_vain: AtomicBool,
    /// How far new records are ahead of the replay.
    replay_throttle: ReplayThrottle,
    /// Whether all records that were in the log at start are published.
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

    /// Another server has taken over the log or the tables: this one is at its end.
    pub fn fence(&self) {
        self.fenced.send_if_modified(|fenced| !std::mem::replace(fenced, true));
    }

    /// Whether another server has taken over.
    pub fn is_fenced(&self) -> bool {
        *self.fenced.borrow()
    }

    /// Watch channel that becomes `true` when another server takes over.
    pub fn fenced(&self) -> watch::Receiver<bool> {
        self.fenced.subscribe()
    }

    /// A record of the log cannot be published. Only a restart with a program that can publish it helps.
    pub fn fail_publication(&self) {
        self.publication_failed.store(true, Ordering::Relaxed);
    }

    /// Whether a record of the log could not be published.
    pub fn is_publication_failed(&self) -> bool {
        self.publication_failed.load(Ordering::Relaxed)
    }

    /// Records whether the disk is nearly full.
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

    /// Records whether the log could not begin a segment.
    pub fn set_segment_refused(&self, refused: bool) {
        self.segment_refused.store(refused, Ordering::Relaxed);
    }

    /// Whether the last append failed because the log could not begin a segment.
    pub fn is_segment_refused(&self) -> bool {
        self.segment_refused.load(Ordering::Relaxed)
    }

    /// Records that a request waited in vain for admission, or that requests are admitted again.
    pub(super) fn set_waited_in_vain(&self, in_vain: bool) {
        self.waited_in_vain.store(in_vain, Ordering::Relaxed);
    }

    /// Whether a request waited in vain for admission, and none was admitted since.
    pub(super) fn has_waited_in_vain(&self) -> bool {
        self.waited_in_vain.load(Ordering::Relaxed)
    }

    /// Records that the replay has caught up.
    pub fn set_live(&self) {
        self.live.send_replace(true);
    }

    /// Whether the replay is still running.
    pub fn is_replaying(&self) -> bool {
        !*self.live.borrow()
    }

    /// How far new records are ahead of the replay; meaningful during the replay.
    pub(super) fn replay_throttle(&self) -> &ReplayThrottle {
        &self.replay_throttle
    }

    /// Watch channel that becomes `true` when the replay has caught up.
    pub fn live(&self) -> watch::Receiver<bool> {
        self.live.subscribe()
    }
}
