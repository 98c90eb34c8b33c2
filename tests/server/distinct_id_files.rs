//! The table `person_distinct_ids`: other engines that join it with the files of events count the same persons as SQL on
//! the server, after merges, splits and deletions, after crashes, on a disk and in a bucket.

use std::collections::BTreeSet;
use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::{TestServer, patiently, run};
use crate::s3::{MOVED_TO, moving};
use crate::sdk::tools;
use crate::support::bucket::{Moto, settings};

const TABLE: &str = "person_distinct_ids";
const PERSONS: &str = "/api/projects/@current/persons/";

/// Persons per event and day, and in all, as the server counts them.
const COUNTS: &str = "SELECT event, substring(CAST(timestamp AS VARCHAR), 1, 10) AS day, count(*) AS n, \
                      count(DISTINCT person_id) AS persons FROM events GROUP BY 1, 2 \
                      UNION ALL SELECT '', '', count(*), count(DISTINCT person_id) FROM events ORDER BY 1, 2";

/// The same by DuckDB and Polars over files: of persons as stored, joined by distinct ids, and by the former persons.
const READERS: &str = r#"
import json, sys
import duckdb, polars
events, ids, event_files, id_files = json.loads(sys.argv[1])
duckdb.sql("SET TimeZone = 'UTC'")
duckdb.sql(f"CREATE VIEW events AS FROM read_parquet({event_files}, hive_partitioning = false)")
duckdb.sql(f"CREATE VIEW ids AS FROM read_parquet({id_files})")
joins = {
    "stored": ("e.person_id", ""),
    "joined": ("coalesce(d.person_id, e.person_id)", "LEFT JOIN ids d USING (project_id, distinct_id)"),
    "former": ("coalesce(d.person_id, e.person_id)", """LEFT JOIN
        (SELECT project_id, old_person_id, person_id FROM ids WHERE old_person_id IS NOT NULL) d
        ON d.project_id = e.project_id AND d.old_person_id = e.person_id"""),
}
for name, (person, join) in joins.items():
    rows = duckdb.sql(f"""
        WITH found AS (SELECT e.event AS event, strftime(e.timestamp, '%Y-%m-%d') AS day, {person} AS person
                       FROM events e {join})
        SELECT event, day, count(*), count(DISTINCT person) FROM found GROUP BY 1, 2
        UNION ALL SELECT '', '', count(*), count(DISTINCT person) FROM found ORDER BY 1, 2""").fetchall()
    print(json.dumps(["duckdb " + name, [list(row) for row in rows]]))
own = polars.scan_delta(ids).select("project_id", "distinct_id", polars.col("person_id").alias("today"))
found = polars.scan_delta(events).join(own, on=["project_id", "distinct_id"], how="left").select(
    "event", polars.col("timestamp").dt.strftime("%Y-%m-%d").alias("day"),
    polars.coalesce("today", "person_id").alias("person"))
count = [polars.len().alias("n"), polars.col("person").n_unique().alias("persons")]
rows = found.group_by("event", "day").agg(count).sort("event", "day").collect().rows()
rows = [("", "", *found.select(count).collect().rows()[0]), *rows]
print(json.dumps(["polars joined", [list(row) for row in rows]]))
table = duckdb.sql("SELECT distinct_id, person_id FROM ids ORDER BY 1").fetchall()
print(json.dumps(["ids", [list(row) for row in table]]))
twice = duckdb.sql("SELECT count(*) FROM (SELECT 1 FROM ids GROUP BY project_id, distinct_id HAVING count(*) > 1)")
print(json.dumps(["twice", twice.fetchall()[0][0]]))
"#;

/// Answers of the readers by their names.
struct Read(Vec<(String, Value)>);

impl Read {
    /// Of the tables on the disk of a server.
    fn of(server: &TestServer) -> Self {
        let place = |table: &str| server.data_dir().join("tables").join(table);
        let files = |table: &str| {
            let said = run(server.weir(&["inspect", &format!("--files={table}")]));
            said.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let asked = json!([place("events"), place(TABLE), files("events"), files(TABLE)]);
        let mut command = Command::new(tools().join("readers/bin/python"));
        command.args(["-c", READERS, &asked.to_string()]);
        let said = run(command);
        let lines = said.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        Self(lines.collect())
    }

    fn get(&self, name: &str) -> &Value {
        &self.0.iter().find(|(own, _)| own == name).expect(name).1
    }
}

/// The persons per event and day on the server, as rows.
fn counted(server: &TestServer) -> Value {
    asked(server, COUNTS, &["event", "day", "n", "persons"])
}

/// All distinct ids with their persons on the server.
fn owned(server: &TestServer) -> Value {
    let sql = "SELECT distinct_id, person_id FROM person_distinct_ids ORDER BY 1";
    asked(server, sql, &["distinct_id", "person_id"])
}

fn asked(server: &TestServer, sql: &str, columns: &[&str]) -> Value {
    let list = |row: Value| columns.iter().map(|name| row[*name].clone()).collect::<Value>();
    server.query(sql).into_iter().map(list).collect()
}

/// Compares the answers of the server with those of the readers, beside it and after its end. Returns the last.
fn compare(server: &mut TestServer, state: &str) -> Read {
    let (expected, ids) = (counted(server), owned(server));
    run(server.weir(&["flush", "--persons"]));
    let live = Read::of(server);
    assert_eq!(live.get("ids"), &ids, "{state}: beside the server");
    assert_eq!(live.get("duckdb joined"), &expected, "{state}: beside the server");
    server.stop();
    assert_eq!(counted(server), expected, "{state}");
    let read = Read::of(server);
    assert_eq!(read.get("ids"), &ids, "{state}");
    assert_eq!(read.get("twice"), 0, "{state}");
    for reader in ["duckdb joined", "polars joined"] {
        assert_eq!(read.get(reader), &expected, "{state}: {reader}");
    }
    server.restart();
    read
}

/// Events of people who come with several ids, some of them without a person.
fn visits(random: &mut StdRng, count: usize) -> Value {
    let visit = |_| {
        let (person, day) = (random.random_range(0..40), random.random_range(1..5));
        let kind = ["anonymous", "user", "device"][random.random_range(0..3)];
        let (event, has_person) = (["visit", "buy"][random.random_range(0..2)], person % 7 != 0);
        json!({
            "event": event,
            "distinct_id": format!("{kind} {person}"),
            "timestamp": format!("2026-03-0{day}T10:00:00Z"),
            "properties": {"$process_person_profile": has_person},
        })
    };
    (0..count).map(visit).collect()
}

fn merges(persons: std::ops::Range<u32>) -> Value {
    let one = |person: u32| {
        let merge = |event: &str, key: &str, other: &str| {
            json!({"event": event, "distinct_id": format!("user {person}"),
                   "timestamp": "2026-03-06T10:00:00Z", "properties": {key: format!("{other} {person}")}})
        };
        [
            merge("$identify", "$anon_distinct_id", "anonymous"),
            merge("$create_alias", "alias", "device"),
        ]
    };
    persons.flat_map(one).collect()
}

fn send(server: &TestServer, events: &Value) {
    let answer = server.capture(events);
    assert_eq!(answer.status, 200, "{answer}");
}

fn person(server: &TestServer, distinct_id: &str) -> String {
    let id = form_urlencoded::byte_serialize(distinct_id.as_bytes()).collect::<String>();
    let page = server.get(&format!("{PERSONS}?distinct_id={id}")).json();
    format!("{PERSONS}{}/", page["results"][0]["uuid"].as_str().expect("a uuid"))
}

/// Goal: one join with the table gives other engines the server's persons, also in files that were merged in between.
#[test]
fn readers_of_files_count_the_persons_of_the_server() {
    for files_min in ["10000", "2"] {
        let mut random = StdRng::seed_from_u64(7);
        let mut server = TestServer::start_with(&[
            ("WEIR_COMPACTION_INTERVAL", "100ms"),
            ("WEIR_COMPACTION_FILES_MIN", files_min),
            ("WEIR_DELETION_INTERVAL", "2s"),
        ]);
        for _ in 0..3 {
            send(&server, &visits(&mut random, 200));
            server.flush();
        }
        let read = compare(&mut server, "before merges");
        assert_eq!(read.get("duckdb stored"), read.get("duckdb joined"), "nobody is merged");
        send(&server, &merges(0..20));
        send(&server, &visits(&mut random, 100));
        let read = compare(&mut server, "merged");
        assert_eq!(read.get("duckdb former"), read.get("duckdb joined"), "one by one");
        // Merges of files put the persons of today into them.
        if files_min == "10000" {
            assert_ne!(read.get("duckdb stored"), read.get("duckdb joined"), "the join is needed");
        }
        send(
            &server,
            &json!([{
                "event": "$merge_dangerously", "distinct_id": "user 3", "timestamp": "2026-03-06T11:00:00Z",
                "properties": {"alias": "user 4"},
            }]),
        );
        let read = compare(&mut server, "merged by force");
        assert_eq!(read.get("duckdb former"), read.get("duckdb joined"), "chains");

        for (id, body) in [
            ("user 5", json!({})),
            ("user 6", json!({"main_distinct_id": "anonymous 6"})),
            ("user 3", json!({"main_distinct_id": "user 4"})),
        ] {
            let answer = server.post(&format!("{}split/", person(&server, id)), &body);
            assert_eq!(answer.status, 201, "{answer}");
        }
        send(&server, &visits(&mut random, 50));
        compare(&mut server, "split");

        let gone = person(&server, "user 8");
        assert_eq!(server.delete(&format!("{gone}?delete_events=true")).status, 202);
        let left = "SELECT count(*) AS n FROM person_distinct_ids WHERE distinct_id LIKE '% 8'";
        patiently(|| (server.count(left) == 0).then_some(())).expect("deleted");
        let all = json!(server.count("SELECT count(*) AS n FROM events"));
        let is_gone = || Read::of(&server).get("duckdb stored")[0][2] == all;
        patiently(|| is_gone().then_some(())).expect("the events have left the files");
        compare(&mut server, "deleted");
        let said = run(server.weir(&["inspect", "--verify"]));
        assert!(said.contains("tables/person_distinct_ids: version"), "{said}");
        assert!(said.contains("no damage found"), "{said}");
    }
}

/// Goal: what is deleted leaves the live files within the deletion interval, beside a running server.
#[test]
fn deleted_persons_leave_the_files() {
    let server = TestServer::start_with(&[
        ("WEIR_DELETION_INTERVAL", "2s"),
        ("WEIR_PERSONS_TABLE_INTERVAL", "200ms"),
    ]);
    send(&server, &visits(&mut StdRng::seed_from_u64(1), 300));
    let visit = |id: &str| json!({"event": "visit", "distinct_id": id});
    send(&server, &["user 5", "user 6", "user 8"].map(visit).into_iter().collect());
    let ids = |server: &TestServer| -> Option<BTreeSet<String>> {
        let listed =
            server.weir(&["inspect", "--files=person_distinct_ids"]).output().expect("weir");
        // The table is created soon after the start.
        let said = String::from_utf8(listed.stdout).expect("UTF-8");
        if !listed.status.success() || said.is_empty() {
            return None;
        }
        let script = "import duckdb, sys\n\
                      for row in duckdb.execute('SELECT distinct_id FROM read_parquet(?)', [sys.argv[1:]]).fetchall(): print(row[0])";
        let mut command = Command::new(tools().join("readers/bin/python"));
        let output = command.args(["-c", script]).args(said.lines()).output().expect("python");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        output.status.success().then(|| text.lines().map(str::to_owned).collect())
    };
    let has = |id: &str, is_there: bool| {
        let seen = patiently(|| (ids(&server)?.contains(id) == is_there).then_some(()));
        seen.unwrap_or_else(|| panic!("{id} {is_there}"));
    };
    has("user 5", true);
    has("user 6", true);
    for query in ["", "?delete_events=true"] {
        let id = if query.is_empty() { "user 5" } else { "user 6" };
        assert_eq!(server.delete(&format!("{}{query}", person(&server, id))).status, 202);
        has(id, false);
    }
    has("user 8", true);
}

/// Goal: kills at any time, and the loss of the whole table, cost nothing.
#[test]
fn the_table_is_whole_after_crashes() {
    let mut random = StdRng::seed_from_u64(3);
    let mut server = TestServer::start_with(&[
        ("WEIR_PERSONS_TABLE_INTERVAL", "20ms"),
        ("WEIR_DELETION_INTERVAL", "1s"),
        ("WEIR_COMPACTION_INTERVAL", "1h"),
    ]);
    for round in 0..6_u32 {
        send(&server, &visits(&mut random, 100));
        send(&server, &merges(round * 5..round * 5 + 5));
        let pause = std::time::Duration::from_millis(random.random_range(0..400));
        std::thread::sleep(pause);
        server.kill();
        server.restart();
    }
    compare(&mut server, "after kills");
    server.kill();
    std::fs::remove_dir_all(server.data_dir().join("tables").join(TABLE)).expect("removes");
    server.restart();
    send(&server, &visits(&mut random, 20));
    compare(&mut server, "without the table");
}

/// What the table in a bucket has, as a program.
const IN_BUCKET: &str = r#"
import json, sys
import polars
url, endpoint = sys.argv[1:]
options = {
    "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
}
rows = polars.scan_delta(url, storage_options=options).select("distinct_id", "person_id").collect()
print(json.dumps([list(row) for row in rows.sort("distinct_id").rows()]))
"#;

/// Goal: the table is in the bucket beside the others, and moves with them.
#[test]
fn the_table_is_in_the_bucket_and_moves() {
    let moto = Moto::start();
    let gate = moto.gate();
    let url = gate.url();
    let mut server = TestServer::start_with(&settings(&url, &[]));
    send(&server, &visits(&mut StdRng::seed_from_u64(5), 200));
    send(&server, &merges(0..10));
    let ids = owned(&server);
    server.stop();
    let mut reading = Command::new(moto.python());
    let table = format!("{MOVED_TO}/shards/0000/tables/{TABLE}");
    reading.args(["-c", IN_BUCKET, &table, &url]).env("AWS_EC2_METADATA_DISABLED", "true");
    let found: Value = serde_json::from_str(run(reading).trim()).expect("JSON");
    assert_eq!(found, ids);
    let said = run(server.weir(&["inspect", "--verify"]));
    assert!(said.contains("person_distinct_ids: version"), "{said}");

    let directory = server.data_dir().to_str().expect("UTF-8").to_owned();
    run(moving(&url, MOVED_TO, &directory));
    server.unset("WEIR_STORAGE_URL");
    let here = Read::of(&server);
    assert_eq!(here.get("ids"), &ids);
    assert_eq!(here.get("duckdb joined"), &counted(&server));
    server.restart();
    send(&server, &merges(10..15));
    compare(&mut server, "moved");
}
