//! A person behind a mark of a chart, as a row shows it: [`ActorRow`].

use serde_json::Value;

use crate::state::json::{items, text};
use crate::state::properties::name_of;

/// A person.
#[derive(Clone, Debug, PartialEq)]
pub struct ActorRow {
    /// The id.
    pub uuid: String,
    /// The distinct ids.
    pub distinct_ids: Vec<String>,
    /// A property that names the person, else a distinct id, else the id.
    pub name: String,
    /// The value of the person at the mark.
    pub value: Option<f64>,
    /// When the person was first seen; empty if that is unknown.
    pub created_at: String,
}

impl ActorRow {
    /// That of a person in a list of actors.
    pub fn of(person: &Value) -> Self {
        let ids = items(person, "distinct_ids").iter().filter_map(Value::as_str);
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        let name = person.get("properties").and_then(Value::as_object).and_then(name_of);
        let name = name.or(ids.first().map(String::as_str));
        Self {
            uuid: text(person, "uuid").to_owned(),
            name: name.unwrap_or_else(|| text(person, "uuid")).to_owned(),
            value: person.get("value_at_data_point").and_then(Value::as_f64),
            created_at: text(person, "created_at").to_owned(),
            distinct_ids: ids,
        }
    }
}
