//! Background jobs: flush memtables and truncate the log, compact small files, rewrite files with deleted events,
//! vacuum replaced files, watch disk space, update the tables of persons, make images of the identity store, apply
//! scheduled flag changes, count cohorts, store usage counts of events.
//!
//! Flushes, merges and the tables of persons have one thread each, so that a long merge never delays a flush. The decisions
//! are made in `storage` (`Store::insert`, `compaction::choose`) and `query`; the jobs carry them out.

pub mod cohorts;
mod deletions;
pub mod files;
pub mod images;
pub mod projects;
pub mod promotions;
pub mod schedules;
pub mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::maintenance::files::{Files, FilesError, Merged};
use crate::maintenance::images::{IdentityImages, Maker};
use crate::maintenance::promotions::AskedColumns;
use weir_base::clock::Clock;
use weir_base::config::bucket::LogPlace;
use weir_base::config::storage::StorageConfig;
use weir_base::tasks::{Pause, Shutdown, TaskError, Tasks};
use weir_base::telemetry::metrics::{Metrics, PlaceLabels, TableLabels};
use weir_identity::deletions::KeptFrom;
use weir_identity::store::Identities;
use weir_ingest::Pipeline;
use weir_metadata::Metadata;
use weir_metadata::accounts::Project;
use weir_query::persons::person_table::{PersonTable, PersonsError, Step, Written};
use weir_storage::compaction::Limits;
use weir_storage::delta::error::TableError;
use weir_storage::store::{Store, StoreError};
use weir_storage::wal::Sequence;

/// Time between checks of the memtables.
const TICK: Duration = Duration::from_millis(50);

/// Time between checks of the disk space.
const DISK_INTERVAL: Duration = Duration::from_secs(1);

/// Time between listings of all files of a table in a bucket, each of which is one request per thousand files.
const ORPHANS_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Pause after a failed flush: limits retries on a broken disk and lines in the log.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Longest and shortest time between checks for changed persons, for their tables.
const PERSONS_TICK: Duration = Duration::from_secs(5);
const PERSONS_TICK_MIN: Duration = Duration::from_millis(20);

/// Pause after a step of a table of persons, as a multiple of its duration: at most a tenth of one core; half of one
/// if the time of deleted values is nearly over, or if readers wait for it.
const REST_AFTER_RENEWED: u32 = 9;
const REST_AFTER_LATE: u32 = 1;

/// Time between checks whether an image of persons is due.
const IMAGES_TICK: Duration = Duration::from_millis(250);

/// Longest time for the image of persons at the end of the process.
const CLOSING_IMAGE_MAX: Duration = Duration::from_secs(60);

/// Longest wait of [`Maintenance::flush_all`] for the identity store to catch up with the log.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// Name of the events table in metrics.
const EVENTS: TableLabels = TableLabels { table: "events" };

/// Label under which damage of the tables of persons is counted.
const PERSONS_TABLE: PlaceLabels = PlaceLabels { place: "persons" };

/// Handles that the background jobs share.
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// Settings of sizes and times.
    pub settings: StorageConfig,
    /// The events table.
    pub store: Store,
    /// Persons, which must be durable before the log is cut.
    pub identities: Identities,
    /// Images of the persons, if persons have to survive the loss of this node's disk.
    pub images: Option<Arc<IdentityImages>>,
    /// The Delta tables of persons and of their distinct ids, if they are renewed.
    pub person_tables: Vec<Arc<PersonTable>>,
    /// The columns of promotions that the former was asked for.
    pub asked_of_persons: Arc<Mutex<AskedColumns>>,
    /// The log.
    pub pipeline: Pipeline,
    /// The projects, which decide how long events are kept.
    pub metadata: Metadata,
    /// The runtime for asynchronous work.
    pub runtime: Handle,
    /// Time.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

impl Maintenance {
    /// Starts the threads. They end when `tasks` shuts down.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    pub fn start(self, tasks: &Tasks) -> Result<(), TaskError> {
        self.start_flushes(tasks)?;
        if !self.person_tables.is_empty() {
            let (shutdown, renewer) = (tasks.shutdown().clone(), self.clone());
            let renewing = move || renewer.persons_loop(&shutdown);
            tasks.spawn_background_thread("persons", renewing)?;
        }
        if let Some(images) = self.images.clone() {
            let (shutdown, maker) = (tasks.shutdown().clone(), self.clone());
            let making = move || maker.images_loop(&images, &shutdown);
            tasks.spawn_background_thread("identity-images", making)?;
        }
        let shutdown = tasks.shutdown().clone();
        tasks.spawn_background_thread("compact", move || self.compaction_loop(&shutdown))
    }

    /// Starts only the flush thread, without which a replay stops when the memtables are full.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    pub fn start_flushes(&self, tasks: &Tasks) -> Result<(), TaskError> {
        let shutdown = tasks.shutdown().clone();
        let flusher = self.clone();
        let flushing = tasks.vital("flush", move || flusher.flush_loop(&shutdown));
        tasks.spawn_background_thread("flush", flushing)
    }

    fn flush_loop(&self, shutdown: &Shutdown) {
        let mut disk_seen = None;
        while shutdown.pause_thread(TICK) == Pause::Elapsed {
            let now = self.clock.monotonic();
            if disk_seen.is_none_or(|seen| now.saturating_sub(seen) >= DISK_INTERVAL) {
                disk_seen = Some(now);
                self.watch();
                self.promote();
            }
            self.store.freeze_aged();
            if self.flush_frozen().is_err() {
                shutdown.pause_thread(RETRY_PAUSE);
            }
        }
    }

    /// Flushes all memtables: at the end of the process, after the last event, and before files are
    /// searched for deleted events. Blocks; do not call it on a thread of a runtime.
    ///
    /// # Errors
    ///
    /// Rows that are not flushed stay in the log, and are replayed at the next start.
    pub fn flush_all(&self) -> Result<(), StoreError> {
        if !self.flush_within(FOLLOW_WAIT)? {
            tracing::warn!(
                "the flush is incomplete: the identity store has not caught up with the log; the remaining \
                 events stay in the log and are replayed at the next start"
            );
        }
        Ok(())
    }

    /// Flushes everything published before the call. `false` if the identity store has not applied the log
    /// up to there within `limit`: the remaining rows stay in memory and in the log, for a later flush.
    /// Blocks, as [`Maintenance::flush_all`] does.
    ///
    /// # Errors
    ///
    /// Rows that are not flushed stay in the log, and are replayed at the next start.
    pub fn flush_within(&self, limit: Duration) -> Result<bool, StoreError> {
        self.promote();
        let frozen = self.store.freeze().unwrap_or_default();
        let followed = frozen.max(self.pipeline.published());
        let following = self.identities.wait_applied(followed.0, limit);
        let is_followed = self.runtime.block_on(following).is_ok();
        self.flush_frozen()?;
        Ok(is_followed || self.store.flushed_through() >= frozen)
    }

    fn flush_frozen(&self) -> Result<(), StoreError> {
        loop {
            let began = self.clock.monotonic();
            match self.runtime.block_on(self.files().flush()) {
                Ok(None) => return Ok(()),
                Ok(Some(flushed)) => {
                    let took = self.clock.monotonic().saturating_sub(began);
                    self.metrics.flushes.inc();
                    self.metrics.flush_rows.inc_by(flushed.rows);
                    self.metrics.events_deleted.inc_by(flushed.dropped);
                    self.metrics.flush_seconds.observe(took.as_secs_f64());
                    tracing::info!(
                        rows = flushed.rows,
                        bytes = flushed.bytes,
                        through = flushed.through.0,
                        took_ms = took.as_millis(),
                        "flushed"
                    );
                    self.cut_log(flushed.through);
                }
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot flush");
                    if self.settings.bucket.storage_log == LogPlace::Bucket && error.is_fenced() {
                        self.pipeline.health().fence();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Time for which the oldest event that is in no file yet has been in memory, and the number of log records that
    /// are not in files.
    pub fn unflushed(&self) -> (Duration, u64) {
        let records = self.pipeline.published().0.saturating_sub(self.store.flushed_through().0);
        (self.store.unflushed_age(), records)
    }

    /// The times before which no events are kept now.
    fn kept_from(&self) -> KeptFrom {
        let now = self.clock.now();
        let snapshot = self.metadata.snapshot();
        let of = |project: &Arc<Project>| Some((project.id, project.kept_from(now)?));
        snapshot.projects().filter_map(of).collect()
    }

    fn files(&self) -> Files {
        let (store, identities) = (self.store.clone(), self.identities.clone());
        Files { store, identities, kept_from: Arc::new(self.kept_from()) }
    }

    /// Truncates the log up to the sequence that is durable in other stores: rows in files, persons in the
    /// identity store, or in images if this node's disk may be lost. A failure only makes the next replay longer.
    fn cut_log(&self, flushed: Sequence) {
        let derived = match &self.images {
            Some(images) => Ok(images.safe_through()),
            None => self.identities.persist().map_err(|error| error.to_string()),
        };
        let cut = derived.and_then(|derived| {
            let through = flushed.min(Sequence(derived));
            self.pipeline.log_files().truncate_through(through).map_err(|error| error.to_string())
        });
        if let Err(error) = cut {
            tracing::warn!(
                error,
                "cannot truncate the log; no data is lost, but the log grows and the next replay is longer"
            );
        }
    }

    /// Updates the metrics of the stores, and looks whether the disk has room.
    pub(super) fn watch(&self) {
        self.pipeline.look_at_disk();
        let accepted = self.metrics.events_accepted.get();
        self.metrics.accepted_lately.note(self.clock.monotonic(), accepted);
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.metrics.wal_bytes.set(gauge(self.pipeline.log_files().size_bytes()));
        let memtables = u64::try_from(self.store.memory_bytes()).unwrap_or(u64::MAX);
        self.metrics.memtable_bytes.set(gauge(memtables));
        let files = u64::try_from(self.store.table().current().files.len()).unwrap_or(u64::MAX);
        self.metrics.table_files.get_or_create(&EVENTS).set(gauge(files));
        self.metrics.deletions_pending.set(gauge(self.deletions_pending()));
        self.metrics.commits_settled.inner().store(self.store.commits_settled(), Ordering::Relaxed);
        let lag = self.pipeline.published().0.saturating_sub(self.identities.applied_sequence());
        self.metrics.identity_lag.set(gauge(lag));
        if let Some(images) = &self.images {
            let applied = self.identities.applied_sequence();
            let age = images.age(applied, self.clock.monotonic());
            self.metrics.identity_image_age.set(gauge(age.as_secs()));
        }
    }

    /// Number of deletions whose events may still be in files, those of projects that are not in the log yet included.
    fn deletions_pending(&self) -> u64 {
        let snapshot = self.metadata.snapshot();
        let projects = snapshot.deleted_projects().keys();
        let unlogged = projects.filter(|project| !self.identities.has_deleted(**project)).count();
        u64::try_from(self.identities.deletions().requests() + unlogged).unwrap_or(u64::MAX)
    }

    fn persons_loop(&self, shutdown: &Shutdown) {
        // Empty tables first, so that other engines can open them.
        for table in &self.person_tables {
            match table.create() {
                Ok((damaged, _)) => {
                    let damaged = u64::try_from(damaged).unwrap_or(u64::MAX);
                    self.metrics.corruptions.get_or_create(&PERSONS_TABLE).inc_by(damaged);
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    let table = table.name();
                    tracing::error!(
                        error,
                        table,
                        "cannot create a table of persons; it is created with the first files"
                    );
                }
            }
        }
        let settings = &self.settings;
        let interval = settings.persons_table_interval.min(settings.deletion_interval / 8);
        let tick = interval.clamp(PERSONS_TICK_MIN, PERSONS_TICK);
        let (mut rest, mut vacuumed_at) = (tick, self.clock.monotonic());
        while shutdown.pause_thread(rest) == Pause::Elapsed {
            let began = self.clock.monotonic();
            // Before the tables look who has changed.
            if let Err(error) = self.identities.purge_projects(|| !shutdown.is_cancelled()) {
                tracing::warn!(%error, "cannot remove the persons of deleted projects yet");
            }
            self.promote_of_persons(false);
            let rests = self.person_tables.iter().map(|table| self.step_persons(table, shutdown));
            // The sum of what was done determines the pause; without anything, there is a look each tick.
            rest = rests.flatten().reduce(Duration::saturating_add).unwrap_or(tick);
            if began.saturating_sub(vacuumed_at) >= settings.vacuum_grace {
                vacuumed_at = began;
                self.person_tables.iter().for_each(|table| self.vacuum_persons(table));
            }
        }
    }

    /// One step of a table of persons. Returns for how long to pause because of it; `None` if there was nothing to do.
    fn step_persons(&self, table: &PersonTable, shutdown: &Shutdown) -> Option<Duration> {
        let began = self.clock.monotonic();
        let step = table.step(&|| shutdown.is_cancelled()).unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            let table = table.name();
            tracing::error!(
                error,
                table,
                "cannot write persons into their table; it stays as it was"
            );
            Step::None
        });
        let took = self.clock.monotonic().saturating_sub(began);
        if let Step::Renewed(written) | Step::Late(written) = step {
            self.note_persons(table, written, took);
        }
        match step {
            Step::None => None,
            Step::Verified | Step::Late(_) => Some(took.saturating_mul(REST_AFTER_LATE)),
            Step::Renewed(_) => Some(took.saturating_mul(REST_AFTER_RENEWED)),
        }
    }

    fn note_persons(&self, table: &PersonTable, written: Written, took: Duration) {
        let files = i64::try_from(table.files()).unwrap_or(i64::MAX);
        let labels = TableLabels { table: table.name() };
        self.metrics.table_files.get_or_create(&labels).set(files);
        tracing::info!(
            table = table.name(),
            rows = written.rows,
            bytes = written.bytes,
            files = written.files,
            through = written.through,
            took_ms = took.as_millis(),
            "wrote persons"
        );
    }

    fn vacuum_persons(&self, table: &PersonTable) {
        match table.vacuum(self.settings.vacuum_grace) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => tracing::info!(files = removed.len(), "removed replaced persons"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    table = table.name(),
                    "cannot remove replaced files of persons; the next vacuum tries again"
                );
            }
        }
    }

    /// Writes all changed persons into their tables, once they change no more. A failure leaves a table as it was; the
    /// next process continues. Blocks; do not call it on a thread of a runtime.
    pub fn close_persons(&self) {
        self.promote_of_persons(true);
        self.person_tables.iter().for_each(|table| self.close_table(table));
    }

    /// Writes the persons as of now into their tables, with all promoted columns. `false` if the shutdown began. Blocks; do not
    /// call it on a thread of a runtime.
    ///
    /// # Errors
    ///
    /// A table stays as it was.
    pub fn write_persons(&self, shutdown: &Shutdown) -> Result<bool, PersonsError> {
        let applied = self.identities.applied_sequence();
        self.promote_of_persons(true);
        for table in &self.person_tables {
            let began = self.clock.monotonic();
            let written = table.write_until(applied, &|| shutdown.is_cancelled())?;
            if let Some(written) = written {
                self.note_persons(table, written, self.clock.monotonic().saturating_sub(began));
            }
        }
        Ok(!shutdown.is_cancelled())
    }

    fn close_table(&self, table: &PersonTable) {
        let began = self.clock.monotonic();
        match table.close() {
            Ok(None) => {}
            Ok(Some(written)) => {
                self.note_persons(table, written, self.clock.monotonic().saturating_sub(began));
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                let table = table.name();
                tracing::error!(
                    error,
                    table,
                    "cannot write persons into their table; it stays as it was"
                );
            }
        }
    }

    fn images_loop(&self, images: &IdentityImages, shutdown: &Shutdown) {
        while shutdown.pause_thread(IMAGES_TICK) == Pause::Elapsed {
            let (maker, now) = (self.image_maker(), self.clock.monotonic());
            if images.is_due(self.identities.applied_sequence(), maker.log_bytes, now) {
                images.run(&maker, shutdown.cancelled());
            }
        }
    }

    /// Makes the first image, if the log does not go back to the first record: without one, persons would be lost with
    /// the disk. Returns whether none is missing. To be called before the first request. Blocks; do not call it on a
    /// thread of a runtime.
    pub fn make_first_image(&self) -> bool {
        let Some(images) = &self.images else { return true };
        let is_missing =
            || images.is_empty() && self.pipeline.log_files().before_oldest() > Sequence(0);
        if is_missing() {
            images.run(&self.image_maker(), std::future::pending());
        }
        !is_missing()
    }

    /// Makes an image of all persons, so that the next node need not replay the log. To be called after the last flush.
    /// A failure only makes the next start longer. Blocks; do not call it on a thread of a runtime.
    pub fn close_images(&self) {
        let Some(images) = &self.images else { return };
        if images.is_behind(self.identities.applied_sequence()) {
            let ended = async { tokio::time::sleep(CLOSING_IMAGE_MAX).await };
            images.run(&self.image_maker(), ended);
        }
    }

    fn image_maker(&self) -> Maker<'_> {
        let Self { identities, pipeline, runtime, clock, metrics, .. } = self;
        let log_bytes = pipeline.log_files().size_bytes();
        Maker { identities, runtime, clock, metrics, log_bytes }
    }

    fn compaction_loop(&self, shutdown: &Shutdown) {
        let (mut deleted_at, mut counted) = (None, BTreeSet::new());
        let mut orphans_at = None;
        // The times from which events were kept at the last pass over the files.
        let mut kept_from = KeptFrom::new();
        let interval = self.settings.deletion_interval;
        let pause = self.settings.compaction_interval.min(interval);
        while shutdown.pause_thread(pause) == Pause::Elapsed {
            // Otherwise the first files after a start would lack the columns.
            self.promote();
            // The first pass follows soon after the start: the server may have been down for long.
            let now = self.clock.monotonic();
            if deleted_at.is_none_or(|at| now.saturating_sub(at) >= interval) {
                match self.delete_events(&mut kept_from, shutdown) {
                    Ok(is_over) => deleted_at = is_over.then_some(now),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(
                            error,
                            "cannot delete events from files; answers leave them out, and the next pass tries again"
                        );
                    }
                }
            }
            self.merge_all(&mut counted, shutdown);
            let has_orphans = self.settings.bucket.storage_url.is_none()
                || orphans_at.is_none_or(|at| now.saturating_sub(at) >= ORPHANS_INTERVAL);
            let vacuumed = self.vacuum(has_orphans);
            if has_orphans && vacuumed.is_ok() {
                orphans_at = Some(now);
            }
            match vacuumed {
                Ok(removed) if removed.is_empty() => {}
                Ok(removed) => tracing::info!(files = removed.len(), "removed replaced files"),
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "cannot remove replaced files of the events table; the next vacuum tries again"
                    );
                }
            }
        }
    }

    /// Removes files that merges replaced; with orphans, which only a list of all files shows, also those of
    /// commits that failed.
    fn vacuum(&self, has_orphans: bool) -> Result<Vec<String>, TableError> {
        let (table, grace) = (self.store.table(), self.settings.vacuum_grace);
        match has_orphans {
            true => self.runtime.block_on(table.vacuum(grace)),
            false => self.runtime.block_on(table.vacuum_removed(grace)),
        }
    }

    /// Removes deleted events from files, and those that are older than their project keeps them, unless that was done for
    /// the times in `kept_before`. `false` if some remain: the shutdown began, the identity store
    /// has not caught up with the log, or not all of the log is in files.
    fn delete_events(
        &self,
        kept_before: &mut KeptFrom,
        shutdown: &Shutdown,
    ) -> Result<bool, FilesError> {
        let kept_from = self.kept_from();
        if self.identities.deletions().is_empty() && kept_from == *kept_before {
            return Ok(true);
        }
        let began = self.clock.monotonic();
        // Flushed first, without deleted rows, so that the whole log is in files.
        self.flush_all()?;
        let files = Files { kept_from: Arc::new(kept_from.clone()), ..self.files() };
        let erasing = files.erase(self.clock.now(), shutdown);
        let Some(erased) = self.runtime.block_on(erasing)? else { return Ok(false) };
        *kept_before = kept_from;
        self.metrics.events_deleted.inc_by(erased.rows);
        let took = self.clock.monotonic().saturating_sub(began);
        tracing::info!(
            requests = erased.requests,
            files = erased.files,
            rows = erased.rows,
            took_ms = took.as_millis(),
            "deleted events"
        );
        Ok(erased.is_all)
    }

    /// Runs all merges that are due, until the shutdown begins or the identity store lags behind the log. A
    /// file that cannot be read is left out. Each call tries it again, and `counted` ensures that it is
    /// counted as damaged once.
    fn merge_all(&self, counted: &mut BTreeSet<String>, shutdown: &Shutdown) {
        let limits = Limits {
            target_bytes: self.settings.compaction_target_bytes.as_u64(),
            files_min: self.settings.compaction_files_min,
        };
        let (all, mut unreadable) = (self.files(), BTreeSet::new());
        loop {
            let began = self.clock.monotonic();
            match self.runtime.block_on(all.merge_due(limits, &mut unreadable, shutdown)) {
                Ok(Some(Merged { files, rows, deleted })) => {
                    self.metrics.compactions.get_or_create(&EVENTS).inc();
                    self.metrics.events_deleted.inc_by(deleted);
                    let took = self.clock.monotonic().saturating_sub(began);
                    tracing::info!(files, rows, took_ms = took.as_millis(), "merged");
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "cannot merge files; they stay as they are"
                    );
                    let Some(path) = error.unreadable() else { return };
                    if counted.insert(path.to_owned()) {
                        let place = PlaceLabels { place: "table" };
                        self.metrics.corruptions.get_or_create(&place).inc();
                    }
                }
            }
        }
    }
}
