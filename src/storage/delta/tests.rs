//! Tests of the table on a simulated disk. `claims` has what buckets need, `crash` power cuts, `damage` corrupt files, `others`
//! compatibility with other engines.

mod claims;
mod crash;
mod damage;
mod others;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use arrow::array::{
    ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::task::JoinSet;

use super::stats::{ColumnStats, FileStats, Value};
use super::*;
use crate::derived::DerivedTag;
use crate::durable::DurableStore;
use crate::exact::ExactColumns;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_sim::disk::SimDisk;

/// Much later than the simulated disk's clock, which starts at 1970.
const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);

fn columns() -> Vec<Field> {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    vec![
        Field::new("id", DataType::Int64, false),
        Field::new("event", DataType::Utf8View, true),
        Field::new("timestamp", utc, true),
    ]
}

fn spec_of(columns: Vec<Field>) -> TableSpec {
    TableSpec {
        name: "events",
        schema: Arc::new(Schema::new(columns)),
        partition_column: Some("month"),
    }
}

fn spec() -> TableSpec {
    spec_of(columns())
}

fn store_on(disk: &SimDisk) -> Arc<dyn ObjectStore> {
    let store = DurableStore::new(Arc::new(disk.clone()), "/data/events");
    store.recover().expect("a working disk");
    Arc::new(store)
}

fn location() -> Url {
    Url::parse("file:///data/events/").expect("a valid address")
}

async fn open(store: &Arc<dyn ObjectStore>, clock: &Clock) -> Result<DeltaTable, TableError> {
    DeltaTable::open_or_create(Arc::clone(store), location(), spec(), clock.clone()).await
}

/// A store with an empty table, and a handle on it.
async fn new_table() -> (Arc<dyn ObjectStore>, Clock, DeltaTable) {
    let store = store_on(&SimDisk::new());
    let clock = Clock::test(NOW);
    let table = open(&store, &clock).await.expect("a new table");
    (store, clock, table)
}

fn len<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).expect("a count")
}

fn parquet_of(ids: &[i64]) -> Vec<u8> {
    let times = ids.iter().map(|id| NOW.0 + id);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(StringViewArray::from_iter_values(ids.iter().map(|id| format!("event {id}")))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")),
    ];
    let batch = RecordBatch::try_new(spec().schema, columns).expect("columns of the schema");
    let mut writer =
        ArrowWriter::try_new(Vec::new(), batch.schema(), None).expect("a parquet writer");
    writer.write(&batch).expect("a row group");
    writer.into_inner().expect("a parquet file")
}

/// Writes a data file with one row per id; every tenth id starts another month.
async fn write(
    store: &Arc<dyn ObjectStore>,
    name: &str,
    ids: &[i64],
) -> object_store::Result<DataFile> {
    let first = *ids.first().expect("some ids");
    let last = *ids.last().expect("some ids");
    let month = format!("2026-{:02}", 1 + first / 10 % 12);
    let path = spec().file_path(Some(&month), &format!("{name}.parquet"));
    let bytes = parquet_of(ids);
    let size_bytes = len(&bytes);
    store.put(&Path::parse(&path)?, bytes.into()).await?;
    let bounds = |min, max| ColumnStats { min: Some(min), max: Some(max), null_count: Some(0) };
    let time = |id| Value::Timestamp(UnixMicros(NOW.0 + 1_000 * id));
    let columns = [
        ("id".to_owned(), bounds(Value::Int(first), Value::Int(last))),
        ("timestamp".to_owned(), bounds(time(first), time(last))),
    ];
    let stats = FileStats { columns: columns.into() };
    let exact = ExactColumns::of(128, len(ids).into());
    // Files of both kinds.
    let derived = DerivedTag::of_text(if len(ids).is_multiple_of(2) { "1 p_a p_b" } else { "" });
    Ok(DataFile { path, size_bytes, rows: len(ids), partition: Some(month), stats, exact, derived })
}

async fn written(store: &Arc<dyn ObjectStore>, name: &str, ids: &[i64]) -> DataFile {
    write(store, name, ids).await.expect("a working disk")
}

fn append(add: Vec<DataFile>, transaction: Option<(&str, i64)>) -> Edit {
    let transaction = transaction.map(|(app_id, version)| (app_id.to_owned(), version));
    Edit { add, remove: Vec::new(), transaction, kind: EditKind::Append }
}

fn compact(remove: Vec<Arc<DataFile>>, add: Vec<DataFile>) -> Edit {
    Edit { add, remove, transaction: None, kind: EditKind::Compact }
}

/// Reads every live file, as a query would: its length must match the log, and it must be readable.
async fn read_ids(store: &Arc<dyn ObjectStore>, version: &TableVersion) -> Vec<i64> {
    let mut ids = Vec::new();
    for file in &version.files {
        let path = Path::parse(&file.path).expect("a valid path");
        let bytes = store.get(&path).await.expect("a live file").bytes().await.expect("its bytes");
        assert_eq!(len(&bytes), file.size_bytes, "{path}");
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a parquet file");
        let before = ids.len();
        for batch in reader.build().expect("a reader") {
            let batch = batch.expect("a batch");
            ids.extend(batch.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
        assert_eq!(len(&ids[before..]), file.rows, "{path}");
    }
    ids.sort_unstable();
    ids
}

fn paths(version: &TableVersion) -> BTreeSet<String> {
    version.files.iter().map(|file| file.path.clone()).collect()
}

/// Asserts that a reopened table has the same state as this handle.
async fn assert_same_after_reopening(store: &Arc<dyn ObjectStore>, table: &DeltaTable) {
    let reopened = open(store, &Clock::test(NOW)).await.expect("the table");
    let (then, now) = (table.current(), reopened.current());
    assert_eq!((then.version, &then.files), (now.version, &now.files));
    assert_eq!(then.transactions, now.transactions);
    assert_eq!(then.schema, now.schema);
}

#[tokio::test]
async fn an_append_is_files_and_position_at_once() {
    let (store, _, table) = new_table().await;
    assert_eq!(table.current().version, 0);
    assert_eq!(table.current().transaction("node/1"), None);
    let files = vec![written(&store, "a", &[1, 2]).await, written(&store, "b", &[11]).await];
    let version = table.commit(append(files, Some(("node/1", 7)))).await.expect("a commit");
    assert_eq!(version.version, 1);
    assert_eq!(version.transaction("node/1"), Some(7));
    let expected = ["month=2026-01/a.parquet", "month=2026-02/b.parquet"].map(str::to_owned);
    assert_eq!(paths(&version), expected.into());
    assert_eq!(read_ids(&store, &version).await, [1, 2, 11]);
    assert_same_after_reopening(&store, &table).await;
}

#[tokio::test]
async fn statistics_survive_the_log() {
    let (store, _, table) = new_table().await;
    let mut file = written(&store, "a", &[1, 2]).await;
    let text = ColumnStats {
        min: Some(Value::Text("e".repeat(200))),
        max: Some(Value::Text("e".repeat(200))),
        null_count: None,
    };
    file.stats.columns.insert("event".to_owned(), text);
    table.commit(append(vec![file.clone()], None)).await.expect("a commit");
    let reopened = open(&store, &Clock::test(NOW)).await.expect("the table").current();
    let found = &reopened.files[0];
    assert_eq!((found.rows, found.size_bytes), (file.rows, file.size_bytes));
    assert_eq!(found.partition.as_deref(), Some("2026-01"));
    assert_eq!(found.stats.columns["id"], file.stats.columns["id"]);
    assert_eq!(found.stats.columns["timestamp"].min, file.stats.columns["timestamp"].min);
    let event = &found.stats.columns["event"];
    assert_eq!(event.min, Some(Value::Text("e".repeat(64))));
    assert_eq!(event.max, Some(Value::Text(format!("{}f", "e".repeat(63)))));
    assert_eq!(table.current().files[0].stats, found.stats, "the same before and after");
}

#[tokio::test]
async fn edits_that_make_no_sense_are_refused() {
    let (store, _, table) = new_table().await;
    let good = written(&store, "a", &[1]).await;
    table.commit(append(vec![good.clone()], None)).await.expect("a commit");
    let live = Arc::clone(&table.current().files[0]);
    let fresh = written(&store, "b", &[2]).await;
    let with = |change: fn(&mut DataFile)| {
        let mut file = fresh.clone();
        change(&mut file);
        append(vec![file], None)
    };
    let mut removing = append(vec![fresh.clone()], None);
    removing.remove = vec![Arc::clone(&live)];
    for (edit, why) in [
        (append(vec![good], None), "live already"),
        (append(vec![fresh.clone(), fresh.clone()], None), "added twice"),
        (removing, "an append that removes"),
        (compact(vec![Arc::clone(&live), Arc::clone(&live)], Vec::new()), "removed twice"),
        (with(|file| file.size_bytes += 1), "another size"),
        (with(|file| file.path = "month=2026-01/nothing.parquet".to_owned()), "not there"),
        (with(|file| file.partition = None), "no partition"),
        (with(|file| file.partition = Some("2026-02".to_owned())), "another directory"),
        (with(|file| file.partition = Some("a/b".to_owned())), "a directory in a partition"),
        (with(|file| file.path = "../b.parquet".to_owned()), "outside"),
    ] {
        let error = table.commit(edit).await.expect_err(why);
        assert!(matches!(error, TableError::Invalid { .. }), "{why}: {error}");
    }
    assert_eq!(table.current().version, 1);
    table.commit(append(vec![fresh], None)).await.expect("the good one");
}

/// Goal: appends of two committers never lose or duplicate a row, and no version is skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_appends_all_get_in() {
    let (store, clock, _) = new_table().await;
    let rounds = 40;
    let committers = 3;
    let mut tasks = JoinSet::new();
    for committer in 0..committers {
        let (store, clock) = (Arc::clone(&store), clock.clone());
        tasks.spawn(async move {
            let table = open(&store, &clock).await.expect("the table");
            let app_id = format!("node/{committer}");
            for round in 1..=rounds {
                let file =
                    written(&store, &format!("{committer}-{round}"), &[committer * 1000 + round])
                        .await;
                let edit = append(vec![file], Some((&app_id, round)));
                let version = table.commit(edit).await.expect("an append never conflicts");
                assert_eq!(version.transaction(&app_id), Some(round));
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a committer");
    }
    let table = open(&store, &clock).await.expect("the table");
    let version = table.current();
    assert_eq!(version.version, (committers * rounds).unsigned_abs(), "one version per commit");
    let expected: Vec<i64> =
        (0..committers).flat_map(|c| (1..=rounds).map(move |round| c * 1000 + round)).collect();
    assert_eq!(read_ids(&store, &version).await, expected);
    for committer in 0..committers {
        assert_eq!(version.transaction(&format!("node/{committer}")), Some(rounds));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_processes_with_one_id_one_wins() {
    for round in 0..30 {
        let (store, clock, one) = new_table().await;
        let two = open(&store, &clock).await.expect("the table");
        let commit = |table: DeltaTable, id: i64| {
            let store = Arc::clone(&store);
            async move {
                let file = written(&store, &format!("{id}"), &[id]).await;
                table.commit(append(vec![file], Some(("node/1", 5 + id)))).await
            }
        };
        let (first, second) = tokio::join!(commit(one.clone(), 1), commit(two.clone(), 2));
        assert_ne!(first.is_ok(), second.is_ok(), "round {round}");
        let (winner, loser, id) = if first.is_ok() { (one, two, 1) } else { (two, one, 2) };
        let error = first.and(second).expect_err("one of them");
        assert!(matches!(error, TableError::Fenced { .. }), "{error}");
        assert_eq!(error.kind(), Kind::Unavailable);
        assert_eq!(read_ids(&store, &winner.current()).await, [id]);

        // The loser is rejected, also with a later number and after a refresh.
        loser.refresh().await.expect("a refresh");
        let late = commit(loser, 30).await.expect_err("still fenced");
        assert!(matches!(late, TableError::Fenced { .. }), "{late}");
        commit(winner, 20).await.expect("the winner goes on");
        let reopened = open(&store, &clock).await.expect("the table");
        assert_eq!(reopened.current().transaction("node/1"), Some(25));
        commit(reopened, 40).await.expect("a new process may");
    }
}

#[tokio::test]
async fn transactions_only_go_forward() {
    let (store, _, table) = new_table().await;
    let file = written(&store, "a", &[1]).await;
    table.commit(append(vec![file.clone()], Some(("node/1", 5)))).await.expect("a commit");
    let again = table.commit(append(vec![file], Some(("node/1", 5)))).await;
    assert_eq!(again.expect("the same edit once more").version, 1, "it is in already");
    for old in [4, 5] {
        let file = written(&store, &format!("old{old}"), &[2]).await;
        let error = table.commit(append(vec![file], Some(("node/1", old)))).await;
        assert!(matches!(error, Err(TableError::Stale { current: 5, .. })));
    }
    table.commit(append(Vec::new(), Some(("node/1", 6)))).await.expect("a position without files");
    assert_eq!(table.current().transaction("node/1"), Some(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_compaction_and_appends_lose_nothing() {
    for round in 0..20 {
        let (store, clock, compactor) = new_table().await;
        let appender = open(&store, &clock).await.expect("the table");
        let small = vec![written(&store, "a", &[1]).await, written(&store, "b", &[2]).await];
        compactor.commit(append(small, None)).await.expect("a commit");
        let big = written(&store, "big", &[1, 2]).await;
        let more = written(&store, "c", &[3]).await;
        let inputs = compactor.current().files.clone();
        let (compacted, appended) = tokio::join!(
            compactor.commit(compact(inputs, vec![big])),
            appender.commit(append(vec![more], Some(("node/1", 1)))),
        );
        compacted.expect("an append is no conflict");
        appended.expect("a compaction is no conflict");
        let version = compactor.refresh().await.expect("a refresh");
        assert_eq!(version.version, 3, "round {round}");
        assert_eq!(read_ids(&store, &version).await, [1, 2, 3], "round {round}");
        assert_same_after_reopening(&store, &compactor).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_compactions_of_the_same_files_one_wins() {
    for round in 0..20 {
        let (store, clock, one) = new_table().await;
        let small = vec![written(&store, "a", &[1]).await, written(&store, "b", &[2]).await];
        one.commit(append(small, None)).await.expect("a commit");
        let two = open(&store, &clock).await.expect("the table");
        let big = [written(&store, "x", &[1, 2]).await, written(&store, "y", &[1, 2]).await];
        let [x, y] = big.map(|file| compact(one.current().files.clone(), vec![file]));
        let (first, second) = tokio::join!(one.commit(x), two.commit(y));
        assert_ne!(first.is_ok(), second.is_ok(), "round {round}");
        let error = first.and(second).expect_err("one of them");
        assert!(matches!(error, TableError::Conflict { .. }), "{error}");
        let version = one.refresh().await.expect("a refresh");
        assert_eq!((version.version, version.files.len()), (2, 1));
        assert_eq!(read_ids(&store, &version).await, [1, 2]);
    }
}

#[tokio::test]
async fn an_overwrite_must_know_the_whole_table() {
    let (store, clock, one) = new_table().await;
    let two = open(&store, &clock).await.expect("the table");
    let overwrite = |remove, file| Edit {
        add: vec![file],
        remove,
        transaction: None,
        kind: EditKind::Overwrite,
    };
    let first = written(&store, "first", &[1]).await;
    one.commit(overwrite(Vec::new(), first)).await.expect("an empty table");
    let known = one.current().files.clone();
    let unknown = written(&store, "unknown", &[2]).await;
    two.commit(append(vec![unknown], None)).await.expect("an append");
    let second = written(&store, "second", &[3]).await;
    let error = one.commit(overwrite(known, second.clone())).await.expect_err("a conflict");
    assert!(matches!(error, TableError::Conflict { .. }), "{error}");
    let version = one.commit(overwrite(one.current().files.clone(), second)).await;
    assert_eq!(read_ids(&store, &version.expect("an overwrite")).await, [3]);

    let gone = Edit {
        add: Vec::new(),
        remove: one.current().files.clone(),
        transaction: None,
        kind: EditKind::Replace,
    };
    let version = one.commit(gone.clone()).await.expect("a removal without anything instead");
    assert!(version.files.is_empty());
    one.commit(gone).await.expect_err("they are gone already");
}

#[tokio::test]
async fn a_vacuum_takes_what_nobody_needs() {
    let (store, clock, table) = new_table().await;
    let grace = Duration::from_secs(600);
    let small = vec![written(&store, "a", &[1]).await, written(&store, "b", &[2]).await];
    table.commit(append(small, None)).await.expect("a commit");
    let big = written(&store, "big", &[1, 2]).await;
    table.commit(compact(table.current().files.clone(), vec![big])).await.expect("a compaction");
    written(&store, "orphan", &[9]).await;
    store.put(&Path::from("month=2026-01/notes.txt"), "x".into()).await.expect("a put");
    store.put(&Path::from("_hidden/a.parquet"), "x".into()).await.expect("a put");

    // The simulated disk's clock is in 1970, so the orphan is old; the removals are new.
    let removed = table.vacuum(grace).await.expect("a vacuum");
    assert_eq!(removed, ["month=2026-01/orphan.parquet"]);
    clock.advance(grace - Duration::from_secs(1));
    assert_eq!(table.vacuum(grace).await.expect("a vacuum"), [""; 0]);
    clock.advance(Duration::from_secs(2));

    let reopened = open(&store, &clock).await.expect("the table");
    let mut removed = reopened.vacuum(grace).await.expect("a vacuum after a restart");
    removed.sort();
    assert_eq!(removed, ["month=2026-01/a.parquet", "month=2026-01/b.parquet"]);
    assert_eq!(table.vacuum(grace).await.expect("a vacuum"), [""; 0]);
    assert_eq!(read_ids(&store, &reopened.current()).await, [1, 2]);
    for handle in [&table, &reopened] {
        assert!(handle.shared.writer.lock().await.state.tombstones.is_empty(), "no memory of them");
    }
    let left: Vec<_> = store.list(None).try_collect().await.expect("a listing");
    let left = left.iter().filter(|meta| !meta.location.as_ref().starts_with("_delta_log"));
    assert_eq!(left.count(), 3, "the live file and two that are not ours");
    table.vacuum(Duration::from_secs(48 * 3600)).await.expect_err("too long to remember");
}

#[tokio::test]
async fn a_vacuum_spares_young_orphans_and_other_committers() {
    let store = store_on(&SimDisk::new());
    // The simulated disk's clock is seconds since 1970, one per operation.
    let clock = Clock::test(UnixMicros(600_000_000));
    let table = open(&store, &clock).await.expect("a new table");
    let other = open(&store, &clock).await.expect("the table");
    written(&store, "flush-under-way", &[1]).await;
    let theirs = written(&store, "theirs", &[2]).await;
    other.commit(append(vec![theirs], None)).await.expect("a commit");
    assert_eq!(table.vacuum(Duration::from_secs(600)).await.expect("a vacuum"), [""; 0]);
    clock.advance(Duration::from_secs(600));
    let removed = table.vacuum(Duration::from_secs(600)).await.expect("a vacuum");
    assert_eq!(removed, ["month=2026-01/flush-under-way.parquet"], "not what the other committed");
    assert_eq!(read_ids(&store, &table.current()).await, [2]);
}

#[tokio::test]
async fn columns_can_join_later() {
    let (store, clock, table) = new_table().await;
    table.commit(append(vec![written(&store, "a", &[1]).await], None)).await.expect("a commit");
    let with = |field: Field| {
        let mut fields = columns();
        fields.push(field);
        DeltaTable::open_or_create(Arc::clone(&store), location(), spec_of(fields), clock.clone())
    };
    let wide = with(Field::new("p_browser", DataType::Utf8, true)).await.expect("a wider table");
    assert_eq!(wide.current().version, 2);
    assert!(wide.current().schema.field_with_name("p_browser").is_ok());
    assert!(wide.current().schema.field_with_name("month").is_err());
    assert_eq!(read_ids(&store, &wide.current()).await, [1]);

    // A description of a column becomes its comment, and its absence removes none.
    let described = HashMap::from([("description".to_owned(), "words".to_owned())]);
    let field = Field::new("p_os", DataType::Utf8, true).with_metadata(described);
    let wider = with(field).await.expect("a wider table");
    assert_eq!(wider.current().version, 3);
    let comments = |version: u64| {
        let path = Path::from(format!("_delta_log/{version:020}.json"));
        let store = Arc::clone(&store);
        async move {
            let commit = store.get(&path).await.expect("a commit").bytes().await.expect("its text");
            String::from_utf8_lossy(&commit).matches(r#"{\"comment\":\"words\"}"#).count()
        }
    };
    assert_eq!(comments(3).await, 1);
    let widest = with(Field::new("p_lib", DataType::Utf8, true)).await.expect("a wider table");
    assert_eq!((widest.current().version, comments(4).await), (4, 1));

    // The older program continues beside it, and does not remove the column.
    table.commit(append(vec![written(&store, "b", &[2]).await], None)).await.expect("a commit");
    let again = open(&store, &clock).await.expect("the older program");
    assert_eq!(again.current().version, 5);
    assert!(again.current().schema.field_with_name("p_browser").is_ok());

    for (field, why) in [
        (Field::new("p_browser", DataType::Int64, true), "another type"),
        (Field::new("p_new", DataType::Int64, false), "never null, and new"),
        (Field::new("p new", DataType::Int64, true), "a name that needs column mapping"),
        (Field::new("p_u64", DataType::UInt64, true), "a type that Delta lacks"),
        (Field::new("p_t", DataType::Timestamp(TimeUnit::Microsecond, None), true), "no zone"),
    ] {
        let error = with(field).await.expect_err(why);
        assert!(matches!(error, TableError::Schema { .. }), "{why}: {error}");
    }
    let other_partition = TableSpec { partition_column: None, ..spec() };
    DeltaTable::open_or_create(Arc::clone(&store), location(), other_partition, clock.clone())
        .await
        .expect_err("not partitioned");
}

#[tokio::test]
async fn a_reader_changes_nothing() {
    let store = store_on(&SimDisk::new());
    let clock = Clock::test(NOW);
    let read = || {
        let mut fields = columns();
        fields.push(Field::new("p_new", DataType::Utf8, true));
        let (store, spec) = (Arc::clone(&store), spec_of(fields));
        DeltaTable::open_existing(store, location(), spec, clock.clone())
    };
    assert!(read().await.expect("a working disk").is_none());
    let table = open(&store, &clock).await.expect("a new table");
    table.commit(append(vec![written(&store, "a", &[1]).await], None)).await.expect("a commit");
    let reader = read().await.expect("a working disk").expect("the table");
    assert_eq!(read_ids(&store, &reader.current()).await, [1]);
    assert_eq!(table.refresh().await.expect("a refresh").version, 1, "no column was added");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_creations_make_one_table() {
    for _ in 0..20 {
        let store = store_on(&SimDisk::new());
        let clock = Clock::test(NOW);
        let (one, two) = tokio::join!(open(&store, &clock), open(&store, &clock));
        let (one, two) = (one.expect("a table"), two.expect("a table"));
        one.commit(append(vec![written(&store, "a", &[1]).await], None)).await.expect("a commit");
        assert_eq!(two.refresh().await.expect("a refresh").version, 1);
    }
}
