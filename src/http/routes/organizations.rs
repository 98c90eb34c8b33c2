//! The organization of a user, and its members with their levels. A user belongs to one organization.

use std::sync::Arc;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth;
use crate::auth::{Asker, CURRENT};
use crate::body::{Field, body};
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{INVALID, Operation};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::store;
use crate::routes::user_body::UserBody;
use weir_app::App;
use weir_metadata::accounts::{Grant, PersonalKey, User, UserId};
use weir_metadata::members::{Level, NewMember, Organization};

/// An organization as sent to clients; the names are PostHog's.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Organization")]
pub(super) struct OrganizationBody {
    id: String,
    name: String,
    created_at: String,
    /// The caller's level in the organization.
    #[schemars(extend("enum" = [1, 8, 15]))]
    membership_level: i64,
}

/// A member as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Member")]
struct MemberBody {
    id: String,
    user: UserBody,
    #[schemars(extend("enum" = [1, 8, 15]))]
    level: i64,
    joined_at: String,
    /// The first key of a new member; returned only on creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    personal_api_key: Option<String>,
}

impl OrganizationBody {
    /// `organization` as sent to a user of this level.
    pub(super) fn new(organization: &Organization, level: Level) -> Self {
        Self {
            id: organization.id.to_string(),
            name: organization.name.clone(),
            created_at: organization.created_at.to_rfc3339(),
            membership_level: level.number(),
        }
    }
}

impl MemberBody {
    fn new(user: &User) -> Self {
        Self {
            id: user.uuid.to_string(),
            user: UserBody::new(user),
            level: user.level.number(),
            joined_at: user.created_at.to_rfc3339(),
            personal_api_key: None,
        }
    }
}

pub(crate) const LIST: Operation =
    Operation::page::<OrganizationBody>("The organization of the asker");

/// `GET /api/organizations/`: the caller's organization.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let (snapshot, page) = (app.node.metadata.snapshot(), Page::of(&request));
    let own = snapshot.organization(asker.user.organization).into_iter();
    let bodies: Vec<_> =
        own.map(|organization| OrganizationBody::new(organization, asker.user.level)).collect();
    let count = bodies.len();
    let shown = bodies.into_iter().skip(page.offset).take(page.limit).collect();
    page.answer(app, &request, rendering, (count, shown)).await
}

pub(crate) const RETRIEVE: Operation = Operation::ok::<OrganizationBody>("One organization");

/// `GET /api/organizations/:organization/`.
pub async fn retrieve(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own(app, &call)?;
    let body = OrganizationBody::new(&organization, call.asker.user.level);
    Ok(Response::json(StatusCode::OK, &body))
}

pub(crate) const UPDATE: Operation = Operation::ok::<OrganizationBody>("Rename an organization")
    .optional_body::<OrganizationWrite>();

/// `PATCH /api/organizations/:organization/`: its name.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own_as_admin(app, &call)?;
    let sent = OrganizationWrite::read(&mut Fields::read(call.request).await?)?;
    let name = sent.name.unwrap_or_else(|| organization.name.clone());
    let (metadata, id) = (app.node.metadata.clone(), organization.id);
    let write = async move { metadata.rename_organization(id, &name).await };
    let renamed = store::write(app, "rename-organization", write).await?;
    let body = OrganizationBody::new(&renamed, call.asker.user.level);
    Ok(Response::json(StatusCode::OK, &body))
}

pub(crate) const MEMBERS: Operation =
    Operation::page::<MemberBody>("Members by the time of joining");

/// `GET /api/organizations/:organization/members/`, ordered by the time of joining.
pub async fn members(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own(app, &call)?;
    let Call { rendering, request, .. } = call;
    let (snapshot, page) = (app.node.metadata.snapshot(), Page::of(&request));
    let is_member = |user: &&Arc<User>| user.organization == organization.id && !user.is_removed;
    let members: Vec<&Arc<User>> = snapshot.users().filter(is_member).collect();
    let shown = members.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|user| MemberBody::new(user)).collect();
    page.answer(app, &request, rendering, (members.len(), bodies)).await
}

pub(crate) const ADD_MEMBER: Operation = Operation::created::<MemberBody>(
    "Add a member; the answer has the key by which the member begins",
)
.body::<MemberWrite>();

/// `POST /api/organizations/:organization/members/` with `first_name`, `email` and `level`. There are no
/// passwords and no mails: the response contains the member's first key, only here. It has the scopes of the key that
/// asks for it.
pub async fn add_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let sent = MemberWrite::read(&mut Fields::read(call.request).await?)?;
    let key = &call.asker.key;
    check_granted(key, sent.level.unwrap_or(Level::Member))?;
    let grant = Grant { scopes: key.scopes.clone(), projects: key.projects.clone() };
    let local = sent.email.split('@').next().unwrap_or_default().to_owned();
    let new = NewMember {
        first_name: sent.first_name.filter(|name| !name.is_empty()).unwrap_or(local),
        email: sent.email,
        level: sent.level.unwrap_or(Level::Member),
    };
    let (metadata, by) = (app.node.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.add_member(by, (new, grant), &auth::seed()).await };
    let (user, key) = store::write(app, "add-member", write).await?;
    let body = MemberBody { personal_api_key: Some(key.value), ..MemberBody::new(&user) };
    Ok(Response::json(StatusCode::CREATED, &body))
}

pub(crate) const UPDATE_MEMBER: Operation =
    Operation::ok::<MemberBody>("Change the level of a member")
        .optional_body::<LevelWrite>()
        .needs(&["level"]);

/// `PATCH /api/organizations/:organization/members/:uuid/`: the level.
pub async fn update_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let (metadata, by) = (app.node.metadata.clone(), call.asker.user.id);
    let id = member(app, &call)?;
    let mut fields = Fields::read(call.request).await?;
    fields.require("level")?;
    let level = LevelWrite::read(&mut fields)?.level.unwrap_or(Level::Member);
    check_granted(&call.asker.key, level)?;
    let write = async move { metadata.set_level(by, id, level).await };
    let user = store::write(app, "set-level", write).await?;
    Ok(Response::json(StatusCode::OK, &MemberBody::new(&user)))
}

pub(crate) const REMOVE_MEMBER: Operation =
    Operation::empty("204", "Remove a member; the member's keys end").or(&[INVALID]);

/// `DELETE /api/organizations/:organization/members/:uuid/`: revokes the member's keys. Members may
/// remove themselves.
pub async fn remove_member(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own(app, &call)?;
    let (metadata, by, id) = (app.node.metadata.clone(), call.asker.user.id, member(app, &call)?);
    if by != id {
        auth::require_level(&call.asker.key, Level::Admin)?;
    }
    let write = async move { metadata.remove_member(by, id).await };
    store::write(app, "remove-member", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// The organization in the path, if it is the caller's.
pub(super) fn own(app: &App, call: &Call<Asker>) -> Result<Arc<Organization>, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let not_found = || Problem::not_found("Organization not found.");
    let id = match call.id() {
        CURRENT => call.asker.user.organization,
        text => Uuid::try_parse(text).map_err(|_| not_found())?,
    };
    // The existence of other organizations is not disclosed.
    let organization =
        snapshot.organization(id).filter(|own| own.id == call.asker.user.organization);
    organization.cloned().ok_or_else(not_found)
}

/// As [`own`], for actions of admins only.
pub(super) fn own_as_admin(app: &App, call: &Call<Asker>) -> Result<Arc<Organization>, Problem> {
    let organization = own(app, call)?;
    auth::require_level(&call.asker.key, Level::Admin)?;
    Ok(organization)
}

/// As [`own_as_admin`], for what lets others change flags: who may not change flags gives nobody the right to.
pub(super) fn own_as_granter(app: &App, call: &Call<Asker>) -> Result<Arc<Organization>, Problem> {
    let organization = own_as_admin(app, call)?;
    auth::require(&call.asker.key, "feature_flag:write")?;
    Ok(organization)
}

/// Checks that a key may give somebody a level. Above a member's it holds for all that the keys of this user may, those
/// with more scopes than this one included; so it is given by a key with all of them.
fn check_granted(key: &PersonalKey, level: Level) -> Result<(), Problem> {
    if level > Level::Member && !auth::grants(key, "*:write") {
        let detail = "Only an API key with all scopes gives somebody a level above a member's.";
        return Err(Problem::permission_denied(detail));
    }
    Ok(())
}

/// The member in the path; `@me` is the caller.
fn member(app: &App, call: &Call<Asker>) -> Result<UserId, Problem> {
    if call.second_id() == "@me" {
        return Ok(call.asker.user.id);
    }
    let not_found = || Problem::not_found("Not found.");
    let uuid = Uuid::try_parse(call.second_id()).map_err(|_| not_found())?;
    let snapshot = app.node.metadata.snapshot();
    let user = snapshot.users().find(|user| user.uuid == uuid);
    user.map(|user| user.id).ok_or_else(not_found)
}

impl Field for Option<Level> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(number) = fields.nullable_integer(name)?.flatten() else { return Ok(None) };
        let refused =
            || refused(name, "invalid_choice", format!("\"{number}\" is not a valid choice."));
        Level::from_number(number).map(Some).ok_or_else(refused)
    }

    fn schema() -> Value {
        json!({"type": "integer", "enum": [1, 8, 15]})
    }
}

body! {
    /// A change of an organization.
    struct OrganizationWrite {
        name: Option<String>,
    }
}

body! {
    /// A new member.
    struct MemberWrite {
        email: String = {"format": "email"},
        first_name: Option<String>,
        level: Option<Level>,
    }
}

body! {
    /// A change of a member.
    struct LevelWrite {
        level: Option<Level>,
    }
}
