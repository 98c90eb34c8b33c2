//! Each request is sent to each node, and has the answer of one server.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Cluster, JSON, Project, sql};
use crate::harness::{Answer, KEY, TestServer};

fn event(id: &str) -> Value {
    json!({"event": "made", "distinct_id": id, "properties": {"$set": {"by": id}}})
}

fn with(mut object: Value, name: &str, value: &str) -> String {
    object[name] = json!(value);
    object.to_string()
}

/// Sends one event by each endpoint of SDKs. Returns how many.
fn captured(node: &TestServer, token: &str, prefix: &str) -> u64 {
    let id = |form: &str| format!("{prefix} {form}");
    let posts = ["/e/", "/i/v0/e/", "/capture/", "/track/"]
        .map(|path| (path.to_owned(), with(event(&id(path)), "api_key", token)));
    let batch = json!({"api_key": token, "batch": [event(&id("batch"))]}).to_string();
    let inside = event(&id("in properties"));
    let mut inside = inside;
    inside["properties"]["token"] = json!(token);
    let posts = posts
        .into_iter()
        .chain([("/batch/".to_owned(), batch), ("/e/".to_owned(), inside.to_string())]);
    let mut count = 0;
    for (path, body) in posts {
        let answer = node.send("POST", &path, &[JSON], body);
        assert_eq!(answer.status, 200, "{path}: {answer}");
        count += 1;
    }
    let data = BASE64_STANDARD.encode(with(event(&id("get")), "api_key", token));
    let answer = node.send("GET", &format!("/e/?data={}", data.replace('+', "%2B")), &[], "");
    assert_eq!(answer.status, 200, "{answer}");
    let mut newest = event(&id("v1"));
    newest["uuid"] = json!(Uuid::new_v4());
    newest["timestamp"] = json!("2026-01-01T00:00:00Z");
    let body = json!({"created_at": "2026-01-01T00:00:00Z", "batch": [newest]}).to_string();
    let (bearer, request) = (format!("Bearer {token}"), Uuid::new_v4().to_string());
    let headers = [
        ("authorization", bearer.as_str()),
        ("posthog-sdk-info", "posthog-python/7.91.1"),
        ("user-agent", "posthog-python/7.91.1"),
        ("posthog-attempt", "1"),
        ("posthog-request-id", &request),
        ("posthog-request-timestamp", "2026-01-01T00:00:00Z"),
        JSON,
    ];
    let answer = node.send("POST", "/i/v1/analytics/events", &headers, body);
    assert!(answer.status == 200 && answer.to_string().contains(r#""ok""#), "{answer}");
    count + 2
}

/// The same answer of each node.
fn same(cluster: &Cluster, ask: impl Fn(&TestServer) -> Answer) -> Answer {
    let answers: Vec<Answer> = cluster.nodes.iter().map(ask).collect();
    for answer in &answers {
        let [first, own] = [&answers[0], answer]
            .map(|answer| (answer.status, String::from_utf8_lossy(&answer.body)));
        assert_eq!(own, first);
    }
    answers[0].clone()
}

fn as_key(node: &TestServer, key: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    node.send(method, path, &[("authorization", &bearer), JSON], body)
}

#[test]
fn events_are_taken_by_any_node() {
    let cluster = Cluster::start(3, 6, &[]);
    let projects = cluster.projects(6);
    let shards = "SELECT count(DISTINCT shard) FROM projects";
    assert_eq!(cluster.common.metadata(shards), "6");
    for (number, Project { id, token }) in projects.iter().enumerate() {
        let mut sent = 0;
        for (at, node) in cluster.nodes.iter().enumerate() {
            sent += captured(node, token, &format!("{number} {at}"));
            for reader in &cluster.nodes {
                assert_eq!(sql(reader, *id, "SELECT count() FROM events"), json!([[sent]]));
            }
        }
        let path = format!("/api/projects/{id}/persons/?limit=100");
        let persons = same(&cluster, |node| node.get(&path)).json();
        assert_eq!(persons["results"].as_array().map(Vec::len), usize::try_from(sent).ok());
        let one = persons["results"][0]["uuid"].as_str().expect("a person").to_owned();
        let path = format!("/api/projects/{id}/persons/{one}/");
        assert_eq!(cluster.nodes[number % 3].delete(&path).status, 202);
        assert_eq!(same(&cluster, |node| node.get(&path)).status, 404);
        let series = json!([{"kind": "EventsNode", "event": "made"}]);
        let query = json!({"kind": "TrendsQuery", "series": series, "dateRange": {"date_from": "-1dStart"}});
        let body = json!({"query": query, "refresh": "force_blocking"});
        let counts: Vec<Value> = cluster
            .nodes
            .iter()
            .map(|node| {
                let answer = node.post(&format!("/api/projects/{id}/query/"), &body);
                assert_eq!(answer.status, 200, "{answer}");
                answer.json()["results"][0]["count"].clone()
            })
            .collect();
        assert!(
            counts[0].as_f64() > Some(1.0) && counts.iter().all(|count| *count == counts[0]),
            "{counts:?}"
        );
    }
    // What is not known anywhere is refused by all in the same words; what was made a moment ago is known.
    for path in ["/batch/", "/e/", "/flags/?v=2"] {
        let body = json!({"api_key": "nobody", "event": "e", "distinct_id": "x"});
        let refused = same(&cluster, |node| node.send("POST", path, &[JSON], body.to_string()));
        assert_eq!(refused.status, 401, "{path}: {refused}");
    }
    for turn in 0..9 {
        let node = &cluster.nodes[(turn + 1) % 3];
        captured_by_nobody(node);
        let (_, token) = cluster.nodes[turn % 3].project(&format!("of a moment {turn}"));
        assert_eq!(captured(node, &token, "now"), 8);
    }
    cluster.has_not_panicked();
}

fn captured_by_nobody(node: &TestServer) {
    let body = with(event("x"), "api_key", "nobody");
    assert_eq!(node.send("POST", "/e/", &[JSON], body).status, 401);
}

#[test]
fn changes_are_seen_by_any_node() {
    let cluster = Cluster::start(3, 4, &[]);
    for (number, Project { id, token }) in cluster.projects(4).iter().enumerate() {
        let nodes: Vec<&TestServer> = (0..3).map(|at| &cluster.nodes[(number + at) % 3]).collect();
        let base = format!("/api/projects/{id}");
        let flag = json!({"key": "f", "name": "", "active": true, "filters": {"groups": [{"rollout_percentage": 100}]}});
        let made = nodes[0].post(&format!("{base}/feature_flags/"), &flag).created();
        let is_on = |node: &TestServer| {
            let body = json!({"token": token, "distinct_id": "x"});
            let answer = node.post("/flags/?v=2", &body);
            assert_eq!(answer.status, 200, "{answer}");
            answer.json()["flags"]["f"]["enabled"] == true
        };
        assert!(cluster.nodes.iter().all(is_on));
        let path = format!("{base}/feature_flags/{}/", made["id"]);
        assert_eq!(nodes[1].patch(&path, &json!({"active": false})).status, 200);
        assert!(!cluster.nodes.iter().any(is_on));
        same(&cluster, |node| node.get(&path));
        let log =
            same(&cluster, |node| node.get(&format!("{base}/activity_log/?scope=FeatureFlag")));
        assert_eq!(log.json()["total_count"], 2, "{log}");
        let local = format!("{base}/feature_flags/local_evaluation?token={token}");
        assert_eq!(same(&cluster, |node| node.get(&local)).json()["flags"][0]["active"], false);

        let series = json!([{"kind": "EventsNode", "event": "made"}]);
        let insight = json!({"name": "i", "query": {"kind": "TrendsQuery", "series": series}});
        let made = nodes[2].post(&format!("{base}/insights/"), &insight).created();
        let share = format!("{base}/insights/{}/sharing/", made["id"]);
        let shared = nodes[0].patch(&share, &json!({"enabled": true})).json();
        let link = format!("/shared/{}.json", shared["access_token"].as_str().expect("a token"));
        for node in &cluster.nodes {
            let seen = node.send("GET", &link, &[], "");
            assert_eq!(seen.status, 200, "{seen}");
        }
        assert_eq!(nodes[1].patch(&share, &json!({"enabled": false})).status, 200);
        for node in &cluster.nodes {
            assert_eq!(node.send("GET", &link, &[], "").status, 404);
        }
        // An assistant.
        let list =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string();
        for path in [format!("/mcp/{id}"), "/mcp".to_owned()] {
            let tools = same(&cluster, |node| as_key(node, KEY, "POST", &path, &list));
            assert!(tools.json()["result"]["tools"].is_array(), "{tools}");
        }
    }
    cluster.has_not_panicked();
}

/// Who has signed in by one node sees the pages of each project by all; a key of one project gets nothing of another.
#[test]
fn sessions_and_keys_are_those_of_all_nodes() {
    let cluster = Cluster::start(3, 4, &[]);
    let projects = cluster.projects(4);
    let output = cluster.nodes[0].weir(&["login"]).output().expect("weir login");
    assert!(output.status.success(), "{output:?}");
    let link = String::from_utf8(output.stdout).expect("UTF-8");
    let (_, value) = link.trim().split_once("/login?link=").expect("a link");
    let form = format!("link={value}&next=%2Fproject%2F1%2Fsettings");
    let origin = cluster.nodes[1].url();
    let headers =
        [("origin", origin.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    let signed_in = cluster.nodes[1].send("POST", "/login", &headers, &form);
    assert_eq!(signed_in.status, 303, "{signed_in}");
    let cookie = signed_in.header("set-cookie").and_then(|cookie| cookie.split(';').next());
    let cookie = cookie.expect("a cookie");
    for Project { id, token } in &projects {
        captured(&cluster.nodes[0], token, "of a page");
        for node in &cluster.nodes {
            let page =
                node.send("GET", &format!("/project/{id}/persons"), &[("cookie", cookie)], "");
            assert!(page.status == 200 && page.to_string().contains("of a page v1"), "{page}");
            let stranger = node.send("GET", &format!("/project/{id}/persons"), &[], "");
            assert_eq!(stranger.status, 303, "{stranger}");
        }
    }
    for own in &projects {
        let body = json!({"label": "x", "scopes": ["*"], "scoped_teams": [own.id]});
        let key = cluster.nodes[0].key(&body);
        for other in &projects {
            let expected = if own.id == other.id { 200 } else { 403 };
            for (method, path, body) in [
                ("GET", "persons/", String::new()),
                ("GET", "feature_flags/", String::new()),
                ("POST", "query/", json!({"query": crate::workers::node("SELECT 1")}).to_string()),
            ] {
                let path = format!("/api/projects/{}/{path}", other.id);
                let answer =
                    cluster.nodes.iter().map(|node| as_key(node, &key, method, &path, &body));
                for answer in answer {
                    assert_eq!(answer.status, expected, "{path}: {answer}");
                }
            }
        }
    }
    cluster.has_not_panicked();
}
