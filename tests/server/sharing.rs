//! Links to insights and dashboards: who makes them, what they show and what not, and when they lead nowhere.

use std::thread;

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, within};

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
        (json!({"password_required": "perhaps"}), "password_required"),
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
        let body = if method == "PATCH" { r#"{"enabled": true}"# } else { "{}" };
        server.send(method, path, &headers, body).status
    };
    let (reader, writer) =
        (key(json!(["sharing_configuration:read"])), key(json!(["sharing_configuration:write"])));
    let other = key(json!(["insight:write", "dashboard:write"]));
    let locked = server.patch(&path, &json!({"password_required": true}));
    assert_eq!(locked.status, 200, "{locked}");
    let passwords = format!("{path}passwords/");
    for (bearer, expected) in [
        (&reader, [200, 403, 403, 403, 403]),
        (&other, [403; 5]),
        (&writer, [200, 200, 200, 201, 204]),
    ] {
        let told = [
            ask(bearer, "GET", &path),
            ask(bearer, "PATCH", &path),
            ask(bearer, "POST", &format!("{path}refresh/")),
            ask(bearer, "POST", &passwords),
            ask(bearer, "DELETE", &format!("{passwords}1/")),
        ];
        assert_eq!(told, expected);
    }
    let board = made(&server, "dashboards", &json!({"restriction_level": 37}));
    let member = json!({"email": "mel@acme.com"});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let bearer = format!("Bearer {}", member["personal_api_key"].as_str().expect("a key"));
    let path = format!("/api/projects/1/dashboards/{}/sharing/", board["id"]);
    assert_eq!(ask(&bearer, "GET", &path), 200);
    let told = [
        ask(&bearer, "PATCH", &path),
        ask(&bearer, "POST", &format!("{path}refresh/")),
        ask(&bearer, "POST", &format!("{path}passwords/")),
        ask(&bearer, "DELETE", &format!("{path}passwords/1/")),
    ];
    assert_eq!(told, [403; 4]);
    assert_eq!(server.get(&format!("{BASE}/insights/99/sharing/")).status, 404);
}

/// Goal: what a link, or a dashboard that others see, shows is decided by those who could show it themselves. Method: what
/// keys of some scopes try, each with the scope that is missed.
#[test]
fn documents_lead_no_key_beyond_its_scopes() {
    let server = TestServer::start();
    shop(&server);
    let sql = json!({"kind": "HogQLQuery", "query": "SELECT properties FROM persons"});
    let actors = json!({"kind": "ActorsQuery", "select": ["person"]});
    let wrapped = json!({"kind": "DataTableNode", "source": sql});
    let [open, shared] =
        ["open", "shared"].map(|name| made(&server, "dashboards", &json!({"name": name})));
    let of_board = format!("dashboards/{}", shared["id"]);
    share(&server, &of_board, &Value::Null);
    let mut on_shared = trend("on shared");
    on_shared["dashboards"] = json!([shared["id"]]);
    let [plain, placed, linked] =
        [trend("plain"), on_shared, trend("linked")].map(|body| made(&server, "insights", &body));
    let of_insight = format!("insights/{}", linked["id"]);
    share(&server, &of_insight, &Value::Null);
    let saved = made(
        &server,
        "insights",
        &json!({"name": "rows", "query": sql, "dashboards": [open["id"]]}),
    );
    let key = |scopes: &[&str]| {
        let body = json!({"label": "x", "scopes": scopes});
        let made = server.post("/api/personal_api_keys/", &body).created();
        format!("Bearer {}", made["value"].as_str().expect("a value"))
    };
    let (insights, boards) = (key(&["insight:write"]), key(&["dashboard:write"]));
    let both = key(&["insight:write", "dashboard:write", "query:read"]);
    let all =
        key(&["insight:write", "dashboard:write", "query:read", "sharing_configuration:write"]);
    let ask = |bearer: &str, method: &str, path: &str, body: &Value| {
        let headers = [("authorization", bearer), ("content-type", "application/json")];
        server.send(method, &format!("{BASE}/{path}"), &headers, body.to_string())
    };
    let insight = |of: &Value| format!("insights/{}/", of["id"]);
    let board = |of: &Value| format!("dashboards/{}/", of["id"]);
    let tile_of = |of: &Value| of["id"].as_i64().expect("an id") * 2;
    let change = json!({"tiles": [{"insight": plain["id"]}]});
    let (query, sharing) = ("query:read", "sharing_configuration:write");
    let (of_boards, of_insights) = ("dashboard:write", "insight:write");
    for (bearer, method, path, body, scope) in [
        // What only some may ask is saved by them.
        (&insights, "POST", "insights/".to_owned(), json!({"query": sql}), query),
        (&insights, "POST", "insights/".to_owned(), json!({"query": actors}), query),
        (&insights, "POST", "insights/".to_owned(), json!({"query": wrapped}), query),
        (
            &insights,
            "POST",
            "insights/".to_owned(),
            json!({"query": {"kind": "EventsQuery", "select": ["*"]}}),
            query,
        ),
        (&insights, "POST", "insights/".to_owned(), json!({"query": {"kind": "Unheard"}}), query),
        (&insights, "PATCH", insight(&plain), json!({"query": sql}), query),
        (&insights, "PUT", insight(&plain), json!({"query": wrapped}), query),
        // Dashboards are changed by those who may, from whichever side.
        (&insights, "POST", "insights/".to_owned(), json!({"dashboards": [open["id"]]}), of_boards),
        (&insights, "PATCH", insight(&plain), json!({"dashboards": [open["id"]]}), of_boards),
        (&insights, "PATCH", insight(&placed), json!({"dashboards": []}), of_boards),
        (&boards, "PATCH", board(&open), change.clone(), "insight:read"),
        (&boards, "POST", "dashboards/".to_owned(), change.clone(), "insight:read"),
        (
            &boards,
            "POST",
            "dashboards/".to_owned(),
            json!({"use_dashboard": open["id"], "duplicate_tiles": true}),
            of_insights,
        ),
        (
            &boards,
            "PATCH",
            board(&open),
            json!({"deleted": true, "delete_insights": true}),
            of_insights,
        ),
        // What a link shows is changed by those who may share.
        (&both, "POST", "insights/".to_owned(), json!({"dashboards": [shared["id"]]}), sharing),
        (&both, "PATCH", insight(&plain), json!({"dashboards": [shared["id"]]}), sharing),
        (&both, "PATCH", insight(&placed), json!({"query": sql}), sharing),
        (&both, "PATCH", insight(&placed), json!({"filters": {"insight": "TRENDS"}}), sharing),
        (&both, "PATCH", insight(&placed), json!({"dashboards": []}), sharing),
        (&both, "PATCH", insight(&linked), json!({"query": sql}), sharing),
        (&both, "PATCH", insight(&linked), json!({"name": "other"}), sharing),
        (&both, "PATCH", board(&shared), change.clone(), sharing),
        (&both, "PATCH", board(&shared), json!({"filters": {"date_from": "-1d"}}), sharing),
        (&both, "PATCH", board(&shared), json!({"tiles": [{"text": {"body": "x"}}]}), sharing),
        (
            &both,
            "POST",
            format!("{}copy_tile/", board(&shared)),
            json!({"fromDashboardId": open["id"], "tileId": tile_of(&saved)}),
            sharing,
        ),
        (
            &both,
            "PATCH",
            format!("{}move_tile/", board(&open)),
            json!({"tile": {"id": tile_of(&saved)}, "toDashboard": shared["id"]}),
            sharing,
        ),
        (
            &both,
            "PATCH",
            format!("{}move_tile/", board(&shared)),
            json!({"tile": {"id": tile_of(&placed)}, "toDashboard": open["id"]}),
            sharing,
        ),
        (
            &both,
            "POST",
            format!("{}reorder_tiles/", board(&shared)),
            json!({"tile_order": [tile_of(&placed)]}),
            sharing,
        ),
    ] {
        let before = server.get(&format!("{BASE}/{}", insight(&plain))).json();
        let refused = ask(bearer, method, &path, &body);
        let detail = format!("API key missing required scope '{scope}'");
        assert_eq!(
            (refused.status, &refused.json()["detail"]),
            (403, &json!(detail)),
            "{path} {body}"
        );
        assert_eq!(
            server.get(&format!("{BASE}/{}", insight(&plain))).json(),
            before,
            "{path} {body}"
        );
        // Who has all of them is not refused.
        let allowed = ask(&all, method, &path, &body);
        let is_made = method == "POST" && matches!(&*path, "insights/" | "dashboards/");
        assert_eq!(allowed.status, if is_made { 201 } else { 200 }, "{path} {body}: {allowed}");
        // As it was, for the next one.
        let plain_again = json!({"query": trend("")["query"], "dashboards": []});
        assert_eq!(server.patch(&format!("{BASE}/{}", insight(&plain)), &plain_again).status, 200);
        let again =
            json!({"query": trend("")["query"], "filters": {}, "dashboards": [shared["id"]]});
        assert_eq!(server.patch(&format!("{BASE}/{}", insight(&placed)), &again).status, 200);
        let again = json!({"query": trend("")["query"], "name": "linked"});
        assert_eq!(server.patch(&format!("{BASE}/{}", insight(&linked)), &again).status, 200);
        assert_eq!(
            server.patch(&format!("{BASE}/{}", board(&open)), &json!({"deleted": false})).status,
            200
        );
        let again = json!({"deleted": false, "dashboards": [open["id"]]});
        assert_eq!(server.patch(&format!("{BASE}/{}", insight(&saved)), &again).status, 200);
        let no_filters = json!({"filters": {}});
        assert_eq!(server.patch(&format!("{BASE}/{}", board(&shared)), &no_filters).status, 200);
    }
    // What no link shows, and that it shows no more, is for those who may change the document.
    for (bearer, path, body) in [
        (&insights, insight(&placed), json!({"tags": ["x"], "favorited": true})),
        (&insights, insight(&placed), json!({"name": placed["name"]})),
        (&insights, insight(&plain), json!({"name": "mine", "query": trend("")["query"]})),
        (&boards, board(&shared), json!({"pinned": true, "name": shared["name"]})),
        (&boards, board(&shared), json!({"deleted": true})),
        (&insights, insight(&linked), json!({"deleted": true})),
    ] {
        let changed = ask(bearer, "PATCH", &path, &body);
        assert_eq!(changed.status, 200, "{path} {body}: {changed}");
    }
    let restored = ask(&insights, "PATCH", &insight(&linked), &json!({"deleted": false}));
    assert_eq!(restored.status, 403, "the link leads there again: {restored}");
    // Other filters than the saved ones make it a question of whoever chooses them.
    let reader = key(&["dashboard:read"]);
    let of_both = key(&["dashboard:read", "insight:read"]);
    let changed = "?refresh=blocking&filters_override=%7B%22date_from%22%3A%22-1d%22%7D";
    let path = format!("{}{changed}", board(&open));
    assert_eq!(ask(&reader, "GET", &path, &json!({})).status, 403);
    assert_eq!(ask(&reader, "GET", &board(&open), &json!({})).status, 200);
    let seen = ask(&of_both, "GET", &path, &json!({}));
    let error = &seen.json()["tiles"][0]["error"];
    assert_eq!((seen.status, &error["type"]), (200, &json!("permission_denied")), "{seen}");
    let path = format!("{}{changed}", insight(&saved));
    assert_eq!(ask(&insights, "GET", &path, &json!({})).status, 403);
    assert_ne!(ask(&both, "GET", &path, &json!({})).status, 403);
}

/// Goal: whoever reads the log follows no link by it.
#[test]
fn tokens_of_links_are_not_in_the_log() {
    let server = TestServer::start();
    shop(&server);
    let insight = made(&server, "insights", &trend("per day"));
    let token = share(&server, &format!("insights/{}", insight["id"]), &Value::Null);
    let output = server.weir(&["login"]).output().expect("weir login");
    let link = String::from_utf8(output.stdout).expect("UTF-8");
    let link = link.trim().split_once("?link=").expect("a link").1;
    for path in [
        format!("/shared/{token}.json"),
        format!("/shared/{token}"),
        format!("/embedded/{token}"),
        format!("/shared/{token}/more"),
        format!("//shared_dashboard/{token}.json"),
        format!("/login?link={link}"),
    ] {
        follow(&server, &path);
        server.send("PUT", &path, &[], "");
    }
    let logged = within(std::time::Duration::from_secs(20), || {
        let said = server.stderr();
        (said.matches("[token]").count() >= 10).then_some(said)
    });
    let said = logged.expect("the requests are in the log");
    assert!(!said.contains(&token) && !said.contains(link), "{said}");
}

/// Makes a link ask for a password, and gives it one; tells what the server answers to that.
fn lock(server: &TestServer, path: &str, password: &Value) -> Value {
    let sharing = format!("{BASE}/{path}/sharing/");
    let locked = server.patch(&sharing, &json!({"password_required": true})).json();
    assert_eq!(locked["password_required"], true, "{locked}");
    server.post(&format!("{sharing}passwords/"), password).created()
}

/// Gives a password as a program does.
fn give(server: &TestServer, path: &str, password: &str) -> Answer {
    let body = json!({"password": password}).to_string();
    server.send("POST", path, &[("content-type", "application/json")], body)
}

/// Gives a password as the form of the page does.
fn submit(server: &TestServer, path: &str, password: &str) -> Answer {
    let body =
        form_urlencoded::Serializer::new(String::new()).append_pair("password", password).finish();
    server.send("POST", path, &[("content-type", "application/x-www-form-urlencoded")], body)
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

#[test]
fn a_link_with_a_password_opens_for_those_who_give_it() {
    let server = TestServer::start();
    shop(&server);
    let insight = made(&server, "insights", &trend("per day"));
    let path = format!("insights/{}", insight["id"]);
    let token = share(&server, &path, &Value::Null);
    let sharing = format!("{BASE}/{path}/sharing/");
    let early = server.post(&format!("{sharing}passwords/"), &json!({}));
    assert_eq!(early.status, 400, "it asks for none: {early}");
    let own = lock(&server, &path, &json!({"raw_password": " with spaces ", "note": "Board"}));
    let expected = (&json!(1), &json!(" with spaces "), &json!("Board"), &json!(true));
    assert_eq!((&own["id"], &own["password"], &own["note"], &own["is_active"]), expected);
    assert!(own["created_by_email"].as_str().is_some_and(|email| email.contains('@')), "{own}");
    let made = server.post(&format!("{sharing}passwords/"), &json!({"raw_password": ""})).created();
    let generated = made["password"].as_str().expect("a password");
    assert!(generated.len() >= 20, "{generated}");
    let told = server.get(&sharing).json();
    let listed = told["share_passwords"].as_array().expect("a list");
    let ids: Vec<&Value> = listed.iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [2, 1]);
    assert!(!told.to_string().contains(generated) && !told.to_string().contains("spaces"));
    let log = server.get(&format!("{BASE}/{path}/activity/")).json().to_string();
    assert!(log.contains("sharing password added") && !log.contains("spaces"), "{log}");
    // Nothing is told without a password, whatever else is known.
    let (page, json_path) = (format!("/shared/{token}"), format!("/shared/{token}.json"));
    let bearer = format!("Bearer {}", crate::harness::KEY);
    for headers in [&[][..], &[("authorization", &*bearer)], &[("cookie", "weir_share=1.9.x")]] {
        let refused = server.send("GET", &json_path, headers, "");
        assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("not_authenticated")));
        let form = server.send("GET", &page, headers, "");
        assert_eq!((form.status, form.header("cache-control")), (200, Some("no-store")));
        let form = text(&form);
        assert!(form.contains("type=\"password\"") && !form.contains("per day"), "{form}");
    }
    for wrong in ["with spaces", "", " WITH SPACES ", &"x".repeat(5000)] {
        let refused = give(&server, &json_path, wrong);
        assert_eq!(
            (refused.status, &refused.json()["type"]),
            (401, &json!("authentication_error"))
        );
        assert_eq!(refused.header("set-cookie"), None);
    }
    let refused = submit(&server, &page, "wrong one");
    assert_eq!((refused.status, refused.header("set-cookie")), (401, None));
    assert!(text(&refused).contains("no password of the link"), "{refused}");
    // By the form.
    let opened = submit(&server, &page, " with spaces ");
    assert_eq!((opened.status, opened.header("location")), (303, Some(&*page)), "{opened}");
    let cookie = opened.header("set-cookie").expect("a cookie").to_owned();
    for part in [&*format!("Path={page}"), "Max-Age=86400", "HttpOnly", "SameSite=Lax"] {
        assert!(cookie.split("; ").any(|own| own == part), "{part}: {cookie}");
    }
    let cookie = cookie.split(';').next().expect("a pair");
    let foreign = [("cookie", cookie), ("origin", "https://evil.example")];
    for path in [&page, &json_path] {
        let shown = server.send("GET", path, &foreign, "");
        assert_eq!((shown.status, shown.header("cache-control")), (200, Some("no-store")));
        assert!(text(&shown).contains("per day"), "{shown}");
        assert_eq!(shown.header("access-control-allow-origin"), None, "it depends on a cookie");
    }
    // Within another page, where browsers keep no cookie.
    let framed = submit(&server, &format!("/embedded/{token}"), " with spaces ");
    assert_eq!(framed.status, 200, "{framed}");
    assert!(text(&framed).contains("per day"), "{framed}");
    // By a program.
    let pass = give(&server, &json_path, generated).json();
    let bearer = format!("Bearer {}", pass["shareToken"].as_str().expect("a pass"));
    let by_pass = |path: &str| server.send("GET", path, &[("authorization", &bearer)], "").status;
    let by_cookie = |path: &str| server.send("GET", path, &[("cookie", cookie)], "").status;
    assert_eq!((by_pass(&json_path), by_cookie(&json_path)), (200, 200));
    // They end with their password, and with the link.
    assert_eq!(server.delete(&format!("{sharing}passwords/1/")).status, 204);
    assert_eq!(server.delete(&format!("{sharing}passwords/1/")).status, 404);
    assert_eq!((by_pass(&json_path), by_cookie(&json_path)), (200, 401));
    server.patch(&sharing, &json!({"enabled": false}));
    assert_eq!(by_pass(&json_path), 404);
    server.patch(&sharing, &json!({"enabled": true}));
    assert_eq!(by_pass(&json_path), 401);
    server.patch(&sharing, &json!({"password_required": false}));
    assert_eq!(follow(&server, &json_path).status, 200);
}

#[test]
fn passes_and_passwords_are_of_one_link() {
    let mut server = TestServer::start();
    shop(&server);
    let mut links = Vec::new();
    for name in ["first", "second"] {
        let insight = made(&server, "insights", &trend(name));
        let path = format!("insights/{}", insight["id"]);
        let token = share(&server, &path, &Value::Null);
        lock(&server, &path, &json!({"raw_password": format!("password of the {name}")}));
        links.push((path, format!("/shared/{token}.json")));
    }
    let [(first, first_link), (second, second_link)] = &links[..] else { panic!("two links") };
    assert_eq!(give(&server, second_link, "password of the first").status, 401);
    let pass = give(&server, first_link, "password of the first").json();
    let cookie = format!("weir_share={}", pass["shareToken"].as_str().expect("a pass"));
    let by_cookie = |server: &TestServer, path: &str| {
        server.send("GET", path, &[("cookie", &cookie)], "").status
    };
    let told = [first_link, second_link].map(|link| by_cookie(&server, link));
    assert_eq!(told, [200, 401]);
    // Another project reaches neither the passwords nor the link.
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let foreign = format!("/api/projects/{}/{first}/sharing/", other["id"]);
    let told = [
        server.post(&format!("{foreign}passwords/"), &json!({})).status,
        server.delete(&format!("{foreign}passwords/1/")).status,
        server.patch(&foreign, &json!({"password_required": false})).status,
    ];
    assert_eq!(told, [404; 3]);
    for (body, attr) in [
        (json!({"raw_password": "7 chars"}), json!("raw_password")),
        (json!({"raw_password": "x".repeat(201)}), json!("raw_password")),
        (json!({"raw_password": []}), json!("raw_password")),
        (json!({"note": "x".repeat(101)}), json!("note")),
    ] {
        let refused = server.post(&format!("{BASE}/{second}/sharing/passwords/"), &body);
        assert_eq!((refused.status, &refused.json()["attr"]), (400, &attr), "{body}");
    }
    for id in ["0", "2", "x", "-1", "99999999999999999999"] {
        let path = format!("{BASE}/{second}/sharing/passwords/{id}/");
        assert_eq!(server.delete(&path).status, 404, "{id}");
    }
    // Both are there after a restart.
    server.stop();
    server.restart();
    assert_eq!(by_cookie(&server, first_link), 200);
    assert_eq!(give(&server, second_link, "password of the second").status, 200);
}

/// Goal: whoever has a link cannot try many passwords, nor keep the server busy with it.
#[test]
fn guesses_at_passwords_are_few() {
    let server = TestServer::start();
    shop(&server);
    let insight = made(&server, "insights", &trend("per day"));
    let path = format!("insights/{}", insight["id"]);
    let token = share(&server, &path, &Value::Null);
    let sharing = format!("{BASE}/{path}/sharing/");
    // Without a password to compare with a guess costs nothing.
    server.patch(&sharing, &json!({"password_required": true}));
    let link = format!("/shared/{token}.json");
    let client = server.client();
    let send = |address: &str, link: &str| {
        let headers = [("content-type", "application/json"), ("x-forwarded-for", address)];
        client.send("POST", link, &headers, br#"{"password": "a guess"}"#)
    };
    let guess = |address: &str, link: &str| send(address, link).expect("an answer");
    let of_one: Vec<u16> = (0..14).map(|_| guess("192.0.2.1", &link).status).collect();
    let taken = of_one.iter().filter(|status| **status == 401).count();
    assert!((10..=13).contains(&taken), "{of_one:?}");
    let refused = guess("192.0.2.1", &link);
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("throttled")));
    assert!(refused.header("retry-after").is_some(), "{refused}");
    let form =
        [("content-type", "application/x-www-form-urlencoded"), ("x-forwarded-for", "192.0.2.1")];
    let page = server.send("POST", &format!("/shared/{token}"), &form, "password=a+guess");
    assert_eq!(page.status, 429, "{page}");
    assert!(page.header("retry-after").is_some() && text(&page).contains("type=\"password\""));
    let of_many: Vec<u16> =
        (2..40).map(|last| guess(&format!("192.0.2.{last}"), &link).status).collect();
    let taken = taken + of_many.iter().filter(|status| **status == 401).count();
    assert!((20..=30).contains(&taken), "{of_many:?}");
    assert!(of_many.contains(&429), "{of_many:?}");
    // Who guesses keeps nobody out from elsewhere; see `unlock` for many addresses.
    let other = made(&server, "insights", &trend("kept"));
    let path = format!("insights/{}", other["id"]);
    let link = format!("/shared/{}.json", share(&server, &path, &Value::Null));
    let right = lock(&server, &path, &json!({}))["password"].clone();
    for last in [201, 202, 203] {
        let _: Vec<u16> =
            (0..10).map(|_| guess(&format!("192.0.2.{last}"), &link).status).collect();
    }
    let body = json!({"password": right}).to_string();
    let headers = [("content-type", "application/json"), ("x-forwarded-for", "203.0.113.9")];
    let opened = client.send("POST", &link, &headers, body.as_bytes()).expect("an answer");
    assert_eq!(opened.status, 200, "{opened}");
    // Guesses at one link leave others alone, but few are looked at at a time.
    let other = made(&server, "insights", &trend("other"));
    let path = format!("insights/{}", other["id"]);
    let link = format!("/shared/{}.json", share(&server, &path, &Value::Null));
    lock(&server, &path, &json!({}));
    let answers: Vec<Answer> = thread::scope(|scope| {
        let ask = |last: usize| {
            let (send, link) = (&send, &link);
            scope.spawn(move || send(&format!("198.51.100.{last}"), link))
        };
        let all: Vec<_> = (1..=16).map(ask).collect();
        // A busy machine may not come to all that wait while their client does.
        all.into_iter().filter_map(|one| one.join().expect("a guess").ok()).collect()
    });
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!(count(401) + count(503), answers.len(), "{answers:?}");
    assert!((1..=15).contains(&count(503)), "{answers:?}");
    let busy = answers.iter().find(|answer| answer.status == 503).expect("one");
    assert!(busy.header("retry-after").is_some(), "{busy}");
}
