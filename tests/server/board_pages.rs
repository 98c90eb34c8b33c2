//! Pages of dashboards and saved insights, and what links show: with the numbers of the API, and every change by a
//! form is a change by the API.

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TestServer};
use crate::support::forms::post;

const HOSTILE: &str = "<script>window.__hit=1</script>\"'><img src=x onerror=hit>\u{202e}";

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

fn page(server: &TestServer, path: &str) -> String {
    let answer = server.get(&format!("/project/1/{path}"));
    assert_eq!(answer.status, 200, "{path}: {answer}");
    let text = text(&answer);
    assert!(!text.contains("<script>window") && !text.contains("<img src=x"), "{path}: {text}");
    text
}

/// Ten events of each of two plans in four days, and insights of all forms: a node, filters of older clients, a node
/// with groups of filters, SQL with a variable. Their ids.
fn world(server: &TestServer) -> Vec<i64> {
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let event = |at: i64| {
        let time = now - chrono::TimeDelta::hours(at * 9);
        json!({
            "event": "buy", "distinct_id": format!("p{}", at % 4), "timestamp": time.to_rfc3339(),
            "properties": {"plan": if at % 3 == 0 { "pro" } else { "free" }, "os": HOSTILE},
        })
    };
    server.capture(&(0..12).map(event).collect::<Value>());
    let series = json!([{"kind": "EventsNode", "event": "buy"}]);
    let groups = json!({"type": "AND", "values": [{"type": "OR", "values": [
        {"key": "plan", "value": "pro", "type": "event"}, {"key": "plan", "value": "free", "type": "event"}]}]});
    let totals = json!({"display": "BoldNumber"});
    let made = [
        json!({"name": HOSTILE, "description": HOSTILE, "query": {"kind": "InsightVizNode", "source": {
            "kind": "TrendsQuery", "series": series, "trendsFilter": totals, "dateRange": {"date_from": "-30d"}}}}),
        json!({"name": "classic", "filters": {"insight": "TRENDS", "display": "BoldNumber",
            "date_from": "-30d", "events": [{"id": "buy", "type": "events"}]}}),
        json!({"name": "groups", "query": {"kind": "TrendsQuery", "series": series, "properties": groups,
            "trendsFilter": totals, "dateRange": {"date_from": "-30d"}}}),
        json!({"name": "rows", "query": {"kind": "DataVisualizationNode", "source": {"kind": "HogQLQuery",
            "query": "SELECT count(*) AS n FROM events WHERE properties.plan = {variables.plan}",
            "variables": {"v1": {"variableId": "v1", "code_name": "plan", "value": "free"}}}}}),
    ];
    let id = |body: &Value| server.post("/api/projects/1/insights/", body).created()["id"].as_i64();
    made.iter().map(|body| id(body).expect("an id")).collect()
}

/// The figures of a page, in the order of the places of their tiles.
fn figures(page: &str) -> Vec<String> {
    let inner = |part: &str| {
        let shown = part.split("</p>").next().unwrap_or_default();
        shown.rsplit("\">").next().unwrap_or_default().replace("</a>", "")
    };
    page.split("<p class=\"large-value\">").skip(1).map(inner).collect()
}

#[test]
fn filters_and_variables_of_a_dashboard_hold_on_its_page() {
    let server = TestServer::start();
    let ids = world(&server);
    let tiles: Vec<Value> = ids.iter().map(|id| json!({"insight": id})).collect();
    let board = json!({
        "name": HOSTILE, "tiles": tiles,
        "filters": {"date_from": "-40d", "properties": [{"key": "plan", "value": "pro", "type": "event"}]},
        "variables": {"v1": {"code_name": "plan", "value": "pro"}},
    });
    let board = server.post("/api/projects/1/dashboards/", &board).created()["id"].clone();
    let api = server.get(&format!("/api/projects/1/dashboards/{board}/?refresh=blocking")).json();
    let numbers: Vec<f64> = api["tiles"]
        .as_array()
        .expect("tiles")
        .iter()
        .filter_map(|tile| tile["insight"]["result"][0]["aggregated_value"].as_f64())
        .collect();
    assert_eq!(numbers, [4.0, 4.0, 4.0], "{api}");
    let shown = page(&server, &format!("dashboard/{board}"));
    assert_eq!(shown.matches("<section class=\"tile\"").count(), 4, "{shown}");
    assert_eq!(figures(&shown), ["4", "4", "4"], "{shown}");
    assert!(shown.contains("<td class=\"number\">4</td>"), "{shown}");
    assert!(shown.contains("For all tiles") && shown.contains("<b>pro</b>"), "{shown}");
    assert!(!shown.contains("class=\"problem\""), "{shown}");
    // Dates of the address hold before those of the dashboard.
    let day = page(&server, &format!("dashboard/{board}?from=-1d"));
    let api = format!(
        "/api/projects/1/dashboards/{board}/?refresh=blocking&filters_override=%7B%22date_from%22%3A%22-1d%22%7D"
    );
    let api = server.get(&api).json();
    let number = api["tiles"][0]["insight"]["result"][0]["aggregated_value"].as_f64();
    assert_eq!(figures(&day).first().and_then(|text| text.parse().ok()), number, "{day}");
    // Alone, an insight has no filters but its own.
    for (id, expected) in ids.iter().zip(["12", "12", "12"]) {
        let insight = server.get(&format!("/api/projects/1/insights/{id}/")).json();
        let shown = page(&server, &format!("insights/{}", insight["short_id"].as_str().unwrap()));
        assert_eq!(figures(&shown), [expected], "{shown}");
    }
    let rows = server.get(&format!("/api/projects/1/insights/{}/", ids[3])).json();
    let shown = page(&server, &format!("insights/{}", rows["short_id"].as_str().unwrap()));
    assert!(shown.contains("<td class=\"number\">8</td>"), "{shown}");
}

#[test]
fn dashboards_and_insights_are_changed_by_forms() {
    let server = TestServer::start();
    let ids = world(&server);
    assert_eq!(post(&server, "dashboard", &[("name", "Weekly")]).status, 303);
    let board = || server.get("/api/projects/1/dashboards/1/").json();
    let act = |fields: &[(&str, &str)]| {
        let answer = post(&server, "dashboard/1", fields);
        assert_eq!(answer.status, 303, "{fields:?}: {answer}");
    };
    for id in &ids {
        act(&[("do", "add"), ("insight", &id.to_string())]);
    }
    act(&[("do", "add"), ("text", HOSTILE)]);
    let order = || {
        let mut tiles = board()["tiles"].as_array().expect("tiles").clone();
        tiles.sort_by_key(|tile| {
            let at = |name: &str| tile["layouts"]["sm"][name].as_i64();
            (at("y"), at("x"))
        });
        tiles.iter().map(|tile| tile["id"].as_i64().expect("an id")).collect::<Vec<_>>()
    };
    let shown = page(&server, "dashboard/1/edit");
    assert!(shown.contains("All saved insights are on this dashboard"), "{shown}");
    let text_id = board()["tiles"][4]["id"].to_string();
    act(&[("do", "up"), ("tile", &text_id)]);
    act(&[("do", "up"), ("tile", &text_id)]);
    act(&[("do", "wide"), ("tile", &text_id)]);
    act(&[("do", "down"), ("tile", &(ids[0] * 2).to_string())]);
    let text: i64 = text_id.parse().expect("an id");
    assert_eq!(order(), [ids[1] * 2, ids[0] * 2, text, ids[2] * 2, ids[3] * 2]);
    assert!(page(&server, "dashboard/1").contains("class=\"tile wide\""));
    act(&[("do", "text"), ("tile", &text_id), ("text", "Better")]);
    act(&[("do", "remove"), ("tile", &(ids[3] * 2).to_string())]);
    act(&[
        ("do", "save"),
        ("name", HOSTILE),
        ("description", "of all"),
        ("pinned", "1"),
        ("from", "-3d"),
    ]);
    let told = board();
    assert_eq!((&told["name"], &told["pinned"]), (&json!(HOSTILE), &json!(true)));
    assert_eq!(told["filters"]["date_from"], "-3d");
    assert_eq!(told["tiles"].as_array().map(Vec::len), Some(4));
    assert!(page(&server, "dashboard").contains("★ "));
    let shown = page(&server, "dashboard/1");
    assert!(shown.contains("Better") && shown.contains("of all"), "{shown}");
    for (fields, status) in [
        (&[("do", "explode")][..], 400),
        (&[("do", "up"), ("tile", "999")][..], 404),
        (&[("do", "add"), ("insight", "999")][..], 400),
        (&[("do", "add"), ("text", &"x".repeat(5000))][..], 400),
    ] {
        assert_eq!(post(&server, "dashboard/1", fields).status, status, "{fields:?}");
    }
    // An insight.
    let insight = || server.get(&format!("/api/projects/1/insights/{}/", ids[0])).json();
    let short_id = insight()["short_id"].as_str().expect("a short id").to_owned();
    let path = format!("insights/{short_id}");
    let fields = [("do", "save"), ("name", "Best"), ("description", HOSTILE), ("favorited", "1")];
    assert_eq!(post(&server, &path, &fields).status, 303);
    let told = insight();
    assert_eq!((&told["name"], &told["favorited"]), (&json!("Best"), &json!(true)));
    assert!(page(&server, "insights").contains("★ Best"));
    assert_eq!(post(&server, &path, &[("do", "delete")]).status, 303);
    assert_eq!(insight()["deleted"], true);
    assert_eq!(server.get(&format!("/project/1/{path}")).status, 404);
    act(&[("do", "delete"), ("with_insights", "1")]);
    assert_eq!(server.get("/project/1/dashboard/1").status, 404);
}

#[test]
fn links_show_pages_without_a_sign_in() {
    let server = TestServer::start();
    let ids = world(&server);
    let tiles: Vec<Value> = ids.iter().map(|id| json!({"insight": id})).collect();
    let board = json!({"name": HOSTILE, "tiles": tiles, "filters": {
        "properties": [{"key": "plan", "value": "pro", "type": "event"}]}});
    server.post("/api/projects/1/dashboards/", &board).created();
    let short_id = server.get(&format!("/api/projects/1/insights/{}/", ids[0])).json();
    let insight = format!("insights/{}", short_id["short_id"].as_str().expect("a short id"));
    let token_of = |page: &str| {
        let rest = page.split("/shared/").nth(1)?;
        rest.split('<').next().map(str::to_owned)
    };
    assert_eq!(token_of(&page(&server, "dashboard/1/edit")), None);
    assert_eq!(post(&server, "dashboard/1/share", &[("do", "on")]).status, 303);
    assert_eq!(post(&server, &format!("{insight}/share"), &[("do", "on")]).status, 303);
    let token = token_of(&page(&server, "dashboard/1/edit")).expect("a token");
    let follow = |path: &str| server.send("GET", path, &[], "");
    for name in ["shared", "embedded"] {
        let answer = follow(&format!("/{name}/{token}"));
        assert_eq!(answer.status, 200, "{answer}");
        for (header, value) in [
            ("referrer-policy", "no-referrer"),
            ("x-robots-tag", "noindex"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(answer.header(header), Some(value), "{header}");
        }
        let policy = answer.header("content-security-policy").expect("a policy");
        let ancestors =
            if name == "embedded" { "frame-ancestors *" } else { "frame-ancestors 'none'" };
        assert!(policy.contains("default-src 'none'") && policy.ends_with(ancestors), "{policy}");
        assert_eq!(answer.header("x-frame-options").is_none(), name == "embedded");
        let shown = text(&answer);
        assert_eq!(figures(&shown), ["4", "4", "4"], "{shown}");
        assert!(shown.contains("<td class=\"number\">8</td>"), "{shown}");
        for foreign in ["<script>window", "<img src=x", "/project/", "<form", "admin", "/login"] {
            assert!(!shown.contains(foreign), "{foreign}: {shown}");
        }
    }
    let alone = token_of(&page(&server, &insight)).expect("a token");
    let shown = text(&follow(&format!("/shared/{alone}")));
    assert_eq!(figures(&shown), ["12"], "{shown}");
    // Another address, and none.
    assert_eq!(post(&server, "dashboard/1/share", &[("do", "new")]).status, 303);
    assert_eq!(follow(&format!("/shared/{token}")).status, 404);
    let token = token_of(&page(&server, "dashboard/1/edit")).expect("a token");
    assert_eq!(follow(&format!("/shared/{token}")).status, 200);
    assert_eq!(post(&server, "dashboard/1/share", &[("do", "off")]).status, 303);
    let gone = follow(&format!("/shared/{token}"));
    assert!(gone.status == 404 && text(&gone).contains("does not exist"), "{gone}");
    assert_eq!(gone.header("referrer-policy"), Some("no-referrer"));
}

#[test]
fn passwords_of_links_are_made_and_removed_on_the_page() {
    let server = TestServer::start();
    server.post("/api/projects/1/dashboards/", &json!({"name": "Board"})).created();
    let share = |fields: &[(&str, &str)]| post(&server, "dashboard/1/share", fields);
    let edit = || page(&server, "dashboard/1/edit");
    assert!(!edit().contains("Require a password"), "there is no link");
    assert_eq!(share(&[("do", "on")]).status, 303);
    assert!(edit().contains("Require a password"));
    assert_eq!(share(&[("do", "add")]).status, 400, "it asks for none");
    assert_eq!(share(&[("do", "lock")]).status, 303);
    assert!(edit().contains("nobody can open it"));
    let typed = [("do", "add"), ("note", HOSTILE), ("raw_password", "by the reader")];
    assert_eq!(share(&typed).status, 303);
    let made = share(&[("do", "add"), ("note", "press")]);
    assert_eq!((made.status, made.header("cache-control")), (200, Some("no-store")));
    let shown = text(&made);
    let password = shown.split("id=\"password\">").nth(1).expect("a password");
    let password = password.split('<').next().expect("a password").to_owned();
    let told = edit();
    assert!(told.contains("press") && !told.contains(&password), "{told}");
    assert!(!told.contains("<script>window") && !told.contains("by the reader"), "{told}");
    let token = told.split("/shared/").nth(1).and_then(|rest| rest.split('<').next());
    let link = format!("/shared/{}", token.expect("a token"));
    let give = |password: &str| {
        let body = json!({"password": password}).to_string();
        server.send("POST", &link, &[("content-type", "application/json")], body).status
    };
    assert_eq!([give("by the reader"), give(&password), give("a guess")], [200, 200, 401]);
    assert_eq!(share(&[("do", "remove"), ("password", "2")]).status, 303);
    assert_eq!(share(&[("do", "remove"), ("password", "2")]).status, 404);
    assert_eq!([give("by the reader"), give(&password)], [200, 401]);
    assert_eq!(share(&[("do", "unlock")]).status, 303);
    assert_eq!(server.send("GET", &format!("{link}.json"), &[], "").status, 200);
}

#[test]
fn filters_of_a_dashboard_are_changed_by_its_form() {
    let server = TestServer::start();
    let ids = world(&server);
    server
        .post("/api/projects/1/dashboards/", &json!({"name": "b", "tiles": [{"insight": ids[0]}]}))
        .created();
    let stored = || server.get("/api/projects/1/dashboards/1/").json()["filters"].clone();
    let save = |fields: &[(&str, &str)]| {
        let fields = [&[("do", "save"), ("name", "b"), ("from", "-30d")], fields].concat();
        post(&server, "dashboard/1", &fields)
    };
    assert_eq!(figures(&page(&server, "dashboard/1")), ["12"]);
    let row = [("has_filters", "1"), ("f1.key", "plan"), ("f1.value", "pro"), ("f2.value", "")];
    assert_eq!(save(&row).status, 303);
    let expected = json!([{"key": "plan", "value": "pro", "type": "event", "operator": "exact"}]);
    assert_eq!(stored()["properties"], expected);
    assert_eq!(figures(&page(&server, "dashboard/1")), ["4"]);
    let form = page(&server, "dashboard/1/edit");
    assert!(form.contains("name=\"f1.key\"") && form.contains("value=\"pro\""), "{form}");
    assert!(form.contains("name=\"f2.key\""), "{form}");
    let several =
        [("has_filters", "1"), ("f1.key", "plan"), ("f1.value", "pro"), ("f1.value", "free")];
    assert_eq!(save(&several).status, 303);
    assert_eq!(figures(&page(&server, "dashboard/1")), ["12"]);
    // A form without fields for them changes none, and one that is wrong is told.
    assert_eq!(save(&[]).status, 303);
    assert!(stored()["properties"].is_array(), "{}", stored());
    let wrong = save(&[("has_filters", "1"), ("f1.key", "plan")]);
    assert!(wrong.status == 400 && text(&wrong).contains("f1.value"), "{wrong}");
    assert_eq!(save(&[("has_filters", "1")]).status, 303);
    assert_eq!(stored(), json!({"date_from": "-30d"}));
    // Groups of filters stay until they are removed.
    let groups = json!({"type": "OR", "values": [{"type": "AND", "values": [
        {"key": "plan", "value": "pro", "type": "event"}, {"key": "os", "operator": "is_set", "type": "event"}]},
        {"type": "AND", "values": [{"key": "plan", "value": "x", "type": "event"}]}]});
    server.patch("/api/projects/1/dashboards/1/", &json!({"filters": {"properties": groups}}));
    let form = page(&server, "dashboard/1/edit");
    assert!(form.contains("name=\"without_filters\"") && !form.contains("f1.key"), "{form}");
    assert_eq!(save(&[]).status, 303);
    assert_eq!(stored()["properties"], groups);
    assert_eq!(save(&[("without_filters", "1")]).status, 303);
    assert_eq!(stored(), json!({"date_from": "-30d"}));
}

/// Goal: SQL is saved as its page shows it, and shown wherever insights are. Method: the form, then each page; clients read it.
#[test]
fn sql_is_saved_with_its_chart() {
    let server = TestServer::start();
    world(&server);
    let sql =
        "SELECT properties.plan AS plan, count(*) AS n\nFROM events\nGROUP BY plan ORDER BY plan";
    let asked = [("q", sql), ("chart", "bars")];
    let address = form_urlencoded::Serializer::new(String::new()).extend_pairs(asked).finish();
    let shown = page(&server, &format!("sql?{address}"));
    assert!(shown.contains("name=\"kind\" value=\"sql\""), "{shown}");
    let fields = [
        ("kind", "sql"),
        ("question", sql),
        ("chart", "bars"),
        ("name", HOSTILE),
        ("dashboard", "new"),
    ];
    let saved = post(&server, "insights", &fields);
    assert_eq!((saved.status, saved.header("location")), (303, Some("/project/1/dashboard/1")));
    let insights = server.get("/api/projects/1/insights/?saved=true").json();
    let own = insights["results"].as_array().expect("insights");
    let own = own.iter().find(|own| own["name"] == HOSTILE).expect("it is saved");
    assert_eq!(own["query"]["kind"], "DataVisualizationNode");
    assert_eq!(own["query"]["source"], json!({"kind": "HogQLQuery", "query": sql}));
    assert_eq!(own["query"]["display"], "ActionsBar");
    let short_id = own["short_id"].as_str().expect("a short id");
    // The board has the chart alone, its own page both, and the way back.
    let board = page(&server, "dashboard/1");
    assert!(board.contains("<svg") && !board.contains("<table class=\"grid\""), "{board}");
    let alone = page(&server, &format!("insights/{short_id}"));
    assert!(alone.contains("<svg") && alone.contains("<table class=\"grid\""), "{alone}");
    let back = format!("sql?{address}").replace('&', "&amp;");
    assert!(alone.contains(&back), "{alone}");
    assert!(page(&server, "insights").contains("<td class=\"short\">SQL</td>"));
    let typed = page(&server, "sql");
    assert!(typed.contains("<summary>Saved</summary>") && typed.contains(short_id), "{typed}");
    assert_eq!(post(&server, &format!("insights/{short_id}/share"), &[("do", "on")]).status, 303);
    let alone = page(&server, &format!("insights/{short_id}"));
    let token = alone.split("/shared/").nth(1).and_then(|rest| rest.split('<').next());
    let shared = server.send("GET", &format!("/shared/{}", token.expect("a token")), &[], "");
    let shared = text(&shared);
    assert!(shared.contains("<svg") && shared.contains("<table class=\"grid\""), "{shared}");
    for fields in [&[("kind", "sql"), ("name", "x")][..], &[("kind", "sql"), ("question", " \n")]] {
        assert_eq!(post(&server, "insights", fields).status, 400, "{fields:?}");
    }
}

/// Goal: a dashboard comes to another project as it is, from here or from PostHog. Method: what is exported there again.
#[test]
fn dashboards_are_exported_and_imported() {
    let server = TestServer::start();
    let ids = world(&server);
    let tiles: Vec<Value> = ids
        .iter()
        .map(|id| json!({"insight": id, "layouts": {"sm": {"x": 0, "y": id, "w": 12, "h": 5}}}))
        .chain([json!({"text": {"body": HOSTILE}, "color": "blue"})])
        .collect();
    let board = json!({"name": HOSTILE, "description": "All of it", "tiles": tiles,
        "filters": {"date_from": "-40d"}, "tags": ["weekly"],
        "variables": {"v1": {"code_name": "plan", "value": "pro"}}});
    server.post("/api/projects/1/dashboards/", &board).created();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created()["id"].clone();
    let export = |project: &Value, id: i64| {
        let answer = server.get(&format!("/project/{project}/dashboard/{id}/export"));
        assert_eq!(answer.status, 200, "{answer}");
        let name = answer.header("content-disposition").unwrap_or_default().to_owned();
        assert_eq!(name, format!("attachment; filename=\"dashboard-{id}.json\""));
        answer.json()
    };
    let import = |project: &Value, text: &str| {
        let mut body = form_urlencoded::Serializer::new(String::new());
        let body = body.append_pair("dashboard", text).finish();
        let bearer = format!("Bearer {KEY}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        server.send("POST", &format!("/project/{project}/dashboard/import"), &headers, body)
    };
    let own = export(&json!(1), 1);
    assert_eq!(own["tiles"].as_array().map(Vec::len), Some(5), "{own}");
    assert!(!own.to_string().contains("result"), "{own}");
    let id_of = |location: Option<&str>| -> i64 {
        location.and_then(|own| own.rsplit('/').next()?.parse().ok()).expect("an id")
    };
    let made = import(&other, &own.to_string());
    assert_eq!(made.status, 303, "{made}");
    assert_eq!(export(&other, id_of(made.header("location"))), own);
    // What the API tells, as a PostHog server would.
    let told = server.get("/api/projects/1/dashboards/1/?refresh=blocking").json();
    let made = import(&other, &told.to_string());
    assert_eq!(export(&other, id_of(made.header("location"))), own);
    // Nothing stays of what is refused in its middle.
    let count = || {
        let found = server.get(&format!("/api/projects/{other}/insights/?basic=true")).json();
        found["count"].as_u64().expect("a count")
    };
    let before = count();
    let mut wrong = own.clone();
    wrong["tiles"][4]["text"]["body"] = json!("x".repeat(5000));
    assert_eq!(import(&other, &wrong.to_string()).status, 400);
    assert_eq!(count(), before);
    for text in ["", "nothing", "{}", "{\"tiles\": 1}"] {
        assert_eq!(import(&other, text).status, 400, "{text}");
    }
}
