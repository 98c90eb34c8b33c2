//! Settings of all flags of a project: version of property matching, `minimal_flag_called_events`, and
//! the project's secret key.

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::auth;
use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::response::{Problem, Response};
use crate::routes::store;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_event::predicate::Matching;
use weir_metadata::members::Level;

pub(crate) const RETRIEVE: Description =
    Description::ok::<FlagSettingsBody>("What all flags of the project share");

/// `GET feature_flags/settings/`: `property_matching_version`, 1 or 2, and
/// `minimal_flag_called_events`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    Ok(settings(app, call.asker.project.id))
}

pub(crate) const UPDATE: Description =
    Description::ok::<FlagSettingsBody>("Change what all flags share")
        .optional_body::<by_hand::FeatureFlagsSettingsUpdateBody>();

/// `PATCH feature_flags/settings/`, for users who may change every flag.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (project, user) = (call.asker.project.id, call.asker.user.id);
    let mut fields = Fields::read(call.request).await?;
    let version = fields.value("property_matching_version")?;
    let matching = match version.as_ref().map(Value::as_i64) {
        None => None,
        Some(Some(1)) => Some(Matching::Legacy),
        Some(Some(2)) => Some(Matching::Explicit),
        Some(_) => {
            let version = version.unwrap_or_default();
            let detail = format!("\"{version}\" is not a valid choice.");
            return Err(refused("property_matching_version", "invalid_choice", detail));
        }
    };
    let minimal = fields.boolean("minimal_flag_called_events")?;
    if matching.is_some() || minimal.is_some() {
        let metadata = app.node.metadata.clone();
        let write =
            async move { metadata.set_flag_settings(project, user, matching, minimal).await };
        store::write(app, "set-flag-settings", write).await?;
    }
    Ok(settings(app, project))
}

/// What all flags of a project share, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "FlagSettings")]
struct FlagSettingsBody {
    #[schemars(extend("enum" = [1, 2]))]
    property_matching_version: u8,
    /// SDKs may leave out of `$feature_flag_called` what says nothing of the flag.
    minimal_flag_called_events: bool,
    secret_api_token_mask: Option<String>,
}

/// A new secret key, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "ProjectSecret")]
struct SecretBody {
    secret_api_token: String,
}

fn settings(app: &App, project: ProjectId) -> Response {
    let snapshot = app.node.metadata.snapshot();
    let settings = snapshot.flag_settings(project);
    let body = FlagSettingsBody {
        property_matching_version: match snapshot.matching(project) {
            Matching::Legacy => 1,
            Matching::Explicit => 2,
        },
        minimal_flag_called_events: snapshot.has_minimal_called_events(project),
        secret_api_token_mask: settings.and_then(|settings| settings.secret_mask.clone()),
    };
    Response::json(StatusCode::OK, &body)
}

pub(crate) const ROTATE_SECRET: Description =
    Description::ok::<SecretBody>("Make another secret key of the project; the old one ends")
        .says("The key, told this once")
        .tagged("projects");

pub(crate) const ROTATE_SECRET_BY_PATCH: Description =
    Description::ok::<SecretBody>("Another name of POST")
        .says("The key, told this once")
        .deprecated()
        .tagged("projects");

/// `POST rotate_secret_token/`: returns a new secret key, only here, and revokes the previous one.
pub async fn rotate_secret(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    auth::require_level(&call.asker.key, Level::Admin)?;
    let (metadata, project, user) =
        (app.node.metadata.clone(), call.asker.project.id, call.asker.user.id);
    let write = async move { metadata.rotate_secret_key(project, user, &auth::seed()).await };
    let value = store::write(app, "rotate-secret-key", write).await?;
    Ok(Response::json(StatusCode::OK, &SecretBody { secret_api_token: value }))
}
