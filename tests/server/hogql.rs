//! HogQL as PostHog's users write it: functions of ClickHouse in the time zone of the project, and values in the place
//! of placeholders. Expected values are those of ClickHouse's documentation, or follow from the sent events.

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};

const QUERY: &str = "/api/projects/@current/query/";

fn start() -> TestServer {
    let server = TestServer::start();
    let zone = json!({"timezone": "Europe/Berlin"});
    assert_eq!(server.patch("/api/projects/@current/", &zone).status, 200);
    let event = |id: &str, at: &str, properties: Value| json!({"event": "buy", "distinct_id": id, "timestamp": at, "properties": properties});
    let events = [
        event("a", "2026-03-28T22:30:00Z", json!({"amount": 10, "plan": "pro", "tags": "x,y"})),
        event("a", "2026-03-28T23:30:00Z", json!({"amount": "20", "plan": "pro"})),
        event("b", "2026-03-29T21:59:59Z", json!({"amount": 5, "plan": ""})),
        event("c", "2026-03-29T22:00:00Z", json!({"plan": "free", "amount": "none"})),
    ];
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

fn ask(server: &TestServer, sql: &str, more: &Value) -> Answer {
    let mut node = json!({"kind": "HogQLQuery", "query": sql});
    if let (Some(node), Some(more)) = (node.as_object_mut(), more.as_object()) {
        node.extend(more.clone());
    }
    server.post(QUERY, &json!({"query": node}))
}

fn rows(server: &TestServer, sql: &str) -> Value {
    let answer = ask(server, sql, &json!({}));
    assert_eq!(answer.status, 200, "{sql}: {answer}");
    answer.json()["results"].clone()
}

#[test]
fn functions_of_clickhouse_are_answered() {
    let server = start();
    for round in ["in memory", "in files"] {
        for (sql, expected) in [
            (
                "SELECT toDate(timestamp) AS day, count() AS n, uniq(person_id) AS persons FROM events \
                 GROUP BY day ORDER BY day",
                json!([["2026-03-28", 1, 1], ["2026-03-29", 2, 2], ["2026-03-30", 1, 1]]),
            ),
            (
                "SELECT toString(toDate(toStartOfDay(timestamp))) AS day, countIf(properties.plan = 'pro') AS pro, \
                 sumIf(toFloat(properties.amount), event = 'buy') AS sum FROM events GROUP BY day ORDER BY day",
                json!([["2026-03-28", 1, 10.0], ["2026-03-29", 1, 25.0], ["2026-03-30", 0, null]]),
            ),
            (
                "SELECT toHour(timestamp), toDayOfWeek(timestamp), toDate(toStartOfWeek(timestamp)), toDate(toMonday(timestamp)) \
                 FROM events ORDER BY timestamp",
                json!([
                    [23, 6, "2026-03-22", "2026-03-23"],
                    [0, 7, "2026-03-29", "2026-03-23"],
                    [23, 7, "2026-03-29", "2026-03-23"],
                    [0, 1, "2026-03-29", "2026-03-30"],
                ]),
            ),
            (
                "SELECT dateDiff('day', toDateTime('2026-03-28T22:30:00Z'), timestamp), \
                 dateDiff('hour', toDateTime('2026-03-28T22:30:00Z'), timestamp), \
                 dateDiff('month', toDateTime('2025-12-31T12:00:00Z'), timestamp), \
                 dateDiff('year', toDateTime('2025-12-31T12:00:00Z'), timestamp) FROM events ORDER BY timestamp",
                json!([[0, 0, 3, 1], [1, 1, 3, 1], [1, 23, 3, 1], [2, 24, 3, 1]]),
            ),
            (
                "SELECT if(notEmpty(properties.plan), upper(properties.plan), 'none') AS plan, \
                 multiIf(toFloat(properties.amount) > 15, 'high', toFloat(properties.amount) > 7, 'middle', 'low') AS price \
                 FROM events ORDER BY timestamp",
                json!([["PRO", "middle"], ["PRO", "high"], ["none", "low"], ["FREE", "low"]]),
            ),
            (
                "SELECT argMax(distinct_id, timestamp), argMin(distinct_id, timestamp), uniqExact(distinct_id), \
                 uniqIf(distinct_id, properties.plan = 'pro') FROM events",
                json!([["c", "a", 3, 1]]),
            ),
            (
                // Of 5, 10 and 20: what is no number does not count.
                "SELECT quantile(0.125)(toFloat(properties.amount)), quantile(0.75)(properties.amount), \
                 quantile(0)(properties.amount), quantile(1)(properties.amount), median(properties.amount) AS middle, \
                 quantiles(0.25, 0.9)(properties.amount), quantileIf(0.5)(properties.amount, properties.plan = 'pro'), \
                 medianIf(properties.amount, distinct_id = 'nobody'), array_length(groupArray(2)(distinct_id)), \
                 array_length(groupUniqArray(9)(distinct_id)), uniqUpTo(2)(distinct_id), uniqUpTo(1)(event) FROM events",
                json!([[6.25, 15.0, 5.0, 20.0, 10.0, [7.5, 18.0], 15.0, null, 2, 3, 3, 1]]),
            ),
            (
                "SELECT quantile(0.5)(toFloat(properties.amount)), median(properties.amount), count(), count() FROM events",
                json!([[10.0, 10.0, 4, 4]]),
            ),
            (
                // Names of columns leave casts out.
                "SELECT sum(n), sum(n::double), avg(toFloat(t)), avg(toInt(t)) FROM (SELECT 1 AS n, '1.5' AS t UNION ALL SELECT 2, '4')",
                json!([[3, 3.0, 2.75, 4.0]]),
            ),
            (
                // JSON and a text that the engine has in another form.
                "SELECT t, count() FROM (SELECT JSONExtractRaw(properties, 'plan') AS t FROM events \
                 UNION ALL SELECT event FROM events WHERE event = 'buy') GROUP BY t HAVING count() > 1 ORDER BY t",
                json!([["\"pro\"", 2], ["buy", 4]]),
            ),
            (
                // What percentile_cont of DataFusion rounds.
                "SELECT quantile(0.1)(n) FROM (SELECT 10 AS n UNION ALL SELECT 30)",
                json!([[12.0]]),
            ),
            (
                "SELECT DISTINCT toHour(timestamp), toDate(timestamp) FROM events \
                 GROUP BY toDate(timestamp), toHour(timestamp) ORDER BY toDate(timestamp), toHour(timestamp) DESC LIMIT 2",
                json!([[23, "2026-03-28"], [23, "2026-03-29"]]),
            ),
            (
                "SELECT properties.plan AS plan, quantile(0.5)(properties.amount) AS half FROM events \
                 GROUP BY plan ORDER BY plan",
                json!([["", 5.0], ["free", null], ["pro", 15.0]]),
            ),
            (
                "SELECT arrayJoin(splitByChar(',', properties.tags)) AS tag FROM events WHERE properties.tags IS NOT NULL ORDER BY tag",
                json!([["x"], ["y"]]),
            ),
            (
                "SELECT toInt('12'), toInt('x'), toFloat('1.5'), ifNull(NULL, 3), startsWith('abc', 'ab'), \
                 replaceAll('aba', 'a', 'c'), empty(''), isNull(NULL), equals(1, 1), greater(1, 2)",
                json!([[12, null, 1.5, 3, true, "cbc", true, true, true, false]]),
            ),
            (
                "SELECT toYear(t), toMonth(t), toDayOfMonth(t), toQuarter(t), toUnixTimestamp(t), toSecond(t), \
                 toString(toDate(addDays(t, 3))), toString(toDate(subtractHours(t, 25))) \
                 FROM (SELECT toDateTime('2026-03-28T23:30:15Z') AS t) q",
                json!([[2026, 3, 29, 1, 1_774_740_615_i64, 15, "2026-04-01", "2026-03-27"]]),
            ),
            (
                "SELECT count() FROM events WHERE timestamp > toDateTime('2026-03-29T00:00:00Z') - toIntervalHour(1)",
                json!([[3]]),
            ),
        ] {
            assert_eq!(rows(&server, sql), expected, "{round}: {sql}");
        }
        let flushed = server.weir(&["flush"]).output().expect("runs");
        assert!(flushed.status.success(), "{flushed:?}");
    }
}

#[test]
fn placeholders_have_values_and_errors_say_what_is_wrong() {
    let server = start();
    let sql = "SELECT count() FROM events WHERE distinct_id IN {ids} AND properties.plan = {plan} AND {all}";
    let values = json!({"values": {"ids": ["a", "b"], "plan": "pro", "all": true}});
    assert_eq!(ask(&server, sql, &values).json()["results"], json!([[2]]));
    let hostile = json!({"values": {"ids": ["a'); DROP TABLE events; --"], "plan": "' OR 1 = 1 --", "all": true}});
    assert_eq!(ask(&server, sql, &hostile).json()["results"], json!([[0]]));
    for (sql, more, words) in [
        (sql, json!({}), "{ids}"),
        (sql, json!({"values": [1]}), "object"),
        (sql, json!({"values": {"ids": {"a": 1}}}), "{ids}"),
        ("SELECT countIf() FROM events", json!({}), "countIf"),
        ("SELECT dateDiff('eon', timestamp, timestamp) FROM events", json!({}), "dateDiff"),
        ("SELECT windowFunnel(timestamp) FROM events", json!({}), "windowFunnel"),
        ("SELECT windowFunnel(10)(timestamp) FROM events", json!({}), "windowFunnel"),
        ("SELECT topK(event) FROM events", json!({}), "topK"),
        ("SELECT quantile(1.5)(properties.amount) FROM events", json!({}), "quantile"),
    ] {
        let answer = ask(&server, sql, &more);
        let told = answer.json();
        let detail = told["detail"].as_str().unwrap_or_default().to_lowercase();
        assert_eq!(answer.status, 400, "{sql}: {told}");
        assert!(detail.contains(&words.to_lowercase()), "{words}: {told}");
    }
}

#[test]
fn filters_stand_for_what_is_sent_beside_a_query() {
    let server = start();
    let count = |sql: &str, filters: Value| -> Value {
        let answer = ask(&server, sql, &json!({"filters": filters}));
        assert_eq!(answer.status, 200, "{sql}: {answer}");
        answer.json()["results"][0][0].clone()
    };
    let by_plan = json!([{"key": "plan", "value": "pro"}]);
    for (filters, expected) in [
        (json!(null), 4),
        (json!({}), 4),
        (json!({"properties": by_plan}), 2),
        (json!({"properties": by_plan, "dateRange": {"date_from": "2026-03-29"}}), 1),
        (json!({"dateRange": {"date_from": "2026-03-29", "date_to": "2026-03-29"}}), 2),
        (json!({"dateRange": {"date_to": "2026-03-28"}}), 1),
        (json!({"dateRange": {"date_from": "all"}}), 4),
        (
            json!({"properties": [{"key": "$session_duration", "type": "session", "operator": "gt", "value": 9}]}),
            0,
        ),
    ] {
        for sql in [
            "SELECT count() FROM events WHERE {filters}",
            "SELECT count(DISTINCT e.uuid) FROM events e WHERE e.event = 'buy' AND ({filters} AND events_are_many IS NULL)",
            "SELECT sum(n) FROM (SELECT event, count() AS n FROM events WHERE {filters} GROUP BY event)",
            "SELECT countIf(person.properties.email IS NULL) FROM events WHERE {filters} LIMIT 1",
        ] {
            let sql = sql.replace("events_are_many", "e.properties.nothing");
            let counted = count(&sql, filters.clone());
            assert_eq!(counted.as_i64().unwrap_or(0), expected, "{sql} {filters}");
        }
    }
    // Only the SELECT that says so is filtered.
    let sql = "SELECT (SELECT count() FROM events) - count() FROM events WHERE {filters}";
    assert_eq!(count(sql, json!({"properties": by_plan})), 2);
    let plan =
        "SELECT properties.plan FROM events WHERE {filters} AND event = 'buy' ORDER BY timestamp";
    assert_eq!(count(plan, json!({"properties": by_plan})), "pro");
    for (sql, filters, told) in [
        ("SELECT {filters} FROM events", json!({}), "{filters} stands in the WHERE"),
        ("SELECT 1 FROM sessions WHERE {filters}", json!({}), "{filters} stands in the WHERE"),
        ("SELECT 1", json!("x"), "query__filters"),
        (
            "SELECT 1",
            json!({"dateRange": {"date_from": "someday"}}),
            "query__filters__dateRange__date_from",
        ),
        (
            "SELECT 1",
            json!({"properties": [{"key": "a", "type": "nothing"}]}),
            "query__filters__properties",
        ),
        ("SELECT {filter} FROM events", json!({}), "has no value"),
    ] {
        let answer = ask(&server, sql, &json!({"filters": filters}));
        assert_eq!(answer.status, 400, "{sql}: {answer}");
        assert!(answer.to_string().contains(told), "{sql}: not {told}: {answer}");
    }
    // A value may have the name.
    let sql = "SELECT {filters}";
    assert_eq!(
        ask(&server, sql, &json!({"values": {"filters": 3}})).json()["results"],
        json!([[3]])
    );
}
