//! One log and everything that is derived from it: the events table, persons, the write path, the read path, their
//! maintenance ([`Shard`]). Failures are isolated: if the log fails, requests to this shard are refused, and nothing
//! else. Process-wide state is in [`super::node`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use arrow::datatypes::SchemaRef;
use tokio::sync::Mutex;

use crate::directory::check_files;
use crate::error::OpenError;
use crate::images::{IMAGE_CACHE, images_of, restore_identities};
use crate::log::{EVENTS_TABLE, OpenLog, note_lost_persons, note_lost_rows, open_log};
use crate::maintenance::images::IdentityImages;
use crate::maintenance::{Maintenance, cohorts, projects, usage};
use crate::node::{Node, Process, TasksHandle};
use crate::tables::TablesAccess;
use crate::{follow, live_files, tables};
use weir_base::config::Config;
use weir_base::tasks::{Pause, TaskError, Tasks};
use weir_base::telemetry::metrics::Metrics;
use weir_disk::{Disk, OsDisk};
use weir_evaluation::Evaluator;
use weir_event::geoip::Places;
use weir_event::id::{EventKey, ProjectId, ShardId};
use weir_event::promotion::PromotedTable;
use weir_identity::IdentityError;
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_ingest::recent::recent_keys;
use weir_ingest::{Engines, Foundations, Pipeline};
use weir_metadata::Metadata;
use weir_query::kernel::engine;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::sources::Sources;
use weir_query::persons::person_table::{PersonTable, PersonTableSettings, TableOf};
use weir_storage::object_log::Rivals;
use weir_storage::store::Store;
use weir_storage::tables::Tables;

/// Pause before a second attempt to load the overrides of merged persons.
const OVERRIDES_PAUSE: Duration = Duration::from_secs(10);

/// The stores of a shard, with what they contain from earlier runs. They are opened before the metadata store, since
/// they distinguish its loss from a first start.
#[derive(Debug)]
pub(super) struct Stores {
    pub(super) tables: Tables,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) store: Store,
    pub(super) identities: Identities,
    /// Its images in the bucket, if the log is there.
    pub(super) images: Option<Arc<IdentityImages>>,
    pub(super) log: OpenLog,
}

/// Purpose of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It serves: queries read the files of persons, and background jobs keep everything up to date.
    Serve,
    /// It is a copy for queries: the log is replayed into it, and nothing else changes it.
    Copy,
    /// Another server writes it: what that puts into the log and into files is applied here, and nothing is written.
    Follow,
}

/// All handles of a shard, which runs on a [`Node`].
#[derive(Debug)]
pub struct Shard {
    /// Which one it is.
    pub id: ShardId,
    /// Where the tables are.
    pub tables: Tables,
    /// Persons.
    pub identities: Identities,
    /// The write path.
    pub pipeline: Pipeline,
    /// Evaluates flags.
    pub evaluator: Evaluator,
    /// The read path, for background jobs.
    pub(super) engine: Engine,
    pub(super) maintenance: Maintenance,
    /// Serializes flushes on demand.
    pub(super) flushing: Mutex<()>,
    /// Detects whether another server has taken over the log, if it is in a bucket.
    rivals: Option<Rivals>,
    /// The settings, with the directory of this shard and its part of the memory.
    pub config: Config,
    /// Spawns what ends with this shard.
    pub(super) tasks: TasksHandle,
    /// Projects and definitions, and the times of the records of this log.
    pub metadata: Metadata,
    /// The metrics of this shard.
    pub metrics: Arc<Metrics>,
    pub(super) node: Arc<Node>,
}

impl Stores {
    /// Opens the events table, the identity store and the log.
    pub(super) async fn open(process: &Process, access: TablesAccess) -> Result<Self, OpenError> {
        let Process { shard, config, clock, metrics, .. } = process;
        let tables = tables::open(config, *shard, access, clock, metrics).await?;
        let tables = match access {
            TablesAccess::Write => tables::with_cache(process, tables)?,
            _ => tables,
        };
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let store = tables::events_store(config, *shard, &tables, clock).await?;
        let damaged = u64::try_from(store.table().damage().len()).unwrap_or(u64::MAX);
        metrics.corruptions.get_or_create(&EVENTS_TABLE).inc_by(damaged);
        let limits = Limits::within(config.ingest.identity_cache_max_bytes.as_u64());
        let data_dir = config.storage.data_dir.as_path();
        let images = images_of(config, &tables, access);
        if let Some(images) = &images {
            restore_identities(images, data_dir, limits, Some(&data_dir.join(IMAGE_CACHE))).await?;
        }
        let identities = Identities::open(&data_dir.join("identity"), limits)?;
        let images = match images {
            Some(images) => {
                let interval = config.storage.bucket.identity_image_interval;
                let (applied, now) = (identities.applied_sequence(), clock.monotonic());
                let opening = IdentityImages::open(images, data_dir, interval, applied, now);
                Some(Arc::new(opening.await?))
            }
            None => None,
        };
        let log = open_log(process, &tables, access, &disk, &store, &identities).await?;
        note_lost_persons(&identities, &*log.log.files(), metrics)?;
        Ok(Self { tables, disk, store, identities, images, log })
    }

    /// Whether they were in use before, that is, contain acknowledged events.
    pub(super) fn has_events(&self) -> bool {
        self.log.has_records || !self.store.table().current().files.is_empty()
    }
}

impl Shard {
    /// The columns of a table, also those that projects have promoted and that other programs have added. That of persons
    /// is read from its place: whoever writes it may take long.
    ///
    /// # Errors
    ///
    /// The table of persons cannot be opened.
    pub async fn columns(&self, table: PromotedTable) -> Result<SchemaRef, OpenError> {
        match table {
            PromotedTable::Events => {
                Ok(Arc::clone(&self.maintenance.store.table().current().schema))
            }
            PromotedTable::Persons => {
                live_files::columns(&self.tables, TableOf::Persons.spec(), &self.node.clock).await
            }
        }
    }

    /// Starts the threads of the write path. Requests may arrive as soon as this returns; the replay of the log runs in
    /// the background.
    pub(super) async fn open(
        node: Arc<Node>,
        process: Process,
        stores: Stores,
        role: Role,
    ) -> Result<Self, OpenError> {
        let Stores { tables, disk, store, identities, images, log } = stores;
        read_overrides(&process.tasks, identities.clone())?;
        let metadata = node.metadata.of_log(store.app_id()).await?;
        if role != Role::Follow {
            note_lost_rows(&store, &*log.log.files(), &process.metrics).await?;
        }
        // Before the first change of persons.
        let person_tables = match role {
            Role::Serve => {
                remove_person_columns(&process.config.storage.data_dir);
                person_tables((&node, &process.config), &tables, &store, &identities)?
            }
            Role::Copy | Role::Follow => Vec::new(),
        };
        let engines = Engines {
            shard: process.shard,
            places: node.places.clone().map_or(Places::Unknown, Places::Database),
            metadata: metadata.clone(),
            store: store.clone(),
            identities: identities.clone(),
            disk,
        };
        let (seed, foundations) = (seed(&store, &process), foundations(&node, &process));
        let pipeline = Pipeline::start(engines, log.log, &process.config, foundations, seed)?;
        if let Some(segments) = log.segments {
            pipeline.keep_spare_segment(&process.tasks, segments, &process.config)?;
        }
        let Process { shard: id, config, tasks, runtimes, clock, metrics, distribute, .. } =
            process;
        let sources = Sources {
            store: store.clone(),
            identities: identities.clone(),
            metadata: metadata.clone(),
            progress: pipeline.progress(),
            persons: person_tables.first().cloned(),
            spill: Some(config.storage.data_dir.join("query-spill")),
        };
        let foundations = engine::Foundations {
            runtime: runtimes.query.clone(),
            resources: node.queries.clone(),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        };
        let engine = Engine::new(config.query.clone(), sources, foundations, distribute)?;
        let evaluator = Evaluator::new(engine.barrier(), &metadata, &tasks, &node.decoding);
        let maintenance = Maintenance {
            settings: config.storage.clone(),
            store,
            identities: identities.clone(),
            images,
            person_tables,
            asked_of_persons: Arc::default(),
            pipeline: pipeline.clone(),
            metadata: metadata.clone(),
            runtime: runtimes.main.clone(),
            clock,
            metrics: Arc::clone(&metrics),
        };
        Ok(Self {
            id,
            tables,
            identities,
            pipeline,
            evaluator,
            engine,
            maintenance,
            flushing: Mutex::default(),
            rivals: log.rivals,
            tasks: TasksHandle(tasks),
            metadata,
            metrics,
            config,
            node,
        })
    }

    /// Detects whether another server has taken over the log, if it is in a bucket.
    pub fn rivals(&self) -> Option<Rivals> {
        self.rivals.clone()
    }

    /// Makes an image of persons if a log in a bucket lacks their records, as after a log that was on disk.
    pub(super) async fn make_first_image(&self) -> Result<(), OpenError> {
        let maintenance = self.maintenance.clone();
        let made = tokio::task::spawn_blocking(move || maintenance.make_first_image());
        match made.await {
            Ok(true) => Ok(()),
            _ => Err(OpenError::Incomplete {
                path: self.config.storage.data_dir.join("identity"),
                problem: "has persons that are in no image in the bucket, and none can be made; see the log above"
                    .to_owned(),
            }),
        }
    }

    /// Starts the background jobs: all of them, or in a copy only the flushes, without which a replay stops when the
    /// memtables are full, or those that follow another server.
    pub(super) fn start_jobs(&self, role: Role) -> Result<(), TaskError> {
        let tasks = &self.tasks.0;
        match role {
            Role::Copy => return self.maintenance.start_flushes(tasks),
            Role::Follow => return follow::start_jobs(self),
            Role::Serve => {}
        }
        tables::keep(tasks, &self.tables, &self.metrics)?;
        self.maintenance.clone().start(tasks)?;
        let store = self.maintenance.store.clone();
        tasks.spawn("check-files", check_files(store, Arc::clone(&self.metrics)));
        let interval = self.config.query.cohort_count_interval;
        cohorts::start(tasks, self.id, self.engine.clone(), self.metadata.clone(), interval);
        usage::start(tasks, self.engine.clone());
        let (metadata, identities) = (self.metadata.clone(), self.identities.clone());
        projects::start(tasks, metadata, identities, self.pipeline.clone());
        Ok(())
    }

    /// Waits, at most for `limit`, until every accepted request is in the log, and then until persons are up to date
    /// with it. To be called when no more requests arrive.
    pub async fn drain(&self, limit: Duration) {
        self.pipeline.drain(limit).await;
        // Records that persons have not applied by then are replayed at the next start.
        let _ = self.engine.wait().await;
    }

    /// Flushes the memtables to files, and writes changed persons into their table. The last step of a clean end, after
    /// [`Shard::drain`], and after the tasks were signalled to end. Blocks.
    pub(super) fn close(&self) -> Result<(), OpenError> {
        let runtime = &self.node.runtimes.main;
        if let Err(error) = runtime.block_on(self.pipeline.write_feedback()) {
            tracing::warn!(%error, "cannot store the last ingestion warnings; they are lost");
        }
        if let Err(error) = runtime.block_on(self.engine.write_usage()) {
            tracing::warn!(%error, "cannot store how often the last queries named events; these counts are lost");
        }
        self.maintenance.flush_all()?;
        self.maintenance.close_persons();
        self.maintenance.close_images();
        Ok(())
    }
}

/// Removes the columns of persons that earlier versions cached in files: they hold values of persons who may have been
/// deleted since.
fn remove_person_columns(data_dir: &Path) {
    let path = data_dir.join("person-columns");
    for removed in [fs::remove_file(path.with_extension("json")), fs::remove_dir_all(&path)] {
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = path.display().to_string();
                tracing::warn!(%error, path, "cannot remove the cached columns of an earlier version");
            }
            _ => {}
        }
    }
}

/// What the write path of a shard runs on.
fn foundations<'p>(node: &Node, process: &'p Process) -> Foundations<'p> {
    Foundations {
        tasks: &process.tasks,
        cpu: node.decoding.clone(),
        budget: node.requests.clone(),
        runtime: process.runtimes.main.clone(),
        clock: process.clock.clone(),
        metrics: Arc::clone(&process.metrics),
    }
}

/// Reads the keys of the newest events in files, to seed deduplication.
fn seed(
    store: &Store,
    process: &Process,
) -> impl FnOnce() -> Vec<(ProjectId, EventKey)> + Send + use<> {
    let window = process.config.ingest.dedup_window_events;
    let (files, runtime) = (store.clone(), process.runtimes.main.clone());
    move || runtime.block_on(recent_keys(&files, window))
}

/// The tables of the persons of all existing projects.
fn person_tables(
    of: (&Node, &Config),
    tables: &Tables,
    store: &Store,
    identities: &Identities,
) -> Result<Vec<Arc<PersonTable>>, IdentityError> {
    let kinds = [TableOf::Persons, TableOf::DistinctIds].into_iter();
    let table = |kind| person_table(kind, of, tables, store, identities).map(Arc::new);
    kinds.map(table).collect()
}

/// A table of the persons of all existing projects.
fn person_table(
    kind: TableOf,
    (node, config): (&Node, &Config),
    tables: &Tables,
    store: &Store,
    identities: &Identities,
) -> Result<PersonTable, IdentityError> {
    let (metadata, settings) = (node.metadata.clone(), &config.storage);
    let projects = move || metadata.snapshot().projects().map(|project| project.id).collect();
    PersonTable::new(PersonTableSettings {
        kind,
        tables: tables.clone(),
        identities: identities.clone(),
        projects: Arc::new(projects),
        app_id: store.app_id().to_owned(),
        runtime: node.runtimes.main.clone(),
        clock: node.clock.clone(),
        interval: settings.persons_table_interval,
        stale_max: settings.deletion_interval,
        columns_bytes_max: config.query.person_columns_memory_max_bytes.as_u64(),
    })
}

/// Loads the overrides of merged persons in the background. Until that is done, queries look up each person.
fn read_overrides(tasks: &Tasks, identities: Identities) -> Result<(), TaskError> {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_background_thread("overrides", move || {
        while let Err(error) = identities.read_overrides(|| !shutdown.is_cancelled()) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "cannot load the merged persons; queries look up each person until the next attempt"
            );
            if shutdown.pause_thread(OVERRIDES_PAUSE) == Pause::Cancelled {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::remove_person_columns;

    #[test]
    fn cached_columns_of_earlier_versions_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir_all(path.join("person-columns/1")).unwrap();
        fs::write(path.join("person-columns/1/email"), "a@b.c").unwrap();
        fs::write(path.join("person-columns.json"), "{}").unwrap();
        fs::write(path.join("lock"), "").unwrap();
        for _ in 0..2 {
            remove_person_columns(path);
            let left = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(left.collect::<Vec<_>>(), ["lock"]);
        }
    }
}
