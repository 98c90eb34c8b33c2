//! Flags as rows. SQL only; the rules are in `flags` and `flag_rules`.

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::flags::{FlagId, StoredFlag};
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// The id for the next flag.
///
/// An id is reused only if the newest flag of all was deleted and then removed because another flag
/// was renamed to its key, and no scheduled change names it.
pub(super) async fn next_id(connection: &mut Conn) -> Result<FlagId, MetadataError> {
    let sql = "SELECT COALESCE(MAX(id), 0) + 1 FROM (
               SELECT MAX(id) AS id FROM feature_flags
               UNION ALL SELECT MAX(flag_id) FROM scheduled_changes) AS ids";
    disk::next_id(connection, sql).await.map(FlagId)
}

/// Removes the deleted flags that have `key`, except `except`, with the dashboards of their usage.
pub(super) async fn purge_deleted(
    connection: &mut Conn,
    project: ProjectId,
    key: &str,
    except: FlagId,
) -> Result<(), MetadataError> {
    for statement in [
        "DELETE FROM flag_role_access WHERE flag_id IN
         (SELECT id FROM feature_flags
          WHERE project_id = $1 AND key = $2 AND deleted AND id <> $3)",
        "DELETE FROM documents WHERE kind = 'dashboard' AND project_id = $1 AND id IN
         (SELECT usage_dashboard FROM feature_flags
          WHERE project_id = $1 AND key = $2 AND deleted AND id <> $3)",
        "DELETE FROM feature_flags WHERE project_id = $1 AND key = $2 AND deleted AND id <> $3",
    ] {
        let statement = sql::query(statement).bind(project.0).bind(key).bind(except.0);
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Inserts a flag.
pub(super) async fn insert(connection: &mut Conn, flag: &StoredFlag) -> Result<(), MetadataError> {
    let insert = "INSERT INTO feature_flags
         (name, key, filters, active, deleted, created_by, created_at, updated_at, version,
          usage_dashboard, body, last_modified_by, id, project_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    write(connection, insert, flag).await
}

/// Overwrites the row of a flag.
pub(super) async fn update(connection: &mut Conn, flag: &StoredFlag) -> Result<(), MetadataError> {
    let update = "UPDATE feature_flags
         SET name = $1, key = $2, filters = $3, active = $4, deleted = $5, created_by = $6,
             created_at = $7, updated_at = $8, version = $9, usage_dashboard = $10, body = $11,
             last_modified_by = $12
         WHERE id = $13 AND project_id = $14";
    write(connection, update, flag).await
}

async fn write(
    connection: &mut Conn,
    statement: &'static str,
    flag: &StoredFlag,
) -> Result<(), MetadataError> {
    sql::query(statement)
        .bind(&flag.name)
        .bind(&flag.key)
        .bind(flag.filters.to_string())
        .bind(flag.active)
        .bind(flag.deleted)
        .bind(flag.created_by.map(|user| user.0))
        .bind(flag.created_at.0)
        .bind(flag.updated_at.0)
        .bind(flag.version)
        .bind(flag.usage_dashboard)
        .bind(flag.plain.to_json())
        .bind(flag.last_modified_by.map(|user| user.0))
        .bind(flag.id.0)
        .bind(flag.project.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Reads one flag of a project, deleted or not.
pub(crate) async fn by_id(
    connection: &mut Conn,
    project: ProjectId,
    id: FlagId,
) -> Result<Option<StoredFlag>, MetadataError> {
    let row: Option<FlagRow> =
        sql::query_as("SELECT * FROM feature_flags WHERE id = $1 AND project_id = $2")
            .bind(id.0)
            .bind(project.0)
            .fetch_optional(connection)
            .await?;
    row.map(StoredFlag::try_from).transpose()
}

/// Reads the flags that are not deleted, of one project or of all.
pub(crate) async fn live(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<StoredFlag>, MetadataError> {
    let select = "SELECT * FROM feature_flags
         WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1) AND NOT deleted";
    let select = sql::query_as(select).bind(only.map(|project| project.0));
    let rows: Vec<FlagRow> = select.fetch_all(connection).await?;
    rows.into_iter().map(StoredFlag::try_from).collect()
}

#[derive(sqlx_macros::FromRow)]
struct FlagRow {
    id: i64,
    project_id: i64,
    name: String,
    key: String,
    filters: String,
    active: bool,
    deleted: bool,
    created_by: Option<i64>,
    created_at: i64,
    updated_at: i64,
    version: i64,
    usage_dashboard: Option<i64>,
    body: String,
    last_modified_by: Option<i64>,
}

impl TryFrom<FlagRow> for StoredFlag {
    type Error = MetadataError;

    fn try_from(row: FlagRow) -> Result<Self, MetadataError> {
        const TABLE: &str = "feature_flags";
        Ok(Self {
            id: FlagId(row.id),
            project: ProjectId(row.project_id),
            name: row.name,
            key: row.key,
            filters: disk::from_json(TABLE, &row.filters)?,
            active: row.active,
            deleted: row.deleted,
            created_by: row.created_by.map(UserId),
            created_at: UnixMicros(row.created_at),
            updated_at: UnixMicros(row.updated_at),
            version: row.version,
            usage_dashboard: row.usage_dashboard,
            plain: disk::from_json(TABLE, &row.body)?,
            last_modified_by: row.last_modified_by.map(UserId),
        })
    }
}
