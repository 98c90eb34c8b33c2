//! Organizations, users, projects and personal keys: who may do what.
//!
//! Tokens are public and stand in the clear; of keys only a hash is stored, so a clear value exists
//! once, in the answer of the call that made it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::flag_rules::Violation;
use crate::metadata::secrets;
use crate::metadata::secrets::KeyHash;
use crate::metadata::secrets::Seed;

pub(super) mod rows;

/// A key's last use is written down at most this often; PostHog does the same.
const LAST_USED_INTERVAL: Duration = Duration::from_hours(1);

/// Longest label of a key and name of a project, in characters; PostHog's column widths.
const LABEL_MAX_CHARS: usize = 40;
const PROJECT_NAME_MAX_CHARS: usize = 200;

/// The id of a user. Positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub i64);

/// The id of a personal key. Positive, never given to a second key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub i64);

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the events of one application go into.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// The organization that owns it.
    pub organization: Uuid,
    /// Its name, for people.
    pub name: String,
    /// The public write token.
    pub token: String,
    /// Name of a time zone of the IANA database, such as `UTC`.
    pub timezone: String,
    /// Person properties whose first present value is a person's name; `None` for the defaults.
    pub person_display_name_properties: Option<Vec<String>>,
    /// Whether events are stored without the addresses of their clients.
    pub anonymize_ips: bool,
    /// When it was created.
    pub created_at: UnixMicros,
}

/// Someone who manages projects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The id.
    pub id: UserId,
    /// The organization whose projects the user may see.
    pub organization: Uuid,
    /// The id that the API shows besides the integer.
    pub uuid: Uuid,
    /// The distinct id of the user in events about the server itself.
    pub distinct_id: String,
    /// First name.
    pub first_name: String,
    /// Email address.
    pub email: String,
    /// Whether the address was verified.
    pub is_email_verified: bool,
    /// What `@current` means in a path.
    pub current_project: Option<ProjectId>,
}

/// A private key of the management API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonalKey {
    /// The id.
    pub id: KeyId,
    /// Whose it is; the key may at most what the user may.
    pub user: Arc<User>,
    /// Its label, for people.
    pub label: String,
    /// The hash of its value.
    pub hash: KeyHash,
    /// What may be shown of its value.
    pub mask: String,
    /// `object:read`, `object:write` or `*`; `None` for full access.
    pub scopes: Option<Vec<String>>,
    /// Whether the operator's settings gave it.
    pub is_fixed: bool,
    /// When it was created.
    pub created_at: UnixMicros,
    /// About when it was last used; exact to an hour.
    pub last_used_at: Option<UnixMicros>,
}

/// A key, and its value, which nobody will be able to tell again.
#[derive(Clone)]
pub struct CreatedKey {
    /// The key as stored.
    pub key: Arc<PersonalKey>,
    /// What the client sends. Show it once; keep it nowhere.
    pub value: String,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Changes to a project; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct ProjectPatch {
    /// Another name.
    pub name: Option<String>,
    /// Another time zone; the caller has checked that it exists.
    pub timezone: Option<String>,
    /// Other name properties; `Some(None)` for the defaults.
    pub person_display_name_properties: Option<Option<Vec<String>>>,
    /// Whether to store events without the addresses of their clients.
    pub anonymize_ips: Option<bool>,
}

impl Metadata {
    /// Creates a project in the organization of `user`, with a generated token.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, [`MetadataError::Rejected`] for a blank or
    /// long name.
    pub async fn create_project(
        &self,
        user: UserId,
        name: &str,
        seed: &Seed,
    ) -> Result<Arc<Project>, MetadataError> {
        check_text("name", name, PROJECT_NAME_MAX_CHARS)?;
        let mut write = self.begin().await?;
        let organization =
            write.base.user(user).ok_or(MetadataError::NotFound("user"))?.organization;
        let project = Project {
            id: ProjectId(rows::next_project(write.connection()).await?),
            organization,
            name: name.to_owned(),
            token: seed.project_token(),
            timezone: "UTC".to_owned(),
            person_display_name_properties: None,
            anonymize_ips: false,
            created_at: self.now(),
        };
        rows::insert_project(write.connection(), &project).await?;
        let project = Arc::new(project);
        let mut next = write.base.as_ref().clone();
        next.put_project(Arc::clone(&project));
        write.commit(next).await?;
        Ok(project)
    }

    /// Changes a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project, [`MetadataError::Rejected`] for a blank
    /// or long name.
    pub async fn update_project(
        &self,
        id: ProjectId,
        patch: ProjectPatch,
    ) -> Result<Arc<Project>, MetadataError> {
        if let Some(name) = &patch.name {
            check_text("name", name, PROJECT_NAME_MAX_CHARS)?;
        }
        let mut write = self.begin().await?;
        let stored = write.base.project(id).ok_or(MetadataError::NotFound("project"))?;
        let mut project = stored.as_ref().clone();
        project.name = patch.name.unwrap_or(project.name);
        project.timezone = patch.timezone.unwrap_or(project.timezone);
        project.anonymize_ips = patch.anonymize_ips.unwrap_or(project.anonymize_ips);
        if let Some(properties) = patch.person_display_name_properties {
            project.person_display_name_properties = properties;
        }
        rows::update_project(write.connection(), &project).await?;
        let project = Arc::new(project);
        let mut next = write.base.as_ref().clone();
        next.put_project(Arc::clone(&project));
        write.commit(next).await?;
        Ok(project)
    }

    /// Creates a personal key for `user`. Without `scopes` it may do everything.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, [`MetadataError::Rejected`] for a blank or
    /// long label.
    pub async fn create_key(
        &self,
        user: UserId,
        label: &str,
        scopes: Option<Vec<String>>,
        seed: &Seed,
    ) -> Result<CreatedKey, MetadataError> {
        check_text("label", label, LABEL_MAX_CHARS)?;
        let mut write = self.begin().await?;
        let user = write.base.user(user).ok_or(MetadataError::NotFound("user"))?;
        let value = seed.personal_key();
        let user = Arc::clone(user);
        let key = PersonalKey {
            id: KeyId(rows::next_key(write.connection()).await?),
            user,
            label: label.to_owned(),
            hash: KeyHash::of(&value),
            mask: secrets::mask(&value),
            scopes,
            is_fixed: false,
            created_at: self.now(),
            last_used_at: None,
        };
        rows::insert_key(write.connection(), &key).await?;
        let key = Arc::new(key);
        let mut next = write.base.as_ref().clone();
        next.put_key(Arc::clone(&key));
        write.commit(next).await?;
        Ok(CreatedKey { key, value })
    }

    /// Every key that works, by id.
    pub fn list_keys(&self) -> Vec<Arc<PersonalKey>> {
        let mut keys: Vec<_> = self.snapshot().keys().cloned().collect();
        keys.sort_by_key(|key| key.id);
        keys
    }

    /// Makes a key useless, for good.
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
        let mut next = write.base.as_ref().clone();
        next.remove_key(hash);
        write.commit(next).await
    }

    /// Writes down that `key` was used just now, unless that was done within the hour.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`]; nothing depends on it.
    pub async fn record_key_use(&self, key: &PersonalKey) -> Result<(), MetadataError> {
        let now = self.now();
        let is_recent = |key: &PersonalKey| {
            key.last_used_at.is_some_and(|used| now.since(used) < LAST_USED_INTERVAL)
        };
        if is_recent(key) {
            return Ok(());
        }
        let mut write = self.begin().await?;
        // Another request may have done it while this one waited.
        let stored = match write.base.key(key.hash) {
            Some(stored) if !is_recent(stored) => stored.as_ref().clone(),
            _ => return Ok(()),
        };
        rows::touch_key(write.connection(), stored.id, now).await?;
        let mut next = write.base.as_ref().clone();
        next.put_key(Arc::new(PersonalKey { last_used_at: Some(now), ..stored }));
        write.commit(next).await
    }
}

/// Checks a name: not blank, and at most `chars_max` characters.
pub(super) fn check_text(
    attr: &'static str,
    text: &str,
    chars_max: usize,
) -> Result<(), Violation> {
    if text.trim().is_empty() {
        return Err(Violation::blank(attr));
    }
    if text.chars().count() > chars_max {
        return Err(Violation::too_long(attr, chars_max));
    }
    Ok(())
}
