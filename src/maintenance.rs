//! The background: flushes memtables and cuts the log, merges small files, rewrites those with
//! deleted events, removes replaced ones, watches the disk, copies persons into their table, makes
//! scheduled changes of flags, counts cohorts, keeps columns of persons, notes what questions were about.
//! A thread each for flushes, merges, persons and their columns, so that a long merge never delays a
//! flush. The decisions are made in `storage` (`Store::insert`, `compaction::choose`) and `query`; here
//! they are carried out.

pub mod cohorts;
pub mod columns;
mod deletions;
pub mod files;
pub mod persons;
pub mod schedules;
pub mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::config::storage::StorageConfig;
use crate::identity::store::Identities;
use crate::ingest::Pipeline;
use crate::maintenance::files::Files;
use crate::maintenance::files::FilesError;
use crate::maintenance::files::Merged;
use crate::maintenance::persons::PersonsTable;
use crate::storage::compaction::Limits;
use crate::storage::store::Store;
use crate::storage::store::StoreError;
use crate::storage::wal::Sequence;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::tasks::TaskError;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::PlaceLabels;
use crate::telemetry::metrics::TableLabels;

/// Time between looks at the memtables.
const TICK: Duration = Duration::from_millis(50);

/// Time between looks at the disk.
const DISK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a failure, so that a broken disk is not hammered and the log not flooded.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// How long a flush of everything waits for persons to follow the events.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// Name of the events table in metrics.
const EVENTS: TableLabels = TableLabels { table: "events" };

/// Name of the persons table in metrics.
const PERSONS: TableLabels = TableLabels { table: "persons" };

/// Where damage of the persons table is counted.
const PERSONS_TABLE: PlaceLabels = PlaceLabels { place: "persons" };

/// What the background works on.
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// Settings of sizes and times.
    pub settings: StorageConfig,
    /// The events table.
    pub store: Store,
    /// Persons, which must be durable before the log is cut.
    pub identities: Identities,
    /// The copy of the persons for analysts.
    pub persons: Arc<PersonsTable>,
    /// The log.
    pub pipeline: Pipeline,
    /// Where asynchronous work runs.
    pub runtime: Handle,
    /// Time.
    pub clock: Clock,
    /// What is counted.
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
        let shutdown = tasks.shutdown().clone();
        let copier = self.clone();
        tasks.spawn_background_thread("persons", move || copier.persons_loop(&shutdown))?;
        let shutdown = tasks.shutdown().clone();
        tasks.spawn_background_thread("compact", move || self.compaction_loop(&shutdown))
    }

    /// Starts only the thread of flushes, without which a replay stops once the memtables are full.
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
            }
            self.store.freeze_aged();
            if self.flush_frozen().is_err() {
                shutdown.pause_thread(RETRY_PAUSE);
            }
        }
    }

    /// Flushes everything that is in memory: at the end of the process, after the last event, and
    /// before deleted events are sought in files. Blocks; not for the threads of a runtime.
    ///
    /// # Errors
    ///
    /// What is not flushed is still in the log, and will be replayed.
    pub fn flush_all(&self) -> Result<(), StoreError> {
        if !self.flush_within(FOLLOW_WAIT)? {
            tracing::warn!(
                "the flush is incomplete: the identity store has not caught up with the log; the remaining \
                 events stay in the log and are replayed at the next start"
            );
        }
        Ok(())
    }

    /// Flushes everything published before the call. `false` if the persons have not followed the log to there
    /// within `limit`: the rest stays in memory and in the log, for a later flush. Blocks, as
    /// [`Maintenance::flush_all`] does.
    ///
    /// # Errors
    ///
    /// What is not flushed is still in the log, and will be replayed.
    pub fn flush_within(&self, limit: Duration) -> Result<bool, StoreError> {
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
                    return Err(error);
                }
            }
        }
    }

    fn files(&self) -> Files {
        Files { store: self.store.clone(), identities: self.identities.clone() }
    }

    /// Removes the part of the log that is durable elsewhere: rows in files, and persons in their
    /// store. A failure only makes the next replay longer.
    fn cut_log(&self, flushed: Sequence) {
        let cut =
            self.identities.persist().map_err(|error| error.to_string()).and_then(|derived| {
                let through = flushed.min(Sequence(derived));
                self.pipeline.wal().truncate_through(through).map_err(|error| error.to_string())
            });
        if let Err(error) = cut {
            tracing::warn!(error, "cannot cut the log");
        }
    }

    fn watch(&self) {
        self.pipeline.look_at_disk();
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.metrics.wal_bytes.set(gauge(self.pipeline.wal().size_bytes()));
        let memtables = u64::try_from(self.store.memory_bytes()).unwrap_or(u64::MAX);
        self.metrics.memtable_bytes.set(gauge(memtables));
        let files = u64::try_from(self.store.table().current().files.len()).unwrap_or(u64::MAX);
        self.metrics.table_files.get_or_create(&EVENTS).set(gauge(files));
        let deletions = u64::try_from(self.identities.deletions().requests());
        self.metrics.deletions_pending.set(gauge(deletions.unwrap_or(u64::MAX)));
        let lag = self.pipeline.published().0.saturating_sub(self.identities.applied_sequence());
        self.metrics.identity_lag.set(gauge(lag));
    }

    fn persons_loop(&self, shutdown: &Shutdown) {
        // So that there is a table to open, if only an empty one.
        match self.persons.create() {
            Ok(damaged) => {
                let damaged = u64::try_from(damaged).unwrap_or(u64::MAX);
                self.metrics.corruptions.get_or_create(&PERSONS_TABLE).inc_by(damaged);
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "no table of persons");
            }
        }
        let mut took = Duration::ZERO;
        loop {
            let pause = persons::pause_after(took, self.settings.persons_table_interval);
            if shutdown.pause_thread(pause) == Pause::Cancelled {
                return;
            }
            let began = self.clock.monotonic();
            self.copy_persons(Some(shutdown));
            took = self.clock.monotonic().saturating_sub(began);
            match self.persons.vacuum(self.settings.vacuum_grace) {
                Ok(removed) if removed.is_empty() => {}
                Ok(removed) => tracing::info!(files = removed.len(), "removed replaced persons"),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "cannot vacuum persons");
                }
            }
        }
    }

    /// Copies the persons into their table if any changed since the last time; gives up when
    /// `shutdown` begins. A failure leaves the table as it was: it is a copy, and the next try
    /// brings what this one did not. Blocks; not for the threads of a runtime.
    pub fn copy_persons(&self, shutdown: Option<&Shutdown>) {
        let began = self.clock.monotonic();
        match self.persons.write(shutdown) {
            Ok(None) => {}
            Ok(Some(written)) => {
                let files = i64::try_from(written.files).unwrap_or(i64::MAX);
                self.metrics.table_files.get_or_create(&PERSONS).set(files);
                let took = self.clock.monotonic().saturating_sub(began);
                tracing::info!(
                    rows = written.rows,
                    bytes = written.bytes,
                    files = written.files,
                    through = written.through,
                    took_ms = took.as_millis(),
                    "copied persons"
                );
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "cannot copy persons into their table");
            }
        }
    }

    fn compaction_loop(&self, shutdown: &Shutdown) {
        let (mut deleted_at, mut counted) = (None, BTreeSet::new());
        let interval = self.settings.deletion_interval;
        let pause = self.settings.compaction_interval.min(interval);
        while shutdown.pause_thread(pause) == Pause::Elapsed {
            // The first time soon after the start, which may have been long after the last end.
            let now = self.clock.monotonic();
            if deleted_at.is_none_or(|at| now.saturating_sub(at) >= interval) {
                match self.delete_events(shutdown) {
                    Ok(is_over) => deleted_at = is_over.then_some(now),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "cannot delete events from files; they are hidden");
                    }
                }
            }
            self.merge_all(&mut counted, shutdown);
            let vacuumed = self.store.table().vacuum(self.settings.vacuum_grace);
            match self.runtime.block_on(vacuumed) {
                Ok(removed) if removed.is_empty() => {}
                Ok(removed) => tracing::info!(files = removed.len(), "removed replaced files"),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot vacuum");
                }
            }
        }
    }

    /// Has deleted events leave the files. `false` if some are left over: the shutdown began, the
    /// persons have not followed the log, or not all of the log is in files.
    fn delete_events(&self, shutdown: &Shutdown) -> Result<bool, FilesError> {
        if self.identities.deletions().is_empty() {
            return Ok(true);
        }
        let began = self.clock.monotonic();
        // Rows in memory go to files without those that are deleted, and with them the log's end.
        self.flush_all()?;
        let files = self.files();
        let erasing = files.erase(self.clock.now(), shutdown);
        let Some(erased) = self.runtime.block_on(erasing)? else { return Ok(false) };
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

    /// All merges that are due, but for files that cannot be read, until the shutdown begins or the
    /// persons have not followed the log. A file that cannot be read is tried each time, and counted as
    /// damaged once, in `counted`.
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
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot merge");
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
