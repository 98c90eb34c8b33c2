//! Queries that are computed while the client does not wait ([`begin`]), queries that the client waits for and may
//! cancel ([`cancellable`]), and `P/query/:id/`, where clients fetch the former and cancel both.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::fields::{Fields, missing};
use crate::openapi::{AnyObject, Body, Shape};
use crate::operation::input::{InBody, input};
use crate::operation::output::Created;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::revocation::ENDED;
use crate::routes::query::answer::{Later, status_body};
use crate::routes::query::question::Question;
use crate::routes::query::refresh::client_query_id;
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_insights::cache::Key;
use weir_insights::jobs::{
    Begun, CANCELLED, Cancelled, Outcome, RUNNING_PER_KEY_MAX, Status, Ticket,
};
use weir_insights::{InsightError, ProjectSettings};
use weir_metadata::accounts::KeyId;
use weir_metadata::members::Level;

/// Starts to compute a result later: 202.
pub(super) fn begin(
    app: &App,
    asker: &Principal,
    what: (Key, Value, Question),
    (id, owner): (Option<String>, ProjectSettings),
) -> Result<Later, Problem> {
    let id = id.unwrap_or_else(|| Uuid::new_v4().to_string());
    let status = begun(app, asker.key.id, what, (id.clone(), owner.clone()))?;
    Ok(Later { id, status, owner })
}

/// Starts to compute a saved insight, unless that is running already. Returns the `query_status`. Its id is the cache
/// key of the result.
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
        // Dropping the computation ends its queries.
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

input! {
    /// What became of a query that is answered later.
    pub struct Retrieve {
        path id: String,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = Later;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (node, owner) = (&cx.app.node, ProjectSettings::of(&cx.who.project));
        let id = (owner.project, self.id);
        let status = node.jobs.status(&id, node.clock.now()).ok_or_else(unknown)?;
        Ok(Later { id: id.1, status, owner })
    }
}

/// Runs `computing`, which can be cancelled under this id meanwhile.
///
/// # Errors
///
/// 400 if it was cancelled; else those of `computing`.
pub(in crate::routes) async fn cancellable<T>(
    app: &App,
    asker: &Principal,
    id: Option<String>,
    computing: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let id = id.map(|id| (asker.project.id, id));
    let waiting = id.and_then(|id| app.node.jobs.wait(id, asker.key.id, app.node.clock.now()));
    let Some(ticket) = waiting else { return computing.await };
    // Dropping the computation ends its queries.
    tokio::select! {
        answer = computing => answer,
        () = ticket.stopped() => Err(Problem::new(Kind::Invalid, "query_cancelled", CANCELLED)),
    }
}

/// The `client_query_id` of a query.
#[derive(Debug)]
pub struct Named(String);

impl InBody for Named {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<AnyObject>(true));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        fields.require("client_query_id")?;
        client_query_id(fields)?.map(Self).ok_or_else(|| missing("client_query_id"))
    }
}

input! {
    /// Cancels the query with a `client_query_id`, as clients of insights do; the same as [`Cancel`].
    pub struct CancelInsight {
        body named: Named,
    }
}

impl Operation for CancelInsight {
    type Who = Principal;
    type Out = Created<AnyObject>;
    const SCOPE: &'static str = "insight:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        stop(&cx.app, &cx.who, &(cx.who.project.id, self.named.0))?;
        Ok(Created(AnyObject::new()))
    }
}

/// What is said of a query that is cancelled.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Message {
    message: &'static str,
}

input! {
    /// Cancels a query that is answered later.
    pub struct Cancel {
        path id: String,
    }
}

impl Operation for Cancel {
    type Who = Principal;
    type Out = Message;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (node, id) = (&cx.app.node, (cx.who.project.id, self.id));
        if !stop(&cx.app, &cx.who, &id)? && node.jobs.status(&id, node.clock.now()).is_none() {
            return Err(unknown());
        }
        Ok(Message { message: "Query cancelled." })
    }
}

/// Cancels a running query; false if no such query is running.
///
/// # Errors
///
/// 403 for a query of another key, unless the caller has all rights of an admin.
fn stop(app: &App, asker: &Principal, id: &(ProjectId, String)) -> Result<bool, Problem> {
    let is_allowed = |by: KeyId| {
        let has_all = asker.key.grants("*:write");
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
