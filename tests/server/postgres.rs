//! Metadata in PostgreSQL: it goes away and comes back, servers share it, and a directory moves to it. The other
//! tests run on it too, with `WEIR_TEST_METADATA=postgres`.

use std::time::Duration;
use tokio::time::Instant;

use serde_json::{Value, json};

use crate::flag_management::rollout;
use crate::harness::{TOKEN, TestServer, outage, patiently, within};
use crate::support::postgres::{Database, Postgres};

const FLAGS: &str = "/api/projects/1/feature_flags/";

/// Longest that nothing may wait for PostgreSQL once it is known to be away.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Longest wait for PostgreSQL.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

fn start(database: &Database) -> TestServer {
    let timeout = format!("{}s", METADATA_TIMEOUT.as_secs());
    TestServer::start_with(&[
        ("WEIR_METADATA_URL", &database.url()),
        ("WEIR_METADATA_TIMEOUT", &timeout),
    ])
}

fn create(server: &TestServer, key: &str) -> String {
    let flag = json!({"key": key, "name": "", "active": true, "filters": rollout(100)});
    format!("{FLAGS}{}/", server.post(FLAGS, &flag).created()["id"])
}

fn capture(server: &TestServer, events: &Value) {
    let answer = server.capture(events);
    assert_eq!(answer.status, 200, "{answer}");
}

fn flags(server: &TestServer) -> Value {
    let body = json!({"token": TOKEN, "distinct_id": "ada"}).to_string();
    let answer = server.send("POST", "/flags/?v=2", &[], body);
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

fn is_on(server: &TestServer, key: &str) -> bool {
    flags(server)["flags"][key]["enabled"] == true
}

/// Goal: while PostgreSQL is away, events are taken, flags are evaluated and SQL is answered, from what was there
/// before; changes are answered 503 with Retry-After, at once; afterwards everything goes on by itself, and the
/// definitions of what came meanwhile are there.
#[test]
fn an_outage_of_postgresql_stops_changes_only() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let server = start(&database);
    let flag = create(&server, "on");
    assert!(is_on(&server, "on"));
    capture(&server, &json!([{"event": "before", "distinct_id": "ada"}]));
    postgres.stop();
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < outage("POSTGRES", 6) {
        sent += 1;
        let step = Instant::now();
        let event = json!({
            "event": format!("meanwhile {sent}"),
            "distinct_id": format!("person {sent}"),
            "properties": {"$set": {"number": sent}},
        });
        capture(&server, &json!([event]));
        assert!(is_on(&server, "on"));
        let counted = server.count("SELECT count(*) AS n FROM events");
        assert_eq!(counted, sent + 1, "every acknowledged event is counted");
        let change = server.patch(&flag, &json!({"active": false}));
        assert_eq!(change.status, 503, "{change}");
        assert!(change.header("retry-after").is_some(), "{change}");
        assert_eq!(server.get("/_liveness").status, 200);
        // The first change notices it, after the longest wait for PostgreSQL.
        let limit = if sent == 1 { METADATA_TIMEOUT + AT_ONCE } else { AT_ONCE };
        assert!(step.elapsed() < limit, "{:?}", step.elapsed());
    }
    assert!(sent > 2, "{sent}");
    postgres.go_on();
    let changed = within(Duration::from_secs(20), || {
        let answer = server.patch(&flag, &json!({"active": false}));
        (answer.status == 200).then_some(())
    });
    changed.expect("it recovers by itself");
    assert!(!is_on(&server, "on"));
    let last = format!("meanwhile {sent}");
    capture(&server, &json!([{"event": "after", "distinct_id": "ada"}]));
    let defined = patiently(|| {
        let rows = server.query("SELECT name FROM event_definitions");
        let names = serde_json::to_string(&rows).expect("a text");
        (names.contains(&last) && names.contains("\"after\"")).then_some(())
    });
    defined.expect("definitions of the outage come later");
}

/// Goal: an edit through one server is in the verdicts of another within 2 s, and neither loses an edit.
#[test]
fn servers_share_flags() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let (one, other) = (start(&database), start(&database));
    for round in 0..8 {
        let (from, to) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let key = format!("flag-{round}");
        create(from, &key);
        let seen = within(Duration::from_secs(2), || is_on(to, &key).then_some(()));
        seen.unwrap_or_else(|| panic!("{key} is not seen in 2 s"));
        std::thread::sleep(Duration::from_millis(137 * round));
    }
    let list = |server: &TestServer| server.get(FLAGS).json()["count"].clone();
    assert_eq!((list(&one), list(&other)), (json!(8), json!(8)));
    let logged = "SELECT count(*) FROM weir.activity WHERE scope = 'FeatureFlag'";
    assert_eq!(database.value(logged), "8");
}

#[test]
fn a_server_does_not_start_without_its_database() {
    let postgres = Postgres::start();
    let database = postgres.database();
    postgres.stop();
    let url = database.url();
    let mut server = TestServer::stopped(&[
        ("WEIR_METADATA_URL", url.replace("://postgres@", "://postgres:secret@").as_str()),
        ("WEIR_METADATA_TIMEOUT", "1s"),
    ]);
    let said = server.try_start().expect_err("refused");
    let place = url.replace("postgres@", "");
    assert!(said.contains(&format!("cannot connect to the metadata store {place}")), "{said}");
    assert!(said.contains("onnection refused") && !said.contains("secret"), "{said}");
    postgres.go_on();
    server.set("WEIR_METADATA_URL", &url);
    server.try_start().expect("starts");
    // A database without projects is none for a directory with events.
    capture(&server, &json!([{"event": "e", "distinct_id": "d"}]));
    server.stop();
    let empty = postgres.database();
    server.set("WEIR_METADATA_URL", &empty.url());
    let said = server.try_start().expect_err("refused");
    assert!(said.contains("has no project, but the directory has events"), "{said}");
    server.set("WEIR_METADATA_URL", &url);
    server.try_start().expect("starts");
}

/// Goal: a directory moves to PostgreSQL, whole and once, and commands find its metadata there.
#[test]
fn a_directory_moves_to_postgresql() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let mut server = TestServer::start();
    create(&server, "kept");
    capture(&server, &json!([{"event": "e", "distinct_id": "d"}]));
    let migrate = |server: &TestServer, url: &str| {
        let output = server.weir(&["migrate", "--metadata-url", url]).output().expect("weir");
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        (output.status.success(), said.concat())
    };
    let (moved, said) = migrate(&server, &database.url());
    assert!(!moved && said.contains("stop it first"), "{said}");
    server.stop();
    // Not to be started on an empty database instead.
    server.set("WEIR_METADATA_URL", &database.url());
    let refused = server.try_start().expect_err("refused");
    assert!(refused.contains("weir migrate"), "{refused}");
    let (moved, said) = migrate(&server, &database.url());
    assert!(moved && said.contains("metadata.db.moved-"), "{said}");
    assert!(!server.data_dir().join("metadata.db").exists());
    // As it is after a crash between the two: the database is filled, and the file is where it was.
    let original = server.data_dir().join("metadata.db");
    let aside = |server: &TestServer| {
        let files = std::fs::read_dir(server.data_dir()).expect("a directory");
        let mut paths = files.map(|file| file.expect("a file").path());
        let aside = paths.find(|path| path.to_string_lossy().contains("metadata.db.moved-"));
        aside.expect("the file")
    };
    let rows = said.split_whitespace().nth(1).expect("a number").to_owned();
    std::fs::rename(aside(&server), &original).expect("renamed");
    let (moved, said) = migrate(&server, &database.url());
    assert!(moved && said.contains(&format!("moved {rows} rows")), "{said}");
    assert!(!original.exists());
    // What has changed since is not lost in silence.
    std::fs::copy(aside(&server), &original).expect("copied");
    server.unset("WEIR_METADATA_URL");
    server.try_start().expect("starts on the file");
    create(&server, "since");
    server.stop();
    let (moved, said) = migrate(&server, &database.url());
    assert!(!moved && said.contains("there are rows in the table"), "{said}");
    std::fs::remove_file(&original).expect("removed");
    server.set("WEIR_METADATA_URL", &database.url());
    server.try_start().expect("starts");
    assert!(is_on(&server, "kept"));
    assert_eq!(server.count("SELECT count(*) AS n FROM events"), 1);
    let defined = server.query("SELECT name FROM event_definitions WHERE name = 'e'");
    assert_eq!(defined.len(), 1, "{defined:?}");
    // Keys are made in the database, for the running server.
    let keys = |arguments: &[&str]| {
        let mut command = server.weir(&["keys"]);
        command.env("WEIR_METADATA_URL", database.url()).args(arguments);
        let output = command.output().expect("weir keys");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    let key = keys(&["create", "of a command"]);
    let headers = [("authorization", &*format!("Bearer {key}"))];
    let works = patiently(|| {
        let answer = server.send("GET", FLAGS, &headers, "");
        (answer.status == 200).then_some(())
    });
    works.expect("the server knows the key");
    assert!(keys(&["list"]).contains("of a command"));
    // Without a server, commands read the directory and the database, and write to neither.
    server.stop();
    let before = database.value("SELECT number FROM weir.revision");
    let mut query = server.weir(&["query", "--format", "json", "SELECT count(*) AS n FROM events"]);
    let output = query.env("WEIR_METADATA_URL", database.url()).output().expect("weir query");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "{\"n\":1}", "{said}");
    let mut inspect = server.weir(&["inspect", "--verify"]);
    let output = inspect.env("WEIR_METADATA_URL", database.url()).output().expect("weir inspect");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("no damage found"), "{said}");
    let output = server.weir(&["inspect"]).env("WEIR_METADATA_URL", database.url()).output();
    let output = output.expect("weir inspect");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(database.value("SELECT number FROM weir.revision"), before);
    let (moved, said) = migrate(&server, &database.url());
    assert!(!moved && said.contains("missing"), "{said}");
}
