//! The metadata store: organizations, users, projects, keys, flags, cohorts, definitions, documents (actions,
//! saved insights, annotations, dashboards), warnings, and the activity log, which records who changed what.
//!
//! [`Metadata`] is the handle. Hot paths read [`Metadata::snapshot`], which never waits; everything
//! else is `async` and reads the database. No HTTP, no JSON shapes of requests, no evaluation.
//!
//! # One writer
//!
//! A write is a [`Write`]. It holds the gate, so that there is one at a time. Its snapshot is up to
//! date inside the transaction. It publishes the next snapshot after the commit and before it
//! releases the gate. Hence snapshots follow each other in commit order, and a rule that needs
//! other rows (is this key taken?) reads the snapshot.
//!
//! # Cancellation
//!
//! Run writes detached from the connection that requested them. A write that is dropped between the
//! commit and the publication leaves the snapshot behind the database until the next write or
//! [`Metadata::refresh`], which reloads it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use sqlx::Sqlite;
use sqlx::SqliteConnection;
use sqlx::Transaction;
use tokio::sync::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::clock::UnixMicros;
use crate::metadata::accounts::User;
use crate::metadata::accounts::UserId;
use crate::metadata::disk::Db;
use crate::metadata::error::MetadataError;
use crate::metadata::snapshot::Snapshot;

pub mod accounts;
pub mod activity;
pub mod annotations;
pub mod bootstrap;
pub mod cohorts;
pub mod dashboards;
pub mod definition_bulk;
pub mod definition_quota;
pub mod definitions;
mod disk;
pub mod documents;
pub mod early_access;
pub mod erasure;
pub mod error;
pub mod event_usage;
pub mod flag_calls;
pub mod flag_rights;
pub mod flag_rules;
pub mod flag_settings;
pub mod flags;
pub mod group_types;
pub mod hash_keys;
pub mod members;
pub mod properties;
pub mod property_edits;
pub mod record_times;
pub mod roles;
pub mod schedules;
pub mod secrets;
pub mod sessions;
pub mod snapshot;
mod tags;
#[cfg(test)]
mod tests;
pub mod violation;
pub mod warnings;

/// The metadata store. A cheap handle; clones share one store.
#[derive(Clone, Debug)]
pub struct Metadata {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    db: Db,
    clock: Clock,
    /// Replaced as a whole, never edited in place.
    current: ArcSwap<Snapshot>,
    /// Held by the one write in progress, until its snapshot is published. An async lock, because
    /// it is held over the transaction; it serializes writes and guards no data.
    gate: Arc<Mutex<()>>,
    /// Set from before a commit until its snapshot is published.
    is_behind: AtomicBool,
    /// SQLite's `data_version` of the writing connection at the last full load. It changes when
    /// another process (`weir keys`) commits, and not by commits of this process.
    data_version: AtomicI64,
    /// Hash keys that wait for the gate; the first request that passes it writes them all. Bounded
    /// by the number of running requests.
    waiting: parking_lot::Mutex<hash_keys::Waiting>,
    /// Number of definitions that were deleted or renamed. When it changes, caches of written
    /// definitions are invalid.
    forgotten: AtomicU64,
    /// Number of published snapshots.
    published: watch::Sender<u64>,
}

impl Metadata {
    /// Opens the store in the file `path`, creates it if there is none, and applies the migrations
    /// that it lacks. The directory must exist.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Open`], [`MetadataError::Damaged`], [`MetadataError::Migrate`] (also if a newer version of the program
    /// wrote the file), [`MetadataError::Corrupt`]. All of them are permanent.
    pub async fn open(path: &Path, clock: Clock) -> Result<Self, MetadataError> {
        let shared = Shared {
            db: Db::open(path).await?,
            clock,
            current: ArcSwap::from_pointee(Snapshot::default()),
            gate: Arc::new(Mutex::new(())),
            is_behind: AtomicBool::new(true),
            data_version: AtomicI64::new(0),
            waiting: parking_lot::Mutex::default(),
            forgotten: AtomicU64::new(0),
            published: watch::Sender::new(0),
        };
        let metadata = Self { shared: Arc::new(shared) };
        metadata.refresh().await.map_err(|error| disk::named_if_damaged(path, error))?;
        Ok(metadata)
    }

    /// Runs SQLite's integrity check on the file `path` and returns its findings, at most
    /// `findings_max` lines. Opens the file read-only, and takes time in proportion to its size.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Open`].
    pub async fn verify(path: &Path, findings_max: u32) -> Result<Vec<String>, MetadataError> {
        disk::verify(path, findings_max).await
    }

    /// The state as of the last write. Take one per request, so that a request sees one state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.current.load_full()
    }

    /// Notifies of each published snapshot.
    pub fn published(&self) -> watch::Receiver<u64> {
        self.shared.published.subscribe()
    }

    /// Reloads the snapshot if another process wrote, such as `weir keys` when it revokes a key.
    /// Costs one pragma if there is nothing new. To be called about once a second.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`]; the snapshot stays as it was.
    pub async fn refresh(&self) -> Result<(), MetadataError> {
        // `begin` does all the work; there is nothing to commit.
        self.begin().await?.tx.rollback().await?;
        Ok(())
    }

    /// The number of definitions deleted or renamed since the start. When it changes, definitions
    /// written earlier by [`Metadata::upsert_definitions`] may be missing.
    pub fn forgotten(&self) -> u64 {
        self.shared.forgotten.load(Ordering::Acquire)
    }

    fn note_forgotten(&self) {
        self.shared.forgotten.fetch_add(1, Ordering::AcqRel);
    }

    /// Closes the connections. Later calls fail; the snapshot stays readable.
    pub async fn close(&self) {
        self.shared.db.close().await;
    }

    fn now(&self) -> UnixMicros {
        self.shared.clock.now()
    }

    /// Waits for the gate and starts a write.
    async fn begin(&self) -> Result<Write, MetadataError> {
        let gate = Arc::clone(&self.shared.gate).lock_owned().await;
        let mut tx = self.shared.db.begin().await?;
        let version = disk::data_version(&mut tx).await?;
        let is_stale = self.shared.is_behind.load(Ordering::Acquire)
            || self.shared.data_version.load(Ordering::Acquire) != version;
        if is_stale {
            let fresh = Snapshot::load(&mut tx).await?;
            self.shared.publish(fresh);
            self.shared.data_version.store(version, Ordering::Release);
            self.shared.is_behind.store(false, Ordering::Release);
        }
        let base = self.shared.current.load_full();
        Ok(Write { tx, base, shared: Arc::clone(&self.shared), _gate: gate })
    }
}

impl Shared {
    fn publish(&self, next: Snapshot) {
        self.current.store(Arc::new(next));
        self.published.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// A transaction in progress. Dropping it rolls it back.
struct Write {
    tx: Transaction<'static, Sqlite>,
    /// The state at the start of the transaction: up to date until it commits.
    base: Arc<Snapshot>,
    shared: Arc<Shared>,
    _gate: OwnedMutexGuard<()>,
}

impl Write {
    /// The connection inside the transaction.
    fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.tx
    }

    /// A user who was not removed. Every write in the name of a user must call this: the user may
    /// have been removed between the check of the key and the write.
    fn user(&self, id: UserId) -> Result<&Arc<User>, MetadataError> {
        let user = self.base.user(id).filter(|user| !user.is_removed);
        user.ok_or(MetadataError::NotFound("user"))
    }

    /// Commits, then publishes `next`.
    async fn commit(self, next: Snapshot) -> Result<(), MetadataError> {
        self.shared.is_behind.store(true, Ordering::Release);
        self.tx.commit().await?;
        self.shared.publish(next);
        self.shared.is_behind.store(false, Ordering::Release);
        Ok(())
    }

    /// Commits, then publishes the snapshot as changed by `change`.
    async fn commit_with(self, change: impl FnOnce(&mut Snapshot)) -> Result<(), MetadataError> {
        let mut next = self.base.as_ref().clone();
        change(&mut next);
        self.commit(next).await
    }

    /// Commits changes that no snapshot contains.
    async fn commit_unseen(self) -> Result<(), MetadataError> {
        self.tx.commit().await?;
        Ok(())
    }
}
