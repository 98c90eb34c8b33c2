//! Roles of an organization and their members. `:organization` is `@current` or the uuid of the
//! caller's organization.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::event::id::ProjectId;
use crate::http::auth;
use crate::http::auth::Asker;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::page::Page;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::organizations::own;
use crate::http::routes::organizations::own_as_admin;
use crate::http::routes::store;
use crate::http::routes::store::problem;
use crate::http::routes::user_body::UserBody;
use crate::metadata::accounts::User;
use crate::metadata::accounts::UserId;
use crate::metadata::roles::Role;
use crate::metadata::roles::RoleMember;
use crate::metadata::roles::shown;
use crate::metadata::snapshot::Snapshot;

/// `GET /api/organizations/:organization/roles/`.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own(app, &call)?;
    let snapshot = app.metadata.snapshot();
    let roles = app.metadata.roles(organization.id).await.map_err(problem)?;
    let page = Page::of(&call.request);
    let mut bodies = Vec::new();
    for role in roles.iter().skip(page.offset).take(page.limit) {
        bodies.push(body(app, &snapshot, call.asker.key.projects.as_deref(), role).await?);
    }
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&call.request, public_url, roles.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `POST /api/organizations/:organization/roles/`.
pub async fn create(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    fields.require("name")?;
    let name = fields.text("name")?.unwrap_or_default();
    let level = level(&mut fields)?;
    let (metadata, by) = (app.metadata.clone(), asker.user.id);
    let write = async move { metadata.create_role(by, &name, level, &auth::seed()).await };
    let role = store::write(app, "create-role", write).await?;
    let body = body(app, &app.metadata.snapshot(), asker.key.projects.as_deref(), &role).await?;
    Ok(Response::json(StatusCode::CREATED, &body))
}

/// `GET /api/organizations/:organization/roles/:id/`.
pub async fn retrieve(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let role = find(app, &call).await?;
    let body =
        body(app, &app.metadata.snapshot(), call.asker.key.projects.as_deref(), &role).await?;
    Ok(Response::json(StatusCode::OK, &body))
}

/// `PATCH /api/organizations/:organization/roles/:id/`.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let id = call.second_id().to_owned();
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    let (name, level) = (fields.text("name")?, level(&mut fields)?);
    let (metadata, by) = (app.metadata.clone(), asker.user.id);
    let write = async move { metadata.update_role(by, &id, name, level).await };
    let role = store::write(app, "update-role", write).await?;
    let body = body(app, &app.metadata.snapshot(), asker.key.projects.as_deref(), &role).await?;
    Ok(Response::json(StatusCode::OK, &body))
}

/// `DELETE /api/organizations/:organization/roles/:id/`.
pub async fn delete(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let (metadata, by, id) =
        (app.metadata.clone(), call.asker.user.id, call.second_id().to_owned());
    let write = async move { metadata.delete_role(by, &id).await };
    store::write(app, "delete-role", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// `GET /api/organizations/:organization/roles/:id/role_memberships/`.
pub async fn members(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let role = find(app, &call).await?;
    let snapshot = app.metadata.snapshot();
    let members = app.metadata.role_members(&role.id).await.map_err(problem)?;
    let page = Page::of(&call.request);
    let shown = members.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|member| membership(&snapshot, member)).collect();
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&call.request, public_url, members.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `POST /api/organizations/:organization/roles/:id/role_memberships/` with `user_uuid`.
pub async fn add_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own_as_admin(app, &call)?;
    // 404 for an unknown role precedes 400 for a bad body.
    let role = find(app, &call).await?.id;
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    fields.require("user_uuid")?;
    let uuid = fields.text("user_uuid")?.unwrap_or_default().to_lowercase();
    let snapshot = app.metadata.snapshot();
    let is_known = |user: &&Arc<User>| {
        user.uuid.to_string() == uuid && user.organization == organization.id && !user.is_removed
    };
    let unknown = || refused("user_uuid", "does_not_exist", "User does not exist.");
    let user = snapshot.users().find(is_known).ok_or_else(unknown)?.id;
    let (metadata, by) = (app.metadata.clone(), asker.user.id);
    let write = async move { metadata.add_role_member(by, &role, user, &auth::seed()).await };
    let member = store::write(app, "add-role-member", write).await?;
    Ok(Response::json(StatusCode::CREATED, &membership(&snapshot, &member)))
}

/// `DELETE /api/organizations/:organization/roles/:id/role_memberships/:membership/`.
pub async fn remove_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let role = call.second_id().to_owned();
    let membership = call.parameters.get(2).cloned().unwrap_or_default();
    let (metadata, by) = (app.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.remove_role_member(by, &role, &membership).await };
    store::write(app, "remove-role-member", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// The role in the path, in the caller's organization.
async fn find(app: &App, call: &Call<Asker>) -> Result<Role, Problem> {
    let organization = own(app, call)?;
    app.metadata.role(organization.id, call.second_id()).await.map_err(problem)
}

fn level(fields: &mut Fields) -> Result<Option<i64>, Problem> {
    const NAME: &str = "feature_flags_access_level";
    let Some(value) = fields.value(NAME)? else { return Ok(None) };
    let level = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    level.map(Some).ok_or_else(|| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        refused(NAME, "invalid_choice", format!("\"{text}\" is not a valid choice."))
    })
}

/// A role as sent to clients, with its flags in `projects`, or in all projects.
pub(super) async fn body(
    app: &App,
    snapshot: &Snapshot,
    projects: Option<&[ProjectId]>,
    role: &Role,
) -> Result<Value, Problem> {
    let members = app.metadata.role_members(&role.id).await.map_err(problem)?;
    let mut flags = app.metadata.flags_of_role(&role.id).await.map_err(problem)?;
    if let Some(own) = projects {
        flags.retain(|flag| own.contains(&ProjectId(flag.project_id)));
    }
    let created_by = role.created_by.and_then(|user| snapshot.user(UserId(user)));
    Ok(json!({
        "id": role.id,
        "name": role.name,
        "feature_flags_access_level": role.feature_flags_access_level,
        "created_at": shown(role.created_at),
        "created_by": created_by.map(|user| UserBody::new(user)),
        "members": members.iter().map(|m| membership(snapshot, m)).collect::<Vec<_>>(),
        "associated_flags":
            flags.iter().map(|f| json!({"id": f.id, "key": f.key})).collect::<Vec<_>>(),
    }))
}

fn membership(snapshot: &Snapshot, member: &RoleMember) -> Value {
    let user = snapshot.user(UserId(member.user_id)).map(|user| UserBody::new(user));
    json!({
        "id": member.id,
        "role_id": member.role,
        "organization_member": {"user": user},
        "user": user,
        "joined_at": shown(member.joined_at),
        "updated_at": shown(member.updated_at),
    })
}
