//! Settings shared by the flags of a project: comparison of truth values, detail of SDKs' call
//! events, and the secret key with which servers load definitions.

use crate::connection::Conn;
use crate::entity::{Columns, entity, stored};
use crate::error::MetadataError;
use crate::secrets::KeyHash;
use weir_event::id::ProjectId;
use weir_event::predicate::Matching;

mod operations;

stored! {
    Matching as i64: |matching| match matching { Self::Legacy => 1, Self::Explicit => 2 },
        |version| Ok(if version == 2 { Self::Explicit } else { Self::Legacy });
}

entity! {
    /// The settings of a project's flags.
    #[derive(Default)]
    pub struct FlagSettings in "flag_settings" {
        /// The project.
        project: ProjectId as "project_id" [key],
        /// How truth values are compared.
        matching: Matching as "property_matching_version" [logged],
        /// Whether SDKs may omit from `$feature_flag_called` the properties that do not concern the
        /// flag. A setting for SDKs only; the server omits nothing.
        minimal_called_events: bool as "minimal_flag_called_events" [logged],
        /// The hash of the secret key, if there is one.
        secret: Option<KeyHash> as "secret_key_sha256",
        /// The part of the secret key that may be shown.
        secret_mask: Option<String> as "secret_key_mask" [logged_as("secret_api_token")],
    }
}

/// Reads the settings of one project or of all, where there are some.
pub(super) async fn all(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<FlagSettings>, MetadataError> {
    let select = FlagSettings::select("WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1)")
        .bind(only.map(|project| project.0));
    Ok(select.fetch_all(connection).await?)
}
