//! `POST persons/:id/split/`: takes merges back. Every distinct id of the person but one gets a
//! person of its own, without properties; the person keeps its number and its properties, as newer
//! versions of PostHog have it (older ones cleared them if no id was named).
//!
//! The operation goes through the log like an event: it has its place among them, and survives a
//! crash as they do. The answer comes when it has taken effect.

use hyper::StatusCode;
use serde_json::Value;

use crate::app::App;
use crate::error::Kind;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::persons;
use crate::http::routes::query;
use crate::ingest::operation::Action;
use crate::ingest::operation::Operation;

/// Longest body: room for the longest distinct id, however it is escaped, many times over.
const BODY_MAX_BYTES: u64 = 64 << 10;

/// Splits the person `id`, a number or a uuid. The body may name `main_distinct_id`, the id that
/// the person keeps.
pub async fn split(
    app: &App,
    project: &str,
    id: &str,
    request: Request,
) -> Result<Response, Problem> {
    let principal = persons::principal(app, project, &request, "write")?;
    let project = principal.project.id;
    let (person, ids) = persons::find_one(app, project, id).await?;
    let main_distinct_id = main_distinct_id(request).await?;
    if let Some(main) = main_distinct_id.as_ref().filter(|main| !ids.contains(*main)) {
        let detail = format!("The person has no distinct id \"{main}\".");
        return Err(invalid(detail));
    }
    let operation = Operation {
        project,
        at: app.clock.now(),
        action: Action::SplitPerson { person: person.uuid.to_string(), main_distinct_id },
    };
    let pipeline = app.pipeline.clone();
    let operating = app.tasks.0.detach("split", async move { pipeline.operate(operation).await });
    let done = operating.await.map_err(|error| Problem::of(error.kind(), &error))?;
    done.map_err(|error| Problem::of(error.kind(), &error))?;
    app.engine.wait().await.map_err(query::problem)?;
    let (person, ids) = persons::find_one(app, project, &person.number.to_string()).await?;
    let mut body = persons::body(&principal.project, person, ids);
    if let Value::Object(body) = &mut body {
        body.insert("success".to_owned(), Value::Bool(true));
    }
    Ok(Response::json(StatusCode::CREATED, &body))
}

async fn main_distinct_id(request: Request) -> Result<Option<String>, Problem> {
    let body = request.body.read(BODY_MAX_BYTES).await?;
    if body.is_empty() {
        return Ok(None);
    }
    let body: Value =
        serde_json::from_slice(&body).map_err(|error| Problem::parse_error(&error))?;
    match body.get("main_distinct_id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(_) => Err(invalid("Not a valid string.".to_owned())),
    }
}

fn invalid(detail: String) -> Problem {
    Problem::new(Kind::Invalid, "invalid_input", detail)
        .with_attr(Attr::Name("main_distinct_id".into()))
}
