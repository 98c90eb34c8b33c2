//! Scheduled changes of flags over HTTP: fields, filters and errors of PostHog's API, and that they are
//! made on time, also by the server that starts after a crash. The exact times are tested next to the
//! rules.

use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer, patiently};

const CHANGES: &str = "/api/projects/1/scheduled_changes/";
const FLAGS: &str = "/api/projects/1/feature_flags/";
const LATER: &str = "2099-01-02T03:04:05Z";

fn create_flag(server: &TestServer, key: &str) -> Value {
    let answer = server.post(FLAGS, &json!({"key": key}));
    assert_eq!(answer.status, 201, "{answer}");
    answer.json()
}

fn switch(flag: &Value, active: bool, at: &str) -> Value {
    json!({
        "record_id": flag["id"], "model_name": "FeatureFlag", "scheduled_at": at,
        "payload": {"operation": "update_status", "value": active},
    })
}

fn schedule(server: &TestServer, body: &Value) -> Value {
    let answer = server.post(CHANGES, body);
    assert_eq!(answer.status, 201, "{answer}");
    answer.json()
}

fn is_on(server: &TestServer, key: &str) -> bool {
    let body = json!({"api_key": TOKEN, "distinct_id": "ada"}).to_string();
    let answer = server.send("POST", "/flags/?v=2", &[], body).json();
    answer["flags"][key]["enabled"] == true
}

/// The change once it is over.
fn executed(server: &TestServer, change: &Value) -> Value {
    let path = format!("{CHANGES}{}/", change["id"]);
    let over = patiently(|| {
        let change = server.get(&path).json();
        change["executed_at"].is_string().then_some(change)
    });
    over.expect("the change is executed")
}

/// A time that has just passed.
const NOW: &str = "2020-01-01T00:00:00Z";

#[test]
fn scheduled_changes_have_their_fields_and_are_listed_changed_and_deleted() {
    let server = TestServer::start();
    let (a, b) = (create_flag(&server, "a"), create_flag(&server, "b"));
    let change = schedule(&server, &switch(&a, false, LATER));
    let expected = json!({
        "id": 1, "team_id": 1, "record_id": a["id"].to_string(), "model_name": "FeatureFlag",
        "payload": {"operation": "update_status", "value": false},
        "scheduled_at": "2099-01-02T03:04:05.000000Z", "executed_at": null, "failure_reason": null,
        "created_at": change["created_at"], "created_by": a["created_by"],
        "updated_at": change["updated_at"], "is_recurring": false, "recurrence_interval": null,
        "cron_expression": null, "last_executed_at": null, "end_date": null, "timezone": "UTC",
    });
    assert_eq!(change, expected);
    let mut cron = switch(&b, true, LATER);
    cron["is_recurring"] = json!(true);
    cron["cron_expression"] = json!("0 9 * * 1-5");
    cron["end_date"] = json!("2100-01-01T00:00:00Z");
    let cron = schedule(&server, &cron);
    assert_eq!(cron["cron_expression"], "0 9 * * 1-5", "{cron}");
    for (query, expected) in [
        ("", vec![&change, &cron]),
        ("?model_name=FeatureFlag", vec![&change, &cron]),
        ("?model_name=Survey", vec![]),
        ("?record_id=2", vec![&cron]),
        ("?record_id=x", vec![]),
        ("?limit=1&offset=1", vec![&cron]),
    ] {
        let list = server.get(&format!("{CHANGES}{query}")).json();
        let results: Vec<&Value> = list["results"].as_array().expect("a list").iter().collect();
        assert_eq!(results, expected, "{query}");
    }
    assert_eq!(server.get(&format!("{CHANGES}?limit=1")).json()["count"], 2);
    let path = format!("{CHANGES}{}/", change["id"]);
    assert_eq!(server.get(&path).json(), change);
    let patch = json!({"is_recurring": true, "recurrence_interval": "weekly",
        "scheduled_at": "2098-01-01T00:00:00+01:00"});
    let changed = server.patch(&path, &patch).json();
    assert_eq!(changed["recurrence_interval"], "weekly", "{changed}");
    assert_eq!(changed["scheduled_at"], "2097-12-31T23:00:00.000000Z");
    assert_eq!(changed["payload"], change["payload"]);
    let gone = server.delete(&path);
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    for path in [&path, &format!("{CHANGES}x/"), &format!("{CHANGES}99/")] {
        assert_eq!(server.get(path).status, 404, "{path}");
        assert_eq!(server.patch(path, &json!({})).status, 404, "{path}");
        assert_eq!(server.delete(path).status, 404, "{path}");
    }
}

#[test]
fn what_cannot_be_scheduled_is_told() {
    let server = TestServer::start();
    let flag = create_flag(&server, "a");
    let good = switch(&flag, false, LATER);
    let both = "Cannot set both cron_expression and recurrence_interval. Use one or the other.";
    let fields = "Only standard 5-field cron expressions are supported (minute hour day month weekday). Example: '0 9 * * 1-5'.";
    let cron = "Invalid cron expression. Use standard 5-field cron syntax (e.g., '0 9 * * 1-5').";
    let none =
        "Either recurrence_interval or cron_expression is required when is_recurring is true.";
    let appends = "Recurring schedules are not supported for add_release_condition because it appends conditions on each run, creating duplicates.";
    let required = "This field is required.";
    let interval_of_new =
        "Cannot set recurrence_interval when is_recurring is false for new schedules.";
    let cron_of_new = "Cannot set cron_expression when is_recurring is false for new schedules.";
    let add = json!({"operation": "add_release_condition", "value": {"groups": []}});
    for (change, code, attr, detail) in [
        (json!({"record_id": null}), "null", json!("record_id"), "This field may not be null."),
        (json!({"record_id": " "}), "blank", json!("record_id"), "This field may not be blank."),
        (json!({"record_id": "99"}), "invalid_input", json!(null), "Feature flag not found"),
        (json!({"record_id": "a"}), "invalid_input", json!(null), "Feature flag not found"),
        (
            json!({"model_name": "Survey"}),
            "invalid_choice",
            json!("model_name"),
            "\"Survey\" is not a valid choice.",
        ),
        (
            json!({"payload": {"operation": "explode", "value": 1}}),
            "invalid_input",
            json!("payload"),
            "Unrecognized operation: explode",
        ),
        (json!({"payload": [1]}), "invalid_input", json!("payload"), "Invalid payload"),
        (
            json!({"is_recurring": "maybe"}),
            "invalid_input",
            json!("is_recurring"),
            "Must be a valid boolean.",
        ),
        (
            json!({"recurrence_interval": "hourly"}),
            "invalid_choice",
            json!("recurrence_interval"),
            "\"hourly\" is not a valid choice.",
        ),
        (
            json!({"recurrence_interval": "daily", "cron_expression": "0 0 * * *"}),
            "invalid_input",
            json!("cron_expression"),
            both,
        ),
        (
            json!({"is_recurring": true, "cron_expression": "@daily"}),
            "invalid_input",
            json!("cron_expression"),
            fields,
        ),
        (
            json!({"is_recurring": true, "cron_expression": "61 0 * * *"}),
            "invalid_input",
            json!("cron_expression"),
            cron,
        ),
        (
            json!({"is_recurring": true, "cron_expression": "0 0 30 2 *"}),
            "invalid_input",
            json!("cron_expression"),
            cron,
        ),
        (json!({"is_recurring": true}), "invalid_input", json!("recurrence_interval"), none),
        (
            json!({"is_recurring": true, "recurrence_interval": "daily", "payload": add}),
            "invalid_input",
            json!("payload"),
            appends,
        ),
        (
            json!({"recurrence_interval": "daily"}),
            "invalid_input",
            json!("recurrence_interval"),
            interval_of_new,
        ),
        (
            json!({"cron_expression": "0 0 * * *"}),
            "invalid_input",
            json!("cron_expression"),
            cron_of_new,
        ),
        (
            json!({"end_date": LATER}),
            "invalid_input",
            json!("end_date"),
            "End date must be after the scheduled start date.",
        ),
    ] {
        let mut body = good.clone();
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        let answer = server.post(CHANGES, &body);
        let told = answer.json();
        assert_eq!(answer.status, 400, "{change}: {answer}");
        assert_eq!(
            (&told["type"], &told["code"]),
            (&json!("validation_error"), &json!(code)),
            "{change}"
        );
        assert_eq!((&told["attr"], &told["detail"]), (&attr, &json!(detail)), "{change}");
    }
    for name in ["record_id", "model_name", "payload", "scheduled_at"] {
        let mut body = good.clone();
        body.as_object_mut().expect("an object").remove(name);
        let told = server.post(CHANGES, &body).json();
        assert_eq!((&told["attr"], &told["detail"]), (&json!(name), &json!(required)));
    }
    assert_eq!(server.get(CHANGES).json()["count"], 0, "nothing was scheduled");
    let change = schedule(&server, &good);
    let path = format!("{CHANGES}{}/", change["id"]);
    let told = server.patch(&path, &json!({"record_id": "99"})).json();
    assert_eq!(told["detail"], "Cannot change the target record of an existing scheduled change.");
}

#[test]
fn changes_are_made_in_time_and_logged_as_made_by_who_scheduled_them() {
    let mut server = TestServer::start();
    let (a, b) = (create_flag(&server, "a"), create_flag(&server, "b"));
    assert!(is_on(&server, "a"));
    let change = schedule(&server, &switch(&a, false, NOW));
    let over = executed(&server, &change);
    assert_eq!(over["failure_reason"], Value::Null, "{over}");
    assert!(!is_on(&server, "a"));
    let log = server.get(&format!("{FLAGS}{}/activity/", a["id"])).json();
    let entry = &log["results"][0];
    assert_eq!(
        (&entry["activity"], &entry["user"]["email"]),
        (&json!("updated"), &a["created_by"]["email"])
    );
    assert_eq!(entry["detail"]["changes"][0]["field"], "active", "{log}");
    let trigger = &entry["detail"]["trigger"];
    assert_eq!(
        (&trigger["job_type"], &trigger["job_id"]),
        (&json!("scheduled_change"), &json!("1"))
    );
    let late =
        server.patch(&format!("{CHANGES}{}/", change["id"]), &json!({"scheduled_at": LATER}));
    let detail = "Cannot modify a scheduled change that has already executed.";
    assert_eq!((late.status, &late.json()["detail"]), (400, &json!(detail)));

    // What cannot be made any more says why.
    let variants = json!({"variants": [{"key": "x", "rollout_percentage": 10}]});
    let mut bad = switch(&b, true, NOW);
    bad["payload"] = json!({"operation": "update_variants", "value": variants});
    let failed = executed(&server, &schedule(&server, &bad));
    let reason = failed["failure_reason"].as_str().expect("a reason");
    assert_eq!(
        reason,
        "Invalid variant definitions: Variant rollout percentages must sum to 100. (permanent error)"
    );

    // The next server makes what this one did not live to see.
    let change = schedule(&server, &switch(&b, false, LATER));
    server.kill();
    server.restart();
    assert!(is_on(&server, "b"));
    let path = format!("{CHANGES}{}/", change["id"]);
    assert_eq!(server.patch(&path, &json!({"scheduled_at": NOW})).status, 200);
    server.kill();
    server.restart();
    executed(&server, &change);
    assert!(!is_on(&server, "b"));
    assert_eq!(server.get(&format!("{FLAGS}{}/", b["id"])).json()["version"], 2, "made once");
}
