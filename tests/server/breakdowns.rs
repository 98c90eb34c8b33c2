//! Breakdowns by addresses beside a plain computation over the sent events: addresses that differ in what ends them
//! alone are one value in trends and in funnels, and the persons behind it are those that were counted.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;

const QUERY: &str = "/api/projects/@current/query/";
const NULL: &str = "$$_posthog_breakdown_null_$$";

const ADDRESSES: [Option<&str>; 9] = [
    None,
    Some(""),
    Some("/"),
    Some("https://a.example"),
    Some("https://a.example/"),
    Some("https://a.example/?#"),
    Some("https://a.example/x?q=1"),
    Some("https://a.example/x?q=1#"),
    Some("/#?/"),
];

/// The address of the event, that of its person, and the number of the person.
type Sent = (Option<&'static str>, &'static str, usize);

fn cut(address: Option<&str>) -> String {
    let Some(address) = address else { return NULL.to_owned() };
    let mut rest = address.to_owned();
    while rest.ends_with(['/', '?', '#']) {
        rest.pop();
    }
    if rest.is_empty() { "/".to_owned() } else { rest }
}

/// A server with 200 events of 12 persons, each of whom has the property `home`.
fn start(rng: &mut StdRng) -> (TestServer, Vec<Sent>) {
    let server = TestServer::start();
    let homes: Vec<&str> = (0..12).map(|at| ADDRESSES[1 + at % 8].unwrap_or_default()).collect();
    let sent: Vec<Sent> = (0..200)
        .map(|_| {
            let person = rng.random_range(0..homes.len());
            (ADDRESSES[rng.random_range(0..ADDRESSES.len())], homes[person], person)
        })
        .collect();
    let event = |((address, home, person), at): (&Sent, i64)| {
        let at = chrono::DateTime::from_timestamp(1_767_600_000 + at * 60, 0).expect("a time");
        let mut properties = json!({"$set": {"home": home}, "plan": format!("p{}", person % 2)});
        if let Some(address) = address {
            properties["$current_url"] = json!(address);
            properties["page"] = json!(address);
        }
        json!({"event": "view", "distinct_id": format!("d{person}"), "timestamp": at.to_rfc3339(),
               "properties": properties})
    };
    let events: Vec<Value> = sent.iter().zip(0..).map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    (server, sent)
}

fn node(kind: &str, breakdown: &Value) -> Value {
    json!({"kind": kind, "series": [{"kind": "EventsNode", "event": "view"}], "breakdownFilter": breakdown,
           "dateRange": {"date_from": "2026-01-04", "date_to": "2026-01-07"}})
}

/// The persons of an actors query, by their numbers.
fn behind(server: &TestServer, source: &Value) -> BTreeSet<usize> {
    let query = json!({"query": {"kind": "ActorsQuery", "source": source, "select": ["actor"]}});
    let answer = server.post(QUERY, &query);
    assert_eq!(answer.status, 200, "{answer}");
    let rows = answer.json()["results"].clone();
    let person = |row: &Value| row[0]["distinct_ids"][0].as_str().expect("an id")[1..].parse();
    rows.as_array().expect("rows").iter().map(person).map(|id| id.expect("a number")).collect()
}

#[test]
fn addresses_that_differ_in_their_ends_are_one_value() {
    let mut rng = StdRng::seed_from_u64(31);
    let (server, sent) = start(&mut rng);
    let own = |key: &str| json!({"breakdown": key, "breakdown_normalize_url": true});
    let of_person =
        json!({"breakdown": "home", "breakdown_type": "person", "breakdown_normalize_url": true});
    let one = |property: &str, kind: &str| {
        json!({"breakdowns": [{"property": "plan"},
                              {"property": property, "type": kind, "normalize_url": true}]})
    };
    type Named = fn(&Sent) -> Value;
    let cases: [(Value, Named); 5] = [
        (own("$current_url"), |(address, ..)| json!(cut(*address))),
        (own("page"), |(address, ..)| json!(cut(*address))),
        (of_person, |(_, home, _)| json!(cut(Some(home)))),
        (one("$current_url", "event"), |(address, _, person)| {
            json!([format!("p{}", person % 2), cut(*address)])
        }),
        (one("home", "person"), |(_, home, person)| {
            json!([format!("p{}", person % 2), cut(Some(home))])
        }),
    ];
    for round in ["in memory", "in files"] {
        for (breakdown, named) in &cases {
            let mut expected: BTreeMap<String, (u64, BTreeSet<usize>)> = BTreeMap::new();
            for event in &sent {
                let (count, persons) = expected.entry(named(event).to_string()).or_default();
                *count += 1;
                persons.insert(event.2);
            }
            let query = node("TrendsQuery", breakdown);
            let answer = server.post(QUERY, &json!({"query": query}));
            assert_eq!(answer.status, 200, "{answer}");
            let answer = answer.json();
            let series = answer["results"].as_array().expect("series");
            assert_eq!(series.len(), expected.len(), "{round} {breakdown} {answer}");
            for series in series {
                let value = &series["breakdown_value"];
                let (count, persons) = &expected[&value.to_string()];
                assert_eq!(series["count"], *count, "{round} {breakdown} {value}");
                let day = &series["days"][1];
                let source = json!({"kind": "InsightActorsQuery", "source": query, "series": 0,
                                    "day": day, "breakdown": value});
                assert_eq!(&behind(&server, &source), persons, "{round} {breakdown} {value}");
            }
        }
        let flushed = server.weir(&["flush"]).output().expect("runs");
        assert!(flushed.status.success(), "{flushed:?}");
    }
}

#[test]
fn funnels_are_split_by_the_same_addresses() {
    let mut rng = StdRng::seed_from_u64(32);
    let (server, sent) = start(&mut rng);
    let breakdown =
        json!({"breakdown": "home", "breakdown_type": "person", "breakdown_normalize_url": true});
    let mut query = node("FunnelsQuery", &breakdown);
    query["series"] = json!([{"event": "view"}, {"event": "view"}]);
    let mut expected: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (_, home, person) in &sent {
        expected.entry(cut(Some(home))).or_default().insert(*person);
    }
    let answer = server.post(QUERY, &json!({"query": query})).json();
    let funnels = answer["results"].as_array().expect("funnels");
    assert_eq!(funnels.len(), expected.len(), "{answer}");
    for steps in funnels {
        let value = &steps[0]["breakdown_value"];
        let persons = &expected[value[0].as_str().expect("a text")];
        assert_eq!(steps[0]["count"], persons.len(), "{answer}");
        let source = json!({"kind": "FunnelsActorsQuery", "source": query, "funnelStep": 1,
                            "funnelStepBreakdown": value});
        assert_eq!(&behind(&server, &source), persons, "{value}");
    }
}

#[test]
fn what_is_no_truth_value_or_not_available_is_told_by_its_field() {
    let server = TestServer::start();
    for (breakdown, attr) in [
        (json!({"breakdown": "a", "breakdown_normalize_url": 1}), "breakdown_normalize_url"),
        (
            json!({"breakdowns": [{"property": "a", "normalize_url": "x"}]}),
            "breakdowns__0__normalize_url",
        ),
        (
            json!({"breakdown": "a", "breakdown_histogram_bin_count": 0}),
            "breakdown_histogram_bin_count",
        ),
        (
            json!({"breakdowns": [{"property": "a", "histogram_bin_count": 1e9}]}),
            "breakdowns__0__histogram_bin_count",
        ),
    ] {
        for kind in ["TrendsQuery", "FunnelsQuery"] {
            let mut query = node(kind, &breakdown);
            query["series"] = json!([{"event": "view"}, {"event": "view"}]);
            let answer = server.post(QUERY, &json!({"query": query}));
            let told = answer.json();
            let expected = (400, &json!(format!("query__breakdownFilter__{attr}")));
            assert_eq!((answer.status, &told["attr"]), expected, "{told}");
        }
    }
}
