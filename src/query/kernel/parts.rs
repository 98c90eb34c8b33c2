//! Parallel work on all persons, by ranges of person numbers, on as many threads as queries have.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinError;

use crate::kernel::error::QueryError;
use crate::kernel::ranges::ranges;

/// Ranges per thread, for balance: the persons of a project are unevenly distributed over the numbers.
const RANGES_PER_THREAD: usize = 8;

/// Runs `work` on ranges that together cover `numbers`, and returns the results in their order, or an error, after
/// which no further range is started. `work` should check now and then whether it has been cancelled.
///
/// # Errors
///
/// The work panicked, or the runtime is shutting down.
pub(crate) async fn in_parts<T: Send + 'static, E: Send + 'static>(
    runtime: &Handle,
    numbers: Range<i64>,
    work: impl Fn(Range<i64>) -> Result<T, E> + Send + Sync + 'static,
) -> Result<Result<Vec<T>, E>, JoinError> {
    let threads = runtime.metrics().num_workers().max(1);
    let ranges = ranges(numbers, threads.saturating_mul(RANGES_PER_THREAD));
    in_pieces(runtime, ranges, work).await
}

/// The same for pieces of any type.
///
/// # Errors
///
/// The work panicked, or the runtime is shutting down.
pub(crate) async fn in_pieces<P, T, E>(
    runtime: &Handle,
    pieces: Vec<P>,
    work: impl Fn(P) -> Result<T, E> + Send + Sync + 'static,
) -> Result<Result<Vec<T>, E>, JoinError>
where
    P: Clone + Send + Sync + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let threads = runtime.metrics().num_workers().max(1);
    let shared = Arc::new((work, pieces, AtomicUsize::new(0), Mutex::new(Vec::new())));
    let worker = |_| {
        let shared = Arc::clone(&shared);
        runtime.spawn_blocking(move || {
            let (work, pieces, next, done) = &*shared;
            while let Some((at, piece)) = take(pieces, next) {
                match work(piece) {
                    Ok(result) => done.lock().push((at, result)),
                    Err(error) => {
                        next.store(pieces.len(), Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            Ok(())
        })
    };
    let workers: Vec<_> = (0..threads).map(worker).collect();
    let mut outcome = Ok(());
    for worker in workers {
        outcome = outcome.and(worker.await?);
    }
    let mut done = std::mem::take(&mut *shared.3.lock());
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(outcome.map(|()| done.into_iter().map(|(_, result)| result).collect()))
}

/// The error of a query whose threads were aborted.
pub(crate) fn given_up(_: JoinError) -> QueryError {
    QueryError::Unavailable("the query was given up")
}

fn take<P: Clone>(pieces: &[P], next: &AtomicUsize) -> Option<(usize, P)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, pieces.get(at)?.clone()))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use tokio::runtime::Handle;

    use super::in_parts;

    #[tokio::test]
    async fn every_number_is_worked_on_once_and_in_order() {
        for numbers in [1..1, 1..2, 5..6, 1..1000, 7..20_000] {
            let all: Vec<i64> = numbers.clone().collect();
            let work = |range: Range<i64>| Ok::<Vec<i64>, ()>(range.collect());
            let parts = in_parts(&Handle::current(), numbers, work).await.unwrap().unwrap();
            assert_eq!(parts.concat(), all);
        }
    }

    #[tokio::test]
    async fn an_error_is_the_result() {
        let work = |range: Range<i64>| if range.contains(&500) { Err("no") } else { Ok(()) };
        assert_eq!(in_parts(&Handle::current(), 1..1000, work).await.unwrap(), Err("no"));
    }
}
