//! Stickiness beside a plain computation over the sent events: random histories with merged persons, random
//! queries, before and after events are in files, and the persons behind every number of intervals.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::spring::{Event, FIRST_DAY, FORWARD, World, day_of, start};
use crate::support::world::{DAY, HOUR, QUERY, date, in_each_state, time};

/// A random query.
#[derive(Clone, Debug)]
struct Asked {
    period: &'static str,
    interval_count: usize,
    /// Names of the events of each series, and the plan that is filtered by.
    series: Vec<(Option<&'static str>, Option<&'static str>)>,
    from: i64,
    to: i64,
    is_cumulative: bool,
    criteria: Option<(&'static str, usize)>,
    is_compared: bool,
}

impl Asked {
    fn random(rng: &mut StdRng) -> Self {
        let period = ["Hour", "Day", "Day", "Week", "Month"][rng.random_range(0..5)];
        let (length, from) = match period {
            "Hour" => (HOUR, FORWARD / HOUR * HOUR - rng.random_range(0..12) * HOUR),
            _ => (DAY, (FIRST_DAY + rng.random_range(10..50)) * DAY),
        };
        let series = (0..rng.random_range(1..3)).map(|_| {
            let name = [None, Some("sign up"), Some("visit")][rng.random_range(0..3)];
            (name, [None, None, Some("pro")][rng.random_range(0..3)])
        });
        let series = series.collect();
        Self {
            period,
            interval_count: rng.random_range(1..4),
            series,
            from,
            to: from + rng.random_range(0..20) * length,
            is_cumulative: rng.random_bool(0.4),
            criteria: rng
                .random_bool(0.4)
                .then(|| (["gte", "lte", "exact"][rng.random_range(0..3)], rng.random_range(1..4))),
            is_compared: period == "Day" && rng.random_bool(0.4),
        }
    }

    fn node(&self) -> Value {
        let written = |at: i64| match self.period {
            "Hour" => time(at),
            _ => date(at / DAY).to_string(),
        };
        let series = |(name, plan): &(Option<&str>, Option<&str>)| {
            let filters = plan.map(|plan| json!([{"key": "plan", "value": plan, "type": "event"}]));
            json!({"kind": "EventsNode", "event": name, "properties": filters})
        };
        let criteria =
            self.criteria.map(|(operator, value)| json!({"operator": operator, "value": value}));
        json!({
            "kind": "StickinessQuery", "interval": self.period.to_lowercase(),
            "intervalCount": self.interval_count,
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "dateRange": {"date_from": written(self.from), "date_to": written(self.to)},
            "stickinessFilter": {
                "computedAs": if self.is_cumulative { "cumulative" } else { "non_cumulative" },
                "stickinessCriteria": criteria,
            },
            "compareFilter": {"compare": self.is_compared},
        })
    }

    /// The current range, and the one before it.
    fn ranges(&self) -> Vec<(i64, i64)> {
        let length = self.to - self.from + DAY;
        let mut ranges = vec![(self.from, self.to)];
        ranges.extend(self.is_compared.then(|| (self.from - length, self.to - length)));
        ranges
    }

    /// The interval of the beginning of a day, or of an hour.
    fn interval(&self, world: &World, at: i64) -> i64 {
        world.interval(self.period, if self.period == "Hour" { at } else { at + 12 * HOUR })
    }

    /// The largest number of intervals in a range.
    fn largest(&self, world: &World, (from, to): (i64, i64)) -> usize {
        let count = self.interval(world, to) - self.interval(world, from) + 1;
        (usize::try_from(count).expect("positive")).div_ceil(self.interval_count)
    }

    /// In how many intervals each person was active.
    fn numbers(
        &self,
        world: &World,
        series: usize,
        (from, to): (i64, i64),
    ) -> BTreeMap<usize, usize> {
        let (name, plan) = self.series[series];
        let is_in = |event: &Event| match self.period {
            "Hour" => event.at >= from && event.at <= to,
            // Of a month, all before the range counts, too.
            "Month" => {
                world.interval("Month", event.at) >= self.interval(world, from)
                    && day_of(event.at) <= to / DAY
            }
            _ => (from / DAY..=to / DAY).contains(&day_of(event.at)),
        };
        let mut counts: BTreeMap<(usize, i64), usize> = BTreeMap::new();
        for event in &world.events {
            let is_named = name.is_none_or(|name| name == event.name);
            if is_named && plan.is_none_or(|plan| plan == event.plan) && is_in(event) {
                let back = self.interval(world, to) - world.interval(self.period, event.at);
                let place = back / i64::try_from(self.interval_count).unwrap();
                *counts.entry((world.persons[event.id], place)).or_default() += 1;
            }
        }
        let (operator, value) = self.criteria.unwrap_or(("gte", 1));
        let mut numbers = BTreeMap::new();
        for ((person, _), count) in counts {
            let holds = match operator {
                "gte" => count >= value,
                "lte" => count <= value,
                _ => count == value,
            };
            if holds {
                *numbers.entry(person).or_default() += 1;
            }
        }
        numbers
    }

    fn data(&self, world: &World, series: usize, range: (i64, i64)) -> (Vec<u64>, u64) {
        let numbers = self.numbers(world, series, range);
        let is = |own: usize, number: usize| match self.is_cumulative {
            true => own >= number,
            false => own == number,
        };
        let count = |number: usize| numbers.values().filter(|own| is(**own, number)).count() as u64;
        ((1..=self.largest(world, range)).map(count).collect(), numbers.len() as u64)
    }
}

#[test]
fn stickiness_equals_a_plain_computation() {
    for seed in [51, 52] {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut server, world) = start(&mut rng);
        let asked: Vec<Asked> = (0..80).map(|_| Asked::random(&mut rng)).collect();
        in_each_state(&mut server, |server, round| {
            for asked in &asked {
                let answer = server.post(QUERY, &json!({"query": asked.node()}));
                assert_eq!(answer.status, 200, "{answer} {asked:?}");
                let answer = answer.json();
                let mut found = answer["results"].as_array().expect("series").iter();
                for (range, period) in asked.ranges().into_iter().zip(["current", "previous"]) {
                    for series in 0..asked.series.len() {
                        let own = found.next().expect("a series");
                        let (data, count) = asked.data(&world, series, range);
                        let case = format!("{round} {period} {series} {asked:?}");
                        assert_eq!(own["data"], json!(data), "{case}");
                        assert_eq!(own["count"], json!(count), "{case}");
                        let days: Vec<usize> = (1..=data.len()).collect();
                        assert_eq!(own["days"], json!(days), "{case}");
                        let compared = asked.is_compared.then_some(period);
                        assert_eq!(own["compare_label"].as_str(), compared, "{case}");
                    }
                }
                assert_eq!(found.next(), None);
            }
        });
    }
}

#[test]
fn the_persons_behind_numbers_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(53);
    let (server, world) = start(&mut rng);
    for _ in 0..60 {
        let asked = Asked::random(&mut rng);
        let series = rng.random_range(0..asked.series.len());
        let (range, compare) = match asked.ranges().get(1) {
            Some(previous) if rng.random_bool(0.5) => (*previous, "previous"),
            _ => (asked.ranges()[0], "current"),
        };
        let day = rng.random_range(1..=asked.largest(&world, range));
        let operator = [None, Some("exact"), Some("gte"), Some("lte")][rng.random_range(0..4)];
        let kind = ["InsightActorsQuery", "StickinessActorsQuery"][rng.random_range(0..2)];
        let source = json!({"kind": kind, "source": asked.node(), "series": series, "day": day,
                            "operator": operator, "compare": compare});
        let query = json!({"kind": "ActorsQuery", "source": source, "select": ["person", "value"], "limit": 1000});
        let page = server.post(QUERY, &json!({"query": query}));
        assert_eq!(page.status, 200, "{page} {asked:?}");
        let page = page.json();
        let rows = page["results"].as_array().expect("rows").iter();
        let found: BTreeMap<usize, f64> = rows
            .map(|row| (world.person_of(&row[0]), row[1].as_f64().expect("a number")))
            .collect();
        assert_eq!(found.len(), page["results"].as_array().unwrap().len(), "each once");
        let usual = if asked.is_cumulative { "gte" } else { "exact" };
        let holds = |own: usize| match operator.unwrap_or(usual) {
            "gte" => own >= day,
            "lte" => own <= day,
            _ => own == day,
        };
        let expected = asked.numbers(&world, series, range).into_iter();
        let expected: BTreeMap<usize, f64> = expected
            .filter(|(_, own)| holds(*own))
            .map(|(person, own)| (person, own as f64))
            .collect();
        assert_eq!(found, expected, "{source} {asked:?}");
        if operator.is_none() {
            let (data, _) = asked.data(&world, series, range);
            assert_eq!(data[day - 1], found.len() as u64, "{asked:?}");
        }
    }
}

#[test]
fn older_clients_get_series_and_follow_their_links() {
    let mut rng = StdRng::seed_from_u64(54);
    let (server, world) = start(&mut rng);
    let events = json!([{"id": "visit", "order": 0}, {"id": "buy", "order": 1, "math": "dau"}]);
    let filter = json!({"insight": "STICKINESS", "events": events, "date_from": "2026-03-01",
                        "date_to": "2026-03-10", "compare": true});
    let answer = server.post("/api/projects/@current/insights/trend/", &filter).json();
    let series = answer["result"].as_array().expect("series");
    assert_eq!(series.len(), 4, "{answer}");
    let labels = |at: usize| (&series[at]["label"], &series[at]["compare_label"]);
    assert_eq!(labels(0), (&json!("visit"), &json!("current")));
    assert_eq!(labels(3), (&json!("buy"), &json!("previous")));
    assert_eq!(series[0]["labels"][0], "1 day");
    assert_eq!(series[0]["labels"][9], "10 days");
    assert_eq!(series[1]["action"]["id"], "buy");
    for own in series {
        for (count, url) in
            own["data"].as_array().unwrap().iter().zip(own["persons_urls"].as_array().unwrap())
        {
            let page = server.get(&format!("/{}", url["url"].as_str().unwrap()));
            assert_eq!(page.status, 200, "{page}");
            let page = page.json();
            let people = page["results"][0]["people"].as_array().unwrap();
            assert_eq!(json!(people.len()), *count, "{url}");
            assert_eq!((&page["results"][0]["count"], &page["next"]), (count, &Value::Null));
        }
    }
    // Pages go on where there are more.
    let base = "/api/projects/@current/persons/stickiness/?entity_id=visit&entity_type=events&date_from=2026-03-01&date_to=2026-04-10";
    let (mut seen, mut next) = (BTreeSet::new(), format!("{base}&limit=3"));
    while !next.is_empty() {
        let page = server.get(&next).json();
        for person in page["results"][0]["people"].as_array().unwrap() {
            assert!(seen.insert(world.person_of(person)), "{person} twice");
        }
        next = page["next"].as_str().map(|url| url.replace(&server.url(), "")).unwrap_or_default();
    }
    let first = "2026-03-01".parse::<chrono::NaiveDate>().expect("a date");
    let first = (first - date(0)).num_days();
    let own = world
        .events
        .iter()
        .filter(|event| event.name == "visit" && (first..=first + 40).contains(&day_of(event.at)));
    assert_eq!(seen, own.map(|event| world.persons[event.id]).collect());
    let flat = base.replace("projects/@current/persons", "person");
    assert_eq!(server.get(&flat).json()["results"], server.get(base).json()["results"]);
    let csv = server.get(&format!("{base}&format=csv"));
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let found = server.get(&format!("{base}&search=D1")).json();
    let people = found["results"][0]["people"].as_array().unwrap();
    assert!(!people.is_empty() && people.len() < seen.len(), "{found}");
    for (wrong, attr) in
        [("stickiness_days=many", "stickiness_days"), ("interval=year", "interval")]
    {
        let told = server.get(&format!("{base}&{wrong}"));
        assert_eq!((told.status, &told.json()["attr"]), (400, &json!(attr)), "{told}");
    }
    let missing = server.get("/api/projects/@current/persons/stickiness/?stickiness_days=1");
    let detail = "An entity id and the entity type must be provided to determine an entity";
    assert_eq!((missing.status, &missing.json()["detail"]), (400, &json!(detail)));
}

#[test]
fn what_is_wrong_or_not_available_is_told_by_its_field() {
    let server = TestServer::start();
    let with = |more: Value| {
        let mut node = json!({"kind": "StickinessQuery", "series": [{"event": "x"}]});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let actors = |more: Value| {
        let mut source = json!({"kind": "StickinessActorsQuery", "source": with(json!({}))});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": "ActorsQuery", "source": source})
    };
    let criteria = |value: Value| with(json!({"stickinessFilter": {"stickinessCriteria": value}}));
    let path = "query__stickinessFilter__stickinessCriteria";
    for (query, attr) in [
        (with(json!({"series": []})), "query__series".to_owned()),
        (
            with(json!({"series": [{"math": "unique_session"}]})),
            "query__series__0__math".to_owned(),
        ),
        (with(json!({"interval": "year"})), "query__interval".to_owned()),
        (with(json!({"intervalCount": 0})), "query__intervalCount".to_owned()),
        (
            with(json!({"stickinessFilter": {"computedAs": "x"}})),
            "query__stickinessFilter__computedAs".to_owned(),
        ),
        (criteria(json!({"operator": "gt", "value": 1})), format!("{path}__operator")),
        (criteria(json!({"operator": "gte"})), format!("{path}__value")),
        (with(json!({"samplingFactor": 0.1})), "query__samplingFactor".to_owned()),
        (actors(json!({"day": "2026-01-01"})), "query__source__day".to_owned()),
        (actors(json!({"operator": "gt"})), "query__source__operator".to_owned()),
        (actors(json!({"series": 1})), "query__series".to_owned()),
        (actors(json!({"compare": "previous"})), "query__compare".to_owned()),
    ] {
        let answer = server.post(QUERY, &json!({"query": query}));
        let told = answer.json();
        let expected = (400, &json!("validation_error"), &json!(attr));
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{told}");
    }
}

#[test]
fn numbers_are_of_one_project() {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!([{"event": "x", "distinct_id": "d"}])).status, 200);
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let query = json!({"query": {"kind": "StickinessQuery", "series": [{"event": null}]}});
    for (project, count) in [("@current".to_owned(), 1), (other["id"].to_string(), 0)] {
        let found = server.post(&format!("/api/projects/{project}/query/"), &query).json();
        assert_eq!(found["results"][0]["count"], count, "{found}");
        assert_eq!(found["results"][0]["data"].as_array().map(Vec::len), Some(8), "{found}");
        let path =
            format!("/api/projects/{project}/persons/stickiness/?entity_id=x&entity_type=events");
        assert_eq!(server.get(&path).json()["results"][0]["count"], count);
    }
}
