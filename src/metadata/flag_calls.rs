//! Last calls of flags, as reported by the events of SDKs ([`Metadata::upsert_definitions`]).
//! Stored apart from the flags: no hot path reads them, and a call is no change of a flag.

use std::collections::HashMap;

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::flags::FlagId;
use crate::{Metadata, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// An SDK reported a call of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagCalled {
    /// The project of the event.
    pub project: ProjectId,
    /// The key of the flag, which need not exist.
    pub key: String,
    /// Time of the call.
    pub at: UnixMicros,
}

impl Metadata {
    /// The last call of each flag of a project; flags that were never called are absent.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn flag_calls(
        &self,
        project: ProjectId,
    ) -> Result<HashMap<FlagId, UnixMicros>, MetadataError> {
        let select = "SELECT flag_id, last_called_at FROM flag_calls WHERE project_id = $1";
        let select = sql::query_as(select).bind(project.0);
        let rows: Vec<(i64, i64)> = select.fetch_all(&mut self.shared.db.reader().await?).await?;
        Ok(rows.into_iter().map(|(flag, at)| (FlagId(flag), UnixMicros(at))).collect())
    }

    /// The last call of a flag, if any.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn flag_called(&self, flag: FlagId) -> Result<Option<UnixMicros>, MetadataError> {
        let select = "SELECT last_called_at FROM flag_calls WHERE flag_id = $1";
        let select = sql::query_scalar(select).bind(flag.0);
        let at: Option<i64> = select.fetch_optional(&mut self.shared.db.reader().await?).await?;
        Ok(at.map(UnixMicros))
    }
}

/// Stores calls; ignores keys without a flag, and times before the stored one.
pub(super) async fn upsert(
    connection: &mut Conn,
    calls: &[FlagCalled],
) -> Result<(), MetadataError> {
    for call in calls {
        sql::query(
            "INSERT INTO flag_calls (flag_id, project_id, last_called_at)
             SELECT id, project_id, $3 FROM feature_flags
             WHERE project_id = $1 AND key = $2 AND NOT deleted
             ON CONFLICT (flag_id) DO UPDATE SET last_called_at = excluded.last_called_at
             WHERE excluded.last_called_at > flag_calls.last_called_at",
        )
        .bind(call.project.0)
        .bind(&call.key)
        .bind(call.at.0)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
