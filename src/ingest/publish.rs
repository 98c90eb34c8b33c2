//! Publication of durable records, in log order: duplicates are dropped, rows become visible, and
//! effects on persons and definitions go to the projector. [`Publisher`] is behind one lock, taken by
//! the log thread for live records and by the replay for those that were in the log at start.
//!
//! # What cannot be published
//!
//! An acknowledged record that cannot be published is a bug, or was written by a newer program. No
//! later record is published either ([`Mode::Stopped`]), and capture rejects all events. So files and
//! persons never reach beyond that record, and the log is not truncated over it. After a restart a
//! program that can read the record publishes it. Queries continue, as of the record before it.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::backlog::Backlog;
use crate::dedup::Window;
use crate::health::Health;
use crate::prepared::Prepared;
use crate::projector::Projection;
use weir_base::telemetry::metrics::{Metrics, PlaceLabels};
use weir_event::id::ProjectId;
use weir_event::schema::PROMOTED;
use weir_identity::change::Record;
use weir_progress::Latest;
use weir_storage::exact::ExactColumns;
use weir_storage::rows::Rows;
use weir_storage::store::Store;
use weir_storage::wal::Sequence;

/// Memory of the ops and definitions that wait for the projector. A record that needs more waits until
/// it is alone.
const BACKLOG_MAX_BYTES: usize = 64 << 20;

/// Whether the log thread publishes new records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// New records are only logged; the replay publishes them in turn.
    CatchingUp,
    /// New records are published by the log thread.
    Live,
    /// Nothing is published any more: a record could not be published.
    Stopped,
}

/// The end of the write path: publishes durable records.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) mode: Mode,
    pub(super) window: Window,
    /// Highest synced sequence. Changes only under this lock, but where another process writes the log.
    durable: watch::Sender<Sequence>,
    store: Store,
    projections: mpsc::Sender<Projection>,
    backlog: Backlog,
    published: watch::Sender<Sequence>,
    pub(super) latest: Latest,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

/// How far publication is.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// The newest published record.
    pub(super) sequence: watch::Receiver<Sequence>,
    /// The newest record that is durable.
    pub(super) durable: watch::Receiver<Sequence>,
    /// The newest record of each project.
    pub(super) latest: Latest,
}

/// How far a log is when it is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogExtent {
    /// Records up to here are in files and in the identity store.
    pub(super) published: Sequence,
    /// The last record.
    pub(super) durable: Sequence,
}

/// Which effects of a record are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Its rows are not in files yet.
    pub(super) rows: bool,
    /// Its effects on persons are not in the identity store yet.
    pub(super) persons: bool,
}

impl Publisher {
    pub(super) fn new(
        store: Store,
        window: Window,
        LogExtent { published, durable }: LogExtent,
        projections: mpsc::Sender<Projection>,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> (Arc<Mutex<Self>>, Published) {
        let (sender, sequence) = watch::channel(published);
        let (durable, seen) = watch::channel(durable);
        let published = Published { sequence, durable: seen, latest: Latest::default() };
        let mode = Mode::CatchingUp;
        let backlog = Backlog::new(BACKLOG_MAX_BYTES);
        let publisher = Self {
            mode,
            window,
            durable,
            store,
            projections,
            backlog,
            published: sender,
            latest: published.latest.clone(),
            metrics,
            health,
        };
        (Arc::new(Mutex::new(publisher)), published)
    }

    /// The highest synced sequence.
    pub(super) fn durable(&self) -> Sequence {
        *self.durable.borrow()
    }

    /// Where the highest synced sequence is set, by those who do not publish.
    pub(super) fn durable_sender(&self) -> watch::Sender<Sequence> {
        self.durable.clone()
    }

    /// Notes that records are synced up to `sequence`. To be called before they are acknowledged.
    pub(super) fn note_durable(&mut self, sequence: Sequence) {
        self.durable.send_replace(sequence);
    }

    /// Notes a durable record of a project that the replay publishes in its turn. To be called before it is acknowledged:
    /// an answer that was kept before lacks it.
    pub(super) fn note_logged(&self, project: ProjectId, sequence: Sequence) {
        self.latest.note(project.0, sequence);
    }

    /// Publishes the record at `sequence`, or stops. Blocks while the projector is far behind.
    pub(super) fn publish(&mut self, sequence: Sequence, prepared: Prepared, missing: Missing) {
        let (received_at, memory_bytes) = (prepared.received_at, prepared.memory_bytes);
        let said_bytes = prepared.said_bytes;
        let Prepared { project, rows, columns, keys, ops, observed, by, mismatched, .. } = prepared;
        let exact = ExactColumns::of(PROMOTED.len(), mismatched);
        let mut rows = Rows { len: rows, columns, memory_bytes, runs: Vec::new(), exact };
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
        // While readers wait for all that is durable, they wait for this record, and must not take an answer without it.
        let is_waited_for = self.mode == Mode::CatchingUp;
        if is_waited_for {
            self.latest.note(project.0, sequence);
        }
        if missing.persons {
            let record = Record { sequence: sequence.0, project, ops };
            let room = self.backlog.room(said_bytes);
            let projection = Projection { record, received_at, observed, by, room };
            // Fails only if the projector has ended, and then the process is shutting down.
            let _ = self.projections.blocking_send(projection);
        }
        self.published.send_replace(sequence);
        if !is_waited_for {
            self.latest.note(project.0, sequence);
        }
    }

    /// Stops publication before the record at `sequence`.
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
