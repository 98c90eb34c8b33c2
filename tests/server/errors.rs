//! Errors common to all management endpoints. Texts are those of the API specification, and of Django
//! REST Framework and drf-exceptions-hog, on which PostHog's API is built. The tests iterate over the
//! table of endpoints, so they cover new ones too. Errors of single endpoints are tested with them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};
use weir_http::rendering::Renderings;
use weir_http::table::{Endpoint, TABLE};

use crate::harness::{Answer, KEY, TOKEN, TestServer};
use crate::owner::{Owner, fill_in, text};
use crate::sdk::tools;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// A server with one object of every kind, and their ids.
pub(crate) fn furnished() -> (TestServer, BTreeMap<&'static str, String>) {
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

/// Sends a request with the server's own key.
pub(crate) fn send(
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

/// An error without a field at fault.
pub(crate) fn error(kind: &str, code: &str, detail: &str) -> Value {
    json!({"type": kind, "code": code, "detail": detail, "attr": null})
}

/// The body has these fields in this order, and no others.
fn in_order(answer: &Answer, fields: &[&str]) {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{answer}");
    let body = answer.json();
    assert_eq!(body.as_object().map(|body| body.len()), Some(fields.len()), "{answer}");
    let (text, mut at) = (answer.to_string(), 0);
    for field in fields {
        let found = text[at..].find(&format!("\"{field}\":"));
        at += found.unwrap_or_else(|| panic!("{field} is missing or out of order in {text}"));
    }
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
        in_order(&answer, &["type", "code", "detail", "attr"]);
        let wrong = server.send(method, &path, &[("authorization", "Bearer phx_wrong")], "");
        let found = wrong.json();
        let told = (wrong.status, &found["type"], &found["code"]);
        let expected = (json!("authentication_error"), json!("invalid_personal_api_key"));
        assert_eq!(told, (401, &expected.0, &expected.1), "{method} {path}");
        // RFC 9110, 15.5.2: a 401 always says how to ask.
        assert_eq!(wrong.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        in_order(&wrong, &["type", "code", "detail"]);
    }
}

/// The scope of every endpoint, from the table: a key with all others is refused with PostHog's text.
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

/// Endpoints that `Allow` does not list: they always refuse with a text of their own, or are an alias.
const UNLISTED: [(&str, &str); 8] = [
    ("POST", "P/persons/"),
    ("DELETE", "P/actions/:id/"),
    ("DELETE", "P/annotations/:id/"),
    ("DELETE", "P/dashboards/:id/"),
    ("DELETE", "P/insights/:id/"),
    ("DELETE", "P/cohorts/:id/"),
    ("DELETE", "P/feature_flags/:id/"),
    ("PATCH", "P/rotate_secret_token/"),
];

#[test]
fn other_methods_are_not_allowed() {
    let (server, ids) = furnished();
    let mut methods: BTreeMap<String, Vec<(&str, bool)>> = BTreeMap::new();
    for (line, method, path) in endpoints(&ids) {
        let is_listed = !UNLISTED.contains(&(method, line.path));
        methods.entry(path).or_default().push((method, is_listed));
    }
    for (path, taken) in methods {
        let listed = |method: &&&str| taken.contains(&(**method, true));
        let mut allowed: Vec<&str> = METHODS.iter().filter(listed).copied().collect();
        allowed.extend(allowed.contains(&"GET").then_some("HEAD"));
        allowed.push("OPTIONS");
        let is_taken = |method: &str| taken.iter().any(|(own, _)| *own == method);
        for method in METHODS.iter().filter(|method| !is_taken(method)) {
            let answer = send(&server, method, &path, &[], "");
            let detail = format!("Method \"{method}\" not allowed.");
            let expected = error("invalid_request", "method_not_allowed", &detail);
            assert_eq!((answer.status, answer.json()), (405, expected), "{method} {path}");
            in_order(&answer, &["type", "code", "detail", "attr"]);
            // The order of Django REST Framework.
            let told = answer.header("allow");
            assert_eq!(told, Some(&*allowed.join(", ")), "{method} {path}");
        }
    }
}

/// Invalid bodies, at every endpoint that takes a body by its description.
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

/// All endpoints with their methods and paths, with unknown ids.
fn endpoints_of_nothing() -> impl Iterator<Item = (&'static Endpoint, &'static str, String)> {
    let of = |line: &'static Endpoint| {
        let path = line.path.replace("P/", "/api/projects/1/");
        let path = path.replace("O/", "/api/organizations/@current/");
        let part = |part| if str::starts_with(part, ':') { "1" } else { part };
        let path = path.split('/').map(part).collect::<Vec<_>>().join("/");
        line.methods().map(move |method| (line, method, path.clone()))
    };
    TABLE.iter().flat_map(of)
}

/// Django REST Framework's text, and the header with the same number.
fn must_wait(answer: &Answer, what: &str) {
    let seconds = answer.header("retry-after").unwrap_or_else(|| panic!("{what}: {answer}"));
    let detail = format!("Request was throttled. Expected available in {seconds} seconds.");
    let expected = error("throttled_error", "throttled", &detail);
    assert_eq!((answer.status, answer.json()), (429, expected), "{what}");
    in_order(answer, &["type", "code", "detail", "attr"]);
    // One an hour, and the first was asked for just now.
    let seconds: u64 = seconds.parse().expect("seconds");
    assert!((3000..=3600).contains(&seconds), "{what}: {seconds}");
}

#[test]
fn every_endpoint_counts_for_the_limit_of_a_key() {
    let server = TestServer::start_with(&[("WEIR_KEY_REQUESTS_PER_HOUR_MAX", "1")]);
    assert_eq!(server.get("/api/users/@me/").status, 200);
    for (_, method, path) in endpoints_of_nothing() {
        must_wait(&send(&server, method, &path, &[], ""), &format!("{method} {path}"));
    }
}

/// PostHog's lower limits apply to every request about persons and queries; those about events count
/// too.
#[test]
fn every_endpoint_of_persons_and_queries_counts_for_their_limit() {
    let server = TestServer::start_with(&[("WEIR_KEY_ANALYTICS_REQUESTS_PER_HOUR_MAX", "1")]);
    assert_eq!(server.get("/api/projects/1/persons/").status, 200);
    let many = ["P/persons/", "P/events/", "P/query/"];
    let few = ["P/event_definitions/", "P/property_definitions/", "P/groups", "/api/"];
    for (line, method, path) in endpoints_of_nothing() {
        let is_one = |begin: &&str| line.path.starts_with(*begin);
        let (is_of_many, is_of_few) = (many.iter().any(is_one), few.iter().any(is_one));
        // To ask again and again whether a query is answered reads no events.
        let is_of_many = is_of_many && line.path != "P/query/:id/";
        if is_of_many || (is_of_few && method == "GET") {
            let answer = send(&server, method, &path, &[], "");
            match is_of_many {
                true => must_wait(&answer, &format!("{method} {path}")),
                false => assert_ne!(answer.status, 429, "{method} {path}: {answer}"),
            }
        }
    }
}

/// No endpoint creates an organization, so the test writes one to the store.
fn give_away(server: &TestServer, project: &Value, organization: &str) {
    let script = "import sqlite3, sys\n\
                  path, organization, project = sys.argv[1:]\n\
                  database = sqlite3.connect(path)\n\
                  database.execute('INSERT INTO organizations (id, name, created_at) VALUES (?, ?, 0)', \
                  [organization, 'Others'])\n\
                  database.execute('UPDATE projects SET organization = ? WHERE id = ?', \
                  [organization, project])\n\
                  database.commit()\n\
                  assert database.total_changes == 2";
    let mut python = Command::new(tools().join("readers/bin/python"));
    python.arg("-c").arg(script).arg(server.data_dir().join("metadata.db"));
    let output = python.args([organization, &project.to_string()]).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_of_another_organization_is_closed() {
    const OTHERS: &str = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
    let mut server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Of others"})).created();
    let (id, token) = (&other["id"], other["api_token"].as_str().expect("a token"));
    server.stop();
    give_away(&server, id, OTHERS);
    server.restart();
    let denied = "You don't have access to the project.";
    let denied = (403, error("authentication_error", "permission_denied", denied));
    let missing = (404, error("invalid_request", "not_found", "Organization not found."));
    for (line, method, path) in endpoints_of_nothing() {
        let (path, expected) = match line.path.split('/').next() {
            Some("P") => (path.replace("/projects/1/", &format!("/projects/{id}/")), &denied),
            Some("O") => (path.replace("@current", OTHERS), &missing),
            _ => continue,
        };
        let answer = send(&server, method, &path, &[], "");
        assert_eq!(&(answer.status, answer.json()), expected, "{method} {path}");
    }
    for path in [
        format!("/api/organizations/@current/projects/{id}/"),
        format!("/api/person/?token={token}"),
        format!("/api/projects/{id}/feature_flags/local_evaluation"),
        format!("/flags/definitions?token={token}"),
    ] {
        let answer = send(&server, "GET", &path, &[], "");
        assert_eq!((answer.status, answer.json()), denied, "{path}");
    }
    for path in ["/api/projects/", "/api/organizations/", "/api/organizations/@current/projects/"] {
        let page = send(&server, "GET", path, &[], "").json();
        assert_eq!(page["count"], 1, "{path}: {page}");
    }
    let me = server.patch("/api/users/@me/", &json!({"set_current_team": id}));
    assert_eq!((me.status, &me.json()["code"]), (400, &json!("does_not_exist")));
    let key = json!({"label": "x", "scopes": ["*"], "scoped_teams": [id]});
    let key = server.post("/api/personal_api_keys/", &key);
    assert_eq!((key.status, &key.json()["code"]), (400, &json!("does_not_exist")));
}
