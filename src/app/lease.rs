//! Active and standby: decides which of several servers with the same bucket serves. It is the one that holds the lease
//! of the shard; the others wait for the lease ([`stand_by`]), and the holder renews it ([`Held::keep`]).
//!
//! The lease does not protect events: the log fences off a former server by itself ([`weir_storage::object_log`]). It
//! prevents two live servers from taking the log from each other in turns, and lets the standby detect that it has to
//! take over.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::OpenError;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::BucketUrl;
use weir_base::config::metadata::MetadataUrl;
use weir_base::tasks::{Pause, Shutdown, Tasks};
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::leases::{Holder, Lease};
use weir_metadata::postgres::MetadataAccess;
use weir_storage::object_log::Rivals;
use weir_storage::wal::WalError;

/// Name of the lease of the one shard, before the URL of its bucket.
const NAME: &str = "shard/0000";

/// Time between two renewals.
const RENEWAL: Duration = Duration::from_secs(1);

/// Time between two checks of a standby.
const LOOK: Duration = Duration::from_millis(250);

/// A holder counts as dead if its beat has not changed for this time.
const DEAD_AFTER: Duration = Duration::from_secs(4);

/// A lease that this process has. Clones share it.
#[derive(Clone, Debug)]
pub struct Held {
    name: String,
    holder: Holder,
    /// A connection pool of its own, so that renewals wait for nothing else.
    metadata: Metadata,
    /// Set once the log is open.
    rivals: Arc<ArcSwapOption<Rivals>>,
    lost: Arc<watch::Sender<bool>>,
}

/// Waits until this process has the lease of the shard of this bucket; `say` is called with the lease of another holder
/// meanwhile. Others pass requests on to `url` then. `None` if the process is stopped before that.
///
/// # Errors
///
/// PostgreSQL cannot be used at the start; later failures are retried.
pub async fn stand_by(
    config: &Config,
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
    let held = Held::new(bucket, url, metadata);
    Ok(held.wait(clock, stopping, say).await.then_some(held))
}

/// Result of an attempt to take the lease for a command.
#[derive(Debug)]
pub(super) enum Taking {
    /// This process has it.
    Taken(Held),
    /// A server has it, or had it and did not end in order.
    Served,
    /// The database has no lease of a server with this bucket.
    Unknown,
}

/// Takes the lease of the shard of `bucket` for a command that moves the shard away, if the last server has released
/// it.
///
/// # Errors
///
/// PostgreSQL cannot be used.
pub(super) async fn take(
    config: &Config,
    metadata: &MetadataUrl,
    bucket: &BucketUrl,
    clock: &Clock,
) -> Result<Taking, OpenError> {
    let settings = &config.metadata;
    let connect = |access| Metadata::connect(settings, metadata, clock.clone(), access);
    // Reads first, so that a wrong database is not changed.
    let reading = connect(MetadataAccess::Read).await?;
    let found = reading.lease(&name_of(bucket)).await;
    reading.close().await;
    let Some(found) = found? else { return Ok(Taking::Unknown) };
    if !found.holder.is_empty() {
        return Ok(Taking::Served);
    }
    let held = Held::new(bucket, "", connect(MetadataAccess::Write).await?);
    match held.metadata.take_lease(&held.name, &held.holder, Some(&found)).await? {
        true => Ok(Taking::Taken(held)),
        false => Ok(Taking::Served),
    }
}

/// The name of the lease of the shard of a bucket.
pub fn name_of(bucket: &BucketUrl) -> String {
    format!("{NAME} {bucket}")
}

impl Held {
    fn new(bucket: &BucketUrl, url: &str, metadata: Metadata) -> Self {
        let (own, secret) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let secret = format!("{own}.{secret}");
        Self {
            name: name_of(bucket),
            holder: Holder { name: own, url: url.to_owned(), secret },
            metadata,
            rivals: Arc::default(),
            lost: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Renews the lease once. Returns whether this process still has it.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub(super) async fn renew(&self) -> Result<bool, MetadataError> {
        self.metadata.renew_lease(&self.name, &self.holder.name).await
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
            return metadata.take_lease(&self.name, &self.holder, None).await;
        };
        let since = match seen {
            Some((lease, since)) if lease.holder == found.holder && lease.beat == found.beat => {
                *since
            }
            _ => now,
        };
        let is_free = found.holder.is_empty() || now.saturating_sub(since) >= DEAD_AFTER;
        if is_free && metadata.take_lease(&self.name, &self.holder, Some(&found)).await? {
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
        &self.holder.secret
    }

    /// From now on also checks the log for a rival while PostgreSQL is unavailable.
    pub fn watch_log(&self, rivals: Rivals) {
        self.rivals.store(Some(Arc::new(rivals)));
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
        self.metadata.close().await;
    }
}
