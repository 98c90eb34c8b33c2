//! What every management endpoint refuses, and in which words: those of the API specification, and of
//! Django REST Framework and drf-exceptions-hog, on which PostHog's API stands. It goes through the
//! table of endpoints, so it holds for a new one too. What one endpoint alone refuses is tested with it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;
use weir::http::call::Renderings;
use weir::http::table::Endpoint;
use weir::http::table::TABLE;

use crate::harness::Answer;
use crate::harness::KEY;
use crate::harness::TOKEN;
use crate::harness::TestServer;
use crate::isolation::Owner;
use crate::isolation::fill_in;
use crate::isolation::text;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// A server with one of everything, and the ids of it.
fn furnished() -> (TestServer, BTreeMap<&'static str, String>) {
    let server = TestServer::start();
    let mut ids = Owner::fill(&server, 1, TOKEN, "alpha").ids;
    let me = server.get("/api/users/@me/").json()["uuid"].clone();
    let role = ids["ROLE"].clone();
    let memberships = format!("/api/organizations/@current/roles/{role}/role_memberships/");
    let membership = server.post(&memberships, &json!({"user_uuid": me}));
    assert_eq!(membership.status, 201, "{membership}");
    let key = server.get("/api/personal_api_keys/@current/").json();
    let rule = json!({"resource": "feature flags", "access_level": 37});
    let rule = server.post("/api/organizations/@current/resource_access/", &rule);
    assert_eq!(rule.status, 201, "{rule}");
    ids.extend([
        ("feature_flags/:key", "of-alpha".to_owned()),
        ("members/:uuid", text(&me)),
        ("personal_api_keys/:id", text(&key["id"])),
        ("projects/:id", "1".to_owned()),
        ("resource_access/:id", text(&rule.json()["id"])),
        ("role_memberships/:membership", text(&membership.json()["id"])),
        ("roles/:id", role),
        ("users/:uuid", text(&me)),
    ]);
    (server, ids)
}

/// All endpoints with their methods and paths.
fn endpoints(
    ids: &BTreeMap<&'static str, String>,
) -> Vec<(&'static Endpoint, &'static str, String)> {
    let of = |line: &'static Endpoint| {
        let path = fill_in(line.path, "1", ids);
        line.methods().map(move |method| (line, method, path.clone()))
    };
    TABLE.iter().flat_map(of).collect()
}

fn send(
    server: &TestServer,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
    body: &str,
) -> Answer {
    let bearer = format!("Bearer {KEY}");
    let headers = [&[("authorization", bearer.as_str())], more].concat();
    server.send(method, path, &headers, body)
}

/// An error for which no field is to blame.
fn error(kind: &str, code: &str, detail: &str) -> Value {
    json!({"type": kind, "code": code, "detail": detail, "attr": null})
}

#[test]
fn nobody_is_told_anything_without_a_key() {
    let (server, ids) = furnished();
    let missing = "Authentication credentials were not provided.";
    let missing = error("authentication_error", "not_authenticated", missing);
    for (_, method, path) in endpoints(&ids) {
        let answer = server.send(method, &path, &[], "");
        assert_eq!((answer.status, answer.json()), (401, missing.clone()), "{method} {path}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        let wrong = server.send(method, &path, &[("authorization", "Bearer phx_wrong")], "");
        let found = wrong.json();
        let told = (wrong.status, &found["type"], &found["code"]);
        let expected = (json!("authentication_error"), json!("invalid_personal_api_key"));
        assert_eq!(told, (401, &expected.0, &expected.1), "{method} {path}");
    }
}

/// The scope of every endpoint, from the table: a key with all others is refused in PostHog's words.
#[test]
fn every_endpoint_needs_its_scope() {
    let (server, ids) = furnished();
    let objects: BTreeSet<&str> =
        TABLE.iter().filter_map(|line| Some(line.scope.split_once(':')?.0)).collect();
    let key_without = |scope: &str| {
        let (object, action) = scope.split_once(':').expect("an action");
        let others = objects.iter().filter(|other| **other != object);
        let mut scopes: Vec<String> = others.map(|other| format!("{other}:write")).collect();
        // Write implies read, so only who lacks write may have read.
        scopes.extend((action == "write").then(|| format!("{object}:read")));
        let key = server.post("/api/personal_api_keys/", &json!({"label": "x", "scopes": scopes}));
        assert_eq!(key.status, 201, "{key}");
        text(&key.json()["value"])
    };
    let mut keys: BTreeMap<&str, String> = BTreeMap::new();
    for (line, method, path) in endpoints(&ids) {
        let key = keys.entry(line.scope).or_insert_with(|| key_without(line.scope));
        let bearer = format!("Bearer {key}");
        let answer = server.send(method, &path, &[("authorization", &bearer)], "");
        let detail = format!("API key missing required scope '{}'", line.scope);
        let denied = error("authentication_error", "permission_denied", &detail);
        assert_eq!((answer.status, answer.json()), (403, denied), "{method} {path}");
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let (server, ids) = furnished();
    let nobody = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
    for (line, method, path) in endpoints(&ids) {
        let elsewhere = match line.path.split('/').next() {
            Some("P") => Some((fill_in(line.path, "99", &ids), "Project not found.")),
            Some("O") => Some((path.replace("@current", nobody), "Organization not found.")),
            _ => None,
        };
        if let Some((path, detail)) = elsewhere {
            let answer = send(&server, method, &path, &[], "");
            let expected = error("invalid_request", "not_found", detail);
            assert_eq!((answer.status, answer.json()), (404, expected), "{method} {path}");
        }
        if line.renderings == Renderings::Own {
            continue;
        }
        let expected = error("invalid_request", "not_found", "Not found.");
        let answer = send(&server, method, &format!("{path}?format=xml"), &[], "");
        assert_eq!((answer.status, answer.json()), (404, expected), "{method} {path}");
        let answer = send(&server, method, &path, &[("accept", "text/html")], "");
        let detail = "Could not satisfy the request Accept header.";
        let expected = error("invalid_request", "not_acceptable", detail);
        assert_eq!((answer.status, answer.json()), (406, expected), "{method} {path}");
    }
    for path in ["/api/nothing/", "/api/projects/1/nothing/", "/api/projects/1/persons/1/nothing/"]
    {
        let expected = error("invalid_request", "not_found", "Not found.");
        let answer = send(&server, "GET", path, &[], "");
        assert_eq!((answer.status, answer.json()), (404, expected), "{path}");
    }
}

#[test]
fn other_methods_are_not_allowed() {
    let (server, ids) = furnished();
    let mut methods: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (_, method, path) in endpoints(&ids) {
        methods.entry(path).or_default().insert(method);
    }
    for (path, taken) in methods {
        for method in METHODS.iter().filter(|method| !taken.contains(**method)) {
            let answer = send(&server, method, &path, &[], "");
            let found = answer.json();
            let told = (answer.status, &found["type"], &found["code"]);
            let expected = (json!("invalid_request"), json!("method_not_allowed"));
            assert_eq!(told, (405, &expected.0, &expected.1), "{method} {path}");
            let allow = answer.header("allow").unwrap_or_else(|| panic!("{answer}"));
            let allowed: BTreeSet<&str> = allow.split(", ").collect();
            assert!(!allowed.contains(method) && allowed.contains("OPTIONS"), "{allow}");
            // What always refuses in words of its own, and other names, are not told.
            let told = allowed.iter().filter(|told| METHODS.contains(told));
            assert!(told.clone().all(|told| taken.contains(told)), "{path}: {allow}");
            assert!(told.count() > 0, "{path}: {allow}");
        }
    }
}

/// Bodies that cannot be read, at every endpoint whose description says that it takes one.
#[test]
fn bodies_must_be_objects_of_json() {
    let (server, ids) = furnished();
    let description = server.get("/api/schema/").json();
    let as_described = |path: &str| {
        let path = path.replace("P/", "/api/projects/:project/");
        let path = path.replace("O/", "/api/organizations/:organization/");
        let parts = path.split('/').map(|part| match part.strip_prefix(':') {
            Some(name) => format!("{{{name}}}"),
            None => part.to_owned(),
        });
        parts.collect::<Vec<_>>().join("/")
    };
    let mut count = 0;
    for (line, method, path) in endpoints(&ids) {
        let path_described = as_described(line.path);
        let operation = &description["paths"][&path_described][method.to_lowercase()];
        assert!(operation["responses"]["401"].is_object(), "{method} {path_described}");
        if operation["responses"]["415"].is_null() {
            continue;
        }
        count += 1;
        let json_type = [("content-type", "application/json")];
        let text_type = [("content-type", "text/plain")];
        let answer = send(&server, method, &path, &text_type, "key=a");
        let detail = "Unsupported media type \"text/plain\" in request.";
        let expected = error("invalid_request", "unsupported_media_type", detail);
        assert_eq!((answer.status, answer.json()), (415, expected), "{method} {path}");
        let answer = send(&server, method, &path, &json_type, "{");
        let found = answer.json();
        let told = (answer.status, &found["type"], &found["code"], &found["attr"]);
        let expected = (json!("invalid_request"), json!("parse_error"));
        assert_eq!(told, (400, &expected.0, &expected.1, &Value::Null), "{method} {path}");
        assert!(
            found["detail"]
                .as_str()
                .is_some_and(|detail| detail.starts_with("JSON parse error - "))
        );
        // Some take a list of objects, and so not one of lists.
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let body = if schema["type"] == "array" { "[[]]" } else { "[]" };
        let answer = send(&server, method, &path, &json_type, body);
        let detail = "Invalid data. Expected a dictionary, but got list.";
        let expected = error("validation_error", "invalid_input", detail);
        assert_eq!((answer.status, answer.json()), (400, expected), "{method} {path}");
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(2 << 20));
        let answer = send(&server, method, &path, &json_type, &long);
        assert_eq!(answer.status, 413, "{method} {path}: {answer}");
    }
    assert!(count > 30, "only {count} endpoints take a body");
}
