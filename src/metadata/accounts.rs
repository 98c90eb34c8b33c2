//! Accounts: organizations, users, projects and personal keys, with their rights.
//!
//! Tokens are public and stored in plain text. Of keys only a hash is stored: the clear value is
//! returned once, by the call that creates the key.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::entity::{Numbered, entity, stored};
use crate::members::Level;
use crate::secrets::KeyHash;
use crate::violation::Violation;
use weir_base::clock::UnixMicros;
use weir_event::id::{ProjectId, ShardId};
use weir_event::json;

mod operations;
pub(super) mod rows;

/// A key's last use is stored at most this often; PostHog does the same.
const LAST_USED_INTERVAL: Duration = Duration::from_hours(1);

/// Longest label of a key and name of a project, in characters; PostHog's column widths.
const LABEL_MAX_CHARS: usize = 40;
const PROJECT_NAME_MAX_CHARS: usize = 200;

/// Longest time for which events are kept if they are not for ever; a hundred years.
pub const EVENT_RETENTION_MAX_DAYS: i64 = 36_500;

const DAY_MICROS: i64 = 86_400_000_000;

/// The id of a user. Positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub i64);

/// The id of a personal key. Positive, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

stored! {
    UserId as i64: |id| id.0, |raw| Ok(Self(raw));
    KeyId as i64: |id| id.0, |raw| Ok(Self(raw));
    Vec<ProjectId> as String: |ids| Value::from_iter(ids.iter().map(|id| id.0)).to_string(), |text| {
        let ids: Vec<i64> = json::restore(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(ids.into_iter().map(ProjectId).collect())
    };
}

entity! {
    /// A project: receives the events of one application.
    #[derive(Default)]
    pub struct Project in "projects" {
        /// Its id.
        id: ProjectId [key],
        /// The organization that owns it.
        organization: Uuid [once],
        /// The public write token.
        token: String as "api_token",
        /// When it was created.
        created_at: UnixMicros [once],
        /// No event before this time is kept, whatever `event_retention_days` is now. See [`Project::kept_from`].
        events_kept_from: Option<UnixMicros>,
        /// The shard that has its events and persons. It never changes.
        shard: ShardId [once],
    }
    /// Changes to a project; `None` leaves a field unchanged.
    pub struct ProjectPatch {
        /// Its name, for people.
        name: String,
        /// Name of a time zone of the IANA database, such as `UTC`; the caller has checked that it exists.
        timezone: String,
        /// Person properties whose first present value is a person's name; `None` for the defaults.
        person_display_name_properties: Option<Vec<String>>,
        /// Whether events are stored without the addresses of their clients.
        anonymize_ips: bool,
        /// The day on which weeks begin: 0 for Sunday, 1 for Monday.
        week_start_day: i64,
        /// Filters by which queries exclude the operator's own traffic: a JSON array.
        test_account_filters: Value,
        /// Days for which events are kept; `None` for all. See [`Project::kept_from`].
        event_retention_days: Option<i64>,
    }
}

entity! {
    /// A user, who manages projects.
    #[derive(Default)]
    pub struct User in "users" {
        /// The id.
        id: UserId [key],
        /// The organization whose projects the user may see.
        organization: Uuid [once],
        /// The id that the API shows besides the integer.
        uuid: Uuid [once],
        /// The distinct id of the user in events about the server itself.
        distinct_id: String [once],
        /// Whether the address was verified.
        is_email_verified: bool,
        /// The user's level in the organization.
        level: Level,
        /// When the user was created.
        created_at: UnixMicros [once],
        /// When the user was removed from the organization. Such a user has no keys.
        removed_at: Option<UnixMicros>,
    }
    /// Changes of a user to itself; `None` leaves a field unchanged.
    pub struct UserPatch {
        /// First name.
        first_name: String,
        /// Email address.
        email: String,
        /// The project that `@current` stands for in a path.
        current_project: Option<ProjectId>,
    }
}

entity! {
    /// The row of a private key of the management API.
    #[derive(Default)]
    pub struct KeyRow in "personal_keys" {
        /// The id.
        id: KeyId [key],
        /// The owner.
        user_id: UserId [once],
        /// Its label, for people.
        label: String,
        /// The hash of its value.
        hash: KeyHash as "value_sha256" [once],
        /// The part of its value that may be shown.
        mask: String [once],
        /// `object:read`, `object:write` or `*`; `None` for full access.
        scopes: Option<Vec<String>> [once],
        /// The projects that it is limited to; `None` for all of its user's.
        projects: Option<Vec<ProjectId>> [once],
        /// Whether it comes from the operator's settings.
        is_fixed: bool as "fixed" [once],
        /// When it was created.
        created_at: UnixMicros [once],
        /// Time of the last use, accurate to an hour.
        last_used_at: Option<UnixMicros>,
    }
}

impl Numbered for Project {}

impl Numbered for User {}

/// A revoked key keeps its row: its id stands for it, and is not given again.
impl Numbered for KeyRow {}

/// A private key of the management API: its row, with its owner in place of the id.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonalKey {
    /// The owner; the key has at most the rights of the user.
    pub user: Arc<User>,
    row: KeyRow,
}

impl Deref for PersonalKey {
    type Target = KeyRow;

    fn deref(&self) -> &KeyRow {
        &self.row
    }
}

/// A new project, besides its name.
#[derive(Clone, Debug, Default)]
pub struct NewProject {
    /// Its settings.
    pub settings: ProjectPatch,
    /// The token of its SDKs; `None` for a generated one.
    pub token: Option<String>,
}

impl From<ProjectPatch> for NewProject {
    fn from(settings: ProjectPatch) -> Self {
        Self { settings, token: None }
    }
}

impl Project {
    /// The time before which no event of the project is kept at `now`; `None` if all are. It is the beginning of a day (UTC):
    /// today and the days of `event_retention_days` before it are kept. It never goes back, so that what is gone does not
    /// come back.
    pub fn kept_from(&self, now: UnixMicros) -> Option<UnixMicros> {
        let by_age = self.event_retention_days.map(|days| {
            let today = now.0.div_euclid(DAY_MICROS);
            UnixMicros(today.saturating_sub(days).saturating_mul(DAY_MICROS))
        });
        by_age.max(self.events_kept_from)
    }

    /// A project as it is made, without an id, an owner and a token.
    pub(super) fn initial(created_at: UnixMicros) -> Self {
        Self {
            timezone: "UTC".to_owned(),
            test_account_filters: Value::Array(Vec::new()),
            created_at,
            ..Self::default()
        }
    }
}

impl User {
    /// Whether the user was removed from the organization.
    pub fn is_removed(&self) -> bool {
        self.removed_at.is_some()
    }
}

impl PersonalKey {
    /// The key of `user` with this row.
    pub fn of(user: Arc<User>, row: KeyRow) -> Self {
        Self { row: KeyRow { user_id: user.id, ..row }, user }
    }

    /// The key after a change of its row.
    pub(super) fn with(&self, change: impl FnOnce(&mut KeyRow)) -> Self {
        let mut row = self.row.clone();
        change(&mut row);
        Self::of(Arc::clone(&self.user), row)
    }

    /// Whether the key is valid for a project: one of its user's organization, and of its own if it has some.
    pub fn may_use(&self, project: &Project) -> bool {
        project.organization == self.user.organization
            && self.projects.as_ref().is_none_or(|own| own.contains(&project.id))
    }

    /// Whether the key grants `scope`, such as `person:read`. Write implies read; a key without scopes grants
    /// everything.
    pub fn grants(&self, scope: &str) -> bool {
        let Some(scopes) = &self.scopes else { return true };
        let (object, action) = scope.split_once(':').unwrap_or((scope, "write"));
        scopes.iter().any(|granted| {
            let (on, may) = granted.split_once(':').unwrap_or((granted, "write"));
            (on == object || on == "*") && (may == action || may == "write")
        })
    }

    /// Whether a use at `now` is within an hour of the stored one.
    pub fn is_use_noted(&self, now: UnixMicros) -> bool {
        self.last_used_at.is_some_and(|used| now.since(used) < LAST_USED_INTERVAL)
    }
}

/// The rights of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// See [`KeyRow::scopes`].
    pub scopes: Option<Vec<String>>,
    /// See [`KeyRow::projects`].
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

impl ProjectPatch {
    fn check(&self) -> Result<(), Violation> {
        if let Some(name) = &self.name {
            check_text("name", name, PROJECT_NAME_MAX_CHARS)?;
        }
        if self.week_start_day.is_some_and(|day| !(0..=1).contains(&day)) {
            let detail = "Must be 0 for Sunday or 1 for Monday.";
            return Err(Violation::choice("week_start_day", detail));
        }
        let days = self.event_retention_days.flatten();
        if days.is_some_and(|days| !(1..=EVENT_RETENTION_MAX_DAYS).contains(&days)) {
            let detail = format!("Must be null, or from 1 to {EVENT_RETENTION_MAX_DAYS} days.");
            return Err(Violation::choice("event_retention_days", detail));
        }
        Ok(())
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
