//! Organizations, users, projects and keys as rows. SQL only; the rules are in `accounts`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::accounts::{KeyId, KeyRow, PersonalKey, Project, User, UserId};
use crate::connection::Conn;
use crate::entity::{Columns, Stored};
use crate::error::MetadataError;
use crate::secrets::KeyHash;
use crate::sql;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// Marks a key as revoked; the row stays.
pub(crate) async fn revoke_key(
    connection: &mut Conn,
    id: KeyId,
    now: UnixMicros,
) -> Result<(), MetadataError> {
    sql::query("UPDATE personal_keys SET revoked_at = $1 WHERE id = $2")
        .bind(now.0)
        .bind(id.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Limits a key to these projects.
pub(crate) async fn limit_key(
    connection: &mut Conn,
    id: KeyId,
    projects: &Vec<ProjectId>,
) -> Result<(), MetadataError> {
    sql::query("UPDATE personal_keys SET projects = $1 WHERE id = $2")
        .bind(projects.store())
        .bind(id.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Removes the hash of a revoked key, so that a new row can have it.
pub(crate) async fn forget_revoked(
    connection: &mut Conn,
    hash: KeyHash,
) -> Result<(), MetadataError> {
    // The column is unique and never NULL; no hash looks like this.
    sql::query(
        "UPDATE personal_keys SET value_sha256 = 'revoked ' || id
         WHERE value_sha256 = $1 AND revoked_at IS NOT NULL",
    )
    .bind(hash.to_hex())
    .execute(connection)
    .await?;
    Ok(())
}

/// Reads one project or all.
pub(crate) async fn projects(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<Project>, MetadataError> {
    let select = Project::select("WHERE (CAST($1 AS BIGINT) IS NULL OR id = $1) ORDER BY id")
        .bind(only.map(|project| project.0));
    Ok(select.fetch_all(connection).await?)
}

/// Reads all users.
pub(crate) async fn users(
    connection: &mut Conn,
) -> Result<BTreeMap<UserId, Arc<User>>, MetadataError> {
    let users: Vec<User> = User::select("").fetch_all(connection).await?;
    Ok(users.into_iter().map(|user| (user.id, Arc::new(user))).collect())
}

/// Reads the keys that were not revoked.
pub(crate) async fn keys(
    connection: &mut Conn,
    users: &BTreeMap<UserId, Arc<User>>,
) -> Result<Vec<PersonalKey>, MetadataError> {
    let select = KeyRow::select("WHERE revoked_at IS NULL");
    let mut keys = Vec::new();
    for row in select.fetch_all(connection).await? {
        let user = users.get(&row.user_id).ok_or_else(|| MetadataError::Corrupt {
            table: KeyRow::TABLE,
            problem: "no such user".to_owned(),
        })?;
        keys.push(PersonalKey::of(Arc::clone(user), row));
    }
    Ok(keys)
}
