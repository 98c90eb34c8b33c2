//! Checks `schemas/openapi.json`: it is generated from the tables of endpoints and their types, and describes all
//! endpoints and no others.
//!
//! A new management endpoint has its summary in its row of the table, and its shape from the types of its operation; a
//! new public one is described in `openapi/sdk.rs`, next to related ones. Then `WEIR_WRITE_DESCRIPTION=1 scripts/dev.sh
//! unit http described` regenerates the file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::openapi::document;
use crate::openapi::document::written;
use crate::public::PUBLIC;
use crate::rendering::Renderings;
use crate::routes::description::OPENAPI;
use crate::table::TABLE;

/// Keys of a path that are not methods.
const NO_METHODS: [&str; 2] = ["parameters", "$ref"];

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
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
fn the_file_is_what_the_types_say() {
    let made = document::text();
    if std::env::var_os("WEIR_WRITE_DESCRIPTION").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/openapi.json");
        std::fs::write(path, made).unwrap();
        return;
    }
    let differs = made.lines().zip(OPENAPI.lines()).find(|(made, file)| made != file);
    let hint = "WEIR_WRITE_DESCRIPTION=1 scripts/dev.sh unit http described";
    assert!(made == OPENAPI, "schemas/openapi.json is old: {differs:#?}\n{hint} writes it anew");
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
