//! Management of feature flags over HTTP: the endpoints `feature_flags/` and `feature_flags/:id/`.
//! Expectations are those of the API specification and of PostHog's API, whose clients use this one.

use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer};

const FLAGS: &str = "/api/projects/@current/feature_flags/";

/// Every field of a flag, in the order of the table in the API specification.
const FIELDS: [&str; 21] = [
    "id",
    "name",
    "key",
    "filters",
    "deleted",
    "active",
    "created_by",
    "created_at",
    "is_simple_flag",
    "rollout_percentage",
    "ensure_experience_continuity",
    "experiment_set",
    "surveys",
    "features",
    "rollback_conditions",
    "performed_rollback",
    "can_edit",
    "tags",
    "usage_dashboard",
    "analytics_dashboards",
    "has_enriched_analytics",
];

/// Creates a flag and returns the response.
fn create(server: &TestServer, body: &Value) -> Value {
    let answer = server.post(FLAGS, body);
    assert_eq!(answer.status, 201, "{body}: {}", answer.json());
    answer.json()
}

fn path_of(flag: &Value) -> String {
    format!("{FLAGS}{}/", flag["id"])
}

fn keys(page: &Value) -> Vec<&str> {
    let flags = page["results"].as_array().expect("results").iter();
    flags.map(|flag| flag["key"].as_str().expect("key")).collect()
}

/// Compares some fields of a body: `expected` has their names and values.
fn check_fields(flag: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("object") {
        assert_eq!(&flag[name], value, "{name} of {flag}");
    }
}

fn problem(error_type: &str, code: &str, detail: &str, attr: Value) -> Value {
    json!({"type": error_type, "code": code, "detail": detail, "attr": attr})
}

fn open() -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": null}]})
}

#[test]
fn a_flag_with_nothing_but_a_key_has_the_defaults() {
    let server = TestServer::start();
    let flag = create(&server, &json!({"key": "plain"}));
    for name in FIELDS {
        assert!(flag.get(name).is_some(), "{name} is missing in {flag}");
    }
    check_fields(
        &flag,
        &json!({
            "name": "", "key": "plain", "filters": open(), "deleted": false, "active": true,
            "is_simple_flag": true, "rollout_percentage": null,
            "ensure_experience_continuity": false, "experiment_set": [],
            "rollback_conditions": null, "can_edit": true, "tags": [],
            "analytics_dashboards": [], "version": 1,
        }),
    );
    assert!(flag["id"].as_i64().is_some_and(|id| id > 0), "{flag}");
    let user = &flag["created_by"];
    assert!(user["id"].is_i64() && user["is_email_verified"].is_boolean(), "{user}");
    for name in ["uuid", "distinct_id", "first_name", "email"] {
        assert!(user[name].is_string(), "{name} of {user}");
    }
    assert_eq!(user["uuid"].as_str().map(str::len), Some(36));
    assert!(flag["created_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{flag}");
}

#[test]
fn what_is_written_is_what_is_read() {
    let server = TestServer::start();
    let filters = json!({
        "groups": [{
            "properties": [{"key": "email", "type": "person", "operator": "icontains",
                            "value": "@example.com"}],
            "rollout_percentage": 50, "variant": "blue",
        }],
        "multivariate": {"variants": [
            {"key": "red", "name": null, "rollout_percentage": 40},
            {"key": "blue", "name": "Blue", "rollout_percentage": 60},
        ]},
        "payloads": {"red": "{\"a\": 1}"},
    });
    let written = json!({
        "name": "Beta program", "key": "beta", "filters": filters, "active": false,
        "created_at": "2024-02-29T12:00:00Z", "ensure_experience_continuity": true,
        "rollback_conditions": {"threshold": 5}, "performed_rollback": true,
        "tags": ["growth"], "analytics_dashboards": [7], "has_enriched_analytics": true,
    });
    let flag = create(&server, &written);
    let mut expected = written;
    expected["created_at"] = json!("2024-02-29T12:00:00.000000Z");
    expected["is_simple_flag"] = json!(false);
    expected["rollout_percentage"] = json!(null);
    check_fields(&flag, &expected);

    let answer = server.get(&path_of(&flag));
    assert_eq!((answer.status, &answer.json()), (200, &flag));
    let bare = path_of(&flag);
    let answer = server.get(bare.trim_end_matches('/'));
    assert_eq!((answer.status, &answer.json()), (200, &flag), "without the last slash");
    let by_number = server.get(&format!("/api/projects/1/feature_flags/{}/", flag["id"]));
    assert_eq!((by_number.status, &by_number.json()), (200, &flag));
}

/// `rollout_percentage` is that of the only condition of a simple flag (PostHog's serializer).
#[test]
fn simple_flags_show_their_percentage() {
    let server = TestServer::start();
    let one = |condition: Value| json!({"groups": [condition]});
    let property = json!({"key": "a", "type": "person", "operator": "exact", "value": "b"});
    for (key, filters, is_simple, percentage) in [
        ("share", one(json!({"properties": [], "rollout_percentage": 30})), true, json!(30)),
        ("fraction", one(json!({"rollout_percentage": 12.5})), true, json!(12.5)),
        ("all", one(json!({"properties": null, "rollout_percentage": null})), true, json!(null)),
        (
            "some",
            one(json!({"properties": [property], "rollout_percentage": 30})),
            false,
            json!(null),
        ),
        ("two", json!({"groups": [{"rollout_percentage": 1}, {}]}), false, json!(null)),
        (
            "groups",
            json!({"groups": [{"rollout_percentage": 1}], "aggregation_group_type_index": 0}),
            false,
            json!(null),
        ),
        ("empty", json!({}), true, json!(null)),
    ] {
        let flag = create(&server, &json!({"key": key, "filters": filters}));
        let expected = json!({"is_simple_flag": is_simple, "rollout_percentage": percentage});
        check_fields(&flag, &expected);
    }
}

#[test]
fn an_update_changes_what_it_names_and_nothing_else() {
    let server = TestServer::start();
    let filters = json!({"groups": [{"properties": [], "rollout_percentage": 20}]});
    let body = json!({"key": "old", "name": "Old", "filters": filters, "tags": ["a", "b"],
                      "analytics_dashboards": [1], "performed_rollback": true});
    let flag = create(&server, &body);
    let path = path_of(&flag);
    let mut expected = flag;
    // What a client cannot write is ignored, like what nobody knows.
    let rows = [
        (json!({}), json!({})),
        (json!({"name": "New"}), json!({"name": "New"})),
        (json!({"key": "new"}), json!({"key": "new"})),
        (json!({"tags": ["c"]}), json!({"tags": ["c"]})),
        (json!({"analytics_dashboards": [2]}), json!({"analytics_dashboards": [1, 2]})),
        (json!({"active": false}), json!({"active": false})),
        (json!({"active": true}), json!({"active": true, "performed_rollback": false})),
        (json!({"rollback_conditions": {"a": 1}}), json!({"rollback_conditions": {"a": 1}})),
        (json!({"rollback_conditions": null}), json!({"rollback_conditions": null})),
        (
            json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 70}]}}),
            json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 70}]},
                   "rollout_percentage": 70}),
        ),
        (
            // It is laid over the stored filters, key by key.
            json!({"filters": {"payloads": {"true": "1"}}}),
            json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 70}],
                               "payloads": {"true": "1"}}}),
        ),
        (
            json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 20}]}}),
            json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 20}],
                               "payloads": {"true": "1"}},
                   "rollout_percentage": 20}),
        ),
        (
            json!({"id": 4711, "is_simple_flag": false, "rollout_percentage": 1, "can_edit": false,
                   "usage_dashboard": 3, "experiment_set": [1]}),
            json!({}),
        ),
    ];
    for (number, (patch, changes)) in rows.iter().enumerate() {
        let answer = server.patch(&path, patch);
        assert_eq!(answer.status, 200, "{patch}: {}", answer.json());
        for (name, value) in changes.as_object().expect("object") {
            expected[name] = value.clone();
        }
        expected["version"] = json!(number + 2);
        expected["updated_at"] = answer.json()["updated_at"].clone();
        assert_eq!(answer.json(), expected, "after {patch}");
        assert_eq!(server.get(&path).json(), expected, "after {patch}");
    }
}

#[test]
fn a_put_needs_the_key() {
    let server = TestServer::start();
    let flag = create(&server, &json!({"key": "put", "name": "kept"}));
    let path = path_of(&flag);
    let bearer = format!("Bearer {}", KEY);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let put = |body: &Value| server.send("PUT", &path, &headers, body.to_string().into_bytes());
    let answer = put(&json!({"active": false}));
    let required = problem("validation_error", "required", "This field is required.", json!("key"));
    assert_eq!((answer.status, answer.json()), (400, required));
    let answer = put(&json!({"key": "put", "active": false}));
    assert_eq!(answer.status, 200);
    check_fields(&answer.json(), &json!({"name": "kept", "active": false}));
}

/// Deleted by an update, still found by id, restored by an update (the API specification, States).
#[test]
fn a_flag_is_deleted_and_restored_by_updates() {
    let server = TestServer::start();
    let flag = create(&server, &json!({"key": "doomed"}));
    let path = path_of(&flag);
    let answer = server.patch(&path, &json!({"deleted": true}));
    assert_eq!((answer.status, &answer.json()["deleted"]), (200, &json!(true)));
    assert_eq!(server.get(FLAGS).json()["count"], 0);
    let answer = server.get(&path);
    assert_eq!((answer.status, &answer.json()["deleted"]), (200, &json!(true)));

    let answer = server.patch(&path, &json!({"deleted": false}));
    assert_eq!((answer.status, &answer.json()["deleted"]), (200, &json!(false)));
    assert_eq!(keys(&server.get(FLAGS).json()), ["doomed"]);

    // The key of a deleted flag is free, and whoever takes it ends the deleted flag for good.
    server.patch(&path, &json!({"deleted": true}));
    let heir = create(&server, &json!({"key": "doomed"}));
    assert_ne!(heir["id"], flag["id"]);
    assert_eq!(server.get(&path).status, 404);
}

#[test]
fn a_delete_is_refused_without_a_body() {
    let server = TestServer::start();
    let flag = create(&server, &json!({"key": "here-to-stay"}));
    let path = path_of(&flag);
    let answer = server.delete(&path);
    assert_eq!(answer.status, 405);
    assert!(answer.body.is_empty(), "no body");
    // RFC 9110, 15.5.6: a 405 has to name what is allowed.
    let allow = answer.header("allow").expect("the methods");
    assert_eq!(allow, "GET, PUT, PATCH, HEAD, OPTIONS");
    assert_eq!(server.get(&path).json(), flag);

    let answer = server.post(&path, &json!({"key": "x"}));
    let expected = problem(
        "invalid_request",
        "method_not_allowed",
        "Method \"POST\" not allowed.",
        json!(null),
    );
    assert_eq!((answer.status, answer.json()), (405, expected));
}

#[test]
fn lists_are_newest_first_and_come_in_pages() {
    let server = TestServer::start();
    let empty = json!({"count": 0, "next": null, "previous": null, "results": []});
    assert_eq!(server.get(FLAGS).json(), empty);
    for (key, created_at) in [
        ("second", "2024-01-02T00:00:00Z"),
        ("fifth", "2024-01-05T00:00:00Z"),
        ("third", "2024-01-03T00:00:00Z"),
        ("first", "2024-01-01T00:00:00Z"),
        ("fourth", "2024-01-04T00:00:00Z"),
    ] {
        create(&server, &json!({"key": key, "created_at": created_at, "active": key != "third"}));
    }
    let link = |query: &str| json!(format!("{}{FLAGS}?{query}", server.url()));
    let none = || json!(null);
    for (query, expected, next, previous) in [
        ("", &["fifth", "fourth", "third", "second", "first"][..], none(), none()),
        ("?limit=0", &["fifth", "fourth", "third", "second", "first"], none(), none()),
        ("?limit=x&offset=y", &["fifth", "fourth", "third", "second", "first"], none(), none()),
        ("?limit=2", &["fifth", "fourth"], link("limit=2&offset=2"), none()),
        ("?limit=2&offset=2", &["third", "second"], link("limit=2&offset=4"), link("limit=2")),
        ("?limit=2&offset=4", &["first"], none(), link("limit=2&offset=2")),
        ("?limit=5", &["fifth", "fourth", "third", "second", "first"], none(), none()),
        ("?limit=2&offset=9", &[], none(), link("limit=2&offset=7")),
    ] {
        let page = server.get(&format!("{FLAGS}{query}"));
        assert_eq!(page.status, 200, "{query}");
        assert_eq!(keys(&page.json()), expected, "{query}");
        assert_eq!(page.json()["count"], 5, "{query}");
        assert_eq!((&page.json()["next"], &page.json()["previous"]), (&next, &previous), "{query}");
    }
    // The links work: all of the list is found by following them.
    let mut found = Vec::new();
    let mut next = json!(format!("{}{FLAGS}?limit=2", server.url()));
    while let Some(url) = next.as_str() {
        let page = server.get(url.strip_prefix(&server.url()).expect("an absolute link")).json();
        found.extend(keys(&page).into_iter().map(str::to_owned));
        next = page["next"].clone();
    }
    assert_eq!(found, ["fifth", "fourth", "third", "second", "first"]);
}

/// Codes and texts of PostHog's serializer and of Django REST Framework.
#[test]
fn wrong_fields_are_told() {
    let server = TestServer::start();
    create(&server, &json!({"key": "taken"}));
    let long = "k".repeat(401);
    let filters = |filters: Value| json!({"key": "new", "filters": filters});
    for (body, code, detail, attr) in [
        (json!({}), "required", "This field is required.", json!("key")),
        (json!({"name": "a"}), "required", "This field is required.", json!("key")),
        (json!({"key": null}), "null", "This field may not be null.", json!("key")),
        (json!({"key": ""}), "blank", "This field may not be blank.", json!("key")),
        (json!({"key": "  "}), "blank", "This field may not be blank.", json!("key")),
        (json!({"key": []}), "invalid_input", "Not a valid string.", json!("key")),
        (json!({"key": true}), "invalid_input", "Not a valid string.", json!("key")),
        (
            json!({"key": long}),
            "max_length",
            "Ensure this field has no more than 400 characters.",
            json!("key"),
        ),
        (
            json!({"key": "a b"}),
            "invalid_key",
            "Only letters, numbers, hyphens (-) & underscores (_) are allowed.",
            json!("key"),
        ),
        (
            json!({"key": "taken"}),
            "unique",
            "There is already a feature flag with this key.",
            json!("key"),
        ),
        (json!({"key": "new", "name": {}}), "invalid_input", "Not a valid string.", json!("name")),
        (
            json!({"key": "new", "active": "perhaps"}),
            "invalid_input",
            "Must be a valid boolean.",
            json!("active"),
        ),
        (
            json!({"key": "new", "deleted": null}),
            "null",
            "This field may not be null.",
            json!("deleted"),
        ),
        (
            json!({"key": "new", "tags": "a"}),
            "not_a_list",
            "Expected a list of items but got type \"str\".",
            json!("tags"),
        ),
        (
            json!({"key": "new", "created_at": "soon"}),
            "invalid_input",
            "Datetime has wrong format. Use one of these formats instead: \
             YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].",
            json!("created_at"),
        ),
        (
            json!({"key": "new", "analytics_dashboards": ["a"]}),
            "incorrect_type",
            "Incorrect type. Expected pk value, received str.",
            json!("analytics_dashboards"),
        ),
        (
            filters(json!("all")),
            "not_a_dict",
            "Expected a dictionary of items but got type \"str\".",
            json!("filters"),
        ),
        (
            filters(json!({"groups": []})),
            "invalid_input",
            "Feature flag must have at least one condition set (group).",
            json!("filters"),
        ),
        (
            filters(json!({"groups": [{}], "version": 2})),
            "reserved_config_version",
            "filters.version is reserved",
            json!("filters"),
        ),
        (
            filters(json!({"groups": [{"variant": "green"}]})),
            "invalid_input",
            "Filters are not valid (variant override does not exist)",
            json!("filters"),
        ),
        (
            filters(json!({"groups": [{}], "payloads": {"red": "1"}})),
            "invalid_input",
            "Payload keys must be 'true' for boolean flags",
            json!("filters"),
        ),
        (
            filters(json!({"groups": [{"properties": [{"key": "plan", "type": "group",
                "group_type_index": 0, "operator": "exact", "value": "x"}]}]})),
            "invalid_input",
            "Filters are not valid (can only use person and cohort properties)",
            json!("filters"),
        ),
        (
            json!([]),
            "invalid_input",
            "Invalid data. Expected a dictionary, but got list.",
            json!(null),
        ),
    ] {
        let answer = server.post(FLAGS, &body);
        let expected = problem("validation_error", code, detail, attr);
        assert_eq!((answer.status, answer.json()), (400, expected), "{body}");
    }
    assert_eq!(server.get(FLAGS).json()["count"], 1, "nothing was created");
}

#[test]
fn an_update_that_is_wrong_changes_nothing() {
    let server = TestServer::start();
    create(&server, &json!({"key": "taken"}));
    let flag = create(&server, &json!({"key": "mine"}));
    let path = path_of(&flag);
    for (patch, code, attr) in [
        (json!({"key": "taken"}), "unique", "key"),
        (json!({"key": "no good"}), "invalid_key", "key"),
        (json!({"name": "x", "active": []}), "invalid_input", "active"),
        (
            json!({"name": "x", "filters": {"groups": [{"variant": "a"}]}}),
            "invalid_input",
            "filters",
        ),
    ] {
        let answer = server.patch(&path, &patch);
        let found = (answer.status, &answer.json()["code"], &answer.json()["attr"]);
        assert_eq!(found, (400, &json!(code), &json!(attr)), "{patch}");
        assert_eq!(server.get(&path).json(), flag, "{patch}");
    }
    let answer = server.patch(&path, &json!({"key": "mine"}));
    assert_eq!(answer.status, 200, "its own key is not taken: {}", answer.json());
}

#[test]
fn bodies_are_json() {
    let server = TestServer::start();
    let bearer = format!("Bearer {}", KEY);
    let send = |content_type: Option<&str>, body: &str| {
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(content_type.map(|content_type| ("content-type", content_type)));
        server.send("POST", FLAGS, &headers, body.as_bytes())
    };
    for (content_type, body) in [
        (Some("application/json"), r#"{"key": "a"}"#),
        (Some("application/json; charset=utf-8"), r#"{"key": "b"}"#),
        (None, r#"{"key": "c"}"#),
    ] {
        assert_eq!(send(content_type, body).status, 201, "{content_type:?}");
    }
    let answer = send(Some("text/plain"), r#"{"key": "d"}"#);
    let detail = "Unsupported media type \"text/plain\" in request.";
    let expected = problem("invalid_request", "unsupported_media_type", detail, json!(null));
    assert_eq!((answer.status, answer.json()), (415, expected));
    for body in ["{", "key=a", "{\"key\": \"e\"} x", "{'key': 'e'}"] {
        let answer = send(Some("application/json"), body);
        let found = (answer.status, &answer.json()["type"], &answer.json()["code"]);
        assert_eq!(found, (400, &json!("invalid_request"), &json!("parse_error")), "{body}");
        let body = answer.json();
        let detail = body["detail"].as_str().expect("detail");
        assert!(detail.starts_with("JSON parse error - "), "{detail}");
    }
    // Twice as long as the longest filters.
    let long = json!({"key": "f", "name": "n".repeat(1 << 20)}).to_string();
    assert_eq!(send(Some("application/json"), &long).status, 413);
}

#[test]
fn nobody_gets_in_without_a_key() {
    let server = TestServer::start();
    let flag = create(&server, &json!({"key": "secret"}));
    let path = path_of(&flag);
    let project_bearer = format!("Bearer {}", TOKEN);
    for (method, path) in [
        ("GET", FLAGS),
        ("POST", FLAGS),
        ("GET", path.as_str()),
        ("PATCH", path.as_str()),
        ("PUT", path.as_str()),
        ("DELETE", path.as_str()),
    ] {
        let answer = server.send(method, path, &[], Vec::new());
        let expected = problem(
            "authentication_error",
            "not_authenticated",
            "Authentication credentials were not provided.",
            json!(null),
        );
        assert_eq!((answer.status, answer.json()), (401, expected), "{method} {path}");
        // The token of a project is public, so it opens nothing here.
        for bearer in ["Bearer phx_wrong", project_bearer.as_str()] {
            let answer = server.send(method, path, &[("authorization", bearer)], Vec::new());
            let found = (answer.status, &answer.json()["type"], &answer.json()["code"]);
            let expected = (json!("authentication_error"), json!("invalid_personal_api_key"));
            assert_eq!(found, (401, &expected.0, &expected.1), "{method} {path} {bearer}");
        }
    }
    assert_eq!(server.get(&path).json(), flag);
}

#[test]
fn what_is_not_there_is_not_found() {
    let server = TestServer::start();
    let flag = create(&server, &json!({"key": "here"}));
    let not_found = |detail: &str| problem("invalid_request", "not_found", detail, json!(null));
    for id in ["4711", "0", "-1", "here", "1.5", "99999999999999999999"] {
        let path = format!("{FLAGS}{id}/");
        let answer = server.get(&path);
        assert_eq!((answer.status, answer.json()), (404, not_found("Not found.")), "{id}");
        let answer = server.patch(&path, &json!({"active": "a bad body is told later"}));
        assert_eq!((answer.status, answer.json()), (404, not_found("Not found.")), "{id}");
    }
    for project in ["4711", "none"] {
        for path in ["feature_flags/".to_owned(), format!("feature_flags/{}/", flag["id"])] {
            let answer = server.get(&format!("/api/projects/{project}/{path}"));
            let expected = (404, not_found("Project not found."));
            assert_eq!((answer.status, answer.json()), expected, "{project} {path}");
        }
    }
}
