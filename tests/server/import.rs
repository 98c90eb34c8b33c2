//! `weir import` with a real server: files of each source, as they are exported, and as they should not be. Parquet files are
//! written by PyArrow, archives by Python.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{TOKEN, TestServer, binary, patiently, run};
use crate::sdk::tools;

/// A directory of files to import, and what is remembered of imports.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file");
        path
    }

    /// Runs a script of Python with PyArrow in the directory.
    fn python(&self, script: &str) {
        let mut command = Command::new(tools().join("readers/bin/python"));
        command.args(["-c", script]).current_dir(self.0.path());
        run(command);
    }

    fn command(&self, server: &TestServer, from: &str, files: &[&Path]) -> Command {
        let mut command = Command::new(binary());
        command.arg("import").args(files).args(["--from", from, "--json", "--token", TOKEN]);
        command.args(["--url", &server.url(), "--work-dir"]).arg(self.path("work"));
        command
    }

    /// Imports files to their ends; returns the report.
    fn import(&self, server: &TestServer, from: &str, files: &[&Path], options: &[&str]) -> Value {
        let output = self.command(server, from, files).args(options).output().expect("weir");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{from} {files:?}: {said}");
        report(&output)
    }
}

fn report(output: &Output) -> Value {
    let line = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(line.trim()).unwrap_or_else(|error| {
        panic!("{error}: {line}{}", String::from_utf8_lossy(&output.stderr))
    })
}

/// A line of the rejects, without the row, which may be nested deeper than a value can be.
#[derive(Debug, serde::Deserialize)]
struct Reject {
    file: String,
    line: u64,
    reason: String,
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// Events of a batch export, and persons, as PyArrow writes them.
const POSTHOG: &str = r#"
import datetime, json, uuid
import pyarrow as pa, pyarrow.parquet as pq
utc = datetime.timezone.utc
start = datetime.datetime(2024, 6, 15, 14, 30, 0, 1, tzinfo=utc)
rows = [{
    "uuid": str(uuid.UUID(int=(1 << 96) + n)), "event": ["$pageview", "signed up"][n % 2], "distinct_id": f"d{n % 10}",
    "properties": json.dumps({"n": n, "big": 12345678901234567890123, "é\"\\": "\u0000x", "$browser": "Firefox"}),
    "person_properties": json.dumps({"plan": "free", "seen": n % 10}),
    "elements_chain": 'a:href="/x"text="Go"' if n % 2 else "",
    "timestamp": start + datetime.timedelta(microseconds=n * 1000003),
    "created_at": start + datetime.timedelta(seconds=n + 5), "person_id": str(uuid.UUID(int=n % 5)),
    "_inserted_at": start,
} for n in range(5000)]
time = pa.timestamp("us", "UTC")
schema = pa.schema([("uuid", pa.string()), ("event", pa.string()), ("distinct_id", pa.string()), ("properties", pa.large_string()),
    ("person_properties", pa.string()), ("elements_chain", pa.string()), ("timestamp", time), ("created_at", time),
    ("person_id", pa.string()), ("_inserted_at", time)])
pq.write_table(pa.Table.from_pylist(rows, schema), "events.parquet", row_group_size=700, compression="zstd")
few = schema.remove(schema.get_field_index("person_properties")).remove(0)
pq.write_table(pa.Table.from_pylist(rows[:10], few), "few.parquet", compression="snappy")
with open("events.jsonl", "w") as lines:
    for row in rows:
        row = dict(row, properties=json.loads(row["properties"]), person_properties=json.loads(row["person_properties"]))
        lines.write(json.dumps(row, default=lambda time: time.isoformat()) + "\n")
people = [{"team_id": 1, "distinct_id": f"d{n}", "person_id": str(uuid.UUID(int=n % 5)),
    "properties": json.dumps({"plan": "pro", "name": f"n{n % 5}"}), "person_distinct_id_version": 0, "person_version": 1,
    "created_at": start - datetime.timedelta(days=100), "_inserted_at": start, "is_deleted": n == 9} for n in range(10)]
pq.write_table(pa.Table.from_pylist(people), "persons.parquet")
"#;

/// Goal: events and persons of PostHog come in as they were: ids, times to the microsecond, texts, numbers of any size, and
/// the persons' distinct ids; from Parquet and JSON lines the same; twice is once.
#[test]
fn posthog_comes_in_as_it_was() {
    let (server, files) = (TestServer::start(), Files::new());
    files.python(POSTHOG);
    let at = |name: &str| files.path(name);
    let read =
        files.import(&server, "posthog", &[&at("events.parquet"), &at("persons.parquet")], &[]);
    assert_eq!(
        (&read["events"], &read["rejected"], &read["refused"]),
        (&json!(5_000), &json!(0), &json!(0))
    );
    assert_eq!((&read["persons"], &read["skipped"]["deleted persons"]), (&json!(9), &json!(1)));
    let row = "SELECT uuid, event, distinct_id, CAST(timestamp AS VARCHAR) AS at, elements_chain, properties, ip, \
        historical_migration AS old FROM events WHERE event = 'signed up' ORDER BY timestamp LIMIT 1";
    let stored = server.query(row);
    let properties: Value =
        serde_json::from_str(stored[0]["properties"].as_str().unwrap()).unwrap();
    assert!(stored[0]["properties"].as_str().unwrap().contains("12345678901234567890123"));
    assert_eq!(stored[0]["uuid"], "00000001-0000-0000-0000-000000000001");
    assert_eq!(stored[0]["elements_chain"], "a:href=\"/x\"text=\"Go\"");
    assert!(stored[0]["at"].as_str().unwrap().contains("14:30:01.000004"), "{stored:?}");
    assert_eq!((&stored[0]["ip"], &stored[0]["old"]), (&Value::Null, &json!(true)));
    assert_eq!(properties["é\"\\"], "\u{0}x");
    assert_eq!(properties["$import_source"], "posthog");
    assert_eq!(properties["$import_created_at"], "2024-06-15T14:30:06.000001Z");
    // Nine distinct ids of five persons, who have what the persons' file says, and not what the events had before.
    let persons =
        server.query("SELECT uuid, properties, CAST(created_at AS VARCHAR) AS at FROM persons");
    assert_eq!(
        persons.len(),
        6,
        "five, and the one of a deleted distinct id that has events: {persons:?}"
    );
    let second = persons.iter().find(|person| person["properties"].to_string().contains("n2"));
    let second = second.unwrap_or_else(|| panic!("{persons:?}"));
    assert!(second["properties"].to_string().contains("pro"), "{second}");
    assert!(second["at"].as_str().unwrap().starts_with("2024-03-07"), "{second}");
    let ids = format!(
        "SELECT distinct_id FROM person_distinct_ids WHERE person_id = '{}' ORDER BY distinct_id",
        second["uuid"].as_str().unwrap()
    );
    assert_eq!(server.query(&ids), [json!({"distinct_id": "d2"}), json!({"distinct_id": "d7"})]);
    let merged =
        "SELECT count(DISTINCT person_id) AS n FROM events WHERE distinct_id IN ('d2', 'd7')";
    assert_eq!(server.count(merged), 1);
    // The same as JSON lines, as a file with fewer columns, and again: nothing is stored twice.
    let again = files.import(&server, "posthog", &[&at("events.jsonl")], &[]);
    assert_eq!(again["events"], 5_000);
    let packed = files.write("events.jsonl.gz", gzip(&fs::read(at("events.jsonl")).unwrap()));
    files.import(&server, "posthog", &[&packed], &[]);
    assert_eq!(server.count("SELECT count(*) FROM events"), 5_000);
    let few = files.import(&server, "posthog", &[&at("few.parquet")], &[]);
    assert_eq!(few["events"], 10);
    let done =
        files.import(&server, "posthog", &[&at("events.parquet"), &at("persons.parquet")], &[]);
    assert_eq!((&done["events"], &done["rows_before"]), (&json!(0), &json!(5_000)));
    server.is_undamaged();
}

/// Goal: an import fills what live persons lack, overwrites or ignores, as it is told.
#[test]
fn persons_keep_what_is_newer() {
    let server = TestServer::start();
    let files = Files::new();
    let live =
        json!([{"event": "$set", "distinct_id": "ada", "properties": {"$set": {"plan": "pro"}}}]);
    assert_eq!(server.capture(&live).status, 200);
    let line = |plan: &str| {
        json!({"event": "e", "distinct_id": "ada", "timestamp": "2024-01-02T03:04:05Z",
            "properties": {"$browser": "Old", "$set": {"plan": plan, "name": "Ada"}}})
        .to_string()
    };
    let properties = || {
        let rows = server.query("SELECT properties FROM persons");
        serde_json::from_str::<Value>(rows[0]["properties"].as_str().unwrap()).unwrap()
    };
    let file = files.write("a.jsonl", line("ignored"));
    files.import(&server, "jsonl", &[&file], &["--person-properties", "ignore"]);
    assert_eq!((&properties()["plan"], properties().get("name")), (&json!("pro"), None));
    let file = files.write("b.jsonl", line("old"));
    files.import(&server, "jsonl", &[&file], &[]);
    let filled = properties();
    assert_eq!(
        (&filled["plan"], &filled["name"], &filled["$browser"]),
        (&json!("pro"), &json!("Ada"), &json!("Old"))
    );
    let file = files.write("c.jsonl", line("newest"));
    files.import(&server, "jsonl", &[&file], &["--person-properties", "overwrite"]);
    assert_eq!(properties()["plan"], "newest");
}

/// Goal: an export of each other source is imported as a whole, from the containers in which it comes.
#[test]
fn every_source_is_imported() {
    let (server, files) = (TestServer::start(), Files::new());
    files.python(
        r#"
import gzip, json, zipfile
rows = [{"$insert_id": f"i{n}", "event_type": "e", "event_time": f"2025-07-17 10:36:{n:02}.5", "user_id": "u",
    "device_id": "D", "platform": "Web", "event_properties": {"n": n}, "user_properties": {}, "groups": {}} for n in range(60)]
with zipfile.ZipFile("amplitude.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for hour in range(2):
        lines = "".join(json.dumps(row) + "\n" for row in rows[hour * 30:hour * 30 + 30])
        archive.writestr(f"100/100_2025-07-17_{hour}#{hour}.json.gz", gzip.compress(lines.encode()))
    archive.writestr("__MACOSX/._x", b"x")
import pyarrow as pa, pyarrow.parquet as pq
value = pa.struct([("string_value", pa.string()), ("int_value", pa.int64())])
pairs = pa.list_(pa.struct([("key", pa.string()), ("value", value)]))
table = pa.Table.from_pylist([{"event_timestamp": 1704164645678901 + n, "event_name": "page_view", "user_pseudo_id": "p",
    "event_params": [{"key": "page_location", "value": {"string_value": "https://x.y/"}}, {"key": "n", "value": {"int_value": n}}],
    "geo": {"country": "Germany"}} for n in range(7)], pa.schema([("event_timestamp", pa.int64()), ("event_name", pa.string()),
    ("user_pseudo_id", pa.string()), ("event_params", pairs), ("geo", pa.struct([("country", pa.string())]))]))
pq.write_table(table, "ga4.parquet")
with zipfile.ZipFile("plausible.zip", "w") as archive:
    archive.writestr("imported_browsers_20240101_20240131.csv", '"date","browser","visitors"\n"2024-01-01","Chrome",5\n')
"#,
    );
    files.write(
        "mixpanel.jsonl",
        "{\"event\":\"e\",\"properties\":{\"time\":1602611311,\"distinct_id\":\"u\",\"$insert_id\":\"a\"}}\n".repeat(3),
    );
    files.write(
        "segment.jsonl",
        r#"{"type":"track","event":"e","userId":"u","messageId":"m","timestamp":"2024-01-02T03:04:05Z","sentAt":1}"#,
    );
    files.write(
        "umami.csv",
        "session_id,event_id,event_type,url_path,hostname,created_at\ns,0190e5a2-7a5c-7000-8000-000000000001,1,/z,x.y,2024-01-02 03:04:05\n",
    );
    files.write(
        "plausible.csv",
        "name,user_id,hostname,pathname,timestamp\npageview,5,x.y,/z,2024-01-02 03:04:05\npageview,5,x.y,/z,2024-01-02 03:04:05\n",
    );
    files.write(
        "goatcounter.csv",
        "2Path,Title,Event,Session,Bot,Date\n/z,T,false,s,0,2024-01-02T03:04:05Z\n",
    );
    files.write("own.csv", "event,distinct_id,timestamp,price\nbuy,u,2024-01-02 03:04:05,1.5\n");
    for (from, file, rows, stored) in [
        ("amplitude", "amplitude.zip", 60, 61),
        ("ga4", "ga4.parquet", 7, 7),
        ("mixpanel", "mixpanel.jsonl", 3, 1),
        ("segment", "segment.jsonl", 1, 1),
        ("rudderstack", "segment.jsonl", 1, 1),
        ("umami", "umami.csv", 1, 1),
        ("plausible", "plausible.csv", 2, 2),
        ("goatcounter", "goatcounter.csv", 1, 1),
        ("csv", "own.csv", 1, 1),
    ] {
        for _ in 0..2 {
            let read = files.import(&server, from, &[&files.path(file)], &["--restart"]);
            assert_eq!(
                (&read["rows"], &read["rejected"]),
                (&json!(rows), &json!(0)),
                "{from}: {read}"
            );
            let count = format!(
                "SELECT count(*) FROM events WHERE properties.\"$import_source\" = '{from}'"
            );
            assert_eq!(server.count(&count), stored, "{from}");
        }
    }
    assert_eq!(
        server.count("SELECT count(*) FROM events WHERE \"p_$current_url\" = 'https://x.y/'"),
        7
    );
    let sums =
        files.command(&server, "plausible", &[&files.path("plausible.zip")]).output().unwrap();
    let said = String::from_utf8_lossy(&sums.stderr);
    assert!(
        !sums.status.success() && said.contains("sums of days") && said.contains("events_v2"),
        "{said}"
    );
    server.has_no_twins();
}

/// Goal: what is whole in a damaged file is imported, what is not is told with its place, and the rest of the files is
/// imported.
#[test]
fn damage_is_told_and_costs_only_what_is_damaged() {
    let server = TestServer::start_with(&[("WEIR_EVENT_MAX_BYTES", "10KiB")]);
    let files = Files::new();
    let line = |n: usize, more: &str| {
        format!(
            "{{\"event\":\"e\",\"distinct_id\":\"d\",\"timestamp\":\"2024-01-02T03:04:05Z\",\"properties\":{{\"n\":{n}{more}}}}}\n"
        )
    };
    let lines: String = (0..3_000).map(|n| line(n, "")).collect();
    let packed = gzip(lines.as_bytes());
    files.write("a.jsonl.gz", &packed[..packed.len() / 2]);
    let deep = format!(",\"deep\":{}{}", "[".repeat(200), "]".repeat(200));
    let large = format!(",\"large\":\"{}\"", "x".repeat(20_000));
    let bad = [
        line(3_001, ""),
        "no JSON\n".to_owned(),
        line(3_002, &deep),
        line(3_003, &large),
        "{\"event\":1,\"timestamp\":\"2024-01-02\"}\n".to_owned(),
        line(3_004, ",\"nul\":\"\\u0000\",\"huge\":1e999999,\"lone\":\"\\ud800\""),
        line(3_005, ""),
    ];
    files.write("b.jsonl", bad.concat());
    fs::write(files.path("c.jsonl"), b"{\"event\":\"\xff\"}\n").unwrap();
    let names = ["a.jsonl.gz", "b.jsonl", "c.jsonl"].map(|name| files.path(name));
    let paths: Vec<&Path> = names.iter().map(PathBuf::as_path).collect();
    let output = files.command(&server, "jsonl", &paths).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a.jsonl.gz: after row"), "{said}");
    let read = report(&output);
    let whole = server.count("SELECT count(*) FROM events WHERE properties.n < 3000");
    assert!(whole > 500 && whole < 3_000, "{whole}");
    assert!(said.contains(&format!("after row {whole}")), "{said}: {whole}");
    let kept =
        server.query("SELECT properties.n AS n FROM events WHERE properties.n > 3000 ORDER BY n");
    let kept: Vec<i64> = kept
        .iter()
        .map(|row| {
            row["n"].as_str().map_or_else(|| row["n"].as_i64().unwrap(), |n| n.parse().unwrap())
        })
        .collect();
    let rejects = fs::read_to_string(read["rejects"].as_str().unwrap()).unwrap();
    let rejects: Vec<Reject> =
        rejects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Each row is an event or a reject.
    assert_eq!(kept.len() + rejects.len(), bad.len() + 1, "{kept:?} {rejects:?}");
    let reason = |line: u64| {
        let is_it = |reject: &&Reject| reject.line == line && reject.file.ends_with("b.jsonl");
        let found = rejects.iter().find(is_it);
        found.unwrap_or_else(|| panic!("{line}: {rejects:?}")).reason.clone()
    };
    assert!(kept.contains(&3_001) && kept.contains(&3_005), "{kept:?}");
    assert!(reason(2).contains("no JSON object"));
    assert!(reason(3).contains("nested too deeply"), "{}", reason(3));
    assert!(reason(4).contains("larger than an event may be"), "{}", reason(4));
    assert!(reason(5).contains("distinct_id") || reason(5).contains("event"), "{}", reason(5));
}

/// Goal: an import that is killed continues with the same command, and everything is there once.
#[test]
fn a_killed_import_continues() {
    let (server, files) = (TestServer::start(), Files::new());
    let lines: String = (0..60_000)
        .map(|n| {
            format!(
                "{{\"event\":\"e\",\"distinct_id\":\"d{}\",\"timestamp\":\"2024-01-02T03:04:05Z\",\"properties\":{{\"n\":{n},\"pad\":\"{}\"}}}}\n",
                n % 97,
                "x".repeat(700)
            )
        })
        .collect();
    let file = files.write("a.jsonl", lines);
    for _ in 0..2 {
        let mut running = files.command(&server, "jsonl", &[&file]).spawn().unwrap();
        let before = server.metric("weir_events_accepted_total");
        let moved =
            patiently(|| (server.metric("weir_events_accepted_total") > before).then_some(()));
        // On a fast machine it may be done already.
        let _ = moved;
        let _ = running.kill();
        running.wait().unwrap();
    }
    let read = files.import(&server, "jsonl", &[&file], &[]);
    assert_eq!(read["rejected"], 0);
    assert_eq!(server.count("SELECT count(*) FROM events"), 60_000);
    assert_eq!(server.count("SELECT count(DISTINCT properties.n) FROM events"), 60_000);
}

#[test]
fn a_rehearsal_sends_nothing() {
    let (server, files) = (TestServer::start(), Files::new());
    let file = files.write(
        "a.csv",
        "event,distinct_id,timestamp\nbuy,u,2024-01-02 03:04:05\nbuy,,2024-01-02\n",
    );
    let mut command = Command::new(binary());
    command.arg("import").arg(&file).args(["--from", "csv", "--dry-run"]);
    let said = run(command);
    assert!(said.contains(r#""event":"buy","distinct_id":"u""#), "{said}");
    assert!(said.contains("refused    1: it has no distinct_id"), "{said}");
    assert!(said.contains("2024-01-02T03:04:05.000000Z to 2024-01-02T03:04:05.000000Z"), "{said}");
    assert_eq!(server.count("SELECT count(*) FROM events"), 0);
    let output = files
        .command(&server, "csv", &[&file])
        .env("WEIR_PROJECT_API_KEY", "x")
        .args(["--token", "phc_wrong"])
        .output();
    // The option is given twice.
    assert!(!output.unwrap().status.success());
    let mut wrong = Command::new(binary());
    wrong.arg("import").arg(&file).args([
        "--from",
        "csv",
        "--token",
        "phc_wrong",
        "--url",
        &server.url(),
    ]);
    let output = wrong.arg("--work-dir").arg(files.path("work")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.to_lowercase().contains("key"), "{said}");
}
