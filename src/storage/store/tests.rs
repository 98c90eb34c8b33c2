//! Tests of commits with an unknown outcome: no row is lost or counted twice. `chaos` has faults at random, `followed` a
//! writer elsewhere.

mod chaos;
mod followed;

use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use clap::Parser;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use url::Url;

use super::*;
use crate::delta::TableSpec;
use crate::durable::DurableStore;
use crate::faulty_store::{Fault, FaultyStore};
use weir_disk::Disk;
use weir_sim::disk::SimDisk;

const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);
const DAY_MICROS: i64 = 86_400_000_000;
const APP: &str = "node/1";

/// The faults after which the outcome of a commit is unknown.
const FAULTS: [Fault; 2] = [Fault::AnswerLost, Fault::NotDone];

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    storage: StorageConfig,
}

async fn open(objects: &Arc<FaultyStore>) -> Store {
    open_in(Arc::clone(objects) as Arc<dyn ObjectStore>).await
}

/// One partition per day.
async fn open_in(objects: Arc<dyn ObjectStore>) -> Store {
    try_open(objects, APP, Clock::test(NOW)).await.expect("the table")
}

/// The same as another node, on a store that may fail.
async fn try_open(
    objects: Arc<dyn ObjectStore>,
    app: &str,
    clock: Clock,
) -> Result<Store, TableError> {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let columns = vec![Field::new("id", DataType::Int64, true), Field::new("timestamp", utc, true)];
    let spec = TableSpec {
        name: "events",
        schema: Arc::new(Schema::new(columns)),
        partition_column: Some("month"),
    };
    let location = Url::parse("file:///data/events/").expect("a valid address");
    let table = DeltaTable::open_or_create(objects, location, spec, clock.clone()).await?;
    let none = Vec::new;
    let layout =
        Layout { sort: vec![0], bloom: none(), statistics: vec![0], unique: none(), wide: none() };
    let days = |time: UnixMicros| i32::try_from((time.0 - NOW.0) / DAY_MICROS).expect("few");
    let name = |day| format!("2026-{}", 11 + day);
    let partitioning = Partitioning { time_column: 1, key: days, name };
    let settings = Defaults::parse_from(["weir"]).storage;
    Ok(Store::new(table, layout, partitioning, app.to_owned(), settings, clock))
}

/// Makes one row visible, whose id is the sequence of its record.
fn insert(store: &Store, sequence: u64) {
    insert_as(store, sequence, sequence.cast_signed());
}

fn insert_as(store: &Store, sequence: u64, id: i64) {
    let times = TimestampMicrosecondArray::from(vec![NOW.0]).with_timezone("UTC");
    let columns: Vec<Option<ArrayRef>> =
        vec![Some(Arc::new(Int64Array::from(vec![id]))), Some(Arc::new(times))];
    let rows =
        Rows { len: 1, columns, memory_bytes: 100, runs: Vec::new(), exact: ExactColumns::ALL };
    store.insert(rows, Sequence(sequence)).expect("rows that fit");
}

async fn flush(store: &Store) -> Result<Option<Flushed>, StoreError> {
    store.flush(Sequence(u64::MAX), &|_| None).await
}

fn is_in_doubt<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Table(TableError::InDoubt { .. })))
}

/// The ids that a query counts, in files and in memory.
async fn ids(store: &Store) -> Vec<i64> {
    let snapshot = store.snapshot();
    let mut ids = Vec::new();
    for file in &snapshot.version.files {
        let path = Path::parse(&file.path).expect("a valid path");
        let file = store.table().store().get(&path).await.expect("a live file");
        let bytes = file.bytes().await.expect("its bytes");
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a Parquet file");
        for batch in reader.build().expect("a reader") {
            let batch = batch.expect("rows");
            ids.extend(batch.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
    }
    for batch in snapshot.batches {
        let column = batch.columns[0].clone().expect("ids");
        ids.extend(column.as_primitive::<Int64Type>().values().iter().copied());
    }
    ids.sort_unstable();
    ids
}

/// A store with the rows 1 and 2 in a file each.
async fn with_two_files() -> (Arc<FaultyStore>, Store) {
    let objects = Arc::new(FaultyStore::default());
    let store = open(&objects).await;
    for sequence in [1, 2] {
        insert(&store, sequence);
        store.freeze();
        flush(&store).await.expect("a flush");
    }
    (objects, store)
}

/// Replaces all files by one with the same rows, or by none.
async fn merge_of_all(store: &Store, keeps_rows: bool) -> Edit {
    let table = store.table();
    let remove = table.current().files.clone();
    let (mut add, mut kind) = (Vec::new(), EditKind::Replace);
    if keeps_rows {
        let name = naming::merged(remove.iter().map(AsRef::as_ref), Sequence(0));
        let (layout, month) = (store.layout(), Some("2026-11".to_owned()));
        let writer =
            FileWriter::new(&table.store(), table.spec(), layout, Effort::Merge, month, &name);
        let mut writer = writer.expect("a file");
        for file in &remove {
            let path = Path::parse(&file.path).expect("a valid path");
            let bytes = table.store().get(&path).await.expect("a live file").bytes().await;
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.expect("its bytes"));
            for batch in reader.expect("a Parquet file").build().expect("a reader") {
                writer.write(&batch.expect("rows")).await.expect("rows");
            }
        }
        add.push(writer.finish().await.expect("a file"));
        kind = EditKind::Compact;
    }
    Edit { add, remove, transaction: None, kind }
}

#[tokio::test]
async fn a_flush_in_doubt_is_committed_again_before_anything_else() {
    for (fault, again) in FAULTS.iter().flat_map(|one| FAULTS.map(|two| (*one, two))) {
        let (objects, store) = with_two_files().await;
        let context = format!("{fault:?}, {again:?}");
        insert(&store, 3);
        store.freeze();
        insert(&store, 4);
        *objects.fault.lock() = Some(fault);
        assert!(is_in_doubt(&flush(&store).await), "{context}");
        assert_eq!(ids(&store).await, [1, 2, 3, 4], "{context}");

        // No other commit comes in between: no merge, not even of a handle that has reread the table.
        let merge = merge_of_all(&store, true).await;
        let refused = store.replace(merge.clone()).await.expect_err("a commit is in doubt");
        assert!(matches!(refused, StoreError::Pending("events")), "{context}: {refused}");
        assert_eq!(refused.kind(), Kind::Unavailable);
        store.table().refresh().await.expect("a look at the table");
        assert_eq!(ids(&store).await, [1, 2, 3, 4], "{context}");
        let merge = merge_of_all(&store, true).await;
        store.replace(merge).await.expect_err("it still is");

        // And no flush of later rows. The same fault may happen again.
        store.freeze();
        *objects.fault.lock() = Some(again);
        let flushed = match flush(&store).await {
            // The first attempt was applied, so the second puts nothing.
            Ok(flushed) if fault == Fault::AnswerLost => flushed,
            result => {
                assert!(is_in_doubt(&result), "{context}");
                assert_eq!(ids(&store).await, [1, 2, 3, 4], "{context}");
                flush(&store).await.expect("the third try")
            }
        };
        *objects.fault.lock() = None;
        let flushed = flushed.expect("the oldest memtable");
        assert_eq!((flushed.through, flushed.rows), (Sequence(3), 1), "{context}");
        assert_eq!(store.flushed_through(), Sequence(3), "{context}");
        assert_eq!(store.snapshot().version.files.len(), 3, "{context}");
        assert_eq!(ids(&store).await, [1, 2, 3, 4], "{context}");

        let merge = merge_of_all(&store, true).await;
        store.replace(merge).await.expect("nothing is in doubt");
        let flushed = flush(&store).await.expect("a flush").expect("the other memtable");
        assert_eq!(flushed.through, Sequence(4), "{context}");
        assert_eq!(flush(&store).await.expect("nothing to do"), None);
        assert_eq!(ids(&store).await, [1, 2, 3, 4], "{context}");
        assert_eq!(ids(&open(&objects).await).await, [1, 2, 3, 4], "{context}");
    }
}

#[tokio::test]
async fn a_merge_in_doubt_is_committed_again_before_a_flush() {
    for (fault, keeps_rows) in FAULTS.iter().flat_map(|fault| [(*fault, true), (*fault, false)]) {
        let (objects, store) = with_two_files().await;
        let context = format!("{fault:?}, {keeps_rows}");
        let merge = merge_of_all(&store, keeps_rows).await;
        *objects.fault.lock() = Some(fault);
        let result = store.replace(merge.clone()).await;
        assert!(is_in_doubt(&result), "{context}");
        assert_eq!(ids(&store).await, [1, 2], "{context}: as before");
        let refused = store.replace(merge).await.expect_err("in doubt");
        assert!(matches!(refused, StoreError::Pending("events")), "{context}");

        insert(&store, 3);
        store.freeze();
        let flushed = flush(&store).await.expect("a flush").expect("the memtable");
        assert_eq!(flushed.through, Sequence(3), "{context}");
        let expected: &[i64] = if keeps_rows { &[1, 2, 3] } else { &[3] };
        assert_eq!(ids(&store).await, expected, "{context}");
        assert_eq!(store.snapshot().version.files.len(), expected.len().min(2), "{context}");
        assert_eq!(store.table().current().version, 4, "{context}: one commit each");
        assert_eq!(ids(&open(&objects).await).await, expected, "{context}");
    }
}

/// Goal: after a restart the table shows the outcome of the commit. Method: insert the rows of records
/// after its position again, as the replay of the log does.
#[tokio::test]
async fn a_restart_settles_what_is_in_doubt() {
    for fault in FAULTS {
        let (objects, store) = with_two_files().await;
        insert(&store, 3);
        store.freeze();
        *objects.fault.lock() = Some(fault);
        assert!(is_in_doubt(&flush(&store).await), "{fault:?}");
        drop(store);
        let store = open(&objects).await;
        let flushed = store.flushed_through();
        let expected = if fault == Fault::AnswerLost { 3 } else { 2 };
        assert_eq!(flushed, Sequence(expected), "{fault:?}");
        for sequence in flushed.0 + 1..=4 {
            insert(&store, sequence);
        }
        store.freeze();
        flush(&store).await.expect("a flush");
        assert_eq!(ids(&store).await, [1, 2, 3, 4], "{fault:?}");

        // The same with a merge.
        let merge = merge_of_all(&store, true).await;
        *objects.fault.lock() = Some(fault);
        assert!(is_in_doubt(&store.replace(merge).await), "{fault:?}");
        let store = open(&objects).await;
        assert_eq!(ids(&store).await, [1, 2, 3, 4], "{fault:?}");
        assert_eq!(store.snapshot().version.files.len() == 1, fault == Fault::AnswerLost);
    }
}

/// The files of an edit that was not committed may be removed by a vacuum before the next attempt.
#[tokio::test]
async fn rows_whose_files_are_gone_are_written_again() {
    let (objects, store) = with_two_files().await;
    insert(&store, 3);
    store.freeze();
    *objects.fault.lock() = Some(Fault::NotDone);
    assert!(is_in_doubt(&flush(&store).await));
    let live = store.table().current().files.clone();
    let all = store.table().store().list_with_delimiter(Some(&Path::from("month=2026-11"))).await;
    for object in all.expect("a listing").objects {
        if live.iter().all(|file| file.path != object.location.as_ref()) {
            store.table().store().delete(&object.location).await.expect("a deletion");
        }
    }
    let error = flush(&store).await.expect_err("nothing to commit");
    assert!(matches!(error, StoreError::Table(TableError::Invalid { .. })), "{error}");
    assert_eq!(ids(&store).await, [1, 2, 3]);
    let flushed = flush(&store).await.expect("a flush").expect("the memtable");
    assert_eq!((flushed.through, flushed.rows), (Sequence(3), 1));
    assert_eq!(ids(&store).await, [1, 2, 3]);
}

/// Goal: a commit that was applied before a read of the log failed is published. Method: a flush whose
/// commit is in the table without a response; then the commit after it cannot be read, once.
#[tokio::test]
async fn what_was_read_before_an_error_is_shown() {
    for fault in [Fault::AnswerLost, Fault::DoneTwice] {
        let (objects, store) = with_two_files().await;
        insert(&store, 3);
        store.freeze();
        *objects.fault.lock() = Some(fault);
        if fault == Fault::AnswerLost {
            assert!(is_in_doubt(&flush(&store).await), "{fault:?}");
        }
        *objects.reads_until_failure.lock() = Some(1);
        flush(&store).await.expect_err("the log cannot be read to its end");
        assert_eq!(ids(&store).await, [1, 2, 3], "{fault:?}");
        let flushed = flush(&store).await.expect("the log can be read").expect("the memtable");
        assert_eq!(flushed.through, Sequence(3), "{fault:?}");
        assert_eq!(ids(&store).await, [1, 2, 3], "{fault:?}: in a file");
        assert_eq!(store.snapshot().batches.len(), 0, "{fault:?}");
        assert_eq!(ids(&open(&objects).await).await, [1, 2, 3], "{fault:?}");
    }
}

/// Goal: repeated attempts of a failing flush do not fill the disk. Method: rows of two partitions, with
/// disk space for the files of the first only.
#[tokio::test]
async fn a_flush_that_fails_leaves_no_files() {
    let disk = SimDisk::new();
    let objects = DurableStore::new(Arc::new(disk.clone()), "/data/events");
    objects.recover().expect("an empty directory");
    let store = open_in(Arc::new(objects)).await;
    insert(&store, 1);
    let ids_of_day = Int64Array::from_iter_values((0..20_000).map(|n: i64| n.wrapping_mul(n * n)));
    let times = TimestampMicrosecondArray::from(vec![NOW.0 + DAY_MICROS; 20_000]);
    let columns: Vec<Option<ArrayRef>> =
        vec![Some(Arc::new(ids_of_day)), Some(Arc::new(times.with_timezone("UTC")))];
    let rows = Rows {
        len: 20_000,
        columns,
        memory_bytes: 100,
        runs: Vec::new(),
        exact: ExactColumns::ALL,
    };
    store.insert(rows, Sequence(2)).expect("rows that fit");
    store.freeze();
    let free = || disk.free_bytes(std::path::Path::new("/")).expect("the free space");
    let before = free();
    disk.set_capacity_bytes(20_000);
    for _ in 0..3 {
        flush(&store).await.expect_err("no room");
    }
    disk.set_capacity_bytes(1 << 40);
    // The written part of an upload is removed independently of it.
    for _ in 0..100 {
        if free() == before {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(free(), before, "nothing is left");
    let flushed = flush(&store).await.expect("room").expect("the memtable");
    assert_eq!(flushed.rows, 20_001);
}
