//! Paths by the filters of older clients: `insights/path/`, and `persons/path/` for the persons behind a step.

use hyper::StatusCode;
use serde_json::json;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::csv;
use crate::http::page::Page;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::insights::filter;
use crate::http::routes::insights::invalid;
use crate::http::routes::insights::problem;
use crate::http::routes::query;
use crate::http::routes::query::insight;
use crate::insights::legacy;
use crate::insights::legacy::Filter;
use crate::insights::node::NodeError;
use crate::insights::paths::Paths;
use crate::insights::paths::legacy::paths_query;

/// `GET insights/path/` and `POST`.
pub async fn path(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let paths = read(&filter(request).await?).map_err(|error| invalid(&error))?;
    let settings = insight::settings(&asker.project);
    let result = app.engine.within_time(paths.answer(&app.engine, &settings)).await;
    let result = result.map_err(query::problem)?.map_err(problem)?;
    let body = json!({
        "result": result, "timezone": settings.timezone, "is_cached": false,
        "last_refresh": app.clock.now().to_rfc3339(), "timings": [], "next": null,
    });
    Ok(csv::render(StatusCode::OK, rendering, &body))
}

/// `GET persons/path/` and `POST`: the persons who took the step that the keys name.
pub async fn persons(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let page = Page::of(&request);
    let public_url = app.config.http.public_url.as_deref();
    let further = page.offset.saturating_add(page.limit);
    let (next, initial) =
        (page.link(&request, public_url, further), page.link(&request, public_url, 0));
    let filter = filter(request).await?;
    let searched = || {
        let mut paths = read(&filter)?;
        if let Some(text) = legacy::text(&filter, "search") {
            paths.selection_mut().search(&text)?;
        }
        Ok(paths)
    };
    let paths = searched().map_err(|error| invalid(&error))?;
    let (settings, part) = (insight::settings(&asker.project), page.part());
    let found = app.engine.within_time(paths.actors(&app.engine, &settings, part)).await;
    let mut found = found.map_err(query::problem)?.map_err(problem)?;
    let has_more = found.len() > part.limit;
    found.truncate(part.limit);
    let people = insight::people(app, &asker.project, &found).await?;
    let count = people.len();
    let body = json!({
        "results": [{"people": people, "count": count}], "next": has_more.then_some(next),
        "initial": initial, "missing_persons": 0, "is_cached": false, "last_refresh": null,
    });
    Ok(csv::render(StatusCode::OK, rendering, &body))
}

fn read(filter: &Filter) -> Result<Paths, NodeError> {
    Paths::parse(&paths_query(filter)?)
}
