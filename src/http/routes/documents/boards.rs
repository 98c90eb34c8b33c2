//! The tiles of dashboards in their stored form: changes of them ([`Edit`]), and the references between tiles and
//! insights. No requests.
//!
//! A dashboard stores the places of its tiles in `tiles`. An insight lists its dashboards in `dashboards`; without a
//! place in `tiles` it is shown after the others. So an insight is on a dashboard at most once, and the id of its tile
//! is computed from its own id; text tiles are numbered by their dashboard.

use serde_json::{Map, Value, json};

use crate::routes::documents::form;
use crate::routes::documents::form::TILES_MAX;
use weir_event::id::ProjectId;
use weir_metadata::documents::{Document, Kind};
use weir_metadata::error::MetadataError;
use weir_metadata::violation::Violation;

/// The field of a dashboard with the number of text tiles that it ever had.
const TEXTS: &str = "texts";

/// The fields of a dashboard whose stored form is hidden from clients.
pub(super) const HIDDEN: [&str; 2] = ["tiles", TEXTS];

/// The layout of wide screens, which has [`COLUMNS`] columns (PostHog's).
const WIDE: &str = "sm";
const COLUMNS: i64 = 12;

/// Height of a tile in rows: the default, and the largest.
const HEIGHT: i64 = 5;
const HEIGHT_MAX: i64 = 1000;

/// The id of the tile of an insight: even.
pub(super) fn tile_of_insight(insight: i64) -> i64 {
    insight.saturating_mul(2)
}

/// The insight of a tile with this id; `None` for the tile of a text.
pub(super) fn insight_of_tile(tile: i64) -> Option<i64> {
    (tile % 2 == 0).then_some(tile / 2)
}

/// The id of the tile of the text with this number: odd.
fn tile_of_text(number: i64) -> i64 {
    number.saturating_mul(2).saturating_add(1)
}

/// The tiles with a place on a dashboard, with their ids.
pub(super) fn tiles(dashboard: &Document) -> Vec<Value> {
    let tiles = dashboard.fields.get("tiles").and_then(Value::as_array);
    let mut tiles = tiles.cloned().unwrap_or_default();
    for (tile, place) in tiles.iter_mut().zip(0..) {
        let id = match tile.get("insight").and_then(Value::as_i64) {
            Some(insight) => tile_of_insight(insight),
            // A text tile that was stored without an id gets one from its position.
            None => tile.get("id").and_then(Value::as_i64).unwrap_or(tile_of_text(place)),
        };
        if let Value::Object(tile) = tile {
            tile.insert("id".to_owned(), json!(id));
        }
    }
    tiles
}

/// The insights that the sent tiles are about.
pub(super) fn insights_sent(tiles: &Value) -> Vec<i64> {
    let insight = |tile: &Value| match tile.get("insight").and_then(Value::as_i64) {
        Some(insight) => Some(insight),
        None => insight_of_tile(tile.get("id")?.as_i64()?),
    };
    tiles.as_array().into_iter().flatten().filter_map(insight).collect()
}

/// The dashboards of an insight.
pub(super) fn boards_of(insight: &Document) -> Vec<i64> {
    insight.fields.get("dashboards").map(form::ids).unwrap_or_default()
}

/// Puts an insight on a dashboard, or takes it off.
pub(super) fn set_on(insight: &mut Document, board: i64, is_on: bool) {
    let mut boards = boards_of(insight);
    boards.retain(|other| *other != board);
    if is_on {
        boards.push(board);
    }
    insight.fields.insert("dashboards".to_owned(), json!(boards));
}

/// Applies the sent changes to the tiles of a dashboard: tiles with an id are changed, or removed if they are
/// `deleted`; others are added. Tiles that are not sent stay. `insights` are the insights of the sent tiles; empty for
/// a new dashboard, whose id is not assigned yet.
///
/// # Errors
///
/// A tile does not exist, or there are too many.
fn put_tiles(
    dashboard: &mut Document,
    sent: &[Value],
    insights: &mut [Document],
) -> Result<(), MetadataError> {
    let mut tiles = tiles(dashboard);
    for sent in sent {
        let id = sent.get("id").and_then(Value::as_i64);
        let insight = sent.get("insight").and_then(Value::as_i64);
        let id = insight.map(tile_of_insight).or(id);
        let place = id.and_then(|id| tiles.iter().position(|tile| tile_id(tile) == Some(id)));
        let insight = insight.or(id.and_then(insight_of_tile));
        let known = insights
            .iter_mut()
            .find(|known| known.kind == Kind::Insight && insight.is_some_and(|id| known.id == id));
        if sent.get("deleted") == Some(&Value::Bool(true)) {
            if let Some(place) = place {
                tiles.remove(place);
            }
            if let Some(insight) = known {
                set_on(insight, dashboard.id, false);
            }
            continue;
        }
        let has_insight = sent.get("insight").is_some();
        let is_on = known.as_ref().is_some_and(|one| boards_of(one).contains(&dashboard.id));
        let tile = match (place, insight, sent.get("text")) {
            (Some(place), ..) => tiles.get_mut(place),
            (None, Some(insight), None) if has_insight || is_on => {
                tiles.push(tile(tile_of_insight(insight), json!(insight), Value::Null));
                tiles.last_mut()
            }
            (None, None, Some(text)) => {
                let id = next_text(dashboard, &tiles);
                tiles.push(tile(id, Value::Null, text.clone()));
                tiles.last_mut()
            }
            _ => return Err(refused("invalid_input", "There is no such tile.".to_owned())),
        };
        if let Some(insight) = known {
            set_on(insight, dashboard.id, true);
        }
        change(tile, sent);
    }
    if tiles.len() > TILES_MAX {
        let detail = format!("A dashboard has at most {TILES_MAX} tiles.");
        return Err(refused("max_length", detail));
    }
    dashboard.fields.insert("tiles".to_owned(), Value::Array(tiles));
    Ok(())
}

/// A change of a document, and of the documents that are connected with it.
#[derive(Debug, Default)]
pub(super) struct Edit {
    pub(super) fields: Map<String, Value>,
    pub(super) deleted: Option<bool>,
    /// Whether the deletion of a dashboard also deletes its insights that are on no other dashboard.
    pub(super) is_with_insights: bool,
}

impl Edit {
    /// Applies the change to a document. `others` are the insights that a change of a dashboard affects, or the
    /// dashboards that a change of an insight affects.
    pub(super) fn apply(
        self,
        document: &mut Document,
        others: &mut [Document],
    ) -> Result<(), MetadataError> {
        let Self { mut fields, deleted, is_with_insights } = self;
        let tiles = match document.kind {
            Kind::Dashboard => fields.remove("tiles"),
            _ => None,
        };
        document.fields.extend(fields);
        document.deleted = deleted.unwrap_or(document.deleted);
        if let Some(Value::Array(tiles)) = tiles {
            put_tiles(document, &tiles, others)?;
        }
        match document.kind {
            Kind::Insight => take_off(document, others),
            Kind::Dashboard if document.deleted && is_with_insights => {
                let is_only_here = |insight: &&mut Document| boards_of(insight) == [document.id];
                others.iter_mut().filter(is_only_here).for_each(|insight| insight.deleted = true);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Moves a tile from one dashboard to another. `insight` is the insight of the tile, if it has one.
///
/// # Errors
///
/// The tile does not exist, or there are too many.
pub(super) fn move_tile(
    (from, to): (&mut Document, &mut Document),
    id: i64,
    insight: Option<&mut Document>,
) -> Result<(), MetadataError> {
    let sent = another(from, id, insight.as_deref())?;
    let mut own = tiles(from);
    own.retain(|tile| tile_id(tile) != Some(id));
    from.fields.insert("tiles".to_owned(), Value::Array(own));
    match insight {
        Some(insight) => {
            set_on(insight, from.id, false);
            put_tiles(to, &[sent], std::slice::from_mut(insight))
        }
        None => put_tiles(to, &[sent], &mut []),
    }
}

/// Copies a tile of one dashboard to another. `insight` is the insight of the tile, if it has one.
///
/// # Errors
///
/// The tile does not exist, its insight is there already, or there are too many.
pub(super) fn copy_tile(
    (from, to): (&Document, &mut Document),
    id: i64,
    insight: Option<&mut Document>,
) -> Result<(), MetadataError> {
    let sent = another(from, id, insight.as_deref())?;
    if insight.as_ref().is_some_and(|insight| boards_of(insight).contains(&to.id)) {
        let detail = "The insight is on the dashboard already.".to_owned();
        return Err(refused("already_exists", detail));
    }
    put_tiles(to, &[sent], insight.map_or(&mut [], std::slice::from_mut))
}

/// A tile in the form in which it is sent to another dashboard.
fn another(from: &Document, id: i64, insight: Option<&Document>) -> Result<Value, MetadataError> {
    let is_on = insight.is_some_and(|insight| boards_of(insight).contains(&from.id));
    let mut sent = match tiles(from).into_iter().find(|tile| tile_id(tile) == Some(id)) {
        Some(tile) => tile,
        None if is_on => json!({}),
        None => return Err(refused("invalid_input", "There is no such tile.".to_owned())),
    };
    if let Value::Object(sent) = &mut sent {
        sent.retain(|name, value| name != "id" && !value.is_null());
        if let Some(insight) = insight {
            sent.insert("insight".to_owned(), json!(insight.id));
        }
    }
    Ok(sent)
}

/// Moves the tiles with these ids to the front, in this order; the others follow in their previous order. Lays all of
/// them out row by row, each with its previous width and height. `insights` are the insights of these ids.
///
/// # Errors
///
/// A tile does not exist.
pub(super) fn order_tiles(
    board: &mut Document,
    order: &[i64],
    insights: &mut [Document],
) -> Result<(), MetadataError> {
    let sent: Vec<Value> = order.iter().map(|id| json!({"id": id})).collect();
    put_tiles(board, &sent, insights)?;
    let mut tiles = tiles(board);
    let place = |tile: &Value| order.iter().position(|id| Some(*id) == tile_id(tile));
    tiles.sort_by_key(|tile| place(tile).unwrap_or(order.len()));
    let (mut x, mut y, mut height) = (0, 0, 0);
    for tile in &mut tiles {
        let Value::Object(tile) = tile else { continue };
        let mut layouts = match tile.remove("layouts") {
            Some(Value::Object(layouts)) => layouts,
            _ => Map::new(),
        };
        let mut own = match layouts.remove(WIDE) {
            Some(Value::Object(own)) => own,
            _ => Map::new(),
        };
        let number = |name: &str| own.get(name).and_then(Value::as_i64).filter(|own| *own > 0);
        let (w, h) = (number("w").unwrap_or(COLUMNS / 2), number("h").unwrap_or(HEIGHT));
        let (w, h) = (w.min(COLUMNS), h.min(HEIGHT_MAX));
        if x + w > COLUMNS {
            (x, y, height) = (0, y + height, 0);
        }
        for (name, value) in [("x", x), ("y", y), ("w", w), ("h", h)] {
            own.insert(name.to_owned(), json!(value));
        }
        (x, height) = (x + w, height.max(h));
        layouts.insert(WIDE.to_owned(), Value::Object(own));
        tile.insert("layouts".to_owned(), Value::Object(layouts));
    }
    board.fields.insert("tiles".to_owned(), Value::Array(tiles));
    Ok(())
}

/// Removes the tile of an insight from those of `boards` that it is not on any more.
fn take_off(insight: &Document, boards: &mut [Document]) {
    let on = boards_of(insight);
    let left = boards.iter_mut().filter(|board| board.kind == Kind::Dashboard);
    for board in left.filter(|board| !on.contains(&board.id)) {
        let mut tiles = tiles(board);
        let count = tiles.len();
        tiles.retain(|tile| tile_id(tile) != Some(tile_of_insight(insight.id)));
        if tiles.len() != count {
            board.fields.insert("tiles".to_owned(), Value::Array(tiles));
        }
    }
}

/// The fields of a new dashboard with the sent tiles.
pub(super) fn fields_of_new(
    fields: Map<String, Value>,
    project: ProjectId,
) -> Result<Map<String, Value>, MetadataError> {
    let mut board = Document { kind: Kind::Dashboard, project, ..Document::default() };
    Edit { fields, ..Edit::default() }.apply(&mut board, &mut [])?;
    Ok(board.fields)
}

/// The tiles of a dashboard in the form in which they are sent for a copy of it. `other` maps the ids of insights; an
/// insight without a new id is left out.
pub(super) fn copied(dashboard: &Document, other: impl Fn(i64) -> Option<i64>) -> Vec<Value> {
    let copy = |mut tile: Value| {
        if let Value::Object(tile) = &mut tile {
            tile.retain(|name, value| name != "id" && !value.is_null());
            if let Some(insight) = tile.get("insight").and_then(Value::as_i64) {
                tile.insert("insight".to_owned(), json!(other(insight)?));
            }
        }
        Some(tile)
    };
    tiles(dashboard).into_iter().filter_map(copy).collect()
}

fn tile_id(tile: &Value) -> Option<i64> {
    tile.get("id")?.as_i64()
}

fn tile(id: i64, insight: Value, text: Value) -> Value {
    json!({"id": id, "insight": insight, "text": text, "color": null, "layouts": {}})
}

/// The id of the tile of a new text. Ids are never reused.
fn next_text(dashboard: &mut Document, tiles: &[Value]) -> i64 {
    let stored = dashboard.fields.get(TEXTS).and_then(Value::as_i64).unwrap_or(0);
    let shown = tiles.iter().filter_map(tile_id).filter(|id| id % 2 == 1).max();
    let next = shown.map_or(0, |id| id / 2 + 1).max(stored);
    dashboard.fields.insert(TEXTS.to_owned(), json!(next.saturating_add(1)));
    tile_of_text(next)
}

/// Applies the sent fields to a tile.
fn change(tile: Option<&mut Value>, sent: &Value) {
    let (Some(Value::Object(tile)), Value::Object(sent)) = (tile, sent) else { return };
    let is_text = tile.get("text").is_some_and(|text| !text.is_null());
    for name in ["color", "layouts", "text"] {
        if let Some(value) = sent.get(name).filter(|_| name != "text" || is_text) {
            tile.insert(name.to_owned(), value.clone());
        }
    }
}

fn refused(code: &'static str, detail: String) -> MetadataError {
    Violation { code, detail, attr: Some("tiles") }.into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{copy_tile, move_tile, order_tiles, put_tiles, set_on, take_off, tiles};
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_metadata::documents::{Document, Kind};

    fn document(kind: Kind, id: i64) -> Document {
        Document {
            kind,
            id,
            project: ProjectId(1),
            deleted: false,
            created_by: None,
            created_at: UnixMicros(0),
            updated_by: None,
            updated_at: UnixMicros(0),
            fields: Map::new(),
        }
    }

    fn shown(board: &Document) -> Vec<(i64, Value)> {
        let of = |tile: &Value| {
            let what = if tile["text"].is_null() { "insight" } else { "text" };
            (tile["id"].as_i64().unwrap(), tile[what].clone())
        };
        tiles(board).iter().map(of).collect()
    }

    fn put(board: &mut Document, sent: Value, insights: &mut [Document]) -> bool {
        put_tiles(board, sent.as_array().unwrap(), insights).is_ok()
    }

    #[test]
    fn tiles_are_added_changed_and_deleted_by_their_ids() {
        let mut board = document(Kind::Dashboard, 9);
        let mut insights = [document(Kind::Insight, 5), document(Kind::Insight, 6)];
        let [hello, more] = ["Hello", "More"].map(|body| json!({"body": body}));
        let sent = json!([{"text": hello}, {"insight": 5, "color": "blue"}, {"text": hello}]);
        assert!(put(&mut board, sent, &mut insights));
        let expected = [(1, hello.clone()), (10, json!(5)), (3, hello.clone())];
        assert_eq!(shown(&board), expected);
        assert_eq!(insights[0].fields["dashboards"], json!([9]));
        // Fields that are not sent stay.
        assert!(put(
            &mut board,
            json!([{"id": 3, "text": more}, {"id": 10, "layouts": {"sm": 1}}]),
            &mut insights
        ));
        assert_eq!(shown(&board), [(1, hello.clone()), (10, json!(5)), (3, more)]);
        assert_eq!(
            (&tiles(&board)[1]["color"], &tiles(&board)[1]["layouts"]),
            (&json!("blue"), &json!({"sm": 1}))
        );
        // The id of a removed text is not reused.
        assert!(put(
            &mut board,
            json!([{"id": 3, "deleted": true}, {"id": 10, "deleted": true}]),
            &mut insights
        ));
        assert!(put(&mut board, json!([{"text": hello}]), &mut []));
        assert_eq!(shown(&board), [(1, hello.clone()), (5, hello)]);
        assert_eq!(insights[0].fields["dashboards"], json!([]));
        // An insight without a place of its own gets one when its tile is changed by its id.
        set_on(&mut insights[1], 9, true);
        assert!(put(&mut board, json!([{"id": 12, "color": "red"}]), &mut insights));
        assert_eq!(shown(&board)[2], (12, json!(6)));
        for wrong in [json!([{"id": 99}]), json!([{"id": 10, "color": "red"}])] {
            assert!(!put(&mut board, wrong.clone(), &mut insights), "{wrong}");
        }
        let many: Value = (0..301).map(|_| json!({"text": {"body": ""}})).collect();
        assert!(!put(&mut board, many, &mut []));
    }

    #[test]
    fn tiles_are_copied_with_what_they_show() {
        let (mut from, mut to) = (document(Kind::Dashboard, 1), document(Kind::Dashboard, 2));
        let mut insights = [document(Kind::Insight, 5), document(Kind::Insight, 6)];
        let hello = json!({"body": "Hello"});
        let sent = json!([{"text": hello}, {"insight": 5, "color": "red"}]);
        assert!(put(&mut from, sent, &mut insights));
        set_on(&mut insights[1], 1, true);
        let [placed, unplaced] = &mut insights;
        copy_tile((&from, &mut to), 10, Some(placed)).unwrap();
        copy_tile((&from, &mut to), 12, Some(unplaced)).unwrap();
        copy_tile((&from, &mut to), 1, None).unwrap();
        assert!(copy_tile((&from, &mut to), 3, None).is_err());
        assert!(copy_tile((&from, &mut to), 10, Some(placed)).is_err(), "it is there");
        assert_eq!(shown(&from), [(1, hello.clone()), (10, json!(5))]);
        assert_eq!(shown(&to), [(10, json!(5)), (12, json!(6)), (1, hello)]);
        assert_eq!(tiles(&to)[0]["color"], "red");
        for insight in &insights {
            assert_eq!(insight.fields["dashboards"], json!([1, 2]));
        }
    }

    #[test]
    fn tiles_are_put_in_an_order_row_by_row() {
        let mut board = document(Kind::Dashboard, 9);
        let mut insights = [document(Kind::Insight, 5)];
        let text = |w: i64, h: i64| json!({"text": {"body": ""}, "layouts": {"sm": {"w": w, "h": h, "minW": 3}, "xs": {"x": 1}}});
        let sent = json!([text(6, 2), text(12, 3), text(4, 7), text(99, 1)]);
        assert!(put(&mut board, sent, &mut []));
        set_on(&mut insights[0], 9, true);
        order_tiles(&mut board, &[5, 10, 1], &mut insights).unwrap();
        let places: Vec<(i64, [i64; 4])> = tiles(&board)
            .iter()
            .map(|tile| {
                let own = |name: &str| tile["layouts"]["sm"][name].as_i64().unwrap();
                (tile["id"].as_i64().unwrap(), ["x", "y", "w", "h"].map(own))
            })
            .collect();
        let expected = [
            (5, [0, 0, 4, 7]),
            (10, [4, 0, 6, 5]),
            (1, [0, 7, 6, 2]),
            (3, [0, 9, 12, 3]),
            (7, [0, 12, 12, 1]),
        ];
        assert_eq!(places, expected);
        let first = &tiles(&board)[0]["layouts"];
        assert_eq!((&first["sm"]["minW"], &first["xs"]), (&json!(3), &json!({"x": 1})));
        assert!(order_tiles(&mut board, &[99], &mut []).is_err());
    }

    #[test]
    fn tiles_move_with_what_they_show() {
        let (mut from, mut to) = (document(Kind::Dashboard, 1), document(Kind::Dashboard, 2));
        let mut insights = [document(Kind::Insight, 5), document(Kind::Insight, 6)];
        let hello = json!({"body": "Hello"});
        assert!(put(
            &mut from,
            json!([{"text": hello}, {"insight": 5, "color": "red"}]),
            &mut insights
        ));
        assert!(put(&mut to, json!([{"text": hello}]), &mut []));
        set_on(&mut insights[1], 1, true);
        let [placed, unplaced] = &mut insights;
        move_tile((&mut from, &mut to), 10, Some(placed)).unwrap();
        move_tile((&mut from, &mut to), 12, Some(unplaced)).unwrap();
        move_tile((&mut from, &mut to), 1, None).unwrap();
        assert!(move_tile((&mut from, &mut to), 1, None).is_err());
        assert_eq!(shown(&from), []);
        assert_eq!(shown(&to), [(1, hello.clone()), (10, json!(5)), (12, json!(6)), (3, hello)]);
        assert_eq!(tiles(&to)[1]["color"], "red");
        for insight in &insights {
            assert_eq!(insight.fields["dashboards"], json!([2]));
        }
        set_on(&mut insights[0], 2, false);
        let mut boards = [to];
        take_off(&insights[0], &mut boards);
        assert_eq!(shown(&boards[0]).len(), 3);
    }
}
