//! Default access of an organization's members to all flags. `:organization` is `@current` or the uuid
//! of the caller's organization.

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::Asker;
use crate::body::{Field, body};
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::Operation;
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::organizations::{own, own_as_granter};
use crate::routes::store;
use crate::routes::store::problem;
use crate::routes::user_body::UserBody;
use weir_app::App;
use weir_metadata::accounts::UserId;
use weir_metadata::flag_rights::ResourceAccess;
use weir_metadata::roles::shown;
use weir_metadata::snapshot::Snapshot;

pub(crate) const LIST: Operation =
    Operation::page::<ResourceAccessBody>("What members may do with flags by default")
        .tagged("roles");

/// `GET /api/organizations/:organization/resource_access/`.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own(app, &call)?;
    let snapshot = app.node.metadata.snapshot();
    let found = app.node.metadata.resource_accesses(organization.id).await.map_err(problem)?;
    let page = Page::of(&call.request);
    let shown = found.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|access| body(&snapshot, access)).collect();
    let public_url = app.node.config.http.public_url.as_deref();
    let envelope = page.envelope(&call.request, public_url, found.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

pub(crate) const CREATE: Operation = Operation::created::<ResourceAccessBody>("Set the default")
    .tagged("roles")
    .body::<ResourceAccessWrite>();

/// `POST /api/organizations/:organization/resource_access/` with `resource` and `access_level`.
pub async fn create(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_granter(app, &call)?;
    let sent = ResourceAccessWrite::read(&mut Fields::read(call.request).await?)?;
    let (metadata, by) = (app.node.metadata.clone(), call.asker.user.id);
    let write =
        async move { metadata.add_resource_access(by, &sent.resource, sent.access_level.0).await };
    let access = store::write(app, "add-resource-access", write).await?;
    Ok(Response::json(StatusCode::CREATED, &body(&app.node.metadata.snapshot(), &access)))
}

pub(crate) const UPDATE: Operation = Operation::ok::<ResourceAccessBody>("Change the default")
    .tagged("roles")
    .body::<AccessLevelWrite>();

/// `PATCH /api/organizations/:organization/resource_access/:id/` with `access_level`.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_granter(app, &call)?;
    let id = id(call.second_id())?;
    let sent = AccessLevelWrite::read(&mut Fields::read(call.request).await?)?;
    let (metadata, by) = (app.node.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.change_resource_access(by, id, sent.access_level.0).await };
    let access = store::write(app, "change-resource-access", write).await?;
    Ok(Response::json(StatusCode::OK, &body(&app.node.metadata.snapshot(), &access)))
}

pub(crate) const DELETE: Operation =
    Operation::empty("204", "Let members change every flag again").tagged("roles");

/// `DELETE /api/organizations/:organization/resource_access/:id/`: members may change every flag again.
pub async fn delete(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_granter(app, &call)?;
    let id = id(call.second_id())?;
    let (metadata, by) = (app.node.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.remove_resource_access(by, id).await };
    store::write(app, "remove-resource-access", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

fn id(text: &str) -> Result<i64, Problem> {
    text.parse().map_err(|_| Problem::not_found("Not found."))
}

/// What members may do with a resource by default.
#[derive(Debug)]
struct AccessLevel(i64);

impl Field for AccessLevel {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let level = fields.nullable_integer(name)?.flatten();
        level.map(Self).ok_or_else(|| refused(name, "null", "This field may not be null."))
    }

    fn schema() -> Value {
        json!({"type": "integer", "enum": [21, 37]})
    }
}

body! {
    /// A new default.
    struct ResourceAccessWrite {
        resource: String = {"enum": ["feature flags"]},
        /// 21: may look; 37: may change.
        access_level: AccessLevel,
    }
}

body! {
    /// A change of the default.
    struct AccessLevelWrite {
        /// 21: may look; 37: may change.
        access_level: AccessLevel,
    }
}

/// A default as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "ResourceAccess")]
struct ResourceAccessBody {
    id: i64,
    resource: String,
    access_level: i64,
    organization: String,
    created_at: String,
    updated_at: String,
    created_by: Option<UserBody>,
}

fn body(snapshot: &Snapshot, access: &ResourceAccess) -> ResourceAccessBody {
    let user = access.created_by.and_then(|user| snapshot.user(UserId(user)));
    ResourceAccessBody {
        id: access.id,
        resource: access.resource.clone(),
        access_level: access.access_level,
        organization: access.organization.clone(),
        created_at: shown(access.created_at),
        updated_at: shown(access.updated_at),
        created_by: user.map(|user| UserBody::new(user)),
    }
}
