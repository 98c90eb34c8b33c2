//! Dashboards: their list, one with its tiles, and making one. Tiles are sent in the order in which their answers are
//! ready, over one state of the data as far as nothing comes in between.

use maud::Markup;
use maud::html;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::response::Problem;
use crate::http::routes::documents::tiles;
use crate::http::routes::pages::insights::computed;
use crate::http::routes::pages::insights::load::saved;
use crate::http::routes::pages::insights::load::saved_of;
use crate::http::routes::pages::insights::saved::add;
use crate::http::routes::pages::insights::saved::read_form;
use crate::http::routes::pages::insights::with_usual;
use crate::http::routes::pages::insights::wrong;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::http::routes::pages::visit::see_other;
use crate::http::routes::store::problem;
use crate::metadata::accounts::Project;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;
use crate::metadata::snapshot::Snapshot;
use crate::web::insight::dashboard;
use crate::web::insight::dashboard::Tile;
use crate::web::insight::links;
use crate::web::insight::links::Links;
use crate::web::insight::result;
use crate::web::insight::saved::Saved;
use crate::web::parts;
use crate::web::parts::failed;
use crate::web::state::parameters::Parameters;
use crate::web::state::range::Range;
use crate::web::state::stored;

/// `GET dashboard`.
pub(in crate::http::routes::pages) async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    let dashboards = saved_of(app, asker.project.id, Kind::Dashboard).await?;
    Ok(Sent::Page(Page::new("Dashboards", dashboard::list(asker.project.id.0, &dashboards))))
}

/// `POST dashboard`: makes one.
pub(in crate::http::routes::pages) async fn make(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    let mut form = read_form(visit.request).await?;
    let name = form.take("name").map_err(|error| wrong(&error))?.unwrap_or_default();
    let id = add(app, asker, &json!({"name": name}), Kind::Dashboard).await?;
    let all = links::dashboards(asker.project.id.0);
    Ok(Sent::Other(see_other(&format!("{all}/{id}"))?))
}

/// `GET dashboard/:id`.
pub(in crate::http::routes::pages) async fn one(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    let read = || {
        let mut parameters = Parameters::parse(visit.request.query_string())?;
        let range = Range::parse(&mut parameters)?;
        parameters.finish()?;
        Ok(range)
    };
    let range = read().map_err(|error| wrong(&error))?;
    let missing = || Problem::not_found("There is no such dashboard.");
    let id: i64 = visit.id().parse().map_err(|_| missing())?;
    let project = &asker.project;
    let document = app.metadata.document(project.id, Kind::Dashboard, id).await.map_err(problem)?;
    if document.deleted {
        return Err(missing());
    }
    let snapshot = app.metadata.snapshot();
    let own = saved(&document, &snapshot);
    let tiles = tiles_of(app, &document, &snapshot).await?;
    if tiles.is_empty() {
        return Ok(Sent::Page(Page::new(own.title(), dashboard::empty(project.id.0))));
    }
    let now = html! {
        @if !own.description.is_empty() { p { (own.description) } }
        (dashboard::range(project.id.0, id, &range))
        (dashboard::begin(&tiles))
    };
    let mut page = Page::new(own.title(), now);
    let server = visit.asking.server.clone();
    for (number, tile) in tiles.into_iter().enumerate() {
        let (app, project, server) = (app.clone(), project.clone(), server.clone());
        let range = range.clone();
        page.later.push(Box::pin(async move {
            let inner = match &tile {
                Tile::Insight(own) => shown(&app, (&project, &range), own, server).await,
                Tile::Text(_) => html! {},
            };
            dashboard::tile(project.id.0, (&tile, number), &inner)
        }));
    }
    page.end = dashboard::end();
    Ok(Sent::Page(page))
}

/// The tiles of a dashboard, without those of insights that are deleted.
async fn tiles_of(
    app: &App,
    dashboard: &Document,
    snapshot: &Snapshot,
) -> Result<Vec<Tile>, Problem> {
    let (tiles, insights) = tiles::placed(app, dashboard).await?;
    let tile = |tile: &Value| {
        if let Some(id) = tile.get("insight").and_then(Value::as_i64) {
            let insight = insights.iter().find(|insight| insight.id == id)?;
            return Some(Tile::Insight(saved(insight, snapshot)));
        }
        match tile.get("text")? {
            Value::Null => None,
            Value::String(text) => Some(Tile::Text(text.clone())),
            text => Some(Tile::Text(parts::text(text, "body").to_owned())),
        }
    };
    Ok(tiles.iter().filter_map(tile).collect())
}

/// The chart of a tile, of a range of dates if one is given.
async fn shown(
    app: &App,
    (project, range): (&Project, &Range),
    own: &Saved,
    server: String,
) -> Markup {
    let Some(mut question) = stored::question(&own.query).map(with_usual) else {
        return html! { p class="quiet" { "This page cannot show the insight: it asks for something that has no field." } };
    };
    if *range != Range::default() {
        question.range = range.clone();
    }
    match computed(app, project, &question, server).await {
        Ok((results, _)) => {
            let shown = result::shown(&results, &Links::new(project.id.0, &question));
            html! {
                p class="quiet" { (question.range_text()) }
                @if shown.is_empty { p class="quiet" { "Nothing happened in this time." } } @else { (shown.chart) }
            }
        }
        Err(problem) => failed(problem.detail()),
    }
}
