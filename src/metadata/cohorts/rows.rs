//! Cohorts as rows. SQL only; the rules are in `cohorts`.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::accounts::UserId;
use crate::cohorts::{CohortId, StoredCohort};
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// The id for the next cohort.
pub(super) async fn next_id(connection: &mut Conn) -> Result<i64, MetadataError> {
    disk::next_id(connection, "SELECT COALESCE(MAX(id), 0) + 1 FROM cohorts").await
}

/// Inserts a cohort without its members.
pub(super) async fn insert(
    connection: &mut Conn,
    cohort: &StoredCohort,
) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO cohorts
         (id, project_id, name, description, filters, is_static, deleted, created_by, created_at,
          version, count, last_calculation, errors_calculating)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
    )
    .bind(cohort.id.0)
    .bind(cohort.project.0)
    .bind(&cohort.name)
    .bind(&cohort.description)
    .bind(cohort.filters.to_string())
    .bind(cohort.is_static)
    .bind(cohort.deleted)
    .bind(cohort.created_by.map(|user| user.0))
    .bind(cohort.created_at.0)
    .bind(cohort.version)
    .bind(cohort.count)
    .bind(cohort.last_calculation.map(|time| time.0))
    .bind(cohort.errors_calculating)
    .execute(connection)
    .await?;
    Ok(())
}

/// Overwrites the fields of a cohort that can change, except its members.
pub(crate) async fn update(
    connection: &mut Conn,
    cohort: &StoredCohort,
) -> Result<(), MetadataError> {
    sql::query(
        "UPDATE cohorts
         SET name = $1, description = $2, filters = $3, deleted = $4, version = $5, count = $6,
             last_calculation = $7, errors_calculating = $8
         WHERE id = $9",
    )
    .bind(&cohort.name)
    .bind(&cohort.description)
    .bind(cohort.filters.to_string())
    .bind(cohort.deleted)
    .bind(cohort.version)
    .bind(cohort.count)
    .bind(cohort.last_calculation.map(|time| time.0))
    .bind(cohort.errors_calculating)
    .bind(cohort.id.0)
    .execute(connection)
    .await?;
    Ok(())
}

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
    let row: Option<CohortRow> =
        sql::query_as("SELECT * FROM cohorts WHERE id = $1 AND project_id = $2")
            .bind(id.0)
            .bind(project.0)
            .fetch_optional(&mut *connection)
            .await?;
    let Some(row) = row else { return Ok(None) };
    let members: Vec<String> =
        sql::query_scalar("SELECT person FROM cohort_members WHERE cohort_id = $1")
            .bind(id.0)
            .fetch_all(connection)
            .await?;
    row.with_members(uuids(&members)?).map(Some)
}

/// Reads the cohorts that are not deleted, of one project or of all.
pub(crate) async fn live(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<StoredCohort>, MetadataError> {
    let only = only.map(|project| project.0);
    let select = "SELECT * FROM cohorts
         WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1) AND NOT deleted";
    let rows: Vec<CohortRow> = sql::query_as(select).bind(only).fetch_all(&mut *connection).await?;
    let select = "SELECT cohort_id, person FROM cohort_members
         JOIN cohorts ON cohorts.id = cohort_members.cohort_id
         WHERE (CAST($1 AS BIGINT) IS NULL OR cohorts.project_id = $1) AND NOT deleted";
    let members: Vec<(i64, String)> =
        sql::query_as(select).bind(only).fetch_all(connection).await?;
    let mut by_cohort: HashMap<i64, Vec<String>> = HashMap::new();
    for (cohort, member) in members {
        by_cohort.entry(cohort).or_default().push(member);
    }
    rows.into_iter()
        .map(|row| {
            let members = by_cohort.remove(&row.id).unwrap_or_default();
            row.with_members(uuids(&members)?)
        })
        .collect()
}

/// Parses UUIDs and sorts them in ascending order.
fn uuids(texts: &[String]) -> Result<Vec<Uuid>, MetadataError> {
    let uuids = texts.iter().map(|text| disk::from_uuid("cohort_members", text));
    let mut uuids = uuids.collect::<Result<Vec<_>, _>>()?;
    uuids.sort_unstable();
    Ok(uuids)
}

#[derive(sqlx_macros::FromRow)]
struct CohortRow {
    id: i64,
    project_id: i64,
    name: String,
    description: String,
    filters: String,
    is_static: bool,
    deleted: bool,
    created_by: Option<i64>,
    created_at: i64,
    version: i64,
    count: Option<i64>,
    last_calculation: Option<i64>,
    errors_calculating: i64,
}

impl CohortRow {
    fn with_members(self, members: Vec<Uuid>) -> Result<StoredCohort, MetadataError> {
        Ok(StoredCohort {
            id: CohortId(self.id),
            project: ProjectId(self.project_id),
            name: self.name,
            description: self.description,
            filters: disk::from_json("cohorts", &self.filters)?,
            is_static: self.is_static,
            deleted: self.deleted,
            created_by: self.created_by.map(UserId),
            created_at: UnixMicros(self.created_at),
            version: self.version,
            count: self.count,
            last_calculation: self.last_calculation.map(UnixMicros),
            errors_calculating: self.errors_calculating,
            members: Arc::from(members),
        })
    }
}
