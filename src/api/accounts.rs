//! Users, organizations and their members, roles.

use schemars::JsonSchema;
use serde::Serialize;

/// A user embedded in another object.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct User {
    /// The number of the user.
    pub id: i64,
    /// The id in paths.
    pub uuid: String,
    /// The id in events of the original's own analytics.
    pub distinct_id: String,
    /// The name.
    pub first_name: String,
    /// The email address.
    pub email: String,
    /// Always true: members are added by admins.
    pub is_email_verified: bool,
}

/// An organization.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Organization {
    /// The id in paths, a UUID.
    pub id: String,
    /// The name.
    pub name: String,
    /// The time of its creation.
    pub created_at: String,
    /// The caller's level in the organization.
    #[schemars(extend("enum" = [1, 8, 15]))]
    pub membership_level: i64,
}

/// A member of an organization.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Member {
    /// The UUID of the user.
    pub id: String,
    /// The user.
    pub user: User,
    /// 1: member, 8: admin, 15: owner.
    #[schemars(extend("enum" = [1, 8, 15]))]
    pub level: i64,
    /// The time of joining.
    pub joined_at: String,
    /// The first key of a new member; returned only on creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personal_api_key: Option<String>,
}

/// A role.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Role {
    /// The id in paths, a UUID.
    pub id: String,
    /// The name.
    pub name: String,
    /// 21: its members may look at flags; 37: they may change them.
    pub feature_flags_access_level: i64,
    /// The time of its creation.
    pub created_at: String,
    /// Who made it.
    pub created_by: Option<User>,
    /// Who has it.
    pub members: Vec<Membership>,
    /// The flags that its members may change, whatever their level.
    pub associated_flags: Vec<RoleFlag>,
}

/// A flag that those with a role may change.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RoleFlag {
    /// The id of the flag.
    pub id: i64,
    /// The key of the flag.
    pub key: String,
}

/// A user with a role.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Membership {
    /// The id in paths, a UUID.
    pub id: String,
    /// The role.
    pub role_id: String,
    /// The member of the organization.
    pub organization_member: RoleMember,
    /// The user.
    pub user: Option<User>,
    /// The time of joining.
    pub joined_at: String,
    /// The time of the last change.
    pub updated_at: String,
}

/// The member of the organization who has a role.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct RoleMember {
    /// The user.
    pub user: Option<User>,
}

/// What members may do with a resource if no role says otherwise.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ResourceAccess {
    /// The id in paths.
    pub id: i64,
    /// `feature flags`.
    pub resource: String,
    /// 21: may look; 37: may change.
    pub access_level: i64,
    /// The organization, a UUID.
    pub organization: String,
    /// The time of its creation.
    pub created_at: String,
    /// The time of the last change.
    pub updated_at: String,
    /// Who made it.
    pub created_by: Option<User>,
}

/// The owner of a key.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Me {
    /// What other users see, too.
    #[serde(flatten)]
    pub user: User,
    /// The time of joining.
    pub date_joined: String,
    /// The project of `@current`; none if the key may not use it.
    pub team: Option<CurrentProject>,
    /// The organization.
    pub organization: Option<Organization>,
    /// The organization, as a list.
    pub organizations: Vec<Organization>,
}

/// The project of `@current`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CurrentProject {
    /// The id in paths.
    pub id: i64,
    /// The name.
    pub name: String,
    /// The organization, a UUID.
    pub organization: String,
    /// The token of the SDKs.
    pub api_token: String,
    /// The name of its time zone.
    pub timezone: String,
}
