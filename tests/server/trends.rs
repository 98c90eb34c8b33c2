//! Trends beside a plain computation over the sent events: random histories with merged persons, random
//! queries, before and after events are in files, and the persons behind every point.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world;
use crate::support::world::{DAY, Details, QUERY, date, days, in_each_state, one_of};

const NULL: &str = "$$_posthog_breakdown_null_$$";
const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// Berlin in winter, whose days the project has.
const OFFSET: i64 = 3600;

/// 2026-01-05, a Monday, at midnight UTC.
const FIRST_DAY: i64 = 20_458;

const IDS: usize = 24;

/// What events have besides their name and time.
#[derive(Clone, Debug)]
struct Visit {
    browser: Option<&'static str>,
    plan: &'static str,
    /// As it was sent: a number, or the text of one.
    price: Option<Value>,
    session: Option<usize>,
}

impl Visit {
    fn number(&self) -> Option<f64> {
        match self.price.as_ref()? {
            Value::String(text) => text.parse().ok(),
            other => other.as_f64(),
        }
    }
}

impl Details for Visit {
    fn properties(&self) -> Value {
        let mut properties = serde_json::Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                properties.insert(name.to_owned(), value);
            }
        };
        set("$browser", self.browser.map(Value::from));
        set("plan", Some(json!(self.plan)));
        set("price", self.price.clone());
        set("$session_id", self.session.map(|session| json!(format!("s{session}"))));
        Value::Object(properties)
    }
}

type Event = world::Event<Visit>;
type World = world::World<Visit>;

fn random_event(rng: &mut StdRng) -> Event {
    let price = match rng.random_range(0..6) {
        0 => None,
        1 => Some(json!("free")),
        2 => Some(json!(rng.random_range(0..100).to_string())),
        _ => Some(json!(rng.random_range(0..1000))),
    };
    let browsers = [None, Some(""), Some("Chrome"), Some("Firefox"), Some("Safari"), Some("Edge")];
    let details = Visit {
        browser: one_of(rng, &browsers),
        plan: one_of(rng, &["free", "pro"]),
        price,
        session: rng.random_bool(0.7).then(|| rng.random_range(0..9)),
    };
    let (at, id) = (rng.random_range(days(FIRST_DAY, 16)), rng.random_range(0..IDS));
    Event::new(at, one_of(rng, &["view", "buy", "leave"]), id, details)
}

/// The day of an event.
fn day_of(event: &Event) -> i64 {
    (event.at + OFFSET).div_euclid(DAY)
}

/// A random query, and what is needed to compute its answer.
#[derive(Clone, Debug)]
struct Asked {
    event: Option<&'static str>,
    math: &'static str,
    /// By the browser, whose property has a column, or by the plan, whose has none.
    filter: Option<&'static str>,
    split: Option<&'static str>,
    display: &'static str,
    interval: &'static str,
    from: i64,
    to: i64,
}

const MATHS: [&str; 13] = [
    "total",
    "dau",
    "unique_session",
    "weekly_active",
    "first_time_for_user",
    "first_matching_event_for_user",
    "sum",
    "avg",
    "min",
    "max",
    "median",
    "p90",
    "avg_count_per_actor",
];

impl Asked {
    fn random(rng: &mut StdRng) -> Self {
        let from = FIRST_DAY + rng.random_range(0..12);
        Self {
            event: [None, Some("view"), Some("buy")][rng.random_range(0..3)],
            math: MATHS[rng.random_range(0..MATHS.len())],
            filter: one_of(rng, &[None, None, None, Some("$browser"), Some("plan")]),
            split: one_of(rng, &[None, None, None, Some("$browser"), Some("plan")]),
            display: ["ActionsLineGraph", "ActionsLineGraphCumulative", "BoldNumber"]
                [rng.random_range(0..3)],
            interval: ["day", "day", "week"][rng.random_range(0..3)],
            from,
            to: (from + rng.random_range(0..10)).min(FIRST_DAY + 16),
        }
    }

    fn node(&self) -> Value {
        let value = match self.filter {
            Some("plan") => json!("pro"),
            _ => json!(["Chrome", "Edge"]),
        };
        let filter =
            |key: &str| json!({"key": key, "value": value, "operator": "exact", "type": "event"});
        let properties: Vec<Value> = self.filter.into_iter().map(filter).collect();
        json!({
            "kind": "TrendsQuery", "interval": self.interval,
            "series": [{"kind": "EventsNode", "event": self.event, "math": self.math, "math_property": "price"}],
            "properties": properties,
            "dateRange": {"date_from": date(self.from).to_string(), "date_to": date(self.to).to_string()},
            "trendsFilter": {"display": self.display},
            "breakdownFilter": self.split.map(|key| json!({"breakdown": key, "breakdown_limit": 2})),
        })
    }

    fn is_total(&self) -> bool {
        self.display == "BoldNumber"
    }

    /// The first day of each bucket. Weeks begin on Sunday.
    fn buckets(&self) -> Vec<i64> {
        if self.is_total() {
            return vec![self.from];
        }
        match self.interval {
            // 1970-01-01 was a Thursday.
            "week" => ((self.from + 4).div_euclid(7)..=(self.to + 4).div_euclid(7))
                .map(|week| week * 7 - 4)
                .collect(),
            _ => (self.from..=self.to).collect(),
        }
    }

    fn bucket_of(&self, day: i64) -> Option<usize> {
        let is_in = day >= self.from && day <= self.to;
        is_in.then(|| self.buckets().iter().rposition(|start| *start <= day)).flatten()
    }

    fn matches(&self, event: &Event) -> bool {
        match self.filter {
            None => true,
            Some("plan") => event.plan == "pro",
            Some(_) => matches!(event.browser, Some("Chrome" | "Edge")),
        }
    }

    fn is_named(&self, event: &Event) -> bool {
        self.event.is_none_or(|name| name == event.name)
    }

    fn split(&self, event: &Event) -> String {
        match (self.split, event.browser) {
            (None, _) => String::new(),
            (Some("plan"), _) => event.plan.to_owned(),
            (Some(_), None | Some("")) => NULL.to_owned(),
            (Some(_), Some(browser)) => browser.to_owned(),
        }
    }

    /// The events of each value of the breakdown and each bucket; one may be in several buckets.
    fn places<'w>(&self, world: &'w World) -> Vec<(String, usize, &'w Event)> {
        let count = self.buckets().len();
        let is_window = self.math == "weekly_active" && (self.is_total() || self.interval == "day");
        if let "first_time_for_user" | "first_matching_event_for_user" = self.math {
            let mut firsts: BTreeMap<usize, &Event> = BTreeMap::new();
            let is_of_matching = self.math == "first_matching_event_for_user";
            for event in world.events.iter().filter(|event| self.is_named(event)) {
                if is_of_matching && !self.matches(event) {
                    continue;
                }
                let first = firsts.entry(world.person(event)).or_insert(event);
                assert!(first.at != event.at || std::ptr::eq(*first, event), "times differ");
                if event.at < first.at {
                    *first = event;
                }
            }
            let firsts = firsts.into_values().filter(|event| self.matches(event));
            return firsts
                .filter_map(|event| {
                    Some((self.split(event), self.bucket_of(day_of(event))?, event))
                })
                .collect();
        }
        let own = world.events.iter().filter(|event| self.is_named(event) && self.matches(event));
        let mut places = Vec::new();
        for event in own {
            let value = self.split(event);
            match (is_window, self.is_total()) {
                (false, _) => places
                    .extend(self.bucket_of(day_of(event)).map(|bucket| (value, bucket, event))),
                (true, true) => {
                    if day_of(event) > self.to - 7 && day_of(event) <= self.to {
                        places.push((value, 0, event));
                    }
                }
                (true, false) => {
                    let shows = |bucket: &usize| {
                        let day = self.from + i64::try_from(*bucket).unwrap();
                        day_of(event) <= day && day_of(event) > day - 7
                    };
                    places.extend(
                        (0..count).filter(shows).map(|bucket| (value.clone(), bucket, event)),
                    );
                }
            }
        }
        places
    }

    /// What the events of one bucket and value come to; nothing for none.
    fn number(&self, world: &World, events: &[&Event]) -> f64 {
        let distinct = |of: &dyn Fn(&Event) -> usize| {
            events.iter().map(|event| of(event)).collect::<BTreeSet<_>>().len() as f64
        };
        let mut numbers: Vec<f64> = events.iter().filter_map(|event| event.number()).collect();
        numbers.sort_by(f64::total_cmp);
        let quantile = |percent: usize| {
            let place = percent * (numbers.len() - 1);
            let low = numbers[place / 100];
            let high = numbers.get(place / 100 + 1).copied().unwrap_or(low);
            low + (high - low) * (place % 100) as f64 / 100.0
        };
        match self.math {
            "total" => events.len() as f64,
            "dau" | "weekly_active" | "first_time_for_user" | "first_matching_event_for_user" => {
                distinct(&|event| world.person(event))
            }
            "unique_session" => distinct(&|event| event.session.unwrap_or(usize::MAX)),
            "avg_count_per_actor" if events.is_empty() => 0.0,
            "avg_count_per_actor" => events.len() as f64 / distinct(&|event| world.person(event)),
            _ if numbers.is_empty() => 0.0,
            "sum" => numbers.iter().sum(),
            "avg" => numbers.iter().sum::<f64>() / numbers.len() as f64,
            "min" => numbers[0],
            "max" => numbers[numbers.len() - 1],
            "median" => quantile(50),
            _ => quantile(90),
        }
    }

    /// The series by the value of the breakdown, in their order.
    fn expected(&self, world: &World) -> Vec<(String, Vec<f64>)> {
        let count = self.buckets().len();
        let mut cells: BTreeMap<String, Vec<Vec<&Event>>> = BTreeMap::new();
        for (value, bucket, event) in self.places(world) {
            cells.entry(value).or_insert_with(|| vec![Vec::new(); count])[bucket].push(event);
        }
        if self.split.is_none() {
            cells.entry(String::new()).or_insert_with(|| vec![Vec::new(); count]);
        }
        let is_first_only = self.display == "ActionsLineGraphCumulative" && self.math == "dau";
        let mut series: Vec<(String, Vec<f64>)> = Vec::new();
        for (value, buckets) in cells {
            let mut seen = BTreeSet::new();
            let number = |events: Vec<&Event>| match is_first_only {
                true => {
                    let before = seen.len();
                    seen.extend(events.iter().map(|event| world.person(event)));
                    (seen.len() - before) as f64
                }
                false => self.number(world, &events),
            };
            series.push((value, buckets.into_iter().map(number).collect()));
        }
        if self.split.is_some() {
            series = limited(series, count);
        }
        if self.display == "ActionsLineGraphCumulative" {
            for (_, data) in &mut series {
                for at in 1..data.len() {
                    data[at] += data[at - 1];
                }
            }
        }
        series
    }
}

/// The two largest values, then null, then all others together.
fn limited(series: Vec<(String, Vec<f64>)>, count: usize) -> Vec<(String, Vec<f64>)> {
    let (null, mut others): (Vec<_>, Vec<_>) =
        series.into_iter().partition(|(value, _)| value == NULL);
    let sum = |data: &Vec<f64>| data.iter().sum::<f64>();
    others.sort_by(|(a, a_data), (b, b_data)| sum(b_data).total_cmp(&sum(a_data)).then(a.cmp(b)));
    let rest = others.split_off(others.len().min(2));
    let mut series = others;
    series.extend(null);
    if !rest.is_empty() {
        let total = |at: usize| rest.iter().map(|(_, data)| data[at]).sum();
        series.push((OTHER.to_owned(), (0..count).map(total).collect()));
    }
    series
}

/// The series of an answer, in their order.
fn answered(server: &TestServer, asked: &Asked) -> Vec<(String, Vec<f64>)> {
    let answer = server.post(QUERY, &json!({"query": asked.node()}));
    assert_eq!(answer.status, 200, "{answer} {asked:?}");
    let body = answer.json();
    let series = body["results"].as_array().expect("series").iter().map(|series| {
        let value = series["breakdown_value"].as_str().unwrap_or_default().to_owned();
        let data = match asked.is_total() {
            true => vec![series["aggregated_value"].as_f64().expect("a number")],
            false => {
                assert_eq!(
                    series["days"].as_array().map(Vec::len),
                    Some(asked.buckets().len()),
                    "{asked:?}"
                );
                series["data"]
                    .as_array()
                    .expect("data")
                    .iter()
                    .map(|n| n.as_f64().expect("a number"))
                    .collect()
            }
        };
        (value, data)
    });
    series.collect()
}

fn is_equal(a: &[(String, Vec<f64>)], b: &[(String, Vec<f64>)]) -> bool {
    let close = |a: &f64, b: &f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
    a.len() == b.len()
        && a.iter().zip(b).all(|((a, a_data), (b, b_data))| {
            a == b
                && a_data.len() == b_data.len()
                && a_data.iter().zip(b_data).all(|(a, b)| close(a, b))
        })
}

/// A server with random events, of which no two have the same time.
fn start(rng: &mut StdRng) -> (TestServer, World) {
    let mut events: Vec<Event> = (0..400).map(|_| random_event(rng)).collect();
    events.sort_by_key(|event| event.at);
    events.dedup_by_key(|event| event.at);
    World::start(rng, &json!({"timezone": "Europe/Berlin"}), (events, IDS))
}

#[test]
fn trends_equal_a_plain_computation() {
    let mut rng = StdRng::seed_from_u64(18);
    let (mut server, world) = start(&mut rng);
    let asked: Vec<Asked> = (0..150).map(|_| Asked::random(&mut rng)).collect();
    in_each_state(&mut server, |server, round| {
        for asked in &asked {
            let (found, expected) = (answered(server, asked), asked.expected(&world));
            assert!(is_equal(&found, &expected), "{round} {asked:?}\n{found:?}\n{expected:?}");
        }
    });
}

#[test]
fn the_persons_behind_points_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(19);
    let (server, world) = start(&mut rng);
    for _ in 0..40 {
        let mut asked = Asked::random(&mut rng);
        asked.math =
            ["total", "dau", "weekly_active", "first_time_for_user"][rng.random_range(0..4)];
        asked.display = ["ActionsLineGraph", "BoldNumber"][rng.random_range(0..2)];
        let body = server.post(QUERY, &json!({"query": asked.node()})).json();
        for series in body["results"].as_array().expect("series") {
            let value = series["breakdown_value"].as_str().map(str::to_owned);
            let days = series["days"].as_array().expect("days");
            let at = rng.random_range(0..days.len().max(1));
            let number = match asked.is_total() {
                true => series["aggregated_value"].as_f64(),
                false => series["data"][at].as_f64(),
            };
            let source = json!({"kind": "InsightActorsQuery", "source": asked.node(), "series": 0,
                                "day": days.get(at), "breakdown": value});
            let query = json!({"kind": "ActorsQuery", "source": source, "select": ["actor", "event_count"]});
            let behind = server.post(QUERY, &json!({"query": query}));
            assert_eq!(behind.status, 200, "{behind}");
            let behind = behind.json();
            let rows = behind["results"].as_array().expect("rows");
            let persons: BTreeSet<usize> =
                rows.iter().map(|row| world.person_of(&row[0])).collect();
            assert_eq!(persons.len(), rows.len(), "each once");
            let places = asked.places(&world);
            let shown: Vec<String> =
                asked.expected(&world).into_iter().map(|(value, _)| value).collect();
            let is_of = |own: &str| match value.as_deref() {
                None => true,
                Some(OTHER) => !shown.iter().any(|value| value == own),
                Some(value) => value == own,
            };
            let expected = places
                .iter()
                .filter(|(own, bucket, _)| is_of(own) && (asked.is_total() || *bucket == at));
            let expected: BTreeSet<usize> =
                expected.map(|(_, _, event)| world.person(event)).collect();
            assert_eq!(persons, expected, "{asked:?} {value:?} {at}");
            if asked.math == "total" {
                let sum: f64 = rows.iter().map(|row| row[1].as_f64().expect("a number")).sum();
                assert_eq!(Some(sum), number, "{asked:?}");
            } else if value.as_deref() != Some(OTHER) {
                assert_eq!(Some(rows.len() as f64), number, "{asked:?}");
            }
        }
    }
}

/// Of several first events at one time, one that matches is enough, and the least value counts: whatever ids they got.
#[test]
fn first_events_of_one_time_are_chosen_by_what_they_are() {
    let server = TestServer::start();
    let event = |id: usize, plan: &str| {
        json!({"event": "view", "distinct_id": format!("d{id}"), "timestamp": "2026-01-05T12:00:00Z",
               "properties": {"plan": plan}})
    };
    let both = |id: usize| ["free", "pro"].map(|plan| event(id, plan));
    let events: Vec<Value> = (0..20).flat_map(both).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let data = |more: Value| {
        let mut node = json!({
            "kind": "TrendsQuery", "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-05"},
            "series": [{"event": "view", "math": "first_time_for_user"}],
        });
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = server.post(QUERY, &json!({"query": node})).json();
        let series = body["results"].as_array().expect("series").iter();
        series.map(|own| json!([own["breakdown_value"], own["data"]])).collect::<Vec<_>>()
    };
    for plan in ["free", "pro"] {
        let found = data(json!({"properties": [{"key": "plan", "value": plan, "type": "event"}]}));
        assert_eq!(found, [json!([null, [20]])], "{plan}");
    }
    let found = data(json!({"breakdownFilter": {"breakdown": "plan"}}));
    assert_eq!(found, [json!(["free", [20]])]);
}

#[test]
fn older_clients_get_series_and_follow_their_links() {
    let mut rng = StdRng::seed_from_u64(20);
    let (server, world) = start(&mut rng);
    let events = json!([{"id": "buy", "order": 0}, {"id": "view", "order": 1, "math": "dau"}]);
    let filter = json!({"insight": "TRENDS", "events": events, "date_from": "2026-01-08", "date_to": "2026-01-12",
                        "compare": true});
    let sent = server.post("/api/projects/@current/insights/trend/", &filter);
    assert_eq!(sent.status, 200, "{sent}");
    let sent = sent.json();
    let labels: Vec<_> = sent["result"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| {
            (
                series["label"].as_str().unwrap(),
                series["compare_label"].as_str().unwrap(),
                series["days"][0].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        labels,
        [
            ("buy", "current", "2026-01-08"),
            ("view", "current", "2026-01-08"),
            ("buy", "previous", "2026-01-03"),
            ("view", "previous", "2026-01-03"),
        ]
    );
    let encoded: String = form_urlencoded(&[
        ("events", &events.to_string()),
        ("date_from", "2026-01-08"),
        ("date_to", "2026-01-12"),
        ("compare", "true"),
    ]);
    let got = server.get(&format!("/api/projects/@current/insights/trend/?{encoded}")).json();
    let data = |body: &Value| {
        body["result"]
            .as_array()
            .unwrap()
            .iter()
            .map(|series| series["data"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(data(&got), data(&sent));
    for (series, at) in [(0, 0), (1, 2), (3, 4)] {
        let series = &sent["result"][series];
        let url = series["persons_urls"][at]["url"].as_str().unwrap();
        let page = server.get(&format!("/{url}"));
        assert_eq!(page.status, 200, "{page}");
        let page = page.json();
        let people = page["results"][0]["people"].as_array().unwrap();
        let count = match series["action"]["math"].as_str() {
            Some("dau") => people.len() as f64,
            _ => people.iter().map(|person| person["value_at_data_point"].as_f64().unwrap()).sum(),
        };
        assert_eq!(Some(count), series["data"][at].as_f64(), "{url}");
        assert_eq!((&page["next"], &page["missing_persons"]), (&Value::Null, &json!(0)));
    }
    // Pages go on where there are more.
    let base = "/api/projects/@current/persons/trends/?entity_id=view&entity_type=events&date_from=2026-01-01&date_to=2026-01-30";
    let (mut seen, mut next) = (BTreeSet::new(), format!("{base}&limit=4"));
    while !next.is_empty() {
        let page = server.get(&next).json();
        for person in page["results"][0]["people"].as_array().unwrap() {
            assert!(seen.insert(person["uuid"].to_string()), "{person} twice");
        }
        next = page["next"].as_str().map(|url| url.replace(&server.url(), "")).unwrap_or_default();
    }
    let own =
        world.events.iter().filter(|event| event.name == "view").map(|event| world.person(event));
    assert_eq!(seen.len(), own.collect::<BTreeSet<_>>().len());
    let found = server.get(&format!("{base}&search=D1")).json();
    let people = found["results"][0]["people"].as_array().unwrap();
    assert!(!people.is_empty() && people.len() < seen.len(), "{found}");
    let missing = server.get("/api/projects/@current/persons/trends/?entity_type=events");
    assert_eq!(missing.status, 400, "{missing}");
    let detail = "An entity id and the entity type must be provided to determine an entity";
    assert_eq!(missing.json()["detail"], detail);
}

fn form_urlencoded(pairs: &[(&str, &str)]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let encode =
        |text: &str| -> String {
            text.bytes()
                .map(|byte| {
                    if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
                })
                .collect()
        };
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", encode(value));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

#[test]
fn what_is_wrong_or_not_available_is_told_by_its_field() {
    let server = TestServer::start();
    let series = json!([{"kind": "EventsNode", "event": "x"}]);
    let with = |name: &str, value: Value| {
        let mut node = json!({"kind": "TrendsQuery", "series": series});
        node[name] = value;
        node
    };
    for (node, attr) in [
        (json!({"kind": "TrendsQuery"}), "query__series"),
        (
            with("series", json!([{"event": "x", "math": "hogql", "math_hogql": ""}])),
            "query__series__0__math_hogql",
        ),
        (with("interval", json!("year")), "query__interval"),
        (with("samplingFactor", json!(0.1)), "query__samplingFactor"),
        (with("dateRange", json!({"date_from": "yesterday-ish"})), "query__dateRange__date_from"),
        (
            with("dateRange", json!({"date_from": "1990-01-01", "date_to": "2026-01-01"})),
            "query__dateRange",
        ),
        (
            with("properties", json!([{"key": "a", "type": "flag", "value": true}])),
            "query__properties",
        ),
        (with("trendsFilter", json!({"formula": "A/B"})), "query__trendsFilter__formula"),
        (with("trendsFilter", json!({"formulas": ["A", 1]})), "query__trendsFilter__formulas"),
        (with("trendsFilter", json!({"display": "Pyramid"})), "query__trendsFilter__display"),
        (
            with("breakdownFilter", json!({"breakdown": ["a", 1]})),
            "query__breakdownFilter__breakdown",
        ),
        (
            with("breakdownFilter", json!({"breakdown": "1, 2", "breakdown_type": "hogql"})),
            "query__breakdownFilter__breakdown",
        ),
        (
            with("compareFilter", json!({"compare": true, "compare_to": "soon"})),
            "query__compareFilter__compare_to",
        ),
    ] {
        let answer = server.post(QUERY, &json!({"query": node}));
        let told = answer.json();
        let expected = (400, &json!("validation_error"), &json!(attr));
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{told}");
    }
    let none =
        server.post(QUERY, &json!({"query": with("dateRange", json!({"date_from": "all"}))}));
    assert_eq!(none.json()["results"][0]["count"], 0, "{none}");
    let of = |source: Value| json!({"query": {"kind": "ActorsQuery", "source": source}});
    let point = |more: Value| {
        let mut source =
            json!({"kind": "InsightActorsQuery", "source": with("interval", json!("day"))});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of(source)
    };
    for (query, attr) in [
        (of(json!({"kind": "HogQLQuery"})), "query__source__query"),
        (of(json!({"kind": "TrendsQuery"})), "query__source__kind"),
        (point(json!({"series": 7})), "query__series"),
        (point(json!({"day": "1999-01-01"})), "query__day"),
        (point(json!({"compare": "previous"})), "query__compare"),
    ] {
        let told = server.post(QUERY, &query).json();
        assert_eq!(told["attr"], attr, "{told}");
    }
}

#[test]
fn numbers_are_of_one_project() {
    let mut rng = StdRng::seed_from_u64(21);
    let (server, _) = start(&mut rng);
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let query = json!({"query": {"kind": "TrendsQuery", "series": [{"event": null}], "dateRange": {"date_from": "all"}}});
    let path = format!("/api/projects/{}/query/", other["id"]);
    let found = server.post(&path, &query).json();
    assert_eq!(found["results"][0]["count"], 0, "{found}");
    assert_eq!(found["results"][0]["days"].as_array().map(Vec::len), Some(1), "{found}");
}
