//! `POST /mcp`: the Model Context Protocol, by which assistants use the server. Each request stands for itself: there are
//! no sessions and no streams, so GET and DELETE are refused as the protocol has it for such servers. The tools are
//! operations of the API with the rights of the caller's key.
//!
//! [`protocol`] has the messages, [`methods`] their meaning, [`tools`] the tools.

mod methods;
mod prompts;
mod protocol;
mod resources;
mod said;
mod talk;
mod token;
mod tools;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::{Asker, CURRENT, Principal};
use crate::fields::{Fields, is_json};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::mcp::methods::REQUEST_TIMEOUT;
use crate::routes::mcp::protocol::{Failure, Head, Message};
use crate::routes::mcp::talk::Talk;
use crate::routes::mcp::token::Seal;
use crate::routes::pages::visit::Asking;
use crate::routes::query::problems;
use crate::{auth, revocation};
use weir_app::App;
use weir_app::throttle::Throttle;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_metadata::accounts::{KeyId, KeyRow, PersonalKey, User};
use weir_metadata::snapshot::Snapshot;
use weir_metadata::standing::Standing;

/// Longest body, in bytes.
const BODY_MAX_BYTES: u64 = 1 << 20;

/// Most messages of a batch.
const BATCH_MAX: usize = 20;

/// The caller of a request.
///
/// # Errors
///
/// 403 for a page of another server, 401 without a valid key.
pub fn asker(app: &App, request: &Request) -> Result<Asker, Problem> {
    let public_url = app.node.config.http.public_url.as_deref();
    let origin = request.header("origin");
    if let Some(origin) = origin
        && !is_known(origin, request.header("host").unwrap_or_default(), public_url)
    {
        let detail = "This page may not use the server: set public-url to its address, if it is of this server.";
        return Err(Problem::permission_denied(detail));
    }
    auth::asker(&app.node.metadata.snapshot(), request, None)
}

/// Whether a page of this origin may talk with the server: one of this machine, or of the address that the server is
/// known by. Not of any name that leads here: who owns a name can let it lead to the server of somebody else, whose
/// browser then takes both for one.
fn is_known(origin: &str, host: &str, public_url: Option<&str>) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let of_public = |url: &str| url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    if public_url.is_some_and(|url| of_public(url).eq_ignore_ascii_case(origin)) {
        return true;
    }
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || authority == host,
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

/// Answers an authenticated request; `project` is the one in the path, if it has one.
///
/// # Errors
///
/// 404 and 403 as for the endpoints of a project; 415; those of the body; 429 of a single request.
pub async fn answer(
    app: &App,
    (throttle, secret): (&Arc<Throttle>, &str),
    (asker, project): (Asker, &str),
    request: Request,
) -> Result<Response, Problem> {
    let principal = principal(&app.node.metadata.snapshot(), &request, asker, project)?;
    let standing = Standing::of(&app.node.metadata, &principal.key, None);
    let standing = standing.within(Some(principal.project.id));
    let app = app.on_behalf_of(principal.key.id, standing.clone());
    let throttle = Some(Arc::clone(throttle));
    let answering = answered(&app, (throttle, secret), principal, request);
    // A change that has begun is completed, whoever waits for it.
    revocation::answered(&standing, answering).await
}

/// `POST /_internal/mcp?project=`, for `weir mcp` on the same data directory: with all rights of the first user.
///
/// # Errors
///
/// 404 for an unknown project; else those of [`answer`].
pub(super) async fn internal(
    app: &App,
    secret: &str,
    request: Request,
) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let unknown = |_| Problem::not_found("There is no such project.");
    let wanted: i64 = match request.query("project") {
        Some(id) => id.parse().map_err(unknown)?,
        None => 1,
    };
    let id: ProjectId =
        app.node.project(wanted).map_err(|error| Problem::not_found(error.to_string()))?;
    let missing = || Problem::not_found("The project has no user.");
    let project = snapshot.project(id).ok_or_else(missing)?;
    let is_own = |user: &&Arc<_>| is_member(user, project.organization);
    let user = snapshot.users().find(is_own).ok_or_else(missing)?;
    let row = KeyRow { id: KeyId(0), label: "weir mcp".to_owned(), ..KeyRow::default() };
    let key = Arc::new(PersonalKey::of(Arc::clone(user), row));
    let principal = Principal { key, user: Arc::clone(user), project: Arc::clone(project) };
    answered(app, (None, secret), principal, request).await
}

fn is_member(user: &User, organization: Uuid) -> bool {
    !user.is_removed() && user.organization == organization
}

/// The caller with the project: that of the path, of `?project=`, else the current one of the user, or the first of the
/// key if that may not use it.
fn principal(
    snapshot: &Snapshot,
    request: &Request,
    asker: Asker,
    in_path: &str,
) -> Result<Principal, Problem> {
    if !in_path.is_empty() {
        return auth::principal(snapshot, request, asker, in_path);
    }
    if let Some(project) = request.query("project") {
        return auth::principal(snapshot, request, asker, &project);
    }
    let current = auth::principal(snapshot, request, asker.clone(), CURRENT);
    let own = asker.key.projects.as_ref().and_then(|own| own.first()).copied();
    match (current, own) {
        (Err(_), Some(own)) => auth::principal(snapshot, request, asker, &own.to_string()),
        (current, _) => current,
    }
}

async fn answered(
    app: &App,
    (throttle, secret): (Option<Arc<Throttle>>, &str),
    asker: Principal,
    mut request: Request,
) -> Result<Response, Problem> {
    let content_type = request.header("content-type").unwrap_or_default();
    if !is_json(content_type) {
        return Err(Problem::unsupported_media_type(content_type));
    }
    let body = request.body.take().read_to_parse(BODY_MAX_BYTES).await?;
    let header = |name: &str| request.header(name).map(str::to_owned);
    let head = Head {
        revision: header("mcp-protocol-version"),
        method: header("mcp-method"),
        name: header("mcp-name"),
    };
    let seal = Seal::new(secret, &app.node.clock);
    let asking = Asking::new(app.clone(), asker, &request);
    let conversation = Conversation { asking, seal, head, throttle };
    // On the threads for queries, where nobody else waits for what is parsed and written.
    let conversing = app.engine.apart(Box::pin(conversation.answer(body)));
    conversing.await.map_err(problems::problem)?
}

/// A body that is being answered.
struct Conversation {
    asking: Asking,
    seal: Seal,
    head: Head,
    /// The rate limits of keys; none for the operator.
    throttle: Option<Arc<Throttle>>,
}

impl Conversation {
    async fn answer(self, body: Bytes) -> Result<Response, Problem> {
        let refused =
            |failure: Failure| Ok(reply(failure.status(None), &failure.answer(&Value::Null)));
        let sent: Value = match json::read_within(Fields::DEPTH_MAX, &body) {
            Ok(sent) => sent,
            Err(error) => return refused(Failure::parse(format!("The body is not JSON: {error}"))),
        };
        drop(body);
        let revision = match self.head.revision(&sent) {
            Ok(revision) => revision,
            Err(failure) => return refused(failure),
        };
        let Self { asking, seal, head, throttle } = self;
        // One for all messages of a batch.
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let talk = Talk { asking, seal, revision, deadline };
        match sent {
            Value::Array(_) if !revision.has_batches() => {
                refused(Failure::request("This revision has no batches: send one message."))
            }
            Value::Array(messages) if messages.is_empty() || messages.len() > BATCH_MAX => {
                refused(Failure::request("A batch has 1 to 20 messages."))
            }
            Value::Array(messages) => {
                let answers = batch(&talk, throttle.as_deref(), messages).await;
                Ok(match answers.is_empty() {
                    true => Response::empty(StatusCode::ACCEPTED),
                    false => reply(StatusCode::OK, &Value::Array(answers)),
                })
            }
            message => single(&talk, (throttle.as_deref(), &head), message).await,
        }
    }
}

/// The answer to one message.
async fn single(
    talk: &Talk,
    (throttle, head): (Option<&Throttle>, &Head),
    message: Value,
) -> Result<Response, Problem> {
    let refused = |failure: &Failure, id: &Value| {
        Ok(reply(failure.status(Some(talk.revision)), &failure.answer(id)))
    };
    let (id, method, params) = match Message::read(message) {
        Err((id, failure)) => return refused(&failure, &id),
        Ok(Message::Silent) => return Ok(Response::empty(StatusCode::ACCEPTED)),
        Ok(Message::Request { id, method, params }) => (id, method, params),
    };
    if talk.revision.has_no_beginning()
        && let Err(failure) = head.check(&method, &params)
    {
        return refused(&failure, &id);
    }
    count(talk, throttle, &method)?;
    match methods::answer(talk, &method, &params).await {
        Ok(result) => Ok(reply(StatusCode::OK, &success(&id, result))),
        Err(failure) => refused(&failure, &id),
    }
}

/// The answers to the messages of a batch, one after the other.
async fn batch(talk: &Talk, throttle: Option<&Throttle>, messages: Vec<Value>) -> Vec<Value> {
    let mut answers = Vec::new();
    for message in messages {
        let (id, method, params) = match Message::read(message) {
            Err((id, failure)) => {
                answers.push(failure.answer(&id));
                continue;
            }
            Ok(Message::Silent) => continue,
            Ok(Message::Request { id, method, params }) => (id, method, params),
        };
        let result = match count(talk, throttle, &method) {
            _ if method == "initialize" => {
                Err(Failure::request("initialize stands by itself, not in a batch."))
            }
            Err(problem) => Err(Failure::server(problem.status(), problem.detail().to_owned())),
            Ok(()) => methods::answer(talk, &method, &params).await,
        };
        answers.push(match result {
            Ok(result) => success(&id, result),
            Err(failure) => failure.answer(&id),
        });
    }
    answers
}

/// Counts a request for the rate limits of the key.
fn count(talk: &Talk, throttle: Option<&Throttle>, method: &str) -> Result<(), Problem> {
    let key = talk.asking.asker.key.id;
    if let Some(throttle) = throttle {
        throttle.check(key, methods::is_analytics(method))?;
    }
    Ok(())
}

fn success(id: &Value, result: Value) -> Value {
    serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn reply(status: StatusCode, message: &Value) -> Response {
    Response::json_bytes(status, message.to_string())
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn pages_of_names_that_lead_here_are_not_known() {
        let public = Some("https://weir.example/analytics");
        for (origin, host, public_url, expected) in [
            ("http://localhost:6274", "127.0.0.1:8000", None, true),
            ("http://127.0.0.1:6274", "localhost:8000", None, true),
            ("http://[::1]:6274", "localhost:8000", None, true),
            ("http://192.168.1.5:8000", "192.168.1.5:8000", None, true),
            ("http://192.168.1.6:8000", "192.168.1.5:8000", None, false),
            // Such a name may lead to 127.0.0.1.
            ("http://evil.example:8000", "evil.example:8000", None, false),
            ("https://weir.example", "weir.example", None, false),
            ("https://weir.example", "internal:8000", public, true),
            ("https://WEIR.example", "internal:8000", public, true),
            ("http://weir.example", "weir.example", public, false),
            ("https://weir.example.evil", "weir.example", public, false),
            ("http://localhost.evil.example", "localhost", None, false),
            ("null", "localhost:8000", None, false),
            ("", "", None, false),
        ] {
            assert_eq!(is_known(origin, host, public_url), expected, "{origin} {host}");
        }
    }
}
