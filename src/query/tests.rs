//! Planning that takes long, and whom it holds up.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::Semaphore;

use super::QueryError;
use super::planned;

/// Longer than any of this takes.
const LONG: Duration = Duration::from_secs(60);

/// Goal: planning holds up no thread of queries, ends for the asker with the time-out, and counts as
/// a query until it is over. Method: it blocks until it is told to go on, and there is one thread.
#[test]
fn planning_holds_up_nobody() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let slots = Arc::new(Semaphore::new(1));
    let (go_on, told) = mpsc::channel();
    let planning = async move { told.recv().map_err(|_| QueryError::Unavailable("gone")) };
    let permit = Arc::new(Arc::clone(&slots).try_acquire_owned().expect("a slot"));
    let (handle, limit) = (runtime.handle().clone(), Duration::from_millis(1));
    let outcome = runtime.block_on(planned(&handle, limit, permit, planning));
    assert!(matches!(outcome, Err(QueryError::Timeout(_))), "{outcome:?}");
    assert_eq!(slots.available_permits(), 0, "the planning goes on");
    let other = runtime.spawn(async { 7 });
    let other = runtime.block_on(async { tokio::time::timeout(LONG, other).await });
    assert!(matches!(other, Ok(Ok(7))), "the thread of queries is free: {other:?}");
    go_on.send(()).expect("it waits");
    let freed = runtime.block_on(async { tokio::time::timeout(LONG, slots.acquire()).await });
    assert!(freed.expect("in time").is_ok(), "its slot is free at its end");
}

#[test]
fn what_planning_gives_is_the_answer() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let slots = Arc::new(Semaphore::new(1));
    for (given, expected) in [(Ok(7), Some(7)), (Err(QueryError::TooManyRows(1)), None)] {
        let permit = Arc::new(Arc::clone(&slots).try_acquire_owned().expect("a slot"));
        let handle = runtime.handle().clone();
        let outcome = runtime.block_on(planned(&handle, LONG, permit, async move { given }));
        assert_eq!(outcome.as_ref().ok(), expected.as_ref(), "{outcome:?}");
        let freed = runtime.block_on(async { tokio::time::timeout(LONG, slots.acquire()).await });
        assert!(freed.expect("in time").is_ok());
    }
}
