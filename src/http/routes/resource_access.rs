//! Default access of an organization's members to all flags. `:organization` is `@current` or the uuid
//! of the caller's organization.

use serde_json::{Value, json};

use crate::body::{Field, body};
use crate::fields::{Fields, null};
use crate::operation::input::{Named, input, part};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Member, Operation};
use crate::page::Page;
use crate::response::Problem;
use crate::routes::store::problem;
use crate::routes::user_body::user;
use weir_api::accounts as api;
use weir_metadata::Metadata;
use weir_metadata::accounts::UserId;
use weir_metadata::flag_rights::ResourceAccess;
use weir_metadata::roles::shown;
use weir_metadata::snapshot::Snapshot;

input! {
    /// What members may do with flags by default.
    pub struct List {
        query page: Page,
    }
}

impl Operation for List {
    type Who = Member;
    type Out = Listed<api::ResourceAccess>;
    const SCOPE: &'static str = "organization:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let organization = cx.who.organization.id;
        let found = cx.metadata().resource_accesses(organization).await.map_err(problem)?;
        let snapshot = cx.snapshot();
        Ok(Listed::part_of(self.page, &found, |access| whole(&snapshot, access)))
    }
}

input! {
    /// Sets the default.
    pub struct Create {
        body access: ResourceAccessWrite,
    }
}

impl Operation for Create {
    type Who = Member;
    type Out = Created<api::ResourceAccess>;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_granter()
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (by, ResourceAccessWrite { resource, access_level }) = (cx.user(), self.access);
        let write = |metadata: Metadata| async move {
            metadata.add_resource_access(by, &resource, access_level.0).await
        };
        let access = cx.write("add-resource-access", write).await?;
        Ok(Created(whole(&cx.snapshot(), &access)))
    }
}

input! {
    /// Changes the default.
    pub struct Update {
        path id: i64,
        body access: AccessLevelWrite,
    }
}

impl Operation for Update {
    type Who = Member;
    type Out = api::ResourceAccess;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_granter()
    }

    async fn look_up(cx: &Context<Member>, path: &Named) -> Result<(), Problem> {
        let (id, organization): (i64, _) = (part(path, "id")?, cx.who.organization.id);
        let found = cx.metadata().resource_accesses(organization).await.map_err(problem)?;
        let is_there = found.iter().any(|access| access.id == id);
        is_there.then_some(()).ok_or_else(|| Problem::not_found("Not found."))
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (by, id, level) = (cx.user(), self.id, self.access.access_level.0);
        let write = |metadata: Metadata| async move {
            metadata.change_resource_access(by, id, level).await
        };
        let access = cx.write("change-resource-access", write).await?;
        Ok(whole(&cx.snapshot(), &access))
    }
}

input! {
    /// Lets members change every flag again.
    pub struct Delete {
        path id: i64,
    }
}

impl Operation for Delete {
    type Who = Member;
    type Out = Done;
    const SCOPE: &'static str = "organization:write";

    fn permit(who: &Member) -> Result<(), Problem> {
        who.require_granter()
    }

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (by, id) = (cx.user(), self.id);
        let write =
            |metadata: Metadata| async move { metadata.remove_resource_access(by, id).await };
        cx.write("remove-resource-access", write).await?;
        Ok(Done)
    }
}

/// Default access of members to a resource: 21 to read it, or 37 to change it.
#[derive(Clone, Copy, Debug)]
pub struct AccessLevel(pub i64);

impl Field for AccessLevel {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let level = fields.nullable_integer(name)?.flatten();
        level.map(Self).ok_or_else(|| null(name))
    }

    fn schema() -> Value {
        json!({"type": "integer", "enum": [21, 37]})
    }
}

body! {
    /// A new default.
    pub struct ResourceAccessWrite {
        /// What it is about.
        resource: String = {"enum": ["feature flags"]},
        /// 21: may look; 37: may change.
        access_level: AccessLevel,
    }
}

body! {
    /// A change of the default.
    pub struct AccessLevelWrite {
        /// 21: may look; 37: may change.
        access_level: AccessLevel,
    }
}

fn whole(snapshot: &Snapshot, access: &ResourceAccess) -> api::ResourceAccess {
    let created_by = access.created_by.and_then(|user| snapshot.user(UserId(user)));
    api::ResourceAccess {
        id: access.id,
        resource: access.resource.clone(),
        access_level: access.access_level,
        organization: access.organization.clone(),
        created_at: shown(access.created_at),
        updated_at: shown(access.updated_at),
        created_by: created_by.map(|own| user(own)),
    }
}
