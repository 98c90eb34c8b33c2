//! What browser and mobile SDKs ask for besides flags: surveys, web experiments, product tours,
//! early access features. This server has none of the first three and says so; a flag that people
//! may enrol in is an early access feature.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::app::App;
use crate::flags::definition::has_enrollment;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::metadata::flags::StoredFlag;

/// The stage of every early access feature: flags have no other than that they can be tried.
const STAGE: &str = "beta";

/// Which list is asked for.
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

/// Answers with the list of the project whose token the query has.
pub fn list(app: &App, list: List, request: &Request) -> Result<Response, Problem> {
    let metadata = app.metadata.snapshot();
    let token = request.query("token").or_else(|| request.query("api_key"));
    let project = token.and_then(|token| metadata.project_by_token(token.trim()));
    let project = project.ok_or_else(Problem::invalid_api_key)?;
    let (name, items) = match list {
        List::Surveys => ("surveys", Vec::new()),
        List::WebExperiments => ("experiments", Vec::new()),
        List::ProductTours => ("product_tours", Vec::new()),
        List::EarlyAccessFeatures => {
            let flags = metadata.flags(project.id).iter();
            let features = flags.filter_map(|flag| EarlyAccessFeature::of(flag));
            let features = if wants_stage(request) { features.collect() } else { Vec::new() };
            ("earlyAccessFeatures", features)
        }
    };
    let body = Body { name, items };
    Ok(Response::json(StatusCode::OK, &body))
}

/// Whether the stages of the query, if it has any, include ours.
fn wants_stage(request: &Request) -> bool {
    let mut stages = request.query_all().filter(|(name, _)| name == "stage").peekable();
    stages.peek().is_none() || stages.any(|(_, stage)| stage == STAGE)
}

struct Body<'f> {
    name: &'static str,
    items: Vec<EarlyAccessFeature<'f>>,
}

impl Serialize for Body<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.name, &self.items)])
    }
}

/// A feature as SDKs read it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct EarlyAccessFeature<'f> {
    id: Uuid,
    name: &'f str,
    description: &'f str,
    stage: &'static str,
    documentation_url: &'static str,
    payload: Value,
    flag_key: &'f str,
}

impl<'f> EarlyAccessFeature<'f> {
    /// What `flag` offers, if people may enrol in it.
    fn of(flag: &'f StoredFlag) -> Option<Self> {
        let enrols = flag.filters.as_object().is_some_and(has_enrollment);
        let payload = flag.filters.get("payloads").and_then(|payloads| payloads.get("true"));
        (flag.active && enrols).then(|| Self {
            // The same on every server and after every restart.
            id: Uuid::new_v5(
                &Uuid::NAMESPACE_OID,
                format!("early access feature {}", flag.id).as_bytes(),
            ),
            name: &flag.key,
            description: &flag.name,
            stage: STAGE,
            documentation_url: "",
            payload: payload.cloned().unwrap_or(Value::Object(Map::new())),
            flag_key: &flag.key,
        })
    }
}
