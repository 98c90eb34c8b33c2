//! Personal API keys of the caller. The value of a key is returned only on creation.

use std::sync::Arc;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::auth;
use crate::auth::{Asker, CURRENT};
use crate::body::body;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::store;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_metadata::accounts::{Grant, KeyId, PersonalKey};

/// Objects of scopes: those of the endpoints, under PostHog's names, and further ones of PostHog that
/// scripts request, which have no endpoints.
const OBJECTS: [&str; 25] = [
    "*",
    "action",
    "activity_log",
    "annotation",
    "batch_export",
    "cohort",
    "dashboard",
    "early_access_feature",
    "event_definition",
    "experiment",
    "feature_flag",
    "group",
    "ingestion_warning",
    "insight",
    "organization",
    "organization_member",
    "person",
    "personal_api_key",
    "project",
    "property_definition",
    "query",
    "session_recording",
    "sharing_configuration",
    "survey",
    "user",
];

/// A key as sent to clients; the names are PostHog's.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Key")]
struct KeyBody<'a> {
    id: i64,
    label: &'a str,
    /// Returned only on creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    mask_value: &'a str,
    scopes: Vec<&'a str>,
    /// The projects that the key is limited to; empty for all of them. Clients require a list.
    scoped_teams: Vec<i64>,
    /// Always empty: a key belongs to the one organization of its user.
    scoped_organizations: [&'a str; 0],
    created_at: String,
    last_used_at: Option<String>,
    user_id: i64,
}

impl<'a> KeyBody<'a> {
    fn new(key: &'a PersonalKey) -> Self {
        let scopes = key.scopes.as_ref();
        let projects = key.projects.iter().flatten();
        Self {
            id: key.id.0,
            label: &key.label,
            value: None,
            mask_value: &key.mask,
            scopes: scopes.map_or(vec!["*"], |own| own.iter().map(String::as_str).collect()),
            scoped_teams: projects.map(|project| project.0).collect(),
            scoped_organizations: [],
            created_at: key.created_at.to_rfc3339(),
            last_used_at: key.last_used_at.map(|at| at.to_rfc3339()),
            user_id: key.user.id.0,
        }
    }
}

pub(crate) const LIST: Description = Description::page::<KeyBody<'static>>("The keys of the asker");

/// `GET /api/personal_api_keys/`: valid keys, oldest first.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let page = Page::of(&request);
    let mut keys = app.node.metadata.list_keys();
    keys.retain(|key| key.user.id == asker.user.id);
    let shown = keys.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|key| KeyBody::new(key)).collect();
    Ok(page.answer_short(app, &request, rendering, (keys.len(), bodies)))
}

pub(crate) const CREATE: Description =
    Description::created::<KeyBody<'static>>("Make a key; its value is told this once")
        .body::<by_hand::KeyWrite>();

/// `POST /api/personal_api_keys/` with `label`, `scopes` and, to limit it, `scoped_teams`, which are
/// projects.
pub async fn create(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let asker = call.asker;
    let mut fields = Fields::read(call.request).await?;
    fields.require("label")?;
    let label = fields.text("label")?.unwrap_or_default();
    fields.require("scopes")?;
    let scopes = scopes(fields.texts("scopes")?.unwrap_or_default(), &asker)?;
    let projects = projects(app, fields.ids("scoped_teams")?, &asker)?;
    check_organizations(&fields.texts("scoped_organizations")?.unwrap_or_default(), &asker)?;
    let (metadata, user) = (app.node.metadata.clone(), asker.user.id);
    let grant = Grant { scopes, projects };
    let write = async move { metadata.create_key(user, &label, grant, &auth::seed()).await };
    let made = store::write(app, "create-key", write).await?;
    let body = KeyBody { value: Some(made.value.clone()), ..KeyBody::new(&made.key) };
    Ok(Response::json(StatusCode::CREATED, &body))
}

pub(crate) const RETRIEVE: Description = Description::ok::<KeyBody<'static>>("One key");

/// `GET /api/personal_api_keys/:id/`; `@current` is the key of the request.
pub async fn retrieve(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    Ok(Response::json(StatusCode::OK, &KeyBody::new(&*find(app, &call)?)))
}

pub(crate) const UPDATE: Description =
    Description::ok::<KeyBody<'static>>("Relabel a key").optional_body::<KeyLabel>();

/// `PATCH /api/personal_api_keys/:id/`: the label. The rights of a key never change.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let key = find(app, &call)?;
    let sent = KeyLabel::read(&mut Fields::read(call.request).await?)?;
    let label = sent.label.unwrap_or_else(|| key.label.clone());
    let (metadata, id) = (app.node.metadata.clone(), key.id);
    let write = async move { metadata.relabel_key(id, &label).await };
    let key = store::write(app, "label-key", write).await?;
    Ok(Response::json(StatusCode::OK, &KeyBody::new(&key)))
}

pub(crate) const REVOKE: Description = Description::empty("204", "Revoke a key");

/// `DELETE /api/personal_api_keys/:id/`: revokes the key at once and for good.
pub async fn revoke(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let (metadata, id) = (app.node.metadata.clone(), find(app, &call)?.id);
    let write = async move { metadata.revoke_key(id).await };
    store::write(app, "revoke-key", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

body! {
    /// A change of a key.
    struct KeyLabel {
        label: Option<String>,
    }
}

/// The key in the path, if it is the caller's own.
fn find(app: &App, call: &Call<Asker>) -> Result<Arc<PersonalKey>, Problem> {
    if call.id() == CURRENT {
        return Ok(Arc::clone(&call.asker.key));
    }
    let id = call.id().parse().ok().map(KeyId);
    let mut keys = app.node.metadata.list_keys().into_iter();
    let own = keys.find(|key| Some(key.id) == id && key.user.id == call.asker.user.id);
    own.ok_or_else(|| Problem::not_found("Not found."))
}

/// Whether this is a valid scope: `*` for everything, or an object and an action, as in `person:read`.
pub fn is_scope(scope: &str) -> bool {
    let known = |(object, action): (&str, &str)| {
        OBJECTS.contains(&object) && ["read", "write"].contains(&action)
    };
    scope == "*" || scope.split_once(':').is_some_and(known)
}

/// Checks scopes: each exists, and the caller's key grants it. `*` alone grants everything.
fn scopes(scopes: Vec<String>, asker: &Asker) -> Result<Option<Vec<String>>, Problem> {
    if scopes.is_empty() {
        return Err(refused("scopes", "empty", "This list may not be empty."));
    }
    for scope in &scopes {
        let is_all = scope == "*";
        if !is_scope(scope) {
            return Err(refused("scopes", "invalid_input", format!("Invalid scope: {scope}")));
        }
        let granted = if is_all { "*:write" } else { scope };
        auth::require(&asker.key, granted)?;
    }
    Ok(Some(scopes).filter(|scopes| !scopes.iter().any(|scope| scope == "*")))
}

/// Checks organizations that a key is to be limited to: only the caller's own exists for it, and every
/// key is limited to that anyway.
fn check_organizations(ids: &[String], asker: &Asker) -> Result<(), Problem> {
    let own = asker.user.organization;
    match ids.iter().find(|id| Uuid::try_parse(id) != Ok(own)) {
        None => Ok(()),
        Some(id) => {
            let detail = format!("Invalid pk \"{id}\" - object does not exist.");
            Err(refused("scoped_organizations", "does_not_exist", detail))
        }
    }
}

/// Checks projects: each belongs to the organization, and the caller's key may use it.
fn projects(
    app: &App,
    projects: Option<Vec<i64>>,
    asker: &Asker,
) -> Result<Option<Vec<ProjectId>>, Problem> {
    let Some(projects) = projects.filter(|projects| !projects.is_empty()) else {
        // A new key has no more rights than the key that creates it.
        return Ok(asker.key.projects.clone());
    };
    let projects: Vec<ProjectId> = projects.into_iter().map(ProjectId).collect();
    let snapshot = app.node.metadata.snapshot();
    for id in &projects {
        let is_own = |own: &Vec<ProjectId>| own.contains(id);
        let exists = snapshot.project(*id);
        if exists.is_none_or(|project| project.organization != asker.user.organization)
            || !asker.key.projects.as_ref().is_none_or(is_own)
        {
            let detail = format!("Invalid pk \"{id}\" - object does not exist.");
            return Err(refused("scoped_teams", "does_not_exist", detail));
        }
    }
    Ok(Some(projects))
}
