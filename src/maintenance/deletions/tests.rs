//! Lives of one node against a list of what was sent: events, persons merged and deleted, flushes,
//! merges, erasures, with the power cut in between. Table, memtables, identity store and queries are
//! the real ones; the log is a list here, as it has tests of its own.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::array::Int64Array;
use arrow::array::StringViewArray;
use arrow::array::TimestampMicrosecondArray;
use clap::Parser;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;
use url::Url;
use uuid::Uuid;

use crate::clock::Clock;
use crate::clock::UnixMicros;
use crate::config::query::QueryConfig;
use crate::config::storage::StorageConfig;
use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::event::schema::BLOOM_COLUMNS;
use crate::event::schema::PARTITION_COLUMN;
use crate::event::schema::SORT_COLUMNS;
use crate::event::schema::STATISTICS_COLUMNS;
use crate::event::schema::column;
use crate::event::schema::events_schema;
use crate::event::time::Month;
use crate::event::time::month_of;
use crate::identity::change::Extent;
use crate::identity::change::Force;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::identity::change::Record;
use crate::identity::change::Update;
use crate::identity::deletions::Deletion;
use crate::identity::store::Identities;
use crate::identity::store::Limits;
use crate::identity::view::Flow;
use crate::maintenance::deletions::Erased;
use crate::maintenance::files::Files;
use crate::metadata::Metadata;
use crate::query::Engine;
use crate::query::Sources;
use crate::query::rows::Format;
use crate::storage::delta::DataFile;
use crate::storage::delta::DeltaTable;
use crate::storage::delta::Edit;
use crate::storage::delta::EditKind;
use crate::storage::delta::TableSpec;
use crate::storage::disk::sim::SimDisk;
use crate::storage::disk::sim::Survival;
use crate::storage::durable::DurableStore;
use crate::storage::parquet::Layout;
use crate::storage::parquet::read_columns;
use crate::storage::progress::Progress;
use crate::storage::rows::Rows;
use crate::storage::store::Partitioning;
use crate::storage::store::Store;
use crate::storage::wal::Sequence;
use crate::tasks::Shutdown;
use crate::telemetry::metrics::Metrics;

const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);
const LIMITS: Limits = Limits { ids_bytes: 1 << 20, rows_bytes: 1 << 20, blocks_bytes: 1 << 20 };
const TABLE: &str = "/data/tables/events";
const APP: &str = "node/1";
const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];
const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Steps of one life.
const STEPS: u32 = 40;

/// Lives of an ordinary run.
const LIVES: u64 = 12;

#[derive(Debug, Parser)]
struct Settings {
    #[command(flatten)]
    storage: StorageConfig,
    #[command(flatten)]
    query: QueryConfig,
}

/// What the log holds.
#[derive(Clone, Debug)]
struct Entry {
    record: Record,
    /// Ids of events with their distinct ids.
    events: Vec<(Uuid, &'static str)>,
}

/// The plain truth: who has which distinct id, and which events there are.
#[derive(Debug, Default)]
struct Model {
    /// The first distinct id of the person that has this one.
    owner: BTreeMap<(ProjectId, &'static str), &'static str>,
    /// Ids of persons that were deleted without their events.
    personless: BTreeSet<(ProjectId, &'static str)>,
    events: BTreeMap<Uuid, (ProjectId, &'static str)>,
    deleted: BTreeSet<Uuid>,
    requests: usize,
}

impl Model {
    fn feed(&mut self, entry: &Entry) {
        let project = entry.record.project;
        let id_of = |text: &str| *IDS.iter().find(|id| **id == text).expect("one of them");
        for op in &entry.record.ops {
            match &op.kind {
                OpKind::Touch => {
                    let id = id_of(&op.distinct_id);
                    self.owner.entry((project, id)).or_insert(id);
                }
                OpKind::Merge { other, .. } => {
                    self.merge(project, id_of(&op.distinct_id), id_of(other));
                }
                OpKind::Delete { person, extent } => self.delete(project, *person, *extent),
                other => panic!("{other:?}"),
            }
        }
        self.events.extend(entry.events.iter().map(|(uuid, id)| (*uuid, (project, *id))));
    }

    fn merge(&mut self, project: ProjectId, id: &'static str, other: &'static str) {
        let of = |id| self.owner.get(&(project, id)).copied();
        let (target, source) = match (of(id), of(other)) {
            (Some(target), Some(source)) => (target, Some(source)),
            (Some(target), None) | (None, Some(target)) => (target, None),
            (None, None) => {
                // The id whose events are stored without a person lends its uuid.
                let was_used = |id| self.personless.contains(&(project, id));
                let other_first = was_used(other) && !was_used(id);
                (if other_first { other } else { id }, None)
            }
        };
        for ((own, _), owner) in &mut self.owner {
            if *own == project && Some(*owner) == source {
                *owner = target;
            }
        }
        self.owner.insert((project, id), target);
        self.owner.insert((project, other), target);
    }

    fn delete(&mut self, project: ProjectId, person: Uuid, extent: Extent) {
        let is_theirs = |first: &str| PersonId::of(project, first).0 == person;
        let theirs = self.owner.iter();
        let theirs = theirs.filter(|((own, _), first)| *own == project && is_theirs(first));
        let ids: Vec<&'static str> = theirs.map(|((_, id), _)| *id).collect();
        if extent.has_events() && !ids.is_empty() {
            self.requests += 1;
            let theirs =
                self.events.iter().filter(|(_, (own, id))| *own == project && ids.contains(id));
            self.deleted.extend(theirs.map(|(uuid, _)| *uuid));
        }
        if !extent.has_person() {
            return;
        }
        self.owner.retain(|(own, id), _| *own != project || !ids.contains(id));
        for id in ids {
            match extent {
                Extent::Both => self.personless.remove(&(project, id)),
                _ => self.personless.insert((project, id)),
            };
        }
    }

    fn events_of(&self, project: ProjectId) -> BTreeSet<Uuid> {
        let own = self.events.iter().filter(|(_, (own, _))| *own == project);
        own.map(|(uuid, _)| *uuid).filter(|uuid| !self.deleted.contains(uuid)).collect()
    }
}

struct Node {
    files: Files,
    engine: Engine,
    /// Records that are logged and whose persons are not derived yet.
    waiting: Vec<Record>,
}

struct Bench {
    runtime: Runtime,
    directory: tempfile::TempDir,
    metadata: Metadata,
    clock: Clock,
    /// How many images of the identity store there are.
    images: u32,
}

impl Bench {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Clock::test(NOW);
        let path = directory.path().join("metadata.db");
        let metadata = runtime.block_on(Metadata::open(&path, clock.clone())).expect("opens");
        Self { runtime, directory, metadata, clock, images: 0 }
    }

    /// A directory with what a crash leaves of an identity store.
    fn image(&mut self, of: Option<&Path>) -> PathBuf {
        self.images += 1;
        let image = self.directory.path().join(format!("identity-{}", self.images));
        if let Some(from) = of {
            copy(from, &image);
        }
        image
    }

    /// A node over what is on the disk and in the log.
    fn start(&self, disk: &SimDisk, identity: &Path, log: &[Entry]) -> Node {
        let identities = Identities::open(identity, LIMITS).expect("opens");
        let store = self.runtime.block_on(open_store(disk, &self.clock));
        let sources = Sources {
            store: store.clone(),
            identities: identities.clone(),
            metadata: self.metadata.clone(),
            progress: Progress::Still,
            columns: None,
        };
        let settings = Settings::parse_from(["weir"]).query;
        let (runtime, metrics) = (self.runtime.handle().clone(), Arc::new(Metrics::new()));
        let engine = Engine::new(settings, sources, runtime, self.clock.clone(), metrics);
        let engine = engine.expect("an engine");
        let (flushed, derived) = (store.flushed_through(), identities.applied_sequence());
        let mut node = Node { files: Files { store, identities }, engine, waiting: Vec::new() };
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

    /// Every answer to a question for ids, and what the requests say.
    fn check(&self, node: &mut Node, model: &Model, context: &str) {
        node.derive();
        for project in PROJECTS {
            let sql = "SELECT uuid FROM events";
            let answer = self.runtime.block_on(node.engine.sql(project, sql, Format::Csv));
            let answer = String::from_utf8(answer.expect("an answer")).expect("UTF-8");
            let mut uuids: Vec<Uuid> =
                answer.lines().skip(1).map(|line| line.parse().expect("a uuid")).collect();
            uuids.sort_unstable();
            let expected: Vec<Uuid> = model.events_of(project).into_iter().collect();
            assert_eq!(uuids, expected, "{context}");
        }
        let mut requests = 0;
        for project in PROJECTS {
            let visit = |_| {
                requests += 1;
                Flow::Continue(())
            };
            node.files.identities.view().scan_deletions(project, visit).expect("scans");
        }
        assert_eq!(requests, model.requests, "{context}: no request is lost or there twice");
    }

    /// A pass over the files; `None` if it was cut short.
    fn erase(&self, node: &Node) -> Option<Erased> {
        let shutdown = Shutdown::new();
        self.runtime.block_on(node.files.erase(NOW, &shutdown)).ok().flatten()
    }

    /// Ids in live files, as any reader of Parquet finds them.
    fn stored(&self, node: &Node) -> Vec<Uuid> {
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
    fn insert(&self, entry: &Entry) {
        let sequence = Sequence(entry.record.sequence);
        let rows = rows(entry.record.project, sequence.0, &entry.events);
        self.files.store.insert(rows, sequence).expect("rows fit");
    }

    fn derive(&mut self) {
        let records = std::mem::take(&mut self.waiting);
        self.files.identities.apply(&records).expect("applies");
    }

    async fn flush(&self) -> bool {
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
    async fn merge(&self, random: &mut StdRng) -> bool {
        let files = self.files.store.table().current().files.clone();
        let Some(one) = files.choose(random) else { return true };
        let same = |file: &&Arc<DataFile>| file.partition == one.partition;
        let chosen: Vec<_> = files.iter().filter(same).take(3).cloned().collect();
        self.files.merge(&chosen, &Shutdown::new()).await.is_ok()
    }

    /// As other engines rewrite a file: the same rows under a name that says no place in the log.
    async fn rewrite(&self, random: &mut StdRng) -> bool {
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

/// When the record of a place in the log was received.
fn received_at(sequence: u64) -> UnixMicros {
    NOW.saturating_add(Duration::from_secs(sequence))
}

fn rows(project: ProjectId, sequence: u64, events: &[(Uuid, &'static str)]) -> Rows {
    let mut columns = vec![None; events_schema().fields().len()];
    let len = events.len();
    let text = |values: Vec<String>| Some(Arc::new(StringViewArray::from_iter_values(values)) as _);
    // Two months, so that a flush makes two files.
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
    Rows { len, columns, memory_bytes: 100 * len, runs: Vec::new() }
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
        unique: vec![column::UUID, column::PROPERTIES],
    };
    let partitioning = Partitioning {
        time_column: column::TIMESTAMP,
        key: |time| month_of(time).0,
        name: |month| Month(month).to_string(),
    };
    let table = table.await.expect("the table");
    let settings = Settings::parse_from(["weir"]).storage;
    Store::new(table, (layout, partitioning), APP.to_owned(), settings, clock.clone())
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

fn entry(random: &mut StdRng, sequence: u64) -> Entry {
    let project = *PROJECTS.choose(random).expect("some");
    let id = |random: &mut StdRng| *IDS.choose(random).expect("some");
    let op = |distinct_id: &str, kind| Op {
        distinct_id: distinct_id.to_owned(),
        event_id: Uuid::from_u128(7),
        timestamp: received_at(sequence),
        kind,
    };
    let (mut events, mut ops) = (Vec::new(), Vec::new());
    match random.random_range(0..10_u8) {
        0..2 => {
            let (one, other) = (id(random), id(random).to_owned());
            if one != other {
                let update = Update::default();
                ops.push(op(one, OpKind::Merge { other, force: Force::Yes, update }));
            }
        }
        2..4 => {
            let extents = [Extent::Person, Extent::Events, Extent::Both];
            let extent = *extents.choose(random).expect("some");
            let person = PersonId::of(project, id(random)).0;
            ops.push(op("", OpKind::Delete { person, extent }));
        }
        _ => {
            for _ in 0..random.random_range(1..4_u8) {
                let id = id(random);
                events.push((Uuid::from_u128(random.random()), id));
                ops.push(op(id, OpKind::Touch));
            }
        }
    }
    Entry { record: Record { sequence, project, ops }, events }
}

/// Goal: whatever a node does and wherever it is cut short, an answer has all events but those that
/// were deleted after they came; at the end these are in no file that is left, and every request is
/// done.
#[test]
fn deleted_events_are_gone_and_no_others() {
    let seed = std::env::var_os("WEIR_DELETIONS_SEED")
        .map_or_else(rand::random, |seed| seed.to_str().expect("text").parse().expect("a number"));
    println!("WEIR_DELETIONS_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut erased, mut cuts, mut hidden) = (0, 0, 0);
    for life in 0..LIVES {
        let mut bench = Bench::new();
        let mut disk = SimDisk::new();
        let mut identity = bench.image(None);
        let mut node = bench.start(&disk, &identity, &[]);
        // What a power cut leaves of the identity store at least.
        let mut synced = bench.image(Some(&identity));
        let (mut log, mut model) = (Vec::new(), Model::default());
        for step in 0..STEPS {
            let context = format!("life {life}, step {step}");
            let sequence = u64::from(step) + 1;
            let entry = entry(&mut random, sequence);
            model.feed(&entry);
            node.insert(&entry);
            node.waiting.push(entry.record.clone());
            log.push(entry);
            if random.random_bool(0.7) {
                node.derive();
            }
            if random.random_bool(0.15) {
                disk.cut_after(disk.operations() + random.random_range(0..30));
            }
            let is_on = match random.random_range(0..9_u8) {
                0..2 => bench.runtime.block_on(node.flush()),
                2 => bench.runtime.block_on(node.merge(&mut random)),
                3 => {
                    let erasing = bench.erase(&node);
                    erased += erasing.as_ref().map_or(0, |erased| erased.rows);
                    erasing.is_some()
                }
                4 => {
                    let persisted = node.files.identities.persist().expect("persists");
                    synced = bench.image(Some(&identity));
                    let through = persisted.min(node.files.store.flushed_through().0);
                    log.retain(|entry| entry.record.sequence > through);
                    true
                }
                5 => {
                    bench.clock.advance(Duration::from_secs(1));
                    let vacuum = node.files.store.table().vacuum(Duration::ZERO);
                    bench.runtime.block_on(vacuum).is_ok()
                }
                6 => bench.runtime.block_on(node.rewrite(&mut random)),
                _ => true,
            };
            if !is_on || random.random_bool(0.05) {
                cuts += 1;
                let survival = [Survival::Lose, Survival::Keep, Survival::Mixed(sequence)];
                let survival = *survival.choose(&mut random).expect("some");
                let left = if survival == Survival::Lose { &synced } else { &identity };
                let left = left.clone();
                identity = bench.image(Some(&left));
                drop(node);
                disk = disk.power_on(survival);
                node = bench.start(&disk, &identity, &log);
                synced = bench.image(Some(&left));
            }
            if random.random_bool(0.3) {
                bench.check(&mut node, &model, &context);
                let stored = bench.stored(&node);
                hidden += stored.iter().filter(|uuid| model.deleted.contains(uuid)).count();
            }
        }
        finish(&bench, &disk, (&mut node, &model), &format!("life {life}"));
    }
    assert!(
        erased > 0 && cuts > 10 && hidden > 10,
        "{erased} erased, {cuts} cuts, {hidden} hidden"
    );
}

/// The end of a life: everything that has been put off is done.
fn finish(bench: &Bench, disk: &SimDisk, (node, model): (&mut Node, &Model), context: &str) {
    // The power stays on now.
    disk.cut_after(u64::MAX);
    node.derive();
    assert!(bench.runtime.block_on(node.flush()), "{context}");
    let erased = bench.erase(node);
    let erased = erased.expect(context);
    assert!(erased.is_all, "{context}");
    assert!(node.files.identities.deletions().is_empty(), "{context}: nothing is left to do");
    bench.check(node, model, context);
    let mut stored = bench.stored(node);
    stored.sort_unstable();
    let mut expected: Vec<Uuid> =
        PROJECTS.iter().flat_map(|project| model.events_of(*project)).collect();
    expected.sort_unstable();
    assert_eq!(stored, expected, "{context}: in files");
    for project in PROJECTS {
        let visit = |deletion: Deletion| {
            assert!(deletion.done_at.is_some(), "{context}");
            Flow::Continue(())
        };
        node.files.identities.view().scan_deletions(project, visit).expect("scans");
    }
    bench.clock.advance(Duration::from_secs(1));
    let table = node.files.store.table();
    bench.runtime.block_on(table.vacuum(Duration::ZERO)).expect("a vacuum");
    let listed = table.store().list(None).try_collect::<Vec<_>>();
    let listed = bench.runtime.block_on(listed).expect("a list");
    let data = listed.iter().filter(|object| object.location.as_ref().starts_with("month="));
    assert_eq!(data.count(), table.current().files.len(), "{context}: no old file stays");
}

/// Goal: names and statistics keep a pass away from files that cannot have deleted rows.
#[test]
fn only_files_with_deleted_rows_are_written_anew() {
    let mut bench = Bench::new();
    let identity = bench.image(None);
    let mut node = bench.start(&SimDisk::new(), &identity, &[]);
    let mut model = Model::default();
    let send = |node: &mut Node, model: &mut Model, sequence, project, ids: &[&'static str]| {
        let event = |id: &&'static str| (Uuid::from_u128(rand::random()), *id);
        let touch = |id: &&'static str| Op {
            distinct_id: (*id).to_owned(),
            event_id: Uuid::nil(),
            timestamp: NOW,
            kind: OpKind::Touch,
        };
        let ops = ids.iter().map(touch).collect();
        let record = Record { sequence, project, ops };
        let entry = Entry { record, events: ids.iter().map(event).collect() };
        model.feed(&entry);
        node.insert(&entry);
        node.waiting.push(entry.record);
        node.derive();
        assert!(bench.runtime.block_on(node.flush()));
    };
    send(&mut node, &mut model, 1, PROJECTS[0], &["a"]);
    send(&mut node, &mut model, 2, PROJECTS[0], &["b"]);
    send(&mut node, &mut model, 3, PROJECTS[1], &["a"]);
    let merged = node.files.store.table().current().files.clone();
    bench.runtime.block_on(node.files.merge(&merged[1..2], &Shutdown::new())).expect("merges");
    let before: BTreeSet<String> = paths(&node);
    let person = PersonId::of(PROJECTS[0], "a").0;
    let kind = OpKind::Delete { person, extent: Extent::Both };
    let op = Op { distinct_id: String::new(), event_id: Uuid::nil(), timestamp: NOW, kind };
    let record = Record { sequence: 4, project: PROJECTS[0], ops: vec![op] };
    let entry = Entry { record, events: Vec::new() };
    model.feed(&entry);
    node.insert(&entry);
    node.waiting.push(entry.record);
    node.derive();
    // The log is not in files up to the request: nothing can be done yet.
    let erasing = bench.erase(&node);
    let first = erasing.expect("a pass");
    assert_eq!((first.requests, first.files, first.rows, first.is_all), (0, 1, 1, false));
    bench.check(&mut node, &model, "before the flush");
    send(&mut node, &mut model, 5, PROJECTS[0], &["a"]);
    let erasing = bench.erase(&node);
    let second = erasing.expect("a pass");
    assert_eq!((second.requests, second.files, second.rows, second.is_all), (1, 0, 0, true));
    bench.check(&mut node, &model, "after the flush");
    let after = paths(&node);
    assert_eq!(before.difference(&after).count(), 1, "only the file of the deleted event is gone");
    assert_eq!(after.difference(&before).count(), 1, "only the event of later is new");
    assert_eq!(bench.stored(&node).len(), 3);
}

/// Goal: a crash may cost the identity store a request that a file reaches beyond; a merge with a file
/// of before must not take its rows along before the replay has brought the request back.
#[test]
fn a_merge_waits_for_the_requests_of_the_log() {
    let mut bench = Bench::new();
    let (identity, disk) = (bench.image(None), SimDisk::new());
    let mut node = bench.start(&disk, &identity, &[]);
    let (mut model, mut log, mut synced) = (Model::default(), Vec::new(), None);
    let person = PersonId::of(PROJECTS[0], "a").0;
    let delete = OpKind::Delete { person, extent: Extent::Both };
    for (sequence, id, kind) in [(1, "a", OpKind::Touch), (2, "", delete), (3, "b", OpKind::Touch)]
    {
        let events = IDS.into_iter().filter(|own| *own == id);
        let events = events.map(|id| (Uuid::from_u128(rand::random()), id)).collect();
        let (distinct_id, timestamp) = (id.to_owned(), received_at(sequence));
        let op = Op { distinct_id, event_id: Uuid::nil(), timestamp, kind };
        let record = Record { sequence, project: PROJECTS[0], ops: vec![op] };
        let entry = Entry { record, events };
        model.feed(&entry);
        node.insert(&entry);
        node.waiting.push(entry.record.clone());
        log.push(entry);
        node.derive();
        assert!(bench.runtime.block_on(node.flush()));
        node.files.identities.persist().expect("persists");
        synced.get_or_insert_with(|| bench.image(Some(&identity)));
    }
    drop(node);
    let mut node = bench.start(&disk, &synced.expect("a copy"), &log);
    let files = node.files.store.table().current().files.clone();
    assert_eq!(files.len(), 2);
    let merge = |node: &Node| {
        let shutdown = Shutdown::new();
        let merged = bench.runtime.block_on(node.files.merge(&files, &shutdown));
        merged.expect("merges").map(|merged| (merged.rows, merged.deleted))
    };
    assert_eq!(merge(&node), None);
    node.derive();
    assert_eq!(merge(&node), Some((1, 1)), "rows, and deleted ones");
    bench.check(&mut node, &model, "after the merge");
}

fn paths(node: &Node) -> BTreeSet<String> {
    node.files.store.table().current().files.iter().map(|file| file.path.clone()).collect()
}
