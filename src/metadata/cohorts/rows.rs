//! Cohorts as rows. SQL only; the rules are in `cohorts`.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::cohorts::{CohortId, StoredCohort};
use crate::connection::Conn;
use crate::entity::Columns;
use crate::error::MetadataError;
use crate::{disk, sql};
use weir_event::id::ProjectId;

/// Adds members, except those that it has.
pub(super) async fn add_members(
    connection: &mut Conn,
    id: CohortId,
    members: &[Uuid],
) -> Result<(), MetadataError> {
    for member in members {
        sql::query("INSERT INTO cohort_members (cohort_id, person) VALUES ($1, $2)")
            .bind(id.0)
            .bind(member.to_string())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Removes members.
pub(crate) async fn remove_members(
    connection: &mut Conn,
    id: CohortId,
    members: &[Uuid],
) -> Result<(), MetadataError> {
    for member in members {
        sql::query("DELETE FROM cohort_members WHERE cohort_id = $1 AND person = $2")
            .bind(id.0)
            .bind(member.to_string())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Reads one cohort of a project, deleted or not.
pub(super) async fn by_id(
    connection: &mut Conn,
    project: ProjectId,
    id: CohortId,
) -> Result<Option<StoredCohort>, MetadataError> {
    let found: Option<StoredCohort> = StoredCohort::select("WHERE id = $1 AND project_id = $2")
        .bind(id.0)
        .bind(project.0)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(cohort) = found else { return Ok(None) };
    let members: Vec<String> =
        sql::query_scalar("SELECT person FROM cohort_members WHERE cohort_id = $1")
            .bind(id.0)
            .fetch_all(connection)
            .await?;
    Ok(Some(StoredCohort { members: uuids(&members)?, ..cohort }))
}

/// Reads the cohorts that are not deleted, of one project or of all.
pub(crate) async fn live(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<StoredCohort>, MetadataError> {
    let only = only.map(|project| project.0);
    let mut cohorts: Vec<StoredCohort> = StoredCohort::select(
        "WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1) AND NOT deleted",
    )
    .bind(only)
    .fetch_all(&mut *connection)
    .await?;
    let select = "SELECT cohort_id, person FROM cohort_members
         JOIN cohorts ON cohorts.id = cohort_members.cohort_id
         WHERE (CAST($1 AS BIGINT) IS NULL OR cohorts.project_id = $1) AND NOT deleted";
    let members: Vec<(i64, String)> =
        sql::query_as(select).bind(only).fetch_all(connection).await?;
    let mut by_cohort: HashMap<i64, Vec<String>> = HashMap::new();
    for (cohort, member) in members {
        by_cohort.entry(cohort).or_default().push(member);
    }
    for cohort in &mut cohorts {
        cohort.members = uuids(&by_cohort.remove(&cohort.id.0).unwrap_or_default())?;
    }
    Ok(cohorts)
}

/// Parses UUIDs and sorts them in ascending order.
fn uuids(texts: &[String]) -> Result<Arc<[Uuid]>, MetadataError> {
    let uuids = texts.iter().map(|text| disk::from_uuid("cohort_members", text));
    let mut uuids = uuids.collect::<Result<Vec<_>, _>>()?;
    uuids.sort_unstable();
    Ok(uuids.into())
}
