//! Threads on which queries are planned: [`Planners`], and [`Planning`], a handle on them.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::kernel::error::QueryError;

/// Planner threads. Planning is CPU-bound for long and does not yield, so it runs on separate threads where it blocks
/// no query, with the stack size of the query threads, which the limits of [`check`](crate::guard::complexity::check)
/// assume. Planning that exceeds its time limit still runs to its end after the caller has given up; so there may be
/// more planner threads than query slots, up to a limit.
#[derive(Debug)]
pub(crate) struct Planners {
    free: Arc<Semaphore>,
}

impl Planners {
    /// Two per concurrent query: as many as there are query slots, and as many again whose callers have given up.
    pub(crate) fn new(queries_max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(queries_max.max(1).saturating_mul(2))) }
    }

    /// Runs `planning` on a thread of its own.
    ///
    /// # Errors
    ///
    /// It fails, takes too long, or all threads are occupied by planning that takes too long.
    pub(crate) async fn plan<T, E>(
        &self,
        runtime: &Handle,
        limit: Duration,
        planning: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, QueryError>
    where
        T: Send + 'static,
        E: Send + 'static,
        QueryError: From<E>,
    {
        let planner = Arc::clone(&self.free).try_acquire_owned().map_err(|_| too_many())?;
        on_thread(planner, runtime, limit, planning).await
    }

    /// The same for a caller without a query slot, so that any number of requests may plan at once: it waits for a free
    /// thread.
    ///
    /// # Errors
    ///
    /// It fails, or takes too long.
    pub(crate) async fn plan_in_turn<T, E>(
        &self,
        runtime: &Handle,
        limit: Duration,
        planning: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, QueryError>
    where
        T: Send + 'static,
        E: Send + 'static,
        QueryError: From<E>,
    {
        let planner = timeout(limit, Arc::clone(&self.free).acquire_owned()).await;
        let Ok(Ok(planner)) = planner else { return Err(too_many()) };
        on_thread(planner, runtime, limit, planning).await
    }
}

fn too_many() -> QueryError {
    QueryError::Overloaded("too many queries are still being planned")
}

async fn on_thread<T, E>(
    planner: OwnedSemaphorePermit,
    runtime: &Handle,
    limit: Duration,
    planning: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, QueryError>
where
    T: Send + 'static,
    E: Send + 'static,
    QueryError: From<E>,
{
    let own = runtime.clone();
    let planning = runtime.spawn_blocking(move || {
        let _planner = planner;
        own.block_on(planning)
    });
    match timeout(limit, planning).await {
        Ok(planned) => Ok(planned.map_err(broken_down)??),
        Err(_) => Err(QueryError::Timeout(limit)),
    }
}

/// The planners, with the runtime and the time limit of each planning.
#[derive(Clone, Debug)]
pub(crate) struct Planning {
    planners: Arc<Planners>,
    runtime: Handle,
    limit: Duration,
}

impl Planning {
    /// Plans on threads of `runtime`, within `limit` each.
    pub(crate) fn new(planners: Arc<Planners>, runtime: Handle, limit: Duration) -> Self {
        Self { planners, runtime, limit }
    }

    /// See [`Planners::plan`].
    pub(crate) fn plan<T, E>(
        &self,
        planning: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> impl Future<Output = Result<T, QueryError>> + Send
    where
        T: Send + 'static,
        E: Send + 'static,
        QueryError: From<E>,
    {
        // It is large, and would be part of the future of each caller.
        self.planners.plan(&self.runtime, self.limit, Box::pin(planning))
    }

    /// See [`Planners::plan_in_turn`].
    pub(crate) fn plan_in_turn<T, E>(
        &self,
        planning: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> impl Future<Output = Result<T, QueryError>> + Send
    where
        T: Send + 'static,
        E: Send + 'static,
        QueryError: From<E>,
    {
        // It is large, and would be part of the future of each caller.
        self.planners.plan_in_turn(&self.runtime, self.limit, Box::pin(planning))
    }
}

/// The error of a thread or task that panicked.
pub(crate) fn broken_down(error: JoinError) -> QueryError {
    QueryError::Internal(DataFusionError::ExecutionJoin(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::Planners;
    use crate::kernel::error::QueryError;

    /// Longer than any of this takes.
    const LONG: Duration = Duration::from_secs(60);

    /// Goal: planning blocks no query thread, and its caller gets an error at the time limit; planning that goes on
    /// without a caller is bounded. Method: planning blocks on a channel, and there is one thread.
    #[test]
    fn planning_holds_up_nobody() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (handle, planners) = (runtime.handle().clone(), Planners::new(1));
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (go_on, told) = mpsc::channel();
            let planning = async move { told.recv().map_err(|_| QueryError::Unavailable("gone")) };
            let outcome = planners.plan(&handle, Duration::from_millis(1), planning);
            let outcome = runtime.block_on(outcome);
            assert!(matches!(outcome, Err(QueryError::Timeout(_))), "{outcome:?}");
            ends.push(go_on);
        }
        let other = runtime.spawn(async { 7 });
        let other = runtime.block_on(async { tokio::time::timeout(LONG, other).await });
        assert!(matches!(other, Ok(Ok(7))), "the thread of queries is free: {other:?}");
        let plan = || planners.plan(&handle, LONG, async { Ok::<_, QueryError>(7) });
        let refused = runtime.block_on(plan());
        assert!(matches!(refused, Err(QueryError::Overloaded(_))), "{refused:?}");
        let in_turn =
            |limit| planners.plan_in_turn(&handle, limit, async { Ok::<_, QueryError>(7) });
        let refused = runtime.block_on(in_turn(Duration::from_millis(1)));
        assert!(matches!(refused, Err(QueryError::Overloaded(_))), "{refused:?}");
        let waiting = in_turn(LONG);
        for go_on in ends {
            go_on.send(()).expect("it waits");
        }
        assert!(matches!(runtime.block_on(waiting), Ok(7)), "its turn has come");
        let freed = async { tokio::time::timeout(LONG, planners.free.acquire_many(2)).await };
        assert!(runtime.block_on(freed).is_ok(), "the threads end");
        assert!(matches!(runtime.block_on(plan()), Ok(7)));
    }

    #[test]
    fn what_planning_gives_is_the_answer() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        for (given, expected) in [(Ok(7), Some(7)), (Err(QueryError::TooManyRows(1)), None)] {
            let planners = Planners::new(1);
            let outcome = planners.plan(runtime.handle(), LONG, async move { given });
            let outcome = runtime.block_on(outcome);
            assert_eq!(outcome.as_ref().ok(), expected.as_ref(), "{outcome:?}");
        }
    }
}
