//! Queries as nodes: `{"query": {"kind": "TrendsQuery", ...}}`. Their results may come from the cache, and may be
//! computed while the client does not wait.

use std::sync::Arc;

use serde_json::Value;

use crate::auth::Principal;
use crate::response::Problem;
use crate::routes::query::answer::{Answer, NodeAnswer};
use crate::routes::query::problems::insight_problem;
use crate::routes::query::question::Question;
use crate::routes::query::refresh::Refresh;
use crate::routes::query::status;
use weir_app::App;
use weir_insights::{ProjectSettings, cache};
use weir_metadata::accounts::Project;
use weir_wire::query_node;

/// The result of a node. `id` is the id under which the client will fetch a result that is computed later, or cancel
/// the query.
pub(super) async fn answer(
    app: &App,
    asker: &Principal,
    node: &Value,
    (refresh, id): (Refresh, Option<String>),
) -> Result<Answer, Problem> {
    let (kind, node) = query_node::kind_of(node);
    let question = Question::parse(kind, node)?;
    let owner = ProjectSettings::of(&asker.project);
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
    let computing = Box::pin(async {
        question.computed(app, (&key, node), &owner).await.map_err(insight_problem)
    });
    let answer = status::cancellable(app, asker, id, computing).await?;
    Ok(Answer::Node(NodeAnswer { key, answer, owner, is_cached: false }))
}

/// The result of a node of a project, and whether it is a cached one, which is returned while it is valid.
pub(in crate::routes) async fn kept_or_computed(
    app: &App,
    project: &Project,
    node: &Value,
) -> Result<(Arc<cache::Answer>, bool), Problem> {
    let (kind, node) = query_node::kind_of(node);
    let question = Question::parse(kind, node)?;
    let settings = ProjectSettings::of(project);
    let key = question.key(node, &settings, app.engine.now());
    match question.kept(app, &key, &settings)? {
        Some(answer) => Ok((answer, true)),
        None => {
            let answer = question.computed(app, (&key, node), &settings).await;
            Ok((answer.map_err(insight_problem)?, false))
        }
    }
}
