//! Personal API keys of the caller. The value of a key is returned only on creation.

use std::sync::Arc;

use uuid::Uuid;

use crate::auth;
use crate::auth::{Asker, CURRENT};
use crate::body::body;
use crate::fields::refused;
use crate::operation::input::{Named, input, part};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::Problem;
use weir_api::keys as api;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::accounts::{Grant, KeyId, PersonalKey};

/// Objects of scopes: those of the endpoints, under PostHog's names, and further ones of PostHog that scripts request,
/// which have no endpoints.
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

input! {
    /// The valid keys of the caller, oldest first.
    pub struct List {
        query page: Page,
    }
}

impl Operation for List {
    type Who = Asker;
    type Out = Listed<api::Key>;
    const SCOPE: &'static str = "personal_api_key:read";

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let mut keys = cx.metadata().list_keys();
        keys.retain(|key| key.user.id == cx.user());
        Ok(Listed::part_of(self.page, &keys, |own| key(own)))
    }
}

input! {
    /// Makes a key.
    pub struct Create {
        body key: KeyWrite,
    }
}

impl Operation for Create {
    type Who = Asker;
    type Out = Created<api::Key>;
    const SCOPE: &'static str = "personal_api_key:write";

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let KeyWrite { label, scopes, scoped_teams, scoped_organizations } = self.key;
        let scopes = granted(scopes, &cx.who)?;
        let projects = projects(cx, scoped_teams)?;
        check_organizations(&scoped_organizations.unwrap_or_default(), &cx.who)?;
        let (user, grant) = (cx.user(), Grant { scopes, projects });
        let write = |metadata: Metadata| async move {
            metadata.create_key(user, &label, grant, &auth::seed()).await
        };
        let made = cx.write("create-key", write).await?;
        Ok(Created(api::Key { value: Some(made.value.clone()), ..key(&made.key) }))
    }
}

input! {
    /// One key; `@current` is the key of the request.
    pub struct Retrieve {
        path id: String,
    }
}

impl Operation for Retrieve {
    type Who = Asker;
    type Out = api::Key;
    const SCOPE: &'static str = "personal_api_key:read";

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let own = find(cx, &self.id)?;
        Ok(key(&own))
    }
}

input! {
    /// Changes the label of a key. The rights of a key never change.
    pub struct Update {
        path id: String,
        body change: KeyLabel,
    }
}

impl Operation for Update {
    type Who = Asker;
    type Out = api::Key;
    const SCOPE: &'static str = "personal_api_key:write";

    async fn look_up(cx: &Context<Asker>, path: &Named) -> Result<(), Problem> {
        find(cx, &part::<String>(path, "id")?).map(drop)
    }

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let own = find(cx, &self.id)?;
        let (id, label) = (own.id, self.change.label.unwrap_or_else(|| own.label.clone()));
        let write = |metadata: Metadata| async move { metadata.relabel_key(id, &label).await };
        let changed = cx.write("label-key", write).await?;
        Ok(key(&changed))
    }
}

input! {
    /// Revokes a key at once and for good.
    pub struct Revoke {
        path id: String,
    }
}

impl Operation for Revoke {
    type Who = Asker;
    type Out = Done;
    const SCOPE: &'static str = "personal_api_key:write";

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let id = find(cx, &self.id)?.id;
        let write = |metadata: Metadata| async move { metadata.revoke_key(id).await };
        cx.write("revoke-key", write).await?;
        Ok(Done)
    }
}

body! {
    /// A new key.
    pub struct KeyWrite {
        /// What its owner calls it.
        label: String,
        /// What it grants.
        scopes: Vec<String> = {
            "items": {"type": "string", "description": "Such as person:read, or * for everything"},
            "minItems": 1
        },
        /// The projects that it is limited to; none for those of the key that makes it.
        scoped_teams: Option<Vec<i64>>,
        /// At most that of the user, to which every key is limited
        scoped_organizations: Option<Vec<String>> = {"items": {"type": "string", "format": "uuid"}},
    }
}

body! {
    /// A change of a key.
    pub struct KeyLabel {
        /// What its owner calls it.
        label: Option<String>,
    }
}

/// The caller's own key with this id.
fn find(cx: &Context<Asker>, id: &str) -> Result<Arc<PersonalKey>, Problem> {
    if id == CURRENT {
        return Ok(Arc::clone(&cx.who.key));
    }
    let id = id.parse().ok().map(KeyId);
    let mut keys = cx.metadata().list_keys().into_iter();
    let own = keys.find(|key| Some(key.id) == id && key.user.id == cx.user());
    own.ok_or_else(|| Problem::not_found("Not found."))
}

fn key(own: &PersonalKey) -> api::Key {
    let projects = own.projects.iter().flatten();
    api::Key {
        id: own.id.0,
        label: own.label.clone(),
        value: None,
        mask_value: own.mask.clone(),
        scopes: own.scopes.clone().unwrap_or_else(|| vec!["*".to_owned()]),
        scoped_teams: projects.map(|project| project.0).collect(),
        scoped_organizations: [],
        created_at: own.created_at.to_rfc3339(),
        last_used_at: own.last_used_at.map(|at| at.to_rfc3339()),
        user_id: own.user.id.0,
    }
}

/// Whether this is a valid scope: `*` for everything, or an object and an action, as in `person:read`.
pub fn is_scope(scope: &str) -> bool {
    let known = |(object, action): (&str, &str)| {
        OBJECTS.contains(&object) && ["read", "write"].contains(&action)
    };
    scope == "*" || scope.split_once(':').is_some_and(known)
}

/// Checks scopes: each exists, and the caller's key grants it. `*` alone grants everything.
fn granted(scopes: Vec<String>, asker: &Asker) -> Result<Option<Vec<String>>, Problem> {
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

/// Checks organizations that a key is to be limited to: only the caller's own exists for it, and every key is limited
/// to that anyway.
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
    cx: &Context<Asker>,
    projects: Option<Vec<i64>>,
) -> Result<Option<Vec<ProjectId>>, Problem> {
    let (user, key) = (&cx.who.user, &cx.who.key);
    let Some(projects) = projects.filter(|projects| !projects.is_empty()) else {
        // A new key has no more rights than the key that creates it.
        return Ok(key.projects.clone());
    };
    let projects: Vec<ProjectId> = projects.into_iter().map(ProjectId).collect();
    let snapshot = cx.snapshot();
    for id in &projects {
        let is_own = |own: &Vec<ProjectId>| own.contains(id);
        let exists = snapshot.project(*id);
        if exists.is_none_or(|project| project.organization != user.organization)
            || !key.projects.as_ref().is_none_or(is_own)
        {
            let detail = format!("Invalid pk \"{id}\" - object does not exist.");
            return Err(refused("scoped_teams", "does_not_exist", detail));
        }
    }
    Ok(Some(projects))
}
