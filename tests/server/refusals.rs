//! Refusals of operations on persons, events, definitions, projects, users, keys and members. Texts are
//! those of the API specification, of PostHog's API, and of Django REST Framework, on which that is built.
//! Successful responses are in `operations`, errors common to all endpoints in `errors`.

use serde_json::{Value, json};

use crate::errors::{error, furnished, send};
use crate::harness::TestServer;
use crate::operations::endpoints;
use crate::owner::{fill_in, text, with};

const REQUIRED: &str = "This field is required.";
const BLANK: &str = "This field may not be blank.";
const NULL: &str = "This field may not be null.";
const NO_BOOLEAN: &str = "Must be a valid boolean.";
const NO_UUID: &str = "Must be a valid UUID.";
const NO_INTEGER: &str = "A valid integer is required.";
const NO_OBJECT: &str = "Invalid pk \"99\" - object does not exist.";
const NO_TIME: &str = "Datetime has wrong format. Use one of these formats instead: \
                       YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].";
const NO_LIST: &str = "Expected a list of items but got type \"str\".";

/// Method, path and query, body, and the 400 error: attr (empty for null), code, detail.
const REFUSALS: &[(&str, &str, &str, &str, &str, &str)] = &[
    // Of these PostHog's code and detail stand in each other's place.
    ("PATCH", "P/persons/:id/", "{}", "properties", REQUIRED, "required"),
    ("PUT", "P/persons/:id/", "", "properties", REQUIRED, "required"),
    ("PATCH", "P/persons/:id/", r#"{"properties": null}"#, "properties", REQUIRED, "required"),
    ("POST", "P/persons/:id/update_property/", r#"{"key": "a"}"#, "value", REQUIRED, "required"),
    ("POST", "P/persons/:id/update_property/", r#"{"value": 1}"#, "key", REQUIRED, "required"),
    (
        "POST",
        "P/persons/:id/update_property/",
        r#"{"key": "a", "value": null}"#,
        "value",
        REQUIRED,
        "required",
    ),
    (
        "POST",
        "P/persons/:id/update_property/",
        r#"{"key": null, "value": 1}"#,
        "key",
        REQUIRED,
        "required",
    ),
    (
        "POST",
        "P/persons/bulk_delete/",
        "{}",
        "",
        "invalid_input",
        "You need to specify either distinct_ids or ids",
    ),
    (
        "POST",
        "P/persons/bulk_delete/",
        r#"{"ids": [], "distinct_ids": []}"#,
        "",
        "invalid_input",
        "You must provide either distinct_ids or ids, not both",
    ),
    ("POST", "P/persons/bulk_delete/", r#"{"ids": ["ann"]}"#, "ids", "invalid_input", NO_UUID),
    (
        "POST",
        "P/persons/bulk_delete/",
        r#"{"distinct_ids": "ann"}"#,
        "distinct_ids",
        "not_a_list",
        NO_LIST,
    ),
    (
        "POST",
        "P/persons/reset_person_distinct_id/",
        "{}",
        "",
        "invalid_input",
        "distinct_id is required",
    ),
    (
        "GET",
        "P/persons/deletion_status/?status=odd",
        "",
        "status",
        "invalid_choice",
        "\"odd\" is not a valid choice.",
    ),
    (
        "GET",
        "P/persons/deletion_status/?person_uuid=1",
        "",
        "person_uuid",
        "invalid_input",
        NO_UUID,
    ),
    ("GET", "P/persons/cohorts/", "", "person_id", "required", REQUIRED),
    ("GET", "P/persons/?cohort=mine", "", "cohort", "invalid_input", NO_INTEGER),
    ("GET", "P/events/purchase/", "", "", "invalid", "Invalid UUID"),
    (
        "GET",
        "P/events/?properties=%7B",
        "",
        "properties",
        "invalid_input",
        "Properties are unparsable!",
    ),
    ("GET", "P/event_definitions/by_name/", "", "name", "required", REQUIRED),
    (
        "GET",
        "P/event_definitions/?event_type=odd",
        "",
        "event_type",
        "invalid_choice",
        "\"odd\" is not a valid choice.",
    ),
    ("PATCH", "P/event_definitions/:id/", r#"{"name": " "}"#, "name", "blank", BLANK),
    ("PATCH", "P/event_definitions/:id/", r#"{"name": null}"#, "name", "null", NULL),
    ("PATCH", "P/event_definitions/:id/", r#"{"tags": "x"}"#, "tags", "not_a_list", NO_LIST),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"tags": ["x", {}]}"#,
        "tags__1",
        "invalid_input",
        "Not a valid string.",
    ),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"created_at": "soon"}"#,
        "created_at",
        "invalid_input",
        NO_TIME,
    ),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"last_seen_at": 7}"#,
        "last_seen_at",
        "invalid_input",
        NO_TIME,
    ),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"post_to_slack": "perhaps"}"#,
        "post_to_slack",
        "invalid_input",
        NO_BOOLEAN,
    ),
    ("PATCH", "P/event_definitions/:id/", r#"{"owner": 99}"#, "owner", "does_not_exist", NO_OBJECT),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"verified": true, "hidden": true}"#,
        "",
        "invalid_input",
        "An event cannot be both hidden and verified",
    ),
    (
        "PATCH",
        "P/property_definitions/:id/",
        r#"{"property_type": "Text"}"#,
        "property_type",
        "invalid_choice",
        "\"Text\" is not a valid choice.",
    ),
    ("PATCH", "P/property_definitions/:id/", r#"{"hidden": null}"#, "hidden", "null", NULL),
    (
        "GET",
        "P/property_definitions/?type=group",
        "",
        "",
        "invalid_input",
        "`group_type_index` must be set for `group` type",
    ),
    (
        "GET",
        "P/property_definitions/?group_type_index=0",
        "",
        "",
        "invalid_input",
        "`group_type_index` can only set for `group` type",
    ),
    (
        "GET",
        "P/property_definitions/?type=group&group_type_index=5",
        "",
        "",
        "invalid_input",
        "Invalid value for `group_type_index`",
    ),
    (
        "GET",
        "P/property_definitions/?type=person&event_names=%5B%22a%22%5D",
        "",
        "",
        "invalid_input",
        "`event_names` can only be set for `event` type",
    ),
    ("POST", "/api/projects/", "{}", "name", "required", REQUIRED),
    ("POST", "/api/projects/", r#"{"name": " "}"#, "name", "blank", BLANK),
    ("POST", "O/projects/", r#"{"name": null}"#, "name", "null", NULL),
    ("PATCH", "P/", r#"{"name": ""}"#, "name", "blank", BLANK),
    (
        "PATCH",
        "P/",
        r#"{"timezone": "Mars/Olympus"}"#,
        "timezone",
        "invalid_choice",
        "\"Mars/Olympus\" is not a valid choice.",
    ),
    (
        "PATCH",
        "O/projects/:id/",
        r#"{"anonymize_ips": "perhaps"}"#,
        "anonymize_ips",
        "invalid_input",
        NO_BOOLEAN,
    ),
    ("PUT", "P/", r#"{"week_start_day": "monday"}"#, "week_start_day", "invalid_input", NO_INTEGER),
    (
        "PATCH",
        "/api/users/:uuid/",
        r#"{"set_current_team": 99}"#,
        "set_current_team",
        "does_not_exist",
        NO_OBJECT,
    ),
    (
        "PATCH",
        "/api/users/:uuid/",
        r#"{"email": "nobody"}"#,
        "email",
        "invalid_input",
        "Enter a valid email address.",
    ),
    ("PATCH", "/api/users/:uuid/", r#"{"first_name": null}"#, "first_name", "null", NULL),
    ("PATCH", "O/", r#"{"name": ""}"#, "name", "blank", BLANK),
    ("POST", "O/members/", "{}", "email", "required", REQUIRED),
    (
        "POST",
        "O/members/",
        r#"{"email": "new@acme.com", "level": 7}"#,
        "level",
        "invalid_choice",
        "\"7\" is not a valid choice.",
    ),
    ("PATCH", "O/members/:uuid/", "{}", "level", "required", REQUIRED),
    ("POST", "/api/personal_api_keys/", r#"{"scopes": ["*"]}"#, "label", "required", REQUIRED),
    ("POST", "/api/personal_api_keys/", r#"{"label": "x"}"#, "scopes", "required", REQUIRED),
    (
        "POST",
        "/api/personal_api_keys/",
        r#"{"label": "x", "scopes": []}"#,
        "scopes",
        "empty",
        "This list may not be empty.",
    ),
    (
        "POST",
        "/api/personal_api_keys/",
        r#"{"label": "x", "scopes": ["*"], "scoped_teams": [99]}"#,
        "scoped_teams",
        "does_not_exist",
        NO_OBJECT,
    ),
    ("PATCH", "/api/personal_api_keys/:id/", r#"{"label": ""}"#, "label", "blank", BLANK),
];

#[test]
fn what_is_wrong_is_refused_in_the_documented_words() {
    let (server, ids) = furnished();
    let json_type = [("content-type", "application/json")];
    for (method, path, body, attr, code, detail) in REFUSALS {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = format!("{}?{query}", fill_in(path, "1", &ids));
        let answer = send(&server, method, &path, &json_type, body);
        let mut expected = error("validation_error", code, detail);
        if !attr.is_empty() {
            expected["attr"] = json!(attr);
        }
        assert_eq!((answer.status, answer.json()), (400, expected), "{method} {path} {body}");
    }
    for (body, attr) in [("ids", "ids"), ("distinct_ids", "distinct_ids")] {
        let many = json!({body: vec!["x"; 1001]});
        let answer = server.post("/api/projects/1/persons/bulk_delete/", &many);
        let detail = format!("You can only pass 1000 {attr} in one call");
        let expected = error("validation_error", "invalid_input", &detail);
        assert_eq!((answer.status, answer.json()), (400, expected), "{body}");
    }
}

/// Unknown and invalid ids, wherever an id is accepted.
#[test]
fn ids_that_name_nothing_are_told_by_every_operation() {
    const NOBODY: &str = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
    let (server, ids) = furnished();
    let missing = || (404, error("invalid_request", "not_found", "Not found."));
    let no_person = "The ID provided does not look like a personID. If you are using a distinctId, \
                     please use /persons?distinct_id=<id> instead.";
    let no_event = format!("No events exist for event UUID {NOBODY}");
    let invalid = |code: &str, detail: &str| (400, error("validation_error", code, detail));
    let not_found = |detail: &str| (404, error("invalid_request", "not_found", detail));
    let mut count = 0;
    for (line, method) in endpoints() {
        let Some(place) = line.path.split('/').find(|part| part.starts_with(':')) else { continue };
        let is_log = line.path == "P/event_definitions/:id/activity/";
        // Refused with any id, and without a body.
        let is_document = matches!(
            line.path.split('/').nth(1),
            Some("actions" | "annotations" | "dashboards" | "insights")
        );
        if method == "DELETE" && is_document {
            continue;
        }
        for id in ["999999", NOBODY, "ann", "99999999999999999999", "-1", "%F0%9F%A6%80"] {
            let is_integer = id.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
            let expected = match line.path.split('/').nth(1) {
                Some("persons") if is_integer || id == NOBODY => missing(),
                Some("persons") => invalid("invalid_input", no_person),
                Some("events") if id == NOBODY => not_found(&no_event),
                Some("events") => invalid("invalid", "Invalid UUID"),
                Some("projects") => not_found("Project not found."),
                // The log also has what became of those that are gone.
                Some("event_definitions") if is_log && id == NOBODY => continue,
                _ => missing(),
            };
            let path = fill_in(&line.path.replace(place, "PLACE"), "1", &ids).replace("PLACE", id);
            let json_type = [("content-type", "application/json")];
            let answer = send(&server, method, &path, &json_type, "{}");
            assert_eq!((answer.status, answer.json()), expected, "{method} {path}");
            count += 1;
        }
    }
    assert!(count > 150, "{count}");
}

/// White space is part of the ids and names in events, hence also of those in management requests.
#[test]
fn ids_and_names_are_taken_as_they_are() {
    let server = TestServer::start();
    let persons = "/api/projects/1/persons/";
    let set = json!({"plan": "a", " plan ": "b"});
    let event = |id: &str| json!({"event": "x", "distinct_id": id, "properties": {"$set": set}});
    assert_eq!(server.capture(&json!([event("ann"), event(" ann ")])).status, 200);
    let find = |id: &str| {
        let page = server.get(&with(persons, &format!("distinct_id={id}"))).json();
        page["results"][0].clone()
    };
    let id = find("ann")["id"].clone();
    let path = format!("{persons}{id}/");
    let answer = server.post(&format!("{path}delete_property/"), &json!({"$unset": " plan "}));
    assert_eq!((answer.status, &answer.json()["properties"]["plan"]), (201, &json!("a")));
    assert_eq!(answer.json()["properties"].get(" plan "), None);
    let value = json!({"key": " plan ", "value": "c"});
    let answer = server.post(&format!("{path}update_property/"), &value);
    let told = answer.json()["properties"].clone();
    assert_eq!((&told["plan"], &told[" plan "]), (&json!("a"), &json!("c")), "{answer}");
    let cohort = json!({"name": "one", "is_static": true, "distinct_ids": [" ann "]});
    let cohort = server.post("/api/projects/1/cohorts/", &cohort).created();
    let page = server.get(&format!("/api/projects/1/cohorts/{}/persons/", cohort["id"])).json();
    assert_eq!(page["results"][0]["distinct_ids"], json!([" ann "]));
    let answer =
        server.post(&format!("{persons}bulk_delete/"), &json!({"distinct_ids": [" ann "]}));
    assert_eq!((answer.status, &answer.json()["persons_deleted"]), (202, &json!(1)), "{answer}");
    assert_eq!((find("ann")["id"].clone(), find(" ann ")), (id, Value::Null));
}

/// Keys and users are visible only to their owners.
#[test]
fn keys_and_users_are_told_to_their_owners_alone() {
    let server = TestServer::start();
    let member = json!({"email": "mel@acme.com", "level": 8});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let theirs = text(&member["personal_api_key"]);
    let mine = server.get("/api/personal_api_keys/@current/").json()["id"].clone();
    let me = text(&server.get("/api/users/@me/").json()["uuid"]);
    let bearer = format!("Bearer {theirs}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let missing = error("invalid_request", "not_found", "Not found.");
    for (method, path) in [
        ("GET", format!("/api/personal_api_keys/{mine}/")),
        ("PATCH", format!("/api/personal_api_keys/{mine}/")),
        ("DELETE", format!("/api/personal_api_keys/{mine}/")),
        ("GET", format!("/api/users/{me}/")),
        ("PATCH", format!("/api/users/{me}/")),
    ] {
        let body = r#"{"label": "stolen", "first_name": "stolen"}"#;
        let answer = server.send(method, &path, &headers, body);
        assert_eq!((answer.status, answer.json()), (404, missing.clone()), "{method} {path}");
    }
    let keys = server.send("GET", "/api/personal_api_keys/", &headers, "").json();
    assert_eq!(
        (&keys["count"], &keys["results"][0]["user_id"]),
        (&json!(1), &member["user"]["id"])
    );
    assert_eq!(server.get("/api/personal_api_keys/").json()["count"], 1);
}
