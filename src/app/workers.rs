//! Which workers there are, by the database of metadata: a worker puts itself there ([`Registration`]), and the servers of
//! the same bucket read who is there ([`Registry`]). For workers that are not in the settings of servers.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::OpenError;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::{Pause, Tasks};
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::postgres::MetadataAccess;
use weir_metadata::workers::RegisteredWorker;

/// Time between two beats of a worker.
const BEAT: Duration = Duration::from_secs(10);

/// A worker whose beat has not changed for this time is removed from the database. It comes back with its next beat.
const FORGET_AFTER: Duration = Duration::from_secs(10 * 60);

/// The database, if there is one, and the name of the bucket there.
async fn open(config: &Config, clock: &Clock) -> Result<Option<(Metadata, String)>, OpenError> {
    let (settings, storage) = (&config.metadata, &config.storage.bucket);
    let (Some(url), Some(bucket)) = (&settings.metadata_url, &storage.storage_url) else {
        return Ok(None);
    };
    let access = MetadataAccess::Write;
    let metadata = Metadata::connect(settings, url, clock.clone(), access).await?;
    Ok(Some((metadata, bucket.to_string())))
}

/// The workers of a bucket, as a server reads them.
#[derive(Debug)]
pub struct Registry {
    metadata: Metadata,
    bucket: String,
    clock: Clock,
    /// The last beat of each worker, and when it was first read.
    beats: Mutex<BTreeMap<String, (i64, Duration)>>,
}

impl Registry {
    /// That of the settings; `None` if the metadata are in no database, or the tables in no bucket.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub async fn open(config: &Config, clock: &Clock) -> Result<Option<Self>, OpenError> {
        let opened = open(config, clock).await?;
        Ok(opened.map(|(metadata, bucket)| Self {
            metadata,
            bucket,
            clock: clock.clone(),
            beats: Mutex::default(),
        }))
    }

    /// The URLs of the workers, without those that have not been there for minutes.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub async fn workers(&self) -> Result<Vec<String>, MetadataError> {
        let found = self.metadata.workers(&self.bucket).await?;
        for worker in self.dead(&found) {
            if self.metadata.forget_worker(&self.bucket, worker).await? {
                tracing::info!(worker = worker.url, "a worker that is gone is forgotten");
            }
        }
        Ok(found.into_iter().map(|worker| worker.url).collect())
    }

    /// Those whose beat stands still.
    fn dead<'w>(&self, found: &'w [RegisteredWorker]) -> Vec<&'w RegisteredWorker> {
        let now = self.clock.monotonic();
        let mut beats = self.beats.lock();
        beats.retain(|url, _| found.iter().any(|worker| worker.url == *url));
        let stands_still = |worker: &&RegisteredWorker| {
            let seen = beats.entry(worker.url.clone()).or_insert((worker.beat, now));
            if seen.0 != worker.beat {
                *seen = (worker.beat, now);
            }
            now.saturating_sub(seen.1) >= FORGET_AFTER
        };
        found.iter().filter(stands_still).collect()
    }
}

/// A worker that is in the database.
#[derive(Clone, Debug)]
pub struct Registration {
    metadata: Metadata,
    bucket: String,
    url: String,
}

impl Registration {
    /// Registers the worker with this URL, if the settings have a database.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub async fn open(
        config: &Config,
        clock: &Clock,
        url: &str,
    ) -> Result<Option<Self>, OpenError> {
        let Some((metadata, bucket)) = open(config, clock).await? else { return Ok(None) };
        metadata.register_worker(&bucket, url).await?;
        Ok(Some(Self { metadata, bucket, url: url.to_owned() }))
    }

    /// Keeps it there until the process ends.
    pub fn keep(&self, tasks: &Tasks) {
        let (own, shutdown) = (self.clone(), tasks.shutdown().clone());
        tasks.spawn("registration", async move {
            let mut has_failed = false;
            while shutdown.pause(BEAT).await == Pause::Elapsed {
                match own.metadata.register_worker(&own.bucket, &own.url).await {
                    Ok(()) => has_failed = false,
                    Err(error) => {
                        if !std::mem::replace(&mut has_failed, true) {
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(error, "cannot register this worker in the database");
                        }
                    }
                }
            }
        });
    }

    /// Removes it, so that servers ask it no more.
    pub async fn end(&self) {
        if let Err(error) = self.metadata.remove_worker(&self.bucket, &self.url).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot remove this worker from the database");
        }
        self.metadata.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_base::clock::{Clock, UnixMicros};
    use weir_metadata::Metadata;
    use weir_metadata::workers::RegisteredWorker;

    use super::{FORGET_AFTER, Registry};

    /// Goal: a worker is dead once its beat has stood still for the time, by the clock of the reader.
    #[tokio::test]
    async fn workers_without_a_beat_are_dead() {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Clock::test(UnixMicros(0));
        let path = directory.path().join("metadata.db");
        let metadata = Metadata::open(&path, clock.clone()).await.expect("a store");
        let (bucket, beats) = ("a".to_owned(), parking_lot::Mutex::default());
        let registry = Registry { metadata, bucket, clock: clock.clone(), beats };
        let worker = |url: &str, beat| RegisteredWorker { url: url.to_owned(), beat };
        let dead = |found: &[RegisteredWorker]| {
            registry.dead(found).into_iter().map(|own| own.url.clone()).collect::<Vec<_>>()
        };
        assert!(dead(&[worker("1", 1), worker("2", 1)]).is_empty());
        clock.advance(FORGET_AFTER - Duration::from_secs(1));
        assert!(dead(&[worker("1", 2), worker("2", 1)]).is_empty());
        clock.advance(Duration::from_secs(1));
        assert_eq!(dead(&[worker("1", 2), worker("2", 1), worker("3", 7)]), ["2"]);
        // One that is back begins anew.
        assert_eq!(dead(&[worker("2", 2)]), Vec::<String>::new());
    }
}
