//! Row isolation of SQL: expressions are evaluated only on rows that the query may see. No error shows a
//! row of another project, nor a deleted one, and no plan shows the data of others.

use serde_json::{Value, json};

use crate::harness::{Answer, TOKEN, TestServer};

/// Fails on every row whose event is not `mine`, with an error that shows it.
const FAILING: &str = "CASE WHEN event <> 'mine' THEN CAST(properties AS BIGINT) ELSE 0 END";

/// Queries that succeed over events named `mine`. Many would fail on others, each in another operator.
fn questions() -> Vec<(String, Value)> {
    let all = json!({"n": 3});
    vec![
        (format!("SELECT count(*) AS n FROM events WHERE {FAILING} * 2 >= 0"), all.clone()),
        (format!("SELECT count(*) AS n FROM events WHERE {FAILING} = 0"), all.clone()),
        (format!("SELECT count({FAILING}) AS n FROM events"), all.clone()),
        (format!("SELECT sum(n) AS n FROM (SELECT {FAILING} + 1 AS n FROM events)"), all.clone()),
        (format!("SELECT count(*) AS n FROM events GROUP BY {FAILING}"), all.clone()),
        (
            format!("SELECT count(*) AS n FROM events a JOIN (VALUES (0)) b(n) ON {FAILING} = b.n"),
            all.clone(),
        ),
        (
            format!(
                "SELECT count(*) AS n FROM events WHERE EXISTS (SELECT 1 FROM (VALUES (0)) b(n) WHERE n = {FAILING})"
            ),
            all.clone(),
        ),
        (
            format!("SELECT count(*) AS n FROM (SELECT lag(event) OVER (ORDER BY {FAILING}) AS r FROM events) WHERE r IS NULL OR r = 'mine'"),
            all.clone(),
        ),
        (
            format!("SELECT array_length(array_agg(event ORDER BY {FAILING})) AS n FROM events"),
            all.clone(),
        ),
        (
            format!("SELECT max(n) AS n FROM (SELECT row_number() OVER (PARTITION BY {FAILING} ORDER BY {FAILING}) AS n FROM events)"),
            all.clone(),
        ),
        (
            "SELECT count(*) AS n FROM events WHERE 1 / (CASE event WHEN 'mine' THEN 1 ELSE 0 END) > 0"
                .to_owned(),
            all.clone(),
        ),
        (
            "SELECT count(*) AS n FROM events WHERE CAST(event AS BIGINT) > 0 OR event = 'mine'"
                .to_owned(),
            json!("mine"),
        ),
        (
            "SELECT count(*) AS n FROM events WHERE arrow_cast(event, 'Int64') > 0".to_owned(),
            json!("arrow_cast"),
        ),
        (format!("SELECT event FROM events ORDER BY {FAILING}, uuid LIMIT 1"), json!({"event": "mine"})),
        ("SELECT event FROM events LIMIT 1".to_owned(), json!({"event": "mine"})),
        (
            "SELECT event FROM events WHERE person_id <> 'x' LIMIT 1".to_owned(),
            json!({"event": "mine"}),
        ),
        (
            "SELECT count(*) AS n, min(event) AS a, max(event) AS b FROM events".to_owned(),
            json!({"n": 3, "a": "mine", "b": "mine"}),
        ),
        (
            "SELECT count(*) AS n FROM events WHERE event <> 'mine'".to_owned(),
            json!({"n": 0}),
        ),
    ]
}

struct World {
    server: TestServer,
    other: i64,
}

impl World {
    fn ask(&self, project: i64, sql: &str) -> Answer {
        let path = format!("/api/projects/{project}/query/");
        self.server.post(&path, &json!({"query": sql, "format": "json"}))
    }

    fn plan(&self, project: i64, sql: &str) -> String {
        let answer = self.ask(project, &format!("EXPLAIN {sql}"));
        answer.json()["plan"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Sends events to a project by its token.
    fn send(&self, token: &str, batch: &[Value]) {
        let body = json!({"api_key": token, "batch": batch}).to_string();
        let answer =
            self.server.send("POST", "/batch/", &[("content-type", "application/json")], body);
        assert_eq!(answer.status, 200, "{answer}");
    }
}

/// Goal: a query evaluates nothing on rows of others, wherever they are. Method: two projects share
/// memory and files, and one of them has deleted events. Conditions that fail on all rows except its own
/// succeed in each project, and a failed response contains nothing of the other. Files are still pruned
/// by their statistics.
#[test]
fn conditions_are_evaluated_on_own_rows_alone() {
    let server = TestServer::start();
    let made = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let token = made["api_token"].as_str().expect("a token").to_owned();
    let mut world = World { server, other: made["id"].as_i64().expect("an id") };
    let event = |name: &str, id: &str, secret: &str| json!({"event": name, "distinct_id": id, "properties": {"secret": secret}});
    let own = |secret: &str| {
        let mine = (0..3).map(|_| event("mine", "u", secret));
        mine.collect::<Vec<_>>()
    };
    let gone: Vec<Value> = (0..3).map(|_| event("deleted", "gone", "SECRET of gone")).collect();
    world.send(TOKEN, &gone);
    world.send(TOKEN, &own("first"));
    world.send(&token, &own("second"));
    // Of each the other is full of what fails.
    let third = world.server.post("/api/projects/", &json!({"name": "Third"})).json();
    let third_token = third["api_token"].as_str().expect("a token");
    let theirs = (0..50).map(|n| event(&format!("theirs {n}"), "u", "SECRET of others"));
    world.send(third_token, &theirs.collect::<Vec<_>>());
    let people = world.server.get("/api/projects/1/persons/?distinct_id=gone").json();
    let person = people["results"][0]["uuid"].as_str().expect("a person").to_owned();
    let deleted = format!("/api/projects/1/persons/{person}/?delete_events=true");
    let before = world.plan(world.other, "SELECT person_id FROM events");
    assert_eq!(world.server.delete(&deleted).status, 202);
    for round in ["in memory", "in files"] {
        for project in [1, world.other] {
            for (sql, expected) in questions() {
                let answer = world.ask(project, &sql);
                let text = answer.to_string();
                let case = format!("{round}: {project}: {sql}: {text}");
                assert!(!text.contains("SECRET") && !text.contains("theirs"), "{case}");
                match expected {
                    Value::String(told) => {
                        assert!(answer.status == 400 && text.contains(&told), "{case}")
                    }
                    row => assert_eq!((answer.status, answer.json()), (200, row), "{case}"),
                }
            }
        }
        // One project's merges are its own matter.
        let merge = json!({"event": "$identify", "distinct_id": "named", "properties": {"$anon_distinct_id": "u"}});
        world.send(third_token, &[event("theirs", "named", "SECRET"), merge]);
        let after = world.plan(world.other, "SELECT person_id FROM events");
        assert_eq!(after, before, "{round}");
        assert!(!after.contains("project_id"), "{round}: {after}");
        world.server.stop();
        world.server.restart();
    }
    let third = third["id"].as_i64().expect("an id");
    let resolved = world.plan(third, "SELECT person_id FROM events");
    assert!(resolved.contains("resolve_person"), "{resolved}");
    let read = |condition: &str| {
        let plan = world
            .server
            .query(&format!("EXPLAIN ANALYZE SELECT max(uuid) FROM events {condition}"));
        let plan = plan[0]["plan"].as_str().expect("a plan").to_owned();
        let scans = plan
            .lines()
            .filter(|line| line.contains("DataSourceExec"))
            .filter(|line| line.contains("parquet"));
        let scans: Vec<&str> = scans.collect();
        // A plan without a file to read has no scan.
        let is_read = |scan: &&str| !scan.contains("output_rows=0,");
        (scans.iter().any(is_read), plan.clone())
    };
    for (condition, is_read) in [
        ("", true),
        ("WHERE event = 'mine'", true),
        ("WHERE event = 'zzz'", false),
        ("WHERE timestamp > TIMESTAMP '2100-01-01'", false),
        ("WHERE timestamp > TIMESTAMP '2100-01-01' AND length(event) > 0", false),
    ] {
        let (found, plan) = read(condition);
        assert_eq!(found, is_read, "{condition}: {plan}");
    }
}
