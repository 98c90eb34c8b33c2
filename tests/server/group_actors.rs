//! The groups behind points of every kind of insight. Each person of these tests is of one company with the same number,
//! so the companies behind a point are those of the persons behind the same point of the same question about persons;
//! what is right for these, other tests compare with plain computations.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world::{DAY, QUERY, date, one_of, time};

const COMPANIES: usize = 14;

/// 2026-03-02, a Monday.
const FIRST_DAY: i64 = 20_514;

const DAYS: i64 = 8;

/// A server with events of companies, and some of persons without one. Of the companies three of four have properties.
fn start(rng: &mut StdRng) -> TestServer {
    let server = TestServer::start();
    let mut sent = Vec::new();
    for number in 0..COMPANIES {
        let size = if number % 3 == 0 { "large" } else { "small" };
        let set = json!({"name": format!("Company {number}"), "size": size});
        sent.push(json!({"event": "$set", "distinct_id": format!("d{number}"), "timestamp": time(FIRST_DAY * DAY),
                         "properties": {"$set": {"size": size, "name": format!("Company {number}")}}}));
        if number % 4 != 3 {
            sent.push(json!({
                "event": "$groupidentify", "distinct_id": "nobody", "timestamp": time(FIRST_DAY * DAY),
                "properties": {"$group_type": "company", "$group_key": format!("c{number}"), "$group_set": set},
            }));
        }
    }
    for _ in 0..500 {
        let number = rng.random_range(0..COMPANIES);
        let is_of_company = rng.random_bool(0.8);
        let mut properties = json!({
            "is_of_company": is_of_company, "plan": one_of(rng, &["free", "pro", "team", "old"]),
        });
        if is_of_company {
            properties["$groups"] = json!({"company": format!("c{number}")});
        }
        let at = FIRST_DAY * DAY + rng.random_range(0..DAYS * DAY);
        let name = one_of(rng, &["view", "view", "buy", "help", "leave"]);
        sent.push(
            json!({"event": name, "distinct_id": format!("d{number}"), "timestamp": time(at),
                         "properties": properties}),
        );
    }
    assert_eq!(server.capture(&json!(sent)).status, 200);
    server
}

/// Whose point it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Persons,
    Companies,
}

/// The fields of a query that all kinds have; those about persons leave out what is of no company.
fn query(of: Of, kind: &str, more: &Value) -> Value {
    let mut node = json!({
        "kind": kind,
        "dateRange": {"date_from": date(FIRST_DAY).to_string(), "date_to": date(FIRST_DAY + DAYS - 1).to_string()},
        "properties": [{"key": "is_of_company", "value": ["true"], "type": "event"}],
    });
    node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    if of == Of::Companies && !matches!(kind, "TrendsQuery") {
        node["aggregation_group_type_index"] = json!(0);
    }
    node
}

/// A question about the actors behind a point: its source without the insight, the changes of the insight, and the
/// number of the point.
struct Point {
    kind: &'static str,
    source: Value,
    changed: Value,
    number: f64,
}

fn point(kind: &'static str, source: Value, number: &Value) -> Point {
    Point { kind, source, changed: json!({}), number: number.as_f64().expect("a number").abs() }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// The points of an answer.
fn points(kind: &str, results: &Value) -> Vec<Point> {
    let own = "InsightActorsQuery";
    match kind {
        "TrendsQuery" | "LifecycleQuery" => list(results)
            .iter()
            .flat_map(|series| {
                let of = |(day, number): (&Value, &Value)| {
                    let source = json!({"day": day, "breakdown": series["breakdown_value"], "status": series["status"]});
                    point(own, source, number)
                };
                list(&series["days"]).iter().zip(list(&series["data"])).map(of).collect::<Vec<_>>()
            })
            .collect(),
        "StickinessQuery" => list(&results[0]["data"])
            .iter()
            .zip(1..)
            .map(|(number, day)| point("StickinessActorsQuery", json!({"day": day}), number))
            .collect(),
        "RetentionQuery" => list(results)
            .iter()
            .zip(0..)
            .map(|(row, at)| point(own, json!({"interval": at}), &row["values"][0]["count"]))
            .collect(),
        "FunnelsQuery" => list(results)
            .iter()
            .zip(1..)
            .map(|(step, at)| point("FunnelsActorsQuery", json!({"funnelStep": at}), &step["count"]))
            .collect(),
        "PathsQuery" => list(results)
            .iter()
            .map(|edge| {
                let changed = json!({"pathStartKey": edge["source"], "pathEndKey": edge["target"]});
                Point { changed, ..point(own, json!({}), &edge["value"]) }
            })
            .collect(),
        _ => list(&results["events"])
            .iter()
            .map(|row| {
                let name = row["event"]["event"].as_str().expect("a name");
                let source = match name.split_once("::") {
                    Some((key, value)) => {
                        json!({"funnelCorrelationPropertyValues": [{"key": key, "value": value, "type": "?"}]})
                    }
                    None => json!({"funnelCorrelationPersonEntity": {"event": name}}),
                };
                let mut source = source;
                source["funnelCorrelationPersonConverted"] = json!(true);
                point("FunnelCorrelationActorsQuery", source, &row["success_count"])
            })
            .collect(),
    }
}

/// The actors behind a point by their numbers, with what each adds and its appearances.
type Behind = BTreeMap<usize, (f64, Value)>;

fn asked(of: Of, node: &Value, point: &Point) -> Value {
    let mut node = node.clone();
    if let Some(changed) = point.changed.as_object().filter(|changed| !changed.is_empty()) {
        node["pathsFilter"] = json!(changed);
    }
    let mut source = point.source.clone();
    source["kind"] = json!(point.kind);
    source["source"] = node;
    if let Some(filter) = source.pointer_mut("/funnelCorrelationPropertyValues/0") {
        match of {
            Of::Persons => filter["type"] = json!("person"),
            Of::Companies => {
                filter["type"] = json!("group");
                filter["group_type_index"] = json!(0);
            }
        }
    }
    source
}

fn behind(server: &TestServer, of: Of, source: &Value) -> Behind {
    let mut found = Behind::new();
    let mut before = f64::INFINITY;
    for offset in (0..).step_by(4) {
        let query = json!({"kind": "ActorsQuery", "source": source, "limit": 4, "offset": offset,
                           "select": ["actor", "event_count", "appearances", "id"]});
        let page = server.post(QUERY, &json!({"query": query}));
        assert_eq!(page.status, 200, "{page} {source}");
        let page = page.json();
        for row in list(&page["results"]) {
            let (id, kind) = match of {
                Of::Persons => (&row[0]["distinct_ids"][0], "person"),
                Of::Companies => (&row[0]["group_key"], "group"),
            };
            assert_eq!(row[0]["type"], kind, "{row}");
            if of == Of::Companies {
                assert_eq!((&row[3], &row[0]["id"]), (id, id), "{row}");
            }
            let number: usize = id.as_str().expect("an id")[1..].parse().expect("a number");
            let value = row[1].as_f64().expect("a number");
            assert!(value <= before, "{page}");
            before = value;
            assert!(found.insert(number, (value, row[2].clone())).is_none(), "each once: {page}");
        }
        if page["hasMore"] == false {
            break;
        }
    }
    found
}

/// A query of each kind, and whether there are as many actors behind a point as its number says; else what they add is
/// that number.
fn kinds(of: Of) -> Vec<(&'static str, Value, bool)> {
    let entity = |event: &str| json!({"kind": "EventsNode", "event": event});
    let counted = match of {
        Of::Persons => json!({"event": "view", "math": "dau"}),
        Of::Companies => {
            json!({"event": "view", "math": "unique_group", "math_group_type_index": 0})
        }
    };
    let funnel = json!({"series": [entity("view"), entity("buy")],
                        "funnelsFilter": {"funnelWindowInterval": 1, "funnelWindowIntervalUnit": "day"}});
    let correlation = |kind: &str, names: Value| {
        let source = query(of, "FunnelsQuery", &funnel);
        json!({"kind": "FunnelCorrelationQuery", "funnelCorrelationType": kind, "funnelCorrelationNames": names,
               "source": {"kind": "FunnelsActorsQuery", "source": source}})
    };
    vec![
        ("TrendsQuery", query(of, "TrendsQuery", &json!({"series": [counted]})), true),
        (
            "TrendsQuery",
            query(
                of,
                "TrendsQuery",
                &json!({"series": [counted],
                "breakdownFilter": {"breakdown": "plan", "breakdown_limit": 3}}),
            ),
            true,
        ),
        ("StickinessQuery", query(of, "StickinessQuery", &json!({"series": [counted]})), true),
        ("LifecycleQuery", query(of, "LifecycleQuery", &json!({"series": [entity("view")]})), true),
        (
            "RetentionQuery",
            query(
                of,
                "RetentionQuery",
                &json!({"retentionFilter": {
                "targetEntity": {"id": "view", "type": "events"}, "returningEntity": {"id": "buy", "type": "events"}}}),
            ),
            true,
        ),
        ("FunnelsQuery", query(of, "FunnelsQuery", &funnel), true),
        ("PathsQuery", query(of, "PathsQuery", &json!({})), false),
        ("FunnelCorrelationQuery", correlation("events", Value::Null), true),
        ("FunnelCorrelationQuery", correlation("properties", json!(["size"])), true),
    ]
}

#[test]
fn groups_behind_points_are_those_of_the_persons_behind_them() {
    let mut rng = StdRng::seed_from_u64(71);
    let server = start(&mut rng);
    let mut points_seen = 0;
    for round in ["in memory", "in files"] {
        let both = kinds(Of::Companies).into_iter().zip(kinds(Of::Persons));
        for ((kind, node, is_count), (_, twin, _)) in both {
            let answer = server.post(QUERY, &json!({"query": node}));
            assert_eq!(answer.status, 200, "{answer}");
            let all = points(kind, &answer.json()["results"]);
            assert!(!all.is_empty(), "{kind} {answer}");
            for point in all {
                let found = behind(&server, Of::Companies, &asked(Of::Companies, &node, &point));
                let number = match is_count {
                    true => found.len() as f64,
                    false => found.values().map(|(value, _)| value).sum(),
                };
                assert_eq!(number, point.number, "{round} {kind} {}", point.source);
                // Companies are new at another time than persons, and some never were; others have no properties.
                let is_own = kind == "LifecycleQuery"
                    || point.source.get("funnelCorrelationPropertyValues").is_some();
                if !is_own {
                    let mut expected =
                        behind(&server, Of::Persons, &asked(Of::Persons, &twin, &point));
                    // Filters are those of the steps: what a person did meanwhile without a company is not of it.
                    if kind == "FunnelCorrelationQuery" {
                        expected.retain(|number, _| found.contains_key(number));
                    }
                    assert_eq!(found, expected, "{round} {kind} {}", point.source);
                }
                points_seen += found.len();
            }
        }
        server.flush();
    }
    assert!(points_seen > 400, "{points_seen}");
}

#[test]
fn groups_have_their_own_form_and_are_found_by_name_and_key() {
    let mut rng = StdRng::seed_from_u64(72);
    let server = start(&mut rng);
    let (_, node, _) = kinds(Of::Companies).swap_remove(0);
    let source = json!({"kind": "InsightActorsQuery", "source": node});
    let ask = |more: Value| {
        let mut query = json!({"kind": "ActorsQuery", "source": source, "select": ["group"]});
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.post(QUERY, &json!({"query": query}));
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()
    };
    let all = ask(json!({}));
    assert_eq!((&all["columns"], &all["types"]), (&json!(["group"]), &json!(["Tuple"])));
    let of = |key: &str| {
        let found = list(&all["results"]).iter().find(|row| row[0]["group_key"] == key);
        found.expect("the company")[0].clone()
    };
    let mut known = of("c0");
    let value = known["value_at_data_point"].take();
    assert!(value.as_f64().is_some_and(|value| value > 0.0), "{value}");
    let properties = json!({"name": "Company 0", "size": "large"});
    assert_eq!(
        known,
        json!({
            "id": "c0", "type": "group", "group_type_index": 0, "group_key": "c0", "created_at": "2026-03-02T00:00:00.000000Z",
            "properties": properties, "group_properties": properties, "matched_recordings": [],
            "value_at_data_point": null,
        })
    );
    let unknown = of("c3");
    assert_eq!((&unknown["created_at"], &unknown["properties"]), (&Value::Null, &json!({})));
    let keys = |search: &str| {
        let found = ask(json!({"search": search}));
        let mut keys: Vec<String> = list(&found["results"])
            .iter()
            .map(|row| row[0]["group_key"].as_str().unwrap().to_owned())
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(keys("COMPANY 1"), ["c1", "c10", "c12", "c13"]);
    assert_eq!(keys("C1"), ["c1", "c10", "c11", "c12", "c13"]);
    assert_eq!(keys("nothing"), Vec::<String>::new());
    let ids = server
        .post(QUERY, &json!({"query": {"kind": "InsightActorsQuery", "source": node}}))
        .json();
    assert_eq!(ids["types"], json!(["String"]), "{ids}");
    let far = json!({"kind": "ActorsQuery", "source": source, "offset": 100_000});
    let refused = server.post(QUERY, &json!({"query": far}));
    assert_eq!(
        (refused.status, &refused.json()["attr"]),
        (400, &json!("query__offset")),
        "{refused}"
    );

    // Another project has none of them.
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let path = format!("/api/projects/{}/query/", other["id"]);
    let none =
        server.post(&path, &json!({"query": {"kind": "ActorsQuery", "source": source}})).json();
    assert_eq!(none["results"], json!([]), "{none}");
}

/// The addresses in answers for older clients lead to groups, too.
#[test]
fn older_clients_follow_links_to_groups() {
    let mut rng = StdRng::seed_from_u64(73);
    let server = start(&mut rng);
    let dates = json!({"date_from": date(FIRST_DAY).to_string(), "date_to": date(FIRST_DAY + DAYS - 1).to_string()});
    let ask = |path: &str, more: Value| {
        let mut filter = dates.clone();
        filter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.post(&format!("/api/projects/@current/insights/{path}/"), &filter);
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["result"].take()
    };
    let people = |url: &Value| {
        let page = server.get(&format!("/{}", url.as_str().expect("an address")));
        assert_eq!(page.status, 200, "{page}");
        let page = page.json();
        let of_row = |row: &Value| row["person"].clone();
        let people: Vec<Value> = match page["result"].as_array() {
            Some(rows) => rows.iter().map(of_row).collect(),
            None => list(&page["results"][0]["people"]).to_vec(),
        };
        assert!(people.iter().all(|own| own["type"] == "group"), "{page}");
        people.len() as f64
    };
    let counted =
        json!([{"id": "view", "order": 0, "math": "unique_group", "math_group_type_index": 0}]);
    let view = json!([{"id": "view", "order": 0}]);
    let steps = json!([{"id": "view", "order": 0}, {"id": "buy", "order": 1}]);
    let mut seen = 0;
    for (insight, more) in [
        ("TRENDS", json!({"events": counted})),
        ("STICKINESS", json!({"events": counted})),
        ("LIFECYCLE", json!({"events": view, "aggregation_group_type_index": 0})),
    ] {
        let mut more = more;
        more["insight"] = json!(insight);
        for series in list(&ask("trend", more)) {
            for (url, number) in list(&series["persons_urls"]).iter().zip(list(&series["data"])) {
                let number = number.as_f64().expect("a number").abs();
                assert_eq!(people(&url["url"]), number, "{insight} {url}");
                seen += 1;
            }
        }
    }
    let groups = json!({"aggregation_group_type_index": 0, "events": steps});
    let funnel = ask("funnel", groups.clone());
    let count = |at: usize| funnel[at]["count"].as_f64().expect("a number");
    assert_eq!(people(&funnel[0]["converted_people_url"]), count(0));
    assert_eq!(people(&funnel[1]["converted_people_url"]), count(1));
    assert_eq!(people(&funnel[1]["dropped_people_url"]), count(0) - count(1));
    for kind in ["events", "properties"] {
        let mut more = groups.clone();
        more["funnel_correlation_type"] = json!(kind);
        more["funnel_correlation_names"] = json!(["size"]);
        for row in list(&ask("funnel/correlation", more)["events"]) {
            for of in ["success", "failure"] {
                let number = row[format!("{of}_count")].as_f64().expect("a number");
                assert_eq!(people(&row[format!("{of}_people_url")]), number, "{row}");
                seen += 1;
            }
        }
    }
    let target = json!({"id": "view", "type": "events"});
    let rows = ask(
        "retention",
        json!({"aggregation_group_type_index": 0, "target_entity": target, "total_intervals": 4}),
    );
    for row in list(&rows) {
        assert_eq!(Some(people(&row["people_url"])), row["values"][0]["count"].as_f64(), "{row}");
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
}
