//! Export and import of dashboards as JSON, with their insights and without results: as a backup, or to copy one to
//! another project. The format is that of the API, so dashboards of a PostHog server can be imported, too.

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use crate::beside::beside;
use crate::members::Members;
use crate::response::Problem;
use crate::routes::documents::Create;
use crate::routes::documents::form::TILES_MAX;
use crate::routes::documents::kinds::{Dashboards, Insights};
use crate::routes::documents::sent::New;
use crate::routes::documents::tiles::placed;
use crate::routes::pages::insights::arrange::update;
use crate::routes::pages::insights::boards::board_of;
use crate::routes::pages::visit::{Asking, Sent, Visit, file, form, see_other, wrong};
use weir_event::json;
use weir_web::insight::dashboard::IMPORTED;
use weir_web::insight::links;
use weir_web::state::parameters::Wrong;

/// The exported fields of a dashboard, of a tile and of an insight.
const OF_DASHBOARD: [&str; 5] = ["name", "description", "filters", "variables", "tags"];
const OF_TILE: [&str; 2] = ["layouts", "color"];
const OF_INSIGHT: [&str; 6] = ["name", "derived_name", "description", "query", "filters", "tags"];

/// The named fields of an object; null and absent ones are left out.
fn picked(of: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let own = |name: &&str| {
        let value = of.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    };
    names.iter().filter_map(own).collect()
}

/// `GET dashboard/:id/export`.
pub(in crate::routes::pages) async fn export(visit: Visit) -> Result<Sent, Problem> {
    let dashboard = board_of(&visit).await?;
    let mut held = visit.asking.memory().reservation();
    let (tiles, insights) = placed(&visit.asking.app, &dashboard, &mut held).await?;
    let whole = move |tile: &Value| {
        let mut told = picked(tile.as_object()?, &OF_TILE);
        let (name, value) = match tile.get("insight").and_then(Value::as_i64) {
            Some(id) => {
                let insight = insights.iter().find(|own| own.head.id == id)?;
                let insight = insight.with(&OF_INSIGHT.map(Box::from)).ok()?;
                ("insight", Value::Object(picked(&insight.fields, &OF_INSIGHT)))
            }
            None => ("text", tile.get("text")?.clone()),
        };
        told.insert(name.to_owned(), value);
        Some(Value::Object(told))
    };
    let read = move || Ok(tiles.iter().filter_map(whole).collect::<Vec<Value>>());
    let tiles = beside(&visit.asking.app.node.cpu, read).await?;
    let mut told = picked(&dashboard.fields, &OF_DASHBOARD);
    told.insert("tiles".to_owned(), Value::Array(tiles));
    let told = Members::from(Value::Object(told));
    let memory = visit.asking.memory();
    let response = told.answer(&visit.asking.app.node.cpu, StatusCode::OK, (&memory, held)).await?;
    Ok(Sent::Other(file(response, &format!("dashboard-{}.json", dashboard.id))))
}

/// `POST dashboard/import`: creates a dashboard and its insights from JSON.
pub(in crate::routes::pages) async fn import(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let mut form = form(visit.request).await?;
    let text = form.take(IMPORTED).map_err(|error| wrong(&error))?.unwrap_or_default();
    let told = dashboard_of(&text).map_err(|error| wrong(&error))?;
    let mut made = Vec::new();
    let id = match brought(&asking, &told, &mut made).await {
        Ok(id) => id,
        Err(problem) => {
            // Removes the insights created so far, which no dashboard shows; best effort, because the store may have
            // failed.
            for id in made {
                let _ = update::<Insights>(&asking, id, &json!({"deleted": true})).await;
            }
            return Err(problem);
        }
    };
    Ok(Sent::Other(see_other(&links::dashboard(asking.project(), id))?))
}

/// Parses a dashboard and its tiles.
fn dashboard_of(text: &str) -> Result<(Map<String, Value>, Vec<Value>), Wrong> {
    let refused = |detail: &str| Wrong::new(IMPORTED, detail);
    let Ok(Value::Object(mut told)) = json::read(text.trim().as_bytes()) else {
        return Err(refused("Expected the JSON of one dashboard."));
    };
    let Some(Value::Array(tiles)) = told.remove("tiles") else {
        return Err(refused("This is not a dashboard: it has no list of tiles."));
    };
    if tiles.len() > TILES_MAX {
        return Err(refused(&format!("A dashboard has at most {TILES_MAX} tiles.")));
    }
    Ok((told, tiles))
}

/// Creates the insights of a dashboard, whose ids are added to `made`, and the dashboard. Returns its id.
async fn brought(
    asking: &Asking,
    (told, sent): &(Map<String, Value>, Vec<Value>),
    made: &mut Vec<i64>,
) -> Result<i64, Problem> {
    let mut tiles = Vec::new();
    for tile in sent.iter().filter_map(Value::as_object) {
        let mut own = picked(tile, &OF_TILE);
        match (tile.get("insight"), tile.get("text").filter(|text| !text.is_null())) {
            (Some(Value::Object(insight)), _) => {
                let mut fields = picked(insight, &OF_INSIGHT);
                fields.insert("saved".to_owned(), Value::Bool(true));
                let document = New::<Insights>::of(&Value::Object(fields))?;
                let insight = asking.perform(Create { document }).await?.id;
                made.push(insight);
                own.insert("insight".to_owned(), json!(insight));
            }
            (_, Some(text)) => _ = own.insert("text".to_owned(), text.clone()),
            // An unknown kind of tile.
            (_, None) => continue,
        }
        tiles.push(Value::Object(own));
    }
    let mut fields = picked(told, &OF_DASHBOARD);
    fields.insert("tiles".to_owned(), Value::Array(tiles));
    let document = New::<Dashboards>::of(&Value::Object(fields))?;
    Ok(asking.perform(Create { document }).await?.id)
}

#[cfg(test)]
mod tests {
    use super::dashboard_of;

    #[test]
    fn what_is_no_dashboard_is_refused() {
        let many = format!("{{\"tiles\": [{}]}}", vec!["{}"; 301].join(","));
        for (text, expected) in [
            ("", "JSON of one dashboard"),
            ("[{\"tiles\": []}]", "JSON of one dashboard"),
            ("{\"name\": \"x\"}", "no list of tiles"),
            ("{\"tiles\": {}}", "no list of tiles"),
            (&*many, "at most 300 tiles"),
        ] {
            let error = dashboard_of(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(dashboard_of(" {\"tiles\": []}\n").is_ok());
    }
}
