//! Operations on accounts: projects and personal keys are created, changed and revoked.

use std::sync::Arc;

use crate::accounts::{
    CreatedKey, Grant, KeyId, KeyRow, LABEL_MAX_CHARS, NewProject, PROJECT_NAME_MAX_CHARS,
    PersonalKey, Project, ProjectPatch, User, UserId, check_text, rows,
};
use crate::entity::{Entity, Patch, next_id};
use crate::error::MetadataError;
use crate::secrets::{KeyHash, Seed};
use crate::violation::Violation;
use crate::{Metadata, removal, secrets, sessions};
use weir_event::id::ProjectId;

impl Metadata {
    /// Creates a project in the organization of `user`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, [`MetadataError::Rejected`] for a blank or
    /// long name, for a token that is malformed, in use, or was that of a project, and as
    /// [`Metadata::update_project`].
    pub async fn create_project(
        &self,
        user: UserId,
        name: &str,
        new: impl Into<NewProject>,
        seed: &Seed,
    ) -> Result<Arc<Project>, MetadataError> {
        let NewProject { settings, token } = new.into();
        check_text("name", name, PROJECT_NAME_MAX_CHARS)?;
        settings.check()?;
        if let Some(problem) = token.as_deref().and_then(secrets::token_problem) {
            let detail = format!("The token {problem}.");
            return Err(Violation { code: "invalid_input", detail, attr: Some("api_token") }.into());
        }
        let mut write = self.begin().await?;
        let organization = write.user(user)?.organization;
        if let Some(token) = &token
            && write.is_token_taken(token).await?
        {
            let detail = "This token is in use, or was that of a project.";
            return Err(Violation::unique("api_token", detail).into());
        }
        let project = settings.applied(Project {
            id: ProjectId(next_id::<Project>(write.connection()).await?),
            organization,
            name: name.to_owned(),
            token: token.unwrap_or_else(|| seed.project_token()),
            shard: write.shard_for_project().await?,
            ..Project::initial(self.now())
        });
        project.insert().execute(write.connection()).await?;
        let project = Arc::new(project);
        write.commit_with(|next| next.put_project(Arc::clone(&project))).await?;
        Ok(project)
    }

    /// Changes a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project, [`MetadataError::Rejected`] for a blank
    /// or long name, and for another first day of weeks or number of days.
    pub async fn update_project(
        &self,
        id: ProjectId,
        patch: ProjectPatch,
    ) -> Result<Arc<Project>, MetadataError> {
        patch.check()?;
        let mut write = self.begin().await?;
        let stored = write.base.project(id).ok_or(MetadataError::NotFound("project"))?;
        let mut project = patch.applied(stored.as_ref().clone());
        // What is left out until now does not come back.
        if project.event_retention_days != stored.event_retention_days {
            project.events_kept_from = stored.kept_from(self.now());
        }
        project.update().execute(write.connection()).await?;
        let project = Arc::new(project);
        write.commit_with(|next| next.put_project(Arc::clone(&project))).await?;
        Ok(project)
    }

    /// Replaces the token of a project. The old one becomes invalid: requests of SDKs that still
    /// send it are rejected.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project.
    pub async fn rotate_token(
        &self,
        id: ProjectId,
        seed: &Seed,
    ) -> Result<Arc<Project>, MetadataError> {
        let mut write = self.begin().await?;
        let stored = write.base.project(id).cloned().ok_or(MetadataError::NotFound("project"))?;
        let token = seed.project_token();
        removal::retire_token(write.connection(), id, &stored.token, self.now()).await?;
        let project = Arc::new(Project { token, ..stored.as_ref().clone() });
        project.update().execute(write.connection()).await?;
        write.commit_with(|next| next.put_project(Arc::clone(&project))).await?;
        Ok(project)
    }

    /// Creates a personal key for `user`. Without scopes it has full access.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, [`MetadataError::Rejected`] for a blank or
    /// long label.
    pub async fn create_key(
        &self,
        user: UserId,
        label: &str,
        grant: impl Into<Grant>,
        seed: &Seed,
    ) -> Result<CreatedKey, MetadataError> {
        let grant = grant.into();
        check_text("label", label, LABEL_MAX_CHARS)?;
        let mut write = self.begin().await?;
        let user = Arc::clone(write.user(user)?);
        let id = KeyId(next_id::<KeyRow>(write.connection()).await?);
        let made = self.make_key(id, &user, label, grant, seed);
        made.key.insert().execute(write.connection()).await?;
        write.commit_with(|next| next.put_key(Arc::clone(&made.key))).await?;
        Ok(made)
    }

    /// Builds a key that is not stored yet.
    pub(crate) fn make_key(
        &self,
        id: KeyId,
        user: &Arc<User>,
        label: &str,
        grant: Grant,
        seed: &Seed,
    ) -> CreatedKey {
        let value = seed.personal_key();
        let label = label.to_owned();
        let Grant { scopes, projects } = grant;
        let key = self.full_key(id, user, &value).with(|row| {
            (row.label, row.scopes, row.projects) = (label, scopes, projects);
        });
        CreatedKey { key: Arc::new(key), value }
    }

    /// A key with full access and without a label, not used yet.
    pub(crate) fn full_key(&self, id: KeyId, user: &Arc<User>, value: &str) -> PersonalKey {
        let row = KeyRow {
            id,
            hash: KeyHash::of(value),
            mask: secrets::mask(value),
            created_at: self.now(),
            ..KeyRow::default()
        };
        PersonalKey::of(Arc::clone(user), row)
    }

    /// Changes the label of a key.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if there is no such key, [`MetadataError::Rejected`] for a blank
    /// or long label.
    pub async fn relabel_key(
        &self,
        id: KeyId,
        label: &str,
    ) -> Result<Arc<PersonalKey>, MetadataError> {
        check_text("label", label, LABEL_MAX_CHARS)?;
        let mut write = self.begin().await?;
        let stored = write.base.keys().find(|key| key.id == id).cloned();
        let stored = stored.ok_or(MetadataError::NotFound("key"))?;
        let key = Arc::new(stored.with(|row| row.label = label.to_owned()));
        key.update().execute(write.connection()).await?;
        write.commit_with(|next| next.put_key(Arc::clone(&key))).await?;
        Ok(key)
    }

    /// All valid keys, by id.
    pub fn list_keys(&self) -> Vec<Arc<PersonalKey>> {
        let mut keys: Vec<_> = self.snapshot().keys().cloned().collect();
        keys.sort_by_key(|key| key.id);
        keys
    }

    /// Revokes a key permanently, and ends the sessions that it began.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if there is no such key, or it was revoked before.
    pub async fn revoke_key(&self, id: KeyId) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let hash = match write.base.keys().find(|key| key.id == id) {
            Some(key) => key.hash,
            None => return Err(MetadataError::NotFound("key")),
        };
        rows::revoke_key(write.connection(), id, self.now()).await?;
        sessions::end_of_key(&mut write, id).await?;
        write.commit_with(|next| next.remove_key(hash)).await
    }

    /// Stores that `key` was used now, unless a use within the last hour is stored.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`]; it may be ignored.
    pub async fn record_key_use(&self, key: &PersonalKey) -> Result<(), MetadataError> {
        let now = self.now();
        if key.is_use_noted(now) {
            return Ok(());
        }
        let mut write = self.begin().await?;
        // Another request may have stored it while this one waited for the gate.
        let stored = match write.base.key(key.hash) {
            Some(stored) if !stored.is_use_noted(now) => stored,
            _ => return Ok(()),
        };
        let used = stored.with(|row| row.last_used_at = Some(now));
        used.update().execute(write.connection()).await?;
        write.commit_with(|next| next.put_key(Arc::new(used))).await
    }
}
