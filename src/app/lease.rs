//! Active and standby: decides which of several servers with the same bucket serves a shard. It is the one that holds the
//! lease of the shard; the others wait for the lease ([`stand_by`]), and the holder renews it ([`Held::keep`]).
//!
//! The lease does not protect events: the log fences off a former server by itself ([`weir_storage::object_log`]). It
//! prevents two live servers from taking the log from each other in turns, and lets the standby detect that it has to
//! take over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, watch};
use uuid::Uuid;

use crate::error::OpenError;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::BucketUrl;
use weir_base::config::metadata::{MetadataConfig, MetadataUrl};
use weir_base::tasks::{Pause, Shutdown, Tasks};
use weir_event::id::ShardId;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::leases::{Holder, Lease};
use weir_metadata::postgres::MetadataAccess;
use weir_storage::object_log::Rivals;
use weir_storage::wal::WalError;

/// Time between two renewals.
const RENEWAL: Duration = Duration::from_secs(1);

/// Time between two checks of a standby.
const LOOK: Duration = Duration::from_millis(250);

/// A holder counts as dead if its beat has not changed for this time.
pub const DEAD_AFTER: Duration = Duration::from_secs(4);

/// Nobody takes a lease within this time of the beginning of its last renewal: they see the new beat only later, and wait for
/// [`DEAD_AFTER`] from then on. The rest is for clocks that do not run equally fast.
const SURE_FOR: Duration = Duration::from_secs(3);

/// A lease that this process has. Clones share it.
#[derive(Clone, Debug)]
pub struct Held {
    name: String,
    holder: Holder,
    /// A connection pool that requests do not use, so that renewals wait for nothing else.
    metadata: Metadata,
    clock: Clock,
    /// When the last renewal began that succeeded.
    renewed_at: Arc<Mutex<Option<Duration>>>,
    /// When the last proof began that nobody has taken over. Held by the one who proves it.
    proved_at: Arc<AsyncMutex<Option<Duration>>>,
    /// Set once the log is open.
    rivals: Arc<ArcSwapOption<Rivals>>,
    /// Whether the shard is open, for others to see.
    is_open: Arc<AtomicBool>,
    lost: Arc<watch::Sender<bool>>,
}

/// Waits until this process has the lease of the shard of this bucket; `say` is called with the lease of another holder
/// meanwhile. Others pass requests on to `url` then. `None` if the process is stopped before that.
///
/// # Errors
///
/// PostgreSQL cannot be used at the start; later failures are retried.
pub async fn stand_by(
    (config, shard): (&Config, ShardId),
    clock: &Clock,
    url: &str,
    stopping: &Shutdown,
    say: impl Fn(&Lease),
) -> Result<Option<Held>, OpenError> {
    let (settings, storage) = (&config.metadata, &config.storage.bucket);
    let (Some(metadata), Some(bucket)) = (&settings.metadata_url, &storage.storage_url) else {
        return Ok(None);
    };
    let metadata =
        Metadata::connect(settings, metadata, clock.clone(), MetadataAccess::Write).await?;
    let holder = Identity { url: url.to_owned(), secret: Uuid::new_v4().to_string() };
    let held = Held::new((bucket, shard), &holder, metadata, clock.clone());
    Ok(held.wait(clock, stopping, say).await.then_some(held))
}

/// Result of an attempt to take the lease for a command.
#[derive(Debug)]
pub enum Taking {
    /// This process has it.
    Taken(Held),
    /// A server has it, or had it and did not end in order.
    Served,
    /// The database has no lease of a server with this bucket.
    Unknown,
}

/// Whether an operator has added shards.
///
/// # Errors
///
/// PostgreSQL cannot be used.
pub(super) async fn is_cluster(
    config: &Config,
    metadata: &MetadataUrl,
    clock: &Clock,
) -> Result<bool, OpenError> {
    let (settings, access) = (&config.metadata, MetadataAccess::Read);
    let metadata = Metadata::connect(settings, metadata, clock.clone(), access).await?;
    let bucket = metadata.bucket_of_shards().await;
    metadata.close().await;
    Ok(bucket?.is_some())
}

/// Takes the lease of the shard of `bucket` for a command that moves the shard away, if the last server has released
/// it.
///
/// # Errors
///
/// PostgreSQL cannot be used.
pub async fn take(
    settings: &MetadataConfig,
    metadata: &MetadataUrl,
    (bucket, shard): (&BucketUrl, ShardId),
    clock: &Clock,
) -> Result<Taking, OpenError> {
    let connect = |access| Metadata::connect(settings, metadata, clock.clone(), access);
    // Reads first, so that a wrong database is not changed.
    let reading = connect(MetadataAccess::Read).await?;
    let found = reading.lease(&name_of(bucket, shard)).await;
    reading.close().await;
    let Some(found) = found? else { return Ok(Taking::Unknown) };
    if !found.holder.is_empty() {
        return Ok(Taking::Served);
    }
    let nobody = Identity { url: String::new(), secret: Uuid::new_v4().to_string() };
    let metadata = connect(MetadataAccess::Write).await?;
    let held = Held::new((bucket, shard), &nobody, metadata, clock.clone());
    match held.take(Some(&found)).await? {
        true => Ok(Taking::Taken(held)),
        false => Ok(Taking::Served),
    }
}

/// The name of the lease of a shard of a bucket.
pub fn name_of(bucket: &BucketUrl, shard: ShardId) -> String {
    format!("shard/{shard} {bucket}")
}

/// The secret with which the nodes of a cluster pass requests on to each other; the first of them writes it into the database.
/// It is the same for all, and after a start: a node that knew another one before its start would be taken for a client.
///
/// # Errors
///
/// PostgreSQL cannot be used.
pub async fn secret_of_nodes(
    metadata: &Metadata,
    bucket: &BucketUrl,
) -> Result<String, MetadataError> {
    let (lease, name) = (format!("nodes {bucket}"), Uuid::new_v4().to_string());
    let own = Uuid::new_v4().to_string();
    let holder = Holder { secret: format!("{name}.{own}"), name, url: String::new() };
    metadata.take_lease(&lease, &holder, None).await?;
    let found = metadata.lease(&lease).await?;
    let found = found.as_ref().and_then(|found| found.secret.split_once('.'));
    Ok(found.map_or(own, |(_, secret)| secret.to_owned()))
}

/// How other servers reach a process.
#[derive(Clone)]
pub struct Identity {
    /// Its URL; empty if they do not.
    pub url: String,
    /// The secret with which they pass requests on to it.
    pub secret: String,
}

/// Without the secret.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, secret: _ } = self;
        f.debug_struct("Identity").field("url", url).finish_non_exhaustive()
    }
}

impl Held {
    /// A lease that nobody has yet, of a holder that was never there before.
    pub fn new(
        (bucket, shard): (&BucketUrl, ShardId),
        Identity { url, secret }: &Identity,
        metadata: Metadata,
        clock: Clock,
    ) -> Self {
        let own = Uuid::new_v4().to_string();
        let secret = format!("{own}.{secret}");
        Self {
            name: name_of(bucket, shard),
            holder: Holder { name: own, url: url.clone(), secret },
            clock,
            renewed_at: Arc::default(),
            proved_at: Arc::default(),
            metadata,
            rivals: Arc::default(),
            is_open: Arc::default(),
            lost: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Renews the lease once. Returns whether this process still has it.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub(super) async fn renew(&self) -> Result<bool, MetadataError> {
        let began = self.clock.monotonic();
        let (name, holder) = (&self.name, &self.holder.name);
        let is_open = self.is_open.load(Ordering::Relaxed);
        let renewed = self.metadata.renew_lease(name, holder, is_open).await?;
        self.note(renewed, began);
        Ok(renewed)
    }

    /// Takes the lease if it still is as it was `seen`. Returns whether this process has it.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub async fn take(&self, seen: Option<&Lease>) -> Result<bool, MetadataError> {
        let began = self.clock.monotonic();
        let taken = self.metadata.take_lease(&self.name, &self.holder, seen).await?;
        self.note(taken, began);
        Ok(taken)
    }

    fn note(&self, is_held: bool, began: Duration) {
        if is_held {
            let mut renewed_at = self.renewed_at.lock();
            *renewed_at = (*renewed_at).max(Some(began));
        }
    }

    /// Whether nobody has taken over before the call, so that a read here sees what was acknowledged anywhere. Asks nobody
    /// while the last renewal is recent; a process that has slept asks PostgreSQL, or without it the log.
    pub async fn is_sure(&self) -> bool {
        let came = self.clock.monotonic();
        let is_recent = |began: Duration| came.saturating_sub(began) < SURE_FOR;
        if self.renewed_at.lock().is_some_and(is_recent) {
            return !*self.lost.borrow();
        }
        let mut proved_at = self.proved_at.lock().await;
        // Others have asked for us.
        if proved_at.is_some_and(|began| began >= came) {
            return !*self.lost.borrow();
        }
        let began = self.clock.monotonic();
        let is_held = match self.renew().await {
            Ok(is_held) => is_held,
            Err(_) => match &*self.rivals.load() {
                Some(rivals) => rivals.look().await.is_ok(),
                None => false,
            },
        };
        if is_held {
            *proved_at = Some(began);
        }
        is_held && !*self.lost.borrow()
    }

    /// Returns whether the lease was taken before the process is to end.
    async fn wait(&self, clock: &Clock, stopping: &Shutdown, say: impl Fn(&Lease)) -> bool {
        let mut seen: Option<(Lease, Duration)> = None;
        loop {
            match self.look(clock, &mut seen).await {
                Ok(true) => return true,
                Ok(false) => {
                    if let Some((lease, _)) = &seen {
                        say(lease);
                    }
                }
                Err(error) => {
                    // Without a read, it is unknown whether the beat has changed.
                    seen = None;
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "cannot read who serves; this server goes on standing by"
                    );
                }
            }
            if stopping.pause(LOOK).await == Pause::Cancelled {
                return false;
            }
        }
    }

    /// Takes the lease if it is free, or if its holder has not renewed it for [`DEAD_AFTER`], measured by this
    /// process's checks.
    async fn look(
        &self,
        clock: &Clock,
        seen: &mut Option<(Lease, Duration)>,
    ) -> Result<bool, MetadataError> {
        let metadata = &self.metadata;
        let (found, now) = (metadata.lease(&self.name).await?, clock.monotonic());
        let Some(found) = found else {
            return self.take(None).await;
        };
        let since = match seen {
            Some((lease, since)) if lease.holder == found.holder && lease.beat == found.beat => {
                *since
            }
            _ => now,
        };
        let is_free = found.holder.is_empty() || now.saturating_sub(since) >= DEAD_AFTER;
        if is_free && self.take(Some(&found)).await? {
            return Ok(true);
        }
        *seen = Some((found, since));
        Ok(false)
    }

    /// Renews the lease until the end of the process, or until it is lost.
    pub fn keep(&self, tasks: &Tasks) {
        let (held, shutdown) = (self.clone(), tasks.shutdown().clone());
        tasks.spawn("lease", async move {
            let mut has_failed = false;
            while shutdown.pause(RENEWAL).await == Pause::Elapsed {
                match held.renew().await {
                    Ok(true) => has_failed = false,
                    Ok(false) => {
                        tracing::error!("another server has taken over");
                        held.lost.send_replace(true);
                        return;
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut has_failed, true) {
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(
                                error,
                                "cannot renew that this server serves; it looks into the log whether another one does"
                            );
                        }
                        if held.is_taken_over().await {
                            tracing::error!("another server has taken the log over");
                            held.lost.send_replace(true);
                            return;
                        }
                    }
                }
            }
        });
    }

    /// The secret with which other servers pass requests on to this one.
    pub fn secret(&self) -> &str {
        self.holder.secret.split_once('.').map_or("", |(_, secret)| secret)
    }

    /// From now on also checks the log for a rival while PostgreSQL is unavailable.
    pub fn watch_log(&self, rivals: Rivals) {
        self.rivals.store(Some(Arc::new(rivals)));
    }

    /// Tells others, with each renewal from now on, that the shard is open.
    pub fn tell_open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    async fn is_taken_over(&self) -> bool {
        match &*self.rivals.load() {
            Some(rivals) => matches!(rivals.look().await, Err(WalError::Fenced)),
            None => false,
        }
    }

    /// Returns once another server has taken over.
    pub async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        // The sender lives as long as this handle.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Releases the lease, so that the next server need not wait.
    pub async fn give_back(&self) {
        if let Err(error) = self.metadata.give_lease_back(&self.name, &self.holder.name).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "cannot tell that this server ends; a standby waits some seconds"
            );
        }
    }

    /// Closes the connections of a lease that has them for itself.
    pub async fn close(&self) {
        self.metadata.close().await;
    }
}
