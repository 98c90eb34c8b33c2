//! Management of early access features: list, create, retrieve, change, delete. `metadata` decides what
//! a stage does to the flag of a feature; SDKs receive a [`Summary`].

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::user_body::user;
use crate::routes::{feature_flags, store};
use crate::rows::Rows;
use weir_app::App;
use weir_metadata::early_access::{EarlyAccessFeature, FeatureEditor, FeaturePatch, Stage};
use weir_metadata::flags::FlagId;
use weir_metadata::snapshot::Snapshot;

/// A feature as sent to SDKs and shown in flags.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary<'f> {
    pub(super) id: Uuid,
    pub(super) name: &'f str,
    pub(super) description: &'f str,
    pub(super) stage: &'f str,
    pub(super) documentation_url: &'f str,
    pub(super) payload: Value,
    pub(super) flag_key: &'f str,
}

impl<'f> Summary<'f> {
    /// The summary of a feature whose flag has this key.
    pub(super) fn of(feature: &'f EarlyAccessFeature, flag_key: &'f str) -> Self {
        Self {
            id: feature.id,
            name: &feature.name,
            description: &feature.description,
            stage: feature.stage.name(),
            documentation_url: &feature.documentation_url,
            payload: feature.payload.clone(),
            flag_key,
        }
    }
}

pub(crate) const LIST: Description =
    Description::page::<FeatureBody>("Early access features, newest first");

/// `GET early_access_feature/`, newest first.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let page = Page::of(&request);
    let count = snapshot.features(asker.project.id).len();
    let write = move |rows: &mut Rows| {
        let features = snapshot.features(asker.project.id).iter();
        let shown = features.skip(page.offset).take(page.limit);
        rows.add_all(shown.map(|feature| body(feature, &snapshot, &asker)))
    };
    page.written(app, &request, (count, Rows::new(&request.memory())), write).await
}

pub(crate) const CREATE: Description =
    Description::created::<FeatureBody>("Create an early access feature, and its flag")
        .optional_body::<by_hand::EarlyAccessFeatureWrite>()
        .requires(&["name", "stage"]);

/// `POST early_access_feature/`, with `feature_flag_id` for an existing flag.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    let patch = patch(&mut fields, true)?;
    let flag = fields.nullable_integer("feature_flag_id")?.flatten();
    let flag = flag.filter(|id| *id != 0).map(FlagId);
    let (metadata, project, by) = (app.node.metadata.clone(), asker.project.id, editor(&asker));
    let seed = auth::seed();
    let write = async move { metadata.create_feature(project, by, flag, patch, &seed).await };
    let feature = store::write(app, "create-feature", write).await?;
    let body = body(&feature, &app.node.metadata.snapshot(), &asker);
    Ok(Response::json(StatusCode::CREATED, &body))
}

pub(crate) const RETRIEVE: Description = Description::ok::<FeatureBody>("One early access feature");

/// `GET early_access_feature/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let id = id_of(&snapshot, &call)?;
    let found = snapshot.features(call.asker.project.id).iter().find(|feature| feature.id == id);
    let feature = found.ok_or_else(|| Problem::not_found("Not found."))?;
    Ok(Response::json(StatusCode::OK, &body(feature, &snapshot, &call.asker)))
}

pub(crate) const UPDATE: Description = Description::ok::<FeatureBody>(
    "Change an early access feature; its stage says whether people enrol in the flag",
)
.optional_body::<by_hand::EarlyAccessFeatureWrite>()
.requires(&["name", "stage"]);

/// `PATCH early_access_feature/:id/`, and `PUT`, which requires what a new one requires.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id_of(&app.node.metadata.snapshot(), &call)?;
    let Call { asker, request, .. } = call;
    let is_whole = request.method == Method::PUT;
    let mut fields = Fields::read(request).await?;
    let patch = patch(&mut fields, is_whole)?;
    let (metadata, project, by) = (app.node.metadata.clone(), asker.project.id, editor(&asker));
    let write = async move { metadata.update_feature(project, by, id, patch).await };
    let feature = store::write(app, "update-feature", write).await?;
    Ok(Response::json(StatusCode::OK, &body(&feature, &app.node.metadata.snapshot(), &asker)))
}

pub(crate) const DELETE: Description =
    Description::empty("204", "Delete an early access feature; its flag stays");

/// `DELETE early_access_feature/:id/`: ends the enrolment in its flag; the flag stays.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id_of(&app.node.metadata.snapshot(), &call)?;
    let (metadata, project, by) =
        (app.node.metadata.clone(), call.asker.project.id, editor(&call.asker));
    let write = async move { metadata.delete_feature(project, by, id).await };
    store::write(app, "delete-feature", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// The id of the feature in the path. 404 for an unknown feature precedes 400 for a bad body.
fn id_of(snapshot: &Snapshot, call: &Call<Principal>) -> Result<Uuid, Problem> {
    let id = Uuid::try_parse(call.id()).ok();
    let features = snapshot.features(call.asker.project.id);
    let found = features.iter().find(|feature| Some(feature.id) == id);
    Ok(found.ok_or_else(|| Problem::not_found("Not found."))?.id)
}

fn editor(asker: &Principal) -> FeatureEditor {
    let may_write_flags = auth::grants(&asker.key, "feature_flag:write");
    FeatureEditor { user: asker.user.id, may_write_flags }
}

/// Reads a change, or a complete feature.
fn patch(fields: &mut Fields, is_whole: bool) -> Result<FeaturePatch, Problem> {
    if is_whole {
        fields.require("name")?;
    }
    let name = fields.text("name")?;
    let description = fields.text("description")?;
    if is_whole {
        fields.require("stage")?;
    }
    Ok(FeaturePatch {
        name,
        description,
        stage: fields.value("stage")?.map(|given| stage(&given)).transpose()?,
        documentation_url: fields.text("documentation_url")?,
        payload: fields.nullable_value("payload").map(Option::unwrap_or_default),
        rollout_to_all: fields.boolean("rollout_to_all")?.unwrap_or_default(),
    })
}

fn stage(given: &Value) -> Result<Stage, Problem> {
    given.as_str().and_then(Stage::parse).ok_or_else(|| {
        let text = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
        refused("stage", "invalid_choice", format!("\"{text}\" is not a valid choice."))
    })
}

/// A feature as sent to clients of the management API.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "EarlyAccessFeature")]
struct FeatureBody {
    id: Uuid,
    #[schemars(with = "Option<by_hand::MinimalFlag>")]
    feature_flag: Option<Value>,
    name: String,
    description: String,
    #[schemars(with = "by_hand::Stage")]
    stage: &'static str,
    documentation_url: String,
    payload: Value,
    created_at: String,
    created_by: Option<weir_api::accounts::User>,
    #[schemars(extend("enum" = ["editor", "viewer"]))]
    user_access_level: &'static str,
}

/// The body of a feature for `asker`.
fn body(feature: &EarlyAccessFeature, snapshot: &Snapshot, asker: &Principal) -> FeatureBody {
    let flags = snapshot.flags(feature.project).iter();
    let flag = flags.into_iter().find(|flag| flag.id == feature.flag);
    let created_by = feature.created_by.and_then(|user| snapshot.user(user));
    let may_edit = auth::grants(&asker.key, "early_access_feature:write");
    FeatureBody {
        id: feature.id,
        feature_flag: flag.map(|flag| feature_flags::minimal(flag)),
        name: feature.name.clone(),
        description: feature.description.clone(),
        stage: feature.stage.name(),
        documentation_url: feature.documentation_url.clone(),
        payload: feature.payload.clone(),
        created_at: feature.created_at.to_rfc3339(),
        created_by: created_by.map(|found| user(found)),
        user_access_level: if may_edit { "editor" } else { "viewer" },
    }
}
