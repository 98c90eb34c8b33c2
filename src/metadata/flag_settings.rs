//! Settings shared by the flags of a project: comparison of truth values, detail of SDKs' call
//! events, and the secret key with which servers load definitions.

use std::sync::Arc;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use sqlx::SqliteConnection;

use crate::event::id::ProjectId;
use crate::event::predicate::Matching;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::Write;
use crate::metadata::accounts::UserId;
use crate::metadata::activity;
use crate::metadata::activity::Change;
use crate::metadata::activity::Scope;
use crate::metadata::activity::Verb;
use crate::metadata::activity::diff;
use crate::metadata::secrets;
use crate::metadata::secrets::KeyHash;
use crate::metadata::secrets::Seed;

/// The settings of a project's flags.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagSettings {
    /// The project.
    pub project: ProjectId,
    /// `property_matching_version`.
    pub matching: Matching,
    /// Whether SDKs may omit from `$feature_flag_called` the properties that do not concern the
    /// flag. A setting for SDKs only; the server omits nothing.
    pub minimal_called_events: bool,
    /// The hash of the secret key, if there is one.
    pub secret: Option<KeyHash>,
    /// The part of the secret key that may be shown.
    pub secret_mask: Option<String>,
}

impl FlagSettings {
    fn default_of(project: ProjectId) -> Self {
        Self {
            project,
            matching: Matching::Legacy,
            minimal_called_events: false,
            secret: None,
            secret_mask: None,
        }
    }

    /// `property_matching_version` as in the API.
    fn matching_version(&self) -> i64 {
        match self.matching {
            Matching::Legacy => 1,
            Matching::Explicit => 2,
        }
    }

    /// The fields that the activity log compares; of the secret key only its mask.
    fn logged(&self) -> Map<String, Value> {
        activity::fields(json!({
            "property_matching_version": self.matching_version(),
            "minimal_flag_called_events": self.minimal_called_events,
            "secret_api_token": self.secret_mask,
        }))
    }
}

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
        (matching, minimal_called_events): (Option<Matching>, Option<bool>),
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
        let before = stored.unwrap_or_else(|| FlagSettings::default_of(project));
        let mut settings = before.clone();
        change(&mut settings);
        if settings == before {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO flag_settings
             (project_id, property_matching_version, secret_key_sha256, secret_key_mask,
              minimal_flag_called_events)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (project_id) DO UPDATE SET property_matching_version = $2,
             secret_key_sha256 = $3, secret_key_mask = $4, minimal_flag_called_events = $5",
        )
        .bind(project.0)
        .bind(settings.matching_version())
        .bind(settings.secret.map(KeyHash::to_hex))
        .bind(settings.secret_mask.as_deref())
        .bind(settings.minimal_called_events)
        .execute(self.connection())
        .await?;
        let fields = diff(Scope::Project, &before.logged(), &settings.logged());
        let (item, name) = (project.to_string(), owner.name.clone());
        let change = Change { scope: Scope::Project, item, verb: Verb::Updated, name, fields };
        self.log(project, Some(user), change).await?;
        self.commit_with(|next| next.put_flag_settings(settings)).await
    }
}

/// Reads the settings of all projects that have some.
pub(super) async fn all(
    connection: &mut SqliteConnection,
) -> Result<Vec<FlagSettings>, MetadataError> {
    let rows: Vec<Row> =
        sqlx::query_as("SELECT * FROM flag_settings").fetch_all(connection).await?;
    let settings = rows.into_iter().map(|row| {
        let secret = row.secret_key_sha256.as_deref();
        let corrupt = || MetadataError::Corrupt {
            table: "flag_settings",
            problem: "secret_key_sha256".to_owned(),
        };
        Ok(FlagSettings {
            project: ProjectId(row.project_id),
            matching: match row.property_matching_version {
                2 => Matching::Explicit,
                _ => Matching::Legacy,
            },
            minimal_called_events: row.minimal_flag_called_events,
            secret: secret.map(|hex| KeyHash::from_hex(hex).ok_or_else(corrupt)).transpose()?,
            secret_mask: row.secret_key_mask,
        })
    });
    settings.collect()
}

#[derive(sqlx::FromRow)]
struct Row {
    project_id: i64,
    property_matching_version: i64,
    secret_key_sha256: Option<String>,
    secret_key_mask: Option<String>,
    minimal_flag_called_events: bool,
}
