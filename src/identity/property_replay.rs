//! Rebuilds past properties of a person from its stored events: [`update`] is the effect of one stored
//! event, [`PropertyReplay`] applies the events one after the other.
//!
//! Events do not contain the properties that their person had. So a replay applies the same rules to
//! them as when they arrived. What no event contains is missing: changes by operators, and whose
//! properties won in a merge. `$geoip_*` is always taken for the server's, which a person gets, because
//! an event does not show whether the sender or the server set it.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::change::{Occasion, Update};
use crate::decide;
use crate::decide::Change;
use crate::person::Person;
use weir_base::clock::UnixMicros;
use weir_event::auto_set::{AUTO_SET, is_of_server};
use weir_event::geoip;

/// A person of which only the events up to here are known.
#[derive(Debug)]
pub struct PropertyReplay {
    person: Person,
    is_new: bool,
}

impl Default for PropertyReplay {
    fn default() -> Self {
        let person = Person {
            number: 0,
            uuid: Uuid::nil(),
            created_at: UnixMicros(0),
            properties: Map::new(),
            is_identified: false,
            version: 0,
            changed_sequence: 0,
        };
        Self { person, is_new: true }
    }
}

impl PropertyReplay {
    /// Applies the [`update`] of the next event.
    pub fn step(&mut self, mut update: Update) {
        if std::mem::take(&mut self.is_new) {
            // The event that creates a person sets its properties, whatever its name.
            update.occasion = Occasion::PersonEvent;
        }
        if let Change::Update(revision) = decide::change(&self.person, &update).change {
            revision.properties.apply(&mut self.person.properties);
        }
    }

    /// The current properties of the person.
    pub fn properties(&self) -> &Map<String, Value> {
        &self.person.properties
    }

    /// The final properties of the person.
    pub fn into_properties(self) -> Map<String, Value> {
        self.person.properties
    }
}

/// The person update of an event with this name and these stored properties; `None` if the event is
/// personless.
pub fn update(name: &str, event: &Map<String, Value>) -> Option<Update> {
    if event.get("$process_person_profile") == Some(&Value::Bool(false)) {
        return None;
    }
    let mut update = Update { occasion: Occasion::of(name), ..Update::default() };
    let object = |key: &str| event.get(key).and_then(Value::as_object).cloned();
    update.set = object("$set").unwrap_or_default();
    update.set_once = object("$set_once").unwrap_or_default();
    update.unset = match event.get("$unset") {
        Some(Value::Array(keys)) => {
            keys.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(Value::Object(keys)) => keys.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let is_server = event.get("$is_server") == Some(&Value::Bool(true));
    let auto_sets =
        AUTO_SET.iter().filter(|(key, _)| is_of_server(key).is_none_or(|of| of == is_server));
    for (key, initial) in auto_sets.chain(geoip::NAMES) {
        let Some(value) = event.get(*key) else { continue };
        if !value.is_null() && !update.set_once.contains_key(*initial) {
            update.set_once.insert((*initial).to_owned(), value.clone());
        }
        if !update.set.contains_key(*key) {
            update.set.insert((*key).to_owned(), value.clone());
        }
    }
    Some(update)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PropertyReplay, update};

    /// Goal: a replay of events gives the properties that the person got when they arrived.
    #[test]
    fn persons_are_what_their_events_say() {
        for (events, expected) in [
            (
                vec![
                    ("x", json!({"$set_once": {"first": 1}, "$set": {"plan": "free"}})),
                    ("x", json!({"$set_once": {"first": 2}, "$set": {"plan": "pro", "a": 5}})),
                    ("x", json!({"$unset": ["a"]})),
                ],
                json!({"first": 1, "plan": "pro"}),
            ),
            (
                vec![
                    ("$pageview", json!({"$browser": "Firefox", "$geoip_country_code": "DE"})),
                    ("$pageview", json!({"utm_source": "mail", "$geoip_country_code": "FR"})),
                ],
                json!({
                    "$browser": "Firefox", "$initial_browser": "Firefox", "utm_source": "mail",
                    "$initial_utm_source": "mail", "$geoip_country_code": "FR",
                    "$initial_geoip_country_code": "DE",
                }),
            ),
            // A property that changes with every page view is no change, unless the event is about the person.
            (
                vec![
                    ("$pageview", json!({"$pathname": "/a"})),
                    ("$pageview", json!({"$pathname": "/b"})),
                ],
                json!({"$pathname": "/a", "$initial_pathname": "/a"}),
            ),
            (
                vec![("x", json!({"$pathname": "/a"})), ("$identify", json!({"$pathname": "/b"}))],
                json!({"$pathname": "/b", "$initial_pathname": "/a"}),
            ),
            // What the sender set explicitly counts.
            (
                vec![("x", json!({"$os": "Linux", "$set": {"$os": "Plan 9"}}))],
                json!({"$os": "Plan 9", "$initial_os": "Linux"}),
            ),
            // A server's operating system is not the person's.
            (vec![("x", json!({"$os": "Linux", "$is_server": true}))], json!({})),
            (
                vec![("x", json!({"$os": "Linux", "$os_name": "Debian"}))],
                json!({"$os": "Linux", "$initial_os": "Linux"}),
            ),
            // These events set properties of a new person, and change no existing one.
            (
                vec![
                    ("$exception", json!({"$set": {"a": 1}})),
                    ("$exception", json!({"$set": {"a": 2}})),
                ],
                json!({"a": 1}),
            ),
            // A personless event creates no person.
            (
                vec![
                    ("x", json!({"$process_person_profile": false, "$browser": "Opera"})),
                    ("$exception", json!({"$set": {"a": 1}})),
                ],
                json!({"a": 1}),
            ),
            (vec![("x", json!({"$set": "no object", "$unset": {"a": null}}))], json!({})),
        ] {
            let mut replay = PropertyReplay::default();
            for (name, properties) in &events {
                update(name, properties.as_object().unwrap())
                    .into_iter()
                    .for_each(|one| replay.step(one));
            }
            assert_eq!(Value::Object(replay.into_properties()), expected, "{events:?}");
        }
    }
}
