//! Probe of an object store: [`probe`] checks that it keeps the promises that commits of tables rest on. A
//! store that ignores `If-None-Match` would let two committers write the same version of a table, and the
//! rows of one of them would be lost.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, Result};
use uuid::Uuid;

use weir_base::telemetry::metrics::Metrics;

/// Directory of the objects of a probe, which it removes again.
const DIRECTORY: &str = "_probe";

/// Names that are fought for, and puts of each.
const RACES: u32 = 8;
const RIVALS: u32 = 4;

/// Time between two probes of a store that is in use: its gateway may be replaced by another.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The same after a probe that failed, which may have been an outage.
const PROBE_AGAIN: Duration = Duration::from_secs(60);

/// Why a store cannot hold tables.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A conditional put has replaced an object.
    #[error(
        "it does not support conditional writes: a put with `If-None-Match: *` replaced an object that was \
         there, so commits of a table could overwrite each other. Use a store that supports them, such as \
         Amazon S3"
    )]
    Unconditional,
    /// Several conditional puts of one name have succeeded.
    #[error(
        "its conditional writes are not atomic: of {RIVALS} puts of one object with `If-None-Match: *` at the \
         same time, {winners} succeeded"
    )]
    Race {
        /// How many.
        winners: usize,
    },
    /// A read after a put.
    #[error("an object is not what was put right before, so commits of a table could be missed")]
    Stale,
    /// A list after a put.
    #[error("a list does not have an object that was put right before, so commits could be missed")]
    Unlisted,
    /// It failed.
    #[error("it cannot be used")]
    Store(#[from] Error),
}

/// Probes a store that is in use, tells the operator whether it failed, by a metric and in the log, and returns the time until
/// the next probe. Of an outage, the log has the first failure alone.
pub async fn probe_in_use(objects: &dyn ObjectStore, metrics: &Metrics) -> Duration {
    let probed = probe(objects).await;
    let had_failed = metrics.bucket_probe_failed.set(i64::from(probed.is_err())) != 0;
    let Err(error) = probed else { return PROBE_INTERVAL };
    if !(had_failed && matches!(error, ProbeError::Store(_))) {
        let error = &error as &dyn std::error::Error;
        tracing::error!(
            error,
            "the object store of the tables fails its check; if this is not an outage, stop the server: commits could be \
             lost"
        );
    }
    PROBE_AGAIN
}

/// Probes the store: a conditional put of a name that exists, of names at the same time, reads and lists after
/// puts. Leaves nothing behind.
///
/// # Errors
///
/// The promise that the store does not keep, or its failure.
pub async fn probe(objects: &dyn ObjectStore) -> std::result::Result<(), ProbeError> {
    let directory = Path::from_iter([DIRECTORY, &Uuid::new_v4().simple().to_string()]);
    let probed = probe_in(objects, &directory).await;
    // What remains after a failure does no harm: no table is there.
    let _ = clear(objects, &directory).await;
    probed
}

async fn probe_in(
    objects: &dyn ObjectStore,
    directory: &Path,
) -> std::result::Result<(), ProbeError> {
    let first = directory.clone().join("first");
    if put_new(objects, &first, "one").await? == Put::Taken && !is(objects, &first, "one").await? {
        return Err(ProbeError::Stale);
    }
    if put_new(objects, &first, "two").await? == Put::Done {
        return Err(ProbeError::Unconditional);
    }
    if !is(objects, &first, "one").await? {
        return Err(ProbeError::Stale);
    }
    let puts = (0..RACES * RIVALS).map(|number| {
        let name = directory.clone().join(format!("race-{}", number / RIVALS));
        async move {
            let put = put_new(objects, &name, &format!("{number}")).await;
            put.map(|put| (number / RIVALS, put))
        }
    });
    let puts: Vec<_> = puts.collect();
    let many = usize::try_from(RACES * RIVALS).unwrap_or(1);
    let puts: Vec<(u32, Put)> = stream::iter(puts).buffer_unordered(many).try_collect().await?;
    for race in 0..RACES {
        let winners = puts.iter().filter(|(of, put)| *of == race && *put == Put::Done).count();
        if winners > 1 {
            return Err(ProbeError::Race { winners });
        }
    }
    let listed: Vec<_> = objects.list(Some(directory)).try_collect().await?;
    if listed.len() != usize::try_from(RACES + 1).unwrap_or(0) {
        return Err(ProbeError::Unlisted);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    /// The name exists: by another put, or by this one if the client has repeated it after a lost answer.
    Taken,
}

async fn put_new(objects: &dyn ObjectStore, path: &Path, text: &str) -> Result<Put> {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    match objects.put_opts(path, bytes.into(), PutMode::Create.into()).await {
        Ok(_) => Ok(Put::Done),
        Err(Error::AlreadyExists { .. }) => Ok(Put::Taken),
        Err(error) => Err(error),
    }
}

/// Whether the object has this content.
async fn is(objects: &dyn ObjectStore, path: &Path, text: &str) -> Result<bool> {
    match objects.get(path).await {
        Ok(got) => Ok(got.bytes().await? == text.as_bytes()),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn clear(objects: &dyn ObjectStore, directory: &Path) -> Result<()> {
    let listed = objects.list(Some(directory)).map_ok(|object| object.location).boxed();
    let mut deleted = objects.delete_stream(listed);
    while deleted.try_next().await?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStore;

    use super::{PROBE_AGAIN, PROBE_INTERVAL, ProbeError, probe, probe_in_use};
    use crate::faulty_store::{Broken, FaultyStore};
    use weir_base::telemetry::metrics::Metrics;

    #[tokio::test]
    async fn stores_that_break_a_promise_are_refused() {
        for (broken, expected) in [
            (None, "none"),
            (Some(Broken::Unconditional), "unconditional"),
            (Some(Broken::RacyConditions), "race"),
            (Some(Broken::StaleReads), "stale"),
            (Some(Broken::StaleLists), "unlisted"),
            (Some(Broken::Away), "store"),
        ] {
            let store = FaultyStore::default();
            *store.broken.lock() = broken;
            let found = match probe(&store).await {
                Ok(()) => "none",
                Err(ProbeError::Unconditional) => "unconditional",
                Err(ProbeError::Race { winners: 2.. }) => "race",
                Err(ProbeError::Race { .. }) => "no race",
                Err(ProbeError::Stale) => "stale",
                Err(ProbeError::Unlisted) => "unlisted",
                Err(ProbeError::Store(_)) => "store",
            };
            assert_eq!(found, expected);
            *store.broken.lock() = None;
            let left: Vec<_> = store.list(None).try_collect().await.unwrap();
            assert!(left.is_empty() || broken.is_some(), "{broken:?}: {left:?}");
        }
    }

    #[tokio::test]
    async fn a_probe_that_fails_is_told_until_one_passes() {
        let (store, metrics) = (FaultyStore::default(), Metrics::new());
        for (broken, failed, pause) in [
            (None, 0, PROBE_INTERVAL),
            (Some(Broken::Unconditional), 1, PROBE_AGAIN),
            (Some(Broken::Away), 1, PROBE_AGAIN),
            (None, 0, PROBE_INTERVAL),
        ] {
            *store.broken.lock() = broken;
            assert_eq!(probe_in_use(&store, &metrics).await, pause, "{broken:?}");
            assert_eq!(metrics.bucket_probe_failed.get(), failed, "{broken:?}");
        }
    }
}
