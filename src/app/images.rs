//! Restores the identity store at start, on a node whose disk may be new: [`restore_identities`] downloads the newest
//! image if it is newer than the store on the disk. The log after it is replayed afterwards, as at any start.
//!
//! # Crashes
//!
//! An image is downloaded to a directory of its own and opened there before it is used. Then the current store is
//! renamed, and the new one gets its name; the former one is removed last. If the process ends between the two renames,
//! no store has the name, and the next start renames the former one back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path as ObjectPath;

use crate::directory::remove_directory;
use crate::error::OpenError;
use crate::tables::{TablesAccess, in_bucket};
use crate::verify::chain;
use weir_base::clock::{Clock, UnixMicros};
use weir_base::config::Config;
use weir_base::config::bucket::LogPlace;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;
use weir_identity::IdentityError;
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_storage::images::error::ImagesError;
use weir_storage::images::restore::Prefetched;
use weir_storage::images::{ImageName, Images};
use weir_storage::tables::Tables;

/// Names in a data directory: the identity store, an image that is being downloaded, and the store that it replaces.
const IDENTITY: &str = "identity";
const RESTORING: &str = "identity.restoring";
const FORMER: &str = "identity.former";

/// Directory in a data directory with the files of the newest image that a standby has downloaded.
pub const IMAGE_CACHE: &str = "identity-image-cache";

/// Prefix of the images, in that of the shard.
const PREFIX: &str = "identity";

/// Time between two checks of a standby for a newer image.
const PREFETCH_INTERVAL: Duration = Duration::from_secs(10);

/// The images in a bucket that also has the log; `None` if this process does not write there.
pub(super) fn images_of(config: &Config, tables: &Tables, access: TablesAccess) -> Option<Images> {
    let is_kept = config.storage.bucket.storage_log == LogPlace::Bucket;
    images_in(tables).filter(|_| is_kept && access == TablesAccess::Write)
}

/// The images in a bucket.
pub(super) fn images_in(tables: &Tables) -> Option<Images> {
    Some(Images::new(tables.shard()?, ObjectPath::from(PREFIX)))
}

/// Downloads the newest image of a shard that this process is to take, so that [`restore_identities`] has little to read.
///
/// # Errors
///
/// The bucket or the disk cannot be used. What is there stays; the next call goes on.
pub async fn prepare(
    config: &Config,
    shard: ShardId,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<(), OpenError> {
    let Some(url) = &config.storage.bucket.storage_url else { return Ok(()) };
    let access = TablesAccess::Read;
    let tables = in_bucket(config, (url, shard), access, clock, metrics).await?;
    if let Some(images) = images_in(&tables) {
        images.prefetch(&config.storage.data_dir.join(IMAGE_CACHE)).await?;
    }
    Ok(())
}

/// Keeps the newest image downloaded on the disk of a standby, until the future is dropped.
pub async fn prefetch(config: &Config, shard: ShardId, clock: &Clock, metrics: &Arc<Metrics>) {
    let Some(url) = &config.storage.bucket.storage_url else {
        return std::future::pending().await;
    };
    let cache = config.storage.data_dir.join(IMAGE_CACHE);
    let tables = in_bucket(config, (url, shard), TablesAccess::Read, clock, metrics).await;
    // Settings without a usable bucket are reported when the server takes over.
    let Some(images) = tables.ok().as_ref().and_then(images_in) else {
        return std::future::pending().await;
    };
    let attempt = async || images.prefetch(&cache).await;
    follow(attempt, PREFETCH_INTERVAL, clock, metrics).await;
}

/// Downloads the newest image again and again, with pauses, and updates the metrics of this standby's lag: also during
/// an attempt that hangs or downloads much, in which the standby lags.
async fn follow(
    attempt: impl AsyncFn() -> Result<Prefetched, ImagesError>,
    pause: Duration,
    clock: &Clock,
    metrics: &Metrics,
) {
    let gauge = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let tell = |seen_at, put_at: Option<UnixMicros>| {
        let age = put_at.map(|put_at| clock.now().since(put_at));
        metrics.standby_lag.set(gauge(clock.monotonic().saturating_sub(seen_at)));
        metrics.standby_image_age.set(gauge(age.unwrap_or_default()));
    };
    let mut has_failed = false;
    let (mut seen_at, mut put_at) = (clock.monotonic(), None);
    loop {
        let mut attempting = std::pin::pin!(attempt());
        let attempted = loop {
            tokio::select! {
                attempted = &mut attempting => break attempted,
                () = tokio::time::sleep(pause) => tell(seen_at, put_at),
            }
        };
        match attempted {
            Ok(prefetched) => {
                has_failed = false;
                (seen_at, put_at) = (clock.monotonic(), prefetched.put_at);
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "cannot bring the newest image of persons; taking over takes longer without it"
                    );
                }
            }
        }
        tell(seen_at, put_at);
        tokio::time::sleep(pause).await;
    }
}

/// Result of restoring the identity store of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The last record that the store has applied.
    pub applied: u64,
    /// Whether the store was restored from an image.
    pub is_of_image: bool,
    /// Number of newer images that cannot be restored.
    pub damaged: u64,
}

/// Why an image is not an identity store.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Image(#[from] ImagesError),
    #[error("it does not open")]
    Opening(#[from] IdentityError),
    #[error("it is of record {applied}")]
    Other { applied: u64 },
}

/// Replaces the identity store of `data_dir` by the newest image that can be restored, unless the store is at least as
/// new. No process may have it open. Files of images are taken from `cache` if they are there; see
/// [`Images::prefetch`].
///
/// # Errors
///
/// The object store or the disk fails; or there are newer images than the store, all of them damaged, so that the log
/// may not go back to where the store ends.
pub async fn restore_identities(
    images: &Images,
    data_dir: &Path,
    limits: Limits,
    cache: Option<&Path>,
) -> Result<Restored, OpenError> {
    tidy(data_dir).map_err(OpenError::io(data_dir))?;
    let local = applied_in(data_dir, limits)?;
    let (mut damaged, mut newest) = (0, None);
    for name in images.list().await? {
        if name.sequence <= local {
            break;
        }
        match restore(images, &name, data_dir, limits, cache).await {
            Ok(()) => {
                replace(data_dir).map_err(OpenError::io(data_dir))?;
                tracing::info!(image = %name, local, "persons are those of an image");
                return Ok(Restored { applied: name.sequence, is_of_image: true, damaged });
            }
            Err(Refused::Image(error)) if !error.is_damage() => return Err(error.into()),
            Err(Refused::Opening(error)) if error.is_of_newer() => return Err(error.into()),
            Err(error) => {
                damaged += 1;
                let cause = &error as &dyn std::error::Error;
                tracing::error!(error = cause, image = %name, "an image of persons cannot be restored; trying the one before it");
                newest.get_or_insert_with(|| (name, chain(&error)));
            }
        }
    }
    match newest {
        None => Ok(Restored { applied: local, is_of_image: false, damaged }),
        Some((name, problem)) => Err(OpenError::Incomplete {
            path: PathBuf::from(images.prefix().as_ref()),
            problem: format!(
                "in the object store has newer images of persons than {} (record {local}), and none of them can be \
                 restored. The newest, {name}: {problem}. Restore the objects under that prefix from a backup or from \
                 their former versions; or, if they are lost, remove the .json objects there: persons are then rebuilt \
                 from what the log still has, and those of before are missing",
                data_dir.join(IDENTITY).display()
            ),
        }),
    }
}

/// The last record that the identity store of a data directory has applied; 0 if there is none, or a damaged one. No
/// process may have it open.
pub(super) fn applied_in(data_dir: &Path, limits: Limits) -> Result<u64, OpenError> {
    let directory = data_dir.join(IDENTITY);
    if !directory.try_exists().map_err(OpenError::io(&directory))? {
        return Ok(0);
    }
    match Identities::open(&directory, limits) {
        Ok(identities) => Ok(identities.applied_sequence()),
        Err(error @ (IdentityError::Unreadable { .. } | IdentityError::Damaged { .. })) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                error,
                "the identity store on the disk is damaged; it is taken from an image, if there is one"
            );
            Ok(0)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the files of images that a standby has cached in a data directory.
pub(super) fn forget_cache(data_dir: &Path) -> io::Result<()> {
    remove_directory(&data_dir.join(IMAGE_CACHE))
}

/// Downloads an image, and opens it once.
async fn restore(
    images: &Images,
    name: &ImageName,
    data_dir: &Path,
    limits: Limits,
    cache: Option<&Path>,
) -> Result<(), Refused> {
    let directory = data_dir.join(RESTORING);
    let local = |source| ImagesError::Local { path: directory.clone(), source };
    remove_directory(&directory).map_err(local)?;
    images.restore(name, &directory, cache).await?;
    let applied = Identities::open(&directory, limits)?.applied_sequence();
    match applied == name.sequence {
        true => Ok(()),
        false => Err(Refused::Other { applied }),
    }
}

/// Replaces the store by the downloaded image.
fn replace(data_dir: &Path) -> io::Result<()> {
    let (identity, former) = (data_dir.join(IDENTITY), data_dir.join(FORMER));
    if identity.try_exists()? {
        std::fs::rename(&identity, &former)?;
    }
    std::fs::rename(data_dir.join(RESTORING), identity)?;
    sync(data_dir)?;
    remove_directory(&former)
}

/// Cleans up after a process that ended while it restored an image.
fn tidy(data_dir: &Path) -> io::Result<()> {
    let (identity, former) = (data_dir.join(IDENTITY), data_dir.join(FORMER));
    if !identity.try_exists()? && former.try_exists()? {
        std::fs::rename(&former, identity)?;
        sync(data_dir)?;
    }
    remove_directory(&former)?;
    remove_directory(&data_dir.join(RESTORING))
}

fn sync(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
