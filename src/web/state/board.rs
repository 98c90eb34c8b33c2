//! What a dashboard stores about all of its tiles, and about each: [`BoardFrame`] and [`StoredTile`].

use serde_json::{Map, Value};

use crate::parts::short;
use crate::state::filters::Filter;
use crate::state::json::{integer, text};
use crate::state::range::Range;
use crate::state::rules::Rule;
use crate::state::stored;

/// The layout of a dashboard on wide screens, in PostHog's units: rows of two halves.
pub const LAYOUT: &str = "sm";
/// Half of the width.
pub const HALF: i64 = 6;

/// Dates, filters and values of variables that override those of all insights of a dashboard.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardFrame {
    /// The dates.
    pub range: Range,
    /// The filters, to be drawn; `None` without any.
    pub rule: Option<Rule>,
    /// The filters as rows of a form; `None` if rows cannot represent them.
    pub filters: Option<Vec<Filter>>,
    /// Whether there is a breakdown.
    pub has_breakdown: bool,
    /// Names and values of variables of SQL.
    pub variables: Vec<(String, String)>,
}

impl BoardFrame {
    /// That in the stored fields of a dashboard.
    pub fn of(fields: &Map<String, Value>) -> Self {
        let empty = Value::Null;
        let filters = fields.get("filters").unwrap_or(&empty);
        let date = |name: &str| Some(text(filters, name)).filter(|date| !date.is_empty());
        let properties = filters.get("properties").unwrap_or(&empty);
        let is_there = match properties {
            Value::Array(list) => !list.is_empty(),
            Value::Object(group) => !group.is_empty(),
            _ => false,
        };
        let variables = fields.get("variables").and_then(Value::as_object);
        let variable = |own: &Value| {
            let value = short(own.get("value").unwrap_or(&Value::Null));
            (text(own, "code_name").to_owned(), value)
        };
        Self {
            range: Range {
                from: date("date_from").map(str::to_owned),
                to: date("date_to").map(str::to_owned),
            },
            rule: is_there.then(|| Rule::of(properties)),
            filters: stored::filters_of(properties),
            has_breakdown: filters.get("breakdown_filter").is_some_and(|own| !own.is_null()),
            variables: variables.into_iter().flat_map(Map::values).map(variable).collect(),
        }
    }
}

/// The stored filters of a dashboard.
pub fn filters_of(dashboard: &Map<String, Value>) -> Map<String, Value> {
    dashboard.get("filters").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The ids of the dashboards that an insight is on.
pub fn boards_of(insight: &Map<String, Value>) -> Vec<i64> {
    let boards = insight.get("dashboards").and_then(Value::as_array);
    boards.into_iter().flatten().filter_map(Value::as_i64).collect()
}

/// A tile of a dashboard.
#[derive(Clone, Debug)]
pub struct StoredTile {
    /// The id.
    pub id: i64,
    /// What it shows.
    pub content: TileContent,
    /// Its places, by the width of the screen.
    pub layouts: Map<String, Value>,
}

/// What a tile shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TileContent {
    /// The insight with this id.
    Insight(i64),
    /// A text.
    Text(String),
}

impl StoredTile {
    /// A stored tile; `None` if it shows nothing.
    pub fn of(stored: &Value) -> Option<Self> {
        let content = match stored.get("insight").and_then(Value::as_i64) {
            Some(id) => TileContent::Insight(id),
            None => TileContent::Text(match stored.get("text")? {
                Value::Null => return None,
                Value::String(text) => text.clone(),
                of => text(of, "body").to_owned(),
            }),
        };
        let layouts = stored.get("layouts").and_then(Value::as_object).cloned().unwrap_or_default();
        Some(Self { id: integer(stored, "id").unwrap_or_default(), content, layouts })
    }
}

/// Position of a tile.
#[derive(Clone, Copy, Debug)]
pub struct TilePosition {
    /// Row and column in PostHog's units; `None` for a tile without a position, which is sorted last.
    at: Option<(i64, i64)>,
    /// Whether it takes the whole width.
    pub is_wide: bool,
}

impl TilePosition {
    /// The position of a tile with these layouts.
    pub fn of(layouts: &Map<String, Value>) -> Self {
        let number = |name: &str| layouts.get(LAYOUT)?.get(name)?.as_i64();
        let is_wide = number("w").is_some_and(|width| width > HALF);
        Self { at: number("y").zip(number("x")), is_wide }
    }

    /// Sort key of the tiles.
    pub fn order(self) -> (bool, Option<(i64, i64)>) {
        (self.at.is_none(), self.at)
    }
}
