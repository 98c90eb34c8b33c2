//! Dashboards with their tiles: [`whole`]. A tile shows a text, or an insight; insights that say that they are on a
//! dashboard are tiles of it, too, without a place of their own.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::response::Problem;
use crate::http::routes::documents::boards;
use crate::http::routes::documents::body;
use crate::http::routes::documents::form;
use crate::http::routes::documents::results::Asked;
use crate::http::routes::documents::results::Frame;
use crate::http::routes::documents::results::Reader;
use crate::http::routes::documents::rights::Viewer;
use crate::http::routes::query::refresh::Refresh;
use crate::http::routes::store::problem;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;

/// Most insights without a place of their own among the tiles of an answer; further ones are left out.
const UNPLACED_MAX: usize = 500;

/// A document as sent to clients: an insight with its result, a dashboard with its tiles, and the results of these.
pub(in crate::http::routes) async fn whole(
    app: &App,
    document: &Document,
    viewer: Viewer<'_>,
    asked: &Asked,
) -> Result<Value, Problem> {
    let reader = Reader::new(app, viewer);
    let mut whole = body::body(document, &app.metadata.snapshot(), viewer);
    match document.kind {
        Kind::Insight => reader.add_one((document, &mut whole), asked).await?,
        Kind::Dashboard => {
            let share = app.metadata.share(document.project, (document.kind, document.id)).await;
            let share = share.map_err(problem)?;
            body::set_shared(&mut whole, share.is_some_and(|share| share.is_enabled));
            let frame = asked.frame.over(document);
            let tiles = tiles(app, document, (&reader, viewer), (asked.refresh, &frame)).await?;
            if let Value::Object(whole) = &mut whole {
                add(whole, frame, tiles);
            }
        }
        Kind::Action | Kind::Annotation => {}
    }
    Ok(whole)
}

/// Adds to the body of a dashboard its tiles, and what it changes about them.
fn add(whole: &mut Map<String, Value>, frame: Frame, tiles: Vec<Value>) {
    // The oldest; the texts of times are in their order.
    let times = tiles.iter().filter_map(|tile| tile.get("last_refresh")?.as_str());
    let refreshed = times.min().map(str::to_owned);
    let (filters, variables) = frame.into_values();
    for (name, stored, value) in
        [("filters", "persisted_filters", filters), ("variables", "persisted_variables", variables)]
    {
        let before = whole.insert(name.to_owned(), value);
        whole.insert(stored.to_owned(), before.unwrap_or_else(|| json!({})));
    }
    whole.insert("last_refresh".to_owned(), json!(refreshed));
    whole.insert("tiles".to_owned(), Value::from(tiles));
}

/// The tiles of a dashboard with their insights, and the results of these or why there are none.
async fn tiles(
    app: &App,
    dashboard: &Document,
    (reader, viewer): (&Reader<'_>, Viewer<'_>),
    (refresh, frame): (Refresh, &Frame),
) -> Result<Vec<Value>, Problem> {
    let (tiles, insights) = placed(app, dashboard).await?;
    let snapshot = app.metadata.snapshot();
    let mut shown: Vec<(Value, Option<(&Document, Value)>)> = Vec::with_capacity(tiles.len());
    for tile in tiles {
        let Some(id) = tile.get("insight").and_then(Value::as_i64) else {
            shown.push((tile, None));
            continue;
        };
        // A tile of a deleted insight is not shown until that is restored.
        if let Some(insight) = insights.iter().find(|insight| insight.id == id) {
            let body = body::body(insight, &snapshot, viewer);
            shown.push((tile, Some((insight, body))));
        }
    }
    let bodies = shown.iter_mut().filter_map(|(_, insight)| insight.as_mut());
    let bodies = bodies.map(|(insight, body)| (*insight, body)).collect();
    let asked = Asked { refresh, frame: frame.clone() };
    let mut errors = reader.add_all(bodies, &asked).await.into_iter();
    let with_insight = |(mut tile, insight): (Value, Option<(&Document, Value)>)| {
        if let (Value::Object(tile), Some((_, body))) = (&mut tile, insight) {
            for name in ["is_cached", "last_refresh"] {
                tile.insert(name.to_owned(), body.get(name).cloned().unwrap_or_default());
            }
            tile.insert("error".to_owned(), errors.next().flatten().unwrap_or_default());
            tile.insert("insight".to_owned(), body);
        }
        tile
    };
    Ok(shown.into_iter().map(with_insight).collect())
}

/// The tiles of a dashboard, with their ids and those of their insights, and these.
pub(in crate::http::routes) async fn placed(
    app: &App,
    dashboard: &Document,
) -> Result<(Vec<Value>, Vec<Document>), Problem> {
    let mut tiles = boards::tiles(dashboard);
    let ids = form::ids(&Value::from(tiles.clone()));
    let mut insights: Vec<Document> = Vec::new();
    let mut unplaced = Vec::new();
    let visit = |insight: Document| {
        let boards = boards::boards_of(&insight);
        let is_placed = ids.contains(&insight.id);
        let has_room = unplaced.len() < UNPLACED_MAX;
        if is_placed {
            insights.push(insight);
        } else if boards.contains(&dashboard.id) && has_room {
            let tile = json!({
                "id": boards::tile_of_insight(insight.id), "insight": insight.id, "text": null,
                "color": null, "layouts": {},
            });
            unplaced.push(tile);
            insights.push(insight);
        }
    };
    let visiting = app.metadata.visit_documents(dashboard.project, Kind::Insight, visit);
    visiting.await.map_err(problem)?;
    tiles.append(&mut unplaced);
    Ok((tiles, insights))
}
