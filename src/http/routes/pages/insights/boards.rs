//! Dashboards: their list, one with its tiles, and creating one; changing one is in `arrange`. Tiles are sent in the
//! order in which their results are ready, and all show the same state of the data.

use std::collections::HashMap;
use std::sync::Arc;

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use crate::beside::beside;
use crate::response::Problem;
use crate::routes::documents::kinds::Dashboards;
use crate::routes::documents::listed::List;
use crate::routes::documents::results::{Frame, Question, question_of};
use crate::routes::documents::tiles;
use crate::routes::pages::files;
use crate::routes::pages::insights::load::{listed, saved, saved_of};
use crate::routes::pages::insights::saved::new_board;
use crate::routes::pages::insights::{Computed, computed};
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other, wrong};
use crate::routes::query::insight::kept_or_computed;
use crate::routes::query::problems;
use crate::routes::store::problem;
use weir_api::query::Rows;
use weir_app::App;
use weir_metadata::documents::{Document, DocumentText, Kind};
use weir_web::insight::dashboard::{HEIGHT, Tile};
use weir_web::insight::links::Links;
use weir_web::insight::result::NO_CHART;
use weir_web::insight::{dashboard, links, result};
use weir_web::pages::sql;
use weir_web::parts::failed;
use weir_web::state::board::{BoardFrame, LAYOUT, StoredTile, TileContent, TilePosition};
use weir_web::state::parameters::Parameters;
use weir_web::state::range::Range;
use weir_web::state::stored;

/// `GET dashboard`.
pub(in crate::routes::pages) async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    if let Some(format) = files::wanted(&visit)? {
        let list = List::<Dashboards>::all;
        return files::of_list(&visit.asking, list, ("dashboards", format)).await;
    }
    let dashboards = saved_of(app, asker, Kind::Dashboard).await?;
    let content = html! {
        (dashboard::list(asker.project.id.0, &dashboards))
        @if visit.asking.may("dashboard:write") && visit.asking.may("insight:write") { (dashboard::import(asker.project.id.0)) }
        @if !dashboards.is_empty() { (files::below(&visit.asking, ("dashboards/", &[]), None)) }
    };
    Ok(Sent::Page(Page::new("Dashboards", content)))
}

/// `POST dashboard`: creates one.
pub(in crate::routes::pages) async fn make(visit: Visit) -> Result<Sent, Problem> {
    let mut form = form(visit.request).await?;
    let name = form.take("name").map_err(|error| wrong(&error))?.unwrap_or_default();
    let id = new_board(&visit.asking, &name).await?;
    Ok(Sent::Other(see_other(&links::dashboard(visit.asking.project(), id))?))
}

/// The dashboard in the URL.
pub(super) async fn board_of(visit: &Visit) -> Result<Document, Problem> {
    let missing = || Problem::not_found("There is no such dashboard.");
    let id: i64 = visit.id().parse().map_err(|_| missing())?;
    let (app, project) = (&visit.asking.app, visit.asking.asker.project.id);
    let document =
        app.node.metadata.document(project, Kind::Dashboard, id).await.map_err(problem)?;
    if document.deleted { Err(missing()) } else { Ok(document) }
}

/// `GET dashboard/:id`. Its filters and variables apply to its insights; the dates in the URL take precedence over its
/// own.
pub(in crate::routes::pages) async fn one(visit: Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let (app, project) = (&asking.app, asking.project());
    let read = || {
        let mut parameters = Parameters::parse(visit.request.query_string())?;
        let range = Range::parse(&mut parameters)?;
        parameters.finish()?;
        Ok(range)
    };
    let range = read().map_err(|error| wrong(&error))?;
    let document = board_of(&visit).await?;
    let own = saved(&document, &app.node.metadata.snapshot());
    let frame = Frame::of_filters(dates_of(&range), &asking.asker.key).over(&document);
    let placed = placed(asking, &document).await?;
    let actions = dashboard::actions(project, own.id, asking.may("dashboard:write"));
    if placed.is_empty() {
        let now = html! { (actions) (dashboard::empty(project)) };
        return Ok(Sent::Page(Page::new(own.title(), now)));
    }
    let shapes: Vec<&Tile> = placed.iter().map(|it| &it.tile).collect();
    let now = html! {
        (actions)
        @if !own.description.is_empty() { p { (own.description) } }
        (dashboard::range(project, own.id, &range))
        (dashboard::frame(&BoardFrame::of(&document.fields)))
        (dashboard::begin(&shapes))
    };
    let mut page = Page::new(own.title(), now);
    let (held, frame) = (Arc::new(OnceCell::new()), Arc::new(frame));
    for (number, placed) in placed.into_iter().enumerate() {
        let (asking, held) = (visit.asking.clone(), Arc::clone(&held));
        let frame = Arc::clone(&frame);
        page.later.push(Box::pin(async move {
            let inner = match &placed.insight {
                Some(insight) => match held_of(&held, &asking).await {
                    Ok(app) => {
                        let question = asked(insight, &frame);
                        shown(&asking, app, (question, &placed.tile)).await
                    }
                    Err(problem) => failed(problem.detail()),
                },
                None => html! {},
            };
            let shape = (&placed.tile, number, placed.is_wide);
            dashboard::tile(Some(asking.project()), shape, &inner)
        }));
    }
    page.is_in_any_order = true;
    page.end = dashboard::end();
    Ok(Sent::Page(page))
}

/// The engines with the state of the data that all tiles show. The first tile takes it, after the head of the page is
/// sent.
async fn held_of<'c>(held: &'c OnceCell<App>, asking: &Asking) -> Result<&'c App, Problem> {
    let project = asking.asker.project.id;
    let take = || async { asking.app.holding(project).await.map_err(problems::problem) };
    held.get_or_try_init(take).await
}

/// A range of dates as filters.
fn dates_of(range: &Range) -> Map<String, Value> {
    match *range == Range::default() {
        true => Map::new(),
        false => Map::from_iter([
            ("date_from".to_owned(), json!(range.from)),
            ("date_to".to_owned(), json!(range.to)),
        ]),
    }
}

/// The query of an insight on a dashboard.
fn asked(insight: &DocumentText, frame: &Frame) -> Result<Option<Question>, Problem> {
    question_of(&insight.whole().map_err(problem)?.fields, frame)
}

/// A tile with its place, and its insight in stored form.
pub(in crate::routes) struct Placed {
    pub(super) id: i64,
    pub(in crate::routes) tile: Tile,
    pub(super) is_wide: bool,
    insight: Option<DocumentText>,
    layouts: Map<String, Value>,
}

impl Placed {
    /// The tile with another place, in the form that the API accepts: half of the width or all of it.
    pub(super) fn at(&self, (x, y, width): (i64, i64, i64)) -> Value {
        let mut layouts = self.layouts.clone();
        let place = json!({"x": x, "y": y, "w": width, "h": HEIGHT});
        layouts.insert(LAYOUT.to_owned(), place);
        json!({"id": self.id, "layouts": layouts})
    }
}

/// The tiles of a dashboard in the order of their places; tiles of deleted insights are left out.
pub(in crate::routes) async fn placed(
    asking: &Asking,
    dashboard: &Document,
) -> Result<Vec<Placed>, Problem> {
    let app = &asking.app;
    let mut held = asking.memory().reservation();
    let (tiles, insights) = tiles::placed(app, dashboard, &mut held).await?;
    asking.keep(held);
    let mut insights: HashMap<i64, DocumentText> =
        insights.into_iter().map(|insight| (insight.head.id, insight)).collect();
    let snapshot = app.node.metadata.snapshot();
    let one = move |tile: &Value| {
        let StoredTile { id, content, layouts } = StoredTile::of(tile)?;
        let (what, insight) = match content {
            TileContent::Insight(id) => {
                let insight = insights.remove(&id)?;
                (Tile::Insight(listed(&insight, &snapshot).ok()?), Some(insight))
            }
            TileContent::Text(text) => (Tile::Text(text), None),
        };
        let place = TilePosition::of(&layouts);
        Some((place, Placed { id, tile: what, is_wide: place.is_wide, insight, layouts }))
    };
    let place = move || {
        let mut placed: Vec<_> = tiles.iter().filter_map(one).collect();
        placed.sort_by_key(|(place, _)| place.order());
        Ok(placed.into_iter().map(|(_, placed)| placed).collect())
    };
    beside(&app.node.cpu, place).await
}

/// The result of a tile.
async fn shown(
    asking: &Asking,
    app: &App,
    (question, tile): (Result<Option<Question>, Problem>, &Tile),
) -> Markup {
    match question {
        Err(problem) => failed(problem.detail()),
        Ok(None) => html! { p class="quiet" { "This insight has no query." } },
        Ok(Some(Question::Rows(node))) => match rows(asking, app, &node).await {
            Ok(answer) => sql::saved(&answer, tile.query(), false),
            Err(problem) => failed(problem.detail()),
        },
        Ok(Some(Question::Insight(node))) => insight(asking, app, &node).await,
    }
}

/// The result of an insight as a chart, with its time range and links to the result in other tools.
pub(in crate::routes::pages) async fn insight(asking: &Asking, app: &App, node: &Value) -> Markup {
    let project = &asking.asker.project;
    let (exact, sketch) = (stored::question(node), stored::sketch(node));
    let computed = computed(app, project, node, asking.server.clone()).await;
    let Computed { answer, made, .. } = match computed {
        Ok(computed) => computed,
        Err(problem) => return failed(problem.detail()),
    };
    let links = match (&exact, &sketch) {
        (Some(question), _) => Links::new(project.id.0, question),
        (None, Some(sketch)) => Links::without(project.id.0, sketch, node),
        (None, None) => {
            return html! { p class="quiet" { (NO_CHART) } };
        }
    };
    let shown = result::shown(&answer, &links.as_of(&made.at));
    html! {
        p class="quiet" { (links.question.range_text()) }
        @if shown.is_empty { p class="quiet" { "Nothing happened in this time." } } @else { (shown.chart) }
        (result::below(&links, &made))
    }
}

/// The rows of a query node, with the data that `app` holds.
pub(super) async fn rows(asking: &Asking, app: &App, node: &Value) -> Result<Rows, Problem> {
    let (answer, _) = kept_or_computed(app, &asking.asker.project, node).await?;
    asking.rows_of(answer).await
}
