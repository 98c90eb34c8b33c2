//! Sessions beside a plain computation over the sent events: the table of SQL, and insights that filter, split and count
//! by them. Every event also has what its session is expected to be as properties of its own, so that each question
//! about sessions has a twin about properties of events, with the same answer.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use crate::harness::TestServer;
use crate::support::world;
use crate::support::world::{DAY, Details, HOUR, QUERY, World, date, in_each_state, one_of, time};

/// 2026-05-01.
const FIRST_DAY: i64 = 20_574;

const IDS: usize = 15;

const SESSIONS: usize = 70;

/// The longest session: one that begins or ends outside of a range is still whole.
const LONGEST: i64 = 2 * DAY;

const NAMES: [&str; 4] = ["$pageview", "$autocapture", "$screen", "buy"];

/// Properties of sessions that filters ask about, and whether breakdowns do.
const PROPERTIES: [(&str, bool); 11] = [
    ("$start_timestamp", false),
    ("$end_timestamp", false),
    ("$session_duration", true),
    ("$pageview_count", true),
    ("$autocapture_count", true),
    ("$screen_count", true),
    ("$is_bounce", true),
    ("$entry_current_url", true),
    ("$entry_pathname", true),
    ("$end_pathname", true),
    ("$entry_utm_source", true),
];

#[derive(Clone, Debug)]
struct Seen {
    /// `$session_id` as it is sent.
    session: Value,
    url: Option<&'static str>,
    source: Option<&'static str>,
    plan: &'static str,
    /// What is expected of its session, by the names of [`PROPERTIES`].
    expected: Map<String, Value>,
}

impl Details for Seen {
    fn properties(&self) -> Value {
        let mut properties = Map::new();
        properties.insert("plan".to_owned(), json!(self.plan));
        if !self.session.is_null() {
            properties.insert("$session_id".to_owned(), self.session.clone());
        }
        for (key, value) in [("$current_url", self.url), ("utm_source", self.source)] {
            properties.extend(value.map(|value| (key.to_owned(), json!(value))));
        }
        let twins = self.expected.iter().filter(|(_, value)| !value.is_null());
        properties.extend(twins.map(|(name, value)| (twin(name), value.clone())));
        Value::Object(properties)
    }
}

type Event = world::Event<Seen>;

/// The property of events that has the same value.
fn twin(name: &str) -> String {
    name.replace('$', "expected_")
}

/// Properties of each session of these events, by its id, and its last distinct id as `distinct_id`.
fn sessions_of<'e>(
    events: impl Iterator<Item = &'e Event>,
) -> BTreeMap<String, Map<String, Value>> {
    let mut found: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
    for event in events {
        if let Some(id) = event.session.as_str().filter(|id| !id.is_empty()) {
            found.entry(id.to_owned()).or_default().push(event);
        }
    }
    let session = |(id, events): (String, Vec<&Event>)| (id, session_of(&events));
    found.into_iter().map(session).collect()
}

fn session_of(events: &[&Event]) -> Map<String, Value> {
    let at = |event: &&&Event| (event.at, event.millis);
    let first = events.iter().min_by_key(at).expect("an event");
    let last = events.iter().max_by_key(at).expect("an event");
    let pages = || events.iter().filter(|event| event.url.is_some_and(|url| !url.is_empty()));
    let entry = pages().min_by_key(|event| (at(event), event.url)).map(|event| at(&event));
    let entered = || pages().filter(|event| entry == Some(at(event)));
    let end = pages().max_by_key(|event| (at(event), event.url)).and_then(|event| event.url);
    let entry = entered().filter_map(|event| event.url).min();
    // Of several at one time the one without it comes first.
    let source = entered().map(|event| event.source).min().flatten();
    let path = |url: Option<&str>| {
        let rest = url?.strip_prefix("https://a.example")?;
        let path = rest.split('?').next().filter(|path| !path.is_empty());
        path.map(str::to_owned)
    };
    let count = |name: &str| events.iter().filter(|event| event.name == name).count();
    let (pageviews, seconds) = (count("$pageview"), last.at - first.at);
    let is_bounce =
        (pageviews > 0).then(|| pageviews == 1 && count("$autocapture") == 0 && seconds < 10);
    let ids = events.iter().filter(|event| at(event) == at(&last));
    let id = ids.map(|event| format!("d{}", event.id)).max();
    let written = |event: &Event| {
        let at =
            chrono::DateTime::from_timestamp(event.at, event.millis * 1_000_000).expect("a time");
        at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
    };
    let session = json!({
        "distinct_id": id, "$start_timestamp": written(first), "$end_timestamp": written(last),
        "$session_duration": seconds, "$pageview_count": pageviews,
        "$autocapture_count": count("$autocapture"), "$screen_count": count("$screen"),
        "$is_bounce": is_bounce, "$entry_current_url": entry, "$entry_pathname": path(entry),
        "$end_pathname": path(end), "$entry_utm_source": source,
    });
    session.as_object().expect("an object").clone()
}

/// A server with random events of random sessions, some of several persons, and some events of none.
fn start(rng: &mut StdRng) -> (TestServer, World<Seen>) {
    let mut events = Vec::new();
    for number in 0..SESSIONS {
        let begin = (FIRST_DAY + 4) * DAY + rng.random_range(0..16 * DAY);
        let longest = one_of(rng, &[8, 60, 2 * HOUR, LONGEST]);
        let (own, other) = (rng.random_range(0..IDS), rng.random_range(0..IDS));
        let id = match number % 10 {
            0 => ["", "5", "[1]", "null", "true", "{}", "0"][number / 10].to_owned(),
            1 => format!("{number}:{}", "x".repeat(10_000)),
            _ => format!("session {number}"),
        };
        let session = match number % 12 {
            0 => Value::Null,
            7 => [json!(5), json!([1]), json!({"a": 1}), json!(true)][number % 4].clone(),
            _ => json!(id),
        };
        for _ in 0..rng.random_range(1..9) {
            // Some at the same time.
            let at = begin + rng.random_range(0..=4) * longest / 4;
            let url = one_of(
                rng,
                &[
                    None,
                    Some(""),
                    Some("https://a.example"),
                    Some("https://a.example/"),
                    Some("https://a.example/pricing?x=1"),
                    Some("https://a.example/docs"),
                ],
            );
            let seen = Seen {
                session: session.clone(),
                url,
                source: one_of(rng, &[None, None, Some("news"), Some("ads")]),
                plan: one_of(rng, &["free", "pro"]),
                expected: Map::new(),
            };
            let person = if rng.random_bool(0.9) { own } else { other };
            let mut event = Event::new(at, one_of(rng, &NAMES), person, seen);
            event.millis = one_of(rng, &[0, 0, 250]);
            events.push(event);
        }
    }
    // Out of order, and so that no two of one time are told apart by their place.
    for at in (1..events.len()).rev() {
        events.swap(at, rng.random_range(0..=at));
    }
    let sessions = sessions_of(events.iter());
    for event in &mut events {
        let own = event.session.as_str().and_then(|id| sessions.get(id));
        event.details.expected = own.cloned().unwrap_or_default();
        event.details.expected.remove("distinct_id");
    }
    World::start(rng, &json!({}), (events, IDS))
}

/// A filter on sessions, and its twin.
fn filters(rng: &mut StdRng, world: &World<Seen>) -> [Value; 2] {
    let (name, _) = one_of(rng, &PROPERTIES);
    let event = &world.events[rng.random_range(0..world.events.len())];
    let value = event.expected.get(name).cloned().unwrap_or_default();
    let operators: &[&str] = match &value {
        Value::Null => &["is_set", "is_not_set"],
        Value::Number(_) => &["exact", "is_not", "gt", "lt", "gte", "is_set"],
        Value::Bool(_) => &["exact", "is_not"],
        _ if name.ends_with("timestamp") => &["is_date_after", "is_date_before"],
        _ => &["exact", "is_not", "icontains", "not_icontains", "regex", "is_not_set"],
    };
    let operator = one_of(rng, operators);
    let value = match &value {
        Value::Bool(truth) => json!([truth.to_string()]),
        Value::Null => Value::Null,
        Value::String(text) if operator == "regex" => json!(text.replace('?', ".")),
        other if rng.random_bool(0.3) && ["exact", "is_not"].contains(&operator) => json!([other]),
        other => other.clone(),
    };
    let twins = [(name.to_owned(), "session"), (twin(name), "event")];
    let negation = rng.random_bool(0.2);
    let other = json!({"key": "plan", "value": "pro", "type": "event"});
    let form = rng.random_range(0..3);
    twins.map(|(key, kind)| {
        let filter = json!({"key": key, "type": kind, "operator": operator, "value": value, "negation": negation});
        match form {
            0 => json!([filter]),
            1 => json!([filter, other]),
            _ => json!({"type": "OR", "values": [filter, {"type": "AND", "values": [other]}]}),
        }
    })
}

/// A breakdown by sessions, and its twin.
fn breakdowns(rng: &mut StdRng) -> [Value; 2] {
    let names: Vec<&str> = PROPERTIES.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    let (name, second) = (one_of(rng, &names), one_of(rng, &names));
    let form = rng.random_range(0..4);
    let limit = one_of(rng, &[2, 25]);
    [("session", false), ("event", true)].map(|(kind, is_twin)| {
        let key = |name: &str| if is_twin { twin(name) } else { name.to_owned() };
        let several = |others: Value| {
            let mut list = vec![json!({"property": key(name), "type": kind})];
            list.extend(others.as_array().expect("a list").iter().cloned());
            json!({"breakdowns": list, "breakdown_limit": limit})
        };
        match form {
            0 => several(json!([{"property": "plan", "type": "event"}])),
            1 => several(json!([{"property": key(second), "type": kind, "normalize_url": true}])),
            _ => json!({"breakdown": key(name), "breakdown_type": kind, "breakdown_limit": limit}),
        }
    })
}

/// A random node, and its twin.
fn nodes(rng: &mut StdRng, world: &World<Seen>) -> [Value; 2] {
    let from = FIRST_DAY + rng.random_range(5..14);
    let dates = json!({"date_from": date(from).to_string(),
                       "date_to": date(from + rng.random_range(1..6)).to_string()});
    let event = |name: Option<&str>| json!({"kind": "EventsNode", "event": name});
    let (one, two) = (event(Some(one_of(rng, &NAMES))), event(one_of(rng, &[None, Some("buy")])));
    let entity = |name: &str| json!({"id": name, "type": "events"});
    let mut node = match rng.random_range(0..8) {
        0..3 => {
            let math = one_of(
                rng,
                &[
                    "total",
                    "dau",
                    "unique_session",
                    "weekly_active",
                    "first_time_for_user",
                    "first_matching_event_for_user",
                    "avg_count_per_actor",
                ],
            );
            let mut one = one;
            one["math"] = json!(math);
            let display =
                one_of(rng, &["ActionsLineGraph", "BoldNumber", "ActionsLineGraphCumulative"]);
            json!({"kind": "TrendsQuery", "series": [one, two], "trendsFilter": {"display": display}})
        }
        3 | 4 => {
            let order = one_of(rng, &["ordered", "strict", "unordered"]);
            let attribution = one_of(rng, &["first_touch", "last_touch", "all_events"]);
            json!({"kind": "FunnelsQuery", "series": [one, two], "funnelsFilter": {
                   "funnelOrderType": order, "breakdownAttributionType": attribution}})
        }
        5 => {
            let kind = one_of(rng, &["retention_recurring", "retention_first_time"]);
            json!({"kind": "RetentionQuery", "retentionFilter": {
                   "period": "Day", "totalIntervals": 5, "retentionType": kind,
                   "targetEntity": entity("$pageview"), "returningEntity": entity("buy")}})
        }
        6 => json!({"kind": "StickinessQuery", "series": [one, two], "interval": "day"}),
        _ if rng.random_bool(0.5) => {
            json!({"kind": "LifecycleQuery", "series": [one], "interval": "day"})
        }
        _ => {
            json!({"kind": "PathsQuery", "pathsFilter": {"includeEventTypes": ["$pageview", "custom_event"]}})
        }
    };
    let is_correlated = node["kind"] == "FunnelsQuery" && rng.random_bool(0.3);
    node["dateRange"] = dates;
    let mut twins = [node.clone(), node];
    let kind = twins[0]["kind"].as_str().expect("a kind").to_owned();
    let is_split =
        !is_correlated && ["TrendsQuery", "FunnelsQuery"].contains(&&*kind) && rng.random_bool(0.6);
    if is_split {
        for (node, breakdown) in twins.iter_mut().zip(breakdowns(rng)) {
            node["breakdownFilter"] = breakdown;
        }
    }
    let is_of_all = rng.random_bool(0.5);
    if is_of_all && (!is_split || rng.random_bool(0.5)) {
        for (node, filters) in twins.iter_mut().zip(filters(rng, world)) {
            node["properties"] = filters;
        }
    }
    if !is_of_all {
        for (node, filters) in twins.iter_mut().zip(filters(rng, world)) {
            match &*kind {
                "RetentionQuery" => node["retentionFilter"]["targetEntity"]["properties"] = filters,
                "PathsQuery" => node["properties"] = filters,
                _ => node["series"][0]["properties"] = filters,
            }
        }
    }
    if is_correlated {
        twins = twins.map(|funnel| {
            json!({"kind": "FunnelCorrelationQuery", "funnelCorrelationType": "events",
                   "source": {"kind": "FunnelsActorsQuery", "source": funnel, "funnelStep": 1}})
        });
    }
    twins
}

/// Without what was sent, which answers repeat.
fn without_sent(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let own =
                fields.into_iter().filter(|(name, _)| name != "action" && name != "properties");
            Value::Object(own.map(|(name, value)| (name, without_sent(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_sent).collect(),
        other => other,
    }
}

fn results(server: &TestServer, query: &Value) -> Value {
    let answer = server.post(QUERY, &json!({"query": query}));
    assert_eq!(answer.status, 200, "{query} {answer}");
    without_sent(answer.json()["results"].clone())
}

/// Questions about the actors behind some point of the answer of a node.
fn behind(node: &Value, answer: &Value) -> Vec<Value> {
    let asked = |more: Value| {
        let mut source = json!({"kind": "InsightActorsQuery", "source": node});
        source
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        source
    };
    let sources = match node["kind"].as_str().expect("a kind") {
        "TrendsQuery" => {
            let series =
                answer.as_array().expect("series").iter().filter(|series| series["order"] == 0);
            let point = |series: &Value| {
                asked(
                    json!({"series": 0, "day": series["days"][1], "breakdown": series["breakdown_value"]}),
                )
            };
            series.take(3).map(point).collect()
        }
        "FunnelsQuery" => {
            let value = &answer[0][0]["breakdown_value"];
            vec![
                json!({"kind": "FunnelsActorsQuery", "source": node, "funnelStep": 1, "funnelStepBreakdown": value}),
            ]
        }
        "RetentionQuery" => vec![asked(json!({"interval": 0}))],
        "StickinessQuery" => vec![asked(json!({"day": 1, "series": 0}))],
        "FunnelCorrelationQuery" => Vec::new(),
        "LifecycleQuery" => vec![asked(json!({"day": answer[0]["days"][1], "status": "new"}))],
        _ => vec![asked(json!({}))],
    };
    let query =
        |source: Value| json!({"kind": "ActorsQuery", "source": source, "select": ["person"]});
    sources.into_iter().map(query).collect()
}

#[test]
fn questions_about_sessions_are_answered_like_their_twins() {
    let mut rng = StdRng::seed_from_u64(rand::random());
    let seed = rng.random_range(0..u64::from(u32::MAX));
    eprintln!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut server, world) = start(&mut rng);
    let mut filled = 0;
    in_each_state(&mut server, |server, state| {
        for _ in 0..50 {
            let [node, twin] = nodes(&mut rng, &world);
            let [found, expected] = [&node, &twin].map(|node| results(server, node));
            assert_eq!(found, expected, "seed {seed} {state} {node}");
            filled += usize::from(found.to_string().contains(|digit| ('1'..='9').contains(&digit)));
            for (query, twin) in behind(&node, &found).iter().zip(behind(&twin, &found)) {
                let [found, expected] = [query, &twin].map(|query| results(server, query));
                assert_eq!(found, expected, "seed {seed} {state} {query}");
            }
        }
    });
    assert!(filled > 100, "{filled} are not empty");
}

#[test]
fn sql_has_sessions_as_a_table() {
    let mut rng = StdRng::seed_from_u64(rand::random::<u32>().into());
    let (mut server, world) = start(&mut rng);
    let expected: Vec<Value> = sessions_of(world.events.iter())
        .into_iter()
        .map(|(id, mut session)| {
            session.insert("session_id".to_owned(), json!(id));
            // Columns without a value are not told.
            Value::Object(session.into_iter().filter(|(_, value)| !value.is_null()).collect())
        })
        .collect();
    let names: Vec<String> = PROPERTIES.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let columns = format!("session_id, distinct_id, {}", names.join(", "));
    in_each_state(&mut server, |server, state| {
        let found = server.query(&format!("SELECT {columns} FROM sessions ORDER BY session_id"));
        let found: Vec<Value> = found.into_iter().map(without_nulls).collect();
        assert_eq!(found, expected, "{state}");
        let others = "SELECT count(*) AS n FROM sessions s JOIN person_distinct_ids p USING (distinct_id) \
                      WHERE s.person_id <> p.person_id";
        assert_eq!(server.count(others), 0, "{state}");
        let sql =
            "SELECT count(*), sum($session_duration) FROM sessions WHERE $pageview_count >= 0";
        let query = json!({"kind": "HogQLQuery", "query": sql});
        let answer = server.post(QUERY, &json!({"query": query})).json();
        let seconds: i64 =
            expected.iter().filter_map(|own| own["$session_duration"].as_i64()).sum();
        assert_eq!(answer["results"], json!([[expected.len(), seconds]]), "{answer}");
    });
    let told = server
        .post(QUERY, &json!({"query": {"kind": "HogQLQuery", "query": "SELECT 1 FROM visits"}}));
    assert!(told.json()["detail"].as_str().expect("a detail").contains("sessions"), "{told}");
}

fn without_nulls(row: Value) -> Value {
    match row {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

/// The statistic of numbers.
fn statistic(name: &str, mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return 0.0 };
    let sum: f64 = numbers.iter().sum();
    // Linear between the two values around the place.
    let count = u32::try_from(numbers.len()).expect("few");
    let quantile = |part: f64| {
        let place = part * f64::from(count - 1);
        let share = |at: u32| (1.0 - (f64::from(at) - place).abs()).max(0.0);
        numbers.iter().zip(0..).map(|(number, at)| number * share(at)).sum()
    };
    match name {
        "sum" => sum,
        "avg" => sum / f64::from(count),
        "min" => *first,
        "max" => *last,
        "median" => quantile(0.5),
        _ => quantile(0.9),
    }
}

/// The values that sessions have of a property, of which these events are: by session, and whose they are.
fn values_of<'e>(
    world: &World<Seen>,
    events: impl Iterator<Item = &'e Event>,
    property: &str,
) -> (BTreeMap<String, f64>, BTreeSet<usize>) {
    let (mut of_sessions, mut persons) = (BTreeMap::new(), BTreeSet::new());
    for event in events {
        persons.insert(world.person(event));
        let value = match event.expected.get(property) {
            Some(Value::Bool(truth)) => Some(f64::from(u8::from(*truth))),
            value => value.and_then(Value::as_f64),
        };
        of_sessions.extend(value.map(|value| (event.session.to_string(), value)));
    }
    (of_sessions, persons)
}

#[test]
fn math_takes_each_session_once() {
    let mut rng = StdRng::seed_from_u64(rand::random::<u32>().into());
    let (mut server, world) = start(&mut rng);
    let (from, to) = (FIRST_DAY + 6, FIRST_DAY + 12);
    let is_in = |event: &Event, (plan, day): (&str, i64)| {
        event.name == "buy" && event.plan == plan && event.at.div_euclid(DAY) == day
    };
    in_each_state(&mut server, |server, state| {
        for name in ["sum", "avg", "min", "max", "median", "p90"] {
            let property =
                one_of(&mut rng, &["$session_duration", "$pageview_count", "$is_bounce"]);
            let is_plain = property == "$session_duration";
            let kind = (!is_plain).then_some("session_properties");
            let node = json!({"kind": "TrendsQuery",
                "series": [{"event": "buy", "math": name, "math_property": property, "math_property_type": kind}],
                "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event"},
                "dateRange": {"date_from": date(from).to_string(), "date_to": date(to).to_string()}});
            let found = results(server, &node);
            let lines = found.as_array().expect("series").iter();
            for (line, (day, at)) in
                lines.flat_map(|line| (from..=to).zip(0_usize..).map(move |day| (line, day)))
            {
                let plan = line["breakdown_value"].as_str().expect("a plan");
                let events = world.events.iter().filter(|event| is_in(event, (plan, day)));
                let (of_sessions, persons) = values_of(&world, events, property);
                let expected = statistic(name, of_sessions.into_values().collect());
                let number = line["data"][at].as_f64().expect("a number");
                let is_same = (number - expected).abs() < 1e-9;
                assert!(is_same, "{state} {name} {property} {day} {number} {expected}");
                let source = json!({"kind": "InsightActorsQuery", "source": node, "series": 0,
                                    "day": line["days"][at], "breakdown": plan});
                let query = json!({"kind": "ActorsQuery", "source": source, "select": ["person"]});
                let rows = results(server, &query);
                let rows = rows.as_array().expect("rows").iter();
                let behind: BTreeSet<usize> = rows.map(|row| world.person_of(&row[0])).collect();
                assert_eq!(behind, persons, "{state} {name} {day}");
            }
        }
    });
}

/// A server with these events: a session, a time, a name.
fn server_with(events: &[(&str, i64, &str)]) -> TestServer {
    let server = TestServer::start();
    let event = |(session, at, name): &(&str, i64, &str)| {
        json!({"event": name, "distinct_id": "a", "timestamp": time(*at),
               "properties": {"$session_id": session, "$current_url": format!("https://a.example/{name}")}})
    };
    let events: Vec<Value> = events.iter().map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

#[test]
fn sessions_are_whole_within_three_days_of_a_range() {
    let noon = |day: i64| (FIRST_DAY + day) * DAY + 12 * HOUR;
    let server = server_with(&[
        ("a", noon(0), "first"),
        ("a", noon(7), "second"),
        ("a", noon(10), "view"),
        ("a", noon(13), "last"),
        ("a", noon(14), "too late"),
    ]);
    let day = date(FIRST_DAY + 10).to_string();
    let node = json!({"kind": "TrendsQuery", "series": [{"event": "view"}],
        "breakdownFilter": {"breakdowns": [{"property": "$entry_pathname", "type": "session"},
                                           {"property": "$end_pathname", "type": "session"},
                                           {"property": "$session_duration", "type": "session"}]},
        "dateRange": {"date_from": day, "date_to": day}});
    let found = results(&server, &node);
    let expected = json!(["/second", "/last", (6 * DAY).to_string()]);
    assert_eq!(
        (&found[0]["breakdown_value"], found.as_array().map(Vec::len)),
        (&expected, Some(1))
    );
    // SQL has all of it.
    let found = server.query(
        "SELECT \"$entry_pathname\" AS entry, \"$session_duration\" AS seconds FROM sessions",
    );
    assert_eq!(found, [json!({"entry": "/first", "seconds": 14 * DAY})]);
}

#[test]
fn test_accounts_and_actions_may_be_told_by_sessions() {
    let noon = FIRST_DAY * DAY + 12 * HOUR;
    let server = server_with(&[
        ("a", noon, "view"),
        ("a", noon + 60, "view"),
        ("b", noon, "view"),
        ("c", noon, "other"),
    ]);
    let long =
        json!([{"key": "$session_duration", "type": "session", "operator": "gt", "value": 30}]);
    let set = server.patch("/api/projects/@current/", &json!({"test_account_filters": long}));
    assert_eq!(set.status, 200, "{set}");
    let steps = json!([{"event": "view", "properties": long}, {"event": "other"}]);
    let action =
        server.post("/api/projects/@current/actions/", &json!({"name": "Long", "steps": steps}));
    assert_eq!(action.status, 201, "{action}");
    let day = date(FIRST_DAY).to_string();
    for (series, is_without_tests, expected) in [
        (json!({"event": "view"}), false, 3),
        (json!({"event": "view"}), true, 2),
        (json!({"kind": "ActionsNode", "id": action.json()["id"]}), false, 3),
        (json!({"kind": "ActionsNode", "id": action.json()["id"]}), true, 2),
    ] {
        for kind in ["TrendsQuery", "StickinessQuery"] {
            let node = json!({"kind": kind, "series": [series], "interval": "day",
                "filterTestAccounts": is_without_tests, "dateRange": {"date_from": day, "date_to": day}});
            let found = results(&server, &node);
            let expected = if kind == "TrendsQuery" { expected } else { 1 };
            assert_eq!(found[0]["count"], expected, "{node} {found}");
        }
    }
}

#[test]
fn older_clients_ask_of_sessions() {
    let noon = FIRST_DAY * DAY + 12 * HOUR;
    let server = server_with(&[("a", noon, "view"), ("a", noon + 60, "view"), ("b", noon, "view")]);
    let day = date(FIRST_DAY).to_string();
    let ask = |filter: Value| {
        let mut body = json!({"date_from": day, "date_to": day});
        body.as_object_mut()
            .expect("an object")
            .extend(filter.as_object().expect("an object").clone());
        let answer = server.post("/api/projects/@current/insights/trend/", &body);
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["result"].clone()
    };
    let long =
        json!([{"key": "$session_duration", "type": "session", "operator": "gt", "value": 30}]);
    let found = ask(json!({"events": [{"id": "view", "type": "events", "properties": long}]}));
    assert_eq!(found[0]["count"], 2, "{found}");
    let events = json!([{"id": "view", "type": "events", "math": "max", "math_property": "$session_duration",
                         "math_property_type": "session_properties"}]);
    let found =
        ask(json!({"events": events, "breakdown": "$pageview_count", "breakdown_type": "session"}));
    assert_eq!(
        (&found[0]["count"], &found[0]["breakdown_value"]),
        (&json!(60), &json!("0")),
        "{found}"
    );
}

#[test]
fn what_sessions_do_not_have_is_told_by_its_field() {
    let server = TestServer::start();
    let of = |key: &str| json!([{"key": key, "type": "session", "value": "x"}]);
    let series = json!([{"event": "a"}, {"event": "b"}]);
    let with = |more: Value| {
        let mut node = json!({"kind": "TrendsQuery", "series": series});
        node.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        node
    };
    for (node, attr) in [
        (with(json!({"properties": of("$channel_type")})), "properties"),
        (
            with(json!({"series": [{"event": "a", "properties": of("plan")}]})),
            "series__0__properties",
        ),
        (
            with(
                json!({"breakdownFilter": {"breakdown": "$channel_type", "breakdown_type": "session"}}),
            ),
            "breakdownFilter__breakdown_type",
        ),
        (
            with(
                json!({"breakdownFilter": {"breakdowns": [{"property": "$start_timestamp", "type": "session"}]}}),
            ),
            "breakdownFilter__breakdowns__0__type",
        ),
        (
            with(
                json!({"series": [{"event": "a", "math": "avg", "math_property": "$entry_pathname",
                                    "math_property_type": "session_properties"}]}),
            ),
            "series__0__math_property",
        ),
    ] {
        let answer = server.post(QUERY, &json!({"query": node}));
        let told = answer.json();
        let expected = (400, &json!(format!("query__{attr}")));
        assert_eq!((answer.status, &told["attr"]), expected, "{told}");
    }
    for (path, detail) in [("events", "types session and hogql"), ("persons", "person properties")]
    {
        let filters = of("$entry_pathname").to_string();
        let filters: String = form_urlencoded(&filters);
        let told = server.get(&format!("/api/projects/@current/{path}/?properties={filters}"));
        assert_eq!(told.status, 400, "{told}");
        assert!(told.json()["detail"].as_str().expect("a detail").contains(detail), "{told}");
    }
}

/// A text as a value of a query string.
fn form_urlencoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Goal: what is known of very many sessions stays within the memory of queries. Method: memory for a part of them, so
/// that plans are made again for little.
#[test]
fn many_sessions_need_no_more_memory_than_queries_have() {
    let server = TestServer::start_with(&[("WEIR_QUERY_MEMORY_MAX_BYTES", "16MiB")]);
    let noon = FIRST_DAY * DAY + 12 * HOUR;
    let event = |number: i64| {
        json!({"event": "$pageview", "distinct_id": "a", "timestamp": time(noon + number % 3600),
               "properties": {"$session_id": format!("{number:0>40}"),
                              "$current_url": format!("https://a.example/{number}/{}", "x".repeat(100))}})
    };
    let count = 40_000;
    for batch in (0..count).collect::<Vec<_>>().chunks(10_000) {
        let batch: Vec<Value> = batch.iter().map(|number| event(*number)).collect();
        assert_eq!(server.capture(&json!(batch)).status, 200);
    }
    let sql = "SELECT count(DISTINCT $entry_current_url) AS n FROM sessions WHERE $is_bounce";
    assert_eq!(server.count(sql), 40_000);
    let day = date(FIRST_DAY).to_string();
    let node = json!({"kind": "TrendsQuery", "series": [{"event": "$pageview"}],
        "properties": [{"key": "$end_pathname", "type": "session", "operator": "is_set"}],
        "breakdownFilter": {"breakdown": "$entry_current_url", "breakdown_type": "session"},
        "dateRange": {"date_from": day, "date_to": day}});
    let found = results(&server, &node);
    let lines = found.as_array().expect("series");
    let sum: i64 = lines.iter().filter_map(|line| line["count"].as_i64()).sum();
    assert_eq!((lines.len(), sum), (26, count));
    assert!(server.metric("weir_queries_replanned_total") > 0);
}
