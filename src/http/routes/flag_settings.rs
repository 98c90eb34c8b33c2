//! What all flags of a project share: the version of property matching, the project's secret key.

use hyper::Method;
use hyper::StatusCode;
use serde_json::json;

use crate::app::App;
use crate::event::predicate::Matching;
use crate::http::auth;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::store::problem;
use crate::metadata::secrets::Seed;

/// `GET` and `PATCH feature_flags/settings/`: `property_matching_version`, 1 or 2.
pub async fn settings(app: &App, project: &str, request: Request) -> Result<Response, Problem> {
    let principal = auth::of_project(&app.metadata.snapshot(), &request, project)?;
    let is_patch = request.method == Method::PATCH;
    auth::may(&principal, "feature_flag", if is_patch { "write" } else { "read" })?;
    let project = principal.project.id;
    if is_patch {
        let mut fields = Fields::read(request).await?;
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
    }
    let snapshot = app.metadata.snapshot();
    let settings = snapshot.flag_settings(project);
    let body = json!({
        "property_matching_version": match snapshot.matching(project) {
            Matching::Legacy => 1,
            Matching::Explicit => 2,
        },
        "secret_api_token_mask": settings.and_then(|settings| settings.secret_mask.as_deref()),
    });
    Ok(Response::json(StatusCode::OK, &body))
}

/// `POST rotate_secret_token/`: another secret key, told once. The one of before ends.
pub async fn rotate_secret(
    app: &App,
    project: &str,
    request: Request,
) -> Result<Response, Problem> {
    let principal = auth::of_project(&app.metadata.snapshot(), &request, project)?;
    auth::may(&principal, "project", "write")?;
    let seed = Seed::new(&mut rand::rng());
    let rotated = app.metadata.rotate_secret_key(principal.project.id, &seed).await;
    let body = json!({"secret_api_token": rotated.map_err(problem)?});
    Ok(Response::json(StatusCode::OK, &body))
}
