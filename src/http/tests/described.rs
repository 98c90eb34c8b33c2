//! Checks `schemas/openapi.json` against the tables of endpoints: it describes all endpoints and no
//! others.
//!
//! A new endpoint goes next to related ones: the path with its `parameters` in their order, an
//! `operationId` of the words of the path and the action (`list`, `retrieve`, `create`, `replace`,
//! `update`, `delete`), `security` with the scope of its row, and `responses`: the success, 401, 403,
//! 404, 406, 429 and 5XX always, 400 if the request can be wrong, 408, 413 and 415 if it has a body.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::http::call::Renderings;
use crate::http::public::PUBLIC;
use crate::http::routes::description::OPENAPI;
use crate::http::table::TABLE;

/// Keys of a path that are not methods.
const NO_METHODS: [&str; 2] = ["parameters", "$ref"];

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// A path of a table in the notation of OpenAPI.
fn written(path: &str) -> String {
    let path = match (path.strip_prefix("P/"), path.strip_prefix("O/")) {
        (Some(rest), _) => format!("/api/projects/:project/{rest}"),
        (_, Some(rest)) => format!("/api/organizations/:organization/{rest}"),
        _ => path.to_owned(),
    };
    let part = |part: &str| match part.strip_prefix(':') {
        Some(name) => format!("{{{name}}}"),
        None => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The target of a `$ref`, if `value` is one.
fn resolved<'d>(description: &'d Value, value: &'d Value) -> &'d Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(name) => {
            let place = name.strip_prefix('#').and_then(|name| description.pointer(name));
            place.unwrap_or_else(|| panic!("{name} is not there"))
        }
        None => value,
    }
}

/// (method, path) -> operation.
fn operations(description: &Value) -> BTreeMap<(String, String), &Map<String, Value>> {
    let mut operations = BTreeMap::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in resolved(description, item).as_object().unwrap() {
            if !NO_METHODS.contains(&method.as_str()) {
                let key = (method.to_uppercase(), path.clone());
                operations.insert(key, operation.as_object().unwrap());
            }
        }
    }
    operations
}

/// Calls `see` for every object in `value`.
fn walk<'v>(value: &'v Value, see: &mut impl FnMut(&'v Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            see(fields);
            fields.values().for_each(|value| walk(value, see));
        }
        Value::Array(items) => items.iter().for_each(|value| walk(value, see)),
        _ => {}
    }
}

/// The description explains the alias of the paths under `/api/projects/` in its text.
fn is_alias(path: &str) -> bool {
    path.starts_with("/api/environments/")
}

#[test]
fn every_endpoint_is_described_and_nothing_else() {
    let description = description();
    let described: BTreeSet<_> = operations(&description).into_keys().collect();
    let managed = TABLE.iter().flat_map(|line| line.methods().map(|method| (method, line.path)));
    let public = PUBLIC.iter().filter(|line| !is_alias(line.path));
    let public = public.flat_map(|line| line.methods().map(|method| (method, line.path)));
    let served: BTreeSet<_> =
        managed.chain(public).map(|(method, path)| (method.to_owned(), written(path))).collect();
    let missing: Vec<_> = served.difference(&described).collect();
    assert!(missing.is_empty(), "not in schemas/openapi.json: {missing:#?}");
    let stale: Vec<_> = described.difference(&served).collect();
    assert!(stale.is_empty(), "only in schemas/openapi.json: {stale:#?}");
}

#[test]
fn scopes_and_forms_are_those_of_the_table() {
    let description = description();
    let operations = operations(&description);
    for line in TABLE {
        for method in line.methods() {
            let path = written(line.path);
            let operation = &operations[&(method.to_owned(), path.clone())];
            let expected = json!([{"personalKey": [line.scope]}]);
            assert_eq!(operation["security"], expected, "{method} {path}");
            let responses = operation["responses"].as_object().unwrap();
            for status in ["401", "403", "404", "429", "5XX"] {
                assert!(responses.contains_key(status), "{method} {path}: {status}");
            }
            let success = responses.iter().find(|(status, _)| status.starts_with('2'));
            let content =
                success.and_then(|(_, answer)| resolved(&description, answer).get("content"));
            // A response without content has no schema.
            let Some(content) = content else { continue };
            let has_csv = content.get("text/csv").is_some();
            let expected = line.renderings != Renderings::Json;
            assert_eq!(has_csv, expected, "{method} {path}: text/csv");
        }
    }
}

#[test]
fn names_are_there_and_used() {
    let description = description();
    let (mut used, mut ids) = (BTreeSet::new(), BTreeSet::new());
    walk(&description, &mut |fields| {
        if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
            let place = name.strip_prefix('#').and_then(|name| description.pointer(name));
            assert!(place.is_some(), "{name} is not there");
            used.insert(name.to_owned());
        }
        if let Some(Value::String(id)) = fields.get("operationId") {
            assert!(ids.insert(id.clone()), "{id} twice");
        }
    });
    for (kind, components) in description["components"].as_object().unwrap() {
        for name in components.as_object().unwrap().keys() {
            let name = format!("#/components/{kind}/{name}");
            let is_used = kind == "securitySchemes" || used.contains(&name);
            assert!(is_used, "nothing refers to {name}");
        }
    }
}

#[test]
fn paths_declare_their_parameters() {
    let description = description();
    for (path, item) in description["paths"].as_object().unwrap() {
        let parameters = resolved(&description, item).get("parameters").and_then(Value::as_array);
        let declared = parameters.into_iter().flatten();
        let declared: Vec<_> =
            declared.map(|one| resolved(&description, one)["name"].as_str().unwrap()).collect();
        let written = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(declared, written.collect::<Vec<_>>(), "{path}");
    }
}
