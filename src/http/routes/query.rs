//! Query endpoint: a text of SQL, whose result has a selectable format, or a node like those of PostHog's clients.

pub(in crate::routes) mod actors;
pub(in crate::routes) mod answer;
pub mod fetch;
pub(in crate::routes) mod insight;
pub(in crate::routes) mod problems;
pub(in crate::routes) mod question;
pub(in crate::routes) mod refresh;
pub mod status;
mod unknown;

use serde_json::{Value, json};

use crate::auth::Principal;
use crate::fields::{Fields, refused};
use crate::openapi::{Body, Shape};
use crate::operation::input::{InBody, input};
use crate::operation::{Context, Operation};
use crate::rendering::{NAMES, named};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::query::answer::Answer;
use crate::routes::query::refresh::{Refresh, client_query_id};
use weir_api::node::NodeError;
use weir_api::nodes::check;
use weir_api::query;
use weir_app::App;
use weir_insights::{ProjectSettings, saved};
use weir_metadata::accounts::Project;
use weir_query::kernel::files::File;
use weir_query::output::format::Format;
use weir_wire::query_node;

/// The body of a query.
#[derive(Debug)]
pub struct Question {
    /// The query.
    query: QueryBody,
    /// The project, for commands of the operator; requests with a key have it in their path.
    project: Option<i64>,
    /// How the result of a node is obtained.
    refresh: Refresh,
    /// The id under which the client will fetch a result that is computed later, or cancel the query.
    id: Option<String>,
}

/// Filters and values of variables that a request applies to its node, as a dashboard does.
#[derive(Debug)]
struct Overrides {
    filters: Value,
    variables: Value,
}

impl Overrides {
    /// Reads `filters_override` and `variables_override`.
    fn read(fields: &mut Fields) -> Result<Self, Problem> {
        let mut object = |name: &'static str| match fields.nullable_value(name).flatten() {
            None => Ok(json!({})),
            Some(sent @ Value::Object(_)) => Ok(sent),
            Some(_) => Err(refused(name, "invalid_input", "Expected an object.")),
        };
        let (filters, variables) = (object("filters_override")?, object("variables_override")?);
        check::check_frame(&filters, "filters_override").map_err(|error| of_field(&error))?;
        Ok(Self { filters, variables })
    }

    /// Whether there are no filters and no variables.
    fn is_empty(&self) -> bool {
        [&self.filters, &self.variables].iter().all(|own| **own == json!({}))
    }

    /// The node without its display settings, with the filters and variables applied.
    fn over(&self, node: &Value) -> Result<Value, Problem> {
        let (_, node) = query_node::kind_of(node);
        let mut node = node.clone();
        let changed = saved::with_frame(&mut node, (&self.filters, &self.variables));
        changed.map_err(|error| of_field(&error))?;
        Ok(node)
    }
}

/// The problem for an invalid field of the body.
fn of_field(error: &NodeError) -> Problem {
    refused(error.field.replace('.', "__"), "invalid_input", error.detail.clone())
}

/// The query in a body.
#[derive(Debug)]
enum QueryBody {
    /// A SQL node whose result is requested as a file.
    File(Value, Format),
    /// A text of SQL, and the format of its response.
    Text(String, Format),
    /// A node.
    Node(Value),
}

input! {
    /// Answers `{"query": "SELECT ...", "format": "json"}`, and nodes such as `{"query": {"kind": "HogQLQuery",
    /// "query": "SELECT ..."}}`.
    pub struct Query {
        body question: Question,
    }
}

impl Query {
    /// A query for the rows of SQL.
    pub(in crate::routes) fn rows(sql: &str) -> Self {
        Self::of(QueryBody::Node(json!({"kind": query_node::SQL, "query": sql})))
    }

    /// A query of a node.
    ///
    /// # Errors
    ///
    /// 400 for a field that is not known.
    pub(in crate::routes) fn node(node: Value) -> Result<Self, Problem> {
        check::check(&node).map_err(|error| problems::invalid(&error))?;
        Ok(Self::of(QueryBody::Node(node)))
    }

    /// A query for the result of SQL as a file.
    pub(in crate::routes) fn file(sql: &str, format: Format) -> Self {
        Self::of(QueryBody::Text(sql.to_owned(), format))
    }

    fn of(query: QueryBody) -> Self {
        let (project, refresh, id) = (None, Refresh::default(), None);
        Self { question: Question { query, project, refresh, id } }
    }
}

impl Operation for Query {
    type Who = Principal;
    type Out = Answer;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, asker) = (&cx.app, &cx.who);
        let Question { query, refresh, id, .. } = self.question;
        match &query {
            QueryBody::Node(node) => insight::answer(app, asker, node, (refresh, id)).await,
            QueryBody::Text(sql, format) => {
                Ok(Answer::File(*format, file_of(app, &asker.project, sql, *format).await?))
            }
            QueryBody::File(node, format) => {
                let sql = question::sql_of(node)?;
                let settings = ProjectSettings::of(&asker.project);
                let answering = sql.file(&app.engine, &settings, *format);
                let answering =
                    question::noted(app, settings.project, || question::told(node), answering);
                let computing =
                    Box::pin(async { answering.await.map_err(problems::insight_problem) });
                let file = status::cancellable(app, asker, id, computing).await?;
                Ok(Answer::File(*format, file))
            }
        }
    }
}

/// `POST /_internal/query`, for `weir query` on the same data directory: only texts of SQL.
///
/// # Errors
///
/// 404 for an unknown project; else the errors of [`Query`].
pub(super) async fn internal(app: &App, request: Request) -> Result<Response, Problem> {
    let question = Question::take(&mut Fields::read(request).await?)?;
    let project = app.node.project(question.project.unwrap_or(1));
    let id = project.map_err(|error| Problem::not_found(error.to_string()))?;
    let known = app.node.metadata.snapshot();
    let project =
        known.project(id).ok_or_else(|| Problem::not_found("There is no such project."))?;
    match &question.query {
        QueryBody::Text(sql, format) => {
            let file = file_of(app, project, sql, *format).await?;
            Ok(answer::file(*format, file))
        }
        QueryBody::Node(_) | QueryBody::File(..) => {
            Err(refused("query", "invalid_input", "Expected a text of SQL."))
        }
    }
}

impl InBody for Question {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<query::Question>(true));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        fields.require("query")?;
        let project = fields.nullable_integer("project")?.flatten();
        let (refresh, id) = (Refresh::read(fields)?, client_query_id(fields)?);
        let overrides = Overrides::read(fields)?;
        if let Some(Value::Object(_)) = fields.peek("query") {
            let node = fields.value("query")?.unwrap_or_default();
            check::check(&node).map_err(|error| problems::invalid(&error))?;
            let node = if overrides.is_empty() { node } else { overrides.over(&node)? };
            let format = format(fields)?;
            if format != Format::Json {
                let (kind, inner) = query_node::kind_of(&node);
                if kind != Some(query_node::SQL) {
                    let detail = "Only SQL has other formats than json.";
                    return Err(refused("format", "invalid_input", detail));
                }
                let query = QueryBody::File(inner.clone(), format);
                return Ok(Self { query, project, refresh, id });
            }
            return Ok(Self { query: QueryBody::Node(node), project, refresh, id });
        }
        let query = fields.text("query")?.unwrap_or_default();
        if !overrides.is_empty() {
            let detail = "A text of SQL has no filters and variables: send a HogQLQuery.";
            return Err(refused("query", "invalid_input", detail));
        }
        let format = format(fields)?;
        Ok(Self { query: QueryBody::Text(query, format), project, refresh, id })
    }
}

/// Reads the format of the response.
fn format(fields: &mut Fields) -> Result<Format, Problem> {
    let name = fields.nullable_choice("format", &NAMES)?.flatten();
    Ok(name.as_deref().and_then(named).unwrap_or(Format::Json))
}

/// The result of a text of SQL as a file.
async fn file_of(app: &App, project: &Project, sql: &str, format: Format) -> Result<File, Problem> {
    let answering = Box::pin(app.sql(project.id, sql, format));
    question::noted(app, project.id, || sql.to_owned(), answering).await.map_err(problems::problem)
}
