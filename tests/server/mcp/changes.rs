//! Changes of flags by an assistant: shown first, and made only as they were shown.

use serde_json::{Value, json};

use super::{call, key_with};
use crate::harness::{KEY, TestServer};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn flag(server: &TestServer, id: &Value) -> Value {
    server.get(&format!("{FLAGS}{id}/")).json()
}

/// What the first call returns for these arguments: the token, and the differences.
fn shown(server: &TestServer, key: &str, arguments: &Value) -> (String, Value) {
    let (failed, text, structured) = call(server, key, "flag_change", arguments);
    assert!(!failed && text.contains("Nothing is changed yet"), "{arguments}: {text}");
    let token = structured["token"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned();
    assert!(text.contains(&token), "{text}");
    (token, structured["tables"][0]["rows"].clone())
}

fn with(arguments: &Value, more: &Value) -> Value {
    let mut arguments = arguments.clone();
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

#[test]
fn a_change_is_made_as_it_was_shown_or_not_at_all() {
    let server = TestServer::start();
    let filters = json!({"groups": [
        {"properties": [], "rollout_percentage": 10},
        {"properties": [{"key": "plan", "type": "person", "value": ["pro"]}], "rollout_percentage": 50},
    ]});
    let made = server.post(
        FLAGS,
        &json!({"key": "checkout", "name": "Old", "active": true, "filters": filters}),
    );
    let id = made.created()["id"].clone();
    let before = flag(&server, &id);
    let wanted = json!({"flag": "checkout", "active": false, "description": "New"});
    let (token, rows) = shown(&server, KEY, &wanted);
    assert_eq!(rows, json!([["active", true, false], ["description", "Old", "New"]]));
    assert_eq!(flag(&server, &id), before, "the first call changes nothing");
    // Not another change, not another flag, not another caller, not without a token that was given.
    server
        .post(FLAGS, &json!({"key": "other", "active": true, "filters": {"groups": [{}]}}))
        .created();
    let second = key_with(&server, &json!(["feature_flag:write"]), None);
    let cases = [
        (KEY, json!({"flag": "checkout", "active": false, "description": "Newer", "token": token})),
        (KEY, json!({"flag": "checkout", "active": false, "token": token})),
        (KEY, json!({"flag": "other", "active": false, "description": "New", "token": token})),
        (second.as_str(), with(&wanted, &json!({"token": token}))),
        (KEY, with(&wanted, &json!({"token": "x"}))),
        (KEY, with(&wanted, &json!({"token": token.replace('-', "-0")}))),
    ];
    for (key, arguments) in &cases {
        let (failed, text, _) = call(&server, key, "flag_change", arguments);
        assert!(failed && text.contains("not for this change"), "{arguments}: {text}");
        assert_eq!(flag(&server, &id), before, "{arguments}");
    }
    let (failed, text, structured) =
        call(&server, KEY, "flag_change", &with(&wanted, &json!({"token": token})));
    assert!(!failed && structured["changed"] == true, "{text}");
    let after = flag(&server, &id);
    assert_eq!(
        (&after["active"], &after["name"], &after["version"]),
        (&json!(false), &json!("New"), &json!(2))
    );
    assert_eq!(after["filters"], before["filters"]);
    // The same once more is nothing, and an old token is for no other version.
    let (failed, text, _) =
        call(&server, KEY, "flag_change", &with(&wanted, &json!({"token": token})));
    assert!(failed && text.contains("not for this change"), "{text}");
    let (_, text, structured) = call(&server, KEY, "flag_change", &wanted);
    assert!(text.contains("Nothing would change") && structured["token"].is_null(), "{text}");
    // Somebody else changes the flag between the calls.
    let rollout = json!({"flag": id.to_string(), "rollout_percentage": 100, "condition": 1});
    let (token, rows) = shown(&server, KEY, &rollout);
    assert_eq!(rows[0][0], "filters.groups");
    assert_eq!(server.patch(&format!("{FLAGS}{id}/"), &json!({"name": "Theirs"})).status, 200);
    let (failed, text, _) =
        call(&server, KEY, "flag_change", &with(&rollout, &json!({"token": token})));
    assert!(failed && text.contains("was changed since"), "{text}");
    let (token, _) = shown(&server, KEY, &rollout);
    let (failed, text, _) =
        call(&server, KEY, "flag_change", &with(&rollout, &json!({"token": token})));
    assert!(!failed, "{text}");
    let after = flag(&server, &id);
    let parts: Vec<&Value> = after["filters"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["rollout_percentage"])
        .collect();
    assert_eq!((parts, &after["name"]), (vec![&json!(10), &json!(100)], &json!("Theirs")));
}

/// What the API refuses is refused in the first call, before anything is shown.
#[test]
fn what_cannot_be_done_has_no_token() {
    let server = TestServer::start();
    let made = server
        .post(FLAGS, &json!({"key": "flag", "active": true, "filters": {"groups": [{}, {}]}}));
    let id = made.created()["id"].clone();
    let reader = key_with(&server, &json!(["feature_flag:read"]), None);
    for (key, arguments, hint) in [
        (
            KEY,
            json!({"flag": "flag", "filters": {"groups": [{"rollout_percentage": 300}]}}),
            "rollout_percentage",
        ),
        (KEY, json!({"flag": "flag", "rollout_percentage": 5}), "2 conditions"),
        (KEY, json!({"flag": "flag", "rollout_percentage": 5, "condition": 2}), "2 conditions"),
        (KEY, json!({"flag": "flag", "condition": 1, "active": true}), "rollout_percentage"),
        (
            KEY,
            json!({"flag": "flag", "rollout_percentage": 5, "condition": 0, "filters": {}}),
            "one of both",
        ),
        (KEY, json!({"flag": "flag", "archived": true}), "rchive"),
        (KEY, json!({"flag": "flag", "tags": [1]}), "text"),
        (KEY, json!({"flag": "flag", "aktive": true}), "Did you mean \"active\"?"),
        (KEY, json!({"flag": "flga", "active": true}), "Did you mean \"flag\"?"),
        (KEY, json!({"active": true}), "flag_change needs the argument flag."),
        (reader.as_str(), json!({"flag": "flag", "active": false}), "feature_flag:write"),
    ] {
        let (failed, text, structured) = call(&server, key, "flag_change", &arguments);
        assert!(failed && text.contains(hint), "{arguments}: {text}");
        assert!(structured.is_null(), "{arguments}: {structured}");
    }
    assert_eq!(flag(&server, &id)["version"], 1);
}

/// Tokens end with the server that gave them.
#[test]
fn tokens_end_with_the_process() {
    let mut server = TestServer::start();
    server
        .post(FLAGS, &json!({"key": "flag", "active": true, "filters": {"groups": [{}]}}))
        .created();
    let wanted = json!({"flag": "flag", "active": false});
    let (token, _) = shown(&server, KEY, &wanted);
    server.stop();
    server.restart();
    let (failed, text, _) =
        call(&server, KEY, "flag_change", &with(&wanted, &json!({"token": token})));
    assert!(failed && text.contains("restarted"), "{text}");
}
