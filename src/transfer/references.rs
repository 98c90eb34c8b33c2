//! References between objects, wherever they are in filters, queries and steps: [`rewrite`] gives them the ids of the
//! target, [`found`] lists them. Pure.
//!
//! | reference | where |
//! |---|---|
//! | cohort | `value` of a filter whose `type` is `cohort`, `breakdown` of the type `cohort`, `IN COHORT 7` in SQL |
//! | action | `id` of an `ActionsNode` or of an entity of the type `actions`, `actionId`, `key` of a filter on what persons did whose `event_type` is `actions` |
//! | flag | `key` of a filter whose `type` is `flag` |
//! | group type | `group_type_index` and the like |
//! | insight | `shortId` |

use serde_json::{Map, Value};

use crate::state::{Ids, Kind};

/// Nesting beyond which nothing is looked for: JSON that was read is not deeper.
const DEPTH_MAX: usize = 130;

/// A reference to an object of the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Its kind.
    pub kind: Kind,
    /// Its id in the source.
    pub id: String,
}

/// Fields whose values are the index of a type of groups.
const GROUP_INDEXES: [&str; 4] = [
    "group_type_index",
    "aggregation_group_type_index",
    "breakdown_group_type_index",
    "math_group_type_index",
];

/// Fields with expressions of SQL, of any object.
const EXPRESSIONS: [&str; 5] = ["select", "where", "orderBy", "math_hogql", "aggregation_hogql"];

/// Gives all references the ids of the target. Returns those that the target does not have; these keep their ids, so the
/// value must not be used then.
pub fn rewrite(value: &mut Value, ids: &Ids) -> Vec<Reference> {
    let mut missing = Vec::new();
    let mut walk = Walk {
        replace: &mut |kind, id| {
            let target = ids.get(kind, id).map(str::to_owned);
            // A source without types of groups has no map of them, and its filters may still name indexes.
            let is_used = kind != Kind::GroupType || ids.has_any(kind);
            if target.is_none() && is_used {
                missing.push(Reference { kind, id: id.to_owned() });
            }
            target
        },
    };
    walk.value(value, 0);
    missing.sort();
    missing.dedup();
    missing
}

/// All references in a value.
pub fn found(value: &Value) -> Vec<Reference> {
    let mut all = Vec::new();
    let mut walk = Walk {
        replace: &mut |kind, id| {
            all.push(Reference { kind, id: id.to_owned() });
            None
        },
    };
    walk.value(&mut value.clone(), 0);
    all.sort();
    all.dedup();
    all
}

/// The id of an object in a field: a number, or a text.
pub fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => number.as_i64().map(|id| id.to_string()),
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

/// An id in the JSON type that the other one had.
fn like(before: &Value, id: &str) -> Value {
    match (before, id.parse::<i64>()) {
        (Value::Number(_), Ok(number)) => Value::from(number),
        _ => Value::from(id),
    }
}

struct Walk<'w> {
    replace: &'w mut dyn FnMut(Kind, &str) -> Option<String>,
}

impl Walk<'_> {
    fn value(&mut self, value: &mut Value, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item, depth + 1)),
            Value::Object(fields) => {
                self.fields(fields);
                fields.values_mut().for_each(|field| self.value(field, depth + 1));
            }
            _ => {}
        }
    }

    /// The references that one object has itself.
    fn fields(&mut self, fields: &mut Map<String, Value>) {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let (own, kind) = (text("type").to_owned(), text("kind").to_owned());
        let is_deed = text("event_type") == "actions";
        let is_next_deed = text("seq_event_type") == "actions";
        let breakdown = text("breakdown_type").to_owned();
        match own.as_str() {
            "cohort" | "static-cohort" | "precalculated-cohort" => {
                // As a part of a breakdown it has `property` instead of `value`.
                self.field(fields, "value", Kind::Cohort);
                self.field(fields, "property", Kind::Cohort);
            }
            "flag" => {
                self.number(fields, "key", Kind::Flag);
                self.field(fields, "dependency_chain", Kind::Flag);
            }
            "actions" => self.field(fields, "id", Kind::Action),
            _ => {}
        }
        if kind == "ActionsNode" && own != "actions" {
            self.field(fields, "id", Kind::Action);
        }
        if is_deed {
            self.field(fields, "key", Kind::Action);
        }
        if is_next_deed {
            self.field(fields, "seq_event", Kind::Action);
        }
        if breakdown == "cohort" {
            self.field(fields, "breakdown", Kind::Cohort);
        }
        self.field(fields, "actionId", Kind::Action);
        self.field(fields, "shortId", Kind::ShortInsight);
        for name in GROUP_INDEXES {
            self.field(fields, name, Kind::GroupType);
        }
        for name in EXPRESSIONS {
            self.expressions(fields, name);
        }
        if kind == "HogQLQuery" {
            self.expressions(fields, "query");
        }
        if own == "hogql" {
            self.expressions(fields, "key");
            self.expressions(fields, "property");
        }
        if breakdown == "hogql" {
            self.expressions(fields, "breakdown");
        }
    }

    /// A field with SQL, or a list of such.
    fn expressions(&mut self, fields: &mut Map<String, Value>, name: &str) {
        match fields.get_mut(name) {
            Some(Value::String(sql)) => self.sql(sql),
            Some(Value::Array(list)) => list.iter_mut().for_each(|item| {
                if let Value::String(sql) = item {
                    self.sql(sql);
                }
            }),
            _ => {}
        }
    }

    /// A field with an id, or a list of ids. The cohort `all`, also 0, is everybody.
    fn field(&mut self, fields: &mut Map<String, Value>, name: &str, kind: Kind) {
        let Some(value) = fields.get_mut(name) else { return };
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.id(item, kind)),
            one => self.id(one, kind),
        }
    }

    /// A field that has an id only if it is a number, or is written as one.
    fn number(&mut self, fields: &mut Map<String, Value>, name: &str, kind: Kind) {
        let is_number = |value: &Value| id_of(value).is_some_and(|id| id.parse::<i64>().is_ok());
        if fields.get(name).is_some_and(is_number) {
            self.field(fields, name, kind);
        }
    }

    fn id(&mut self, value: &mut Value, kind: Kind) {
        let Some(id) = id_of(value) else { return };
        if kind == Kind::Cohort && (id == "all" || id == "0") {
            return;
        }
        if let Some(target) = (self.replace)(kind, &id) {
            *value = like(value, &target);
        }
    }

    /// Numbers after the word `COHORT`, outside of quotes and comments.
    fn sql(&mut self, sql: &mut String) {
        if !sql.to_ascii_lowercase().contains("cohort") {
            return;
        }
        let mut written = String::with_capacity(sql.len());
        let mut rest = sql.as_str();
        let mut is_after_cohort = false;
        while let Some(first) = rest.chars().next() {
            let end = token_end(rest, first);
            let (token, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let target = match is_after_cohort && token.bytes().all(|byte| byte.is_ascii_digit()) {
                true => (self.replace)(Kind::Cohort, token),
                false => None,
            };
            written.push_str(target.as_deref().unwrap_or(token));
            if !first.is_whitespace() {
                is_after_cohort = token.eq_ignore_ascii_case("cohort");
            }
            rest = after;
        }
        *sql = written;
    }
}

/// The length of the first token of SQL: a word, something in quotes, a comment, white space, or one character.
fn token_end(rest: &str, first: char) -> usize {
    let while_true = |is_in: fn(char) -> bool| rest.find(|c| !is_in(c)).unwrap_or(rest.len());
    match first {
        '\'' | '"' | '`' => {
            let mut is_escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == first && !is_escaped;
                is_escaped = *c == '\\' && !is_escaped;
                ends
            });
            end.map_or(rest.len(), |(at, c)| at + c.len_utf8())
        }
        '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
        '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
        c if c.is_alphanumeric() || c == '_' || c == '$' => {
            while_true(|c| c.is_alphanumeric() || c == '_' || c == '$')
        }
        c if c.is_whitespace() => while_true(char::is_whitespace),
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests;
