//! Jobs that are slow on purpose, such as hashes of passwords: [`SlowJobs`]. Anybody may cause such a job, and it takes
//! some tenths of a second of CPU time, so it must not slow down everything else.

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use crate::tasks::{TaskError, Tasks};

/// Runs a few jobs at a time, each on a thread of low priority. A few others wait, and further ones are refused. Clones
/// share the limits.
#[derive(Clone, Debug)]
pub struct SlowJobs {
    tasks: Tasks,
    /// A permit for each job that may run.
    running: Arc<Semaphore>,
    /// A permit for each job that may run or wait.
    places: Arc<Semaphore>,
}

impl SlowJobs {
    /// A set without jobs.
    pub fn new(tasks: &Tasks, running_max: usize, waiting_max: usize) -> Self {
        Self {
            tasks: tasks.clone(),
            running: Arc::new(Semaphore::new(running_max)),
            places: Arc::new(Semaphore::new(running_max.saturating_add(waiting_max))),
        }
    }

    /// Queues `job` and returns its result. The job gets a function that returns whether a caller still waits for it;
    /// its place is free once it ends.
    ///
    /// # Errors
    ///
    /// Too many jobs wait; the job panicked; the operating system refused a thread.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        job: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, TaskError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| TaskError::Full { name })?;
        let turn = Arc::clone(&self.running).acquire_owned().await;
        let turn = turn.map_err(|_| TaskError::Stopped { name })?;
        let (sender, receiver) = oneshot::channel();
        self.tasks.spawn_background_thread(name, move || {
            let _held = (place, turn);
            let done = job(&|| !sender.is_closed());
            // Fails if the caller no longer waits: the result is discarded.
            let _ = sender.send(done);
        })?;
        receiver.await.map_err(|_| TaskError::Panicked { name })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::Handle;

    use super::SlowJobs;
    use crate::tasks::{TaskError, Tasks};

    #[tokio::test]
    async fn some_run_some_wait_and_others_are_refused() {
        let jobs = SlowJobs::new(&Tasks::new(Handle::current()), 1, 1);
        let (go, gate) = mpsc::channel::<()>();
        let job = move |is_awaited: &dyn Fn() -> bool| {
            gate.recv().unwrap();
            is_awaited()
        };
        let mut first = Box::pin(jobs.run("slow", job));
        let mut second = Box::pin(jobs.run("slow", |_| 2));
        assert!(futures::poll!(&mut first).is_pending(), "it runs");
        assert!(futures::poll!(&mut second).is_pending(), "it waits");
        let third = jobs.run("slow", |_| 3).await;
        assert!(matches!(third, Err(TaskError::Full { name: "slow" })), "{third:?}");
        go.send(()).unwrap();
        assert!(first.await.unwrap(), "somebody waits for it");
        assert_eq!(second.await.unwrap(), 2);
        let panicked = jobs.run("slow", |_| -> u8 { panic!("planted") }).await;
        assert!(matches!(panicked, Err(TaskError::Panicked { name: "slow" })), "{panicked:?}");
        assert_eq!(jobs.run("slow", |_| 4).await.unwrap(), 4, "its place is free");
    }

    #[tokio::test]
    async fn a_job_learns_that_nobody_waits() {
        let jobs = SlowJobs::new(&Tasks::new(Handle::current()), 1, 0);
        let ((go, gate), (told, tells)) = (mpsc::channel::<()>(), mpsc::channel());
        let job = move |is_awaited: &dyn Fn() -> bool| {
            gate.recv().unwrap();
            told.send(is_awaited()).unwrap();
        };
        let mut running = Box::pin(jobs.run("slow", job));
        assert!(futures::poll!(&mut running).is_pending());
        drop(running);
        let full = jobs.run("slow", |_| ()).await;
        assert!(matches!(full, Err(TaskError::Full { .. })), "it runs to its end: {full:?}");
        go.send(()).unwrap();
        assert!(!tells.recv().unwrap());
    }
}
