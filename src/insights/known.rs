//! Which fields a node may have ([`check`]). A field that nothing reads is refused with its name and the nearest known one,
//! since the answer would be that to another question. `tables` has the fields of each kind of node, `parts` those of what
//! they have in common, `legacy` those of the filters of older clients; all say of each name that is taken and changes
//! nothing why that is so.

mod fields;
pub mod legacy;
pub mod nearest;
mod parts;
mod tables;

use serde_json::{Map, Value};

use crate::known::fields::{Content, Fields};
use crate::known::nearest::hint;
use crate::node::NodeError;

/// Refuses a node that has a field which is not known, or not available, at any depth. Nodes of kinds that are not known
/// are for their reader to refuse.
pub fn check(node: &Value) -> Result<(), NodeError> {
    check_node(node, "")
}

/// Refuses filters of properties with a field that is not known; they stand in the request at `path`.
pub fn check_filters(filters: &Value, path: &str) -> Result<(), NodeError> {
    match filters {
        Value::Array(list) => {
            let mut numbered = list.iter().enumerate();
            numbered.try_for_each(|(at, own)| check_filters(own, &format!("{path}.{at}")))
        }
        Value::Object(fields) if fields.contains_key("values") => {
            check_object(filters, &parts::FILTER_GROUP, path)
        }
        Value::Object(fields) if fields.contains_key("key") || fields.contains_key("type") => {
            check_object(filters, &parts::FILTER, path)
        }
        // The oldest form has names of properties.
        _ => Ok(()),
    }
}

/// Refuses steps of an action, a list that stands in the request at `path`, with a field that is not known.
pub fn check_steps(steps: &Value, path: &str) -> Result<(), NodeError> {
    Content::List(&tables::STEP).check(steps, path)
}

/// Refuses filters by which a dashboard or a request changes nodes, with a field that is not known; they stand in the
/// request at `path`.
pub fn check_frame(filters: &Value, path: &str) -> Result<(), NodeError> {
    check_object(filters, &parts::FRAME, path)
}

fn check_node(node: &Value, path: &str) -> Result<(), NodeError> {
    let kind = node.get("kind").and_then(Value::as_str);
    match kind.and_then(tables::of_kind) {
        Some(known) => check_object(node, known, path),
        None => Ok(()),
    }
}

fn check_object(object: &Value, known: &Fields, path: &str) -> Result<(), NodeError> {
    let Value::Object(sent) = object else { return Ok(()) };
    sent.iter().try_for_each(|(name, value)| {
        let field = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.content(name) {
            Some(content) => content.check(value, &field),
            None if known.is_ignored(name) => Ok(()),
            None if known.is_lacking(name) => match is_nothing(value) {
                true => Ok(()),
                false => Err(NodeError { field, detail: format!("{name} is not available.") }),
            },
            None => {
                let name: String = name.chars().take(100).collect();
                let field = field.chars().take(200).collect();
                let detail = format!("Unknown field \"{name}\".{}", hint(&name, &known.names()));
                Err(NodeError { field, detail })
            }
        }
    })
}

impl Content {
    fn check(self, value: &Value, path: &str) -> Result<(), NodeError> {
        match (self, value) {
            (_, Value::Null) | (Self::Value, _) => Ok(()),
            (Self::Fixed(values), value) => match values.contains(&&*value.to_string()) {
                true => Ok(()),
                false => {
                    let detail = format!("Only {} is available.", values.join(" or "));
                    Err(NodeError { field: path.to_owned(), detail })
                }
            },
            (Self::Object(known), object) => check_object(object, known, path),
            (Self::List(known), Value::Array(list)) => {
                each(list, path, |own, at| check_object(own, known, at))
            }
            (Self::Map(known), Value::Object(fields)) => {
                let mut named = fields.iter();
                named
                    .try_for_each(|(name, own)| check_object(own, known, &format!("{path}.{name}")))
            }
            (Self::Entity(known), entity) => check_entity(entity, known, path),
            (Self::Entities(known), Value::Array(list)) => {
                each(list, path, |own, at| check_entity(own, known, at))
            }
            (Self::Filters, filters) => check_filters(filters, path),
            (Self::Node, node) => check_node(node, path),
            (Self::NodeOf(known), node) if node.get("kind").is_none_or(Value::is_null) => {
                check_object(node, known, path)
            }
            (Self::NodeOf(_), node) => check_node(node, path),
            (Self::List(_) | Self::Map(_) | Self::Entities(_), _) => Ok(()),
        }
    }
}

fn each(
    list: &[Value],
    path: &str,
    check: impl Fn(&Value, &str) -> Result<(), NodeError>,
) -> Result<(), NodeError> {
    let mut numbered = list.iter().enumerate();
    numbered.try_for_each(|(at, own)| check(own, &format!("{path}.{at}")))
}

/// Entities of other kinds than events and actions are refused by their reader.
fn check_entity(entity: &Value, known: &Fields, path: &str) -> Result<(), NodeError> {
    let is_one_of = |name: &str, known: [&str; 2]| {
        let own = entity.get(name).and_then(Value::as_str);
        own.is_none_or(|own| known.contains(&own))
    };
    match is_one_of("kind", ["EventsNode", "ActionsNode"])
        && is_one_of("type", ["events", "actions"])
    {
        true => check_object(entity, known, path),
        false => Ok(()),
    }
}

/// Whether a value asks for nothing: null, false, empty, or only of such values.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        // Older clients send values as texts of JSON.
        Value::String(text) => matches!(text.as_str(), "" | "[]" | "{}" | "false" | "null"),
        Value::Array(list) => list.iter().all(is_nothing),
        Value::Object(fields) => Map::values(fields).all(is_nothing),
    }
}

#[cfg(test)]
mod tests;
