//! Concurrent writers: in one process, in two, and when a write is dropped midway.

use std::task::Poll;

use super::*;

/// Goal: of two creations of one key, one wins. Method: many rounds at once, through two handles
/// that share no lock but SQLite's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_creations_of_one_key_one_wins() {
    let bench = Bench::started().await;
    let other = bench.other().await;
    for round in 0..20 {
        let key = format!("flag-{round}");
        let results = tokio::join!(
            bench.metadata.create_flag(PROJECT, USER, new(&key)),
            bench.metadata.create_flag(PROJECT, USER, new(&key)),
            other.create_flag(PROJECT, USER, new(&key)),
        );
        let (mut won, mut lost) = (0, 0);
        for result in [results.0, results.1, results.2] {
            match result {
                Ok(_) => won += 1,
                Err(error) => {
                    assert_eq!(code::<()>(Err(error)), "unique");
                    lost += 1;
                }
            }
        }
        assert_eq!((won, lost), (1, 2));
    }
    bench.metadata.refresh().await.expect("refresh");
    other.refresh().await.expect("refresh");
    assert_eq!(bench.metadata.snapshot().flags(PROJECT).len(), 20);
    assert_eq!(bench.metadata.snapshot(), other.snapshot());
}

#[tokio::test]
async fn writes_of_another_process_are_reloaded() {
    let bench = Bench::started().await;
    let other = bench.other().await;
    let created = other.create_key(USER, "from elsewhere", None, &seed(5)).await.expect("create");
    let works = || bench.metadata.snapshot().key_by_value(&created.value).is_some();
    assert!(!works());
    bench.metadata.refresh().await.expect("refresh");
    assert!(works());
    other.revoke_key(created.key.id).await.expect("revoke");
    // A write reloads as well.
    bench.create("a").await;
    assert!(!works());
    let before = bench.metadata.snapshot();
    bench.metadata.refresh().await.expect("refresh");
    assert!(Arc::ptr_eq(&before, &bench.metadata.snapshot()), "nothing new, nothing loaded");
}

/// Goal: a request that is dropped in the middle of a write leaves neither a lock nor a stale
/// snapshot. Method: drop creations after every possible number of polls, often enough to drop some
/// during their commit: those are stored but not published.
#[tokio::test]
async fn a_write_that_is_dropped_half_way_does_no_harm() {
    let bench = Bench::started().await;
    let (mut dropped, mut stored_unseen, mut done) = (0, 0, 0);
    for attempt in 0..5_000 {
        // A commit is short: on a busy machine it takes more attempts to meet one.
        if attempt >= 300 && stored_unseen > 0 {
            break;
        }
        let key = format!("flag-{attempt}");
        let has = |snapshot: &Snapshot| snapshot.flags(PROJECT).iter().any(|flag| flag.key == key);
        let write = bench.metadata.create_flag(PROJECT, USER, new(&key));
        if poll_at_most(write, 1 + attempt % 30).await.is_some() {
            done += 1;
            continue;
        }
        dropped += 1;
        let was_seen = has(&bench.metadata.snapshot());
        // PostgreSQL may still be at a commit that nobody waits for; the lock tells when it is over.
        if let Backend::Database(_) = bench.place {
            bench.metadata.begin().await.expect("begin").tx.rollback().await.expect("the end");
        }
        bench.metadata.refresh().await.expect("refresh");
        bench.check_snapshot().await;
        stored_unseen += usize::from(!was_seen && has(&bench.metadata.snapshot()));
    }
    assert!(dropped > 0 && stored_unseen > 0 && done > 0, "{dropped} {stored_unseen} {done}");
}

/// Polls `future` when it is woken, and drops it after `polls` times.
async fn poll_at_most<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut polled = 0;
    std::future::poll_fn(move |context| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
