//! Links to insights and dashboards: who makes them, what they show and what not, and when they lead nowhere.

use serde_json::Value;
use serde_json::json;

use crate::harness::Answer;
use crate::harness::TestServer;
use crate::harness::within;

const BASE: &str = "/api/projects/@current";

fn shop(server: &TestServer) {
    let buy = |id: &str, day: u8| json!({"event": "buy", "distinct_id": id, "timestamp": format!("2026-01-0{day}T10:00:00Z")});
    assert_eq!(server.capture(&json!([buy("a", 5), buy("a", 6), buy("b", 6)])).status, 200);
}

fn trend(name: &str) -> Value {
    let range = json!({"date_from": "2026-01-05", "date_to": "2026-01-06"});
    let series = json!([{"kind": "EventsNode", "event": "buy"}]);
    let query = json!({"kind": "TrendsQuery", "series": series, "dateRange": range});
    json!({"name": name, "query": query, "description": "how many"})
}

fn made(server: &TestServer, path: &str, body: &Value) -> Value {
    server.post(&format!("{BASE}/{path}/"), body).created()
}

/// Turns a link on, and tells its token.
fn share(server: &TestServer, path: &str, settings: &Value) -> String {
    let body = json!({"enabled": true, "settings": settings});
    let answer = server.patch(&format!("{BASE}/{path}/sharing/"), &body);
    assert_eq!(answer.status, 200, "{answer}");
    let share = answer.json();
    assert_eq!((&share["enabled"], &share["password_required"]), (&json!(true), &json!(false)));
    share["access_token"].as_str().expect("a token").to_owned()
}

/// Without any key.
fn follow(server: &TestServer, path: &str) -> Answer {
    server.send("GET", path, &[], "")
}

#[test]
fn a_shared_dashboard_shows_its_results_and_nothing_else() {
    let server = TestServer::start();
    shop(&server);
    let filters = json!({"properties": [{"key": "email", "value": "private@x.com", "type": "person", "operator": "is_not"}]});
    let tiles = json!([{"text": {"body": "Hello"}}]);
    let body = json!({"name": "Sales", "tags": ["hidden"], "filters": filters, "tiles": tiles});
    let board = made(&server, "dashboards", &body);
    let mut insight = trend("per day");
    insight["dashboards"] = json!([board["id"]]);
    made(&server, "insights", &insight);
    let bad = json!({"query": {"kind": "TrendsQuery", "series": 1}, "dashboards": [board["id"]]});
    made(&server, "insights", &bad);
    made(&server, "insights", &json!({"name": "elsewhere"}));
    let path = format!("dashboards/{}", board["id"]);
    let before = server.get(&format!("{BASE}/{path}/sharing/")).json();
    assert_eq!((&before["enabled"], &before["access_token"]), (&json!(false), &Value::Null));
    let token = share(&server, &path, &json!({"noHeader": true, "legend": false, "odd": 1}));
    assert!(token.len() >= 32 && token.chars().all(|c| c.is_ascii_alphanumeric()), "{token}");
    for alias in ["shared", "shared_dashboard", "embedded"] {
        let answer = follow(&server, &format!("/{alias}/{token}.json"));
        assert_eq!(answer.status, 200, "{alias}: {answer}");
        assert_eq!(answer.header("x-robots-tag"), Some("noindex"));
        let told = answer.json();
        let kind = if alias == "embedded" { "embed" } else { "scene" };
        assert_eq!((&told["type"], &told["accessToken"]), (&json!(kind), &json!(token)));
        assert_eq!((&told["noHeader"], told.get("legend")), (&json!(true), None));
        let tiles = told["dashboard"]["tiles"].as_array().expect("tiles");
        assert_eq!(tiles[0]["text"]["body"], "Hello");
        let of = |name: Value| {
            tiles
                .iter()
                .find(|tile| tile["insight"]["name"] == name && tile["text"].is_null())
                .expect("a tile")
        };
        assert_eq!(of(json!("per day"))["insight"]["result"][0]["data"], json!([1, 2]));
        assert_eq!(of(Value::Null)["error"]["type"], "invalid_input");
        let text = String::from_utf8(answer.body.clone()).expect("UTF-8");
        for private in ["private@x.com", "hidden", "elsewhere", "created_by", "\"email\"", "phc_"] {
            assert!(!text.contains(private), "{private}: {text}");
        }
    }
    let seen = server.get(&format!("{BASE}/{path}/")).json();
    let listed = server.get(&format!("{BASE}/dashboards/")).json();
    assert_eq!(
        (&seen["is_shared"], &listed["results"][0]["is_shared"]),
        (&json!(true), &json!(true))
    );
    let log = server.get(&format!("{BASE}/{path}/activity/")).json();
    assert_eq!(log["results"][1]["activity"], "sharing enabled", "{log}");
    assert!(!log.to_string().contains(&token));
}

#[test]
fn links_lead_nowhere_once_they_are_off() {
    let server = TestServer::start();
    shop(&server);
    let insight = made(&server, "insights", &trend("per day"));
    let path = format!("insights/{}", insight["id"]);
    let token = share(&server, &path, &json!({"hideExtraDetails": true}));
    let told = follow(&server, &format!("/shared/{token}.json")).json();
    assert_eq!(told["insight"]["result"][0]["data"], json!([1, 2]));
    assert_eq!((told["insight"].get("name"), told["insight"].get("description")), (None, None));
    let status = |token: &str| follow(&server, &format!("/shared/{token}.json")).status;
    let change = |body: Value| {
        let answer = server.patch(&format!("{BASE}/{path}/sharing/"), &body);
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    };
    // Settings and changes of the document show at once.
    change(json!({"settings": null}));
    assert_eq!(server.patch(&format!("{BASE}/{path}/"), &json!({"name": "new"})).status, 200);
    let told = follow(&server, &format!("/shared/{token}.json")).json();
    assert_eq!(told["insight"]["name"], "new");
    change(json!({"enabled": false}));
    assert_eq!(status(&token), 404);
    assert_eq!(change(json!({"enabled": true}))["access_token"], json!(token));
    assert_eq!(status(&token), 200);
    let rotated = server.post(&format!("{BASE}/{path}/sharing/refresh/"), &json!({})).json();
    let other = rotated["access_token"].as_str().expect("a token");
    assert_ne!(other, token);
    assert_eq!((status(&token), status(other)), (404, 200));
    assert_eq!(server.patch(&format!("{BASE}/{path}/"), &json!({"deleted": true})).status, 200);
    assert_eq!(status(other), 404);
    for path in [
        format!("/shared/{other}.png"),
        "/shared/x.json".to_owned(),
        format!("/shared/{}.json", "x".repeat(200)),
    ] {
        assert_eq!(follow(&server, &path).status, 404, "{path}");
    }
    for (body, attr) in [
        (json!({"enabled": "perhaps"}), "enabled"),
        (json!({"settings": []}), "settings"),
        (json!({"settings": {"legend": 1}}), "settings__legend"),
        (json!({"password_required": true}), "password_required"),
    ] {
        let answer = server.patch(&format!("{BASE}/{path}/sharing/"), &body);
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)), "{body}");
    }
}

/// Goal: many readers cost as much as one. A link shows again what it showed within half a minute, and new events
/// after it.
#[test]
fn a_link_is_computed_at_most_once_in_a_while() {
    let server = TestServer::start();
    shop(&server);
    let insight = made(&server, "insights", &trend("per day"));
    let token = share(&server, &format!("insights/{}", insight["id"]), &Value::Null);
    let asked = || {
        let told = follow(&server, &format!("/shared/{token}.json")).json();
        let insight = &told["insight"];
        (insight["last_refresh"].clone(), insight["result"][0]["data"].clone())
    };
    let mut refreshes = Vec::new();
    for _ in 0..20 {
        shop(&server);
        refreshes.push(asked().0);
    }
    refreshes.dedup();
    assert!(refreshes.len() <= 2, "{refreshes:?}");
    let limit = std::time::Duration::from_secs(60);
    let last = within(limit, || (asked().1 == json!([21, 42])).then_some(()));
    last.expect("what was captured since");
}

#[test]
fn keys_need_the_scope_and_the_right_to_edit() {
    let server = TestServer::start();
    let insight = made(&server, "insights", &trend("i"));
    let path = format!("{BASE}/insights/{}/sharing/", insight["id"]);
    let key = |scopes: Value| {
        let body = json!({"label": "x", "scopes": scopes});
        let made = server.post("/api/personal_api_keys/", &body).created();
        format!("Bearer {}", made["value"].as_str().expect("a value"))
    };
    let ask = |bearer: &str, method: &str, path: &str| {
        let headers = [("authorization", bearer), ("content-type", "application/json")];
        server.send(method, path, &headers, r#"{"enabled": true}"#).status
    };
    let (reader, writer) =
        (key(json!(["sharing_configuration:read"])), key(json!(["sharing_configuration:write"])));
    let other = key(json!(["insight:write", "dashboard:write"]));
    for (bearer, expected) in [(&reader, [200, 403, 403]), (&writer, [200; 3]), (&other, [403; 3])]
    {
        let told = [
            ask(bearer, "GET", &path),
            ask(bearer, "PATCH", &path),
            ask(bearer, "POST", &format!("{path}refresh/")),
        ];
        assert_eq!(told, expected);
    }
    let board = made(&server, "dashboards", &json!({"restriction_level": 37}));
    let member = json!({"email": "mel@acme.com"});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let bearer = format!("Bearer {}", member["personal_api_key"].as_str().expect("a key"));
    let path = format!("/api/projects/1/dashboards/{}/sharing/", board["id"]);
    assert_eq!(ask(&bearer, "GET", &path), 200);
    assert_eq!(
        [ask(&bearer, "PATCH", &path), ask(&bearer, "POST", &format!("{path}refresh/"))],
        [403; 2]
    );
    assert_eq!(server.get(&format!("{BASE}/insights/99/sharing/")).status, 404);
}
