//! Queries over several nodes: workers read the files of events in the bucket, the server the newest events in its memory.
//! Answers are those of the server alone, whatever happens to workers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Client, KEY, TestServer, patiently, run, within};
use crate::support::bucket::{Moto, settings};
use crate::support::certificates::Certificates;
use crate::support::postgres::Postgres;
use crate::support::workers::{NOTICED, Worker, urls, with_workers};

/// Questions that are executed over several nodes.
pub(crate) const QUESTIONS: [&str; 27] = [
    "SELECT count(*) FROM events",
    "SELECT count(*), count(DISTINCT person_id), count(DISTINCT distinct_id) FROM events",
    "SELECT event, count(*), min(timestamp), max(timestamp) FROM events GROUP BY event ORDER BY event",
    "SELECT event, count(DISTINCT person_id) FROM events GROUP BY event ORDER BY event",
    "SELECT toStartOfDay(timestamp) AS day, count() FROM events GROUP BY day ORDER BY day",
    "SELECT toStartOfMonth(timestamp) AS month, uniq(person_id) FROM events GROUP BY month ORDER BY month",
    "SELECT date_trunc('hour', timestamp) AS hour, count(*) FROM events GROUP BY 1 ORDER BY 1",
    "SELECT properties.plan, count(*) FROM events GROUP BY 1 ORDER BY 1 NULLS FIRST",
    "SELECT properties.plan, sum(properties.n), avg(properties.n) FROM events GROUP BY 1 ORDER BY 1 NULLS FIRST",
    "SELECT properties.$browser, count(*) FROM events WHERE event = 'buy' GROUP BY 1 ORDER BY 1",
    "SELECT person_id, count(*) AS n FROM events GROUP BY person_id ORDER BY n DESC, person_id LIMIT 7",
    "SELECT distinct_id, max(timestamp) FROM events WHERE timestamp >= '2026-01-10' GROUP BY 1 ORDER BY 1",
    "SELECT uuid, event, person_id FROM events ORDER BY uuid LIMIT 25",
    "SELECT uuid, timestamp FROM events WHERE properties.n > 50 ORDER BY timestamp DESC, uuid LIMIT 10",
    "SELECT DISTINCT event FROM events ORDER BY event",
    "SELECT event || '-' || distinct_id AS name, count(*) FROM events GROUP BY name ORDER BY name LIMIT 20",
    "SELECT count(*) FROM events WHERE event LIKE 'b%' AND distinct_id NOT LIKE '%7'",
    "SELECT count(*) FROM events WHERE match(event, '^(buy|see)$')",
    "SELECT CAST(properties.n AS BIGINT) % 5 AS five, count(*) FROM events WHERE properties.n IS NOT NULL GROUP BY five ORDER BY five",
    "SELECT quantile(0.9)(toFloat(properties.n)) FROM events",
    "SELECT event, countIf(properties.plan = 'pro'), sumIf(properties.n, event = 'buy') FROM events GROUP BY event ORDER BY event",
    "SELECT count(*) FROM (SELECT person_id, count(*) AS n FROM events GROUP BY person_id HAVING count(*) > 5)",
    "WITH days AS (SELECT toDate(timestamp) AS day, person_id FROM events GROUP BY 1, 2) SELECT day, count(*) FROM days GROUP BY day ORDER BY day",
    "SELECT event, count(*) FROM events GROUP BY event UNION ALL SELECT 'all', count(*) FROM events ORDER BY 1",
    "SELECT length(distinct_id), count(*) FROM events GROUP BY 1 ORDER BY 1",
    "SELECT groupArray(event) FROM (SELECT event FROM events ORDER BY uuid LIMIT 5)",
    "SELECT arrayMap(x -> x || '!', [event]) AS loud, count(*) FROM events GROUP BY loud ORDER BY loud",
];

/// Questions with joins, of which both sides are partitioned by their keys.
pub(crate) const JOINED: [&str; 14] = [
    "SELECT p.properties.name, a.n FROM (SELECT person_id, count(*) AS n FROM events GROUP BY 1 ORDER BY n DESC, 1 LIMIT 10) a JOIN persons p ON p.id = a.person_id ORDER BY 2 DESC, 1 LIMIT 5",
    "SELECT a.event, a.n, b.n FROM (SELECT event, count(*) AS n FROM events GROUP BY 1) a JOIN (SELECT event, count(DISTINCT person_id) AS n FROM events GROUP BY 1) b ON a.event = b.event ORDER BY 1",
    "SELECT a.event, count(*) FROM events a JOIN events b ON a.person_id = b.person_id AND a.event = 'buy' AND b.event = 'see' GROUP BY a.event",
    "SELECT event, count(*) FROM events WHERE person_id IN (SELECT person_id FROM events WHERE event = 'buy') GROUP BY event ORDER BY event",
    "SELECT person.properties.name, count(*) FROM events GROUP BY 1 ORDER BY 1 NULLS FIRST LIMIT 20",
    "SELECT p.properties.name, count(*) FROM events e JOIN persons p ON p.id = e.person_id GROUP BY 1 ORDER BY 1 NULLS FIRST LIMIT 20",
    "SELECT count(DISTINCT person_id) > 0 FROM events WHERE person_id IN (SELECT person_id FROM events LIMIT 10)",
    "SELECT count(*), count(DISTINCT person_id) FROM events WHERE person_id NOT IN (SELECT person_id FROM events WHERE event = 'buy')",
    "SELECT count(*) FROM events WHERE distinct_id NOT IN (SELECT CASE WHEN event = 'see' THEN distinct_id END FROM events)",
    "SELECT event, count(*) FROM events e WHERE EXISTS (SELECT 1 FROM persons p WHERE p.id = e.person_id AND p.properties.name = 'n1') GROUP BY event ORDER BY event",
    "SELECT count(*), count(p.id), count(e.uuid) FROM events e FULL JOIN persons p ON p.id = e.person_id AND e.event = 'buy'",
    "SELECT g.properties.size, count(*) FROM events e LEFT JOIN groups g ON g.key = e.group_0 GROUP BY 1 ORDER BY 1 NULLS FIRST",
    "SELECT d.distinct_id, count(*) AS n FROM person_distinct_ids d JOIN events e ON e.distinct_id = d.distinct_id GROUP BY 1 ORDER BY n DESC, 1 LIMIT 9",
    "SELECT $entry_hostname, count(*), max($session_duration) FROM sessions GROUP BY 1 ORDER BY 1",
];

/// Questions with a part that is not cut into tasks.
pub(crate) const ALONE: [&str; 7] = [
    "SELECT person_id, timestamp, row_number() OVER (PARTITION BY person_id ORDER BY timestamp, uuid) AS place FROM events ORDER BY person_id, place LIMIT 30",
    "SELECT event, timestamp, lag(event) OVER (PARTITION BY person_id ORDER BY timestamp, uuid) AS before FROM events ORDER BY uuid LIMIT 30",
    "SELECT count(*) FROM events WHERE timestamp > (SELECT min(timestamp) FROM events WHERE event = 'buy')",
    "SELECT uuid, countIf(event = 'buy') OVER (PARTITION BY person_id ORDER BY timestamp, uuid) AS n FROM events ORDER BY uuid",
    "SELECT event, count(*) AS n FROM events GROUP BY event UNION ALL SELECT 'x', max(column1) FROM (VALUES (1), (2)) v ORDER BY 1",
    "SELECT sum(toFloat(properties.n) - (SELECT min(toFloat(properties.n)) FROM events)) FROM events",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT r.n, count(*) FROM events CROSS JOIN r GROUP BY r.n ORDER BY r.n",
];

/// Questions that fail, with the same error.
const WRONG: [&str; 5] = [
    "SELECT CAST(distinct_id AS BIGINT) FROM events WHERE distinct_id = 'person 3'",
    "SELECT 1 / (CAST(properties.n AS BIGINT) - 5) FROM events WHERE properties.n = 5",
    "SELECT nothing FROM events",
    "SELECT count(*) FROM events WHERE timestamp >= (SELECT timestamp FROM events WHERE event = 'buy')",
    "SELECT repeat(event, 100000000) FROM events",
];

/// An object with these members, too.
fn with(mut object: Value, more: &Value) -> Value {
    let more = more.as_object().cloned().expect("an object");
    object.as_object_mut().expect("an object").extend(more);
    object
}

/// Insights of which other nodes read the events.
pub(crate) fn insights() -> Vec<Value> {
    let range = json!({"date_from": "2026-01-01", "date_to": "2026-02-28"});
    let of = |name: &str| json!({"kind": "EventsNode", "event": name});
    let insight = |kind: &str, series: Value, more: &Value| {
        let node = json!({"kind": kind, "dateRange": range, "interval": "week", "series": series});
        with(node, more)
    };
    let trends =
        |math: Value, more: Value| insight("TrendsQuery", json!([with(of("buy"), &math)]), &more);
    let funnel = |more: Value| insight("FunnelsQuery", json!([of("see"), of("buy")]), &more);
    let math = |name: &str| json!({"math": name, "math_property": "n"});
    let by = |key: &str| json!({"breakdownFilter": {"breakdown": key, "breakdown_type": "event"}});
    let filter = |key: &str, operator: &str, value: Value| json!({"properties": [{"key": key, "type": "event", "operator": operator, "value": value}]});
    let retention = |kind: &str| {
        let options = json!({"period": "Week", "totalIntervals": 6, "retentionType": kind,
            "targetEntity": {"id": "see", "type": "events"}, "returningEntity": {"id": "buy", "type": "events"}});
        json!({"kind": "RetentionQuery", "dateRange": range, "retentionFilter": options})
    };
    let correlated = |of: &Value| {
        let source = json!({"kind": "FunnelsActorsQuery", "source": funnel(json!({}))});
        with(json!({"kind": "FunnelCorrelationQuery", "source": source}), of)
    };
    let bins =
        json!({"breakdown": "n", "breakdown_type": "event", "breakdown_histogram_bin_count": 3});
    let unordered = json!({"funnelOrderType": "unordered", "funnelWindowInterval": 3});
    let of_values = json!({"funnelCorrelationType": "event_with_properties", "funnelCorrelationEventNames": ["look"]});
    vec![
        trends(json!({}), json!({})),
        trends(json!({"event": null}), json!({"interval": "day"})),
        trends(json!({"math": "dau"}), json!({})),
        trends(json!({"math": "dau"}), json!({"trendsFilter": {"display": "BoldNumber"}})),
        trends(json!({"math": "weekly_active"}), json!({"interval": "day"})),
        trends(json!({"math": "monthly_active"}), json!({})),
        trends(json!({"math": "unique_session"}), json!({})),
        trends(math("sum"), by("$browser")),
        trends(math("avg"), by("plan")),
        trends(math("p90"), json!({})),
        trends(math("max"), filter("n", "gt", json!(20))),
        trends(json!({"math": "avg_count_per_actor"}), json!({})),
        trends(json!({"math": "first_time_for_user"}), json!({})),
        trends(json!({"math": "dau"}), filter("plan", "exact", json!(["pro", "free"]))),
        trends(json!({}), filter("$browser", "icontains", json!("fire"))),
        trends(json!({}), filter("$browser", "regex", json!("^(Fire|Saf)"))),
        trends(json!({}), filter("plan", "is_not", json!(["pro"]))),
        trends(json!({}), json!({"breakdownFilter": bins})),
        funnel(json!({})),
        funnel(json!({"funnelsFilter": unordered})),
        funnel(by("$browser")),
        funnel(json!({"funnelsFilter": {"funnelVizType": "trends"}})),
        funnel(json!({"funnelsFilter": {"funnelVizType": "time_to_convert"}})),
        funnel(filter("n", "lt", json!(60))),
        retention("retention_first_time"),
        retention("retention_recurring"),
        insight("StickinessQuery", json!([of("buy")]), &json!({"interval": "day"})),
        insight("LifecycleQuery", json!([of("buy")]), &json!({})),
        json!({"kind": "PathsQuery", "dateRange": range, "pathsFilter": {"includeEventTypes": ["custom_event"]}}),
        correlated(&json!({"funnelCorrelationType": "events"})),
        correlated(&of_values),
    ]
    .into_iter()
    .chain(insights_of_subjects())
    .collect()
}

/// Insights with filters on what the events of [`fill`] do not have themselves: persons, cohorts, groups and actions.
fn insights_of_subjects() -> Vec<Value> {
    let range = json!({"date_from": "2026-01-01", "date_to": "2026-02-28"});
    let person = |key: &str, operator: &str, value: Value| json!({"key": key, "type": "person", "operator": operator, "value": value});
    let group = |key: &str, operator: &str, value: Value| json!({"key": key, "type": "group", "group_type_index": 0, "operator": operator, "value": value});
    let cohort =
        |operator: &str| json!({"key": "id", "type": "cohort", "operator": operator, "value": 1});
    let plan = json!({"key": "plan", "type": "event", "operator": "exact", "value": "pro"});
    let either = json!({"type": "AND", "values": [{"type": "OR", "values": [person("name", "exact", json!("n1")), plan]}]});
    let filters = [
        json!([person("name", "is_set", json!("is_set"))]),
        json!([person("name", "is_not_set", json!("is_not_set")), group("size", "gt", json!(1))]),
        json!([person("name", "regex", json!("^n[12]")), person("name", "is_not", json!("n2"))]),
        json!([cohort("in")]),
        json!([cohort("not_in")]),
        json!([group("size", "is_not", json!(2))]),
        json!([group("$group_key", "icontains", json!("g"))]),
        json!([{"key": "distinct_id", "type": "person_metadata", "operator": "icontains", "value": "user"}]),
        either,
    ];
    let of = |name: &str| json!({"kind": "EventsNode", "event": name, "math": "dau"});
    let mut insights: Vec<Value> = filters
        .iter()
        .map(|own| json!({"kind": "TrendsQuery", "dateRange": range, "series": [of("buy"), of("see")], "properties": own}))
        .collect();
    insights.push(json!({"kind": "FunnelsQuery", "dateRange": range, "series": [of("see"), of("buy")], "properties": filters[0]}));
    let by = |kind: &str, key: &str| json!({"breakdown": key, "breakdown_type": kind, "breakdown_group_type_index": 0});
    for (kind, key) in [
        ("person", "name"),
        ("group", "size"),
        ("session", "$is_bounce"),
        ("session", "$entry_pathname"),
    ] {
        insights.push(json!({"kind": "TrendsQuery", "dateRange": range, "series": [of("buy")], "breakdownFilter": by(kind, key)}));
        insights.push(json!({"kind": "FunnelsQuery", "dateRange": range, "series": [of("see"), of("buy")], "breakdownFilter": by(kind, key)}));
    }
    let long =
        json!([{"key": "$session_duration", "type": "session", "operator": "gt", "value": 60}]);
    insights.push(json!({"kind": "TrendsQuery", "dateRange": range, "series": [of("buy")], "properties": long}));
    let clicks = json!({"kind": "ActionsNode", "id": 1, "math": "total"});
    insights.push(json!({"kind": "TrendsQuery", "dateRange": range, "series": [clicks]}));
    insights
}

/// Insights that need what only the server has, or compute with numbers of persons.
pub(crate) fn insights_alone() -> Vec<Value> {
    let range = json!({"date_from": "2026-01-01", "date_to": "2026-02-28"});
    let of = |math: &str| json!([{"kind": "EventsNode", "event": "buy", "math": math}]);
    let by = json!({"breakdown": "plan", "breakdown_type": "event"});
    vec![
        json!({"kind": "TrendsQuery", "dateRange": range, "series": of("weekly_active"), "breakdownFilter": by}),
    ]
}

/// The result of an insight, or the error.
pub(crate) fn result(server: &TestServer, node: &Value) -> Value {
    let question = json!({"query": node, "refresh": "force_blocking"});
    let answer = server.post("/api/projects/1/query/", &question);
    let body = answer.json();
    match answer.status {
        200 => body.get("results").unwrap_or(&body["result"]).clone(),
        status => json!([status, body["detail"]]),
    }
}

/// Faults of one run.
const FAULTS: usize = 12;

fn event(number: u128) -> Value {
    let id = number % 23;
    let at = format!("2026-0{}-{:02}T{:02}:30:00Z", 1 + number % 2, 1 + number % 27, number % 24);
    let of = |names: &[&'static str], number: u128| names[number as usize % names.len()];
    let (name, browser) = (of(&["see", "buy", "look"], number), of(&["Chrome", "Firefox"], number));
    let plan = of(&["pro", "free", ""], number % 7);
    let elements = of(&["a.big:text=\"Buy\";div.shop", "b:text=\"Leave\"", ""], number % 5);
    json!({
        "event": name, "distinct_id": format!("person {id}"),
        "uuid": Uuid::from_u128(number + 1), "timestamp": at,
        "properties": {"n": number % 90, "plan": plan, "$browser": browser, "$elements_chain": elements,
                       "$session_id": format!("session {}", number % 50),
                       "$current_url": format!("https://h{}.example/p{}", number % 3, number % 4),
                       "$groups": {"company": format!("g{}", number % 6)}},
    })
}

/// Gives two thirds of the groups a size.
fn group(number: u128) -> Value {
    json!({
        "event": "$groupidentify", "distinct_id": "person 1",
        "uuid": Uuid::from_u128(3_000_000 + number), "timestamp": "2026-01-01T00:00:00Z",
        "properties": {"$group_type": "company", "$group_key": format!("g{number}"), "$group_set": {"size": number}},
    })
}

/// Merges a third of the persons into others, and gives some a name.
fn identify(number: u128) -> Value {
    json!({
        "event": "$identify", "distinct_id": format!("user {}", number % 5),
        "uuid": Uuid::from_u128(1_000_000 + number), "timestamp": "2026-02-01T00:00:00Z",
        "properties": {"$anon_distinct_id": format!("person {}", number * 3), "$set": {"name": format!("n{}", number % 5)}},
    })
}

/// Events of a visit: some see, look a minute later, and buy after two.
fn visit(number: u128) -> Vec<Value> {
    let of = |name: &'static str, minute: u128| {
        json!({"event": name, "distinct_id": format!("visitor {number}"),
               "uuid": Uuid::from_u128(2_000_000 + number * 10 + minute),
               "timestamp": format!("2026-01-{:02}T10:0{minute}:00Z", 5 + number % 20),
               "properties": {"plan": if number.is_multiple_of(2) { "pro" } else { "free" }}})
    };
    let looks = number.is_multiple_of(2).then(|| of("look", 1));
    let buys = number.is_multiple_of(6).then(|| of("buy", 2));
    [of("see", 0)].into_iter().chain(looks).chain(buys).collect()
}

fn send(server: &TestServer, numbers: std::ops::Range<u128>) {
    let batch: Vec<Value> = numbers.map(event).collect();
    assert_eq!(server.capture(&Value::Array(batch)).status, 200);
}

/// Events in some files, with a column of a property in the later ones, merges after most of them, and events in no file; and
/// those of another project beside them.
pub(crate) fn fill(server: &TestServer) {
    let (_, token) = server.project("other");
    for part in 0..6 {
        send(server, part * 150..(part + 1) * 150);
        let foreign: Vec<Value> = (0..30).map(|number| event(5_000 + part * 30 + number)).collect();
        let sent = server.post("/batch/", &json!({"api_key": token, "batch": foreign}));
        assert_eq!(sent.status, 200, "{sent}");
        let visits: Vec<Value> = (part * 10..part * 10 + 10).flat_map(visit).collect();
        assert_eq!(server.capture(&Value::Array(visits)).status, 200);
        if part == 3 {
            let promoted = json!({"key": "plan", "type": "text"});
            let promoted = server.post("/api/projects/1/promoted_properties/", &promoted);
            assert_eq!(promoted.status, 201, "{promoted}");
        }
        server.flush();
    }
    let merges: Vec<Value> = (0..7).map(identify).collect();
    assert_eq!(server.capture(&Value::Array(merges)).status, 200);
    send(server, 900..1_000);
    let groups: Vec<Value> = (0..4).map(group).collect();
    assert_eq!(server.capture(&Value::Array(groups)).status, 200);
    let named =
        json!([{"key": "name", "type": "person", "operator": "exact", "value": ["n1", "n3"]}]);
    let cohort =
        json!({"name": "some", "filters": {"properties": {"type": "AND", "values": named}}});
    let steps = json!([{"event": "buy", "text": "Buy", "selector": "div.shop a"}, {"tag_name": "b", "text": "^L", "text_matching": "regex"}]);
    for (kind, document) in
        [("cohorts", cohort), ("actions", json!({"name": "clicks", "steps": steps}))]
    {
        let made = server.post(&format!("/api/projects/1/{kind}/"), &document);
        assert_eq!((made.status, &made.json()["id"]), (201, &json!(1)), "{made}");
    }
}

/// Deletes the events of a person, which stay in files for a while.
fn forget(server: &TestServer, distinct_id: &str) {
    let count = format!("SELECT count(*) FROM events WHERE distinct_id = '{distinct_id}'");
    assert!(answer(server, &count)[0][0].as_u64() > Some(10));
    let body = json!({"distinct_ids": [distinct_id], "delete_events": true});
    let deleted = server.post("/api/projects/1/persons/bulk_delete/", &body);
    assert_eq!(deleted.status, 202, "{deleted}");
    assert_eq!(answer(server, &count), json!([[0]]));
}

/// The rows of SQL, or the error.
fn answer(server: &TestServer, sql: &str) -> Value {
    result(server, &node(sql))
}

pub(crate) fn node(sql: &str) -> Value {
    json!({"kind": "HogQLQuery", "query": sql})
}

/// Settings of all nodes, without merges of files and flushes in between.
fn bucket(url: &str) -> Vec<(&str, &str)> {
    let quiet =
        [("WEIR_MEMTABLE_MAX_AGE", "1h"), ("WEIR_COMPACTION_INTERVAL", "1h"), ("WEIR_LOG", "info")];
    settings(url, &quiet)
}

/// Waits until the server knows so many workers.
fn knows(server: &TestServer, count: u64) {
    let known = within(NOTICED, || (server.metric("weir_cluster_workers") == count).then_some(()));
    assert!(known.is_some(), "{} instead of {count}", server.metric("weir_cluster_workers"));
}

fn over_nodes(server: &TestServer) -> u64 {
    server.metric("weir_cluster_queries_total")
}

/// Starts the server anew with these workers; what is in no file stays in memory.
fn restart(server: &mut TestServer, workers: &[Worker]) {
    server.kill();
    let urls = urls(workers);
    for (name, value) in with_workers(&urls) {
        server.set(name, value);
    }
    server.restart();
    knows(server, workers.len() as u64);
}

#[test]
fn answers_are_those_of_one_node() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    forget(&server, "person 11");
    for zone in ["UTC", "America/Sao_Paulo"] {
        let changed = server.patch("/api/projects/1/", &json!({"timezone": zone}));
        assert_eq!(changed.status, 200, "{changed}");
        let ask = |server: &TestServer| {
            let asked = QUESTIONS.iter().chain(&JOINED).chain(&ALONE).chain(&WRONG);
            asked.map(|sql| (*sql, answer(server, sql))).collect::<BTreeMap<_, _>>()
        };
        for name in ["WEIR_CLUSTER_WORKERS", "WEIR_CLUSTER_LISTEN"] {
            server.unset(name);
        }
        server.kill();
        server.restart();
        let alone = ask(&server);
        assert_eq!(over_nodes(&server), 0);
        for sql in QUESTIONS.iter().chain(&JOINED).chain(&ALONE).copied() {
            assert!(alone[sql][0].is_array(), "{sql}: {}", alone[sql]);
        }
        let workers: Vec<Worker> = (0..3).map(|_| Worker::start(&bucket(&url))).collect();
        restart(&mut server, &workers);
        let failed = "weir_cluster_queries_failed_total";
        for (sql, expected) in &alone {
            let (before, failures) = (over_nodes(&server), server.metric(failed));
            assert_eq!(answer(&server, sql), *expected, "{zone}: {sql}");
            if !WRONG.contains(sql) {
                let is_over_nodes = over_nodes(&server) > before;
                assert_eq!(is_over_nodes, !ALONE.contains(sql), "{zone}: {sql}");
            }
            assert_eq!(server.metric(failed), failures, "{zone}: {sql}");
        }
        // The operator sees where a query is executed, and why.
        for (sql, expected) in [
            (QUESTIONS[3], "over workers:"),
            (QUESTIONS[3], "Stage 1"),
            (ALONE[0], "on this server alone: "),
            (ALONE[2], "it has a subquery as a value"),
        ] {
            let said = run(server.weir(&["query", &format!("EXPLAIN {sql}")]));
            assert!(said.contains(expected), "{sql}: {said}");
        }
        // A join, too, is executed by workers, and not only what it reads.
        let said = run(server.weir(&["query", &format!("EXPLAIN {}", JOINED[4])]));
        let stages = said.split_once("over workers:").and_then(|(_, own)| own.split_once("[Stage"));
        assert!(stages.is_some_and(|(_, own)| own.contains("HashJoinExec")), "{said}");
        for worker in &workers {
            assert!(worker.metric("weir_cluster_fragments_total{outcome=\"begun\"}") > 10);
            let idle =
                patiently(|| (worker.metric("weir_cluster_fragments_running") == 0).then_some(()));
            assert!(idle.is_some(), "tasks end with their queries");
            worker.is_well();
        }
        assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
    }
}

/// Goal: insights are the same whoever reads the events. Method: each kind, asked of a server alone, and with workers.
#[test]
fn insights_are_those_of_one_node() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    let (shared, alone) = (insights(), insights_alone());
    let expected: Vec<Value> =
        shared.iter().chain(&alone).map(|node| result(&server, node)).collect();
    assert_eq!(over_nodes(&server), 0);
    let workers: Vec<Worker> = (0..3).map(|_| Worker::start(&bucket(&url))).collect();
    restart(&mut server, &workers);
    let failed = "weir_cluster_queries_failed_total";
    let mut wrong = Vec::new();
    for (at, (node, expected)) in shared.iter().chain(&alone).zip(&expected).enumerate() {
        let (before, failures) = (over_nodes(&server), server.metric(failed));
        let found = result(&server, node);
        let is_shared = over_nodes(&server) > before;
        let has_failed = server.metric(failed) > failures;
        let is_empty = !found.to_string().contains(|one| matches!(one, '1'..='9'));
        let is_error = found[0].is_number();
        let is_right = found == *expected && is_shared == (at < shared.len());
        if !is_right || has_failed || is_empty || is_error {
            wrong.push(format!(
                "{node}\n  shared {is_shared}, failed {has_failed}\n  {found}\n  {expected}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
}

/// Goal: workers know who was merged also where plans cannot have all of them, as of each question, and however often the
/// server or a worker starts anew. Method: events of many merged persons in files, more merges between questions, and the same
/// questions asked of the server alone; a file of overrides that is gone costs no answer.
#[test]
fn workers_know_of_many_merged_persons() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    for part in 0..6_u128 {
        let merged = (part * 300..(part + 1) * 300).flat_map(merged);
        assert_eq!(server.capture(&Value::Array(merged.collect())).status, 200);
    }
    server.flush();
    let questions: Vec<Value> = [1, 3, 5, 10, 21].map(|at| node(QUESTIONS[at])).to_vec();
    let of = |name: &str| json!({"kind": "EventsNode", "event": name, "math": "dau"});
    let range = json!({"date_from": "2026-01-01", "date_to": "2026-02-28"});
    let name = json!([{"key": "name", "type": "person", "operator": "is_set", "value": "is_set"}]);
    let insights = [
        json!({"kind": "TrendsQuery", "dateRange": range, "series": [of("see")], "properties": name}),
        json!({"kind": "FunnelsQuery", "dateRange": range, "series": [of("see"), of("buy")]}),
    ];
    let questions: Vec<Value> = questions.into_iter().chain(insights).collect();
    let mut workers: Vec<Worker> = (0..2).map(|_| Worker::start(&bucket(&url))).collect();
    for round in 0..3_u128 {
        for name in ["WEIR_CLUSTER_WORKERS", "WEIR_CLUSTER_LISTEN"] {
            server.unset(name);
        }
        server.kill();
        server.restart();
        let more =
            |at: u128| (round * 100 + at * 20..round * 100 + (at + 1) * 20).map(|own| 10_000 + own);
        let others: Vec<Value> = more(0).flat_map(merged).collect();
        assert_eq!(server.capture(&Value::Array(others)).status, 200);
        let alone: Vec<Value> =
            questions.iter().map(|question| result(&server, question)).collect();
        restart(&mut server, &workers);
        let failed = "weir_cluster_queries_failed_total";
        for (question, alone) in questions.iter().zip(&alone) {
            let before = over_nodes(&server);
            assert_eq!(result(&server, question), *alone, "{round}: {question}");
            assert!(over_nodes(&server) > before, "{question}");
        }
        assert_eq!(server.metric(failed), 0);
        // What changes since is part of the plan.
        let count = "SELECT count(DISTINCT person_id), count(*) FROM events";
        let persons = answer(&server, count)[0].clone();
        let merged: Vec<Value> = more(1).flat_map(merged).collect();
        assert_eq!(server.capture(&Value::Array(merged)).status, 200);
        let now = answer(&server, count)[0].clone();
        // Each of them has two events, and all are one of ten persons.
        assert_eq!(now[0], persons[0], "{persons} {now}");
        assert_eq!(now[1].as_u64(), persons[1].as_u64().map(|count| count + 40));
        if let Some(worker) = workers.first_mut() {
            worker.kill();
            *worker = Worker::start_on(&worker.address(), &bucket(&url));
        }
    }
    // Workers that have read nothing yet do not find it.
    let files: Vec<String> =
        moto.keys().into_iter().filter(|key| key.contains("_overrides/1-")).collect();
    assert_eq!(files.len(), 1, "one is enough");
    let expected: Vec<Value> = questions.iter().map(|own| result(&server, own)).collect();
    files.iter().for_each(|key| moto.remove(key));
    for worker in &mut workers {
        worker.kill();
        *worker = Worker::start_on(&worker.address(), &bucket(&url));
    }
    knows(&server, 2);
    for (question, expected) in questions.iter().zip(&expected) {
        assert_eq!(result(&server, question), *expected, "{question}");
    }
    assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
}

/// An event of somebody who is one of ten users a moment later.
fn merged(number: u128) -> [Value; 2] {
    let anonymous = format!("anonymous {number}");
    let at = format!("2026-01-{:02}T12:00:00Z", 1 + number % 28);
    [
        json!({"event": "see", "distinct_id": anonymous, "uuid": Uuid::from_u128(5_000_000 + number), "timestamp": at}),
        json!({"event": "$identify", "distinct_id": format!("user {}", number % 10),
               "uuid": Uuid::from_u128(6_000_000 + number), "timestamp": at,
               "properties": {"$anon_distinct_id": anonymous, "$set": {"name": format!("n{}", number % 10)}}}),
    ]
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It ends at once, and another one is started in its place.
    Kill,
    /// It hangs for a while.
    Hang,
}

/// Goal: a worker that ends or hangs in the middle of queries costs time, and no answer. Method: random faults while others
/// ask; every answer is the one of the server alone.
#[test]
fn lost_workers_cost_no_answer() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    let asked = QUESTIONS[..9].iter().map(|sql| node(sql));
    let asked: Vec<Value> = asked.chain(insights()).collect();
    let alone: Vec<Value> = asked.iter().map(|node| result(&server, node)).collect();
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start(&bucket(&url))).collect();
    restart(&mut server, &workers);
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (ends, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for first in 0..2 {
            let (server, asked, alone) = (&server, &asked, &alone);
            let (ends, count) = (&ends, &count);
            scope.spawn(move || {
                for at in (first..).step_by(5) {
                    let at = at % asked.len();
                    assert_eq!(result(server, &asked[at]), alone[at], "{}", asked[at]);
                    count.fetch_add(1, Ordering::Relaxed);
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for _ in 0..FAULTS {
            thread::sleep(Duration::from_millis(random.random_range(0..1_500)));
            let worker = &mut workers[random.random_range(0..3)];
            match if random.random_bool(0.7) { Fault::Kill } else { Fault::Hang } {
                Fault::Kill => {
                    worker.is_well();
                    worker.kill();
                    thread::sleep(Duration::from_millis(random.random_range(0..500)));
                    *worker = Worker::start_on(&worker.address(), &bucket(&url));
                }
                Fault::Hang => {
                    worker.signal("-STOP");
                    thread::sleep(Duration::from_millis(random.random_range(0..3_000)));
                    worker.signal("-CONT");
                }
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(over_nodes(&server) > 5, "{} of {count:?}", over_nodes(&server));
    knows(&server, 3);
    let (before, failed) = (over_nodes(&server), "weir_cluster_queries_failed_total");
    let failures = server.metric(failed);
    assert_eq!(result(&server, &asked[1]), alone[1]);
    assert_eq!(over_nodes(&server), before + 1, "all is well again");
    assert_eq!(server.metric(failed), failures);
}

/// Workers that are in no setting of the server register in the database, and are gone from there when they end.
#[test]
fn workers_register_in_the_database() {
    let (moto, postgres) = (Moto::start(), Postgres::start());
    let (url, database) = (moto.gate().url(), postgres.database());
    let metadata = database.url();
    let common: Vec<(&str, &str)> =
        bucket(&url).into_iter().chain([("WEIR_METADATA_URL", metadata.as_str())]).collect();
    let cluster = with_workers("");
    let cluster = cluster.into_iter().filter(|(name, _)| *name != "WEIR_CLUSTER_WORKERS");
    let server = TestServer::start_with(&common.iter().copied().chain(cluster).collect::<Vec<_>>());
    fill(&server);
    let alone = answer(&server, QUESTIONS[1]);
    assert_eq!(over_nodes(&server), 0);
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start(&common)).collect();
    knows(&server, 3);
    // Over a network, in clear, nobody is asked; nor is one that could not reach the server.
    for stranger in ["http://10.0.0.1:8100", "https://10.0.0.2:8100", "http://127.0.0.1:1"] {
        database.value(&format!(
            "INSERT INTO weir.workers SELECT bucket, '{stranger}', 'x', 1 FROM weir.workers LIMIT 1"
        ));
    }
    thread::sleep(Duration::from_secs(3));
    assert_eq!(server.metric("weir_cluster_workers"), 3);
    for stranger in ["10.0.0.", "127.0.0.1:1/"] {
        assert!(!server.stderr().contains(stranger), "{stranger} was asked");
    }
    assert_eq!(answer(&server, QUESTIONS[1]), alone);
    assert_eq!(over_nodes(&server), 1);
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    let page = server.send("GET", "/project/1/health", &headers, "");
    let page = String::from_utf8(page.body).expect("UTF-8");
    let (before, _) = page.split_once("workers that execute parts").expect("a card of workers");
    let figure = before.rsplit("class=\"figure\">").next().expect("a figure");
    assert!(figure.starts_with('3'), "{figure}");
    let count = |url: &str| {
        let count = format!("SELECT count(*) FROM weir.workers WHERE url = '{url}'");
        database.value(&count)
    };
    let ended = workers.remove(0);
    let own = ended.url.clone();
    assert_eq!(count(own.trim_end_matches('/')), "1");
    ended.signal("-TERM");
    let gone = patiently(|| (count(own.trim_end_matches('/')) == "0").then_some(()));
    assert!(gone.is_some(), "a worker that ends removes itself");
    knows(&server, 2);
    // The list survives an outage of the database, and goes on after it.
    postgres.stop();
    thread::sleep(Duration::from_secs(7));
    assert_eq!(server.metric("weir_cluster_workers"), 2);
    postgres.go_on();
    workers.push(Worker::start(&common));
    knows(&server, 3);
    // One that is killed stays, and is not asked for anything.
    workers[0].kill();
    knows(&server, 2);
    assert_eq!(count(workers[0].url.trim_end_matches('/')), "1");
    assert_eq!(answer(&server, QUESTIONS[1]), alone);
}

/// Nobody without the secret learns anything or has anything executed; other bytes end in an error.
#[test]
fn strangers_are_refused() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let worker = Worker::start(&bucket(&url));
    let client = Client::of(worker.address().parse().expect("an address"));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], preface, b""] {
        let mut socket = TcpStream::connect(client.address()).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    let expected = answer(&server, QUESTIONS[1]);
    server.kill();
    let twice = format!("{0},http://127.0.0.1:1,{0}/", worker.url);
    for (name, value) in with_workers(&twice) {
        server.set(name, value);
    }
    server.set(
        "WEIR_CLUSTER_SECRET",
        "another secret of thirty-two letters".replace(' ', "-").as_str(),
    );
    server.restart();
    let refused = "weir_cluster_fragments_total{outcome=\"refused\"}";
    assert!(patiently(|| (worker.metric(refused) > 1).then_some(())).is_some());
    assert_eq!(server.metric("weir_cluster_workers"), 0);
    assert_eq!(answer(&server, QUESTIONS[1]), expected);
    assert_eq!(worker.metric("weir_cluster_fragments_total{outcome=\"begun\"}"), 0);
    worker.is_well();
}

/// A query that is cancelled ends on all workers.
#[test]
fn what_is_cancelled_ends_on_workers() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    let workers: Vec<Worker> = (0..2).map(|_| Worker::start(&bucket(&url))).collect();
    restart(&mut server, &workers);
    // Megabytes are made for each row, several times.
    const LONG: &str = "SELECT event, sum(length(repeat(distinct_id, 500000)) + length(repeat(event, 500001)) + \
                        length(repeat(distinct_id, 500002)) + length(repeat(event, 500003)) + \
                        length(repeat(distinct_id, 500004)) + length(repeat(event, 500005))) \
                        FROM events GROUP BY event";
    let question = json!({"query": {"kind": "HogQLQuery", "query": LONG}, "refresh": "force_async",
                          "client_query_id": "long"});
    let running = "weir_cluster_fragments_running";
    for _ in 0..2 {
        let begun = server.post("/api/projects/1/query/", &question);
        assert_eq!(begun.status, 202, "{begun}");
        for worker in &workers {
            let begins = patiently(|| (worker.metric(running) > 0).then_some(()));
            assert!(begins.is_some(), "it runs on {worker:?}");
        }
        thread::sleep(Duration::from_millis(300));
        let cancelled = server.delete("/api/projects/1/query/long/");
        assert_eq!(cancelled.status, 200, "{cancelled}");
        for worker in &workers {
            let ends =
                within(Duration::from_secs(5), || (worker.metric(running) == 0).then_some(()));
            assert!(ends.is_some(), "it runs on");
            let used = worker.processor_millis();
            thread::sleep(Duration::from_millis(500));
            let more = worker.processor_millis() - used;
            assert!(more < 250, "{more} ms of CPU time in half a second");
        }
    }
}

/// Workers that execute as much as they may refuse more, and the server answers by itself.
#[test]
fn busy_workers_refuse() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    let expected = answer(&server, QUESTIONS[3]);
    let one = [("WEIR_CLUSTER_FRAGMENTS_MAX", "1")];
    let of_worker: Vec<(&str, &str)> = bucket(&url).into_iter().chain(one).collect();
    let workers: Vec<Worker> = (0..2).map(|_| Worker::start(&of_worker)).collect();
    restart(&mut server, &workers);
    // Two stages are two tasks on each.
    assert_eq!(answer(&server, QUESTIONS[3]), expected);
    assert!(server.metric("weir_cluster_queries_failed_total") > 0);
    let full = "weir_cluster_fragments_total{outcome=\"full\"}";
    assert!(workers.iter().any(|worker| worker.metric(full) > 0));
}

/// Over a network, nodes speak TLS, and check whom they speak with.
#[test]
fn nodes_speak_tls() {
    let moto = Moto::start();
    let url = moto.gate().url();
    let certificates = Certificates::new();
    let file = |name: &str| certificates.file(name).display().to_string();
    let [cert, key, ca, other] = ["server.crt", "server.key", "ca.pem", "other.pem"].map(file);
    let mut server = TestServer::start_with(&bucket(&url));
    fill(&server);
    let expected = answer(&server, QUESTIONS[3]);
    let tls = [
        ("WEIR_CLUSTER_TLS_CERT", cert.as_str()),
        ("WEIR_CLUSTER_TLS_KEY", key.as_str()),
        ("WEIR_CLUSTER_TLS_CA", ca.as_str()),
    ];
    let of_worker: Vec<(&str, &str)> = bucket(&url).into_iter().chain(tls).collect();
    let workers: Vec<Worker> = (0..2).map(|_| Worker::start(&of_worker)).collect();
    assert!(workers.iter().all(|worker| worker.url.starts_with("https://")));
    for (name, value) in tls {
        server.set(name, value);
    }
    restart(&mut server, &workers);
    assert_eq!(answer(&server, QUESTIONS[3]), expected);
    assert_eq!(over_nodes(&server), 1);
    assert_eq!(server.metric("weir_cluster_queries_failed_total"), 0);
    server.kill();
    server.set("WEIR_CLUSTER_TLS_CA", &other);
    server.restart();
    assert_eq!(answer(&server, QUESTIONS[3]), expected);
    thread::sleep(Duration::from_secs(5));
    assert_eq!(server.metric("weir_cluster_workers"), 0, "their issuer is another one");
}
