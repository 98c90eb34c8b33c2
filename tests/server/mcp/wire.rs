//! The protocol itself, without a client between: revisions, batches, headers, keys, limits, and `weir mcp` with lines
//! that no client sends.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ask, call, key_with, post};
use crate::harness::{ANSWER_TIMEOUT, KEY, TestServer, beside, binary};

fn message(id: &Value, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

#[test]
fn clients_of_all_revisions_begin() {
    let server = TestServer::start();
    for (asked, expected) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2030-01-01", "2025-11-25"),
    ] {
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = post(&server, KEY, "/mcp/", &[], &message(&json!(0), "initialize", &params));
        let told = answer.json();
        assert_eq!(told["result"]["protocolVersion"], expected, "{asked}: {told}");
        assert_eq!(
            told["result"]["capabilities"],
            json!({"tools": {}, "resources": {}, "prompts": {}})
        );
        assert_eq!((answer.status, answer.header("mcp-session-id")), (200, None));
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let newest = |method: &str, headers: &[(&str, &str)]| {
        let body = message(&json!("a"), method, &json!({"_meta": meta}));
        let answer = post(&server, KEY, "/mcp", headers, &body);
        (answer.status, answer.json())
    };
    let of =
        |method: &'static str| [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    let (status, told) = newest("server/discover", &of("server/discover"));
    assert_eq!((status, &told["result"]["resultType"]), (200, &json!("complete")), "{told}");
    assert_eq!(told["result"]["supportedVersions"][3], "2026-07-28");
    let (status, told) = newest("tools/list", &of("tools/list"));
    assert_eq!((status, &told["result"]["cacheScope"]), (200, &json!("private")), "{told}");
    for (method, headers, status, code) in [
        ("tools/list", vec![("mcp-protocol-version", "2026-07-28")], 400, -32020),
        ("tools/list", vec![("mcp-method", "tools/list")], 400, -32020),
        ("tools/list", vec![("mcp-protocol-version", "2026-07-29")], 400, -32022),
        ("ping", of("ping").to_vec(), 404, -32601),
        ("initialize", of("initialize").to_vec(), 404, -32601),
    ] {
        let (found, told) = newest(method, &headers);
        assert_eq!(
            (found, &told["error"]["code"]),
            (status, &json!(code)),
            "{method} {headers:?}: {told}"
        );
    }
}

#[test]
fn only_the_first_revision_has_batches() {
    let server = TestServer::start();
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let batch = json!([ping(json!(1)), note, {"id": 2}, ping(json!("x")), {"jsonrpc": "2.0", "id": 3, "method": "initialize"}]);
    let answer = post(&server, KEY, "/mcp", &[], &batch.to_string());
    let told = answer.json();
    let ids: Vec<&Value> = told.as_array().unwrap().iter().map(|own| &own["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2), &json!("x"), &json!(3)], "{told}");
    let codes: Vec<&Value> =
        told.as_array().unwrap().iter().map(|own| &own["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &json!(-32600), &Value::Null, &json!(-32600)], "{told}");
    let many = Value::from(vec![ping(json!(1)); 21]).to_string();
    let (notes, note) = (json!([note, note]).to_string(), note.to_string());
    let none: &[(&str, &str)] = &[];
    let later: &[(&str, &str)] = &[("mcp-protocol-version", "2025-06-18")];
    for (headers, body, status) in [
        (none, many.as_str(), 400),
        (none, "[]", 400),
        (later, "[{}]", 400),
        (none, notes.as_str(), 202),
        (none, note.as_str(), 202),
        (none, "{", 400),
        (none, "\"x\"", 400),
    ] {
        let answer = post(&server, KEY, "/mcp", headers, body);
        assert_eq!(answer.status, status, "{body}: {answer}");
        assert_eq!(answer.body.is_empty(), status == 202, "{body}: {answer}");
    }
}

#[test]
fn keys_decide_who_may_do_what() {
    let server = super::shop();
    let ping = message(&json!(1), "ping", &json!({}));
    for (key, status) in [("phx_wrong", 401), ("", 401), (KEY, 200)] {
        let answer = post(&server, key, "/mcp", &[], &ping);
        assert_eq!(answer.status, status, "{key}: {answer}");
        if status == 401 {
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{answer}");
            assert_eq!(answer.json()["type"], "authentication_error");
        }
    }
    let json_type = [("content-type", "application/json")];
    let path = format!("/mcp?personal_api_key={KEY}");
    assert_eq!(server.send("POST", &path, &json_type, &*ping).status, 200);
    for (origin, status) in
        [("http://localhost:6274", 200), ("http://evil.example", 403), ("null", 403)]
    {
        let answer = post(&server, KEY, "/mcp", &[("origin", origin)], &ping);
        assert_eq!(answer.status, status, "{origin}: {answer}");
    }
    for method in ["GET", "DELETE", "PUT"] {
        let answer = server.send(method, "/mcp", &[("accept", "text/event-stream")], "");
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("POST, OPTIONS")),
            "{method}"
        );
    }
    // A key sees the tools that it may use, and no others.
    let reader = key_with(&server, &json!(["query:read"]), None);
    let listed = ask(&server, &reader, "tools/list", &json!({}));
    let names: Vec<&Value> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|own| &own["name"]).collect();
    assert_eq!(
        names,
        ["sql", "trends", "funnel", "retention", "paths"]
            .map(Value::from)
            .iter()
            .collect::<Vec<_>>()
    );
    for (name, arguments, scope) in [
        ("persons_find", json!({}), "person:read"),
        ("schema", json!({}), "event_definition:read"),
        ("flag_change", json!({"flag": "x", "active": false}), "feature_flag:read"),
        ("health", json!({}), "project:read"),
    ] {
        let (failed, text, _) = call(&server, &reader, name, &arguments);
        assert!(failed && text.contains(scope), "{name}: {text}");
    }
    let resources = ask(&server, &reader, "resources/list", &json!({}));
    assert_eq!(resources["result"]["resources"], json!([]));
    let told =
        ask(&server, &reader, "resources/read", &json!({"uri": "weir://project/1/insights/1"}));
    assert_eq!(told["error"]["data"]["status"], 403, "{told}");
}

#[test]
fn the_project_is_that_of_the_address_or_the_key() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let id = other["id"].as_i64().unwrap();
    let limited = key_with(&server, &json!(["*"]), Some(json!([id])));
    let params = json!({"protocolVersion": "2025-06-18"});
    let begin = message(&json!(1), "initialize", &params);
    for (key, path, expected) in [
        (KEY, "/mcp".to_owned(), Some(1)),
        (KEY, format!("/mcp?project={id}"), Some(id)),
        (KEY, format!("/mcp/{id}"), Some(id)),
        (KEY, "/mcp/@current".to_owned(), Some(1)),
        (limited.as_str(), "/mcp".to_owned(), Some(id)),
        (limited.as_str(), "/mcp/1".to_owned(), None),
        (limited.as_str(), "/mcp?project=1".to_owned(), None),
        (KEY, "/mcp/99".to_owned(), None),
        (KEY, "/mcp?project=x".to_owned(), None),
    ] {
        let answer = post(&server, key, &path, &[], &begin);
        match expected {
            Some(project) => {
                let told = answer.json();
                let text = told["result"]["instructions"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{path}: {told}"));
                assert!(text.contains(&format!("(id {project},")), "{path}: {text}");
            }
            None => assert!(matches!(answer.status, 403 | 404), "{path}: {answer}"),
        }
    }
}

#[test]
fn hostile_messages_cost_little() {
    let server = TestServer::start();
    let deep = format!(
        "{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": {}{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let arguments = |nested: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"trends\",\"arguments\":{nested}}}}}"
        )
    };
    let groups = (0..40)
        .fold("[]".to_owned(), |inner, _| format!("{{\"type\":\"AND\",\"values\":[{inner}]}}"));
    let nested =
        arguments(&format!("{{\"query\":{{\"kind\":\"TrendsQuery\",\"properties\":{groups}}}}}"));
    let many = arguments(&format!("{{\"series\":[{}{{}}]}}", "{},".repeat(20_000)));
    let long =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"ping\"}}", "x".repeat(1 << 20));
    for (body, status) in [(&deep, 400), (&nested, 200), (&many, 200), (&long, 413)] {
        let answer = post(&server, KEY, "/mcp", &[], body);
        assert_eq!(
            answer.status,
            status,
            "{}: {}",
            &body[..80],
            String::from_utf8_lossy(&answer.body[..200.min(answer.body.len())])
        );
    }
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
    assert_eq!(server.send("POST", "/mcp", &headers, "{}").status, 415);
    let method = "m".repeat(10_000);
    for (method, params) in [
        ("tools/call", json!({"name": 7})),
        ("tools/call", json!({"name": "sql", "arguments": []})),
        ("tools/call", json!({"name": "x".repeat(10_000)})),
        ("prompts/get", json!({"name": "weekly_report", "arguments": {"x".repeat(10_000): 1}})),
        ("resources/list", json!({"cursor": "insights:-1"})),
        ("resources/list", json!({"cursor": 7})),
        ("resources/read", json!({"uri": "file:///etc/passwd"})),
        ("resources/read", json!({"uri": "weir://project/1/insights/1/../2"})),
        ("resources/read", json!({})),
        (method.as_str(), json!({})),
    ] {
        let told = ask(&server, KEY, method, &params);
        assert!(told["error"]["code"].is_i64(), "{told}");
        assert!(told.to_string().len() < 1000, "{} bytes", told.to_string().len());
    }
    // Much is cut, and says so.
    let sql = "SELECT repeat('x', 10000) AS text, n FROM generate_series(1, 5000) AS t(n)";
    let (failed, text, _) = call(&server, KEY, "sql", &json!({"query": sql, "limit": 1000}));
    assert!(
        !failed && text.len() < 60_000 && text.contains("of 5000 rows)"),
        "{} {}",
        text.len(),
        &text[..300]
    );
}

#[test]
fn rate_limits_are_those_of_the_api() {
    let server = TestServer::start_with(&[("WEIR_KEY_ANALYTICS_REQUESTS_PER_MINUTE_MAX", "2")]);
    let sql = message(
        &json!(1),
        "tools/call",
        &json!({"name": "sql", "arguments": {"query": "SELECT 1"}}),
    );
    let ping = message(&json!(1), "ping", &json!({}));
    let asked = |body: &str| post(&server, KEY, "/mcp", &[], body);
    assert_eq!([asked(&sql).status, asked(&sql).status], [200, 200]);
    let limited = asked(&sql);
    assert_eq!(limited.status, 429, "{limited}");
    assert!(limited.header("retry-after").is_some());
    assert_eq!(asked(&ping).status, 200);
    let batch = asked(&format!("[{sql}, {ping}]")).json();
    assert_eq!(
        (&batch[0]["error"]["data"]["status"], &batch[1]["result"]),
        (&json!(429), &json!({})),
        "{batch}"
    );
}

/// `weir mcp` with what is written to it; returns the answers, and what it says on standard error.
fn piped(command: &mut Command, input: &str) -> (Vec<Value>, String, bool) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("weir mcp");
    running.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it listens");
    let output = running.wait_with_output().expect("it ends");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect("a message"));
    (lines.collect(), String::from_utf8_lossy(&output.stderr).into_owned(), output.status.success())
}

#[test]
fn lines_that_no_client_sends_are_answered_too() {
    let mut server = TestServer::start();
    let ping = |id: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
    let note = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
    let long = format!("\"{}\"\n", "x".repeat(1 << 20));
    let input = format!("{}{note}not json\n\n{long}7\n{}", ping("1"), ping("\"a\"").trim_end());
    let (answers, stderr, is_well) = piped(&mut server.weir(&["mcp"]), &input);
    assert!(is_well && stderr.is_empty(), "{stderr}");
    let mut codes: Vec<String> =
        answers.iter().map(|own| format!("{} {}", own["id"], own["error"]["code"])).collect();
    codes.sort_unstable();
    assert_eq!(
        codes,
        ["\"a\" null", "1 null", "null -32600", "null -32600", "null -32700"],
        "{answers:?}"
    );
    // Many at once: each is answered.
    let many: String = (0..200).map(|id| ping(&id.to_string())).collect();
    let (answers, _, _) = piped(&mut server.weir(&["mcp"]), &many);
    let mut ids: Vec<u64> = answers.iter().filter_map(|own| own["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..200).collect::<Vec<u64>>());
    // Another key, another server, and none.
    let wrong = ["mcp", "--url", &server.url(), "--key", "phx_wrong"].map(str::to_owned);
    let (answers, _, _) = piped(Command::new(binary()).args(&wrong), &ping("1"));
    assert_eq!(answers[0]["error"]["data"]["status"], 401, "{answers:?}");
    server.stop();
    let (answers, _, is_well) = piped(
        Command::new(binary()).args(["mcp", "--url", &server_of(&wrong), "--key", "x"]),
        &ping("1"),
    );
    assert!(
        is_well && answers[0]["error"]["message"].as_str().unwrap().contains("cannot reach"),
        "{answers:?}"
    );
    let (answers, stderr, is_well) = piped(&mut server.weir(&["mcp"]), &ping("1"));
    assert!(!is_well && answers.is_empty() && stderr.contains("no server runs on"), "{stderr}");
}

fn server_of(arguments: &[String]) -> String {
    arguments[2].clone()
}

/// `weir mcp` as a client has it: a line in, lines out.
struct Program {
    running: Child,
    input: ChildStdin,
    answers: mpsc::Receiver<Value>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut running =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("weir mcp");
        let (input, output) = (running.stdin.take(), running.stdout.take());
        let (input, output) = (input.expect("its input"), output.expect("its output"));
        let (sender, answers) = mpsc::channel();
        beside(move || {
            for line in BufReader::new(output).lines() {
                let told = serde_json::from_str(&line.expect("a line")).expect("a message");
                if sender.send(told).is_err() {
                    return;
                }
            }
        });
        Self { running, input, answers }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    /// The next answer within a time.
    fn answer(&self, limit: Duration) -> Option<Value> {
        self.answers.recv_timeout(limit).ok()
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.running.wait().expect("it ends").success());
    }
}

fn sql(id: u64, query: &str) -> String {
    message(&json!(id), "tools/call", &json!({"name": "sql", "arguments": {"query": query}}))
}

/// Goal: what is cancelled ends on the server, too. Method: a key with one slot has an endless query in it, so that
/// others wait; with its cancellation they are answered.
#[test]
fn what_is_cancelled_ends() {
    let settings = [("WEIR_QUERIES_MAX", "4"), ("WEIR_QUERY_TIMEOUT", "1h")];
    let server = TestServer::start_with(&settings);
    let url = server.url();
    let mut command = Command::new(binary());
    let mut program = Program::start(command.args(["mcp", "--url", &url, "--key", KEY]));
    const ENDLESS: &str = "SELECT count(*) FROM range(1, 1000000000000000)";
    program.say(&sql(1, ENDLESS));
    let mut refused = String::new();
    // Those before the endless one has its slot are answered.
    let waiting = (10..20_000).find(|id| {
        // Another question each time: an answer that is kept needs no slot.
        program.say(&sql(*id, &format!("SELECT {id}")));
        let told = program.answer(Duration::from_millis(500));
        if let Some(told) = told.as_ref().filter(|told| told["id"] == 1) {
            // There was no slot for it in time.
            refused = told.to_string();
            program.say(&sql(1, ENDLESS));
        }
        told.is_none()
    });
    let waiting = waiting.unwrap_or_else(|| panic!("none waits: {refused}"));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    program.say(&cancel.to_string());
    let told = program.answer(ANSWER_TIMEOUT).expect("an answer");
    assert_eq!(
        (&told["id"], &told["result"]["isError"]),
        (&json!(waiting), &json!(false)),
        "{told}"
    );
    program.say(&message(&json!("last"), "ping", &json!({})));
    let told = program.answer(ANSWER_TIMEOUT).expect("an answer");
    assert_eq!(told["id"], "last", "the cancelled one has no answer: {told}");
    program.end();
}

/// A server that has restarted is found again by the same program, with its other secret.
#[test]
fn a_server_may_restart_behind_a_program() {
    let mut server = TestServer::start();
    let mut program = Program::start(&mut server.weir(&["mcp"]));
    for id in 0..3 {
        program.say(&message(&json!(id), "ping", &json!({})));
        let told = program.answer(ANSWER_TIMEOUT).expect("an answer");
        assert_eq!((&told["id"], &told["result"]), (&json!(id), &json!({})), "{told}");
        server.stop();
        server.restart();
    }
    program.end();
}
