//! Roles of an organization and their members. `:organization` is `@current` or the uuid of the
//! caller's organization.

use std::sync::Arc;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth;
use crate::auth::Asker;
use crate::body::{Field, body};
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::Operation;
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::organizations::{own, own_as_admin, own_as_granter};
use crate::routes::store;
use crate::routes::store::problem;
use crate::routes::user_body::UserBody;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_metadata::accounts::{User, UserId};
use weir_metadata::roles::{Role, RoleMember, shown};
use weir_metadata::snapshot::Snapshot;

pub(crate) const LIST: Operation = Operation::page::<RoleBody>("Roles");

/// `GET /api/organizations/:organization/roles/`.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own(app, &call)?;
    let snapshot = app.node.metadata.snapshot();
    let roles = app.node.metadata.roles(organization.id).await.map_err(problem)?;
    let page = Page::of(&call.request);
    let mut bodies = Vec::new();
    for role in roles.iter().skip(page.offset).take(page.limit) {
        bodies.push(body(app, &snapshot, call.asker.key.projects.as_deref(), role).await?);
    }
    let public_url = app.node.config.http.public_url.as_deref();
    let envelope = page.envelope(&call.request, public_url, roles.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

pub(crate) const CREATE: Operation =
    Operation::created::<RoleBody>("Make a role").body::<RoleWrite>().requires(&["name"]);

/// `POST /api/organizations/:organization/roles/`.
pub async fn create(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_granter(app, &call)?;
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    fields.require("name")?;
    let RoleWrite { name, feature_flags_access_level } = RoleWrite::read(&mut fields)?;
    let name = name.unwrap_or_default();
    let level = feature_flags_access_level.map(|level| level.0);
    let (metadata, by) = (app.node.metadata.clone(), asker.user.id);
    let write = async move { metadata.create_role(by, &name, level, &auth::seed()).await };
    let role = store::write(app, "create-role", write).await?;
    let body =
        body(app, &app.node.metadata.snapshot(), asker.key.projects.as_deref(), &role).await?;
    Ok(Response::json(StatusCode::CREATED, &body))
}

pub(crate) const RETRIEVE: Operation = Operation::ok::<RoleBody>("One role");

/// `GET /api/organizations/:organization/roles/:id/`.
pub async fn retrieve(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let role = find(app, &call).await?;
    let body =
        body(app, &app.node.metadata.snapshot(), call.asker.key.projects.as_deref(), &role).await?;
    Ok(Response::json(StatusCode::OK, &body))
}

pub(crate) const UPDATE: Operation =
    Operation::ok::<RoleBody>("Change a role").optional_body::<RoleWrite>();

/// `PATCH /api/organizations/:organization/roles/:id/`.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_granter(app, &call)?;
    let id = call.second_id().to_owned();
    let Call { asker, request, .. } = call;
    let sent = RoleWrite::read(&mut Fields::read(request).await?)?;
    let level = sent.feature_flags_access_level.map(|level| level.0);
    let (metadata, by) = (app.node.metadata.clone(), asker.user.id);
    let write = async move { metadata.update_role(by, &id, sent.name, level).await };
    let role = store::write(app, "update-role", write).await?;
    let body =
        body(app, &app.node.metadata.snapshot(), asker.key.projects.as_deref(), &role).await?;
    Ok(Response::json(StatusCode::OK, &body))
}

pub(crate) const DELETE: Operation = Operation::empty("204", "Delete a role");

/// `DELETE /api/organizations/:organization/roles/:id/`.
pub async fn delete(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let (metadata, by, id) =
        (app.node.metadata.clone(), call.asker.user.id, call.second_id().to_owned());
    let write = async move { metadata.delete_role(by, &id).await };
    store::write(app, "delete-role", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

pub(crate) const MEMBERS: Operation = Operation::page::<MembershipBody>("Who has a role");

/// `GET /api/organizations/:organization/roles/:id/role_memberships/`.
pub async fn members(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let role = find(app, &call).await?;
    let snapshot = app.node.metadata.snapshot();
    let members = app.node.metadata.role_members(&role.id).await.map_err(problem)?;
    let page = Page::of(&call.request);
    let shown = members.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|member| membership(&snapshot, member)).collect();
    let public_url = app.node.config.http.public_url.as_deref();
    let envelope = page.envelope(&call.request, public_url, members.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

pub(crate) const ADD_MEMBER: Operation =
    Operation::created::<MembershipBody>("Give a role to a user").body::<RoleMemberWrite>();

/// `POST /api/organizations/:organization/roles/:id/role_memberships/` with `user_uuid`.
pub async fn add_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own_as_granter(app, &call)?;
    // 404 for an unknown role precedes 400 for a bad body.
    let role = find(app, &call).await?.id;
    let Call { asker, request, .. } = call;
    let sent = RoleMemberWrite::read(&mut Fields::read(request).await?)?;
    let uuid = sent.user_uuid.to_lowercase();
    let snapshot = app.node.metadata.snapshot();
    let is_known = |user: &&Arc<User>| {
        user.uuid.to_string() == uuid && user.organization == organization.id && !user.is_removed
    };
    let unknown = || refused("user_uuid", "does_not_exist", "User does not exist.");
    let user = snapshot.users().find(is_known).ok_or_else(unknown)?.id;
    let (metadata, by) = (app.node.metadata.clone(), asker.user.id);
    let write = async move { metadata.add_role_member(by, &role, user, &auth::seed()).await };
    let member = store::write(app, "add-role-member", write).await?;
    Ok(Response::json(StatusCode::CREATED, &membership(&snapshot, &member)))
}

pub(crate) const REMOVE_MEMBER: Operation = Operation::empty("204", "Take a role from a user");

/// `DELETE /api/organizations/:organization/roles/:id/role_memberships/:membership/`.
pub async fn remove_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let role = call.second_id().to_owned();
    let membership = call.parameters.get(2).cloned().unwrap_or_default();
    let (metadata, by) = (app.node.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.remove_role_member(by, &role, &membership).await };
    store::write(app, "remove-role-member", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// The role in the path, in the caller's organization.
async fn find(app: &App, call: &Call<Asker>) -> Result<Role, Problem> {
    let organization = own(app, call)?;
    app.node.metadata.role(organization.id, call.second_id()).await.map_err(problem)
}

/// What members with a role may do with flags.
#[derive(Debug)]
struct AccessLevel(i64);

impl Field for Option<AccessLevel> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(value) = fields.value(name)? else { return Ok(None) };
        let level = value.as_i64().or_else(|| value.as_str()?.parse().ok());
        level.map(|level| Some(AccessLevel(level))).ok_or_else(|| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            refused(name, "invalid_choice", format!("\"{text}\" is not a valid choice."))
        })
    }

    fn schema() -> Value {
        json!({"type": "integer", "enum": [21, 37]})
    }
}

body! {
    /// A new role, or a change of one.
    struct RoleWrite {
        name: Option<String>,
        /// 21 may read, 37 may edit.
        feature_flags_access_level: Option<AccessLevel>,
    }
}

body! {
    /// A user who gets a role.
    struct RoleMemberWrite {
        user_uuid: String = {"format": "uuid"},
    }
}

/// A role as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Role")]
pub(super) struct RoleBody {
    id: String,
    name: String,
    feature_flags_access_level: i64,
    created_at: String,
    created_by: Option<UserBody>,
    members: Vec<MembershipBody>,
    associated_flags: Vec<RoleFlag>,
}

/// A flag that those with a role may change.
#[derive(Debug, JsonSchema, Serialize)]
struct RoleFlag {
    id: i64,
    key: String,
}

/// A user with a role, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Membership")]
struct MembershipBody {
    id: String,
    role_id: String,
    organization_member: RoleMemberBody,
    user: Option<UserBody>,
    joined_at: String,
    updated_at: String,
}

/// The member of the organization.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
struct RoleMemberBody {
    user: Option<UserBody>,
}

/// The body of a role, with its flags in `projects`, or in all projects.
pub(super) async fn body(
    app: &App,
    snapshot: &Snapshot,
    projects: Option<&[ProjectId]>,
    role: &Role,
) -> Result<RoleBody, Problem> {
    let members = app.node.metadata.role_members(&role.id).await.map_err(problem)?;
    let mut flags = app.node.metadata.flags_of_role(&role.id).await.map_err(problem)?;
    if let Some(own) = projects {
        flags.retain(|flag| own.contains(&ProjectId(flag.project_id)));
    }
    let created_by = role.created_by.and_then(|user| snapshot.user(UserId(user)));
    Ok(RoleBody {
        id: role.id.clone(),
        name: role.name.clone(),
        feature_flags_access_level: role.feature_flags_access_level,
        created_at: shown(role.created_at),
        created_by: created_by.map(|user| UserBody::new(user)),
        members: members.iter().map(|member| membership(snapshot, member)).collect(),
        associated_flags: flags
            .into_iter()
            .map(|flag| RoleFlag { id: flag.id, key: flag.key })
            .collect(),
    })
}

fn membership(snapshot: &Snapshot, member: &RoleMember) -> MembershipBody {
    let user = || snapshot.user(UserId(member.user_id)).map(|user| UserBody::new(user));
    MembershipBody {
        id: member.id.clone(),
        role_id: member.role.clone(),
        organization_member: RoleMemberBody { user: user() },
        user: user(),
        joined_at: shown(member.joined_at),
        updated_at: shown(member.updated_at),
    }
}
