//! Checks the fields of a node ([`check`]). A field that nothing reads is refused with its name and the nearest known
//! one, since otherwise the result would be that of another query. For each name that is accepted without an effect,
//! the declaration gives the reason.

use serde_json::{Map, Value};

use crate::node::nearest::hint;
use crate::node::{Fields, Form, Node, NodeError, join};
use crate::nodes::actors::{FunnelCorrelationActorsQuery, FunnelsActorsQuery, InsightActorsQuery};
use crate::nodes::correlation::FunnelCorrelationQuery;
use crate::nodes::filter::{PropertyFilter, PropertyGroup};
use crate::nodes::frame::Frame;
use crate::nodes::insights::{
    FunnelsQuery, LifecycleQuery, RetentionQuery, StickinessQuery, TrendsQuery,
};
use crate::nodes::lists::{ActorsQuery, EventsQuery, GroupsQuery, HogQLQuery, Step};
use crate::nodes::paths::PathsQuery;
use crate::nodes::wrapper::Wrapper;

/// Refuses a node with an unknown or unavailable field, at any depth. Nodes of unknown kinds are refused by their
/// reader.
///
/// # Errors
///
/// The first such field.
pub fn check(node: &Value) -> Result<(), NodeError> {
    check_node(node, "")
}

/// Refuses property filters with an unknown field; `path` is their path in the request.
///
/// # Errors
///
/// The first such field.
pub fn check_filters(filters: &Value, path: &str) -> Result<(), NodeError> {
    match filters {
        Value::Array(list) => {
            let mut numbered = list.iter().enumerate();
            numbered.try_for_each(|(at, own)| check_filters(own, &format!("{path}.{at}")))
        }
        Value::Object(fields) if fields.contains_key("values") => {
            check_object(filters, &PropertyGroup::FIELDS, path)
        }
        Value::Object(fields) if fields.contains_key("key") || fields.contains_key("type") => {
            check_object(filters, &PropertyFilter::FIELDS, path)
        }
        // The oldest form has names of properties.
        _ => Ok(()),
    }
}

/// Refuses steps of an action with an unknown field; `path` is the path of the list in the request.
///
/// # Errors
///
/// The first such field.
pub fn check_steps(steps: &Value, path: &str) -> Result<(), NodeError> {
    check_form(Form::List(&Step::FIELDS), steps, path)
}

/// Refuses filters by which a dashboard or a request changes nodes, if they have an unknown field; `path` is their path
/// in the request.
///
/// # Errors
///
/// The first such field.
pub fn check_frame(filters: &Value, path: &str) -> Result<(), NodeError> {
    check_object(filters, &Frame::FIELDS, path)
}

/// Reads a node that is a whole query.
///
/// # Errors
///
/// It is no object, or has a field that is not known or malformed.
pub fn parse<T: Node>(query: &Value) -> Result<T, NodeError> {
    check_fields(query, &T::FIELDS, "")?;
    T::read(query, "")
}

/// The fields of a node of this kind, if it is a supported query.
fn of_kind(kind: &str) -> Option<&'static Fields> {
    const ALL: [&Fields; 15] = [
        &TrendsQuery::FIELDS,
        &FunnelsQuery::FIELDS,
        &RetentionQuery::FIELDS,
        &PathsQuery::FIELDS,
        &StickinessQuery::FIELDS,
        &LifecycleQuery::FIELDS,
        &FunnelCorrelationQuery::FIELDS,
        &InsightActorsQuery::FIELDS,
        &FunnelsActorsQuery::FIELDS,
        &FunnelCorrelationActorsQuery::FIELDS,
        &EventsQuery::FIELDS,
        &ActorsQuery::FIELDS,
        &GroupsQuery::FIELDS,
        &HogQLQuery::FIELDS,
        &Wrapper::FIELDS,
    ];
    ALL.into_iter().find(|fields| fields.kinds.contains(&kind))
}

fn check_node(node: &Value, path: &str) -> Result<(), NodeError> {
    let kind = node.get("kind").and_then(Value::as_str);
    match kind.and_then(of_kind) {
        Some(known) => check_fields(node, known, path),
        None => Ok(()),
    }
}

/// Refuses an object with unknown fields. A node of another kind in its place is checked as that kind.
pub(crate) fn check_object(object: &Value, known: &Fields, path: &str) -> Result<(), NodeError> {
    let has_kind = object.get("kind").is_some_and(|kind| !kind.is_null());
    match known {
        Fields { kinds: [_, ..], .. } if has_kind => check_node(object, path),
        Fields { is_entity: true, .. } if is_other_entity(object) => Ok(()),
        _ => check_fields(object, known, path),
    }
}

fn check_fields(object: &Value, known: &Fields, path: &str) -> Result<(), NodeError> {
    let Value::Object(sent) = object else { return Ok(()) };
    sent.iter().try_for_each(|(name, value)| {
        let field = join(path, name);
        match known.form(name) {
            Some(form) => check_form(form, value, &field),
            None if known.is_ignored(name) => Ok(()),
            None if known.is_lacking(name) => match is_nothing(value) {
                true => Ok(()),
                false => Err(NodeError::new(field, format!("{name} is not available."))),
            },
            None => {
                let name: String = name.chars().take(100).collect();
                let field: String = field.chars().take(200).collect();
                let detail = format!("Unknown field \"{name}\".{}", hint(&name, &known.names()));
                Err(NodeError::new(field, detail))
            }
        }
    })
}

/// Checks the value of a field.
fn check_form(form: Form, value: &Value, path: &str) -> Result<(), NodeError> {
    match (form, value) {
        (_, Value::Null) | (Form::Value, _) => Ok(()),
        (Form::Fixed(values), value) => match values.contains(&&*value.to_string()) {
            true => Ok(()),
            false => {
                let detail = format!("Only {} is available.", values.join(" or "));
                Err(NodeError::new(path, detail))
            }
        },
        (Form::Object(known), object) => check_object(object, known, path),
        (Form::List(known), Value::Array(list)) => {
            let mut numbered = list.iter().enumerate();
            numbered.try_for_each(|(at, own)| check_object(own, known, &format!("{path}.{at}")))
        }
        (Form::Map(known), Value::Object(fields)) => {
            let mut named = fields.iter();
            named.try_for_each(|(name, own)| check_object(own, known, &join(path, name)))
        }
        (Form::Filters, filters) => check_filters(filters, path),
        (Form::Node, node) => check_node(node, path),
        (Form::List(_) | Form::Map(_), _) => Ok(()),
    }
}

/// Whether an entity is of another kind than events and actions.
fn is_other_entity(entity: &Value) -> bool {
    let is_other = |name: &str, known: [&str; 2]| {
        let own = entity.get(name).and_then(Value::as_str);
        own.is_some_and(|own| !known.contains(&own))
    };
    is_other("kind", ["EventsNode", "ActionsNode"]) || is_other("type", ["events", "actions"])
}

/// Whether a value has no effect: null, false, empty, or only of such values.
pub fn is_nothing(value: &Value) -> bool {
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
