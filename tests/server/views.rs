//! Views over the live files: DuckDB finds in them what SQL finds on the server, after merges and splits, for one
//! project; and who may know the files.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, run};
use crate::sdk::tools;

/// Reads the views and questions from its input; prints the rows of each question.
const DUCKDB: &str = "
import duckdb, json, sys
asked = json.load(sys.stdin)
duckdb.sql(\"SET TimeZone = 'UTC'\")
duckdb.execute(asked['views'])
for sql in asked['sql']:
    print(json.dumps([list(row) for row in duckdb.sql(sql).fetchall()], default=str))
";

/// Questions that have the same text and the same answer on the server and in views; the server calls a promoted
/// property by its column.
const QUESTIONS: [(&str, &str); 11] = [
    ("SELECT count(*), count(DISTINCT person_id), count(DISTINCT uuid) FROM events", ""),
    ("SELECT event, count(*), count(DISTINCT person_id) FROM events GROUP BY 1 ORDER BY 1", ""),
    ("SELECT person_id, count(*) FROM events GROUP BY 1 ORDER BY 1", ""),
    ("SELECT distinct_id, count(DISTINCT person_id) FROM events GROUP BY 1 ORDER BY 1", ""),
    ("SELECT browser, count(*) FROM events GROUP BY 1 ORDER BY 1", "\"p_$browser\" AS browser"),
    (
        "SELECT sum(price), count(screen_width), min(timestamp) FROM events",
        "p_price AS price, \"p_$screen_width\" AS screen_width, timestamp",
    ),
    ("SELECT id, uuid, number, is_identified FROM persons ORDER BY number", ""),
    ("SELECT distinct_id, person_id FROM person_distinct_ids ORDER BY 1", ""),
    (
        "SELECT p.number, count(*) FROM events e JOIN persons p ON e.person_id = p.id GROUP BY 1 ORDER BY 1",
        "",
    ),
    ("SELECT count(*) FROM events WHERE person_id NOT IN (SELECT id FROM persons)", ""),
    ("SELECT count(*) FROM person_distinct_ids d JOIN persons p ON d.person_id = p.uuid", ""),
];

pub(crate) fn duckdb(views: &str, asked: &[&str]) -> Vec<Value> {
    let mut command = Command::new(tools().join("readers/bin/python"));
    command.args(["-c", DUCKDB]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::inherit()).spawn().expect("Python starts");
    let input = json!({"views": views, "sql": asked}).to_string();
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("rows")).collect()
}

pub(crate) fn views(server: &TestServer, project: i64) -> String {
    let project = project.to_string();
    run(server.weir(&["inspect", "--views", "--project", &project]))
}

/// The rows with all numbers as such with a point.
fn plain(mut rows: Value) -> Value {
    let rows_of = rows.as_array_mut().expect("rows").iter_mut();
    for cell in rows_of.flat_map(|row| row.as_array_mut().expect("a row")) {
        if let Some(number) = cell.as_f64() {
            *cell = json!(number);
        }
    }
    rows
}

/// The rows of SQL on the server, with times as DuckDB prints them.
fn rows(server: &TestServer, project: i64, sql: &str) -> Value {
    let body = json!({"query": {"kind": "HogQLQuery", "query": sql}});
    let answer = server.post(&format!("/api/projects/{project}/query/"), &body);
    assert_eq!(answer.status, 200, "{sql}: {answer}");
    let mut rows = answer.json()["results"].clone();
    for cell in
        rows.as_array_mut().expect("rows").iter_mut().flat_map(|row| row.as_array_mut().unwrap())
    {
        let time = cell.as_str().and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
        if let Some(time) = time {
            let fraction = if time.timestamp_subsec_micros() == 0 { "" } else { "%.6f" };
            *cell = json!(time.format(&format!("%Y-%m-%d %H:%M:%S{fraction}%:z")).to_string());
        }
    }
    rows
}

/// What the server is asked instead.
fn on_server(sql: &str, columns: &str) -> String {
    match columns {
        "" => sql.to_owned(),
        columns => sql.replace("FROM events", &format!("FROM (SELECT {columns} FROM events) AS e")),
    }
}

fn send(server: &TestServer, token: &str, events: &[Value]) {
    let body = json!({"api_key": token, "batch": events}).to_string();
    let answer = server.send("POST", "/batch/", &[("content-type", "application/json")], body);
    assert_eq!(answer.status, 200, "{answer}");
}

/// Persons that are merged and split, events without persons, and some of these that get one later.
fn world(server: &TestServer, project: i64, token: &str) {
    let event = |at: usize, id: String| {
        let (browser, name) = (["Firefox", "Chrome", "it's"][at % 3], ["view", "buy"][at % 2]);
        let mut properties = json!({"price": at, "$browser": browser,
            "$screen_width": if at.is_multiple_of(7) { json!("900") } else { json!(at * 10) }});
        if id.starts_with("ghost") {
            properties["$process_person_profile"] = json!(false);
        }
        json!({"event": name, "distinct_id": id, "properties": properties,
            "timestamp": format!("2026-{:02}-{:02}T10:00:{:02}Z", 1 + at % 3, 1 + at % 28, at % 60)})
    };
    let round = |from: usize| -> Vec<Value> {
        let ids = (from..from + 120).map(|at| match at % 6 {
            0 => (at, format!("ghost{}", at % 5)),
            _ => (at, format!("d{}", at % 17)),
        });
        ids.map(|(at, id)| event(at, id)).collect()
    };
    let merge = |id: &str, anonymous: &str| json!({"event": "$identify", "distinct_id": id, "properties": {"$anon_distinct_id": anonymous}});
    send(server, token, &round(0));
    server.flush();
    send(
        server,
        token,
        &[merge("u1", "d1"), merge("u1", "d2"), merge("u2", "d3"), merge("u3", "ghost1")],
    );
    send(server, token, &round(120));
    server.flush();
    // Persons of before who are merged only after their events are in files.
    send(server, token, &[merge("u4", "d4"), merge("u5", "d5"), merge("u4", "ghost2")]);
    let alias =
        json!({"event": "$create_alias", "distinct_id": "u5", "properties": {"alias": "d6"}});
    send(server, token, &[alias]);
    let path = format!("/api/projects/{project}/persons");
    let person = server.get(&format!("{path}/?distinct_id=d1")).json()["results"][0].clone();
    let id = person["uuid"].as_str().expect("a person");
    let split = server.post(&format!("{path}/{id}/split/"), &json!({"main_distinct_id": "u1"}));
    assert!(split.status < 300, "{split}");
    send(server, token, &round(240));
    server.flush();
}

#[test]
fn views_find_what_sql_finds() {
    let mut server = TestServer::start();
    let (other, token) = server.project("Other");
    world(&server, 1, crate::harness::TOKEN);
    send(
        &server,
        &token,
        &[json!({"event": "view", "distinct_id": "d1", "properties": {"price": 7}})],
    );
    let (empty, _) = server.project("Other");
    let questions: Vec<&str> = QUESTIONS.iter().map(|(sql, _)| *sql).collect();
    let asked = |project: i64| -> Vec<Value> {
        let ask = |(sql, columns): &(&str, &str)| rows(&server, project, &on_server(sql, columns));
        QUESTIONS.iter().map(ask).collect()
    };
    let expected = [1, other, empty].map(|project| (project, asked(project)));
    let merged = &expected[0].1[0][0];
    assert!(merged[0].as_u64() > Some(360) && merged[1].as_u64() > Some(10), "{merged}");
    // The end of the server writes events and persons that are not in files yet.
    server.stop();
    for (project, answers) in &expected {
        let found = duckdb(&views(&server, *project), &questions);
        for ((sql, found), expected) in questions.iter().zip(&found).zip(answers) {
            let (found, expected) = (plain(found.clone()), plain(expected.clone()));
            assert_eq!(found, expected, "project {project}: {sql}");
        }
    }
    // What DuckDB tells of the columns.
    let told = "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'events' \
                AND column_name IN ('event', 'browser', 'person_id') ORDER BY 1";
    let views = views(&server, 1);
    let found = duckdb(
        &views,
        &[
            told,
            "SELECT count(*) FROM duckdb_columns() WHERE table_name IN ('events', 'persons', 'person_distinct_ids') AND comment IS NULL",
            "SELECT list(keyword_name ORDER BY keyword_name) FROM duckdb_keywords() WHERE keyword_category = 'reserved'",
        ],
    );
    assert_eq!(found[0][0], json!(["browser", "property `$browser`: name of the browser"]));
    assert_eq!(found[0][1], json!(["event", "name of the event"]));
    assert_eq!(found[1], json!([[0]]));
    let reserved = found[2][0][0].as_array().expect("words").clone();
    let known = weir_app::views::RESERVED.map(|word| json!(word));
    assert_eq!(reserved, known, "the words that DuckDB reserves");
}

fn files(server: &TestServer, key: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    server.send("GET", "/api/projects/1/files/", &[("authorization", &bearer)], "")
}

#[test]
fn files_are_listed_to_those_who_may_read_all_of_them() {
    let server = TestServer::start();
    // Before there are files.
    let none = server.get("/api/projects/1/files/").json();
    assert_eq!(none["tables"][0]["files"], json!([]));
    assert_eq!(
        duckdb(none["views"].as_str().expect("SQL"), &["SELECT count(*) FROM events"]),
        [json!([[0]])]
    );
    world(&server, 1, crate::harness::TOKEN);
    let listed = server.get("/api/projects/1/files/").json();
    let events = &listed["tables"][0];
    assert_eq!(events["name"], "events");
    let mut paths: Vec<String> = Vec::new();
    let (mut bytes, mut rows) = (0, 0);
    for file in events["files"].as_array().expect("files") {
        let path = file["path"].as_str().expect("a path");
        let length = std::fs::metadata(path).expect("a live file").len();
        assert_eq!(file["bytes"], length, "{path}");
        bytes += length;
        rows += file["rows"].as_u64().expect("rows");
        paths.push(path.to_owned());
    }
    let mut live: Vec<String> =
        server.files().iter().map(|path| path.display().to_string()).collect();
    live.sort();
    paths.sort();
    assert_eq!(paths, live);
    assert_eq!(events["bytes"], bytes);
    let count = server.count("SELECT count(*) FROM events");
    assert_eq!(rows, count);
    let views = listed["views"].as_str().expect("SQL");
    assert_eq!(duckdb(views, &["SELECT count(*) FROM events"]), [json!([[count]])]);

    // A key that is limited to the project may not know files with rows of others; nor may members.
    let limited = server.key(&json!({"label": "x", "scopes": ["*"], "scoped_teams": [1]}));
    assert_eq!(files(&server, &limited).status, 403);
    let scoped = server.key(&json!({"label": "y", "scopes": ["query:read"]}));
    assert_eq!(files(&server, &scoped).status, 200);
    let member = json!({"email": "m@example.com", "level": 1});
    let member = server.post("/api/organizations/@current/members/", &member).json();
    let key = member["personal_api_key"].as_str().expect("a key").to_owned();
    let refused = files(&server, &key);
    assert_eq!(refused.status, 403, "{refused}");
    let schema = server.send(
        "GET",
        "/api/projects/1/schema/",
        &[("authorization", &format!("Bearer {key}"))],
        "",
    );
    assert_eq!(schema.status, 200, "{schema}");
}
