//! Following: how a process that applies the log of another one learns of new records ([`Following`]). Nothing is accepted
//! and nothing is put here.
//!
//! # Read-your-writes
//!
//! [`Following::look`] learns how far the log is, and then reads the metadata anew. So whatever was acknowledged before the call, by
//! whichever process, is either among the records that count as durable from then on, for which readers wait as everywhere
//! (`progress`), or in the snapshot of the metadata. Metadata comes second, because a record may need what was written for
//! it: a group type has its column before the first event that uses it is logged. So no record is applied with metadata that
//! are older.
//!
//! How far the log is, is told by the process that writes it ([`Writer`]), which is asked first, and then whether it still held
//! the lease: whoever takes the log over takes the lease before it acknowledges anything. So if it did, nobody else had
//! acknowledged a record before it was asked. If it does not answer, or has lost the lease, the log is listed, which takes
//! longer, costs something, and proves it without anybody.
//!
//! Those who come before a look begins share it, so that there is one at a time, however many readers there are.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Mutex, watch};

use weir_base::clock::Clock;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_storage::log::{LogFiles, LogWriter};
use weir_storage::object_log::follow::LogFollower;
use weir_storage::wal::{Sequence, WalError};

/// Longest time for one look.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Shortest time between two looks, which ask the database, and between two lists of the log, for which a store may charge.
const LOOK_PAUSE: Duration = Duration::from_millis(2);
const LIST_PAUSE: Duration = Duration::from_millis(100);

/// The log of a write path.
#[derive(Debug)]
pub enum Log {
    /// This process writes it.
    Own(Box<dyn LogWriter>),
    /// Another process writes it. Its records are applied here, too, and nothing is accepted.
    Followed(LogFollower, Option<Writer>),
}

/// The process that writes a log, as others ask it; clones are cheap.
#[derive(Clone)]
pub struct Writer {
    /// The name of its lease.
    pub lease: String,
    /// Asks it how far the log is, and returns that with the holder of the lease that it is; `None` if it does not answer.
    pub ask: Ask,
}

/// Asks for the newest durable record and who says so.
pub type Ask = Arc<dyn Fn() -> BoxFuture<'static, Option<(String, Sequence)>> + Send + Sync>;

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Log {
    /// The stored log.
    pub fn files(&self) -> Arc<dyn LogFiles> {
        match self {
            Self::Own(writer) => writer.files(),
            Self::Followed(follower, _) => Arc::new(follower.files().clone()),
        }
    }

    /// The last record that is known.
    pub fn end(&self) -> Sequence {
        match self {
            Self::Own(writer) => writer.last_appended(),
            Self::Followed(follower, _) => follower.end(),
        }
    }
}

/// Why the newest state is not known.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// The log cannot be listed, or it goes on behind records that were removed.
    #[error("cannot follow the log")]
    Log(#[source] Arc<WalError>),
    /// The metadata cannot be read.
    #[error("cannot read the metadata")]
    Metadata(#[source] Arc<MetadataError>),
    /// The log or the metadata do not answer in time.
    #[error("the log or the metadata do not answer within {} s", LOOK_MAX.as_secs())]
    Late,
}

/// Follows the log of another process; clones share it.
#[derive(Clone)]
pub struct Following {
    shared: Arc<Shared>,
}

struct Shared {
    log: LogFollower,
    writer: Option<Writer>,
    clock: Clock,
    /// When the log was listed the last time.
    listed_at: parking_lot::Mutex<Option<Duration>>,
    /// When the last look began.
    looked_at: parking_lot::Mutex<Option<Duration>>,
    metadata: Metadata,
    durable: watch::Sender<Sequence>,
    /// Number of looks that have begun.
    begun: AtomicU64,
    /// The last look that has ended, by its number. Locked during a look.
    ended: Mutex<(u64, Result<(), FollowError>)>,
    /// Whether the last look has failed.
    is_failing: AtomicBool,
    lost: watch::Sender<bool>,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("log", &self.shared.log).finish_non_exhaustive()
    }
}

impl Following {
    /// Follows a log that another process writes; `None` for one of this process. Records count as durable by `durable`.
    pub(super) fn of(
        log: &Log,
        metadata: &Metadata,
        clock: &Clock,
        durable: impl FnOnce() -> watch::Sender<Sequence>,
    ) -> Option<Self> {
        let Log::Followed(log, writer) = log else { return None };
        let shared = Shared {
            log: log.clone(),
            writer: writer.clone(),
            clock: clock.clone(),
            listed_at: parking_lot::Mutex::default(),
            looked_at: parking_lot::Mutex::default(),
            metadata: metadata.clone(),
            durable: durable(),
            begun: AtomicU64::new(0),
            ended: Mutex::new((0, Ok(()))),
            is_failing: AtomicBool::new(false),
            lost: watch::Sender::new(false),
        };
        Some(Self { shared: Arc::new(shared) })
    }

    /// Looks for what was acknowledged before the call: records count as durable then, and the metadata are read.
    ///
    /// # Errors
    ///
    /// See [`FollowError`]; something may be missing.
    pub async fn look(&self) -> Result<(), FollowError> {
        let shared = &*self.shared;
        let before = shared.begun.load(Ordering::SeqCst);
        let mut ended = shared.ended.lock().await;
        let (number, looked) = &*ended;
        if *number > before {
            return looked.clone();
        }
        self.pause(&shared.looked_at, LOOK_PAUSE).await;
        let number = shared.begun.fetch_add(1, Ordering::SeqCst).saturating_add(1);
        let looked = tokio::time::timeout(LOOK_MAX, self.look_now()).await;
        let looked = looked.unwrap_or(Err(FollowError::Late));
        shared.is_failing.store(looked.is_err(), Ordering::Relaxed);
        *ended = (number, looked.clone());
        looked
    }

    /// Whether the last look has failed. One in the background follows soon.
    pub fn is_failing(&self) -> bool {
        self.shared.is_failing.load(Ordering::Relaxed)
    }

    async fn look_now(&self) -> Result<(), FollowError> {
        let Shared { log, metadata, durable, .. } = &*self.shared;
        let end = match self.told().await {
            Some(newest) => log.reach(newest).await,
            None => {
                self.pause(&self.shared.listed_at, LIST_PAUSE).await;
                log.look().await
            }
        };
        let end = end.map_err(|error| {
            self.note(&error);
            FollowError::Log(Arc::new(error))
        })?;
        metadata.refresh().await.map_err(|error| FollowError::Metadata(Arc::new(error)))?;
        durable.send_if_modified(|known| {
            let is_newer = *known < end;
            *known = end.max(*known);
            is_newer
        });
        Ok(())
    }

    /// How far the log is, by the process that writes it; `None` if it does not tell, or may not be the one that writes.
    async fn told(&self) -> Option<Sequence> {
        let Shared { writer, metadata, .. } = &*self.shared;
        let Writer { lease, ask } = writer.as_ref()?;
        let (holder, newest) = ask().await?;
        // After its answer: see the head of this file.
        let lease = metadata.lease(lease).await.ok()??;
        (lease.holder == holder).then_some(newest)
    }

    /// Waits until so long after the last time, and notes this one.
    async fn pause(&self, last: &parking_lot::Mutex<Option<Duration>>, pause: Duration) {
        let clock = &self.shared.clock;
        let since = last.lock().map(|at| clock.monotonic().saturating_sub(at));
        if let Some(rest) = since.and_then(|since| pause.checked_sub(since)) {
            tokio::time::sleep(rest).await;
        }
        *last.lock() = Some(clock.monotonic());
    }

    /// Takes note of a failure to read the log, after which it may not be followed any more.
    pub(super) fn note(&self, error: &WalError) {
        if matches!(error, WalError::Truncated { .. } | WalError::Version { .. }) {
            self.lose();
        }
    }

    /// Takes note that the log cannot be followed any more.
    pub(super) fn lose(&self) {
        self.shared.lost.send_replace(true);
    }

    /// Returns once the log cannot be followed any more: what comes next was removed, or cannot be read. Opened anew, from
    /// newer states of the stores, it may be.
    pub async fn lost(&self) {
        // The sender lives as long as this handle.
        let _ = self.shared.lost.subscribe().wait_for(|lost| *lost).await;
    }

    /// Forgets where records are that were applied.
    pub fn forget_through(&self, through: Sequence) {
        self.shared.log.forget_through(through);
    }

    /// The records that count as durable.
    pub(super) fn durable(&self) -> watch::Receiver<Sequence> {
        self.shared.durable.subscribe()
    }
}
