//! Properties of events, persons and groups that pages read by their names.

use serde_json::{Map, Value};

use crate::state::json::text;

/// Properties that name a person, in the order of preference.
const NAMES: [&str; 3] = ["email", "name", "username"];

/// Properties that say where an event happened, in the order of preference.
const PLACES: [&str; 4] = ["$current_url", "$screen_name", "$pathname", "$lib"];

/// URL or screen at which an event happened.
pub fn place_of(event: &Value) -> &str {
    let places = PLACES.iter().map(|name| text(event, name));
    places.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

/// The URL at which an event happened.
pub fn url_of(event: &Value) -> &str {
    text(event, "$current_url")
}

/// Whether an event belongs to a person. Browser SDKs send events without one until they call `identify`.
pub fn has_person(event: &Value) -> bool {
    event.get("$process_person_profile") != Some(&Value::Bool(false))
}

/// The name of a person, if it has one.
pub fn name_of(person: &Map<String, Value>) -> Option<&str> {
    let names = NAMES.iter().filter_map(|key| person.get(*key)?.as_str());
    names.into_iter().find(|name| !name.is_empty())
}

/// The name of a group; empty without one.
pub fn name_of_group(group: &Map<String, Value>) -> &str {
    group.get("name").and_then(Value::as_str).unwrap_or_default()
}
