//! Capture v0: endpoints, query parameters, content types, tokens, formats, encodings, errors.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::TimeDelta;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Case, Table, Told, event};
use crate::harness::{KEY, TOKEN};

/// Every path of capture v0.
pub(super) const PATHS: [&str; 7] =
    ["/capture", "/e", "/track", "/batch", "/i/v0/e", "/i/v0/ai/batch", "/engage"];

const FORM: &str = "application/x-www-form-urlencoded";

pub(super) fn add(table: &mut Table) {
    endpoints(table);
    data_in_the_query(table);
    query_parameters(table);
    content_types(table);
    tokens(table);
    shapes(table);
    encodings(table);
    fields(table);
}

pub(super) fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn query(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

fn plain(marker: &str) -> String {
    event(marker, &json!({})).to_string()
}

/// The row of [`plain`].
fn row(marker: &str) -> Value {
    json!({"event": "wire", "distinct_id": marker, "properties": {"case": marker}})
}

fn endpoints(table: &mut Table) {
    for path in PATHS.iter().flat_map(|path| [(*path).to_owned(), format!("{path}/")]) {
        table.add(|id| {
            let name = format!("an event to {path}");
            Case::post(id, &name, &path, plain(id)).stores(row(id))
        });
    }
    for path in PATHS {
        table.add(|id| {
            let path = format!("{path}/?{}", query(&[("data", &plain(id))]));
            Case::get(id, &format!("GET {path}"), &path).stores(row(id))
        });
        table.add(|id| Case::get(id, &format!("GET {path} without data"), path).invalid());
        table.add(|id| {
            let body = plain(id).replace(TOKEN, "phc_nobody");
            Case::post(id, &format!("a wrong key to {path}"), path, body).wrong_key()
        });
    }
}

fn data_in_the_query(table: &mut Table) {
    type Pack = fn(&str) -> Vec<(&'static str, String)>;
    let packs: [(&str, Pack); 8] = [
        ("base64", |text| vec![("data", BASE64_STANDARD.encode(text))]),
        ("base64, announced", |text| {
            vec![("compression", "base64".into()), ("data", BASE64_STANDARD.encode(text))]
        }),
        ("lz64", |text| {
            vec![("data", lz_str::compress_to_base64(text)), ("compression", "lz64".into())]
        }),
        ("lz-string", |text| {
            vec![("data", lz_str::compress_to_base64(text)), ("compression", "lz-string".into())]
        }),
        ("base64 of gzip", |text| vec![("data", BASE64_STANDARD.encode(gzip(text)))]),
        ("base64 of gzip, announced", |text| {
            vec![("data", BASE64_STANDARD.encode(gzip(text))), ("compression", "gzip-js".into())]
        }),
        ("JSON among other things", |text| {
            let data = ("data", text.to_owned());
            vec![("ip", "1".into()), ("ver", "1.26.0".into()), data, ("_", "1700000000000".into())]
        }),
        ("JSON under a wrong name of a compression", |text| {
            vec![("data", text.to_owned()), ("compression", "plain".into())]
        }),
    ];
    for (name, pack) in packs {
        for method in ["GET", "POST"] {
            table.add(|id| {
                let fields = pack(&plain(id));
                let fields: Vec<_> = fields.iter().map(|(key, text)| (*key, &**text)).collect();
                let path = format!("/e/?{}", query(&fields));
                let case = Case::get(id, &format!("{method}, data is {name}"), &path);
                Case { method, ..case }.stores(row(id))
            });
        }
    }
    table.add(|id| {
        // A sender that does not escape the plus signs of base64. Five of these make one for sure.
        let data = BASE64_STANDARD.encode(plain(id).replace("wire", ">>>>>"));
        assert!(data.contains('+'));
        Case::get(id, "data is base64 with plus signs", &format!("/e/?data={data}"))
            .stores(json!({"event": ">>>>>", "distinct_id": id}))
    });
    table.add(|id| {
        let path = format!("/batch/?{}", query(&[("data", &plain(id))]));
        Case::post(id, "data wins over the body", &path, plain("other")).stores(row(id))
    });
    table.add(|id| {
        Case::post(id, "an empty data leaves the body", "/e/?data=", plain(id)).stores(row(id))
    });
    for (name, path) in [
        ("empty data", "/e/?data="),
        ("data is no JSON", "/e/?data=hello"),
        ("data is half a JSON", "/capture/?data=%7B%22event%22"),
        ("data is no lz64", "/e/?compression=lz64&data=!!"),
        ("data is no base64", "/e/?compression=base64&data=%21%21"),
    ] {
        table.add(|id| Case::get(id, name, path).invalid());
    }
    table.add(|id| {
        let path = format!("/e/?beacon=1&{}", query(&[("data", &plain(id))]));
        Case::get(id, "a beacon by GET", &path).told(204, Told::Nothing).stores(row(id))
    });
}

fn query_parameters(table: &mut Table) {
    for parameters in [
        "_=abc",
        "_=",
        "_=1.5",
        "_=-1",
        "_=99999999999999999999999",
        "_=1700000",
        "_=0",
        "sent_at=now",
        "ip=1",
        "ip=0&ver=1.26.0",
        "retry_count=3",
        "beacon=0",
        "beacon=true",
        "beacon=",
        "unknown=%FF&also",
        "compression=",
        "compression=none",
        "compression=gzip",
        "compression=gzip-js",
        "compression=lz64",
        "compression=base64",
        "token=phc_ignored",
        "api_key=phc_ignored",
    ] {
        table.add(|id| {
            let path = format!("/e/?{parameters}");
            Case::post(id, &format!("plain JSON with {parameters}"), &path, plain(id))
                .stores(row(id))
        });
    }
    table.add(|id| {
        Case::post(id, "a beacon", "/batch/?beacon=1", plain(id))
            .told(204, Told::Nothing)
            .stores(row(id))
    });
    table.add(|id| {
        let body = plain(id).replace(TOKEN, "phc_nobody");
        Case::post(id, "a beacon with a wrong key", "/e/?beacon=1", body).wrong_key()
    });
    // The sender's clock is an hour ahead, and the event happened an hour before it was sent.
    let ahead = table.now + TimeDelta::hours(1);
    let (now, millis) = (table.now.to_rfc3339(), ahead.timestamp_millis());
    let happened = (table.now - TimeDelta::hours(1)).to_rfc3339();
    for (name, query, expected) in [
        ("`_` is the time of sending", format!("_={millis}"), &happened),
        ("so is `sent_at`", format!("sent_at={millis}"), &happened),
        ("`sent_at` where `_` is no time", format!("_=x&sent_at={millis}"), &happened),
        ("`_` in seconds is no time", format!("_={}", millis / 1000), &now),
        ("`_` is before 2021", "_=1500000000000".to_owned(), &now),
    ] {
        table.add(|id| {
            let body = event(id, &json!({"timestamp": now})).to_string();
            Case::post(id, name, &format!("/e/?{query}"), body)
                .stores(json!({"distinct_id": id, "near": expected}))
        });
    }
    for (name, sent_at) in [("with", Some(ahead.to_rfc3339())), ("without", None)] {
        table.add(|id| {
            let event = event(id, &json!({"timestamp": now, "api_key": null}));
            let mut body = json!({"api_key": TOKEN, "batch": [event]});
            if let Some(sent_at) = &sent_at {
                body["sent_at"] = json!(sent_at);
            }
            let expected = if sent_at.is_some() { &happened } else { &now };
            Case::post(id, &format!("{name} sent_at"), "/batch/", body.to_string())
                .stores(json!({"distinct_id": id, "near": expected}))
        });
    }
    table.add(|id| {
        let more = json!({"timestamp": now, "properties": {"$ignore_sent_at": true, "case": id}});
        let body = json!({"batch": [event(id, &more)], "sent_at": ahead.to_rfc3339()});
        let body = body.to_string().replacen('{', &format!("{{\"token\":\"{TOKEN}\","), 1);
        Case::post(id, "sent_at is to be ignored", "/batch/", body)
            .stores(json!({"distinct_id": id, "near": now}))
    });
}

fn content_types(table: &mut Table) {
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/octet-stream",
        "multipart/form-data",
        "nonsense",
        // curl's default, with JSON all the same.
        FORM,
    ] {
        table.add(|id| {
            Case::post(id, &format!("JSON as {content_type}"), "/capture/", plain(id))
                .with("content-type", content_type)
                .stores(row(id))
        });
    }
    for (content_type, path) in
        [(FORM, "/e/"), ("application/x-www-form-urlencoded; charset=UTF-8", "/batch/")]
    {
        table.add(|id| {
            Case::post(id, "a form", path, query(&[("data", &plain(id)), ("ip", "1")]))
                .with("content-type", content_type)
                .stores(row(id))
        });
        table.add(|id| {
            let data = BASE64_STANDARD.encode(plain(id));
            let body = query(&[("data", &data), ("compression", "base64")]);
            Case::post(id, "a form of base64", path, body)
                .with("content-type", content_type)
                .stores(row(id))
        });
    }
    for (name, body) in [
        ("a form without data", "ip=1&ver=1"),
        ("a form with an empty data", "data="),
        ("a form of something else", "a=b&c=d"),
        ("a form whose data is no JSON", "data=hello"),
    ] {
        table.add(|id| Case::post(id, name, "/e/", body).with("content-type", FORM).invalid());
    }
}

fn tokens(table: &mut Table) {
    let without = |id: &str| event(id, &json!({"api_key": null}));
    for (name, more) in [
        ("api_key", json!({})),
        ("token", json!({"api_key": null, "token": TOKEN})),
        ("$token", json!({"api_key": null, "$token": TOKEN})),
        ("with white space around it", json!({"api_key": format!(" {TOKEN}\n")})),
    ] {
        table.add(|id| {
            let body = event(id, &more).to_string();
            Case::post(id, &format!("the token is {name}"), "/e/", body).stores(row(id))
        });
    }
    table.add(|id| {
        let mut body = without(id);
        body["properties"]["token"] = json!(TOKEN);
        Case::post(id, "the token is in the properties", "/e/", body.to_string()).stores(row(id))
    });
    table.add(|id| {
        let body = json!({"token": TOKEN, "batch": [event(id, &json!({"api_key": "phc_other"}))]});
        let name = "the token of the envelope wins over that of an event";
        Case::post(id, name, "/batch/", body.to_string()).stores(row(id))
    });
    table.add(|id| {
        let body = json!([without(id), event(id, &json!({})), without(id)]).to_string();
        let case = Case::post(id, "one token for three events", "/e/", body);
        case.stores(row(id)).stores(row(id)).stores(row(id))
    });
    table.add(|id| {
        let body = json!([event(id, &json!({})), event(id, &json!({"api_key": "phc_other"}))]);
        let project = Some(json!("project_id"));
        Case::post(id, "two tokens", "/e/", body.to_string())
            .told(400, Told::Error("validation_error", "invalid_project", project))
    });
    for (name, more) in [
        ("no token", json!({"api_key": null})),
        ("an empty token", json!({"api_key": ""})),
        ("a blank token", json!({"api_key": "  "})),
        ("a personal key", json!({"api_key": KEY})),
        ("a number for a token", json!({"api_key": 17})),
        ("a token that is a little different", json!({"api_key": TOKEN.to_uppercase()})),
        ("a long token", json!({"api_key": "x".repeat(5000)})),
        ("a token with NUL", json!({"api_key": format!("{TOKEN}\0")})),
    ] {
        for path in ["/e/", "/batch/"] {
            table.add(|id| {
                let body = event(id, &more).to_string();
                Case::post(id, &format!("{name} to {path}"), path, body).wrong_key()
            });
        }
    }
    table.add(|id| {
        let mut body = without(id);
        body["properties"]["api_key"] = json!(TOKEN);
        let name = "the properties' api_key is no token";
        Case::post(id, name, "/e/", body.to_string()).wrong_key()
    });
    table.add(|id| {
        Case::post(id, "a header is no token", "/e/", without(id).to_string())
            .with("authorization", &format!("Bearer {TOKEN}"))
            .wrong_key()
    });
    table.add(|id| {
        let path = format!("/e/?token={TOKEN}&api_key={TOKEN}");
        let name = "the query has no token";
        Case::post(id, name, &path, without(id).to_string()).wrong_key()
    });
}

fn shapes(table: &mut Table) {
    for (name, body) in [
        ("an empty array", "[]".to_owned()),
        ("an empty batch", json!({"api_key": TOKEN, "batch": []}).to_string()),
        ("a number", "17".to_owned()),
        ("a text", "\"text\"".to_owned()),
        ("null", "null".to_owned()),
        ("a truth", "true".to_owned()),
        ("nothing", String::new()),
        ("white space", " \n ".to_owned()),
        ("two documents", format!("{0}{0}", json!({"api_key": TOKEN}))),
        ("an open object", r#"{"api_key":"#.to_owned()),
        ("a page", "<html></html>".to_owned()),
    ] {
        for path in ["/capture/", "/i/v0/ai/batch/"] {
            table.add(|id| {
                Case::post(id, &format!("{name} to {path}"), path, body.clone()).invalid()
            });
        }
    }
    for batch in [json!(7), json!({"event": "x", "distinct_id": "a"}), json!("[]"), json!(null)] {
        for path in PATHS {
            table.add(|id| {
                let body = json!({"api_key": TOKEN, "batch": batch}).to_string();
                Case::post(id, &format!("a batch that is {batch} to {path}"), path, body).invalid()
            });
        }
    }
    for path in ["/e/", "/batch/", "/capture/"] {
        table.add(|id| {
            let body = json!([event(id, &json!({})), event(id, &json!({}))]).to_string();
            let case = Case::post(id, &format!("an array to {path}"), path, body);
            case.stores(row(id)).stores(row(id))
        });
        table.add(|id| {
            let body = json!({
                "batch": [event(id, &json!({"api_key": null}))],
                "historical_migration": true,
                "api_key": TOKEN,
            });
            Case::post(id, &format!("a batch to {path}"), path, body.to_string()).stores(row(id))
        });
    }
    for path in ["/engage", "/engage/"] {
        table.add(|id| {
            let more = json!({"event": null, "$set": {"plan": "pro"}});
            Case::post(id, "an event without a name to engage", path, event(id, &more).to_string())
                .stores(json!({"event": "$identify", "distinct_id": id}))
        });
    }
    // The API specification, "Silently dropped events".
    let (no_name, no_id) = (
        ("missing_event", "Dropped: an event needs a name, in `event`."),
        ("missing_distinct_id", "Dropped: an event needs a `distinct_id`."),
    );
    let never = ("never_stored", "Dropped: events of this name are not stored.");
    for (name, more, (reason, detail)) in [
        ("no name", json!({"event": null}), no_name),
        ("an empty name", json!({"event": ""}), no_name),
        ("no distinct id", json!({"distinct_id": null}), no_id),
        ("an empty distinct id", json!({"distinct_id": ""}), no_id),
        ("a blank distinct id", json!({"distinct_id": " \t"}), no_id),
        ("an event that is never stored", json!({"event": "$performance_event"}), never),
    ] {
        table.add(|id| {
            let body = json!([event(id, &more), event(id, &json!({}))]).to_string();
            let warning = json!({"reason": reason, "events": 1, "detail": detail});
            let told = json!({"status": 1, "warnings": [warning]});
            let case = Case::post(id, &format!("{name} in an array"), "/e/", body);
            case.told(200, Told::Json(told)).stores(row(id))
        });
    }
}

fn encodings(table: &mut Table) {
    for (name, coding) in [("announced", Some("gzip")), ("not announced", None)] {
        table.add(|id| {
            let case = Case::post(id, &format!("gzip, {name}"), "/batch/", gzip(&plain(id)));
            let case = match coding {
                Some(coding) => case.with("content-encoding", coding),
                None => case.with("content-type", "text/plain"),
            };
            case.stores(row(id))
        });
    }
    table.add(|id| {
        Case::post(id, "identity", "/batch/", plain(id))
            .with("content-encoding", "identity")
            .stores(row(id))
    });
    table.add(|id| {
        let (first, second) = (plain(id), String::new());
        let (one, two) = first.split_at(first.len() / 2);
        let body = [gzip(one), gzip(two), gzip(&second)].concat();
        Case::post(id, "gzip of three members", "/e/", body).stores(row(id))
    });
    let half = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let text = plain("nobody's");
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    for (name, coding, path, body) in [
        ("half of gzip", "gzip", "/e/", half(gzip(&text))),
        ("half of gzip, not announced", "", "/batch/", half(gzip(&text))),
        ("half of zstd", "zstd", "/e/", half(zstd)),
        ("no gzip", "gzip", "/e/", b"hello there".to_vec()),
        ("no deflate", "deflate", "/e/", b"\xFF\xFE\xFD".to_vec()),
        ("no brotli", "br", "/e/", b"\xFF\xFE\xFD".to_vec()),
        ("no lz4", "lz4", "/e/", b"\xFF\xFE\xFD".to_vec()),
        ("an unknown coding", "exotic", "/e/", b"\xFF\xFE\xFD".to_vec()),
        (
            "half of lz64",
            "",
            "/e/?compression=lz64",
            half(lz_str::compress_to_base64(&*text).into()),
        ),
    ] {
        table.add(|id| {
            let case = Case::post(id, name, path, body);
            if coding.is_empty() {
                case.invalid()
            } else {
                case.with("content-encoding", coding).invalid()
            }
        });
    }
}

fn fields(table: &mut Table) {
    let uuid = Uuid::new_v4().to_string();
    for (name, more, expected) in [
        ("a uuid", json!({"uuid": uuid}), json!({"uuid": uuid})),
        (
            "a time with a zone",
            json!({"timestamp": "2025-03-01T12:00:00.25+02:00"}),
            json!({"timestamp": "2025-03-01T10:00:00.25Z"}),
        ),
        (
            "a date",
            json!({"timestamp": "2025-03-01"}),
            json!({"timestamp": "2025-03-01T00:00:00Z"}),
        ),
        (
            "a time of RFC 2822",
            json!({"timestamp": "Sat, 01 Mar 2025 12:00:00 +0000"}),
            json!({"timestamp": "2025-03-01T12:00:00Z"}),
        ),
        ("a time that is none", json!({"timestamp": "soon"}), json!({})),
        ("unknown members", json!({"library": "x", "type": "capture", "ip": "8.8.8.8"}), json!({})),
    ] {
        table.add(|id| {
            Case::post(id, name, "/capture/", event(id, &more).to_string()).stores(expected)
        });
    }
    table.add(|id| {
        let more = json!({"distinct_id": null, "$distinct_id": id});
        Case::post(id, "$distinct_id", "/e/", event(id, &more).to_string()).stores(row(id))
    });
    table.add(|id| {
        let mut body = event(id, &json!({"distinct_id": null}));
        body["properties"]["distinct_id"] = json!(id);
        let name = "the distinct id is in the properties";
        Case::post(id, name, "/e/", body.to_string()).stores(json!({"distinct_id": id}))
    });
    table.add(|id| {
        let mut body = event(id, &json!({}));
        body["properties"]["$session_id"] = json!("session-1");
        body["properties"]["$window_id"] = json!("window-1");
        body["properties"]["$ip"] = json!("198.51.100.7");
        Case::post(id, "session, window, address", "/e/", body.to_string()).stores(json!({
            "session_id": "session-1", "window_id": "window-1", "ip": "198.51.100.7",
        }))
    });
    table.add(|id| {
        Case::post(id, "the forwarded address", "/e/", plain(id))
            .with("x-forwarded-for", "10.0.0.1, 203.0.113.9")
            .stores(json!({"distinct_id": id, "ip": "203.0.113.9"}))
    });
    table.add(|id| {
        let mut case = Case::post(id, "the same request again", "/batch/", {
            event(id, &json!({"uuid": Uuid::new_v4().to_string()})).to_string()
        });
        case.times = 3;
        case.stores(row(id))
    });
}
