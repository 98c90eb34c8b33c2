//! Query endpoint: SQL as a text or as a node like those of PostHog's clients, which has its own response
//! format; other nodes are insights.

pub(in crate::http::routes) mod insight;
pub(in crate::http::routes) mod refresh;
pub mod status;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::query::refresh::Refresh;
use crate::http::routes::query::refresh::client_query_id;
use crate::insights::InsightError;
use crate::insights::ProjectSettings;
use crate::insights::sql::SqlQuery;
use crate::metadata::accounts::Project;
use crate::query::error::QueryError;
use crate::query::paging::Page;
use crate::query::paging::page_of;
use crate::query::rows::Format;

/// Formats of a response; the first is the default.
const FORMATS: [(&str, Format); 5] = [
    ("json", Format::Json),
    ("csv", Format::Csv),
    ("table", Format::Table),
    ("parquet", Format::Parquet),
    ("arrow", Format::Arrow),
];

/// Most characters of an unknown kind of query that an error repeats.
const KIND_MAX_CHARS: usize = 100;

/// The body of a query.
#[derive(Debug)]
struct Question {
    /// The SQL text, or an insight.
    query: Asked,
    /// The project, for commands of the operator; requests with a key have it in their path.
    project: Option<i64>,
    /// How an answer to an insight is obtained.
    refresh: Refresh,
    /// The name under which the client will ask for one that comes later.
    id: Option<String>,
    /// Format of the response; `None` for a node, whose response has a fixed format.
    format: Option<Format>,
}

/// What a query asks.
#[derive(Debug)]
enum Asked {
    /// SQL.
    Sql(SqlQuery),
    /// An insight by its kind and its node.
    Insight(String, Value),
}

/// `POST /api/projects/:project/query/` with `{"query": "SELECT ...", "format": "json"}`, or with
/// `{"query": {"kind": "HogQLQuery", "query": "SELECT ..."}}`.
pub async fn query(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let question = read(call.request).await?;
    match &question.query {
        Asked::Insight(kind, node) => {
            let how = (question.refresh, question.id);
            insight::answer(app, &call.asker, (kind, node), how).await
        }
        Asked::Sql(sql) => answer(app, &call.asker.project, sql, question.format).await,
    }
}

/// `POST /_internal/query`, for `weir query` on the same data directory.
///
/// # Errors
///
/// 404 for an unknown project; else the errors of [`query`].
pub(super) async fn internal(app: &App, request: Request) -> Result<Response, Problem> {
    let question = read(request).await?;
    let project = app.project(question.project.unwrap_or(1));
    let id = project.map_err(|error| Problem::not_found(error.to_string()))?;
    let known = app.metadata.snapshot();
    let project =
        known.project(id).ok_or_else(|| Problem::not_found("There is no such project."))?;
    match &question.query {
        Asked::Sql(sql) => answer(app, project, sql, question.format).await,
        Asked::Insight(kind, _) => {
            let detail = format!("{kind} is not SQL.");
            Err(refused("query", "invalid_input", detail))
        }
    }
}

async fn read(request: Request) -> Result<Question, Problem> {
    let mut fields = Fields::read(request).await?;
    fields.require("query")?;
    let project = fields.nullable_integer("project")?.flatten();
    let (refresh, id) = (Refresh::read(&mut fields)?, client_query_id(&mut fields)?);
    if let Some(Value::Object(_)) = fields.peek("query") {
        let node = fields.value("query")?.unwrap_or_default();
        let (kind, inner) = insight::unwrapped(&node);
        let query = match kind.filter(|kind| insight::is_insight(kind)) {
            Some(kind) => Asked::Insight(kind.to_owned(), inner.clone()),
            None => Asked::Sql(sql_of(inner)?),
        };
        return Ok(Question { query, project, refresh, id, format: None });
    }
    let query = fields.text("query")?.unwrap_or_default();
    let name = fields.nullable_choice("format", &FORMATS.map(|(name, _)| name))?.flatten();
    let known = FORMATS.into_iter().find(|(known, _)| name.as_deref() == Some(*known));
    let format = known.map_or(Format::Json, |(_, format)| format);
    let query = Asked::Sql(SqlQuery::new(query));
    Ok(Question { query, project, refresh, id, format: Some(format) })
}

/// The SQL of a node: of a `HogQLQuery`, or of the one in a `DataVisualizationNode`. Other nodes are
/// refused.
pub(in crate::http::routes) fn sql_of(node: &Value) -> Result<SqlQuery, Problem> {
    let kind = |node: &Value| node.get("kind").and_then(Value::as_str).map(str::to_owned);
    let (sql, kind) = match (kind(node), node.get("source")) {
        (Some(outer), Some(source)) if outer == "DataVisualizationNode" => (source, kind(source)),
        (kind, _) => (node, kind),
    };
    let Some(kind) = kind else {
        let detail = "A query is a text of SQL, or an object with a kind.";
        return Err(refused("query", "invalid_input", detail));
    };
    if kind != "HogQLQuery" {
        let kind: String = kind.chars().take(KIND_MAX_CHARS).collect();
        let detail = format!(
            "Queries of the kind {kind} are not available. Send a TrendsQuery, a FunnelsQuery, or a HogQLQuery with SQL."
        );
        return Err(refused("query", "invalid_input", detail));
    }
    SqlQuery::parse(sql).map_err(|error| match error {
        InsightError::Node(error) if error.field == "query" => {
            refused("query__query", "required", error.detail)
        }
        error => insight::problem(error),
    })
}

async fn answer(
    app: &App,
    project: &Project,
    query: &SqlQuery,
    format: Option<Format>,
) -> Result<Response, Problem> {
    let Some(format) = format else { return answer_node(app, project, query).await };
    let body = app.engine.sql(project.id, &query.text, format).await.map_err(problem)?;
    Ok(Response::bytes(StatusCode::OK, media_type(format), body))
}

/// The media type of an answer.
pub(in crate::http::routes) fn media_type(format: Format) -> HeaderValue {
    HeaderValue::from_static(match format {
        Format::Json => "application/x-ndjson",
        Format::Columns { .. } => "application/json",
        Format::Csv => "text/csv; charset=utf-8",
        Format::Table => "text/plain; charset=utf-8",
        Format::Parquet => "application/vnd.apache.parquet",
        Format::Arrow => "application/vnd.apache.arrow.stream",
    })
}

/// The response to a node; see [`rows`].
async fn answer_node(app: &App, project: &Project, query: &SqlQuery) -> Result<Response, Problem> {
    let (mut rows, page) = rows(app, &insight::settings(project), query).await?;
    let more = json!({
        "query": query.text, "limit": page.limit, "offset": page.offset, "error": null, "is_cached": false,
    });
    // Both are JSON objects: the first is continued by the second. Two pieces avoid a copy of a large
    // response.
    rows.truncate(rows.len().saturating_sub(1));
    let more = Bytes::from(format!(",{}", more.to_string().trim_start_matches('{')));
    let size = rows.len().saturating_add(more.len());
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let pieces = futures::stream::iter([Ok(rows), Ok(more)]);
    let content_type = HeaderValue::from_static("application/json");
    Ok(Response::sized_stream(StatusCode::OK, content_type, size, pieces))
}

/// The answer to the SQL of a node as a JSON object: `columns`, `types`, rows as lists in `results`, and in `hasMore`
/// whether there are more rows than its `LIMIT`. Without a `LIMIT` it has all rows, or is refused if there are too many.
pub(in crate::http::routes) async fn rows(
    app: &App,
    owner: &ProjectSettings,
    query: &SqlQuery,
) -> Result<(Bytes, Page), Problem> {
    let page = page_of(&query.text);
    let most = app.config.query.query_rows_max;
    // One more row than returned shows whether there are more. Where the limit forbids that row, a full page
    // counts as having more, and a client that reads page by page gets an empty last page.
    let (asked, rows_max, more_from) = match (page.limit, page.with_one_more(&query.text)) {
        (Some(limit), Some(asked)) if limit < most => (asked, limit, limit + 1),
        (Some(limit), _) if limit == most => (query.text.clone(), limit, limit),
        _ => (query.text.clone(), usize::MAX, usize::MAX),
    };
    let format = Format::Columns { rows_max, more_from };
    let view = query.view(&app.engine, owner).await.map_err(insight::problem)?;
    let rows = app.engine.sql_of(owner.project, view, &asked, format).await.map_err(problem)?;
    Ok((rows, page))
}

/// The response to a failed query.
pub(super) fn problem(error: QueryError) -> Problem {
    match &error {
        // The operator has to know the file; the caller did nothing wrong.
        QueryError::Damaged(_) => {
            Problem::new(error.kind(), "data_file_damaged", error.to_string()).because(&error)
        }
        QueryError::Store(_) => {
            Problem::new(error.kind(), "object_store_unavailable", error.to_string())
                .because(&error)
        }
        _ => Problem::of(error.kind(), &error),
    }
}
