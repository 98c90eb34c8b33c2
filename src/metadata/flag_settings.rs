//! Settings shared by the flags of a project: comparison of truth values, detail of SDKs' call
//! events, and the secret key with which servers load definitions.

use serde_json::{Map, Value, json};

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::secrets::KeyHash;
use crate::{activity, sql};
use weir_event::id::ProjectId;
use weir_event::predicate::Matching;

mod operations;

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

/// Reads the settings of one project or of all, where there are some.
pub(super) async fn all(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<FlagSettings>, MetadataError> {
    let select =
        "SELECT * FROM flag_settings WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1)";
    let select = sql::query_as(select).bind(only.map(|project| project.0));
    let rows: Vec<Row> = select.fetch_all(connection).await?;
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

#[derive(sqlx_macros::FromRow)]
struct Row {
    project_id: i64,
    property_matching_version: i64,
    secret_key_sha256: Option<String>,
    secret_key_mask: Option<String>,
    minimal_flag_called_events: bool,
}
