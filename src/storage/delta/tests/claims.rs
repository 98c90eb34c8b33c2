//! Claims of an application's transactions, and vacuums that list nothing: what a table in a bucket needs.

use super::*;
use crate::faulty_store::{Broken, Fault, FaultyStore};

const APP: &str = "node/1";

fn faulty() -> (Arc<FaultyStore>, Arc<dyn ObjectStore>) {
    let faulty = Arc::new(FaultyStore::default());
    (Arc::clone(&faulty), faulty as Arc<dyn ObjectStore>)
}

/// Goal: after a claim, nothing of a former handle gets into the table. Method: the former handle flushes, and
/// a put that it sent before arrives late.
#[tokio::test]
async fn a_claim_fences_the_former_handle() {
    let (_, store) = faulty();
    let clock = Clock::test(NOW);
    let former = open(&store, &clock).await.expect("a new table");
    former.claim(APP).await.expect("a claim");
    let first = append(vec![written(&store, "a", &[1]).await], Some((APP, 1)));
    former.commit(first).await.expect("a flush");
    assert_eq!(former.current().version, 2);

    let later = open(&store, &clock).await.expect("the table");
    later.claim(APP).await.expect("a claim");
    assert_eq!(later.current().transaction(APP), Some(1), "as before");
    let late = append(vec![written(&store, "b", &[2]).await], Some((APP, 2)));
    let error = former.commit(late).await.expect_err("it is fenced");
    assert!(matches!(error, TableError::Fenced { version: 1, .. }), "{error}");
    let error = former.claim(APP).await.expect_err("and stays so");
    assert!(matches!(error, TableError::Fenced { .. }), "{error}");

    let next = append(vec![written(&store, "c", &[3]).await], Some((APP, 2)));
    later.commit(next).await.expect("the owner goes on");
    assert_eq!(read_ids(&store, &later.current()).await, [1, 3]);
    // Others than nodes do not mind.
    let theirs = append(vec![written(&store, "d", &[4]).await], None);
    former.commit(theirs).await.expect("a commit without a transaction");
}

/// Goal: who opens a table does not miss a commit of a killed process that arrives after the opening.
#[tokio::test]
async fn a_claim_that_comes_second_is_refused() {
    let (_, store) = faulty();
    let clock = Clock::test(NOW);
    let killed = open(&store, &clock).await.expect("a new table");
    let later = open(&store, &clock).await.expect("the table");
    let late = append(vec![written(&store, "a", &[1]).await], Some((APP, 1)));
    killed.commit(late).await.expect("the put arrives");
    let error = later.claim(APP).await.expect_err("the table is not as it was opened");
    assert!(matches!(error, TableError::Fenced { version: 1, .. }), "{error}");
    let again = open(&store, &clock).await.expect("the table");
    again.claim(APP).await.expect("a claim");
    assert_eq!(again.current().transaction(APP), Some(1));
}

#[tokio::test]
async fn a_claim_in_doubt_is_made_again() {
    for fault in [Fault::AnswerLost, Fault::DoneTwice, Fault::NotDone] {
        let (faulty, store) = faulty();
        let table = open(&store, &Clock::test(NOW)).await.expect("a new table");
        *faulty.fault.lock() = Some(fault);
        table.claim(APP).await.expect("a claim");
        let edit = append(vec![written(&store, "a", &[1]).await], Some((APP, 1)));
        table.commit(edit).await.expect("it is not fenced by itself");
        assert_same_after_reopening(&store, &table).await;
    }
}

/// Goal: no vacuum takes a file from a reader of this process, however long it reads. Method: a version is held while its files
/// are replaced, in a handle that then reads the log anew.
#[tokio::test]
async fn files_in_use_stay() {
    let (_, store) = faulty();
    let clock = Clock::test(NOW);
    let table = open(&store, &clock).await.expect("a new table");
    let small = vec![written(&store, "a", &[1]).await, written(&store, "b", &[2]).await];
    let version = table.commit(append(small, None)).await.expect("a commit");
    let big = written(&store, "big", &[1, 2]).await;
    table.commit(compact(version.files.clone(), vec![big])).await.expect("a compaction");
    let other = open(&store, &clock).await.expect("the table");
    let again = vec![written(&store, "bigger", &[1, 2]).await];
    let held = table.current();
    other.commit(compact(other.current().files.clone(), again)).await.expect("a compaction");
    drop(other);
    table.refresh().await.expect("the newest version");
    clock.advance(Duration::from_secs(3600));
    let grace = Duration::from_secs(600);
    for _ in 0..2 {
        assert_eq!(table.vacuum(grace).await.expect("a vacuum"), [""; 0]);
        assert_eq!(table.vacuum_removed(grace).await.expect("a vacuum"), [""; 0]);
    }
    assert_eq!(read_ids(&store, &version).await, [1, 2]);
    assert_eq!(read_ids(&store, &held).await, [1, 2]);
    // One file of a version is enough.
    let first = version.files.first().cloned();
    drop(version);
    assert_eq!(table.vacuum(grace).await.expect("a vacuum"), ["month=2026-01/b.parquet"]);
    drop((first, held));
    let mut removed = table.vacuum_removed(grace).await.expect("a vacuum");
    removed.sort();
    assert_eq!(removed, ["month=2026-01/a.parquet", "month=2026-01/big.parquet"]);
}

#[tokio::test]
async fn what_was_removed_goes_without_a_list() {
    let (faulty, store) = faulty();
    let clock = Clock::test(NOW);
    let table = open(&store, &clock).await.expect("a new table");
    let small = vec![written(&store, "a", &[1]).await, written(&store, "b", &[2]).await];
    table.commit(append(small, None)).await.expect("a commit");
    let big = written(&store, "big", &[1, 2]).await;
    table.commit(compact(table.current().files.clone(), vec![big])).await.expect("a compaction");
    let grace = Duration::from_secs(600);
    *faulty.broken.lock() = Some(Broken::StaleLists);
    assert_eq!(table.vacuum_removed(grace).await.expect("a vacuum"), [""; 0]);
    clock.advance(grace + Duration::from_secs(1));
    let mut removed = table.vacuum_removed(grace).await.expect("a vacuum");
    removed.sort();
    assert_eq!(removed, ["month=2026-01/a.parquet", "month=2026-01/b.parquet"]);
    assert_eq!(table.vacuum_removed(grace).await.expect("a vacuum"), [""; 0], "once");
    *faulty.broken.lock() = None;
    let left: Vec<_> = store.list(None).try_collect().await.expect("a listing");
    let left: Vec<_> = left.iter().map(|object| object.location.as_ref()).collect();
    assert!(left.contains(&"month=2026-01/big.parquet"), "{left:?}");
    assert!(!left.contains(&"month=2026-01/a.parquet"), "{left:?}");
    // A handle that finds the removals in the log again does no harm.
    let again = open(&store, &clock).await.expect("the table");
    assert_eq!(again.vacuum_removed(grace).await.expect("a vacuum").len(), 2);
    assert_eq!(read_ids(&store, &again.current()).await, [1, 2]);
}
