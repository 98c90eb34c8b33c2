//! Accounts: organizations, users, projects and personal keys, with their rights.
//!
//! Tokens are public and stored in plain text. Of keys only a hash is stored: the clear value is
//! returned once, by the call that creates the key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::members::Level;
use crate::secrets::KeyHash;
use crate::violation::Violation;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

mod operations;
pub(super) mod rows;

/// A key's last use is stored at most this often; PostHog does the same.
const LAST_USED_INTERVAL: Duration = Duration::from_hours(1);

/// Longest label of a key and name of a project, in characters; PostHog's column widths.
const LABEL_MAX_CHARS: usize = 40;
const PROJECT_NAME_MAX_CHARS: usize = 200;

/// The id of a user. Positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub i64);

/// The id of a personal key. Positive, never reused.
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

/// A project: receives the events of one application.
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
    /// The day on which weeks begin: 0 for Sunday, 1 for Monday.
    pub week_start_day: i64,
    /// Filters by which queries exclude the operator's own traffic: a JSON array.
    pub test_account_filters: Value,
    /// When it was created.
    pub created_at: UnixMicros,
}

/// A user, who manages projects.
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
    /// The project that `@current` stands for in a path.
    pub current_project: Option<ProjectId>,
    /// The user's level in the organization.
    pub level: Level,
    /// When the user was created.
    pub created_at: UnixMicros,
    /// Whether the user was removed from the organization. Such a user has no keys.
    pub is_removed: bool,
}

/// A private key of the management API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonalKey {
    /// The id.
    pub id: KeyId,
    /// The owner; the key has at most the rights of the user.
    pub user: Arc<User>,
    /// Its label, for people.
    pub label: String,
    /// The hash of its value.
    pub hash: KeyHash,
    /// The part of its value that may be shown.
    pub mask: String,
    /// `object:read`, `object:write` or `*`; `None` for full access.
    pub scopes: Option<Vec<String>>,
    /// The projects that it is limited to; `None` for all of its user's.
    pub projects: Option<Vec<ProjectId>>,
    /// Whether it comes from the operator's settings.
    pub is_fixed: bool,
    /// When it was created.
    pub created_at: UnixMicros,
    /// Time of the last use, accurate to an hour.
    pub last_used_at: Option<UnixMicros>,
}

impl PersonalKey {
    /// Whether a use at `now` is within an hour of the stored one.
    pub fn is_use_noted(&self, now: UnixMicros) -> bool {
        self.last_used_at.is_some_and(|used| now.since(used) < LAST_USED_INTERVAL)
    }
}

/// The rights of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// See [`PersonalKey::scopes`].
    pub scopes: Option<Vec<String>>,
    /// See [`PersonalKey::projects`].
    pub projects: Option<Vec<ProjectId>>,
}

impl From<Option<Vec<String>>> for Grant {
    fn from(scopes: Option<Vec<String>>) -> Self {
        Self { scopes, projects: None }
    }
}

/// A key with its clear value, which is not stored.
#[derive(Clone)]
pub struct CreatedKey {
    /// The key as stored.
    pub key: Arc<PersonalKey>,
    /// The clear value. Show it once; keep it nowhere.
    pub value: String,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Changes to a project; `None` leaves a field unchanged.
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
    /// Another first day of weeks: 0 or 1.
    pub week_start_day: Option<i64>,
    /// Other filters; a JSON array.
    pub test_account_filters: Option<Value>,
}

impl ProjectPatch {
    fn check(&self) -> Result<(), Violation> {
        if let Some(name) = &self.name {
            check_text("name", name, PROJECT_NAME_MAX_CHARS)?;
        }
        if self.week_start_day.is_some_and(|day| !(0..=1).contains(&day)) {
            let detail = "Must be 0 for Sunday or 1 for Monday.";
            return Err(Violation::choice("week_start_day", detail));
        }
        Ok(())
    }

    fn applied(self, mut project: Project) -> Project {
        project.name = self.name.unwrap_or(project.name);
        project.timezone = self.timezone.unwrap_or(project.timezone);
        project.anonymize_ips = self.anonymize_ips.unwrap_or(project.anonymize_ips);
        project.week_start_day = self.week_start_day.unwrap_or(project.week_start_day);
        if let Some(filters) = self.test_account_filters {
            project.test_account_filters = filters;
        }
        if let Some(properties) = self.person_display_name_properties {
            project.person_display_name_properties = properties;
        }
        project
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
    check_length(attr, text, chars_max)
}

/// Checks a text that may be empty: at most `chars_max` characters.
pub(super) fn check_length(
    attr: &'static str,
    text: &str,
    chars_max: usize,
) -> Result<(), Violation> {
    if text.chars().count() > chars_max {
        return Err(Violation::too_long(attr, chars_max));
    }
    Ok(())
}
