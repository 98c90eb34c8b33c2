//! The organization of a user, and its members with their levels. A user belongs to one organization.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth;
use crate::auth::Asker;
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice};
use crate::operation::input::{Named, input, part};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Member, Operation};
use crate::page::Page;
use crate::response::Problem;
use crate::routes::user_body;
use weir_api::accounts as api;
use weir_metadata::Metadata;
use weir_metadata::accounts::{Grant, PersonalKey, User, UserId};
use weir_metadata::members::{Level, NewMember, Organization};

input! {
    /// The organization of the asker.
    pub struct List {
        query page: Page,
    }
}

impl Operation for List {
    type Who = Asker;
    type Out = Listed<api::Organization>;
    const SCOPE: &'static str = "organization:read";

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let (snapshot, user) = (cx.snapshot(), &cx.who.user);
        let own = snapshot.organization(user.organization);
        Ok(Listed::part_of(self.page, own.as_slice(), |own| organization(own, user.level)))
    }
}

input! {
    /// One organization.
    pub struct Retrieve {}
}

impl Operation for Retrieve {
    type Who = Member;
    type Out = api::Organization;
    const SCOPE: &'static str = "organization:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        Ok(organization(&cx.who.organization, cx.who.user.level))
    }
}

input! {
    /// Renames an organization.
    pub struct Update {
        body change: OrganizationWrite,
    }
}

impl Operation for Update {
    type Who = Member;
    type Out = api::Organization;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_admin()
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let own = &cx.who.organization;
        let name = self.change.name.unwrap_or_else(|| own.name.clone());
        let id = own.id;
        let write =
            |metadata: Metadata| async move { metadata.rename_organization(id, &name).await };
        let renamed = cx.write("rename-organization", write).await?;
        Ok(organization(&renamed, cx.who.user.level))
    }
}

input! {
    /// Members by the time of joining.
    pub struct Members {
        query page: Page,
    }
}

impl Operation for Members {
    type Who = Member;
    type Out = Listed<api::Member>;
    const SCOPE: &'static str = "organization_member:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (snapshot, own) = (cx.snapshot(), cx.who.organization.id);
        let is_member = |user: &&Arc<User>| user.organization == own && !user.is_removed();
        let members: Vec<&Arc<User>> = snapshot.users().filter(is_member).collect();
        Ok(Listed::part_of(self.page, members, |user| member(user)))
    }
}

input! {
    /// Adds a member. There are no passwords and no mails: the answer has the member's first key, only here. It has the
    /// scopes of the key that asks for it.
    pub struct AddMember {
        body member: MemberWrite,
    }
}

impl Operation for AddMember {
    type Who = Member;
    type Out = Created<api::Member>;
    const SCOPE: &'static str = "organization_member:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_admin()
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let MemberWrite { email, first_name, level } = self.member;
        let (by, key, level) = (cx.user(), &cx.who.key, level.unwrap_or(Level::Member));
        check_granted(key, level)?;
        let grant = Grant { scopes: key.scopes.clone(), projects: key.projects.clone() };
        let local = email.split('@').next().unwrap_or_default().to_owned();
        let first_name = first_name.filter(|name| !name.is_empty()).unwrap_or(local);
        let new = NewMember { first_name, email, level };
        let write = |metadata: Metadata| async move {
            metadata.add_member(by, new, grant, &auth::seed()).await
        };
        let (user, key) = cx.write("add-member", write).await?;
        Ok(Created(api::Member { personal_api_key: Some(key.value), ..member(&user) }))
    }
}

input! {
    /// Changes the level of a member.
    pub struct UpdateMember {
        path uuid: String,
        body change: LevelWrite,
    }
}

impl Operation for UpdateMember {
    type Who = Member;
    type Out = api::Member;
    const SCOPE: &'static str = "organization_member:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_admin()
    }

    async fn look_up(cx: &Context<Member>, path: &Named) -> Result<(), Problem> {
        find(cx, &part::<String>(path, "uuid")?).map(drop)
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (by, id, level) = (cx.user(), find(cx, &self.uuid)?, self.change.level);
        check_granted(&cx.who.key, level)?;
        let write = |metadata: Metadata| async move { metadata.set_level(by, id, level).await };
        let user = cx.write("set-level", write).await?;
        Ok(member(&user))
    }
}

input! {
    /// Removes a member; the member's keys end. Members may remove themselves.
    pub struct RemoveMember {
        path uuid: String,
    }
}

impl Operation for RemoveMember {
    type Who = Member;
    type Out = Done;
    const SCOPE: &'static str = "organization_member:write";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (by, id) = (cx.user(), find(cx, &self.uuid)?);
        if by != id {
            cx.who.require_admin()?;
        }
        let write = |metadata: Metadata| async move { metadata.remove_member(by, id).await };
        cx.write("remove-member", write).await?;
        Ok(Done)
    }
}

/// Checks that a key may give a user a level. A level above member applies to all keys of this user, including those
/// with more scopes than the caller's key; so it requires a key with all scopes.
fn check_granted(key: &PersonalKey, level: Level) -> Result<(), Problem> {
    if level > Level::Member && !key.grants("*:write") {
        let detail = "Only an API key with all scopes gives somebody a level above a member's.";
        return Err(Problem::permission_denied(detail));
    }
    Ok(())
}

/// The member with this uuid; `@me` is the caller.
fn find(cx: &Context<Member>, uuid: &str) -> Result<UserId, Problem> {
    if uuid == "@me" {
        return Ok(cx.user());
    }
    let not_found = || Problem::not_found("Not found.");
    let uuid = Uuid::try_parse(uuid).map_err(|_| not_found())?;
    let snapshot = cx.snapshot();
    let user = snapshot.users().find(|user| user.uuid == uuid);
    user.map(|user| user.id).ok_or_else(not_found)
}

/// `organization` as sent to a user of this level.
pub(super) fn organization(organization: &Organization, level: Level) -> api::Organization {
    api::Organization {
        id: organization.id.to_string(),
        name: organization.name.clone(),
        created_at: organization.created_at.to_rfc3339(),
        membership_level: level.number(),
    }
}

fn member(user: &User) -> api::Member {
    api::Member {
        id: user.uuid.to_string(),
        user: user_body::user(user),
        level: user.level.number(),
        joined_at: user.created_at.to_rfc3339(),
        personal_api_key: None,
    }
}

impl Field for Option<Level> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(number) = fields.nullable_integer(name)?.flatten() else { return Ok(None) };
        Level::from_number(number).map(Some).ok_or_else(|| not_a_choice(name, number))
    }

    fn schema() -> Value {
        json!({"type": "integer", "enum": [1, 8, 15]})
    }
}

/// Null is the level of a member.
impl Field for Level {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        Ok(<Option<Self> as Field>::take(fields, name)?.unwrap_or(Self::Member))
    }

    fn schema() -> Value {
        <Option<Self> as Field>::schema()
    }
}

body! {
    /// A change of an organization.
    pub struct OrganizationWrite {
        /// What it is called.
        name: Option<String>,
    }
}

body! {
    /// A new member.
    pub struct MemberWrite {
        /// The email address.
        email: String = {"format": "email"},
        /// The name; by default what is before the `@`.
        first_name: Option<String>,
        /// 1: member, 8: admin, 15: owner.
        level: Option<Level>,
    }
}

body! {
    /// A change of a member.
    pub struct LevelWrite {
        /// 1: member, 8: admin, 15: owner.
        level: Level,
    }
}
