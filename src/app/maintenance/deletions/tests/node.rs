//! Node for the deletion tests: real table, memtables, identity store and queries over an in-memory disk,
//! with a list as its log. [`Bench`] starts it, and compares its answers with the model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, StringViewArray, TimestampMicrosecondArray};
use clap::Parser;
use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokio::runtime::{Builder, Runtime};
use url::Url;
use uuid::Uuid;

use crate::maintenance::deletions::Erased;
use crate::maintenance::deletions::tests::PROJECTS;
use crate::maintenance::deletions::tests::model::{Entry, Model};
use crate::maintenance::files::Files;
use weir_base::clock::{Clock, UnixMicros};
use weir_base::config::query::QueryConfig;
use weir_base::config::storage::StorageConfig;
use weir_base::tasks::Shutdown;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::{PersonId, ProjectId};
use weir_event::schema::{
    BLOOM_COLUMNS, PARTITION_COLUMN, SORT_COLUMNS, STATISTICS_COLUMNS, UNIQUE_COLUMNS,
    WIDE_COLUMNS, column, events_schema,
};
use weir_event::time::{Month, partition_of};
use weir_identity::change::Record;
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_identity::view::Flow;
use weir_insights::sql;
use weir_metadata::Metadata;
use weir_progress::Progress;
use weir_query::kernel::engine::{Engine, Foundations};
use weir_query::kernel::resources::Resources;
use weir_query::kernel::sources::Sources;
use weir_query::output::format::Format;
use weir_sim::disk::SimDisk;
use weir_storage::delta::{DataFile, DeltaTable, Edit, EditKind, TableSpec};
use weir_storage::durable::DurableStore;
use weir_storage::exact::ExactColumns;
use weir_storage::parquet::{Layout, read_columns};
use weir_storage::rows::Rows;
use weir_storage::store::{Partitioning, Store};
use weir_storage::wal::Sequence;

pub(super) const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);
const LIMITS: Limits = Limits {
    ids_bytes: 1 << 20,
    rows_bytes: 1 << 20,
    blocks_bytes: 1 << 20,
    overrides_bytes: 1 << 16,
    part_bytes: 1 << 20,
};
pub(super) const TABLE: &str = "/data/tables/events";
const APP: &str = "node/1";

#[derive(Debug, Parser)]
struct Settings {
    #[command(flatten)]
    storage: StorageConfig,
    #[command(flatten)]
    query: QueryConfig,
}

pub(super) struct Node {
    pub(super) files: Files,
    engine: Engine,
    /// Records that are logged and not yet applied to the identity store.
    pub(super) waiting: Vec<Record>,
    /// A state of before that is held, and the events that each project had then.
    pub(super) held: Vec<(Engine, ProjectId, Vec<Uuid>)>,
}

pub(super) struct Bench {
    pub(super) runtime: Runtime,
    directory: tempfile::TempDir,
    metadata: Metadata,
    pub(super) clock: Clock,
    /// Number of images of the identity store.
    images: u32,
}

impl Bench {
    pub(super) fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Clock::test(NOW);
        let path = directory.path().join("metadata.db");
        let metadata = runtime.block_on(Metadata::open(&path, clock.clone())).expect("opens");
        Self { runtime, directory, metadata, clock, images: 0 }
    }

    /// A directory with the state of an identity store after a crash.
    pub(super) fn image(&mut self, of: Option<&Path>) -> PathBuf {
        self.images += 1;
        let image = self.directory.path().join(format!("identity-{}", self.images));
        if let Some(from) = of {
            copy(from, &image);
        }
        image
    }

    /// Starts a node on the state of the disk and the log.
    pub(super) fn start(&self, disk: &SimDisk, identity: &Path, log: &[Entry]) -> Node {
        let identities = Identities::open(identity, LIMITS).expect("opens");
        let store = self.runtime.block_on(open_store(disk, &self.clock));
        let sources = Sources {
            store: store.clone(),
            identities: identities.clone(),
            metadata: self.metadata.clone(),
            progress: Progress::Still,
            persons: None,
            spill: None,
        };
        let settings = Settings::parse_from(["weir"]).query;
        let foundations = Foundations {
            runtime: self.runtime.handle().clone(),
            resources: Resources::within(&settings),
            clock: self.clock.clone(),
            metrics: Arc::new(Metrics::new()),
        };
        let engine = Engine::new(settings, sources, foundations, None);
        let engine = engine.expect("an engine");
        let (flushed, derived) = (store.flushed_through(), identities.applied_sequence());
        let mut node = Node {
            files: Files { store, identities, kept_from: Arc::default() },
            engine,
            waiting: Vec::new(),
            held: Vec::new(),
        };
        for entry in log {
            if entry.record.sequence > flushed.0 {
                node.insert(entry);
            }
            if entry.record.sequence > derived {
                node.waiting.push(entry.record.clone());
            }
        }
        node
    }

    /// Checks all queries for ids, and the status of the requests.
    pub(super) fn check(&self, node: &mut Node, model: &Model, context: &str) {
        node.derive();
        for project in PROJECTS {
            let expected: Vec<Uuid> = model.events_of(project).into_iter().collect();
            assert_eq!(self.events(&node.engine, project), expected, "{context}");
        }
        // A pinned state does not see later changes; then the next state is pinned.
        let before = std::mem::take(&mut node.held);
        for (engine, project, expected) in &before {
            assert_eq!(self.events(engine, *project), *expected, "{context}: held");
        }
        if before.is_empty() {
            node.held = PROJECTS.map(|project| self.holding(node, project)).into();
        }
        let mut requests = 0;
        for project in PROJECTS.into_iter().filter(|project| !model.gone.contains(project)) {
            let visit = |_| {
                requests += 1;
                Flow::Continue(())
            };
            node.files.identities.view().scan_deletions(project, visit).expect("scans");
        }
        assert_eq!(requests, model.requests(), "{context}: no request is lost or there twice");
    }

    fn events(&self, engine: &Engine, project: ProjectId) -> Vec<Uuid> {
        let text = "SELECT uuid FROM events";
        let answer = self
            .runtime
            .block_on(async { sql::file(engine, project, text, Format::Csv).await?.whole().await });
        let answer = String::from_utf8(answer.expect("an answer").to_vec()).expect("UTF-8");
        let mut uuids: Vec<Uuid> =
            answer.lines().skip(1).map(|line| line.parse().expect("a uuid")).collect();
        uuids.sort_unstable();
        uuids
    }

    fn holding(&self, node: &Node, project: ProjectId) -> (Engine, ProjectId, Vec<Uuid>) {
        let held = self.runtime.block_on(node.engine.holding(project)).expect("holds");
        let events = self.events(&held, project);
        (held, project, events)
    }

    /// An erasure pass over the files; `None` if it was interrupted.
    pub(super) fn erase(&self, node: &Node) -> Option<Erased> {
        let shutdown = Shutdown::new();
        self.runtime.block_on(node.files.erase(NOW, &shutdown)).ok().flatten()
    }

    /// Ids in live files, read as plain Parquet.
    pub(super) fn stored(&self, node: &Node) -> Vec<Uuid> {
        let table = node.files.store.table();
        let mut found = Vec::new();
        for file in &table.current().files {
            let read = async {
                let batches = read_columns(table.store(), file, &["uuid"]).await.expect("opens");
                batches.try_collect::<Vec<_>>().await.expect("reads")
            };
            let batches = self.runtime.block_on(read);
            let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
            assert_eq!(u64::try_from(rows), Ok(file.rows), "{}", file.path);
            for batch in batches {
                let ids = batch.column(0).as_string::<i32>().iter().flatten();
                found.extend(ids.map(|id| id.parse::<Uuid>().expect("a uuid")));
            }
        }
        found
    }
}

impl Node {
    pub(super) fn insert(&self, entry: &Entry) {
        let sequence = Sequence(entry.record.sequence);
        let rows = rows(entry.record.project, sequence.0, &entry.events);
        self.files.store.insert(rows, sequence).expect("rows fit");
    }

    pub(super) fn derive(&mut self) {
        let records = std::mem::take(&mut self.waiting);
        self.files.identities.apply(&records).expect("applies");
    }

    pub(super) async fn flush(&self) -> bool {
        self.files.store.freeze();
        loop {
            match self.files.flush().await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Merges some files of one month.
    pub(super) async fn merge(&self, random: &mut StdRng) -> bool {
        let files = self.files.store.table().current().files.clone();
        let Some(one) = files.choose(random) else { return true };
        let same = |file: &&Arc<DataFile>| file.partition == one.partition;
        let chosen: Vec<_> = files.iter().filter(same).take(3).cloned().collect();
        self.files.merge(&chosen, &Shutdown::new()).await.is_ok()
    }

    /// Rewrites a file as other engines do: the same rows under a name without a log sequence.
    pub(super) async fn rewrite(&self, random: &mut StdRng) -> bool {
        let table = self.files.store.table();
        let Some(file) = table.current().files.choose(random).cloned() else { return true };
        let directory = file.path.split('/').next().expect("a directory");
        let id = Uuid::from_u128(random.random());
        let path = format!("{directory}/part-00000-{id}-c000.snappy.parquet");
        let [from, to] = [&file.path, &path].map(|path| ObjectPath::from(path.as_str()));
        if table.store().copy(&from, &to).await.is_err() {
            return false;
        }
        let add = vec![DataFile { path, ..DataFile::clone(&file) }];
        let edit = Edit { add, remove: vec![file], transaction: None, kind: EditKind::Compact };
        self.files.store.replace(edit).await.is_ok()
    }
}

/// Time at which the record with this sequence was received.
pub(super) fn received_at(sequence: u64) -> UnixMicros {
    NOW.saturating_add(Duration::from_secs(sequence))
}

fn rows(project: ProjectId, sequence: u64, events: &[(Uuid, &'static str)]) -> Rows {
    let mut columns = vec![None; events_schema().fields().len()];
    let len = events.len();
    let text = |values: Vec<String>| Some(Arc::new(StringViewArray::from_iter_values(values)) as _);
    // Two months, so that a flush writes two files.
    let time =
        |index: usize| NOW.0 - i64::try_from(index % 2).expect("small") * 40 * 86_400_000_000;
    let utc = |micros: Vec<i64>| TimestampMicrosecondArray::from(micros).with_timezone("UTC");
    let person = |id: &str| PersonId::of(project, id).0.to_string();
    columns[column::PROJECT_ID] = Some(Arc::new(Int64Array::from(vec![project.0; len])) as _);
    columns[column::UUID] = text(events.iter().map(|(uuid, _)| uuid.to_string()).collect());
    columns[column::EVENT] = text(vec!["event".to_owned(); len]);
    columns[column::DISTINCT_ID] = text(events.iter().map(|(_, id)| (*id).to_owned()).collect());
    columns[column::PERSON_ID] = text(events.iter().map(|(_, id)| person(id)).collect());
    columns[column::TIMESTAMP] = Some(Arc::new(utc((0..len).map(time).collect())) as _);
    columns[column::RECEIVED_AT] = Some(Arc::new(utc(vec![received_at(sequence).0; len])) as _);
    columns[column::PROPERTIES] = text(vec!["{}".to_owned(); len]);
    Rows { len, columns, memory_bytes: 100 * len, runs: Vec::new(), exact: ExactColumns::ALL }
}

async fn open_store(disk: &SimDisk, clock: &Clock) -> Store {
    let objects = DurableStore::new(Arc::new(disk.clone()), Path::new(TABLE));
    objects.recover().expect("recovers");
    let objects: Arc<dyn ObjectStore> = Arc::new(objects);
    let location = Url::from_directory_path(TABLE).expect("absolute");
    let schema = events_schema();
    let spec = TableSpec { name: "events", schema, partition_column: Some(PARTITION_COLUMN) };
    let table = DeltaTable::open_or_create(objects, location, spec, clock.clone());
    let layout = Layout {
        sort: SORT_COLUMNS.to_vec(),
        bloom: BLOOM_COLUMNS.to_vec(),
        statistics: STATISTICS_COLUMNS.to_vec(),
        unique: UNIQUE_COLUMNS.to_vec(),
        wide: WIDE_COLUMNS.to_vec(),
    };
    let partitioning = Partitioning {
        time_column: column::TIMESTAMP,
        key: |time| partition_of(time).0,
        name: |month| Month(month).to_string(),
    };
    let table = table.await.expect("the table");
    let settings = Settings::parse_from(["weir"]).storage;
    Store::new(table, layout, partitioning, APP.to_owned(), settings, clock.clone())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
