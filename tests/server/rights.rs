//! Rights: a caller with read access to flags changes none by any endpoint of the table, endpoints for
//! admins or with a second scope refuse others, and a refused request changes nothing.

use serde_json::{Value, json};
use weir_http::table::{Endpoint, TABLE};

use crate::harness::{Answer, TOKEN, TestServer, send_known_fields};
use crate::owner::{Owner, fill_in};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const ORGANIZATION: &str = "/api/organizations/@current/";
const NO_EDITOR: &str = "You don't have edit permissions for this feature flag.";

/// A body that would do harm wherever it is accepted.
const HARM: &str = r#"{
    "name": "stolen", "key": "stolen", "tags": ["stolen"], "deleted": true, "active": false,
    "ids": [FLAG], "action": "set", "role_id": "ROLE", "property_matching_version": 2,
    "record_id": "FLAG", "model_name": "FeatureFlag", "scheduled_at": "2020-01-01T00:00:00Z",
    "payload": {"operation": "update_status", "value": false},
    "feature_flag_key": "of-alpha", "from_project": 1, "target_project_ids": [1],
    "disable_copied_flag": true
}"#;

/// Endpoints whose refusal is not that the flag may not be changed.
const OTHERWISE: &[(&str, &str, u16)] = &[
    // Of one's own everything may be made, and what was found out about a flag is none.
    ("POST", "P/feature_flags/", 201),
    ("POST", "P/feature_flags/:id/create_static_cohort_for_flag/", 201),
    ("DELETE", "P/feature_flags/:id/", 405),
    // They tell for each flag what became of it.
    ("POST", "P/feature_flags/bulk_delete/", 200),
    ("POST", "P/feature_flags/bulk_update_tags/", 200),
    ("POST", "O/feature_flags/copy_flags/", 200),
];

fn created(answer: Answer) -> Value {
    assert!(matches!(answer.status, 200 | 201), "{answer}");
    answer.json()
}

fn ask(server: &TestServer, key: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send(method, path, &headers, body)
}

/// The key of a new member, and the member.
fn member(server: &TestServer, email: &str) -> (String, Value) {
    let new = json!({"email": email, "level": 1});
    let member = created(server.post(&format!("{ORGANIZATION}members/"), &new));
    (member["personal_api_key"].as_str().expect("a key").to_owned(), member["user"].clone())
}

fn key_with(server: &TestServer, scopes: &[&str]) -> String {
    let body = json!({"label": "x", "scopes": scopes});
    let key = created(server.post("/api/personal_api_keys/", &body));
    key["value"].as_str().expect("a value").to_owned()
}

fn restrict(server: &TestServer) {
    let look = json!({"resource": "feature flags", "access_level": 21});
    created(server.post(&format!("{ORGANIZATION}resource_access/"), &look));
}

fn writes() -> impl Iterator<Item = (&'static Endpoint, &'static str)> {
    let lines = TABLE.iter().filter(|line| line.scope == "feature_flag:write");
    lines.flat_map(|line| line.methods().map(move |method| (line, method)))
}

#[test]
fn who_may_only_look_changes_nothing_by_no_endpoint() {
    let server = TestServer::start();
    let alpha = Owner::fill(&server, 1, TOKEN, "alpha");
    let (key, _) = member(&server, "mel@acme.com");
    restrict(&server);
    let flag = format!("{FLAGS}{}/", alpha.ids["FLAG"]);
    let harm = ["FLAG", "ROLE"]
        .iter()
        .fold(HARM.to_owned(), |text, name| text.replace(name, &alpha.ids[name]));
    let state = || {
        let told = ["", "role_access/", "activity/"].map(|more| format!("{flag}{more}"));
        let more = ["feature_flags/settings/", "scheduled_changes/"];
        let more = more.map(|path| format!("/api/projects/1/{path}"));
        [&told[..], &more].concat().iter().map(|path| server.get(path).json()).collect::<Vec<_>>()
    };
    let before = state();
    let mut count = 0;
    for (line, method) in writes() {
        let path = fill_in(line.path, "1", &alpha.ids);
        let answer = send_known_fields(&harm, |body| ask(&server, &key, method, &path, body));
        let told = OTHERWISE.iter().find(|(own, of, _)| (*own, *of) == (method, line.path));
        // Many tags at once are all or nothing, or told one by one.
        let is_many = line.path.ends_with("/bulk_update_tags/") && answer.status == 403;
        assert!(
            is_many || answer.status == told.map_or(403, |(.., status)| *status),
            "{method} {path}: {answer}"
        );
        assert_eq!(state(), before, "{method} {path}: {answer}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

#[test]
fn a_copy_that_may_not_be_made_leaves_no_cohort() {
    let server = TestServer::start();
    let other = created(server.post("/api/projects/", &json!({"name": "Other"})));
    let other = format!("/api/projects/{}/", other["id"]);
    let rule = json!({"properties": {"type": "OR", "values": [{"key": "plan", "value": "pro"}]}});
    let cohort = json!({"name": "Pro", "filters": rule});
    let cohort = created(server.post("/api/projects/1/cohorts/", &cohort));
    let asks = json!({"key": "id", "type": "cohort", "value": cohort["id"]});
    let flag = json!({"key": "a", "filters": {"groups": [{"properties": [asks]}]}});
    created(server.post(FLAGS, &flag));
    created(server.post(&format!("{other}feature_flags/"), &json!({"key": "a"})));
    let body = json!({"feature_flag_key": "a", "from_project": 1, "target_project_ids": [2]});
    let copy = |key: &str| {
        let path = format!("{ORGANIZATION}feature_flags/copy_flags/");
        ask(&server, key, "POST", &path, &body.to_string())
    };
    let cohorts = || server.get(&format!("{other}cohorts/")).json()["count"].clone();
    // A copy that would make a cohort needs the right to make one.
    let narrow = key_with(&server, &["feature_flag:write"]);
    let refused = copy(&narrow);
    let detail = "API key missing required scope 'cohort:write'";
    assert_eq!((refused.status, &refused.json()["detail"]), (403, &json!(detail)), "{refused}");
    let (key, _) = member(&server, "mel@acme.com");
    restrict(&server);
    let failed = copy(&key);
    assert_eq!(failed.json()["failed"][0]["error_message"], NO_EDITOR, "{failed}");
    assert_eq!(cohorts(), 0);
    let wide = key_with(&server, &["feature_flag:write", "cohort:write"]);
    let copied = copy(&wide);
    assert_eq!((&copied.json()["failed"], cohorts()), (&json!([]), json!(1)), "{copied}");
    // Where the cohort is, none is made.
    assert_eq!(copy(&narrow).json()["failed"], json!([]));
}

#[test]
fn some_things_need_an_admin_or_a_second_scope() {
    let server = TestServer::start();
    let (key, _) = member(&server, "mel@acme.com");
    for method in ["POST", "PATCH"] {
        let path = "/api/projects/1/rotate_secret_token/";
        let answer = ask(&server, &key, method, path, "{}");
        let detail = "Your organization access level is insufficient.";
        assert_eq!((answer.status, &answer.json()["detail"]), (403, &json!(detail)), "{method}");
    }
    let flag = created(server.post(FLAGS, &json!({"key": "a"})));
    let path = format!("{FLAGS}{}/test_evaluation/", flag["id"]);
    let body = json!({"distinct_id": "ada"}).to_string();
    let narrow = key_with(&server, &["feature_flag:read"]);
    let answer = ask(&server, &narrow, "POST", &path, &body);
    let detail = "API key missing required scope 'person:read'";
    assert_eq!((answer.status, &answer.json()["detail"]), (403, &json!(detail)), "{answer}");
    let wide = key_with(&server, &["feature_flag:read", "person:read"]);
    assert_eq!(ask(&server, &wide, "POST", &path, &body).status, 200);
}

#[test]
fn who_was_removed_is_in_no_role_and_comes_back_without() {
    let server = TestServer::start();
    let (_, mel) = member(&server, "mel@acme.com");
    let roles = format!("{ORGANIZATION}roles/");
    let role = created(server.post(&roles, &json!({"name": "Some"})));
    let memberships = format!("{roles}{}/role_memberships/", role["id"].as_str().expect("an id"));
    let has = json!({"user_uuid": mel["uuid"]});
    created(server.post(&memberships, &has));
    let gone = format!("{ORGANIZATION}members/{}/", mel["uuid"].as_str().expect("an id"));
    assert_eq!(server.delete(&gone).status, 204);
    assert_eq!(server.get(&memberships).json()["count"], 0);
    let answer = server.post(&memberships, &has);
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("does_not_exist")));
    member(&server, "mel@acme.com");
    assert_eq!(server.get(&memberships).json()["count"], 0);
}

#[test]
fn a_project_that_is_refused_is_not_there() {
    let server = TestServer::start();
    for path in ["/api/projects/".to_owned(), format!("{ORGANIZATION}projects/")] {
        let answer = server.post(&path, &json!({"name": "Shop", "week_start_day": 3}));
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!("week_start_day")));
        let count = server.get("/api/projects/").json()["count"].clone();
        assert_eq!(count, 1, "{path}");
    }
    let shop = json!({"name": "Shop", "week_start_day": 1, "timezone": "Europe/Berlin"});
    let made = created(server.post("/api/projects/", &shop));
    assert_eq!((&made["week_start_day"], &made["timezone"]), (&json!(1), &json!("Europe/Berlin")));
}

/// A bulk deletion of too many flags is refused; none is omitted from the report.
#[test]
fn a_bulk_deletion_tells_of_every_flag_or_is_refused() {
    let server = TestServer::start();
    let flag = created(server.post(FLAGS, &json!({"key": "a"})));
    let mut ids: Vec<i64> = (1_000_000..1_010_000).collect();
    ids.push(flag["id"].as_i64().expect("an id"));
    let path = format!("{FLAGS}bulk_delete/");
    let refused = server.post(&path, &json!({"ids": ids}));
    let detail = "At most 10000 flags can be deleted at once.";
    assert_eq!((refused.status, &refused.json()["detail"]), (400, &json!(detail)));
    let told = server.post(&path, &json!({"ids": ids[1..]})).json();
    let lengths = ["deleted", "errors"].map(|name| told[name].as_array().expect("a list").len());
    assert_eq!(lengths, [1, 9999]);
}

/// The user's current project differs from the project of the key: objects of the organization are
/// accessible.
#[test]
fn a_key_of_one_project_asks_for_the_organization_alike_everywhere() {
    let server = TestServer::start();
    let other = created(server.post("/api/projects/", &json!({"name": "Other"})));
    let limited = json!({"label": "x", "scopes": ["*"], "scoped_teams": [other["id"]]});
    let limited = created(server.post("/api/personal_api_keys/", &limited));
    let limited = limited["value"].as_str().expect("a value");
    for (path, status) in [
        ("", 200),
        ("projects/", 200),
        ("roles/", 200),
        ("resource_access/", 200),
        ("feature_flags/keys/", 200),
        ("feature_flags/a/", 200),
    ] {
        let answer = ask(&server, limited, "GET", &format!("{ORGANIZATION}{path}"), "");
        assert_eq!(answer.status, status, "{path}: {answer}");
    }
    let role = ask(&server, limited, "POST", &format!("{ORGANIZATION}roles/"), r#"{"name": "x"}"#);
    assert_eq!(role.status, 403, "{role}");
}
