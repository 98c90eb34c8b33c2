//! Lists of persons: who answers a question, in the order of lists, as of one moment of the identity
//! store. A distinct id or an email is a look-up, and the first page of all persons a walk along their
//! places (`search`); any other filter is asked of columns in memory, of files of them if a column does
//! not fit or is still being read (`files`), or of every row if columns leave too many persons open
//! (`everybody`).

mod files;
mod full_scan;
pub(in crate::query) mod search;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::event::predicate::tree::Tree;
use crate::identity::IdentityError;
use crate::identity::person::Person;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::query::Engine;
use crate::query::QueryError;
use crate::query::admission::Permit;
use crate::query::admission::Work;
use crate::query::parts::given_up;
use crate::query::people::search::Search;

/// Persons created later than this after now are not listed: their events came from a wrong clock.
/// The figure is PostHog's.
const FUTURE: Duration = Duration::from_hours(24);

/// Pieces of an answer that may wait for a slow reader.
const PIECES_QUEUE: usize = 4;

/// Whether a person, who is read from the view, is in the cohort with this id.
pub type InCohort = Box<dyn Fn(&View, i64, &Person) -> bool + Send + Sync>;

/// Which persons are asked for. Everything that is given must hold.
#[derive(Default)]
pub struct PersonsQuestion {
    /// One of the person's distinct ids.
    pub distinct_id: Option<String>,
    /// The property `email`, exactly.
    pub email: Option<String>,
    /// A part of the property `email` in any case, or a distinct id or the uuid, exactly.
    pub search: Option<String>,
    /// Filters on properties.
    pub properties: Option<Tree>,
    /// A cohort that the person is in.
    pub cohort: Option<i64>,
    /// Numbers, of which the person has one.
    pub numbers: Option<Vec<i64>>,
    /// Uuids, of which the person has one.
    pub uuids: Option<Vec<Uuid>>,
    /// The property `email` or one of the person's distinct ids, exactly.
    pub key_identifier: Option<String>,
    /// Records of the log from this one on changed the person or its distinct ids.
    pub changed_since: Option<u64>,
    /// Answers for cohorts; without it nobody is in one.
    pub in_cohort: Option<InCohort>,
}

impl std::fmt::Debug for PersonsQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersonsQuestion").finish_non_exhaustive()
    }
}

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Persons left out before.
    pub offset: usize,
    /// Persons at most.
    pub limit: usize,
}

/// Persons that were found, and where to read them.
#[derive(Debug)]
pub struct Found {
    /// Persons of the whole list.
    pub count: usize,
    /// Numbers of the part that was wanted, in order.
    pub numbers: Vec<i64>,
    project: ProjectId,
    view: Arc<View>,
}

impl Found {
    /// Shows the persons with their first distinct ids, at most `ids_max`, until told to stop.
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged.
    pub fn each(
        &self,
        ids_max: usize,
        mut visit: impl FnMut(Person, Vec<String>) -> Flow,
    ) -> Result<(), IdentityError> {
        for number in &self.numbers {
            let Some(person) = self.view.person_by_number(self.project, *number)? else { continue };
            let ids = self.view.first_ids(self.project, *number, ids_max)?;
            if visit(person, ids).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Engine {
    /// The persons who answer `question`, `created_at` descending and then uuid descending.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn find_persons(
        &self,
        project: ProjectId,
        question: PersonsQuestion,
        part: Part,
    ) -> Result<Found, QueryError> {
        if question.is_about_everybody() {
            return self.find_everybody(project, question, part).await;
        }
        let now = self.shared.clock.now();
        self.read(move |view, stop| {
            let search = Search::new((&view, project), &question, now, stop)?;
            let (count, numbers) = search.find(part)?;
            Ok(Found { count, numbers, project, view: Arc::new(view) })
        })
        .await
    }

    /// Reads from a fresh view of the persons, as of every event acknowledged before the call, on
    /// a thread that may wait for the disk. `work` ends early once the flag is set: the asker
    /// is gone, or the time of queries is over.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(View, &AtomicBool) -> Result<T, IdentityError> + Send + 'static,
    ) -> Result<T, QueryError> {
        self.wait().await?;
        let permit = self.permit().await?;
        let identities = self.identities().clone();
        let work = move |stop: &AtomicBool| {
            let _permit = permit;
            work(identities.view(), stop)
        };
        self.on_a_thread(work).await
    }

    /// Does what may wait for the disk. The flag is set once nobody waits for it any more, or the time of
    /// queries is over.
    async fn on_a_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, IdentityError> + Send + 'static,
    ) -> Result<T, QueryError> {
        let stop = StopOnDrop::default();
        let flag = Arc::clone(&stop.0);
        let work = self.shared.runtime.spawn_blocking(move || work(&flag));
        let limit = self.shared.settings.query_timeout;
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(done)) => Ok(done?),
            Ok(Err(error)) => Err(given_up(error)),
            Err(_) => Err(QueryError::Timeout(limit)),
        }
    }

    /// Runs `work` on a thread that may wait for the disk, and gives what it sends. It notices by
    /// a failed send that the reader is gone.
    ///
    /// # Errors
    ///
    /// Too many queries are running.
    pub async fn produce<T: Send + 'static>(
        &self,
        work: impl FnOnce(mpsc::Sender<T>) + Send + 'static,
    ) -> Result<mpsc::Receiver<T>, QueryError> {
        let permit = self.permit().await?;
        let (sender, receiver) = mpsc::channel(PIECES_QUEUE);
        self.shared.runtime.spawn_blocking(move || {
            let _permit = permit;
            work(sender);
        });
        Ok(receiver)
    }

    /// The right to run one list or look-up; waits for it as long as a question may take.
    pub(super) async fn permit(&self) -> Result<Permit, QueryError> {
        let limit = self.shared.settings.query_timeout;
        self.shared.admission.permit(self.caller, Work::List, limit).await
    }
}

/// A flag that is set when this is dropped.
#[derive(Default)]
pub(super) struct StopOnDrop(pub(super) Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
