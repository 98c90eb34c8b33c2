//! Roles: users with rights to flags, and the flags that a role may change. Not part of the snapshot,
//! since no hot road asks for them; who may change which flag by them is (`flag_rights`).

use serde_json::json;
use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::accounts::UserId;
use crate::metadata::accounts::check_text;
use crate::metadata::activity::Change;
use crate::metadata::activity::Scope;
use crate::metadata::activity::Verb;
use crate::metadata::disk;
use crate::metadata::flag_rules::Violation;
use crate::metadata::flags::FlagId;
use crate::metadata::secrets::Seed;

/// Longest name, in characters; PostHog's column width.
const NAME_MAX_CHARS: usize = 200;

/// `feature_flags_access_level` of a role that may look.
pub const CAN_VIEW: i64 = 21;

/// `feature_flags_access_level` of a role that may change every flag.
pub const CAN_EDIT: i64 = 37;

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Role {
    /// A UUID.
    pub id: String,
    /// The organization, a UUID.
    pub organization: String,
    /// Unique in the organization.
    pub name: String,
    /// [`CAN_VIEW`] or [`CAN_EDIT`].
    pub feature_flags_access_level: i64,
    /// Who created it.
    pub created_by: Option<i64>,
    /// When, in microseconds since 1970.
    pub created_at: i64,
}

/// A user who has a role.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct RoleMember {
    /// A UUID.
    pub id: String,
    /// The role, a UUID.
    pub role: String,
    /// The user.
    pub user_id: i64,
    /// When, in microseconds since 1970.
    pub joined_at: i64,
    /// When it last changed, in microseconds since 1970.
    pub updated_at: i64,
}

/// That a role may change a flag.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct RoleAccess {
    /// Unique.
    pub id: i64,
    /// The flag.
    pub flag_id: i64,
    /// The role, a UUID.
    pub role: String,
    /// When, in microseconds since 1970.
    pub added_at: i64,
    /// When it last changed, in microseconds since 1970.
    pub updated_at: i64,
}

impl Metadata {
    /// Creates a role in the organization of `user`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Rejected`] for a bad or taken name, or a level that is none.
    pub async fn create_role(
        &self,
        user: UserId,
        name: &str,
        level: i64,
        seed: &Seed,
    ) -> Result<Role, MetadataError> {
        check(name, level)?;
        let mut write = self.begin().await?;
        let organization =
            write.base.user(user).ok_or(MetadataError::NotFound("user"))?.organization;
        let role = Role {
            id: seed.uuid("role").to_string(),
            organization: organization.to_string(),
            name: name.to_owned(),
            feature_flags_access_level: level,
            created_by: Some(user.0),
            created_at: self.now().0,
        };
        sqlx::query(
            "INSERT INTO roles
             (id, organization, name, feature_flags_access_level, created_by, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&role.id)
        .bind(&role.organization)
        .bind(&role.name)
        .bind(level)
        .bind(role.created_by)
        .bind(role.created_at)
        .execute(write.connection())
        .await
        .map_err(|error| taken(error.into()))?;
        write.commit_rights().await?;
        Ok(role)
    }

    /// Changes the name or the level of a role.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role in the organization,
    /// [`MetadataError::Rejected`] as for a new one.
    pub async fn update_role(
        &self,
        organization: Uuid,
        id: &str,
        name: Option<String>,
        level: Option<i64>,
    ) -> Result<Role, MetadataError> {
        let mut role = self.role(organization, id).await?;
        role.name = name.unwrap_or(role.name);
        role.feature_flags_access_level = level.unwrap_or(role.feature_flags_access_level);
        check(&role.name, role.feature_flags_access_level)?;
        let mut write = self.begin().await?;
        sqlx::query("UPDATE roles SET name = $1, feature_flags_access_level = $2 WHERE id = $3")
            .bind(&role.name)
            .bind(role.feature_flags_access_level)
            .bind(&role.id)
            .execute(write.connection())
            .await
            .map_err(|error| taken(error.into()))?;
        write.commit_rights().await?;
        Ok(role)
    }

    /// Removes a role, with its members and its rights.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role in the organization.
    pub async fn delete_role(&self, organization: Uuid, id: &str) -> Result<(), MetadataError> {
        let role = self.role(organization, id).await?;
        let mut write = self.begin().await?;
        for sql in [
            "DELETE FROM flag_role_access WHERE role = $1",
            "DELETE FROM role_members WHERE role = $1",
            "DELETE FROM roles WHERE id = $1",
        ] {
            sqlx::query(sql).bind(&role.id).execute(write.connection()).await?;
        }
        write.commit_rights().await
    }

    /// The roles of an organization, by time of creation.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn roles(&self, organization: Uuid) -> Result<Vec<Role>, MetadataError> {
        let select = "SELECT * FROM roles WHERE organization = $1 ORDER BY created_at, id";
        let select = sqlx::query_as(select).bind(organization.to_string());
        Ok(select.fetch_all(self.shared.db.readers()).await?)
    }

    /// A role of an organization.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role in the organization.
    pub async fn role(&self, organization: Uuid, id: &str) -> Result<Role, MetadataError> {
        let select = "SELECT * FROM roles WHERE organization = $1 AND id = $2";
        let select = sqlx::query_as(select).bind(organization.to_string()).bind(id.to_lowercase());
        let role = select.fetch_optional(self.shared.db.readers()).await?;
        role.ok_or(MetadataError::NotFound("role"))
    }

    /// Who has a role.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn role_members(&self, role: &str) -> Result<Vec<RoleMember>, MetadataError> {
        let select = "SELECT * FROM role_members WHERE role = $1 ORDER BY joined_at, id";
        Ok(sqlx::query_as(select).bind(role).fetch_all(self.shared.db.readers()).await?)
    }

    /// Gives a role to a user of the same organization.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, [`MetadataError::Rejected`] if the user has
    /// the role.
    pub async fn add_role_member(
        &self,
        role: &Role,
        user: UserId,
        seed: &Seed,
    ) -> Result<RoleMember, MetadataError> {
        let mut write = self.begin().await?;
        let known =
            write.base.user(user).filter(|u| u.organization.to_string() == role.organization);
        known.ok_or(MetadataError::NotFound("user"))?;
        let now = self.now().0;
        let member = RoleMember {
            id: seed.uuid("role member").to_string(),
            role: role.id.clone(),
            user_id: user.0,
            joined_at: now,
            updated_at: now,
        };
        sqlx::query(
            "INSERT INTO role_members (id, role, user_id, joined_at, updated_at)
             VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(&member.id)
        .bind(&member.role)
        .bind(member.user_id)
        .bind(member.joined_at)
        .bind(member.updated_at)
        .execute(write.connection())
        .await
        .map_err(|error| {
            let detail = "User is already part of the role.";
            disk::unless_taken(error.into(), || Violation::general(detail))
        })?;
        write.commit_rights().await?;
        Ok(member)
    }

    /// Takes a role from a user.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a membership.
    pub async fn remove_role_member(&self, role: &Role, id: &str) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let delete = "DELETE FROM role_members WHERE role = $1 AND id = $2";
        let delete = sqlx::query(delete).bind(&role.id).bind(id.to_lowercase());
        let done = delete.execute(write.connection()).await?;
        if done.rows_affected() == 0 {
            return Err(MetadataError::NotFound("membership"));
        }
        write.commit_rights().await
    }

    /// The roles that may change a flag, by id.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn role_accesses(&self, flag: FlagId) -> Result<Vec<RoleAccess>, MetadataError> {
        let select = "SELECT * FROM flag_role_access WHERE flag_id = $1 ORDER BY id";
        Ok(sqlx::query_as(select).bind(flag.0).fetch_all(self.shared.db.readers()).await?)
    }

    /// The flags that a role may change, by id.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn flags_of_role(&self, role: &str) -> Result<Vec<(i64, String)>, MetadataError> {
        let select = "SELECT feature_flags.id, key FROM flag_role_access
             JOIN feature_flags ON feature_flags.id = flag_id WHERE role = $1
             ORDER BY feature_flags.id";
        Ok(sqlx::query_as(select).bind(role).fetch_all(self.shared.db.readers()).await?)
    }

    /// Lets a role change a flag. Twice is as once.
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
        let select = "SELECT * FROM flag_role_access WHERE flag_id = $1 AND role = $2";
        let known = sqlx::query_as(select).bind(flag.0).bind(&role.id);
        if let Some(known) = known.fetch_optional(write.connection()).await? {
            return Ok(known);
        }
        let next = "SELECT COALESCE(MAX(id), 0) + 1 FROM flag_role_access";
        let (id, now) = (disk::next_id(write.connection(), next).await?, self.now());
        let access = RoleAccess {
            id,
            flag_id: flag.0,
            role: role.id.clone(),
            added_at: now.0,
            updated_at: now.0,
        };
        insert_access(write.connection(), &access).await?;
        write.log(project, Some(user), access_change(&stored.key, flag, role, true)).await?;
        write.commit_rights().await?;
        Ok(access)
    }

    /// Takes the right to change a flag from a role.
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
        let delete = "DELETE FROM flag_role_access WHERE id = $1 AND flag_id = $2";
        let delete = sqlx::query(delete).bind(access.id).bind(flag.0);
        if delete.execute(write.connection()).await?.rows_affected() == 0 {
            return Err(MetadataError::NotFound("role access"));
        }
        write.log(project, Some(user), access_change(&stored.key, flag, role, false)).await?;
        write.commit_rights().await
    }
}

async fn insert_access(
    connection: &mut SqliteConnection,
    access: &RoleAccess,
) -> Result<(), MetadataError> {
    sqlx::query(
        "INSERT INTO flag_role_access (id, flag_id, role, added_at, updated_at)
         VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(access.id)
    .bind(access.flag_id)
    .bind(&access.role)
    .bind(access.added_at)
    .bind(access.updated_at)
    .execute(connection)
    .await?;
    Ok(())
}

/// The entry of the log about a right that a role got or lost.
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

fn check(name: &str, level: i64) -> Result<(), MetadataError> {
    check_text("name", name, NAME_MAX_CHARS)?;
    if level == CAN_VIEW || level == CAN_EDIT {
        return Ok(());
    }
    let detail = format!("\"{level}\" is not a valid choice.");
    Err(Violation::choice("feature_flags_access_level", detail).into())
}

fn taken(error: MetadataError) -> MetadataError {
    let detail = "There is already a role with this name.";
    disk::unless_taken(error, || Violation::unique("name", detail))
}

/// A time of a row as clients get it.
pub fn shown(micros: i64) -> String {
    UnixMicros(micros).to_rfc3339()
}

#[cfg(test)]
mod tests {
    use super::CAN_EDIT;
    use super::CAN_VIEW;
    use super::check;

    #[test]
    fn levels_are_two() {
        for (name, level, expected) in [
            ("a", CAN_VIEW, true),
            ("a", CAN_EDIT, true),
            ("a", 22, false),
            ("", CAN_EDIT, false),
            (&"x".repeat(201), CAN_EDIT, false),
        ] {
            assert_eq!(check(name, level).is_ok(), expected, "{name} {level}");
        }
    }
}
