//! Delta log compatibility with the library `deltalake`, in both directions: commits, checkpoints,
//! and a log that begins with a checkpoint.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use object_store::ObjectStore;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use url::Url;
use weir_base::clock::Clock;
use weir_disk::OsDisk;
use weir_storage::delta::{CHECKPOINT_INTERVAL, DataFile, DeltaTable, Edit, EditKind, TableSpec};
use weir_storage::durable::DurableStore;
use weir_storage::parquet::{Effort, FileWriter, Layout};

use crate::sdk::{source, tools};

const APP: &str = "node/1";

fn spec() -> TableSpec {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let columns = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("event", DataType::Utf8, true),
        Field::new("timestamp", utc, true),
    ];
    let schema = Arc::new(Schema::new(columns));
    TableSpec { name: "events", schema, partition_column: Some("month") }
}

async fn open(directory: &Path) -> DeltaTable {
    let store = DurableStore::new(Arc::new(OsDisk), directory);
    store.recover().expect("a working disk");
    let location = Url::from_directory_path(directory).expect("an absolute path");
    let table = DeltaTable::open_or_create(Arc::new(store), location, spec(), Clock::system());
    let table = table.await.expect("the table");
    assert_eq!(table.damage(), []);
    table
}

/// Writes a file with these rows.
async fn write(table: &DeltaTable, name: &str, ids: &[i64]) -> DataFile {
    let none = Vec::new;
    let layout = Layout {
        sort: none(),
        bloom: none(),
        statistics: vec![0, 2],
        unique: none(),
        wide: none(),
    };
    let store: Arc<dyn ObjectStore> = table.store();
    let (effort, month) = (Effort::Flush, Some("2026-11".to_owned()));
    let mut writer = FileWriter::new(&store, &spec(), &layout, effort, month, name).unwrap();
    let times = ids.iter().map(|id| 1_795_248_000_000_000 + id);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("event {id}")))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")),
    ];
    let batch = RecordBatch::try_new(spec().schema, columns).expect("columns of the schema");
    writer.write(&batch).await.expect("rows");
    writer.finish().await.expect("a file")
}

async fn flush(table: &DeltaTable, id: i64) {
    let add = vec![write(table, &format!("{id}.parquet"), &[id]).await];
    let transaction = Some((APP.to_owned(), id));
    let edit = Edit { add, remove: Vec::new(), transaction, kind: EditKind::Append };
    table.commit(edit).await.expect("a flush");
}

async fn merge(table: &DeltaTable, name: &str, directory: &Path) {
    let remove = table.current().files.clone();
    let add = vec![write(table, name, &ids(table, directory)).await];
    let edit = Edit { add, remove, transaction: None, kind: EditKind::Compact };
    table.commit(edit).await.expect("a merge");
}

/// The rows of the live files.
fn ids(table: &DeltaTable, directory: &Path) -> Vec<i64> {
    let mut ids = Vec::new();
    for file in &table.current().files {
        let bytes = std::fs::File::open(directory.join(&file.path)).expect("a live file");
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a Parquet file");
        let before = ids.len();
        for batch in reader.build().expect("a reader") {
            let batch = batch.expect("rows");
            let column = batch.column_by_name("id").expect("the column").clone();
            ids.extend(column.as_primitive::<Int64Type>().values().iter().copied());
        }
        let rows = u64::try_from(ids.len() - before).expect("a count");
        assert_eq!(rows, file.rows, "{}", file.path);
    }
    ids.sort_unstable();
    ids
}

/// The library's view of the table, after the change.
fn theirs(tools: &Path, directory: &Path, what: &[&str]) -> Vec<Value> {
    let mut command = Command::new(tools.join("readers/bin/python"));
    command.arg(source("delta.py")).arg(directory).args(what).stderr(Stdio::inherit());
    let output = command.output().expect("delta.py starts");
    assert!(output.status.success(), "delta.py: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let said: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(said.len(), 2);
    said
}

fn assert_same(said: &[Value], table: &DeltaTable, expected: &[i64], directory: &Path) {
    assert_eq!(ids(table, directory), expected);
    let current = table.current();
    for reader in said {
        let engine = &reader["engine"];
        assert_eq!(reader["ids"], serde_json::json!(expected), "{engine}");
        assert_eq!(reader["version"], current.version, "{engine}");
        assert_eq!(reader["node"], current.transaction(APP).expect("a position"), "{engine}");
        assert_eq!(reader["files"], current.files.len(), "{engine}");
    }
}

/// Removes the commits up to `version`, as log clean-up does after a day.
fn cut_log(directory: &Path, version: u64) {
    for version in 0..=version {
        let commit = directory.join(format!("_delta_log/{version:020}.json"));
        std::fs::remove_file(commit).expect("a commit");
    }
}

/// Goal: each side reads the checkpoints of the other, without the commits before. Method: a table
/// whose log begins with a checkpoint is written alternately, three times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_change_hands() {
    let tools = tools();
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let table = open(directory).await;
    let interval = i64::try_from(CHECKPOINT_INTERVAL).expect("small");
    // With the creation and a merge that makes 4 commits after the checkpoint.
    let last = interval + 3;
    for id in 1..=last {
        if id == interval / 2 {
            merge(&table, "merged.parquet", directory).await;
        }
        flush(&table, id).await;
    }
    let mut expected: Vec<i64> = (1..=last).collect();
    cut_log(directory, CHECKPOINT_INTERVAL);
    assert_same(&theirs(&tools, directory, &["read"]), &table, &expected, directory);
    let table = open(directory).await;
    assert_same(&theirs(&tools, directory, &["read"]), &table, &expected, directory);

    // Theirs: a checkpoint with tombstones, nulls, an odd partition, and no commit at all.
    let said = theirs(&tools, directory, &["change", "1001", "1002", "1003", "1004"]);
    expected.extend([1002, 1003, 1004]);
    let reopened = open(directory).await;
    assert_same(&said, &reopened, &expected, directory);
    let odd =
        reopened.current().files.iter().any(|f| f.partition.as_deref() == Some("odd % month"));
    assert!(odd, "the partition is read as it was written");

    // Ours once more, over what is left of theirs.
    for id in last + 1..=last + interval {
        flush(&reopened, id).await;
        expected.push(id);
    }
    expected.sort_unstable();
    let names = std::fs::read_dir(directory.join("_delta_log")).expect("the log");
    let names =
        names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    let version_of = |name: String| name.strip_suffix(".checkpoint.parquet")?.parse::<u64>().ok();
    let checkpoint = names.filter_map(version_of).max().expect("a checkpoint");
    for version in 0..=checkpoint {
        let _ = std::fs::remove_file(directory.join(format!("_delta_log/{version:020}.json")));
    }
    let table = open(directory).await;
    assert_same(&theirs(&tools, directory, &["read"]), &table, &expected, directory);
}
