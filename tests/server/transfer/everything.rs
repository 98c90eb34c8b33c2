//! A project with a bit of everything, and what is compared of it: every object with what it refers to by its name, since
//! the ids of two servers differ.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::harness::TestServer;

const P: &str = "/api/projects/1/";

/// Names of all kinds: quotes, controls of direction, an emoji of several characters, letters of every width.
const ODD: &str = "Ünï \"q\" 'a' \\ \u{202e}rtl\u{202c} 👩‍👩‍👧 漢字 a\u{301} <b>%2F&?#";

fn id(object: &Value) -> i64 {
    object["id"].as_i64().unwrap_or_else(|| panic!("no id: {object}"))
}

fn made(server: &TestServer, path: &str, body: Value) -> Value {
    let answer = server.post(&format!("{P}{path}"), &body);
    assert_eq!(answer.status, 201, "{path} {body}: {answer}");
    answer.json()
}

fn changed(server: &TestServer, path: &str, body: Value) {
    let answer = server.patch(&format!("{P}{path}"), &body);
    assert_eq!(answer.status, 200, "{path} {body}: {answer}");
}

/// Makes ids of the target others than those of the source.
pub(super) fn shift_ids(server: &TestServer) {
    for number in 0..7 {
        let name = format!("other {number}");
        let cohort = made(server, "cohorts/", json!({"name": name, "is_static": true}));
        changed(server, &format!("cohorts/{}/", id(&cohort)), json!({"deleted": true}));
        for path in ["actions/", "insights/", "dashboards/", "annotations/"] {
            let own = made(server, path, json!({}));
            changed(server, &format!("{path}{}/", id(&own)), json!({"deleted": true}));
        }
        let flag = made(server, "feature_flags/", json!({"key": format!("other-{number}")}));
        changed(server, &format!("feature_flags/{}/", id(&flag)), json!({"deleted": true}));
    }
}

fn rule(values: Value) -> Value {
    json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": values}]}})
}

fn in_cohort(cohort: i64) -> Value {
    json!({"key": "id", "type": "cohort", "value": cohort, "operator": "in"})
}

/// Fills the first project of a server.
pub(super) fn fill(server: &TestServer) {
    data(server);
    let cohorts = cohorts(server);
    let actions = actions(server, &cohorts);
    settings(server, &cohorts);
    flags(server, &cohorts);
    let insights = insights(server, &cohorts, &actions);
    dashboards(server, &insights);
    definitions(server);
}

/// Events, persons and groups.
fn data(server: &TestServer) {
    let capture = |events: Vec<Value>, is_past: bool| {
        let body = json!({
            "api_key": crate::harness::TOKEN, "batch": events, "historical_migration": is_past,
        });
        let sent = server.send(
            "POST",
            "/batch/",
            &[("content-type", "application/json")],
            body.to_string(),
        );
        assert_eq!(sent.status, 200, "{sent}");
    };
    // 4,500 events of one time, more than a page, and 900 over a month; with numbers that doubles do not have.
    let event = |number: usize, at: String| {
        let person = format!("user {}", number % 40);
        let raw = format!(
            r#"{{"number": {number}, "price": {}.50, "big": 12345678901234567890, "text": {}, "$browser": "Firefox", "$ip": "198.51.100.7"}}"#,
            number % 9,
            json!(ODD)
        );
        let properties: Value = serde_json::from_str(&raw).unwrap();
        json!({"event": "viewed", "distinct_id": person, "timestamp": at, "properties": properties,
            "uuid": uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, number.to_string().as_bytes())})
    };
    let at = "2026-03-04T05:06:07.000089Z".to_owned();
    capture((0..4_500).map(|number| event(number, at.clone())).collect(), true);
    let day =
        |number: usize| format!("2026-02-{:02}T{:02}:06:07.123456Z", number % 28 + 1, number % 24);
    capture((4_500..5_400).map(|number| event(number, day(number))).collect(), true);
    capture(
        vec![
            json!({"event": ODD, "distinct_id": ODD, "timestamp": "2026-01-02T03:04:05.000006Z", "properties": {
                "$set": {"email": "ada@example.com", "plan": "pro", "nested": {"a": [1, null, ODD]}, "none": null, ODD: ODD}}}),
            json!({"event": "$autocapture", "distinct_id": ODD, "timestamp": "2026-01-02T03:04:06Z", "properties": {
                "$elements_chain": "button.buy:text=\"Buy \\\"now\\\"\"nth-child=\"1\"nth-of-type=\"1\";div:nth-child=\"1\"nth-of-type=\"1\""}}),
            json!({"event": "quiet", "distinct_id": "nobody", "timestamp": "2026-01-02T03:04:07Z", "properties": {
                "$process_person_profile": false}}),
            json!({"event": "$groupidentify", "distinct_id": ODD, "timestamp": "2026-01-01T00:00:00Z", "properties": {
                "$group_type": "company", "$group_key": "acme", "$group_set": {"size": 3, "name": ODD}}}),
            json!({"event": "$groupidentify", "distinct_id": ODD, "timestamp": "2026-01-01T00:00:01Z", "properties": {
                "$group_type": "projét", "$group_key": ODD, "$group_set": {}}}),
            json!({"event": "joined", "distinct_id": ODD, "timestamp": "2026-01-02T03:04:08Z", "properties": {
                "$groups": {"company": "acme", "team": "x", "projét": ODD}}}),
        ],
        true,
    );
    // Persons that were merged in several ways, one of them with many ids, one split again, one deleted.
    let merge = |first: &str, other: &str| {
        json!({"event": "$merge_dangerously", "distinct_id": first, "properties": {"alias": other},
            "timestamp": "2026-01-05T00:00:00Z"})
    };
    let mut events: Vec<Value> = (0..1_200).map(|n| merge("many", &format!("many {n}"))).collect();
    events.extend([
        json!({"event": "$identify", "distinct_id": "bob", "properties": {"$anon_distinct_id": "device", "$set": {"plan": "free"}}}),
        json!({"event": "$create_alias", "distinct_id": "bob", "properties": {"alias": "robert 漢"}}),
        merge("left", "right"),
        json!({"event": "x", "distinct_id": "gone"}),
    ]);
    capture(events, true);
    let members = (0..1_500).map(|n| {
        json!({"event": "$set", "distinct_id": format!("member {n}"), "timestamp": "2026-01-06T00:00:00Z",
            "properties": {"$set": {"n": n}}})
    });
    capture(members.collect(), true);
    let person = |distinct_id: &str| {
        let found = server.get(&format!("{P}persons/?distinct_id={distinct_id}")).json();
        found["results"][0]["uuid"].as_str().unwrap().to_owned()
    };
    let split = server.post(
        &format!("{P}persons/{}/split/", person("left")),
        &json!({"main_distinct_id": "left"}),
    );
    assert_eq!(split.status, 201, "{split}");
    assert_eq!(server.delete(&format!("{P}persons/{}/", person("gone"))).status, 202);
    let set = server.patch(
        &format!("{P}persons/{}/", person("bob")),
        &json!({"properties": {"plan": "by hand"}}),
    );
    assert_eq!(set.status, 202, "{set}");
    changed(
        server,
        "groups_types/update_metadata/",
        json!([{"group_type_index": 0, "name_singular": "company", "name_plural": "companies"}]),
    );
}

struct Cohorts {
    pro: i64,
    list: i64,
    nested: i64,
    doers: i64,
}

fn cohorts(server: &TestServer) -> Cohorts {
    let cohort = |name: &str, values: Value| {
        id(&made(
            server,
            "cohorts/",
            json!({"name": name, "description": ODD, "filters": rule(values)}),
        ))
    };
    let pro = cohort(
        ODD,
        json!([{"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}]),
    );
    // The same name twice, with other rules.
    cohort("twin", json!([{"key": "a", "type": "person", "value": ["1"], "operator": "exact"}]));
    cohort("twin", json!([{"key": "a", "type": "person", "value": ["2"], "operator": "exact"}]));
    let ids: Vec<String> = (0..1_500).map(|n| format!("member {n}")).collect();
    let list = id(&made(
        server,
        "cohorts/",
        json!({"name": "A list", "is_static": true, "distinct_ids": ids}),
    ));
    made(server, "cohorts/", json!({"name": "An empty list", "is_static": true}));
    let inner = cohort(
        "inner",
        json!([in_cohort(pro), {"key": "id", "type": "cohort", "value": list, "negation": true}]),
    );
    let nested = cohort("outer", json!([in_cohort(inner)]));
    let action = id(&made(
        server,
        "actions/",
        json!({"name": "For a cohort", "steps": [{"event": "viewed"}]}),
    ));
    let doers = cohort(
        "doers",
        json!([{"key": action, "type": "behavioral", "value": "performed_event", "event_type": "actions",
            "time_value": 30, "time_interval": "day"}]),
    );
    // A circle: the action asks for the cohort of those who did it.
    changed(
        server,
        &format!("actions/{action}/"),
        json!({"steps": [{"event": "viewed", "properties": [in_cohort(doers)]}]}),
    );
    Cohorts { pro, list, nested, doers }
}

fn actions(server: &TestServer, cohorts: &Cohorts) -> Vec<i64> {
    let bodies = [
        json!({"name": ODD, "description": ODD, "tags": ["b", "a"], "steps": [
            {"event": "$autocapture", "text": "Buy now", "text_matching": "exact", "selector": "button.buy"},
            {"event": "viewed", "url": "/shop", "url_matching": "contains"}]}),
        json!({"name": "Of a cohort", "steps": [{"event": "viewed", "properties": [in_cohort(cohorts.nested)]}]}),
        json!({"name": "Nothing", "pinned_at": "2026-01-02T03:04:05Z"}),
    ];
    bodies.into_iter().map(|body| id(&made(server, "actions/", body))).collect()
}

fn settings(server: &TestServer, cohorts: &Cohorts) {
    changed(
        server,
        "",
        json!({"timezone": "Europe/Berlin", "week_start_day": 1, "person_display_name_properties": ["nick", "email"],
            "test_account_filters": [{"key": "id", "type": "cohort", "value": cohorts.list, "operator": "not_in"}]}),
    );
}

fn flags(server: &TestServer, cohorts: &Cohorts) {
    let flag = |body: Value| id(&made(server, "feature_flags/", body));
    let when = |flag: i64, value: Value| json!({"type": "flag", "key": flag.to_string(), "operator": "flag_evaluates_to", "value": value});
    let groups = |properties: Value| json!({"groups": [{"properties": properties, "rollout_percentage": 50}]});
    // Made in an order in which later flags have the lower ids: their conditions come afterwards.
    let last = flag(json!({"key": "last", "name": ODD}));
    let middle = flag(json!({"key": "middle", "active": true}));
    let base = flag(json!({"key": "base", "name": "Base", "tags": ["x", ODD], "filters": {
        "groups": [{"properties": [in_cohort(cohorts.pro)], "rollout_percentage": 30, "variant": "b"}],
        "multivariate": {"variants": [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]},
        "payloads": {"a": "{\"x\": [1, \"ü\"]}"}}}));
    changed(
        server,
        &format!("feature_flags/{middle}/"),
        json!({"filters": groups(json!([when(base, json!("b"))]))}),
    );
    changed(
        server,
        &format!("feature_flags/{last}/"),
        json!({"filters": groups(json!([when(middle, json!(true)), when(base, json!("a"))]))}),
    );
    // Off, one after the other, although one depends on the other; and in the archive.
    let off = flag(
        json!({"key": "off-base", "filters": {"groups": [{"properties": [], "rollout_percentage": 100}]}}),
    );
    let on_off =
        flag(json!({"key": "off-user", "filters": groups(json!([when(off, json!(true))]))}));
    changed(server, &format!("feature_flags/{on_off}/"), json!({"active": false}));
    changed(server, &format!("feature_flags/{off}/"), json!({"active": false}));
    let old = flag(json!({"key": "old", "active": false}));
    changed(server, &format!("feature_flags/{old}/"), json!({"archived": true}));
    flag(
        json!({"key": "of-groups", "evaluation_runtime": "server", "evaluation_contexts": ["docs"],
        "filters": {"aggregation_group_type_index": 1, "groups": [{"properties": [
            {"key": "size", "type": "group", "group_type_index": 1, "operator": "gt", "value": "2"}], "rollout_percentage": 10}]}}),
    );
    flag(
        json!({"key": "config", "is_remote_configuration": true, "ensure_experience_continuity": false,
        "filters": {"groups": [{"properties": [], "rollout_percentage": 100}], "payloads": {"true": "{\"a\": 1}"}}}),
    );
    let beta = flag(
        json!({"key": "beta", "filters": groups(json!([{"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}]))}),
    );
    made(
        server,
        "early_access_feature/",
        json!({"name": ODD, "description": "D", "stage": "beta",
        "documentation_url": "https://example.com/x", "payload": {"a": 1}, "feature_flag_id": beta}),
    );
    let concept = flag(json!({"key": "concept"}));
    made(
        server,
        "early_access_feature/",
        json!({"name": "Concept", "stage": "concept", "feature_flag_id": concept}),
    );
    for (payload, more) in [
        (json!({"operation": "update_status", "value": false}), json!({})),
        (
            json!({"operation": "add_release_condition", "value": {"groups": [{"properties": [in_cohort(cohorts.list)], "rollout_percentage": 5}]}}),
            json!({}),
        ),
        (
            json!({"operation": "update_status", "value": true}),
            json!({"is_recurring": true, "recurrence_interval": "weekly", "end_date": "2099-01-01T00:00:00Z"}),
        ),
    ] {
        let mut body = json!({"record_id": base.to_string(), "model_name": "FeatureFlag", "payload": payload,
            "scheduled_at": "2098-05-06T07:08:09Z"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        made(server, "scheduled_changes/", body);
    }
}

fn insights(server: &TestServer, cohorts: &Cohorts, actions: &[i64]) -> Vec<i64> {
    let viewed = json!({"kind": "EventsNode", "event": "viewed", "name": "viewed"});
    let action = json!({"kind": "ActionsNode", "id": actions[0], "name": "an action"});
    let viz = |source: Value| json!({"kind": "InsightVizNode", "source": source});
    let filter =
        json!([{"key": "id", "type": "cohort", "value": cohorts.nested, "operator": "in"}]);
    let queries = [
        viz(
            json!({"kind": "TrendsQuery", "series": [viewed, action], "properties": filter, "dateRange": {"date_from": "all"},
            "breakdownFilter": {"breakdown_type": "cohort", "breakdown": ["all", cohorts.pro, cohorts.list]},
            "trendsFilter": {"display": "ActionsLineGraph", "formula": "A + B"}}),
        ),
        viz(
            json!({"kind": "FunnelsQuery", "series": [viewed, action], "dateRange": {"date_from": "all"},
            "funnelsFilter": {"funnelWindowInterval": 7, "exclusions": [{"kind": "ActionsNode", "id": actions[1], "funnelFromStep": 0, "funnelToStep": 1}]}}),
        ),
        viz(
            json!({"kind": "RetentionQuery", "retentionFilter": {"period": "Week", "totalIntervals": 4,
            "targetEntity": {"type": "actions", "id": actions[0]}, "returningEntity": {"type": "events", "id": "viewed"}}}),
        ),
        viz(
            json!({"kind": "PathsQuery", "pathsFilter": {"includeEventTypes": ["custom_event"], "stepLimit": 4}}),
        ),
        viz(json!({"kind": "StickinessQuery", "series": [viewed], "properties": filter})),
        viz(json!({"kind": "LifecycleQuery", "series": [action]})),
        json!({"kind": "DataVisualizationNode", "source": {"kind": "HogQLQuery",
            "query": format!("SELECT count() FROM events WHERE person_id IN COHORT {} AND event != 'in cohort {}'", cohorts.pro, cohorts.pro)}}),
        json!({"kind": "DataTableNode", "source": {"kind": "EventsQuery", "select": ["event", "timestamp"], "actionId": actions[0], "after": "all"}}),
        json!({"kind": "DataTableNode", "source": {"kind": "ActorsQuery", "select": ["id"], "properties": filter}}),
        json!({"kind": "SomethingOfLater", "what": [1, {"a": ODD}]}),
    ];
    let mut ids: Vec<i64> = queries
        .into_iter()
        .enumerate()
        .map(|(number, query)| {
            let name = format!("{number} {ODD}");
            id(&made(server, "insights/", json!({"name": name, "description": "D", "query": query, "tags": ["t"], "favorited": number == 0})))
        })
        .collect();
    let older = json!({"insight": "TRENDS", "date_from": "-7d",
        "actions": [{"id": actions[0], "type": "actions", "order": 0}],
        "properties": [{"key": "id", "type": "cohort", "value": cohorts.doers}]});
    ids.push(id(&made(server, "insights/", json!({"name": "older", "filters": older}))));
    // Without names, and the same twice.
    for _ in 0..2 {
        ids.push(id(&made(
            server,
            "insights/",
            json!({"query": viz(json!({"kind": "LifecycleQuery", "series": [viewed]}))}),
        )));
    }
    ids
}

fn dashboards(server: &TestServer, insights: &[i64]) {
    let tiles: Vec<Value> = insights
        .iter()
        .enumerate()
        .map(|(number, id)| json!({"insight": id, "color": "blue", "layouts": {"sm": {"x": number % 2 * 6, "y": number, "w": 6, "h": 5}}}))
        .chain([json!({"text": {"body": ODD}, "layouts": {"sm": {"x": 0, "y": 99, "w": 12, "h": 1}}})])
        .collect();
    let board = id(&made(
        server,
        "dashboards/",
        json!({"name": ODD, "description": ODD, "pinned": true, "tags": ["k"],
        "filters": {"date_from": "-30d"}, "restriction_level": 37, "tiles": tiles}),
    ));
    made(server, "dashboards/", json!({"name": "Second", "tiles": [{"insight": insights[0]}]}));
    made(server, "dashboards/", json!({"name": "Empty"}));
    for body in [
        json!({"content": ODD, "date_marker": "2026-03-04T05:06:07Z", "scope": "project"}),
        json!({"content": "On a board", "date_marker": "2026-03-05T00:00:00Z", "scope": "dashboard", "dashboard_id": board}),
        json!({"content": "On an insight", "date_marker": "2026-03-06T00:00:00Z", "scope": "dashboard_item", "dashboard_item": insights[1]}),
        json!({"content": "On an insight", "date_marker": "2026-03-07T00:00:00Z", "scope": "dashboard_item", "dashboard_item": insights[2]}),
    ] {
        made(server, "annotations/", body);
    }
    let flag = server.get(&format!("{P}feature_flags/?search=base")).json();
    let flag = flag["results"]
        .as_array()
        .unwrap()
        .iter()
        .find(|flag| flag["key"] == "base")
        .unwrap()
        .clone();
    changed(
        server,
        &format!("feature_flags/{}/", id(&flag)),
        json!({"analytics_dashboards": [board]}),
    );
}

fn definitions(server: &TestServer) {
    let event = server.get(&format!("{P}event_definitions/by_name/?name=viewed")).json();
    let path = format!("event_definitions/{}/", event["id"].as_str().unwrap());
    changed(
        server,
        &path,
        json!({"description": ODD, "tags": ["z", "y"], "verified": true, "primary_property": "price"}),
    );
    made(server, "event_definitions/", json!({"name": "still to come", "description": "D"}));
    for (owner, name) in [
        ("type=event", "price"),
        ("type=person", "plan"),
        ("type=group&group_type_index=0", "size"),
    ] {
        let list = server.get(&format!("{P}property_definitions/?limit=500&{owner}")).json();
        let own = list["results"].as_array().unwrap().iter().find(|own| own["name"] == name);
        let own = own.unwrap_or_else(|| panic!("{name}: {list}"));
        let path = format!("property_definitions/{}/", own["id"].as_str().unwrap());
        changed(server, &path, json!({"description": ODD, "tags": [owner], "verified": true}));
    }
}

/// All objects of the first project, without what differs between servers, and with names instead of ids.
pub(super) fn compared(server: &TestServer) -> Value {
    let names = Names::of(server);
    let mut all = Map::new();
    for (name, path, fields) in LISTS {
        let mut rows: Vec<Value> = list(server, path)
            .into_iter()
            .filter(|row| !is_other(row))
            .map(|row| {
                let part = |field: &&str| ((*field).to_owned(), row[*field].clone());
                let mut row = Value::Object(fields.iter().map(part).collect());
                names.replace(&mut row, "");
                row
            })
            .collect();
        rows.sort_by_key(Value::to_string);
        all.insert(name.to_owned(), Value::Array(rows));
    }
    all.insert("boards".to_owned(), boards(server, &names));
    all.insert("members".to_owned(), members(server));
    all.insert("persons".to_owned(), persons(server));
    all.insert(
        "ids".to_owned(),
        Value::Array(server.query(
            "SELECT count(*) AS ids, count(DISTINCT person_id) AS persons FROM person_distinct_ids",
        )),
    );
    let mut events = server.query(
        "SELECT uuid, event, distinct_id, timestamp, properties, elements_chain, session_id, ip, group_0, group_1, group_2 \
         FROM events ORDER BY uuid",
    );
    for event in &mut events {
        // The order of the members is no part of what was sent.
        event["properties"] = serde_json::from_str(event["properties"].as_str().unwrap()).unwrap();
    }
    all.insert("events".to_owned(), Value::Array(events));
    // What is asked has the same answer.
    all.insert("answers".to_owned(), Value::Array(server.query(
        "SELECT event, count(*) AS events, uniq(person_id) AS persons FROM events GROUP BY event ORDER BY event",
    )));
    Value::Object(all)
}

const LISTS: [(&str, &str, &[&str]); 14] = [
    (
        "project",
        "",
        &[
            "timezone",
            "week_start_day",
            "anonymize_ips",
            "person_display_name_properties",
            "test_account_filters",
        ],
    ),
    ("types", "groups_types/", &["group_type", "group_type_index", "name_singular", "name_plural"]),
    (
        "companies",
        "groups/?group_type_index=0&limit=500",
        &["group_key", "group_properties", "created_at"],
    ),
    (
        "groups",
        "groups/?group_type_index=1&limit=500",
        &["group_key", "group_properties", "created_at"],
    ),
    (
        "cohorts",
        "cohorts/?limit=500",
        &["name", "description", "filters", "is_static", "cohort_type"],
    ),
    (
        "actions",
        "actions/?limit=500",
        &[
            "name",
            "description",
            "tags",
            "steps",
            "post_to_slack",
            "slack_message_format",
            "pinned_at",
        ],
    ),
    ("flags", "feature_flags/?limit=500", FLAG),
    ("archived", "feature_flags/?limit=500&archived=true", FLAG),
    (
        "features",
        "early_access_feature/?limit=500",
        &["name", "description", "stage", "documentation_url", "payload", "feature_flag"],
    ),
    (
        "schedules",
        "scheduled_changes/?limit=500",
        &[
            "record_id",
            "payload",
            "scheduled_at",
            "is_recurring",
            "recurrence_interval",
            "cron_expression",
            "end_date",
        ],
    ),
    (
        "insights",
        "insights/?limit=500&basic=true",
        &[
            "name",
            "derived_name",
            "description",
            "query",
            "filters",
            "tags",
            "favorited",
            "saved",
            "order",
            "dashboards",
        ],
    ),
    (
        "annotations",
        "annotations/?limit=500",
        &["content", "date_marker", "creation_type", "scope", "dashboard_id", "dashboard_item"],
    ),
    (
        "event definitions",
        "event_definitions/?limit=500",
        &["name", "description", "tags", "verified", "primary_property", "created_at"],
    ),
    (
        "property definitions",
        "property_definitions/?limit=500",
        &["name", "description", "tags", "verified", "property_type"],
    ),
];

const FLAG: &[&str] = &[
    "key",
    "name",
    "filters",
    "active",
    "archived",
    "created_at",
    "tags",
    "ensure_experience_continuity",
    "evaluation_runtime",
    "evaluation_contexts",
    "is_remote_configuration",
    "bucketing_identifier",
    "analytics_dashboards",
    "rollback_conditions",
];

/// Whether a flag of `shift_ids` has it.
fn is_other(object: &Value) -> bool {
    object["name"].as_str().is_some_and(|name| name.contains("Dashboard: other-"))
}

fn list(server: &TestServer, path: &str) -> Vec<Value> {
    let answer = server.get(&format!("{P}{path}"));
    assert_eq!(answer.status, 200, "{path}: {answer}");
    match answer.json() {
        Value::Array(rows) => rows,
        mut page if page.get("results").is_some() => {
            assert_eq!(page["next"], Value::Null, "{path}");
            page["results"].as_array_mut().map(std::mem::take).unwrap()
        }
        one => vec![one],
    }
}

fn boards(server: &TestServer, names: &Names) -> Value {
    let mut boards = list(server, "dashboards/?limit=500");
    boards.retain(|board| !is_other(board));
    for board in &mut boards {
        let whole = server.get(&format!("{P}dashboards/{}/", id(board))).json();
        let tiles = whole["tiles"].as_array().unwrap().iter().map(|tile| {
            let insight = tile["insight"]["id"].as_i64().map(|id| names.of_kind("insight", &id.to_string()));
            json!({"insight": insight, "text": tile["text"]["body"], "layouts": tile["layouts"], "color": tile["color"]})
        });
        let tiles: Vec<Value> = tiles.collect();
        let fields =
            ["name", "description", "pinned", "tags", "filters", "variables", "restriction_level"];
        let mut own: Map<String, Value> =
            fields.iter().map(|name| ((*name).to_owned(), whole[*name].clone())).collect();
        own.insert("tiles".to_owned(), Value::Array(tiles));
        *board = Value::Object(own);
    }
    boards.sort_by_key(Value::to_string);
    Value::Array(boards)
}

/// The distinct ids of the members of static cohorts.
fn members(server: &TestServer) -> Value {
    let mut all = BTreeMap::new();
    for cohort in list(server, "cohorts/?limit=500&type=static") {
        let members = list(server, &format!("cohorts/{}/persons/?limit=5000", id(&cohort)));
        let mut ids: Vec<String> =
            members.iter().map(|person| person["distinct_ids"].to_string()).collect();
        ids.sort();
        all.insert(cohort["name"].as_str().unwrap().to_owned(), ids);
    }
    json!(all)
}

fn persons(server: &TestServer) -> Value {
    let mut persons: Vec<Value> = list(server, "persons/?limit=5000")
        .into_iter()
        .map(|mut person| {
            let mut ids: Vec<String> = serde_json::from_value(person["distinct_ids"].clone()).unwrap();
            // Which id a merge has attached first is not a part of what a person is.
            ids.sort();
            let is_alone = ids.len() == 1;
            if ids == ["right"] {
                // A person that a split has made has no event that made it; each that an event makes has one.
                person["properties"].as_object_mut().unwrap().remove("$creator_event_uuid");
            }
            json!({"ids": ids, "properties": person["properties"], "created_at": person["created_at"],
                "is_identified": person["is_identified"] == true && !is_alone})
        })
        .collect();
    persons.sort_by_key(Value::to_string);
    Value::Array(persons)
}

/// The names of objects by their ids.
struct Names(BTreeMap<(&'static str, String), String>);

impl Names {
    fn of(server: &TestServer) -> Self {
        let mut names = BTreeMap::new();
        for (kind, path, field) in [
            ("cohort", "cohorts/?limit=500", "name"),
            ("action", "actions/?limit=500", "name"),
            ("flag", "feature_flags/?limit=500", "key"),
            ("insight", "insights/?limit=500&basic=true", "name"),
            ("dashboard", "dashboards/?limit=500", "name"),
        ] {
            for own in list(server, path) {
                names.insert((kind, own["id"].to_string()), own[field].to_string());
            }
        }
        Self(names)
    }

    fn of_kind(&self, kind: &'static str, id: &str) -> Value {
        match self.0.get(&(kind, id.trim_matches('"').to_owned())) {
            Some(name) => json!(format!("{kind} {name}")),
            None => json!(format!("unknown {kind} {id}")),
        }
    }

    /// Replaces the ids in the forms in which `fill` writes them.
    fn replace(&self, value: &mut Value, field: &str) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item, field)),
            Value::Object(fields) => self.replace_in(fields),
            Value::String(text) if field == "query" => {
                for ((kind, id), name) in &self.0 {
                    if *kind == "cohort" {
                        *text = text.replace(&format!("COHORT {id} "), &format!("COHORT {name} "));
                    }
                }
                // What is quoted stays as it is in the source: its number is of no cohort.
                let end = text.find("'in cohort").unwrap_or(text.len());
                text.truncate(end);
            }
            Value::Number(_) | Value::String(_) => {
                let kind = match field {
                    "dashboard_item" => "insight",
                    "dashboard_id" | "dashboards" | "analytics_dashboards" => "dashboard",
                    "record_id" => "flag",
                    "actionId" => "action",
                    _ => return,
                };
                *value = self.of_kind(kind, &value.to_string());
            }
            _ => {}
        }
    }

    fn replace_in(&self, fields: &mut Map<String, Value>) {
        let own = fields.clone();
        let is = |name: &str, value: &str| own.get(name).and_then(Value::as_str) == Some(value);
        let mut name = |field: &str, kind: &'static str| {
            let named = match &own[field] {
                Value::Array(ids) => ids
                    .iter()
                    .map(|id| match id.as_i64() {
                        Some(_) => self.of_kind(kind, &id.to_string()),
                        None => id.clone(),
                    })
                    .collect(),
                id => self.of_kind(kind, &id.to_string()),
            };
            fields.insert(field.to_owned(), named);
        };
        if is("type", "cohort") {
            name("value", "cohort");
        }
        if is("type", "flag") {
            name("key", "flag");
        }
        if is("kind", "ActionsNode") || is("type", "actions") {
            name("id", "action");
        }
        if is("event_type", "actions") {
            name("key", "action");
        }
        if is("breakdown_type", "cohort") {
            name("breakdown", "cohort");
        }
        if own.contains_key("variants") || own.contains_key("team_id") {
            // A flag within a feature: by its key.
            if let Some(key) = own.get("key").filter(|_| own.contains_key("team_id")) {
                *fields = Map::from_iter([
                    ("key".to_owned(), key.clone()),
                    ("filters".to_owned(), own["filters"].clone()),
                    ("active".to_owned(), own["active"].clone()),
                ]);
            }
        }
        for (field, value) in fields.iter_mut() {
            self.replace(value, field);
        }
    }
}
