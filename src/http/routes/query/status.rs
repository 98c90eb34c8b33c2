//! Answers that are computed while the client does not wait: how this begins ([`begin`]); those that it waits for and may
//! cancel ([`cancellable`]); and `P/query/:id/`, where clients ask for the former and cancel both.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, missing};
use crate::lasting::ENDED;
use crate::openapi::{Description, INVALID, by_hand};
use crate::response::{Problem, Response};
use crate::routes::query::answer::Told;
use crate::routes::query::insight::settings;
use crate::routes::query::question::Question;
use crate::routes::query::refresh::client_query_id;
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_insights::cache::Key;
use weir_insights::jobs::{
    Begun, CANCELLED, Cancelled, KEPT, Outcome, RUNNING_PER_KEY_MAX, Status, Ticket,
};
use weir_insights::{InsightError, ProjectSettings};
use weir_metadata::accounts::KeyId;
use weir_metadata::members::Level;

/// `query_status` of PostHog's clients, without `results`.
#[derive(Debug, Serialize)]
struct StatusBody<'s> {
    id: &'s str,
    team_id: i64,
    query_async: bool,
    complete: bool,
    error: bool,
    error_message: Option<&'s str>,
    start_time: String,
    pickup_time: String,
    end_time: Option<String>,
    expiration_time: Option<String>,
    query_progress: Option<()>,
    labels: Option<()>,
    task_id: Option<()>,
    insight_id: Option<()>,
    dashboard_id: Option<()>,
}

/// Begins to compute an answer: 202.
pub(super) fn begin(
    app: &App,
    asker: &Principal,
    what: (Key, Value, Question),
    (id, owner): (Option<String>, ProjectSettings),
) -> Result<Response, Problem> {
    let id = id.unwrap_or_else(|| Uuid::new_v4().to_string());
    let status = begun(app, asker.key.id, what, (id.clone(), owner.clone()))?;
    response(&id, &status, &owner)
}

/// Begins to compute a saved insight, unless it is computed already: the `query_status`. Its id is the key of its
/// answer.
pub(in crate::routes) fn begin_saved(
    app: &App,
    by: KeyId,
    what: (Key, Value, Question),
    owner: &ProjectSettings,
) -> Result<Value, Problem> {
    let id = what.0.to_string();
    let status = begun(app, by, what, (id.clone(), owner.clone()))?;
    let mut body = json!(status_body(&id, &status, owner));
    if let Value::Object(fields) = &mut body {
        fields.insert("results".to_owned(), Value::Null);
    }
    Ok(body)
}

fn begun(
    app: &App,
    by: KeyId,
    (key, query, question): (Key, Value, Question),
    (id, owner): (String, ProjectSettings),
) -> Result<Status, Problem> {
    let ticket = match app.node.jobs.begin((owner.project, id), by, app.node.clock.now()) {
        Begun::New(ticket) => ticket,
        Begun::Running(status) => return Ok(status),
        Begun::TooMany => {
            let detail = format!(
                "This key has {RUNNING_PER_KEY_MAX} queries running already. Wait for one to end, or cancel one."
            );
            return Err(Problem::too_many_requests("concurrency_limit_exceeded", detail));
        }
    };
    let status = ticket.status.clone();
    let (own, tasks) = (app.clone(), app.node.tasks.0.clone());
    let work = async move {
        let tasks = own.node.tasks.0.clone();
        let computing = compute(&own, &ticket, (key, query, question), &owner);
        // What is cut short ends its queries.
        tokio::select! {
            () = computing => {}
            () = ticket.stopped() => {}
            () = own.ended() => {
                let outcome = Outcome::Failed { detail: ENDED.to_owned(), is_fault: false };
                ticket.end(outcome, own.node.clock.now());
            }
            () = tasks.shutdown().cancelled() => {}
        }
    };
    tasks.spawn("query", work);
    Ok(status)
}

async fn compute(
    app: &App,
    ticket: &Ticket,
    (key, query, question): (Key, Value, Question),
    owner: &ProjectSettings,
) {
    let outcome = match question.computed(app, (&key, &query), owner).await {
        Ok(answer) => Outcome::of(key, &answer),
        Err(InsightError::Query(error)) => {
            let is_fault = matches!(error.kind(), Kind::Internal | Kind::Unavailable);
            if is_fault {
                tracing::error!(%error, "a query that nobody waits for failed");
            }
            Outcome::Failed { detail: error.to_string(), is_fault }
        }
        Err(InsightError::Node(error)) => Outcome::Failed { detail: error.detail, is_fault: false },
    };
    ticket.end(outcome, app.node.clock.now());
}

/// `GET P/query/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let owner = settings(&call.asker.project);
    let id = (owner.project, call.id().to_owned());
    let status = app.node.jobs.status(&id, app.node.clock.now());
    let status = status.ok_or_else(unknown)?;
    response(&id.1, &status, &owner)
}

/// What `computing` gives, which can be cancelled under this id meanwhile.
///
/// # Errors
///
/// 400: it was cancelled. Else those of `computing`.
pub(in crate::routes) async fn cancellable<T>(
    app: &App,
    asker: &Principal,
    id: Option<String>,
    computing: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let id = id.map(|id| (asker.project.id, id));
    let waiting = id.and_then(|id| app.node.jobs.wait(id, asker.key.id, app.node.clock.now()));
    let Some(ticket) = waiting else { return computing.await };
    // What is cut short ends its queries.
    tokio::select! {
        answer = computing => answer,
        () = ticket.stopped() => Err(Problem::new(Kind::Invalid, "query_cancelled", CANCELLED)),
    }
}

pub(crate) const CANCEL: Description =
    Description::created::<by_hand::AnyObject>("Cancel the query with a client_query_id")
        .body::<by_hand::AnyObject>()
        .or(&[INVALID]);

/// `POST P/insights/cancel/` with `client_query_id`, as clients of insights do; the same as [`cancel`].
pub async fn cancel_insight(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let mut fields = Fields::read(call.request).await?;
    fields.require("client_query_id")?;
    let id = client_query_id(&mut fields)?;
    let id = (call.asker.project.id, id.ok_or_else(|| missing("client_query_id"))?);
    stop(app, &call.asker, &id)?;
    Ok(Response::json(StatusCode::CREATED, &json!({})))
}

/// `DELETE P/query/:id/`.
pub async fn cancel(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = (call.asker.project.id, call.id().to_owned());
    if !stop(app, &call.asker, &id)? && app.node.jobs.status(&id, app.node.clock.now()).is_none() {
        return Err(unknown());
    }
    Ok(Response::json(StatusCode::OK, &json!({"message": "Query cancelled."})))
}

/// Cancels a running query; false if there is none.
///
/// # Errors
///
/// 403 for a query of another key, unless the asker has all rights of an admin.
fn stop(app: &App, asker: &Principal, id: &(ProjectId, String)) -> Result<bool, Problem> {
    let is_allowed = |by: KeyId| {
        let has_all = auth::grants(&asker.key, "*:write");
        by == asker.key.id || has_all && auth::require_level(&asker.key, Level::Admin).is_ok()
    };
    match app.node.jobs.cancel(id, is_allowed, app.node.clock.now()) {
        Cancelled::Done => Ok(true),
        Cancelled::Nothing => Ok(false),
        Cancelled::Refused => {
            let detail = "This query was asked with another key. Only an admin with all rights may cancel it.";
            Err(Problem::permission_denied(detail))
        }
    }
}

fn unknown() -> Problem {
    Problem::not_found("Not found.")
}

fn response(id: &str, status: &Status, owner: &ProjectSettings) -> Result<Response, Problem> {
    let code = match status.ended.as_ref().map(|(_, outcome)| outcome) {
        None => StatusCode::ACCEPTED,
        Some(Outcome::Answer(..)) => StatusCode::OK,
        Some(Outcome::Failed { is_fault: true, .. }) => StatusCode::INTERNAL_SERVER_ERROR,
        Some(Outcome::Failed { .. }) => StatusCode::BAD_REQUEST,
    };
    let text = text(id, status, owner).map_err(|error| Problem::of(Kind::Internal, &error))?;
    Ok(Response::json_bytes(code, text))
}

/// `{"query_status": {..., "results": ...}}`.
fn text(id: &str, status: &Status, owner: &ProjectSettings) -> Result<Vec<u8>, serde_json::Error> {
    let body = serde_json::to_string(&status_body(id, status, owner))?;
    let body = body.strip_suffix('}').unwrap_or_default();
    let mut text = format!("{{\"query_status\":{body},\"results\":").into_bytes();
    match &status.ended {
        Some((_, Outcome::Answer(key, answer))) => {
            Told::new(*key, answer, owner, false).add_to(&mut text)?;
        }
        _ => text.extend_from_slice(b"null"),
    }
    text.extend_from_slice(b"}}");
    Ok(text)
}

fn status_body<'s>(id: &'s str, status: &'s Status, owner: &'s ProjectSettings) -> StatusBody<'s> {
    let ended = status.ended.as_ref();
    let error = match ended.map(|(_, outcome)| outcome) {
        None | Some(Outcome::Answer(..)) => None,
        Some(Outcome::Failed { detail, is_fault }) => Some((detail.as_str(), *is_fault)),
    };
    StatusBody {
        id,
        team_id: owner.project.0,
        query_async: !status.is_waited,
        complete: ended.is_some(),
        error: error.is_some(),
        // What is the server's fault tells nothing of the server.
        error_message: error.filter(|(_, is_fault)| !is_fault).map(|(detail, _)| detail),
        start_time: status.started_at.to_rfc3339(),
        pickup_time: status.started_at.to_rfc3339(),
        end_time: ended.map(|(at, _)| at.to_rfc3339()),
        expiration_time: ended.map(|(at, _)| at.saturating_add(KEPT).to_rfc3339()),
        query_progress: None,
        labels: None,
        task_id: None,
        insight_id: None,
        dashboard_id: None,
    }
}
