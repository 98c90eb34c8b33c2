//! Roles: users with rights to flags, and the flags that a role may change. Not part of the
//! snapshot, because no hot path reads them; the resulting rights are (`flag_rights`). A role
//! belongs to an organization, so its changes are logged in each of its projects.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use crate::accounts::{User, UserId, check_text};
use crate::activity::{Change, Logged, Scope, Subject, Verb};
use crate::connection::Conn;
use crate::entity::{Columns, Entity, Patch, entity};
use crate::error::MetadataError;
use crate::flag_rights::{CAN_EDIT, CAN_VIEW};
pub use crate::roles::accesses::RoleAccess;
use crate::secrets::Seed;
use crate::violation::Violation;
use crate::{Metadata, Write, disk, flag_rights, sql};
use weir_base::clock::UnixMicros;

mod accesses;

/// Longest name, in characters; PostHog's column width.
const NAME_MAX_CHARS: usize = 200;

entity! {
    /// A role.
    #[derive(Default)]
    pub struct Role in "roles" {
        /// A UUID.
        id: String [key],
        /// The organization, a UUID.
        organization: String [once],
        /// The user who created it.
        created_by: Option<i64> [once],
        /// Time of creation, in microseconds since 1970.
        created_at: i64 [once],
    }
    /// Values of a role; `None` leaves a field unchanged.
    pub struct RolePatch {
        /// Unique in the organization.
        name: String [logged],
        /// [`CAN_VIEW`] or [`CAN_EDIT`].
        feature_flags_access_level: i64 [logged],
    }
}

entity! {
    /// A user who has a role.
    pub struct RoleMember in "role_members" {
        /// A UUID.
        id: String [key],
        /// The role, a UUID.
        role: String [once],
        /// The user.
        user_id: i64 [once],
        /// Time at which the user got it, in microseconds since 1970.
        joined_at: i64 [once],
        /// Time of the last change, in microseconds since 1970.
        updated_at: i64,
    }
}

impl Logged for Role {
    fn subject(&self) -> Subject {
        let (item, name) = (self.id.clone(), self.name.clone());
        Subject { scope: Scope::Role, item, name, project: None }
    }
}

impl Metadata {
    /// Creates a role in the organization of `by`. Without a level it gets the default level of the
    /// organization, or [`CAN_EDIT`].
    ///
    /// # Errors
    ///
    /// [`MetadataError::Rejected`] for an invalid or taken name, or an unknown level.
    pub async fn create_role(
        &self,
        by: UserId,
        mut new: RolePatch,
        seed: &Seed,
    ) -> Result<Role, MetadataError> {
        let level = new.feature_flags_access_level;
        check(new.name.as_deref().unwrap_or_default(), level.unwrap_or(CAN_EDIT))?;
        let mut write = self.begin().await?;
        let organization = write.user(by)?.organization;
        if level.is_none() {
            let level = flag_rights::default_level(write.connection(), organization).await?;
            new.feature_flags_access_level = Some(level);
        }
        let role = new.applied(Role {
            id: seed.uuid("role").to_string(),
            organization: organization.to_string(),
            created_by: Some(by.0),
            created_at: self.now().0,
            ..Role::default()
        });
        write.create(by, &role).await.map_err(taken)?;
        write.commit_rights().await?;
        Ok(role)
    }

    /// Changes the name or the level of a role.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role in the organization of `by`,
    /// [`MetadataError::Rejected`] as for a new one.
    pub async fn update_role(
        &self,
        by: UserId,
        id: &str,
        patch: RolePatch,
    ) -> Result<Role, MetadataError> {
        let mut write = self.begin().await?;
        let before = write.role(by, id).await?;
        let role = patch.applied(before.clone());
        check(&role.name, role.feature_flags_access_level)?;
        write.change(by, &before, &role).await.map_err(taken)?;
        write.commit_rights().await?;
        Ok(role)
    }

    /// Removes a role, with its members and its rights, whose removal is logged.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role in the organization of `by`.
    pub async fn delete_role(&self, by: UserId, id: &str) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let role = write.role(by, id).await?;
        write.revoke_all(by, &role).await?;
        let delete = sql::query("DELETE FROM role_members WHERE role = $1").bind(&role.id);
        delete.execute(write.connection()).await?;
        write.remove(by, &role).await?;
        write.commit_rights().await
    }

    /// The roles of an organization, by time of creation.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn roles(&self, organization: Uuid) -> Result<Vec<Role>, MetadataError> {
        let select = Role::select("WHERE organization = $1 ORDER BY created_at, id")
            .bind(organization.to_string());
        Ok(select.fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// A role of an organization.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role in the organization.
    pub async fn role(&self, organization: Uuid, id: &str) -> Result<Role, MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        by_id(&mut connection, organization, id).await
    }

    /// The members of a role.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn role_members(&self, role: &str) -> Result<Vec<RoleMember>, MetadataError> {
        Ok(RoleMember::select("WHERE role = $1 ORDER BY joined_at, id")
            .bind(role)
            .fetch_all(&mut self.shared.db.reader().await?)
            .await?)
    }

    /// Gives a role to a user of the same organization, in the name of `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role or user, [`MetadataError::Rejected`] if the
    /// user has the role already.
    pub async fn add_role_member(
        &self,
        by: UserId,
        role: &str,
        user: UserId,
        seed: &Seed,
    ) -> Result<RoleMember, MetadataError> {
        let mut write = self.begin().await?;
        let role = write.role(by, role).await?;
        let known = Arc::clone(write.user(user)?);
        if known.organization.to_string() != role.organization {
            return Err(MetadataError::NotFound("user"));
        }
        let now = self.now().0;
        let member = RoleMember {
            id: seed.uuid("role member").to_string(),
            role: role.id.clone(),
            user_id: user.0,
            joined_at: now,
            updated_at: now,
        };
        member.insert().execute(write.connection()).await.map_err(|error| {
            let detail = "User is already part of the role.";
            disk::unless_taken(error.into(), || Violation::general(detail))
        })?;
        write.log_everywhere(by, membership_change(&role, &known, true)).await?;
        write.commit_rights().await?;
        Ok(member)
    }

    /// Removes a role from a user, in the name of `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a role or membership.
    pub async fn remove_role_member(
        &self,
        by: UserId,
        role: &str,
        id: &str,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let role = write.role(by, role).await?;
        let delete = "DELETE FROM role_members WHERE role = $1 AND id = $2 RETURNING user_id";
        let delete = sql::query_scalar(delete).bind(&role.id).bind(id.to_lowercase());
        let user: Option<i64> = delete.fetch_optional(write.connection()).await?;
        let user = user.ok_or(MetadataError::NotFound("membership"))?;
        if let Some(user) = write.base.user(UserId(user)).cloned() {
            write.log_everywhere(by, membership_change(&role, &user, false)).await?;
        }
        write.commit_rights().await
    }
}

impl Write {
    /// A role of the organization of `by`, as it is in this transaction.
    async fn role(&mut self, by: UserId, id: &str) -> Result<Role, MetadataError> {
        let organization = self.user(by)?.organization;
        by_id(self.connection(), organization, id).await
    }

    /// Removes all roles from a user who leaves; logged as done by `by`.
    pub(super) async fn take_roles(
        &mut self,
        by: UserId,
        user: &User,
    ) -> Result<(), MetadataError> {
        let select = Role::select(
            "WHERE id IN (SELECT role FROM role_members WHERE user_id = $1) ORDER BY created_at, id",
        )
        .bind(user.id.0);
        let roles: Vec<Role> = select.fetch_all(self.connection()).await?;
        let delete = "DELETE FROM role_members WHERE user_id = $1";
        sql::query(delete).bind(user.id.0).execute(self.connection()).await?;
        for role in roles {
            self.log_everywhere(by, membership_change(&role, user, false)).await?;
        }
        Ok(())
    }
}

async fn by_id(connection: &mut Conn, organization: Uuid, id: &str) -> Result<Role, MetadataError> {
    let select = Role::select("WHERE organization = $1 AND id = $2")
        .bind(organization.to_string())
        .bind(id.to_lowercase());
    let role = select.fetch_optional(connection).await?;
    role.ok_or(MetadataError::NotFound("role"))
}

/// The activity entry for a user who got or lost a role.
fn membership_change(role: &Role, user: &User, is_new: bool) -> Change {
    let email = Some(user.email.as_str());
    let field = json!({
        "type": Scope::Role.name(),
        "action": if is_new { "created" } else { "deleted" },
        "field": "member",
        "before": email.filter(|_| !is_new),
        "after": email.filter(|_| is_new),
    });
    role.entry(Verb::Updated, vec![field])
}

fn check(name: &str, level: i64) -> Result<(), MetadataError> {
    check_text("name", name, NAME_MAX_CHARS)?;
    Ok(check_level("feature_flags_access_level", level)?)
}

/// Checks a level in the field `name`.
pub(super) fn check_level(name: &'static str, level: i64) -> Result<(), Violation> {
    if level == CAN_VIEW || level == CAN_EDIT {
        return Ok(());
    }
    Err(Violation::choice(name, format!("\"{level}\" is not a valid choice.")))
}

fn taken(error: MetadataError) -> MetadataError {
    let detail = "There is already a role with this name.";
    disk::unless_taken(error, || Violation::unique("name", detail))
}

/// A time of a row as the API shows it.
pub fn shown(micros: i64) -> String {
    UnixMicros(micros).to_rfc3339()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::flag_rights::{CAN_EDIT, CAN_VIEW};

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
