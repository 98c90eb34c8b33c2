//! Operations on usage dashboards.

use std::sync::Arc;

use serde_json::Value;

use crate::accounts::UserId;
use crate::dashboards::{ENRICHED, add, set};
use crate::documents::{DocumentKey, Kind, rows};
use crate::error::MetadataError;
use crate::flags::{FlagId, FlagPatch, StoredFlag};
use crate::violation::Violation;
use crate::{Metadata, flags};
use weir_event::id::ProjectId;

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
        let (key, now) = (&flag.key, self.now());
        let dashboard = add(write.connection(), project, user, key, now).await?;
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
        let key = DocumentKey { project, kind: Kind::Dashboard, id: dashboard };
        let found = rows::by_id(write.connection(), key).await?;
        let found = found.filter(|found| !found.deleted).ok_or_else(missing)?;
        if found.is(ENRICHED) {
            return Err(refused("Usage dashboard already has enriched data"));
        }
        if flag.plain.has_enriched_analytics != Some(true) {
            return Err(refused("No enriched analytics available for this feature flag"));
        }
        set(write.connection(), project, dashboard, ENRICHED, Value::Bool(true)).await?;
        write.commit_unseen().await
    }
}
