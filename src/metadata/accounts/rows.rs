//! Organizations, users, projects and keys as rows. SQL only; the rules are in `accounts`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::accounts::{KeyId, PersonalKey, Project, User, UserId};
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::members::{Level, Organization};
use crate::secrets::KeyHash;
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// The id for the next project.
pub(super) async fn next_project(connection: &mut Conn) -> Result<i64, MetadataError> {
    disk::next_id(connection, "SELECT COALESCE(MAX(id), 0) + 1 FROM projects").await
}

/// The id for the next user.
pub(crate) async fn next_user(connection: &mut Conn) -> Result<i64, MetadataError> {
    disk::next_id(connection, "SELECT COALESCE(MAX(id), 0) + 1 FROM users").await
}

/// The id for the next key. Revoked keys keep their rows, so no id is reused.
pub(crate) async fn next_key(connection: &mut Conn) -> Result<i64, MetadataError> {
    disk::next_id(connection, "SELECT COALESCE(MAX(id), 0) + 1 FROM personal_keys").await
}

/// Inserts an organization.
pub(crate) async fn insert_organization(
    connection: &mut Conn,
    organization: &Organization,
) -> Result<(), MetadataError> {
    sql::query("INSERT INTO organizations (id, name, created_at) VALUES ($1, $2, $3)")
        .bind(organization.id.to_string())
        .bind(&organization.name)
        .bind(organization.created_at.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Inserts a project.
pub(crate) async fn insert_project(
    connection: &mut Conn,
    project: &Project,
) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO projects
         (id, organization, name, api_token, timezone, person_display_name_properties,
          anonymize_ips, week_start_day, test_account_filters, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(project.id.0)
    .bind(project.organization.to_string())
    .bind(&project.name)
    .bind(&project.token)
    .bind(&project.timezone)
    .bind(project.person_display_name_properties.as_deref().map(disk::to_json))
    .bind(project.anonymize_ips)
    .bind(project.week_start_day)
    .bind(project.test_account_filters.to_string())
    .bind(project.created_at.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Overwrites the row of a project.
pub(crate) async fn update_project(
    connection: &mut Conn,
    project: &Project,
) -> Result<(), MetadataError> {
    sql::query(
        "UPDATE projects
         SET name = $1, api_token = $2, timezone = $3, person_display_name_properties = $4,
             anonymize_ips = $5, week_start_day = $6, test_account_filters = $7
         WHERE id = $8",
    )
    .bind(&project.name)
    .bind(&project.token)
    .bind(&project.timezone)
    .bind(project.person_display_name_properties.as_deref().map(disk::to_json))
    .bind(project.anonymize_ips)
    .bind(project.week_start_day)
    .bind(project.test_account_filters.to_string())
    .bind(project.id.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Inserts a user.
pub(crate) async fn insert_user(connection: &mut Conn, user: &User) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO users
         (id, organization, uuid, distinct_id, first_name, email, is_email_verified,
          current_project, created_at, level)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(user.id.0)
    .bind(user.organization.to_string())
    .bind(user.uuid.to_string())
    .bind(&user.distinct_id)
    .bind(&user.first_name)
    .bind(&user.email)
    .bind(user.is_email_verified)
    .bind(user.current_project.map(|project| project.0))
    .bind(user.created_at.0)
    .bind(user.level.number())
    .execute(connection)
    .await?;
    Ok(())
}

/// Overwrites the row of a user; a removed one gets `now` as the time of removal.
pub(crate) async fn update_user(
    connection: &mut Conn,
    user: &User,
    now: UnixMicros,
) -> Result<(), MetadataError> {
    sql::query(
        "UPDATE users
         SET first_name = $1, email = $2, is_email_verified = $3, current_project = $4,
             level = $5, removed_at = $6
         WHERE id = $7",
    )
    .bind(&user.first_name)
    .bind(&user.email)
    .bind(user.is_email_verified)
    .bind(user.current_project.map(|project| project.0))
    .bind(user.level.number())
    .bind(user.is_removed.then_some(now.0))
    .bind(user.id.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Overwrites the name of an organization.
pub(crate) async fn update_organization(
    connection: &mut Conn,
    organization: &Organization,
) -> Result<(), MetadataError> {
    sql::query("UPDATE organizations SET name = $1 WHERE id = $2")
        .bind(&organization.name)
        .bind(organization.id.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

/// Overwrites the label of a key.
pub(crate) async fn label_key(
    connection: &mut Conn,
    key: &PersonalKey,
) -> Result<(), MetadataError> {
    sql::query("UPDATE personal_keys SET label = $1 WHERE id = $2")
        .bind(&key.label)
        .bind(key.id.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Inserts a key.
pub(crate) async fn insert_key(
    connection: &mut Conn,
    key: &PersonalKey,
) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO personal_keys
         (id, user_id, label, value_sha256, mask, scopes, fixed, created_at, last_used_at,
          projects)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(key.id.0)
    .bind(key.user.id.0)
    .bind(&key.label)
    .bind(key.hash.to_hex())
    .bind(&key.mask)
    .bind(key.scopes.as_deref().map(disk::to_json))
    .bind(key.is_fixed)
    .bind(key.created_at.0)
    .bind(key.last_used_at.map(|used| used.0))
    .bind(key.projects.as_ref().map(|projects| {
        disk::to_json(&projects.iter().map(|project| project.0).collect::<Vec<_>>())
    }))
    .execute(connection)
    .await?;
    Ok(())
}

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

/// Stores when a key was last used.
pub(super) async fn touch_key(
    connection: &mut Conn,
    id: KeyId,
    now: UnixMicros,
) -> Result<(), MetadataError> {
    sql::query("UPDATE personal_keys SET last_used_at = $1 WHERE id = $2")
        .bind(now.0)
        .bind(id.0)
        .execute(connection)
        .await?;
    Ok(())
}

#[derive(sqlx_macros::FromRow)]
struct ProjectRow {
    id: i64,
    organization: String,
    name: String,
    api_token: String,
    timezone: String,
    person_display_name_properties: Option<String>,
    anonymize_ips: bool,
    week_start_day: i64,
    test_account_filters: String,
    created_at: i64,
}

/// Reads one project or all.
pub(crate) async fn projects(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<Arc<Project>>, MetadataError> {
    let select = "SELECT * FROM projects WHERE (CAST($1 AS BIGINT) IS NULL OR id = $1) ORDER BY id";
    let select = sql::query_as(select).bind(only.map(|project| project.0));
    let rows: Vec<ProjectRow> = select.fetch_all(connection).await?;
    let project = |row: ProjectRow| {
        Ok(Arc::new(Project {
            id: ProjectId(row.id),
            organization: disk::from_uuid("projects", &row.organization)?,
            name: row.name,
            token: row.api_token,
            timezone: row.timezone,
            person_display_name_properties: disk::from_nullable_json(
                "projects",
                row.person_display_name_properties.as_deref(),
            )?,
            anonymize_ips: row.anonymize_ips,
            week_start_day: row.week_start_day,
            test_account_filters: disk::from_json("projects", &row.test_account_filters)?,
            created_at: UnixMicros(row.created_at),
        }))
    };
    rows.into_iter().map(project).collect()
}

#[derive(sqlx_macros::FromRow)]
struct UserRow {
    id: i64,
    organization: String,
    uuid: String,
    distinct_id: String,
    first_name: String,
    email: String,
    is_email_verified: bool,
    current_project: Option<i64>,
    level: i64,
    created_at: i64,
    removed_at: Option<i64>,
}

/// Reads all users.
pub(crate) async fn users(
    connection: &mut Conn,
) -> Result<BTreeMap<UserId, Arc<User>>, MetadataError> {
    let rows: Vec<UserRow> = sql::query_as(
        "SELECT id, organization, uuid, distinct_id, first_name, email, is_email_verified,
                current_project, level, created_at, removed_at
         FROM users",
    )
    .fetch_all(connection)
    .await?;
    let user = |row: UserRow| {
        let level = Level::from_number(row.level).ok_or_else(|| MetadataError::Corrupt {
            table: "users",
            problem: format!("level {}", row.level),
        })?;
        let user = User {
            id: UserId(row.id),
            organization: disk::from_uuid("users", &row.organization)?,
            uuid: disk::from_uuid("users", &row.uuid)?,
            distinct_id: row.distinct_id,
            first_name: row.first_name,
            email: row.email,
            is_email_verified: row.is_email_verified,
            current_project: row.current_project.map(ProjectId),
            level,
            created_at: UnixMicros(row.created_at),
            is_removed: row.removed_at.is_some(),
        };
        Ok((user.id, Arc::new(user)))
    };
    rows.into_iter().map(user).collect()
}

#[derive(sqlx_macros::FromRow)]
struct KeyRow {
    id: i64,
    user_id: i64,
    label: String,
    value_sha256: String,
    mask: String,
    scopes: Option<String>,
    fixed: bool,
    created_at: i64,
    last_used_at: Option<i64>,
    projects: Option<String>,
}

/// Reads the keys that were not revoked.
pub(crate) async fn keys(
    connection: &mut Conn,
    users: &BTreeMap<UserId, Arc<User>>,
) -> Result<Vec<Arc<PersonalKey>>, MetadataError> {
    let rows: Vec<KeyRow> = sql::query_as(
        "SELECT id, user_id, label, value_sha256, mask, scopes, fixed, created_at, last_used_at,
                projects
         FROM personal_keys WHERE revoked_at IS NULL",
    )
    .fetch_all(connection)
    .await?;
    let corrupt = |problem: &str| MetadataError::Corrupt {
        table: "personal_keys",
        problem: problem.to_owned(),
    };
    let key = |row: KeyRow| {
        let user = users.get(&UserId(row.user_id)).ok_or_else(|| corrupt("no such user"))?;
        let hash = KeyHash::from_hex(&row.value_sha256).ok_or_else(|| corrupt("not a hash"))?;
        Ok(Arc::new(PersonalKey {
            id: KeyId(row.id),
            user: Arc::clone(user),
            label: row.label,
            hash,
            mask: row.mask,
            scopes: disk::from_nullable_json("personal_keys", row.scopes.as_deref())?,
            projects: disk::from_nullable_json::<Vec<i64>>(
                "personal_keys",
                row.projects.as_deref(),
            )?
            .map(|projects| projects.into_iter().map(ProjectId).collect()),
            is_fixed: row.fixed,
            created_at: UnixMicros(row.created_at),
            last_used_at: row.last_used_at.map(UnixMicros),
        }))
    };
    rows.into_iter().map(key).collect()
}
