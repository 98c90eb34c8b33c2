//! Management endpoints about flags besides the flags themselves, in PostHog's format.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{ANSWER_TIMEOUT, TOKEN, TestServer, patiently};

pub(crate) const FLAGS: &str = "/api/projects/1/feature_flags/";

/// Rolled out to this percentage of everybody.
pub(crate) fn rollout(percentage: u8) -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": percentage}]})
}

fn on_plan(plan: &str) -> Value {
    let filter = json!({"key": "plan", "type": "person", "operator": "exact", "value": [plan]});
    json!({"groups": [{"properties": [filter], "rollout_percentage": 100}]})
}

fn with_people() -> TestServer {
    let server = TestServer::start();
    let set = |id: &str, plan: &str| json!({"event": "$set", "distinct_id": id, "properties": {"$set": {"plan": plan}}});
    let events = json!([
        set("ada", "pro"), set("bob", "free"), set("cy", "free"),
        {"event": "$groupidentify", "distinct_id": "ada", "properties": {
            "$group_type": "company", "$group_key": "acme", "$group_set": {"size": 7}}},
        {"event": "$groupidentify", "distinct_id": "ada", "properties": {
            "$group_type": "company", "$group_key": "small", "$group_set": {"size": 1}}},
    ]);
    assert_eq!(server.capture(&events).status, 200);
    server
}

#[test]
fn reasons_own_flags_and_reach_are_told() {
    let server = with_people();
    server.post(FLAGS, &json!({"key": "on", "filters": rollout(100)})).created();
    server.post(FLAGS, &json!({"key": "pro", "filters": on_plan("pro")})).created();
    server.post(FLAGS, &json!({"key": "off", "filters": rollout(100), "active": false})).created();
    let reasons = |query: &str| server.get(&format!("{FLAGS}evaluation_reasons/{query}"));
    let missing = reasons("");
    assert_eq!(
        (missing.status, &missing.json()["detail"]),
        (400, &json!("distinct_id is required"))
    );
    let matched = |value: bool, reason: &str, description: &str| {
        json!({"value": value, "evaluation": {
            "reason": reason, "condition_index": 0, "description": description}})
    };
    let disabled =
        json!({"value": false, "evaluation": {"reason": "disabled", "condition_index": null}});
    assert_eq!(
        reasons("?distinct_id=ada").json(),
        json!({
            "on": matched(true, "condition_match", "Matched condition set 1"),
            "pro": matched(true, "condition_match", "Matched condition set 1"),
            "off": disabled,
        })
    );
    let bob = reasons("?distinct_id=bob&flag_keys=pro").json();
    assert_eq!(
        bob,
        json!({"pro": matched(false, "no_condition_match", "No matching condition set")})
    );

    let mine = server.get(&format!("{FLAGS}my_flags/")).json();
    let mine: Vec<_> = mine
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["feature_flag"]["key"].as_str().unwrap(), item["value"].clone()))
        .collect();
    assert_eq!(mine, [("off", json!(false)), ("pro", json!(false)), ("on", json!(true))]);

    let reach = |body: Value| server.post(&format!("{FLAGS}user_blast_radius/"), &body);
    let pro = on_plan("pro")["groups"][0].clone();
    let needs = json!({"key": "1", "type": "flag", "operator": "flag_evaluates_to", "value": true});
    let size = json!({"key": "size", "type": "group", "group_type_index": 0, "operator": "gt", "value": "5"});
    for (body, affected, total) in [
        (json!({"condition": pro}), 1, 3),
        (json!({"condition": {"properties": [], "rollout_percentage": 1}}), 3, 3),
        // What is asked of another flag counts for nothing.
        (json!({"condition": {"properties": [needs]}}), 3, 3),
        (json!({"condition": {"properties": [needs, pro["properties"][0]]}}), 1, 3),
        (json!({"condition": {"properties": [size]}, "group_type_index": 0}), 1, 2),
    ] {
        let answer = reach(body.clone()).json();
        assert_eq!(
            (&answer["users_affected"], &answer["total_users"]),
            (&json!(affected), &json!(total)),
            "{body}"
        );
    }
    for (body, detail) in [
        (json!({}), "Missing condition for which to get blast radius"),
        (
            json!({"condition": {"properties": [size]}, "group_type_index": 1}),
            "Invalid group type index for feature flag condition.",
        ),
        (
            json!({"condition": {"properties": [size]}}),
            "Invalid group type index for feature flag condition.",
        ),
    ] {
        let answer = reach(body);
        assert_eq!((answer.status, &answer.json()["detail"]), (400, &json!(detail)));
    }
}

#[test]
fn changes_are_logged_with_what_was_before_and_old_versions_come_back() {
    let server = TestServer::start();
    let flag = server.post(FLAGS, &json!({"key": "a", "filters": rollout(10)})).created();
    let other = server.post(FLAGS, &json!({"key": "b"})).created();
    let path = format!("{FLAGS}{}/", flag["id"]);
    for patch in [
        json!({"filters": rollout(20), "name": "new"}),
        json!({"tags": ["x"]}),
        json!({"deleted": true}),
        json!({"deleted": false}),
    ] {
        assert_eq!(server.patch(&path, &patch).status, 200);
    }
    let log = server.get(&format!("{path}activity/")).json();
    assert_eq!((&log["total_count"], &log["next"]), (&json!(5), &json!(null)), "{log}");
    let entry = |index: usize| &log["results"][index];
    assert_eq!(entry(0)["activity"], "updated");
    let change = |field: &str, before: Value, after: Value| json!({"type": "FeatureFlag", "action": "changed", "field": field, "before": before, "after": after});
    assert_eq!(
        entry(1)["detail"]["changes"],
        json!([change("deleted", json!(false), json!(true))])
    );
    assert_eq!(
        entry(3)["detail"]["changes"],
        json!([
            change("filters", rollout(10), rollout(20)),
            change("name", json!(""), json!("new"))
        ])
    );
    assert_eq!(
        (&entry(4)["activity"], &entry(4)["scope"]),
        (&json!("created"), &json!("FeatureFlag"))
    );
    assert_eq!(entry(4)["item_id"], flag["id"].to_string());
    assert_eq!(entry(4)["detail"]["name"], "a");
    assert!(entry(4)["user"]["email"].is_string(), "{log}");
    let all = server.get(&format!("{FLAGS}activity/?limit=2&page=2")).json();
    assert_eq!((all["results"].as_array().unwrap().len(), &all["total_count"]), (2, &json!(6)));
    for (link, page) in [("next", "page=3"), ("previous", "page=1")] {
        let link = all[link].as_str().expect("a link");
        assert!(
            link.starts_with("http://") && link.contains(page) && link.contains("limit=2"),
            "{link}"
        );
    }
    let project = server.get("/api/projects/1/activity_log/?scope=FeatureFlag&item_id=1").json();
    assert_eq!(project["total_count"], 5);
    assert_eq!(server.get("/api/projects/1/activity_log/?scope=Cohort").json()["total_count"], 0);
    let nothing = server.get(&format!("{FLAGS}999/activity/"));
    assert_eq!((nothing.status, nothing.body.len()), (404, 0));

    let first = server.get(&format!("{path}versions/1/")).json();
    assert_eq!(
        (&first["filters"], &first["tags"], &first["name"]),
        (&rollout(10), &json!([]), &json!(""))
    );
    assert_eq!(server.get(&format!("{path}versions/6/")).status, 404);
    // What came since goes: another change lets what it does not name stay.
    let payload = json!({"filters": {"payloads": {"true": "1"}}});
    let added = server.patch(&path, &payload).json();
    assert_eq!(added["filters"]["groups"], rollout(20)["groups"], "{added}");
    let kept = server.patch(&path, &json!({"filters": rollout(30)})).json();
    assert_eq!(kept["filters"]["payloads"], json!({"true": "1"}), "{kept}");
    let reverted = server.post(&format!("{path}versions/1/revert/"), &json!({})).json();
    assert_eq!(
        (&reverted["filters"], &reverted["version"]),
        (&rollout(10), &json!(8)),
        "{reverted}"
    );
    // What somebody else changed is not overwritten unawares.
    let path = format!("{FLAGS}{}/", other["id"]);
    let seen = server.get(&path).json();
    assert_eq!(server.patch(&path, &json!({"name": "theirs", "version": 1})).status, 200);
    let conflict =
        server.patch(&path, &json!({"name": "mine", "version": 1, "original_flag": seen}));
    assert_eq!((conflict.status, &conflict.json()["code"]), (409, &json!("conflict")));
    let detail = conflict.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.ends_with("since you started editing it. Please refresh and try again."),
        "{detail}"
    );
    // A form that sends the whole flag changes what was edited in it and nothing else.
    let mut whole = seen.clone();
    whole["active"] = json!(false);
    whole["original_flag"] = seen;
    let elsewhere = server.patch(&path, &whole);
    assert_eq!(elsewhere.status, 200, "{elsewhere}");
    let elsewhere = elsewhere.json();
    assert_eq!(
        (&elsewhere["active"], &elsewhere["name"], &elsewhere["version"]),
        (&json!(false), &json!("theirs"), &json!(3)),
        "{elsewhere}"
    );
    // Who does not say what they saw overwrites it.
    let blind = server.patch(&path, &json!({"name": "mine", "version": 1}));
    assert_eq!((blind.status, &blind.json()["name"]), (200, &json!("mine")));
}

#[test]
fn roles_are_given_flags() {
    let server = TestServer::start();
    let flag = server.post(FLAGS, &json!({"key": "a"})).created();
    let roles = "/api/organizations/@current/roles/";
    let role = server.post(roles, &json!({"name": "Editors"})).created();
    assert_eq!(role["feature_flags_access_level"], 37, "{role}");
    let twice = server.post(roles, &json!({"name": "Editors"}));
    assert_eq!(
        (twice.status, &twice.json()["detail"]),
        (400, &json!("There is already a role with this name."))
    );
    assert_eq!(
        server.post(roles, &json!({"name": "x", "feature_flags_access_level": 1})).status,
        400
    );
    let user = flag["created_by"]["uuid"].clone();
    let members = format!("{roles}{}/role_memberships/", role["id"].as_str().unwrap());
    let member = server.post(&members, &json!({"user_uuid": user})).created();
    let path = format!("{FLAGS}{}/role_access/", flag["id"]);
    for (body, code) in [
        (json!({}), "required"),
        (json!({"role_id": "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d"}), "does_not_exist"),
    ] {
        let answer = server.post(&path, &body);
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["code"], &told["attr"]),
            (400, &json!(code), &json!("role_id"))
        );
    }
    let access = server.post(&path, &json!({"role_id": role["id"]})).created();
    assert_eq!(
        (&access["feature_flag"]["key"], &access["role"]["name"]),
        (&json!("a"), &json!("Editors"))
    );
    assert_eq!(access["role"]["associated_flags"], json!([{"id": flag["id"], "key": "a"}]));
    assert_eq!(access["role"]["members"][0]["id"], member["id"], "{access}");
    assert!(access["added_at"].is_string() && access["updated_at"].is_string());
    let list = server.get(&path).json();
    assert_eq!((&list["count"], &list["results"][0]["id"]), (&json!(1), &access["id"]), "{list}");
    let one = format!("{path}{}/", access["id"]);
    assert_eq!(server.get(&one).json()["id"], access["id"]);
    assert_eq!(server.patch(&one, &json!({})).status, 405);
    let gone = server.delete(&one);
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(server.get(&one).status, 404);
    let unknown = server.get(&format!("{FLAGS}999/role_access/"));
    assert_eq!(
        (unknown.status, &unknown.json()["detail"]),
        (404, &json!("Feature flag not found."))
    );
    assert_eq!(server.delete(&format!("{roles}{}/", role["id"].as_str().unwrap())).status, 204);
}

#[test]
fn flags_are_switched_found_and_deleted_in_numbers() {
    let server = with_people();
    let a = server
        .post(FLAGS, &json!({"key": "my-first", "filters": on_plan("pro"), "tags": ["x"]}))
        .created();
    let mut variants = rollout(100);
    variants["multivariate"] = json!({"variants": [{"key": "v", "rollout_percentage": 100}]});
    let b = server.post(FLAGS, &json!({"key": "second", "filters": variants})).created();
    let path = |flag: &Value, rest: &str| format!("{FLAGS}{}/{rest}", flag["id"]);
    let depends = json!({"groups": [{"properties": [{"key": a["id"].to_string(), "type": "flag",
        "operator": "flag_evaluates_to", "value": true}]}]});
    let c = server
        .post(FLAGS, &json!({"key": "third", "filters": depends, "evaluation_contexts": ["web"]}))
        .created();
    let dependents = server.get(&path(&a, "dependent_flags/")).json();
    assert_eq!(dependents, json!([{"id": c["id"], "key": "third", "name": "third"}]));
    assert_eq!(server.post(&path(&a, "disable/"), &json!({})).status, 400, "another needs it");
    let disabled = server.post(&path(&b, "disable/"), &json!({})).json();
    assert_eq!((&disabled["active"], &disabled["version"]), (&json!(false), &json!(2)));
    let config = json!({"key": "config", "is_remote_configuration": true});
    let config = server.post(FLAGS, &config).created();
    let keys = |query: &str| -> Vec<String> {
        let list = server.get(&format!("{FLAGS}{query}")).json();
        let keys = list["results"].as_array().unwrap().iter();
        keys.map(|flag| flag["key"].as_str().unwrap().to_owned()).collect()
    };
    for (query, expected) in [
        ("", vec!["config", "third", "second", "my-first"]),
        ("?active=false", vec!["second"]),
        ("?active=no", vec!["second"]),
        ("?search=MY%20first", vec!["my-first"]),
        ("?search=my_first", vec![]),
        ("?type=multivariant", vec!["second"]),
        ("?type=boolean", vec!["config", "third", "my-first"]),
        ("?type=remote_config", vec!["config"]),
        ("?type=experiment", vec![]),
        ("?tags=%5B%22x%22%5D", vec!["my-first"]),
        ("?created_by_id=2", vec![]),
        ("?key=SECOND", vec!["second"]),
        ("?order=key", vec!["config", "my-first", "second", "third"]),
        ("?active=STALE", vec![]),
        ("?excluded_properties=%5B%22second%22%2C%22third%22%5D", vec!["config", "my-first"]),
        ("?has_evaluation_contexts=true", vec!["third"]),
        ("?has_evaluation_contexts=false", vec!["config", "second", "my-first"]),
        ("?eligible_for_experiment=true", vec![]),
    ] {
        assert_eq!(keys(query), expected, "{query}");
    }
    let long = server.get(&format!("{FLAGS}?search={}", "x".repeat(201)));
    assert_eq!(
        (long.status, &long.json()["detail"]),
        (400, &json!("Search term cannot exceed 200 characters"))
    );
    let status = server.get(&path(&b, "status/")).json();
    let rollout = json!({"effectively_full_rollout": true, "has_targeting_conditions": false,
        "max_rollout_percentage": 100, "is_multivariate": true});
    assert_eq!((&status["status"], &status["rollout"]), (&json!("active"), &rollout));
    assert_eq!(status["reason"], "Flag is disabled (not evaluated for staleness)");
    let cleared = server.patch(&path(&config, ""), &json!({"filters": {"groups": []}}));
    assert_eq!(cleared.status, 200, "{cleared}");
    let status = server.get(&path(&config, "status/")).json();
    assert_eq!(status["rollout"]["max_rollout_percentage"], Value::Null, "{status}");
    assert_eq!(server.patch(&path(&config, ""), &json!({"deleted": true})).status, 200);
    assert_eq!(server.get(&format!("{FLAGS}999/status/")).json()["status"], "unknown");
    assert_eq!(server.post(&path(&b, "archive/"), &json!({})).json()["archived"], true);
    assert_eq!(keys(""), ["third", "my-first"]);
    assert_eq!(keys("?archived=true"), ["second"]);

    let tested = server.post(&path(&a, "test_evaluation/"), &json!({"distinct_id": "bob"})).json();
    assert_eq!(
        (&tested["flag_key"], &tested["result"]),
        (&json!("my-first"), &json!(false)),
        "{tested}"
    );
    assert_eq!(tested["reason"], "no_condition_match");
    let bad = json!({"distinct_id": "bob", "timestamp": "soon"});
    let refused = server.post(&path(&a, "test_evaluation/"), &bad);
    assert_eq!((refused.status, &refused.json()["attr"]), (400, &json!("timestamp")));
    let past = json!({"distinct_id": "ada", "timestamp": "2020-01-01T00:00:00Z"});
    let past = server.post(&path(&a, "test_evaluation/"), &past).json();
    assert_eq!(
        (&past["result"], past["person_properties"].get("plan")),
        (&json!(false), None),
        "{past}"
    );
    let property = &tested["conditions"][0]["properties"][0];
    assert_eq!((&property["actual_value"], &property["matched"]), (&json!("free"), &json!(false)));
    let body = json!({"api_key": TOKEN, "distinct_id": "ada"}).to_string();
    let detailed = server.send("POST", "/flags/?v=2&detailed_analysis=true", &[], body).json();
    assert_eq!(detailed["flags"]["third"]["conditions"][0]["matched"], true, "{detailed}");

    let cohort = server.post(&path(&a, "create_static_cohort_for_flag/"), &json!({}));
    assert_eq!((cohort.status, &cohort.json()["cohort"]["count"]), (201, &json!(1)), "{cohort}");

    let dashboard = |path: &str| server.post(path, &json!({}));
    let enrich = path(&a, "enrich_usage_dashboard/");
    assert!(a["usage_dashboard"].is_i64(), "a new flag has one: {a}");
    assert_eq!(dashboard(&path(&a, "dashboard/")).json(), json!({"success": true}));
    assert_eq!(server.get(&path(&a, "")).json()["usage_dashboard"], a["usage_dashboard"]);
    let none = "No enriched analytics available for this feature flag";
    assert_eq!(dashboard(&enrich).json(), json!({"success": false, "error": none}));
    assert_eq!(server.patch(&path(&a, ""), &json!({"has_enriched_analytics": true})).status, 200);
    assert_eq!(dashboard(&enrich).json(), json!({"success": true}));
    let again = dashboard(&enrich);
    assert_eq!(again.json()["error"], "Usage dashboard already has enriched data");
    assert_eq!(again.status, 400);

    let ids = server.get(&format!("{FLAGS}matching_ids/?search=third")).json();
    assert_eq!(ids, json!({"ids": [c["id"]], "total": 1}));
    let keys = server.post(&format!("{FLAGS}bulk_keys/"), &json!({"ids": [c["id"]]})).json();
    assert_eq!(keys["keys"][c["id"].to_string()], "third");
    let bulk = |body: Value| server.post(&format!("{FLAGS}bulk_delete/"), &body);
    let deleted = bulk(json!({"ids": [c["id"], 999]})).json();
    assert_eq!(deleted["deleted"][0]["key"], "third", "{deleted}");
    assert_eq!(deleted["errors"], json!([{"id": 999, "reason": "Flag not found"}]));
    let deleted = bulk(json!({"ids": [b["id"]], "filters": {}})).json();
    let told = &deleted["deleted"][0];
    assert_eq!(
        (&told["rollout_state"], &told["active_variant"]),
        (&json!("fully_rolled_out"), &json!("v")),
        "{deleted}"
    );
}

#[test]
fn flags_are_copied_between_projects_of_the_organization() {
    let server = TestServer::start();
    let flag = server.post(FLAGS, &json!({"key": "a", "filters": rollout(10)})).created();
    let base = "/api/organizations/@current/feature_flags/";
    let copy = |body: Value| server.post(&format!("{base}copy_flags/"), &body);
    for (body, error) in [
        (json!({}), "Missing required fields"),
        (
            json!({"feature_flag_key": "b", "from_project": 1, "target_project_ids": [1]}),
            "Feature flag to copy does not exist.",
        ),
    ] {
        let answer = copy(body);
        assert_eq!((answer.status, answer.json()), (400, json!({"error": error})));
    }
    let copied = copy(json!({"feature_flag_key": "a", "from_project": 1,
        "target_project_ids": [1, 999], "disable_copied_flag": true}))
    .json();
    assert_eq!(copied["success"][0]["version"], 2, "over the one that is there: {copied}");
    assert_eq!(copied["success"][0]["active"], false, "{copied}");
    assert_eq!(
        copied["failed"],
        json!([{"project_id": 999, "error_message": "Project not found."}])
    );
    let found = server.get(&format!("{base}a/")).json();
    assert_eq!((&found[0]["flag_id"], &found[0]["team_id"]), (&flag["id"], &json!(1)), "{found}");
    assert_eq!(found[0]["evaluations_7d"], 0, "{found}");
    let called = json!([
        {"event": "$feature_flag_called", "distinct_id": "d", "properties": {"$feature_flag": "a"}},
        {"event": "$feature_flag_called", "distinct_id": "d", "properties": {"$feature_flag": "b"}},
        {"event": "$feature_flag_called", "distinct_id": "d", "timestamp": "2020-01-01T00:00:00Z",
            "properties": {"$feature_flag": "a"}},
    ]);
    assert_eq!(server.capture(&called).status, 200);
    assert_eq!(server.get(&format!("{base}a/")).json()[0]["evaluations_7d"], 1);
}

#[test]
fn a_copy_has_the_cohorts_and_the_scheduled_changes_of_its_project() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let other = format!("/api/projects/{}/", other["id"]);
    let of = |cohort: &Value| json!({"key": "id", "type": "cohort", "value": cohort["id"], "operator": "in"});
    let rule = |filter: Value| json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": [filter]}]}});
    let plan = json!({"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]});
    let cohorts = "/api/projects/1/cohorts/";
    let inner = server.post(cohorts, &json!({"name": "Pro", "filters": rule(plan)})).created();
    let outer =
        server.post(cohorts, &json!({"name": "Outer", "filters": rule(of(&inner))})).created();
    let listed = server.post(cohorts, &json!({"name": "Listed", "is_static": true})).created();
    let later = server.post(cohorts, &json!({"name": "Later", "is_static": true})).created();
    // The target knows one of them by its name.
    let known = json!({"name": "Listed", "is_static": true});
    let known = server.post(&format!("{other}cohorts/"), &known).created();
    let filters = json!({"groups": [{"properties": [of(&outer), of(&listed)]}]});
    let flag = server.post(FLAGS, &json!({"key": "a", "filters": filters})).created();
    let groups = json!({"groups": [{"properties": [of(&later)]}]});
    let change = json!({"record_id": flag["id"], "model_name": "FeatureFlag",
        "scheduled_at": "2099-01-01T00:00:00Z",
        "payload": {"operation": "add_release_condition", "value": groups}});
    server.post("/api/projects/1/scheduled_changes/", &change).created();
    let copy = |key: &str, schedules: bool| {
        let body = json!({"feature_flag_key": key, "from_project": 1, "target_project_ids": [2],
            "copy_schedule": schedules});
        let answer = server.post("/api/organizations/@current/feature_flags/copy_flags/", &body);
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    };
    let copied = copy("a", true);
    assert_eq!(copied["failed"], json!([]), "{copied}");
    let copied = &copied["success"][0];
    assert_eq!(copied["team_id"], 2, "{copied}");
    let there = server.get(&format!("{other}cohorts/")).json();
    let named = |name: &str| {
        let cohorts = there["results"].as_array().expect("a list");
        cohorts.iter().find(|cohort| cohort["name"] == name).expect(name).clone()
    };
    assert_eq!(there["count"], 4, "one was there: {there}");
    let properties = &copied["filters"]["groups"][0]["properties"];
    assert_eq!(properties[0]["value"], named("Outer")["id"], "{copied}");
    assert_eq!(properties[1]["value"], known["id"], "{copied}");
    assert_eq!(named("Outer")["filters"], rule(of(&named("Pro"))));
    let changes = server.get(&format!("{other}scheduled_changes/")).json();
    let change = &changes["results"][0];
    assert_eq!(
        (&changes["count"], &change["record_id"]),
        (&json!(1), &json!(copied["id"].to_string()))
    );
    assert_eq!(
        change["payload"]["value"]["groups"][0]["properties"][0]["value"],
        named("Later")["id"]
    );
    // Without being asked nothing is scheduled, and no cohort is made twice.
    copy("a", false);
    assert_eq!(server.get(&format!("{other}scheduled_changes/")).json()["count"], 1);
    assert_eq!(server.get(&format!("{other}cohorts/")).json()["count"], 4);
}

/// Ids of flags differ between projects: a copy depends on the flags of its project with the same
/// keys.
#[test]
fn a_copy_depends_on_the_flags_of_its_project() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let other_flags = format!("/api/projects/{}/feature_flags/", other["id"]);
    let base = server.post(FLAGS, &json!({"key": "base"})).created();
    let needs = json!({"groups": [{"properties": [{"key": base["id"].to_string(), "type": "flag",
        "operator": "flag_evaluates_to", "value": true}]}]});
    server.post(FLAGS, &json!({"key": "b", "filters": needs})).created();
    let copy = || {
        let body = json!({"feature_flag_key": "b", "from_project": 1, "target_project_ids": [other["id"]]});
        server.post("/api/organizations/@current/feature_flags/copy_flags/", &body).json()
    };
    let failed = copy();
    assert_eq!(
        failed["failed"][0]["error_message"],
        "Flag dependency 'base' does not exist in the project.",
        "{failed}"
    );
    assert_eq!(server.get(&other_flags).json()["count"], 0);
    server.post(&other_flags, &json!({"key": "first"})).created();
    let there = server.post(&other_flags, &json!({"key": "base"})).created();
    assert_ne!(there["id"], base["id"]);
    let copied = copy();
    let property = &copied["success"][0]["filters"]["groups"][0]["properties"][0];
    assert_eq!(property["key"], there["id"].to_string(), "{copied}");
}

#[test]
fn tags_of_many_flags_are_changed_at_once() {
    let server = TestServer::start();
    let a = server.post(FLAGS, &json!({"key": "a", "tags": ["old", "both"]})).created();
    let b = server.post(FLAGS, &json!({"key": "b", "tags": ["both"]})).created();
    let path = format!("{FLAGS}bulk_update_tags/");
    let ids = json!([a["id"], b["id"]]);
    for (action, tags, of_a, of_b) in [
        ("add", json!(["New ", "both"]), json!(["old", "both", "new"]), json!(["both", "new"])),
        ("remove", json!(["both", "none"]), json!(["old", "new"]), json!(["new"])),
        ("set", json!(["x", "X"]), json!(["x"]), json!(["x"])),
        ("set", json!([]), json!([]), json!([])),
    ] {
        let answer = server.post(&path, &json!({"ids": ids, "action": action, "tags": tags}));
        assert_eq!(answer.status, 200, "{answer}");
        let updated = json!([{"id": a["id"], "tags": of_a}, {"id": b["id"], "tags": of_b}]);
        assert_eq!(answer.json(), json!({"updated": updated, "skipped": []}), "{action}");
        assert_eq!(server.get(&format!("{FLAGS}{}/", a["id"])).json()["tags"], of_a, "{action}");
    }
    let body = json!({"ids": [a["id"], 999, a["id"]], "action": "add", "tags": ["y"]});
    let answer = server.post(&path, &body).json();
    assert_eq!(answer["updated"], json!([{"id": a["id"], "tags": ["y"]}]), "{answer}");
    assert_eq!(answer["skipped"], json!([{"id": 999, "reason": "Not found or no edit access"}]));
    let log = server.get(&format!("{FLAGS}{}/activity/", b["id"])).json();
    assert_eq!(log["results"][0]["detail"]["changes"][0]["field"], "tags", "{log}");
    assert_eq!(log["total_count"], 5, "one for its creation and one for each change");
    let many: Vec<u16> = (1..=501).collect();
    for (body, code, attr, detail) in [
        (json!({}), "required", "ids", "This field is required."),
        (json!({"ids": []}), "empty", "ids", "This list may not be empty."),
        (json!({"ids": 1}), "not_a_list", "ids", "Expected a list of items but got type \"int\"."),
        (
            json!({"ids": many}),
            "max_length",
            "ids",
            "Ensure this field has no more than 500 elements.",
        ),
        (json!({"ids": [1]}), "required", "action", "This field is required."),
        (json!({"ids": [1], "action": null}), "null", "action", "This field may not be null."),
        (
            json!({"ids": [1], "action": "drop"}),
            "invalid_choice",
            "action",
            "\"drop\" is not a valid choice.",
        ),
        (json!({"ids": [1], "action": "set"}), "required", "tags", "This field is required."),
        (
            json!({"ids": [1], "action": "add", "tags": []}),
            "invalid_input",
            "tags",
            "tags must not be empty for action 'add'.",
        ),
    ] {
        let answer = server.post(&path, &body);
        let told = answer.json();
        assert_eq!((answer.status, &told["code"]), (400, &json!(code)), "{body}: {told}");
        assert_eq!((&told["attr"], &told["detail"]), (&json!(attr), &json!(detail)), "{body}");
    }
}

#[test]
fn keys_are_told_for_ids_and_for_the_projects_of_the_organization() {
    let server = TestServer::start();
    server.post("/api/projects/", &json!({"name": "Other"})).created();
    let a = server.post(FLAGS, &json!({"key": "a", "name": "An editor"})).created();
    server.post(FLAGS, &json!({"key": "b"})).created();
    let there = server.post("/api/projects/2/feature_flags/", &json!({"key": "a"})).created();
    let base = "/api/organizations/@current/feature_flags/keys/";
    let keys = |query: &str| {
        let page = server.get(&format!("{base}{query}")).json();
        let of = |flag: &Value| (flag["key"].clone(), flag["team_id"].clone());
        let results: Vec<_> = page["results"].as_array().expect("a list").iter().map(of).collect();
        (page["count"].clone(), results)
    };
    let of = |key: &str, project: i64| (json!(key), json!(project));
    for (query, count, expected) in [
        ("", 2, vec![of("a", 1), of("b", 1)]),
        ("?current_team_id=2", 2, vec![of("a", 2), of("b", 1)]),
        ("?team_ids=2", 1, vec![of("a", 2)]),
        ("?team_ids=2,%201,99", 2, vec![of("a", 1), of("b", 1)]),
        ("?search=EDIT", 1, vec![of("a", 1)]),
        ("?limit=1&offset=1", 2, vec![of("b", 1)]),
        ("?limit=0", 2, vec![of("a", 1), of("b", 1)]),
    ] {
        assert_eq!(keys(query), (json!(count), expected), "{query}");
    }
    let first = server.get(&format!("{base}?team_ids=2")).json();
    assert_eq!(first["results"][0]["flag_id"], there["id"], "{first}");
    assert_eq!(first["results"][0]["filters"], there["filters"]);
    for (query, error) in [
        ("?team_ids=x", "team_ids must be a comma-separated list of integers."),
        ("?limit=x", "limit and offset must be integers."),
        ("?offset=x", "limit and offset must be integers."),
    ] {
        let answer = server.get(&format!("{base}{query}"));
        assert_eq!((answer.status, answer.json()), (400, json!({"error": error})), "{query}");
    }
    let by_id = |body: Value| server.post(&format!("{FLAGS}bulk_keys/"), &body);
    let id = a["id"].to_string();
    assert_eq!(by_id(json!({})).json(), json!({"keys": {}}));
    let found = by_id(json!({"ids": [a["id"], "x", -1]})).json();
    assert_eq!(found["keys"], json!({ id: "a" }), "{found}");
    assert_eq!(found["warning"], "Invalid flag IDs ignored: [\"x\",-1]");
    let none = by_id(json!({"ids": ["x"]}));
    assert_eq!((none.status, none.json()), (400, json!({"error": "Invalid flag IDs provided"})));
}

#[test]
fn openfeature_asks_for_one_flag_or_all_and_hears_of_changes() {
    let server = with_people();
    server.post(FLAGS, &json!({"key": "everyone", "filters": rollout(100)})).created();
    let pro = server.post(FLAGS, &json!({"key": "pro", "filters": on_plan("pro")})).created();
    let mut colours = rollout(100);
    colours["multivariate"] = json!({"variants": [{"key": "blue", "rollout_percentage": 100}]});
    colours["payloads"] = json!({"blue": "{\"hex\": \"#00f\"}"});
    server.post(FLAGS, &json!({"key": "colour", "filters": colours})).created();
    server.post(FLAGS, &json!({"key": "off", "active": false})).created();
    let ask = |key: &str, body: Value, headers: &[(&str, &str)]| {
        let path = format!("/ofrep/v1/evaluate/flags{key}");
        server.send("POST", &path, headers, body.to_string())
    };
    let key = [("x-api-key", TOKEN)];
    let of = |id: &str| json!({"context": {"targetingKey": id}});
    for (flag, id, expected) in [
        ("everyone", "bob", json!({"value": true, "variant": "true", "reason": "STATIC"})),
        ("pro", "ada", json!({"value": true, "variant": "true", "reason": "TARGETING_MATCH"})),
        ("pro", "bob", json!({"value": false, "variant": "false", "reason": "DEFAULT"})),
        ("colour", "bob", json!({"value": "blue", "variant": "blue", "reason": "SPLIT"})),
        ("off", "bob", json!({"value": false, "variant": "false", "reason": "DISABLED"})),
    ] {
        let answer = ask(&format!("/{flag}"), of(id), &key);
        assert_eq!(answer.status, 200, "{answer}");
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&answer.json()[name], value, "{flag} {id}");
        }
    }
    let own = json!({"context": {"targetingKey": "bob", "plan": "pro"}});
    assert_eq!(ask("/pro", own, &key).json()["value"], true);
    assert_eq!(ask("/colour", of("x"), &key).json()["metadata"]["payload"], "{\"hex\": \"#00f\"}");
    for (path, body, status, code) in [
        ("/none", of("x"), 404, "FLAG_NOT_FOUND"),
        ("/pro", json!({"context": {}}), 400, "TARGETING_KEY_MISSING"),
        ("/pro", json!({"context": 1}), 400, "INVALID_CONTEXT"),
        ("", json!({}), 400, "TARGETING_KEY_MISSING"),
    ] {
        let answer = ask(path, body, &key);
        assert_eq!((answer.status, &answer.json()["errorCode"]), (status, &json!(code)), "{path}");
    }
    for (authorization, status) in [
        (TOKEN.to_owned(), 200),
        (format!("Bearer {TOKEN}"), 200),
        (format!("bearer  {TOKEN}"), 200),
        (format!("Basic {TOKEN}"), 401),
        ("Bearer phc_nobody".to_owned(), 401),
        ("phc_nobody".to_owned(), 401),
        (String::new(), 401),
    ] {
        for path in ["", "/pro"] {
            let answer = ask(path, of("x"), &[("authorization", &authorization)]);
            assert_eq!(answer.status, status, "{path} {authorization:?}: {answer}");
        }
    }
    assert_eq!(ask("", of("x"), &[]).status, 401);
    let all = ask("", of("ada"), &key);
    assert_eq!(all.json()["flags"].as_array().unwrap().len(), 3, "{all}");
    let tag = all.header("etag").expect("a tag").to_owned();
    let same = ask("", of("ada"), &[("x-api-key", TOKEN), ("if-none-match", &tag)]);
    assert_eq!((same.status, same.body.len()), (304, 0));

    let url = all.json()["eventStreams"][0]["url"].as_str().expect("a stream").to_owned();
    let path = url.strip_prefix(&server.url()).expect("of this server");
    let mut socket = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
    socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut lines = BufReader::new(socket).lines();
    let mut wait_for =
        |text: &str| patiently(|| lines.next()?.ok().filter(|line| line.contains(text))).is_some();
    assert!(wait_for(": connected"));
    let changed =
        server.patch(&format!("{FLAGS}{}/", pro["id"]), &json!({"filters": rollout(100)}));
    assert_eq!(changed.status, 200);
    assert!(wait_for("refetchEvaluation"));
    let other = ask("", of("bob"), &[("x-api-key", TOKEN), ("if-none-match", &tag)]);
    assert_eq!(other.status, 200);
}
