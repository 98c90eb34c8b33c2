//! Flag evaluation for SDKs: `/flags` and `/decide`. The subject comes from the request and from one look-up in the
//! identity store, the flags from the metadata snapshot. No query plan, no lock.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use serde_json::Value;
use uuid::Uuid;

use crate::request;
use crate::response::{Problem, Response};
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_evaluation::{EvaluationContext, EvaluationRequest};
use weir_event::id::ProjectId;
use weir_event::key_kind::KeyKind;
use weir_flags::definition::Runtime;
use weir_flags::evaluate::Cohorts;
use weir_flags::set::{Answer, Answers, FlagSet, Selection};
use weir_flags::subject::Subject;
use weir_metadata::snapshot::Snapshot;
use weir_wire::encoding::decode;
use weir_wire::encoding::hints::{Hints, PathKind};
use weir_wire::flags::request::{Request, RequestError};
use weir_wire::flags::response::FlagRecord;
use weir_wire::flags::{Endpoint, Query, response, runtime};

/// Largest body of a request, as sent and decoded (PostHog's limit).
const BODY_MAX_BYTES: u64 = 2 << 20;

/// `GET /flags` and `GET /decide`: the configuration without flags, because there is no subject.
/// With a token in the query it is the project's configuration. PostHog answers probes like this.
pub fn without_subject(app: &App, request: &request::Request) -> Result<Response, Problem> {
    let query = Query { with_config: true, ..query(request) };
    let metadata = app.node.metadata.snapshot();
    let project = query.token.as_deref().and_then(|token| metadata.project_by_token(token));
    let response = response::Response {
        query: &query,
        request_id: &response_id(request),
        evaluated_at: app.node.clock.now().0 / 1000,
        has_errors: false,
        has_flags: project.is_some_and(|project| metadata.flag_set(project.id).is_some()),
        minimal_called_events: project
            .is_some_and(|project| metadata.has_minimal_called_events(project.id)),
    };
    let encoded = response.encode(std::iter::empty());
    let encoded = encoded.map_err(|error| Problem::of(Kind::Internal, &error))?;
    Ok(Response::json_bytes(StatusCode::OK, encoded))
}

fn query(request: &request::Request) -> Query {
    let endpoint = match request.path().starts_with("/decide") {
        true => Endpoint::Decide,
        false => Endpoint::Flags,
    };
    Query::parse(endpoint, request.query_string())
}

/// Request id of the response, a uuid: the client's if it sent one.
fn response_id(request: &request::Request) -> String {
    match Uuid::try_parse(request.request_id.as_str()) {
        Ok(id) => id.to_string(),
        Err(_) => Uuid::new_v4().to_string(),
    }
}

/// `POST /flags` and `POST /decide`.
pub async fn flags(app: &App, request: request::Request) -> Result<Response, Problem> {
    let query = query(&request);
    let header = |name: HeaderName| request.headers.get(name).map(|value| value.as_bytes());
    let hints = Hints::new(
        request.query_string(),
        header(CONTENT_TYPE),
        header(CONTENT_ENCODING),
        PathKind::Legacy,
    );
    let (request_id, client) = (response_id(&request), request.client_ip);
    let headers = &request.headers;
    let from_browser = || runtime::BROWSER_HEADERS.iter().any(|name| headers.contains_key(*name));
    let runtime = runtime::guess(request.header("user-agent"), from_browser);
    let body = request.body.read(BODY_MAX_BYTES).await?;
    let body = decode(body, &hints, BODY_MAX_BYTES).map_err(|error| match error.kind() {
        Kind::TooLarge => Problem::of(Kind::TooLarge, &error),
        _ => Problem::invalid_payload(format!("Malformed request data: {error}")),
    })?;
    let body_bytes = body.as_ref().len();
    let mut asked = Request::parse(body.as_ref(), &query).map_err(refused)?;
    add_place(app, client, &mut asked);
    asked.evaluation_runtime.get_or_insert_with(|| runtime.to_owned());
    let metadata = app.node.metadata.snapshot();
    let project = metadata.project_by_token(&asked.token);
    let unknown = || Problem::invalid_api_key(KeyKind::of(&asked.token));
    let project = project.ok_or_else(unknown)?.id;
    let now = app.node.clock.now();
    let answering = Answering { metadata, query, asked, project, request_id, now };
    let encoded = answering.answer(app, body_bytes).await?;
    Ok(Response::json_bytes(StatusCode::OK, encoded))
}

/// Adds the location of the client to the person properties of the request; properties in the request take precedence.
fn add_place(app: &App, client: IpAddr, asked: &mut Request) {
    let places = app.node.places.as_ref().filter(|_| !asked.geoip_disable && !asked.disable_flags);
    let Some(place) = places.and_then(|places| places.place(client)) else { return };
    for ((name, _), value) in place.known() {
        if !asked.person_properties.contains_key(name) {
            asked.person_properties.insert(name.to_owned(), value.clone());
        }
    }
}

fn refused(error: RequestError) -> Problem {
    match &error {
        RequestError::MissingToken => Problem::invalid_api_key(KeyKind::Missing),
        _ => Problem::invalid_payload(error.to_string()),
    }
}

/// The state of one request.
struct Answering {
    metadata: Arc<Snapshot>,
    query: Query,
    asked: Request,
    project: ProjectId,
    request_id: String,
    now: UnixMicros,
}

impl Answering {
    async fn answer(self, app: &App, body_bytes: usize) -> Result<Vec<u8>, Problem> {
        let flags = self.metadata.flag_set(self.project).filter(|_| !self.asked.disable_flags);
        let encoded = match flags.map(|flags| flags.effort().nanos(body_bytes)) {
            None => self.response().encode(std::iter::empty()),
            Some(nanos) => {
                let question = self.question();
                let known = app.shard.evaluator.load(&self.metadata, &question).await?;
                // A trace evaluates each condition again.
                let nanos = if self.query.detailed { nanos.saturating_mul(10) } else { nanos };
                app.shard.evaluator.run(nanos, move || self.evaluate(&known)).await?
            }
        };
        encoded.map_err(|error| Problem::of(Kind::Internal, &error))
    }

    /// The response without flags.
    fn response(&self) -> response::Response<'_> {
        response::Response {
            query: &self.query,
            request_id: &self.request_id,
            evaluated_at: self.now.0 / 1000,
            has_errors: false,
            has_flags: self.metadata.flag_set(self.project).is_some(),
            minimal_called_events: self.metadata.has_minimal_called_events(self.project),
        }
    }

    fn evaluate(&self, known: &EvaluationContext) -> Result<Vec<u8>, serde_json::Error> {
        let mut response = self.response();
        let Some(flags) = self.metadata.flag_set(self.project) else {
            return response.encode(std::iter::empty());
        };
        let question = self.question();
        let (answers, traces) =
            known.evaluate(&self.metadata, &question, self.now, |subject, cohorts| {
                let answers = flags.evaluate(subject, &self.selection(), cohorts);
                let traces = self.traces(flags, &answers, (subject, cohorts));
                (answers, traces)
            });
        response.has_errors = answers.has_errors;
        let traces = traces.iter().map(Some).chain(std::iter::repeat(None));
        let records = answers.flags.iter().zip(traces);
        response
            .encode(records.map(|(answer, conditions)| FlagRecord { conditions, ..record(answer) }))
    }

    fn question(&self) -> EvaluationRequest<'_> {
        EvaluationRequest {
            project: self.project,
            distinct_id: &self.asked.distinct_id,
            anon_distinct_id: self.asked.anon_distinct_id.as_deref(),
            device_id: self.asked.device_id.as_deref(),
            groups: &self.asked.groups,
            person_properties: &self.asked.person_properties,
            group_properties: &self.asked.group_properties,
            supplied_only: self.query.supplied_only,
        }
    }

    /// The evaluation steps of every flag, in their order; empty unless requested.
    fn traces(
        &self,
        flags: &FlagSet,
        answers: &Answers<'_>,
        (subject, cohorts): (&Subject<'_>, &dyn Cohorts),
    ) -> Vec<Value> {
        if !self.query.detailed {
            return Vec::new();
        }
        let stored = self.metadata.flags(self.project).iter();
        let filters: HashMap<i64, &Value> =
            stored.map(|stored| (stored.id.0, &stored.filters)).collect();
        let trace = |answer: &Answer<'_>| {
            let filters = filters.get(&answer.id).copied().unwrap_or(&Value::Null);
            let trace = flags.trace(answers, answer.key, filters, subject, cohorts);
            serde_json::to_value(trace).unwrap_or_default()
        };
        answers.flags.iter().map(trace).collect()
    }

    fn selection(&self) -> Selection<'_> {
        let runtime = self.asked.evaluation_runtime.as_deref();
        Selection {
            keys: self.asked.flag_keys.as_deref(),
            runtime: runtime.map(|name| Runtime::parse(Some(name))),
            contexts: &self.asked.evaluation_contexts,
            surveys_only: self.query.surveys_only,
        }
    }
}

fn record<'a>(answer: &'a Answer<'_>) -> FlagRecord<'a> {
    let blank = FlagRecord {
        key: answer.key,
        id: answer.id,
        version: answer.version,
        enabled: false,
        variant: None,
        reason_code: "",
        reason_description: Cow::Borrowed(""),
        condition_index: None,
        payload: None,
        failed: false,
        conditions: None,
    };
    match &answer.result {
        Ok(verdict) => FlagRecord {
            enabled: verdict.enabled,
            variant: verdict.variant,
            reason_code: verdict.reason.code(),
            reason_description: verdict.description(),
            condition_index: verdict.condition_index,
            payload: verdict.payload,
            ..blank
        },
        Err(failure) => FlagRecord {
            reason_code: failure.code(),
            reason_description: failure.description(),
            failed: true,
            ..blank
        },
    }
}
