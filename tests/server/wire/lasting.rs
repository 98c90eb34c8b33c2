//! Wire tests beyond a single request: restarts, overload, counters, encoders of other libraries.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use uuid::Uuid;

use super::v1::headers_of;
use super::{Case, Told, check_answer};
use crate::harness::{Answer, TOKEN, TestServer, patiently};
use crate::sdk::tools;

const V1: &str = "/i/v1/analytics/events";

fn v1_event(distinct_id: &str) -> Value {
    json!({
        "event": "lasting", "uuid": Uuid::new_v4(), "distinct_id": distinct_id,
        "timestamp": "2026-01-01T00:00:00Z", "session_id": "a session", "window_id": "a window",
        "options": {"cookieless_mode": true, "product_tour_id": "tour"},
        "properties": {"$lib": "mine", "plan": "pro", "$set": {"email": "a@shop.example"}},
    })
}

fn v1_case(events: &[Value]) -> Case {
    let body = json!({"created_at": "2026-01-01T00:00:00Z", "batch": events}).to_string();
    headers_of(Case::post("", "", V1, body), "2026-01-01T00:10:00Z")
}

fn ask(server: &TestServer, case: &Case) -> Answer {
    let headers = case.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = headers.chain([("origin", super::ORIGIN)]).collect();
    server.send(case.method, &case.path, &headers, &case.body)
}

/// Goal: the log contains all that the rows of a v1 request need. Method: the rows before and after
/// a crash, after which they are rebuilt from the log; then the same requests again.
#[test]
fn events_of_v1_survive_a_crash_as_they_were() {
    let mut server = TestServer::start();
    let events = ["u1", "guest", "", "u2"].map(v1_event);
    let plain = v1_case(&events);
    let mut packed = v1_case(&["u3", "u4"].map(v1_event)).with("content-encoding", "zstd");
    packed.body = zstd::encode_all(&packed.body[..], 3).unwrap();
    let nameless = v1_case(&["u5"].map(v1_event)).with("posthog-sdk-info", "nonsense");
    let cases = [plain, packed, nameless];
    let told: Vec<Answer> = cases.iter().map(|case| ask(&server, case)).collect();
    assert!(told.iter().all(|answer| answer.status == 200), "{told:?}");
    let results = told[0].json()["results"].clone();
    let details = events.each_ref().map(|event| results[event["uuid"].as_str().unwrap()].clone());
    let expected = [
        json!({"result": "ok"}),
        json!({"result": "ok", "details": "person_processing_disabled"}),
        json!({"result": "drop", "details": "missing_distinct_id"}),
        json!({"result": "ok"}),
    ];
    assert_eq!(details, expected);
    let rows = |server: &TestServer| server.query("SELECT * FROM events ORDER BY uuid");
    let before = rows(&server);
    assert_eq!(before.len(), 6);
    assert_eq!(server.get("/api/projects/1/persons/").json()["count"], 5, "guest is nobody");
    server.kill();
    server.restart();
    assert_eq!(rows(&server), before);
    for (case, told) in cases.iter().zip(&told) {
        assert_eq!(ask(&server, case).body, told.body, "a retry is told the same");
    }
    server.stop();
    assert_eq!(rows(&server), before);
}

/// A full disk is temporary and not the sender's fault, so the request may be retried.
#[test]
fn a_request_of_v1_that_meets_a_full_disk_may_come_again() {
    let server = TestServer::start_unready_with(&[("WEIR_DISK_FREE_MIN_BYTES", "1000TiB")]);
    let case = v1_case(&[v1_event("u1")]);
    let refused = patiently(|| Some(ask(&server, &case)).filter(|answer| answer.status == 503));
    let refused = refused.expect("the disk has less than a petabyte");
    let case = case.refused(503, "service_unavailable");
    assert_eq!(check_answer(&case, &refused), Ok(()), "{refused}");
    // What is wrong for good is told before.
    let wrong = case.with("authorization", "Bearer phc_nobody").refused(401, "invalid_api_token");
    assert_eq!(check_answer(&wrong, &ask(&server, &wrong)), Ok(()));
}

#[test]
fn what_is_thrown_away_is_counted_and_not_stored() {
    let server = TestServer::start();
    let snapshot =
        json!({"event": "$snapshot", "properties": {"token": TOKEN, "distinct_id": "u"}});
    for (path, body) in [
        ("/s/".to_owned(), snapshot.to_string()),
        (format!("/i/v1/logs?token={TOKEN}"), "{}".to_owned()),
        (format!("/i/v1/metrics?token={TOKEN}"), "{}".to_owned()),
        (format!("/i/v1/traces?token={TOKEN}"), "{}".to_owned()),
        (format!("/i/v1/traces?token={TOKEN}"), "{}".to_owned()),
    ] {
        assert_eq!(server.send("POST", &path, &[], body).status, 200, "{path}");
    }
    assert_eq!(server.send("POST", "/i/v1/logs?token=phc_nobody", &[], "{}").status, 401);
    let page = server.send("GET", "/metrics", &[], "");
    let page = String::from_utf8(page.body).unwrap();
    for (kind, count) in [("recordings", 1), ("logs", 1), ("metrics", 1), ("traces", 2)] {
        let line = format!("weir_requests_discarded_total{{kind=\"{kind}\"}} {count}");
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    assert_eq!(server.count("SELECT count(*) FROM events"), 0);
    let large = [snapshot.to_string(), " ".repeat(25 << 20)].concat();
    let too_large = Told::Error("invalid_request", "payload_too_large", Some(Value::Null));
    let case = Case::post("", "", "/s/", large).told(413, too_large);
    let answer = ask(&server, &case);
    assert_eq!(check_answer(&case, &answer), Ok(()), "{answer}");
}

/// Goal: the encoding of the oldest SDKs is decoded. Method: the JavaScript library itself encodes.
#[test]
fn lz_string_of_javascript_is_understood() {
    let tools = tools();
    let modules = tools.join("lz-string/node_modules");
    let server = TestServer::start();
    let texts: Vec<String> = (0..40_u32)
        .map(|number| {
            let unit = ["a", "\u{7f}é", "€\u{ffff}", "😀", "\"\\\n", "日本語", "ab+/="];
            let unit = unit.into_iter().cycle().nth(usize::try_from(number).unwrap()).unwrap();
            format!("{number} {}", unit.repeat(1 << (number % 12)))
        })
        .collect();
    let bodies = texts.iter().map(|text| {
        json!({"api_key": TOKEN, "event": "packed", "distinct_id": "d", "properties": {"text": text}})
    });
    let bodies = Value::Array(bodies.collect()).to_string();
    let program = "const {compressToBase64: pack} = require(process.argv[1] + '/lz-string');\n\
                   let text = '';\n\
                   process.stdin.on('data', data => { text += data; });\n\
                   process.stdin.setEncoding('utf8').on('end', () => {\n\
                     for (const body of JSON.parse(text)) console.log(pack(JSON.stringify(body)));\n\
                   });";
    let mut node = Command::new(tools.join("nodejs/bin/node"))
        .args(["-e", program])
        .arg(modules)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node");
    node.stdin.take().unwrap().write_all(bodies.as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success());
    let packed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(packed.lines().count(), texts.len());
    for (number, line) in packed.lines().enumerate() {
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("data", line), ("compression", "lz64")])
            .finish();
        let answer = match number % 3 {
            0 => server.send("POST", "/e/?compression=lz64", &[], line),
            1 => {
                let headers = [("content-type", "application/x-www-form-urlencoded")];
                server.send("POST", "/capture/", &headers, form)
            }
            _ => server.send("GET", &format!("/track/?{form}"), &[], ""),
        };
        assert_eq!(answer.status, 200, "{number}: {answer}");
    }
    let rows = server.query("SELECT properties FROM events");
    let text_of = |row: &Value| {
        let properties: Value = serde_json::from_str(row["properties"].as_str()?).ok()?;
        Some(properties["text"].as_str()?.to_owned())
    };
    let mut found: Vec<String> = rows.iter().map(|row| text_of(row).unwrap()).collect();
    found.sort();
    let mut expected = texts;
    expected.sort();
    assert_eq!(found, expected);
}
