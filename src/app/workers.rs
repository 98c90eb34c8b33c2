//! Which workers there are, by the database of metadata: a worker puts itself there ([`registered`]), and the servers of the
//! same bucket read who is there ([`Registry`]). For workers that are not in the settings of servers.

use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

use crate::beats::{Beats, FORGET_AFTER};
use crate::error::OpenError;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::cluster::ClusterConfig;
use weir_base::tasks::{Pause, Shutdown};
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::postgres::MetadataAccess;
use weir_metadata::workers::{RegisteredWorker, WorkerPort};

/// Time between two beats of a worker.
const BEAT: Duration = Duration::from_secs(10);

/// The name of the bucket in the database; `None` if the metadata are in no database, or the tables in no bucket.
fn bucket(config: &Config) -> Option<String> {
    config.metadata.metadata_url.as_ref()?;
    config.storage.bucket.storage_url.as_ref().map(ToString::to_string)
}

/// The database. Nothing is migrated: that is for servers.
async fn connect(config: &Config, clock: &Clock) -> Result<Option<Metadata>, MetadataError> {
    let Some(url) = &config.metadata.metadata_url else { return Ok(None) };
    let access = MetadataAccess::Apart;
    Metadata::connect(&config.metadata, url, clock.clone(), access).await.map(Some)
}

/// Names the host on which a URL of the machine itself means this process: the running system, and the network of the
/// process in it. `None` if the system does not tell.
fn host() -> Option<String> {
    let system = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
    let network = std::fs::read_link(Path::new("/proc/self/ns/net")).ok()?;
    Some(format!("{} {}", system.trim(), network.display()))
}

/// The workers of a bucket, as a server reads them.
#[derive(Debug)]
pub struct Registry {
    metadata: Metadata,
    bucket: String,
    host: Option<String>,
    clock: Clock,
    beats: Mutex<Beats<WorkerPort>>,
}

impl Registry {
    /// That of the settings; `None` if the metadata are in no database, or the tables in no bucket.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub async fn open(config: &Config, clock: &Clock) -> Result<Option<Self>, OpenError> {
        let (Some(bucket), Some(metadata)) = (bucket(config), connect(config, clock).await?) else {
            return Ok(None);
        };
        let (host, clock, beats) = (host(), clock.clone(), Mutex::default());
        Ok(Some(Self { metadata, bucket, host, clock, beats }))
    }

    /// The URLs of the workers, without those that have not been there for minutes, and those of other hosts.
    ///
    /// # Errors
    ///
    /// PostgreSQL cannot be used.
    pub async fn workers(&self) -> Result<Vec<String>, MetadataError> {
        let found = self.read().await.inspect_err(|_| self.beats.lock().clear())?;
        for worker in self.dead(&found) {
            match self.metadata.forget_worker(&self.bucket, worker).await {
                Ok(true) => {
                    tracing::info!(worker = worker.port.url, "a worker that is gone is forgotten")
                }
                Ok(false) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "a worker that is gone cannot be forgotten");
                }
            }
        }
        let ports = found.into_iter().map(|worker| worker.port);
        Ok(ports.filter(|port| self.is_for_us(port)).map(|port| port.url).collect())
    }

    async fn read(&self) -> Result<Vec<RegisteredWorker>, MetadataError> {
        self.metadata.probe().await?;
        self.metadata.workers(&self.bucket).await
    }

    /// Whether a URL means the worker that registered it, here.
    fn is_for_us(&self, port: &WorkerPort) -> bool {
        match ClusterConfig::is_local(&port.url) {
            true => self.host.as_deref() == Some(&*port.host),
            false => true,
        }
    }

    /// Those whose beat stands still.
    fn dead<'w>(&self, found: &'w [RegisteredWorker]) -> Vec<&'w RegisteredWorker> {
        let now = self.clock.monotonic();
        let mut beats = self.beats.lock();
        beats.retain(|port| found.iter().any(|worker| worker.port == *port));
        let stands_still = |worker: &&RegisteredWorker| {
            beats.still(&worker.port, worker.beat, now) >= FORGET_AFTER
        };
        found.iter().filter(stands_still).collect()
    }
}

/// Keeps the worker with this URL registered until then, if the settings have a database, and removes it. While the database
/// is away the worker goes on, and registers when it is back.
pub async fn registered(
    config: &Config,
    clock: &Clock,
    (url, shutdown): (&str, &Shutdown),
    until: impl Future<Output = ()>,
) {
    let Some(bucket) = bucket(config) else { return until.await };
    let host =
        if ClusterConfig::is_local(url) { host().unwrap_or_default() } else { String::new() };
    let port = WorkerPort { url: url.to_owned(), host };
    let mut metadata = None;
    let beating = async {
        let mut has_failed = false;
        loop {
            match beat(config, clock, &mut metadata, (&bucket, &port)).await {
                Ok(()) => has_failed = false,
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "cannot register this worker in the database");
                    }
                }
            }
            if shutdown.pause(BEAT).await != Pause::Elapsed {
                return;
            }
        }
    };
    tokio::select! {
        () = until => {}
        () = beating => {}
    }
    let Some(metadata) = metadata else { return };
    // On the connection of the beats, after the last one.
    if let Err(error) = metadata.remove_worker(&bucket, &port).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "cannot remove this worker from the database");
    }
    metadata.close().await;
}

/// Registers once, and connects before if there is no connection.
async fn beat(
    config: &Config,
    clock: &Clock,
    metadata: &mut Option<Metadata>,
    (bucket, port): (&str, &WorkerPort),
) -> Result<(), MetadataError> {
    if metadata.is_none() {
        *metadata = connect(config, clock).await?;
    }
    let Some(metadata) = metadata else { return Ok(()) };
    metadata.probe().await?;
    metadata.register_worker(bucket, port).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_base::clock::{Clock, UnixMicros};
    use weir_metadata::Metadata;
    use weir_metadata::workers::{RegisteredWorker, WorkerPort};

    use super::{Registry, host};
    use crate::beats::FORGET_AFTER;

    fn port(url: &str, host: &str) -> WorkerPort {
        WorkerPort { url: url.to_owned(), host: host.to_owned() }
    }

    async fn registry(clock: &Clock) -> (Registry, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("metadata.db");
        let metadata = Metadata::open(&path, clock.clone()).await.expect("a store");
        let (bucket, beats) = ("a".to_owned(), parking_lot::Mutex::default());
        let registry = Registry { metadata, bucket, host: host(), clock: clock.clone(), beats };
        (registry, directory)
    }

    /// Goal: a worker is dead once its beat has stood still for the time, by the clock of the reader.
    #[tokio::test]
    async fn workers_without_a_beat_are_dead() {
        let clock = Clock::test(UnixMicros(0));
        let (registry, _directory) = registry(&clock).await;
        let worker = |url: &str, beat| RegisteredWorker { port: port(url, ""), beat };
        let dead = |found: &[RegisteredWorker]| {
            registry.dead(found).into_iter().map(|own| own.port.url.clone()).collect::<Vec<_>>()
        };
        assert!(dead(&[worker("1", 1), worker("2", 1)]).is_empty());
        clock.advance(FORGET_AFTER - Duration::from_secs(1));
        assert!(dead(&[worker("1", 2), worker("2", 1)]).is_empty());
        clock.advance(Duration::from_secs(1));
        assert_eq!(dead(&[worker("1", 2), worker("2", 1), worker("3", 7)]), ["2"]);
        // One that is back begins anew.
        assert_eq!(dead(&[worker("2", 2)]), Vec::<String>::new());
    }

    /// A URL of the machine itself means somebody else on another host, and in another network of this one.
    #[tokio::test]
    async fn local_urls_are_of_one_host() {
        let (registry, _directory) = registry(&Clock::test(UnixMicros(0))).await;
        let own = host().expect("this system tells");
        let (local, remote) = ("http://127.0.0.1:8100", "https://worker:8100");
        for (url, host, expected) in
            [(local, &*own, true), (local, "other", false), (local, "", false), (remote, "", true)]
        {
            registry.metadata.register_worker("a", &port(url, host)).await.expect("a row");
            assert_eq!(registry.is_for_us(&port(url, host)), expected, "{url} {host}");
        }
        assert_eq!(registry.workers().await.expect("a list"), [local, remote]);
    }
}
