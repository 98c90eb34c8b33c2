//! The other public endpoints: discarded data, methods, preflights, unknown paths.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::v0::gzip;
use super::{Case, Table, Told, event, v0};
use crate::harness::TOKEN;

const V1: [&str; 2] = ["/i/v1/analytics/events", "/i/v1/ai/events"];
const TELEMETRY: [&str; 3] = ["/i/v1/logs", "/i/v1/metrics", "/i/v1/traces"];

pub(super) fn add(table: &mut Table) {
    recordings(table);
    telemetry(table);
    methods(table);
}

/// Session recordings are validated and discarded; the response tells posthog-js to pause.
fn recordings(table: &mut Table) {
    let snapshot = |id: &str, token: &Value| {
        let properties = json!({
            "distinct_id": id, "token": token, "$session_id": id, "$snapshot_data": [{"type": 2}],
        });
        json!({"event": "$snapshot", "properties": properties})
    };
    let known = |id: &str| snapshot(id, &json!(TOKEN)).to_string();
    let paused = || Told::Json(json!({"status": 1, "quota_limited": ["recordings"]}));
    type Pack<'p> = &'p dyn Fn(&str) -> Case;
    let packs: [(&str, Pack<'_>); 7] = [
        ("one", &|id| Case::post(id, "", "/s/", known(id))),
        ("without a slash", &|id| Case::post(id, "", "/s", known(id))),
        ("many", &|id| Case::post(id, "", "/s/", format!("[{0},{0}]", known(id)))),
        ("as posthog-js sends them", &|id| {
            let path = "/s/?compression=gzip-js&ver=1.449.2&_=1700000000000";
            Case::post(id, "", path, gzip(&known(id))).with("content-type", "text/plain")
        }),
        ("in a form", &|id| {
            let data = BASE64_STANDARD.encode(known(id));
            let body = form_urlencoded::Serializer::new(String::new())
                .extend_pairs([("data", &*data), ("compression", "base64")])
                .finish();
            Case::post(id, "", "/s/?compression=base64", body)
                .with("content-type", "application/x-www-form-urlencoded")
        }),
        ("as iOS sends them", &|id| {
            let mut event = snapshot(id, &Value::Null);
            event["api_key"] = json!(TOKEN);
            Case::post(id, "", "/s/", event.to_string())
        }),
        ("by GET", &|id| {
            let data: String = form_urlencoded::byte_serialize(known(id).as_bytes()).collect();
            Case::get(id, "", &format!("/s/?data={data}"))
        }),
    ];
    for (name, pack) in packs {
        table.add(|id| Case { name: format!("recordings {name}"), ..pack(id).told(200, paused()) });
    }
    table.add(|id| {
        Case::post(id, "recordings by a beacon", "/s/?beacon=1", known(id)).told(204, Told::Nothing)
    });
    for (name, token) in [("a wrong token", json!("phc_nobody")), ("no token", Value::Null)] {
        table.add(|id| {
            let body = snapshot(id, &token).to_string();
            Case::post(id, &format!("recordings with {name}"), "/s/", body).wrong_key()
        });
    }
    for (name, body) in [
        ("that are no JSON", b"hello".to_vec()),
        ("that are nothing", Vec::new()),
        ("that are a number", b"17".to_vec()),
        ("that are cut", gzip("[1,2,3]")[..12].to_vec()),
    ] {
        table.add(|id| Case::post(id, &format!("recordings {name}"), "/s/", body).invalid());
    }
}

/// Logs, metrics and traces are discarded unread.
fn telemetry(table: &mut Table) {
    let taken = || Told::Json(json!({}));
    for path in TELEMETRY {
        for (name, token, bearer) in
            [("the token in the query", TOKEN, ""), ("the token in the header", "", TOKEN)]
        {
            table.add(|id| {
                let body = gzip(r#"{"resourceLogs":[]}"#);
                let path =
                    if token.is_empty() { path.into() } else { format!("{path}?token={token}") };
                let case = Case::post(id, &format!("{path}, {name}"), &path, body)
                    .with("content-encoding", "gzip")
                    .told(200, taken());
                if bearer.is_empty() {
                    case
                } else {
                    case.with("authorization", &format!("bearer {bearer}"))
                }
            });
        }
        table.add(|id| {
            let path = format!("{path}/?token={TOKEN}");
            Case::post(id, &format!("{path} of what is no JSON"), &path, vec![0xFF; 300_000])
                .told(200, taken())
        });
        table.add(|id| {
            let path = format!("{path}?token=phc_nobody");
            Case::post(id, &format!("a wrong token to {path}"), &path, "{}").wrong_key()
        });
        table.add(|id| Case::post(id, &format!("no token to {path}"), path, "{}").wrong_key());
        table.add(|id| {
            Case::post(id, &format!("another scheme to {path}"), path, "{}")
                .with("authorization", &format!("Basic {TOKEN}"))
                .wrong_key()
        });
    }
}

fn methods(table: &mut Table) {
    let not_allowed = || Told::Error("invalid_request", "method_not_allowed", Some(Value::Null));
    let all = v0::PATHS.into_iter().chain(["/s"]).chain(TELEMETRY).chain(V1);
    for path in all.clone() {
        table.add(|id| {
            let case = Case::get(id, &format!("OPTIONS {path}"), path);
            Case { method: "OPTIONS", ..case }.told(200, Told::Json(json!({"status": "Ok"})))
        });
        table.add(|id| {
            let case = Case::get(id, &format!("preflight of {path}/"), &format!("{path}/"))
                .with("access-control-request-method", "POST")
                .with("access-control-request-headers", "content-type,posthog-attempt");
            Case { method: "OPTIONS", ..case }.told(200, Told::Nothing)
        });
        table.add(|id| {
            let case = Case::post(id, &format!("PUT {path}"), path, "{}");
            Case { method: "PUT", ..case }.told(405, not_allowed())
        });
    }
    for path in TELEMETRY.into_iter().chain(V1) {
        table.add(|id| Case::get(id, &format!("GET {path}"), path).told(405, not_allowed()));
    }
    for path in ["/nowhere", "/e/more", "/i/v0", "/i/v1", "/i/v1/events", "/batch//", "/I/V0/E/"] {
        let not_found = Told::Error("invalid_request", "not_found", Some(Value::Null));
        table.add(|id| {
            let body = event(id, &json!({})).to_string();
            Case::post(id, &format!("POST {path}"), path, body).told(404, not_found)
        });
    }
    for (path, text) in [("/", "capture"), ("/_liveness", "alive"), ("/_readiness", "ready")] {
        table.add(|id| Case::get(id, path, path).told(200, Told::Text(text.to_owned())));
    }
}
