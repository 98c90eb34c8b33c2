//! Queries that are running, by the ids that clients chose: [`Jobs`]. For asynchronous ones the client polls for the
//! result; for the others it waits for the response, and can cancel them meanwhile. They are kept in memory, so they
//! end with the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cache::{Answer, Key};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_metadata::accounts::KeyId;

/// How long the status of a finished job can be read (PostHog's figure).
pub const KEPT: Duration = Duration::from_secs(20 * 60);

/// Most asynchronous jobs of one personal API key that run or are queued at once.
pub const RUNNING_PER_KEY_MAX: usize = 8;

/// Most synchronous queries of one personal API key that can be cancelled; further ones run, but cannot be cancelled.
const WAITED_PER_KEY_MAX: usize = 64;

/// Most asynchronous jobs of one personal API key, including finished ones; the oldest finished one is evicted for a
/// new one.
const JOBS_PER_KEY_MAX: usize = 100;

/// Most bytes of the results of all finished jobs; the oldest results are evicted for a new one. A single larger
/// result is refused.
const ANSWERS_MAX_BYTES: u64 = 32 << 20;

/// Longest id that a client chooses, in bytes.
pub const ID_MAX_BYTES: usize = 200;

/// The error message of a cancelled job.
pub const CANCELLED: &str = "The query was cancelled.";

/// Jobs by project and id. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Jobs(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    jobs: HashMap<(ProjectId, String), Job>,
    /// The number of jobs begun so far, which is the number of the next one.
    begun: u64,
}

#[derive(Debug)]
struct Job {
    number: u64,
    by: KeyId,
    status: Status,
    stop: Arc<Notify>,
}

/// The status of a job.
#[derive(Clone, Debug)]
pub struct Status {
    /// When it began.
    pub started_at: UnixMicros,
    /// When it ended, and how; `None` while it runs.
    pub ended: Option<(UnixMicros, Outcome)>,
    /// Whether its client waits for the response: the job is removed as soon as it ends.
    pub is_waited: bool,
}

/// How a job ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It succeeded: the cache key and the result.
    Answer(Key, Arc<Answer>),
    /// It failed, or was cancelled.
    Failed {
        /// The error message for the client.
        detail: String,
        /// Whether it is an error of the server.
        is_fault: bool,
    },
}

impl Outcome {
    /// The outcome of a successful job, with the result copied to memory of its own, since query memory must not be
    /// held for minutes. A result above the limit of all results is a failure.
    pub fn of(key: Key, answer: &Answer) -> Self {
        if answer.bytes() <= ANSWERS_MAX_BYTES {
            return Self::Answer(key, Arc::new(answer.copied()));
        }
        let detail = format!(
            "The answer is longer than {ANSWERS_MAX_BYTES} bytes, and cannot be kept for later: ask for fewer rows, or wait for it."
        );
        Self::Failed { detail, is_fault: false }
    }
}

/// Result of [`Jobs::begin`].
#[derive(Debug)]
pub enum Begun {
    /// The caller has to run it.
    New(Ticket),
    /// A job with this id is running.
    Running(Status),
    /// The API key has [`RUNNING_PER_KEY_MAX`] running ones.
    TooMany,
}

/// Result of [`Jobs::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The job is cancelled.
    Done,
    /// No such job is running.
    Nothing,
    /// The job was begun with an API key whose jobs the caller may not cancel.
    Refused,
}

/// Handle of a running job, which must end it. If it is dropped before, the job ends with an error of the server.
#[derive(Debug)]
pub struct Ticket {
    jobs: Jobs,
    id: (ProjectId, String),
    number: u64,
    stop: Arc<Notify>,
    /// The status of the job when it began.
    pub status: Status,
}

impl Status {
    fn is_over(&self, now: UnixMicros) -> bool {
        self.ended.as_ref().is_some_and(|(at, _)| now.since(*at) >= KEPT)
    }

    fn bytes(&self) -> u64 {
        match &self.ended {
            Some((_, Outcome::Answer(_, answer))) => answer.bytes(),
            _ => 0,
        }
    }
}

impl Jobs {
    /// Begins an asynchronous job of a project with this id.
    pub fn begin(&self, id: (ProjectId, String), by: KeyId, now: UnixMicros) -> Begun {
        let mut state = self.0.lock();
        state.jobs.retain(|_, job| !job.status.is_over(now));
        if let Some(job) = state.jobs.get(&id).filter(|job| job.status.ended.is_none()) {
            return Begun::Running(job.status.clone());
        }
        let own = || state.jobs.values().filter(|job| job.by == by);
        let is_running = |job: &&Job| job.status.ended.is_none() && !job.status.is_waited;
        if own().filter(is_running).count() >= RUNNING_PER_KEY_MAX {
            return Begun::TooMany;
        }
        if own().filter(|job| !job.status.is_waited).count() >= JOBS_PER_KEY_MAX {
            state.forget_oldest(|job| job.by == by && !job.status.is_waited);
        }
        let status = Status { started_at: now, ended: None, is_waited: false };
        Begun::New(self.added(&mut state, (id, by), status))
    }

    /// Registers a synchronous query under this id, so that it can be cancelled while its client waits. `None` if a
    /// running job has the id, or the API key has [`WAITED_PER_KEY_MAX`].
    pub fn wait(&self, id: (ProjectId, String), by: KeyId, now: UnixMicros) -> Option<Ticket> {
        let mut state = self.0.lock();
        state.jobs.retain(|_, job| !job.status.is_over(now));
        if state.jobs.get(&id).is_some_and(|job| job.status.ended.is_none()) {
            return None;
        }
        let waited = state.jobs.values().filter(|job| job.by == by && job.status.is_waited);
        if waited.count() >= WAITED_PER_KEY_MAX {
            return None;
        }
        let status = Status { started_at: now, ended: None, is_waited: true };
        Some(self.added(&mut state, (id, by), status))
    }

    fn added(
        &self,
        state: &mut State,
        (id, by): ((ProjectId, String), KeyId),
        status: Status,
    ) -> Ticket {
        let number = state.begun;
        state.begun += 1;
        let stop = Arc::new(Notify::new());
        let job = Job { number, by, status: status.clone(), stop: Arc::clone(&stop) };
        state.jobs.insert(id.clone(), job);
        Ticket { jobs: self.clone(), id, number, stop, status }
    }

    /// The status of a job; `None` if there is no such job, or it ended too long ago.
    pub fn status(&self, id: &(ProjectId, String), now: UnixMicros) -> Option<Status> {
        let state = self.0.lock();
        let status = &state.jobs.get(id)?.status;
        (!status.is_over(now)).then(|| status.clone())
    }

    /// Cancels a running job, if `is_allowed` for the API key that began it.
    pub fn cancel(
        &self,
        id: &(ProjectId, String),
        is_allowed: impl FnOnce(KeyId) -> bool,
        now: UnixMicros,
    ) -> Cancelled {
        let mut state = self.0.lock();
        let Some(job) = state.jobs.get_mut(id).filter(|job| job.status.ended.is_none()) else {
            return Cancelled::Nothing;
        };
        if !is_allowed(job.by) {
            return Cancelled::Refused;
        }
        let outcome = Outcome::Failed { detail: CANCELLED.to_owned(), is_fault: false };
        job.status.ended = Some((now, outcome));
        job.stop.notify_one();
        Cancelled::Done
    }
}

impl State {
    /// Evicts the finished job that began first, among those for which `is_meant`.
    fn forget_oldest(&mut self, is_meant: impl Fn(&Job) -> bool) {
        let finished = self.jobs.iter().filter(|(_, job)| job.status.ended.is_some());
        let oldest = finished.filter(|(_, job)| is_meant(job)).min_by_key(|(_, job)| job.number);
        if let Some(id) = oldest.map(|(id, _)| id.clone()) {
            self.jobs.remove(&id);
        }
    }
}

impl Ticket {
    /// Completes once the job is cancelled.
    pub async fn stopped(&self) {
        self.stop.notified().await;
    }

    /// Ends the job, unless it was cancelled.
    pub fn end(&self, outcome: Outcome, now: UnixMicros) {
        let mut state = self.jobs.0.lock();
        let job = state.jobs.get_mut(&self.id).filter(|job| job.number == self.number);
        let Some(job) = job.filter(|job| job.status.ended.is_none()) else { return };
        job.status.ended = Some((now, outcome));
        let bytes = |state: &State| state.jobs.values().map(|job| job.status.bytes()).sum::<u64>();
        while bytes(&state) > ANSWERS_MAX_BYTES {
            let (number, before) = (self.number, state.jobs.len());
            state.forget_oldest(|job| job.number != number && job.status.bytes() > 0);
            if state.jobs.len() == before {
                break;
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.status.is_waited {
            let mut state = self.jobs.0.lock();
            if state.jobs.get(&self.id).is_some_and(|job| job.number == self.number) {
                state.jobs.remove(&self.id);
            }
            return;
        }
        let detail = "The query was not finished.".to_owned();
        self.end(Outcome::Failed { detail, is_fault: true }, self.status.started_at);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        Begun, Cancelled, JOBS_PER_KEY_MAX, Jobs, KEPT, Outcome, RUNNING_PER_KEY_MAX, Ticket,
        WAITED_PER_KEY_MAX,
    };
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_metadata::accounts::KeyId;

    const NOW: UnixMicros = UnixMicros(1_767_616_496_000_000);

    fn id(project: i64, name: &str) -> (ProjectId, String) {
        (ProjectId(project), name.to_owned())
    }

    fn begin(jobs: &Jobs, name: &str, by: i64) -> Option<Ticket> {
        match jobs.begin(id(1, name), KeyId(by), NOW) {
            Begun::New(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Cancels the job `a` of a project by a key.
    fn cancel(jobs: &Jobs, project: i64, by: i64) -> Cancelled {
        jobs.cancel(&id(project, "a"), |own| own == KeyId(by), NOW)
    }

    fn failed(detail: &str) -> Outcome {
        Outcome::Failed { detail: detail.to_owned(), is_fault: false }
    }

    fn detail(jobs: &Jobs, name: &str) -> Option<String> {
        match jobs.status(&id(1, name), NOW)?.ended?.1 {
            Outcome::Failed { detail, .. } => Some(detail),
            Outcome::Answer(..) => None,
        }
    }

    #[test]
    fn a_job_runs_once_and_is_known_for_a_time() {
        let jobs = Jobs::default();
        let ticket = begin(&jobs, "a", 1).unwrap();
        assert!(matches!(jobs.begin(id(1, "a"), KeyId(2), NOW), Begun::Running(_)));
        assert!(jobs.status(&id(1, "a"), NOW).unwrap().ended.is_none());
        assert!(jobs.status(&id(2, "a"), NOW).is_none(), "of another project");
        ticket.end(failed("x"), NOW);
        ticket.end(failed("y"), NOW);
        drop(ticket);
        assert_eq!(detail(&jobs, "a").as_deref(), Some("x"));
        let later = NOW.saturating_add(KEPT);
        assert!(jobs.status(&id(1, "a"), later).is_none());
        assert_eq!(cancel(&jobs, 1, 1), Cancelled::Nothing, "it is finished");
        let second = begin(&jobs, "a", 1).unwrap();
        assert_eq!(detail(&jobs, "a"), None);
        drop(second);
        assert_eq!(detail(&jobs, "a").as_deref(), Some("The query was not finished."));
    }

    #[tokio::test]
    async fn a_cancelled_job_stops() {
        let jobs = Jobs::default();
        let ticket = begin(&jobs, "a", 1).unwrap();
        assert_eq!(cancel(&jobs, 2, 1), Cancelled::Nothing, "of another project");
        assert_eq!(cancel(&jobs, 1, 2), Cancelled::Refused, "of another key");
        assert!(jobs.status(&id(1, "a"), NOW).unwrap().ended.is_none());
        assert_eq!(cancel(&jobs, 1, 1), Cancelled::Done);
        tokio::time::timeout(Duration::from_secs(5), ticket.stopped()).await.unwrap();
        ticket.end(failed("too late"), NOW);
        assert_eq!(detail(&jobs, "a").as_deref(), Some("The query was cancelled."));
        // The next job with this id has another number.
        let next = begin(&jobs, "a", 1).unwrap();
        ticket.end(failed("too late"), NOW);
        assert_eq!(detail(&jobs, "a"), None);
        drop(next);
    }

    #[tokio::test]
    async fn what_is_waited_for_is_known_while_it_runs() {
        let jobs = Jobs::default();
        let wait = |name: &str| jobs.wait(id(1, name), KeyId(1), NOW);
        let waiting = wait("a").unwrap();
        assert!(wait("a").is_none(), "its id is in use");
        assert!(jobs.status(&id(1, "a"), NOW).unwrap().ended.is_none());
        assert_eq!(cancel(&jobs, 1, 2), Cancelled::Refused, "of another key");
        assert_eq!(cancel(&jobs, 1, 1), Cancelled::Done);
        tokio::time::timeout(Duration::from_secs(5), waiting.stopped()).await.unwrap();
        drop(waiting);
        assert!(jobs.status(&id(1, "a"), NOW).is_none());
        // They do not count towards the limits of asynchronous jobs, and have a limit of their own.
        let many: Vec<Ticket> =
            (0..WAITED_PER_KEY_MAX).map(|at| wait(&format!("waited {at}")).unwrap()).collect();
        assert!(wait("one more").is_none());
        assert!(jobs.wait(id(1, "of another key"), KeyId(2), NOW).is_some());
        let running = begin(&jobs, "running", 1).unwrap();
        drop(many);
        assert!(wait("one more").is_some());
        drop(running);
        assert_eq!(detail(&jobs, "running").as_deref(), Some("The query was not finished."));
    }

    #[test]
    fn jobs_of_a_key_are_few() {
        let jobs = Jobs::default();
        let running: Vec<Ticket> =
            (0..RUNNING_PER_KEY_MAX).map(|at| begin(&jobs, &at.to_string(), 1).unwrap()).collect();
        assert!(matches!(jobs.begin(id(1, "more"), KeyId(1), NOW), Begun::TooMany));
        drop(begin(&jobs, "of another key", 2).unwrap());
        drop(running);
        for at in 0..JOBS_PER_KEY_MAX {
            drop(begin(&jobs, &format!("later {at}"), 1).unwrap());
        }
        let state = jobs.0.lock();
        assert_eq!(state.jobs.len(), JOBS_PER_KEY_MAX + 1);
        assert!(state.jobs.contains_key(&id(1, "of another key")));
        assert!(!state.jobs.contains_key(&id(1, "0")), "the oldest one");
    }
}
