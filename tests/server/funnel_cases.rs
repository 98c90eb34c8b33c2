//! Funnels over histories that PostHog publishes with their answers (`posthog/hogql_queries/insights/funnels/test/`, in the
//! repository PostHog/posthog), or whose answers are computed by hand from the rules of its engine (`funnel-udf/src/`).

use serde_json::{Value, json};

use crate::harness::TestServer;

const QUERY: &str = "/api/projects/@current/query/";

/// `p A 3T12:00` is an event A of p on the third of November 2026; `p A 3T12:00 Chrome` one with a `$browser`.
fn start(history: &str) -> TestServer {
    let server = TestServer::start();
    let event = |line: &str| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_default();
        let (id, name, at, browser) = (word(), word(), word(), word());
        let (day, time) = at.split_once('T').expect("a time");
        let properties = if browser.is_empty() { json!({}) } else { json!({"$browser": browser}) };
        json!({"event": name, "distinct_id": id, "properties": properties,
               "timestamp": format!("2026-11-{day:0>2}T{time}:00Z")})
    };
    let events: Vec<Value> =
        history.split(',').filter(|line| !line.trim().is_empty()).map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

/// A funnel of steps that are called by letters; `X01` is an exclusion from step 0 to 1.
fn funnel(steps: &str, exclusion: Option<(&str, usize, usize)>, options: Value) -> Value {
    let series: Vec<Value> = steps
        .chars()
        .map(|name| json!({"kind": "EventsNode", "event": name.to_string()}))
        .collect();
    let mut filter = options;
    if let Some((names, from, to)) = exclusion {
        let one = |name: char| json!({"kind": "EventsNode", "event": name.to_string(), "funnelFromStep": from, "funnelToStep": to});
        filter["exclusions"] = names.chars().map(one).collect();
    }
    json!({"kind": "FunnelsQuery", "series": series, "funnelsFilter": filter,
           "dateRange": {"date_from": "2026-11-01", "date_to": "2026-11-30"}})
}

fn results(server: &TestServer, node: &Value) -> Value {
    let answer = server.post(QUERY, &json!({"query": node}));
    assert_eq!(answer.status, 200, "{node}: {answer}");
    answer.json()["results"].clone()
}

fn counts(steps: &Value) -> Vec<u64> {
    steps.as_array().expect("steps").iter().map(|step| step["count"].as_u64().unwrap()).collect()
}

/// How many persons are behind a step or an interval.
fn behind(server: &TestServer, source: &Value) -> usize {
    let query = json!({"kind": "ActorsQuery", "source": source, "select": ["actor"]});
    results(server, &query).as_array().expect("rows").len()
}

#[test]
fn exclusions_count_as_the_order_of_steps_says() {
    let x = Some(("X", 0, 1));
    // `test_advanced_funnel_multiple_exclusions_between_steps` of unordered funnels.
    let five = "1 A 1T01:00, 1 X 1T02:00, 1 B 1T03:00, 1 C 1T04:00, 1 Y 1T04:30, 1 D 1T05:00, 1 E 1T06:00, \
                2 A 1T01:00, 2 Y 1T01:30, 2 B 1T02:00, 2 C 1T04:00, 2 Y 1T04:30, 2 D 1T05:00, 2 X 1T05:30, 2 E 1T06:00, \
                3 A 1T01:00, 3 X 1T01:30, 3 B 1T02:00, 3 C 1T04:00, 3 D 1T05:00, 3 X 1T05:30, 3 E 1T06:00, \
                4 A 1T01:00, 4 B 1T02:00, 4 C 1T04:00, 4 D 1T05:00, 4 E 1T06:00, \
                5 A 1T01:00, 5 X 1T01:30, 5 B 1T02:00, 5 X 1T02:30, 5 C 1T04:00, 5 Y 1T04:30, 5 D 1T05:00, 5 X 1T05:30, 5 E 1T06:00";
    // `test_unordered_trend_with_partial_steps_and_exclusion`.
    let three =
        "1 A 1T10:00, 1 B 1T11:00, 1 X 1T12:00, 1 C 1T13:00, 2 A 1T10:00, 2 B 1T11:00, 2 C 1T12:00";
    for (history, steps, exclusion, order, expected) in [
        // `test_funnel_exclusions_full_window` of unordered funnels.
        (
            "1 A 1T01:00, 1 B 1T02:00, 2 A 1T03:00, 2 X 1T03:30, 2 B 1T04:00, 3 A 1T05:00, 3 B 1T06:00",
            "AB",
            x,
            "unordered",
            &[3, 2][..],
        ),
        // The same in order: who is excluded is out.
        (
            "1 A 1T01:00, 1 B 1T02:00, 2 A 1T03:00, 2 X 1T03:30, 2 B 1T04:00, 3 A 1T05:00, 3 B 1T06:00",
            "AB",
            x,
            "ordered",
            &[2, 2],
        ),
        (five, "ABCDE", Some(("XY", 0, 4)), "unordered", &[5, 2, 1, 1, 1]),
        (three, "ABC", Some(("X", 0, 2)), "unordered", &[2, 1, 1]),
        ("p A 10T10:00, p other 10T10:05, p X 10T10:10", "AB", x, "strict", &[1, 0]),
        ("p A 10T10:00, p X 10T10:10", "AB", x, "strict", &[0, 0]),
        (
            "p A 10T10:00, p B 10T10:10, p X 10T10:20, p B 10T10:30",
            "ABC",
            Some(("X", 1, 2)),
            "ordered",
            &[0, 0, 0],
        ),
    ] {
        let server = start(history);
        let node = funnel(steps, exclusion, json!({"funnelOrderType": order}));
        assert_eq!(counts(&results(&server, &node)), expected, "{order} {history}");
        for (count, at) in expected.iter().zip(1..) {
            let source = json!({"kind": "FunnelsActorsQuery", "source": node, "funnelStep": at});
            assert_eq!(behind(&server, &source) as u64, *count, "{order} {at} {history}");
        }
    }
    let trend = funnel(
        "ABC",
        Some(("X", 0, 2)),
        json!({"funnelOrderType": "unordered", "funnelVizType": "trends", "funnelToStep": 1}),
    );
    let mut of_day = trend;
    of_day["dateRange"] = json!({"date_from": "2026-11-01", "date_to": "2026-11-01"});
    assert_eq!(results(&start(three), &of_day)[0]["data"], json!([50.0]));
}

#[test]
fn trends_begin_with_their_range_and_not_with_its_first_interval() {
    let history = "p A 3T12:00, q A 10T12:00, q B 10T13:00, r A 9T12:10, s A 9T12:40, s B 9T12:50";
    let server = start(history);
    for (interval, from, to, row, expected, entered) in [
        ("month", "2026-11-08", "2026-11-21", "2026-11-01", 66.67, 3),
        ("month", "2026-11-10", "2026-11-21", "2026-11-01", 100.0, 1),
        ("week", "2026-11-10", "2026-11-14", "2026-11-08", 100.0, 1),
        ("month", "2026-11-01", "2026-11-21", "2026-11-01", 50.0, 4),
        ("hour", "2026-11-09T12:30:00Z", "2026-11-09T12:59:59Z", "2026-11-09 12:00:00", 100.0, 1),
    ] {
        let mut node = funnel("AB", None, json!({"funnelVizType": "trends"}));
        node["interval"] = json!(interval);
        node["dateRange"] = json!({"date_from": from, "date_to": to, "explicitDate": true});
        let found = results(&server, &node);
        assert_eq!(found[0]["data"], json!([expected]), "{interval} {from} {found}");
        let source = |is_drop_off: bool| {
            json!({"kind": "FunnelsActorsQuery", "source": node, "funnelTrendsDropOff": is_drop_off,
                   "funnelTrendsEntrancePeriodStart": row})
        };
        let both = behind(&server, &source(false)) + behind(&server, &source(true));
        assert_eq!(both, entered, "{interval} {from}");
    }
}

/// `test_funnel_step_breakdown_with_step_attribution` of unordered funnels: the first event that is done has the value,
/// whichever step it is of.
#[test]
fn unordered_funnels_are_attributed_to_whichever_event_comes_first() {
    let history = "1 A 1T10:00 Chrome, 1 B 1T11:00, 2 A 1T10:00, 2 B 1T11:00 Safari, 3 A 1T10:00 Mac, 3 B 1T11:00, \
                   4 A 1T10:00 0, 4 B 1T11:00 alakazam";
    let server = start(history);
    let options = json!({"funnelOrderType": "unordered", "breakdownAttributionType": "step",
                         "breakdownAttributionValue": 0});
    let mut node = funnel("AB", None, options);
    node["breakdownFilter"] = json!({"breakdown": "$browser", "breakdown_type": "event"});
    let found = results(&server, &node);
    let mut values: Vec<(String, Vec<u64>)> = found
        .as_array()
        .expect("values")
        .iter()
        .map(|steps| {
            let value = steps[0]["breakdown_value"][0].as_str().expect("a text").to_owned();
            (value, counts(steps))
        })
        .collect();
    values.sort();
    let expected = [
        ("", [3, 1]),
        ("0", [1, 1]),
        ("Chrome", [1, 1]),
        ("Mac", [1, 1]),
        ("Safari", [1, 0]),
        ("alakazam", [1, 0]),
    ];
    let expected: Vec<(String, Vec<u64>)> =
        expected.iter().map(|(value, counts)| ((*value).to_owned(), counts.to_vec())).collect();
    assert_eq!(values, expected, "{found}");
}

#[test]
fn conversions_take_the_time_of_the_events_that_count() {
    for (history, steps, order, expected) in [
        (
            "p A 10T10:00, p B 10T10:10, p B 10T10:30, p C 10T11:00",
            "ABC",
            "ordered",
            json!([null, 600.0, 3000.0]),
        ),
        ("p A 10T10:00, p A 10T10:05, p B 10T10:06", "AB", "ordered", json!([null, 60.0])),
        ("p A 10T10:00, p A 10T10:05, p B 10T10:06", "AB", "unordered", json!([null, 360.0])),
        // The event in the middle is left out before: what is left of the window begins with the last.
        (
            "p A 10T10:00, p A 10T10:40, p A 10T10:50, p B 10T11:20",
            "AB",
            "unordered",
            json!([null, 1800.0]),
        ),
        ("p A 10T10:00, p A 10T10:40, p B 10T11:20", "AB", "unordered", json!([null, 2400.0])),
    ] {
        let server = start(history);
        let options = json!({"funnelOrderType": order, "funnelWindowInterval": 1,
                             "funnelWindowIntervalUnit": "hour"});
        let found = results(&server, &funnel(steps, None, options));
        let times: Value = found
            .as_array()
            .expect("steps")
            .iter()
            .map(|step| step["average_conversion_time"].clone())
            .collect();
        assert_eq!(times, expected, "{order} {history} {found}");
    }
}
