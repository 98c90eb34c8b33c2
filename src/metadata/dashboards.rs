//! Usage dashboards of flags: whether there is one, and whether it includes the enriched events.
//! Its contents are not here.

use sqlx::SqliteConnection;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::disk;
use crate::metadata::error::MetadataError;

mod operations;

/// Creates the usage dashboard of the flag with this key.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    project: ProjectId,
    key: &str,
    now: UnixMicros,
) -> Result<i64, MetadataError> {
    let next = "SELECT COALESCE(MAX(id), 0) + 1 FROM usage_dashboards";
    let dashboard = disk::next_id(connection, next).await?;
    let insert = "INSERT INTO usage_dashboards (id, project_id, name, is_enriched, created_at)
         VALUES ($1, $2, $3, FALSE, $4)";
    sqlx::query(insert)
        .bind(dashboard)
        .bind(project.0)
        .bind(name(key))
        .bind(now.0)
        .execute(connection)
        .await?;
    Ok(dashboard)
}

/// Renames the usage dashboard of a flag after the flag's new key.
pub(super) async fn rename(
    connection: &mut SqliteConnection,
    dashboard: i64,
    key: &str,
) -> Result<(), MetadataError> {
    let update = "UPDATE usage_dashboards SET name = $1 WHERE id = $2";
    sqlx::query(update).bind(name(key)).bind(dashboard).execute(connection).await?;
    Ok(())
}

fn name(key: &str) -> String {
    format!("Generated Dashboard: {key} Usage")
}
