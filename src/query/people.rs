//! Lists of persons: who answers a question, in the order of lists, read from one snapshot of the
//! identity store. A distinct id is a look-up, the first page of all persons a walk along their
//! places, and any other filter one pass over the rows.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::event::predicate::filter::Filter;
use crate::event::predicate::filter::Membership;
use crate::event::predicate::filter::Scope;
use crate::event::predicate::tree::Tree;
use crate::identity::IdentityError;
use crate::identity::person::Person;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::query::Engine;
use crate::query::QueryError;

/// Persons created later than this after now are not listed: their events came from a wrong clock.
/// The figure is PostHog's.
const FUTURE: Duration = Duration::from_hours(24);

/// Persons that are remembered while the list is searched, at most; beyond it the walk goes along
/// the list, which takes longer and needs no memory.
const REMEMBERED_MAX: usize = 300_000;

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
    view: View,
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
        let now = self.shared.clock.now();
        self.read(move |view, stop| {
            let search = Search { view: &view, project, question: &question, now, stop };
            let (count, numbers) = search.find(part)?;
            Ok(Found { count, numbers, project, view })
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
        let stop = StopOnDrop(Arc::new(AtomicBool::new(false)));
        let (view, flag) = (self.identities().view(), Arc::clone(&stop.0));
        let work = self.shared.runtime.spawn_blocking(move || {
            let _permit = permit;
            work(view, &flag)
        });
        let limit = self.shared.settings.query_timeout;
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(done)) => Ok(done?),
            Ok(Err(_)) => Err(QueryError::Unavailable("the question was given up")),
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

    /// The right to run one question; waits for it as long as a question may take.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, QueryError> {
        let permit = Arc::clone(&self.shared.slots).acquire_owned();
        match tokio::time::timeout(self.shared.settings.query_timeout, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(QueryError::Unavailable("too many queries are running")),
        }
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Search<'a> {
    view: &'a View,
    project: ProjectId,
    question: &'a PersonsQuestion,
    now: UnixMicros,
    stop: &'a AtomicBool,
}

impl Search<'_> {
    /// How many persons there are, and the numbers of those in `part`.
    fn find(&self, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        let question = self.question;
        if let Some(distinct_id) = &question.distinct_id {
            let person = self.view.person_of(self.project, distinct_id)?;
            let own_search = self.search()?;
            let person = person.filter(|person| self.is_kept(person, own_search.as_ref()));
            let numbers: Vec<i64> = person.iter().map(|person| person.number).collect();
            let wanted = numbers.iter().copied().skip(part.offset).take(part.limit);
            return Ok((numbers.len(), wanted.collect()));
        }
        if let Some(email) = self.known_email() {
            return self.by_email(&email, part);
        }
        let narrows = question.email.is_some()
            || question.search.is_some()
            || question.properties.is_some()
            || question.cohort.is_some();
        if !narrows {
            return self.all(part);
        }
        if part.offset.saturating_add(part.limit) > REMEMBERED_MAX {
            return self.walk(part);
        }
        self.scan(part)
    }

    /// All persons.
    fn all(&self, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        let newest = self.newest();
        let count = self.view.person_count(self.project)?;
        let hidden = self.view.count_created_after(self.project, newest)?;
        let mut left_out = 0;
        let mut numbers = Vec::new();
        self.view.scan_listed(self.project, newest, |number| {
            if left_out < part.offset {
                left_out += 1;
            } else if numbers.len() < part.limit {
                numbers.push(number);
            }
            self.flow(numbers.len() < part.limit)
        })?;
        Ok((usize::try_from(count.saturating_sub(hidden)).unwrap_or(usize::MAX), numbers))
    }

    /// The email that every answer has, letters compared without case, if the question says so.
    fn known_email(&self) -> Option<String> {
        let asked = self.question.email.clone();
        asked.or_else(|| self.question.properties.as_ref().and_then(Tree::required_email))
    }

    /// Persons by their email.
    fn by_email(&self, email: &str, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        let (newest, search) = (self.newest(), self.search()?);
        let mut persons = self.view.persons_by_email(self.project, email)?;
        persons
            .retain(|person| person.created_at <= newest && self.is_kept(person, search.as_ref()));
        persons.sort_unstable_by_key(|person| Reverse((person.created_at, person.uuid)));
        let numbers = persons.iter().map(|person| person.number);
        let wanted = numbers.skip(part.offset).take(part.limit).collect();
        Ok((persons.len(), wanted))
    }

    /// Looks at all persons in the order of their rows, and remembers the first of the list.
    fn scan(&self, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        let (newest, search, needles) = (self.newest(), self.search()?, self.needles());
        let wanted_max = part.offset.saturating_add(part.limit);
        let mut first = BTreeSet::new();
        let mut count = 0;
        let wanted = |uuid: Uuid, json: &str| {
            search.as_ref().is_some_and(|search| search.uuids.contains(&uuid))
                || needles.iter().all(|needle| json.contains(needle.as_str()))
        };
        self.view.scan_persons_where(self.project, wanted, |person| {
            if person.created_at <= newest && self.is_kept(&person, search.as_ref()) {
                count += 1;
                first.insert((Reverse((person.created_at, person.uuid)), person.number));
                if first.len() > wanted_max {
                    first.pop_last();
                }
            }
            self.flow(true)
        })?;
        let numbers = first.into_iter().map(|(_, number)| number);
        Ok((count, numbers.skip(part.offset).take(part.limit).collect()))
    }

    /// Looks at all persons in the order of the list.
    fn walk(&self, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        let search = self.search()?;
        let mut count: usize = 0;
        let mut numbers = Vec::new();
        let mut failed = None;
        self.view.scan_listed(self.project, self.newest(), |number| {
            match self.view.person_by_number(self.project, number) {
                Ok(Some(person)) if self.is_kept(&person, search.as_ref()) => {
                    if count >= part.offset && numbers.len() < part.limit {
                        numbers.push(number);
                    }
                    count += 1;
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            self.flow(failed.is_none())
        })?;
        failed.map_or(Ok((count, numbers)), Err)
    }

    fn flow(&self, goes_on: bool) -> Flow {
        if goes_on && !self.stop.load(Ordering::Relaxed) {
            Flow::Continue(())
        } else {
            Flow::Break(())
        }
    }

    fn newest(&self) -> UnixMicros {
        self.now.saturating_add(FUTURE)
    }

    /// What the search looks for besides emails.
    fn search(&self) -> Result<Option<Sought>, IdentityError> {
        let Some(text) = self.question.search.as_deref() else { return Ok(None) };
        let by_id = self.view.person_of(self.project, text)?.map(|person| person.uuid);
        let uuids = by_id.into_iter().chain(Uuid::try_parse(text).ok()).collect();
        Ok(Some(Sought { uuids, email: text.to_lowercase() }))
    }

    fn is_kept(&self, person: &Person, search: Option<&Sought>) -> bool {
        let question = self.question;
        let email = || person.properties.get("email").and_then(Value::as_str);
        let is_member =
            |cohort| question.in_cohort.as_ref().is_some_and(|is| is(self.view, cohort, person));
        question.email.as_deref().is_none_or(|wanted| email() == Some(wanted))
            && question.cohort.is_none_or(is_member)
            && search.is_none_or(|sought| {
                sought.uuids.contains(&person.uuid)
                    || email().is_some_and(|email| email.to_lowercase().contains(&sought.email))
            })
            && question.properties.as_ref().is_none_or(|tree| {
                tree.holds(&mut |filter| holds(filter, person, self.now, &is_member))
            })
    }

    /// Texts that the JSON of every person who is kept contains; that is quicker to see than to
    /// read the JSON.
    fn needles(&self) -> Vec<String> {
        let question = self.question;
        let json = |text: &str| Value::from(text).to_string();
        let email = question.email.iter().map(|email| format!("\"email\":{}", json(email)));
        let search = question.search.iter().map(|_| "\"email\":".to_owned());
        let keys = question.properties.iter().flat_map(Tree::required_keys);
        email.chain(search).chain(keys.map(|key| format!("{}:", json(key)))).collect()
    }
}

/// What a search finds.
struct Sought {
    uuids: Vec<Uuid>,
    /// In lower case.
    email: String,
}

/// Whether a filter holds for a person. What is not about persons holds for nobody.
fn holds(
    filter: &Filter,
    person: &Person,
    now: UnixMicros,
    is_member: &impl Fn(i64) -> bool,
) -> bool {
    match filter {
        Filter::Property { scope: Scope::Person, predicate } => {
            predicate.matches(&person.properties, now)
        }
        Filter::Property { scope: Scope::PersonMetadata, predicate } => {
            let value = match &*predicate.key {
                "created_at" => Some(Value::from(person.created_at.to_rfc3339())),
                "id" | "uuid" => Some(Value::from(person.uuid.to_string())),
                "is_identified" => Some(Value::from(person.is_identified)),
                _ => None,
            };
            predicate.matches_value(value.as_ref(), now)
        }
        Filter::Property { .. } | Filter::Flag { .. } => false,
        Filter::Cohort { id, membership } => is_member(*id) == (*membership == Membership::In),
    }
}
