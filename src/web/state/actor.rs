//! A person behind a mark of a chart, as a row shows it: [`ActorRow`].

use serde_json::Value;

/// Properties that name a person, in the order of preference.
const NAMES: [&str; 3] = ["email", "name", "username"];

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
        let text = |name: &str| person.get(name).and_then(Value::as_str).unwrap_or_default();
        let ids = person.get("distinct_ids").and_then(Value::as_array);
        let ids = ids.into_iter().flatten().filter_map(Value::as_str);
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        let property = |name: &&str| person.get("properties")?.get(*name)?.as_str();
        let name = NAMES.iter().find_map(property).or(ids.first().map(String::as_str));
        Self {
            uuid: text("uuid").to_owned(),
            name: name.unwrap_or_else(|| text("uuid")).to_owned(),
            value: person.get("value_at_data_point").and_then(Value::as_f64),
            created_at: text("created_at").to_owned(),
            distinct_ids: ids,
        }
    }
}
