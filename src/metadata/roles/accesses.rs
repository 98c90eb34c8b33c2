//! The flags that roles may change.

use serde_json::json;

use crate::accounts::UserId;
use crate::activity::{Change, Scope, Verb};
use crate::entity::{Columns, Entity, Numbered, entity, next_id};
use crate::error::MetadataError;
use crate::flags::FlagId;
use crate::roles::Role;
use crate::{Metadata, Write, sql};
use weir_event::id::ProjectId;

entity! {
    /// The right of a role to change a flag.
    pub struct RoleAccess in "flag_role_access" {
        /// Unique.
        id: i64 [key],
        /// The flag.
        flag_id: i64 [once],
        /// The role, a UUID.
        role: String [once],
        /// Time of creation, in microseconds since 1970.
        added_at: i64 [once],
        /// Time of the last change, in microseconds since 1970.
        updated_at: i64,
    }
}

impl Numbered for RoleAccess {}

/// A flag that a role may change.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct FlagOfRole {
    /// The flag.
    pub id: i64,
    /// Its project.
    pub project_id: i64,
    /// Its key.
    pub key: String,
}

impl Metadata {
    /// The roles that may change a flag, by id.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn role_accesses(&self, flag: FlagId) -> Result<Vec<RoleAccess>, MetadataError> {
        Ok(RoleAccess::select("WHERE flag_id = $1 ORDER BY id")
            .bind(flag.0)
            .fetch_all(&mut self.shared.db.reader().await?)
            .await?)
    }

    /// The flags that a role may change and that are not deleted, by id. They may belong to several
    /// projects.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn flags_of_role(&self, role: &str) -> Result<Vec<FlagOfRole>, MetadataError> {
        let select = "SELECT feature_flags.id, project_id, key FROM flag_role_access
             JOIN feature_flags ON feature_flags.id = flag_id WHERE role = $1 AND NOT deleted
             ORDER BY feature_flags.id";
        Ok(sql::query_as(select).bind(role).fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// Grants a role the right to change a flag. Idempotent.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a flag in the project.
    pub async fn grant_role(
        &self,
        project: ProjectId,
        user: UserId,
        flag: FlagId,
        role: &Role,
    ) -> Result<RoleAccess, MetadataError> {
        let stored = self.flag(project, flag).await?;
        let mut write = self.begin().await?;
        write.user(user)?;
        let known =
            RoleAccess::select("WHERE flag_id = $1 AND role = $2").bind(flag.0).bind(&role.id);
        if let Some(known) = known.fetch_optional(write.connection()).await? {
            return Ok(known);
        }
        let (id, now) = (next_id::<RoleAccess>(write.connection()).await?, self.now());
        let access = RoleAccess {
            id,
            flag_id: flag.0,
            role: role.id.clone(),
            added_at: now.0,
            updated_at: now.0,
        };
        access.insert().execute(write.connection()).await?;
        write.log(project, Some(user), access_change(&stored.key, flag, role, true)).await?;
        write.commit_rights().await?;
        Ok(access)
    }

    /// Revokes a role's right to change a flag.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a flag in the project, or such a right.
    pub async fn revoke_role(
        &self,
        project: ProjectId,
        user: UserId,
        flag: FlagId,
        access: &RoleAccess,
        role: &Role,
    ) -> Result<(), MetadataError> {
        let stored = self.flag(project, flag).await?;
        let mut write = self.begin().await?;
        write.user(user)?;
        let delete = "DELETE FROM flag_role_access WHERE id = $1 AND flag_id = $2";
        let delete = sql::query(delete).bind(access.id).bind(flag.0);
        if delete.execute(write.connection()).await? == 0 {
            return Err(MetadataError::NotFound("role access"));
        }
        write.log(project, Some(user), access_change(&stored.key, flag, role, false)).await?;
        write.commit_rights().await
    }
}

impl Write {
    /// Revokes all rights of a role to flags.
    pub(super) async fn revoke_all(
        &mut self,
        user: UserId,
        role: &Role,
    ) -> Result<(), MetadataError> {
        let select = "SELECT feature_flags.id, project_id, key FROM flag_role_access
             JOIN feature_flags ON feature_flags.id = flag_id WHERE role = $1
             ORDER BY feature_flags.id";
        let flags: Vec<FlagOfRole> =
            sql::query_as(select).bind(&role.id).fetch_all(self.connection()).await?;
        let delete = "DELETE FROM flag_role_access WHERE role = $1";
        sql::query(delete).bind(&role.id).execute(self.connection()).await?;
        for flag in flags {
            let change = access_change(&flag.key, FlagId(flag.id), role, false);
            self.log(ProjectId(flag.project_id), Some(user), change).await?;
        }
        Ok(())
    }
}

/// The activity entry for a right that a role got or lost.
fn access_change(key: &str, flag: FlagId, role: &Role, is_new: bool) -> Change {
    let name = Some(role.name.as_str());
    let field = json!({
        "type": Scope::FeatureFlag.name(),
        "action": if is_new { "created" } else { "deleted" },
        "field": "role_access",
        "before": name.filter(|_| !is_new),
        "after": name.filter(|_| is_new),
    });
    Change {
        scope: Scope::FeatureFlag,
        item: flag.to_string(),
        verb: Verb::Updated,
        name: key.to_owned(),
        fields: vec![field],
    }
}
