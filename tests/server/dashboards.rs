//! Dashboards: how tiles change, move and are copied, and how insights and dashboards know each other; who may change
//! a restricted one. Results of tiles are in `saved_insights`.

use serde_json::{Value, json};

use crate::harness::TestServer;

const BASE: &str = "/api/projects/@current";

struct Boards<'s>(&'s TestServer);

impl Boards<'_> {
    fn made(&self, body: &Value) -> Value {
        self.0.post(&format!("{BASE}/dashboards/"), body).created()
    }

    fn insight(&self, name: &str, boards: &Value) -> Value {
        let body = json!({"name": name, "dashboards": boards});
        self.0.post(&format!("{BASE}/insights/"), &body).created()["id"].clone()
    }

    fn change(&self, path: &str, body: &Value) -> Value {
        let answer = self.0.patch(&format!("{BASE}/{path}"), body);
        assert_eq!(answer.status, 200, "{path} {body}: {answer}");
        answer.json()
    }

    fn refused(&self, path: &str, body: &Value) -> Value {
        let answer = self.0.patch(&format!("{BASE}/{path}"), body);
        assert_eq!(answer.status, 400, "{path} {body}: {answer}");
        answer.json()["attr"].clone()
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.0.get(&format!("{BASE}/{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer}");
        answer.json()
    }

    /// The tiles of a dashboard: ids, and texts or names of insights.
    fn shown(&self, board: &Value) -> Vec<(i64, String)> {
        let tiles = self.get(&format!("dashboards/{board}/"))["tiles"].clone();
        let of = |tile: &Value| {
            let text = tile["text"]["body"].as_str().or(tile["insight"]["name"].as_str());
            (tile["id"].as_i64().expect("an id"), text.expect("a name").to_owned())
        };
        tiles.as_array().expect("tiles").iter().map(of).collect()
    }

    fn boards_of(&self, insight: &Value) -> Value {
        self.get(&format!("insights/{insight}/"))["dashboards"].clone()
    }
}

fn names(tiles: &[(i64, String)]) -> Vec<&str> {
    tiles.iter().map(|(_, name)| name.as_str()).collect()
}

#[test]
fn tiles_and_insights_know_each_other() {
    let server = TestServer::start();
    let all = Boards(&server);
    let first = all.insight("first", &json!([]));
    let tiles = json!([{"text": {"body": "Hello"}}, {"insight": first, "color": "blue"}]);
    let board = all.made(&json!({"name": "b", "tiles": tiles}))["id"].clone();
    assert_eq!(all.boards_of(&first), json!([board]));
    let insight = all.get(&format!("insights/{first}/"));
    let id = insight["dashboard_tiles"][0]["id"].as_i64().expect("an id");
    assert_eq!(insight["dashboard_tiles"][0]["dashboard_id"], board);
    assert_eq!(all.shown(&board)[1], (id, "first".to_owned()));
    // A place by the id alone, also for an insight that has none yet.
    let second = all.insight("second", &json!([board]));
    let ids: Vec<i64> = all.shown(&board).iter().map(|(id, _)| *id).collect();
    let path = format!("dashboards/{board}/");
    let sent = json!({"tiles": [
        {"id": ids[2], "layouts": {"sm": {"x": 1}}}, {"id": ids[0], "text": {"body": "Bye"}},
        {"text": {"body": "More"}}]});
    let changed = all.change(&path, &sent);
    assert_eq!(names(&all.shown(&board)), ["Bye", "first", "second", "More"]);
    assert_eq!(changed["tiles"][2]["layouts"], json!({"sm": {"x": 1}}));
    assert_eq!(changed["tiles"][1]["color"], "blue");
    assert_eq!(all.refused(&path, &json!({"tiles": [{"id": 99}]})), "tiles");
    assert_eq!(all.refused(&path, &json!({"tiles": [{"id": 1, "color": 1}]})), "tiles__0");
    // Each of them takes the insight off the dashboard.
    all.change(&format!("insights/{first}/"), &json!({"dashboards": []}));
    all.change(&path, &json!({"tiles": [{"id": ids[2], "deleted": true}]}));
    assert_eq!(names(&all.shown(&board)), ["Bye", "More"]);
    assert_eq!((all.boards_of(&first), all.boards_of(&second)), (json!([]), json!([])));
}

#[test]
fn tiles_move_to_other_dashboards() {
    let server = TestServer::start();
    let all = Boards(&server);
    let insight = all.insight("one", &json!([]));
    let tiles = json!([{"text": {"body": "Hello"}}, {"insight": insight, "color": "red"}]);
    let from = all.made(&json!({"tiles": tiles}))["id"].clone();
    let to = all.made(&json!({"tiles": [{"text": {"body": "There"}}]}))["id"].clone();
    let path = format!("dashboards/{from}/move_tile/");
    let ids: Vec<i64> = all.shown(&from).iter().map(|(id, _)| *id).collect();
    for id in [ids[1], ids[0]] {
        let body = json!({"tile": {"id": id}, "toDashboard": to});
        assert_eq!(all.change(&path, &body)["id"], from);
    }
    assert_eq!(all.shown(&from), []);
    assert_eq!(names(&all.shown(&to)), ["There", "one", "Hello"]);
    assert_eq!(all.boards_of(&insight), json!([to]));
    assert_eq!(all.get(&format!("dashboards/{to}/"))["tiles"][1]["color"], "red");
    for (body, attr) in [
        (json!({"toDashboard": to}), "tile"),
        (json!({"tile": {"id": ids[0]}}), "toDashboard"),
        (json!({"tile": {"id": ids[0]}, "toDashboard": 99}), "toDashboard"),
        (json!({"tile": {"id": ids[0]}, "toDashboard": from}), "toDashboard"),
        (json!({"tile": {"id": ids[0]}, "toDashboard": to}), "tiles"),
    ] {
        assert_eq!(all.refused(&path, &body), attr, "{body}");
    }
    assert_eq!(server.patch(&format!("{BASE}/dashboards/99/move_tile/"), &json!({})).status, 404);
}

#[test]
fn tiles_are_copied_to_other_dashboards_and_put_in_an_order() {
    let server = TestServer::start();
    let all = Boards(&server);
    let insight = all.insight("one", &json!([]));
    let tiles = json!([{"text": {"body": "Hello"}}, {"insight": insight, "color": "red"}]);
    let from = all.made(&json!({"tiles": tiles}))["id"].clone();
    let late = all.insight("late", &json!([from]));
    let to = all.made(&json!({"tiles": [{"text": {"body": "There"}}]}))["id"].clone();
    let copy = format!("{BASE}/dashboards/{to}/copy_tile/");
    let ids: Vec<i64> = all.shown(&from).iter().map(|(id, _)| *id).collect();
    for id in &ids {
        let copied = server.post(&copy, &json!({"fromDashboardId": from, "tileId": id}));
        assert_eq!((copied.status, &copied.json()["id"]), (200, &to), "{copied}");
    }
    assert_eq!(names(&all.shown(&from)), ["Hello", "one", "late"], "it stays");
    assert_eq!(names(&all.shown(&to)), ["There", "Hello", "one", "late"]);
    assert_eq!(all.boards_of(&insight), json!([from, to]));
    assert_eq!(all.boards_of(&late), json!([from, to]));

    let order = format!("{BASE}/dashboards/{from}/reorder_tiles/");
    let sorted = server.post(&order, &json!({"tile_order": [ids[2], ids[1]]}));
    assert_eq!(sorted.status, 200, "{sorted}");
    assert_eq!(names(&all.shown(&from)), ["late", "one", "Hello"]);
    let place = |at: usize| sorted.json()["tiles"][at]["layouts"]["sm"].clone();
    assert_eq!(place(0), json!({"x": 0, "y": 0, "w": 6, "h": 5}));
    assert_eq!(place(1), json!({"x": 6, "y": 0, "w": 6, "h": 5}));
    assert_eq!(place(2), json!({"x": 0, "y": 5, "w": 6, "h": 5}));

    for (path, body, attr) in [
        (&copy, json!({"tileId": ids[0]}), "fromDashboardId"),
        (&copy, json!({"fromDashboardId": from}), "tileId"),
        (&copy, json!({"fromDashboardId": 99, "tileId": ids[0]}), "fromDashboardId"),
        (&copy, json!({"fromDashboardId": from, "tileId": 77}), "tiles"),
        (&copy, json!({"fromDashboardId": from, "tileId": ids[1]}), "tiles"),
        (&order, json!({}), "tile_order"),
        (&order, json!({"tile_order": []}), "tile_order"),
        (&order, json!({"tile_order": "x"}), "tile_order"),
        (&order, json!({"tile_order": [77]}), "tiles"),
    ] {
        let refused = server.post(path, &body);
        assert_eq!((refused.status, &refused.json()["attr"]), (400, &json!(attr)), "{body}");
    }
    for path in ["copy_tile", "reorder_tiles"] {
        let unknown = server.post(&format!("{BASE}/dashboards/99/{path}/"), &json!({}));
        assert_eq!(unknown.status, 404, "{unknown}");
    }
}

#[test]
fn dashboards_are_copied_and_deleted_with_their_insights() {
    let server = TestServer::start();
    let all = Boards(&server);
    let first = all.insight("first", &json!([]));
    let tiles = json!([{"text": {"body": "Hello"}}, {"insight": first, "layouts": {"sm": 1}}]);
    let filters = json!({"date_from": "-3d"});
    let board = all.made(&json!({"name": "a", "filters": filters, "tiles": tiles}))["id"].clone();
    let second = all.insight("second", &json!([board]));
    let same = all.made(&json!({"name": "b", "use_dashboard": board}));
    assert_eq!((&same["creation_mode"], &same["filters"]), (&json!("duplicate"), &filters));
    assert_eq!(names(&all.shown(&same["id"])), ["Hello", "first", "second"]);
    assert_eq!(all.boards_of(&second), json!([board, same["id"]]));
    let deep = json!({"name": "c", "use_dashboard": board, "duplicate_tiles": true, "filters": {}});
    let deep = all.made(&deep);
    assert_eq!(deep["filters"], json!({}));
    let shown = all.shown(&deep["id"]);
    assert_eq!(names(&shown), ["Hello", "first (Copy)", "second (Copy)"]);
    assert_eq!(deep["tiles"][1]["layouts"], json!({"sm": 1}));
    assert_ne!(deep["tiles"][1]["insight"]["short_id"], same["tiles"][1]["insight"]["short_id"]);
    let unknown = server.post(&format!("{BASE}/dashboards/"), &json!({"use_dashboard": 99}));
    assert_eq!((unknown.status, &unknown.json()["attr"]), (400, &json!("use_dashboard")));
    // With one dashboard go the insights that no other one shows.
    all.change(&format!("insights/{second}/"), &json!({"dashboards": [board]}));
    let end = json!({"deleted": true, "delete_insights": true});
    all.change(&format!("dashboards/{board}/"), &end);
    let is_deleted = |insight: &Value| all.get(&format!("insights/{insight}/"))["deleted"].clone();
    assert_eq!((is_deleted(&first), is_deleted(&second)), (json!(false), json!(true)));
    assert_eq!(names(&all.shown(&same["id"])), ["Hello", "first"]);
}

#[test]
fn restricted_dashboards_are_changed_by_their_creator_and_admins() {
    let server = TestServer::start();
    let all = Boards(&server);
    let member = json!({"email": "mel@acme.com"});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let bearer = format!("Bearer {}", member["personal_api_key"].as_str().expect("a key"));
    let as_member = |method: &str, path: &str, body: &Value| {
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let project = path.replace("@current", "1");
        server.send(method, &project, &headers, body.to_string())
    };
    let board = all.made(&json!({"name": "mine", "restriction_level": 37}));
    let path = format!("{BASE}/dashboards/{}/", board["id"]);
    assert_eq!(
        (&board["effective_restriction_level"], &board["effective_privilege_level"]),
        (&json!(37), &json!(37))
    );
    let seen = as_member("GET", &path, &json!({}));
    assert_eq!(
        (seen.status, &seen.json()["effective_privilege_level"]),
        (200, &json!(21)),
        "{seen}"
    );
    let insight = json!({"name": "x", "dashboards": [board["id"]]});
    let other = all.made(&json!({"name": "free"}));
    let moved = json!({"tile": {"id": 1}, "toDashboard": board["id"]});
    for (method, path, body) in [
        ("PATCH", path.clone(), json!({"name": "stolen"})),
        (
            "PATCH",
            format!("{path}move_tile/"),
            json!({"tile": {"id": 1}, "toDashboard": other["id"]}),
        ),
        ("PATCH", format!("{BASE}/dashboards/{}/move_tile/", other["id"]), moved),
        ("POST", format!("{path}copy_tile/"), json!({"fromDashboardId": other["id"], "tileId": 1})),
        ("POST", format!("{path}reorder_tiles/"), json!({"tile_order": [1]})),
        ("POST", format!("{BASE}/insights/"), insight),
    ] {
        let refused = as_member(method, &path, &body);
        assert_eq!(refused.status, 403, "{method} {path}: {refused}");
    }
    // The member's own one, which an admin opens.
    let own = as_member("POST", &format!("{BASE}/dashboards/"), &json!({"restriction_level": 37}));
    let own = format!("{BASE}/dashboards/{}/", own.created()["id"]);
    assert_eq!(as_member("PATCH", &own, &json!({"name": "n"})).status, 200);
    assert_eq!(server.patch(&own, &json!({"restriction_level": 21})).status, 200);
    let free = format!("{BASE}/dashboards/{}/", other["id"]);
    let refused = as_member("PATCH", &free, &json!({"restriction_level": 37}));
    assert_eq!(refused.status, 403, "{refused}");
    assert_eq!(as_member("PATCH", &free, &json!({"name": "n"})).status, 200);
}
