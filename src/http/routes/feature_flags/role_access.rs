//! The roles that may change one flag: list, create, retrieve, delete.

use std::sync::Arc;

use crate::auth::Principal;
use crate::body::body;
use crate::fields::refused;
use crate::operation::input::{Named, input, part};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::Problem;
use crate::routes::feature_flags::status::Calls;
use crate::routes::store::problem;
use crate::routes::{feature_flags, roles};
use weir_api::flags as api;
use weir_api::flags::ByName;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::flags::{FlagId, StoredFlag};
use weir_metadata::roles::{RoleAccess, shown};

input! {
    /// The roles that may change a flag.
    pub struct List {
        path id: String,
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Listed<api::RoleAccess>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = flag_of(cx, &self.id).await?;
        let accesses = cx.metadata().role_accesses(flag.id).await.map_err(problem)?;
        let page = self.page;
        let mut results = Vec::new();
        for access in accesses.iter().skip(page.offset).take(page.limit) {
            results.push(whole(cx, &flag, access).await?);
        }
        Ok(Listed { page, count: accesses.len(), results })
    }
}

input! {
    /// Lets a role change a flag.
    pub struct Create {
        path id: String,
        body access: RoleAccessWrite,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::RoleAccess>;
    const SCOPE: &'static str = "feature_flag:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        check_granting(cx, &*flag_of(cx, &part::<String>(path, "id")?).await?)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = flag_of(cx, &self.id).await?;
        check_granting(cx, &flag)?;
        let role = self.access.role_id;
        let role = match cx.metadata().role(cx.who.user.organization, &role).await {
            Ok(role) => role,
            Err(MetadataError::NotFound(_)) => {
                let detail = format!("Invalid pk \"{role}\" - object does not exist.");
                return Err(refused("role_id", "does_not_exist", detail));
            }
            Err(error) => return Err(problem(error)),
        };
        let (project, user, id) = (cx.who.project.id, cx.user(), flag.id);
        let write =
            |metadata: Metadata| async move { metadata.grant_role(project, user, id, &role).await };
        let access = cx.write("grant-role", write).await?;
        Ok(Created(whole(cx, &flag, &access).await?))
    }
}

input! {
    /// One access.
    pub struct Retrieve {
        path id: String,
        path access: String,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::RoleAccess;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = flag_of(cx, &self.id).await?;
        whole(cx, &flag, &access(cx, &flag, &self.access).await?).await
    }
}

input! {
    /// Takes an access back.
    pub struct Delete {
        path id: String,
        path access: String,
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = flag_of(cx, &self.id).await?;
        let access = access(cx, &flag, &self.access).await?;
        check_granting(cx, &flag)?;
        let organization = cx.who.user.organization;
        let role = cx.metadata().role(organization, &access.role).await.map_err(problem)?;
        let (project, user, id) = (cx.who.project.id, cx.user(), flag.id);
        let write = |metadata: Metadata| async move {
            metadata.revoke_role(project, user, id, &access, &role).await
        };
        cx.write("revoke-role", write).await?;
        Ok(Done)
    }
}

body! {
    /// A role that may change a flag from now on.
    pub struct RoleAccessWrite {
        /// The role
        role_id: String = {"format": "uuid"},
    }
}

fn check_granting(cx: &Context<Principal>, flag: &StoredFlag) -> Result<(), Problem> {
    if cx.snapshot().may_grant(&cx.who.user, flag) {
        return Ok(());
    }
    Err(Problem::permission_denied("You can't edit roles for this feature flag."))
}

async fn access(
    cx: &Context<Principal>,
    flag: &StoredFlag,
    id: &str,
) -> Result<RoleAccess, Problem> {
    let accesses = cx.metadata().role_accesses(flag.id).await.map_err(problem)?;
    let found = accesses.into_iter().find(|access| access.id.to_string() == id);
    found.ok_or_else(|| Problem::not_found("Not found."))
}

async fn flag_of(cx: &Context<Principal>, id: &str) -> Result<Arc<StoredFlag>, Problem> {
    let not_found = || Problem::not_found("Feature flag not found.");
    let id = id.parse().map(FlagId).map_err(|_| not_found())?;
    match cx.metadata().flag(cx.who.project.id, id).await {
        Ok(flag) => Ok(flag),
        Err(MetadataError::NotFound(_)) => Err(not_found()),
        Err(error) => Err(problem(error)),
    }
}

async fn whole(
    cx: &Context<Principal>,
    flag: &StoredFlag,
    access: &RoleAccess,
) -> Result<api::RoleAccess, Problem> {
    let organization = cx.who.user.organization;
    let role = cx.metadata().role(organization, &access.role).await.map_err(problem)?;
    // A project does not disclose other projects, whoever the caller is.
    let projects = [cx.who.project.id];
    let role = roles::shown_to(cx.metadata(), Some(&projects), &role).await?;
    let calls = Calls::of_flag(&cx.app, flag.id).await?;
    Ok(api::RoleAccess {
        added_at: shown(access.added_at),
        feature_flag: ByName(feature_flags::shown(cx, flag, &calls)),
        id: access.id,
        role: ByName(role),
        updated_at: shown(access.updated_at),
    })
}
