//! Event definitions over HTTP. Expectations are those of the API specification and of PostHog's API.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{KEY, TestServer, within};

const DEFINITIONS: &str = "/api/projects/@current/event_definitions/";

/// The fields of a definition in the order of the table in the API specification.
const FIELDS: [&str; 12] = [
    "id",
    "name",
    "created_at",
    "last_seen_at",
    "last_updated_at",
    "tags",
    "is_action",
    "action_id",
    "is_calculating",
    "last_calculated_at",
    "created_by",
    "post_to_slack",
];

fn seen(server: &TestServer, names: &[&str]) {
    let event = |name: &&str| json!({"event": name, "distinct_id": "someone"});
    let events: Vec<Value> = names.iter().map(event).collect();
    assert_eq!(server.capture(&Value::Array(events)).status, 200);
}

fn names(server: &TestServer, query: &str) -> Vec<String> {
    let answer = server.get(&format!("{DEFINITIONS}?{query}"));
    assert_eq!(answer.status, 200, "{query}: {answer}");
    let page = answer.json();
    let results = page["results"].as_array().expect("results");
    results.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

fn by_name(server: &TestServer, name: &str) -> Value {
    let answer = server.get(&format!("{DEFINITIONS}by_name/?name={name}"));
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

fn text_of(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn path_of(definition: &Value) -> String {
    format!("{DEFINITIONS}{}/", definition["id"].as_str().expect("an id"))
}

#[test]
fn lists_are_paged_chosen_and_ordered() {
    let server = TestServer::start();
    seen(&server, &["entered_free_trial", "purchase", "$pageview", "rated_app"]);
    let page = server.get(&format!("{DEFINITIONS}?limit=3")).json();
    assert_eq!((&page["count"], &page["previous"]), (&json!(4), &Value::Null));
    let next = page["next"].as_str().expect("a next page");
    assert!(next.contains("limit=3") && next.contains("offset=3"), "{next}");
    for (query, expected) in [
        ("", vec!["$pageview", "entered_free_trial", "purchase", "rated_app"]),
        ("offset=3", vec!["rated_app"]),
        ("search=free%20tri%20", vec!["entered_free_trial"]),
        ("search=PURCH", vec!["purchase"]),
        ("event_type=event_custom", vec!["entered_free_trial", "purchase", "rated_app"]),
        ("event_type=event_posthog", vec!["$pageview"]),
        (
            "event_type=all&ordering=-name",
            vec!["rated_app", "purchase", "entered_free_trial", "$pageview"],
        ),
        (
            "excluded_properties=%5B%22purchase%22%5D",
            vec!["$pageview", "entered_free_trial", "rated_app"],
        ),
    ] {
        assert_eq!(names(&server, query), expected, "{query}");
    }
    let answer = server.get(&format!("{DEFINITIONS}?event_type=nonsense"));
    assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!("event_type")));
}

#[test]
fn a_definition_is_retrieved_in_the_documented_shape() {
    let server = TestServer::start();
    seen(&server, &["purchase"]);
    let definition = by_name(&server, "purchase");
    let answer = server.get(&path_of(&definition));
    assert_eq!(answer.json(), definition);
    let text = String::from_utf8(answer.body).unwrap();
    let mut at = 0;
    for field in FIELDS {
        let found = text[at..].find(&format!("\"{field}\":"));
        at += found.unwrap_or_else(|| panic!("{field} is missing or out of order in {text}"));
    }
    assert_eq!(definition["tags"], json!([]));
    assert_eq!(definition["is_action"], json!(false));
    for path in ["not-a-uuid/", "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d/", "by_name/?name=PURCHASE"] {
        let answer = server.get(&format!("{DEFINITIONS}{path}"));
        assert_eq!(
            (answer.status, &answer.json()["detail"]),
            (404, &json!("Not found.")),
            "{path}"
        );
    }
    let metrics = server.get(&format!("{}metrics/", path_of(&definition)));
    assert_eq!((metrics.status, metrics.json()), (200, json!({"query_usage_30_day": 0})));
}

#[test]
fn a_definition_is_edited_and_comes_back_after_its_end() {
    let server = TestServer::start();
    seen(&server, &["purchase", "other"]);
    let path = path_of(&by_name(&server, "purchase"));
    let edited = server.patch(
        &path,
        &json!({"tags": [" Growth", "growth", "x"], "description": "Paid", "owner": 1}),
    );
    assert_eq!(edited.status, 200, "{edited}");
    let edited = edited.json();
    assert_eq!(edited["tags"], json!(["growth", "x"]));
    assert_eq!((&edited["description"], &edited["owner"]["id"]), (&json!("Paid"), &json!(1)));
    assert!(edited["last_updated_at"].is_string());
    assert_eq!(names(&server, "tags=%5B%22growth%22%5D"), ["purchase"]);

    let verified = server.patch(&path, &json!({"verified": true})).json();
    assert_eq!((&verified["verified"], &verified["verified_by"]["id"]), (&json!(true), &json!(1)));
    let both = server.patch(&path, &json!({"verified": true, "hidden": true}));
    assert_eq!(
        (both.status, both.json()),
        (
            400,
            json!({"type": "validation_error", "code": "invalid_input", "detail": "An event cannot be both hidden and verified", "attr": null})
        )
    );
    let hidden = server.patch(&path, &json!({"hidden": true})).json();
    assert_eq!((&hidden["hidden"], &hidden["verified"]), (&json!(true), &json!(false)));
    assert_eq!(hidden["verified_by"], Value::Null);
    assert_eq!(names(&server, "exclude_hidden=true"), ["other"]);

    for (body, attr, code) in [
        (json!({"name": "other"}), "name", "unique"),
        (json!({"name": ""}), "name", "blank"),
        (json!({"tags": "x"}), "tags", "not_a_list"),
        (json!({"created_at": "soon"}), "created_at", "invalid_input"),
        (json!({"owner": 99}), "owner", "does_not_exist"),
    ] {
        let answer = server.patch(&path, &body);
        let found = answer.json();
        assert_eq!(
            (answer.status, &found["attr"], &found["code"]),
            (400, &json!(attr), &json!(code)),
            "{body}"
        );
    }
    let renamed = server.patch(
        &path,
        &json!({"name": "bought", "created_at": "2026-01-01T00:00:00Z", "post_to_slack": true}),
    );
    assert_eq!(renamed.json()["name"], "bought");
    assert_eq!(renamed.json()["created_at"], "2026-01-01T00:00:00.000000Z");

    let gone = server.delete(&path);
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(server.delete(&path).status, 404);
    assert_eq!(names(&server, ""), ["other"]);
    seen(&server, &["bought"]);
    assert_eq!(by_name(&server, "bought")["tags"], json!([]), "a new definition");
}

#[test]
fn lists_are_ordered_by_when_events_were_last_seen() {
    let server = TestServer::start();
    seen(&server, &["a", "b", "c"]);
    for (name, seen, created) in [
        ("a", "2026-03-01T10:00:00Z", "2026-01-02T00:00:00Z"),
        ("b", "2026-03-01T12:00:00Z", "2026-01-01T00:00:00Z"),
        ("c", "2026-02-01T00:00:00Z", "2026-01-01T01:00:00Z"),
    ] {
        let path = path_of(&by_name(&server, name));
        let answer = server.patch(&path, &json!({"last_seen_at": seen, "created_at": created}));
        assert_eq!(answer.status, 200, "{answer}");
    }
    for (query, expected) in [
        ("", ["a", "b", "c"]),
        ("ordering=last_seen_at", ["c", "a", "b"]),
        ("ordering=-last_seen_at", ["b", "a", "c"]),
        ("ordering=-last_seen_at::date&ordering=-name", ["b", "a", "c"]),
        ("ordering=last_seen_at::date&ordering=name", ["c", "a", "b"]),
        ("ordering=tags", ["a", "b", "c"]),
        ("ordering=created_at", ["b", "c", "a"]),
        ("ordering=-created_at::date&ordering=-name", ["a", "c", "b"]),
        ("ordering=-name", ["c", "b", "a"]),
    ] {
        assert_eq!(names(&server, query), expected, "{query}");
    }
}

#[test]
fn columns_are_kept_and_put_requires_nothing() {
    let server = TestServer::start();
    seen(&server, &["purchase"]);
    let definition = by_name(&server, "purchase");
    assert_eq!(definition["default_columns"], json!([]));
    let path = path_of(&definition);
    let edited = server.patch(&path, &json!({"default_columns": ["event", "properties.price"]}));
    assert_eq!(
        (edited.status, &edited.json()["default_columns"]),
        (200, &json!(["event", "properties.price"]))
    );
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let put = server.send("PUT", &path, &headers, r#"{"post_to_slack": true}"#);
    assert_eq!((put.status, &put.json()["post_to_slack"]), (200, &json!(true)), "{put}");
    assert_eq!(put.json()["default_columns"], json!(["event", "properties.price"]));
    let form =
        [("authorization", bearer.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    let answer = server.send("PATCH", &path, &form, "post_to_slack=false");
    assert_eq!((answer.status, &answer.json()["code"]), (415, &json!("unsupported_media_type")));
    let answer = server.send("PATCH", &path, &headers, "{");
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("parse_error")));
}

#[test]
fn an_event_of_the_old_name_gets_a_definition_after_a_renaming() {
    let server = TestServer::start();
    seen(&server, &["purchase"]);
    let path = path_of(&by_name(&server, "purchase"));
    assert_eq!(server.patch(&path, &json!({"name": "bought"})).status, 200);
    assert_eq!(names(&server, ""), ["bought"]);
    seen(&server, &["purchase"]);
    assert_eq!(names(&server, ""), ["bought", "purchase"]);
    assert_ne!(path_of(&by_name(&server, "purchase")), path);
}

#[test]
fn wrong_questions_are_told() {
    let server = TestServer::start();
    seen(&server, &["purchase"]);
    for (query, attr, code) in [
        ("by_name/", "name", "required"),
        ("by_name/?name=", "name", "required"),
        ("?excluded_properties=purchase", "excluded_properties", "invalid_input"),
        ("?tags=%7B%7D", "tags", "invalid_input"),
        ("?event_type=action", "event_type", "invalid_choice"),
    ] {
        let answer = server.get(&format!("{DEFINITIONS}{query}"));
        let body = answer.json();
        let told = (answer.status, &body["attr"], &body["code"]);
        assert_eq!(told, (400, &json!(attr), &json!(code)), "{query}");
    }
    let nobody = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
    for answer in [
        server.get(&format!("{DEFINITIONS}{nobody}/metrics/")),
        server.patch(&format!("{DEFINITIONS}{nobody}/"), &json!([])),
        server.delete(&format!("{DEFINITIONS}{nobody}/")),
    ] {
        assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("not_found")), "{answer}");
    }
    let wrong = server.send("PUT", DEFINITIONS, &[("authorization", &format!("Bearer {KEY}"))], "");
    assert_eq!((wrong.status, &wrong.json()["code"]), (405, &json!("method_not_allowed")));
    assert_eq!(wrong.header("allow"), Some("GET, POST, HEAD, OPTIONS"));
}

/// Newer versions of PostHog: a definition of future events.
#[test]
fn a_definition_is_made_by_hand_before_its_events() {
    let mut server = TestServer::start();
    seen(&server, &["purchase"]);
    let body = json!({
        "name": " signed up ", "tags": ["Growth", "growth"], "description": "The first step", "owner": 1,
        "verified": true, "default_columns": ["event"], "last_seen_at": "2020-01-01T00:00:00Z",
    });
    let made = server.post(DEFINITIONS, &body);
    assert_eq!(made.status, 201, "{made}");
    let made = made.json();
    assert_eq!((&made["name"], &made["tags"]), (&json!("signed up"), &json!(["growth"])));
    assert_eq!((&made["description"], &made["owner"]["id"]), (&json!("The first step"), &json!(1)));
    assert_eq!((&made["verified"], &made["verified_by"]["id"]), (&json!(true), &json!(1)));
    assert_eq!((&made["last_seen_at"], &made["hidden"]), (&Value::Null, &json!(false)));
    assert!(made["created_at"].as_str().is_some_and(|at| at > "2026"), "{made}");
    assert_eq!(server.get(&path_of(&made)).json(), made);
    assert_eq!(names(&server, ""), ["purchase", "signed up"], "what was never seen comes last");
    assert_eq!(names(&server, "ordering=last_seen_at"), ["signed up", "purchase"]);
    let log = server.get(&format!("{}activity/", path_of(&made))).json();
    assert_eq!(
        (&log["total_count"], &log["results"][0]["activity"]),
        (&json!(1), &json!("created"))
    );
    let taken = |name: &str| format!("Event definition with name '{name}' already exists");
    for (body, attr, code, detail) in [
        (json!({"name": "purchase"}), json!("name"), "invalid_input", taken("purchase")),
        (json!({"name": "signed up"}), json!("name"), "invalid_input", taken("signed up")),
        (json!({}), json!("name"), "required", "This field is required.".to_owned()),
        (json!({"name": null}), json!("name"), "null", "This field may not be null.".to_owned()),
        (json!({"name": " "}), json!("name"), "blank", "This field may not be blank.".to_owned()),
        (
            json!({"name": "n".repeat(401)}),
            json!("name"),
            "max_length",
            "Ensure this field has no more than 400 characters.".to_owned(),
        ),
        (
            json!({"name": "x", "owner": 99}),
            json!("owner"),
            "does_not_exist",
            "Invalid pk \"99\" - object does not exist.".to_owned(),
        ),
        (
            json!({"name": "x", "verified": true, "hidden": true}),
            json!(null),
            "invalid_input",
            "An event cannot be both hidden and verified".to_owned(),
        ),
    ] {
        let answer = server.post(DEFINITIONS, &body);
        let expected =
            json!({"type": "validation_error", "code": code, "detail": detail, "attr": attr});
        assert_eq!((answer.status, answer.json()), (400, expected), "{body}");
    }
    // The first such event is one of this definition.
    seen(&server, &["signed up"]);
    for state in ["at once", "after a crash"] {
        let now = by_name(&server, "signed%20up");
        assert_eq!((&now["id"], &now["created_at"]), (&made["id"], &made["created_at"]), "{state}");
        assert!(now["last_seen_at"].is_string(), "{state}: {now}");
        assert_eq!(now["description"], "The first step", "{state}");
        server.kill();
        server.restart();
    }
}

/// The time of the last event lags by at most one minute, and not at all after any kind of shutdown.
#[test]
fn the_time_of_the_last_event_moves() {
    let mut server = TestServer::start();
    let last_seen = |server: &TestServer| text_of(&by_name(server, "purchase")["last_seen_at"]);
    seen(&server, &["purchase"]);
    let first = last_seen(&server);
    seen(&server, &["purchase"]);
    let moved =
        within(Duration::from_secs(60), || Some(last_seen(&server)).filter(|at| *at > first));
    let mut before = moved.expect("it moves within a minute");
    for state in ["an end", "a crash"] {
        seen(&server, &["purchase"]);
        match state {
            "an end" => server.stop(),
            _ => server.kill(),
        }
        server.restart();
        let after = last_seen(&server);
        assert!(after > before, "{state}: {after} is not later than {before}");
        before = after;
    }
}

/// As for property definitions: an empty value is ignored, an invalid boolean refused.
#[test]
fn truth_values_in_a_query_are_read_alike() {
    let server = TestServer::start();
    seen(&server, &["a", "b"]);
    let definition = by_name(&server, "a");
    let verified = server.patch(&path_of(&definition), &json!({"verified": true}));
    assert_eq!(verified.status, 200, "{verified}");
    let hidden = server.patch(&path_of(&by_name(&server, "b")), &json!({"hidden": true}));
    assert_eq!(hidden.status, 200, "{hidden}");
    for (query, expected) in [
        ("verified=", vec!["a", "b"]),
        ("verified=null", vec!["a", "b"]),
        ("verified=True", vec!["a"]),
        ("verified=0", vec!["b"]),
        ("exclude_hidden=", vec!["a", "b"]),
        ("exclude_hidden=yes", vec!["a"]),
        ("exclude_hidden=off", vec!["a", "b"]),
    ] {
        let mut found = names(&server, query);
        found.sort();
        assert_eq!(found, expected, "{query}");
    }
    for (list, name) in [
        (DEFINITIONS, "verified"),
        (DEFINITIONS, "exclude_hidden"),
        ("/api/projects/@current/property_definitions/", "exclude_hidden"),
    ] {
        let answer = server.get(&format!("{list}?{name}=banana"));
        let told = answer.json();
        let expected = (400, json!("Must be a valid boolean."), json!(name));
        let found = (answer.status, told["detail"].clone(), told["attr"].clone());
        assert_eq!(found, expected, "{list}?{name}");
    }
    for name in ["tags", "excluded_properties"] {
        let answer = server.get(&format!("{DEFINITIONS}?{name}=left"));
        let found = (answer.status, answer.json()["detail"].clone());
        assert_eq!(found, (400, json!("Must be a JSON list of names.")), "{name}");
    }
}

/// Newer versions of PostHog: filters by name, and without definitions not seen for thirty days.
#[test]
fn lists_are_narrowed_down_by_names_and_staleness() {
    let server = TestServer::start();
    seen(&server, &["a", "b,c", "c", "old"]);
    server.post(DEFINITIONS, &json!({"name": "never"}));
    let long_ago = json!({"last_seen_at": "2026-01-01T00:00:00Z"});
    let old = path_of(&by_name(&server, "old"));
    assert_eq!(server.patch(&old, &long_ago).status, 200);
    for (query, expected) in [
        ("names=a&names=c", vec!["a", "c"]),
        ("names=a,c,nothing", vec!["a", "c"]),
        ("names=b,c", vec!["b,c", "c"]),
        ("names=a&search=b", vec![]),
        ("exclude_stale=true&ordering=name", vec!["a", "b,c", "c", "never"]),
        ("exclude_stale=false&ordering=name", vec!["a", "b,c", "c", "never", "old"]),
        ("ordering=-created_at::date,-name&names=a,c", vec!["c", "a"]),
    ] {
        assert_eq!(names(&server, query), expected, "{query}");
    }
    let wrong = server.get(&format!("{DEFINITIONS}?exclude_stale=perhaps"));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("exclude_stale")));
}

/// Newer versions of PostHog: a property that is displayed with events, by their names.
#[test]
fn events_have_a_property_that_is_shown_beside_them() {
    let server = TestServer::start();
    seen(&server, &["order", "visit", "a,b"]);
    let shown = |query: &str| {
        let answer = server.get(&format!("{DEFINITIONS}primary_properties/{query}"));
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["primary_properties"].clone()
    };
    assert_eq!(shown(""), json!({}));
    for (name, property) in [("order", "price"), ("a%2Cb", "$pathname")] {
        let definition = by_name(&server, name);
        assert_eq!(definition["primary_property"], Value::Null);
        let edited = server.patch(&path_of(&definition), &json!({"primary_property": property}));
        assert_eq!((edited.status, &edited.json()["primary_property"]), (200, &json!(property)));
    }
    assert_eq!(shown(""), json!({"order": "price", "a,b": "$pathname"}));
    assert_eq!(shown("?names=order&names=visit"), json!({"order": "price"}));
    assert_eq!(shown("?names=a%2Cb"), json!({"a,b": "$pathname"}));
    let order = path_of(&by_name(&server, "order"));
    for (value, code) in [(json!(" "), "blank"), (json!("x".repeat(401)), "max_length")] {
        let answer = server.patch(&order, &json!({"primary_property": value}));
        let answer = (answer.status, answer.json());
        assert_eq!((answer.0, &answer.1["code"]), (400, &json!(code)), "{answer:?}");
        assert_eq!(answer.1["attr"], "primary_property");
    }
    let other = json!({"description": "d"});
    assert_eq!(server.patch(&order, &other).json()["primary_property"], "price");
    let none = server.patch(&order, &json!({"primary_property": null}));
    assert_eq!(none.json()["primary_property"], Value::Null);
    assert_eq!(shown(""), json!({"a,b": "$pathname"}));
    let log = server.get(&format!("{order}activity/")).json();
    let change = &log["results"][0]["detail"]["changes"][0];
    assert_eq!(
        (&change["field"], &change["before"]),
        (&json!("primary_property"), &json!("price"))
    );
}

/// PostHog's `bulk_update_tags` and `bulk_update_verified` of event definitions.
#[test]
fn many_definitions_are_changed_at_once() {
    let server = TestServer::start();
    seen(&server, &["a", "b", "c"]);
    let id = |name: &str| text_of(&by_name(&server, name)["id"]);
    let (a, b, c) = (id("a"), id("b"), id("c"));
    let nobody = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
    let post = |path: &str, body: Value| {
        let answer = server.post(&format!("{DEFINITIONS}{path}/"), &body);
        (answer.status, answer.json())
    };
    let tags = |body: Value| post("bulk_update_tags", body);
    assert_eq!(
        tags(json!({"ids": [a, b, nobody, a], "action": "add", "tags": [" Growth ", "x"]})),
        (
            200,
            json!({
                "updated": [{"id": a, "tags": ["growth", "x"]}, {"id": b, "tags": ["growth", "x"]}],
                "skipped": [{"id": nobody, "reason": "Not found"}],
            })
        )
    );
    let (_, answer) = tags(json!({"ids": [a, c], "action": "remove", "tags": ["X"]}));
    let expected = json!([{"id": a, "tags": ["growth"]}, {"id": c, "tags": []}]);
    assert_eq!(answer["updated"], expected);
    let (_, answer) = tags(json!({"ids": [b], "action": "set", "tags": []}));
    assert_eq!(answer["updated"], json!([{"id": b, "tags": []}]));
    assert_eq!(by_name(&server, "a")["tags"], json!(["growth"]));
    let changes = |id: &str| {
        let log = server.get(&format!("{DEFINITIONS}{id}/activity/")).json();
        log["total_count"].as_u64().expect("a count")
    };
    assert_eq!((changes(&a), changes(&b), changes(&c)), (2, 2, 0), "what stays is no change");

    let hidden = json!({"hidden": true});
    assert_eq!(server.patch(&format!("{DEFINITIONS}{c}/"), &hidden).status, 200);
    let verified = |body: Value| post("bulk_update_verified", body);
    let (status, answer) = verified(json!({"ids": [a, c, nobody], "verified": true}));
    let both = json!([{"id": a, "verified": true}, {"id": c, "verified": true}]);
    assert_eq!((status, &answer["updated"]), (200, &both));
    assert_eq!(answer["skipped"], json!([{"id": nobody, "reason": "Not found"}]));
    let shown = by_name(&server, "c");
    assert_eq!((&shown["verified"], &shown["hidden"]), (&json!(true), &json!(false)));
    assert_eq!(shown["verified_by"]["id"], 1);
    let (_, answer) = verified(json!({"ids": [a, b], "verified": false}));
    let updated = json!([{"id": a, "verified": false}]);
    assert_eq!(answer["updated"], updated, "what is so already is not told");
    assert_eq!(by_name(&server, "a")["verified_at"], Value::Null);

    let many: Vec<String> = (0..501_u128).map(|n| uuid::Uuid::from_u128(n).to_string()).collect();
    for (body, attr, code) in [
        (json!({"action": "add", "tags": ["x"]}), "ids", "required"),
        (json!({"ids": [], "action": "add", "tags": ["x"]}), "ids", "empty"),
        (json!({"ids": many, "action": "add", "tags": ["x"]}), "ids", "max_length"),
        (json!({"ids": [a, "b"], "action": "add", "tags": ["x"]}), "ids__1", "invalid_input"),
        (json!({"ids": [a], "tags": ["x"]}), "action", "required"),
        (json!({"ids": [a], "action": "drop", "tags": ["x"]}), "action", "invalid_choice"),
        (json!({"ids": [a], "action": "add", "tags": []}), "tags", "invalid_input"),
    ] {
        let (status, answer) = tags(body.clone());
        assert_eq!(
            (status, &answer["attr"], &answer["code"]),
            (400, &json!(attr), &json!(code)),
            "{body}"
        );
    }
    let (status, answer) = verified(json!({"ids": [a]}));
    assert_eq!(
        (status, &answer["attr"], &answer["code"]),
        (400, &json!("verified"), &json!("required"))
    );
}

/// Goal: every kind of query that names an event counts, and the counts survive a restart.
#[test]
fn questions_that_name_an_event_are_counted() {
    let mut server = TestServer::start();
    seen(&server, &["order", "visit", "$pageview"]);
    let paths: Vec<String> =
        ["order", "visit"].iter().map(|name| path_of(&by_name(&server, name))).collect();
    let used = |server: &TestServer| {
        let one = |path: &String| {
            let answer = server.get(&format!("{path}metrics/")).json();
            answer["query_usage_30_day"].as_u64().expect("a number")
        };
        (one(&paths[0]), one(&paths[1]))
    };
    let project = "/api/projects/@current/";
    let ask = |sql: &str| {
        let answer = server.post(&format!("{project}query/"), &json!({"query": sql}));
        assert_eq!(answer.status, 200, "{sql}: {answer}");
    };
    let get = |path: &str| {
        let answer = server.get(&format!("{project}{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer}");
    };
    for (question, expected) in [
        ("get events/", (0, 0)),
        ("get events/?event=order", (1, 0)),
        ("get events/?event=nothing", (1, 0)),
        ("get events/values/?key=price&event_name=order&event_name=visit", (2, 1)),
        ("get event_definitions/by_name/?name=order", (2, 1)),
        ("SELECT count(*) FROM events", (2, 1)),
        ("SELECT count(*) FROM events WHERE event = 'order'", (3, 1)),
        ("SELECT count(*) FROM events e WHERE 'visit' = e.event AND e.event = 'visit'", (3, 2)),
        ("SELECT count(*) FILTER (WHERE event IN ('order', 'visit')) FROM events", (4, 3)),
        ("SELECT (SELECT count(*) FROM events WHERE event = 'visit') AS n", (4, 4)),
        ("WITH o AS (SELECT * FROM events WHERE event = 'order') SELECT count(*) FROM o", (5, 4)),
        ("SELECT count(*) FROM events WHERE event <> 'order' AND event NOT IN ('visit')", (5, 4)),
        ("SELECT 'order' AS event", (5, 4)),
    ] {
        match question.strip_prefix("get ") {
            Some(path) => get(path),
            None => ask(question),
        }
        assert_eq!(used(&server), expected, "{question}");
    }
    let wrong = server.post(
        &format!("{project}query/"),
        &json!({"query": "SELECT x FROM events WHERE event = 'order'"}),
    );
    assert_eq!((wrong.status, used(&server)), (400, (5, 4)), "what is no question does not count");
    ask("SELECT count(*) FROM events WHERE event = 'order'");
    server.stop();
    server.restart();
    assert_eq!(used(&server), (6, 4), "an orderly end writes what was not written yet");
}
