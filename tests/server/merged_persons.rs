//! Merged persons are one person in every insight, right after the request with the merge, in files and after a restart:
//! whatever else the request says of persons, and whatever a question reads besides the person.

use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world::{QUERY, in_each_state};

const DATES: [&str; 2] = ["2026-03-02", "2026-03-04"];

/// Two people who come with two ids each, often on the same day, and one with a single id.
fn start() -> TestServer {
    let server = TestServer::start_with(&[("WEIR_INSIGHT_CACHE_MAX_BYTES", "0B")]);
    let event = |name: &str, id: &str, day: u32, properties: Value| {
        json!({"event": name, "distinct_id": id, "timestamp": format!("2026-03-0{day}T1{day}:00:00Z"),
               "properties": properties})
    };
    let visit = |id: &str, day: u32| {
        let properties = json!({"plan": "pro", "$browser": "Chrome", "price": 10});
        event("visit", id, day, properties)
    };
    let visits = [
        visit("anonymous 1", 2),
        visit("user 1", 2),
        visit("user 2", 2),
        visit("anonymous 1", 3),
        visit("anonymous 2", 3),
        visit("user 2", 3),
        visit("user 2", 4),
        visit("user 3", 4),
    ];
    assert_eq!(server.capture(&json!(visits)).status, 200);
    let set = |tier: &str| json!({"$set": {"tier": tier}});
    let merged =
        |anonymous: &str| json!({"$anon_distinct_id": anonymous, "$set": {"tier": "gold"}});
    let batch = [
        event("$set", "user 1", 5, set("silver")),
        event("$identify", "user 1", 5, merged("anonymous 1")),
        event("$set", "anonymous 1", 5, set("gold")),
        event("$set", "user 3", 5, set("silver")),
        event("$set", "anonymous 2", 5, set("silver")),
        event("$identify", "user 2", 5, merged("anonymous 2")),
        event("$set", "user 2", 5, set("bronze")),
    ];
    assert_eq!(server.capture(&json!(batch)).status, 200);
    server
}

/// A question about the visits of the three days.
fn node(kind: &str, filters: &Value, more: &Value) -> Value {
    let mut node = json!({
        "kind": kind, "properties": filters,
        "dateRange": {"date_from": DATES[0], "date_to": DATES[1]},
    });
    let fields = node.as_object_mut().expect("an object");
    // Retention has its events in options of its own.
    if kind != "RetentionQuery" {
        fields.insert("series".to_owned(), json!([{"kind": "EventsNode", "event": "visit"}]));
    }
    fields.extend(more.as_object().expect("an object").clone());
    node
}

fn ask(server: &TestServer, node: &Value) -> Value {
    let answer = server.post(QUERY, &json!({"query": node}));
    assert_eq!(answer.status, 200, "{answer} {node}");
    answer.json()["results"].take()
}

/// Filters that all visits match: none, of a property with a column, without one, and of the persons.
fn filters() -> [Value; 4] {
    let filter = |key: &str, value: Value, kind: &str| json!([{"key": key, "value": value, "operator": "exact", "type": kind}]);
    [
        json!([]),
        filter("$browser", json!("Chrome"), "event"),
        filter("plan", json!(["pro"]), "event"),
        filter("tier", json!(["gold", "silver", "bronze"]), "person"),
    ]
}

#[test]
fn trends_count_merged_persons_once() {
    let mut server = start();
    in_each_state(&mut server, |server, state| {
        for filters in filters() {
            for breakdown in [Value::Null, json!("$browser"), json!("plan")] {
                for (math, display, expected) in [
                    ("total", "ActionsLineGraph", json!([3, 3, 2])),
                    ("dau", "ActionsLineGraph", json!([2, 2, 2])),
                    ("dau", "ActionsLineGraphCumulative", json!([2, 2, 3])),
                    ("weekly_active", "ActionsLineGraph", json!([2, 2, 3])),
                    ("monthly_active", "ActionsLineGraph", json!([2, 2, 3])),
                    ("first_time_for_user", "ActionsLineGraph", json!([2, 0, 1])),
                    ("first_matching_event_for_user", "ActionsLineGraph", json!([2, 0, 1])),
                    ("max_count_per_actor", "ActionsLineGraph", json!([2, 2, 1])),
                ] {
                    let more = json!({
                        "series": [{"kind": "EventsNode", "event": "visit", "math": math}],
                        "trendsFilter": {"display": display}, "breakdownFilter": {"breakdown": breakdown},
                    });
                    let found = ask(server, &node("TrendsQuery", &filters, &more));
                    let case = format!("{state}: {math} {display} {filters} {breakdown}");
                    assert_eq!(found[0]["data"], expected, "{case}");
                    assert_eq!(found.as_array().map(Vec::len), Some(1), "{case}");
                }
                let more = json!({
                    "series": [{"kind": "EventsNode", "event": "visit", "math": "dau"}],
                    "trendsFilter": {"display": "BoldNumber"}, "breakdownFilter": {"breakdown": breakdown},
                });
                let found = ask(server, &node("TrendsQuery", &filters, &more));
                assert_eq!(found[0]["aggregated_value"], 3, "{state}: {filters} {breakdown}");
            }
        }
    });
}

#[test]
fn histories_of_merged_persons_are_one() {
    let mut server = start();
    in_each_state(&mut server, |server, state| {
        for filters in filters() {
            let case = format!("{state}: {filters}");
            for (kind, expected) in [
                ("retention_first_time", json!([[2, 2, 1], [0, 0, 0], [1, 0, 0]])),
                ("retention_first_ever_occurrence", json!([[2, 2, 1], [0, 0, 0], [1, 0, 0]])),
                ("retention_recurring", json!([[2, 2, 1], [2, 1, 0], [2, 0, 0]])),
            ] {
                let visit = json!({"id": "visit", "type": "events"});
                let more = json!({"retentionFilter": {
                    "period": "Day", "totalIntervals": 3, "retentionType": kind, "targetEntity": visit,
                    "returningEntity": visit,
                }});
                let found = ask(server, &node("RetentionQuery", &filters, &more));
                let cells = |row: &Value| -> Vec<Value> {
                    let cells = row["values"].as_array().expect("cells").iter();
                    cells.map(|cell| cell["count"].clone()).collect()
                };
                let found: Vec<_> = found.as_array().expect("rows").iter().map(cells).collect();
                assert_eq!(json!(found), expected, "{case} {kind}");
            }
            let found = ask(server, &node("LifecycleQuery", &filters, &json!({})));
            let data: Vec<&Value> = (0..4).map(|at| &found[at]["data"]).collect();
            assert_eq!(json!(data), json!([[2, 0, 1], [0, 2, 1], [0, 0, 0], [0, 0, -1]]), "{case}");
            let found = ask(server, &node("StickinessQuery", &filters, &json!({})));
            assert_eq!(found[0]["data"], json!([1, 1, 1]), "{case}");
            let steps = json!({"series": [{"event": "visit"}, {"event": "visit"}, {"event": "visit"}, {"event": "visit"}]});
            for breakdown in [Value::Null, json!("plan")] {
                let mut more = steps.clone();
                more["breakdownFilter"] = json!({"breakdown": breakdown});
                let found = ask(server, &node("FunnelsQuery", &filters, &more));
                let steps = if breakdown.is_null() { &found } else { &found[0] };
                let counts: Vec<&Value> = (0..4).map(|at| &steps[at]["count"]).collect();
                assert_eq!(json!(counts), json!([3, 2, 2, 1]), "{case} {breakdown}");
            }
        }
    });
}

#[test]
fn the_persons_behind_points_are_the_merged_ones() {
    let mut server = start();
    let series = json!([{"kind": "EventsNode", "event": "visit", "math": "dau"}]);
    in_each_state(&mut server, |server, state| {
        for filters in filters() {
            for breakdown in [Value::Null, json!("plan")] {
                let more = json!({"series": series, "breakdownFilter": {"breakdown": breakdown}});
                let value = if breakdown.is_null() { Value::Null } else { json!("pro") };
                let source = json!({"kind": "InsightActorsQuery", "source": node("TrendsQuery", &filters, &more),
                                    "day": "2026-03-03", "series": 0, "breakdown": value});
                let rows = ask(
                    server,
                    &json!({"kind": "ActorsQuery", "source": source, "select": ["person", "event_count"]}),
                );
                let mut found: Vec<(String, Value)> = Vec::new();
                for row in rows.as_array().expect("rows") {
                    let ids = row[0]["distinct_ids"].as_array().expect("ids").iter();
                    let mut ids: Vec<&str> = ids.filter_map(Value::as_str).collect();
                    ids.sort_unstable();
                    found.push((ids.join(", "), row[1].clone()));
                }
                let expected =
                    [("anonymous 2, user 2", json!(2.0)), ("anonymous 1, user 1", json!(1.0))];
                let expected = expected.map(|(ids, count)| (ids.to_owned(), count));
                assert_eq!(found, expected, "{state}: {filters} {breakdown}");
            }
        }
    });
}

#[test]
fn sql_reads_persons_as_merged_beside_any_property() {
    let mut server = start();
    in_each_state(&mut server, |server, state| {
        for sql in [
            "SELECT count(DISTINCT person_id) AS n FROM events WHERE event = 'visit'",
            "SELECT count(DISTINCT person_id) AS n FROM events WHERE properties.plan = 'pro'",
            "SELECT count(DISTINCT person_id) AS n FROM (SELECT person_id, properties.plan AS plan FROM events) WHERE plan = 'pro'",
            "SELECT count(DISTINCT person_id) AS n FROM events WHERE event = 'visit' GROUP BY properties.plan",
            "SELECT count(DISTINCT person_id) AS n FROM events WHERE event = 'visit' GROUP BY properties['$browser'], properties.plan",
            "SELECT count(*) AS n FROM (SELECT DISTINCT person_id, properties.plan FROM events WHERE event = 'visit' LIMIT 100)",
            "SELECT count(DISTINCT person_id) FILTER (WHERE event = 'visit') AS n FROM events",
            "WITH v AS (SELECT person_id AS who FROM events WHERE event = 'visit' ORDER BY timestamp LIMIT 99) SELECT count(DISTINCT who) AS n FROM v",
            "SELECT count(DISTINCT a.person_id) AS n FROM events a LEFT JOIN events b ON a.person_id = b.person_id WHERE a.event = 'visit'",
            "SELECT max(n) AS n FROM (SELECT count(DISTINCT person_id) AS n, count(DISTINCT distinct_id) AS ids FROM events WHERE event = 'visit' HAVING count(DISTINCT person_id) < 4)",
            "SELECT count(DISTINCT a.person_id) * count(DISTINCT b.person_id) / 3 AS n FROM events a JOIN events b ON a.person_id = b.person_id WHERE a.event = 'visit' AND b.event = 'visit'",
            "SELECT uniqIf(person_id, event = 'visit') AS n FROM events",
        ] {
            assert_eq!(server.count(sql), 3, "{state}: {sql}");
        }
    });
}

/// Goal: hash tables of distinct persons hold numbers, which are made of what is stored, and of anything else what it is.
#[test]
fn distinct_persons_are_counted_by_their_numbers() {
    let mut server = start();
    in_each_state(&mut server, |server, state| {
        for (sql, expected) in [
            ("SELECT count(DISTINCT person_id) AS n FROM events", true),
            ("SELECT event, count(DISTINCT e.person_id) AS n FROM events e GROUP BY 1", true),
            (
                "WITH v AS (SELECT person_id AS who FROM events ORDER BY timestamp LIMIT 9) SELECT count(DISTINCT who) AS n FROM v",
                true,
            ),
            ("SELECT count(DISTINCT distinct_id) AS n FROM events", false),
            ("SELECT count(DISTINCT lower(person_id)) AS n FROM events", false),
            ("SELECT count(DISTINCT person_id) AS n FROM person_distinct_ids", false),
        ] {
            let plan = server.query(&format!("EXPLAIN {sql}"));
            let plan: String = plan.iter().map(Value::to_string).collect();
            assert_eq!(plan.contains("number_of_person"), expected, "{state}: {sql}: {plan}");
            assert!(!(expected && plan.contains("resolve_person")), "{state}: {sql}: {plan}");
        }
    });
}

#[test]
fn persons_who_were_split_count_apart() {
    let mut server = start();
    let persons = "/api/projects/@current/persons/";
    let merged = server.get(&format!("{persons}?distinct_id=user%202")).json();
    let id = merged["results"][0]["uuid"].as_str().expect("an id").to_owned();
    let split = json!({"main_distinct_id": "user 2"});
    let split = server.post(&format!("{persons}{id}/split/"), &split);
    assert_eq!(split.status, 201, "{split}");
    in_each_state(&mut server, |server, state| {
        for filters in filters().into_iter().take(3) {
            let case = format!("{state}: {filters}");
            for (math, expected) in [
                ("dau", json!([2, 3, 2])),
                ("weekly_active", json!([2, 3, 4])),
                ("first_time_for_user", json!([2, 1, 1])),
                ("max_count_per_actor", json!([2, 1, 1])),
            ] {
                let series = json!([{"kind": "EventsNode", "event": "visit", "math": math}]);
                let found = ask(server, &node("TrendsQuery", &filters, &json!({"series": series})));
                assert_eq!(found[0]["data"], expected, "{case} {math}");
            }
            let found = ask(server, &node("StickinessQuery", &filters, &json!({})));
            assert_eq!(found[0]["data"], json!([2, 1, 1]), "{case}");
            let found = ask(server, &node("LifecycleQuery", &filters, &json!({})));
            let active = (0..3).map(|status| found[status]["data"][1].as_i64().expect("a number"));
            assert_eq!(active.sum::<i64>(), 3, "{case}");
        }
        assert_eq!(
            server.count("SELECT count(DISTINCT person_id) FROM events WHERE event = 'visit'"),
            4
        );
    });
}
