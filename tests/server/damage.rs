//! Damage in each part of a data directory: removed, emptied, cut, or with one bit changed. The server
//! starts, serves the rest, and reports and counts the loss; or it refuses to start and says how to
//! continue.
//!
//! The directory is that of a killed server: some events are in files, the others only in the log.

use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};

/// Segments of the log for a few requests each, and flushes only at the end.
const SETTINGS: [(&str, &str); 4] = [
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "32KiB"),
    ("WEIR_MEMTABLE_MAX_AGE", "1h"),
    ("WEIR_COMPACTION_INTERVAL", "1h"),
    ("WEIR_PERSONS_TABLE_INTERVAL", "1h"),
];

/// Events in files, by month, and events that are only in the log.
const FLUSHED: [(&str, u64); 2] = [("2026-01", 20), ("2026-02", 30)];
const LOGGED: u64 = 60;

/// All of them.
const EVENTS: u64 = FLUSHED[0].1 + FLUSHED[1].1 + LOGGED;

/// One of them was created just before the server was killed.
const FLAGS: u64 = 2;

/// Twenty of each kind.
const PERSONS: u64 = 40;

/// Damage to a file, or to all files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Removed,
    Emptied,
    Halved,
    Flipped,
}

const HARMS: [Harm; 4] = [Harm::Removed, Harm::Emptied, Harm::Halved, Harm::Flipped];

/// Allowed outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing is lost.
    All,
    /// The server starts. At least this many events are there; the rest is counted as lost.
    Rest(u64),
    /// The server starts. Queries that read the damaged file name it, others are answered.
    Named,
    /// The server starts without the previous persons, and says so.
    NoPersons,
    /// The server does not start, and prints this.
    Refused(&'static str),
}

use Outcome::{All, Named, NoPersons, Refused, Rest};

const RECREATE: &str = "--recreate-metadata";

const IDENTITY_HARMED: &[Outcome] = &[Refused("identity"), NoPersons, All];

/// Parts, and the allowed outcomes if they are removed, emptied, halved, or have a bit changed.
const CASES: &[(&str, [&[Outcome]; 4])] = &[
    // With the transactions of the killed server beside it, an empty database is a whole one.
    (
        "metadata.db",
        [
            &[Refused(RECREATE)],
            &[Refused(RECREATE)],
            &[All, Refused(RECREATE)],
            &[All, Refused(RECREATE)],
        ],
    ),
    (
        "metadata.db*",
        [
            &[Refused(RECREATE)],
            &[Refused(RECREATE)],
            &[All, Refused(RECREATE)],
            &[All, Refused(RECREATE)],
        ],
    ),
    // The first flag was written into the database when the server ended, the second one was not.
    // A checkpoint that was under way has moved some pages of a commit and not others.
    ("metadata.db-wal", [&[All, Refused("has no project"), Refused(RECREATE)], &[], &[], &[]]),
    ("node-id", [&[All], &[All], &[Refused("node-id")], &[Refused("node-id")]]),
    ("lock", [&[All], &[All], &[All], &[All]]),
    ("wal/", [&[Rest(50)], &[Rest(50)], &[Rest(50)], &[Rest(50)]]),
    ("wal/flushed", [&[All], &[All], &[All], &[All]]),
    ("wal/first", [&[Rest(80)], &[Rest(80)], &[Rest(80)], &[All, Rest(80)]]),
    ("wal/middle", [&[Rest(80)], &[Rest(80)], &[Rest(80)], &[Rest(80)]]),
    ("wal/last", [&[Rest(80)], &[Rest(80)], &[All, Rest(80)], &[All, Rest(80)]]),
    ("tables/", [&[Rest(60)], &[], &[], &[]]),
    ("tables/events/", [&[Rest(60)], &[], &[], &[]]),
    ("tables/events/_delta_log/", [&[Refused("_delta_log")], &[], &[], &[]]),
    ("tables/events/month=2026-01/", [&[Rest(90)], &[Named], &[Named], &[Named]]),
    ("tables/persons/", [&[All], &[], &[], &[]]),
    ("tables/persons/persons-*", [&[All], &[All], &[All], &[All]]),
    // The end of its journal may be lost: the log has it.
    ("identity/", [&[NoPersons], IDENTITY_HARMED, IDENTITY_HARMED, IDENTITY_HARMED]),
];

fn event(name: &str, number: u64, month: &str) -> Value {
    json!({
        "event": name,
        "distinct_id": format!("{name} {}", number % 20),
        "timestamp": format!("{month}-15T12:00:00Z"),
        "properties": {"n": number, "pad": pad(number), "$set": {"last": number}},
    })
}

/// Text that does not compress well, so that segments of the log fill up quickly.
fn pad(seed: u64) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    (0..250).map(|_| format!("{:016x}", random.random::<u64>())).collect()
}

fn send(server: &TestServer, name: &str, count: u64, month: &str) {
    let events: Vec<Value> = (0..count).map(|number| event(name, number, month)).collect();
    for events in events.chunks(5) {
        let answer = server.capture(&json!(events));
        assert_eq!(answer.status, 200, "{answer}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a copy")),
        }
    }
}

/// Segments of the log, oldest first.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("wal")).expect("the log");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    paths.sort();
    paths
}

/// The files and directories of a part.
fn paths(directory: &Path, part: &str) -> Vec<PathBuf> {
    if let Some(which) = part.strip_prefix("wal/").filter(|which| !which.is_empty()) {
        let segments = segments(directory);
        assert!(segments.len() >= 5, "{segments:?}");
        let at = match which {
            // Kept as the newest one when the server had written everything into files.
            "flushed" => 0,
            "first" => 1,
            "middle" => segments.len() / 2,
            _ => segments.len() - 1,
        };
        return vec![segments[at].clone()];
    }
    match part.strip_suffix('*') {
        None => vec![directory.join(part.trim_end_matches('/'))],
        Some(begin) => {
            let (folder, begin) = begin.rsplit_once('/').unwrap_or(("", begin));
            let entries = fs::read_dir(directory.join(folder)).expect("the directory");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            let is_named =
                |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(begin);
            paths.filter(is_named).collect()
        }
    }
}

fn harm(path: &Path, harm: Harm) {
    if path.is_dir() {
        if harm == Harm::Removed {
            return fs::remove_dir_all(path).expect("removed");
        }
        for entry in fs::read_dir(path).expect("a directory") {
            self::harm(&entry.expect("an entry").path(), harm);
        }
        return;
    }
    let mut bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match harm {
        Harm::Removed => return fs::remove_file(path).expect("removed"),
        Harm::Emptied => bytes.clear(),
        Harm::Halved => bytes.truncate(bytes.len() / 2),
        Harm::Flipped => {
            // Of a segment, the middle of what is written.
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if let Some(byte) = bytes.get_mut(end / 2) {
                *byte ^= 0x10;
            }
        }
    }
    fs::write(path, bytes).expect("written");
}

fn ask(server: &TestServer, sql: &str) -> Answer {
    server.post("/api/projects/@current/query/", &json!({"query": sql}))
}

/// The single number of a response.
fn number(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{answer}");
    let row = answer.json();
    row.as_object().and_then(|row| row.values().next()?.as_u64()).expect("a number")
}

/// Counts distinct events by all columns, so that every file has to be read completely.
fn count(server: &TestServer, condition: &str) -> Answer {
    let sql = format!("SELECT * FROM events WHERE {condition}");
    ask(server, &format!("SELECT count(*) AS n FROM ({sql} UNION {sql})"))
}

fn corruptions(server: &TestServer, place: &str) -> u64 {
    server.metric(&format!("weir_corruptions_total{{place=\"{place}\"}}"))
}

/// The outcome, if it is one of `allowed`.
fn observe(server: &mut TestServer, allowed: &[Outcome]) -> Result<Outcome, String> {
    if let Err(said) = server.try_start() {
        let refused =
            allowed.iter().find(|outcome| matches!(outcome, Refused(text) if said.contains(text)));
        return refused.copied().ok_or(format!("refused: {said}"));
    }
    let flags = server.get("/api/projects/@current/feature_flags/").json()["count"].as_u64();
    if flags != Some(FLAGS) && corruptions(server, "metadata") == 0 {
        return Err(format!("{flags:?} flags, and nobody is told"));
    }
    let all = count(server, "event IN ('flushed', 'logged')");
    let outcome = if all.status == 500 {
        let named = all.to_string().contains("tables/events/month=2026-01/");
        let persons = number(&ask(server, "SELECT count(*) FROM persons"));
        if !named || persons != PERSONS || corruptions(server, "table") == 0 {
            return Err(format!("{persons} persons, {all}"));
        }
        Named
    } else {
        let found = number(&all);
        let persons =
            server.get("/api/projects/@current/persons/?limit=1").json()["count"].as_u64();
        match found {
            EVENTS if persons == Some(PERSONS) => All,
            EVENTS => {
                if server.metric("weir_identity_incomplete") != 1 {
                    return Err(format!("{persons:?} persons, and nobody is told"));
                }
                NoPersons
            }
            _ if corruptions(server, "wal") + corruptions(server, "events") == 0 => {
                return Err(format!("{found} events, and nobody is told"));
            }
            _ => Rest(found),
        }
    };
    let is_allowed = allowed.iter().any(|allowed| match (allowed, outcome) {
        (Rest(least), Rest(found)) => found >= *least,
        (allowed, outcome) => *allowed == outcome,
    });
    if is_allowed { Ok(outcome) } else { Err(format!("{outcome:?}")) }
}

/// New events are accepted, and stored once after a crash; existing ones stay.
fn goes_on(server: &mut TestServer) {
    let before = count(server, "event = 'logged'");
    send(server, "later", 5, "2026-03");
    for _ in 0..2 {
        let persons = "SELECT count(*) FROM person_distinct_ids WHERE distinct_id LIKE 'later %'";
        assert_eq!(number(&ask(server, persons)), 5);
        if before.status == 200 {
            assert_eq!(number(&count(server, "event = 'later'")), 5);
            assert_eq!(number(&count(server, "event = 'logged'")), number(&before));
        }
        server.kill();
        server.restart();
    }
}

/// A directory with data of every kind, whose server was killed.
fn directory() -> TestServer {
    let mut server = TestServer::start_with(&SETTINGS);
    for (month, events) in FLUSHED {
        send(&server, "flushed", events, month);
    }
    let make_flag = |server: &TestServer, key: &str| {
        let filters = json!({"groups": [{"properties": [], "rollout_percentage": 100}]});
        let flag = json!({"key": key, "filters": filters});
        server.post("/api/projects/@current/feature_flags/", &flag).created();
    };
    make_flag(&server, "early");
    server.stop();
    server.restart();
    make_flag(&server, "late");
    send(&server, "logged", LOGGED, "2026-03");
    assert_eq!(number(&count(&server, "event IN ('flushed', 'logged')")), EVENTS);
    let filter = r#"[{"key":"last","operator":"is_set"}]"#;
    let query =
        form_urlencoded::Serializer::new(String::new()).append_pair("properties", filter).finish();
    assert_eq!(server.get(&format!("/api/projects/@current/persons/?{query}")).status, 200);
    server.kill();
    server
}

#[test]
fn each_part_may_be_lost() {
    let origin = directory();
    let only = std::env::var_os("WEIR_DAMAGE_PART");
    let mut wrong = Vec::new();
    for (part, allowed) in CASES {
        if only.as_ref().is_some_and(|only| only.to_str() != Some(*part)) {
            continue;
        }
        for (how, allowed) in HARMS.into_iter().zip(allowed) {
            if allowed.is_empty() {
                continue;
            }
            let mut server = TestServer::stopped(&SETTINGS);
            copy(&origin.data_dir(), &server.data_dir());
            let paths = paths(&server.data_dir(), part);
            if paths.iter().all(|path| !path.exists()) {
                wrong.push(format!("{part} is not there"));
                continue;
            }
            paths.iter().for_each(|path| harm(path, how));
            match observe(&mut server, allowed) {
                Ok(outcome) => {
                    println!("{part} {how:?}: {outcome:?}");
                    if !matches!(outcome, Refused(_)) {
                        goes_on(&mut server);
                    }
                }
                Err(problem) => wrong.push(format!("{part} {how:?}: {problem}")),
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n\n"));
}

/// Goal: a check finds exactly the damage, and changes nothing.
#[test]
fn a_check_names_what_is_damaged() {
    let origin = directory();
    // A part, what is done to it, and what has to be said; nothing if no damage is to be found.
    let cases = [
        ("lock", Harm::Emptied, None),
        ("metadata.db*", Harm::Removed, Some("metadata.db: it is missing or empty")),
        ("metadata.db-wal", Harm::Removed, Some("metadata.db-wal: it was removed")),
        ("node-id", Harm::Emptied, None),
        ("tables/persons/", Harm::Removed, None),
        ("wal/middle", Harm::Flipped, Some("wal/")),
        ("wal/", Harm::Removed, Some("are missing, and in no file")),
        ("tables/events/month=2026-01/", Harm::Flipped, Some("tables/events/month=2026-01/")),
        ("tables/events/month=2026-02/", Harm::Removed, Some("are missing, such as")),
        ("tables/events/_delta_log/", Harm::Removed, Some("tables/events/_delta_log")),
        ("identity/", Harm::Flipped, Some("identity")),
    ];
    for (part, how, expected) in cases {
        let server = TestServer::stopped(&SETTINGS);
        copy(&origin.data_dir(), &server.data_dir());
        paths(&server.data_dir(), part).iter().for_each(|path| harm(path, how));
        let before = contents(&server.data_dir());
        let output = server.weir(&["inspect", "--verify"]).output().expect("weir inspect");
        let said = String::from_utf8_lossy(&output.stdout);
        let case = format!("{part} {how:?}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(i32::from(expected.is_some())), "{case}");
        let mut findings = said.lines().filter(|line| line.starts_with("DAMAGED"));
        match expected {
            None => assert_eq!(findings.next(), None, "{case}"),
            Some(text) => assert!(findings.any(|line| line.contains(text)), "{case}"),
        }
        assert_eq!(contents(&server.data_dir()), before, "{case}");
        assert!(!case.contains("weir-copy-"), "{case}");
    }
    // What is not known is no damage: how far the log is in files.
    let server = TestServer::stopped(&SETTINGS);
    copy(&origin.data_dir(), &server.data_dir());
    fs::write(server.data_dir().join("node-id"), "").expect("node-id");
    let output = server.weir(&["inspect"]).output().expect("weir inspect");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("damaged places"), "{said}");
    // Beside a running server it says what it leaves out.
    let mut server = TestServer::stopped(&SETTINGS);
    copy(&origin.data_dir(), &server.data_dir());
    server.restart();
    send(&server, "later", 5, "2026-03");
    let output = server.weir(&["inspect", "--verify"]).output().expect("weir inspect");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("skipped   identity: a server writes to it"), "{said}");
    // The server cuts the log while the check goes on: where it begins says nothing.
    let oldest = segments(&server.data_dir());
    assert!(oldest.len() > 2, "{oldest:?}");
    fs::remove_file(&oldest[0]).expect("a segment");
    let output = server.weir(&["inspect", "--verify"]).output().expect("weir inspect");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("skipped   wal: whether records are missing"), "{said}");
}

/// Names and contents of files.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read(&path).expect("a file")));
        }
    }
    found.sort();
    found
}

/// Goal: after a loss of its metadata a directory can be used again, and its events are there.
#[test]
fn metadata_is_made_anew_when_it_is_told_to() {
    let origin = directory();
    for how in [Harm::Removed, Harm::Emptied, Harm::Halved] {
        let mut server = TestServer::stopped(&SETTINGS);
        copy(&origin.data_dir(), &server.data_dir());
        paths(&server.data_dir(), "metadata.db*").iter().for_each(|path| harm(path, how));
        let said = server.try_start().expect_err("refused");
        assert!(said.contains("metadata.db") && said.contains(RECREATE), "{said}");
        server.try_start_with(&[RECREATE]).unwrap_or_else(|said| panic!("{how:?}: {said}"));
        assert_eq!(number(&count(&server, "event IN ('flushed', 'logged')")), EVENTS, "{how:?}");
        let flags = server.get("/api/projects/@current/feature_flags/").json();
        assert_eq!(flags["count"], 0, "the flag is lost");
        server.stop();
        // A second time there is nothing to be made anew.
        let said = server.try_start_with(&[RECREATE]).expect_err("refused");
        assert!(said.contains("can be read"), "{said}");
        server.restart();
        goes_on(&mut server);
    }
}
