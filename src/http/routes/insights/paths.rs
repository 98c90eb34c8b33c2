//! Paths by the filters of older clients: `insights/path/`, and `persons/path/` for the persons behind a step.

use hyper::StatusCode;
use serde_json::Value;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::csv;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::insights::Paging;
use crate::http::routes::insights::filter;
use crate::http::routes::insights::find;
use crate::http::routes::insights::invalid;
use crate::http::routes::insights::problem;
use crate::http::routes::insights::told;
use crate::http::routes::query::insight;
use crate::insights::insight::ActorsOf;
use crate::insights::paths::Paths;
use crate::insights::paths::legacy::paths_query;

/// `GET insights/path/` and `POST`.
pub async fn path(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let filter = filter(request).await?;
    let node = paths_query(&filter).map_err(|error| invalid(&error))?;
    let settings = insight::settings(&asker.project);
    let told = told(app, &settings, (&node, &filter)).await?;
    let mut body = told.into_body(&settings);
    body.insert("next".to_owned(), Value::Null);
    Ok(csv::render(StatusCode::OK, rendering, &Value::Object(body)))
}

/// `GET persons/path/` and `POST`: the persons who took the step that the keys name.
pub async fn persons(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, mut request, rendering, .. } = call;
    let paging = Paging::of(app, &mut request).await;
    let filter = filter(request).await?;
    let read = || Paths::parse(&paths_query(&filter)?);
    let actors = ActorsOf::Paths(read().map_err(|error| invalid(&error))?);
    let found = find(app, &asker.project, actors, (&filter, paging.page.part())).await;
    paging.answer(app, (&asker, rendering), found.map_err(problem)?).await
}
