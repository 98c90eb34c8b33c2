//! Sources that are no Weir: a PostHog with answers in the forms of its API where these differ from Weir's, and servers that
//! misbehave.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{TestServer, beside};
use crate::transfer::SECRET;

const P: &str = "/api/projects/1234/";

/// Status, further headers, body.
type Told = (u16, &'static str, String);

type Handler = dyn Fn(&str, &str) -> Told + Send + Sync;

/// A server that answers by a function of the path and the body.
pub(super) struct Source {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Source {
    fn new(handler: impl Fn(&str, &str) -> Told + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (notes, handler): (_, Arc<Handler>) = (Arc::clone(&asked), Arc::new(handler));
        beside(move || {
            for socket in listener.incoming().flatten() {
                // The client may hang up, which is no fault of this server.
                let _ = answer(socket, &*handler, &notes);
            }
        });
        Self { address, asked }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far: method and path.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// The project 1234 of a PostHog; every third request is throttled first.
    pub(super) fn posthog() -> Self {
        let count = AtomicUsize::new(0);
        Self::new(move |path, body| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            if number % 3 == 2 {
                let told = json!({"type": "throttled_error", "code": "throttled",
                    "detail": "Request was throttled. Expected available in 0 seconds.", "attr": null});
                return (429, "retry-after: 0\r\n", told.to_string());
            }
            posthog(path, body)
        })
    }

    /// Servers that misbehave, and what is said of each.
    pub(super) fn hostile() -> Vec<(Self, &'static str)> {
        let project = json!({"id": 1, "name": "x", "api_token": "phc_x"}).to_string();
        let but = move |at: &'static str, told: Told| {
            let project = project.clone();
            let times = json!({"results": [[2, "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"]]});
            Self::new(move |path, body| match path {
                path if path.contains("query") && body.contains("min(timestamp)") => {
                    (200, "", times.to_string())
                }
                path if path.contains(at) => told.clone(),
                "/api/projects/1/" => (200, "", project.clone()),
                path if path.contains("groups_types") => (200, "", "[]".to_owned()),
                path if path.contains("query") => (200, "", "{\"results\": []}".to_owned()),
                _ => (200, "", "{\"results\": [], \"next\": null}".to_owned()),
            })
        };
        let page =
            |next: &str| (200, "", json!({"results": [{"id": 1}], "next": next}).to_string());
        let rows = |rows: Value| (200, "", json!({"results": rows}).to_string());
        let event = |day: &str| {
            json!([
                "018e7f5a-0000-7000-8000-000000000001",
                "e",
                "d",
                format!("{day}T00:00:00Z"),
                "{}",
                "",
            ])
        };
        let twice = |days: [&str; 2]| Value::from(days.map(event).to_vec());
        let many = vec![event("2026-01-01"); 4_001];
        let endless = Self::new(|path, _| match path {
            "/api/projects/1/" => (200, "", json!({"id": 1, "api_token": "phc_x"}).to_string()),
            path if path.contains("groups_types") => (200, "", "[]".to_owned()),
            path => {
                let next = format!("{}x", path.trim_end_matches('/'));
                (200, "", json!({"results": [], "next": next}).to_string())
            }
        });
        vec![
            (
                but("/projects/1/", (200, "", "<!doctype html><p>Sign in".to_owned())),
                "HTML instead of JSON",
            ),
            (but("/projects/1/", (200, "", "[1]".to_owned())), "the project is no object"),
            (
                but("/projects/1/", (302, "location: https://evil.example/\r\n", String::new())),
                "a redirect",
            ),
            // A server that says the key back.
            (
                but(
                    "cohorts",
                    (401, "", json!({"detail": format!("no such key {SECRET}")}).to_string()),
                ),
                "no such key ***",
            ),
            (
                but("cohorts", page("https://evil.example/api/projects/1/cohorts/?a")),
                "another host: evil.example",
            ),
            (but("cohorts", page("/api/projects/1/cohorts/?limit=500")), "in a circle"),
            (but("persons", (200, "", json!({"results": "x"}).to_string())), "no list of results"),
            (but("groups_types", (200, "", "{".to_owned())), "no JSON"),
            (but("flags", (200, "", "[".repeat(200_000))), "no JSON"),
            (but("insights", (200, "", " ".repeat(65 << 20))), "more than 67108864 bytes"),
            (
                but("query", rows(json!([["x", "e", "d", "2026-01-01T00:00:00Z", "{}", ""]]))),
                "an event has no id",
            ),
            (but("query", rows(json!([[7]]))), "an event has no timestamp"),
            (but("query", rows(twice(["2026-01-02", "2026-01-01"]))), "do not come in the order"),
            (but("query", rows(Value::Array(many))), "more events come than were asked for"),
            (endless, "one empty page follows the other"),
        ]
    }
}

/// Reads one request and answers it.
fn answer(
    mut socket: TcpStream,
    handler: &Handler,
    notes: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 64 << 10];
    let (head, body) = loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                break (head.to_owned(), body.to_owned());
            }
        }
        let read = socket.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&piece[..read]);
    };
    let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1");
    notes.lock().push(line.to_owned());
    let authorized = head.contains(&format!("authorization: Bearer {SECRET}"));
    let path = line.split_once(' ').map_or("", |(_, path)| path);
    let (status, headers, body) = match authorized {
        true => handler(path, &body),
        false => (401, "", "{}".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} x\r\n{headers}connection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

fn page(results: Value) -> Told {
    (200, "", json!({"count": 1, "next": null, "previous": null, "results": results}).to_string())
}

/// The answers of PostHog's API, with the fields that its serializers write.
fn posthog(path: &str, body: &str) -> Told {
    let Some(rest) = path.strip_prefix(P).or_else(|| path.strip_prefix("/api/projects/1/")) else {
        return (404, "", json!({"detail": "Not found."}).to_string());
    };
    let (list, query) = rest.split_once('?').unwrap_or((rest, ""));
    match list {
        "" => (200, "", json!({
            "id": 1234, "organization": "018e7f5a-0000-7000-8000-000000000000", "name": "Hedgehogs", "api_token": "phc_hogs",
            "timezone": "America/New_York", "week_start_day": null, "anonymize_ips": false, "session_recording_opt_in": true,
            "test_account_filters": [{"key": "email", "type": "person", "value": "@posthog.com", "operator": "not_icontains"}],
            "person_display_name_properties": null, "data_attributes": ["data-attr"],
        }).to_string()),
        "groups_types/" => (200, "", json!([{"group_type": "organization", "group_type_index": 0, "name_singular": null,
            "name_plural": null, "detail_dashboard": null, "default_columns": null, "created_at": null}]).to_string()),
        // Cursors.
        "groups/" if query.contains("cursor") => (200, "", json!({"next": null, "previous": null, "results": [group("b")]}).to_string()),
        "groups/" => (200, "", json!({"next": format!("{P}groups/?cursor=x"), "previous": null, "results": [group("a")]}).to_string()),
        "persons/" if query.contains("offset=2") => (200, "", json!({"results": [person(3)], "next": null, "previous": null}).to_string()),
        "persons/" => (200, "", json!({"results": [person(1), person(2)], "previous": null,
            "next": format!("{P}persons/?limit=200&offset=2")}).to_string()),
        "query/" => (200, "", events(body).to_string()),
        "cohorts/" => page(json!([
            {"id": 70, "name": "By query", "description": "", "groups": [], "deleted": false, "filters": null,
             "query": {"kind": "HogQLQuery", "query": "SELECT 1"}, "is_calculating": false, "is_static": false, "count": 1},
            {"id": 71, "name": "Old form", "description": null, "groups": [{"properties": [{"key": "plan", "type": "person", "value": "pro", "operator": "exact"}]}],
             "deleted": false, "filters": null, "query": null, "is_static": false, "count": null},
            {"id": 72, "name": "Static", "description": "", "groups": [], "deleted": false, "filters": {"properties": {}}, "query": null,
             "is_static": true, "count": 2},
        ])),
        "cohorts/72/persons/" => (200, "", json!({"next": null, "previous": null, "results": [
            {"people": [person(1), person(3)], "count": 2}], "missing_persons": 0}).to_string()),
        "actions/" => page(json!([{"id": 80, "name": "Clicked", "description": "", "post_to_slack": false, "slack_message_format": "",
            "steps": [{"event": "$autocapture", "properties": null, "selector": null, "tag_name": null, "text": "Buy", "text_matching": "exact",
                "href": null, "href_matching": null, "url": null, "url_matching": null, "selector_regex": null}],
            "created_at": "2024-01-01T00:00:00Z", "deleted": false, "is_calculating": false, "tags": [], "team_id": 1234, "is_action": true,
            "bytecode_error": null, "pinned_at": null, "creation_context": null, "_create_in_folder": null, "user_access_level": "editor"}])),
        "feature_flags/" => page(json!([
            {"id": 901, "key": "new", "name": "", "active": true, "deleted": false, "archived": false, "tags": ["a"], "evaluation_tags": ["docs"],
             "filters": {"groups": [{"variant": null, "properties": [
                {"key": "id", "type": "cohort", "value": 71, "operator": "in", "cohort_name": "Old form"}], "rollout_percentage": 40}],
                "payloads": {}, "multivariate": null}, "rollback_conditions": null, "performed_rollback": false,
             "ensure_experience_continuity": null, "experiment_set": [], "analytics_dashboards": [1000], "created_at": "2024-01-01T00:00:00Z",
             "has_encrypted_payloads": false, "bucketing_identifier": null, "evaluation_runtime": "all", "is_remote_configuration": false},
            {"id": 902, "key": "secret", "name": "s", "active": true, "deleted": false, "filters": {"groups": [{"properties": [], "rollout_percentage": 100}],
                "payloads": {"true": "********* (encrypted)"}}, "is_remote_configuration": true, "has_encrypted_payloads": true},
        ])),
        "early_access_feature/" => page(json!([])),
        "scheduled_changes/" => page(json!([
            {"id": 1, "team_id": 1234, "record_id": "901", "model_name": "FeatureFlag", "payload": {"operation": "update_status", "value": false},
             "scheduled_at": "2024-02-01T00:00:00Z", "executed_at": "2024-02-01T00:00:10Z", "failure_reason": null, "is_recurring": false},
            {"id": 2, "team_id": 1234, "record_id": "901", "model_name": "FeatureFlag", "payload": {"operation": "update_status", "value": false},
             "scheduled_at": "2098-02-01T00:00:00Z", "executed_at": null, "failure_reason": null, "is_recurring": false, "recurrence_interval": null,
             "last_executed_at": null, "end_date": null, "failure_count": 0},
        ])),
        "insights/" => page(json!([
            insight(500, "Weekly", json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "version": 2, "tags": {"productKey": "x"},
                "series": [{"kind": "ActionsNode", "id": 80, "name": "Clicked", "math": "total"}], "interval": "day",
                "breakdownFilter": {"breakdown": [71], "breakdown_type": "cohort"}, "trendsFilter": {"showLegend": true}}}), json!({})),
            insight(501, "Of a warehouse", json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "series": [
                {"kind": "ActionsNode", "id": 81, "name": "Gone"}]}}), json!({})),
            insight(502, "Older", json!(null), json!({"insight": "TRENDS", "events": [{"id": "$pageview", "type": "events", "order": 0}], "date_from": "-7d"})),
            insight(503, "SQL", json!({"kind": "DataVisualizationNode", "source": {"kind": "HogQLQuery",
                "query": "SELECT count() FROM events WHERE person_id IN COHORT 72"}}), json!({})),
        ])),
        "dashboards/" => page(json!([{"id": 1000, "name": "KPIs", "deleted": false, "is_shared": true}])),
        "dashboards/1000/" => (200, "", json!({"id": 1000, "name": "KPIs", "description": "", "pinned": true, "is_shared": true, "deleted": false,
            "creation_mode": "default", "filters": {"date_from": "-7d", "hog": 1}, "variables": null, "breakdown_colors": [], "data_color_theme_id": null, "tags": [],
            "restriction_level": 21, "tiles": [
                {"id": 1, "layouts": {"sm": {"x": 0, "y": 0, "w": 6, "h": 5}}, "color": "blue", "insight": {"id": 500, "short_id": "s500", "result": [1, 2]}, "text": null},
                {"id": 2, "layouts": {}, "color": null, "insight": null, "text": {"id": 9, "body": "# Hello", "last_modified_at": "2024-01-01T00:00:00Z"}},
                {"id": 3, "layouts": {}, "color": null, "insight": {"id": 502}, "deleted": true},
            ]}).to_string()),
        "annotations/" => page(json!([{"id": 1, "content": "Launch", "date_marker": "2024-03-01T12:00:00+01:00", "creation_type": "USR",
            "dashboard_item": null, "dashboard_id": 1000, "dashboard_name": "KPIs", "insight_short_id": null, "deleted": false, "scope": "dashboard"}])),
        "event_definitions/" => page(json!([{"id": "018e7f5a-0000-7000-8000-0000000000e1", "name": "$pageview", "description": "A page",
            "tags": ["web"], "verified": true, "hidden": null, "created_at": "2023-05-06T07:08:09Z", "last_seen_at": null, "owner": null}])),
        "property_definitions/" => page(json!([])),
        "surveys/" => (200, "", json!({"count": 2, "results": [{"id": "x"}]}).to_string()),
        // Of a plan that the project has not.
        "experiments/" => (402, "", json!({"detail": "This feature is part of the premium offering."}).to_string()),
        _ => (404, "", json!({"type": "invalid_request", "code": "not_found", "detail": "Endpoint not found.", "attr": null}).to_string()),
    }
}

fn group(key: &str) -> Value {
    json!({"group_type_index": 0, "group_key": key, "group_properties": {"name": key}, "created_at": "2024-01-01T00:00:00Z"})
}

fn person(number: u32) -> Value {
    let uuid = format!("018e7f5a-0000-7000-8000-00000000000{number}");
    json!({"type": "person", "id": uuid, "uuid": uuid, "created_at": format!("2024-01-0{number}T00:00:00.123000Z"),
        "properties": {"email": format!("p{number}@x.y"), "$creator_event_uuid": format!("018e7f5a-1111-7000-8000-00000000000{number}")},
        "is_identified": number == 1, "name": "x", "distinct_ids": [format!("p{number}"), format!("p{number}-device")],
        "matched_recordings": [], "value_at_data_point": null})
}

/// Insights as a list has them, `basic=true`.
fn insight(id: u32, name: &str, query: Value, filters: Value) -> Value {
    json!({"id": id, "short_id": format!("s{id}"), "name": name, "derived_name": null, "query": query, "filters": filters,
        "dashboards": [1000], "dashboard_tiles": [{"id": 1, "dashboard_id": 1000}], "description": "", "last_refresh": null,
        "refreshing": null, "saved": true, "favorited": false, "tags": [], "order": null, "deleted": false,
        "updated_at": "2024-01-01T00:00:00Z", "created_by": null, "created_at": "2024-01-01T00:00:00Z"})
}

/// Events as HogQL answers: times in the zone of the project, properties as text.
fn events(body: &str) -> Value {
    let body: Value = serde_json::from_str(body).unwrap();
    let sql = body["query"]["query"].as_str().unwrap();
    if sql.contains("min(timestamp)") {
        let times = [
            json!(3),
            json!("2024-06-15T10:30:00.123000-04:00"),
            json!("2024-06-15T10:30:02-04:00"),
        ];
        return json!({"columns": ["events", "first", "last"], "results": [times]});
    }
    assert!(sql.contains("ORDER BY timestamp, toString(uuid) LIMIT "), "{sql}");
    let from =
        sql.split("timestamp >= toDateTime64('").nth(1).and_then(|rest| rest.split('\'').next());
    let id = |number: u32| format!("018e7f5a-2222-7000-8000-00000000000{number}");
    // The time in UTC, the time in the zone of the project, the name, the properties, the elements.
    let rows = [
        (
            "2024-06-15 14:30:00.123000",
            "2024-06-15T10:30:00.123000-04:00",
            "$pageview",
            r#"{"$current_url": "https://x.y/", "$ip": "1.2.3.4", "$set": {"email": "old"}}"#,
            "",
        ),
        (
            "2024-06-15 14:30:01.000001",
            "2024-06-15T10:30:01.000001-04:00",
            "$autocapture",
            "{}",
            "a.link:text=\"Buy\";div",
        ),
        (
            "2024-06-15 14:30:02.000000",
            "2024-06-15T14:30:02Z",
            "paid",
            r#"{"amount": 1.50, "$groups": {"organization": "a"}, "$group_0": "a"}"#,
            "",
        ),
    ];
    let rows = (1..).zip(rows).filter(|(_, row)| Some(row.0) >= from);
    let rows = rows.map(|(number, (_, at, event, properties, chain))| {
        json!([id(number), event, "p1", at, properties, chain])
    });
    let columns = ["id", "event", "distinct_id", "timestamp", "properties", "elements_chain"];
    json!({"columns": columns, "hasMore": false, "results": rows.collect::<Vec<_>>()})
}

/// Checks what has come of `posthog`.
pub(super) fn check_posthog(target: &TestServer) {
    let get = |path: &str| target.get(&format!("/api/projects/1/{path}")).json();
    let one = |path: &str, name: &str| {
        let list = get(path);
        let rows = list["results"].as_array().unwrap().clone();
        rows.into_iter()
            .find(|own| own["name"] == name || own["key"] == name)
            .unwrap_or_else(|| panic!("{name}: {list}"))
    };
    let project = get("");
    assert_eq!(
        (&project["timezone"], &project["name"] == "Hedgehogs"),
        (&json!("America/New_York"), false)
    );
    assert_eq!(project["test_account_filters"][0]["value"], "@posthog.com");
    let rows = target.query("SELECT uuid, event, timestamp, properties, elements_chain, ip, group_0 FROM events ORDER BY timestamp");
    assert_eq!(rows.len(), 3, "{rows:?}");
    let times: Vec<&str> = rows.iter().map(|row| row["timestamp"].as_str().unwrap()).collect();
    assert_eq!(
        times,
        ["2024-06-15T14:30:00.123Z", "2024-06-15T14:30:01.000001Z", "2024-06-15T14:30:02Z"]
    );
    assert_eq!(rows[0]["uuid"], "018e7f5a-2222-7000-8000-000000000001");
    assert_eq!((&rows[0]["ip"], &rows[1]["ip"]), (&json!("1.2.3.4"), &Value::Null));
    assert_eq!(rows[1]["elements_chain"], "a.link:text=\"Buy\";div");
    assert_eq!(rows[2]["group_0"], "a");
    assert!(rows[2]["properties"].as_str().unwrap().contains("\"amount\": 1.50"), "{rows:?}");
    let person = get("persons/?distinct_id=p1-device")["results"][0].clone();
    assert_eq!(person["distinct_ids"], json!(["p1", "p1-device"]));
    assert_eq!(person["created_at"], "2024-01-01T00:00:00.123000Z");
    // Of now, not of the event.
    assert_eq!(
        person["properties"],
        json!({"email": "p1@x.y", "$creator_event_uuid": "018e7f5a-1111-7000-8000-000000000001"})
    );
    assert_eq!(get("groups/?group_type_index=0")["count"], 2);
    let (old, list) = (one("cohorts/", "Old form"), one("cohorts/", "Static"));
    let members = get(&format!("cohorts/{}/persons/", list["id"]));
    assert_eq!(members["count"], 2, "{members}");
    let flag = one("feature_flags/", "new");
    assert_eq!(flag["filters"]["groups"][0]["properties"][0]["value"], old["id"]);
    assert_eq!(
        (&flag["evaluation_contexts"], &flag["created_at"]),
        (&json!(["docs"]), &json!("2024-01-01T00:00:00.000000Z"))
    );
    let action = one("actions/", "Clicked");
    let weekly = one("insights/?basic=true", "Weekly");
    let source = &weekly["query"]["source"];
    assert_eq!(
        (&source["series"][0]["id"], &source["breakdownFilter"]["breakdown"][0]),
        (&action["id"], &old["id"])
    );
    let sql = one("insights/?basic=true", "SQL")["query"]["source"]["query"].clone();
    assert_eq!(
        sql,
        json!(format!("SELECT count() FROM events WHERE person_id IN COHORT {}", list["id"]))
    );
    assert_eq!(one("insights/?basic=true", "Older")["filters"]["insight"], "TRENDS");
    let board = one("dashboards/", "KPIs");
    let board = get(&format!("dashboards/{}/", board["id"]));
    let tiles = board["tiles"].as_array().unwrap();
    assert_eq!(
        (tiles.len(), &tiles[0]["insight"]["id"], &tiles[1]["text"]["body"]),
        (2, &weekly["id"], &json!("# Hello"))
    );
    assert_eq!(flag["analytics_dashboards"], json!([board["id"]]));
    let note = get("annotations/")["results"][0].clone();
    assert_eq!(
        (&note["dashboard_id"], &note["date_marker"]),
        (&board["id"], &json!("2024-03-01T11:00:00.000000Z"))
    );
    let definition = get("event_definitions/by_name/?name=$pageview");
    assert_eq!(
        (&definition["description"], &definition["created_at"]),
        (&json!("A page"), &json!("2023-05-06T07:08:09.000000Z"))
    );
    let changes = get("scheduled_changes/");
    assert_eq!(
        (&changes["count"], &changes["results"][0]["record_id"]),
        (&json!(1), &json!(flag["id"].to_string()))
    );
}
