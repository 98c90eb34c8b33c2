//! Roles of an organization and who has them. `:organization` is `@current` or the uuid of the
//! organization of who asks.

use hyper::Method;
use hyper::StatusCode;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::auth;
use crate::http::auth::Principal;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::page::Page;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::store::problem;
use crate::http::routes::user_body::UserBody;
use crate::metadata::accounts::UserId;
use crate::metadata::roles::CAN_EDIT;
use crate::metadata::roles::Role;
use crate::metadata::roles::RoleMember;
use crate::metadata::roles::shown;
use crate::metadata::secrets::Seed;
use crate::metadata::snapshot::Snapshot;

/// Who asks, if they may, and if the organization is theirs.
pub(super) fn member(
    snapshot: &Snapshot,
    organization: &str,
    request: &Request,
    (object, action): (&str, &str),
) -> Result<Principal, Problem> {
    let principal = auth::of_project(snapshot, request, "@current")?;
    auth::may(&principal, object, action)?;
    let own = principal.user.organization.to_string();
    if organization != "@current" && !own.eq_ignore_ascii_case(organization) {
        return Err(Problem::not_found("Organization not found."));
    }
    Ok(principal)
}

/// `GET` and `POST /api/organizations/:organization/roles/`.
pub async fn roles(app: &App, organization: &str, request: Request) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    if request.method == Method::POST {
        let asker = member(&snapshot, organization, &request, ("organization", "write"))?;
        let mut fields = Fields::read(request).await?;
        fields.require("name")?;
        let name = fields.text("name")?.unwrap_or_default();
        let level = level(&mut fields)?.unwrap_or(CAN_EDIT);
        let seed = Seed::new(&mut rand::rng());
        let role = app.metadata.create_role(asker.user.id, &name, level, &seed).await;
        let role = role.map_err(problem)?;
        return Ok(Response::json(StatusCode::CREATED, &body(app, &snapshot, &role).await?));
    }
    let asker = member(&snapshot, organization, &request, ("organization", "read"))?;
    let roles = app.metadata.roles(asker.user.organization).await.map_err(problem)?;
    let page = Page::of(&request);
    let mut bodies = Vec::new();
    for role in roles.iter().skip(page.offset).take(page.limit) {
        bodies.push(body(app, &snapshot, role).await?);
    }
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&request, public_url, roles.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `GET`, `PATCH` and `DELETE /api/organizations/:organization/roles/:id/`.
pub async fn role(
    app: &App,
    organization: &str,
    id: &str,
    request: Request,
) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let action = if request.method == Method::GET { "read" } else { "write" };
    let asker = member(&snapshot, organization, &request, ("organization", action))?;
    let own = asker.user.organization;
    let role = match request.method {
        Method::DELETE => {
            app.metadata.delete_role(own, id).await.map_err(problem)?;
            return Ok(Response::empty(StatusCode::NO_CONTENT));
        }
        Method::PATCH => {
            let mut fields = Fields::read(request).await?;
            let (name, level) = (fields.text("name")?, level(&mut fields)?);
            app.metadata.update_role(own, id, name, level).await
        }
        _ => app.metadata.role(own, id).await,
    };
    let role = role.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &body(app, &snapshot, &role).await?))
}

/// `GET` and `POST /api/organizations/:organization/roles/:id/role_memberships/` with `user_uuid`.
pub async fn memberships(
    app: &App,
    organization: &str,
    id: &str,
    request: Request,
) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let action = if request.method == Method::GET { "read" } else { "write" };
    let asker = member(&snapshot, organization, &request, ("organization", action))?;
    let role = app.metadata.role(asker.user.organization, id).await.map_err(problem)?;
    if request.method == Method::POST {
        let mut fields = Fields::read(request).await?;
        fields.require("user_uuid")?;
        let uuid = fields.text("user_uuid")?.unwrap_or_default();
        let known = snapshot.users().find(|user| user.uuid.to_string() == uuid.to_lowercase());
        let unknown = || refused("user_uuid", "does_not_exist", "User does not exist.");
        let user = known.ok_or_else(unknown)?;
        let seed = Seed::new(&mut rand::rng());
        let member = app.metadata.add_role_member(&role, user.id, &seed).await.map_err(problem)?;
        return Ok(Response::json(StatusCode::CREATED, &membership(&snapshot, &member)));
    }
    let members = app.metadata.role_members(&role.id).await.map_err(problem)?;
    let page = Page::of(&request);
    let shown = members.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|member| membership(&snapshot, member)).collect();
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&request, public_url, members.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `DELETE /api/organizations/:organization/roles/:id/role_memberships/:membership/`.
pub async fn end_membership(
    app: &App,
    organization: &str,
    (id, membership): (&str, &str),
    request: Request,
) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = member(&snapshot, organization, &request, ("organization", "write"))?;
    let role = app.metadata.role(asker.user.organization, id).await.map_err(problem)?;
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
