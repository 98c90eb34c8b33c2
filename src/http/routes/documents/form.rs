//! The fields of documents in requests: [`read`], and their schemas: [`properties`]. Each kind has a table of its
//! fields.

use std::collections::HashSet;

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use crate::fields::{Fields, check_chars, not_a_choice, null, refused};
use crate::response::Problem;
use weir_api::documents::{ActionStep, TileWrite};
use weir_api::node::NodeError;
use weir_api::nodes::check;
use weir_insights::action::{Action, STEPS_MAX};
use weir_insights::legacy;
use weir_insights::saved::check_filters;
use weir_metadata::documents::Kind;

/// The name of a field, and its type.
type Field = (&'static str, Form);

/// The type of a field. The second part of each description is the default.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// A text with at most this many characters; empty.
    Text(usize),
    /// The same, or null; null.
    NullableText(usize),
    /// A boolean; false.
    Truth,
    /// A list of texts; empty.
    Tags,
    /// An integer; null.
    Integer,
    /// A point in time; null.
    Time,
    /// A JSON object, with the description of its content; empty.
    Object(&'static str),
    /// One of these texts; the first.
    Choice(&'static [&'static str]),
    /// The id of a document of this kind; null.
    One(Kind),
    /// The ids of documents of this kind; empty.
    Many(Kind),
    /// The steps of an action; empty.
    Steps,
    /// Tiles of a dashboard as they are sent; empty. See `boards`.
    Tiles,
    /// One of these numbers; the first.
    Number(&'static [i64]),
    /// Filters of a dashboard that apply to its insights; empty.
    Filters,
    /// A valid node, or one of an unknown kind; null.
    Query,
    /// The filters of older clients; empty.
    OldFilters,
    /// Any value; null.
    Any,
}

const ACTION: &[Field] = &[
    ("name", Form::NullableText(400)),
    ("description", Form::Text(8192)),
    ("tags", Form::Tags),
    ("post_to_slack", Form::Truth),
    ("slack_message_format", Form::Text(1200)),
    ("steps", Form::Steps),
    ("pinned_at", Form::Time),
];

const INSIGHT: &[Field] = &[
    ("name", Form::NullableText(400)),
    ("derived_name", Form::NullableText(400)),
    ("description", Form::NullableText(400)),
    ("query", Form::Query),
    ("filters", Form::OldFilters),
    ("order", Form::Integer),
    ("dashboards", Form::Many(Kind::Dashboard)),
    ("favorited", Form::Truth),
    ("saved", Form::Truth),
    ("tags", Form::Tags),
];

const ANNOTATION: &[Field] = &[
    ("content", Form::NullableText(8192)),
    ("date_marker", Form::Time),
    ("creation_type", Form::Choice(&["USR", "GIT"])),
    ("dashboard_item", Form::One(Kind::Insight)),
    ("dashboard_id", Form::One(Kind::Dashboard)),
    ("scope", Form::Choice(&["dashboard_item", "dashboard", "project", "organization"])),
];

const DASHBOARD: &[Field] = &[
    ("name", Form::NullableText(400)),
    ("description", Form::Text(8192)),
    ("pinned", Form::Truth),
    ("filters", Form::Filters),
    ("variables", Form::Object("Values of the variables of SQL, by their ids")),
    ("breakdown_colors", Form::Any),
    ("data_color_theme_id", Form::Integer),
    ("restriction_level", Form::Number(&[ANYBODY_EDITS, CREATOR_EDITS])),
    ("tags", Form::Tags),
    ("tiles", Form::Tiles),
];

/// Levels of restriction of a dashboard, with PostHog's numbers: every user of the project may edit it.
pub(super) const ANYBODY_EDITS: i64 = 21;

/// Only its creator and admins may edit it.
pub(super) const CREATOR_EDITS: i64 = 37;

/// Most tiles of a dashboard.
pub(in crate::routes) const TILES_MAX: usize = 300;

/// Most document ids in one field.
const NAMED_MAX: usize = 500;

/// The error text for a malformed tile.
const TILE: &str =
    "A tile has either an insight with its id, or a text with its body, or the id of a tile.";

/// Longest text of a tile, in characters.
const TILE_TEXT_MAX_CHARS: usize = 4000;

/// The fields of a step of an action; responses always have all of them.
const STEP: [&str; 11] = [
    "event",
    "properties",
    "selector",
    "tag_name",
    "text",
    "text_matching",
    "href",
    "href_matching",
    "url",
    "url_matching",
    "name",
];

fn table(kind: Kind) -> &'static [Field] {
    match kind {
        Kind::Action => ACTION,
        Kind::Insight => INSIGHT,
        Kind::Annotation => ANNOTATION,
        Kind::Dashboard => DASHBOARD,
    }
}

/// The fields of a kind, with their defaults.
pub(super) fn defaults(kind: Kind) -> impl Iterator<Item = (&'static str, Value)> {
    table(kind).iter().map(|(name, form)| (*name, form.default()))
}

/// The fields of a kind that contain ids of other documents.
pub(super) fn references(kind: Kind) -> impl Iterator<Item = (&'static str, Kind)> {
    table(kind).iter().filter_map(|(name, form)| match form {
        Form::One(of) | Form::Many(of) => Some((*name, *of)),
        Form::Tiles => Some((*name, Kind::Insight)),
        _ => None,
    })
}

/// The ids of documents in the value of such a field.
pub(super) fn ids(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(items) => items.iter().filter_map(id).collect(),
        one => Vec::from_iter(one.as_i64()),
    }
}

fn id(item: &Value) -> Option<i64> {
    item.get("insight").unwrap_or(item).as_i64()
}

/// The schemas of the fields of a kind.
pub(super) fn properties(kind: Kind, generator: &mut SchemaGenerator) -> Map<String, Value> {
    let described = |(name, form): &Field| ((*name).to_owned(), form.schema(generator));
    table(kind).iter().map(described).collect()
}

/// Reads the fields that were sent; for a new document, the others get their defaults.
pub(super) fn read(
    sent: &mut Fields,
    kind: Kind,
    is_new: bool,
) -> Result<Map<String, Value>, Problem> {
    let mut fields = Map::new();
    for (name, form) in table(kind) {
        let value = form.read(sent, name)?;
        let value = value.or_else(|| is_new.then(|| form.default()));
        fields.extend(value.map(|value| ((*name).to_owned(), value)));
    }
    Ok(fields)
}

impl Form {
    fn default(self) -> Value {
        match self {
            Self::Text(_) => json!(""),
            Self::Truth => json!(false),
            Self::Tags | Self::Many(_) | Self::Steps | Self::Tiles => json!([]),
            Self::Object(_) | Self::Filters | Self::OldFilters => json!({}),
            Self::Number(numbers) => numbers.first().copied().into(),
            Self::Choice(choices) => choices.first().copied().into(),
            Self::NullableText(_)
            | Self::Any
            | Self::Integer
            | Self::Time
            | Self::Query
            | Self::One(_) => Value::Null,
        }
    }

    /// The JSON schema of the values that a client may send.
    fn schema(self, generator: &mut SchemaGenerator) -> Value {
        match self {
            Self::Text(most) => json!({"type": "string", "maxLength": most}),
            Self::NullableText(most) => json!({"type": ["string", "null"], "maxLength": most}),
            Self::Truth => json!({"type": "boolean"}),
            Self::Tags => json!({"type": "array", "items": {"type": "string"}}),
            Self::Integer | Self::One(_) => json!({"type": ["integer", "null"]}),
            Self::Time => json!({"type": ["string", "null"], "format": "date-time"}),
            Self::Object(about) => json!({"type": "object", "description": about}),
            Self::OldFilters => json!({"type": "object"}),
            Self::Choice(choices) => json!({"type": "string", "enum": choices}),
            Self::Number(numbers) => json!({"type": "integer", "enum": numbers}),
            Self::Many(_) => json!({"type": "array", "items": {"type": "integer"}}),
            Self::Any => json!({}),
            Self::Query => json!({"type": ["object", "null"]}),
            Self::Filters => json!({
                "type": "object",
                "description": "What holds for all insights",
                "properties": {
                    "date_from": {"type": ["string", "null"]},
                    "date_to": {"type": ["string", "null"]},
                    "explicitDate": {"type": ["boolean", "null"]},
                    "properties": {"type": ["array", "object", "null"]},
                    "breakdown_filter": {"type": ["object", "null"]},
                },
            }),
            Self::Tiles => json!({
                "type": "array", "maxItems": TILES_MAX,
                "items": generator.subschema_for::<TileWrite>(),
            }),
            Self::Steps => json!({
                "type": "array", "maxItems": STEPS_MAX,
                "items": generator.subschema_for::<ActionStep>(),
            }),
        }
    }

    /// The value of a field; `None` if it was not sent.
    fn read(self, sent: &mut Fields, name: &'static str) -> Result<Option<Value>, Problem> {
        Ok(match self {
            Self::Text(most) => sent.text(name)?.map(|text| short(name, text, most)).transpose()?,
            Self::NullableText(most) => {
                let text = sent.nullable_text(name)?;
                let read = |text: Option<String>| match text {
                    Some(text) => short(name, text, most),
                    None => Ok(Value::Null),
                };
                text.map(read).transpose()?
            }
            Self::Truth => sent.boolean(name)?.map(Value::from),
            Self::Tags => sent.texts(name)?.map(Value::from),
            Self::Integer | Self::One(_) => sent.nullable_integer(name)?.map(Value::from),
            Self::Time => match sent.peek(name) {
                Some(Value::Null) => sent.nullable_value(name).map(|_| Value::Null),
                _ => sent.time(name)?.map(|time| Value::from(time.to_rfc3339())),
            },
            Self::Object(_) => sent.object(name)?.map(Value::Object),
            Self::Query => match sent.peek(name) {
                Some(Value::Null) => sent.nullable_value(name).map(|_| Value::Null),
                _ => {
                    let query = sent.object(name)?.map(Value::Object);
                    if let Some(query) = &query {
                        check::check(query).map_err(|error| within(name, error))?;
                    }
                    query
                }
            },
            Self::OldFilters => {
                let filters = sent.object(name)?;
                if let Some(filters) = &filters {
                    legacy::check(filters).map_err(|error| within(name, error))?;
                }
                filters.map(Value::Object)
            }
            Self::Choice(choices) => match sent.nullable_choice(name, choices)? {
                None => None,
                Some(Some(choice)) => Some(Value::from(choice)),
                Some(None) => return Err(null(name)),
            },
            Self::Many(_) => sent.ids_within(name, NAMED_MAX)?.map(|mut ids| {
                let mut seen = HashSet::with_capacity(ids.len());
                ids.retain(|id| seen.insert(*id));
                Value::from(ids)
            }),
            Self::Any => sent.nullable_value(name).map(Option::unwrap_or_default),
            Self::Number(numbers) => match sent.nullable_integer(name)? {
                None => None,
                Some(Some(number)) if numbers.contains(&number) => Some(Value::from(number)),
                Some(other) => {
                    let number = other.map_or_else(|| "null".to_owned(), |it| it.to_string());
                    return Err(not_a_choice(name, number));
                }
            },
            Self::Filters => {
                let filters = sent.object(name)?.map(Value::Object);
                if let Some(filters) = &filters {
                    let known = check::check_frame(filters, name);
                    known.and_then(|()| check_filters(filters)).map_err(of_field)?;
                }
                filters
            }
            Self::Tiles => sent.value(name)?.map(|tiles| checked_tiles(&tiles)).transpose()?,
            Self::Steps => {
                sent.value(name)?.map(|steps| checked_steps(name, &steps)).transpose()?
            }
        })
    }
}

/// The problem for an invalid field.
fn of_field(error: NodeError) -> Problem {
    refused(error.field.replace('.', "__"), "invalid_input", error.detail)
}

/// The problem for an invalid field of the object in the field `name`.
fn within(name: &str, error: NodeError) -> Problem {
    of_field(error.within(name))
}

fn short(name: &'static str, text: String, chars_max: usize) -> Result<Value, Problem> {
    check_chars(name, &text, chars_max)?;
    Ok(Value::String(text))
}

/// Checks that the steps of an action can be matched, and adds their absent fields.
fn checked_steps(name: &'static str, steps: &Value) -> Result<Value, Problem> {
    let known = check::check_steps(steps, name);
    known.and_then(|()| Action::parse(steps, name).map(drop)).map_err(of_field)?;
    let whole = |step: &Value| {
        let part = |name: &str| (name.to_owned(), step.get(name).cloned().unwrap_or_default());
        Value::Object(STEP.into_iter().map(part).collect())
    };
    Ok(steps.as_array().map(|steps| steps.iter().map(whole).collect()).unwrap_or_default())
}

/// Checks the sent tiles: `id` of an existing tile, an insight as its id or as an object with `id`, a text, `color`,
/// `layouts`, and `deleted`. Fields that are not sent are absent.
fn checked_tiles(tiles: &Value) -> Result<Value, Problem> {
    let Value::Array(list) = tiles else {
        return Err(refused("tiles", "not_a_list", "Expected a list of tiles."));
    };
    if list.len() > TILES_MAX {
        let detail = format!("A dashboard has at most {TILES_MAX} tiles.");
        return Err(refused("tiles", "max_length", detail));
    }
    let numbered = list.iter().enumerate();
    numbered.map(|(number, tile)| checked_tile(number, tile)).collect()
}

fn checked_tile(number: usize, tile: &Value) -> Result<Value, Problem> {
    let wrong =
        |detail: &str| Err(refused(format!("tiles__{number}"), "invalid_input", detail.to_owned()));
    let part = |name: &str| tile.get(name).filter(|part| !part.is_null());
    let mut checked = Map::new();
    let mut add = |name: &str, value: Value| checked.insert(name.to_owned(), value);
    let insight = part("insight").map(|insight| insight.get("id").unwrap_or(insight).as_i64());
    let text = part("text").map(|text| text.get("body").and_then(Value::as_str));
    match (part("id").map(Value::as_i64), insight, text) {
        (Some(None), ..) => return wrong("The id of a tile is an integer."),
        (id, insight, text) if id.is_some() || insight.is_some() != text.is_some() => {
            id.flatten().map(|id| add("id", json!(id)));
            match (insight, text) {
                (Some(None), _) | (_, Some(None)) | (Some(_), Some(_)) => {
                    return wrong(TILE);
                }
                (_, Some(Some(body))) if body.chars().count() > TILE_TEXT_MAX_CHARS => {
                    return wrong(&format!("A text has at most {TILE_TEXT_MAX_CHARS} characters."));
                }
                (Some(Some(id)), None) => _ = add("insight", json!(id)),
                (None, Some(Some(body))) => _ = add("text", json!({"body": body})),
                (None, None) => {}
            }
        }
        _ => return wrong(TILE),
    }
    for (name, is_right, detail) in [
        ("layouts", Value::is_object as fn(&Value) -> bool, "The layouts of a tile are an object."),
        ("color", Value::is_string, "The color of a tile is a text."),
        ("deleted", Value::is_boolean, "Whether a tile is deleted is true or false."),
    ] {
        match part(name) {
            Some(value) if is_right(value) => _ = add(name, value.clone()),
            Some(_) => return wrong(detail),
            None if name == "color" && tile.get(name).is_some() => _ = add(name, Value::Null),
            None => {}
        }
    }
    Ok(Value::Object(checked))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{defaults, read};
    use crate::fields::Fields;
    use weir_metadata::documents::Kind;

    fn fields(value: &Value) -> Fields {
        Fields::parse("application/json", value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn new_documents_have_all_fields_and_changes_those_that_were_sent() {
        for kind in [Kind::Action, Kind::Insight, Kind::Annotation, Kind::Dashboard] {
            let made = read(&mut fields(&json!({})), kind, true).unwrap();
            assert_eq!(
                made,
                defaults(kind)
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<serde_json::Map<_, _>>()
            );
            let changed = read(&mut fields(&json!({"unknown": 1})), kind, false).unwrap();
            assert_eq!(changed.len(), 0);
        }
        let sent = json!({
            "name": " a ", "steps": [{"event": "x", "id": "1"}], "pinned_at": "2026-01-02T03:04:05Z",
        });
        let read = read(&mut fields(&sent), Kind::Action, false).unwrap();
        assert_eq!((read.len(), &read["name"]), (3, &json!("a")));
        assert_eq!(read["pinned_at"], "2026-01-02T03:04:05.000000Z");
        assert_eq!(read["steps"][0]["event"], "x");
        assert_eq!(
            (read["steps"][0].get("url"), read["steps"][0].get("id")),
            (Some(&Value::Null), None)
        );
    }

    #[test]
    fn wrong_values_are_refused_by_their_field() {
        let long = "x".repeat(401);
        for (kind, sent, field) in [
            (Kind::Action, json!({"name": long}), "name"),
            (Kind::Action, json!({"description": null}), "description"),
            (Kind::Action, json!({"steps": {}}), "steps"),
            (
                Kind::Action,
                json!({"steps": [{"url": "(", "url_matching": "regex"}]}),
                "steps__0__url",
            ),
            (Kind::Action, json!({"pinned_at": "soon"}), "pinned_at"),
            (Kind::Action, json!({"steps": [{"event": "x", "odd": 1}]}), "steps__0__odd"),
            (Kind::Insight, json!({"query": []}), "query"),
            (
                Kind::Insight,
                json!({"query": {"kind": "PathsQuery", "pathsFilter": {"stripQueryString": true}}}),
                "query__pathsFilter__stripQueryString",
            ),
            (Kind::Insight, json!({"filters": {"propertys": []}}), "filters__propertys"),
            (Kind::Dashboard, json!({"filters": {"date_form": "-7d"}}), "filters__date_form"),
            (Kind::Insight, json!({"filters": null}), "filters"),
            (Kind::Insight, json!({"dashboards": ["x"]}), "dashboards"),
            (Kind::Insight, json!({"saved": "perhaps"}), "saved"),
            (Kind::Dashboard, json!({"tiles": {}}), "tiles"),
            (Kind::Dashboard, json!({"tiles": [{"insight": 1}, {}]}), "tiles__1"),
            (Kind::Dashboard, json!({"tiles": [{"insight": "x"}]}), "tiles__0"),
            (Kind::Dashboard, json!({"tiles": [{"id": "x"}]}), "tiles__0"),
            (
                Kind::Dashboard,
                json!({"tiles": [{"insight": 1, "text": {"body": "x"}}]}),
                "tiles__0",
            ),
            (Kind::Dashboard, json!({"tiles": [{"id": 1, "deleted": 1}]}), "tiles__0"),
            (Kind::Dashboard, json!({"restriction_level": 22}), "restriction_level"),
            (Kind::Dashboard, json!({"filters": {"date_from": 1}}), "filters__date_from"),
            (Kind::Dashboard, json!({"filters": {"properties": 1}}), "filters__properties"),
            (
                Kind::Dashboard,
                json!({"tiles": [{"text": {"body": "x"}, "layouts": 1}]}),
                "tiles__0",
            ),
            (Kind::Annotation, json!({"scope": "world"}), "scope"),
            (Kind::Annotation, json!({"scope": null}), "scope"),
            (Kind::Annotation, json!({"dashboard_item": "x"}), "dashboard_item"),
        ] {
            let problem = read(&mut fields(&sent), kind, false).unwrap_err();
            let shown = format!("{problem:?}");
            assert!(shown.contains(&format!("\"{field}\"")), "{sent}: {shown}");
        }
    }
}
