//! Insights do not depend on how events came or where they are: the same events in any order and any batches, in memory,
//! in files or in merged files, with merges of persons before or after them, and after a restart give the same answers
//! byte for byte.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{TestServer, patiently};
use crate::support::world::{DAY, QUERY, date, days, one_of, time};

/// 2026-03-16: the clocks of Berlin go forward two weeks later.
const FIRST_DAY: i64 = 20_528;
const DAYS: i64 = 28;
const IDS: usize = 16;

/// Flushes and merges files all the time.
const BUSY: [(&str, &str); 6] = [
    ("WEIR_INSIGHT_CACHE_MAX_BYTES", "0B"),
    ("WEIR_MEMTABLE_MAX_AGE", "100ms"),
    ("WEIR_WAL_SEGMENT_MAX_BYTES", "256KiB"),
    ("WEIR_COMPACTION_INTERVAL", "100ms"),
    ("WEIR_COMPACTION_FILES_MIN", "2"),
    ("WEIR_VACUUM_GRACE", "1s"),
];

/// What is sent. Each id has an event that comes first, since a person is as old as its first one that comes.
struct Sent {
    beginnings: Vec<Value>,
    events: Vec<Value>,
    merges: Vec<Value>,
}

impl Sent {
    fn random(rng: &mut StdRng) -> Self {
        let mut event = |name: &str, id: usize, at: i64, properties: Value| {
            json!({"event": name, "distinct_id": format!("d{id}"), "timestamp": time(at),
                   "uuid": Uuid::from_u128(rng.random()), "properties": properties})
        };
        let mut other = StdRng::seed_from_u64(77);
        let beginnings = (0..IDS).map(|id| {
            let at = other.random_range(days(FIRST_DAY, DAYS / 2));
            event("start", id, at, json!({"plan": "pro"}))
        });
        let beginnings = beginnings.collect();
        let mut other = StdRng::seed_from_u64(78);
        let events = (0..500).map(|_| {
            // Many at whole hours, so that some times are equal.
            let at = other.random_range(days(FIRST_DAY, DAYS));
            let at = if other.random_bool(0.6) { at / 3600 * 3600 } else { at };
            let mut properties = json!({
                "plan": one_of(&mut other, &["free", "pro"]), "price": other.random_range(0..100),
                "$current_url": one_of(&mut other, &["https://x/", "https://x/a", "https://x/b/"]),
            });
            if let Some(browser) = one_of(&mut other, &[None, Some("Chrome"), Some("Safari")]) {
                properties["$browser"] = json!(browser);
            }
            if other.random_bool(0.5) {
                properties["$groups"] =
                    json!({"company": format!("c{}", other.random_range(0..4))});
            }
            let name = one_of(&mut other, &["view", "view", "buy", "$pageview", "$pageview"]);
            event(name, other.random_range(0..IDS), at, properties)
        });
        let events = events.collect();
        let mut other = StdRng::seed_from_u64(79);
        let merges = (0..IDS / 3).map(|anonymous| {
            let user = other.random_range(IDS / 3..IDS);
            let properties =
                json!({"$anon_distinct_id": format!("d{anonymous}"), "$set": {"tier": "gold"}});
            event("$identify", user, FIRST_DAY * DAY + 3600, properties)
        });
        let merges = merges.collect();
        Self { beginnings, events, merges }
    }
}

/// Questions of all kinds, and who is behind some of their points.
fn questions() -> Vec<Value> {
    let range = json!({"date_from": date(FIRST_DAY + 2).to_string(), "date_to": date(FIRST_DAY + DAYS - 3).to_string()});
    let filter = json!([{"key": "plan", "value": "pro", "operator": "exact", "type": "event"}]);
    let node = |kind: &str, more: Value| {
        let mut node = json!({"kind": kind, "dateRange": range});
        let fields = node.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        node
    };
    let mut nodes = Vec::new();
    let series = |event: Option<&str>, math: &str| json!([{"kind": "EventsNode", "event": event, "math": math, "math_property": "price"}]);
    for (event, math) in [
        (None, "total"),
        (Some("view"), "dau"),
        (None, "weekly_active"),
        (Some("buy"), "sum"),
        (Some("buy"), "avg"),
        (None, "p90"),
        (Some("view"), "avg_count_per_actor"),
    ] {
        nodes.push(node("TrendsQuery", json!({"series": series(event, math)})));
    }
    for (math, more) in [
        ("first_time_for_user", json!({"properties": filter})),
        ("first_time_for_user", json!({"breakdownFilter": {"breakdown": "plan"}})),
        ("first_matching_event_for_user", json!({"breakdownFilter": {"breakdown": "$browser"}})),
        ("dau", json!({"breakdownFilter": {"breakdown": "$browser", "breakdown_limit": 1}})),
        ("dau", json!({"breakdownFilter": {"breakdown": "tier", "breakdown_type": "person"}})),
        (
            "dau",
            json!({"trendsFilter": {"display": "ActionsLineGraphCumulative"}, "interval": "week"}),
        ),
        (
            "total",
            json!({"trendsFilter": {"display": "BoldNumber"}, "compareFilter": {"compare": true}}),
        ),
    ] {
        let mut node = node("TrendsQuery", more);
        node["series"] = series(Some("view"), math);
        nodes.push(node);
    }
    let steps = json!([{"event": "view"}, {"event": "view"}, {"event": "buy"}]);
    for options in [
        json!({}),
        json!({"funnelOrderType": "unordered"}),
        json!({"funnelOrderType": "strict"}),
        json!({"funnelVizType": "trends"}),
        json!({"funnelVizType": "time_to_convert"}),
        json!({"exclusions": [{"event": "$pageview", "funnelFromStep": 0, "funnelToStep": 2}]}),
    ] {
        let mut node = node("FunnelsQuery", json!({"series": steps, "funnelsFilter": options}));
        nodes.push(node.clone());
        node["breakdownFilter"] = json!({"breakdown": "$browser", "breakdown_limit": 1});
        nodes.push(node);
    }
    let target = json!({"id": "view", "type": "events"});
    for (kind, period) in [
        ("retention_recurring", "Day"),
        ("retention_first_time", "Week"),
        ("retention_first_ever_occurrence", "Day"),
    ] {
        let options = json!({"retentionType": kind, "period": period, "targetEntity": target, "returningEntity": target});
        nodes.push(node(
            "RetentionQuery",
            json!({"retentionFilter": options, "properties": filter}),
        ));
    }
    nodes.push(node("StickinessQuery", json!({"series": series(None, "total")})));
    nodes.push(node(
        "StickinessQuery",
        json!({"series": series(Some("view"), "dau"), "properties": filter}),
    ));
    nodes.push(node("LifecycleQuery", json!({"series": series(None, "total")})));
    nodes.push(node(
        "LifecycleQuery",
        json!({"series": series(Some("view"), "total"), "interval": "week"}),
    ));
    nodes.push(node("PathsQuery", json!({"pathsFilter": {"stepLimit": 8}})));
    nodes.push(node("PathsQuery", json!({"pathsFilter": {"includeEventTypes": ["$pageview"]}, "aggregation_group_type_index": 0})));
    let behind = |source: Value| json!({"kind": "ActorsQuery", "source": source, "select": ["id", "value"], "limit": 50});
    let points = [
        json!({"kind": "InsightActorsQuery", "source": nodes[1], "day": date(FIRST_DAY + 9).to_string(), "series": 0}),
        json!({"kind": "InsightActorsQuery", "source": nodes[7], "series": 0}),
        json!({"kind": "FunnelsActorsQuery", "source": nodes[14], "funnelStep": 2}),
    ];
    nodes.extend(points.map(behind));
    nodes
}

/// The results of all questions as they are written.
fn answers(server: &TestServer) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Body {
        results: Box<RawValue>,
    }
    let answer = |node: &Value| {
        let answer = server.post(QUERY, &json!({"query": node, "refresh": "force_blocking"}));
        assert_eq!(answer.status, 200, "{answer} {node}");
        let body: Body = serde_json::from_slice(&answer.body).expect("a body");
        body.results.get().to_owned()
    };
    questions().iter().map(answer).collect()
}

fn assert_same(server: &TestServer, expected: &[String], arrangement: &str) {
    let questions = questions();
    for ((found, expected), question) in answers(server).iter().zip(expected).zip(&questions) {
        assert_eq!(found, expected, "{arrangement}: {question}");
    }
}

fn start(settings: &[(&str, &str)]) -> TestServer {
    let server = TestServer::start_with(settings);
    let settings = json!({"timezone": "Europe/Berlin", "week_start_day": 1});
    let set = server.patch("/api/projects/@current/", &settings);
    assert_eq!(set.status, 200, "{set}");
    server
}

fn send(server: &TestServer, events: &[Value], rng: &mut StdRng, most: usize) {
    let mut rest = events;
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(rng.random_range(1..=most.min(rest.len())));
        assert_eq!(server.capture(&json!(batch)).status, 200);
        rest = later;
    }
}

#[test]
fn answers_do_not_depend_on_the_arrangement_of_events() {
    let mut rng = StdRng::seed_from_u64(90);
    let Sent { beginnings, mut events, merges } = Sent::random(&mut rng);
    let mut server = start(&BUSY[..1]);
    let all = [&beginnings[..], &events, &merges].concat();
    assert_eq!(server.capture(&json!(all)).status, 200);
    let expected = answers(&server);
    assert!(expected.len() >= 30, "{}", expected.len());
    assert!(expected.iter().all(|results| results != "[]"), "{expected:?}");
    server.flush();
    assert_same(&server, &expected, "in files");
    server.stop();
    server.restart();
    assert_same(&server, &expected, "after a restart");
    drop(server);

    for (settings, arrangement, is_merged_first, most) in [
        (&BUSY[..1], "in small batches, merged first", true, 4),
        (&BUSY[..1], "in larger batches, merged last", false, 200),
        (&BUSY[..], "in files that are merged, merged first", true, 20),
        (&BUSY[..], "in files that are merged, merged last", false, 60),
    ] {
        events.shuffle(&mut rng);
        let mut server = start(settings);
        send(&server, &beginnings, &mut rng, IDS);
        if is_merged_first {
            send(&server, &merges, &mut rng, 3);
        }
        let (one, other) = events.split_at(rng.random_range(1..events.len()));
        send(&server, one, &mut rng, most);
        server.flush();
        if !is_merged_first {
            send(&server, &merges, &mut rng, 3);
        }
        send(&server, other, &mut rng, most);
        assert_same(&server, &expected, arrangement);
        if settings.len() > 1 {
            server.flush();
            let merged = patiently(|| (server.files().len() <= 4).then_some(()));
            merged.expect("files are merged");
            assert_same(&server, &expected, arrangement);
        }
        server.kill();
        server.restart();
        assert_same(&server, &expected, arrangement);
    }
}
