//! Project isolation: two projects of one organization with the same distinct ids, events and groups. No
//! endpoint, filter, SQL or id of one shows or changes anything of the other. The test iterates over the
//! table of endpoints: it covers a new one like all others, or fails with what is missing here.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_http::public::PUBLIC;
use weir_http::table::{Endpoint, TABLE};

use crate::harness::{Answer, KEY, TOKEN, TestServer, send_known_fields};
use crate::mcp::nothing_is_told_of_others;
use crate::owner::{Owner, fill_in, settle, strip, text, with};
use crate::postgres_port::wire::Session;

/// Parameters that endpoints need, or that search for somebody; `SECRET` is the searched name. All other
/// endpoints get none. The last member: whether the response contains the secret of the requested project.
const QUESTIONS: &[(&str, &str, bool)] = &[
    ("P/", "", true),
    ("P/actions/", "", true),
    ("P/actions/", "search=SECRET", true),
    ("P/actions/activity/", "", true),
    ("P/activity_log/", "", true),
    ("P/activity_log/", "scope=Person", true),
    ("P/activity_log/", "item_id=NUMBER", true),
    ("P/activity_log/", "scopes=FeatureFlag,Cohort&item_id=FLAG", true),
    ("P/annotations/", "", true),
    ("P/annotations/", "search=SECRET", true),
    ("P/annotations/activity/", "", true),
    ("P/cohorts/", "", true),
    ("P/cohorts/activity/", "", true),
    ("P/dashboards/", "", true),
    ("P/dashboards/activity/", "", true),
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
    ("P/events/", "person_id=NUMBER", true),
    ("P/events/", "properties=[{\"key\":\"id\",\"type\":\"cohort\",\"value\":COHORT}]", true),
    ("P/events/", "properties=[{\"key\":\"mark\",\"type\":\"person\",\"value\":\"SECRET\"}]", true),
    ("P/events/", "select=[\"properties.secret\",\"person_id\"]", true),
    ("P/events/", "properties=[{\"key\":\"secret\",\"value\":\"SECRET\"}]", true),
    ("P/events/", "format=csv", true),
    ("P/events/", "format=jsonl", true),
    ("P/events/values/", "key=secret", true),
    ("P/events/values/", "key=secret&value=SECRET", true),
    ("P/events/values/", "key=secret&event_name=same event", true),
    ("P/events/values/", "key=custom_event", true),
    ("P/insights/trend/", "events=[{\"id\":\"same event\"}]&breakdown=secret&date_from=all", true),
    (
        "P/insights/trend/",
        "events=[{\"id\":null}]&breakdown=mark&breakdown_type=person&date_from=all",
        true,
    ),
    ("P/insights/", "", true),
    ("P/insights/", "search=SECRET&saved=true", true),
    ("P/insights/activity/", "", true),
    ("P/insights/my_last_viewed/", "", true),
    ("P/insights/path/", "date_from=all", true),
    ("P/persons/path/", "date_from=all", true),
    (
        "P/insights/retention/",
        "target_entity={\"id\":null,\"type\":\"events\"}&total_intervals=3",
        false,
    ),
    (
        "P/persons/retention/",
        "target_entity={\"id\":null,\"type\":\"events\"}&total_intervals=1",
        true,
    ),
    ("P/persons/stickiness/", "entity_id=same event&entity_type=events&date_from=all", true),
    (
        "P/persons/lifecycle/",
        "events=[{\"id\":null}]&date_from=2026-03-01&date_to=2026-03-02&target_date=2026-03-01&lifecycle_type=new",
        false,
    ),
    ("P/insights/funnel/", "events=[{\"id\":\"same event\"}]&breakdown=secret&date_from=all", true),
    (
        "P/insights/trend/",
        "events=[{\"id\":\"same event\"}]&breakdown=$entry_pathname&breakdown_type=session&date_from=all",
        true,
    ),
    (
        "P/insights/funnel/",
        "events=[{\"id\":null}]&breakdown=mark&breakdown_type=person&date_from=all",
        true,
    ),
    ("P/persons/funnel/", "events=[{\"id\":\"same event\"}]&funnel_step=1&date_from=all", true),
    (
        "P/persons/funnel/correlation/",
        "events=[{\"id\":\"same event\"}]&date_from=all&funnel_correlation_type=properties\
         &funnel_correlation_names=email&funnel_correlation_property_values=\
         [{\"key\":\"email\",\"operator\":\"is_set\",\"type\":\"person\"}]",
        true,
    ),
    (
        "P/insights/funnel/correlation/",
        "events=[{\"id\":\"same event\"},{\"id\":\"nothing\"}]&date_from=all",
        false,
    ),
    ("P/persons/trends/", "entity_id=same event&entity_type=events&date_from=all", true),
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
    ("P/groups/property_values/", "group_type_index=0&key=name&value=SECRET", true),
    ("P/groups_types/", "", true),
    ("P/ingestion_warnings/", "", true),
    ("P/persons/", "", true),
    ("P/persons/", "distinct_id=same", true),
    ("P/persons/", "email=SECRET@x.com", true),
    ("P/persons/", "key_identifier=SECRET@x.com", true),
    ("P/persons/", "uuid=PERSON", true),
    ("P/persons/", "id=NUMBER", true),
    ("P/persons/", "is_identified=false", true),
    ("P/persons/", "updated_after=-1d", true),
    ("P/persons/", "search=SECRET@", true),
    ("P/persons/", "search=PERSON", true),
    ("P/persons/", "cohort=COHORT", true),
    ("P/persons/", "properties=[{\"key\":\"id\",\"type\":\"cohort\",\"value\":COHORT}]", true),
    ("P/persons/", "properties=[{\"key\":\"email\",\"value\":\"SECRET@x.com\"}]", true),
    ("P/persons/", "format=csv", true),
    ("P/persons/", "format=jsonl", true),
    ("P/query/", "query=SELECT uuid, event, properties FROM events ORDER BY uuid&format=csv", true),
    ("P/query/", "query=SELECT uuid, properties FROM persons ORDER BY uuid&format=jsonl", true),
    ("P/persons/activity/", "", true),
    ("P/persons/cohorts/", "person_id=PERSON", true),
    ("P/persons/cohorts/", "person_id=NUMBER", true),
    ("P/persons/deletion_status/", "", true),
    ("P/persons/deletion_status/", "status=all&person_uuid=GONE", true),
    ("P/persons/values/", "key=email", true),
    ("P/persons/values/", "key=email&value=SECRET", true),
    ("P/files/", "", true),
    ("P/promoted_properties/", "", true),
    ("P/promoted_properties/", "table=persons", true),
    ("P/property_definitions/", "", true),
    ("P/property_definitions/", "search=p_SECRET", true),
    ("P/property_definitions/", "properties=p_SECRET", true),
    ("P/property_definitions/", "type=person", true),
    ("P/property_definitions/", "type=group&group_type_index=0", true),
    ("P/property_definitions/", "event_names=[\"only of SECRET\"]", true),
    (
        "P/property_definitions/seen_together/",
        "event_names=[\"same event\"]&property_name=q_SECRET",
        false,
    ),
    ("P/scheduled_changes/", "", true),
    ("P/schema/", "table=persons", true),
    ("P/scheduled_changes/", "model_name=FeatureFlag&record_id=FLAG", true),
];

/// Requests to endpoints without an id, and the status of the response: with objects of the other project,
/// or with changes of the own project only.
const WRITES: &[(&str, &str, &str, u16)] = &[
    ("PUT", "P/", r#"{"name": "other"}"#, 200),
    ("PATCH", "P/", r#"{"name": "other"}"#, 200),
    ("PATCH", "P/reset_token/", "{}", 200),
    ("POST", "P/rotate_secret_token/", "{}", 200),
    ("PATCH", "P/rotate_secret_token/", "{}", 200),
    ("POST", "P/promoted_properties/", r#"{"key": "secret", "type": "text"}"#, 201),
    (
        "POST",
        "P/promoted_properties/",
        r#"{"key": "secret", "type": "text", "table": "persons"}"#,
        201,
    ),
    ("POST", "P/actions/", r#"{"name": "made", "steps": [{"event": "x"}]}"#, 201),
    ("POST", "P/annotations/", r#"{"content": "x", "dashboard_item": INSIGHT}"#, 400),
    ("POST", "P/dashboards/", r#"{"name": "x"}"#, 201),
    ("POST", "P/insights/", r#"{"name": "x", "dashboards": [BOARD]}"#, 400),
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
    (
        "POST",
        "P/persons/funnel/",
        r#"{"events": [{"id": "same event"}], "breakdown": "COHORT", "breakdown_type": "cohort",
            "date_from": "all", "funnel_step": 1, "funnel_step_breakdown": "COHORT"}"#,
        200,
    ),
    (
        "POST",
        "P/insights/funnel/",
        r#"{"events": [{"id": "same event"}], "breakdown": "COHORT", "breakdown_type": "cohort",
            "date_from": "all"}"#,
        200,
    ),
    (
        "POST",
        "P/persons/funnel/correlation/",
        r#"{"events": [{"id": "same event"}], "date_from": "all", "funnel_correlation_type": "properties",
            "funnel_correlation_names": ["$all"],
            "funnel_correlation_property_values": [{"key": "id", "type": "cohort", "value": COHORT}]}"#,
        200,
    ),
    (
        "POST",
        "P/insights/funnel/correlation/",
        r#"{"events": [{"id": "same event"}], "date_from": "all", "funnel_correlation_type": "properties",
            "funnel_correlation_names": ["$all"]}"#,
        200,
    ),
    (
        "POST",
        "P/persons/path/",
        r#"{"date_from": "all", "properties": [{"key": "id", "type": "cohort", "value": COHORT}]}"#,
        200,
    ),
    ("POST", "P/persons/reset_person_distinct_id/", r#"{"distinct_id": "same"}"#, 202),
    ("POST", "P/insights/cancel/", r#"{"client_query_id": "same"}"#, 201),
    (
        "POST",
        "P/insights/lifecycle/",
        r#"{"properties": [{"key": "id", "type": "cohort", "value": "COHORT"}]}"#,
        200,
    ),
    (
        "POST",
        "P/insights/stickiness/",
        r#"{"properties": [{"key": "id", "type": "cohort", "value": "COHORT"}]}"#,
        200,
    ),
    (
        "POST",
        "P/insights/path/",
        r#"{"date_from": "all", "properties": [{"key": "id", "type": "cohort", "value": COHORT}]}"#,
        200,
    ),
    (
        "POST",
        "P/insights/retention/",
        r#"{"properties": [{"key": "id", "type": "cohort", "value": "COHORT"}]}"#,
        200,
    ),
    (
        "POST",
        "P/insights/trend/",
        r#"{"breakdown": "COHORT", "breakdown_type": "cohort", "date_from": "all"}"#,
        200,
    ),
    ("POST", "P/insights/trend/", r#"{"actions": [{"id": ACTION}], "date_from": "all"}"#, 400),
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

/// A body that would do harm wherever it is accepted: sent to endpoints with an id of the other project.
const HARM: &str = r#"{
    "name": "stolen", "key": "stolen", "value": 1, "tags": ["stolen"], "deleted": true, "active": false,
    "hidden": true, "description": "stolen", "properties": {"stolen": 1}, "$unset": "email",
    "delete_events": true, "distinct_id": "same", "main_distinct_id": "same", "person_ids": ["PERSON"],
    "person_id": "PERSON", "role_id": "ROLE", "stage": "archived", "payload": {"operation": "update_status", "value": false}
}"#;

/// Queries that are answered later are in memory, so there are none after a restart; see `insight_cache`.
const LATER: &str = "P/query/:id/";

/// The files, which have rows of all projects.
const FILES: &str = "P/files/";

fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
    TABLE.iter().filter(|line| line.path.starts_with("P/"))
}

/// Endpoints that read.
fn answering() -> impl Iterator<Item = &'static Endpoint> {
    let endpoints = endpoints().filter(|line| line.path != LATER);
    endpoints.filter(|line| line.methods().any(|method| method == "GET"))
}

/// The responses of all reading endpoints of a project.
fn all(server: &TestServer, of: &Owner) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for line in answering() {
        let questions = match has_id(line) {
            true => vec![String::new()],
            false => questions(line.path).map(|(question, _)| of.of_mine(question)).collect(),
        };
        // The files of both projects are the same ones.
        for question in questions.into_iter().filter(|_| line.path != FILES) {
            let path = with(&of.path(line.path, of), &question);
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

fn has_id(line: &Endpoint) -> bool {
    line.path.contains(':')
}

/// The parameters of an endpoint without an id.
fn questions(path: &str) -> impl Iterator<Item = (&'static str, bool)> {
    let mut told: Vec<_> = QUESTIONS.iter().filter(|(of, ..)| *of == path).collect();
    if told.is_empty() {
        told.push(&("", "", false));
    }
    told.into_iter().map(|(_, question, tells)| (*question, *tells))
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
    for owner in [&alpha, &omega] {
        settle(&server, owner.project, &owner.ids);
    }
    share_a_role(&server, [&mut alpha, &mut omega]);
    for round in ["in memory", "in files"] {
        for (me, you) in [(&alpha, &omega), (&omega, &alpha)] {
            nothing_is_told(&server, (me, you), round);
            ids_lead_nowhere(&server, (me, you), round);
            tables_have_what_is_mine(&server, (me, you), round);
            keys_of_one_project_open_no_other(&server, (me, you), round);
            public_endpoints_tell_of_one_project(&server, (me, you), round);
            nothing_is_told_of_others(&server, &key_of(&server, me.project), (me, you));
            plans_tell_of_no_files(&server, (me, you), round);
            if round == "in files" {
                files_are_no_tables(&server, (me, you));
            }
        }
        server.stop();
        server.restart();
    }
    // What omega does, with whatever it knows of alpha, changes nothing there.
    let before = all(&server, &alpha);
    let unchanged = |server: &TestServer, what: &str| {
        let after = all(server, &alpha);
        for (path, told) in &before {
            assert_eq!(after.get(path), Some(told), "{what}: {path}");
        }
    };
    writes_do_no_harm(&server, (&omega, &alpha));
    unchanged(&server, "what omega does with the ids of alpha");
    omega_ends(&server, &omega);
    unchanged(&server, "what omega does to itself");
    let path = format!("/api/projects/{}/", omega.project);
    assert_eq!(ask(&server, KEY, "DELETE", &path, "").status, 204);
    unchanged(&server, "the end of omega");
    server.stop();
    server.restart();
    unchanged(&server, "the end of omega, after a restart");
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

/// Lists and searches, also for objects of the other project.
fn nothing_is_told(server: &TestServer, (me, you): (&Owner, &Owner), round: &str) {
    for line in answering().filter(|line| !has_id(line)) {
        for (question, tells) in questions(line.path) {
            let path = me.path(line.path, me);
            let mine = server.get(&with(&path, &me.of_mine(question)));
            let case = format!("{round}: {path}?{question}");
            assert_eq!(mine.status, 200, "{case}: tell what to ask: {mine}");
            assert_eq!((me.shows_in(&mine), you.shows_in(&mine)), (tells, false), "{case}: {mine}");
            let theft = server.get(&with(&path, &you.of_mine(question)));
            assert!(matches!(theft.status, 200 | 404), "{case}: {theft}");
            assert!(!you.shows_in(&theft), "{case}: {theft}");
            if line.path.ends_with("/seen_together/") {
                let seen = [&mine, &theft].map(|answer| answer.json()["same event"].clone());
                assert_eq!(seen, [json!(true), json!(false)], "{case}");
            }
        }
    }
}

/// The paths of an endpoint in `me`'s project, with the ids of `of`; a person has two.
fn paths(line: &Endpoint, me: &Owner, of: &Owner) -> Vec<String> {
    let mut paths = vec![me.path(line.path, of)];
    if line.path.contains("persons/:id/") {
        let mut ids = of.ids.clone();
        ids.insert("persons/:id", of.ids["PERSON"].clone());
        paths.push(fill_in(line.path, &me.project.to_string(), &ids));
    }
    paths
}

/// The ids of the other project's objects, with all methods.
fn ids_lead_nowhere(server: &TestServer, (me, you): (&Owner, &Owner), round: &str) {
    for line in endpoints().filter(|line| has_id(line)) {
        let paths = paths(line, me, you);
        for (method, path) in
            line.methods().flat_map(|method| paths.iter().map(move |path| (method, path)))
        {
            let answer =
                send_known_fields(&you.of_mine(HARM), |body| ask(server, KEY, method, path, body));
            let case = format!("{round}: {method} {path}");
            assert!(!you.shows_in(&answer), "{case}: {answer}");
            // What never deletes says so; the log of changes of what is not there is empty.
            let is_nothing = match answer.status {
                404 | 405 => true,
                200 => line.path.ends_with("/activity/") && answer.json()["total_count"] == 0,
                _ => false,
            };
            assert!(is_nothing, "{case}: {answer}");
            if method == "GET" && line.path != LATER {
                let own = server.get(&me.path(line.path, me));
                assert_eq!(own.status, 200, "{case}: {own}");
                assert!(!you.shows_in(&own), "{case}: {own}");
            }
        }
    }
}

/// Every table of SQL.
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
    assert!(names.len() >= 9, "{names:?}");
    for name in &names {
        let name = name["table_name"].as_str().expect("a name");
        let rows = query(&format!("SELECT * FROM {name}"));
        assert!(me.shows_in(&rows) && !you.shows_in(&rows), "{round}: {name}: {rows}");
    }
    let sql = format!("SELECT count(*) AS n FROM events WHERE properties LIKE '%{}%'", you.secret);
    assert_eq!(query(&sql).json()["n"], 0, "{round}");
}

/// PostHog's newer alias of a project path.
fn environment(path: &str) -> String {
    path.replace("/api/projects/", "/api/environments/")
}

/// Every endpoint of a project, and endpoints outside of projects that return projects.
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
            for path in [you.path(line.path, you), environment(&you.path(line.path, you))] {
                let answer = ask(server, &key, method, &path, "{}");
                let told = (answer.status, answer.json());
                assert_eq!(told, (403, denied.clone()), "{method} {path}");
            }
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
    ids.extend([("projects/:id", you.project.to_string())]);
    let mut writes = TABLE.iter().filter(|line| line.path.starts_with("O/")).collect::<Vec<_>>();
    writes.extend(TABLE.iter().filter(|line| line.path == "/api/projects/"));
    for line in writes {
        // What the key may copy was tried above.
        let is_tried = line.path.ends_with("/copy_flags/");
        for method in line.methods().filter(|method| *method != "GET" && !is_tried) {
            let mut ids = ids.clone();
            for place in ["members/:uuid", "resource_access/:id", "role_memberships/:membership"] {
                ids.insert(place, "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d".to_owned());
            }
            let path = fill_in(line.path, "", &ids);
            let answer = ask(server, &key, method, &path, r#"{"name": "stolen", "level": 1}"#);
            // Nobody is said not to be there.
            let is_refused =
                answer.status == 403 || (line.path == "O/members/:uuid/" && answer.status == 404);
            assert!(is_refused, "{round}: {method} {path}: {answer}");
        }
    }
    // It makes no key for the other, nor for both.
    let new = |projects: &Value| {
        let body = json!({"label": "x", "scopes": ["*"], "scoped_teams": projects}).to_string();
        ask(server, &key, "POST", "/api/personal_api_keys/", &body)
    };
    let refused = new(&json!([me.project, you.project]));
    assert_eq!((refused.status, &refused.json()["attr"]), (400, &json!("scoped_teams")));
    assert_eq!(new(&json!([])).created()["scoped_teams"], json!([me.project]), "{round}");
}

/// Public endpoints that return data of a project; all others return none.
const TELLING: [&str; 10] = [
    "/flags",
    "/decide",
    "/flags/definitions",
    "/api/feature_flag/local_evaluation",
    "/api/projects/:project/feature_flags/local_evaluation",
    "/api/environments/:project/feature_flags/local_evaluation",
    "/api/projects/:project/feature_flags/:flag/remote_config",
    "/api/environments/:project/feature_flags/:flag/remote_config",
    "/ofrep/v1/evaluate/flags",
    "/api/early_access_features",
];

/// Public endpoints with the name of one flag in their path.
const OF_A_FLAG: [&str; 3] = [TELLING[6], TELLING[7], "/ofrep/v1/evaluate/flags/:key"];

/// Every public endpoint, with every credential of a project.
fn public_endpoints_tell_of_one_project(
    server: &TestServer,
    (me, you): (&Owner, &Owner),
    round: &str,
) {
    let token = |of: &Owner| {
        text(&server.get(&format!("/api/projects/{}/", of.project)).json()["api_token"])
    };
    let (mine, theirs, key) = (token(me), token(you), key_of(server, me.project));
    let path = |pattern: &str, project: i64, flag: &str| {
        let path = pattern.replace(":project", &project.to_string()).replace(":token", &mine);
        path.replace(":flag", flag).replace(":key", flag).replace(":release", "1.0.0")
    };
    let ask = |method: &str, path: &str, token: &str| {
        let body = json!({
            "api_key": token, "token": token, "distinct_id": "same", "event": "asked",
            "context": {"targetingKey": "same"},
        });
        let bearer = format!("Bearer {key}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("x-api-key", token),
            ("content-type", "application/json"),
        ];
        let body = if method == "GET" { String::new() } else { body.to_string() };
        server.send(method, &format!("{path}?token={token}"), &headers, body)
    };
    // The answer of the first has no end, and says no more than that something changed; those of the others
    // are the same for everybody, and have many words.
    for line in PUBLIC {
        if ["/flags/events", "/api/schema", "/llms.txt", "/llms-full.txt"].contains(&line.path) {
            continue;
        }
        for method in line.methods() {
            let (own, other) = (format!("of-{}", me.secret), format!("of-{}", you.secret));
            let path_of = |project: &Owner, flag: &str| path(line.path, project.project, flag);
            let answer = ask(method, &path_of(me, &own), &mine);
            let case = format!("{round}: {method} {}", line.path);
            assert!(!you.shows_in(&answer), "{case}: {answer}");
            let is_of_flag = OF_A_FLAG.contains(&line.path);
            let is_about_nobody = method == "GET" && ["/flags", "/decide"].contains(&line.path);
            let tells = (TELLING.contains(&line.path) && !is_about_nobody) || is_of_flag;
            assert_eq!(me.shows_in(&answer), tells, "{case}: {answer}");
            if is_of_flag {
                let answer = ask(method, &path_of(me, &other), &mine);
                assert_eq!(answer.status, 404, "{case}: {answer}");
            }
            // The key is for one project, whatever token is beside it.
            if line.path.contains(":project") {
                for token in [&mine, &theirs] {
                    let answer = ask(method, &path_of(you, &other), token);
                    assert_eq!(answer.status, 403, "{case}: {answer}");
                }
            }
            if line.path.ends_with("/definitions") || line.path.ends_with("flag/local_evaluation") {
                let answer = ask(method, &path_of(me, &own), &theirs);
                assert_eq!(answer.status, 403, "{case}: {answer}");
            }
        }
    }
}

/// Goal: no plan shows properties of the shared files: names, row counts, statistics, metrics. Method:
/// every form of EXPLAIN, for a query for the other's data and for data that does not exist. The operator
/// sees all of it.
fn plans_tell_of_no_files(server: &TestServer, (me, you): (&Owner, &Owner), round: &str) {
    let path = me.path("P/query/", me);
    let nobody = "3f3e2a52-0000-4000-8000-000000000000";
    let forms = |person: &str| {
        [
            format!("SELECT * FROM events WHERE person_id = '{person}'"),
            format!("SELECT count(*) FROM events WHERE person_id = '{person}' GROUP BY event"),
            format!(
                "WITH e AS (SELECT * FROM events) SELECT * FROM e WHERE person_id = '{person}'"
            ),
            format!("SELECT * FROM (SELECT * FROM events) e WHERE person_id = '{person}'"),
            format!("SELECT (SELECT max(event) FROM events WHERE person_id = '{person}')"),
            format!(
                "SELECT * FROM events a JOIN events b USING (person_id) WHERE a.person_id = '{person}'"
            ),
            format!(
                "SELECT * FROM events UNION ALL SELECT * FROM events WHERE person_id = '{person}'"
            ),
        ]
    };
    let ask = |sql: &str| server.post(&path, &json!({"query": sql}));
    for (theirs, none) in forms(&you.ids["PERSON"]).iter().zip(forms(nobody)) {
        for refused in [
            "EXPLAIN ANALYZE",
            "EXPLAIN ANALYZE VERBOSE",
            "EXPLAIN VERBOSE",
            "EXPLAIN FORMAT TREE",
            "EXPLAIN FORMAT PGJSON",
            "EXPLAIN FORMAT GRAPHVIZ",
            "EXPLAIN (ANALYZE)",
        ] {
            let answer = ask(&format!("{refused} {theirs}"));
            assert_eq!(answer.status, 400, "{round}: {refused} {theirs}: {answer}");
            assert!(!you.shows_in(&answer), "{round}: {refused} {theirs}: {answer}");
        }
        for inner in
            [format!("SELECT * FROM (EXPLAIN {theirs})"), format!("EXPLAIN EXPLAIN {theirs}")]
        {
            assert_eq!(ask(&inner).status, 400, "{round}: {inner}");
        }
        for form in ["EXPLAIN", "EXPLAIN FORMAT INDENT"] {
            let [theirs, none] = [theirs, &none].map(|sql| {
                let answer = ask(&format!("{form} {sql}"));
                assert_eq!(answer.status, 200, "{round}: {sql}: {answer}");
                answer
            });
            let text = theirs.to_string();
            assert_eq!(theirs.json()["plan_type"], "logical_plan", "{round}: {text}");
            for leak in
                ["parquet", "Exec", "file_groups", "metrics", "statistics", "month=", "output_rows"]
            {
                assert!(!text.contains(leak), "{round}: {leak}: {text}");
            }
            let same = none.json()["plan"].as_str().expect("a plan").replace(nobody, "ID");
            let plan =
                theirs.json()["plan"].as_str().expect("a plan").replace(&you.ids["PERSON"], "ID");
            assert_eq!(plan, same, "{round}: whether somebody is there");
        }
    }
    for sql in [
        "SHOW ALL",
        "SELECT * FROM information_schema.df_settings",
        "SELECT input_file_name() FROM events",
    ] {
        assert_eq!(ask(sql).status, 400, "{round}: {sql}");
    }
    let plan = server.query("EXPLAIN ANALYZE SELECT count(*) FROM events WHERE event = 'x'");
    assert!(json!(plan).to_string().contains("metrics"), "{round}: {plan:?}");
}

/// The shared files cannot be read by their names.
fn files_are_no_tables(server: &TestServer, (me, _): (&Owner, &Owner)) {
    let files = server.files();
    assert!(!files.is_empty());
    let directory = server.data_dir();
    let names = files.iter().chain([&directory]).map(|path| path.display().to_string());
    for name in names {
        for sql in [
            format!("SELECT * FROM '{name}'"),
            format!("SELECT * FROM \"{name}\""),
            format!("SELECT * FROM read_parquet('{name}')"),
            format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{name}'"),
        ] {
            let answer = server.post(&me.path("P/query/", me), &json!({"query": sql}));
            assert_eq!(answer.status, 400, "{sql}: {answer}");
        }
    }
}

/// Every operation of a project on its own objects, which have the same names in the other project.
fn omega_ends(server: &TestServer, omega: &Owner) {
    let token = server.get(&format!("/api/projects/{}/", omega.project)).json();
    let event = |name: &str, properties: Value| json!({"event": name, "distinct_id": "same", "properties": properties});
    let group = json!({"$group_type": "alpha", "$group_key": "same", "$group_set": {"name": "x"}});
    let batch = json!([
        event("$identify", json!({"$anon_distinct_id": "device", "$set": {"email": "x"}})),
        event("$set", json!({"$unset": ["plan", "mark"]})),
        event("only of alpha", json!({"p_alpha": "x", "secret": 1})),
        event("$groupidentify", group),
        event("$delete_person_property", json!({"$unset": ["email"]})),
    ]);
    let body = json!({"api_key": token["api_token"], "batch": batch}).to_string();
    assert_eq!(ask(server, KEY, "POST", "/batch/", &body).status, 200);
    // What deletes comes last.
    let mut lines: Vec<&Endpoint> = endpoints().filter(|line| has_id(line)).collect();
    lines.sort_by_key(|line| line.methods().any(|method| method == "DELETE"));
    let mut done = 0;
    for line in lines {
        for method in line.methods().filter(|method| *method != "GET") {
            let path = omega.path(line.path, omega);
            let answer = send_known_fields(&omega.of_mine(HARM), |body| {
                ask(server, KEY, method, &path, body)
            });
            assert!(answer.status < 500, "{method} {path}: {answer}");
            done += usize::from(answer.status < 300);
        }
    }
    assert!(done > 15, "{done}");
    let path = omega.path("P/persons/bulk_delete/", omega);
    let body = r#"{"distinct_ids": ["same", "gone", "device"], "delete_events": true}"#;
    assert_eq!(ask(server, KEY, "POST", &path, body).status, 202);
}

/// Requests without an id in the path, with the ids of the other project in the body.
fn writes_do_no_harm(server: &TestServer, (me, you): (&Owner, &Owner)) {
    for line in endpoints().filter(|line| !has_id(line)) {
        // The project itself is deleted at the end.
        let is_end = |method: &str| method == "DELETE" && line.path == "P/";
        for method in line.methods().filter(|method| *method != "GET" && !is_end(method)) {
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

/// Goal: the same over the PostgreSQL port. Method: every row of every table, also of the catalog, by a key of each project.
#[test]
fn projects_never_see_each_other_over_the_postgresql_port() {
    let server = TestServer::start_with(&[("WEIR_POSTGRES_LISTEN", "127.0.0.1:0")]);
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let token = other["api_token"].as_str().expect("a token");
    let alpha = Owner::fill(&server, 1, TOKEN, "alpha");
    let omega = Owner::fill(&server, other["id"].as_i64().expect("an id"), token, "omega");
    for owner in [&alpha, &omega] {
        settle(&server, owner.project, &owner.ids);
    }
    for (me, you) in [(&alpha, &omega), (&omega, &alpha)] {
        let key = key_of(&server, me.project);
        let address = server.postgres();
        for name in [you.project.to_string(), format!("shop of {}", you.secret)] {
            let refused = Session::open(address, &key, &name).map(drop).expect_err("refused");
            assert_eq!(refused.code, "3D000", "{name}");
            assert!(
                !refused.message.replace(&name, "").contains(you.secret),
                "{}",
                refused.message
            );
        }
        let own = format!("shop of {}", me.secret);
        let mut session = Session::open(address, &key, &own).expect("a session");
        let sql = "SELECT table_schema || '.' || table_name FROM information_schema.tables";
        let mut tables: Vec<String> = session.rows(sql).expect("tables").concat();
        let listed = include_str!("../../src/pg/catalog/schemas.rs");
        let names = listed.split('"').filter(|word| word.starts_with("pg_") && !word.contains(' '));
        tables.extend(names.map(|name| format!("pg_catalog.{name}")));
        assert!(tables.len() > 60, "{}", tables.len());
        for table in tables {
            let rows = session.rows(&format!("SELECT * FROM {table}"));
            let text = format!("{:?}", rows.unwrap_or_else(|error| panic!("{table}: {error:?}")));
            assert!(!text.contains(you.secret), "{table}: {text}");
            let has_own =
                ["public.events", "public.persons", "public.groups"].contains(&table.as_str());
            assert!(!has_own || text.contains(me.secret), "{table}: {text}");
        }
        for sql in [
            format!("SELECT * FROM \"{}\".public.events", you.project),
            format!("SELECT * FROM \"shop of {}\".public.events", you.secret),
            format!("SET search_path = '{}'; SELECT properties FROM events", you.secret),
            format!("SELECT * FROM events WHERE person_id IN COHORT {}", you.ids["COHORT"]),
            format!("SELECT relname FROM pg_class WHERE relname = '{}'", you.secret),
        ] {
            let answer = session.rows(&sql);
            let text = format!("{answer:?}").replace(&sql, "");
            let is_told = text.replace(&format!("shop of {}", you.secret), "").contains(you.secret);
            assert!(!is_told, "{sql}: {text}");
        }
    }
}
