//! What all flags of a project share: the version of property matching, the project's secret key.

use hyper::StatusCode;
use serde_json::json;

use crate::app::App;
use crate::event::id::ProjectId;
use crate::event::predicate::Matching;
use crate::http::auth;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::store::problem;

/// `GET feature_flags/settings/`: `property_matching_version`, 1 or 2.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    Ok(settings(app, call.asker.project.id))
}

/// `PATCH feature_flags/settings/`.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let mut fields = Fields::read(call.request).await?;
    if let Some(version) = fields.value("property_matching_version")? {
        let matching = match version.as_i64() {
            Some(1) => Matching::Legacy,
            Some(2) => Matching::Explicit,
            _ => {
                let detail = format!("\"{version}\" is not a valid choice.");
                return Err(refused("property_matching_version", "invalid_choice", detail));
            }
        };
        app.metadata.set_matching(project, matching).await.map_err(problem)?;
    }
    Ok(settings(app, project))
}

fn settings(app: &App, project: ProjectId) -> Response {
    let snapshot = app.metadata.snapshot();
    let settings = snapshot.flag_settings(project);
    let body = json!({
        "property_matching_version": match snapshot.matching(project) {
            Matching::Legacy => 1,
            Matching::Explicit => 2,
        },
        "secret_api_token_mask": settings.and_then(|settings| settings.secret_mask.as_deref()),
    });
    Response::json(StatusCode::OK, &body)
}

/// `POST rotate_secret_token/`: another secret key, told once. The one of before ends.
pub async fn rotate_secret(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let rotated = app.metadata.rotate_secret_key(call.asker.project.id, &auth::seed()).await;
    let body = json!({"secret_api_token": rotated.map_err(problem)?});
    Ok(Response::json(StatusCode::OK, &body))
}
