//! `GET persons/values/`: the values of a property, for the editor of a filter.

use std::collections::HashMap;

use serde_json::Value;

use crate::auth::Principal;
use crate::operation::input::input;
use crate::operation::output::Long;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::query::problems;
use weir_api::groups::Count;

/// Most persons that are read, newest first (PostHog's figure).
const PERSONS_MAX: usize = 100_000;

/// Most distinct values that are counted; others are ignored.
const VALUES_MAX: usize = 50_000;

/// Most values in a response (PostHog's figure).
const TOLD_MAX: usize = 20;

input! {
    /// The most frequent values of the property `key`; with `value`, only those that contain it.
    pub struct Values {
        query key: Option<String>,
        /// Part of the values
        query value: Option<String>,
    }
}

impl Operation for Values {
    type Who = Principal;
    type Out = Long<Vec<Count>>;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (key, part) = (self.key.unwrap_or_default(), self.value.unwrap_or_default());
        if key.is_empty() || key.starts_with("$virt") {
            return Ok(Long(Vec::new()));
        }
        let (engine, tally) = (&cx.app.engine, Tally::new(&part));
        let project = cx.who.project.id;
        let counted = engine.person_values(project, key, PERSONS_MAX, tally, Tally::count);
        Ok(Long(counted.await.map_err(problems::problem)?.told()))
    }
}

/// Values and their counts.
#[derive(Debug)]
pub(in crate::routes) struct Tally {
    /// The substring to search for, in lower case; empty matches all.
    part: String,
    counts: HashMap<String, usize>,
}

impl Tally {
    /// Counts values that contain `part`, case-insensitively.
    pub(in crate::routes) fn new(part: &str) -> Self {
        Self { part: part.to_lowercase(), counts: HashMap::new() }
    }

    /// Counts the persons that have a value. Null and the empty text are ignored.
    pub(in crate::routes) fn count(&mut self, value: &Value, persons: usize) {
        let name = match value {
            Value::Null => return,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if name.is_empty() || !name.to_lowercase().contains(&self.part) {
            return;
        }
        if let Some(count) = self.counts.get_mut(&name) {
            *count += persons;
        } else if self.counts.len() < VALUES_MAX {
            self.counts.insert(name, persons);
        }
    }

    /// The most frequent values; equal counts are ordered by name.
    pub(in crate::routes) fn told(self) -> Vec<Count> {
        let values = self.counts.into_iter().map(|(name, count)| Count { name, count });
        let mut values: Vec<_> = values.collect();
        values.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        values.truncate(TOLD_MAX);
        values
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Count, Tally};

    /// PostHog's `convert_property_value`: booleans in lower case, containers as JSON.
    #[test]
    fn values_are_counted_and_told_as_text() {
        let mut tally = Tally::new("");
        for value in [
            json!("b"),
            json!(true),
            json!("b"),
            json!(null),
            json!(""),
            json!({"z": 1, "a": [2]}),
            json!(1.5),
        ] {
            tally.count(&value, 1);
        }
        let told = [("b", 2), ("1.5", 1), ("true", 1), ("{\"a\":[2],\"z\":1}", 1)];
        let told: Vec<_> =
            told.into_iter().map(|(name, count)| Count { name: name.into(), count }).collect();
        assert_eq!(tally.told(), told);
    }

    #[test]
    fn parts_match_in_any_case() {
        let mut tally = Tally::new("oo");
        for value in ["Foo", "bar", "FOOD"] {
            tally.count(&json!(value), 1);
        }
        assert_eq!(tally.told().len(), 2);
    }
}
