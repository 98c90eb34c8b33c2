//! A shard that another server writes, followed by this one: how its stores are opened ([`Stores::follow`]) and kept up to
//! date ([`start_jobs`]). Nothing is written to the bucket. Persons are those of an image and of the log behind it, in a
//! directory that no server goes on with: what only the writing server derives from the log is not in step with them.

use std::sync::Arc;
use std::time::Duration;

use crate::error::OpenError;
use crate::images::{images_in, restore_identities};
use crate::log::{OpenLog, pauses};
use crate::maintenance::usage;
use crate::node::Process;
use crate::shard::{Shard, Stores};
use crate::tables::TablesAccess;
use crate::{App, tables};
use weir_base::tasks::{Pause, TaskError};
use weir_disk::{Disk, OsDisk};
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_ingest::following::Log;
use weir_storage::object_log::follow::LogFollower;
use weir_storage::wal::{Elsewhere, Sequence};

/// Time between two looks for new records while nobody reads.
const LOG_LOOK: Duration = Duration::from_millis(250);

/// Time between two looks for new files. Rows that are in them are in memory until then.
const FILES_LOOK: Duration = Duration::from_secs(1);

/// Longest time to learn what is newest, after which the server that writes is asked.
const NEWEST_MAX: Duration = Duration::from_secs(3);

impl App {
    /// Whether everything that any server acknowledged before the call can be read here. A server that follows none has it.
    pub async fn is_newest(&self) -> bool {
        let Some(following) = self.shard.pipeline.following() else { return true };
        // Who comes now need not wait until it fails again.
        if following.is_failing() {
            return false;
        }
        let newest = async {
            let looked = following.look().await.map_err(|error| error.to_string());
            looked?;
            self.engine.wait().await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(NEWEST_MAX, newest).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::debug!(error, "a read goes to the server that writes");
                false
            }
            Err(_) => false,
        }
    }
}

impl Stores {
    /// Opens the stores of a shard in a bucket that another server writes. `None` if there is nothing to follow yet.
    ///
    /// # Errors
    ///
    /// A store cannot be opened. As the bucket changes meanwhile, another attempt may succeed.
    pub(super) async fn follow(process: &Process) -> Result<Option<Self>, OpenError> {
        let Process { shard, config, clock, metrics, .. } = process;
        let Some(url) = &config.storage.bucket.storage_url else { return Ok(None) };
        let tables =
            tables::in_bucket(config, (url, *shard), TablesAccess::Read, clock, metrics).await?;
        let tables = tables::with_cache(process, tables)?;
        let (Some(objects), Some(images)) = (tables.shard(), images_in(&tables)) else {
            return Ok(None);
        };
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let limits = Limits::within(config.ingest.identity_cache_max_bytes.as_u64());
        let data_dir = config.storage.data_dir.as_path();
        restore_identities(&images, data_dir, limits, None).await?;
        let Some(store) = tables::followed_store(config, *shard, &tables, clock).await? else {
            return Ok(None);
        };
        let identities = Identities::open(&data_dir.join("identity"), limits)?;
        let (durable, applied) = (store.flushed_through(), identities.applied_sequence());
        let applied = Sequence(applied);
        let elsewhere = Elsewhere { durable, seen: durable.max(applied) };
        let (pauses, runtime) = (pauses(process), process.runtimes.main.clone());
        let had = durable.min(applied);
        let follower = LogFollower::open(objects, elsewhere, had, pauses, runtime).await?;
        let log = OpenLog {
            log: Log::Followed(follower, process.writer.clone()),
            has_records: true,
            segments: None,
            rivals: None,
        };
        Ok(Some(Self { tables, disk, store, identities, images: None, log }))
    }
}

/// Starts to keep a followed shard up to date. Ends with the tasks of its node.
pub(super) fn start_jobs(shard: &Shard) -> Result<(), TaskError> {
    let tasks = &shard.tasks.0;
    tables::keep_cache(tasks, &shard.tables)?;
    usage::start(tasks, shard.engine.clone());
    let shutdown = tasks.shutdown().clone();
    if let Some(following) = shard.pipeline.following().cloned() {
        let (pipeline, identities) = (shard.pipeline.clone(), shard.identities.clone());
        let shutdown = shutdown.clone();
        tasks.spawn("follow-log", async move {
            let mut has_failed = false;
            while shutdown.pause(LOG_LOOK).await == Pause::Elapsed {
                let looked = following.look().await;
                report(&mut has_failed, looked.as_ref().err(), "the log of the server that writes");
                let applied = Sequence(identities.applied_sequence());
                following.forget_through(pipeline.published().min(applied));
            }
        });
    }
    let (maintenance, store) = (shard.maintenance.clone(), shard.maintenance.store.clone());
    tasks.spawn("follow-files", async move {
        let mut has_failed = false;
        while shutdown.pause(FILES_LOOK).await == Pause::Elapsed {
            let followed = store.follow().await;
            report(&mut has_failed, followed.as_ref().err(), "new files of events");
            maintenance.watch();
        }
    });
    Ok(())
}

/// Logs the beginning and the end of failures, not each of them.
fn report(has_failed: &mut bool, error: Option<&(impl std::error::Error + 'static)>, what: &str) {
    let had_failed = std::mem::replace(has_failed, error.is_some());
    match error {
        Some(error) if !had_failed => {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, what, "cannot follow; reads go to the server that writes");
        }
        None if had_failed => tracing::info!(what, "follows again"),
        _ => {}
    }
}
