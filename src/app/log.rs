//! Opening of the write-ahead log: the position at which it continues, and detection of records that are
//! neither in it nor in the stores derived from it.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use uuid::Uuid;

use crate::error::OpenError;
use crate::node::Process;
use crate::tables::TablesAccess;
use weir_base::config::Config;
use weir_base::config::bucket::LogPlace;
use weir_base::tasks::Pause;
use weir_base::telemetry::metrics::{Metrics, PlaceLabels};
use weir_disk::Disk;
use weir_event::id::ProjectId;
use weir_identity::store::Identities;
use weir_ingest::following::Log;
use weir_ingest::operation::{Action, Operation};
use weir_storage::log::LogFiles;
use weir_storage::object_log;
use weir_storage::object_log::writer::ObjectLog;
use weir_storage::object_log::{ObjectLogSettings, Pauses, Rivals};
use weir_storage::store::Store;
use weir_storage::tables::Tables;
use weir_storage::wal::files::WalFiles;
use weir_storage::wal::writer::Wal;
use weir_storage::wal::{Corruption, Damage, Elsewhere, Sequence, WalSettings};

/// Label under which damage of the events table is counted.
pub(super) const EVENTS_TABLE: PlaceLabels = PlaceLabels { place: "events" };

/// The pause between attempts of a request to a log in a bucket: the first and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The log of a shard.
#[derive(Debug)]
pub(super) struct OpenLog {
    pub(super) log: Log,
    /// Whether it has, or had, records of requests.
    pub(super) has_records: bool,
    /// Its segment files, of which a spare one is kept, if it is on disk.
    pub(super) segments: Option<WalFiles>,
    /// Detects whether another server has taken the log over, if it is in a bucket and was opened for writing.
    pub(super) rivals: Option<Rivals>,
}

/// Marks the identity store as incomplete if the log starts after its last applied record, as after its
/// directory was lost: missing persons must not be taken for deleted ones.
pub(super) fn note_lost_persons(
    identities: &Identities,
    log: &dyn LogFiles,
    metrics: &Metrics,
) -> Result<(), OpenError> {
    let applied = Sequence(identities.applied_sequence());
    if applied < log.before_oldest() {
        identities.mark_incomplete()?;
    }
    if identities.is_incomplete()? {
        metrics.identity_incomplete.set(1);
    }
    Ok(())
}

/// Reports events that are neither in the table nor in the log. The log is truncated only up to the
/// position in a commit of the table: if the table ends before the log starts, its last commits are lost.
/// They leave no gap in the table's own log, so no other check finds it.
pub(super) async fn note_lost_rows(
    store: &Store,
    log: &dyn LogFiles,
    metrics: &Metrics,
) -> Result<(), OpenError> {
    let flushed = store.flushed_through();
    let before_log = log.before_oldest();
    if flushed < before_log {
        metrics.corruptions.get_or_create(&EVENTS_TABLE).inc();
        tracing::error!(
            first = flushed.next().0,
            last = before_log.0,
            "the events of these log records are lost: the events table ends before them and the log \
             starts after them. Data files that are in no commit are kept; stop the server and restore \
             tables/events or wal from a backup to get the events back"
        );
        store.table().mark_damaged().await?;
    }
    Ok(())
}

/// Opens the log, to continue after the records in files and in the identity store. The replay reports damage in
/// records that it reads; [`note_lost_rows`] reports records that are missing before the log.
pub(super) async fn open_log(
    process: &Process,
    tables: &Tables,
    access: TablesAccess,
    disk: &Arc<dyn Disk>,
    store: &Store,
    identities: &Identities,
) -> Result<OpenLog, OpenError> {
    let Process { config, metrics, .. } = process;
    let durable = store.flushed_through();
    // Files or persons contain these sequences, whatever happened to the log: they are not assigned again.
    let applied = Sequence(identities.applied_sequence());
    let elsewhere = Elsewhere { durable, seen: durable.max(applied) };
    let Some(objects) = bucket_of_log(config, tables, access).await? else {
        return open_on_disk(config, disk, elsewhere, metrics);
    };
    let had_by_all = durable.min(applied);
    if access != TablesAccess::Write {
        let (pauses, runtime) = (pauses(process), process.runtimes.main.clone());
        let log = ObjectLog::read(objects, elsewhere, had_by_all, pauses, runtime).await?;
        let has_records = log.last_appended() > Sequence(0);
        return Ok(OpenLog {
            log: Log::Own(Box::new(log)),
            has_records,
            segments: None,
            rivals: None,
        });
    }
    refuse_log_on_disk(config, disk, elsewhere, metrics)?;
    let writer = Uuid::new_v4();
    let action = Action::TakeLog { writer: writer.to_string() };
    let operation = Operation { project: ProjectId(0), at: process.clock.now(), by: None, action };
    let told = Arc::clone(metrics);
    let settings = ObjectLogSettings {
        objects,
        writer,
        claim: operation.encode().into(),
        elsewhere,
        had_by_all,
        pauses: pauses(process),
        doubt: Arc::new(move |in_doubt| {
            told.log_in_doubt.set(i64::from(in_doubt));
        }),
    };
    let log = ObjectLog::claim(settings, process.runtimes.main.clone()).await?;
    let claimed = log.last_appended();
    metrics.log_claimed.set(i64::try_from(claimed.0).unwrap_or(i64::MAX));
    tracing::info!(last = claimed.0, seen = elsewhere.seen.0, "took over the log in the bucket");
    let has_records = elsewhere.seen > Sequence(0) || log.files().has_requests().await?;
    let rivals = Some(log.rivals());
    Ok(OpenLog { log: Log::Own(Box::new(log)), has_records, segments: None, rivals })
}

/// The store of a log in a bucket; `None` if it is on disk.
async fn bucket_of_log(
    config: &Config,
    tables: &Tables,
    access: TablesAccess,
) -> Result<Option<Arc<dyn ObjectStore>>, OpenError> {
    let Some(objects) = tables.shard() else { return Ok(None) };
    let is_wanted = config.storage.bucket.storage_log == LogPlace::Bucket;
    if access == TablesAccess::Write && is_wanted {
        return Ok(Some(objects));
    }
    if !object_log::exists(&*objects).await? {
        return Ok(None);
    }
    match access {
        TablesAccess::Write => Err(OpenError::Incomplete {
            path: config.storage.data_dir.join("storage-url"),
            problem: "names a bucket that has the log, too: start with --storage-log bucket"
                .to_owned(),
        }),
        TablesAccess::Read | TablesAccess::Copy => Ok(Some(objects)),
    }
}

/// Waits between attempts of a request until the process ends, longer each time.
pub(super) fn pauses(process: &Process) -> Pauses {
    let shutdown = process.tasks.shutdown().clone();
    Pauses::new(move |attempt| {
        let shutdown = shutdown.clone();
        let pause = PAUSES.0.saturating_mul(1 << attempt.min(8)).min(PAUSES.1);
        Box::pin(async move { shutdown.pause(pause).await == Pause::Elapsed })
    })
}

/// Refuses a log in a bucket while one on disk has records that are in no files.
fn refuse_log_on_disk(
    config: &Config,
    disk: &Arc<dyn Disk>,
    elsewhere: Elsewhere,
    metrics: &Metrics,
) -> Result<(), OpenError> {
    let path = config.storage.data_dir.join("wal");
    if !path.is_dir() {
        return Ok(());
    }
    let left = open_on_disk(config, disk, elsewhere, metrics)?.log.end();
    match left > elsewhere.durable {
        true => Err(OpenError::Incomplete {
            path,
            problem: format!(
                "has records after {}, the last one in files: start with --storage-log disk, and stop that server in \
                 order, before the log goes into the bucket",
                elsewhere.durable
            ),
        }),
        false => Ok(()),
    }
}

fn open_on_disk(
    config: &Config,
    disk: &Arc<dyn Disk>,
    elsewhere: Elsewhere,
    metrics: &Metrics,
) -> Result<OpenLog, OpenError> {
    let Elsewhere { durable, seen } = elsewhere;
    let settings = WalSettings {
        dir: config.storage.data_dir.join("wal"),
        segment_max_bytes: config.storage.wal_segment_max_bytes.as_u64(),
    };
    let salt = Uuid::new_v4().as_u64_pair().1;
    let (wal, recovered) = Wal::open(Arc::clone(disk), settings, elsewhere, salt)?;
    let is_replayed = |damage: Damage| damage.last().is_none_or(|last| last > durable);
    for Corruption { path, offset, damage, .. } in recovered.corruptions {
        if !is_replayed(damage) {
            metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).inc();
            // Relative to the data directory: a command reads a copy, which is removed afterwards.
            let path = path.strip_prefix(&config.storage.data_dir).unwrap_or(&path);
            tracing::error!(
                path = %path.display(),
                offset,
                %damage,
                "the log is damaged, but all damaged records are in files: no event is lost"
            );
        }
    }
    if recovered.torn_bytes > 0 {
        let bytes = recovered.torn_bytes;
        tracing::info!(
            bytes,
            "ignored a torn write at the end of the log; it was never acknowledged"
        );
    }
    tracing::info!(last = recovered.last.0, seen = seen.0, "the log is open");
    let has_records = wal.last_appended() > Sequence(0);
    let segments = Some(wal.files());
    Ok(OpenLog { log: Log::Own(Box::new(wal)), has_records, segments, rivals: None })
}
