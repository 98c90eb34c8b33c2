//! Deletion of projects: everything that the store has of one goes in one transaction, and its id and its token are never
//! given again. What servers have of it in other stores goes by [`Snapshot::deleted_projects`].
//!
//! [`Snapshot::deleted_projects`]: crate::snapshot::Snapshot::deleted_projects

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use crate::accounts::{KeyRow, PersonalKey, Project, User, UserId, rows};
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::secrets::KeyHash;
use crate::snapshot::Snapshot;
use crate::violation::Violation;
use crate::{Metadata, Write, sessions, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// What has rows of projects, each after what refers to it: the table, and whether its rows have the column `project_id` or
/// which of them are those of a project. Databases remove the rows of notes, usage and calls with their definitions and
/// flags.
pub(super) const TABLES: [(&str, &str); 22] = [
    ("share_passwords", OWN),
    ("shares", OWN),
    ("document_views", OWN),
    ("documents", OWN),
    ("early_access_features", OWN),
    ("scheduled_changes", OWN),
    ("flag_role_access", "flag_id IN (SELECT id FROM feature_flags WHERE project_id = $1)"),
    ("flag_calls", OWN),
    ("flag_settings", OWN),
    ("hash_keys", OWN),
    ("feature_flags", OWN),
    ("cohort_members", "cohort_id IN (SELECT id FROM cohorts WHERE project_id = $1)"),
    ("cohorts", OWN),
    ("promoted_properties", OWN),
    ("promoted_person_properties", OWN),
    ("event_properties", OWN),
    ("property_definitions", OWN),
    ("definition_notes", OWN),
    ("event_definitions", OWN),
    ("group_types", OWN),
    ("ingestion_warnings", OWN),
    ("activity", OWN),
];

const OWN: &str = "project_id = $1";

/// Where ids count up over all projects: the name in `used_ids`, and the highest id.
const HIGHEST: [(&str, &str); 10] = [
    ("projects", "SELECT MAX(id) FROM projects"),
    ("feature_flags", "SELECT MAX(id) FROM feature_flags"),
    ("cohorts", "SELECT MAX(id) FROM cohorts"),
    ("scheduled_changes", "SELECT MAX(id) FROM scheduled_changes"),
    ("flag_role_access", "SELECT MAX(id) FROM flag_role_access"),
    ("activity", "SELECT MAX(position) FROM activity"),
    ("documents/action", "SELECT MAX(id) FROM documents WHERE kind = 'action'"),
    ("documents/insight", "SELECT MAX(id) FROM documents WHERE kind = 'insight'"),
    ("documents/annotation", "SELECT MAX(id) FROM documents WHERE kind = 'annotation'"),
    ("documents/dashboard", "SELECT MAX(id) FROM documents WHERE kind = 'dashboard'"),
];

impl Metadata {
    /// Deletes a project in the name of `by`, with everything that belongs to it. Its token ends, personal keys that are
    /// limited to it alone are revoked, and it is nobody's current project. Nothing of other projects changes, not even their
    /// activity logs: keys that are limited to one of them must not see the name of this one.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project in the organization of the user, [`MetadataError::Rejected`] for
    /// its last project.
    pub async fn delete_project(&self, by: UserId, id: ProjectId) -> Result<(), MetadataError> {
        let now = self.now();
        let mut write = self.begin().await?;
        let organization = write.user(by)?.organization;
        let base = Arc::clone(&write.base);
        let own: Vec<&Arc<Project>> =
            base.projects().filter(|project| project.organization == organization).collect();
        let project = own.iter().find(|project| project.id == id);
        let project = project.ok_or(MetadataError::NotFound("project"))?;
        if own.len() < 2 {
            let detail = "This is the last project of the organization. Create another one first.";
            return Err(Violation::general(detail).into());
        }
        let keys = write.take_from_keys(id, now).await?;
        let users = write.take_from_users(id).await?;
        for (name, highest) in HIGHEST {
            let highest: Option<i64> =
                sql::query_scalar(highest).fetch_one(write.connection()).await?;
            use_ids(write.connection(), name, highest.unwrap_or(0)).await?;
        }
        for (table, which) in TABLES {
            let delete = format!("DELETE FROM {table} WHERE {which}");
            let delete = sql::query(AssertSqlSafe(delete)).bind(id.0);
            delete.execute(write.connection()).await?;
        }
        retire_token(write.connection(), id, &project.token, now).await?;
        sql::query(
            "INSERT INTO deleted_projects (id, organization, deleted_by, deleted_at)
             VALUES ($1, $2, $3, $4)",
        )
        .bind(id.0)
        .bind(organization.to_string())
        .bind(by.0)
        .bind(now.0)
        .execute(write.connection())
        .await?;
        let delete = sql::query("DELETE FROM projects WHERE id = $1").bind(id.0);
        delete.execute(write.connection()).await?;
        self.note_forgotten();
        write
            .commit_with(|next| {
                next.remove_project(id, now);
                for (hash, key) in keys {
                    match key {
                        Some(key) => next.put_key(key),
                        None => next.remove_key(hash),
                    }
                }
                for user in users {
                    let own = next.keys().filter(|key| key.user.id == user.id);
                    let of = |key: &Arc<PersonalKey>| {
                        Arc::new(PersonalKey::of(Arc::clone(&user), KeyRow::clone(key)))
                    };
                    let own: Vec<Arc<PersonalKey>> = own.map(of).collect();
                    own.into_iter().for_each(|key| next.put_key(key));
                    next.put_user(user);
                }
            })
            .await
    }
}

impl Write {
    /// Takes a project from the keys that are limited to some; a key that is limited to it alone is revoked. Returns what
    /// became of them.
    async fn take_from_keys(
        &mut self,
        project: ProjectId,
        now: UnixMicros,
    ) -> Result<Vec<(KeyHash, Option<Arc<PersonalKey>>)>, MetadataError> {
        let base = Arc::clone(&self.base);
        let mut changed = Vec::new();
        for key in base.keys() {
            let Some(own) = key.projects.as_ref().filter(|own| own.contains(&project)) else {
                continue;
            };
            let left: Vec<ProjectId> = own.iter().copied().filter(|id| *id != project).collect();
            if left.is_empty() {
                rows::revoke_key(self.connection(), key.id, now).await?;
                sessions::end_of_key(self, key.id).await?;
                changed.push((key.hash, None));
                continue;
            }
            rows::limit_key(self.connection(), key.id, &left).await?;
            let key = key.with(|row| row.projects = Some(left));
            changed.push((key.hash, Some(Arc::new(key))));
        }
        Ok(changed)
    }

    /// Makes a project nobody's current one. Returns the users who changed.
    async fn take_from_users(
        &mut self,
        project: ProjectId,
    ) -> Result<Vec<Arc<User>>, MetadataError> {
        sql::query("UPDATE users SET current_project = NULL WHERE current_project = $1")
            .bind(project.0)
            .execute(self.connection())
            .await?;
        let users = self.base.users().filter(|user| user.current_project == Some(project));
        let without = |user: &Arc<User>| User { current_project: None, ..user.as_ref().clone() };
        Ok(users.map(|user| Arc::new(without(user))).collect())
    }

    /// Whether a token is that of a project, or was, or is another secret that the store knows.
    pub(super) async fn is_token_taken(&mut self, token: &str) -> Result<bool, MetadataError> {
        let hash = KeyHash::of(token);
        if self.base.project_by_token(token).is_some()
            || self.base.key(hash).is_some()
            || self.base.project_by_secret(hash).is_some()
        {
            return Ok(true);
        }
        let select = sql::query_scalar("SELECT project_id FROM retired_tokens WHERE hash = $1");
        let retired: Option<i64> =
            select.bind(hash.to_hex()).fetch_optional(self.connection()).await?;
        Ok(retired.is_some())
    }

    /// Whether a token was that of a project that is deleted.
    pub(super) async fn is_of_deleted(&mut self, token: &str) -> Result<bool, MetadataError> {
        let select =
            "SELECT d.id FROM retired_tokens r JOIN deleted_projects d ON d.id = r.project_id
             WHERE r.hash = $1";
        let select = sql::query_scalar(select).bind(KeyHash::of(token).to_hex());
        let found: Option<i64> = select.fetch_optional(self.connection()).await?;
        Ok(found.is_some())
    }
}

/// Notes that a token is no longer that of the project. It is given to none again.
pub(super) async fn retire_token(
    connection: &mut Conn,
    project: ProjectId,
    token: &str,
    now: UnixMicros,
) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO retired_tokens (hash, project_id, retired_at) VALUES ($1, $2, $3)
         ON CONFLICT (hash) DO NOTHING",
    )
    .bind(KeyHash::of(token).to_hex())
    .bind(project.0)
    .bind(now.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes that ids up to `highest` were given.
async fn use_ids(connection: &mut Conn, name: &str, highest: i64) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO used_ids (name, highest) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET highest = excluded.highest
         WHERE excluded.highest > used_ids.highest",
    )
    .bind(name)
    .bind(highest)
    .execute(connection)
    .await?;
    Ok(())
}

/// The deleted projects, with the times of their deletions.
pub(super) async fn deleted(
    connection: &mut Conn,
) -> Result<BTreeMap<ProjectId, UnixMicros>, MetadataError> {
    let select = sql::query_as("SELECT id, deleted_at FROM deleted_projects");
    let rows: Vec<(i64, i64)> = select.fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(id, at)| (ProjectId(id), UnixMicros(at))).collect())
}

impl Snapshot {
    /// Whether a project was deleted.
    pub fn is_deleted(&self, project: ProjectId) -> bool {
        self.deleted_projects().contains_key(&project)
    }
}
