//! Opening of the write-ahead log: the position at which it continues, and detection of records that are
//! neither in it nor in the stores derived from it.

use std::sync::Arc;

use uuid::Uuid;

use crate::app::error::OpenError;
use crate::config::Config;
use crate::identity::store::Identities;
use crate::storage::disk::Disk;
use crate::storage::log::LogFiles;
use crate::storage::log::LogWriter;
use crate::storage::store::Store;
use crate::storage::wal::Corruption;
use crate::storage::wal::Damage;
use crate::storage::wal::Elsewhere;
use crate::storage::wal::Sequence;
use crate::storage::wal::WalSettings;
use crate::storage::wal::files::WalFiles;
use crate::storage::wal::writer::Wal;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::PlaceLabels;

/// Label under which damage of the events table is counted.
pub(super) const EVENTS_TABLE: PlaceLabels = PlaceLabels { place: "events" };

/// The log of a shard.
#[derive(Debug)]
pub(super) struct OpenLog {
    pub(super) writer: Box<dyn LogWriter>,
    /// Its segment files, of which a spare one is kept.
    pub(super) segments: WalFiles,
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

/// Opens the log, to continue after the records in files and in the identity store. The replay reports
/// damage in records that it reads; [`note_lost_rows`] reports records that are missing before the log.
pub(super) fn open_log(
    config: &Config,
    disk: &Arc<dyn Disk>,
    (store, identities): (&Store, &Identities),
    metrics: &Metrics,
) -> Result<OpenLog, OpenError> {
    let durable = store.flushed_through();
    // Files or persons contain these sequences, whatever happened to the log: they are not assigned again.
    let seen = durable.max(Sequence(identities.applied_sequence()));
    let elsewhere = Elsewhere { durable, seen };
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
    Ok(OpenLog { segments: wal.files(), writer: Box::new(wal) })
}
