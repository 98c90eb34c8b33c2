//! Commands on a data directory: commands that read change nothing in it, with a server and without one, also
//! after a crash; and each reports what it cannot do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Connection;

use crate::harness::{KEY, TestServer, binary, patiently};

/// Length, modification time and digest of every file and directory below a path.
type Tree = BTreeMap<PathBuf, (u64, SystemTime, Vec<u8>)>;

fn tree(directory: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).expect("a file");
        let mut digest = Vec::new();
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).expect("a directory") {
                pending.push(entry.expect("an entry").path());
            }
        } else {
            digest = Sha256::digest(fs::read(&path).expect("a file")).to_vec();
        }
        tree.insert(path, (metadata.len(), metadata.modified().expect("a time"), digest));
    }
    tree
}

/// Asserts that two trees are equal, and names the differences.
fn assert_same(before: &Tree, after: &Tree, what: &str) {
    let names = before.keys().chain(after.keys());
    let changed: Vec<&PathBuf> =
        names.filter(|name| before.get(*name) != after.get(*name)).collect();
    assert!(changed.is_empty(), "{what} changed {changed:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

/// Text that does not compress, so that the log becomes long.
fn noise(seed: usize, length: usize) -> String {
    let mut state = u64::try_from(seed).unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letters = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + u8::try_from((state >> 33) % 90).unwrap())
    });
    letters.take(length).filter(|letter| !matches!(letter, '"' | '\\')).collect()
}

fn events(from: usize, count: usize, length: usize) -> Value {
    let event = |number: usize| {
        json!({
            "event": format!("event {}", number % 7),
            "distinct_id": format!("person {}", number % 50),
            "properties": {"number": number, "noise": noise(number, length), "$set": {"last": number}},
        })
    };
    Value::Array((from..from + count).map(event).collect())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const QUESTIONS: [&str; 7] = [
    "SELECT uuid, event, distinct_id, person_id, timestamp FROM events ORDER BY uuid",
    "SELECT * FROM persons ORDER BY uuid",
    "SELECT * FROM person_distinct_ids ORDER BY distinct_id",
    "SELECT name FROM event_definitions ORDER BY name",
    "SELECT name FROM property_definitions ORDER BY name",
    "SELECT count(*) AS n FROM groups",
    "SELECT type, count FROM ingestion_warnings ORDER BY type",
];

/// Goal: `weir query` and `weir inspect` without a server change no file, and return the same as the server.
/// Method: a directory after SIGKILL with a log of several segments to replay, one after a clean shutdown,
/// and a copy of each; their ingestion warnings are older than a server keeps them.
#[test]
fn reading_without_a_server_changes_nothing() {
    let settings = [("WEIR_MEMTABLE_MAX_AGE", "1h"), ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB")];
    let mut server = TestServer::start_with(&settings);
    assert_eq!(server.capture(&events(0, 300, 20)).status, 200);
    let odd = json!([{"event": "odd", "distinct_id": "odd", "properties": {"$set": 7}}]);
    assert_eq!(server.capture(&odd).status, 200);
    let warned = || (server.count("SELECT count(*) FROM ingestion_warnings") > 0).then_some(());
    patiently(warned).expect("a warning");
    server.stop();
    server.restart();
    for part in 0..12 {
        assert_eq!(server.capture(&events(1_000 + part * 10, 10, 10_000)).status, 200);
    }
    let expected = QUESTIONS.map(|sql| server.query(sql));
    assert_eq!(expected.each_ref().map(Vec::len).map(|rows| rows > 0), [true; 7]);
    server.kill();
    let segments = fs::read_dir(server.data_dir().join("wal")).expect("the log").count();
    assert!(segments > 4, "{segments} segments, of which the newest three are copied");
    age_warnings(&server.data_dir());
    check(&server, &expected, "after a crash");
    server.restart();
    server.stop();
    // The server has removed the warnings, which were too old for it.
    age_warnings(&server.data_dir());
    let mut expected = expected;
    expected[6] = server.query(QUESTIONS[6]);
    check(&server, &expected, "after a clean end");
}

/// Makes ingestion warnings older than any server keeps them.
fn age_warnings(data_dir: &Path) {
    let url = format!("sqlite://{}", data_dir.join("metadata.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&url).await.expect("the database");
        let age = "UPDATE ingestion_warnings SET day = day - 4000";
        sqlx::query(age).execute(&mut database).await.expect("an update");
        database.close().await.expect("the end");
    });
}

fn check(server: &TestServer, expected: &[Vec<Value>], state: &str) {
    let own = tempfile::tempdir().expect("a directory");
    let copied = own.path().join("copy");
    copy(&server.data_dir(), &copied);
    let temporary = own.path().join("temporary");
    fs::create_dir(&temporary).expect("a directory");
    for directory in [server.data_dir(), copied] {
        let before = tree(&directory);
        let run = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            command.args(arguments).arg("--data-dir").arg(&directory).env("TMPDIR", &temporary);
            let output = command.output().expect("weir");
            assert!(output.status.success(), "{state}: {arguments:?}: {}", stderr(&output));
            assert_eq!(stderr(&output), "", "{state}: {arguments:?}");
            assert_same(&before, &tree(&directory), &format!("{state}: {arguments:?}"));
            let left = fs::read_dir(&temporary).expect("a directory").count();
            assert_eq!(left, 0, "{state}: {arguments:?} leaves its copy behind");
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        for (sql, expected) in QUESTIONS.iter().zip(expected) {
            let text = run(&["query", "--format", "json", sql]);
            let rows: Vec<Value> =
                text.lines().map(|row| serde_json::from_str(row).expect("a row")).collect();
            assert_eq!(&rows, expected, "{state}: {sql}");
        }
        run(&["inspect"]);
        run(&["inspect", "--files"]);
        let said = run(&["inspect", "--verify"]);
        for part in ["checked   identity", "checked   tables/persons", "checked   metadata.db"] {
            assert!(said.contains(part), "{state}: {said}");
        }
    }
}

/// Commands that read refuse a directory that is not a data directory, and leave nothing there.
#[test]
fn directories_of_others_are_refused_as_they_are() {
    let own = tempfile::tempdir().expect("a directory");
    let at = |name: &str| own.path().join(name);
    fs::create_dir(at("empty")).expect("a directory");
    fs::create_dir_all(at("other/src")).expect("a directory");
    fs::write(at("other/README.md"), "something else").expect("a file");
    fs::write(at("file"), "no directory").expect("a file");
    let before = tree(own.path());
    for name in ["missing", "empty", "other", "file"] {
        for arguments in [
            &["query", "SELECT 1"][..],
            &["inspect"],
            &["inspect", "--files"],
            &["inspect", "--verify"],
            &["flush"],
            &["keys", "list"],
        ] {
            let mut command = Command::new(binary());
            let output = command.args(arguments).arg("--data-dir").arg(at(name)).output();
            let output = output.expect("weir");
            assert!(!output.status.success(), "{arguments:?} of {name}");
            assert!(stderr(&output).contains(at(name).to_str().unwrap()), "{}", stderr(&output));
            assert_same(&before, &tree(own.path()), &format!("{arguments:?} of {name}"));
        }
    }
}

/// A server does not start while a command reads the directory, and says so; two queries can run at once.
#[test]
fn readers_keep_servers_out_and_not_each_other() {
    let mut server = TestServer::start();
    assert_eq!(server.capture(&events(0, 10, 10)).status, 200);
    server.kill();
    let lock = fs::File::open(server.data_dir().join("lock")).expect("the lock file");
    lock.try_lock_shared().expect("a lock");
    assert_eq!(server.count("SELECT count(*) FROM events"), 10);
    let refused = server.weir(&["serve", "--listen", "127.0.0.1:0"]).output().expect("weir");
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("in use by another process"), "{}", stderr(&refused));
    // Nor does what changes the metadata, which a reader may be copying.
    let refused = server.weir(&["keys", "list"]).output().expect("weir");
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("in use by a command that reads it"), "{}", stderr(&refused));
    drop(lock);
    assert!(server.weir(&["keys", "list"]).output().expect("weir").status.success());
    // A server that has not said yet where it is.
    let lock = fs::File::open(server.data_dir().join("lock")).expect("the lock file");
    lock.try_lock().expect("a lock");
    let inspected = server.weir(&["inspect"]).output().expect("weir");
    let text = String::from_utf8_lossy(&inspected.stdout);
    assert!(text.contains("which another process has open"), "{text}");
    drop(lock);
    // Where there is no lock file, as in a backup, the directory itself is locked.
    fs::remove_file(server.data_dir().join("lock")).expect("the lock file");
    let lock = fs::File::open(server.data_dir()).expect("the directory");
    lock.try_lock_shared().expect("a lock");
    let refused = server.weir(&["serve", "--listen", "127.0.0.1:0"]).output().expect("weir");
    assert!(stderr(&refused).contains("in use by another process"), "{}", stderr(&refused));
    drop(lock);
    server.restart();
}

/// Goal: however a query ends, its copy is removed. Method: a query that takes minutes, and signals as soon
/// as there is a copy; and invalid settings in the environment.
#[test]
fn a_query_that_is_ended_removes_its_copy() {
    let mut server = TestServer::start();
    assert_eq!(server.capture(&events(0, 500, 10)).status, 200);
    server.kill();
    let own = tempfile::tempdir().expect("a directory");
    let copies = || fs::read_dir(own.path()).expect("a directory").count();
    let slow = "SELECT count(*) FROM events a, events b, events c, events d \
                WHERE a.uuid < b.uuid AND b.uuid < c.uuid AND c.uuid < d.uuid";
    for signal in
        [rustix::process::Signal::INT, rustix::process::Signal::TERM, rustix::process::Signal::HUP]
    {
        let mut command = server.weir(&["query", slow]);
        let mut process = command.env("TMPDIR", own.path()).spawn().expect("weir");
        patiently(|| (copies() > 0).then_some(())).expect("a copy");
        let id = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(id, signal).expect("a signal");
        let status = process.wait().expect("the end");
        assert_eq!((status.code(), copies()), (Some(1), 0), "{signal:?}");
    }
    let mut command = server.weir(&["query", "SELECT 1"]);
    let output = command.env("TMPDIR", own.path()).env("WEIR_QUERIES_MAX", "0").output();
    let output = output.expect("weir");
    assert!(!output.status.success() && stderr(&output).contains("0"), "{}", stderr(&output));
    assert_eq!(copies(), 0);
    let mut command = server.weir(&["query", "SELECT 1"]);
    let output = command.env("TMPDIR", own.path().join("missing")).output().expect("weir");
    assert!(stderr(&output).contains("missing; TMPDIR names another place"), "{}", stderr(&output));
}

/// A store whose last transactions were removed opens as if they had never existed, and the first access
/// would remove the evidence.
#[test]
fn lost_changes_of_the_metadata_are_told_by_every_reader() {
    let mut server = TestServer::start();
    assert_eq!(server.capture(&events(0, 10, 10)).status, 200);
    server.stop();
    // Whoever closes the store as the last one writes its log into it.
    age_warnings(&server.data_dir());
    server.restart();
    server.post("/api/projects/1/feature_flags/", &json!({"key": "late"})).created();
    server.kill();
    fs::remove_file(server.data_dir().join("metadata.db-wal")).expect("its log");
    let before = tree(&server.data_dir());
    for _ in 0..2 {
        let run = |arguments: &[&str]| {
            let output = server.weir(arguments).output().expect("weir");
            let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
            assert!(text.contains("metadata.db-wal"), "{arguments:?}: {text}");
            assert_same(&before, &tree(&server.data_dir()), &format!("{arguments:?}"));
            (output.status.success(), text)
        };
        for (arguments, is_fine) in [
            (&["query", "SELECT count(*) FROM events"][..], true),
            (&["inspect"], true),
            (&["inspect", "--verify"], false),
        ] {
            let (succeeds, text) = run(arguments);
            assert_eq!(succeeds, is_fine, "{arguments:?}: {text}");
        }
    }
}

#[test]
fn a_flush_brings_every_acknowledged_event_into_files() {
    let mut server = TestServer::start_with(&[("WEIR_MEMTABLE_MAX_AGE", "1h")]);
    assert_eq!(server.files(), Vec::<PathBuf>::new());
    let flush = || {
        let output = server.weir(&["flush"]).output().expect("weir");
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let count = text.split_once(" events in ").expect("a number").0;
        count.parse::<usize>().expect("a number")
    };
    let rows = || -> i64 {
        let rows = |path: &PathBuf| {
            let file = fs::File::open(path).expect("a file");
            let file = parquet::file::reader::SerializedFileReader::new(file).expect("Parquet");
            parquet::file::reader::FileReader::metadata(&file).file_metadata().num_rows()
        };
        server.files().iter().map(rows).sum()
    };
    assert_eq!(flush(), 0);
    for part in 1..=4 {
        assert_eq!(server.capture(&events(part * 1_000, 250, 10)).status, 200);
        assert_eq!(flush(), part * 250);
        assert_eq!(rows(), i64::try_from(part).unwrap() * 250);
    }
    // An operation on persons is a record without rows.
    let person = server.get("/api/projects/1/persons/?distinct_id=person%201").json();
    let path = format!("/api/projects/1/persons/{}/", person["results"][0]["id"]);
    assert_eq!(server.patch(&path, &json!({"properties": {"a": 1}})).status, 202);
    assert_eq!(flush(), 1_000);
    // Of flushes at once each has what was acknowledged before it.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (server, flush) = (&server, &flush);
            scope.spawn(move || {
                for part in 1..=3 {
                    let first = 10_000 + thread * 1_000 + part * 100;
                    assert_eq!(server.capture(&events(first, 10, 10)).status, 200);
                    assert!(flush() >= 1_000 + part * 10);
                }
            });
        }
    });
    assert_eq!((flush(), rows()), (1_120, 1_120));
    for (path, key) in [("flush", ""), ("overview", ""), ("flush", KEY), ("overview", KEY)] {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        let answer = server.send("POST", &format!("/_internal/{path}"), &headers, "");
        assert_eq!(answer.status, 401, "{path}: {answer}");
    }
    server.stop();
    let refused = server.weir(&["flush"]).output().expect("weir");
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("no server runs on"), "{}", stderr(&refused));
}

/// The line of `weir inspect` that begins with `name`, below the heading `section`.
fn shown(text: &str, section: &str, name: &str) -> String {
    let mut lines = text.lines().skip_while(|line| *line != section).skip(1);
    let line = lines.find_map(|line| line.trim_start().strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {section}:\n{text}")).trim().to_owned()
}

#[test]
fn inspect_shows_what_there_is_with_a_server_and_without() {
    let mut server = TestServer::start_with(&[("WEIR_MEMTABLE_MAX_AGE", "1h")]);
    assert_eq!(server.capture(&events(0, 60, 10)).status, 200);
    server.post("/api/projects/", &json!({"name": "Shop\n\u{1b}[31m"})).created();
    server.post("/api/projects/1/feature_flags/", &json!({"key": "new"})).created();
    let inspect = |server: &TestServer| {
        let output = server.weir(&["inspect"]).output().expect("weir");
        (output.status.success(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let look = |server: &TestServer, state: &str, rows: &str| {
        let (is_fine, text) = inspect(server);
        assert!(is_fine, "{state}: {text}");
        assert!(!text.contains('\u{1b}'), "{state}: {text}");
        let first = shown(&text, "projects", "1 ");
        let cells: Vec<&str> = first.split_whitespace().collect();
        assert_eq!(cells[1..4], ["50", "1", "0"], "{state}: {text}");
        assert!(shown(&text, "projects", "2 ").ends_with("Shop  [31m"), "{state}: {text}");
        assert_eq!(shown(&text, "projects", "personal API keys"), "1", "{state}: {text}");
        assert_eq!(shown(&text, "log", "last record"), "1", "{state}: {text}");
        assert_eq!(shown(&text, "log", "in the persons"), "1", "{state}: {text}");
        assert_eq!(shown(&text, "table events", "rows"), rows, "{state}: {text}");
        assert_ne!(shown(&text, "disk", "identity"), "0 (0 B)", "{state}: {text}");
        assert!(shown(&text, "disk", "free").contains("iB)"), "{state}: {text}");
        text
    };
    // As of every acknowledged event.
    assert_eq!(server.count("SELECT count(*) FROM persons"), 50);
    let text = look(&server, "with a server", "0");
    assert!(text.contains("served by process"), "{text}");
    server.stop();
    look(&server, "after a clean end", "60");
    server.restart();
    server.kill();
    let text = look(&server, "after a crash", "60");
    assert!(text.contains("which no server has open"), "{text}");
    // What is lost hides nothing else.
    fs::remove_file(server.data_dir().join("metadata.db")).expect("the metadata");
    let (is_fine, text) = inspect(&server);
    assert!(!is_fine, "{text}");
    assert!(shown(&text, "projects", "cannot be read").contains("metadata.db"), "{text}");
    assert_eq!(shown(&text, "table events", "rows"), "60");
    // It is a data directory all the same, and messages name its files.
    let path = server.data_dir().join("metadata.db");
    for arguments in [&["query", "SELECT 1"][..], &["inspect"], &["keys", "list"]] {
        let output = server.weir(arguments).output().expect("weir");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        assert!(text.contains(path.to_str().unwrap()), "{arguments:?}: {text}");
        for wrong in ["is not a Weir data directory", "weir-copy-"] {
            assert!(!text.contains(wrong), "{arguments:?}: {text}");
        }
        assert!(!path.exists(), "{arguments:?}");
    }
}

#[test]
fn keys_are_refused_by_their_label_scope_or_number() {
    let server = TestServer::start();
    let long = "x".repeat(41);
    let keys =
        |arguments: &[&str]| server.weir(&["keys"]).args(arguments).output().expect("weir keys");
    let before = keys(&["list"]).stdout;
    let listed = String::from_utf8(before.clone()).expect("UTF-8");
    let mut lines = listed.lines();
    assert_eq!(lines.next(), Some("ID\tKEY\tLABEL\tSCOPES\tUSER"), "{listed}");
    let columns: Vec<&str> = lines.next().expect("a key").split('\t').collect();
    assert!(columns.len() == 5 && columns[4].contains('@'), "{listed}");
    for (arguments, expected) in [
        (&["create", ""][..], "the label \"\": This field may not be blank."),
        (&["create", &long], &*format!("the label \"{long}\": Ensure")),
        (&["create", "a", "--scope", "person:reed"], "there is no scope person:reed"),
        (&["create", "a", "--scope", "persons:read"], "there is no scope persons:read"),
        (&["revoke", "99"], "cannot revoke key 99: no such key"),
    ] {
        let output = keys(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(keys(&["list"]).stdout, before);
    assert!(keys(&["create", "a", "--scope", "person:read"]).status.success());
    let all = String::from_utf8(keys(&["create", "b", "--scope", "*"]).stdout).expect("UTF-8");
    let authorization = format!("Bearer {}", all.trim());
    let look = || {
        let headers = [("authorization", &*authorization)];
        let answer = server.send("GET", "/api/projects/1/feature_flags/", &headers, "");
        (answer.status == 200).then_some(())
    };
    patiently(look).expect("a key for everything");
}

/// Error messages of `weir query` list what exists.
#[test]
fn a_query_says_what_there_is_instead() {
    let mut server = TestServer::start();
    let ask = |server: &TestServer, more: &[&str]| {
        let mut command = server.weir(&["query"]);
        let output = command.args(more).output().expect("weir");
        (
            output.status.success(),
            stderr(&output),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let tables = "there is no table nothing; there are: event_definitions, event_properties, events, groups, \
                  ingestion_warnings, person_distinct_ids, persons, property_definitions, sessions";
    let url = server.url();
    let slashed = format!("{url}/");
    let remote = |url| ["--url", url, "--key", KEY];
    let cases = [
        (vec!["SELECT * FROM nothing"], tables),
        (vec!["SELECT 1; SELECT 2"], "a query is one statement"),
        (vec!["SELECT 1", "--project", "99"], "there is no project 99; there are: 1"),
    ];
    for (arguments, expected) in &cases {
        let (is_fine, error, _) = ask(&server, arguments);
        assert!(!is_fine && error.contains(expected), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for url in [&*url, &*slashed] {
        let (is_fine, error, out) =
            ask(&server, &[&remote(url)[..], &["SELECT 41 + 1 AS n"]].concat());
        assert!(is_fine && out.contains("42"), "{url}: {error}");
        let other = [&remote(url)[..], &["--project", "99", "SELECT 1"]].concat();
        let (is_fine, error, _) = ask(&server, &other);
        let expected = format!("project 99 of {}", server.url());
        assert!(!is_fine && error.contains(&expected), "{url}: {error}");
    }
    // Metrics of plans are for the operator alone, who can read the directory.
    let explain = "EXPLAIN ANALYZE SELECT count(*) FROM events";
    let (is_fine, error, _) = ask(&server, &[&remote(&url)[..], &[explain]].concat());
    assert!(!is_fine && error.contains("for the operator"), "{error}");
    let explained = |server: &TestServer| {
        let (is_fine, error, out) = ask(server, &[explain]);
        assert!(is_fine && out.contains("metrics"), "{error}: {out}");
    };
    explained(&server);
    server.kill();
    explained(&server);
    for (arguments, expected) in &cases {
        let (is_fine, error, _) = ask(&server, arguments);
        assert!(!is_fine && error.contains(expected), "without a server: {arguments:?}: {error}");
    }
}
