//! Task supervision: sets of named tasks and threads ([`Tasks`]), the shutdown signal ([`Shutdown`]), and a thread pool
//! for CPU work ([`CpuPool`]); [`slow`] has jobs that are slow on purpose. The only code that spawns tasks and threads.
//!
//! A shutdown signals everything that was spawned here and waits for its end. A panic is logged with the
//! name of the task and affects no other task, except for vital threads ([`Tasks::vital`]). Queues are
//! unbounded: callers bound the amount of work that may wait.
//!
//! # Why one `Tasks` per stage
//!
//! A server stops in stages: no new connections, then the end of running requests, then the last flush. Each
//! stage that must end before the next begins has its own `Tasks`.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};

use crate::error::Kind;

pub mod slow;

/// Niceness of background threads: about a third of the weight of other threads (`sched(7)`: each step is a
/// factor of 1.25), so that they still make progress under full load.
const BACKGROUND_NICE: i32 = 5;

/// Why a spawned task, thread or job has no result.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It panicked. The panic was logged; the process continues.
    #[error("{name} panicked")]
    Panicked {
        /// Name of the task or pool.
        name: &'static str,
    },
    /// It was dropped before it ended: the runtime or the pool is shutting down.
    #[error("{name} was stopped before it ended")]
    Stopped {
        /// Name of the task or pool.
        name: &'static str,
    },
    /// It was not started: too many others wait.
    #[error("too many others wait for {name}")]
    Full {
        /// Name of the job.
        name: &'static str,
    },
    /// The operating system refused a thread.
    #[error("cannot start a thread for {name}")]
    NoThread {
        /// Name of the thread or pool.
        name: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl TaskError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Panicked { .. } => Kind::Internal,
            Self::Full { .. } => Kind::Overloaded,
            Self::Stopped { .. } | Self::NoThread { .. } => Kind::Unavailable,
        }
    }
}

/// Spawns named tasks and threads and waits for their end. Clones share one set.
#[derive(Clone)]
pub struct Tasks {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Handle,
    shutdown: Shutdown,
    /// Number of running tasks and threads by name.
    running: Mutex<BTreeMap<&'static str, usize>>,
    /// Notified whenever `running` becomes empty.
    idle: Notify,
    /// The first vital thread that panicked.
    failed: watch::Sender<Option<&'static str>>,
}

impl Tasks {
    /// An empty set whose tasks run on `runtime`.
    pub fn new(runtime: Handle) -> Self {
        let running = Mutex::new(BTreeMap::new());
        let (shutdown, idle, failed) = (Shutdown::new(), Notify::new(), watch::Sender::new(None));
        Self { shared: Arc::new(Shared { runtime, shutdown, running, idle, failed }) }
    }

    /// The shutdown signal of this set.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shared.shutdown
    }

    /// Runs `future` as a task that outlives the caller. Unbounded: the caller limits the number of tasks. A
    /// panic is logged under `name`.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(name, future.boxed());
    }

    /// Boxed, because a task of the runtime is 20 functions for each type of future.
    fn spawn_boxed(&self, name: &'static str, future: BoxFuture<'static, ()>) {
        let running = self.enter(name);
        // Dropping the handle detaches the task; `running` is what a shutdown waits for.
        drop(self.shared.runtime.spawn(async move {
            let _running = running;
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                tracing::error!(task = name, "task panicked");
            }
        }));
    }

    /// Runs `future` where it is awaited. If the caller drops it before its end, it continues as a task.
    /// For work that must not be cut in half when a client disconnects. It starts at the first poll, or
    /// when dropped.
    ///
    /// # Errors
    ///
    /// The future panicked.
    pub fn detach<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        name: &'static str,
        future: F,
    ) -> impl Future<Output = Result<T, TaskError>> + Send + use<T, F> {
        self.detach_boxed(name, future.boxed())
    }

    fn detach_boxed<T: Send + 'static>(
        &self,
        name: &'static str,
        future: BoxFuture<'static, T>,
    ) -> impl Future<Output = Result<T, TaskError>> + Send + use<T> {
        let running = self.enter(name);
        let work = async move {
            let _running = running;
            AssertUnwindSafe(future).catch_unwind().await
        };
        let runtime = self.shared.runtime.clone();
        let mut outliving = Outliving { runtime, work: Some(work.boxed()) };
        async move {
            let done = std::future::poll_fn(|context| outliving.poll(context)).await;
            done.map_err(|_| TaskError::Panicked { name })
        }
    }

    /// Runs `body` on a new thread, for loops that block. The body must return when [`Tasks::shutdown`] is
    /// signalled. A panic is logged under `name`.
    ///
    /// # Errors
    ///
    /// The operating system refused the thread.
    pub fn spawn_thread(
        &self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), TaskError> {
        let running = self.enter(name);
        let body = move || {
            let _running = running;
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                tracing::error!(thread = name, "thread panicked");
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        thread.map(drop).map_err(|source| TaskError::NoThread { name, source })
    }

    /// Like [`Tasks::spawn_thread`], for work that no request waits for: the thread has a lower priority
    /// than the threads that answer requests.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    pub fn spawn_background_thread(
        &self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), TaskError> {
        self.spawn_thread(name, move || {
            // Without a process id, Linux sets the priority of the calling thread. If the system refuses, the
            // thread runs at the normal priority.
            if let Err(error) = rustix::process::setpriority_process(None, BACKGROUND_NICE) {
                tracing::debug!(%error, thread = name, "cannot lower the priority");
            }
            body();
        })
    }

    /// Wraps the `body` of a thread without which the server cannot work: its panic completes
    /// [`Tasks::failed`], and `serve` then ends the process. The state that such a thread left half changed
    /// must not be written to disk; the next start recovers from the log, as after a crash.
    pub fn vital(
        &self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
                shared.failed.send_if_modified(|failed| failed.replace(name).is_none());
                // The spawner logs the panic.
                resume_unwind(panic);
            }
        }
    }

    /// Waits until a vital thread has panicked, and returns its name.
    pub async fn failed(&self) -> &'static str {
        let mut failed = self.shared.failed.subscribe();
        loop {
            if let Some(name) = *failed.borrow_and_update() {
                return name;
            }
            if failed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until all tasks and threads have ended, for at most `deadline`. Does not signal them to end:
    /// call [`Shutdown::begin`] first.
    ///
    /// # Errors
    ///
    /// Tasks or threads still run at the deadline.
    pub async fn wait(&self, deadline: Duration) -> Result<(), StillRunning> {
        let all_ended = async {
            loop {
                let mut idle = std::pin::pin!(self.shared.idle.notified());
                // Registered before the check, so that an end between the two is not missed.
                idle.as_mut().enable();
                if self.shared.running.lock().is_empty() {
                    return;
                }
                idle.await;
            }
        };
        tokio::time::timeout(deadline, all_ended).await.map_err(|_| {
            let running = self.shared.running.lock();
            StillRunning { names: running.iter().map(|(name, count)| (*name, *count)).collect() }
        })
    }

    fn enter(&self, name: &'static str) -> Running {
        *self.shared.running.lock().entry(name).or_default() += 1;
        Running { shared: Arc::clone(&self.shared), name }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &*self.shared.running.lock()).finish()
    }
}

/// A future that continues as a task when it is dropped before its end.
struct Outliving<T: Send + 'static> {
    runtime: Handle,
    /// `None` once it has ended.
    work: Option<BoxFuture<'static, T>>,
}

impl<T: Send + 'static> Outliving<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Outliving<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            // Dropping the handle detaches the task; a shutdown waits for its entry in `running`.
            drop(self.runtime.spawn(work));
        }
    }
}

/// Tasks and threads that had not ended at the deadline of a wait.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("still running: {names:?}")]
pub struct StillRunning {
    /// Name and number of running instances, by name.
    pub names: Vec<(&'static str, usize)>,
}

/// One running task or thread; dropping it decrements the count.
struct Running {
    shared: Arc<Shared>,
    name: &'static str,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.shared.running.lock();
        if let Some(count) = running.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                running.remove(self.name);
            }
        }
        if running.is_empty() {
            self.shared.idle.notify_waiters();
        }
    }
}

/// Shutdown signal: set once, never reset. Clones share it.
#[derive(Clone)]
pub struct Shutdown {
    signal: Arc<Signal>,
}

struct Signal {
    begun: AtomicBool,
    tasks: Notify,
    /// Mutex of the condition variable on which threads sleep.
    gate: Mutex<()>,
    threads: Condvar,
}

impl Shutdown {
    /// A signal that is not set.
    pub fn new() -> Self {
        let begun = AtomicBool::new(false);
        let (gate, threads) = (Mutex::new(()), Condvar::new());
        Self { signal: Arc::new(Signal { begun, tasks: Notify::new(), gate, threads }) }
    }

    /// Sets the signal. Setting it again does nothing.
    pub fn begin(&self) {
        self.signal.begun.store(true, Ordering::SeqCst);
        self.signal.tasks.notify_waiters();
        // Under the lock, so that a thread between its check and its sleep is woken.
        let _gate = self.signal.gate.lock();
        self.signal.threads.notify_all();
    }

    /// Whether the signal is set.
    pub fn is_cancelled(&self) -> bool {
        self.signal.begun.load(Ordering::SeqCst)
    }

    /// Returns once the signal is set. Cancel safe.
    pub async fn cancelled(&self) {
        let mut notified = std::pin::pin!(self.signal.tasks.notified());
        // Registered before the check, so that a signal between the two is not missed.
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }

    /// Waits for `duration` or the signal, whichever is first. For loops of tasks.
    pub async fn pause(&self, duration: Duration) -> Pause {
        match tokio::time::timeout(duration, self.cancelled()).await {
            Ok(()) => Pause::Cancelled,
            Err(_) => Pause::Elapsed,
        }
    }

    /// Blocking version of [`Shutdown::pause`]. For loops of threads.
    pub fn pause_thread(&self, duration: Duration) -> Pause {
        let mut gate = self.signal.gate.lock();
        let waiting = |(): &mut ()| !self.is_cancelled();
        self.signal.threads.wait_while_for(&mut gate, waiting, duration);
        if self.is_cancelled() { Pause::Cancelled } else { Pause::Elapsed }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// Why a pause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The time has elapsed.
    Elapsed,
    /// The shutdown began.
    Cancelled,
}

/// Thread pool of fixed size for CPU work: decoding, encoding, evaluation. Its queue is unbounded: the
/// caller bounds the jobs that may wait (bytes in flight, concurrent queries). Clones share one pool; the
/// threads end after the last clone is dropped.
///
/// Idle threads sleep at once. The threads of a work-stealing pool would spin for a while first, and take
/// that time from requests on a machine with few cores.
#[derive(Clone, Debug)]
pub struct CpuPool {
    name: &'static str,
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl CpuPool {
    /// A pool of `threads` threads (at least one) named `<name>-<number>`.
    ///
    /// # Errors
    ///
    /// The operating system refused a thread.
    pub fn new(name: &'static str, threads: usize) -> Result<Self, TaskError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            let work = move || {
                loop {
                    let job = queue.lock().recv();
                    let Ok(job) = job else { break };
                    job();
                }
            };
            let thread = std::thread::Builder::new().name(format!("{name}-{number}")).spawn(work);
            thread.map_err(|source| TaskError::NoThread { name, source })?;
        }
        Ok(Self { name, jobs })
    }

    /// Queues `job` at once and returns its result. A queued job whose future was dropped is skipped; a job
    /// that has started runs to its end.
    ///
    /// # Errors
    ///
    /// The job panicked, or the pool is shutting down.
    pub fn run<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        job: F,
    ) -> impl Future<Output = Result<T, TaskError>> + Send + use<T, F> {
        let name = self.name;
        let (sender, receiver) = oneshot::channel();
        // Fails only if all threads have ended; the receiver then reports `Stopped`.
        let _ = self.jobs.send(Box::new(move || {
            if sender.is_closed() {
                return;
            }
            // Fails if the receiver was dropped in the meantime: the result is discarded.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(job)));
        }));
        async move {
            match receiver.await {
                Ok(Ok(output)) => Ok(output),
                Ok(Err(_)) => Err(TaskError::Panicked { name }),
                Err(_) => Err(TaskError::Stopped { name }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::Handle;
    use tokio::sync::oneshot;

    use super::{CpuPool, Pause, StillRunning, TaskError, Tasks};

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn waits_for_tasks_and_threads_and_names_what_still_runs() {
        let tasks = Tasks::new(Handle::current());
        assert_eq!(tasks.wait(SHORT).await, Ok(()), "nothing was spawned");
        for _ in 0..2 {
            let shutdown = tasks.shutdown().clone();
            tasks.spawn("ticker", async move { shutdown.cancelled().await });
        }
        let shutdown = tasks.shutdown().clone();
        let (sender, ended) = mpsc::channel();
        let body = move || sender.send(shutdown.pause_thread(LONG)).unwrap();
        tasks.spawn_thread("log", body).unwrap();
        let names = vec![("log", 1), ("ticker", 2)];
        assert_eq!(tasks.wait(SHORT).await, Err(StillRunning { names }));
        tasks.shutdown().begin();
        assert_eq!(tasks.wait(LONG).await, Ok(()));
        assert_eq!(ended.recv().unwrap(), Pause::Cancelled);
        tasks.shutdown().cancelled().await;
        assert_eq!(tasks.shutdown().pause(LONG).await, Pause::Cancelled);
    }

    #[tokio::test]
    async fn pauses_elapse_without_a_signal() {
        let tasks = Tasks::new(Handle::current());
        assert_eq!(tasks.shutdown().pause(SHORT).await, Pause::Elapsed);
        assert_eq!(tasks.shutdown().pause_thread(SHORT), Pause::Elapsed);
        assert!(!tasks.shutdown().is_cancelled());
    }

    #[tokio::test]
    async fn a_panic_ends_its_task_only() {
        let tasks = Tasks::new(Handle::current());
        tasks.spawn("doomed", async { panic!("planted") });
        tasks.spawn_thread("doomed", || panic!("planted")).unwrap();
        let result = tasks.detach("doomed", async { panic!("planted") }).await;
        assert!(matches!(result, Err::<(), _>(TaskError::Panicked { name: "doomed" })));
        assert_eq!(tasks.wait(LONG).await, Ok(()));
        assert_eq!(tasks.detach("fine", async { 7 }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_panic_of_a_vital_thread_is_reported() {
        let tasks = Tasks::new(Handle::current());
        tasks.spawn_thread("fine", tasks.vital("fine", || {})).unwrap();
        tasks.spawn_thread("usual", || panic!("planted")).unwrap();
        tasks.wait(LONG).await.unwrap();
        assert!(tokio::time::timeout(SHORT, tasks.failed()).await.is_err(), "nothing vital");
        let doomed = tasks.vital("derive", || panic!("planted"));
        tasks.spawn_background_thread("derive", doomed).unwrap();
        assert_eq!(tokio::time::timeout(LONG, tasks.failed()).await, Ok("derive"));
        assert_eq!(tasks.failed().await, "derive", "whoever asks later");
        tasks.wait(LONG).await.unwrap();
    }

    #[tokio::test]
    async fn a_detached_task_outlives_its_caller() {
        let tasks = Tasks::new(Handle::current());
        let (go, gate) = oneshot::channel::<()>();
        let (done, outcome) = oneshot::channel();
        drop(tasks.detach("append", async move {
            gate.await.unwrap();
            done.send("whole").unwrap();
        }));
        go.send(()).unwrap();
        assert_eq!(outcome.await.unwrap(), "whole");
    }

    #[tokio::test]
    async fn a_pool_survives_panics_and_skips_jobs_nobody_awaits() {
        let pool = CpuPool::new("cpu", 1).unwrap();
        let name = pool.run(|| std::thread::current().name().map(str::to_owned)).await.unwrap();
        assert_eq!(name.as_deref(), Some("cpu-0"));
        let result = pool.run(|| -> u8 { panic!("planted") }).await;
        assert!(matches!(result, Err(TaskError::Panicked { name: "cpu" })));
        // The first job occupies the only thread while the second is queued and its future dropped.
        let (go, gate) = mpsc::channel::<()>();
        let first = pool.run(move || gate.recv().unwrap());
        let (ran, runs) = mpsc::channel();
        drop(pool.run(move || ran.send(()).unwrap()));
        go.send(()).unwrap();
        first.await.unwrap();
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
        assert!(runs.recv().is_err(), "the sender was dropped without a message");
    }
}
