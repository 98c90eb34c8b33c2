//! Local evaluation: flag definitions at three paths, with two kinds of keys and tags; and payloads of
//! single flags.

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TOKEN, TestServer};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const COHORTS: &str = "/api/projects/1/cohorts/";

fn created(server: &TestServer, path: &str, body: &Value) -> i64 {
    server.post(path, body).created()["id"].as_i64().expect("a number")
}

fn with(filter: Value) -> Value {
    json!({"groups": [{"properties": [filter], "rollout_percentage": 100}]})
}

fn ask(server: &TestServer, path: &str, key: &str, tag: Option<&str>) -> Answer {
    let key = format!("Bearer {key}");
    let mut headers = vec![("authorization", key.as_str())];
    headers.extend(tag.map(|tag| ("if-none-match", tag)));
    server.send("GET", path, &headers, "")
}

#[test]
fn definitions_have_cohorts_group_types_and_dependencies_by_key() {
    let server = TestServer::start();
    let group = json!([{"event": "$groupidentify", "distinct_id": "d", "properties": {
        "$group_type": "company", "$group_key": "acme", "$group_set": {"size": 7}}}]);
    assert_eq!(server.capture(&group).status, 200);
    let plan = json!({"key": "plan", "type": "person", "value": "pro", "operator": "exact"});
    let rule = json!({"type": "AND", "values": [plan]});
    let inner =
        created(&server, COHORTS, &json!({"name": "inner", "filters": {"properties": rule}}));
    let nested = json!({"type": "OR", "values": [{"key": "id", "type": "cohort", "value": inner}]});
    let outer =
        created(&server, COHORTS, &json!({"name": "outer", "filters": {"properties": nested}}));
    created(&server, COHORTS, &json!({"name": "unused", "filters": {"properties": rule}}));
    let list = created(&server, COHORTS, &json!({"name": "list", "is_static": true}));
    let in_cohort =
        |id: i64| with(json!({"key": "id", "type": "cohort", "value": id, "operator": "in"}));
    let depends = |id: i64| {
        with(
            json!({"key": id.to_string(), "type": "flag", "operator": "flag_evaluates_to", "value": true}),
        )
    };
    let b = created(&server, FLAGS, &json!({"key": "b", "filters": in_cohort(outer)}));
    let a =
        created(&server, FLAGS, &json!({"key": "a", "name": "described", "filters": depends(b)}));
    created(&server, FLAGS, &json!({"key": "d", "filters": depends(a)}));
    created(&server, FLAGS, &json!({"key": "c", "filters": in_cohort(list), "active": false}));
    created(&server, FLAGS, &json!({"key": "e", "filters": in_cohort(inner)}));
    let gone = created(&server, FLAGS, &json!({"key": "gone"}));
    assert_eq!(server.patch(&format!("{FLAGS}{gone}/"), &json!({"deleted": true})).status, 200);

    let with_cohorts = [
        format!("/flags/definitions?token={TOKEN}&send_cohorts"),
        format!("/flags/definitions/?token={TOKEN}"),
        format!("/api/feature_flag/local_evaluation?token={TOKEN}&send_cohorts"),
        format!("/api/feature_flag/local_evaluation/?token={TOKEN}&send_cohorts"),
        format!("{FLAGS}local_evaluation/?send_cohorts"),
        "/api/projects/@current/feature_flags/local_evaluation?send_cohorts=true".to_owned(),
    ];
    let body = ask(&server, &with_cohorts[0], KEY, None).json();
    for path in &with_cohorts {
        let answer = ask(&server, path, KEY, None);
        assert_eq!((answer.status, answer.json()), (200, body.clone()), "{path}");
        assert_eq!(answer.header("cache-control"), Some("private, must-revalidate"));
        let tag = answer.header("etag").expect("a tag").to_owned();
        assert!(tag.starts_with("W/\""), "{tag}");
        for known in [&*tag, &tag[2..]] {
            let again = ask(&server, path, KEY, Some(known));
            assert_eq!((again.status, again.body.len()), (304, 0), "{again}");
            assert_eq!(again.header("etag"), Some(&*tag));
        }
    }
    let keys: Vec<&str> = body["flags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flag| flag["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
    assert_eq!(body["group_type_mapping"], json!({"0": "company"}));
    assert_eq!(body["property_matching_version"], 1);
    assert_eq!(body["cohorts"], json!({(inner.to_string()): rule, (outer.to_string()): nested}));
    let dependency =
        |flag: usize| body["flags"][flag]["filters"]["groups"][0]["properties"][0].clone();
    assert_eq!(dependency(0)["key"], "b");
    assert_eq!(dependency(0)["dependency_chain"], json!(["b"]));
    assert_eq!(dependency(3)["dependency_chain"], json!(["b", "a"]));
    let first = &body["flags"][0];
    for (name, expected) in [
        ("id", json!(a)),
        ("team_id", json!(1)),
        ("name", json!("described")),
        ("deleted", json!(false)),
        ("active", json!(true)),
        ("ensure_experience_continuity", json!(false)),
        ("version", json!(1)),
    ] {
        assert_eq!(first[name], expected, "{name}");
    }
    let without = ask(&server, &format!("{FLAGS}local_evaluation/"), KEY, None);
    assert_eq!(without.json()["cohorts"], json!({}));
    // Who cannot take cohorts gets those that conditions can say.
    let condition = |flags: &Value, flag: usize| {
        flags["flags"][flag]["filters"]["groups"][0]["properties"].clone()
    };
    assert_eq!(condition(&without.json(), 4), json!([plan]));
    assert_eq!(condition(&body, 4), in_cohort(inner)["groups"][0]["properties"]);
    assert_eq!(condition(&without.json(), 1), condition(&body, 1), "a cohort in a cohort");
    // A change makes another tag.
    let tag = ask(&server, &with_cohorts[0], KEY, None).header("etag").unwrap().to_owned();
    assert_eq!(
        server
            .patch(
                &format!("{COHORTS}{inner}/"),
                &json!({"filters": {"properties": nested_of(list)}})
            )
            .status,
        200
    );
    assert_eq!(ask(&server, &with_cohorts[0], KEY, Some(&tag)).status, 200);
}

fn nested_of(id: i64) -> Value {
    json!({"type": "AND", "values": [{"key": "id", "type": "cohort", "value": id}]})
}

#[test]
fn definitions_are_for_those_with_a_key() {
    let server = TestServer::start();
    let rotate = |server: &TestServer| {
        let answer = server.post("/api/projects/1/rotate_secret_token/", &json!({}));
        answer.json()["secret_api_token"].as_str().expect("a key").to_owned()
    };
    let first = rotate(&server);
    let secret = rotate(&server);
    assert!(secret.starts_with("phs_"), "{secret}");
    let path = format!("/flags/definitions?token={TOKEN}&send_cohorts");
    for (key, status, code) in [
        (KEY, 200, None),
        (&*secret, 200, None),
        (&*first, 401, Some("authentication_failed")),
        ("phx_wrong", 401, Some("invalid_personal_api_key")),
        (TOKEN, 401, Some("invalid_personal_api_key")),
    ] {
        let answer = ask(&server, &path, key, None);
        assert_eq!(answer.status, status, "{key} {answer}");
        if let Some(code) = code {
            assert_eq!(answer.json()["code"], code, "{answer}");
        }
    }
    let nobody = server.send("GET", &path, &[], "");
    assert_eq!((nobody.status, nobody.json()["code"].clone()), (401, json!("not_authenticated")));
    let posted = server.send("POST", "/flags/definitions", &[], "");
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let empty = ask(&server, &path, &secret, None).json();
    assert_eq!(empty["flags"], json!([]), "{empty}");
}

#[test]
fn remote_config_is_the_payload_of_one_flag() {
    let server = TestServer::start();
    let mut filters = with(json!({"key": "a", "value": "b"}));
    filters["payloads"] = json!({"true": {"colour": "blue"}});
    let flag = json!({"key": "config", "filters": filters, "is_remote_configuration": true});
    let id = created(&server, FLAGS, &flag);
    created(&server, FLAGS, &json!({"key": "flag"}));
    for name in ["config".to_owned(), id.to_string()] {
        for path in [
            format!("/api/projects/@current/feature_flags/{name}/remote_config?token={TOKEN}"),
            format!("{FLAGS}{name}/remote_config/"),
        ] {
            let answer = ask(&server, &path, KEY, None);
            assert_eq!(
                (answer.status, answer.json()),
                (200, json!("{\"colour\":\"blue\"}")),
                "{path}"
            );
        }
    }
    for name in ["flag", "none", "999"] {
        let answer = ask(&server, &format!("{FLAGS}{name}/remote_config"), KEY, None);
        assert_eq!((answer.status, answer.body.len()), (404, 0), "{name}");
    }
}

/// A setting of SDKs: with local evaluation they read it with the definitions, others with their flags.
#[test]
fn sdks_are_told_that_they_may_say_less_of_calls() {
    let mut server = TestServer::start();
    created(&server, FLAGS, &json!({"key": "a"}));
    let settings = format!("{FLAGS}settings/");
    let definitions = format!("/flags/definitions?token={TOKEN}");
    let question = json!({"api_key": TOKEN, "distinct_id": "d"});
    let told = |server: &TestServer| {
        let local = ask(server, &definitions, KEY, None).json();
        let remote = server.post("/flags/?v=2", &question).json();
        [local["minimal_flag_called_events"].clone(), remote["minimalFlagCalledEvents"].clone()]
    };
    assert_eq!(told(&server), [json!(false), Value::Null]);
    let wrong = server.patch(&settings, &json!({"minimal_flag_called_events": "perhaps"}));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("minimal_flag_called_events")));
    assert_eq!(server.patch(&settings, &json!({"property_matching_version": 2})).status, 200);
    let tag = ask(&server, &definitions, KEY, None).header("etag").expect("a tag").to_owned();
    let less = server.patch(&settings, &json!({"minimal_flag_called_events": true})).json();
    assert_eq!(less["property_matching_version"], 2, "{less}");
    assert_eq!(less["minimal_flag_called_events"], true, "{less}");
    assert_eq!(ask(&server, &definitions, KEY, Some(&tag)).status, 200, "another tag");
    assert_eq!(told(&server), [json!(true), json!(true)]);
    server.kill();
    server.restart();
    assert_eq!(told(&server), [json!(true), json!(true)]);
    assert_eq!(server.patch(&settings, &json!({"minimal_flag_called_events": false})).status, 200);
    assert_eq!(told(&server), [json!(false), Value::Null]);
}

/// RFC 9110, 13.1.2: tags are compared weakly, over all headers; this applies to every response with a
/// tag.
#[test]
fn tags_are_compared_alike_everywhere() {
    let server = TestServer::start();
    created(&server, FLAGS, &json!({"key": "a"}));
    let bearer = format!("Bearer {KEY}");
    let person = json!({"context": {"targetingKey": "ada"}}).to_string();
    let definitions = format!("/flags/definitions?token={TOKEN}");
    for (method, path, header, value, body) in [
        ("GET", definitions.as_str(), "authorization", bearer.as_str(), ""),
        ("POST", "/ofrep/v1/evaluate/flags", "x-api-key", TOKEN, person.as_str()),
    ] {
        let ask = |tags: &[&str]| {
            let known = tags.iter().map(|tag| ("if-none-match", *tag));
            let headers: Vec<_> = [(header, value)].into_iter().chain(known).collect();
            server.send(method, path, &headers, body)
        };
        let tag = ask(&[]).header("etag").expect("a tag").to_owned();
        let bare = tag.trim_start_matches("W/");
        let weak = format!("W/{bare}");
        for tags in [vec![bare], vec![&*weak], vec!["*"], vec!["\"x\"", &*weak], vec!["\"x\", *"]] {
            let answer = ask(&tags);
            assert_eq!((answer.status, answer.body.len()), (304, 0), "{path} {tags:?}: {answer}");
            assert_eq!(answer.header("etag"), Some(&*tag), "{path} {tags:?}");
        }
        assert_eq!(ask(&["\"x\""]).status, 200, "{path}");
    }
}
