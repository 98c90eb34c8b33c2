//! Management of early access features: list, create, retrieve, change, delete. `metadata` decides what a stage does to
//! the flag of a feature; SDKs receive a [`summary`].

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice};
use crate::operation::input::{Creates, Named, New, input, part};
use crate::operation::output::{Created, Done, Paged};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::Problem;
use crate::routes::feature_flags::body::minimal;
use crate::routes::user_body::user;
use crate::rows::PAGE_MAX_BYTES;
use weir_api::early_access as api;
use weir_api::enrolment::EarlyAccessSummary;
use weir_metadata::Metadata;
use weir_metadata::early_access::{EarlyAccessFeature, FeatureEditor, FeaturePatch, Stage};
use weir_metadata::flags::FlagId;
use weir_metadata::snapshot::Snapshot;

/// The summary of a feature whose flag has this key.
pub(super) fn summary<'f>(
    feature: &'f EarlyAccessFeature,
    flag_key: &'f str,
) -> EarlyAccessSummary<'f> {
    EarlyAccessSummary {
        id: feature.id.to_string(),
        name: &feature.name,
        description: &feature.description,
        stage: feature.stage.name(),
        documentation_url: &feature.documentation_url,
        payload: feature.payload.clone(),
        flag_key,
    }
}

input! {
    /// Early access features, newest first.
    pub struct List {
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Paged<api::Feature>;
    const SCOPE: &'static str = "early_access_feature:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (snapshot, page, who) = (cx.snapshot(), self.page, cx.who.clone());
        let features = snapshot.features(who.project.id);
        let (count, part) = (features.len(), features.iter().skip(page.offset).take(page.limit));
        let part: Vec<Arc<EarlyAccessFeature>> = part.map(Arc::clone).collect();
        let rows = part.into_iter().map(move |own| feature(&own, &snapshot, &who));
        cx.paged(page, count, PAGE_MAX_BYTES, rows).await
    }
}

input! {
    /// Makes an early access feature, with its flag or for an existing one.
    pub struct Create {
        body feature: New<EarlyAccessFeatureWrite>,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::Feature>;
    const SCOPE: &'static str = "early_access_feature:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let New(sent) = self.feature;
        let flag = sent.feature_flag_id.flatten().filter(|id| *id != 0).map(FlagId);
        let (project, by, patch) = (cx.who.project.id, editor(cx), sent.patch());
        let write = |metadata: Metadata| async move {
            metadata.create_feature(project, by, flag, patch, &auth::seed()).await
        };
        let made = cx.write("create-feature", write).await?;
        Ok(Created(feature(&made, &cx.snapshot(), &cx.who)))
    }
}

input! {
    /// One early access feature.
    pub struct Retrieve {
        path id: Uuid,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::Feature;
    const SCOPE: &'static str = "early_access_feature:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        Ok(feature(find(&snapshot, cx, self.id)?, &snapshot, &cx.who))
    }
}

input! {
    /// Changes an early access feature; an absent field keeps its value.
    pub struct Update {
        path id: Uuid,
        body change: EarlyAccessFeatureWrite,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::Feature;
    const SCOPE: &'static str = "early_access_feature:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        find(&cx.snapshot(), cx, part(path, "id")?).map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, by, id, patch) =
            (cx.who.project.id, editor(cx), self.id, self.change.patch());
        let write = |metadata: Metadata| async move {
            metadata.update_feature(project, by, id, patch).await
        };
        let changed = cx.write("update-feature", write).await?;
        Ok(feature(&changed, &cx.snapshot(), &cx.who))
    }
}

input! {
    /// The same with the fields that a new one needs.
    pub struct Replace {
        path id: Uuid,
        body feature: New<EarlyAccessFeatureWrite>,
    }
}

impl Operation for Replace {
    type Who = Principal;
    type Out = api::Feature;
    const SCOPE: &'static str = "early_access_feature:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        Update::look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        Update { id: self.id, change: self.feature.0 }.perform(cx).await
    }
}

input! {
    /// Deletes an early access feature, which ends the enrolment in its flag; the flag stays.
    pub struct Delete {
        path id: Uuid,
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = "early_access_feature:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, by, id) = (cx.who.project.id, editor(cx), self.id);
        let write =
            |metadata: Metadata| async move { metadata.delete_feature(project, by, id).await };
        cx.write("delete-feature", write).await?;
        Ok(Done)
    }
}

fn find<'s>(
    snapshot: &'s Snapshot,
    cx: &Context<Principal>,
    id: Uuid,
) -> Result<&'s EarlyAccessFeature, Problem> {
    let mut features = snapshot.features(cx.who.project.id).iter();
    let found = features.find(|feature| feature.id == id);
    found.map(Arc::as_ref).ok_or_else(|| Problem::not_found("Not found."))
}

fn editor(cx: &Context<Principal>) -> FeatureEditor {
    let may_write_flags = cx.who.key.grants("feature_flag:write");
    FeatureEditor { user: cx.user(), may_write_flags }
}

body! {
    /// A new early access feature, or a change of one.
    #[derive(Default)]
    pub struct EarlyAccessFeatureWrite {
        /// What it is called.
        name: Option<String> = {"maxLength": 200},
        /// What it does.
        description: Option<String>,
        /// Whether people may enrol in the flag.
        stage: Option<Stage>,
        /// Where it is described.
        documentation_url: Option<String> = {"maxLength": 800},
        /// What SDKs get with it.
        payload: Option<Payload>,
        /// With the change of the stage to general-availability: everybody has it, whoever enrolled
        rollout_to_all: Option<bool>,
        /// For a new feature: the flag to use; without it one is made, which is called after the name
        feature_flag_id: Option<Option<i64>>,
    }
}

impl Creates for EarlyAccessFeatureWrite {
    const NEEDS: &'static [&'static str] = &["name", "stage"];
}

impl EarlyAccessFeatureWrite {
    fn patch(self) -> FeaturePatch {
        FeaturePatch {
            name: self.name,
            description: self.description,
            stage: self.stage,
            documentation_url: self.documentation_url,
            payload: self.payload.map(|own| own.0),
            rollout_to_all: self.rollout_to_all.unwrap_or_default(),
        }
    }
}

/// Any JSON value.
#[derive(Debug)]
pub struct Payload(Value);

impl Field for Option<Payload> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.nullable_value(name).map(|value| Payload(value.unwrap_or_default())))
    }

    fn schema() -> Value {
        json!({})
    }
}

impl Field for Option<Stage> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.value(name)?.map(|given| stage(name, &given)).transpose()
    }

    fn schema() -> Value {
        json!({"$ref": "#/components/schemas/Stage"})
    }
}

/// Parses the stage in the field `name`.
pub(super) fn stage(name: &'static str, given: &Value) -> Result<Stage, Problem> {
    given
        .as_str()
        .and_then(Stage::parse)
        .ok_or_else(|| not_a_choice(name, given.as_str().unwrap_or(&given.to_string())))
}

/// A feature as shown to the caller `who`.
fn feature(own: &EarlyAccessFeature, snapshot: &Snapshot, who: &Principal) -> api::Feature {
    let mut flags = snapshot.flags(own.project).iter();
    let flag = flags.find(|flag| flag.id == own.flag);
    let created_by = own.created_by.and_then(|user| snapshot.user(user));
    let may_edit = who.key.grants("early_access_feature:write");
    api::Feature {
        id: own.id.to_string(),
        feature_flag: flag.map(|flag| minimal(flag)),
        name: own.name.clone(),
        description: own.description.clone(),
        stage: own.stage.name().to_owned(),
        documentation_url: own.documentation_url.clone(),
        payload: own.payload.clone(),
        created_at: own.created_at.to_rfc3339(),
        created_by: created_by.map(|found| user(found)),
        user_access_level: if may_edit { "editor" } else { "viewer" }.to_owned(),
    }
}
