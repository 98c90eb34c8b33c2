//! Rights to change flags: everyone may, unless the organization sets its members to view only. Then only
//! admins, the creator of the flag, and users with a role that may change every flag or this one
//! (PostHog's rule). Part of the snapshot, because each flag in an answer contains its right.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::accounts::{User, UserId};
use crate::connection::Conn;
use crate::entity::{Numbered, entity};
use crate::error::MetadataError;
use crate::flags::{FlagId, StoredFlag};
use crate::members::Level;
use crate::{disk, sql};

mod operations;

/// `feature_flags_access_level` of a role that may view flags.
pub const CAN_VIEW: i64 = 21;

/// `feature_flags_access_level` of a role that may change every flag.
pub const CAN_EDIT: i64 = 37;

/// The one kind of object that has a default.
const FEATURE_FLAGS: &str = "feature flags";

/// The error for a user who may not change a flag; PostHog's words.
pub const NO_EDITOR: &str = "You don't have edit permissions for this feature flag.";

/// The error for a user who may not change every flag.
const NO_EDITOR_OF_ALL: &str = "You don't have edit permissions for all feature flags.";

entity! {
    /// The default rights of the members of an organization to flags.
    pub struct ResourceAccess in "resource_access" {
        /// Unique.
        id: i64 [key],
        /// The organization, a UUID.
        organization: String [once],
        /// `feature flags`.
        resource: String [once],
        /// [`CAN_VIEW`] or [`CAN_EDIT`].
        ///
        /// [`CAN_VIEW`]: crate::flag_rights::CAN_VIEW
        access_level: i64 [logged_as("feature_flags_access_level")],
        /// The user who set it.
        created_by: Option<i64> [once],
        /// Time of creation, in microseconds since 1970.
        created_at: i64 [once],
        /// Time of the last change, in microseconds since 1970.
        updated_at: i64,
    }
}

impl Numbered for ResourceAccess {}

/// The rights of all users, as far as they differ from the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FlagRights {
    /// Organizations whose members may only view flags.
    restricted: BTreeSet<Uuid>,
    /// Users with a role that may change every flag.
    editors: BTreeSet<UserId>,
    /// The flags that users may change by a role.
    granted: BTreeMap<UserId, BTreeSet<FlagId>>,
}

impl FlagRights {
    /// Reads the rights as of a transaction.
    pub(super) async fn load(connection: &mut Conn) -> Result<Self, MetadataError> {
        let select = "SELECT organization FROM resource_access
             WHERE resource = $1 AND access_level < $2";
        let select = sql::query_scalar(select).bind(FEATURE_FLAGS).bind(CAN_EDIT);
        let organizations: Vec<String> = select.fetch_all(&mut *connection).await?;
        if organizations.is_empty() {
            return Ok(Self::default());
        }
        let restricted = organizations.iter().map(|id| disk::from_uuid("resource_access", id));
        let select = "SELECT user_id FROM role_members JOIN roles ON roles.id = role
             WHERE feature_flags_access_level >= $1";
        let editors: Vec<i64> =
            sql::query_scalar(select).bind(CAN_EDIT).fetch_all(&mut *connection).await?;
        let select = "SELECT user_id, flag_id FROM role_members
             JOIN flag_role_access ON flag_role_access.role = role_members.role";
        let pairs: Vec<(i64, i64)> = sql::query_as(select).fetch_all(connection).await?;
        let mut granted: BTreeMap<UserId, BTreeSet<FlagId>> = BTreeMap::new();
        for (user, flag) in pairs {
            granted.entry(UserId(user)).or_default().insert(FlagId(flag));
        }
        Ok(Self {
            restricted: restricted.collect::<Result<_, _>>()?,
            editors: editors.into_iter().map(UserId).collect(),
            granted,
        })
    }

    /// Whether `user` may change every flag, whoever created it.
    fn may_edit_all(&self, user: &User) -> bool {
        user.level >= Level::Admin
            || !self.restricted.contains(&user.organization)
            || self.editors.contains(&user.id)
    }

    /// Whether `user` may change `flag` without a role for this flag.
    fn may_grant(&self, user: &User, flag: &StoredFlag) -> bool {
        self.may_edit_all(user) || flag.created_by == Some(user.id)
    }
}

/// The default level of the members of an organization.
pub(super) async fn default_level(
    connection: &mut Conn,
    organization: Uuid,
) -> Result<i64, MetadataError> {
    let select = "SELECT access_level FROM resource_access
         WHERE organization = $1 AND resource = $2";
    let select = sql::query_scalar(select).bind(organization.to_string()).bind(FEATURE_FLAGS);
    Ok(select.fetch_optional(connection).await?.unwrap_or(CAN_EDIT))
}
