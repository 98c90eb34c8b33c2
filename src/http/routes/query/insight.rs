//! Queries as nodes: `{"query": {"kind": "TrendsQuery", ...}}`. Their results may come from the cache, and may be
//! computed while the client does not wait.

use std::sync::Arc;

use serde_json::Value;

use crate::auth::Principal;
use crate::fields::refused;
use crate::response::Problem;
use crate::routes::query;
use crate::routes::query::answer::{Answer, NodeAnswer};
use crate::routes::query::question::Question;
use crate::routes::query::refresh::Refresh;
use crate::routes::query::status;
use weir_api::node::NodeError;
use weir_app::App;
use weir_insights::{InsightError, ProjectSettings, cache};
use weir_metadata::accounts::Project;
use weir_wire::query_node;

/// The kind of a node, and the node without its display settings.
pub(in crate::routes) fn unwrapped(node: &Value) -> (Option<&str>, &Value) {
    let node = query_node::unwrapped(node);
    (node.get("kind").and_then(Value::as_str), node)
}

/// The result of a node. `id` is the id under which the client will fetch a result that is computed later, or cancel
/// the query.
pub(super) async fn answer(
    app: &App,
    asker: &Principal,
    node: &Value,
    (refresh, id): (Refresh, Option<String>),
) -> Result<Answer, Problem> {
    let (kind, node) = unwrapped(node);
    let question = Question::parse(kind, node)?;
    let owner = settings(&asker.project);
    let key = question.key(node, &owner, app.engine.now());
    if refresh.takes_kept()
        && let Some(answer) = question.kept(app, &key, &owner)?
    {
        return Ok(Answer::Node(NodeAnswer { key, answer, owner, is_cached: true }));
    }
    if refresh == Refresh::ForceCache {
        return Ok(Answer::NotKept(key));
    }
    if refresh.is_later() {
        let later = status::begin(app, asker, (key, node.clone(), question), (id, owner))?;
        return Ok(Answer::Later(later));
    }
    let computing =
        Box::pin(async { question.computed(app, (&key, node), &owner).await.map_err(problem) });
    let answer = status::cancellable(app, asker, id, computing).await?;
    Ok(Answer::Node(NodeAnswer { key, answer, owner, is_cached: false }))
}

/// The result of a node of a project, and whether it is a cached one, which is returned while it is valid.
pub(in crate::routes) async fn kept_or_computed(
    app: &App,
    project: &Project,
    node: &Value,
) -> Result<(Arc<cache::Answer>, bool), Problem> {
    let (kind, node) = unwrapped(node);
    let question = Question::parse(kind, node)?;
    let settings = settings(project);
    let key = question.key(node, &settings, app.engine.now());
    match question.kept(app, &key, &settings)? {
        Some(answer) => Ok((answer, true)),
        None => {
            let answer = question.computed(app, (&key, node), &settings).await;
            Ok((answer.map_err(problem)?, false))
        }
    }
}

/// The project's settings that a query depends on besides its request.
pub(in crate::routes) fn settings(project: &Project) -> ProjectSettings {
    ProjectSettings::of(project)
}

/// The problem for an invalid node. Nested names are joined as in all errors.
pub(super) fn invalid(error: &NodeError) -> Problem {
    let name = format!("query__{}", error.field.replace('.', "__"));
    refused(name, "invalid_input", error.detail.clone())
}

/// The problem for a failed query.
pub(in crate::routes) fn problem(error: InsightError) -> Problem {
    match error {
        InsightError::Node(error) => invalid(&error),
        InsightError::Query(error) => query::problem(error),
    }
}
