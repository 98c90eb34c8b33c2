//! Long results of SQL: streamed in every format, compared with other engines cell by cell; within memory; with a reader that
//! stops, one that leaves, an error in mid-stream, and changes of the data meanwhile.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer, binary, patiently};
use crate::limits::{FREED_AT_ONCE, peak_mib};
use crate::sdk::tools;
use crate::support::certificates::Certificates;

const QUERY: &str = "/api/projects/1/query/";
const FORMATS: [&str; 4] = ["csv", "jsonl", "parquet", "arrow"];

/// Sends events, each second of which has a width: its number.
fn fill(server: &TestServer, rows: usize, text: &str) {
    let event = |number: usize| {
        let width = number.is_multiple_of(2).then_some(number);
        json!({"event": format!("event {}", number % 3), "distinct_id": format!("person, \"{}\"", number % 1000),
            "properties": {"$screen_width": width, "text": text, "n": number}})
    };
    for from in (0..rows).step_by(10_000) {
        let events: Vec<Value> = (from..(from + 10_000).min(rows)).map(event).collect();
        // While files are written there may be no room for more.
        let taken = patiently(|| match server.capture(&json!(events)).status {
            503 => None,
            status => Some(status),
        });
        assert_eq!(taken, Some(200));
    }
}

/// Runs a script of `tests/oracle` in one of the environments of tools; it says what differs.
fn run(environment: &str, script: &str, arguments: &[&str]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/");
    let mut command = Command::new(tools().join(environment).join("bin/python"));
    command.arg(format!("{path}{script}")).args(arguments);
    let output = command.output().expect("Python");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said}\n{errors}");
}

/// An answer that is read piece by piece, or not at all.
struct Slow(TcpStream);

impl Slow {
    /// Asks for a file, and waits for the first bytes of its body.
    fn ask(server: &TestServer, sql: &str, format: &str) -> Self {
        let mut socket = TcpStream::connect(server.client().address()).expect("a connection");
        let body = json!({"query": sql, "format": format}).to_string();
        let length = body.len();
        let head = format!(
            "POST {QUERY} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        socket.write_all(head.as_bytes()).expect("a request");
        let mut begin = [0; 12];
        socket.read_exact(&mut begin).expect("a status");
        assert_eq!(&begin, b"HTTP/1.1 200");
        Self(socket)
    }

    /// The rest of the body, and whether it is complete.
    fn rest(mut self) -> (Vec<u8>, bool) {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        let head = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(0, |at| at + 4);
        let (mut body, mut left) = (Vec::new(), &rest[head..]);
        while let Some(end) = left.windows(2).position(|bytes| bytes == b"\r\n") {
            let size = std::str::from_utf8(&left[..end]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
            match (size, left.get(end + 2..)) {
                (Some(0), Some(b"\r\n")) => return (body, true),
                (Some(size), Some(chunk)) if size > 0 && chunk.len() >= size + 2 => {
                    body.extend_from_slice(&chunk[..size]);
                    left = &chunk[size + 2..];
                }
                _ => break,
            }
        }
        (body, false)
    }
}

/// Goal: no cell of a long result is lost or changed in any format. Method: 300,000 rows beside what DuckDB reads from the
/// files of the table.
#[test]
fn long_results_have_the_cells_of_the_files() {
    const ROWS: usize = 300_000;
    let server = TestServer::start();
    fill(&server, ROWS, "text, \"quoted\",\nand more");
    server.flush();
    let files = server.files();
    let files = files.iter().map(|file| file.to_str().expect("UTF-8"));
    let (url, rows) = (server.url(), ROWS.to_string());
    let arguments: Vec<&str> = [&*url, KEY, &*rows].into_iter().chain(files).collect();
    run("readers", "streams.py", &arguments);
    // The JSON of the API keeps its limit, and says which one that is.
    let sql = "SELECT uuid FROM events";
    let node = json!({"query": {"kind": "HogQLQuery", "query": sql}});
    for body in [json!({"query": sql}), json!({"query": sql, "format": "table"}), node] {
        let answer = server.post(QUERY, &body);
        assert_eq!(answer.status, 400, "{answer}");
        let detail = answer.json()["detail"].as_str().expect("a text").to_owned();
        assert!(detail.contains("50000 rows") && detail.contains("query-rows-max"), "{detail}");
    }
    commands_print_all_rows(server, ROWS);
}

/// `weir query` prints them as well, with and without the server, and a table says that it is cut.
fn commands_print_all_rows(mut server: TestServer, rows: usize) {
    let query = |server: &TestServer, format: &str| {
        let sql = "SELECT properties.n AS n FROM events";
        let printed = server.weir(&["query", "--format", format, sql]).output().expect("weir");
        let stderr = String::from_utf8_lossy(&printed.stderr).into_owned();
        assert!(printed.status.success(), "{stderr}");
        let lines = printed.stdout.iter().filter(|byte| **byte == b'\n').count();
        (lines, stderr)
    };
    for is_running in [true, false] {
        if !is_running {
            server.stop();
        }
        assert_eq!(query(&server, "csv"), (rows + 1, String::new()));
        assert_eq!(query(&server, "json"), (rows, String::new()));
        let (lines, stderr) = query(&server, "table");
        assert_eq!(lines, 50_000 + 4);
        assert!(stderr.contains("these are the first 50000 rows"), "{stderr}");
        let sql = "SELECT properties.n AS n FROM events";
        let mut process = server.weir(&["query", "--format", "csv", sql]);
        let process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut process = process.expect("weir");
        let mut begin = [0; 2];
        process.stdout.take().expect("a pipe").read_exact(&mut begin).expect("a head");
        let ended = process.wait_with_output().expect("an end");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    }
}

/// Goal: programs read SQL from an address. Method: released readers, old ones, with a key in a header and in the address.
#[test]
fn addresses_are_files_for_other_programs() {
    const ROWS: usize = 60_000;
    let server = TestServer::start();
    fill(&server, ROWS, "some text that makes it long");
    run("web-readers", "addresses.py", &[&server.url(), KEY, &ROWS.to_string()]);
}

/// `GET query/` has the rights and the errors of `POST`.
#[test]
fn addresses_are_checked_like_bodies() {
    let server = TestServer::start();
    fill(&server, 10, "");
    let get = |query: &str| server.get(&format!("{QUERY}?{query}"));
    let answer = get("query=SELECT+count(*)+AS+n+FROM+events&format=csv");
    assert_eq!((answer.status, &*answer.body), (200, &b"n\n10\n"[..]), "{answer}");
    assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8"));
    // The next answer may have another one: rows without an order.
    assert_eq!(answer.header("content-length"), None);
    assert_eq!(get("query=SELECT+1+AS+n").body, b"{\"n\":1}\n");
    for (query, attr) in [
        ("", "query"),
        ("query=", "query"),
        ("query=SELECT+1&format=xml", "format"),
        ("query=SELECT+1&format=CSV", "format"),
    ] {
        let answer = get(query);
        assert_eq!(
            (answer.status, &answer.json()["attr"]),
            (400, &json!(attr)),
            "{query}: {answer}"
        );
    }
    for query in [
        "query=DELETE+FROM+events&format=csv",
        "query=SELECT+nothing+FROM+events&format=arrow",
        "query=SELECT+[1]&format=csv",
    ] {
        assert_eq!(get(query).status, 400, "{query}");
    }
    let path = format!("{QUERY}?query=SELECT+1&format=csv");
    assert_eq!(server.send("GET", &path, &[], "").status, 401);
    assert_eq!(server.send("GET", &format!("{path}&personal_api_key={KEY}"), &[], "").status, 200);
    let head = server.send("HEAD", &path, &[("authorization", &format!("Bearer {KEY}"))], "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    // A key without the scope, and one of another organization's project.
    let narrow = json!({"label": "narrow", "scopes": ["person:read"]});
    let narrow = server.post("/api/personal_api_keys/", &narrow).created();
    let narrow = format!("Bearer {}", narrow["value"].as_str().expect("a key"));
    assert_eq!(server.send("GET", &path, &[("authorization", &narrow)], "").status, 403);
    assert_eq!(server.get("/api/projects/99/query/?query=SELECT+1").status, 404);
    // Addresses are bounded.
    let long = |length: usize| get(&format!("query=SELECT+1+--{}", "x".repeat(length))).status;
    assert_eq!(long(60_000), 200);
    assert!([414, 431].contains(&long(100_000)), "{}", long(100_000));
}

/// Goal: memory does not grow with the result. Method: 280 MB of events, in each format, and the peak of the process.
#[test]
fn long_results_take_little_memory() {
    let settings = [FREED_AT_ONCE, ("WEIR_QUERY_MEMORY_MAX_BYTES", "32MiB")];
    let mut server = TestServer::start_with(&settings);
    fill(&server, 300_000, &"lorem ipsum ".repeat(65));
    server.flush();
    // The peak is then without that of the ingest.
    server.stop();
    server.restart();
    let sql = "SELECT * FROM events";
    let length = |format: &str| {
        let (rest, is_complete) = Slow::ask(&server, sql, format).rest();
        assert!(is_complete, "{format}");
        rest.len()
    };
    let small = json!({"query": "SELECT count(*) AS n FROM events", "format": "csv"});
    assert_eq!(server.post(QUERY, &small).body, b"n\n300000\n");
    let before = peak_mib(&server);
    for format in FORMATS {
        let length = length(format);
        assert!(length > 2 << 20, "{format}: {length}");
        let more = peak_mib(&server).saturating_sub(before);
        eprintln!("{format}: {length} bytes, {more} MiB more than before");
        assert!(more < 256, "{format}: {more} MiB");
    }
}

/// Goal: a reader that leaves frees its slot. Method: there is one slot of SQL.
#[test]
fn a_reader_that_leaves_frees_its_slot() {
    let settings =
        [("WEIR_QUERIES_MAX", "2"), ("WEIR_QUERY_TIMEOUT", "5s"), ("WEIR_BODY_TIMEOUT", "1h")];
    let server = TestServer::start_with(&settings);
    fill(&server, 100_000, &"lorem ipsum ".repeat(10));
    let ask = |format: &str| {
        server.post(QUERY, &json!({"query": "SELECT count(*) AS n FROM events", "format": format}))
    };
    for format in ["csv", "jsonl", "arrow"] {
        let slow = Slow::ask(&server, "SELECT * FROM events", format);
        let refused = ask("csv");
        assert_eq!(refused.status, 503, "{refused}");
        drop(slow);
        let answered = patiently(|| Some(ask("csv")).filter(|answer| answer.status == 200));
        assert_eq!(answered.expect("a slot").body, b"n\n100000\n", "{format}");
    }
}

/// Goal: a reader that stops does not hold its slot for ever, and what it has is visibly incomplete.
#[test]
fn a_reader_that_stops_is_cut_off() {
    let settings = |name: &'static str| {
        [("WEIR_QUERIES_MAX", "2"), ("WEIR_QUERY_TIMEOUT", "5s"), (name, "6s")]
    };
    // The client takes nothing; and it takes some, too slowly.
    for (name, is_reading) in [("WEIR_BODY_TIMEOUT", false), ("WEIR_QUERY_STREAM_TIMEOUT", true)] {
        let server = TestServer::start_with(&settings(name));
        fill(&server, 200_000, &"lorem ipsum ".repeat(20));
        let mut slow = Slow::ask(&server, "SELECT * FROM events", "csv");
        let count = json!({"query": "SELECT count(*) AS n FROM events", "format": "csv"});
        let answered = patiently(|| {
            if is_reading {
                slow.0.read_exact(&mut [0; 1000]).expect("it goes on");
            }
            Some(server.post(QUERY, &count)).filter(|answer| answer.status == 200)
        });
        assert_eq!(answered.expect("a slot").body, b"n\n200000\n", "{name}");
        let (_, is_complete) = slow.rest();
        assert!(!is_complete, "{name}");
    }
}

/// Goal: long answers do not take all slots. Method: readers that do not read, as many as are let in.
#[test]
fn long_answers_leave_slots_to_others() {
    let server = TestServer::start();
    fill(&server, 100_000, &"lorem ipsum ".repeat(20));
    let sql = "SELECT * FROM events";
    // Of eight slots, one key has two long answers.
    let _slow = [(); 2].map(|()| Slow::ask(&server, sql, "csv"));
    let refused = server.post(QUERY, &json!({"query": sql, "format": "csv"}));
    assert_eq!(refused.status, 503, "{refused}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let short = server.post(QUERY, &json!({"query": "SELECT 1 AS n", "format": "csv"}));
    assert_eq!(short.body, b"n\n1\n");
}

/// Goal: an error in mid-stream is visible to the client, and in the log. Method: a cast that fails near the end.
#[test]
fn an_error_in_mid_stream_breaks_the_answer_off() {
    let server = TestServer::start();
    let late = |rows: usize| {
        format!(
            "SELECT lpad(CAST(value AS VARCHAR), 32, 'x') AS text, CAST(CASE WHEN value = {} THEN 'wrong' ELSE '1' END AS INT) AS n \
             FROM range(0, {rows})",
            rows - 2
        )
    };
    for format in ["csv", "jsonl", "arrow"] {
        let (rest, is_complete) = Slow::ask(&server, &late(400_000), format).rest();
        assert!(!is_complete && rest.len() > 1 << 20, "{format}: {}", rest.len());
    }
    let logged = patiently(|| {
        let log = server.stderr();
        let lines = log.lines().filter(|line| line.contains("wrong") && line.contains("P/query/"));
        (lines.count() >= 3).then_some(())
    });
    logged.unwrap_or_else(|| panic!("{}", server.stderr()));
    assert_eq!(server.metric("weir_queries_total{outcome=\"invalid\"}"), 3);
    // Before the first byte it is a status.
    for format in FORMATS {
        let answer = server.post(QUERY, &json!({"query": late(1000), "format": format}));
        assert_eq!(answer.status, 400, "{format}: {answer}");
        assert!(answer.json()["detail"].to_string().contains("wrong"), "{format}: {answer}");
    }
    let printed = server.weir(&["query", "--format", "csv", &late(400_000)]).output();
    let printed = printed.expect("weir query");
    let stderr = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(!printed.status.success() && stderr.contains("incomplete"), "{stderr}");
}

/// Goal: a stream is of one moment, whatever is changed, merged and removed meanwhile. Method: events are deleted, their files
/// rewritten and removed while a reader waits.
#[test]
fn a_stream_is_of_the_moment_when_it_began() {
    const ROWS: usize = 60_000;
    let settings = [
        // Longer than a file takes to be written.
        ("WEIR_VACUUM_GRACE", "2s"),
        ("WEIR_DELETION_INTERVAL", "100ms"),
        ("WEIR_COMPACTION_FILES_MIN", "2"),
        ("WEIR_QUERY_THREADS", "1"),
    ];
    let server = TestServer::start_with(&settings);
    for _ in 0..4 {
        fill(&server, ROWS / 4, &"lorem ipsum ".repeat(30));
        server.flush();
    }
    let files = server.files();
    let slow = Slow::ask(&server, "SELECT properties.n AS n, properties FROM events", "csv");
    let persons = server.query("SELECT uuid FROM persons");
    let ids: Vec<&Value> = persons.iter().map(|row| &row["uuid"]).collect();
    let answer = server.post(
        "/api/projects/1/persons/bulk_delete/",
        &json!({"ids": ids, "delete_events": true, "keep_person": true}),
    );
    assert_eq!(answer.status, 202, "{answer}");
    let gone = patiently(|| (server.count("SELECT count(*) FROM events") == 0).then_some(()));
    gone.expect("the events are deleted");
    let replaced = patiently(|| {
        let live = server.files();
        (!files.iter().any(|file| live.contains(file))).then_some(())
    });
    replaced.expect("the files are rewritten");
    // Time for several rounds of the vacuum.
    thread::sleep(Duration::from_secs(4));
    let (rest, is_complete) = slow.rest();
    assert!(is_complete, "{}", server.stderr());
    let lines = rest.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, ROWS + 1);
    let removed = patiently(|| (!files.iter().any(|file| file.exists())).then_some(()));
    removed.expect("they are removed when the stream has ended");
    server.is_undamaged();
}

/// haproxy with TLS in front of a server, with a certificate of an authority that no system knows.
struct Secure {
    process: std::process::Child,
    certificates: Certificates,
    url: String,
}

impl Secure {
    fn start(server: &TestServer) -> Self {
        let certificates = Certificates::new();
        let directory = certificates.directory();
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect(name);
        let both = read("server.crt") + &read("server.key");
        std::fs::write(directory.join("server.pem"), both).expect("a file");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        let configuration = format!(
            "defaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
             frontend tls\n  bind {address} ssl crt {}\n  default_backend weir\n\
             backend weir\n  server weir {}\n",
            directory.join("server.pem").display(),
            server.client().address()
        );
        std::fs::write(directory.join("haproxy.cfg"), configuration).expect("a file");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(directory.join("haproxy.cfg"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("haproxy: scripts/test.sh installs it");
        patiently(|| TcpStream::connect(address).ok()).expect("it listens");
        Self { process, certificates, url: format!("https://{address}") }
    }

    fn file(&self, name: &str) -> String {
        self.certificates.file(name).display().to_string()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Goal: commands speak https, with certificates that they check. Method: `weir load` and `weir query` through a proxy with
/// a certificate of an authority in a file; one of another authority, none, and another name are refused.
#[test]
fn commands_speak_https_and_check_certificates() {
    let server = TestServer::start();
    let secure = Secure::start(&server);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        let output = command.args(arguments).output().expect("weir");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).expect("UTF-8"))
    };
    let (ca, other) = (secure.file("ca.pem"), secure.file("other.pem"));
    let load = ["load", "--token", TOKEN, "--events", "700", "--url"];
    let (is_done, said) = run(&[&load[..], &[&secure.url, "--ca-file", &ca]].concat());
    assert!(is_done, "{said}");
    let query =
        ["query", "--key", KEY, "--format", "csv", "SELECT count(*) AS n FROM events", "--url"];
    let (is_done, said) = run(&[&query[..], &[&secure.url, "--ca-file", &ca]].concat());
    assert_eq!((is_done, &*said), (true, "n\n700\n"));
    let by_name = secure.url.replace("127.0.0.1", "localhost");
    for arguments in [
        [&query[..], &[&secure.url]].concat(),
        [&query[..], &[&secure.url, "--ca-file", &other]].concat(),
        [&query[..], &[&by_name, "--ca-file", &ca]].concat(),
        [&load[..], &[&secure.url]].concat(),
    ] {
        let (is_done, said) = run(&arguments);
        assert!(!is_done && said.contains("certificate"), "{arguments:?}: {said}");
    }
    assert_eq!(server.count("SELECT count(*) FROM events"), 700);
}

/// The number of rows of a file, by the readers of the library.
fn rows_of(body: &[u8], format: &str) -> usize {
    match format {
        "parquet" => {
            let reader = ParquetRecordBatchReader::try_new(Bytes::from(body.to_vec()), 1024);
            reader.expect("Parquet").map(|batch| batch.expect("a batch").num_rows()).sum()
        }
        "arrow" => {
            let reader = StreamReader::try_new(body, None).expect("Arrow");
            reader.map(|batch| batch.expect("a batch").num_rows()).sum()
        }
        "csv" => csv_lines(body) - 1,
        _ => csv_lines(body),
    }
}

fn csv_lines(body: &[u8]) -> usize {
    body.iter().filter(|byte| **byte == b'\n').count()
}

/// Goal: files of lists have all rows. Method: more events and persons than a page of the API may have, as files of the API
/// and of the page.
#[test]
fn files_of_lists_have_all_rows() {
    const ROWS: usize = 12_000;
    let server = TestServer::start();
    let event = |number: usize| {
        json!({"event": "seen", "distinct_id": format!("d{number}"),
            "properties": {"n": number, "$set": {"email": format!("{number}@example.com")}}})
    };
    for from in (0..ROWS).step_by(6000) {
        let events: Vec<Value> = (from..from + 6000).map(event).collect();
        assert_eq!(server.capture(&json!(events)).status, 200);
    }
    let api = "/api/projects/1";
    let page = "/project/1";
    for format in FORMATS {
        for (path, expected) in [
            (format!("{page}/activity/explore?format={format}"), ROWS),
            (format!("{page}/persons?format={format}"), ROWS),
            (format!("{page}/persons?search=11@example&format={format}"), 120),
            (format!("{page}/persons?search=d11&format={format}"), 1),
            (format!("{api}/persons/?format={format}"), ROWS),
            (format!("{api}/persons.{format}?email=17@example.com"), 1),
            (format!("{api}/events/?limit=10&format={format}"), 10),
            (format!("{api}/events/?distinct_id=nobody&format={format}"), 0),
        ] {
            let answer = server.get(&path);
            assert_eq!(answer.status, 200, "{path}: {answer}");
            let rows = match answer.body.is_empty() {
                true => 0,
                false => rows_of(&answer.body, format),
            };
            assert_eq!(rows, expected, "{path}");
        }
        if format != "csv" {
            let all = server.get(&format!("{api}/events/?format={format}"));
            assert_eq!(rows_of(&all.body, format), ROWS, "{format}");
            let first = server.get(&format!("{api}/events/?offset=11990&format={format}"));
            assert_eq!(rows_of(&first.body, format), 10, "{format}");
        }
    }
    let lines = server.get(&format!("{api}/persons/?format=jsonl&email=17@example.com"));
    let person: Value = serde_json::from_slice(&lines.body).expect("one object");
    assert_eq!(
        (&person["name"], &person["distinct_ids"]),
        (&json!("17@example.com"), &json!(["d17"]))
    );
    // Insights are files as well.
    let trend = format!("{api}/insights/trend/?events=%5B%7B%22id%22%3A%22seen%22%7D%5D");
    let typed = server.get(&format!("{trend}&format=arrow"));
    assert_eq!(rows_of(&typed.body, "arrow"), 1, "{typed}");
    let lines = server.get(&format!("{trend}&format=jsonl"));
    let series: Value = serde_json::from_slice(&lines.body).expect("one object");
    assert_eq!(series["series"], "seen");
    assert_eq!(server.get(&format!("{trend}&format=xml")).status, 404);
}
