//! Event definitions, listed and retrieved: plans over the `event_definitions` table.

use datafusion::functions_aggregate::expr_fn::count;
use datafusion::prelude::DataFrame;
use datafusion::prelude::col;
use datafusion::prelude::lit;
use hyper::StatusCode;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::page::Page;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::persons::first_number;
use crate::http::routes::query;
use crate::query::QueryError;
use crate::query::rows::json_rows;

/// `GET event_definitions/`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let page = Page::of(&request);
    let search = request.query("search").unwrap_or_default();
    let terms: Vec<String> = search.split_whitespace().map(str::to_lowercase).collect();
    let found = find(app, &asker, terms, page).await;
    let (count, definitions) = found.map_err(query::problem)?;
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&request, public_url, count, definitions);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `GET event_definitions/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let one = async {
        let definitions = app.engine.view(call.asker.project.id).await?;
        let definitions = definitions.table("event_definitions").await?;
        bodies(app, definitions.filter(col("id").eq(lit(call.id().to_lowercase())))?).await
    };
    let found: Result<Vec<Value>, QueryError> = one.await;
    let mut found = found.map_err(query::problem)?;
    let definition = found.pop().ok_or_else(|| Problem::not_found("Not found."))?;
    Ok(Response::json(StatusCode::OK, &definition))
}

/// Definitions whose names contain every one of `terms`, those seen last on a later day first,
/// then by name.
async fn find(
    app: &App,
    principal: &Principal,
    terms: Vec<String>,
    page: Page,
) -> Result<(usize, Vec<Value>), QueryError> {
    let view = app.engine.view(principal.project.id).await?;
    let mut definitions = view.table("event_definitions").await?;
    for term in terms {
        let name = datafusion::functions::expr_fn::lower(col("name"));
        let found = datafusion::functions::expr_fn::contains(name, lit(term));
        definitions = definitions.filter(found)?;
    }
    let all = definitions.clone().aggregate(vec![], vec![count(lit(1)).alias("count")])?;
    let (_, counted) = app.engine.collect(all).await?;
    let day = datafusion::functions::expr_fn::date_trunc(lit("day"), col("last_seen_at"));
    let order = vec![day.sort(false, false), col("name").sort(true, false)];
    let rows = definitions.sort(order)?.limit(page.offset, Some(page.limit))?;
    Ok((first_number(&counted), bodies(app, rows).await?))
}

async fn bodies(app: &App, definitions: DataFrame) -> Result<Vec<Value>, QueryError> {
    let (_, batches) = app.engine.collect(definitions).await?;
    let rows = json_rows(&batches).map_err(|error| QueryError::Internal(error.into()))?;
    Ok(rows.into_iter().map(body).collect())
}

/// A definition as clients get it.
fn body(row: Map<String, Value>) -> Value {
    let field = |name: &str| row.get(name).cloned().unwrap_or(Value::Null);
    let tags = field("tags").as_str().and_then(|tags| serde_json::from_str(tags).ok());
    json!({
        "id": field("id"),
        "name": field("name"),
        "created_at": field("created_at"),
        "last_seen_at": field("last_seen_at"),
        "last_updated_at": null,
        "tags": tags.unwrap_or(Value::Array(Vec::new())),
        "is_action": false,
        "action_id": null,
        "is_calculating": false,
        "last_calculated_at": null,
        "created_by": null,
        "post_to_slack": field("post_to_slack"),
    })
}
