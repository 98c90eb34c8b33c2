//! Lifecycle beside a plain computation over the sent events: random histories with merged persons, random
//! queries, before and after events are in files, and the persons of every status and interval.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::spring::{FIRST_DAY, FORWARD, World, start};
use crate::support::world::{DAY, HOUR, QUERY, date, in_each_state, time};

const STATUSES: [&str; 4] = ["new", "returning", "resurrecting", "dormant"];

/// A random query.
#[derive(Clone, Debug)]
struct Asked {
    period: &'static str,
    name: Option<&'static str>,
    plan: Option<&'static str>,
    from: i64,
    to: i64,
}

/// When each person was created, in seconds since 1970.
type Created = BTreeMap<usize, i64>;

impl Asked {
    fn random(rng: &mut StdRng) -> Self {
        let period = ["Hour", "Day", "Day", "Week", "Month"][rng.random_range(0..5)];
        let (length, from) = match period {
            "Hour" => (HOUR, FORWARD / HOUR * HOUR - rng.random_range(0..12) * HOUR),
            _ => (DAY, (FIRST_DAY + rng.random_range(0..50)) * DAY),
        };
        Self {
            period,
            name: [None, None, Some("sign up"), Some("visit")][rng.random_range(0..4)],
            plan: [None, None, Some("pro")][rng.random_range(0..3)],
            from,
            to: from + rng.random_range(0..20) * length,
        }
    }

    fn node(&self) -> Value {
        let written = |at: i64| match self.period {
            "Hour" => time(at),
            _ => date(at / DAY).to_string(),
        };
        let filters =
            self.plan.map(|plan| json!([{"key": "plan", "value": plan, "type": "event"}]));
        json!({
            "kind": "LifecycleQuery", "interval": self.period.to_lowercase(),
            "series": [{"kind": "EventsNode", "event": self.name}], "properties": filters,
            "dateRange": {"date_from": written(self.from), "date_to": written(self.to)},
        })
    }

    /// The persons of each status in each interval.
    fn persons(&self, world: &World, created: &Created) -> Vec<Vec<BTreeSet<usize>>> {
        let place = |at: i64| {
            let at = if self.period == "Hour" { at } else { at + 12 * HOUR };
            world.interval(self.period, at)
        };
        let (first, last) = (place(self.from), place(self.to));
        let is_active = |person: usize, interval: i64| {
            interval >= first - 1
                && world.events.iter().any(|event| {
                    world.persons[event.id] == person
                        && self.name.is_none_or(|name| name == event.name)
                        && self.plan.is_none_or(|plan| plan == event.plan)
                        && world.interval(self.period, event.at) == interval
                })
        };
        let mut found = vec![Vec::new(); STATUSES.len()];
        for interval in first..=last {
            let mut sets = vec![BTreeSet::new(); STATUSES.len()];
            for (person, at) in created {
                let (is, was) = (is_active(*person, interval), is_active(*person, interval - 1));
                let is_new = world.interval(self.period, *at) == interval
                    && !(first - 1..interval).any(|before| is_active(*person, before));
                let status = match (is, was) {
                    (true, _) if is_new => 0,
                    (true, true) => 1,
                    (true, false) => 2,
                    (false, true) => 3,
                    (false, false) => continue,
                };
                sets[status].insert(*person);
            }
            found.iter_mut().zip(sets).for_each(|(all, set): (&mut Vec<_>, _)| all.push(set));
        }
        found
    }
}

/// As the list of persons says. What is not of the world is left out.
fn created(server: &TestServer, world: &World) -> Created {
    let list = server.get("/api/projects/@current/persons/?limit=1000").json();
    let people = list["results"].as_array().expect("persons").iter();
    let of_world =
        people.filter(|person| person["distinct_ids"][0].as_str().unwrap().starts_with('d'));
    let time = |person: &Value| {
        let at = person["created_at"].as_str().expect("a time");
        (world.person_of(person), chrono::DateTime::parse_from_rfc3339(at).unwrap().timestamp())
    };
    of_world.map(time).collect()
}

/// Events without persons count for nobody.
fn add_personless(server: &TestServer, rng: &mut StdRng) {
    let event = |at: i64| {
        json!({"event": "visit", "distinct_id": "quiet", "timestamp": time(at),
               "properties": {"plan": "pro", "$process_person_profile": false}})
    };
    let events: Vec<Value> =
        (0..30).map(|_| event(FIRST_DAY * DAY + rng.random_range(0..60 * DAY))).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
}

#[test]
fn lifecycle_equals_a_plain_computation() {
    for seed in [61, 62] {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut server, world) = start(&mut rng);
        add_personless(&server, &mut rng);
        let created = created(&server, &world);
        assert_eq!(created.len(), BTreeSet::from_iter(world.persons.iter()).len());
        let asked: Vec<Asked> = (0..60).map(|_| Asked::random(&mut rng)).collect();
        let mut new = 0;
        in_each_state(&mut server, |server, round| {
            for asked in &asked {
                let answer = server.post(QUERY, &json!({"query": asked.node()}));
                assert_eq!(answer.status, 200, "{answer} {asked:?}");
                let found = answer.json()["results"].take();
                let expected = asked.persons(&world, &created);
                for (at, status) in STATUSES.into_iter().enumerate() {
                    let sign = if status == "dormant" { -1 } else { 1 };
                    let data: Vec<i64> = expected[at]
                        .iter()
                        .map(|set| sign * i64::try_from(set.len()).expect("few"))
                        .collect();
                    let own = &found[at];
                    assert_eq!(own["status"], status);
                    assert_eq!(own["data"], json!(data), "{round} {status} {asked:?}");
                    assert_eq!(own["count"], json!(data.iter().sum::<i64>()));
                    let name = asked.name.unwrap_or("All events");
                    assert_eq!(own["label"], format!("{name} - {status}"));
                    assert_eq!(own["days"].as_array().map(Vec::len), Some(data.len()));
                }
                new += expected[0].iter().map(BTreeSet::len).sum::<usize>();
            }
        });
        assert!(new > 20, "some are new: {new}");
    }
}

#[test]
fn the_persons_of_statuses_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(63);
    let (server, world) = start(&mut rng);
    add_personless(&server, &mut rng);
    let created = created(&server, &world);
    for _ in 0..60 {
        let asked = Asked::random(&mut rng);
        let results = server.post(QUERY, &json!({"query": asked.node()})).json()["results"].take();
        let expected = asked.persons(&world, &created);
        let (status, day) = (rng.random_range(0..4), rng.random_range(0..expected[0].len()));
        let source = json!({"kind": "InsightActorsQuery", "source": asked.node(),
                            "status": STATUSES[status], "day": results[0]["days"][day]});
        let query =
            json!({"kind": "ActorsQuery", "source": source, "select": ["person"], "limit": 1000});
        let page = server.post(QUERY, &json!({"query": query}));
        assert_eq!(page.status, 200, "{page} {asked:?}");
        let rows = page.json()["results"].take();
        let rows = rows.as_array().expect("rows");
        let found: BTreeSet<usize> = rows.iter().map(|row| world.person_of(&row[0])).collect();
        assert_eq!(found.len(), rows.len(), "each once");
        assert_eq!(found, expected[status][day], "{source}");
    }
}

#[test]
fn older_clients_get_series_and_follow_their_links() {
    let mut rng = StdRng::seed_from_u64(64);
    let (server, world) = start(&mut rng);
    let filter = json!({"insight": "LIFECYCLE", "events": [{"id": "visit", "order": 0}],
                        "date_from": "2026-03-20", "date_to": "2026-04-02"});
    let answer = server.post("/api/projects/@current/insights/trend/", &filter).json();
    let series = answer["result"].as_array().expect("series");
    let statuses: Vec<_> = series.iter().map(|own| own["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, STATUSES);
    assert_eq!(
        (&series[0]["days"][0], &series[0]["labels"][0]),
        (&json!("2026-03-20"), &json!("20-Mar-2026"))
    );
    let mut people_seen = 0;
    for own in series {
        for (count, url) in
            own["data"].as_array().unwrap().iter().zip(own["persons_urls"].as_array().unwrap())
        {
            let page = server.get(&format!("/{}", url["url"].as_str().unwrap()));
            assert_eq!(page.status, 200, "{page}");
            let page = page.json();
            let people = page["results"][0]["people"].as_array().unwrap();
            assert_eq!(
                u64::try_from(people.len()).ok(),
                count.as_i64().map(i64::unsigned_abs),
                "{url}"
            );
            assert_eq!(
                (&page["results"][0]["count"], &page["next"]),
                (&json!(people.len()), &Value::Null)
            );
            let known: BTreeSet<_> = people.iter().map(|person| world.person_of(person)).collect();
            people_seen += known.len();
        }
    }
    assert!(people_seen > 0);
    let toggled = json!({"insight": "LIFECYCLE", "toggledLifecycles": ["new", "dormant"]});
    let some = server.post("/api/projects/@current/insights/trend/", &toggled).json();
    assert_eq!(some["result"].as_array().map(Vec::len), Some(2), "{some}");

    let path = "/api/projects/@current/persons/lifecycle/";
    let events = "events=%5B%7B%22id%22:%22visit%22%7D%5D&date_from=2026-03-20&date_to=2026-04-02";
    for (query, detail) in [
        ("lifecycle_type=new", "Must include specified date"),
        ("target_date=2026-03-21", "Must include lifecycle type"),
    ] {
        let told = server.get(&format!("{path}?{query}"));
        let expected = json!({"message": "Missing parameter", "detail": detail});
        assert_eq!((told.status, told.json()), (400, expected));
    }
    for (query, attr) in [
        ("target_date=2026-03-21&lifecycle_type=old", "lifecycle_type"),
        ("target_date=1999-03-21&lifecycle_type=new", "target_date"),
        ("target_date=2026-03-21&lifecycle_type=new&interval=year", "interval"),
    ] {
        let told = server.get(&format!("{path}?{events}&{query}"));
        assert_eq!((told.status, &told.json()["attr"]), (400, &json!(attr)), "{told}");
    }
    let csv = format!("{path}?{events}&target_date=2026-03-21&lifecycle_type=dormant&format=csv");
    assert_eq!(server.get(&csv).header("content-type"), Some("text/csv; charset=utf-8"));
}

#[test]
fn what_is_wrong_or_not_available_is_told_by_its_field() {
    let server = TestServer::start();
    let with = |more: Value| {
        let mut node = json!({"kind": "LifecycleQuery", "series": [{"event": "x"}]});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let actors = |more: Value| {
        let mut source = json!({"kind": "InsightActorsQuery", "source": with(json!({}))});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": "ActorsQuery", "source": source})
    };
    for (query, attr) in [
        (with(json!({"series": []})), "query__series"),
        (with(json!({"series": [{}, {}]})), "query__series"),
        (with(json!({"interval": "year"})), "query__interval"),
        (
            with(json!({"lifecycleFilter": {"toggledLifecycles": ["old"]}})),
            "query__lifecycleFilter__toggledLifecycles",
        ),
        (with(json!({"breakdownFilter": {"breakdown": "x"}})), "query__breakdownFilter"),
        (with(json!({"samplingFactor": 0.1})), "query__samplingFactor"),
        (actors(json!({"status": "old"})), "query__source__status"),
        (actors(json!({"day": "1999-01-01"})), "query__day"),
    ] {
        let answer = server.post(QUERY, &json!({"query": query}));
        let told = answer.json();
        let expected = (400, &json!("validation_error"), &json!(attr));
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{told}");
    }
}

/// Groups are new when the first event about them came.
#[test]
fn groups_have_lifecycles_too() {
    let server = TestServer::start();
    let say = |key: &str, at: &str| {
        json!({"event": "$groupidentify", "distinct_id": "d", "timestamp": format!("{at}T10:00:00Z"),
               "properties": {"$group_type": "company", "$group_key": key, "$group_set": {"a": 1}}})
    };
    let visit = |key: &str, at: &str| {
        json!({"event": "visit", "distinct_id": "d", "timestamp": format!("{at}T12:00:00Z"),
               "properties": {"$groups": {"company": key}}})
    };
    let events = [
        say("acme", "2026-03-02"),
        say("old", "2026-01-01"),
        visit("acme", "2026-03-02"),
        visit("acme", "2026-03-03"),
        visit("old", "2026-03-03"),
        json!({"event": "visit", "distinct_id": "d", "timestamp": "2026-03-02T12:00:00Z"}),
    ];
    assert_eq!(server.capture(&json!(events)).status, 200);
    let node = json!({"kind": "LifecycleQuery", "series": [{"event": "visit"}], "aggregation_group_type_index": 0,
                      "dateRange": {"date_from": "2026-03-02", "date_to": "2026-03-04"}});
    let found = server.post(QUERY, &json!({"query": node})).json();
    let data: Vec<_> = (0..4).map(|at| found["results"][at]["data"].to_string()).collect();
    assert_eq!(data, ["[1,0,0]", "[0,1,0]", "[0,1,0]", "[0,0,-2]"], "{found}");
}

#[test]
fn numbers_are_of_one_project() {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!([{"event": "x", "distinct_id": "d"}])).status, 200);
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let query = json!({"query": {"kind": "LifecycleQuery", "series": [{"event": null}]}});
    for (project, count) in [("@current".to_owned(), 1), (other["id"].to_string(), 0)] {
        let found = server.post(&format!("/api/projects/{project}/query/"), &query).json();
        assert_eq!(found["results"][0]["count"], count, "{found}");
    }
}
