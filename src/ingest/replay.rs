//! The replay at start: what the log holds and the tables or the identity store do not have yet.
//!
//! New requests are accepted meanwhile; they are only logged, no faster than lets the replay come to
//! an end (`pace`), and it comes to them in turn. When it has caught up, it switches the publisher to
//! live under the publisher's lock, so no record is published twice or left out.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::event::id::EventKey;
use crate::event::id::ProjectId;
use crate::ingest::health::Health;
use crate::ingest::holes::Holes;
use crate::ingest::publish::Missing;
use crate::ingest::publish::Mode;
use crate::ingest::publish::Publisher;
use crate::ingest::reread::Rereader;
use crate::storage::store::Store;
use crate::storage::wal::Damage;
use crate::storage::wal::Sequence;
use crate::storage::wal::reader::Item;
use crate::storage::wal::reader::Reader;
use crate::tasks::Pause;
use crate::tasks::Shutdown;

/// Time between looks at whether a flush has made room.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(20);

/// Time between tries to open a segment while the process has too many open files.
const WAIT_FOR_DESCRIPTOR: Duration = Duration::from_secs(1);

/// Time between tries to note something in an identity store that fails.
const WAIT_FOR_IDENTITIES: Duration = Duration::from_secs(1);

/// The thread that replays.
pub(super) struct Replay {
    pub(super) reader: Reader,
    pub(super) publisher: Arc<Mutex<Publisher>>,
    pub(super) rereader: Rereader,
    pub(super) store: Store,
    /// Everything up to here is in files.
    pub(super) flushed: Sequence,
    /// Everything up to here is in the identity store.
    pub(super) derived: Sequence,
    pub(super) health: Arc<Health>,
    pub(super) shutdown: Shutdown,
    pub(super) holes: Holes,
}

impl Replay {
    /// As [`Replay::run`], once the window of recent events has those that `recent` reads from files.
    pub(super) fn run_after(self, recent: impl FnOnce() -> Vec<(ProjectId, EventKey)>) {
        self.remember(recent().into_iter());
        self.run();
    }

    /// Replays until the log's end is reached, then lets new records be published as they come. Ends
    /// before it at a record that cannot be published.
    pub(super) fn run(mut self) {
        let mut records = 0_u64;
        loop {
            let durable = self.publisher.lock().durable;
            match self.reader.next(durable) {
                Ok(Some(Item::Record { sequence, payload })) => {
                    records += 1;
                    if self.wait_for_room() == Pause::Cancelled {
                        return;
                    }
                    self.replay(sequence, payload);
                    if self.publisher.lock().mode == Mode::Stopped {
                        return;
                    }
                }
                Ok(Some(Item::Corrupt(corruption))) => {
                    let damage = corruption.damage;
                    self.holes.tell(corruption);
                    if self.mark(damage) == Pause::Cancelled {
                        return;
                    }
                }
                Ok(None) => {
                    let mut publisher = self.publisher.lock();
                    if publisher.durable == durable {
                        publisher.mode = Mode::Live;
                        break;
                    }
                }
                Err(error) if error.is_out_of_descriptors() => {
                    tracing::warn!(%error, "the replay of the log waits for a descriptor");
                    if self.shutdown.pause_thread(WAIT_FOR_DESCRIPTOR) == Pause::Cancelled {
                        return;
                    }
                }
                Err(error) => {
                    // Going live now would leave out what comes after; stay as we are: a few more
                    // requests are logged, questions are refused, and the operator is told.
                    tracing::error!(%error, "the replay of the log failed; restart to try again");
                    return;
                }
            }
        }
        self.health.set_live();
        tracing::info!(records, "the log is replayed");
    }

    /// Notes what persons lack, before they go on behind it.
    fn mark(&self, damage: Damage) -> Pause {
        while let Err(error) = self.holes.mark(damage, self.derived) {
            // It may be being opened again, or the disk be full.
            tracing::warn!(%error, "cannot note that persons are incomplete");
            if self.shutdown.pause_thread(WAIT_FOR_IDENTITIES) == Pause::Cancelled {
                return Pause::Cancelled;
            }
        }
        Pause::Elapsed
    }

    /// Room in the memtables is made by flushes, which go on during a replay.
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
        self.health.pace().note_replayed(bytes);
    }

    /// Seeds the window of recent events from files; called before [`Replay::run`].
    pub(super) fn remember(&self, keys: impl Iterator<Item = (ProjectId, EventKey)>) {
        let mut publisher = self.publisher.lock();
        for (project, key) in keys {
            publisher.window.insert(project, key);
        }
    }
}

/// Where a replay begins: behind what files and persons both have, or where the log begins. The log may have been
/// cut up to what is in files; if the identity store lacks some of that, it was removed or is older, and what
/// the log still has is the best there is. If files lack some of it, those events were named and counted when the
/// log was opened.
pub(super) fn begins_after(
    before_oldest: Sequence,
    flushed: Sequence,
    derived: Sequence,
) -> Sequence {
    if derived < before_oldest {
        tracing::error!(
            wanted = derived.next().0,
            oldest = before_oldest.next().0,
            "the identity store is older than the log: what it lacks of the persons before is lost; \
             restore the directory identity from a backup"
        );
    }
    derived.min(flushed).max(before_oldest)
}

#[cfg(test)]
mod tests {
    use super::begins_after;
    use crate::storage::wal::Sequence;

    /// By the definition: no record that files or persons lack is left out, unless it was cut.
    #[test]
    fn a_replay_begins_where_something_is_lacking() {
        // Before the oldest record of the log; in files; in the identity store; where to begin.
        let cases = [
            (0, 0, 0, 0),
            (0, 40, 50, 40),
            (30, 40, 50, 40),
            (30, 40, 35, 35),
            // The identity store is gone: what the log has.
            (30, 40, 0, 30),
            // Segments are gone that nothing else has: what the log still has.
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
