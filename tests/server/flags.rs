//! Flags in `/decide` (the API specification), and how soon a change is visible. Hard cases of evaluation are
//! tested next to the evaluation.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::flag_management::rollout;
use crate::harness::{KEY, TOKEN, TestServer, patiently};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn decide(server: &TestServer, more: &Value) -> Value {
    let mut body = json!({"api_key": TOKEN, "distinct_id": "ada"});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let answer = server.send("POST", "/decide?v=3", &[], body.to_string());
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

fn create(server: &TestServer, key: &str, filters: &Value) -> i64 {
    let flag = json!({"key": key, "name": "a description", "active": true, "filters": filters});
    server.post(FLAGS, &flag).created()["id"].as_i64().expect("a number")
}

#[test]
fn the_answer_of_decide_has_the_documented_fields() {
    let server = TestServer::start();
    create(&server, "on", &rollout(100));
    create(&server, "off", &rollout(0));
    let mut variants = rollout(100);
    variants["multivariate"] = json!({"variants": [{"key": "blue", "rollout_percentage": 100}]});
    variants["payloads"] = json!({"blue": "{\"hex\": \"#00f\"}"});
    create(&server, "colour", &variants);
    let answer = decide(&server, &json!({}));
    assert!(answer["config"]["enable_collect_everything"].is_boolean(), "{answer}");
    assert!(answer["editorParams"].is_object(), "{answer}");
    assert!(answer["isAuthenticated"].is_boolean(), "{answer}");
    assert!(
        answer["supportedCompression"].as_array().is_some_and(|all| all.contains(&json!("gzip")))
    );
    assert_eq!(answer["featureFlags"]["on"], true, "{answer}");
    assert_eq!(answer["featureFlags"]["colour"], "blue", "{answer}");
    assert_ne!(answer["featureFlags"]["off"], true, "{answer}");
    let payload = answer["featureFlagPayloads"]["colour"].as_str().expect("JSON as text");
    let payload: Value = serde_json::from_str(payload).expect("JSON");
    assert_eq!(payload, json!({"hex": "#00f"}), "{answer}");
    assert_eq!(answer["errorComputingFlags"], false, "{answer}");
}

#[test]
fn changes_of_a_flag_are_seen_by_the_next_question_and_by_the_next_server() {
    let mut server = TestServer::start();
    let id = create(&server, "beta", &rollout(0));
    let path = format!("{FLAGS}{id}/");
    let is_on = |server: &TestServer| decide(server, &json!({}))["featureFlags"]["beta"] == true;
    assert!(!is_on(&server));
    for (patch, expected) in [
        (json!({"filters": rollout(100)}), true),
        (json!({"active": false}), false),
        (json!({"active": true}), true),
        (json!({"deleted": true}), false),
        (json!({"deleted": false}), true),
    ] {
        let answer = server.patch(&path, &patch);
        assert_eq!(answer.status, 200, "{answer}");
        assert_eq!(is_on(&server), expected, "{patch}");
    }
    assert_eq!(server.delete(&path).status, 405, "flags are deleted by PATCH");
    server.kill();
    server.restart();
    assert!(is_on(&server));
    assert_eq!(server.get(&path).json()["key"], "beta");
}

/// "When `person_properties` are supplied, evaluation uses them instead of the properties stored on
/// the server; otherwise stored properties are used."
#[test]
fn stored_properties_count_unless_the_request_brings_its_own() {
    let server = TestServer::start();
    let plan = json!({"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]});
    create(&server, "pro", &json!({"groups": [{"properties": [plan], "rollout_percentage": 100}]}));
    let size = json!({
        "key": "size", "type": "group", "group_type_index": 0, "operator": "gt", "value": "5",
    });
    let groups = json!([{"properties": [size], "rollout_percentage": 100}]);
    let is_on = |flag: &str, more: Value| decide(&server, &more)["featureFlags"][flag] == true;
    assert!(!is_on("pro", json!({})), "nobody knows ada");
    let events = json!([
        {"event": "$set", "distinct_id": "ada", "properties": {"$set": {"plan": "pro"}}},
        {"event": "$groupidentify", "distinct_id": "ada", "properties": {
            "$group_type": "company", "$group_key": "acme", "$group_set": {"size": 7},
        }},
    ]);
    assert_eq!(server.capture(&events).status, 200);
    create(&server, "large", &json!({"aggregation_group_type_index": 0, "groups": groups}));
    let acme = json!({"company": "acme"});
    for (flag, more, expected) in [
        ("pro", json!({}), true),
        ("pro", json!({"person_properties": {"plan": "free"}}), false),
        ("pro", json!({"distinct_id": "bob"}), false),
        ("pro", json!({"distinct_id": "bob", "person_properties": {"plan": "pro"}}), true),
        ("large", json!({}), false),
        ("large", json!({"groups": acme}), true),
        ("large", json!({"groups": {"company": "other"}}), false),
        ("large", json!({"groups": acme, "group_properties": {"company": {"size": 1}}}), false),
    ] {
        assert_eq!(is_on(flag, more.clone()), expected, "{flag} {more}");
    }
}

/// A project's thousand flags, each with a condition on a long property, take long to evaluate; other
/// requests do not wait for all of it. Compares orders and not times: on the async threads, requests that
/// came first would all be answered first.
#[test]
fn large_evaluations_leave_the_threads_of_sockets_free() {
    const ASKED: usize = 24;
    let server = TestServer::start();
    let looks =
        json!({"key": "text", "type": "person", "operator": "icontains", "value": "nowhere"});
    let groups = vec![json!({"properties": [looks], "rollout_percentage": 100}); 10];
    // Each condition is asked anew, so that fewer flags do for a thousand.
    for index in 0..200 {
        create(&server, &format!("flag-{index}"), &json!({"groups": groups}));
    }
    let text = "x".repeat(15_000);
    let body = json!({"api_key": TOKEN, "distinct_id": "ada", "person_properties": {"text": text}});
    let body = body.to_string();
    let client = server.client();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..ASKED {
            scope.spawn(|| {
                let answer = client.send("POST", "/flags/?v=2", &[], body.as_bytes());
                answered.fetch_add(1, Ordering::SeqCst);
                let answer = answer.expect("an answer").json();
                assert_eq!(answer["flags"].as_object().map(|flags| flags.len()), Some(200));
                assert_eq!(answer["flags"]["flag-7"]["reason"]["code"], "no_condition_match");
            });
        }
        // Most of the questions wait or are worked on by then.
        let began = patiently(|| (answered.load(Ordering::SeqCst) > 0).then_some(()));
        began.expect("the first answer");
        let mut alive_before_last = 0;
        for _ in 0..10 {
            assert_eq!(server.send("GET", "/_liveness", &[], "").status, 200);
            alive_before_last += usize::from(answered.load(Ordering::SeqCst) < ASKED);
        }
        assert!(alive_before_last > 1, "liveness was answered only after {ASKED} evaluations");
    });
}

#[test]
fn keys_are_asked_for() {
    let server = TestServer::start();
    let get = |key: &str| server.send("GET", FLAGS, &[("authorization", key)], "");
    assert_eq!(get(&format!("Bearer {KEY}")).status, 200);
    let answer = get("Bearer phx_wrong");
    assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("invalid_personal_api_key")));
    assert_eq!(get(&format!("Bearer {TOKEN}")).status, 401, "a project key manages nothing");
    for key in ["", "phc_wrong", KEY] {
        let body = json!({"api_key": key, "distinct_id": "ada"}).to_string();
        let answer = server.send("POST", "/decide?v=3", &[], body);
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (401, &json!("invalid_api_key")),
            "{key}"
        );
    }
}
