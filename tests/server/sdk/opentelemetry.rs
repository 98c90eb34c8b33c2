//! Released OpenTelemetry exporters against a real server: spans about AI become events once, before and
//! after a crash. Also requests written by hand: other formats, other keys, invalid bodies.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Answer, TOKEN, TestServer};
use crate::sdk::stored::str_of;
use crate::sdk::{drivers, source, tools};

const PATH: &str = "/i/v0/ai/otel";

const EVENTS: &str = "SELECT event, distinct_id, uuid, timestamp, \"p_$lib\" AS lib, properties \
                      FROM events ORDER BY uuid";

fn rows(server: &TestServer) -> Vec<Value> {
    let mut rows = server.query(EVENTS);
    for row in &mut rows {
        let text = row["properties"].as_str().expect("properties").to_owned();
        row["properties"] = serde_json::from_str(&text).expect("JSON");
    }
    rows
}

#[test]
fn released_exporters_are_understood_and_their_spans_survive_a_crash() {
    let tools = tools();
    let mut server = TestServer::start();
    let mut python = Command::new(tools.join("opentelemetry-python/bin/python"));
    python.arg(source("otel.py")).args([&server.url(), TOKEN]);
    let output = python.output().expect("otel.py starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "otel.py: {}\n{stderr}", output.status);
    let spans = drivers::lines(&output.stdout);
    let found = rows(&server);
    assert_eq!((spans.len(), found.len()), (12, 12), "nothing is stored that is not about AI");
    for span in &spans {
        let (way, name) = (str_of(span, "way"), str_of(span, "name"));
        let is_it = |row: &&Value| row["properties"]["$ai_span_id"] == span["span"];
        let row = found.iter().find(is_it).unwrap_or_else(|| panic!("{way}: no {name}"));
        let properties = &row["properties"];
        let (event, own) = match name {
            "agent" => ("$ai_trace", json!({})),
            "embed" => ("$ai_embedding", json!({})),
            "tool" => {
                ("$ai_span", json!({"$ai_is_error": true, "$ai_error": "ValueError: out of stock"}))
            }
            _ => (
                "$ai_generation",
                json!({
                    "$ai_model": "gpt-5", "$ai_provider": "openai", "$ai_input_tokens": 12,
                    "$ai_output_tokens": 3, "gen_ai.request.temperature": 0.5,
                    "gen_ai.response.finish_reasons": ["stop"],
                    "$ai_input": [{"role": "user", "content": "Hi, Zo\u{eb}"}],
                }),
            ),
        };
        // Only the processor sees the context of a request.
        let is_in_context = way == "processor" && name == "chat gpt-5";
        let user = format!("{way}-{}", if is_in_context { "context" } else { "user" });
        assert_eq!(
            (&row["event"], &row["distinct_id"]),
            (&json!(event), &json!(user)),
            "{way} {name}"
        );
        assert_eq!(row["lib"], "posthog-otel", "{way} {name}");
        for (key, value) in own.as_object().expect("properties") {
            assert_eq!(&properties[key], value, "{way} {name}: {key}");
        }
        for (key, value) in [
            ("$ai_trace_id", &span["trace"]),
            ("$ai_parent_id", &span["parent"]),
            ("$ai_span_name", &span["name"]),
            ("$ai_ingestion_source", &json!("otel")),
            ("$lib_version", &json!("1.2.3")),
            ("service.name", &json!("shop")),
        ] {
            assert_eq!(&properties[key], value, "{way} {name}: {key}");
        }
        assert!(properties["$ai_latency"].as_f64() > Some(0.0), "{way} {name}");
        let noise = ["gen_ai.operation.name", "user.id", "telemetry.sdk.name"];
        assert!(
            noise.iter().all(|key| properties.get(key).is_none()),
            "{way} {name}: {properties}"
        );
    }
    server.kill();
    server.restart();
    assert_eq!(rows(&server), found, "the log has the spans as they were sent");
}

fn export(server: &TestServer, headers: &[(&str, &str)], body: &str) -> Answer {
    server.send("POST", PATH, headers, body)
}

#[test]
fn exports_by_hand_are_answered_as_the_protocol_says() {
    let server = TestServer::start_with(&[("WEIR_EVENT_MAX_BYTES", "10KiB")]);
    let span = |id: &str, text: &str| {
        json!({"traceId": "5b8efff798038103d269b633813fc60c", "spanId": id, "name": "chat",
            "startTimeUnixNano": "1767225600000000000", "endTimeUnixNano": "1767225601000000000",
            "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                {"key": "note", "value": {"stringValue": text}}]})
    };
    let request =
        |spans: Value| json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
    let body = request(json!([span("eee19b7ec3c1b174", "a"), {"spanId": "eee19b7ec3c1b175"}]));
    let json_type = ("content-type", "application/json");
    let bearer = format!("Bearer {TOKEN}");
    // The same export again, by every way to name the project: it is stored once.
    for (path, authorization) in [
        (PATH.to_owned(), Some(bearer.as_str())),
        (format!("{PATH}/"), Some(TOKEN)),
        (format!("{PATH}?token={TOKEN}"), None),
        (format!("{PATH}?api_key={TOKEN}"), None),
        (format!("{PATH}?token=&api_key={TOKEN}"), None),
        (format!("{PATH}?token="), Some(&*bearer)),
    ] {
        let headers: Vec<_> = authorization
            .map(|value| ("authorization", value))
            .into_iter()
            .chain([json_type])
            .collect();
        let answer = server.send("POST", &path, &headers, &body);
        assert_eq!((answer.status, answer.json()), (200, json!({})), "{path}: {answer}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(server.count("SELECT count(*) AS n FROM events"), 1, "{path}");
    }
    let headers = [("authorization", bearer.as_str()), json_type];
    let row = &rows(&server)[0];
    assert_eq!(row["properties"]["$process_person_profile"], false, "a trace is nobody");
    assert_eq!(server.count("SELECT count(*) AS n FROM persons"), 0);
    // What is not taken is told, and costs only itself.
    let long = "x".repeat(20_000);
    let mixed = request(json!([span("eee19b7ec3c1b176", "b"), span("eee19b7ec3c1b177", &long)]));
    let answer = export(&server, &headers, &mixed);
    let told = answer.json();
    assert_eq!(
        (answer.status, &told["partialSuccess"]["rejectedSpans"]),
        (200, &json!("1")),
        "{told}"
    );
    assert_eq!(server.count("SELECT count(*) AS n FROM events"), 2);
    // Nothing about AI is no error; neither form has anything to say then.
    for (media_type, body) in [
        ("application/json", request(json!([]))),
        ("application/x-protobuf", "\u{a}\0".to_owned()),
        ("application/x-protobuf", String::new()),
    ] {
        let headers = [headers[0], ("content-type", media_type)];
        let answer = export(&server, &headers, &body);
        let expected = if media_type == "application/json" { &b"{}"[..] } else { b"" };
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, expected),
            "{media_type}: {answer}"
        );
        assert_eq!(answer.header("content-type"), Some(media_type));
    }
    let protobuf = ("content-type", "application/x-protobuf");
    let gzip = ("content-encoding", "gzip");
    for (name, headers, body) in [
        ("JSON that is none", vec![headers[0], json_type], "{"),
        ("JSON as protobuf", vec![headers[0], protobuf], body.as_str()),
        ("nothing", vec![headers[0], json_type], ""),
        ("another type", vec![headers[0], ("content-type", "text/plain")], body.as_str()),
        ("no type", vec![headers[0]], body.as_str()),
        ("no gzip", vec![headers[0], protobuf, gzip], "\u{a}\u{5}"),
    ] {
        let answer = export(&server, &headers, body);
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["code"]),
            (400, &json!("invalid_payload")),
            "{name}: {told}"
        );
    }
    let large = request(json!([span("eee19b7ec3c1b178", &"x".repeat(5 << 20))]));
    assert_eq!(export(&server, &headers, &large).status, 413);
    for wrong in ["Bearer phc_nobody", "Bearer ", "nobody"] {
        let answer = export(&server, &[("authorization", wrong), json_type], &body);
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (401, &json!("invalid_api_key")),
            "{wrong}"
        );
    }
    assert_eq!(server.count("SELECT count(*) AS n FROM events"), 2);
}
