//! The SQL that pages show gives the numbers that they show: on the page of SQL, and in DuckDB over the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};
use crate::sdk::tools;

/// Questions of the pages, by kind and parameters, and whether DuckDB gets them.
const QUESTIONS: [(&str, &str, bool); 17] = [
    ("trends", "a=*", true),
    ("trends", "a=view&b=buy&from=-3d", true),
    ("trends", "a=view&a.math=dau&interval=week&from=-20d", false),
    ("trends", "a=view&a.math=dau&show=number&from=-20d", false),
    ("trends", "a=buy&a.math=sum&a.property=price&from=-9d", true),
    ("trends", "a=buy&a.math=avg&a.property=%24screen_width&show=totals&from=-20d", true),
    ("trends", "a=buy&a.math=max&a.property=price&interval=month&from=-40d", true),
    ("trends", "a=*&interval=hour&from=-2d", true),
    ("trends", "a=*&f1.key=plan&f1.value=Pro&from=all&show=number", true),
    ("trends", "a=*&f1.key=plan&f1.op=is_not&f1.value=pro&f1.value=5&from=-20d", true),
    ("trends", "a=*&f1.key=plan&f1.op=not_icontains&f1.value=RO&from=-20d", true),
    ("trends", "a=*&f1.key=%24screen_width&f1.op=gte&f1.value=800&from=-20d&show=number", true),
    ("trends", "a=*&a.f1.key=it's%20odd&a.f1.value=a'b&from=-20d", true),
    ("trends", "a=*&f1.of=person&f1.key=tier&f1.value=gold&from=-20d", false),
    ("trends", "a=view&by1.key=plan&from=-20d", true),
    ("trends", "a=*&by1.of=person&by1.key=tier&show=totals&from=-20d", false),
    ("stickiness", "a=*&from=-12d", false),
];

/// Reads SQL and the paths of files from its input; prints the rows of DuckDB.
const DUCKDB: &str = "
import duckdb, json, re, sys
asked = json.load(sys.stdin)
files = str(asked['files'])
duckdb.sql(\"SET TimeZone = 'UTC'\")
for sql in asked['sql']:
    sql = re.sub(r\"delta_scan\\('[^']*'\\)\", lambda _: f'read_parquet({files})', sql)
    rows = duckdb.sql(sql).fetchall()
    print(json.dumps([[str(own) if hasattr(own, 'year') else own for own in row] for row in rows]))
";

fn world(server: &TestServer) {
    let zone = server.patch("/api/projects/1/", &json!({"timezone": "America/New_York"}));
    assert_eq!(zone.status, 200, "{zone}");
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let plans = [
        json!("pro"),
        json!("PRO"),
        json!("free"),
        json!(5),
        json!(null),
        json!(["pro"]),
        json!(true),
        json!(""),
    ];
    let event = |at: i64| {
        let name = ["view", "view", "buy", "it's"][usize::try_from(at % 4).unwrap_or(0)];
        let mut properties = json!({
            "price": if at % 5 == 0 { json!("12.5") } else { json!(at) },
            "$screen_width": if at % 7 == 0 { json!("900") } else { json!(at * 10) },
            "it's odd": if at % 3 == 0 { "A'B" } else { "other" },
        });
        if at % 11 != 0 {
            properties["plan"] = plans[usize::try_from(at % 8).unwrap_or(0)].clone();
        }
        if at % 6 == 0 {
            properties["$process_person_profile"] = json!(false);
        } else {
            properties["$set"] = json!({"tier": if at % 9 < 4 { "gold" } else { "tin" },
                "level": at % 9 % 3, "email": format!("P{}@Example.com", at % 9)});
        }
        json!({"event": name, "distinct_id": format!("p{}", at % 9), "properties": properties,
            "timestamp": (now - chrono::TimeDelta::minutes(at * 97)).to_rfc3339()})
    };
    server.capture(&(0..200).map(event).collect());
    // Persons of before are one now.
    let merge = json!([{"event": "$identify", "distinct_id": "p1", "properties": {"$anon_distinct_id": "p2"}}]);
    assert_eq!(server.capture(&merge).status, 200);
}

fn page(server: &TestServer, path: &str) -> String {
    let answer = server.get(&format!("/project/1/{path}"));
    let answer = match answer.header("location") {
        Some(location) if answer.status == 303 => server.get(location),
        _ => answer,
    };
    assert_eq!(answer.status, 200, "{path}: {answer}");
    text(&answer)
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

/// The text to copy with an id.
fn shown(page: &str, id: &str) -> Option<String> {
    let rest = page.split(&format!("<code id=\"{id}\">")).nth(1)?;
    let own = rest.split("</code>").next().unwrap_or_default();
    Some(
        own.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"),
    )
}

fn rows(server: &TestServer, sql: &str) -> Vec<Vec<Value>> {
    let answer = server
        .post("/api/projects/1/query/", &json!({"query": {"kind": "HogQLQuery", "query": sql}}));
    assert_eq!(answer.status, 200, "{sql}: {answer}");
    let rows = answer.json()["results"].as_array().expect("rows").clone();
    rows.into_iter().map(|row| row.as_array().expect("a row").clone()).collect()
}

type Numbers = BTreeMap<(String, String, String), f64>;

/// What is not zero, by series, interval and value of the split.
fn of_answer(kind: &str, query: &str, results: &Value) -> Numbers {
    let mut numbers = Numbers::new();
    for answer in results.as_array().expect("series") {
        let letter = match answer["action"]["order"].as_u64() {
            Some(1) => "B",
            _ if query.contains("&b=") => "A",
            _ => "",
        };
        let split = match &answer["breakdown_value"] {
            Value::Array(values) => values[0].as_str().unwrap_or_default(),
            Value::String(value) if query.contains("by1") => value.as_str(),
            _ => "",
        };
        let split = if split.starts_with("$$_posthog_breakdown_null") { "" } else { split };
        let mut add = |bucket: String, value: f64| {
            if value != 0.0 {
                numbers.insert((letter.to_owned(), bucket, split.to_owned()), value);
            }
        };
        if let Some(total) = answer["aggregated_value"].as_f64() {
            add(String::new(), total);
            continue;
        }
        let values = answer["data"].as_array().expect("data");
        for (at, value) in values.iter().enumerate() {
            let bucket = match kind {
                "stickiness" => (at + 1).to_string(),
                _ => instant(answer["days"][at].as_str().expect("a day"), query),
            };
            add(bucket, value.as_f64().expect("a number"));
        }
    }
    numbers
}

/// The beginning of an interval as far as it tells one from others.
fn instant(text: &str, query: &str) -> String {
    let chars = if query.contains("interval=hour") { 13 } else { 10 };
    text.replace('T', " ").chars().take(chars).collect()
}

fn of_rows(kind: &str, query: &str, rows: &[Vec<Value>]) -> Numbers {
    let has = |parameter: &str| query.contains(parameter);
    let mut numbers = Numbers::new();
    for row in rows {
        let mut cells = row.iter();
        let mut next = |is_there: bool| match is_there {
            true => cells.next().cloned().unwrap_or_default(),
            false => Value::Null,
        };
        let series = next(has("&b="));
        let bucket = next(!has("show="));
        let split = next(has("by1"));
        let value = next(true).as_f64().unwrap_or(0.0);
        let bucket = match &bucket {
            Value::String(text) if kind == "trends" => instant(text, query),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if value != 0.0 {
            numbers.insert((words(&series), bucket, words(&split)), value);
        }
    }
    numbers
}

fn assert_same(found: &Numbers, expected: &Numbers, sql: &str) {
    let keys: Vec<_> = found.keys().collect();
    assert_eq!(keys, expected.keys().collect::<Vec<_>>(), "{sql}");
    for (key, number) in found {
        assert!((number - expected[key]).abs() < 1e-6, "{key:?}: {number} {sql}");
    }
}

#[test]
fn sql_of_insights_gives_their_numbers() {
    let tools = tools();
    let mut server = TestServer::start();
    world(&server);
    let (mut asked, mut answers) = (Vec::new(), Vec::new());
    for (kind, query, is_for_files) in QUESTIONS {
        let html = page(&server, &format!("insights/{kind}?{query}"));
        let file = page(&server, &format!("insights/{kind}?{query}&format=json"));
        let results: Value = serde_json::from_str(&file).expect("JSON");
        let expected = of_answer(kind, query, &results["results"]);
        assert!(!expected.is_empty(), "{query}");
        let sql = shown(&html, "as-sql").unwrap_or_else(|| panic!("{query}: {html}"));
        assert_same(&of_rows(kind, query, &rows(&server, &sql)), &expected, &sql);
        let duckdb = shown(&html, "as-duckdb");
        assert_eq!(duckdb.is_some(), is_for_files, "{query}");
        if let Some(sql) = duckdb {
            asked.push(sql);
            answers.push((kind, query, expected));
        }
    }
    server.stop();
    let found = of_duckdb(&tools, &server, &asked);
    for ((rows, sql), (kind, query, expected)) in found.iter().zip(&asked).zip(&answers) {
        assert_same(&of_rows(kind, query, rows), expected, sql);
    }
}

/// Goal: what a list shows, the API, SQL and DuckDB find the same.
#[test]
fn sql_of_lists_finds_what_they_show() {
    let tools = tools();
    let mut server = TestServer::start();
    world(&server);
    let is = |key, value| vec![("key", key), ("value", value)];
    let (mut asked, mut answers) = (Vec::new(), Vec::new());
    for (list, parameters, expected) in [
        ("persons", vec![], Some(8)),
        ("persons", vec![("search", "p3@EXAMPLE")], Some(1)),
        ("persons", vec![("search", "example.com")], Some(8)),
        ("persons", vec![("search", "p2")], Some(1)),
        ("persons", vec![("search", "p")], Some(8)),
        ("persons", vec![("search", "it's")], Some(0)),
        ("persons", is("tier", "GOLD"), None),
        ("persons", is("level", "1"), None),
        ("persons", [is("level", "1"), vec![("search", "p4@")]].concat(), Some(1)),
        ("persons", is("it's", "o'dd"), Some(0)),
        ("activity/explore", is("plan", "Pro"), None),
        ("activity/explore", is("plan", "5"), None),
        ("activity/explore", is("it's odd", "a'b"), None),
        ("activity/explore", [is("plan", "free"), vec![("event", "buy")]].concat(), None),
    ] {
        let query: String =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(&parameters).finish();
        let html = page(&server, &format!("{list}?{query}&columns=plan,tier"));
        let file: Value =
            serde_json::from_str(&page(&server, &format!("{list}?{query}&format=json"))).unwrap();
        let listed = file.as_array().expect("rows");
        assert!(expected.map_or(!listed.is_empty(), |own| own == listed.len()), "{query}: {file}");
        let has_column = html.contains("<th scope=\"col\">plan</th>");
        assert_eq!(has_column, !listed.is_empty(), "{query}: {html}");
        let sql = shown(&html, "as-sql").unwrap_or_else(|| panic!("{query}: {html}"));
        let found = rows(&server, &sql);
        assert_eq!(found.len(), listed.len(), "{query}: {sql}");
        if list == "persons" {
            let uuids = |all: &mut dyn Iterator<Item = &Value>| {
                all.map(Value::to_string).collect::<BTreeSet<_>>()
            };
            let told = uuids(&mut found.iter().map(|row| &row[1]));
            assert_eq!(told, uuids(&mut listed.iter().map(|own| &own["uuid"])), "{query}: {sql}");
        } else {
            let own = shown(&html, "as-duckdb").unwrap_or_else(|| panic!("{query}: {html}"));
            asked.push(format!("SELECT count(*) FROM ({own})"));
            answers.push(vec![vec![json!(listed.len())]]);
        }
    }
    for (key, value) in [("plan", "true"), ("plan", "null"), ("plan", "é")] {
        for list in ["persons", "activity/explore"] {
            let html = page(&server, &format!("{list}?key={key}&value={value}"));
            assert_eq!(shown(&html, "as-sql"), None, "{list} {value}");
            let file =
                server.get(&format!("/project/1/{list}?key={key}&value={value}&format=parquet"));
            assert_eq!(file.status, 200, "{list} {value}: {file}");
        }
    }
    server.stop();
    assert_eq!(of_duckdb(&tools, &server, &asked), answers, "{asked:?}");
}

/// The rows of SQL in DuckDB over the files of a server that was stopped.
fn of_duckdb(tools: &Path, server: &TestServer, sql: &[String]) -> Vec<Vec<Vec<Value>>> {
    let body = json!({"sql": sql, "files": server.files()});
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), body.to_string()).expect("written");
    let mut command = Command::new(tools.join("readers/bin/python"));
    command.args(["-c", DUCKDB]).stdin(file.reopen().expect("the file"));
    let output = command.output().expect("Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let answers: Vec<_> =
        said.lines().map(|line| serde_json::from_str(line).expect("rows")).collect();
    assert_eq!(answers.len(), sql.len());
    answers
}

#[test]
fn where_there_is_no_sql_the_page_says_why() {
    let server = TestServer::start();
    world(&server);
    for (kind, query) in [
        ("funnel", "a=view&b=buy"),
        ("paths", ""),
        ("retention", "a=view"),
        ("lifecycle", "a=view"),
        ("trends", "a=view&compare=previous"),
    ] {
        let html = page(&server, &format!("insights/{kind}?{query}"));
        assert!(html.contains("No short SQL query returns the same"), "{kind}: {html}");
        assert_eq!(shown(&html, "as-sql"), None, "{kind}");
        assert!(shown(&html, "as-curl").is_some(), "{kind}");
    }
    // Persons are in the server alone: there is SQL, and DuckDB cannot ask it.
    for (path, has_sql) in [
        ("insights/trends?a=view&a.math=dau", true),
        ("insights/stickiness?a=view", true),
        ("insights/trends/persons?a=view&point.series=0", false),
    ] {
        let html = page(&server, path);
        assert!(
            html.contains("Persons are merged after their events were stored"),
            "{path}: {html}"
        );
        assert_eq!(shown(&html, "as-sql").is_some(), has_sql, "{path}");
        assert_eq!(shown(&html, "as-duckdb"), None, "{path}");
    }
}
