//! Dashboards with their tiles. A dashboard is made together with its tiles, so that none is half there.

use serde_json::{Map, Value, json};

use crate::likeness::{has_all, is_nothing};
use crate::objects::{TargetList, Wanted, fields, lacks, name_of, send};
use crate::references::{id_of, rewrite};
use crate::report::Outcome;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer, escaped};

const PATH: &str = "dashboards/";

/// Fields that are copied, besides the tiles.
const FIELDS: [&str; 9] = [
    "name",
    "description",
    "pinned",
    "filters",
    "variables",
    "breakdown_colors",
    "data_color_theme_id",
    "restriction_level",
    "tags",
];

/// Fields without which a dashboard comes, too.
const OPTIONAL: &[&str] =
    &["filters", "variables", "breakdown_colors", "data_color_theme_id", "restriction_level"];

/// Copies the dashboards.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let mut boards = transfer.listed(Kind::Dashboard, "dashboards/?limit=200").await?;
    boards.retain(|board| board.get("deleted") != Some(&Value::Bool(true)));
    boards.sort_by_key(|board| board.get("id").and_then(Value::as_i64));
    let mut place =
        TargetList::open(transfer, Kind::Dashboard, PATH, "?limit=200", &["name"]).await?;
    for board in &boards {
        place.announce(&fields(board, &["name"]));
    }
    for listed in &boards {
        let Some(id) = listed.get("id").and_then(id_of) else { continue };
        let name = name_of(listed);
        let path = transfer.source.path(&format!("{PATH}{}/", escaped(&id)));
        let board = match transfer.source.server.get(&path).await {
            Ok(board) => board,
            Err(fault) if fault.refusal().is_some() => {
                transfer.report.note(Kind::Dashboard, Outcome::Left, &name, fault.to_string());
                continue;
            }
            Err(fault) => return Err(fault.into()),
        };
        let mut body = Value::Object(fields(&board, &FIELDS));
        let missing = rewrite(&mut body, &transfer.state.ids);
        if !missing.is_empty() {
            transfer.report.note(Kind::Dashboard, Outcome::Left, &name, lacks(&missing));
            continue;
        }
        let Value::Object(body) = body else { continue };
        let tiles = tiles(transfer, &board, &name);
        let wanted = Wanted { id, name: name.clone(), body, optional: OPTIONAL };
        if place.has(transfer, &wanted) {
            if let Some(found) = place.put(transfer, wanted).await? {
                compare_tiles(transfer, &found, &tiles, &name).await?;
            }
        } else {
            let mut wanted = wanted;
            wanted.body.insert("tiles".to_owned(), Value::Array(tiles));
            place.put(transfer, wanted).await?;
        }
        if board.get("is_shared") == Some(&Value::Bool(true)) {
            let reason = "its public link does not come: a link has the token of its server";
            transfer.report.note(Kind::Dashboard, Outcome::Left, &name, reason);
        }
    }
    Ok(())
}

/// The tiles in the form in which they are sent.
fn tiles(transfer: &mut Transfer, board: &Value, name: &str) -> Vec<Value> {
    let mut tiles = Vec::new();
    for tile in board.get("tiles").and_then(Value::as_array).into_iter().flatten() {
        if tile.get("deleted") == Some(&Value::Bool(true)) {
            continue;
        }
        let mut sent = fields(tile, &["layouts", "color"]);
        let insight = tile.get("insight").filter(|insight| !insight.is_null());
        let insight = insight.map(|insight| insight.get("id").unwrap_or(insight));
        let body = tile.get("text").and_then(|text| text.get("body")).and_then(Value::as_str);
        match (insight.and_then(id_of), body) {
            (Some(id), _) => {
                let Some(target) = transfer.state.ids.get(Kind::Insight, &id) else {
                    let reason = format!("without the insight {id}, which did not come");
                    transfer.report.note(Kind::Dashboard, Outcome::Left, name, reason);
                    continue;
                };
                sent.insert("insight".to_owned(), json!(target.parse::<i64>().unwrap_or_default()));
            }
            (None, Some(body)) => {
                sent.insert("text".to_owned(), json!({"body": body}));
            }
            (None, None) => {
                let reason = "without a tile that is neither an insight nor a text";
                transfer.report.note(Kind::Dashboard, Outcome::Left, name, reason);
                continue;
            }
        }
        tiles.push(Value::Object(sent));
    }
    tiles
}

/// Compares the tiles of a dashboard that was there, and changes them if that is asked for.
async fn compare_tiles(
    transfer: &mut Transfer,
    found: &Value,
    wanted: &[Value],
    name: &str,
) -> Result<(), Stop> {
    let Some(id) = found.get("id").and_then(id_of) else { return Ok(()) };
    let path = transfer.target.path(&format!("{PATH}{id}/"));
    let board = transfer.target.server.get(&path).await?;
    let there = board.get("tiles").and_then(Value::as_array).cloned().unwrap_or_default();
    let differing: Vec<Value> = wanted.iter().filter_map(|tile| differs(tile, &there)).collect();
    if differing.is_empty() {
        return Ok(());
    }
    if !transfer.options.is_update {
        let reason = format!("{} tiles; --update changes them", differing.len());
        transfer.report.note(Kind::Dashboard, Outcome::Kept, name, reason);
        return Ok(());
    }
    let body = Map::from_iter([("tiles".to_owned(), Value::Array(differing))]);
    match send(transfer, "PATCH", &path, &body).await {
        Err(fault) if fault.refusal().is_some() => {
            transfer.report.note(Kind::Dashboard, Outcome::Left, name, fault.what.to_string());
            Ok(())
        }
        sent => sent.map(drop).map_err(Stop::from),
    }
}

/// A tile as it is sent to change what is there; `None` if that is the same.
fn differs(wanted: &Value, there: &[Value]) -> Option<Value> {
    let wanted = wanted.as_object()?;
    let insight = wanted.get("insight");
    let of = |tile: &&Value| match insight {
        Some(id) => {
            let own = tile.get("insight").filter(|own| !own.is_null());
            own.map(|own| own.get("id").unwrap_or(own)) == Some(id)
        }
        None => {
            let text = tile.get("text").and_then(|text| text.get("body"));
            text.is_some() && text == wanted.get("text").and_then(|text| text.get("body"))
        }
    };
    let Some(tile) = there.iter().find(of) else { return Some(Value::Object(wanted.clone())) };
    let mut look = wanted.clone();
    look.remove("insight");
    look.remove("text");
    look.retain(|_, value| !is_nothing(value));
    if tile.as_object().is_some_and(|tile| has_all(&look, tile)) {
        return None;
    }
    if let Some(id) = tile.get("id") {
        look.insert("id".to_owned(), id.clone());
    }
    Some(Value::Object(look))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differs;

    #[test]
    fn tiles_are_compared_by_their_insight_or_text() {
        let there = [
            json!({"id": 10, "insight": {"id": 5, "name": "x"}, "layouts": {"sm": {"x": 0}}, "color": null}),
            json!({"id": 3, "text": {"body": "Hello"}, "layouts": {}, "color": "blue"}),
        ];
        for (wanted, expected) in [
            (json!({"insight": 5, "layouts": {"sm": {"x": 0}}}), None),
            (json!({"insight": 5, "layouts": {}}), None),
            (json!({"insight": 5, "color": "red"}), Some(json!({"id": 10, "color": "red"}))),
            (json!({"insight": 6}), Some(json!({"insight": 6}))),
            (json!({"text": {"body": "Hello"}, "color": "blue"}), None),
            (json!({"text": {"body": "Bye"}}), Some(json!({"text": {"body": "Bye"}}))),
        ] {
            assert_eq!(differs(&wanted, &there), expected, "{wanted}");
        }
    }
}
