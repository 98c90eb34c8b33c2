//! The properties of events that filters look at: [`Wanted`], of which an event without any is seen by its text
//! ([`needles`]).

use serde_json::{Map, Value};

use weir_event::json;
use weir_event::json_key::KeyFinder;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::tree::Tree;

fn asks_for_properties(filter: &Filter) -> bool {
    matches!(filter, Filter::Property { scope: Scope::Event, .. })
}

/// Keys that the properties of every row that matches have.
pub(super) fn needles(tree: &Tree) -> Vec<KeyFinder> {
    if !tree.filters().into_iter().all(asks_for_properties) {
        return Vec::new();
    }
    tree.required_keys().into_iter().filter_map(KeyFinder::new).collect()
}

/// The properties of events that filters look at.
pub(super) struct Wanted {
    keys: Vec<Box<str>>,
    /// Finds each of the keys; `None` if one of them cannot be searched for.
    finders: Option<Vec<KeyFinder>>,
}

impl Wanted {
    pub(super) fn of(tree: &Tree) -> Self {
        let mut keys: Vec<Box<str>> = Vec::new();
        for filter in tree.filters() {
            if let Filter::Property { scope: Scope::Event, predicate } = filter
                && !keys.contains(&predicate.key)
            {
                keys.push(predicate.key.clone());
            }
        }
        let finders = keys.iter().map(|key| KeyFinder::new(key)).collect();
        Self { keys, finders }
    }

    /// Those of an event, by the JSON text of all.
    pub(super) fn read(&self, text: &str) -> Map<String, Value> {
        let may_have = |finder: &KeyFinder| finder.may_be_in(text.as_bytes());
        let has_none = self.finders.as_ref().is_some_and(|finders| !finders.iter().any(may_have));
        match has_none {
            true => Map::new(),
            false => json::read_members(text.as_bytes(), &self.keys).unwrap_or_default(),
        }
    }
}
