//! Forms of flags, cohorts, early access features, definitions and persons: every one makes the change of the API that it says, and
//! what is refused is shown beside what was typed.

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TestServer, patiently};
use crate::support::forms::post;

const HOSTILE: &str =
    "<script>window.__hit=1</script>\"'><img src=x onerror=hit></textarea>\u{202e}";

fn text(answer: &Answer) -> String {
    let text = String::from_utf8(answer.body.clone()).expect("UTF-8");
    for element in ["<script>window", "<img src=x", "</textarea>\u{202e}"] {
        assert!(!text.contains(element), "{element}: {text}");
    }
    text
}

fn done(server: &TestServer, path: &str, fields: &[(&str, &str)]) -> String {
    let answer = post(server, path, fields);
    assert_eq!(answer.status, 303, "{path} {fields:?}: {answer}");
    answer.header("location").expect("a location").to_owned()
}

fn page(server: &TestServer, path: &str) -> String {
    let answer = server.get(&format!("/project/1/{path}"));
    assert_eq!(answer.status, 200, "{path}: {answer}");
    text(&answer)
}

fn persons(server: &TestServer) {
    let person = |at: i64| {
        let plan = if at % 3 == 0 { "pro" } else { "free" };
        json!({"event": "signup", "distinct_id": format!("p{at}"),
            "properties": {"$set": {"plan": plan, "age": at}}})
    };
    server.capture(&(0..9).map(person).collect::<Value>());
    assert_eq!(server.count("SELECT count(*) FROM persons"), 9);
}

/// The fields of a form of the flag `beta` with two variants.
const FLAG: [(&str, &str); 14] = [
    ("key", "beta"),
    ("name", HOSTILE),
    ("active", "1"),
    ("conditions", "1"),
    ("c1.p1.of", "person"),
    ("c1.p1.key", "plan"),
    ("c1.p1.op", "exact"),
    ("c1.p1.value", "pro"),
    ("c1.rollout", "100"),
    ("c1.variant", "blue"),
    ("variants", "2"),
    ("v1.key", "blue"),
    ("v1.rollout", "40"),
    ("v1.payload", "{\"a\": 1}"),
];

fn flag_form(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut form = FLAG.to_vec();
    form.extend([("v2.key", "red"), ("v2.rollout", "60")]);
    for (name, value) in more {
        match form.iter_mut().find(|(own, _)| own == name) {
            Some(field) => field.1 = value,
            None => form.push((name, value)),
        }
    }
    form
}

#[test]
fn flags_are_made_and_changed_by_a_form() {
    let server = TestServer::start();
    persons(&server);
    assert!(page(&server, "feature_flags").contains("New flag"));
    assert!(page(&server, "feature_flags/new").contains("Condition 1"));
    // How many a condition is about, and one more, without saving.
    let reach = post(&server, "feature_flags", &flag_form(&[("do", "reach")]));
    let api = json!({"condition": {"properties": [
        {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}], "rollout_percentage": 100}});
    let api = server.post("/api/projects/1/feature_flags/user_blast_radius/", &api).json();
    let told = format!("{} of {} persons match", api["affected"], api["total"]);
    assert_eq!(told, "3 of 9 persons match");
    assert!(text(&reach).contains(&told), "{reach}");
    let more = text(&post(&server, "feature_flags", &flag_form(&[("do", "condition")])));
    assert!(more.contains("Condition 2") && more.contains("value=\"plan\""), "{more}");
    assert_eq!(server.get("/api/projects/1/feature_flags/").json()["count"], 0);
    // What is refused is shown beside what was typed.
    for (wrong, told) in [
        (("key", "not a key"), "class=\"problem\""),
        (("v2.rollout", "10"), "class=\"problem\""),
        (("c1.rollout", "much"), "class=\"problem\""),
        (("v1.payload", "{"), "class=\"problem\""),
    ] {
        let refused = post(&server, "feature_flags", &flag_form(&[wrong]));
        assert_eq!(refused.status, 400, "{wrong:?}: {refused}");
        let shown = text(&refused);
        assert!(shown.contains(told) && shown.contains("value=\"plan\""), "{wrong:?}: {shown}");
        let typed = wrong.1.replace('"', "&quot;");
        assert!(shown.contains(&format!("value=\"{typed}\"")), "{wrong:?}: {shown}");
    }
    let own = done(&server, "feature_flags", &flag_form(&[]));
    let id = own.rsplit('/').next().expect("an id").to_owned();
    let path = format!("/api/projects/1/feature_flags/{id}/");
    let flag = || server.get(&path).json();
    let stored = flag();
    assert_eq!((&stored["key"], &stored["name"]), (&json!("beta"), &json!(HOSTILE)));
    let filters = &stored["filters"];
    assert_eq!(filters["multivariate"]["variants"][1]["rollout_percentage"], 60);
    assert_eq!(filters["payloads"], json!({"blue": "{\"a\": 1}"}));
    assert_eq!(filters["groups"][0]["properties"][0]["value"], json!(["pro"]));
    // Saving what is there changes nothing of it.
    let edit = format!("feature_flags/{id}/edit");
    let shown = page(&server, &edit);
    assert!(shown.contains("value=\"blue\"") && shown.contains("value=\"beta\""), "{shown}");
    done(&server, &edit, &flag_form(&[]));
    assert_eq!(flag()["filters"], stored["filters"]);
    done(&server, &edit, &flag_form(&[("c1.rollout", "30"), ("c1.variant", "")]));
    assert_eq!(flag()["filters"]["groups"][0]["rollout_percentage"], 30);
    // The history has both sides, and brings back what was.
    let own = format!("feature_flags/{id}");
    let shown = page(&server, &own);
    assert!(shown.contains("<b>30 %</b>") && shown.contains("<b>100 %</b>"), "{shown}");
    assert!(shown.contains("isFeatureEnabled") || shown.contains("getFeatureFlag"), "{shown}");
    let version = shown.split("name=\"version\" value=\"").nth(1).expect("a version");
    let version = version.split('"').next().expect("a number").to_owned();
    done(&server, &format!("{own}/revert"), &[("version", &version)]);
    assert_eq!(flag()["filters"]["groups"][0]["rollout_percentage"], 100);
    done(&server, &format!("{own}/delete"), &[]);
    assert_eq!(flag()["deleted"], true);
}

#[test]
fn conditions_that_have_no_fields_stay() {
    let server = TestServer::start();
    let filter = json!({"key": "version", "type": "person", "operator": "exact", "value": [1, 2]});
    let filters = json!({"groups": [{"properties": [filter], "rollout_percentage": 10, "description": "x"},
        {"properties": [], "rollout_percentage": 20, "description": "kept"}]});
    let made = json!({"key": "odd", "filters": filters});
    let flag = server.post("/api/projects/1/feature_flags/", &made).created();
    let path = format!("feature_flags/{}/edit", flag["id"]);
    let shown = page(&server, &path);
    assert!(shown.contains("has parts without a field"), "{shown}");
    let part = |name: &str, from: &str, to: &str| {
        let rest = shown.split(&format!("name=\"{name}\"")).nth(1).expect("a field");
        let value = rest.split(from).nth(1).expect("a value").split(to).next().expect("its end");
        value.replace("&quot;", "\"")
    };
    let whole = part("c1.whole", ">", "</textarea");
    let mut form =
        vec![("key", "odd"), ("active", "1"), ("conditions", "2"), ("c1.whole", whole.as_str())];
    let rest = shown.contains("c2.rest").then(|| part("c2.rest", "value=\"", "\""));
    form.extend(rest.as_deref().map(|rest| ("c2.rest", rest)));
    form.push(("c2.rollout", "25"));
    done(&server, &path, &form);
    let saved = server.get(&format!("/api/projects/1/feature_flags/{}/", flag["id"])).json();
    let (before, after) = (&flag["filters"]["groups"], &saved["filters"]["groups"]);
    assert_eq!(after[0], before[0]);
    assert_eq!(after[1]["description"], before[1]["description"]);
    assert_eq!(after[1]["rollout_percentage"], 25);
    let broken = [("key", "odd"), ("conditions", "1"), ("c1.whole", "{\"a\":")];
    let refused = post(&server, &path, &broken);
    assert!(
        refused.status == 400 && text(&refused).contains("Condition 1: Expected JSON"),
        "{refused}"
    );
}

#[test]
fn changes_of_flags_are_scheduled_and_cancelled() {
    let server = TestServer::start();
    let flag = server.post("/api/projects/1/feature_flags/", &json!({"key": "later"})).created();
    let own = format!("feature_flags/{}", flag["id"]);
    let schedule = format!("{own}/schedule");
    let list = || server.get("/api/projects/1/scheduled_changes/").json();
    done(&server, &schedule, &[("what", "off"), ("at", "2100-12-24T18:00")]);
    done(&server, &schedule, &[("what", "add"), ("rollout", "5"), ("at", "2100-12-25T18:00")]);
    done(&server, &schedule, &[("what", "on"), ("interval", "weekly"), ("at", "2100-12-26T18:00")]);
    let changes = list();
    assert_eq!(changes["count"], 3, "{changes}");
    assert_eq!(
        changes["results"][0]["payload"],
        json!({"operation": "update_status", "value": false})
    );
    assert!(
        changes["results"][0]["scheduled_at"].as_str().unwrap().starts_with("2100-12-24T18:00")
    );
    let shown = page(&server, &own);
    for told in ["turns it off", "<b>5 %</b>", "weekly", "2100-12-24 18:00"] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    let id = changes["results"][0]["id"].to_string();
    done(&server, &format!("{schedule}/cancel"), &[("id", &id)]);
    assert_eq!(list()["count"], 2);
    for wrong in
        [&[("what", "on"), ("at", "soon")][..], &[("what", "dance"), ("at", "2100-12-24T18:00")]]
    {
        assert_eq!(post(&server, &schedule, wrong).status, 400, "{wrong:?}");
    }
}

#[test]
fn cohorts_are_made_and_changed_by_forms() {
    let server = TestServer::start();
    persons(&server);
    let rule = [
        ("name", HOSTILE),
        ("description", "both"),
        ("kind", "rule"),
        ("groups", "2"),
        ("c1.p1.of", "person"),
        ("c1.p1.key", "plan"),
        ("c1.p1.op", "exact"),
        ("c1.p1.value", "pro"),
        ("c2.p1.of", "person"),
        ("c2.p1.key", "age"),
        ("c2.p1.op", "gt"),
        ("c2.p1.value", "7"),
    ];
    let mut more = rule.to_vec();
    more.push(("do", "group"));
    let shown = text(&post(&server, "cohorts", &more));
    assert!(shown.contains("or group 3") && shown.contains("value=\"plan\""), "{shown}");
    let own = done(&server, "cohorts", &rule);
    let own = own.trim_start_matches("/project/1/").to_owned();
    let api = format!("/api/projects/1/{own}/");
    let members =
        |own: &str| server.get(&format!("/api/projects/1/{own}/persons/")).json()["count"].clone();
    assert_eq!(members(&own), 4);
    assert_eq!(page(&server, &own).matches("/person/p").count(), 4);
    let shown = page(&server, &format!("{own}/edit"));
    assert!(shown.contains("or group 2") && shown.contains("value=\"7\""), "{shown}");
    let mut less = rule[..8].to_vec();
    less[3] = ("groups", "1");
    done(&server, &format!("{own}/edit"), &less);
    assert_eq!(members(&own), 3);
    let refused = post(&server, "cohorts", &[("name", "x"), ("whole", "{")]);
    assert!(refused.status == 400 && text(&refused).contains("Expected JSON"), "{refused}");
    // A list.
    let list =
        done(&server, "cohorts", &[("name", "VIP"), ("kind", "list"), ("ids", "p1\r\np2\nnobody")]);
    let list = list.trim_start_matches("/project/1/").to_owned();
    assert_eq!(members(&list), 2);
    done(&server, &format!("{list}/members"), &[("do", "add"), ("ids", "p3\np4")]);
    done(&server, &format!("{list}/members"), &[("do", "remove"), ("ids", "p1")]);
    assert_eq!(members(&list), 3);
    done(&server, &format!("{list}/edit"), &[("name", "Better"), ("kind", "list")]);
    assert_eq!(members(&list), 3);
    assert!(page(&server, "cohorts").contains("Better"));
    done(&server, &format!("{own}/delete"), &[]);
    assert_eq!(server.get(&api).json()["deleted"], true);
}

#[test]
fn early_access_features_are_made_and_changed_by_forms() {
    let server = TestServer::start();
    let fields = [("name", HOSTILE), ("description", HOSTILE), ("stage", "beta")];
    done(&server, "early_access_features", &fields);
    let list = || server.get("/api/projects/1/early_access_feature/").json()["results"].clone();
    let made = list()[0].clone();
    assert_eq!((&made["name"], &made["stage"]), (&json!(HOSTILE), &json!("beta")));
    let own = format!("early_access_features/{}", made["id"].as_str().expect("an id"));
    let link = own.replace("-", "%2D");
    assert!(page(&server, "early_access_features").contains(&link));
    assert!(page(&server, &own).contains("option value=\"beta\" selected"));
    let fields =
        [("name", "Better"), ("stage", "alpha"), ("documentation_url", "https://docs.example")];
    done(&server, &own, &fields);
    assert_eq!((&list()[0]["name"], &list()[0]["stage"]), (&json!("Better"), &json!("alpha")));
    let refused = post(&server, &own, &[("name", "Typed"), ("stage", "omega")]);
    assert!(refused.status == 400 && text(&refused).contains("value=\"Typed\""), "{refused}");
    done(&server, &own, &[("do", "delete")]);
    assert_eq!(list(), json!([]));
}

#[test]
fn persons_are_split_and_deleted() {
    let server = TestServer::start();
    persons(&server);
    server.capture(&json!([{"event": "$identify", "distinct_id": "p1", "properties": {"$anon_distinct_id": "visitor-1"}}]));
    server.count("SELECT count(*) FROM events");
    let uuid = |id: &str| {
        let found = server.get(&format!("/api/projects/1/persons/?distinct_id={id}")).json();
        found["results"][0]["uuid"].as_str().map(str::to_owned)
    };
    let shown = page(&server, "person/p1");
    assert!(shown.contains("Split or delete") && shown.contains("value=\"visitor-1\""), "{shown}");
    assert!(shown.contains("Events that set the properties"), "{shown}");
    let own = uuid("p1").expect("a person");
    assert_eq!(uuid("visitor-1").as_deref(), Some(own.as_str()));
    done(&server, &format!("person/{own}/split"), &[("id", "visitor-1")]);
    assert_ne!(uuid("visitor-1"), uuid("p1"));
    let none = post(&server, &format!("person/{own}/split"), &[]);
    assert_eq!(none.status, 400, "{none}");
    done(&server, &format!("person/{own}/delete"), &[("what", "both")]);
    patiently(|| uuid("p1").is_none().then_some(())).expect("gone");
    let left = "SELECT count(*) FROM events WHERE distinct_id = 'p1' AND event = 'signup'";
    patiently(|| (server.count(left) == 0).then_some(())).expect("no events");
    let other = uuid("p2").expect("a person");
    done(&server, &format!("person/{other}/delete"), &[("what", "person")]);
    patiently(|| uuid("p2").is_none().then_some(())).expect("gone");
    assert_eq!(server.count("SELECT count(*) FROM events WHERE distinct_id = 'p2'"), 1);
}

#[test]
fn keys_and_refused_requests_are_told() {
    let server = TestServer::start();
    let keys = text(&server.send("GET", "/help/keys", &[], ""));
    assert!(keys.contains("<kbd>g f</kbd>") && keys.contains("Feature flags"), "{keys}");
    assert!(page(&server, "activity/live").contains("Nothing: all that was sent is stored"));
    let broken = server.send("POST", "/capture/", &[], "{");
    assert_eq!(broken.status, 400);
    let shown = page(&server, "activity/live");
    assert!(shown.contains("<code>capture</code>") && shown.contains("400"), "{shown}");
}

#[test]
fn what_is_shown_once_is_at_the_top() {
    let server = TestServer::start();
    for (path, fields, id) in [
        ("settings/keys", vec![("label", "mine"), ("scopes", "*")], "new-key"),
        (
            "settings/members",
            vec![("do", "add"), ("first_name", "Ada"), ("email", "ada@x.example"), ("level", "1")],
            "member-key",
        ),
    ] {
        let answer = post(&server, path, &fields);
        assert_eq!(answer.status, 200, "{path}: {answer}");
        let shown = text(&answer);
        let at = |what: &str| shown.find(what).unwrap_or_else(|| panic!("{what}: {shown}"));
        assert!(at(&format!("id=\"{id}\"")) < at("class=\"card\""), "{path}: {shown}");
    }
}

#[test]
fn forms_of_another_project_change_nothing() {
    let server = TestServer::start();
    persons(&server);
    let other = server.post("/api/projects/", &json!({"name": "other"})).created()["id"].clone();
    let made =
        |path: &str, body: &Value| server.post(&format!("/api/projects/1/{path}/"), body).created();
    let flag = made("feature_flags", &json!({"key": "own"}))["id"].clone();
    let cohort = made("cohorts", &json!({"name": "own", "is_static": true}))["id"].clone();
    let feature =
        made("early_access_feature", &json!({"name": "early", "stage": "beta"}))["id"].clone();
    let insight = made("insights", &json!({"name": "own"}));
    let board = made("dashboards", &json!({"name": "own"}))["id"].clone();
    let uuid = server.get("/api/projects/1/persons/?distinct_id=p1").json();
    let (feature, uuid) = (feature.as_str().expect("an id"), uuid["results"][0]["uuid"].clone());
    let (uuid, short_id) =
        (uuid.as_str().expect("a uuid"), insight["short_id"].as_str().expect("an id"));
    let state = || {
        let paths = [
            "feature_flags",
            "cohorts",
            "early_access_feature",
            "insights",
            "dashboards",
            "persons",
        ];
        paths.map(|path| {
            server.get(&format!("/api/projects/1/{path}/?basic=true")).json()["results"].clone()
        })
    };
    let before = state();
    for path in [
        format!("feature_flags/{flag}"),
        format!("feature_flags/{flag}/edit"),
        format!("feature_flags/{flag}/revert"),
        format!("feature_flags/{flag}/delete"),
        format!("feature_flags/{flag}/schedule"),
        format!("cohorts/{cohort}/edit"),
        format!("cohorts/{cohort}/delete"),
        format!("cohorts/{cohort}/members"),
        format!("early_access_features/{feature}"),
        format!("insights/{short_id}"),
        format!("insights/{short_id}/share"),
        format!("dashboard/{board}"),
        format!("dashboard/{board}/share"),
        format!("person/{uuid}/delete"),
        format!("person/{uuid}/split"),
    ] {
        let bearer = format!("Bearer {KEY}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let body = "do=save&name=theirs&key=theirs&ids=p1&version=1&at=2100-01-01T00%3A00&id=p1";
        let body = if path.contains("share") { "do=on" } else { body };
        let body = if path.contains("members") { "do=add&ids=p1" } else { body };
        let answer = server.send("POST", &format!("/project/{other}/{path}"), &headers, body);
        assert_eq!(answer.status, 404, "{path}: {answer}");
    }
    assert_eq!(state(), before);
}

#[test]
fn members_and_roles_are_changed_by_forms() {
    let server = TestServer::start();
    let members = || server.get("/api/organizations/@current/members/").json()["results"].clone();
    let roles = || server.get("/api/organizations/@current/roles/").json()["results"].clone();
    let change = |path: &str, fields: &[(&str, &str)]| {
        assert!(done(&server, path, fields).starts_with("/project/1/settings#"));
    };
    // The key of a new member is shown once, and signs in.
    let email = "ada@example.com";
    let fields = [("do", "add"), ("first_name", HOSTILE), ("email", email), ("level", "1")];
    let made = post(&server, "settings/members", &fields);
    assert_eq!(made.status, 200, "{made}");
    let shown = text(&made);
    let key = shown.split("id=\"member-key\">").nth(1).and_then(|rest| rest.split('<').next());
    let key = key.expect("a key").to_owned();
    assert!(key.starts_with("phx_"), "{key}");
    let header = format!("Bearer {key}");
    let own = |path: &str| server.send("GET", path, &[("authorization", header.as_str())], "");
    assert_eq!(own("/api/users/@me/").json()["email"], email);
    let new = members()[1].clone();
    let (id, user) = (new["id"].as_str().expect("id"), new["user"]["uuid"].as_str().expect("uuid"));
    let page_of_all = page(&server, "settings");
    assert!(!page_of_all.contains(&key) && page_of_all.contains(email), "{page_of_all}");
    // Members see no forms of what only admins may do, and cannot send them.
    let seen = own("/project/1/settings");
    assert_eq!(seen.status, 200, "{seen}");
    let seen = text(&seen);
    assert!(seen.contains("id=\"members\"") && !seen.contains("settings/members"), "{seen}");
    let form =
        [("authorization", header.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    let refused = server.send(
        "POST",
        "/project/1/settings/members",
        &form,
        format!("do=remove&id={}", members()[0]["id"].as_str().expect("id")),
    );
    assert_eq!(refused.status, 403, "{refused}");

    change("settings/members", &[("do", "level"), ("id", id), ("level", "8")]);
    assert_eq!(members()[1]["level"], 8);

    change("settings/roles", &[("do", "default"), ("access", "21")]);
    let defaults = server.get("/api/organizations/@current/resource_access/").json();
    assert_eq!(defaults["results"][0]["access_level"], 21);
    let default = defaults["results"][0]["id"].to_string();
    change("settings/roles", &[("do", "default"), ("id", &default), ("access", "37")]);
    assert_eq!(
        server.get("/api/organizations/@current/resource_access/").json()["results"][0]["access_level"],
        37
    );
    change("settings/roles", &[("do", "create"), ("name", "Developers"), ("access", "37")]);
    let role = roles()[0]["id"].as_str().expect("id").to_owned();
    change("settings/roles", &[("do", "give"), ("id", &role), ("user", user)]);
    assert_eq!(roles()[0]["members"][0]["user"]["email"], email);
    change(
        "settings/roles",
        &[("do", "save"), ("id", &role), ("name", "Makers"), ("access", "21")],
    );
    assert_eq!(roles()[0]["name"], "Makers");
    assert_eq!(roles()[0]["feature_flags_access_level"], 21);
    let shown = page(&server, "settings");
    assert!(shown.contains("Makers") && shown.contains("only look at flags"), "{shown}");
    let membership = roles()[0]["members"][0]["id"].as_str().expect("id").to_owned();
    change("settings/roles", &[("do", "take"), ("id", &role), ("membership", &membership)]);
    assert_eq!(roles()[0]["members"], json!([]));
    change("settings/roles", &[("do", "delete"), ("id", &role)]);
    assert_eq!(roles(), json!([]));

    change("settings/members", &[("do", "remove"), ("id", id)]);
    assert_eq!(members().as_array().expect("a list").len(), 1);
    assert_eq!(own("/api/users/@me/").status, 401);
    for (path, fields) in [
        ("settings/members", [("do", "fly"), ("id", id)]),
        ("settings/members", [("do", "level"), ("level", "high")]),
        ("settings/roles", [("do", "create"), ("access", "")]),
    ] {
        let answer = post(&server, path, &fields);
        assert_eq!(answer.status, 400, "{path} {fields:?}: {answer}");
    }
    assert_eq!(post(&server, "settings/roles", &[("do", "delete"), ("id", "no such")]).status, 404);

    // Another project is shown next.
    let next = done(&server, "settings/projects", &[("name", "Second")]);
    assert_eq!(next, "/project/2/onboarding");
    assert_eq!(server.get("/api/projects/2/").json()["name"], "Second");
}

#[test]
fn a_cohort_by_events_is_made_of_fields() {
    let server = TestServer::start();
    persons(&server);
    let fields = |not: &'static str| {
        [
            ("do", "save"),
            ("name", "Signed up"),
            ("kind", "rule"),
            ("groups", "1"),
            ("c1.p1.of", "person"),
            ("c1.p1.key", "plan"),
            ("c1.p1.op", "exact"),
            ("c1.p1.value", "pro"),
            ("c1.d1.not", not),
            ("c1.d1.event", "signup"),
            ("c1.d1.op", "gte"),
            ("c1.d1.days", "7"),
        ]
    };
    assert_eq!(done(&server, "cohorts", &fields("0")), "/project/1/cohorts/1");
    let cohort = || server.get("/api/projects/1/cohorts/1/").json();
    let rule = cohort()["filters"]["properties"]["values"][0]["values"].clone();
    let deed = json!({"type": "behavioral", "key": "signup", "event_type": "events", "value": "performed_event",
        "time_value": 7, "time_interval": "day", "negation": false});
    assert_eq!(rule[1], deed, "{rule}");
    let counted = |count: i64| patiently(|| (cohort()["count"] == count).then_some(())).is_some();
    assert!(counted(3), "{}", cohort());
    let shown = page(&server, "cohorts/1");
    assert!(shown.contains("performed event <b>signup</b> within 7 days"), "{shown}");
    assert!(shown.contains(">p0<") && shown.contains(">p6<") && !shown.contains(">p1<"), "{shown}");
    let shown = page(&server, "cohorts/1/edit");
    for part in
        ["name=\"c1.d1.event\"", "value=\"signup\"", "name=\"c1.d1.days\"", "name=\"c1.d2.event\""]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    done(&server, "cohorts/1/edit", &fields("1"));
    assert!(counted(0), "{}", cohort());
}

#[test]
fn definitions_of_properties_are_described_by_a_form() {
    let server = TestServer::start();
    persons(&server);
    server.count("SELECT count(*) FROM events");
    let list = page(&server, "data-management/properties?type=person&search=plan");
    let path = list
        .split("href=\"/project/1/")
        .find(|rest| rest.starts_with("data-management/properties/"));
    let path = path.and_then(|rest| rest.split('"').next()).expect("a link").to_owned();
    let own = list.contains("FROM persons") || list.contains("FROM+persons");
    assert!(own && list.contains("name=\"type\" value=\"person\""), "{list}");
    let fields = [
        ("description", HOSTILE),
        ("tags", "contact, pii ,"),
        ("property_type", "Duration"),
        ("verified", "1"),
    ];
    assert_eq!(done(&server, &path, &fields), format!("/project/1/{path}"));
    let shown = page(&server, &path);
    assert!(shown.contains("value=\"contact, pii\""), "{shown}");
    assert!(shown.contains("<option value=\"Duration\" selected>duration</option>"), "{shown}");
    let id = path.rsplit('/').next().expect("an id");
    let told = server.get(&format!("/api/projects/1/property_definitions/{id}/")).json();
    assert_eq!((&told["name"], &told["description"]), (&json!("plan"), &json!(HOSTILE)));
    assert_eq!((&told["verified"], &told["hidden"]), (&json!(true), &json!(false)));
    assert_eq!(
        (&told["tags"], &told["property_type"]),
        (&json!(["contact", "pii"]), &json!("Duration"))
    );
    done(&server, &path, &[("description", ""), ("property_type", "")]);
    let told = server.get(&format!("/api/projects/1/property_definitions/{id}/")).json();
    assert_eq!((&told["tags"], &told["property_type"]), (&json!([]), &json!(null)));
    assert_eq!(post(&server, &path, &[("property_type", "Colour")]).status, 400);
    let missing = "data-management/properties/01890000-0000-7000-8000-000000000000";
    assert_eq!(server.get(&format!("/project/1/{missing}")).status, 404);
}
