//! What a share link shows: [`Shared`], a dashboard or an insight without anything else of its project, and the codec that
//! reads it from the JSON of the link.

use serde_json::{Map, Value};

use crate::query::Rows;

/// The content of a link.
#[derive(Clone, Debug)]
pub enum Shared {
    /// A dashboard.
    Dashboard(Dashboard),
    /// An insight.
    Insight(Insight),
}

/// A dashboard.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// The name.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// When the oldest of its results was computed; empty without any.
    pub last_refresh: String,
    /// The tiles.
    pub tiles: Vec<Tile>,
}

/// A tile.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Its places, by the width of the screen.
    pub layouts: Map<String, Value>,
    /// What it shows.
    pub content: Content,
}

/// What a tile shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// A text.
    Text(String),
    /// An insight.
    Insight(Insight),
    /// An insight, and why it has no result.
    Failed(Insight, String),
}

/// An insight.
#[derive(Clone, Debug)]
pub struct Insight {
    /// The id in addresses.
    pub short_id: String,
    /// The name that somebody gave it, or else that of its query.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// The query; null without one.
    pub query: Value,
    /// The result.
    pub result: Result,
    /// When the result was computed; empty without one.
    pub last_refresh: String,
    /// The zone of its dates; empty if it is unknown.
    pub timezone: String,
}

/// The result of an insight.
#[derive(Clone, Debug)]
pub enum Result {
    /// There is none.
    None,
    /// The rows of SQL.
    Rows(Rows),
    /// The `results` of `POST query/`.
    Answer(Value),
}

/// Makes the query of an insight of its stored fields; null without one.
pub type QueryOf<'a> = &'a dyn Fn(&Map<String, Value>) -> Value;

impl Shared {
    /// Reads the JSON of a link.
    pub fn of(content: Value, query_of: QueryOf<'_>) -> Self {
        let mut content = members(content);
        match content.remove("dashboard") {
            Some(dashboard) => Self::Dashboard(Dashboard::of(members(dashboard), query_of)),
            None => Self::Insight(Insight::of(taken(&mut content, "insight"), query_of)),
        }
    }
}

impl Dashboard {
    fn of(mut own: Map<String, Value>, query_of: QueryOf<'_>) -> Self {
        let tiles = match own.remove("tiles") {
            Some(Value::Array(tiles)) => tiles,
            _ => Vec::new(),
        };
        Self {
            name: text(&mut own, "name"),
            description: text(&mut own, "description"),
            last_refresh: text(&mut own, "last_refresh"),
            tiles: tiles.into_iter().map(|tile| Tile::of(members(tile), query_of)).collect(),
        }
    }
}

impl Tile {
    fn of(mut own: Map<String, Value>, query_of: QueryOf<'_>) -> Self {
        let layouts = taken(&mut own, "layouts");
        let content = match own.remove("insight") {
            Some(Value::Object(insight)) => {
                let insight = Insight::of(insight, query_of);
                match own.remove("error") {
                    Some(Value::Object(mut error)) => {
                        Content::Failed(insight, text(&mut error, "message"))
                    }
                    _ => Content::Insight(insight),
                }
            }
            _ => Content::Text(match own.remove("text") {
                Some(Value::String(text)) => text,
                other => text(&mut members(other.unwrap_or_default()), "body"),
            }),
        };
        Self { layouts, content }
    }
}

impl Insight {
    fn of(mut own: Map<String, Value>, query_of: QueryOf<'_>) -> Self {
        let names = [text(&mut own, "name"), text(&mut own, "derived_name")];
        let results = own.remove("result").unwrap_or_default();
        let result = match (results, own.remove("columns")) {
            (Value::Null, _) => Result::None,
            (results, Some(columns @ Value::Array(_))) => {
                let types = own.remove("types").unwrap_or_default();
                Result::Rows(Rows::of(columns, types, results))
            }
            (results, _) => Result::Answer(results),
        };
        Self {
            short_id: text(&mut own, "short_id"),
            name: names.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
            description: text(&mut own, "description"),
            last_refresh: text(&mut own, "last_refresh"),
            timezone: text(&mut own, "timezone"),
            query: query_of(&own),
            result,
        }
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn taken(of: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    members(of.remove(name).unwrap_or_default())
}

fn text(of: &mut Map<String, Value>, name: &str) -> String {
    match of.remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}
