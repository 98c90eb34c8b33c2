//! Usage dashboards of flags: whether there is one, and whether it includes the enriched events.
//! Its contents are not here.

use std::sync::Arc;

use sqlx::SqliteConnection;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::accounts::UserId;
use crate::metadata::disk;
use crate::metadata::flag_rules::Violation;
use crate::metadata::flags;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::FlagPatch;
use crate::metadata::flags::StoredFlag;

impl Metadata {
    /// Creates the usage dashboard of a flag, unless it has one.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a flag, [`MetadataError::Forbidden`] if the user may
    /// not change it.
    pub async fn create_usage_dashboard(
        &self,
        project: ProjectId,
        user: UserId,
        id: FlagId,
    ) -> Result<Arc<StoredFlag>, MetadataError> {
        let mut write = self.begin().await?;
        let flag = flags::rows::by_id(write.connection(), project, id).await?;
        let flag = flag.ok_or(MetadataError::NotFound("flag"))?;
        write.check_editor(user, &flag)?;
        if flag.usage_dashboard.is_some() {
            return Ok(Arc::new(flag));
        }
        let dashboard = add(write.connection(), project, &flag.key, self.now()).await?;
        let patch = FlagPatch { usage_dashboard: Some(Some(dashboard)), ..FlagPatch::default() };
        Ok(write.update_flag(user, flag, patch).await?.after)
    }

    /// Adds the enriched events to the usage dashboard of a flag.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a flag, [`MetadataError::Rejected`] without a
    /// dashboard, without enriched events, or if they were added already,
    /// [`MetadataError::Forbidden`] if the user may not change the flag.
    pub async fn enrich_usage_dashboard(
        &self,
        project: ProjectId,
        user: UserId,
        id: FlagId,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let flag = flags::rows::by_id(write.connection(), project, id).await?;
        let flag = flag.ok_or(MetadataError::NotFound("flag"))?;
        write.check_editor(user, &flag)?;
        let refused = |detail: &str| MetadataError::Rejected(Violation::general(detail));
        let missing = || refused("Usage dashboard not found");
        let dashboard = flag.usage_dashboard.ok_or_else(missing)?;
        let select = "SELECT is_enriched FROM usage_dashboards WHERE id = $1";
        let enriched: Option<bool> =
            sqlx::query_scalar(select).bind(dashboard).fetch_optional(write.connection()).await?;
        if enriched.ok_or_else(missing)? {
            return Err(refused("Usage dashboard already has enriched data"));
        }
        if flag.plain.has_enriched_analytics != Some(true) {
            return Err(refused("No enriched analytics available for this feature flag"));
        }
        let update = "UPDATE usage_dashboards SET is_enriched = TRUE WHERE id = $1";
        sqlx::query(update).bind(dashboard).execute(write.connection()).await?;
        write.commit_unseen().await
    }
}

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
