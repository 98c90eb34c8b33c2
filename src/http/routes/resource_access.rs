//! Default access of an organization's members to all flags. `:organization` is `@current` or the uuid
//! of the caller's organization.

use hyper::StatusCode;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
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
use crate::metadata::accounts::UserId;
use crate::metadata::flag_rights::ResourceAccess;
use crate::metadata::roles::shown;
use crate::metadata::snapshot::Snapshot;

/// `GET /api/organizations/:organization/resource_access/`.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let organization = own(app, &call)?;
    let snapshot = app.metadata.snapshot();
    let found = app.metadata.resource_accesses(organization.id).await.map_err(problem)?;
    let page = Page::of(&call.request);
    let shown = found.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|access| body(&snapshot, access)).collect();
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&call.request, public_url, found.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `POST /api/organizations/:organization/resource_access/` with `resource` and `access_level`.
pub async fn create(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let mut fields = Fields::read(call.request).await?;
    fields.require("resource")?;
    let resource = fields.text("resource")?.unwrap_or_default();
    let level = level(&mut fields)?;
    let (metadata, by) = (app.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.add_resource_access(by, &resource, level).await };
    let access = store::write(app, "add-resource-access", write).await?;
    Ok(Response::json(StatusCode::CREATED, &body(&app.metadata.snapshot(), &access)))
}

/// `PATCH /api/organizations/:organization/resource_access/:id/` with `access_level`.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let id = id(call.second_id())?;
    let mut fields = Fields::read(call.request).await?;
    let level = level(&mut fields)?;
    let (metadata, by) = (app.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.change_resource_access(by, id, level).await };
    let access = store::write(app, "change-resource-access", write).await?;
    Ok(Response::json(StatusCode::OK, &body(&app.metadata.snapshot(), &access)))
}

/// `DELETE /api/organizations/:organization/resource_access/:id/`: members may change every flag again.
pub async fn delete(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    own_as_admin(app, &call)?;
    let id = id(call.second_id())?;
    let (metadata, by) = (app.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.remove_resource_access(by, id).await };
    store::write(app, "remove-resource-access", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

fn id(text: &str) -> Result<i64, Problem> {
    text.parse().map_err(|_| Problem::not_found("Not found."))
}

fn level(fields: &mut Fields) -> Result<i64, Problem> {
    fields.require("access_level")?;
    let level = fields.nullable_integer("access_level")?.flatten();
    level.ok_or_else(|| refused("access_level", "null", "This field may not be null."))
}

fn body(snapshot: &Snapshot, access: &ResourceAccess) -> Value {
    let user = access.created_by.and_then(|user| snapshot.user(UserId(user)));
    json!({
        "id": access.id,
        "resource": access.resource,
        "access_level": access.access_level,
        "organization": access.organization,
        "created_at": shown(access.created_at),
        "updated_at": shown(access.updated_at),
        "created_by": user.map(|user| UserBody::new(user)),
    })
}
