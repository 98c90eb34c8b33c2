//! Replay of the WAL at start: publishes the records that the tables or the identity store lack.
//!
//! New requests are accepted meanwhile. They are only logged, at a rate that lets the replay catch up
//! (`replay_throttle`), and replayed in turn. When the replay has caught up, it switches the publisher
//! to live under the publisher's lock, so no record is published twice or left out.
//!
//! Where another process writes the log, the replay does not end: it goes on with each new record ([`Tail`]).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::following::Following;
use crate::health::Health;
use crate::holes::Holes;
use crate::publish::{Missing, Mode, Publisher};
use crate::reread::Rereader;
use weir_base::tasks::{Pause, Shutdown};
use weir_event::id::{EventKey, ProjectId};
use weir_storage::log::LogReader;
use weir_storage::store::Store;
use weir_storage::wal::reader::Item;
use weir_storage::wal::{Damage, Sequence};

/// Time between two checks whether a flush has freed memtables.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(20);

/// Time between attempts to open a segment while the process has too many open files.
const WAIT_FOR_DESCRIPTOR: Duration = Duration::from_secs(1);

/// Time between attempts to mark the identity store as incomplete while it fails.
const WAIT_FOR_IDENTITIES: Duration = Duration::from_secs(1);

/// The end of a log that another process writes.
pub(super) struct Tail {
    pub(super) following: Following,
    /// Where the replay waits for new records.
    pub(super) runtime: Handle,
}

/// The replay thread.
pub(super) struct Replay {
    pub(super) reader: Box<dyn LogReader>,
    pub(super) publisher: Arc<Mutex<Publisher>>,
    pub(super) rereader: Rereader,
    pub(super) store: Store,
    /// All rows up to this sequence are in files.
    pub(super) flushed: Sequence,
    /// The identity store has applied everything up to this sequence.
    pub(super) derived: Sequence,
    pub(super) health: Arc<Health>,
    pub(super) shutdown: Shutdown,
    pub(super) holes: Holes,
    /// Whether the log goes on elsewhere.
    pub(super) tail: Option<Tail>,
}

impl Replay {
    /// Seeds the deduplication window with the keys that `recent` reads from files, then runs.
    pub(super) fn run_after(self, recent: impl FnOnce() -> Vec<(ProjectId, EventKey)>) {
        self.remember(recent().into_iter());
        self.run();
    }

    /// Replays until the end of the log is reached, then lets the log thread publish new records. Ends
    /// early at a record that cannot be published.
    pub(super) fn run(mut self) {
        let mut records = 0_u64;
        loop {
            let durable = self.publisher.lock().durable();
            match self.reader.next(durable) {
                Ok(Some(Item::Record { sequence, payload })) => {
                    records += 1;
                    if self.wait_for_room() == Pause::Cancelled {
                        return;
                    }
                    self.replay(sequence, payload);
                    if self.publisher.lock().mode == Mode::Stopped {
                        return self.lose_tail();
                    }
                }
                // The process that writes has these records; an image and files have them soon.
                Ok(Some(Item::Corrupt(corruption))) if self.tail.is_some() => {
                    let damage = corruption.damage;
                    tracing::warn!(%damage, "the log of another server cannot be followed");
                    return self.lose_tail();
                }
                Ok(Some(Item::Corrupt(corruption))) => {
                    let damage = corruption.damage;
                    self.holes.tell(corruption);
                    if self.mark(damage) == Pause::Cancelled {
                        return;
                    }
                }
                Ok(None) if self.tail.is_some() => {
                    if self.wait_for_more(durable) == Pause::Cancelled {
                        return;
                    }
                }
                Ok(None) => {
                    let mut publisher = self.publisher.lock();
                    if publisher.durable() == durable {
                        publisher.mode = Mode::Live;
                        break;
                    }
                }
                Err(error) if error.is_out_of_descriptors() => {
                    tracing::warn!(%error, "too many open files: the replay of the log waits");
                    if self.shutdown.pause_thread(WAIT_FOR_DESCRIPTOR) == Pause::Cancelled {
                        return;
                    }
                }
                Err(error) if self.tail.is_some() => {
                    tracing::warn!(%error, "the log cannot be followed any more");
                    return self.lose_tail();
                }
                Err(error) => {
                    // Going live now would leave out the later records. In this state a few more requests
                    // are logged, queries are rejected, and the operator sees the error.
                    tracing::error!(
                        %error,
                        "the replay of the log failed: queries are rejected until a restart; \
                         acknowledged events stay in the log"
                    );
                    return;
                }
            }
        }
        self.health.set_live();
        tracing::info!(records, "the log is replayed");
    }

    /// Waits until more than `known` is durable in a log that another process writes.
    fn wait_for_more(&self, known: Sequence) -> Pause {
        let Some(Tail { following, runtime }) = &self.tail else { return Pause::Elapsed };
        let mut durable = following.durable();
        runtime.block_on(async {
            tokio::select! {
                // The sender lives as long as the handle.
                _ = durable.wait_for(|durable| *durable > known) => Pause::Elapsed,
                () = self.shutdown.cancelled() => Pause::Cancelled,
            }
        })
    }

    /// Says that no more records are published, if another process writes the log.
    fn lose_tail(&self) {
        if let Some(tail) = &self.tail {
            tail.following.lose();
        }
    }

    /// Marks persons as incomplete before the projector goes beyond the loss; retries until it succeeds.
    fn mark(&self, damage: Damage) -> Pause {
        while let Err(error) = self.holes.mark(damage, self.derived) {
            // The projector may be recovering the store, or the disk may be full.
            tracing::warn!(%error, "cannot mark persons as incomplete yet; the replay waits");
            if self.shutdown.pause_thread(WAIT_FOR_IDENTITIES) == Pause::Cancelled {
                return Pause::Cancelled;
            }
        }
        Pause::Elapsed
    }

    /// Waits while the memtables are full; flushes go on during a replay.
    fn wait_for_room(&self) -> Pause {
        while self.store.is_full() {
            if self.shutdown.pause_thread(WAIT_FOR_ROOM) == Pause::Cancelled {
                return Pause::Cancelled;
            }
        }
        if self.shutdown.is_cancelled() { Pause::Cancelled } else { Pause::Elapsed }
    }

    fn replay(&self, sequence: Sequence, payload: Vec<u8>) {
        let missing = Missing { rows: sequence > self.flushed, persons: sequence > self.derived };
        if !missing.rows && !missing.persons {
            return;
        }
        let bytes = payload.len();
        let prepared = self.rereader.prepared(payload);
        let mut publisher = self.publisher.lock();
        match prepared {
            Ok(prepared) => publisher.publish(sequence, prepared, missing),
            Err(error) => publisher.stop(sequence, &error),
        }
        drop(publisher);
        self.health.replay_throttle().note_replayed(bytes);
    }

    /// Seeds the deduplication window with keys from files; called before [`Replay::run`].
    pub(super) fn remember(&self, keys: impl Iterator<Item = (ProjectId, EventKey)>) {
        let mut publisher = self.publisher.lock();
        for (project, key) in keys {
            publisher.window.insert(project, key);
        }
    }
}

/// Where a replay begins: after the last sequence that both files and persons have, or at the oldest
/// record of the log. The log may have been truncated up to what is in files. If the identity store
/// lacks some of that, it was removed or is an older copy, and only the rest of the log can be applied.
/// If files lack some of it, those events were reported and counted when the log was opened.
pub(super) fn begins_after(
    before_oldest: Sequence,
    flushed: Sequence,
    derived: Sequence,
) -> Sequence {
    if derived < before_oldest {
        tracing::error!(
            wanted = derived.next().0,
            oldest = before_oldest.next().0,
            "the identity store ends before the oldest record of the log: changes of persons in \
             between are lost; restore the directory identity from a backup"
        );
    }
    derived.min(flushed).max(before_oldest)
}

#[cfg(test)]
mod tests {
    use super::begins_after;
    use weir_storage::wal::Sequence;

    /// By the definition: no record that files or persons lack is left out, unless it was truncated.
    #[test]
    fn a_replay_begins_where_something_is_lacking() {
        // Before the oldest record of the log; in files; in the identity store; expected begin.
        let cases = [
            (0, 0, 0, 0),
            (0, 40, 50, 40),
            (30, 40, 50, 40),
            (30, 40, 35, 35),
            // The identity store was removed: what the log has.
            (30, 40, 0, 30),
            // Segments are missing that nothing else has: the rest of the log.
            (60, 40, 50, 60),
            (60, 40, 0, 60),
            (60, 0, 60, 60),
        ];
        for (before_oldest, flushed, derived, expected) in cases {
            let given = [before_oldest, flushed, derived].map(Sequence);
            let [before_oldest, flushed, derived] = given;
            let begins = begins_after(before_oldest, flushed, derived);
            assert_eq!(begins, Sequence(expected), "{given:?}");
        }
    }
}
