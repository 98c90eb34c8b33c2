//! States of flags: on, off, archived, stale, deleted in bulk. Formats and texts are those of
//! PostHog's API.

use serde_json::{Value, json};

use crate::flag_management::{FLAGS, rollout};
use crate::harness::{Answer, TOKEN, TestServer};

/// An archived flag is off, and an unchanged flag is not written. Texts are PostHog's.
#[test]
fn archived_flags_are_off_and_what_is_done_is_not_done_again() {
    let server = TestServer::start();
    let flag = server.post(FLAGS, &json!({"key": "a", "filters": rollout(100)})).created();
    let path = format!("{FLAGS}{}/", flag["id"]);
    let now = |step: &str| {
        let flag = server.post(&format!("{path}{step}/"), &json!({})).json();
        (flag["active"].clone(), flag["archived"].clone(), flag["version"].clone())
    };
    let is = |active: bool, archived: bool, version: i64| {
        (json!(active), json!(archived), json!(version))
    };
    let log = || server.get(&format!("{path}activity/")).json();
    let value = || {
        let body = json!({"api_key": TOKEN, "distinct_id": "ada"}).to_string();
        server.send("POST", "/flags/?v=1", &[], body).json()["featureFlags"].clone()
    };
    let refused = |body: Value, expected: &str| {
        let answer = server.patch(&path, &body);
        let told = answer.json();
        assert_eq!((answer.status, &told["detail"]), (400, &json!(expected)), "{body}");
        assert_eq!((&told["code"], &told["attr"]), (&json!("invalid_input"), &Value::Null));
    };
    let archive = "Cannot archive an enabled feature flag. Disable it first, or send active: false \
                   in the same request.";
    let enable = "Cannot enable an archived feature flag. Unarchive it first.";
    assert_eq!(now("enable"), is(true, false, 1), "it is on");
    assert_eq!(now("unarchive"), is(true, false, 1));
    assert_eq!(log()["total_count"], 1);
    refused(json!({"archived": true}), archive);
    refused(json!({"archived": true, "active": true}), archive);
    assert_eq!(value(), json!({"a": true}));
    assert_eq!(now("archive"), is(false, true, 2));
    assert_eq!(value(), json!({}));
    assert_eq!(log()["results"][0]["detail"]["changes"].as_array().expect("changes").len(), 2);
    assert_eq!(now("archive"), is(false, true, 2));
    assert_eq!(now("disable"), is(false, true, 2));
    refused(json!({"active": true}), enable);
    let told = server.post(&format!("{path}enable/"), &json!({}));
    assert_eq!((told.status, &told.json()["detail"]), (400, &json!(enable)));
    assert_eq!(log()["total_count"], 2);
    assert_eq!(now("unarchive"), is(false, false, 3));
    assert_eq!(now("enable"), is(true, false, 4));
    let both = server.patch(&path, &json!({"archived": true, "active": false})).json();
    assert_eq!((&both["archived"], &both["active"]), (&json!(true), &json!(false)));
    assert_eq!(server.patch(&path, &json!({"archived": false, "active": true})).status, 200);

    let made = |key: &str, active: bool| {
        server.post(FLAGS, &json!({"key": key, "archived": true, "active": active}))
    };
    assert_eq!((made("b", true).status, &made("b", true).json()["detail"]), (400, &json!(archive)));
    assert_eq!(
        (made("b", false).status, server.get(FLAGS).json()["count"].clone()),
        (201, json!(1))
    );

    // Another flag depends on it.
    let needs = json!({"groups": [{"properties": [{"key": flag["id"].to_string(), "type": "flag",
        "operator": "flag_evaluates_to", "value": true}]}]});
    let needs = server.post(FLAGS, &json!({"key": "needs", "filters": needs})).created();
    assert_eq!(server.post(&format!("{path}archive/"), &json!({})).status, 400);
    let dependents = || server.get(&format!("{path}dependent_flags/")).json();
    assert_eq!(dependents(), json!([{"id": needs["id"], "key": "needs", "name": "needs"}]));
    let off = json!({"active": false, "name": "Needs it"});
    assert_eq!(server.patch(&format!("{FLAGS}{}/", needs["id"]), &off).status, 200);
    assert_eq!(dependents(), json!([]), "of flags that are on");

    assert_eq!(server.patch(&path, &json!({"deleted": true})).status, 200);
    for (step, doing) in [
        ("enable", "enabling"),
        ("disable", "disabling"),
        ("archive", "archiving"),
        ("unarchive", "unarchiving"),
    ] {
        let answer = server.post(&format!("{path}{step}/"), &json!({}));
        let error = format!("This feature flag has been deleted. Restore it before {doing} it.");
        let expected = json!({"success": false, "error": error});
        assert_eq!((answer.status, answer.json()), (400, expected), "{step}");
    }
    assert_eq!(server.post(&format!("{FLAGS}999/enable/"), &json!({})).status, 404);
}

/// The requests and results of PostHog's tests of these two endpoints.
#[test]
fn a_rollout_changes_one_condition_or_lets_everybody_in() {
    let server = TestServer::start();
    let by_email = json!({"properties": [{"key": "email", "type": "person", "value": "@example.com",
        "operator": "icontains"}], "rollout_percentage": 10, "description": "internal users"});
    let variants = |control: u8, test: u8| {
        json!({"variants": [
        {"key": "control", "rollout_percentage": control, "name": "Control"},
        {"key": "test", "rollout_percentage": test}]})
    };
    let filters = json!({"groups": [by_email, {"properties": [], "rollout_percentage": 5}],
        "multivariate": variants(60, 40), "payloads": {"control": "{\"copy\": \"a\"}"}});
    let many = server.post(FLAGS, &json!({"key": "many", "filters": filters})).created();
    let plain = json!({"groups": [by_email], "payloads": {"true": "\"on\""}});
    let plain = server.post(FLAGS, &json!({"key": "plain", "filters": plain})).created();
    let path = |flag: &Value, step: &str| format!("{FLAGS}{}/{step}/", flag["id"]);
    let set = |flag: &Value, index: Value, percentage: Value, version: i64| {
        let body =
            json!({"condition_index": index, "rollout_percentage": percentage, "version": version});
        server.post(&path(flag, "set_release_condition_rollout"), &body)
    };
    let open = |flag: &Value, body: Value| server.post(&path(flag, "roll_out_to_everyone"), &body);
    let now = |flag: &Value| server.get(&format!("{FLAGS}{}/", flag["id"])).json();
    let changes = |flag: &Value| server.get(&path(flag, "activity")).json()["total_count"].clone();
    let refused = |answer: Answer, attr: Value, words: &str| {
        let told = answer.json();
        assert_eq!((answer.status, &told["attr"]), (400, &attr), "{told}");
        assert!(told["detail"].as_str().is_some_and(|told| told.contains(words)), "{told}");
    };

    // What says nothing, or cannot be applied, changes nothing.
    refused(set(&many, json!(2), json!(25), 1), json!("condition_index"), "It has 2");
    refused(
        set(&many, json!(-1), json!(25), 1),
        json!("condition_index"),
        "greater than or equal to 0",
    );
    refused(
        set(&many, json!(0), json!(101), 1),
        json!("rollout_percentage"),
        "less than or equal to 100",
    );
    refused(set(&many, json!(0), json!("many"), 1), json!("rollout_percentage"), "A valid number");
    refused(set(&many, json!(null), json!(1), 1), json!("condition_index"), "may not be null");
    refused(open(&many, json!({"version": 1})), json!("variant_key"), "control, test");
    refused(
        open(&many, json!({"version": 1, "variant_key": "green"})),
        json!("variant_key"),
        "has no variant 'green'",
    );
    refused(
        open(&plain, json!({"version": 1, "variant_key": "test"})),
        json!("variant_key"),
        "has no variants",
    );
    refused(open(&plain, json!({})), json!("version"), "required");
    assert_eq!(
        (now(&many)["filters"].clone(), changes(&many)),
        (many["filters"].clone(), json!(1))
    );

    // One condition.
    let done = set(&many, json!(1), json!(25), 1);
    assert_eq!((done.status, &done.json()["version"]), (200, &json!(2)), "{done}");
    let mut expected = many["filters"].clone();
    expected["groups"][1]["rollout_percentage"] = json!(25);
    assert_eq!(now(&many)["filters"], expected);
    // What is so already is not written again.
    assert_eq!(set(&many, json!(1), json!("25"), 2).json()["version"], 2);
    assert_eq!(changes(&many), 2);
    let stale = set(&many, json!(0), json!(50), 1);
    let detail = stale.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert_eq!(stale.status, 409, "{stale}");
    assert!(detail.contains("changed since version 1"), "{detail}");
    assert_eq!(open(&many, json!({"version": 1, "variant_key": "test"})).status, 409);
    assert_eq!(set(&many, json!(0), json!(33.5), 2).json()["version"], 3);

    // Everybody.
    let everybody = json!({"properties": [], "rollout_percentage": 100});
    expected["groups"][0]["rollout_percentage"] = json!(33.5);
    expected["groups"].as_array_mut().unwrap().insert(0, everybody.clone());
    expected["multivariate"] = variants(0, 100);
    for version in [3, 4] {
        let answer = open(&many, json!({"version": version, "variant_key": "test"}));
        assert_eq!((answer.status, &answer.json()["version"]), (200, &json!(4)), "{answer}");
        assert_eq!(now(&many)["filters"], expected);
    }
    assert_eq!(changes(&many), 4);
    let mut expected = plain["filters"].clone();
    expected["groups"].as_array_mut().unwrap().insert(0, everybody);
    assert_eq!(
        open(&plain, json!({"version": 1, "variant_key": null})).json()["filters"],
        expected
    );
    let ask = json!({"api_key": TOKEN, "distinct_id": "ada"}).to_string();
    let values = server.send("POST", "/decide/?v=3", &[], ask).json()["featureFlags"].clone();
    assert_eq!((&values["many"], &values["plain"]), (&json!("test"), &json!(true)), "{values}");

    let gone = format!("{FLAGS}{}/", plain["id"]);
    assert_eq!(server.patch(&gone, &json!({"deleted": true})).status, 200);
    let error = "This feature flag has been deleted. Restore it before rolling it out.";
    for answer in [open(&plain, json!({"version": 3})), set(&plain, json!(0), json!(1), 3)] {
        assert_eq!(
            (answer.status, answer.json()),
            (400, json!({"success": false, "error": error}))
        );
    }
    assert_eq!(open(&json!({"id": 999}), json!({"version": 1})).status, 404);
}

/// An empty or unreadable filter deletes nothing. Texts are PostHog's.
#[test]
fn flags_are_deleted_in_numbers_only_by_what_is_said() {
    let server = TestServer::start();
    let make = |key: &str, more: Value| {
        let mut flag = json!({"key": key, "filters": rollout(100)});
        flag.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post(FLAGS, &flag).created()
    };
    let old = json!("2020-01-01T00:00:00Z");
    for (key, more) in [
        ("on", json!({})),
        ("off", json!({"active": false, "created_at": old})),
        ("stale", json!({"created_at": old, "tags": ["x"]})),
        ("away", json!({"archived": true, "active": false})),
        ("under_score", json!({"active": false, "tags": ["y"]})),
    ] {
        make(key, more);
    }
    let bulk = |body: &Value| server.post(&format!("{FLAGS}bulk_delete/"), body);
    let left = || {
        let keys = server.post(&format!("{FLAGS}bulk_keys/"), &json!({"ids": [1, 2, 3, 4, 5]}));
        let keys = keys.json();
        keys["keys"].as_object().expect("keys").len()
    };
    let (neither, both) =
        ("Must provide either filters or ids", "Provide either filters or ids, not both");
    for (body, error) in [
        (json!({}), neither),
        (json!({"filters": {}}), neither),
        (json!({"filters": {}, "ids": []}), neither),
        (json!({"filters": null, "ids": null}), neither),
        (json!({"ids": [1], "filters": {"active": "true"}}), both),
        (json!({"filters": {"colour": 1}}), "Unknown filter keys: colour"),
        (json!({"filters": {"order": "key", "key": "on"}}), "Unknown filter keys: key, order"),
        (
            json!({"filters": {"eligible_for_experiment": true}}),
            "Unknown filter keys: eligible_for_experiment",
        ),
    ] {
        let answer = bulk(&body);
        assert_eq!((answer.status, answer.json()), (400, json!({"error": error})), "{body}");
    }
    for (name, value) in [
        ("active", json!("no")),
        ("active", Value::Null),
        ("search", json!("  ")),
        ("tags", json!([])),
        ("created_by_id", json!("me")),
        ("archived", json!("maybe")),
        ("type", json!("any")),
    ] {
        let answer = bulk(&json!({"filters": {"has_evaluation_contexts": false, name: value}}));
        let told = answer.json();
        let attr = json!(format!("filters__{name}"));
        assert_eq!((answer.status, &told["attr"]), (400, &attr), "{name} {value}: {told}");
    }
    for filters in [json!([1]), json!("all")] {
        assert_eq!(bulk(&json!({"filters": filters})).status, 400, "{filters}");
    }
    assert_eq!(left(), 5);
    for (body, expected) in [
        (json!({"filters": {"search": "r-s"}}), vec![]),
        (json!({"filters": {"tags": ["y"], "type": "multivariant"}}), vec![]),
        (json!({"filters": {"active": "STALE"}}), vec!["stale"]),
        (json!({"filters": {"active": false, "excluded_tags": ["y"]}}), vec!["off"]),
        (json!({"filters": {"search": "r s", "created_by_id": 1}, "ids": []}), vec!["under_score"]),
        (json!({"filters": {"archived": true}}), vec!["away"]),
        (json!({"ids": [1, "1"], "filters": null}), vec!["on"]),
    ] {
        let told = bulk(&body).json();
        let deleted = told["deleted"].as_array().expect("a list").iter();
        let deleted: Vec<&Value> = deleted.map(|flag| &flag["key"]).collect();
        assert_eq!(deleted, expected, "{body}: {told}");
    }
    assert_eq!(left(), 0);
}

/// A flag that was called, but not in the last 30 days, is stale; PostHog shows the time with every
/// flag.
#[test]
fn flags_tell_when_they_were_last_called() {
    let mut server = TestServer::start();
    for key in ["old", "new", "never"] {
        server.post(FLAGS, &json!({"key": key, "filters": rollout(100)})).created();
    }
    let aged =
        json!({"key": "aged", "filters": rollout(100), "created_at": "2020-01-01T00:00:00Z"});
    let aged = server.post(FLAGS, &aged).created();
    assert_eq!((&aged["status"], &aged["last_called_at"]), (&json!("stale"), &Value::Null));
    let called = |flag: &str, timestamp: &str| {
        json!({"event": "$feature_flag_called", "distinct_id": "d", "timestamp": timestamp,
            "properties": {"$feature_flag": flag, "$feature_flag_response": true}})
    };
    let long_ago = "2020-02-03T04:05:06Z";
    let events = json!([
        called("old", long_ago), called("new", long_ago), called("nobody", long_ago),
        {"event": "$feature_flag_called", "distinct_id": "d", "properties": {"$feature_flag": "new"}},
        {"event": "other", "distinct_id": "d", "properties": {"$feature_flag": "never"}},
    ]);
    assert_eq!(server.capture(&events).status, 200);
    let stale = server.get(&format!("{FLAGS}?active=STALE&order=key")).json();
    let keys: Vec<&Value> =
        stale["results"].as_array().expect("flags").iter().map(|flag| &flag["key"]).collect();
    assert_eq!(keys, ["aged", "old"], "{stale}");
    for _ in 0..2 {
        let list = server.get(&format!("{FLAGS}?order=key")).json();
        let told = |at: usize| {
            let flag = &list["results"][at];
            (flag["key"].clone(), flag["status"].clone(), flag["last_called_at"].clone())
        };
        let at = json!("2020-02-03T04:05:06.000000Z");
        assert_eq!(told(3), (json!("old"), json!("stale"), at));
        assert_eq!(told(1), (json!("never"), json!("active"), Value::Null));
        let (key, status, last_called) = told(2);
        assert_eq!((key, status), (json!("new"), json!("active")));
        assert!(last_called.as_str().is_some_and(|at| at > "2021"), "{last_called}");
        let one = server.get(&format!("{FLAGS}{}/", list["results"][2]["id"])).json();
        assert_eq!(one, list["results"][2], "a flag is the same in a list and alone");
        server.kill();
        server.restart();
    }
}
