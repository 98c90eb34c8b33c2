//! Retention beside a plain computation over the sent events: random histories with merged persons around a
//! change of the clocks, random queries, before and after events are in files, and the persons of every row.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::spring::{Event, FIRST_DAY, FORWARD, World, start};
use crate::support::world::{DAY, HOUR, QUERY, date, in_each_state, time};
/// A random query.
#[derive(Clone, Debug)]
struct Asked {
    period: &'static str,
    kind: &'static str,
    cells: usize,
    /// Name of the events, and the plan that is filtered by.
    target: (Option<&'static str>, Option<&'static str>),
    returning: (Option<&'static str>, Option<&'static str>),
    plan: Option<&'static str>,
    from: Option<i64>,
    to: i64,
    is_cumulative: bool,
    /// Whether cells are windows from the first event on.
    is_rolling: bool,
    occurrences: usize,
}

impl Asked {
    fn random(rng: &mut StdRng) -> Self {
        let period = ["Hour", "Day", "Day", "Week", "Month"][rng.random_range(0..5)];
        let (length, last) = match period {
            "Hour" => (HOUR, FORWARD / HOUR * HOUR + rng.random_range(-6..6) * HOUR),
            _ => (DAY, (FIRST_DAY + rng.random_range(20..60)) * DAY),
        };
        let mut entity = || {
            let name =
                [None, Some("sign up"), Some("visit"), Some("visit")][rng.random_range(0..4)];
            (name, [None, None, Some("pro")][rng.random_range(0..3)])
        };
        let (target, returning) = (entity(), entity());
        let is_rolling = rng.random_bool(0.3);
        Self {
            period,
            kind: [
                "retention_recurring",
                "retention_first_time",
                "retention_first_ever_occurrence",
            ][rng.random_range(0..3)],
            cells: rng.random_range(1..10),
            target,
            returning,
            plan: [None, None, Some("free")][rng.random_range(0..3)],
            from: rng.random_bool(0.5).then(|| last - rng.random_range(0..20) * length),
            to: last,
            is_cumulative: !is_rolling && rng.random_bool(0.25),
            is_rolling,
            occurrences: rng.random_range(1..4).max(2) - 1,
        }
    }

    fn node(&self) -> Value {
        let written = |at: i64| match self.period {
            "Hour" => time(at),
            _ => date(at / DAY).to_string(),
        };
        let filters = |plan: Option<&str>| match plan {
            Some(plan) => json!([{"key": "plan", "value": plan, "type": "event"}]),
            None => json!([]),
        };
        let entity = |(name, plan): (Option<&str>, Option<&str>)| json!({"id": name, "type": "events", "properties": filters(plan)});
        json!({
            "kind": "RetentionQuery", "properties": filters(self.plan),
            "retentionFilter": {
                "period": self.period, "totalIntervals": self.cells, "retentionType": self.kind,
                "targetEntity": entity(self.target), "returningEntity": entity(self.returning),
                "cumulative": self.is_cumulative, "minimumOccurrences": self.occurrences,
                "timeWindowMode": self.is_rolling.then_some("24_hour_windows"),
            },
            "dateRange": {"date_from": self.from.map(written), "date_to": written(self.to)},
        })
    }

    /// The numbers of the intervals of all rows.
    fn rows(&self, world: &World) -> Vec<i64> {
        // Days are named by dates: any time of theirs is as good.
        let interval = |at: i64| {
            let at = if self.period == "Hour" { at } else { at + 12 * HOUR };
            world.interval(self.period, at)
        };
        let last = interval(self.to);
        let count = i64::try_from(self.cells).expect("small");
        (self.from.map_or(last - count + 1, interval)..=last).collect()
    }

    /// The cells of each row in which each person is seen, by row and person.
    fn seen(&self, world: &World) -> Vec<BTreeMap<usize, BTreeSet<usize>>> {
        let rows = self.rows(world);
        let is = |event: &Event, (name, plan): (Option<&str>, Option<&str>)| {
            name.is_none_or(|name| name == event.name) && plan.is_none_or(|plan| plan == event.plan)
        };
        let place = |event: &Event| {
            let own = world.interval(self.period, event.at);
            rows.iter().position(|row| *row == own)
        };
        let mut seen = vec![BTreeMap::new(); rows.len()];
        for person in BTreeSet::from_iter(world.persons.iter().copied()) {
            let own: Vec<&Event> = (world.events.iter())
                .filter(|event| world.persons[event.id] == person && is(event, (None, self.plan)))
                .collect();
            let targets: Vec<&&Event> = own.iter().filter(|event| is(event, self.target)).collect();
            let starts: BTreeSet<usize> = match self.kind {
                "retention_recurring" => targets.iter().filter_map(|event| place(event)).collect(),
                "retention_first_time" => {
                    targets.first().and_then(|event| place(event)).into_iter().collect()
                }
                _ => {
                    let named = |event: &&&Event| is(event, (self.target.0, None));
                    let first = own.iter().find(named).filter(|event| is(event, self.target));
                    first.and_then(|event| place(event)).into_iter().collect()
                }
            };
            let rows_of_one = if self.is_rolling { 1 } else { usize::MAX };
            for start in starts.into_iter().take(rows_of_one) {
                let first = targets.iter().find(|event| place(event) == Some(start)).expect("one");
                let after = |event: &Event| match (self.is_rolling, place(event)?) {
                    (true, _) => self.window(world, first.at, event.at),
                    (false, own) => own.checked_sub(start),
                };
                let back = |cell: &usize| {
                    let count = (own.iter())
                        .filter(|event| is(event, self.returning) && after(event) == Some(*cell));
                    *cell == 0 || count.count() >= self.occurrences
                };
                seen[start].insert(person, (0..self.cells).filter(back).collect());
            }
        }
        seen
    }

    /// How many windows lie between an actor's first event and another one.
    fn window(&self, world: &World, first: i64, at: i64) -> Option<usize> {
        let units = |period: &str| world.interval(period, at) - world.interval(period, first);
        let windows = match self.period {
            "Hour" => units("Hour"),
            "Day" => units("Hour") / 24,
            "Week" => units("Day") / 7,
            _ => units("Day") / 30,
        };
        usize::try_from(windows).ok().filter(|_| at >= first)
    }

    /// How many count in each cell of a row.
    fn counts(&self, row: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<u64> {
        let is_in = |cells: &BTreeSet<usize>, cell: usize| match self.is_cumulative {
            true => cells.iter().any(|own| *own >= cell),
            false => cells.contains(&cell),
        };
        let count = |cell: usize| row.values().filter(|cells| is_in(cells, cell)).count() as u64;
        (0..self.cells).map(count).collect()
    }
}

/// The counts of all rows of an answer.
fn counts(rows: &Value) -> Vec<Vec<u64>> {
    let row = |row: &Value| {
        let values = row["values"].as_array().expect("values").iter();
        values.map(|value| value["count"].as_u64().expect("a number")).collect()
    };
    rows.as_array().expect("rows").iter().map(row).collect()
}

#[test]
fn retention_equals_a_plain_computation() {
    for seed in [41, 42] {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut server, world) = start(&mut rng);
        let asked: Vec<Asked> = (0..80).map(|_| Asked::random(&mut rng)).collect();
        in_each_state(&mut server, |server, round| {
            for asked in &asked {
                let answer = server.post(QUERY, &json!({"query": asked.node()}));
                assert_eq!(answer.status, 200, "{answer} {asked:?}");
                let found = answer.json()["results"].take();
                let expected: Vec<Vec<u64>> =
                    asked.seen(&world).iter().map(|row| asked.counts(row)).collect();
                assert_eq!(counts(&found), expected, "{round} {asked:?}");
                if asked.period == "Day" {
                    let dates = found.as_array().unwrap().iter().map(|row| {
                        row["date"].as_str().unwrap()[.."2026-03-29T00:00:00".len()].to_owned()
                    });
                    let days = asked.rows(&world).into_iter();
                    let expected = days.map(|day| format!("{}T00:00:00", date(day)));
                    assert_eq!(dates.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
                }
            }
        });
    }
}

#[test]
fn the_persons_of_rows_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(43);
    let (server, world) = start(&mut rng);
    for _ in 0..40 {
        let asked = Asked::random(&mut rng);
        let seen = asked.seen(&world);
        let at = rng.random_range(0..seen.len());
        let source = json!({"kind": "InsightActorsQuery", "source": asked.node(), "interval": at});
        let query =
            json!({"kind": "ActorsQuery", "source": source, "select": ["person", "appearances"]});
        let mut found = BTreeMap::new();
        let mut before = usize::MAX;
        for offset in (0..).step_by(5) {
            let mut query = query.clone();
            (query["limit"], query["offset"]) = (json!(5), json!(offset));
            let page = server.post(QUERY, &json!({"query": query}));
            assert_eq!(page.status, 200, "{page} {asked:?}");
            let page = page.json();
            for row in page["results"].as_array().expect("rows") {
                let cells = row[1].as_array().expect("cells").iter();
                let cells: Vec<usize> =
                    cells.map(|cell| usize::try_from(cell.as_u64().unwrap()).unwrap()).collect();
                assert!(cells.len() <= before && cells.is_sorted(), "{page}");
                before = cells.len();
                let person = world.person_of(&row[0]);
                assert!(found.insert(person, BTreeSet::from_iter(cells)).is_none(), "each once");
            }
            if page["hasMore"] == false {
                break;
            }
        }
        assert_eq!(found, seen[at], "{asked:?} {at}");
    }
}

/// The sums that each person brings into the cells of a row.
fn sums(asked: &Asked, world: &World, (start, person): (usize, usize)) -> Vec<f64> {
    let rows = asked.rows(world);
    let is = |event: &Event, (name, plan): (Option<&str>, Option<&str>)| {
        name.is_none_or(|name| name == event.name) && plan.is_none_or(|plan| plan == event.plan)
    };
    let after = |event: &Event| {
        let own = world.interval(asked.period, event.at);
        rows.iter().position(|row| *row == own)?.checked_sub(start)
    };
    let own = || {
        let of_person = |event: &&Event| world.persons[event.id] == person;
        world.events.iter().filter(of_person).filter(|event| is(event, (None, asked.plan)))
    };
    let first = own().find(|event| is(event, asked.target) && after(event) == Some(0));
    let first = first.expect("who is in the row").at;
    let counts = |event: &&Event, cell: usize| {
        after(event) == Some(cell)
            && match (cell, asked.target == asked.returning) {
                (0, true) => is(event, asked.target),
                (0, false) => is(event, asked.returning) && event.at > first,
                _ => is(event, asked.returning),
            }
    };
    let sum = |cell| own().filter(|event| counts(event, cell)).map(|event| event.number()).sum();
    (0..asked.cells).map(sum).collect()
}

#[test]
fn sums_and_means_equal_a_plain_computation() {
    let mut rng = StdRng::seed_from_u64(44);
    let (mut server, world) = start(&mut rng);
    let asked: Vec<Asked> = (0..120)
        .map(|at| {
            let own = Asked::random(&mut rng);
            let returning = if at % 2 == 0 { own.target } else { own.returning };
            Asked { is_cumulative: false, is_rolling: false, occurrences: 1, returning, ..own }
        })
        .collect();
    let mut told = 0.0;
    in_each_state(&mut server, |server, round| {
        for (asked, at) in asked.iter().zip(0..) {
            let is_mean = at % 3 == 0;
            let mut node = asked.node();
            node["retentionFilter"]["aggregationType"] = json!(if is_mean { "avg" } else { "sum" });
            node["retentionFilter"]["aggregationProperty"] = json!("price");
            let answer = server.post(QUERY, &json!({"query": node}));
            assert_eq!(answer.status, 200, "{answer} {asked:?}");
            let found = answer.json()["results"].take();
            for ((row, seen), start) in
                found.as_array().unwrap().iter().zip(asked.seen(&world)).zip(0..)
            {
                let own: Vec<Vec<f64>> =
                    seen.keys().map(|person| sums(asked, &world, (start, *person))).collect();
                let counts = asked.counts(&seen);
                for (cell, count) in counts.iter().enumerate() {
                    let sum: f64 = own.iter().map(|sums| sums[cell]).sum();
                    let expected = match (is_mean, count) {
                        (false, _) => sum,
                        (true, 0) => 0.0,
                        (true, count) => sum / *count as f64,
                    };
                    let value = &row["values"][cell];
                    assert_eq!(value["count"], *count, "{round} {asked:?}");
                    let value = value["aggregation_value"].as_f64().expect("a number");
                    assert!(
                        (value - expected).abs() < 1e-9,
                        "{round} {asked:?} {start} {cell}: {value} {expected}"
                    );
                    told += value.abs();
                }
            }
        }
    });
    assert!(told > 10_000.0, "{told}");
}

/// Numbers of persons count once for each event; those of a value of the breakdown are its own.
#[test]
fn sums_are_of_persons_too_and_of_each_value() {
    let server = TestServer::start();
    let event = |id: &str, day: u8, plan: &str, price: Value| {
        json!({"event": "buy", "distinct_id": id, "timestamp": format!("2026-03-0{day}T12:00:00Z"),
               "properties": {"plan": plan, "price": price, "$set": {"seats": if id == "a" { 2 } else { 10 }}}})
    };
    let sent = json!([
        event("a", 1, "pro", json!(5)),
        event("a", 1, "free", json!(7)),
        event("a", 2, "pro", json!("1.5")),
        event("a", 2, "pro", json!(2)),
        event("b", 1, "pro", json!(100)),
        event("b", 3, "pro", Value::Null),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let entity = json!({"id": "buy", "type": "events"});
    let ask = |options: Value, breakdown: Value| {
        let mut filter =
            json!({"totalIntervals": 3, "targetEntity": entity, "returningEntity": entity});
        filter.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let node = json!({"kind": "RetentionQuery", "retentionFilter": filter, "breakdownFilter": breakdown,
                          "dateRange": {"date_to": "2026-03-03"}});
        let answer = server.post(QUERY, &json!({"query": node})).json();
        let row = |row: &Value| {
            let cells = row["values"].as_array().unwrap().iter();
            (
                row["breakdown_value"].clone(),
                cells.map(|cell| cell["aggregation_value"].clone()).collect(),
            )
        };
        answer["results"]
            .as_array()
            .expect("rows")
            .iter()
            .map(row)
            .collect::<Vec<(Value, Vec<Value>)>>()
    };
    let of = |kind: &str, key: &str, owner: &str| json!({"aggregationType": kind, "aggregationProperty": key, "aggregationPropertyType": owner});
    let rows = ask(of("sum", "price", "event"), Value::Null);
    assert_eq!(rows[0].1, [json!(112.0), json!(3.5), json!(0.0)]);
    assert_eq!(
        ask(of("avg", "price", "event"), Value::Null)[0].1,
        [json!(56.0), json!(3.5), json!(0.0)]
    );
    // Two events of a and one of b on the first day, two of a on the second, one of b on the third.
    assert_eq!(
        ask(of("sum", "seats", "person"), Value::Null)[0].1,
        [json!(14.0), json!(4.0), json!(10.0)]
    );
    let split = ask(of("sum", "price", "event"), json!({"breakdown": "plan"}));
    assert_eq!(split[0], (json!("pro"), vec![json!(105.0), json!(3.5), json!(0.0)]));
    assert_eq!(split[3], (json!("free"), vec![json!(7.0), json!(0.0), json!(0.0)]));
    let other =
        ask(of("avg", "price", "event"), json!({"breakdown": "plan", "breakdown_limit": 1}));
    assert_eq!(other[3].1, [json!(7.0), json!(0.0), json!(0.0)], "{other:?}");
    let plain = ask(json!({"aggregationType": "count"}), Value::Null);
    assert_eq!(plain[0].1, [Value::Null, Value::Null, Value::Null]);
    let older = "/api/projects/@current/insights/retention/?date_to=2026-03-03&total_intervals=3&aggregation_type=sum\
         &aggregation_property=price&target_entity=%7B%22id%22:%22buy%22,%22type%22:%22events%22%7D";
    let older = server.get(older).json();
    assert_eq!(older["result"][0]["values"][1]["aggregation_value"], 3.5, "{older}");
}

/// The example of PostHog's own tests: two persons, one with two ids.
#[test]
fn a_published_example_has_its_published_numbers() {
    let server = TestServer::start();
    let event = |id: &str, day: i64, hour: i64| {
        json!({"event": "$pageview", "distinct_id": id,
               "timestamp": format!("2020-06-{}T{hour:02}:00:00Z", 10 + day)})
    };
    let merge = json!({"event": "$identify", "distinct_id": "person1", "timestamp": "2020-06-01T00:00:00Z",
                       "properties": {"$anon_distinct_id": "alias1"}});
    let mut events = vec![event("alias1", 5, 9), merge];
    events.extend([0, 1, 2, 5, 6].map(|day| event("person1", day, 6)));
    events.extend([1, 2, 3, 6].map(|day| event("person2", day, 6)));
    assert_eq!(server.capture(&json!(events)).status, 200);
    let triangle = [
        vec![1, 1, 1, 0, 0, 1, 1],
        vec![2, 2, 1, 0, 1, 2],
        vec![2, 1, 0, 1, 2],
        vec![1, 0, 0, 1],
        vec![0, 0, 0],
        vec![1, 1],
        vec![2],
    ];
    let node = json!({"kind": "RetentionQuery", "dateRange": {"date_to": "2020-06-16T06:00:00Z"}});
    let found = server.post(QUERY, &json!({"query": node})).json()["results"].take();
    let mut padded = triangle.clone();
    padded.iter_mut().for_each(|row| row.resize(7, 0));
    assert_eq!(counts(&found), padded);
    let first = (&found[0]["label"], &found[0]["date"], &found[6]["values"][0]["label"]);
    assert_eq!(first, (&json!("Day 0"), &json!("2020-06-10T00:00:00Z"), &json!("Day 0")));
    assert_eq!(found[6]["label"], "Day 6");

    // Older clients get the triangle, and follow the links.
    let target = json!({"id": "$pageview", "type": "events"});
    let filter = json!({"insight": "RETENTION", "target_entity": target, "total_intervals": 7,
                        "date_to": "2020-06-16", "date_from": "-90d"});
    let older = "/api/projects/@current/insights/retention/";
    let answer = server.post(older, &filter).json();
    assert_eq!(counts(&answer["result"]), triangle);
    assert_eq!((&answer["timezone"], &answer["is_cached"]), (&json!("UTC"), &json!(false)));
    let url = answer["result"][1]["people_url"].as_str().expect("a link");
    assert_eq!(answer["result"][1]["values"][2]["people_url"], url);
    let page = server.get(&format!("/{url}")).json();
    let appearances = |page: &Value| {
        let rows = page["result"].as_array().expect("rows").iter();
        rows.map(|row| row["appearances"].to_string()).collect::<Vec<_>>()
    };
    // Both come back three times: their ids decide.
    let mut found = appearances(&page);
    found.sort();
    assert_eq!(found, ["[1,1,0,0,1,1]", "[1,1,1,0,0,1]"]);
    assert_eq!((&page["next"], &page["missing_persons"]), (&Value::Null, &json!(0)));
    assert!(page["result"][0]["person"]["distinct_ids"].is_array(), "{page}");
    let rest = server.get(&format!("/{url}&limit=1")).json();
    let next = rest["next"].as_str().expect("a link").replace(&server.url(), "");
    assert_eq!(appearances(&rest)[..], appearances(&page)[..1]);
    assert_eq!(appearances(&server.get(&next).json())[..], appearances(&page)[1..]);
    let searched = server.get(&format!("/{url}&search=SON2")).json();
    assert_eq!(appearances(&searched), ["[1,1,1,0,0,1]"]);
    let flat = url.replace("projects/1/persons", "person");
    assert_eq!(server.get(&format!("/{flat}")).json()["result"], page["result"]);
    let csv = server.get(&format!("/{url}&format=csv"));
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    assert_eq!(
        String::from_utf8_lossy(&csv.body).lines().count(),
        3,
        "a head and two persons: {csv}"
    );
    let csv = server.get(&format!("{older}?date_to=2020-06-16&format=csv"));
    assert_eq!(
        String::from_utf8_lossy(&csv.body).lines().count(),
        12,
        "a head and eleven rows: {csv}"
    );
    let unknown =
        server.get(&format!("/{}", url.replace("selected_interval=1", "selected_interval=7")));
    assert_eq!((unknown.status, &unknown.json()["attr"]), (400, &json!("selected_interval")));
}

#[test]
fn what_is_wrong_or_not_available_is_told_by_its_field() {
    let server = TestServer::start();
    let node = |options: Value, more: Value| {
        let mut node = json!({"kind": "RetentionQuery", "retentionFilter": options});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let actors = |more: Value| {
        let mut source =
            json!({"kind": "InsightActorsQuery", "source": node(json!({}), json!({}))});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": "ActorsQuery", "source": source})
    };
    for (query, attr) in [
        (node(json!({"period": "Decade"}), json!({})), "query__retentionFilter__period"),
        (node(json!({"totalIntervals": 0}), json!({})), "query__retentionFilter__totalIntervals"),
        (
            node(json!({"retentionCustomBrackets": [1, 0]}), json!({})),
            "query__retentionFilter__retentionCustomBrackets",
        ),
        (
            node(json!({"timeWindowMode": "24_hour_windows", "cumulative": true}), json!({})),
            "query__retentionFilter__cumulative",
        ),
        (node(json!({"retentionType": "x"}), json!({})), "query__retentionFilter__retentionType"),
        (
            node(json!({"targetEntity": {"id": 1, "type": "actions"}}), json!({})),
            "query__retentionFilter__targetEntity__id",
        ),
        (node(json!({}), json!({"samplingFactor": 0.5})), "query__samplingFactor"),
        (
            node(json!({}), json!({"aggregation_group_type_index": 9})),
            "query__aggregation_group_type_index",
        ),
        (
            node(json!({}), json!({"dateRange": {"date_to": "soonish"}})),
            "query__dateRange__date_to",
        ),
        (
            node(json!({"totalIntervals": 400}), json!({"dateRange": {"date_from": "-300d"}})),
            "query__dateRange",
        ),
        (actors(json!({"interval": 7})), "query__interval"),
        (actors(json!({"interval": "x"})), "query__source__interval"),
    ] {
        let answer = server.post(QUERY, &json!({"query": query}));
        let told = answer.json();
        let expected = (400, &json!("validation_error"), &json!(attr));
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{told}");
    }
    let refused = server.get("/api/projects/@current/insights/retention/?period=Decade").json();
    assert_eq!(refused["detail"], "Period Decade is unsupported.", "{refused}");
}

#[test]
fn numbers_are_of_one_project() {
    let server = TestServer::start();
    let event = json!({"event": "$pageview", "distinct_id": "d"});
    assert_eq!(server.capture(&json!([event])).status, 200);
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let query =
        json!({"query": {"kind": "RetentionQuery", "retentionFilter": {"totalIntervals": 1}}});
    for (project, count) in [(&json!("@current"), 1), (&other["id"], 0)] {
        let project = project.to_string().replace('"', "");
        let found = server.post(&format!("/api/projects/{project}/query/"), &query).json();
        assert_eq!(counts(&found["results"]), [[count]], "{found}");
        let path = format!("/api/projects/{project}/persons/retention/?total_intervals=1");
        let people = server.get(&path).json();
        assert_eq!(
            people["result"].as_array().map(Vec::len),
            usize::try_from(count).ok(),
            "{people}"
        );
    }
}
