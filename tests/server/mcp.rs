//! The Model Context Protocol: released clients use every tool over HTTP and over `weir mcp`, and get the same numbers as
//! clients of the API; and what no client does is refused.

mod changes;
mod clients;
mod wire;

pub(crate) use clients::nothing_is_told_of_others;

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TestServer};

/// Sends a message with a key and further headers.
fn post(server: &TestServer, key: &str, path: &str, more: &[(&str, &str)], body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let own = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let headers: Vec<(&str, &str)> = own.iter().chain(more).copied().collect();
    server.send("POST", path, &headers, body)
}

/// A request of the revision of June 2025, which is no batch.
fn ask(server: &TestServer, key: &str, method: &str, params: &Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let more = [("mcp-protocol-version", "2025-06-18")];
    let answer = post(server, key, "/mcp", &more, &message.to_string());
    assert_eq!(answer.status, 200, "{method} {params}: {answer}");
    answer.json()
}

/// The result of a tool: whether it failed, its text, and the structured part.
fn call(server: &TestServer, key: &str, name: &str, arguments: &Value) -> (bool, String, Value) {
    let told = ask(server, key, "tools/call", &json!({"name": name, "arguments": arguments}));
    let result = &told["result"];
    let text = result["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{name} {arguments}: {told}")).to_owned();
    (result["isError"] == true, text, result["structuredContent"].clone())
}

/// A key with these scopes.
fn key_with(server: &TestServer, scopes: &Value, projects: Option<Value>) -> String {
    let mut body = json!({"label": "of a test", "scopes": scopes});
    if let Some(projects) = projects {
        body["scoped_teams"] = projects;
    }
    server.key(&body)
}

/// Three persons, of whom two sign up and one pays; one comes back on the next day.
fn shop() -> TestServer {
    let server = TestServer::start();
    let event = |name: &str, person: &str, at: &str, more: Value| {
        let mut properties = json!({"$set": {"email": format!("{person}@shop.example")}});
        let fields = properties.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        json!({"event": name, "distinct_id": person, "timestamp": at, "properties": properties})
    };
    let url = |path: &str| json!({"$current_url": format!("https://shop.example{path}")});
    let answer = server.capture(&json!([
        event("$pageview", "ada", "2026-03-01T12:00:00Z", url("/")),
        event("$pageview", "bob", "2026-03-01T12:00:00Z", url("/")),
        event("$pageview", "cyd", "2026-03-01T12:00:00Z", url("/pricing")),
        event("$pageview", "ada", "2026-03-01T12:01:00Z", url("/pricing")),
        event("signed up", "ada", "2026-03-01T12:05:00Z", json!({"plan": "pro", "price": 20})),
        event("signed up", "bob", "2026-03-01T12:06:00Z", json!({"plan": "free", "price": 0})),
        event("$pageview", "ada", "2026-03-02T12:00:00Z", url("/")),
        event(
            "paid",
            "ada",
            "2026-03-02T12:01:00Z",
            json!({"price": 20.5, "<script>": "a\nb | c"})
        ),
    ]));
    assert_eq!(answer.status, 200, "{answer}");
    server
}

#[test]
fn models_find_what_the_server_is() {
    let server = TestServer::start();
    let short = server.get("/llms.txt");
    let text = String::from_utf8_lossy(&short.body).into_owned();
    assert_eq!(
        (short.status, short.header("content-type")),
        (200, Some("text/plain; charset=utf-8"))
    );
    let url = server.url();
    for part in [format!("{url}/mcp"), format!("{url}/api/schema/"), "- queries: SQL".to_owned()] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    let full = server.get("/llms-full.txt");
    let text = String::from_utf8_lossy(&full.body);
    assert!(full.status == 200 && text.contains("\n# Persons"), "{} bytes", text.len());
    assert!(!text.contains(KEY));
}
