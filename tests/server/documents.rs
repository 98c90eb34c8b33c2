//! What users save: actions and the events that they count, insights, annotations and dashboards, with the parameters of
//! their lists. Successful responses of every operation are in `operations`, strangers in `isolation`.

use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::owner::with;

const BASE: &str = "/api/projects/@current";

fn ids(page: &Value) -> Vec<i64> {
    let results = page["results"].as_array().expect("a list");
    results.iter().map(|item| item["id"].as_i64().expect("an id")).collect()
}

/// The events of some people on the pages of a shop; `elements` are chains as browsers send them.
fn visits(server: &TestServer) {
    let click = |id: &str, url: &str, elements: &str| {
        json!({"event": "$autocapture", "distinct_id": id, "timestamp": "2026-01-06T10:00:00Z",
               "properties": {"$current_url": url, "$elements_chain": elements}})
    };
    let view = |id: &str, url: &str, plan: &str| {
        json!({"event": "$pageview", "distinct_id": id, "timestamp": "2026-01-06T11:00:00Z",
               "properties": {"$current_url": url, "plan": plan}})
    };
    let buy = r#"span:nth-child="1"nth-of-type="1"text="Buy now";button.buy.big:attr__data-attr="buy"nth-child="2"nth-of-type="1";div.shop:nth-child="1"nth-of-type="1""#;
    let link = r#"a.link:attr__href="/Cart"href="/Cart"nth-child="1"nth-of-type="1"text="Cart";div.shop:nth-child="1"nth-of-type="1""#;
    let old = json!({"event": "$autocapture", "distinct_id": "d", "timestamp": "2026-01-06T12:00:00Z",
        "properties": {"$elements": [
            {"tag_name": "button", "$el_text": "Buy now", "attr__class": "buy", "nth_child": 1, "nth_of_type": 1},
            {"tag_name": "form", "attr__id": "order", "nth_child": 1, "nth_of_type": 1}]}});
    let batch = json!([
        click("a", "https://x.com/shop", buy),
        click("b", "https://x.com/shop/2", buy),
        click("b", "https://x.com/shop", link),
        view("a", "https://x.com/shop", "free"),
        view("c", "https://x.com/Shop?a=1", "pro"),
        json!({"event": "order", "distinct_id": "c", "timestamp": "2026-01-06T12:00:00Z"}),
        old,
    ]);
    assert_eq!(server.capture(&batch).status, 200);
}

/// How many events of an action there are by newer and by older clients.
fn counted(server: &TestServer, id: &Value) -> (Value, Value) {
    let series = json!({"kind": "ActionsNode", "id": id, "name": "it"});
    let range = json!({"date_from": "2026-01-05", "date_to": "2026-01-07"});
    let query = json!({"kind": "TrendsQuery", "series": [series], "dateRange": range});
    let answer = server.post(&format!("{BASE}/query/"), &json!({"query": query}));
    assert_eq!(answer.status, 200, "{answer}");
    let newer = answer.json()["results"][0]["count"].clone();
    let filter = json!({"actions": [{"id": id, "type": "actions"}], "date_from": "2026-01-05",
                        "date_to": "2026-01-07"});
    let answer = server.post(&format!("{BASE}/insights/trend/"), &filter);
    assert_eq!(answer.status, 200, "{answer}");
    (newer, answer.json()["result"][0]["count"].clone())
}

/// What a step means is PostHog's documentation of actions.
#[test]
fn actions_count_the_events_that_match_a_step() {
    let mut server = TestServer::start();
    visits(&server);
    let cases = [
        (json!([{"event": "order"}]), 1),
        (json!([{"event": "order"}, {"event": "$pageview"}]), 3),
        (json!([]), 0),
        (json!([{}]), 7),
        (json!([{"event": "$pageview", "url": "/shop"}]), 1),
        (json!([{"url": "/shop"}]), 4),
        (json!([{"url": "x.com%2"}]), 1),
        (json!([{"url": "https://x.com/shop", "url_matching": "exact"}]), 3),
        (json!([{"url": "/[sS]hop(\\?|$)", "url_matching": "regex"}]), 4),
        (json!([{"event": "$pageview", "properties": [{"key": "plan", "value": "pro"}]}]), 1),
        (json!([{"event": "$autocapture", "text": "Buy now"}]), 3),
        (json!([{"text": "buy", "text_matching": "contains"}, {"event": "order"}]), 4),
        (json!([{"href": "/Cart"}]), 1),
        (json!([{"href": "^/C", "href_matching": "regex"}]), 1),
        (json!([{"tag_name": "button"}]), 3),
        (json!([{"selector": ".shop > button[data-attr=\"buy\"]"}]), 2),
        (json!([{"selector": "#order button.buy"}]), 1),
        (json!([{"selector": ".shop span", "url": "/shop/2"}]), 1),
    ];
    let ids = cases.map(|(steps, expected)| {
        let made = server.post(&format!("{BASE}/actions/"), &json!({"steps": steps})).created();
        (made["id"].clone(), steps, expected)
    });
    for round in ["in memory", "in files"] {
        for (id, steps, expected) in &ids {
            let expected = f64::from(*expected);
            let told = counted(&server, id);
            assert_eq!(
                (told.0.as_f64(), told.1.as_f64()),
                (Some(expected), Some(expected)),
                "{round}: {steps}"
            );
        }
        server.stop();
        server.restart();
    }
    // The persons behind a point.
    let of = |id: &Value| {
        let path = format!(
            "{BASE}/persons/trends/?entity_id={id}&entity_type=actions&date_from=2026-01-05"
        );
        let answer = server.get(&path);
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["results"][0]["count"].clone()
    };
    assert_eq!(of(&ids[10].0), 3);
    // A changed action counts what it is now; a deleted one nothing.
    let (id, ..) = &ids[0];
    let changed =
        server.patch(&format!("{BASE}/actions/{id}/"), &json!({"steps": [{"event": "$pageview"}]}));
    assert_eq!(changed.status, 200, "{changed}");
    assert_eq!(counted(&server, id).0.as_f64(), Some(2.0));
    let path = format!("{BASE}/actions/{id}/");
    assert_eq!(server.patch(&path, &json!({"deleted": true})).json()["deleted"], true);
    for id in [id.clone(), json!(999)] {
        let query = json!({"kind": "TrendsQuery", "series": [{"kind": "ActionsNode", "id": id}]});
        let refused = server.post(&format!("{BASE}/query/"), &json!({"query": query}));
        assert_eq!(
            (refused.status, &refused.json()["attr"]),
            (400, &json!("query__series__0__id"))
        );
    }
    assert_eq!(server.patch(&path, &json!({"deleted": false})).status, 200);
    assert_eq!(counted(&server, id).0.as_f64(), Some(2.0));
}

#[test]
fn wrong_documents_are_refused_by_their_field() {
    let server = TestServer::start();
    let long = "x".repeat(401);
    for (path, body, attr) in [
        ("actions", json!({"steps": [{"url": "(", "url_matching": "regex"}]}), "steps__0__url"),
        ("actions", json!({"steps": [{"text_matching": "like"}]}), "steps__0__text_matching"),
        ("actions", json!({"steps": [{"properties": 1}]}), "steps__0__properties"),
        ("actions", json!({"steps": [{"selector": "a:hover"}]}), "steps__0__selector"),
        ("actions", json!({"steps": vec![json!({}); 51]}), "steps"),
        ("insights", json!({"name": long}), "name"),
        ("insights", json!({"query": "SELECT 1"}), "query"),
        ("insights", json!({"dashboards": [9]}), "dashboards"),
        ("annotations", json!({"scope": "world"}), "scope"),
        ("annotations", json!({"dashboard_item": 9}), "dashboard_item"),
        ("annotations", json!({"date_marker": "soon"}), "date_marker"),
    ] {
        let answer = server.post(&format!("{BASE}/{path}/"), &body);
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)), "{path} {body}");
    }
    let huge = json!({"filters": {"x": "x".repeat(70_000)}});
    assert_eq!(server.post(&format!("{BASE}/insights/"), &huge).status, 400);
    for path in ["actions/9/", "actions/x/", "insights/9/", "insights/trends/", "annotations/9/"] {
        assert_eq!(server.get(&format!("{BASE}/{path}")).status, 404, "{path}");
    }
    for (question, attr) in [
        ("order=color", "order"),
        ("saved=perhaps", "saved"),
        ("favorited=2", "favorited"),
        ("basic=yes please", "basic"),
        ("pinned=x", "pinned"),
        ("created_by=me", "created_by"),
        ("created_by=[\"x\"]", "created_by"),
        ("dashboards={}", "dashboards"),
        ("tags=sales", "tags"),
        ("date_from=soon", "date_from"),
        ("date_to=soon", "date_to"),
        ("refresh=soon", "refresh"),
        ("filters_override=[]", "filters_override"),
    ] {
        let answer = server.get(&with(&format!("{BASE}/insights/"), question));
        assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)), "{question}");
    }
}

#[test]
fn saved_insights_are_found_by_their_fields() {
    let server = TestServer::start();
    let made = |body: Value| server.post(&format!("{BASE}/insights/"), &body).created();
    let board = server.post(&format!("{BASE}/dashboards/"), &json!({"name": "b"})).created();
    let trends = json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "series": []}});
    let one = made(json!({"name": "Beta", "query": trends, "saved": true, "tags": ["Sales"]}));
    let two = made(json!({"derived_name": "alpha", "filters": {"insight": "FUNNELS"}}));
    let three = made(json!({"name": "Gamma", "favorited": true, "dashboards": [board["id"]]}));
    let found = |question: &str| {
        let answer = server.get(&with(&format!("{BASE}/insights/"), question));
        assert_eq!(answer.status, 200, "{question}: {answer}");
        ids(&answer.json())
    };
    let [one, two, three] = [one, two, three].map(|made| {
        let short_id = made["short_id"].as_str().expect("a short id").to_owned();
        assert!(short_id.len() == 8 && short_id.chars().all(|c| c.is_ascii_alphanumeric()));
        (made["id"].as_i64().expect("an id"), short_id)
    });
    assert_ne!(one.1, two.1);
    let short = format!("short_id={}", two.1);
    let on_board = format!("dashboards=[{}]", board["id"]);
    for (question, expected) in [
        ("", vec![three.0, two.0, one.0]),
        // Who keeps an insight on a dashboard means to keep it.
        ("saved=true", vec![three.0, one.0]),
        ("saved=false", vec![three.0, two.0]),
        ("favorited=true", vec![three.0]),
        (&short, vec![two.0]),
        ("search=ALPHA", vec![two.0]),
        ("search=sale", vec![one.0]),
        ("insight=TRENDS", vec![one.0]),
        ("insight=FUNNELS", vec![two.0]),
        ("user=true", vec![three.0, two.0, one.0]),
        ("created_by=99", vec![]),
        ("created_by=[99,1]", vec![three.0, two.0, one.0]),
        ("tags=[\"SALES\",\"x\"]", vec![one.0]),
        (&on_board, vec![three.0]),
        ("dashboards=[99]", vec![]),
        ("date_from=-1d", vec![three.0, two.0, one.0]),
        ("date_from=2090-01-01", vec![]),
        ("date_to=2090-01-01", vec![three.0, two.0, one.0]),
        ("date_to=-1d", vec![]),
        ("insight=SQL", vec![]),
        ("basic=true", vec![three.0, two.0, one.0]),
        ("order=created_at", vec![one.0, two.0, three.0]),
        ("order=-name", vec![three.0, one.0, two.0]),
        ("limit=1&offset=1", vec![two.0]),
    ] {
        assert_eq!(found(question), expected, "{question}");
    }
    let path = format!("{BASE}/insights/{}/", one.0);
    let changed = server.patch(&path, &json!({"name": "New", "query": null})).json();
    assert_eq!((&changed["name"], &changed["query"]), (&json!("New"), &Value::Null));
    assert_eq!((&changed["short_id"], &changed["tags"]), (&json!(one.1), &json!(["sales"])));
    assert_eq!(found("order=-last_modified_at")[0], one.0);
    // A fixed part of a path is not the id of an insight.
    assert!(server.get(&format!("{BASE}/insights/trend/")).json()["result"].is_array());

    let viewed = || {
        let list = server.get(&format!("{BASE}/insights/my_last_viewed/")).json();
        let list = list.as_array().expect("a list").clone();
        list.iter().map(|insight| insight["id"].as_i64().expect("an id")).collect::<Vec<_>>()
    };
    assert_eq!(viewed(), [0; 0]);
    for id in [one.0, three.0, one.0] {
        assert_eq!(server.post(&format!("{BASE}/insights/{id}/viewed/"), &json!({})).status, 201);
    }
    assert_eq!(viewed(), [one.0, three.0]);
    assert_eq!(server.post(&format!("{BASE}/insights/99/viewed/"), &json!({})).status, 404);
    assert_eq!(server.patch(&path, &json!({"deleted": true})).status, 200);
    assert_eq!((viewed(), found("")), (vec![three.0], vec![three.0, two.0]));
    assert_eq!(server.get(&path).json()["deleted"], true);
    let log = server.get(&format!("{path}activity/")).json();
    let told: Vec<_> = log["results"].as_array().expect("a list").iter().collect();
    assert_eq!(told.len(), 3, "{log}");
    assert_eq!((&told[2]["activity"], &told[0]["scope"]), (&json!("created"), &json!("Insight")));
    assert_eq!(told[0]["detail"]["changes"][0]["field"], "deleted");
}

#[test]
fn dashboards_show_insights_and_texts() {
    let server = TestServer::start();
    let insight = |name: &str, boards: Value| {
        let body = json!({"name": name, "dashboards": boards});
        server.post(&format!("{BASE}/insights/"), &body).created()["id"].clone()
    };
    let first = insight("first", json!([]));
    let path = format!("{BASE}/dashboards/");
    let tiles = json!([{"text": {"body": "Hello"}, "color": "blue"},
                       {"insight": {"id": first}, "layouts": {"sm": {"x": 1}}}]);
    let board = server.post(&path, &json!({"name": "Mine", "tiles": tiles})).created();
    let second = insight("second", json!([board["id"]]));
    let board = format!("{path}{}/", board["id"]);
    let shown = || {
        let tiles = server.get(&board).json()["tiles"].as_array().expect("tiles").clone();
        let of = |tile: &Value| (tile["text"]["body"].clone(), tile["insight"]["id"].clone());
        tiles.iter().map(of).collect::<Vec<_>>()
    };
    let hello = || (json!("Hello"), Value::Null);
    let of = |insight: &Value| (Value::Null, insight.clone());
    assert_eq!(shown(), [hello(), of(&first), of(&second)]);
    let whole = server.get(&board).json();
    assert_eq!(whole["tiles"][1]["insight"]["name"], "first");
    assert_eq!(whole["tiles"][1]["layouts"], json!({"sm": {"x": 1}}));
    let gone = server.patch(&format!("{BASE}/insights/{first}/"), &json!({"deleted": true}));
    assert_eq!(gone.status, 200, "{gone}");
    assert_eq!(shown(), [hello(), of(&second)]);
    let wrong = server.patch(&board, &json!({"tiles": [{"insight": first}]}));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("tiles")));
    // What is not sent of the tiles stays.
    assert_eq!(server.patch(&board, &json!({"tiles": [], "pinned": true})).status, 200);
    assert_eq!(shown(), [hello(), of(&second)]);
    let gone = json!({"tiles": [{"id": whole["tiles"][0]["id"], "deleted": true}]});
    assert_eq!(server.patch(&board, &gone).status, 200);
    assert_eq!(shown(), [of(&second)]);
    let list = server.get(&format!("{path}?pinned=true")).json();
    assert_eq!((&list["count"], list["results"][0].get("tiles")), (&json!(1), None));
    // The dashboard of a flag's usage is one like others.
    let flag = server.post(&format!("{BASE}/feature_flags/"), &json!({"key": "beta"})).created();
    let usage = server.get(&format!("{path}{}/", flag["usage_dashboard"])).json();
    assert_eq!(usage["name"], "Generated Dashboard: beta Usage");
}

/// The oldest insight has a place of its own, and more newer ones than are shown have none.
#[test]
fn placed_insights_are_shown_however_many_others_there_are() {
    let server = TestServer::start();
    let path = format!("{BASE}/insights/");
    let placed = server.post(&path, &json!({"name": "placed"})).created()["id"].clone();
    let board = json!({"name": "Mine", "tiles": [{"insight": {"id": placed}}]});
    let board = server.post(&format!("{BASE}/dashboards/"), &board).created()["id"].clone();
    for _ in 0..501 {
        server.post(&path, &json!({"dashboards": [board]})).created();
    }
    let whole = server.get(&format!("{BASE}/dashboards/{board}/")).json();
    assert_eq!(whole["tiles"][0]["insight"]["name"], "placed");
    assert_eq!(whole["tiles"].as_array().map(Vec::len), Some(501));
}

#[test]
fn annotations_belong_to_a_time_and_a_place() {
    let server = TestServer::start();
    let path = format!("{BASE}/annotations/");
    let insight = server.post(&format!("{BASE}/insights/"), &json!({"name": "i"})).created();
    let marker = "2026-01-02T03:04:05Z";
    let of_insight =
        json!({"content": "Launch", "date_marker": marker, "dashboard_item": insight["id"]});
    let one = server.post(&path, &of_insight).created();
    assert_eq!(one["date_marker"], "2026-01-02T03:04:05.000000Z");
    assert_eq!(one["insight_short_id"], insight["short_id"]);
    assert_eq!((&one["scope"], &one["creation_type"]), (&json!("dashboard_item"), &json!("USR")));
    let other =
        json!({"content": "Sale", "scope": "project", "date_marker": "2026-02-01T00:00:00Z"});
    let two = server.post(&path, &other).created();
    let found = |question: &str| ids(&server.get(&format!("{path}?{question}")).json());
    let [one, two] = [one, two].map(|made| made["id"].as_i64().expect("an id"));
    for (question, expected) in [
        ("", vec![two, one]),
        ("search=launch", vec![one]),
        ("scope=project", vec![two]),
        ("order=date_marker", vec![one, two]),
    ] {
        assert_eq!(found(question), expected, "{question}");
    }
    let free = json!({"dashboard_item": null, "date_marker": null});
    let changed = server.patch(&format!("{path}{one}/"), &free).json();
    assert_eq!(
        (&changed["insight_short_id"], &changed["date_marker"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(server.patch(&format!("{path}{one}/"), &json!({"deleted": true})).status, 200);
    assert_eq!(found(""), [two]);
}
