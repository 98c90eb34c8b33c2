//! Early access features: their effect on flags, the list for SDKs, and the rights to change them. Texts
//! and cases are those of PostHog's API and of its tests.

use serde_json::{Value, json};

use crate::harness::{Answer, TOKEN, TestServer};

const FEATURES: &str = "/api/projects/1/early_access_feature/";
const FLAGS: &str = "/api/projects/1/feature_flags/";

fn changed(answer: Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

/// Names and stages of the features in the list for SDKs.
fn listed(server: &TestServer, query: &str) -> Vec<(String, String)> {
    let path = format!("/api/early_access_features/?token={TOKEN}{query}");
    let list = server.get(&path).json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let features = list["earlyAccessFeatures"].as_array().expect("a list").iter();
    features.map(|feature| (text(&feature["name"]), text(&feature["stage"]))).collect()
}

/// The value of a flag for a person who is enrolled, one who left, and one who never enrolled.
fn values(server: &TestServer, key: &str) -> [Value; 3] {
    [
        json!({format!("$feature_enrollment/{key}"): true}),
        json!({format!("$feature_enrollment/{key}"): false}),
        json!({}),
    ]
    .map(|properties| {
        let body = json!({"api_key": TOKEN, "distinct_id": "d", "person_properties": properties});
        let answer = server.post("/flags/?v=1", &body).json();
        answer["featureFlags"][key].clone()
    })
}

#[test]
fn the_stage_of_a_feature_says_who_enrols_in_its_flag() {
    let mut server = TestServer::start();
    let new = json!({"name": "Hick bondoogling", "description": "Boondoogle your hicks with one click",
        "stage": "concept", "payload": {"a": 1}, "documentation_url": "https://example.com/hicks"});
    let feature = server.post(FEATURES, &new).created();
    for (name, expected) in [
        ("name", json!("Hick bondoogling")),
        ("description", json!("Boondoogle your hicks with one click")),
        ("stage", json!("concept")),
        ("payload", json!({"a": 1})),
        ("documentation_url", json!("https://example.com/hicks")),
        ("user_access_level", json!("editor")),
    ] {
        assert_eq!(feature[name], expected, "{name}");
    }
    let path = format!("{FEATURES}{}/", feature["id"].as_str().expect("an id"));
    let flag_path = format!("{FLAGS}{}/", feature["feature_flag"]["id"]);
    let flag = server.get(&flag_path).json();
    assert_eq!((&flag["key"], &flag["active"]), (&json!("hick-bondoogling"), &json!(true)));
    assert_eq!(flag["name"], "Feature Flag for Early Access Feature Hick bondoogling");
    let nobody = json!([{"properties": [], "rollout_percentage": 0, "variant": null}]);
    assert_eq!(flag["filters"], json!({"groups": nobody}), "{flag}");
    let key = "hick-bondoogling";
    assert_eq!(values(&server, key), [json!(false), json!(false), json!(false)]);
    assert_eq!(listed(&server, ""), [], "beta is what is meant without a stage");
    let name = "Hick bondoogling".to_owned();
    assert_eq!(
        listed(&server, "&stage=concept&stage=alpha"),
        [(name.clone(), "concept".to_owned())]
    );

    let beta = changed(server.patch(&path, &json!({"stage": "beta"})));
    assert_eq!(beta["feature_flag"]["filters"]["feature_enrollment"], true, "{beta}");
    assert_eq!(values(&server, key), [json!(true), json!(false), json!(false)]);
    assert_eq!(listed(&server, ""), [(name, "beta".to_owned())]);
    let shown = server.get(&format!("/api/early_access_features?token={TOKEN}")).json();
    let shown = shown["earlyAccessFeatures"][0].clone();
    assert_eq!(shown["flagKey"], key, "{shown}");
    assert_eq!(shown["documentationUrl"], "https://example.com/hicks");
    assert_eq!(shown["payload"], json!({"a": 1}));
    let flag = server.get(&flag_path).json();
    let id = feature["id"].as_str().expect("an id");
    assert_eq!(flag["features"], json!({id: shown}), "{flag}");
    server.kill();
    server.restart();
    assert_eq!(server.get(&path).json(), beta, "after a crash too");

    // Everybody has it, or people go on enrolling.
    let released =
        json!({"stage": "general-availability", "rollout_to_all": true, "payload": null});
    let released = changed(server.patch(&path, &released));
    assert_eq!(released["payload"], json!({}));
    let filters = &released["feature_flag"]["filters"];
    assert_eq!(filters["groups"], json!([{"properties": [], "rollout_percentage": 100}]));
    assert_eq!(filters["feature_enrollment"], Value::Null);
    assert_eq!(values(&server, key), [json!(true), json!(true), json!(true)]);
    let archived = changed(server.patch(&path, &json!({"stage": "archived", "name": "Hicks"})));
    assert_eq!((&archived["name"], &archived["stage"]), (&json!("Hicks"), &json!("archived")));
    let alpha = changed(server.patch(&path, &json!({"stage": "alpha"})));
    assert_eq!(alpha["feature_flag"]["filters"]["feature_enrollment"], true);
    assert_eq!(values(&server, key)[1], false, "who left stays out");

    let detail = "Cannot delete a feature flag that is in use with early access features. Please delete \
                  the early access feature before deleting the flag.";
    let refused = server.patch(&flag_path, &json!({"deleted": true}));
    assert_eq!((refused.status, &refused.json()["detail"]), (400, &json!(detail)), "{refused}");
    let bulk = json!({"ids": [feature["feature_flag"]["id"]]});
    let bulk = server.post(&format!("{FLAGS}bulk_delete/"), &bulk).json();
    assert_eq!((&bulk["deleted"], &bulk["errors"][0]["reason"]), (&json!([]), &json!(detail)));
    let groups = json!({"groups": [{"properties": []}], "aggregation_group_type_index": 0});
    let refused = server.patch(&flag_path, &json!({"filters": groups})).json();
    let detail = "Cannot change this flag to a group-based when linked to an Early Access Feature.";
    assert_eq!(refused["detail"], detail, "{refused}");

    let gone = server.delete(&path);
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(server.get(FEATURES).json()["count"], 0);
    let flag = server.get(&flag_path).json();
    assert_eq!(flag["filters"]["feature_enrollment"], Value::Null, "{flag}");
    assert_eq!((&flag["features"], listed(&server, "&stage=alpha")), (&json!({}), vec![]));
    assert_eq!(server.patch(&flag_path, &json!({"deleted": true})).status, 200);
    let log = server.get("/api/projects/1/activity_log/?scope=EarlyAccessFeature").json();
    let activities: Vec<&Value> =
        log["results"].as_array().expect("a log").iter().map(|entry| &entry["activity"]).collect();
    assert_eq!(activities, ["deleted", "updated", "updated", "updated", "updated", "created"]);
}

#[test]
fn features_that_cannot_be_are_refused() {
    let server = TestServer::start();
    let flag = server.post(FLAGS, &json!({"key": "mine"})).created();
    let group = json!({"groups": [{"properties": []}], "aggregation_group_type_index": 1});
    let group = server.post(FLAGS, &json!({"key": "of-groups", "filters": group})).created();
    let variants = json!({"groups": [{"properties": []}],
        "multivariate": {"variants": [{"key": "v", "rollout_percentage": 100}]}});
    let variants = server.post(FLAGS, &json!({"key": "varied", "filters": variants})).created();
    let of = |flag: &Value| json!({"name": "X", "stage": "beta", "feature_flag_id": flag["id"]});
    let linked = server.post(FEATURES, &of(&flag)).created();
    assert_eq!(linked["feature_flag"]["key"], "mine");
    let none = Value::Null;
    for (body, code, attr, detail) in [
        (json!({}), "required", json!("name"), "This field is required."),
        (json!({"name": "a"}), "required", json!("stage"), "This field is required."),
        (
            json!({"name": "", "stage": "beta"}),
            "blank",
            json!("name"),
            "This field may not be blank.",
        ),
        (
            json!({"name": "x".repeat(201), "stage": "beta"}),
            "max_length",
            json!("name"),
            "Ensure this field has no more than 200 characters.",
        ),
        (
            json!({"name": "a", "stage": "gamma"}),
            "invalid_choice",
            json!("stage"),
            "\"gamma\" is not a valid choice.",
        ),
        (
            json!({"name": "a", "stage": "beta", "documentation_url": "nowhere"}),
            "invalid_input",
            json!("documentation_url"),
            "Enter a valid URL.",
        ),
        (
            json!({"name": "a", "stage": "beta", "feature_flag_id": 999}),
            "invalid_input",
            none.clone(),
            "Feature Flag with this ID does not exist",
        ),
        (
            of(&flag),
            "invalid_input",
            none.clone(),
            "Linked feature flag mine already has a feature attached to it.",
        ),
        (
            of(&group),
            "invalid_input",
            none.clone(),
            "Group-based feature flags are not supported for Early Access Features.",
        ),
        (
            of(&variants),
            "invalid_input",
            none.clone(),
            "Multivariate feature flags are not supported for Early Access Features.",
        ),
        (
            json!({"name": "Mine", "stage": "beta"}),
            "unique",
            json!("key"),
            "There is already a feature flag with this key.",
        ),
    ] {
        let answer = server.post(FEATURES, &body);
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["code"], &told["attr"], &told["detail"]),
            (400, &json!(code), &attr, &json!(detail)),
            "{body}"
        );
    }
    assert_eq!(server.get(FEATURES).json()["count"], 1, "nothing was made");
    assert_eq!(server.get(FLAGS).json()["count"], 3);
}

/// A caller without the right to write flags cannot change one through a feature.
#[test]
fn a_feature_is_no_way_around_the_rights_to_flags() {
    let server = TestServer::start();
    let scopes = json!({"label": "x", "scopes": ["early_access_feature:write"]});
    let key = server.post("/api/personal_api_keys/", &scopes).created();
    let key = key["value"].as_str().expect("a key").to_owned();
    let ask = |key: &str, method: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        server.send(method, path, &headers, body.to_string())
    };
    let flag = server.post(FLAGS, &json!({"key": "mine"})).created();
    let draft = json!({"name": "X", "stage": "draft", "feature_flag_id": flag["id"]});
    let no_scope = "API key missing required scope 'feature_flag:write'";
    for body in [
        json!({"name": "new", "stage": "draft"}),
        json!({"name": "X", "stage": "beta", "feature_flag_id": flag["id"]}),
    ] {
        let refused = ask(&key, "POST", FEATURES, &body);
        assert_eq!((refused.status, &refused.json()["detail"]), (403, &json!(no_scope)), "{body}");
    }
    let feature = ask(&key, "POST", FEATURES, &draft).created();
    let path = format!("{FEATURES}{}/", feature["id"].as_str().expect("an id"));
    assert_eq!(changed(ask(&key, "PATCH", &path, &json!({"name": "Y"})))["name"], "Y");
    for (method, body) in [("PATCH", json!({"stage": "beta"})), ("DELETE", json!({}))] {
        let refused = ask(&key, method, &path, &body);
        assert_eq!(
            (refused.status, &refused.json()["detail"]),
            (403, &json!(no_scope)),
            "{method}"
        );
    }

    let member = json!({"email": "mel@acme.com", "level": 1});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let member = member["personal_api_key"].as_str().expect("a key").to_owned();
    let look = json!({"resource": "feature flags", "access_level": 21});
    server.post("/api/organizations/@current/resource_access/", &look).created();
    let refused = ask(&member, "PATCH", &path, &json!({"stage": "beta"}));
    let detail = "You don't have sufficient permissions to modify the linked feature flag.";
    assert_eq!((refused.status, &refused.json()["detail"]), (403, &json!(detail)), "{refused}");
    let mine = server.get(&format!("{FLAGS}{}/", flag["id"])).json();
    assert_eq!((&mine["version"], &mine["filters"]), (&json!(1), &flag["filters"]));
    changed(server.patch(&path, &json!({"stage": "beta"})));
}
