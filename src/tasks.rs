//! Spawn, name, wait: [`Tasks`], [`Shutdown`], [`CpuPool`]. The only spawner of tasks and threads.
//!
//! Everything that runs beside the caller is started here, so that a shutdown can ask it to end and
//! wait until it has, and so that a panic is logged with the name of what died and takes nothing
//! else with it, unless it is vital ([`Tasks::vital`]). No queues: whoever hands work over bounds how much of it may wait.
//!
//! # Why one `Tasks` per stage
//!
//! A server stops in stages: no new connections, then requests under way, then the last flush. Each
//! stage that must end before the next begins has a `Tasks` of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Condvar;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::oneshot;
use tokio::sync::watch;

use crate::error::Kind;

/// Niceness of work in the background: about a third of the weight of other threads
/// (`sched(7)`: each step is a factor of 1.25), so that it still goes on under full load.
const BACKGROUND_NICE: i32 = 5;

/// Why something spawned gave no result.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It panicked. The panic was logged; the process goes on.
    #[error("{name} panicked")]
    Panicked {
        /// Name of the task or pool.
        name: &'static str,
    },
    /// It was dropped before it ended: the runtime or the pool is going down.
    #[error("{name} was stopped before it ended")]
    Stopped {
        /// Name of the task or pool.
        name: &'static str,
    },
    /// The operating system refused a thread.
    #[error("cannot start a thread for {name}")]
    NoThread {
        /// Name of the thread or pool.
        name: &'static str,
        /// The refusal.
        source: io::Error,
    },
}

impl TaskError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Panicked { .. } => Kind::Internal,
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
    /// How many of each name are running.
    running: Mutex<BTreeMap<&'static str, usize>>,
    /// Told whenever `running` becomes empty.
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

    /// The signal that asks this set to end.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shared.shutdown
    }

    /// Runs `future` to its end, whatever becomes of the caller. Unbounded: the caller limits how
    /// many it starts. A panic is logged under `name`.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let running = self.enter(name);
        // Dropping the handle detaches the task; `running` is what a shutdown waits for.
        drop(self.shared.runtime.spawn(async move {
            let _running = running;
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                tracing::error!(task = name, "task panicked");
            }
        }));
    }

    /// Runs `future` where it is awaited; if the caller gives it up before its end, it goes on by
    /// itself. For work that a client's hang-up must not cut in half. It is begun by the first poll,
    /// or by being given up.
    ///
    /// # Errors
    ///
    /// The future panicked.
    pub fn detach<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        name: &'static str,
        future: F,
    ) -> impl Future<Output = Result<T, TaskError>> + Send + use<T, F> {
        let running = self.enter(name);
        let work = async move {
            let _running = running;
            AssertUnwindSafe(future).catch_unwind().await
        };
        let runtime = self.shared.runtime.clone();
        let mut outliving = Outliving { runtime, work: Some(Box::pin(work)) };
        async move {
            let done = std::future::poll_fn(|context| outliving.poll(context)).await;
            done.map_err(|_| TaskError::Panicked { name })
        }
    }

    /// Runs `body` on a thread of its own, for loops that block. The body ends itself when
    /// [`Tasks::shutdown`] says so. A panic is logged under `name`.
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

    /// Like [`Tasks::spawn_thread`], for work that nobody waits for: the thread yields to those that
    /// answer requests whenever both want the processor.
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
            // Without a process id Linux takes the calling thread. Where the system refuses, the
            // work is done at the usual priority.
            if let Err(error) = rustix::process::setpriority_process(None, BACKGROUND_NICE) {
                tracing::debug!(%error, thread = name, "cannot lower the priority");
            }
            body();
        })
    }

    /// `body` of a thread that the server cannot do without: a panic of it ends [`Tasks::failed`].
    /// Whoever runs the server then ends the process. What such a thread leaves half done is not to be
    /// written to disk, and a start from the log is what a crash needs anyway.
    pub fn vital(
        &self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
                shared.failed.send_if_modified(|failed| failed.replace(name).is_none());
                // For whoever logs panics.
                resume_unwind(panic);
            }
        }
    }

    /// Waits until a vital thread has panicked, and names it.
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

    /// Waits until everything spawned has ended, at most for `deadline`. Does not ask it to end:
    /// call [`Shutdown::begin`] first.
    ///
    /// # Errors
    ///
    /// What is still running at the deadline.
    pub async fn wait(&self, deadline: Duration) -> Result<(), StillRunning> {
        let all_ended = async {
            loop {
                let mut idle = std::pin::pin!(self.shared.idle.notified());
                // Listen before looking, so that an end between the two is not missed.
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

/// Work that goes on as a task when it is dropped before its end.
struct Outliving<F: Future<Output: Send> + Send + 'static> {
    runtime: Handle,
    /// Nothing once it has ended.
    work: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send> + Send + 'static> Outliving<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Outliving<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            // Dropping the handle detaches the task; what it counts as is what a shutdown waits for.
            drop(self.runtime.spawn(work));
        }
    }
}

/// What had not ended when the wait for it was over.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("still running: {names:?}")]
pub struct StillRunning {
    /// Name and number, by name.
    pub names: Vec<(&'static str, usize)>,
}

/// One running task or thread; counts itself out when dropped.
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

/// A signal that is given once and stays given. Clones share it.
#[derive(Clone)]
pub struct Shutdown {
    signal: Arc<Signal>,
}

struct Signal {
    begun: AtomicBool,
    tasks: Notify,
    /// Guards nothing but the sleep of threads.
    gate: Mutex<()>,
    threads: Condvar,
}

impl Shutdown {
    /// A signal that nobody has given yet.
    pub fn new() -> Self {
        let begun = AtomicBool::new(false);
        let (gate, threads) = (Mutex::new(()), Condvar::new());
        Self { signal: Arc::new(Signal { begun, tasks: Notify::new(), gate, threads }) }
    }

    /// Gives the signal. Giving it again does nothing.
    pub fn begin(&self) {
        self.signal.begun.store(true, Ordering::SeqCst);
        self.signal.tasks.notify_waiters();
        // Behind the lock, so that a thread between its look and its sleep is not missed.
        let _gate = self.signal.gate.lock();
        self.signal.threads.notify_all();
    }

    /// Whether the signal was given.
    pub fn is_cancelled(&self) -> bool {
        self.signal.begun.load(Ordering::SeqCst)
    }

    /// Returns once the signal is given. Safe to drop and to call again.
    pub async fn cancelled(&self) {
        let mut told = std::pin::pin!(self.signal.tasks.notified());
        // Listen before looking, so that a signal between the two is not missed.
        told.as_mut().enable();
        if !self.is_cancelled() {
            told.await;
        }
    }

    /// Waits for `duration` or the signal, whichever is first. For loops of tasks.
    pub async fn pause(&self, duration: Duration) -> Pause {
        match tokio::time::timeout(duration, self.cancelled()).await {
            Ok(()) => Pause::Cancelled,
            Err(_) => Pause::Elapsed,
        }
    }

    /// As [`Shutdown::pause`], blocking. For loops of threads.
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
    /// The time is over.
    Elapsed,
    /// The shutdown began.
    Cancelled,
}

/// A fixed number of threads for work that computes: decoding, encoding, evaluation. Its queue has
/// no bound of its own: the caller bounds how many jobs may wait (bytes in flight, queries at once).
/// Clones share one pool; the threads end after the last clone is dropped.
///
/// Threads without a job sleep. Those of a pool for parallel loops would look for work for a while
/// first, and on a machine with few cores that is time which requests want.
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

    /// Queues `job` at once and returns its result. A job whose result nobody awaits any more when
    /// its turn comes is skipped; a job that has begun runs to its end.
    ///
    /// # Errors
    ///
    /// The job panicked, or the pool is going down.
    pub fn run<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        job: F,
    ) -> impl Future<Output = Result<T, TaskError>> + Send + use<T, F> {
        let name = self.name;
        let (sender, receiver) = oneshot::channel();
        // Fails only if every thread is gone, and then nobody answers.
        let _ = self.jobs.send(Box::new(move || {
            if sender.is_closed() {
                return;
            }
            // A receiver that went away meanwhile does not want the result.
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

    use super::CpuPool;
    use super::Pause;
    use super::StillRunning;
    use super::TaskError;
    use super::Tasks;

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
    async fn a_panic_of_a_vital_thread_is_told() {
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
        // The one thread is held by the first job while the second is queued and given up.
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
