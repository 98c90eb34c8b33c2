//! Two projects of one organization with the same distinct ids, events and groups: no endpoint, filter,
//! SQL or id of one ever shows or changes anything of the other. It goes through the table of
//! endpoints, so a new one is either tried like all others, or this test says what it lacks.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;
use weir::http::table::Endpoint;
use weir::http::table::TABLE;

use crate::harness::Answer;
use crate::harness::KEY;
use crate::harness::TOKEN;
use crate::harness::TestServer;
use crate::harness::patiently;

/// Questions that endpoints need, or that look for somebody; `SECRET` is who is looked for. All others
/// are asked as they are. Whether the answer has the secret of the project that is asked.
const QUESTIONS: &[(&str, &str, bool)] = &[
    ("P/", "", true),
    ("P/activity_log/", "", true),
    ("P/cohorts/", "", true),
    ("P/cohorts/activity/", "", true),
    ("P/early_access_feature/", "", true),
    ("P/event_definitions/", "", true),
    ("P/event_definitions/", "search=SECRET", true),
    ("P/event_definitions/", "names=only of SECRET", true),
    ("P/event_definitions/activity/", "", true),
    ("P/event_definitions/by_name/", "name=only of SECRET", true),
    ("P/event_definitions/primary_properties/", "", true),
    ("P/events/", "", true),
    ("P/events/", "event=same event", true),
    ("P/events/", "event=only of SECRET", true),
    ("P/events/", "distinct_id=same", true),
    ("P/events/", "person_id=PERSON", true),
    ("P/events/", "properties=[{\"key\":\"secret\",\"value\":\"SECRET\"}]", true),
    ("P/events/", "format=csv", true),
    ("P/events/values/", "key=secret", true),
    ("P/events/values/", "key=secret&value=SECRET", true),
    ("P/events/values/", "key=custom_event", true),
    ("P/feature_flags/", "", true),
    ("P/feature_flags/", "search=SECRET", true),
    ("P/feature_flags/activity/", "", true),
    ("P/feature_flags/evaluation_reasons/", "distinct_id=same", true),
    ("P/feature_flags/my_flags/", "", true),
    ("P/groups/", "group_type_index=0", true),
    ("P/groups/", "group_type_index=0&search=SECRET", true),
    ("P/groups/activity/", "group_type_index=0&group_key=same", true),
    ("P/groups/find/", "group_type_index=0&group_key=same", true),
    ("P/groups/find/", "group_type_index=0&group_key=SECRET", true),
    ("P/groups/property_definitions/", "", true),
    ("P/groups/property_values/", "group_type_index=0&key=name", true),
    ("P/groups_types/", "", true),
    ("P/ingestion_warnings/", "", true),
    ("P/persons/", "", true),
    ("P/persons/", "distinct_id=same", true),
    ("P/persons/", "email=SECRET@x.com", true),
    ("P/persons/", "key_identifier=SECRET@x.com", true),
    ("P/persons/", "uuid=PERSON", true),
    ("P/persons/", "updated_after=-1d", true),
    ("P/persons/", "search=SECRET@", true),
    ("P/persons/", "search=PERSON", true),
    ("P/persons/", "cohort=COHORT", true),
    ("P/persons/", "properties=[{\"key\":\"id\",\"type\":\"cohort\",\"value\":COHORT}]", true),
    ("P/persons/", "properties=[{\"key\":\"email\",\"value\":\"SECRET@x.com\"}]", true),
    ("P/persons/", "format=csv", true),
    ("P/persons/activity/", "", true),
    ("P/persons/cohorts/", "person_id=PERSON", true),
    ("P/persons/deletion_status/", "person_uuid=PERSON", false),
    ("P/persons/values/", "key=email", true),
    ("P/property_definitions/", "", true),
    ("P/property_definitions/", "type=person", true),
    ("P/property_definitions/", "type=group&group_type_index=0", true),
    ("P/property_definitions/", "event_names=[\"only of SECRET\"]", true),
    (
        "P/property_definitions/seen_together/",
        "event_names=[\"same event\"]&property_name=p_SECRET",
        false,
    ),
    ("P/scheduled_changes/", "", true),
    ("P/scheduled_changes/", "model_name=FeatureFlag&record_id=FLAG", true),
];

/// What is sent to endpoints without an id, and the status of the answer: things of the other project,
/// or what changes only the project itself.
const WRITES: &[(&str, &str, &str, u16)] = &[
    ("PUT", "P/", r#"{"name": "other"}"#, 200),
    ("PATCH", "P/", r#"{"name": "other"}"#, 200),
    ("PATCH", "P/reset_token/", "{}", 200),
    ("POST", "P/rotate_secret_token/", "{}", 200),
    ("PATCH", "P/rotate_secret_token/", "{}", 200),
    (
        "POST",
        "P/cohorts/",
        r#"{"name": "c", "is_static": true, "_create_static_person_ids": ["PERSON"]}"#,
        201,
    ),
    (
        "POST",
        "P/early_access_feature/",
        r#"{"name": "stolen", "stage": "beta", "feature_flag_id": FLAG}"#,
        400,
    ),
    ("POST", "P/event_definitions/", r#"{"name": "made by hand"}"#, 201),
    (
        "POST",
        "P/event_definitions/bulk_update_tags/",
        r#"{"ids": ["DEFINITION"], "action": "add", "tags": ["stolen"]}"#,
        200,
    ),
    (
        "POST",
        "P/event_definitions/bulk_update_verified/",
        r#"{"ids": ["DEFINITION"], "verified": true}"#,
        200,
    ),
    (
        "POST",
        "P/feature_flags/",
        r#"{"key": "f", "filters": {"groups": [{"properties": [{"key": "id", "type": "cohort", "value": COHORT}]}]}}"#,
        400,
    ),
    ("POST", "P/feature_flags/bulk_delete/", r#"{"ids": [FLAG]}"#, 200),
    ("POST", "P/feature_flags/bulk_keys/", r#"{"ids": [FLAG]}"#, 200),
    (
        "POST",
        "P/feature_flags/bulk_update_tags/",
        r#"{"ids": [FLAG], "action": "add", "tags": ["stolen"]}"#,
        200,
    ),
    ("PATCH", "P/feature_flags/settings/", r#"{"property_matching_version": 2}"#, 200),
    (
        "POST",
        "P/feature_flags/user_blast_radius/",
        r#"{"condition": {"properties": [{"key": "email", "type": "person", "value": "SECRET@x.com"}]}}"#,
        200,
    ),
    (
        "POST",
        "P/groups/",
        r#"{"group_type_index": 0, "group_key": "stolen", "group_properties": {"stolen": 1}}"#,
        201,
    ),
    ("POST", "P/groups/delete_property/", r#"{"$unset": "name"}"#, 400),
    ("POST", "P/groups/update_property/", r#"{"key": "name", "value": "stolen"}"#, 400),
    (
        "PATCH",
        "P/groups_types/update_metadata/",
        r#"[{"group_type_index": 0, "name_singular": "stolen"}]"#,
        200,
    ),
    ("POST", "P/persons/", "{}", 405),
    ("POST", "P/persons/bulk_delete/", r#"{"ids": ["PERSON"], "delete_events": true}"#, 202),
    ("POST", "P/persons/reset_person_distinct_id/", r#"{"distinct_id": "same"}"#, 202),
    (
        "POST",
        "P/query/",
        r#"{"query": "SELECT count(*) AS n FROM events WHERE person_id = 'PERSON'", "format": "json"}"#,
        200,
    ),
    (
        "POST",
        "P/scheduled_changes/",
        r#"{"record_id": "FLAG", "model_name": "FeatureFlag", "scheduled_at": "2090-01-01T00:00:00Z",
            "payload": {"operation": "update_status", "value": true}}"#,
        400,
    ),
];

/// What would do harm wherever it is taken: sent to endpoints with an id of the other project.
const HARM: &str = r#"{
    "name": "stolen", "key": "stolen", "value": 1, "tags": ["stolen"], "deleted": true, "active": false,
    "hidden": true, "description": "stolen", "properties": {"stolen": 1}, "$unset": "email",
    "delete_events": true, "distinct_id": "same", "main_distinct_id": "same", "person_ids": ["PERSON"],
    "person_id": "PERSON", "role_id": "ROLE", "stage": "archived", "payload": {"operation": "update_status", "value": false}
}"#;

/// A project, and what it has.
#[derive(Debug)]
pub(crate) struct Owner {
    project: i64,
    /// In the name of everything that is its own.
    secret: &'static str,
    /// What stands for a place in a path or a text: `feature_flags/:id`, `FLAG`.
    pub(crate) ids: BTreeMap<&'static str, String>,
}

impl Owner {
    /// Fills a project with some of everything.
    pub(crate) fn fill(
        server: &TestServer,
        project: i64,
        token: &str,
        secret: &'static str,
    ) -> Self {
        let event = |name: &str, properties: Value| json!({"event": name, "distinct_id": "same", "properties": properties});
        let mut batch = vec![
            event("$identify", json!({"$set": {"email": format!("{secret}@x.com"), "plan": "x"}})),
            event("same event", json!({"secret": secret})),
            event(&format!("only of {secret}"), json!({format!("p_{secret}"): 1})),
            event("$set", json!({"$set": {format!("p_{secret}"): 1}})),
            json!({"event": format!("odd of {secret}")}),
        ];
        for key in ["same", secret] {
            let set = json!({"name": secret, format!("p_{secret}"): 1});
            let group = json!({"$group_type": secret, "$group_key": key, "$group_set": set});
            batch.push(event("$groupidentify", group));
        }
        let body = json!({"api_key": token, "batch": batch}).to_string();
        let json_type = [("content-type", "application/json")];
        assert_eq!(server.send("POST", "/batch/", &json_type, body).status, 200);
        let mut owner = Self { project, secret, ids: BTreeMap::new() };
        owner.furnish(server);
        owner
    }

    /// Makes one of everything that has an id.
    fn furnish(&mut self, server: &TestServer) {
        let base = format!("/api/projects/{}", self.project);
        let secret = self.secret;
        let made = |path: &str, body: Value| {
            let answer = server.post(&format!("{base}/{path}"), &body);
            assert!(matches!(answer.status, 200 | 201), "{path}: {answer}");
            answer.json()
        };
        let changed = |path: &str, body: Value| {
            let answer = server.patch(&format!("{base}/{path}"), &body);
            assert!(matches!(answer.status, 200 | 202), "{path}: {answer}");
        };
        let first = |path: &str| {
            let page = server.get(&format!("{base}/{path}")).json();
            text(&page["results"][0]["id"])
        };
        changed("", json!({"name": format!("shop of {secret}")}));
        let person = server.get(&format!("{base}/persons/")).json()["results"][0].clone();
        let event = first("events/?event=same%20event");
        let definition = first(&format!("event_definitions/?search={secret}%20only"));
        let property = first("property_definitions/?search=secret");
        let rule = json!({"key": "email", "type": "person", "value": format!("{secret}@x.com")});
        let rule = json!({"properties": {"type": "AND", "values": [rule]}});
        let cohort =
            made("cohorts/", json!({"name": format!("people of {secret}"), "filters": rule}));
        let flag = made("feature_flags/", json!({"key": format!("of-{secret}"), "name": secret}));
        let (flag, cohort) = (text(&flag["id"]), text(&cohort["id"]));
        changed(&format!("feature_flags/{flag}/"), json!({"name": format!("again {secret}")}));
        let noted = json!({"description": secret, "primary_property": secret});
        changed(&format!("event_definitions/{definition}/"), noted);
        changed(&format!("property_definitions/{property}/"), json!({"description": secret}));
        changed(&format!("persons/{}/", person["id"]), json!({"properties": {"mark": secret}}));
        let group = "groups/update_property/?group_type_index=0&group_key=same";
        made(group, json!({"key": "mark", "value": secret}));
        let roles = "/api/organizations/@current/roles/";
        let role = server.post(roles, &json!({"name": format!("role {}", self.project)})).json();
        let access =
            made(&format!("feature_flags/{flag}/role_access/"), json!({"role_id": role["id"]}));
        let change = made(
            "scheduled_changes/",
            json!({
                "record_id": flag, "model_name": "FeatureFlag", "scheduled_at": "2090-01-01T00:00:00Z",
                "payload": {"operation": "update_variants", "value": {"variants": [
                    {"key": secret, "rollout_percentage": 100}]}},
            }),
        );
        let feature = json!({"name": format!("lab {secret}"), "stage": "beta"});
        let feature = made("early_access_feature/", feature);
        patiently(|| {
            let cohort = server.get(&format!("{base}/cohorts/{cohort}/")).json();
            let warnings = server.get(&format!("{base}/ingestion_warnings/")).json();
            (!cohort["count"].is_null() && !warnings["results"][0].is_null()).then_some(())
        })
        .expect("the cohort is counted, and the warning written");
        self.ids = BTreeMap::from([
            ("cohorts/:id", cohort.clone()),
            ("early_access_feature/:id", text(&feature["id"])),
            ("event_definitions/:id", definition.clone()),
            ("DEFINITION", definition),
            ("events/:uuid", event),
            ("feature_flags/:id", flag.clone()),
            ("persons/:id", text(&person["id"])),
            ("property_definitions/:id", property),
            ("role_access/:access", text(&access["id"])),
            ("scheduled_changes/:id", text(&change["id"])),
            ("versions/:version", "1".to_owned()),
            ("SECRET", secret.to_owned()),
            ("PERSON", text(&person["uuid"])),
            ("COHORT", cohort),
            ("FLAG", flag),
            ("ROLE", text(&role["id"])),
        ]);
    }

    /// A path of the table in this project, with the ids of `of`.
    fn path(&self, pattern: &str, of: &Self) -> String {
        fill_in(pattern, &self.project.to_string(), &of.ids)
    }

    /// `template` with what is this project's.
    fn of_mine(&self, template: &str) -> String {
        let names = ["SECRET", "PERSON", "COHORT", "FLAG", "ROLE", "DEFINITION"];
        names.iter().fold(template.to_owned(), |text, name| text.replace(name, &self.ids[name]))
    }

    /// Whether an answer has anything that is this project's.
    fn shows_in(&self, answer: &Answer) -> bool {
        let body = String::from_utf8_lossy(&answer.body);
        body.contains(self.secret) || body.contains(&self.ids["PERSON"])
    }

    /// Everything that the endpoints tell of the project.
    fn all(&self, server: &TestServer) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for line in endpoints().filter(|line| line.methods().any(|method| method == "GET")) {
            let questions = match has_id(line) {
                true => vec![String::new()],
                false => questions(line.path).map(|(question, _)| self.of_mine(question)).collect(),
            };
            for question in questions {
                let path = with(&self.path(line.path, self), &question);
                let answer = server.get(&path);
                assert_eq!(answer.status, 200, "{path}: {answer}");
                let mut told = serde_json::from_slice(&answer.body).unwrap_or_else(|_| {
                    Value::from(String::from_utf8_lossy(&answer.body).into_owned())
                });
                strip(&mut told);
                all.insert(path, told);
            }
        }
        all
    }
}

/// A path of the table in a project, with these ids.
pub(crate) fn fill_in(
    pattern: &str,
    project: &str,
    ids: &BTreeMap<&'static str, String>,
) -> String {
    let root = pattern.replace("P/", &format!("/api/projects/{project}/"));
    let root = root.replace("O/", "/api/organizations/@current/");
    let mut before = "";
    let mut path = String::new();
    for part in root.split('/').filter(|part| !part.is_empty()) {
        let place = format!("{before}/{part}");
        path.push('/');
        path += match part.starts_with(':') {
            true => {
                ids.get(place.as_str()).unwrap_or_else(|| panic!("{pattern}: {place} is whose?"))
            }
            false => part,
        };
        before = part;
    }
    path + "/"
}

/// Times of what the server does by itself, and of the question; how often was asked before.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let names = ["last_calculation", "effective_date_from", "effective_date_to"];
            for name in names.into_iter().chain(["query_usage_30_day"]) {
                fields.remove(name);
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// A value as it stands in a path.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
    TABLE.iter().filter(|line| line.path.starts_with("P/"))
}

fn has_id(line: &Endpoint) -> bool {
    line.path.contains(':')
}

/// The questions to an endpoint without an id.
fn questions(path: &str) -> impl Iterator<Item = (&'static str, bool)> {
    let mut told: Vec<_> = QUESTIONS.iter().filter(|(of, ..)| *of == path).collect();
    if told.is_empty() {
        told.push(&("", "", false));
    }
    told.into_iter().map(|(_, question, tells)| (*question, *tells))
}

fn with(path: &str, question: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for pair in question.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').expect("a value");
        query.append_pair(name, value);
    }
    format!("{path}?{}", query.finish())
}

fn ask(server: &TestServer, key: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send(method, path, &headers, body)
}

fn key_of(server: &TestServer, project: i64) -> String {
    let body = json!({"label": "limited", "scopes": ["*"], "scoped_teams": [project]});
    let made = server.post("/api/personal_api_keys/", &body).json();
    made["value"].as_str().expect("a value").to_owned()
}

#[test]
fn projects_never_see_each_other() {
    let mut server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let token = other["api_token"].as_str().expect("a token");
    let mut alpha = Owner::fill(&server, 1, TOKEN, "alpha");
    let mut omega = Owner::fill(&server, other["id"].as_i64().expect("an id"), token, "omega");
    share_a_role(&server, [&mut alpha, &mut omega]);
    for round in ["in memory", "in files"] {
        for (me, you) in [(&alpha, &omega), (&omega, &alpha)] {
            nothing_is_told(&server, (me, you), round);
            ids_lead_nowhere(&server, (me, you), round);
            tables_have_what_is_mine(&server, (me, you), round);
            keys_of_one_project_open_no_other(&server, (me, you), round);
        }
        server.stop();
        server.restart();
    }
    // What omega does, with whatever it knows of alpha, changes nothing there.
    let before = alpha.all(&server);
    writes_do_no_harm(&server, (&omega, &alpha));
    let after = alpha.all(&server);
    for (path, told) in &before {
        assert_eq!(after.get(path), Some(told), "{path}");
    }
    let missing = server.get("/api/projects/99/persons/");
    assert_eq!((missing.status, &missing.json()["detail"]), (404, &json!("Project not found.")));
}

/// A role that may change a flag of either project.
fn share_a_role(server: &TestServer, owners: [&mut Owner; 2]) {
    let role = server.post("/api/organizations/@current/roles/", &json!({"name": "shared"})).json();
    for owner in owners {
        let flag = &owner.ids["FLAG"];
        let path = format!("/api/projects/{}/feature_flags/{flag}/role_access/", owner.project);
        let access = server.post(&path, &json!({"role_id": role["id"]}));
        assert_eq!(access.status, 201, "{access}");
        owner.ids.insert("role_access/:access", text(&access.json()["id"]));
        owner.ids.insert("SHARED", text(&role["id"]));
    }
}

/// Lists and questions, those for the other's things too.
fn nothing_is_told(server: &TestServer, (me, you): (&Owner, &Owner), round: &str) {
    for line in endpoints().filter(|line| !has_id(line)) {
        if !line.methods().any(|method| method == "GET") {
            continue;
        }
        for (question, tells) in questions(line.path) {
            let path = me.path(line.path, me);
            let mine = server.get(&with(&path, &me.of_mine(question)));
            let case = format!("{round}: {path}?{question}");
            assert_eq!(mine.status, 200, "{case}: tell what to ask: {mine}");
            assert_eq!((me.shows_in(&mine), you.shows_in(&mine)), (tells, false), "{case}: {mine}");
            let theft = server.get(&with(&path, &you.of_mine(question)));
            assert!(matches!(theft.status, 200 | 404), "{case}: {theft}");
            assert!(!you.shows_in(&theft), "{case}: {theft}");
        }
    }
}

/// The ids of the other's things, in all methods.
fn ids_lead_nowhere(server: &TestServer, (me, you): (&Owner, &Owner), round: &str) {
    for line in endpoints().filter(|line| has_id(line)) {
        for method in line.methods() {
            let path = me.path(line.path, you);
            let answer = ask(server, KEY, method, &path, &you.of_mine(HARM));
            let case = format!("{round}: {method} {path}");
            assert!(!you.shows_in(&answer), "{case}: {answer}");
            // What never deletes says so; the log of changes of what is not there is empty.
            let is_nothing = match answer.status {
                404 | 405 => true,
                200 => line.path.ends_with("/activity/") && answer.json()["total_count"] == 0,
                _ => false,
            };
            assert!(is_nothing, "{case}: {answer}");
            if method == "GET" {
                let own = server.get(&me.path(line.path, me));
                assert_eq!(own.status, 200, "{case}: {own}");
                assert!(!you.shows_in(&own), "{case}: {own}");
            }
        }
    }
}

/// Every table that SQL knows.
fn tables_have_what_is_mine(server: &TestServer, (me, you): (&Owner, &Owner), round: &str) {
    let path = me.path("P/query/", me);
    let query = |sql: &str| {
        let answer = server.post(&path, &json!({"query": sql, "format": "json"}));
        assert_eq!(answer.status, 200, "{round}: {sql}: {answer}");
        answer
    };
    let sql = "SELECT table_name FROM information_schema.tables \
               WHERE table_schema <> 'information_schema' ORDER BY 1";
    let names = String::from_utf8(query(sql).body).expect("UTF-8");
    let names: Vec<Value> =
        names.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in &names {
        let name = name["table_name"].as_str().expect("a name");
        let rows = query(&format!("SELECT * FROM {name}"));
        assert!(me.shows_in(&rows) && !you.shows_in(&rows), "{round}: {name}: {rows}");
    }
    let sql = format!("SELECT count(*) AS n FROM events WHERE properties LIKE '%{}%'", you.secret);
    assert_eq!(query(&sql).json()["n"], 0, "{round}");
}

/// Every endpoint of a project, and what the others tell of projects.
fn keys_of_one_project_open_no_other(
    server: &TestServer,
    (me, you): (&Owner, &Owner),
    round: &str,
) {
    let key = key_of(server, me.project);
    let detail =
        format!("API key does not have access to the requested project: ID {}.", you.project);
    let denied = json!({"type": "authentication_error", "code": "permission_denied", "detail": detail, "attr": null});
    for line in endpoints() {
        for method in line.methods() {
            let path = you.path(line.path, you);
            let answer = ask(server, &key, method, &path, "{}");
            assert_eq!((answer.status, answer.json()), (403, denied.clone()), "{method} {path}");
        }
    }
    for path in ["/api/projects/", "/api/users/@me/", "/api/organizations/@current/"] {
        let answer = ask(server, &key, "GET", path, "");
        assert_eq!(answer.status, 200, "{round}: {path}: {answer}");
        assert!(!you.shows_in(&answer), "{round}: {path}: {answer}");
    }
    let flags = "/api/organizations/@current/feature_flags";
    for path in
        [format!("{flags}/keys/?team_ids={}", you.project), format!("{flags}/of-{}/", you.secret)]
    {
        let answer = ask(server, &key, "GET", &path, "");
        assert!(!you.shows_in(&answer), "{round}: {path}: {answer}");
    }
    let mut ids = me.ids.clone();
    ids.extend([
        ("feature_flags/:key", format!("of-{}", me.secret)),
        ("projects/:id", me.project.to_string()),
        ("roles/:id", me.ids["SHARED"].clone()),
    ]);
    let of_organization = TABLE.iter().filter(|line| line.path.starts_with("O/"));
    for line in of_organization.filter(|line| line.methods().any(|method| method == "GET")) {
        let path = fill_in(line.path, "", &ids);
        let answer = ask(server, &key, "GET", &path, "");
        assert_eq!(answer.status, 200, "{round}: {path}: {answer}");
        assert!(!you.shows_in(&answer), "{round}: {path}: {answer}");
    }
    for (from, key_of, to) in [(you, you.secret, me), (me, me.secret, you)] {
        let body = json!({"feature_flag_key": format!("of-{key_of}"), "from_project": from.project,
            "target_project_ids": [to.project]});
        let path = format!("{flags}/copy_flags/");
        let answer = ask(server, &key, "POST", &path, &body.to_string());
        let told = answer.json();
        let is_refused = told["error"] == "Feature flag to copy does not exist."
            || told["failed"][0]["error_message"] == "Project not found.";
        assert!(is_refused && told["success"].as_array().is_none_or(Vec::is_empty), "{answer}");
    }
    let theirs = format!("/api/organizations/@current/projects/{}/", you.project);
    for method in ["GET", "PUT", "PATCH"] {
        let answer = ask(server, &key, method, &theirs, r#"{"name": "stolen"}"#);
        assert_eq!(answer.status, 403, "{round}: {method} {theirs}: {answer}");
    }
    assert_eq!(ask(server, &key, "GET", "/api/projects/", "").json()["count"], 1, "{round}");
    let project = json!({"name": "x"}).to_string();
    assert_eq!(ask(server, &key, "POST", "/api/projects/", &project).status, 403, "{round}");
}

/// What takes no id in its path, told the ids of the other.
fn writes_do_no_harm(server: &TestServer, (me, you): (&Owner, &Owner)) {
    for line in endpoints().filter(|line| !has_id(line)) {
        for method in line.methods().filter(|method| *method != "GET") {
            let told = WRITES.iter().find(|(own, path, ..)| (*own, *path) == (method, line.path));
            let (.., body, status) =
                told.unwrap_or_else(|| panic!("tell what to send to {method} {}", line.path));
            let path = me.path(line.path, me);
            let answer = ask(server, KEY, method, &path, &you.of_mine(body));
            assert_eq!(answer.status, *status, "{method} {path}: {answer}");
            // Which ids were not found is no secret to whoever sent them.
            let told = String::from_utf8_lossy(&answer.body);
            let names_person = told.contains(&you.ids["PERSON"]) && !body.contains("PERSON");
            assert!(!names_person && !told.contains(you.secret), "{method} {path}: {answer}");
            let counted = match line.path {
                "P/query/" => Some("n"),
                "P/feature_flags/user_blast_radius/" => Some("users_affected"),
                _ => None,
            };
            if let Some(counted) = counted {
                let own = ask(server, KEY, method, &path, &me.of_mine(body));
                assert_eq!(answer.json()[counted], 0, "{method} {path}: {answer}");
                assert!(own.json()[counted].as_i64() > Some(0), "{method} {path}: {own}");
            }
        }
    }
}
