//! Usage dashboards of flags: dashboards like others ([`documents`]), of which a flag knows the id. A mark says whether
//! one includes the enriched events.
//!
//! [`documents`]: crate::documents

use serde_json::{Map, Value};

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::documents::{Document, DocumentKey, Kind, rows};
use crate::error::MetadataError;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

mod operations;

/// The mark of a dashboard that includes the enriched events.
const ENRICHED: &str = "is_enriched";

/// Creates the usage dashboard of the flag with this key.
pub(super) async fn add(
    connection: &mut Conn,
    project: ProjectId,
    user: UserId,
    key: &str,
    now: UnixMicros,
) -> Result<i64, MetadataError> {
    let id = rows::next_id(connection, Kind::Dashboard).await?;
    let dashboard = Document {
        kind: Kind::Dashboard,
        id,
        project,
        created_by: Some(user),
        created_at: now,
        updated_by: Some(user),
        updated_at: now,
        fields: Map::from_iter([("name".to_owned(), Value::from(name(key)))]),
        ..Document::default()
    };
    rows::put(connection, &dashboard).await?;
    Ok(id)
}

/// Renames the usage dashboard of a flag after the flag's new key.
pub(super) async fn rename(
    connection: &mut Conn,
    project: ProjectId,
    dashboard: i64,
    key: &str,
) -> Result<(), MetadataError> {
    set(connection, project, dashboard, "name", Value::from(name(key))).await
}

/// Sets a field of a dashboard, if it is there.
async fn set(
    connection: &mut Conn,
    project: ProjectId,
    dashboard: i64,
    name: &str,
    value: Value,
) -> Result<(), MetadataError> {
    let key = DocumentKey { project, kind: Kind::Dashboard, id: dashboard };
    let found = rows::by_id(&mut *connection, key).await?;
    let Some(mut found) = found else { return Ok(()) };
    found.fields.insert(name.to_owned(), value);
    rows::put(connection, &found).await
}

fn name(key: &str) -> String {
    format!("Generated Dashboard: {key} Usage")
}
