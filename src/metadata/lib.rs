//! The metadata store: organizations, users, projects, keys, flags, cohorts, definitions, documents (actions,
//! saved insights, annotations, dashboards), warnings, and the activity log, which records who changed what.
//!
//! [`Metadata`] is the handle. Hot paths read [`Metadata::snapshot`], which never waits; everything
//! else is `async` and reads the database. No HTTP, no JSON shapes of requests, no evaluation.
//!
//! # Entities
//!
//! The columns of a table are declared once, with the struct that a row is read to (`entity`). Statements, patches and
//! the fields that the activity log compares follow from that; [`Write::create`], [`Write::change`] and
//! [`Write::remove`] write an entity and log it.
//!
//! # One writer
//!
//! A write is a [`Write`]. It holds the gate, so that there is one at a time. Its snapshot is up to
//! date inside the transaction. It publishes the next snapshot after the commit and before it
//! releases the gate. Hence snapshots follow each other in commit order, and a rule that needs
//! other rows (is this key taken?) reads the snapshot. Processes on one database exclude each other by the lock
//! that a transaction takes at its start (`db`); whoever finds that another one has written reloads first.
//!
//! # Cancellation
//!
//! Run writes detached from the connection that requested them. A write that is dropped between the
//! commit and the publication leaves the snapshot behind the database until the next write or
//! [`Metadata::refresh`], which reloads it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use crate::accounts::{User, UserId};
use crate::connection::Conn;
use crate::db::{Db, Transaction};
use crate::error::MetadataError;
use crate::postgres::MetadataAccess;
use crate::snapshot::Snapshot;
use weir_base::clock::{Clock, UnixMicros};
use weir_base::config::metadata::{MetadataConfig, MetadataUrl};

pub mod accounts;
pub mod activity;
pub mod annotations;
pub mod bootstrap;
mod changes;
mod codes;
pub mod cohorts;
mod connection;
pub mod dashboards;
mod db;
pub mod definition_bulk;
pub mod definition_edits;
pub mod definition_quota;
pub mod definitions;
mod disk;
pub mod documents;
pub mod early_access;
mod entity;
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
pub mod leases;
pub mod members;
pub mod nodes;
pub mod passwords;
pub mod postgres;
pub mod promotions;
pub mod properties;
mod reach;
pub mod record_times;
pub mod removal;
pub mod roles;
pub mod schedules;
pub mod secrets;
pub mod sessions;
pub mod shards;
pub mod snapshot;
mod sql;
pub mod standing;
mod tags;
#[cfg(test)]
mod tests;
mod transfer;
pub mod violation;
pub mod warnings;
pub mod workers;

/// The metadata store. A cheap handle; clones share one store.
#[derive(Clone, Debug)]
pub struct Metadata {
    shared: Arc<Shared>,
    /// The name of the log whose record times this handle reads and writes. Empty for a log without a name.
    log: Arc<str>,
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
        let metadata = Self::on(disk::open(path).await?, clock);
        metadata.refresh().await.map_err(|error| disk::named_if_damaged(path, error))?;
        Ok(metadata)
    }

    /// Opens the store in the PostgreSQL database `url`, and applies the migrations that it lacks, unless it
    /// is to be read only.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Connect`] if PostgreSQL cannot be reached within `metadata-timeout`,
    /// [`MetadataError::Unfit`], [`MetadataError::Migrate`], [`MetadataError::Corrupt`].
    pub async fn connect(
        settings: &MetadataConfig,
        url: &MetadataUrl,
        clock: Clock,
        access: MetadataAccess,
    ) -> Result<Self, MetadataError> {
        let metadata = Self::on(postgres::open(settings, url, access).await?, clock);
        if access != MetadataAccess::Apart {
            metadata.refresh().await?;
        }
        Ok(metadata)
    }

    /// Looks whether PostgreSQL is there, also after it was away: for a store that nobody refreshes.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`]: it is not.
    pub async fn probe(&self) -> Result<(), MetadataError> {
        self.shared.db.probe().await.map(|_| ())
    }

    fn on(db: Db, clock: Clock) -> Self {
        let shared = Shared {
            db,
            clock,
            current: ArcSwap::from_pointee(Snapshot::default()),
            gate: Arc::new(Mutex::new(())),
            is_behind: AtomicBool::new(true),
            waiting: parking_lot::Mutex::default(),
            forgotten: AtomicU64::new(0),
            published: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared), log: Arc::from("") }
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

    /// Reloads the snapshot if another process wrote, such as `weir keys` when it revokes a key, or another
    /// server on the same PostgreSQL, of which only the parts that it changed are read. Costs one short statement if there is nothing new. To be called about
    /// once a second: it also finds out that PostgreSQL is back after it was away.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`]; the snapshot stays as it was.
    pub async fn refresh(&self) -> Result<(), MetadataError> {
        if let Some(version) = self.shared.db.probe().await?
            && self.shared.is_current(version)
        {
            return Ok(());
        }
        let _gate = Arc::clone(&self.shared.gate).lock_owned().await;
        let mut tx = self.shared.db.frozen().await?;
        self.shared.reload(&mut tx).await?;
        tx.rollback().await
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
    fn begin(&self) -> BoxFuture<'_, Result<Write, MetadataError>> {
        Box::pin(async move {
            let gate = Arc::clone(&self.shared.gate).lock_owned().await;
            let mut tx = self.shared.db.begin().await?;
            self.shared.reload(&mut tx).await?;
            let base = self.shared.current.load_full();
            Ok(Write { tx, base, shared: Arc::clone(&self.shared), _gate: gate })
        })
    }
}

impl Shared {
    /// Whether the snapshot is that of `version` of the data.
    fn is_current(&self, version: i64) -> bool {
        !self.is_behind.load(Ordering::Acquire) && self.current.load().version == Some(version)
    }

    /// Publishes the state that `tx` sees, unless the snapshot is that. Reads only the parts that have changed, if that
    /// is known. The gate has to be held.
    fn reload<'t>(&'t self, tx: &'t mut Transaction) -> BoxFuture<'t, Result<(), MetadataError>> {
        Box::pin(async move {
            if self.is_current(tx.version) {
                return Ok(());
            }
            let (known, now) = (self.current.load_full(), tx.version);
            let parts = match known.version.filter(|_| tx.is_shared()) {
                Some(version) => changes::between(tx.connection(), version, now).await?,
                None => None,
            };
            let fresh = match parts {
                Some(parts) => known.with_parts(tx.connection(), &parts).await?,
                None => Snapshot::load(tx.connection()).await?,
            };
            self.publish(fresh, now);
            Ok(())
        })
    }

    /// Publishes the state of a version of the data.
    fn publish(&self, mut next: Snapshot, version: i64) {
        next.version = Some(version);
        self.current.store(Arc::new(next));
        self.is_behind.store(false, Ordering::Release);
        self.published.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// A transaction in progress. Dropping it rolls it back.
struct Write {
    tx: Transaction,
    /// The state at the start of the transaction: up to date until it commits.
    base: Arc<Snapshot>,
    shared: Arc<Shared>,
    _gate: OwnedMutexGuard<()>,
}

impl Write {
    /// The connection inside the transaction.
    fn connection(&mut self) -> &mut Conn {
        self.tx.connection()
    }

    /// A user who was not removed. Every write in the name of a user must call this: the user may
    /// have been removed between the check of the key and the write.
    fn user(&self, id: UserId) -> Result<&Arc<User>, MetadataError> {
        let user = self.base.user(id).filter(|user| !user.is_removed());
        user.ok_or(MetadataError::NotFound("user"))
    }

    /// Commits, then publishes `next`.
    fn commit(self, next: Snapshot) -> BoxFuture<'static, Result<(), MetadataError>> {
        Box::pin(async move {
            let parts = self.tx.is_shared().then(|| self.base.changed_in(&next));
            self.shared.is_behind.store(true, Ordering::Release);
            let version = self.tx.commit_seen(parts.as_ref()).await?;
            self.shared.publish(next, version);
            Ok(())
        })
    }

    /// Commits, then publishes the snapshot as changed by `change`.
    async fn commit_with(self, change: impl FnOnce(&mut Snapshot)) -> Result<(), MetadataError> {
        let mut next = self.base.as_ref().clone();
        change(&mut next);
        self.commit(next).await
    }

    /// Commits changes of which there is no snapshot; the next write or refresh loads one.
    async fn commit_unknown(self) -> Result<(), MetadataError> {
        self.shared.is_behind.store(true, Ordering::Release);
        self.tx.commit_seen(None).await?;
        Ok(())
    }

    /// Commits changes that no snapshot contains.
    async fn commit_unseen(self) -> Result<(), MetadataError> {
        self.tx.commit().await?;
        Ok(())
    }
}
