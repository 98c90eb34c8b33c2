//! Lists of selected columns of events and of persons (`EventsQuery`, `ActorsQuery`), beside the lists of the REST API,
//! what was sent, and SQL that DuckDB computes over the files.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};
use crate::sdk::tools;

const BASE: &str = "/api/projects/@current";
const QUERY: &str = "/api/projects/@current/query/";

/// Events that are sent, and persons of them: the last two are one.
const EVENTS: usize = 120;
const IDS: usize = 7;

/// Reads SQL and the paths of files from its input; prints the rows of DuckDB.
const DUCKDB: &str = "
import duckdb, json, sys
asked = json.load(sys.stdin)
duckdb.sql(f\"CREATE VIEW events AS SELECT * FROM read_parquet({asked['files']})\")
for sql in asked['sql']:
    print(json.dumps([list(row) for row in duckdb.sql(sql).fetchall()]))
";

/// An event that is sent, by its number.
fn event(at: usize) -> Value {
    let minutes = i64::try_from(at).expect("a number") * 7;
    let start = chrono::DateTime::parse_from_rfc3339("2026-01-05T00:00:00Z").expect("a time");
    let time = start + chrono::TimeDelta::minutes(minutes - minutes % 3);
    let (name, browser) = (["view", "buy", "help"][at % 3], ["Firefox", "Safari"][at % 2]);
    json!({
        "event": name, "distinct_id": format!("d{}", at % IDS),
        "uuid": format!("00000000-0000-4000-8000-{at:012}"), "timestamp": time.to_rfc3339(),
        "properties": {
            "$browser": browser, "n": at, "it's": {"a": [at % 4, "}"]},
            "$set": {"email": format!("p{}@example.com", at % IDS), "age": at % IDS},
        },
    })
}

fn start() -> TestServer {
    let server = TestServer::start();
    let (early, late) = (0..EVENTS / 2, EVENTS / 2..EVENTS);
    assert_eq!(server.capture(&early.map(event).collect()).status, 200);
    assert!(server.weir(&["flush"]).output().expect("runs").status.success());
    assert_eq!(server.capture(&late.map(event).collect()).status, 200);
    let (last, before) = (format!("d{}", IDS - 1), format!("d{}", IDS - 2));
    let merge = json!([{"event": "$merge_dangerously", "distinct_id": before, "timestamp": "2026-01-01T00:00:00Z",
                        "properties": {"alias": last}}]);
    assert_eq!(server.capture(&merge).status, 200);
    server
}

fn ask(server: &TestServer, kind: &str, more: &Value) -> Answer {
    let mut node = json!({"kind": kind});
    node.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
    server.post(QUERY, &json!({"query": node}))
}

fn told(server: &TestServer, kind: &str, more: &Value) -> Value {
    let answer = ask(server, kind, more);
    assert_eq!(answer.status, 200, "{more}: {answer}");
    answer.json()
}

fn rows(server: &TestServer, kind: &str, more: &Value) -> Vec<Vec<Value>> {
    let told = told(server, kind, more);
    serde_json::from_value(told["results"].clone()).unwrap_or_else(|_| panic!("{more}: {told}"))
}

/// The persons of the REST API, by their distinct ids.
fn persons(server: &TestServer) -> BTreeMap<String, Value> {
    let listed = server.get(&format!("{BASE}/persons/?limit=100")).json();
    let persons = listed["results"].as_array().expect("persons").clone();
    let ids = |person: &Value| person["distinct_ids"].as_array().expect("ids").clone();
    let of_ids = persons.iter().flat_map(|person| {
        ids(person).into_iter().map(|id| (id.as_str().expect("a text").to_owned(), person.clone()))
    });
    of_ids.collect()
}

#[test]
fn events_have_the_cells_of_the_lists() {
    let mut server = start();
    let columns = json!([
        "*",
        "person",
        "timestamp",
        "person_display_name -- Person",
        "properties.$browser",
        "properties.n AS number",
        "person.properties.email",
        "upper(event)",
        "event",
        "event",
    ]);
    for round in ["in memory", "in files"] {
        let listed = server.get(&format!("{BASE}/events/?limit=100")).json();
        let listed = listed["results"].as_array().expect("events").clone();
        let persons = persons(&server);
        let (mut seen, mut offset) = (Vec::new(), 0);
        loop {
            let page = json!({"select": columns, "after": "all", "orderBy": ["timestamp DESC"],
                              "limit": 40, "offset": offset});
            let told = told(&server, "EventsQuery", &page);
            assert_eq!(
                told["columns"],
                json!([
                    "*",
                    "person",
                    "timestamp",
                    "person_display_name -- Person",
                    "properties.$browser",
                    "number",
                    "person.properties.email",
                    "upper(event)",
                    "event",
                    "event"
                ])
            );
            assert_eq!((&told["limit"], &told["offset"]), (&json!(40), &json!(offset)));
            assert_eq!(told["types"][8], "String", "{}", told["types"]);
            let page: Vec<Vec<Value>> =
                serde_json::from_value(told["results"].clone()).expect("rows");
            offset += page.len();
            seen.extend(page);
            if told["hasMore"] == false {
                break;
            }
            assert!(offset < 200, "it ends");
        }
        assert_eq!(seen.len(), EVENTS + 1, "{round}");
        for (row, event) in seen.iter().zip(&listed) {
            let id = event["distinct_id"].as_str().expect("an id");
            let person = &persons[id];
            let own = &row[0];
            for (name, expected) in [
                ("uuid", &event["id"]),
                ("event", &event["event"]),
                ("distinct_id", &event["distinct_id"]),
                ("properties", &event["properties"]),
                ("timestamp", &event["timestamp"]),
                ("elements_chain", &event["elements_chain"]),
                ("team_id", &json!(1)),
                ("person_mode", &json!("full")),
            ] {
                assert_eq!(&own[name], expected, "{round}: {name} of {event}");
            }
            assert!(own["created_at"].is_string(), "{own}");
            assert_eq!(
                row[1],
                json!({"uuid": person["uuid"], "created_at": person["created_at"],
                       "properties": person["properties"], "distinct_id": id})
            );
            let time = row[2].as_str().map(chrono::DateTime::parse_from_rfc3339);
            let sent = event["timestamp"].as_str().map(chrono::DateTime::parse_from_rfc3339);
            assert_eq!(time, sent, "{round}");
            let name = &person["properties"]["email"];
            assert_eq!(
                row[3],
                json!({"display_name": name, "id": person["uuid"], "distinct_id": id})
            );
            assert_eq!(row[4], event["properties"]["$browser"]);
            let number = event["properties"]["n"].as_i64().map(|n| n.to_string());
            assert_eq!(row[5].as_str(), number.as_deref(), "text, as all properties");
            assert_eq!(&row[6], name);
            let upper = event["event"].as_str().map(str::to_uppercase);
            assert_eq!(row[7].as_str(), upper.as_deref());
            assert_eq!((&row[8], &row[9]), (&event["event"], &event["event"]));
        }
        // Names of persons are those of the project.
        let names = json!({"person_display_name_properties": ["age"]});
        assert_eq!(server.patch(&format!("{BASE}/"), &names).status, 200);
        let named = json!({"select": ["person_display_name", "properties.n"], "after": "all", "events": ["buy"],
                           "properties": [{"key": "age", "type": "person", "value": 0, "operator": "gt"}],
                           "orderBy": ["person_display_name ASC", "properties.n"]});
        let found = rows(&server, "EventsQuery", &named);
        let ages: Vec<&str> =
            found.iter().filter_map(|row| row[0]["display_name"].as_str()).collect();
        let expected = (0..EVENTS).filter(|at| at % 3 == 1 && at % IDS > 0).count();
        assert!(ages.len() == expected && ages.is_sorted(), "{ages:?}");
        let usual = json!({"person_display_name_properties": null});
        assert_eq!(server.patch(&format!("{BASE}/"), &usual).status, 200);
        server.stop();
        server.restart();
    }
}

#[test]
fn events_are_chosen_by_what_is_asked() {
    let server = start();
    let steps = json!({"name": "Bought", "steps": [{"event": "buy"}]});
    let action = server.post(&format!("{BASE}/actions/"), &steps).created();
    let tests = json!({"test_account_filters": [{"key": "$browser", "value": "Safari", "operator": "is_not"}]});
    assert_eq!(server.patch(&format!("{BASE}/"), &tests).status, 200);
    let persons = persons(&server);
    let one = &persons["d2"];
    let merged = &persons[&format!("d{}", IDS - 1)];
    let of_d2 = |at: usize| at % IDS == 2;
    let is_of_merged = |at: usize| at % IDS >= IDS - 2;
    type Holds<'t> = Box<dyn Fn(usize) -> bool + 't>;
    let browser = json!([{"key": "$browser", "value": "Firefox"}]);
    let cases: Vec<(Value, Holds<'_>)> = vec![
        (json!({}), Box::new(|_| true)),
        (json!({"event": "buy"}), Box::new(|at| at % 3 == 1)),
        (json!({"event": "buy", "events": ["help", ""]}), Box::new(|at| at % 3 > 0)),
        (json!({"actionId": action["id"]}), Box::new(|at| at % 3 == 1)),
        (json!({"actionSteps": [{"event": "buy"}, {"event": "view"}]}), Box::new(|at| at % 3 < 2)),
        (json!({"personId": one["uuid"]}), Box::new(of_d2)),
        (json!({"personId": one["id"]}), Box::new(of_d2)),
        (
            json!({"personId": one["id"].to_string(), "event": "buy"}),
            Box::new(|at| of_d2(at) && at % 3 == 1),
        ),
        (json!({"personId": merged["uuid"]}), Box::new(is_of_merged)),
        (json!({"personId": "00000000-0000-4000-8000-000000000000"}), Box::new(|_| false)),
        (json!({"personId": 123_456}), Box::new(|_| false)),
        (json!({"properties": browser}), Box::new(|at| at % 2 == 0)),
        (
            json!({"fixedProperties": browser, "properties": [{"key": "n", "value": 50, "operator": "gt"}]}),
            Box::new(|at| at % 2 == 0 && at > 50),
        ),
        (
            json!({"properties": [{"key": "email", "type": "person", "value": "p2@example.com"}]}),
            Box::new(of_d2),
        ),
        (json!({"filterTestAccounts": true}), Box::new(|at| at % 2 == 0)),
        (
            json!({"where": ["event = 'buy'", "properties.$browser = 'Safari' or properties.n < 10"]}),
            Box::new(|at| at % 3 == 1 && (at % 2 == 1 || at < 10)),
        ),
        (
            json!({"where": ["person.properties.email = 'p2@example.com'"], "orderBy": ["timestamp DESC"]}),
            Box::new(of_d2),
        ),
        (json!({"where": ["event in ('buy', 'it''s') -- a comment"]}), Box::new(|at| at % 3 == 1)),
        (json!({"where": ["toFloat(properties.n) > {n}"]}), Box::new(|_| false)),
        (
            json!({"after": "2026-01-05T05:00:00Z", "before": "2026-01-05T09:00:00"}),
            Box::new(|at| {
                let minutes = at * 7 - at * 7 % 3;
                minutes > 300 && minutes < 540
            }),
        ),
    ];
    for (more, holds) in &cases {
        if more["where"][0].as_str().is_some_and(|text| text.contains("{n}")) {
            assert_eq!(
                ask(&server, "EventsQuery", &json!({"where": more["where"], "after": "all"}))
                    .status,
                400
            );
            continue;
        }
        let expected: Vec<usize> = (0..EVENTS).rev().filter(|at| holds(*at)).collect();
        for order in ["timestamp DESC", "uuid DESC", "toInt(properties.n) DESC"] {
            let mut node = json!({"select": ["properties.n", "timestamp"], "after": "all", "orderBy": [order],
                                  "where": [], "limit": 1000});
            let fields = node.as_object_mut().expect("an object");
            fields.extend(more.as_object().expect("one").clone());
            let mut conditions = more["where"].as_array().cloned().unwrap_or_default();
            conditions.push(json!("event != '$merge_dangerously'"));
            node["where"] = Value::Array(conditions);
            let found: Vec<usize> = rows(&server, "EventsQuery", &node)
                .iter()
                .map(|row| row[0].as_str().and_then(|n| n.parse().ok()).expect("a number"))
                .collect();
            let mut same = found.clone();
            same.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(same, expected, "{node}");
            if order != "timestamp DESC" {
                assert_eq!(found, expected, "{node}");
            }
            let minutes = |at: &usize| at * 7 - at * 7 % 3;
            assert!(found.iter().rev().is_sorted_by_key(minutes), "{node}: {found:?}");
        }
    }
    // Without dates, those of the last day alone.
    assert!(rows(&server, "EventsQuery", &json!({})).is_empty());
    let now = json!([{"event": "now", "distinct_id": "d1"}]);
    assert_eq!(server.capture(&now).status, 200);
    let found = rows(&server, "EventsQuery", &json!({}));
    assert_eq!((found.len(), &found[0][0]["event"]), (1, &json!("now")));
}

#[test]
fn rows_are_grouped_as_duckdb_groups_them() {
    let tools = tools();
    let mut server = start();
    let asked = [
        (
            json!({"select": ["event", "count()", "uniq(distinct_id)"], "event": null}),
            "SELECT event, count(*), count(DISTINCT distinct_id) FROM events GROUP BY event ORDER BY 2 DESC, 1",
        ),
        (
            json!({"select": ["properties.$browser", "sumIf(toFloat(properties.n), event = 'buy') AS bought", "1"],
                   "where": ["properties.n >= 30"], "orderBy": ["bought DESC"]}),
            "SELECT \"p_$browser\" AS b, \
             sum(CAST(json_extract_string(properties, '$.n') AS DOUBLE)) FILTER (WHERE event = 'buy') AS s, 1 \
             FROM events WHERE CAST(json_extract_string(properties, '$.n') AS DOUBLE) >= 30 GROUP BY b ORDER BY s DESC",
        ),
        (
            json!({"select": ["toDate(timestamp) AS day", "distinct_id", "max(toInt(properties.n))"],
                   "where": ["count() > 3", "event != 'help'"], "orderBy": ["day", "distinct_id DESC"], "limit": 9}),
            "SELECT CAST(CAST(timestamp AT TIME ZONE 'UTC' AS DATE) AS VARCHAR) AS day, distinct_id, \
             max(CAST(json_extract_string(properties, '$.n') AS BIGINT)) FROM events WHERE event != 'help' \
             GROUP BY day, distinct_id HAVING count(*) > 3 ORDER BY day, distinct_id DESC LIMIT 9",
        ),
        (
            json!({"select": ["avg(toFloat(properties.n))"], "events": ["buy", "view"], "before": "2026-01-05T06:00:00Z"}),
            "SELECT avg(CAST(json_extract_string(properties, '$.n') AS DOUBLE)) FROM events \
             WHERE event IN ('buy', 'view') AND timestamp < '2026-01-05T06:00:00Z'",
        ),
        (
            json!({"select": ["uuid", "row_number() OVER (ORDER BY uuid) AS place"], "orderBy": ["timestamp DESC"],
                   "limit": 5, "offset": 7}),
            "SELECT uuid, row_number() OVER (ORDER BY uuid) AS place FROM events ORDER BY timestamp DESC, uuid DESC \
             LIMIT 5 OFFSET 7",
        ),
    ];
    let found = |server: &TestServer| -> Vec<Vec<Vec<Value>>> {
        let of_one = |(node, _): &(Value, &str)| {
            let mut node = node.clone();
            node["after"] = json!("all");
            rows(server, "EventsQuery", &node)
        };
        asked.iter().map(of_one).collect()
    };
    let in_memory = found(&server);
    server.stop();
    let sql: Vec<&str> = asked.iter().map(|(_, sql)| *sql).collect();
    let body = json!({"sql": sql, "files": server.files()});
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), body.to_string()).expect("written");
    let mut command = Command::new(tools.join("readers/bin/python"));
    command.args(["-c", DUCKDB]).stdin(file.reopen().expect("the file"));
    let output = command.output().expect("Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    server.restart();
    let in_files = found(&server);
    assert_eq!(said.lines().count(), asked.len());
    for (at, line) in said.lines().enumerate() {
        let expected: Vec<Vec<Value>> = serde_json::from_str(line).expect("rows");
        assert!(!expected.is_empty(), "{}", sql[at]);
        assert_eq!(in_memory[at], expected, "{}", sql[at]);
        assert_eq!(in_files[at], expected, "{}", sql[at]);
    }
}

#[test]
fn what_is_no_expression_is_no_sql() {
    let server = start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let theirs = json!({"api_key": other["api_token"], "event": "secret", "distinct_id": "x"});
    let json_type = [("content-type", "application/json")];
    assert_eq!(server.send("POST", "/capture/", &json_type, theirs.to_string()).status, 200);
    let many = |text: &str, count: usize| vec![text; count].join(" + ");
    for (kind, more, attr) in [
        (
            "EventsQuery",
            json!({"select": ["event FROM events; DROP TABLE events --"]}),
            json!("query__select"),
        ),
        (
            "EventsQuery",
            json!({"select": ["(SELECT count(*) FROM persons)"]}),
            json!("query__select"),
        ),
        ("EventsQuery", json!({"select": ["event AS a, uuid"]}), json!("query__select")),
        (
            "EventsQuery",
            json!({"select": ["event AS \"a\" FROM events) --"]}),
            json!("query__select"),
        ),
        ("EventsQuery", json!({"where": ["true) UNION SELECT 1 --"]}), json!("query__where")),
        ("EventsQuery", json!({"orderBy": ["event; SELECT 1"]}), json!("query__orderBy")),
        ("EventsQuery", json!({"select": vec!["event"; 101]}), json!("query__select")),
        ("EventsQuery", json!({"select": [many("1", 202)]}), json!("query__select")),
        ("EventsQuery", json!({"select": ["(".repeat(5000)]}), json!("query__select")),
        (
            "EventsQuery",
            json!({"select": (0..30).map(|at| many(&at.to_string(), 90)).collect::<Vec<_>>()}),
            Value::Null,
        ),
        ("EventsQuery", json!({"select": ["nothing"]}), Value::Null),
        ("EventsQuery", json!({"select": ["$1"]}), Value::Null),
        (
            "EventsQuery",
            json!({"select": ["repeat(event, 100000000)"], "after": "all"}),
            Value::Null,
        ),
        ("EventsQuery", json!({"where": ["count() > 1"], "select": ["event"]}), Value::Null),
        ("EventsQuery", json!({"select": ["count(sum(1))"]}), Value::Null),
        ("EventsQuery", json!({"actionId": 99}), json!("query__actionId")),
        ("EventsQuery", json!({"personId": "nobody"}), json!("query__personId")),
        ("EventsQuery", json!({"after": "yesterday"}), json!("query__after")),
        ("EventsQuery", json!({"offset": -5}), json!("query__offset")),
        ("EventsQuery", json!({"source": {"kind": "InsightActorsQuery"}}), json!("query__source")),
        ("ActorsQuery", json!({"select": ["id FROM persons --"]}), json!("query__select")),
        ("ActorsQuery", json!({"select": ["nothing"]}), Value::Null),
        ("ActorsQuery", json!({"source": {"kind": "TrendsQuery"}}), json!("query__source__kind")),
        ("ActorsQuery", json!({"source": {"kind": "HogQLQuery"}}), json!("query__source__query")),
        (
            "ActorsQuery",
            json!({"source": {"kind": "HogQLQuery", "query": "SELECT 1) AS a; --"}}),
            Value::Null,
        ),
        (
            "ActorsQuery",
            json!({"source": {"kind": "HogQLQuery", "query": "EXPLAIN SELECT 1"}}),
            Value::Null,
        ),
        (
            "ActorsQuery",
            json!({"source": {"kind": "HogQLQuery", "query": "SELECT * FROM information_schema.df_settings"}}),
            Value::Null,
        ),
        (
            "ActorsQuery",
            json!({"source": {"kind": "HogQLQuery", "query": "DELETE FROM events"}}),
            Value::Null,
        ),
        (
            "ActorsQuery",
            json!({"properties": [{"key": "n", "value": 1, "type": "event"}]}),
            json!("query__properties"),
        ),
    ] {
        let answer = ask(&server, kind, &more);
        let told = answer.json();
        let expected = (400, &json!("validation_error"), &attr);
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{more}: {told}");
    }
    // What is far behind is empty, and what is much is bounded by the settings.
    let far = json!({"after": "all", "offset": 1_000_000_000, "limit": 50_000, "orderBy": ["timestamp DESC"]});
    assert!(rows(&server, "EventsQuery", &far).is_empty());
    let all = told(&server, "EventsQuery", &json!({"after": "all", "limit": 10_000_000}));
    assert_eq!((&all["limit"], &all["hasMore"]), (&json!(50_000), &json!(false)));
    assert_eq!(all["results"].as_array().map(Vec::len), Some(EVENTS + 1));
    assert!(!all.to_string().contains("secret"), "of another project");
}

#[test]
fn persons_are_those_of_the_list() {
    let server = start();
    let listed = server.get(&format!("{BASE}/persons/?limit=100")).json();
    let listed = listed["results"].as_array().expect("persons").clone();
    let uuids = |persons: &[Value]| -> Vec<Value> {
        persons.iter().map(|person| person["uuid"].clone()).collect()
    };
    let ids = |more: Value| -> Vec<Value> {
        let kind = more["kind"].as_str().unwrap_or("ActorsQuery").to_owned();
        rows(&server, &kind, &more).into_iter().map(|mut row| row.swap_remove(0)).collect()
    };
    let told = told(
        &server,
        "ActorsQuery",
        &json!({"select": ["person", "id", "created_at", "person.$delete", "properties.email"]}),
    );
    assert_eq!(
        told["columns"],
        json!(["person", "id", "created_at", "person.$delete", "properties.email"])
    );
    assert_eq!((&told["missing_actors_count"], &told["hasMore"]), (&json!(0), &json!(false)));
    let found: Vec<Vec<Value>> = serde_json::from_value(told["results"].clone()).expect("rows");
    let mut newest = listed.clone();
    // Of the same time by their ids, where the list has the largest first.
    newest.sort_by_key(|person| {
        (std::cmp::Reverse(person["created_at"].to_string()), person["uuid"].to_string())
    });
    assert_eq!(found.iter().map(|row| row[1].clone()).collect::<Vec<_>>(), uuids(&newest));
    for (row, person) in found.iter().zip(&newest) {
        let mut body = person.clone();
        body["type"] = json!("person");
        assert_eq!(row[0], body);
        let times = [&row[2], &person["created_at"]];
        let times = times.map(|time| time.as_str().map(chrono::DateTime::parse_from_rfc3339));
        assert_eq!(times[0], times[1]);
        assert_eq!((&row[3], &row[4]), (&json!(1), &person["properties"]["email"]));
    }
    let mut by_id = uuids(&listed);
    by_id.sort_by_key(Value::to_string);
    assert_eq!(ids(json!({"select": ["id"]})), by_id);
    by_id.reverse();
    assert_eq!(
        ids(json!({"select": ["id"], "orderBy": ["id DESC"], "limit": 3, "offset": 2})),
        by_id[2..5]
    );
    let email = |number: usize| json!(format!("p{number}@example.com"));
    let mails = |more: Value| {
        let mut node = json!({"select": ["properties.email"], "orderBy": ["person"]});
        node.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        ids(node)
    };
    let merged = listed
        .iter()
        .find(|person| person["distinct_ids"].as_array().is_some_and(|ids| ids.len() > 1));
    let merged = merged.expect("one")["properties"]["email"].clone();
    for (more, expected) in [
        (json!({"search": "P3@EXAMPLE"}), vec![email(3)]),
        (json!({"search": format!("d{}", IDS - 1)}), vec![merged.clone()]),
        (
            json!({"properties": [{"key": "age", "value": 2, "operator": "lt"}]}),
            vec![email(0), email(1)],
        ),
        (
            json!({"properties": [{"key": "age", "value": 2, "operator": "lt"}], "orderBy": ["person DESC"]}),
            vec![email(1), email(0)],
        ),
        (
            json!({"fixedProperties": [{"key": "email", "type": "person", "value": ["p1@example.com", "p4@example.com"]}],
                "properties": [{"key": "age", "value": 2, "operator": "gt"}]}),
            vec![email(4)],
        ),
        (json!({"kind": "PersonsQuery", "search": "p3@"}), vec![email(3)]),
        (json!({"kind": "PersonsNode", "distinctId": "d2"}), vec![email(2)]),
        (
            json!({"source": {"kind": "HogQLQuery", "query": "SELECT DISTINCT person_id FROM events WHERE properties.n IN (1, 2)"}}),
            vec![email(1), email(2)],
        ),
        (
            json!({"source": {"kind": "HogQLQuery", "query": "SELECT event, person_id FROM events WHERE properties.n = {n}",
                           "values": {"n": 3}}, "search": "example"}),
            vec![email(3)],
        ),
        (json!({"source": {"kind": "HogQLQuery", "query": "SELECT uuid FROM events"}}), vec![]),
    ] {
        assert_eq!(mails(more.clone()), expected, "{more}");
    }
    // Of SQL, with its own columns.
    let source = json!({"kind": "HogQLQuery", "query": "SELECT person_id AS actor_id, count() AS bought FROM events WHERE event = 'buy' GROUP BY person_id"});
    let found = rows(
        &server,
        "ActorsQuery",
        &json!({"source": source, "select": ["bought", "person"], "orderBy": ["bought DESC", "id"]}),
    );
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    let of_ids = persons(&server);
    for at in (0..EVENTS).filter(|at| at % 3 == 1) {
        let person = of_ids[&format!("d{}", at % IDS)]["uuid"].as_str().expect("a uuid");
        *expected.entry(person.to_owned()).or_default() += 1;
    }
    let counts: BTreeMap<String, i64> = found
        .iter()
        .map(|row| {
            (row[1]["uuid"].as_str().unwrap_or_default().to_owned(), row[0].as_i64().unwrap_or(0))
        })
        .collect();
    assert_eq!(counts, expected);
    assert!(found.is_sorted_by_key(|row| -row[0].as_i64().unwrap_or(0)));
    // Grouped.
    let grouped =
        json!({"select": ["toInt(properties.age) % 2 AS odd", "count()"], "orderBy": ["odd"]});
    let found = rows(&server, "ActorsQuery", &grouped);
    let odd = listed
        .iter()
        .filter(|person| person["properties"]["age"].as_i64().unwrap_or(0) % 2 == 1)
        .count();
    assert_eq!(
        found,
        [[json!(0), json!(listed.len() - odd)], [json!(1), json!(odd)]].map(Vec::from)
    );
}

#[test]
fn who_is_behind_a_point_can_be_ordered_and_filtered() {
    let server = start();
    let trend = json!({"kind": "TrendsQuery", "series": [{"event": "buy"}], "dateRange": {"date_from": "2026-01-05", "date_to": "2026-01-05"}});
    let source = json!({"kind": "InsightActorsQuery", "source": trend});
    let plain = json!({"source": source, "select": ["id", "event_count", "actor"]});
    let plain = rows(&server, "ActorsQuery", &plain);
    assert_eq!(plain.len(), IDS - 1);
    let email = |row: &[Value]| row[2]["properties"]["email"].to_string();
    type Key = fn(&[Value]) -> String;
    let orders: [(&str, Key); 3] = [
        ("person", |row| row[2]["properties"]["email"].to_string()),
        ("id", |row| row[0].to_string()),
        ("event_count DESC, actor_id DESC", |row| {
            format!("{:09.0}", 1e6 - row[1].as_f64().unwrap_or(0.0))
        }),
    ];
    for (order, key) in orders {
        let asked = json!({"source": source, "select": ["id", "event_count", "person"], "orderBy": [order]});
        let found = rows(&server, "ActorsQuery", &asked);
        assert!(found.is_sorted_by_key(|row| key(row)), "{order}: {found:?}");
        let set = |rows: &[Vec<Value>]| -> BTreeMap<String, (Value, String)> {
            rows.iter().map(|row| (row[0].to_string(), (row[1].clone(), email(row)))).collect()
        };
        assert_eq!(set(&found), set(&plain), "{order}");
    }
    let asked = json!({"source": source, "select": ["properties.email", "event_count + 1 AS more"], "orderBy": ["person"],
                       "properties": [{"key": "age", "value": 2, "operator": "lt"}], "limit": 1});
    let told = told(&server, "ActorsQuery", &asked);
    assert_eq!(
        (&told["columns"], &told["hasMore"]),
        (&json!(["properties.email", "more"]), &json!(true))
    );
    let count = (0..EVENTS).filter(|at| at % 3 == 1 && at % IDS == 0).count();
    let count = f64::from(u32::try_from(count).expect("few"));
    assert_eq!(told["results"], json!([["p0@example.com", count + 1.0]]), "{told}");
}
