//! Compatibility of the table: protocol actions, checkpoints, object stores with lost or repeated
//! responses. Other engines open it in `tests/server/delta.rs` and `tests/server/sdk.rs`.

use object_store::memory::InMemory;
use serde_json::Value as Json;

use super::*;
use crate::faulty_store::{Fault, FaultyStore};

async fn commit_lines(store: &Arc<dyn ObjectStore>, version: u64) -> Vec<Json> {
    let path = Path::from(format!("_delta_log/{version:020}.json"));
    let bytes = store.get(&path).await.expect("the commit").bytes().await.expect("its bytes");
    let text = std::str::from_utf8(&bytes).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("json")).collect()
}

fn action<'lines>(lines: &'lines [Json], name: &str) -> &'lines Json {
    lines.iter().find_map(|line| line.get(name)).expect("the action")
}

/// Every engine supports reader version 1 and writer version 2; higher versions exclude some.
#[tokio::test]
async fn the_protocol_stays_old() {
    let (store, _, _) = new_table().await;
    let lines = commit_lines(&store, 0).await;
    let protocol = action(&lines, "protocol");
    assert_eq!(*protocol, serde_json::json!({"minReaderVersion": 1, "minWriterVersion": 2}));
    let metadata = action(&lines, "metaData");
    assert_eq!(metadata["partitionColumns"], serde_json::json!(["month"]));
    assert_eq!(metadata["configuration"]["delta.checkpointInterval"], "100");
    for feature in ["delta.columnMapping.mode", "delta.enableDeletionVectors"] {
        assert!(metadata["configuration"].get(feature).is_none(), "{feature}");
    }
    let schema = metadata["schemaString"].as_str().expect("a schema");
    let schema: Json = serde_json::from_str(schema).expect("json");
    let fields = schema["fields"].as_array().expect("fields").iter();
    let types: Vec<_> = fields
        .map(|field| (field["name"].clone(), field["type"].clone(), field["nullable"].clone()))
        .collect();
    let expected = [
        ("id", "long", false),
        ("event", "string", true),
        ("timestamp", "timestamp", true),
        ("month", "string", true),
    ];
    let expected = expected.map(|(name, kind, null)| (name.into(), kind.into(), null.into()));
    assert_eq!(types, expected);
}

/// Engines that stream the table must skip compactions, and must not skip flushes.
#[tokio::test]
async fn commits_say_what_they_change() {
    let (store, _, table) = new_table().await;
    let file = written(&store, "a", &[1]).await;
    table.commit(append(vec![file], Some(("node/1", 9)))).await.expect("a commit");
    let big = written(&store, "big", &[1]).await;
    table.commit(compact(table.current().files.clone(), vec![big])).await.expect("a compaction");
    let flush = commit_lines(&store, 1).await;
    assert_eq!(action(&flush, "add")["dataChange"], true);
    assert_eq!(action(&flush, "add")["partitionValues"], serde_json::json!({"month": "2026-01"}));
    assert_eq!(action(&flush, "txn")["appId"], "node/1");
    assert_eq!(action(&flush, "txn")["version"], 9);
    assert_eq!(action(&flush, "commitInfo")["timestamp"], NOW.0 / 1000);
    let compaction = commit_lines(&store, 2).await;
    assert_eq!(action(&compaction, "add")["dataChange"], false);
    assert_eq!(action(&compaction, "remove")["dataChange"], false);
    assert_eq!(action(&compaction, "remove")["path"], "month=2026-01/a.parquet");
    assert_eq!(action(&compaction, "remove")["deletionTimestamp"], NOW.0 / 1000);
}

/// Removes the commits up to `version`, which a checkpoint of that version replaces.
async fn cut_log(store: &Arc<dyn ObjectStore>, version: u64) {
    for version in 0..=version {
        let path = Path::from(format!("_delta_log/{version:020}.json"));
        store.delete(&path).await.expect("a deletion");
    }
}

async fn log_names(store: &Arc<dyn ObjectStore>) -> BTreeSet<String> {
    let log = Path::from("_delta_log");
    let log: Vec<_> = store.list(Some(&log)).try_collect().await.expect("a listing");
    log.iter().map(|meta| meta.location.filename().unwrap_or_default().to_owned()).collect()
}

/// Goal: a checkpoint has the same state as the commits before it. Method: 250 commits with compactions;
/// then the log starts with the last checkpoint, and later with one that was written from that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn checkpoints_do_not_change_the_table() {
    let (store, _, table) = new_table().await;
    let mut expected = Vec::new();
    for id in 1..=250_i64 {
        let file = written(&store, &format!("{id}"), &[id]).await;
        if id % 7 == 0 {
            let inputs = table.current().files.clone();
            let ids = read_ids(&store, &table.current()).await;
            let big = written(&store, &format!("big{id}"), &ids).await;
            table.commit(compact(inputs, vec![big])).await.expect("a compaction");
        }
        let app_id = format!("node/{}", id % 3);
        table.commit(append(vec![file], Some((&app_id, id)))).await.expect("a commit");
        expected.push(id);
    }
    assert_eq!(read_ids(&store, &table.current()).await, expected);
    let names = log_names(&store).await;
    for version in [100, 200] {
        assert!(names.contains(&format!("{version:020}.checkpoint.parquet")), "{names:?}");
    }
    assert!(names.contains(&format!("{:020}.json", 0)), "nothing is removed this early");
    assert_same_after_reopening(&store, &table).await;
    cut_log(&store, 200).await;
    assert_same_after_reopening(&store, &table).await;
    let reopened = open(&store, &Clock::test(NOW)).await.expect("the table");
    for handle in [&table, &reopened] {
        let mut writer = handle.shared.writer.lock().await;
        let tombstones = writer.state.tombstones.clone();
        handle.shared.checkpoint(&mut writer).await.expect("a checkpoint");
        drop(writer);
        assert_same_after_reopening(&store, &table).await;
        let again = open(&store, &Clock::test(NOW)).await.expect("the table");
        assert_eq!(again.shared.writer.lock().await.state.tombstones, tombstones);
    }
}

/// The log is cleaned up only before a checkpoint, and a handle that was idle meanwhile reloads from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_does_not_grow_for_ever() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    // The store's files have the current time.
    let clock = Clock::test(Clock::system().now());
    let table = open(&store, &clock).await.expect("a new table");
    let idle = open(&store, &clock).await.expect("the table");
    let commits = LOG_COMMITS_MIN + 2 * CHECKPOINT_INTERVAL;
    for n in 1..=commits.cast_signed() {
        if n == commits.cast_signed() {
            let names = log_names(&store).await;
            assert!(names.contains(&format!("{:020}.json", 0)), "the retention is not over");
            clock.advance(LOG_RETENTION + Duration::from_secs(60));
        }
        table.commit(append(Vec::new(), Some(("node/1", n)))).await.expect("a commit");
    }
    let names = log_names(&store).await;
    let (gone, kept) = (2 * CHECKPOINT_INTERVAL - 1, 2 * CHECKPOINT_INTERVAL);
    assert!(!names.contains(&format!("{gone:020}.json")), "{names:?}");
    for version in kept..=commits {
        assert!(names.contains(&format!("{version:020}.json")), "{version}");
    }
    assert_same_after_reopening(&store, &table).await;

    assert_eq!(idle.current().version, 0);
    let file = written(&store, "late", &[1]).await;
    let fenced = idle.commit(append(vec![file.clone()], Some(("node/1", 1 << 40)))).await;
    assert!(matches!(fenced, Err(TableError::Fenced { .. })), "the other handle is node/1");
    assert_eq!(idle.current().version, commits);
    idle.commit(append(vec![file], Some(("node/9", 1)))).await.expect("a commit");
    assert_eq!(table.refresh().await.expect("a refresh").version, commits + 1);
}

/// Multi-part checkpoints and those of version 2 are not read, but they do not affect a table with all
/// commits.
#[tokio::test]
async fn other_checkpoints_are_refused_if_they_are_needed() {
    for name in [
        "00000000000000000002.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
    ] {
        let (store, clock, table) = new_table().await;
        for id in 1..=3 {
            let file = written(&store, &format!("{id}"), &[id]).await;
            table.commit(append(vec![file], None)).await.expect("a commit");
        }
        store.put(&Path::from(format!("_delta_log/{name}")), "x".into()).await.expect("a put");
        assert_same_after_reopening(&store, &table).await;
        cut_log(&store, 2).await;
        let error = open(&store, &clock).await.expect_err(name);
        assert!(matches!(error, TableError::Unsupported { .. }), "{error}");
        store
            .delete(&Path::from("_delta_log/00000000000000000003.json"))
            .await
            .expect("a deletion");
        let error = open(&store, &clock).await.expect_err(name);
        assert!(matches!(error, TableError::Unsupported { .. }), "{error}");
    }
}

/// Features that would return wrong rows if ignored are rejected, in any protocol version.
#[tokio::test]
async fn deletion_vectors_and_unknown_types_are_refused() {
    let vector = r#"{"add":{"path":"month=2026-01/a.parquet","partitionValues":{"month":"2026-01"},"size":1,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":2}","deletionVector":{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":4,"cardinality":1}}}"#;
    let types = r#"{"metaData":{"id":"a","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"variant\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":["month"],"configuration":{}}}"#;
    let no_rows = vector.replace("numRecords", "records").replace("deletionVector", "other");
    for text in [vector, types, &no_rows] {
        let (store, clock, _) = new_table().await;
        let path = Path::from("_delta_log/00000000000000000001.json");
        store.put(&path, text.to_owned().into()).await.expect("a put");
        let error = open(&store, &clock).await.expect_err(text);
        assert!(matches!(error, TableError::Unsupported { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_newer_protocol_is_refused() {
    let (store, clock, table) = new_table().await;
    let upgrade = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":[]}}"#;
    let path = Path::from("_delta_log/00000000000000000001.json");
    store.put(&path, upgrade.into()).await.expect("a put");
    for error in [
        table.refresh().await.expect_err("a refresh"),
        table.commit(append(Vec::new(), Some(("a", 1)))).await.expect_err("a commit"),
        open(&store, &clock).await.expect_err("an opening"),
    ] {
        assert!(matches!(error, TableError::Unsupported { .. }), "{error}");
    }
    assert_eq!(table.current().version, 0);
}

#[tokio::test]
async fn a_lost_answer_is_no_lost_and_no_double_commit() {
    for fault in [Fault::AnswerLost, Fault::DoneTwice, Fault::NotDone] {
        let faulty = Arc::new(FaultyStore::default());
        let store = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
        let table = open(&store, &Clock::test(NOW)).await.expect("a new table");
        let edit = append(vec![written(&store, "a", &[1]).await], Some(("node/1", 1)));
        *faulty.fault.lock() = Some(fault);
        match (fault, table.commit(edit.clone()).await) {
            (Fault::DoneTwice, committed) => assert_eq!(committed.expect("a commit").version, 1),
            (_, Err(TableError::InDoubt { version: 1, .. })) => {
                // As the documentation of the error recommends.
                assert_eq!(table.commit(edit).await.expect("the same edit again").version, 1);
            }
            (_, other) => panic!("{fault:?}: {other:?}"),
        }
        assert_eq!(read_ids(&store, &table.current()).await, [1], "{fault:?}");
        let next = append(vec![written(&store, "b", &[2]).await], Some(("node/1", 2)));
        assert_eq!(table.commit(next).await.expect("it is not fenced").version, 2);
        assert_same_after_reopening(&store, &table).await;
    }
}
