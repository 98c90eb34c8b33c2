//! Operations on the settings that the flags of a project share.

use std::sync::Arc;

use crate::accounts::UserId;
use crate::activity::{Change, Scope, Verb, diff};
use crate::entity::{Columns, Entity};
use crate::error::MetadataError;
use crate::flag_settings::FlagSettings;
use crate::secrets::{KeyHash, Seed};
use crate::{Metadata, Write, secrets};
use weir_event::id::ProjectId;
use weir_event::predicate::Matching;

impl Metadata {
    /// Sets how the flags and cohorts of a project compare truth values, and whether SDKs may
    /// shorten call events, in the name of `user`. `None` leaves either unchanged.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project, [`MetadataError::Forbidden`] unless the
    /// user may change every flag.
    pub async fn set_flag_settings(
        &self,
        project: ProjectId,
        user: UserId,
        matching: Option<Matching>,
        minimal_called_events: Option<bool>,
    ) -> Result<(), MetadataError> {
        let write = self.begin().await?;
        write.check_editor_of_all(user)?;
        let change = |settings: &mut FlagSettings| {
            settings.matching = matching.unwrap_or(settings.matching);
            settings.minimal_called_events =
                minimal_called_events.unwrap_or(settings.minimal_called_events);
        };
        write.change_flag_settings(project, user, change).await
    }

    /// Replaces the secret key (`phs_...`) of the project in the name of `user`, and returns its
    /// clear value, which is not stored. The previous key becomes invalid.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project.
    pub async fn rotate_secret_key(
        &self,
        project: ProjectId,
        user: UserId,
        seed: &Seed,
    ) -> Result<String, MetadataError> {
        let value = seed.secret_key();
        let (hash, mask) = (KeyHash::of(&value), secrets::mask(&value));
        let change = |settings: &mut FlagSettings| {
            settings.secret = Some(hash);
            settings.secret_mask = Some(mask);
        };
        self.begin().await?.change_flag_settings(project, user, change).await?;
        Ok(value)
    }
}

impl Write {
    async fn change_flag_settings(
        mut self,
        project: ProjectId,
        user: UserId,
        change: impl FnOnce(&mut FlagSettings),
    ) -> Result<(), MetadataError> {
        self.user(user)?;
        let base = Arc::clone(&self.base);
        let owner = base.project(project).ok_or(MetadataError::NotFound("project"))?;
        let stored = base.flag_settings(project).map(|settings| settings.as_ref().clone());
        let before = stored.unwrap_or_else(|| FlagSettings { project, ..FlagSettings::default() });
        let mut settings = before.clone();
        change(&mut settings);
        if settings == before {
            return Ok(());
        }
        settings.put().execute(self.connection()).await?;
        let fields = diff(Scope::Project, &before.logged_cells(), &settings.logged_cells());
        let (item, name) = (project.to_string(), owner.name.clone());
        let change = Change { scope: Scope::Project, item, verb: Verb::Updated, name, fields };
        self.log(project, Some(user), change).await?;
        self.commit_with(|next| next.put_flag_settings(settings)).await
    }
}
