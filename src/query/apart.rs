//! Work on the threads of queries for somebody who waits on another runtime: [`Engine::apart`].

use std::panic::resume_unwind;

use tokio::task::{JoinError, JoinHandle};

use crate::engine::Engine;
use crate::error::QueryError;
use crate::parts::given_up;

/// A task that ends when nobody waits for it.
pub(super) struct Awaited<T>(pub(super) JoinHandle<T>);

impl<T> Awaited<T> {
    /// What it gives.
    ///
    /// # Errors
    ///
    /// It panicked, or the runtime is going down.
    pub(super) async fn outcome(mut self) -> Result<T, JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// What `work` gives: it queries, and computes with what it gets, which would keep a thread of sockets from other
    /// connections. Dropping the future ends it; if it panics, so does whoever waits.
    ///
    /// # Errors
    ///
    /// The runtime is going down.
    pub async fn apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, QueryError> {
        let outcome = Awaited(self.shared.runtime.spawn(work)).outcome().await;
        outcome.map_err(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => given_up(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Handle;
    use tokio::sync::oneshot;

    use super::Awaited;

    #[tokio::test]
    async fn what_nobody_waits_for_ends() {
        let (sender, receiver) = oneshot::channel::<()>();
        let work = Handle::current().spawn(async move {
            let _sender = sender;
            pending::<()>().await;
        });
        let waiting = Box::pin(Awaited(work).outcome());
        drop(waiting);
        assert!(receiver.await.is_err(), "the work was dropped");
    }

    #[tokio::test]
    async fn a_panic_is_told() {
        let work =
            Handle::current().spawn(async { assert!(std::env::args().count() == usize::MAX) });
        assert!(Awaited(work).outcome().await.unwrap_err().is_panic());
    }
}
