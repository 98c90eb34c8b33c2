//! Property definitions over HTTP: list filters, edits, deletion. Expectations are those of
//! PostHog's API; that they follow the events is tested in `definitions`.

use serde_json::{Value, json};

use crate::harness::{KEY, TestServer};

const DEFINITIONS: &str = "/api/projects/@current/property_definitions/";

fn with(path: &str, query: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("{path}?{query}")
}

fn list(server: &TestServer, query: &[(&str, &str)]) -> Vec<Value> {
    let answer = server.get(&with(DEFINITIONS, query));
    assert_eq!(answer.status, 200, "{query:?}: {answer}");
    answer.json()["results"].as_array().expect("results").clone()
}

fn names(server: &TestServer, query: &[(&str, &str)]) -> Vec<String> {
    list(server, query).iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

fn path_of(server: &TestServer, name: &str) -> String {
    let found = list(server, &[("properties", name)]);
    format!("{DEFINITIONS}{}/", found[0]["id"].as_str().expect("an id"))
}

fn seen(server: &TestServer, event: &str, properties: Value) {
    let event = json!([{"event": event, "distinct_id": "ada", "properties": properties}]);
    assert_eq!(server.capture(&event).status, 200);
}

#[test]
fn a_definition_is_edited_in_the_documented_shape() {
    let server = TestServer::start();
    seen(&server, "paid", json!({"price": 5, "plan": "pro", "zone": "eu"}));
    let path = path_of(&server, "price");
    let first = server.get(&path).json();
    assert_eq!(
        (&first["property_type"], &first["is_numerical"], &first["tags"]),
        (&json!("Numeric"), &json!(true), &json!([]))
    );
    assert_eq!(first["is_seen_on_filtered_events"], Value::Null);
    let patch = json!({"property_type": "DateTime", "tags": [" Money", "money", "x"], "description": "In cents"});
    let edited = server.patch(&path, &patch);
    assert_eq!(edited.status, 200, "{edited}");
    let edited = edited.json();
    assert_eq!(
        (&edited["property_type"], &edited["is_numerical"], &edited["name"]),
        (&json!("DateTime"), &json!(false), &json!("price"))
    );
    assert_eq!(
        (&edited["tags"], &edited["description"]),
        (&json!(["money", "x"]), &json!("In cents"))
    );
    assert_eq!(edited["updated_by"]["id"], 1);
    assert_eq!(server.get(&path).json(), edited);
    assert_eq!(list(&server, &[("properties", "price")]), [edited]);
    // What people say of a type stays, whatever arrives.
    seen(&server, "paid", json!({"price": 7}));
    assert_eq!(server.get(&path).json()["property_type"], "DateTime");
    assert_eq!(
        server.patch(&path, &json!({"property_type": "Duration"})).json()["property_type"],
        "Duration"
    );
    // Without one, the next value tells it.
    let untyped = server.patch(&path, &json!({"property_type": null})).json();
    assert_eq!(
        (&untyped["property_type"], &untyped["is_numerical"]),
        (&Value::Null, &json!(false))
    );
    seen(&server, "paid", json!({"price": 9}));
    assert_eq!(server.get(&path).json()["property_type"], "Numeric");

    let verified = server.patch(&path_of(&server, "zone"), &json!({"verified": true})).json();
    assert_eq!((&verified["verified"], &verified["verified_by"]["id"]), (&json!(true), &json!(1)));
    assert_eq!(names(&server, &[]), ["zone", "plan", "price"], "verified ones come first");
    let plan = path_of(&server, "plan");
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let hidden = server.send("PUT", &plan, &headers, r#"{"hidden": true}"#);
    assert_eq!((hidden.status, &hidden.json()["hidden"]), (200, &json!(true)));
    assert_eq!(names(&server, &[("exclude_hidden", "true")]), ["zone", "price"]);
    assert_eq!(names(&server, &[("exclude_hidden", "false")]).len(), 3);
    let both = server.patch(&plan, &json!({"hidden": true, "verified": true}));
    assert_eq!(
        (both.status, both.json()),
        (
            400,
            json!({"type": "validation_error", "code": "invalid_input", "detail": "A property cannot be both hidden and verified", "attr": null})
        )
    );
    for (body, attr, code) in [
        (json!({"property_type": "Text"}), "property_type", "invalid_choice"),
        (json!({"tags": "x"}), "tags", "not_a_list"),
        (json!({"hidden": "perhaps"}), "hidden", "invalid_input"),
    ] {
        let answer = server.patch(&plan, &body);
        let found = answer.json();
        let told = (answer.status, &found["attr"], &found["code"]);
        assert_eq!(told, (400, &json!(attr), &json!(code)), "{body}");
    }
    for id in ["price", "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d"] {
        let path = format!("{DEFINITIONS}{id}/");
        for answer in [server.get(&path), server.patch(&path, &json!({})), server.delete(&path)] {
            assert_eq!(
                (answer.status, &answer.json()["detail"]),
                (404, &json!("Not found.")),
                "{id}"
            );
        }
    }
}

#[test]
fn a_forgotten_definition_comes_back_with_the_property() {
    let mut server = TestServer::start();
    seen(&server, "paid", json!({"price": 5, "plan": "pro"}));
    let path = path_of(&server, "price");
    assert_eq!(server.patch(&path, &json!({"tags": ["x"]})).status, 200);
    let gone = server.delete(&path);
    assert_eq!((gone.status, gone.body.len()), (204, 0), "{gone}");
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(names(&server, &[]), ["plan"]);
    seen(&server, "paid", json!({"price": 5}));
    let again = server.get(&path);
    assert_eq!((again.status, &again.json()["tags"]), (200, &json!([])), "{again}");
    // An orderly end leaves nothing to be read again.
    assert_eq!(server.delete(&path).status, 204);
    server.stop();
    server.restart();
    assert_eq!(names(&server, &[]), ["plan"]);
}

#[test]
fn what_was_seen_together_is_told() {
    let server = TestServer::start();
    seen(&server, "paid", json!({"price": 5}));
    seen(&server, "left", json!({"why": "price"}));
    let path = format!("{DEFINITIONS}seen_together/");
    let expected = json!({"paid": true, "left": false, "never": false});
    let repeated = [
        ("event_names", "paid"),
        ("event_names", "left"),
        ("event_names", "never"),
        ("property_name", "price"),
    ];
    let listed = [("event_names", r#"["paid", "left", "never"]"#), ("property_name", "price")];
    for query in [&repeated[..], &listed] {
        let answer = server.get(&with(&path, query));
        assert_eq!((answer.status, answer.json()), (200, expected.clone()), "{query:?}");
    }
    let one = server.get(&with(&path, &[("event_names", "left"), ("property_name", "why")]));
    assert_eq!(one.json(), json!({"left": true}));
    for (query, attr) in [
        (vec![("property_name", "price")], "event_names"),
        (vec![("event_names", "[]"), ("property_name", "price")], "event_names"),
        (vec![("event_names", "paid")], "property_name"),
        (vec![("event_names", "paid"), ("property_name", "")], "property_name"),
    ] {
        let answer = server.get(&with(&path, &query));
        let body = answer.json();
        let told = (answer.status, &body["attr"], &body["code"]);
        assert_eq!(told, (400, &json!(attr), &json!("required")), "{query:?}");
    }
}

#[test]
fn properties_of_the_product_are_left_out_of_lists() {
    let server = TestServer::start();
    let properties = json!({
        "price": 5, "$browser": "Firefox", "utm_source": "x", "$session_entry_url": "y", "$referrer": "z",
    });
    seen(&server, "paid", properties);
    let found = names(&server, &[]);
    for name in ["$browser", "price", "utm_source", "$referrer"] {
        assert!(found.iter().any(|found| found == name), "{name}: {found:?}");
    }
    assert!(!found.iter().any(|name| name == "$session_entry_url"), "{found:?}");
    assert_eq!(names(&server, &[("exclude_core_properties", "true")]), ["price"]);
    // Of persons, a part of "latest" finds what is not about the first visit.
    let of_persons = |search: &str| names(&server, &[("type", "person"), ("search", search)]);
    let late = of_persons("late");
    assert!(late.iter().any(|name| name == "$browser"), "{late:?}");
    assert!(!late.iter().any(|name| name == "$initial_browser"), "{late:?}");
    assert_eq!(of_persons("initial_brow"), ["$initial_browser"]);
}
