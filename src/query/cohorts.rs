//! Cohorts asked of all persons: who is inside, as flags see it, and how many they are.

use std::sync::Arc;

use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::flags::cohorts::CohortSet;
use crate::flags::cohorts::Members;
use crate::flags::cohorts::Memberships;
use crate::flags::evaluate::Cohorts;
use crate::flags::subject::Subject;
use crate::identity::person::Person;
use crate::identity::view::View;
use crate::metadata::cohorts::CohortId;
use crate::metadata::error::MetadataError;
use crate::query::Engine;
use crate::query::QueryError;

/// Whether a person is in the cohort `id` of `set`, as of `now`.
pub fn membership(
    set: Arc<CohortSet>,
    project: ProjectId,
    id: CohortId,
    now: UnixMicros,
) -> impl Fn(&View, &Person) -> bool + Send + Sync + 'static {
    let is_member = memberships(set, project, now);
    move |view, person| is_member(view, id.0, person)
}

/// Whether a person is in a cohort of `set`, as of `now`. Nobody is in one that is not there.
pub fn memberships(
    set: Arc<CohortSet>,
    project: ProjectId,
    now: UnixMicros,
) -> impl Fn(&View, i64, &Person) -> bool + Send + Sync + 'static {
    move |view, id, person| {
        with_subject(view, project, (person, String::new()), now, |subject, uuids| {
            Memberships::new(&set, uuids).contains(id, subject).unwrap_or(false)
        })
    }
}

/// What is asked of a person as a subject, with its uuids.
pub fn with_subject<T>(
    view: &View,
    project: ProjectId,
    (person, distinct_id): (&Person, String),
    now: UnixMicros,
    ask: impl FnOnce(&Subject<'_>, &dyn Fn() -> Option<Vec<Uuid>>) -> T,
) -> T {
    let mut subject = Subject::new(distinct_id, now);
    subject.stored = Some(&person.properties);
    subject.created_at = Some(person.created_at);
    ask(&subject, &|| uuids_of(view, project, person))
}

/// Distinct ids of a person that count for the lists that it is in, the oldest ones: who has more is
/// many people under one id, and a flag asks for this. They are read in less than a millisecond.
const IDS_MAX: usize = 1000;

/// The uuids that the person ever had: its own, and those of the persons that were merged into it,
/// which follow from its first [`IDS_MAX`] distinct ids. `None` if they cannot be read.
pub fn uuids_of(view: &View, project: ProjectId, person: &Person) -> Option<Vec<Uuid>> {
    let ids = view.first_ids(project, person.number, IDS_MAX).ok()?;
    let merged = ids.iter().map(|id| PersonId::of(project, id).0);
    Some(merged.chain([person.uuid]).collect())
}

impl Engine {
    /// Counts the members of a cohort with a rule, and notes how many they are, or that they could not
    /// be counted. Nothing is noted of a cohort that changes meanwhile, is deleted, or is a list.
    ///
    /// # Errors
    ///
    /// The count could not be noted.
    pub async fn recount(&self, project: ProjectId, id: CohortId) -> Result<(), QueryError> {
        let metadata = &self.shared.sources.metadata;
        let snapshot = metadata.snapshot();
        let cohort = snapshot.cohort(project, id).filter(|cohort| !cohort.is_static);
        let Some((cohort, set)) = cohort.zip(snapshot.cohort_set(project)) else { return Ok(()) };
        let is_countable =
            set.get(id.0).is_some_and(|cohort| matches!(cohort.members, Members::Rule(_)));
        let count = match is_countable {
            true => {
                let now = self.shared.clock.now();
                let test = membership(Arc::clone(set), project, id, now);
                self.count_persons(project, test).await.ok()
            }
            false => None,
        };
        let count = count.and_then(|count| i64::try_from(count.matching).ok());
        match metadata.note_cohort_size(project, id, cohort.version, count).await {
            Err(MetadataError::NotFound(_)) => Ok(()),
            noted => Ok(noted?),
        }
    }
}
