//! The sizes of cohorts with a rule, which lists of cohorts show.

use std::sync::Arc;

use crate::evaluation::membership::membership;
use crate::event::id::ProjectId;
use crate::flags::cohorts::Members;
use crate::insights::audience;
use crate::metadata::cohorts::CohortId;
use crate::metadata::error::MetadataError;
use crate::query::engine::Engine;
use crate::query::error::QueryError;

/// Counts the members of a cohort with a rule, and notes how many they are, or that they could not
/// be counted. Nothing is noted of a cohort that changes meanwhile, is deleted, or is a list.
///
/// # Errors
///
/// The count could not be noted.
pub async fn recount(engine: &Engine, project: ProjectId, id: CohortId) -> Result<(), QueryError> {
    let metadata = engine.metadata();
    let snapshot = metadata.snapshot();
    let cohort = snapshot.cohort(project, id).filter(|cohort| !cohort.is_static);
    let Some((cohort, set)) = cohort.zip(snapshot.cohort_set(project)) else { return Ok(()) };
    let is_countable =
        set.get(id.0).is_some_and(|cohort| matches!(cohort.members, Members::Rule(_)));
    let count = match is_countable {
        true => {
            let now = engine.now();
            let test = membership(Arc::clone(set), project, id, now);
            audience::count_persons(engine, project, test).await.ok()
        }
        false => None,
    };
    let count = count.and_then(|count| i64::try_from(count.matching).ok());
    match metadata.note_cohort_size(project, id, cohort.version, count).await {
        Err(MetadataError::NotFound(_)) => Ok(()),
        noted => Ok(noted?),
    }
}
