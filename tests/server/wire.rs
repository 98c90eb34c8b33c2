//! Wire table: requests to the public endpoints byte for byte, the expected responses, and the
//! expected rows. Expectations come from the API specification and from PostHog's capture, never
//! from the server's own responses.
//!
//! One server takes all cases. Each has a marker of its own in its events; at the end every stored
//! row must belong to a case that expects it.

mod lasting;
mod others;
mod v0;
mod v1;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::thread;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::harness::{Answer, TOKEN, TestServer};

const ORIGIN: &str = "https://shop.example";

/// Largest difference between an expected and a stored time: from the creation of a case to its
/// arrival.
const NEAR_MICROS: i64 = 60_000_000;

/// One request, with the expected response and rows.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    /// Contained in every event of the case.
    marker: String,
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// How often it is sent; each time the response is the same.
    times: usize,
    status: u16,
    told: Told,
    rows: Vec<Value>,
}

/// The expected body of a response.
#[derive(Clone, Debug)]
enum Told {
    /// Exactly this JSON.
    Json(Value),
    /// Exactly this text: the order of members counts.
    Text(String),
    /// The API specification's error, with `attr` null, absent, or named.
    Error(&'static str, &'static str, Option<Value>),
    /// Capture v1's error.
    Refusal(&'static str),
    /// No body.
    Nothing,
}

impl Case {
    /// An accepted POST without stored events, unless changed by other methods.
    fn post(marker: &str, name: &str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.to_owned(),
            marker: marker.to_owned(),
            method: "POST",
            path: path.to_owned(),
            headers: Vec::new(),
            body: body.into(),
            times: 1,
            status: 200,
            told: Told::Json(json!({"status": 1})),
            rows: Vec::new(),
        }
    }

    fn get(marker: &str, name: &str, path: &str) -> Self {
        Self { method: "GET", ..Self::post(marker, name, path, "") }
    }

    /// Sets a header, or replaces it.
    fn with(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// Expects a row with these columns. `properties` may have further members; null means absent.
    /// `near` is a time close to the stored one.
    fn stores(mut self, row: Value) -> Self {
        self.rows.push(row);
        self
    }

    fn told(mut self, status: u16, told: Told) -> Self {
        (self.status, self.told) = (status, told);
        self
    }

    /// Expects `{"type", "code", "detail", "attr": null}`.
    fn invalid(self) -> Self {
        self.told(400, Told::Error("validation_error", "invalid_payload", Some(Value::Null)))
    }

    fn wrong_key(self) -> Self {
        self.told(401, Told::Error("authentication_error", "invalid_api_key", None))
    }

    fn refused(self, status: u16, tag: &'static str) -> Self {
        self.told(status, Told::Refusal(tag))
    }
}

/// Collects cases and creates their markers.
#[derive(Debug)]
struct Table {
    cases: Vec<Case>,
    /// The server's time at the start.
    now: DateTime<Utc>,
}

impl Table {
    fn add(&mut self, case: impl FnOnce(&str) -> Case) {
        let marker = format!("case{:04};", self.cases.len());
        self.cases.push(case(&marker));
    }
}

#[test]
fn the_wire_table() {
    let server = TestServer::start();
    let date = server.send("GET", "/", &[], "").header("date").unwrap().to_owned();
    let now = DateTime::parse_from_rfc2822(&date).unwrap().to_utc();
    let mut table = Table { cases: Vec::new(), now };
    v0::add(&mut table);
    others::add(&mut table);
    v1::add(&mut table);
    assert!(table.cases.len() >= 400, "{} cases", table.cases.len());
    let mut failures = String::new();
    let part = table.cases.len().div_ceil(8);
    let told: Vec<String> = thread::scope(|scope| {
        let server = &server;
        let parts = table.cases.chunks(part);
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().map(|case| send(server, case)).collect()))
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    });
    told.iter().for_each(|failure| failures.push_str(failure));
    check_rows(&server, &table.cases, &mut failures);
    assert!(failures.is_empty(), "{failures}");
}

/// The differences of the response; empty if there are none.
fn send(server: &TestServer, case: &Case) -> String {
    let mut failures = String::new();
    let headers = case.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = headers.chain([("origin", ORIGIN)]).collect();
    for _ in 0..case.times {
        let answer = server.send(case.method, &case.path, &headers, &case.body);
        if let Err(wrong) = check_answer(case, &answer) {
            writeln!(failures, "{}: {wrong}\n    {answer}", case.name).unwrap();
        }
    }
    failures
}

fn check_answer(case: &Case, answer: &Answer) -> Result<(), String> {
    if answer.status != case.status {
        return Err(format!("expected {}", case.status));
    }
    if answer.header("access-control-allow-origin") != Some(ORIGIN) {
        return Err("no CORS".to_owned());
    }
    let date = answer.header("date").unwrap_or_default();
    if DateTime::parse_from_rfc2822(date).is_err() {
        return Err(format!("the date is {date:?}"));
    }
    let retry = matches!(answer.status, 408 | 500 | 503).then_some("1");
    if answer.header("retry-after") != retry {
        return Err("a wrong Retry-After".to_owned());
    }
    let sent_id = case.headers.iter().find(|(name, _)| name == "posthog-request-id");
    let is_v1 = case.path.starts_with("/i/v1/a") && case.method == "POST";
    if is_v1 && answer.header("posthog-request-id") != sent_id.map(|(_, id)| id.as_str()) {
        return Err("the request's id is not repeated".to_owned());
    }
    check_body(&case.told, answer)
}

fn check_body(told: &Told, answer: &Answer) -> Result<(), String> {
    let json = || serde_json::from_slice::<Value>(&answer.body).map_err(|error| error.to_string());
    let right = match told {
        Told::Nothing => answer.body.is_empty(),
        Told::Text(text) => answer.body == text.as_bytes(),
        Told::Json(expected) => json()? == *expected,
        Told::Error(kind, code, attr) => {
            let body = json()?;
            let has_detail = body["detail"].as_str().is_some_and(|detail| !detail.is_empty());
            body["type"] == *kind
                && body["code"] == *code
                && body.get("attr") == attr.as_ref()
                && has_detail
        }
        Told::Refusal(tag) => {
            let body = json()?;
            let members = body.as_object().map(serde_json::Map::len);
            let described = body["error_description"].as_str().is_some_and(|text| !text.is_empty());
            body["error"] == *tag
                && described
                && body["error_uri"].is_string()
                && members == Some(3)
        }
    };
    if right { Ok(()) } else { Err(format!("expected {told:?}")) }
}

/// Compares the stored rows with the expected ones.
fn check_rows(server: &TestServer, cases: &[Case], failures: &mut String) {
    let sql = "SELECT uuid, event, distinct_id, timestamp, received_at, session_id, window_id, \
               elements_chain, ip, properties, \"p_$lib\" AS lib, \
               \"p_$process_person_profile\" AS profile FROM events ORDER BY uuid";
    let mut found: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for mut row in server.query(sql) {
        let text = row.to_string();
        let case = cases.iter().find(|case| text.contains(&case.marker));
        let Some(case) = case else {
            writeln!(failures, "stored, and nobody's: {text}").unwrap();
            continue;
        };
        row["properties"] = serde_json::from_str(row["properties"].as_str().unwrap()).unwrap();
        found.entry(&case.marker).or_default().push(row);
    }
    for case in cases {
        let mut rows = found.remove(case.marker.as_str()).unwrap_or_default();
        for expected in &case.rows {
            match rows.iter().position(|row| fits(expected, row)) {
                Some(position) => drop(rows.swap_remove(position)),
                None => writeln!(
                    failures,
                    "{}: stored is none of\n    {expected}\n    but {rows:?}",
                    case.name
                )
                .unwrap(),
            }
        }
        for row in rows {
            writeln!(failures, "{}: stored besides: {row}", case.name).unwrap();
        }
    }
}

fn fits(expected: &Value, row: &Value) -> bool {
    expected.as_object().unwrap().iter().all(|(column, expected)| match column.as_str() {
        "properties" => {
            let found = &row["properties"];
            expected.as_object().unwrap().iter().all(|(key, value)| match value {
                Value::Null => found.get(key).is_none(),
                _ => found.get(key) == Some(value),
            })
        }
        "near" => {
            let near = |text: &Value| DateTime::parse_from_rfc3339(text.as_str()?).ok();
            let found = timestamp(row);
            let difference = near(expected).unwrap().timestamp_micros() - found.timestamp_micros();
            difference.abs() < NEAR_MICROS
        }
        "timestamp" => {
            timestamp(row) == DateTime::parse_from_rfc3339(expected.as_str().unwrap()).unwrap()
        }
        _ => row.get(column).unwrap_or(&Value::Null) == expected,
    })
}

/// The stored time, which SQL shows with or without a zone.
fn timestamp(row: &Value) -> DateTime<Utc> {
    let text = row["timestamp"].as_str().unwrap();
    let text = if text.ends_with('Z') { text.to_owned() } else { format!("{text}Z") };
    DateTime::parse_from_rfc3339(&text).unwrap().to_utc()
}

/// An event of v0 with its marker, and the members of `more`.
fn event(marker: &str, more: &Value) -> Value {
    let mut event = json!({
        "api_key": TOKEN,
        "event": "wire",
        "distinct_id": marker,
        "properties": {"case": marker},
    });
    for (key, value) in more.as_object().unwrap() {
        match value {
            Value::Null => drop(event.as_object_mut().unwrap().remove(key)),
            _ => event[key] = value.clone(),
        }
    }
    event
}
