//! Capture v1: headers and their order, formats, encodings, results per event, stored events.

use std::io::Write;

use chrono::TimeDelta;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Case, Table, Told};
use crate::harness::{KEY, TOKEN};

const PATH: &str = "/i/v1/analytics/events";

pub(super) fn add(table: &mut Table) {
    endpoints(table);
    headers(table);
    encodings(table);
    shapes(table);
    ids(table);
    drops(table);
    options(table);
    additions(table);
    times(table);
    people(table);
}

/// The headers of posthog-python.
pub(super) fn headers_of(case: Case, sent_at: &str) -> Case {
    case.with("authorization", &format!("Bearer {TOKEN}"))
        .with("posthog-sdk-info", "posthog-python/7.91.1")
        .with("posthog-attempt", "1")
        .with("posthog-request-id", &Uuid::new_v4().to_string())
        .with("posthog-request-timestamp", sent_at)
        .with("content-type", "application/json")
        .with("user-agent", "posthog-python/7.91.1")
}

/// One event with its marker, and the members of `more`; null removes a member.
fn event(marker: &str, more: &Value) -> Value {
    let mut event = json!({
        "event": "wire",
        "uuid": Uuid::new_v4().to_string(),
        "distinct_id": marker,
        "timestamp": "2025-03-01T12:00:00Z",
        "options": {"disable_skew_correction": true},
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

fn batch<'e>(events: impl IntoIterator<Item = &'e Value>) -> String {
    let events: Vec<&Value> = events.into_iter().collect();
    json!({"created_at": "2026-01-01T00:00:00Z", "batch": events}).to_string()
}

fn results(events: &[(&Value, Value)]) -> Told {
    let results = events.iter().map(|(event, verdict)| {
        let uuid = Uuid::try_parse(event["uuid"].as_str().unwrap().trim()).unwrap();
        (uuid.to_string(), verdict.clone())
    });
    Told::Json(json!({"results": results.collect::<serde_json::Map<_, _>>()}))
}

fn ok() -> Value {
    json!({"result": "ok"})
}

fn dropped(details: &str) -> Value {
    json!({"result": "drop", "details": details})
}

fn row(marker: &str) -> Value {
    json!({
        "event": "wire", "distinct_id": marker, "timestamp": "2025-03-01T12:00:00Z",
        "properties": {"case": marker},
    })
}

/// A `sent_at` for requests where time does not matter.
fn sent_at(table: &Table) -> String {
    table.now.to_rfc3339()
}

/// One accepted event, with the row of [`row`] and the columns of `expected`.
fn taken(table: &mut Table, name: &str, more: &Value, expected: &Value) {
    let sent_at = sent_at(table);
    table.add(|id| {
        let event = event(id, more);
        let case = Case::post(id, name, PATH, batch([&event]));
        let mut row = row(id);
        for (key, value) in expected.as_object().unwrap() {
            match value {
                Value::Object(inner) => {
                    inner.iter().for_each(|(name, value)| row[key][name] = value.clone());
                }
                _ => row[key] = value.clone(),
            }
        }
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row)
    });
}

/// One event that is dropped, between two that are accepted.
fn dropped_alone(table: &mut Table, name: &str, more: &Value, details: &str) {
    let sent_at = sent_at(table);
    table.add(|id| {
        let (first, bad) = (event(id, &json!({})), event(id, more));
        let last = event(id, &json!({}));
        let case = Case::post(id, name, PATH, batch([&first, &bad, &last]));
        let told = results(&[(&first, ok()), (&bad, dropped(details)), (&last, ok())]);
        headers_of(case, &sent_at).told(200, told).stores(row(id)).stores(row(id))
    });
}

/// A request with one valid event, changed by `change`, that is refused as a whole.
fn refused(
    table: &mut Table,
    name: &str,
    (status, tag): (u16, &'static str),
    change: impl FnOnce(Case) -> Case,
) {
    let sent_at = sent_at(table);
    table.add(|id| {
        let case = Case::post(id, name, PATH, batch(&[event(id, &json!({}))]));
        change(headers_of(case, &sent_at)).refused(status, tag)
    });
}

fn endpoints(table: &mut Table) {
    let sent_at = sent_at(table);
    for path in [PATH, "/i/v1/analytics/events/", "/i/v1/ai/events", "/i/v1/ai/events/"] {
        table.add(|id| {
            let event = event(id, &json!({}));
            let case = Case::post(id, path, path, batch([&event]));
            headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row(id))
        });
    }
    table.add(|id| {
        let event = event(id, &json!({}));
        let path = format!("{PATH}?compression=lz64&data=%7B%7D&_=1&beacon=1");
        let case = Case::post(id, "the query says nothing", &path, batch([&event]));
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row(id))
    });
    table.add(|id| {
        let events: Vec<Value> = (0..20).map(|_| event(id, &json!({}))).collect();
        let results = events.iter().map(|event| format!("{}:{{\"result\":\"ok\"}}", event["uuid"]));
        let text = format!("{{\"results\":{{{}}}}}", results.collect::<Vec<_>>().join(","));
        let case = Case::post(id, "results are in the order of the events", PATH, batch(&events));
        let case = headers_of(case, &sent_at).told(200, Told::Text(text));
        (0..20).fold(case, |case, _| case.stores(row(id)))
    });
    table.add(|id| {
        let event = event(id, &json!({}));
        let case = Case::post(id, "a retry is ok and stored once", PATH, batch([&event]));
        let case = Case { times: 3, ..headers_of(case, &sent_at) };
        case.told(200, results(&[(&event, ok())])).stores(row(id))
    });
}

fn headers(table: &mut Table) {
    let api_token = (401, "invalid_api_token");
    let missing = (400, "missing_required_headers");
    let value = (400, "invalid_header_value");
    refused(table, "no authorization", api_token, |case| case.without("authorization"));
    refused(table, "no authorization comes first", api_token, |case| {
        case.without("authorization").without("user-agent").with("content-type", "text/plain")
    });
    for name in [
        "posthog-sdk-info",
        "posthog-attempt",
        "posthog-request-id",
        "posthog-request-timestamp",
        "content-type",
        "user-agent",
    ] {
        refused(table, &format!("no {name}"), missing, |case| case.without(name));
    }
    refused(table, "what misses comes before what is wrong", missing, |case| {
        case.without("posthog-attempt").with("content-type", "text/plain")
    });
    for (name, header, text, expected) in [
        ("another scheme", "authorization", "Basic eDp5", value),
        ("no scheme", "authorization", TOKEN, value),
        ("a scheme alone", "authorization", "Bearer", value),
        ("a wrong token", "authorization", "Bearer phc_nobody", api_token),
        ("a personal key", "authorization", &format!("Bearer {KEY}"), api_token),
        ("plain text", "content-type", "text/plain", (415, "unsupported_content_type")),
        (
            "a form",
            "content-type",
            "application/x-www-form-urlencoded",
            (415, "unsupported_content_type"),
        ),
        ("lz4", "content-encoding", "lz4", (415, "unsupported_encoding")),
        ("identity", "content-encoding", "identity", (415, "unsupported_encoding")),
        ("two codings", "content-encoding", "gzip, br", (415, "unsupported_encoding")),
        ("an id that is none", "posthog-request-id", "17", value),
        ("attempt 0", "posthog-attempt", "0", value),
        ("attempt one", "posthog-attempt", "one", value),
        ("attempt -1", "posthog-attempt", "-1", value),
        ("attempt 1.5", "posthog-attempt", "1.5", value),
        ("a date alone", "posthog-request-timestamp", "2026-11-21", value),
        ("milliseconds", "posthog-request-timestamp", "1795248000000", value),
    ] {
        refused(table, name, expected, |case| case.with(header, text));
    }
    let sent_at = sent_at(table);
    for (header, text) in [
        ("authorization", format!("bEARER   {TOKEN}")),
        ("content-type", "application/json; charset=utf-8".to_owned()),
        ("content-type", "APPLICATION/JSON".to_owned()),
        ("posthog-attempt", "4294967295".to_owned()),
        ("posthog-request-timestamp", table.now.to_rfc3339().replace("+00:00", "Z")),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)".to_owned()),
    ] {
        table.add(|id| {
            let event = event(id, &json!({}));
            let case = Case::post(id, &format!("{header}: {text}"), PATH, batch([&event]));
            let case = headers_of(case, &sent_at).with(header, &text);
            case.told(200, results(&[(&event, ok())])).stores(row(id))
        });
    }
}

fn packed<W: Write>(text: &str, mut encoder: W, finish: fn(W) -> Vec<u8>) -> Vec<u8> {
    encoder.write_all(text.as_bytes()).unwrap();
    finish(encoder)
}

fn gzip(text: &str) -> Vec<u8> {
    let encoder = GzEncoder::new(Vec::new(), Compression::best());
    packed(text, encoder, |encoder| encoder.finish().unwrap())
}

fn encodings(table: &mut Table) {
    type Pack = fn(&str) -> Vec<u8>;
    let packs: [(&str, Pack); 5] = [
        ("gzip", gzip),
        ("deflate", |text| {
            let encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            packed(text, encoder, |encoder| encoder.finish().unwrap())
        }),
        ("Deflate", |text| {
            let encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            packed(text, encoder, |encoder| encoder.finish().unwrap())
        }),
        ("br", |text| {
            let mut bytes = Vec::new();
            let params = brotli::enc::BrotliEncoderParams::default();
            brotli::BrotliCompress(&mut text.as_bytes(), &mut bytes, &params).unwrap();
            bytes
        }),
        ("ZSTD", |text| zstd::encode_all(text.as_bytes(), 3).unwrap()),
    ];
    let sent_at = sent_at(table);
    for (coding, pack) in packs {
        table.add(|id| {
            let event = event(id, &json!({"properties": {"case": id, "text": "é 😀".repeat(100)}}));
            let case = Case::post(id, coding, PATH, pack(&batch([&event])));
            let case = headers_of(case, &sent_at).with("content-encoding", coding);
            case.told(200, results(&[(&event, ok())])).stores(row(id))
        });
        refused(table, &format!("half of {coding}"), (400, "request_decoding_error"), |case| {
            let body = pack(&"x1y2z3".repeat(200));
            let body = body[..body.len() / 2].to_vec();
            Case { body, ..case }.with("content-encoding", coding)
        });
        refused(table, &format!("no {coding}"), (400, "request_decoding_error"), |case| {
            Case { body: b"\xFF\xFE this is something else".to_vec(), ..case }
                .with("content-encoding", coding)
        });
    }
    refused(table, "an empty body", (400, "empty_body"), |case| Case { body: Vec::new(), ..case });
    refused(table, "10 MiB and a byte", (413, "payload_too_large"), |case| Case {
        body: vec![b' '; (10 << 20) + 1],
        ..case
    });
    refused(table, "10 MiB of white space", (400, "request_parsing_error"), |case| Case {
        body: vec![b' '; 10 << 20],
        ..case
    });
    refused(table, "50 MiB and a byte in gzip", (413, "payload_too_large"), |case| {
        let bomb = " ".repeat((50 << 20) + 1);
        Case { body: gzip(&bomb), ..case }.with("content-encoding", "gzip")
    });
}

fn shapes(table: &mut Table) {
    let parsing = (400, "request_parsing_error");
    let created = "2026-01-01T00:00:00Z";
    for (name, body, expected) in [
        ("no JSON", "hello".to_owned(), parsing),
        ("half a JSON", "{\"batch\":[".to_owned(), parsing),
        ("an array", "[]".to_owned(), parsing),
        ("a text", "\"a\"".to_owned(), parsing),
        ("no created_at", json!({"batch": []}).to_string(), parsing),
        ("a number for created_at", json!({"created_at": 17, "batch": []}).to_string(), parsing),
        ("no batch", json!({"created_at": created}).to_string(), parsing),
        ("a null batch", json!({"created_at": created, "batch": null}).to_string(), parsing),
        ("a batch of one event", json!({"created_at": created, "batch": {}}).to_string(), parsing),
        (
            "an empty batch",
            json!({"created_at": created, "batch": []}).to_string(),
            (400, "empty_batch"),
        ),
        (
            "an empty batch at no time",
            json!({"created_at": "x", "batch": []}).to_string(),
            (400, "empty_batch"),
        ),
        ("a body of v0", json!({"api_key": TOKEN, "batch": [{"event": "e"}]}).to_string(), parsing),
    ] {
        refused(table, name, expected, |case| Case { body: body.into_bytes(), ..case });
    }
    for (name, expected, members) in [
        ("created_at is no time", (400, "invalid_batch"), json!({"created_at": "yesterday"})),
        ("created_at is a date", (400, "invalid_batch"), json!({"created_at": "2026-01-01"})),
        ("historical_migration is a text", parsing, json!({"historical_migration": "yes"})),
        ("capture_internal is a number", parsing, json!({"capture_internal": 1})),
    ] {
        refused(table, name, expected, |case| {
            let mut body: Value = serde_json::from_slice(&case.body).unwrap();
            members.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
            Case { body: body.to_string().into_bytes(), ..case }
        });
    }
    let sent_at = sent_at(table);
    table.add(|id| {
        let event = event(id, &json!({}));
        let body = json!({
            "batch": [event], "sent_at": 17, "api_key": "phc_ignored", "capture_internal": null,
            "historical_migration": true, "created_at": "2026-01-01T00:00:00.5+01:00",
        });
        let case = Case::post(id, "members around the batch", PATH, body.to_string());
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row(id))
    });
    for (name, more) in [
        ("no event", json!({"event": null})),
        ("no uuid", json!({"uuid": null})),
        ("no distinct id", json!({"distinct_id": null})),
        ("no timestamp", json!({"timestamp": null})),
        ("a number for an event", json!({"event": 17})),
        ("a number for a uuid", json!({"uuid": 17})),
        ("a number for a distinct id", json!({"distinct_id": 17})),
        ("a number for a timestamp", json!({"timestamp": 1_700_000_000})),
        ("a number for a session id", json!({"session_id": 17})),
        ("an object for a window id", json!({"window_id": {}})),
    ] {
        table.add(|id| {
            let body = batch(&[event(id, &json!({})), event(id, &more)]);
            let case = Case::post(id, &format!("{name} costs the request"), PATH, body);
            headers_of(case, &sent_at).refused(400, "request_parsing_error")
        });
    }
    refused(table, "an event that is a text", parsing, |case| Case {
        body: batch(&[json!("event")]).into_bytes(),
        ..case
    });
}

fn ids(table: &mut Table) {
    for (name, uuids, expected) in [
        ("an empty uuid", vec![""], (400, "missing_event_uuid")),
        ("a blank uuid", vec![" \t"], (400, "missing_event_uuid")),
        ("a uuid that is none", vec!["17"], (400, "invalid_event_uuid")),
        (
            "one uuid twice",
            vec!["0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d"; 2],
            (400, "duplicate_event_uuid"),
        ),
        (
            "one uuid twice, in two ways",
            vec!["0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4e", " 0192F0C1-7F3A-7B9E-8A53-1F0E6A9B3C4E"],
            (400, "duplicate_event_uuid"),
        ),
        ("the first that is wrong counts", vec!["x", ""], (400, "invalid_event_uuid")),
    ] {
        refused(table, name, expected, |case| {
            let events: Vec<Value> =
                uuids.iter().map(|uuid| event(&case.marker, &json!({"uuid": uuid}))).collect();
            Case { body: batch(&events).into_bytes(), ..case }
        });
    }
    let uuid = Uuid::new_v4().to_string();
    let shouted = format!(" {}\n", uuid.to_uppercase());
    taken(table, "a uuid is trimmed", &json!({"uuid": shouted}), &json!({"uuid": uuid}));
    let sent_at = sent_at(table);
    table.add(|id| {
        let event = event(id, &json!({"distinct_id": format!("\t {id} ")}));
        let case = Case::post(id, "a distinct id is trimmed", PATH, batch([&event]));
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row(id))
    });
}

fn drops(table: &mut Table) {
    for (name, more, details) in [
        ("an empty name", json!({"event": ""}), "missing_event_name"),
        ("a long name", json!({"event": "n".repeat(201)}), "event_name_too_long"),
        ("a name long in bytes", json!({"event": "é".repeat(101)}), "event_name_too_long"),
        ("an empty distinct id", json!({"distinct_id": ""}), "missing_distinct_id"),
        ("a blank distinct id", json!({"distinct_id": " \n"}), "missing_distinct_id"),
        ("a long distinct id", json!({"distinct_id": "d".repeat(201)}), "distinct_id_too_large"),
        ("no time", json!({"timestamp": "yesterday"}), "invalid_event_timestamp"),
        ("an empty time", json!({"timestamp": ""}), "invalid_event_timestamp"),
        ("a date", json!({"timestamp": "2025-03-01"}), "invalid_event_timestamp"),
        (
            "a time without a zone",
            json!({"timestamp": "2025-03-01T12:00:00"}),
            "invalid_event_timestamp",
        ),
        ("digits for a time", json!({"timestamp": "1700000000"}), "invalid_event_timestamp"),
        ("a list of properties", json!({"properties": [1]}), "malformed_event_properties"),
        ("a text of properties", json!({"properties": "{}"}), "malformed_event_properties"),
        (
            "a performance event",
            json!({"event": "$performance_event"}),
            "dropped_performance_event",
        ),
        ("options are a list", json!({"options": []}), "invalid_options"),
        ("options are a text", json!({"options": "x"}), "invalid_options"),
        ("a flag is maybe", json!({"options": {"cookieless_mode": "maybe"}}), "invalid_options"),
        (
            "a flag is a list",
            json!({"options": {"disable_skew_correction": []}}),
            "invalid_options",
        ),
        (
            "a flag is an object",
            json!({"options": {"process_person_profile": {}}}),
            "invalid_options",
        ),
        ("a tour is a truth", json!({"options": {"product_tour_id": true}}), "invalid_options"),
        ("a tour is a fraction", json!({"options": {"product_tour_id": 1.5}}), "invalid_options"),
        (
            "the first reason counts",
            json!({"event": "", "timestamp": "x", "options": 1}),
            "missing_event_name",
        ),
    ] {
        dropped_alone(table, name, &more, details);
    }
    let sent_at = sent_at(table);
    table.add(|id| {
        // Not by json!, in which null takes a member away.
        let mut event = event(id, &json!({}));
        event["properties"] = Value::Null;
        let told = results(&[(&event, dropped("malformed_event_properties"))]);
        let case = Case::post(id, "null properties, and nothing to store", PATH, batch(&[event]));
        headers_of(case, &sent_at).told(200, told)
    });
    let name = "n".repeat(200);
    taken(table, "a name of 200 bytes", &json!({"event": name}), &json!({"event": name}));
    table.add(|id| {
        let long = format!("{id}{}", "d".repeat(200 - id.len()));
        let event = event(id, &json!({"distinct_id": long}));
        let case = Case::post(id, "a distinct id of 200 bytes", PATH, batch([&event]));
        let mut row = row(id);
        row["distinct_id"] = json!(long);
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row)
    });
}

fn options(table: &mut Table) {
    for (name, given, expected) in [
        ("true", json!(true), json!(true)),
        ("the text true", json!(" TRUE "), json!(true)),
        ("the text 1", json!("1"), json!(true)),
        ("the text 0", json!("0"), json!(false)),
        ("the text False", json!("False"), json!(false)),
        ("the number 2", json!(2), json!(true)),
        ("the number 0.0", json!(0.0), json!(false)),
    ] {
        let options = json!({"disable_skew_correction": true, "cookieless_mode": given});
        let expected =
            json!({"properties": {"$cookieless_mode": expected, "$ignore_sent_at": true}});
        taken(table, &format!("a flag is {name}"), &json!({"options": options}), &expected);
    }
    for (given, expected) in
        [(json!("tour"), "tour"), (json!(17), "17"), (json!(u64::MAX), "18446744073709551615")]
    {
        let options = json!({"disable_skew_correction": 1, "product_tour_id": given, "other": []});
        let expected = json!({"properties": {"$product_tour_id": expected}});
        taken(table, &format!("a tour is {given}"), &json!({"options": options}), &expected);
    }
    let sent_at = sent_at(table);
    table.add(|id| {
        let mut event = event(id, &json!({"timestamp": sent_at}));
        event["options"] = json!({
            "cookieless_mode": null, "disable_skew_correction": null, "product_tour_id": null,
            "process_person_profile": null,
        });
        let case = Case::post(id, "null options are none", PATH, batch([&event]));
        let row = json!({"near": sent_at, "properties": {
            "$cookieless_mode": null, "$ignore_sent_at": null, "$product_tour_id": null,
        }});
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row)
    });
    table.add(|id| {
        let mut event = event(id, &json!({"timestamp": sent_at}));
        event["options"] = Value::Null;
        event["session_id"] = Value::Null;
        let case = Case::post(id, "options are null", PATH, batch([&event]));
        let row = json!({"near": sent_at, "session_id": null});
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row)
    });
}

fn additions(table: &mut Table) {
    let library = json!({"$lib": "posthog-python", "$lib_version": "7.91.1"});
    taken(
        table,
        "the header is the library",
        &json!({}),
        &json!({
            "properties": library, "lib": "posthog-python",
        }),
    );
    let sent_at = sent_at(table);
    let own =
        |id: &str| json!({"case": id, "$lib": "mine", "$lib_version": "0", "last": {"a": [1]}});
    for (info, name, version) in [
        ("posthog-node/5.70.0", "posthog-node", "5.70.0"),
        ("a/b/1", "a/b", "1"),
        // What cannot be understood adds nothing.
        ("nonsense", "mine", "0"),
        ("/1", "mine", "0"),
        ("x/", "mine", "0"),
        (&format!("x/{}", "1".repeat(199)), "mine", "0"),
    ] {
        table.add(|id| {
            let event = event(id, &json!({"properties": own(id)}));
            let case = Case::post(id, &format!("the library {info}"), PATH, batch([&event]));
            let case = headers_of(case, &sent_at).with("posthog-sdk-info", info);
            case.told(200, results(&[(&event, ok())])).stores(json!({
                "lib": name,
                "properties": {"$lib": name, "$lib_version": version, "last": {"a": [1]}},
            }))
        });
    }
    taken(
        table,
        "session and window",
        &json!({"session_id": "session-1", "window_id": "w"}),
        &json!({
            "session_id": "session-1", "window_id": "w",
            "properties": {"$session_id": "session-1", "$window_id": "w"},
        }),
    );
    table.add(|id| {
        let properties = json!({
            "case": id, "$session_id": "old", "$window_id": 17, "$cookieless_mode": "old",
            "$process_person_profile": false, "$product_tour_id": "old", "$ignore_sent_at": false,
        });
        let event = event(id, &json!({
            "properties": properties, "session_id": "a new session", "window_id": "a new \"window\"",
            "options": {
                "cookieless_mode": true, "product_tour_id": "new", "disable_skew_correction": true,
                "process_person_profile": true,
            },
        }));
        let case = Case::post(id, "the envelope wins over properties", PATH, batch([&event]));
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(json!({
            "session_id": "a new session", "window_id": "a new \"window\"",
            "timestamp": "2025-03-01T12:00:00Z",
            "properties": {
                "case": id, "$session_id": "a new session", "$window_id": "a new \"window\"",
                "$cookieless_mode": true, "$product_tour_id": "new", "$ignore_sent_at": true,
            },
        }))
    });
    table.add(|id| {
        let properties = json!({"case": id, "$session_id": "own", "$window_id": "own-2"});
        let event = event(id, &json!({"properties": properties}));
        let case = Case::post(id, "properties stay without", PATH, batch([&event]));
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(json!({
            "session_id": "own", "window_id": "own-2",
            "properties": {"$session_id": "own", "$window_id": "own-2"},
        }))
    });
    table.add(|id| {
        let event = event(id, &json!({"properties": null}));
        let case = Case::post(id, "no properties", PATH, batch([&event]));
        let row = json!({"distinct_id": id, "properties": {"$lib": "posthog-python"}});
        headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row)
    });
    for (name, members, ip) in [
        ("an outside event", json!({}), "203.0.113.9"),
        ("an inside event", json!({"capture_internal": true}), "127.0.0.1"),
    ] {
        table.add(|id| {
            let event = event(id, &json!({}));
            let mut body: Value = serde_json::from_str(&batch([&event])).unwrap();
            members.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
            let case = Case::post(id, name, PATH, body.to_string());
            let case = headers_of(case, &sent_at).with("x-forwarded-for", "203.0.113.9");
            let mut row = row(id);
            row["ip"] = json!(ip);
            case.told(200, results(&[(&event, ok())])).stores(row)
        });
    }
    taken(
        table,
        "top-level $set is no member",
        &json!({"$set": {"a": 1}, "offset": 5, "$distinct_id": "x"}),
        &json!({"properties": {"$set": null}}),
    );
}

/// Rule 3.4 of time: the header shows the error of the sender's clock.
fn times(table: &mut Table) {
    let now = table.now;
    let ahead = (now + TimeDelta::minutes(30)).to_rfc3339();
    let behind = (now - TimeDelta::days(400)).to_rfc3339();
    let text = |delta: TimeDelta| (now + delta).to_rfc3339();
    let zero = TimeDelta::zero();
    for (name, sent_at, happened, options, expected) in [
        (
            "right clocks",
            text(zero),
            text(TimeDelta::hours(-2)),
            json!({}),
            text(TimeDelta::hours(-2)),
        ),
        ("half an hour ahead", ahead.clone(), text(zero), json!({}), text(TimeDelta::minutes(-30))),
        ("a year behind", behind.clone(), behind.clone(), json!({}), text(zero)),
        ("a day ahead of the clock", text(zero), text(TimeDelta::hours(24)), json!({}), text(zero)),
        (
            "22 hours ahead of it",
            text(zero),
            text(TimeDelta::hours(22)),
            json!({}),
            text(TimeDelta::hours(22)),
        ),
        (
            "uncorrected",
            ahead.clone(),
            text(zero),
            json!({"disable_skew_correction": true}),
            text(zero),
        ),
        (
            "uncorrected and in the future",
            ahead.clone(),
            text(TimeDelta::days(40)),
            json!({"disable_skew_correction": "true"}),
            text(TimeDelta::days(40)),
        ),
        (
            "corrected on demand",
            ahead,
            text(zero),
            json!({"disable_skew_correction": false}),
            text(TimeDelta::minutes(-30)),
        ),
    ] {
        table.add(|id| {
            let event = event(id, &json!({"timestamp": happened, "options": options}));
            let case = Case::post(id, &format!("time: {name}"), PATH, batch([&event]));
            let row = json!({"distinct_id": id, "near": expected});
            headers_of(case, &sent_at).told(200, results(&[(&event, ok())])).stores(row)
        });
    }
}

fn people(table: &mut Table) {
    let sent_at = sent_at(table);
    let nobody = json!({"result": "ok", "details": "person_processing_disabled"});
    for distinct_id in [
        "0",
        "00000000-0000-0000-0000-000000000000",
        "[object Object]",
        "Anonymous",
        "anonymous-user",
        "BACKEND",
        "distinct_id",
        "distinctid",
        "email",
        "false",
        "guest",
        "id",
        "NaN",
        "None",
        "not_authenticated",
        " null ",
        "system",
        "true",
        "undefined",
        "user",
    ] {
        for name in ["wire", "$identify"] {
            table.add(|id| {
                let properties = json!({"case": id, "$process_person_profile": true});
                let more =
                    json!({"event": name, "distinct_id": distinct_id, "properties": properties});
                let event = event(id, &more);
                let case =
                    Case::post(id, &format!("{name} of {distinct_id:?}"), PATH, batch([&event]));
                headers_of(case, &sent_at).told(200, results(&[(&event, nobody.clone())])).stores(
                    json!({
                        "event": name, "distinct_id": distinct_id.trim(), "profile": false,
                        "properties": {"case": id, "$process_person_profile": false},
                    }),
                )
            });
        }
    }
    taken(
        table,
        "no profile",
        &json!({"options": {"process_person_profile": "false", "disable_skew_correction": true}}),
        &json!({"profile": false, "properties": {"$process_person_profile": false}}),
    );
    dropped_alone(
        table,
        "an identify without a profile",
        &json!({"event": "$identify", "options": {"process_person_profile": false}}),
        "invalid_event_when_process_person_profile_is_false",
    );
}
