//! Recomputes dynamic cohorts: the sizes that lists of cohorts show, and the members of cohorts with behavioral
//! filters.

use futures::future::BoxFuture;
use std::sync::Arc;

use crate::behavioral::BehavioralRule;
use crate::{ProjectSettings, audience};
use weir_evaluation::membership::membership;
use weir_event::id::ProjectId;
use weir_flags::cohorts::{CohortSet, Members};
use weir_metadata::cohorts::{CohortId, StoredCohort};
use weir_metadata::error::MetadataError;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;

/// Counts the members of a cohort with a rule and stores the count, or that counting failed; for a cohort with
/// behavioral filters also stores the members. Nothing is stored if the cohort changes meanwhile, is deleted, or is
/// static.
///
/// # Errors
///
/// The count could not be stored.
pub fn recount(
    engine: &Engine,
    project: ProjectId,
    id: CohortId,
) -> BoxFuture<'_, Result<(), QueryError>> {
    Box::pin(async move {
        let metadata = engine.metadata();
        let snapshot = metadata.snapshot();
        let cohort = snapshot.cohort(project, id).filter(|cohort| !cohort.is_static);
        let Some((cohort, set)) = cohort.zip(snapshot.cohort_set(project)) else { return Ok(()) };
        if cohort.is_by_events() {
            return by_events(engine, cohort, Arc::clone(set)).await;
        }
        let is_countable =
            set.get(id.0).is_some_and(|cohort| matches!(cohort.members, Members::Rule(_)));
        let count = match is_countable {
            true => {
                let now = engine.present(project);
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
    })
}

/// Computes and stores the members of a cohort with behavioral filters.
async fn by_events(
    engine: &Engine,
    cohort: &StoredCohort,
    set: Arc<CohortSet>,
) -> Result<(), QueryError> {
    let metadata = engine.metadata();
    let snapshot = metadata.snapshot();
    let (project, id) = (cohort.project, cohort.id);
    let Some(owner) = snapshot.project(project).map(|own| ProjectSettings::of(own)) else {
        return Ok(());
    };
    let filters = BehavioralRule::parse(cohort.rule(), snapshot.matching(project), engine.now());
    let members = match filters {
        Ok(filters) => filters.members(engine, &owner, set).await,
        Err(error) => Err(error),
    };
    let noted = match members {
        Ok(members) => metadata.note_cohort_members(project, id, cohort.version, members).await,
        Err(error) => {
            tracing::info!(cohort = id.0, %error, "a cohort by events was not computed; it has the members of before");
            metadata.note_cohort_size(project, id, cohort.version, None).await
        }
    };
    match noted {
        Err(MetadataError::NotFound(_)) => Ok(()),
        noted => Ok(noted?),
    }
}
