//! Breakdowns by bins of numbers, beside a plain computation over the sent events: trends of every display with the
//! persons behind every bin, and funnels, whose bins are those that a property names which was sent with the events.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::excessive_nesting,
    reason = "small numbers; options of questions within each other"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world;
use crate::support::world::{DAY, Details, QUERY, date, days, in_each_state, one_of};

/// 2026-02-20.
const FIRST_DAY: i64 = 20_504;
const DAYS: i64 = 12;
const IDS: usize = 12;
const NULL: &str = "$$_posthog_breakdown_null_$$";
const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// Bins that the property `label` of events names.
const LABELLED: usize = 4;

#[derive(Clone, Debug)]
struct Priced {
    /// As it is sent.
    price: Value,
    plan: &'static str,
    label: Option<String>,
}

impl Priced {
    /// The number that it counts as.
    fn number(&self) -> Option<f64> {
        let number = match &self.price {
            Value::String(text) => text.parse().ok(),
            other => other.as_f64(),
        };
        number.filter(|number: &f64| number.is_finite())
    }
}

impl Details for Priced {
    fn properties(&self) -> Value {
        let mut properties = json!({"price": self.price, "plan": self.plan});
        if let Some(label) = &self.label {
            properties["label"] = json!(label);
        }
        properties
    }
}

type Event = world::Event<Priced>;
type World = world::World<Priced>;

/// The bins of numbers, the smallest first: where each begins and ends, and its name.
fn bins(numbers: impl Iterator<Item = f64> + Clone, count: usize) -> Vec<(f64, f64, String)> {
    let Some(least) = numbers.clone().min_by(f64::total_cmp) else { return Vec::new() };
    let most = numbers.max_by(f64::total_cmp).expect("a number");
    let step = (most - least) / count as f64;
    let bin = |at: usize| {
        let from = step * at as f64 + least;
        let more = if at + 1 == count { 0.01 } else { 0.0 };
        let to = step * (at + 1) as f64 + least + more;
        (from, to, format!("[{from},{to}]"))
    };
    (0..count).map(bin).collect()
}

/// The name of the bin of a number.
fn bin_of(bins: &[(f64, f64, String)], number: Option<f64>) -> Option<String> {
    let number = number?;
    let (_, _, name) = bins.iter().find(|(from, to, _)| *from <= number && number < *to)?;
    Some(name.clone())
}

fn start(rng: &mut StdRng) -> (TestServer, World) {
    let event = |_| {
        let number = f64::from(rng.random_range(-20..400)) / 4.0;
        let price = match rng.random_range(0..12) {
            0 => json!("free"),
            1 => Value::Null,
            2 => json!(true),
            3 => {
                json!(["NaN", "inf", "-inf", "1e999", "", "[1,2]", "0x10"][rng.random_range(0..7)])
            }
            4 | 5 => json!(number.to_string()),
            6 => json!(number.trunc() as i64),
            _ => json!(number),
        };
        let details = Priced { price, plan: one_of(rng, &["free", "pro"]), label: None };
        let name = one_of(rng, &["view", "buy"]);
        Event::new(rng.random_range(days(FIRST_DAY, DAYS)), name, rng.random_range(0..IDS), details)
    };
    let mut events: Vec<Event> = (0..300).map(event).collect();
    events.sort_by_key(|event| event.at);
    events.dedup_by_key(|event| event.at);
    let bins = bins(events.iter().filter_map(|event| event.number()), LABELLED);
    for event in &mut events {
        event.details.label = bin_of(&bins, event.details.number());
    }
    World::start(rng, &json!({}), (events, IDS))
}

/// A random query.
#[derive(Clone, Debug)]
struct Asked {
    name: Option<&'static str>,
    plan: Option<&'static str>,
    is_of_actors: bool,
    display: &'static str,
    count: usize,
    /// Whether it is split by the plan, too.
    is_double: bool,
    limit: usize,
    days: (i64, i64),
}

impl Asked {
    fn random(rng: &mut StdRng) -> Self {
        let from = FIRST_DAY + rng.random_range(0..DAYS);
        Self {
            name: one_of(rng, &[None, Some("view"), Some("buy")]),
            plan: one_of(rng, &[None, None, Some("pro")]),
            is_of_actors: rng.random_bool(0.5),
            display: one_of(rng, &["ActionsLineGraph", "BoldNumber", "ActionsLineGraphCumulative"]),
            count: rng.random_range(1..9),
            is_double: rng.random_bool(0.4),
            limit: one_of(rng, &[1, 3, 25]),
            days: (from, rng.random_range(from..FIRST_DAY + DAYS)),
        }
    }

    fn node(&self) -> Value {
        let properties = match self.plan {
            Some(plan) => json!([{"key": "plan", "value": plan, "type": "event"}]),
            None => json!([]),
        };
        let series = json!({"kind": "EventsNode", "event": self.name, "properties": properties,
                            "math": if self.is_of_actors { "dau" } else { "total" }});
        let mut breakdown = match self.is_double {
            true => json!({"breakdowns": [
                {"property": "price", "histogram_bin_count": self.count}, {"property": "plan"}]}),
            false => json!({"breakdown": "price", "breakdown_histogram_bin_count": self.count}),
        };
        breakdown["breakdown_limit"] = json!(self.limit);
        json!({"kind": "TrendsQuery", "series": [series], "breakdownFilter": breakdown,
               "trendsFilter": {"display": self.display},
               "dateRange": {"date_from": date(self.days.0).to_string(), "date_to": date(self.days.1).to_string()}})
    }

    /// The events that count, with their days and values.
    fn events<'w>(&self, world: &'w World) -> Vec<(usize, String, &'w Event)> {
        let day = |event: &Event| event.at.div_euclid(DAY);
        let counts = |event: &&Event| {
            self.name.is_none_or(|name| name == event.name)
                && self.plan.is_none_or(|plan| plan == event.plan)
                && (self.days.0..=self.days.1).contains(&day(event))
        };
        let own: Vec<&Event> = world.events.iter().filter(counts).collect();
        let bins = bins(own.iter().filter_map(|event| event.number()), self.count);
        let value = |event: &&'w Event| {
            let bin = bin_of(&bins, event.number()).unwrap_or_else(|| NULL.to_owned());
            let at = usize::try_from(day(event) - self.days.0).expect("a day of the range");
            let value = if self.is_double { json!([bin, event.plan]) } else { json!(bin) };
            (at, value.to_string(), *event)
        };
        own.iter().map(value).collect()
    }

    /// The persons of each day, or of the whole range; once for each of their events.
    fn parts(&self, world: &World) -> BTreeMap<String, Vec<Vec<usize>>> {
        let width = usize::try_from(self.days.1 - self.days.0 + 1).expect("days");
        let mut parts: BTreeMap<String, Vec<Vec<usize>>> = BTreeMap::new();
        for (at, value, event) in self.events(world) {
            let width = if self.display == "BoldNumber" { 1 } else { width };
            let days = parts.entry(value).or_insert_with(|| vec![Vec::new(); width]);
            days[if self.display == "BoldNumber" { 0 } else { at }].push(world.person(event));
        }
        parts
    }

    /// The numbers of each value, before they are summed up.
    fn numbers(&self, days: &[Vec<usize>]) -> Vec<u64> {
        let mut before = BTreeSet::new();
        let number = |persons: &Vec<usize>| {
            if !self.is_of_actors {
                return persons.len() as u64;
            }
            let own = BTreeSet::from_iter(persons.iter().copied());
            if self.display == "ActionsLineGraphCumulative" {
                return own.into_iter().filter(|person| before.insert(*person)).count() as u64;
            }
            own.len() as u64
        };
        days.iter().map(number).collect()
    }

    fn expected(&self, world: &World) -> Vec<(Value, Vec<u64>)> {
        let parts = self.parts(world);
        let null = if self.is_double { String::new() } else { json!(NULL).to_string() };
        let mut own: Vec<(String, Vec<u64>)> =
            parts.iter().map(|(value, days)| (value.clone(), self.numbers(days))).collect();
        let none: Vec<_> = own.extract_if(.., |(value, _)| *value == null).collect();
        // Values are compared as texts: those of several one after another.
        let order = |value: &str| match serde_json::from_str(value).expect("JSON") {
            Value::Array(parts) => {
                let parts = parts.iter().map(|part| part.as_str().expect("a text").to_owned());
                parts.collect::<Vec<_>>().join("\u{1f}")
            }
            other => other.as_str().expect("a text").to_owned(),
        };
        own.sort_by_key(|(value, numbers)| (Reverse(numbers.iter().sum::<u64>()), order(value)));
        let rest = own.split_off(own.len().min(self.limit));
        let mut lines: Vec<(Value, Vec<u64>)> = own
            .into_iter()
            .chain(none)
            .map(|(value, numbers)| (serde_json::from_str(&value).expect("JSON"), numbers))
            .collect();
        if let Some((_, first)) = rest.first() {
            let mut sums = vec![0; first.len()];
            for (_, numbers) in &rest {
                sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            }
            let other = if self.is_double { json!([OTHER]) } else { json!(OTHER) };
            lines.push((other, sums));
        }
        for (_, numbers) in &mut lines {
            if self.display == "ActionsLineGraphCumulative" {
                let mut sum = 0;
                for number in numbers {
                    sum += *number;
                    *number = sum;
                }
            }
        }
        lines
    }
}

fn results(server: &TestServer, node: &Value) -> Value {
    let answer = server.post(QUERY, &json!({"query": node}));
    assert_eq!(answer.status, 200, "{answer} {node}");
    answer.json()["results"].take()
}

fn found(results: &Value) -> Vec<(Value, Vec<u64>)> {
    let line = |line: &Value| {
        let numbers = match line["data"].as_array().expect("numbers").as_slice() {
            [] => vec![line["aggregated_value"].as_f64().expect("a number") as u64],
            data => data.iter().map(|number| number.as_f64().expect("a number") as u64).collect(),
        };
        (line["breakdown_value"].clone(), numbers)
    };
    results.as_array().expect("series").iter().map(line).collect()
}

#[test]
fn trends_by_bins_equal_a_plain_computation() {
    let mut rng = StdRng::seed_from_u64(71);
    let (mut server, world) = start(&mut rng);
    let asked: Vec<Asked> = (0..70).map(|_| Asked::random(&mut rng)).collect();
    in_each_state(&mut server, |server, round| {
        for asked in &asked {
            let mut expected = asked.expected(&world);
            let mut found = found(&results(server, &asked.node()));
            if asked.is_double {
                // Which of several values is a missing one does not decide on its place.
                let is_other = |(value, _): &(Value, Vec<u64>)| value[0] == OTHER;
                assert_eq!(found.iter().any(is_other), expected.iter().any(is_other));
            }
            expected.sort_by_key(|(value, _)| value.to_string());
            found.sort_by_key(|(value, _)| value.to_string());
            assert_eq!(found, expected, "{round} {asked:?}");
        }
    });
}

/// The persons behind a point, with their numbers.
fn behind(server: &TestServer, world: &World, source: &Value) -> BTreeMap<usize, u64> {
    let query = json!({"kind": "ActorsQuery", "source": source, "limit": 1000, "select": ["actor", "event_count"]});
    let answer = results(server, &query);
    let rows = answer.as_array().expect("rows").iter();
    rows.map(|row| (world.person_of(&row[0]), row[1].as_f64().expect("a number") as u64)).collect()
}

#[test]
fn the_persons_of_bins_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(72);
    let (server, world) = start(&mut rng);
    server.flush();
    for _ in 0..25 {
        let asked = Asked { display: "ActionsLineGraph", ..Asked::random(&mut rng) };
        let parts = asked.parts(&world);
        let shown = asked.expected(&world);
        let names: Vec<String> = shown.iter().map(|(value, _)| value.to_string()).collect();
        for (value, _) in &shown {
            let day = rng.random_range(asked.days.0..=asked.days.1);
            let at = usize::try_from(day - asked.days.0).expect("a day");
            let is_other = *value == json!(OTHER) || value[0] == OTHER;
            let name = value.to_string();
            let is_own = |own: &str| match is_other {
                true => !names.iter().any(|name| name == own),
                false => name == own,
            };
            let mut expected = BTreeMap::new();
            for (_, days) in parts.iter().filter(|(own, _)| is_own(own)) {
                days[at].iter().for_each(|person| *expected.entry(*person).or_default() += 1);
            }
            let sent = if is_other { json!(OTHER) } else { value.clone() };
            let source = |value: &Value| {
                json!({"kind": "InsightActorsQuery", "source": asked.node(), "series": 0,
                       "day": date(day).to_string(), "breakdown": value})
            };
            assert_eq!(behind(&server, &world, &source(&sent)), expected, "{asked:?} {value}");
            // As numbers, too.
            if let Ok(edges @ Value::Array(_)) = serde_json::from_str(value.as_str().unwrap_or(""))
            {
                assert_eq!(behind(&server, &world, &source(&edges)), expected, "{asked:?} {value}");
            }
        }
    }
}

#[test]
fn funnels_by_bins_are_those_by_their_names() {
    let mut rng = StdRng::seed_from_u64(73);
    let (server, world) = start(&mut rng);
    let range = json!({"date_from": date(FIRST_DAY).to_string(), "date_to": date(FIRST_DAY + DAYS).to_string()});
    let node = |breakdown: &Value, options: &Value| {
        json!({"kind": "FunnelsQuery", "dateRange": range, "breakdownFilter": breakdown, "funnelsFilter": options,
               "series": [{"kind": "EventsNode", "event": "view"}, {"kind": "EventsNode", "event": "buy"}]})
    };
    let mut most = 0;
    for round in ["in memory", "in files"] {
        for attribution in ["first_touch", "last_touch", "all_events", "step"] {
            for (order, viz) in [
                ("ordered", "steps"),
                ("strict", "steps"),
                ("ordered", "trends"),
                ("unordered", "steps"),
            ] {
                for is_double in [false, true] {
                    let options = json!({"breakdownAttributionType": attribution, "breakdownAttributionValue": 0,
                                         "funnelOrderType": order, "funnelVizType": viz, "funnelWindowInterval": 2});
                    let plan = json!({"property": "plan"});
                    let (binned, named) = match is_double {
                        false => (
                            json!({"breakdown": "price", "breakdown_histogram_bin_count": LABELLED}),
                            json!({"breakdown": "label"}),
                        ),
                        true => (
                            json!({"breakdowns": [plan, {"property": "price", "histogram_bin_count": LABELLED}]}),
                            json!({"breakdowns": [plan, {"property": "label"}]}),
                        ),
                    };
                    let found = results(&server, &node(&binned, &options));
                    let expected = results(&server, &node(&named, &options));
                    assert_eq!(found, expected, "{round} {options}");
                    let lines = found.as_array().expect("values");
                    most = most.max(lines.len());
                    if viz == "trends" {
                        continue;
                    }
                    for line in lines {
                        let value = &line[0]["breakdown_value"];
                        let source = |breakdown: &Value| {
                            json!({"kind": "FunnelsActorsQuery", "funnelStep": 2, "funnelStepBreakdown": value,
                                   "source": node(breakdown, &options)})
                        };
                        let found = behind(&server, &world, &source(&binned));
                        assert_eq!(
                            found,
                            behind(&server, &world, &source(&named)),
                            "{options} {value}"
                        );
                        assert_eq!(
                            found.len() as u64,
                            line[1]["count"].as_u64().expect("a number")
                        );
                    }
                }
            }
        }
        server.flush();
    }
    assert!(most > LABELLED, "{most} values");
}

/// PostHog's own example, by older clients: numbers from 10 to 40.
#[test]
fn a_published_example_has_its_published_bins() {
    let server = TestServer::start();
    let event = |number: Value, id: &str| json!({"event": "sign up", "distinct_id": id, "properties": {"$some_property": number}});
    let values = [json!(10), json!(20), json!(30), json!("40"), json!(null), json!("none")];
    let events: Vec<Value> = values
        .into_iter()
        .zip(["a", "b", "c", "d", "e", "f"])
        .map(|(number, id)| event(number, id))
        .collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let filter = json!({"events": [{"id": "sign up"}], "breakdown": "$some_property", "display": "ActionsPie",
                        "breakdown_histogram_bin_count": "4"});
    let answer = server.post("/api/projects/@current/insights/trend/", &filter).json();
    let mut lines = found(&answer["result"]);
    lines.sort_by_key(|(value, _)| value.to_string());
    let expected =
        [(NULL, 2), ("[10,17.5]", 1), ("[17.5,25]", 1), ("[25,32.5]", 1), ("[32.5,40.01]", 1)];
    let expected: Vec<(Value, Vec<u64>)> =
        expected.into_iter().map(|(value, count)| (json!(value), vec![count])).collect();
    assert_eq!(lines, expected);
    for series in answer["result"].as_array().expect("series") {
        let url = series["persons_urls"][0]["url"].as_str();
        let Some(url) = url else { continue };
        let page = server.get(&format!("/{url}")).json();
        let count = page["results"][0]["count"].as_u64();
        assert_eq!(
            count,
            series["aggregated_value"].as_f64().map(|number| number as u64),
            "{series} {page}"
        );
    }
}

/// One number, none, the largest there are, and very many different ones.
#[test]
fn numbers_of_every_size_have_bins() {
    let server = TestServer::start();
    let event = |name: &str, number: &Value| json!({"event": name, "distinct_id": "d", "properties": {"n": number}});
    let mut events =
        vec![event("one", &json!(5)), event("one", &json!(5)), event("none", &json!("NaN"))];
    events.extend(
        [json!(-1.7e308), json!(1.7e308), json!("1e999"), json!(0)]
            .iter()
            .map(|own| event("large", own)),
    );
    events.extend((0..3000).map(|at| event("many", &json!(f64::from(at) + 0.5))));
    for batch in events.chunks(1000) {
        assert_eq!(server.capture(&json!(batch)).status, 200);
    }
    let node = |name: &str, bins: Value| {
        json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": name}],
               "trendsFilter": {"display": "BoldNumber"},
               "breakdownFilter": {"breakdown": "n", "breakdown_histogram_bin_count": bins, "breakdown_limit": 500}})
    };
    let sums = |name: &str, bins: usize| {
        let mut lines = found(&results(&server, &node(name, json!(bins))));
        lines.sort_by_key(|(value, _)| value.to_string());
        lines
            .into_iter()
            .map(|(value, numbers)| (value.as_str().expect("a text").to_owned(), numbers[0]))
            .collect::<Vec<_>>()
    };
    assert_eq!(sums("one", 3), [("[5,5.01]".to_owned(), 2)]);
    assert_eq!(sums("none", 3), [(NULL.to_owned(), 1)]);
    let large = sums("large", 2);
    assert_eq!(large.iter().map(|(_, count)| count).sum::<u64>(), 4, "{large:?}");
    assert_eq!(large.len(), 3, "{large:?}");
    let many = sums("many", 500);
    assert_eq!(
        (many.len(), many.iter().all(|(_, count)| (5..=7).contains(count))),
        (500, true),
        "{many:?}"
    );
    for (bins, status) in [
        (json!(0), 400),
        (json!(-1), 400),
        (json!(501), 400),
        (json!(1_000_000_000), 400),
        (json!("x"), 400),
        (json!(1.5), 400),
        (json!([4]), 400),
        (json!(1), 200),
    ] {
        let answer = server.post(QUERY, &json!({"query": node("one", bins.clone())}));
        assert_eq!(answer.status, status, "{bins} {answer}");
        if status == 400 {
            assert_eq!(
                answer.json()["attr"],
                "query__breakdownFilter__breakdown_histogram_bin_count"
            );
        }
    }
    let mut several = node("one", json!(null));
    several["breakdownFilter"] =
        json!({"breakdowns": [{"property": "n"}, {"property": "n", "histogram_bin_count": 0}]});
    let answer = server.post(QUERY, &json!({"query": several}));
    let attr = "query__breakdownFilter__breakdowns__1__histogram_bin_count";
    assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)));
}
