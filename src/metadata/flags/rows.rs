//! Flags as rows. SQL only; the rules are in `flags` and `flag_rules`.

use crate::connection::Conn;
use crate::entity::Columns;
use crate::error::MetadataError;
use crate::flags::{FlagId, StoredFlag};
use crate::sql;
use weir_event::id::ProjectId;

/// The id for the next flag.
///
/// An id is reused only if the newest flag of all was deleted and then removed because another flag
/// was renamed to its key, and no scheduled change names it.
pub(super) async fn next_id(connection: &mut Conn) -> Result<FlagId, MetadataError> {
    let next = "SELECT COALESCE(MAX(id), 0) + 1 FROM (
               SELECT MAX(id) AS id FROM feature_flags
               UNION ALL SELECT MAX(flag_id) FROM scheduled_changes
               UNION ALL SELECT highest FROM used_ids WHERE name = 'feature_flags') AS ids";
    Ok(FlagId(sql::query_scalar(next).fetch_one(connection).await?))
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

/// Reads one flag of a project, deleted or not.
pub(crate) async fn by_id(
    connection: &mut Conn,
    project: ProjectId,
    id: FlagId,
) -> Result<Option<StoredFlag>, MetadataError> {
    let select = StoredFlag::select("WHERE id = $1 AND project_id = $2").bind(id.0).bind(project.0);
    Ok(select.fetch_optional(connection).await?)
}

/// Reads the flags that are not deleted, of one project or of all.
pub(crate) async fn live(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<StoredFlag>, MetadataError> {
    let select =
        StoredFlag::select("WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1) AND NOT deleted")
            .bind(only.map(|project| project.0));
    Ok(select.fetch_all(connection).await?)
}
