//! Properties of persons that an owner promotes to columns: no answer changes, wherever persons are; the columns have what
//! was sent, in SQL, in files, in views for DuckDB, on the PostgreSQL port, and for no other project. Expectations are
//! computed here from what was sent, by the access to the JSON text, or by DuckDB over the texts in files.

use std::collections::BTreeSet;
use std::ops::Range;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer, patiently, run};
use crate::postgres_port::wire::Session;
use crate::promoted_columns::{expected, values};
use crate::sdk::tools;
use crate::views::{duckdb, views};

const PROMOTED: &str = "/api/projects/1/promoted_properties/";

/// The keys, the type of the column of each, and its name. Events have columns of other types for two of them.
const KEYS: [(&str, &str, &str); 7] = [
    ("plan", "text", "p_plan"),
    ("age", "number", "p_age"),
    ("a b", "boolean", "p_a%20b"),
    ("ünï", "number", "p_ünï"),
    ("price", "text", "p_price"),
    ("$browser", "number", "p_$browser"),
    ("revenue", "number", "p_revenue"),
];

/// Columns of files as JSON, and what DuckDB reads in the texts: the table, the paths of its files, and keys, types and
/// columns are arguments.
const FILES: &str = "
import deltalake, duckdb, json, sys
table, paths, keys = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
there = {name for path in paths for (name,) in duckdb.execute('SELECT name FROM parquet_schema(?)', [path]).fetchall()}
lacking = [path for path in paths if not {column for _, _, column in keys} <= {
    name for (name,) in duckdb.execute('SELECT name FROM parquet_schema(?)', [path]).fetchall()}]
rows = []
if not lacking:
    for key, kind, column in keys:
        text = f'''properties ->> '$.\"{key}\"' '''
        other = {'text': text, 'number': f'TRY_CAST({text} AS DOUBLE)',
                 'boolean': f'''CASE lower({text}) WHEN 'true' THEN true WHEN 'false' THEN false END'''}[kind]
        found = duckdb.execute(f'SELECT \"{column}\", {other} FROM read_parquet(?, union_by_name = true)', [paths]).fetchall()
        delta = deltalake.DeltaTable(table).to_pyarrow_table(columns=[column]).column(column)
        assert len(delta) - delta.null_count == sum(value is not None for value, _ in found), column
        rows += found
print(json.dumps({'lacking': len(lacking), 'types': sorted({(column, str(kind)) for _, _, column in keys
    for path in paths if column in there for kind in [duckdb.execute(f'SELECT \"{column}\" FROM read_parquet(?)', [path]).description[0][1]]})
    if not lacking else [], 'rows': rows}))
";

/// The properties of a person, with values of every type, some missing.
fn properties(number: usize) -> Value {
    let all = values();
    let mut properties = json!({"n": number});
    for (at, (key, ..)) in KEYS.iter().enumerate() {
        if !(number + at).is_multiple_of(5) {
            properties[*key] = all[(number * 7 + at * 5) % all.len()].clone();
        }
    }
    properties
}

fn send(server: &TestServer, numbers: Range<usize>) {
    let event = |number: usize| {
        json!({"event": if number.is_multiple_of(3) { "buy" } else { "see" }, "distinct_id": format!("d{number:03}"),
               "timestamp": "2026-01-03T12:00:00Z", "properties": {"$set": properties(number)}})
    };
    assert_eq!(server.capture(&numbers.map(event).collect()).status, 200);
}

/// Values as no library of this language writes them.
fn send_raw(server: &TestServer) {
    let raw = [
        r#"{"plan": ["a",  "b"], "age": 1.50, "price": 1E2}"#,
        r#"{"plan": {"b": 1, "a": 2}, "age": 1E2}"#,
        r#"{"plan": 1.50, "ünï": "1e2", "revenue": " 7 "}"#,
        r#"{"plan": "x", "age": 1, "plan": "y", "age": "2", "a b": true, "a b": "false"}"#,
        r#"{"plan": "\u0061\u00e9", "pl\u0061n": "escaped", "\u00fcn\u00ef": -0}"#,
        r#"{"$browser": 123456789012345678901234567890, "plan": 12345678901234567890.0}"#,
        r#"{"other": {"plan": "inner", "age": 5}, "plans": "no"}"#,
    ];
    let event = |(number, set): (usize, &&str)| {
        format!(
            r#"{{"event": "raw", "distinct_id": "raw{number}", "properties": {{"$set": {set}}}}}"#
        )
    };
    let events: Vec<String> = raw.iter().enumerate().map(event).collect();
    let body = format!(r#"{{"api_key": "{TOKEN}", "batch": [{}]}}"#, events.join(","));
    let answer = server.send("POST", "/batch/", &[("content-type", "application/json")], body);
    assert_eq!(answer.status, 200, "{answer}");
}

fn ask(server: &TestServer, query: &Value) -> Value {
    let body = json!({"query": query, "refresh": "force_blocking"});
    let answer = server.post("/api/projects/1/query/", &body);
    assert_eq!(answer.status, 200, "{query}: {answer}");
    answer.json()["results"].clone()
}

fn sql(text: &str) -> Value {
    json!({"kind": "HogQLQuery", "query": text})
}

/// Goal: a cast of a text that is no number fails, whatever the rows come from.
fn casts_are_refused(server: &TestServer, state: &str) {
    for from in [
        "persons",
        "(SELECT * FROM persons UNION ALL SELECT * FROM persons) AS u",
        "persons ARRAY JOIN [1, 2] AS item",
    ] {
        let text = format!("SELECT CAST(properties.revenue AS DOUBLE) FROM {from}");
        let refused = server.post("/api/projects/1/query/", &json!({"query": sql(&text)}));
        assert_eq!(refused.status, 400, "{state}: {from}: {refused}");
        let detail = refused.json()["detail"].to_string();
        assert!(detail.contains("Cannot cast string"), "{state}: {from}: {detail}");
    }
}

/// Questions over properties of persons; their answers.
fn answers(server: &TestServer) -> Vec<(String, Value)> {
    let texts = [
        "SELECT properties.n, properties.plan, properties.age, properties['a b'], properties['ünï'], properties.price, \
         properties['$browser'], properties.revenue, properties.plan.b FROM persons ORDER BY number",
        "SELECT id, uuid, created_at, is_identified, properties, number FROM persons ORDER BY number",
        "SELECT count() FROM persons WHERE properties.plan = 'pro'",
        "SELECT count() FROM persons WHERE properties.price > 5",
        "SELECT count() FROM persons WHERE properties.price = true",
        "SELECT count() FROM persons WHERE properties['$browser'] > 3 OR properties['$browser'] = 'pro'",
        "SELECT count() FROM persons WHERE NOT properties['a b']",
        "SELECT max(toFloat(properties.revenue)), max(toFloat(properties.price)), sum(properties.age + 1) FROM persons",
        "SELECT sum(properties.revenue) FROM persons",
        "SELECT sum(properties.revenue) FROM persons WHERE properties.n < 3",
        "SELECT properties['$browser'], count() FROM persons GROUP BY 1 ORDER BY 1",
        "SELECT p.properties.plan, e.event, count() FROM events e JOIN persons p ON e.person_id = p.id \
         GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT person.properties.plan, person.properties.price, count() FROM events GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT count() FROM persons p JOIN persons q ON p.properties.plan = q.properties.plan",
        "SELECT s.properties.revenue FROM (SELECT properties, 'own' AS p_revenue, number FROM persons) s ORDER BY number",
        "SELECT d.distinct_id, p.properties.age FROM persons p JOIN person_distinct_ids d ON d.person_id = p.id ORDER BY 1",
    ];
    let filter = |key: &str, operator: &str, value: Value| json!([{"key": key, "operator": operator, "value": value, "type": "person"}]);
    let node = |more: Value| {
        let mut node = json!({"kind": "TrendsQuery", "series": [{"event": null}],
                              "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-31"}});
        let more = more.as_object().expect("an object").clone();
        node.as_object_mut().expect("an object").extend(more);
        node
    };
    let by = |key: &str| json!({"breakdownFilter": {"breakdown": key, "breakdown_type": "person"}});
    let nodes = [
        node(by("plan")),
        node(by("price")),
        node(json!({"properties": filter("plan", "exact", json!(["pro", "free"]))})),
        node(json!({"properties": filter("age", "gt", json!(1))})),
        json!({"kind": "ActorsQuery", "select": ["id", "properties.plan"], "orderBy": ["id"], "limit": 500,
               "properties": filter("$browser", "is_set", json!(null))}),
    ];
    let nodes = texts.iter().map(|text| sql(text)).chain(nodes);
    // What is refused stays refused, in the same words.
    let answer = |node: Value| {
        let body = json!({"query": node, "refresh": "force_blocking"});
        let answer = server.post("/api/projects/1/query/", &body);
        assert!(matches!(answer.status, 200 | 400), "{node}: {answer}");
        let answer = answer.json();
        let told = answer.get("results").unwrap_or(&answer["detail"]);
        (node.to_string(), told.clone())
    };
    let mut answers: Vec<(String, Value)> = nodes.map(answer).collect();
    let query = filter("revenue", "lt", json!(5)).to_string();
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("properties", query.as_str()), ("limit", "500")])
        .finish();
    let listed = server.get(&format!("/api/projects/1/persons/?{query}")).json();
    answers.push((query, listed["results"].clone()));
    answers
}

fn same(server: &TestServer, before: &[(String, Value)], state: &str) {
    for ((question, expected), (_, found)) in before.iter().zip(answers(server)) {
        assert_eq!(&found, expected, "{state}: {question}");
    }
}

/// Numbers of JSON as they are compared.
fn plain(cell: &Value) -> Value {
    cell.as_f64().map_or_else(|| cell.clone(), |number| json!(number))
}

fn names() -> String {
    KEYS.map(|(.., column)| format!("p.\"{column}\"")).join(", ")
}

/// The columns in SQL, of this many persons, and of those whose values no library writes by the access to the text.
fn columns_are_right(server: &TestServer, count: usize, state: &str) {
    let rows = ask(
        server,
        &sql(&format!(
            "SELECT {}, p.properties.n FROM persons p WHERE p.properties.n IS NOT NULL ORDER BY toInt(p.properties.n)",
            names()
        )),
    );
    let rows = rows.as_array().expect("rows").clone();
    assert_eq!(rows.len(), count, "{state}");
    for (number, row) in rows.iter().enumerate() {
        let sent = properties(number);
        for (at, (key, kind, _)) in KEYS.iter().enumerate() {
            let expected = expected(kind, sent.get(*key));
            assert_eq!(plain(&row[at]), plain(&expected), "{state}: {key} of {sent}");
        }
    }
    let pairs = KEYS.map(|(key, kind, column)| match kind {
        "text" => format!("(\"{column}\" IS DISTINCT FROM properties['{key}'])"),
        "number" => format!("(\"{column}\" IS DISTINCT FROM toFloat(properties['{key}']))"),
        _ => format!(
            "(coalesce(\"{column}\", false) <> coalesce(properties['{key}'] = true, false))"
        ),
    });
    let differing = sql(&format!("SELECT properties FROM persons WHERE {}", pairs.join(" OR ")));
    assert_eq!(ask(server, &differing), json!([]), "{state}");
    // Single columns, and a condition on one.
    let counted = ask(server, &sql("SELECT p_plan, count(*) FROM persons GROUP BY 1 ORDER BY 1"));
    let by_text = "SELECT properties.plan, count(*) FROM persons GROUP BY 1 ORDER BY 1";
    assert_eq!(counted, ask(server, &sql(by_text)), "{state}");
    let joined = "SELECT e.event, sum(p.p_age) FROM events e JOIN persons p ON e.person_id = p.id WHERE p.p_age > 2 \
                  GROUP BY 1 ORDER BY 1";
    let by_text = joined.replace("p.p_age", "toFloat(p.properties.age)");
    assert_eq!(ask(server, &sql(joined)), ask(server, &sql(&by_text)), "{state}");
}

/// What DuckDB finds in the live files.
fn in_files(server: &TestServer) -> Value {
    let paths = run(server.weir(&["inspect", "--files=persons"]));
    let paths: Vec<&str> = paths.lines().collect();
    let mut command = Command::new(tools().join("readers/bin/python"));
    command.args(["-c", FILES]).arg(server.data_dir().join("tables/persons"));
    command.args([json!(paths).to_string(), json!(KEYS).to_string()]);
    serde_json::from_str(&run(command)).expect("JSON")
}

/// Whether each live file has all columns, which then have what the texts have.
fn files_are_right(server: &TestServer) -> bool {
    let found = in_files(server);
    if found["lacking"] != 0 {
        return false;
    }
    let kinds = [("text", "VARCHAR"), ("number", "DOUBLE"), ("boolean", "BOOLEAN")];
    let types = KEYS.map(|(_, kind, column)| {
        let own = kinds.iter().find(|(name, _)| *name == kind).expect("a type").1;
        (column.to_owned(), own.to_owned())
    });
    let types: BTreeSet<(String, String)> = types.into();
    assert_eq!(found["types"], json!(types));
    let rows = found["rows"].as_array().expect("rows");
    assert!(rows.len() > 400, "{}", rows.len());
    for row in rows {
        let (own, other) = (&row[0], &row[1]);
        // DuckDB reads no list as this server writes one, nor numbers of text with an exponent.
        let text = other.as_str().unwrap_or_default();
        if !text.contains(['[', '{']) && !text.starts_with(|first: char| first.is_ascii_digit()) {
            assert_eq!(own, other, "{row}");
        }
    }
    true
}

fn promote(server: &TestServer) {
    for (key, kind, column) in KEYS {
        let body = json!({"key": key, "type": kind, "table": "persons"});
        let made = server.post(PROMOTED, &body).created();
        assert_eq!((&made["column"], &made["table"]), (&json!(column), &json!("persons")));
    }
}

fn demote(server: &TestServer, key: &str) {
    let key: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
    let path = format!("{PROMOTED}{}/?table=persons", key.replace('+', "%20"));
    assert_eq!(server.delete(&path).status, 204, "{path}");
}

#[test]
fn no_answer_changes_wherever_persons_are() {
    let mut server = TestServer::start_with(&[("WEIR_PERSONS_TABLE_INTERVAL", "1h")]);
    send(&server, 0..60);
    send_raw(&server);
    run(server.weir(&["flush", "--persons"]));
    send(&server, 60..80);
    let before = answers(&server);
    casts_are_refused(&server, "not promoted");
    promote(&server);
    same(&server, &before, "files from before, and changed persons");
    casts_are_refused(&server, "promoted");
    columns_are_right(&server, 80, "files from before, and changed persons");
    assert!(!files_are_right(&server), "they have no columns yet");
    run(server.weir(&["flush", "--persons"]));
    assert!(files_are_right(&server), "they were written anew");
    same(&server, &before, "files with columns");
    columns_are_right(&server, 80, "files with columns");
    server.restart();
    same(&server, &before, "after a restart");
    columns_are_right(&server, 80, "after a restart");
    assert!(files_are_right(&server));
    server.is_undamaged();

    // Without columns again, over files that have them. An answer of before is none of now.
    let body = json!({"query": sql("SELECT p_plan FROM persons")});
    assert_eq!(server.post("/api/projects/1/query/", &body).status, 200);
    KEYS.iter().for_each(|(key, ..)| demote(&server, key));
    same(&server, &before, "no longer promoted");
    assert_eq!(server.post("/api/projects/1/query/", &body).status, 400);
    // A table keeps the types of its columns, also if nobody has them any more.
    let other = json!({"key": "plan", "type": "number", "table": "persons"});
    let refused = server.post(PROMOTED, &other);
    assert_eq!(refused.json()["detail"], "The column p_plan is text, and stays it.", "{refused}");
    let case = json!({"key": "PLAN", "type": "text", "table": "persons"});
    assert_eq!(server.post(PROMOTED, &case).status, 400);
    promote(&server);
    columns_are_right(&server, 80, "promoted again");
}

#[test]
fn files_get_columns_in_the_background() {
    let mut server = TestServer::start_with(&[("WEIR_PERSONS_TABLE_INTERVAL", "1h")]);
    send(&server, 0..80);
    run(server.weir(&["flush", "--persons"]));
    promote(&server);
    server.stop();
    assert!(!files_are_right(&server), "the end does not wait for columns");
    server.set("WEIR_PERSONS_TABLE_INTERVAL", "100ms");
    server.restart();
    assert!(patiently(|| files_are_right(&server).then_some(())).is_some(), "{}", server.stderr());
    let files = || run(server.weir(&["inspect", "--files=persons"]));
    let filled = files();
    columns_are_right(&server, 80, "filled");
    // Each file is written once.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(files(), filled);
}

/// Goal: whoever reads the tables sees the columns of the project, and of no other one.
#[test]
fn columns_are_those_of_a_project() {
    let server = TestServer::start_with(&[("WEIR_POSTGRES_LISTEN", "127.0.0.1:0")]);
    let (other, token) = server.project("other");
    let set = json!({"$set": {"plan": "theirs", "seats": 7}});
    let sent =
        json!({"api_key": token, "batch": [{"event": "a", "distinct_id": "x", "properties": set}]});
    let headers = [("content-type", "application/json")];
    assert_eq!(server.send("POST", "/batch/", &headers, sent.to_string()).status, 200);
    send(&server, 0..80);
    promote(&server);
    // The same key of events is something else.
    let of_events = json!({"key": "plan", "type": "boolean"});
    assert_eq!(server.post(PROMOTED, &of_events).created()["table"], "events");
    run(server.weir(&["flush", "--persons"]));

    let columns = |project: i64| -> Vec<String> {
        let body =
            json!({"query": sql("SELECT * FROM persons LIMIT 1"), "refresh": "force_blocking"});
        let answer = server.post(&format!("/api/projects/{project}/query/"), &body).json();
        let names = answer["columns"].as_array().expect("columns").iter();
        names.map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    let own = ["id", "uuid", "created_at", "is_identified", "properties", "number"];
    assert_eq!(columns(other), own);
    let mut all: Vec<&str> = own.to_vec();
    all.extend(["p_$browser", "p_a%20b", "p_age", "p_plan", "p_price", "p_revenue", "p_ünï"]);
    assert_eq!(columns(1), all);
    let body = json!({"query": sql("SELECT p_plan FROM persons")});
    assert_eq!(server.post(&format!("/api/projects/{other}/query/"), &body).status, 400);

    // The dictionary, of the API and of the command.
    let described = |project: i64| {
        let path = format!("/api/projects/{project}/schema/?table=persons");
        let columns = server.get(&path).json()["tables"][0]["columns"].clone();
        let columns = columns.as_array().expect("columns").clone();
        columns.into_iter().find(|column| column["name"] == "p_age")
    };
    let age = described(1).expect("a column");
    assert_eq!((&age["type"], &age["description"]), (&json!("double"), &json!("property `age`")));
    assert_eq!(described(other), None);
    let told = run(server.weir(&["schema", "persons"]));
    assert!(told.contains("\np_age ") && told.contains("double, nullable"), "{told}");
    let page = server.get("/project/1/sql");
    assert_eq!(page.status, 200, "{page}");

    // The PostgreSQL port, and what it tells of the columns.
    let mut session = Session::open(server.postgres(), KEY, "1").expect("a session");
    let kinds = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'persons' \
                 AND column_name IN ('p_plan', 'p_age', 'p_a%20b') ORDER BY 1";
    let kinds = session.rows(kinds).expect("rows");
    let expected = [["p_a%20b", "boolean"], ["p_age", "double precision"], ["p_plan", "text"]];
    assert_eq!(kinds, expected);
    let count = session.rows("SELECT count(p_plan) FROM persons WHERE p_age > 2").expect("rows");
    let by_text = "SELECT count(properties.plan) FROM persons WHERE toFloat(properties.age) > 2";
    assert_eq!(json!(count[0][0].parse::<u64>().ok()), ask(&server, &sql(by_text))[0][0]);

    // Where both tables have a column of the name, that of events is meant in events, also with their persons.
    let both = "SELECT p_plan, person.properties.age FROM events WHERE person.properties.n = 1";
    assert_eq!(ask(&server, &sql(both)), json!([[null, properties(1)["age"].to_string()]]));
    // Times in the zone of the project are another view over the first.
    let zone = json!({"timezone": "Asia/Tokyo"});
    assert_eq!(server.patch("/api/projects/1/", &zone).status, 200);
    assert_eq!(columns(1), all);
    columns_are_right(&server, 80, "in another time zone");

    // Views, with names that need no quotes.
    let questions = [
        "SELECT plan, count(*) FROM persons GROUP BY 1 ORDER BY 1 NULLS LAST",
        "SELECT sum(age), sum(browser), sum(revenue), count(a_b), count(price), count(_n_) FROM persons",
    ];
    let on_server = [
        "SELECT p_plan, count(*) FROM persons GROUP BY 1 ORDER BY 1 NULLS LAST",
        "SELECT sum(p_age), sum(\"p_$browser\"), sum(p_revenue), count(\"p_a%20b\"), count(p_price), count(\"p_ünï\") FROM persons",
    ];
    let cells = |rows: &Value| -> Vec<Vec<Value>> {
        let row = |row: &Value| row.as_array().expect("a row").iter().map(plain).collect();
        rows.as_array().expect("rows").iter().map(row).collect()
    };
    let answered = server.get("/api/projects/1/files/").json()["views"].clone();
    for text in [answered.as_str().expect("SQL").to_owned(), views(&server, 1)] {
        let found = duckdb(&text, &questions);
        for (found, question) in found.iter().zip(on_server) {
            assert_eq!(cells(found), cells(&ask(&server, &sql(question))), "{question}");
        }
    }
    let theirs = server.get(&format!("/api/projects/{other}/files/")).json()["views"].clone();
    let theirs = theirs.as_str().expect("SQL").to_owned();
    let shown =
        duckdb(&theirs, &["SELECT count(*) FROM duckdb_columns() WHERE table_name = 'persons'"]);
    assert_eq!(shown, [json!([[6]])]);
    assert_eq!(duckdb(&theirs, &["SELECT count(*) FROM persons"]), [json!([[1]])]);
}

/// Goal: a view has a column that files lack, as NULL.
#[test]
fn views_have_columns_before_files() {
    let server = TestServer::start_with(&[("WEIR_PERSONS_TABLE_INTERVAL", "1h")]);
    send(&server, 0..10);
    run(server.weir(&["flush", "--persons"]));
    promote(&server);
    let views = server.get("/api/projects/1/files/").json()["views"].clone();
    let counted = "SELECT count(*), count(plan), count(age) FROM persons";
    assert_eq!(duckdb(views.as_str().expect("SQL"), &[counted]), [json!([[10, 0, 0]])]);
}
