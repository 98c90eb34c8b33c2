//! Paths beside a plain computation over the sent events: random histories with merged persons and equal times,
//! random queries, before and after events are in files, and the persons behind steps.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world;
use crate::support::world::{Details, HOUR, QUERY, in_each_state, one_of};

const IDS: usize = 18;

/// 2026-01-05, 17:00 UTC. Berlin's midnight is in the middle of the events.
const START: i64 = 1_767_632_400;

const URLS: [&str; 7] =
    ["https://x/", "https://x/a", "https://x/a/", "https://x/b/1", "https://x/b/2/", "/", ""];

/// What events have besides their name and time.
#[derive(Clone, Debug)]
struct Step {
    /// The address of a page, or the name of a screen.
    place: Option<&'static str>,
    company: Option<usize>,
    is_paying: bool,
    /// Where the place is sent.
    key: &'static str,
}

impl Details for Step {
    fn properties(&self) -> Value {
        let mut properties = json!({"paying": self.is_paying});
        if let Some(place) = self.place {
            properties[self.key] = json!(place);
        }
        if let Some(company) = self.company {
            properties["$groups"] = json!({"company": format!("c{company}")});
        }
        properties
    }
}

type Event = world::Event<Step>;
type World = world::World<Step>;

fn random_event(rng: &mut StdRng) -> Event {
    const NAMES: [&str; 7] =
        ["$pageview", "$pageview", "$screen", "buy", "sign up/", "https://x/a", "$autocapture"];
    let name = one_of(rng, &NAMES);
    let (key, place) = match name {
        "$pageview" => ("$current_url", Some(one_of(rng, &URLS))),
        "$screen" => ("$screen_name", Some(one_of(rng, &["Home", "Shop/", "buy"]))),
        _ => ("", None),
    };
    let details = Step {
        key,
        place: place.filter(|_| rng.random_bool(0.95)),
        company: rng.random_bool(0.6).then(|| rng.random_range(0..4)),
        is_paying: rng.random_bool(0.7),
    };
    // Every ten minutes, sometimes with a fraction.
    let at = START + rng.random_range(0..72) * 600;
    let event = Event::new(at, name, rng.random_range(0..IDS), details);
    Event { millis: one_of(rng, &[0, 0, 0, 333]), ..event }
}

/// The time of an event in milliseconds since 1970.
fn time(event: &Event) -> i64 {
    event.at * 1000 + i64::from(event.millis)
}

/// Its text before anything is made of it.
fn text(event: &Event) -> Option<&'static str> {
    if matches!(event.name, "$pageview" | "$screen") { event.place } else { Some(event.name) }
}

/// A server with random events.
fn start(rng: &mut StdRng) -> (TestServer, World) {
    let events = (0..500).map(|_| random_event(rng)).collect();
    World::start(rng, &json!({"timezone": "Europe/Berlin"}), (events, IDS))
}

/// A random query, and what is needed to compute its answer.
#[derive(Clone, Debug)]
struct Asked {
    kinds: Vec<&'static str>,
    is_first_day: bool,
    is_paying: bool,
    is_clean: bool,
    is_grouped: bool,
    is_by_company: bool,
    excluded: Vec<&'static str>,
    start: Option<&'static str>,
    end: Option<&'static str>,
    steps: Option<usize>,
    edges: Option<usize>,
    least: Option<u64>,
    most: Option<u64>,
    around: Option<Around>,
}

/// A step of a funnel of screens and purchases within hours, and which paths around it are meant.
#[derive(Clone, Copy, Debug)]
struct Around {
    kind: &'static str,
    step: i64,
    hours: i64,
}

impl Around {
    fn random(rng: &mut StdRng) -> Self {
        let (kind, step) = one_of(
            rng,
            &[
                ("before_step", 1),
                ("before_step", 2),
                ("before_step", -2),
                ("between_steps", 2),
                ("after_step", 1),
                ("after_step", 2),
                ("after_step", -2),
            ],
        );
        Self { kind, step, hours: rng.random_range(1..6) }
    }

    /// The first and the last time that are meant, in milliseconds; `None` for those who do not come to the step.
    fn stretch(self, world: &World, is_of_actor: impl Fn(&Event) -> bool) -> Option<(i64, i64)> {
        let window = self.hours * 3_600_000;
        let of = |name: &str| -> Vec<i64> {
            let own = world.events.iter().filter(|event| event.name == name && is_of_actor(event));
            own.map(time).collect()
        };
        let (screens, buys) = (of("$screen"), of("buy"));
        // Who buys earliest after any screen, the last one before it counts.
        let pairs = screens.iter().flat_map(|a| buys.iter().map(move |b| (*a, *b)));
        let whole = pairs.filter(|(a, b)| b >= a && b - a <= window).min_by_key(|(a, b)| (*b, -a));
        let begun = screens.iter().min().copied();
        let (first, last) = match whole {
            Some((first, last)) => (first, Some(last)),
            None => (begun?, None),
        };
        let at = match (self.step, last) {
            (1, _) | (-2, None) => first,
            (2, Some(last)) => last,
            _ => return None,
        };
        Some(match self.kind {
            "before_step" => (i64::MIN, at),
            "between_steps" => (first, at),
            _ => (at + if self.step < 0 { window } else { 0 }, i64::MAX),
        })
    }
}

/// A path: whose it is, and its times and items.
type Path = (String, Vec<(i64, String)>);

impl Asked {
    fn random(rng: &mut StdRng) -> Self {
        let kinds = ["$pageview", "$screen", "custom_event"];
        let point = |rng: &mut StdRng| {
            let points = [
                "https://x/a/",
                "https://x",
                "buy",
                "Shop/",
                "https://x/b/<id>",
                "x/b*",
                "nowhere",
            ];
            rng.random_bool(0.3).then(|| points[rng.random_range(0..points.len())])
        };
        let (start, end) = (point(rng), point(rng));
        let excluded = ["https://x", "Home", "buy"];
        Self {
            kinds: kinds.into_iter().filter(|_| rng.random_bool(0.4)).collect(),
            is_first_day: rng.random_bool(0.3),
            is_paying: rng.random_bool(0.3),
            is_clean: rng.random_bool(0.4),
            is_grouped: rng.random_bool(0.3),
            is_by_company: rng.random_bool(0.2),
            excluded: excluded.into_iter().filter(|_| rng.random_bool(0.2)).collect(),
            start,
            end,
            steps: rng.random_bool(0.6).then(|| rng.random_range(1..9)),
            edges: rng.random_bool(0.5).then(|| rng.random_range(1..30)),
            least: rng.random_bool(0.2).then(|| rng.random_range(0..4)),
            most: rng.random_bool(0.2).then(|| rng.random_range(1..6)),
            around: rng.random_bool(0.4).then(|| Around::random(rng)),
        }
    }

    fn node(&self) -> Value {
        let range = ["2026-01-06", "2026-01-05"][usize::from(self.is_first_day)];
        let properties =
            json!([{"key": "paying", "value": ["true"], "operator": "exact", "type": "event"}]);
        let cleaning = json!([{"regex": r"(b)/\d", "alias": r"\1/<id>"}]);
        json!({
            "kind": "PathsQuery",
            "dateRange": {"date_from": "2026-01-05", "date_to": range},
            "properties": if self.is_paying { properties } else { json!([]) },
            "aggregation_group_type_index": self.is_by_company.then_some(0),
            "funnelPathsFilter": self.around.map(|around| self.funnel(around)),
            "pathsFilter": {
                "includeEventTypes": self.kinds, "startPoint": self.start, "endPoint": self.end,
                "excludeEvents": self.excluded, "stepLimit": self.steps, "edgeLimit": self.edges,
                "minEdgeWeight": self.least, "maxEdgeWeight": self.most,
                "pathGroupings": if self.is_grouped { json!(["x/b*", "u*y"]) } else { json!([]) },
                "localPathCleaningFilters": if self.is_clean { cleaning } else { json!([]) },
            },
        })
    }

    fn funnel(&self, around: Around) -> Value {
        json!({
            "funnelPathType": format!("funnel_path_{}", around.kind), "funnelStep": around.step,
            "funnelSource": {
                "kind": "FunnelsQuery", "series": [{"event": "$screen"}, {"event": "buy"}],
                "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"},
                "aggregation_group_type_index": self.is_by_company.then_some(0),
                "funnelsFilter": {"funnelWindowInterval": around.hours, "funnelWindowIntervalUnit": "hour"},
            },
        })
    }

    /// Whose an event is.
    fn actor(&self, world: &World, event: &Event) -> Option<String> {
        match self.is_by_company {
            true => event.company.map(|company| format!("c{company}")),
            false => Some(format!("{}", world.persons[event.id])),
        }
    }

    fn is_step(&self, event: &Event) -> bool {
        // Berlin is an hour ahead of UTC.
        let is_first_day = event.at < START + 6 * HOUR;
        let kind = match event.name {
            name if !name.starts_with('$') => "custom_event",
            name => name,
        };
        (is_first_day || !self.is_first_day)
            && (event.is_paying || !self.is_paying)
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
    }

    fn item(&self, event: &Event) -> Option<String> {
        let mut item = text(event).unwrap_or_default().to_owned();
        if event.name == "$pageview" && item.len() > 1 && item.ends_with('/') {
            item.pop();
        }
        if self.is_clean {
            item = item.replace("b/1", "b/<id>").replace("b/2", "b/<id>");
        }
        if self.is_grouped {
            if item.contains("x/b") {
                item = "x/b*".to_owned();
            } else if item.find('u').is_some_and(|u| item[u..].contains('y')) {
                item = "u*y".to_owned();
            }
        }
        (!self.excluded.contains(&item.as_str())).then_some(item)
    }

    fn paths(&self, world: &World) -> Vec<Path> {
        let mut histories: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
        for event in world.events.iter().filter(|event| self.is_step(event)) {
            if let Some(actor) = self.actor(world, event) {
                histories.entry(actor).or_default().push(event);
            }
        }
        let mut paths = Vec::new();
        let gap = self.around.map_or(1_800_000, |around| around.hours * 3_600_000);
        for (actor, mut events) in histories {
            if let Some(around) = self.around {
                let is_own = |event: &Event| self.actor(world, event).as_deref() == Some(&*actor);
                let Some((first, last)) = around.stretch(world, is_own) else { continue };
                events.retain(|event| (first..=last).contains(&time(event)));
            }
            events.sort_by_key(|event| (time(event), event.name == "$pageview", text(event)));
            let steps = events.iter().filter_map(|event| Some((time(event), self.item(event)?)));
            let mut sessions: Vec<Vec<(i64, String)>> = Vec::new();
            let mut last = i64::MIN / 2;
            for (at, item) in steps {
                if at - last >= gap {
                    sessions.push(Vec::new());
                }
                last = at;
                sessions.last_mut().expect("a session").push((at, item));
            }
            paths.extend(sessions.into_iter().filter_map(|s| Some((actor.clone(), self.cut(s)?))));
        }
        paths
    }

    fn cut(&self, session: Vec<(i64, String)>) -> Option<Vec<(i64, String)>> {
        let mut steps: Vec<(i64, String)> = Vec::new();
        for step in session {
            if steps.last().is_some_and(|last| last.1 == step.1) {
                steps.pop();
            }
            steps.push(step);
        }
        let bare = |point: &str| point.strip_suffix('/').unwrap_or(point).to_owned();
        if let Some(start) = self.start.map(bare) {
            let at = (0..steps.len()).find(|at| steps[*at].1 == start)?;
            steps = steps.split_off(at);
        }
        if let Some(end) = self.end.map(bare) {
            let at = (0..steps.len()).find(|at| steps[*at].1 == end)?;
            steps.split_off(at + 1).clear();
        }
        let (count, most) = (steps.len(), self.steps.unwrap_or(5));
        Some(match (self.start, self.end) {
            _ if count <= most => steps,
            (Some(_), Some(_)) => {
                let half = most / 2;
                let middle = (steps[half].0, "...".to_owned());
                [&steps[..half], &[middle], &steps[count - half..]].concat()
            }
            (None, Some(_)) => steps[count - most..].to_vec(),
            _ => steps[..most].to_vec(),
        })
    }

    /// The edges, how often and how long: as they are shown.
    fn expected(&self, world: &World) -> Vec<(String, String, u64, f64)> {
        let mut edges: BTreeMap<(String, String), Vec<i64>> = BTreeMap::new();
        for (_, path) in self.paths(world) {
            for at in 1..path.len() {
                let nodes = (node(at, &path[at - 1].1), node(at + 1, &path[at].1));
                edges.entry(nodes).or_default().push(path[at].0 - path[at - 1].0);
            }
        }
        let mut shown: Vec<(String, String, u64, f64)> = edges
            .into_iter()
            .map(|((source, target), times)| {
                let mean = times.iter().sum::<i64>() as f64 / times.len() as f64;
                (source, target, times.len() as u64, mean)
            })
            .filter(|edge| self.least.is_none_or(|least| edge.2 >= least))
            .filter(|edge| self.most.is_none_or(|most| edge.2 <= most))
            .collect();
        shown.sort_by_key(|edge| std::cmp::Reverse(edge.2));
        shown.truncate(self.edges.unwrap_or(50));
        let mut reached: BTreeSet<String> = BTreeSet::new();
        for _ in 0..10 {
            let is_in = |edge: &&(String, String, u64, f64)| {
                edge.0.starts_with("1_") || reached.contains(&edge.0)
            };
            reached = shown.iter().filter(is_in).map(|edge| edge.1.clone()).collect();
        }
        shown.retain(|edge| edge.0.starts_with("1_") || reached.contains(&edge.0));
        shown
    }
}

fn node(place: usize, item: &str) -> String {
    format!("{place}_{item}")
}

fn answered(server: &TestServer, asked: &Asked) -> Vec<(String, String, u64, f64)> {
    let answer = server.post(QUERY, &json!({"query": asked.node()}));
    assert_eq!(answer.status, 200, "{answer} {asked:?}");
    edges(&answer.json()["results"])
}

fn edges(results: &Value) -> Vec<(String, String, u64, f64)> {
    let edges = results.as_array().expect("edges").iter().map(|edge| {
        let text = |name: &str| edge[name].as_str().expect("a text").to_owned();
        let time = edge["average_conversion_time"].as_f64().expect("a number");
        (text("source"), text("target"), edge["value"].as_u64().expect("a number"), time)
    });
    edges.collect()
}

#[test]
fn paths_equal_a_plain_computation() {
    let mut rng = StdRng::seed_from_u64(51);
    let (mut server, world) = start(&mut rng);
    let asked: Vec<Asked> = (0..200).map(|_| Asked::random(&mut rng)).collect();
    let mut count = 0;
    in_each_state(&mut server, |server, round| {
        for asked in &asked {
            let (found, expected) = (answered(server, asked), asked.expected(&world));
            let is_equal = found.len() == expected.len()
                && found.iter().zip(&expected).all(|(a, b)| {
                    (&a.0, &a.1, a.2) == (&b.0, &b.1, b.2)
                        && (a.3 - b.3).abs() <= 1e-6 * b.3.max(1.0)
                });
            assert!(is_equal, "{round} {asked:?}\n{found:?}\n{expected:?}");
            count += found.len();
        }
    });
    assert!(count > 2000, "{count}");
}

#[test]
fn the_persons_behind_steps_are_those_who_took_them() {
    let mut rng = StdRng::seed_from_u64(52);
    let (server, world) = start(&mut rng);
    let mut steps = 0;
    for round in 0..120 {
        let mut asked = Asked::random(&mut rng);
        asked.is_by_company = false;
        let paths = asked.paths(&world);
        let Some((_, own)) = paths.get(rng.random_range(0..paths.len().max(1))) else { continue };
        let at = rng.random_range(0..own.len());
        let key = |at: usize| own.get(at).map(|step| node(at + 1, &step.1));
        let last = node(own.len(), &own[own.len() - 1].1);
        let (from, to, dropoff) = match round % 4 {
            0 => (key(at), key(at + 1), None),
            1 => (key(at), None, None),
            2 => (None, key(at), None),
            _ => (None, None, Some(last)),
        };
        let mut query = asked.node();
        query["pathsFilter"]["pathStartKey"] = json!(from);
        query["pathsFilter"]["pathEndKey"] = json!(to);
        query["pathsFilter"]["pathDropoffKey"] = json!(dropoff);
        let source = json!({"kind": "InsightActorsQuery", "source": query});
        let query = json!({"kind": "ActorsQuery", "source": source, "select": ["actor", "event_count"], "limit": 500});
        let behind = server.post(QUERY, &json!({"query": query}));
        assert_eq!(behind.status, 200, "{behind}");
        let mut found = BTreeMap::new();
        for row in behind.json()["results"].as_array().expect("rows") {
            let person = world.person_of(&row[0]).to_string();
            assert!(found.insert(person, row[1].as_f64().expect("a number")).is_none());
        }
        let mut expected: BTreeMap<String, f64> = BTreeMap::new();
        for (person, path) in &paths {
            let nodes: Vec<String> =
                path.iter().zip(1..).map(|(step, place)| node(place, &step.1)).collect();
            let times = match (&from, &to, &dropoff) {
                (_, _, Some(last)) => usize::from(nodes.last() == Some(last)),
                (Some(from), Some(to), _) => {
                    nodes.windows(2).filter(|two| two == &[from.clone(), to.clone()]).count()
                }
                (Some(from), None, _) => nodes.windows(2).filter(|two| &two[0] == from).count(),
                (None, Some(to), _) => nodes.iter().filter(|node| *node == to).count(),
                (None, None, None) => nodes.len() - 1,
            };
            if times > 0 {
                *expected.entry(person.clone()).or_default() += times as f64;
            }
        }
        assert_eq!(found, expected, "{asked:?} {from:?} {to:?} {dropoff:?}");
        steps += expected.len();
    }
    assert!(steps > 200, "{steps}");
}

#[test]
fn older_clients_get_edges_and_persons() {
    let mut rng = StdRng::seed_from_u64(53);
    let (server, world) = start(&mut rng);
    let filter = json!({
        "insight": "PATHS", "path_type": "$pageview", "date_from": "2026-01-05", "date_to": "2026-01-06",
        "path_groupings": ["x/b*"], "exclude_events": ["/"], "step_limit": 3, "edge_limit": 7,
    });
    let asked = Asked {
        kinds: vec!["$pageview"],
        is_first_day: false,
        is_paying: false,
        is_clean: false,
        is_grouped: true,
        is_by_company: false,
        excluded: vec!["/"],
        start: None,
        end: None,
        steps: Some(3),
        edges: Some(7),
        least: None,
        most: None,
        around: None,
    };
    let sent = server.post("/api/projects/@current/insights/path/", &filter);
    assert_eq!(sent.status, 200, "{sent}");
    let plain = asked.expected(&world);
    let found = edges(&sent.json()["result"]);
    let nodes = |edges: &[(String, String, u64, f64)]| {
        edges.iter().map(|edge| (edge.0.clone(), edge.1.clone(), edge.2)).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&found), nodes(&plain));
    let query = "path_type=$pageview&date_from=2026-01-05&date_to=2026-01-06&path_groupings=[\"x/b*\"]\
                 &exclude_events=[\"/\"]&step_limit=3";
    let query = query.replace('"', "%22").replace('[', "%5B").replace(']', "%5D");
    let got = server.get(&format!("/api/projects/@current/insights/path/?{query}&edge_limit=7"));
    assert_eq!(got.json()["result"], sent.json()["result"], "{got}");

    let (source, target, value, _) = &plain[0];
    let key = |key: &str| key.replace('/', "%2F").replace(':', "%3A").replace('*', "%2A");
    let keys = format!("path_start_key={}&path_end_key={}", key(source), key(target));
    let (mut next, mut people) = (format!("/api/person/path/?{query}&{keys}&limit=2"), Vec::new());
    while !next.is_empty() {
        let page = server.get(&next);
        assert_eq!(page.status, 200, "{page}");
        let page = page.json();
        let own = page["results"][0]["people"].as_array().expect("people");
        assert!(own.len() <= 2 && page["results"][0]["count"] == own.len(), "{page}");
        people.extend(own.clone());
        next = page["next"].as_str().map(|url| url.replace(&server.url(), "")).unwrap_or_default();
    }
    let times =
        people.iter().map(|person| person["value_at_data_point"].as_f64().expect("a number"));
    assert_eq!(times.sum::<f64>(), *value as f64);
    let unique: BTreeSet<String> = people.iter().map(|person| person["uuid"].to_string()).collect();
    assert_eq!(unique.len(), people.len());
    let mut body = filter.clone();
    body["path_start_key"] = json!(source);
    body["path_end_key"] = json!(target);
    let sent = server.post("/api/projects/@current/persons/path/", &body).json();
    assert_eq!(sent["results"][0]["people"], json!(people));
    let csv = server.get(&format!("/api/projects/@current/persons/path.csv?{query}&{keys}"));
    let csv = (csv.status, String::from_utf8_lossy(&csv.body).into_owned());
    assert!(
        csv.0 == 200 && csv.1.lines().count() == people.len() + 1,
        "a person per line: {csv:?}"
    );
    let wrong = server.get(&format!("/api/projects/@current/persons/path/?{query}&{keys}&limit=x"));
    assert_eq!((wrong.status, &wrong.json()["attr"]), (400, &json!("limit")), "{wrong}");
    let id = people[0]["distinct_ids"][0].as_str().expect("an id").to_uppercase();
    let found =
        server.get(&format!("/api/projects/@current/persons/path/?{query}&search={id}")).json();
    let found = found["results"][0]["people"].as_array().expect("people").clone();
    assert!(found.iter().any(|person| person["uuid"] == people[0]["uuid"]), "{found:?}");
    assert!(found.len() < IDS / 2, "{found:?}");
}

/// Steps are called what an expression of HogQL is, of the event and of its person.
#[test]
fn an_expression_names_steps() {
    let server = TestServer::start();
    let event = |name: &str, minute: u8, properties: Value| {
        json!({"event": name, "distinct_id": "d", "timestamp": format!("2026-01-05T12:0{minute}:00Z"),
               "properties": properties})
    };
    let sent = json!([
        event(
            "buy",
            0,
            json!({"plan": "pro", "$set": {"tier": "gold"}, "$groups": {"company": "acme"}})
        ),
        event("$pageview", 1, json!({"$current_url": "https://x/"})),
        event("buy", 2, json!({"plan": "free", "$groups": {"company": "acme"}})),
        event("leave", 3, json!({"$groups": {"company": "acme"}})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let ask = |filter: Value, more: Value| {
        let mut node = json!({"kind": "PathsQuery", "pathsFilter": filter,
                              "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"}});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.post(QUERY, &json!({"query": node}));
        assert_eq!(answer.status, 200, "{answer}");
        let mut steps: Vec<String> = Vec::new();
        for (source, target, ..) in edges(&answer.json()["results"]) {
            steps.extend([source, target]);
        }
        steps.sort();
        steps.dedup();
        steps
    };
    let named = json!({"pathsHogQLExpression": "event || ':' || properties.plan"});
    assert_eq!(ask(named.clone(), json!({})), ["1_buy:pro", "2_https://x", "3_buy:free", "4_"]);
    let alone = json!({"includeEventTypes": ["hogql"], "pathsHogQLExpression": "concat(event, person.properties.tier)"});
    assert_eq!(ask(alone, json!({})), ["1_buygold", "2_$pageviewgold", "3_buygold", "4_leavegold"]);
    let custom = json!({"includeEventTypes": ["hogql", "custom_event"],
                        "pathsHogQLExpression": "multiIf(properties.plan = 'pro', 'paid', event = 'buy', 'free', 'none')"});
    assert_eq!(ask(custom.clone(), json!({})), ["1_paid", "2_free", "3_none"]);
    assert_eq!(
        ask(custom, json!({"aggregation_group_type_index": 0})),
        ["1_paid", "2_free", "3_none"]
    );
    let unused = json!({"includeEventTypes": ["custom_event"], "pathsHogQLExpression": "1"});
    assert_eq!(ask(unused, json!({})), ["1_buy", "2_leave"]);
    let around = json!({"funnelPathsFilter": {"funnelPathType": "funnel_path_before_step", "funnelStep": 2,
        "funnelSource": {"series": [{"event": "buy"}, {"event": "$pageview"}],
                         "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"}}}});
    assert_eq!(ask(named, around), ["1_buy:pro", "2_https://x"]);

    // The persons behind a step are found by its name, and older clients say the same.
    let older = "path_type=hogql&paths_hogql_expression=upper(event)&date_from=2026-01-05&date_to=2026-01-06";
    let answer = server.get(&format!("/api/projects/@current/insights/path/?{older}")).json();
    assert_eq!(answer["result"][0]["source"], "1_BUY", "{answer}");
    let people = server
        .get(&format!("/api/projects/@current/persons/path/?{older}&path_start_key=1_BUY"))
        .json();
    assert_eq!(people["results"][0]["count"], 1, "{people}");

    // What is wrong with it is told.
    for wrong in ["nothing_such", "count(*)", "no_such_function(event)"] {
        let node = json!({"kind": "PathsQuery", "pathsFilter": {"pathsHogQLExpression": wrong}});
        let refused = server.post(QUERY, &json!({"query": node}));
        assert_eq!(refused.status, 400, "{wrong}: {refused}");
    }
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let path = format!("/api/projects/{}/query/", other["id"]);
    let node = json!({"kind": "PathsQuery", "pathsFilter": {"pathsHogQLExpression": "event"},
                      "dateRange": {"date_from": "2026-01-05"}});
    assert_eq!(server.post(&path, &json!({"query": node})).json()["results"], json!([]));
}

#[test]
fn what_is_wrong_or_not_available_is_told_by_its_field() {
    let server = TestServer::start();
    let with = |filter: Value| json!({"kind": "PathsQuery", "pathsFilter": filter});
    let actors = |source: Value| json!({"kind": "InsightActorsQuery", "source": source});
    let two = json!([{"event": "a"}, {"event": "b"}]);
    let around = |step: i64| {
        json!({"kind": "PathsQuery", "funnelPathsFilter": {
        "funnelPathType": "funnel_path_between_steps", "funnelStep": step, "funnelSource": {"series": two}}})
    };
    for (node, attr) in [
        (
            json!({"kind": "PathsQuery", "funnelPathsFilter": {"funnelStep": 1}}),
            "query__funnelPathsFilter__funnelSource",
        ),
        (around(1), "query__funnelPathsFilter__funnelStep"),
        (around(3), "query__funnelPathsFilter__funnelStep"),
        (
            with(json!({"pathsHogQLExpression": "event, event"})),
            "query__pathsFilter__pathsHogQLExpression",
        ),
        (
            with(json!({"pathsHogQLExpression": "(SELECT max(email) FROM persons)"})),
            "query__pathsFilter__pathsHogQLExpression",
        ),
        (with(json!({"stepLimit": 101})), "query__pathsFilter__stepLimit"),
        (with(json!({"edgeLimit": 0})), "query__pathsFilter__edgeLimit"),
        (with(json!({"pathGroupings": "x"})), "query__pathsFilter__pathGroupings"),
        (
            with(json!({"localPathCleaningFilters": [{"regex": "(", "alias": ""}]})),
            "query__pathsFilter__localPathCleaningFilters__0__regex",
        ),
        (actors(with(json!({"pathStartKey": "x"}))), "query__pathsFilter__pathStartKey"),
    ] {
        let answer = server.post(QUERY, &json!({"query": node}));
        let told = answer.json();
        let expected = (400, &json!("validation_error"), &json!(attr));
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{told}");
    }
    for (filter, attr) in [
        ("insight=TRENDS", "insight"),
        ("funnel_paths=funnel_path_after_step", "funnel_filter"),
        ("step_limit=0", "pathsFilter__stepLimit"),
        ("path_type=sql", "pathsFilter__includeEventTypes"),
        ("paths_hogql_expression=(", "pathsFilter__pathsHogQLExpression"),
    ] {
        for path in ["insights/path/", "persons/path/"] {
            let answer = server.get(&format!("/api/projects/@current/{path}?{filter}"));
            assert_eq!((answer.status, &answer.json()["attr"]), (400, &json!(attr)), "{answer}");
        }
    }
    // The filters of older clients say the same of a funnel.
    let sent = [("a", 0), ("step", 1), ("b", 2), ("later", 3)].map(|(name, minute)| {
        json!({"event": name, "distinct_id": "d", "timestamp": format!("2026-01-05T12:0{minute}:00Z")})
    });
    assert_eq!(server.capture(&json!(sent)).status, 200);
    let funnel = json!({"insight": "FUNNELS", "date_from": "2026-01-05", "date_to": "2026-01-06", "funnel_step": 2,
                        "events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}]});
    let filter = json!({"insight": "PATHS", "date_from": "2026-01-05", "date_to": "2026-01-06",
                        "funnel_paths": "funnel_path_between_steps", "funnel_filter": funnel});
    let found = server.post("/api/projects/@current/insights/path/", &filter).json();
    let found = edges(&found["result"]);
    let found: Vec<(&str, &str)> = found.iter().map(|own| (&*own.0, &*own.1)).collect();
    assert_eq!(found, [("1_a", "2_step"), ("2_step", "3_b")]);

    let server = TestServer::start();
    let none = server.post(QUERY, &json!({"query": with(json!({}))}));
    assert_eq!((none.status, &none.json()["results"]), (200, &json!([])), "{none}");
}
