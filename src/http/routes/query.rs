//! SQL in, rows out.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::app::App;
use crate::event::id::ProjectId;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::query::QueryError;
use crate::query::rows::Format;

/// How an answer can be written; the first unless the body says otherwise.
const FORMATS: [(&str, Format); 4] = [
    ("json", Format::Json),
    ("csv", Format::Csv),
    ("table", Format::Table),
    ("parquet", Format::Parquet),
];

/// The body of a question.
#[derive(Debug)]
struct Question {
    /// The SQL text.
    query: String,
    /// The project, for commands of the operator; requests with a key have it in the path.
    project: Option<i64>,
    /// How to write the answer.
    format: Format,
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
    let mut fields = Fields::read(request).await?;
    fields.require("query")?;
    let query = fields.text("query")?.unwrap_or_default();
    let project = fields.nullable_integer("project")?.flatten();
    let name = fields.nullable_choice("format", &FORMATS.map(|(name, _)| name))?.flatten();
    let known = FORMATS.into_iter().find(|(known, _)| name.as_deref() == Some(*known));
    Ok(Question { query, project, format: known.map_or(Format::Json, |(_, format)| format) })
}

async fn answer(app: &App, project: ProjectId, question: Question) -> Result<Response, Problem> {
    let Question { query, format, .. } = question;
    let body = app.engine.sql(project, &query, format).await.map_err(problem)?;
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
