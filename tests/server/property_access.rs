//! Properties in SQL as analysts write them, on rows in memory and in files.

use serde_json::Value;
use serde_json::json;

use crate::harness::TestServer;

fn start() -> TestServer {
    let server = TestServer::start();
    let event = |id: &str, properties: Value| json!({"event": "buy", "distinct_id": id, "timestamp": "2026-01-01T00:00:00Z", "properties": properties});
    let events = [
        event(
            "a",
            json!({"plan": "pro", "Price": 9.5, "$browser": "Chrome", "revenue": 20,
                          "address": {"city": "Köln", "geo": {"lat": 50.9}}, "is_paid": true,
                          "$set": {"plan": "pro", "Team": "Ops"}}),
        ),
        event("b", json!({"plan": "free", "Price": "12", "$browser": "Safari", "it's": "odd"})),
        event("c", json!({"plan": "pro", "Price": "free", "address": "none", "is_paid": false})),
        event("d", json!({"Price": 100})),
    ];
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

/// The ids of events for which a condition holds.
fn ids(server: &TestServer, condition: &str) -> String {
    let sql = format!("SELECT distinct_id AS id FROM events e WHERE {condition} ORDER BY 1");
    server.query(&sql).iter().filter_map(|row| row["id"].as_str()).collect()
}

#[test]
fn accesses_give_what_was_sent_whatever_their_form() {
    let server = start();
    for round in ["in memory", "in files"] {
        for (condition, expected) in [
            ("properties.plan = 'pro'", "ac"),
            ("e.properties.plan = 'pro'", "ac"),
            ("properties['plan'] = 'pro'", "ac"),
            ("e.properties['plan'] = 'pro'", "ac"),
            ("properties.plan IS NULL", "d"),
            ("properties.\"$browser\" = 'Chrome'", "a"),
            ("properties['$browser'] IN ('Chrome', 'Safari')", "ab"),
            ("properties['it''s'] = 'odd'", "b"),
            ("properties.address.city = 'Köln'", "a"),
            ("properties['address'].city = 'Köln'", "a"),
            ("e.properties.address['geo'].lat = 50.9", "a"),
            ("properties.address = 'none'", "c"),
            // Keys have the case in which they were written.
            ("properties.Price > 10", "bd"),
            ("properties.price > 10", ""),
            ("10 < properties.Price AND properties.Price <= 12.0", "b"),
            ("properties.Price = 9.5", "a"),
            ("properties.Price * 2 = 200", "d"),
            ("properties.Price = 'free'", "c"),
            ("properties.is_paid = true", "a"),
            ("properties.is_paid = false", "c"),
            ("properties.revenue > 10", "a"),
            ("properties.revenue BETWEEN 15 AND 25", "a"),
            // By texts, 100 lies between 1 and 15, and neither 9.5 nor 12 does.
            ("properties.Price BETWEEN 9 AND 15", "ab"),
            ("properties.Price NOT BETWEEN 9 AND 15", "d"),
            ("properties.Price IN (12.0, 100)", "bd"),
            ("properties.Price NOT IN (12.0, 100)", "a"),
            ("properties.Price IN ('free', '12')", "bc"),
            ("properties.is_paid IN (false)", "c"),
            ("properties ->> 'plan' = 'pro'", "ac"),
            ("'pro' = e.properties ->> 'plan' AND properties ->> 'is_paid' IS NOT NULL", "ac"),
            ("properties -> 'address' ->> 'city' LIKE 'K%'", "a"),
            ("properties ->> 'plan' IN ('free')", "b"),
            (
                "EXISTS (SELECT 1 FROM persons p WHERE p.uuid = e.person_id AND p.properties.plan = e.properties.plan)",
                "a",
            ),
        ] {
            assert_eq!(ids(&server, condition), expected, "{round}: {condition}");
        }
        let rows = server.query(
            "SELECT properties.plan, count(*) AS n, count(DISTINCT properties.Price) AS prices FROM events \
             GROUP BY properties.plan HAVING properties.plan IS NOT NULL ORDER BY properties.plan",
        );
        let expected = [
            json!({"plan": "free", "n": 1, "prices": 1}),
            json!({"plan": "pro", "n": 2, "prices": 2}),
        ];
        assert_eq!(rows, expected, "{round}");
        let joined = server.query(
            "SELECT e.properties.plan AS sent, p.properties.Team FROM events e \
             JOIN persons p ON p.uuid = e.person_id WHERE p.properties.plan = 'pro'",
        );
        assert_eq!(joined, [json!({"sent": "pro", "Team": "Ops"})], "{round}");
        let summed =
            server.query("SELECT sum(try_cast(properties.Price AS double)) AS sum FROM events");
        assert_eq!(summed, [json!({"sum": 121.5})], "{round}");
        let flushed = server.weir(&["flush"]).output().expect("runs");
        assert!(flushed.status.success(), "{flushed:?}");
    }
}

/// Persons as of now, of events that have one.
#[test]
fn events_know_their_persons() {
    let server = start();
    let merged = json!([
        {"event": "$identify", "distinct_id": "ann", "timestamp": "2026-01-02T00:00:00Z",
         "properties": {"$anon_distinct_id": "b", "$set": {"plan": "team", "age": 41, "a": {"b": 1}, "vip": true}}},
        {"event": "seen", "distinct_id": "e", "timestamp": "2026-01-02T00:00:00Z",
         "properties": {"$process_person_profile": false}},
    ]);
    assert_eq!(server.capture(&merged).status, 200);
    for round in ["in memory", "in files"] {
        for (condition, expected) in [
            ("person.properties.plan = 'pro'", "a"),
            ("e.person.properties['plan'] = 'team'", "annb"),
            ("person.properties.plan = properties.plan", "a"),
            ("person.properties.age > 40", "annb"),
            ("person.properties.age < 40", ""),
            ("person.properties.age BETWEEN 5 AND 50", "annb"),
            ("person.properties.age NOT IN (41, 7)", ""),
            ("person.properties.vip = true", "annb"),
            ("person.properties.a.b = 1", "annb"),
            ("person.properties.a.b = 1 AND person.properties['a.b'] IS NULL", "annb"),
            ("person.is_identified", "annb"),
            ("person.id = e.person_id AND event = 'buy'", "abcd"),
            ("person.created_at IS NULL", "e"),
            (
                "EXISTS (SELECT 1 FROM events o WHERE o.person.properties.plan = 'team' AND o.uuid = e.uuid)",
                "annb",
            ),
        ] {
            assert_eq!(ids(&server, condition), expected, "{round}: {condition}");
        }
        // Names and keys that would be another text if they were printed and parsed again.
        for name in ["e", r#""e\""x""#, r#""two """" of them""#] {
            let sql = format!(
                r"SELECT count(*) AS n FROM events AS {name} WHERE {name}.person.properties.plan = 'team'
                  AND {name}.person.properties['it\''s'] IS NULL AND {name}.person.properties['a''''b'] IS NULL"
            );
            assert_eq!(server.query(&sql), [json!({"n": 2})], "{round}: {sql}");
        }
        let rows = server.query(
            "SELECT person.properties.plan, count(*) AS n FROM events GROUP BY person.properties.plan \
             ORDER BY person.properties.plan NULLS LAST",
        );
        let expected = [
            json!({"plan": "pro", "n": 1}),
            json!({"plan": "team", "n": 2}),
            json!({"plan": null, "n": 3}),
        ];
        assert_eq!(rows, expected, "{round}");
        let all = server
            .query("SELECT *, person.properties.plan AS x FROM events WHERE distinct_id = 'a'");
        let plain = server.query("SELECT * FROM events WHERE distinct_id = 'a'");
        let mut with = plain[0].clone();
        with["x"] = json!("pro");
        assert_eq!(all, [with], "{round}");
        let flushed = server.weir(&["flush"]).output().expect("runs");
        assert!(flushed.status.success(), "{flushed:?}");
    }
}

/// So that files are pruned by its bounds, and the JSON text is not read.
#[test]
fn properties_with_a_column_are_read_from_it() {
    let server = start();
    let plan = |sql: &str| {
        let rows = server.query(&format!("EXPLAIN {sql}"));
        rows.iter().map(Value::to_string).collect::<String>()
    };
    let promoted = plan("SELECT count(*) AS n FROM events WHERE properties['$browser'] = 'Chrome'");
    assert!(promoted.contains("p_$browser") && !promoted.contains("json_as_text"), "{promoted}");
    let other = plan("SELECT count(*) AS n FROM events WHERE properties.plan = 'pro'");
    assert!(other.contains("json_as_text"), "{other}");
    // Persons have no such columns.
    let persons = plan("SELECT count(*) AS n FROM persons WHERE properties['$browser'] = 'Chrome'");
    assert!(persons.contains("json_as_text"), "{persons}");
}

#[test]
fn persons_are_the_merged_ones_whatever_else_of_their_events_is_read() {
    let server = TestServer::start();
    let event = |name: &str, id: &str, properties: Value| json!({"event": name, "distinct_id": id, "timestamp": "2026-01-01T00:00:00Z", "properties": properties});
    let mut events = Vec::new();
    for person in ["a", "b", "c"] {
        events.push(event("see", &format!("{person}-device"), json!({"at": "shop"})));
        events.push(event("see", person, json!({"at": "shop"})));
        let device = format!("{person}-device");
        events.push(event("$identify", person, json!({"$anon_distinct_id": device})));
    }
    assert_eq!(server.capture(&json!(events)).status, 200);
    let trend = |math: &str, more: Value| {
        let mut query = json!({
            "kind": "TrendsQuery", "series": [{"event": "see", "math": math}],
            "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-01"},
        });
        query.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        let answer = server.post("/api/projects/@current/query/", &json!({"query": query}));
        answer.json()["results"][0]["data"][0].clone()
    };
    for round in ["in memory", "in files"] {
        for condition in ["true", "properties.at = 'shop'", "properties['at'] IS NOT NULL"] {
            let sql = format!(
                "SELECT count(DISTINCT person_id) AS persons, max(properties->>'at') AS place \
                 FROM events WHERE event = 'see' AND {condition}"
            );
            let expected = json!({"persons": 3, "place": "shop"});
            assert_eq!(server.query(&sql), [expected], "{round} {condition}");
        }
        let by_place = json!({"breakdownFilter": {"breakdown": "at"}});
        for math in ["dau", "weekly_active", "first_time_for_user"] {
            assert_eq!(trend(math, by_place.clone()), 3, "{round} {math}");
        }
        let flushed = server.weir(&["flush"]).output().expect("runs");
        assert!(flushed.status.success(), "{flushed:?}");
    }
}

/// Goal: a property has one value, whether it has a column or not, and whatever type its column has. Method: the same values
/// under a name with a column of numbers and one without, in every place that SQL has; the numbers follow from the values.
#[test]
fn a_column_hides_no_value_of_another_type() {
    let server = TestServer::start();
    let values = [
        json!("0.50"),
        json!("3.50"),
        json!(4.5),
        json!("abc"),
        json!("1e3"),
        json!(" 5 "),
        json!("10"),
        json!(true),
        json!(null),
        json!([1]),
        json!({"a": 1}),
        json!(7),
    ];
    let events: Vec<Value> = (1..)
        .zip(values)
        .map(|(day, value)| {
            json!({"event": "p", "distinct_id": "a", "timestamp": format!("2026-01-{day:02}T00:00:00Z"),
                   "properties": {"price": value, "cost": value, "$is_server": value, "served": value,
                                  "utm_content": value, "id": 9_007_199_254_740_991_i64 + day}})
        })
        .collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let texts = json!([
        "0.50",
        "3.50",
        "4.5",
        "abc",
        "1e3",
        " 5 ",
        "10",
        "true",
        null,
        "[1]",
        "{\"a\":1}",
        "7"
    ]);
    for round in ["in memory", "in files"] {
        for key in ["price", "cost", "$is_server", "served", "utm_content"] {
            let of = format!("properties['{key}']");
            for (sql, expected) in [
                ("count(*) FILTER (WHERE $ IS NULL)", json!(1)),
                ("countIf($ > 2.5)", json!(6)),
                ("countIf($ = 'abc')", json!(1)),
                ("countIf($ LIKE '3%')", json!(1)),
                ("countIf($ IN ('10', '3.50'))", json!(2)),
                ("countIf($ IN (10, 3.5))", json!(2)),
                ("countIf($ = true)", json!(1)),
                ("countIf($ = false)", json!(0)),
                ("count(DISTINCT $)", json!(11)),
                ("sum(toFloat($))", json!(1030.5)),
                ("sum(try_cast($ AS double))", json!(1030.5)),
                ("sum($)", json!(1030.5)),
                ("sum($ * 2)", json!(2061)),
            ] {
                let sql = format!("SELECT {} AS x FROM events", sql.replace('$', &of));
                let found = server.query(&sql)[0]["x"].clone();
                assert_eq!(found.as_f64(), expected.as_f64(), "{round}: {sql}");
            }
            let sql = format!("SELECT {of} AS x FROM events ORDER BY timestamp");
            let rows: Value = server.query(&sql).iter().map(|row| row["x"].clone()).collect();
            assert_eq!(rows, texts, "{round}: {key}");
            let list = json!({"kind": "EventsQuery", "select": [of], "event": "p", "after": "2026-01-01", "orderBy": ["timestamp"]});
            let answer =
                server.post("/api/projects/@current/query/", &json!({"query": list})).json();
            let rows: Value =
                answer["results"].as_array().unwrap().iter().map(|row| row[0].clone()).collect();
            assert_eq!(rows, json!(texts.as_array().unwrap()[1..]), "{round}: {key}");
        }
        // Numbers are ordered as such.
        for (sql, expected) in [
            ("SELECT max(properties.price) AS x FROM events", json!(1000)),
            (
                "SELECT properties.price AS x FROM events WHERE properties.price > 0 ORDER BY properties.price DESC LIMIT 1",
                json!("1e3"),
            ),
            (
                "SELECT argMax(properties.utm_content, properties.price) AS x FROM events WHERE properties.price < 100",
                json!("10"),
            ),
        ] {
            let found = server.query(sql)[0]["x"].clone();
            let is_same = found == expected
                || found.as_f64().is_some_and(|own| Some(own) == expected.as_f64());
            assert!(is_same, "{round}: {sql}: {found}");
        }
        // Doubles have no number for every integer.
        for (condition, expected) in [
            ("properties.id = 9007199254740993", 1),
            ("properties.id > 9007199254740993", 10),
            ("9007199254740993 >= properties.id", 2),
            ("properties.id IN (9007199254740993, 9007199254740995)", 2),
        ] {
            let sql = format!("SELECT count(*) FROM events WHERE {condition}");
            assert_eq!(server.count(&sql), expected, "{round}: {condition}");
        }
        server.flush();
    }
}

/// Goal: a truth value is `true` or `false` as filters of insights read it, and no other word is one.
#[test]
fn few_words_are_truth_values() {
    let server = TestServer::start();
    let values = [
        json!(true),
        json!("true"),
        json!("True"),
        json!("TRUE"),
        json!(1),
        json!("1"),
        json!("yes"),
        json!("y"),
        json!("on"),
        json!("t"),
        json!(" true"),
        json!(false),
        json!("false"),
        json!("no"),
        json!("off"),
        json!("f"),
        json!("n"),
        json!(0),
        json!(null),
    ];
    let events: Vec<Value> = values
        .iter()
        .map(|value| json!({"event": "p", "distinct_id": "a", "timestamp": "2026-01-01T00:00:00Z", "properties": {"b": value, "$is_identified": value}}))
        .collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    for round in ["in memory", "in files"] {
        for key in ["b", "\"$is_identified\""] {
            for (condition, expected) in [("= true", 4), ("= false", 2), ("<> true", 2)] {
                let sql = format!("SELECT count(*) FROM events WHERE properties.{key} {condition}");
                assert_eq!(server.count(&sql), expected, "{round}: {sql}");
            }
        }
        server.flush();
    }
}
