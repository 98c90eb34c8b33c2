//! The log of a data directory as it is opened: where it goes on, and what neither it nor the tables have.

use std::sync::Arc;

use uuid::Uuid;

use crate::app::EVENTS_TABLE;
use crate::app::OpenError;
use crate::config::Config;
use crate::identity::store::Identities;
use crate::storage::disk::Disk;
use crate::storage::store::Store;
use crate::storage::wal::Corruption;
use crate::storage::wal::Damage;
use crate::storage::wal::Elsewhere;
use crate::storage::wal::Sequence;
use crate::storage::wal::WalSettings;
use crate::storage::wal::writer::Wal;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::PlaceLabels;

/// Whether the directory was in use before: events were acknowledged.
pub(super) fn has_events(store: &Store, wal: &Wal) -> bool {
    wal.last_appended() > Sequence(0) || !store.table().current().files.is_empty()
}

/// Notices that the identity store cannot be brought up to date from the log, which is so after its
/// directory was lost: what it then lacks must not be taken for what there is.
pub(super) fn note_lost_persons(
    identities: &Identities,
    wal: &Wal,
    metrics: &Metrics,
) -> Result<(), OpenError> {
    let applied = Sequence(identities.applied_sequence());
    if applied < wal.files().before_oldest() {
        identities.mark_incomplete()?;
    }
    if identities.is_incomplete()? {
        metrics.identity_incomplete.set(1);
    }
    Ok(())
}

/// Notices events that are neither in the table nor in the log. The log is cut only up to the position
/// that a commit of the table has: if the table is behind the log's beginning, its last commits are
/// gone. They leave no gap in the table's own log, so that nothing else shows it.
pub(super) async fn note_lost_rows(
    store: &Store,
    wal: &Wal,
    metrics: &Metrics,
) -> Result<(), OpenError> {
    let flushed = store.flushed_through();
    let before_log = wal.files().before_oldest();
    if flushed < before_log {
        metrics.corruptions.get_or_create(&EVENTS_TABLE).inc();
        tracing::error!(
            first = flushed.next().0,
            last = before_log.0,
            "the events of these log records are lost: the events table ends before them and the log \
             begins after them. Data files that no commit names are kept; stop the server and restore \
             tables/events or wal from a backup to get the events back"
        );
        store.table().mark_damaged().await?;
    }
    Ok(())
}

/// The log, ready to continue behind what files and persons have. Damage that the replay will meet is
/// left to it, and what is missing before the log to [`note_lost_rows`].
pub(super) fn open_log(
    config: &Config,
    disk: &Arc<dyn Disk>,
    (store, identities): (&Store, &Identities),
    metrics: &Metrics,
) -> Result<Wal, OpenError> {
    let durable = store.flushed_through();
    // Both have seen these sequences, whatever became of the log: they are not given again.
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
            // Within the data directory: a command reads a copy of it, which is gone afterwards.
            let path = path.strip_prefix(&config.storage.data_dir).unwrap_or(&path);
            tracing::error!(
                path = %path.display(),
                offset,
                %damage,
                "the log is damaged where all of it is in files: no event is lost"
            );
        }
    }
    if recovered.torn_bytes > 0 {
        let bytes = recovered.torn_bytes;
        tracing::info!(bytes, "cut an unfinished, unacknowledged write off the log");
    }
    tracing::info!(last = recovered.last.0, seen = seen.0, "the log is open");
    Ok(wal)
}
