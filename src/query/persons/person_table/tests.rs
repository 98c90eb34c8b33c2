//! Tests of the persons table: rows of its Parquet files against the identity store.

mod distinct_ids;
mod promoted;
mod renewal;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit, TimestampMicrosecondType};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::*;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_disk::{Disk, DiskDir, DiskEntry, DiskFile, OsDisk};
use weir_identity::change::{Force, Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::person::Person;
use weir_sim::disk::{SimDisk, Survival};
use weir_storage::delta::error::TableError;
use weir_storage::store::StoreError;

const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);
const LIMITS: Limits = Limits {
    ids_bytes: 1 << 20,
    rows_bytes: 1 << 20,
    blocks_bytes: 1 << 20,
    overrides_bytes: 1 << 16,
    part_bytes: 1 << 20,
};
const APP: &str = "node/1";

const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];
const INTERVAL: Duration = Duration::from_mins(5);
const HOUR: Duration = Duration::from_hours(1);

/// Two projects with an identity store.
struct Bench {
    runtime: Runtime,
    clock: Clock,
    directory: tempfile::TempDir,
    identities: Identities,
}

impl Bench {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let clock = Clock::test(NOW);
        let directory = tempfile::tempdir().expect("a directory");
        let identities = identities(directory.path(), "identity");
        Self { runtime, clock, directory, identities }
    }

    /// A new handle on the table on the machine's disk, as after a restart.
    fn table(&self) -> PersonTable {
        self.table_of(TableOf::Persons)
    }

    /// The same on one of the two tables.
    fn table_of(&self, kind: TableOf) -> PersonTable {
        self.kind_on(kind, Arc::new(OsDisk), self.directory.path(), &self.identities)
    }

    fn table_on(
        &self,
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        identities: &Identities,
    ) -> PersonTable {
        let root = directory.parent().expect("a directory of tables");
        self.kind_on(TableOf::Persons, disk, root, identities)
    }

    fn kind_on(
        &self,
        kind: TableOf,
        disk: Arc<dyn Disk>,
        root: &std::path::Path,
        identities: &Identities,
    ) -> PersonTable {
        let table = PersonTable::new(PersonTableSettings {
            kind,
            tables: Tables::in_directory(disk, root.to_path_buf()),
            identities: identities.clone(),
            projects: Arc::new(|| PROJECTS.to_vec()),
            app_id: APP.to_owned(),
            runtime: self.runtime.handle().clone(),
            clock: self.clock.clone(),
            interval: INTERVAL,
            stale_max: HOUR,
            columns_bytes_max: 1 << 20,
        });
        table.expect("reads")
    }

    /// Applies a record to the `nth` project.
    fn apply(&self, sequence: u64, nth: usize, ops: Vec<Op>) {
        apply(&self.identities, sequence, nth, ops);
    }
}

fn identities(directory: &std::path::Path, name: &str) -> Identities {
    Identities::open(&directory.join(name), LIMITS).expect("opens")
}

fn apply(identities: &Identities, sequence: u64, nth: usize, ops: Vec<Op>) {
    let project = PROJECTS[nth];
    identities.apply(&[Record { sequence, project, ops }]).expect("applies");
}

fn op(distinct_id: &str, kind: OpKind) -> Op {
    let timestamp = UnixMicros(NOW.0 - 1);
    Op { distinct_id: distinct_id.to_owned(), event_id: Uuid::from_u128(7), timestamp, kind }
}

fn touch(distinct_id: &str) -> Op {
    op(distinct_id, OpKind::Touch)
}

fn set(distinct_id: &str, properties: Value) -> Op {
    let Value::Object(set) = properties else { panic!("an object") };
    op(distinct_id, OpKind::Update(Update { set, ..Update::default() }))
}

fn merge(distinct_id: &str, other: &str) -> Op {
    let (other, force) = (other.to_owned(), Force::No);
    op(distinct_id, OpKind::Merge { other, force, update: Update::default() })
}

/// One row, by the columns of the schema.
type Row = (i64, i64, String, Value, Value, i64, bool, i64);

/// The expected rows, read from the store person by person, which is another code path than that of the copy.
fn expected(identities: &Identities) -> Vec<Row> {
    let (view, mut rows) = (identities.view(), Vec::new());
    for project in PROJECTS {
        let visit = |person: Person| {
            let ids = view.distinct_ids(project, person.uuid).expect("reads");
            rows.push((
                project.0,
                person.number,
                person.uuid.to_string(),
                json!(ids),
                Value::Object(person.properties),
                person.created_at.0,
                person.is_identified,
                i64::try_from(person.version).expect("small"),
            ));
            Flow::Continue(())
        };
        view.scan_persons(project, visit).expect("scans");
    }
    rows
}

/// The rows of all live files.
fn rows(table: &PersonTable) -> Vec<Row> {
    let mut rows = Vec::new();
    batches(table).iter().for_each(|batch| rows_of(batch, &mut rows));
    rows.sort_by_key(|row| (row.0, row.1));
    rows
}

/// All live files, whose lengths must match the log.
fn batches(table: &PersonTable) -> Vec<RecordBatch> {
    let read = table.with_table(|table| {
        let version = table.current();
        let mut batches = Vec::new();
        for file in &version.files {
            let path = Path::parse(&file.path).expect("a path");
            let store = table.store();
            let get = async { store.get(&path).await.expect("a live file").bytes().await };
            let bytes = tokio::runtime::Handle::current().block_on(get).expect("its bytes");
            assert_eq!(u64::try_from(bytes.len()), Ok(file.size_bytes), "{path}");
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a parquet file");
            let before = batches.len();
            let read = reader.build().expect("a reader").map(|batch| batch.expect("a batch"));
            batches.extend(read);
            let rows: usize = batches[before..].iter().map(RecordBatch::num_rows).sum();
            assert_eq!(u64::try_from(rows), Ok(file.rows), "{path}");
        }
        Ok(batches)
    });
    read.expect("the table opens")
}

fn rows_of(batch: &RecordBatch, rows: &mut Vec<Row>) {
    let number = |name: &str, row| {
        let column = batch.column_by_name(name).expect("a column");
        column.as_primitive::<Int64Type>().value(row)
    };
    let text = |name: &str, row| {
        batch.column_by_name(name).expect("a column").as_string::<i32>().value(row).to_owned()
    };
    let json = |name: &str, row| serde_json::from_str(&text(name, row)).expect("JSON");
    let created_at = batch.column_by_name("created_at").expect("a column");
    let is_identified = batch.column_by_name("is_identified").expect("a column");
    for row in 0..batch.num_rows() {
        rows.push((
            number("project_id", row),
            number("id", row),
            text("uuid", row),
            json("distinct_ids", row),
            json("properties", row),
            created_at.as_primitive::<TimestampMicrosecondType>().value(row),
            is_identified.as_boolean().value(row),
            number("version", row),
        ));
    }
}

/// Number of the current version, and its files.
fn version(table: &PersonTable) -> (u64, BTreeSet<String>) {
    let read = table.with_table(|table| {
        let version = table.current();
        Ok((version.version, version.files.iter().map(|file| file.path.clone()).collect()))
    });
    read.expect("the table opens")
}

fn people() -> Vec<Op> {
    let properties = json!({"name": "Zoë", "plan": null, "n": {"a": [1, 2.5, "\"\u{1f600}"]}});
    vec![touch("a"), set("b", properties), touch("c"), touch("d\"\\,[]")]
}

#[test]
fn the_copy_is_the_store() {
    let bench = Bench::new();
    let table = bench.table();
    table.create().expect("creates");
    assert_eq!(table.write(&|| false).expect("nothing to copy"), None);
    assert_eq!((version(&table).0, rows(&table)), (0, Vec::new()));

    bench.apply(1, 0, people());
    bench.apply(2, 1, vec![touch("a"), set("e", json!({"x": 1}))]);
    let written = table.write(&|| false).expect("copies").expect("a copy");
    assert_eq!((written.through, written.rows, written.files), (2, 6, 1));
    assert_eq!(rows(&table), expected(&bench.identities));
    let first = version(&table);

    // Nothing has changed: no commit, also not after a restart.
    assert_eq!(table.write(&|| false).expect("looks"), None);
    assert_eq!(bench.table().write(&|| false).expect("looks"), None);
    assert_eq!(version(&bench.table()), first);

    // A merge removes a person and moves its distinct ids to the other person.
    let gone = bench.identities.view().person_of(PROJECTS[0], "c").expect("reads");
    let gone = gone.expect("a person").uuid.to_string();
    assert!(rows(&table).iter().any(|row| row.2 == gone));
    bench.apply(3, 0, vec![merge("b", "c")]);
    let written = table.write(&|| false).expect("copies").expect("a copy");
    assert_eq!((written.through, written.rows), (3, 5));
    assert_eq!(rows(&table), expected(&bench.identities));
    assert!(rows(&table).iter().all(|row| row.2 != gone));
    assert!(rows(&table).iter().any(|row| row.3 == json!(["b", "c"]) && row.6));

    // The files of the first copy are no longer live, and are deleted.
    bench.clock.advance(Duration::from_secs(1));
    let removed = table.vacuum(Duration::ZERO).expect("a vacuum");
    assert_eq!(BTreeSet::from_iter(removed), first.1);
    assert_eq!(rows(&bench.table()), expected(&bench.identities));
}

/// Goal: files have as many persons as they may, over all projects, whoever comes in between, and a table of few
/// persons has few files again.
#[test]
fn many_persons_make_many_files() {
    let bench = Bench::new();
    bench.apply(1, 0, (0..50).map(|n| touch(&format!("person {n}"))).collect());
    bench.apply(2, 1, (0..25).map(|n| set(&n.to_string(), json!({"n": n}))).collect());
    for (persons_max, files) in [(75, 1), (74, 2), (25, 3), (10, 8), (1, 75)] {
        let _ = std::fs::remove_dir_all(bench.directory.path().join("persons"));
        let table = bench.table().with_rows_max(persons_max);
        let written = table.write(&|| false).expect("copies").expect("a copy");
        let all = written.files;
        // The first commits are of so many files at most.
        assert_eq!((written.rows, all), (75, files), "{persons_max}");
        assert_eq!(rows(&table), expected(&bench.identities), "{persons_max}");
        assert_eq!(version(&table).0, u64::try_from(files.div_ceil(FILES_MAX)).expect("few"));
    }
    let table = bench.table().with_rows_max(10);
    table.write(&|| false).expect("looks");
    for (sequence, count) in [(3, 3), (4, 40)] {
        let ops = (0..count).map(|n| touch(&format!("{sequence} {n}"))).collect();
        bench.apply(sequence, 0, ops);
        table.write(&|| false).expect("copies").expect("has moved");
        assert_eq!(rows(&table), expected(&bench.identities), "{sequence}");
    }
    let merges = (1..50).map(|n| merge("person 0", &format!("person {n}"))).collect();
    bench.apply(5, 0, merges);
    table.write(&|| false).expect("copies").expect("has moved");
    assert_eq!(rows(&table), expected(&bench.identities));
    // Those of the other project, who have not changed, are still each in a file.
    let (files, persons) = (version(&table).1.len() - 25, rows(&table).len() - 25);
    assert!(files <= persons / 4, "{files} files of {persons}");
}

#[test]
fn a_shutdown_ends_a_copy_without_a_trace() {
    let bench = Bench::new();
    bench.apply(1, 0, people());
    let table = bench.table();
    assert_eq!(table.write(&|| true).expect("gives up"), None);
    assert_eq!(version(&table).1.len(), 0);
    bench.clock.advance(HOUR);
    assert_eq!(table.step(&|| true).expect("gives up"), Step::None);
    assert_eq!(version(&table).1.len(), 0);
    assert!(table.write(&|| false).expect("copies").is_some(), "the last step is not kept from it");
}

/// Goal: the files of a version that knew no pieces are replaced by pieces, as one commit.
#[test]
fn files_of_before_are_replaced() {
    let bench = Bench::new();
    bench.apply(1, 0, people());
    let table = bench.table();
    table.write(&|| false).expect("copies").expect("a copy");
    // The same rows in a file whose name says nothing.
    let path = version(&table).1.into_iter().next().expect("a file");
    let (own, other) = (bench.directory.path().join("persons"), "persons-0192a1b2-c3d4.parquet");
    std::fs::copy(own.join(&path), own.join(other)).expect("copies");
    let replaced = table.with_table(|table| {
        let remove = table.current().files.clone();
        let add = vec![DataFile { path: other.to_owned(), ..DataFile::clone(&remove[0]) }];
        let (transaction, kind) = (Some((APP.to_owned(), 2)), EditKind::Overwrite);
        let commit = table.commit(Edit { add, remove, transaction, kind });
        bench.runtime.handle().block_on(commit).expect("commits");
        Ok(())
    });
    replaced.expect("the table opens");
    drop(table);
    bench.apply(2, 0, vec![merge("b", "c")]);
    let table = bench.table();
    table.create().expect("opens");
    assert_eq!(table.known_files(), 0);
    table.write(&|| false).expect("copies").expect("has moved");
    assert_eq!((table.known_files(), version(&table).1.len()), (1, 1));
    assert_eq!(rows(&table), expected(&bench.identities));
}

/// Goal: persons that the store has lost are not removed from the table.
#[test]
fn persons_that_the_store_has_lost_stay_in_the_table() {
    let bench = Bench::new();
    bench.apply(1, 0, people());
    let written = bench.table().write(&|| false).expect("copies").expect("has moved");
    let lost = identities(bench.directory.path(), "lost");
    assert!(!lost.is_incomplete().expect("reads"));
    lost.mark_incomplete().expect("writes");
    apply(&lost, 2, 0, vec![touch("late")]);
    let directory = bench.directory.path().join("persons");
    let table = bench.table_on(Arc::new(OsDisk), directory.clone(), &lost);
    let refused = table.write(&|| false).expect_err("would lose persons");
    assert!(matches!(refused, PersonsError::Incomplete { table: "persons" }), "{refused}");
    assert_eq!(bench.table().write(&|| false).expect("as before"), None);
    assert!(written.rows > 1);
    // Without the table, the next copy contains the remaining persons.
    drop(table);
    std::fs::remove_dir_all(&directory).expect("removes");
    let table = bench.table_on(Arc::new(OsDisk), directory, &lost);
    assert_eq!(table.write(&|| false).expect("copies").map(|written| written.rows), Some(1));
}

#[test]
fn a_failure_is_over_when_its_cause_is() {
    let bench = Bench::new();
    bench.apply(1, 0, people());
    let disk = SimDisk::new();
    disk.set_capacity_bytes(1);
    let table = bench.table_on(Arc::new(disk.clone()), "/data/persons".into(), &bench.identities);
    assert_eq!(table.write(&|| false).expect_err("a full disk").kind(), Kind::Unavailable);
    disk.set_capacity_bytes(1 << 40);
    assert!(table.write(&|| false).expect("copies").is_some());
    bench.apply(2, 0, vec![touch("f")]);
    disk.set_capacity_bytes(1);
    table.write(&|| false).expect_err("a full disk");
    disk.set_capacity_bytes(1 << 40);
    assert!(table.write(&|| false).expect("copies").is_some());
    assert_eq!(rows(&table), expected(&bench.identities));
}

/// A disk that fails when a commit gets its name, before or after the change.
#[derive(Debug)]
struct Silent {
    disk: SimDisk,
    /// Whether the next commit gets its name despite the failure; `None` for no failure.
    fault: parking_lot::Mutex<Option<bool>>,
}

impl Disk for Silent {
    fn create_new(&self, path: &std::path::Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create_new(path)
    }
    fn open(&self, path: &std::path::Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn create_dir_all(&self, path: &std::path::Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn list(&self, dir: &std::path::Path) -> io::Result<Vec<DiskEntry>> {
        self.disk.list(dir)
    }
    fn metadata(&self, path: &std::path::Path) -> io::Result<DiskEntry> {
        self.disk.metadata(path)
    }
    fn rename(&self, from: &std::path::Path, to: &std::path::Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn hard_link(&self, from: &std::path::Path, to: &std::path::Path) -> io::Result<()> {
        let is_commit = to.extension().is_some_and(|extension| extension == "json");
        let fault = if is_commit { self.fault.lock().take() } else { None };
        if fault != Some(false) {
            self.disk.hard_link(from, to)?;
        }
        fault.map_or(Ok(()), |_| Err(io::Error::other("no answer")))
    }
    fn remove(&self, path: &std::path::Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn open_dir(&self, dir: &std::path::Path) -> io::Result<Box<dyn DiskDir>> {
        self.disk.open_dir(dir)
    }
    fn free_bytes(&self, path: &std::path::Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

/// Goal: a copy whose commit has an unknown outcome is in the table once, whether the commit succeeded or
/// not, with and without a restart, and with any changes meanwhile.
#[test]
fn a_copy_in_doubt_is_settled() {
    for (is_done, restarts, moves_on) in
        (0..8).map(|case| (case & 1 == 0, case & 2 == 0, case & 4 == 0))
    {
        let context = format!("done {is_done}, restarts {restarts}, moves on {moves_on}");
        let bench = Bench::new();
        bench.apply(1, 0, people());
        let disk = SimDisk::new();
        let disk = Arc::new(Silent { disk, fault: parking_lot::Mutex::new(None) });
        let open =
            || bench.table_on(Arc::clone(&disk) as _, "/data/persons".into(), &bench.identities);
        let mut table = open();
        table.write(&|| false).expect("copies");
        let first = version(&table).0;
        bench.apply(2, 0, vec![merge("b", "c"), touch("f")]);
        *disk.fault.lock() = Some(is_done);
        let error = table.write(&|| false).expect_err("no answer");
        let in_doubt =
            matches!(error, PersonsError::Store(StoreError::Table(TableError::InDoubt { .. })));
        assert!(in_doubt, "{context}: {error}");
        if restarts {
            table = open();
        }
        if moves_on {
            bench.apply(3, 0, vec![touch("g")]);
        }
        let written = table.write(&|| false).expect(&context);
        assert_eq!(written.is_none(), is_done && !moves_on, "{context}: {written:?}");
        assert_eq!(rows(&table), expected(&bench.identities), "{context}");
        let commits = u64::from(is_done) + u64::from(written.is_some());
        assert_eq!(version(&open()).0, first + commits, "{context}");
        bench.clock.advance(Duration::from_secs(1));
        table.vacuum(Duration::ZERO).expect("a vacuum");
        assert_eq!(rows(&open()), expected(&bench.identities), "{context}");
    }
}

/// Goal: after a power cut at any time, the table is exactly one of two copies. Method: cut at every
/// operation of two copies and a vacuum, with several kinds of loss.
#[test]
fn a_power_cut_leaves_one_copy_or_the_next() {
    let bench = Bench::new();
    let later = identities(bench.directory.path(), "later");
    for identities in [&bench.identities, &later] {
        apply(identities, 1, 0, people());
    }
    apply(&later, 2, 0, vec![merge("b", "c"), touch("f")]);
    let states = [Vec::new(), expected(&bench.identities), expected(&later)];
    let open = |disk: &SimDisk, identities: &Identities| {
        bench.table_on(Arc::new(disk.clone()), "/data/persons".into(), identities)
    };
    let mut outcomes = BTreeSet::new();
    for cut in 0.. {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let done = [&bench.identities, &later];
        let done = done.iter().take_while(|of| open(&disk, of).write(&|| false).is_ok()).count();
        bench.clock.advance(Duration::from_secs(1));
        let finished = done == 2 && open(&disk, &later).vacuum(Duration::ZERO).is_ok();
        for survival in [Survival::Lose, Survival::Keep, Survival::Mixed(1), Survival::Mixed(2)] {
            let context = format!("cut {cut}, {survival:?}, {done} done");
            let disk = disk.power_on(survival);
            let table = open(&disk, &later);
            let found = rows(&table);
            let found = states.iter().position(|state| *state == found).expect(&context);
            assert!((done..=done + 1).contains(&found), "{context}: {found} found");
            outcomes.insert((done, found));
            table.write(&|| false).expect(&context);
            assert_eq!(rows(&table), states[2], "{context}");
        }
        if finished {
            break;
        }
    }
    assert!(outcomes.is_superset(&[(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)].into()));
}

#[test]
fn the_published_schemas_are_those_in_use() {
    for (kind, published) in [
        (TableOf::Persons, include_str!("../../../../schemas/arrow/persons.v1.json")),
        (
            TableOf::DistinctIds,
            include_str!("../../../../schemas/arrow/person_distinct_ids.v1.json"),
        ),
    ] {
        let published: Value = serde_json::from_str(published).expect("JSON");
        let column = |field: &Arc<Field>| {
            let data_type = match field.data_type() {
                DataType::Int64 => "long",
                DataType::Boolean => "boolean",
                DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp",
                DataType::Utf8View => "string",
                other => panic!("{other} has no name here"),
            };
            json!({"name": field.name(), "type": data_type, "nullable": field.is_nullable()})
        };
        let columns: Vec<Value> = kind.spec().schema.fields().iter().map(column).collect();
        let expected =
            json!({"table": kind.name(), "version": 1, "partitioned_by": [], "columns": columns});
        assert_eq!(published, expected);
    }
}
