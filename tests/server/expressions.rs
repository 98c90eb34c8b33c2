//! Expressions of SQL in insights: what a series is of its events together, what it is split by, which events match, and
//! who goes through a funnel. Expected values follow from the sent events.

use serde_json::{Value, json};

use crate::harness::TestServer;

const QUERY: &str = "/api/projects/@current/query/";

/// Of three persons on two days.
fn start() -> TestServer {
    let server = TestServer::start();
    let event = |id: &str, name: &str, at: &str, properties: Value| json!({"event": name, "distinct_id": id, "timestamp": at, "properties": properties});
    let events = [
        event(
            "a",
            "view",
            "2026-01-05T08:00:00Z",
            json!({"price": 1, "plan": "pro", "$session_id": "s1", "$set": {"age": 30, "tier": "gold"}}),
        ),
        event(
            "a",
            "buy",
            "2026-01-05T09:00:00Z",
            json!({"price": 10, "plan": "pro", "$session_id": "s2"}),
        ),
        event(
            "b",
            "buy",
            "2026-01-05T10:00:00Z",
            json!({"price": 20, "plan": "free", "$session_id": "s3", "$set": {"age": "50"}}),
        ),
        event("b", "view", "2026-01-05T10:00:01Z", json!({"price": "none", "$session_id": "s3"})),
        event(
            "b",
            "buy",
            "2026-01-06T10:00:00Z",
            json!({"price": 40, "plan": "pro", "$session_id": "s4"}),
        ),
        event("c", "buy", "2026-01-06T11:00:00Z", json!({"$session_id": "s4"})),
    ];
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

fn trend(series: Value, more: Value) -> Value {
    let mut node = json!({
        "kind": "TrendsQuery", "series": [series],
        "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"},
    });
    if let (Some(node), Value::Object(more)) = (node.as_object_mut(), more) {
        node.extend(more);
    }
    node
}

fn asked(server: &TestServer, node: &Value) -> Value {
    let answer = server.post(QUERY, &json!({"query": node, "refresh": "force_blocking"}));
    assert_eq!(answer.status, 200, "{node}: {answer}");
    answer.json()["results"].clone()
}

/// The values of the breakdown with their data.
fn lines(results: &Value) -> Vec<(Value, Value)> {
    let lines = results.as_array().unwrap().iter();
    lines.map(|line| (line["breakdown_value"].clone(), line["data"].clone())).collect()
}

#[test]
fn series_are_what_an_expression_is_of_their_events() {
    let server = start();
    for round in ["in memory", "in files"] {
        for (series, expected) in [
            (
                json!({"event": "buy", "math": "hogql", "math_hogql": "sum(toFloat(properties.price))"}),
                json!([30, 40]),
            ),
            (
                json!({"event": null, "math": "hogql", "math_hogql": "uniq(properties.plan) * 10 + count()"}),
                json!([24, 12]),
            ),
            (
                json!({"event": "view", "math": "hogql", "math_hogql": "max(person.properties.tier)='gold'"}),
                json!([1, 0]),
            ),
            (
                json!({"event": null, "math": "sum", "math_property": "age", "math_property_type": "person_properties"}),
                json!([160, 50]),
            ),
            (
                json!({"event": "buy", "math": "max", "math_property": "age", "math_property_type": "person_properties"}),
                json!([50, 50]),
            ),
            (
                json!({"event": "buy", "math": "max", "math_property": "nothing", "math_property_type": "person_properties"}),
                json!([0, 0]),
            ),
        ] {
            let results = asked(&server, &trend(series.clone(), json!({})));
            assert_eq!(results[0]["data"], expected, "{round}: {series}");
        }
        server.flush();
    }
    // The persons behind a point have what the expression is of their own events.
    let source = trend(
        json!({"event": "buy", "math": "hogql", "math_hogql": "sum(toFloat(properties.price))"}),
        json!({}),
    );
    let actors = json!({"kind": "ActorsQuery", "select": ["event_count"],
                        "source": {"kind": "InsightActorsQuery", "source": source, "day": "2026-01-05", "series": 0}});
    assert_eq!(asked(&server, &actors), json!([[20.0], [10.0]]));
    for (series, field, part) in [
        (
            json!({"event": "buy", "math": "hogql"}),
            Some("query__series__0__math_hogql"),
            "required",
        ),
        (
            json!({"event": "buy", "math": "hogql", "math_hogql": "(SELECT max(name) FROM event_definitions)"}),
            Some("query__series__0__math_hogql"),
            "asks no tables",
        ),
        (
            json!({"event": "buy", "math": "hogql", "math_hogql": "properties.price"}),
            None,
            "is of each event",
        ),
        (
            json!({"event": "buy", "math": "hogql", "math_hogql": "sum(nothing_such)"}),
            None,
            "nothing_such",
        ),
    ] {
        let answer = server.post(QUERY, &json!({"query": trend(series.clone(), json!({}))}));
        assert_eq!(answer.status, 400, "{series}: {answer}");
        let told = answer.json();
        assert!(told["detail"].as_str().unwrap().contains(part), "{series}: {told}");
        if let Some(field) = field {
            assert_eq!(told["attr"], json!(field), "{told}");
        }
    }
}

#[test]
fn insights_are_split_by_expressions_and_columns() {
    let server = start();
    let split =
        |breakdown: Value| trend(json!({"event": null}), json!({"breakdownFilter": breakdown}));
    for round in ["in memory", "in files"] {
        for (breakdown, expected) in [
            (
                json!({"breakdown": "if(toFloat(properties.price) >= 20, 'high', event)", "breakdown_type": "hogql"}),
                vec![
                    (json!("buy"), json!([1, 1])),
                    (json!("high"), json!([1, 1])),
                    (json!("view"), json!([2, 0])),
                ],
            ),
            (
                json!({"breakdown": "event", "breakdown_type": "event_metadata"}),
                vec![(json!("buy"), json!([2, 2])), (json!("view"), json!([2, 0]))],
            ),
            (
                json!({"breakdowns": [{"property": "upper(event)", "type": "hogql"}, {"property": "distinct_id", "type": "event_metadata"}], "breakdown_limit": 2}),
                vec![
                    (json!(["BUY", "b"]), json!([1, 1])),
                    (json!(["BUY", "a"]), json!([1, 0])),
                    (json!(["$$_posthog_breakdown_other_$$"]), json!([2, 1])),
                ],
            ),
            (
                json!({"breakdown": "person.properties.tier", "breakdown_type": "hogql"}),
                vec![
                    (json!("gold"), json!([2, 0])),
                    (json!("$$_posthog_breakdown_null_$$"), json!([2, 2])),
                ],
            ),
        ] {
            let node = split(breakdown.clone());
            let mut found = lines(&asked(&server, &node));
            let mut expected = expected;
            if breakdown.get("breakdowns").is_none() {
                found.sort_by_key(|line| line.0.to_string());
                expected.sort_by_key(|line| line.0.to_string());
            }
            assert_eq!(found, expected, "{round}: {breakdown}");
        }
        server.flush();
    }
    // An expression may be of the current time, so its answer is not told again.
    for (breakdown, is_cached) in [
        (json!({"breakdown": "plan", "breakdown_type": "event"}), true),
        (json!({"breakdown": "now()", "breakdown_type": "hogql"}), false),
    ] {
        let ask = || server.post(QUERY, &json!({"query": split(breakdown.clone())})).json();
        ask();
        assert_eq!(ask()["is_cached"], json!(is_cached), "{breakdown}");
    }
    // Who is behind a value.
    let source = split(
        json!({"breakdown": "if(toFloat(properties.price) >= 20, 'high', event)", "breakdown_type": "hogql"}),
    );
    let actors = json!({"kind": "ActorsQuery", "select": ["event_count"], "source": {
        "kind": "InsightActorsQuery", "source": source, "day": "2026-01-05", "series": 0, "breakdown": "high"}});
    assert_eq!(asked(&server, &actors), json!([[1.0]]));
    let funnel = json!({
        "kind": "FunnelsQuery", "series": [{"event": "view"}, {"event": "buy"}],
        "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"},
        "breakdownFilter": {"breakdown": "concat('p', properties.plan)", "breakdown_type": "hogql"},
    });
    let steps: Vec<Value> = asked(&server, &funnel)
        .as_array()
        .unwrap()
        .iter()
        .map(|steps| json!([steps[0]["breakdown_value"], steps[0]["count"], steps[1]["count"]]))
        .collect();
    // The first value that each has with an event of the funnel.
    assert_eq!(json!(steps), json!([[["pfree"], 1, 1], [["ppro"], 1, 1]]));
    let several = json!({
        "kind": "FunnelsQuery", "series": [{"event": "view"}], "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"},
        "breakdownFilter": {"breakdown": ["plan", "$session_id"], "breakdown_type": "event"},
    });
    let values: Vec<Value> = asked(&server, &several)
        .as_array()
        .unwrap()
        .iter()
        .map(|steps| steps[0]["breakdown_value"].clone())
        .collect();
    assert_eq!(json!(values), json!([["", "s3"], ["pro", "s1"]]));
    for (breakdown, part) in [
        (json!({"breakdown": "count()", "breakdown_type": "hogql"}), "computed of several events"),
        (json!({"breakdown": "event, event", "breakdown_type": "hogql"}), "more behind"),
        (
            json!({"breakdown": "nothing", "breakdown_type": "event_metadata"}),
            "besides their properties",
        ),
    ] {
        let answer = server.post(QUERY, &json!({"query": split(breakdown.clone())}));
        assert_eq!(answer.status, 400, "{breakdown}: {answer}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(part), "{breakdown}: {answer}");
    }
}

#[test]
fn filters_may_be_expressions() {
    let server = start();
    let by = |key: &str| json!([{"key": key, "type": "hogql"}]);
    let dear = "toFloat(properties.price) > 15";
    for round in ["in memory", "in files"] {
        for (of_all, of_series, expected) in [
            (by(dear), json!([]), json!([1, 1])),
            (json!([]), by(dear), json!([1, 1])),
            (by(dear), by("properties.plan = 'pro'"), json!([0, 1])),
            // Null is false.
            (by("properties.plan <> 'free'"), json!([]), json!([2, 1])),
            (
                by(
                    "properties.plan <> '{\"a\":\"\"}' AND properties.\"a'b\" IS NULL AND properties.plan <> 'free'",
                ),
                json!([]),
                json!([2, 1]),
            ),
            (
                by(
                    r#"event <> 'x\", (SELECT max(name) FROM event_definitions) AS y FROM events --'"#,
                ),
                json!([]),
                json!([4, 2]),
            ),
            (
                by(
                    r#"event <> 'x\'', (SELECT max(name) FROM event_definitions) AS y FROM events --'"#,
                ),
                json!([]),
                json!([4, 2]),
            ),
            (by("- -toFloat(properties.price) > 15"), json!([]), json!([1, 1])),
            (by("event <> 'a'' OR 1=1 --' AND event <> 'it''s'"), json!([]), json!([4, 2])),
            (json!([]), by("person.properties.tier = 'gold' and event = \"event\""), json!([2, 0])),
            (
                json!({"type": "OR", "values": [{"key": dear, "type": "hogql"}, {"key": "$session_id", "value": "s1", "type": "event"}]}),
                json!([]),
                json!([2, 1]),
            ),
            (
                json!([{"key": dear, "type": "hogql"}, {"key": "$session_duration", "value": 0, "operator": "gt", "type": "session"}]),
                json!([]),
                json!([1, 1]),
            ),
        ] {
            let node = trend(
                json!({"event": null, "properties": of_series}),
                json!({"properties": of_all}),
            );
            assert_eq!(asked(&server, &node)[0]["data"], expected, "{round}: {of_all} {of_series}");
        }
        server.flush();
    }
    let dates = json!({"date_from": "2026-01-05", "date_to": "2026-01-06"});
    let funnel = json!({"kind": "FunnelsQuery", "dateRange": dates, "properties": by("properties.$session_id <> 's9'"),
                        "series": [{"event": "buy", "properties": by(dear)}, {"event": "view"}]});
    let steps = asked(&server, &funnel);
    assert_eq!((&steps[0]["count"], &steps[1]["count"]), (&json!(1), &json!(1)));
    let lifecycle = json!({"kind": "LifecycleQuery", "dateRange": dates, "series": [{"event": null, "properties": by(dear)}]});
    assert_eq!(asked(&server, &lifecycle)[1]["data"], json!([0, 1]), "who returns");
    let events = json!({"kind": "EventsQuery", "select": ["distinct_id"], "after": "2026-01-01", "properties": by(dear), "orderBy": ["timestamp"]});
    assert_eq!(asked(&server, &events), json!([["b"], ["b"]]));
    // Lists of events, of persons and flags have none.
    let properties =
        form_urlencoded::byte_serialize(by(dear).to_string().as_bytes()).collect::<String>();
    for list in ["events", "persons"] {
        let answer = server.get(&format!("/api/projects/@current/{list}/?properties={properties}"));
        assert_eq!(answer.status, 400, "{list}: {answer}");
    }
    let filters = json!({"groups": [{"properties": by("1 = 1"), "rollout_percentage": 100}]});
    let flag = server
        .post("/api/projects/@current/feature_flags/", &json!({"key": "f", "filters": filters}));
    assert_eq!(flag.status, 400, "{flag}");
    for key in ["count() > 1", "row_number() OVER () > 1", "nothing_such = 1"] {
        let answer = server.post(
            QUERY,
            &json!({"query": trend(json!({"event": null}), json!({"properties": by(key)}))}),
        );
        assert_eq!(answer.status, 400, "{key}: {answer}");
    }
}

#[test]
fn funnels_are_of_what_an_expression_says() {
    let server = start();
    let funnel = |by: Value, more: Value| {
        let mut node = json!({
            "kind": "FunnelsQuery", "series": [{"event": "buy"}, {"event": "view"}],
            "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-06"},
            "funnelsFilter": {"funnelAggregateByHogQL": by},
        });
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let counts = |node: &Value| {
        let steps = asked(&server, node);
        (steps[0]["count"].clone(), steps[1]["count"].clone())
    };
    for (by, expected) in [
        (json!(null), (json!(3), json!(1))),
        (json!("person_id"), (json!(3), json!(1))),
        (json!("properties.$session_id"), (json!(3), json!(1))),
        (json!("properties.plan"), (json!(2), json!(0))),
        (json!("'everybody'"), (json!(1), json!(1))),
    ] {
        assert_eq!(counts(&funnel(by.clone(), json!({}))), expected, "{by}");
    }
    let by_session = funnel(json!("properties.$session_id"), json!({}));
    let actors = json!({"kind": "ActorsQuery", "source": {"kind": "FunnelsActorsQuery", "source": by_session, "funnelStep": 1}});
    let answer = server.post(QUERY, &json!({"query": actors}));
    assert_eq!(answer.status, 400, "{answer}");
    assert!(
        answer.json()["detail"].as_str().unwrap().contains("funnelAggregateByHogQL"),
        "{answer}"
    );
    let both = funnel(json!("event"), json!({"aggregation_group_type_index": 0}));
    assert_eq!(server.post(QUERY, &json!({"query": both})).status, 400);
}

/// Goal: a step of first times counts no later event. Method: the first event of a name lies before the range, or does
/// not match.
#[test]
fn steps_may_be_first_times() {
    let server = start();
    let counts = |first: Value, from: &str| {
        let node = json!({
            "kind": "FunnelsQuery", "series": [first, {"event": "buy"}], "dateRange": {"date_from": from, "date_to": "2026-01-06"},
        });
        let steps = asked(&server, &node);
        (steps[0]["count"].clone(), steps[1]["count"].clone())
    };
    let pro = json!([{"key": "plan", "value": "pro", "type": "event"}]);
    for (first, from, expected) in [
        (json!({"event": "buy"}), "2026-01-05", (3, 1)),
        (json!({"event": "buy", "math": "first_time_for_user"}), "2026-01-05", (3, 1)),
        // The first one of b was the day before.
        (json!({"event": "buy"}), "2026-01-06", (2, 0)),
        (json!({"event": "buy", "math": "first_time_for_user"}), "2026-01-06", (1, 0)),
        // It was of another plan: b does not count, or does with the first that matches.
        (
            json!({"event": "buy", "math": "first_time_for_user", "properties": pro}),
            "2026-01-05",
            (1, 0),
        ),
        (
            json!({"event": "buy", "math": "first_time_for_user_with_filters", "properties": pro}),
            "2026-01-05",
            (2, 0),
        ),
    ] {
        let expected = (json!(expected.0), json!(expected.1));
        assert_eq!(counts(first.clone(), from), expected, "{first} from {from}");
    }
}

/// Goal: what is read as an expression stays that expression, however its tree would print, and no text makes the process
/// recurse over more than its words. Method: texts of which more words would be parsed if they were printed, and chains
/// and nesting of all kinds, in every place of an insight; the process goes on.
#[test]
fn no_expression_ends_the_process() {
    let server = start();
    let chain = |part: &str, count: usize| vec![part; count].join("");
    let hidden = format!("1)) {}--", chain("+ 1 ", 1900));
    let texts = [
        format!("CAST(event AS foo('{hidden}')) = '1'"),
        format!("event::foo('{hidden}') = '1'"),
        format!("TRY_CAST(event AS DECIMAL('{hidden}')) = '1'"),
        format!("- -1 {} = 1", chain("+ 1 ", 1900)),
        format!("event = '{}'", chain("a", 8000)),
        format!("{}1{} = 1", chain("(", 4000), chain(")", 4000)),
        format!("{}1{} = 1", chain("[", 3000), chain("]", 3000)),
        format!("{}true", chain("NOT ", 1900)),
        format!("{}1 = 1", chain("- ", 3900)),
        format!("event{} = '1'", chain("::text", 1000)),
        format!("event{}", chain(" IS NULL", 800)),
        format!("CAST(event AS {}text{}) = '1'", chain("array<", 900), chain(">", 900)),
        format!("1 = 1{}", chain(" OR 1 = 1", 800)),
        format!("{}event = 'a'{}", chain("lower(", 900), chain(")", 900)),
        format!("CASE {} END", chain("WHEN true THEN true ", 400)),
        format!("event IN ({}'a')", chain("'a',", 1900)),
        // What planning would write out once more for each that stands around it.
        format!("{}2{} = 1", chain("if(event = 'a', 1, ", 45), chain(")", 45)),
        format!("{}event{} = 'a'", chain("coalesce(lower(", 22), chain("), 'x')", 22)),
        format!("event{} = 'a'", chain(" ?? event", 90)),
        format!("(event = 'a'){}", chain(" BETWEEN false AND true", 60)),
        // Chains of operators that are functions.
        format!("event{} = '1'", chain(" || 'a'", 1900)),
        format!("length(event){} = 1", chain(" * 2 / 2", 480)),
        format!("timestamp{} > now()", chain(" + INTERVAL '1 day'", 900)),
    ];
    for text in &texts {
        let filter = json!([{"key": text, "type": "hogql"}]);
        let breakdown = json!({"breakdown_type": "hogql", "breakdown": text});
        for node in [
            trend(json!({"event": null}), json!({"properties": filter})),
            trend(json!({"event": null, "properties": filter}), json!({})),
            trend(json!({"event": null}), json!({"breakdownFilter": breakdown})),
            trend(json!({"event": null, "math": "hogql", "math_hogql": text}), json!({})),
            json!({"kind": "EventsQuery", "select": [text, "count()"], "where": [text], "orderBy": [text]}),
            json!({"kind": "ActorsQuery", "select": [text], "orderBy": [text]}),
            json!({"kind": "HogQLQuery", "query": format!("SELECT count() FROM events WHERE {text}")}),
        ] {
            let answer = server.post(QUERY, &json!({"query": node, "refresh": "force_blocking"}));
            assert!([200, 400].contains(&answer.status), "{node}: {answer}");
        }
    }
    // The words of many expressions count together.
    let one = |at: usize| json!({"key": format!("event <> 'x{at}' {}", chain("OR 1 = 1 ", 45)), "type": "hogql"});
    let many: Vec<Value> = (0..900).map(one).collect();
    let node = trend(json!({"event": null}), json!({"properties": many}));
    let answer = server.post(QUERY, &json!({"query": node, "refresh": "force_blocking"}));
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.json()["detail"].as_str().unwrap().contains("together"), "{answer}");
    assert_eq!(server.count("SELECT count(*) FROM events"), 6);
}
