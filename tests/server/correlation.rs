//! Correlation analysis of funnels beside sets of persons who did or have something: the funnels of the random
//! worlds of [`funnels`](crate::funnels), before and after events are in files, and the persons behind every row.
//! `WEIR_ORACLE_QUESTIONS` and `WEIR_ORACLE_SEED` mean what they do for the comparison with SQL.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::funnels::{Asked, FIRST_DAY, IDS, OFFSET, World, persons, start_with};
use crate::harness::TestServer;
use crate::oracle::{QUESTIONS, SEED, fresh_seed, questions_asked};
use crate::support::world::{DAY, HOUR, QUERY};

const LEGACY: &str = "/api/projects/@current/insights/funnel/correlation/";
const PERSONS: &str = "/api/projects/@current/persons/funnel/correlation/";

const NAMES: [&str; 9] =
    ["view", "view", "buy", "leave", "read", "search", "share", "help", "Help"];

/// The plan of a person, as rows show it; `None` is none.
const PLANS: [(Value, Option<&str>); 7] = [
    (Value::Null, None),
    (Value::Bool(true), Some("true")),
    (Value::Bool(false), Some("false")),
    (Value::Array(Vec::new()), Some("[]")),
    (Value::String(String::new()), Some("")),
    (Value::String(String::new()), Some("")),
    (Value::Null, None),
];

/// Texts of plans.
const PLAN_TEXTS: [&str; 3] = ["pro", "Pro", "free"];

/// A server with the events of a world, and the plan of each person.
fn start(rng: &mut StdRng) -> (TestServer, World, BTreeMap<usize, Option<String>>) {
    let (server, world) = start_with(rng, &NAMES);
    let (mut plans, mut sent) = (BTreeMap::new(), Vec::new());
    for id in (0..IDS).filter(|id| world.persons[*id] == *id) {
        let (value, shown) = match rng.random_bool(0.6) {
            true => {
                let text = PLAN_TEXTS[rng.random_range(0..PLAN_TEXTS.len())];
                (json!(text), Some(text.to_owned()))
            }
            false => {
                let (value, shown) = &PLANS[rng.random_range(0..PLANS.len())];
                (value.clone(), shown.map(str::to_owned))
            }
        };
        sent.push(json!({
            "event": "$set", "distinct_id": format!("d{id}"), "timestamp": "2026-02-21T00:00:00Z",
            "properties": {"$set": {"plan": value}},
        }));
        plans.insert(id, shown);
    }
    assert_eq!(server.capture(&json!(sent)).status, 200);
    (server, world, plans)
}

/// What correlates, and the persons who do or have it.
type Who = BTreeMap<String, BTreeSet<usize>>;

/// A funnel as it was asked for, and who came through it.
struct Funnel {
    asked: Asked,
    /// Each person with the first time and the end.
    ways: BTreeMap<usize, (i64, i64)>,
    converted: BTreeSet<usize>,
}

impl Funnel {
    fn random(rng: &mut StdRng, world: &World) -> Self {
        let viz = ["steps", "trends", "time_to_convert"][rng.random_range(0..3)];
        let asked = Asked::random(rng, viz);
        let whole = Asked { viz: "steps", split: None, ..asked.clone() };
        let (mut ways, mut converted) = (BTreeMap::new(), BTreeSet::new());
        for (person, _, way) in whole.found(world, &(i64::MIN..=i64::MAX)) {
            let times: Vec<i64> = way.iter().copied().flatten().collect();
            let mut end = times[0] + asked.window_hours * HOUR;
            if way.len() == asked.steps.len() {
                converted.insert(person);
                end = times[times.len() - 1];
            }
            ways.insert(person, (times[0], end));
        }
        Self { asked, ways, converted }
    }

    /// The persons with something that `name` gives for an event that counts.
    fn events(&self, world: &World, name: impl Fn(&str, Option<&str>) -> Option<String>) -> Who {
        let range = self.asked.from * DAY - OFFSET..(self.asked.to + 1) * DAY - OFFSET;
        let mut who = Who::new();
        for event in &world.events {
            let person = world.persons[event.id];
            let Some((first, end)) = self.ways.get(&person) else { continue };
            let is_in = range.contains(&event.at) && event.at > *first && event.at < *end;
            let is_step = self.asked.steps.iter().any(|(step, _)| *step == Some(event.name));
            if is_in
                && !is_step
                && let Some(name) = name(event.name, event.browser)
            {
                who.entry(name).or_default().insert(person);
            }
        }
        who
    }

    /// The answer: name, successes, failures, odds ratio; and whether it is skewed.
    fn expected(&self, who: &Who) -> (Vec<(String, usize, usize, f64)>, bool) {
        let (all, of_all) = (self.ways.len(), self.converted.len());
        let (successes, failures) = (of_all, all - of_all);
        if successes == 0 || failures == 0 {
            return (Vec::new(), true);
        }
        let row = |(name, persons): (&String, &BTreeSet<usize>)| {
            let own = persons.intersection(&self.converted).count();
            let other = persons.len() - own;
            let odds = ((own + 1) * (failures - other + 1)) as f64
                / ((successes - own + 1) * (other + 1)) as f64;
            (name.clone(), own, other, odds)
        };
        let rows: Vec<_> = who.iter().map(row).collect();
        let (mut good, mut bad): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.3 > 1.0);
        // They come by their names.
        good.sort_by(|a, b| b.3.total_cmp(&a.3));
        bad.sort_by(|a, b| a.3.total_cmp(&b.3));
        good.truncate(10);
        bad.truncate(10);
        let is_skewed = successes > 10 * failures || failures > 10 * successes;
        ([good, bad].concat(), is_skewed)
    }

    fn node(&self, fields: &Value) -> Value {
        let mut node = json!({
            "kind": "FunnelCorrelationQuery",
            "source": {"kind": "FunnelsActorsQuery", "source": self.asked.node()},
        });
        node.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        node
    }
}

/// The rows of an answer as the model has them.
fn shape(results: &Value) -> (Vec<(String, usize, usize, f64)>, bool) {
    let row = |row: &Value| {
        let count = |name: &str| usize::try_from(row[name].as_u64().expect("a count")).unwrap();
        let odds = row["odds_ratio"].as_f64().expect("a ratio");
        let kind = if odds > 1.0 { "success" } else { "failure" };
        assert_eq!(row["correlation_type"], kind, "{row}");
        let event = &row["event"];
        assert_eq!((&event["properties"], &event["elements"]), (&json!({}), &json!([])), "{row}");
        let name = event["event"].as_str().expect("a name").to_owned();
        (name, count("success_count"), count("failure_count"), odds)
    };
    let rows = results["events"].as_array().expect("rows").iter().map(row).collect();
    (rows, results["skewed"].as_bool().expect("a truth value"))
}

/// What is asked of a funnel, and who does or has it.
fn questions(
    funnel: &Funnel,
    world: &World,
    plans: &BTreeMap<usize, Option<String>>,
) -> Vec<(Value, Who)> {
    let excluded = "search";
    let by_name = funnel.events(world, |name, _| (name != excluded).then(|| name.to_owned()));
    let names = ["help", "Help", "share", "read"];
    let mut by_browser = funnel.events(world, |name, browser| {
        names.contains(&name).then(|| browser.map(|value| format!("{name}::$browser::{value}")))?
    });
    by_browser.retain(|_, persons| persons.len() > 2);
    let mut by_plan = Who::new();
    let mut by_named_plan = Who::new();
    for person in funnel.ways.keys() {
        let plan = plans[person].as_deref();
        if let Some(plan) = plan {
            by_plan.entry(format!("plan::{plan}")).or_default().insert(*person);
        }
        let named = format!("plan::{}", plan.unwrap_or_default());
        by_named_plan.entry(named).or_default().insert(*person);
        by_named_plan.entry("nothing::".to_owned()).or_default().insert(*person);
    }
    vec![
        (
            json!({"funnelCorrelationType": "events", "funnelCorrelationExcludeEventNames": [excluded]}),
            by_name,
        ),
        (
            json!({"funnelCorrelationType": "event_with_properties", "funnelCorrelationEventNames": names,
                   "funnelCorrelationEventExcludePropertyNames": ["$ip"]}),
            by_browser,
        ),
        (
            json!({"funnelCorrelationType": "properties", "funnelCorrelationNames": ["$all"],
                   "funnelCorrelationExcludeNames": ["$creator_event_uuid", "$browser", "$initial_browser", "tier"]}),
            by_plan,
        ),
        (
            json!({"funnelCorrelationType": "properties",
                   "funnelCorrelationNames": ["plan", "nothing", "other"], "funnelCorrelationExcludeNames": ["other"]}),
            by_named_plan,
        ),
    ]
}

#[test]
fn correlations_equal_counts_of_sets_of_persons() {
    let (mut asked, mut answers) = (0, 0);
    let most = questions_asked(QUESTIONS);
    // A fixed world, and a fresh one.
    for seed in [61, fresh_seed()] {
        eprintln!("{SEED}={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (server, world, plans) = start(&mut rng);
        let before = asked;
        for round in ["in memory", "in files"] {
            let half = before + if round == "in memory" { most / 4 } else { most / 2 };
            while asked < half {
                let funnel = Funnel::random(&mut rng, &world);
                for (fields, who) in questions(&funnel, &world, &plans) {
                    let answer = server.post(QUERY, &json!({"query": funnel.node(&fields)}));
                    assert_eq!(answer.status, 200, "{answer} {fields}");
                    let found = shape(&answer.json()["results"]);
                    let of = &funnel.asked;
                    assert_eq!(found, funnel.expected(&who), "{seed} {round} {fields} {of:?}");
                    answers += u64::from(!found.0.is_empty());
                    asked += 1;
                }
            }
            server.flush();
        }
    }
    assert!(answers > asked / 5, "{answers} of {asked} with rows");
}

#[test]
fn the_persons_behind_rows_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(62);
    let (server, world, plans) = start(&mut rng);
    let mut count = 0;
    for _ in 0..40 {
        let funnel = Funnel::random(&mut rng, &world);
        for (fields, who) in questions(&funnel, &world, &plans) {
            let (rows, _) = funnel.expected(&who);
            for (name, successes, failures, _) in rows {
                let mut source =
                    json!({"kind": "FunnelCorrelationActorsQuery", "source": funnel.node(&fields)});
                let parts: Vec<&str> = name.split("::").collect();
                match parts.as_slice() {
                    [event] => {
                        source["funnelCorrelationPersonEntity"] =
                            json!({"kind": "EventsNode", "event": event})
                    }
                    [event, key, value] => {
                        let filter = json!({"key": key, "value": [value], "type": "event", "operator": "exact"});
                        source["funnelCorrelationPersonEntity"] =
                            json!({"kind": "EventsNode", "event": event, "properties": [filter]});
                    }
                    [key, value] => {
                        let filter = json!({"key": key, "value": value, "type": "person", "operator": "exact"});
                        source["funnelCorrelationPropertyValues"] = json!([filter]);
                    }
                    _ => panic!("{name}"),
                }
                let own = &who[&name];
                let all = persons(&server, &world, &source);
                assert_eq!(all, *own, "{name} {:?}", funnel.asked);
                for (is_converted, expected) in [(true, successes), (false, failures)] {
                    source["funnelCorrelationPersonConverted"] = json!(is_converted);
                    let found = persons(&server, &world, &source);
                    let is_own =
                        |person: &&usize| funnel.converted.contains(person) == is_converted;
                    assert_eq!(found, own.iter().filter(is_own).copied().collect(), "{name}");
                    assert_eq!(found.len(), expected, "{name}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 100, "{count} rows");
}

fn count(page: &Value) -> Option<u64> {
    page["results"][0]["count"].as_u64()
}

/// Filters of older clients: a funnel of two steps, and more.
fn older(more: &Value) -> Value {
    let mut filter = json!({
        "insight": "FUNNELS", "events": [{"id": "view", "order": 0}, {"id": "buy", "order": 1}],
        "date_from": "2026-01-05", "date_to": "2026-01-30", "funnel_window_days": 9,
    });
    filter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    filter
}

#[test]
fn older_clients_get_rows_and_follow_their_links() {
    let mut rng = StdRng::seed_from_u64(63);
    let (server, world, _) = start(&mut rng);
    let follow = |url: &Value| server.get(&format!("/{}", url.as_str().expect("a link"))).json();
    let mut links = Vec::new();
    for more in [
        json!({}),
        json!({"funnel_correlation_type": "events", "funnel_correlation_exclude_event_names": "[\"help\"]"}),
        json!({"funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["help", "share"],
               "funnel_correlation_event_exclude_property_names": ["$ip"]}),
        json!({"funnel_correlation_type": "properties", "funnel_correlation_names": "plan"}),
        json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["$all"]}),
    ] {
        let answer = server.post(LEGACY, &older(&more));
        assert_eq!(answer.status, 200, "{answer}");
        let result = answer.json()["result"].clone();
        let node = json!({
            "kind": "FunnelCorrelationQuery",
            "source": {"kind": "FunnelsActorsQuery", "source": {
                "kind": "FunnelsQuery", "series": [{"event": "view"}, {"event": "buy"}],
                "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-30"},
                "funnelsFilter": {"funnelWindowInterval": 9, "funnelWindowIntervalUnit": "day"},
            }},
            "funnelCorrelationType": more["funnel_correlation_type"],
            "funnelCorrelationEventNames": more["funnel_correlation_event_names"],
            "funnelCorrelationNames": match &more["funnel_correlation_names"] {
                Value::String(name) => json!([name]),
                other => other.clone(),
            },
            "funnelCorrelationExcludeEventNames":
                if more.get("funnel_correlation_exclude_event_names").is_some() { json!(["help"]) } else { json!(null) },
            "funnelCorrelationEventExcludePropertyNames": ["$ip"],
        });
        let newer = server.post(QUERY, &json!({"query": node})).json();
        assert_eq!(shape(&result), shape(&newer["results"]), "{more}");
        let rows = result["events"].as_array().expect("rows");
        assert!(!rows.is_empty(), "{more}");
        for row in rows {
            for kind in ["success", "failure"] {
                let url = &row[format!("{kind}_people_url")];
                assert_eq!(count(&follow(url)), row[format!("{kind}_count")].as_u64(), "{row}");
                links.push((url.clone(), row[format!("{kind}_count")].as_u64().unwrap()));
            }
        }
    }
    // The same in the query string.
    let query = "insight=FUNNELS&events=[{\"id\":\"view\"},{\"id\":\"buy\",\"order\":1}]&date_from=2026-01-05\
                 &date_to=2026-01-30&funnel_window_days=9";
    let query: String = query.replace('"', "%22").replace(['{'], "%7B").replace('}', "%7D");
    let got = server.get(&format!("{LEGACY}?{query}")).json();
    let posted = server.post(LEGACY, &older(&json!({}))).json();
    assert_eq!(shape(&got["result"]), shape(&posted["result"]));

    // Pages go on where there are more, under the older names, too.
    let (url, most) = links.iter().max_by_key(|(_, count)| *count).expect("links");
    assert!(*most > 4, "{most}");
    let query = url.as_str().unwrap().split_once('?').unwrap().1;
    for mut next in [
        format!("/api/person/funnel/correlation/?{query}&limit=3"),
        format!(
            "{PERSONS}?{query}&funnel_correlation_person_limit=3&funnel_correlation_person_offset=0"
        ),
        format!(
            "{PERSONS}?{query}&limit=3&funnel_correlation_person_offset=0&funnel_correlation_person_limit=1"
        ),
    ] {
        let mut seen = BTreeSet::new();
        while !next.is_empty() {
            let page = server.get(&next).json();
            let people = page["results"][0]["people"].as_array().expect("people");
            assert!(people.len() <= 3, "{page}");
            for own in people {
                assert_eq!(
                    (&own["type"], &own["value_at_data_point"]),
                    (&json!("person"), &json!(1.0))
                );
                assert!(seen.insert(world.person_of(own)), "{own} twice");
            }
            next =
                page["next"].as_str().map(|url| url.replace(&server.url(), "")).unwrap_or_default();
        }
        assert_eq!(seen.len() as u64, *most);
    }
    let csv = server.get(&format!("/{}&format=csv", url.as_str().unwrap()));
    assert_eq!(
        (csv.status, csv.header("content-type")),
        (200, Some("text/csv; charset=utf-8")),
        "{csv}"
    );

    let none = server.post(LEGACY, &json!({})).json();
    assert_eq!(none["result"], json!({"events": [], "skewed": false}), "no steps");
    let nobody =
        server.post(LEGACY, &older(&json!({"events": [{"id": "none"}, {"id": "buy"}]}))).json();
    assert_eq!(nobody["result"], json!({"events": [], "skewed": true}), "nobody entered");
}

#[test]
fn what_is_wrong_or_not_available_is_told_by_its_field() {
    let server = TestServer::start();
    let event = json!({"id": "help", "type": "events"});
    for (path, more, attr) in [
        (LEGACY, json!({"insight": "TRENDS"}), "insight"),
        (LEGACY, json!({"funnel_correlation_type": "x"}), "funnel_correlation_type"),
        (LEGACY, json!({"funnel_correlation_type": "properties"}), "funnel_correlation_names"),
        (
            LEGACY,
            json!({"funnel_correlation_type": "event_with_properties"}),
            "funnel_correlation_event_names",
        ),
        (
            LEGACY,
            json!({"funnel_correlation_exclude_event_names": [1]}),
            "funnel_correlation_exclude_event_names",
        ),
        (
            LEGACY,
            json!({"funnel_correlation_exclude_event_names": "[1"}),
            "funnel_correlation_exclude_event_names",
        ),
        (LEGACY, json!({"funnel_step": 3}), "funnel_step"),
        (LEGACY, json!({"funnel_step_breakdown": "x"}), "funnel_step_breakdown"),
        (LEGACY, json!({"date_from": "x"}), "dateRange__date_from"),
        (LEGACY, json!({"actions": [{"id": 77}]}), "series__1__id"),
        (PERSONS, json!({}), "funnel_correlation_person_entity"),
        (
            PERSONS,
            json!({"funnel_correlation_person_entity": 1}),
            "funnel_correlation_person_entity",
        ),
        (
            PERSONS,
            json!({"funnel_correlation_person_entity": "{"}),
            "funnel_correlation_person_entity",
        ),
        (
            PERSONS,
            json!({"funnel_correlation_person_entity": {"id": "a", "properties": [{"key": 1}]}}),
            "funnel_correlation_person_entity__properties",
        ),
        (
            PERSONS,
            json!({"funnel_correlation_person_entity": event, "funnel_correlation_person_converted": "x"}),
            "funnel_correlation_person_converted",
        ),
        (
            PERSONS,
            json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["plan"]}),
            "funnel_correlation_property_values",
        ),
    ] {
        let answer = server.post(path, &older(&more));
        let told = answer.json();
        assert_eq!((answer.status, &told["attr"]), (400, &json!(attr)), "{path} {more} {told}");
    }
    let funnel = json!({"kind": "FunnelsQuery", "series": [{"event": "a"}, {"event": "b"}]});
    let source = json!({"kind": "FunnelCorrelationQuery", "source": {"source": funnel}});
    for (query, attr) in [
        (json!({"kind": "FunnelCorrelationQuery"}), "query__source"),
        (
            json!({"kind": "FunnelCorrelationQuery", "source": {"source": {"kind": "TrendsQuery"}}}),
            "query__source__source__kind",
        ),
        (
            json!({"kind": "ActorsQuery", "source": {"kind": "FunnelCorrelationActorsQuery", "source": source}}),
            "query__source__funnelCorrelationPersonEntity",
        ),
    ] {
        let answer = server.post(QUERY, &json!({"query": query}));
        let told = answer.json();
        assert_eq!((answer.status, &told["attr"]), (400, &json!(attr)), "{query} {told}");
    }
}

#[test]
fn groups_are_counted_with_their_own_properties() {
    let server = TestServer::start();
    let mut sent = Vec::new();
    for number in 0..12 {
        let group = format!("g{number}");
        let event = |name: &str, hour: i64| {
            let at =
                chrono::DateTime::from_timestamp(FIRST_DAY * DAY + hour * HOUR, 0).expect("a time");
            json!({"event": name, "distinct_id": format!("d{hour}"), "timestamp": at.to_rfc3339(),
                   "properties": {"$groups": {"company": group}}})
        };
        let size = if number % 3 == 0 { "large" } else { "small" };
        sent.push(json!({
            "event": "$groupidentify", "distinct_id": "d", "timestamp": "2026-02-21T00:00:00Z",
            "properties": {"$group_type": "company", "$group_key": group, "$group_set": {"size": size}},
        }));
        sent.extend([event("view", 1), event("help", 2)]);
        if number % 2 == 0 {
            sent.push(event("buy", 3));
        }
    }
    assert_eq!(server.capture(&json!(sent)).status, 200);
    let answer = server.post(LEGACY, &older(&json!({
        "aggregation_group_type_index": 0, "funnel_correlation_type": "properties", "funnel_correlation_names": ["size"],
    })));
    let expected = vec![
        // Of 6 and 6 groups 2 and 2 are large, 4 and 4 small.
        ("size::large".to_owned(), 2, 2, 1.0),
        ("size::small".to_owned(), 4, 4, 1.0),
    ];
    assert_eq!(shape(&answer.json()["result"]), (expected, false), "{answer}");
    let events = server.post(LEGACY, &older(&json!({"aggregation_group_type_index": 0})));
    assert_eq!(shape(&events.json()["result"]), (vec![("help".to_owned(), 6, 6, 1.0)], false));
}
