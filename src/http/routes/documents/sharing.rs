//! Links to insights and dashboards: whether there is one, its token, and how it shows the document. What a link
//! leads to is in `shared`.

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;

use crate::app::App;
use crate::http::auth;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::openapi::by_hand;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::documents::form;
use crate::http::routes::documents::rights;
use crate::http::routes::store;
use crate::http::routes::store::problem;
use crate::metadata::documents::Kind;
use crate::metadata::documents::shares::Share;
use crate::metadata::documents::shares::ShareChange;

/// What the settings of a link say, each true or false.
const SETTINGS: [&str; 6] =
    ["whitelabel", "noHeader", "showInspector", "legend", "detailed", "hideExtraDetails"];

/// `GET :id/sharing/`. Without a link ever, its token is null.
pub async fn retrieve(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let (project, id) = (call.asker.project.id, form::document_id(call.id())?);
    app.metadata.document(project, kind, id).await.map_err(problem)?;
    let share = app.metadata.share(project, (kind, id)).await.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &body(share.as_ref())))
}

/// `PATCH :id/sharing/` with `enabled` and `settings`.
pub async fn update(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    check(app, &asker, (kind, id)).await?;
    let mut sent = Fields::read(request).await?;
    if sent.boolean("password_required")?.unwrap_or(false) {
        let detail = "Links with a password are not available.";
        return Err(refused("password_required", "invalid_input", detail));
    }
    let is_enabled = sent.boolean("enabled")?;
    let settings = match sent.peek("settings") {
        Some(Value::Null) => Some(Map::new()),
        _ => sent.object("settings")?.map(settings).transpose()?,
    };
    let change = ShareChange { is_enabled, settings, ..ShareChange::default() };
    changed(app, &asker, (kind, id), change).await
}

/// `POST :id/sharing/refresh/`: gives the link another token; the one before leads nowhere from now on.
pub async fn refresh(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    check(app, &call.asker, (kind, id)).await?;
    let change = ShareChange { has_new_token: true, ..ShareChange::default() };
    changed(app, &call.asker, (kind, id), change).await
}

async fn check(app: &App, asker: &Principal, (kind, id): (Kind, i64)) -> Result<(), Problem> {
    let document = app.metadata.document(asker.project.id, kind, id).await.map_err(problem)?;
    rights::check_edit(&document, &asker.user)
}

async fn changed(
    app: &App,
    asker: &Principal,
    which: (Kind, i64),
    change: ShareChange,
) -> Result<Response, Problem> {
    let (metadata, place) = (app.metadata.clone(), (asker.project.id, asker.user.id));
    let write = async move { metadata.change_share(place, which, (change, auth::seed())).await };
    let share = store::write(app, "change-share", write).await?;
    Ok(Response::json(StatusCode::OK, &body(Some(&share))))
}

/// The settings that are known. Others have no meaning here, as in PostHog.
fn settings(sent: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let mut settings = Map::new();
    for name in SETTINGS {
        match sent.get(name) {
            None | Some(Value::Null) => {}
            Some(value @ Value::Bool(_)) => {
                settings.insert(name.to_owned(), value.clone());
            }
            Some(_) => {
                let name = format!("settings__{name}");
                return Err(refused(name, "invalid_input", "Must be a valid boolean."));
            }
        }
    }
    Ok(settings)
}

/// A link as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Sharing")]
pub(super) struct SharingBody {
    created_at: Option<String>,
    enabled: bool,
    /// Null until there is a link first.
    access_token: Option<String>,
    #[schemars(with = "Option<by_hand::SharingSettings>")]
    settings: Option<Map<String, Value>>,
    password_required: bool,
    share_passwords: [bool; 0],
}

fn body(share: Option<&Share>) -> SharingBody {
    let settings = share.map(|share| &share.settings).filter(|settings| !settings.is_empty());
    SharingBody {
        created_at: share.map(|share| share.created_at.to_rfc3339()),
        enabled: share.is_some_and(|share| share.is_enabled),
        access_token: share.map(|share| share.token.clone()),
        settings: settings.cloned(),
        password_required: false,
        share_passwords: [],
    }
}
