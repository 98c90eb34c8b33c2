//! What somebody meets who tries the server for the first time: each mistake is told with what would be right.

use serde_json::{Value, json};
use sqlx::Connection;

use crate::harness::{KEY, TOKEN, TestServer};

const JSON: (&str, &str) = ("content-type", "application/json");
const QUERY: &str = "/api/projects/1/query/";

fn detail(answer: &crate::harness::Answer) -> String {
    answer.json()["detail"].as_str().unwrap_or_else(|| panic!("no detail: {answer}")).to_owned()
}

/// A personal key where events are sent, a project key at the API, and none at all.
#[test]
fn a_wrong_kind_of_key_says_so() {
    let server = TestServer::start();
    let event = |key: &str| json!({"api_key": key, "event": "e", "distinct_id": "u"}).to_string();
    let flags = |key: &str| json!({"api_key": key, "distinct_id": "u"}).to_string();
    let nothing = json!({"event": "e", "distinct_id": "u"}).to_string();
    for (path, body, parts) in [
        ("/capture/", event(KEY), &["personal API key (phx_...)", "phc_"][..]),
        ("/batch/", event(KEY), &["personal API key (phx_...)", "phc_"]),
        ("/flags/?v=2", flags(KEY), &["personal API key (phx_...)", "phc_"]),
        ("/capture/", event("phs_secret"), &["secret API key of a project (phs_...)", "phc_"]),
        ("/capture/", nothing, &["missing", "api_token"]),
        ("/flags/?v=2", json!({"distinct_id": "u"}).to_string(), &["missing", "api_token"]),
        ("/capture/", event("phc_unknown"), &["invalid", "api_token"]),
    ] {
        let answer = server.send("POST", path, &[JSON], &body);
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (401, &json!("invalid_api_key")),
            "{path}"
        );
        let told = detail(&answer);
        assert!(parts.iter().all(|part| told.contains(part)), "{path} {body}: {told}");
    }
    let projects = |key: &str| {
        let bearer = format!("Bearer {key}");
        server.send("GET", "/api/projects/", &[("authorization", &bearer)], "")
    };
    let answer = projects(TOKEN);
    assert_eq!(answer.json()["code"], "invalid_personal_api_key", "{answer}");
    let told = detail(&answer);
    assert!(told.contains("project API key (phc_...)") && told.contains("phx_"), "{told}");
    assert_eq!(detail(&projects("phx_unknown")), "Invalid Personal API key.");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let page = server.send(
        "POST",
        "/login",
        &[form, ("sec-fetch-site", "same-origin")],
        format!("key={TOKEN}"),
    );
    let page = String::from_utf8(page.body).expect("UTF-8");
    assert!(page.contains("project API key (phc_...)"), "{page}");
    let answer = server.send("GET", "/api/projects/", &[], "");
    assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("not_authenticated")));
}

/// Each public and each management endpoint says where a body is no JSON.
#[test]
fn bad_json_is_told_with_its_place() {
    let server = TestServer::start();
    let bearer = format!("Bearer {KEY}");
    let headers = [JSON, ("authorization", &*bearer)];
    let bad = "{\"api_key\": \"phc_test_project_token\",\n \"distinct_id\" \"u\"}";
    for (path, code) in [
        ("/capture/", "invalid_payload"),
        ("/batch/", "invalid_payload"),
        ("/flags/?v=2", "invalid_payload"),
        (QUERY, "parse_error"),
        ("/api/projects/1/cohorts/", "parse_error"),
    ] {
        let answer = server.send("POST", path, &headers, bad);
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (400, &json!(code)),
            "{path}: {answer}"
        );
        assert!(detail(&answer).contains("line 2 column 16"), "{path}: {answer}");
    }
}

fn refused_sql(server: &TestServer, sql: &str) -> String {
    let answer = server.post(QUERY, &json!({"query": {"kind": "HogQLQuery", "query": sql}}));
    assert_eq!(answer.status, 400, "{sql}: {answer}");
    detail(&answer)
}

#[test]
fn sql_that_writes_and_unknown_columns_are_explained() {
    let server = TestServer::start();
    for sql in [
        "INSERT INTO events (event) VALUES ('x')",
        "insert into events select * from events",
        "-- by me\nUPDATE events SET event = 'x'",
        "/* all */ DELETE FROM events WHERE event = 'x'",
        "TRUNCATE TABLE events",
        "DROP TABLE events",
        "CREATE TABLE t AS SELECT 1",
        "ALTER TABLE events DELETE WHERE 1 = 1",
        "INSERT INTO nowhere FORMAT JSONEachRow {}",
        "SET timezone = 'UTC'",
        "COPY events TO 'x.csv'",
        "EXPLAIN INSERT INTO events SELECT * FROM events",
    ] {
        let told = refused_sql(&server, sql);
        assert!(told.contains("can only read"), "{sql}: {told}");
    }
    for (sql, begin) in [
        ("SELECT evnt FROM events", "there is no column evnt; the nearest are event, "),
        ("SELECT timestmp FROM events", "there is no column timestmp; the nearest are timestamp, "),
        (
            "SELECT e.distinctid FROM events e",
            "there is no column e.distinctid; the nearest are distinct_id, ",
        ),
    ] {
        let told = refused_sql(&server, sql);
        assert!(told.contains(begin), "{sql}: {told}");
        assert_eq!(told.split(", ").count(), 5, "{told}");
    }
    let events = json!({"kind": "EventsQuery", "select": ["distinctid"]});
    let told = detail(&server.post(QUERY, &json!({"query": events})));
    assert!(told.contains("the nearest are distinct_id, ") && told.len() < 250, "{told}");
}

/// Insights, lists of events and of documents, and timelines of persons.
#[test]
fn a_range_that_ends_before_it_begins_is_told() {
    let server = TestServer::start();
    let (from, to) = ("2026-03-02", "2026-03-01");
    let range = json!({"date_from": from, "date_to": to});
    let step = json!({"kind": "EventsNode", "event": "e"});
    for query in [
        json!({"kind": "TrendsQuery", "series": [step], "dateRange": range}),
        json!({"kind": "FunnelsQuery", "series": [step, step], "dateRange": range}),
        json!({"kind": "LifecycleQuery", "series": [step], "dateRange": range}),
        json!({"kind": "StickinessQuery", "series": [step], "dateRange": range}),
        json!({"kind": "PathsQuery", "pathsFilter": {}, "dateRange": range}),
        json!({"kind": "EventsQuery", "select": ["event"], "after": from, "before": to}),
    ] {
        let answer = server.post(QUERY, &json!({"query": query}));
        assert_eq!(answer.status, 400, "{query}: {answer}");
        let told = detail(&answer);
        assert!(told.contains("after") || told.contains("begins"), "{query}: {told}");
    }
    for path in [
        "/api/projects/1/events/?after=2026-03-02&before=2026-03-01",
        "/api/projects/1/insights/?date_from=2026-03-02&date_to=2026-03-01",
        "/api/projects/1/dashboards/?date_from=-1d&date_to=-2d",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}: {answer}");
        assert!(detail(&answer).contains("after"), "{path}: {answer}");
    }
    // The same day, and no end, are ranges.
    let day = json!({"date_from": from, "date_to": from});
    for range in [day, json!({"date_from": "-7d"})] {
        let query = json!({"kind": "TrendsQuery", "series": [step], "dateRange": range});
        assert_eq!(server.post(QUERY, &json!({"query": query})).status, 200, "{range}");
    }
}

/// A page has one line in the log, and what it is made of has none.
#[test]
fn assets_of_pages_are_not_in_the_log() {
    let server = TestServer::start();
    let page = String::from_utf8(server.get("/login").body).expect("UTF-8");
    let assets: Vec<&str> =
        page.split(['"', '\'']).filter(|part| part.starts_with("/assets/")).collect();
    assert!(!assets.is_empty(), "{page}");
    for asset in assets {
        assert_eq!(server.get(asset).status, 200, "{asset}");
    }
    assert_eq!(server.get("/api/projects/").status, 200);
    let log = crate::harness::patiently(|| {
        let log = server.stderr();
        log.contains("/api/projects/").then_some(log)
    });
    let log = log.expect("a line for the request");
    assert!(log.contains("/login") && !log.contains("/assets/"), "{log}");
}

/// An import in the spellings of other systems, whose clock is wrong: every event keeps its time.
#[test]
fn an_import_keeps_its_times() {
    let server = TestServer::start();
    let times = [
        ("2020-01-02T03:04:05.678901Z", 1_577_934_245_678_901_i64),
        ("Jan 2, 2020 3:04:05 AM", 1_577_934_245_000_000),
        ("2 January 2020", 1_577_923_200_000_000),
        ("2020-01-02 03:04:05 PST", 1_577_963_045_000_000),
        ("20200102T030405", 1_577_934_245_000_000),
        ("2020-01-02T04:04:05.000+01:00[Europe/Berlin]", 1_577_934_245_000_000),
        ("2020年01月02日03时04分05秒", 1_577_934_245_000_000),
    ];
    let event = |(number, (time, _)): (usize, &(&str, i64))| json!({"event": "imported", "distinct_id": format!("u{number}"), "timestamp": time});
    let events: Vec<Value> = times.iter().enumerate().map(event).collect();
    let body = json!({
        "api_key": TOKEN, "batch": events, "historical_migration": true,
        "sent_at": "2026-01-01T00:00:00Z",
    });
    assert_eq!(server.send("POST", "/batch/", &[JSON], body.to_string()).status, 200);
    let rows = server.query(
        "SELECT distinct_id, CAST(timestamp AS BIGINT) AS at FROM events ORDER BY distinct_id",
    );
    for (row, (time, expected)) in rows.iter().zip(times) {
        assert_eq!(row["at"], json!(expected), "{time}: {row}");
    }
    assert_eq!(rows.len(), times.len());
    let warnings = server.query("SELECT type FROM ingestion_warnings");
    assert_eq!(warnings, Vec::<Value>::new());
}

/// Of a key that an object has twice the last one counts, whoever asks.
#[test]
fn the_last_of_two_values_of_a_key_counts() {
    let server = TestServer::start();
    let body = format!(
        r#"{{"api_key":"{TOKEN}","event":"e","distinct_id":"u","properties":{{"k":1,"price":1,"o":{{"i":1,"i":2}},"k":2,"price":2}}}}"#
    );
    assert_eq!(server.send("POST", "/capture/", &[JSON], body).status, 200);
    for flushed in [false, true] {
        if flushed {
            server.flush();
        }
        let row = &server.query(
            "SELECT properties.k AS k, properties.o.i AS i, properties.price AS price, \
             toFloat(properties.price) AS number, json_get_int(properties, 'k') AS n, \
             properties ->> 'k' AS t FROM events",
        )[0];
        // A property is a text, whether it has a column or not, unless a number is asked for.
        let expected = json!({"k": "2", "i": "2", "price": "2", "number": 2.0, "n": 2, "t": "2"});
        assert_eq!(row, &expected, "flushed: {flushed}");
        let events = server.get("/api/projects/1/events/?after=2000-01-01").json();
        assert_eq!(events["results"][0]["properties"]["k"], 2, "{events}");
        let filter = json!([{"key": "k", "type": "event", "value": "2", "operator": "exact"}]);
        let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "e"}],
            "properties": filter, "breakdownFilter": {"breakdown": "k"}});
        let answer = server.post(QUERY, &json!({"query": query})).json();
        assert_eq!(answer["results"][0]["breakdown_value"], "2", "{answer}");
    }
}

/// A directory that a newer version has changed is told from a damaged one, by the server and by commands.
#[test]
fn a_newer_directory_is_no_damaged_one() {
    let mut server = TestServer::start();
    server.stop();
    let url = format!("sqlite://{}", server.data_dir().join("metadata.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&url).await.expect("the database");
        let migration =
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES (9999, 'of a later version', TRUE, '', 0)";
        sqlx::query(migration).execute(&mut database).await.expect("an insert");
        database.close().await.expect("the end");
    });
    let is_told = |text: &str| text.contains("made by a newer Weir") && !text.contains("damaged");
    let refused = server.try_start().expect_err("it is refused");
    assert!(is_told(&refused), "{refused}");
    for arguments in [&["keys", "list"][..], &["query", "SELECT 1"]] {
        let output = server.weir(arguments).output().expect("weir");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && is_told(&told), "{arguments:?}: {told}");
    }
    // So is one whose persons have a later format.
    let version = server.data_dir().join("identity/version");
    std::fs::write(&version, b"FJL\x09").expect("writes");
    let output = server.weir(&["inspect", "--verify"]).output().expect("weir");
    let told =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(!output.status.success() && is_told(&told[1]), "{told:?}");
    assert!(told[0].contains("newer     identity") && !told[0].contains("DAMAGED"), "{told:?}");
}
