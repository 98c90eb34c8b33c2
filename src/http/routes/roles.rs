//! Roles of an organization and who has them. `:organization` is `@current` or the uuid of the
//! organization of who asks.

use hyper::StatusCode;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::auth;
use crate::http::auth::Asker;
use crate::http::auth::CURRENT;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::page::Page;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::store::problem;
use crate::http::routes::user_body::UserBody;
use crate::metadata::accounts::UserId;
use crate::metadata::members::Level;
use crate::metadata::roles::CAN_EDIT;
use crate::metadata::roles::Role;
use crate::metadata::roles::RoleMember;
use crate::metadata::roles::shown;
use crate::metadata::snapshot::Snapshot;

/// Who asks, if the organization is theirs and their key speaks for the project that they use.
pub(super) fn member(snapshot: &Snapshot, call: &Call<Asker>) -> Result<Principal, Problem> {
    let principal = auth::principal(snapshot, &call.request, call.asker.clone(), CURRENT)?;
    let own = principal.user.organization.to_string();
    if call.id() != CURRENT && !own.eq_ignore_ascii_case(call.id()) {
        return Err(Problem::not_found("Organization not found."));
    }
    Ok(principal)
}

/// As [`member`], for what only admins may do.
pub(super) fn admin(snapshot: &Snapshot, call: &Call<Asker>) -> Result<Principal, Problem> {
    let principal = member(snapshot, call)?;
    auth::require_level(&principal.key, Level::Admin)?;
    Ok(principal)
}

/// The role that the path names after the organization.
async fn find(app: &App, asker: &Principal, id: &str) -> Result<Role, Problem> {
    app.metadata.role(asker.user.organization, id).await.map_err(problem)
}

/// `GET /api/organizations/:organization/roles/`.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = member(&snapshot, &call)?;
    let roles = app.metadata.roles(asker.user.organization).await.map_err(problem)?;
    let page = Page::of(&call.request);
    let mut bodies = Vec::new();
    for role in roles.iter().skip(page.offset).take(page.limit) {
        bodies.push(body(app, &snapshot, role).await?);
    }
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&call.request, public_url, roles.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `POST /api/organizations/:organization/roles/`.
pub async fn create(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = admin(&snapshot, &call)?;
    let mut fields = Fields::read(call.request).await?;
    fields.require("name")?;
    let name = fields.text("name")?.unwrap_or_default();
    let level = level(&mut fields)?.unwrap_or(CAN_EDIT);
    let role = app.metadata.create_role(asker.user.id, &name, level, &auth::seed()).await;
    let role = role.map_err(problem)?;
    Ok(Response::json(StatusCode::CREATED, &body(app, &snapshot, &role).await?))
}

/// `GET /api/organizations/:organization/roles/:id/`.
pub async fn retrieve(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = member(&snapshot, &call)?;
    let role = find(app, &asker, call.second_id()).await?;
    Ok(Response::json(StatusCode::OK, &body(app, &snapshot, &role).await?))
}

/// `PATCH /api/organizations/:organization/roles/:id/`.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = admin(&snapshot, &call)?;
    let id = call.second_id().to_owned();
    let mut fields = Fields::read(call.request).await?;
    let (name, level) = (fields.text("name")?, level(&mut fields)?);
    let role = app.metadata.update_role(asker.user.organization, &id, name, level).await;
    let role = role.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &body(app, &snapshot, &role).await?))
}

/// `DELETE /api/organizations/:organization/roles/:id/`.
pub async fn delete(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let asker = admin(&app.metadata.snapshot(), &call)?;
    let deleted = app.metadata.delete_role(asker.user.organization, call.second_id()).await;
    deleted.map_err(problem)?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// `GET /api/organizations/:organization/roles/:id/role_memberships/`.
pub async fn members(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = member(&snapshot, &call)?;
    let role = find(app, &asker, call.second_id()).await?;
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
    let snapshot = app.metadata.snapshot();
    let asker = admin(&snapshot, &call)?;
    let role = find(app, &asker, call.second_id()).await?;
    let mut fields = Fields::read(call.request).await?;
    fields.require("user_uuid")?;
    let uuid = fields.text("user_uuid")?.unwrap_or_default();
    let known = snapshot.users().find(|user| user.uuid.to_string() == uuid.to_lowercase());
    let unknown = || refused("user_uuid", "does_not_exist", "User does not exist.");
    let user = known.ok_or_else(unknown)?;
    let member = app.metadata.add_role_member(&role, user.id, &auth::seed()).await;
    let member = member.map_err(problem)?;
    Ok(Response::json(StatusCode::CREATED, &membership(&snapshot, &member)))
}

/// `DELETE /api/organizations/:organization/roles/:id/role_memberships/:membership/`.
pub async fn remove_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let asker = admin(&app.metadata.snapshot(), &call)?;
    let role = find(app, &asker, call.second_id()).await?;
    let membership = call.parameters.get(2).map_or("", String::as_str);
    app.metadata.remove_role_member(&role, membership).await.map_err(problem)?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
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

/// A role as clients get it.
pub(super) async fn body(app: &App, snapshot: &Snapshot, role: &Role) -> Result<Value, Problem> {
    let members = app.metadata.role_members(&role.id).await.map_err(problem)?;
    let flags = app.metadata.flags_of_role(&role.id).await.map_err(problem)?;
    let created_by = role.created_by.and_then(|user| snapshot.user(UserId(user)));
    Ok(json!({
        "id": role.id,
        "name": role.name,
        "feature_flags_access_level": role.feature_flags_access_level,
        "created_at": shown(role.created_at),
        "created_by": created_by.map(|user| UserBody::new(user)),
        "members": members.iter().map(|m| membership(snapshot, m)).collect::<Vec<_>>(),
        "associated_flags":
            flags.iter().map(|(id, key)| json!({"id": id, "key": key})).collect::<Vec<_>>(),
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
