//! What happens to a record once it is durable, in log order: retries are dropped, rows become
//! visible, and what the events say about persons goes to the deriver. [`Publisher`] is behind one
//! lock, taken by the log thread for live records and by the replay for those of before.
//!
//! # What cannot be published
//!
//! A record that was acknowledged and cannot be published is a bug, or of a newer program. Nothing
//! behind it is published either ([`Mode::Stopped`]), and capture takes nothing: files and persons
//! thus never reach beyond it, the log is not cut over it, and a program that can read it will,
//! after a restart. Answers go on, as of the record before it.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::watch;

use crate::identity::change::Record;
use crate::ingest::backlog::Backlog;
use crate::ingest::dedup::Window;
use crate::ingest::derive::Derivation;
use crate::ingest::health::Health;
use crate::ingest::prepare::Prepared;
use crate::storage::rows::Rows;
use crate::storage::store::Store;
use crate::storage::wal::Sequence;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::PlaceLabels;

/// Memory of the rows of records that wait to be derived. What they say of persons comes on top, and is
/// about as much.
const BACKLOG_MAX_BYTES: usize = 64 << 20;

/// Whether new records are published as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// New records are only logged; the replay will come to them.
    CatchingUp,
    /// New records are published by the log thread.
    Live,
    /// Nothing is published any more: a record could not be.
    Stopped,
}

/// The receiving end of the road.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) mode: Mode,
    pub(super) window: Window,
    /// Everything up to here is synced. Changes only under this lock.
    pub(super) durable: Sequence,
    store: Store,
    derivations: mpsc::Sender<Derivation>,
    backlog: Backlog,
    published: watch::Sender<Sequence>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

/// Which effects a record still has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Its rows are in no file yet.
    pub(super) rows: bool,
    /// Its effects on persons are not in the identity store yet.
    pub(super) persons: bool,
}

impl Publisher {
    pub(super) fn new(
        store: Store,
        window: Window,
        durable: Sequence,
        derivations: mpsc::Sender<Derivation>,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> (Arc<Mutex<Self>>, watch::Receiver<Sequence>) {
        let (published, watch) = watch::channel(Sequence(0));
        let mode = Mode::CatchingUp;
        let backlog = Backlog::new(BACKLOG_MAX_BYTES);
        let publisher =
            Self { mode, window, durable, store, derivations, backlog, published, metrics, health };
        (Arc::new(Mutex::new(publisher)), watch)
    }

    /// Publishes the record at `sequence`, or stops. Blocks while the deriver is far behind.
    pub(super) fn publish(&mut self, sequence: Sequence, prepared: Prepared, missing: Missing) {
        let (received_at, memory_bytes) = (prepared.received_at, prepared.memory_bytes);
        let body_bytes = prepared.body_bytes;
        let Prepared { project, rows, columns, keys, ops, observed, by, .. } = prepared;
        let mut rows = Rows { len: rows, columns, memory_bytes, runs: Vec::new() };
        if missing.rows {
            if let Some(new) = self.window.insert_all(project, &keys) {
                let before = rows.len;
                match rows.filtered(&new) {
                    Ok(filtered) => rows = filtered,
                    Err(error) => return self.stop(sequence, &error),
                }
                let duplicates = u64::try_from(before - rows.len).unwrap_or(0);
                self.metrics.events_duplicate.inc_by(duplicates);
            }
            if let Err(error) = self.store.insert(rows, sequence) {
                return self.stop(sequence, &error);
            }
        }
        if missing.persons {
            let record = Record { sequence: sequence.0, project, ops };
            let room = self.backlog.room(body_bytes);
            let derivation = Derivation { record, received_at, observed, by, room };
            // Fails only when the deriver is gone, and then the process is going down.
            let _ = self.derivations.blocking_send(derivation);
        }
        self.published.send_replace(sequence);
    }

    /// Publishes neither the record at `sequence` nor any behind it.
    pub(super) fn stop(&mut self, sequence: Sequence, error: &dyn Display) {
        self.mode = Mode::Stopped;
        self.health.fail_publication();
        self.metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).inc();
        tracing::error!(
            sequence = sequence.0,
            %error,
            "a durable record cannot be published: capture stops, and the record and all behind it \
             stay in the log until a program is started that can publish it"
        );
    }
}
