//! SQL in, rows out.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde::Deserialize;

use crate::app::App;
use crate::error::Kind;
use crate::event::id::ProjectId;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::query::QueryError;
use crate::query::rows::Format;

/// Longest SQL text.
const SQL_MAX_BYTES: u64 = 1 << 20;

/// The body of a question.
#[derive(Debug, Deserialize)]
struct Question {
    /// The SQL text.
    query: String,
    /// The project, for commands of the operator; requests with a key have it in the path.
    #[serde(default)]
    project: Option<i64>,
    /// How to write the answer.
    #[serde(default)]
    format: Option<String>,
}

/// `POST /api/projects/:project/query/` with `{"query": "SELECT ...", "format": "json"}`.
pub async fn query(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let question = read(call.request).await?;
    answer(app, call.asker.project.id, question).await
}

/// `POST /_internal/query`, for `weir query` on the same data directory. The secret stands in the
/// lock file, which only the server's user can read.
pub async fn internal(app: &App, secret: &Arc<str>, request: Request) -> Result<Response, Problem> {
    let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if bearer.is_none_or(|given| !is_same(given.as_bytes(), secret.as_bytes())) {
        return Err(Problem::not_authenticated());
    }
    let question = read(request).await?;
    let project = ProjectId(question.project.unwrap_or(1));
    answer(app, project, question).await
}

/// Compares without telling by the time it takes where the difference is.
fn is_same(given: &[u8], secret: &[u8]) -> bool {
    let differing = given.iter().zip(secret).fold(0, |acc, (a, b)| acc | (a ^ b));
    given.len() == secret.len() && differing == 0
}

async fn read(request: Request) -> Result<Question, Problem> {
    let body = request.body.read(SQL_MAX_BYTES).await?;
    serde_json::from_slice(&body).map_err(|error| Problem::parse_error(&error))
}

async fn answer(app: &App, project: ProjectId, question: Question) -> Result<Response, Problem> {
    let format = match question.format.as_deref() {
        None | Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some("table") => Format::Table,
        Some("parquet") => Format::Parquet,
        Some(other) => {
            let detail = format!("\"{other}\" is not a valid choice.");
            let problem = Problem::new(Kind::Invalid, "invalid_choice", detail);
            return Err(problem.with_attr(Attr::Name("format".into())));
        }
    };
    let body = app.engine.sql(project, &question.query, format).await.map_err(problem)?;
    let content_type = match format {
        Format::Json => "application/x-ndjson",
        Format::Csv => "text/csv; charset=utf-8",
        Format::Table => "text/plain; charset=utf-8",
        Format::Parquet => "application/vnd.apache.parquet",
    };
    Ok(Response::bytes(StatusCode::OK, HeaderValue::from_static(content_type), body))
}

/// The answer to a failed question.
pub(super) fn problem(error: QueryError) -> Problem {
    Problem::of(error.kind(), &error)
}
