//! Cohort membership of stored persons by the rules of flag evaluation, for counts, lists and filters.

use std::sync::Arc;

use uuid::Uuid;

use weir_event::id::{PersonId, ProjectId};
use weir_event::predicate::moment::Now;
use weir_flags::cohorts::{CohortSet, Memberships};
use weir_flags::evaluate::Cohorts;
use weir_flags::subject::Subject;
use weir_identity::person::Person;
use weir_identity::view::View;
use weir_metadata::cohorts::CohortId;

/// Returns a predicate: whether a person is in the cohort `id` of `set`, as of `now`.
pub fn membership(
    set: Arc<CohortSet>,
    project: ProjectId,
    id: CohortId,
    now: Now,
) -> impl Fn(&View, &Person) -> bool + Send + Sync + 'static {
    let is_member = memberships(set, project, now);
    move |view, person| is_member(view, id.0, person)
}

/// Returns a predicate: whether a person is in a given cohort of `set`, as of `now`. False for a cohort that `set`
/// does not contain.
pub fn memberships(
    set: Arc<CohortSet>,
    project: ProjectId,
    now: Now,
) -> impl Fn(&View, i64, &Person) -> bool + Send + Sync + 'static {
    move |view, id, person| {
        with_subject(view, project, person, String::new(), now, |subject, uuids| {
            Memberships::new(&set, uuids).contains(id, subject).unwrap_or(false)
        })
    }
}

/// Builds the evaluation subject of a stored person and calls `ask` with it and with a function that reads the uuids
/// of the person.
pub fn with_subject<T>(
    view: &View,
    project: ProjectId,
    person: &Person,
    distinct_id: String,
    now: Now,
    ask: impl FnOnce(&Subject<'_>, &dyn Fn() -> Option<Vec<Uuid>>) -> T,
) -> T {
    let mut subject = Subject::new(distinct_id, now);
    subject.stored = Some(&person.properties);
    subject.created_at = Some(person.created_at);
    ask(&subject, &|| uuids_of(view, project, person))
}

/// Most distinct ids of a person, oldest first, that count for its membership in cohorts with a stored list of
/// members. A person with more of them is many people under one id, and flag requests read this: so many ids are read
/// in less than a millisecond.
const IDS_MAX: usize = 1000;

/// All uuids that the person ever had: its own, and those of the persons that were merged into it, which are derived
/// from its first [`IDS_MAX`] distinct ids. `None` if they cannot be read.
pub fn uuids_of(view: &View, project: ProjectId, person: &Person) -> Option<Vec<Uuid>> {
    let ids = view.first_ids(project, person.number, IDS_MAX).ok()?;
    let merged = ids.iter().map(|id| PersonId::of(project, id).0);
    Some(merged.chain([person.uuid]).collect())
}
