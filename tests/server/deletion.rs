//! Deletion of a person's events over HTTP: they leave every response at once and the files after
//! `deletion-interval`, however the server ends in between; later events stay. Expectations come
//! from what was sent; DuckDB reads the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Answer, KEY, TestServer, patiently, run};
use crate::sdk::tools;

const PERSONS: &str = "/api/projects/@current/persons/";
const EVENTS: &str = "/api/projects/@current/events/";

/// Nothing happens to files by itself: no merge, no further pass over deleted events after the
/// first.
pub(crate) const STILL: [(&str, &str); 3] = [
    ("WEIR_COMPACTION_INTERVAL", "1h"),
    ("WEIR_DELETION_INTERVAL", "1h"),
    ("WEIR_COMPACTION_FILES_MIN", "1000"),
];

fn event(uuid: u128, id: &str, secret: &str) -> Value {
    json!({
        "uuid": Uuid::from_u128(uuid), "event": "visit", "distinct_id": id,
        "properties": {"secret": secret, "$set": {"plan": secret}},
    })
}

fn send(server: &TestServer, events: &[Value]) {
    let answer = server.capture(&json!(events));
    assert_eq!(answer.status, 200, "{answer}");
}

fn find(server: &TestServer, id: &str) -> Option<Value> {
    let page = server.get(&format!("{PERSONS}?distinct_id={id}")).json();
    page["results"].as_array().expect("results").first().cloned()
}

fn path_of(server: &TestServer, id: &str) -> String {
    format!("{PERSONS}{}/", find(server, id).expect("a person")["uuid"].as_str().expect("a uuid"))
}

fn delete(server: &TestServer, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send("DELETE", path, &headers, body.to_string())
}

/// Checks that every response has these events and no others: number, distinct id, secret.
fn check(server: &TestServer, expected: &[(u128, &str, &str)], state: &str) {
    let uuid = |number: u128| Uuid::from_u128(number).to_string();
    let uuids: BTreeSet<String> = expected.iter().map(|(number, ..)| uuid(*number)).collect();
    let column = |rows: &[Value], name: &str| -> BTreeSet<String> {
        rows.iter().map(|row| row[name].as_str().expect("text").to_owned()).collect()
    };
    let rows = server.query("SELECT uuid FROM events WHERE event = 'visit'");
    assert_eq!(column(&rows, "uuid"), uuids, "{state}: SQL");
    assert_eq!(rows.len(), uuids.len(), "{state}: each once");
    let counted = server.count("SELECT count(*) FROM events WHERE event = 'visit'");
    assert_eq!(counted, u64::try_from(uuids.len()).expect("small"), "{state}: counted");
    let list = |query: &str| {
        let page = server.get(&format!("{EVENTS}?event=visit&{query}")).json();
        column(page["results"].as_array().expect("results"), "id")
    };
    assert_eq!(list(""), uuids, "{state}: list");
    for id in ["ann", "anon", "bob", "carl"] {
        let own = expected.iter().filter(|(_, own, _)| *own == id);
        let own: BTreeSet<String> = own.map(|(number, ..)| uuid(*number)).collect();
        assert_eq!(list(&format!("distinct_id={id}")), own, "{state}: list of {id}");
    }
    for number in 1..12 {
        let answer = server.get(&format!("{EVENTS}{}/", uuid(number)));
        let status = if uuids.contains(&uuid(number)) { 200 } else { 404 };
        assert_eq!(answer.status, status, "{state}: event {number}: {answer}");
    }
    let values = server.get(&format!("{EVENTS}values/?key=secret")).json();
    let secrets: BTreeSet<String> =
        expected.iter().map(|(_, _, secret)| (*secret).to_owned()).collect();
    assert_eq!(column(values.as_array().expect("values"), "name"), secrets, "{state}: values");
    let sql = json!({"query": "SELECT properties FROM events WHERE distinct_id <> 'bob'"});
    let answer = server.post("/api/projects/@current/query/", &sql);
    assert_eq!(answer.status, 200, "{state}: {answer}");
    let answer = answer.to_string();
    for gone in ["ann-1", "ann-2", "anon-1", "carl-1"] {
        assert!(!answer.contains(gone), "{state}: {gone} in {answer}");
    }
}

fn requests(server: &TestServer, query: &str) -> Vec<Value> {
    let answer = server.get(&format!("{PERSONS}deletion_status/?{query}"));
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()["results"].as_array().expect("results").clone()
}

/// Number of points of a timeline, which has one for each value that the events set.
fn timeline_events(server: &TestServer, id: &str) -> u64 {
    let path = path_of(server, id);
    let answer = server.get(&format!("{path}properties_timeline/?date_from=-1d"));
    assert_eq!(answer.status, 200, "{answer}");
    let points = answer.json()["points"].as_array().expect("points").clone();
    points.iter().filter_map(|point| point["relevant_event_count"].as_u64()).sum()
}

/// Ids of events in the live files, read by DuckDB.
pub(crate) fn in_files(server: &TestServer) -> BTreeSet<Uuid> {
    let files = server.files();
    if files.is_empty() {
        return BTreeSet::new();
    }
    let script = "import duckdb, sys\n\
                  for row in duckdb.execute('SELECT uuid FROM read_parquet(?)', [sys.argv[1:]])\
                  .fetchall(): print(row[0])";
    let mut command = Command::new(tools().join("readers/bin/python"));
    command.arg("-c").arg(script).args(files);
    run(command).lines().map(|line| line.parse().expect("a uuid")).collect()
}

/// All Parquet files of the events table, live or not.
fn parquet_files(server: &TestServer) -> BTreeSet<PathBuf> {
    let months = std::fs::read_dir(server.data_dir().join("tables/events")).expect("the table");
    let months = months.map(|month| month.expect("an entry").path());
    let months = months.filter(|path| path.to_string_lossy().contains("month="));
    let files = months.flat_map(|month| std::fs::read_dir(month).expect("a month"));
    let files = files.map(|file| file.expect("an entry").path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "parquet")).collect()
}

#[test]
fn deleted_events_are_in_no_answer_and_leave_the_files() {
    let mut server = TestServer::start_with(&STILL);
    let merge = json!({"event": "$identify", "distinct_id": "ann", "properties": {"$anon_distinct_id": "anon"}});
    // In files: the events of ann under two ids, of carl, and of bob.
    send(&server, &[event(1, "ann", "ann-1"), event(2, "anon", "anon-1"), merge]);
    send(&server, &[event(3, "bob", "bob-1"), event(4, "carl", "carl-1")]);
    server.stop();
    assert!(in_files(&server).contains(&Uuid::from_u128(1)));
    server.restart();
    // In memory: more of all.
    send(
        &server,
        &[event(5, "ann", "ann-2"), event(6, "bob", "bob-2"), event(7, "carl", "carl-1")],
    );
    assert_eq!(timeline_events(&server, "carl"), 2);
    let (ann, carl) = (path_of(&server, "ann"), path_of(&server, "carl"));
    let uuid_of =
        |server: &TestServer, id: &str| find(server, id).expect("a person")["uuid"].clone();
    let uuids = [uuid_of(&server, "ann"), uuid_of(&server, "carl")];
    let answer = server.delete(&format!("{ann}?delete_events=true"));
    assert_eq!((answer.status, answer.body.len()), (202, 0), "{answer}");
    let answer = delete(&server, &carl, &json!({"delete_events": true, "keep_person": true}));
    assert_eq!(answer.status, 202, "{answer}");
    check(&server, &[(3, "bob", "bob-1"), (6, "bob", "bob-2")], "at once");
    assert_eq!(timeline_events(&server, "carl"), 0);
    assert_eq!((server.get(&ann).status, find(&server, "anon")), (404, None));
    let kept = server.get(&carl).json();
    assert_eq!(
        (&kept["properties"]["plan"], kept["distinct_ids"][0].as_str()),
        (&json!("carl-1"), Some("carl"))
    );

    // Events of later stay, also of the same distinct ids.
    send(&server, &[event(8, "ann", "later"), event(9, "carl", "later")]);
    let expected =
        [(3, "bob", "bob-1"), (6, "bob", "bob-2"), (8, "ann", "later"), (9, "carl", "later")];
    for state in ["with later ones", "after a crash", "after an end"] {
        check(&server, &expected, state);
        let found = requests(&server, "status=pending");
        assert_eq!(found.len(), 2, "{state}: {found:?}");
        let told: Vec<&Value> = found.iter().map(|request| &request["person_uuid"]).collect();
        assert_eq!(told, [&uuids[1], &uuids[0]], "{state}: the newest first");
        assert!(found.iter().all(|request| request["delete_verified_at"].is_null()), "{state}");
        assert_eq!(requests(&server, "status=completed"), Vec::<Value>::new(), "{state}");
        match state {
            "with later ones" => server.kill(),
            _ => server.stop(),
        }
        server.restart();
    }
    server.stop();
    // The flush has left out what was in memory; the file of before still has the others.
    let ids = |numbers: &[u128]| numbers.iter().map(|number| Uuid::from_u128(*number)).collect();
    let of_before: BTreeSet<Uuid> = ids(&[1, 2, 4]);
    let of_memory: BTreeSet<Uuid> = ids(&[5, 7]);
    assert!(in_files(&server).is_superset(&of_before) && in_files(&server).is_disjoint(&of_memory));

    for (name, value) in
        [("COMPACTION_INTERVAL", "100ms"), ("DELETION_INTERVAL", "100ms"), ("VACUUM_GRACE", "1s")]
    {
        server.set(&format!("WEIR_{name}"), value);
    }
    server.restart();
    let done = patiently(|| requests(&server, "status=pending").is_empty().then_some(()));
    done.expect("the requests are done");
    check(&server, &expected, "after the rewrite");
    let left = in_files(&server);
    assert!(left.is_disjoint(&of_before) && left.is_superset(&ids(&[3, 6, 8, 9])), "{left:?}");
    let vacuumed = patiently(|| {
        let live: BTreeSet<PathBuf> = server.files().into_iter().collect();
        (parquet_files(&server) == live).then_some(())
    });
    vacuumed.expect("the files of before are removed");
    let metrics = String::from_utf8(server.get("/metrics").body).expect("text");
    assert!(metrics.contains("weir_deletions_pending 0"), "{metrics}");

    // Again, of the person that came anew, and of carl by his uuid.
    let bulk = json!({"distinct_ids": ["ann", "nobody"], "delete_events": true});
    let answer = server.post(&format!("{PERSONS}bulk_delete/"), &bulk);
    let told = json!({
        "persons_found": 1, "persons_deleted": 1, "events_queued_for_deletion": true,
        "recordings_queued_for_deletion": false, "deletion_errors": [],
    });
    assert_eq!((answer.status, answer.json()), (202, told));
    check(&server, &[(3, "bob", "bob-1"), (6, "bob", "bob-2"), (9, "carl", "later")], "in bulk");
    let bulk = json!({"ids": [uuids[1]], "delete_events": "true", "keep_person": true});
    let answer = server.post(&format!("{PERSONS}bulk_delete/"), &bulk).json();
    assert_eq!((&answer["persons_found"], &answer["persons_deleted"]), (&json!(1), &json!(0)));
    check(&server, &[(3, "bob", "bob-1"), (6, "bob", "bob-2")], "in bulk, kept");
    assert_eq!(find(&server, "carl").expect("he stays")["uuid"], uuids[1]);
    let answer = server.post(&format!("{}delete_events/", path_of(&server, "bob")), &json!({}));
    assert_eq!(answer.status, 202, "{answer}");
    check(&server, &[], "of bob");
    let done = patiently(|| (requests(&server, "status=completed").len() == 5).then_some(()));
    done.expect("all requests are done");
    server.kill();
    assert_eq!(server.query("SELECT uuid FROM events WHERE event = 'visit'"), Vec::<Value>::new());
    server.restart();
    check(&server, &[], "at the end");
    let all = requests(&server, "");
    assert_eq!(all.len(), 5, "the state survives");
    for request in &all {
        assert_eq!(request["status"], "completed");
        assert!(request["created_at"].as_str() <= request["delete_verified_at"].as_str());
    }
    let own = requests(&server, &format!("person_uuid={}", uuids[1].as_str().expect("a uuid")));
    assert_eq!(own.len(), 2);
    let page = server.get(&format!("{PERSONS}deletion_status/?limit=2&offset=2")).json();
    assert_eq!(
        (&page["count"], page["results"].as_array().map(Vec::as_slice)),
        (&json!(5), all.get(2..4))
    );
    assert!(page["next"].is_string() && page["previous"].is_string());
}

#[test]
fn what_is_not_asked_for_is_not_deleted() {
    let server = TestServer::start_with(&STILL);
    send(&server, &[event(1, "ann", "x"), event(2, "bob", "y")]);
    let all = [(1, "ann", "x"), (2, "bob", "y")];
    for said in ["", "false", "0", "no", "False"] {
        send(&server, &[json!({"event": "$set", "distinct_id": "ann"})]);
        let answer = server.delete(&format!("{}?delete_events={said}", path_of(&server, "ann")));
        assert_eq!((answer.status, find(&server, "ann")), (202, None), "{said}");
        check(&server, &all, said);
    }
    let path = path_of(&server, "bob");
    for said in ["", "?keep_person=1", "?keep_person=true&delete_events=no"] {
        let answer = delete(&server, &format!("{path}{said}"), &json!({"keep_person": true}));
        assert_eq!(answer.status, 202, "{answer}");
        assert_eq!(server.get(&path).status, 200, "{said}");
    }
    check(&server, &all, "kept");
    assert_eq!(
        requests(&server, ""),
        Vec::<Value>::new(),
        "without events there is nothing to tell"
    );
    for path in ["999/", "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d/"] {
        assert_eq!(server.delete(&format!("{PERSONS}{path}?delete_events=1")).status, 404);
        let path = format!("{PERSONS}{path}delete_events/");
        assert_eq!(server.post(&path, &json!({})).status, 404);
    }
    for (query, attr) in [("status=odd", "status"), ("person_uuid=x", "person_uuid")] {
        let answer = server.get(&format!("{PERSONS}deletion_status/?{query}"));
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)));
    }
    let wrong = delete(&server, &path, &json!({"delete_events": "perhaps"}));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("delete_events")));
    check(&server, &all, "after what was wrong");
}

/// Flushes, merges, passes over deleted events and vacuums all the time, so that kills hit them.
#[test]
fn deletions_survive_kills() {
    let mut server = TestServer::start_with(&[
        ("WEIR_MEMTABLE_MAX_AGE", "100ms"),
        ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB"),
        ("WEIR_COMPACTION_INTERVAL", "50ms"),
        ("WEIR_COMPACTION_FILES_MIN", "2"),
        ("WEIR_DELETION_INTERVAL", "100ms"),
        ("WEIR_VACUUM_GRACE", "1s"),
    ]);
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut events: BTreeMap<Uuid, usize> = BTreeMap::new();
    let mut asked = 0;
    for round in 0..6 {
        for _ in 0..random.random_range(1..4) {
            let batch: Vec<(Uuid, usize)> = (0..20)
                .map(|_| (Uuid::from_u128(random.random()), random.random_range(0..5)))
                .collect();
            let sent: Vec<Value> = batch
                .iter()
                .map(|(uuid, person)| event(uuid.as_u128(), &format!("p{person}"), "x"))
                .collect();
            send(&server, &sent);
            events.extend(batch);
            let gone = random.random_range(0..5);
            if let Some(person) = find(&server, &format!("p{gone}")) {
                let keep = if random.random_bool(0.5) { "&keep_person=1" } else { "" };
                let id =
                    person["id"].as_str().map_or_else(|| person["id"].to_string(), str::to_owned);
                let path = format!("{PERSONS}{}/?delete_events=1{keep}", id);
                assert_eq!(server.delete(&path).status, 202);
                events.retain(|_, person| *person != gone);
                asked += 1;
            }
        }
        thread::sleep(Duration::from_millis(random.random_range(0..300)));
        server.kill();
        server.restart();
        let rows = server.query("SELECT uuid FROM events");
        let mut found: Vec<Uuid> = rows
            .iter()
            .map(|row| row["uuid"].as_str().and_then(|id| id.parse().ok()).expect("a uuid"))
            .collect();
        found.sort_unstable();
        assert_eq!(found, events.keys().copied().collect::<Vec<_>>(), "round {round}, seed {seed}");
        assert_eq!(requests(&server, "").len(), asked, "round {round}");
    }
    assert!(asked > 3);
    let done = patiently(|| requests(&server, "status=pending").is_empty().then_some(()));
    done.expect("the requests are done");
    server.stop();
    assert_eq!(in_files(&server), events.into_keys().collect());
}
