//! `weir transfer`: a project with a bit of everything is copied from one Weir to another whose ids are others, and compared
//! object by object; and a PostHog whose answers were written from its documentation, and sources that misbehave.

mod everything;
mod sources;

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{KEY, TOKEN, TestServer, binary};
use everything::{compared, fill, shift_ids};
use sources::Source;

/// A copy, with the directory of its state.
struct Copy {
    directory: TempDir,
    from: String,
    to: String,
}

impl Copy {
    fn new(from: &str, to: &TestServer) -> Self {
        Self { directory: TempDir::new().unwrap(), from: from.to_owned(), to: to.url() }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.arg("transfer").current_dir(self.directory.path());
        command.args(["--from-url", &self.from, "--url", &self.to]);
        command.env("WEIR_SOURCE_KEY", SECRET).env("WEIR_PERSONAL_API_KEY", KEY).args(more);
        command
    }

    fn run(&self, more: &[&str]) -> (bool, String, String) {
        let output = self.command(more).output().expect("weir transfer");
        let told = told(&output);
        assert!(!format!("{}{}", told.1, told.2).contains(SECRET), "the key is shown: {told:?}");
        told
    }

    /// The same, of a copy that has to succeed.
    fn done(&self, more: &[&str]) -> String {
        let (is_done, stdout, stderr) = self.run(more);
        assert!(is_done, "{stderr}\n{stdout}");
        stdout
    }

    fn forget(&self) {
        std::fs::remove_file(self.directory.path().join("weir-transfer.json")).unwrap();
    }
}

/// The key of sources: that of test servers.
const SECRET: &str = KEY;

fn told(output: &Output) -> (bool, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// What was changed of the objects of a project, so far.
fn changes(server: &TestServer) -> Value {
    server.get("/api/projects/1/activity_log/?limit=1").json()["total_count"].clone()
}

fn rows(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_else(|| vec![list.clone()])
}

fn assert_same(source: &TestServer, target: &TestServer) {
    let (source, target) = (compared(source), compared(target));
    let mut differences = Vec::new();
    for (name, own) in source.as_object().unwrap() {
        let (own, other) = (rows(own), rows(&target[name]));
        let first = own.iter().zip(&other).find(|(own, other)| own != other);
        if own.len() != other.len() || first.is_some() {
            let counts = (own.len(), other.len());
            differences.push(format!("{name}: {counts:?}: {first:#?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_project_with_everything_comes_over_and_twice_is_once() {
    let (source, target) = (TestServer::start(), TestServer::start());
    fill(&source);
    shift_ids(&target);
    let copy = Copy::new(&source.url(), &target);
    let report = copy.done(&["--strict"]);
    assert!(!report.contains("Could not come"), "{report}");
    assert_same(&source, &target);
    target.has_no_twins();

    // By the stored ids, and without them.
    let before = changes(&target);
    for is_forgotten in [false, true] {
        if is_forgotten {
            copy.forget();
        }
        let report = copy.done(&["--strict"]);
        assert!(!report.contains(" made"), "{report}");
        assert!(!report.contains(" changed"), "{report}");
        assert_eq!(changes(&target), before, "{report}");
        assert_same(&source, &target);
        target.has_no_twins();
    }

    // What is changed in the target stays, unless that is asked for.
    let flags = target.get("/api/projects/1/feature_flags/?key=base").json();
    let flag = flags["results"].as_array().unwrap().iter().find(|flag| flag["key"] == "base");
    let path = format!("/api/projects/1/feature_flags/{}/", flag.unwrap()["id"]);
    assert_eq!(target.patch(&path, &json!({"name": "Mine"})).status, 200);
    let report = copy.done(&[]);
    assert!(report.contains("feature flag \"base\": name; --update changes it"), "{report}");
    assert_eq!(target.get(&path).json()["name"], "Mine");
    copy.done(&["--update"]);
    assert_same(&source, &target);
}

#[test]
fn a_copy_that_is_killed_goes_on_where_it_was() {
    let (source, target) = (TestServer::start(), TestServer::start());
    fill(&source);
    shift_ids(&target);
    let copy = Copy::new(&source.url(), &target);
    for (number, millis) in
        [30, 150, 300, 500, 700, 900, 1_200, 1_600, 2_200, 3_000].into_iter().enumerate()
    {
        let mut command = copy.command(&[]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().expect("weir transfer");
        thread::sleep(Duration::from_millis(millis));
        process.kill().unwrap();
        process.wait().unwrap();
        if number % 3 == 2 {
            // Also without what it had noted.
            let _ = std::fs::remove_file(copy.directory.path().join("weir-transfer.json"));
        }
    }
    copy.done(&[]);
    assert_same(&source, &target);
    target.has_no_twins();
}

#[test]
fn the_state_of_another_copy_is_refused_and_a_new_project_is_made_once() {
    let (source, target) = (TestServer::start(), TestServer::start());
    let copy = Copy::new(&source.url(), &target);
    assert_eq!(source.patch("/api/projects/1/", &json!({"name": "Shöp"})).status, 200);
    copy.done(&["--new-project"]);
    copy.done(&["--new-project"]);
    let projects = target.get("/api/projects/").json();
    let named = projects["results"].as_array().unwrap().iter().filter(|own| own["name"] == "Shöp");
    assert_eq!(named.count(), 1, "{projects}");
    let (is_done, _, stderr) = copy.run(&[]);
    assert!(!is_done && stderr.contains("name another file by --state"), "{stderr}");
    let (is_done, _, stderr) = Copy::new(&target.url(), &target).run(&[]);
    assert!(!is_done && stderr.contains("into itself"), "{stderr}");
    std::fs::write(copy.directory.path().join("weir-transfer.json"), "{\"version\": 1}").unwrap();
    let (is_done, _, stderr) = copy.run(&["--new-project"]);
    assert!(!is_done && stderr.contains("is not the state of a copy"), "{stderr}");
}

#[test]
fn what_is_sent_apart_survives_a_kill() {
    let mut server = TestServer::start();
    let send = |server: &TestServer, only: &str, events: Value| {
        let body = json!({"api_key": TOKEN, "historical_migration": true, "import": {"person_properties": "overwrite", "only": only}, "batch": events});
        server.send("POST", "/batch/", &[("content-type", "application/json")], body.to_string())
    };
    let at = "2026-01-02T03:04:05.000006Z";
    let merge = json!([{"event": "$merge_dangerously", "distinct_id": "a", "timestamp": at,
        "properties": {"alias": "b", "$set": {"plan": "now"}}}]);
    let group = json!([{"event": "$groupidentify", "distinct_id": "g", "timestamp": at,
        "properties": {"$group_type": "company", "$group_key": "acme", "$group_set": {"size": 3}}}]);
    let past = json!([{"event": "$identify", "distinct_id": "a", "timestamp": at,
        "properties": {"$anon_distinct_id": "c", "$set": {"plan": "then"}}}]);
    for (only, events) in [("persons", merge), ("persons", group), ("events", past)] {
        assert_eq!(send(&server, only, events).json()["status"], 1);
    }
    let wrong = send(&server, "people", json!([{"event": "e", "distinct_id": "a"}]));
    assert_eq!((wrong.status, &wrong.json()["code"]), (400, &json!("invalid_payload")));
    for is_flushed in [false, true] {
        let events = server.query("SELECT event, distinct_id, ip FROM events");
        assert_eq!(events, [json!({"event": "$identify", "distinct_id": "a", "ip": null})]);
        let persons = server.get("/api/projects/1/persons/").json();
        assert_eq!(
            (&persons["count"], &persons["results"][0]["distinct_ids"]),
            (&json!(1), &json!(["a", "b"]))
        );
        assert_eq!(persons["results"][0]["properties"]["plan"], "now");
        let groups = server.get("/api/projects/1/groups/?group_type_index=0").json();
        assert_eq!(
            (&groups["count"], &groups["results"][0]["created_at"]),
            (&json!(1), &json!(at))
        );
        if is_flushed {
            server.flush();
        }
        server.kill();
        server.restart();
    }
    server.is_undamaged();
}

#[test]
fn types_of_groups_get_the_numbers_of_the_target() {
    let (source, target) = (TestServer::start(), TestServer::start());
    let event = |types: Value| json!([{"event": "joined", "distinct_id": "u", "properties": {"$groups": types}}]);
    assert_eq!(source.capture(&event(json!({"company": "acme"}))).status, 200);
    assert_eq!(source.capture(&event(json!({"company": "acme", "team": "t"}))).status, 200);
    for name in ["one", "two", "team", "three"] {
        assert_eq!(target.capture(&event(json!({name: "x"}))).status, 200);
    }
    let flag = |key: &str, index: u8| {
        let filters = json!({"aggregation_group_type_index": index, "groups": [{"properties": [], "rollout_percentage": 50}]});
        source
            .post("/api/projects/1/feature_flags/", &json!({"key": key, "filters": filters}))
            .created();
    };
    flag("of-companies", 0);
    flag("of-teams", 1);
    let copy = Copy::new(&source.url(), &target);
    copy.done(&["--strict"]);
    let flags = target.get("/api/projects/1/feature_flags/").json();
    for (key, index) in [("of-companies", 4), ("of-teams", 2)] {
        let flag = flags["results"].as_array().unwrap().iter().find(|flag| flag["key"] == key);
        assert_eq!(flag.unwrap()["filters"]["aggregation_group_type_index"], index, "{key}");
    }
    let rows = target.query(
        "SELECT group_2 AS team, group_4 AS company, properties.$group_0 AS other FROM events \
         WHERE group_4 = 'acme' ORDER BY group_2",
    );
    let (acme, none) = (json!("acme"), Value::Null);
    assert_eq!(
        rows,
        [
            json!({"team": "t", "company": acme, "other": none}),
            json!({"team": none, "company": acme, "other": none}),
        ]
    );
    // No room for a sixth type: its groups, and what asks for it, stay behind.
    assert_eq!(source.capture(&event(json!({"planet": "mars"}))).status, 200);
    flag("of-planets", 2);
    let report = copy.done(&[]);
    assert!(report.contains("group type \"planet\": a project has at most five"), "{report}");
    assert!(
        report.contains("feature flag \"of-planets\": it refers to the group type 2"),
        "{report}"
    );
}

#[test]
fn a_posthog_comes_over_in_its_own_forms() {
    let target = TestServer::start();
    let source = Source::posthog();
    let copy = Copy::new(&source.url(), &target);
    let report = copy.done(&[]);
    for expected in [
        "person               3 sent",
        "event                3 made",
        "feature flag         2 made, 1 left",
        "insight              3 made, 1 left",
        "insight \"Of a warehouse\"",
        "feature flag \"secret\": its payloads are encrypted",
        "project setting \"surveys\": 2 in the source, of which Weir has none",
        "cohort \"By query\": its members are those of a query",
        "dashboard \"KPIs\": its public link does not come",
        "dashboard \"KPIs\": without its filters: 400: filters__hog: Unknown field",
        "scheduled change \"of flag 901\": it was made already",
    ] {
        assert!(report.contains(expected), "{expected}\n{report}");
    }
    sources::check_posthog(&target);
    let (is_done, _, stderr) = copy.run(&["--strict"]);
    assert!(!is_done && stderr.contains("not everything could come"), "{stderr}");
    let asked = source.asked();
    assert!(asked.iter().all(|line| !line.contains("offset=9999")), "{asked:?}");
}

#[test]
fn what_the_key_may_not_read_stays_behind_with_the_reason() {
    let (source, target) = (TestServer::start(), TestServer::start());
    let rule = json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": [
        {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}]}]}});
    source.post("/api/projects/1/cohorts/", &json!({"name": "Pro", "filters": rule})).created();
    source.post("/api/projects/1/feature_flags/", &json!({"key": "new"})).created();
    let key = json!({"label": "some", "scopes": ["project:read", "cohort:read"]});
    let key = source.post("/api/personal_api_keys/", &key).created();
    let copy = Copy::new(&source.url(), &target);
    let output = copy.command(&[]).env("WEIR_SOURCE_KEY", key["value"].as_str().unwrap()).output();
    let (is_done, stdout, stderr) = told(&output.unwrap());
    assert!(is_done, "{stderr}");
    for expected in [
        "cohort               1 made",
        "person \"all\"",
        "event \"all\"",
        "feature flag \"all\"",
        "403",
    ] {
        assert!(stdout.contains(expected), "{expected}\n{stdout}");
    }
    assert_eq!(target.get("/api/projects/1/cohorts/").json()["count"], 1);
    assert_eq!(target.get("/api/projects/1/feature_flags/").json()["count"], 0);
    // A key of another server, and one that may not write.
    let output = copy.command(&[]).env("WEIR_SOURCE_KEY", "phx_wrong").output();
    let (is_done, _, stderr) = told(&output.unwrap());
    assert!(!is_done && stderr.contains("the source: ") && stderr.contains("401"), "{stderr}");
    let key = target
        .post(
            "/api/personal_api_keys/",
            &json!({"label": "r", "scopes": ["project:read", "group:read"]}),
        )
        .created();
    let output =
        copy.command(&[]).env("WEIR_PERSONAL_API_KEY", key["value"].as_str().unwrap()).output();
    let (is_done, _, stderr) = told(&output.unwrap());
    assert!(!is_done && stderr.contains("the target: ") && stderr.contains("403"), "{stderr}");
}

#[test]
fn hostile_sources_end_in_an_error_that_says_where() {
    let target = TestServer::start();
    for (source, expected) in Source::hostile() {
        let copy = Copy::new(&source.url(), &target);
        let (is_done, stdout, stderr) = copy.run(&[]);
        assert!(!is_done, "{expected}: {stdout}");
        assert!(stderr.contains(expected), "{expected}: {stderr}");
        assert!(stderr.contains("the source: "), "{stderr}");
    }
    for (url, expected) in [
        ("ftp://x", "not an address of http or https"),
        ("http://a:b@x", "a name or a password"),
        ("http://127.0.0.1:1", "no answer"),
        ("http://127.0.0.1:1/posthog", "has a path"),
    ] {
        let (is_done, _, stderr) = Copy::new(url, &target).run(&[]);
        assert!(!is_done && stderr.contains(expected), "{url}: {stderr}");
    }
}
