//! Rights to change flags: the default of the organization, and its exceptions by roles and owners.
//! Levels and texts are those of PostHog's API.

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const DEFAULTS: &str = "/api/organizations/@current/resource_access/";
const ROLES: &str = "/api/organizations/@current/roles/";

fn ask(server: &TestServer, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send(method, path, &headers, body.to_string())
}

#[test]
fn members_who_may_only_look_need_a_role_to_change_a_flag() {
    let mut server = TestServer::start();
    let member = json!({"email": "mel@acme.com", "level": 1});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let key = member["personal_api_key"].as_str().expect("a key").to_owned();
    let flag = server.post(FLAGS, &json!({"key": "of-owner"})).created();
    let path = format!("{FLAGS}{}/", flag["id"]);
    let patch = |server: &TestServer, path: &str| {
        ask(server, &key, "PATCH", path, &json!({"name": "changed"}))
    };
    assert_eq!(patch(&server, &path).status, 200, "nothing is said");

    for (body, code, attr) in [
        (json!({}), "required", "resource"),
        (json!({"resource": "dashboards", "access_level": 21}), "invalid_choice", "resource"),
        (json!({"resource": "feature flags"}), "required", "access_level"),
        (
            json!({"resource": "feature flags", "access_level": 15}),
            "invalid_choice",
            "access_level",
        ),
    ] {
        let answer = server.post(DEFAULTS, &body);
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["code"], &told["attr"]),
            (400, &json!(code), &json!(attr))
        );
    }
    let look = json!({"resource": "feature flags", "access_level": 21});
    assert_eq!(ask(&server, &key, "POST", DEFAULTS, &look).status, 403, "for admins");
    let default = server.post(DEFAULTS, &look).created();
    let twice = server.post(DEFAULTS, &look);
    assert_eq!((twice.status, &twice.json()["code"]), (400, &json!("unique")));
    let list = server.get(DEFAULTS).json();
    assert_eq!((&list["count"], &list["results"][0]), (&json!(1), &default));

    let refused = patch(&server, &path);
    let detail = "You don't have edit permissions for this feature flag.";
    assert_eq!((refused.status, &refused.json()["detail"]), (403, &json!(detail)), "{refused}");
    for step in ["enable", "disable", "archive", "unarchive"] {
        let answer = ask(&server, &key, "POST", &format!("{path}{step}/"), &json!({}));
        assert_eq!(answer.status, 403, "{step}");
    }
    let can_edit = |server: &TestServer| {
        ask(server, &key, "GET", &path, &json!({})).json()["can_edit"].clone()
    };
    assert_eq!(can_edit(&server), false);
    assert_eq!(server.get(&path).json()["can_edit"], true, "an owner may");
    let own = ask(&server, &key, "POST", FLAGS, &json!({"key": "own"})).created();
    assert_eq!(own["can_edit"], true, "{own}");
    assert_eq!(patch(&server, &format!("{FLAGS}{}/", own["id"])).status, 200);
    let matching = format!("{FLAGS}matching_ids/");
    let matching = ask(&server, &key, "GET", &matching, &json!({})).json();
    assert_eq!(matching, json!({"ids": [own["id"]], "total": 1}), "what may be changed");
    assert_eq!(server.get(&format!("{FLAGS}matching_ids/")).json()["total"], 2);
    let ids = json!([flag["id"], own["id"], 999]);
    let body = json!({"ids": ids, "action": "add", "tags": ["x"]});
    let tagged = ask(&server, &key, "POST", &format!("{FLAGS}bulk_update_tags/"), &body);
    assert_eq!(tagged.status, 200, "{tagged}");
    let reason = "Not found or no edit access";
    let skipped = json!([{"id": flag["id"], "reason": reason}, {"id": 999, "reason": reason}]);
    let updated = json!([{"id": own["id"], "tags": ["x"]}]);
    assert_eq!(tagged.json(), json!({"updated": updated, "skipped": skipped}));
    assert_eq!(server.get(&path).json()["tags"], json!([]));
    let deleted = ask(&server, &key, "POST", &format!("{FLAGS}bulk_delete/"), &json!({"ids": ids}));
    let deleted = deleted.json();
    assert_eq!(deleted["deleted"][0]["id"], own["id"], "{deleted}");
    assert_eq!(
        deleted["errors"][0],
        json!({"id": flag["id"], "key": "of-owner", "reason": detail})
    );
    assert_eq!(deleted["errors"][1], json!({"id": 999, "reason": "Flag not found"}));
    assert_eq!(server.get(&path).json()["deleted"], false);

    // A role for this flag; who has it may not give it on.
    let role = json!({"name": "Some", "feature_flags_access_level": 21});
    assert_eq!(ask(&server, &key, "POST", ROLES, &role).status, 403, "for admins");
    let role = server.post(ROLES, &role).created();
    let role_path = format!("{ROLES}{}/", role["id"].as_str().expect("an id"));
    let memberships = format!("{role_path}role_memberships/");
    server.post(&memberships, &json!({"user_uuid": member["user"]["uuid"]})).created();
    assert_eq!(patch(&server, &path).status, 403);
    let access = format!("{path}role_access/");
    let given = json!({"role_id": role["id"]});
    let refused = ask(&server, &key, "POST", &access, &given);
    let detail = "You can't edit roles for this feature flag.";
    assert_eq!((refused.status, &refused.json()["detail"]), (403, &json!(detail)), "{refused}");
    let given = server.post(&access, &given).created();
    assert_eq!((patch(&server, &path).status, can_edit(&server)), (200, json!(true)));
    server.kill();
    server.restart();
    assert_eq!(patch(&server, &path).status, 200, "after a crash too");
    assert_eq!(server.delete(&format!("{access}{}/", given["id"])).status, 204);
    assert_eq!(patch(&server, &path).status, 403);

    // A role for all flags.
    let all = json!({"feature_flags_access_level": 37});
    assert_eq!(server.patch(&role_path, &all).status, 200);
    assert_eq!(patch(&server, &path).status, 200);
    assert_eq!(server.delete(&role_path).status, 204);
    assert_eq!(patch(&server, &path).status, 403);
    let default = format!("{DEFAULTS}{}/", default["id"]);
    let answer = server.patch(&default, &json!({"access_level": 37}));
    assert_eq!((answer.status, &answer.json()["access_level"]), (200, &json!(37)), "{answer}");
    assert_eq!(patch(&server, &path).status, 200);
    assert_eq!(server.patch(&default, &json!({"access_level": 21})).status, 200);
    assert_eq!(patch(&server, &path).status, 403);
    assert_eq!(server.delete(&default).status, 204);
    assert_eq!(server.delete(&default).status, 404);
    assert_eq!(patch(&server, &path).status, 200);
}
