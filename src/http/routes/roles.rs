//! Roles of an organization and their members. `:organization` is `@current` or the uuid of the
//! caller's organization.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::auth;
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice, refused};
use crate::operation::input::{Named, input, part};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Member, Operation};
use crate::page::Page;
use crate::response::Problem;
use crate::routes::store::problem;
use crate::routes::user_body::user;
use weir_api::accounts as api;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::accounts::{User, UserId};
use weir_metadata::roles::{Role, RoleMember, RolePatch, shown};
use weir_metadata::snapshot::Snapshot;

input! {
    /// Roles.
    pub struct List {
        query page: Page,
    }
}

impl Operation for List {
    type Who = Member;
    type Out = Listed<api::Role>;
    const SCOPE: &'static str = "organization:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let all = cx.metadata().roles(cx.who.organization.id).await.map_err(problem)?;
        let page = self.page;
        let mut results = Vec::new();
        for role in all.iter().skip(page.offset).take(page.limit) {
            results.push(whole(cx, role).await?);
        }
        Ok(Listed { page, count: all.len(), results })
    }
}

input! {
    /// Makes a role.
    pub struct Create {
        body role: RoleCreate,
    }
}

impl Operation for Create {
    type Who = Member;
    type Out = Created<api::Role>;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_granter()
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let RoleCreate { name, feature_flags_access_level } = self.role;
        let (by, patch) = (cx.user(), patch(Some(name), feature_flags_access_level));
        let write = |metadata: Metadata| async move {
            metadata.create_role(by, patch, &auth::seed()).await
        };
        let role = cx.write("create-role", write).await?;
        Ok(Created(whole(cx, &role).await?))
    }
}

input! {
    /// One role.
    pub struct Retrieve {
        path id: String,
    }
}

impl Operation for Retrieve {
    type Who = Member;
    type Out = api::Role;
    const SCOPE: &'static str = "organization:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        whole(cx, &find(cx, &self.id).await?).await
    }
}

input! {
    /// Changes a role.
    pub struct Update {
        path id: String,
        body role: RoleWrite,
    }
}

impl Operation for Update {
    type Who = Member;
    type Out = api::Role;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_granter()
    }

    async fn look_up(cx: &Context<Member>, path: &Named) -> Result<(), Problem> {
        find(cx, &part::<String>(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let Self { id, role: RoleWrite { name, feature_flags_access_level } } = self;
        let (by, patch) = (cx.user(), patch(name, feature_flags_access_level));
        let write = |metadata: Metadata| async move { metadata.update_role(by, &id, patch).await };
        let role = cx.write("update-role", write).await?;
        whole(cx, &role).await
    }
}

input! {
    /// Deletes a role.
    pub struct Delete {
        path id: String,
    }
}

impl Operation for Delete {
    type Who = Member;
    type Out = Done;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_admin()
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let by = cx.user();
        let write = |metadata: Metadata| async move { metadata.delete_role(by, &self.id).await };
        cx.write("delete-role", write).await?;
        Ok(Done)
    }
}

input! {
    /// Who has a role.
    pub struct Members {
        path id: String,
        query page: Page,
    }
}

impl Operation for Members {
    type Who = Member;
    type Out = Listed<api::Membership>;
    const SCOPE: &'static str = "organization:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let role = find(cx, &self.id).await?;
        let snapshot = cx.snapshot();
        let members = cx.metadata().role_members(&role.id).await.map_err(problem)?;
        Ok(Listed::part_of(self.page, &members, |member| membership(&snapshot, member)))
    }
}

input! {
    /// Gives a role to a user.
    pub struct AddMember {
        path id: String,
        body member: RoleMemberWrite,
    }
}

impl Operation for AddMember {
    type Who = Member;
    type Out = Created<api::Membership>;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_granter()
    }

    async fn look_up(cx: &Context<Member>, path: &Named) -> Result<(), Problem> {
        find(cx, &part::<String>(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let role = find(cx, &self.id).await?.id;
        let (uuid, organization) = (self.member.user_uuid.to_lowercase(), &cx.who.organization);
        let snapshot = cx.snapshot();
        let is_known = |user: &&Arc<User>| {
            user.uuid.to_string() == uuid
                && user.organization == organization.id
                && !user.is_removed()
        };
        let unknown = || refused("user_uuid", "does_not_exist", "User does not exist.");
        let user = snapshot.users().find(is_known).ok_or_else(unknown)?.id;
        let by = cx.user();
        let write = |metadata: Metadata| async move {
            metadata.add_role_member(by, &role, user, &auth::seed()).await
        };
        let member = cx.write("add-role-member", write).await?;
        Ok(Created(membership(&snapshot, &member)))
    }
}

input! {
    /// Takes a role from a user.
    pub struct RemoveMember {
        path id: String,
        path membership: String,
    }
}

impl Operation for RemoveMember {
    type Who = Member;
    type Out = Done;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_admin()
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (by, Self { id, membership }) = (cx.user(), self);
        let write = |metadata: Metadata| async move {
            metadata.remove_role_member(by, &id, &membership).await
        };
        cx.write("remove-role-member", write).await?;
        Ok(Done)
    }
}

/// A role of the caller's organization.
async fn find(cx: &Context<Member>, id: &str) -> Result<Role, Problem> {
    cx.metadata().role(cx.who.organization.id, id).await.map_err(problem)
}

/// Access of members with a role to flags: 21 to read them, or 37 to change them.
#[derive(Clone, Copy, Debug)]
pub struct AccessLevel(pub i64);

impl Field for Option<AccessLevel> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(value) = fields.value(name)? else { return Ok(None) };
        let level = value.as_i64().or_else(|| value.as_str()?.parse().ok());
        level
            .map(|level| Some(AccessLevel(level)))
            .ok_or_else(|| not_a_choice(name, value.as_str().unwrap_or(&value.to_string())))
    }

    fn schema() -> Value {
        json!({"type": "integer", "enum": [21, 37]})
    }
}

body! {
    /// A new role.
    pub struct RoleCreate {
        /// What it is called.
        name: String,
        /// 21 may read, 37 may edit.
        feature_flags_access_level: Option<AccessLevel>,
    }
}

body! {
    /// A change of a role.
    pub struct RoleWrite {
        /// What it is called.
        name: Option<String>,
        /// 21 may read, 37 may edit.
        feature_flags_access_level: Option<AccessLevel>,
    }
}

body! {
    /// A user who gets a role.
    pub struct RoleMemberWrite {
        /// The user.
        user_uuid: String = {"format": "uuid"},
    }
}

fn patch(name: Option<String>, level: Option<AccessLevel>) -> RolePatch {
    RolePatch { name, feature_flags_access_level: level.map(|level| level.0) }
}

/// A role, with its flags in the projects to which the key is limited, or in all.
async fn whole(cx: &Context<Member>, role: &Role) -> Result<api::Role, Problem> {
    shown_to(cx.metadata(), cx.who.key.projects.as_deref(), role).await
}

/// The role, with its flags in `projects`, or in all projects.
pub(super) async fn shown_to(
    metadata: &Metadata,
    projects: Option<&[ProjectId]>,
    role: &Role,
) -> Result<api::Role, Problem> {
    let snapshot = metadata.snapshot();
    let members = metadata.role_members(&role.id).await.map_err(problem)?;
    let mut flags = metadata.flags_of_role(&role.id).await.map_err(problem)?;
    if let Some(own) = projects {
        flags.retain(|flag| own.contains(&ProjectId(flag.project_id)));
    }
    let created_by = role.created_by.and_then(|user| snapshot.user(UserId(user)));
    Ok(api::Role {
        id: role.id.clone(),
        name: role.name.clone(),
        feature_flags_access_level: role.feature_flags_access_level,
        created_at: shown(role.created_at),
        created_by: created_by.map(|own| user(own)),
        members: members.iter().map(|member| membership(&snapshot, member)).collect(),
        associated_flags: flags
            .into_iter()
            .map(|flag| api::RoleFlag { id: flag.id, key: flag.key })
            .collect(),
    })
}

fn membership(snapshot: &Snapshot, member: &RoleMember) -> api::Membership {
    let own = || snapshot.user(UserId(member.user_id)).map(|own| user(own));
    api::Membership {
        id: member.id.clone(),
        role_id: member.role.clone(),
        organization_member: api::RoleMember { user: own() },
        user: own(),
        joined_at: shown(member.joined_at),
        updated_at: shown(member.updated_at),
    }
}
