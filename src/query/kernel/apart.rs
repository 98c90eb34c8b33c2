//! Work on the query threads for a caller on another runtime: [`Engine::apart`].

use datafusion::common::runtime::SpawnedTask;
use tokio::runtime::Handle;

use crate::kernel::engine::Engine;
use crate::kernel::error::{QueryError, given_up};

/// Spawns `work` on `runtime`; the task is cancelled when its handle is dropped.
pub(crate) fn spawned<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> SpawnedTask<T> {
    let _entered = runtime.enter();
    SpawnedTask::spawn(work)
}

impl Engine {
    /// Runs `work` on the query threads and returns its result: for work that queries and then computes on the result,
    /// which would block a socket thread for other connections. Dropping the future cancels it; if it panics, so does
    /// the caller.
    ///
    /// # Errors
    ///
    /// The runtime is shutting down.
    pub async fn apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, QueryError> {
        spawned(&self.shared.runtime, work).join_unwind().await.map_err(given_up)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::thread::current;

    use tokio::runtime::{Builder, Handle};
    use tokio::sync::oneshot;

    use super::spawned;

    #[tokio::test]
    async fn what_nobody_waits_for_ends() {
        let (sender, receiver) = oneshot::channel::<()>();
        let work = spawned(&Handle::current(), async move {
            let _sender = sender;
            pending::<()>().await;
        });
        drop(work.join());
        assert!(receiver.await.is_err(), "the work was dropped");
    }

    #[tokio::test]
    async fn a_panic_is_told() {
        let work =
            spawned(&Handle::current(), async { assert!(std::env::args().count() == usize::MAX) });
        assert!(work.join().await.unwrap_err().is_panic());
    }

    #[test]
    fn work_runs_on_the_runtime_it_is_given_to() {
        let mut builder = Builder::new_multi_thread();
        let own = builder.worker_threads(1).thread_name("own").build().unwrap();
        let waiting = Builder::new_current_thread().build().unwrap();
        let name = waiting.block_on(async {
            let name = async { current().name().map(str::to_owned) };
            spawned(own.handle(), name).join().await
        });
        assert_eq!(name.unwrap().as_deref(), Some("own"));
    }
}
