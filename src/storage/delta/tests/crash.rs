//! Power cuts during flushes, compactions, vacuums and checkpoints of a table.

use super::*;
use weir_sim::disk::Survival;

const SURVIVALS: [Survival; 7] = [
    Survival::Lose,
    Survival::Keep,
    Survival::Mixed(1),
    Survival::Mixed(2),
    Survival::Mixed(3),
    Survival::Mixed(4),
    Survival::Mixed(5),
];

const APP: &str = "node/1";

/// The rows of flush `n`; those of the second flush are in two months.
fn flush_ids(n: i64) -> Vec<Vec<i64>> {
    match n {
        1 => vec![vec![1, 2]],
        2 => vec![vec![3], vec![13]],
        _ => vec![vec![5]],
    }
}

/// All rows after flush `n`.
fn ids_after(n: i64) -> Vec<i64> {
    let mut ids: Vec<i64> = (1..=n).flat_map(flush_ids).flatten().collect();
    ids.sort_unstable();
    ids
}

/// Writes the files of flush `n` and commits them with the transaction `n`. Names are new in every attempt,
/// as files of a failed attempt may still exist.
async fn flush(store: &Arc<dyn ObjectStore>, table: &DeltaTable, n: i64) -> Result<(), TableError> {
    let mut files = Vec::new();
    for ids in flush_ids(n) {
        let name = format!("flush-{n}-{}", Uuid::new_v4().simple());
        let file = write(store, &name, &ids).await;
        files.push(file.map_err(|source| TableError::Store { table: "events", source })?);
    }
    table.commit(append(files, Some((APP, n)))).await?;
    Ok(())
}

/// Merges the first month's files.
async fn merge(store: &Arc<dyn ObjectStore>, table: &DeltaTable) -> Result<(), TableError> {
    let version = table.current();
    let first = |file: &&Arc<DataFile>| file.partition.as_deref() == Some("2026-01");
    let inputs: Vec<_> = version.files.iter().filter(first).cloned().collect();
    let name = format!("merged-{}", Uuid::new_v4().simple());
    let merged = write(store, &name, &[1, 2, 3]).await;
    let merged = merged.map_err(|source| TableError::Store { table: "events", source })?;
    table.commit(compact(inputs, vec![merged])).await?;
    Ok(())
}

/// The history of a node: returns the last acknowledged flush, and whether the history was completed.
async fn live(disk: &SimDisk) -> (i64, bool) {
    let store = DurableStore::new(Arc::new(disk.clone()), "/data/events");
    if store.recover().is_err() {
        return (0, false);
    }
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    let clock = Clock::test(NOW);
    let Ok(table) = open(&store, &clock).await else { return (0, false) };
    let mut answered = 0;
    for n in 1..=2 {
        if flush(&store, &table, n).await.is_err() {
            return (answered, false);
        }
        answered = n;
    }
    if merge(&store, &table).await.is_err() || flush(&store, &table, 3).await.is_err() {
        return (answered, false);
    }
    // Now the files that the merge replaced are old enough for the vacuum.
    clock.advance(Duration::from_secs(1));
    (3, table.vacuum(Duration::ZERO).await.is_ok())
}

/// Goal: after a power cut at any time during a flush, a compaction or a vacuum, the table opens, its files
/// match its position, no acknowledged row is missing, no row is duplicated, and every live file can be
/// read. Method: cut at every operation, with many kinds of loss.
#[tokio::test]
async fn a_power_cut_leaves_one_version_or_the_next() {
    let mut outcomes = BTreeSet::new();
    for cut in 0.. {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let (answered, finished) = live(&disk).await;
        for survival in SURVIVALS {
            let context = format!("cut {cut}, {survival:?}, {answered} answered");
            let disk = disk.power_on(survival);
            let store = store_on(&disk);
            let clock = Clock::test(NOW);
            let table = open(&store, &clock).await.expect(&context);
            let version = table.current();
            let position = version.transaction(APP).unwrap_or(0);
            assert!((answered..=answered + 1).contains(&position), "{context}: at {position}");
            assert_eq!(read_ids(&store, &version).await, ids_after(position), "{context}");
            outcomes.insert((answered, position));

            // And the node continues at the table's position.
            for n in position + 1..=3 {
                flush(&store, &table, n).await.expect(&context);
            }
            clock.advance(Duration::from_secs(1));
            table.vacuum(Duration::ZERO).await.expect(&context);
            assert_eq!(read_ids(&store, &table.current()).await, ids_after(3), "{context}");
            let files: Vec<_> = store.list(None).try_collect().await.expect(&context);
            let data = files.iter().filter(|meta| meta.location.as_ref().starts_with("month="));
            assert_eq!(data.count(), table.current().files.len(), "{context}: no orphan stays");
        }
        if finished {
            assert!(cut > 60, "a life has more operations than {cut}");
            break;
        }
    }
    for n in 0..3 {
        assert!(outcomes.contains(&(n, n)), "cut before commit {n}");
        assert!(outcomes.contains(&(n, n + 1)), "cut between commit {n} and its answer");
    }
}

/// Checkpoint and clean-up of the log run after a commit that is already in the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_a_checkpoint_leaves_the_table() {
    let before = SimDisk::new();
    let clock = Clock::test(NOW);
    let store = store_on(&before);
    let table = open(&store, &clock).await.expect("a new table");
    for id in 1..CHECKPOINT_INTERVAL.cast_signed() {
        let file = written(&store, &format!("{id}"), &[id]).await;
        table.commit(append(vec![file], Some((APP, id)))).await.expect("a commit");
    }
    let last = CHECKPOINT_INTERVAL.cast_signed();
    let ids = |n: i64| (1..=n).collect::<Vec<_>>();
    for cut in 0.. {
        let disk = before.power_on(Survival::Keep);
        let store = store_on(&disk);
        let table = open(&store, &clock).await.expect("the table");
        disk.cut_after(disk.operations() + cut);
        let committed = match write(&store, "last", &[last]).await {
            Ok(file) => table.commit(append(vec![file], Some((APP, last)))).await.is_ok(),
            Err(_) => false,
        };
        let checkpoint = Path::from(format!("_delta_log/{last:020}.checkpoint.parquet"));
        for survival in [Survival::Lose, Survival::Keep, Survival::Mixed(cut)] {
            let context = format!("cut {cut}, {survival:?}");
            let store = store_on(&disk.power_on(survival));
            let table = open(&store, &clock).await.expect(&context);
            let position = table.current().transaction(APP).expect("a position");
            assert!(position == last || !committed && position == last - 1, "{context}");
            assert_eq!(read_ids(&store, &table.current()).await, ids(position), "{context}");
        }
        let store = store_on(&disk.power_on(Survival::Keep));
        if committed && cut > 60 {
            store.head(&checkpoint).await.expect("the checkpoint");
            return;
        }
    }
}
