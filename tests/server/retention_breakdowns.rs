//! Retention by values of a breakdown and by brackets, beside a plain computation over the sent events: random histories
//! with merged persons, random queries, before and after events are in files, and the persons behind every value.

#![expect(clippy::excessive_nesting, reason = "values, rows and their cells are within each other")]

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world;
use crate::support::world::{DAY, Details, QUERY, date, days, in_each_state, one_of};

/// 2026-02-20.
const FIRST_DAY: i64 = 20_504;
const IDS: usize = 15;
const OTHER: &str = "$$_posthog_breakdown_other_$$";
const TEAMS: [&str; 3] = ["red", "green", ""];
const SIZES: [&str; 2] = ["12", "300"];

#[derive(Clone, Debug)]
struct Own {
    browser: Option<&'static str>,
    plan: &'static str,
    company: Option<usize>,
}

impl Details for Own {
    fn properties(&self) -> Value {
        let mut properties = json!({"plan": self.plan});
        if let Some(browser) = self.browser {
            // One that is a number is told as its text.
            properties["browser"] = browser.parse::<u64>().map_or(json!(browser), |own| json!(own));
        }
        if let Some(company) = self.company {
            properties["$groups"] = json!({"company": format!("c{company}")});
        }
        properties
    }
}

type Event = world::Event<Own>;
type World = world::World<Own>;

/// Who is in which team: none of some.
fn team(person: usize) -> Option<&'static str> {
    TEAMS.get(person % 4).copied()
}

fn start(rng: &mut StdRng) -> (TestServer, World) {
    let event = |_| {
        let details = Own {
            browser: one_of(rng, &[None, Some(""), Some("Chrome"), Some("Safari"), Some("7")]),
            plan: one_of(rng, &["free", "pro"]),
            company: one_of(rng, &[None, Some(0), Some(1), Some(2)]),
        };
        let name = one_of(rng, &["sign up", "visit", "buy"]);
        Event::new(rng.random_range(days(FIRST_DAY, 30)), name, rng.random_range(0..IDS), details)
    };
    let mut events: Vec<Event> = (0..400).map(event).collect();
    events.sort_by_key(|event| event.at);
    events.dedup_by_key(|event| event.at);
    let (server, world) = World::start(rng, &json!({}), (events, IDS));
    let set = |person: usize| {
        team(person).map(|team| {
            json!({"event": "$set", "distinct_id": format!("d{person}"),
                   "timestamp": "2026-06-21T00:00:00Z", "properties": {"$set": {"team": team}}})
        })
    };
    let groups = SIZES.iter().enumerate().map(|(at, size)| {
        json!({"event": "$groupidentify", "distinct_id": "d0", "timestamp": "2026-06-21T00:00:00Z",
               "properties": {"$group_type": "company", "$group_key": format!("c{at}"),
                              "$group_set": {"size": size}}})
    });
    let persons = BTreeSet::from_iter(world.persons.iter().copied());
    let sent: Vec<Value> = persons.into_iter().filter_map(set).chain(groups).collect();
    assert_eq!(server.capture(&json!(sent)).status, 200);
    (server, world)
}

/// What is split by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Browser,
    Team,
    Size,
    TeamAndPlan,
}

impl By {
    fn filter(self) -> Value {
        match self {
            Self::Browser => json!({"breakdown": "browser"}),
            Self::Team => json!({"breakdown": "team", "breakdown_type": "person"}),
            Self::Size => {
                json!({"breakdowns": [{"property": "size", "type": "group", "group_type_index": 0}]})
            }
            Self::TeamAndPlan => json!({"breakdowns": [{"property": "team", "type": "person"},
                                                       {"property": "plan", "type": "event"}]}),
        }
    }

    fn value(self, event: &Event, person: usize) -> String {
        let team = team(person).unwrap_or_default();
        match self {
            Self::Browser => event.browser.unwrap_or_default().to_owned(),
            Self::Team => team.to_owned(),
            Self::Size => {
                event.company.and_then(|at| SIZES.get(at)).copied().unwrap_or_default().to_owned()
            }
            Self::TeamAndPlan => format!("{team}::{}", event.plan),
        }
    }
}

/// A random query.
#[derive(Clone, Debug)]
struct Asked {
    kind: &'static str,
    intervals: usize,
    brackets: Vec<usize>,
    by: By,
    limit: usize,
    target: (Option<&'static str>, Option<&'static str>),
    returning: Option<&'static str>,
    from: Option<i64>,
    to: i64,
    is_cumulative: bool,
    occurrences: usize,
}

/// The cells in which each person is seen, by value, row and person.
type Seen = BTreeMap<String, Vec<BTreeMap<usize, BTreeSet<usize>>>>;

impl Asked {
    fn random(rng: &mut StdRng) -> Self {
        let to = FIRST_DAY + rng.random_range(8..32);
        let brackets = match rng.random_bool(0.4) {
            true => (0..rng.random_range(1..5)).map(|_| rng.random_range(1..5)).collect(),
            false => Vec::new(),
        };
        Self {
            kind: one_of(
                rng,
                &["retention_recurring", "retention_first_time", "retention_first_ever_occurrence"],
            ),
            intervals: rng.random_range(1..9),
            brackets,
            by: one_of(rng, &[By::Browser, By::Team, By::Size, By::TeamAndPlan]),
            limit: one_of(rng, &[1, 2, 25]),
            target: (
                one_of(rng, &[None, Some("sign up"), Some("visit")]),
                one_of(rng, &[None, None, Some("pro")]),
            ),
            returning: one_of(rng, &[None, Some("buy"), Some("visit")]),
            from: rng.random_bool(0.5).then(|| to - rng.random_range(0..12)),
            to,
            is_cumulative: rng.random_bool(0.3),
            occurrences: one_of(rng, &[1, 1, 2]),
        }
    }

    fn node(&self) -> Value {
        let filters = match self.target.1 {
            Some(plan) => json!([{"key": "plan", "value": plan, "type": "event"}]),
            None => json!([]),
        };
        let mut breakdown = self.by.filter();
        breakdown["breakdown_limit"] = json!(self.limit);
        json!({
            "kind": "RetentionQuery", "breakdownFilter": breakdown,
            "retentionFilter": {
                "period": "Day", "totalIntervals": self.intervals, "retentionType": self.kind,
                "targetEntity": {"id": self.target.0, "type": "events", "properties": filters},
                "returningEntity": {"id": self.returning, "type": "events"},
                "cumulative": self.is_cumulative, "minimumOccurrences": self.occurrences,
                "retentionCustomBrackets": self.brackets,
            },
            "dateRange": {"date_from": self.from.map(|day| date(day).to_string()),
                          "date_to": date(self.to).to_string()},
        })
    }

    fn rows(&self) -> Vec<i64> {
        let count = i64::try_from(self.intervals).expect("small");
        (self.from.unwrap_or(self.to - count + 1)..=self.to).collect()
    }

    /// The intervals after that of a row which each of its cells has.
    fn spans(&self) -> Vec<Vec<i64>> {
        let mut next = 1;
        let mut cell = |length: &usize| {
            let own: Vec<i64> = (next..).take(*length).collect();
            next += i64::try_from(*length).expect("small");
            own
        };
        let own = match self.brackets.as_slice() {
            [] => vec![1; self.intervals - 1].iter().map(&mut cell).collect(),
            brackets => brackets.iter().map(&mut cell).collect::<Vec<_>>(),
        };
        std::iter::once(Vec::new()).chain(own).collect()
    }

    fn seen(&self, world: &World) -> Seen {
        let rows = self.rows();
        let day = |event: &Event| event.at.div_euclid(DAY);
        let is_named = |event: &&&Event| self.target.0.is_none_or(|name| name == event.name);
        let is_target = |event: &&&Event| {
            is_named(event) && self.target.1.is_none_or(|plan| plan == event.plan)
        };
        let mut seen = Seen::new();
        for person in BTreeSet::from_iter(world.persons.iter().copied()) {
            let own = world
                .events
                .iter()
                .filter(|event| world.person(event) == person && day(event) <= self.to);
            let own: Vec<&Event> = own.collect();
            let mut parts: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
            if self.kind == "retention_first_ever_occurrence" {
                let Some(first) = own.iter().find(is_named).filter(is_target) else { continue };
                parts.insert(self.by.value(first, person), own.clone());
            } else {
                for event in own {
                    parts.entry(self.by.value(event, person)).or_default().push(event);
                }
            }
            for (value, part) in parts {
                let targets = part.iter().filter(is_target).map(|event| day(event));
                let starts: BTreeSet<i64> = match self.kind {
                    "retention_recurring" => targets.collect(),
                    _ => targets.take(1).collect(),
                };
                for (row, first) in rows.iter().enumerate().filter(|(_, row)| starts.contains(row))
                {
                    let count = |at: i64| {
                        let is_back = |event: &&&Event| {
                            self.returning.is_none_or(|name| name == event.name) && day(event) == at
                        };
                        part.iter().filter(is_back).count()
                    };
                    let is_in = |span: &Vec<i64>| {
                        span.iter().any(|later| count(first + later) >= self.occurrences)
                    };
                    let cells = self
                        .spans()
                        .iter()
                        .enumerate()
                        .filter(|(at, span)| *at == 0 || is_in(span))
                        .map(|(at, _)| at)
                        .collect();
                    let tables =
                        seen.entry(value.clone()).or_insert(vec![BTreeMap::new(); rows.len()]);
                    tables[row].insert(person, cells);
                }
            }
        }
        seen
    }

    /// The values in their order, and whether all but the first ones are told together.
    fn order(&self, seen: &Seen) -> Vec<String> {
        let size = |value: &String| seen[value].iter().map(BTreeMap::len).sum::<usize>();
        let mut values: Vec<String> = seen.keys().cloned().collect();
        let parts = |value: &String| value.split("::").map(str::to_owned).collect::<Vec<_>>();
        values.sort_by_key(|value| (std::cmp::Reverse(size(value)), parts(value)));
        values
    }

    fn counts(&self, rows: &[BTreeMap<usize, BTreeSet<usize>>]) -> Vec<Vec<u64>> {
        let is_in = |cells: &BTreeSet<usize>, cell: usize| match self.is_cumulative {
            true => cells.iter().any(|own| *own >= cell),
            false => cells.contains(&cell),
        };
        let row = |row: &BTreeMap<usize, BTreeSet<usize>>| {
            let count =
                |cell: usize| row.values().filter(|cells| is_in(cells, cell)).count() as u64;
            (0..self.spans().len()).map(count).collect()
        };
        rows.iter().map(row).collect()
    }

    /// The answer: values and the counts of their rows.
    fn expected(&self, seen: &Seen) -> Vec<(String, Vec<Vec<u64>>)> {
        let order = self.order(seen);
        let mut answer: Vec<(String, Vec<Vec<u64>>)> = Vec::new();
        for (at, value) in order.into_iter().enumerate() {
            let counts = self.counts(&seen[&value]);
            match answer.last_mut().filter(|_| at > self.limit) {
                Some((_, sums)) => {
                    for (sums, counts) in sums.iter_mut().zip(counts) {
                        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                    }
                }
                None if at == self.limit => answer.push((OTHER.to_owned(), counts)),
                None => answer.push((value, counts)),
            }
        }
        answer
    }
}

/// The values of an answer and the counts of their rows.
fn found(results: &Value) -> Vec<(String, Vec<Vec<u64>>)> {
    let mut found: Vec<(String, Vec<Vec<u64>>)> = Vec::new();
    for row in results.as_array().expect("rows") {
        let value = row["breakdown_value"].as_str().expect("a text");
        let cells = row["values"].as_array().expect("cells").iter();
        let cells = cells.map(|cell| cell["count"].as_u64().expect("a number")).collect();
        match found.last_mut().filter(|(own, _)| own == value) {
            Some((_, rows)) => rows.push(cells),
            None => found.push((value.to_owned(), vec![cells])),
        }
    }
    found
}

fn results(server: &TestServer, node: &Value) -> Value {
    let answer = server.post(QUERY, &json!({"query": node}));
    assert_eq!(answer.status, 200, "{answer} {node}");
    answer.json()["results"].take()
}

#[test]
fn retention_by_values_equals_a_plain_computation() {
    for seed in [61, 62] {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut server, world) = start(&mut rng);
        let asked: Vec<Asked> = (0..80).map(|_| Asked::random(&mut rng)).collect();
        in_each_state(&mut server, |server, round| {
            for asked in &asked {
                let expected = asked.expected(&asked.seen(&world));
                assert_eq!(found(&results(server, &asked.node())), expected, "{round} {asked:?}");
            }
        });
    }
}

/// Those that an actors query finds, with the cells in which each was active.
fn behind(
    server: &TestServer,
    world: &World,
    (node, row, value): (&Value, usize, &Value),
) -> BTreeMap<usize, BTreeSet<usize>> {
    let source =
        json!({"kind": "InsightActorsQuery", "source": node, "interval": row, "breakdown": value});
    let query = json!({"kind": "ActorsQuery", "source": source, "select": ["person", "appearances"], "limit": 1000});
    let answer = results(server, &query);
    let rows = answer.as_array().expect("rows").iter();
    rows.map(|row| {
        let cells = row[1].as_array().expect("cells").iter();
        let cell = |cell: &Value| usize::try_from(cell.as_u64().expect("a number")).expect("small");
        (world.person_of(&row[0]), cells.map(cell).collect())
    })
    .collect()
}

#[test]
fn the_persons_of_values_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(63);
    let (server, world) = start(&mut rng);
    for _ in 0..30 {
        let asked = Asked::random(&mut rng);
        let seen = asked.seen(&world);
        let order = asked.order(&seen);
        let row = rng.random_range(0..asked.rows().len());
        let joined = |values: &[String]| {
            let mut all: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
            for (person, cells) in values.iter().flat_map(|value| seen[value][row].clone()) {
                all.entry(person).or_default().extend(cells);
            }
            all
        };
        let node = asked.node();
        for value in &order {
            let whole = json!([value]);
            let parts: Vec<&str> = value.split("::").collect();
            for sent in [json!(value), whole, json!(parts)] {
                let found = behind(&server, &world, (&node, row, &sent));
                assert_eq!(found, joined(std::slice::from_ref(value)), "{asked:?} {row} {sent}");
            }
        }
        let all = behind(&server, &world, (&node, row, &json!(null)));
        assert_eq!(all, joined(&order), "{asked:?} {row}");
        let others = order.get(asked.limit..).unwrap_or_default();
        let found = behind(&server, &world, (&node, row, &json!([OTHER])));
        assert_eq!(found, joined(others), "{asked:?} {row}");
        assert!(behind(&server, &world, (&node, row, &json!(["nothing"]))).is_empty());
    }
}

/// Two pairs of values may have one text: each is a row of its own, which is asked for by its list.
#[test]
fn values_that_look_alike_are_not_joined() {
    let server = TestServer::start();
    let event = |id: &str, a: &str, b: &str| json!({"event": "view", "distinct_id": id, "timestamp": "2026-02-02T12:00:00Z", "properties": {"a": a, "b": b}});
    let events = [event("p", "x::y", "z"), event("q", "x", "y::z"), event("r", "x", "y::z")];
    assert_eq!(server.capture(&json!(events)).status, 200);
    let view = json!({"id": "view", "type": "events"});
    let node = json!({
        "kind": "RetentionQuery",
        "dateRange": {"date_from": "2026-02-02", "date_to": "2026-02-04"},
        "retentionFilter": {"targetEntity": view, "returningEntity": view, "period": "Day", "totalIntervals": 1},
        "breakdownFilter": {"breakdowns": [{"property": "a"}, {"property": "b"}]},
    });
    let rows = results(&server, &node);
    let cells = rows.as_array().expect("rows").iter();
    let counts = cells.map(|row| (&row["breakdown_value"], &row["values"][0]["count"]));
    let found: Vec<(&Value, &Value)> = counts.filter(|(_, count)| **count != 0).collect();
    let (text, one, two) = (json!("x::y::z"), json!(1), json!(2));
    assert_eq!(found, [(&text, &two), (&text, &one)]);
    for (sent, count) in
        [(json!(["x::y", "z"]), 1), (json!(["x", "y::z"]), 2), (json!("x::y::z"), 3)]
    {
        let source =
            json!({"kind": "InsightActorsQuery", "source": node, "interval": 0, "breakdown": sent});
        let asked = json!({"query": {"kind": "ActorsQuery", "select": ["id"], "source": source}});
        let answer = server.post("/api/projects/@current/query/", &asked);
        assert_eq!(answer.status, 200, "{answer}");
        assert_eq!(answer.json()["results"].as_array().map(Vec::len), Some(count), "{sent}");
    }
}

/// Cohorts are values of their own, one of which may be everybody.
#[test]
fn cohorts_have_the_rows_of_their_members() {
    let mut rng = StdRng::seed_from_u64(64);
    let (server, world) = start(&mut rng);
    let filter = json!({"properties": {"type": "AND", "values": [{"type": "AND", "values": [
        {"key": "team", "type": "person", "value": "red", "operator": "exact"}]}]}});
    let cohort =
        server.post("/api/projects/@current/cohorts/", &json!({"name": "red", "filters": filter}));
    assert_eq!(cohort.status, 201, "{cohort}");
    let id = cohort.json()["id"].as_i64().expect("an id");
    for _ in 0..10 {
        let asked = Asked { by: By::Team, limit: 25, ..Asked::random(&mut rng) };
        let split = results(&server, &asked.node());
        let mut node = asked.node();
        node["breakdownFilter"] = json!({"breakdown": ["all", id], "breakdown_type": "cohort"});
        let found = found(&results(&server, &node));
        let [(everybody, all), (cohort, red)] = found.as_slice() else {
            panic!("two values: {found:?}")
        };
        assert_eq!((everybody.as_str(), cohort), ("0", &id.to_string()));
        let by_team: BTreeMap<String, Vec<Vec<u64>>> = self::found(&split).into_iter().collect();
        let none = vec![vec![0; red[0].len()]; red.len()];
        assert_eq!(red, by_team.get("red").unwrap_or(&none), "{asked:?}");
        // Each person has one team.
        let mut sums = none.concat();
        for rows in by_team.values() {
            sums.iter_mut().zip(rows.concat()).for_each(|(sum, count)| *sum += count);
        }
        assert_eq!(all.concat(), sums, "{asked:?}");
        let seen = asked.seen(&world);
        let row = rng.random_range(0..asked.rows().len());
        let found = behind(&server, &world, (&node, row, &json!([id])));
        assert_eq!(found, seen.get("red").map(|rows| rows[row].clone()).unwrap_or_default());
        let everybody = behind(&server, &world, (&node, row, &json!("all")));
        assert_eq!(everybody.len(), seen.values().map(|rows| rows[row].len()).sum::<usize>());
        assert_eq!(everybody, behind(&server, &world, (&node, row, &json!(["0"]))));
    }
}

/// The examples of PostHog's own tests.
#[test]
fn published_examples_have_their_published_numbers() {
    let server = TestServer::start();
    let visits = [
        ("person1", "US", "Chrome", vec![0, 1, 3]),
        ("person3", "US", "Chrome", vec![0, 2]),
        ("person2", "UK", "Safari", vec![0, 1, 4]),
        ("person4", "Germany", "Firefox", vec![0, 5]),
    ];
    let events: Vec<Value> = visits
        .iter()
        .flat_map(|(id, country, browser, days)| {
            days.iter().map(move |day| {
                json!({"event": "$pageview", "distinct_id": id,
                       "timestamp": format!("2020-06-{}T00:00:00Z", 10 + day),
                       "properties": {"browser": browser, "$set": {"country": country}}})
            })
        })
        .collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let query = |key: &str, kind: &str| {
        json!({"kind": "RetentionQuery", "dateRange": {"date_to": "2020-06-15T00:00:00Z"},
               "retentionFilter": {"totalIntervals": 6, "period": "Day"},
               "breakdownFilter": {"breakdowns": [{"property": key, "type": kind}]}})
    };
    let first = vec![
        vec![2, 1, 1, 1, 0, 0],
        vec![1, 0, 1, 0, 0, 0],
        vec![1, 0, 0, 0, 0, 0],
        vec![1, 0, 0, 0, 0, 0],
        vec![0; 6],
        vec![0; 6],
    ];
    let second = vec![
        vec![1, 1, 0, 0, 1, 0],
        vec![1, 0, 0, 1, 0, 0],
        vec![0; 6],
        vec![0; 6],
        vec![1, 0, 0, 0, 0, 0],
        vec![0; 6],
    ];
    let third = vec![
        vec![1, 0, 0, 0, 0, 1],
        vec![0; 6],
        vec![0; 6],
        vec![0; 6],
        vec![0; 6],
        vec![1, 0, 0, 0, 0, 0],
    ];
    for (key, kind, values) in [
        ("country", "person", ["US", "UK", "Germany"]),
        ("browser", "event", ["Chrome", "Safari", "Firefox"]),
    ] {
        let found: BTreeMap<String, Vec<Vec<u64>>> =
            found(&results(&server, &query(key, kind))).into_iter().collect();
        let expected = [&first, &second, &third].into_iter().cloned();
        assert_eq!(found, values.map(str::to_owned).into_iter().zip(expected).collect());
    }
    // Older clients get triangles, one after another, and follow the links of each.
    let older = json!({"insight": "RETENTION", "total_intervals": 6, "date_to": "2020-06-15",
                       "breakdown": "country", "breakdown_type": "person"});
    let answer = server.post("/api/projects/@current/insights/retention/", &older).json();
    let rows = answer["result"].as_array().expect("rows");
    assert_eq!(rows.len(), 18, "{answer}");
    assert_eq!(rows[6]["values"].as_array().map(Vec::len), Some(6), "{answer}");
    assert_eq!(rows[11]["values"].as_array().map(Vec::len), Some(1), "{answer}");
    for row in rows {
        let url = row["people_url"].as_str().expect("a link");
        let page = server.get(&format!("/{url}")).json();
        let people = page["result"].as_array().map(Vec::len);
        let count = usize::try_from(row["values"][0]["count"].as_u64().expect("a number"));
        assert_eq!(people, count.ok(), "{row} {page}");
    }
}

/// Labels of brackets; a row has one cell more.
#[test]
fn brackets_have_labels() {
    let server = TestServer::start();
    let node = json!({"kind": "RetentionQuery", "retentionFilter": {
        "period": "Week", "totalIntervals": 2, "retentionCustomBrackets": [1, 3, 10]}});
    let rows = results(&server, &node);
    let labels = |row: &Value| {
        let cells = row["values"].as_array().expect("cells").iter();
        cells.map(|cell| cell["label"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(rows.as_array().map(Vec::len), Some(2));
    assert_eq!(labels(&rows[1]), ["Week 0", "Week 1", "Week 2-4", "Week 5-14"]);
    assert_eq!(rows[1]["label"], "Week 1");
}

/// So many values that only their sizes are kept at first.
#[test]
fn many_values_are_told_as_few() {
    let server = TestServer::start();
    let values = 6000;
    let visit = |value: usize, person: usize, day: usize| {
        json!({"event": "$pageview", "distinct_id": format!("p{person}"),
               "timestamp": format!("2026-03-{:02}T00:00:00Z", day + 1), "properties": {"key": format!("v{value}")}})
    };
    let mut events: Vec<Value> = (0..values).map(|value| visit(value, value % 50, 0)).collect();
    events.extend([visit(4321, 0, 0), visit(4321, 1, 0), visit(4321, 1, 3)]);
    for batch in events.chunks(1000) {
        assert_eq!(server.capture(&json!(batch)).status, 200);
    }
    let node = json!({
        "kind": "RetentionQuery", "dateRange": {"date_from": "2026-03-01", "date_to": "2026-03-30"},
        "retentionFilter": {"totalIntervals": 30},
        "breakdownFilter": {"breakdown": "key", "breakdown_limit": 2},
    });
    let found = found(&results(&server, &node));
    let names: Vec<&str> = found.iter().map(|(value, _)| value.as_str()).collect();
    assert_eq!(names, ["v4321", "v0", OTHER]);
    // Its own person, and two others; one of them came back.
    let first: Vec<&[u64]> = found.iter().map(|(_, rows)| &rows[0][..5]).collect();
    assert_eq!(first, [&[3, 0, 0, 1, 0][..], &[1, 0, 0, 0, 0], &[values as u64 - 2, 0, 0, 0, 0]]);
    assert_eq!(found[0].1[3][0], 1, "and is in a row of its own");
    let mut hidden = node.clone();
    hidden["breakdownFilter"]["breakdown_hide_other_aggregation"] = json!(true);
    assert_eq!(self::found(&results(&server, &hidden)).len(), 2);
}

#[test]
fn what_is_wrong_is_told_by_its_field() {
    let server = TestServer::start();
    let node = |options: Value, breakdown: Value| json!({"kind": "RetentionQuery", "retentionFilter": options, "breakdownFilter": breakdown});
    let long = vec![1; 100_000];
    let brackets = |sent: Value| node(json!({"retentionCustomBrackets": sent}), json!(null));
    let by = |filter: Value| node(json!({}), filter);
    let actors = |breakdown: Value| {
        let source = by(json!({"breakdown": [7], "breakdown_type": "cohort"}));
        json!({"kind": "InsightActorsQuery", "source": source, "breakdown": breakdown})
    };
    for (query, attr) in [
        (brackets(json!([0])), "query__retentionFilter__retentionCustomBrackets"),
        (brackets(json!([1, -2])), "query__retentionFilter__retentionCustomBrackets"),
        (brackets(json!("1")), "query__retentionFilter__retentionCustomBrackets"),
        (brackets(json!(long)), "query__retentionFilter__retentionCustomBrackets"),
        (brackets(json!([1_000_000])), "query__retentionFilter__retentionCustomBrackets"),
        (by(json!([])), "query__breakdownFilter"),
        (by(json!({"breakdown": {}})), "query__breakdownFilter__breakdown"),
        (
            by(json!({"breakdown": "a", "breakdown_limit": 0})),
            "query__breakdownFilter__breakdown_limit",
        ),
        (
            by(json!({"breakdown": "a", "breakdown_type": "element"})),
            "query__breakdownFilter__breakdown_type",
        ),
        (
            by(json!({"breakdown": "a", "breakdown_histogram_bin_count": 4})),
            "query__breakdownFilter__breakdown_histogram_bin_count",
        ),
        (
            node(json!({"totalIntervals": 100}), json!({"breakdown": "a"})),
            "query__breakdownFilter__breakdown_limit",
        ),
        (actors(json!(["8"])), "query__breakdown"),
    ] {
        let answer = server.post(QUERY, &json!({"query": query}));
        let told = answer.json();
        let expected = (400, &json!("validation_error"), &json!(attr));
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{told}");
    }
    assert_eq!(results(&server, &by(json!({"breakdown": "a"}))), json!([]), "nobody has a value");
}
