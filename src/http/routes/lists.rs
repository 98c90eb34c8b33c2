//! Lists for browser and mobile SDKs: surveys, web experiments, product tours, early access features.
//! The first three are always empty.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::early_access_features::summary;
use weir_api::enrolment::EarlyAccessSummary;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_event::key_kind::KeyKind;
use weir_flags::definition::has_enrollment;
use weir_metadata::flags::StoredFlag;
use weir_metadata::snapshot::Snapshot;

/// Default stage of a request; also the stage of flags without a feature.
const DEFAULT_STAGE: &str = "beta";

/// The requested list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `/api/surveys`.
    Surveys,
    /// `/api/early_access_features`.
    EarlyAccessFeatures,
    /// `/api/web_experiments`.
    WebExperiments,
    /// `/api/product_tours`.
    ProductTours,
}

/// Responds with the list of the project whose token is in the query.
pub fn list(app: &App, list: List, request: &Request) -> Result<Response, Problem> {
    let metadata = app.node.metadata.snapshot();
    let token = request.query("token").or_else(|| request.query("api_key"));
    let token = token.as_deref().unwrap_or_default().trim();
    let project = metadata.project_by_token(token);
    let project = project.ok_or_else(|| Problem::invalid_api_key(KeyKind::of(token)))?;
    let (name, items) = match list {
        List::Surveys => ("surveys", Vec::new()),
        List::WebExperiments => ("experiments", Vec::new()),
        List::ProductTours => ("product_tours", Vec::new()),
        List::EarlyAccessFeatures => {
            let stages = request.query_all().filter(|(name, _)| name == "stage");
            let mut stages: Vec<_> = stages.map(|(_, stage)| stage).collect();
            if stages.is_empty() {
                stages.push(DEFAULT_STAGE.into());
            }
            let all = features(&metadata, project.id);
            let wanted = all.filter(|feature| stages.iter().any(|stage| stage == feature.stage));
            ("earlyAccessFeatures", wanted.collect())
        }
    };
    let body = Body { name, items };
    Ok(Response::json(StatusCode::OK, &body))
}

/// The features of a project, and the flags with enrolment that belong to no feature.
fn features(
    metadata: &Snapshot,
    project: ProjectId,
) -> impl Iterator<Item = EarlyAccessSummary<'_>> {
    let flags = metadata.flags(project);
    let made = metadata.features(project).iter().filter_map(|feature| {
        let flag = flags.iter().find(|flag| flag.id == feature.flag)?;
        Some(summary(feature, &flag.key))
    });
    let others = flags.iter().filter(|flag| metadata.feature_of(flag).is_none());
    made.chain(others.filter_map(|flag| implied(flag)))
}

/// The summary of a flag with enrolment that belongs to no feature.
fn implied(flag: &StoredFlag) -> Option<EarlyAccessSummary<'_>> {
    let enrols = flag.filters.as_object().is_some_and(has_enrollment);
    let payload = flag.filters.get("payloads").and_then(|payloads| payloads.get("true"));
    (flag.active && enrols).then(|| EarlyAccessSummary {
        // Deterministic: the same on every server and after every restart.
        id: Uuid::new_v5(
            &Uuid::NAMESPACE_OID,
            format!("early access feature {}", flag.id).as_bytes(),
        )
        .to_string(),
        name: &flag.key,
        description: &flag.name,
        stage: DEFAULT_STAGE,
        documentation_url: "",
        payload: payload.cloned().unwrap_or(Value::Object(Map::new())),
        flag_key: &flag.key,
    })
}

struct Body<'f> {
    name: &'static str,
    items: Vec<EarlyAccessSummary<'f>>,
}

impl Serialize for Body<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.name, &self.items)])
    }
}
