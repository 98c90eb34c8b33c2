//! Links to insights and dashboards: whether there is one, its token, its passwords, and how it shows the document.
//! What a link leads to is in `shared`, and how it asks for a password in `unlock`.

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::auth;
use crate::auth::Principal;
use crate::body::{Exact, body};
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::by_hand;
use crate::response::{Problem, Response};
use crate::routes::documents::{form, rights};
use crate::routes::store;
use crate::routes::store::problem;
use weir_app::App;
use weir_metadata::documents::Kind;
use weir_metadata::documents::shares::passwords::{
    NOTE_MAX_CHARS, PASSWORD_MAX_CHARS, PASSWORD_MIN_CHARS, SharePassword, check_required,
};
use weir_metadata::documents::shares::{Share, ShareChange};
use weir_metadata::passwords::PasswordHash;
use weir_metadata::violation::Violation;

/// What the settings of a link say, each true or false.
const SETTINGS: [&str; 6] =
    ["whitelabel", "noHeader", "showInspector", "legend", "detailed", "hideExtraDetails"];

/// `GET :id/sharing/`. Without a link ever, its token is null.
pub async fn retrieve(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let (project, id) = (call.asker.project.id, form::document_id(call.id())?);
    app.node.metadata.document(project, kind, id).await.map_err(problem)?;
    let share = app.node.metadata.share(project, (kind, id)).await.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &body(app, share.as_ref()).await?))
}

/// `PATCH :id/sharing/` with `enabled`, `settings` and `password_required`.
pub async fn update(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    check(app, &asker, (kind, id)).await?;
    let mut sent = Fields::read(request).await?;
    let is_enabled = sent.boolean("enabled")?;
    let is_password_required = sent.boolean("password_required")?;
    let settings = match sent.peek("settings") {
        Some(Value::Null) => Some(Map::new()),
        _ => sent.object("settings")?.map(settings).transpose()?,
    };
    let change = ShareChange { is_enabled, settings, is_password_required, has_new_token: false };
    changed(app, &asker, (kind, id), change).await
}

/// `POST :id/sharing/refresh/`: gives the link another token; the one before leads nowhere from now on.
pub async fn refresh(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    check(app, &call.asker, (kind, id)).await?;
    let change = ShareChange { has_new_token: true, ..ShareChange::default() };
    changed(app, &call.asker, (kind, id), change).await
}

/// `POST :id/sharing/passwords/` with `raw_password` and `note`, both optional. Only this answer tells the password.
pub async fn add_password(
    app: &App,
    call: Call<Principal>,
    kind: Kind,
) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    check(app, &asker, (kind, id)).await?;
    let SharePasswordWrite { raw_password, note } =
        SharePasswordWrite::read(&mut Fields::read(request).await?)?;
    let (project, which) = (asker.project.id, (kind, id));
    let share = app.node.metadata.share(project, which).await.map_err(problem)?;
    check_required(share.as_ref()).map_err(|violation| problem(violation.into()))?;
    let given = raw_password.map(|Exact(text)| text).filter(|text| !text.is_empty());
    let note = note.flatten().unwrap_or_default();
    let chars = given.as_ref().map(|text| text.chars().count());
    if chars.is_some_and(|chars| chars < PASSWORD_MIN_CHARS) {
        let detail = format!("Ensure this field has at least {PASSWORD_MIN_CHARS} characters.");
        return Err(refused("raw_password", "min_length", detail));
    }
    for (name, chars, most) in [
        ("raw_password", chars.unwrap_or_default(), PASSWORD_MAX_CHARS),
        ("note", note.chars().count(), NOTE_MAX_CHARS),
    ] {
        if chars > most {
            return Err(problem(Violation::too_long(name, most).into()));
        }
    }
    let seed = auth::seed();
    let password = given.unwrap_or_else(|| seed.share_password());
    let clear = password.clone();
    let hash =
        app.node.hashing.run("hash-password", move |_| PasswordHash::of(&clear, &seed)).await;
    let hash = hash.map_err(|error| Problem::of(error.kind(), &error))?;
    let (metadata, place) = (app.node.metadata.clone(), (project, asker.user.id));
    let write = async move { metadata.add_share_password(place, which, (hash, note)).await };
    let own = store::write(app, "add-share-password", write).await?;
    let told = NewPassword { password, told: told(app, own) };
    Ok(Response::json(StatusCode::CREATED, &told))
}

/// `DELETE :id/sharing/passwords/:password/`. Whoever was let in by it is let in no more.
pub async fn remove_password(
    app: &App,
    call: Call<Principal>,
    kind: Kind,
) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    check(app, &call.asker, (kind, id)).await?;
    let password = call.second_id().parse().map_err(|_| Problem::not_found("Not found."))?;
    let (metadata, place) =
        (app.node.metadata.clone(), (call.asker.project.id, call.asker.user.id));
    let write = async move { metadata.remove_share_password(place, (kind, id), password).await };
    store::write(app, "remove-share-password", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

async fn check(app: &App, asker: &Principal, (kind, id): (Kind, i64)) -> Result<(), Problem> {
    let document = app.node.metadata.document(asker.project.id, kind, id).await.map_err(problem)?;
    rights::check_edit(&document, &asker.user)
}

async fn changed(
    app: &App,
    asker: &Principal,
    which: (Kind, i64),
    change: ShareChange,
) -> Result<Response, Problem> {
    let (metadata, place) = (app.node.metadata.clone(), (asker.project.id, asker.user.id));
    let write = async move { metadata.change_share(place, which, (change, auth::seed())).await };
    let share = store::write(app, "change-share", write).await?;
    Ok(Response::json(StatusCode::OK, &body(app, Some(&share)).await?))
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
    /// Whether whoever follows it has to give one of its passwords.
    password_required: bool,
    /// Newest first.
    share_passwords: Vec<PasswordBody>,
}

/// A password of a link as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "SharePassword")]
pub(super) struct PasswordBody {
    /// Its id among those of the link.
    id: i64,
    created_at: String,
    note: String,
    /// `deleted user` once the user has left.
    created_by_email: String,
    /// True: those that are removed are not told.
    is_active: bool,
}

/// A new password of a link.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "NewSharePassword")]
pub(super) struct NewPassword {
    /// The password itself; no other answer has it.
    password: String,
    #[serde(flatten)]
    told: PasswordBody,
}

body! {
    /// What a new password is made of.
    pub(super) struct SharePasswordWrite {
        /// The password, of at least 8 characters; without one, or with an empty one, the server makes one.
        raw_password: Option<Exact> = {"maxLength": 200},
        /// Whom it is for.
        note: Option<Option<String>> = {"maxLength": 100},
    }
}

async fn body(app: &App, share: Option<&Share>) -> Result<SharingBody, Problem> {
    let settings = share.map(|share| &share.settings).filter(|settings| !settings.is_empty());
    let passwords = match share {
        Some(Share { project, kind, document, .. }) => app
            .node
            .metadata
            .share_passwords(*project, (*kind, *document))
            .await
            .map_err(problem)?,
        None => Vec::new(),
    };
    Ok(SharingBody {
        created_at: share.map(|share| share.created_at.to_rfc3339()),
        enabled: share.is_some_and(|share| share.is_enabled),
        access_token: share.map(|share| share.token.clone()),
        settings: settings.cloned(),
        password_required: share.is_some_and(|share| share.is_password_required),
        share_passwords: passwords.into_iter().map(|own| told(app, own)).collect(),
    })
}

fn told(app: &App, own: SharePassword) -> PasswordBody {
    let snapshot = app.node.metadata.snapshot();
    let user = snapshot.user(own.created_by).filter(|user| !user.is_removed);
    PasswordBody {
        id: own.id,
        created_at: own.created_at.to_rfc3339(),
        note: own.note,
        created_by_email: user.map_or("deleted user", |user| &user.email).to_owned(),
        is_active: true,
    }
}
