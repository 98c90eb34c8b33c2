//! Properties in SQL as analysts write them, on rows in memory and in files.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer};

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
            // What chooses among properties is compared as they are.
            ("CASE WHEN properties.plan = 'pro' THEN properties.Price END > 9", "a"),
            ("coalesce(properties.none, properties.Price) >= length('twelve bytes')", "bd"),
            ("CASE WHEN properties.plan = 'pro' THEN properties.is_paid END = true", "a"),
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
        // Through what chooses among values; a word is no number, and no error.
        let chosen = server.query(
            "SELECT sum(CASE WHEN properties.plan = 'pro' THEN properties.Price ELSE 1 END) AS cases, \
             sum(if(properties.plan = 'pro', properties.Price, 0)) AS ifs, \
             max(properties.Price) - min(properties.Price) AS width, max(properties.Price) / count(*) AS each, \
             count(*) FILTER (WHERE CASE properties.Price WHEN 12 THEN true ELSE false END) AS simple, \
             count(*) FILTER (WHERE properties.Price IS NOT DISTINCT FROM 9.5) AS same \
             FROM events HAVING max(properties.Price) > 99 AND max(properties.Price) < 25 * count(*) + 1",
        );
        let expected =
            json!({"cases": 11.5, "ifs": 9.5, "width": 90.5, "each": 25.0, "simple": 1, "same": 1});
        assert_eq!(chosen, [expected], "{round}");
        let after_ten = server.query(
            "SELECT id FROM (SELECT distinct_id AS id, lag(properties.Price) OVER (ORDER BY distinct_id) > 10 AS is_after \
             FROM events) WHERE is_after",
        );
        assert_eq!(after_ten, [json!({"id": "c"})], "{round}");
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

const QUERY: &str = "/api/projects/1/query/";

/// The answer of a list or an insight.
fn results(server: &TestServer, node: &Value) -> Vec<Value> {
    let answer = server.post(QUERY, &json!({"query": node}));
    assert_eq!(answer.status, 200, "{node}: {answer}");
    answer.json()["results"].as_array().expect("results").clone()
}

type Ids = BTreeSet<String>;

/// The ids of whom a filter of a property finds, by each surface that has filters. Each person has one event, which has the
/// properties of the person.
fn found(server: &TestServer, filter: &Value, sql: &str) -> Vec<(&'static str, Ids)> {
    let of = |kind: &str| {
        let mut filter = filter.clone();
        filter["type"] = kind.into();
        filter
    };
    let texts = |rows: Vec<Value>, id: &dyn Fn(&Value) -> Value| -> Ids {
        rows.iter().map(|row| id(row).as_str().expect("an id").to_owned()).collect()
    };
    let events = |more: Value| {
        let mut node = json!({"kind": "EventsQuery", "select": ["distinct_id"], "after": "2026-01-01", "limit": 1000});
        node.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        texts(results(server, &node), &|row| row[0].clone())
    };
    let trend = |filter: Value| {
        let by = json!({"breakdown": "distinct_id", "breakdown_type": "event_metadata", "breakdown_limit": 500});
        let node = json!({"kind": "TrendsQuery", "series": [{"event": "p"}], "properties": [filter],
            "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-02"}, "breakdownFilter": by});
        let some = results(server, &node).into_iter().filter(|line| line["count"] != 0).collect();
        texts(some, &|line| line["breakdown_value"].clone())
    };
    let listed = |path: &str, filter: &Value, id: &dyn Fn(&Value) -> Value| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", "1000");
        if path == "events" {
            query.append_pair("after", "2026-01-01");
        }
        if !filter.is_null() {
            query.append_pair("properties", &json!([filter]).to_string());
        }
        let query = query.finish();
        let answer = server.get(&format!("/api/projects/1/{path}/?{query}"));
        assert_eq!(answer.status, 200, "{answer}");
        texts(answer.json()["results"].as_array().expect("a list").clone(), id)
    };
    let by_sql = |condition: &str| {
        let rows = server.query(&format!("SELECT distinct_id AS id FROM events WHERE {condition}"));
        texts(rows, &|row| row["id"].clone())
    };
    let actors = json!({"kind": "ActorsQuery", "select": ["person"], "properties": [of("person")], "limit": 1000});
    let rule = json!({"properties": {"type": "AND", "values": [of("person")]}});
    let cohort =
        server.post("/api/projects/1/cohorts/", &json!({"name": "c", "filters": rule})).created();
    let of_cohort = format!("cohorts/{}/persons", cohort["id"]);
    let first_id = |person: &Value| person["distinct_ids"][0].clone();
    let in_cohort = json!({"type": "cohort", "key": "id", "value": cohort["id"]});
    vec![
        ("SQL", by_sql(sql)),
        ("SQL of persons", by_sql(&sql.replace("properties", "person.properties"))),
        ("expressions", events(json!({"where": [sql]}))),
        ("expressions of insights", trend(json!({"type": "hogql", "key": sql}))),
        ("EventsQuery", events(json!({"properties": [of("event")]}))),
        ("EventsQuery of persons", events(json!({"properties": [of("person")]}))),
        ("GET events/", listed("events", &of("event"), &|event| event["distinct_id"].clone())),
        ("insights", trend(of("event"))),
        ("insights of persons", trend(of("person"))),
        ("insights of a cohort", trend(in_cohort)),
        ("GET persons/", listed("persons", &of("person"), &first_id)),
        ("ActorsQuery", texts(results(server, &actors), &|row| first_id(&row[0]))),
        ("a cohort", listed(&of_cohort, &Value::Null, &first_id)),
    ]
}

/// Who has a flag with this filter.
fn flagged(server: &TestServer, key: &str, filter: &Value, ids: &Ids) -> Ids {
    let groups = json!([{"properties": [filter], "rollout_percentage": 100}]);
    let flag = json!({"key": key, "active": true, "filters": {"groups": groups}});
    server.post("/api/projects/1/feature_flags/", &flag).created();
    let has = |id: &&String| {
        let body = json!({"token": TOKEN, "distinct_id": id}).to_string();
        let answer = server.send("POST", "/flags/?v=2", &[], body);
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["flags"][key]["enabled"] == true
    };
    ids.iter().filter(has).cloned().collect()
}

/// Values, each the property of a person and of its one event.
fn shop(values: &[Value]) -> (TestServer, Ids) {
    let server = TestServer::start();
    let ids: Vec<String> = (0..values.len()).map(|at| format!("u{at:02}")).collect();
    let event = |(id, value): (&String, &Value)| {
        let own = json!({"price": value, "cost": value, "utm_content": value, "$is_server": value});
        let mut properties = own.clone();
        properties["$set"] = own;
        json!({"event": "p", "distinct_id": id, "timestamp": "2026-01-01T12:00:00Z", "properties": properties})
    };
    let events: Vec<Value> = ids.iter().zip(values).map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    (server, ids.into_iter().collect())
}

/// Goal: a value is the same number, or none, wherever it is asked, whatever the type of its column. Method: values of which
/// the rule in `src/guide/compatibility.md` says whether they are numbers, by every surface. Flags have the rule of the SDKs.
#[test]
fn values_are_the_same_numbers_everywhere() {
    // Whether it is above 1 to queries and to flags.
    let values = [
        (json!(5), true, true),
        (json!("5"), true, true),
        (json!(" 5 "), true, false),
        (json!("5\t"), true, false),
        (json!("1e3"), true, true),
        (json!("+7"), true, true),
        (json!(0.5), false, false),
        (json!(".5"), false, false),
        (json!("NaN"), false, false),
        (json!("Infinity"), false, false),
        (json!("-inf"), false, false),
        (json!("1e400"), false, false),
        (json!("0x1f"), false, false),
        (json!("1_000"), false, false),
        (json!("abc"), false, false),
        (json!(""), false, false),
        (json!(" "), false, false),
        (json!(true), false, false),
        (json!(null), false, false),
        (json!([5]), false, false),
        (json!({"a": 5}), false, false),
    ];
    let (server, ids) = shop(&values.clone().map(|(value, ..)| value));
    let those = |is: &dyn Fn(&(Value, bool, bool)) -> bool| -> Ids {
        ids.iter().zip(&values).filter(|(_, value)| is(value)).map(|(id, _)| id.clone()).collect()
    };
    let (of_queries, of_flags) = (those(&|own| own.1), those(&|own| own.2));
    for round in ["in memory", "in files"] {
        for key in ["price", "cost", "utm_content", "$is_server"] {
            let filter = json!({"key": key, "operator": "gt", "value": "1"});
            for (surface, found) in found(&server, &filter, &format!("properties['{key}'] > 1")) {
                assert_eq!(found, of_queries, "{round}, {key}: {surface}");
            }
            let of = format!("properties['{key}']");
            // 5, 5, 5, 5, 1000, 7, 0.5 and 0.5.
            for (expression, expected) in [
                ("sum($)", 1028.0),
                ("sum(toFloat($))", 1028.0),
                ("max(toFloat($))", 1000.0),
                ("count(toFloat($))", 8.0),
                ("avg(toFloat($))", 128.5),
                ("quantile(0.5)(toFloat($))", 5.0),
                ("countIf(toFloatOrZero($) > 1)", 6.0),
                ("countIf(try_cast($ AS double) > 1)", 6.0),
                ("countIf($ * 2 > 2)", 6.0),
                ("countIf(divide($, 2) > 0.5)", 6.0),
                ("countIf($ BETWEEN 2 AND 6)", 4.0),
                ("countIf($ IN (5, 7))", 5.0),
                ("countIf(isNaN($))", 0.0),
            ] {
                let expression = expression.replace('$', &of);
                let rows = server.query(&format!("SELECT {expression} AS x FROM events"));
                assert_eq!(rows[0]["x"].as_f64(), Some(expected), "{round}: {expression}");
            }
            // A cast that is not tried fails, as of any other text.
            let sql = format!("SELECT CAST({of} AS double) FROM events WHERE distinct_id = 'u08'");
            let refused = server.post(QUERY, &json!({"query": sql}));
            assert!(refused.status == 400 && refused.to_string().contains("'NaN'"), "{refused}");
            for kind in ["event_properties", "person_properties"] {
                for (math, expected) in [
                    ("sum", 1028.0),
                    ("max", 1000.0),
                    ("min", 0.5),
                    ("avg", 128.5),
                    ("median", 5.0),
                ] {
                    let series = json!([{"event": "p", "math": math, "math_property": key, "math_property_type": kind}]);
                    let day = json!({"date_from": "2026-01-01", "date_to": "2026-01-01"});
                    let node = json!({"kind": "TrendsQuery", "series": series, "dateRange": day});
                    let told = &results(&server, &node)[0]["data"][0];
                    assert_eq!(told.as_f64(), Some(expected), "{round}, {key}: {math} of {kind}");
                }
            }
            let node = json!({"kind": "TrendsQuery", "series": [{"event": "p"}],
                "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-01"},
                "breakdownFilter": {"breakdown": key, "breakdown_histogram_bin_count": 1}});
            let bins = results(&server, &node);
            let bins: Vec<_> =
                bins.iter().map(|bin| (&bin["breakdown_value"], bin["count"].as_f64())).collect();
            assert!(bins.contains(&(&json!("[0.5,1000.01]"), Some(8.0))), "{round}: {bins:?}");
        }
        server.flush();
    }
    let filter = json!({"key": "cost", "type": "person", "operator": "gt", "value": "1"});
    assert_eq!(flagged(&server, "above", &filter, &ids), of_flags);
}

/// Goal: doubles make no two integers one. What fails: `9007199254740993` is not above the integer before it.
#[test]
fn large_integers_are_compared_as_they_are_written_everywhere() {
    let values = [
        json!(9_007_199_254_740_991_u64),
        json!(9_007_199_254_740_992_u64),
        json!(9_007_199_254_740_993_u64),
        json!(" 9007199254740993 "),
        json!("9007199254740994"),
        json!(u64::MAX),
        json!(1e30),
        json!("-1e30"),
        json!("NaN"),
    ];
    let (server, ids) = shop(&values);
    let above: Ids = ids.iter().skip(2).take(5).cloned().collect();
    for round in ["in memory", "in files"] {
        for key in ["price", "cost", "utm_content", "$is_server"] {
            let filter = json!({"key": key, "operator": "gt", "value": "9007199254740992"});
            let sql = format!("properties['{key}'] > 9007199254740992");
            for (surface, found) in found(&server, &filter, &sql) {
                assert_eq!(found, above, "{round}, {key}: {surface}");
            }
        }
        server.flush();
    }
    // SDKs compare doubles.
    let above = above.into_iter().filter(|id| !["u02", "u03"].contains(&&**id)).collect::<Ids>();
    let filter =
        json!({"key": "cost", "type": "person", "operator": "gt", "value": "9007199254740992"});
    assert_eq!(flagged(&server, "above", &filter, &ids), above);
}

/// Goal: a value is one, however its sender writes JSON, and what a breakdown shows is found by a filter. Method: each value
/// as two SDKs write it.
#[test]
fn values_are_one_however_they_are_written() {
    let server = TestServer::start();
    // As Python, Java and others write it, as JavaScript does, and as it is told.
    let values = [
        (r#"["a", "b"]"#, r#"["a","b"]"#, r#"["a","b"]"#),
        (r#"{"b": 1, "a": [1.50]}"#, r#"{"b":1,"a":[1.5]}"#, r#"{"a":[1.5],"b":1}"#),
        (r#"["caf\u00e9"]"#, r#"["café"]"#, r#"["café"]"#),
        ("1.2345678E7", "12345678.0", "12345678.0"),
        ("1.50", "1.5", "1.5"),
        // A text is as it was sent.
        (r#""[1, 2]""#, r#""[1, 2]""#, "[1, 2]"),
        (r#""1.50" "#, r#""\u0031.50""#, "1.50"),
    ];
    let keys = ["cost", "price", "utm_content", "$is_server"];
    let event = |at: usize, value: &str| {
        let own: Vec<String> = keys.iter().map(|key| format!(r#""{key}": {value}"#)).collect();
        let own = own.join(", ");
        format!(
            r#"{{"event": "p", "distinct_id": "u{at}", "timestamp": "2026-01-01T12:00:00Z", "properties": {{{own}, "$set": {{{own}}}}}}}"#
        )
    };
    let events = (0..).step_by(2).zip(&values);
    let events = events.flat_map(|(at, (one, two, _))| [event(at, one), event(at + 1, two)]);
    let batch = events.collect::<Vec<_>>().join(", ");
    let body = format!(r#"{{"api_key": "{TOKEN}", "batch": [{batch}]}}"#);
    assert_eq!(server.send("POST", "/batch/", &[], body).status, 200);
    for round in ["in memory", "in files"] {
        for key in keys {
            let node = json!({"kind": "TrendsQuery", "series": [{"event": "p"}],
                "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-01"},
                "breakdownFilter": {"breakdown": key, "breakdown_limit": 100}});
            let told: BTreeSet<(String, bool)> = results(&server, &node)
                .iter()
                .map(|line| {
                    let value = line["breakdown_value"].as_str().expect("a text").to_owned();
                    (value, line["data"][0].as_f64() == Some(2.0))
                })
                .collect();
            let expected = values.iter().map(|(.., told)| ((*told).to_owned(), true)).collect();
            assert_eq!(told, expected, "{round}, {key}");
            for (at, (.., told)) in (0..).step_by(2).zip(&values) {
                let filter = json!({"key": key, "operator": "exact", "value": told});
                let expected: Ids = [at, at + 1].map(|at| format!("u{at}")).into();
                let sql = format!("properties['{key}'] = '{told}'");
                for (surface, found) in found(&server, &filter, &sql) {
                    assert_eq!(found, expected, "{round}, {key}, {told}: {surface}");
                }
            }
        }
        server.flush();
    }
}

/// Goal: the editor of a filter suggests each value, whatever the type of the column of its property. Method: the same values
/// under a property with a column of texts, one of numbers, and one without.
#[test]
fn values_are_suggested_whatever_their_type() {
    let server = TestServer::start();
    let values = [json!("a"), json!(42), json!("1.5"), json!(true), json!(["x"]), json!(null)];
    let event = |value: &Value| json!({"event": "p", "distinct_id": "u", "properties": {"cost": value, "price": value, "utm_content": value}});
    let events: Vec<Value> = values.iter().map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let expected: BTreeSet<&str> = ["a", "42", "1.5", "true", r#"["x"]"#].into();
    for round in ["in memory", "in files"] {
        for key in ["cost", "price", "utm_content"] {
            let told = server.get(&format!("/api/projects/1/events/values/?key={key}")).json();
            let told = told.as_array().expect("values").iter();
            let names: BTreeSet<&str> = told.filter_map(|own| own["name"].as_str()).collect();
            assert_eq!(names, expected, "{round}: {key}");
        }
        server.flush();
    }
}
