//! Examples that PostHog publishes with their answers, in the tests of its insights (`posthog/hogql_queries/insights/`, in the
//! repository PostHog/posthog): histories and numbers are facts of theirs, each case names its own.

use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world::in_each_state;

const QUERY: &str = "/api/projects/@current/query/";

fn event(id: &str, name: &str, at: &str, properties: Value) -> Value {
    json!({"event": name, "distinct_id": id, "timestamp": at, "properties": properties})
}

fn start(events: &[Value]) -> TestServer {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

fn results(server: &TestServer, node: &Value) -> Value {
    let answer = server.post(QUERY, &json!({"query": node, "refresh": "force_blocking"}));
    assert_eq!(answer.status, 200, "{node}: {answer}");
    answer.json()["results"].clone()
}

fn dates(from: &str, to: &str) -> Value {
    json!({"date_from": from, "date_to": to})
}

/// `test/test_lifecycle_query_runner.py`: `test_lifecycle_trend_weeks`, `test_lifecycle_trend_months`.
#[test]
fn lifecycles_have_their_published_numbers() {
    let of_weeks = [
        (
            "p1",
            vec![
                "2020-02-01",
                "2020-02-05",
                "2020-02-10",
                "2020-02-15",
                "2020-02-27",
                "2020-03-02",
            ],
        ),
        ("p2", vec!["2020-02-11", "2020-02-18"]),
        ("p3", vec!["2020-02-12"]),
        ("p4", vec!["2020-02-27"]),
    ];
    let of_months = [
        (
            "p1",
            vec![
                "2020-01-11",
                "2020-02-12",
                "2020-03-13",
                "2020-05-15",
                "2020-07-17",
                "2020-09-19",
            ],
        ),
        ("p2", vec!["2019-12-09", "2020-02-12"]),
        ("p3", vec!["2020-02-12"]),
        ("p4", vec!["2020-05-15"]),
    ];
    // New, returning, resurrecting, dormant.
    for (histories, interval, (from, to), expected) in [
        (
            of_weeks,
            "week",
            ("2020-02-05T00:00:00Z", "2020-03-09T00:00:00Z"),
            json!([
                [0, 2, 0, 1, 0, 0],
                [1, 1, 1, 0, 1, 0],
                [0, 0, 0, 1, 0, 0],
                [0, 0, -2, -1, -1, -1]
            ]),
        ),
        (
            of_months,
            "month",
            ("2020-02-01T00:00:00Z", "2020-09-01T00:00:00Z"),
            json!([
                [1, 0, 0, 1, 0, 0, 0, 0],
                [1, 1, 0, 0, 0, 0, 0, 0],
                [1, 0, 0, 1, 0, 1, 0, 1],
                [0, -2, -1, 0, -2, 0, -1, 0]
            ]),
        ),
    ] {
        let events: Vec<Value> = histories
            .iter()
            .flat_map(|(id, days)| {
                days.iter()
                    .map(|day| event(id, "$pageview", &format!("{day}T12:00:00Z"), json!({})))
            })
            .collect();
        let mut server = start(&events);
        // Weeks of this example begin on Mondays.
        let monday = json!({"week_start_day": 1});
        assert_eq!(server.patch("/api/projects/@current/", &monday).status, 200);
        let node = json!({"kind": "LifecycleQuery", "interval": interval, "series": [{"event": "$pageview"}], "dateRange": dates(from, to)});
        in_each_state(&mut server, |server, round| {
            let found = results(server, &node);
            let data: Vec<&Value> =
                found.as_array().unwrap().iter().map(|own| &own["data"]).collect();
            assert_eq!(json!(data), expected, "{interval}, {round}");
        });
    }
}

/// `stickiness/test/test_stickiness_query_runner.py`: `test_interval_day`, `test_interval_week`, `test_interval_month`,
/// `test_property_filtering_hogql`, `test_any_event`, `test_compare_to`, `test_labels`.
#[test]
fn stickiness_has_its_published_numbers() {
    let mut events = Vec::new();
    for (id, browser, days) in [
        ("p1", "Chrome", (11..=19).collect::<Vec<_>>()),
        ("p2", "Firefox", vec![11, 13, 15, 17, 19]),
    ] {
        for (day, name) in days.iter().flat_map(|day| [(day, "$pageview"), (day, "$pageleave")]) {
            let properties = json!({"$browser": browser, "prop": 10});
            events.push(event(id, name, &format!("2020-01-{day}T12:00:00Z"), properties));
        }
    }
    let mut server = start(&events);
    let of = |more: Value| {
        let mut node = json!({"kind": "StickinessQuery", "series": [{"event": "$pageview"}], "dateRange": dates("2020-01-11", "2020-01-20")});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    in_each_state(&mut server, |server, round| {
        for (more, expected) in [
            (json!({}), json!([0, 0, 0, 0, 1, 0, 0, 0, 1, 0])),
            (json!({"interval": "week"}), json!([0, 0, 2])),
            (json!({"interval": "month"}), json!([2])),
            (
                json!({"properties": [{"key": "properties.$browser == 'Chrome'", "type": "hogql"}]}),
                json!([0, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
            ),
            (json!({"series": [{"event": null}]}), json!([0, 0, 0, 0, 1, 0, 0, 0, 1, 0])),
        ] {
            assert_eq!(results(server, &of(more.clone()))[0]["data"], expected, "{round}: {more}");
        }
        let compared = json!({"dateRange": dates("2020-01-12", "2020-01-20"), "compareFilter": {"compare": true, "compare_to": "-1d"}});
        let compared = results(server, &of(compared));
        assert_eq!(compared[0]["data"], json!([0, 0, 0, 1, 0, 0, 0, 1, 0]), "{round}");
        assert_eq!(compared[1]["data"], json!([0, 0, 0, 0, 1, 0, 0, 0, 1]), "{round}");
        let plain = results(server, &of(json!({})));
        assert_eq!(
            (&plain[0]["label"], &plain[0]["labels"][9], &plain[0]["count"]),
            (&json!("$pageview"), &json!("10 days"), &json!(2))
        );
    });
}

/// `test/test_paths_query_runner.py`: `test_current_url_paths_and_logic`, `test_custom_event_paths`,
/// `test_custom_hogql_paths`, which tell the first four edges.
#[test]
fn paths_have_their_published_edges() {
    let page = |id: &str, url: &str, at: &str| {
        event(id, "$pageview", &format!("2012-01-14T{at}Z"), json!({"$current_url": url}))
    };
    let pages = [
        event("fake", "$pageview", "2012-01-01T03:21:34Z", json!({"$current_url": "/"})),
        event("fake", "$pageview", "2012-01-01T03:21:34Z", json!({"$current_url": "/about"})),
        page("person_1", "/", "03:21:34"),
        page("person_1", "/about", "03:28:34"),
        page("person_2", "/", "03:21:34"),
        page("person_2", "/pricing", "03:28:34"),
        page("person_2", "/about", "03:29:34"),
        page("person_3", "/pricing", "03:21:34"),
        page("person_3", "/", "03:28:34"),
        page("person_4", "/", "03:21:34"),
        page("person_4", "/pricing", "03:28:34"),
    ];
    let custom = [
        ("person_1", vec!["custom_event_1", "custom_event_3"]),
        ("person_2", vec!["custom_event_1", "custom_event_2", "custom_event_3"]),
        ("person_3", vec!["custom_event_2", "custom_event_1"]),
        ("person_4", vec!["custom_event_1", "custom_event_2"]),
    ];
    let custom: Vec<Value> = custom
        .iter()
        .flat_map(|(id, names)| {
            let at = |place: usize| format!("2012-01-14T04:0{place}:00Z");
            names
                .iter()
                .enumerate()
                .map(move |(place, name)| event(id, name, &at(place), json!({"a": "!"})))
        })
        .chain([page("person_1", "/", "04:05:00")])
        .collect();
    let four = |items: [&str; 3]| {
        let [one, two, three] = items;
        json!([
            [format!("1_{one}"), format!("2_{two}"), 2],
            [format!("1_{one}"), format!("2_{three}"), 1],
            [format!("1_{two}"), format!("2_{one}"), 1],
            [format!("2_{two}"), format!("3_{three}"), 1],
        ])
    };
    for (events, filter, expected) in [
        (pages.to_vec(), json!({}), four(["/", "/pricing", "/about"])),
        (
            custom.clone(),
            json!({"includeEventTypes": ["custom_event"]}),
            four(["custom_event_1", "custom_event_2", "custom_event_3"]),
        ),
        (
            custom,
            json!({"includeEventTypes": ["hogql"], "pathsHogQLExpression": "event || properties.a"}),
            four(["custom_event_1!", "custom_event_2!", "custom_event_3!"]),
        ),
    ] {
        let mut server = start(&events);
        let node = json!({"kind": "PathsQuery", "dateRange": dates("2012-01-08", "2012-01-15"), "pathsFilter": filter});
        in_each_state(&mut server, |server, round| {
            let edges = results(server, &node);
            let edges: Vec<Value> = edges
                .as_array()
                .unwrap()
                .iter()
                .take(4)
                .map(|edge| json!([edge["source"], edge["target"], edge["value"]]))
                .collect();
            assert_eq!(json!(edges), expected, "{round}: {filter}");
        });
    }
}

/// `trends/test/test_trends_query_runner.py`: `test_trends_aggregation_dau`, `_wau`, `_mau`, `test_trends_multiple_series`,
/// `test_formula`, `test_formula_with_compare`, `test_formula_with_breakdown`, `test_trends_display_cumulative`,
/// `test_trends_display_aggregate`.
#[test]
fn trends_have_their_published_numbers() {
    let histories = [
        ("p1", "Chrome", vec![11, 12, 13, 15, 17, 19], vec![11, 12, 13]),
        ("p2", "Firefox", vec![9, 12], vec![13]),
        ("p3", "Edge", vec![12], vec![13]),
        ("p4", "Safari", vec![15], vec![16]),
    ];
    let events: Vec<Value> = histories
        .iter()
        .flat_map(|(id, browser, views, leaves)| {
            let views = views.iter().map(|day| ("$pageview", *day));
            let leaves = leaves.iter().map(|day| ("$pageleave", *day));
            views.chain(leaves).map(move |(name, day)| {
                event(
                    id,
                    name,
                    &format!("2020-01-{day:02}T12:00:00Z"),
                    json!({"$browser": browser}),
                )
            })
        })
        .collect();
    let mut server = start(&events);
    let of = |math: &str, more: Value| {
        let mut node = json!({"kind": "TrendsQuery", "series": [{"event": "$pageview", "math": math}], "dateRange": dates("2020-01-09", "2020-01-20")});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let both = json!([{"event": "$pageview"}, {"event": "$pageleave"}]);
    let formula = json!({"formula": "A+2*B"});
    in_each_state(&mut server, |server, round| {
        for (node, expected) in [
            (of("total", json!({})), json!([1, 0, 1, 3, 1, 0, 2, 0, 1, 0, 1, 0])),
            (of("dau", json!({})), json!([1, 0, 1, 3, 1, 0, 2, 0, 1, 0, 1, 0])),
            (of("weekly_active", json!({})), json!([1, 1, 2, 3, 3, 3, 4, 4, 4, 4, 2, 2])),
            (of("monthly_active", json!({})), json!([1, 1, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4])),
            (
                of("total", json!({"trendsFilter": {"display": "ActionsLineGraphCumulative"}})),
                json!([1, 1, 2, 5, 6, 6, 8, 8, 9, 9, 10, 10]),
            ),
            (
                of(
                    "total",
                    json!({"series": both, "trendsFilter": formula, "dateRange": dates("2020-01-09", "2020-01-19")}),
                ),
                json!([1, 0, 3, 5, 7, 0, 2, 2, 1, 0, 1]),
            ),
            (
                of(
                    "total",
                    json!({"series": both, "trendsFilter": formula,
                                   "breakdownFilter": {"breakdown": "$browser", "breakdown_type": "event"}}),
                ),
                json!([0, 0, 3, 3, 3, 0, 1, 0, 1, 0, 1, 0]),
            ),
        ] {
            assert_eq!(results(server, &node)[0]["data"], expected, "{round}: {node}");
        }
        let compared = json!({"series": both, "trendsFilter": formula, "dateRange": dates("2020-01-15", "2020-01-19"),
                              "compareFilter": {"compare": true}});
        let compared = results(server, &of("total", compared));
        assert_eq!(
            (&compared[0]["data"], &compared[0]["count"]),
            (&json!([2, 2, 1, 0, 1]), &json!(6)),
            "{round}"
        );
        assert_eq!(
            (&compared[1]["data"], &compared[1]["count"]),
            (&json!([0, 3, 5, 7, 0]), &json!(15)),
            "{round}"
        );
        let whole = results(
            server,
            &of("total", json!({"trendsFilter": {"display": "BoldNumber"}, "interval": "month"})),
        );
        assert_eq!(
            (&whole[0]["aggregated_value"], &whole[0]["data"]),
            (&json!(10), &json!([])),
            "{round}"
        );
    });
}
