//! Group commit: one thread appends all requests to the log.
//!
//! It takes the requests that queued up during the last sync, appends them, syncs once, publishes
//! each record in order and wakes every waiter. One sync of a few milliseconds serves all requests
//! that arrived in the meantime, so throughput does not depend on the latency of the disk.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::budget::MemoryPermit;
use crate::disk_room::DiskRoom;
use crate::error::IngestError;
use crate::health::Health;
use crate::prepare::error::PrepareError;
use crate::prepared::Prepared;
use crate::publish::{Missing, Mode, Publisher};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::{Pause, TaskError, Tasks};
use weir_base::telemetry::metrics::Metrics;
use weir_base::telemetry::repeats::Repeats;
use weir_event::id::ProjectId;
use weir_event::key_kind::KeyKind;
use weir_identity::change::{Op, OpKind};
use weir_metadata::Metadata;
use weir_storage::log::LogWriter;
use weir_storage::wal::files::WalFiles;
use weir_storage::wal::{Sequence, WalError};

/// Shortest time between two log lines about records that the WAL rejected for the same reason.
pub(super) const REFUSALS_PAUSE: Duration = Duration::from_secs(10);

/// Bytes that are appended before a sync; bounds the duration of one sync.
const GROUP_MAX_BYTES: usize = 16 << 20;

/// Time between two checks whether the spare segment is used up. At full load a segment lasts for
/// some seconds.
const STOCK_PAUSE: Duration = Duration::from_secs(1);

/// Time before the next attempt after a spare could not be created, so as not to fill a full disk
/// again and again.
const STOCK_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// Average bytes per sync up to which a spare is created. Writing a segment beforehand costs 3 us of
/// CPU time per KiB and saves 70 us per sync.
const STOCK_SYNC_MAX_BYTES: u64 = 32 << 10;

/// Pause between two writes to the spare, in which the disk is free for the WAL.
const STOCK_STEP_PAUSE: Duration = Duration::from_millis(10);

/// A request in the log thread's queue.
#[derive(Debug)]
pub(super) struct Commit {
    /// Head of the record.
    pub(super) head: Vec<u8>,
    /// The body, as the record keeps it.
    pub(super) body: Bytes,
    /// Its columns, to be published after the sync.
    pub(super) prepared: Prepared,
    /// Its memory permit; released after publication.
    pub(super) permit: MemoryPermit,
    /// Receives the log sequence of the record, or the failure.
    pub(super) reply: oneshot::Sender<Result<Sequence, LogFailed>>,
}

/// Why the WAL rejected the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum LogFailed {
    /// A write or a sync failed: nothing is acknowledged until a restart.
    #[error("the log failed and takes nothing until a restart")]
    Poisoned,
    /// The log cannot begin a segment. The next attempt may succeed.
    #[error("the log cannot begin another segment")]
    NoSegment,
    /// The log cannot begin a segment, because the disk, or the quota of the user on it, is full.
    #[error("the disk is full")]
    NoRoom,
    /// Another server has taken the log over.
    #[error("another server has taken the log over")]
    Fenced,
    /// The disk is nearly full. The rest is reserved for files other than the log.
    #[error("the disk is nearly full")]
    Full,
    /// The project of the record was deleted since the request was read.
    #[error("the project is deleted")]
    ProjectDeleted,
    /// The record exceeds the size limit of a record. Smaller ones are accepted.
    #[error("the record is too large for the log")]
    TooLarge,
}

impl From<LogFailed> for IngestError {
    fn from(failed: LogFailed) -> Self {
        match failed {
            LogFailed::NoSegment => {
                Self::Overloaded("the log cannot begin another segment; see the server's log")
            }
            LogFailed::NoRoom => Self::Overloaded("the disk is full"),
            LogFailed::Full => Self::Overloaded("the disk is nearly full"),
            LogFailed::TooLarge => Self::Prepare(PrepareError::TooLarge),
            LogFailed::ProjectDeleted => {
                Self::Prepare(PrepareError::UnknownToken(KeyKind::Project))
            }
            LogFailed::Poisoned => Self::Unavailable("the log failed; restart the server"),
            LogFailed::Fenced => Self::Unavailable("another server has taken over; send it there"),
        }
    }
}

/// The thread that owns the log.
#[derive(Debug)]
pub(super) struct LogThread {
    pub(super) writer: Box<dyn LogWriter>,
    pub(super) inbox: mpsc::Receiver<Commit>,
    pub(super) publisher: Arc<Mutex<Publisher>>,
    pub(super) health: Arc<Health>,
    pub(super) room: DiskRoom,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    /// Shortest time between the beginnings of two syncs.
    pub(super) linger: Duration,
    /// Rejected records by reason, for rate-limited log lines.
    pub(super) refusals: Repeats<LogFailed>,
    /// Which projects are deleted.
    pub(super) deleted: DeletedProjects,
}

/// Tells which projects are deleted. A deletion is known here before its record is sent to the log, so that no record of the
/// project comes behind that.
#[derive(Clone)]
pub(super) struct DeletedProjects(pub(super) Arc<dyn Fn(ProjectId) -> bool + Send + Sync>);

impl std::fmt::Debug for DeletedProjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeletedProjects").finish_non_exhaustive()
    }
}

impl DeletedProjects {
    /// Those of the metadata.
    pub(super) fn of(metadata: Metadata) -> Self {
        Self(Arc::new(move |project| metadata.snapshot().is_deleted(project)))
    }

    /// Whether the record must not be logged.
    fn refuses(&self, prepared: &Prepared) -> bool {
        let is_deletion = |op: &Op| matches!(op.kind, OpKind::DeleteProject);
        (self.0)(prepared.project) && !prepared.ops.iter().any(is_deletion)
    }
}

impl LogThread {
    /// Commits until every sender is gone.
    pub(super) fn run(mut self) {
        while let Some(first) = self.inbox.blocking_recv() {
            let began = self.clock.monotonic();
            let group = self.gather(first);
            self.commit(group);
            let took = self.clock.monotonic().saturating_sub(began);
            if let Some(rest) = self.linger.checked_sub(took).filter(|rest| !rest.is_zero()) {
                std::thread::sleep(rest);
            }
        }
    }

    fn gather(&mut self, first: Commit) -> Vec<Commit> {
        let mut bytes = first.body.len();
        let mut group = vec![first];
        while bytes < GROUP_MAX_BYTES {
            let Ok(next) = self.inbox.try_recv() else { break };
            bytes += next.body.len();
            group.push(next);
        }
        group
    }

    fn commit(&mut self, group: Vec<Commit>) {
        if !self.room.is_enough() {
            return refuse_all(group, LogFailed::Full);
        }
        let mut appended = Vec::with_capacity(group.len());
        for commit in group {
            if self.deleted.refuses(&commit.prepared) {
                refuse_all(vec![commit], LogFailed::ProjectDeleted);
                continue;
            }
            match self.writer.append(&[&commit.head, &commit.body]) {
                Ok(sequence) => {
                    self.health.set_segment_refused(false);
                    appended.push((sequence, commit));
                }
                Err(error) => self.refuse(vec![commit], &error),
            }
        }
        let Some((last, _)) = appended.last() else { return };
        let last = *last;
        let began = self.clock.monotonic();
        let synced = self.writer.sync();
        let took = self.clock.monotonic().saturating_sub(began);
        self.metrics.wal_sync_seconds.observe(took.as_secs_f64());
        if let Err(error) = synced {
            return self.refuse(appended.into_iter().map(|(_, commit)| commit).collect(), &error);
        }
        let mut publisher = self.publisher.lock();
        publisher.note_durable(last);
        for (sequence, commit) in appended {
            // Read for each record: publishing one may stop publication.
            match publisher.mode {
                Mode::Live => {
                    let all = Missing { rows: true, persons: true };
                    publisher.publish(sequence, commit.prepared, all);
                }
                Mode::CatchingUp => {
                    publisher.note_logged(commit.prepared.project, sequence);
                    self.health
                        .replay_throttle()
                        .note_logged(commit.head.len() + commit.body.len());
                }
                Mode::Stopped => {}
            }
            drop(commit.permit);
            // A client that hung up does not wait; its events are stored nevertheless.
            let _ = commit.reply.send(Ok(sequence));
        }
    }

    fn refuse(&self, commits: Vec<Commit>, error: &WalError) {
        let failed = match error {
            WalError::NoSegment { source, .. } => {
                self.health.set_segment_refused(true);
                match source.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => LogFailed::NoRoom,
                    _ => LogFailed::NoSegment,
                }
            }
            WalError::TooLarge { .. } => LogFailed::TooLarge,
            WalError::Fenced => {
                self.health.fence();
                LogFailed::Fenced
            }
            _ => {
                self.metrics.wal_poisoned.set(1);
                self.health.fail_log();
                LogFailed::Poisoned
            }
        };
        let (requests, now) = (u64::try_from(commits.len()).unwrap_or(0), self.clock.monotonic());
        if let Some(requests) = self.refusals.count(failed, requests, now) {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, requests, "the log refused records; nothing of them is stored");
        }
        refuse_all(commits, failed);
    }
}

fn refuse_all(commits: Vec<Commit>, failed: LogFailed) {
    for commit in commits {
        let _ = commit.reply.send(Err(failed));
    }
}

/// Keeps a spare WAL segment ready until shutdown, on a background thread.
///
/// # Errors
///
/// The operating system refuses the thread.
pub(super) fn keep_stock(
    tasks: &Tasks,
    files: WalFiles,
    config: &Config,
    health: Arc<Health>,
) -> Result<(), TaskError> {
    let segment_bytes = config.storage.wal_segment_max_bytes.as_u64();
    let stock = Stock { files, segment_bytes, health };
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_background_thread("log-stock", move || {
        stock.keep(&mut |pause| shutdown.pause_thread(pause) == Pause::Elapsed);
    })
}

/// Creates the spare segment.
#[derive(Debug)]
struct Stock {
    files: WalFiles,
    segment_bytes: u64,
    health: Arc<Health>,
}

impl Stock {
    /// Creates a spare whenever there is none and it saves time. `goes_on_after` waits for a duration and
    /// returns whether to continue.
    fn keep(&self, goes_on_after: &mut dyn FnMut(Duration) -> bool) {
        let mut pause = STOCK_PAUSE;
        while goes_on_after(pause) {
            pause = STOCK_PAUSE;
            if self.health.is_disk_low() {
                continue;
            }
            let mut goes_on = || goes_on_after(STOCK_STEP_PAUSE);
            if self.health.is_segment_refused() {
                // Without a request no append would notice that the log can begin a segment again.
                let prepared = self.files.prepare_segment(self.segment_bytes, &mut goes_on);
                self.health.set_segment_refused(!prepared.unwrap_or(false));
                continue;
            }
            let bytes = self.files.bytes_per_sync();
            if bytes.is_none_or(|bytes| bytes > STOCK_SYNC_MAX_BYTES) {
                continue;
            }
            if let Err(error) = self.files.keep_spare(self.segment_bytes, &mut goes_on) {
                tracing::warn!(%error, "cannot create a spare log segment; appends do without");
                pause = STOCK_RETRY_PAUSE;
            }
        }
    }
}

#[cfg(test)]
mod tests;
