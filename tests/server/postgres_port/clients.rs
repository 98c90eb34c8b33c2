//! Real clients of PostgreSQL: each answer equals that of HTTP, cell by cell.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{KEY, TestServer};
use crate::postgres_port::wire::Session;
use crate::postgres_port::{SLOW, send, start};
use crate::sdk::{source, tools};

fn served() -> TestServer {
    let server = start(&[]);
    send(&server, 500);
    server.flush();
    // Some in memory as well.
    assert_eq!(server.capture(&json!([{"event": "late", "distinct_id": "u1"}])).status, 200);
    server
}

fn python(server: &TestServer, client: &str, more: &[&str]) {
    let mut command = Command::new(tools().join("postgres-clients/bin/python"));
    command.arg(source("postgres.py")).args([client, &server.url(), KEY]);
    command.arg(server.postgres().port().to_string()).args(more);
    check(command.output().expect("python"), client);
}

fn check(output: Output, what: &str) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim_end().ends_with("ok"), "{what}: {out}\n{err}");
}

#[test]
fn psycopg_is_answered() {
    python(&served(), "psycopg", &[]);
}

#[test]
fn asyncpg_is_answered() {
    python(&served(), "asyncpg", &[]);
}

#[test]
fn sqlalchemy_learns_the_tables() {
    python(&served(), "sqlalchemy", &[]);
}

#[test]
fn adbc_is_answered() {
    python(&served(), "adbc", &[]);
}

#[test]
fn connectorx_is_answered() {
    python(&served(), "connectorx", &[]);
}

#[test]
fn pgcli_completes_names() {
    python(&served(), "pgcli", &[]);
}

#[test]
fn tools_start() {
    python(&served(), "startup", &[]);
}

#[test]
fn the_client_for_node_is_answered() {
    let server = served();
    let tools = tools();
    let mut command = Command::new(tools.join("nodejs/bin/node"));
    command.arg(source("postgres.mjs")).arg(tools.join("postgres-node/node_modules"));
    command.args([&server.url(), KEY, &server.postgres().port().to_string()]);
    check(command.output().expect("node"), "node");
}

fn psql(server: &TestServer, commands: &str) -> String {
    let mut process = psql_process(server).spawn().expect("psql");
    process.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("written");
    let output = process.wait_with_output().expect("psql");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    // What psql says if it describes none of a kind.
    let is_clean = err.is_empty() || err.starts_with("Did not find any");
    assert!(output.status.success() && is_clean, "{commands}: {err}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn psql_process(server: &TestServer) -> Command {
    let address = server.postgres();
    let mut command = Command::new("psql");
    let port = address.port().to_string();
    command.args([
        "-X",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-h",
        "127.0.0.1",
        "-U",
        "anyone",
        "-d",
        "1",
        "-p",
        &port,
    ]);
    command
        .env("PGPASSWORD", KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn psql_describes_and_copies() {
    let server = served();
    let own = server.query("SELECT event, count(*) AS n FROM events GROUP BY event ORDER BY event");
    let expected: String = own
        .iter()
        .map(|row| format!("{}|{}\n", row["event"].as_str().unwrap(), row["n"]))
        .collect();
    let sql = "SELECT event, count(*) FROM events GROUP BY event ORDER BY event";
    assert_eq!(psql(&server, &format!("{sql};\n")), expected);
    assert_eq!(
        psql(&server, &format!("\\copy ({sql}) TO STDOUT WITH CSV\n")),
        expected.replace('|', ",")
    );
    assert_eq!(
        psql(&server, &format!("PREPARE_NOT\\;{sql};\n").replace("PREPARE_NOT\\;", "")),
        expected
    );
    // \gdesc describes a prepared statement.
    let described = psql(&server, "SELECT uuid, timestamp, properties FROM events \\gdesc\n");
    assert_eq!(described, "uuid|text\ntimestamp|timestamp with time zone\nproperties|json\n");
    let tables = psql(&server, "\\dt+\n");
    assert!(tables.contains("public|events|table|anyone"), "{tables}");
    let events = psql(&server, "\\d events\n");
    for line in [
        "uuid|text||not null|",
        "timestamp|timestamp with time zone||not null|",
        "properties|json||not null|",
    ] {
        assert!(events.contains(line), "{line}: {events}");
    }
    let keys = psql(&server, "\\t off\n\\d events\n");
    assert!(keys.contains("\"events_pkey\" PRIMARY KEY, btree (uuid)"), "{keys}");
    assert!(psql(&server, "\\d+ persons\n").contains("is_identified|boolean"));
    assert!(psql(&server, "\\l\n").starts_with("1|anyone|UTF8"));
    assert!(psql(&server, "\\dn\n").contains("public|"));
    for command in [
        "\\d",
        "\\du",
        "\\df",
        "\\dv",
        "\\di",
        "\\ds",
        "\\dT",
        "\\dx",
        "\\dp",
        "\\db",
        "\\conninfo",
        "\\encoding",
    ] {
        psql(&server, &format!("{command}\n"));
    }
    // Cursors, transactions, settings.
    let fetched = psql(
        &server,
        &format!(
            "\\set FETCH_COUNT 2\n{sql};\nBEGIN;\nSET LOCAL work_mem = '1MB';\nSHOW work_mem;\nROLLBACK;\n"
        ),
    );
    assert_eq!(fetched, format!("{expected}BEGIN\nSET\n1MB\nROLLBACK\n"));
    // Copies, as PostgreSQL would write them.
    let copied = psql(
        &server,
        "COPY (SELECT E'a\\tb\\\\c' AS x, CAST(NULL AS BIGINT) AS y, true AS z) TO STDOUT;\n",
    );
    assert_eq!(copied, "a\\tb\\\\c\t\\N\tt\n");
}

#[test]
fn psql_cancels_with_control_c() {
    let server = served();
    let mut process = psql_process(&server).spawn().expect("psql");
    process
        .stdin
        .take()
        .expect("a pipe")
        .write_all(format!("{SLOW};\n").as_bytes())
        .expect("written");
    thread::sleep(Duration::from_secs(2));
    let id = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("SIGINT");
    let output = process.wait_with_output().expect("psql");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("canceling statement due to user request"), "{err}");
}

#[test]
fn connections_are_encrypted() {
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]);
    command.arg("-keyout").arg(&key).arg("-out").arg(&cert);
    let made = command.output().expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let of = |path: &Path| path.display().to_string();
    let settings = [("WEIR_POSTGRES_TLS_CERT", of(&cert)), ("WEIR_POSTGRES_TLS_KEY", of(&key))];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let server = start(&settings);
    python(&server, "tls", &[&of(&cert)]);
    // Files that do not belong together.
    fs::write(&key, "no key").unwrap();
    let refused = {
        let port = ("WEIR_POSTGRES_LISTEN", "127.0.0.1:0");
        TestServer::stopped(&[&[port], &settings[..]].concat()).try_start().unwrap_err()
    };
    assert!(refused.contains("key.pem"), "{refused}");
}

/// Goal: each panel of the dashboard is answered. Method: its statements, with what Grafana writes for its macros.
#[test]
fn the_dashboard_is_answered() {
    let server = served();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/deploy/grafana-product.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 5);
    let mut session = Session::open(server.postgres(), KEY, "1").unwrap();
    for panel in panels {
        let sql = panel["targets"][0]["rawSql"].as_str().unwrap();
        let times = |column: &str| {
            format!("{column} BETWEEN '2026-01-01T00:00:00Z' AND '2030-01-01T00:00:00Z'")
        };
        let group = |column: &str, seconds: u32| {
            format!("floor(extract(epoch from {column})/{seconds})*{seconds}")
        };
        let mut own = sql.to_owned();
        for column in ["timestamp", "created_at"] {
            own = own.replace(&format!("$__timeFilter({column})"), &times(column));
            own = own.replace(&format!("$__timeGroup({column}, '1d')"), &group(column, 86_400));
            own =
                own.replace(&format!("$__timeGroup({column}, $__interval)"), &group(column, 3600));
        }
        let rows = session.rows(&own).unwrap_or_else(|error| panic!("{own}: {error:?}"));
        let is_of_pages = own.contains("$pathname");
        assert!(is_of_pages || !rows.is_empty() || own.contains("session_id"), "{own}");
    }
}

/// The driver of ODBC that spreadsheets and BI tools use, with its cursors.
#[test]
fn odbc_fetches_with_cursors() {
    let server = served();
    let directory = tempfile::tempdir().unwrap();
    let driver = [
        "/usr/lib/x86_64-linux-gnu/odbc/psqlodbcw.so",
        "/usr/lib/aarch64-linux-gnu/odbc/psqlodbcw.so",
    ];
    let driver =
        driver.iter().map(PathBuf::from).find(|path| path.exists()).expect("odbc-postgresql");
    let port = server.postgres().port();
    let sql = "SELECT uuid, event, distinct_id FROM events ORDER BY uuid";
    let own = server.query(sql);
    let expected: Vec<String> = own
        .iter()
        .map(|row| {
            ["uuid", "event", "distinct_id"]
                .map(|name| row[name].as_str().unwrap().to_owned())
                .join("|")
        })
        .collect();
    for use_cursors in [0, 1] {
        let ini = format!(
            "[weir]\nDriver={}\nServername=127.0.0.1\nPort={port}\nDatabase=1\nUseDeclareFetch={use_cursors}\nFetch=7\nUseServerSidePrepare=1\n",
            driver.display()
        );
        fs::write(directory.path().join("odbc.ini"), ini).unwrap();
        let mut command = Command::new("isql");
        command
            .args(["weir", "anyone", KEY, "-b", "-d|"])
            .env("ODBCINI", directory.path().join("odbc.ini"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("isql");
        process
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{sql}\nhelp\nhelp events\n").as_bytes())
            .unwrap();
        let output = process.wait_with_output().expect("isql");
        let out = String::from_utf8_lossy(&output.stdout);
        let rows: Vec<&str> = out.lines().take(expected.len()).collect();
        assert_eq!(
            rows,
            expected,
            "UseDeclareFetch={use_cursors}: {out}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(out.contains("|public|events|TABLE|") || out.contains("events"), "{out}");
    }
}

/// The driver of Java, through which Metabase, DBeaver and Tableau come. It needs a compiler of Java, which is large:
/// scripts/long.sh installs it, and sets `WEIR_TEST_JDBC` to the path of the driver.
#[test]
fn jdbc_tells_the_tables() {
    let Some(jar) = std::env::var_os("WEIR_TEST_JDBC") else { return };
    let server = served();
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("java");
    command.arg("-cp").arg(&jar).arg("-Djava.io.tmpdir=/tmp").arg(source("Postgres.java"));
    command
        .args([&server.url(), KEY, &server.postgres().port().to_string()])
        .current_dir(directory.path());
    check(command.output().expect("java"), "jdbc");
}
