//! Properties that an owner promotes to columns: no answer changes, whether rows are in memory, in files from before, in
//! files from after, or merged; and the columns contain what SQL reads in the properties. The expectations of columns are
//! computed here from what was sent; the other answers are compared with those before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{TOKEN, TestServer, patiently};

const PROMOTED: &str = "/api/projects/1/promoted_properties/";

/// The keys, and the type of the column of each.
const KEYS: [(&str, &str); 4] =
    [("plan", "text"), ("age", "number"), ("a b", "boolean"), ("mixed", "number")];

/// Values of one property, with some of every type.
pub(crate) fn values() -> Vec<Value> {
    vec![
        json!("pro"),
        json!("free"),
        json!(""),
        json!("12"),
        json!(" 7.5"),
        json!("true"),
        json!("FALSE"),
        json!(3),
        json!(-2.5),
        json!(1e300),
        json!(9_007_199_254_740_993_i64),
        json!(true),
        json!(false),
        json!(null),
        json!(["a", 1]),
        json!({"b": {"c": "d"}}),
        json!("ünï\"\\\n"),
    ]
}

fn event(number: usize) -> Value {
    let all = values();
    let of = |shift: usize| all[(number * 7 + shift * 5) % all.len()].clone();
    let mut properties = json!({"n": number});
    for (at, (key, _)) in KEYS.iter().enumerate() {
        // Some events lack it.
        if !(number + at).is_multiple_of(4) {
            properties[*key] = of(at);
        }
    }
    json!({"event": if number.is_multiple_of(3) { "buy" } else { "see" }, "distinct_id": format!("d{}", number % 11),
           "uuid": Uuid::from_u128(number as u128 + 1).to_string(),
           "timestamp": format!("2026-01-{:02}T12:00:00Z", number % 20 + 1), "properties": properties})
}

fn send(server: &TestServer, numbers: std::ops::Range<usize>) {
    let batch: Vec<Value> = numbers.map(event).collect();
    assert_eq!(server.capture(&json!(batch)).status, 200);
}

/// Events as no library of this language writes them: keys that occur twice, and values in other forms.
fn send_raw(server: &TestServer) {
    let raw = [
        r#"{"plan": ["a",  "b"], "age": 1.50}"#,
        r#"{"plan": {"b": 1, "a": 2}, "age": 1E2}"#,
        r#"{"plan": 1.50, "mixed": "1e2"}"#,
        r#"{"plan": "x", "age": 1, "plan": "y", "age": "2", "a b": true, "a b": "false"}"#,
        r#"{"plan": "\u0061\u00e9", "pl\u0061n": "escaped", "mixed": -0}"#,
        r#"{"mixed": 123456789012345678901234567890, "age": 1e400, "plan": 12345678901234567890.0}"#,
        r#"{"other": {"plan": "inner", "age": 5}, "plans": "no"}"#,
    ];
    let event = |(number, properties): (usize, &&str)| {
        let uuid = Uuid::from_u128(number as u128 + 1_000);
        format!(
            r#"{{"event": "raw", "distinct_id": "r", "uuid": "{uuid}", "timestamp": "2026-01-03T00:00:00Z", "properties": {properties}}}"#
        )
    };
    let events: Vec<String> = raw.iter().enumerate().map(event).collect();
    let body = format!(r#"{{"api_key": "{TOKEN}", "batch": [{}]}}"#, events.join(","));
    let answer = server.send("POST", "/batch/", &[("content-type", "application/json")], body);
    assert_eq!(answer.status, 200, "{answer}");
}

/// Questions over the properties; their answers.
fn answers(server: &TestServer) -> Vec<(String, Value)> {
    let mut answers = Vec::new();
    for sql in [
        "SELECT properties.n, properties.plan, properties.age, properties['a b'], properties.mixed FROM events ORDER BY uuid",
        "SELECT count() FROM events WHERE properties.plan = 'pro'",
        "SELECT uuid FROM events WHERE properties.plan = 'pro' ORDER BY uuid",
        "SELECT properties.plan FROM events WHERE uuid = '00000000-0000-0000-0000-00000000000b' LIMIT 1",
        "SELECT properties.plan FROM (SELECT DISTINCT ON (uuid) uuid, properties FROM events) ORDER BY uuid",
        "WITH RECURSIVE events AS (SELECT '{\"plan\":\"a\"}' AS properties, 'z' AS p_plan, 1 AS n UNION ALL \
         SELECT properties, p_plan, n + 1 FROM events WHERE n < 3 AND properties.plan = 'a') SELECT count(*) FROM events",
        "SELECT count() FROM events WHERE properties.plan != 'pro'",
        "SELECT count() FROM events WHERE properties.plan IS NULL",
        "SELECT count() FROM events WHERE properties.plan LIKE '%e%'",
        "SELECT count() FROM events WHERE properties.plan IN ('pro', '12', '[\"a\",1]')",
        "SELECT count() FROM events WHERE properties.plan > 5",
        "SELECT count() FROM events WHERE properties.age > 2 AND properties.mixed < 100",
        "SELECT sum(properties.age + 1), max(toFloat(properties.age)), avg(properties.plan + 0) FROM events",
        "SELECT count() FROM events WHERE properties['a b'] = true",
        "SELECT count() FROM events WHERE properties['a b'] = 'true'",
        "SELECT count() FROM events WHERE NOT properties.mixed",
        "SELECT properties.plan, count() FROM events GROUP BY properties.plan ORDER BY 1",
        "SELECT coalesce(properties.plan, properties.age, 'none') AS v, count() FROM events GROUP BY v ORDER BY v",
        "SELECT properties.mixed.b.c, count() FROM events GROUP BY 1 ORDER BY 1",
        "SELECT a.properties.plan, count() FROM events a JOIN events b ON a.properties.age = b.properties.age \
         AND a.properties.plan = b.properties.plan GROUP BY 1 ORDER BY 1",
        "SELECT plan, count() FROM (SELECT properties.plan AS plan, event FROM events WHERE properties.age > 0) GROUP BY plan ORDER BY plan",
        "SELECT properties.plan FROM (SELECT properties, 'own' AS p_plan, uuid FROM events) ORDER BY uuid",
        "SELECT s.properties.plan FROM (SELECT a.properties, a.uuid FROM events a) s ORDER BY s.uuid",
        "WITH e AS (SELECT * FROM events WHERE event = 'buy') SELECT properties.age, count() FROM e GROUP BY 1 ORDER BY 1",
        "SELECT (SELECT max(properties.age) FROM events i WHERE i.distinct_id = o.distinct_id), uuid FROM events o ORDER BY uuid",
        "SELECT json_get_str(properties, 'plan'), uuid FROM events ORDER BY uuid",
        "SELECT properties.age, row_number() OVER (PARTITION BY properties.plan ORDER BY uuid) FROM events ORDER BY uuid",
    ] {
        let body =
            json!({"query": {"kind": "HogQLQuery", "query": sql}, "refresh": "force_blocking"});
        let answer = server.post("/api/projects/1/query/", &body);
        assert_eq!(answer.status, 200, "{sql}: {answer}");
        answers.push((sql.to_owned(), answer.json()["results"].clone()));
    }
    let node = |more: Value| {
        let mut node = json!({"kind": "TrendsQuery", "series": [{"event": null}], "dateRange": {"date_from": "2026-01-01",
                              "date_to": "2026-01-31"}});
        node.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        node
    };
    let filter = |key: &str, operator: &str, value: Value| json!([{"key": key, "operator": operator, "value": value, "type": "event"}]);
    for node in [
        node(json!({"breakdownFilter": {"breakdown": "plan"}})),
        node(json!({"breakdownFilter": {"breakdown": "age", "breakdown_histogram_bin_count": 3}})),
        node(json!({"properties": filter("plan", "exact", json!(["pro", "free"]))})),
        node(json!({"properties": filter("plan", "icontains", json!("R"))})),
        node(json!({"properties": filter("plan", "is_set", json!(null))})),
        node(json!({"properties": filter("age", "gt", json!(1))})),
        node(json!({"properties": filter("mixed", "is_not", json!("true"))})),
        node(json!({"properties": filter("a b", "exact", json!(["true"]))})),
        node(json!({"series": [{"event": "buy", "math": "sum", "math_property": "age"}]})),
        json!({"kind": "EventsQuery", "select": ["uuid", "properties.plan", "properties.age"], "orderBy": ["uuid"],
               "where": ["properties.mixed > 1 or properties.plan = 'pro'"], "after": "2025-01-01", "limit": 500}),
    ] {
        let body = json!({"query": node, "refresh": "force_blocking"});
        let answer = server.post("/api/projects/1/query/", &body);
        assert_eq!(answer.status, 200, "{node}: {answer}");
        answers.push((node.to_string(), answer.json()["results"].clone()));
    }
    answers
}

fn same(server: &TestServer, before: &[(String, Value)], state: &str) {
    for ((question, expected), (_, found)) in before.iter().zip(answers(server)) {
        assert_eq!(&found, expected, "{state}: {question}");
    }
}

/// What a column contains for a value that was sent.
pub(crate) fn expected(kind: &str, value: Option<&Value>) -> Value {
    let value = match value {
        None | Some(Value::Null) => return Value::Null,
        Some(value) => value,
    };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match kind {
        "text" => json!(text),
        "number" => text.trim().parse::<f64>().map_or(Value::Null, |number| json!(number)),
        _ => match text.to_lowercase().as_str() {
            "true" => json!(true),
            "false" => json!(false),
            _ => Value::Null,
        },
    }
}

/// The columns in SQL, of this many events.
fn columns_are_right(server: &TestServer, count: usize, state: &str) {
    let sql =
        "SELECT p_plan, p_age, \"p_a%20b\", p_mixed FROM events WHERE event != 'raw' ORDER BY uuid";
    let body = json!({"query": {"kind": "HogQLQuery", "query": sql}, "refresh": "force_blocking"});
    let answer = server.post("/api/projects/1/query/", &body);
    assert_eq!(answer.status, 200, "{state}: {answer}");
    let answer = answer.json();
    let rows = answer["results"].as_array().expect("rows");
    assert_eq!(rows.len(), count, "{state}");
    for (number, row) in rows.iter().enumerate() {
        let sent = event(number);
        for (at, (key, kind)) in KEYS.iter().enumerate() {
            let expected = expected(kind, sent["properties"].get(*key));
            let found = match row[at].as_f64() {
                Some(found) => json!(found),
                None => row[at].clone(),
            };
            assert_eq!(found, expected, "{state}: {key} of {}", sent["properties"]);
        }
    }
}

/// The columns of promoted properties of each live file.
fn columns_of_files(server: &TestServer) -> Vec<BTreeSet<String>> {
    let names = |path: &Path| {
        let file = SerializedFileReader::new(File::open(path).expect("a file")).expect("Parquet");
        let schema = file.metadata().file_metadata().schema_descr();
        let names = schema.columns().iter().map(|column| column.name().to_owned());
        let own = ["p_plan", "p_age", "p_a%20b", "p_mixed"];
        names.filter(|name| own.contains(&name.as_str())).collect()
    };
    server.files().iter().map(|path| names(path)).collect()
}

fn promote(server: &TestServer) {
    for (key, kind) in KEYS {
        let answer = server.post(PROMOTED, &json!({"key": key, "type": kind}));
        assert_eq!(answer.status, 201, "{answer}");
    }
}

#[test]
fn no_answer_changes_wherever_rows_are() {
    let mut server = TestServer::start_with(&[
        ("WEIR_COMPACTION_INTERVAL", "1h"),
        ("WEIR_COMPACTION_FILES_MIN", "2"),
    ]);
    send(&server, 0..60);
    send_raw(&server);
    server.flush();
    send(&server, 60..90);
    let before = answers(&server);
    let plan = |sql: &str| {
        let body = json!({"query": {"kind": "HogQLQuery", "query": format!("EXPLAIN {sql}")}});
        server.post("/api/projects/1/query/", &body).json()["results"].to_string()
    };
    let by_columns = [
        ("SELECT count() FROM events WHERE properties.plan = 'pro'", "p_plan"),
        ("SELECT max(toFloat(properties.age)) FROM events", "p_age"),
        ("SELECT count() FROM events WHERE properties.mixed > 1", "p_mixed"),
        ("SELECT count() FROM events WHERE properties['a b'] = true", "p_a%20b"),
    ];
    for (sql, column) in by_columns {
        assert!(!plan(sql).contains(column), "{}", plan(sql));
    }
    promote(&server);
    for (sql, column) in by_columns {
        let plan = plan(sql);
        let is_read =
            ["own_events.properties", "=[properties"].iter().any(|own| plan.contains(own));
        assert!(plan.contains(column) && !is_read, "{plan}");
    }
    same(&server, &before, "promoted, files and memory from before");
    columns_are_right(&server, 90, "files and memory from before");
    assert_eq!(columns_of_files(&server), [BTreeSet::new()]);
    server.flush();
    same(&server, &before, "a file of each kind");
    columns_are_right(&server, 90, "a file of each kind");
    let all: BTreeSet<String> = ["p_plan", "p_age", "p_a%20b", "p_mixed"].map(str::to_owned).into();
    let mut found = columns_of_files(&server);
    found.sort();
    assert_eq!(found, [BTreeSet::new(), all.clone()]);
    server.restart();
    same(&server, &before, "after a restart");
    server.set("WEIR_COMPACTION_INTERVAL", "100ms");
    server.restart();
    let merged = patiently(|| (columns_of_files(&server) == [all.clone()]).then_some(()));
    assert!(merged.is_some(), "{:?}", columns_of_files(&server));
    same(&server, &before, "merged");
    columns_are_right(&server, 90, "merged");
    server.is_undamaged();
    // Without columns again, over files that have them.
    for (key, _) in KEYS {
        let answer = server.delete(&format!("{PROMOTED}{}/", key.replace(' ', "%20")));
        assert_eq!(answer.status, 204, "{answer}");
    }
    same(&server, &before, "no longer promoted");
    let body = json!({"query": {"kind": "HogQLQuery", "query": "SELECT p_plan FROM events"}});
    assert_eq!(server.post("/api/projects/1/query/", &body).status, 400);
    // A table keeps the types of its columns.
    let other = server.post(PROMOTED, &json!({"key": "plan", "type": "number"}));
    assert_eq!(other.status, 400, "{other}");
    promote(&server);
    columns_are_right(&server, 90, "promoted again");
}

/// Goal: a project that has promoted nothing sees no column of another one, and keeps its answers.
#[test]
fn columns_are_those_of_a_project() {
    let server = TestServer::start();
    let (other, token) = server.project("other");
    let sent = json!({"api_key": token, "batch": [event(1), event(2)]});
    let headers = [("content-type", "application/json")];
    assert_eq!(server.send("POST", "/batch/", &headers, sent.to_string()).status, 200);
    send(&server, 0..5);
    promote(&server);
    server.flush();
    let columns = |project: i64| -> BTreeSet<String> {
        let sql = "SELECT * FROM events LIMIT 1";
        let body =
            json!({"query": {"kind": "HogQLQuery", "query": sql}, "refresh": "force_blocking"});
        let answer = server.post(&format!("/api/projects/{project}/query/"), &body).json();
        let names = answer["columns"].as_array().expect("columns").iter();
        names.map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    let own: BTreeMap<_, _> = [(1, true), (other, false)].into();
    for (project, expected) in own {
        assert_eq!(columns(project).contains("p_plan"), expected, "{project}");
        assert!(columns(project).contains("p_$os"));
    }
    let listed = server.get(&format!("/api/projects/{other}/promoted_properties/")).json();
    assert_eq!(listed["results"], json!([]));
}
