//! The roles that may change one flag: list, create, retrieve, delete.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::body::body;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::page::Page;
use crate::response::{Attr, Problem, Response};
use crate::routes::feature_flags::body::FlagBody;
use crate::routes::feature_flags::status::Calls;
use crate::routes::store::problem;
use crate::routes::{roles, store};
use weir_app::App;
use weir_base::error::Kind;
use weir_metadata::error::MetadataError;
use weir_metadata::flags::{FlagId, StoredFlag};
use weir_metadata::roles::{RoleAccess, shown};

pub(crate) const LIST: Description =
    Description::page::<by_hand::RoleAccess>("The roles that may change a flag");

/// `GET feature_flags/:flag/role_access/`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = flag_of(app, &call).await?;
    let Call { asker, request, .. } = call;
    let accesses = app.node.metadata.role_accesses(flag.id).await.map_err(problem)?;
    let page = Page::of(&request);
    let mut bodies = Vec::new();
    for access in accesses.iter().skip(page.offset).take(page.limit) {
        bodies.push(body(app, &asker, &flag, access).await?);
    }
    let public_url = app.node.config.http.public_url.as_deref();
    let envelope = page.envelope(&request, public_url, accesses.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

pub(crate) const CREATE: Description =
    Description::created::<by_hand::RoleAccess>("Let a role change a flag")
        .body::<RoleAccessWrite>();

/// `POST feature_flags/:flag/role_access/` with `role_id`.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = flag_of(app, &call).await?;
    check_granting(app, &call.asker, &flag)?;
    let Call { asker, request, .. } = call;
    let id = RoleAccessWrite::read(&mut Fields::read(request).await?)?.role_id;
    let role = match app.node.metadata.role(asker.user.organization, &id).await {
        Ok(role) => role,
        Err(MetadataError::NotFound(_)) => {
            let detail = format!("Invalid pk \"{id}\" - object does not exist.");
            return Err(refused("role_id", "does_not_exist", detail));
        }
        Err(error) => return Err(problem(error)),
    };
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let id = flag.id;
    let write = async move { metadata.grant_role(project, user, id, &role).await };
    let access = store::write(app, "grant-role", write).await?;
    Ok(Response::json(StatusCode::CREATED, &body(app, &asker, &flag, &access).await?))
}

pub(crate) const RETRIEVE: Description = Description::ok::<by_hand::RoleAccess>("One access");

/// `GET feature_flags/:flag/role_access/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = flag_of(app, &call).await?;
    let access = access(app, &flag, call.second_id()).await?;
    let asker = call.asker;
    Ok(Response::json(StatusCode::OK, &body(app, &asker, &flag, &access).await?))
}

pub(crate) const DELETE: Description = Description::empty("204", "Take an access back");

/// `DELETE feature_flags/:flag/role_access/:id/`: answered without a body.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = flag_of(app, &call).await?;
    let access = access(app, &flag, call.second_id()).await?;
    check_granting(app, &call.asker, &flag)?;
    let asker = call.asker;
    let role =
        app.node.metadata.role(asker.user.organization, &access.role).await.map_err(problem)?;
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let id = flag.id;
    let write = async move { metadata.revoke_role(project, user, id, &access, &role).await };
    store::write(app, "revoke-role", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

body! {
    /// A role that may change a flag from now on.
    struct RoleAccessWrite {
        role_id: String = {"format": "uuid"},
    }
}

fn check_granting(app: &App, asker: &Principal, flag: &StoredFlag) -> Result<(), Problem> {
    if app.node.metadata.snapshot().may_grant(&asker.user, flag) {
        return Ok(());
    }
    Err(Problem::permission_denied("You can't edit roles for this feature flag."))
}

async fn access(app: &App, flag: &StoredFlag, id: &str) -> Result<RoleAccess, Problem> {
    let accesses = app.node.metadata.role_accesses(flag.id).await.map_err(problem)?;
    let found = accesses.into_iter().find(|access| access.id.to_string() == id);
    found.ok_or_else(|| Problem::not_found("Not found."))
}

async fn flag_of(app: &App, call: &Call<Principal>) -> Result<std::sync::Arc<StoredFlag>, Problem> {
    let not_found = || Problem::not_found("Feature flag not found.");
    let id = call.id().parse().map(FlagId).map_err(|_| not_found())?;
    match app.node.metadata.flag(call.asker.project.id, id).await {
        Ok(flag) => Ok(flag),
        Err(MetadataError::NotFound(_)) => Err(not_found()),
        Err(error) => Err(problem(error)),
    }
}

async fn body(
    app: &App,
    asker: &Principal,
    flag: &StoredFlag,
    access: &RoleAccess,
) -> Result<Value, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let role =
        app.node.metadata.role(asker.user.organization, &access.role).await.map_err(problem)?;
    // A project does not disclose other projects, whoever the caller is.
    let projects = [asker.project.id];
    let role = roles::shown_to(&app.node.metadata, Some(&projects), &role).await?;
    let calls = Calls::of_flag(app, flag.id).await?;
    let flag = serde_json::to_value(FlagBody::new(flag, &snapshot, asker, &calls));
    let flag = flag.map_err(|error| Problem::of(Kind::Internal, &error).with_attr(Attr::Null))?;
    Ok(json!({
        "id": access.id,
        "feature_flag": flag,
        "role": role,
        "added_at": shown(access.added_at),
        "updated_at": shown(access.updated_at),
    }))
}
