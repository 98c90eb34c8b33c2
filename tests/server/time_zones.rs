//! Times in SQL, expressions and lists are those of the project's clocks. Expected values are those of ClickHouse's
//! functions in the zone of the project, or follow from the tz database and the sent events.

use serde_json::{Value, json};

use crate::harness::{Answer, TOKEN, TestServer};

const QUERY: &str = "/api/projects/@current/query/";

/// Local times of Berlin: 23:30 on the 1st of June, 00:30, 12:00 and 23:59 on the 2nd, 00:01 on the 3rd.
const JUNE: [&str; 5] = [
    "2026-06-01T21:30:00Z",
    "2026-06-01T22:30:00Z",
    "2026-06-02T10:00:00Z",
    "2026-06-02T21:59:00Z",
    "2026-06-02T22:01:00Z",
];

fn start(settings: &Value, times: &[&str]) -> TestServer {
    let server = TestServer::start();
    assert_eq!(server.patch("/api/projects/@current/", settings).status, 200);
    let event = |(at, time): (usize, &&str)| json!({"event": "e", "distinct_id": (at + 1).to_string(), "timestamp": time, "properties": {"at": time, "day": &time[..10]}});
    let events: Vec<Value> = times.iter().enumerate().map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

fn ask(server: &TestServer, node: &Value) -> Answer {
    server.post(QUERY, &json!({"query": node}))
}

fn rows(server: &TestServer, sql: &str) -> Value {
    let answer = ask(server, &json!({"kind": "HogQLQuery", "query": sql}));
    assert_eq!(answer.status, 200, "{sql}: {answer}");
    answer.json()["results"].clone()
}

fn value(server: &TestServer, sql: &str) -> Value {
    rows(server, sql)[0][0].clone()
}

fn flush(server: &TestServer) {
    let flushed = server.weir(&["flush"]).output().expect("runs");
    assert!(flushed.status.success(), "{flushed:?}");
}

#[test]
fn times_without_an_offset_are_of_the_projects_clocks() {
    let server = start(&json!({"timezone": "Europe/Berlin"}), &JUNE);
    for round in ["in memory", "in files"] {
        for (condition, expected) in [
            ("timestamp >= '2026-06-02'", 4),
            ("'2026-06-02' <= timestamp", 4),
            ("timestamp >= '2026-06-02T00:00:00'", 4),
            ("timestamp >= toDateTime('2026-06-02 00:00:00')", 4),
            ("timestamp >= toDateTime('2026-06-02')", 4),
            ("timestamp >= toDate('2026-06-02')", 4),
            ("timestamp >= DATE '2026-06-02'", 4),
            ("DATE '2026-06-03' > timestamp", 4),
            ("timestamp >= TIMESTAMP '2026-06-02 00:00:00'", 4),
            ("timestamp >= CAST('2026-06-02 00:00:00' AS TIMESTAMP)", 4),
            ("timestamp >= '2026-06-02'::timestamp", 4),
            ("timestamp >= CAST('2026-06-02' AS DATE)", 4),
            ("CAST(timestamp AS TIMESTAMP) >= '2026-06-02'", 4),
            ("timestamp >= to_timestamp('2026-06-02T00:00:00')", 4),
            ("timestamp < '2026-06-03 00:00:00'", 4),
            ("timestamp BETWEEN '2026-06-02' AND '2026-06-02 23:59:59'", 3),
            ("timestamp BETWEEN toDate('2026-06-02') AND toDate('2026-06-03')", 3),
            ("timestamp NOT BETWEEN '2026-06-02' AND '2026-06-03'", 2),
            ("timestamp IN ('2026-06-02 00:30:00', '2026-06-02 12:00:00')", 2),
            ("timestamp = '2026-06-02 12:00:00'", 1),
            ("toStartOfDay(timestamp) = toDateTime('2026-06-02 00:00:00')", 3),
            ("toStartOfDay(timestamp) = '2026-06-02'", 3),
            ("toStartOfDay(timestamp) = toDate('2026-06-02')", 3),
            ("date_trunc('day', timestamp) = '2026-06-02'", 3),
            ("dateTrunc('day', timestamp) = toDateTime('2026-06-02')", 3),
            ("date_trunc('month', timestamp) = '2026-06-01'", 5),
            ("CAST(timestamp AS DATE) = '2026-06-02'", 3),
            ("timestamp::date = '2026-06-02'", 3),
            ("toDate(timestamp) = '2026-06-02'", 3),
            ("extract(hour FROM timestamp) = 0", 2),
            ("extract(day FROM timestamp) = 2", 3),
            ("date_part('hour', timestamp) = 23", 2),
            ("date_part('year', timestamp) = 2026", 5),
            ("substr(toString(timestamp), 1, 10) = '2026-06-02'", 3),
            ("CAST(timestamp AS VARCHAR) LIKE '2026-06-02%'", 3),
            ("concat(timestamp, '') LIKE '2026-06-02%'", 3),
            ("to_char(timestamp, '%Y-%m-%d') = '2026-06-02'", 3),
            ("toDateTime(properties.at) >= '2026-06-02'", 4),
            ("toDateTime(properties.day) = '2026-06-02'", 3),
            ("timestamp - INTERVAL '1 day' >= '2026-06-01'", 4),
            ("timestamp >= toDateTime('2026-06-03') - INTERVAL '1 day'", 4),
            ("timestamp >= (SELECT toDate('2026-06-02'))", 4),
            ("timestamp > (SELECT min(timestamp) FROM events WHERE timestamp >= '2026-06-02')", 3),
            ("received_at >= '2026-06-02'", 5),
            ("person.created_at >= '2026-06-01'", 5),
            // With an offset they are what they say.
            ("timestamp >= '2026-06-02T00:00:00Z'", 3),
            ("timestamp >= toDateTime('2026-06-02 00:00:00Z')", 3),
            ("timestamp >= '2026-06-02T00:00:00+05:00'", 5),
            ("timestamp >= TIMESTAMP '2026-06-02 00:00:00+00:00'", 3),
            ("timestamp AT TIME ZONE 'UTC' >= '2026-06-02'", 3),
            ("timestamp >= now() - INTERVAL '100000 days'", 5),
            ("toDate(timestamp) < today()", 5),
        ] {
            let sql = format!("SELECT count() FROM events WHERE {condition}");
            assert_eq!(value(&server, &sql), json!(expected), "{round}: {condition}");
            let sql = format!("SELECT countIf({condition}) FROM events");
            if !condition.contains("SELECT") {
                assert_eq!(value(&server, &sql), json!(expected), "{round}: {sql}");
            }
            let sql = format!("SELECT count() FROM events WHERE {{filters}} AND {condition}");
            let node = json!({"kind": "HogQLQuery", "query": sql, "filters": {"dateRange": {"date_from": "all"}}});
            let answer = ask(&server, &node);
            if !condition.contains("SELECT min(timestamp)") {
                assert_eq!(
                    answer.json()["results"],
                    json!([[expected]]),
                    "{round}: {sql}: {answer}"
                );
            }
        }
        flush(&server);
    }
}

#[test]
fn answers_are_in_utc_whatever_the_clocks_show() {
    let server = start(&json!({"timezone": "Europe/Berlin"}), &JUNE[1..2]);
    for (sql, expected) in [
        ("SELECT timestamp FROM events", json!("2026-06-01T22:30:00Z")),
        ("SELECT * FROM (SELECT max(timestamp) AS t FROM events)", json!("2026-06-01T22:30:00Z")),
        ("SELECT groupArray(timestamp) FROM events", json!(["2026-06-01T22:30:00Z"])),
        ("SELECT timestamp + INTERVAL '1 day' FROM events", json!("2026-06-02T22:30:00Z")),
        ("SELECT toDateTime('2026-06-02 00:30:00')", json!("2026-06-01T22:30:00Z")),
        ("SELECT CAST('2026-06-02 00:30:00' AS TIMESTAMP)", json!("2026-06-01T22:30:00Z")),
        ("SELECT date_trunc('day', timestamp) FROM events", json!("2026-06-01T22:00:00Z")),
        ("SELECT fromUnixTimestamp(1780353000)", json!("2026-06-01T22:30:00Z")),
        ("SELECT to_timestamp(1780353000)", json!("2026-06-01T22:30:00Z")),
        ("SELECT to_timestamp(1780353000.5)", json!("2026-06-01T22:30:00.500Z")),
        ("SELECT to_timestamp_millis(1780353000000)", json!("2026-06-01T22:30:00Z")),
        ("SELECT to_timestamp('2026-03-29 02:30:00')", json!("2026-03-29T01:30:00Z")),
        ("SELECT toUnixTimestamp(timestamp) FROM events", json!(1_780_353_000)),
        ("SELECT toUnixTimestamp('2026-06-02 00:30:00')", json!(1_780_353_000)),
        ("SELECT toStartOfDay(timestamp) FROM events", json!("2026-06-02T00:00:00+02:00")),
        ("SELECT toString(timestamp) FROM events", json!("2026-06-02T00:30:00+02:00")),
        ("SELECT toDate(timestamp) FROM events", json!("2026-06-02")),
        ("SELECT toDate(toDate('2026-06-02'))", json!("2026-06-02")),
    ] {
        assert_eq!(value(&server, sql), expected, "{sql}");
    }
    let now = value(&server, "SELECT now()");
    assert!(now.as_str().is_some_and(|now| now.ends_with('Z')), "{now}");
    let answer =
        ask(&server, &json!({"kind": "HogQLQuery", "query": "SELECT timestamp FROM events"}));
    assert_eq!(answer.json()["types"], json!([["timestamp", "DateTime64(6, 'UTC')"]]), "{answer}");
}

#[test]
fn expressions_and_lists_have_the_same_times() {
    let server = start(&json!({"timezone": "Europe/Berlin"}), &JUNE);
    let filter =
        json!([{"type": "hogql", "key": "timestamp >= toDateTime('2026-06-02 00:00:00')"}]);
    let trend = json!({"kind": "TrendsQuery", "series": [{"event": "e"}], "properties": filter,
        "dateRange": {"date_from": "2026-06-01", "date_to": "2026-06-03"}});
    let answer = ask(&server, &trend);
    assert_eq!(answer.json()["results"][0]["data"], json!([0, 3, 1]), "{answer}");
    let by_hour = json!({"kind": "TrendsQuery", "series": [{"event": "e"}],
        "breakdownFilter": {"breakdown_type": "hogql", "breakdown": "toString(extract(hour FROM timestamp))"},
        "dateRange": {"date_from": "2026-06-01", "date_to": "2026-06-03"}});
    let answer = ask(&server, &by_hour).json();
    let mut hours: Vec<String> = answer["results"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|series| format!("{} {}", series["breakdown_value"], series["count"]))
        .collect();
    hours.sort_unstable();
    assert_eq!(hours, ["\"0\" 2", "\"12\" 1", "\"23\" 2"], "{answer}");
    let list = |more: Value| {
        let mut node = json!({"kind": "EventsQuery", "select": ["distinct_id"], "orderBy": ["timestamp"],
            "after": "2026-05-01"});
        for (name, own) in more.as_object().into_iter().flatten() {
            node[name] = own.clone();
        }
        let answer = ask(&server, &node);
        assert_eq!(answer.status, 200, "{node}: {answer}");
        let rows = answer.json()["results"].clone();
        let ids = rows.as_array().into_iter().flatten().filter_map(|row| row[0].as_str());
        ids.collect::<Vec<_>>().join(",")
    };
    for (more, expected) in [
        (json!({"where": ["timestamp >= '2026-06-02'"]}), "2,3,4,5"),
        (json!({"where": ["timestamp < toDate('2026-06-03')", "toHour(timestamp) = 0"]}), "2"),
        (json!({"after": "2026-06-02", "before": "2026-06-03"}), "2,3,4"),
        (json!({"orderBy": ["date_trunc('day', timestamp) DESC", "timestamp"]}), "5,2,3,4,1"),
    ] {
        assert_eq!(list(more.clone()), expected, "{more}");
    }
    let selected = json!({"kind": "EventsQuery", "after": "2026-05-01", "orderBy": ["timestamp"],
        "select": ["timestamp", "toHour(timestamp)", "toDate(timestamp)"], "limit": 1});
    assert_eq!(
        ask(&server, &selected).json()["results"],
        json!([["2026-06-01T21:30:00Z", 23, "2026-06-01"]])
    );
    let listed = |range: &str| {
        let answer = server.get(&format!("/api/projects/@current/events/?{range}"));
        assert_eq!(answer.status, 200, "{range}: {answer}");
        let events = answer.json()["results"].clone();
        let ids = events.as_array().into_iter().flatten();
        ids.filter_map(|event| event["distinct_id"].as_str()).collect::<Vec<_>>().join(",")
    };
    assert_eq!(listed("after=2026-06-02&before=2026-06-03"), "4,3,2");
    assert_eq!(listed("after=2026-06-02T00:00:00Z&before=2026-06-03T00:00:00Z"), "5,4,3");
    assert_eq!(listed("before=2026-06-02%2000:00"), "1");
    // Dates in filters and in values.
    let dated = |value: &str| json!([{"key": "at", "operator": "is_date_after", "value": value}]);
    for (value, expected) in [("2026-06-02", "2,3,4,5"), ("2026-06-02T00:00:00Z", "3,4,5")] {
        assert_eq!(list(json!({"properties": dated(value)})), expected, "{value}");
    }
    let day = json!([{"key": "day", "operator": "is_date_exact", "value": "2026-06-02"}]);
    assert_eq!(list(json!({"properties": day})), "3,4,5");
}

#[test]
fn parts_and_starts_are_of_the_clocks_of_each_zone() {
    for (zone, time, cases) in [
        (
            "Asia/Kolkata",
            "2026-03-02T00:10:00Z",
            vec![
                ("toHour(timestamp), toMinute(timestamp), toSecond(timestamp)", json!([5, 40, 0])),
                ("extract(hour FROM timestamp), extract(minute FROM timestamp)", json!([5, 40])),
                ("toStartOfHour(timestamp)", json!(["2026-03-02T05:00:00+05:30"])),
                ("date_trunc('hour', timestamp)", json!(["2026-03-01T23:30:00Z"])),
                ("toStartOfFifteenMinutes(timestamp)", json!(["2026-03-02T00:00:00Z"])),
                (
                    "dateDiff('hour', toDateTime('2026-03-02 06:00:00'), toDateTime('2026-03-02 08:30:00'))",
                    json!([2]),
                ),
                (
                    "dateDiff('minute', toDateTime('2026-03-02 06:00:00'), toDateTime('2026-03-02 08:30:00'))",
                    json!([150]),
                ),
                (
                    "dateDiff('day', toDateTime('2026-03-01 23:59:00'), toDateTime('2026-03-02 00:01:00'))",
                    json!([1]),
                ),
            ],
        ),
        (
            "Asia/Kathmandu",
            "2026-03-02T00:10:00Z",
            vec![
                ("toHour(timestamp), toMinute(timestamp)", json!([5, 55])),
                (
                    "toStartOfInterval(timestamp, INTERVAL 30 MINUTE)",
                    json!(["2026-03-01T23:45:00Z"]),
                ),
                (
                    "toStartOfInterval(timestamp, INTERVAL 10 MINUTE)",
                    json!(["2026-03-02T00:05:00Z"]),
                ),
                ("toStartOfFifteenMinutes(timestamp)", json!(["2026-03-02T00:00:00Z"])),
                ("toStartOfFiveMinutes(timestamp)", json!(["2026-03-02T00:10:00Z"])),
                ("date_bin(INTERVAL '1 day', timestamp)", json!(["2026-03-01T18:15:00Z"])),
                ("timestamp = '2026-03-02 05:55:00'", json!([true])),
            ],
        ),
        (
            "America/St_Johns",
            "2026-06-01T12:50:00Z",
            vec![
                ("toHour(timestamp), toMinute(timestamp)", json!([10, 20])),
                (
                    "toStartOfInterval(timestamp, INTERVAL 60 MINUTE)",
                    json!(["2026-06-01T12:30:00Z"]),
                ),
                ("date_trunc('hour', timestamp)", json!(["2026-06-01T12:30:00Z"])),
                ("timestamp = '2026-06-01 10:20:00'", json!([true])),
            ],
        ),
        (
            // An hour that clocks skip, on the 29th of March.
            "Europe/Berlin",
            "2026-03-28T01:30:00Z",
            vec![
                ("timestamp + INTERVAL '1 day'", json!(["2026-03-29T01:30:00Z"])),
                ("timestamp + INTERVAL '2 days'", json!(["2026-03-30T00:30:00Z"])),
                ("timestamp + INTERVAL '24 hours'", json!(["2026-03-29T01:30:00Z"])),
                ("toDateTime('2026-03-29 02:30:00')", json!(["2026-03-29T01:30:00Z"])),
                ("toDateTime('2026-03-29 03:30:00')", json!(["2026-03-29T01:30:00Z"])),
                (
                    "dateDiff('hour', toDateTime('2026-03-29 01:30:00'), toDateTime('2026-03-29 03:30:00'))",
                    json!([1]),
                ),
                (
                    "dateDiff('day', toDateTime('2026-03-28 12:00:00'), toDateTime('2026-03-30 00:00:00'))",
                    json!([2]),
                ),
                ("toStartOfDay(addDays(timestamp, 1))", json!(["2026-03-29T00:00:00+01:00"])),
            ],
        ),
        (
            // The second of two hours that clocks show as 2 o'clock, on the 25th of October.
            "Europe/Berlin",
            "2026-10-25T01:40:00Z",
            vec![
                ("toHour(timestamp), toMinute(timestamp)", json!([2, 40])),
                ("toStartOfFifteenMinutes(timestamp)", json!(["2026-10-25T01:30:00Z"])),
                ("date_trunc('hour', timestamp)", json!(["2026-10-25T01:00:00Z"])),
                ("toDateTime('2026-10-25 02:40:00')", json!(["2026-10-25T00:40:00Z"])),
                ("timestamp - INTERVAL '1 day'", json!(["2026-10-24T00:40:00Z"])),
                ("timestamp - INTERVAL '1 hour'", json!(["2026-10-25T00:40:00Z"])),
                ("dateDiff('hour', toDateTime('2026-10-25 01:30:00'), timestamp)", json!([2])),
            ],
        ),
        (
            "UTC",
            "2026-03-02T00:10:00Z",
            vec![
                ("toHour(timestamp), toMinute(timestamp)", json!([0, 10])),
                ("timestamp = '2026-03-02 00:10:00'", json!([true])),
                (
                    "toStartOfInterval(timestamp, INTERVAL 30 MINUTE)",
                    json!(["2026-03-02T00:00:00Z"]),
                ),
                ("toString(timestamp)", json!(["2026-03-02T00:10:00Z"])),
                (
                    "dateDiff('hour', toDateTime('2026-03-02 06:00:00'), toDateTime('2026-03-02 08:30:00'))",
                    json!([2]),
                ),
            ],
        ),
    ] {
        let server = start(&json!({"timezone": zone}), &[time]);
        for (columns, expected) in cases {
            let found = rows(&server, &format!("SELECT {columns} FROM events"));
            assert_eq!(found[0], expected, "{zone} {time}: {columns}");
        }
    }
}

#[test]
fn weeks_begin_when_those_of_the_project_do() {
    // A Sunday.
    let server = start(&json!({"timezone": "UTC", "week_start_day": 1}), &["2026-03-29T12:00:00Z"]);
    let weeks = "SELECT toDate(toStartOfWeek(timestamp)), toDate(toStartOfWeek(timestamp, 0)), \
                 toDate(toStartOfWeek(timestamp, 1)), toDate(toMonday(timestamp)), toDate(dateTrunc('week', timestamp)) FROM events";
    assert_eq!(
        rows(&server, weeks),
        json!([["2026-03-23", "2026-03-29", "2026-03-23", "2026-03-23", "2026-03-23"]])
    );
    assert_eq!(server.patch("/api/projects/@current/", &json!({"week_start_day": 0})).status, 200);
    assert_eq!(
        rows(&server, weeks),
        json!([["2026-03-29", "2026-03-29", "2026-03-23", "2026-03-23", "2026-03-23"]])
    );
    let refused = ask(
        &server,
        &json!({"kind": "HogQLQuery", "query": "SELECT toStartOfWeek(timestamp, 'x') FROM events"}),
    );
    assert_eq!(refused.status, 400, "{refused}");
    for (after, before) in [("-1wStart", "-1wEnd"), ("-1qStart", "hEnd"), ("wStart", "wEnd")] {
        let node =
            json!({"kind": "EventsQuery", "select": ["count()"], "after": after, "before": before});
        assert_eq!(ask(&server, &node).status, 200, "{after}");
    }
}

/// See flags.md of the reference, and PostHog#65337.
#[test]
fn dates_of_flags_are_of_the_projects_clocks() {
    let server = start(&json!({"timezone": "Europe/Berlin"}), &JUNE[..1]);
    let date = |key: &str, value: &str| {
        let property =
            json!({"key": "trial", "type": "person", "operator": "is_date_after", "value": value});
        let filters = json!({"groups": [{"properties": [property], "rollout_percentage": 100}]});
        json!({"key": key, "name": key, "active": true, "filters": filters})
    };
    for (key, value) in [("local", "2026-06-02"), ("offset", "2026-06-02T00:00:00Z")] {
        let made = server.post("/api/projects/@current/feature_flags/", &date(key, value));
        assert_eq!(made.status, 201, "{made}");
    }
    for (trial, local, offset) in [
        ("2026-06-01T21:59:59Z", false, false),
        ("2026-06-01T22:30:00Z", true, false),
        ("2026-06-02 00:30:00", true, false),
        ("2026-06-02 02:30:00", true, true),
        ("2026-06-02T00:30:00Z", true, true),
    ] {
        let body =
            json!({"api_key": TOKEN, "distinct_id": "x", "person_properties": {"trial": trial}});
        let answer = server.send("POST", "/flags/?v=2", &[], body.to_string());
        let flags = answer.json()["flags"].clone();
        let found = (&flags["local"]["enabled"], &flags["offset"]["enabled"]);
        assert_eq!(found, (&json!(local), &json!(offset)), "{trial}: {answer}");
    }
}

/// Goal: what is ordered by the start of an interval is in the order of time where clocks show an hour twice. Expected: the
/// clocks of Berlin went back at 01:00 UTC.
#[test]
fn starts_of_intervals_are_in_the_order_of_time() {
    let times = [
        "2025-10-26T01:30:00Z",
        "2025-10-25T23:30:00Z",
        "2025-10-26T02:30:00Z",
        "2025-10-26T00:30:00Z",
        "2025-10-26T23:30:00Z",
    ];
    let server = start(&json!({"timezone": "Europe/Berlin"}), &times);
    let starts = [
        "toStartOfHour(timestamp)",
        "date_trunc('hour', timestamp)",
        "toStartOfInterval(timestamp, INTERVAL 1 hour)",
        "toStartOfFifteenMinutes(timestamp)",
        "date_bin(INTERVAL '30 minutes', timestamp)",
    ];
    let check = || {
        for start in starts {
            for (direction, expected) in [
                ("", json!([[23], [0], [1], [2], [23]])),
                ("DESC", json!([[23], [2], [1], [0], [23]])),
            ] {
                let sql = format!(
                    "SELECT toHour(timestamp, 'UTC') FROM events ORDER BY {start} {direction}"
                );
                assert_eq!(rows(&server, &sql), expected, "{sql}");
            }
            let sql = format!(
                "SELECT n, k FROM (SELECT {start} AS k, count() AS n FROM events GROUP BY k) ORDER BY k"
            );
            let found = rows(&server, &sql);
            assert_eq!(found.as_array().map(Vec::len), Some(5), "{sql}: {found}");
        }
        let sql = "SELECT toHour(timestamp, 'UTC') FROM events ORDER BY toStartOfDay(timestamp) DESC, timestamp";
        assert_eq!(rows(&server, sql), json!([[23], [23], [0], [1], [2]]));
        let sql = "SELECT toHour(timestamp, 'UTC') FROM events WHERE toStartOfHour(timestamp) >= toDateTime('2025-10-26 \
                   02:00:00', 'Europe/Berlin') ORDER BY timestamp";
        assert_eq!(rows(&server, sql), json!([[0], [1], [2], [23]]));
    };
    check();
    flush(&server);
    check();
}
