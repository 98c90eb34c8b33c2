//! Capture: paths, formats, encodings, errors, odd values, duplicates. Expectations are those of the API
//! specification and of SDKs; the tests compare rows read by SQL, not only statuses.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Answer, TOKEN, TestServer};

const PATHS: [&str; 7] =
    ["/capture", "/e", "/track", "/batch", "/i/v0/e", "/i/v0/ai/batch", "/engage"];

#[derive(Clone, Copy, Debug)]
enum Shape {
    Single,
    Array,
    Batch,
    /// posthog-js: token and distinct id inside the properties.
    Browser,
}

impl Shape {
    const ALL: [Self; 4] = [Self::Single, Self::Array, Self::Batch, Self::Browser];

    /// A body of this format, and the events that SQL should find.
    fn body(self, label: &str) -> (String, Vec<Sent>) {
        let count = match self {
            Self::Single => 1,
            Self::Array | Self::Browser => 2,
            Self::Batch => 3,
        };
        let sent: Vec<Sent> = (0..count).map(|number| Sent::new(label, number)).collect();
        let event = |sent: &Sent| match self {
            Self::Browser => json!({
                "uuid": sent.uuid,
                "event": sent.event,
                "properties": {"token": TOKEN, "distinct_id": sent.distinct_id, "text": sent.text},
            }),
            _ => json!({
                "api_key": TOKEN,
                "uuid": sent.uuid,
                "event": sent.event,
                "distinct_id": sent.distinct_id,
                "properties": {"text": sent.text},
            }),
        };
        let mut events: Vec<Value> = sent.iter().map(event).collect();
        let body = match self {
            Self::Single => events.remove(0),
            Self::Array => Value::Array(events),
            Self::Batch | Self::Browser => {
                json!({"api_key": TOKEN, "batch": events, "sent_at": "2026-01-01T00:00:00Z"})
            }
        };
        (body.to_string(), sent)
    }
}

/// One event as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    uuid: String,
    event: String,
    distinct_id: String,
    /// Long enough to compress, with characters outside ASCII and outside the Basic Multilingual Plane.
    text: String,
}

impl Sent {
    fn new(label: &str, number: usize) -> Self {
        Self {
            uuid: Uuid::new_v4().to_string(),
            event: format!("event {number}"),
            distinct_id: format!("{label} {number}"),
            text: format!("naïve \"quoted\" \\ {} 😀 {label}", "ab+/=&%".repeat(20)),
        }
    }
}

/// An encoded body: query string, headers and bytes.
#[derive(Debug)]
struct Packed {
    query: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
}

type Encoding = (&'static str, fn(&str) -> Packed);

const ENCODINGS: [Encoding; 16] = [
    ("plain", |body| packed("", &[("content-type", "application/json")], body)),
    ("plain, without a type", |body| packed("", &[], body)),
    ("gzip", |body| packed("", &[("content-encoding", "gzip")], gzip(body))),
    ("gzip, nowhere announced", |body| packed("", &[("content-type", "text/plain")], gzip(body))),
    ("gzip, as posthog-js", |body| {
        packed("?compression=gzip-js&ver=1.2&_=1700000000000", &[], gzip(body))
    }),
    ("zlib", |body| {
        packed(
            "",
            &[("content-encoding", "deflate")],
            written(body, |out| ZlibEncoder::new(out, Compression::default())),
        )
    }),
    ("deflate", |body| {
        packed(
            "",
            &[("content-encoding", "deflate")],
            written(body, |out| DeflateEncoder::new(out, Compression::default())),
        )
    }),
    ("zstd", |body| {
        let bytes = zstd::encode_all(body.as_bytes(), 3).unwrap();
        packed("", &[("content-encoding", "zstd")], bytes)
    }),
    ("brotli", |body| {
        let mut bytes = Vec::new();
        let params = brotli::enc::BrotliEncoderParams::default();
        brotli::BrotliCompress(&mut body.as_bytes(), &mut bytes, &params).unwrap();
        packed("", &[("content-encoding", "br")], bytes)
    }),
    ("lz4", |body| {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(body.as_bytes()).unwrap();
        packed("", &[("content-encoding", "lz4")], encoder.finish().unwrap())
    }),
    ("lz64", |body| packed("?compression=lz64", &[], lz_str::compress_to_base64(body))),
    ("base64", |body| packed("?compression=base64", &[], BASE64_STANDARD.encode(body))),
    ("form of base64", |body| {
        let body = form(&[("data", &BASE64_STANDARD.encode(body))]);
        packed("?compression=base64", &[FORM], body)
    }),
    ("form of base64, nowhere announced", |body| {
        packed("", &[FORM], form(&[("data", &BASE64_STANDARD.encode(body))]))
    }),
    ("form of lz64", |body| {
        let data = lz_str::compress_to_base64(body);
        packed("", &[FORM], form(&[("data", &data), ("compression", "lz64")]))
    }),
    ("form of JSON", |body| packed("", &[FORM], form(&[("data", body)]))),
];

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn packed(
    query: &'static str,
    headers: &[(&'static str, &'static str)],
    body: impl Into<Vec<u8>>,
) -> Packed {
    Packed { query, headers: headers.to_vec(), body: body.into() }
}

fn written<W: Write + Finish>(body: &str, encoder: fn(Vec<u8>) -> W) -> Vec<u8> {
    let mut encoder = encoder(Vec::new());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.done()
}

trait Finish {
    fn done(self) -> Vec<u8>;
}

impl Finish for GzEncoder<Vec<u8>> {
    fn done(self) -> Vec<u8> {
        self.finish().unwrap()
    }
}

impl Finish for ZlibEncoder<Vec<u8>> {
    fn done(self) -> Vec<u8> {
        self.finish().unwrap()
    }
}

impl Finish for DeflateEncoder<Vec<u8>> {
    fn done(self) -> Vec<u8> {
        self.finish().unwrap()
    }
}

fn gzip(body: &str) -> Vec<u8> {
    written(body, |out| GzEncoder::new(out, Compression::default()))
}

fn form(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Goal: events arrive in every format and encoding of SDKs. Method: the cross product of paths, formats and
/// encodings, then one check of all rows.
#[test]
fn every_path_shape_and_encoding_arrives() {
    let server = TestServer::start();
    let requests = PATHS
        .iter()
        .flat_map(|path| [(*path).to_owned(), format!("{path}/")])
        .flat_map(|path| Shape::ALL.map(|shape| (path.clone(), shape)))
        .flat_map(|(path, shape)| {
            ENCODINGS
                .map(|(name, pack)| (format!("{path} {shape:?} {name}"), path.clone(), shape, pack))
        });
    let requests: Vec<_> = requests.collect();
    let sent = thread::scope(|scope| {
        let parts = requests.chunks(requests.len().div_ceil(8)).map(|part| {
            let server = &server;
            scope.spawn(move || {
                let mut all = Vec::new();
                for (label, path, shape, pack) in part {
                    let (body, sent) = shape.body(label);
                    let packed = pack(&body);
                    let path = format!("{path}{}", packed.query);
                    let answer = server.send("POST", &path, &packed.headers, packed.body);
                    assert_eq!(
                        (answer.status, answer.json()),
                        (200, json!({"status": 1})),
                        "{label}"
                    );
                    all.extend(sent);
                }
                all
            })
        });
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect::<Vec<Sent>>()
    });
    let mut expected: BTreeMap<String, Sent> =
        sent.into_iter().map(|sent| (sent.uuid.clone(), sent)).collect();
    for row in server.query("SELECT uuid, event, distinct_id, properties FROM events") {
        let stored = Sent {
            uuid: text(&row, "uuid"),
            event: text(&row, "event"),
            distinct_id: text(&row, "distinct_id"),
            text: properties(&row).get("text").and_then(Value::as_str).unwrap().to_owned(),
        };
        assert_eq!(Some(&stored), expected.remove(&stored.uuid).as_ref(), "{row}");
    }
    assert!(expected.is_empty(), "not stored: {expected:?}");
}

fn text(row: &Value, column: &str) -> String {
    row[column].as_str().unwrap_or_else(|| panic!("no {column} in {row}")).to_owned()
}

fn properties(row: &Value) -> Value {
    serde_json::from_str(&text(row, "properties")).unwrap()
}

/// Checks an error response: status, `type`, `code`, presence of `attr`, and CORS.
fn check_error(answer: &Answer, label: &str, expected: (u16, &str, &str), attr: Option<Value>) {
    let body = answer.json();
    let found = (answer.status, body["type"].as_str().unwrap(), body["code"].as_str().unwrap());
    assert_eq!(found, expected, "{label}: {answer}");
    assert_eq!(body.get("attr"), attr.as_ref(), "{label}: {answer}");
    assert!(!body["detail"].as_str().unwrap().is_empty(), "{label}: {answer}");
    assert_eq!(answer.header("access-control-allow-origin"), Some(ORIGIN.1), "{label}");
}

const ORIGIN: (&str, &str) = ("origin", "https://shop.example");

/// The table of errors of the API specification, and that nothing of a refused request is stored.
#[test]
fn refused_requests_say_why_and_store_nothing() {
    let server = TestServer::start();
    let event = |token: &str| json!({"api_key": token, "event": "e", "distinct_id": "d"});
    let key = (401, "authentication_error", "invalid_api_key");
    let payload = (400, "validation_error", "invalid_payload");
    let project = (400, "validation_error", "invalid_project");
    let absent = None;
    let null = Some(Value::Null);
    let project_id = Some(json!("project_id"));
    let mixed = json!([event(TOKEN), event("phc_other")]).to_string();
    for (label, body, expected, attr) in [
        ("wrong key", event("phc_wrong").to_string(), key, &absent),
        ("empty key", event("").to_string(), key, &absent),
        ("no key", json!({"event": "e", "distinct_id": "d"}).to_string(), key, &absent),
        ("a personal key", event(crate::harness::KEY).to_string(), key, &absent),
        (
            "wrong key of a batch",
            json!({"api_key": "x", "batch": [event(TOKEN)]}).to_string(),
            key,
            &absent,
        ),
        ("two projects", mixed, project, &project_id),
        ("no body", String::new(), payload, &null),
        ("no JSON", "hello".to_owned(), payload, &null),
        ("half a JSON", r#"{"api_key": "a", "event""#.to_owned(), payload, &null),
        ("a number", "17".to_owned(), payload, &null),
        ("an empty array", "[]".to_owned(), payload, &null),
        ("an empty batch", json!({"api_key": TOKEN, "batch": []}).to_string(), payload, &null),
        ("nested too deep", format!("{}{}", "[".repeat(5000), "]".repeat(5000)), payload, &null),
    ] {
        for path in ["/capture/", "/batch/", "/e/", "/i/v0/e"] {
            let headers = [ORIGIN, ("content-type", "application/json")];
            let answer = server.send("POST", path, &headers, &body);
            check_error(&answer, &format!("{label}, {path}"), expected, attr.clone());
        }
    }
    let gzip_cut = gzip(&event(TOKEN).to_string());
    let headers = [ORIGIN, ("content-encoding", "gzip")];
    let answer = server.send("POST", "/e/", &headers, &gzip_cut[..gzip_cut.len() - 12]);
    check_error(&answer, "cut gzip", payload, null.clone());
    let answer = server.send(
        "GET",
        "/api/projects/1/persons/",
        &[ORIGIN, ("authorization", "Bearer phx_no")],
        "",
    );
    let personal = (401, "authentication_error", "invalid_personal_api_key");
    check_error(&answer, "wrong personal key", personal, absent);
    assert_eq!(server.count("SELECT count(*) FROM events"), 0);
}

#[test]
fn bodies_beyond_the_limits_are_too_large() {
    let server = TestServer::start();
    let too_large = (413, "invalid_request", "payload_too_large");
    let of_size = |bytes: usize| {
        let head =
            format!(r#"{{"api_key":"{TOKEN}","batch":[{{"event":"e","distinct_id":"d"}}],"pad":""#);
        format!("{head}{}\"}}", "x".repeat(bytes - head.len() - 2))
    };
    let limit = 20 << 20;
    assert_eq!(server.send("POST", "/batch/", &[], of_size(limit)).status, 200);
    let answer = server.send("POST", "/batch/", &[ORIGIN], of_size(limit + 1));
    check_error(&answer, "one byte more as sent", too_large, Some(Value::Null));
    let bomb = gzip(&of_size((100 << 20) + 1));
    let answer = server.send("POST", "/batch/", &[ORIGIN], bomb);
    check_error(&answer, "one byte more inside of gzip", too_large, Some(Value::Null));
    assert_eq!(server.count("SELECT count(*) FROM events"), 1);
}

#[test]
fn methods_and_paths_that_do_not_exist_are_told_with_cors() {
    let server = TestServer::start();
    for path in PATHS {
        for method in ["DELETE", "PUT", "PATCH"] {
            let answer = server.send(method, &format!("{path}/"), &[ORIGIN], "");
            let expected = (405, "invalid_request", "method_not_allowed");
            check_error(&answer, path, expected, Some(Value::Null));
            assert!(answer.header("allow").unwrap().contains("POST"), "{answer}");
        }
        let preflight = [
            ORIGIN,
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type,x-custom"),
        ];
        let answer = server.send("OPTIONS", path, &preflight, "");
        assert_eq!(answer.status, 200);
        for (name, value) in [
            ("access-control-allow-origin", ORIGIN.1),
            ("access-control-allow-methods", "POST"),
            ("access-control-allow-headers", "content-type,x-custom"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
    }
    for path in ["/nowhere", "/capture/more", "/i/v0", "/batch//"] {
        let answer = server.send("POST", path, &[ORIGIN], "{}");
        check_error(&answer, path, (404, "invalid_request", "not_found"), Some(Value::Null));
    }
}

#[test]
fn a_beacon_is_answered_without_a_body() {
    let server = TestServer::start();
    let body = json!({"api_key": TOKEN, "event": "left", "distinct_id": "d"}).to_string();
    let answer = server.send("POST", "/e/?beacon=1", &[ORIGIN], body);
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    assert_eq!(answer.header("access-control-allow-origin"), Some(ORIGIN.1));
    assert_eq!(server.count("SELECT count(*) FROM events WHERE event = 'left'"), 1);
}

/// The API specification, "Silently dropped events": alone and among valid ones.
#[test]
fn events_without_name_or_distinct_id_are_dropped_and_cost_no_other() {
    let server = TestServer::start();
    let bad = [
        json!({"distinct_id": "d"}),
        json!({"event": "", "distinct_id": "d"}),
        json!({"event": null, "distinct_id": "d"}),
        json!({"event": 5, "distinct_id": "d"}),
        json!({"event": "e"}),
        json!({"event": "e", "distinct_id": ""}),
        json!({"event": "e", "distinct_id": "  "}),
        json!({"event": "e", "distinct_id": null}),
        json!({"event": "e", "properties": {"distinct_id": ""}}),
        json!({"event": "e", "distinct_id": "d", "properties": {"large": "x".repeat(1 << 20)}}),
    ];
    for event in &bad {
        let mut alone = event.clone();
        alone["api_key"] = json!(TOKEN);
        let answer = server.send("POST", "/capture/", &[], alone.to_string());
        let short: String = event.to_string().chars().take(100).collect();
        let body = answer.json();
        assert_eq!((answer.status, &body["status"]), (200, &json!(1)), "{short}");
        assert_eq!(body["warnings"][0]["events"], 1, "{short}: {body}");
    }
    assert_eq!(server.count("SELECT count(*) FROM events"), 0);

    let good = |name: &str| json!({"event": name, "distinct_id": "good"});
    let mut events = vec![good("first"), json!(17), json!(null), json!("text"), json!([])];
    let dropped = 4 + bad.len();
    events.extend(bad);
    events.insert(7, good("middle"));
    events.push(good("last"));
    let answer = server.capture(&Value::Array(events));
    let body = answer.json();
    assert_eq!((answer.status, &body["status"]), (200, &json!(1)), "{body}");
    let warnings = body["warnings"].as_array().expect("warnings");
    let told: u64 = warnings.iter().filter_map(|warning| warning["events"].as_u64()).sum();
    assert_eq!(told, dropped as u64, "{body}");
    let names = server.query("SELECT event, distinct_id FROM events ORDER BY event");
    let expected =
        ["first", "last", "middle"].map(|name| json!({"event": name, "distinct_id": "good"}));
    assert_eq!(names, expected);
    let persons = server.get("/api/projects/1/persons/").json();
    assert_eq!(persons["count"], 1, "dropped events make no persons: {persons}");
}

/// Values that are difficult for parsers: the event is stored, and so is its neighbour.
#[test]
fn odd_values_are_stored_as_well_as_they_can_be() {
    let server = TestServer::start();
    let long = "é".repeat(300);
    /// Name of the case, members of the event, and a check of the stored row.
    type Case<'a> = (&'a str, &'a str, fn(&Value) -> bool);
    let cases: &[Case<'_>] = &[
        ("beyond u64", r#""properties":{"v":123456789012345678901234567890}"#, |row| {
            properties(row)["v"].as_f64() == Some(123_456_789_012_345_678_901_234_567_890.0)
        }),
        ("u64", r#""properties":{"v":18446744073709551615}"#, |row| {
            properties(row)["v"] == json!(u64::MAX)
        }),
        ("lone surrogate", r#""properties":{"v":"a\ud800b"}"#, |row| {
            properties(row)["v"] == "a\u{fffd}b"
        }),
        ("pair", r#""properties":{"v":"a\ud83d\ude00b"}"#, |row| properties(row)["v"] == "a😀b"),
        ("not a number", r#""properties":{"v":NaN}"#, |row| properties(row)["v"].is_null()),
        ("NUL", r#""properties":{"v":"a\u0000b"}"#, |row| {
            matches!(properties(row)["v"].as_str(), Some("a\0b" | "a\u{fffd}b"))
        }),
        ("numeric time", r#""timestamp":1700000000"#, |row| {
            text(row, "timestamp").starts_with("2023-11-14T22:13:20")
        }),
        ("numeric time in ms", r#""timestamp":1700000000123"#, |row| {
            text(row, "timestamp").starts_with("2023-11-14T22:13:20.123")
        }),
        ("time", r#""timestamp":"2023-11-14T23:13:20.5+01:00""#, |row| {
            text(row, "timestamp").starts_with("2023-11-14T22:13:20.5")
        }),
        ("no time", r#""timestamp":"soon""#, |row| text(row, "timestamp").as_str() > "2026"),
        ("malformed uuid", r#""uuid":"not a uuid""#, |row| {
            Uuid::try_parse(&text(row, "uuid")).is_ok()
        }),
        ("empty uuid", r#""uuid":"""#, |row| Uuid::try_parse(&text(row, "uuid")).is_ok()),
        ("number for a uuid", r#""uuid":17"#, |row| Uuid::try_parse(&text(row, "uuid")).is_ok()),
        ("shouted uuid", r#""uuid":"0192F0C1-7F3A-7B9E-8A53-1F0E6A9B3C4D""#, |row| {
            text(row, "uuid") == "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d"
        }),
        ("properties are a list", r#""properties":[1,2]"#, |row| properties(row).is_object()),
        ("properties are null", r#""properties":null"#, |row| properties(row).is_object()),
        ("no properties", r#""x":1"#, |row| properties(row).is_object()),
        ("two keys", r#""token":"phc_other""#, |row| text(row, "event") == "odd"),
    ];
    for (name, fields, check) in cases {
        let body = format!(
            r#"{{"api_key":"{TOKEN}","batch":[{{"event":"odd","distinct_id":"{name}",{fields}}},{{"event":"neighbour","distinct_id":"{name}"}}]}}"#
        );
        let answer = server.send("POST", "/batch/", &[], body);
        assert_eq!(answer.status, 200, "{name}: {answer}");
        let sql = format!("SELECT * FROM events WHERE distinct_id = '{name}' ORDER BY event");
        let rows = server.query(&sql);
        assert_eq!(rows.len(), 2, "{name}");
        assert!(check(&rows[1]), "{name}: {}", rows[1]);
    }
    for (given, stored) in [
        (json!(23), "23".to_owned()),
        (json!(23.5), "23.5".to_owned()),
        (json!(true), "true".to_owned()),
        (json!(["a", "b"]), r#"["a","b"]"#.to_owned()),
        (json!(" spaces "), " spaces ".to_owned()),
        (json!(long), "é".repeat(200)),
    ] {
        let name = Uuid::new_v4().to_string();
        server.capture(&json!([{"event": name, "distinct_id": given}]));
        let rows = server.query(&format!("SELECT distinct_id FROM events WHERE event = '{name}'"));
        assert_eq!(rows, [json!({"distinct_id": stored})], "{given}");
    }
}

/// Goal: an event is stored once, however often it is sent and whatever happens to the server in between.
/// Method: the same uuids in every state of a server.
#[test]
fn duplicates_are_stored_once() {
    let mut server = TestServer::start();
    let event = |uuid: &str, number: usize| json!({"uuid": uuid, "event": "once", "distinct_id": "d", "properties": {"number": number}});
    let mut uuids: Vec<String> = Vec::new();
    let mut check = |server: &TestServer, state: &str| {
        uuids.push(Uuid::new_v4().to_string());
        uuids.push(Uuid::new_v4().to_string());
        let events: Vec<Value> = uuids.iter().map(|uuid| event(uuid, 1)).collect();
        let again: Vec<Value> = uuids.iter().map(|uuid| event(&uuid.to_uppercase(), 2)).collect();
        let both: Vec<Value> = events.iter().chain(&again).cloned().collect();
        for batch in [&both, &events, &again] {
            assert_eq!(server.capture(&Value::Array(batch.clone())).status, 200, "{state}");
        }
        let rows = server.query("SELECT uuid, properties FROM events ORDER BY uuid");
        let mut expected = uuids.clone();
        expected.sort();
        let found: Vec<String> = rows.iter().map(|row| text(row, "uuid")).collect();
        assert_eq!(found, expected, "{state}");
        for row in &rows {
            assert_eq!(properties(row)["number"], 1, "the first one stays, {state}: {row}");
        }
    };
    check(&server, "first start");
    check(&server, "retry");
    server.kill();
    server.restart();
    check(&server, "after a crash");
    server.stop();
    assert!(!server.files().is_empty(), "SIGTERM flushes");
    server.restart();
    check(&server, "after a flush");
    server.kill();
    server.restart();
    check(&server, "after a crash after a flush");
    server.stop();
    server.has_no_twins();
}
