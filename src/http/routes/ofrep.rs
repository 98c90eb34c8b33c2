//! OFREP, OpenFeature's remote evaluation protocol: one flag, or all. The project's token is in
//! `X-API-Key`, or in `Authorization` as a bearer token or alone. `targetingKey` is the distinct id,
//! `groups` the groups, and every other field of the context a property of the person.
//!
//! Every flag has a `variant`, which released providers require: the key of its variant, and `true` or
//! `false` for a flag without variants, as in `$feature_flag_response` and in the keys of payloads.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use crate::conditional::Tag;
use crate::page::base_url;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::{auth, conditional};
use weir_app::App;
use weir_evaluation::EvaluationRequest;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_event::key_kind::KeyKind;
use weir_flags::definition::Definition;
use weir_flags::set::{Answer, FlagSet, Selection};
use weir_flags::verdict::{Reason, Verdict};
use weir_metadata::snapshot::Snapshot;

/// Largest body, as for the other endpoints of flag evaluation.
const BODY_MAX_BYTES: u64 = 2 << 20;

/// Cost factor of a response compared with `/flags`: each flag is a tree of JSON values.
const SHOWING_FACTOR: u64 = 4;

/// The response depends on one person and may change at any time.
const CACHE: &str = "private, must-revalidate";

/// The variants of a flag without variants that is on, and of a flag that is off.
const ON: &str = "true";
const OFF: &str = "false";

/// Time after which a client reconnects if the event stream sends nothing.
const INACTIVITY_SECONDS: u64 = 120;

/// Subject of an evaluation request.
struct Context {
    distinct_id: String,
    groups: Map<String, Value>,
    properties: Map<String, Value>,
    empty: Map<String, Value>,
}

/// A refused request: `errorCode` and `errorDetails`.
struct Refusal(&'static str, String);

impl Context {
    fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let refused = |code, details: &str| Refusal(code, details.to_owned());
        let body: Value =
            json::read(body).map_err(|error| Refusal("PARSE_ERROR", error.to_string()))?;
        let context = match body.get("context") {
            Some(Value::Object(context)) => context.clone(),
            None | Some(Value::Null) => Map::new(),
            Some(_) => return Err(refused("INVALID_CONTEXT", "context must be an object")),
        };
        let mut properties = context;
        let distinct_id = match properties.remove("targetingKey") {
            Some(Value::String(key)) if !key.is_empty() => key,
            Some(Value::Number(number)) => number.to_string(),
            None | Some(Value::Null | Value::String(_)) => {
                return Err(refused("TARGETING_KEY_MISSING", "the context has no targetingKey"));
            }
            Some(_) => return Err(refused("INVALID_CONTEXT", "targetingKey must be a string")),
        };
        let groups = match properties.remove("groups") {
            Some(Value::Object(groups)) => groups,
            _ => Map::new(),
        };
        Ok(Self { distinct_id, groups, properties, empty: Map::new() })
    }

    fn question(&self, project: ProjectId) -> EvaluationRequest<'_> {
        EvaluationRequest {
            project,
            distinct_id: &self.distinct_id,
            anon_distinct_id: None,
            device_id: None,
            groups: &self.groups,
            person_properties: &self.properties,
            group_properties: &self.empty,
            supplied_only: false,
        }
    }
}

fn project(snapshot: &Snapshot, request: &Request) -> Result<ProjectId, Problem> {
    let token = request.header("x-api-key").or_else(|| auth::project_token(request));
    let token = token.unwrap_or_default().trim();
    Ok(snapshot
        .project_by_token(token)
        .ok_or_else(|| Problem::invalid_api_key(KeyKind::of(token)))?
        .id)
}

/// `POST /ofrep/v1/evaluate/flags/:key`.
pub async fn one(app: &App, key: &str, request: Request) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let project = project(&snapshot, &request)?;
    let body = request.body.read(BODY_MAX_BYTES).await?;
    let body_bytes = body.len();
    let refused = |status, Refusal(code, details): Refusal| {
        let body = json!({"key": key, "errorCode": code, "errorDetails": details});
        Ok(Response::json(status, &body))
    };
    let context = match Context::parse(&body) {
        Ok(context) => context,
        Err(refusal) => return refused(StatusCode::BAD_REQUEST, refusal),
    };
    let flags = snapshot.flag_set(project).cloned();
    let Some((flags, entry)) = flags.and_then(|flags| {
        let entry = Arc::clone(flags.by_key(key)?);
        Some((flags, entry))
    }) else {
        let details = format!("There is no flag \"{key}\".");
        return refused(StatusCode::NOT_FOUND, Refusal("FLAG_NOT_FOUND", details));
    };
    if !entry.active {
        let is_multivariate = entry.definition.as_ref().is_ok_and(|flag| !flag.variants.is_empty());
        let value = (!is_multivariate).then_some(Value::Bool(false));
        return Ok(Response::json(StatusCode::OK, &item(key, value, OFF, "DISABLED")));
    }
    let known = app.shard.evaluator.load(&snapshot, &context.question(project)).await?;
    // The flag may depend on all others.
    let nanos = flags.effort().nanos(body_bytes);
    let (keys, now) = ([key.to_owned()], app.node.clock.now());
    let evaluation = move || {
        let selection = Selection { keys: Some(&keys), ..Selection::default() };
        known.evaluate(&snapshot, &context.question(project), now, |subject, cohorts| {
            let answers = flags.evaluate(subject, &selection, cohorts);
            answers.flags.first().map(|answer| shown(&flags, answer))
        })
    };
    match app.shard.evaluator.run(nanos, evaluation).await? {
        Some(Ok(item)) => Ok(Response::json(StatusCode::OK, &item)),
        Some(Err(refusal)) => refused(StatusCode::BAD_REQUEST, refusal),
        None => refused(
            StatusCode::BAD_REQUEST,
            Refusal("GENERAL", "the flag was not evaluated".to_owned()),
        ),
    }
}

/// `POST /ofrep/v1/evaluate/flags`.
pub async fn all(app: &App, request: Request) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let project = project(&snapshot, &request)?;
    let headers = request.headers.clone();
    let stream = event_stream(app, &snapshot, project, &request);
    let body = request.body.read(BODY_MAX_BYTES).await?;
    let body_bytes = body.len();
    let context = match Context::parse(&body) {
        Ok(context) => context,
        Err(Refusal(code, details)) => {
            let body = json!({"errorCode": code, "errorDetails": details});
            return Ok(Response::json(StatusCode::BAD_REQUEST, &body));
        }
    };
    let written = move |items: Vec<Value>| {
        let body = json!({"flags": items, "metadata": {}, "eventStreams": [stream]}).to_string();
        let tag = Tag::of(body.as_bytes());
        (body, tag)
    };
    let (body, tag) = match snapshot.flag_set(project).cloned() {
        None => written(Vec::new()),
        Some(flags) => {
            let known = app.shard.evaluator.load(&snapshot, &context.question(project)).await?;
            let nanos = flags.effort().nanos(body_bytes).saturating_mul(SHOWING_FACTOR);
            let now = app.node.clock.now();
            let evaluation = move || {
                let question = context.question(project);
                written(known.evaluate(&snapshot, &question, now, |subject, cohorts| {
                    let answers = flags.evaluate(subject, &Selection::default(), cohorts);
                    answers.flags.iter().map(|answer| item_of(&flags, answer)).collect()
                }))
            };
            app.shard.evaluator.run(nanos, evaluation).await?
        }
    };
    let response = || Response::json_bytes(StatusCode::OK, body);
    Ok(conditional::respond(&headers, &tag, CACHE, response))
}

fn event_stream(app: &App, snapshot: &Snapshot, project: ProjectId, request: &Request) -> Value {
    let token = snapshot.project(project).map(|project| project.token.as_str());
    let base = base_url(request, app.node.config.http.public_url.as_deref());
    let mut url = format!("{base}/flags/events?");
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("token", token.unwrap_or_default())
        .finish();
    url.push_str(&query);
    json!({"type": "sse", "url": url, "inactivityDelaySec": INACTIVITY_SECONDS})
}

/// One flag of the list: its evaluation, or its error.
fn item_of(flags: &FlagSet, answer: &Answer<'_>) -> Value {
    shown(flags, answer).unwrap_or_else(|Refusal(code, details)| {
        json!({"key": answer.key, "errorCode": code, "errorDetails": details})
    })
}

/// One flag in OpenFeature's format. A flag with variants that is off has no value, so that the
/// program's default applies.
fn shown(flags: &FlagSet, answer: &Answer<'_>) -> Result<Value, Refusal> {
    let verdict = answer.result.as_ref();
    let verdict =
        verdict.map_err(|failure| Refusal("GENERAL", failure.description().into_owned()))?;
    let flag = flags.by_key(answer.key).and_then(|entry| entry.definition.as_ref().ok());
    let has_variants = flag.is_some_and(|flag| !flag.variants.is_empty());
    let (value, variant) = match verdict.variant.filter(|_| verdict.enabled) {
        Some(variant) => (Some(Value::from(variant)), variant),
        None if verdict.enabled => (Some(Value::Bool(true)), ON),
        None => ((!has_variants).then_some(Value::Bool(false)), OFF),
    };
    let mut metadata = Map::from_iter([("version".to_owned(), answer.version.into())]);
    if let Some(payload) = verdict.payload {
        metadata.insert("payload".to_owned(), payload.clone());
    }
    let mut shown = item(answer.key, value, variant, reason(flag, verdict));
    shown.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(Value::Object(shown))
}

fn item(key: &str, value: Option<Value>, variant: &str, reason: &str) -> Map<String, Value> {
    let mut item = Map::from_iter([
        ("key".to_owned(), Value::from(key)),
        ("variant".to_owned(), Value::from(variant)),
        ("reason".to_owned(), Value::from(reason)),
        ("metadata".to_owned(), json!({})),
    ]);
    if let Some(value) = value {
        item.insert("value".to_owned(), value);
    }
    item
}

fn reason(flag: Option<&Definition>, verdict: &Verdict<'_>) -> &'static str {
    let condition = verdict.condition_index.and_then(|index| flag?.conditions.get(index));
    match verdict.reason {
        Reason::ConditionMatch => match (flag, condition) {
            (Some(flag), Some(condition)) if flag.needs_hash(condition) => "SPLIT",
            (_, Some(condition)) if condition.filters.is_empty() => "STATIC",
            _ => "TARGETING_MATCH",
        },
        Reason::SuperConditionValue => "TARGETING_MATCH",
        Reason::HoldoutConditionValue => "SPLIT",
        Reason::FlagDisabled => "DISABLED",
        Reason::OutOfRolloutBound
        | Reason::NoConditionMatch
        | Reason::NoGroupType
        | Reason::MissingDependency => "DEFAULT",
    }
}
