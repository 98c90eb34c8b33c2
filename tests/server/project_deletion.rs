//! Deletion of projects: a project is in no response at once, and in no file in time, however the server ends in between;
//! other projects stay as they are, and neither its id nor its token is given again. DuckDB reads the files.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::deletion::STILL;
use crate::harness::{Answer, KEY, TOKEN, TestServer, binary, patiently, run};
use crate::sdk::tools;
use crate::support::forms;

const GIVEN: &str = "phc_a_token_that_clients_have";

/// Everything happens all the time.
const BUSY: [(&str, &str); 7] = [
    ("WEIR_MEMTABLE_MAX_AGE", "100ms"),
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB"),
    ("WEIR_COMPACTION_INTERVAL", "50ms"),
    ("WEIR_COMPACTION_FILES_MIN", "2"),
    ("WEIR_DELETION_INTERVAL", "100ms"),
    ("WEIR_PERSONS_TABLE_INTERVAL", "1s"),
    ("WEIR_VACUUM_GRACE", "1s"),
];

fn create(server: &TestServer, body: &Value) -> Answer {
    server.post("/api/projects/", body)
}

fn send(server: &TestServer, token: &str, events: &[(Uuid, String)]) -> Answer {
    let event = |(uuid, id): &(Uuid, String)| {
        json!({"event": "visit", "uuid": uuid, "distinct_id": id,
               "properties": {"$set": {"email": format!("{id}@x.org")}, "$groups": {"company": id}}})
    };
    let batch: Vec<Value> = events.iter().map(event).collect();
    server.post("/batch/", &json!({"api_key": token, "batch": batch}))
}

fn events(random: &mut StdRng, count: usize) -> Vec<(Uuid, String)> {
    (0..count)
        .map(|_| (Uuid::from_u128(random.random()), format!("p{}", random.random_range(0..5))))
        .collect()
}

/// Number of rows by project in Parquet files, read by DuckDB; `None` if one was removed meanwhile.
fn rows_in(files: &[String]) -> Option<BTreeMap<i64, u64>> {
    if files.is_empty() {
        return Some(BTreeMap::new());
    }
    let script = "import duckdb, sys\n\
                  for row in duckdb.execute('SELECT project_id, count(*) FROM read_parquet(?) GROUP BY ALL', \
                  [sys.argv[1:]]).fetchall(): print(row[0], row[1])";
    let mut command = Command::new(tools().join("readers/bin/python"));
    command.arg("-c").arg(script).args(files);
    let row = |line: &str| {
        let (project, count) = line.split_once(' ').expect("two");
        (project.parse().expect("a project"), count.parse().expect("a count"))
    };
    let output = command.output().expect("runs");
    let (rows, failed) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        assert!(failed.contains("No such file") || failed.contains("No files found"), "{failed}");
        return None;
    }
    Some(String::from_utf8(rows).expect("UTF-8").lines().map(row).collect())
}

fn events_in_files(server: &TestServer) -> Option<BTreeMap<i64, u64>> {
    let files = server.files().into_iter().map(|path| path.to_string_lossy().into_owned());
    rows_in(&files.collect::<Vec<_>>())
}

/// The live files of the persons table, as its log has them.
fn persons_in_files(server: &TestServer) -> Option<BTreeMap<i64, u64>> {
    let script = "import deltalake, sys\n\
                  for file in deltalake.DeltaTable(sys.argv[1]).file_uris(): print(file)";
    let mut command = Command::new(tools().join("readers/bin/python"));
    let table = server.data_dir().join("tables/persons");
    command.arg("-c").arg(script).arg(table);
    rows_in(&run(command).lines().map(str::to_owned).collect::<Vec<_>>())
}

fn uuids(server: &TestServer) -> BTreeSet<Uuid> {
    let rows = server.query("SELECT uuid FROM events");
    let found: BTreeSet<Uuid> =
        rows.iter().map(|row| row["uuid"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(found.len(), rows.len(), "each once");
    found
}

/// The persons of the first project: ids and distinct ids.
fn persons(server: &TestServer) -> Vec<(Value, Value)> {
    let page = server.get("/api/projects/1/persons/?limit=100").json();
    let mut found: Vec<(Value, Value)> = page["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|person| (person["id"].clone(), person["distinct_ids"].clone()))
        .collect();
    found.sort_by_key(|(id, _)| id.to_string());
    found
}

/// Checks that a project is in no response.
fn is_gone(server: &TestServer, id: i64, token: &str, state: &str) {
    for path in ["", "events/", "persons/", "feature_flags/", "insights/", "activity_log/"] {
        let answer = server.get(&format!("/api/projects/{id}/{path}"));
        assert_eq!(answer.status, 404, "{state}: {path}: {answer}");
    }
    let sql = json!({"query": "SELECT count(*) FROM events"});
    let answer = server.post(&format!("/api/projects/{id}/query/"), &sql);
    assert_eq!(answer.status, 404, "{state}: {answer}");
    let all = server.get("/api/projects/").json();
    let ids = all["results"].as_array().expect("results").iter().map(|own| own["id"].as_i64());
    assert!(ids.into_iter().all(|own| own != Some(id)), "{state}: {all}");
    let unknown = server
        .post("/batch/", &json!({"api_key": "phc_nobody_has_this", "batch": [{"event": "e"}]}));
    let refused = server.post("/batch/", &json!({"api_key": token, "batch": [{"event": "e"}]}));
    assert_eq!((refused.status, unknown.status), (401, 401), "{state}: {refused}");
    assert_eq!(refused.json(), unknown.json(), "{state}: as an unknown token");
    let flags = server.post("/flags/?v=2", &json!({"token": token, "distinct_id": "p1"}));
    assert_eq!(flags.status, 401, "{state}: {flags}");
    let decide = server.get(&format!("/array/{token}/config"));
    assert_ne!(decide.status, 200, "{state}: {decide}");
    let output = server
        .weir(&["query", "--project", &id.to_string(), "SELECT count(*) FROM events"])
        .output()
        .expect("runs");
    assert!(!output.status.success(), "{state}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_deleted_project_is_in_no_answer_and_leaves_the_files() {
    let mut server = TestServer::start_with(&STILL);
    let made = create(&server, &json!({"name": "Shop", "api_token": GIVEN})).created();
    assert_eq!((&made["id"], &made["api_token"]), (&json!(2), &json!(GIVEN)));
    let mut random = StdRng::seed_from_u64(5);
    let (own, gone) = (events(&mut random, 20), events(&mut random, 20));
    assert_eq!(send(&server, TOKEN, &own[..10]).status, 200);
    assert_eq!(send(&server, GIVEN, &gone[..10]).status, 200);
    server.flush();
    assert_eq!(send(&server, TOKEN, &own[10..]).status, 200);
    assert_eq!(send(&server, GIVEN, &gone[10..]).status, 200);
    let flag = json!({"key": "f", "name": "", "active": true, "filters": {"groups": [{"rollout_percentage": 100}]}});
    server.post("/api/projects/2/feature_flags/", &flag).created();
    server.post("/api/projects/2/insights/", &json!({"name": "i", "saved": true})).created();
    let count = json!({"query": {"kind": "HogQLQuery", "query": "SELECT count(*) FROM events"}});
    let counted = server.post("/api/projects/2/query/", &count).json();
    assert_eq!(counted["results"], json!([[20]]));
    let before = persons(&server);

    let answer = server.delete("/api/projects/2/");
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{answer}");
    let expected: BTreeSet<Uuid> = own.iter().map(|(uuid, _)| *uuid).collect();
    // Whether the deletion is in the log, from which on a flush leaves the project out.
    let mut is_logged = false;
    for state in ["at once", "after a crash", "after an end"] {
        is_gone(&server, 2, GIVEN, state);
        assert_eq!(uuids(&server), expected, "{state}");
        assert_eq!(persons(&server), before, "{state}");
        match state {
            "at once" => {
                is_logged = server.stderr().contains("a project is deleted");
                server.kill();
            }
            _ => {
                let logged = patiently(|| {
                    is_logged |= server.stderr().contains("a project is deleted");
                    is_logged.then_some(())
                });
                logged.expect("the deletion is logged");
                server.stop();
            }
        }
        server.restart();
    }
    // What was in memory did not get into files; what was in them is there until the pass.
    server.flush();
    assert_eq!(events_in_files(&server), Some(BTreeMap::from([(1, 20), (2, 10)])));
    server.stop();
    for (name, value) in BUSY {
        server.set(name, value);
    }
    server.restart();
    let done = patiently(|| (events_in_files(&server)?.keys().eq([&1])).then_some(()));
    done.expect("it is in no file");
    let done = patiently(|| (persons_in_files(&server)?.keys().eq([&1])).then_some(()));
    done.expect("its persons are in no file");
    let done = patiently(|| (server.metric("weir_deletions_pending") == 0).then_some(()));
    done.expect("it is done");
    assert_eq!((uuids(&server), persons(&server)), (expected, before));
    is_gone(&server, 2, GIVEN, "at the end");

    // Neither its id nor its token comes back.
    let again = create(&server, &json!({"name": "Shop", "api_token": GIVEN}));
    assert_eq!((again.status, &again.json()["code"]), (400, &json!("unique")), "{again}");
    assert_eq!(again.json()["attr"], "api_token");
    let (id, token) = server.project("Another");
    assert_eq!(id, 3);
    let path = format!("/api/projects/{id}/events/");
    assert_eq!(server.get(&path).json()["results"], json!([]));
    let one = events(&mut random, 1);
    assert_eq!(send(&server, &token, &one).status, 200);
    assert_eq!(server.get(&path).json()["results"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.delete("/api/projects/2/").status, 404);
    let path = "/api/organizations/@current/projects/3/";
    assert_eq!(server.delete(path).status, 204);
    is_gone(&server, 3, &token, "by the other path");
    let last = server.delete("/api/projects/1/");
    assert_eq!((last.status, &last.json()["code"]), (400, &json!("invalid_input")), "{last}");
    assert_eq!(server.get("/api/projects/1/").status, 200);
    server.is_undamaged();
}

/// Goal: whatever moment the process ends at, a deleted project stays deleted and leaves the files, and the first project
/// has exactly its events, with the same persons under the same ids.
#[test]
fn deletions_of_projects_survive_kills() {
    let mut server = TestServer::start_with(&BUSY);
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut own: BTreeSet<Uuid> = BTreeSet::new();
    let mut gone = Vec::new();
    let (mut other, mut token) = server.project("other");
    let mut known: Vec<(Value, Value)> = Vec::new();
    for round in 0..6 {
        for _ in 0..random.random_range(1..4) {
            let batch = events(&mut random, 20);
            assert_eq!(send(&server, TOKEN, &batch).status, 200);
            own.extend(batch.iter().map(|(uuid, _)| *uuid));
            let batch = events(&mut random, 20);
            assert_eq!(send(&server, &token, &batch).status, 200);
        }
        if round == 0 {
            known = persons(&server);
        }
        let is_deleted = random.random_bool(0.7);
        if is_deleted {
            assert_eq!(server.delete(&format!("/api/projects/{other}/")).status, 204);
            gone.push((other, token.clone()));
        }
        thread::sleep(Duration::from_millis(random.random_range(0..400)));
        server.kill();
        server.restart();
        assert_eq!(uuids(&server), own, "round {round}");
        let now = persons(&server);
        assert!(known.iter().all(|person| now.contains(person)), "{known:?} {now:?}");
        known = now;
        if is_deleted {
            (other, token) = server.project("other");
        }
        for (id, token) in &gone {
            is_gone(&server, *id, token, &format!("round {round}"));
        }
    }
    let is_left = |id: &i64| *id == 1 || *id == other;
    let done = patiently(|| {
        let is_clean = events_in_files(&server)?.keys().all(is_left)
            && persons_in_files(&server)?.keys().all(is_left);
        (is_clean && server.metric("weir_deletions_pending") == 0).then_some(())
    });
    done.expect("the deleted projects are in no file");
    assert_eq!(uuids(&server), own);
    server.is_undamaged();
}

/// Requests that are on their way when the project is deleted are answered 200 or 401, and leave nothing.
#[test]
fn senders_race_with_the_deletion() {
    let server = TestServer::start_with(&BUSY);
    let (id, token) = server.project("busy");
    let statuses: BTreeSet<u16> = thread::scope(|scope| {
        let senders: Vec<_> = (0..4_u64)
            .map(|number| {
                let (server, token) = (&server, &token);
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(number);
                    let mut last = 0;
                    let mut statuses = BTreeSet::new();
                    for _ in 0..200 {
                        let status = send(server, token, &events(&mut random, 3)).status;
                        assert!(last != 401 || status == 401, "it does not come back");
                        last = status;
                        statuses.insert(status);
                    }
                    statuses
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(50));
        assert_eq!(server.delete(&format!("/api/projects/{id}/")).status, 204);
        senders.into_iter().flat_map(|sender| sender.join().expect("ends")).collect()
    });
    assert!(statuses.is_subset(&BTreeSet::from([200, 401])), "{statuses:?}");
    // From its record in the log on, no flush writes what came before.
    let logged = patiently(|| server.stderr().contains("a project is deleted").then_some(()));
    logged.expect("the deletion is logged");
    server.flush();
    let done = patiently(|| {
        let is_gone = !events_in_files(&server)?.contains_key(&id);
        (is_gone && server.metric("weir_deletions_pending") == 0).then_some(())
    });
    done.expect("it is in no file");
    assert_eq!(server.get("/_readiness").status, 200);
}

#[test]
fn only_admins_delete_projects_of_their_own() {
    let server = TestServer::start();
    let (id, _) = server.project("Shop");
    let scopes = ["project:read", "event_definition:write"];
    let reads = server.key(&json!({"label": "reads", "scopes": scopes}));
    let limited = server.key(&json!({"label": "limited", "scopes": ["*"], "scoped_teams": [id]}));
    let path = format!("/api/projects/{id}/");
    for key in ["", reads.as_str(), limited.as_str(), "phx_nobody"] {
        let bearer = format!("Bearer {key}");
        let answer = server.send("DELETE", &path, &[("authorization", &bearer)], String::new());
        assert!([401, 403].contains(&answer.status), "{key}: {answer}");
        let body = json!({"event_retention_days": 1}).to_string();
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let answer = server.send("PATCH", &path, &headers, body);
        assert!([401, 403].contains(&answer.status), "{key}: {answer}");
    }
    assert_eq!(server.get(&path).json()["event_retention_days"], Value::Null);
    for other in ["/api/projects/99/", "/api/projects/x/"] {
        assert_eq!(server.delete(other).status, 404, "{other}");
    }
    // The key that is limited to the project ends with it.
    assert_eq!(server.delete(&path).status, 204);
    let bearer = format!("Bearer {limited}");
    let answer = server.send("GET", "/api/projects/", &[("authorization", &bearer)], String::new());
    assert_eq!(answer.status, 401, "{answer}");
}

#[test]
fn a_project_takes_the_token_that_its_clients_have() {
    let server = TestServer::start();
    for (path, token) in [
        ("/api/projects/", GIVEN),
        ("/api/organizations/@current/projects/", "phc_of_another_server"),
    ] {
        let made = server.post(path, &json!({"name": "moved", "api_token": token})).created();
        assert_eq!(made["api_token"], token);
        let sent = events(&mut StdRng::seed_from_u64(1), 2);
        assert_eq!(send(&server, token, &sent).status, 200);
        let listed = server.get(&format!("/api/projects/{}/events/", made["id"])).json();
        assert_eq!(listed["results"].as_array().map(Vec::len), Some(2));
    }
    let long = "x".repeat(65);
    for (token, code) in [
        (json!(GIVEN), "unique"),
        (json!(TOKEN), "unique"),
        (json!(KEY), "invalid_input"),
        (json!("phs_a_secret_of_a_project"), "invalid_input"),
        (json!("short"), "invalid_input"),
        (json!(long), "invalid_input"),
        (json!("with a space in it"), "invalid_input"),
        (json!("phc_\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}"), "invalid_input"),
        (json!(17), "invalid_input"),
    ] {
        let answer = create(&server, &json!({"name": "x", "api_token": token}));
        let told = answer.json();
        assert_eq!((answer.status, &told["attr"]), (400, &json!("api_token")), "{token}: {answer}");
        assert!(token == json!(17) || told["code"] == code, "{token}: {answer}");
    }
    // A token of before is not given again; the one of now may be sent back, as clients do, but not changed.
    let rotated = server.patch("/api/projects/2/reset_token/", &json!({})).json();
    let answer = create(&server, &json!({"name": "x", "api_token": GIVEN}));
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("unique")));
    let same = json!({"name": "same", "api_token": rotated["api_token"]});
    assert_eq!(server.patch("/api/projects/2/", &same).status, 200);
    let other = server.patch("/api/projects/2/", &json!({"api_token": "phc_something_else"}));
    assert_eq!((other.status, &other.json()["attr"]), (400, &json!("api_token")), "{other}");
}

#[test]
fn the_page_creates_and_deletes_projects() {
    let server = TestServer::start();
    let fields = [("name", "Shop"), ("api_token", GIVEN)];
    let answer = forms::post_to(&server, "/project/1/settings/projects", &fields);
    assert_eq!(answer.status, 303, "{answer}");
    let page = server.get("/project/2/settings").to_string();
    assert!(page.contains("settings/delete") && page.contains(GIVEN), "{page}");
    let wrong = forms::post_to(&server, "/project/2/settings/delete", &[("name", "shop")]);
    assert_eq!(wrong.status, 400, "{wrong}");
    assert_eq!(server.get("/api/projects/2/").status, 200);
    for (days, expected) in [("30", json!(30)), ("", Value::Null)] {
        let fields = [("event_retention_days", days)];
        let answer = forms::post_to(&server, "/project/2/settings/retention", &fields);
        assert_eq!(answer.status, 303, "{answer}");
        assert_eq!(server.get("/api/projects/2/").json()["event_retention_days"], expected);
    }
    let fields = [("event_retention_days", "x")];
    assert_eq!(forms::post_to(&server, "/project/2/settings/retention", &fields).status, 400);
    let answer = forms::post_to(&server, "/project/2/settings/delete", &[("name", " Shop ")]);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer}");
    is_gone(&server, 2, GIVEN, "by the page");
}

#[test]
fn synthetic_events_go_into_a_project_of_their_own() {
    let server = TestServer::start();
    let url = server.url();
    let data_dir = server.data_dir();
    let load = |arguments: &[&str]| {
        let all =
            [&["load", "--new-project", "demo", "--events", "1000", "--json"], arguments].concat();
        let mut command = Command::new(binary());
        command.args(&all).env_remove("WEIR_PERSONAL_API_KEY").env_remove("WEIR_PROJECT_API_KEY");
        command.output().expect("runs")
    };
    let by_key = load(&["--url", &url, "--key", KEY]);
    let by_secret = load(&["--data-dir", &data_dir.to_string_lossy()]);
    for (output, id) in [(by_key, 2), (by_secret, 3)] {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains(&format!("project {id} (demo)")), "{stderr}");
        let made = server.get(&format!("/api/projects/{id}/")).json();
        assert_eq!(made["name"], "demo");
        let sql = json!({"query": {"kind": "HogQLQuery", "query": "SELECT count(*) FROM events"}});
        let counted = server.post(&format!("/api/projects/{id}/query/"), &sql).json();
        assert_eq!(counted["results"], json!([[1000]]), "{id}");
    }
    assert_eq!(server.count("SELECT count(*) FROM events"), 0);
    let nowhere = load(&["--data-dir", "/nonexistent"]);
    assert!(!nowhere.status.success());
    let refused = load(&["--url", &url, "--key", "phx_nobody_has_this"]);
    assert!(!refused.status.success());
    assert_eq!(server.get("/api/projects/").json()["count"], 3);
}
