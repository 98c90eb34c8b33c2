//! Flags as rows. SQL only; the rules are in `flags` and `flag_rules`.

use serde_json::Value;
use sqlx::SqliteConnection;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::accounts::UserId;
use crate::metadata::disk;
use crate::metadata::error::MetadataError;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::StoredFlag;

/// The id for the next flag.
///
/// An id is reused only if the newest flag of all was deleted and then removed because another flag
/// was renamed to its key, and no scheduled change names it.
pub(super) async fn next_id(connection: &mut SqliteConnection) -> Result<FlagId, MetadataError> {
    let sql = "SELECT COALESCE(MAX(id), 0) + 1 FROM (
               SELECT MAX(id) AS id FROM feature_flags
               UNION ALL SELECT MAX(flag_id) FROM scheduled_changes) AS ids";
    disk::next_id(connection, sql).await.map(FlagId)
}

/// Removes the deleted flags that have `key`, except `except`, with the dashboards of their usage.
pub(super) async fn purge_deleted(
    connection: &mut SqliteConnection,
    project: ProjectId,
    key: &str,
    except: FlagId,
) -> Result<(), MetadataError> {
    for statement in [
        "DELETE FROM flag_role_access WHERE flag_id IN
         (SELECT id FROM feature_flags
          WHERE project_id = $1 AND key = $2 AND deleted AND id <> $3)",
        "DELETE FROM usage_dashboards WHERE id IN
         (SELECT usage_dashboard FROM feature_flags
          WHERE project_id = $1 AND key = $2 AND deleted AND id <> $3)",
        "DELETE FROM feature_flags WHERE project_id = $1 AND key = $2 AND deleted AND id <> $3",
    ] {
        let statement = sqlx::query(statement).bind(project.0).bind(key).bind(except.0);
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Inserts a flag.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    flag: &StoredFlag,
) -> Result<(), MetadataError> {
    sqlx::query(
        "INSERT INTO feature_flags
         (name, key, filters, active, deleted, created_at, updated_at, version,
          ensure_experience_continuity, rollback_conditions, performed_rollback, tags,
          usage_dashboard, analytics_dashboards, has_enriched_analytics, bucketing_identifier,
          evaluation_runtime, evaluation_contexts, is_remote_configuration, archived,
          last_modified_by, id, project_id, created_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                 $19, $20, $21, $22, $23, $24)",
    )
    .bind(&flag.name)
    .bind(&flag.key)
    .bind(flag.filters.to_string())
    .bind(flag.active)
    .bind(flag.deleted)
    .bind(flag.created_at.0)
    .bind(flag.updated_at.0)
    .bind(flag.version)
    .bind(flag.ensure_experience_continuity)
    .bind(flag.rollback_conditions.as_ref().map(Value::to_string))
    .bind(flag.performed_rollback)
    .bind(disk::to_json(&flag.tags))
    .bind(flag.usage_dashboard)
    .bind(disk::to_json(&flag.analytics_dashboards))
    .bind(flag.has_enriched_analytics)
    .bind(flag.bucketing_identifier.as_deref())
    .bind(flag.evaluation_runtime.as_deref())
    .bind(disk::to_json(&flag.evaluation_contexts))
    .bind(flag.is_remote_configuration)
    .bind(flag.archived)
    .bind(flag.last_modified_by.map(|user| user.0))
    .bind(flag.id.0)
    .bind(flag.project.0)
    .bind(flag.created_by.map(|user| user.0))
    .execute(connection)
    .await?;
    Ok(())
}

/// Overwrites the row of a flag, all fields but id, project and creator.
pub(super) async fn update(
    connection: &mut SqliteConnection,
    flag: &StoredFlag,
) -> Result<(), MetadataError> {
    sqlx::query(
        "UPDATE feature_flags
         SET name = $1, key = $2, filters = $3, active = $4, deleted = $5, created_at = $6,
             updated_at = $7, version = $8, ensure_experience_continuity = $9,
             rollback_conditions = $10, performed_rollback = $11, tags = $12,
             usage_dashboard = $13, analytics_dashboards = $14, has_enriched_analytics = $15,
             bucketing_identifier = $16, evaluation_runtime = $17, evaluation_contexts = $18,
             is_remote_configuration = $19, archived = $20, last_modified_by = $21
         WHERE id = $22 AND project_id = $23",
    )
    .bind(&flag.name)
    .bind(&flag.key)
    .bind(flag.filters.to_string())
    .bind(flag.active)
    .bind(flag.deleted)
    .bind(flag.created_at.0)
    .bind(flag.updated_at.0)
    .bind(flag.version)
    .bind(flag.ensure_experience_continuity)
    .bind(flag.rollback_conditions.as_ref().map(Value::to_string))
    .bind(flag.performed_rollback)
    .bind(disk::to_json(&flag.tags))
    .bind(flag.usage_dashboard)
    .bind(disk::to_json(&flag.analytics_dashboards))
    .bind(flag.has_enriched_analytics)
    .bind(flag.bucketing_identifier.as_deref())
    .bind(flag.evaluation_runtime.as_deref())
    .bind(disk::to_json(&flag.evaluation_contexts))
    .bind(flag.is_remote_configuration)
    .bind(flag.archived)
    .bind(flag.last_modified_by.map(|user| user.0))
    .bind(flag.id.0)
    .bind(flag.project.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Reads one flag of a project, deleted or not.
pub(in crate::metadata) async fn by_id(
    connection: &mut SqliteConnection,
    project: ProjectId,
    id: FlagId,
) -> Result<Option<StoredFlag>, MetadataError> {
    let row: Option<FlagRow> =
        sqlx::query_as("SELECT * FROM feature_flags WHERE id = $1 AND project_id = $2")
            .bind(id.0)
            .bind(project.0)
            .fetch_optional(connection)
            .await?;
    row.map(StoredFlag::try_from).transpose()
}

/// Reads all flags that are not deleted.
pub(in crate::metadata) async fn live(
    connection: &mut SqliteConnection,
) -> Result<Vec<StoredFlag>, MetadataError> {
    let rows: Vec<FlagRow> = sqlx::query_as("SELECT * FROM feature_flags WHERE NOT deleted")
        .fetch_all(connection)
        .await?;
    rows.into_iter().map(StoredFlag::try_from).collect()
}

#[derive(sqlx::FromRow)]
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
    ensure_experience_continuity: bool,
    rollback_conditions: Option<String>,
    performed_rollback: Option<bool>,
    tags: String,
    usage_dashboard: Option<i64>,
    analytics_dashboards: String,
    has_enriched_analytics: Option<bool>,
    bucketing_identifier: Option<String>,
    evaluation_runtime: Option<String>,
    evaluation_contexts: String,
    is_remote_configuration: bool,
    archived: bool,
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
            ensure_experience_continuity: row.ensure_experience_continuity,
            rollback_conditions: disk::from_nullable_json(
                TABLE,
                row.rollback_conditions.as_deref(),
            )?,
            performed_rollback: row.performed_rollback,
            tags: disk::from_json(TABLE, &row.tags)?,
            usage_dashboard: row.usage_dashboard,
            analytics_dashboards: disk::from_json(TABLE, &row.analytics_dashboards)?,
            has_enriched_analytics: row.has_enriched_analytics,
            bucketing_identifier: row.bucketing_identifier,
            evaluation_runtime: row.evaluation_runtime,
            evaluation_contexts: disk::from_json(TABLE, &row.evaluation_contexts)?,
            is_remote_configuration: row.is_remote_configuration,
            archived: row.archived,
            last_modified_by: row.last_modified_by.map(UserId),
        })
    }
}
