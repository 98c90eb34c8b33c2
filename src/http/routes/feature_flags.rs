//! Feature flag management: list, create, retrieve, change. `metadata` validates flags, `flags` evaluates
//! them; neither is done here.
//!
//! A flag is deleted, and restored, by setting `deleted`. DELETE is refused.

pub mod across;
pub mod actions;
mod body;
pub mod bulk;
pub mod copy;
pub mod evaluations;
mod filter;
pub mod role_access;
pub mod rollout;
pub mod status;
pub mod test_evaluation;

use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::call::Call;
use crate::fields::Fields;
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::feature_flags::body::{FlagBody, Required};
use crate::routes::feature_flags::filter::Wanted;
use crate::routes::feature_flags::status::Calls;
use crate::routes::store::problem;
use crate::routes::{activity, store};
use crate::rows::Rows;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_metadata::activity::Scope;
use weir_metadata::error::MetadataError;
use weir_metadata::flags::{FlagId, FlagPatch, StoredFlag};

/// Allowed methods of one flag.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, PUT, PATCH, HEAD, OPTIONS");

pub(crate) const LIST: Description =
    Description::page::<by_hand::Flag>("Flags that are not deleted")
        .query(&[
            Parameter::one_of("active", &["true", "false", "STALE"]),
            Parameter::one_of("archived", &["true", "false"]),
            Parameter::text("created_by_id").about("An id, or a list"),
            Parameter::shared("search"),
            Parameter::text("key"),
            Parameter::one_of("type", &["boolean", "multivariant", "remote_config", "experiment"]),
            Parameter::one_of("evaluation_runtime", &["server", "client", "all"]),
            Parameter::text("tags").about("A JSON list"),
            Parameter::text("excluded_tags").about("A JSON list"),
            Parameter::text("excluded_properties").about("A JSON list of keys of flags"),
            Parameter::one_of("has_evaluation_contexts", &["true", "false"]),
            Parameter::one_of("eligible_for_experiment", &["true", "false"])
                .about("Only flags of two variants or more, control first"),
            Parameter::text("order").about("Such as -created_at"),
        ])
        .or(&[INVALID]);

/// `GET feature_flags/`: the flags that are not deleted, newest first; see [`filter`].
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let page = Page::of(&request);
    let wanted = Wanted::of_request(app, &asker, &request).await?;
    let flags = snapshot.flags(asker.project.id).iter();
    let mut found: Vec<_> = flags.filter(|flag| wanted.includes(flag)).collect();
    filter::sort(&mut found, request.query("order").as_deref());
    let shown = found.iter().skip(page.offset).take(page.limit);
    let (count, shown) = (found.len(), shown.map(|flag| Arc::clone(flag)).collect::<Vec<_>>());
    let calls = Calls::of_project(app, asker.project.id).await?;
    let users = Arc::clone(&snapshot);
    let rows = (count, Rows::new(&request.memory()));
    let write = move |rows: &mut Rows| {
        rows.add_all(shown.iter().map(|flag| FlagBody::new(flag, &users, &asker, &calls)))
    };
    page.written(app, &request, rows, write).await
}

pub(crate) const CREATE: Description = Description::created::<by_hand::Flag>("Make a flag")
    .optional_body::<by_hand::FlagWrite>()
    .requires(&["key"]);

/// `POST feature_flags/`.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let new = body::new_flag(Fields::read(request).await?)?;
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.create_flag(project, user, new).await };
    let flag = store::write(app, "create-flag", write).await?;
    Ok(shown(app, StatusCode::CREATED, &flag, &asker, &Calls::none(app)))
}

pub(crate) const RETRIEVE: Description =
    Description::ok::<by_hand::Flag>("One flag, deleted or not");

/// `GET feature_flags/:id/`, also for a deleted flag, so that it can be viewed before it is restored.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = find(app, call.asker.project.id, call.id()).await?;
    let calls = Calls::of_flag(app, flag.id).await?;
    Ok(shown(app, StatusCode::OK, &flag, &call.asker, &calls))
}

pub(crate) const UPDATE: Description =
    Description::ok::<by_hand::Flag>("Change a flag; `deleted` deletes and restores")
        .optional_body::<by_hand::FlagWrite>()
        .requires(&["key"])
        .or(&[("409", "Conflict")]);

/// `PATCH feature_flags/:id/`, and `PUT`, which requires more fields: as in PostHog, an absent field keeps
/// its value.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    // 404 for an unknown flag precedes 400 for a bad body.
    let id = find(app, call.asker.project.id, call.id()).await?.id;
    let Call { asker, request, .. } = call;
    let required = if request.method == Method::PUT { Required::Key } else { Required::Nothing };
    let patch = body::flag_patch(Fields::read(request).await?, required)?;
    // Before the change, so that nothing can fail after it.
    let calls = Calls::of_flag(app, id).await?;
    let flag = change(app, &asker, id, patch).await?;
    Ok(shown(app, StatusCode::OK, &flag, &asker, &calls))
}

/// A flag embedded in another object.
pub(super) fn minimal(flag: &StoredFlag) -> Value {
    json!({
        "id": flag.id.0,
        "team_id": flag.project.0,
        "name": flag.name,
        "key": flag.key,
        "filters": flag.filters,
        "deleted": flag.deleted,
        "active": flag.active,
        "ensure_experience_continuity": flag.plain.ensure_experience_continuity,
        "version": flag.version,
    })
}

/// The response with one flag.
fn shown(
    app: &App,
    status: StatusCode,
    flag: &StoredFlag,
    asker: &Principal,
    calls: &Calls,
) -> Response {
    let snapshot = app.node.metadata.snapshot();
    Response::json(status, &FlagBody::new(flag, &snapshot, asker, calls))
}

/// Changes a flag.
async fn change(
    app: &App,
    asker: &Principal,
    id: FlagId,
    patch: FlagPatch,
) -> Result<Arc<StoredFlag>, Problem> {
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.update_flag(project, user, id, patch).await };
    Ok(store::write(app, "update-flag", write).await?.after)
}

pub(crate) const ACTIVITY: Description = Description::activity("What was changed of flags");

pub(crate) const ACTIVITY_OF_ONE: Description =
    Description::activity("What was changed of a flag").or(&[("404", "NoFlag")]);

/// `GET feature_flags/:id/activity/`; without an id, of all flags.
pub async fn activity(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    if !call.parameters.is_empty() {
        // Without a body, unlike other 404 responses.
        let gone = || Response::empty(StatusCode::NOT_FOUND);
        let Ok(id) = call.id().parse().map(FlagId) else { return Ok(gone()) };
        match app.node.metadata.flag(call.asker.project.id, id).await {
            Err(MetadataError::NotFound(_)) => return Ok(gone()),
            found => found.map_err(problem)?,
        };
    }
    activity::of_scope(app, call, Scope::FeatureFlag).await
}

pub(crate) const DELETE: Description = Description::refused("Refused", &[("405", "DeleteRefused")]);

/// `DELETE feature_flags/:id/`: refused, and unlike other refusals without a body (the API specification,
/// Endpoints).
pub async fn delete(_app: &App, _call: Call<Principal>) -> Result<Response, Problem> {
    Ok(Response::empty(StatusCode::METHOD_NOT_ALLOWED).with_header(hyper::header::ALLOW, ALLOW))
}

/// The flag of the first id in the path, in a project, deleted or not.
async fn find(app: &App, project: ProjectId, id: &str) -> Result<Arc<StoredFlag>, Problem> {
    app.node.metadata.flag(project, flag_id(id)?).await.map_err(problem)
}

fn flag_id(text: &str) -> Result<FlagId, Problem> {
    text.parse().map(FlagId).map_err(|_| Problem::not_found("Not found."))
}

#[cfg(test)]
mod tests {
    use super::flag_id;
    use crate::response::Response;
    use weir_metadata::flags::FlagId;

    /// "`:id` is an integer" (the API specification); unknown sub-paths end here too.
    #[test]
    fn ids_are_integers() {
        assert_eq!(flag_id("7").unwrap(), FlagId(7));
        for text in ["", "my-flag", "activity", "1.5", "7 ", "99999999999999999999"] {
            assert_eq!(Response::from(flag_id(text).unwrap_err()).status, 404, "{text}");
        }
    }
}
