//! Bootstrap of a data directory: creates an organization, a user, a project and a key. Later
//! starts apply the key of the operator's settings, and compare the token.

use std::fmt;
use std::sync::Arc;

use crate::accounts::{KeyId, KeyRow, Project, User, UserId, rows};
use crate::entity::{Entity, next_id};
use crate::error::MetadataError;
use crate::members::{FIRST_KEY_LABEL, Level, Organization};
use crate::secrets::{KeyHash, Seed};
use crate::snapshot::Snapshot;
use crate::{Metadata, Write, secrets};
use weir_event::id::ProjectId;

/// The label of keys that come from settings.
const FIXED_LABEL: &str = "From the server's settings";

/// Token and key from the operator's settings. `None` for generated ones.
#[derive(Clone, Default)]
pub struct FirstStart {
    /// The token of the first project.
    pub project_token: Option<String>,
    /// The clear value of a personal key of the first user.
    pub personal_key: Option<String>,
}

impl FirstStart {
    /// Checks the values, as far as that needs no store.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Setting`] for a token or key that cannot be used.
    pub fn check(&self) -> Result<(), MetadataError> {
        self.project_token.as_deref().map_or(Ok(()), secrets::check_token)?;
        self.personal_key.as_deref().map_or(Ok(()), secrets::check_key)
    }
}

impl fmt::Debug for FirstStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstStart")
            .field("project_token", &self.project_token)
            .field("personal_key", &self.personal_key.as_ref().map(|_| "..."))
            .finish()
    }
}

/// The first project and user, and the key to show.
#[derive(Clone)]
pub struct Started {
    /// The project with the smallest id.
    pub project: Arc<Project>,
    /// The user with the smallest id.
    pub user: Arc<User>,
    /// The clear value of the personal key, if this call created the store. Show it once.
    pub personal_key: Option<String>,
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started")
            .field("project", &self.project)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Metadata {
    /// Ensures that there is a project to write to and a key to manage it with.
    ///
    /// An empty store gets an organization, a user, project 1 and a personal key with full access.
    /// Token and key are those of `settings`, or generated from `seed`. A store that has them gets
    /// the key of `settings`, if there is one: it replaces the previous key from settings, and
    /// other keys stay. The token of `settings` must be that of the first project: clients send it,
    /// and another one would reject their events. One that was that of a deleted project is ignored.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Setting`] for a token or key that cannot be used, [`MetadataError::OtherToken`] for a
    /// token that the first project does not have, [`MetadataError::Taken`] for a key of another user.
    /// Nothing has changed then.
    pub async fn bootstrap(
        &self,
        settings: FirstStart,
        seed: &Seed,
    ) -> Result<Started, MetadataError> {
        settings.check()?;
        let write = self.begin().await?;
        let first = (write.base.projects().next().cloned(), write.base.users().next().cloned());
        match first {
            (Some(project), Some(user)) => self.apply(write, settings, project, user).await,
            _ => self.create(write, settings, seed).await,
        }
    }

    /// Fills an empty store.
    async fn create(
        &self,
        mut write: Write,
        settings: FirstStart,
        seed: &Seed,
    ) -> Result<Started, MetadataError> {
        let now = self.now();
        let project = Arc::new(Project {
            id: ProjectId(1),
            organization: seed.uuid("organization"),
            name: "Default project".to_owned(),
            token: settings.project_token.unwrap_or_else(|| seed.project_token()),
            shard: write.shard_for_project().await?,
            ..Project::initial(now)
        });
        let user = Arc::new(User {
            id: UserId(1),
            organization: project.organization,
            uuid: seed.uuid("user"),
            distinct_id: seed.distinct_id(),
            first_name: "Admin".to_owned(),
            // RFC 2606 reserves `localhost`: nobody else can own this address.
            email: "admin@localhost".to_owned(),
            current_project: Some(project.id),
            level: Level::Owner,
            created_at: now,
            ..User::default()
        });
        let is_fixed = settings.personal_key.is_some();
        let value = settings.personal_key.unwrap_or_else(|| seed.personal_key());
        let label = if is_fixed { FIXED_LABEL } else { FIRST_KEY_LABEL };
        let key = self.full_key(KeyId(1), &user, &value);
        let key = key.with(|row| (row.label, row.is_fixed) = (label.to_owned(), is_fixed));
        let connection = write.connection();
        let organization = Organization {
            id: project.organization,
            name: "Default organization".to_owned(),
            created_at: now,
        };
        for row in [organization.insert(), project.insert(), user.insert(), key.insert()] {
            row.execute(connection).await?;
        }
        let mut next = write.base.as_ref().clone();
        next.put_organization(Arc::new(organization));
        next.put_project(Arc::clone(&project));
        next.put_user(Arc::clone(&user));
        next.put_key(Arc::new(key));
        write.commit(next).await?;
        Ok(Started { project, user, personal_key: Some(value) })
    }

    /// Applies settings to an existing store.
    async fn apply(
        &self,
        mut write: Write,
        settings: FirstStart,
        project: Arc<Project>,
        user: Arc<User>,
    ) -> Result<Started, MetadataError> {
        let mut next = write.base.as_ref().clone();
        if let Some(token) = settings.project_token.filter(|token| *token != project.token) {
            if !write.is_of_deleted(&token).await? {
                let (project, stored) = (project.id, project.token.clone());
                return Err(MetadataError::OtherToken { project, stored });
            }
            tracing::warn!(
                "the project API key of the settings is that of a deleted project, and has no effect"
            );
        }
        if let Some(value) = settings.personal_key {
            self.fix_key(&mut write, &mut next, &user, &value).await?;
        }
        if next != *write.base {
            write.commit(next).await?;
        }
        Ok(Started { project, user, personal_key: None })
    }

    /// Makes `value` the only key of `user` that comes from settings.
    async fn fix_key(
        &self,
        write: &mut Write,
        next: &mut Snapshot,
        user: &Arc<User>,
        value: &str,
    ) -> Result<(), MetadataError> {
        let hash = KeyHash::of(value);
        let earlier: Vec<_> = write.base.keys().filter(|key| key.is_fixed).cloned().collect();
        for key in earlier.iter().filter(|key| key.hash != hash) {
            rows::revoke_key(write.connection(), key.id, self.now()).await?;
            next.remove_key(key.hash);
        }
        match write.base.key(hash) {
            Some(key) if key.user.id == user.id => return Ok(()),
            Some(_) => return Err(MetadataError::Taken("personal API key")),
            None => {}
        }
        // The value may be that of a revoked key that the settings restore. It gets a new row,
        // because the id of the old one stands for the revoked key.
        rows::forget_revoked(write.connection(), hash).await?;
        let id = KeyId(next_id::<KeyRow>(write.connection()).await?);
        let key = self.full_key(id, user, value);
        let key = key.with(|row| (row.label, row.is_fixed) = (FIXED_LABEL.to_owned(), true));
        key.insert().execute(write.connection()).await?;
        next.put_key(Arc::new(key));
        Ok(())
    }
}
