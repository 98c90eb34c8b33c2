//! Images of the identity store in an object store ([`IdentityImages`]): when one is due, which ones exist, and how far
//! the log may be cut with them. The format of an image is in [`weir_identity::image`], its place in
//! [`weir_storage::images`].

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use weir_base::clock::Clock;
use weir_base::telemetry::metrics::Metrics;
use weir_identity::IdentityError;
use weir_identity::image::ImageFile;
use weir_identity::store::Identities;
use weir_storage::images::error::ImagesError;
use weir_storage::images::upload::Put;
use weir_storage::images::{Images, LocalFile};

/// Directory in which an image is made, in the data directory.
const SCRATCH: &str = "identity-image";

/// Number of images that are retained. The log goes back to the last but one.
const KEPT: usize = 3;

/// Growth of the log for which an image is made before its time.
const LOG_GROWTH_MAX_BYTES: u64 = 1 << 30;

/// Pause after an image that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Why there is no new image.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// It cannot be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot be put.
    #[error("cannot put an image of the identity store into the object store")]
    Images(#[from] ImagesError),
}

/// What an image is made from.
#[derive(Debug)]
pub(super) struct Maker<'m> {
    pub(super) identities: &'m Identities,
    pub(super) runtime: &'m Handle,
    pub(super) clock: &'m Clock,
    pub(super) metrics: &'m Metrics,
    /// Size of the log.
    pub(super) log_bytes: u64,
}

/// The images of a node's identity store.
#[derive(Debug)]
pub struct IdentityImages {
    images: Images,
    scratch: PathBuf,
    interval: Duration,
    state: Mutex<State>,
    /// Held while an image is made: there is one directory for it.
    making: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// The records of images that can be restored; the newest ones are retained.
    known: BTreeSet<u64>,
    /// When the newest one was begun, or the process.
    made_at: Duration,
    /// When an attempt was begun, if it failed.
    failed_at: Option<Duration>,
    /// The least size of the log since the newest one.
    log_bytes: u64,
}

impl IdentityImages {
    /// The images that exist, for an identity store that has applied record `applied` after the restore. Images of
    /// later records are ignored: the restore has found them damaged.
    ///
    /// # Errors
    ///
    /// The object store fails, or the directory of a former image cannot be removed.
    pub async fn open(
        images: Images,
        data_dir: &Path,
        interval: Duration,
        applied: u64,
        now: Duration,
    ) -> Result<Self, ImagesError> {
        let whole = images.list_whole(usize::MAX).await?;
        let usable = whole.into_iter().map(|name| name.sequence).filter(|made| *made <= applied);
        let known = usable.take(KEPT).collect();
        let state = State { known, made_at: now, failed_at: None, log_bytes: u64::MAX };
        let scratch = data_dir.join(SCRATCH);
        let opened =
            Self { images, scratch, interval, state: Mutex::new(state), making: Mutex::default() };
        opened.clear()?;
        Ok(opened)
    }

    /// The record through which the log may be cut as far as persons are concerned: that of the newest image but one,
    /// so that this one can be restored, too. 0 if there are less than two: without the only image, persons come from
    /// the whole log.
    pub fn safe_through(&self) -> u64 {
        self.state.lock().known.iter().rev().nth(1).copied().unwrap_or(0)
    }

    /// Age of the newest image of an identity store that has applied record `applied`; zero if that is in it.
    pub fn age(&self, applied: u64, now: Duration) -> Duration {
        let state = self.state.lock();
        match state.newest() < applied {
            true => now.saturating_sub(state.made_at),
            false => Duration::ZERO,
        }
    }

    /// Whether there is no image.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().known.is_empty()
    }

    /// Whether the identity store has applied records that are in no image.
    pub(super) fn is_behind(&self, applied: u64) -> bool {
        self.state.lock().newest() < applied
    }

    /// Whether an image is due, for an identity store that has applied record `applied`, with `log_bytes` of log.
    pub(super) fn is_due(&self, applied: u64, log_bytes: u64, now: Duration) -> bool {
        let mut state = self.state.lock();
        state.log_bytes = state.log_bytes.min(log_bytes);
        let is_resting = |at| now.saturating_sub(at) < RETRY_PAUSE.min(self.interval);
        let is_late = now.saturating_sub(state.made_at) >= self.interval;
        let has_grown = log_bytes - state.log_bytes >= LOG_GROWTH_MAX_BYTES;
        state.newest() < applied
            && (is_late || has_grown)
            && !state.failed_at.is_some_and(is_resting)
    }

    /// Makes an image, unless `ended` comes first, and logs the result: a failure only once, until there is an image
    /// again. Blocks.
    pub(super) fn run(&self, maker: &Maker<'_>, ended: impl Future<Output = ()>) {
        let _making = self.making.lock();
        let Maker { identities, runtime, clock, metrics, log_bytes } = maker;
        let now = clock.monotonic();
        let made = runtime.block_on(self.make(identities, *log_bytes, now, ended));
        // Also after a failure: the directory holds files that the database has replaced.
        let cleared = self.clear();
        let made = made.and_then(|made| Ok(cleared.map(|()| made)?));
        let failed_before = {
            let mut state = self.state.lock();
            std::mem::replace(&mut state.failed_at, made.is_err().then_some(now)).is_some()
        };
        match made {
            Ok(None) => {}
            Ok(Some((put, is_pruned))) => {
                metrics.identity_image_uploaded.inc_by(put.bytes);
                metrics.identity_image_failures.inc_by(u64::from(!is_pruned));
                let took = clock.monotonic().saturating_sub(now);
                tracing::info!(
                    through = put.name.sequence,
                    files = put.files,
                    bytes = put.bytes,
                    took_ms = took.as_millis(),
                    "put an image of persons"
                );
            }
            Err(error) => {
                metrics.identity_image_failures.inc();
                if !failed_before {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(
                        error,
                        "cannot put an image of persons into the object store; the log is not cut until there is one;                          it is tried again"
                    );
                }
            }
        }
    }

    /// Makes an image, uploads it, and removes old ones. Returns `None` if `ended` comes first. Blocks the thread for
    /// parts of it.
    ///
    /// # Errors
    ///
    /// There is no new image; the next attempt uploads less.
    async fn make(
        &self,
        identities: &Identities,
        log_bytes: u64,
        now: Duration,
        ended: impl Future<Output = ()>,
    ) -> Result<Option<(Put, bool)>, MakeError> {
        self.clear()?;
        let image = identities.image(&self.scratch)?;
        let local = |file: ImageFile| LocalFile {
            path: file.path,
            bytes: file.bytes,
            is_immutable: file.is_immutable,
        };
        let files: Vec<LocalFile> = image.files.into_iter().map(local).collect();
        let putting = pin!(self.images.put(&self.scratch, &files, image.applied));
        let Either::Left((put, _)) = select(putting, pin!(ended)).await else {
            return Ok(None);
        };
        let put = put?;
        let known = {
            let mut state = self.state.lock();
            state.known.insert(image.applied);
            while state.known.len() > KEPT {
                state.known.pop_first();
            }
            (state.made_at, state.log_bytes) = (now, log_bytes);
            state.known.clone()
        };
        let is_pruned = match self.images.prune(KEPT, &known).await {
            Ok(_) => true,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "cannot remove old images of persons; the next image tries again"
                );
                false
            }
        };
        Ok(Some((put, is_pruned)))
    }

    /// Removes the directory of an image.
    fn clear(&self) -> Result<(), ImagesError> {
        match std::fs::remove_dir_all(&self.scratch) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ImagesError::Local { path: self.scratch.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

impl State {
    fn newest(&self) -> u64 {
        self.known.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
