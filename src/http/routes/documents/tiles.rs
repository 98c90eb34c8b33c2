//! Dashboards with their tiles: [`whole`]. A tile shows a text, or an insight; insights that say that they are on a
//! dashboard are tiles of it, too, without a place of their own.

use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::response::Problem;
use crate::http::routes::documents::body;
use crate::http::routes::documents::form;
use crate::http::routes::store::problem;
use crate::metadata::accounts::Project;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;

/// Most insights without a place of their own among the tiles of an answer; further ones are left out.
const UNPLACED_MAX: usize = 500;

/// A document as sent to clients; a dashboard with its tiles.
pub(in crate::http::routes) async fn whole(
    app: &App,
    document: &Document,
    project: &Project,
) -> Result<Value, Problem> {
    let snapshot = app.metadata.snapshot();
    let mut whole = body::body(document, &snapshot, project);
    if document.kind != Kind::Dashboard {
        return Ok(whole);
    }
    let placed = document.fields.get("tiles").and_then(Value::as_array);
    let mut tiles: Vec<Value> = placed.cloned().unwrap_or_default();
    let ids = form::ids(&Value::from(tiles.clone()));
    let mut insights: Vec<Document> = Vec::new();
    let mut unplaced = Vec::new();
    let visit = |insight: Document| {
        let boards = insight.fields.get("dashboards").map(form::ids).unwrap_or_default();
        let is_placed = ids.contains(&insight.id);
        let has_room = unplaced.len() < UNPLACED_MAX;
        if is_placed {
            insights.push(insight);
        } else if boards.contains(&document.id) && has_room {
            let tile = json!({"insight": insight.id, "text": null, "color": null, "layouts": {}});
            unplaced.push(tile);
            insights.push(insight);
        }
    };
    app.metadata.visit_documents(project.id, Kind::Insight, visit).await.map_err(problem)?;
    tiles.append(&mut unplaced);
    // A tile of a deleted insight is not shown until that is restored.
    let tiles = tiles.into_iter().enumerate().filter_map(|(number, mut tile)| {
        let place = tile.as_object_mut()?;
        place.insert("id".to_owned(), json!(number + 1));
        if let Some(id) = place.get("insight").and_then(Value::as_i64) {
            let insight = insights.iter().find(|insight| insight.id == id)?;
            place.insert("insight".to_owned(), body::body(insight, &snapshot, project));
        }
        Some(tile)
    });
    let tiles: Vec<Value> = tiles.collect();
    if let Value::Object(fields) = &mut whole {
        fields.insert("tiles".to_owned(), Value::from(tiles));
    }
    Ok(whole)
}
