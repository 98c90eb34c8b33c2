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
use crate::geoip::Places;
use crate::ingest::decoding::Decoding;
use crate::ingest::envelope::Envelope;
use crate::ingest::health::Health;
use crate::ingest::operation::Operation;
use crate::ingest::prepare::Prepared;
use crate::ingest::prepare::ProjectFacts;
use crate::ingest::publish::Missing;
use crate::ingest::publish::Mode;
use crate::ingest::publish::Publisher;
use crate::metadata::Metadata;
use crate::storage::store::Store;
use crate::storage::wal::Sequence;
use crate::storage::wal::reader::Item;
use crate::storage::wal::reader::Reader;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::PlaceLabels;

/// Time between looks at whether a flush has made room.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(20);

/// Time between tries to open a segment while the process has too many open files.
const WAIT_FOR_DESCRIPTOR: Duration = Duration::from_secs(1);

/// The thread that replays.
pub(super) struct Replay {
    pub(super) reader: Reader,
    pub(super) publisher: Arc<Mutex<Publisher>>,
    pub(super) decoding: Arc<Decoding>,
    pub(super) metadata: Metadata,
    pub(super) store: Store,
    /// Everything up to here is in files.
    pub(super) flushed: Sequence,
    /// Everything up to here is in the identity store.
    pub(super) derived: Sequence,
    pub(super) health: Arc<Health>,
    pub(super) shutdown: Shutdown,
    pub(super) metrics: Arc<Metrics>,
}

impl Replay {
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
                    self.metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).inc();
                    tracing::error!(?corruption, "damaged place in the log");
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
        // Its checksum is right, so it is not damaged: another program can read it.
        let prepared = self.prepared(payload);
        let mut publisher = self.publisher.lock();
        match prepared {
            Ok(prepared) => publisher.publish(sequence, prepared, missing),
            Err(error) => publisher.stop(sequence, &error),
        }
        drop(publisher);
        self.health.pace().note_replayed(bytes);
    }

    fn prepared(&self, payload: Vec<u8>) -> Result<Prepared, String> {
        if Operation::is_in(&payload) {
            let operation = Operation::decode(&payload);
            return operation.and_then(Operation::prepare).map_err(|error| error.to_string());
        }
        let envelope = Envelope::decode(payload).map_err(|error| error.to_string())?;
        let facts = ProjectFacts {
            anonymize_ips: envelope.anonymize_ips,
            places: Places::Found(Arc::new(envelope.places.into_iter().collect())),
            ..self.decoding.facts(&self.metadata.snapshot(), envelope.project)
        };
        let project = |_: &str| Some(facts.clone());
        self.decoding
            .prepare_again(envelope.body, &envelope.hints, &envelope.received, &project)
            .map_err(|error| error.to_string())
    }

    /// Seeds the window of recent events from files; called before [`Replay::run`].
    pub(super) fn remember(&self, keys: impl Iterator<Item = (ProjectId, EventKey)>) {
        let mut publisher = self.publisher.lock();
        for (project, key) in keys {
            publisher.window.insert(project, key);
        }
    }
}
