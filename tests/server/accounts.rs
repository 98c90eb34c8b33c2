//! Projects, users, keys, organizations and members over HTTP, and their permissions. Expectations are those
//! of the API specification and of PostHog's API.

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TOKEN, TestServer};

/// Id of an organization that the server does not have.
const OTHERS: &str = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
const KEYS: &str = "/api/personal_api_keys/";
const MEMBERS: &str = "/api/organizations/@current/members/";

/// Sends a request with another key than the server's own.
fn ask(server: &TestServer, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.send(method, path, &headers, body)
}

fn get(server: &TestServer, key: &str, path: &str) -> Answer {
    ask(server, key, "GET", path, &Value::Null)
}

fn denied(detail: &str) -> Value {
    json!({"type": "authentication_error", "code": "permission_denied", "detail": detail, "attr": null})
}

/// A key with these scopes; returns its value.
fn key_with(server: &TestServer, scopes: Value) -> String {
    server.key(&json!({"label": "test", "scopes": scopes}))
}

#[test]
fn a_key_shows_its_value_once_and_ends_when_revoked() {
    let server = TestServer::start();
    let made = server.post(KEYS, &json!({"label": " ci ", "scopes": ["person:read"]})).created();
    let value = made["value"].as_str().expect("a value");
    assert!(value.starts_with("phx_") && made["label"] == "ci", "{made}");
    assert_eq!(made["scopes"], json!(["person:read"]));
    let page = server.get(KEYS).json();
    assert_eq!(page["count"], 2);
    let listed = &page["results"][1];
    assert_eq!((&listed["id"], listed.get("value")), (&made["id"], None));
    assert!(!page.to_string().contains(value), "no answer has the value again");
    let path = format!("{KEYS}{}/", made["id"]);
    assert_eq!(server.patch(&path, &json!({"label": "nightly"})).json()["label"], "nightly");
    assert_eq!(get(&server, value, "/api/projects/@current/persons/").status, 200);
    assert_eq!(server.delete(&path).status, 204);
    let after = get(&server, value, "/api/projects/@current/persons/");
    assert_eq!((after.status, &after.json()["code"]), (401, &json!("invalid_personal_api_key")));
    assert_eq!(server.get(&path).status, 404);
    for (body, attr, code) in [
        (json!({"scopes": ["*"]}), "label", "required"),
        (json!({"label": "x"}), "scopes", "required"),
        (json!({"label": "", "scopes": ["*"]}), "label", "blank"),
        (json!({"label": "x", "scopes": []}), "scopes", "empty"),
        (json!({"label": "x", "scopes": ["person:delete"]}), "scopes", "invalid_input"),
        (
            json!({"label": "x", "scopes": ["*"], "scoped_teams": [99]}),
            "scoped_teams",
            "does_not_exist",
        ),
        (
            json!({"label": "x", "scopes": ["*"], "scoped_organizations": [OTHERS]}),
            "scoped_organizations",
            "does_not_exist",
        ),
    ] {
        let answer = server.post(KEYS, &body);
        let found = answer.json();
        assert_eq!(
            (answer.status, &found["attr"], &found["code"]),
            (400, &json!(attr), &json!(code)),
            "{body}"
        );
    }
}

/// Clients choose tools by these lists, and do not accept null.
#[test]
fn what_a_key_is_limited_to_is_a_list() {
    let server = TestServer::start();
    let own = server.get("/api/organizations/@current/").json()["id"].clone();
    for (more, projects) in [
        (json!({}), json!([])),
        (json!({"scoped_teams": []}), json!([])),
        (json!({"scoped_teams": [1]}), json!([1])),
        (json!({"scoped_organizations": [own]}), json!([])),
    ] {
        let mut body = json!({"label": "x", "scopes": ["*"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = server.post(KEYS, &body).created();
        let value = made["value"].as_str().expect("a value");
        let told = get(&server, value, &format!("{KEYS}@current/")).json();
        for told in [&made, &told] {
            let limits = (&told["scoped_teams"], &told["scoped_organizations"]);
            assert_eq!(limits, (&projects, &json!([])), "{body}");
        }
    }
}

#[test]
fn a_key_may_what_its_scopes_say() {
    let server = TestServer::start();
    let reader = key_with(&server, json!(["person:read", "personal_api_key:write"]));
    assert_eq!(get(&server, &reader, "/api/projects/@current/persons/").status, 200);
    for (method, path, scope) in [
        ("GET", "/api/projects/@current/event_definitions/", "event_definition:read"),
        ("GET", "/api/projects/@current/feature_flags/", "feature_flag:read"),
        ("POST", "/api/projects/@current/feature_flags/", "feature_flag:write"),
        ("GET", "/api/projects/@current/events/", "query:read"),
        ("GET", "/api/projects/@current/groups_types/", "group:read"),
        ("POST", "/api/projects/@current/query/", "query:read"),
        ("GET", "/api/projects/", "project:read"),
        ("PATCH", "/api/projects/@current/", "project:write"),
        ("GET", "/api/users/@me/", "user:read"),
        ("GET", "/api/organizations/@current/", "organization:read"),
        ("GET", MEMBERS, "organization_member:read"),
    ] {
        let answer = ask(&server, &reader, method, path, &Value::Null);
        let detail = format!("API key missing required scope '{scope}'");
        assert_eq!((answer.status, answer.json()), (403, denied(&detail)), "{method} {path}");
    }
    // Scopes of PostHog's that mean nothing here do no harm.
    let others = json!({"label": "x", "scopes": ["dashboard:read", "survey:write"]});
    assert_eq!(server.post(KEYS, &others).status, 201);
    // A key makes no key that may more than itself.
    for scopes in [json!(["*"]), json!(["person:write"])] {
        let body = json!({"label": "x", "scopes": scopes});
        assert_eq!(ask(&server, &reader, "POST", KEYS, &body).status, 403, "{body}");
    }
    let body = json!({"label": "x", "scopes": ["person:read"]});
    assert_eq!(ask(&server, &reader, "POST", KEYS, &body).status, 201);
}

#[test]
fn without_a_valid_key_nothing_is_told() {
    let server = TestServer::start();
    let missing = server.send("GET", "/api/projects/@current/persons/", &[], "");
    assert_eq!(missing.status, 401);
    assert_eq!(missing.header("www-authenticate"), Some("Bearer"));
    assert_eq!(
        missing.json(),
        json!({"type": "authentication_error", "code": "not_authenticated", "detail": "Authentication credentials were not provided.", "attr": null})
    );
    assert_eq!(
        get(&server, "phx_wrong", "/api/users/@me/").json()["code"],
        "invalid_personal_api_key"
    );
    assert_eq!(
        server.send("GET", &format!("/api/users/@me/?personal_api_key={KEY}"), &[], "").status,
        200
    );
    let unknown = server.get("/api/person/?token=phc_nobody");
    assert_eq!((unknown.status, &unknown.json()["code"]), (401, &json!("authentication_failed")));
    assert_eq!(server.get(&format!("/api/person/?token={TOKEN}")).status, 200);
    let body = server.send(
        "PATCH",
        "/api/users/@me/",
        &[("authorization", &format!("Bearer {KEY}")), ("content-type", "text/plain")],
        "{}",
    );
    assert_eq!((body.status, &body.json()["code"]), (415, &json!("unsupported_media_type")));
    // PostHog also takes a key in a JSON body: behind the header, before the query.
    let posted = |headers: &[(&str, &str)], query: &str, key: &str| {
        let body = json!({"query": "SELECT 1 AS n", "personal_api_key": key}).to_string();
        let headers = [&[("content-type", "application/json")], headers].concat();
        let answer = server.send("POST", &format!("/api/projects/1/query/{query}"), &headers, body);
        (answer.status, answer.json())
    };
    let in_query = format!("?personal_api_key={KEY}");
    let in_header = format!("Bearer {KEY}");
    assert_eq!(posted(&[], "", KEY), (200, json!({"n": 1})));
    assert_eq!(posted(&[("authorization", &in_header)], "", "phx_wrong"), (200, json!({"n": 1})));
    for (headers, query, key) in [
        (vec![], "", "phx_wrong"),
        (vec![], in_query.as_str(), "phx_wrong"),
        (vec![("authorization", "Bearer phx_wrong")], "", KEY),
    ] {
        let (status, body) = posted(&headers, query, key);
        assert_eq!((status, &body["code"]), (401, &json!("invalid_personal_api_key")), "{query}");
    }
    let nothing = server.get("/api/projects/@current/nothing/");
    assert_eq!((nothing.status, &nothing.json()["code"]), (404, &json!("not_found")));
}

#[test]
fn a_project_is_created_changed_and_gets_another_token() {
    let server = TestServer::start();
    let project = server
        .post("/api/projects/", &json!({"name": "Shop", "timezone": "Europe/Berlin"}))
        .created();
    let path = format!("/api/projects/{}/", project["id"]);
    assert_eq!(
        (&project["timezone"], &project["week_start_day"]),
        (&json!("Europe/Berlin"), &json!(0))
    );
    let filters = json!([{"key": "email", "operator": "not_icontains", "value": "@corp.com", "type": "person"}]);
    let patch = json!({
        "name": "Web shop", "timezone": "America/New_York", "week_start_day": 1,
        "test_account_filters": filters, "person_display_name_properties": ["nick"],
    });
    let changed = server.patch(&path, &patch);
    assert_eq!(changed.status, 200, "{changed}");
    for (name, value) in patch.as_object().unwrap() {
        assert_eq!(&changed.json()[name], value, "{name}");
    }
    assert_eq!(server.get(&path).json(), changed.json());
    assert_eq!(server.get(&path.replace("projects", "environments")).json(), changed.json());
    for (body, attr) in [
        (json!({"name": " "}), "name"),
        (json!({"timezone": "Mars/Olympus"}), "timezone"),
        (json!({"timezone": "+02:00"}), "timezone"),
        (json!({"week_start_day": 3}), "week_start_day"),
        (json!({"test_account_filters": {"key": "a"}}), "test_account_filters"),
        (json!({"test_account_filters": [1]}), "test_account_filters"),
        (
            json!({"test_account_filters": [{"type": "hogql", "key": "SELECT 1"}]}),
            "test_account_filters",
        ),
        (json!({"person_display_name_properties": "nick"}), "person_display_name_properties"),
    ] {
        let answer = server.patch(&path, &body);
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)), "{body}");
    }
    let old = project["api_token"].as_str().unwrap();
    let capture = |token: &str| {
        let body = json!({"api_key": token, "event": "x", "distinct_id": "nicky", "properties": {"$set": {"nick": "Nick"}}});
        server
            .send("POST", "/capture/", &[("content-type", "application/json")], body.to_string())
            .status
    };
    assert_eq!(capture(old), 200);
    let persons = server.get(&format!("{path}persons/")).json();
    assert_eq!(persons["results"][0]["name"], "Nick", "the project's own name property");
    let rotated = server.patch(&format!("{path}reset_token/"), &json!({})).json();
    let new = rotated["api_token"].as_str().unwrap();
    assert_ne!(new, old);
    assert_eq!((capture(old), capture(new)), (401, 200));
    // The newer paths of the same.
    let newer = "/api/organizations/@current/projects/";
    assert_eq!(server.get(newer).json()["results"], server.get("/api/projects/").json()["results"]);
    let by_id = format!("{newer}{}/", project["id"]);
    assert_eq!(server.get(&by_id).json(), server.get(&path).json());
    assert_eq!(server.patch(&by_id, &json!({"name": "Shop"})).json()["name"], "Shop");
    assert_eq!(server.post(newer, &json!({})).json()["attr"], "name");
    let missing = server.get(&format!("{newer}99/"));
    assert_eq!((missing.status, &missing.json()["detail"]), (404, &json!("Project not found.")));
    let nowhere = "/api/organizations/0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d/projects/";
    for path in [nowhere.to_owned(), format!("{nowhere}1/")] {
        let missing = server.get(&path);
        let detail = json!("Organization not found.");
        assert_eq!((missing.status, &missing.json()["detail"]), (404, &detail), "{path}");
    }
    let page = server.get("/api/projects/?limit=1").json();
    assert_eq!((&page["count"], &page["results"][0]["id"]), (&json!(2), &json!(1)));
    assert!(page["next"].is_string());
}

#[test]
fn the_user_behind_the_key_is_told_and_changed() {
    let server = TestServer::start();
    let me = server.get("/api/users/@me/").json();
    assert_eq!(
        (&me["id"], &me["team"]["id"], &me["organization"]["membership_level"]),
        (&json!(1), &json!(1), &json!(15))
    );
    let uuid = me["uuid"].as_str().unwrap();
    assert_eq!(server.get(&format!("/api/users/{uuid}/")).json(), me);
    assert_eq!(server.get("/api/users/0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d/").status, 404);
    let (other, _) = server.project("Other");
    let changed =
        server.patch("/api/users/@me/", &json!({"first_name": "Ann", "set_current_team": other}));
    assert_eq!(
        (&changed.json()["first_name"], &changed.json()["team"]["id"]),
        (&json!("Ann"), &json!(other))
    );
    assert_eq!(server.get("/api/projects/@current/").json()["id"], other);
    assert_eq!(server.patch("/api/users/@me/", &json!({"set_current_team": 99})).status, 400);
    assert_eq!(server.patch("/api/users/@me/", &json!({"email": "nobody"})).status, 400);
}

#[test]
fn members_have_levels_and_lose_their_keys() {
    let server = TestServer::start();
    let renamed = server.patch("/api/organizations/@current/", &json!({"name": "Acme"}));
    assert_eq!(renamed.json()["name"], "Acme");
    let id = renamed.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.get(&format!("/api/organizations/{id}/")).json(), renamed.json());
    assert_eq!(server.get("/api/organizations/").json()["count"], 1);
    let missing = server.get("/api/organizations/0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d/");
    assert_eq!(
        (missing.status, &missing.json()["detail"]),
        (404, &json!("Organization not found."))
    );

    let add = |email: &str, level: i64| {
        let member = server.post(MEMBERS, &json!({"email": email, "level": level})).created();
        let key = member["personal_api_key"].as_str().expect("a first key").to_owned();
        (format!("{MEMBERS}{}/", member["id"].as_str().unwrap()), key)
    };
    let (member, member_key) = add("mel@acme.com", 1);
    let (admin, admin_key) = add("ada@acme.com", 8);
    assert_eq!(server.get(MEMBERS).json()["count"], 3);
    assert!(!server.get(MEMBERS).json().to_string().contains(&member_key));
    assert_eq!(get(&server, &member_key, "/api/projects/@current/persons/").status, 200);

    let insufficient = denied("Your organization access level is insufficient.");
    for (method, path) in [
        ("POST", "/api/projects/"),
        ("PATCH", "/api/projects/@current/reset_token/"),
        ("DELETE", "/api/projects/@current/"),
        ("PATCH", "/api/organizations/@current/"),
        ("POST", MEMBERS),
        ("PATCH", member.as_str()),
        ("DELETE", admin.as_str()),
    ] {
        let answer = ask(
            &server,
            &member_key,
            method,
            path,
            &json!({"name": "x", "level": 15, "email": "x@y.z"}),
        );
        assert_eq!((answer.status, answer.json()), (403, insufficient.clone()), "{method} {path}");
    }
    // An admin gives no rights above an admin's, and nobody changes their own.
    let owner =
        format!("{MEMBERS}{}/", server.get("/api/users/@me/").json()["uuid"].as_str().unwrap());
    for (path, level) in [(&member, 15), (&owner, 1), (&admin, 1)] {
        assert_eq!(
            ask(&server, &admin_key, "PATCH", path, &json!({"level": level})).status,
            400,
            "{path}"
        );
    }
    assert_eq!(ask(&server, &admin_key, "PATCH", &member, &json!({"level": 8})).json()["level"], 8);
    assert_eq!(server.patch(&member, &json!({"level": 7})).json()["attr"], "level");
    assert_eq!(server.delete(&owner).status, 400, "an organization needs an owner");
    assert_eq!(server.post(MEMBERS, &json!({"email": "mel@acme.com"})).json()["code"], "unique");

    assert_eq!(server.delete(&member).status, 204);
    assert_eq!(get(&server, &member_key, "/api/users/@me/").status, 401, "its keys end with it");
    assert_eq!(server.delete(&member).status, 404);
    assert_eq!(server.get(MEMBERS).json()["count"], 2);
    let (again, key) = add("mel@acme.com", 1);
    assert_eq!(again, member, "who comes back is the same");
    assert_eq!(get(&server, &key, "/api/users/@me/").status, 200);
}

/// Goal: by inviting, promoting or giving roles a key lets nobody do what it may not do itself.
#[test]
fn a_key_gives_nobody_more_than_it_has() {
    let server = TestServer::start();
    let project = "/api/projects/1";
    let narrow = key_with(&server, json!(["organization_member:write", "organization:write"]));
    let invite = |key: &str, email: &str, level: i64| {
        ask(&server, key, "POST", MEMBERS, &json!({"email": email, "level": level}))
    };
    let too_much =
        denied("Only an API key with all scopes gives somebody a level above a member's.");
    for level in [8, 15] {
        let refused = invite(&narrow, "eve@acme.com", level);
        assert_eq!((refused.status, refused.json()), (403, too_much.clone()), "{level}");
    }
    let member = invite(&narrow, "mel@acme.com", 1).created();
    let mel = member["personal_api_key"].as_str().expect("a first key");
    let own = get(&server, mel, "/api/personal_api_keys/@current/");
    assert_eq!(own.status, 403, "its scopes are those of the key that invited: {own}");
    let members = get(&server, mel, MEMBERS).json();
    assert_eq!(members["count"], 2, "{members}");
    for (path, body) in [
        (format!("{project}/query/"), json!({"query": "SELECT 1"})),
        (format!("{project}/feature_flags/"), json!({"key": "a"})),
        (KEYS.to_owned(), json!({"label": "x", "scopes": ["*"]})),
        (KEYS.to_owned(), json!({"label": "x", "scopes": ["organization_member:write"]})),
    ] {
        assert_eq!(ask(&server, mel, "POST", &path, &body).status, 403, "{path}");
    }
    // Nor whom it knows: the other keys of a member may more than this one.
    let path = format!("{MEMBERS}{}/", member["id"].as_str().expect("an id"));
    for level in [8, 15] {
        let refused = ask(&server, &narrow, "PATCH", &path, &json!({"level": level}));
        assert_eq!((refused.status, refused.json()), (403, too_much.clone()), "{level}");
    }
    assert_eq!(ask(&server, &narrow, "PATCH", &path, &json!({"level": 1})).status, 200);
    let admin = invite(KEY, "ada@acme.com", 8).created();
    let admin = admin["personal_api_key"].as_str().expect("a first key");
    let told = get(&server, admin, "/api/personal_api_keys/@current/").json();
    assert_eq!(told["scopes"], json!(["*"]));
    assert_eq!(ask(&server, admin, "PATCH", &path, &json!({"level": 15})).status, 400, "an owner");
    assert_eq!(ask(&server, admin, "PATCH", &path, &json!({"level": 8})).status, 200);
    assert_eq!(ask(&server, &narrow, "PATCH", &path, &json!({"level": 1})).status, 200, "less");
    // Roles and defaults say who may change flags.
    let roles = "/api/organizations/@current/roles/";
    let role = server.post(roles, &json!({"name": "Some"})).created();
    let one = format!("{roles}{}/", role["id"].as_str().expect("an id"));
    let defaults = "/api/organizations/@current/resource_access/";
    let look = json!({"resource": "feature flags", "access_level": 21});
    let default = server.post(defaults, &look).created();
    let default = format!("{defaults}{}/", default["id"]);
    let missing = denied("API key missing required scope 'feature_flag:write'");
    let user = json!({"user_uuid": member["user"]["uuid"]});
    for (method, path, body) in [
        ("POST", roles, json!({"name": "All", "feature_flags_access_level": 37})),
        ("PATCH", &one, json!({"feature_flags_access_level": 37})),
        ("POST", &format!("{one}role_memberships/"), user.clone()),
        ("POST", defaults, look),
        ("PATCH", &default, json!({"access_level": 37})),
        ("DELETE", &default, Value::Null),
    ] {
        let refused = ask(&server, &narrow, method, path, &body);
        assert_eq!((refused.status, refused.json()), (403, missing.clone()), "{method} {path}");
    }
    let wide = key_with(&server, json!(["organization:write", "feature_flag:write"]));
    assert_eq!(ask(&server, &wide, "POST", &format!("{one}role_memberships/"), &user).status, 201);
    // What a flag or a cohort leads to has scopes of its own.
    let flag = server.post(&format!("{project}/feature_flags/"), &json!({"key": "a"})).created();
    let flag = format!("{project}/feature_flags/{}", flag["id"]);
    let cohort = json!({"name": "c", "is_static": true});
    let cohort = server.post(&format!("{project}/cohorts/"), &cohort).created();
    let of_flags = key_with(&server, json!(["feature_flag:write", "cohort:read"]));
    for (method, path, scope) in [
        ("POST", format!("{flag}/create_static_cohort_for_flag/"), "cohort:write"),
        ("POST", format!("{flag}/dashboard/"), "dashboard:write"),
        ("POST", format!("{flag}/enrich_usage_dashboard/"), "dashboard:write"),
        ("GET", format!("{project}/cohorts/{}/persons/", cohort["id"]), "person:read"),
    ] {
        let refused = ask(&server, &of_flags, method, &path, &json!({}));
        let missing = denied(&format!("API key missing required scope '{scope}'"));
        assert_eq!((refused.status, refused.json()), (403, missing), "{path}");
    }
}

/// Django REST Framework's text for a client above its rate limit.
#[test]
fn a_key_that_asks_too_often_is_told_to_wait() {
    let server = TestServer::start_with(&[("WEIR_KEY_REQUESTS_PER_HOUR_MAX", "5")]);
    let path = "/api/projects/@current/persons/";
    for _ in 0..5 {
        assert_eq!(server.get(path).status, 200);
    }
    let refused = server.get(path);
    let seconds = refused.header("retry-after").and_then(|text| text.parse().ok());
    let seconds: u32 = seconds.unwrap_or_else(|| panic!("no Retry-After: {refused}"));
    // One in twelve minutes, from the first request on.
    assert!((600..=720).contains(&seconds), "{seconds}");
    let detail = format!("Request was throttled. Expected available in {seconds} seconds.");
    let body =
        json!({"type": "throttled_error", "code": "throttled", "detail": detail, "attr": null});
    assert_eq!((refused.status, refused.json()), (429, body));
    let query = json!({"query": "SELECT 1"});
    assert_eq!(server.post("/api/projects/@current/query/", &query).status, 429, "all endpoints");
    let wrong = server.send("GET", path, &[("authorization", "Bearer phx_wrong")], "");
    assert_eq!(wrong.status, 401, "only valid keys are counted");
    assert_eq!(server.capture(&json!([{"event": "x", "distinct_id": "a"}])).status, 200);
}

/// PostHog's limits for persons and queries are lower than the general ones.
#[test]
fn persons_and_queries_may_have_lower_limits() {
    let server = TestServer::start_with(&[("WEIR_KEY_ANALYTICS_REQUESTS_PER_HOUR_MAX", "3")]);
    let query = json!({"query": "SELECT 1"});
    assert_eq!(server.get("/api/projects/1/persons/").status, 200);
    assert_eq!(server.post("/api/projects/1/query/", &query).status, 200);
    assert_eq!(server.get("/api/event/").status, 200);
    for answer in [
        server.get("/api/projects/1/persons/values/?key=a"),
        server.get("/api/projects/1/events/"),
        server.post("/api/projects/1/query/", &query),
        // When flags were last called is told by events.
        server.get("/api/projects/1/feature_flags/?active=stale"),
        server.get("/api/projects/1/feature_flags/matching_ids/?active=STALE"),
    ] {
        assert_eq!((answer.status, &answer.json()["code"]), (429, &json!("throttled")));
        assert!(answer.header("retry-after").is_some(), "{answer}");
    }
    let others = ["event_definitions/", "property_definitions/", "feature_flags/?active=true", ""];
    for path in others {
        assert_eq!(server.get(&format!("/api/projects/1/{path}")).status, 200, "{path}");
    }
    let other = key_with(&server, json!(["person:read"]));
    assert_eq!(get(&server, &other, "/api/projects/1/persons/").status, 200, "each key its own");
}
