//! The fields that the description has for the body of each endpoint: [`Bodies`]. The fields that are accepted are
//! those that are described.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::body_fields::BodyFields;
use crate::openapi::document;
use crate::table::TABLE;

/// How many levels of schema references are followed.
const DEPTH_MAX: usize = 8;

/// The media type of bodies and responses, as a segment of a JSON pointer.
const JSON: &str = "application~1json";

/// The fields of the bodies of all endpoints, by path and method as in the table.
#[derive(Debug, Default)]
pub struct Bodies(BTreeMap<(&'static str, &'static str), Arc<BodyFields>>);

impl Bodies {
    /// Reads the fields from the description. An endpoint that accepts a body of any form has no entry.
    pub fn described() -> Self {
        let document = document::document();
        let mut bodies = BTreeMap::new();
        for endpoint in TABLE {
            let path = document::written(endpoint.path);
            for method in endpoint.methods() {
                let item = document.get("paths").and_then(|paths| paths.get(&path));
                let described = item.and_then(|item| item.get(method.to_lowercase()));
                let Some(described) = described else { continue };
                let sent = described.pointer(&format!("/requestBody/content/{JSON}/schema"));
                let read = sent.map(|schema| names(&document, schema, DEPTH_MAX));
                let Some(read) = read.filter(|read| !read.is_empty()) else { continue };
                let answers = described.get("responses").and_then(Value::as_object);
                let answers = answers.into_iter().flat_map(|all| all.values());
                let schemas =
                    answers.filter_map(|answer| answer.pointer(&format!("/content/{JSON}/schema")));
                let told = schemas.flat_map(|schema| names(&document, schema, DEPTH_MAX));
                let fields = BodyFields::new(read, told.collect());
                bodies.insert((endpoint.path, method), Arc::new(fields));
            }
        }
        Self(bodies)
    }

    /// The fields of an endpoint; `None` if its body may have any.
    pub fn of(&self, path: &'static str, method: &str) -> Option<Arc<BodyFields>> {
        self.0.get(&(path, method)).cloned()
    }
}

/// The names of the properties of a schema, and of the schemas that it is composed of.
fn names(document: &Value, schema: &Value, depth: usize) -> BTreeSet<String> {
    let Some(depth) = depth.checked_sub(1) else { return BTreeSet::new() };
    let mut found: BTreeSet<String> = BTreeSet::new();
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        found.extend(properties.keys().cloned());
    }
    let referred = schema.get("$ref").and_then(Value::as_str);
    let referred = referred.and_then(|name| document.pointer(name.strip_prefix('#')?));
    let parts = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema.get(name));
    let parts = parts.filter_map(Value::as_array).flatten();
    for part in referred.into_iter().chain(parts).chain(schema.get("items")) {
        found.extend(names(document, part, depth));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Bodies;

    #[test]
    fn bodies_have_what_is_read_and_what_is_answered() {
        let bodies = Bodies::described();
        for (path, method, body, is_taken) in [
            ("P/feature_flags/", "POST", json!({"key": "a", "filters": {}}), true),
            (
                "P/feature_flags/:id/",
                "PATCH",
                json!({"id": 1, "created_by": {}, "can_edit": true}),
                true,
            ),
            ("P/feature_flags/", "POST", json!({"key": "a", "rolout": 1}), false),
            ("P/insights/", "POST", json!({"name": "a", "qurey": {}}), false),
            (
                "P/dashboards/:id/",
                "PATCH",
                json!({"tiles": [], "effective_privilege_level": 37}),
                true,
            ),
            ("P/groups_types/update_metadata/", "PATCH", json!({"name_singular": "a"}), true),
            ("P/groups_types/update_metadata/", "PATCH", json!({"singular": "a"}), false),
            ("P/query/", "POST", json!({"query": "SELECT 1", "refresh": true}), true),
            ("P/query/", "POST", json!({"query": "SELECT 1", "refersh": true}), false),
        ] {
            let Value::Object(sent) = &body else { panic!("an object") };
            let known = bodies.of(path, method).unwrap_or_else(|| panic!("{method} {path}"));
            assert_eq!(known.check(sent).is_ok(), is_taken, "{method} {path} {body}");
        }
        assert!(bodies.of("P/insights/trend/", "POST").is_none(), "filters of any form");
        assert!(bodies.of("P/insights/", "GET").is_none(), "no body");
    }
}
